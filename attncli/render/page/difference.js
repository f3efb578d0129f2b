import { meta } from "./data.js";
import { at, bar, colour, fitted, make, sized } from "./dom.js";
import { lay } from "./grid.js";
import { picture, signedPicture } from "./shades.js";
import { choose, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { say, signed, told } from "./words.js";

/** Two runs of one head on the words that both have: A, B and B − A, NaN where neither is seen. @param {number} place */
async function sides(place) {
  const [left, right] = await Promise.all([weightsOf(0, place), weightsOf(1, place)]);
  if (!left || !right || !meta.pairs) return null;
  const [a, b] = meta.pairs;
  const count = a.length;
  const found = [0, 1, 2].map(() => new Float32Array(count * count));
  for (let i = 0; i < count; i++) {
    const [one, two] = [left.row(a[i]), right.row(b[i])];
    for (let j = 0; j < count; j++) {
      const [x, y] = [one[a[j]], two[b[j]]];
      found[0][i * count + j] = x;
      found[1][i * count + j] = y;
      found[2][i * count + j] = x < 0 && y < 0 ? NaN : Math.max(y, 0) - Math.max(x, 0);
    }
  }
  return { count, found };
}

/** The signed difference of the two runs, side by side, and what moved most. */
export async function showDifference() {
  const place = state.head;
  const made = await sides(place);
  if (state.view !== "difference" || place !== state.head) return;
  if (!made || !meta.pairs) return at("view").replaceChildren(make("p", { class: "empty" }, say("difference.none")));
  const { count, found } = made;
  const words = meta.pairs[0].map((index) => meta.runs[0].q[index]);
  let high = 0;
  found[2].forEach((value) => (high = Math.max(high, Math.abs(value) || 0)));
  const maps = [picture(found[0], count, count, state.scale, high), picture(found[1], count, count, state.scale, high), signedPicture(found[2], count, count, high)];
  const names = [meta.runs[0].name, meta.runs[1].name, say("difference.minus")];
  const width = Math.max(200, Math.min(340, (at("view").clientWidth - 40) / 3));
  const figures = maps.map((map, which) => {
    const canvas = make("canvas", { role: "img", "aria-label": names[which] });
    axed(canvas, map, width, words);
    return make("figure", {}, make("figcaption", {}, names[which]), canvas);
  });
  const moved = [...found[2].keys()].filter((cell) => Math.abs(found[2][cell]) > 1e-6)
    .sort((x, y) => Math.abs(found[2][y]) - Math.abs(found[2][x])).slice(0, 12);
  at("view").replaceChildren(
    make("div", { class: "three" }, ...figures),
    make("p", { class: "legend" }, signed(-high, 2), strip(), `+${high.toFixed(2)}`),
    make("ol", { class: "found" }, ...moved.map((cell) => {
      const [i, j, value] = [Math.floor(cell / count), cell % count, found[2][cell]];
      const pairs = /** @type {[number[], number[]]} */ (meta.pairs);
      return make("li", {}, make("button", { type: "button", onclick: () => choose({ query: pairs[state.run][i], key: pairs[state.run][j] }) },
        make("span", { class: "where" }, `${words[i][0]} → ${words[j][0]}`), bar(Math.abs(value) / high, value < 0 ? "less" : "more"),
        make("span", { class: "number" }, (value > 0 ? "+" : "") + signed(value)), make("span", { class: "rank" }, `${told(found[0][cell])} → ${told(found[1][cell])}`)));
    })),
  );
}

/** A square map with its words, where there is room for them. @param {HTMLCanvasElement} canvas @param {HTMLCanvasElement} map
 * @param {number} width @param {import("./types.js").Word[]} words */
export function axed(canvas, map, width, words) {
  const named = words.length <= 40;
  const [left, top] = named ? [62, 50] : [0, 0];
  const size = width - left;
  const pen = sized(canvas, width, size + top);
  pen.imageSmoothingEnabled = false;
  pen.fillStyle = colour("hidden");
  pen.fillRect(left, top, size, size);
  pen.drawImage(map, left, top, size, size);
  pen.font = `11px ${colour("sans")}`;
  pen.fillStyle = colour("quiet");
  pen.textBaseline = "middle";
  const cell = size / words.length;
  if (!named || cell < 10) return;
  words.forEach(([text], at) => {
    pen.textAlign = "right";
    pen.fillText(fitted(pen, text, left - 8), left - 5, top + (at + 0.5) * cell);
    pen.save();
    pen.translate(left + (at + 0.5) * cell, top - 5);
    pen.rotate(-Math.PI / 3);
    pen.textAlign = "left";
    pen.fillText(fitted(pen, text, 52), 0, 0);
    pen.restore();
  });
}

function strip() {
  const values = Float32Array.from({ length: 256 }, (_, at) => at / 127.5 - 1);
  return signedPicture(values, 1, 256, 1);
}

/** Lay over every tile how much its head moved most. */
export async function layDifference() {
  /** @type {(number|null)[]} */
  const values = [];
  for (let place = 0; place < meta.runs[0].heads.length; place++) {
    const made = await sides(place);
    let high = 0;
    made?.found[2].forEach((value) => (high = Math.max(high, Math.abs(value) || 0)));
    values.push(made ? high : null);
    if (state.view !== "difference") return;
  }
  lay(values);
  const most = values.indexOf(Math.max(...values.map((value) => value ?? 0)));
  if (meta.start.view === "difference" && !begun) choose({ head: most });
  begun = true;
}

/** Whether the head that moved most was chosen once; from then on the reader chooses. */
let begun = Boolean(location.hash);
