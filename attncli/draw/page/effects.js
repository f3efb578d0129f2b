import { meta } from "./data.js";
import { fill, lead, note, ranking, toggles } from "./dom.js";
import { lay } from "./grid.js";
import { abs } from "./numbers.js";
import { choose, run } from "./state.js";
import { headName, say, signed } from "./words.js";

/** The measure that is shown. */
let shownMeasure = 0;

/** The effects of the measure with their heads' places, the turned first. */
const turned = () =>
  meta.effects[shownMeasure].heads
    .map(({ l, h, v, r, w }) => ({ l, h, v: v ?? 0, r, w, place: run().heads.findIndex((head) => head.l === l && head.h === h) }))
    .sort((a, b) => abs(b.v) - abs(a.v));

/** What a name stands for, where the page has words for it. @param {string} group @param {string} name */
const phrase = (group, name) => (say(`${group}.${name}`) === `${group}.${name}` ? name : say(`${group}.${name}`));

/** Lay the effects of the measure over the tiles. */
export function layEffects() {
  const ranked = turned();
  lay(run().heads.map((_, place) => ranked.find((one) => one.place === place)?.v ?? null));
}

/** What changes when a head is taken away, or what it brings: laid over the tiles, and ranked. */
export function showEffects() {
  const { by, measure, at, kind: effect } = meta.effects[shownMeasure];
  const kind = effect === "ablate" && by === "knockout" ? by : effect;
  const ranked = turned();
  layEffects();
  fill("view",
    lead(say(`${kind}.lead`, {
      by: kind === "ablate" ? phrase("by", by) : by,
      measure: phrase(kind === "patch" && measure === "cosine" ? "patch" : "measure", measure), place: at ? say("effects.word", { word: at }) : say("effects.mean"),
    })),
    toggles(meta.effects.length > 1 ? meta.effects.map(({ measure }) => measure) : [], shownMeasure, (place) => {
      shownMeasure = place;
      showEffects();
    }),
    ranking(ranked.slice(0, 16).map(({ l, h, v, r, w, place }) => ({
      name: headName({ l, h }), share: abs(v) / (abs(ranked[0].v) || 1), kind: v < 0 ? "in" : "", number: signed(v, 4),
      rank: r !== null ? say("effects.random", { size: signed(r, 4) }) : w !== null ? say("effects.weight", { weight: w.toFixed(2) }) : "",
      act: () => place >= 0 && choose({ head: place }),
    }))),
    note(say(`${kind}.note`)));
}
