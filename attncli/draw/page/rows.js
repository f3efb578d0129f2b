import { fill, make, ranking } from "./dom.js";
import { largest, max } from "./numbers.js";
import { choose, head, keys, queries, state } from "./state.js";
import { headName, linkName, nameOf, say, told } from "./words.js";

const LISTED = 8;

/** The strongest weights under a title. @param {string} title @param {Float32Array} weights @param {import("./types.js").Word[]} words
 * @param {string} axis what is chosen by a row @param {string} kind */
const strongest = (title, weights, words, axis, kind) =>
  make("section", make("h3", title), ranking(largest(weights, LISTED).filter((place) => weights[place] > 0).map((place) =>
    ({ name: nameOf(place, words), share: weights[place], number: told(weights[place]), kind, act: () => choose({ [axis]: place }) }))));

/** The chosen word in rows: where it looks, and who looks at it; the matrix for those who do not see it.
 * @param {import("./types.js").Weights|null} weights */
export function showRows(weights) {
  const [asking, words] = [queries(), keys()];
  const [query, key] = [nameOf(state.query, asking), nameOf(state.key, words)];
  if (!weights && !head().k.length) return fill("rows");
  if (!weights)
    return fill("rows", make("section", make("h3", say("rows.label")), ranking(head().k.map(([query, key, weight]) =>
      ({ name: linkName(query, asking, key, words), share: max(weight, 0), number: weight < 0 ? say("weight.hidden") : told(weight), act: () => choose({ query, key }) })))));
  const row = weights.row(state.query);
  fill("rows",
    strongest(say("looks", { query: nameOf(state.query, asking) }), row, words, "key", ""),
    strongest(say("looked", { key: nameOf(state.key, words) }), weights.column(state.key), asking, "query", "in"));
  const weight = row[state.key];
  fill("said", `${headName(head())}: ${say(weight < 0 ? "pair.hidden" : "pair", { query, key, weight: told(weight) })}`);
}
