import { block, joined, meta } from "./data.js";
import { passOn, weigh } from "./kernel.js";
import { ceil, floor } from "./numbers.js";

/** Pairs from which a tile is weighed in the background. */
const MANY = 1 << 16;

/** @type {Map<string, Promise<import("./types.js").Weights|null>>} */
const kept = new Map();

/** Vectors as they were kept: 16 bits on a scale of each dimension, or float32. @param {ArrayBuffer} data
 * @param {number} from @param {number} count @param {number} d @param {number} floats */
function vectors(data, from, count, d, floats) {
  if (floats) return new Float32Array(data, from, count * d);
  const low = new Float32Array(data, from, d);
  const step = new Float32Array(data, from + 4 * d, d);
  const codes = joined(new Uint8Array(data, from + 8 * d, 2 * count * d));
  const found = new Float32Array(count * d);
  for (let at = 0; at < found.length; at++) found[at] = low[at % d] + step[at % d] * codes[at];
  return found;
}

/** Whether a query sees a key. @param {Uint8Array|null} bits @param {number} m @param {number} i @param {number} j */
export const sees = (bits, m, i, j) => !bits || Boolean((bits[i * ((m + 7) >> 3) + (j >> 3)] >> (7 - (j & 7))) & 1);

/** @param {import("./types.js").HeadMeta} head */
const mask = async ({ s }) => (s < 0 ? null : new Uint8Array(await block(`s${s}`)));

/** What a head's scores are made from; null where that was not kept. @param {number} run @param {number} at
 * @returns {Promise<import("./types.js").Parts|null>} */
export async function parts(run, at) {
  const head = meta.runs[run].heads[at];
  const { d, n: m } = head;
  if (!head.p || !d) return null;
  const [first, second, floats] = head.p;
  const [own, shared, bits] = await Promise.all([block(first), block(second), mask(head)]);
  const n = meta.runs[run].q.length;
  const biased = head.a ? n + m - 1 : 0;
  return {
    q: vectors(own, 4 * (n + biased), n, d, floats), k: vectors(shared, 0, m, d, floats),
    d, n, m, bits, lse: new Float32Array(own, 0, n), bias: biased ? new Float32Array(own, 4 * n, biased) : null,
    scale: head.x, cap: head.c,
  };
}

/** What a head passes on of each key, [key, dim] in some dimensions of all, with digits that are right; null where that was
 * not kept. @param {number} run @param {number} at */
export async function values(run, at) {
  const { v, n } = meta.runs[run].heads[at];
  return v ? { all: vectors(await block(v[0]), 0, n, v[1], 0), shown: v[1], width: v[2], digits: v[3] } : null;
}

/** Weights that are made when they are asked for. @param {import("./types.js").Parts} found @returns {import("./types.js").Weights} */
function made(found) {
  const { n, m } = found;
  return { n, m, source: { parts: found, all: null, m }, row: (i) => weigh(found, i, i + 1, 0, m, 1), column: (j) => weigh(found, 0, n, j, j + 1, 1), tile: (place) => tile(found, place) };
}

/** Numbers [rows, wide] that are at hand, `pool` × `pool` of them a cell: the largest by their size, `open` where there is
 * none. @param {Float32Array} all @param {number} wide @param {import("./types.js").Tile} place @param {number} open @param {(value: number) => number} size */
export function pooled(all, wide, [i0, i1, j0, j1, pool], open, size) {
  if (pool === 1 && !j0 && j1 === wide) return all.subarray(i0 * wide, i1 * wide);
  const columns = ceil((j1 - j0) / pool);
  const cells = new Float32Array(ceil((i1 - i0) / pool) * columns).fill(open);
  for (let i = i0; i < i1; i++)
    for (let j = j0; j < j1; j++) {
      const to = floor((i - i0) / pool) * columns + floor((j - j0) / pool);
      const value = all[i * wide + j];
      if (size(value) > size(cells[to]) || isNaN(cells[to])) cells[to] = value;
    }
  return cells;
}

/** Weights that were kept as such. @param {Float32Array} all @param {number} n @param {number} m @returns {import("./types.js").Weights} */
function keptWeights(all, n, m) {
  return {
    n, m, source: { parts: null, all, m }, row: (i) => all.subarray(i * m, (i + 1) * m), column: (j) => Float32Array.from({ length: n }, (_, i) => all[i * m + j]),
    tile: (place) => pooled(all, m, place, -1, (weight) => weight),
  };
}

/** @param {number} run @param {number} at */
async function load(run, at) {
  const head = meta.runs[run].heads[at];
  if (head.r === "none") return null;
  if (!head.b) {
    const found = await parts(run, at);
    return found && made(found);
  }
  const [data, bits] = await Promise.all([block(head.b), mask(head)]);
  const m = head.n;
  const all = head.r === "exact" ? new Float32Array(data.slice(0)) : Float32Array.from(joined(new Uint8Array(data)), (root) => (root / 65535) ** 2);
  return keptWeights(all.map((weight, at) => (sees(bits, m, floor(at / m), at % m) ? weight : -1)), meta.runs[run].q.length, m);
}

/** A head's weights; those of the last few heads are at hand. null where they were not kept.
 * @param {number} run @param {number} at */
export function weightsOf(run, at) {
  const name = `${run}.${at}`;
  const found = kept.get(name) ?? load(run, at);
  kept.delete(name);
  kept.set(name, found);
  for (const old of kept.keys()) if (kept.size > 12) kept.delete(old);
  return found;
}

/** A worker that weighs in the background; null where none may be started, and then this thread does it.
 * @type {Worker|null|undefined} */
let worker;

function start() {
  try {
    const source = `const weigh=${weigh};const passOn=${passOn};onmessage=({data:[id,name,...given]})=>{const f=(name==="weigh"?weigh:passOn)(...given);postMessage([id,f],[f.buffer])}`;
    return new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  } catch {
    return null;
  }
}

let asked = 0;

/** What the worker makes of something; this thread, where there is none. @param {"weigh"|"passOn"} name @param {any[]} given
 * @returns {Float32Array|Promise<Float32Array>} */
function inBackground(name, ...given) {
  if (worker === undefined) worker = start();
  const other = worker;
  // @ts-ignore: each is given what it takes
  if (!other) return (name === "weigh" ? weigh : passOn)(...given);
  const id = ++asked;
  return new Promise((done) => {
    /** @param {MessageEvent} event */
    const hear = ({ data }) => {
      if (data[0] !== id) return;
      other.removeEventListener("message", hear);
      done(data[1]);
    };
    other.addEventListener("message", hear);
    other.postMessage([id, name, ...given]);
  });
}

/** A tile, weighed in the background where it is large. @param {import("./types.js").Parts} from @param {import("./types.js").Tile} place
 * @returns {Float32Array|Promise<Float32Array>} */
const tile = (from, place) => (from.n * from.m <= MANY ? weigh(from, ...place) : inBackground("weigh", from, ...place));

/** What a layer passes on, made in the background (see `passOn`). @param {number} n @param {import("./types.js").HeadSource[]} heads */
export const layerPasses = (n, heads) => inBackground("passOn", n, heads);
