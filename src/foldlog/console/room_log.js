// The room of the log as it is: one topic at a time, a strip for each partition, the record one has clicked beside it.

import { addressOf, say as sayAddress } from "./address.js";
import * as api from "./api.js";
import { elided, empty, forgetErrors, h, icon, put, toast } from "./dom.js";
import { RecordPanel } from "./record.js";
import { RecordsTable } from "./records_table.js";
import { on, state } from "./store.js";
import { Strip } from "./strip.js";
import { forgetPalette } from "./strip_paint.js";
import { term } from "./terms.js";
import { rate, sentence, size, span } from "./words.js";

const WIDTHS = [6, 10, 18, 36, 56, 76, 104, 148];
const PLACES = "start, end, an offset, +10 from the start, -10 from the end, @2026-01-15T10:30, @10:30, @-6h, or one for each partition: 0=1200,1=end";
const MANY = 8; // partitions, from which on one may choose among them
let zoomLevel = 5;

/** Numbers as people write them: "0, 4-6"; null for all. */
function numbersOf(text) {
  const found = new Set();
  for (const [, first, last] of text.matchAll(/(\d+)(?:\s*-\s*(\d+))?/g)) for (let at = Number(first); at <= Math.min(Number(last ?? first), Number(first) + 10000); at += 1) found.add(at);
  return found.size ? found : null;
}

function policy(topic) {
  const parts = [];
  if (topic.cleanup_policy.includes("compact")) parts.push(term("compaction", "compacted: the newest of each key"));
  if (topic.cleanup_policy.includes("delete")) {
    const kept = [topic.retention_ms >= 0 && span(topic.retention_ms), topic.retention_bytes >= 0 && size(topic.retention_bytes)].filter(Boolean);
    parts.push(term("retention", kept.length ? `kept ${kept.join(" or ")}` : "everything kept, for ever"));
  }
  return parts;
}

class LogRoom {
  constructor(element, path, query) {
    this.element = element;
    this.query = query;
    this.isTable = query.get("view") === "table";
    this.named = path[0] || null;
    this.topic = this.find();
    this.strips = [];
    this.list = h("ul", {});
    this.picker = h("select", { "aria-label": "Topic", onchange: () => { location.hash = this.addressFor(this.picker.value); } });
    this.filter = h("input", { type: "search", placeholder: "Find a topic", "aria-label": "Find a topic", oninput: () => this.fillList() });
    this.panel = new RecordPanel({ step: (...place) => this.step(...place), closed: () => this.closed(), shown: (_, partition, offset) => this.at({ open: [partition, offset] }) });
    this.body = h("div", { class: "log-body" });
    put(element, h("div", { class: "log-room" }, h("aside", { class: "topic-list", "aria-label": "Topics" }, this.filter, this.list), this.body, this.panel.element));
    this.offs = [on("ends", (changed) => this.grown(changed)), on("groups", () => this.wake()), on("rates", () => this.rates()), on("topics", () => this.topicsChanged())];
    this.onResize = () => { forgetPalette(); this.wake(); };
    addEventListener("resize", this.onResize);
    this.fillList();
    this.build();
    if (!this.topic) return;
    const [partition, offset] = [Number(path[1]), Number(path[2])];
    if (path[1] === undefined || path[2] === undefined) { if (query.get("place")) this.jump(query.get("place")); }
    else if (this.isTable) this.panel.show(this.topic.name, partition, offset);
    else this.goTo(partition, offset);
  }

  /** Keep the address: the topic, the record that is open, the place, and the filters. */
  at(change = {}) {
    Object.assign(this, change);
    if (!this.topic || this.isLeft) return;
    const query = this.isTable ? { view: "table", ...this.filters } : { place: this.open ? "" : this.jumped, partitions: this.wantedPartitions };
    sayAddress("log", [this.topic.name, ...(this.open ?? [])], query);
  }

  find() { return this.named ? state.topics.get(this.named) ?? null : this.first(); }

  /** Where nothing was asked for: the first topic of the user's own that holds something. */
  first() {
    const shown = [...state.topics.values()].filter((topic) => !topic.is_internal);
    return shown.find((topic) => topic.partitions.some((one) => one.end > 0)) ?? shown[0] ?? null;
  }

  leave() {
    this.isLeft = true;
    this.table?.end();
    for (const off of this.offs) off();
    removeEventListener("resize", this.onResize);
    for (const strip of this.strips) strip.end();
  }

  wake() { for (const strip of this.strips) strip.wake(); }

  fillList() {
    const wanted = this.filter.value.trim().toLowerCase();
    const topics = [...state.topics.values()].filter((topic) => topic.name.toLowerCase().includes(wanted)).sort((one, other) => one.is_internal - other.is_internal || one.name.localeCompare(other.name));
    const listed = topics.map((topic) => topic.name).join("/");
    if (listed === this.listed) return; // made anew, it would lose the focus
    this.listed = listed;
    this.rateOf = new Map();
    put(this.list, topics.map((topic) => {
      const speed = h("small", { class: "mono" });
      this.rateOf.set(topic.name, speed);
      return h("li", {}, h("a", { href: this.addressFor(topic.name), class: topic.is_internal ? "internal" : "", "aria-current": topic.name === this.topic?.name && "true" }, h("span", { class: "topic-name" }, elided(topic.name)), speed));
    }));
    put(this.picker, topics.map((topic) => h("option", { value: topic.name, selected: topic === this.topic }, topic.name)));
    this.showChosen();
    this.rates();
  }

  /** Of another topic, shown as this one is. */
  addressFor(name) { return addressOf("log", [name], this.isTable ? { view: "table" } : {}); }

  /** The chosen topic, in a list that is longer than the page. Only the list scrolls. */
  showChosen() {
    const chosen = this.list.querySelector("[aria-current]");
    const { list: frame } = this;
    if (!chosen) return;
    const [top, bottom] = [chosen.offsetTop - frame.offsetTop, chosen.offsetTop - frame.offsetTop + chosen.offsetHeight];
    if (top < frame.scrollTop || bottom > frame.scrollTop + frame.clientHeight) frame.scrollTop = top - frame.clientHeight / 2;
  }

  rates() {
    for (const [name, speed] of this.rateOf) {
      const value = state.topics.get(name)?.records_per_s ?? 0;
      put(speed, value > 0.05 ? `${rate(value)}/s` : "");
    }
    if (this.speed && this.topic) put(this.speed, this.topic.records_per_s > 0.05 ? `${rate(this.topic.records_per_s)} records/s` : "quiet");
  }

  topicsChanged() {
    const again = this.topic && state.topics.get(this.topic.name);
    if (!again || again.id !== this.topic.id || again.partitions.length !== this.topic.partitions.length) {
      this.listed = null;
      this.topic = again ?? this.find();
      for (const strip of this.strips) strip.end();
      this.build();
    } else {
      this.topic = again;
      for (const strip of this.strips) strip.setSize(again.partitions[strip.number].size_bytes);
    }
    this.fillList();
  }

  build() {
    const { topic } = this;
    this.strips = [];
    this.table?.end();
    this.table = null;
    if (!topic && this.named) {
      put(this.body, empty("This topic is not there", `There is no topic ${this.named}. If it is made, this page shows it at once.`, h("p", {}, h("a", { href: "#/topics" }, "All topics"))));
      return;
    }
    if (!topic) {
      put(this.body, empty("Nothing is written yet", "Make a topic and append to it; this page shows it at once.", h("p", {}, h("code", {}, `foldlog topic create payments -p 3 -b ${state.overview.bootstrap}`))));
      return;
    }
    this.speed = h("span", { class: "mono" });
    this.live = h("button", { class: "button small", type: "button", title: "Follow the end of the log", onclick: () => { for (const strip of this.strips) strip.follow(); } }, icon("live"), h("span", {}, "Live"));
    const zoomer = (name, label, step) => h("button", { class: "icon-button", type: "button", "aria-label": label, title: label, onclick: () => this.zoom(step) }, icon(name));
    const jump = h("input", { type: "text", id: "jump", class: "mono", placeholder: "offset, end, @10:30, @-6h", "aria-label": `Jump to ${PLACES}`, title: PLACES, autocomplete: "off", spellcheck: "false" });
    const view = (isTable, text) => h("button", { type: "button", "aria-pressed": String(this.isTable === isTable), onclick: () => this.setView(isTable) }, text);
    const views = h("div", { class: "choice", role: "group", "aria-label": "How to show the records" }, view(false, "Strips"), view(true, "Table"));
    const tools = this.isTable ? h("div", { class: "tools" }, views) : h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); this.jump(jump.value.trim()); } }, views, jump, h("span", { class: "zoom" }, zoomer("minus", "Smaller cells", -1), zoomer("plus", "Larger cells", 1)), this.live);
    put(this.body,
      h("div", { class: "log-head" },
        h("div", { class: "title" }, h("h1", {}, topic.name), this.picker, h("p", { class: "quiet" }, this.speed, policy(topic).flatMap((part) => [" · ", part]), " · ", term("order", "ordered in each partition"), " · ", h("a", { href: addressOf("topics", [topic.name]) }, "settings"))),
        tools),
      this.isTable ? this.buildTable(topic) : this.buildStrips(topic));
    this.rates();
    this.scrolled();
  }

  buildTable(topic) {
    this.table = new RecordsTable(topic, this.query, { chosen: (row) => this.panel.show(topic.name, row.partition, row.offset), said: (filters) => this.at({ filters }) });
    return this.table.element;
  }

  buildStrips(topic) {
    const options = { slotWidth: this.slotWidth(), zoom: (step) => this.zoom(step), scrolled: () => this.scrolled(), chosen: (...place) => this.chosen(...place), walked: (...place) => this.walked(...place) };
    this.strips = topic.partitions.map((partition) => Object.assign(new Strip(topic, partition, options), { sizeBytes: partition.size_bytes }));
    return [
      topic.partitions.length > MANY && this.partitionFilter(),
      h("div", { class: topic.partitions.length > MANY ? "partitions many" : "partitions" }, this.strips.map((strip) => strip.element)),
      h("p", { class: "legend quiet" }, "Oldest left, newest right. Each cell is a ", term("record"), ", numbered by its ", term("offset"), "; joined cells are one ", term("batch"), "; ✕ is a ", term("tombstone"), "; hatched is what ", term("compaction"), " left out. Flags are the ", term("cursor", "cursors"), " of ", term("group", "groups"), " and ", term("fold", "folds"), ", with their ", term("lag"), state.overview.read_only ? "." : [": drag one left to ", term("rewind"), " it."]),
    ];
  }

  /** Which of many partitions are shown: numbers and ranges, or those that hold something. */
  partitionFilter() {
    const input = h("input", { type: "search", class: "mono", placeholder: "all, or 0, 4-6", "aria-label": "Partitions", value: this.query.get("partitions") ?? "", oninput: () => show() });
    const count = h("span", { class: "quiet" });
    const show = () => {
      const wanted = numbersOf(input.value);
      let shown = 0;
      for (const strip of this.strips) { strip.element.hidden = wanted !== null && !wanted.has(strip.number); shown += !strip.element.hidden; }
      put(count, `${shown} of ${this.strips.length}`);
      this.at({ wantedPartitions: input.value.trim() });
    };
    queueMicrotask(show);
    return h("label", { class: "row partition-filter" }, h("span", {}, "Partitions"), input, count);
  }

  setView(isTable) {
    this.isTable = isTable;
    for (const strip of this.strips) strip.end();
    this.panel.close();
    this.build();
    this.listed = null;
    this.fillList();
    this.at();
  }

  slotWidth() { return innerWidth < 640 && zoomLevel === 5 ? 48 : WIDTHS[zoomLevel]; }

  zoom(step) {
    zoomLevel = Math.max(0, Math.min(WIDTHS.length - 1, zoomLevel + step));
    for (const strip of this.strips) strip.zoom(this.slotWidth());
  }

  grown(changed) {
    const partitions = this.topic && changed[this.topic.name];
    if (!partitions) return;
    for (const [number, [start, end]] of Object.entries(partitions)) this.strips[Number(number)]?.setEnds(start, end);
  }

  scrolled() {
    if (this.isTable) return;
    const isLive = this.strips.every((strip) => strip.model.following);
    this.live.classList.toggle("on", isLive);
    this.live.setAttribute("aria-pressed", String(isLive));
    if (isLive && this.jumped) this.at({ jumped: "" });
  }

  async jump(place) {
    const { strips } = this;
    const asked = (this.asked = {});
    let found;
    try {
      found = await api.place(this.topic.name, place);
    } catch (error) { if (this.asked === asked) toast(sentence(error.message), "bad"); return; }
    if (this.asked !== asked) return; // something else was typed since
    forgetErrors();
    this.at({ jumped: /^end$/i.test(place) ? "" : found.place });
    for (const strip of strips) {
      const at = found.partitions[strip.number];
      if (!at || strip.isOver) continue;
      if (at.kind === "end") { strip.follow(); continue; }
      if (at.kind === "offset") strip.jump(at.offset);
      else strip.jump(at.offset, at.kind === "start" ? 0.1 : 0.3);
      if (at.is_record) strip.selected = at.offset;
    }
  }

  goTo(partition, offset) {
    const strip = this.strips[partition];
    if (!strip || !Number.isInteger(offset)) return;
    requestAnimationFrame(() => { strip.element.scrollIntoView({ block: "nearest" }); strip.jump(offset); strip.choose(offset, true); });
  }

  chosen(strip, offset, isOpen) {
    for (const other of this.strips) if (other !== strip && other.selected !== null) { other.selected = null; other.wake(); }
    this.from = strip;
    if (isOpen) this.panel.show(strip.topic, strip.number, offset, true);
  }

  /** Walking with the keys takes an open panel along. */
  walked(strip, offset) {
    for (const other of this.strips) if (other !== strip && other.selected !== null) { other.selected = null; other.wake(); }
    if (this.panel.isOpen) { this.from = strip; this.panel.show(strip.topic, strip.number, offset); }
  }

  step(topic, partition, offset, direction) {
    if (this.table) {
      const next = this.table.step(`${partition}.${offset}`, direction);
      return next && [next.partition, next.offset];
    }
    const strip = this.strips[partition];
    if (!strip || strip.topic !== topic) return null;
    const to = strip.model.neighbour(offset, direction);
    strip.selected = to;
    const slot = strip.model.place(to);
    if (slot < 0 || slot > strip.model.slots - 1) strip.jump(to);
    strip.wake();
    return to;
  }

  closed() {
    this.at({ open: null });
    if (this.table) this.table.element.querySelector(".virtual")?.focus();
    else this.from?.track.focus();
  }
}

export function enter(element, path, query) {
  const room = new LogRoom(element, path, query);
  return () => room.leave();
}
