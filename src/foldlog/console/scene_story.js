// The story that the scene tells: what happens at each step on both sides, and the words for it. Pure but for the terms.

import { term } from "./terms.js";

const both = (reader) => [["read", { reader }], ["dequeue", { reader }]];
const append = (value) => [["append", { value }]];

/** The records that the producer has to offer, one after the other. */
export const VALUES = ["tea", "rice", "book", "lamp", "milk", "soap", "pen", "salt", "bread", "tape", "fuse", "jam"];

export const STORY = [
  { steps: append("tea"), tell: () => ["A ", term("producer"), " sends a record to both sides. In the log it gets a number, its ", term("offset"), ", and keeps it for ever. In the queue it gets in line."] },
  { steps: append("rice"), tell: () => ["Another one. Such a strip is a ", term("partition"), ": oldest left, newest right, read in the ", term("order"), " in which it was written, and nothing in it is ever changed."] },
  { steps: append("book"), tell: () => ["And a third. So far both sides hold the same."] },
  { steps: both("billing"), tell: () => ["billing reads. The log keeps the record and moves billing’s ", term("cursor", "bookmark"), ", nothing else. The queue hands the record over, and has it no more."] },
  { steps: both("billing"), tell: () => ["billing reads on. In the log its bookmark goes to 2; in the queue two records are gone."] },
  { steps: both("search"), tell: () => ["Now search, later and at its own pace. As a ", term("group"), " it has a bookmark of its own, so the log gives it tea, the very first. The queue gives it what billing has left over."] },
  { steps: both("search"), tell: () => ["search reads on. The log has everything still, for everybody. The queue has nothing more to give: the second reader gets None."] },
  { steps: append("lamp"), tell: () => ["One more record, for both."] },
  { steps: [["crash", { side: "log", reader: "billing" }], ["crash", { side: "queue", reader: "billing" }]], tell: () => ["Now billing crashes: it takes its next record and dies before it has done anything with it. In the log its bookmark has not moved. From the queue the record is out already."] },
  { steps: both("billing"), tell: () => ["billing comes back. It asks the log for its bookmark, which says 2, and reads that record again. It asks the queue, and gets None: lamp is lost."] },
  { steps: [["read", { reader: "billing" }], ["read", { reader: "search" }], ["read", { reader: "search" }]], tell: () => ["Both groups read the rest of the log, billing one record, search two. Neither notices the other."] },
  { steps: [], tell: () => ["What is left? In the log all four records, and both groups have had each of them. In the queue nothing: search never saw tea and rice, billing never saw book, and nobody has handled lamp."] },
];

const quoted = (did) => `“${did.record.value}”`;

/** One step in words, for those who play by themselves. */
export function told(did, state) {
  const { verb, side, reader, record } = did;
  if (verb === "reset") return "All is empty again: the topic, its groups and the queue are gone.";
  if (verb === "append") return `${quoted(did)} is offset ${record.offset} of the log, and last in the queue.`;
  if (!record) return side === "log" ? `${reader} has read the whole log. Its bookmark waits at ${state.log.end}.` : `The queue gives ${reader} None: nothing is left in it.`;
  if (verb === "crash") return side === "log" ? `${reader} dies with ${quoted(did)} in hand. Its bookmark still says ${record.offset}, so it will read it again.` : `${reader} dies with ${quoted(did)} in hand. The queue does not have it any more: it is lost.`;
  const mine = state.log.readers.find((one) => one.reader === reader);
  if (side === "log") return mine.again.includes(record.offset) && mine.offset === record.offset + 1 ? `${reader} comes back, finds its bookmark and reads ${quoted(did)} again.` : `${reader} reads ${quoted(did)}. Its bookmark moves to ${mine.offset}; the log stays as it is.`;
  return `${reader} takes ${quoted(did)} out of the queue. Nobody else will see it.`;
}
