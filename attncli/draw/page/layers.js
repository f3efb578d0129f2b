/**
 * A small model run in the page, in double precision: what `mechanism/block.py` does, for the parts that
 * `features/explain/page_model.py` lets through. Rows are vectors of tokens; a matrix is [out, in], as the files have it.
 *
 * @typedef {Float64Array} Row
 * @typedef {{heads: number, kv: number, dk: number, dv: number, scale: number, cap: number|null, mask: [number|null, number|null][],
 *   rope: {frequencies: number[], half: boolean, first: number}|null, slopes: number[]|null, symmetric: boolean,
 *   norms: Record<string, {kind: string, eps: number}>, parallel: boolean, residual: boolean, factor: number, mlp: {act: string, gated: boolean}|null}} BlockMeta
 * @typedef {{q: Row[], k: Row[], v: Row[], raw: Row[], scaled: Row[], capped: Row[]|null, bias: Row[]|null, visible: boolean[][], scores: Row[], weights: Row[], output: Row[]}} HeadRun
 * @typedef {{heads: HeadRun[], after: Row[]}} LayerRun
 */
import { uniformNumbers } from "./streams.js";

/** @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
const dot = (a, b) => {
  let sum = 0;
  for (let place = 0; place < a.length; place++) sum += a[place] * b[place];
  return sum;
};
/** @param {Row[]} a @param {Row[]} b @param {number} factor */
const added = (a, b, factor = 1) => a.map((row, token) => row.map((value, place) => value + factor * b[token][place]));

/** x·Wᵀ + b. @param {Map<string, Row>} arrays @param {string} name @param {Row[]} rows */
function linear(arrays, name, rows) {
  const matrix = arrays.get(`${name}.weight`);
  if (!matrix) return rows;
  const bias = arrays.get(`${name}.bias`);
  const wide = rows[0].length;
  return rows.map((row) => Float64Array.from({ length: matrix.length / wide }, (_, out) => dot(row, matrix.subarray(out * wide, (out + 1) * wide)) + (bias ? bias[out] : 0)));
}

/** @param {Map<string, Row>} arrays @param {string} name @param {{kind: string, eps: number}|undefined} norm @param {Row[]} rows */
function normed(arrays, name, norm, rows) {
  if (!norm) return rows;
  const [weight, bias] = [arrays.get(`${name}.weight`), arrays.get(`${name}.bias`)];
  return rows.map((row) => {
    const mean = norm.kind === "layer" ? row.reduce((sum, value) => sum + value, 0) / row.length : 0;
    const spread = Math.sqrt(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length + norm.eps);
    return row.map((value, place) => ((value - mean) / spread) * (weight ? weight[place] : 1) + (bias ? bias[place] : 0));
  });
}

/** The error function, by its series of terms of one sign. @param {number} x */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let place = 1; Math.abs(term) > 1e-17 * Math.abs(sum); place++) sum += term *= (2 * x * x) / (2 * place + 1);
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** @type {Record<string, (x: number) => number>} */
const ACTIVATIONS = {
  gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  gelu_bloom: (x) => 0.5 * x * (1 + Math.tanh(0.79788456 * x * (1 + 0.044715 * x * x))),
  relu: (x) => (x < 0 ? 0 : x),
  silu: (x) => x / (1 + Math.exp(-x)),
  tanh: Math.tanh,
};

/** @param {Map<string, Row>} arrays @param {string} prefix @param {{act: string, gated: boolean}} mlp @param {Row[]} rows */
function feedForward(arrays, prefix, { act, gated }, rows) {
  const run = ACTIVATIONS[act];
  const up = linear(arrays, `${prefix}.up`, rows);
  const gate = gated ? linear(arrays, `${prefix}.gate`, rows) : up;
  const inner = gate.map((row, token) => row.map((value, place) => run(value) * (gated ? up[token][place] : 1)));
  return linear(arrays, `${prefix}.down`, inner);
}

/** Vectors turned by their place. Angles are rounded to float32, as trained models have seen them. @param {Row[]} rows @param {NonNullable<BlockMeta["rope"]>} rope */
function rotated(rows, { frequencies, half, first }) {
  return rows.map((row, place) => {
    const turned = row.slice();
    frequencies.forEach((frequency, pair) => {
      const angle = Math.fround(place * Math.fround(frequency));
      const [a, b] = half ? [first + pair, first + pair + frequencies.length] : [first + 2 * pair, first + 2 * pair + 1];
      turned[a] = row[a] * Math.cos(angle) - row[b] * Math.sin(angle);
      turned[b] = row[b] * Math.cos(angle) + row[a] * Math.sin(angle);
    });
    return turned;
  });
}

/** @param {Row} scores @param {boolean[]} visible */
export function softmaxRow(scores, visible) {
  const highest = scores.reduce((most, score, key) => (visible[key] ? Math.max(most, score) : most), -Infinity);
  const shifted = scores.map((score, key) => (visible[key] ? score - highest : -Infinity));
  const exponentials = shifted.map((value) => (value === -Infinity ? 0 : Math.exp(value)));
  const sum = exponentials.reduce((total, value) => total + value, 0);
  return { highest, shifted, exponentials, sum, weights: exponentials.map((value) => (sum ? value / sum : 0)) };
}

/** One head, every stage. @param {BlockMeta} block @param {number} head @param {Row[]} q @param {Row[]} k @param {Row[]} v @param {{scale?: number, mask: [number|null, number|null][]|null}} change @returns {HeadRun} */
function runHead(block, head, q, k, v, change) {
  const scale = change.scale ?? block.scale;
  const mask = change.mask ? (change.mask.length ? [...block.mask, ...change.mask] : []) : block.mask;
  const raw = q.map((query) => Float64Array.from(k, (key) => dot(query, key)));
  const scaled = raw.map((row) => row.map((value) => value * scale));
  const cap = block.cap;
  const capped = cap === null ? null : scaled.map((row) => row.map((value) => cap * Math.tanh(value / cap)));
  const slope = block.slopes?.[head];
  const bias = slope === undefined ? null : raw.map((row, i) => row.map((_, j) => -slope * (block.symmetric ? Math.abs(i - j) : i - j)));
  const visible = raw.map((row, i) => Array.from(row, (_, j) => mask.every(([left, right]) => (left === null || j >= i - left) && (right === null || j <= i + right))));
  const scores = (capped ?? scaled).map((row, i) => row.map((value, j) => value + (bias ? bias[i][j] : 0)));
  const weights = scores.map((row, i) => softmaxRow(row, visible[i]).weights);
  const output = weights.map((row) => v[0].map((_, entry) => row.reduce((sum, weight, key) => sum + weight * v[key][entry], 0)));
  return { q, k, v, raw, scaled, capped, bias, visible, scores, weights, output };
}

/** One layer. @param {Map<string, Row>} arrays @param {number} layer @param {BlockMeta} block @param {Row[]} x @param {{scale?: number, mask: [number|null, number|null][]|null, without?: number}} change without: a head whose output is taken away @returns {LayerRun} */
function runLayer(arrays, layer, block, x, change) {
  const name = (/** @type {string} */ role) => `${layer}.${role}`;
  const norm = (/** @type {string} */ place, /** @type {Row[]} */ rows) => normed(arrays, name(place), block.norms[place], rows);
  const entering = norm("attn.in", x);
  const [q, k, v] = ["q", "k", "v"].map((role) => linear(arrays, name(`attn.${role}`), entering));
  const part = (/** @type {Row[]} */ rows, /** @type {number} */ place, /** @type {number} */ width) => rows.map((row) => row.slice(place * width, (place + 1) * width));
  const turn = (/** @type {Row[]} */ rows) => (block.rope ? rotated(rows, block.rope) : rows);
  const shared = block.heads / block.kv;
  const heads = Array.from({ length: block.heads }, (_, head) => {
    const from = Math.floor(head / shared);
    return runHead(block, head, turn(part(q, head, block.dk)), turn(part(k, from, block.dk)), part(v, from, block.dv), change);
  });
  const concat = x.map((_, token) => Float64Array.from(heads.flatMap((head, number) => [...head.output[token]].map((value) => (number === change.without ? 0 : value)))));
  const branch = norm("attn.out", linear(arrays, name("attn.o"), concat));
  const mlp = block.mlp;
  const forward = (/** @type {Row[]} */ rows) => (mlp ? feedForward(arrays, name("mlp"), mlp, rows) : null);
  if (block.parallel && mlp) {
    const beside = forward(block.norms["mlp.in"] ? norm("mlp.in", x) : entering);
    return { heads, after: added(added(x, branch, block.factor), beside ?? x, block.factor) };
  }
  const state = norm("attn.sum", block.residual ? added(x, branch, block.factor) : branch);
  const fed = forward(norm("mlp.in", state));
  return { heads, after: norm("mlp.sum", fed ? added(state, norm("mlp.out", fed), block.factor) : state) };
}

/** The vectors that enter layer 0. @param {any} model @param {Map<string, Row>} arrays @param {{text: string, id: number|null}[]} tokens */
function embedded(model, arrays, tokens) {
  const wide = model.width;
  const entry = (/** @type {string} */ table, /** @type {number} */ place) => arrays.get(table)?.subarray(place * wide, (place + 1) * wide) ?? new Float64Array(wide);
  let rows = tokens.map(({ text, id }) => (model.seeded ? uniformNumbers(model.seed, `embedding\0${text}`, wide) : entry("tokens.weight", id ?? 0).slice()));
  const positions = (/** @type {number} */ place) => {
    if (model.positions === "table") return entry("positions.weight", place + model.offset);
    if (model.positions === "learned") return uniformNumbers(model.seed, `position\0${place}`, wide);
    return Float64Array.from({ length: wide }, (_, at) => (at % 2 ? Math.cos : Math.sin)(place / 10000 ** ((at - (at % 2)) / wide)));
  };
  if (model.positions) rows = rows.map((row, place) => { const more = positions(place); return row.map((value, at) => value + more[at]); });
  return normed(arrays, "embed.norm", model.norm ?? undefined, rows);
}

/**
 * All layers of a model, up to one, for some tokens.
 * @param {any} model @param {Map<string, Row>} arrays @param {{text: string, id: number|null}[]} tokens
 * @param {{scale?: number, mask: [number|null, number|null][]|null, without?: [number, number]}} change
 * @returns {LayerRun[]}
 */
export function runModel(model, arrays, tokens, change) {
  let x = embedded(model, arrays, tokens);
  return model.blocks.map((/** @type {BlockMeta} */ block, /** @type {number} */ layer) => {
    const head = change.without?.[0] === layer ? change.without[1] : undefined;
    const made = runLayer(arrays, layer, block, x, { ...change, without: head });
    x = made.after;
    return made;
  });
}

/** The weights of a model: drawn by its seed, or those that the page carries. @param {any} model @param {ArrayBuffer|null} carried */
export function weightsOfModel(model, carried) {
  const numbers = carried && new Float32Array(carried);
  let place = 0;
  return new Map(model.arrays.map(({ name, size, stream, scale, fill }) => {
    if (stream !== undefined) return [name, uniformNumbers(model.seed, stream, size, scale)];
    if (fill !== undefined) return [name, new Float64Array(size).fill(fill)];
    place += size;
    return [name, Float64Array.from(/** @type {Float32Array} */ (numbers).subarray(place - size, place))];
  }));
}
