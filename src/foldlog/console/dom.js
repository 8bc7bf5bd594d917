// Elements from plain values. Text is only ever set as text, so nothing that a record holds can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Replace what an element holds; nothing happens when `children` is one text that is there already. */
export function put(element, ...children) {
  if (children.length === 1 && typeof children[0] === "string") {
    if (element.textContent !== children[0]) element.textContent = children[0];
  } else element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PATHS = {
  home: "M4 11l8-7 8 7M6 9.5V20h12V9.5M10 20v-5h4v5",
  log: "M3 7h4v10H3zM10 7h4v10h-4zM17 7h4v10h-4z",
  folds: "M4 5h10l6 6v8H4zM14 5v6h6",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 19c0-3 2.5-5 5.5-5s5.5 2 5.5 5M16.5 11a2.5 2.5 0 1 0 0-5M16.5 14c2.8 0 5 1.8 5 5",
  access: "M6 11h12v9H6zM8.5 11V7.5a3.5 3.5 0 0 1 7 0V11",
  pause: "M8 5v14M16 5v14",
  resume: "M7 5l12 7-12 7z",
  health: "M3 12h4l2.5-6 4 12 2.5-6h5",
  scene: "M4 6h7v5H4zM13 13h7v5h-7zM7.5 11v4.5H13",
  close: "M6 6l12 12M18 6L6 18",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  copy: "M9 9h10v10H9zM5 15V5h10",
  rewind: "M12 6l-7 6 7 6zM20 6l-7 6 7 6z",
  rebuild: "M4 12a8 8 0 0 1 14-5.3L20 9M20 4v5h-5M20 12a8 8 0 0 1-14 5.3L4 15M4 20v-5h5",
  verify: "M5 12.5l4.5 4.5L19 7.5",
  peek: "M2.5 12S6 6 12 6s9.5 6 9.5 6-3.5 6-9.5 6-9.5-6-9.5-6zM12 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  minus: "M6 12h12",
  plus: "M6 12h12M12 6v12",
  live: "M4 6v12M8 12h12M15 7l5 5-5 5",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  light: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  dark: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
};

const TAIL = 10;

/** A name that is cut in its middle where it does not fit: its end tells it from its neighbours. */
export function elided(name) {
  const letters = [...name];
  return letters.length <= TAIL + 4 ? name : h("span", { class: "elided", title: name }, h("span", {}, letters.slice(0, -TAIL).join("")), h("span", {}, letters.slice(-TAIL).join("")));
}

export const icon = (name) =>
  s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));

export function toast(text, kind = "good") {
  forgetErrors();
  const note = h("p", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), kind === "bad" ? 9000 : 5000);
}

/** What was wrong is no longer: the next thing that somebody did was right, or he is elsewhere. */
export function forgetErrors() {
  for (const note of document.querySelectorAll("#toasts .bad")) note.remove();
}

/** For those who listen instead of looking. */
export const say = (text) => put(document.getElementById("said"), text);

/** Whether somebody selects text in there, which drawing it again would undo. */
export function isSelected(element) {
  const selection = getSelection();
  return !selection.isCollapsed && element.contains(selection.anchorNode);
}

export const isBusy = (element) => element.contains(document.activeElement) || isSelected(element);

const motion = matchMedia("(prefers-reduced-motion: reduce)");
export const calm = () => motion.matches;

export async function copyText(text) {
  try { await navigator.clipboard.writeText(text); toast("Copied."); } catch { toast("The browser did not allow copying; select the text instead.", "bad"); }
}

export const copyButton = (text) => h("button", { class: "icon-button small", type: "button", "aria-label": "Copy", title: "Copy", onclick: () => copyText(text()) }, icon("copy"));

export const commandLine = (text) => h("div", { class: "command" }, h("code", { tabindex: 0 }, text), copyButton(() => text));

export const field = (label, input, hint) => h("label", { class: "field" }, h("span", { class: "field-name" }, label), input, hint && h("small", {}, hint));

/** The head of a table: its titles, or [title, class]. */
/** The head of a table. A column without a title is one of buttons, which those who listen are told. */
export const heads = (...columns) => h("thead", {}, h("tr", {}, columns.map((one) => (Array.isArray(one) ? one : [one])).map(([title, kind]) => h("th", { class: kind, scope: "col" }, title || h("span", { class: "unseen" }, "What to do")))));

export const card = (title, ...children) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), ...children);

export const empty = (title, ...more) => h("div", { class: "empty" }, h("h2", {}, title), ...more.map((line) => (typeof line === "string" ? h("p", {}, line) : line)));

/** The title where something cannot be shown: it is gone, or nobody answers. */
export const missing = (error, what) => (error.status === 404 ? `This ${what} is not there` : `This ${what} cannot be shown now`);
