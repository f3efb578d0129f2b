import { at, button, direction, fill, make, note, set } from "./dom.js";
import { clamp, max, min } from "./numbers.js";
import { SHADES, beside, pointing, scatter } from "./scatter.js";

const meta = JSON.parse(at("meta").textContent ?? "");
const heads = meta.heads;
/** The letters that stand for whole percents from 0 on. @type {Map<string, number>} */
const PERCENT = new Map([...meta.letters].map((letter, percent) => [letter, percent]));

/** What is chosen. metric, head, scan: their places; sorted: whether the heads stand by value; x, y, colour, size: names of quantities. */
const chosen = { metric: 0, head: 0, sorted: false, lang: meta.lang, x: meta.start[0], y: meta.start[1], colour: meta.scans.length > 1 ? "scan" : "layer", size: "" };
/** The places of the heads that are selected. @type {Set<number>} */
const selected = new Set();

/** A phrase of the page's language, its places filled by name. @param {string} name @param {Record<string, any>} values */
const say = (name, values = {}) => (meta.words[chosen.lang][name] ?? name).replace(/\{(\w+)\}/g, (/** @type {string} */ whole, /** @type {string} */ place) => String(values[place]));
/** The language after the one that is read: the button leads there. */
const nextLanguage = () => {
  const languages = Object.keys(meta.words);
  return languages[(languages.indexOf(chosen.lang) + 1) % languages.length];
};
/** The name of a label; behind it may stand an offset. @param {string} name */
const labelName = (name) => {
  const [, label, offset] = /^(.*?)( [-+]?\d+)?$/.exec(name) ?? [];
  return say(`label.${label}`) + (offset ?? "");
};

/** @param {number|null} value */
const number = (value) => (value === null ? "–" : value.toFixed(value !== 0 && value < 0.01 && value > -0.01 ? 4 : 3).replace(/^-(?=[0.]+$)/, ""));
/** @param {number|null} low @param {number|null} high */
const interval = (low, high) => (low === null || high === null ? "–" : `${number(low)} – ${number(high)}`);
/** A count, or a number with one digit after the point. @param {number|null} value */
const count = (value) => value?.toLocaleString("en") ?? "–";
/** @param {number|null} value */
const tenth = (value) => value?.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }) ?? "–";
/** @param {number} place */
const headName = (place) => say("head.name", { layer: heads[place].l, head: heads[place].h });
/** The name of a head with that of its scan, where there are several. @param {number} place */
const fullName = (place) => (meta.scans.length > 1 ? `${meta.scans[heads[place].s].name} · ${headName(place)}` : headName(place));

const NONE = [null, null, null, null, null, null, null];
/** A head's numbers of a metric: mean, low, high, by rows, sd, median, uniform. */
const numbersOf = (head, metric = chosen.metric) => heads[head].m[metric] ?? NONE;

/** Labels that any head earns, without their offsets. @type {string[]} */
const LABELS = [...new Set(heads.flatMap((head) => head.t.filter((one) => one[6]).map((one) => one[0].replace(/ [-+]?\d+$/, ""))))];

/** What a head has of a quantity: "layer", a metric's name, or "label:" and a label's. @param {number} place @param {string} name */
function quantity(place, name) {
  const head = heads[place];
  if (name === "layer") return head.l;
  if (name.startsWith("label:")) return head.t.find((one) => one[0].replace(/ [-+]?\d+$/, "") === name.slice(6))?.[1] ?? null;
  const metric = meta.metrics.indexOf(name);
  return metric < 0 ? null : numbersOf(place, metric)[0];
}

/** What a quantity is called. @param {string} name */
function quantityName(name) {
  if (name === "layer" || name === "scan" || name === "label" || name === "rule" || !name) return say(`quantity.${name || "same"}`);
  return name.startsWith("label:") ? say("quantity.score", { label: labelName(name.slice(6)) }) : name;
}

/** Whether a label says where a head rests, a state beside what it does. @param {string} name */
const isState = (name) => meta.states.includes(name);

/** The label that a head earns with the most to spare, a state only where it is all; "" for none. @param {number} place */
const bestLabel = (place) => {
  const earned = heads[place].t.filter((one) => one[6]).sort((a, b) => b[1] / b[7] - a[1] / a[7]).map((one) => one[0]);
  return (earned.find((name) => !isState(name)) ?? earned[0] ?? "").replace(/ [-+]?\d+$/, "");
};

/** The class of one of several kinds: eight colours, then the same as rings. @param {number} place */
const kindOf = (place) => `k${place % 8}${place % 16 > 7 ? " open" : ""}`;

/** The class of each head's colour, and what the classes stand for. */
function headColours() {
  const name = chosen.colour;
  if (name === "scan") return { kind: heads.map((head) => kindOf(head.s)), legend: meta.scans.map((scan, place) => [kindOf(place), scan.name]) };
  if (name === "label") {
    const kinds = new Map(LABELS.map((label, place) => [label, kindOf(place)]));
    const kind = heads.map((_, place) => { const label = bestLabel(place); return kinds.get(label) ?? "none"; });
    return { kind, legend: [...LABELS.map((label, place) => [kindOf(place), labelName(label)]), ["none", say("label.none")]] };
  }
  if (name === "rule") {
    const names = heads.map((head) => head.r?.[0][chosen.lang]), counts = new Map();
    for (const rule of names) if (rule) counts.set(rule, (counts.get(rule) ?? 0) + 1);
    const kinds = new Map([...counts].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([rule], place) => [rule, kindOf(place)]));
    return { kind: names.map((rule) => kinds.get(rule) ?? "none"), legend: [...[...kinds].map(([rule, kind]) => [kind, rule]), ["none", say("rule.other")]] };
  }
  const values = heads.map((_, place) => quantity(place, name)), there = values.filter((value) => value !== null);
  const low = min(...there), high = max(...there, low + 1e-9);
  const kind = values.map((value) => (value === null ? "none" : `c${min(Math.floor(((value - low) / (high - low)) * SHADES), SHADES - 1)}`));
  const ends = [...Array(SHADES).keys()].map((place) => [`c${place}`, place === 0 ? short(low) : place === SHADES - 1 ? short(high) : ""]);
  return { kind, legend: ends };
}

/** A number as short as an axis has it. @param {number} value */
const short = (value) => String(Number(value.toPrecision(3)));

function plot() {
  const all = [...heads.keys()];
  const [x, y] = [chosen.x, chosen.y].map((name) => all.map((place) => quantity(place, name)));
  const sizes = all.map((place) => (chosen.size ? quantity(place, chosen.size) : null)), there = sizes.filter((value) => value !== null);
  const low = min(0, ...there), high = max(...there, low + 1e-9);
  const { kind, legend } = headColours();
  const shown = scatter({ x, y, kind, names: [quantityName(chosen.x), quantityName(chosen.y)], size: sizes.map((value) => (value === null ? 0.04 : (value - low) / (high - low))), chosen: chosen.head, selected, tick: short });
  set(at("scatter"), { "aria-label": say("scatter.says", { x: quantityName(chosen.x), y: quantityName(chosen.y), head: fullName(chosen.head), a: number(quantity(chosen.head, chosen.x)), b: number(quantity(chosen.head, chosen.y)) }) });
  fill("plot-title", say("plot.title", { count: shown, x: quantityName(chosen.x), y: quantityName(chosen.y) }));
  fill("legend", say("legend", { name: quantityName(chosen.colour) }), " ", ...legend.map(([colour, text]) => make("span.key", make("i", { class: colour, "aria-hidden": true }), text)), ...(shown < heads.length ? [say("plot.without", { count: heads.length - shown })] : []));
}

/** What a head's overlap with its rules is called among the metrics. */
const RULES = "rule_overlap";
/** What colours may tell besides a quantity. */
const KINDS = [...(meta.scans.length > 1 ? ["scan"] : []), "label", ...(heads.some((one) => one.r) ? ["rule"] : [])];
const QUANTITIES = ["layer", ...meta.metrics, ...LABELS.map((label) => `label:${label}`)];
/** A list to choose a quantity from. @param {"x"|"y"|"colour"|"size"} what @param {string[]} more */
function picker(what, more) {
  const names = [...more, ...QUANTITIES];
  const list = make("select", { id: `pick-${what}`, onchange: () => choose({ [what]: names[list.selectedIndex] }) }, ...names.map((name) => make("option", { selected: name === chosen[what] }, quantityName(name))));
  return make("label.pick", say(`pick.${what}`), list);
}

/** Heads by label: what a line drawn around them does, for a keyboard. */
function labelPicker() {
  const list = make("select", { id: "pick-label", onchange: () => select(heads.map((_, place) => place).filter((place) => list.selectedIndex && heads[place].t.some((one) => one[6] && one[0].replace(/ [-+]?\d+$/, "") === LABELS[list.selectedIndex - 1])), false) }, make("option", say("pick.none")), ...LABELS.map((label) => make("option", labelName(label))));
  return make("label.pick", say("pick.label"), list);
}

/** What the page answers: of the heads that are selected, or of all. */
function answer() {
  const places = selected.size ? [...selected] : [...heads.keys()];
  const values = places.map((place) => quantity(place, chosen.x)).filter((value) => value !== null);
  const counts = new Map();
  let labelled = 0, resting = 0, both = 0;
  for (const place of places) {
    const earned = heads[place].t.filter((one) => one[6]).map((one) => one[0]);
    const names = new Set(earned.filter((name) => !isState(name)).map((name) => name.replace(/ [-+]?\d+$/, "")));
    labelled += names.size ? 1 : 0;
    if (earned.some(isState)) {
      resting += 1;
      both += names.size ? 1 : 0;
    }
    for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const [name, count] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
  const told = { count: places.length, heads: heads.length, x: quantityName(chosen.x), labelled, label: name ? labelName(name) : "", most: count, resting, both };
  if (!values.length) return say(selected.size ? "answer.selected.bare" : "answer.all.bare", told);
  const spread = { mean: number(values.reduce((a, b) => a + b, 0) / values.length), low: number(values.reduce((a, b) => min(a, b))), high: number(values.reduce((a, b) => max(a, b))) };
  const second = name ? say("answer.label", told) : say("answer.unlabelled", told);
  return [say(selected.size ? "answer.selected" : "answer.all", { ...told, ...spread }), second, ...(resting ? [say("answer.rest", told)] : [])].reduce((first, second) => say("answer.both", { first, second }));
}

/** The heads of the scan whose head is chosen. */
const own = () => [...heads.keys()].filter((place) => heads[place].s === heads[chosen.head].s);

/** The smallest and the largest number of the grid. */
function range() {
  const values = own().flatMap((head) => numbersOf(head).slice(0, 3)).filter((value) => value !== null);
  const low = min(0, ...values);
  return [low, max(...values, low + 1e-9)];
}

function order() {
  const places = own();
  return chosen.sorted ? places.sort((a, b) => (numbersOf(b)[0] ?? -1e9) - (numbersOf(a)[0] ?? -1e9)) : places;
}

function tile(place, low, high) {
  const head = heads[place];
  const [mean, from, to] = numbersOf(place);
  const share = (value) => clamp((value - low) / (high - low), 1);
  const shown = [`L${head.l} H${head.h}`, mean === null ? "–" : mean.toFixed(2)];
  const kind = `head${selected.size && !selected.has(place) ? " faint" : ""}`;
  const found = button(() => choose({ head: place }), { class: kind, "aria-pressed": place === chosen.head, "data-head": place, tabindex: place === chosen.head ? 0 : -1 }, make("small", shown[0]), " ", make("b", shown[1]));
  if (mean !== null) found.style.setProperty("--a", String(share(mean)));
  const spread = make("span.spread", { "aria-hidden": true });
  if (from !== null && to !== null) {
    const inner = make("i");
    inner.style.left = `${share(from) * 100}%`;
    inner.style.width = `${(share(to) - share(from)) * 100}%`;
    spread.append(inner);
  }
  found.append(spread);
  return set(found, { "aria-label": `${shown.join(" ")} · ${headName(place)}: ${number(mean)} (${interval(from, to)})`, title: `L${head.l} H${head.h}: ${number(mean)} (${interval(from, to)})` });
}

function grid() {
  const [low, high] = range(), places = order();
  const across = max(...places.map((place) => heads[place].h)) + 1;
  const inside = [];
  let layer = -1;
  for (const place of places) {
    const head = heads[place];
    if (!chosen.sorted && head.l !== layer) {
      layer = head.l;
      inside.push(make("span.layer", layer));
      inside[inside.length - 1].style.gridColumn = "1";
    }
    inside.push(tile(place, low, high));
  }
  const box = set(at("grid"), { class: chosen.sorted ? "sorted" : "" });
  box.style.setProperty("--across", String(across));
  fill("grid", ...inside);
  fill("heads-title", say(meta.metrics[chosen.metric] === RULES ? "heads.rules" : "heads.title", { count: places.length, metric: meta.metrics[chosen.metric] }));
  fill("range", say("range", { lowest: number(low), highest: number(high) }));
}

/** The words of a text: [text, joined, special] each. @param {string} packed */
const wordsOf = (packed) => packed.split("\n").map((word) => [word.slice(1), Number(word[0]) & 1, Number(word[0]) & 2]);

/** A text, shaded by where the head looks from the token of its strongest link. */
function sentence([stratum, value, place]) {
  const [text, query, packed] = heads[chosen.head].w[place];
  const [words, source] = [wordsOf(meta.texts[text][0]), meta.texts[text][1]];
  const row = [...packed].map((letter) => PERCENT.get(letter) ?? 0);
  const most = max(...row, 1);
  const told = words.map(([word, joined, special], at) => {
    const kinds = ["w", joined ? "joined" : "", special ? "special" : "", at === query ? "from" : ""].filter(Boolean).join(" ");
    const made = make("span", { class: kinds, title: row.length ? `${row[at]}%` : false }, word);
    if (row.length) made.style.setProperty("--a", String((row[at] / most) * 0.85));
    return [joined || at === 0 ? "" : " ", made];
  });
  const name = stratum === 0 ? "" : stratum === 11 ? `${say("stratum.any")} · ` : `${say("stratum.tenth", { tenth: stratum })} · `;
  return make("div.example", make("p.words", { dir: direction(words) }, ...told.flat()), make("p.note", `${name}${number(value)} · ${source}`));
}

function examples() {
  const found = heads[chosen.head].x[chosen.metric] ?? [], metric = meta.metrics[chosen.metric];
  const strongest = found.filter(([stratum]) => stratum === 0), others = found.filter(([stratum]) => stratum > 0);
  return [
    make("h3", say("examples", { metric })), note(strongest.length ? say("examples.note") : say("examples.none")), ...strongest.map(sentence),
    ...(others.length ? [make("h3", say("deciles", { metric })), note(say("deciles.note")), ...others.map(sentence)] : []),
  ];
}

/** @param {string} name @param {string[]} columns @param {HTMLElement[]} rows */
function table(name, columns, rows) {
  const head = make("tr", ...columns.map((text) => (text ? make("th", { scope: "col" }, text) : make("td"))));
  return make("div.wide", { tabindex: 0, role: "region", "aria-label": name }, make("table.figures", make("thead", head), make("tbody", ...rows)));
}

function figures() {
  const rows = meta.metrics.map((name, place) => {
    const [mean, low, high, byRows, sd, median, uniform] = numbersOf(chosen.head, place);
    const cells = [number(mean), interval(low, high), number(byRows), number(sd), number(median), number(uniform)];
    return make("tr", { class: place === chosen.metric ? "marked" : "" }, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", cell)));
  }).filter((_, place) => meta.metrics[place] !== RULES);
  return [make("h3", say("metrics")), table(say("metrics"), ["metric", "mean", "interval", "rows", "sd", "median", "uniform"].map((name) => say(`column.${name}`)), rows)];
}

function labels() {
  const rows = heads[chosen.head].t.map(([name, score, low, high, texts, between]) =>
    make("tr", make("th", { scope: "row" }, labelName(name)), ...[number(score), interval(low, high), texts ?? say("repeats"), between ? say(low === null ? "undecided" : "borderline") : ""].map((cell) => make("td", cell))));
  return rows.length ? [make("h3", say("labels")), table(say("labels"), [...["label", "score", "interval", "texts"].map((name) => say(`column.${name}`)), ""], rows)] : [];
}

/** Which simple rules say how much of the head. */
function rules() {
  const rule = heads[chosen.head].r;
  return rule ? [make("h3", say("rules")), make("p", { id: "rule" }, rule[1][chosen.lang])] : [];
}

/** What the head looks at by kind of token and by distance, beside what uniform attention would. */
function kinds() {
  const rows = Object.keys(meta.words[chosen.lang]).filter((name) => name.startsWith("kind.")).flatMap((name) => {
    const metric = meta.metrics.indexOf(name.slice(5));
    if (metric < 0) return [];
    const [mean, low, high, , , , uniform] = numbersOf(chosen.head, metric);
    return [make("tr", make("th", { scope: "row" }, say(name)), ...[number(mean), interval(low, high), number(uniform)].map((cell) => make("td", cell)))];
  });
  return rows.length ? [make("h3", say("kinds")), note(say("kinds.note")), table(say("kinds"), ["kind", "weight", "interval", "chance"].map((name) => say(`column.${name}`)), rows)] : [];
}

/** How many massive activations leave each layer of the scan, the chosen head's marked. */
function layers() {
  const head = heads[chosen.head], rows = meta.scans[head.s].layers.map(([layer, mean, low, high, texts]) =>
    make("tr", { class: layer === head.l ? "marked" : "" }, make("th", { scope: "row" }, layer), ...[number(mean), interval(low, high), texts ?? "–"].map((cell) => make("td", cell))));
  return rows.length ? [make("h3", say("massive")), note(say("massive.note")), table(say("massive"), ["layer", "mean", "interval", "share"].map((name) => say(`column.${name}`)), rows)] : [];
}

/** Which tokens the head's strongest links go between, beside what chance would make. */
function links() {
  const rows = (heads[chosen.head].k ?? []).map(([query, key, least, most, chance, lift, low, high, texts]) =>
    make("tr", make("th", { scope: "row" }, make("bdi", meta.tokens[query]), " → ", make("bdi", meta.tokens[key])), ...[most > least ? `${count(least)} – ${count(most)}` : count(least), tenth(chance), tenth(lift), low === null ? "–" : `${tenth(low)} – ${tenth(high)}`, texts].map((cell) => make("td", cell))));
  return rows.length ? [make("h3", say("links")), note(say("links.note", { rows: meta.scans[heads[chosen.head].s].rows })), table(say("links"), ["pair", "links", "chance", "lift", "interval", "share"].map((name) => say(`column.${name}`)), rows)] : [];
}

/** Why the head looks where it looks most: parts of the words that look, and of those looked at, with their shares. */
function reasons() {
  const why = heads[chosen.head].y;
  if (!why) return [];
  const sides = ["why.asks", "why.answers"].map((name, place) => {
    const rows = why.sides[place].map(([names, share, low, high]) =>
      make("tr", make("th", { scope: "row" }, names[chosen.lang]), make("td", number(share)), make("td", interval(low, high))));
    return table(say(name), [say(name), say("column.why"), say("column.interval")], rows);
  });
  const told = why.advantage === null ? say("why.none") : say("why.note", { texts: why.texts, advantage: number(why.advantage) });
  return [make("h3", say("why")), note(told), ...(why.advantage === null ? [] : sides)];
}

/** The same head in the other scans, where they have as many heads. */
function others() {
  const head = heads[chosen.head], shape = meta.scans[head.s].shape;
  const alike = meta.scans.map((_, scan) => scan).filter((scan) => meta.scans[scan].shape === shape);
  if (alike.length < 2) return [];
  const places = alike.map((scan) => heads.findIndex((one) => one.s === scan && one.l === head.l && one.h === head.h));
  const rows = meta.metrics.map((name, metric) => make("tr", make("th", { scope: "row" }, name), ...places.map((place) => { const [mean, low, high] = numbersOf(place, metric); return make("td", low === null ? number(mean) : `${number(mean)} (${interval(low, high)})`); })));
  return [make("h3", say("others")), table(say("others"), [say("column.metric"), ...alike.map((scan) => meta.scans[scan].name)], rows)];
}

/** The heads that do most of the same, and those whose weights read and write most of the same. */
function alike() {
  const [texts, doing, weights, chance] = heads[chosen.head].a ?? [0, [], [], null];
  const rows = [...Array(max(doing.length, weights.length)).keys()].map((place) => {
    const cells = [doing[place], weights[place]].flatMap((one) => (one ? [`L${one[0]} H${one[1]}`, number(one[2])] : ["", ""]));
    return make("tr", make("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((cell) => make("td", cell)));
  });
  return rows.length ? [make("h3", say("alike")), note(say("alike.note", { texts, chance: number(chance) })), table(say("alike"), ["doing", "distance", "weights", "kernel"].map((name) => say(`column.${name}`)), rows)] : [];
}

function draw() {
  const head = heads[chosen.head], scan = meta.scans[head.s];
  document.documentElement.lang = chosen.lang;
  fill("language", meta.words[nextLanguage()].language);
  fill("line", meta.scans.map((one) => say("line", { model: one.name, texts: one.texts, tokens: one.tokens })).join(" / "));
  fill("axes", picker("x", []), picker("y", []), picker("colour", KINDS), picker("size", [""]));
  if (LABELS.length && !at("pick-label")) fill("selecting", labelPicker(), button(() => select([], false), { class: "link", id: "clear" }, say("clear")));
  fill("answer", answer());
  plot();
  const metrics = make("select", { onchange: () => choose({ metric: picked.selectedIndex }), id: "metric" }, ...meta.metrics.map((name, place) => make("option", { selected: place === chosen.metric }, name)));
  const picked = metrics;
  const scans = make("select", { onchange: () => choose({ head: heads.findIndex((one) => one.s === scans.selectedIndex) }), id: "scan" }, ...meta.scans.map((one, place) => make("option", { selected: place === head.s }, one.name)));
  fill("order", ...(meta.scans.length > 1 ? [make("label.pick", say("quantity.scan"), scans)] : []), make("label.pick", say("metric"), metrics), button(() => choose({ sorted: !chosen.sorted }), { class: "link", "aria-pressed": chosen.sorted, id: "sorted" }, say("sorted")));
  grid();
  fill("chosen", headName(chosen.head));
  fill("of", meta.scans.length > 1 ? scan.name : "");
  fill("labels", ...head.t.map((one) => make("span.label", labelName(one[0]))));
  fill("view", ...labels(), ...rules(), ...kinds(), ...reasons(), ...links(), ...examples(), ...alike(), ...figures(), ...layers(), ...others());
  fill("notes", ...meta.notes.map((text) => make("li", text[chosen.lang])));
  fill("said", `${fullName(chosen.head)}: ${meta.metrics[chosen.metric]} ${number(numbersOf(chosen.head)[0])}${selected.has(chosen.head) ? ` · ${say("selected")}` : ""}`);
}

/** Choose, draw, and keep it in the address. */
function choose(next) {
  const held = document.activeElement?.closest("#grid") ? "grid" : document.activeElement?.id;
  if (next.lang && next.lang !== chosen.lang) fill("selecting");
  Object.assign(chosen, next);
  draw();
  if (held === "grid") focus();
  else if (held) at(held)?.focus();
  try {
    const head = heads[chosen.head];
    const scan = meta.scans.length > 1 ? `&scan=${head.s}` : "";
    const seen = ["x", "y", "colour", "size"].map((name) => (chosen[name] ? `&${name}=${encodeURIComponent(chosen[name])}` : "")).join("");
    history.replaceState(null, "", `#head=${head.l}.${head.h}${scan}&metric=${encodeURIComponent(meta.metrics[chosen.metric])}${seen}&lang=${chosen.lang}`);
  } catch {
    // a page without an address of its own
  }
}

/** Select heads, or add them to those that are. @param {number[]} places @param {boolean} more */
function select(places, more) {
  if (!more) selected.clear();
  for (const place of places) selected.add(place);
  choose({});
}

const focus = () => /** @type {HTMLElement|null} */ (document.querySelector(`#grid [data-head="${chosen.head}"]`))?.focus();

/** What the address asks for; what it does not know is left out. */
function begin() {
  const asked = new Map();
  for (const part of location.hash.slice(1).split("&")) {
    const [name, value = ""] = part.split("=");
    try {
      asked.set(name, decodeURIComponent(value));
    } catch {
      // no address that a page has written
    }
  }
  const scan = Number(asked.get("scan") ?? heads[chosen.head]?.s ?? 0);
  const head = heads.findIndex((one) => one.s === scan && `${one.l}.${one.h}` === asked.get("head"));
  const metric = meta.metrics.indexOf(asked.get("metric"));
  if (head >= 0) chosen.head = head;
  if (metric >= 0) chosen.metric = metric;
  for (const what of /** @type {("x"|"y"|"colour"|"size")[]} */ (["x", "y", "colour", "size"])) {
    const name = asked.get(what);
    if (QUANTITIES.includes(name) || (what === "colour" && KINDS.includes(name))) chosen[what] = name;
  }
  if (meta.words[asked.get("lang") ?? ""] && asked.get("lang") !== chosen.lang) {
    chosen.lang = asked.get("lang");
    fill("selecting");
  }
  draw();
}

const ARROWS = new Map([["ArrowLeft", [-1, 0]], ["ArrowRight", [1, 0]], ["ArrowUp", [0, -1]], ["ArrowDown", [0, 1]]]);

at("language").addEventListener("click", () => choose({ lang: nextLanguage() }));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLSelectElement) return;
  const places = order();
  const here = places.indexOf(chosen.head);
  const across = chosen.sorted ? 1 : places.filter((place) => heads[place].l === heads[chosen.head].l).length;
  const inside = document.activeElement?.closest("#grid"), plotted = document.activeElement?.id === "scatter";
  const steps = new Map([[",", -1], [".", 1], ...(inside ? [["ArrowLeft", -1], ["ArrowRight", 1], ["ArrowUp", -across], ["ArrowDown", across]] : [])]);
  const step = steps.get(event.key), arrow = ARROWS.get(event.key);
  if (step) choose({ head: places[clamp(here + step, places.length - 1)] });
  else if (plotted && arrow) choose({ head: beside(chosen.head, arrow[0], arrow[1]) });
  else if (plotted && (event.key === " " || event.key === "Enter")) {
    if (selected.has(chosen.head)) selected.delete(chosen.head);
    else selected.add(chosen.head);
    choose({});
  } else if (event.key === "Escape" && selected.size) select([], false);
  else if (event.key === "[" || event.key === "]") choose({ metric: clamp(chosen.metric + (event.key === "]" ? 1 : -1), meta.metrics.length - 1) });
  else return;
  event.preventDefault();
});
pointing({
  tell: (place) => [fullName(place), ...[chosen.x, chosen.y].map((name) => `${quantityName(name)} ${number(quantity(place, name))}`), ...heads[place].t.filter((one) => one[6]).map((one) => labelName(one[0]))].join(" · "),
  choose: (head) => choose({ head }),
  select,
});
addEventListener("hashchange", begin);
begin();
