// What the page knows of the broker: one overview, kept up to date by server-sent events. Rooms listen, none of them polls.

import * as api from "./api.js";

export const state = { overview: null, topics: new Map(), groups: new Map(), folds: new Map(), problems: [], connected: false };

const listeners = new Map();

/** Call `listener` on each event of this name; gives the function that ends it. */
export function on(name, listener) {
  if (!listeners.has(name)) listeners.set(name, new Set());
  listeners.get(name).add(listener);
  return () => listeners.get(name).delete(listener);
}

const tell = (name, data) => { for (const listener of [...(listeners.get(name) ?? [])]) listener(data); };

function keep(overview) {
  state.overview = overview;
  state.clockAhead = overview.now_ms - Date.now();
  for (const topic of overview.topics) {
    // Reckoned here, of one answer: the ends that events bring are newer than the durable offsets.
    for (const one of topic.partitions) one.unsynced = Math.max(0, one.end - one.durable);
  }
  state.topics = new Map(overview.topics.map((topic) => [topic.name, topic]));
  placed = null;
  state.groups = new Map(overview.groups.map((group) => [group.group, group]));
}

export const now = () => Date.now() + (state.clockAhead ?? 0);

export async function refresh() {
  keep(await api.overview());
  tell("topics");
  tell("groups");
}

let seeking = false;

/** A topic that the overview did not have yet: it came between that and the first event. */
function seek() {
  if (seeking) return;
  seeking = true;
  refresh().catch(() => {}).finally(() => { seeking = false; });
}

function setEnds(changed) {
  for (const [name, partitions] of Object.entries(changed)) {
    const topic = state.topics.get(name);
    if (!topic) { seek(); continue; }
    for (const [number, [start, end]] of Object.entries(partitions)) {
      const partition = topic.partitions[Number(number)];
      if (partition) { partition.start = start; partition.end = end; }
    }
  }
  tell("ends", changed);
}

function setGroups(changed) {
  for (const group of changed) state.groups.set(group.group, group);
  placed = null;
  tell("groups", changed);
}

function setFolds(changed) {
  for (const fold of changed) if (fold.is_gone) state.folds.delete(fold.fold); else state.folds.set(fold.fold, fold);
  tell("folds", changed);
}

const HANDLERS = {
  ends: setEnds,
  groups: setGroups,
  folds: setFolds,
  problems: (problems) => { state.problems = problems; tell("problems", problems); },
  topics: () => refresh().catch(() => {}),
  rates: (rates) => {
    for (const [name, one] of Object.entries(rates)) Object.assign(state.topics.get(name) ?? {}, one);
    tell("rates", rates);
  },
};

function connected(yes) {
  if (state.connected === yes) return;
  state.connected = yes;
  tell("connection", yes);
}

const HIDDEN_MS = 20000; // how long a page that nobody sees goes on listening

let source = null;
let retry = null;
let resting = null;
let hasListened = false;

function listen() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource("/api/events");
  const own = source;
  for (const [name, handle] of Object.entries(HANDLERS)) source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
  // After a broker's restart the topics may be others: what was known is asked for again.
  source.onopen = () => { connected(true); if (hasListened) refresh().catch(() => {}); hasListened = true; };
  source.onerror = () => {
    connected(false);
    if (own !== source || own.readyState !== EventSource.CLOSED) return;
    retry = setTimeout(listen, 2000);
    // Refused, not lost: a broker that was started again with another token asks for it on a page of its own.
    api.overview().catch((error) => { if (error.status === 401) location.reload(); });
  };
}

/** A browser has six connections for all pages of a host together, and a page that listens keeps one: those in the
 * background give theirs back after a while, and connect again when somebody looks. */
function seen() {
  clearTimeout(resting);
  if (document.hidden) resting = setTimeout(() => { clearTimeout(retry); source?.close(); source = null; connected(false); }, HIDDEN_MS);
  else if (!source) listen();
}

export async function start() {
  keep(await api.overview());
  listen();
  document.addEventListener("visibilitychange", seen);
  api.folds().then(setFolds, () => tell("folds", []));
}

let placed = null; // partition -> its cursors, until groups say something new

/** The cursors that stand in one partition, a group at a time. */
export function cursorsOf(topic, partition) {
  if (!placed) {
    placed = new Map();
    for (const group of state.groups.values()) {
      for (const cursor of group.cursors) {
        if (!cursor.is_committed) continue; // it stands nowhere yet
        const place = `${cursor.topic}/${cursor.partition}`;
        if (!placed.has(place)) placed.set(place, []);
        placed.get(place).push({ group, cursor });
      }
    }
  }
  return placed.get(`${topic}/${partition}`) ?? [];
}

/** Every partition that a fold reads: where it starts and ends now, which is newer than the fold's own entry, and where the fold is. A fold that joins has several topics. */
export function placesOf(fold) {
  return Object.entries(fold.topics ?? { [fold.topic]: fold }).flatMap(([topic, { bookmark, end: ends }]) => {
    const partitions = state.topics.get(topic)?.partitions ?? Object.entries(ends).map(([partition, end]) => ({ partition: Number(partition), start: 0, end }));
    return partitions.map(({ partition, start, end }) => ({ topic, partition, start, end, at: bookmark[partition] }));
  });
}

export const lagOf = (fold) => placesOf(fold).reduce((sum, one) => sum + Math.max(0, one.end - Math.max(one.start, one.at ?? one.start)), 0);

/** How far a group is behind, in all its partitions. */
export const groupLag = (group) => group.cursors.reduce((total, cursor) => total + Math.max(0, cursor.lag), 0);

export const isInternalGroup = (group) => group.group.startsWith("__"); // the log’s own, as topics so named are

/** A group's state in a word, and whether it is one to worry about. A fold reads without joining its group, for which
 * Kafka's word is empty: its runner says how it is. */
export function standing(group) {
  const fold = group.is_fold ? state.folds.get(foldName(group.group)) : undefined;
  const isBad = state.problems.some((one) => (one.resource === "group" && one.name === group.group) || (fold && one.resource === "fold" && one.name === fold.fold));
  if (fold) return { text: fold.is_live ? fold.state : fold.is_stopped ? "stopped" : "not running", isBad: isBad || Boolean(fold.error) };
  return { text: isBad ? "died" : group.state, isBad };
}

export const foldName = (group) => group.replace(/^fold\./, "");

const COLOURS = 8;
const hues = new Map();

/** The colour that a name asks for, whoever else there is. */
const wanted = (name) => [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) >>> 0, 7) % COLOURS;

function chosenHue(name) {
  const key = `foldlog.hue.${name}`;
  try { if (/^[0-7]$/.test(localStorage.getItem(key))) return Number(localStorage.getItem(key)); } catch { /* nothing is kept here */ }
  // The next that is free, while one is: few groups never share a colour.
  const taken = new Set(hues.values());
  let chosen = wanted(name);
  for (let tries = 0; tries < COLOURS && taken.has(chosen); tries += 1) chosen = (chosen + 1) % COLOURS;
  try { localStorage.setItem(key, String(chosen)); } catch { /* the next page may choose another */ }
  return chosen;
}

/** A colour of the palette for each group: the same on every page of this browser, whichever groups come and go. */
export function hue(group) {
  if (!hues.has(group)) {
    for (const name of [...state.groups.keys(), group].sort()) if (!hues.has(name)) hues.set(name, chosenHue(name));
  }
  return `var(--hue-${hues.get(group)})`;
}
