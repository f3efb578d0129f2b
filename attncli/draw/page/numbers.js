export const { abs, ceil, floor, max, min, round } = Math;

/** A number from 0 to `high`. @param {number} value @param {number} high */
export const clamp = (value, high) => max(0, min(value, high));

/** The places of the largest numbers, largest first. @param {ArrayLike<number>} values @param {number} count */
export const largest = (values, count) =>
  [...Array(values.length).keys()].sort((a, b) => values[b] - values[a]).slice(0, count);
