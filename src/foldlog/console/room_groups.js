// The room of groups: who reads, which partitions each member has, and how far behind they are.

import * as api from "./api.js";
import { card, elided, empty, h, heads, icon, missing, put } from "./dom.js";
import { problemLine } from "./problems.js";
import { deleteGroup, resetGroup } from "./group_changes.js";
import { HistoryChart, lagPoints } from "./history.js";
import { SortedList } from "./lists.js";
import { foldName, groupLag as lagOf, hue, isInternalGroup as isOwn, now, on, standing, state } from "./store.js";
import { term } from "./terms.js";
import { ago, counted, number, sentence, short } from "./words.js";

const link = (name) => `#/groups/${encodeURIComponent(name)}`;
const foldOf = (group) => (group.is_fold ? state.folds.get(foldName(group.group)) : undefined);
const stateOf = (group) => standing(group).text;
const readers = (group) => group.members; // with the runner of a fold
const uncommitted = (group) => { const count = group.cursors.filter((cursor) => !cursor.is_committed).length; return count ? `Nothing is committed in ${counted(count, "partition")}: the lag there counts from the log’s start, or from where a member begins.` : null; };
const topicsOf = (group) => [...new Set(group.cursors.map((cursor) => cursor.topic))].sort();

const sorted = () => [...state.groups.values()].sort((one, other) => isOwn(one) - isOwn(other) || one.is_fold - other.is_fold || one.group.localeCompare(other.group));

const COLUMNS = [
  { name: "group", title: "Group", value: (group) => group.group, cell: (group) => [h("i", { class: "dot", style: { background: hue(group.group) } }), h("a", { href: link(group.group), title: group.group }, elided(group.group)), group.is_fold && h("span", { class: "chip kind minor" }, "fold")] },
  { name: "state", title: "State", value: stateOf, cell: (group) => h("span", { class: "chip", "data-state": standing(group).isBad ? "bad" : readers(group) ? "good" : "idle" }, stateOf(group)) },
  { name: "members", title: "Members", kind: "num mono minor", value: readers, cell: (group) => number(readers(group)) },
  { name: "lag", title: "Lag", kind: "num mono", value: lagOf, cell: (group) => h("span", { title: uncommitted(group) }, short(lagOf(group)), uncommitted(group) && "*") },
  { name: "reads", title: "Reads", kind: "minor", value: (group) => topicsOf(group).join(), cell: (group) => topicsOf(group).slice(0, 4).map((topic, index, all) => [h("a", { href: `#/log/${encodeURIComponent(topic)}`, title: topic }, elided(topic)), index < all.length - 1 && ", "]).concat(topicsOf(group).length > 4 ? ` and ${topicsOf(group).length - 4} more` : []) },
];

const list = () => new SortedList({
  room: "groups", columns: COLUMNS, rows: sorted, text: (group) => group.group, rowClass: (group) => isOwn(group) && "internal",
  empty: () => empty("Nobody has read with a name yet", "A consumer that commits its place under a group.id appears here, and as a cursor in the log."),
  note: (groups) => (groups.some(uncommitted) ? h("p", { class: "quiet" }, "* Members have partitions in which nothing is committed yet: the lag there counts from the log’s start.") : null),
});

const assigned = (parts) => {
  const byTopic = new Map();
  for (const one of parts) byTopic.set(one.topic, [...(byTopic.get(one.topic) ?? []), ...(one.partitions ?? [one.partition])]);
  return [...byTopic].map(([topic, numbers]) => `${topic} ${numbers.sort((a, b) => a - b).join(", ")}`).join("; ");
};

function members(group) {
  if (foldOf(group)) return h("p", { class: "quiet" }, "A fold reads without joining its group, which only shows where it stands: ", h("a", { href: "#/folds" }, "its card"), " says who runs it.");
  if (!group.members.length) return h("p", { class: "quiet" }, "No member is connected. The bookmarks stay.");
  const isConsumer = group.type === "consumer"; // then the broker assigns, and a member may be on its way to its target
  return h("div", { class: "scroll" }, h("table", {}, heads("Client", "Host", "Partitions", ...(isConsumer ? ["Target", ["Epoch", "num"]] : []), "Member"),
    h("tbody", {}, group.members.map((one) => h("tr", {}, h("th", { scope: "row" }, one.client_id || "–", one.instance_id && h("small", { class: "quiet" }, ` ${one.instance_id}`)), h("td", { class: "mono" }, one.host), h("td", { class: "mono" }, assigned(one.assignment ?? []) || "none"),
      isConsumer && [h("td", { class: "mono" }, assigned(one.target ?? []) || "none"), h("td", { class: "num mono" }, number(one.epoch))],
      h("td", { class: "mono quiet cut", title: one.member_id }, one.member_id))))));
}

function cursors(group) {
  const most = Math.max(100, ...group.cursors.map((cursor) => cursor.lag));
  return h("div", { class: "scroll" }, h("table", {}, heads(term("partition", "Partition"), [term("cursor", "Reads next"), "num"], ["End", "num"], [term("lag", "Lag"), "num"], [h("span", { class: "unseen" }, "Lag as a bar"), "lag-bar"], "Committed"),
    h("tbody", {}, group.cursors.map((cursor) => h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `#/log/${encodeURIComponent(cursor.topic)}/${cursor.partition}/${Math.max(0, Math.min(cursor.offset, cursor.end - 1))}`, title: cursor.topic }, h("span", { class: "name" }, cursor.topic), ` / ${cursor.partition}`)),
      h("td", { class: "num mono" }, cursor.is_committed ? number(cursor.offset) : "–"), h("td", { class: "num mono" }, number(cursor.end)), h("td", { class: "num mono" }, number(cursor.lag)),
      h("td", { class: "lag-bar" }, h("span", { class: "meter" }, h("i", { style: { width: `${(cursor.lag / most) * 100}%`, background: hue(group.group) } }))),
      h("td", { class: "quiet" }, cursor.is_committed ? (cursor.committed_ms ? ago(cursor.committed_ms, now()) : "–") : `nothing yet: counted from ${cursor.counted_from}`))))));
}

/** What is wrong with it, if anything is, and what helps. */
const trouble = (name) => state.problems.filter((one) => (one.resource === "group" && one.name === name) || (one.resource === "fold" && `fold.${one.name}` === name)).map((one) => problemLine(one));

async function showOne(place, name, chart) {
  try {
    const group = await api.group(name);
    put(place, h("div", { class: "room-head" }, h("p", { class: "crumb" }, h("a", { href: "#/groups" }, "Groups")), h("h1", {}, name),
      h("p", { class: "quiet" }, foldOf(group) ? `A fold, ${stateOf(group)}` : `${group.state}, ${counted(group.members.length, "member")}${group.type === "consumer" ? `, assigned by ${group.protocol} at epoch ${group.generation}` : group.type === "share" ? ", a share group: each record goes to one of them" : ""}`, `, ${counted(lagOf(group), "record")} behind. `, !state.overview.read_only && !group.is_fold && group.may.includes("READ") && ["Drag its cursor in the log to ", term("rewind"), " it."]),
      !state.overview.read_only && h("div", { class: "buttons" }, !group.is_fold && group.may.includes("READ") && h("button", { class: "button small", type: "button", onclick: () => resetGroup(group) }, icon("rewind"), "Move…"), group.may.includes("DELETE") && h("button", { class: "button small danger", type: "button", onclick: () => deleteGroup(group) }, "Delete…"))),
    trouble(name), chart.element, card("Cursors", cursors(group)), card("Members", members(group)));
    chart.show();
  } catch (error) {
    put(place, empty(missing(error, "group"), sentence(error.message), h("a", { href: "#/groups" }, "All groups")));
  }
}

export function enter(element, path) {
  const place = h("div", { class: "page" });
  put(element, place);
  const groups = path[0] ? null : list();
  let due = null;
  const lagNow = () => { const group = state.groups.get(path[0]); return group ? lagOf(group) : null; };
  const chart = path[0] ? new HistoryChart("Lag", (found, at) => [{ name: path[0], colour: hue(path[0]), points: [...lagPoints(found, path[0]), [at, lagNow()]] }]) : null;
  const show = () => {
    due = null;
    // Nothing moves under a dialog, and a group that is about to be forgotten is not asked for once more.
    if (document.querySelector("dialog[open]")) due = setTimeout(show, 1000);
    else if (path[0]) showOne(place, path[0], chart);
    else groups.show();
  };
  if (!path[0]) put(place, h("div", { class: "room-head" }, h("h1", {}, "Groups"), h("p", { class: "quiet" }, "Who reads. Each ", term("group"), " has a bookmark of its own in each partition; nobody disturbs anybody. ", term("lag", "Lag"), " is how far one is behind.")), groups.element);
  else show();
  // Commits come ten times a second; a table that is read needs one look each second.
  const offFolds = on("folds", () => { due ??= setTimeout(show, 1000); });
  const off = on("groups", (changed) => { if (!path[0] || !changed || changed.some((group) => group.group === path[0])) due ??= setTimeout(show, 1000); });
  const offProblems = on("problems", () => { clearTimeout(due); show(); });
  return () => { off(); offFolds(); offProblems(); chart?.leave(); groups?.leave(); clearTimeout(due); };
}
