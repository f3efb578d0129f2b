import { at, make } from "./dom.js";
import { most, place } from "./shades.js";
import { choose, keys, run, state } from "./state.js";
import { nameOf, say, told } from "./words.js";

/** Words written at a time: of a longer text those around the chosen one. */
const WRITTEN = 1500;

/** @type {{first: number, spans: HTMLElement[]}} */
let written = { first: 0, spans: [] };

/** The words that look, or that are looked at, whichever the pointer is to choose from. */
const chooses = () => (state.out ? run().q : keys());
const shaded = () => (state.out ? keys() : run().q);

/**
 * Words as spans with the spaces that the text has between them.
 * @param {import("./types.js").Word[]} words @param {number} from @param {number} to @param {string} prefix
 */
function spans(words, from, to, prefix) {
  /** @type {(Node|string)[]} */
  const line = [];
  const made = words.slice(from, to).map(([text, joined, special], place) => {
    const span = make("span", { class: special ? "w special" : "w", id: `${prefix}${from + place}`, role: "option", "data-at": from + place }, text);
    if (!joined && place) line.push(" ");
    line.push(span);
    return span;
  });
  return { line, made };
}

/** Write the sentence, or of a long one the words around the chosen one. */
export function write() {
  const two = run().k !== null;
  const chosen = state.out ? state.query : state.key;
  const range = (/** @type {number} */ count, /** @type {number} */ middle) => {
    const from = count <= WRITTEN ? 0 : Math.max(0, Math.min(count - WRITTEN, middle - WRITTEN / 2));
    return [from, Math.min(count, from + WRITTEN)];
  };
  const words = shaded();
  const [from, to] = range(words.length, state.out ? state.key : state.query);
  const line = spans(words, from, to, "w");
  written = { first: from, spans: line.made };
  at("sentence").replaceChildren(...(from ? ["… "] : []), ...line.line, ...(to < words.length ? [" …"] : []));
  at("asking").hidden = !two;
  if (two) {
    const asking = chooses();
    const [a, b] = range(asking.length, chosen);
    at("asking").replaceChildren(...spans(asking, a, b, "u").line);
  }
}

/** Shade the words by a row or a column of weights. @param {Float32Array|null} weights */
export function shadeWords(weights) {
  const words = shaded();
  const chosen = state.out ? state.query : state.key;
  const two = run().k !== null;
  const high = weights ? most(weights, weights.length, state.scale === "rest" && state.out) : 0;
  at("sentence").classList.toggle("in", !state.out);
  written.spans.forEach((span, step) => {
    const here = written.first + step;
    const weight = weights ? weights[here] : 0;
    const open = weight < 0 || (state.scale === "rest" && state.out && here === 0);
    span.style.setProperty("--a", open ? "0" : String(Math.round(place(weight, state.scale, high) * 88) / 100));
    span.classList.toggle("hidden", weight < 0);
    span.classList.toggle("chosen", !two && here === chosen);
    span.setAttribute("aria-label", `${words[here][0]} ${told(weight)}`);
    span.setAttribute("aria-selected", String(!two && here === chosen));
    span.title = told(weight);
  });
  if (two) for (const span of at("asking").children) span.classList.toggle("chosen", Number(/** @type {HTMLElement} */ (span).dataset.at) === chosen);
  at("sentence").setAttribute("aria-activedescendant", `w${chosen}`);
  at("direction").textContent = say(state.out ? "looks" : "looked", nameOf(chosen, chooses()));
}

/** Choose the word under the pointer. @param {Event} event */
function point(event) {
  const span = /** @type {HTMLElement|null} */ (/** @type {Element} */ (event.target).closest(".w"));
  if (!span) return;
  const own = span.parentElement?.id === "asking" || run().k === null;
  if (own) choose(state.out ? { query: Number(span.dataset.at) } : { key: Number(span.dataset.at) });
  else if (event.type === "click") choose(state.out ? { key: Number(span.dataset.at) } : { query: Number(span.dataset.at) });
}

/** Move the chosen word. @param {number} by */
export function move(by) {
  const count = chooses().length;
  const next = Math.max(0, Math.min(count - 1, (state.out ? state.query : state.key) + by));
  choose(state.out ? { query: next } : { key: next });
}

/** Listen to the pointer and the keys. */
export function listen() {
  for (const place of [at("sentence"), at("asking")]) {
    place.addEventListener("pointerover", (event) => {
      if (event.pointerType === "mouse" && !frozen) point(event);
    });
    place.addEventListener("click", (event) => {
      frozen = !frozen;
      at("pin").hidden = !frozen;
      point(event);
    });
  }
  at("turn").addEventListener("click", turn);
}

/** Whether the chosen word stays while the pointer moves: a click holds it, another lets it go. */
let frozen = false;

/** Show the other direction of the chosen word. */
export function turn() {
  choose(run().k ? { out: !state.out } : { out: !state.out, query: state.key, key: state.query });
}
