import { meta } from "./data.js";
import { bar, button, fill, lead, make, note, ranking } from "./dom.js";
import { layEffects } from "./effects.js";
import { lay } from "./grid.js";
import { abs, max } from "./numbers.js";
import { choose, head, keys, queries, run, state } from "./state.js";
import { headName, linkName, nameOf, say, signed, told } from "./words.js";

/** The place of a head in the run. @param {number} l @param {number} h */
const placeOf = (l, h) => run().heads.findIndex((one) => one.l === l && one.h === h);

/** What is known of why the chosen head has the chosen link. */
const chosenWhy = () =>
  meta.why.find(({ l, h, q, k }) => l === head().l && h === head().h && q === state.query && k === state.key);

/** One side: its parts as bars, a head to be gone to. @param {import("./types.js").Part[]} parts @param {number} count @param {string} title @param {number} digits */
function side(parts, count, title, digits) {
  const most = max(...parts.map(({ v }) => abs(v)), 1e-30);
  const rows = parts.map(({ n, v, w, l, h }) => ({
    name: n[state.lang], share: abs(v) / most, kind: v < 0 ? "in" : "", number: signed(v, digits),
    rank: w === null ? "" : say("why.without", { weight: told(w) }),
    act: () => placeOf(l ?? -1, h ?? -1) >= 0 && choose({ head: placeOf(l ?? -1, h ?? -1) }),
  }));
  return make("div.side", make("h3", title), ranking(rows), count > parts.length ? note(say("why.rest", { count: count - parts.length })) : "");
}

/** Why the chosen link has its weight: the parts of both words, the earlier heads' laid over the tiles; of another link,
 * those that the page holds the parts of. */
export function showWhy() {
  const why = chosenWhy();
  if (!why) {
    lay(null);
    const own = meta.why.filter(({ l, h }) => l === head().l && h === head().h);
    fill("view", lead(say("why.other")), ranking((own.length ? own : meta.why).map(({ l, h, q, k, w }) => ({
      name: `${headName({ l, h })} · ${linkName(q, queries(), k, keys())}`, share: w, number: told(w),
      act: () => choose({ head: max(0, placeOf(l, h)), query: q, key: k }),
    }))));
    return;
  }
  lay(run().heads.map(({ l, h }) => why.heads.find((one) => one[0] === l && one[1] === h)?.[2] ?? null));
  const digits = abs(why.t) >= 0.1 ? 3 : abs(why.t) >= 0.001 ? 5 : 7;
  const query = nameOf(why.q, queries()), key = nameOf(why.k, keys());
  const places = { query, key, weight: told(why.w), total: signed(why.t, digits), score: signed(why.s, 4), other: why.than === null ? "" : nameOf(why.than, keys()) };
  fill("view",
    lead(say(why.than === null ? "why.lead" : "why.than", places)),
    make("div.asked", side(why.asks, why.counts[0], say("why.asks", places), digits), side(why.answers, why.counts[1], say("why.answers", places), digits)),
    note([say("why.sum", { count: why.count, score: signed(why.s, 4), difference: why.d }), ...(why.heads.length ? [say("why.tinted")] : []), ...(why.spread ? [say("why.spread")] : [])].join(" ")));
}

/** What each layer would say next, and how likely the target is there. */
export function showLens() {
  const lens = meta.lens;
  if (!lens) return;
  if (meta.effects.length) layEffects();
  else lay(null);
  fill("view",
    lead(say("lens.lead", { target: lens.target })),
    make("ol", { class: "found lens" }, ...lens.rows.map(({ l, stage, rank, p, top }) =>
      make("li", button(() => {
        const place = run().heads.findIndex((one) => one.l === l);
        if (place >= 0) choose({ head: place });
      },
        make("span.where", l === null ? say(`lens.${stage}`) : say("lens.row", { layer: l, stage: say(`lens.${stage}`) })),
        bar(p, ""), make("span.number", told(p)),
        make("span.rank", `${say("lens.rank", { rank })} · ${top.map(([text, share]) => `${text} ${share.toFixed(2)}`).join("  ")}`))))),
    note(say("lens.note")));
}
