"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  byId("theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  });

  // A selection stays where the clipboard is closed to the page: the user can copy it by key.
  const copy = async (button, source) => {
    const selection = getSelection();
    selection.selectAllChildren(source);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  for (const button of document.querySelectorAll(".command .copy"))
    button.addEventListener("click", () => copy(button, button.parentElement.querySelector("code")));

  const data = byId("data");
  if (!data) return;
  const { columns, rows } = JSON.parse(data.textContent);
  const at = Object.fromEntries(columns.map((name, n) => [name, n]));
  const words = (name) => name.replaceAll("_", " ");
  const text = (value) =>
    value === null ? "-" : Array.isArray(value) ? value.join(", ") || "-"
    : typeof value === "number" && !Number.isInteger(value) ? String(+value.toPrecision(6)) : String(value);
  const shown = ["set_class", "bank", "row", "width", "rank", "replicas", "dropped", "added",
    "gap_ulp", "gap_fp64_ulp", "flags"];
  const numeric = new Set(["row", "width", "rank", "replicas", "gap_ulp", "gap_fp64_ulp"]);
  // Rows come gravest first; a class sorts by that order and not by its letters.
  const grave = [...new Set(rows.map((row) => row[at.set_class]))];
  const searched = rows.map((row) => shown.map((name) => text(row[at[name]])).join(" ").toLowerCase());
  const STEP = 100;
  let limit = STEP, order = rows.map((_, n) => n), sorted = null, descending = false;

  const make = (tag, content, className) => {
    const element = document.createElement(tag);
    if (content !== undefined) element.textContent = content;
    if (className) element.className = className;
    return element;
  };

  const detail = (row, id) => {
    const line = make("tr", undefined, "detail"), cell = make("td");
    line.id = id;
    cell.colSpan = shown.length;
    const list = make("dl", undefined, "pairs");
    for (const name of columns) {
      if (name === "snippet") continue;
      const pair = make("div");
      pair.append(make("dt", words(name)), make("dd", text(row[at[name]])));
      list.append(pair);
    }
    const code = make("code", row[at.snippet]), button = make("button", "Copy", "copy");
    button.type = "button";
    button.addEventListener("click", () => copy(button, code));
    // Held to the page's width: the table itself may be wider.
    const held = make("div", undefined, "held");
    held.append(list, code, button);
    cell.append(held);
    line.append(cell);
    return line;
  };

  const rowElement = (n) => {
    const row = rows[n], line = make("tr", undefined, "row");
    shown.forEach((name, column) => {
      const cell = make("td", undefined, numeric.has(name) ? "number" : "");
      if (column === 0) {
        const button = make("button", words(text(row[at[name]])));
        button.type = "button";
        button.setAttribute("aria-expanded", "false");
        button.setAttribute("aria-controls", `detail-${n}`);
        cell.append(button);
      } else cell.textContent = text(row[at[name]]);
      line.append(cell);
    });
    line.addEventListener("click", () => {
      const button = line.querySelector("button"), open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) line.nextElementSibling.remove();
      else line.after(detail(row, `detail-${n}`));
    });
    return line;
  };

  const matching = () => {
    const wanted = byId("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const kind = byId("class").value, width = byId("width").value;
    return order.filter((n) =>
      (!kind || rows[n][at.set_class] === kind) && (!width || String(rows[n][at.width]) === width)
      && wanted.every((word) => searched[n].includes(word)));
  };

  const draw = () => {
    const found = matching();
    byId("swaps").tBodies[0].replaceChildren(...found.slice(0, limit).map(rowElement));
    byId("count").textContent = `${found.length} of ${rows.length} match, ${Math.min(limit, found.length)} shown`;
    byId("more").hidden = found.length <= limit;
  };

  const value = (n, name) => {
    const cell = rows[n][at[name]];
    return name === "set_class" ? -grave.indexOf(cell) : Array.isArray(cell) ? cell.join(",") : cell;
  };
  const sort = (name, head) => {
    descending = sorted === name ? !descending : false;
    sorted = name;
    const way = descending ? -1 : 1;
    order = rows.map((_, n) => n).sort((a, b) => {
      const x = value(a, name), y = value(b, name);
      if (x === y) return a - b;
      if (x === null || y === null) return x === null ? 1 : -1;
      return (x < y ? -1 : 1) * way;
    });
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    draw();
  };

  for (const name of shown) {
    const head = make("th", undefined, numeric.has(name) ? "number" : ""), button = make("button", words(name));
    head.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => sort(name, head));
    head.append(button);
    byId("swaps").tHead.rows[0].append(head);
  }
  const options = (id, values) => byId(id).append(...values.map((v) => new Option(words(String(v)), v)));
  options("class", grave);
  options("width", [...new Set(rows.map((row) => row[at.width]))].sort((a, b) => a - b));
  const again = () => { limit = STEP; draw(); };
  byId("filter").addEventListener("input", again);
  byId("class").addEventListener("change", again);
  byId("width").addEventListener("change", again);
  byId("more").addEventListener("click", () => { limit += STEP; draw(); });
  byId("browser").hidden = false;
  draw();
})();
