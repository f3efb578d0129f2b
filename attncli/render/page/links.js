import { at, colour, fitted, make, sized } from "./dom.js";
import { most, place } from "./shades.js";
import { choose, keys, run, state } from "./state.js";
import { say } from "./words.js";

const PITCH = 24;
/** Weights below this are not drawn: they would only grey the page. */
const FAINT = 0.03;
const canvas = make("canvas", { class: "links", tabindex: 0, role: "img" });
const room = make("div", { class: "room" });
const box = make("div", { class: "scroll tall" }, canvas, room);
/** @type {import("./types.js").Weights|null} */
let weights = null;

/** The words that look on the left, those that are looked at on the right. @param {import("./types.js").Weights|null} found */
export function showLinks(found) {
  if (!box.isConnected) at("view").replaceChildren(box);
  weights = found;
  const count = Math.max(run().q.length, keys().length);
  room.style.height = `${Math.max(count * PITCH + 16 - box.clientHeight, 0)}px`;
  const here = state.query * PITCH;
  if (here < box.scrollTop || here > box.scrollTop + box.clientHeight - PITCH) box.scrollTop = here - box.clientHeight / 2;
  paintLinks();
}

function paintLinks() {
  const [asking, words] = [run().q, keys()];
  const width = Math.min(box.clientWidth || 640, 760);
  const count = Math.max(asking.length, words.length);
  const height = Math.min(count * PITCH + 16, box.clientHeight || 480);
  const pen = sized(canvas, width, height);
  const from = Math.floor(box.scrollTop / PITCH);
  const y = (/** @type {number} */ index) => index * PITCH - box.scrollTop + PITCH / 2 + 8;
  const [left, right] = [width * 0.34, width * 0.66];
  pen.lineCap = "round";
  const line = (/** @type {number} */ i, /** @type {number} */ j, /** @type {number} */ share, /** @type {boolean} */ chosen) => {
    pen.strokeStyle = colour(state.out ? "looks" : "looked");
    pen.globalAlpha = chosen ? 0.25 + 0.75 * share : 0.16 * share;
    pen.lineWidth = chosen ? 1 + 7 * share : 1 + 3 * share;
    pen.beginPath();
    pen.moveTo(left, y(i));
    pen.bezierCurveTo(left + width * 0.13, y(i), right - width * 0.13, y(j), right, y(j));
    pen.stroke();
  };
  const seen = Math.ceil(height / PITCH) + 1;
  if (weights?.all && asking.length <= 512)
    for (let i = from; i < Math.min(from + seen, asking.length); i++) {
      const row = weights.row(i);
      for (let j = 0; j < row.length; j++) if (row[j] > FAINT * 2 && i !== state.query) line(i, j, row[j], false);
    }
  const chosen = weights ? (state.out ? weights.row(state.query) : weights.column(state.key)) : new Float32Array(0);
  const high = most(chosen, chosen.length, state.scale === "rest" && state.out);
  chosen.forEach((weight, other) => {
    if (weight > FAINT / 10 && !(state.scale === "rest" && state.out && other === 0)) {
      const share = place(weight, state.scale, high);
      if (share > FAINT) line(state.out ? state.query : other, state.out ? other : state.key, share, true);
    }
  });
  pen.globalAlpha = 1;
  pen.textBaseline = "middle";
  const write = (/** @type {import("./types.js").Word[]} */ list, /** @type {boolean} */ ask) => {
    pen.textAlign = ask ? "right" : "left";
    for (let index = from; index < Math.min(from + seen, list.length); index++) {
      const own = ask === state.out ? index === (ask ? state.query : state.key) : false;
      const weight = ask === state.out ? 0 : chosen[index] ?? 0;
      pen.font = `${own || weight > 0.2 ? "600 " : ""}14px ${colour("serif")}`;
      pen.fillStyle = own || weight > FAINT ? colour("ink") : colour("quiet");
      pen.fillText(fitted(pen, list[index][0], width * 0.3), ask ? left - 10 : right + 10, y(index));
    }
  };
  write(asking, true);
  write(words, false);
  canvas.setAttribute("aria-label", say("links.says"));
}

box.addEventListener("scroll", paintLinks);
/** @param {MouseEvent} event */
function pick(event) {
  const rect = canvas.getBoundingClientRect();
  const index = Math.floor((event.clientY - rect.top + box.scrollTop - 8) / PITCH);
  if (index < 0) return;
  const asks = event.clientX - rect.left < rect.width / 2;
  if (asks && index < run().q.length) choose({ out: true, query: index });
  else if (!asks && index < keys().length) choose({ out: false, key: index });
}
canvas.addEventListener("pointermove", pick);
