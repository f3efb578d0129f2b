import { all, at, button, fill, frameOf, make, set, sharpen, sized } from "./dom.js";
import { commaSeparated, save } from "./files.js";
import { abs, max, min } from "./numbers.js";
import { address, keys, queries, state } from "./state.js";
import { weightsOf } from "./weights.js";
import { full, say } from "./words.js";

/**
 * What a picture is made of, in pixels from its upper left corner: a rectangle, a map, a curve or a run of text.
 * @typedef {{x: number, y: number, wide: number, tall: number, fill: string, line?: string, round?: string,
 *   map?: HTMLCanvasElement, way?: string, thick?: string, faint?: string, text?: string, font?: string}} Shape
 */

/** What of the page a picture shows, from top to bottom. */
const PICTURED = ["#line", "#words", "#direction", "#chosen", "#view"];
/** What is for the pointer alone. */
const TOOLS = ".zoom, .sr, .plot i:not(.cell), datalist, option";
/** Between what is shown. */
const GAP = 14;

/** What is drawn of an element, cut where it scrolls. @param {Element} element @param {DOMRect} window what of it is in sight
 * @returns {Generator<Shape>} */
function* shapes(element, window) {
  const style = getComputedStyle(element);
  if (element.matches(TOOLS) || style.display === "none" || style.visibility === "hidden") return;
  const { x, y, width: wide, height: tall } = frameOf(element);
  const outside = (/** @type {number} */ left, /** @type {number} */ top, /** @type {number} */ right, /** @type {number} */ bottom) =>
    right < window.left || left > window.right || bottom < window.top || top > window.bottom;
  if (wide && outside(x, y, x + wide, y + tall)) return;
  const place = { x, y, wide, tall };
  if (style.backgroundColor !== "rgba(0, 0, 0, 0)") yield { ...place, fill: style.backgroundColor, round: style.borderTopLeftRadius };
  if (element.matches(".chosen")) yield { ...place, y: y + tall - 3, tall: 3, fill: style.getPropertyValue("--looks") };
  if (element.matches(".plot .cell")) yield { ...place, fill: "none", line: style.outlineColor };
  if (element instanceof HTMLCanvasElement) yield { ...place, fill: "", map: element };
  if (element instanceof SVGPathElement) {
    const { left, top } = frameOf(at("arcs"));
    yield { ...place, x: left, y: top, fill: style.stroke, way: element.getAttribute("d") ?? "", thick: style.strokeWidth, faint: style.strokeOpacity };
  }
  const font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  if (element instanceof HTMLInputElement) yield { ...place, fill: style.color, font, text: element.value };
  const inside = style.overflowY === "visible" ? window : frameOf(element);
  for (const node of element.childNodes) {
    if (node instanceof Element) yield* shapes(node, inside);
    else if (node.nodeType === 3) for (const { text, box } of lines(/** @type {Text} */ (node)))
      if (!outside(box.left, box.top, box.right, box.bottom)) yield { x: box.left, y: box.top, wide: box.width, tall: box.height, fill: style.color, font, text };
  }
}

/** A text line by line, as it is broken. @param {Text} node */
function lines(node) {
  const range = document.createRange();
  /** @type {{text: string, box: DOMRect}[]} */
  const found = [];
  for (const word of node.data.matchAll(/\S+/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const box = frameOf(range);
    const last = found[found.length - 1];
    if (last && abs(last.box.top - box.top) < 2) {
      const left = min(last.box.left, box.left);
      last.text += ` ${word[0]}`;
      last.box = new DOMRect(left, box.top, max(last.box.right, box.right) - left, box.height);
    } else found.push({ text: word[0], box });
  }
  return found;
}

/** Everything in view as shapes, one part below the other. */
function viewShapes() {
  /** @type {Shape[]} */
  const found = [];
  let [wide, tall] = [0, GAP];
  for (const selector of PICTURED) {
    const element = /** @type {Element} */ (document.querySelector(selector));
    const box = frameOf(element);
    if (!box.height) continue;
    for (const shape of shapes(element, box)) {
      const x = shape.x - box.left + GAP;
      found.push({ ...shape, x, y: shape.y - box.top + tall });
      wide = max(wide, x + shape.wide + GAP);
    }
    tall += box.height + GAP;
  }
  return { shapes: found, wide, tall, ground: getComputedStyle(document.body).backgroundColor };
}

/** A vector drawing of the view; its maps are images. */
function drawing() {
  const { shapes: all, wide, tall, ground } = viewShapes();
  const spaces = at("arcs").namespaceURI;
  // in a document that nobody sees: in the page's own its images would be loaded, and nothing is loaded here
  const paper = document.implementation.createDocument(spaces, null);
  const draw = (/** @type {string} */ name, /** @type {Record<string, any>} */ given, text = "") => {
    const element = set(paper.createElementNS(spaces, name), given);
    element.textContent = text;
    return element;
  };
  const root = draw("svg", { viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, role: "img" });
  root.append(draw("title", {}, document.title), draw("desc", {}, at("direction").textContent ?? ""), draw("rect", { width: wide, height: tall, fill: ground }));
  for (const { x, y, wide: width, tall: height, fill: ink, line, round, map, way, thick, faint, text, font } of all) {
    if (map) root.append(draw("image", { x, y, width, height, href: map.toDataURL(), preserveAspectRatio: "none" }));
    else if (way) root.append(draw("path", { d: way, transform: `translate(${x} ${y})`, fill: "none", stroke: ink, "stroke-width": thick, "stroke-opacity": faint }));
    else if (text) {
      const [, weight, size, family] = /^(\S+) (\S+) (.*)$/.exec(font ?? "") ?? [];
      root.append(draw("text", { x, y: y + height / 2, dy: ".35em", fill: ink, "font-weight": weight, "font-size": size, "font-family": family }, text));
    } else root.append(draw("rect", { x, y, width, height, fill: ink, stroke: line ?? "none", rx: parseFloat(round ?? "0") || 0 }));
  }
  return new XMLSerializer().serializeToString(root);
}

/** The same as dots. */
function painting() {
  const { shapes: all, wide, tall, ground } = viewShapes();
  const canvas = make("canvas");
  const pen = sized(canvas, wide, tall);
  pen.fillStyle = ground;
  pen.fillRect(0, 0, wide, tall);
  for (const { x, y, wide: width, tall: height, fill: ink, line, round, map, way, thick, faint, text, font } of all) {
    pen.fillStyle = pen.strokeStyle = ink;
    if (map) pen.drawImage(map, x, y, width, height);
    else if (way) {
      pen.save();
      pen.translate(x, y);
      pen.lineWidth = parseFloat(thick ?? "1");
      pen.globalAlpha = Number(faint);
      pen.stroke(new Path2D(way));
      pen.restore();
    } else if (text) {
      pen.font = font ?? "";
      pen.fillText(text, x, y + height / 2);
    } else if (line) {
      pen.strokeStyle = line;
      pen.strokeRect(x, y, width, height);
    } else {
      pen.beginPath();
      pen.roundRect(x, y, width, height, parseFloat(round ?? "0") || 0);
      pen.fill();
    }
  }
  return canvas;
}

/** The table of the view: its ranking, its table, or the head's weights by query and key. */
async function rows() {
  const lists = all("#view .found");
  if (lists.length) return lists.flatMap((list) => {
    const listed = [...list.querySelectorAll("button")].map(({ children: [name, , ...numbers] }) => [name, ...numbers].map(({ textContent }) => (textContent ?? "").replace("−", "-")));
    // what a remark calls its number stands above it
    const remark = /^(.*): (?=\S+$)/;
    return [[list.parentElement?.querySelector("h3")?.textContent ?? "", say("share.number"), listed[0]?.[2].match(remark)?.[1] ?? ""], ...listed.map(([name, number, rank]) => [name, number, rank.replace(remark, "")])];
  });
  const table = all("#view table tr");
  if (table.length) return table.map((row) => [...row.children].filter((cell) => !cell.matches(".both, thead td")).map(({ textContent }) => textContent ?? ""));
  const weights = await weightsOf(state.run, state.head);
  const names = weights ? keys().map(full) : [];
  /** @type {(string|number)[][]} */
  const found = [["", ...names]];
  for (let i = 0; weights && i < weights.n; i++) found.push([full(queries()[i]), ...Array.from(weights.row(i), (weight) => (weight < 0 ? "" : Number(weight.toPrecision(6))))]);
  return found;
}

/** Put a text where the reader can take it from; where the browser keeps the clipboard shut, it stands there to be copied.
 * @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    fill("shared", say("share.copied"));
  } catch {
    const field = make("input", { readonly: "", value: text, "aria-label": say("share.link") });
    fill("shared", field);
    field.select();
  }
}

/** The page's place with what is chosen. @param {string} more */
const link = (more = "") => location.href.split("#")[0] + address() + more;

/** What of this view can be taken along. @param {() => Promise<void>} redraw draws the view again */
export function showSharing(redraw) {
  const name = () => `attn-${state.view}`;
  /** @param {() => void} act */
  const sharp = async (act) => {
    sharpen(3);
    await redraw();
    act();
    sharpen(0);
    await redraw();
  };
  /** @type {[string, () => unknown][]} */
  const ways = [
    ["link", () => copy(link())],
    ["embed", () => copy(`<iframe src="${link("&embed=1")}" width="100%" height="300"></iframe>`)],
    ["svg", () => sharp(() => save(`${name()}.svg`, drawing(), "image/svg+xml"))],
    ["png", () => sharp(() => painting().toBlob((dots) => dots && save(`${name()}.png`, dots, "image/png")))],
    ["csv", async () => save(`${name()}.csv`, commaSeparated(await rows()), "text/csv")],
  ];
  fill("share", say("share"), ...ways.map(([way, act]) => button(() => void act(), { class: "link", id: `share-${way}` }, say(`share.${way}`))), make("span", { id: "shared", role: "status" }));
}
