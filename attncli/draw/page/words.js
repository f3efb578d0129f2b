import { meta } from "./data.js";
import { apartFrom } from "./dom.js";
import { abs } from "./numbers.js";
import { state } from "./state.js";

/** A phrase in the reader's language, its places filled by name. @param {string} name @param {Record<string, string|number>} values */
export const say = (name, values = {}) =>
  (meta.words[state.lang][name] ?? name).replace(/\{(\w+)\}/g, (_, place) => apartFrom(`${values[place]}`));

/** The language after the one that is read: the button leads there. */
export const nextLanguage = () => {
  const codes = Object.keys(meta.words);
  return codes[codes.indexOf(state.lang) + 1] ?? codes[0];
};

/** The name of a label; behind it may stand an offset. @param {string} name */
export const labelName = (name) => {
  const [, label, offset] = /^(.*?)( [-+]?\d+)?$/.exec(name) ?? [];
  return say(`label.${label}`) + (offset ?? "");
};

/** The label itself, in English and without an offset: what meanings are kept by. @param {string} name */
export const labelOf = (name) => name.replace(/ [-+]?\d+$/, "");

/** The name of a run: those that are compared are A and B, as in the answer. @param {number} which */
export const runName = (which) => `${"AB"[which]} · ${meta.runs[which].name[state.lang]}`;

/** The name of a head. @param {{l: number, h: number}} head */
export const headName = ({ l, h }) => say("head.name", { layer: l, head: h });

/** A weight as it is told. @param {number} value */
export const told = (value) => (value < 0 ? "–" : value < 0.0005 && value > 0 ? value.toExponential(0) : value.toFixed(3));

/** A signed number as it is told. @param {number} value @param {number} digits */
export const signed = (value, digits = 3) =>
  (abs(value) >= 1e5 ? value.toExponential(2) : value.toFixed(digits)).replace("-", "−");

/**
 * The word that a reference names: it, the:2 (second occurrence) or #7; −1 for none.
 * @param {string} reference
 * @param {import("./types.js").Word[]} words
 */
export function named(reference, words) {
  const asked = reference.trim();
  const index = /^#(\d+)$/.exec(asked);
  if (index) return words[+index[1]] ? +index[1] : -1;
  const exact = words.findIndex((word) => word[0] === asked);
  if (exact >= 0) return exact;
  const [, text = "", nth = 1] = /^(.*?)(?: \(.+\))?(?::(\d+))?$/s.exec(asked) ?? [];
  const at = (/** @type {(text: string) => string} */ form) =>
    words.flatMap(([word], i) => (form(word) === form(text) ? [i] : []))[+nth - 1];
  return at(String) ?? at((it) => it.toLowerCase()) ?? -1;
}

/** A word by its text, a piece with the word that it is of. @param {import("./types.js").Word} [word] */
export const full = ([text, , , of] = ["", 0, 0]) => (of ? `${text} (${of})` : text);

/** How a word is named so that it is found again. @param {number} at @param {import("./types.js").Word[]} words */
export function nameOf(at, words) {
  const before = words.slice(0, at).filter(([text]) => text === words[at]?.[0]).length;
  return full(words[at]) + (before ? `:${before + 1}` : "");
}

/** A link by its two words, each named so that it is found again.
 * @param {number} query @param {import("./types.js").Word[]} asking @param {number} key @param {import("./types.js").Word[]} words */
export const linkName = (query, asking, key, words) => [nameOf(query, asking), nameOf(key, words)].map(apartFrom).join(" → ");
