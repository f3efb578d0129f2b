import { at, set } from "./dom.js";
import { commaSeparated, save } from "./files.js";

/** Say what a page without heads, or below them, says in a language: its sections, and the words beside its table.
 * @param {string} lang @param {(name: string) => string} say */
export function speakTable(lang, say) {
  document.querySelectorAll("section[lang]").forEach((section) => section.toggleAttribute("hidden", section.getAttribute("lang") !== lang));
  document.querySelectorAll("[data-word]").forEach((one) => one.replaceChildren(say(/** @type {HTMLElement} */ (one).dataset.word ?? "")));
  set(at("table-rows"), { "aria-label": say("table") });
}

/** The table as it stands, cell by cell. */
const tableCells = () => [...document.querySelectorAll("#table-rows tr")].map((row) => [...row.children].map((cell) => cell.textContent ?? ""));

/** Let the table be taken along. @param {string} name of the document */
export const listenTable = (name) => set(at("csv"), { onclick: () => save(`attn-${name}.csv`, commaSeparated(tableCells()), "text/csv") });
