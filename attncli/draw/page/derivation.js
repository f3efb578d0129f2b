import { meta } from "./data.js";
import { bar, fill, lead, make, note } from "./dom.js";
import { abs, largest } from "./numbers.js";
import { keys, queries, state } from "./state.js";
import { parts, sees, values, weightsOf } from "./weights.js";
import { nameOf, say, signed, told } from "./words.js";

/** The class of what the tour tells of. @param {string} step */
const now = (step) => (step && step === meta.tour[state.tour - 1] ? "now" : "");

/** Keys with a line of their own. */
const TERMS = 6;

/** What leaves the head: each value times its weight, and their sum. @param {{all: Float32Array, shown: number, width: number, digits: number}} passed @param {Float32Array} row */
function sum({ all, shown, width, digits }, row) {
  const most = largest(row, TERMS);
  const seen = [...row.keys()].filter((key) => row[key] > 0);
  const [first, rest] = [true, false].map((among) => seen.filter((key) => most.includes(key) === among));
  const total = (/** @type {number[]} */ keys) => [keys.reduce((sum, key) => sum + row[key], 0), ...Array.from({ length: shown }, (_, c) => keys.reduce((sum, key) => sum + row[key] * all[key * shown + c], 0))];
  const line = (/** @type {string} */ name, /** @type {number[]} */ of) => make("tr", make("th", { scope: "row" }, name), ...of.map((value, at) => make("td", signed(value, at ? digits : 3))));
  return make("table", { class: `terms ${now("output")}` },
    make("caption", say("values.title", { shown, count: width })),
    make("thead", make("tr", make("td"), ...["w", ...Array(shown).keys()].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", ...first.map((key) => line(nameOf(key, keys()), total([key]))), rest.length ? line(say("values.others", { count: rest.length }), total(rest)) : ""),
    make("tfoot", line("o", total(seen))));
}

/** Why a query looks at a key: q·k dimension by dimension, then scale, cap, bias and softmax. */
export async function derive() {
  const { run, head: chosen, query: i, key: j } = state;
  const [found, passed, weights] = await Promise.all([parts(run, chosen), values(run, chosen), weightsOf(run, chosen)]);
  if (state.view !== "derivation" || chosen !== state.head || i !== state.query || j !== state.key) return;
  if (!found) return fill("view", lead(say("derivation.none")));
  const { d, n, m, scale, cap, bias, lse, bits } = found;
  const [q, k] = [found.q.subarray(i * d, (i + 1) * d), found.k.subarray(j * d, (j + 1) * d)];
  const products = q.map((value, c) => value * k[c]);
  const raw = products.reduce((sum, term) => sum + term, 0);
  const scaled = raw * scale;
  const capped = cap === null ? scaled : cap * Math.tanh(scaled / cap);
  const added = bias ? bias[j - i + n - 1] : 0;
  const seen = sees(bits, m, i, j);
  const weight = !seen ? -1 : lse[i] === -Infinity ? 0 : Math.exp(capped + added - lse[i]);
  const steps = [["q·k", signed(raw), say("step.raw", { count: d }), "similarity"], [`× ${signed(scale, 4)}`, signed(scaled), say("step.scale"), "scale"]];
  if (cap !== null) steps.push([`${cap}·tanh(s/${cap})`, signed(capped), say("step.cap")]);
  if (bias) steps.push([`+ ${signed(added)}`, signed(capped + added), say("step.bias")]);
  steps.push(seen ? [`exp(s − ${signed(lse[i])})`, told(weight), say("step.softmax"), "softmax"] : ["−∞", "0", say("step.hidden"), "mask"]);
  const sizes = products.map(abs);
  const sorted = largest(sizes, d);
  fill("view",
    make("p.pair", make("bdi", nameOf(i, queries())), make("span.to", " → "), make("bdi", nameOf(j, keys())), make("b", told(weight))),
    make("ol.steps", ...steps.map(([what, value, why, step = ""]) => make("li", { class: now(step) }, make("code", what), make("b", value), make("span", why)))),
    note(say("derivation.note")),
    ...(passed && weights ? [sum(passed, weights.row(i))] : now("output") ? [note(say("values.none"))] : []),
    make("div.scroll", { class: "scroll tall", tabindex: 0 },
      make("table.terms",
        make("caption", say("derivation.terms")),
        make("thead", make("tr", ...["dim", "q", "k", "product"].map((name) => make("th", { scope: "col" }, say(`derivation.${name}`))), make("td"))),
        make("tbody", ...sorted.map((c) => make("tr", make("th", { scope: "row" }, c), ...[q[c], k[c], products[c]].map((value) => make("td", signed(value))),
          make("td.both", bar(sizes[c] / (sizes[sorted[0]] || 1), products[c] < 0 ? "in" : ""))))))));
}
