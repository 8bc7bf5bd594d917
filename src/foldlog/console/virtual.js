// A table that draws only the rows in sight: a thousand records cost what thirty do. All rows have one height.

import { h, put } from "./dom.js";

const ROW_PX = 33;
const AHEAD = 8;

export class VirtualTable {
  /** `cells(row)` gives the cells of a row; `chosen(row)` is called for the one that somebody clicks or enters. */
  constructor({ label, cells, chosen }) {
    Object.assign(this, { cells, chosen });
    this.rows = [];
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.table = h("table", { class: "rows", "aria-label": label }, h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "virtual", tabindex: 0, role: "region", "aria-label": label }, this.table);
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.resizing = new ResizeObserver(() => this.draw());
    this.resizing.observe(this.element);
    this.selected = null;
  }

  setHead(cells) { put(this.head, cells); this.drawn = ""; }

  /** New rows; `isBefore` says how many of them came in above what is in sight, which stays where it is. */
  setRows(rows, before = 0) {
    this.rows = rows;
    this.drawn = "";
    if (before && this.element.scrollTop > 0) this.element.scrollTop += before * ROW_PX;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_PX) - AHEAD);
    const last = Math.min(this.rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW_PX) + AHEAD);
    const drawn = `${first} ${last} ${this.selected}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    const gap = (count) => count > 0 && h("tr", { class: "gap", "aria-hidden": "true" }, h("td", { style: { height: `${count * ROW_PX}px` } }));
    put(this.body, gap(first), this.rows.slice(first, last).map((row, index) => h("tr", {
      "aria-rowindex": String(first + index + 2), "aria-selected": row.id === this.selected && "true", onclick: () => { if (getSelection().isCollapsed) this.choose(row); },
    }, this.cells(row))), gap(this.rows.length - last));
  }

  choose(row) {
    this.selected = row.id;
    this.draw();
    this.chosen(row);
  }

  select(id) { this.selected = id; this.draw(); }

  key(event) {
    if (event.target !== this.element) return;
    const at = this.rows.findIndex((row) => row.id === this.selected);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !this.rows.length) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(this.rows.length - 1, at < 0 ? 0 : at + step));
    const top = next * ROW_PX;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + 2 * ROW_PX > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + 2 * ROW_PX - this.element.clientHeight;
    this.choose(this.rows[next]);
  }

  end() { this.resizing.disconnect(); }
}
