import { meta } from "./data.js";
import { at, direction, fill, make, set } from "./dom.js";
import { max, min } from "./numbers.js";
import { chosen, mark, tellWay, tint, WRITTEN } from "./sentence.js";
import { queries, run, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { nameOf, runName } from "./words.js";

/** The words that are written of either text. @type {HTMLElement[][]} */
let spans = [[], []];

/** The word of a run in its column: that of the other run. @param {number} side @param {number} place */
const column = (side, place) => meta.columns.findIndex((both) => both[side] === place);

/** The word of the other run that stands for a word: the same one, or that of its column. @param {number} side @param {number} place */
function partner(side, place) {
  const at = meta.pairs?.[side].indexOf(place) ?? -1;
  return at < 0 ? meta.columns[column(side, place)]?.[1 - side] : meta.pairs?.[1 - side][at];
}

/** What is chosen, in the words of the other run, as far as it has them. @param {number} side the run to go to */
export function across(side) {
  const [query, key] = [state.query, state.key].map((place) => (side === state.run ? place : partner(state.run, place)));
  return { run: side, ...(typeof query === "number" ? { query } : {}), ...(typeof key === "number" ? { key } : {}) };
}

/** The first column that is written. */
let firstWritten = -1;

/** Write both texts, one below the other: each word above the one that stands for it; of long texts those around the chosen word.
 * The other run has the same words under other names: to write a thousand again takes 60 ms. */
export function writeStack() {
  const middle = column(state.run, state.out ? state.key : state.query);
  const count = 2 * meta.columns.length > WRITTEN ? 300 : WRITTEN;
  const first = max(0, min(middle - count / 2, meta.columns.length - count));
  if (first !== firstWritten) writeColumns(first, first + count);
  firstWritten = first;
  spans.forEach((row, side) => row.forEach((span) => {
    const entry = Number(span.dataset.own);
    const own = side === state.run ? entry : partner(side, entry);
    if (span.dataset.own) set(span, { id: `${side === state.run ? "w" : "v"}${entry}`, "data-at": typeof own === "number" && own });
  }));
  set(at("sentence"), { dir: direction(queries()) }).classList.add("stack");
}

/** A word of a column, with whether it joins the one before and is special. @param {number} side @param {number|any[]|null|undefined} entry */
const word = (side, entry) => (typeof entry === "number" ? meta.runs[side].q[entry] : entry) ?? ["", 0, 0];

/** @param {number} first @param {number} behind */
function writeColumns(first, behind) {
  spans = [[], []];
  const names = make("span.column", { "aria-hidden": true }, ...meta.runs.map((_, side) => make("span.side", runName(side))));
  const stacks = meta.columns.slice(first, behind).map((both) => {
    const pair = both.map((entry, side) => {
      const [text, joined, special] = word(side, entry);
      const alone = typeof entry !== "number" || text !== word(1 - side, partner(side, entry))[0];
      const span = make("span", { class: `w${special ? " special" : ""}${joined ? " joined" : ""}${text && alone ? " alone" : ""}`, dir: "auto" }, text || "\u00a0");
      if (!text) return span;
      set(span, { role: "option", "aria-label": `${runName(side)}: ${text}`, "data-own": typeof entry === "number" && entry });
      spans[side].push(span);
      return span;
    });
    const joins = both.some((entry, side) => typeof entry === "number" && meta.runs[side].q[entry][1]);
    return make("span", { class: `column${joins ? " joins" : ""}`, role: "group" }, ...pair);
  });
  fill("sentence", names, ...stacks.flatMap((stack) => (stack.classList.contains("joins") ? [stack] : [" ", stack])));
}

/** Shade both texts by where the chosen word looks in either, or by who looks at it. @param {Float32Array|null} weights of the run that is looked at */
export async function shadeStack(weights) {
  const { head, run: side, out } = state;
  const word = chosen();
  const there = partner(side, word);
  const other = typeof there === "number" ? await weightsOf(1 - side, head) : null;
  if (head !== state.head || side !== state.run || word !== chosen() || out !== state.out) return;
  const rows = [weights, other && typeof there === "number" ? (out ? other.row(there) : other.column(there)) : null];
  const lines = [side, 1 - side].map((which, step) => ({
    own: rows[step] ? at(step ? `v${there}` : `w${word}`) : null,
    spans: spans[which], shares: tint(spans[which], rows[step] ?? new Float32Array()), below: which === 1,
  }));
  mark(lines);
  set(at("sentence"), { "aria-activedescendant": lines[0].own?.id ?? "" });
  const name = nameOf(word, run().q);
  tellWay(name);
}
