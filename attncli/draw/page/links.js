import { colour, fill, make, set, sized, write } from "./dom.js";
import { ceil, floor, largest, max, min } from "./numbers.js";
import { most, place } from "./shades.js";
import { keys, leave, peek, pick, queries, shown, state } from "./state.js";
import { say } from "./words.js";

/** Pixels from one word to the next. */
const PITCH = 24;
/** Shares below this are not drawn: they would only grey the page. */
const FAINT = 0.03;
const canvas = make("canvas.links", { tabindex: 0, role: "img" });
const room = make("div");
const box = make("div.scroll", { onscroll: paint }, canvas, room);
box.classList.add("tall");
/** @type {import("./types.js").Weights|null} */
let weights = null;

/** The words that look on the left, those that are looked at on the right. @param {import("./types.js").Weights} found */
export function showLinks(found) {
  if (!box.isConnected) fill("view", box);
  weights = found;
  room.style.height = `${max(max(found.n, found.m) * PITCH + 16 - box.clientHeight, 0)}px`;
  const here = state.query * PITCH;
  if (here < box.scrollTop || here > box.scrollTop + box.clientHeight - PITCH) box.scrollTop = here - box.clientHeight / 2;
  paint();
}

function paint() {
  if (!weights) return;
  const [asking, words] = [queries(), keys()];
  const width = min(box.clientWidth, 760);
  const height = min(max(asking.length, words.length) * PITCH + 16, box.clientHeight || 480);
  const pen = sized(canvas, width, height);
  const from = floor(box.scrollTop / PITCH);
  const to = from + ceil(height / PITCH) + 1;
  const y = (/** @type {number} */ index) => (index + 0.5) * PITCH + 8 - box.scrollTop;
  const [left, right] = [width * 0.34, width * 0.66];
  pen.lineCap = "round";
  pen.strokeStyle = colour(state.out ? "looks" : "looked");
  const line = (/** @type {number} */ i, /** @type {number} */ j, /** @type {number} */ alpha, /** @type {number} */ thick) => {
    pen.globalAlpha = alpha;
    pen.lineWidth = thick;
    pen.beginPath();
    pen.moveTo(left, y(i));
    pen.bezierCurveTo(left + width * 0.13, y(i), right - width * 0.13, y(j), right, y(j));
    pen.stroke();
  };
  for (let i = from; i < min(to, asking.length, words.length > 1024 ? 0 : to); i++)
    weights.row(i).forEach((weight, j) => {
      if (weight > FAINT * 2 && i !== state.query) line(i, j, 0.16 * weight, 1 + 3 * weight);
    });
  const chosen = shown(weights);
  const rest = state.scale === "rest" && state.out;
  const high = most(chosen, chosen.length, rest);
  const shares = chosen.map((weight, other) => (rest && other === 0 ? 0 : place(weight, state.scale, high)));
  shares.forEach((share, other) => {
    if (share > FAINT) line(state.out ? state.query : other, state.out ? other : state.key, 0.25 + 0.75 * share, 1 + 7 * share);
  });
  pen.globalAlpha = 1;
  for (const [list, asks] of /** @type {[import("./types.js").Word[], boolean][]} */ ([[asking, true], [words, false]]))
    for (let index = from; index < min(to, list.length); index++) {
      const own = asks === state.out;
      const share = own ? Number(index === (asks ? state.query : state.key)) : shares[index];
      pen.font = `${share > 0.2 ? 600 : 400} 14px ${colour("serif")}`;
      write(pen, list[index][0], asks ? left - 10 : right + 10, y(index), width * 0.3, asks ? "right" : "left", share > FAINT ? "ink" : "quiet");
    }
  // what is linked above or below what is in sight stands at its edge
  for (const [list, asks] of /** @type {[import("./types.js").Word[], boolean][]} */ ([[asking, true], [words, false]])) {
    const own = asks === state.out;
    const chosen_ = asks ? state.query : state.key;
    const linked = own ? [chosen_] : largest(shares, 12).filter((index) => shares[index] > FAINT);
    for (const above of [true, false]) {
      const gone = linked.filter((index) => index < list.length && (above ? y(index) < 4 : y(index) > height - 4));
      if (!gone.length) continue;
      const at = above ? 9 : height - 9;
      pen.font = `600 13px ${colour("sans")}`;
      pen.fillStyle = colour("paper");
      pen.fillRect(asks ? 0 : right, at - 9, width * 0.34, 18);
      write(pen, `${above ? "↑" : "↓"} ${list[gone[0]][0]}${gone.length > 1 ? ` +${gone.length - 1}` : ""}`, asks ? left - 10 : right + 10, at, width * 0.3, asks ? "right" : "left", "accent");
    }
  }
  set(canvas, { "aria-label": say("links.says") });
}

/** Choose the word under the pointer. @param {MouseEvent} event @param {(next: Partial<typeof state>) => void} act */
function point(event, act) {
  const { left, top, width } = canvas.getBoundingClientRect();
  const index = floor((event.clientY - top + box.scrollTop - 8) / PITCH);
  const out = event.clientX - left < width / 2;
  if (index >= 0 && index < (out ? queries() : keys()).length) act(out ? { out, query: index } : { out, key: index });
}
set(canvas, {
  onpointermove: (/** @type {PointerEvent} */ event) => event.pointerType === "mouse" && point(event, peek),
  onpointerleave: leave,
  onclick: (/** @type {PointerEvent} */ event) => point(event, pick),
});
