// Which folds read what others write, as a tree from the topics that no fold writes. `foldlog fold graph` draws the same.

import { h } from "./dom.js";

const readsOf = (fold) => Object.keys(fold.topics ?? { [fold.topic]: 0 });
const topicLink = (topic) => h("a", { class: "node topic", href: `#/log/${encodeURIComponent(topic)}`, title: "Show it in the log" }, topic);

/** The tree; null while no fold reads another's topic, for then the cards tell it all. */
export function foldGraph(folds) {
  const written = new Set(folds.map((fold) => fold.writes).filter(Boolean));
  if (!written.size) return null;
  const drawn = new Set();
  const branches = (topic) => folds.filter((fold) => readsOf(fold).includes(topic)).map((fold) => {
    const isAgain = drawn.has(fold.fold);
    drawn.add(fold.fold);
    const others = readsOf(fold).filter((other) => other !== topic);
    return h("li", {},
      h("a", { class: "node fold", href: `#/folds/${encodeURIComponent(fold.fold)}`, "data-state": fold.error ? "bad" : fold.is_live ? "good" : "idle" }, fold.fold),
      isAgain ? h("span", { class: "quiet" }, " (above)") : [
        others.length ? h("span", { class: "quiet" }, ` with ${others.join(", ")}`) : null, " → ",
        fold.writes ? [topicLink(fold.writes), h("ul", {}, branches(fold.writes))] : h("span", { class: "node view" }, `${fold.kind} ${fold.view}`)]);
  });
  const sources = [...new Set(folds.flatMap(readsOf))].filter((topic) => !written.has(topic));
  return h("nav", { class: "card fold-graph", "aria-label": "The graph of folds" }, h("ul", {}, sources.map((topic) => h("li", {}, topicLink(topic), h("ul", {}, branches(topic))))));
}
