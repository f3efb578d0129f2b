"""The screen of `attn.mask/1`: every mask in words, counted and drawn; the intersection; a bias
before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.documents.parts import MaskPart
from attncli.draw.heatmap import Map, heatmap, side_by_side
from attncli.draw.lines import (
    Lines,
    draw_parts,
    heading,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import brief, percent
from attncli.draw.safe import safe, spell
from attncli.draw.shaded_matrix import matrix
from attncli.draw.tables import table
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.mask.document import MaskDocument
from attncli.language import contextual, message, plural, say, say_each

AXES = message("rows: queries i, columns: keys j, both from 0")
NUMBERED = 16
"""Positions up to which a bias is printed as numbers."""
MOST_NUMBERED_ROWS = 40
"""Rows of a large map that have their numbers beside them at most, so that it stays calm."""


def mask_screen(document: MaskDocument, view: View) -> Lines:
    """The whole screen of an `attn.mask/1` document."""
    return draw_parts(MASK_PARTS, document, view, title=_title)


def mask_rows(document: MaskDocument) -> Iterable[list[object]]:
    """Yield the table for `--plain`, names of columns first: a row for each mask, and for all
    together."""
    yield [
        "spec",
        "pairs",
        "share",
        "keys_least",
        "keys_mean",
        "keys_most",
        "empty_rows",
        "unseen_keys",
        "says",
    ]
    parts = list(document.masks)
    if document.combined:  # of several masks
        parts.append(document.combined)
    for part in parts:
        keys = part.keys_per_query
        yield [
            part.spec,
            part.pairs,
            part.share,
            keys.least,
            keys.mean,
            keys.most,
            len(part.empty_rows),
            len(part.unseen_keys),
            part.words.en,
        ]


def _title(document: MaskDocument, view: View) -> Lines:
    """The title of the screen: what is drawn, and for how many positions."""
    if document.gallery:
        every = say(
            view,
            "every kind of mask, {count} positions · rows: queries, columns: keys",
            count=document.n,
        )
        return heading(every, "", view)
    visible = plural(
        "visible keys, {count} position", "visible keys, {count} positions", count=document.n
    )
    return heading(say(view, visible), AXES, view)


def _mask_in_words(part: MaskPart, view: View) -> str:
    """The sentence that describes the mask, in the view's language; the document holds it in
    English and Chinese."""
    if view.lang == "zh" and not view.ascii:
        return part.words.zh
    return localize(part.words.en, view)


def _shares(part: MaskPart) -> np.ndarray[Any, Any]:
    """The share of visible pairs in each cell of a mask's map; NaN where nothing is visible."""
    shares = np.asarray(part.map.share, np.float64)
    return np.where(shares > 0, shares, np.nan)


def _fact_texts(part: MaskPart, view: View) -> Iterator[str]:
    """Yield what a mask shows, a phrase each: how many pairs are visible, keys per query, queries
    that see nothing, and keys that no query sees.
    """
    pairs = plural(
        "{count:,} pair visible, {share}",
        "{count:,} pairs visible, {share}",
        count=part.pairs,
        share=percent(part.share, 1),
    )
    yield say(view, pairs)
    keys = part.keys_per_query
    yield say(
        view,
        "keys per query: least {least}, mean {mean}, most {most}",
        least=keys.least,
        mean=f"{keys.mean:.{view.precision}f}",
        most=keys.most,
    )
    if part.empty_rows:
        empty_rows = plural(
            "{count} query sees nothing: {queries}",
            "{count} queries see nothing: {queries}",
            count=len(part.empty_rows),
            queries=_positions_text(part.empty_rows),
        )
        yield say(view, empty_rows)
    if part.unseen_keys:
        unseen_keys = plural(
            "{count} key is seen by no query: {keys}",
            "{count} keys are seen by no query: {keys}",
            count=len(part.unseen_keys),
            keys=_positions_text(part.unseen_keys),
        )
        yield say(view, unseen_keys)


def _drawn_example(part: MaskPart, view: View) -> str:
    """The mask that is drawn as the example of its kind, such as `window:3: `, to stand before the
    kind's sentence; "" where the kind has only one mask."""
    if part.form in (None, "", part.spec):
        return ""
    return part.spec + say(view, ": ")


def _positions_text(places: Sequence[int]) -> str:
    """Positions as text, such as `#3` or `#0 #1 #2 …`: at most eight."""
    text = " ".join(f"#{place}" for place in places[:8])
    if len(places) > 8:
        return f"{text} …"
    return text


def _spec_text(spec: str, view: View) -> str:
    """How a mask is spelt, made safe for a terminal; of a mask from a file, "file NAME" in the
    view's language."""
    text = safe(spec, ascii=view.ascii)
    if text.startswith("file "):
        return say(view, "file {name}", name=text.removeprefix("file "))
    return text


def _draw_masks(parts: Sequence[MaskPart], view: View, *, title: str = "") -> Lines:
    """Each mask drawn large, one below the other, with its sentence and numbers.

    title: what the masks are called; "" for the spelling of each.
    """
    blocks = []
    for part in parts:
        shares = _shares(part)
        block = part.map.block  # pairs along each side of a cell of the map
        size = max(shares.shape)
        row_names = []
        map_width = 2 * size  # a cell is two columns of the terminal wide
        # rows have numbers, three columns wide, where each is one query and they are few
        if block == 1 and size <= MOST_NUMBERED_ROWS:
            row_names = [str(index) for index in range(shares.shape[0])]
            map_width += 3
        picture = heatmap(
            shares,
            view,
            max_width=min(view.width, map_width),
            max_height=size,
            rows=row_names,
            limits=(0.0, 1.0),
        )
        pooled = message(
            "pooled: each cell stands for {block} × {block} pairs and shows the share that is"
            " visible"
        )
        meaning = remark(_mask_in_words(part, view) + say(view, "."), view, style="")
        if title:
            name = title + say(view, ": ") + part.spec
        else:
            name = _spec_text(part.spec, view)
        facts = remark(" · ".join(_fact_texts(part, view)), view)
        cell_note = remark(say(view, pooled, block=block) if block > 1 else "", view)
        blocks.append(stack(heading(name, "", view), meaning, facts, picture, cell_note))
    return stack_spaced(*blocks)


def _draw_side_by_side(parts: Sequence[MaskPart], view: View) -> Lines:
    """Several masks small and side by side, each with its sentence above."""
    meanings = [
        stack(
            heading(_spec_text(part.spec, view), "", view),
            remark(_mask_in_words(part, view) + say(view, "."), view, style=""),
        )
        for part in parts
    ]
    maps = [Map(part.spec, _shares(part), (percent(part.share, 1),)) for part in parts]
    return stack_spaced(
        stack(*meanings), side_by_side(maps, view, shared_scale=False, scale="linear")
    )


def _gallery(document: MaskDocument, view: View) -> Lines:
    """The gallery of all kinds of masks: small maps side by side, then what each kind means."""
    parts = document.masks
    maps = [Map(part.spec, _shares(part)) for part in parts]
    meanings = [
        stack(
            # how masks of the kind are spelt; a kind of one mask is that mask
            heading(part.form or part.spec, "", view),
            remark("  " + _drawn_example(part, view) + _mask_in_words(part, view), view),
        )
        for part in parts
    ]
    return stack_spaced(
        side_by_side(maps, view, shared_scale=False, scale="linear"),
        stack(*meanings),
        remark(
            "--mask A --mask B keeps what both show; A|B in one SPEC what either shows, such as "
            "window:2,2|global:0. Files: .npy .npz .json .csv, 0 or false = hidden.",
            view,
        ),
    )


def _counts(document: MaskDocument, view: View) -> Lines:
    """A table of counts with a row for each of several masks, and for all together; no lines for
    one mask."""
    if document.gallery or document.combined is None:
        return Lines()
    rows = []
    for part in (*document.masks, document.combined):
        keys = part.keys_per_query
        per_query = [str(keys.least), f"{keys.mean:.{view.precision}f}", str(keys.most)]
        rows.append(
            [
                part.spec,
                f"{part.pairs:,}",
                percent(part.share, 1),
                *per_query,
                str(len(part.empty_rows)),
            ]
        )
    columns = say_each(
        view,
        "mask",
        "pairs",
        contextual("column", "share"),
        "least keys",
        "mean",
        "most",
        "empty rows",
    )
    note = plural("of {count:,} pair", "of {count:,} pairs", count=document.n**2)
    return table(columns, rows, view, align=["left", *["right"] * 6], title="counts", note=note)


def _bias(document: MaskDocument, view: View) -> Lines:
    """The part of the screen about a score bias: its values by distance, maps of it before and
    after the mask, and the weights that it makes of queries that are all alike; no lines without
    one.
    """
    bias = document.bias
    if bias is None:
        return Lines()
    title = say(
        view,
        "score bias {bias}, head {head} of {heads}",
        bias=bias.name,
        head=bias.head,
        heads=bias.heads,
    )
    if bias.slope is not None:
        note = say(
            view, "−m·(i − j) with m = {slope}, added before the mask", slope=brief(bias.slope)
        )
    elif bias.buckets:
        note = say(view, "numbers of the buckets of j − i; each has a learned bias per head")
    else:
        note = say(view, "learned, by the bucket of j − i; added before the mask")
    digits = view.precision
    if bias.buckets:
        digits = 0

    # a table of one row, as far as there is room
    by_distance = bias.by_distance
    head = [say(view, "j − i")]
    body = [say(view, "bias")]
    for row in by_distance:
        cell = f"{row.value + 0.0:.{digits}f}"  # + 0.0 makes 0 of −0
        # cells stand 2 apart, and the table has a margin of 2
        if sum(len(text) + 2 for text in body) + len(cell) > view.width - 2:
            break
        head.append(f"{row.distance:+d}" if row.distance else "0")
        body.append(cell)
    value_table = table(head, [body], view, align=["left", *["right"] * len(by_distance)])
    blocks = [heading(title, note, view), value_table]

    # maps, and numbers where there are few positions
    if bias.before is not None:
        before, after = (np.asarray(values, np.float64) for values in (bias.before, bias.after))
        n = len(before)
        # a number takes its digits and 6 more cells, the row's name 8
        if n <= NUMBERED and n * (digits + 6) + 8 <= view.width:
            close = replace(view, precision=digits)
            blocks.append(
                matrix(
                    after,
                    rows=None,
                    columns=None,
                    view=close,
                    mark_max=False,
                    title="after the mask",
                    note=AXES,
                )
            )
        maps = [Map("before the mask", before), Map("after the mask", after)]
        blocks.append(side_by_side(maps, view))
    if bias.weights_before is not None and bias.weights_after is not None:
        maps = [
            Map("weights, no mask", bias.weights_before),
            Map("weights, masked", bias.weights_after),
        ]
        alone = remark(
            "What bias and mask do alone: the weights where all queries and keys are alike.", view
        )
        blocks.append(stack(alone, side_by_side(maps, view)))
    return stack_spaced(*blocks)


def _layers(document: MaskDocument, view: View) -> Lines:
    """A table of the masks and positions of a model's layers, one row for a run of layers that have
    the same; no lines without a model of several layers."""
    rows = []
    layers = document.layers or ()
    if len(layers) < 2:
        return Lines()
    for (mask, position), run in groupby(
        enumerate(layers), key=lambda item: (item[1].mask, item[1].position)
    ):
        indices = [index for index, _ in run]
        layer_range = str(indices[0])
        if len(indices) > 1:
            layer_range = spell(f"{indices[0]}–{indices[-1]}", ascii=view.ascii)
        rows.append([layer_range, mask, position])
    return table(say_each(view, "layers", "mask", "position"), rows, view, title="masks by layer")


# The answers of the screens that are not about one sentence: what was compared, counted or
# captured, in words.

MOST_NAMES = 5
"""Aliases that are named in a sentence."""


def mask_answer(document: MaskDocument, view: View) -> Lines:
    """The answer of an `attn.mask/1` document: what each mask shows, and what is left of all
    together; nothing for the gallery."""
    if document.gallery or not document.masks:
        return Lines()
    return sentences([*_mask_sentences(document, view), *document.warnings], view)


def _mask_sentences(document: MaskDocument, view: View) -> Iterator[str]:
    """Yield sentences on how many pairs each mask shows, how many all of them show together, and
    which queries see nothing."""
    combined = document.combined
    total = f"{document.n**2:,}"

    def counts(part: MaskPart) -> dict[str, str]:
        """The values of a sentence about a mask: its visible pairs, all pairs, and the share."""
        return {"pairs": f"{part.pairs:,}", "total": total, "share": percent(part.share, 1)}

    # of very many masks only what they show together is said
    if combined is None or len(document.masks) <= MOST_NAMES:
        for part in document.masks:
            spec = _spec_text(part.spec, view)
            yield say(
                view, "{mask} shows {pairs} of {total} pairs, {share}.", mask=spec, **counts(part)
            )
    if combined is not None:
        yield say(view, "Together they show {pairs} of {total} pairs, {share}.", **counts(combined))
        # what all show together lies within each, so that as many pairs are the same pairs
        if same := next((part for part in document.masks if part.pairs == combined.pairs), None):
            yield say(view, "That is what {mask} shows alone.", mask=_spec_text(same.spec, view))
    # of one mask there is no combination: then it is the only one
    empty = (combined or document.masks[0]).empty_rows
    if len(empty) == 1:
        yield say(
            view, "{count} query sees nothing: its weights and its weighted sum A·V are 0.", count=1
        )
    elif empty:
        yield say(
            view,
            "{count} queries see nothing: their weights and weighted sums A·V are 0.",
            count=len(empty),
        )


def _masks(document: MaskDocument, view: View) -> Lines:
    """The masks drawn: one large, several side by side, or the gallery of all kinds."""
    if document.gallery:
        return _gallery(document, view)
    if document.combined is None:
        return _draw_masks(document.masks, view)
    return _draw_side_by_side(document.masks, view)


def _combined_mask(document: MaskDocument, view: View) -> Lines:
    """What several masks show together, drawn large; nothing for one."""
    if document.combined is None:
        return Lines()
    return _draw_masks([document.combined], view, title=say(view, "all together"))


MASK_PARTS: Parts[MaskDocument] = (
    ScreenPart("masks", _masks),
    ScreenPart("combined", _combined_mask),
    ScreenPart("counts", _counts),
    ScreenPart("bias", _bias),
    ScreenPart("layers", _layers),
    ScreenPart("answer", mask_answer),
)
