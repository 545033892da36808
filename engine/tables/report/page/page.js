"use strict";
/* Dark and light, sortable tables, and the choice of whose numbers are shown. */
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  const current = () => root.dataset.theme || (dark() ? "dark" : "light");
  const name = () => { button.textContent = current() === "dark" ? "light" : "dark"; };
  try { if (localStorage.theme) root.dataset.theme = localStorage.theme; } catch { /* no storage */ }
  button.addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    try { localStorage.theme = root.dataset.theme; } catch { /* no storage */ }
    name();
  });
  name();

  /* numbers by value, empty cells last; text by the alphabet; a third click restores the order */
  function sort(table, head) {
    const column = +head.dataset.column, body = table.tBodies[0];
    const order = { none: "ascending", ascending: "descending", descending: "none" };
    const next = order[head.getAttribute("aria-sort") || "none"];
    for (const other of table.querySelectorAll("th[data-column]")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", next);
    const rows = [...body.rows];
    rows.forEach((row, i) => { row.dataset.order ??= i; });
    const key = row => row.cells[column].dataset.value;
    const sign = next === "descending" ? -1 : 1;
    rows.sort((a, b) => {
      if (next === "none") return a.dataset.order - b.dataset.order;
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const numbers = !isNaN(x) && !isNaN(y);
      return sign * (numbers ? x - y : x.localeCompare(y)) || a.dataset.order - b.dataset.order;
    });
    body.append(...rows);
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.querySelectorAll("th[data-column]")) {
      head.tabIndex = 0;
      head.addEventListener("click", () => sort(table, head));
      head.addEventListener("keydown", event => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(table, head); }
      });
    }
  }

  for (const box of document.querySelectorAll("#marks input")) {
    box.addEventListener("change", () => root.classList.toggle(`no-${box.name}`, !box.checked));
  }
})();
