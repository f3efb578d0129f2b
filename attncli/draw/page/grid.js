import { block } from "./data.js";
import { at, button, colour, make, set, stepwise } from "./dom.js";
import { abs, clamp, floor, max, min } from "./numbers.js";
import { picture, shade, signedShade } from "./shades.js";
import { bare, choose, head, run, shortName, state } from "./state.js";
import { headName, labelName, say } from "./words.js";

/** Tiles in a row, at most. */
const ACROSS = 16;

/** Numbers that a view lays over the tiles, by head; null for none. @type {(number|null)[]|null} */
let laid = null;

/** Lay a number over every tile, or take them away. @param {(number|null)[]|null} values */
export function lay(values) {
  laid = values;
  label();
}

/** The heads in the order asked for. @returns {number[]} */
function order() {
  const { heads, metrics } = run();
  const metric = metrics.indexOf(state.sort);
  const places = [...heads.keys()];
  const value = (/** @type {number} */ place) => heads[place].m[metric] ?? -Infinity;
  return metric < 0 ? places : places.sort((a, b) => value(b) - value(a) || a - b);
}

/** The layers, first to last. */
const layers = () => [...new Set(run().heads.map(({ l }) => l))].sort((a, b) => a - b);

/** How many tiles a row has. */
const tilesAcross = () => min(max(...run().heads.map(({ h }) => h + 1), 1), ACROSS);

/** Fulfilled when the tiles are there. @type {Promise<void>} */
let ready = Promise.resolve();

/** Draw the tiles of every head. */
export function drawGrid() {
  ready = drawTiles();
}

/** The latest drawing of the tiles: one that was begun before goes no further. */
let gridDrawing = 0;

async function drawTiles() {
  const mine = ++gridDrawing;
  const breathe = stepwise();
  const { heads, tile: [tall, wide] } = run();
  const grid = at("grid");
  const sorted = state.sort !== "layer";
  grid.style.setProperty("--across", String(tilesAcross()));
  grid.classList.toggle("sorted", sorted);
  grid.classList.toggle("threads", state.tiles === "lines");
  const small = Float32Array.from(new Uint8Array(await block(`t${state.run}`)), (root) => root / 255);
  const side = (/** @type {number|string} */ text) => make("span.layer", { "aria-hidden": true }, text);
  /** @type {Node[]} */
  const tiles = sorted ? [] : [side(""), ...Array.from({ length: tilesAcross() }, (_, h) => side(h))];
  let layer = -1;
  for (const place of order()) {
    const one = heads[place];
    await breathe();
    if (mine !== gridDrawing) return;
    if (!sorted && one.l !== layer) tiles.push(side((layer = one.l)));
    const cells = small.subarray(place * tall * wide, (place + 1) * tall * wide);
    const map = state.tiles === "lines" ? threads(cells, tall, wide) : picture(cells, tall, wide, "linear", 1);
    tiles.push(button(() => choose({ head: place }), { class: "tile", id: `h${place}` }, map, make("span.name", { "aria-hidden": true }), make("span.over")));
  }
  grid.replaceChildren(...tiles);
  label();
}

/** A small map as lines, from the words that look, left, to those that are looked at. @param {Float32Array} cells @param {number} tall @param {number} wide */
function threads(cells, tall, wide) {
  const side = 96;
  const map = make("canvas", { width: side, height: side });
  const pen = /** @type {CanvasRenderingContext2D} */ (map.getContext("2d"));
  pen.strokeStyle = colour("looks");
  cells.forEach((root, cell) => {
    const weight = root ** 2;
    if (weight < 0.06) return;
    pen.globalAlpha = min(0.2 + weight, 1);
    pen.lineWidth = 1 + 4 * weight;
    pen.beginPath();
    pen.moveTo(4, ((floor(cell / wide) + 0.5) * side) / tall);
    pen.lineTo(side - 4, (((cell % wide) + 0.5) * side) / wide);
    pen.stroke();
  });
  return map;
}

/** Name the tiles and mark the chosen one. */
export function label() {
  const { heads, metrics } = run();
  const metric = metrics.indexOf(state.sort);
  const mapless = bare && run().tile[0] === 1;
  const hidden = heads.map(({ k }) => mapless && k.length > 0 && k[0][2] < 0);
  const values = laid ?? heads.map(({ m, k }, place) => m[metric] ?? (mapless && k.length && !hidden[place] ? k[0][2] : null));
  const high = max(...values.map((value) => abs(value ?? 0)), 1e-9);
  const signed = values.some((value) => value !== null && value < 0);
  heads.forEach((one, place) => {
    const tile = at(`h${place}`);
    if (!tile) return;
    const value = values[place];
    const number = value === null ? (hidden[place] ? say("weight.hidden") : "") : value.toFixed(2).replace("-0.00", "0.00");
    const [map, name, over] = tile.children;
    if (mapless) paintTile(/** @type {HTMLCanvasElement} */ (map), value === null ? null : (signed ? signedShade : shade)(value / high));
    set(name, { "data-name": metric < 0 ? one.h : shortName(one) });
    over.textContent = number;
    tile.classList.toggle("faint", !mapless && laid !== null && abs(value ?? 0) < high / 4);
    tile.tabIndex = place === state.head ? 0 : -1;
    const says = [headName(one), number, ...one.t.map(labelName)].filter(Boolean).join(" · ");
    set(tile, { "aria-pressed": place === state.head, "aria-label": says, title: says });
  });
}

/** A tile without a map shows its number's colour. @param {HTMLCanvasElement} map @param {Uint8ClampedArray|null} colour none for no number */
function paintTile(map, colour) {
  const pen = /** @type {CanvasRenderingContext2D} */ (map.getContext("2d"));
  pen.clearRect(0, 0, 1, 1);
  if (colour) pen.putImageData(new ImageData(Uint8ClampedArray.from(colour), 1, 1), 0, 0);
}

/** The small map of the chosen head, larger; null where there is none. */
export async function smallMap() {
  await ready;
  const map = /** @type {HTMLCanvasElement|null} */ (document.querySelector(`#h${state.head} canvas`));
  if (!map || map.width < 2) return null;
  const copy = make("canvas.small", { width: map.width, height: map.height, role: "img", "aria-label": headName(head()) });
  copy.getContext("2d")?.drawImage(map, 0, 0);
  return copy;
}

/** The next head in a direction of the grid. @param {number} dx @param {number} dy */
export function step(dx, dy) {
  if (dy && state.sort === "layer") return layer(dy);
  const places = order();
  choose({ head: places[clamp(places.indexOf(state.head) + dx + dy * tilesAcross(), places.length - 1)] });
}

/** The same head of another layer, or the last there is. @param {number} by */
export function layer(by) {
  const found = layers();
  const wanted = found[clamp(found.indexOf(head().l) + by, found.length - 1)];
  const there = [...run().heads.keys()].filter((place) => run().heads[place].l === wanted);
  choose({ head: there.find((place) => run().heads[place].h >= head().h) ?? there[there.length - 1] });
}
