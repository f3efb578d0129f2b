import { fill, lead, note, ranking } from "./dom.js";
import { largest } from "./numbers.js";
import { choose, keys, queries, run, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { nameOf, say, told } from "./words.js";

/** Tokens up to which layers are multiplied here. */
const MOST = 640;

/** What each layer passes on [query, key], last layer first: its heads' mean, and as it would be were all alike. @typedef {{real: Float32Array, even: Float32Array}} Layer */

/** Of each run, once. @type {Map<number, Promise<Layer[]>>} */
const means = new Map();

/** A row with half of it staying where it was, in sum 1. @param {Float32Array} row @param {number} at */
function halved(row, at) {
  row[at] += row.reduce((sum, weight) => sum + weight, 0) || 1;
  const total = row.reduce((sum, weight) => sum + weight, 0);
  row.forEach((weight, key) => (row[key] = weight / total));
}

/** @param {number} which @returns {Promise<Layer[]>} */
async function average(which) {
  const { heads, q: { length: n } } = run();
  /** @type {Map<number, Layer>} */
  const layers = new Map();
  for (const [place, { l }] of heads.entries()) {
    const weights = await weightsOf(which, place);
    const layer = layers.get(l) ?? { real: new Float32Array(n * n), even: new Float32Array(n * n) };
    layers.set(l, layer);
    for (let i = 0; weights && i < n; i++) {
      const row = weights.row(i);
      const seen = row.reduce((count, weight) => count + Number(weight >= 0), 0);
      row.forEach((weight, j) => {
        if (weight < 0) return;
        layer.real[i * n + j] += weight;
        layer.even[i * n + j] += 1 / seen;
      });
    }
  }
  const sorted = [...layers].sort((a, b) => b[0] - a[0]).map(([, layer]) => layer);
  for (const { real, even } of sorted) for (const map of [real, even]) for (let i = 0; i < n; i++) halved(map.subarray(i * n, (i + 1) * n), i);
  return sorted;
}

/** One row of the rollout: layers multiplied from the last to the first, half of each the residual.
 * Source: Abnar and Zuidema, 2020. @param {Float32Array[]} layers @param {number} n @param {number} query */
function reached(layers, n, query) {
  let now = new Float32Array(n);
  now[query] = 1;
  for (const layer of layers) {
    const next = new Float32Array(n);
    for (let i = 0; i < n; i++) {
      const share = now[i];
      if (share) for (let j = 0, at = i * n; j < n; j++) next[j] += share * layer[at + j];
    }
    now = next;
  }
  return now;
}

/** The rollout of the chosen word; null where it cannot be had. @returns {Promise<Float32Array|null>} */
export async function rollout() {
  const { run: which, query } = state;
  const n = queries().length;
  if (run().k || n > MOST || run().heads.some(({ r }) => r === "none")) {
    fill("view", lead(say("rollout.none")));
    return null;
  }
  let found = means.get(which);
  if (!found) means.set(which, (found = average(which)));
  const layers = await found;
  if (state.view !== "rollout" || query !== state.query || which !== state.run) return null;
  const row = reached(layers.map(({ real }) => real), n, query);
  const chance = reached(layers.map(({ even }) => even), n, query);
  const order = largest(row, 14);
  fill("view",
    lead(say("rollout.lead", { query: nameOf(query, queries()) })),
    ranking(order.map((key) => ({
      name: keys()[key][0], share: row[key] / row[order[0]], number: told(row[key]), rank: say("rollout.even", { share: told(chance[key]) }), act: () => choose({ key }),
    }))),
    note(say("rollout.note")));
  return row;
}
