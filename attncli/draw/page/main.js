import { meta } from "./data.js";
import { derive } from "./derivation.js";
import { followDifference, layDifference, showDifference } from "./difference.js";
import { all, at, button, fill, html, lead, make, pause, set, toggles } from "./dom.js";
import { showEffects } from "./effects.js";
import { drawGrid, label, lay, smallMap } from "./grid.js";
import { help, pressed } from "./keyboard.js";
import { showLinks } from "./links.js";
import { follows, show } from "./matrix.js";
import { max, min } from "./numbers.js";
import { showRegions } from "./regions.js";
import { rollout } from "./rollout.js";
import { showRows } from "./rows.js";
import { searchPanel } from "./search.js";
import { away, listen, shadeWords, writeWords } from "./sentence.js";
import { SCALES, themed } from "./shades.js";
import { showSharing } from "./share.js";
import { across, shadeStack, writeStack } from "./stacked.js";
import { any, bare, choose, embedded, follow, head, onChange, queries, run, shown, state, TILES } from "./state.js";
import { weightsOf } from "./weights.js";
import { showLens, showWhy } from "./why.js";
import { goTo, showTour } from "./tour.js";
import { headName, labelName, labelOf, named, nextLanguage, runName, say } from "./words.js";

const linked = meta.runs.some(({ heads }) => heads.some(({ k }) => k.length));
const mapped = !bare || run().tile[0] > 1 || !(linked || meta.effects.length);
const VIEWS = Object.entries({
  matrix: mapped, links: !bare, derivation: !bare, search: !bare || linked, difference: meta.pairs,
  rollout: !(bare || run().k || meta.partial), effects: meta.effects.length,
  why: meta.why.length, lens: meta.lens,
}).flatMap(([view, there]) => (there ? [view] : []));

/** A choice among names. @param {string} name @param {string[]} values @param {string} now @param {(value: string) => void} act @param {string} kind */
const select = (name, values, now, act, kind) =>
  make("label.pick", say(name), make("select", { onchange: (/** @type {Event} */ event) => act(/** @type {HTMLSelectElement} */ (event.target).value) },
    ...values.map((value) => make("option", { value, selected: value === now }, say(`${kind}.${value}`)))));

/** Everything that is written in the reader's language. */
function frame() {
  // all is styled again for it
  if (html.lang !== state.lang) html.lang = state.lang;
  fill("tabs", ...VIEWS.map((view, place) =>
    button(() => choose({ view }), { role: "tab", id: `tab-${view}`, "aria-controls": "view", title: `${say(`view.${view}`)} (${place + 1})` }, say(`view.${view}`))));
  const metrics = run().metrics.filter((_, at) => run().heads.some(({ m }) => m[at] !== null));
  fill("order", run().tile[0] > 1 ? select("tiles", TILES, state.tiles, (tiles) => choose({ tiles }), "tiles") : "",
    metrics.length ? select("sort", ["layer", ...metrics], state.sort, (sort) => choose({ sort }), "metric") : "");
  fill("scale", select("scale", SCALES, state.scale, (scale) => choose({ scale }), "scale"));
  fill("sides", toggles(meta.runs.length > 1 ? [0, 1].map(runName) : [], state.run, (run) => choose(across(run))));
  fill("heads-title", say(run().heads.length === 1 ? "heads.one" : "heads.title", { count: run().heads.length }));
  writeAnswer();
  fill("line", run().line[state.lang]);
  fill("notes", ...run().notes.map((note) => make("li", note[state.lang])));
  fill("keys", ...say("help.keys").split("\n").flatMap((line) => {
    const [key, does] = line.split("\t");
    return [make("dt", ...key.split(" ").map((one) => make("kbd", one))), make("dd", does)];
  }));
  for (const id of ["turn", "pin", "help-open", "help-close", "whole"]) fill(id, say(id));
  showTour(VIEWS);
  showSharing(() => refresh(new Set(["theme"])));
  fill("language", meta.words[nextLanguage()].language);
  for (const id of ["turn", "scale"]) at(id).hidden = bare;
  for (const id of ["sentence", "grid", "rows", "tabs"]) set(at(id), { "aria-label": say(`${id}.label`) });
  set(at("asking"), { "aria-label": say("sentence.label") });
}

/** Say below its line what a word of the page means, also when the keyboard comes to it; again, or of another one, and it goes. @param {Event} event */
function explain(event) {
  const asked = /** @type {HTMLElement} */ (event.currentTarget);
  const told = asked.getAttribute("aria-expanded") === "true";
  // by a click or a finger it says so then
  if (event.type === "focus" && (told || !asked.matches(":focus-visible"))) return;
  all(".meaning").forEach((one) => one.remove());
  all('.means[aria-expanded="true"]').forEach((one) => set(one, { "aria-expanded": false }));
  if (told) return;
  set(asked, { "aria-expanded": true });
  const name = asked.dataset.means ?? "";
  const habit = asked.classList.contains("label") ? ` ${say("means.habit")}` : "";
  asked.closest(".bar-line, .about")?.after(make("p", { class: "note meaning", role: "status" }, say(`means.${name}`) + habit));
}

/** What a claim of the answer leads to, in a view that shows it. @param {string} target */
function jump(target) {
  const view = ["search", "rollout"].includes(state.view) && VIEWS.includes("matrix") ? "&v=matrix" : "";
  follow(`#${target}&o=1&r=0${view}`, VIEWS, SCALES);
}

/** The command's own answer below the sentence; what it claims leads to it. */
function writeAnswer() {
  const sentences = meta.answer[state.lang] ?? [];
  at("answer").hidden = !sentences.length;
  fill("answer", ...sentences.map((pieces) =>
    make("p", ...pieces.map((piece) => (typeof piece === "string" ? piece : button(() => jump(piece[1]), { class: "claim" }, piece[0]))))));
}

/** The view that is chosen, of the head that is chosen. @param {Set<string>} changed */
async function refresh(changed) {
  if (changed.has("lang")) await pause(); // all is styled again by then
  const { head: place, run: side, view } = state;
  for (const tab of /** @type {Iterable<HTMLElement>} */ (at("tabs").children)) {
    const chosen = tab.id === `tab-${view}`;
    set(tab, { "aria-selected": chosen, tabindex: chosen ? 0 : -1 });
  }
  set(at("view"), { "aria-labelledby": `tab-${view}` });
  if (changed.has("view")) {
    fill("view");
    if (!["search", "effects", "difference", "why"].includes(view)) lay(null);
  }
  const one = head();
  if (!one) return;
  if (any(changed, "head run lang")) all(".about + .meaning").forEach((note) => note.remove());
  fill("chosen", headName(one));
  fill("whose", headName(one));
  fill("labels", ...one.t.map((name) => button(explain, { onfocus: explain, class: "label means", "aria-expanded": false, "data-means": labelOf(name) }, labelName(name))));
  fill("exact", one.r === "none" || one.r === "absent" ? "" : say(`kept.${one.r}`, { error: one.e < 1e-6 ? "0" : one.e.toExponential(0) }));
  const weights = await weightsOf(side, place);
  if (place !== state.head || side !== state.run || view !== state.view) return;
  // what measures the page comes before what changes much of it
  if (view === "links" && weights) await showLinks(weights);
  showRows(weights);
  const moved = any(changed, "head run scale view theme lang");
  const shade = meta.pairs ? shadeStack : shadeWords;
  if (view !== "rollout") void shade(weights && shown(weights));
  if (meta.bands.length) showRegions(weights && state.out ? shown(weights) : null);
  if (!weights && ["matrix", "links"].includes(view)) {
    const more = one.r === "none" && meta.option ? ` ${say("kept.more", { option: meta.option })}` : "";
    const map = await smallMap();
    if (place === state.head && view === state.view) fill("view", map ?? "", lead(say(`kept.${one.r}`) + more));
  }
  else if (view === "matrix" && weights) await (moved ? show(weights) : follows());
  else if (view === "derivation") await derive();
  else if (view === "search" && any(changed, "view run lang")) searchPanel();
  else if (view === "difference" && moved) {
    await showDifference();
    if (changed.has("view")) await layDifference();
  } else if (view === "difference") {
    follows();
    followDifference();
  } else if (view === "rollout" && any(changed, "view query run lang scale")) {
    const row = await rollout();
    if (row) void shade(row);
  }
  else if (view === "effects" && any(changed, "view lang")) showEffects();
  else if (view === "why" && any(changed, "view lang head query key")) showWhy();
  else if (view === "lens" && any(changed, "view lang")) showLens();
}

const writeText = meta.pairs ? writeStack : writeWords;

onChange((changed) => {
  if (any(changed, "lang run")) frame();
  if (any(changed, "run out") || away()) writeText();
  if (any(changed, "run sort tiles")) drawGrid();
  else if (any(changed, "head lang")) label();
  if (any(changed, "tour query")) showTour(VIEWS);
  void refresh(changed);
});

/** Scripts that write no blanks between words: there each token may be one. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Bopomofo}\p{Script=Yi}]/u;

/** Whether a link leaves its word: pieces of one word hold together in many heads. @param {import("./types.js").Link} link */
const apart = ([query, key]) =>
  run().k !== null || queries().slice(min(query, key) + 1, max(query, key) + 1).some(([text, joined]) => !joined || UNSPACED.test(text));

/** Look at the strongest of some links, if there is one. @param {(link: import("./types.js").Link, place: number) => boolean} fits */
function lookAt(fits) {
  const links = run().heads.flatMap(({ k }, place) => k.filter((link) => fits(link, place)).map((link) => ({ place, link })));
  const [best] = links.sort((a, b) => b.link[2] - a.link[2]);
  if (best) Object.assign(state, { head: best.place, query: best.link[0], key: best.link[1] });
  return Boolean(best);
}

/** Begin where the page was asked to: at a pair, a head, a view. */
function begin() {
  const { head: first, query, key, from, to, view, sort } = meta.start;
  state.view = VIEWS[0];
  const word = max(0, queries().findIndex(([, , special]) => !special));
  if (!lookAt(apart) && !lookAt(() => true)) Object.assign(state, { query: word, key: run().k ? 0 : word });
  if (query) {
    state.query = Number(query);
    lookAt((link) => link[0] === state.query);
  }
  if (from) {
    Object.assign(state, { query: max(0, named(from, queries())), key: max(0, named(to, run().k ?? queries())) });
    lookAt((link) => link[0] === state.query && link[1] === state.key);
  }
  if (first) {
    const place = run().heads.findIndex(({ l, h }) => `${l}.${h}` === first);
    if (place >= 0) Object.assign(state, { head: place, query: Number(query), key: Number(key) });
  }
  const claimed = Object.values(meta.answer).flat(2).find((piece) => typeof piece !== "string");
  if (claimed) {
    const told = new URLSearchParams(claimed[1]);
    const place = run().heads.findIndex(({ l, h }) => `${l}.${h}` === told.get("h"));
    if (place >= 0) Object.assign(state, { head: place, query: Number(told.get("q") ?? state.query), key: Number(told.get("k") ?? state.key) });
  }
  if (queries().length > 64) state.scale = "row";
  if (VIEWS.includes(view)) state.view = view;
  if (sort) state.sort = sort;
}

/** For a reader at the console: a head's weights by its place, and what is chosen. */
Object.assign(window, { attn: Object.freeze({ meta: meta, state: state, choose: choose, weights: weightsOf }) });

const redraw = () => {
  themed();
  drawGrid();
  void refresh(new Set(["theme"]));
};

/** Out of its frame, the whole page. */
function leaveFrame() {
  location.hash = location.hash.replace(/&?embed[^&]*/, "");
  location.reload();
}

themed();
html.classList.toggle("embed", embedded);
begin();
follow(location.hash, VIEWS, SCALES);
frame();
listen();
void pause().then(async () => {
  writeText();
  await pause();
  drawGrid();
  void refresh(new Set(["view"]));
});
for (const [id, means] of [["heads-title", "grid"], ["chosen", "head"]]) set(at(id), { onclick: explain, onfocus: explain, "data-means": means });
set(at("help-open"), { onclick: () => help() });
set(at("help-close"), { onclick: () => help(false) });
// what is pressed beside the list of keys is its ground
set(at("help"), { onclick: (/** @type {Event} */ event) => event.target === at("help") && help(false) });
set(at("whole"), { onclick: leaveFrame });
set(at("tour-open"), { onclick: () => goTo(state.tour ? 0 : 1, VIEWS) });
set(at("language"), { onclick: () => choose({ lang: nextLanguage() }) });
document.addEventListener("keydown", (event) => pressed(event, VIEWS));
set(/** @type {any} */ (window), { onhashchange: (/** @type {HashChangeEvent} */ told) => follow(new URL(told.newURL).hash, VIEWS, SCALES), onresize: redraw });
for (const query of ["(prefers-color-scheme: dark)", "print"]) set(/** @type {any} */ (matchMedia(query)), { onchange: redraw });
