import { all, at, bar, button, fill, html, make, set } from "./dom.js";
import { abs, max, min } from "./numbers.js";
import { listenTable, speakTable } from "./table.js";

const meta = JSON.parse(at("meta").textContent ?? "");
/** @type {any[]} the regions, the largest loss first */
const regions = meta.regions;
const count = meta.sentences.length;

/** What is chosen: places of a region and of a sentence; -1 for none. unfolded: the bands that are whole. */
const chosen = { lang: meta.lang, region: -1, sentence: -1, unfolded: new Set() };
/** The cell of the matrix that Tab comes to: region, sentence. */
let here = [0, 0];

/** Characters of a folded band, before and behind its fold. */
const BEFORE = 140, BEHIND = 50;
/** How strong the largest change is shaded. */
const STRONGEST = 0.62;

const nextLanguage = () => Object.keys(meta.words).find((lang) => lang !== chosen.lang) ?? chosen.lang;
/** A phrase of the page's language. @param {string} name @param {...any} given */
const say = (name, ...given) => meta.words[chosen.lang][name].replace(/\{(\d)\}/g, (/** @type {string} */ whole, /** @type {number} */ place) => String(given[place]));
/** A number with its sign; 0 has none. @param {number} x */
const signed = (x) => (x <= -0.005 ? "−" : x < 0.005 ? "" : "+") + abs(x).toFixed(2);
/** The name of a region. @param {number} place */
const nameOf = (place) => regions[place].name[chosen.lang];
/** What the chosen sentence, or the whole answer, changes by without a region. @param {any} region */
const changeOf = (region) => (chosen.sentence < 0 ? region.change : region.bySentence[chosen.sentence]);
/** The largest size of numbers. @param {number[]} numbers */
const greatest = (numbers) => numbers.reduce((most, one) => max(most, abs(one)), 0) || 1;
const most = greatest(regions.flatMap(({ bySentence }) => bySentence));

/** Shade by a change: losses and gains have a colour each. @param {HTMLElement} one @param {number} change @param {number} full the largest */
function tint(one, change, full) {
  one.classList.add("tinted");
  one.classList.toggle("gain", change > 0);
  one.style.setProperty("--a", String(((STRONGEST * abs(change)) / full).toFixed(3)));
  return one;
}

/** Choose a region and a sentence; those that are chosen are let go of. @param {number} region @param {number} sentence */
function choose(region, sentence) {
  Object.assign(chosen, { region, sentence });
  if (region >= 0 && sentence >= 0) here = [region, sentence];
  mark();
}

/** The answer, a button for each sentence. */
function writeAnswer() {
  fill("written", ...meta.sentences.flatMap((/** @type {string[]} */ [text, gap], /** @type {number} */ place) =>
    [count > 1 ? button(() => choose(chosen.region, chosen.sentence === place ? -1 : place), { "data-sentence": place }, text) : text, gap]));
}

/** The text of a band: folded in the middle where it is long. @param {number} place @param {string} text @returns {(Node|string)[]} */
function bandText(place, text) {
  const letters = [...text];
  const left = letters.length - BEFORE - BEHIND;
  if (!meta.folds || left < BEHIND) return [text];
  const open = chosen.unfolded.has(place);
  const act = () => {
    if (!chosen.unfolded.delete(place)) chosen.unfolded.add(place);
    writePrompt();
    mark();
    /** @type {HTMLElement|null} */ (document.querySelector(`[data-fold="${place}"]`))?.focus();
  };
  const fold = button(act, { class: "fold", "data-fold": place, "aria-expanded": open }, open ? say("unfold") : `… ${say("fold", left)} …`);
  return open ? [text, fold] : [letters.slice(0, BEFORE).join(""), fold, letters.slice(-BEHIND).join("")];
}

/** The prompt: a band for each run of tokens of the same regions, with their names where they are compared. */
function writePrompt() {
  let odd = false;
  const named = new Set();
  const bands = meta.bands.map((/** @type {[number[], string]} */ [places, text], /** @type {number} */ band) => {
    const sources = places.filter((place) => regions[place].source);
    odd = sources.length ? !odd : odd;
    // what stands around the regions is named once
    const names = places.filter((place) => regions[place].source || !named.has(place)).map((place) => button(() => choose(chosen.region === place ? -1 : place, chosen.sentence), { "data-region": place }, nameOf(place)));
    for (const place of places) named.add(place);
    return make("span", { class: `band ${sources.length ? (odd ? "odd" : "") : "frame"}`, "data-band": places.join(" "), title: places.map(nameOf).join(", ") }, ...names, ...bandText(band, text));
  });
  fill("prompt", ...bands);
}

/** The table of effects. */
function writeEffects() {
  const columns = ["share", "attention", "even", "tokens", ...(regions.some(({ subsets }) => subsets !== null) ? ["subsets"] : [])];
  const least = greatest(regions.map(({ change }) => change));
  const rows = regions.map((region, place) => make("tr", { class: region.matters ? "matters" : "" },
    make("th", { scope: "row" }, button(() => choose(chosen.region === place ? -1 : place, chosen.sentence), { "data-region": place }, nameOf(place))),
    make("td", signed(region.change)), make("td", bar(max(-region.change, 0) / least, "in")), ...columns.map((name) => make("td", region[name] ?? ""))));
  fill("effects", make("thead", make("tr", make("th", { scope: "col" }, say("region")), make("th", { scope: "col" }, say("change")), make("td", ""), ...columns.map((name) => make("th", { scope: "col" }, say(name))))), make("tbody", ...rows));
}

/** The matrix of regions and sentences. */
function writeMatrix() {
  at("by-sentence").hidden = count < 2;
  const head = make("tr", make("td", ""), ...meta.sentences.map((/** @type {string[]} */ [text], /** @type {number} */ place) =>
    make("th", { scope: "col", title: text, "aria-label": say("sentence", place + 1) }, place + 1)));
  const rows = regions.map((region, row) => make("tr", make("th", { scope: "row", title: nameOf(row) }, nameOf(row)),
    ...region.bySentence.map((/** @type {number} */ change, /** @type {number} */ column) => make("td", tint(button(
      () => (chosen.region === row && chosen.sentence === column ? choose(-1, -1) : choose(row, column)),
      { "data-cell": `${row} ${column}`, "aria-label": say("cell", nameOf(row), column + 1, signed(change)) }, signed(change)), change, most)))));
  fill("matrix", make("thead", head), make("tbody", ...rows));
}

/** Shade and mark what is chosen, and say it. */
function mark() {
  const { region, sentence } = chosen;
  const full = greatest(regions.map(changeOf));
  const loss = max(...regions.map((one) => -changeOf(one)), 0).toFixed(2);
  fill("shade", sentence < 0 ? say("shade.whole", loss) : say("shade.sentence", sentence + 1, loss));
  for (const band of all("[data-band]")) {
    const places = (/** @type {HTMLElement} */ (band).dataset.band ?? "").split(" ").filter(Boolean).map(Number);
    const changes = places.map((place) => changeOf(regions[place])).sort((a, b) => a - b);
    tint(/** @type {HTMLElement} */ (band), changes[0] ?? 0, full).classList.toggle("near", places.includes(region));
  }
  for (const one of all("[data-region]")) set(one, { "aria-pressed": Number(/** @type {HTMLElement} */ (one).dataset.region) === region });
  for (const one of all("[data-sentence]")) {
    const place = Number(/** @type {HTMLElement} */ (one).dataset.sentence);
    tint(/** @type {HTMLElement} */ (set(one, { "aria-pressed": place === sentence })), region < 0 ? 0 : regions[region].bySentence[place], most);
  }
  for (const one of all("[data-cell]")) {
    const place = (/** @type {HTMLElement} */ (one).dataset.cell ?? "").split(" ").map(Number);
    set(one, { "aria-pressed": place[0] === region && place[1] === sentence, tabindex: place.join() === here.join() ? 0 : -1 });
  }
  fill("told", region < 0 ? say("hint") : tellRegion(region));
}

/** What is known of a region, in sentences. @param {number} place */
function tellRegion(place) {
  const { share, change, random, matters, bySentence } = regions[place];
  const said = [say("told", nameOf(place), share, signed(change))];
  if (chosen.sentence >= 0) said.push(say("told.sentence", chosen.sentence + 1, signed(bySentence[chosen.sentence])));
  if (random !== null) said.push(say("random", random));
  if (matters) said.push(say("matters"));
  return said.join(chosen.lang === "zh" ? "" : " ");
}

/** Write everything anew: another language. */
function show() {
  html.lang = chosen.lang;
  speakTable(chosen.lang, say);
  fill("language", meta.words[nextLanguage()].language);
  fill("own", say("own"));
  writeAnswer();
  writePrompt();
  writeEffects();
  writeMatrix();
  mark();
}

/** Go from cell to cell with the arrow keys. @param {KeyboardEvent} event */
function onKey(event) {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -count], End: [0, count] }[event.key];
  const inside = /** @type {HTMLElement} */ (event.target).dataset.cell;
  if (!steps || inside === undefined) return;
  event.preventDefault();
  const [row, column] = inside.split(" ").map(Number);
  here = [max(0, min(row + steps[0], regions.length - 1)), max(0, min(column + steps[1], count - 1))];
  for (const one of all("[data-cell]")) set(one, { tabindex: -1 });
  const next = /** @type {HTMLElement} */ (document.querySelector(`[data-cell="${here.join(" ")}"]`));
  set(next, { tabindex: 0 }).focus();
}

set(at("language"), { onclick: () => { chosen.lang = nextLanguage(); show(); } });
set(at("matrix"), { onkeydown: onKey });
document.addEventListener("keydown", (event) => event.key === "Escape" && choose(-1, -1));
listenTable(meta.name);
show();
