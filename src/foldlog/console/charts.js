// Small charts as SVG: the lag of a fold, and lines over time for counters. Nothing moves in them.

import { h, s } from "./dom.js";
import { clock, number, short } from "./words.js";

const path = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function niceTop(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((step) => step * unit).find((step) => step >= value);
}

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

/** Lines over time, one for each series, with a legend that is readable without colours: each has its newest number. */
export function lines(series, label, place) {
  const [width, height, left, bottom, right, top] = [Math.max(280, Math.min(860, place)), 230, 46, 24, 10, 10];
  const every = series.flatMap((one) => one.points);
  if (!every.length) return h("p", { class: "quiet" }, "Nothing is counted yet.");
  const [first, last] = [Math.min(...every.map(([at]) => at)), Math.max(...every.map(([at]) => at))];
  const highest = niceTop(Math.max(1, ...every.map(([, value]) => value)));
  const x = (at) => left + ((at - first) / Math.max(1, last - first)) * (width - left - right);
  const y = (value) => height - bottom - (value / highest) * (height - bottom - top);
  const grid = [0, 0.25, 0.5, 0.75, 1].map((share) => [
    s("line", { x1: left, x2: width - right, y1: y(share * highest), y2: y(share * highest), class: "grid" }),
    s("text", { x: left - 8, y: y(share * highest) + 4, "text-anchor": "end" }, short(share * highest)),
  ]);
  const ticks = [0, 0.5, 1].map((share) => s("text", { x: x(first + share * (last - first)), y: height - 6, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, clock(first + share * (last - first)).slice(0, 5)));
  const drawn = series.map((one, index) => {
    const points = [...one.points].sort((a, b) => a[0] - b[0]).map(([at, value]) => [x(at), y(value)]);
    return points.length === 1 ? s("circle", { cx: points[0][0], cy: points[0][1], r: 3, style: { fill: `var(--hue-${index % 8})` } }) : s("path", { class: "line", d: path(points), style: { stroke: `var(--hue-${index % 8})` } });
  });
  return h("figure", { class: "chart" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, grid, ticks, drawn),
    h("figcaption", {}, series.map((one, index) => h("span", {}, h("i", { style: { background: `var(--hue-${index % 8})` } }), one.name, " ", h("b", { class: "mono" }, number(one.points.reduce((newest, point) => (point[0] >= newest[0] ? point : newest), one.points[0] ?? [0, 0])[1]))))));
}
