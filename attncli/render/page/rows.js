import { at, bar, make } from "./dom.js";
import { choose, head, keys, run, state } from "./state.js";
import { nameOf, say, told } from "./words.js";

const SHOWN = 8;

/** The strongest of a list of weights. @param {Float32Array} weights */
const strongest = (weights) => [...weights.keys()].filter((place) => weights[place] > 0).sort((a, b) => weights[b] - weights[a]).slice(0, SHOWN);

/** A ranking of words. @param {string} title @param {Float32Array} weights @param {import("./types.js").Word[]} words
 * @param {(place: number) => void} act @param {string} kind */
function ranking(title, weights, words, act, kind) {
  return make("section", {}, make("h3", {}, title), make("ol", { class: "found" }, ...strongest(weights).map((place) =>
    make("li", {}, make("button", { type: "button", onclick: () => act(place) },
      make("span", { class: "where" }, nameOf(place, words)), bar(weights[place], kind), make("span", { class: "number" }, told(weights[place])))))));
}

/** The chosen word in rows: where it looks, and who looks at it; the matrix for those who do not see it.
 * @param {import("./types.js").Weights|null} weights */
export function showRows(weights) {
  const one = head();
  const [asking, words] = [run().q, keys()];
  if (!weights) {
    const links = one.k.map(([query, key, weight]) => make("li", {}, make("button", { type: "button", onclick: () => choose({ query, key }) },
      make("span", { class: "where" }, `${asking[query][0]} → ${words[key][0]}`), bar(weight), make("span", { class: "number" }, told(weight)))));
    at("rows").replaceChildren(make("section", {}, make("h3", {}, say("rows.links")), make("ol", { class: "found" }, ...links)));
    return;
  }
  const [row, column] = [weights.row(state.query), weights.column(state.key)];
  at("rows").replaceChildren(
    ranking(say("looks", nameOf(state.query, asking)), row, words, (key) => choose({ key }), ""),
    ranking(say("looked", nameOf(state.key, words)), column, asking, (query) => choose({ query }), "in"));
  const weight = row[state.key];
  const said = say(weight < 0 ? "pair.hidden" : "pair", asking[state.query][0], words[state.key][0], told(weight), one.l, one.h);
  at("said").textContent = said;
}
