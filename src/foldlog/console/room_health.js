// The room of the broker's health: where it is, what it warns of, and whether everything acknowledged is on disk.

import * as api from "./api.js";
import { change } from "./change.js";
import { card, h, heads, isBusy, put } from "./dom.js";
import { findings } from "./problems.js";
import { now, on, state } from "./store.js";
import { term } from "./terms.js";
import { counted, number, rate, short, size, span } from "./words.js";

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
  put(element, h("div", { class: "page" }, h("div", { class: "room-head" }, h("h1", {}, "Health"), h("p", { class: "quiet" }, "The broker that serves this ", term("log"), ".")), body, card("Open transactions", open)));
  const ask = (isDone = false) => api.transactions().then((found) => { if (isDone || !isBusy(open)) put(open, transactions(found, () => ask(true))); }, () => put(open, h("p", { class: "quiet" }, "They cannot be shown now.")));
  ask();
  const timer = setInterval(() => { if (!document.hidden) ask(); }, 5000);
  const show = () => { if (!isBusy(body)) put(body, view()); };
  show();
  const offs = [on("topics", show), on("rates", show), on("problems", show), on("connection", show)];
  return () => { clearInterval(timer); for (const off of offs) off(); };
}
