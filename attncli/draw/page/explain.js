/**
 * The page of one query's attention, step by step. Where the page has the model it computes: the sentence, the seed, the
 * scale, the mask and single weights can be changed; else it shows the numbers that it was given.
 */
import { cut } from "./cutting.js";
import { block, meta } from "./data.js";
import { at, button, fill, make, set, sized, write } from "./dom.js";
import { runModel, softmaxRow, weightsOfModel } from "./layers.js";
import { abs, clamp, floor, max, min, round } from "./numbers.js";
import { picture, signedPicture, themed } from "./shades.js";
import { listenTable, speakTable } from "./table.js";

const { model } = meta;
/** Steps in order: that of queries, keys and values has no number. @type {string[]} */
const STEPS = ["projections", ...meta.tour];
const PLACES = meta.digits;
/** Keys with a row and entries with a column of their own, at most. */
const ROWS = 200, ENTRIES = 5;
/** Pixels of a column of numbers, and of the names before them. */
const COLUMN = 70, NAMES = 84;
/** Layers whose maps are all shown at once. */
const LAYERS = 3;
/** Tokens of a text that the page computes in the blink of an eye. */
const LONGEST = 64;

const chosen = { lang: meta.lang, step: 0, ...meta.start };
/** The weights as they are, and what single ones were before they were changed. */
let arrays = new Map();
const before = new Map();
/** What is shown. @type {any} */
let shown = null;
/** Why there is nothing new to show; "" where there is. */
let trouble = "";
const firstSeed = model?.seed;
/** The weight that can be changed. */
const spot = { matrix: "q", row: 0, column: 0 };

/** @param {string} name @param {Record<string, any>} values */
const say = (name, values = {}) => (meta.words[chosen.lang][name] ?? name).replace(/\{(\w+)\}/g, (/** @type {string} */ _, /** @type {string} */ place) => `${values[place]}`);
const nextLanguage = () => {
  const languages = Object.keys(meta.words);
  return languages[(languages.indexOf(chosen.lang) + 1) % languages.length];
};
/** @param {number} value @param {number} digits */
const number = (value, digits = PLACES) => (value === Infinity ? "∞" : value === -Infinity ? "−∞" : value.toFixed(digits).replace(/^-(?=0(\.0*)?$)/, "").replace("-", "−"));
/** @param {number} value */
const factor = (value) => (value < 0 ? `(${number(value)})` : number(value));
/** @param {number} value */
const brief = (value) => String(Number(value.toPrecision(6)));
/** A share as the terminal writes it. @param {number} share */
const percent = (share) => {
  if (share > 0 && share < 0.001) return "<0.1%";
  if (1 - share > 1e-6 && 1 - share < 0.001) return ">99.9%";
  const text = `${(100 * share).toFixed(0)}%`;
  return share && (share < 0.1 || (1 - share > 1e-6 && text === "100%")) ? `${(100 * share).toFixed(1)}%` : text;
};
/** @param {number} place */
const name = (place) => shown.tokens[place]?.text ?? "bias_k";
/** A token in quotes, with its place where another is called the same. @param {number} place */
function quoted(place) {
  const same = shown.tokens.filter((/** @type {any} */ { text }) => text === name(place)).length > 1;
  return say("quoted", { text: name(place) }) + (same ? ` (${place})` : "");
}
/** A key as a row of a table names it. @param {number} place */
const row = (place) => `${place} ${name(place)}`;
/** The key that the query looks at most. */
const strongest = () => shown.weights.reduce((/** @type {number} */ best, /** @type {number} */ weight, /** @type {number} */ key) => (weight > shown.weights[best] ? key : best), 0);

/** The mask that was chosen beside the model's own, as windows; null for none, empty to see all. */
function windows() {
  if (chosen.mask === "own") return null;
  if (chosen.mask === "none") return [];
  return chosen.mask === "causal" ? [[null, 0]] : [[max(chosen.window, 1) - 1, 0]];
}
const ownScale = () => model.blocks[chosen.layer].scale;
const scale = () => (chosen.scale ?? ownScale()) / chosen.heat;

/** Run the model for the text that is written; what it was before is kept where it cannot be run. */
function compute() {
  const tokens = cut(chosen.text, model.tokenizer);
  const longest = min(model.longest ?? LONGEST, LONGEST);
  const stranger = tokens.find(({ id }) => !model.seeded && id === null);
  const bare = tokens.some(({ unknown }) => unknown) && model.tokenizer.unknown === null;
  trouble = "";
  if (!tokens.length) trouble = say("no.tokens");
  else if (tokens.length > longest) trouble = say("too.long", { count: tokens.length, most: longest });
  else if (stranger && bare) trouble = say("no.vector", { word: say("quoted", { text: stranger.text }), words: Object.keys(model.tokenizer.ids).slice(0, 40).join(" ") });
  if (trouble) return;
  const change = { mask: windows(), scale: chosen.scale === null && chosen.heat === 1 ? undefined : scale() };
  const run = (/** @type {[number, number]|undefined} */ without) => runModel(model, arrays, tokens, { ...change, without });
  const runs = run(undefined);
  chosen.query = min(chosen.query, tokens.length - 1);
  const head = runs[chosen.layer].heads[chosen.head];
  const { query } = chosen;
  let end = 0;
  const placed = tokens.map(({ text, unknown }) => {
    const start = chosen.text.indexOf(text, end);
    const joined = start === end && end > 0;
    end = start < 0 ? end : start + text.length;
    return { text, unknown, joined };
  });
  const last = runs[runs.length - 1].after[query];
  const others = run([chosen.layer, chosen.head]);
  shown = {
    tokens: placed, layer: chosen.layer, head: chosen.head, query, sink: null, scale: change.scale ?? ownScale(), cap: model.blocks[chosen.layer].cap,
    q: head.q[query], k: head.k, v: head.v, raw: head.raw[query], scaled: head.scaled[query], capped: head.capped?.[query] ?? null, bias: head.bias?.[query] ?? null,
    visible: head.visible[query], scores: head.scores[query], ...softmaxRow(head.scores[query], head.visible[query]), output: head.output[query],
    square: { raw: head.raw, visible: head.visible, weights: head.weights },
    maps: runs.map(({ heads }) => heads.map(({ weights }) => weights)), effect: turned(last, others[others.length - 1].after[query]),
  };
}

/** 1 − cos of two vectors; null where one is 0. @param {Float64Array} a @param {Float64Array} b */
function turned(a, b) {
  const product = (/** @type {Float64Array} */ one, /** @type {Float64Array} */ other) => one.reduce((sum, value, place) => sum + value * other[place], 0);
  const sizes = Math.sqrt(product(a, a) * product(b, b));
  return sizes ? 1 - product(a, b) / sizes : null;
}

/** A number that a test reads in full. @param {number} value @param {number} digits */
const valueCell = (value, digits = PLACES) => make("td", { "data-value": value }, number(value, digits));

/** A table; the row of the strongest key stands out. @param {string[]} head @param {[number, ...any[]][]} rows @param {any[][]} foot */
function numbers(head, rows, foot = []) {
  const best = strongest();
  const kept = rows.length > ROWS ? [...rows].sort((a, b) => shown.weights[b[0]] - shown.weights[a[0]]).slice(0, ROWS) : rows;
  const line = (/** @type {string} */ title, /** @type {any[]} */ cells) => [make("th", { scope: "row" }, title), ...cells.map((one) => (typeof one === "number" ? valueCell(one) : one instanceof Node ? one : make("td", one)))];
  return make("div.scroll", { tabindex: 0, role: "region", "aria-label": say("numbers") },
    make("table.terms", make("thead", make("tr", ...head.map((title) => make("th", { scope: "col" }, title)))),
      make("tbody", ...kept.map(([key, ...cells]) => make("tr", { class: key === best ? "now" : "" }, ...line(row(key), cells)))),
      ...(foot.length ? [make("tfoot", ...foot.map(([title, ...cells]) => make("tr", ...line(title, cells))))] : [])));
}

/** Bars of signed numbers, one a key. @param {ArrayLike<number>} values @param {number} most */
function bars(values, most) {
  return make("div.bars", { "aria-hidden": true }, ...Array.from({ length: min(values.length, 24) }, (_, key) => {
    const value = values[key];
    const share = value === -Infinity ? 0 : clamp(abs(value) / (most || 1), 1);
    const inner = make("i", { class: value < 0 ? "in" : "" });
    inner.style.width = `${100 * share}%`;
    return make("p", make("span", name(key)), make("b", inner), make("small", number(value, 2)));
  }));
}

/** A matrix of queries and keys, with the names of its axes; pressed, a row becomes the query. @param {number[][]|boolean[][]} square @param {boolean} signed @param {string} title */
function matrix(square, signed, title) {
  const count = square.length;
  const keys = square[0].length;
  const side = 64, edge = 18;
  const size = clamp(max(floor((330 - side) / keys), 1), 30);
  const flat = Float32Array.from(square.flatMap((line) => [...line].map(Number)));
  const canvas = make("canvas", { role: "img", "aria-label": `${title}: ${say("axes")}`, "data-square": "" });
  const pen = sized(canvas, side + edge + size * keys + 2, side + edge + size * count + 2);
  const high = flat.reduce((most, value) => (abs(value) > most && abs(value) !== Infinity ? abs(value) : most), 0);
  const image = signed ? signedPicture(flat, count, keys, high) : picture(flat, count, keys, "linear", 1);
  const [left, top] = [side + edge, side + edge];
  pen.drawImage(image, left, top, size * keys, size * count);
  write(pen, say("axis.key"), left, 8, size * keys + 40);
  write(pen, say("axis.query"), 8, top + size * count, size * count + 40, "left", "quiet", -Math.PI / 2);
  if (size >= 8) {
    for (let place = 0; place < keys; place++) write(pen, name(place), left + (place + 0.5) * size, top - 5, side - 6, "left", "ink", -Math.PI / 2);
    for (let place = 0; place < count; place++) write(pen, name(place), left - 5, top + (place + 0.5) * size, side - 6, "right", place === shown.query ? "accent" : "ink");
  }
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--looked");
  pen.lineWidth = 2;
  pen.strokeRect(left, top + shown.query * size, size * keys, size);
  if (model) canvas.addEventListener("click", (event) => {
    const query = floor((event.offsetY - top) / size);
    if (query >= 0 && query < count) choose({ query });
  });
  return make("figure", make("figcaption", title), canvas);
}

/** Vectors as strips of colour, a row each. @param {[string, ArrayLike<number>][]} vectors @param {string} title */
function strips(vectors, title) {
  const wide = vectors[0][1].length;
  const high = max(...vectors.flatMap(([, vector]) => Array.from(vector, abs)), 1e-12);
  return make("figure.strips", make("figcaption", title), ...vectors.slice(0, 24).map(([label, vector]) =>
    make("p", make("span", label), set(signedPicture(Float32Array.from(vector), 1, wide, high), { role: "img", "aria-label": label }))));
}

/** How many entries of each of so many vectors fit beside so many other columns. @param {number} others @param {number} vectors */
const fitting = (others, vectors = 1) => {
  const wide = at("steps").clientWidth - 17;
  const table = innerWidth < 800 ? wide : innerWidth < 1100 ? (wide - 32) / 2 : (wide - 64) * 0.4; // as in explain.css
  return min(max(floor((table - NAMES - others * COLUMN) / COLUMN / vectors), 1), ENTRIES);
};
/** @param {ArrayLike<number>} vector @param {number} count */
const first = (vector, count) => Array.from({ length: min(vector.length, count) }, (_, entry) => vector[entry]);
const entries = (/** @type {ArrayLike<number>} */ vector, /** @type {number} */ count) => first(vector, count).map((_, entry) => String(entry));
const everyKey = () => Array.from(shown.weights, (_, key) => key);
/** @param {...any} lines */
const lines = (...lines) => lines.filter(Boolean).map((line) => make("p", typeof line === "string" ? make("code", line) : line));

/** Formula worked out, numbers and picture of each step. @type {Record<string, () => [Node[], Node|null, Node|null]>} */
const DRAWN = {
  projections: () => {
    const { q, k, v, query } = shown;
    const count = fitting(0, 2);
    return [lines(say("formula.projections")), numbers([say("key"), ...entries(k[0], count).map((entry) => `k_${entry}`), ...entries(v[0], count).map((entry) => `v_${entry}`)], everyKey().map((key) => [key, ...first(k[key], count), ...first(v[key], count)]), [["q", ...first(q, count)]]),
      strips([[`q ${name(query)}`, q], ...everyKey().map((key) => /** @type {[string, any]} */ ([`k ${name(key)}`, k[key]]))], say("strips.keys"))];
  },
  similarity: () => {
    const { q, k, raw } = shown;
    const best = strongest();
    const count = fitting(2);
    const worked = `${first(q, 2).map((value, entry) => `${factor(value)}·${factor(k[best][entry])}`).join(" + ")}${q.length > 2 ? " + …" : ""} = ${number(raw[best])}`;
    return [lines(say("formula.similarity"), say("for", { key: quoted(best), work: worked })),
      numbers([say("key"), ...entries(q, count), ...(q.length > count ? [say("more", { count: q.length - count })] : []), "q·k"], everyKey().map((key) => {
        const products = first(q, count).map((value, entry) => value * k[key][entry]);
        return [key, ...products, ...(q.length > count ? [raw[key] - products.reduce((sum, value) => sum + value, 0)] : []), raw[key]];
      })), shown.square.raw ? matrix(shown.square.raw, true, "S = Q·Kᵀ") : bars(raw, max(...Array.from(raw, abs)))];
  },
  scale: () => {
    const { raw, scaled, capped, bias, cap, q } = shown;
    const best = strongest();
    const root = abs(shown.scale - 1 / Math.sqrt(q.length)) < 1e-12 ? say("formula.root", { scale: brief(shown.scale), root: q.length }) : say("formula.scale", { scale: brief(shown.scale) });
    const before = capped ?? scaled;
    const summed = Array.from(before, (/** @type {number} */ value, /** @type {number} */ key) => value + (bias ? bias[key] : 0));
    return [lines(root, `${number(raw[best])} × ${brief(shown.scale)} = ${number(scaled[best])}`, capped && `${brief(cap)}·tanh(${number(scaled[best])} / ${brief(cap)}) = ${number(capped[best])}`, bias && `${number(before[best])} + ${factor(bias[best])} = ${number(summed[best])}`),
      numbers([say("key"), "q·k", say("times"), ...(capped ? [say("capped")] : []), ...(bias ? [say("bias")] : []), say("score")], everyKey().map((key) => [key, raw[key], scaled[key], ...(capped ? [capped[key]] : []), ...(bias ? [bias[key]] : []), summed[key]])),
      bars(summed, max(...summed.map(abs)))];
  },
  mask: () => {
    const { visible, scores, query } = shown;
    const hidden = everyKey().filter((key) => !visible[key]);
    const told = hidden.length ? say("mask.hidden", { query: quoted(query), count: hidden.length, keys: visible.length, names: hidden.slice(0, 6).map(row).join(say("comma")) + (hidden.length > 6 ? " …" : "") }) : say("mask.nothing", { query: quoted(query), keys: visible.length });
    return [lines(say("formula.mask"), make("span", told)), numbers([say("key"), say("visible"), say("score")], everyKey().map((key) => [key, visible[key] ? "✓" : "–", visible[key] ? scores[key] : -Infinity])),
      shown.square.visible ? matrix(shown.square.visible, false, say("visible")) : null];
  },
  softmax: () => {
    const { highest, shifted, exponentials, sum, sink, weights, visible } = shown;
    const best = strongest();
    if (!visible.some(Boolean)) return [lines(say("formula.softmax"), make("span", say("empty"))), null, null];
    return [lines(say("formula.softmax"), `exp(${number(shown.scores[best])} − ${factor(highest)}) = ${number(exponentials[best])}`, `${number(exponentials[best])} / ${number(sum)} = ${number(weights[best])}`, sink && `sink: ${number(sink)}`),
      numbers([say("key"), say("score"), "s − max", "exp", say("weight")], everyKey().map((key) => [key, visible[key] ? shown.scores[key] : -Infinity, shifted[key], exponentials[key], weights[key]]), [[say("sum"), "", "", sum, Array.from(weights).reduce((total, weight) => total + weight, 0)]]),
      matrix(shown.square.weights, false, "A = softmax(S)")];
  },
  output: () => {
    const { weights, v, output } = shown;
    const count = fitting(1);
    const top = [...everyKey()].sort((a, b) => weights[b] - weights[a]).slice(0, 2);
    const worked = `${top.map((key) => `${number(weights[key])}·${factor(v[key][0])}`).join(" + ")}${weights.length > 2 ? " + …" : ""} = ${number(output[0])}`;
    return [lines(say("formula.output"), say("for", { key: "o_0", work: worked })),
      numbers([say("key"), "w", ...entries(output, count)], everyKey().map((key) => [key, weights[key], ...first(v[key], count).map((value) => value * weights[key])]), [["o", "", ...first(output, count)]]),
      strips([...everyKey().map((key) => /** @type {[string, any]} */ ([`w·v ${name(key)}`, Array.from(v[key], (/** @type {number} */ value) => value * weights[key])])), ["o", output]], say("strips.values"))];
  },
  heads: () => {
    if (!shown.maps) return [lines(meta.commands.heads ?? make("span", say("one.head"))), null, null];
    const count = shown.maps.reduce((/** @type {number} */ sum, /** @type {any[]} */ heads) => sum + heads.length, 0);
    if (count === 1) return [lines(make("span", say("one.head"))), null, null];
    const best = strongest();
    const tile = (/** @type {number} */ layer, /** @type {number} */ head, /** @type {Float64Array[]} */ weights) => button(() => choose({ layer, head }), { class: "head", "aria-pressed": layer === shown.layer && head === shown.head, "data-value": weights[shown.query][best] },
      picture(Float32Array.from(weights.flatMap((one) => [...one])), weights.length, weights.length, "linear", 1), make("small", `L${layer} H${head} ${number(weights[shown.query][best], 2)}`));
    const rows = shown.maps.map((/** @type {Float64Array[][]} */ heads, /** @type {number} */ layer) => make("div.heads", { "data-layer": layer }, ...heads.map((weights, head) => tile(layer, head, weights))));
    const folded = rows.length > LAYERS ? [rows[shown.layer], make("details", make("summary", say("all.layers", { count: rows.length })), ...rows.filter((/** @type {any} */ _, /** @type {number} */ layer) => layer !== shown.layer))] : rows;
    return [lines(command("find", "--from", `'#${shown.query}'`, "--to", `'#${best}'`)), make("div", ...folded), null];
  },
  effect: () => {
    if (shown.effect === undefined) return [lines(meta.commands.effect), null, null];
    const text = shown.effect === null ? say("effect.none") : say("effect.turn", { query: quoted(shown.query), turn: number(shown.effect) });
    return [lines(make("span", { "data-value": shown.effect ?? "" }, text), command("ablate", "--query", `'#${shown.query}'`, "--head", `L${shown.layer}H${shown.head}`)), null, null];
  },
};

/** A word as a shell reads it. @param {string} text */
const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** The command that gives the same numbers; "" where a single weight was changed. @param {string} verb @param {...string} more */
function command(verb, ...more) {
  if (before.size) return "";
  const words = ["attn", verb, ...meta.options.map(shell), shell(chosen.text)];
  if (model.drawn) words.push("--seed", String(model.seed));
  if (chosen.mask === "none") words.push("--mask", "none");
  else {
    const own = [...meta.masks, ...(chosen.mask === "own" ? [] : [chosen.mask === "causal" ? "causal" : `window:${max(chosen.window, 1)}`])];
    for (const one of own) words.push("--mask", shell(one));
  }
  if (chosen.scale !== null || chosen.heat !== 1) words.push("--scale", String(Number(scale().toPrecision(15)))); // 0.28, not 0.27999999999999997
  else if (meta.scale !== null) words.push("--scale", meta.scale);
  if (verb === "explain" && (model.blocks.length > 1 || model.blocks[0].heads > 1)) words.push("--layer", String(shown.layer), "--head", String(shown.head));
  return [...words, ...more].join(" ");
}

/** Whether all is as the page began: then the terminal's screen and table below tell of the same. */
const untouched = () => !before.size && model?.seed === firstSeed && Object.entries(meta.start).every(([one, value]) => chosen[one] === value);

/** The sentence, tinted by the query's weights. */
function sentence() {
  if (!model) return;
  fill("sentence", ...shown.tokens.flatMap((/** @type {any} */ { text, joined, unknown }, /** @type {number} */ place) => {
    const word = make("button.word", { type: "button", "aria-pressed": place === shown.query, title: `${row(place)} ${number(shown.weights[place])}`, onclick: () => choose({ query: place }) }, text + (unknown ? "?" : ""));
    word.style.setProperty("--a", String(0.82 * shown.weights[place]));
    return joined || !place ? [word] : [" ", word];
  }));
}

/** What the query looks at, in a sentence or two. */
function answer() {
  if (!model) return;
  const best = strongest();
  const [query, key, share] = [quoted(shown.query), quoted(best), percent(shown.weights[best])];
  const rests = model.source === "checkpoint" && best === 0;
  const alone = shown.visible.filter(Boolean).length === 1 && shown.weights[best] > 1 - 1e-6;
  const told = !shown.weights[best] ? say("blind", { query }) : alone ? say(best === shown.query ? "alone.itself" : "alone", { query, key }) : rests ? say("rests", { query, key, share }) : say(best === shown.query ? "looks.itself" : "looks", { query, key, share });
  fill("says", make("p", told), ...(rests && !alone ? [make("p", say("resting", { key }))] : []), ...(model.drawn ? [make("p", say("not.learned", { seed: model.seed }))] : []));
}

/** Every field of what can be changed, as it stands. */
function fields() {
  if (!model) return;
  const value = (/** @type {string} */ id, /** @type {any} */ now) => { const field = /** @type {any} */ (at(id)); if (document.activeElement !== field || !trouble) field.value = String(now); };
  const options = (/** @type {string} */ id, /** @type {any[]} */ names, /** @type {any} */ now) => fill(id, ...names.map(([one, text]) => make("option", { value: one, selected: String(one) === String(now) }, text)));
  for (const one of document.querySelectorAll("[data-say]")) one.replaceChildren(say(/** @type {HTMLElement} */ (one).dataset.say ?? ""));
  value("text", chosen.text);
  value("seed", model.seed);
  options("layer", model.blocks.map((/** @type {any} */ _, /** @type {number} */ layer) => [layer, String(layer)]), chosen.layer);
  options("head", Array.from({ length: model.blocks[chosen.layer].heads }, (_, head) => [head, String(head)]), chosen.head);
  options("mask", [["own", meta.masks.length ? meta.masks.join(" & ") : say(model.drawn ? "mask.none" : "mask.own")], ...(model.drawn && !meta.masks.length ? [] : [["none", say("mask.none")]]), ["causal", say("mask.causal")], ["window", say("mask.window")]], chosen.mask);
  value("window", chosen.window);
  at("window-field").hidden = chosen.mask !== "window";
  at("seed-field").hidden = !model.drawn;
  value("scale", brief(chosen.scale ?? ownScale()));
  value("heat", chosen.heat);
  fill("heat-says", brief(chosen.heat));
  fill("trouble", trouble);
  const same = command("explain", "--query", `'#${shown.query}'`);
  fill("command", same ? make("code", same) : say("changed", { count: before.size }));
  weightFields();
}

/** The matrix that the weight which can be changed is of, the head's part of it: [in, out]. */
function weightPart() {
  const { matrix: letter } = spot;
  const { heads, kv, dk, dv } = model.blocks[chosen.layer];
  const wide = letter === "v" ? dv : dk;
  const from = (letter === "q" ? chosen.head : floor(chosen.head / (heads / kv))) * wide;
  return { name: `${chosen.layer}.attn.${letter}.weight`, wide, from, tall: model.width, index: (/** @type {number} */ row, /** @type {number} */ column) => (from + column) * model.width + row };
}

function weightFields() {
  const part = weightPart();
  const array = arrays.get(part.name);
  spot.row = clamp(spot.row, part.tall - 1);
  spot.column = clamp(spot.column, part.wide - 1);
  const [row, column] = [spot.row, spot.column];
  /** @type {HTMLSelectElement} */ (at("matrix")).value = spot.matrix;
  for (const [id, now, most] of [["row", row, part.tall - 1], ["column", column, part.wide - 1]]) set(at(String(id)), { max: most, value: now });
  /** @type {any} */ (at("row")).value = row;
  /** @type {any} */ (at("column")).value = column;
  /** @type {any} */ (at("value")).value = Number(array[part.index(row, column)].toFixed(6));
  fill("weight-name", `W_${spot.matrix.toUpperCase()}[${row}, ${column}]`);
  const flat = new Float32Array(part.tall * part.wide);
  for (let i = 0; i < part.tall; i++) for (let j = 0; j < part.wide; j++) flat[i * part.wide + j] = array[part.index(i, j)];
  const size = max(floor(min(420, 8 * part.wide) / part.wide), 1);
  const canvas = make("canvas", { role: "img", "aria-label": say("weights.map") });
  const pen = sized(canvas, size * part.wide, size * part.tall);
  pen.drawImage(signedPicture(flat, part.tall, part.wide, flat.reduce((most, one) => max(most, abs(one)), 0)), 0, 0, size * part.wide, size * part.tall);
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--looked");
  pen.lineWidth = 2;
  pen.strokeRect(column * size, row * size, size, size);
  canvas.addEventListener("click", (event) => { Object.assign(spot, { row: floor(event.offsetY / size), column: floor(event.offsetX / size) }); weightFields(); });
  at("weight-map").replaceChildren(canvas);
  at("back").hidden = !before.size;
}

/** Change the weight that is chosen. @param {number} value */
function putWeight(value) {
  const part = weightPart();
  const index = part.index(spot.row, spot.column);
  const key = `${part.name} ${index}`;
  if (!before.has(key)) before.set(key, arrays.get(part.name)[index]);
  arrays.get(part.name)[index] = value;
  choose({});
}

/** Draw all weights by another seed. @param {number} seed */
function sow(seed) {
  model.seed = seed;
  before.clear();
  arrays = weightsOfModel(model, null);
  choose({});
}

/** Put every weight back that was changed. */
function putBack() {
  for (const [key, value] of before) {
    const [name, index] = key.split(" ");
    arrays.get(name)[Number(index)] = value;
  }
  before.clear();
  choose({});
}

/** What a step does, in sentences that are true of the model. @param {string} step */
function leads(step) {
  const alone = shown.maps?.flat().length === 1; // then there is no other head to press
  if (step === "heads" && alone) return [];
  const told = say(`lead.${step}`, { query: quoted(shown.query), key: quoted(strongest()) });
  if (step === "projections") return [told, ...(meta.rotated ? [say("lead.rotated")] : [])];
  if (step !== "scale") return told ? [told] : [];
  return [shown.scale === 1 ? say("lead.unscaled") : told, ...(shown.cap === null ? [] : [say("lead.cap", { cap: brief(shown.cap) })]), ...(shown.bias ? [say("lead.bias")] : [])];
}

/** The steps, each with its formula, its numbers and its picture beside one another. */
function steps() {
  const query = name(shown.query);
  fill("steps", ...STEPS.map((step, place) => {
    const [formula, table, image] = DRAWN[step]();
    const title = (place ? `${place} ` : "") + say(`title.${step}`, { query });
    return make("section", { class: "step", id: `step-${step}`, "data-step": step, "aria-current": place === chosen.step ? "step" : false },
      make("h2", title), ...leads(step).map((text) => make("p.lead", text)),
      make("div.parts", make("div.formula", ...formula), ...(table ? [table] : []), ...(image ? [image] : [])));
  }));
  fill("ways", ...STEPS.map((step, place) => button(() => go(place), { "aria-pressed": place === chosen.step, title: say(`title.${step}`, { query }) }, place ? String(place) : say("title.projections.short"))), make("span.note", say("arrows")));
}

/** Go to a step, which comes into view. @param {number} step */
function go(step) {
  chosen.step = clamp(step, STEPS.length - 1);
  document.querySelectorAll(".step").forEach((one, place) => set(one, { "aria-current": place === chosen.step ? "step" : "false" }));
  document.querySelectorAll("#ways button").forEach((one, place) => set(one, { "aria-pressed": place === chosen.step }));
  at(`step-${STEPS[chosen.step]}`).scrollIntoView({ block: "start" });
  fill("said", at(`step-${STEPS[chosen.step]}`).querySelector("h2")?.textContent ?? "");
}

function draw() {
  themed();
  document.documentElement.lang = chosen.lang;
  speakTable(chosen.lang, say);
  fill("language", meta.words[nextLanguage()].language);
  fill("place", say("place", { layer: shown.layer, head: shown.head, index: shown.query, query: name(shown.query) }));
  if (model) fill("line", chosen.text);
  for (const one of document.querySelectorAll("main > details")) one.toggleAttribute("hidden", Boolean(model) && !untouched());
  fill("why-still", model ? "" : meta.reason?.[chosen.lang] ?? "");
  sentence();
  answer();
  fields();
  steps();
}

/** Choose, compute and draw. @param {Record<string, any>} next */
function choose(next) {
  Object.assign(chosen, next);
  if (model) {
    chosen.head = min(chosen.head, model.blocks[chosen.layer].heads - 1);
    compute();
  }
  if (shown) draw();
}

/** @param {string} id @param {(value: string) => void} act @param {string} event */
const listen = (id, act, event = "change") => at(id).addEventListener(event, ({ target }) => act(/** @type {any} */ (target).value));

/** Listen to every field of what can be changed. */
function listenFields() {
  listen("text", (text) => choose({ text }), "input");
  listen("seed", (seed) => sow(/^\d{1,15}$/.test(seed) ? Number(seed) : model.seed));
  for (const id of ["layer", "head"]) listen(id, (value) => choose({ [id]: Number(value) }));
  listen("mask", (mask) => choose({ mask }));
  listen("window", (value) => choose({ window: max(round(Number(value)) || 1, 1) }), "input");
  listen("scale", (value) => choose({ scale: value === "" || !Number.isFinite(Number(value)) ? null : Number(value) }));
  listen("heat", (value) => choose({ heat: Number(value) }), "input");
  listen("matrix", (matrix) => { Object.assign(spot, { matrix }); weightFields(); });
  for (const id of ["row", "column"]) listen(id, (value) => { Object.assign(spot, { [id]: floor(Number(value)) || 0 }); weightFields(); });
  listen("value", (value) => Number.isFinite(Number(value)) && value !== "" && putWeight(Number(value)));
  at("back").addEventListener("click", putBack);
  at("again").addEventListener("click", () => {
    Object.assign(chosen, meta.start);
    if (model.drawn) sow(firstSeed);
    else putBack();
  });
}

at("language").addEventListener("click", () => choose({ lang: nextLanguage() }));
document.addEventListener("keydown", (event) => {
  const inside = /** @type {HTMLElement} */ (event.target).closest("input, select, textarea, .scroll");
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0;
  if (!by || inside || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  go(chosen.step + by);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let width = innerWidth;
addEventListener("resize", () => {
  if (shown && innerWidth !== width) steps(); // the entries that fit
  width = innerWidth;
});
listenTable(meta.name);

async function begin() {
  if (model) {
    arrays = weightsOfModel(model, model.drawn && model.seeded ? null : await block("weights"));
    listenFields();
  } else shown = { ...meta.shown, shifted: meta.shown.shifted.map((/** @type {number|null} */ value) => value ?? -Infinity), scores: meta.shown.scores.map((/** @type {number|null} */ value) => value ?? -Infinity) };
  choose({});
  document.documentElement.dataset.ready = "";
}
begin();
