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

/**
 * What a layer passes on, [query, key] twice: its heads' mean with half of each row staying where it was, and the same if
 * a head looked at all that it sees alike. Also runs in the worker, where it knows `weigh`.
 * @param {number} n @param {import("./types.js").HeadSource[]} heads
 */
export function passOn(n, heads) {
  const found = new Float32Array(2 * n * n);
  for (const { parts, all, m } of heads) {
    const weights = parts ? weigh(parts, 0, n, 0, m, 1) : all;
    for (let i = 0; weights && i < n; i++) {
      let seen = 0;
      for (let j = 0; j < m; j++) seen += Number(weights[i * m + j] >= 0);
      for (let j = 0; j < n; j++) {
        const weight = weights[i * m + j];
        if (weight < 0) continue;
        found[i * n + j] += weight;
        found[(n + i) * n + j] += 1 / seen;
      }
    }
  }
  for (let row = 0; row < 2 * n; row++) {
    let sum = 0;
    for (let j = 0; j < n; j++) sum += found[row * n + j];
    found[row * n + (row % n)] += sum || 1;
    for (let j = 0; j < n; j++) found[row * n + j] /= 2 * sum || 1;
  }
  return found;
}
