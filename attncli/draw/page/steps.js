import { at, button, colour, fill, make, set, sized, unthemed, write } from "./dom.js";
import { abs, clamp, floor, max, min } from "./numbers.js";
import { listenTable, speakTable } from "./table.js";

const meta = JSON.parse(at("meta").textContent ?? "");
const count = meta.tokens.length, across = meta.keys.length;

/** What is chosen. step: its place; head: its place; score: what tiles without maps are tinted by; cell: a query and a key, or none. */
const chosen = { step: meta.steps.length - 1, head: meta.start, score: 0, query: -1, key: -1, lang: meta.lang, playing: 0, spoken: false };

/** The square roots of all weights, in 255ths: [map, head, query, key]. */
let codes = new Uint8Array();

/** The language after the one that is read: the button leads there. */
const nextLanguage = () => {
  const languages = Object.keys(meta.words);
  return languages[(languages.indexOf(chosen.lang) + 1) % languages.length];
};
/** A phrase of the page's language. @param {string} name @param {...any} given */
const say = (name, ...given) => (meta.words[chosen.lang]?.[name] ?? name).replace(/\{(\d)\}/g, (/** @type {string} */ whole, /** @type {string} */ place) => String(given[Number(place)]));
/** @param {number|null} value */
const number = (value) => (value === null ? "–" : value >= 0.1 || value === 0 ? value.toFixed(2) : value.toPrecision(2));

/** The map that is nearest to a step, at it or before. @param {number} step */
const mapAt = (step) => meta.maps.reduce((/** @type {number} */ found, /** @type {number} */ place, /** @type {number} */ index) => (place <= step ? index : found), 0);

/** The weight of a head's cell. @param {number} head @param {number} query @param {number} key */
function weight(head, query, key) {
  const code = codes[((mapAt(chosen.step) * meta.heads.length + head) * count + query) * across + key] / 255;
  return code * code;
}

/** The colour of a weight, of the theme. @param {number} value */
function shade(value) {
  const stops = colour("ramp").split(" ").map((hex) => [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16)));
  const place = clamp(value, 1) * (stops.length - 1);
  const low = min(floor(place), stops.length - 2);
  return stops[low].map((part, index) => part + (stops[low + 1][index] - part) * (place - low));
}

/** Whether there is where heads look, at some steps. */
const mapped = meta.maps.length > 0;

/** A head's map, one dot each; without maps its score at the step, beside the largest of all. @param {HTMLCanvasElement} canvas @param {number} head */
function dots(canvas, head) {
  if (!mapped) {
    const rows = meta.scores[chosen.score][1];
    const image = new ImageData(1, 1);
    image.data.set([...shade((rows[head][chosen.step] ?? 0) / max(...rows.flat(), 1e-9)), 255]);
    set(canvas, { width: 1, height: 1 }).getContext("2d")?.putImageData(image, 0, 0);
    return canvas;
  }
  set(canvas, { width: across, height: count });
  const image = new ImageData(across, count);
  for (let cell = 0; cell < count * across; cell++) image.data.set([...shade(weight(head, floor(cell / across), cell % across)), 255], 4 * cell);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

function grid() {
  const columns = max(...meta.heads.map((/** @type {number[]} */ head) => head[1])) + 1;
  at("grid").style.setProperty("--across", String(columns));
  fill("grid", ...meta.heads.map(([layer, head], /** @type {number} */ place) => {
    const scores = meta.scores.map(([name, rows]) => make("small", `${name[chosen.lang]} ${number(rows[place][chosen.step])}`));
    return button(() => choose({ head: place }), { class: "head", "aria-pressed": place === chosen.head, "data-head": place, title: say("head", layer, head) }, dots(make("canvas"), place), make("small", make("b", `L${layer} H${head}`)), ...scores);
  }));
  fill("heads-title", say("heads"));
  if (!mapped)
    fill("order", make("label.pick", say("tint"), make("select", { onchange: (/** @type {any} */ { target }) => choose({ score: target.selectedIndex }) },
      ...meta.scores.map(([name], /** @type {number} */ at) => make("option", { selected: at === chosen.score }, name[chosen.lang])))));
}

/** The curves over the steps: what is drawn largest, and what it is compared with. */
function curve() {
  const wide = 1000, tall = 120;
  const values = meta.lines.flatMap(([, line]) => line).filter((/** @type {number|null} */ value) => value !== null);
  const high = max(...values, 1e-9);
  const last = max(meta.steps.length - 1, 1);
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  set(picture, { viewBox: `0 0 ${wide} ${tall}`, preserveAspectRatio: "none", role: "img", "aria-label": meta.lines[0][0][chosen.lang] });
  /** @param {string} kind @param {string} path */
  const add = (kind, path) => picture.append(set(document.createElementNS(space, "path"), { class: kind, d: path }));
  meta.lines.forEach(([, line], /** @type {number} */ index) => {
    let path = "";
    line.forEach((/** @type {number|null} */ value, /** @type {number} */ place) => {
      if (value !== null) path += `${path ? "L" : "M"}${(place / last) * wide} ${4 + (1 - value / high) * (tall - 8)}`;
    });
    add(`line${min(index, 1)}`, path);
  });
  add("now", `M${(chosen.step / last) * wide} 0V${tall}`);
  const said = meta.lines.map(([name, line]) => `${name[chosen.lang]} ${number(line[chosen.step])}`).join(" · ");
  fill("curve", picture, make("p.note", said));
}

const side = 60;
const room = () => clamp((min(at("matrix").parentElement?.clientWidth ?? 480, 640) - side) / max(count, across), 34);

function matrix() {
  at("matrix").hidden = at("cell").hidden = !mapped;
  if (!mapped) return;
  const cell = room();
  /** Whether there is room for the name of a row or a column. @param {number} place */
  const named = (place) => cell >= 9 || place % 4 === 0;
  const canvas = /** @type {HTMLCanvasElement} */ (at("matrix"));
  const pen = sized(canvas, side + cell * across, side + cell * count);
  set(canvas, { role: "img", "aria-label": say("matrix") });
  pen.clearRect(0, 0, side + cell * across, side + cell * count);
  for (let query = 0; query < count; query++) {
    for (let key = 0; key < across; key++) {
      pen.fillStyle = `rgb(${shade(weight(chosen.head, query, key)).join(" ")})`;
      pen.fillRect(side + key * cell, side + query * cell, cell, cell);
    }
    if (named(query)) write(pen, meta.tokens[query], side - 6, side + (query + 0.5) * cell, side - 10, "right");
  }
  for (let key = 0; key < across; key++)
    if (named(key)) write(pen, meta.keys[key], side + (key + 0.5) * cell, side - 6, side - 10, "left", "quiet", -Math.PI / 2);
  if (chosen.query >= 0) {
    pen.strokeStyle = colour("looked");
    pen.strokeRect(side + chosen.key * cell, side + chosen.query * cell, cell, cell);
  }
  const share = chosen.query < 0 ? 0 : weight(chosen.head, chosen.query, chosen.key);
  fill("cell", chosen.query < 0 ? say("matrix") : say("cell", meta.tokens[chosen.query], meta.keys[chosen.key], `${Math.round(share * 100)}%`));
}

function figures() {
  const rows = meta.scores.map(([name, heads]) => {
    const line = heads[chosen.head];
    const cells = [line[0], line[chosen.step], line[line.length - 1]].map((value) => make("td", number(value)));
    return make("tr", make("th", { scope: "row" }, name[chosen.lang]), ...cells);
  });
  const names = ["score", "first", "now", "last"].map((name) => make("th", { scope: "col" }, say(name)));
  fill("view", make("table.figures", make("thead", make("tr", ...names)), make("tbody", ...rows)));
}

function draw() {
  const [layer, head] = meta.heads[chosen.head];
  if (document.documentElement.lang !== chosen.lang || !chosen.spoken) speakTable(chosen.lang, say);
  chosen.spoken = true;
  document.documentElement.lang = chosen.lang;
  fill("language", meta.words[nextLanguage()].language);
  fill("line", meta.line[chosen.lang]);
  fill("play", say(chosen.playing ? "pause" : "play"));
  fill("step-label", say("step", meta.steps[chosen.step].toLocaleString("en")));
  /** @type {HTMLInputElement} */ (at("step")).value = String(chosen.step);
  set(at("step"), { "aria-valuetext": say("step", meta.steps[chosen.step]) });
  curve();
  grid();
  const shown = meta.maps[mapAt(chosen.step)];
  fill("chosen", say("head", layer, head) + (!mapped || shown === chosen.step ? "" : ` · ${say("map", meta.steps[shown].toLocaleString("en"))}`));
  matrix();
  figures();
  fill("notes", ...meta.notes.map((/** @type {string} */ text) => make("li", text[chosen.lang])));
  fill("said", `${say("step", meta.steps[chosen.step])}, ${say("head", layer, head)}`);
}

/** Choose and draw. @param {Record<string, any>} next */
function choose(next) {
  const held = document.activeElement?.closest("#grid") ? chosen.head : -1;
  Object.assign(chosen, next);
  draw();
  if (held >= 0) /** @type {HTMLElement|null} */ (document.querySelector(`#grid [data-head="${chosen.head}"]`))?.focus();
}

function play() {
  clearInterval(chosen.playing);
  if (chosen.playing) return choose({ playing: 0 });
  const last = meta.steps.length - 1;
  const playing = setInterval(() => {
    if (chosen.step >= last) clearInterval(playing);
    choose({ step: min(chosen.step + 1, last), playing: chosen.step + 1 >= last ? 0 : playing });
  }, 160);
  choose({ step: chosen.step >= last ? 0 : chosen.step, playing });
}

/** The weights: deflated, in base64. */
async function load() {
  const bytes = Uint8Array.from(atob(at("maps").textContent ?? ""), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  codes = new Uint8Array(await new Response(stream).arrayBuffer());
  draw();
}

set(at("step"), { max: meta.steps.length - 1, oninput: () => choose({ step: Number(/** @type {HTMLInputElement} */ (at("step")).value) }) });
at("language").addEventListener("click", () => choose({ lang: nextLanguage() }));
at("play").addEventListener("click", play);
at("matrix").addEventListener("click", (event) => {
  const cell = room();
  const query = floor((event.offsetY - side) / cell);
  const key = floor((event.offsetX - side) / cell);
  if (abs(query - count / 2) <= count / 2 && abs(key - across / 2) <= across / 2 && query < count && key < across) choose({ query, key });
});
addEventListener("resize", () => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  unthemed();
  draw();
});
listenTable(meta.name);
load();
