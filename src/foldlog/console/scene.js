// The room "Log or queue?": the same records through a log and through a queue, both real, step by step or by themselves.

import { get, post } from "./api.js";
import { calm, h, icon, put, say, toast } from "./dom.js";
import { CodeView, ran } from "./scene_code.js";
import { STORY, VALUES, told } from "./scene_story.js";
import { hue, on, state as known } from "./store.js";
import { term } from "./terms.js";
import { counted, sentence } from "./words.js";

const TOPIC = "__log_or_queue";
const READERS = ["billing", "search"];
const PAUSE_MS = 1500;
const WORD_MS = 180; // a step lasts as long as its words take to read
const SLOTS_MIN = 6;

const hueOf = (reader) => hue(`${TOPIC}.${reader}`);

let sheet = null;

/** The scene's own sheet, fetched with the room: nobody else needs it. */
const dressed = () => (sheet ??= new Promise((done) => document.head.append(h("link", { rel: "stylesheet", href: "/console/scene.css", onload: done, onerror: done }))));

class SceneRoom {
  constructor(element, code) {
    this.at = 0; // the next step of the story
    this.isFree = false; // somebody has played by hand, so the story has to begin anew
    this.isPlaying = this.isActing = this.isGone = false;
    this.last = {}; // what was done last on each side
    this.waits = new Set();
    this.may = !known.overview.read_only;
    this.code = {
      append: new CodeView("Log.append", "a producer adds a record at the right end", code.append),
      read: new CodeView("Log.read", "a group reads at its own bookmark", code.read),
      dequeue: new CodeView("SceneQueue.dequeue", "whoever asks first takes the head", code.dequeue),
    };
    this.build(element);
    const look = () => this.look();
    this.offs = [on("topics", look), on("ends", (changed) => changed[TOPIC] && look()), on("groups", (changed) => changed?.some((one) => one.group.startsWith(TOPIC)) && look())];
    this.onKey = (event) => this.keyed(event);
    addEventListener("keydown", this.onKey);
    this.tail = this.begin();
  }

  leave() {
    this.isGone = true;
    this.pause();
    this.hurry();
    for (const off of this.offs) off();
    removeEventListener("keydown", this.onKey);
  }

  build(element) {
    const button = (text, act, more) => h("button", { class: "button", type: "button", disabled: !this.may, onclick: act, ...more }, text);
    this.play = button("Play", () => this.toggle(), { class: "button primary", "aria-keyshortcuts": "p", title: "Plays by itself (p)" });
    this.step = button("Next step", () => this.byHand(() => this.next()), { "aria-keyshortcuts": "n", title: "One step (n)" });
    const again = button("Start over", () => this.byHand(() => this.restart()), { title: "Delete the topic, its groups and the queue" });
    this.count = h("span", { class: "edge-note mono scene-count" });
    this.progress = h("progress", { max: STORY.length, "aria-hidden": "true" });
    this.telling = h("p", { class: "telling" });
    this.appender = button("Append", () => this.free("append", () => ({ value: this.nextValue() })), { class: "button small", "data-act": "append" });
    this.link = h("span", {}, " (", h("a", { href: `#/log/${TOPIC}` }, "see it in the Log room"), ")");
    const lane = (side, verb, label, title, about) => {
      const small = (text, act, body, more) => button(text, () => this.free(act, () => body), { class: "button small", "data-act": act, ...more });
      const part = { cells: h("ol", { class: "scene-cells", "aria-label": `Records in the ${side}` }), flags: h("div", { class: "scene-flags", "aria-hidden": "true" }), note: h("span", { class: "edge-note" }), left: h("p", { class: "notice left" }), rows: {} };
      for (const reader of READERS) {
        part.rows[reader] = h("div", { class: "reader", role: "group", "aria-label": `${reader}, ${side}`, style: { "--hue": hueOf(reader) } }, h("b", {}, h("i", { class: "grip" }), reader), h("span", {}),
          h("span", { class: "buttons" }, small(label, verb, { reader }), small("Crash", "crash", { side, reader }, { title: "Die with the next record in hand" })));
      }
      this[side] = part;
      return h("section", { class: "partition lane", "data-side": side, "aria-label": title }, h("div", { class: "partition-head" }, h("h2", {}, title), h("span", { class: "quiet" }, about), part.note), h("div", { class: "scene-stage" }, part.cells, part.flags), h("div", { class: "readers" }, Object.values(part.rows)), part.left);
    };
    put(element, h("div", { class: "page scene" },
      h("div", { class: "room-head" }, h("h1", {}, "Log or queue?"), h("p", { class: "quiet" }, "Reading a ", term("queue"), " takes the record away; reading a ", term("log"), " moves a bookmark. Here the same records go through both, for real: the log is the ", term("topic"), " ", h("code", {}, TOPIC), " of this broker", this.link, ", the queue is the Python you see below.")),
      !this.may && h("p", { class: "notice warn" }, "This console is read-only: the scene can only be looked at."),
      h("section", { class: "card player", "aria-label": "The story" }, h("div", { class: "buttons" }, this.play, this.step, again, this.count), this.progress, this.telling),
      h("section", { class: "producer", "aria-label": "Producer" }, h("span", {}, term("producer", "Producer"), h("small", { class: "quiet" }, "writes to both")), this.appender),
      h("section", { class: "lanes" }, lane("log", "read", "Read", "Log", ["a ", term("partition"), ", numbered by ", term("offset")]), lane("queue", "dequeue", "Dequeue", "Queue", "one line for all readers")),
      h("section", { class: "lanes" }, h("div", {}, this.code.read.element, this.code.append.element),
        h("div", { class: "quiet" }, this.code.dequeue.element, h("p", {}, "No reader ends a record of a log: ", term("retention"), " does, when it is old, or ", term("compaction"), ", when its key has a newer one. Until then any ", term("group"), " can begin at 0, or ", term("rewind"), ". ", term("order", "Order"), " holds inside a partition."), h("p", {}, "A queue that waits for an acknowledgement gives a crashed reader’s record to another one. What one reader has had is gone for the others all the same."), h("p", {}, "A queue can also be one more reader of a log: workers of a share group take records from it, each record one worker’s at a time, and acknowledge, release or reject it. The log keeps them all, for every other ", term("group"), ". In Python: ", h("code", {}, "log.queue(\"orders\", group=\"workers\")"), ".")))));
    this.show();
  }

  nextValue() { return VALUES[this.state.log.end % VALUES.length]; }

  // --- steps --------------------------------------------------------------------------------------------------------

  /** Steps never overlap: what still moves is hurried to its end first. */
  act(work) {
    this.hurry();
    this.tail = this.tail.then(async () => {
      if (this.isGone) return;
      this.isActing = true;
      try {
        await work();
      } catch (error) {
        this.pause();
        toast(sentence(error.message), "bad");
      } finally { this.isActing = false; }
    });
    return this.tail;
  }

  byHand(work) { this.pause(); return this.act(work); }

  free(verb, body) {
    this.byHand(async () => {
      this.isFree = true;
      const [did] = await this.perform([[verb, body()]]);
      this.tell(told(did, this.state));
      this.show();
    });
  }

  /** One after the other on each side, and both sides beside each other. */
  async perform(steps) {
    const isQueue = ([verb, body]) => verb === "dequeue" || body.side === "queue";
    const done = [];
    this.forget();
    const ends = await Promise.allSettled([false, true].map(async (side) => {
      for (const [verb, body] of steps.filter((step) => isQueue(step) === side)) {
        const { did, ...found } = await post(`scene/${verb}`, body);
        done.push(did);
        await this.animate(did, found);
      }
    }));
    this.draw(await get("scene"));
    const bad = ends.find((end) => end.status === "rejected");
    if (bad) throw bad.reason;
    return done;
  }

  async animate(did, found) {
    const { code, ...path } = ran(did);
    const cell = did.side && did.record && this[did.side].cells.querySelector(`[data-offset="${did.record.offset}"]`);
    cell?.classList.add("held");
    cell?.style.setProperty("--hue", hueOf(did.reader));
    await this.code[code].run(path, (ms) => this.wait(ms));
    if (did.side) this.last[did.side] = did; else this.last = { log: did, queue: did };
    this.draw(found, did.side);
  }

  forget() {
    this.last = {};
    for (const view of Object.values(this.code)) view.clear();
  }

  async next() {
    if (this.isFree || this.at >= STORY.length) await this.restart();
    const { tell, steps } = STORY[this.at];
    this.at += 1;
    this.tell(...tell());
    this.show();
    await this.perform(steps);
  }

  async restart() {
    const { did, ...found } = await post("scene/reset", {});
    this.at = 0;
    this.isFree = false;
    this.forget();
    this.draw(found);
    this.tell(told(did, found));
    this.show();
  }

  toggle() {
    if (this.isPlaying) this.pause(); else this.autoplay();
  }

  async autoplay() {
    const turn = (this.turn = {});
    const isGoing = () => this.turn === turn && !this.isGone;
    this.isPlaying = true;
    this.show();
    do {
      await this.act(() => this.next());
      if (isGoing() && this.at < STORY.length) await this.wait(PAUSE_MS + WORD_MS * this.telling.textContent.split(" ").length, true);
    } while (isGoing() && this.at < STORY.length);
    if (isGoing()) this.pause();
  }

  pause() {
    this.isPlaying = false;
    this.turn = null;
    if (!this.isGone) this.show();
  }

  /** Time for the eye; none where motion is not wanted, but for reading. */
  wait(ms, isForReading = false) {
    if (this.isGone || (calm() && !isForReading)) return null;
    return new Promise((done) => {
      const end = () => { clearTimeout(timer); this.waits.delete(end); done(); };
      const timer = setTimeout(end, ms);
      this.waits.add(end);
    });
  }

  hurry() { for (const end of [...this.waits]) end(); }

  keyed(event) {
    if (!this.may || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.key === "n") this.byHand(() => this.next());
    else if (event.key === "p") this.toggle();
  }

  // --- what is shown ------------------------------------------------------------------------------------------------

  async begin() {
    try {
      const found = await get("scene");
      this.isFree = found.log.end > 0;
      this.draw(found);
      this.tell(this.isFree ? "Somebody has played here. Go on by hand, or play the story, which empties both sides first." : "Press Play, or take one step after the other.");
      if (!this.isGone) this.show();
    } catch (error) { toast(sentence(error.message), "bad"); }
  }

  /** Others may play as well, or move a bookmark in the log room. */
  look() {
    if (this.isActing || this.isLooking || document.hidden) return;
    this.isLooking = true;
    get("scene").then((found) => { if (!this.isActing) this.draw(found); }, () => {}).finally(() => { this.isLooking = false; });
  }

  tell(...parts) {
    put(this.telling, ...parts);
    say(this.telling.textContent);
  }

  show() {
    const isOver = this.isFree || this.at >= STORY.length;
    put(this.play, !this.isPlaying && icon("right"), this.isPlaying ? "Pause" : isOver ? "Play again" : "Play");
    put(this.step, isOver ? "First step" : "Next step");
    put(this.count, this.isFree ? "by hand" : `${this.at} / ${STORY.length}`);
    this.progress.value = this.isFree ? 0 : this.at;
  }

  /** All of it, or one side: the other may still be on its way. */
  draw(found, side = null) {
    if (this.isGone) return;
    this.state = found;
    if (side !== "queue") this.drawLog(found.log);
    if (side !== "log") this.drawQueue(found.queue, found.log);
    const isFull = found.log.end >= found.records_max;
    put(this.appender, icon("plus"), isFull ? "Full: start over" : `Append “${this.nextValue()}”`);
    this.appender.disabled = !this.may || isFull;
    this.link.hidden = found.log.end === 0;
  }

  drawLog({ start, end, records, readers }) {
    const { cells, flags, note, left } = this.log;
    const place = (offset) => { const at = records.findIndex((record) => record.offset >= offset); return at < 0 ? records.length : at; };
    const isNew = this.last.log?.verb === "append" && end - 1;
    put(cells, records.map(({ offset, value }) => {
      const had = readers.map((one) => one.offset > offset);
      return h("li", { class: offset === isNew ? "new" : "", "data-offset": offset }, h("small", {}, String(offset)), h("b", {}, value), h("span", { class: "seen" }, readers.map((one, index) => h("i", { class: had[index] && "yes", style: { "--hue": hueOf(one.reader) } }))), h("span", { class: "unseen" }, readers.filter((_, index) => had[index]).map((one) => ` read by ${one.reader}`)));
    }), h("li", { class: "blank", "aria-hidden": "true" }, h("small", {}, String(end))));
    cells.parentElement.style.setProperty("--slots", Math.max(SLOTS_MIN, records.length + 1));
    readers.forEach((one, row) => this.flag(flags, one.reader, { at: place(one.offset), row, hue: hueOf(one.reader), isDown: one.is_down, note: one.is_down ? "crashed" : one.lag ? `−${one.lag}` : "at the end" }));
    for (const one of readers) this.status("log", one, one.is_down ? `crashed; bookmark still at ${one.offset}` : end === 0 ? "waits" : one.lag ? `reads ${one.offset} next, ${one.lag} behind` : "has read all");
    put(note, `${counted(end - start, "record")}, none taken away`);
    const done = readers.map((one) => `${one.reader} has handled ${one.offset - start}`).join(", ");
    put(left, end ? `all ${end - start}. ${sentence(done)} ${readers.some((one) => one.lag) ? "What is missing can still be read." : "Any other group can begin at 0."}` : "nothing was written yet.");
  }

  drawQueue({ enqueued, records, readers }, log) {
    const { cells, flags, note, left } = this.queue;
    const value = (offset) => log.records.find((record) => record.offset === offset)?.value ?? String(offset);
    const gone = readers.flatMap((one) => [...one.handled, ...one.lost].map((offset) => ({ offset, by: one.reader, isLost: one.lost.includes(offset) })));
    const isNew = this.last.queue?.verb === "append" && log.end - 1;
    put(cells, [...gone, ...records].sort((one, other) => one.offset - other.offset).map((one) => (one.by
      ? h("li", { class: one.isLost ? "gone lost" : "gone", style: { "--hue": hueOf(one.by) } }, h("small", {}, h("s", {}, value(one.offset))), h("b", {}, one.isLost ? "lost" : one.by))
      : h("li", { class: one.offset === isNew ? "new" : "", "data-offset": one.offset }, h("small", {}, one === records[0] ? "head" : ""), h("b", {}, one.value)))), !enqueued && h("li", { class: "blank" }, h("small", {}, "empty")));
    cells.parentElement.style.setProperty("--slots", Math.max(SLOTS_MIN, log.records.length + 1));
    if (records.length) this.flag(flags, "for whoever asks first", { at: gone.length, row: 0, hue: "var(--mute)", note: "" });
    else put(flags);
    for (const one of readers) {
      const did = this.last.queue;
      const had = one.handled.length ? `had ${one.handled.map(value).join(", ")}` : enqueued ? "had nothing yet" : "waits";
      this.status("queue", one, one.is_down ? `crashed; ${value(one.lost.at(-1))} is lost` : did?.reader === one.reader && !did.record ? `got None; ${had}` : had);
    }
    put(note, `${records.length} waiting, ${gone.length} taken away`);
    const listed = (taken) => taken.map((one) => value(one.offset)).join(", ");
    const lost = gone.filter((one) => one.isLost);
    const missed = readers.map(({ reader }) => [reader, gone.filter((one) => one.by !== reader && !one.isLost)]).filter(([, taken]) => taken.length).map(([reader, taken]) => `${reader} will never see ${listed(taken)}`);
    if (lost.length) missed.push(`nobody has handled ${listed(lost)}`);
    put(left, log.end > enqueued ? "the queue was in the broker’s memory and ended with it; the log did not." : enqueued ? `${records.length ? `${records.length} of ${enqueued}` : "nothing"}. ${missed.length ? sentence(missed.join("; ")) : ""}` : "nothing was written yet.");
  }

  status(side, { reader, is_down: isDown }, text) {
    const row = this[side].rows[reader];
    row.classList.toggle("down", isDown);
    put(row.children[1], text);
  }

  /** The flag of that name, added if it is not there: one that is glides to its new place. */
  flag(place, name, { at, row, hue: colour, isDown, note }) {
    const flag = [...place.children].find((one) => one.dataset.name === name) ?? place.appendChild(h("div", { "data-name": name }, h("i", { class: "scene-stem" }), h("span", { class: "flag" }, h("i", { class: "grip" }), h("span", { class: "flag-name" }, name), h("span", { class: "flag-lag mono" }))));
    flag.className = `scene-flag${isDown ? " down" : ""}${at > SLOTS_MIN / 2 ? " flip" : ""}`;
    flag.style.cssText = `--hue: ${colour}; --at: ${at}; --row: ${row}`;
    flag.dataset.at = at;
    put(flag.querySelector(".flag-lag"), note);
  }
}

export function enter(element) {
  let room = null;
  let isLeft = false;
  Promise.all([get("scene/code"), dressed()]).then(([code]) => { if (!isLeft) room = new SceneRoom(element, code); }, (error) => toast(sentence(error.message), "bad"));
  return () => { isLeft = true; room?.leave(); };
}
