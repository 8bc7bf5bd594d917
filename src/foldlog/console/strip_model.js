// One partition as a window of slots: a slot is one record, or one gap that compaction left, however wide. Pure: no DOM.
//
// The window hangs on `right`, a fractional offset at its right edge, and is measured in slots to the left of it, so that
// newly learnt gaps never move what is being looked at. Offsets outside the window cost nothing.

import { Intervals } from "./intervals.js";

const TAIL_SLOTS = 1.35; // room after the end, for the cell that is not written yet
const EXPIRED_SLOTS = 3; // how far one can look over the retention edge
const KEPT_CELLS = 6000;
const ASK_CELLS = 400;

export class StripModel {
  constructor(topic, partition, start, end) {
    Object.assign(this, { topic, partition, start, end });
    this.cells = new Map();
    this.known = new Intervals();
    this.gaps = new Intervals();
    this.edge = null;
    this.right = end + TAIL_SLOTS;
    this.following = true;
    this.aim = null; // the place last jumped to, until all around it is known
    this.slots = 20;
    this.reach = 200;
    this.arrived = new Map(); // offset -> when it was first seen arriving, for its glow
  }

  setEnds(start, end, at) {
    if (end < this.end) this.forget(); // a topic of the same name, made anew
    if (at !== undefined) for (let offset = Math.max(this.end, end - 64); offset < end; offset += 1) this.arrived.set(offset, at);
    if (this.arrived.size > 256) for (const offset of this.arrived.keys()) if (offset < end - 128) this.arrived.delete(offset);
    this.start = start;
    this.end = end;
  }

  forget() {
    this.cells.clear();
    this.known.clear();
    this.gaps.clear();
    this.arrived.clear();
    this.reach = 200;
  }

  /** What is known stays to be drawn, and is asked for again. */
  stale() {
    this.known.clear();
    this.reach = 200;
  }

  merge(answer) {
    this.edge = answer.edge;
    this.held = answer.held;
    this.start = Math.max(this.start, answer.start);
    this.end = Math.max(this.end, answer.end);
    for (const [first, next] of answer.gaps) {
      this.gaps.add(first, next);
      for (let offset = first; offset < next && next - first <= KEPT_CELLS; offset += 1) this.cells.delete(offset);
    }
    for (const cell of answer.cells) this.cells.set(cell.offset, cell);
    this.known.add(answer.from, answer.next);
    if (this.cells.size > KEPT_CELLS) this.prune();
    this.settle();
  }

  /** A place that was jumped to may lie in a gap that nobody knew of, which takes up the room of one slot. */
  settle() {
    if (this.following) return;
    if (this.aim) this.show(...this.aim);
    else this.right = this.clamp(this.right);
    if (!this.wanted()) this.aim = null;
  }

  prune() {
    const left = this.left() - 1000;
    const right = this.right + 1000;
    for (const offset of this.cells.keys()) if (offset < left || offset > right) this.cells.delete(offset);
    const kept = new Intervals();
    for (const [first, next] of this.known.within(left, right)) kept.add(Math.max(first, Math.floor(left)), Math.min(next, Math.ceil(right)));
    this.known = kept;
  }

  /** `offset` moved left by so many slots. */
  back(offset, slots) {
    const list = this.gaps.list;
    let at = this.gaps.index(offset);
    if (list[at] && list[at][0] < offset) at += 1;
    while (slots > 0) {
      const gap = list[at - 1];
      if (!gap) return offset - slots;
      const [first, next] = gap;
      if (offset > next) {
        if (offset - slots >= next) return offset - slots;
        slots -= offset - next;
        offset = next;
      }
      const share = (offset - first) / (next - first);
      if (share >= slots) return offset - slots * (next - first);
      slots -= share;
      offset = first;
      at -= 1;
    }
    return offset;
  }

  /** `offset` moved right by so many slots. */
  forward(offset, slots) {
    const list = this.gaps.list;
    let at = this.gaps.index(offset);
    while (slots > 0) {
      const gap = list[at];
      if (!gap) return offset + slots;
      const [first, next] = gap;
      if (offset < first) {
        if (offset + slots <= first) return offset + slots;
        slots -= first - offset;
        offset = first;
      }
      const share = (next - offset) / (next - first);
      if (share >= slots) return offset + slots * (next - first);
      slots -= share;
      offset = next;
      at += 1;
    }
    return offset;
  }

  /** Slots between two offsets, first <= next. */
  between(first, next) {
    let slots = next - first;
    for (const [gapFirst, gapNext] of this.gaps.within(first, next)) {
      const overlap = Math.min(next, gapNext) - Math.max(first, gapFirst);
      slots -= overlap - overlap / (gapNext - gapFirst);
    }
    return slots;
  }

  left() { return this.back(this.right, this.slots); }

  /** Where an offset stands, in slots from the left edge; negative or beyond `slots` when it is outside. */
  place(offset) {
    return offset <= this.right ? this.slots - this.between(offset, this.right) : this.slots + this.between(this.right, offset);
  }

  offsetAt(slot) { return slot <= this.slots ? this.back(this.right, this.slots - slot) : this.forward(this.right, slot - this.slots); }

  rightmost() { return this.end + TAIL_SLOTS; }

  leftmost() {
    const fromStart = this.forward(this.start, Math.max(1, this.slots - (this.start > 0 ? EXPIRED_SLOTS : 0.5)));
    return Math.min(fromStart, this.rightmost());
  }

  clamp(right) { return Math.max(this.leftmost(), Math.min(this.rightmost(), right)); }

  scroll(slots) {
    this.aim = null;
    const moved = slots < 0 ? this.back(this.right, -slots) : this.forward(this.right, slots);
    this.right = this.clamp(moved);
    this.following = this.right >= this.rightmost() - 0.01;
  }

  /** Bring an offset to a share of the width, the middle unless told. */
  show(offset, share = 0.5) {
    this.aim = [offset, share];
    this.right = this.clamp(this.forward(offset, this.slots * (1 - share)));
    this.following = this.right >= this.rightmost() - 0.01;
  }

  follow() {
    this.aim = null;
    this.following = true;
  }

  /** The end that is shown: when records come faster than they can be asked for, the last one that is known. */
  shownEnd() {
    const last = this.known.list.at(-1)?.[1];
    return last !== undefined && this.end - last > this.slots ? last : this.end;
  }

  /** One step of the glide towards the end; true while it is still moving. */
  glide(atOnce) {
    if (!this.following) return false;
    const target = this.shownEnd() + TAIL_SLOTS;
    const distance = target - this.right;
    if (Math.abs(distance) < 0.004) return false;
    if (atOnce || Math.abs(distance) > this.slots || distance < 0) this.right = target;
    else this.right += Math.max(distance * 0.16, 0.01);
    return true;
  }

  /** What to ask the broker for next, or null when all in the window is known. */
  wanted() {
    const cells = Math.min(ASK_CELLS, Math.ceil(this.slots) + 8);
    if (this.following && this.shownEnd() < this.end) return { from: -1, cells };
    const first = Math.max(this.start, Math.floor(this.left()) - 2);
    const next = Math.min(this.end, Math.ceil(this.right) + 2);
    if (next <= first) return null;
    const missing = this.known.missing(first, next);
    if (!missing) return null;
    const [from, to] = missing;
    if (this.following && to >= this.end && to - from >= cells) return { from: -1, cells };
    if (this.known.holding(to)) return { from: Math.max(this.start, Math.min(from, to - this.reach)), cells: ASK_CELLS };
    return { from: Math.max(this.start, from), cells };
  }

  /** A stretch without records asks for a longer one next time: a gap of millions is crossed in a few questions. */
  learnt(answer, query) {
    if (query.from < 0) return;
    this.reach = answer.cells.length === 0 ? Math.min(this.reach * 4, 1e9) : 200;
  }

  /** The slots of the window, left to right. */
  *visible() {
    let offset = Math.floor(this.left());
    const gap = this.gaps.holding(offset);
    if (gap) offset = gap[0];
    const stop = Math.min(this.right, this.end + 2);
    while (offset < stop) {
      const here = this.gaps.holding(offset);
      const next = here ? here[1] : offset + 1;
      yield { offset, next, isGap: Boolean(here) };
      offset = next;
    }
  }

  /** The next record to the left or right of an offset, within what is there. */
  neighbour(offset, direction) {
    let to = offset + direction;
    const gap = this.gaps.holding(to);
    if (gap) to = direction < 0 ? gap[0] - 1 : gap[1];
    return Math.max(this.start, Math.min(this.end - 1, to));
  }

  /** The boundary a cursor would stand at: a gap has only its right end. */
  snap(offset) {
    const whole = Math.round(offset);
    const gap = this.gaps.holding(whole);
    return Math.max(this.start, Math.min(this.end, gap && whole > gap[0] ? gap[1] : whole));
  }
}
