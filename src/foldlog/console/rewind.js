// The question before a rewind: where to, when that was, how much is read again, and whom it disturbs. For a group the
// broker moves the bookmark; for a fold its runner does, told through the folds API.

import * as api from "./api.js";
import { commandLine, field, h, put, toast } from "./dom.js";
import { foldName, state } from "./store.js";
import { term } from "./terms.js";
import { counted, localInput, moment, number, sentence } from "./words.js";

class Question {
  constructor(asked, done) {
    Object.assign(this, asked);
    this.done = done;
    this.fold = this.isFold ? foldName(this.group) : null;
    this.name = this.fold ?? this.group;
    this.again = h("p", { class: "again" });
    this.when = h("p", { class: "quiet when" });
    this.extra = h("div", { class: "extra" });
    this.error = h("div", { role: "alert" });
    this.offsetInput = h("input", { type: "number", class: "mono", autofocus: true, min: this.start, max: this.from, step: 1, value: String(this.to), oninput: () => this.typed() });
    this.timeInput = h("input", { type: "datetime-local", step: 1, onchange: () => this.timed() });
    this.go = h("button", { class: "button primary", type: "submit" }, "Rewind");
    this.dialog = h("dialog", { class: "sheet", "aria-labelledby": "rewind-title" },
      h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); this.act(); } },
        h("h2", { id: "rewind-title" }, term("rewind", "Rewind"), ` ${this.isFold ? "the fold" : "the group"} `, h("em", {}, this.name), "?"),
        h("p", { class: "quiet place-line" }, `${this.topic}, partition ${this.partition}. It stands at offset `, h("b", { class: "mono" }, number(this.from)), "."),
        this.again, this.when,
        (this.fields = h("div", { class: "pair" }, field("To offset", this.offsetInput), field("or to the time", this.timeInput))),
        this.extra, this.error,
        h("div", { class: "buttons" }, h("button", { class: "button", type: "button", onclick: () => this.dialog.close() }, "Cancel"), this.go)));
    this.dialog.addEventListener("close", () => { this.dialog.remove(); this.done(); });
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
  }

  get isOfSeveral() { return Boolean(state.folds.get(this.fold)?.topics); }

  /** As `foldlog fold rewind --to` takes it. */
  get place() { return `${this.isOfSeveral ? `${this.topic}:` : ""}${this.partition}=${this.to}`; }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.set(this.to);
    if (this.isFold) return;
    this.members();
  }

  typed() {
    const to = Number(this.offsetInput.value);
    if (this.offsetInput.value !== "" && Number.isInteger(to)) this.set(to, true);
    else this.go.disabled = true;
  }

  async timed() {
    const at = new Date(this.timeInput.value).getTime();
    if (Number.isNaN(at)) return;
    try {
      const answer = await api.strip(this.topic, this.partition, { at, cells: 1 });
      this.set(Math.min(this.from, answer.cells[0]?.offset ?? answer.from));
    } catch (error) { this.refuse(error); }
  }

  /** Show the place; the numbers follow as soon as the broker has said what is there. */
  async set(to, isTyped = false) {
    this.to = to;
    const isFit = to >= this.start && to <= this.from;
    if (!isTyped) this.offsetInput.value = String(to);
    this.offsetInput.setCustomValidity(isFit ? "" : `From ${number(this.start)} to ${number(this.from)}.`);
    put(this.error);
    this.go.disabled = !isFit || to === this.from || (this.needsConsent && !this.consent?.checked);
    put(this.again, this.from <= this.start ? "There is nothing before it to go back to." : to === this.from ? "Pull it left, or type where it should go." : isFit ? `${counted(this.from - to, "offset")} will be read again` : `It can go from ${number(this.start)} to ${number(this.from)}`);
    if (!isFit) return;
    this.onChange?.(to);
    this.looking?.abort();
    const { signal } = (this.looking = new AbortController());
    try {
      const seen = this.isFold ? await api.foldRewind(this.fold, this.topic, this.partition, to, signal) : await api.timeAt(this.topic, this.partition, to, signal);
      if (signal.aborted) return;
      if (seen.timestamp !== null && seen.timestamp !== undefined && seen.timestamp >= 0) {
        put(this.when, `from ${moment(seen.timestamp)} on`);
        this.timeInput.value = localInput(seen.timestamp);
      } else put(this.when, "no record is there yet");
      if (this.isFold) this.foldSays(seen);
    } catch (error) { if (error.name !== "AbortError") this.refuse(error); }
  }

  async members() {
    const known = state.groups.get(this.group);
    if (!known || !known.members) return;
    try {
      const { members } = await api.group(this.group);
      this.askEviction(members.map((member) => member.client_id || member.member_id));
    } catch (error) { this.refuse(error); }
  }

  askEviction(names) {
    if (!names.length || this.needsConsent) return;
    this.needsConsent = true;
    this.go.disabled = true;
    this.consent = h("input", { type: "checkbox", name: "evict", onchange: () => { this.go.disabled = !this.consent.checked || this.to === this.from; } });
    put(this.extra, h("div", { class: "notice warn" },
      h("p", {}, names.length === 1 ? "One live " : `${number(names.length)} live `, term("member", names.length === 1 ? "member" : "members"), ": ", names.flatMap((name, index) => [index ? ", " : "", h("b", { class: "mono" }, name)]), "."),
      h("label", { class: "check" }, this.consent, h("span", {}, "Make them leave: they rejoin by themselves and read on from the new offset."))));
  }

  foldSays(seen) {
    const fold = state.folds.get(this.fold);
    const isAdditive = seen.is_additive;
    if (this.to !== this.from && Number.isInteger(seen.read_again)) put(this.again, `${counted(seen.read_again, "record")} will be read again`);
    for (const part of [this.go, this.fields, this.again, this.when]) part.hidden = isAdditive;
    const parts = [seen.note && h("p", {}, sentence(seen.note))];
    if (isAdditive && fold?.is_live) parts.push(h("button", { class: "button primary", type: "button", onclick: () => this.rebuild() }, "Rebuild it instead"));
    if (fold && !fold.is_live) { this.noRunner(parts, isAdditive ? fold.command_lines.rebuild : fold.command_lines.rewind); return; }
    put(this.extra, parts.some(Boolean) ? h("div", { class: `notice ${isAdditive ? "warn" : ""}` }, parts) : "");
  }

  noRunner(parts, line) {
    this.go.hidden = true;
    const isOpen = line.includes("PLACE") && this.to === this.from;
    put(this.extra, h("div", { class: "notice" }, parts, isOpen ? h("p", {}, "No runner of this fold is running. Enter where it should go: the command to type appears here.") : [h("p", {}, "No runner of this fold is running. Type this where its file is:"), commandLine(line.replace("PLACE", this.place))]));
  }

  async rebuild() {
    try {
      await api.foldCommand(this.fold, { verb: "rebuild" });
      toast(`${this.fold} is being rebuilt; its card shows how far it is.`);
      this.dialog.close();
    } catch (error) { this.refuse(error); }
  }

  async act() {
    this.go.disabled = true;
    try {
      if (this.isFold) {
        await api.foldCommand(this.fold, { verb: "rewind", to: this.place });
        toast(`${this.fold} stops, goes back to ${number(this.to)} and resumes.`);
      } else {
        const { read_again: again } = await api.rewindGroup(this.group, { topic: this.topic, partition: this.partition, offset: this.to, evict: Boolean(this.consent?.checked) });
        toast(`${this.group} reads from ${number(this.to)} on: ${counted(again, "record")} again.`);
      }
      this.dialog.close();
    } catch (error) { this.refuse(error); }
  }

  refuse(error) {
    this.go.disabled = this.to === this.from;
    if (error.status === 409 && error.answer.members && !this.needsConsent) { this.askEviction(error.answer.members); return; }
    put(this.error, h("div", { class: "notice bad" }, h("p", {}, sentence(error.message)), error.answer?.command_line && commandLine(error.answer.command_line)));
  }
}

/** Resolves when the question has been answered, one way or the other. */
export function askRewind(asked) {
  if (state.overview?.read_only) { toast("The console is read-only: cursors stay where they are.", "bad"); return Promise.resolve(); }
  return new Promise((done) => new Question(asked, done).open());
}
