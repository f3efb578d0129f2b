import { meta } from "./data.js";
import { at, fill, make } from "./dom.js";
import { max } from "./numbers.js";
import { open, state } from "./state.js";
import { say } from "./words.js";

/** Of what the chosen word looks at, the part in each region: of the weight that does not rest, and how much rests. @param {Float32Array|null} row */
export function showRegions(row) {
  /** @type {Record<string, number>} */
  const shares = {}, rests = open(true);
  let rest = 0, all = 0;
  row?.forEach((weight, key) => { if (rests.has(key)) rest += max(weight, 0); all += max(weight, 0); });
  if (row) for (const [name, first, behind] of meta.bands) {
    const text = name[state.lang] ?? name.en;
    shares[text] ??= 0;
    for (let key = first; key < behind; key++) if (!rests.has(key)) shares[text] += max(row[key], 0) / (all - rest || 1);
  }
  at("regions").hidden = false;
  const ranked = Object.entries(shares).sort((a, b) => b[1] - a[1]);
  if (ranked.length && rest) ranked.push([say("regions.rest"), rest]);
  fill("regions", ranked.length ? say(rest ? "regions.beyond" : "regions") : "", ...ranked.map(([name, share]) => make("span", `${name} `, make("b", `${(100 * share).toFixed(1)}%`))));
}
