// What one does to groups: move a whole one, with what that means for each partition, and delete one.

import * as api from "./api.js";
import { change, planTable, zone } from "./change.js";
import { field, h } from "./dom.js";
import { term } from "./terms.js";
import { counted, number, sentence } from "./words.js";

const post = (group, verb, body) => api.post(`groups/${encodeURIComponent(group)}/${verb}`, body);

export function resetGroup(group) {
  const to = h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", placeholder: "start, end, 1200, @-6h, @10:30", autofocus: true });
  const quick = (place) => h("button", { class: "button small", type: "button", onclick: () => { to.value = place; to.dispatchEvent(new Event("input", { bubbles: true })); } }, { start: "to the start", end: "to the end", "@-1h": "an hour back", "@-6h": "six hours back" }[place]);
  const evict = h("input", { type: "checkbox", name: "evict" });
  const consent = h("label", { class: "check", hidden: true }, evict, h("span", {}, "Make them leave: they rejoin by themselves and read on from the new place."));
  const body = (dryRun) => ({ to: to.value.trim(), zone: zone(), evict: evict.checked, dry_run: dryRun });
  return change({
    title: `Move the group ${group.group}`, yes: "Move", fields: [field("To", to, "A place in every partition, or one for each: 0=1200,1=end."), h("div", { class: "buttons quick" }, ["start", "end", "@-1h", "@-6h"].map(quick))],
    plan: () => (to.value.trim() ? post(group.group, "reset", body(true)) : null),
    show: (answer) => {
      consent.hidden = !answer.members.length;
      return [
        h("p", { class: "again" }, `${counted(answer.read_again, "offset")} will be read again${answer.skipped ? `, ${number(answer.skipped)} will be skipped` : ""}`), answer.note && h("p", { class: "quiet" }, sentence(answer.note)),
        planTable(["Partition", "stands at", "goes to", "again", "skipped"], answer.moves.map((one) => [`${one.topic} / ${one.partition}`, one.from === null ? "–" : number(one.from), number(one.to), number(one.again), number(one.skipped)])),
        answer.members.length > 0 && h("div", { class: "notice warn" }, h("p", {}, `${counted(answer.members.length, "live ")}`.trim(), " ", term("member", answer.members.length === 1 ? "member" : "members"), ": ", h("b", { class: "mono" }, answer.members.slice(0, 5).join(", ")), "."), consent),
      ];
    },
    needs: (answer) => answer.members.length > 0 && !evict.checked,
    act: () => post(group.group, "reset", body(false)), done: (answer) => `${group.group} was moved: ${counted(answer.read_again, "offset")} will be read again.`,
  });
}

export async function deleteGroup(group) {
  const gone = await change({
    title: `Delete the group ${group.group}?`, yes: "Delete it", isDanger: true, fields: [],
    plan: () => post(group.group, "delete", { dry_run: true }),
    show: (answer) => [
      h("p", {}, `What it committed in ${counted(answer.commits.length, "partition")} is deleted. Whoever joins it then begins where auto.offset.reset says. No record is deleted.`),
      answer.members.length > 0 && h("p", { class: "notice bad" }, `It has ${counted(answer.members.length, "live member")}: ${answer.members.slice(0, 5).join(", ")}. Stop them first.`)],
    needs: (answer) => answer.members.length > 0,
    act: () => post(group.group, "delete", {}), done: () => `${group.group} was deleted.`,
  });
  if (gone) location.hash = "#/groups";
}
