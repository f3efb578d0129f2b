import { all, at, button, fill, html, make, note, set } from "./dom.js";
import { abs, max, min } from "./numbers.js";
import { listenTable, speakTable } from "./table.js";

const meta = JSON.parse(at("meta").textContent ?? "");
const ROW = 40, TOP = 34, SIDE = 34, HALF = 12, TALL = 18;
const last = meta.sizes.length - 1;

/** What is chosen. size: its place; node: the name of a part, or "". */
const chosen = { lang: meta.lang, size: meta.start, node: "" };

/** The edges that are drawn, the strongest first. @type {any[]} */
let lines = [];
/** Where the middle of each drawn part is, in the order in which they run. @type {Map<string, number[]>} */
let places = new Map();

const nextLanguage = () => Object.keys(meta.words).find((lang) => lang !== chosen.lang) ?? chosen.lang;
/** A phrase of the page's language. @param {string} name @param {...any} given */
const say = (name, ...given) => meta.words[chosen.lang][name].replace(/\{(\d)\}/g, (/** @type {string} */ whole, /** @type {number} */ place) => String(given[place]));
/** A number with its sign; 0 has none. @param {number|undefined} x */
const signed = (x) => (x === undefined ? "–" : (x <= -5e-4 ? "-" : x < 5e-4 ? "" : "+") + abs(x).toFixed(abs(x) < 0.095 ? 3 : 2));

/** An element of a drawing. @param {string} tag @param {Record<string, any>} given @param {...(Node|string)} inside */
function draw(tag, given, ...inside) {
  const made = set(document.createElementNS("http://www.w3.org/2000/svg", tag), given);
  made.append(...inside);
  return made;
}

/** Choose the edges and the parts of the size, and place them: layers upward, a feed-forward part half a row above its heads. */
function arrange() {
  const { edges } = meta.sizes[chosen.size];
  const inside = (/** @type {any} */ { least }) => least <= edges;
  lines = meta.edges.filter(inside).slice(0, meta.most)
    .map((/** @type {any} */ edge) => ({ ...edge, ends: edge.ends.filter((/** @type {string} */ id) => inside(meta.nodes[id])) }));
  const joined = new Set(lines.flatMap((edge) => [edge.from, ...edge.ends]));
  const drawn = Object.entries(meta.nodes).filter(([id]) => joined.has(id));
  const layers = [...new Set(drawn.flatMap(([, { layer }]) => layer ?? []))].reverse();
  const step = min(max((at("graph").clientWidth - SIDE) / meta.columns, 2 * HALF + 4), 76);
  const bottom = TOP + layers.length * ROW;
  places = new Map(drawn.map(([id, { layer, column, up }]) => {
    const row = layer === null ? (up ? 0 : bottom) : TOP + layers.indexOf(layer) * ROW;
    return [id, [SIDE + step * column, row + (up ? 12 : 30)]];
  }));
  return { width: SIDE + step * meta.columns, height: bottom + 40, layers };
}

/** The way of a line: those between parts of one column bow out. @param {string} from @param {string} to */
function way(from, to) {
  const [x0, y0] = places.get(from) ?? [], [x1, y1] = places.get(to) ?? [];
  const start = y0 - TALL / 2, end = y1 + TALL / 2, bend = max((start - end) / 2, 8), bow = x0 === x1 ? min((start - end) / 5, 90) : 0;
  return `M${x0} ${start}C${x0 - bow} ${start - bend} ${x1 - bow} ${end + bend} ${x1} ${end}`;
}

/** Draw the circuit of the size. */
function graph() {
  const { layers, ...sizes } = arrange();
  const picture = draw("svg", { ...sizes, role: "group", "aria-label": say("graph") });
  layers.forEach((layer, row) => picture.append(draw("text", { x: 0, y: TOP + row * ROW + 34 }, `L${layer}`)));
  const ways = lines.flatMap(({ from, ends }, place) => ends.map((/** @type {string} */ end) => ({ place, d: way(from, end) }))).reverse();
  for (const { place, d } of ways) {
    const { score } = lines[place];
    const size = abs(score / lines[0].score);
    picture.append(draw("path", { d, class: score < 0 ? "for" : "against", "stroke-width": 0.5 + 4.5 * size, opacity: 0.25 + 0.7 * size, "data-edge": place }));
  }
  for (const { place, d } of ways) picture.append(draw("path", { d, class: "near", onpointerenter: () => tell(place), onpointerleave: () => tell(-1) }));
  for (const [id, [x, y]] of places) {
    const { text } = meta.nodes[id];
    const half = max(HALF, text.length * 3.5 + 3);
    picture.append(draw("g", { role: "button", "data-node": id, "aria-label": meta.nodes[id][chosen.lang], onclick: () => choose(id), onpointerenter: () => mark(id), onpointerleave: () => mark(chosen.node) },
      draw("rect", { x: x - half, y: y - TALL / 2, width: 2 * half, height: TALL, rx: 4 }), draw("text", { x, y: y + 4 }, text)));
  }
  fill("picture", picture);
}

/** The drawn parts, or lines, with their names. @param {string} kind */
const parts = (kind) => /** @type {[SVGElement, string][]} */ (all(`[data-${kind}]`).map((one) => [one, one.getAttribute(`data-${kind}`)]));

/** Let the lines stand out that are meant. @param {(edge: any, place: number) => boolean} test */
const light = (test) => parts("edge").forEach(([line, place]) => line.classList.toggle("off", !test(lines[Number(place)], Number(place))));

/** Mark what belongs to a part. Tab comes to the chosen part. @param {string} id */
function mark(id) {
  const first = chosen.node || [...places.keys()].pop();
  for (const [box, name] of parts("node")) set(box, { tabindex: name === first ? 0 : -1, "aria-pressed": name === chosen.node });
  light(({ from, ends }) => !id || from === id || ends.includes(id));
}

/** Say both figures of an edge; -1: of none. @param {number} place */
function tell(place) {
  if (place < 0) return mark(chosen.node);
  const { from, to, reads, score, exact, alone } = lines[place];
  const cut = exact === undefined ? say("uncut") : say("exact", signed(exact), signed(alone));
  fill("edge", make("b", `${from} → ${to}`), ` (${say(reads)}): ${say("estimated", signed(score))}; ${cut}`);
  light((_, other) => other === place);
}

/** Rows of edges, each to point at or to go to. @param {Node|string} title @param {(edge: any) => boolean} test */
function listed(title, test) {
  const rows = [...lines.keys()].filter((place) => test(lines[place])).slice(0, meta.listed).map((place) => {
    const { from, to, reads, score, exact } = lines[place];
    const act = () => tell(place);
    return make("li", button(act, { onfocus: act, onpointerenter: act, onpointerleave: () => tell(-1) },
      make("span.where", `${from} → ${to}`), make("span.rank", say(reads)), make("span.number", signed(score)), make("span.number", signed(exact))));
  });
  return rows.length ? [title, make("ol.found", ...rows)] : [];
}

/** Choose a part and say what is known of it, or of the whole circuit. @param {string} id "" for none */
function choose(id) {
  chosen.node = places.has(id) ? id : "";
  const facts = meta.roles[chosen.node]?.[chosen.lang] ?? [];
  fill("edge", say("hint"));
  fill("chosen", chosen.node ? `${chosen.node} · ${meta.nodes[id][chosen.lang]}` : say("all"));
  const rows = chosen.node ? [...listed(make("h3", say("into")), ({ ends }) => ends.includes(id)), ...listed(make("h3", say("out")), ({ from }) => from === id)] : listed("", () => true);
  fill("list", ...[...facts, say("columns")].map(note), ...rows);
  mark(chosen.node);
}

/** What circuits keep, over their sizes; the shown one is marked. */
function curve() {
  const { sizes } = meta;
  const width = at("curve").clientWidth || 300, height = 110;
  const [low, high] = meta.range;
  const x = (/** @type {number} */ place) => 20 + ((width - 40) * place) / (last || 1);
  const y = (/** @type {number} */ value) => 12 + ((height - 34) * (high - value)) / (high - low);
  /** @param {string} name */
  const points = (name) => sizes.flatMap((/** @type {any} */ size, /** @type {number} */ place) => (size[name] === null ? [] : `${x(place)} ${y(size[name])}`));
  const paths = { level: `M0 ${y(0)}H${width}M0 ${y(1)}H${width}`, band: `M${[...points("low"), ...points("high").reverse()].join("L") || "0 0"}Z`, random: `M${points("random").join("L")}`, keeps: `M${points("keeps").join("L")}` };
  const marks = Object.entries(paths).map(([name, d]) => draw("path", { d, class: name }));
  for (let place = last; place >= 0; place -= width < 500 ? 2 : 1) marks.push(draw("text", { x: x(place), y: height - 4 }, sizes[place].said[1]));
  fill("curve", draw("svg", { width, height, role: "img", "aria-label": say("curve") }, ...marks, draw("circle", { cx: x(chosen.size), cy: y(sizes[chosen.size].keeps), r: 4 })));
}

/** Draw everything anew: another size, language or width. */
function show() {
  const { said, live, carrying } = meta.sizes[chosen.size];
  html.lang = chosen.lang;
  speakTable(chosen.lang, say);
  fill("language", meta.words[nextLanguage()].language);
  const keeps = say("keeps", ...said);
  set(at("size"), { "aria-valuetext": keeps });
  fill("keeps", keeps);
  curve();
  graph();
  fill("drawn", say("drawn", lines.length, live, places.size, carrying));
  choose(chosen.node);
}

/** Go to the part before or after, or to the nearest one above or below. @param {KeyboardEvent} event */
function onKey(event) {
  const id = /** @type {HTMLElement} */ (event.target).dataset.node ?? "";
  const [x, y] = places.get(id) ?? [];
  const names = [...places.keys()];
  const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key], up = { ArrowUp: 1, ArrowDown: -1 }[event.key];
  if (event.key === "Escape") choose("");
  if (!side && !up) return;
  event.preventDefault();
  /** How far a part is in the way of the key. @param {string} name */
  const far = (name) => {
    const [u, v] = places.get(name) ?? [];
    return (y - v) * (up ?? 0) > 0 ? 4 * abs(v - y) + abs(u - x) : Infinity;
  };
  const next = side ? names[names.indexOf(id) + side] : names.reduce((a, b) => (far(b) < far(a) ? b : a), id);
  parts("node").find(([, name]) => name === next)?.[0].focus();
}

const slider = /** @type {HTMLInputElement} */ (at("size"));
set(slider, { max: last, oninput: () => { chosen.size = Number(slider.value); show(); } });
slider.value = String(chosen.size);
set(at("language"), { onclick: () => { chosen.lang = nextLanguage(); show(); } });
set(at("picture"), { onkeydown: onKey, onfocusin: (/** @type {any} */ event) => choose(event.target.dataset.node ?? "") });
addEventListener("resize", show);
listenTable(meta.name);
show();
