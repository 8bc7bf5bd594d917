// Small charts as SVG: the lag of a fold, and lines over time for counters. Nothing moves in them.

import { elided, h, s } from "./dom.js";
import { clock, number, short } from "./words.js";

const path = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** The end of an axis: four times a round number, so that the lines between are round, too. */
function niceTop(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 4.8, 6, 8, 10].map((step) => step * unit).find((step) => step >= value * 0.9999);
}

/** A number at an axis: with as many decimals as tell it from its neighbours. */
const atAxis = (value, highest) => (highest < 100 && !Number.isInteger(highest / 4) ? String(Number(value.toFixed(2))) : short(value));

const SHOWN_MS = 5 * 60 * 1000;
const SILENT_MS = 15000; // between two points further apart nobody looked: the line there is a guess, and dashed

/** How far behind something was over the last five minutes: [time, lag], oldest first, up to now. */
export function lagChart(points, now) {
  const [width, height] = [240, 48];
  const highest = niceTop(Math.max(10, ...points.filter(([at]) => at >= now - SHOWN_MS).map(([, lag]) => lag)));
  const line = points.map(([at, lag]) => [width - ((now - at) / SHOWN_MS) * width, height - 1 - (lag / highest) * (height - 4), at]);
  const pieces = line.slice(1).map((to, index) => ({ from: line[index], to, isGuess: to[2] - line[index][2] > SILENT_MS }));
  const drawn = (isGuess) => pieces.filter((one) => one.isGuess === isGuess).map(({ from, to }) => path([from, to])).join("");
  const lag = points.length ? points[points.length - 1][1] : 0;
  return h("figure", { class: "lag-chart", role: "img", "aria-label": `Lag over the last five minutes, from 0 to ${number(highest)}; now ${number(lag)}` },
    h("span", { class: "mono" }, short(highest)), h("span", { class: "mono" }, "0"),
    s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      line.length > 1 && s("path", { class: "area", d: `${path(line)}L${line[line.length - 1][0]} ${height}L${line[0][0]} ${height}Z` }),
      s("path", { class: "line", d: drawn(false), "vector-effect": "non-scaling-stroke" }),
      s("path", { class: "line guess", d: drawn(true), "vector-effect": "non-scaling-stroke" })),
    h("figcaption", { class: "quiet" }, h("span", {}, "5 min ago"), h("span", {}, "lag now: ", h("b", { class: "mono" }, number(lag)))));
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((minutes) => minutes * 60000);

/** Round times between two, at most about so many. */
function times(first, last, most) {
  const step = STEPS.find((one) => (last - first) / one <= most) ?? last - first;
  const zone = new Date(first).getTimezoneOffset() * 60000;
  const found = [];
  for (let at = Math.ceil((first - zone) / step) * step + zone; at <= last; at += step) found.push(at);
  return found;
}

/** The pieces of a line: it breaks where nothing was sampled. */
function pieces(points, step) {
  const found = [[]];
  for (const [at, value] of points) {
    const piece = found[found.length - 1];
    const before = piece[piece.length - 1];
    if (value === null) { if (before) found.push([]); continue; }
    if (before && step && at - before[0] > 3 * step) found.push([]);
    found[found.length - 1].push([at, value]);
  }
  return found.filter((piece) => piece.length);
}

const newest = (points) => points.reduce((found, point) => (point[1] !== null && point[0] >= found[0] ? point : found), [0, 0])[1];

/** Lines over time, one for each series, with a legend that is readable without colours: each has its newest number.
 * `from` and `to` are the ends of the axis, else those of the points; a line breaks where points are 3 `step`s apart. */
export function lines(series, label, place, { from, to, step, text = number, none = "Nothing is counted yet." } = {}) {
  const [width, height, left, bottom, right, top] = [Math.max(280, Math.min(1180, place)), 230, 52, 24, 10, 10];
  const every = series.flatMap((one) => one.points).filter(([, value]) => value !== null);
  if (!every.length) return h("p", { class: "quiet" }, none);
  const [first, last] = [from ?? Math.min(...every.map(([at]) => at)), to ?? Math.max(...every.map(([at]) => at))];
  const isWhole = text === number; // then there is nothing between 0 and 1
  const highest = niceTop(Math.max(isWhole ? 4 : 0.4, ...every.map(([, value]) => value)));
  const x = (at) => left + ((at - first) / Math.max(1, last - first)) * (width - left - right);
  const y = (value) => height - bottom - (value / highest) * (height - bottom - top);
  const grid = [0, 0.25, 0.5, 0.75, 1].map((share) => [
    s("line", { x1: left, x2: width - right, y1: y(share * highest), y2: y(share * highest), class: "grid" }),
    s("text", { x: left - 8, y: y(share * highest) + 4, "text-anchor": "end" }, atAxis(share * highest, highest)),
  ]);
  const marks = from ? times(first, last, Math.min(6, (width - left) / 56)).map((at) => [at, Math.abs(x(at) - left) < 18 ? "start" : width - right - x(at) < 18 ? "end" : "middle"]) : [[first, "start"], [(first + last) / 2, "middle"], [last, "end"]];
  const ticks = marks.map(([at, anchor]) => s("text", { x: x(at), y: height - 6, "text-anchor": anchor }, clock(at).slice(0, 5)));
  const colour = (one, index) => one.colour ?? `var(--hue-${index % 8})`;
  const drawn = series.flatMap((one, index) => pieces([...one.points].sort((a, b) => a[0] - b[0]).filter(([at]) => at >= first), step).map((piece) => {
    const points = piece.map(([at, value]) => [x(at), y(value)]);
    return points.length === 1 ? s("circle", { cx: points[0][0], cy: points[0][1], r: 3, style: { fill: colour(one, index) } }) : s("path", { class: "line", d: path(points), style: { stroke: colour(one, index) } });
  }));
  return h("figure", { class: "chart" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label}, from 0 to ${atAxis(highest, highest)}` }, grid, ticks, drawn),
    h("figcaption", {}, series.map((one, index) => h("span", {}, h("i", { style: { background: colour(one, index) } }), elided(one.name), " ", h("b", { class: "mono" }, text(newest(one.points)))))));
}

/** A line without axes for a cell of a table; its numbers stand beside it. */
export function spark(points, label) {
  const known = points.filter(([, value]) => value !== null);
  if (known.length < 2) return null;
  const [width, height] = [110, 24];
  const highest = Math.max(1, ...known.map(([, value]) => value));
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const d = pieces(points).map((piece) => path(piece.map(([at, value]) => [((at - first) / Math.max(1, last - first)) * width, height - 2 - (value / highest) * (height - 4)]))).join("");
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}, at most ${number(highest)}` }, s("path", { d, "vector-effect": "non-scaling-stroke" }));
}
