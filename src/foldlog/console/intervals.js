// A set of whole numbers as sorted, separate, half-open intervals [first, next). Pure.

export class Intervals {
  constructor() { this.list = []; }

  /** How many intervals end at or before `value`: the index of the first that may hold it. */
  index(value) {
    let low = 0;
    let high = this.list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.list[middle][1] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  add(first, next) {
    if (next <= first) return;
    let from = this.index(first);
    if (from > 0 && this.list[from - 1][1] === first) from -= 1;
    let to = from;
    while (to < this.list.length && this.list[to][0] <= next) {
      first = Math.min(first, this.list[to][0]);
      next = Math.max(next, this.list[to][1]);
      to += 1;
    }
    this.list.splice(from, to - from, [first, next]);
  }

  /** The interval that holds `value`, or null. */
  holding(value) {
    const found = this.list[this.index(value)];
    return found && found[0] <= value ? found : null;
  }

  /** The first stretch within [first, next) that is not in the set, or null. */
  missing(first, next) {
    const held = this.holding(first);
    const from = held ? held[1] : first;
    if (from >= next) return null;
    const after = this.list[this.index(from)];
    return [from, after ? Math.min(next, after[0]) : next];
  }

  *within(first, next) {
    for (let at = this.index(first); at < this.list.length && this.list[at][0] < next; at += 1) yield this.list[at];
  }

  clear() { this.list = []; }
}
