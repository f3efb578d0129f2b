import { at, bar, make } from "./dom.js";
import { head, keys, run, state } from "./state.js";
import { parts } from "./weights.js";
import { say, signed, told } from "./words.js";

/** Why a query looks at a key: q·k dimension by dimension, then scale, cap, bias and softmax. */
export async function derive() {
  const [chosen, i, j] = [state.head, state.query, state.key];
  const found = await parts(state.run, chosen);
  if (state.view !== "derivation" || chosen !== state.head || i !== state.query || j !== state.key) return;
  if (!found) return at("view").replaceChildren(make("p", { class: "empty" }, say("derivation.none")));
  const { d, n, m, scale, cap, bias, lse, bits } = found;
  const terms = Array.from({ length: d }, (_, c) => {
    const [a, b] = [found.q[i * d + c], found.k[j * d + c]];
    return { c, a, b, product: a * b };
  });
  const raw = terms.reduce((sum, term) => sum + term.product, 0);
  const seen = !bits || Boolean((bits[i * ((m + 7) >> 3) + (j >> 3)] >> (7 - (j & 7))) & 1);
  const scaled = raw * scale;
  const capped = cap === null ? scaled : cap * Math.tanh(scaled / cap);
  const added = bias ? bias[j - i + n - 1] : 0;
  const weight = !seen ? -1 : lse[i] === -Infinity ? 0 : Math.exp(capped + added - lse[i]);
  /** @type {[string, string, string][]} */
  const steps = [["q·k", signed(raw), say("step.raw", d)], [`× ${signed(scale, 4)}`, signed(scaled), say("step.scale")]];
  if (cap !== null) steps.push([`${cap}·tanh(s/${cap})`, signed(capped), say("step.cap")]);
  if (bias) steps.push([`+ ${signed(added)}`, signed(capped + added), say("step.bias")]);
  if (seen) steps.push([`exp(s − ${signed(lse[i])})`, told(weight), say("step.softmax")]);
  else steps.push(["−∞", "0", say("step.hidden")]);
  const largest = Math.max(...terms.map((term) => Math.abs(term.product)), 1e-9);
  const sorted = [...terms].sort((x, y) => Math.abs(y.product) - Math.abs(x.product));
  const rows = sorted.map((term) =>
    make("tr", {}, make("th", { scope: "row" }, String(term.c)), make("td", {}, signed(term.a)), make("td", {}, signed(term.b)),
      make("td", {}, signed(term.product)), make("td", { class: "both" }, bar(Math.abs(term.product) / largest, term.product < 0 ? "less" : "more"))));
  at("view").replaceChildren(
    make("h3", { class: "pair" }, run().q[i][0], make("span", { class: "to" }, " → "), keys()[j][0], make("b", {}, told(weight))),
    make("ol", { class: "steps" }, ...steps.map(([what, value, why]) =>
      make("li", {}, make("code", {}, what), make("b", {}, value), make("span", {}, why)))),
    make("p", { class: "note" }, say("derivation.note", head().l, head().h)),
    make("div", { class: "scroll tall", tabindex: 0 },
      make("table", { class: "terms" },
        make("caption", {}, say("derivation.terms")),
        make("thead", {}, make("tr", {}, ...["derivation.dim", "derivation.q", "derivation.k", "derivation.product"].map((name) => make("th", { scope: "col" }, say(name))), make("td"))),
        make("tbody", {}, ...rows))),
  );
}
