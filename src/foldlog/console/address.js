// Where one is, as the address says it: #/room/part/part?name=value. The address follows what is shown, without a history
// entry for each step, so that it can be kept, sent to somebody and opened again.

/** A part of the address; one that was typed badly is taken as it stands. */
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [name, ...parts] = path.split("/").map(decoded);
  return { name, path: parts, query: new URLSearchParams(query ?? "") };
}

/** The address of a place; values that are empty are left out. */
export function addressOf(name, parts = [], query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== ""));
  const text = asked.toString();
  return `#/${[name, ...parts].map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

/** Let the address say where one is now. */
export function say(name, parts, query) {
  const address = addressOf(name, parts, query);
  if (location.hash !== address) history.replaceState(null, "", address);
}
