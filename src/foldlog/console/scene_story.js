// The story that the scene tells: what happens at each step on both sides, and the words for it. Pure but for the terms.

import { term } from "./terms.js";

const both = (reader) => [["read", { reader }], ["dequeue", { reader }]];
const append = (value) => [["append", { value }]];

/** The records that the producer has to offer, one after the other. */
export const VALUES = ["tea", "rice", "book", "lamp", "milk", "soap", "pen", "salt"];

export const STORY = [
  { steps: append("tea"), tell: () => ["A ", term("producer"), " sends a record to both. In the log it gets a number, its ", term("offset"), ", for ever. In the queue it gets in line."] },
  { steps: append("rice"), tell: () => ["Another one. Such a strip is a ", term("partition"), ": oldest left, newest right, read in the ", term("order"), " in which it was written, and never changed."] },
  { steps: append("book"), tell: () => ["And a third. Both sides hold the same so far."] },
  { steps: both("billing"), tell: () => ["billing reads. The log keeps the record and moves billing’s ", term("cursor", "bookmark"), ", nothing else. The queue hands the record over, and has it no more."] },
  { steps: both("billing"), tell: () => ["billing reads on. Its bookmark goes to 2; in the queue two records are gone."] },
  { steps: both("search"), tell: () => ["Now search, at its own pace. As a ", term("group"), " it has a bookmark of its own, so the log gives it tea, the first. The queue gives it what billing has left over."] },
  { steps: both("search"), tell: () => ["search reads on. The log still has everything, for everybody. The queue is empty: the second reader gets None."] },
  { steps: append("lamp"), tell: () => ["One more record, for both."] },
  { steps: [["crash", { side: "log", reader: "billing" }], ["crash", { side: "queue", reader: "billing" }]], tell: () => ["Now billing crashes: it takes its next record and dies before it has done anything with it. Its bookmark in the log has not moved. Out of the queue the record is gone already."] },
  { steps: both("billing"), tell: () => ["billing comes back. Its bookmark in the log says 2, so it reads that record again. The queue gives it None: lamp is lost."] },
  { steps: [["read", { reader: "billing" }], ["read", { reader: "search" }], ["read", { reader: "search" }]], tell: () => ["Both groups read the rest of the log. Neither notices the other."] },
  { steps: [], tell: () => ["What is left? In the log all four records, and both groups have had each. In the queue nothing: search never saw tea and rice, billing never saw book, and nobody handled lamp."] },
];

/** One step in words, for those who play by themselves. */
export function told({ verb, side, reader, record }, { log }) {
  const what = record && `“${record.value}”`;
  if (verb === "reset") return "All is empty again.";
  if (verb === "append") return `${what} is offset ${record.offset} of the log, and last in the queue.`;
  if (side === "queue") return !record ? `${reader} gets None: the queue is empty.` : verb === "crash" ? `${reader} dies with ${what} in hand. The queue has it no more: it is lost.` : `${reader} takes ${what} out of the queue. Nobody else will see it.`;
  if (!record) return `${reader} has read the whole log. Its bookmark waits at ${log.end}.`;
  return verb === "crash" ? `${reader} dies with ${what} in hand. Its bookmark still says ${record.offset}, so it will read it again.` : `${reader} reads ${what}. Its bookmark moves to ${record.offset + 1}; the log stays as it is.`;
}
