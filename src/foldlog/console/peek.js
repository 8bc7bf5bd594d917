// A look into a view itself: rows of a table, a search that searches, counters as lines. Looks again when the fold has
// moved on, so that an event can be watched arriving.

import * as api from "./api.js";
import { lines } from "./charts.js";
import { h, heads, put } from "./dom.js";
import { counted, sentence } from "./words.js";

const PAGE_ROWS = 20;
const AGAIN_MS = 1000;
const TYPING_MS = 180;

const shown = (value) => (value === null || value === undefined ? h("span", { class: "quiet" }, "null") : typeof value === "object" ? JSON.stringify(value) : String(value));

function table(answer) {
  const isNumber = answer.columns.map((_, index) => answer.rows.length > 0 && answer.rows.every((row) => typeof row[index] === "number" || row[index] === null));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows of the view" }, h("table", {},
    heads(...answer.columns.map((column, index) => [column, isNumber[index] && "num"])),
    h("tbody", {}, answer.rows.map((row) => h("tr", {}, row.map((value, index) => h("td", { class: isNumber[index] ? "num mono" : "" }, shown(value))))))));
}

export class Peek {
  constructor(fold) {
    this.fold = fold;
    this.limit = PAGE_ROWS;
    this.place = "";
    this.answer = h("div", { class: "answer" });
    this.status = h("p", { class: "quiet", role: "status" });
    this.input = h("input", { type: "search", class: "grow", placeholder: fold.kind === "search" ? "Search the index" : "Find rows", "aria-label": `Search in ${fold.fold}`, oninput: () => { clearTimeout(this.typing); this.typing = setTimeout(() => { this.limit = PAGE_ROWS; this.ask(); }, TYPING_MS); } });
    this.more = h("button", { class: "button small", type: "button", hidden: true, onclick: () => { this.limit += 80; this.ask(); } }, "Show more");
    this.element = h("div", { class: "peek" }, h("div", { class: "row" }, this.input, this.status), this.answer, this.more);
    this.ask();
  }

  async ask() {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    try {
      const answer = await api.peek(this.fold.fold, { q: this.input.value.trim(), limit: this.limit }, signal);
      if (!signal.aborted) this.show(answer);
    } catch (error) {
      if (error.name !== "AbortError") { put(this.answer, h("p", { class: "notice bad" }, sentence(error.message))); put(this.status, ""); }
    }
    this.askedAt = Date.now();
  }

  show(answer) {
    const scrolled = this.answer.querySelector(".scroll")?.scrollLeft ?? 0;
    put(this.answer, answer.series?.length ? lines(answer.series, `Counters of ${this.fold.fold} over time`, this.answer.clientWidth) : null, answer.rows.length ? table(answer) : h("p", { class: "quiet" }, this.input.value ? "Nothing found." : "No rows yet."));
    const scroll = this.answer.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = scrolled;
    const count = answer.total === null || answer.total === undefined ? counted(answer.rows.length, "row") : answer.total > answer.rows.length ? `${answer.rows.length} of ${counted(answer.total, "row")}` : counted(answer.total, "row");
    put(this.status, `${count} in ${answer.took_ms < 10 ? answer.took_ms.toFixed(1) : Math.round(answer.took_ms)} ms`);
    this.more.hidden = answer.rows.length < this.limit || (answer.total !== null && answer.total <= answer.rows.length);
  }

  /** The fold's entry has changed: look again if its bookmark moved, at most once a second. */
  update(fold) {
    this.fold = fold;
    const place = JSON.stringify(fold.bookmark);
    if (place === this.place) return;
    const wait = AGAIN_MS - (Date.now() - (this.askedAt ?? 0));
    if (wait > 0) { this.later ??= setTimeout(() => { this.later = null; this.update(this.fold); }, wait); return; }
    this.place = place;
    this.ask();
  }

  end() { clearTimeout(this.typing); clearTimeout(this.later); this.asking?.abort(); }
}
