// Problems as the broker finds them: a sentence each, what to type about it, and where to look.

import { commandLine, h } from "./dom.js";
import { groupLag, lagOf, now, state } from "./store.js";
import { ago, counted, sentence } from "./words.js";

const WHAT = { fold: "Fold", group: "Group", topic: "Topic", cluster: "The broker" };
const ROOM = { fold: "folds", group: "groups", topic: "topics" };
const SEVERE = new Set(["partition_poisoned", "partition_refused", "fold_failing", "fold_lost", "group_died", "disk_low", "store_damaged", "store_failing"]);

/** How far behind it is now: problems are told again only if there are others, and lags grow meanwhile. */
function lagNow(problem) {
  const fold = problem.resource === "fold" && state.folds.get(problem.name);
  const group = problem.resource === "group" && state.groups.get(problem.name);
  return fold ? lagOf(fold) : group ? groupLag(group) : problem.lag;
}

/** One of them. `tag` is what it is in: a list, or alone. */
export function problemLine(problem, tag = "div") {
  const room = ROOM[problem.resource];
  const name = room ? h("a", { href: `#/${room}/${encodeURIComponent(problem.name)}`, class: "wrap" }, problem.name) : problem.name;
  const facts = [problem.since_ms && ago(problem.since_ms, now()), lagNow(problem) > 0 && `${counted(lagNow(problem), "record")} behind`].filter(Boolean).join(", ");
  return h(tag, { class: `notice ${SEVERE.has(problem.kind) ? "bad" : "warn"}`, "data-kind": problem.kind },
    h("p", {}, h("b", {}, `${WHAT[problem.resource]} `, name, ": "), sentence(problem.sentence), facts && h("small", {}, ` ${sentence(facts)}`)),
    problem.command && commandLine(problem.command));
}

/** All problems and the log's warnings, or that there are none. */
export function findings() {
  const found = [...state.problems.map((one) => problemLine(one, "li")), ...state.overview.warnings.map((warning) => h("li", { class: "notice warn" }, sentence(warning)))];
  if (!found.length) return h("p", { class: "notice good" }, "All is well: every partition can be written and read, no fold has failed or was lost, no group has died, and there are no warnings.");
  return h("ul", { class: "findings" }, found);
}

export const isWell = () => !state.problems.length && !state.overview.warnings.length;
