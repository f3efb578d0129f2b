/**
 * How a text is cut into tokens by the tokenizers without a vocabulary file, and by those of whole words or characters:
 * the rules of `inputs/graphemes.py`, `inputs/script_words.py` and `inputs/tokenize.py`.
 */
const BLANK = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/u;
const BLANKS = /[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/gu;
const ALWAYS_ALONE = /[\p{Cc}\p{Zl}\p{Zp}\p{Zs}\p{Cs}]/u;
const EXTENDING = /[\u0e33\u0eb3\uff9e\uff9f\u{1f3fb}-\u{1f3ff}\u200c\u200d\p{M}\u{e0020}-\u{e007f}]/u;
const FLAG = /[\u{1f1e6}-\u{1f1ff}]/u;
const PICTURE = /(?![\u{1f1e6}-\u{1f1ff}])[\p{So}\u{1f000}-\u{1faff}\u2190-\u21ff]/u;
/** A letter, digit or mark, or what else joins the character before it. */
const isOfWord = (/** @type {string} */ char) => /[\p{L}\p{N}\p{M}_]/u.test(char) || (EXTENDING.test(char) && !/[\u200c\u200d]/u.test(char));
/** What Python calls a digit: the decimal ones, and those in circles, brackets and beside a line. */
const DIGIT = /[\p{Nd}\u{b2}-\u{b3}\u{b9}\u{1369}-\u{1371}\u{19da}\u{2070}\u{2074}-\u{2079}\u{2080}-\u{2089}\u{2460}-\u{2468}\u{2474}-\u{247c}\u{2488}-\u{2490}\u{24ea}\u{24f5}-\u{24fd}\u{24ff}\u{2776}-\u{277e}\u{2780}-\u{2788}\u{278a}-\u{2792}\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}\u{1f100}-\u{1f10a}]/u;
const isLetter = (/** @type {string} */ char) => /\p{L}/u.test(char) || EXTENDING.test(char);

/** @param {string} from @param {string} char @param {string} to */
const between = (from, char, to) => from <= char && char <= to;

/** Whether two characters in a row belong to one Hangul syllable. @param {string} before @param {string} char */
function isSyllable(before, char) {
  const whole = between("\uac00", before, "\ud7a3");
  const open = whole && (before.charCodeAt(0) - 0xac00) % 28 === 0;
  if (between("\u1100", before, "\u115f") || between("\ua960", before, "\ua97c"))
    return between("\u1100", char, "\u11a7") || between("\ua960", char, "\ua97c") || between("\uac00", char, "\ud7a3");
  if (open || between("\u1160", before, "\u11a7") || between("\ud7b0", before, "\ud7c6"))
    return between("\u1160", char, "\u11ff") || between("\ud7b0", char, "\ud7fb");
  return (whole || between("\u11a8", before, "\u11ff") || between("\ud7cb", before, "\ud7fb")) && (between("\u11a8", char, "\u11ff") || between("\ud7cb", char, "\ud7fb"));
}

/** Whether a character belongs to the cluster before it. @param {string} first of the cluster @param {string} before @param {string} char @param {number} flags */
function isJoined(first, before, char, flags) {
  if (before === "\r" && char === "\n") return true;
  if (ALWAYS_ALONE.test(before) || (/\p{Cf}/u.test(before) && !EXTENDING.test(before))) return false;
  if (EXTENDING.test(char) || flags === 2) return true;
  return (before === "\u200d" && PICTURE.test(first) && PICTURE.test(char)) || (char.length === 1 && isSyllable(before, char));
}

/** What a reader sees as characters. @param {string} text @returns {string[]} */
export function clusters(text) {
  /** @type {string[]} */
  const found = [];
  let [first, before, flags] = ["", "", 0];
  for (const char of text) {
    flags = FLAG.test(char) ? flags + 1 : 0;
    if (found.length && isJoined(first, before, char, flags)) found[found.length - 1] += char;
    else {
      found.push(char);
      first = char;
      flags = FLAG.test(char) ? 1 : 0;
    }
    before = char;
  }
  return found;
}

/** The words and signs of a text. @param {string} text @param {RegExp} unspaced characters that are words by themselves @returns {string[]} */
function wordsOf(text, unspaced) {
  const parts = clusters(text);
  /** @type {string[]} */
  const found = [];
  let word = "";
  const end = () => {
    if (word) found.push(word);
    word = "";
  };
  parts.forEach((part, place) => {
    const char = [...part][0];
    const sign = [...part].length > 1 && /[\ufe0f\u20e3]/u.test(part);
    if (!sign && isOfWord(char) && !unspaced.test(char)) return void (word += part);
    const [last, next] = [[...(parts[place - 1] ?? "")].pop() ?? "", [...(parts[place + 1] ?? "")][0] ?? ""];
    const blank = !sign && (BLANK.test(char) || char === "\u200b");
    const alone = !sign && !blank && isOfWord(char) && unspaced.test(char);
    const inside = word && !blank && !alone && [...part].length === 1 && last && next &&
      (/[.,．，\u066b\u066c]/u.test(char) ? DIGIT.test(last) && DIGIT.test(next) : /['’‘＇·\u05f3\u05f4]/u.test(char) && isLetter(last) && isLetter(next));
    if (inside) return void (word += part);
    end();
    if (!blank) found.push(part);
  });
  end();
  return found;
}

/**
 * The tokens of a text: what each says, and its id, null where it has none.
 * @param {string} text @param {{kind: string, unspaced: string, ids: Record<string, number>|null, unknown: number|null}} tokenizer
 * @returns {{text: string, id: number|null, unknown: boolean}[]}
 */
export function cut(text, { kind, unspaced, ids, unknown }) {
  const known = (/** @type {string} */ piece) => (ids && Object.hasOwn(ids, piece) ? ids[piece] : null);
  const one = (/** @type {string} */ piece, /** @type {number|null} */ id = null) =>
    ids ? { text: piece, id: known(piece) ?? unknown, unknown: known(piece) === null } : { text: piece, id, unknown: false };
  if (kind === "word") return wordsOf(text, new RegExp(unspaced, "u")).map((piece) => one(piece));
  if (kind === "whitespace") return (text.match(BLANKS) ?? []).map((piece) => one(piece));
  if (kind === "letter") return [...text].map((piece) => one(piece));
  if (kind === "char") return clusters(text).map((piece) => one(piece, [...piece].length === 1 ? piece.codePointAt(0) ?? null : null));
  return [...new TextEncoder().encode(text)].map((byte) => one(byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`, byte));
}
