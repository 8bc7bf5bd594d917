// The room of the broker's health: where it is, what it warns of, and whether everything acknowledged is on disk.

import { card, h, isBusy, put } from "./dom.js";
import { findings } from "./problems.js";
import { on, state } from "./store.js";
import { term } from "./terms.js";
import { counted, number, rate, short, size } from "./words.js";

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

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
  put(element, h("div", { class: "page" }, h("div", { class: "room-head" }, h("h1", {}, "Health"), h("p", { class: "quiet" }, "The broker that serves this ", term("log"), ".")), body));
  const show = () => { if (!isBusy(body)) put(body, view()); };
  show();
  const offs = [on("topics", show), on("rates", show), on("problems", show), on("connection", show)];
  return () => { for (const off of offs) off(); };
}
