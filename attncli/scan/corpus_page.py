"""The page of one or several scans as bytes: a scatter of all heads, a grid, the chosen head
closely; kept small.

Every text of the corpus is made safe, and only ever text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET, Struct, field

from attncli.draw.lines import join_sentences
from attncli.draw.numbers import percent
from attncli.draw.page import words
from attncli.draw.page.page_frame import as_json, page_head, page_script, page_style
from attncli.draw.page.page_words import SCAN_PAGE_WORDS, in_languages, words_by_language
from attncli.draw.safe import label, last_part, path_of, safe
from attncli.draw.view import View
from attncli.features.rules.document import RuledHead
from attncli.features.rules.screen import baseline_sentence, head_sentence, rule_label
from attncli.features.why.document import part_name
from attncli.inputs.token import Token, bytes_name
from attncli.language import languages, message, say, translate
from attncli.measure.labels import STATES
from attncli.scan.document import (
    KINDS,
    AlikeHeads,
    FrequentLink,
    PlanPart,
    ScanDocument,
    ScanEffect,
    ScanHead,
    ScanMetric,
    ScanWhy,
    ScanWhyPart,
)

EFFECT = "effect"
PAGE_WORDS = {**SCAN_PAGE_WORDS, **{f"kind.{name}": title for name, title in KINDS.items()}}
BUDGET = 5 * 10**6
"""Bytes of a page, at most, as far as leaving examples out can keep it there."""
LONGEST = 2000
"""Characters of a text that is shown unshaded, at most."""
RULES = "rule_overlap"
"""What a page calls the overlap of heads with their rules, among the metrics."""
PAIRS = 10
"""Pairs of tokens of each head."""
WHY_PARTS = 8
"""Parts of either side of a head's strongest links."""
LETTERS = "".join(chr(code) for code in range(32, 127) if chr(code) not in '"\\<') + "".join(
    map(chr, range(0xA1, 0xAA))
)
"""The letters that stand for whole percents, from 0 on: one byte each but for the last few."""
STRONGEST, ANY = 0, 11
"""Strata of examples beside the deciles, 1 to 10."""
TokenWeights = tuple[int, np.ndarray[Any, Any]]
"""Which token looks, and what each token of the text gets of its look, from 0 to 1."""

SKELETON = """\
<body>
<header><h1>attn scan</h1><p id="line"></p><button class="link" type="button" id="language"></button></header>
<main>
<section class="reading"><p class="lead" id="answer" aria-live="polite"></p></section>
<section class="all">
<div class="bar-line"><h2 id="plot-title"></h2></div>
<p class="picks" id="axes"></p>
<div id="scatter" role="application" tabindex="0" aria-label=""><svg></svg></div>
<p class="note" id="legend"></p>
<p class="picks" id="selecting"></p>
<div class="bar-line"><h2 id="heads-title"></h2><span id="order"></span></div>
<div id="grid" role="group" aria-labelledby="heads-title"></div>
<p class="note" id="range"></p>
</section>
<section class="detail">
<div class="bar-line"><h2 id="chosen"></h2><span id="of"></span><span id="labels"></span></div>
<div id="view"></div>
<p class="sr" id="said" aria-live="polite"></p>
</section>
</main>
<footer><ul id="notes"></ul><span>attn {version}</span></footer>
<script type="application/json" id="meta">{meta}</script>
<script>{script}</script>
</body>
</html>
"""


SCRIPTS, SHEETS = ("numbers", "dom", "scatter", "corpus"), ("corpus",)
"""The modules of the page's script, and its style sheets behind that of every page."""


def metrics_of(document: ScanDocument) -> list[str]:
    """The names of the metrics of a scan that its page shows: all but those of single offsets, the
    effect of ablation if it was measured, and what rules say of a head if it was asked."""
    if not document.heads:
        return []
    names = [name for name in document.heads[0].metrics if not name.startswith("offset")]
    if document.plan.effects:
        names.append(EFFECT)
    if document.rules and document.rules.heads:
        names.append(RULES)
    return names


class PageExample(NamedTuple):
    """A text that a page shows as an example of a head and a metric.

    stratum: why it was chosen: `STRONGEST`, the decile of its value from 1 to 10, or `ANY` for any
        text.
    """

    metric: str
    stratum: int
    value: float
    file: int
    line: int
    text: str


class Density(NamedTuple):
    """How many examples a page holds of each head and metric: the strongest, one of each of these
    deciles, and some of any value."""

    strongest: int
    deciles: tuple[int, ...]
    any: int


DENSITIES = (
    Density(3, tuple(range(1, 11)), 2),
    Density(2, (1, 3, 5, 8, 10), 1),
    Density(1, (1, 5, 10), 0),
    Density(1, (), 0),
    Density(0, (), 0),
)
"""From the fullest page on; the fullest that fits is written."""


def examples_of(document: ScanDocument, head: ScanHead, density: Density) -> list[PageExample]:
    """The examples that a page of this density shows of a head: the strongest of each metric, then
    those sampled for each decile, then any."""
    if document.texts is UNSET:
        texts = []
    else:
        texts = document.texts
    # by (metric, stratum), how many examples the density still allows
    left: dict[tuple[str, int], int] = {}
    for name in metrics_of(document):
        left[name, STRONGEST] = density.strongest
        left |= {(name, decile): 1 for decile in density.deciles}
        left[name, ANY] = density.any
    examples = [
        PageExample(top.metric, STRONGEST, top.value, top.file, top.line, top.text)
        for top in head.top
    ]
    for sampled in head.sample or ():  # UNSET, which is false, where no texts were sampled
        text = texts[sampled.text]
        if sampled.decile is None:
            stratum = ANY
        else:
            stratum = sampled.decile
        examples.append(
            PageExample(sampled.metric, stratum, sampled.value, text.file, text.line, text.text)
        )
    shown = []
    for example in examples:
        kind = (example.metric, example.stratum)
        if left.get(kind, 0):
            left[kind] -= 1
            shown.append(example)
    return shown


def density_of(documents: Sequence[ScanDocument]) -> int:
    """The index in `DENSITIES` of the fullest one whose page is estimated to be at most `BUDGET`
    bytes; the last if none is."""
    for index, density in enumerate(DENSITIES):
        if sum(_page_size(document, density) for document in documents) <= BUDGET:
            return index
    return len(DENSITIES) - 1


def _page_size(document: ScanDocument, density: Density) -> float:
    """An estimate of the bytes that a scan takes on a page: numbers, examples, and each text once.

    The factors are the bytes that such entries took in pages that were written. An estimate is
    enough, because `scan_page` measures the page itself.
    """
    # a head's numbers, pairs of tokens, and the rest
    size = len(document.heads) * (60.0 * len(metrics_of(document)) + 70 * PAIRS + 550)
    lengths: dict[tuple[int, int], int] = {}  # by (file, line), characters of a text
    for head in document.heads:
        shown = examples_of(document, head, density)
        head_lengths = {
            (example.file, example.line): min(len(example.text), LONGEST) for example in shown
        }
        lengths |= head_lengths
        size += 17 * len(shown)
        # a letter for each token's weight, of about 3.5 characters, once for each text of the head
        size += sum(12 + length / 3.5 for length in head_lengths.values())
    return size + sum(2.0 * length + 30 for length in lengths.values())


class PageScan(Struct, frozen=True, eq=False):
    """A scan to show on a page.

    tokens: of the examples' texts, by (file, line).
    looks: the query and its weights that shade an example, by (file, line, layer, head); without
        them it is unshaded.
    alike: the heads most like each head, by (layer, head).
    """

    document: ScanDocument
    tokens: Mapping[tuple[int, int], Sequence[Token]]
    looks: Mapping[tuple[int, int, int, int], TokenWeights]
    alike: Mapping[tuple[int, int], AlikeHeads] = field(default_factory=dict)


def scan_page(scans: Sequence[PageScan], *, lang: str, density: int | None = None) -> bytes:
    """The HTML page of these scans, as UTF-8, with as many examples as fit `BUDGET`; with the
    fewest where not even that page fits.

    lang: the language that the page opens in.
    density: the index in `DENSITIES` to begin with; None for the one that the documents' sizes
        suggest.
    """
    if density is None:
        first = density_of([scan.document for scan in scans])
    else:
        first = density
    for index in range(first, len(DENSITIES)):
        page = _page_of_density(scans, lang, index)
        if len(page) <= BUDGET:
            break
    return page


def _page_of_density(scans: Sequence[PageScan], lang: str, density: int) -> bytes:
    """The HTML page with as many examples as the entry of `DENSITIES` at this index says."""
    names = scan_names([scan.document.plan for scan in scans])
    metrics = list(dict.fromkeys(name for scan in scans for name in metrics_of(scan.document)))
    shared = _SharedTexts()
    heads: list[dict[str, Any]] = []
    for number, scan in enumerate(scans):
        heads += _head_entries(scan, number, metrics, shared, DENSITIES[density])
    # each warning once, though several scans may have it
    warnings = dict.fromkeys(warning for scan in scans for warning in scan.document.warnings)
    notes = [in_languages(warning) for warning in warnings]
    if shared.is_bare:
        notes.append(in_languages(SCAN_PAGE_WORDS["unshaded"]))
    if density > 0:
        notes.append(in_languages(FEWER))
    # the two metrics that the scatter shows at first
    usual_axes = ["distance", "previous", "sink", "entropy"]
    axes = [name for name in usual_axes if name in metrics]
    if not axes:
        axes = metrics or ["layer"]
    if len(axes) == 1:  # one metric alone stands on both axes
        axes = axes * 2
    meta = {
        "lang": lang,
        "words": words_by_language(PAGE_WORDS),
        "metrics": [safe(name) for name in metrics],
        "states": STATES,
        "scans": [
            _scan_entry(scan.document, name) for scan, name in zip(scans, names, strict=True)
        ],
        "heads": heads,
        "texts": shared.texts,
        "tokens": shared.tokens,
        "letters": LETTERS,
        "notes": notes,
        "start": [safe(axes[0]), safe(axes[1])],
    }
    title = f"attn scan · {' / '.join(names)[:80]}"
    from attncli.version import __version__

    code = page_script(*SCRIPTS)
    head = page_head(lang, title, code, page_style(*SHEETS))
    return (head + SKELETON.format(version=__version__, meta=as_json(meta), script=code)).encode()


FEWER = message(
    "To keep the page small it holds fewer texts of each head than the scan: attn scan show --head"
    " shows all."
)


def scan_names(plans: Sequence[PlanPart], short: Callable[[str], str] = last_part) -> list[str]:
    """A name for each of several scans that tells them apart: the model; where two have the same
    model, also the first file of the corpus; where that is the same, too, a number from 1.

    short: shortens a path to what is shown of it.
    """
    names = [safe(plan.model_with_adapters(short(plan.model))) for plan in plans]
    if len({*names}) < len(names):
        corpora = [short(plan.corpus[0]) if plan.corpus else "" for plan in plans]
        names = [f"{name}, {safe(corpus)}" for name, corpus in zip(names, corpora, strict=True)]
    if len({*names}) < len(names):
        names = [f"{number}: {name}" for number, name in enumerate(names, 1)]
    return names


def _scan_entry(document: ScanDocument, name: str) -> dict[str, Any]:
    """A scan, without its heads, as a dictionary for the page's script.

    name: what the page calls the scan.
    """
    heads_by_layer: dict[int, int] = {}
    for head in document.heads:
        heads_by_layer[head.layer] = heads_by_layer.get(head.layer, 0) + 1
    return {
        "name": name,
        "texts": f"{document.done.texts:,}",
        "tokens": f"{document.done.tokens:,}",
        "rows": f"{document.link_rows or 0:,}",  # unset where links were not counted
        # scans of equal shape can be shown head beside head
        "shape": "-".join(map(str, heads_by_layer.values())),
        "layers": [
            [
                layer.layer,
                page_number(layer.massive.mean_texts),
                *map(page_number, layer.massive.ci95 or (None, None)),
                _share_with_interval(layer.share, layer.share_ci95),
            ]
            for layer in document.layers or ()  # unset where layers were not measured
        ],
    }


def tails(paths: Sequence[str]) -> list[str]:
    """The paths of the files below their common folder, so that a page does not tell where that
    folder lies: `/a/b/x.txt` and `/a/c/y.txt` become `b/x.txt` and `c/y.txt`.

    Paths that have no common folder, such as relative beside absolute ones, become what
    `last_part` shows of each.
    """
    parsed = [path_of(path) for path in paths]
    if len({(path.is_absolute(), type(path), path.anchor) for path in parsed}) != 1:
        return [last_part(path) for path in paths]
    common_depth = 0  # how many folders all paths begin with
    for names in zip(*(path.parent.parts for path in parsed), strict=False):
        if len(set(names)) > 1:
            break
        common_depth += 1
    return ["/".join(path.parts[common_depth:]) for path in parsed]


class _SharedTexts:
    """The texts and token labels of a page, kept once each and referred to by their index. is_bare:
    whether any text comes without its tokens."""

    def __init__(self) -> None:
        self._text_places: dict[tuple[int, int, int], int] = {}
        self._token_places: dict[str, int] = {}
        self.texts: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.is_bare = False

    def text(self, scan: PageScan, number: int, files: Sequence[str], example: PageExample) -> int:
        """The index of an example's text in `texts`; a text that is not there yet is added.

        number: the index of the scan.
        files: what the scan's files are called.
        """
        key = (number, example.file, example.line)
        if key not in self._text_places:
            self._text_places[key] = len(self.texts)
            tokens = scan.tokens.get((example.file, example.line))
            self.is_bare = self.is_bare or tokens is None
            if len(example.text) <= LONGEST:
                cut_text = example.text
            else:
                cut_text = f"{example.text[:LONGEST]}…"
            if tokens is None:
                shown: list[list[Any]] = [[safe(cut_text), 0, 0]]
            else:
                shown = words(tokens)
            # a line for each token: a digit (1 if it follows without a space, plus 2 if it is
            # special), then its text, such as "1ing"
            packed = "\n".join(f"{joined + 2 * special}{word}" for word, joined, special in shown)
            self.texts.append((packed, f"{safe(files[example.file])}:{example.line + 1}"))
        return self._text_places[key]

    def token(self, text: str) -> int:
        """The index of a token's label among those of the page; a new one is added."""
        shown = label(text)
        if shown not in self._token_places:
            self._token_places[shown] = len(self.tokens)
            self.tokens.append(shown)
        return self._token_places[shown]


def page_number(value: float | None) -> float | None:
    """A number rounded to one digit more than the page shows. Where the page, which rounds it
    again, would then show another number than rounding once, the last digit is moved by one. None
    stays None."""
    if value is None:
        return None
    digits = 4 if abs(value) >= 0.01 else 5  # the page shows 3, and 4 of a small number
    near = round(value, digits)
    units = round(near * 10**digits)
    # The page may show 1, 2 or 3 digits less. A number such as 0.0750, which stands in the middle
    # between two of these, might be rounded to the other side than the value itself, 0.07499: it is
    # moved towards what the page would show of the value itself.
    for more in (1, 2, 3):
        if units % 10**more == 5 * 10 ** (more - 1):
            shown = float(f"{value:.{digits - more}f}")
            return round(near + math.copysign(10**-digits, shown - near), digits)
    return near


def _one_digit(value: float | None) -> float | None:
    """A number with the one digit that screens and the page show of it."""
    if value is None:
        return None
    return round(value, 1)


def _share_with_interval(share: float | None, between: Sequence[float] | None) -> str | None:
    """A share (0 to 1) in percents, with its interval behind it where there is one, as screens
    write it: "40% (31 – 50)". None where there is no share.

    between: the interval's lower and upper end.
    """
    if share is None:
        return None
    if between is None:
        return percent(share)
    return f"{percent(share)} ({100 * between[0]:.0f} – {100 * between[1]:.0f})"


def _head_entries(
    scan: PageScan, number: int, metrics: Sequence[str], shared: _SharedTexts, density: Density
) -> Iterator[dict[str, Any]]:
    """Yield each head of a scan as a dictionary for the page's script, under keys of one letter,
    because they are repeated for every head: s scan, l layer, h head, m metrics, x examples by
    metric, w weights that shade texts, t labels, a alike heads, k links, y why, r rules.

    number: the index of the scan.
    metrics: the names of the metrics of all scans, in the order of `m` and `x`.
    shared: collects the texts and tokens that entries refer to by index.
    """
    document = scan.document
    files = tails(document.plan.corpus)
    rules = ruled_by_place(document)
    for head in document.heads:
        rule = rules.get((head.layer, head.head))
        looks: dict[int, int] = {}  # by a text's index, the index in packed_looks
        packed_looks: list[tuple[int, int, str]] = []
        examples: dict[str, list[tuple[int, float | None, int]]] = {}
        for example in examples_of(document, head, density):
            text = shared.text(scan, number, files, example)
            if text not in looks:
                looks[text] = len(packed_looks)
                unshaded = (-1, np.zeros(0))  # no query looks, and no token gets weight
                query, row = scan.looks.get(
                    (example.file, example.line, head.layer, head.head), unshaded
                )
                percents = np.rint(row * 100).astype(int).clip(0, 100).tolist()
                letters = "".join(LETTERS[percent] for percent in percents)
                packed_looks.append((text, query, letters))
            examples.setdefault(example.metric, []).append(
                (example.stratum, page_number(example.value), looks[text])
            )
        links = []
        if head.links is not UNSET:
            links = [_link_entry(link, document, shared) for link in head.links[:PAIRS]]
        yield {
            "s": number,
            "l": head.layer,
            "h": head.head,
            "m": [
                _rule_numbers(rule) if name == RULES else _metric_numbers(head, name)
                for name in metrics
            ],
            "x": [examples.get(name, []) for name in metrics],
            "w": packed_looks,
            "t": _label_entries(head),
            "a": _alike_entry(scan.alike.get((head.layer, head.head))),
            "k": links,
            "y": _why_entry(head),
            "r": None if rule is None else _rule_entry(rule),
        }


def ruled_by_place(document: ScanDocument) -> dict[tuple[int, int], RuledHead]:
    """The document's heads as rules by (layer, head); empty where rules were not asked for."""
    if not document.rules:
        return {}
    return {(head.layer, head.head): head for head in document.rules.heads}


def _rule_numbers(rule: RuledHead | None) -> list[float | None] | None:
    """The overlap of a head with its rules, in the form of `_metric_numbers`; None for a head
    without rules."""
    if rule is None:
        return None
    unknown = [None] * 5  # interval (2), mean over rows, deviation, median
    return [page_number(rule.overlap), *unknown, page_number(rule.overlap_even)]


def _rule_entry(rule: RuledHead) -> list[dict[str, str]]:
    """Two dictionaries by language, for the page's script: the label of a head's strongest rule,
    and the sentences about all its rules."""
    views = {lang: View(lang=lang) for lang in languages()}
    if rule.has_rule:
        strongest = rule_label(rule.parts[0].rule)
    else:
        strongest = message("no rule")
    return [
        {lang: safe(say(view, strongest)) for lang, view in views.items()},
        {
            lang: join_sentences([head_sentence(rule, view), baseline_sentence(rule, view)], view)
            for lang, view in views.items()
        },
    ]


def _metric_numbers(head: ScanHead, name: str) -> list[float | None] | None:
    """The seven numbers of a head's metric for the page's script: mean over texts, interval (low,
    high), mean over rows, standard deviation, median and baseline, None where unknown; None in
    place of all for a head without the metric.

    name: of a metric, or `EFFECT`.
    """
    metric = head.metrics.get(name)
    if isinstance(metric, ScanMetric):
        low, high = metric.ci95 or (None, None)
        every = [
            metric.mean_texts,
            low,
            high,
            metric.mean_rows,
            metric.sd,
            metric.quantiles.get("50"),
            metric.baseline,
        ]
    elif name == EFFECT and isinstance(head.effect, ScanEffect):
        low, high = head.effect.ci95 or (None, None)
        every = [
            head.effect.mean,
            low,
            high,
            None,
            head.effect.sd,
            head.effect.quantiles.get("50"),
            None,
        ]
    else:
        return None
    return [page_number(value) for value in every]


def _label_entries(head: ScanHead) -> list[list[Any]]:
    """The labels of a head that it has earned, or nearly: name, score, interval (low, high), share
    of texts as text, 1 if borderline, 1 if earned, and the threshold."""
    return [
        [
            f"{metric.name} {metric.detail}" if metric.detail else metric.name,
            page_number(metric.score),
            *map(page_number, metric.ci95 or (None, None)),
            _share_with_interval(metric.texts, metric.texts_ci95),
            int(metric.borderline),
            int(metric.earned),
            metric.threshold,
        ]
        for metric in head.labels
        if metric.earned or (metric.borderline and metric.ci95 is not None)
    ]


def _why_entry(head: ScanHead) -> dict[str, Any] | None:
    """The parts of queries and keys that most explain a head's strongest links, with their shares
    and intervals, for the page's script; None where this was not measured."""
    if not isinstance(head.why, ScanWhy):
        return None
    parts = head.why.parts
    return {
        "texts": f"{head.why.texts:,}",
        "advantage": page_number(head.why.advantage),
        "sides": [
            _largest_parts([(part, part.query_share, part.query_ci95) for part in parts]),
            _largest_parts([(part, part.key_share, part.key_ci95) for part in parts]),
        ],
    }


def _largest_parts(
    shares: Sequence[tuple[ScanWhyPart, float, Sequence[float] | None]],
) -> list[list[Any]]:
    """The `WHY_PARTS` parts with the largest shares, positive or negative, each as [its name by
    language, share, low, high].

    shares: (part, share, interval) of all parts of queries or of keys.
    """
    ranked = sorted(shares, key=lambda entry: -abs(entry[1]))[:WHY_PARTS]
    return [
        [
            {lang: translate(part_name(part), lang) for lang in languages()},
            page_number(share),
            *map(page_number, interval or (None, None)),
        ]
        for part, share, interval in ranked
    ]


def _alike_entry(alike: AlikeHeads | None) -> list[Any] | None:
    """The heads most like a head, as a list for the page's script: how many texts were compared;
    [layer, head, distance of attention weights] of the nearest; [layer, head, similarity of
    parameters] of the most similar; and the similarity of random heads. None where unknown."""
    if alike is None:
        return None
    by_doing = [[row.layer, row.head, page_number(row.value)] for row in alike.by_doing]
    by_weights = [[row.layer, row.head, page_number(row.value)] for row in alike.by_weights]
    return [alike.texts, by_doing, by_weights, page_number(alike.chance)]


def _link_entry(link: FrequentLink, document: ScanDocument, shared: _SharedTexts) -> list[Any]:
    """A pair of tokens that a head links often, as a list for the page's script: indices of the two
    tokens in `shared`, links, the most that they can be, links by chance, lift, its interval (low,
    high), and the share of texts that have the pair."""
    return [
        shared.token(bytes_name(link.query.text)),
        shared.token(bytes_name(link.key.text)),
        link.links,
        link.most,
        _one_digit(link.chance),
        _one_digit(link.lift),
        *map(_one_digit, link.lift_ci95 or (None, None)),
        percent(link.texts / document.done.texts),
    ]
