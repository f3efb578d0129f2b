"""The page of `attn answer`: the prompt in bands of regions, the answer, and what each of its sentences
loses without each region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import UNSET

from attncli.draw.numbers import format_fixed, format_signed, percent
from attncli.draw.page.document_page import (
    answer_part,
    language_section,
    screen_part,
    table_part,
    without_places,
)
from attncli.draw.page.page_frame import as_json, page_head, page_script, page_style
from attncli.draw.page.page_words import words_by_language
from attncli.draw.safe import label, safe, safe_html
from attncli.draw.view import View
from attncli.features.answer.answer_words import leaf_name, share_text
from attncli.features.answer.document import AnswerDocument, AnswerEffect
from attncli.language import Message, languages, message

SKELETON = """\
<body>
<header><h1>attn answer</h1><p id="line">{line}</p><button class="link" type="button" id="language"></button></header>
<main>
<div class="reading">
{answers}
</div>
<section class="all">
<h2 id="answer-title" data-word="answer"></h2>
<p id="written" role="group" aria-labelledby="answer-title"></p>
<h2 id="prompt-title" data-word="prompt"></h2>
<p class="note" id="shade"></p>
<div id="prompt" role="group" aria-labelledby="prompt-title"></div>
</section>
<section class="detail">
<h2 id="regions-title" data-word="regions"></h2>
<p class="note" id="own"></p>
<div class="scroll" tabindex="0" role="region" aria-labelledby="regions-title"><table id="effects"></table></div>
<p id="told" aria-live="polite"></p>
<div id="by-sentence">
<h2 id="matrix-title" data-word="matrix"></h2>
<p class="note" data-word="cells"></p>
<div class="scroll" tabindex="0" role="region" aria-labelledby="matrix-title"><table id="matrix"></table></div>
</div>
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
<script>{script}</script>
</body>
</html>
"""
ANSWER = '<div class="answer">{}</div>'
WIDTH = 100
"""Cells of a screen on a page."""
WHOLE = 60
"""Tokens of a prompt up to which no band is folded."""

SCRIPTS, SHEETS = ("numbers", "dom", "files", "table", "answer"), ("document", "answer")
"""The modules of the page's script, and its style sheets behind that of every page."""


def page_words(document: AnswerDocument) -> dict[str, Message]:
    """The sentences of the page by the names that its script uses; numbers in braces are filled in
    by the script."""
    if document.cut == "links":
        regions = message("what the answer loses without the links to a region")
    else:
        regions = message("what the answer loses without the text of a region")
    return {
        "answer": message("the answer"),
        "hint": message("Choose a sentence, a region or a cell; again, or Esc, lets go of it."),
        "prompt": message("the prompt"),
        "regions": regions,
        "matrix": message("which sentence used which region"),
        "cells": message(
            "Rows: regions; columns: sentences of the answer; change of the mean log probability a"
            " token without the region, in nats."
        ),
        "region": message("region"),
        "tokens": message("tokens"),
        "attention": message("attention"),
        "even": message("even"),
        "share": message("a token"),
        "change": message("change"),
        "subsets": message("over subsets"),
        "own": message(
            "A token of the answer has probability {own} with all regions (geometric mean). Attention:"
            " the part of what the answer looks at besides where heads rest; even: what even attention"
            " would give. Change: of the mean log probability a token, in nats.",
            own=share_text(document.answer.logprob),
        ),
        "shade.whole": message(
            "Orange: what the whole answer loses without a region, up to {loss} nats a token; blue:"
            " what it gains.",
            loss="{0}",
        ),
        "shade.sentence": message(
            "Orange: what sentence {number} loses without a region, up to {loss} nats a token; blue:"
            " what it gains.",
            number="{0}",
            loss="{1}",
        ),
        "fold": message("{count} more characters", count="{0}"),
        "unfold": message("fold up"),
        "sentence": message("sentence {number}", number="{0}"),
        "cell": message(
            "{region}, sentence {number}: {change}", region="{0}", number="{1}", change="{2}"
        ),
        "told": message(
            'Without "{region}" a token of the answer has {share} in place of {own}: {change} nats.',
            region="{0}",
            share="{1}",
            own=share_text(document.answer.logprob),
            change="{2}",
        ),
        "told.sentence": message(
            "Sentence {number} changes by {change} nats a token.", number="{0}", change="{1}"
        ),
        "random": message(
            "Without random spans of as many tokens it changes by at most {most} nats.", most="{0}"
        ),
        "matters": message("The answer rests on it."),
    }


def answer_page_bytes(document: AnswerDocument, lang: str) -> bytes:
    """The HTML page of the answer to a prompt, in UTF-8. Its sentences stand in it in all languages;
    `lang` is the one shown first."""
    from attncli.version import __version__

    document = without_places(document)
    name = label(document.model.name or document.model.source)
    table, beside_table = table_part(document)
    meta = {
        "lang": lang,
        "name": "answer",
        "words": words_by_language({**page_words(document), **beside_table}),
        "regions": [_region_entry(document, effect) for effect in document.effects],
        "sentences": list(_sentence_entries(document)),
        "bands": list(_band_entries(document)),
        "folds": len(document.tokens) > WHOLE,
    }
    code = page_script(*SCRIPTS)
    views = [View(lang=spoken, width=WIDTH) for spoken in languages()]
    body = SKELETON.format(
        line=safe_html(name),
        answers="\n".join(
            language_section(view.lang, lang, ANSWER.format(answer_part(document, view)))
            for view in views
        ),
        screens="\n".join(
            language_section(view.lang, lang, screen_part(document, view)) for view in views
        ),
        table=table,
        version=__version__,
        meta=as_json(meta),
        script=code,
    )
    answer = safe(document.answer.text.strip())[:80]  # a title: its beginning is enough
    title = " · ".join(("attn answer", answer, name))
    return (page_head(lang, title, code, page_style(*SHEETS)) + body).encode()


def _region_entry(document: AnswerDocument, effect: AnswerEffect) -> dict[str, Any]:
    """A region's row of the table as the page's script reads it: changes as numbers, which it
    colours by, all else as text written as on the screen."""
    # what the region adds over random subsets; None without --subsets, and where not compared
    weight = None
    if document.subsets is not UNSET:
        weights = {row.region: row.weight for row in document.subsets.weights}
        if effect.region in weights:
            weight = format_signed(weights[effect.region], 2).replace("-", "−")
    random = None
    if effect.random:
        random = format_fixed(max(map(abs, effect.random)), 2)
    return {
        "name": {lang: leaf_name(document, effect, View(lang=lang)) for lang in languages()},
        "tokens": f"{len(document.regions[effect.region].tokens):,}",
        "attention": percent(effect.attention, 1),
        "even": percent(effect.even, 1),
        "share": share_text(effect.logprob),
        "change": _round_number(effect.change),
        "bySentence": [_round_number(float(change)) for change in effect.by_sentence],
        "subsets": weight,
        "random": random,
        "source": effect.is_source,
        "matters": effect.matters,
    }


def _round_number(value: float) -> float:
    """A number to five significant digits, which is more than a page shows."""
    return float(f"{value:.5g}")


def _sentence_entries(document: AnswerDocument) -> Iterator[list[str]]:
    """Yield for each sentence of the answer its text and the blanks after it, both safe."""
    text = document.answer.text
    place = 0
    for sentence in document.answer.sentences:
        # find gives -1 for a sentence that is not in the text as it stands
        start = max(text.find(sentence.text, place), place)
        place = start + len(sentence.text)
        following = text[place:]
        gap = following[: len(following) - len(following.lstrip())]
        yield [_lines(sentence.text), _lines(gap)]


def _lines(text: str) -> str:
    """A text without control characters, which keeps its line breaks."""
    return "\n".join(map(safe, text.split("\n")))


def _band_entries(document: AnswerDocument) -> Iterator[list[Any]]:
    """Yield the prompt as runs of neighbouring tokens that belong to the same regions: [the regions
    as indices of `effects`, text]. The text before the first token belongs to the first run.
    """
    places = {effect.region: place for place, effect in enumerate(document.effects)}
    owners: list[list[int]] = [[] for _ in document.tokens]
    for number, region in enumerate(document.regions):
        if number in places:
            for token in region.tokens:
                owners[token].append(places[number])
    starts = _starts(document)
    for regions, run in groupby(range(len(owners)), key=lambda token: owners[token]):
        tokens = list(run)
        if starts is None:
            yield [regions, " ".join(label(document.tokens[token].text) for token in tokens)]
        else:
            yield [regions, _lines(document.text[starts[tokens[0]] : starts[tokens[-1] + 1]])]


def _starts(document: AnswerDocument) -> Sequence[int] | None:
    """Where each token begins in the prompt, in characters, and behind them the prompt's length; None
    where a token's place is unknown, or tokens are not in order.
    """
    # the first token begins with the text, whatever stands before it
    starts = [0]
    for token in document.tokens[1:]:
        if token.start is None or token.start < starts[-1] or token.start > len(document.text):
            return None
        starts.append(token.start)
    return [*starts, len(document.text)]
