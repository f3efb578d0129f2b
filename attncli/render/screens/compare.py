"""The screen of `attn.compare/1`: the two sides, differences by head, maps with the signed one, what moved most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attncli.analysis.documents.compare import ComparedHead, CompareDocument, MovedWeight, SignedDifference
from attncli.render.glyphs import spell
from attncli.render.headings import heading, remark
from attncli.render.heatmap import heatmap
from attncli.render.lines import Lines, beside, clip_lines, line, stack, stack_spaced
from attncli.render.maps import legend, row_names
from attncli.render.matrix import as_matrix, matrix
from attncli.render.numbers import percent
from attncli.render.phrases import say
from attncli.render.safe import cut
from attncli.render.screen_parts import PARTS_OF
from attncli.render.screens.compare_answer import by_change, compare_answer
from attncli.render.screens.compared_sides import compared_sides
from attncli.render.screens.header import count_phrase
from attncli.render.screens.overview import left_out_note
from attncli.render.tables import table
from attncli.render.token_names import short
from attncli.render.view import View

PARTS = PARTS_OF["compare"]
"""Every part, in the order of the screen. `difference` is the signed map as a table of numbers."""
DEFAULT = frozenset({"sides", "moved", "heads", "maps", "answer"})
MAPPED = 1
"""Pairs of heads that are drawn unless the view is full: the one whose link changed most."""


def compare_screen(document: CompareDocument, view: View) -> Lines:
    """The whole screen of an `attn.compare/1` document."""
    part_names = frozenset({"answer"}) if view.brief else DEFAULT if view.show is None else view.show
    parts = {
        "sides": compared_sides,
        "moved": _moved_weights,
        "heads": _heads,
        "maps": _maps,
        "difference": _tables,
        "answer": compare_answer,
    }
    blocks = [parts[part](document, view) for part in PARTS if part in part_names]
    return clip_lines(stack_spaced(blocks), view.width, ascii=view.ascii)


def compare_rows(document: CompareDocument) -> Iterable[list[object]]:
    """One line per pair of heads, for `--plain`."""
    yield [
        "layer_a",
        "head_a",
        "layer_b",
        "head_b",
        "max_difference",
        "query",
        "key",
        "mean_difference",
        "js",
        "kept",
        "output_error",
    ]
    for head in document.heads:
        most = head.max_difference
        yield [
            head.a.layer, head.a.head, head.b.layer, head.b.head, most.value, most.query,
            most.key,
            head.mean_difference, head.js, head.kept, head.output_error,
        ]  # fmt: skip


def _heads(document: CompareDocument, view: View) -> Lines:
    """One line per pair of heads: largest and mean difference, divergence, weight kept, output error, pairs."""
    texts = [token.text for token in document.a.tokens]
    heads = by_change(document)
    heads = heads if view.full else heads[: view.top]
    has_kept = any(head.kept is not None and head.kept < 1 for head in heads)
    outside = any(max(head.outside.a, head.outside.b) > 0 for head in heads)
    error = any(head.output_error is not None for head in heads)
    columns = [
        "head",
        "max diff",
        "at",
        "mean |diff|",
        "JS",
        *(["kept"] if has_kept else []),
        *(["error" if outside else "output error"] if error else []),
    ]
    columns += ["else A", "else B"] if outside else []
    rows = []
    for head in heads:
        largest_change = head.change
        rows.append(
            [
                _pair(head, view),
                "-" if largest_change is None else _signed_number(largest_change.value, view),
                "-" if largest_change is None else _link(largest_change, texts, view),
                f"{head.mean_difference:.{view.precision + 1}f}",
                _number(head.js, view, 1),
                *([_number(head.kept, view)] if has_kept else []),
                *([_number(head.output_error, view)] if error else []),
                *([_number(getattr(head.outside, letter), view) for letter in "ab"] if outside else []),
            ]
        )
    title = heading("differences B − A by head", "of the weights; the largest change first", view)
    body = table(columns, rows, view, align=["left", "right", "left", *["right"] * 8])
    explanations = ["JS: mean Jensen–Shannon divergence of the rows, nats, at most 0.69"]
    explanations += ["kept: share of A's weight on keys that B sees"] if has_kept else []
    explanations += [f"{'error' if outside else 'output error'}: |O_B − O_A| / |O_A|"] if error else []
    explanations += ["else: mean weight on tokens that the other text lacks"] if outside else []
    summary = document.summary
    largest, mean = _signed_number(summary.max_difference, view), f"{summary.mean_difference:.{view.precision + 1}f}"
    over = f"over all heads: largest {largest}, mean {mean}, JS {_number(summary.js, view, 1)}"
    rest_count = len(document.heads) - len(heads)
    more = remark(say(view, "effect.more", rest_count) if rest_count else "", view)
    cost = (
        _cost(document.heads, view)
        if {"mask", "hashing"} & {*document.differs} and "text" not in document.differs
        else Lines()
    )
    out = remark(left_out_note(document), view)
    return stack((title, body, more, remark(" · ".join(explanations), view), out, remark(over, view), cost))


def _cost(heads: Sequence[ComparedHead], view: View) -> Lines:
    """Pairs computed on either side, where they differ."""
    pair_counts = [head.pairs for head in heads if head.pairs is not None]
    a, b = sum(pairs.a for pairs in pair_counts), sum(pairs.b for pairs in pair_counts)
    if not pair_counts or a == b or a == 0:
        return Lines()
    saved_text = f"{percent(1 - b / a, 1)} saved" if b < a else f"{percent(b / a - 1, 1)} more"
    return remark(f"pairs: A {a:,}, B {b:,}: B computes {percent(b / a, 1)} of A's, {saved_text}", view)


def _signed_number(value: float, view: View) -> str:
    """A difference with its sign; one too small for the digits that are shown as a power of ten, such as `-6e-08`."""
    text = f"{value:+.{view.precision}f}"
    return text if value == 0 or text.strip("+-0.") else f"{value:+.0e}"


def _number(value: float | None, view: View, more: int = 0) -> str:
    return "-" if value is None else f"{value:.{view.precision + more}f}"


def _pair(head: ComparedHead, view: View) -> str:
    a, b = head.a, head.b
    first, same = f"L{a.layer} H{a.head}", (a.layer, a.head) == (b.layer, b.head)
    return first if same else spell(f"{first} → L{b.layer} H{b.head}", ascii=view.ascii)


def _link(link: SignedDifference | MovedWeight, texts: Sequence[str], view: View) -> str:
    query, key = (short(texts[index], 10, view) for index in (link.query, link.key))
    return f"{query}{spell(' → ', ascii=view.ascii)}{key}"


def _heads_to_draw(document: CompareDocument, view: View, most: int) -> list[ComparedHead]:
    """The pairs of heads that are drawn, those that changed most."""
    return list(document.heads) if view.full else by_change(document)[:most]


def _maps(document: CompareDocument, view: View) -> Lines:
    """A, B and the signed difference side by side; one scale for all weights, one for all differences."""
    heads = _heads_to_draw(document, view, MAPPED)
    # differences that print as 0.00 are not drawn as if they were large
    far = max(max(abs(head.max_difference.value) for head in heads), 10.0**-view.precision)
    rows = document.rows()
    names = row_names([document.a.tokens[document.aligned[index][0]].text for index in rows], view)
    slot = max((view.width - names.width - 7) // 3, 8)
    if 2 * len(document.aligned) > slot:  # pooled, or finer than a line a word
        names, slot = Lines(), max((view.width - 6) // 3, 8)
    blocks = []
    for head in heads:
        size = len(head.weights_a)
        side_title = f"A {_pair(head, view)}" if len(document.heads) > 1 else "A"
        pictures = [
            stack(
                (
                    line((cut(name, slot, ascii=view.ascii), "bold")),
                    heatmap(
                        as_matrix(getattr(head, key))[rows],
                        view,
                        max_width=min(2 * size, slot),
                        max_height=size,
                        scale=scale,
                        low=low,
                        high=high,
                    ),
                )
            )
            for name, key, scale, low, high in (
                (side_title, "weights_a", "", 0.0, 1.0),
                ("B", "weights_b", "", 0.0, 1.0),
                (spell("B − A", ascii=view.ascii), "difference", "signed", -far, far),
            )
        ]
        blocks.append(beside(pictures, width=view.width, side=names))
    rest_count = len(document.heads) - len(heads)
    rest_note = f"{count_phrase(rest_count, 'other pair')} not drawn; --full draws all" if rest_count else ""
    scales = stack((legend(view, 0.0, 1.0), legend(view, -far, far, scale="signed"), remark(rest_note, view)))
    return stack(
        (heading("maps", "rows: queries, columns: keys; difference B − A", view), stack_spaced((*blocks, scales)))
    )


def _tables(document: CompareDocument, view: View) -> Lines:
    """The signed difference in numbers."""
    columns = [index for index, _ in document.aligned]
    rows = document.rows()
    texts = [document.a.tokens[index].text for index in columns]
    return stack_spaced(
        matrix(
            as_matrix(head.difference)[rows], [texts[index] for index in rows], texts, view,
            shade=False, mark_max=False, title=f"difference {_pair(head, view)}",
            note="B − A · rows: queries, columns: keys", row_numbers=[columns[index] for index in rows],
            column_numbers=columns,
        )
        for head in _heads_to_draw(document, view, 1)
    )  # fmt: skip


def _moved_weights(document: CompareDocument, view: View) -> Lines:
    """The weights that moved most."""
    texts = [token.text for token in document.a.tokens]
    arrow = spell(" → ", ascii=view.ascii)
    several = len(document.heads) > 1
    rows = [
        [
            *([f"L{weight.layer} H{weight.head}"] if several else []),
            f"{weight.query} {_link(weight, texts, view).split(arrow)[0]}{arrow}"
            f"{weight.key} {_link(weight, texts, view).split(arrow)[1]}",
            f"{weight.a:.{view.precision}f}",
            f"{weight.b:.{view.precision}f}",
            _signed_number(weight.difference, view),
        ]
        for weight in document.moved
    ]
    columns = [*(["head"] if several else []), f"query{arrow}key", "A", "B", "B − A"]
    if not rows:
        text = left_out_note(document) if document.summary.max_difference else "nothing: the weights are equal"
        return stack((heading("what moved most", "", view), remark(text, view)))
    return table(
        columns,
        rows,
        view,
        align=[*(["left"] if several else []), "left", "right", "right", "right"],
        title="what moved most",
    )
