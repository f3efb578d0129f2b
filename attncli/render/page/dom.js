/**
 * An element with attributes, listeners (on…) and children. Text is only ever text.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} name @param {Record<string, any>} [given] @param {...(Node|string|null)} inside
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(name, given = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, String(value));
  }
  made.append(...inside.filter((child) => child !== null));
  return made;
}

/** The element with this id. @param {string} id @returns {HTMLElement} */
export const at = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** A canvas of a size in CSS pixels, sharp on its screen. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** A colour of the theme by the name of its property. @param {string} name */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The text shortened to fit. @param {CanvasRenderingContext2D} pen @param {string} text @param {number} width */
export function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length && pen.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

/** A bar behind a number. @param {number} share from 0 to 1 @param {string} [kind] */
export function bar(share, kind = "") {
  const inner = make("i");
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("span", { class: `bar ${kind}`, "aria-hidden": "true" }, inner);
}
