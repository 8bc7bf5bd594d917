// The cursors of one strip: where each group and each fold stands, and how far behind. A cursor can be pulled left, by
// pointer or by arrow keys; nothing moves before the question that follows has been answered.

import * as api from "./api.js";
import { h, icon, put, say } from "./dom.js";
import { askRewind } from "./rewind.js";
import { cursorsOf, foldName, hue, state } from "./store.js";
import { resolved } from "./strip_paint.js";
import { counted, moment, number, short } from "./words.js";

const LANE_HEIGHT = 30;
const EDGE_PX = 28;
const GAP_PX = 6;
const STEM_PX = 74; // from the top of the cells into the first row of flags


class Flag {
  constructor(owner, group) {
    this.owner = owner;
    this.name = group.group;
    this.isFold = group.is_fold;
    this.draft = null;
    this.label = h("span", { class: "flag-name" }, this.isFold ? foldName(this.name) : this.name);
    this.lag = h("span", { class: "flag-lag mono" });
    this.bubble = h("div", { class: "bubble", hidden: true });
    this.button = h("button", { class: "flag", type: "button", role: "slider", "aria-orientation": "horizontal" },
      h("span", { class: "grip", "aria-hidden": "true" }, this.isFold ? icon("folds") : null), this.label, this.lag);
    this.stem = h("i", { class: "stem", style: { "--hue": hue(this.name) } });
    this.element = h("div", { class: `cursor${this.isFold ? " of-fold" : ""}`, "data-group": this.name, style: { "--hue": hue(this.name) } }, this.button, this.bubble);
    this.button.addEventListener("pointerdown", (event) => this.grab(event));
    this.button.addEventListener("click", (event) => { if (event.detail === 0) this.decide(); });
    this.button.addEventListener("keydown", (event) => this.key(event));
    this.button.addEventListener("blur", () => { if (this.draft !== null && !this.isAsking && !this.isDragged) this.put(null); });
    for (const name of ["pointerenter", "focus"]) this.button.addEventListener(name, () => owner.tint(this));
    this.button.addEventListener("pointerleave", () => { if (this.draft === null) owner.tint(null); });
  }

  get place() { return this.draft ?? this.offset; }

  update(cursor) {
    // Ends come ten times a second and groups less often: the lag is reckoned here.
    const lag = Math.max(0, this.owner.strip.model.end - cursor.offset);
    if (this.offset === cursor.offset && this.lagNow === lag) return;
    this.offset = cursor.offset;
    this.lagNow = lag;
    const text = lag > 0 ? `−${short(lag)}` : "at the end";
    if (text.length !== this.lag.textContent.length) this.wide = null; // measured again, which takes a layout
    put(this.lag, text);
    this.describe();
  }

  describe() {
    const { model } = this.owner.strip;
    const kind = this.isFold ? "Fold" : "Group";
    const text = this.draft === null ? `offset ${number(this.offset)}, ${counted(this.lagNow, "record")} behind` : `to offset ${number(this.draft)}, ${counted(this.offset - this.draft, "offset")} again`;
    const attributes = { "aria-label": `${kind} ${this.label.textContent}`, "aria-valuemin": model.start, "aria-valuemax": model.end, "aria-valuenow": this.place, "aria-valuetext": text };
    for (const [name, value] of Object.entries(attributes)) this.button.setAttribute(name, value);
    this.button.title = `${kind} ${this.label.textContent} reads offset ${number(this.offset)} next: ${counted(this.lagNow, "record")} behind.${state.overview?.read_only ? "" : " Drag left, or use the arrow keys, to rewind."}`;
  }

  /** Where it would go; null puts it back. */
  put(offset) {
    this.draft = offset === null || offset === this.offset ? null : offset;
    for (const part of [this.element, this.stem]) part.classList.toggle("moving", this.draft !== null);
    this.bubble.hidden = this.draft === null;
    this.describe();
    if (this.draft !== null) {
      this.explain();
      this.owner.tint(this);
    } else {
      this.looking?.abort();
      if (document.activeElement !== this.button) this.owner.tint(null);
    }
    this.owner.strip.wake();
  }

  explain() {
    const { strip } = this.owner;
    const again = this.offset - this.draft;
    const lines = (time) => put(this.bubble, h("b", { class: "mono" }, number(this.draft)), h("span", {}, time), h("span", {}, `${counted(again, "offset")} again`));
    const cell = strip.model.cells.get(this.draft);
    lines(cell ? moment(cell.timestamp) : "…");
    this.looking?.abort();
    if (cell) return;
    const looking = (this.looking = new AbortController());
    const wanted = this.draft;
    setTimeout(() => {
      if (looking.signal.aborted) return;
      api.timeAt(strip.topic, strip.number, wanted, looking.signal)
        .then((answer) => { if (this.draft === wanted) lines(answer.timestamp === null ? "no record there" : moment(answer.timestamp)); }, () => {});
    }, 90);
  }

  clamp(offset) { return Math.min(this.offset, this.owner.strip.model.snap(offset)); }

  grab(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.button.focus();
    const { strip } = this.owner;
    let moved = 0;
    let pull = 0;
    const startX = event.clientX;
    const drag = (next) => {
      moved = Math.max(moved, Math.abs(next.clientX - startX));
      if (moved < 4 || state.overview?.read_only) return;
      this.isDragged = true;
      const x = next.clientX - strip.track.getBoundingClientRect().left;
      pull = x < EDGE_PX ? x - EDGE_PX : x > strip.width - EDGE_PX ? x - strip.width + EDGE_PX : 0;
      this.put(this.clamp(strip.model.offsetAt(Math.max(0, Math.min(strip.width, x)) / strip.slotWidth)));
      if (pull && !this.pulling) this.drift(() => pull);
    };
    const drop = (next) => {
      this.button.removeEventListener("pointermove", drag);
      for (const name of ["pointerup", "pointercancel"]) this.button.removeEventListener(name, drop);
      pull = 0;
      this.isDragged = false;
      const isOut = this.element.dataset.out !== "";
      if (next.type === "pointercancel") this.put(null);
      else if (moved < 4 || this.draft !== null || isOut) this.decide();
    };
    this.button.setPointerCapture(event.pointerId);
    this.button.addEventListener("pointermove", drag);
    for (const name of ["pointerup", "pointercancel"]) this.button.addEventListener(name, drop);
  }

  /** At the edge of the window the strip moves along, the faster the further out the pointer is. */
  drift(pull) {
    const { strip } = this.owner;
    this.pulling = true;
    const step = () => {
      if (!pull()) { this.pulling = false; return; }
      strip.model.scroll((pull() / strip.slotWidth) * 0.25);
      this.put(this.clamp(strip.model.offsetAt(pull() < 0 ? 0 : strip.model.slots)));
      strip.scrolled();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  key(event) {
    const { model } = this.owner.strip;
    const page = Math.max(1, Math.floor(model.slots) - 2);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: -page, PageDown: page };
    let to = null;
    if (event.key in steps) {
      const slots = steps[event.key] * (event.shiftKey ? 10 : 1);
      to = slots < 0 ? Math.floor(model.back(this.place, -slots)) : Math.ceil(model.forward(this.place, slots));
      const gap = model.gaps.holding(to);
      if (gap) to = slots < 0 && to > gap[0] ? gap[0] : gap[1];
    } else if (event.key === "Home") to = model.start;
    else if (event.key === "End") to = this.offset;
    else if (event.key === "Escape" && this.draft !== null) { this.put(null); event.preventDefault(); return; }
    else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.decide(); return; }
    if (to === null) return;
    event.preventDefault();
    if (state.overview?.read_only) { say("The console is read-only."); return; }
    this.put(this.clamp(to));
    const slot = model.place(this.place);
    if (slot < 1 || slot > model.slots - 1) this.owner.strip.jump(this.place, slot < 1 ? 0.2 : 0.8);
  }

  /** Out of sight: go there first. In sight: ask what to do with it. */
  async decide() {
    const { strip } = this.owner;
    if (this.isAsking) return;
    const slot = strip.model.place(this.place);
    if (this.draft === null && (slot < 0 || slot > strip.model.slots)) { strip.jump(this.place); return; }
    this.isAsking = true;
    this.put(this.draft);
    try {
      await askRewind({ group: this.name, isFold: this.isFold, topic: strip.topic, partition: strip.number, from: this.offset, to: this.place, start: strip.model.start, onChange: (to) => this.put(to) });
    } finally {
      this.isAsking = false;
      this.put(null);
      this.button.focus();
    }
  }
}

export class Cursors {
  constructor(strip) {
    this.strip = strip;
    this.flags = new Map();
    this.lanes = 0;
  }

  /** The stretch a cursor has before it, or would read again, is tinted in its colour. */
  tint(flag) {
    const { look } = this.strip;
    if (!flag) look.tint = null;
    else {
      const colour = resolved(hue(flag.name));
      look.tint = flag.draft === null ? [flag.offset, this.strip.model.end, colour] : [flag.draft, flag.offset, colour];
    }
    this.tinted = flag;
    this.strip.wake();
  }

  sync() {
    const seen = new Set();
    for (const { group, cursor } of cursorsOf(this.strip.topic, this.strip.number)) {
      seen.add(group.group);
      let flag = this.flags.get(group.group);
      if (!flag) {
        flag = new Flag(this, group);
        this.flags.set(group.group, flag);
        // Stems lie below all flags, whoever came first.
        this.strip.flags.prepend(flag.stem);
        this.strip.flags.append(flag.element);
      }
      flag.update(cursor);
    }
    for (const [name, flag] of this.flags) if (!seen.has(name)) { flag.stem.remove(); flag.element.remove(); this.flags.delete(name); }
  }

  draw(slotWidth, width) {
    this.sync();
    if (this.tinted && this.strip.look.tint) this.tint(this.tinted);
    const placed = [...this.flags.values()].map((flag) => ({ flag, x: this.strip.model.place(flag.place) * slotWidth, wide: (flag.wide ??= flag.button.offsetWidth) }));
    const isOut = ({ x }) => (x < -1 ? "left" : x > width + 1 ? "right" : "");
    // Those in sight stand at their place; the others line up at the side on which they are.
    placed.sort((one, other) => (isOut(one) !== "") - (isOut(other) !== "") || other.x - one.x || (one.flag.name < other.flag.name ? -1 : 1));
    const lanes = [];
    for (const one of placed) this.stand(one, isOut(one), width, lanes);
    this.setLanes(lanes.length);
    return placed.some(({ flag }) => flag.wide === null);
  }

  stand({ flag, x, wide }, out, width, lanes) {
    const shown = Math.max(1, Math.min(width - 1, x));
    const near = Math.max(0, Math.min(width - wide, shown > width * 0.5 ? shown - wide : shown));
    const isFree = (lane, from) => !lanes[lane]?.some(([first, next]) => from < next + GAP_PX && from + wide + GAP_PX > first);
    const spots = (lane) => (out === "" ? [near] : [near, ...(lanes[lane] ?? []).filter((other) => other[2] === out).map(([first, next]) => (out === "left" ? next + GAP_PX : first - GAP_PX - wide)).filter((from) => from >= 0 && from <= width - wide)]);
    let lane = 0;
    let from;
    while ((from = spots(lane).find((spot) => isFree(lane, spot))) === undefined) lane += 1;
    (lanes[lane] ??= []).push([from, from + wide, out]);
    if (flag.element.dataset.out !== out) { flag.element.dataset.out = out; flag.wide = null; } // its arrow takes room
    flag.element.style.transform = `translateX(${shown.toFixed(1)}px)`;
    flag.stem.style.transform = flag.element.style.transform;
    flag.stem.style.height = `${STEM_PX + lane * LANE_HEIGHT}px`;
    flag.stem.hidden = out !== "";
    flag.button.style.transform = `translate(${(from - shown).toFixed(1)}px, ${lane * LANE_HEIGHT}px)`;
    flag.bubble.style.setProperty("--shift", `${Math.max(90 - shown, Math.min(0, width - 90 - shown)).toFixed(0)}px`);
  }

  /** Room is made at once, and taken away only after a while: what one reads does not jump. */
  setLanes(lanes) {
    this.wanted = lanes;
    const set = () => { this.lanes = this.wanted; this.strip.flags.style.height = `${this.lanes * LANE_HEIGHT}px`; };
    if (lanes > this.lanes) set();
    else if (lanes < this.lanes) this.shrinking ??= setTimeout(() => { this.shrinking = null; set(); }, 1500);
  }
}
