/* The viewer of single inputs. DobrushinExamples lists models and their examples; an example's look stands in DobrushinLooks,
   or is loaded as KEY.js from the folder in the section's data-folder. The address holds what is shown: #see=KEY,LAYER. */
"use strict";

(() => {
  const place = document.getElementById("viewer");
  const models = globalThis.DobrushinExamples;
  if (!place || !models) return;
  const LEVELS = 65535;
  const SMALLEST = 7; // px that a frame around a cell measures at least
  const RAMP = ["#faebdd", "#f6aa82", "#f06043", "#cb1b4f", "#841e5a", "#35193e", "#03051a"]; // light to dark, by the weight's square root

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const svg = (name, attributes = {}) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const number = (x) => (x === 0 ? "0" : Math.abs(x) < 1e-4 ? x.toExponential(2) : x.toPrecision(4)).replace("-", "−");

  const ramp = (() => {
    const stops = RAMP.map((code) => [1, 3, 5].map((at) => parseInt(code.slice(at, at + 2), 16)));
    return Array.from({ length: 256 }, (_, k) => {
      const at = (k / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(at), stops.length - 2);
      return stops[low].map((value, c) => Math.round(value + (at - low) * (stops[low + 1][c] - value)));
    });
  })();

  const state = { key: models[0].examples[0].key, layer: 1, example: null, asked: null };
  const modelOf = (key) => models.find((model) => model.examples.some((one) => one.key === key));
  const current = () => state.example.layers.find((one) => one.layer === state.layer);

  function matrixOf(layer) {
    const bytes = Uint8Array.from(atob(layer.levels), (c) => c.charCodeAt(0));
    return Float64Array.from({ length: bytes.length / 2 }, (_, k) => ((bytes[2 * k] + 256 * bytes[2 * k + 1]) * layer.largest) / LEVELS);
  }
  const named = (k) => (state.example.kind === "words" ? `“${state.example.tokens[k]}” (${k + 1})` : state.example.kind === "patches" ? `the patch in ${state.example.tokens[k]}` : state.example.tokens[k]);

  // ---- loading -----------------------------------------------------------------------------------------------

  function load(key) {
    const looks = (globalThis.DobrushinLooks ??= {});
    if (looks[key]) return Promise.resolve(looks[key]);
    return new Promise((resolve, reject) => {
      const script = element("script", { src: `${place.dataset.folder}/${key}.js` });
      script.onload = () => resolve(looks[key]);
      script.onerror = () => reject(new Error(`${script.src} could not be loaded`));
      document.head.append(script);
    });
  }

  function fromAddress() {
    const [, key, layer] = /^#see=([\w.-]+),(\d+)$/.exec(location.hash) ?? [];
    return modelOf(key) ? { key, layer: Number(layer) } : null;
  }

  async function choose(key, layer = state.layer, remember = true) {
    state.key = key;
    let example;
    try {
      example = await load(key);
    } catch (error) {
      parts.verdict.textContent = `${error.message}; try again, or choose another input.`;
      return;
    }
    if (state.key !== key) return; // another one was chosen meanwhile
    state.example = example;
    state.layer = Math.min(Math.max(layer, 1), example.layers.length);
    state.asked = null;
    show();
    if (remember) history.replaceState(null, "", `#see=${key},${state.layer}`);
  }

  // ---- what stands there -------------------------------------------------------------------------------------

  const parts = {
    model: element("select"), example: element("select"), note: element("p", { class: "viewer-note" }),
    layers: element("fieldset", { class: "viewer-layers" }), verdict: element("p", { class: "viewer-verdict", role: "status" }),
    map: element("div", { class: "viewer-map", tabindex: 0, role: "application" }), canvas: element("canvas", { "aria-hidden": "true" }),
    frames: svg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }), scale: element("div", { class: "viewer-scale" }),
    asked: element("p", { class: "viewer-asked", role: "status" }), rows: element("div", { class: "viewer-rows" }),
    values: element("table", { class: "viewer-values" }),
  };
  parts.map.append(parts.canvas, parts.frames);
  const key = element("p", { class: "viewer-key" }, "Grey: the two rows of the pair. Solid blue: its two diagonal entries. Dashed green: the entries that they must reach, each in its own column.");
  place.append(
    element("div", { class: "viewer-bar" }, element("label", {}, "Model ", parts.model), element("label", {}, "Input ", parts.example)),
    parts.note, parts.layers, parts.verdict,
    element("div", { class: "viewer-main" }, element("div", {}, parts.map, parts.scale, parts.asked, key), element("div", {}, parts.rows, parts.values)),
  );
  models.forEach((model, k) => parts.model.append(element("option", { value: k }, model.title)));
  parts.model.addEventListener("change", () => choose(models[parts.model.value].examples[0].key));
  parts.example.addEventListener("change", () => choose(parts.example.value));
  parts.layers.addEventListener("change", (event) => choose(state.key, Number(event.target.value)));
  window.addEventListener("hashchange", () => {
    const wanted = fromAddress();
    if (wanted) choose(wanted.key, wanted.layer, false);
  });

  function show() {
    const model = modelOf(state.key);
    parts.model.value = models.indexOf(model);
    parts.example.replaceChildren(...model.examples.map((one) => element("option", { value: one.key }, one.label)));
    parts.example.value = state.key;
    parts.note.textContent = model.note + (state.example.note ? ` ${state.example.note}` : "");
    const focused = parts.layers.contains(document.activeElement);
    parts.layers.replaceChildren(element("legend", {}, "Layer"), ...state.example.layers.map((layer) => {
      const input = element("input", { type: "radio", name: "viewer-layer", value: layer.layer, "aria-label": `layer ${layer.layer}, equality ${layer.holds ? "holds" : "fails"}` });
      input.checked = layer.layer === state.layer;
      return element("label", { class: layer.holds ? "holds" : "fails" }, input, `${layer.layer} ${layer.holds ? "✓" : "✗"}`);
    }));
    if (focused) parts.layers.querySelector(":checked").focus();
    const layer = current();
    judge(layer);
    draw(layer, matrixOf(layer));
  }

  function judge(layer) {
    const { i, j, holds } = layer;
    parts.verdict.dataset.verdict = holds ? "holds" : "fails";
    const why = holds ? "mutually self-dominant: each attends to itself at least as much as the other attends to it." : `no pair at this distance is mutually self-dominant; the bound is off by ${number(layer.gap)}.`;
    parts.verdict.replaceChildren("Equality ", element("strong", {}, holds ? "holds" : "fails"), `. κ(A) is attained by ${named(i)} and ${named(j)}, ${holds ? "" : "and "}${why}`,
      layer.fragile ? " Rounding inside the model could turn this verdict." : "");
    const sign = (own, other) => (own >= other ? "≥" : "<");
    const rows = [
      ["κ(A)", number(layer.kappa)], ["bound ½(1+κ(A))", number((1 + layer.kappa) / 2)], ["truth κ(½(I+A))", number(layer.lazy_kappa)],
      ["gap", number(layer.gap)],
      ["margin", layer.margin === null ? (holds ? "every pair is mutually self-dominant" : "no pair is mutually self-dominant") : number(layer.margin)],
      [`i = ${named(i)}`, `Aᵢᵢ = ${number(layer.A_ii)} ${sign(layer.A_ii, layer.A_ji)} Aⱼᵢ = ${number(layer.A_ji)}`],
      [`j = ${named(j)}`, `Aⱼⱼ = ${number(layer.A_jj)} ${sign(layer.A_jj, layer.A_ij)} Aᵢⱼ = ${number(layer.A_ij)}`],
    ];
    parts.values.replaceChildren(element("caption", { class: "viewer-hidden" }, "The verdict in numbers"),
      element("tbody", {}, ...rows.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)))));
  }

  function draw(layer, matrix) {
    const n = layer.n;
    parts.canvas.width = parts.canvas.height = n;
    const image = new ImageData(n, n);
    matrix.forEach((weight, k) => image.data.set([...ramp[Math.round(255 * Math.sqrt(weight / layer.largest))], 255], 4 * k));
    parts.canvas.getContext("2d").putImageData(image, 0, 0);
    parts.map.setAttribute("aria-label", `Attention of layer ${layer.layer} as a heat map of ${n} by ${n} cells. Arrow keys move between cells, Home goes to the pair.`);
    parts.frames.setAttribute("viewBox", `0 0 ${n} ${n}`);
    const stops = RAMP.map((code, k) => `${code} ${(100 * k) / (RAMP.length - 1)}%`).join(", ");
    parts.scale.replaceChildren(
      element("span", { class: "ramp", style: `background: linear-gradient(to right, ${stops})` }),
      element("span", { class: "ends" }, ...[0, 0.25, 1].map((part) => element("span", {}, number(part * layer.largest)))),
      "Attention weight; the colour goes with its square root. Rows attend, columns are attended to.",
    );
    frame(layer);
    parts.rows.replaceChildren(...[[layer.i, layer.j, "i"], [layer.j, layer.i, "j"]].map(([row, partner, letter]) => attending(layer, matrix, row, partner, letter)));
    say(layer, matrix);
    parts.map.onpointermove = parts.map.onpointerdown = (event) => {
      const box = parts.map.getBoundingClientRect();
      const at = (offset, length) => Math.min(n - 1, Math.max(0, Math.floor((offset / length) * n)));
      ask(layer, matrix, at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width));
    };
    parts.map.onkeydown = (event) => {
      const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, 0] }[event.key];
      if (!move) return;
      event.preventDefault();
      const from = event.key === "Home" || !state.asked ? [layer.i, layer.i] : state.asked;
      const to = event.key === "Home" || state.asked ? from.map((k, axis) => Math.min(n - 1, Math.max(0, k + move[axis]))) : from;
      ask(layer, matrix, ...to);
    };
  }

  /** Frames around the pair's rows and cells, and around the cell that is asked; small cells get a larger frame. */
  function frame(layer) {
    const { n, i, j } = layer;
    const cell = (parts.map.clientWidth || 400) / n;
    const grow = Math.max(0, SMALLEST - cell) / 2 / cell;
    const around = (row, column, kind) => ["halo", kind].map((name) => svg("rect", { class: name, x: column - grow, y: row - grow, width: 1 + 2 * grow, height: 1 + 2 * grow }));
    parts.frames.replaceChildren(
      ...[i, j].map((row) => svg("rect", { class: "row", x: 0, y: row, width: n, height: 1 })),
      ...around(i, i, "own"), ...around(j, j, "own"), ...around(j, i, "other"), ...around(i, j, "other"),
      ...(state.asked ? around(...state.asked, "asked") : []),
    );
  }

  function ask(layer, matrix, row, column) {
    state.asked = [row, column];
    frame(layer);
    say(layer, matrix);
  }

  function say(layer, matrix) {
    if (!state.asked) parts.asked.textContent = "Point at a cell, or move with the arrow keys.";
    else {
      const [row, column] = state.asked;
      parts.asked.textContent = `From ${named(row)} to ${row === column ? "itself" : named(column)}: ${number(matrix[row * layer.n + column])}.`;
    }
  }

  /** One row of the pair, shown on the input: the more a token is attended to, the stronger its tint (words) or its light (patches). */
  function attending(layer, matrix, row, partner, letter) {
    const { n } = layer;
    const weights = matrix.subarray(row * n, (row + 1) * n);
    const most = Math.max(...weights);
    const caption = element("figcaption", {}, `${letter} = ${named(row)} attends to`);
    const mark = (k) => (k === row ? "own" : k === partner ? "other" : "");
    if (state.example.kind !== "patches") {
      const tokens = state.example.tokens.map((token, k) => element("span", { class: mark(k), style: `--weight: ${(weights[k] / most).toFixed(3)}`, title: number(weights[k]) }, token));
      return element("figure", {}, caption, element("div", { class: "viewer-tokens" }, ...tokens));
    }
    const side = Math.round(Math.sqrt(n));
    const cells = svg("svg", { viewBox: `0 0 ${side} ${side}`, "aria-hidden": "true" });
    const rect = (k, attributes) => svg("rect", { x: k % side, y: Math.floor(k / side), width: 1, height: 1, ...attributes });
    weights.forEach((weight, k) => cells.append(rect(k, { class: "shade", opacity: (0.8 * (1 - Math.sqrt(weight / most))).toFixed(3) })));
    for (const [k, kind] of [[partner, "other"], [row, "own"]]) cells.append(rect(k, { class: "halo" }), rect(k, { class: kind }));
    const image = element("img", { src: state.example.picture, alt: `The input, light where ${named(row)} attends to; this patch is outlined.` });
    return element("figure", {}, caption, element("div", { class: "viewer-picture" }, image, cells));
  }

  new ResizeObserver(() => state.example && frame(current())).observe(parts.map);
  place.hidden = false;
  const wanted = fromAddress() ?? state;
  choose(wanted.key, wanted.layer, false);
})();
