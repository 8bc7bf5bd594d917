// The room of topics: what each is set to, which files it is on disk, and a form that appends a test record.

import * as api from "./api.js";
import { card, elided, empty, field, h, heads, icon, isBusy, missing, put, toast } from "./dom.js";
import { HistoryChart, pointsOf } from "./history.js";
import { SortedList } from "./lists.js";
import { hue, on, state } from "./store.js";
import { alterTopic, compactTopic, createTopic, deleteTopic, growTopic, trimTopic } from "./topic_changes.js";
import { term } from "./terms.js";
import { counted, moment, number, rate, sentence, settingText, short, size, span } from "./words.js";

const link = (name) => `#/topics/${encodeURIComponent(name)}`;
const records = (topic) => topic.partitions.reduce((sum, one) => sum + one.end - one.start, 0);
const bytesOf = (topic) => topic.partitions.reduce((sum, one) => sum + (one.size_bytes ?? 0), 0);
/** Of a partition that nobody has used since the broker was started, the size is not known. */
const bytesText = (topic) => (topic.partitions.some((one) => one.size_bytes === null && one.end > one.start) ? h("span", { title: "Not known until it is used: the broker has not opened it yet" }, bytesOf(topic) ? `${size(bytesOf(topic))} +` : "–") : size(bytesOf(topic)));

/** What a topic keeps, in words. */
function retained(topic) {
  const what = topic.cleanup_policy.includes("compact") ? "newest of each key" : "everything";
  const limits = [topic.retention_ms >= 0 && span(topic.retention_ms), topic.retention_bytes >= 0 && `${size(topic.retention_bytes)} a partition`].filter(Boolean);
  return topic.cleanup_policy.includes("delete") && limits.length ? `${what}, for ${limits.join(" or ")}` : `${what}, for ever`;
}

const sorted = () => [...state.topics.values()].sort((one, other) => one.is_internal - other.is_internal || one.name.localeCompare(other.name));

const COLUMNS = [
  { name: "topic", title: "Topic", value: (topic) => topic.name, cell: (topic) => h("a", { href: link(topic.name), title: topic.name }, elided(topic.name)) },
  { name: "partitions", title: "Partitions", kind: "num mono minor", value: (topic) => topic.partitions.length, cell: (topic) => number(topic.partitions.length) },
  { name: "offsets", title: "Offsets held", kind: "num mono", value: records, cell: (topic) => short(records(topic)) },
  { name: "size", title: "On disk", kind: "num mono", value: bytesOf, cell: bytesText },
  { name: "rate", title: "Records/s", kind: "num mono minor", value: (topic) => topic.records_per_s ?? 0, cell: (topic) => rate(topic.records_per_s ?? 0) },
  { name: "kept", title: "Kept", kind: "minor", value: retained, cell: retained },
];

const list = () => new SortedList({
  room: "topics", columns: COLUMNS, rows: sorted, text: (topic) => topic.name, rowClass: (topic) => topic.is_internal && "internal",
  empty: () => empty("No topics yet", h("code", {}, `foldlog topic create payments -p 3 -b ${state.overview.bootstrap}`)),
});

/** Segments as blocks, each as wide as its share of the bytes. Of very many, the newest. */
function segments(partition) {
  if (partition.error) return h("div", { class: "segment-row" }, h("span", { class: "mono quiet" }, String(partition.partition)), h("p", { class: "notice bad" }, sentence(partition.error)));
  const total = Math.max(1, partition.segments.reduce((sum, one) => sum + one.size_bytes, 0));
  return h("div", { class: "segment-row" }, h("span", { class: "mono quiet" }, String(partition.partition)),
    h("div", { class: "segments" }, partition.segments.map((one) => {
      const text = `${number(one.base_offset)} to ${number(one.next_offset)}, ${size(one.size_bytes)}${one.first_ms > 0 ? `, ${moment(one.first_ms)} to ${moment(one.last_ms)}` : ""}${one.is_active ? ", being written" : ""}`;
      return h("span", { class: one.is_active ? "segment active" : "segment", style: { "flex-grow": String(Math.max(0.02, one.size_bytes / total)) }, title: text, role: "img", "aria-label": text });
    })), h("span", { class: "mono quiet" }, `${counted(partition.segment_count, "file")}, ${size(partition.size_bytes)}`));
}

/** What each partition has in the store of segments; nothing for a topic that uses none. */
function inStore(partitions) {
  const stored = partitions.filter((one) => one.store);
  if (!stored.length) return null;
  const rows = stored.map(({ partition, store }) => {
    const alone = Math.max(0, store.local_start - store.start);
    const waits = store.waiting_segments > 0 && h("b", { class: "bad-text" }, `${counted(store.waiting_segments, "segment")} waiting, ${size(store.waiting_bytes)}`);
    return h("tr", {}, h("th", { scope: "row", class: "mono" }, String(partition)), h("td", { class: "mono" }, store.segments ? `${number(store.start)} to ${number(store.end)}` : "nothing yet"), h("td", { class: "mono" }, `${counted(store.segments, "segment")}, ${size(store.size_bytes)}`), h("td", { class: "mono" }, alone ? `${short(alone)} offsets` : "none"), h("td", {}, waits || "all that is sealed is there"));
  });
  return h("section", { class: "card", id: "in-store" }, h("header", {}, h("h2", {}, "In the store"), h("small", { class: "quiet" }, "sealed segments, copied")), h("div", { class: "scroll" }, h("table", {}, heads("Partition", "Offsets", "Size", "Only there", "Copying"), h("tbody", {}, rows))));
}

function configs(entries) {
  const list = h("tbody", {});
  const all = h("input", { type: "checkbox", onchange: () => fillIn() });
  const fillIn = () => {
    const shown = entries.filter((entry) => all.checked || !entry.is_default);
    put(list, shown.length ? shown.map((entry) => h("tr", { class: entry.is_default ? "quiet" : "" }, h("th", { scope: "row", class: "mono" }, entry.name), h("td", { class: "mono wrap" }, settingText(entry.name, entry.value) ?? ""))) : h("tr", {}, h("td", { class: "quiet" }, "Everything is as it is by default.")));
  };
  fillIn();
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, "Settings"), h("label", { class: "check small" }, all, h("span", {}, "with defaults"))), h("div", { class: "scroll" }, h("table", {}, list)));
}

function produceForm(topic) {
  if (state.overview.read_only) return card("Append a test record", h("p", { class: "quiet" }, "This console is read-only."));
  if (!topic.is_writable || !topic.may.includes("WRITE")) return null;
  const isCompacted = topic.cleanup_policy.includes("compact");
  const key = h("input", { type: "text", class: "mono", placeholder: isCompacted ? "needed here" : "none", required: isCompacted, autocomplete: "off" });
  const value = h("textarea", { class: "mono", rows: 5, spellcheck: "false", placeholder: '{"tx_id": "tx_001", "amount_paise": 4900}' });
  const headers = h("input", { type: "text", class: "mono", placeholder: "trace=42, source=console", autocomplete: "off" });
  const partition = h("select", {}, h("option", { value: "" }, "by its key"), topic.partitions.map((one) => h("option", { value: String(one.partition) }, String(one.partition))));
  const tombstone = h("input", { type: "checkbox", onchange: () => { value.disabled = tombstone.checked; } });
  const go = h("button", { class: "button primary", type: "submit" }, "Append");
  const done = h("p", { class: "quiet", role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      const pairs = headers.value.split(",").map((pair) => pair.trim()).filter(Boolean).map((pair) => { const at = pair.indexOf("="); return at < 0 ? [pair, ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()]; });
      const answer = await api.produce(topic.name, { key: key.value === "" ? null : key.value, value: tombstone.checked ? null : value.value, headers: pairs, partition: partition.value === "" ? null : Number(partition.value) });
      put(done, "It is on disk: ", h("a", { href: `#/log/${encodeURIComponent(topic.name)}/${answer.partition}/${answer.offset}` }, `partition ${answer.partition}, offset ${number(answer.offset)}`), ".");
    } catch (error) { toast(sentence(error.message), "bad"); } finally { go.disabled = false; }
  };
  return card("Append a test record",
    h("form", { class: "produce", onsubmit: submit },
      h("div", { class: "pair" }, field("Key", key), field("Partition", partition)), field("Value", value), h("label", { class: "check" }, tombstone, h("span", {}, "no value: a ", term("tombstone"))), field("Headers", headers),
      h("div", { class: "buttons" }, done, go)));
}

const AGAIN_MS = 2000;

/** What one topic has on disk and is set to. Looks again while it grows, and leaves alone what somebody fills in. */
class TopicPage {
  constructor(place, name) {
    Object.assign(this, { place, name });
    this.numbers = h("span", {});
    this.files = h("div", { class: "segment-rows" });
    this.store = h("div", {});
    this.chart = new HistoryChart("Records per second", (found, at) => [{ name, colour: hue(name), points: [...pointsOf(found, found.topics[name]?.records_per_s), [at, state.topics.get(name)?.records_per_s ?? 0]] }], { text: rate });
    this.off = on("rates", () => this.again());
    this.offTopics = on("topics", () => this.again());
    this.ask();
  }

  /** At most every two seconds, and only for a topic that has changed: each look reads the ends of its files. */
  again() {
    const known = state.topics.get(this.name);
    const place = known && JSON.stringify(known.partitions.map((one) => [one.start, one.end, one.size_bytes]));
    if (known && this.topic) this.showNumbers({ ...this.topic, records_per_s: known.records_per_s, bytes_per_s: known.bytes_per_s });
    if (place === this.shown || this.asking || Date.now() - this.askedAt < AGAIN_MS) return;
    this.shown = place;
    this.ask();
  }

  async ask(isChanged = false) {
    this.asking = true;
    this.askedAt = Date.now();
    try {
      const topic = await api.topic(this.name);
      if (isChanged || this.topic?.id !== topic.id || this.topic.partitions.length !== topic.partitions.length) this.build(topic);
      this.topic = topic;
      this.showNumbers(topic);
      if (!isBusy(this.files)) put(this.files, topic.partitions.map(segments));
      if (!isBusy(this.store)) put(this.store, inStore(topic.partitions));
    } catch (error) {
      if (error.status !== 404 && this.topic) return; // the broker is away for a moment, which the pulse tells
      this.topic = null;
      put(this.place, empty(missing(error, "topic"), sentence(error.message), h("a", { href: "#/topics" }, "All topics")));
    } finally { this.asking = false; }
  }

  build(topic) {
    put(this.place, h("div", { class: "room-head" }, h("p", { class: "crumb" }, h("a", { href: "#/topics" }, "Topics")), h("h1", {}, this.name),
      h("p", { class: "quiet" }, this.numbers, " ", h("a", { href: `#/log/${encodeURIComponent(this.name)}` }, "Show the log")), this.actions(topic)),
    this.chart.element,
    h("section", { class: "card" }, h("header", {}, h("h2", {}, term("segment", "Segments"), " on disk"), h("small", { class: "quiet" }, "oldest left; the last one is being written")), this.files),
    this.store,
    h("div", { class: "cards" }, produceForm(topic), configs(topic.configs)));
  }

  actions(topic) {
    if (state.overview.read_only || !topic.is_writable) return null;
    const act = (text, does, isDanger) => h("button", { class: isDanger ? "button small danger" : "button small", type: "button", onclick: async () => { if (await does(this.topic)) this.ask(true); } }, text);
    const policies = topic.cleanup_policy;
    const may = (operation) => topic.may.includes(operation);
    return h("div", { class: "buttons" }, may("ALTER_CONFIGS") && act("Settings…", alterTopic), may("ALTER") && act("Add partitions…", growTopic), may("DELETE") && policies.includes("delete") && act("Trim…", trimTopic), may("ALTER") && policies.includes("compact") && act("Compact…", compactTopic), may("DELETE") && act("Delete…", deleteTopic, true));
  }

  showNumbers(topic) {
    const speed = topic.records_per_s > 0.05 ? `${rate(topic.records_per_s)} records/s, ${size(Math.round(topic.bytes_per_s ?? 0))}/s` : "quiet now";
    put(this.numbers, `${counted(topic.partitions.length, "partition")}, ${short(records(topic))} offsets, ${size(bytesOf(topic))} on disk, ${speed}. Kept: ${retained(topic)}.`);
  }

  leave() { this.off(); this.offTopics(); this.chart.leave(); }
}

export function enter(element, path) {
  const place = h("div", { class: "page" });
  put(element, place);
  if (path[0]) {
    const page = new TopicPage(place, path[0]);
    return () => page.leave();
  }
  const topics = list();
  put(place, h("div", { class: "room-head" }, h("div", { class: "row head-row" }, h("h1", {}, "Topics"), !state.overview.read_only && state.overview.may.includes("CREATE") && h("button", { class: "button small", type: "button", onclick: createTopic }, icon("plus"), "New topic")), h("p", { class: "quiet" }, "Where ", term("producer", "producers"), " append. ", term("order", "Order holds in each partition"), ". A ", term("partition"), " is what is ordered; ", term("retention"), " says what is kept.")), topics.element);
  const show = () => topics.show();
  const offs = [on("topics", show), on("rates", show)];
  return () => { topics.leave(); for (const off of offs) off(); };
}
