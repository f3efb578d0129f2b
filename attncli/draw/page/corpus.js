import { at, button, direction, fill, make, note, set } from "./dom.js";
import { clamp, max, min } from "./numbers.js";

const meta = JSON.parse(at("meta").textContent ?? "");

/** What is chosen. metric: its place; head: its place; sorted: whether the heads stand by value. */
const chosen = { metric: 0, head: 0, sorted: false, lang: meta.lang };

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
const number = (value) => (value === null ? "–" : value.toFixed(value !== 0 && value < 0.01 && value > -0.01 ? 4 : 3));
/** @param {number|null} low @param {number|null} high */
const interval = (low, high) => (low === null || high === null ? "–" : `${number(low)} – ${number(high)}`);

/** A head's numbers of the chosen metric: mean, low, high, by rows, sd, median, uniform. */
const numbersOf = (head, metric = chosen.metric) => meta.heads[head].m[metric] ?? [null, null, null, null, null, null, null];

/** The smallest and the largest number of the grid. */
function range() {
  const values = meta.heads.flatMap((_, head) => numbersOf(head).slice(0, 3)).filter((value) => value !== null);
  const low = min(0, ...values);
  return [low, max(...values, low + 1e-9)];
}

function order() {
  const places = [...meta.heads.keys()];
  return chosen.sorted ? places.sort((a, b) => (numbersOf(b)[0] ?? -1e9) - (numbersOf(a)[0] ?? -1e9)) : places;
}

function tile(place, low, high) {
  const head = meta.heads[place];
  const [mean, from, to] = numbersOf(place);
  const share = (value) => clamp((value - low) / (high - low), 1);
  const found = button(() => choose({ head: place }), { class: "head", "aria-pressed": place === chosen.head, "data-head": place, tabindex: place === chosen.head ? 0 : -1 }, make("small", `L${head.l} H${head.h}`), make("b", mean === null ? "–" : mean.toFixed(2)));
  if (mean !== null) found.style.setProperty("--a", String(share(mean) * 0.75));
  const spread = make("span.spread", { "aria-hidden": true });
  if (from !== null && to !== null) {
    const inner = make("i");
    inner.style.left = `${share(from) * 100}%`;
    inner.style.width = `${(share(to) - share(from)) * 100}%`;
    spread.append(inner);
  }
  found.append(spread);
  return set(found, { "aria-label": `${say("head.name", { layer: head.l, head: head.h })}: ${number(mean)} (${interval(from, to)})`, title: `L${head.l} H${head.h}: ${number(mean)} (${interval(from, to)})` });
}

function grid() {
  const [low, high] = range();
  const across = max(...meta.heads.map((head) => head.h)) + 1;
  const inside = [];
  let layer = -1;
  for (const place of order()) {
    const head = meta.heads[place];
    if (!chosen.sorted && head.l !== layer) {
      layer = head.l;
      inside.push(make("span.layer", { style: false }, layer));
      inside[inside.length - 1].style.gridColumn = "1";
    }
    inside.push(tile(place, low, high));
  }
  const box = set(at("grid"), { class: chosen.sorted ? "sorted" : "" });
  box.style.setProperty("--across", String(across));
  fill("grid", ...inside);
  fill("heads-title", say("heads.title", { count: meta.heads.length, metric: meta.metrics[chosen.metric] }));
  fill("range", say("range", { lowest: number(low), highest: number(high) }));
}

function sentence(example) {
  const [value, text, query, row] = example;
  const [words, place] = meta.texts[text];
  const most = max(...row, 1);
  const said = words.map(([word, joined, special], at) => {
    const kinds = ["w", joined ? "joined" : "", special ? "special" : "", at === query ? "from" : ""].filter(Boolean).join(" ");
    const made = make("span", { class: kinds, title: row.length ? `${row[at]}%` : false }, word);
    if (row.length) made.style.setProperty("--a", String((row[at] / most) * 0.85));
    return [joined || at === 0 ? "" : " ", made];
  });
  return make("div.example", make("p.words", { dir: direction(words) }, ...said.flat()), make("p.note", `${number(value)} · ${place}`));
}

function examples() {
  const found = meta.heads[chosen.head].x[chosen.metric] ?? [];
  return [make("h3", say("examples", { metric: meta.metrics[chosen.metric] })), note(found.length ? say("examples.note") : say("examples.none")), ...found.map(sentence)];
}

function table(columns, rows) {
  const head = make("tr", ...columns.map((name) => make("th", { scope: "col" }, name)));
  return make("div.wide", make("table.figures", make("thead", head), make("tbody", ...rows)));
}

function figures() {
  const rows = meta.metrics.map((name, place) => {
    const [mean, low, high, byRows, sd, median, uniform] = numbersOf(chosen.head, place);
    const cells = [number(mean), interval(low, high), number(byRows), number(sd), number(median), number(uniform)];
    return make("tr", { "aria-selected": place === chosen.metric }, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", cell)));
  });
  return [make("h3", say("metrics")), table(["metric", "mean", "interval", "rows", "sd", "median", "uniform"].map((name) => say(`column.${name}`)), rows)];
}

function labels() {
  const rows = meta.heads[chosen.head].t.map(([name, score, low, high, texts, from, to, between]) =>
    make("tr", make("th", { scope: "row" }, labelName(name)), ...[number(score), interval(low, high), texts === null ? say("repeats") : `${Math.round(texts * 100)}% (${Math.round(from * 100)} – ${Math.round(to * 100)})`, between ? say(low === null ? "undecided" : "borderline") : ""].map((cell) => make("td", cell))));
  return rows.length ? [make("h3", say("labels")), table(["label", "score", "interval", "texts", "between"].map((name) => say(`column.${name}`)), rows)] : [];
}

function draw() {
  const head = meta.heads[chosen.head];
  document.documentElement.lang = chosen.lang;
  fill("language", meta.words[nextLanguage()].language);
  fill("line", say("line", { model: meta.model, texts: meta.texts_done, tokens: meta.tokens }));
  const metrics = make("select", { onchange: () => choose({ metric: picked.selectedIndex }), id: "metric" }, ...meta.metrics.map((name, place) => make("option", { selected: place === chosen.metric }, name)));
  const picked = metrics;
  fill("order", make("label.pick", say("metric"), metrics), button(() => choose({ sorted: !chosen.sorted }), { class: "link", "aria-pressed": chosen.sorted, id: "sorted" }, say("sorted")));
  grid();
  fill("chosen", say("head.name", { layer: head.l, head: head.h }));
  fill("labels", ...head.t.map((one) => make("span.label", labelName(one[0]))));
  fill("view", ...examples(), ...figures(), ...labels());
  fill("notes", ...meta.notes.map((text) => make("li", text[chosen.lang])));
  fill("said", `${say("head.name", { layer: head.l, head: head.h })}: ${meta.metrics[chosen.metric]} ${number(numbersOf(chosen.head)[0])}`);
}

/** Choose, draw, and keep it in the address. */
function choose(next) {
  const held = document.activeElement?.closest("#grid") ? "grid" : document.activeElement?.id;
  Object.assign(chosen, next);
  draw();
  if (held === "grid") focus();
  else if (held) at(held)?.focus();
  try {
    const head = meta.heads[chosen.head];
    history.replaceState(null, "", `#h=${head.l}.${head.h}&m=${meta.metrics[chosen.metric]}&g=${chosen.lang}`);
  } catch {
    // a page without an address of its own
  }
}

const focus = () => /** @type {HTMLElement|null} */ (document.querySelector(`#grid [data-head="${chosen.head}"]`))?.focus();

/** What the address asks for; what it does not know is left out. */
function begin() {
  const asked = new Map(location.hash.slice(1).split("&").map((part) => /** @type {[string, string]} */ (part.split("="))));
  const head = meta.heads.findIndex((one) => `${one.l}.${one.h}` === asked.get("h"));
  const metric = meta.metrics.indexOf(asked.get("m"));
  if (head >= 0) chosen.head = head;
  if (metric >= 0) chosen.metric = metric;
  if (meta.words[asked.get("g") ?? ""]) chosen.lang = asked.get("g");
  draw();
}

at("language").addEventListener("click", () => choose({ lang: nextLanguage() }));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLSelectElement) return;
  const places = order();
  const here = places.indexOf(chosen.head);
  const across = chosen.sorted ? 1 : places.filter((place) => meta.heads[place].l === meta.heads[chosen.head].l).length;
  const inside = document.activeElement?.closest("#grid");
  const steps = new Map([[",", -1], [".", 1], ...(inside ? [["ArrowLeft", -1], ["ArrowRight", 1], ["ArrowUp", -across], ["ArrowDown", across]] : [])]);
  const step = steps.get(event.key);
  if (step) choose({ head: places[clamp(here + step, places.length - 1)] });
  else if (event.key === "[" || event.key === "]") choose({ metric: clamp(chosen.metric + (event.key === "]" ? 1 : -1), meta.metrics.length - 1) });
  else return;
  event.preventDefault();
});
addEventListener("hashchange", begin);
begin();
