import { meta } from "./data.js";
import { at } from "./dom.js";
import { clamp } from "./numbers.js";

/** What is chosen. tour: its step, 0 for none. run, head: which; query, key: the chosen pair; out: whether the sentence shows where the query looks; pins: heads held beside the chosen one. */
export const state = {
  run: 0, head: 0, query: 0, key: 0, view: "matrix", scale: "linear", sort: "layer", out: true, lang: meta.lang, tour: 0, tiles: "maps", pins: "",
};

/** How a tile shows its head. */
export const TILES = ["maps", "lines"];
/** A head's short name. @param {{l: number, h: number}} head */
export const shortName = ({ l, h }) => `${l}.${h}`;
/** The places of the pinned heads that the run has: four at most. */
export const pinned = () => state.pins.split(",").map((name) => run().heads.findIndex((head) => shortName(head) === name)).filter((place) => place >= 0).slice(0, 4);
/** Pin the chosen head, or let one go. @param {number} place */
export function pin(place) {
  const names = pinned().map((one) => shortName(run().heads[one]));
  const name = shortName(run().heads[place]);
  choose({ pins: (names.includes(name) ? names.filter((one) => one !== name) : [...names, name].slice(-4)).join(",") });
}

/** The run that is looked at. */
export const run = () => meta.runs[state.run];
/** The words that look. */
export const queries = () => run().q;
/** The head that is looked at. */
export const head = () => run().heads[state.head];
/** The words that are looked at, with learned keys after them. @returns {import("./types.js").Word[]} */
export function keys() {
  const words = run().k ?? queries();
  const more = (head()?.n ?? 0) - words.length;
  return more > 0 ? words.concat(Array(more).fill(["bias_k", 0, 1])) : words;
}
/** The row or the column of weights that the sentence shows. @param {import("./types.js").Weights} weights */
export const shown = (weights) => (state.out ? weights.row(state.query) : weights.column(state.key));
/** The keys that are left open: where heads rest; by the scale without them the first where none rests. @param {boolean} always whatever the scale */
export const open = (always = false) => new Set(state.scale === "rest" ? run().rests ?? [0] : always ? run().rests : []);
/** Whether the page was made from what holds weights of no head, only links or effects. */
export const bare = meta.runs.every(({ heads }) => heads.every(({ r }) => r === "absent"));

/** Of a head without weights: the strongest of the links that are known of the chosen word. */
export const known = () => head().k.find(([query, key]) => (state.out ? query === state.query : key === state.key)) ?? null;

/** Whether one of these, set apart by spaces, was changed. @param {Set<string>} changed @param {string} names */
export const any = (changed, names) => names.split(" ").some((name) => changed.has(name));

/** @type {((changed: Set<string>) => void)[]} */
const listeners = [];
/** Be told what was changed. @param {(changed: Set<string>) => void} listener */
export const onChange = (listener) => void listeners.push(listener);

/** The choice to which the pointer's leaving returns; null where it only rests on what is chosen.
 * @type {Partial<typeof state>|null} */
let settled = null;
/** Whether a click holds the choice, whatever the pointer comes over. */
let isHeld = false;

/** Hold the choice, or let it go. @param {boolean} now */
export function hold(now) {
  isHeld = now;
  at("pin").hidden = !now;
}

/** Show what the pointer is over, until it leaves. @param {Partial<typeof state>} next */
export function peek(next) {
  if (isHeld) return;
  settled ??= { query: state.query, key: state.key, out: state.out };
  change(next);
}

/** The pointer has left: what was chosen before is shown again. */
export function leave() {
  const back = settled;
  settled = null;
  if (back) change(back);
}

/** Choose by a click, and hold it; a click on what is held lets it go. @param {Partial<typeof state>} next */
export function pick(next) {
  hold(!isHeld || Object.entries(next).some(([name, value]) => state[/** @type {"run"} */ (name)] !== value));
  choose(next);
}

/** Choose, tell everybody, and keep it in the address. @param {Partial<typeof state>} next */
export function choose(next) {
  settled = null;
  change(next);
  clearTimeout(keeping);
  keeping = setTimeout(keep, 200);
}

/** @param {Partial<typeof state>} next */
function change(next) {
  const changed = new Set(Object.entries(next).flatMap(([name, value]) => (state[/** @type {"run"} */ (name)] === value ? [] : [name])));
  if (!changed.size) return;
  Object.assign(state, next);
  state.head = clamp(state.head, run().heads.length - 1);
  state.query = clamp(state.query, queries().length - 1);
  state.key = clamp(state.key, keys().length - 1);
  for (const listener of listeners) listener(changed);
}

/** Browsers allow few changes of the address in a time: it follows when the pointer rests. @type {ReturnType<typeof setTimeout>|undefined} */
let keeping;

function keep() {
  try {
    history.replaceState(null, "", address());
  } catch {
    // a page without an address of its own, as in a notebook
  }
}

/** Whether only the sentence is shown, in a small frame of another page. */
export const embedded = /\bembed\b/.test(location.hash);

/** What is chosen, as the part of an address after #. */
export function address() {
  const chosen = head();
  const { query, key, out } = { ...state, ...settled };
  const parts = { h: chosen ? shortName(chosen) : "", q: query, k: key, v: state.view, s: state.scale, o: Number(out), r: state.run, m: state.sort };
  const more = (state.lang === meta.lang ? "" : `&l=${state.lang}`) + (embedded ? "&embed=1" : "") + (state.tour ? `&t=${state.tour}` : "") +
    (state.pins ? `&p=${state.pins}` : "") + (state.tiles === "maps" ? "" : `&i=${state.tiles}`);
  return `#${Object.entries(parts).map((part) => part.join("=")).join("&")}${more}`;
}

/** Choose what an address says; what is unknown there is ignored. @param {string} hash @param {string[]} views @param {string[]} scales */
export function follow(hash, views, scales) {
  const told = new URLSearchParams(hash.slice(1));
  const text = (/** @type {string} */ name) => told.get(name) ?? "";
  const number = (/** @type {string} */ name, /** @type {number} */ below, /** @type {number} */ now) =>
    /^\d{1,7}$/.test(text(name)) && Number(text(name)) < below ? Number(text(name)) : now;
  const one = (/** @type {string} */ name, /** @type {string[]} */ known, /** @type {string} */ now) => (known.includes(text(name)) ? text(name) : now);
  const which = number("r", meta.runs.length, state.run);
  const there = meta.runs[which];
  const head = there.heads.findIndex((one) => shortName(one) === text("h"));
  choose({
    run: which, head: head < 0 ? state.head : head,
    query: number("q", there.q.length, state.query), key: number("k", (there.k ?? there.q).length, state.key),
    view: one("v", views, state.view), scale: one("s", scales, state.scale), sort: one("m", ["layer", ...there.metrics], state.sort),
    out: text("o") ? text("o") !== "0" : state.out, lang: one("l", Object.keys(meta.words), state.lang), tour: number("t", meta.tour.length + 1, state.tour),
    tiles: one("i", TILES, state.tiles), pins: /^[\d.,]{1,40}$/.test(text("p")) ? text("p") : state.pins,
  });
}
