"""What the screen of `attn.heads/1` shows across heads and layers: rollout, flow, similarity,
circuits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from attncli.documents import Numbers
from attncli.draw.lines import FAINT, Line, Lines, heading, remark, stack, strip_styles
from attncli.draw.names import arrow
from attncli.draw.numbers import percent
from attncli.draw.safe import spell
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import table
from attncli.draw.token_names import quoted_token
from attncli.draw.view import View
from attncli.features.heads.document import Circuits, Flow, HeadsDocument, Rollout, Similarity
from attncli.language import Message, contextual, message, plural, say
from attncli.measure.rest import resting_keys
from attncli.mechanism.spec import head_label


def rollout_part(document: HeadsDocument, view: View) -> Lines:
    """Two matrices: the attention rollout, and the rollout of uniform attention; empty without
    --across rollout."""
    if not document.rollout:
        return Lines()
    texts = [token.text for token in document.tokens]
    note = message(
        "how much of each input token (column) reaches each position (row); residual counted half"
    )
    even = message("the same of uniform attention: what depth and mask alone give")
    return stack(
        matrix(document.rollout.weights, texts, texts, view, title="rollout", note=note),
        matrix(
            document.rollout.uniform,
            texts,
            texts,
            view,
            title="rollout of uniform attention",
            note=even,
        ),
    )


def flow_part(document: HeadsDocument, view: View) -> Lines:
    """The matrix of the maximum flow from input tokens to positions; empty without --across flow."""
    if not document.flow:
        return Lines()
    texts = [token.text for token in document.tokens]
    note = message(
        "maximum flow from each input token (column) to each position (row), rows scaled to sum"
        " to 1"
    )
    return matrix(document.flow.weights, texts, texts, view, title="attention flow", note=note)


def similarity_part(document: HeadsDocument, view: View) -> Lines:
    """The tree of heads by similarity, a line for each head in the tree's order: its bar ends at the
    distance at which it joins a neighbour, and the number behind it is the distance to the head
    below. Empty without --across similarity."""
    part = document.similarity
    if not part:
        return Lines()
    names = [head_label(head.layer, head.head) for head in part.heads]
    note = message(
        "√(Jensen–Shannon / ln 2), 0 equal to 1 disjoint; heads that look alike stand together"
    )
    title = heading("heads by similarity", note, view)
    if not part.tree:
        return stack(title, remark("(one head)", view))
    name_width = max(map(len, names))
    # cells of the longest bar: 8 beside the name are for blanks and the number, and no bar needs more
    # than 60
    room = max(min(view.width - name_width - 8, 60), 8)
    heights = _join_heights(part)
    lines: list[Line] = []
    mark = spell("─", ascii=view.ascii)
    # gaps[i] is the distance at which the heads i and i + 1 of the tree's order are joined: every gap
    # is one merge
    gaps = [heights[a, b] for a, b in pairwise(part.order)]
    for index, head in enumerate(part.order):
        # a bar ends at the nearer of the gaps above and below; the first and the last head have one
        distance = min(gaps[max(index - 1, 0) : index + 1])
        bar = mark * max(round(distance * room), 1)
        below = ""
        if index < len(gaps):
            below = f" {gaps[index]:.{view.precision}f}"
        lines.append(((names[head].ljust(name_width + 1), ""), (bar, "cyan"), (below, FAINT)))
    note_below = message(
        "the number is the distance at which a head's cluster joins the one below; bars end at the"
        " nearer join"
    )
    block = stack(title, Lines(tuple(lines)), remark(note_below, view))
    if view.color:
        return block
    return strip_styles(block)


def _join_heights(part: Similarity) -> dict[tuple[int, int], float]:
    """The distance at which the tree joins two heads that are neighbours in its order, by the two
    heads' indices.
    """
    # the heads of each cluster in order: single heads first, then each merge adds a cluster
    members = [[row] for row in range(len(part.heads))]
    heights: dict[tuple[int, int], float] = {}
    for merge in part.tree:
        left = members[merge.a]
        right = members[merge.b]
        heights[left[-1], right[0]] = merge.height
        members.append([*left, *right])
    return heights


def circuits_part(document: HeadsDocument, view: View) -> Lines:
    """Tables of what the weights of heads do by themselves: copying and norms of each, the strongest
    compositions of two heads, and the heads most alike; empty without --across circuits."""
    part = document.circuits
    if not part:
        return Lines()

    def number(value: float | None) -> str:
        """A number with the view's digits; "-" where there is none."""
        if value is None or np.isnan(value):
            return "-"
        return f"{value:.{view.precision}f}"

    rows = [
        [
            str(head.layer),
            str(head.head),
            *(number(getattr(head, name)) for name in ("copying", "qk_norm", "ov_norm")),
        ]
        for head in part.heads
    ]
    note = message("from the weights alone; copying: Re Σλ / Σ|λ| of W_OV, 1 copies, −1 negates")
    if view.full:
        rows_shown = rows
    else:
        rows_shown = rows[: max(view.top, 12)]  # a dozen heads at least
    columns = ["layer", "head", "copying", "‖W_QK‖", "‖W_OV‖"]
    blocks = [table(columns, rows_shown, view, align=["right"] * 5, title="circuits", note=note)]
    if len(rows_shown) < len(rows):
        counts = {"rows_shown": len(rows_shown), "rows": len(rows)}
        blocks.append(
            remark(message("{rows_shown} of {rows} heads shown; --full shows all", **counts), view)
        )

    if part.compositions:
        pairs = []
        for pair in part.compositions[: view.top]:
            before = head_label(pair.before.layer, pair.before.head)
            after = head_label(pair.after.layer, pair.after.head)
            chance = ""
            if part.chance:
                chance = number(getattr(part.chance, pair.way))
            kernel = ""
            if pair.kernel is not UNSET:
                kernel = number(pair.kernel)
            name = f"{before}{arrow(view)}{after}"
            pairs.append([name, pair.way.upper(), number(pair.strength), chance, kernel])
        columns = [
            contextual("column", "heads"),
            "through",
            "strength",
            contextual("level", "chance"),
            contextual("column", "kernel"),
        ]
        align = ["left", "left", *["right"] * 3]
        note = message("how much a later head's Q, K or V reads of what an earlier one writes")
        blocks.append(
            table(columns, pairs, view, align=align, title="strongest compositions", note=note)
        )
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
    """A table of the pairs of heads that read or write most alike by their weights, with what random
    subspaces would have in common in the note."""
    rows = []
    for row in part.likeness or ():
        dot = spell(" · ", ascii=view.ascii)
        names = dot.join(head_label(head.layer, head.head) for head in (row.a, row.b))
        rows.append(
            [
                say(view, SPACE_NAMES[row.space]),
                names,
                "-" if row.kernel is None else f"{row.kernel:.2f}",
            ]
        )
    chance = part.kernel_chance
    note = ""
    if chance:
        note = message(
            "kernel: the share of one subspace that lies in the other; of {draws} random pairs"
            " {mean}, at most {largest}",
            mean=f"{chance.mean:.2f}",
            largest=f"{chance.largest:.2f}",
            draws=chance.draws,
        )
    titles = [
        "",
        say(view, contextual("column", "heads")),
        say(view, contextual("column", "kernel")),
    ]
    title = say(view, "heads alike by their weights")
    return table(titles, rows, view, align=["left", "left", "right"], title=title, note=note)


class _Sources(NamedTuple):
    """Where positions take most from: key is the largest of all, free_key the largest of those
    where no head rests.

    rests: whether heads rest on the key (put weight there when they look for nothing), and not on
        all keys.
    names: of both, for a sentence.
    """

    key: int
    free_key: int
    rests: bool
    names: dict[str, str]


def _sources(document: HeadsDocument, weights: Numbers, view: View) -> _Sources:
    """The key with the largest weight, as a mean over queries, and the one among the keys where
    heads do not rest (without the first token and the like); `weights` is [query, key], such as a
    rollout."""
    means = as_matrix(weights).mean(axis=0)
    rest = resting_keys(document.tokens, document.model.source)[: means.size]
    key = int(means.argmax())
    free_key = int(np.where(rest, -1.0, means).argmax())
    names = {
        "token": quoted_token(document.tokens, key, view),
        "share": percent(float(means[key])),
        "other": quoted_token(document.tokens, free_key, view),
        "other_share": percent(float(means[free_key])),
    }
    # where heads rest on every token, there is no other to tell of
    rests = bool(rest[key]) and not rest.all()
    return _Sources(key, free_key, rests, names)


def _rollout_sentence(document: HeadsDocument, rollout: Rollout, view: View) -> str:
    """The sentence on the input token that reaches the positions most through all layers, by the
    rollout, beside the share that it would have with uniform attention.
    """
    sources = _sources(document, rollout.weights, view)
    even = as_matrix(rollout.uniform).mean(axis=0)
    template = message(
        "Rolled out through {layers}, positions take the largest share from {token}: {share} on"
        " average; {even} with uniform attention."
    )
    if sources.rests:
        template = message(
            "Rolled out through {layers}, positions take {share} on average from {token}, where"
            " heads rest ({even} with uniform attention); of the other tokens most from {other}:"
            " {other_share} ({other_even})."
        )
    return say(
        view,
        template,
        layers=_layers_phrase(document),
        even=percent(float(even[sources.key])),
        other_even=percent(float(even[sources.free_key])),
        **sources.names,
    )


def _flow_sentence(document: HeadsDocument, flow: Flow, view: View) -> str:
    """The sentence on the token from which most can flow to the positions; where heads rest on it,
    as on the first token, also on the first of the other tokens."""
    sources = _sources(document, flow.weights, view)
    template = message(
        "By maximum flow, positions take the largest share from {token}: {share} on average."
    )
    if sources.rests:
        template = message(
            "By maximum flow, positions take {share} on average from {token}, where heads rest; of"
            " the other tokens most from {other}: {other_share}."
        )
    return say(view, template, **sources.names)


def _layers_phrase(document: HeadsDocument) -> Message:
    """The layers that a rollout goes through, in words: "all layers", how many, or "the layers
    chosen" where the document keeps too few heads to tell.
    """
    if document.heads_in_all:
        return message("the layers chosen")
    count = len({head.layer for head in document.heads})
    if count == document.model.layers:
        return message("all layers")
    return plural("{count} layer", "{count} layers", count=count)


def across_sentences(document: HeadsDocument, view: View) -> Iterator[str]:
    """Yield one sentence each on rollout, flow, similarity and circuits, as far as the document has
    them."""

    if document.rollout:
        yield _rollout_sentence(document, document.rollout, view)
    if document.flow:
        yield _flow_sentence(document, document.flow, view)
    if document.similarity and document.similarity.tree:
        # the first merge is of the two heads that are most alike
        first = document.similarity.tree[0]
        a, b = (document.similarity.heads[row] for row in (first.a, first.b))
        yield say(
            view,
            "Most alike are layer {layer_a} head {head_a} and layer {layer_b} head {head_b}:"
            " {distance} apart, of at most 1.",
            layer_a=a.layer,
            head_a=a.head,
            layer_b=b.layer,
            head_b=b.head,
            distance=f"{first.height:.2f}",
        )
    if not document.circuits or not document.circuits.compositions:
        return
    # the strongest composition comes first
    strongest = document.circuits.compositions[0]
    if strongest.strength is None:
        return
    yield say(
        view,
        "Of all pairs layer {layer} head {head} reads layer {layer_before} head {head_before}"
        " most, through its {way}: {strength}.",
        layer=strongest.after.layer,
        head=strongest.after.head,
        layer_before=strongest.before.layer,
        head_before=strongest.before.head,
        way=strongest.way.upper(),
        strength=f"{strongest.strength:.2f}",
    )
