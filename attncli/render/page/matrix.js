import { at, colour, fitted, make, sized } from "./dom.js";
import { css, most, picture, place } from "./shades.js";
import { choose, head, keys, run, state } from "./state.js";
import { tile } from "./weights.js";
import { say, told } from "./words.js";

/** Pixels of a cell from which words and numbers are written. */
const WORDS = 11;
const NUMBERS = 34;
/** Cells along a side that are drawn at once; more are pooled. */
const DRAWN = 720;

/** What is seen: the first cell and how many, by axis. */
const view = { x: 0, y: 0, wide: 1, tall: 1 };
/** @type {import("./types.js").Weights|null} */
let weights = null;
/** @type {{image: HTMLCanvasElement, x: number, y: number, wide: number, tall: number}|null} */
let drawn = null;
let high = 1;
let frame = { left: 0, top: 0, size: 0, width: 0, height: 0 };
const canvas = make("canvas", { class: "matrix", tabindex: 0, role: "img" });
const box = make("div", { class: "scroll" }, canvas);

/** The matrix of a head, whole. @param {import("./types.js").Weights|null} found */
export async function show(found) {
  if (!box.isConnected) at("view").replaceChildren(tools(), box, legend());
  if (found?.n !== weights?.n || found?.m !== weights?.m) fit(found);
  weights = found;
  await again();
}

/** @param {import("./types.js").Weights|null} found */
function fit(found) {
  Object.assign(view, { x: 0, y: 0, wide: found?.m ?? 1, tall: found?.n ?? 1 });
}

/** Weigh what is seen, and draw it. */
async function again() {
  if (!weights) return paint();
  const x = Math.floor(view.x);
  const y = Math.floor(view.y);
  const wide = Math.min(Math.ceil(view.x + view.wide), weights.m) - x;
  const tall = Math.min(Math.ceil(view.y + view.tall), weights.n) - y;
  const pool = Math.max(1, Math.ceil(Math.max(wide, tall) / DRAWN));
  const [rows, columns] = [Math.ceil(tall / pool), Math.ceil(wide / pool)];
  const now = weights;
  let cells;
  if (now.all && pool === 1) {
    cells = new Float32Array(tall * wide);
    for (let i = 0; i < tall; i++) cells.set(now.all.subarray((y + i) * now.m + x, (y + i) * now.m + x + wide), i * wide);
  } else if (now.parts) {
    canvas.classList.add("waiting");
    cells = await tile(now.parts, [y, y + tall, x, x + wide, pool]);
    canvas.classList.remove("waiting");
    if (now !== weights) return;
  } else if (now.all) {
    cells = new Float32Array(rows * columns).fill(-1);
    for (let i = 0; i < tall; i++)
      for (let j = 0; j < wide; j++) {
        const to = Math.floor(i / pool) * columns + Math.floor(j / pool);
        cells[to] = Math.max(cells[to], now.all[(y + i) * now.m + x + j]);
      }
  } else return;
  high = most(cells, columns, state.scale === "rest" && x === 0);
  drawn = { image: picture(cells, rows, columns, state.scale, high, x === 0), x, y, wide: columns * pool, tall: rows * pool };
  paint();
}

/** Draw the picture, the axes and the cross-hair. */
export function paint() {
  const words = keys();
  const asking = run().q;
  const width = Math.max(280, Math.min(box.clientWidth || 640, 980));
  const pen = sized(canvas, width, 10);
  pen.font = `12px ${colour("sans")}`;
  const longest = (/** @type {import("./types.js").Word[]} */ list) =>
    Math.min(110, Math.max(24, ...list.slice(0, 2000).map((word) => pen.measureText(word[0]).width + 8)));
  const left = longest(asking) + 8;
  const top = longest(words) * 0.82 + 16;
  const cell = Math.min((width - left - 40) / view.wide, 56, Math.max(560 / view.tall, 5));
  const wide = cell * view.wide;
  const tall = cell * view.tall;
  frame = { left, top, size: cell, width: wide, height: tall };
  const ink = sized(canvas, width, Math.round(top + tall + 12));
  ink.font = `12px ${colour("sans")}`;
  ink.imageSmoothingEnabled = false;
  ink.save();
  ink.beginPath();
  ink.rect(left, top, wide, tall);
  ink.clip();
  ink.fillStyle = colour("hidden");
  ink.fillRect(left, top, wide, tall);
  if (drawn && weights) {
    ink.drawImage(drawn.image, left + (drawn.x - view.x) * cell, top + (drawn.y - view.y) * cell, drawn.wide * cell, drawn.tall * cell);
    if (cell >= NUMBERS) numbers(ink, cell);
  }
  ink.restore();
  if (cell >= WORDS) axes(ink, asking, words);
  cross(ink, asking, words);
  canvas.setAttribute("aria-label", say("matrix.says", head().l, head().h, asking.length, words.length));
}

/** @param {CanvasRenderingContext2D} pen @param {number} cell */
function numbers(pen, cell) {
  if (!weights) return;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.font = `${cell > 44 ? 12 : 11}px ${colour("sans")}`;
  for (let i = Math.floor(view.y); i < Math.min(view.y + view.tall, weights.n); i++) {
    const row = weights.row(i);
    const top = state.scale === "row" ? most(row, row.length) : high;
    for (let j = Math.floor(view.x); j < Math.min(view.x + view.wide, weights.m); j++) {
      if (row[j] < 0.005 || (state.scale === "rest" && j === 0)) continue;
      pen.fillStyle = css(place(row[j], state.scale, top)).ink;
      pen.fillText(row[j].toFixed(2).replace("0.", "."), frame.left + (j - view.x + 0.5) * cell, frame.top + (i - view.y + 0.5) * cell);
    }
  }
  pen.font = `12px ${colour("sans")}`;
}

/** @param {CanvasRenderingContext2D} pen @param {import("./types.js").Word[]} asking @param {import("./types.js").Word[]} words */
function axes(pen, asking, words) {
  const { left, top, size } = frame;
  pen.textBaseline = "middle";
  for (let i = Math.ceil(view.y); i + 0.5 < Math.min(view.y + view.tall, asking.length); i++) {
    pen.fillStyle = colour(i === state.query ? "ink" : "quiet");
    pen.textAlign = "right";
    pen.fillText(fitted(pen, asking[i][0], left - 14), left - 8, top + (i - view.y + 0.5) * size);
  }
  for (let j = Math.ceil(view.x); j + 0.5 < Math.min(view.x + view.wide, words.length); j++) turned(pen, j, words[j][0], j === state.key);
}

/** A key's word above its column. @param {CanvasRenderingContext2D} pen @param {number} j @param {string} word @param {boolean} chosen */
function turned(pen, j, word, chosen) {
  const { left, top, size } = frame;
  pen.save();
  pen.translate(left + (j - view.x + 0.5) * size, top - 8);
  pen.rotate(-Math.PI / 3.4);
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.fillStyle = colour(chosen ? "ink" : "quiet");
  pen.fillText(fitted(pen, word, 112), 0, 0);
  pen.restore();
}

/** @param {CanvasRenderingContext2D} pen @param {import("./types.js").Word[]} asking @param {import("./types.js").Word[]} words */
function cross(pen, asking, words) {
  const { left, top, size, width, height } = frame;
  const x = left + (state.key - view.x) * size;
  const y = top + (state.query - view.y) * size;
  const inside = x >= left - 1 && x < left + width && y >= top - 1 && y < top + height;
  if (!inside) return;
  pen.strokeStyle = colour("cross");
  pen.lineWidth = 1;
  pen.strokeRect(left + 0.5, y - 0.5, width - 1, size + 1);
  pen.strokeRect(x - 0.5, top + 0.5, size + 1, height - 1);
  pen.lineWidth = 2;
  pen.strokeStyle = colour("accent");
  pen.strokeRect(x - 1, y - 1, size + 2, size + 2);
  if (size >= WORDS) return;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  pen.fillStyle = colour("ink");
  pen.fillText(fitted(pen, asking[state.query][0], left - 12), left - 6, Math.max(top + 6, y + size / 2));
  turned(pen, state.key, words[state.key][0], true);
}

/** The cell under the pointer. @param {PointerEvent|WheelEvent|MouseEvent} event */
function under(event) {
  const rect = canvas.getBoundingClientRect();
  const ratio = rect.width / (parseFloat(canvas.style.width) || rect.width);
  const x = ((event.clientX - rect.left) / ratio - frame.left) / frame.size + view.x;
  const y = ((event.clientY - rect.top) / ratio - frame.top) / frame.size + view.y;
  return { x, y, inside: x >= view.x && y >= view.y && x < view.x + view.wide && y < view.y + view.tall };
}

/** Come nearer or go away, around a cell. @param {number} by @param {number} x @param {number} y */
export function zoom(by, x = state.key + 0.5, y = state.query + 0.5) {
  if (!weights) return;
  const wide = Math.max(Math.min(4, weights.m), Math.min(weights.m, view.wide / by));
  const tall = Math.max(Math.min(4, weights.n), Math.min(weights.n, view.tall / by));
  const clamp = (/** @type {number} */ value, /** @type {number} */ room) => Math.max(0, Math.min(value, room));
  view.x = clamp(x - ((x - view.x) * wide) / view.wide, weights.m - wide);
  view.y = clamp(y - ((y - view.y) * tall) / view.tall, weights.n - tall);
  Object.assign(view, { wide, tall });
  paint();
  clearTimeout(waiting);
  waiting = window.setTimeout(() => void again(), 60);
}
let waiting = 0;

/** The whole matrix again. */
export function whole() {
  fit(weights);
  void again();
}

/** Bring the chosen cell into sight, and mark it. */
export function mark() {
  const x = Math.max(0, Math.min(view.x, state.key), state.key + 1 - view.wide);
  const y = Math.max(0, Math.min(view.y, state.query), state.query + 1 - view.tall);
  const moved = (view.x > state.key || view.x + view.wide <= state.key ? x : view.x) !== view.x || view.y > state.query || view.y + view.tall <= state.query;
  if (!moved) return paint();
  view.x = view.x > state.key || view.x + view.wide <= state.key ? x : view.x;
  view.y = view.y > state.query || view.y + view.tall <= state.query ? y : view.y;
  void again();
}

canvas.addEventListener("pointermove", (event) => {
  const { x, y, inside } = under(event);
  if (event.buttons & 1 && weights) {
    view.x = Math.max(0, Math.min(view.x - event.movementX / frame.size, weights.m - view.wide));
    view.y = Math.max(0, Math.min(view.y - event.movementY / frame.size, weights.n - view.tall));
    paint();
  } else if (inside && !held) choose({ query: Math.floor(y), key: Math.floor(x) });
});
canvas.addEventListener("pointerup", () => void again());
canvas.addEventListener("click", (event) => {
  const { x, y, inside } = under(event);
  held = inside && !held;
  if (inside) choose({ query: Math.floor(y), key: Math.floor(x) });
});
canvas.addEventListener("dblclick", (event) => zoom(2, under(event).x, under(event).y));
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey && view.wide === weights?.m) return;
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 300), under(event).x, under(event).y);
}, { passive: false });
let held = false;

function tools() {
  const button = (/** @type {string} */ sign, /** @type {string} */ name, /** @type {() => void} */ act) =>
    make("button", { type: "button", class: "icon", "aria-label": say(name), title: say(name), onclick: act }, sign);
  return make("div", { class: "zoom" }, button("−", "zoom.out", () => zoom(0.5)), button("+", "zoom.in", () => zoom(2)), button("⤢", "zoom.all", whole));
}

/** The scale of colours, with its ends. */
export function legend() {
  const strip = make("canvas", { width: 256, height: 1, "aria-hidden": "true" });
  const pen = strip.getContext("2d");
  for (let at = 0; at < 256; at++) if (pen) { pen.fillStyle = css(at / 255).behind; pen.fillRect(at, 0, 1, 1); }
  const ends = state.scale === "log" ? ["0.001", "1"] : state.scale === "linear" ? ["0", "1"] : state.scale === "row" ? ["0", say("legend.row")] : ["0", told(high)];
  return make("p", { class: "legend" }, ends[0], strip, ends[1]);
}
