import { meta } from "./data.js";
import { at, button, fill, make } from "./dom.js";
import { clamp } from "./numbers.js";
import { choose, queries, state } from "./state.js";
import { nameOf, say } from "./words.js";

/** Where each step of the tour is seen: the first of these views that the page has; "" for none. @type {Record<string, string[]>} */
const SEEN = {
  sentence: ["matrix"], similarity: ["derivation"], scale: ["derivation"], mask: ["derivation"], softmax: ["derivation"],
  output: ["derivation", "links"], heads: ["search"], effect: ["effects"],
};
/** Milliseconds of a step while the tour plays. */
const LONG = 6000;

/** @type {ReturnType<typeof setInterval>|undefined} */
let playing;

/** Stop playing. */
function stopPlaying() {
  clearInterval(playing);
  playing = undefined;
}

/** Go to a step, which the address keeps; 0 leaves the tour. @param {number} number @param {string[]} views */
export function goTo(number, views) {
  const tour = clamp(number, meta.tour.length);
  if (!tour || tour === meta.tour.length) stopPlaying();
  const view = SEEN[meta.tour[tour - 1]]?.find((name) => views.includes(name));
  choose({ tour, ...(view ? { view, out: true } : {}) });
}

/** The words of the step that is shown, with the number that the derivation on the terminal gives it, and the ways on; nothing where no tour is taken. @param {string[]} views */
export function showTour(views) {
  const { tour } = state;
  const box = at("tour");
  const inside = box.contains(document.activeElement) ? document.activeElement?.id : "";
  const name = meta.tour[tour - 1] ?? "";
  box.hidden = !tour;
  fill("tour-open", say("tour"));
  const absent = name === "effect" && !views.includes("effects") ? ` ${say("tour.absent")}` : "";
  const play = () => {
    if (playing) stopPlaying();
    else playing = setInterval(() => goTo(state.tour + 1, views), LONG);
    showTour(views);
  };
  const way = (/** @type {string} */ id, /** @type {() => void} */ act) => button(act, { class: "link", id: `tour-${id}` }, say(`tour.${id === "play" && playing ? "pause" : id}`));
  const [title, lead] = [`title.${name}`, `lead.${name}`].map((one) => (one in meta.words.en ? say(one, { query: nameOf(state.query, queries()) }) : ""));
  fill("tour", make("b", tour > 1 ? say("tour.step", { number: tour - 1, total: meta.tour.length - 1, step: title }) : title),
    make("span", { role: "status" }, ...(lead ? [make("b", lead), " "] : []), say(`tour.${name}`) + absent),
    way("before", () => goTo(state.tour > 1 ? state.tour - 1 : 1, views)), way("on", () => goTo(state.tour + 1, views)), way("play", play), way("close", () => goTo(0, views)));
  if (inside) at(inside)?.focus();
}
