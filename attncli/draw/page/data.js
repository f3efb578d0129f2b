/** @type {import("./types.js").Meta} */
export const meta = JSON.parse(document.getElementById("meta")?.textContent ?? "{}");

/** What was unpacked, by id. @type {Map<string, Promise<ArrayBuffer>>} */
const unpacked = new Map();

const parsed = new Promise((done) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", done);
  else done(null);
});

/** The bytes behind base64. @param {string} text @returns {Uint8Array<ArrayBuffer>} */
function bytes(text) {
  if ("fromBase64" in Uint8Array) return /** @type {any} */ (Uint8Array).fromBase64(text);
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) found[at] = raw.charCodeAt(at);
  return found;
}

/** @param {string} id */
async function unpack(id) {
  if (!document.getElementById(id)) await parsed;
  const packed = bytes(document.getElementById(id)?.textContent ?? "");
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
}

/** A block of the page's data, unpacked once. @param {string} id */
export function block(id) {
  let found = unpacked.get(id);
  if (!found) unpacked.set(id, (found = unpack(id)));
  return found;
}

/** 16-bit numbers whose high bytes come first, then their low ones. @param {Uint8Array} planes */
export function joined(planes) {
  const found = new Uint16Array(planes.length / 2);
  for (let at = 0; at < found.length; at++) found[at] = (planes[at] << 8) | planes[found.length + at];
  return found;
}
