import { at, fill, set } from "./dom.js";
import { listenTable, speakTable } from "./table.js";

/** @type {{lang: string, words: Record<string, Record<string, string>>, name: string}} */
const meta = JSON.parse(at("meta").textContent ?? "{}");
let { lang } = meta;

/** Show what the page says in the reader's language. */
function speak() {
  const spoken = Object.keys(meta.words);
  const next = spoken[(spoken.indexOf(lang) + 1) % spoken.length];
  document.documentElement.lang = lang;
  speakTable(lang, (name) => meta.words[lang][name]);
  fill("language", meta.words[next].language);
  set(at("language"), { "data-next": next });
}

set(at("language"), { onclick: () => {
  lang = at("language").dataset.next ?? lang;
  speak();
} });
listenTable(meta.name);
speak();
