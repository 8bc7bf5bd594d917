// Draws one StripModel on a canvas. Reads colours from the style sheet, so that light and dark need no second code.

import { short } from "./words.js";

export const CELL_HEIGHT = 56;
const GLOW_MS = 1400;
const NAMES = ["cell", "cell-edge", "cell-ink", "cell-mute", "cell-blank", "glow", "accent", "hatch", "tomb", "same"];

let palette = null;
export const forgetPalette = () => { palette = null; };

/** A colour of the style sheet as the canvas takes it: what a variable stands for depends on light or dark. */
export function resolved(colour) {
  const probe = document.getElementById("said");
  probe.style.color = colour;
  return getComputedStyle(probe).color;
}

function colours() {
  if (!palette) {
    palette = Object.fromEntries(NAMES.map((name) => [name, resolved(`var(--${name})`)]));
    palette.mono = getComputedStyle(document.documentElement).getPropertyValue("--mono").trim();
  }
  return palette;
}

function box(context, x, y, width, height, left, right) {
  context.beginPath();
  context.roundRect(x, y, Math.max(0.5, width), height, [left, right, right, left]);
}

/** A text cut to fit, in its middle: names begin alike and numbers end differently. Monospaced: its width is a product. */
function fit(text, width, glyph) {
  const room = Math.floor(width / glyph);
  if (text.length <= room) return text;
  const kept = room - 1;
  return kept < 2 ? "" : `${text.slice(0, Math.floor(kept / 2))}…${text.slice(-Math.ceil(kept / 2))}`;
}

export class StripPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  resize(width) {
    this.width = width;
    const ratio = Math.min(3, devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(CELL_HEIGHT * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.font = null; // a new size makes the canvas forget it
  }

  /** True while something still moves or glows and another frame is due. */
  paint(model, slotWidth, look, at) {
    const { context, width } = this;
    const paint = colours();
    context.clearRect(0, 0, width, CELL_HEIGHT);
    const font = `${slotWidth >= 52 ? 11 : 10}px ${paint.mono}`;
    if (font !== this.font) {
      this.font = context.font = font;
      this.glyph = context.measureText("0").width;
    }
    let glowing = false;
    for (const slot of model.visible()) {
      const x = model.place(slot.offset) * slotWidth;
      const w = (model.place(slot.next) - model.place(slot.offset)) * slotWidth;
      if (x > width || x + w < 0) continue;
      if (slot.offset >= model.end) { if (slot.offset === model.end) this.unwritten(x, w, paint, slot.offset); }
      else if (slot.next <= model.start) { if (slot.offset >= 0) this.expired(x, w, paint, model.start - slot.offset); }
      else if (slot.isGap) this.gap(x, w, paint, slot);
      else glowing = this.cell(model, slot.offset, x, w, paint, look, at) || glowing;
    }
    return glowing;
  }

  unwritten(x, w, paint, offset) {
    const { context } = this;
    context.strokeStyle = paint["cell-mute"];
    context.globalAlpha = 0.55;
    context.setLineDash([3, 3]);
    box(context, x + 1.5, 1.5, w - 3, CELL_HEIGHT - 3, 5, 5);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = paint["cell-mute"];
    if (w >= 30) context.fillText(fit(String(offset), w - 12, this.glyph), x + 8, 17);
    context.globalAlpha = 1;
  }

  expired(x, w, paint, distance) {
    const { context } = this;
    context.globalAlpha = Math.max(0, 0.65 - distance * 0.15);
    context.strokeStyle = context.fillStyle = paint["cell-mute"];
    if (distance === 1 && w >= 60) context.fillText("expired", x + 8, CELL_HEIGHT / 2 + 4);
    context.setLineDash([2, 3]);
    box(context, x + 1, 1.5, w - 2, CELL_HEIGHT - 3, 5, 5);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  gap(x, w, paint, slot) {
    const { context } = this;
    context.save();
    box(context, x + 1, 8, w - 2, CELL_HEIGHT - 16, 3, 3);
    context.clip();
    context.strokeStyle = paint.hatch;
    context.lineWidth = 1;
    context.beginPath();
    for (let step = -CELL_HEIGHT; step < w; step += 6) { context.moveTo(x + step, CELL_HEIGHT); context.lineTo(x + step + CELL_HEIGHT, 0); }
    context.stroke();
    context.restore();
    const text = `gap ${short(slot.next - slot.offset)}`;
    if (w >= text.length * this.glyph + 8) {
      context.fillStyle = paint["cell-mute"];
      context.textAlign = "center";
      context.clearRect(x + w / 2 - (text.length * this.glyph) / 2 - 3, CELL_HEIGHT / 2 - 9, text.length * this.glyph + 6, 17);
      context.fillText(text, x + w / 2, CELL_HEIGHT / 2 + 4);
      context.textAlign = "left";
    }
  }

  cell(model, offset, x, w, paint, look, at) {
    const { context } = this;
    const known = model.cells.get(offset);
    const age = offset - model.start;
    // The oldest cells fade towards the retention edge: they are the next to go.
    const alpha = model.edge?.expires_ms && age < 8 ? 0.35 + age * 0.08 : 1;
    const narrow = w < 14;
    const first = !known || known.batch === offset || !model.cells.has(offset - 1);
    const after = model.cells.get(offset + 1);
    const last = !known || !after || after.batch !== known.batch;
    const inset = narrow ? 0.5 : 1;
    const left = x + (first ? inset : 0);
    const wide = w - (first ? inset : 0) - (last ? inset : narrow ? 0 : 0.5);
    context.globalAlpha = alpha;
    context.fillStyle = known ? (known.is_tombstone ? paint.tomb : paint.cell) : paint["cell-blank"];
    box(context, left, 1, wide, CELL_HEIGHT - 2, first ? 5 : 1, last ? 5 : 1);
    context.fill();
    const tinted = look.tint && offset >= look.tint[0] && offset < look.tint[1];
    if (tinted) { context.globalAlpha = 0.2 * alpha; context.fillStyle = look.tint[2]; context.fill(); context.globalAlpha = alpha; }
    const glow = this.glow(model, offset, at);
    if (glow > 0) { context.globalAlpha = glow; context.fillStyle = paint.glow; context.fill(); context.globalAlpha = alpha; }
    if (look.key && known?.key === look.key) { context.fillStyle = paint.same; context.fill(); }
    if (!narrow) { context.strokeStyle = paint["cell-edge"]; context.lineWidth = 1; context.stroke(); }
    if (known?.is_tombstone) this.cross(x, w, paint, narrow);
    if (w >= 34) this.inscribe(known, offset, x, w, paint);
    if (offset === look.selected) {
      context.strokeStyle = paint.accent;
      context.lineWidth = 2;
      box(context, x + 1, 2, w - 2, CELL_HEIGHT - 4, 5, 5);
      context.stroke();
    }
    context.globalAlpha = 1;
    return glow > 0;
  }

  cross(x, w, paint, narrow) {
    const { context } = this;
    const size = narrow ? 1.5 : 3.5;
    const cx = w >= 52 ? x + w - 11 : x + w / 2;
    const cy = w >= 52 ? 13 : CELL_HEIGHT / 2 + (w >= 34 ? 6 : 0);
    context.strokeStyle = paint["cell-mute"];
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(cx - size, cy - size);
    context.lineTo(cx + size, cy + size);
    context.moveTo(cx + size, cy - size);
    context.lineTo(cx - size, cy + size);
    context.stroke();
  }

  inscribe(known, offset, x, w, paint) {
    const { context } = this;
    const room = w - 14;
    context.fillStyle = paint["cell-mute"];
    const text = String(offset);
    // A long offset keeps its end: that is the part that differs from cell to cell.
    const fits = Math.floor((room - (known?.is_tombstone && w >= 52 ? 10 : 0)) / this.glyph);
    context.fillText(text.length <= fits ? text : `…${text.slice(1 - fits)}`, x + 8, 17);
    if (!known || w < 48) return;
    context.fillStyle = paint["cell-ink"];
    if (known.key === null) { context.globalAlpha *= 0.5; context.fillText(fit("no key", room, this.glyph), x + 8, 36); return; }
    context.fillText(fit(known.key, room, this.glyph), x + 8, 36);
    if (known.is_tombstone) return;
    // How large the value is, as a quiet bar: each doubling is a step.
    const share = Math.min(1, Math.max(0.06, Math.log2(1 + known.value_size) / 20));
    context.fillStyle = paint["cell-edge"];
    context.fillRect(x + 8, CELL_HEIGHT - 10, room, 2);
    context.fillStyle = paint["cell-mute"];
    context.fillRect(x + 8, CELL_HEIGHT - 10, room * share, 2);
  }

  glow(model, offset, at) {
    const since = model.arrived.get(offset);
    if (since === undefined) return 0;
    const left = 1 - (at - since) / GLOW_MS;
    if (left <= 0) { model.arrived.delete(offset); return 0; }
    return left * left;
  }
}
