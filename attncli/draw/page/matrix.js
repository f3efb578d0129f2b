import { drawn, framed, prepared } from "./axes.js";
import { button, fill, frameOf, make, set, write } from "./dom.js";
import { abs, ceil, clamp, floor, max, min } from "./numbers.js";
import { farthest, inkOn, legend, most, picture, place, shade, signedPicture, signedShade } from "./shades.js";
import { choose, head, keys, leave, open, peek, pick, queries, state } from "./state.js";
import { full, headName, say, signed, told } from "./words.js";

/** Pixels of a cell from which its number is written. */
const NUMBERS = 28;
/** Cells along a side that are drawn at once; more are pooled. */
const DRAWN = 720;
/** Cells along a side that are seen at least. */
const NEAREST = 4;

/** What is seen: the first cell and how many, by axis. */
const seen = { x: 0, y: 0, wide: 1, tall: 1 };
/** @type {import("./types.js").Weights|null} */
let weights = null;
/** The picture of the cells from x, y on. */
let image = { map: make("canvas"), x: 0, y: 0, wide: 0, tall: 0 };
let high = 1;
/** @type {import("./axes.js").Frame} */
let mapFrame = { left: 0, top: 0, cell: 1, turn: 0, ...seen };
/** Whether the pointer moved the picture since it was pressed: its release is no click then. */
let dragged = false;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let weighing;

const canvas = make("canvas.matrix", { tabindex: 0, role: "img" });
/** The cross-hair: it moves over the picture, which is not drawn again. */
const marks = ["row", "column", "cell", "asks", "asked"].map((name) => make(`i.${name}`, { "aria-hidden": true }));
const plot = make("div.plot", canvas, ...marks);
const box = make("div.scroll", plot);

/** The words of the rows, and of the columns: those that a matrix is of, or all. */
const rowWords = () => weights?.of?.words ?? queries();
const columnWords = () => weights?.of?.words ?? keys();
/** The chosen row and column; −1 for a word that the matrix has not. */
export const cellOf = () => [state.query, state.key].map((word) => weights?.of?.places.indexOf(word) ?? word);
/** A cell as a choice. @param {number} row @param {number} column */
const cellChoice = (row, column) => ({ query: weights?.of?.places[row] ?? row, key: weights?.of?.places[column] ?? column });
/** Go to another cell. @param {number} right @param {number} down */
export function moveCell(right, down) {
  const [row, column] = cellOf();
  choose(cellChoice(clamp(row + down, (weights?.n ?? 1) - 1), clamp(column + right, (weights?.m ?? 1) - 1)));
}

/** The matrix of a head, whole. @param {import("./types.js").Weights} found */
export async function show(found) {
  const other = found.n !== weights?.n || found.m !== weights?.m;
  weights = found;
  if (!box.isConnected) {
    const tool = (/** @type {string} */ sign, /** @type {string} */ name, /** @type {() => void} */ act) =>
      button(act, { class: "icon", "aria-label": say(name), title: say(name) }, sign);
    fill("view", box, make("div.under", make("p.legend"), make("span.zoom", tool("−", "zoom.out", () => zoom(0.5)), tool("+", "zoom.in", () => zoom(2)), tool("⤢", "zoom.all", whole))));
  }
  if (other) whole();
  else await again();
}

/** The whole matrix again. */
export function whole() {
  Object.assign(seen, { x: 0, y: 0, wide: weights?.m, tall: weights?.n });
  void again();
}

/** Weigh what is seen, and draw it. */
async function again() {
  const now = weights;
  if (!now) return;
  const [x, y] = [floor(seen.x), floor(seen.y)];
  const [wide, tall] = [min(ceil(seen.x + seen.wide), now.m) - x, min(ceil(seen.y + seen.tall), now.n) - y];
  const pool = ceil(max(wide, tall) / DRAWN);
  canvas.classList.add("waiting");
  const cells = await now.tile([y, y + tall, x, x + wide, pool]);
  canvas.classList.remove("waiting");
  if (now !== weights) return;
  const [rows, columns] = [ceil(tall / pool), ceil(wide / pool)];
  // of keys that share a dot the largest is drawn: it is open where one of them is
  const out = new Set([...open()].map((key) => floor((key - x) / pool)));
  high = now.of ? farthest(cells) : most(cells, columns, out);
  image = { map: now.of ? signedPicture(cells, rows, columns, high) : picture(cells, rows, columns, state.scale, high, out), x, y, wide: columns * pool, tall: rows * pool };
  paintMatrix();
  const ends = { linear: ["0", "1"], log: ["0.001", "1"], row: ["0", say("legend.row")] }[state.scale] ?? ["0", told(high)];
  document.querySelector("#view .legend")?.replaceWith(now.of ? legend(signed(-high, 2), `+${high.toFixed(2)}`, true) : legend(ends[0], ends[1]));
}

/** Draw the picture and the axes. */
function paintMatrix() {
  const [asking, words] = [rowWords(), columnWords()];
  const width = min(max(280, box.clientWidth), 980);
  mapFrame = framed(asking, words, width, seen);
  const pen = prepared(canvas, mapFrame, asking, words, width);
  drawn(pen, mapFrame, image.map, image.x, image.y, image.wide, image.tall);
  // the corner between the words of both axes is free for the names of these
  const { left, top } = mapFrame;
  write(pen, say("axis.key"), left, 8, left, "right");
  write(pen, say("axis.query"), left, top - 10, left, "right");
  if (mapFrame.cell >= NUMBERS) numbers(pen);
  set(canvas, { "aria-label": `${headName(head())}${weights?.of ? `, ${weights.of.name}` : ""}: ${say("matrix.says", { queries: asking.length, keys: words.length })}` });
  markCell();
}

/** @param {CanvasRenderingContext2D} pen */
function numbers(pen) {
  const { left, top, cell } = mapFrame;
  pen.textAlign = "center";
  for (let i = ceil(seen.y); i < floor(seen.y + seen.tall); i++) {
    const row = weights?.row(i) ?? new Float32Array();
    const most_ = state.scale === "row" ? most(row, row.length) : high;
    for (let j = ceil(seen.x); j < floor(seen.x + seen.wide); j++) {
      const size = weights?.of ? abs(row[j]) : row[j];
      if (!(size >= 0.005) || (!weights?.of && open().has(j))) continue;
      pen.fillStyle = inkOn(weights?.of ? signedShade(row[j] / high) : shade(place(row[j], state.scale, most_)));
      pen.fillText((size > row[j] ? "−" : weights?.of ? "+" : "") + size.toFixed(2).replace("0.", "."), left + (j - seen.x + 0.5) * cell, top + (i - seen.y + 0.5) * cell);
    }
  }
}

/** Put the cross-hair on the chosen cell, and name it at the axes. */
function markCell() {
  const { left, top, cell, wide, tall, turn } = mapFrame;
  const [row, column] = cellOf();
  for (const one of marks) one.hidden = row < 0 || column < 0;
  if (row < 0 || column < 0) return;
  const [x, y] = [left + (column - seen.x) * cell, top + (row - seen.y) * cell];
  // the words of the chosen cell stay in sight where the cell itself does not
  const [near, level] = [left + clamp(x - left, (wide - 1) * cell), top + clamp(y - top, (tall - 1) * cell)];
  const places = [[left, y, wide * cell, cell], [x, top, cell, tall * cell], [x, y, cell, cell], [0, level, left - 7, cell], [near + cell / 2, top - 16, 110, 16]];
  places.forEach(([left, top, width, height], which) =>
    Object.assign(marks[which].style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` }));
  marks[3].replaceChildren(make("b", full(rowWords()[row])));
  marks[4].replaceChildren(make("b", full(columnWords()[column])));
  marks[4].style.transform = `rotate(${turn}rad)`;
}

/** Bring the chosen cell into sight, and mark it. */
export function follows() {
  const [row, column] = cellOf();
  const x = max(min(seen.x, column), column + 1 - seen.wide);
  const y = max(min(seen.y, row), row + 1 - seen.tall);
  if ((x === seen.x && y === seen.y) || row < 0 || column < 0) return markCell();
  Object.assign(seen, { x, y });
  void again();
}

/** The cell under the pointer. @param {MouseEvent} event */
function cellUnder({ clientX, clientY }) {
  const { left, top } = frameOf(canvas);
  const [x, y] = [(clientX - left - mapFrame.left) / mapFrame.cell, (clientY - top - mapFrame.top) / mapFrame.cell];
  return { x: x + seen.x, y: y + seen.y, inside: x >= 0 && y >= 0 && x < seen.wide && y < seen.tall };
}

/** Come nearer or go away, around a cell. @param {number} by @param {number} x @param {number} y */
export function zoom(by, x = cellOf()[1] + 0.5, y = cellOf()[0] + 0.5) {
  if (!weights) return;
  const { n, m } = weights;
  const wide = max(min(NEAREST, m), min(m, seen.wide / by));
  const tall = max(min(NEAREST, n), min(n, seen.tall / by));
  pan(x - ((x - seen.x) * wide) / seen.wide, y - ((y - seen.y) * tall) / seen.tall, wide, tall);
  clearTimeout(weighing);
  weighing = setTimeout(again, 60);
}

/** Look at another part. @param {number} x @param {number} y @param {number} wide @param {number} tall */
function pan(x, y, wide = seen.wide, tall = seen.tall) {
  Object.assign(seen, { x: clamp(x, (weights?.m ?? 0) - wide), y: clamp(y, (weights?.n ?? 0) - tall), wide, tall });
  paintMatrix();
}

/** Choose the cell under the pointer. @param {MouseEvent} event @param {(next: {query: number, key: number}) => void} act */
function pointCell(event, act) {
  const { x, y, inside } = cellUnder(event);
  if (inside) act(cellChoice(floor(y), floor(x)));
}

set(plot, {
  onpointermove: (/** @type {PointerEvent} */ event) => {
    if (event.buttons & 1) {
      dragged ||= Boolean(event.movementX || event.movementY);
      pan(seen.x - event.movementX / mapFrame.cell, seen.y - event.movementY / mapFrame.cell);
    } else pointCell(event, peek);
  },
  onpointerdown: () => (dragged = false),
  onpointerup: () => void again(),
  onpointerleave: leave,
  onclick: (/** @type {MouseEvent} */ event) => !dragged && pointCell(event, pick),
  ondblclick: (/** @type {MouseEvent} */ event) => zoom(2, cellUnder(event).x, cellUnder(event).y),
});
plot.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey && seen.wide === weights?.m) return;
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 300), cellUnder(event).x, cellUnder(event).y);
}, { passive: false });
