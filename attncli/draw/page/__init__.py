"""One offline HTML page of a run: its heads, their weights made again in the browser, its words;
kept within a budget.

The page is written as skeleton, script and style, facts of the heads, and the data last: the
overview comes early. The page of a document begins where the document looks, and says what it says
of effects: `features/<name>/page.py`.
"""

from __future__ import annotations

import heapq
import re
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from importlib import import_module
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field

from attncli.documents import (
    ABOUT_HEADS,
    OF_TWO_RUNS,
    SOURCE_NAMES,
    Document,
    RegionRow,
    folder_of,
    mask_name,
    name_of,
)
from attncli.draw.page.page_frame import (
    FIRST_STRONG_ISOLATE,
    LETTERS,
    POP_ISOLATE,
    as_json,
    page_head,
    page_script,
    page_style,
)
from attncli.draw.page.page_words import PAGE_WORDS, in_languages, run_name, words_by_language
from attncli.draw.safe import label, last_part, safe, safe_html
from attncli.draw.screen_header import screen_of
from attncli.draw.token_names import (
    marked_text,
    name_tokens,
    piece_names,
    region_name,
    spelled_text,
    split_claims,
    unknown_word_sentences,
    with_named_bytes,
)
from attncli.draw.tour import TOUR
from attncli.draw.view import View
from attncli.inputs.regions import Region
from attncli.inputs.token import Token
from attncli.language import Message, languages, message, plural, say
from attncli.measure.document_heads import document_record
from attncli.measure.head_record import (
    METRICS,
    Absent,
    Exact,
    FixedPoint,
    Floats,
    HeadRecord,
    QueryKeyRecipe,
    Roots,
)
from attncli.measure.rest import is_separator, resting_keys
from attncli.measure.row_facts import AlignedExclusion
from attncli.measure.run_record import RunRecord

PageWord = int | list[str | int]
"""A word of a text in a comparison: its position in the run, or its entry of `words` where the run
leaves it out."""

# Blocks of data in a page: deflated, in base64, each in an element of its own that runs nothing.


def deflate(data: bytes) -> bytes:
    """The data as a raw deflate stream, which a browser's DecompressionStream reads."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)  # below 0: raw, without header and check sum
    return packer.compress(data) + packer.flush()


def element(name: str, data: bytes) -> bytes:
    """A block of data as an HTML element that a script finds by its id."""
    return b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode(), b64encode(data))


def plane_bytes(codes: np.ndarray[Any, Any]) -> bytes:
    """16-bit numbers as bytes, all high bytes before all low ones: the former repeat, and deflate
    better by themselves."""
    flat = codes.reshape(-1)
    return (flat >> 8).astype(np.uint8).tobytes() + (flat & 255).astype(np.uint8).tobytes()


def vector_bytes(numbers: FixedPoint | Floats) -> bytes:
    """Vectors [row, dim] as bytes: as float32; or, where they are held as 16-bit codes, first the
    lowest value and the step of each dimension, then the codes."""
    if isinstance(numbers, FixedPoint):
        return float_bytes(numbers.low) + float_bytes(numbers.step) + plane_bytes(numbers.codes)
    return float_bytes(numbers)


def query_bytes(products: QueryKeyRecipe) -> bytes:
    """The part of a head's scores that it does not share with others, as bytes: log-sum-exp by row,
    bias by distance, query vectors."""
    if products.bias is None:
        bias = b""
    else:
        bias = float_bytes(products.bias)
    return float_bytes(products.lse) + bias + vector_bytes(products.q)


def weight_bytes(recipe: Exact | Roots) -> bytes:
    """A head's attention weights as bytes, for one whose scores are not computed in the page:
    float32, or codes of 16 bits."""
    if isinstance(recipe, Exact):
        return float_bytes(recipe.weights)
    return plane_bytes(recipe.codes)


def root_codes(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Weights as bytes (uint8), of the same shape: a byte holds the square root of a weight, as most
    weights are small. NaN, which is hidden, is 0."""
    roots = np.sqrt(np.clip(np.nan_to_num(weights), 0, 1))
    return np.rint(roots * 255).astype(np.uint8)


def float_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """The numbers of an array as float32, least byte first."""
    return np.ascontiguousarray(array, "<f4").tobytes()


BUDGET = 16 * 10**6
"""Bytes of data a page holds at most, unless told otherwise."""
RECIPE_NAMES = {Exact: "exact", Roots: "roots", QueryKeyRecipe: "products", Absent: "absent"}


Answer = Mapping[str, Sequence[Sequence[str | tuple[str, str]]]]
"""Sentences by language, each in pieces: texts, and claims as (text, what of the page they lead
to).
"""

Bands = Sequence[tuple[Mapping[str, str], int, int]]
"""Regions of the text: the name of each by language, its first token, and the one behind its last.
"""


HeadEffect = tuple[int, int, float | None, float | None, float | None]
"""Layer, head, its effect, that of a random change of the same size, and the weight of the link;
None where there is none."""


class PageEffects(Struct, frozen=True):
    """What each head does to one measure under ablation, patching or logit attribution.

    position_text: the word or words it is measured at, "" for the mean of all.
    by: how heads are removed, the corrupt text, or the target token.

    kind: "ablate" for what changes when a head is taken away, "patch" for what it brings back,
    "logits" for what it adds.
    """

    measure: str
    by: str
    position_text: str
    heads: Sequence[HeadEffect]
    kind: str = "ablate"


class Page(Struct, frozen=True, eq=False):
    """The content of one HTML page of heads.

    runs: one, or two that are compared.
    pairs: words that correspond, A's and B's positions.

    start: what is shown first: view, head, query, key, from, to, sort.
    budget: bytes of data at most.
    partial: whether words are left out, so that layers cannot be multiplied.
    option: what raises the budget; "" where nothing does.
    why: explanations of links, as `features.why.page.why_entry` writes them.
    lens: what each layer would say next, as `features.effects.page.lens_entry` writes it; None
        where that was not computed.
    left_out: pairs of words that are no links to list of two runs; None where every pair is.
    answer: what the document says in words, by language.
    bands: regions along the text.
    texts: the tokens of either text of a comparison, and which of them the runs are of; nothing
        where they are of all.
    """

    title: str
    runs: Sequence[RunRecord]
    pairs: tuple[Sequence[int], Sequence[int]] | None = None
    effects: Sequence[PageEffects] = ()
    start: Mapping[str, str] = field(default_factory=dict)
    lang: str = "en"
    budget: int = BUDGET
    partial: bool = False
    option: str = ""
    left_out: AlignedExclusion | None = None
    why: Sequence[Mapping[str, Any]] = ()
    lens: Mapping[str, Any] | None = None
    answer: Answer = field(default_factory=dict)
    bands: Bands = ()
    texts: Sequence[tuple[Sequence[Token], Sequence[int]]] = ()


class PageHeads:
    """Collects the heads of a page as compressed blocks of data within a budget of bytes: beyond
    it, the heads with the weakest links lose their weights."""

    def __init__(self, budget: int) -> None:
        """Begin without heads.

        budget: bytes of data at most, in base64.
        """
        self.budget = budget
        self.blocks = dict[str, bytes]()  # by name, deflated
        self.size = 0  # bytes of all blocks, in base64
        self.masks = dict[bytes, int]()  # by a mask's digest, its number
        self._users = dict[str, int]()  # by the name of a shared block, how many heads use it
        # a heap of the heads that still have weights: (strongest link, number, entry, its blocks)
        self._weakest: list[tuple[float, int, dict[str, Any], tuple[str, ...]]] = []

    def add(self, run_index: int, record: HeadRecord) -> dict[str, Any]:
        """The entry of a head for the page's script (JSON), its data being added to `blocks`.

        run_index: of the page's run that it is in.
        """
        name = f"{run_index}-{record.layer}-{record.head}"
        recipe = record.recipe
        # short keys, as there may be hundreds of heads; the script names them when it reads them. "s"
        # is the number of the mask, -1 for none; "c" and "x" are the scores' softcap and scale, "a"
        # is whether they have a bias by distance, "d" is the width of queries and keys. Blocks of
        # data are named by "b" (weights), "p" (queries, keys, and whether these are floats) and "v"
        entry: dict[str, Any] = {
            "l": record.layer,
            "h": record.head,
            "t": list(record.labels),
            "r": RECIPE_NAMES[type(recipe)],
            "e": record.error,
            "m": [record.metrics.get(metric) for metric in METRICS],
            "k": [list(link) for link in record.links],
            "n": record.columns,
            "s": -1,
            "c": None,
            "x": 1.0,
        }
        keys: list[str] = []  # of the blocks of data that the head uses
        if record.visibility_bits is not None:
            entry["s"] = self._mask_number(record.visibility_bits)
        if not isinstance(recipe, QueryKeyRecipe | Absent):
            keys.append(self._add_block(f"w{name}", weight_bytes(recipe)))
            entry["b"] = keys[-1]
        if record.terms is not None:
            terms_entry = self._terms_entry(name, f"{run_index}-{record.layer}", record.terms)
            query_block, key_block, _is_float = terms_entry["p"]
            keys += [query_block, key_block]
            entry |= terms_entry
        if record.values is not None:
            value_key = f"v{run_index}-{record.layer}-{record.group}"
            keys.append(self._share_block(value_key, record.values))
            # the digits after the point that the codes' step can tell apart, at most 3
            step = max(float(record.values.step.max(initial=0)), 1e-3)
            digits = max(0, int(-np.log10(step)))
            # the block, how many dimensions of a value it has, of how many, and the digits of each
            entry["v"] = [value_key, len(record.values.step), record.value_width, digits]
        # links are (query, key, weight), the strongest first
        if record.links:
            _, _, strongest = record.links[0]
        else:
            strongest = 0.0
        # of equal links, the number keeps the heap from comparing dictionaries
        heapq.heappush(self._weakest, (strongest, len(self._weakest), entry, tuple(keys)))
        while self.size > self.budget and self._weakest:
            self._drop_weakest_head()
        return entry

    def _terms_entry(self, name: str, layer_name: str, terms: QueryKeyRecipe) -> dict[str, Any]:
        """The part of a head's entry that tells what its scores are made of, the vectors themselves
        being added to `blocks`: the queries as the head's own, the keys as those of its group.

        name, layer_name: of the head, and of its run and layer, in the names of blocks.
        """
        is_float = isinstance(terms.k, np.ndarray)
        key_block = f"k{layer_name}-{terms.group}"
        if is_float:  # beside the same keys as codes, which other heads of the group may use
            key_block += "f"
        query_block = self._add_block(f"q{name}", query_bytes(terms))
        self._share_block(key_block, terms.k)
        return {
            "p": [query_block, key_block, int(is_float)],
            "d": terms.width,
            "c": terms.softcap,
            "x": terms.scale,
            "a": int(terms.bias is not None),
        }

    def _share_block(self, key: str, numbers: FixedPoint | Floats) -> str:
        """Store vectors that several heads use (keys or values of a group) once under `key`, and
        count the users. Returns `key`."""
        if key not in self.blocks:
            self._add_block(key, vector_bytes(numbers))
        self._users[key] = self._users.get(key, 0) + 1
        return key

    def _add_block(self, key: str, data: bytes) -> str:
        """Store data under a key, deflated, and add their size in base64, which is a third longer.
        Returns the key."""
        self.blocks[key] = deflate(data)
        self.size += len(self.blocks[key]) * 4 // 3
        return key

    def _drop_weakest_head(self) -> None:
        """Leave the weights and values of the head with the weakest links out of the page; its
        metrics and links stay."""
        _, _, entry, keys = heapq.heappop(self._weakest)
        entry["r"] = "none"
        entry.pop("p", None)
        entry.pop("v", None)
        for key in keys:
            # a block goes with its last user; one that is not shared has a single user
            self._users[key] = self._users.get(key, 1) - 1
            if self._users[key] <= 0 and key in self.blocks:
                self.size -= len(self.blocks.pop(key)) * 4 // 3  # as base64

    def _mask_number(self, visibility: np.ndarray[Any, Any]) -> int:
        """The number of a head's mask, by which the page finds it; heads with equal masks share one.

        visibility: which keys each query sees, as packed bits.
        """
        # with the shape, as the same bits in other rows are another mask
        digest = blake2b(visibility.tobytes() + str(visibility.shape).encode()).digest()
        if digest not in self.masks:
            self.masks[digest] = len(self.masks)
            self._add_block(f"s{self.masks[digest]}", visibility.tobytes())
        return self.masks[digest]


# The page's script and style: modules joined into one script, without what only their readers need.

MODULES = (
    "numbers", "data", "dom", "state", "words", "kernel", "weights", "shades", "axes", "grid", "sentence", "stacked", "matrix",
    "regions", "links", "derivation", "search", "difference", "rollout", "effects", "why", "rows", "files", "share", "tour", "keyboard", "main",
)  # fmt: skip
"""In the order in which they run; each imports only those before it."""
COMPARING, EFFECTS, WHY, REGIONS = ("stacked", "difference"), ("effects",), ("why",), ("regions",)
"""Modules that only pages of comparisons, of effects, of reasons and lenses, and of regions have.
"""


def assets_of(page: Page) -> tuple[str, str]:
    """The script and the style sheet that this page needs, without the modules of what it does not
    have."""
    unused: set[str] = set()
    sheets = []
    if page.pairs is None:
        unused.update(COMPARING)
    else:
        sheets.append("stacked")
    if not page.effects:
        unused.update(EFFECTS)
    if not page.why and page.lens is None:
        unused.update(WHY)
    if not page.bands:
        unused.update(REGIONS)
    modules = [name for name in MODULES if name not in unused]
    return page_script(*modules), page_style(*sheets)


SKELETON = """\
<body>
<header><h1>attn</h1><p id="line">{line}</p><button class="link" type="button" id="tour-open"></button><button class="link" type="button" id="language"></button>\
<button class="link" type="button" id="help-open"></button></header>
<main>
<section class="reading">
<div id="words" lang="und"{long}>
<p class="words" id="asking" role="listbox" tabindex="0" hidden></p>
<p class="words" id="sentence" role="listbox" tabindex="0"></p>
<svg id="arcs" height="0" aria-hidden="true"></svg>
</div>
<p class="under" id="regions" hidden></p>
<div id="answer" hidden></div>
<ul id="notes" class="warnings"></ul>
<p class="under"><b id="whose"></b><b id="direction"></b><button class="link" type="button" id="turn"></button><span id="pin" hidden></span><span id="sides"></span><button class="link" type="button" id="whole"></button></p>
<div id="tour" role="group" hidden></div>
</section>
<section class="all">
<div class="bar-line"><h2><button type="button" class="means" id="heads-title" aria-expanded="false"></button></h2><span id="order"></span></div>
<div id="grid" role="group"></div>
<div id="rows" role="region"></div>
</section>
<section class="detail">
<div class="bar-line"><div id="tabs" role="tablist"></div><span id="scale"></span></div>
<p class="about"><button type="button" class="means" id="chosen" aria-expanded="false"></button><span id="labels"></span><span id="exact"></span></p>
<div id="view" role="tabpanel"></div>
<p class="share" id="share"></p>
<p class="sr" id="said" aria-live="polite"></p>
</section>
</main>
<footer><span>attn {version}</span></footer>
<dialog id="help"><button type="button" id="help-close"></button><dl id="keys"></dl></dialog>
"""


LONG_TEXT = 60
"""Words from which on the style sheet lays out the sentence as a long text."""


def page_bytes(page: Page) -> Iterator[bytes]:
    """Write the page's HTML, in pieces that follow each other in the file. Every text of the run is
    made safe."""
    from attncli.version import __version__

    # the runs and their heads, and the small maps of all heads of a run as one block of bytes
    page_heads = PageHeads(page.budget)
    runs = []
    maps = []
    for index, run in enumerate(page.runs):
        heads = []
        small = []
        for record in run.heads:
            heads.append(page_heads.add(index, record))
            small.append(root_codes(record.small))
        if small:
            # the small maps of a run have one shape
            maps.append(deflate(np.concatenate(small).tobytes()))
            shape = small[0].shape
        else:
            maps.append(deflate(b""))
            shape = (1, 1)
        entry = _run_entry(run)
        entry["notes"] = _notes_beside(entry["notes"], page.answer)
        runs.append(entry | {"heads": heads, "tile": list(shape)})

    # the facts that the page's script reads; the runs of a page are of one kind, as the first is.
    # "pairs" and "out" are None where one run alone is shown, or nothing is left out
    meta = {
        "title": safe(page.title),
        "lang": page.lang,
        "partial": page.partial,
        "option": page.option,
        "words": words_by_language({**PAGE_WORDS, **_captured_words(page.runs[0], runs[0])}),
        "runs": runs,
        "pairs": page.pairs and [list(places) for places in page.pairs],
        "effects": [_effects_entry(effects) for effects in page.effects],
        "why": list(page.why),
        "lens": page.lens,
        "start": {name: safe(value) for name, value in page.start.items()},
        "out": page.left_out and page.left_out.page_lists(),
        "answer": page.answer,
        "bands": _band_entries(page.bands),
        "columns": comparison_columns(page),
        "tour": [step.name for step in TOUR],
    }

    # the file, begun with the line on the first run's model: skeleton, facts, small maps, script,
    # and the large blocks of data last; a long text is laid out otherwise by the style sheet
    first = page.runs[0]
    code, sheet = assets_of(page)
    # a worker of the page's own script makes weights in the background
    head = page_head(page.lang, page.title, code, sheet, policy="worker-src blob:; ")
    if len(first.sides.queries) > LONG_TEXT:
        long = " data-long"
    else:
        long = ""
    line = safe_html(runs[0]["line"][page.lang])
    yield (head + SKELETON.format(line=line, long=long, version=__version__)).encode()
    yield b'<script type="application/json" id="meta">' + as_json(meta).encode() + b"</script>\n"
    for index, block in enumerate(maps):
        yield element(f"t{index}", block)
    yield f"<script>{code}</script>\n".encode()
    for name, block in page_heads.blocks.items():
        yield element(name, block)
    yield b"</body>\n</html>\n"


def _notes_beside(notes: Sequence[Mapping[str, str]], answer: Answer) -> list[Mapping[str, str]]:
    """The notes of a run, each by language, but for those that the answer says already."""
    answer_sentences = []
    for pieces in answer.get("en", ()):
        # a piece is a text, or a claim: its text, and what of the page that leads to
        texts = [piece if isinstance(piece, str) else piece[0] for piece in pieces]
        answer_sentences.append("".join(texts))
    return [
        note
        for note in notes
        if not any(sentence.startswith(note["en"]) for sentence in answer_sentences)
    ]


def _captured_words(run: RunRecord, entry: Mapping[str, Any]) -> Mapping[str, Message]:
    """The page's words for heads of captured arrays, by key: such heads are named by their entry of
    a batch, not by a layer. Empty for any other run."""
    if run.model is None or run.model.source != "tensors":
        return {}
    # "l", a head's layer, is its entry of the batch here
    has_several_entries = any(head["l"] for head in entry["heads"])
    if has_several_entries:
        return {
            "metric.layer": message("batch and head"),
            "head.name": message("batch {layer} head {head}"),
        }
    return {"head.name": message("head {head}")}


def _run_entry(run: RunRecord) -> dict[str, Any]:
    """A run, without its heads, as a dictionary for the page's script."""
    # "q" are the words that look, "k" those that are looked at, None where they are the same
    sides = run.sides
    return {
        "name": {lang: safe(run_name(run.name).translation(lang)) for lang in languages()},
        "q": words(sides.queries, run.text),
        "k": None if sides.is_one_text else words(sides.keys, spelled_text(sides.keys)),
        "line": {lang: _run_line(run, View(lang=lang)) for lang in languages()},
        "rests": _resting_keys(run),
        "metrics": list(METRICS),
        "notes": [in_languages(note) for note in run.warnings],
    }


def _resting_keys(run: RunRecord) -> list[int] | None:
    """The positions of the keys on which heads put weight when they look for nothing, such as the
    first token and separators, for the page's script; None where there are none."""
    if run.model is None:
        return None
    keys = run.sides.keys
    rests = resting_keys(keys, run.model.source)
    # of a comparison's shared words, the first here need not be the first of its text: it rests
    # then only where it would anywhere, as special tokens and separators do
    if keys and keys[0].index != 0 and not keys[0].special and not is_separator(keys[0]):
        rests[0] = False
    return np.flatnonzero(rests).tolist() or None


def _band_entries(bands: Bands) -> list[list[Any]]:
    """The bands as lists [names by language, first token, the one behind the last] for the page's
    script. A 1 follows in a band whose middle lies in a smaller one: that one's name is written
    there, so that its own needs another place."""
    entries: list[list[Any]] = []
    for names, start, stop in bands:
        middle = (start + stop) / 2
        has_smaller_inside = any(
            inner_stop - inner_start < stop - start and inner_start <= middle < inner_stop
            for _, inner_start, inner_stop in bands
        )
        entry: list[Any] = [names, start, stop]
        if has_smaller_inside:
            entry.append(1)
        entries.append(entry)
    return entries


def _covers_blank(token: Token, text: str) -> bool:
    """Whether a token's `start` is that of the blank before its word: the text has a blank there, and
    the token covers more characters than it spells. (In a text that is not the token's own, the
    blank alone would prove nothing.)"""
    if token.start is None or token.end is None:
        return False
    spelling = marked_text(token).strip(" ") or token.text
    has_blank = text.startswith(" ", token.start)
    return has_blank and token.end - token.start > len(spelling)


def words(tokens: Sequence[Token], text: str = "") -> list[list[str | int]]:
    """One list per token for the page's script: [its text, 1 if it continues the token before it
    without a space, 1 if it is a special token], and, for a piece of a word, that word as a fourth
    entry.

    text: the text of the tokens; without it, no words are named.
    """
    rows: list[list[str | int]] = []
    end: tuple[int | None, int] | None = None  # of the token before: its end, and in which text
    if text:
        pieces = piece_names(tokens, text)
    else:
        pieces = {}
    for place, token in enumerate(with_named_bytes(tokens)):
        follows_directly = token.start is not None and (token.start, token.part) == end
        # tokens that a model has generated cover the blank before them, those of a prompt do not; only
        # `text` is at hand to look for it, the text of part 0
        if follows_directly and token.part == 0 and _covers_blank(token, text):
            follows_directly = False
        shown_text = marked_text(token).strip(" ") or token.text  # a token of blanks stays as it is
        rows.append([label(shown_text), int(follows_directly), int(token.special)])
        # a piece that is part of a character has its word in its name (`with_named_bytes`)
        if (piece := pieces.get(place)) is not None and not piece.is_bytes:
            rows[-1].append(label(piece.word))
        end = token.end, token.part
    return rows


def comparison_columns(page: Page) -> list[list[PageWord | None]]:
    """The words of texts A and B of a comparison side by side, as columns [word of A, word of B].

    The words that are the same in both texts share a column. Between them, the n-th other word of A
    stands beside the n-th of B, and None where one text has no more. Empty for a page of one run.
    """
    if page.pairs is None:
        return []
    # where the runs leave no token out, their tokens are those of the texts
    texts = page.texts or [(run.sides.queries, range(len(run.sides.queries))) for run in page.runs]
    (tokens_a, places_a), (tokens_b, places_b) = texts
    words_a = _words_or_positions(tokens_a, places_a)
    words_b = _words_or_positions(tokens_b, places_b)
    pairs_a, pairs_b = page.pairs
    # pairs of positions in the runs become positions in the texts
    same_words = [(places_a[a], places_b[b]) for a, b in zip(pairs_a, pairs_b, strict=True)]
    order_in_b = [b for _, b in same_words]
    if order_in_b != sorted(order_in_b):
        # B has the same words in another order, so that no columns can follow both texts
        same_words = []
    columns: list[list[PageWord | None]] = []
    start_a = 0
    start_b = 0
    for a, b in same_words:
        columns += map(list, zip_longest(words_a[start_a:a], words_b[start_b:b]))
        columns.append([words_a[a], words_b[b]])
        start_a = a + 1
        start_b = b + 1
    columns += map(list, zip_longest(words_a[start_a:], words_b[start_b:]))
    return columns


def _words_or_positions(tokens: Sequence[Token], places: Sequence[int]) -> list[PageWord]:
    """An entry for each token of a compared text: its position in the run, or, where the run leaves
    it out, its entry of `words`.

    places: the index in `tokens` of each token of the run.
    """
    entries: list[PageWord] = list(words(tokens, spelled_text(tokens)))
    for position, index in enumerate(places):
        entries[index] = position
    return entries


def _run_line(run: RunRecord, view: View) -> str:
    """One line on the model that ran: which weights, how many layers × heads, which mask and
    positions; the run's name where nothing else is known of it."""
    model = run.model
    attention = run.attention
    if model is None or attention is None:
        return safe(run.name)
    parts = [last_part(model.name) if model.name else say(view, SOURCE_NAMES[model.source])]
    if model.seed is not None:
        parts[0] = say(view, "{name} (seed {seed})", name=parts[0], seed=model.seed)
    if model.family:
        parts.append(model.family)
    if model.source == "tensors":
        parts += [plural("{count} head", "{count} heads", count=model.heads).translation(view.lang)]
    else:
        parts += [f"{model.attending} × {model.heads}"]
    if attention.mask != "none":
        parts.append(say(view, mask_name(attention.mask)))
    if attention.position != "none":
        parts.append(say(view, "position {position}", position=attention.position))
    return safe(" · ".join(parts))


def _effects_entry(effects: PageEffects) -> dict[str, Any]:
    """What each head does to a measure, as a dictionary for the page's script."""
    # layer, head, value, random change, weight
    heads = [dict(zip("lhvrw", numbers, strict=True)) for numbers in effects.heads]
    words = {
        "measure": safe(effects.measure),
        "by": safe(effects.by),
        "at": safe(effects.position_text),
    }
    return words | {"kind": effects.kind, "heads": heads}


def any_page(
    document: Document,
    *,
    record: RunRecord | None = None,
    lang: str,
    budget: int = BUDGET,
    option: str = "",
    precision: int = 2,
    reasons: Sequence[Mapping[str, Any]] = (),
) -> Iterator[bytes]:
    """Write the HTML page of any document, in pieces: a page of its heads, if it is about heads; else
    the kind's own page, such as that of steps or of a scan; else one of its answer, figure and
    table.

    record: its heads, where more is known of them than the document says.
    lang: the language that the page begins in.
    budget: bytes of data at most. option: what raises it, as the page names it; "" for nothing.
    precision: digits after the point of numbers in a table.
    reasons: why some of its heads look where they do, for a page of heads.
    """
    page = page_of(
        document, record=record, lang=lang, budget=budget, option=option, reasons=reasons
    )
    if page is not None:
        yield from page_bytes(page)
        return
    from attncli.draw.page.document_page import document_page

    own_page = screen_of(document.schema).page
    html = None
    if own_page is not None:
        html = own_page(document, lang)
    # a kind of document may have no page of its own, or none for this document
    yield html or document_page(document, lang, precision)


class PageFocus(NamedTuple):
    """What the page of a document's heads is about, besides the heads.

    start: What is shown first: view, head, query, key, from, to, sort.
    effects: What each head does.
    why: Explanations of links, as `features.why.page.why_entry` writes them.
    lens: What each layer would say next, as `features.effects.page.lens_entry` writes it.
    names_heads: Whether the document says something of single heads; one that does not has a page
        only with the record of its run.
    """

    start: Mapping[str, str] = {}
    effects: Sequence[PageEffects] = ()
    why: Sequence[Mapping[str, Any]] = ()
    lens: Mapping[str, Any] | None = None
    names_heads: bool = True


def page_of(
    document: Document,
    *,
    record: RunRecord | None = None,
    lang: str = "en",
    budget: int = BUDGET,
    option: str = "",
    reasons: Sequence[Mapping[str, Any]] = (),
) -> Page | None:
    """The page of the heads that a document is about; None for one that says nothing of single
    heads. `features/<name>/page.py` has what is particular to a kind of document.

    Args:
        document: of any kind.
        record: its heads, where more is known of them than the document says.
        lang: "en" or "zh".
        budget: bytes of data at most.
        option: what raises the budget, as the page names it; "" where nothing does.
        reasons: why some of its heads look where they do: explanations of links, as
            `features.why.page.why_entry` writes them.
    """
    name = name_of(document.schema)
    if name not in (*ABOUT_HEADS, *OF_TWO_RUNS):
        return None
    module = import_module(f"{folder_of(name)}.page")
    if name in OF_TWO_RUNS:
        page: Page = getattr(module, f"{name}_page_of")(document, lang, budget, option)
        return page
    focus: PageFocus | None = getattr(module, f"{name}_page_focus")(document)
    if focus is None or (record is None and not focus.names_heads):
        return None
    if record is None:
        run_record = document_record(document)
    else:
        run_record = record
    assert run_record is not None  # it is about heads
    return Page(
        run_record.text,
        [run_record],
        effects=focus.effects,
        start=focus.start,
        lang=lang,
        budget=budget,
        option=option,
        why=focus.why or reasons,
        lens=focus.lens,
        answer=answer_of(document),
        bands=bands_of(document),
    )


def bands_of(document: Document) -> Bands:
    """The regions of a document's text as bands; none for a document without regions."""
    regions: Sequence[RegionRow] | UnsetType = getattr(document, "regions", UNSET)
    return bands_of_regions(regions or ())


def bands_of_regions(regions: Sequence[RegionRow | Region]) -> Bands:
    """A band for each run of neighbouring tokens of a region: the region's name by language, the
    first token, and the one behind the last. In the order of the tokens."""
    bands: list[tuple[Mapping[str, str], int, int]] = []
    for region in regions:
        name = {lang: safe(region_name(region.name, View(lang=lang))) for lang in languages()}
        tokens = np.asarray(region.tokens)
        gaps = np.flatnonzero(np.diff(tokens) > 1) + 1  # where a token is not next to the last one
        bands += [(name, int(run[0]), int(run[-1]) + 1) for run in np.split(tokens, gaps)]
    return sorted(bands, key=lambda band: band[1:])


LEFTWARD = re.compile(rf"{LETTERS}+(?:\s+{LETTERS}+)*")
"""Words in a row that are written from right to left, such as Hebrew or Arabic ones."""


def _isolate_right_to_left(text: str) -> str:
    """The text with each run of Hebrew or Arabic words between the characters that isolate it:
    without these, a browser shows a number that follows such a word on its other side.
    """
    return LEFTWARD.sub(lambda run: FIRST_STRONG_ISOLATE + run[0] + POP_ISOLATE, text)


def answer_of(document: Document) -> Answer:
    """The sentences that a document's screen answers with, by language and in pieces (see
    `split_claims`), and those on unknown words; empty for a kind that has no answer of its own."""
    answer = screen_of(document.schema).sentences
    if answer is None:
        return {}
    marked_document = name_tokens(document)
    pieces = {}
    for lang in languages():
        view = View(lang=lang, claims=True)
        texts = [*answer(marked_document, view), *unknown_word_sentences(marked_document, view)]
        pieces[lang] = [split_claims(_isolate_right_to_left(text)) for text in texts if text]
    return pieces
