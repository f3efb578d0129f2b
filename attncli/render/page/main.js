import { meta } from "./data.js";
import { derive } from "./derivation.js";
import { layDifference, showDifference } from "./difference.js";
import { at, make } from "./dom.js";
import { showEffects } from "./effects.js";
import { drawGrid, label, lay } from "./grid.js";
import { help, pressed } from "./keyboard.js";
import { showLinks } from "./links.js";
import { legend, mark, show } from "./matrix.js";
import { rollout } from "./rollout.js";
import { showRows } from "./rows.js";
import { searchPanel } from "./search.js";
import { listen, shadeWords, write } from "./sentence.js";
import { SCALES, themed } from "./shades.js";
import { choose, follow, head, onChange, run, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { named, say } from "./words.js";

const VIEWS = ["matrix", "links", "derivation", "search",
  ...(meta.runs.length > 1 && meta.pairs ? ["difference"] : []),
  ...(meta.runs[0].k ? [] : ["rollout"]),
  ...(meta.effects.length ? ["effects"] : [])];

/** Everything that is written in the reader's language. */
function frame() {
  document.documentElement.lang = state.lang;
  at("tabs").replaceChildren(...VIEWS.map((name, index) => make("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "view", title: `${say(`view.${name}`)} (${index + 1})`, onclick: () => choose({ view: name }),
  }, say(`view.${name}`))));
  const option = (/** @type {string} */ value, /** @type {string} */ text, /** @type {string} */ chosen) => make("option", { value, selected: value === chosen }, text);
  const select = (/** @type {string} */ name, /** @type {Node[]} */ options, /** @type {(value: string) => void} */ act) =>
    make("label", { class: "pick" }, say(name), make("select", { onchange: (/** @type {Event} */ event) => act(/** @type {HTMLSelectElement} */ (event.target).value) }, ...options));
  at("order").replaceChildren(select("sort", ["layer", ...run().metrics].map((name) => option(name, say(`metric.${name}`), state.sort)), (sort) => choose({ sort })));
  at("scale").replaceChildren(select("scale", SCALES.map((name) => option(name, say(`scale.${name}`), state.scale)), (scale) => choose({ scale })));
  const sides = meta.runs.length > 1 ? meta.runs.map((one, index) => make("button", { type: "button", "aria-pressed": index === state.run, onclick: () => choose({ run: index }) }, one.name)) : [];
  at("sides").replaceChildren(...sides);
  at("turn").textContent = say("turn");
  at("pin").textContent = say("pinned");
  at("heads-title").textContent = say("heads.title", run().heads.length);
  at("line").textContent = run().line;
  at("notes").replaceChildren(...run().notes.map((note) => make("li", {}, note)));
  at("keys").replaceChildren(...say("help.keys").split("\n").flatMap((line) => {
    const [key, does] = line.split("\t");
    return [make("dt", {}, ...key.split(" ").map((one) => make("kbd", {}, one))), make("dd", {}, does)];
  }));
  at("help-open").textContent = say("help");
  at("language").textContent = say("language");
  for (const [id, name] of [["sentence", "sentence.label"], ["grid", "grid.label"], ["rows", "rows.label"], ["tabs", "tabs.label"]]) at(id).setAttribute("aria-label", say(name));
}

/** The view that is chosen, of the head that is chosen. @param {Set<string>} changed */
async function refresh(changed) {
  const [place, side] = [state.head, state.run];
  for (const tab of at("tabs").children) {
    const chosen = tab.id === `tab-${state.view}`;
    tab.setAttribute("aria-selected", String(chosen));
    /** @type {HTMLElement} */ (tab).tabIndex = chosen ? 0 : -1;
  }
  at("view").setAttribute("aria-labelledby", `tab-${state.view}`);
  if (changed.has("view")) {
    at("view").replaceChildren();
    if (!["search", "effects", "difference"].includes(state.view)) lay(null);
  }
  const one = head();
  if (!one) return;
  at("chosen").textContent = say("head.name", one.l, one.h);
  at("labels").replaceChildren(...one.t.map((name) => make("span", { class: "label" }, name)));
  at("exact").textContent = say(`kept.${one.r === "floats" ? "products" : one.r}`, one.e < 1e-6 ? "0" : one.e.toExponential(0));
  const weights = await weightsOf(side, place);
  if (place !== state.head || side !== state.run) return;
  const inRollout = state.view === "rollout" && ["view", "query", "run"].some((name) => changed.has(name));
  if (inRollout) {
    const row = await rollout();
    if (row) shadeWords(row);
    else at("view").replaceChildren(make("p", { class: "empty" }, say("rollout.none")));
  } else if (state.view !== "rollout") shadeWords(weights && (state.out ? weights.row(state.query) : weights.column(state.key)));
  showRows(weights);
  const moved = ["head", "run", "scale", "view", "theme"].some((name) => changed.has(name));
  if (!weights && ["matrix", "links"].includes(state.view)) at("view").replaceChildren(make("p", { class: "empty" }, say("kept.none")));
  else if (state.view === "matrix") await (moved ? show(weights).then(() => document.querySelector("#view .legend")?.replaceWith(legend())) : mark());
  else if (state.view === "links") showLinks(weights);
  else if (state.view === "derivation") await derive();
  else if (state.view === "search" && ["view", "run", "lang"].some((name) => changed.has(name))) searchPanel();
  else if (state.view === "difference" && (moved || changed.has("lang"))) await showDifference();
  else if (state.view === "effects" && ["view", "lang"].some((name) => changed.has(name))) showEffects();
  if (state.view === "difference" && changed.has("view")) await layDifference();
}

onChange((changed) => {
  if (changed.has("lang") || changed.has("run")) frame();
  if (["run", "out"].some((name) => changed.has(name)) || (run().q.length > 1500 && (changed.has("query") || changed.has("key")))) write();
  if (changed.has("run") || changed.has("sort")) void drawGrid();
  else if (changed.has("head") || changed.has("lang")) label();
  void refresh(changed);
});

/** Whether a link leaves its word: pieces of one word hold together in many heads. @param {import("./types.js").Link} link */
function apart([query, key]) {
  return run().k !== null || run().q.slice(Math.min(query, key) + 1, Math.max(query, key) + 1).some((word) => !word[1]);
}

/** Begin where the page was asked to: at a pair, a head, a view. */
function begin() {
  const { start } = meta;
  const n = run().q.length;
  const strongest = run().heads.map((one, place) => ({ place, link: one.k.find(apart) })).filter(({ link }) => link).sort((a, b) => (b.link?.[2] ?? 0) - (a.link?.[2] ?? 0))[0];
  if (strongest?.link) Object.assign(state, { head: strongest.place, query: strongest.link[0], key: strongest.link[1] });
  if (start.query) {
    state.query = Number(start.query);
    const best = run().heads.flatMap((one, place) => one.k.filter((link) => link[0] === state.query).map((link) => ({ place, link }))).sort((a, b) => b.link[2] - a.link[2])[0];
    if (best) Object.assign(state, { head: best.place, key: best.link[1] });
  }
  if (n > 64) state.scale = "row";
  if (start.from) {
    Object.assign(state, { query: Math.max(0, named(start.from, run().q)), key: Math.max(0, named(start.to, run().q)) });
  }
  if (VIEWS.includes(start.view)) state.view = start.view;
  if (start.sort) state.sort = start.sort;
}

/** For a reader at the console: a head's weights by its place, and what is chosen. */
Object.defineProperty(window, "attn", { value: Object.freeze({ meta: meta, state: state, choose: choose, weights: weightsOf }) });

themed();
begin();
frame();
follow(location.hash, VIEWS, SCALES);
write();
listen();
void drawGrid();
void refresh(new Set(["view", "head", "run", "query"]));
at("help-open").addEventListener("click", () => help());
at("language").addEventListener("click", () => choose({ lang: state.lang === "en" ? "zh" : "en" }));
document.addEventListener("keydown", (event) => pressed(event, VIEWS));
window.addEventListener("hashchange", () => follow(location.hash, VIEWS, SCALES));
window.addEventListener("resize", () => void refresh(new Set(["theme"])));
const dark = matchMedia("(prefers-color-scheme: dark)");
for (const query of [dark, matchMedia("print")])
  query.addEventListener("change", () => {
    themed();
    void drawGrid();
    void refresh(new Set(["theme"]));
  });
