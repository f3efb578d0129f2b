import { meta } from "./data.js";
import { at } from "./dom.js";
import { step } from "./grid.js";
import { whole, zoom } from "./matrix.js";
import { move, turn } from "./sentence.js";
import { SCALES } from "./shades.js";
import { choose, head, keys, run, state } from "./state.js";

/** What every key does. @param {KeyboardEvent} event @param {string[]} views */
export function pressed(event, views) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.closest("input, select, textarea")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const arrows = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });
  const arrow = arrows[event.key];
  if (arrow) {
    if (target.closest("#grid")) {
      step(...arrow);
      at(`h${state.head}`)?.focus();
    } else if (target.closest("#sentence, #asking, .links")) move(arrow[0] + arrow[1]);
    else if (target.closest(".matrix")) choose({ key: clamp(state.key + arrow[0], keys().length), query: clamp(state.query + arrow[1], run().q.length) });
    else if (target.closest("#tabs")) {
      choose({ view: views[(views.indexOf(state.view) + arrow[0] + arrow[1] + views.length) % views.length] });
      at(`tab-${state.view}`)?.focus();
    } else return;
    return event.preventDefault();
  }
  const act = /** @type {Record<string, () => void>} */ ({
    "[": () => layer(-1), "]": () => layer(1), ",": () => step(-1, 0), ".": () => step(1, 0),
    "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), "0": whole,
    s: () => choose({ scale: SCALES[(SCALES.indexOf(state.scale) + 1) % SCALES.length] }),
    r: turn,
    "/": () => { if (views.includes("search")) { choose({ view: "search" }); requestAnimationFrame(() => at("from")?.focus()); } },
    d: () => views.includes("difference") && choose({ view: "difference" }),
    e: () => views.includes("effects") && choose({ view: "effects" }),
    "?": () => help(), Escape: () => help(false),
    a: () => meta.runs.length > 1 && choose({ run: 1 - state.run }),
  })[event.key];
  const number = /^[1-9]$/.test(event.key) ? views[Number(event.key) - 1] : undefined;
  if (number) choose({ view: number });
  else if (act) act();
  else return;
  event.preventDefault();
}

const clamp = (/** @type {number} */ value, /** @type {number} */ count) => Math.max(0, Math.min(value, count - 1));

/** The same head of another layer. @param {number} by */
function layer(by) {
  const heads = run().heads;
  const layers = [...new Set(heads.map((one) => one.l))].sort((a, b) => a - b);
  const wanted = layers[clamp(layers.indexOf(head().l) + by, layers.length)];
  const place = heads.findIndex((one) => one.l === wanted && one.h === head().h);
  choose({ head: place >= 0 ? place : heads.findIndex((one) => one.l === wanted) });
}

/** Open or close the list of keys. @param {boolean} [open] */
export function help(open) {
  const box = /** @type {HTMLDialogElement} */ (at("help"));
  if (open ?? !box.open) box.showModal();
  else box.close();
}
