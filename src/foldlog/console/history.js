// Charts of the last hours: what the broker remembers of rates and lags, and how they are now.

import * as api from "./api.js";
import { lines } from "./charts.js";
import { h, put } from "./dom.js";
import { now } from "./store.js";

const AGAIN_MS = 15000;
const RANGES = [[15, "15 min"], [60, "1 hour"], [360, "6 hours"]];

/** [time, value] of each point that is known; null where nothing was sampled, so that the line breaks there. */
export const pointsOf = (found, values) => found.at.map((at, index) => [at, values?.[index] ?? null]);

/** The lag of a group over all its topics. */
export function lagPoints(found, group) {
  const topics = Object.values(found.groups[group] ?? {});
  return found.at.map((at, index) => {
    const known = topics.map((one) => one[index]).filter((value) => value !== null);
    return [at, known.length ? known.reduce((sum, value) => sum + value, 0) : null];
  });
}

/** A chart with its choice of hours, drawn again while somebody looks. `series(found, now)` picks what it shows. */
export class HistoryChart {
  constructor(label, series, { text, none } = {}) {
    Object.assign(this, { label, series, text, none });
    this.minutes = 60;
    this.place = h("div", { class: "history" });
    this.choice = h("div", { class: "choice", role: "group", "aria-label": "How far back" }, RANGES.map(([minutes, name]) => h("button", { type: "button", "aria-pressed": String(minutes === this.minutes), onclick: (event) => this.choose(minutes, event.currentTarget) }, name)));
    this.element = h("section", { class: "card" }, h("header", {}, h("h2", {}, label), this.choice), this.place);
    this.timer = setInterval(() => { if (!document.hidden) this.ask(); }, AGAIN_MS);
    // It is made before its place on the page has a width, and that changes with the window.
    this.resizing = new ResizeObserver(() => { if (this.place.clientWidth !== this.width) this.show(); });
    this.resizing.observe(this.place);
    this.ask();
  }

  choose(minutes, button) {
    this.minutes = minutes;
    for (const one of this.choice.children) one.setAttribute("aria-pressed", String(one === button));
    this.ask();
  }

  async ask() {
    try {
      this.found = await api.history({ minutes: this.minutes, points: 240 });
      this.show();
    } catch (error) { if (!this.found) put(this.place, h("p", { class: "quiet" }, error.message)); }
  }

  /** Again, with the newest numbers: from the page's own state. */
  show() {
    if (!this.found) return;
    const to = now();
    this.width = this.place.clientWidth;
    if (!this.width) return;
    put(this.place, lines(this.series(this.found, to), `${this.label}, the last ${this.minutes / 60} h`, this.width, { from: to - this.minutes * 60000, to, step: Math.max(this.found.step_ms, (this.minutes * 60000) / 240), text: this.text, none: this.none }));
  }

  leave() { clearInterval(this.timer); this.resizing.disconnect(); }
}
