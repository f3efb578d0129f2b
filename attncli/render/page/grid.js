import { block } from "./data.js";
import { at, make } from "./dom.js";
import { picture } from "./shades.js";
import { choose, head, run, state } from "./state.js";
import { say } from "./words.js";

/** Numbers that other views lay over the tiles, by head; null for none. @type {{values: (number|null)[], high: number}|null} */
let laid = null;

/** Lay a number over every tile, or take them away. @param {(number|null)[]|null} values */
export function lay(values) {
  laid = values && { values, high: Math.max(...values.map((value) => Math.abs(value ?? 0)), 1e-9) };
  label();
}

/** The heads in the order asked for. @returns {number[]} */
export function order() {
  const { heads, metrics } = run();
  const metric = metrics.indexOf(state.sort);
  const places = heads.map((_, place) => place);
  if (metric < 0) return places;
  const value = (/** @type {number} */ place) => heads[place].m[metric] ?? -Infinity;
  return places.sort((a, b) => value(b) - value(a) || a - b);
}

/** Draw the tiles of every head. */
export async function drawGrid() {
  const there = run();
  const grid = at("grid");
  const sorted = state.sort !== "layer";
  const rows = new Map();
  for (const one of there.heads) rows.set(one.l, Math.max(rows.get(one.l) ?? 0, one.h + 1));
  const across = Math.min(Math.max(...rows.values(), 1), 16);
  grid.style.setProperty("--across", String(across));
  grid.setAttribute("data-sorted", String(sorted));
  const small = new Uint8Array(await block(`t${state.run}`));
  const [tall, wide] = there.tile;
  /** @type {Node[]} */
  const tiles = [];
  let layer = -1;
  for (const place of order()) {
    const one = there.heads[place];
    if (!sorted && one.l !== layer) {
      tiles.push(make("span", { class: "layer", "aria-hidden": "true" }, String(one.l)));
      layer = one.l;
    }
    const cells = small.subarray(place * tall * wide, (place + 1) * tall * wide);
    const roots = Float32Array.from(cells, (value) => value / 255);
    const map = picture(roots, tall, wide, "linear", 1);
    const tile = make(
      "button",
      { class: "tile", type: "button", id: `h${place}`, "data-at": place, tabindex: -1, onclick: () => choose({ head: place }) },
      map, make("span", { class: "name" }), make("span", { class: "over" }),
    );
    tiles.push(tile);
  }
  grid.replaceChildren(...tiles);
  label();
}

/** Name the tiles and mark the chosen one. */
export function label() {
  const { heads, metrics } = run();
  const metric = metrics.indexOf(state.sort);
  for (const tile of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#grid .tile"))) {
    const place = Number(tile.dataset.at);
    const one = heads[place];
    const chosen = place === state.head;
    tile.setAttribute("aria-pressed", String(chosen));
    tile.tabIndex = chosen ? 0 : -1;
    const value = laid ? laid.values[place] : metric < 0 ? null : one.m[metric];
    const number = value === null || value === undefined ? "" : value.toFixed(2);
    const over = /** @type {HTMLElement} */ (tile.lastElementChild);
    over.textContent = number;
    over.style.opacity = laid && value !== null ? String(0.35 + (0.65 * Math.abs(value ?? 0)) / laid.high) : "1";
    tile.classList.toggle("faint", Boolean(laid) && Math.abs(value ?? 0) < (laid?.high ?? 0) / 4);
    /** @type {HTMLElement} */ (tile.children[1]).textContent = state.sort === "layer" ? String(one.h) : `${one.l}.${one.h}`;
    tile.setAttribute("aria-label", [say("head.name", one.l, one.h), number, ...one.t].filter(Boolean).join(", "));
    tile.title = [say("head.name", one.l, one.h), ...one.t].join(" · ");
  }
}

/** The next head in a direction of the grid. @param {number} dx @param {number} dy */
export function step(dx, dy) {
  const places = order();
  const heads = run().heads;
  const now = places.indexOf(state.head);
  if (dy === 0 || state.sort !== "layer") {
    const across = Number(at("grid").style.getPropertyValue("--across")) || 12;
    return choose({ head: places[Math.max(0, Math.min(places.length - 1, now + dx + dy * across))] });
  }
  const layers = [...new Set(heads.map((one) => one.l))];
  const layer = layers[Math.max(0, Math.min(layers.length - 1, layers.indexOf(head().l) + dy))];
  const same = heads.flatMap((one, place) => (one.l === layer ? [place] : []));
  choose({ head: same.find((place) => heads[place].h >= head().h) ?? same[same.length - 1] });
}
