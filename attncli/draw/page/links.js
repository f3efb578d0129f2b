import { button, colour, fill, frameOf, make, set, sized, write } from "./dom.js";
import { ceil, floor, largest, max, min } from "./numbers.js";
import { most, place } from "./shades.js";
import { keys, leave, open, peek, pick, pin, pinned, queries, run, shortName, shown, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { full, headName, say } from "./words.js";

/** Pixels from one word to the next. */
const PITCH = 24;
/** Shares below this are not drawn: they would only grey the page. */
const FAINT = 0.03;
const linkCanvas = make("canvas.links", { tabindex: 0, role: "img" });
const room = make("div");
const linkBox = make("div.scroll", { onscroll: paintLinks }, linkCanvas, room);
linkBox.classList.add("tall");
const pinBar = make("p.pins");
/** @type {import("./types.js").Weights|null} */
let linkWeights = null;
/** The pinned heads: each with its name, colour, dashes and weights. @type {{name: string, ink: string, dash: number[], of: import("./types.js").Weights}[]} */
let pins = [];
/** What tells lines from each other beside their colours and names. */
const DASHES = [[], [9, 4], [2, 4], [9, 4, 2, 4]];

/** The words that look on the left, those that are looked at on the right. @param {import("./types.js").Weights} found */
export async function showLinks(found) {
  if (!linkBox.isConnected) fill("view", pinBar, linkBox);
  const inks = colour("pins").split(" ");
  const places = pinned();
  const { heads } = run();
  pinBar.replaceChildren(button(() => pin(state.head), { class: "link" }, say(places.includes(state.head) ? "pins.free" : "pins.pin", { head: headName(heads[state.head]) })),
    ...places.map((place, at) => {
      const one = button(() => pin(place), `${shortName(heads[place])} ✕`);
      one.style.color = inks[at];
      return one;
    }));
  linkWeights = found;
  pins = (await Promise.all(places.map(async (place, at) => ({ name: shortName(heads[place]), ink: inks[at], dash: DASHES[at], of: await weightsOf(state.run, place) }))))
    .flatMap((one) => (one.of ? [/** @type {any} */ (one)] : []));
  if (linkWeights !== found) return;
  room.style.height = `${max(max(found.n, found.m) * PITCH + 16 - linkBox.clientHeight, 0)}px`;
  const here = state.query * PITCH;
  if (here < linkBox.scrollTop || here > linkBox.scrollTop + linkBox.clientHeight - PITCH) linkBox.scrollTop = here - linkBox.clientHeight / 2;
  paintLinks();
}

function paintLinks() {
  if (!linkWeights) return;
  const [asking, words] = [queries(), keys()];
  const width = min(linkBox.clientWidth, 760);
  const height = min(max(asking.length, words.length) * PITCH + 16, linkBox.clientHeight || 480);
  const pen = sized(linkCanvas, width, height);
  const from = floor(linkBox.scrollTop / PITCH);
  const to = from + ceil(height / PITCH) + 1;
  const y = (/** @type {number} */ index) => (index + 0.5) * PITCH + 8 - linkBox.scrollTop;
  const [left, right] = [width * 0.34, width * 0.66];
  pen.lineCap = "round";
  pen.strokeStyle = colour(state.out ? "looks" : "looked");
  const line = (/** @type {number} */ i, /** @type {number} */ j, /** @type {number} */ alpha, /** @type {number} */ thick, shift = 0) => {
    pen.globalAlpha = alpha;
    pen.lineWidth = thick;
    pen.beginPath();
    pen.moveTo(left, y(i) + shift);
    pen.bezierCurveTo(left + width * 0.13, y(i) + shift, right - width * 0.13, y(j) + shift, right, y(j) + shift);
    pen.stroke();
  };
  for (let i = from; i < min(to, asking.length, pins.length || words.length > 1024 ? 0 : to); i++)
    linkWeights.row(i).forEach((weight, j) => {
      if (weight > FAINT * 2 && i !== state.query) line(i, j, 0.16 * weight, 1 + 3 * weight);
    });
  const chosen = shown(linkWeights);
  const out = state.out ? open() : new Set();
  const scaled = (/** @type {Float32Array} */ row) => {
    const top = most(row, row.length, out);
    return row.map((weight, other) => (out.has(other) ? 0 : place(weight, state.scale, top)));
  };
  const shares = scaled(chosen);
  const alone = !pins.length;
  const draw = (/** @type {Float32Array} */ shares, shift = 0) =>
    shares.forEach((share, other) => share > FAINT && line(state.out ? state.query : other, state.out ? other : state.key, 0.25 + 0.75 * share, alone ? 1 + 7 * share : 1 + 3 * share, shift));
  if (alone || !pins.some(({ of }) => of === linkWeights)) draw(shares);
  const middle = (pins.length - 1) / 2;
  const strongest = pins.map(({ ink, dash, of }, at) => {
    const row = shown(of);
    const seen = scaled(row);
    const own = new Float32Array(row.length);
    // forty lines of a pinned head at most
    for (const other of largest(seen, 40)) own[other] = seen[other];
    pen.strokeStyle = ink;
    pen.setLineDash(dash);
    draw(own, 4 * (at - middle));
    own.forEach((share, other) => (shares[other] = max(shares[other], share)));
    return largest(own, 1)[0];
  });
  pen.setLineDash([]);
  pen.globalAlpha = 1;
  pen.font = `600 12px ${colour("sans")}`;
  pen.textAlign = "center";
  // each head's name stands on its strongest line, at another place along the way
  pins.forEach(({ name, ink }, at) => {
    const [from, to] = state.out ? [state.query, strongest[at]] : [strongest[at], state.key];
    const t = 0.3 + 0.15 * at;
    const room = pen.measureText(name).width + 6;
    const x = left + (right - left) * t * (1.22 * (1 - t) ** 2 + 1.78 * t * (1 - t) + t * t);
    const level = y(from) + (y(to) - y(from)) * t * t * (3 - 2 * t) + 4 * (at - middle);
    pen.fillStyle = colour("paper");
    pen.fillRect(x - room / 2, level - 8, room, 16);
    pen.fillStyle = ink;
    pen.fillText(name, x, level);
  });
  for (const [list, asks] of /** @type {[import("./types.js").Word[], boolean][]} */ ([[asking, true], [words, false]]))
    for (let index = from; index < min(to, list.length); index++) {
      const own = asks === state.out;
      const share = own ? Number(index === (asks ? state.query : state.key)) : shares[index];
      pen.font = `${share > 0.2 ? 600 : 400} 14px ${colour("serif")}`;
      write(pen, full(list[index]), asks ? left - 10 : right + 10, y(index), width * 0.3, asks ? "right" : "left", share > FAINT ? "ink" : "quiet");
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
      write(pen, `${above ? "↑" : "↓"} ${full(list[gone[0]])}${gone.length > 1 ? ` +${gone.length - 1}` : ""}`, asks ? left - 10 : right + 10, at, width * 0.3, asks ? "right" : "left", "accent");
    }
  }
  set(linkCanvas, { "aria-label": [say("links.says"), ...pins.map(({ name }) => name)].join("; ") });
}

/** Choose the word under the pointer. @param {MouseEvent} event @param {(next: Partial<typeof state>) => void} act */
function pointWord(event, act) {
  const { left, top, width } = frameOf(linkCanvas);
  const index = floor((event.clientY - top + linkBox.scrollTop - 8) / PITCH);
  const out = event.clientX - left < width / 2;
  if (index >= 0 && index < (out ? queries() : keys()).length) act(out ? { out, query: index } : { out, key: index });
}
set(linkCanvas, {
  onpointermove: (/** @type {PointerEvent} */ event) => event.pointerType === "mouse" && pointWord(event, peek),
  onpointerleave: leave,
  onclick: (/** @type {PointerEvent} */ event) => pointWord(event, pick),
});
