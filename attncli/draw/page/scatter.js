import { at, make, set } from "./dom.js";
import { abs, clamp, max, min, round } from "./numbers.js";

const WIDTH = 640, HEIGHT = 430, LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 40;
/** How near a pointer must come to a point, in units of the picture. */
const NEAR = 16;
/** How many shades a quantity has. */
export const SHADES = 6;

/** The name of pictures' elements, which the page's own empty picture has. */
const SPACE = at("scatter").querySelector("svg")?.namespaceURI ?? null;

/** An element of a picture. @param {string} name @param {Record<string, any>} given @param {...any} inside */
function svg(name, given, ...inside) {
  const made = set(document.createElementNS(SPACE, name), given);
  made.append(...inside);
  return made;
}

/** About five round numbers from `low` to `high`. @param {number} low @param {number} high */
export function ticks(low, high) {
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((one) => one * power >= rough) ?? 10);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

/** From the smallest to the largest number, with room beside; those that are null are none. @param {(number|null)[]} values */
export function reach(values) {
  const there = /** @type {number[]} */ (values.filter((value) => value !== null));
  if (!there.length) return [0, 1];
  const low = there.reduce((a, b) => min(a, b)), high = there.reduce((a, b) => max(a, b));
  const room = (high - low || abs(high) || 1) * 0.04;
  return [low - room, high + room];
}

/** Whether a place lies inside a line that is closed. @param {number} x @param {number} y @param {[number, number][]} line */
function inside(x, y, line) {
  let within = false;
  line.forEach(([ax, ay], place) => {
    const [bx, by] = line[(place || line.length) - 1];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) within = !within;
  });
  return within;
}

/** The points that are drawn: [x, y, head], in units of the picture. @type {[number, number, number][]} */
let points = [];

/**
 * A point for every head that has both numbers.
 * @param {{x: (number|null)[], y: (number|null)[], names: [string, string], kind: string[], size: number[],
 *   chosen: number, selected: Set<number>, tick: (value: number) => string}} told
 *   kind: the class of each point's colour; size: from 0 to 1; names: of the axes
 */
export function scatter({ x, y, names, kind, size, chosen, selected, tick }) {
  const [left, right] = reach(x), [low, high] = reach(y);
  const across = (/** @type {number} */ value) => LEFT + ((value - left) / (right - left)) * (WIDTH - LEFT - RIGHT);
  const up = (/** @type {number} */ value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const axes = svg("g", { class: "axes" });
  for (const value of ticks(left, right)) {
    const place = across(value);
    axes.append(svg("line", { x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM }), svg("text", { x: place, y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, tick(value)));
  }
  for (const value of ticks(low, high)) {
    const place = up(value);
    axes.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: place, y2: place }), svg("text", { x: LEFT - 6, y: place + 4, "text-anchor": "end" }, tick(value)));
  }
  axes.append(svg("text", { class: "axis", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, names[0]));
  axes.append(svg("text", { class: "axis", transform: `translate(13 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }, names[1]));
  points = [];
  const dots = svg("g", {});
  const order = [...x.keys()].sort((a, b) => size[b] - size[a]); // small ones are drawn over large ones
  for (const head of order) {
    const [a, b] = [x[head], y[head]];
    if (a === null || b === null) continue;
    const place = /** @type {[number, number, number]} */ ([round(across(a) * 10) / 10, round(up(b) * 10) / 10, head]);
    points.push(place);
    const state = selected.size ? (selected.has(head) ? " selected" : " faint") : "";
    dots.append(svg("circle", { class: `dot ${kind[head]}${state}`, cx: place[0], cy: place[1], r: round((3 + 7 * Math.sqrt(size[head])) * 10) / 10, "data-head": head }));
  }
  const ring = points.find((point) => point[2] === chosen);
  if (ring) dots.append(svg("circle", { class: "ring", cx: ring[0], cy: ring[1], r: 11 }));
  at("scatter").replaceChildren(svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" }, axes, dots, svg("path", { class: "lasso", d: "" })), make("div.tip", { hidden: true }));
  return points.length;
}

/** Where a pointer is, in units of the picture. @param {PointerEvent|MouseEvent} event */
function where(event) {
  const box = /** @type {Element} */ (at("scatter").querySelector("svg")).getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * WIDTH, ((event.clientY - box.top) / box.height) * HEIGHT];
}

/** The head nearest to a place, where one is near. @param {number} x @param {number} y */
function nearest(x, y) {
  let found = -1, least = NEAR * NEAR;
  for (const [a, b, head] of points) {
    const far = (a - x) ** 2 + (b - y) ** 2;
    if (far < least) [found, least] = [head, far];
  }
  return found;
}

/** The nearest head in a direction: what is aside counts double. @param {number} head @param {number} right @param {number} down */
export function beside(head, right, down) {
  const here = points.find((point) => point[2] === head);
  if (!here) return points.length ? points[0][2] : head;
  let found = head, least = Infinity;
  for (const [x, y, one] of points) {
    const [across, along] = [x - here[0], y - here[1]];
    const ahead = across * right + along * down, aside = abs(across * down) + abs(along * right);
    const far = ahead + 2 * aside;
    if (one !== head && ahead > 0 && far < least) [found, least] = [one, far];
  }
  return found;
}

/**
 * What a pointer does: near a head it tells of it, a press chooses it, and a line drawn around some selects them.
 * @param {{tell: (head: number) => string, choose: (head: number) => void, select: (heads: number[], more: boolean) => void}} acts
 */
export function pointing({ tell, choose, select }) {
  const box = at("scatter");
  /** @type {[number, number][]|null} */
  let line = null;
  box.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    line = [/** @type {[number, number]} */ (where(event))];
    try {
      box.setPointerCapture(event.pointerId);
    } catch {
      // a pointer that is no more
    }
  });
  box.addEventListener("pointermove", (event) => {
    const [x, y] = where(event);
    const tip = /** @type {HTMLElement|null} */ (box.querySelector(".tip"));
    if (!tip) return;
    if (line) {
      line.push([x, y]);
      box.querySelector(".lasso")?.setAttribute("d", `M${line.map((place) => place.map(round).join(" ")).join("L")}Z`);
      tip.hidden = true;
      return;
    }
    const head = nearest(x, y);
    tip.hidden = head < 0;
    if (head < 0) return;
    tip.textContent = tell(head);
    const frame = box.getBoundingClientRect();
    tip.style.left = `${clamp(event.clientX - frame.left + 12, frame.width - 190)}px`;
    tip.style.top = `${event.clientY - frame.top + 14}px`;
  });
  box.addEventListener("pointerleave", () => {
    const tip = /** @type {HTMLElement|null} */ (box.querySelector(".tip"));
    if (tip) tip.hidden = true;
  });
  box.addEventListener("pointerup", (event) => {
    const drawn = line ?? [];
    line = null;
    const far = drawn.reduce((most, [x, y]) => max(most, abs(x - drawn[0][0]) + abs(y - drawn[0][1])), 0);
    if (far > 8) {
      select(points.filter(([x, y]) => inside(x, y, drawn)).map((point) => point[2]), event.shiftKey);
      return;
    }
    const [x, y] = where(event);
    const head = nearest(x, y);
    if (head >= 0) choose(head);
    else select([], false);
  });
}
