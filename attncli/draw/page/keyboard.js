import { meta } from "./data.js";
import { at } from "./dom.js";
import { layer, step } from "./grid.js";
import { moveCell, whole, zoom } from "./matrix.js";
import { max } from "./numbers.js";
import { move, turn } from "./sentence.js";
import { SCALES } from "./shades.js";
import { across } from "./stacked.js";
import { choose, hold, pin, state } from "./state.js";
import { goTo } from "./tour.js";

/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** To the first or the last, and by how many words a page is moved. @type {Record<string, number>} */
const FAR = { Home: -1e6, End: 1e6 };
/** @type {Record<string, number>} */
const PAGES = { PageUp: -10, PageDown: 10 };

/** What every key does. @param {KeyboardEvent} event @param {string[]} views */
export function pressed(event, views) {
  const target = /** @type {HTMLElement} */ (event.target);
  const inside = (/** @type {string} */ selector) => target.closest(selector);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (inside("input, select")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const to = (/** @type {string} */ view) => views.includes(view) && choose({ view });
  const next = (/** @type {string[]} */ list, /** @type {string} */ now, by = 1) => list[(list.indexOf(now) + by + list.length) % list.length];
  const [dx, dy] = ARROWS[event.key] ?? [0, 0];
  const [far, page] = [FAR[event.key] ?? 0, PAGES[event.key] ?? 0];
  /** @type {Record<string, () => unknown>} */
  const acts = {
    "[": () => layer(-1), "]": () => layer(1), ",": () => step(-1, 0), ".": () => step(1, 0),
    "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), "0": whole,
    s: () => choose({ scale: next(SCALES, state.scale) }),
    r: turn,
    "/": () => { to("search"); setTimeout(() => at("from").focus(), 50); },
    d: () => to("difference"), e: () => to("effects"),
    a: () => meta.pairs && choose(across(1 - state.run)),
    p: () => pin(state.head),
    "?": () => help(), Escape: () => { help(false); hold(false); },
  };
  const places = {
    "#grid": () => { step(dx + far, dy + page * 0.4); at(`h${state.head}`).focus(); },
    "#sentence, #asking": () => move(dx, dy + far + page),
    ".links": () => move(0, dx + dy + far + page),
    ".matrix": () => moveCell(dx + far, dy + page),
    "#tabs": () => { choose({ view: far ? views[far < 0 ? 0 : views.length - 1] : next(views, state.view, dx + dy) }); at(`tab-${state.view}`).focus(); },
    // with nothing else under them, left and right go through the tour that is open
    [state.tour && dx ? "body" : "#tour"]: () => goTo(max(state.tour + dx + dy, 1), views),
  };
  const act = dx || dy || far || page ? Object.entries(places).find(([selector]) => inside(selector))?.[1] : acts[event.key];
  const view = views[Number(event.key) - 1];
  if (view) choose({ view });
  else if (act) act();
  else return;
  event.preventDefault();
}

/** Open or close the list of keys. @param {boolean} [open] */
export function help(open) {
  const box = /** @type {HTMLDialogElement} */ (at("help"));
  if (open ?? !box.open) box.showModal();
  else box.close();
}
