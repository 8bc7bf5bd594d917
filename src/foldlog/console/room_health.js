// The room of the broker's health: where it is, what it warns of, and whether everything acknowledged is on disk.

import * as api from "./api.js";
import { change } from "./change.js";
import { card, h, heads, isBusy, put } from "./dom.js";
import { findings } from "./problems.js";
import { now, on, state } from "./store.js";
import { term } from "./terms.js";
import { counted, number, rate, sentence, short, size, span } from "./words.js";

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

const abort = (one) => change({
  title: `Abort what ${one.transactional_id} has open?`, yes: "Abort it", isDanger: true, text: "Nothing of the transaction counts, and its producer gets an error with its next request.", fields: [],
  plan: () => api.post(`transactions/${encodeURIComponent(one.transactional_id)}/abort`, { dry_run: true }),
  show: (answer) => h("p", {}, `Open for ${span(now() - answer.start_ms)} in ${counted(answer.partitions.length, "partition")}: ${answer.partitions.slice(0, 8).map((each) => `${each.topic} / ${each.partition}`).join(", ")}.`),
  act: () => api.post(`transactions/${encodeURIComponent(one.transactional_id)}/abort`, {}), done: () => `What ${one.transactional_id} had open was aborted.`,
});

/** Transactions that are open: readers of committed records wait for them. */
function transactions(found, again) {
  const open = found.filter((one) => one.start_ms !== null);
  if (!open.length) return h("p", { class: "quiet" }, state.overview.directory === null ? "None that you may see." : "None: readers of committed records wait for nobody.");
  return h("div", { class: "scroll" }, h("table", {}, heads("Transactional id", "Open for", "Partitions", ""), h("tbody", {}, open.map((one) => h("tr", {},
    h("th", { scope: "row" }, one.transactional_id), h("td", { class: "mono" }, `${span(Math.max(0, now() - one.start_ms))} of at most ${span(one.timeout_ms)}`), h("td", {}, one.partitions.slice(0, 4).map((each) => `${each.topic} / ${each.partition}`).join(", "), one.partitions.length > 4 && ` and ${one.partitions.length - 4} more`),
    h("td", { class: "num" }, !state.overview.read_only && h("button", { class: "button small danger", type: "button", onclick: async () => { if (await abort(one)) again(); } }, "Abort…")))))));
}

/** The store of segments: what is there, what waits, and how reading from it goes. */
function store(found) {
  const looked = found.cache_hits + found.cache_misses;
  return h("dl", { class: "facts" },
    fact("Where", h("span", { class: "mono wrap" }, found.url)), fact("Has", `${counted(found.segments, "segment")}, ${size(found.size_bytes)}`),
    fact("Waiting to be copied", found.waiting_segments ? h("b", { class: "bad-text" }, `${counted(found.waiting_segments, "segment")}, ${size(found.waiting_bytes)}`) : "nothing"),
    fact("Since the start", `${number(found.copied_segments)} copied, ${counted(found.failures, "failure")}, ${counted(found.reads, "read")} of ranges`),
    looked > 0 && fact("Blocks found in memory", `${Math.round(100 * found.cache_hits / looked)} %, ${size(found.cache_bytes)} held`),
    found.errors.map((text) => fact("Wrong now", h("span", { class: "bad-text wrap" }, sentence(text)))));
}

function view() {
  const { overview } = state;
  const topics = [...state.topics.values()];
  const partitions = topics.flatMap((topic) => topic.partitions);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const waiting = sum(partitions.map((one) => one.unsynced));
  const figure = (name, value) => h("div", { class: "figure" }, h("b", { class: "mono" }, value), h("span", {}, name));
  return [
    h("div", { class: "figures wide card" },
      figure("records/s", rate(sum(topics.map((topic) => topic.records_per_s ?? 0)))), figure("written/s", size(sum(topics.map((topic) => topic.bytes_per_s ?? 0)))), figure("on disk", size(sum(partitions.map((one) => one.size_bytes ?? 0)))), figure("partitions", number(partitions.length)), figure("groups", number(state.groups.size))),
    card("Findings", findings()),
    card("Broker", h("dl", { class: "facts" },
      fact("Version", h("span", { class: "mono" }, overview.version)), overview.directory && fact("Directory", h("span", { class: "mono wrap" }, overview.directory)), fact("Kafka clients connect to", h("span", { class: "mono" }, overview.bootstrap)), fact("Cluster id", h("span", { class: "mono wrap" }, overview.cluster_id)),
      fact("This console", overview.read_only ? "read-only" : "may write"), fact(term("durable", "Durable"), waiting ? `${counted(waiting, "record")} not yet synced` : `all ${short(sum(partitions.map((one) => one.end - one.start)))} offsets that readers see`))),
  ];
}

export function enter(element) {
  const body = h("div", {});
  const open = h("div", {});
  const kept = h("div", {});
  put(element, h("div", { class: "page" }, h("div", { class: "room-head" }, h("h1", {}, "Health"), h("p", { class: "quiet" }, "The broker that serves this ", term("log"), ".")), body, kept, card("Open transactions", open)));
  const ask = (isDone = false) => api.transactions().then((found) => { if (isDone || !isBusy(open)) put(open, transactions(found, () => ask(true))); }, () => put(open, h("p", { class: "quiet" }, "They cannot be shown now.")));
  const askStore = () => api.health().then((found) => { if (!isBusy(kept)) put(kept, found.store && card("Store of segments", store(found.store))); }, () => {});
  ask();
  askStore();
  const timer = setInterval(() => { if (!document.hidden) { ask(); askStore(); } }, 5000);
  const show = () => { if (!isBusy(body)) put(body, view()); };
  show();
  const offs = [on("topics", show), on("rates", show), on("problems", show), on("connection", show)];
  return () => { clearInterval(timer); for (const off of offs) off(); };
}
