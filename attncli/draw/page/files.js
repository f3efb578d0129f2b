import { make } from "./dom.js";

/** A cell of a table with commas: what a spreadsheet would take for a formula is text. @param {string|number} value */
function cell(value) {
  const text = String(value).replace("−", "-");
  const inert = /^[=@\t\r]|^[+-](?![\d.])/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}

/** Rows as a table with commas. @param {(string|number)[][]} rows */
export const commaSeparated = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

/** Keep something as a file of the reader's. @param {string} name @param {BlobPart} data @param {string} type */
export function save(name, data, type) {
  const href = URL.createObjectURL(new Blob([data], { type }));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}
