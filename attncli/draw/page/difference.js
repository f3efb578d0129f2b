import { drawn, framed, prepared } from "./axes.js";
import { meta } from "./data.js";
import { at, fill, lead, make, ranking } from "./dom.js";
import { lay } from "./grid.js";
import { abs, floor, largest, max, min } from "./numbers.js";
import { farthest, legend, picture, signedPicture } from "./shades.js";
import { choose, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { linkName, say, signed, told } from "./words.js";

/** Two runs of one head on the words that both have: A, B and B − A, NaN where neither is seen. @param {number} place */
async function sides(place) {
  const [left, right] = await Promise.all([weightsOf(0, place), weightsOf(1, place)]);
  if (!left || !right || !meta.pairs) return null;
  const [a, b] = meta.pairs;
  const maps = [0, 1, 2].map(() => new Float32Array(a.length ** 2));
  a.forEach((first, i) => {
    const [one, two] = [left.row(first), right.row(b[i])];
    a.forEach((second, j) => {
      const [x, y] = [one[second], two[b[j]]];
      const at = i * a.length + j;
      maps[0][at] = x;
      maps[1][at] = y;
      maps[2][at] = x < 0 && y < 0 ? NaN : max(y, 0) - max(x, 0);
    });
  });
  return maps;
}

/** How far each weight moved, 0 where a pair is no link to list: what takes the weight that no word gets is drawn alone. @param {Float32Array} moved @param {number} count */
function listed(moved, count) {
  const [rows, columns, beside, places] = meta.out || [[], [], [], []];
  const left = (/** @type {number} */ i, /** @type {number} */ j) => rows[i] || columns[j] || places.some((place) => beside.includes(place[j] - place[i]));
  return moved.map((value, cell) => (left(floor(cell / count), cell % count) ? 0 : abs(value) || 0));
}

/** The signed difference of the two runs, the two beside it, and what moved most. */
export async function showDifference() {
  const place = state.head;
  const maps = await sides(place);
  if (state.view !== "difference" || place !== state.head) return;
  if (!maps || !meta.pairs) return fill("view", lead(say("difference.none")));
  const [a, b] = meta.pairs;
  const count = a.length;
  const words = a.map((index) => meta.runs[0].q[index]);
  const moved = maps[2];
  const high = farthest(moved);
  const [first, second] = meta.runs.map(({ name }) => name);
  const names = [`${second} − ${first}`, first, second];
  const whole = min(at("view").clientWidth, 900);
  const images = [signedPicture(moved, count, count, high), ...[0, 1].map((which) => picture(maps[which], count, count, state.scale, farthest(maps[which])))];
  const figures = images.map((image, which) => {
    const canvas = make("canvas", { role: "img", "aria-label": names[which] });
    const seen = { x: 0, y: 0, wide: count, tall: count };
    const width = whole * (which ? 0.3 : 0.66);
    const frame = which ? { left: 0, top: 0, cell: width / count, turn: 0, ...seen } : framed(words, words, width, seen);
    drawn(prepared(canvas, frame, which ? [] : words, which ? [] : words, width), frame, image, 0, 0, count, count);
    return make("figure", make("figcaption", names[which]), canvas);
  });
  const sizes = listed(moved, count);
  const cells = largest(sizes, 12).filter((cell) => sizes[cell] > 1e-6);
  fill("view",
    make("div.sides", figures[0], make("div", figures[1], figures[2])),
    legend(signed(-high, 2), `+${high.toFixed(2)}`, true),
    ranking(cells.map((cell) => {
      const [i, j, value] = [floor(cell / count), cell % count, moved[cell]];
      const here = state.run ? b : a;
      return {
        name: linkName(words[i], words[j]), share: abs(value) / high, kind: value < 0 ? "in" : "", number: (value > 0 ? "+" : "") + signed(value),
        rank: `${told(maps[0][cell])} → ${told(maps[1][cell])}`, act: () => choose({ query: here[i], key: here[j] }),
      };
    })));
}

/** Lay over every tile how much its head moved most. */
export async function layDifference() {
  /** @type {number[]} */
  const values = [];
  for (const place of meta.runs[0].heads.keys()) {
    const maps = await sides(place);
    values.push(maps && meta.pairs ? farthest(listed(maps[2], meta.pairs[0].length)) : 0);
    await new Promise((done) => setTimeout(done));
    if (state.view !== "difference") return;
  }
  lay(values);
}
