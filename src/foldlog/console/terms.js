// Words that explain themselves where they stand: dotted, reachable with Tab, opened by pointing, focus or a tap.

import { h, put } from "./dom.js";

const MEANING = {
  log: "A file that only grows. Records are added at its right end and never changed; reading takes nothing away.",
  record: "One event: a key, a value, headers and a time. Once written it is never changed.",
  producer: "A program that appends records. It learns each record's offset once the record is safely on disk.",
  topic: "A named log, such as payments. It is cut into partitions so that several machines and programs can share the work.",
  partition: "One ordered strip of a topic's log. Order holds inside a partition; between partitions there is none.",
  order: "Records of one partition are read in the order in which they were written. Records with the same key go to the same partition, so their order holds, too.",
  offset: "A record's number in its partition, counted from 0. It never changes and is never given again, not even after the record is gone.",
  key: "What a record is about, such as a payment's id. The same key always goes to the same partition.",
  tombstone: "A record with a key and no value: it says that the key is gone.",
  batch: "Records that were written together, compressed together and synced together: joined cells.",
  segment: "A file that holds a stretch of a partition. Retention removes whole segments from the oldest end.",
  group: "Readers that share a topic's partitions under one name. The log keeps one bookmark for the group in each partition; other groups do not notice.",
  member: "One running reader of a group. Each partition is read by one member of a group at a time.",
  cursor: "A bookmark: the offset that a group or a fold reads next. Moving it changes nothing in the log, only what is read again.",
  lag: "How many records lie between a reader's bookmark and the end of the log.",
  retention: "How long, or up to which size, records are kept: everything, for ever, unless the topic is told otherwise. Older segments go at the left edge, read or not read.",
  compaction: "Keeps the newest record of every key and removes the older ones. Offsets stay as they are, so gaps appear.",
  fold: "A function that turns records into a view: a table, a search index, counters. It can be run again over the whole log, with the same result.",
  view: "What a fold has made of the log so far, together with the bookmark up to which it is made.",
  rewind: "Move a bookmark to the left. The records after it are read again; nothing is written to the log.",
  rebuild: "Build a view again from the start of the log, beside the old one, and swap them when it has caught up.",
  verify: "Replay the log in other portions and compare: is the view what the log says it should be?",
  deadletter: "A record that could not be read as the fold expects. It is kept aside with the reason, and the fold goes on.",
  queue: "A line of records for whoever asks first. Handing a record over takes it out, so nobody else gets it.",
  durable: "Synced to the disk: it is there after a power cut. Readers see only what is durable.",
  rows: "Records that the fold has stored in its view in each second.",
};

let popover = null;
let anchor = null;

function place() {
  const at = anchor.getBoundingClientRect();
  const box = popover.getBoundingClientRect();
  const left = Math.max(8, Math.min(innerWidth - box.width - 8, at.left + at.width / 2 - box.width / 2));
  const below = at.bottom + 8;
  popover.style.left = `${left}px`;
  popover.style.top = `${below + box.height > innerHeight - 8 && at.top > box.height + 16 ? at.top - box.height - 8 : below}px`;
}

function close() {
  if (!popover || !anchor) return;
  anchor.removeAttribute("aria-describedby");
  popover.remove();
  anchor = null;
}

function open(button) {
  if (anchor === button) return;
  close();
  popover ??= h("div", { class: "meaning", role: "tooltip", id: "meaning" });
  anchor = button;
  put(popover, MEANING[button.dataset.term]);
  // Inside a dialog, so that the dialog does not cover it.
  (button.closest("dialog") ?? document.body).append(popover);
  button.setAttribute("aria-describedby", "meaning");
  place();
}

addEventListener("keydown", (event) => { if (event.key === "Escape") close(); }, true);
addEventListener("scroll", close, true);
addEventListener("hashchange", close);

/** The word, with its meaning. */
export function term(name, text = name) {
  const button = h("button", { class: "term", type: "button", "data-term": name }, text);
  button.addEventListener("pointerenter", (event) => { if (event.pointerType !== "touch") open(button); });
  button.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch" && document.activeElement !== button) close(); });
  button.addEventListener("focus", () => open(button));
  button.addEventListener("blur", close);
  button.addEventListener("click", (event) => { event.stopPropagation(); event.preventDefault(); open(button); });
  return button;
}
