export const { abs, ceil, floor, max, min, round } = Math;

/** A number from 0 to `high`. @param {number} value @param {number} high */
export const clamp = (value, high) => max(0, min(value, high));

/** The places of the largest numbers, largest first. @param {ArrayLike<number>} values @param {number} count */
export function largest(values, count) {
  /** @type {number[]} */
  const found = [];
  for (let at = 0; at < values.length; at++) {
    if (found.length >= count && !(values[at] > values[found[count - 1]])) continue;
    let place = found.length;
    while (place && values[at] > values[found[place - 1]]) place--;
    found.splice(place, 0, at);
    found.length = min(found.length, count);
  }
  return found;
}
