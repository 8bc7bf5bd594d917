// Places in a log as the command line writes them: start, end, 100, +10, -10, @2026-01-15T10:30, @10:30, @-6h. Pure.

const UNITS = { s: 1000, m: 60000, h: 3600000, d: 86400000 };

export const HELP = "start, end, an offset, +10 from the start, -10 from the end, @10:30, @2026-01-15T10:30 or @-6h";

/** `{time}`, `{offset}`, `{fromStart}` or `{fromEnd}`; null when it is none of these. */
export function parsePlace(text, now) {
  const word = text.trim().toLowerCase();
  if (word === "start") return { fromStart: 0 };
  if (word === "end") return { fromEnd: 0 };
  if (/^\d[\d,_ ]*$/.test(word)) return { offset: Number(word.replace(/\D/g, "")) };
  if (/^\+\d+$/.test(word)) return { fromStart: Number(word.slice(1)) };
  if (/^-\d+$/.test(word)) return { fromEnd: Number(word.slice(1)) };
  if (!word.startsWith("@")) return null;
  const time = text.trim().slice(1);
  const back = /^-(\d+(?:\.\d+)?)([smhd])$/i.exec(time);
  if (back) return { time: now - Number(back[1]) * UNITS[back[2].toLowerCase()] };
  const ofToday = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(time);
  if (ofToday) return { time: new Date(now).setHours(Number(ofToday[1]), Number(ofToday[2]), Number(ofToday[3] ?? 0), 0) };
  const at = Date.parse(time);
  return Number.isNaN(at) ? null : { time: at };
}
