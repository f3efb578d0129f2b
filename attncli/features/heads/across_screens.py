"""What the screen of `attn.heads/1` shows across heads and layers: rollout, flow, similarity, circuits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, assert_never, get_args

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import FAINT, Line, Lines, heading, remark, stack, strip_styles
from attncli.draw.numbers import percent
from attncli.draw.safe import spell
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import table
from attncli.draw.token_names import quoted_token
from attncli.draw.view import View
from attncli.features.heads.document import Circuits, Flow, HeadsDocument, Rollout, Similarity, WhichHead
from attncli.language import contextual, message, say

Across = Literal["rollout", "flow", "similarity", "circuits"]
ACROSS: tuple[Across, ...] = get_args(Across)
"""The parts, each shown where the document has it."""


def across_part(name: Across, document: HeadsDocument, view: View) -> Lines:
    """The part of that name; nothing where the document is without it."""
    match name:
        case "rollout":
            return _rollout(document.rollout, _texts(document), view) if document.rollout else Lines()
        case "flow":
            return _flow(document.flow, _texts(document), view) if document.flow else Lines()
        case "similarity":
            return _similarity(document.similarity, view) if document.similarity else Lines()
        case "circuits":
            return _circuits(document.circuits, view) if document.circuits else Lines()
        case _:
            assert_never(name)


def _texts(document: HeadsDocument) -> list[str]:
    return [token.text for token in document.tokens]


def _rollout(part: Rollout, texts: Sequence[str], view: View) -> Lines:
    note = message("how much of each input token (column) reaches each position (row); residual counted half")
    even = message("the same of uniform attention: what depth and mask alone give")
    return stack(
        matrix(part.weights, texts, texts, view, title="rollout", note=note),
        matrix(part.uniform, texts, texts, view, title="rollout of uniform attention", note=even),
    )


def _flow(part: Flow, texts: Sequence[str], view: View) -> Lines:
    note = message("maximum flow from each input token (column) to each position (row), rows scaled to sum to 1")
    return matrix(part.weights, texts, texts, view, title="attention flow", note=note)


def _similarity(part: Similarity, view: View) -> Lines:
    """The tree of heads, drawn from left to right: bars join at the distance of what they join."""
    names = [f"L{head.layer} H{head.head}" for head in part.heads]
    note = message("√(Jensen–Shannon / ln 2), 0 equal to 1 disjoint; heads that look alike stand together")
    title = heading("heads by similarity", note, view)
    if not part.tree:
        return stack(title, remark("(one head)", view))
    side = max(map(len, names))
    room = max(min(view.width - side - 8, 60), 8)
    heights = _joins(part, len(names))
    lines: list[Line] = []
    marks = ("-", "+", "|") if view.ascii else ("─", "┐", "│")
    places = part.order
    # every gap between neighbours in the tree's order is one merge; a leaf's bar ends at the nearer of its gaps
    gaps = [heights[a, b] for a, b in pairwise(places)]
    for index, head in enumerate(places):
        near = [
            gap
            for gap in (gaps[index - 1] if index else None, gaps[index] if index < len(gaps) else None)
            if gap is not None
        ]
        length = max(round(min(near) * room), 1)
        bar = marks[0] * length
        below = f" {gaps[index]:.{view.precision}f}" if index < len(gaps) else ""
        lines.append(((names[head].ljust(side + 1), ""), (bar, "cyan"), (below, FAINT)))
    note_below = message(
        "the number is the distance at which a head's cluster joins the one below; bars end at the nearer join"
    )
    block = stack(title, Lines(tuple(lines)), remark(note_below, view))
    return block if view.color else strip_styles(block)


def _joins(part: Similarity, count: int) -> dict[tuple[int, int], float]:
    """The height at which neighbours in the tree's order are joined."""
    members: list[Sequence[int]] = [[head] for head in range(count)]
    heights: dict[tuple[int, int], float] = {}
    for merge in part.tree:
        left, right = members[merge.a], members[merge.b]
        heights[left[-1], right[0]] = merge.height
        members.append([*left, *right])
    return heights


def _circuits(part: Circuits, view: View) -> Lines:
    def number(value: float | None) -> str:
        return "-" if value is None or np.isnan(value) else f"{value:.{view.precision}f}"

    rows = [
        [str(head.layer), str(head.head), *(number(getattr(head, name)) for name in ("copying", "qk_norm", "ov_norm"))]
        for head in part.heads
    ]
    note = message("from the weights alone; copying: Re Σλ / Σ|λ| of W_OV, 1 copies, −1 negates")
    rows_shown = rows if view.full else rows[: max(view.top, 12)]
    heads = table(
        ["layer", "head", "copying", "‖W_QK‖", "‖W_OV‖"],
        rows_shown,
        view,
        align=["right"] * 5,
        title="circuits",
        note=note,
    )
    more = (
        message("{rows_shown} of {rows} heads shown; --full shows all", rows_shown=len(rows_shown), rows=len(rows))
        if len(rows_shown) < len(rows)
        else ""
    )
    blocks = [heads, remark(more, view)]
    if part.compositions:
        arrow = spell(" → ", ascii=view.ascii)
        pairs = [
            [
                f"{_head_name(pair.before)}{arrow}{_head_name(pair.after)}",
                pair.way.upper(),
                number(pair.strength),
                number(getattr(part.chance, pair.way)) if part.chance else "",
                "" if pair.kernel is UNSET else number(pair.kernel),
            ]
            for pair in part.compositions[: view.top]
        ]
        blocks.append(
            table(
                ["heads", "through", "strength", "chance", "kernel"], pairs, view,
                align=["left", "left", "right", "right", "right"],
                title="strongest compositions", note="how much a later head's Q, K or V reads of what an earlier one "
                                                     "writes",
            )
        )  # fmt: skip
    if part.likeness:
        blocks.append(_likeness(part, view))
    return stack(*blocks)


SPACE_NAMES = {
    "q": message("what queries read"),
    "k": message("what keys read"),
    "v": message("what values read"),
    "o": message("what they write"),
}
"""What two heads may have in common."""


def _likeness(part: Circuits, view: View) -> Lines:
    """The heads that are most alike by their weights, beside random subspaces."""
    rows = []
    for row in part.likeness or ():
        between = spell("·", ascii=view.ascii)
        names = f"{_head_name(row.a)} {between} {_head_name(row.b)}"
        rows.append([say(view, SPACE_NAMES[row.space]), names, "-" if row.kernel is None else f"{row.kernel:.2f}"])
    chance = part.kernel_chance
    note = (
        ""
        if not chance
        else message(
            "kernel: the share of one subspace that lies in the other; of {draws} random pairs {mean}, "
            "at most {largest}",
            mean=f"{chance.mean:.2f}",
            largest=f"{chance.largest:.2f}",
            draws=chance.draws,
        )
    )
    titles = ["", say(view, contextual("column", "heads")), say(view, contextual("column", "kernel"))]
    title = say(view, "heads alike by their weights")
    return table(titles, rows, view, align=["left", "left", "right"], title=title, note=note)


def _head_name(head: WhichHead) -> str:
    return f"L{head.layer} H{head.head}"


def across_sentences(document: HeadsDocument, view: View) -> Iterator[str]:
    """What rollout, flow, similarity and circuits say in one sentence each, of those that the document has."""
    if document.rollout:
        means = as_matrix(document.rollout.weights).mean(axis=0)
        source = int(means.argmax())
        yield say(
            view,
            "Rolled out through all layers, positions take the largest share from {token}: {share} on average; "
            "{even} with uniform attention.",
            token=quoted_token(document.tokens, source, view),
            share=percent(float(means[source])),
            even=percent(float(as_matrix(document.rollout.uniform)[:, source].mean())),
        )
    if document.flow:
        means = as_matrix(document.flow.weights).mean(axis=0)
        source = int(means.argmax())
        yield say(
            view,
            "By maximum flow, positions take the largest share from {token}: {share} on average.",
            token=quoted_token(document.tokens, source, view),
            share=percent(float(means[source])),
        )
    if document.similarity and document.similarity.tree:
        first = document.similarity.tree[0]
        a, b = (document.similarity.heads[row] for row in (first.a, first.b))
        yield say(
            view,
            "Most alike are layer {layer_a} head {head_a} and layer {layer_b} head {head_b}: {distance} apart, of "
            "at most 1.",
            layer_a=a.layer,
            head_a=a.head,
            layer_b=b.layer,
            head_b=b.head,
            distance=f"{first.height:.2f}",
        )
    for pair in document.circuits.compositions[:1] if document.circuits else ():
        if pair.strength is None:
            return
        yield say(
            view,
            "Of all pairs layer {layer} head {head} reads layer {layer_before} head {head_before} most, through "
            "its {way}: {strength}.",
            layer=pair.after.layer,
            head=pair.after.head,
            layer_before=pair.before.layer,
            head_before=pair.before.head,
            way=pair.way.upper(),
            strength=f"{pair.strength:.2f}",
        )
