import { clamp, min, round } from "./numbers.js";

/** @typedef {Node|string|number|null|Record<string, any>} Inside */

/**
 * An element, as "tag" or "tag.class"; plain objects among what is inside give its attributes and listeners (on…).
 * Text is only ever text.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T | `${T}.${string}`} name @param {...Inside} inside
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(name, ...inside) {
  const [tag, kind] = name.split(".");
  const made = /** @type {HTMLElementTagNameMap[T]} */ (document.createElement(tag));
  if (kind) made.className = kind;
  for (const one of inside) {
    if (one instanceof Node) made.append(one);
    else if (one && typeof one === "object") set(made, one);
    else if (one !== null) made.append(String(one));
  }
  return made;
}

/** Give attributes and listeners; false takes an attribute away, but not one of ARIA's.
 * @template {Element} T @param {T} element @param {Record<string, any>} given @returns {T} */
export function set(element, given) {
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === false && !name.startsWith("aria")) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
  return element;
}

/** The element with this id. @param {string} id @returns {HTMLElement} */
export const at = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Put these into the element with this id, and nothing else. @param {string} id @param {...(Node|string)} inside */
export const fill = (id, ...inside) => at(id).replaceChildren(...inside);

/** Letters of scripts that are written from right to left. */
const LEFTWARD = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]|[\ud802\ud803\ud83a\ud83b][\udc00-\udfff]/g;

/** A text that keeps its own direction inside another: without, "a → b" of two Arabic words reads as b → a.
 * @param {string} text */
export const apartFrom = (text) => (text.search(LEFTWARD) < 0 ? text : `\u2068${text}\u2069`);

/** In which direction most letters of some words are written. @param {import("./types.js").Word[]} words */
export function direction(words) {
  const letters = words.map(([text, , special]) => (special ? "" : text)).join("");
  const leftward = letters.match(LEFTWARD)?.length ?? 0;
  return 2 * leftward > (letters.match(/\p{L}/gu)?.length ?? 0) ? "rtl" : "ltr";
}

/** Let come what the reader does, or what else waits: a long work goes on afterwards. */
export const pause = () => new Promise((done) => setTimeout(done));
/** A work in many steps: what is called after each takes a pause where 12 milliseconds went by without one. */
export function stepwise() {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < 12 || matchMedia("print").matches) return;
    await pause();
    since = performance.now();
  };
}

/** Every element of the page that a selector means. @param {string} selector */
export const all = (selector) => [...document.querySelectorAll(selector)];
/** Where something stands in the window. @param {Element|Range} one */
export const frameOf = (one) => one.getBoundingClientRect();

/** A line that says why there is nothing to see. @param {string} text */
export const lead = (text) => make("p.lead", text);
/** A line in small print. @param {string} text */
export const note = (text) => make("p.note", text);

/** A button. @param {(event: Event) => void} onclick @param {...Inside} inside */
export const button = (onclick, ...inside) => make("button", { type: "button", onclick }, ...inside);

/** Buttons of which one is pressed. @param {string[]} names @param {number} chosen @param {(place: number) => void} act */
export const toggles = (names, chosen, act) =>
  make("span.choice", ...names.map((name, place) => button(() => act(place), { "aria-pressed": place === chosen }, name)));

/** A bar behind a number. @param {number} share from 0 to 1 @param {string} kind */
export function bar(share, kind) {
  const inner = make("i");
  inner.style.width = `${clamp(share, 1) * 100}%`;
  return make("span", { class: `bar ${kind}`, "aria-hidden": true }, inner);
}

/**
 * A ranking whose rows can be pressed.
 * @param {{name: string, share: number, number: string, rank?: string, kind?: string, act: () => void}[]} items  rank: a remark
 */
export const ranking = (items) =>
  make("ol.found", ...items.map(({ name, share, number, rank = "", kind = "", act }) =>
    make("li", button(act, make("span.where", name), bar(share, kind), make("span.number", number), make("span.rank", rank)))));

/** The page itself. */
export const html = document.documentElement;

/** @type {Map<string, string>} */
const colours = new Map();

/** A colour or typeface of the theme by the name of its property. @param {string} name */
export function colour(name) {
  let found = colours.get(name);
  if (!found) colours.set(name, (found = getComputedStyle(html).getPropertyValue(`--${name}`).trim()));
  return found;
}

/** Forget the colours of a theme that is no longer in force. */
export const unthemed = () => colours.clear();

/** Dots of a canvas along a pixel of the page, where a picture asks for more than the screen; 0 for the screen's. */
let density = 0;
/** Draw canvases with this many dots along a pixel from now on; 0 for the screen's. @param {number} dots */
export const sharpen = (dots) => void (density = dots);

/** A pen for a canvas of a size in CSS pixels, sharp on its screen. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function sized(canvas, width, height) {
  const ratio = density || min(devicePixelRatio || 1, 3);
  set(canvas, { width: round(width * ratio), height: round(height * ratio) });
  canvas.style.width = `${width}px`;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.scale(ratio, ratio);
  pen.textBaseline = "middle";
  pen.imageSmoothingEnabled = false;
  pen.font = `12px ${colour("sans")}`;
  return pen;
}

/** Text that ends or begins at a place, shortened to its room. @param {CanvasRenderingContext2D} pen @param {string} text
 * @param {number} x @param {number} y @param {number} room @param {CanvasTextAlign} align @param {string} ink @param {number} turn */
export function write(pen, text, x, y, room, align = "left", ink = "quiet", turn = 0) {
  const letters = [...text];
  while (letters.length && pen.measureText(text).width > room) {
    letters.pop();
    text = `${letters.join("")}…`;
  }
  pen.save();
  pen.translate(x, y);
  pen.rotate(turn);
  pen.textAlign = align;
  pen.fillStyle = colour(ink);
  pen.fillText(text, 0, 0);
  pen.restore();
}
