// The records of a topic as a table beside the strips: filtered by the broker, newest or oldest first, and live.

import * as api from "./api.js";
import { copyText, field, h, icon, put, toast } from "./dom.js";
import { on } from "./store.js";
import { VirtualTable } from "./virtual.js";
import { bytes, clock, counted, localInput, moment, number, sentence, short } from "./words.js";

const ROWS_MAX = 1000;
const FILTERS = ["key", "text", "path", "since", "until", "partitions", "columns", "decoder", "order"];

/** Columns as people write them, one after the other with commas, as the list of paths that the API takes. */
const paths = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);
const flat = (text) => text.replace(/\s+/g, " ").trim();
export const valueText = (value) => (value === null ? null : value.decoded ?? bytes(value));

/** Partitions and offsets in few characters: each offset as its distance from the one before. */
export function offsetsText(rows) {
  const byPartition = new Map();
  for (const row of rows) byPartition.set(row.partition, [...(byPartition.get(row.partition) ?? []), row.offset]);
  return [...byPartition].map(([partition, offsets]) => {
    const sorted = offsets.sort((one, other) => one - other);
    return `${partition}=${sorted.map((offset, index) => offset - (sorted[index - 1] ?? 0)).join(".")}`;
  }).join(";");
}

export class RecordsTable {
  /** `chosen(row)` shows a record; `said(query)` keeps the address. */
  constructor(topic, query, { chosen, said }) {
    Object.assign(this, { topic, said });
    this.rows = [];
    this.inputs = {};
    const input = (name, attributes) => (this.inputs[name] = h("input", { type: "text", autocomplete: "off", spellcheck: "false", class: "mono", value: query.get(name) ?? "", ...attributes }));
    const time = (name) => (this.inputs[name] = h("input", { type: "datetime-local", step: 1, value: query.get(name) ? localInput(Number(query.get(name))) : "" }));
    const choice = (name, options) => (this.inputs[name] = h("select", {}, options.map(([value, text]) => h("option", { value, selected: value === (query.get(name) ?? options[0][0]) }, text))));
    this.go = h("button", { class: "button primary", type: "submit" }, "Search");
    this.stopper = h("button", { class: "button", type: "button", hidden: true, onclick: () => this.stop() }, "Stop");
    this.live = h("button", { class: "button", type: "button", "aria-pressed": "false", title: "Show new records as they come", onclick: () => this.setLive(!this.isLive) }, icon("live"), "Live");
    this.more = h("button", { class: "button", type: "button", hidden: true, onclick: () => this.ask(false) }, "More");
    this.form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); this.begin(); } },
      field("Key", input("key", { placeholder: "the whole key" })), field("Text", input("text", { placeholder: "in key, value or headers" })),
      field("JSON path", input("path", { placeholder: "$.customer.id = 17" })), field("From", time("since")), field("To", time("until")),
      topic.partitions.length > 1 && field("Partitions", input("partitions", { placeholder: "all, or 0, 4-6" })),
      field("Columns", input("columns", { placeholder: "$.status, $.customer.id" })),
      field("Show as", choice("decoder", [["auto", "what they are"], ["json", "JSON"], ["msgpack", "MessagePack"], ["text", "text"], ["hex", "hexadecimal"], ["registry", "by their schemas"]])),
      field("Order", choice("order", [["newest", "newest first"], ["oldest", "oldest first"]])),
      h("div", { class: "buttons" }, this.go, this.stopper, this.live));
    this.status = h("span", { role: "status" });
    this.bar = h("progress", { max: "1", value: "0", hidden: true, "aria-label": "How much was looked at" });
    const download = (format, text) => h("button", { class: "button small", type: "button", onclick: () => this.download(format) }, text);
    this.tools = h("div", { class: "buttons", hidden: true }, h("button", { class: "button small", type: "button", onclick: () => this.copy() }, icon("copy"), "Copy"), download("jsonl", "JSON lines"), download("parquet", "Parquet"));
    this.table = new VirtualTable({ label: `Records of ${topic.name}`, cells: (row) => this.cells(row), chosen });
    // On a phone the filters would be all that one sees.
    const filters = h("details", { class: "filter-fold", open: innerWidth > 720 || FILTERS.some((name) => query.get(name)) }, h("summary", {}, "Filter"), this.form);
    this.element = h("section", { class: "card records", "aria-label": "Records" }, filters, h("div", { class: "row found" }, this.status, this.bar, this.tools), this.table.element, this.more);
    this.off = on("ends", (changed) => { if (this.isLive && changed[topic.name]) this.tail(); });
    this.begin();
  }

  /** What is asked, as the API and the address take it. */
  query() {
    const found = {};
    for (const name of FILTERS) {
      const value = this.inputs[name]?.value.trim() ?? "";
      if (value && !(name === "decoder" && value === "auto") && !(name === "order" && value === "newest")) found[name] = value;
    }
    for (const name of ["since", "until"]) if (found[name]) found[name] = String(new Date(found[name]).getTime());
    return found;
  }

  begin() {
    this.asked = this.query();
    this.columns = paths(this.asked.columns ?? "");
    this.said(this.asked);
    this.rows = [];
    this.cursor = this.tailCursor = null;
    this.scanned = this.left = 0;
    this.table.setHead([]);
    this.table.setRows([]);
    this.ask(false);
  }

  hasFilter() { return ["key", "text", "path", "since", "until", "partitions"].some((name) => this.asked[name]); }

  asParameters() {
    const { columns, ...rest } = this.asked;
    return { ...rest, columns: this.columns.length ? JSON.stringify(this.columns) : "" };
  }

  /** Ask until there is a page of records, everything was looked at, or somebody stops it. */
  async ask() {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const wanted = this.rows.length + 100;
    this.setBusy(true);
    try {
      while (this.rows.length < Math.min(wanted, ROWS_MAX)) {
        const answer = await api.search(this.topic.name, { ...this.asParameters(), cursor: this.cursor ?? "", limit: Math.min(100, ROWS_MAX - this.rows.length) }, asking.signal);
        this.tailCursor ??= this.asked.order === "oldest" ? null : answer.tail;
        this.cursor = answer.cursor;
        this.scanned += answer.scanned;
        this.left = answer.left;
        this.isDone = answer.is_done;
        this.add(answer.records);
        if (answer.is_done) break;
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      put(this.status, h("span", { class: "bad-text" }, sentence(error.message)));
      this.setBusy(false, true);
      return;
    }
    this.setBusy(false);
  }

  stop() { this.asking?.abort(); this.setBusy(false); }

  setBusy(isBusy, isFailed = false) {
    this.go.hidden = isBusy;
    this.stopper.hidden = !isBusy;
    this.bar.hidden = !isBusy;
    if (!isFailed) this.tell();
    this.more.hidden = isBusy || this.isDone !== false || this.rows.length >= ROWS_MAX;
    this.tools.hidden = isBusy || !this.rows.length;
  }

  tell() {
    const total = this.scanned + this.left;
    this.bar.value = total ? this.scanned / total : 1;
    const looked = this.left ? `; looked at ${short(this.scanned)} of ${short(total)} offsets` : this.hasFilter() ? ", all that match" : ", all there are";
    put(this.status, `${counted(this.rows.length, "record")}${looked}${this.rows.length >= ROWS_MAX ? "; the table shows no more" : ""}`);
  }

  add(records, isTail = false) {
    const known = new Set(this.rows.map((row) => row.id));
    const added = records.map((row) => ({ ...row, id: `${row.partition}.${row.offset}` })).filter((row) => !known.has(row.id));
    const isNewest = this.asked.order !== "oldest";
    const order = (one, other) => (isNewest ? other.timestamp - one.timestamp || other.offset - one.offset : one.timestamp - other.timestamp || one.offset - other.offset);
    this.rows = [...this.rows, ...added].sort(order).slice(0, ROWS_MAX);
    const hasKeys = this.rows.some((row) => row.key !== null);
    const hasHeaders = this.rows.some((row) => row.headers.length);
    this.shape = { hasKeys, hasHeaders, hasPartitions: this.topic.partitions.length > 1 };
    const head = ["Time", this.shape.hasPartitions && "Partition", "Offset", hasKeys && "Key", ...this.columns, "Value", hasHeaders && "Headers"];
    this.table.setHead(head.filter(Boolean).map((text) => h("th", { scope: "col", class: { Partition: "num minor", Offset: "num", Headers: "minor" }[text] }, text)));
    this.table.setRows(this.rows, isTail && isNewest ? added.length : 0);
    this.tell();
    return added.length;
  }

  cells(row) {
    const { hasKeys, hasHeaders, hasPartitions } = this.shape;
    const value = valueText(row.value);
    return [
      h("td", { class: "mono quiet", title: moment(row.timestamp) }, new Date(row.timestamp).toDateString() === new Date().toDateString() ? clock(row.timestamp, true) : moment(row.timestamp)),
      hasPartitions && h("td", { class: "num mono minor" }, String(row.partition)),
      h("td", { class: "num mono" }, number(row.offset)),
      hasKeys && h("td", { class: "mono cut", title: valueText(row.key) }, valueText(row.key) ?? h("span", { class: "quiet" }, "none")),
      ...(row.columns ?? []).map((text) => h("td", { class: "mono cut", title: text }, text ?? h("span", { class: "quiet" }, "–"))),
      h("td", { class: "mono value-cell" }, value === null ? h("span", { class: "quiet" }, "no value: a tombstone") : flat(value.slice(0, 400))),
      hasHeaders && h("td", { class: "mono cut minor" }, row.headers.map(([name, data]) => `${name}=${bytes(data) ?? "null"}`).join(" ")),
    ].filter(Boolean);
  }

  // --- live -----------------------------------------------------------------------------------------------------------

  setLive(isLive) {
    this.isLive = isLive;
    this.live.setAttribute("aria-pressed", String(isLive));
    this.live.classList.toggle("on", isLive);
    if (isLive && this.asked.order === "oldest") { this.inputs.order.value = "newest"; this.begin(); return; }
    if (isLive) this.tail();
  }

  /** What came since: one question at a time, and again while there is more. */
  async tail() {
    if (this.isTailing || !this.tailCursor) return;
    this.isTailing = true;
    const { order, ...rest } = this.asParameters();
    const began = this.asked;
    try {
      let answer;
      do {
        answer = await api.search(this.topic.name, { ...rest, order: "oldest", cursor: this.tailCursor, limit: 200 });
        if (began !== this.asked || !this.isLive) return;
        this.tailCursor = answer.cursor;
        this.add(answer.records, true);
      } while (!answer.is_done && this.isLive);
    } catch { /* the pulse says that the broker is away; the next record asks again */ } finally { this.isTailing = false; }
  }

  // --- what is shown, elsewhere -----------------------------------------------------------------------------------------

  copy() { copyText(this.rows.map((row) => JSON.stringify({ partition: row.partition, offset: row.offset, timestamp: row.timestamp, key: valueText(row.key), value: valueText(row.value) })).join("\n")); }

  async download(format) {
    try {
      const file = await api.download(this.topic.name, { format, records: offsetsText(this.rows) });
      const link = h("a", { href: URL.createObjectURL(file), download: `${this.topic.name}.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    } catch (error) { toast(sentence(error.message), "bad"); }
  }

  /** The neighbour of a record in the table, for the arrows of its panel. */
  step(id, direction) {
    const at = this.rows.findIndex((row) => row.id === id);
    const next = this.rows[at + direction];
    if (next) this.table.select(next.id);
    return next ?? null;
  }

  end() { this.asking?.abort(); this.isLive = false; this.off(); this.table.end(); }
}
