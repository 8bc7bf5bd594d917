// The room of folds: a card for each view. Commands go to the fold's runner through the log; without one, the card shows
// what to type.

import * as api from "./api.js";
import { lagChart } from "./charts.js";
import { commandLine, empty, h, icon, isBusy, isSelected, put, toast } from "./dom.js";
import { askFold, rewindFold } from "./fold_changes.js";
import { foldGraph } from "./fold_graph.js";
import { Peek } from "./peek.js";
import { placesOf, hue, lagOf, now, on, state } from "./store.js";
import { term } from "./terms.js";
import { ago, counted, number, rate, sentence, short } from "./words.js";

export const isLost = (fold) => !fold.is_live && !fold.is_stopped;

/** Of a fold whose runner has gone without a word. */
export const lost = (fold) => `Its runner ${fold.runner} last reported ${ago(fold.updated_ms, now())}, and did not stop in order: it was killed, or cannot reach the log. ${counted(lagOf(fold), "record")} behind.`;

const DOING = { rewind: "Rewinding", rebuild: "Rebuilding", verify: "Verifying" };

class Card {
  constructor(fold) {
    this.name = fold.fold;
    this.state = h("span", { class: "chip" });
    this.numbers = { lag: h("b", { class: "mono" }), speed: h("b", { class: "mono" }), rows: h("b", { class: "mono" }), dead: h("b", { class: "mono" }) };
    this.chart = h("div", {});
    this.places = h("div", { class: "places" });
    this.work = h("div", { class: "work", role: "status" });
    this.message = h("div", { class: "message" });
    this.source = h("p", { class: "quiet" });
    this.peekPlace = h("div", { class: "peek-place" });
    const act = (verb, label) => h("button", { class: "button small", type: "button", "data-verb": verb, onclick: () => this.act(verb) }, icon(verb), label);
    this.buttons = [act("rewind", "Rewind"), act("rebuild", "Rebuild"), act("verify", "Verify"), act("pause", "Pause"), act("resume", "Resume")];
    this.peekButton = h("button", { class: "button small", type: "button", "aria-expanded": "false", onclick: () => this.togglePeek() }, icon("peek"), "Peek");
    const figure = (name, value) => h("div", { class: "figure" }, value, h("span", {}, name));
    this.element = h("article", { class: "card fold-card", "data-fold": fold.fold, style: { "--hue": hue(`fold.${fold.fold}`) } },
      h("header", {}, h("h2", {}, fold.fold), h("span", { class: "chip kind" }, fold.kind), this.state), this.source,
      h("div", { class: "figures" }, figure(term("lag", "behind"), this.numbers.lag), figure(term("rows", "rows/s"), this.numbers.speed), figure("rows written", this.numbers.rows), figure(term("deadletter", "dead letters"), this.numbers.dead)),
      this.chart, this.places, this.work, this.message, h("div", { class: "buttons" }, this.buttons, this.peekButton), this.peekPlace);
    this.update(fold);
  }

  update(fold) {
    this.fold = fold;
    const { numbers } = this;
    put(this.state, fold.is_live ? fold.state : fold.is_stopped ? "stopped" : "not running");
    this.state.dataset.state = fold.error || isLost(fold) ? "bad" : fold.is_live ? "good" : "idle";
    put(this.source, "from ", Object.keys(fold.topics ?? { [fold.topic]: 0 }).flatMap((topic, index) => [index ? " and " : "", h("a", { href: `#/log/${encodeURIComponent(topic)}` }, topic)]), " into ", fold.writes ? ["topic ", h("a", { href: `#/log/${encodeURIComponent(fold.writes)}` }, fold.writes)] : fold.view, ". ", h("a", { href: `#/groups/${encodeURIComponent(`fold.${fold.fold}`)}` }, "Its last hours"));
    put(numbers.lag, short(lagOf(fold)));
    put(numbers.speed, rate(fold.rows_per_s ?? 0));
    put(numbers.rows, fold.rows === null || fold.rows === undefined ? short(fold.records ?? 0) : short(fold.rows));
    put(numbers.dead, number(fold.dead_letters ?? 0));
    numbers.dead.classList.toggle("warned", fold.dead_letters > 0);
    // Up to now, from the log's end and the bookmark: a runner that was killed has said nothing of what came since.
    put(this.chart, lagChart([...fold.history.filter(([at]) => at < now()), [now(), lagOf(fold)]], now()));
    this.showPlaces(fold);
    this.showWork(fold);
    this.peekButton.hidden = !fold.can_peek;
    this.buttons[0].hidden = fold.is_additive; // what it reads again it would count twice
    const isHeld = fold.state === "paused" || fold.state === "failed";
    this.buttons[3].hidden = !fold.is_live || isHeld;
    this.buttons[4].hidden = !fold.is_live || !isHeld;
    for (const button of this.buttons) button.disabled = Boolean(fold.doing) || state.overview.read_only || (button.dataset.verb === "rewind" && !this.canRewind());
    this.peek?.update(fold);
  }

  showPlaces(fold) {
    put(this.places, placesOf(fold).map(({ topic, partition, start, end, at: stands }) => {
      const at = stands ?? start;
      return h("a", { class: "place", href: `#/log/${encodeURIComponent(topic)}/${partition}/${Math.max(0, Math.min(at, end - 1))}`, title: "Show it in the log" },
        h("span", { class: "quiet" }, fold.topics ? `${topic} ${partition}` : String(partition)), h("span", { class: "mono" }, number(at)), h("span", { class: "meter" }, h("i", { style: { width: `${end > start ? Math.max(0, Math.min(100, ((at - start) / (end - start)) * 100)) : 100}%` } })), h("span", { class: "mono quiet" }, number(end)));
    }));
  }

  showWork(fold) {
    const { doing } = fold;
    if (doing) {
      const share = doing.total ? Math.min(1, doing.done / doing.total) : 0;
      const text = `${DOING[doing.verb] ?? doing.verb}: ${short(doing.done)} of ${short(doing.total)} records`;
      put(this.work, h("label", {}, text, h("progress", { max: "1", value: String(share), "aria-label": text })));
    } else if (fold.command && !fold.command.is_taken && fold.is_live) put(this.work, h("p", { class: "notice" }, `Asked to ${fold.command.verb}; its runner starts after the current range.`));
    else if (fold.result) put(this.work, h("div", { class: "notice" }, h("p", {}, sentence(fold.command?.verb === "rewind" ? `last rewind: ${fold.result}` : fold.result)), this.lossButton(fold)));
    else put(this.work);
    const notes = [fold.error && h("p", { class: "notice bad" }, sentence(fold.error))];
    if (fold.skipped) notes.push(h("p", { class: "notice warn" }, `${counted(fold.skipped, "record")} were skipped: the log no longer held them.`));
    if (fold.mixes) notes.push(h("p", { class: "notice warn" }, "Its function has changed: old and new logic mix in this view until it is rebuilt."));
    if (!fold.error && isLost(fold)) notes.push(h("p", { class: "notice bad" }, lost(fold)));
    const helps = state.problems.find((one) => one.resource === "fold" && one.name === fold.fold)?.command;
    if (helps && !fold.is_live) notes.push(commandLine(helps));
    if (!fold.error && !isLost(fold) && !fold.is_live && fold.updated_ms) notes.push(h("p", { class: "quiet" }, `Stopped ${ago(fold.updated_ms, now())}.`));
    if (!fold.is_proven) notes.push(h("p", { class: "quiet" }, "The runner that publishes this has not proven that it belongs to this directory."));
    if (!this.typed && !isBusy(this.message)) put(this.message, notes);
  }

  /** A rebuild that was refused because the log no longer holds everything can be asked for all the same. */
  lossButton(fold) {
    if (!fold.is_live || fold.doing || state.overview.read_only || fold.command?.verb !== "rebuild" || !/--accept-loss/.test(fold.result)) return null;
    return h("button", { class: "button small", type: "button", onclick: () => this.send({ verb: "rebuild", accept_loss: true }) }, "Rebuild, and accept the loss");
  }

  type(line, text) {
    this.typed = true;
    put(this.message, h("div", { class: "notice" }, h("p", {}, text), commandLine(line), h("button", { class: "button small", type: "button", onclick: () => { this.typed = false; put(this.message); this.update(this.fold); } }, "Done")));
  }

  async act(verb) {
    const { fold } = this;
    if (verb === "rewind") { await rewindFold(fold); return; }
    if (!fold.is_live) { this.type(fold.command_lines[verb], `Nobody runs ${fold.fold} now. Type this where its file is:`); return; }
    await askFold(fold, verb);
  }

  async send(command) {
    try {
      await api.foldCommand(this.name, command);
      toast(`${this.name} was asked to ${command.verb}.`);
    } catch (error) {
      if (error.answer?.command_line) this.type(error.answer.command_line, sentence(error.message));
      else toast(sentence(error.message), "bad");
    }
  }

  /** Whether it has read something that the log still holds. */
  canRewind() { return placesOf(this.fold).some((one) => one.at > one.start); }

  togglePeek() {
    if (this.peek) { this.peek.end(); this.peek = null; put(this.peekPlace); } else { this.peek = new Peek(this.fold); put(this.peekPlace, this.peek.element); }
    this.peekButton.setAttribute("aria-expanded", String(Boolean(this.peek)));
    this.element.classList.toggle("wide", Boolean(this.peek));
  }
}

export function enter(element, path) {
  const cards = new Map();
  const grid = h("div", { class: "cards" });
  const head = h("div", { class: "room-head" }, h("h1", {}, "Folds"), h("p", { class: "quiet" }, "A ", term("fold"), " turns the ", term("log"), " into a ", term("view"), ". Each has its own bookmark, and can ", term("rewind"), ", ", term("rebuild"), " or ", term("verify"), " without disturbing the others."));
  const graph = h("div", {});
  put(element, h("div", { class: "page" }, head, graph, grid));
  let drawn = "";
  const showGraph = () => {
    // Only what it shows: a graph that is drawn anew with every record cannot be clicked.
    const folds = [...state.folds.values()];
    const wanted = JSON.stringify(folds.map((fold) => [fold.fold, fold.topic, Object.keys(fold.topics ?? {}), fold.writes, fold.view, fold.is_live, Boolean(fold.error)]));
    if (wanted !== drawn) { drawn = wanted; put(graph, foldGraph(folds)); }
  };
  const show = () => {
    showGraph();
    for (const [name, card] of cards) if (!state.folds.has(name)) { card.peek?.end(); card.element.remove(); cards.delete(name); }
    for (const fold of state.folds.values()) {
      const card = cards.get(fold.fold);
      if (card) { if (!isSelected(card.element)) card.update(fold); }
      else { const made = new Card(fold); cards.set(fold.fold, made); grid.append(made.element); if (path[0] === fold.fold && fold.can_peek) made.togglePeek(); }
    }
    if (!cards.size) put(grid, grid.querySelector(".empty") ?? empty("No folds yet", "Declare them in a Python file, run it, and each view has its card here.", commandLine(`foldlog fold run folds.py ${[null, ":memory:"].includes(state.overview.directory) ? `-b ${state.overview.bootstrap}` : `-d ${state.overview.directory}`}`)));
    else grid.querySelector(".empty")?.remove();
  };
  show();
  const offs = [on("folds", show), on("rates", show)];
  return () => { for (const off of offs) off(); for (const card of cards.values()) card.peek?.end(); };
}
