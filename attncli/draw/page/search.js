import { fill, lead, make, ranking, stepwise } from "./dom.js";
import { lay } from "./grid.js";
import { choose, keys, queries, run, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { headName, named, nameOf, say, told } from "./words.js";

const RANKED = 12;
const field = (/** @type {string} */ id) => make("input", { id, list: `${id}-words`, autocomplete: "off", spellcheck: "false", oninput: find });
const [from, to] = [field("from"), field("to")];
const list = make("div");
const answer = make("p.note", { "aria-live": "polite" });

/** Whether the page holds no weights of a head. @param {import("./types.js").HeadMeta} head */
const without = ({ r }) => r === "absent" || r === "none";

/** How much each head sends from one word to another; −1 where that is hidden or unknown. @param {number} query @param {number} key */
async function search(query, key) {
  const breathe = stepwise();
  const found = [];
  for (const [place, one] of run().heads.entries()) {
    const row = (await weightsOf(state.run, place))?.row(query);
    const held = row ? row[key] : one.k.find(([q, k]) => q === query && k === key)?.[2];
    const weight = held ?? -1;
    found.push({ place, one, weight, unheld: held === undefined && without(one), rank: row ? row.filter((other) => other > weight).length + 1 : 0 });
    await breathe();
  }
  return found;
}

/** The latest search. */
let searching = 0;

/** Search for the pair that is named, and rank the heads. */
async function find() {
  const [query, key] = [named(from.value, queries()), named(to.value, keys())];
  list.replaceChildren();
  if (query < 0 || key < 0) {
    answer.textContent = say("search.unknown", { word: query < 0 ? from.value : to.value });
    return lay(null);
  }
  const mine = ++searching;
  const found = await search(query, key);
  if (mine !== searching || state.view !== "search") return;
  lay(found.map(({ weight, one }) => (weight >= 0 ? weight : without(one) ? null : 0)));
  const ranked = found.filter(({ weight }) => weight >= 0).sort((a, b) => b.weight - a.weight || a.place - b.place);
  list.replaceChildren(ranking(ranked.slice(0, RANKED).map(({ place, one, weight, rank }) => ({
    name: headName(one), share: weight, number: told(weight), rank: rank ? say("search.rank", { rank }) : "",
    act: () => choose({ head: place, query, key, out: true }),
  }))));
  const unknown = found.filter(({ unheld }) => unheld).length;
  const says = ranked.length
    ? say("search.says", { query: nameOf(query, queries()), key: nameOf(key, keys()), head: headName(ranked[0].one), weight: told(ranked[0].weight) })
    : unknown < found.length ? say("search.hidden") : "";
  answer.textContent = [says, unknown ? say("search.unheld", { unknown, heads: found.length }) : ""].filter(Boolean).join(" ");
}

/** The search, with the chosen pair in it. */
export function searchPanel() {
  const options = (/** @type {string} */ id, /** @type {import("./types.js").Word[]} */ words) =>
    make("datalist", { id }, ...words.slice(0, 600).map((_, place) => make("option", { value: nameOf(place, words) })));
  const form = make("form.search", { onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    make("label", say("search.from"), from), make("span.to", { "aria-hidden": true }, "→"), make("label", say("search.to"), to),
    options("from-words", queries()), options("to-words", keys()));
  fill("view", lead(say("search.lead")), form, answer, list);
  from.value ||= nameOf(state.query, queries());
  to.value ||= nameOf(state.key, keys());
  void find();
}
