"""The screen of `attn.heads/1`: small maps of all heads, their metrics and labels, and the average of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from attncli.analysis.documents.heads import HeadMetrics, HeadsDocument, MetricValue
from attncli.analysis.documents.parts import LinkRow, TopLink
from attncli.render.glyphs import spell
from attncli.render.headings import heading, localize, remark
from attncli.render.lines import BLANK, Lines, fit_to_view, stack, stack_spaced
from attncli.render.links import layer_and_head, links
from attncli.render.maps import Map, side_by_side
from attncli.render.matrix import matrix
from attncli.render.phrases import say
from attncli.render.phrases.head_labels import label_name
from attncli.render.safe import cells
from attncli.render.screen_parts import PARTS_OF
from attncli.render.screens.across import ACROSS, across_part
from attncli.render.screens.grid import grid_part, settings_note
from attncli.render.screens.header import header, shown_tokens
from attncli.render.screens.heads_answer import heads_answer
from attncli.render.screens.heads_table import heads_rows as heads_rows
from attncli.render.screens.heads_table import metric_value
from attncli.render.tables import table
from attncli.render.token_names import key_names, short
from attncli.render.view import View

PARTS = PARTS_OF["heads"]
DEFAULT = frozenset({"header", "tokens", "grid", "maps", "metrics", "moved", *ACROSS, "answer"})
MATRICES = frozenset({"maps", "average", "weights"})
"""The parts that show matrices; a document may be without them."""
MAPS = 24
"""Maps that are shown unless the view is full."""
MANY = 16
"""Heads above which maps are shown only when asked for: they would push the numbers off the screen."""
ROOMY = 100
"""Below this width metrics have short names."""
NARROW, LABELS = 72, 40
"""Below `NARROW` the strongest links and labels get a table of their own; labels need `LABELS` beside the rest."""
SHORT = {"confidence": "conf", "distance": "dist", "previous": "prev"}


def heads_screen(document: HeadsDocument, view: View) -> Lines:
    """The whole screen for an `attn.heads/1` document. `average` is the table of the averaged heads, `weights` the
    table of each head, `links` each head's strongest link with a bar."""
    many = len(document.heads) > MANY
    deep = not view.full and len({head.layer for head in document.heads}) > 1
    by_default = DEFAULT - ({"maps"} if many else set()) - ({"tokens"} if deep else set())
    part_names = by_default if view.show is None else view.show
    if view.brief:
        return heads_answer(document, view)
    blocks = [_part(part, document, view) for part in PARTS if part in part_names]
    if view.show is not None and view.show != frozenset(PARTS):
        blocks = [
            block if block.rows else _absent(part, view)
            for block, part in zip(blocks, (p for p in PARTS if p in part_names), strict=True)
        ]
    if many and view.show is None:
        blocks.insert(
            -1,
            remark(
                f"maps of {len(document.heads)} heads are left out; --layer L chooses, --show maps shows them", view
            ),
        )
    return fit_to_view(stack_spaced(blocks), view)


def _absent(part: str, view: View) -> Lines:
    """What to say of a part that was asked for by name and that the document does not have."""
    ways = {"grid": "more than one layer has a grid", "moved": "attn heads --moved adds it"}
    way = ways.get(
        part, f"attn heads --across {part} adds it" if part in ACROSS else "attn heads without --show adds it"
    )
    return stack((heading(part, "", view), remark(f"not in this document: {way}", view)))


def _part(part: str, document: HeadsDocument, view: View) -> Lines:
    texts = [token.text for token in document.tokens]
    average = document.average.weights if document.average else None
    match part:
        case "header":
            return header(document, view)
        case "tokens":
            return shown_tokens(document, view)
        case "grid":
            return grid_part(document, view)
        case "answer":
            return heads_answer(document, view)
        case "moved":
            return _moved_metrics(document, view)
        case name if name in ACROSS:
            return across_part(name, document, view)
        case "maps":
            return maps_part(document, view)
        case "metrics":
            return metrics_part(document, view)
        case "average":
            note = "mean over heads; it hides what single heads do"
            return (
                matrix(
                    average,
                    texts,
                    key_names(texts, average),
                    view,
                    limits=(0.0, 1.0),
                    title="average of the heads",
                    note=note,
                )
                if average is not None
                else Lines()
            )
        case "weights":
            # cells of a pooled map have no names: the maps show them
            head_weights = ((head, head.weights) for head in document.heads if head.pool is UNSET)
            return stack_spaced(
                matrix(
                    weights,
                    texts,
                    key_names(texts, weights),
                    view,
                    limits=(0.0, 1.0),
                    title=f"weights of {_name(head)}",
                    note="rows: queries, columns: keys",
                )
                for head, weights in head_weights
                if weights is not UNSET
            )
        case _:
            link_rows = [
                LinkRow(
                    layer=head.layer,
                    head=head.head,
                    query=head.top_link.query,
                    key=head.top_link.key,
                    weight=head.top_link.weight,
                )
                for head in document.heads
                if head.top_link
            ]
            place = None if len(document.heads) == 1 else layer_and_head
            return links(
                link_rows, texts, view, place=place, title="strongest link of each head", note="bars from 0 to 1"
            )


def maps_part(document: HeadsDocument, view: View) -> Lines:
    """A small map of each head, the first `MAPS` unless the view is full, and of their average, on one scale."""
    head_weights = [(head, weights) for head in document.heads if (weights := head.weights) is not UNSET]
    if not head_weights:
        return Lines()
    several = len({head.layer for head, _ in head_weights}) > 1
    heads_shown = head_weights if view.full else head_weights[:MAPS]
    maps = [Map(_name(head) if several else f"head {head.head}", weights) for head, weights in heads_shown]
    average = document.average.weights if document.average else None
    maps += [Map("average", average)] if average is not None and len(maps) > 1 else []
    more = (
        f"{len(heads_shown)} of {len(head_weights)} heads shown; --layer L --head H chooses, --full shows all"
        if len(heads_shown) < len(head_weights)
        else ""
    )
    title = heading("maps of the weights", "rows: queries, columns: keys", view)
    names = [token.text for token in document.tokens]
    most = max(Counter(head.layer for head, _ in heads_shown).values()) if several else None
    picture = side_by_side(maps, view, limits=(0.0, 1.0), names=names, in_a_row=most)
    return stack((title, picture, remark(more, view), remark(_lost(document) if len(maps) > 1 else "", view)))


def _lost(document: HeadsDocument) -> str:
    """What the average hides: heads that look at different things average to one that looks at everything."""
    average = document.average
    if not average or average.entropy is UNSET or average.heads_entropy is UNSET:
        return ""
    average_entropy, heads_entropy = average.entropy, average.heads_entropy
    return (
        f"average: entropy {average_entropy:.2f} nats, its heads {heads_entropy:.2f} on their own: "
        f"it spreads over as many keys as {math.exp(average_entropy):.1f} equal ones "
        f"where a head looks at {math.exp(heads_entropy):.1f}, and hides which head looks where"
    )


def metrics_part(document: HeadsDocument, view: View) -> Lines:
    """One row of metrics per head, then one for uniform attention (one for each layer that differs in it)."""
    all_heads = document.heads
    heads, choice_note = _of_interest(document, view)
    names = list(dict.fromkeys(name for head in all_heads for name in head.metrics))
    texts = [token.text for token in document.tokens]
    several = len({head.layer for head in heads}) > 1
    has_labels = any(head.labels for head in heads)
    rows = [
        [
            str(head.layer),
            str(head.head),
            *(_number(head.metrics.get(name), view) for name in names),
            _link(head.top_link, texts, view),
            say(view, "list").join(label_name(head_label, view.lang) for head_label in head.labels or ()),
        ]
        for head in heads
    ]
    uniform = _uniform(all_heads, names, view)
    rows += [[localize(layers, view), localize("uniform", view), *numbers, "", ""] for layers, numbers in uniform]
    columns = [
        "layer",
        "head",
        *(SHORT.get(name, name) if view.width < ROOMY else name for name in names),
        "top link",
        "labels",
    ]
    columns_shown = [
        index for index in range(len(columns)) if (several or index != 0) and (has_labels or index != len(columns) - 1)
    ]
    align = ["right"] * (len(names) + 2)
    numbers, words = (
        [index for index in columns_shown if index < len(names) + 2],
        [index for index in columns_shown if index >= len(names) + 2],
    )
    name_columns = [index for index in columns_shown if index < 2]
    groups = _fitting(name_columns, [index for index in numbers if index not in name_columns], columns, rows, view)
    beside = len(groups) == 1 and view.width >= NARROW + LABELS * has_labels
    groups = [[*groups[0], *words]] if beside else [*groups, [*name_columns, *words]]
    bodies = [
        table(
            [columns[index] for index in group],
            [
                [row[index] for index in group]
                for row in (rows[: len(heads)] if group[-1] in words and not beside else rows)
            ],
            view,
            align=[align[index] for index in group if index < len(align)],
            title="" if number else "metrics",
            note="means over the rows" + choice_note,
        )
        for number, group in enumerate(groups)
    ]
    uniform_note = "uniform: the same metric if every row were spread evenly over what it may see" if uniform else ""
    return stack(
        (
            bodies[0],
            remark(uniform_note, view),
            remark(settings_note(document), view),
            *(stack((BLANK, body)) for body in bodies[1:]),
        )
    )


def _of_interest(document: HeadsDocument, view: View) -> tuple[Sequence[HeadMetrics], str]:
    """The heads to list, and how they were chosen: of many, those with the strongest links, unless all or an order
    are asked for."""
    heads = document.heads
    if len(heads) <= MANY or view.full or document.sort or (document.heads_in_all or 0) > len(heads):
        return heads, ""
    heads_by_link = sorted(heads, key=lambda head: -(head.top_link.weight if head.top_link else 0.0))
    count = min(view.top, len(heads))
    return heads_by_link[:count], f" · {count} of {len(heads)} heads, by their strongest link; --full shows all"


def _fitting(
    name_columns: Sequence[int],
    numbers: Sequence[int],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    view: View,
) -> list[list[int]]:
    """The columns of numbers in groups that fit the view, each after the columns that name the head."""
    widths = {column: 2 + max(cells(row[column]) for row in (columns, *rows)) for column in (*name_columns, *numbers)}
    groups = [[*name_columns]]
    for column in numbers:
        if sum(widths[group_column] for group_column in groups[-1]) + widths[column] - 2 > view.width and len(
            groups[-1]
        ) > len(name_columns):
            groups.append([*name_columns])
        groups[-1].append(column)
    return groups


def _moved_metrics(document: HeadsDocument, view: View) -> Lines:
    """The metrics by what heads move in place of weights."""
    moved_heads = [
        replace(head, metrics=head.moved.metrics, top_link=head.moved.top_link, baseline=UNSET, labels=UNSET)
        for head in document.heads
        if head.moved
    ]
    if not moved_heads:
        return Lines()
    note = "share of what is moved, ‖A·v·W_O‖, in place of weight"
    return stack((heading("by what is moved", note, view), metrics_part(replace(document, heads=moved_heads), view)))


def _uniform(heads: Sequence[HeadMetrics], names: Sequence[str], view: View) -> list[tuple[str, list[str]]]:
    """The distinct baselines with the layers that have them."""
    layers_by_numbers: dict[tuple[str, ...], list[int]] = {}
    for head in heads:
        if head.baseline:
            numbers = tuple(_number(head.baseline.get(name), view) for name in names)
            layers_by_numbers.setdefault(numbers, []).append(head.layer)
    layers = [sorted(set(where)) for where in layers_by_numbers.values()]
    layer_texts = ["all" if len(layers_by_numbers) == 1 else ",".join(map(str, where)) for where in layers]
    return [(where, list(numbers)) for where, numbers in zip(layer_texts, layers_by_numbers, strict=True)]


def _name(head: HeadMetrics) -> str:
    return f"layer {head.layer} head {head.head}"


def _number(value: MetricValue | None, view: View) -> str:
    return "-" if (number := metric_value(value)) is None else f"{number:.{view.precision}f}"


def _link(link: TopLink | None, texts: Sequence[str], view: View) -> str:
    if not link:
        return "-"
    query, key = (short(texts[index], 10, view) for index in (link.query, link.key))
    return spell("{} → {}", ascii=view.ascii).format(query, key) + f" {link.weight:.{view.precision}f}"
