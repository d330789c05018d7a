/* The explorer of the theorem: a matrix to edit, its verdict at once. Arithmetic is in exact.js, the page's text in book/explorer.md. */
"use strict";

(() => {
  const D = globalThis.Dobrushin;
  const GRID = 1000; // dragged and random weights are thousandths: rows sum to 1 exactly
  const STEP = 10; // of them for one key press
  const SIZES = [2, 3, 4, 5, 6, 7, 8];
  const FAILING = [["1/8", "6/8", "1/8"], ["6/8", "1/8", "1/8"], ["2/8", "2/8", "4/8"]];

  const range = (n) => Array.from({ length: n }, (_, k) => k);
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const svg = (name, attributes = {}, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  /** Whole thousandths that sum to 1 and are nearest to the given shares (largest remainders first). */
  function thousandths(shares, total = GRID) {
    const scaled = shares.map((share) => share * total);
    const units = scaled.map(Math.floor);
    const order = range(shares.length).sort((a, b) => scaled[b] - units[b] - (scaled[a] - units[a]));
    for (let left = total - units.reduce((a, b) => a + b, 0), k = 0; left > 0; left--, k++) units[order[k % order.length]] += 1;
    return units;
  }
  const unitText = (units) => D.type(D.fraction(BigInt(units), BigInt(GRID)));

  const unitRow = (n, i) => range(n).map((k) => (k === i ? "1" : "0"));
  function randomRow(n) {
    const weights = range(n).map(() => -Math.log(1 - Math.random()));
    const total = weights.reduce((a, b) => a + b, 0);
    return thousandths(weights.map((weight) => weight / total)).map(unitText);
  }
  function localRow(n, i) {
    const near = range(n).filter((k) => Math.abs(k - i) === 1);
    return range(n).map((k) => (k === i ? "1/2" : near.includes(k) ? (near.length === 2 ? "1/4" : "1/2") : "0"));
  }
  const sinkRow = (n, i) => range(n).map((k) => (i === 0 ? (k === 0 ? "1" : "0") : k === 0 ? "0.7" : k === i ? "0.3" : "0"));

  const PRESETS = {
    failing: { title: "failing example", of: () => FAILING, note: "the failing example of the first chapter" },
    random: { title: "random", of: (n) => range(n).map(() => randomRow(n)), note: "random rows, uniform on the simplex, rounded to thousandths" },
    identity: { title: "identity", of: (n) => range(n).map((i) => unitRow(n, i)), note: "the identity: every token attends to itself only" },
    sink: { title: "sink column", of: (n) => range(n).map((i) => sinkRow(n, i)), note: "a sink: every token attends to the first, and a little to itself" },
    local: { title: "local", of: (n) => range(n).map((i) => localRow(n, i)), note: "local attention: half to itself, half to the neighbours" },
    shift: { title: "cyclic shift", of: (n) => range(n).map((i) => unitRow(n, (i + 1) % n)), note: "a cyclic shift: every token attends to the next one only" },
  };
  const sentence = globalThis.DobrushinSentence;
  sentence?.layers.forEach((layer, index) => {
    PRESETS[`layer-${index + 1}`] = {
      title: `layer ${index + 1}`, of: () => layer.weights, words: sentence.words,
      note: `${sentence.label}, layer ${index + 1}, rounded to thousandths; before rounding the condition ${layer.holds ? "holds" : "fails"}`,
    };
  });

  const place = document.getElementById("explorer");
  const state = { texts: FAILING, note: "", words: null };
  let cells = [];

  // ---- the address -------------------------------------------------------------------------------------------

  const inAddress = (texts) => `#A=${texts.map((row) => row.map((text) => encodeURIComponent(text.trim()).replace(/%2F/g, "/")).join(",")).join(";")}`;

  function fromAddress() {
    if (!location.hash.startsWith("#A=")) return null;
    let texts;
    try {
      texts = location.hash.slice(3).split(/;|%3B/i).map((row) => row.split(/,|%2C/i).map(decodeURIComponent));
    } catch {
      texts = [];
    }
    const n = texts.length;
    if (!SIZES.includes(n) || texts.some((row) => row.length !== n || row.some((text) => text.length > 400))) {
      say("The address holds no square matrix of 2 to 8 rows; this is the failing example of the first chapter.");
      return FAILING;
    }
    return texts;
  }

  function recognise() {
    const key = JSON.stringify(state.texts);
    const preset = Object.values(PRESETS).find((one) => one !== PRESETS.random && JSON.stringify(one.of(state.texts.length)) === key);
    state.note = preset?.note ?? "";
    state.words = preset?.words ?? null;
  }

  // ---- reading the matrix ------------------------------------------------------------------------------------

  function read() {
    const faults = [];
    const values = state.texts.map((row, i) => {
      const found = row.map((text, k) => {
        try {
          return D.parse(text);
        } catch (error) {
          faults.push({ row: i, column: k, message: `Row ${i + 1}, column ${k + 1}: ${error.message}.` });
          return null;
        }
      });
      if (!found.includes(null) && D.compare(D.sum(found), D.ONE) !== 0)
        faults.push({ row: i, sum: D.sum(found), message: `Row ${i + 1} sums to ${D.show(D.sum(found))}, not to 1.` });
      return found;
    });
    return { values, faults };
  }

  function rescaled(row) {
    const values = row.map(D.parse);
    const total = D.sum(values);
    return values.map((value) => D.type(D.divide(value, total)));
  }

  /** The row with one weight set to so many thousandths, the others rescaled in proportion. */
  function moved(row, column, units) {
    const shares = row.map((text, k) => {
      if (k === column) return 0;
      try {
        return D.toDouble(D.parse(text));
      } catch {
        return 0;
      }
    });
    const total = shares.reduce((a, b) => a + b, 0);
    const others = range(row.length).filter((k) => k !== column);
    const chosen = Math.min(GRID, Math.max(0, units));
    const parts = thousandths(others.map((k) => (total > 0 ? shares[k] / total : 1 / others.length)), GRID - chosen);
    return row.map((_, k) => unitText(k === column ? chosen : parts[others.indexOf(k)]));
  }
  const unitsOf = (text) => {
    try {
      return Math.round(D.toDouble(D.parse(text)) * GRID);
    } catch {
      return 0;
    }
  };

  // ---- changing it -------------------------------------------------------------------------------------------

  function change(texts, { push = false } = {}) {
    const resized = texts.length !== state.texts.length;
    state.texts = texts;
    recognise();
    history[push ? "pushState" : "replaceState"](null, "", inAddress(texts));
    if (resized || !cells.length) build();
    render();
  }
  const setRow = (i, row) => change(state.texts.map((old, k) => (k === i ? row : old)));

  function resize(n) {
    const old = state.texts;
    const kept = old.slice(0, n).map((row, i) => {
      const part = row.slice(0, n);
      if (n >= row.length) return [...part, ...Array(n - row.length).fill("0")];
      try {
        return D.sum(part.map(D.parse)).p === 0n ? unitRow(n, i) : D.sum(part.map(D.parse)).p === D.sum(row.map(D.parse)).p ? part : rescaled(part);
      } catch {
        return part; // a cell that is no number is the reader's to mend
      }
    });
    change([...kept, ...range(n).slice(old.length).map((i) => unitRow(n, i))], { push: true });
    say(n < old.length
      ? "Restricted to the first tokens: their rows rescaled to sum 1; a row with nothing left attends to itself."
      : "Tokens added; each attends to itself only.");
  }

  // ---- the matrix on the page --------------------------------------------------------------------------------

  const part = (name) => place.querySelector(`[data-part="${name}"]`);
  const say = (text) => {
    part("said").textContent = text;
  };

  function build() {
    const n = state.texts.length;
    const table = element("table", { class: "explorer-matrix", style: `--n: ${n}` }, element("caption", { class: "visually-hidden" }, "The matrix; row: attending token, column: attended token"));
    const head = element("tr", {}, element("td"));
    for (const k of range(n)) head.append(element("th", { scope: "col" }));
    table.append(element("thead", {}, head));
    const body = element("tbody");
    cells = range(n).map((i) => {
      const row = element("tr", {}, element("th", { scope: "row" }));
      const inputs = range(n).map((k) => {
        const input = element("input", {
          type: "text", inputmode: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
          "aria-label": `row ${i + 1}, column ${k + 1}`, "aria-describedby": "explorer-keys",
        });
        listen(input, i, k);
        row.append(element("td", {}, input));
        return input;
      });
      body.append(row);
      return inputs;
    });
    table.append(body);
    part("matrix").replaceChildren(table);
    part("size").value = `${n}`;
  }

  function listen(input, i, k) {
    input.addEventListener("input", () => setRow(i, state.texts[i].map((text, column) => (column === k ? input.value : text))));
    input.addEventListener("focus", () => input.select());
    input.addEventListener("keydown", (event) => {
      const step = { ArrowUp: STEP, ArrowDown: -STEP }[event.key];
      if (step && event.altKey) {
        event.preventDefault();
        setRow(i, moved(state.texts[i], k, unitsOf(state.texts[i][k]) + step));
        input.select();
        return;
      }
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const n = cells.length;
      const whole = input.selectionStart === 0 && input.selectionEnd === input.value.length;
      const atStart = whole || input.selectionEnd === 0;
      const atEnd = whole || input.selectionStart === input.value.length;
      const to = {
        ArrowUp: [i - 1, k], ArrowDown: [i + 1, k], Enter: [i + 1, k],
        ArrowLeft: atStart ? [i, k - 1] : null, ArrowRight: atEnd ? [i, k + 1] : null,
      }[event.key];
      if (!to) return;
      event.preventDefault();
      if (to.every((x) => x >= 0 && x < n)) cells[to[0]][to[1]].focus();
    });
    let drag = null;
    input.addEventListener("pointerdown", (event) => {
      if (event.button === 0) drag = { x: event.clientX, units: unitsOf(state.texts[i][k]), row: state.texts[i], on: false };
    });
    input.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const dx = event.clientX - drag.x;
      if (!drag.on && Math.abs(dx) > 6) {
        drag.on = true;
        input.setPointerCapture(event.pointerId);
        input.closest("table").classList.add("dragging");
      }
      if (drag.on) {
        event.preventDefault();
        setRow(i, moved(drag.row, k, Math.round((drag.units + dx * 5) / 5) * 5));
      }
    });
    const stop = () => {
      if (drag?.on) input.closest("table").classList.remove("dragging");
      drag = null;
    };
    input.addEventListener("pointerup", stop);
    input.addEventListener("pointercancel", stop);
  }

  const name = (t) => (state.words ? `${state.words[t]} (${t + 1})` : `${t + 1}`);

  // ---- the verdict -------------------------------------------------------------------------------------------

  let spoken;
  /** The verdict for the eye at once, for a screen reader when the matrix has come to rest. */
  function announce(text) {
    clearTimeout(spoken);
    spoken = setTimeout(() => {
      part("announced").textContent = text;
    }, 600);
  }

  function render() {
    const { values, faults } = read();
    for (const i of range(cells.length))
      for (const k of range(cells.length)) {
        const input = cells[i][k];
        if (input.value !== state.texts[i][k]) input.value = state.texts[i][k];
        const value = values[i][k];
        const wrong = faults.some((fault) => fault.row === i && (fault.column === k || fault.sum));
        input.toggleAttribute("aria-invalid", false);
        if (wrong) input.setAttribute("aria-invalid", "true");
        input.style.setProperty("--weight", value ? D.toDouble(value) : 0);
        input.classList.toggle("long", state.texts[i][k].length > 5);
        input.title = value ? D.show(value) : "";
        input.classList.remove("own", "other");
      }
    place.querySelectorAll(".explorer-matrix thead th").forEach((th, k) => (th.textContent = name(k)));
    place.querySelectorAll(".explorer-matrix tbody th").forEach((th, k) => (th.textContent = name(k)));
    part("note").textContent = state.note ? `Shown: ${state.note}.` : "";
    say("");
    part("faults").replaceChildren(...faults.map(faultLine));
    const result = faults.length ? null : D.judge(values);
    part("result").hidden = !result;
    const verdict = part("verdict");
    verdict.dataset.verdict = result ? (result.holds ? "holds" : "fails") : "none";
    if (!result) {
      verdict.replaceChildren(element("strong", {}, "No verdict"), " until every cell is a weight and every row sums to 1.");
      announce(`No verdict. ${faults.map((fault) => fault.message).join(" ")}`);
      part("square").hidden = true;
      return;
    }
    const { pair } = result;
    const attaining = result.pairs.filter((one) => one.attains);
    const who = `(${name(pair.i)}, ${name(pair.j)})`;
    const several = attaining.length > 1 ? `${attaining.length} pairs attain κ` : `the pair ${who} attains κ`;
    const why = result.holds
      ? attaining.length > 1 ? `${several}, and ${who} is mutually self-dominant.` : `${several} and is mutually self-dominant.`
      : attaining.length > 1 ? `${several}, none is mutually self-dominant.` : `${several} and is not mutually self-dominant.`;
    verdict.replaceChildren(element("strong", {}, result.holds ? "Equality: the bound is attained. " : "Strict: the bound is not attained. "), `${why[0].toUpperCase()}${why.slice(1)}`);
    announce(`${verdict.textContent} κ is ${D.show(result.kappa)}, the gap ${D.show(result.gap)}.`);
    for (const [key, value] of [["kappa", result.kappa], ["bound", result.bound], ["lazy", result.lazyKappa], ["gap", result.gap]]) {
      part(key).textContent = D.show(value);
      part(key).closest("tr").style.setProperty("--share", D.toDouble(value));
    }
    part("gap").closest("tr").style.setProperty("--from", D.toDouble(result.lazyKappa));
    mark(pair);
    part("pairs").replaceChildren(...[...result.pairs].sort((a, b) => D.compare(b.tv, a.tv) || D.compare(a.loss, b.loss)).map((one) => pairRow(one, pair)));
    stored(values, result);
    picture(values, result);
  }

  function faultLine(fault) {
    const line = element("p", {}, fault.message, " ");
    if (fault.sum && fault.sum.p > 0n) {
      const button = element("button", { type: "button" }, `Rescale row ${fault.row + 1}`);
      button.addEventListener("click", () => {
        setRow(fault.row, rescaled(state.texts[fault.row]));
        cells[fault.row][0].focus();
      });
      line.append(button);
    }
    return line;
  }

  function mark({ i, j }) {
    for (const input of cells.flat()) input.classList.remove("own", "other");
    cells[i][i].classList.add("own");
    cells[j][j].classList.add("own");
    cells[j][i].classList.add("other");
    cells[i][j].classList.add("other");
  }

  function pairRow(one, shown) {
    const yes = (truth) => (truth ? "yes" : "no");
    const row = element("tr", { class: one.attains ? "attains" : "" },
      element("th", { scope: "row" }, element("button", { type: "button", title: "mark the four entries of this pair", "aria-label": `mark the pair ${one.i + 1}, ${one.j + 1} in the matrix` }, `${one.i + 1}, ${one.j + 1}`)),
      ...[D.show(one.tv), yes(one.attains), yes(one.back), yes(one.forth), D.show(one.deficit), D.show(one.loss)].map((text) => element("td", {}, text)));
    const button = row.querySelector("button");
    button.addEventListener("click", () => {
      mark(one);
      for (const other of part("pairs").querySelectorAll("button")) other.setAttribute("aria-pressed", `${other === button}`);
    });
    button.setAttribute("aria-pressed", `${one === shown}`);
    return row;
  }

  /** What the package would say of the nearest float64 numbers. */
  function stored(values, result) {
    const doubles = D.judge(values.map((row) => row.map((value) => D.fromDouble(D.toDouble(value)))));
    const same = doubles.holds === result.holds;
    part("stored").textContent = same
      ? "Stored as float64 numbers, the matrix has the same verdict."
      : `Stored as float64 numbers, the matrix ${doubles.holds ? "satisfies" : "fails"} the condition: rounding the weights to binary ${doubles.holds ? "makes" : "breaks"} a tie. The verdict above is for the weights as typed.`;
    part("stored").dataset.holds = `${doubles.holds}`;
    const rows = state.texts.map((_, i) => `    [${values[i].map(D.type).join(", ")}],`);
    part("python").textContent = `import numpy as np\nfrom dobrushin import equality\n\nA = np.array([\n${rows.join("\n")}\n])\nprint(equality(A))`;
  }

  // ---- N = 2: the whole square -------------------------------------------------------------------------------

  const SIDE = 200;
  function drawSquare() {
    const stops = [svg("stop", { offset: 0, class: "gap-1" }), svg("stop", { offset: 1, class: "gap-0" })];
    const gradient = svg("linearGradient", { id: "gap", gradientUnits: "userSpaceOnUse", x1: 0, y1: SIDE, x2: SIDE / 2, y2: SIDE / 2 }, ...stops);
    const text = (x, y, words, anchor = "middle", more = {}) => svg("text", { x, y, "text-anchor": anchor, ...more }, words);
    const image = svg("svg", { viewBox: "-34 -10 246 236", role: "img", "aria-label": "All 2 × 2 stochastic matrices" },
      svg("defs", {}, gradient),
      svg("rect", { class: "field", width: SIDE, height: SIDE, fill: "url(#gap)" }),
      svg("polygon", { class: "upper", points: `0,0 ${SIDE},0 ${SIDE},${SIDE}` }),
      svg("line", { class: "edge", x1: 0, y1: 0, x2: SIDE, y2: SIDE }),
      text(138, 70, "equality"), text(10, SIDE - 10, "strict", "start", { class: "on-dark" }),
      text(SIDE * 0.75, SIDE + 17, "A₁₁"), text(-6, SIDE * 0.25 + 4, "A₂₂", "end"),
      ...[0, 0.5, 1].flatMap((t) => [text(t * SIDE, SIDE + 16, `${t}`), text(-6, SIDE * (1 - t) + 4, `${t}`, "end")]),
      svg("circle", { class: "point", r: 7 }));
    const follow = (event) => {
      const matrix = image.getScreenCTM().inverse();
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
      const units = (x) => Math.min(GRID, Math.max(0, Math.round((x / SIDE) * 200) * 5));
      const [a, b] = [units(at.x), units(SIDE - at.y)];
      change([[unitText(a), unitText(GRID - a)], [unitText(GRID - b), unitText(b)]]);
    };
    image.addEventListener("pointerdown", (event) => {
      image.setPointerCapture(event.pointerId);
      follow(event);
    });
    image.addEventListener("pointermove", (event) => image.hasPointerCapture(event.pointerId) && follow(event));
    part("square").prepend(image);
  }

  function picture(values, result) {
    part("square").hidden = values.length !== 2;
    if (values.length !== 2) return;
    const [a, b] = [D.toDouble(values[0][0]), D.toDouble(values[1][1])];
    const point = part("square").querySelector(".point");
    point.setAttribute("cx", a * SIDE);
    point.setAttribute("cy", (1 - b) * SIDE);
    part("square").querySelector("svg").setAttribute("aria-label",
      `All 2 × 2 stochastic matrices as a square of their two diagonal entries; equality on and above the falling diagonal. This matrix lies at ${D.show(values[0][0])}, ${D.show(values[1][1])}: ${result.holds ? "equality" : "strict"}.`);
  }

  // ---- controls ----------------------------------------------------------------------------------------------

  function controls() {
    const size = part("size");
    size.append(...SIZES.map((n) => element("option", { value: n }, `${n}`)));
    size.addEventListener("change", () => resize(Number(size.value)));
    const bar = part("presets");
    const use = (key) => change(PRESETS[key].of(key === "failing" ? 3 : state.texts.length), { push: true });
    for (const [key, preset] of Object.entries(PRESETS)) {
      if (key.startsWith("layer-")) continue;
      const button = element("button", { type: "button", "data-preset": key }, preset.title);
      button.addEventListener("click", () => {
        use(key);
        if (key === "random") part("note").textContent = `Shown: ${preset.note}.`;
      });
      bar.append(button);
    }
    const real = part("real");
    real.closest("p").hidden = !sentence;
    if (sentence) {
      real.append(element("option", { value: "" }, "choose a layer"), ...sentence.layers.map((_, k) => element("option", { value: `layer-${k + 1}` }, `layer ${k + 1}`)));
      real.addEventListener("change", () => real.value && use(real.value));
    }
    part("share").addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        say("The address is on the clipboard.");
      } catch {
        say("The browser does not let a page copy; the address bar holds the matrix.");
      }
    });
  }

  function load() {
    const texts = fromAddress();
    const said = part("said").textContent;
    state.texts = texts ?? FAILING;
    recognise();
    build();
    render();
    if (said) say(said);
  }

  controls();
  drawSquare();
  load();
  place.hidden = false;
  window.addEventListener("hashchange", load);
  window.addEventListener("popstate", load);
})();
