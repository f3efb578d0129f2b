/**
 * The shapes of what the page is given. Everything else is made from these.
 *
 * @typedef {[text: string, joined: number, special: number, of?: string]} Word  joined: no space before it; of: the word that it is a piece of
 * @typedef {[query: number, key: number, weight: number]} Link
 * @typedef {{l: number, h: number, m: (number|null)[], t: string[], k: Link[], r: string, b?: string,
 *   p?: [string, string, number], v?: [string, number, number, number], d?: number, s: number, c: number|null, x: number, a?: number, n: number, e: number}} HeadMeta
 * r: how the weights are kept: products, exact or roots; none where they did not fit, absent where they were not known; b: where; p: where its queries and keys are, and whether as float32; v: where its values are, how many of their dimensions, of how many, and digits that are right
 * @typedef {{name: Record<string, string>, q: Word[], k: Word[]|null, line: Record<string, string>, heads: HeadMeta[], tile: [number, number],
 *   rests: number[]|null, metrics: string[], notes: Record<string, string>[]}} RunMeta  rests: keys where heads rest
 * @typedef {{l: number, h: number, v: number|null, r: number|null, w: number|null}} Effect
 * @typedef {{measure: string, by: string, at: string, kind: string, heads: Effect[]}} Effects
 * @typedef {{n: Record<string, string>, v: number, w: number|null, l: number|null, h: number|null}} Part
 * n: its name by language; v: what it adds; w: the weight without it; l, h: of a head
 * @typedef {{l: number, h: number, q: number, k: number, w: number, s: number, t: number, than: number|null, d: string, count: number, counts: [number, number], spread: boolean,
 *   asks: Part[], answers: Part[], heads: [number, number, number][]}} Why
 * w: the link's weight; s: its score; t: the advantage; d: the sum of all parts less the score; counts: how many parts either side has; heads: what earlier ones add on both sides
 * @typedef {{target: string, rows: {l: number|null, stage: string, rank: number, p: number, top: [string, number][]}[]}} Lens
 * @typedef {{title: string, lang: string, partial: boolean, option: string, words: Record<string, Record<string, string>>, runs: RunMeta[],
 *   pairs: [number[], number[]]|null, out: [number[], number[], number[], number[][]]|null, effects: Effects[], why: Why[], lens: Lens|null, start: Record<string, string>, answer: Record<string, (string|[string, string])[][]>,
 *   columns: [number|Word|null, number|Word|null][], tour: string[], bands: [name: Record<string, string>, first: number, behind: number, inner?: number][]}} Meta
 * answer: by language, sentences in pieces: texts, and claims with what of the page they lead to
 * columns: both texts of a comparison word beside word: the places in the runs, a word that a run has no weights of, or nothing
 * out: pairs of shared words that are no links to list: as queries, as keys, offsets beside, the words' places in either text
 * @typedef {{q: Float32Array, k: Float32Array, d: number, n: number, m: number, lse: Float32Array, bias: Float32Array|null,
 *   scale: number, cap: number|null, bits: Uint8Array|null}} Parts
 * @typedef {{parts: Parts|null, all: Float32Array|null, m: number}} HeadSource  what a head's weights are made from, or all of them; m: its keys
 * @typedef {[i0: number, i1: number, j0: number, j1: number, pool: number]} Tile  queries, keys, and cells that share a dot
 * @typedef {{n: number, m: number, source: HeadSource, row: (i: number) => Float32Array, column: (j: number) => Float32Array,
 *   tile: (place: Tile) => Float32Array|Promise<Float32Array>, of?: {name: string, words: Word[], places: number[]}}} Weights  a hidden weight is −1
 * of: of signed differences, whose unknown ones are NaN: what they are called, the words of their rows and columns, and those words' places in the run
 */
export {};
