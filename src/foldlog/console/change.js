// A change that somebody is about to make: a dialog that says what it will do, as the broker reckons it, and asks.

import { commandLine, h, put, toast } from "./dom.js";
import { state } from "./store.js";
import { sentence } from "./words.js";

const PAUSE_MS = 250;

class Change {
  /** `fields` are the inputs; `plan()` asks the broker what would happen, and `show(answer)` says it; `act()` does it, and
   * `done(answer)` is the sentence for afterwards. `needs()` may say why it cannot be done yet. */
  constructor({ title, text, fields, plan, show, act, yes, done, isDanger, needs }, resolve) {
    Object.assign(this, { plan, show, act, done, needs, resolve });
    this.preview = h("div", { class: "preview", "aria-live": "polite" });
    this.error = h("div", { role: "alert" });
    this.go = h("button", { class: isDanger ? "button danger" : "button primary", type: "submit", disabled: Boolean(plan) }, yes);
    this.form = h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); this.carryOut(); }, oninput: () => this.later() },
      h("h2", { id: "change-title" }, title), text && h("p", { class: "quiet" }, text), fields, this.preview, this.error,
      h("div", { class: "buttons" }, h("button", { class: "button", type: "button", onclick: () => this.dialog.close() }, "Cancel"), this.go));
    this.dialog = h("dialog", { class: "sheet wide-sheet", "aria-labelledby": "change-title" }, this.form);
    this.dialog.addEventListener("close", () => { clearTimeout(this.waiting); this.dialog.remove(); resolve(this.answer ?? null); });
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
    document.body.append(this.dialog);
    this.dialog.showModal();
    if (plan) this.look();
  }

  later() {
    if (!this.plan) return;
    this.go.disabled = true;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.look(), PAUSE_MS);
  }

  async look() {
    const asked = (this.asked = {});
    put(this.error);
    try {
      const answer = await this.plan();
      if (asked !== this.asked || !this.dialog.open) return;
      put(this.preview, answer === null ? "" : this.show(answer));
      this.go.disabled = answer === null || Boolean(this.needs?.(answer));
    } catch (error) { if (asked === this.asked) { put(this.preview); this.refuse(error); } }
  }

  async carryOut() {
    clearTimeout(this.waiting);
    this.go.disabled = true;
    try {
      this.answer = await this.act();
      toast(this.done(this.answer));
      this.dialog.close();
    } catch (error) { this.refuse(error); this.go.disabled = false; }
  }

  refuse(error) {
    put(this.error, h("div", { class: "notice bad" }, h("p", {}, sentence(error.message)), error.answer?.command_line && commandLine(error.answer.command_line)));
  }
}

/** Ask, and resolve with the broker's answer once it is done; null if it was left. */
export function change(options) {
  if (state.overview?.read_only) { toast("The console is read-only: nothing is changed.", "bad"); return Promise.resolve(null); }
  return new Promise((resolve) => new Change(options, resolve));
}

export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** A small table for what would happen; of very many rows the first. */
export function planTable(titles, rows) {
  const shown = rows.slice(0, 50);
  return h("div", { class: "scroll plan" }, h("table", {}, h("thead", {}, h("tr", {}, titles.map((title, index) => h("th", { scope: "col", class: index && "num" }, title)))),
    h("tbody", {}, shown.map((cells) => h("tr", {}, cells.map((cell, index) => (index ? h("td", { class: "num mono" }, cell) : h("th", { scope: "row" }, cell)))))),
    rows.length > shown.length && h("tfoot", {}, h("tr", {}, h("td", { colspan: titles.length, class: "quiet" }, `and ${rows.length - shown.length} more`)))));
}
