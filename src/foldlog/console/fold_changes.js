// What one asks of a fold: its runner carries it out. Without a runner, the dialog shows what to type.

import * as api from "./api.js";
import { change, planTable, zone } from "./change.js";
import { commandLine, field, h } from "./dom.js";
import { counted, number, sentence } from "./words.js";

const ASKED = {
  rebuild: { title: "Rebuild", text: "This builds the view again from the start of the log, beside the old one, which serves until both are swapped." },
  verify: { title: "Verify", text: "The log is replayed into a view beside this one, in other portions, and both are compared. The view itself is not touched." },
  pause: { title: "Pause", text: "It stops after the current range until you resume it. Its lag grows meanwhile." },
  resume: { title: "Resume", text: "It goes on from its bookmark." },
};

export function askFold(fold, verb) {
  const { title, text } = ASKED[verb];
  return change({ title: `${title} ${fold.fold}?`, text, yes: title, fields: [], act: () => api.foldCommand(fold.fold, { verb }), done: () => `${fold.fold} was asked to ${verb}.` });
}

/** Back to a place in every partition, or in some, with what is read again in each. */
export function rewindFold(fold) {
  const topics = Object.keys(fold.topics ?? {});
  const to = h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", placeholder: "@-6h, @10:30, start, 0=1200", autofocus: true });
  const of = h("select", {}, h("option", { value: "" }, "all that it reads"), topics.map((topic) => h("option", { value: `${topic}:` }, topic)));
  const quick = (place, text) => h("button", { class: "button small", type: "button", onclick: () => { to.value = place; to.dispatchEvent(new Event("input", { bubbles: true })); } }, text);
  let found = null;
  const show = (answer) => {
    found = answer;
    return [
      h("p", { class: "again" }, answer.read_again ? `${counted(answer.read_again, "record")} will be read again` : "Nothing is read again: it has not read beyond that place."), answer.note && h("p", { class: "quiet" }, sentence(answer.note)),
      planTable(["Partition", "stands at", "goes to", "again"], answer.moves.map((one) => [`${one.topic} / ${one.partition}`, number(one.from), number(one.to), number(one.again)])),
      !fold.is_live && answer.read_again > 0 && h("div", { class: "notice" }, h("p", {}, "No runner of this fold is running. Type this where its file is:"), commandLine(fold.command_lines.rewind.replace("PLACE", answer.place))),
    ];
  };
  return change({
    title: `Rewind ${fold.fold}`, text: "Its view is brought up to date again from there; nothing is written to the log.", yes: "Rewind",
    fields: [topics.length > 1 && field("Topic", of), field("To", to, "A time or an offset before its bookmark, in every partition; or one for each: 0=1200,1=900."), h("div", { class: "buttons quick" }, quick("@-1h", "an hour back"), quick("@-6h", "six hours back"), quick("start", "to the start"))],
    plan: () => (to.value.trim() ? api.foldPlan(fold.fold, of.value + to.value.trim(), zone()) : null),
    show, needs: (answer) => !answer.read_again || !fold.is_live,
    act: () => api.foldCommand(fold.fold, { verb: "rewind", to: found.place }), done: () => `${fold.fold} was asked to rewind: ${counted(found.read_again, "record")} will be read again.`,
  });
}
