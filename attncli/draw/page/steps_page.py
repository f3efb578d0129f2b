"""The page of a training, step by step: a slider over its steps, where each head looks then, its
scores and the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.documents import Document, name_of
from attncli.draw.page import deflate, element, root_codes
from attncli.draw.page.document_page import WIDTH, screen_part, table_part
from attncli.draw.page.page_frame import as_json, page_head, page_script, page_style
from attncli.draw.page.page_words import in_languages, words_by_language
from attncli.draw.safe import label
from attncli.draw.view import View
from attncli.language import Message, languages, message, plural
from attncli.mechanism.spec import spoken_head

Numbers = np.ndarray[Any, Any]

SKELETON = """\
<body>
<header><h1>attn</h1><p id="line"></p><button class="link" type="button" id="language"></button></header>
<main>
<section class="reading">
<ul id="notes"></ul>
<p class="under"><button class="link" type="button" id="play"></button><label id="step-label" for="step"></label></p>
<input type="range" id="step" min="0" step="1">
<div id="curve"></div>
</section>
<section class="all">
<div class="bar-line"><h2 id="heads-title"></h2><span id="order"></span></div>
<div id="grid" role="group"></div>
</section>
<section class="detail">
<div class="bar-line"><strong id="chosen"></strong></div>
<canvas id="matrix"></canvas>
<p class="note" id="cell"></p>
<div id="view"></div>
<p class="sr" id="said" aria-live="polite"></p>
</section>
<div class="reading">
<details><summary data-word="screen"></summary>
{screens}
</details>
{table}
</div>
</main>
<footer><span>attn {version}</span></footer>
<script type="application/json" id="meta">{meta}</script>
{maps}<script>{script}</script>
</body>
</html>
"""


class StepsPage(Struct, frozen=True, eq=False):
    """A page to write: a slider over steps, such as those of a training.

    title, line: what was trained.
    tokens: of the text that the maps are of.
    heads: layer and head of each.
    steps: of the curve, ascending.
    lines: by name, a number at each of these steps, None where there is none; the first is what is
        drawn largest.
    scores: by name, of each head a number at each step.
    maps: the places in `steps` at which there are weights, and those, [place, head, query, key],
        from 0 to 1.
    document: what it tells of.
    notes: what is said below.
    keys: of another text that the tokens look at; None for the tokens themselves.
    """

    title: str
    line: str
    tokens: Sequence[str]
    heads: Sequence[tuple[int, int]]
    steps: Sequence[int]
    lines: Sequence[tuple[str, Sequence[float | None]]]
    scores: Sequence[tuple[str, Sequence[Sequence[float | None]]]]
    maps: tuple[Sequence[int], Numbers] | None
    document: Document
    notes: Sequence[str] = ()
    lang: str = "en"
    keys: Sequence[str] | None = None


def page_words(heads: int) -> dict[str, Message]:
    """The sentences of the page by the names that its script uses; numbers in braces are filled in
    by the script."""
    return {
        "heads": plural("{count} head", "{count} heads", count=heads),
        "play": message("play"),
        "pause": message("pause"),
        "step": message("step {step}", step="{0}"),
        "head": spoken_head("{0}", "{1}"),
        "cell": message(
            "{query} looks at {key} with {share} of its weight", query="{0}", key="{1}", share="{2}"
        ),
        "map": message("weights of step {step}", step="{0}"),
        "matrix": message("where each word looks: queries in rows, keys in columns"),
        "score": message("score"),
        "tint": message("colour"),
        "first": message("at first"),
        "now": message("now"),
        "last": message("in the end"),
    }


SCRIPTS, SHEETS = ("numbers", "dom", "files", "table", "steps"), ("document", "steps")
"""The modules of the page's script, and its style sheets behind that of every page."""


def steps_page(page: StepsPage) -> bytes:
    """The HTML page as bytes. Every text in it is made safe and can never act as HTML."""
    # of which steps there are maps, and their weights; none where the page has no maps
    places, weights = page.maps or ((), np.zeros(0))
    codes = root_codes(weights)  # a byte for each weight, to keep the page small
    table, beside_table = table_part(page.document)
    words = words_by_language({**page_words(len(page.heads)), **beside_table})
    meta = {
        "lang": page.lang,
        "words": words,
        "name": name_of(page.document.schema),
        "line": in_languages(page.line),
        "tokens": [label(token) for token in page.tokens],
        "keys": [label(token) for token in page.keys or page.tokens],
        "heads": [list(head) for head in page.heads],
        "steps": list(page.steps),
        "lines": [[in_languages(name), _round_numbers(values)] for name, values in page.lines],
        "scores": [
            [in_languages(name), [_round_numbers(values) for values in rows]]
            for name, rows in page.scores
        ],
        "maps": list(places),
        "start": _first_head(page),
        "notes": [in_languages(note) for note in page.notes],
    }
    from attncli.version import __version__

    code = page_script(*SCRIPTS)
    head = page_head(page.lang, page.title, code, page_style(*SHEETS))
    views = [(lang, View(lang=lang, width=WIDTH)) for lang in languages()]
    screens = [
        f'<section lang="{lang}">{screen_part(page.document, view)}</section>'
        for lang, view in views
    ]
    maps = element("maps", deflate(codes.tobytes())).decode()
    body = SKELETON.format(
        version=__version__,
        meta=as_json(meta),
        script=code,
        table=table,
        screens="\n".join(screens),
        maps=maps,
    )
    return (head + body).encode()


def _first_head(page: StepsPage) -> int:
    """The index in `page.heads` of the first head that the notes name; 0 where they name none."""
    index_of = {layer_and_head: index for index, layer_and_head in enumerate(page.heads)}
    for note in page.notes:
        values = getattr(note, "values", {})  # those filled into the note's sentence
        if "layer" in values and "head" in values:
            return index_of[values["layer"], values["head"]]
    return 0


def _round_numbers(values: Sequence[float | None]) -> list[float | None]:
    """Numbers to four significant digits, which is more than a page shows; None where one is None
    or not finite.
    """
    return [
        None if value is None or not np.isfinite(value) else float(f"{value:.4g}")
        for value in values
    ]
