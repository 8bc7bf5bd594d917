// Numbers, sizes, times and bytes as people read them. Pure.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const TENTH = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export const number = (value) => WHOLE.format(value);
export const short = (value) => (Math.abs(value) < 10000 ? WHOLE.format(value) : SHORT.format(value));
export const rate = (value) => (value > 0 && value < 10 ? TENTH.format(value) : short(Math.round(value)));
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${unit === 0 || bytes >= 100 ? WHOLE.format(bytes) : TENTH.format(bytes)} ${bytes === 1 && unit === 0 ? "byte" : units[unit]}`;
}

/** The broker's sentences begin small and end open, as errors do in Python. */
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

const two = (value) => String(value).padStart(2, "0");

export function clock(ms, withMs = false) {
  const at = new Date(ms);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMs ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

export const day = (ms) => new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** The clock alone for today, with the date for other days. */
export const moment = (ms) => (new Date(ms).toDateString() === new Date().toDateString() ? clock(ms) : `${day(ms)}, ${clock(ms)}`);

export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${TENTH.format(seconds / 3600)} h`;
  return `${TENTH.format(seconds / 86400)} days`;
}

/** What a setting of a topic means, where its number alone does not say it: times and sizes. */
export function settingText(name, value) {
  const amount = Number(value);
  if (value === null || value === "" || !(amount >= 1000) || amount > 1e15) return value;
  return name.endsWith(".ms") ? `${value} (${span(amount)})` : name.endsWith(".bytes") ? `${value} (${size(amount)})` : value;
}

export const ago = (ms, now = Date.now()) => (now - ms < 1500 ? "just now" : `${span(now - ms)} ago`);

/** What `<input type="datetime-local">` wants: local time, to the second. */
export function localInput(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${clock(ms)}`;
}

/** `{text}` or `{base64}` as one line; null stays a word of its own. */
export function bytes(value) {
  if (value === null || value === undefined) return null;
  return value.text ?? `base64 ${value.base64}`;
}
