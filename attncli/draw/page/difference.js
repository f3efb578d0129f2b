import { meta } from "./data.js";
import { at, fill, frameOf, lead, make, note, pause, ranking, set, stepwise } from "./dom.js";
import { lay } from "./grid.js";
import { cellOf, show } from "./matrix.js";
import { abs, clamp, floor, largest, max } from "./numbers.js";
import { farthest, picture } from "./shades.js";
import { choose, leave, peek, pick, state } from "./state.js";
import { pooled, weightsOf } from "./weights.js";
import { linkName, runName, say, signed, told } from "./words.js";

/** Two runs of one head on the words that both have: A, B and B − A, NaN where neither is seen; and how far each weight moved,
 * 0 where a pair is no link to list: what takes the weight that no word gets is drawn alone. @param {number} place */
async function sides(place) {
  const breathe = stepwise();
  const both = await Promise.all([0, 1].map((run) => weightsOf(run, place)));
  const maps = await Promise.all(both.map((one) => one?.tile([0, one.n, 0, one.m, 1])));
  if (!maps[0] || !maps[1] || !meta.pairs) return null;
  const [a, b] = meta.pairs;
  const [rows, columns, beside, places] = meta.out || [[], [], [], []];
  const [one, two, moved, sizes] = [0, 1, 2, 3].map(() => new Float32Array(a.length ** 2));
  const wide = both.map((side) => side?.m ?? 0);
  for (let i = 0, at = 0; i < a.length; i++) {
    await breathe();
    for (let j = 0; j < a.length; j++, at++) {
      one[at] = maps[0][a[i] * wide[0] + a[j]];
      two[at] = maps[1][b[i] * wide[1] + b[j]];
      moved[at] = one[at] < 0 && two[at] < 0 ? NaN : max(two[at], 0) - max(one[at], 0);
      if (!rows[i] && !columns[j] && !places.some((place) => beside.includes(place[j] - place[i]))) sizes[at] = abs(moved[at]) || 0;
    }
  }
  return [one, two, moved, sizes];
}

/** What is shown: the two runs and how far they differ. @type {Float32Array[]} */
let maps = [];
const besideBox = make("div.beside");
const said = make("p.pair");

/** The signed difference of the two runs, the two beside it, and what moved most. */
export async function showDifference() {
  const place = state.head;
  const breathe = stepwise();
  const made = await sides(place);
  await breathe();
  if (state.view !== "difference" || place !== state.head) return;
  if (!made || !meta.pairs) return fill("view", lead(say("difference.none")));
  maps = made;
  const [, , moved, sizes] = made;
  const places = meta.pairs[state.run];
  const asking = meta.runs[state.run].q;
  const words = places.map((index) => asking[index]);
  const count = words.length;
  const names = [0, 1].map(runName);
  await show({
    n: count, m: count, source: { parts: null, all: moved, m: count }, of: { name: "B − A", words, places },
    row: (i) => moved.subarray(i * count, (i + 1) * count), column: (j) => Float32Array.from(words, (_, i) => moved[i * count + j]), tile: (tile) => pooled(moved, count, tile, NaN, abs),
  });
  const high = farthest(moved);
  const figures = [];
  for (const which of [0, 1]) {
    await breathe();
    const map = set(picture(made[which], count, count, state.scale, farthest(made[which])), { role: "img", "aria-label": names[which] });
    const here = (/** @type {MouseEvent} */ event) => {
      const { left, top, width } = frameOf(map);
      const [query, key] = [event.clientY - top, event.clientX - left].map((at) => places[clamp(floor((at / width) * count), count - 1)]);
      return { query, key };
    };
    set(map, { onpointermove: (/** @type {PointerEvent} */ event) => event.pointerType === "mouse" && peek(here(event)), onpointerleave: leave, onclick: (/** @type {MouseEvent} */ event) => pick(here(event)) });
    figures.push(make("figure", make("figcaption", names[which]), make("div.plot", map, make("i.cell"))));
  }
  await breathe();
  const cells = largest(sizes, 12).filter((cell) => sizes[cell] > 1e-6);
  const apart = meta.columns.some((both) => both.some((entry, side) => typeof entry !== "number" || !meta.pairs?.[side].includes(entry)));
  if (state.view !== "difference" || made !== maps) return;
  besideBox.replaceChildren(said, make("div.sides", ...figures), apart ? note(say("difference.alone")) : "",
    ranking(cells.map((cell) => {
      const [i, j, value] = [floor(cell / count), cell % count, moved[cell]];
      return {
        name: linkName(places[i], asking, places[j], asking), share: abs(value) / high, kind: value < 0 ? "in" : "", number: (value > 0 ? "+" : "") + signed(value),
        rank: `${told(maps[0][cell])} → ${told(maps[1][cell])}`, act: () => choose({ query: places[i], key: places[j] }),
      };
    })));
  at("view").prepend(said);
  at("view").append(besideBox);
  followDifference();
}

/** Mark the chosen pair in the two runs, and tell its weights and what lies between them. */
export function followDifference() {
  const [i, j] = cellOf();
  const count = meta.pairs?.[0].length ?? 1;
  const words = meta.runs[state.run].q;
  const cell = i * count + j;
  const [one, two, moved] = maps.map((map) => map[cell]);
  const known = i >= 0 && j >= 0;
  besideBox.querySelectorAll(".cell").forEach((mark) =>
    Object.assign(/** @type {HTMLElement} */ (mark).style, { left: `${(100 * j) / count}%`, top: `${(100 * i) / count}%`, width: `${100 / count}%`, height: `${100 / count}%`, display: known ? "" : "none" }));
  said.replaceChildren(linkName(state.query, words, state.key, words), make("b", known && !isNaN(moved) ? `${told(one)} → ${told(two)} (${moved > 0 ? "+" : ""}${signed(moved)})` : "–"));
}

/** Lay over every tile how much its head moved most. */
export async function layDifference() {
  /** @type {number[]} */
  const values = [];
  for (const place of meta.runs[0].heads.keys()) {
    const made = await sides(place);
    values.push(made ? farthest(made[3]) : 0);
    await pause();
    if (state.view !== "difference") return;
  }
  lay(values);
}
