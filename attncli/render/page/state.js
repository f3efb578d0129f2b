import { meta } from "./data.js";

/** What is chosen. run, head: which; query, key: the chosen pair; out: whether the sentence shows where the query looks. */
export const state = {
  run: 0, head: 0, query: 0, key: 0, view: "matrix", scale: "linear", sort: "layer", out: true, lang: meta.lang,
};

/** The run that is looked at. */
export const run = () => meta.runs[state.run];
/** The head that is looked at. */
export const head = () => run().heads[state.head];
/** The words that are looked at, with learned keys after them. @returns {import("./types.js").Word[]} */
export function keys() {
  const words = run().k ?? run().q;
  const more = (head()?.n ?? words.length) - words.length;
  return more > 0 ? [...words, ...Array.from({ length: more }, () => /** @type {import("./types.js").Word} */ (["bias_k", 0, 1]))] : words;
}

/** @type {((changed: Set<string>) => void)[]} */
const listeners = [];
/** Be told what was changed. @param {(changed: Set<string>) => void} listener */
export const onChange = (listener) => void listeners.push(listener);

/** Choose, tell everybody, and keep it in the address. @param {Partial<typeof state>} next */
export function choose(next) {
  const changed = new Set(Object.entries(next).flatMap(([name, value]) => (state[/** @type {"run"} */ (name)] === value ? [] : [name])));
  if (!changed.size) return;
  Object.assign(state, next);
  state.head = Math.max(0, Math.min(state.head, run().heads.length - 1));
  state.query = Math.max(0, Math.min(state.query, run().q.length - 1));
  state.key = Math.max(0, Math.min(state.key, keys().length - 1));
  for (const listener of listeners) listener(changed);
  try {
    history.replaceState(null, "", address());
  } catch {
    // a page without an address of its own, as in a notebook
  }
}

/** What is chosen, as the part of an address after #. */
export function address() {
  const at = head();
  const parts = { h: at ? `${at.l}.${at.h}` : "", q: state.query, k: state.key, v: state.view, s: state.scale, o: Number(state.out), r: state.run, m: state.sort };
  return `#${Object.entries(parts).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`;
}

/** Choose what an address says; what is unknown there is ignored. @param {string} hash @param {string[]} views @param {string[]} scales */
export function follow(hash, views, scales) {
  const told = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Partial<typeof state>} */
  const next = {};
  const number = (/** @type {string} */ name, /** @type {number} */ below) => {
    const text = told.get(name) ?? "";
    return /^\d{1,7}$/.test(text) && Number(text) < below ? Number(text) : undefined;
  };
  next.run = number("r", meta.runs.length) ?? state.run;
  const there = meta.runs[next.run];
  const at = there.heads.findIndex((one) => `${one.l}.${one.h}` === told.get("h"));
  if (at >= 0) next.head = at;
  next.query = number("q", there.q.length) ?? state.query;
  next.key = number("k", (there.k ?? there.q).length) ?? state.key;
  if (views.includes(told.get("v") ?? "")) next.view = told.get("v") ?? "";
  if (scales.includes(told.get("s") ?? "")) next.scale = told.get("s") ?? "";
  if (["layer", ...there.metrics].includes(told.get("m") ?? "")) next.sort = told.get("m") ?? "";
  if (told.has("o")) next.out = told.get("o") !== "0";
  choose(next);
}
