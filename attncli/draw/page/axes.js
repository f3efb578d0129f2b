import { meta } from "./data.js";
import { colour, html, make, sized, write } from "./dom.js";
import { ceil, max, min } from "./numbers.js";
import { full } from "./words.js";

/** Pixels of a cell from which its words are written, and from which they may lean. */
const LETTERED = 13;
const LEANING = 22;
/** Pixels between two words at an axis that has no room for all. */
const APART = 44;

/**
 * A map's place on its canvas: left and top of its first cell, a cell's size, the first cell that is seen, how many are;
 * and by how much the words of its columns are turned.
 * @typedef {{left: number, top: number, cell: number, x: number, y: number, wide: number, tall: number, turn: number}} Frame
 */

/** Pixels beside the words for the names of the text's regions. */
const BAND = meta.bands.length ? 18 : 0;

/** The width of the longest word, within bounds; of many with a number before it. @param {CanvasRenderingContext2D} pen @param {import("./types.js").Word[]} words */
const longest = (pen, words) => min(110, max(24, ...words.slice(0, 2000).map((word) => pen.measureText(full(word)).width))) + (words.length > 40 ? 26 : 0);

/**
 * The place of a map whose words stand at its sides.
 * @param {import("./types.js").Word[]} asking @param {import("./types.js").Word[]} words @param {number} width of the canvas
 * @param {{x: number, y: number, wide: number, tall: number}} seen @returns {Frame}
 */
export function framed(asking, words, width, seen) {
  const pen = sized(make("canvas"), 1, 1);
  const left = longest(pen, asking) + 14 + BAND;
  const cell = (right = 8) => min((width - left - right) / seen.wide, 56, max(560 / seen.tall, 5));
  const turn = cell(48) < LEANING && cell() >= LETTERED ? -1.57 : -0.92;
  return { ...seen, left, top: longest(pen, words) * -Math.sin(turn) + 16, cell: cell(turn < -1 ? 8 : 48), turn };
}

/** A canvas with the ground of a map, and its words where there is room. @param {HTMLCanvasElement} canvas @param {Frame} frame
 * @param {import("./types.js").Word[]} asking @param {import("./types.js").Word[]} words @param {number} width */
export function prepared(canvas, frame, asking, words, width) {
  const { left, top, cell, x, y, wide, tall, turn } = frame;
  const pen = sized(canvas, width, top + tall * cell + 4);
  pen.fillStyle = colour("hidden");
  pen.fillRect(left, top, wide * cell, tall * cell);
  for (const [which, [name, first, behind, inner]] of meta.bands.entries()) {
    const [low, high] = [max(first, y), min(behind, y + tall)];
    if (high <= low || !asking.length) continue;
    pen.fillStyle = colour(which % 2 ? "looked" : "looks");
    pen.fillRect(14, top + (low - y) * cell, 3, (high - low) * cell - 1);
    const room = (high - low) * cell;
    if (!inner && pen.measureText(name[html.lang]).width <= room) write(pen, name[html.lang], 7, top + ((low + high) / 2 - y) * cell, room, "center", "ink", -Math.PI / 2);
    if (max(first, x) < min(behind, x + wide)) pen.fillRect(left + (max(first, x) - x) * cell, top - 4, (min(behind, x + wide) - max(first, x)) * cell - 1, 3);
  }
  const step = cell < LETTERED ? ([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((count) => count * cell >= APART) ?? 10000) : 1;
  /** A word, with its number where others are left out. @param {import("./types.js").Word[]} words @param {number} at */
  const named = (words, at) => (step > 1 ? `${at} ` : "") + full(words[at]);
  for (let i = ceil(y / step) * step; i + 0.5 < min(y + tall, asking.length); i += step)
    write(pen, named(asking, i), left - 8, top + (i - y + 0.5) * cell, left - 10 - BAND, "right");
  for (let j = ceil(x / step) * step; j + 0.5 < min(x + wide, words.length); j += step)
    write(pen, named(words, j), left + (j - x + 0.5) * cell, top - 8, 136, "left", "quiet", turn);
  return pen;
}

/** A picture on its frame, cut at its edges. @param {CanvasRenderingContext2D} pen @param {Frame} frame @param {HTMLCanvasElement} image
 * @param {number} x the picture's first cell @param {number} y @param {number} wide @param {number} tall how many cells it shows */
export function drawn(pen, frame, image, x, y, wide, tall) {
  const { left, top, cell } = frame;
  pen.save();
  pen.beginPath();
  pen.rect(left, top, frame.wide * cell, frame.tall * cell);
  pen.clip();
  pen.drawImage(image, left + (x - frame.x) * cell, top + (y - frame.y) * cell, wide * cell, tall * cell);
  pen.restore();
}
