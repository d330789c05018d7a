/* Draws a figure again from its points, so that it can be asked questions; the picture stays for print.
   The data stand in <script class="figure-points" data-figure="ID">, written by the build. */
"use strict";

(() => {
  const NS = "http://www.w3.org/2000/svg";
  const svg = (name, attributes = {}, ...children) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  const MARGIN = { left: 54, right: 14, top: 28, bottom: 44 };
  const LETTER = 6.6; // px a letter of a label takes, about
  const DASHES = { "--": "5 4", "-.": "6 3 1.5 3", ":": "1.5 3" };
  const BLACK = "currentColor";
  /** Corners of a mark around the origin: number of corners, first angle, and every second radius for stars. */
  const MARKS = {
    s: [4, 45], D: [4, 0], "^": [3, -90], v: [3, 90], "<": [3, 180], ">": [3, 0], p: [5, -90], h: [6, -90],
    "*": [10, -90, 0.45], P: [8, 22.5, 0.55], X: [8, 0, 0.5],
  };
  /** At most two lines of so many letters, broken at a space where there is one. */
  function wrapped(words, letters) {
    if (words.length <= letters) return [words];
    const at = words.lastIndexOf(" ", letters);
    const [first, rest] = at > 0 ? [words.slice(0, at), words.slice(at + 1)] : [words.slice(0, letters), words.slice(letters)];
    return [first, rest.length > letters ? `${rest.slice(0, letters - 1)}…` : rest];
  }
  function dashed(line) {
    const dashes = Array.isArray(line) ? line[1]?.map((length) => 1.5 * length).join(" ") : DASHES[line];
    return dashes ? { "stroke-dasharray": dashes } : {};
  }
  function mark(shape, x, y, size, attributes) {
    if (shape === "_") return svg("rect", { x: x - 2.5 * size, y: y - 1, width: 5 * size, height: 2, ...attributes });
    if (!(shape in MARKS)) return svg("circle", { cx: x, cy: y, r: size, ...attributes });
    const [corners, first, inner = 1] = MARKS[shape];
    const points = Array.from({ length: corners }, (_, k) => {
      const angle = ((first + (360 / corners) * k) * Math.PI) / 180;
      const radius = size * 1.25 * (k % 2 ? inner : 1);
      return `${x + radius * Math.cos(angle)},${y + radius * Math.sin(angle)}`;
    });
    return svg("polygon", { points: points.join(" "), ...attributes });
  }

  class Answering {
    constructor(figure, data) {
      this.figure = figure;
      for (const panel of data.panels) for (const series of panel.series) if (series.color === "#000000") series.color = BLACK; // which is light in the dark theme
      this.panels = data.panels;
      this.columns = data.columns;
      this.hidden = new Set();
      this.picture = figure.querySelector("img");
      this.place = element("div", { class: "answering", role: "group", "aria-label": `${this.picture.alt} Points can be asked: arrow keys left and right along a series, up and down between series.` });
      this.drawing = element("div", { class: "answering-panels" });
      this.tip = element("div", { class: "answering-tip", role: "status", "aria-live": "polite" });
      this.place.append(this.drawing, this.legend(), this.tip);
      this.picture.before(this.place);
      figure.classList.add("answers");
      this.width = 0;
      new ResizeObserver(() => this.draw()).observe(this.place);
      this.draw();
    }

    labels() {
      const looks = new Map();
      for (const panel of this.panels) for (const series of panel.series) if (!looks.has(series.label)) looks.set(series.label, series);
      return looks;
    }

    legend() {
      const legend = element("div", { class: "answering-legend", role: "group", "aria-label": "Series: press to hide or show" });
      for (const [label, look] of this.labels()) {
        const sample = svg("svg", { width: 26, height: 12, "aria-hidden": "true" });
        if (look.line) sample.append(svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: look.color, "stroke-width": 1.5, ...dashed(look.line) }));
        sample.append(this.mark(look, 13, 6, 4.5));
        const button = element("button", { type: "button", "aria-pressed": "true" }, sample, label);
        button.addEventListener("click", () => {
          const off = !this.hidden.delete(label);
          if (off) this.hidden.add(label);
          button.setAttribute("aria-pressed", `${!off}`);
          this.draw(true);
        });
        legend.append(button);
      }
      for (const guide of new Set(this.panels.flatMap((panel) => panel.guides.map((one) => one.label)))) if (guide) legend.append(element("span", { class: "answering-guide" }, guide));
      for (const curve of new Set(this.panels.flatMap((panel) => panel.curves.map((one) => one.label)))) legend.append(element("span", { class: "answering-curve" }, curve));
      for (const band of new Set(this.panels.flatMap((panel) => panel.bands.map((one) => one.label)))) legend.append(element("span", { class: "answering-band" }, band));
      return legend;
    }

    mark(look, x, y, size) {
      return mark(look.marker, x, y, size, { fill: look.hollow ? "var(--pst-color-background)" : look.color, stroke: look.color, "stroke-width": 1.2 });
    }

    draw(force = false) {
      const width = Math.floor(this.place.clientWidth);
      if (!width || (width === this.width && !force)) return;
      this.width = width;
      const longest = Math.max(...this.panels.flatMap((panel) => panel.yticks.map(([, words]) => words.length)), 0);
      this.left = Math.max(MARGIN.left, Math.min(30 + LETTER * longest, 0.45 * width));
      const columns = Math.max(1, Math.min(this.columns, Math.floor(width / (236 + this.left))));
      const lines = Math.max(...this.panels.map((panel) => panel.yticks.length)) * (30 + LETTER * longest > this.left ? 2 : 1);
      const height = Math.max(columns === 1 ? Math.min(300, Math.max(240, width * 0.6)) : 290, MARGIN.top + MARGIN.bottom + 15 * lines);
      const size = { width: Math.floor(width / columns), height };
      this.drawing.replaceChildren(...this.panels.map((panel) => this.panel(panel, size)));
    }

    panel(panel, { width, height }) {
      const left = this.left;
      const inner = { width: width - left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
      const along = { log: Math.log, symlog: (v) => (v <= 1 ? v / 0.9 : 1 / 0.9 + Math.log10(v)), linear: (v) => v }; // as matplotlib, for v >= 0
      const scale = (value, [low, high], length, kind) => ((along[kind](value) - along[kind](low)) / (along[kind](high) - along[kind](low))) * length;
      const x = (value) => left + scale(value, panel.xlim, inner.width, panel.xscale);
      const y = (value) => MARGIN.top + inner.height - scale(value, panel.ylim, inner.height, panel.yscale);
      const image = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application", "aria-label": `${panel.title || panel.ylabel}: chart` });
      const text = (at, words, more = {}) => {
        const lines = words.split("\n").map((line, k) => svg("tspan", { x: at[0], dy: k ? "1.15em" : 0 }, line));
        image.append(svg("text", { x: at[0], y: at[1], "text-anchor": "middle", ...more }, ...lines));
      };
      const line = (a, b, kind) => image.append(svg("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: kind }));
      const bottom = MARGIN.top + inner.height;
      const right = left + inner.width;
      for (const band of panel.bands) image.append(svg("rect", { class: "band", x: left, width: inner.width, y: y(band.high), height: y(band.low) - y(band.high) }));
      for (const [value, words] of panel.yticks) {
        line([left, y(value)], [right, y(value)], "grid");
        const lines = wrapped(words.replace("\n", ", "), Math.round((left - 30) / LETTER));
        text([left - 6, y(value) + 4 - 7 * (lines.length - 1)], lines.join("\n"), { "text-anchor": "end" });
      }
      let last = -Infinity;
      for (const [value, words] of panel.xticks) {
        line([x(value), MARGIN.top], [x(value), bottom], "grid");
        const half = (3 + LETTER * Math.max(...words.split("\n").map((line) => line.length))) / 2;
        if (x(value) - half < last) continue;
        last = x(value) + half;
        text([x(value), bottom + 16], words);
      }
      text([left + inner.width / 2, height - 8], panel.xlabel);
      const title = panel.title.replace("\n", ", ");
      text([left + inner.width / 2, 16], title, { class: "title", ...(8 * title.length > inner.width ? { style: "font-size: 11px" } : {}) });
      text([14, height / 2], panel.ylabel.replace("\n", " "), { transform: `rotate(-90 14 ${height / 2})` });
      const clip = `clip-${Math.random().toString(36).slice(2)}`;
      image.append(svg("clipPath", { id: clip }, svg("rect", { x: left - 7, y: MARGIN.top - 7, width: inner.width + 14, height: inner.height + 14 })));
      const field = svg("g", { "clip-path": `url(#${clip})` });
      image.append(field);
      for (const guide of panel.guides) {
        const ends = guide.along === "x" ? { x1: left, x2: right, y1: y(guide.at), y2: y(guide.at) } : { x1: x(guide.at), x2: x(guide.at), y1: MARGIN.top, y2: bottom };
        field.append(svg("line", { class: "guide", ...ends }));
      }
      const path = (points) => points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
      for (const area of panel.areas) field.append(svg("polygon", { class: "band", points: path(area) }));
      for (const curve of panel.curves) field.append(svg("polyline", { points: path(curve.points), fill: "none", stroke: BLACK }));
      const asked = [];
      for (const series of panel.series.filter((one) => !this.hidden.has(one.label))) {
        if (series.line && series.line !== "None") field.append(svg("polyline", { points: path(series.points.map((one) => [one.x, one.y])), fill: "none", stroke: series.color, "stroke-width": 1.5, ...dashed(series.line) }));
        for (const one of series.points) {
          if (one.interval) field.append(svg("path", { class: "interval", stroke: series.color, d: series.across ? `M${x(one.interval[0])} ${y(one.y)}H${x(one.interval[1])}` : `M${x(one.x)} ${y(one.interval[0])}V${y(one.interval[1])}` }));
          field.append(this.mark(series, x(one.x), y(one.y), 4));
        }
        asked.push(series.points.filter((one) => y(one.y) >= MARGIN.top - 7 && y(one.y) <= bottom + 7).map((one) => ({ ...one, at: [x(one.x), y(one.y)], look: series })));
      }
      const ring = svg("circle", { class: "asked", r: 8, visibility: "hidden" });
      image.append(ring);
      this.listen(image, ring, asked.filter((series) => series.length));
      return image;
    }

    listen(image, ring, series) {
      let here = null;
      const ask = (point) => {
        here = point;
        ring.setAttribute("visibility", point ? "visible" : "hidden");
        if (!point) {
          this.tip.classList.remove("shown");
          return;
        }
        ring.setAttribute("cx", point.at[0]);
        ring.setAttribute("cy", point.at[1]);
        this.tip.textContent = point.words;
        this.tip.classList.add("shown");
        const [a, b] = [image.getBoundingClientRect(), this.place.getBoundingClientRect()];
        const left = a.left - b.left + point.at[0] - this.tip.offsetWidth / 2;
        this.tip.style.left = `${Math.max(0, Math.min(left, b.width - this.tip.offsetWidth))}px`;
        const above = a.top - b.top + point.at[1] - this.tip.offsetHeight - 14;
        this.tip.style.top = `${above < 0 ? a.top - b.top + point.at[1] + 14 : above}px`;
      };
      const nearest = (points, [x, y], weight = 1) => points.reduce((best, one) => {
        const d = Math.hypot(one.at[0] - x, weight * (one.at[1] - y));
        return d < best.d ? { one, d } : best;
      }, { one: null, d: Infinity });
      const follow = (event) => {
        const box = image.getBoundingClientRect();
        const { one, d } = nearest(series.flat(), [event.clientX - box.left, event.clientY - box.top]);
        ask(d < 40 ? one : null);
      };
      image.addEventListener("pointermove", follow);
      image.addEventListener("pointerdown", follow);
      image.addEventListener("pointerleave", () => ask(null));
      image.addEventListener("blur", () => ask(null));
      image.addEventListener("keydown", (event) => {
        if (event.key === "Escape") ask(null);
        const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
        if (!move || !series.length) return;
        event.preventDefault();
        if (!here) return ask(series[0][0]);
        const row = series.findIndex((points) => points.includes(here));
        if (move[0]) return ask(series[row][Math.min(series[row].length - 1, Math.max(0, series[row].indexOf(here) + move[0]))]);
        return ask(nearest(series[(row + move[1] + series.length) % series.length], here.at, 0.01).one);
      });
    }
  }

  for (const script of document.querySelectorAll("script.figure-points")) {
    const figure = document.getElementById(script.dataset.figure);
    if (figure?.querySelector("img")) new Answering(figure, JSON.parse(script.textContent));
  }
})();
