import { fill, lead, make, note, pause, ranking, stepwise } from "./dom.js";
import { largest } from "./numbers.js";
import { choose, keys, queries, run, state } from "./state.js";
import { layerPasses, weightsOf } from "./weights.js";
import { nameOf, say, told } from "./words.js";

/** Tokens up to which layers are multiplied here. */
const MOST = 640;

/** What each layer passes on [query, key], last layer first: its heads' mean, and as it would be were all alike. @typedef {{real: Float32Array, even: Float32Array}} Layer */

/** Of each run, once. @type {Map<number, Promise<Layer[]>>} */
const means = new Map();

/** What all layers pass on, layer by layer in the background; what is done is told on the way.
 * @param {number} which @returns {Promise<Layer[]>} */
async function average(which) {
  const { heads, q: { length: n } } = run();
  const numbers = [...new Set(heads.map(({ l }) => l))].sort((a, b) => b - a);
  const bar = make("progress", { max: numbers.length, value: 0, "aria-label": say("view.rollout") });
  fill("view", bar);
  /** @type {Layer[]} */
  const layers = [];
  for (const number of numbers) {
    const sources = [];
    for (const place of [...heads.keys()].filter((place) => heads[place].l === number)) {
      sources.push(...[(await weightsOf(which, place))?.source ?? []].flat());
      await pause();
    }
    const both = await layerPasses(n, sources);
    layers.push({ real: both.subarray(0, n * n), even: both.subarray(n * n) });
    bar.value = layers.length;
  }
  return layers;
}

/** One row of the rollout: layers multiplied from the last to the first, half of each the residual.
 * Source: Abnar and Zuidema, 2020. @param {Float32Array[]} layers @param {number} n @param {number} query */
async function reached(layers, n, query) {
  const breathe = stepwise();
  let now = new Float32Array(n);
  now[query] = 1;
  for (const layer of layers) {
    await breathe();
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
  const row = await reached(layers.map(({ real }) => real), n, query);
  const chance = await reached(layers.map(({ even }) => even), n, query);
  if (state.view !== "rollout" || query !== state.query || which !== state.run) return null;
  const order = largest(row, 14);
  fill("view",
    lead(say("rollout.lead", { query: nameOf(query, queries()) })),
    ranking(order.map((key) => ({
      name: nameOf(key, keys()), share: row[key] / row[order[0]], number: told(row[key]), rank: say("rollout.even", { share: told(chance[key]) }), act: () => choose({ key }),
    }))),
    note(say("rollout.note")));
  return row;
}
