// One partition on the page: the canvas of cells, the cursors below it, the bar of the whole partition, and what mouse,
// touch and keyboard do there. Asks for what the window lacks, one question at a time, and only while it is on screen.

import * as api from "./api.js";
import { calm, h, put, say } from "./dom.js";
import { cursorsOf, hue, now } from "./store.js";
import { Cursors } from "./cursors.js";
import { StripPainter } from "./strip_paint.js";
import { StripModel } from "./strip_model.js";
import { term } from "./terms.js";
import { counted, moment, number, sentence, size, span } from "./words.js";

const ASK_PAUSE_MS = 140;

/** Up to where committed records are read, and what is waited for there. */
function heldText({ offset, by }) {
  const oldest = by[0];
  const who = oldest?.transactional_id ?? "a transaction that no transactional id has open";
  const since = oldest ? `, last written ${span(Math.max(0, now() - oldest.last_ms))} ago` : "";
  return `committed up to ${number(offset)}: waits for ${who}${since}`;
}

const awake = new Set();
function frame(at) {
  for (const strip of [...awake]) if (!strip.draw(at)) awake.delete(strip);
  if (awake.size) requestAnimationFrame(frame);
}

export class Strip {
  constructor(topic, partition, options) {
    this.options = options;
    this.topic = topic.name;
    this.number = partition.partition;
    this.model = new StripModel(topic.name, partition.partition, partition.start, partition.end);
    this.slotWidth = options.slotWidth;
    this.width = 0;
    this.selected = null;
    this.look = {};
    this.isShown = false;
    this.build(partition);
    this.cursors = new Cursors(this);
    this.resizing = new ResizeObserver(() => this.resize());
    this.resizing.observe(this.track);
    this.showing = new IntersectionObserver(([entry]) => { this.isShown = entry.isIntersecting; this.wake(); }, { rootMargin: "200px" });
    this.showing.observe(this.element);
  }

  build(partition) {
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.track = h("div", {
      class: "track", tabindex: 0, role: "application", "aria-roledescription": "strip of records",
      "aria-label": `${this.topic}, partition ${this.number}: arrow keys walk the records, Enter shows one`,
    }, this.canvas);
    this.flags = h("div", { class: "flags" });
    this.bar = h("div", { class: "whole", "aria-hidden": "true" }, (this.thumb = h("div", { class: "thumb" })), (this.ticks = h("div", { class: "ticks" })));
    this.range = h("span", { class: "range mono" });
    this.note = h("span", { class: "edge-note" });
    this.broken = h("p", { class: "notice bad", hidden: !partition.error }, partition.error ?? "");
    this.element = h("section", { class: "partition", "data-partition": this.number, "aria-label": `Partition ${this.number}` },
      h("div", { class: "partition-head" }, h("h2", {}, term("partition", "Partition"), ` ${this.number}`), this.range, this.note),
      this.broken, h("div", { class: "stage" }, this.track, this.flags), this.bar);
    this.track.addEventListener("pointerdown", (event) => this.grab(event));
    this.track.addEventListener("pointermove", (event) => this.hover(event));
    this.track.addEventListener("pointerleave", () => { this.look.key = null; this.wake(); });
    this.track.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.track.addEventListener("keydown", (event) => this.key(event));
    this.bar.addEventListener("pointerdown", (event) => this.grabBar(event));
    this.painter = new StripPainter(this.canvas);
  }

  end() {
    this.resizing.disconnect();
    this.showing.disconnect();
    this.asking?.abort();
    awake.delete(this);
    this.isOver = true;
  }

  resize() {
    this.width = this.track.clientWidth;
    if (!this.width) return;
    this.painter.resize(this.width);
    const left = this.model.left();
    this.model.slots = this.width / this.slotWidth;
    if (!this.model.following) this.model.right = this.model.clamp(this.model.forward(left, this.model.slots));
    else this.model.right = this.model.rightmost();
    this.wake();
  }

  zoom(slotWidth) {
    const middle = this.model.following ? null : this.model.offsetAt(this.model.slots / 2);
    this.slotWidth = slotWidth;
    this.model.slots = this.width / slotWidth;
    if (middle === null) this.model.right = this.model.rightmost();
    else this.model.show(middle);
    this.wake();
  }

  setEnds(start, end) {
    this.model.setEnds(start, end, this.isShown && !calm() ? performance.now() : undefined);
    this.wake();
  }

  /** A log that got smaller was compacted or expired: what is known of it may be gone, and is asked for again. */
  setSize(bytes) {
    if (bytes < this.sizeBytes) this.model.stale();
    this.sizeBytes = bytes;
    this.wake();
  }

  wake() {
    if (this.isOver) return;
    if (!awake.size) requestAnimationFrame(frame);
    awake.add(this);
  }

  draw(at) {
    if (!this.isShown || !this.width || this.isOver) return false;
    let moving = this.model.glide(calm());
    this.look.selected = this.selected;
    moving = this.painter.paint(this.model, this.slotWidth, this.look, at) || moving;
    moving = this.cursors.draw(this.slotWidth, this.width) || moving;
    this.drawBar();
    this.ask();
    return moving;
  }

  drawBar() {
    const { model } = this;
    const total = Math.max(1, model.end - model.start);
    const share = (offset) => Math.max(0, Math.min(1, (offset - model.start) / total));
    const from = share(model.left());
    const to = share(model.right);
    const wide = Math.max(8, (to - from) * this.width);
    const x = Math.min(this.width - wide, from * this.width);
    this.thumb.style.transform = `translateX(${x.toFixed(1)}px)`;
    this.thumb.style.width = `${wide.toFixed(1)}px`;
    const standing = cursorsOf(this.topic, this.number);
    while (this.ticks.children.length < standing.length) this.ticks.append(h("i"));
    while (this.ticks.children.length > standing.length) this.ticks.lastChild.remove();
    standing.forEach(({ group, cursor }, index) => {
      const tick = this.ticks.children[index];
      tick.style.background = hue(group.group);
      tick.style.transform = `translateX(${Math.min(this.width - 2, share(cursor.offset) * this.width).toFixed(1)}px)`;
    });
    put(this.range, model.end > model.start ? `${number(model.start)} – ${number(model.end - 1)}` : `empty, next is ${number(model.end)}`);
    Object.assign(this.track.dataset, { start: model.start, end: model.end, slot: this.slotWidth, left: model.left().toFixed(3), following: model.following });
    this.drawEdge();
  }

  drawEdge() {
    const { model } = this;
    const expires = model.edge?.expires_ms;
    const seen = model.left() < model.start + 1 && model.start > 0;
    this.element.classList.toggle("at-edge", seen);
    const parts = [counted(model.end - model.start, "offset")];
    if (this.sizeBytes) parts.push(size(this.sizeBytes));
    if (expires) parts.push(expires > now() ? `oldest leaves in ${span(expires - now())}` : "oldest is due to leave");
    if (model.held) parts.push(heldText(model.held));
    put(this.note, parts.join(" · "));
  }

  async ask() {
    if (this.asking || this.resting) return;
    const query = this.model.wanted();
    if (!query) return;
    this.asking = new AbortController();
    try {
      const answer = await api.strip(this.topic, this.number, query, this.asking.signal);
      if (this.isOver) return;
      this.model.merge(answer);
      this.model.learnt(answer, query);
      this.broken.hidden = true;
      if (this.isTold === false && this.selected !== null) this.tell();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.broken.hidden = false;
      put(this.broken, sentence(error.message));
      this.resting = true;
      setTimeout(() => { this.resting = false; this.wake(); }, 3000);
      return;
    } finally { this.asking = null; }
    this.wake();
    this.resting = true;
    setTimeout(() => { this.resting = false; if (this.model.wanted()) this.wake(); }, ASK_PAUSE_MS);
  }

  slotOf(event) { return (event.clientX - this.track.getBoundingClientRect().left) / this.slotWidth; }

  /** The record under the pointer, or null over a gap, the edge or what is not written yet. */
  recordAt(event) {
    const offset = Math.floor(this.model.offsetAt(this.slotOf(event)));
    return offset >= this.model.start && offset < this.model.end && !this.model.gaps.holding(offset) ? offset : null;
  }

  hover(event) {
    if (event.pointerType === "touch") return;
    const offset = this.recordAt(event);
    const key = offset === null ? null : this.model.cells.get(offset)?.key ?? null;
    this.canvas.style.cursor = offset === null ? "" : "pointer";
    if (key !== this.look.key) { this.look.key = key; this.wake(); }
  }

  grab(event) {
    if (event.button !== 0) return;
    let last = event.clientX;
    let moved = 0;
    const move = (next) => {
      moved += Math.abs(next.clientX - last);
      if (moved > 5) { this.model.scroll((last - next.clientX) / this.slotWidth); this.track.classList.add("panning"); }
      last = next.clientX;
      this.scrolled();
    };
    const up = (next) => {
      this.track.classList.remove("panning");
      this.track.removeEventListener("pointermove", move);
      if (next.type === "pointerup" && moved <= 5) this.choose(this.recordAt(next), true);
    };
    this.track.setPointerCapture(event.pointerId);
    this.track.addEventListener("pointermove", move);
    for (const name of ["pointerup", "pointercancel"]) this.track.addEventListener(name, up, { once: true });
  }

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (event.ctrlKey) { event.preventDefault(); this.options.zoom(event.deltaY < 0 ? 1 : -1); }
    else if (sideways) { event.preventDefault(); this.model.scroll(sideways / this.slotWidth); this.scrolled(); }
  }

  grabBar(event) {
    const go = (next) => {
      const box = this.bar.getBoundingClientRect();
      const share = Math.max(0, Math.min(1, (next.clientX - box.left) / box.width));
      this.jump(this.model.start + share * (this.model.end - this.model.start));
    };
    go(event);
    this.bar.setPointerCapture(event.pointerId);
    this.bar.addEventListener("pointermove", go);
    for (const name of ["pointerup", "pointercancel"]) this.bar.addEventListener(name, () => this.bar.removeEventListener("pointermove", go), { once: true });
  }

  scrolled() { this.wake(); this.options.scrolled(); }

  jump(offset, share) { this.model.show(offset, share); this.scrolled(); }

  follow() { this.model.follow(); this.scrolled(); }

  choose(offset, isOpen) {
    if (offset === null) return;
    this.selected = offset;
    this.options.chosen(this, offset, isOpen);
    this.wake();
  }

  /** Select without opening, keep it in sight, and say what it is. */
  walk(offset) {
    this.selected = offset;
    const slot = this.model.place(offset);
    if (slot < 0.5) this.jump(offset, 0.1);
    else if (slot > this.model.slots - 1.5) this.jump(offset + 1, 0.9);
    this.tell();
    this.options.walked(this, offset);
    this.wake();
  }

  /** Say what is selected; the rest follows when the broker has answered. */
  tell() {
    const cell = this.model.cells.get(this.selected);
    this.isTold = Boolean(cell);
    say(cell ? `Offset ${cell.offset}, ${cell.is_tombstone ? "tombstone of" : "key"} ${cell.key ?? "none"}, ${moment(cell.timestamp)}` : `Offset ${this.selected}`);
  }

  key(event) {
    const { model } = this;
    if (event.target !== this.track || event.altKey || event.metaKey || event.ctrlKey || model.end <= model.start) return;
    const page = Math.max(1, Math.floor(model.slots) - 1);
    const at = this.selected ?? model.snap(Math.min(model.end, model.right)) - 1;
    const steps = {
      ArrowLeft: () => (this.selected === null ? Math.max(model.start, at) : model.neighbour(at, -1)),
      ArrowRight: () => (this.selected === null ? Math.max(model.start, at) : model.neighbour(at, 1)),
      PageUp: () => Math.max(model.start, Math.floor(model.back(at, page))),
      PageDown: () => Math.min(model.end - 1, Math.ceil(model.forward(at, page))),
      Home: () => model.start,
      End: () => model.end - 1,
    };
    if (steps[event.key]) {
      const to = steps[event.key]();
      const gap = model.gaps.holding(to);
      this.walk(gap ? Math.min(model.end - 1, gap[1]) : to);
      if (event.key === "End") this.follow();
    } else if (event.key === "Enter" || event.key === " ") this.choose(at, true);
    else if (event.key === "+" || event.key === "=") this.options.zoom(1);
    else if (event.key === "-") this.options.zoom(-1);
    else if (event.key === "Escape" && this.selected !== null) { this.selected = null; this.wake(); return; }
    else return;
    event.preventDefault();
  }
}

