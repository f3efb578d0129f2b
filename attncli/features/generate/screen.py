"""The screen of `attn.generate/1`: the continuation, and how far each new token looks back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import Lines, fit_to_view, heading, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import bar, percent
from attncli.draw.region_tables import MOST_REGIONS
from attncli.draw.safe import label, safe
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import shaded_sentence
from attncli.draw.shaded_matrix import NDArray, as_matrix, draw_grid, head_grid, matrix
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text, region_name, rest_names
from attncli.draw.view import Parts, ScreenPart, View, parts_shown
from attncli.features.generate.compute import (
    GenerateDocument,
    GenerateStep,
    StepHead,
    TopKey,
    context_share,
)
from attncli.language import listing, message, plural, say
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_label

BAR = 12
"""Cells of the bar of a lookback of 1."""
TINY = 1e-9
"""The weight that counts as not at rest at least, so that nothing is divided by 0."""


def generate_screen(document: GenerateDocument, view: View) -> Lines:
    """The whole screen: the text with its continuation, a row per new token, and the mean lookback
    (the prompt's share of attention) of each head."""
    if view.brief:
        return fit_to_view(
            stack_spaced(_continuation(document, view), *_answer(document, view)), view
        )
    blocks = (part.draw(document, view) for part in parts_shown(GENERATE_PARTS, document, view))
    return fit_to_view(stack_spaced(*blocks, *_answer(document, view)), view)


def generate_rows(document: GenerateDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`, names of columns first: a row for each new token, layer and
    head."""
    yield (
        "token",
        "text",
        "probability",
        "layer",
        "head",
        "context",
        "generated",
        "lookback",
        "lookback_per_key",
        "top_key",
        "top_weight",
        *(f"region {region.name}" for region in document.regions or ()),
    )
    for token, step in zip(document.generated, document.steps, strict=True):
        for head in step.heads:
            shares = (
                getattr(head, name)
                for name in ("context", "generated", "lookback", "lookback_per_key")
            )
            place = (token.index, token.text, step.probability, head.layer, head.head)
            region_shares = []
            if head.regions is not UNSET:  # one row, [region], with NaN for null
                region_shares = as_matrix([head.regions])[0].tolist()
            yield (*place, *shares, head.top.key, head.top.weight, *region_shares)


def _continuation(document: GenerateDocument, view: View) -> Lines:
    """The part of the screen with the continuation and how its tokens were chosen."""
    draws = {"temperature": document.temperature, "sample_seed": document.sample_seed}
    sampling_note = message("the likeliest token each time")
    if document.temperature > 0:
        sampling_note = message("drawn at temperature {temperature:g}, seed {sample_seed}", **draws)
    if document.ended:
        sampling_note = message("{choice}; ended by itself", choice=sampling_note)
    # without blanks at the ends; of nothing but blanks, these
    new_text = document.continuation.strip() or document.continuation
    text = safe(new_text, ascii=view.ascii)
    return stack(
        heading("continuation", "", view),
        remark(text, view, style="bold"),
        remark(sampling_note, view),
    )


def _tinted_text(document: GenerateDocument, view: View) -> Lines:
    """The text and what was added, tinted by what the new tokens look at most, in any head."""
    tokens = [*document.tokens, *document.generated]
    shares = [0.0] * len(tokens)
    for step in document.steps:
        for head in step.heads:
            top = _top_key(head)
            if top is not None:
                shares[top.key] = max(shares[top.key], top.weight)
    new = [token.index for token in document.generated]
    tint = message("tint: what the new tokens, in brackets, look at most in any head")
    return shaded_sentence(
        document.text + document.continuation, tokens, shares, view, query=new, tint=tint
    )


def _lookback(document: GenerateDocument, view: View) -> Lines:
    """A table with a row for each new token: its probability, its lookback (the share of its
    attention that is on the prompt) and its strongest link; where the document separates keys where
    heads rest (the first token and the like), their share has a column of its own."""
    texts = [token.text for token in (*document.tokens, *document.generated)]
    rows = []
    for token, step in zip(document.generated, document.steps, strict=True):
        # of each head that looks at a key beyond those where it rests
        tops = [(head, top) for head in step.heads if (top := _top_key(head))]
        looks = "-"
        if tops:
            head, top = max(tops, key=lambda pair: pair[1].weight)
            key = f"{top.key} {label(texts[top.key], ascii=view.ascii)}"
            looks = f"{key} {top.weight:.{view.precision}f} {head_label(head.layer, head.head)}"
        lookback, per_key = _lookback_shares(document, step)
        numbers = [step.probability, lookback, per_key]
        if step.rest is not UNSET:
            numbers.insert(2, step.rest)  # behind the lookback, as "at rest" in `columns` below
        shares = [f"{share:.{view.precision}f}" for share in numbers]
        token_name = label(token.text, ascii=view.ascii)
        rows.append(
            [
                str(token.index),
                token_name,
                *shares,
                bar(lookback, BAR, ascii=view.ascii),
                looks,
            ]
        )
    columns = ["", "token", "prob", "lookback", message("per key"), "", message("strongest look")]
    note = message(
        "lookback: share of attention on the prompt, mean over the heads kept; per key: the same of"
        " the mean weight per key"
    )
    align = ["right", "left", "right", "right", "right", "left", "left"]
    if any(step.rest is not UNSET for step in document.steps):
        columns.insert(4, message("at rest"))  # the index and the token come before the numbers
        align.insert(4, "right")
        note = message(
            "lookback: of the attention that does not rest, the share on the prompt, mean over the"
            " heads kept; per key: the same of the mean weight per key; at rest: on {rest}; the"
            " strongest look leaves these and the token itself out",
            rest=rest_names(document.tokens),
        )
    return table(columns, rows, view, align=align, title="lookback", note=note)


def _lookback_shares(document: GenerateDocument, step: GenerateStep) -> tuple[float, float]:
    """The prompt's share of a new token's attention, and the same share of its means per key; both
    of the attention that does not rest on the first token and the like, where the document
    separates that."""
    if step.rest is UNSET:
        return step.lookback, step.lookback_per_key
    # how many keys of the prompt are left without those where heads rest, and how many are new
    rest_count = int(resting_keys(document.tokens, document.model.source).sum())
    prompt = max(len(document.tokens) - rest_count, 1)  # no key has no weight: 0 / 1
    generated = step.token + 1 - len(document.tokens)
    per_key = [
        context_share(max(head.context - head.rest, 0.0) / prompt, head.generated / generated)
        for head in step.heads
        if head.rest is not UNSET
    ]
    lookback = context_share(max(step.context - step.rest, 0.0), step.generated)
    return lookback, float(np.mean(per_key))


def _top_key(head: StepHead) -> TopKey | None:
    """The key that a head looks at most, without those where heads rest (the first token and the like)
    if the document separates them; None where there is no other key."""
    if head.top_beyond_rest is UNSET:
        return head.top
    return head.top_beyond_rest


def _heads(document: GenerateDocument, view: View) -> Lines:
    """A map of the heads by their lookback, the prompt's share of their attention, mean over the
    new tokens; of the attention that does not rest on the first token and the like, where the
    document separates that.
    """
    # by (layer, head): sums over the new tokens of the weight on the prompt, without what rests, and
    # on what was generated
    prompt: dict[tuple[int, int], float] = {}
    generated: dict[tuple[int, int], float] = {}
    for step in document.steps:
        for head in step.heads:
            place = (head.layer, head.head)
            rest = 0.0
            if head.rest is not UNSET:
                rest = head.rest
            prompt[place] = prompt.get(place, 0.0) + head.context - rest
            generated[place] = generated.get(place, 0.0) + head.generated
    cells = []
    for place, on_prompt in prompt.items():
        total = on_prompt + generated[place]
        share = float("nan")  # all of the head's weight rests
        if total > 0:
            share = on_prompt / total
        cells.append((*place, share))
    grid = head_grid(cells)
    note = message("lookback of each head over all new tokens; rows: layers, columns: heads")
    if _has_rest(document):
        note = message(
            "lookback of each head over all new tokens, of what does not rest; rows: layers,"
            " columns: heads"
        )
    return draw_grid(grid, view, title="heads", note=note)


def _regions(document: GenerateDocument, view: View) -> Lines:
    """A matrix of new tokens × regions: where each looks while the token after it is chosen; no
    lines without regions."""
    if document.regions is UNSET or not document.steps:
        return Lines()
    return matrix(
        _region_shares(document),
        [token.text for token in document.generated],
        # the columns of `_region_shares`
        [
            *(region_name(region.name, view) for region in document.regions),
            *([say(view, "rest")] if _has_rest(document) else []),
            say(view, "new tokens"),
        ],
        view,
        limits=(0.0, 1.0),
        title=message("where the new tokens look"),
        note=message(
            "rows: new tokens, columns: regions and what is new; means over the heads kept"
        ),
        row_numbers=[token.index for token in document.generated],
    )


def _region_shares(document: GenerateDocument) -> NDArray:
    """The attention of each new token, [token, column]: a column for each region, one for the keys
    where heads rest (the first token and the like) if the document separates these (regions are then
    without them), and one for what was generated."""
    generated = np.array([[step.generated] for step in document.steps])
    if not _has_rest(document):
        shares = as_matrix([step.regions for step in document.steps])
        return np.concatenate([shares, generated], 1)
    shares = as_matrix([step.regions_beyond_rest for step in document.steps])
    rest = np.array([[0.0 if step.rest is UNSET else step.rest] for step in document.steps])
    return np.concatenate([shares, rest, generated], 1)


def _has_rest(document: GenerateDocument) -> bool:
    """Whether the document separates attention on keys where heads rest (the first token and the
    like) from the other."""
    return any(step.rest is not UNSET for step in document.steps)


def generate_sentences(document: GenerateDocument, view: View) -> Iterator[str]:
    """Yield the sentences of the answer: how likely the new words were, and how much of their
    weight is on the prompt and on each of its regions, means over words and heads.
    """
    if not document.steps:
        yield say(view, "Nothing was added: the text ended at once.")
        return
    yield from _sureness(document, view)
    mean = sum(step.lookback for step in document.steps) / len(document.steps)
    on_prompt = plural(
        "The {count} new token has {share} of its weight on the prompt, on average over the heads.",
        "The {count} new tokens have {share} of their weight on the prompt, on average over the"
        " heads.",
        count=len(document.steps),
        share=percent(mean),
    )
    rest = 0.0
    if _has_rest(document):
        rest = float(np.mean([step.rest for step in document.steps if step.rest is not UNSET]))
        context = np.mean([step.context for step in document.steps])
        on_prompt = plural(
            "On average over the heads the {count} new token has {rest_share} of its weight on"
            " {rest}, where heads rest, {share} on the other tokens of the prompt and {own} on what"
            " is new.",
            "On average over the heads the {count} new tokens have {rest_share} of their weight on"
            " {rest}, where heads rest, {share} on the other tokens of the prompt and {own} on what"
            " is new.",
            count=len(document.steps),
            rest_share=percent(rest),
            rest=rest_names(document.tokens),
            share=percent(float(context - rest)),
            own=percent(float(np.mean([step.generated for step in document.steps]))),
        )
    yield say(view, on_prompt)
    if document.regions is UNSET:
        return
    names = [quote_text(region_name(region.name, view), view) for region in document.regions]
    # the first columns are the regions; as shares of the weight that does not rest
    means = _region_shares(document).mean(0) / max(1 - rest, TINY)
    # indexes of the regions that are looked at most
    order = sorted(range(len(names)), key=lambda place: -means[place])[:MOST_REGIONS]
    shares = [
        message("{share} is in {region}", share=percent(means[place], 1), region=names[place])
        for place in order
    ]
    template = message("Of what they look at, {shares}.")
    if _has_rest(document):
        template = message("Of the weight that does not rest {shares}.")
    yield say(view, template, shares=listing(shares))
    # the regions' shares if a token looked at every key alike, [token][region]
    even = [
        step.even if step.even_beyond_rest is UNSET else step.even_beyond_rest
        for step in document.steps
        if step.even is not UNSET
    ]
    if even:
        # what even attention would leave on resting keys is taken out as well
        rests = [0.0 if step.even_rest is UNSET else step.even_rest for step in document.steps]
        of_keys = [percent(share, 1) for share in np.mean(even, 0) / (1 - np.mean(rests))]
        even_shares = [
            message("{share} in {region}", share=of_keys[place], region=names[place])
            for place in order
        ]
        yield say(view, "Even attention would have {shares}.", shares=listing(even_shares))


def _sureness(document: GenerateDocument, view: View) -> Iterator[str]:
    """Yield how likely the first new token was, and the one that was least likely, each with the
    likeliest others."""
    probabilities = [step.probability for step in document.steps]
    least = int(np.argmin(probabilities))
    templates = [(0, message("First came {token} with {share}{among}."))]
    if least:  # not the first, which is told anyway
        templates.append((least, message("Least likely was {token}: {share}{among}.")))
    for place, template in templates:
        step = document.steps[place]
        token = document.generated[place]
        likeliest = step.likeliest or []  # a document may leave them out
        # the likeliest have the text that the vocabulary has, blanks included
        text = token.text
        for row in likeliest:
            if row.token.id == token.id:
                text = row.token.text
        others = listing(
            f"{quote_text(row.token.text, view)} {percent(row.probability)}"
            for row in likeliest
            if row.token.id != token.id
        )
        yield say(
            view,
            template,
            token=quote_text(text, view),
            share=percent(step.probability),
            among=say(view, " (beside it: {tokens})", tokens=others) if likeliest else "",
        )


def _answer(document: GenerateDocument, view: View) -> list[Lines]:
    """The end of the screen, in a list: the tinted text and the sentences of the answer; an empty
    list where `--show` names parts."""
    if view.show is not None:
        return []
    return [
        stack(_tinted_text(document, view), sentences(generate_sentences(document, view), view))
    ]


GENERATE_PARTS: Parts[GenerateDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens),
    ScreenPart("continuation", _continuation),
    ScreenPart("lookback", _lookback),
    ScreenPart("regions", _regions),
    ScreenPart("heads", _heads),
)
