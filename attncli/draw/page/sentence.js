import { meta } from "./data.js";
import { all, at, direction, fill, frameOf, make, set } from "./dom.js";
import { abs, clamp, largest, max, min, round } from "./numbers.js";
import { most, place } from "./shades.js";
import { choose, hold, keys, known, leave, open, peek, pick, queries, run, state } from "./state.js";
import { nameOf, say, told } from "./words.js";

/** Words of a text that is written whole; of a longer one, some around the chosen one. */
export const WRITTEN = 1500;

/** The words that are shaded, and the first of them. @type {{first: number, spans: HTMLElement[]}} */
let written = { first: 0, spans: [] };

/** The next drawing of the curves. */
let arcsDrawing = 0;

/** The word that is chosen, among those that look or those that are looked at. */
export const chosen = () => (state.out ? state.query : state.key);
/** The words that the pointer chooses from, and those that are shaded. */
const chooses = () => (state.out ? queries() : keys());
const shaded = () => (state.out ? keys() : queries());

/** A word as a choice. @param {number} at @param {boolean} asks */
const wordChoice = (at, asks) => (asks ? { query: at } : { key: at });

/**
 * Write words into a line, with the spaces that the text has between them; of many those around `middle`.
 * @param {string} id @param {import("./types.js").Word[]} words @param {number} middle @param {string} prefix
 */
function line(id, words, middle, prefix) {
  const count = words.length > WRITTEN ? 600 : WRITTEN; // what is shaded at each move takes time by the word
  const first = max(0, min(middle - count / 2, words.length - count));
  const spans = words.slice(first, first + count).map(([text, joined, special], step) =>
    make("span", { class: `w${special ? " special" : ""}${joined ? " joined" : ""}`, id: `${prefix}${first + step}`, role: "option", "data-at": first + step, "data-own": first + step }, text));
  const spaced = spans.flatMap((span, step) => (step && !words[first + step][1] ? [" ", span] : [span]));
  fill(id, first ? "… " : "", ...spaced, first + count < words.length ? " …" : "");
  set(at(id), { dir: direction(words) });
  return { first, spans };
}

/** Write the sentence, or of a long one the words around the chosen one. */
export function writeWords() {
  written = line("sentence", shaded(), state.out ? state.key : state.query, "w");
  at("asking").hidden = !run().k;
  if (run().k) line("asking", chooses(), chosen(), "u");
}

/** Whether a chosen word of a long text is none of those that are written. */
export const away = () => !at(`w${state.out ? state.key : state.query}`) || (run().k !== null && !at(`u${chosen()}`));

/** The tint of each word: those of a long text stay mostly as they are, and to style a thousand again takes 20 ms.
 * @type {WeakMap<HTMLElement, string>} */
const tints = new WeakMap();

/** Shade words by the weights of their places: their shares of the scale. @param {HTMLElement[]} spans @param {Float32Array} weights */
export function tint(spans, weights) {
  const out = state.out ? open(true) : new Set();
  const high = most(weights, 1e9, out);
  return spans.map((span) => {
    const here = Number(span.dataset.own);
    const share = out.has(here) ? 0 : place(weights[here] ?? 0, state.scale, high);
    const tint = String(round(share * 44) / 50);
    if (tints.get(span) !== tint) span.style.setProperty("--a", tint);
    tints.set(span, tint);
    span.classList.toggle("hidden", weights[here] < 0);
    return share;
  });
}

/** Say above the words which way they are shaded. @param {string} name the chosen word's */
export const tellWay = (name) => fill("direction", say(!state.out ? "looked" : run().rests ? "looks.rest" : "looks", { query: name, key: name }));

/** Shade the words by a row or a column of weights; null where they are not known, and what is known of the head's links
 * takes their place. @param {Float32Array|null} weights */
export function shadeWords(weights) {
  const link = weights ? null : known();
  const alone = new Float32Array(shaded().length);
  if (link) alone[link[state.out ? 1 : 0]] = link[2];
  const shares = tint(written.spans, weights ?? alone);
  const own = weights || link || meta.start.query ? at(`${run().k ? "u" : "w"}${chosen()}`) : null;
  mark([{ own, spans: written.spans, shares }]);
  set(at(run().k ? "asking" : "sentence"), { "aria-activedescendant": own?.id ?? "" });
  if (weights) tellWay(nameOf(chosen(), chooses()));
  else fill("direction", link ? say(link[2] < 0 ? "pair.hidden" : "pair", { query: nameOf(link[0], queries()), key: nameOf(link[1], keys()), weight: told(link[2]) }) : "");
}

/** The chosen word of a line, its words and their shares; whether its curves lie below it. @typedef {{own: HTMLElement|null, spans: HTMLElement[], shares: number[], below?: boolean}} Line */

/** Mark the chosen words, and draw the curves when the page is next drawn. @param {Line[]} lines */
export function mark(lines) {
  all(".w.chosen").forEach((span) => set(span, { "aria-selected": false }).classList.remove("chosen"));
  for (const { own } of lines) if (own) set(own, { "aria-selected": true }).classList.add("chosen");
  at("words").classList.toggle("in", !state.out);
  cancelAnimationFrame(arcsDrawing);
  arcsDrawing = requestAnimationFrame(() => drawArcs(lines));
}

/** At most twelve curves over the words, from the chosen one to those it looks at most, or from those that look at it; thicker for more
 * weight. @param {Line[]} lines */
function drawArcs(lines) {
  const arcs = at("arcs");
  const box = at("words");
  const { left, top } = frameOf(box);
  const words = at("sentence");
  const line = lines[0].own?.getClientRects()[0];
  // a word that was chosen elsewhere than in the sentence comes into sight there
  if (line && line.bottom > top + box.clientHeight) box.scrollTop += line.bottom - top - box.clientHeight + 8;
  else if (line && line.top < top) box.scrollTop -= top - line.top + 24;
  set(arcs, { height: words.offsetTop + words.offsetHeight });
  arcs.replaceChildren(...lines.flatMap(({ own, spans, shares, below }) => {
    const middle = (/** @type {HTMLElement} */ word) => {
      const [{ x, y, width, height }] = word.getClientRects();
      return [x + width / 2 - left, y - top + box.scrollTop + (below ? height - 2 : 2)];
    };
    return (own ? largest(shares, 12) : []).filter((step) => shares[step] > 0.06 && spans[step] !== own).map((step) => {
      const [[x0, y0], [x1, y1]] = [middle(/** @type {HTMLElement} */ (own)), middle(spans[step])];
      const lift = (y0 === y1 ? min(8 + abs(x1 - x0) * 0.08, 22) : 16) * (below ? -1 : 1);
      const share = shares[step];
      return set(document.createElementNS(arcs.namespaceURI, "path"), {
        d: `M${x0} ${y0}C${x0} ${y0 - lift} ${x1} ${y1 - lift} ${x1} ${y1}`, "stroke-width": (1 + 3 * share).toFixed(1), "stroke-opacity": (0.3 + 0.6 * share).toFixed(2),
      });
    });
  }));
}

/** The word under the pointer as a choice; null where there is none. @param {Event} event */
function wordUnder(event) {
  const span = /** @type {HTMLElement|null} */ (/** @type {Element} */ (event.target).closest(".w"));
  if (!span) return null;
  const own = span.id.startsWith("u") || !run().k;
  if (!span.dataset.at) return null;
  return own || event.type === "click" ? wordChoice(Number(span.dataset.at), own === state.out) : null;
}

/** Move the chosen word. @param {number} right steps to the right @param {number} down steps down */
export const move = (right, down) =>
  choose(wordChoice(clamp(chosen() + down + (direction(chooses()) === "rtl" ? -right : right), chooses().length - 1), state.out));

/** Show the other direction of the chosen word. */
export const turn = () => choose(run().k ? { out: !state.out } : { out: !state.out, query: state.key, key: state.query });

/** Listen to the pointer. */
export function listen() {
  for (const id of ["sentence", "asking"])
    set(at(id), {
      onpointerover: (/** @type {PointerEvent} */ event) => {
        const next = event.pointerType === "mouse" && wordUnder(event);
        if (next) peek(next);
      },
      onpointerleave: leave,
      onclick: (/** @type {Event} */ event) => {
        const next = wordUnder(event);
        if (next) pick(next);
      },
    });
  set(at("turn"), { onclick: turn });
  set(at("pin"), { onclick: () => hold(false) });
}
