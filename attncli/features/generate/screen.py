"""The screen of `attn.generate/1`: the continuation, and how far each new token looks back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncli.draw.lines import Lines, fit_to_view, heading, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import bar, percent
from attncli.draw.safe import label, safe
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import shaded_sentence
from attncli.draw.shaded_matrix import draw_grid, head_grid
from attncli.draw.tables import table
from attncli.draw.view import Parts, ScreenPart, View, parts_shown
from attncli.features.generate.compute import GenerateDocument
from attncli.language import message, plural, say

BAR = 20


def generate_screen(document: GenerateDocument, view: View) -> Lines:
    """The whole screen: the text with its continuation, a row per new token, and the heads' mean lookback."""
    if view.brief:
        return fit_to_view(stack_spaced((_continuation(document, view), *_answer(document, view))), view)
    blocks = (part.draw(document, view) for part in parts_shown(GENERATE_PARTS, document, view))
    return fit_to_view(stack_spaced((*blocks, *_answer(document, view))), view)


def generate_rows(document: GenerateDocument) -> Iterator[Sequence[object]]:
    """One row per new token, layer and head for `--plain`, its first row the names of the columns."""
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
    )
    for token, step in zip(document.generated, document.steps, strict=True):
        for head in step.heads:
            shares = (getattr(head, name) for name in ("context", "generated", "lookback", "lookback_per_key"))
            place = (token.index, token.text, step.probability, head.layer, head.head)
            yield (*place, *shares, head.top.key, head.top.weight)


def _continuation(document: GenerateDocument, view: View) -> Lines:
    is_sampled = document.temperature > 0
    sampling_note = (
        message(
            "drawn at temperature {temperature:g}, seed {sample_seed}",
            temperature=document.temperature,
            sample_seed=document.sample_seed,
        )
        if is_sampled
        else message("the likeliest token each time")
    )
    if document.ended:
        sampling_note = message("{choice}; ended by itself", choice=sampling_note)
    text = safe(document.continuation.strip() or document.continuation, ascii=view.ascii)
    return stack((heading("continuation", "", view), remark(text, view, style="bold"), remark(sampling_note, view)))


def _tinted_text(document: GenerateDocument, view: View) -> Lines:
    """The text and what was added, tinted by what the new tokens look at most, in any head."""
    tokens = [*document.tokens, *document.generated]
    shares = [0.0] * len(tokens)
    for head in (head for step in document.steps for head in step.heads):
        shares[head.top.key] = max(shares[head.top.key], head.top.weight)
    new = [token.index for token in document.generated]
    return shaded_sentence(
        document.text + document.continuation,
        tokens,
        shares,
        view,
        query=new,
        tint=message("tint: what the new tokens, in brackets, look at most in any head"),
    )


def _lookback(document: GenerateDocument, view: View) -> Lines:
    texts = [token.text for token in (*document.tokens, *document.generated)]
    rows = []
    for token, step in zip(document.generated, document.steps, strict=True):
        best = max(step.heads, key=lambda head: head.top.weight)
        key = best.top.key
        where = f"L{best.layer} H{best.head}"
        looks = f"{key} {label(texts[key], ascii=view.ascii)} {best.top.weight:.{view.precision}f} {where}"
        shares = [
            f"{getattr(step, name):.{view.precision}f}" for name in ("probability", "lookback", "lookback_per_key")
        ]
        token_name = label(token.text, ascii=view.ascii)
        rows.append([str(token.index), token_name, *shares, bar(step.lookback, BAR, ascii=view.ascii), looks])
    columns = ["", "token", "prob", "lookback", message("per key"), "", message("strongest look")]
    note = message("share of attention on the prompt, mean over the heads kept")
    return table(
        columns,
        rows,
        view,
        align=["right", "left", "right", "right", "right", "left", "left"],
        title="lookback",
        note=note,
    )


def _heads(document: GenerateDocument, view: View) -> Lines:
    lookbacks: dict[tuple[int, int], list[float]] = {}
    for part in (head for step in document.steps for head in step.heads):
        lookbacks.setdefault((part.layer, part.head), []).append(part.lookback)
    grid = head_grid((*place, sum(values) / len(values)) for place, values in lookbacks.items())
    note = message("lookback of each head, mean over the new tokens; rows: layers, columns: heads")
    return draw_grid(grid, view, title="heads", note=note)


# The answers of the screens that are not about one sentence: what was compared, counted or captured, in words.


def generate_answer(document: GenerateDocument, view: View) -> Lines:
    """How much of their weight the new words have on the prompt, on average over words and heads."""
    if not document.steps:
        return sentences([say(view, "Nothing was added: the text ended at once.")], view)
    mean = sum(step.lookback for step in document.steps) / len(document.steps)
    return sentences(
        [
            say(
                view,
                plural(
                    "The {count} new token has {share} of its weight on the prompt, on average over the heads.",
                    "The {count} new tokens have {share} of their weight on the prompt, on average over the heads.",
                    count=len(document.steps),
                    share=percent(mean),
                ),
            )
        ],
        view,
    )


def _answer(document: GenerateDocument, view: View) -> list[Lines]:
    """What ends the screen, unless parts are named."""
    if view.show is not None:
        return []
    return [stack((_tinted_text(document, view), generate_answer(document, view)))]


GENERATE_PARTS: Parts[GenerateDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens),
    ScreenPart("continuation", _continuation),
    ScreenPart("lookback", _lookback),
    ScreenPart("heads", _heads),
)
