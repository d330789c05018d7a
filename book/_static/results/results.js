/* Makes the table of all results sortable and filterable. */
"use strict";

(() => {
  const place = document.getElementById("all-results");
  const table = place.querySelector("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...body.rows];
  const at = (name) => heads.findIndex((head) => head.dataset.column === name);
  const key = (row, column) => row.cells[column].dataset.key;

  const bar = document.createElement("div");
  bar.className = "results-bar";
  const label = (words, control) => {
    const made = document.createElement("label");
    made.append(`${words} `, control);
    bar.append(made);
  };
  const words = document.createElement("input");
  words.type = "search";
  label("Words", words);
  const selects = place.dataset.choices.split(" ").map((name) => {
    const select = document.createElement("select");
    const values = [...new Set(rows.map((row) => key(row, at(name))).filter(Boolean))].sort();
    select.append(new Option("any", ""), ...values.map((value) => new Option(value, value)));
    label(heads[at(name)].textContent, select);
    return { column: at(name), select };
  });
  const count = document.createElement("p");
  count.setAttribute("role", "status");
  count.className = "results-count";

  function filter() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = wanted.every((word) => text.includes(word)) && selects.every(({ column, select }) => !select.value || key(row, column) === select.value);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  }

  function sort(column) {
    const down = heads[column].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
    const numeric = rows.every((row) => key(row, column) === "" || !Number.isNaN(Number(key(row, column))));
    const sign = down ? -1 : 1;
    const order = (a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      if (x === "" || y === "") return (x === "") - (y === ""); // what is missing stays last
      return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y));
    };
    body.append(...[...rows].sort(order));
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(column));
    head.append(button);
  });
  bar.addEventListener("input", filter);
  place.prepend(bar, count);
  filter();
})();
