// The room "Log or queue?": the same records through a log and through a queue, both real, step by step or by themselves.

import { get, post } from "./api.js";
import { calm, h, icon, put, say, toast } from "./dom.js";
import { CODE, ran } from "./scene_code.js";
import { STORY, VALUES, told } from "./scene_story.js";
import { hue, on, state as known } from "./store.js";
import { term } from "./terms.js";
import { counted, sentence } from "./words.js";

const LINE_MS = 340;
const PAUSE_MS = 1500;
const WORD_MS = 180; // a step lasts as long as its words take to read
const SLOTS_MIN = 6;

let style = null;

/** The scene's own sheet, fetched with the room: nobody else needs it. */
function dressed() {
  style ??= new Promise((done) => {
    const link = h("link", { rel: "stylesheet", href: "/console/scene.css", onload: done, onerror: done });
    document.head.append(link);
  });
  return style;
}

const KEYWORD = /\b(def|return|if|is|not|None|self)\b/;

function lineOf(text) {
  const [code, comment] = text.split(/(?= {2}# )/);
  const words = code.split(KEYWORD).map((word, index) => (index % 2 ? h("i", {}, word) : word));
  return h("span", { class: "line" }, words, comment && h("em", {}, comment), "\n");
}

class CodeView {
  constructor({ name, what, text }) {
    this.lines = text.split("\n").map((line) => ({ text: line, element: lineOf(line) }));
    this.element = h("figure", { class: "code", "data-code": name }, h("figcaption", {}, h("b", { class: "mono" }, name), h("span", {}, what)), h("pre", { tabindex: 0 }, h("code", {}, this.lines.map((line) => line.element))));
  }

  clear() { for (const { element } of this.lines) element.className = "line"; }

  /** Walk through the lines that ran; the last one stays lit. */
  async run({ lines, crashed }, wait) {
    this.clear();
    const found = lines.map((word) => this.lines.find((line) => line.text.includes(word)).element);
    for (const [index, element] of found.entries()) {
      const isLast = index === found.length - 1;
      element.className = `line now${isLast && crashed ? " dead" : ""}`;
      if (!isLast) { await wait(LINE_MS); element.className = "line ran"; }
    }
    await wait(LINE_MS);
  }
}

class SceneRoom {
  constructor(element) {
    this.at = 0; // the next step of the story
    this.isFree = false; // somebody has played by hand, so the story has to begin anew
    this.isPlaying = false;
    this.isGone = false;
    this.last = { log: null, queue: null };
    this.tail = Promise.resolve();
    this.waits = new Set();
    this.code = Object.fromEntries(Object.entries(CODE).map(([name, one]) => [name, new CodeView(one)]));
    this.build(element);
    this.offs = [on("groups", () => this.look()), on("topics", () => this.look()), on("ends", () => this.look())];
    this.onKey = (event) => this.keyed(event);
    addEventListener("keydown", this.onKey);
    this.tail = this.refresh(true);
  }

  leave() {
    this.isGone = true;
    this.pause();
    this.hurry();
    for (const off of this.offs) off();
    removeEventListener("keydown", this.onKey);
  }

  // --- what there is ------------------------------------------------------------------------------------------------

  build(element) {
    const may = !known.overview.read_only;
    const button = (text, name, act, more = {}) => h("button", { class: "button small", type: "button", disabled: !may, onclick: act, ...more }, name && icon(name), h("span", {}, text));
    this.play = button("Play", "right", () => this.toggle(), { class: "button primary", "aria-keyshortcuts": "p", title: "Play the story by itself (p)" });
    this.step = button("Next step", null, () => this.byHand(() => this.next()), { class: "button", "aria-keyshortcuts": "n", title: "One step of the story (n)" });
    this.again = button("Start over", null, () => this.byHand(() => this.restart()), { class: "button", title: "Delete the scene’s topic, its groups and the queue" });
    this.count = h("span", { class: "quiet mono scene-count" });
    this.dots = h("ol", { class: "scene-dots", "aria-hidden": "true" }, STORY.map(() => h("li", {})));
    this.telling = h("p", { class: "telling" });
    this.appendText = h("span", {});
    this.appender = h("button", { class: "button small", type: "button", disabled: !may, "data-act": "append", onclick: () => this.free([["append", () => ({ value: this.nextValue() })]]) }, icon("plus"), this.appendText);
    const readers = ["billing", "search"];
    const reader = (side, verb, text) => Object.fromEntries(readers.map((name) => {
      const status = h("span", { class: "reader-state" });
      const row = h("div", { class: "reader", role: "group", "aria-label": `${name}, ${side}`, "data-reader": name }, h("span", { class: "reader-name" }, h("i", { class: "grip" }), h("b", {}, name)), status,
        h("span", { class: "buttons" }, button(text, null, () => this.free([[verb, { reader: name }]]), { "data-act": verb }), button("Crash", null, () => this.free([["crash", { side, reader: name }]]), { "data-act": "crash", title: "Take the next record and die with it in hand" })));
      return [name, { row, status }];
    }));
    this.readers = { log: reader("log", "read", "Read"), queue: reader("queue", "dequeue", "Dequeue") };
    this.strips = { log: h("ol", { class: "scene-cells", "aria-label": "Records of the log" }), queue: h("ol", { class: "scene-cells", "aria-label": "Records of the queue" }) };
    this.flags = { log: h("div", { class: "scene-flags", "aria-hidden": "true" }), queue: h("div", { class: "scene-flags", "aria-hidden": "true" }) };
    this.notes = { log: h("span", { class: "edge-note" }), queue: h("span", { class: "edge-note" }) };
    this.left = { log: h("p", { class: "left", "data-left": "log" }), queue: h("p", { class: "left", "data-left": "queue" }) };
    const lane = (side, title, about, ...code) => h("section", { class: "partition lane", "data-side": side, "aria-label": title }, h("div", { class: "partition-head" }, h("h2", {}, title), h("span", { class: "quiet" }, about), this.notes[side]),
      h("div", { class: "scene-stage" }, this.strips[side], this.flags[side]), h("div", { class: "readers" }, readers.map((name) => this.readers[side][name].row)), this.left[side], code.map((one) => this.code[one].element));
    this.linkToLog = h("a", { href: "#/log/__log_or_queue" }, "see it in the Log room");
    put(element, h("div", { class: "page scene" },
      h("div", { class: "room-head" }, h("h1", {}, "Log or queue?"), h("p", { class: "quiet" }, "Reading a ", term("queue"), " takes the record away. Reading a ", term("log"), " moves a bookmark. Here the same records go through both, and both are real: the log is the ", term("topic"), " ", h("code", {}, "__log_or_queue"), " of this broker (", this.linkToLog, "), the queue is the Python you see below.")),
      !may && h("p", { class: "notice warn" }, "This console is read-only, so the scene can only be looked at."),
      h("section", { class: "card player", "aria-label": "The story" }, h("div", { class: "buttons" }, this.play, this.step, this.again, this.count), this.dots, this.telling),
      h("section", { class: "producer", "aria-label": "Producer" }, h("span", {}, term("producer", "Producer"), h("small", { class: "quiet" }, "writes to both")), this.appender),
      h("div", { class: "lanes" },
        lane("log", "Log", ["a ", term("partition"), ", numbered by ", term("offset")], "read", "append"),
        lane("queue", "Queue", "one line for all readers", "dequeue")),
      h("p", { class: "legend quiet" }, "In a log no reader ends a record: ", term("retention"), " does, when it is old enough, or ", term("compaction"), ", when its key has a newer one. Until then any ", term("group"), " can begin at 0, or ", term("rewind"), ". ", term("order", "Order"), " holds inside a partition. A queue that waits for an acknowledgement would give the record of a crashed reader to somebody else; what one reader has had is gone for the others all the same.")));
    this.show(0);
  }

  nextValue() { return VALUES[this.state.log.end % VALUES.length]; }

  // --- steps --------------------------------------------------------------------------------------------------------

  /** Steps never overlap: what still moves is hurried to its end first. */
  act(work) {
    this.hurry();
    this.tail = this.tail.then(async () => {
      if (this.isGone) return;
      this.isActing = true;
      try { await work(); } catch (error) { this.failed(error); } finally { this.isActing = false; }
    });
    return this.tail;
  }

  failed(error) {
    this.pause();
    toast(sentence(error.message), "bad");
    return this.refresh().catch(() => {});
  }

  byHand(work) { this.pause(); return this.act(work); }

  free(steps) {
    return this.byHand(async () => {
      this.isFree = true;
      const did = await this.perform(steps);
      if (did.length) this.tell([told(did.at(-1), this.state)]);
      this.show();
    });
  }

  /** One after the other in the log and in the queue, both beside each other. */
  async perform(steps) {
    const sides = [steps.filter(([verb, body]) => verb === "dequeue" || body.side === "queue"), steps.filter(([verb, body]) => verb !== "dequeue" && body.side !== "queue")];
    const dids = [];
    const one = async (side) => {
      for (const [verb, body] of side) {
        const { did, ...found } = await post(`scene/${verb}`, typeof body === "function" ? body() : body);
        dids.push(did);
        await this.animate(did, found);
      }
    };
    for (const view of Object.values(this.code)) view.clear();
    this.last = { log: null, queue: null };
    const ends = await Promise.allSettled(sides.map(one));
    this.draw(await get("scene"));
    const bad = ends.find((end) => end.status === "rejected");
    if (bad) throw bad.reason;
    return dids;
  }

  async animate(did, found) {
    const path = ran(did);
    if (did.record && did.side) this.touch(did);
    await this.code[path.code].run(path, (ms) => this.wait(ms));
    if (did.verb === "append") this.last = { log: did, queue: did };
    else this.last[did.side] = did;
    this.draw(found, did.side);
  }

  /** The cell that a reader has in hand. */
  touch(did) {
    const cell = this.strips[did.side].querySelector(`[data-offset="${did.record.offset}"]`);
    cell?.classList.add("held");
    cell?.style.setProperty("--hue", this.hueOf(did.reader));
  }

  async next() {
    if (this.isFree || this.at >= STORY.length) await this.restart();
    const scene = STORY[this.at];
    this.at += 1;
    this.tell(scene.tell());
    this.show();
    await this.perform(scene.steps);
  }

  async restart() {
    const { did, ...found } = await post("scene/reset", {});
    this.at = 0;
    this.isFree = false;
    this.last = { log: null, queue: null };
    for (const view of Object.values(this.code)) view.clear();
    this.draw(found);
    this.tell([told(did, found)]);
    this.show();
  }

  toggle() {
    if (this.isPlaying) { this.pause(); return; }
    this.isPlaying = true;
    this.show();
    this.autoplay();
  }

  async autoplay() {
    const turn = (this.turn = {});
    const going = () => this.isPlaying && this.turn === turn && !this.isGone;
    do {
      await this.act(() => this.next());
      if (going() && this.at < STORY.length) await this.wait(PAUSE_MS + WORD_MS * this.telling.textContent.split(" ").length, true);
    } while (going() && this.at < STORY.length);
    if (going()) this.pause();
  }

  pause() {
    this.isPlaying = false;
    this.turn = null;
    if (!this.isGone) this.show();
  }

  /** Time for the eye; none where motion is not wanted, but for reading. */
  wait(ms, isForReading = false) {
    if (this.isGone || (calm() && !isForReading)) return Promise.resolve();
    return new Promise((done) => {
      const end = () => { clearTimeout(timer); this.waits.delete(end); done(); };
      const timer = setTimeout(end, ms);
      this.waits.add(end);
    });
  }

  hurry() { for (const end of [...this.waits]) end(); }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog") || known.overview.read_only) return;
    if (event.key === "n") this.byHand(() => this.next());
    else if (event.key === "p") this.toggle();
  }

  // --- what is shown ------------------------------------------------------------------------------------------------

  async refresh(isFirst = false) {
    try {
      const found = await get("scene");
      this.draw(found);
      if (isFirst) {
        this.isFree = found.log.end > 0;
        this.tell(this.isFree ? ["Somebody has played before. Go on by hand, or play the story from its start, which empties both sides first."] : ["Press Play, or take one step after the other."]);
        this.show();
      }
    } catch (error) { toast(sentence(error.message), "bad"); }
  }

  /** Others may play as well, or move a bookmark in the log room. */
  look() {
    if (this.isActing || this.isLooking || this.isGone || document.hidden) return;
    this.isLooking = true;
    get("scene").then((found) => { if (!this.isActing) this.draw(found); }, () => {}).finally(() => { this.isLooking = false; });
  }

  tell(parts) {
    put(this.telling, parts);
    if (parts.length) say(this.telling.textContent);
  }

  show() {
    const { at } = this;
    const playing = this.isPlaying;
    put(this.play.lastChild, playing ? "Pause" : this.isFree || at >= STORY.length ? "Play from the start" : "Play");
    put(this.step.lastChild, this.isFree || at >= STORY.length ? "First step" : "Next step");
    this.play.setAttribute("aria-pressed", String(playing));
    put(this.count, this.isFree ? "by hand" : `${at} / ${STORY.length}`);
    [...this.dots.children].forEach((dot, index) => { dot.className = this.isFree || index >= at ? "" : index === at - 1 ? "now" : "done"; });
  }

  hueOf(reader) { return hue(`__log_or_queue.${reader}`); }

  /** All of it, or one side: the other may still be on its way. */
  draw(found, side = null) {
    if (this.isGone) return;
    this.state = found;
    if (side !== "queue") this.drawLog(found.log);
    if (side !== "log") this.drawQueue(found.queue, found.log);
    const isFull = found.log.end >= found.records_max;
    put(this.appendText, isFull ? "Full: start over" : `Append “${this.nextValue()}”`);
    this.appender.disabled = known.overview.read_only || isFull;
    this.linkToLog.hidden = found.log.end === 0;
  }

  slots(strip, count) { strip.parentElement.style.setProperty("--slots", Math.max(SLOTS_MIN, count)); }

  drawLog({ start, end, records, readers }) {
    const isNew = this.last.log?.verb === "append" ? this.last.log.record.offset : -1;
    const cells = records.map((record) => h("li", { class: `scene-cell${record.offset === isNew ? " new" : ""}`, "data-offset": record.offset }, h("small", {}, String(record.offset)), h("b", {}, record.value),
      h("span", { class: "seen" }, readers.map((one) => h("i", { class: one.offset > record.offset ? "yes" : "", style: { "--hue": this.hueOf(one.reader) } }))),
      h("span", { class: "unseen" }, readers.filter((one) => one.offset > record.offset).map((one) => `, read by ${one.reader}`).join(""))));
    put(this.strips.log, cells, h("li", { class: "scene-cell blank", "aria-hidden": "true" }, h("small", {}, String(end))));
    this.slots(this.strips.log, records.length + 1);
    const place = (offset) => { const at = records.findIndex((record) => record.offset >= offset); return at < 0 ? records.length : at; };
    this.moveFlags(this.flags.log, readers.map((one, row) => ({ name: one.reader, at: place(one.offset), row, note: one.is_down ? "crashed" : one.lag ? `−${one.lag}` : "at the end", isDown: one.is_down })));
    for (const one of readers) {
      const { row, status } = this.readers.log[one.reader];
      row.classList.toggle("down", one.is_down);
      row.style.setProperty("--hue", this.hueOf(one.reader));
      put(status, one.is_down ? `crashed; bookmark still at ${one.offset}` : end === 0 ? "waits" : one.lag ? `reads ${one.offset} next, ${one.lag} behind` : "has read all");
    }
    put(this.notes.log, `${counted(records.length, "record")}, none taken away`);
    const done = readers.map((one) => `${one.reader} has handled ${one.offset - start} of ${end - start}`).join(", ");
    put(this.left.log, end ? [h("b", {}, "Left: "), `all ${end - start}. ${sentence(done)} ${readers.some((one) => one.lag) ? "What is missing can still be read." : "Any other group can begin at 0."}`] : [h("b", {}, "Left: "), "nothing was written yet."]);
  }

  drawQueue({ enqueued, records, readers }, log) {
    const value = (offset) => log.records.find((record) => record.offset === offset)?.value ?? String(offset);
    const gone = readers.flatMap((one) => [...one.handled.map((offset) => ({ offset, by: one.reader })), ...one.lost.map((offset) => ({ offset, by: one.reader, isLost: true }))]);
    const all = [...gone, ...records].sort((one, other) => one.offset - other.offset);
    const isNew = this.last.queue?.verb === "append" ? this.last.queue.record.offset : -1;
    put(this.strips.queue, all.map((one) => (one.by
      ? h("li", { class: `scene-cell gone${one.isLost ? " lost" : ""}`, style: { "--hue": this.hueOf(one.by) } }, h("small", {}, h("s", {}, value(one.offset))), h("b", {}, one.isLost ? "lost" : one.by))
      : h("li", { class: `scene-cell${one.offset === isNew ? " new" : ""}`, "data-offset": one.offset }, h("small", {}, one === records[0] ? "head" : ""), h("b", {}, one.value)))));
    if (!all.length) this.strips.queue.append(h("li", { class: "scene-cell blank" }, h("small", {}, "empty")));
    this.slots(this.strips.queue, log.records.length + 1);
    this.moveFlags(this.flags.queue, records.length ? [{ name: "whoever asks first", at: gone.length, row: 0, note: "", isHead: true }] : []);
    for (const one of readers) {
      const { row, status } = this.readers.queue[one.reader];
      const did = this.last.queue;
      const foundNone = did?.reader === one.reader && !did.record;
      row.classList.toggle("down", one.is_down);
      row.style.setProperty("--hue", this.hueOf(one.reader));
      const had = one.handled.length ? `had ${one.handled.map(value).join(", ")}` : enqueued ? "had nothing yet" : "waits";
      put(status, one.is_down ? `crashed; ${value(one.lost.at(-1))} is lost` : foundNone ? `got None; ${had}` : had);
    }
    put(this.notes.queue, `${records.length} waiting, ${gone.length} taken away`);
    const lost = readers.flatMap((one) => one.lost.map(value));
    const missed = readers.map((one) => [one.reader, gone.filter((other) => other.by !== one.reader && !other.isLost).length]).filter(([, count]) => count).map(([reader, count]) => `${reader} will never see ${count}`);
    const tale = [...missed, ...(lost.length ? [`nobody has handled ${lost.join(", ")}`] : [])].join("; ");
    put(this.left.queue, h("b", {}, "Left: "), log.end > enqueued ? "the queue lived in the broker’s memory and ended with it; the log did not." : enqueued ? `${records.length || "nothing"}${records.length ? ` of ${enqueued}` : ""}. ${tale ? sentence(tale) : ""}` : "nothing was written yet.");
  }

  moveFlags(place, flags) {
    const had = new Map([...place.children].map((flag) => [flag.dataset.name, flag]));
    for (const one of flags) {
      const flag = had.get(one.name) ?? place.appendChild(h("div", { class: "scene-flag", "data-name": one.name }, h("i", { class: "scene-stem" }), h("span", { class: "flag" }, h("i", { class: "grip" }), h("span", { class: "flag-name" }, one.name), h("span", { class: "flag-lag mono" }))));
      had.delete(one.name);
      flag.className = `scene-flag${one.isDown ? " down" : ""}${one.isHead ? " head" : ""}`;
      flag.style.setProperty("--hue", one.isHead ? "var(--mute)" : this.hueOf(one.name));
      flag.style.setProperty("--at", one.at);
      flag.style.setProperty("--row", one.row);
      flag.dataset.at = one.at;
      put(flag.querySelector(".flag-lag"), one.note);
    }
    for (const flag of had.values()) flag.remove();
  }
}

export function enter(element) {
  let room = null;
  let isLeft = false;
  dressed().then(() => { if (!isLeft) room = new SceneRoom(element); });
  return () => { isLeft = true; room?.leave(); };
}
