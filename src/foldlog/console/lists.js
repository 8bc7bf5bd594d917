// A list of many things: sorted by any column, filtered by name, and drawn only as far as one has scrolled. Order and
// filter are in the address.

import { here, say } from "./address.js";
import { h, isBusy, put } from "./dom.js";

const FIRST = 60;

export class SortedList {
  /** `columns` are {name, title, kind, value(row), cell(row)}; `rows()` gives what there is, `text(row)` what is searched.
   * `room` is where the list is, and `empty()` is shown if there is nothing at all. */
  constructor({ room, columns, rows, text, empty, rowClass = () => "", note = () => null }) {
    Object.assign(this, { room, columns, rows, text, empty, rowClass, note });
    const { query } = here();
    const [name, direction] = (query.get("sort") ?? "").split("-");
    this.by = columns.find((one) => one.name === name) ?? null;
    this.isDown = direction === "down";
    this.most = FIRST;
    this.filter = h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${room}`, value: query.get("find") ?? "", oninput: () => { this.most = FIRST; this.said(); this.draw(); } });
    this.count = h("span", { class: "quiet" });
    this.head = h("tr", {}, columns.map((one) => h("th", { scope: "col", class: one.kind?.replace("mono", ""), "data-column": one.name }, h("button", { class: "sort", type: "button", onclick: () => this.sort(one) }, one.title))));
    this.body = h("tbody", {});
    this.end = h("div", { class: "list-end" });
    this.below = h("div", {});
    this.table = h("div", { class: "scroll" }, h("table", { class: "list" }, h("thead", {}, this.head), this.body));
    this.bar = h("div", { class: "row list-bar" }, this.filter, this.count);
    this.element = h("div", {}, this.bar, this.table, this.end, this.below);
    this.watching = new IntersectionObserver(([entry]) => { if (entry.isIntersecting && this.found?.length > this.most) { this.most += FIRST; this.draw(); } }, { rootMargin: "400px" });
    this.watching.observe(this.end);
    this.draw();
  }

  sort(column) {
    // Numbers are most interesting from the top, names from A.
    if (this.by === column) this.isDown = !this.isDown;
    else { this.by = column; this.isDown = Boolean(column.kind?.includes("num")); }
    this.said();
    this.draw();
  }

  said() { say(this.room, [], { find: this.filter.value.trim(), sort: this.by && `${this.by.name}-${this.isDown ? "down" : "up"}` }); }

  /** Again, with what there is now; not while somebody is in it. */
  show() { if (!isBusy(this.body)) this.draw(); }

  draw() {
    const all = this.rows();
    const wanted = this.filter.value.trim().toLowerCase();
    this.found = wanted ? all.filter((row) => this.text(row).toLowerCase().includes(wanted)) : all;
    if (this.by) {
      const order = (one, other) => (typeof one === "string" ? one.localeCompare(other) : one - other);
      this.found = [...this.found].sort((one, other) => order(this.by.value(one), this.by.value(other)) * (this.isDown ? -1 : 1) || this.text(one).localeCompare(this.text(other)));
    }
    for (const head of this.head.children) head.setAttribute("aria-sort", head.dataset.column !== this.by?.name ? "none" : this.isDown ? "descending" : "ascending");
    for (const part of [this.bar, this.table]) part.hidden = !all.length;
    put(this.count, wanted ? `${this.found.length} of ${all.length}` : all.length > FIRST ? String(all.length) : "");
    put(this.body, this.found.slice(0, this.most).map((row) => h("tr", { class: this.rowClass(row) }, this.columns.map((one, index) => h(index ? "td" : "th", { class: one.kind, scope: index ? null : "row" }, one.cell(row))))));
    put(this.below, all.length ? this.note(this.found) ?? "" : this.empty());
  }

  leave() { this.watching.disconnect(); }
}
