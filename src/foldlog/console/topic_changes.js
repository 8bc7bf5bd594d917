// What one does to topics: make, alter, grow, trim, compact, delete.

import * as api from "./api.js";
import { change, planTable, zone } from "./change.js";
import { field, h } from "./dom.js";
import { counted, number, sentence, settingText, size } from "./words.js";

const part = encodeURIComponent;
const post = (topic, verb, body) => api.post(`topics/${part(topic)}/${verb}`, body);
const input = (attributes) => h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", ...attributes });

/** Settings as lines, `name=value`; a name alone resets it. */
function settingsOf(text) {
  const found = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    found[at < 0 ? line : line.slice(0, at).trim()] = at < 0 ? null : line.slice(at + 1).trim();
  }
  return found;
}

export async function createTopic() {
  const name = input({ placeholder: "payments", required: true, autofocus: true });
  const partitions = h("input", { type: "number", class: "mono", min: 1, step: 1, value: "3" });
  const settings = h("textarea", { class: "mono", rows: 3, spellcheck: "false", placeholder: "retention.ms=604800000\ncleanup.policy=compact" });
  const body = (dryRun) => ({ name: name.value.trim(), partitions: Number(partitions.value) || null, config: settingsOf(settings.value), dry_run: dryRun });
  const made = await change({
    title: "New topic", yes: "Create", fields: [h("div", { class: "pair" }, field("Name", name), field("Partitions", partitions)), field("Settings", settings, "One per line; other settings have the broker’s defaults.")],
    plan: () => (name.value.trim() ? api.post("topics", body(true)) : null),
    show: (answer) => h("p", {}, `Creates ${answer.topic} with ${counted(answer.partitions, "partition")}${Object.keys(answer.config).length ? ` and ${counted(Object.keys(answer.config).length, "setting")} of its own` : ""}.`),
    act: () => api.post("topics", body(false)), done: (answer) => `${answer.topic} was created.`,
  });
  if (made) location.hash = `#/topics/${part(made.topic)}`;
}

export function alterTopic(topic) {
  const own = topic.configs.filter((one) => !one.is_default);
  const settings = h("textarea", { class: "mono", rows: 6, spellcheck: "false", autofocus: true, value: own.map((one) => `${one.name}=${one.value}`).join("\n") });
  /** Those that were taken out are reset. */
  const set = () => {
    const wanted = settingsOf(settings.value);
    for (const one of own) if (!(one.name in wanted)) wanted[one.name] = null;
    return wanted;
  };
  const hasChange = () => Object.keys(set()).length > 0;
  return change({
    title: `Settings of ${topic.name}`, yes: "Change", fields: field("Its own settings", settings, "One per line. A setting whose line you remove goes back to its default."),
    plan: () => (hasChange() ? post(topic.name, "configs", { set: set(), dry_run: true }) : null),
    show: (answer) => (answer.changes.length ? planTable(["Setting", "from", "to"], answer.changes.map((one) => [h("span", { class: "mono" }, one.name), settingText(one.name, one.from) ?? "–", settingText(one.name, one.to) ?? "–"])) : h("p", { class: "quiet" }, "Nothing changes.")),
    needs: (answer) => !answer.changes.length,
    act: () => post(topic.name, "configs", { set: set() }), done: (answer) => `${counted(answer.changes.length, "setting")} of ${topic.name} changed.`,
  });
}

export function growTopic(topic) {
  const count = h("input", { type: "number", class: "mono", min: topic.partitions.length + 1, step: 1, value: String(topic.partitions.length * 2), autofocus: true });
  return change({
    title: `More partitions for ${topic.name}`, yes: "Add", fields: field("Partitions", count),
    plan: () => post(topic.name, "partitions", { count: Number(count.value), dry_run: true }),
    show: (answer) => h("p", {}, `From ${number(answer.from)} to ${number(answer.to)}. They cannot be taken away again, and from then on keys go to other partitions: the order of a key holds within the records before, and within those after.`),
    act: () => post(topic.name, "partitions", { count: Number(count.value) }), done: (answer) => `${topic.name} has ${number(answer.to)} partitions.`,
  });
}

export function trimTopic(topic) {
  const before = input({ placeholder: "@-7d, 1200, 0=1200,1=end", autofocus: true });
  const body = (dryRun) => ({ before: before.value.trim(), zone: zone(), dry_run: dryRun });
  return change({
    title: `Trim ${topic.name}`, yes: "Delete these records", isDanger: true, text: "Records before this place are deleted for good.", fields: field("Before", before, "A time, an offset, or one for each partition."),
    plan: () => (before.value.trim() ? post(topic.name, "trim", body(true)) : null),
    show: (answer) => [h("p", { class: "again" }, `${counted(answer.partitions.reduce((sum, one) => sum + one.removed, 0), "offset")} will be deleted`), answer.note && h("p", { class: "quiet" }, sentence(answer.note)),
      planTable(["Partition", "starts at", "will start at", "ends at", "deleted"], answer.partitions.map((one) => [String(one.partition), number(one.start), number(one.new_start), number(one.end), number(one.removed)]))],
    needs: (answer) => !answer.partitions.some((one) => one.removed),
    act: () => post(topic.name, "trim", body(false)), done: () => `${topic.name} was trimmed.`,
  });
}

export function compactTopic(topic) {
  return change({
    title: `Compact ${topic.name}?`, yes: "Compact", text: "Keeps the newest record of every key. The broker does so by itself, now and then; this does it now.", fields: [],
    plan: () => post(topic.name, "compact", { dry_run: true }),
    show: (answer) => h("p", {}, `Looks at ${counted(answer.partitions.reduce((sum, one) => sum + one.offsets, 0), "offset")} in ${size(answer.partitions.reduce((sum, one) => sum + one.size_bytes, 0))}.`),
    act: () => post(topic.name, "compact", {}),
    done: (answer) => `${topic.name}: ${number(answer.partitions.reduce((sum, one) => sum + one.records_before, 0))} records became ${number(answer.partitions.reduce((sum, one) => sum + one.records_after, 0))}.`,
  });
}

export async function deleteTopic(topic) {
  const typed = input({ placeholder: topic.name, autofocus: true });
  const gone = await change({
    title: `Delete ${topic.name}?`, yes: "Delete the topic", isDanger: true, fields: field("Type its name", typed),
    plan: () => post(topic.name, "delete", { dry_run: true }),
    show: (answer) => h("p", { class: "notice warn" }, `${counted(answer.partitions, "partition")}, ${counted(answer.offsets, "offset")} and ${size(answer.size_bytes)} are deleted for good${answer.groups.length ? `, with what ${answer.groups.slice(0, 5).join(", ")}${answer.groups.length > 5 ? ` and ${answer.groups.length - 5} more` : ""} committed there` : ""}.`),
    needs: () => typed.value !== topic.name,
    act: () => post(topic.name, "delete", {}), done: () => `${topic.name} was deleted.`,
  });
  if (gone) location.hash = "#/topics";
}
