import { at, fill, set } from "./dom.js";
import { commaSeparated, save } from "./files.js";

/** @type {{lang: string, words: Record<string, Record<string, string>>, name: string, rows: number, cut: boolean}} */
const meta = JSON.parse(at("meta").textContent ?? "{}");
let { lang } = meta;

/** A phrase in the reader's language. @param {string} name */
const say = (name) => meta.words[lang][name].replace("{count}", String(meta.rows));

/** Show what the page says in the reader's language. */
function speak() {
  const spoken = Object.keys(meta.words);
  const next = spoken[(spoken.indexOf(lang) + 1) % spoken.length];
  document.documentElement.lang = lang;
  document.querySelectorAll("section[lang]").forEach((section) => section.toggleAttribute("hidden", section.getAttribute("lang") !== lang));
  fill("language", meta.words[next].language);
  document.querySelector("summary")?.replaceChildren(say("table"));
  fill("csv", say("csv"));
  fill("cut", meta.cut ? say("cut") : "");
  set(at("rows"), { "aria-label": say("table") });
  set(at("language"), { "data-next": next });
}

/** The table as it stands, cell by cell. */
const rows = () => [...document.querySelectorAll("#rows tr")].map((row) => [...row.children].map((cell) => cell.textContent ?? ""));

set(at("language"), { onclick: () => {
  lang = at("language").dataset.next ?? lang;
  speak();
} });
set(at("csv"), { onclick: () => save(`attn-${meta.name}.csv`, commaSeparated(rows()), "text/csv") });
speak();
