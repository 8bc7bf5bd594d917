// Starts the page: theme, navigation, the pulse of the connection, and the room that the address names (#/room/path).

import { here } from "./address.js";
import { forgetErrors, h, icon, put } from "./dom.js";
import { ROOMS } from "./rooms.js";
import { on, refresh, start, state } from "./store.js";
import { forgetPalette } from "./strip_paint.js";
import { counted } from "./words.js";

const element = document.getElementById("room");
let leave = null;
let entering = 0;
let isOutside = false; // the room could not be fetched: the broker was away

const away = (text) => h("div", { class: "empty" }, h("h1", {}, "The broker does not answer"), h("p", {}, text), h("button", { class: "button", type: "button", onclick: () => location.reload() }, "Try again"));

function address() {
  const { name, path, query } = here();
  return { room: ROOMS.find((room) => room.name === name) ?? ROOMS[0], path, query };
}

async function enter() {
  const turn = (entering += 1);
  // A question of one room is none of another's, and neither is what went wrong there.
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  forgetErrors();
  const { room, path, query } = address();
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.room === room.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const module = await room.load().catch(() => null);
  if (turn !== entering) return;
  leave?.();
  leave = null;
  isOutside = !module;
  if (isOutside) { put(element, away("This part of the page comes from the broker too, and is shown when it is back.")); return; }
  put(element);
  document.title = `${room.title} · foldlog`;
  element.dataset.room = room.name;
  leave = module.enter(element, path, query) ?? null;
}

const THEMES = ["system", "light", "dark"];

function showTheme() {
  const chosen = document.documentElement.dataset.theme ?? "system";
  const button = document.getElementById("theme");
  const text = { system: "Colours: as the system has them", light: "Colours: light", dark: "Colours: dark" }[chosen];
  put(button, icon(chosen));
  button.setAttribute("aria-label", text);
  button.title = text;
  forgetPalette();
  dispatchEvent(new Event("resize"));
}

function nextTheme() {
  const chosen = document.documentElement.dataset.theme ?? "system";
  const next = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { localStorage.setItem("foldlog.theme", next); } catch { /* not kept, but shown */ }
  showTheme();
}

/** How many problems there are, on the tab that tells of them: whoever is in another room sees it, too. */
function alarm() {
  const link = document.querySelector("#nav a[data-room=home]");
  const count = state.problems.length;
  link.dataset.problems = count || "";
  link.setAttribute("aria-label", count ? `Overview, ${counted(count, "problem")}` : "Overview");
}

function pulse() {
  const place = document.getElementById("pulse");
  place.dataset.state = state.connected ? "live" : "lost";
  put(place.querySelector("span"), state.connected ? "live" : "no connection");
}

async function begin() {
  put(document.getElementById("nav"), ROOMS.map((room) => h("a", { href: `#/${room.name}`, "data-room": room.name, "aria-label": room.title }, icon(room.name), h("span", { "data-tab": room.tab ?? room.title }, room.title))));
  document.getElementById("theme").addEventListener("click", nextTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  showTheme();
  on("connection", pulse);
  on("problems", alarm);
  try {
    await start();
  } catch (error) {
    put(element, away(error.message));
    return;
  }
  const user = document.getElementById("user");
  user.addEventListener("click", () => { fetch("/logout", { method: "POST" }).finally(() => location.reload()); });
  const mode = () => {
    document.getElementById("read-only").hidden = !state.overview.read_only;
    user.hidden = !state.overview.user;
    user.textContent = `${state.overview.user}: log out`;
  };
  mode();
  on("topics", mode); // a broker that was started again may be in another mode
  on("connection", (isThere) => { if (isThere && isOutside) enter(); });
  addEventListener("hashchange", enter);
  await enter();
  // All rooms, once this one is shown: they open at once then, and also while the broker is away.
  // And sizes again: what was shown has opened its files, and they are known now.
  setTimeout(() => {
    for (const room of ROOMS) room.load().catch(() => {});
    refresh().catch(() => {});
  }, 1000);
  // Sizes and warnings are not part of the events: they are asked for now and then, while somebody looks.
  setInterval(() => { if (!document.hidden && state.connected) refresh().catch(() => {}); }, 15000);
}

begin();
