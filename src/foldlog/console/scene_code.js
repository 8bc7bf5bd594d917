// The code beside the scene, with the lines that each step runs lit one after the other.

import { h } from "./dom.js";

const LINE_MS = 340;
const KEYWORD = /\b(def|return|if|is|not|None|self)\b/;
const READ = ["self.bookmark", "record_at", "if record"];

/** Which code a step ran, a word of each line that it ran, and whether its reader died at the last one. */
export function ran({ verb, side, record }) {
  const crashed = verb === "crash";
  if (verb === "append") return { code: "append", words: ["_write", "_wait", "return offset"] };
  if (side === "queue") return { code: "dequeue", words: ["if not", record ? "pop(0)" : "return None"], crashed };
  return { code: "read", words: !record ? [...READ, "return None"] : crashed ? [...READ, "handle(record)"] : [...READ, "handle(record)", "_commit", "return record"], crashed };
}

export class CodeView {
  constructor(name, what, text) {
    this.lines = text.split("\n").map((line) => {
      const [code, comment] = line.split(/(?= {2}# )/);
      return h("span", { class: "line" }, code.split(KEYWORD).map((word, index) => (index % 2 ? h("i", {}, word) : word)), comment && h("em", {}, comment), "\n");
    });
    this.element = h("figure", { class: "code card", "data-code": name }, h("figcaption", {}, h("b", { class: "mono" }, name), h("span", {}, what)), h("pre", { class: "value", tabindex: 0 }, h("code", {}, this.lines)));
  }

  clear() { for (const line of this.lines) line.className = "line"; }

  /** Walk through the lines that ran; the last one stays lit. */
  async run({ words, crashed }, wait) {
    this.clear();
    const ran = words.map((word) => this.lines.find((line) => line.textContent.includes(word))).filter(Boolean);
    for (const line of ran) {
      line.className = crashed && line === ran.at(-1) ? "line now dead" : "line now";
      await wait(LINE_MS);
      if (line !== ran.at(-1)) line.className = "line ran";
    }
  }
}
