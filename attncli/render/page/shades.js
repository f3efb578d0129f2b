import { colour } from "./dom.js";

export const SCALES = ["linear", "log", "row", "rest"];

/** Colours along [0, 1] of the theme, as RGBA, for weights and for signed differences. */
let ramps = { one: new Uint8ClampedArray(1024), two: new Uint8ClampedArray(1024) };

/** @param {string} names of the theme's colours @returns {Uint8ClampedArray<ArrayBuffer>} 256 colours between them, RGBA */
function ramp(names) {
  const stops = colour(names).split(" ").map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const found = new Uint8ClampedArray(1024);
  for (let at = 0; at < 256; at++) {
    const place = (at / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) found[4 * at + c] = stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (place - low);
    found[4 * at + 3] = 255;
  }
  return found;
}

/** Take the colours of the theme that is in force. */
export function themed() {
  ramps = { one: ramp("ramp"), two: ramp("signed") };
}

/** The largest weight that a scale is drawn to. @param {ArrayLike<number>} weights @param {number} width @param {boolean} rest */
export function most(weights, width, rest = false) {
  let found = 0;
  for (let at = 0; at < weights.length; at++) if (!(rest && at % width === 0) && weights[at] > found) found = weights[at];
  return found;
}

/** Where a weight lies from 0 to 1. @param {number} weight @param {string} scale @param {number} high the largest it is measured by */
export function place(weight, scale, high) {
  if (weight <= 0 || high <= 0) return 0;
  if (scale === "log") return Math.max(0, 1 + Math.log10(Math.min(weight, 1)) / 3);
  if (scale === "linear") return Math.min(weight, 1);
  return Math.min(weight / high, 1);
}

/**
 * Weights [rows, columns] as a picture, one dot each; hidden ones are left open.
 * @param {Float32Array} weights @param {number} rows @param {number} columns @param {string} scale
 * @param {number} high @param {boolean} first whether column 0 is the first token, which "rest" leaves open
 */
export function picture(weights, rows, columns, scale, high, first = true) {
  const image = new ImageData(columns, rows);
  for (let i = 0; i < rows; i++) {
    const top = scale === "row" ? most(weights.subarray(i * columns, (i + 1) * columns), columns) : high;
    for (let j = 0; j < columns; j++) {
      const at = i * columns + j;
      if (weights[at] < 0 || (scale === "rest" && first && j === 0)) continue;
      image.data.set(shade(place(weights[at], scale, top)), 4 * at);
    }
  }
  return canvasOf(image);
}

/** Signed numbers as a picture; 0 is pale, NaN open. @param {Float32Array} values @param {number} rows @param {number} columns @param {number} high */
export function signedPicture(values, rows, columns, high) {
  const image = new ImageData(columns, rows);
  for (let at = 0; at < values.length; at++) {
    if (Number.isNaN(values[at])) continue;
    const level = Math.round((0.5 + (high ? values[at] / high / 2 : 0)) * 255);
    image.data.set(ramps.two.subarray(4 * level, 4 * level + 4), 4 * at);
  }
  return canvasOf(image);
}

/** The colour at a place from 0 to 1, RGBA. @param {number} share */
export function shade(share) {
  const level = Math.round(share * 255);
  return ramps.one.subarray(4 * level, 4 * level + 4);
}

/** The colour as CSS, and the ink that reads on it. @param {number} share */
export function css(share) {
  const [r, g, b] = shade(share);
  return { behind: `rgb(${r},${g},${b})`, ink: 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff" };
}

/** @param {ImageData} image */
function canvasOf(image) {
  const made = document.createElement("canvas");
  made.width = image.width;
  made.height = image.height;
  made.getContext("2d")?.putImageData(image, 0, 0);
  return made;
}
