import { meta } from "./data.js";
import { at, bar, make } from "./dom.js";
import { lay } from "./grid.js";
import { choose, run } from "./state.js";
import { say, signed } from "./words.js";

let chosen = 0;

/** What changes when a head is taken away: laid over the tiles, and ranked. */
export function showEffects() {
  const effects = meta.effects[chosen];
  const heads = run().heads;
  const place = (/** @type {{l: number, h: number}} */ one) => heads.findIndex((head) => head.l === one.l && head.h === one.h);
  lay(heads.map((head) => effects.heads.find((one) => one.l === head.l && one.h === head.h)?.v ?? null));
  const ranked = effects.heads.filter((one) => one.v !== null).sort((a, b) => Math.abs(b.v ?? 0) - Math.abs(a.v ?? 0));
  const most = Math.abs(ranked[0]?.v ?? 1) || 1;
  const measures = make("div", { class: "choice", role: "group" }, ...meta.effects.map((one, index) =>
    make("button", { type: "button", "aria-pressed": index === chosen, onclick: () => { chosen = index; showEffects(); } }, one.measure)));
  at("view").replaceChildren(
    make("p", { class: "lead" }, say("effects.lead", effects.by, effects.measure, effects.at)),
    meta.effects.length > 1 ? measures : "",
    make("ol", { class: "found" }, ...ranked.slice(0, 16).map((one) => make("li", {}, make("button", { type: "button", onclick: () => { const head = place(one); if (head >= 0) choose({ head }); } },
      make("span", { class: "where" }, say("head.name", one.l, one.h)), bar(Math.abs(one.v ?? 0) / most, (one.v ?? 0) < 0 ? "less" : ""),
      make("span", { class: "number" }, signed(one.v ?? 0, 4)), make("span", { class: "rank" }, one.r === null ? (one.w === null ? "" : say("effects.weight", one.w.toFixed(2))) : say("effects.random", signed(one.r, 4))))))),
    make("p", { class: "note" }, say("effects.note")));
}
