/* What scrolls sideways can be reached with the keyboard; formulas too wide for a phone's line get a line of their own. */
"use strict";

(() => {
  const WIDE = "table, pre, .cell_output > .output, mjx-container[display='true'], .long-formula, .tableofcontents-wrapper";
  const reach = () => {
    for (const formula of document.querySelectorAll("main mjx-container:not([display])"))
      if (formula.getBoundingClientRect().right > innerWidth - 8) formula.classList.add("long-formula");
    for (const one of document.querySelectorAll(WIDE)) {
      const scrolls = one.scrollWidth > one.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(one).overflowX);
      if (scrolls && !one.hasAttribute("tabindex")) one.setAttribute("tabindex", "0");
    }
  };
  window.addEventListener("load", () => {
    reach();
    window.MathJax?.startup?.promise?.then(reach);
  });
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(reach, 100);
  });
})();
