import { at, bar, make } from "./dom.js";
import { choose, keys, run, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { nameOf, say, told } from "./words.js";

/** Tokens up to which layers are multiplied here. */
export const MOST = 640;

/** Mean weights of each layer [query, key], and what each row sees, once for every run. @type {Map<number, Promise<{n: number, layers: Float32Array[], even: Float32Array[]}>>} */
const means = new Map();

/** @param {number} which */
async function average(which) {
  const heads = run().heads;
  const n = run().q.length;
  /** @type {Map<number, {sum: Float32Array, even: Float32Array, count: number}>} */
  const layers = new Map();
  for (const [place, one] of heads.entries()) {
    const weights = await weightsOf(which, place);
    if (!weights) continue;
    const layer = layers.get(one.l) ?? { sum: new Float32Array(n * n), even: new Float32Array(n * n), count: 0 };
    layers.set(one.l, layer);
    layer.count++;
    for (let i = 0; i < n; i++) {
      const row = weights.row(i);
      let seen = 0;
      for (let j = 0; j < n; j++) if (row[j] >= 0) seen++;
      for (let j = 0; j < n; j++) if (row[j] >= 0) {
        layer.sum[i * n + j] += row[j];
        layer.even[i * n + j] += 1 / seen;
      }
    }
  }
  const sorted = [...layers].sort((a, b) => a[0] - b[0]).map(([, layer]) => layer);
  const mean = (/** @type {Float32Array} */ sum, /** @type {number} */ count) => sum.map((value) => value / count);
  return { n, layers: sorted.map((layer) => mean(layer.sum, layer.count)), even: sorted.map((layer) => mean(layer.even, layer.count)) };
}

/** One row of the rollout: layers multiplied from the last to the first, half of each the residual.
 * Source: Abnar and Zuidema, 2020. @param {Float32Array[]} layers @param {number} n @param {number} query */
function reached(layers, n, query) {
  let now = new Float32Array(n);
  now[query] = 1;
  for (const layer of [...layers].reverse()) {
    const next = new Float32Array(n);
    for (let i = 0; i < n; i++) {
      if (!now[i]) continue;
      let sum = 0;
      for (let j = 0; j < n; j++) sum += layer[i * n + j];
      const total = sum / 2 + 0.5;
      for (let j = 0; j < n; j++) next[j] += (now[i] * layer[i * n + j]) / 2 / total;
      next[i] += now[i] / 2 / total;
    }
    now = next;
  }
  return now;
}

/** The rollout of the chosen word; null where it cannot be had. @returns {Promise<Float32Array|null>} */
export async function rollout() {
  const there = run();
  if (there.k || there.q.length > MOST || there.heads.some((one) => one.r === "none")) return null;
  let found = means.get(state.run);
  if (!found) means.set(state.run, (found = average(state.run)));
  const query = state.query;
  const { n, layers, even } = await found;
  const row = reached(layers, n, query);
  if (state.view !== "rollout" || query !== state.query) return row;
  const chance = reached(even, n, query);
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, 14);
  at("view").replaceChildren(
    make("p", { class: "lead" }, say("rollout.lead", nameOf(query, there.q))),
    make("ol", { class: "found" }, ...order.map((key) => make("li", {}, make("button", { type: "button", onclick: () => choose({ key }) },
      make("span", { class: "where" }, keys()[key][0]), bar(row[key] / row[order[0]]), make("span", { class: "number" }, told(row[key])),
      make("span", { class: "rank" }, say("rollout.even", told(chance[key]))))))),
    make("p", { class: "note" }, say("rollout.note")));
  return row;
}
