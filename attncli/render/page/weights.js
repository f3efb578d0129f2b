import { block, joined, meta } from "./data.js";
import { weigh } from "./kernel.js";

/** Pairs up to which a head's weights are all held at once. */
const HELD = 1 << 20;

/** @type {Map<string, Promise<import("./types.js").Weights|null>>} */
const kept = new Map();

/** Vectors as they were kept: 16 bits on a scale of each dimension, or float32. @param {ArrayBuffer} data
 * @param {number} from @param {number} count @param {number} d @param {boolean} floats */
function vectors(data, from, count, d, floats) {
  if (floats) return new Float32Array(data, from, count * d);
  const low = new Float32Array(data, from, d);
  const step = new Float32Array(data, from + 4 * d, d);
  const codes = joined(new Uint8Array(data, from + 8 * d, 2 * count * d));
  const found = new Float32Array(count * d);
  for (let at = 0; at < found.length; at++) found[at] = low[at % d] + step[at % d] * codes[at];
  return found;
}

/** What a head's scores are made from; null where that was not kept. @param {number} run @param {number} at
 * @returns {Promise<import("./types.js").Parts|null>} */
export async function parts(run, at) {
  const head = meta.runs[run].heads[at];
  if (!head.p || !head.d) return null;
  const [first, second, floats] = head.p;
  const [own, shared] = await Promise.all([block(first), block(second)]);
  const { d, n: m } = head;
  const n = meta.runs[run].q.length;
  const biased = head.a ? n + m - 1 : 0;
  const bits = head.s < 0 ? null : new Uint8Array(await block(`s${head.s}`));
  return {
    q: vectors(own, 4 * (n + biased), n, d, Boolean(floats)),
    k: vectors(shared, 0, m, d, Boolean(floats)),
    d, n, m, bits,
    lse: new Float32Array(own, 0, n),
    bias: biased ? new Float32Array(own, 4 * n, biased) : null,
    scale: head.x,
    cap: head.c,
  };
}

/** @param {number} run @param {number} at @returns {Promise<import("./types.js").Weights|null>} */
async function load(run, at) {
  const head = meta.runs[run].heads[at];
  const n = meta.runs[run].q.length;
  const m = head.n;
  if (head.r === "none") return null;
  const found = await parts(run, at);
  /** @type {Float32Array|null} */
  let all = null;
  if (head.r === "exact" || head.r === "roots") {
    const data = await block(head.b ?? "");
    if (head.r === "exact") all = new Float32Array(data.slice(0));
    else all = Float32Array.from(joined(new Uint8Array(data)), (root) => (root / 65535) ** 2);
    const bits = head.s < 0 ? null : new Uint8Array(await block(`s${head.s}`));
    const line = (m + 7) >> 3;
    for (let p = 0; bits && p < all.length; p++) {
      const i = Math.floor(p / m);
      const j = p % m;
      if (!((bits[i * line + (j >> 3)] >> (7 - (j & 7))) & 1)) all[p] = -1;
    }
  } else if (found && n * m <= HELD) all = weigh(found, 0, n, 0, m, 1);
  const held = all;
  return {
    n, m, all, parts: found,
    row: (i) => (held ? held.subarray(i * m, (i + 1) * m) : weigh(/** @type {any} */ (found), i, i + 1, 0, m, 1)),
    column: (j) =>
      held ? Float32Array.from({ length: n }, (_, i) => held[i * m + j]) : weigh(/** @type {any} */ (found), 0, n, j, j + 1, 1),
  };
}

/** A head's weights, made when they are asked for; the last few are held. null where they were not kept.
 * @param {number} run @param {number} at */
export function weightsOf(run, at) {
  const name = `${run}.${at}`;
  let found = kept.get(name);
  kept.delete(name);
  if (!found) found = load(run, at);
  kept.set(name, found);
  for (const old of kept.keys()) if (kept.size > 12) kept.delete(old);
  return found;
}

/** @type {Worker|null|undefined} */
let started;

/** A worker that weighs tiles of long texts; null where none may be started, and then this thread does it. */
function worker() {
  if (started === undefined) started = start();
  return started;
}

function start() {
  try {
    const source = `const weigh=${weigh};onmessage=({data:[id,p,...at]})=>{const f=weigh(p,...at);postMessage([id,f],[f.buffer])}`;
    const made = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    return made;
  } catch {
    return null;
  }
}

let asked = 0;

/** A tile, weighed in the background. @param {import("./types.js").Parts} from
 * @param {[number, number, number, number, number]} place @returns {Promise<Float32Array>} */
export function tile(from, place) {
  const id = ++asked;
  return new Promise((done) => {
    const other = from.n * from.m > HELD ? worker() : null;
    if (!other) return void setTimeout(() => done(weigh(from, ...place)));
    /** @param {MessageEvent} event */
    const hear = ({ data }) => {
      if (data[0] !== id) return;
      other.removeEventListener("message", hear);
      done(data[1]);
    };
    other.addEventListener("message", hear);
    other.postMessage([id, from, ...place]);
  });
}
