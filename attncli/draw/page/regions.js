import { meta } from "./data.js";
import { at, fill, make } from "./dom.js";
import { max } from "./numbers.js";
import { state } from "./state.js";
import { say } from "./words.js";

/** Of what the chosen word looks at, the part in each region. @param {Float32Array|null} row */
export function showRegions(row) {
  /** @type {Record<string, number>} */
  const shares = {};
  if (row) for (const [name, first, behind] of meta.bands) {
    const text = name[state.lang] ?? name.en;
    shares[text] = row.slice(first, behind).reduce((sum, weight) => sum + max(weight, 0), shares[text] ?? 0);
  }
  at("regions").hidden = false;
  const ranked = Object.entries(shares).sort((a, b) => b[1] - a[1]);
  fill("regions", ranked.length ? say("regions") : "", ...ranked.map(([name, share]) => make("span", `${name} `, make("b", `${(100 * share).toFixed(1)}%`))));
}
