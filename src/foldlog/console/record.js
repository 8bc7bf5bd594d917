// The panel that shows one record: its value made readable, and where exactly it lies on disk.

import * as api from "./api.js";
import { copyButton, h, icon, put } from "./dom.js";
import { now } from "./store.js";
import { term } from "./terms.js";
import { ago, bytes, clock, counted, day, number, sentence, size } from "./words.js";

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;

/** JSON text, indented, with its parts coloured. */
function coloured(text) {
  const out = [];
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    out.push(text.slice(last, match.index));
    const kind = match[1] ? (match[2] ? "j-name" : "j-text") : match[3] ? "j-number" : "j-word";
    out.push(h("span", { class: kind }, match[1] ?? match[0]), match[2] ?? "");
    last = match.index + match[0].length;
  }
  return [...out, text.slice(last)];
}

const DEPTH_MAX = 40; // indented further, a value that is nothing but brackets would become a text of gigabytes

/** Indents JSON without reading its numbers: one that JavaScript cannot hold exactly is shown as it was written. */
export function indent(text) {
  JSON.parse(text);
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEPTH_MAX))}`;
  return text.replace(/"(?:\\.|[^"\\])*"|[{}[\],:]|\s+/g, (part, at) => {
    if (part[0] === '"') return part;
    if (/\s/.test(part[0])) return "";
    if (part === ":") return ": ";
    if (part === ",") return `,${line()}`;
    if (part === "{" || part === "[") {
      if (/^\s*[}\]]/.test(text.slice(at + 1, at + 200))) { depth += 1; return part; }
      depth += 1;
      return `${part}${line()}`;
    }
    depth -= 1;
    return /[{[]\s*$/.test(text.slice(Math.max(0, at - 200), at)) ? part : `${line()}${part}`;
  });
}

/** The value as a text: decoded if the broker could, else as it is. */
const valueText = (value) => value.decoded ?? value.text ?? value.base64;

function shownValue(value) {
  if (value === null) return h("p", { class: "quiet" }, "No value: a ", term("tombstone"), ". It says that this key is gone.");
  const text = valueText(value);
  try { return h("pre", { class: "value mono", tabindex: 0 }, coloured(indent(text))); } catch { return h("pre", { class: value.decoded && /^[0-9a-f]{8} {2}/.test(text) ? "value mono hex" : "value mono", tabindex: 0 }, text); }
}

const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, ...value)];

const DECODERS = [["auto", "what it is"], ["json", "JSON"], ["msgpack", "MessagePack"], ["text", "text"], ["hex", "hexadecimal"], ["registry", "by its schema"]];

function body(record, decoders) {
  const { batch } = record;
  const key = record.key?.decoded ?? bytes(record.key);
  return [
    h("section", {}, h("h3", {}, term("key", "Key")), key === null ? h("p", { class: "quiet" }, "none") : h("p", { class: "mono wrap" }, key)),
    h("section", {},
      h("div", { class: "row" }, h("h3", {}, "Value"), h("small", { class: "quiet" }, record.value ? `${size(record.value.size)}${record.value.text === undefined && record.value.decoded === undefined ? ", not text: base64" : ""}${record.value.is_cut ? ", the beginning" : ""}` : ""), record.value && decoders, record.value && copyButton(() => valueText(record.value))),
      shownValue(record.value)),
    h("section", {}, h("h3", {}, "Headers"), record.headers.length ? h("dl", { class: "facts mono" }, record.headers.flatMap(([name, value]) => fact(name, bytes(value) ?? "null"))) : h("p", { class: "quiet" }, "none")),
    h("section", {}, h("h3", {}, "Where and when"), h("dl", { class: "facts" },
      fact("Time", `${day(record.timestamp)}, ${clock(record.timestamp, true)}`, h("small", {}, `${ago(record.timestamp, now())}, ${record.timestamp_type === "LogAppendTime" ? "when it was appended" : "as its producer said"}`)),
      fact(term("batch", "Batch"), h("span", { class: "mono" }, batch.base_offset === batch.last_offset ? number(batch.base_offset) : `${number(batch.base_offset)} – ${number(batch.last_offset)}`),
        h("small", {}, `${counted(batch.records, "record")}, ${size(batch.size_bytes)}, ${batch.codec === "none" ? "not compressed" : batch.codec}`)),
      batch.producer_id >= 0 && fact(term("producer", "Producer"), h("span", { class: "mono" }, String(batch.producer_id)), h("small", {}, "idempotent: a retry is written once")),
      fact(term("segment", "Segment"), h("span", { class: "mono wrap" }, record.segment)),
      fact("Byte position", h("span", { class: "mono" }, number(record.position))),
      fact("Leader epoch", h("span", { class: "mono" }, String(batch.leader_epoch))))),
  ];
}

export class RecordPanel {
  /** `step(direction)` gives the neighbour, an offset or [partition, offset]; `shown(topic, partition, offset)` and
   * `closed()` are told. */
  constructor({ step, closed, shown }) {
    Object.assign(this, { step, closed, shown });
    this.title = h("h2", { tabindex: -1 });
    this.content = h("div", { class: "panel-body" });
    this.decoders = h("select", { "aria-label": "Show the value as", class: "small", onchange: () => this.show(this.topic, this.partition, this.offset) }, DECODERS.map(([value, text]) => h("option", { value }, text)));
    const arrow = (name, label, direction) => h("button", { class: "icon-button", type: "button", "aria-label": label, title: label, onclick: () => this.walk(direction) }, icon(name));
    this.element = h("aside", { class: "panel", hidden: true, "aria-label": "Record" },
      h("header", {}, this.title, arrow("left", "The record before", -1), arrow("right", "The record after", 1),
        h("button", { class: "icon-button", type: "button", "aria-label": "Close", onclick: () => this.close() }, icon("close"))),
      this.content);
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
      else if (event.key === "ArrowLeft" && !event.target.closest("pre")) this.walk(-1);
      else if (event.key === "ArrowRight" && !event.target.closest("pre")) this.walk(1);
      else return;
      event.preventDefault();
    });
  }

  get isOpen() { return !this.element.hidden; }

  walk(direction) {
    const next = this.step(this.topic, this.partition, this.offset, direction);
    if (next === null) return;
    const [partition, offset] = Array.isArray(next) ? next : [this.partition, next];
    if (offset !== this.offset || partition !== this.partition) this.show(this.topic, partition, offset);
  }

  async show(topic, partition, offset, takeFocus = false) {
    Object.assign(this, { topic, partition, offset });
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    put(this.title, h("small", {}, `${topic} / ${partition}`), h("span", { class: "mono" }, number(offset)));
    this.element.hidden = false;
    this.element.dataset.offset = offset;
    if (takeFocus) this.title.focus();
    try {
      const record = await api.record(topic, partition, offset, this.decoders.value === "auto" ? {} : { decoder: this.decoders.value }, asking.signal);
      put(this.content, body(record, this.decoders));
      this.shown?.(topic, partition, offset);
    } catch (error) {
      if (error.name !== "AbortError") put(this.content, h("p", { class: "notice bad" }, sentence(error.message)));
    }
  }

  close() {
    if (!this.isOpen) return;
    this.asking?.abort();
    this.element.hidden = true;
    this.closed();
  }
}
