import { meta } from "./data.js";
import { at, bar, make } from "./dom.js";
import { lay } from "./grid.js";
import { choose, keys, run, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { weigh } from "./kernel.js";
import { parts } from "./weights.js";
import { named, nameOf, say, told } from "./words.js";

const SHOWN = 12;
const from = make("input", { id: "from", list: "asking-words", autocomplete: "off", spellcheck: "false" });
const to = make("input", { id: "to", list: "key-words", autocomplete: "off", spellcheck: "false" });
const list = make("ol", { class: "found" });
const told_ = make("p", { class: "note", "aria-live": "polite" });

/** One row of a head. @param {number} place @param {number} query */
async function rowOf(place, query) {
  const one = run().heads[place];
  if (one.r === "none") return null;
  const found = one.r === "products" || one.r === "floats" ? await parts(state.run, place) : null;
  return found ? weigh(found, query, query + 1, 0, found.m, 1) : ((await weightsOf(state.run, place))?.row(query) ?? null);
}

/** How much each head sends from one word to another. @param {number} query @param {number} key */
export async function search(query, key) {
  return Promise.all(run().heads.map(async (one, place) => {
    const row = await rowOf(place, query);
    if (!row) {
      const link = one.k.find(([q, k]) => q === query && k === key);
      return { place, weight: link ? link[2] : -1, rank: 0 };
    }
    let rank = 1;
    for (const weight of row) if (weight > row[key]) rank++;
    return { place, weight: row[key], rank };
  }));
}

/** Search for the pair that is named, and rank the heads. */
async function find() {
  const [query, key] = [named(from.value, run().q), named(to.value, keys())];
  const wrong = query < 0 ? from.value : key < 0 ? to.value : null;
  if (wrong !== null) {
    list.replaceChildren();
    told_.textContent = wrong ? say("search.unknown", wrong) : "";
    return lay(null);
  }
  const started = state.run;
  const found = await search(query, key);
  if (started !== state.run) return;
  lay(found.map(({ weight }) => (weight < 0 ? 0 : weight)));
  const ranked = found.filter(({ weight }) => weight >= 0).sort((a, b) => b.weight - a.weight || a.place - b.place);
  const heads = run().heads;
  list.replaceChildren(...ranked.slice(0, SHOWN).map(({ place, weight, rank }) =>
    make("li", {}, make("button", { type: "button", onclick: () => choose({ head: place, query, key, out: true }) },
      make("span", { class: "where" }, say("head.name", heads[place].l, heads[place].h)), bar(weight),
      make("span", { class: "number" }, told(weight)), make("span", { class: "rank" }, rank ? say("search.rank", rank) : "")))));
  const best = ranked[0];
  told_.textContent = best
    ? say("search.says", run().q[query][0], keys()[key][0], heads[best.place].l, heads[best.place].h, told(best.weight))
    : say("search.hidden");
}

/** The search, with the chosen pair in it. */
export function searchPanel() {
  const options = (/** @type {string} */ id, /** @type {import("./types.js").Word[]} */ words) =>
    make("datalist", { id }, ...words.slice(0, 600).map((_, place) => make("option", { value: nameOf(place, words) })));
  const form = make("form", { class: "search", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void find(); } },
    make("label", {}, say("search.from"), from), make("span", { class: "to", "aria-hidden": "true" }, "→"), make("label", {}, say("search.to"), to),
    make("button", { type: "submit", class: "main" }, say("search.go")), options("asking-words", run().q), options("key-words", keys()));
  at("view").replaceChildren(make("p", { class: "lead" }, say("search.lead")), form, told_, list);
  const begin = meta.start;
  if (!from.value && begin.from) {
    from.value = begin.from;
    to.value = begin.to;
  } else if (!from.value) {
    from.value = nameOf(state.query, run().q);
    to.value = nameOf(state.key, keys());
  }
  void find();
}
from.addEventListener("input", () => void find());
to.addEventListener("input", () => void find());
