// The first room: is all well? What is wrong and what helps, who writes most, who is furthest behind, what is left of the disk.

import * as api from "./api.js";
import { spark } from "./charts.js";
import { card, elided, empty, h, heads, isBusy, put } from "./dom.js";
import { HistoryChart, lagPoints, pointsOf } from "./history.js";
import { findings, isWell } from "./problems.js";
import { groupLag, hue, isInternalGroup, now, on, standing, state } from "./store.js";
import { term } from "./terms.js";
import { ago, counted, number, rate, short, size, span } from "./words.js";

const SHOWN = 8;
const ASK_MS = 5000;
const HOUR_MS = 3600000;

const sum = (values) => values.reduce((total, value) => total + value, 0);
const topicLink = (name) => h("a", { class: "name", href: `#/topics/${encodeURIComponent(name)}`, title: name }, elided(name));
const groupLink = (group) => h("a", { href: `#/groups/${encodeURIComponent(group.group)}`, title: group.group, class: "name" }, elided(group.group));

function busiest() {
  return [...state.topics.values()].filter((topic) => !topic.is_internal).sort((one, other) => (other.bytes_per_s ?? 0) - (one.bytes_per_s ?? 0) || one.name.localeCompare(other.name));
}

function furthest() {
  return [...state.groups.values()].filter((group) => !isInternalGroup(group)).sort((one, other) => groupLag(other) - groupLag(one) || one.group.localeCompare(other.group));
}

function traffic(found) {
  const topics = busiest();
  if (!topics.length) return empty("No topics yet", h("code", {}, `foldlog topic create payments -p 3 -b ${state.overview.bootstrap}`));
  const isUsed = (topic) => topic.records_per_s > 0 || found?.topics[topic.name]?.records_per_s.some((value) => value > 0);
  const used = topics.filter(isUsed);
  const listed = (used.length ? used : topics).slice(0, SHOWN);
  return [h("div", { class: "scroll" }, h("table", {}, heads(term("topic", "Topic"), ["Records/s", "num"], ["Written/s", "num"], ["Last hour", "num minor"]),
    h("tbody", {}, listed.map((topic) => h("tr", {},
      h("th", { scope: "row" }, topicLink(topic.name)), h("td", { class: "num mono" }, rate(topic.records_per_s ?? 0)), h("td", { class: "num mono" }, size(Math.round(topic.bytes_per_s ?? 0))),
      h("td", { class: "num minor" }, found && spark(pointsOf(found, found.topics[topic.name]?.records_per_s), `Records per second of ${topic.name} in the last hour`))))))),
  topics.length > listed.length && h("p", {}, h("a", { href: "#/topics" }, `All ${counted(topics.length, "topic")}`), used.length ? `, ${counted(topics.length - used.length, "is quiet", "are quiet")}` : "")];
}

function lagging(found) {
  const groups = furthest();
  if (!groups.length) return empty("Nobody reads with a name yet", "A consumer with a group.id, and a fold, appear here with their lag.");
  return [h("div", { class: "scroll" }, h("table", {}, heads(term("group", "Group or fold"), "State", [term("lag", "Lag"), "num"], ["Last hour", "num minor"]),
    h("tbody", {}, groups.slice(0, SHOWN).map((group) => {
      const { text, isBad } = standing(group);
      return h("tr", {},
        h("th", { scope: "row" }, h("i", { class: "dot", style: { background: hue(group.group) } }), groupLink(group)),
        h("td", {}, h("span", { class: "chip", "data-state": isBad ? "bad" : group.members ? "good" : "idle" }, text)), h("td", { class: "num mono" }, short(groupLag(group))),
        h("td", { class: "num minor" }, found && spark(lagPoints(found, group.group), `Lag of ${group.group} in the last hour`)));
    })))), groups.length > SHOWN && h("p", {}, h("a", { href: "#/groups" }, `All ${counted(groups.length, "group")}`))];
}

function diskFigure(disk) {
  if (!disk) return null;
  const lasts = disk.full_in_ms === null ? "does not shrink" : disk.full_in_ms > 400 * 24 * HOUR_MS ? "lasts over a year" : `lasts ${span(disk.full_in_ms)} at this rate`;
  const isShort = disk.free_bytes < 0.05 * disk.size_bytes || (disk.full_in_ms !== null && disk.full_in_ms < 24 * HOUR_MS);
  return h("div", { class: "figure" }, h("b", { class: isShort ? "mono warned" : "mono" }, size(disk.free_bytes)), h("span", {}, `disk left of ${size(disk.size_bytes)}`), h("span", {}, lasts));
}

function figures(health) {
  const topics = [...state.topics.values()];
  const figure = (name, value, note) => h("div", { class: "figure" }, h("b", { class: "mono" }, value), h("span", {}, name), note && h("span", {}, note));
  const partitions = sum(topics.map((topic) => topic.partitions.length));
  return h("div", { class: "figures wide card" },
    figure("records/s", rate(sum(topics.map((topic) => topic.records_per_s ?? 0))), `${size(Math.round(sum(topics.map((topic) => topic.bytes_per_s ?? 0))))}/s written`),
    figure("topics", number(topics.filter((topic) => !topic.is_internal).length), counted(partitions, "partition")),
    figure("groups", number(furthest().length), `${short(sum(furthest().map(groupLag)))} behind`),
    health?.connections && figure("connections", number(health.connections.open), `from ${counted(health.connections.hosts, "address", "addresses")}, at most ${short(health.connections.max)}`),
    diskFigure(health?.disk));
}

function errors(health) {
  if (!health) return h("p", { class: "quiet" }, "…");
  if (!health.errors.length) return h("p", { class: "quiet" }, "None since the broker was started.");
  return h("ul", { class: "log-lines" }, health.errors.slice(0, 20).map((line) => h("li", {}, h("time", { class: "quiet mono" }, ago(line.at_ms, now())), h("span", { class: `mono wrap ${line.level === "warning" ? "" : "bad-text"}` }, line.text))));
}

export function enter(element) {
  let health = null;
  let found = null;
  const places = { verdict: h("div", {}), figures: h("div", {}), traffic: h("div", { class: "stack" }), lagging: h("div", { class: "stack" }), errors: h("div", {}) };
  const title = h("p", { class: "quiet" });
  const top = (list) => list.slice(0, 6);
  const lagChart = new HistoryChart("Lag", (kept, at) => top(furthest()).map((group) => ({ name: group.group, colour: hue(group.group), points: [...lagPoints(kept, group.group), [at, groupLag(group)]] })));
  const rateChart = new HistoryChart("Records per second", (kept, at) => top(busiest().map((topic) => ({ name: topic.name, colour: hue(topic.name), points: [...pointsOf(kept, kept.topics[topic.name]?.records_per_s), [at, topic.records_per_s ?? 0]] })).filter((one) => one.points.some(([, value]) => value > 0))), { text: rate, none: "Nothing was written in this time." });
  put(element, h("div", { class: "page" },
    h("div", { class: "room-head" }, h("h1", {}, "Overview"), title), places.verdict, places.figures,
    h("div", { class: "cards" }, card("Topics by traffic", places.traffic), card("Groups and folds by lag", places.lagging)),
    h("div", { class: "cards" }, lagChart.element, rateChart.element),
    card("Recent warnings and errors", places.errors)));
  const show = () => {
    put(title, isWell() ? "All is well." : `${counted(state.problems.length + state.overview.warnings.length, "thing")} to look at.`);
    if (!isBusy(places.verdict)) put(places.verdict, findings());
    put(places.figures, figures(health));
    if (!isBusy(places.traffic)) put(places.traffic, traffic(found));
    if (!isBusy(places.lagging)) put(places.lagging, lagging(found));
    if (!isBusy(places.errors)) put(places.errors, errors(health));
  };
  const ask = () => {
    api.health().then((answer) => { health = answer; state.problems = answer.problems; show(); }, () => {});
    api.history({ minutes: 60, points: 60 }).then((answer) => { found = answer; show(); }, () => {});
  };
  show();
  ask();
  const timer = setInterval(() => { if (!document.hidden && state.connected) ask(); }, ASK_MS);
  const offs = [on("topics", show), on("rates", show), on("problems", show), on("connection", show)];
  return () => { clearInterval(timer); lagChart.leave(); rateChart.leave(); for (const off of offs) off(); };
}
