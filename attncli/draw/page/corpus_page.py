"""The page of a scan as bytes: skeleton, numbers, script. Every text of the corpus is made safe, and only ever text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from os.path import commonpath
from pathlib import PurePath
from typing import Any

import numpy as np

from attncli.draw.page import as_json, join_modules, last_part, page_head, words
from attncli.draw.page import read_asset as read_page_asset
from attncli.draw.page import style as page_style
from attncli.draw.page.page_words import SCAN_PAGE_WORDS, in_languages, words_by_language
from attncli.draw.safe import safe
from attncli.inputs.token import Token
from attncli.scan.document import ScanDocument, ScanEffect, ScanExample, ScanHead

EFFECT = "effect"
SHOWN = 3
"""Examples of each head and metric."""
TokenWeights = tuple[int, np.ndarray[Any, Any]]
"""Which token looks, and what each token of the text gets of its look, from 0 to 1."""

SKELETON = """\
<body>
<header><h1>attn scan</h1><p id="line"></p><button class="link" type="button" id="language"></button></header>
<main>
<section class="all">
<div class="bar-line"><h2 id="heads-title"></h2><span id="order"></span></div>
<div id="grid" role="group"></div>
<p class="note" id="range"></p>
</section>
<section class="detail">
<div class="bar-line"><strong id="chosen"></strong><span id="labels"></span></div>
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


@cache
def script() -> str:
    """The page's script, with what it shares with the page of a run."""
    modules = {name: read_page_asset(f"{name}.js") for name in ("numbers", "dom")}
    return join_modules(modules | {"corpus": _read_asset("corpus.js")})


@cache
def style() -> str:
    """The page's style sheet: that of the page of a run, and what only this one has."""
    return page_style() + _read_asset("corpus.css")


def _read_asset(name: str) -> str:
    return files("attncli.draw.page").joinpath(name).read_text("utf-8")


def metrics_of(document: ScanDocument) -> list[str]:
    """The metrics that the page shows: no single offsets, and what taking heads away changes."""
    if not document.heads:
        return []
    names = [name for name in document.heads[0].metrics if not name.startswith("offset")]
    return [*names, *([EFFECT] if document.plan.effects else [])]


def examples_of(document: ScanDocument, head: ScanHead) -> dict[str, list[ScanExample]]:
    """The examples that the page shows of a head, by metric."""
    return {name: [example for example in head.top if example.metric == name][:SHOWN] for name in metrics_of(document)}


def scan_page(
    document: ScanDocument,
    tokens: Mapping[tuple[int, int], Sequence[Token]],
    looks: Mapping[tuple[int, int, int, int], TokenWeights],
    *,
    lang: str,
) -> bytes:
    """The page. tokens: of the examples' texts, by (file, line); looks: by (file, line, layer, head). An example
    without them is shown unshaded."""

    texts = _Texts(document, tokens)
    heads = [_head(document, head, texts, looks) for head in document.heads]
    notes = [in_languages(warning) for warning in document.warnings]
    if texts.bare:
        notes += [in_languages(SCAN_PAGE_WORDS["unshaded"])]
    model = last_part(document.plan.model)
    meta = {
        "lang": lang, "words": words_by_language(SCAN_PAGE_WORDS), "model": safe(model), "texts_done": f"{document.done.texts:,}",
        "tokens": f"{document.done.tokens:,}", "metrics": metrics_of(document), "heads": heads, "texts": texts.entries,
        "notes": notes,
    }  # fmt: skip
    title = f"attn scan · {model[:80]}"
    from attncli import __version__

    head = page_head(lang, title, script(), style())
    return (head + SKELETON.format(version=__version__, meta=as_json(meta), script=script())).encode()


def tails(paths: Sequence[str]) -> list[str]:
    """What tells files apart: their paths below the folder that holds them all. Where that lies on this machine is
    nothing for a page."""
    below = {PurePath(path).is_absolute() for path in paths}
    if len(below) != 1:
        return [last_part(path) for path in paths]
    folder = commonpath([str(PurePath(path).parent) for path in paths])
    return [str(PurePath(path).relative_to(folder)) for path in paths]


class _Texts:
    """The texts of examples as the page knows them, once each. bare: whether one comes without its tokens."""

    def __init__(self, document: ScanDocument, tokens: Mapping[tuple[int, int], Sequence[Token]]) -> None:
        self._files, self._tokens = tails(document.plan.corpus), tokens
        self._places: dict[tuple[int, int], int] = {}
        self.entries: list[tuple[list[list[str | int]], str]] = []
        self.bare = False

    def place(self, example: ScanExample) -> int:
        key = (example.file, example.line)
        if key not in self._places:
            self._places[key] = len(self.entries)
            tokens = self._tokens.get(key)
            self.bare = self.bare or tokens is None
            words_shown: list[list[str | int]] = [[safe(example.text), 0, 0]] if tokens is None else words(tokens)
            self.entries.append((words_shown, f"{safe(self._files[example.file])}:{example.line + 1}"))
        return self._places[key]


def _head(
    document: ScanDocument, head: ScanHead, texts: _Texts, looks: Mapping[tuple[int, int, int, int], TokenWeights]
) -> dict[str, Any]:
    numbers = []
    for name in metrics_of(document):
        metric = head.metrics.get(name)
        low, high = (metric.ci95 if metric is not None else None) or (None, None)
        if metric is not None:
            numbers.append(
                [metric.mean_texts, low, high, metric.mean_rows, metric.sd, metric.quantiles.get("50"), metric.baseline]
            )
        elif isinstance(head.effect, ScanEffect):
            effect = head.effect
            numbers.append(
                [effect.mean, *(effect.ci95 or (None, None)), None, effect.sd, effect.quantiles.get("50"), None]
            )
        else:
            numbers.append([None] * 7)
    examples = []
    for examples_shown in examples_of(document, head).values():
        rows = []
        for example in examples_shown:
            query, row = looks.get((example.file, example.line, head.layer, head.head), (-1, np.zeros(0)))
            rows.append([example.value, texts.place(example), query, np.rint(row * 100).astype(int).tolist()])
        examples.append(rows)
    labels = [
        [
            f"{metric.name} {metric.detail}" if metric.detail else metric.name, metric.score,
            *(metric.ci95 or (None, None)), metric.texts, *(metric.texts_ci95 or (None, None)), metric.borderline,
        ]
        for metric in head.labels
        if metric.earned or (metric.borderline and metric.ci95 is not None)
    ]  # fmt: skip
    return {"l": head.layer, "h": head.head, "m": numbers, "x": examples, "t": labels}
