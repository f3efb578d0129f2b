import { colour, make, unthemed } from "./dom.js";
import { abs, clamp, floor, min, round } from "./numbers.js";

export const SCALES = ["linear", "log", "row", "rest"];

/** Colours along [0, 1] of the theme, as RGBA, for weights and for signed differences. */
let ramps = { one: new Uint8ClampedArray(), two: new Uint8ClampedArray() };

/** 256 colours between those of the theme, RGBA. @param {string} name */
function ramp(name) {
  const stops = colour(name).split(" ").map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const found = new Uint8ClampedArray(1024).fill(255);
  for (let at = 0; at < 256; at++) {
    const place = (at / 255) * (stops.length - 1);
    const low = min(floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) found[4 * at + c] = stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (place - low);
  }
  return found;
}

/** Take the colours of the theme that is in force. */
export function themed() {
  unthemed();
  ramps = { one: ramp("ramp"), two: ramp("signed") };
}

/** The largest weight that a scale is drawn to. @param {ArrayLike<number>} weights @param {number} width @param {Set<number>} out columns left open */
export function most(weights, width, out = new Set()) {
  let found = 0;
  for (let at = 0; at < weights.length; at++) if (weights[at] > found && !out.has(at % width)) found = weights[at];
  return found;
}

/** The largest size of signed numbers. @param {Float32Array} values */
export const farthest = (values) => values.reduce((found, value) => (abs(value) > found ? abs(value) : found), 0);

/** Where a weight lies from 0 to 1. @param {number} weight @param {string} scale @param {number} high the largest it is measured by */
export function place(weight, scale, high) {
  if (weight <= 0 || high <= 0) return 0;
  return clamp(scale === "log" ? 1 + Math.log10(weight) / 3 : scale === "linear" ? weight : weight / high, 1);
}

/** Numbers as a picture, one dot each. @param {number} rows @param {number} columns @param {Uint8ClampedArray} colours
 * @param {(at: number) => number} share the place among the colours, from 0 to 1; NaN leaves it open */
function dots(rows, columns, colours, share) {
  const image = new ImageData(columns, rows);
  const [pixels, levels] = [new Uint32Array(image.data.buffer), new Uint32Array(colours.buffer)];
  for (let at = 0; at < rows * columns; at++) {
    const place = share(at);
    if (place >= 0) pixels[at] = levels[round(place * 255)];
  }
  const made = make("canvas", { width: columns, height: rows });
  made.getContext("2d")?.putImageData(image, 0, 0);
  return made;
}

/**
 * Weights [rows, columns] as a picture; hidden ones are left open.
 * @param {Float32Array} weights @param {number} rows @param {number} columns @param {string} scale
 * @param {number} high @param {Set<number>} out columns left open
 */
export function picture(weights, rows, columns, scale, high, out = new Set()) {
  let top = high;
  return dots(rows, columns, ramps.one, (at) => {
    if (scale === "row" && at % columns === 0) top = most(weights.subarray(at, at + columns), columns);
    return weights[at] < 0 || out.has(at % columns) ? NaN : place(weights[at], scale, top);
  });
}

/** Signed numbers as a picture; 0 is pale, NaN open. @param {Float32Array} values @param {number} rows @param {number} columns @param {number} high */
export const signedPicture = (values, rows, columns, high) =>
  dots(rows, columns, ramps.two, (at) => 0.5 + (high && values[at] / high / 2) + 0 * values[at]);

/** @param {Uint8ClampedArray} colours @param {number} share */
function level(colours, share) {
  const at = 4 * round(share * 255);
  return colours.subarray(at, at + 4);
}

/** The colour at a place from 0 to 1, RGBA. @param {number} share */
export const shade = (share) => level(ramps.one, share);

/** The colour of a signed number from −1 to 1, RGBA. @param {number} share */
export const signedShade = (share) => level(ramps.two, 0.5 + share / 2);

/** The ink that reads on a colour: whichever has more contrast, 4.5 : 1 at least. @param {Uint8ClampedArray} colour */
export function inkOn(colour) {
  const [r, g, b] = [...colour].map((level) => (level / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

/** A scale of colours between its ends. @param {string} low @param {string} high @param {boolean} two whether it is signed */
export function legend(low, high, two = false) {
  const steps = Float32Array.from({ length: 256 }, (_, at) => at / 255);
  const strip = two ? signedPicture(steps.map((at) => 2 * at - 1), 1, 256, 1) : picture(steps, 1, 256, "linear", 1);
  return make("p.legend", low, strip, high);
}
