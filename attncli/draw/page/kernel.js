/**
 * Weights of queries i0…i1−1 for keys j0…j1−1, made from queries and keys; each cell the largest of pool × pool.
 * exp(score − lse) is the softmax with its row's log-sum-exp; a hidden weight is −1. Also runs in the worker, so it
 * uses nothing from outside.
 * @param {import("./types.js").Parts} parts
 * @param {number} i0 @param {number} i1 @param {number} j0 @param {number} j1 @param {number} pool
 */
export function weigh(parts, i0, i1, j0, j1, pool) {
  const { q, k, d, n, m, lse, bias, scale, cap, bits } = parts;
  const wide = Math.ceil((j1 - j0) / pool);
  const found = new Float32Array(Math.ceil((i1 - i0) / pool) * wide).fill(-1);
  const line = (m + 7) >> 3;
  for (let i = i0; i < i1; i++) {
    const low = lse[i];
    const start = Math.floor((i - i0) / pool) * wide;
    for (let j = j0; j < j1; j++) {
      if (bits && !((bits[i * line + (j >> 3)] >> (7 - (j & 7))) & 1)) continue;
      let sum = 0;
      for (let c = 0, a = i * d, b = j * d; c < d; c++) sum += q[a + c] * k[b + c];
      sum *= scale;
      if (cap !== null) sum = cap * Math.tanh(sum / cap);
      if (bias) sum += bias[j - i + n - 1];
      const weight = low === -Infinity ? 0 : Math.exp(sum - low);
      const at = start + Math.floor((j - j0) / pool);
      if (weight > found[at]) found[at] = weight;
    }
  }
  return found;
}
