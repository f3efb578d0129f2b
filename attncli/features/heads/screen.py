"""The screen of `attn.heads/1`: small maps of all heads, their metrics and labels, and the average
of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from attncli.documents import LinkRow, Numbers, TokenRow, TopLink
from attncli.documents.parts import MetricValue, label_name
from attncli.draw.heatmap import Map, side_by_side
from attncli.draw.lines import (
    BLANK,
    Lines,
    fit_to_view,
    heading,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.names import link_label
from attncli.draw.numbers import LEAST_SHARE, percent
from attncli.draw.region_tables import (
    has_regions,
    region_heads_part,
    region_heads_sentences,
    region_links_part,
)
from attncli.draw.safe import cells, spell
from attncli.draw.screen_header import header, shown_tokens
from attncli.draw.sentence import (
    format_number,
    no_link_sentence,
    not_learned_note,
    resting_head_sentence,
    sentence,
    strongest_link_sentence,
    words,
)
from attncli.draw.shaded_matrix import as_matrix, draw_grid, head_grid, matrix
from attncli.draw.tables import layer_and_head, links, table
from attncli.draw.token_names import (
    has_pieces,
    key_names,
    not_counted,
    placed_token,
    quoted_ends,
    quoted_row,
    quoted_token,
    rest_names,
    short,
    with_word,
)
from attncli.draw.view import Parts, ScreenPart, View, never, parts_shown
from attncli.features.heads.across_screens import (
    across_sentences,
    circuits_part,
    flow_part,
    rollout_part,
    similarity_part,
)
from attncli.features.heads.document import ACROSS, DirectionToken, HeadMetrics, HeadsDocument
from attncli.features.rules.screen import mixture_text
from attncli.features.run.run_answer import LayerHeadLink
from attncli.features.run.screen import head_map, more_maps
from attncli.language import Message, contextual, listing, message, plural, say, say_each, term
from attncli.measure.layer_metrics import ROLE_METRICS
from attncli.measure.rest import (
    LEAST_ROWS,
    Bools,
    Floats,
    choosing_queries,
    mean_at_offset,
    mean_received,
    rest_kinds,
    resting_keys,
)
from attncli.mechanism.spec import head_label, spoken_head

END = 14
"""Cells of an end of a link."""
WORDS_OF_AN_END, WORD_CELLS = 3, 14
"""Tokens of an end of a direction on a screen, and cells of each."""


def directions_part(document: HeadsDocument, view: View) -> Lines:
    """For each head of --directions two tables of its strongest singular directions, of W_OV and of
    W_QK: what each reads and writes, described by the tokens nearest to its ends.
    """
    blocks = []
    for head in document.directions or ():
        for circuit in ("ov", "qk"):
            # two rows for each direction, which has no sign: towards its ends and away from them
            rows = []
            for direction in head.directions:
                if direction.circuit != circuit:
                    continue
                reads = f"+ {_tokens_of_end(direction.reads.toward, view)}"
                writes = f"+ {_tokens_of_end(direction.writes.toward, view)}"
                rows.append([f"{direction.size:.2f}", percent(direction.share), reads, writes])
                minus = spell("−", ascii=view.ascii)
                reads = f"{minus} {_tokens_of_end(direction.reads.opposite, view)}"
                writes = f"{minus} {_tokens_of_end(direction.writes.opposite, view)}"
                rows.append(["", "", reads, writes])
            if circuit == "ov":
                sides = (message("reads"), message("writes"))
                template = message(
                    "layer {layer} head {head}: what is read becomes what is written"
                )
            else:
                sides = (message("asks"), message("answers"))
                template = message("layer {layer} head {head}: which queries meet which keys")
            title = say(view, template, layer=head.layer, head=head.head)
            titles = say_each(
                view, contextual("column", "size"), contextual("column", "share"), *sides
            )
            note = message(
                "singular directions by the nearest tokens; a direction has no sign: + and − go"
                " together"
            )
            blocks.append(
                table(
                    titles,
                    rows,
                    view,
                    align=["right", "right", "left", "left"],
                    title=title,
                    note=note,
                )
            )
    return stack_spaced(*blocks)


def _tokens_of_end(tokens: Sequence[DirectionToken], view: View) -> str:
    """The first tokens of one end of a direction, in one cell of a table."""
    return " ".join(short(token.text, WORD_CELLS, view) for token in tokens[:WORDS_OF_AN_END])


MATRICES = frozenset({"maps", "average", "weights"})
"""The parts that show matrices; a document may be without them."""
MAPS = 24
"""Maps that are shown unless the view is full."""
MANY = 16
"""Heads above which maps are shown only when asked for: they would push the numbers off the screen.
"""
ROOMY = 100
"""Below this width metrics have short names."""
NARROW, LABELS = 72, 40
"""Below `NARROW` the strongest links and labels get a table of their own; labels need `LABELS`
beside the rest.
"""
SHORT = {"confidence": "conf", "distance": "dist", "previous": "prev"}
"""Names of metrics in a narrow table."""


def heads_screen(document: HeadsDocument, view: View) -> Lines:
    """The whole screen for an `attn.heads/1` document: the parts that --show names, or those shown
    by default."""
    parts = parts_shown(HEADS_PARTS, document, view)
    blocks = [part.draw(document, view) for part in parts]
    # a part that was asked for by name and has nothing to show says how to get it; where all parts
    # are asked for, those without anything are left out
    if view.show is not None and len(view.show) < len(HEADS_PARTS) and not view.brief:
        blocks = [
            block if block.rows else _absent_part(part.name, view)
            for block, part in zip(blocks, parts, strict=True)
        ]
    # before the last block, the answer in words
    if not _has_few_heads(document, view) and view.show is None and not view.brief:
        note = message(
            "maps of {heads} heads are left out; --layer L chooses, --show maps shows them",
            heads=len(document.heads),
        )
        blocks.insert(-1, remark(note, view))
    return fit_to_view(stack_spaced(*blocks), view)


def _has_few_heads(document: HeadsDocument, view: View) -> bool:
    """Whether maps are shown without --show: of at most `MANY` heads, as more would push the numbers
    off the screen.
    """
    return len(document.heads) <= MANY


def _shows_tokens(document: HeadsDocument, view: View) -> bool:
    """Whether the tokens are shown without --show: in a full view, and with a single layer; above the
    grid of several layers they would push it off the screen.
    """
    return view.full or len({head.layer for head in document.heads}) < 2


def _absent_part(part: str, view: View) -> Lines:
    """What the screen says in place of a part that --show names and the document does not have: which
    option adds it.

    part: its name.
    """
    ways = {
        "grid": message("more than one layer has a grid"),
        "layers": message("attn heads {option} adds it", option="--metric massive"),
        "rules": message("attn heads {option} adds it", option="--rules"),
        "moved": message("attn heads {option} adds it", option="--moved"),
        "regions": message("attn heads {option} adds it", option="--regions FILE"),
        "region-links": message("attn heads {option} adds it", option="--regions FILE"),
        "directions": message("attn heads {option} adds it", option="--directions L0H0"),
        "roles": message("attn heads {option} adds it", option="--roles"),
    }
    ways |= {
        name: message("attn heads {option} adds it", option=f"--across {name}") for name in ACROSS
    }
    way = ways.get(part, message("attn heads without --show adds it"))
    return stack(
        heading(part, "", view), remark(message("not in this document: {way}", way=way), view)
    )


def _weight_table(
    document: HeadsDocument, weights: Numbers, view: View, *, title: str, note: str
) -> Lines:
    """A matrix of weights [query, key] in numbers, its rows and columns named by the tokens."""
    texts = [token.text for token in document.tokens]
    return matrix(
        weights, texts, key_names(texts, weights), view, limits=(0.0, 1.0), title=title, note=note
    )


def average_table(document: HeadsDocument, view: View) -> Lines:
    """The weights averaged over heads, as a matrix in numbers; empty where the document is without
    them."""
    if not document.average:
        return Lines()
    note = message("mean over heads; it hides what single heads do")
    return _weight_table(
        document, document.average.weights, view, title=message("average of the heads"), note=note
    )


def weight_tables(document: HeadsDocument, view: View) -> Lines:
    """The weights of each head in numbers; cells of a pooled map have no names, so the maps show
    them.
    """
    blocks = []
    note = message("rows: queries, columns: keys")
    for head in document.heads:
        if head.pool is UNSET and head.weights is not UNSET:
            place = spoken_head(head.layer, head.head)
            title = message("weights of {head}", head=place)
            blocks.append(_weight_table(document, head.weights, view, title=title, note=note))
    return stack_spaced(*blocks)


def links_part(document: HeadsDocument, view: View) -> Lines:
    """A list of each head's strongest link, with its weight as a bar."""
    link_rows = []
    for head in document.heads:
        link = head.top_link
        if link:
            link_rows.append(
                LinkRow(
                    layer=head.layer,
                    head=head.head,
                    query=link.query,
                    key=link.key,
                    weight=link.weight,
                )
            )
    # the column that names the head; not needed for a single one
    place = None
    if len(document.heads) != 1:
        place = layer_and_head
    return links(
        link_rows,
        [with_word(token, view) for token in document.tokens],
        view,
        place=place,
        title="strongest link of each head",
        note="bars from 0 to 1",
    )


def maps_part(document: HeadsDocument, view: View) -> Lines:
    """A small map of each head, the first `MAPS` unless the view is full, and of their average, on
    one scale.
    """
    head_weights = [
        (head, weights) for head in document.heads if (weights := head.weights) is not UNSET
    ]
    if not head_weights:
        return Lines()

    # the maps, the average last
    names_layers = _names_layers(document)
    has_several_layers = len({head.layer for head, _ in head_weights}) > 1
    heads_shown = head_weights
    if not view.full:
        heads_shown = head_weights[:MAPS]
    maps = [
        head_map(head.layer, head.head, weights, several=names_layers)
        for head, weights in heads_shown
    ]
    if document.average and len(maps) > 1:
        maps.append(Map("average", document.average.weights))

    # with several layers, a row of maps holds one layer; with one, as many as fit
    maps_in_a_row = None
    if has_several_layers:
        maps_in_a_row = max(Counter(head.layer for head, _ in heads_shown).values())
    names = [token.text for token in document.tokens]
    picture = side_by_side(maps, view, limits=(0.0, 1.0), names=names, in_a_row=maps_in_a_row)

    title = heading("maps of the weights", "rows: queries, columns: keys", view)
    left_out_note = more_maps(len(heads_shown), len(head_weights))
    average_note: Message | str = ""
    if len(maps) > 1:
        average_note = _average_note(document)
    return stack(title, picture, remark(left_out_note, view), remark(average_note, view))


def _names_layers(document: HeadsDocument) -> bool:
    """Whether a head is named with its layer: where there are several layers, and where heads were
    chosen out of a model of several."""
    counts = Counter(head.layer for head in document.heads)
    is_chosen = any(count < document.model.heads for count in counts.values())
    return len(counts) > 1 or (is_chosen and document.model.layers > 1)


def _average_note(document: HeadsDocument) -> str:
    """The note that the average of heads hides where each looks: its entropy beside the mean entropy
    of the heads, both also as numbers of keys; "" where the document has no entropies."""
    # e to the entropy is how many keys with equal weights have that entropy
    average = document.average
    if not average or average.entropy is UNSET or average.heads_entropy is UNSET:
        return ""
    return message(
        "average: entropy {entropy:.2f} nats, its heads {heads_entropy:.2f} on their own: it"
        " spreads over as many keys as {keys:.1f} equal ones where a head looks at"
        " {heads_keys:.1f}, and hides which head looks where",
        entropy=average.entropy,
        heads_entropy=average.heads_entropy,
        keys=math.exp(average.entropy),
        heads_keys=math.exp(average.heads_entropy),
    )


def _width_beside(*, has_labels: bool) -> int:
    """How many cells wide the screen must be for strongest links, and labels if there are any, to
    stand beside the numbers of heads."""
    if has_labels:
        return NARROW + LABELS
    return NARROW


def metrics_part(document: HeadsDocument, view: View) -> Lines:
    """A table with a row of metrics for each head, then one for uniform attention (one for each
    group of layers where it differs), with the strongest link and labels of each head. Columns that
    do not fit the screen are put in further tables below.
    """
    # all rows and columns
    heads, choice_note = _heads_to_list(document, view)
    names = _names_of_metrics(document.heads)
    rows = _head_rows(document, heads, names, view)
    uniform = _uniform_rows(document.heads, names, view)
    for layers, numbers in uniform:
        rows.append([localize(layers, view), localize("uniform", view), *numbers, "", ""])
    column_names = names
    if view.width < ROOMY:
        column_names = [SHORT.get(name, name) for name in names]
    columns = ["layer", "head", *column_names, message("top link"), "labels"]

    # which columns, by their numbers in `columns`, stand in which table; those before `first_word`
    # hold numbers, the first two of the layer and the head
    first_word = len(names) + 2
    name_columns = [1]
    if _names_layers(document):
        name_columns = [0, 1]
    words = _word_columns(heads, first_word)
    groups = _column_groups(name_columns, range(2, first_word), columns, rows, view)
    width_needed = _width_beside(has_labels=first_word + 1 in words)
    # words stand beside the numbers, or in a last table of their own
    fits_beside = len(groups) == 1 and view.width >= width_needed
    if fits_beside:
        groups = [[*groups[0], *words]]
    elif words:
        groups = [*groups, [*name_columns, *words]]

    bodies = []
    title = "metrics"
    for group in groups:
        # uniform attention has no links and labels: a table of these alone leaves out its rows
        group_rows = rows
        if group[-1] in words and not fits_beside:
            group_rows = rows[: len(heads)]
        body = table(
            [columns[index] for index in group],
            [[row[index] for index in group] for row in group_rows],
            view,
            align=["right" for index in group if index < first_word],
            title=title,
            note=choice_note,
        )
        bodies.append(body)
        # only the first table has a title
        title = ""
    return stack(
        bodies[0],
        *(remark(note, view) for note in _notes_on_metrics(names, has_uniform=bool(uniform))),
        remark(_note_on_sentences(document, names), view),
        remark(listing(_notes_on_numbers(document), "; "), view),
        remark(_labels_note(heads), view),
        *(stack(BLANK, body) for body in bodies[1:]),
    )


def _notes_on_metrics(names: Sequence[str], *, has_uniform: bool) -> Iterator[str]:
    """Yield notes below the table of metrics: what the row of uniform attention means, and which
    metrics belong to the model whatever the text.

    names: the metrics of the table.
    has_uniform: whether the table has a row of uniform attention.
    """
    of_model = [name for name in names if name in ROLE_METRICS]
    if has_uniform and len(of_model) < len(names):
        yield message(
            "uniform: the same metric if every row were spread evenly over what it may see"
        )
    if of_model and has_uniform:
        yield message(
            "of the model, whatever the text, and beside uniform what chance gives: {metrics}",
            metrics=listing(map(term, of_model)),
        )
    elif of_model:
        names_of_model = listing(map(term, of_model))
        yield message("of the model, whatever the text: {metrics}", metrics=names_of_model)


def _note_on_sentences(document: HeadsDocument, names: Sequence[str]) -> str:
    """The note that sentences of the answer have other numbers for these metrics than the table,
    as they leave out rows and keys; "" where the numbers are the same.

    names: the metrics of the table.
    """
    differing = [name for name in _metrics_beside_sentences(document) if name in names]
    if not differing:
        return ""
    return message(
        "{metrics}: of all rows and keys; sentences leave out rows with a single key, and keys where"
        " heads rest",
        metrics=listing(map(term, differing)),
    )


def _word_columns(heads: Sequence[HeadMetrics], first: int) -> list[int]:
    """The numbers of the columns of words that are not empty: that of strongest links, and behind it
    that of labels.

    first: the number of the links' column.
    """
    columns = []
    if any(head.top_link for head in heads):
        columns.append(first)
    if any(head.labels for head in heads):
        columns.append(first + 1)
    return columns


def _names_of_metrics(heads: Sequence[HeadMetrics]) -> list[str]:
    """The names of the metrics that at least one head has a value of, in the document's order.
    Others, such as "next" in a causal model, get no column.
    """
    names = dict.fromkeys(name for head in heads for name in head.metrics)
    return [
        name
        for name in names
        if any(metric_value(head.metrics.get(name)) is not None for head in heads)
    ]


def _head_rows(
    document: HeadsDocument, heads: Sequence[HeadMetrics], names: Sequence[str], view: View
) -> list[list[str]]:
    """The cells of each head's row: layer, number, the metrics of these names, its strongest link
    and its labels."""
    between = say(view, contextual("between", ", "))
    rows = []
    for head in heads:
        metrics = [_metric_text(head.metrics.get(name), view) for name in names]
        link = _link_text(head.top_link, document.tokens, view)
        labels = between.join(_label_names(head, view))
        rows.append([str(head.layer), str(head.head), *metrics, link, labels])
    return rows


def _labels_note(heads: Sequence[HeadMetrics]) -> Message | str:
    """The note that explains the percentages behind labels; "" where no label has one."""
    scores = [score for head in heads if head.label_scores for score in head.label_scores]
    if not any(score.share is not None for score in scores):
        return ""
    return message(
        "labels go by the weight that is not on the first token; the percentage behind one is how"
        " much of the head's weight that is"
    )


def _label_names(head: HeadMetrics, view: View) -> list[str]:
    """The labels of a head, such as "induction 80%": the percentage is the share of the head's weight
    that the label was measured on, and is left out where that is all."""
    names = [label_name(head_label, view.lang) for head_label in head.labels or ()]
    if not head.label_scores or not names:
        return names
    texts = []
    for name, score in zip(names, head.label_scores, strict=True):
        if score.share is None:
            texts.append(name)
        else:
            texts.append(f"{name} {percent(score.share)}")
    return texts


def _heads_to_list(document: HeadsDocument, view: View) -> tuple[Sequence[HeadMetrics], str]:
    """The heads to list, and a note on how they were chosen: of many, those with the strongest
    links, unless all or an order are asked for."""
    heads = document.heads
    # metrics of the text are means over rows; scores by role are not
    has_means_over_rows = any(name not in ROLE_METRICS for name in _names_of_metrics(heads))

    # all heads, unless they are many and the user said nothing of which to list; `heads_in_all` is
    # there only where --top cut some off
    is_short = len(heads) <= MANY or view.full
    is_chosen = bool(document.sort) or (document.heads_in_all or 0) > len(heads)
    if is_short or is_chosen:
        if has_means_over_rows:
            return heads, message("means over the rows")
        return heads, ""

    count = min(view.top, len(heads))
    if not any(head.top_link for head in heads):
        return heads[:count], message(
            "means over the rows · the first {count} of {heads} heads; --full shows all",
            count=count,
            heads=len(heads),
        )

    def order(head: HeadMetrics) -> float:
        """The heads of the strongest links come first."""
        if not head.top_link:
            return 0.0
        return -head.top_link.weight

    note = message(
        "{count} of {heads} heads, by their strongest link; --full shows all",
        count=count,
        heads=len(heads),
    )
    if has_means_over_rows:
        note = message(
            "means over the rows · {count} of {heads} heads, by their strongest link; --full shows"
            " all",
            count=count,
            heads=len(heads),
        )
    return sorted(heads, key=order)[:count], note


def _column_groups(
    name_columns: list[int],
    number_columns: Sequence[int],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    view: View,
) -> list[list[int]]:
    """Divide the columns of a wide table into groups that each fit the screen; each group begins
    with the columns that name the head.

    name_columns, number_columns: the columns' numbers.
    columns: the titles of all columns.
    rows: the cells of all columns.
    """
    # of each column the widest cell, with the two blanks between columns
    all_columns = (*name_columns, *number_columns)
    widths = {
        column: 2 + max(cells(row[column]) for row in (columns, *rows)) for column in all_columns
    }
    groups = [name_columns]
    for column in number_columns:
        is_full = sum(widths[member] for member in (*groups[-1], column)) - 2 > view.width
        if is_full and groups[-1] != name_columns:
            groups.append(name_columns)
        groups[-1] = [*groups[-1], column]
    return groups


def rules_part(document: HeadsDocument, view: View) -> Lines:
    """A table of the rules that describe each listed head, with how much of its weights they explain
    on texts they were not fitted to; empty without --rules."""
    # the note on how they were chosen stands at the table of metrics
    listed_heads, _ = _heads_to_list(document, view)
    heads = [head for head in listed_heads if head.rules]
    if not heads:
        return Lines()
    rows = [
        [
            head_label(head.layer, head.head),
            f"{head.rules.overlap:.2f}",
            mixture_text(head.rules, view),
        ]
        for head in heads
        if head.rules  # for the type checker: all have some
    ]
    return table(
        [message("head"), message("overlap"), message("rules")],
        rows,
        view,
        align=("left", "right", "left"),
        title=message("heads as rules"),
        note=message(
            "overlap: what the rules say of a head on texts not fitted to, not on this one"
        ),
    )


def moved_part(document: HeadsDocument, view: View) -> Lines:
    """The table of metrics with weight × size of the transformed value in place of weights; empty
    without --moved."""
    # each head with these metrics in place of its own, and without what belongs to its weights
    moved_heads = [
        replace(
            head,
            metrics=head.moved.metrics,
            top_link=head.moved.top_link,
            baseline=UNSET,
            labels=UNSET,
            label_scores=UNSET,
        )
        for head in document.heads
        if head.moved
    ]
    if not moved_heads:
        return Lines()
    note = message("share of what is moved, ‖A·v·W_O‖, in place of weight")
    return stack(
        heading("by what is moved", note, view),
        metrics_part(replace(document, heads=moved_heads), view),
    )


def massive_part(document: HeadsDocument, view: View) -> Lines:
    """A table of how many massive activations leave each layer; empty where they were not counted."""
    if not document.layers:
        return Lines()
    return table(
        say_each(view, "layer", "numbers"),
        [[str(layer.layer), f"{layer.massive:,}"] for layer in document.layers],
        view,
        align=["right", "right"],
        title="massive activations",
        note="numbers above 100 and 1,000 times the median among those that leave the layer",
    )


def _uniform_rows(
    heads: Sequence[HeadMetrics], names: Sequence[str], view: View
) -> list[tuple[str, tuple[str, ...]]]:
    """The rows of uniform attention: the layers for which a row holds, such as "0,2", or "all" where
    there is one row; and its metrics as texts. Layers differ where their masks do.

    names: of the metrics.
    """
    layers_by_numbers: dict[tuple[str, ...], list[int]] = {}
    for head in heads:
        if head.baseline:
            numbers = tuple(_metric_text(head.baseline.get(name), view) for name in names)
            layers_by_numbers.setdefault(numbers, []).append(head.layer)
    if len(layers_by_numbers) == 1:
        return [("all", numbers) for numbers in layers_by_numbers]
    return [
        (",".join(map(str, sorted(set(layers)))), numbers)
        for numbers, layers in layers_by_numbers.items()
    ]


def _metric_text(metric: MetricValue | None, view: View) -> str:
    """A metric with the view's digits; "-" where there is none."""
    if (number := metric_value(metric)) is None:
        return "-"
    return f"{number:.{view.precision}f}"


def _link_text(link: TopLink | None, tokens: Sequence[TokenRow], view: View) -> str:
    """A link with its weight, such as `it → cat 0.50`; "-" for none.

    tokens: of the text.
    """
    if not link:
        return "-"
    query, key = (placed_token(tokens, index, END, view) for index in (link.query, link.key))
    return f"{link_label(query, key, view)} {link.weight:.{view.precision}f}"


# The table of `attn.heads/1` for `--plain`: a line for each head.


def heads_rows(document: HeadsDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each head. Labels and
    rules have columns where they were asked for."""
    names = list(dict.fromkeys(name for head in document.heads for name in head.metrics))
    has_labels = any(head.labels is not UNSET for head in document.heads)
    has_rules = any(head.rules for head in document.heads)
    columns = ["layer", "head", *names, "top_query", "top_key", "top_weight"]
    if has_labels:
        columns += LABEL_COLUMNS
    if has_rules:
        columns += ["rule_overlap", "rules", "rule_weights"]
    yield columns

    for head in document.heads:
        row: list[object] = [head.layer, head.head]
        row += [metric_value(head.metrics.get(name)) for name in names]
        link = head.top_link
        if link is None:
            row += [None, None, None]
        else:
            row += [link.query, link.key, link.weight]
        if has_labels:
            row += _label_cells(head)
        if has_rules:
            row += _rule_cells(head)
        yield row


LABEL_COLUMNS = ("labels", "label_scores", "label_thresholds")
"""The columns of `--plain` on a head's labels."""


def _label_cells(head: HeadMetrics) -> tuple[str | None, str | None, str | None]:
    """The cells of `LABEL_COLUMNS`: the labels of a head, the score that earned each and its
    threshold, each joined by commas in the same order; None of a head without a label."""
    if not head.labels:
        return None, None, None
    labels = ",".join(head.labels)
    if not head.label_scores:  # a document of an earlier version
        return labels, None, None
    scores = ",".join(f"{label.score:.4g}" for label in head.label_scores)
    thresholds = ",".join(f"{label.threshold:g}" for label in head.label_scores)
    return labels, scores, thresholds


def _rule_cells(head: HeadMetrics) -> tuple[float | None, str, str]:
    """The cells of `--plain` on a head's rules: the share of its weights that they explain, their
    names, and their weights in the mixture."""
    if not head.rules:
        return None, "", ""
    parts = head.rules.parts
    names = " ".join(part.rule for part in parts)
    return head.rules.overlap, names, " ".join(f"{part.weight:.4f}" for part in parts)


def metric_value(metric: MetricValue | None) -> float | None:
    """The number of a metric; None where there is none."""
    if metric is None:
        return None
    return metric.value


# Layers × heads: one metric of all heads at a glance, and what the numbers leave out.

KINDS = {
    "first": message("the first token"), "special": message("special tokens"), "self": message("the query itself"),
    "neighbours": message("immediate neighbours"),
    "unknown": message("unknown words"),
    "punctuation": "punctuation",
    "separators": message("line breaks and separators"),
}  # fmt: skip


def grid_part(document: HeadsDocument, view: View) -> Lines:
    """The weight of every head's strongest link, or the metric that orders the heads, by layer and
    head; nothing for one layer, or where heads were cut off.
    """
    heads = document.heads
    # `heads_in_all` is there only where --top cut some off
    if len({head.layer for head in heads}) < 2 or (document.heads_in_all or 0) > len(heads):
        return Lines()

    # strongest links, unless heads are sorted by a metric or have no links
    sort = document.sort
    if not sort and any(head.top_link for head in heads):
        grid = head_grid(
            (head.layer, head.head, head.top_link.weight if head.top_link else None)
            for head in heads
        )
        note = message("rows: layers, columns: heads; --sort NAME shows a metric")
        return draw_grid(
            grid, view, limits=(0.0, 1.0), title="strongest link of each head", note=note
        )

    # else the metric that heads are sorted by, or the first one; all heads have the same metrics
    if sort:
        name = sort.metric
        values = [None if head.sorted_by is UNSET else head.sorted_by for head in heads]
    else:
        name, *_ = heads[0].metrics
        values = [metric_value(head.metrics.get(name)) for head in heads]
    grid = head_grid(
        (head.layer, head.head, value) for head, value in zip(heads, values, strict=True)
    )
    return draw_grid(
        grid,
        view,
        title=name,
        note="rows: layers, columns: heads; --sort NAME shows another metric",
    )


def _notes_on_numbers(document: HeadsDocument) -> Iterator[str]:
    """Yield notes below the table of metrics: which keys its numbers leave out, in which order heads
    come, and which links do not count as strongest."""
    excluded = document.excluded
    sort = document.sort
    if excluded:
        scaling_note = message("weights as they were, rows sum to less")
        if excluded.renormalised:
            scaling_note = message("rows scaled to sum to 1 again")
        yield message(
            "excluded from every number: {names}; {scaling_note}",
            names=listing(KINDS[name] for name in excluded.names),
            scaling_note=scaling_note,
        )
    if sort and sort.rising:
        yield message("sorted by {metric}, smallest first", metric=term(sort.metric))
    elif sort:
        yield message("sorted by {metric}, largest first", metric=term(sort.metric))
    if document.links_leave_out and any(head.top_link for head in document.heads):
        yield message(
            "top links leave out {links_leave_out} (--all-links counts all)",
            links_leave_out=listing(KINDS[name] for name in document.links_leave_out),
        )


# The answer of `attn.heads/1`: where heads rest, who looks at a neighbour, the strongest link.

HALF = 0.5
"""More than this share is most of a head's weight."""


ROLES_OF_TEXT = ("previous token", "first-token rest")
"""The roles whose scores are metrics of the text; those of the others belong to the model."""
ROLE_NAMES = {
    "previous token": contextual("role", "previous token"),
    "first-token rest": contextual("role", "first-token rest"),
    "duplicate token": contextual("role", "duplicate token"),
    "induction": contextual("role", "induction"),
    "retrieval": contextual("role", "retrieval"),
    "copying": contextual("role", "copying"),
    "successor": contextual("role", "successor"),
}
"""What screens call roles."""
FIRST_HEADS = 3
"""Heads of each role that a screen shows, unless it is full."""
BEYOND_CHANCE = 2.0
"""A head is named for a role where its score is so many times what chance gives, or more."""


def roles_part(document: HeadsDocument, view: View) -> Lines:
    """A table with a row for each role, such as "induction": what chance gives, and the heads with
    the highest scores; empty without --roles."""
    if document.roles is UNSET:
        return Lines()
    rows = []
    for rank in document.roles:
        chance = "-"
        if rank.chance is not None:
            chance = f"{rank.chance:.2f}"
        heads_shown = rank.heads
        if not view.full:
            heads_shown = rank.heads[:FIRST_HEADS]
        scores = [f"{head_label(head.layer, head.head)} {head.score:.2f}" for head in heads_shown]
        rows.append([say(view, ROLE_NAMES[rank.role]), chance, "  ".join(scores)])
    names = [
        say(view, contextual("column", "role")),
        say(view, contextual("level", "chance")),
        say(view, "highest scores"),
    ]
    note = message(
        "previous token and first-token rest are the metrics prev and sink of this text, the others"
        " are of the model"
    )
    return table(
        names,
        rows,
        view,
        align=["left", "right", "left"],
        title=message("heads by role"),
        note=note,
    )


def _role_sentences(document: HeadsDocument, view: View) -> Iterator[str]:
    """Yield the head with the highest score of each role where that is well above chance; the roles
    where none is; and the roles without scores, as the model or the text has none."""
    if document.roles is UNSET:
        return
    first_heads: list[str] = []
    roles_of_nobody: list[str] = []
    for rank in document.roles:
        name = say(view, ROLE_NAMES[rank.role])
        # the highest score comes first; where chance is not known, any score above 0 counts
        first = rank.heads[0]
        if first.score <= BEYOND_CHANCE * (rank.chance or 0.0):
            roles_of_nobody.append(name)
            continue

        # several heads may have the same highest score
        tied_count = sum(row.score == first.score for row in rank.heads)
        if tied_count == 1:
            template = message("{role}: layer {layer} head {head} ({score})")
        else:
            template = message("{role}: layer {layer} head {head} and {others} more ({score} each)")
        others = f"{tied_count - 1}"
        if tied_count == len(rank.heads) < len(document.heads):
            # the document ranks only some heads: those behind may have it, too
            others += "+"
        places = {"layer": first.layer, "head": first.head, "others": others}
        first_heads.append(say(view, template, role=name, score=f"{first.score:.2f}", **places))
    if first_heads:
        yield say(view, "First by role: {heads}.", heads=listing(first_heads))
    if roles_of_nobody:
        roles = listing(roles_of_nobody)
        yield say(view, "No head has twice what chance gives: {roles}.", roles=roles)
    missing = [role for role in ROLE_NAMES if not _has_role(document, role)]
    of_text = [say(view, ROLE_NAMES[role]) for role in missing if role in ROLES_OF_TEXT]
    of_model = [say(view, ROLE_NAMES[role]) for role in missing if role not in ROLES_OF_TEXT]
    if of_model:
        yield say(view, "This model has no scores of {roles}.", roles=listing(of_model))
    if of_text:
        yield say(view, "This text is too short for scores of {roles}.", roles=listing(of_text))


def _has_role(document: HeadsDocument, role: str) -> bool:
    """Whether the document ranks heads for this role: at least one has a score."""
    return any(rank.role == role for rank in document.roles or ())


def heads_answer(document: HeadsDocument, view: View) -> Lines:
    """The text with each word tinted by how much weight it gets on average over heads, a note on
    what the tint means, and the answer in words."""
    shares = _attention_shares(document)
    tinted_sentence = Lines()
    if shares:
        tinted_sentence = sentence(words(document.text, document.tokens, shares, frozenset()), view)
    tint: Message | str = ""
    if any(shares):
        tint = message("tint: words that get more weight than the average word")
        if _tokens_at_rest(document).any():
            tint = message(
                "tint: words that get more weight than the average word; where heads rest is left"
                " out"
            )
    answer_lines = sentences(heads_sentences(document, view), view)
    return stack(tinted_sentence, remark(tint, view), answer_lines)


def heads_sentences(document: HeadsDocument, view: View) -> list[str]:
    """The answer in words: the analyses of `--across`, the key that many heads keep their weight
    on, heads that look at a neighbour, the strongest link."""
    answer_sentences = [
        *across_sentences(document, view),
        *_role_sentences(document, view),
        *_kept_sentences(document, view),
        *_short_text_sentences(document, view),
        *_resting_sentences(document, view),
        *_positional_sentences(document, view),
    ]

    # the strongest link of all heads
    rest = _tokens_at_rest(document)
    by_choice = (_link_by_choice(head, rest) for head in document.heads)
    links = [link for link in by_choice if link is not None]
    if links:
        link = max(links, key=lambda candidate: candidate.weight)
        ends = quoted_ends(document.tokens, document.tokens, link, view)
        link_sentence = strongest_link_sentence(link, ends, view, several=True, others=links)
        if link.weight < LEAST_SHARE:
            link_sentence = no_link_sentence(view)
        answer_sentences.append(link_sentence)
        kinds: Sequence[str] = document.links_leave_out or ()
        if not kinds and rest.any():
            kinds = rest_kinds(document.tokens)
        answer_sentences.append(not_counted(kinds, document.tokens, view))
        if any(head.top_link and head.top_link.weight > link.weight for head in document.heads):
            note = say(
                view, "Queries that see a single key are not counted: all of their weight is there."
            )
            answer_sentences.append(note)
    answer_sentences += region_heads_sentences(document, view)
    return [*answer_sentences, not_learned_note(document.model, view)]


def _kept_sentences(document: HeadsDocument, view: View) -> Iterator[str]:
    """The sentence that only the heads kept by --top are counted, where it keeps fewer than all."""
    # the number of all heads is in the document only where some were cut off
    all_heads = document.heads_in_all or 0
    if all_heads > len(document.heads):
        yield say(
            view,
            plural(
                "Only {count} of {heads} heads is kept (--top); what follows is of that.",
                "Only {count} of {heads} heads are kept (--top); what follows is of these.",
                count=len(document.heads),
                heads=all_heads,
            ),
        )


def _link_by_choice(head: HeadMetrics, rest: Bools) -> LayerHeadLink | None:
    """The strongest link of a head that says where the head looks: its query has weight on several
    keys, and its key is none on which heads rest. Where the document holds no weights, or no query
    has a choice, the head's strongest link as it is. None for a head without such a link.

    rest: which tokens heads rest on (the first token and special ones), booleans [key].
    """
    link = head.top_link
    if not link:
        return None

    # the weights [query, key], empty where the document has none; a row of a pooled map is no query
    is_whole = head.weights is not UNSET and (head.pool or 1) == 1
    rows = np.zeros((0, 0))
    if is_whole:
        rows = np.nan_to_num(as_matrix(head.weights))
    has_choice = (rows > 0).sum(axis=1) > 1

    # with --all-links the strongest link may go to where heads rest: then another one is looked for
    if rest.any() and link.key < rest.size and rest[link.key]:
        if is_whole:
            rows = np.where(rest, 0.0, rows[:, : rest.size])
        if not rows.any():
            return None
        has_choice &= rows.any(axis=1)
        # the link's own query counts as one without a choice, so that below the link with the largest
        # weight of another query is taken
        has_choice[link.query] = False

    if not has_choice.any() or has_choice[link.query]:
        return LayerHeadLink(link.query, link.key, link.weight, head.layer, head.head)
    weights = np.where(has_choice[:, None], rows, 0.0)
    query, key = np.unravel_index(int(weights.argmax()), weights.shape)
    return LayerHeadLink(int(query), int(key), float(weights.max()), head.layer, head.head)


def _tokens_at_rest(document: HeadsDocument) -> Bools:
    """Which tokens are resting keys (the first and special ones, on which heads put weight when they
    look for nothing), booleans [key]; none for weights that nobody trained."""
    return resting_keys(document.tokens, document.model.source)


def _attention_shares(document: HeadsDocument) -> list[float | None]:
    """By token, how far the heads' mean weight on it exceeds the mean of ordinary tokens, the
    largest being 1; 0 for special tokens and where heads rest. Empty if unknown. Rows that see a
    single key do not count."""
    tokens = document.tokens
    is_ordinary = np.array([not token.special for token in tokens]) & ~_tokens_at_rest(document)
    if not document.average or not is_ordinary.any():
        return []
    weights = np.nan_to_num(as_matrix(document.average.weights))[:, : len(tokens)]
    choosing = choosing_queries(weights)
    if not choosing.any():
        return []
    mean_weights = weights[choosing].mean(axis=0)
    above = np.where(is_ordinary, mean_weights - mean_weights[is_ordinary].mean(), 0.0)
    greatest = float(above.max())
    if greatest <= 0:
        return [0.0] * len(tokens)
    return [float(value) / greatest for value in above]


def _whole_weights(document: HeadsDocument) -> Floats:
    """The weights of all heads, [head, query, key], without learned keys; empty where a document
    does not hold them, or pooled."""
    count = len(document.tokens)
    matrices = [
        np.nan_to_num(as_matrix(head.weights))[:, :count]
        for head in document.heads
        if head.weights is not UNSET and (head.pool or 1) == 1
    ]
    if not matrices:
        return np.zeros((0, count, count))
    return np.stack(matrices)


def _resting_sentences(document: HeadsDocument, view: View) -> Iterator[str]:
    """Yield how many heads keep more than half of their weight on one and the same key, counted over
    the queries that see several keys; of a single head, the share of its weight where heads rest.
    Nothing where no head does, and where the document holds no weights."""
    # the mean weight on each key, [head, key]; and how many heads have more than half on a key, by
    # key
    means = mean_received(_whole_weights(document))
    if not means.size:
        return
    if len(means) == 1:
        share = float(means[0, _tokens_at_rest(document)].sum())
        yield resting_head_sentence(share, document.tokens, view)
        return
    head_counts = Counter(int(mean.argmax()) for mean in means if mean.max(initial=0.0) > HALF)
    if not head_counts:
        return
    # the key of most heads; of several the first in the text
    key = max(head_counts, key=lambda position: (head_counts[position], -position))
    # an unknown word has no vector of its own: weight on it says nothing of the word
    if document.tokens[key].unknown:
        return

    # heads are said to rest on the key only if it is one on which they do
    count = head_counts[key]
    name = quoted_token(document.tokens, key, view)
    rest = _tokens_at_rest(document)
    if not rest[key]:
        template = plural(
            "{count} of {heads} heads keeps more than half of its weight on {key}.",
            "{count} of {heads} heads keep more than half of their weight on {key}.",
            count=count,
            heads=len(means),
            key=name,
        )
    elif key or document.tokens[key].special:
        template = plural(
            "{count} of {heads} heads rests on {key} with more than half of its weight.",
            "{count} of {heads} heads rest on {key} with more than half of their weight.",
            count=count,
            heads=len(means),
            key=name,
        )
    else:
        template = plural(
            "{count} of {heads} heads rests on {key}, the first token whatever it is, with more"
            " than half of its weight.",
            "{count} of {heads} heads rest on {key}, the first token whatever it is, with more than"
            " half of their weight.",
            count=count,
            heads=len(means),
            key=quoted_row(document.tokens[key], view),
        )
    yield say(view, template)
    count_of_all = int((means[:, rest].sum(-1) > HALF).sum())  # on all such keys together
    if rest[key] and count_of_all > count:
        yield say(
            view,
            "On all of {rest} together {count} of {heads} do.",
            rest=rest_names(document.tokens),
            count=count_of_all,
            heads=len(means),
        )


def _short_text_sentences(document: HeadsDocument, view: View) -> Iterator[str]:
    """Yield the sentence that the text is too short to say what heads do, where fewer than
    `LEAST_ROWS` queries see several keys."""
    weights = _whole_weights(document)
    if not weights.size:
        return
    count = int(choosing_queries(weights).sum())
    if not count:
        yield say(view, "No row sees several keys: nothing here says what a head does.")
    elif count < LEAST_ROWS:
        yield say(
            view,
            plural(
                "Only {count} row sees several keys: too few to say what a head does.",
                "Only {count} rows see several keys: too few to say what a head does.",
                count=count,
            ),
        )


LEAST_DIFFERENCE = 0.005
"""Two numbers of a table that differ by less may look the same."""
POSITIONS = (("previous", -1), ("next", 1), ("self", 0))
"""Metrics of one place beside the query, and its distance from it."""
POSITIONAL_SENTENCES = (
    (
        message("Layer {layer} head {head} looks at the previous word ({value})."),
        message("Layer {layer} head {head} looks at the next word ({value})."),
        message("Layer {layer} head {head} looks at the word itself ({value})."),
    ),
    (
        message("Layer {layer} head {head} looks at the previous token ({value})."),
        message("Layer {layer} head {head} looks at the next token ({value})."),
        message("Layer {layer} head {head} looks at the token itself ({value})."),
    ),
)
"""What heads do by position: in a text whose tokens are words, and in one with pieces of words."""


MOST_OTHERS = 3
"""Heads that do as the first one, in a sentence one by one."""


def _positional_sentences(document: HeadsDocument, view: View) -> Iterator[str]:
    """Yield for the previous word, the next and the word itself which heads give it more than half
    of their weight, over the rows that have a choice (see several keys) and without keys where
    heads rest, such as the first token."""
    of_words, of_tokens = POSITIONAL_SENTENCES
    templates = of_words
    if has_pieces(document.tokens):
        templates = of_tokens
    for entries, template in zip(_positional_heads(document).values(), templates, strict=True):
        if not entries:
            continue
        value, layer, head = entries[0]
        yield say(view, template, layer=layer, head=head, value=format_number(value, view))
        if len(entries) > 1:
            yield _others_sentence(entries[1:], view)


def _positional_heads(document: HeadsDocument) -> dict[str, list[tuple[float, int, int]]]:
    """The heads that give more than half of their weight to one place beside the query, by the
    metric's name: (share, layer, head), the largest share first. The share is over the rows that
    have a choice (see several keys) and without keys where heads rest, such as the first token;
    where the document holds no weights, the metric."""
    weights = _whole_weights(document)
    rest = _tokens_at_rest(document)
    positional_heads = {}
    for name, offset in POSITIONS:
        if len(weights) == len(document.heads):
            values = np.nan_to_num(mean_at_offset(weights, offset, rest)).tolist()
        else:
            # a metric over too few rows says nothing
            values = []
            for head in document.heads:
                metric = head.metrics.get(name)
                if metric is not None and metric.value and metric.rows >= LEAST_ROWS:
                    values.append(metric.value)
                else:
                    values.append(0.0)
        pairs = zip(values, document.heads, strict=True)
        entries = [(value, head.layer, head.head) for value, head in pairs if value > HALF]
        positional_heads[name] = sorted(entries, key=lambda entry: -entry[0])
    return positional_heads


def _metrics_beside_sentences(document: HeadsDocument) -> list[str]:
    """The names of the metrics ("previous", "next", "self") for which a sentence of the answer has
    another number for a head than the table of metrics, since it leaves out rows and keys."""
    metrics_of = {(head.layer, head.head): head.metrics for head in document.heads}
    differing = []
    for name, entries in _positional_heads(document).items():
        # sentences name the first head, and `MOST_OTHERS` that do the same
        for share, layer, head in entries[: MOST_OTHERS + 1]:
            value = metric_value(metrics_of[layer, head].get(name))
            if value is not None and abs(value - share) >= LEAST_DIFFERENCE:
                differing.append(name)
                break
    return differing


def _others_sentence(others: Sequence[tuple[float, int, int]], view: View) -> str:
    """A sentence that these heads do the same as the head named before; the first few by name.

    others: the value, the layer and the head of each, the largest value first.
    """
    names = [
        message(
            "layer {layer} head {head} ({value})",
            layer=layer,
            head=head,
            value=format_number(value, view),
        )
        for value, layer, head in others[:MOST_OTHERS]
    ]
    rest = len(others) - len(names)
    if rest:
        names.append(message("{count} more", count=rest))
    template = plural("So does {heads}.", "So do {heads}.", count=len(others), heads=listing(names))
    return say(view, template)


HEADS_PARTS: Parts[HeadsDocument] = (
    ScreenPart("header", header),
    ScreenPart("tokens", shown_tokens, _shows_tokens),
    ScreenPart("grid", grid_part),
    ScreenPart("maps", maps_part, _has_few_heads),
    ScreenPart("metrics", metrics_part),
    ScreenPart("layers", massive_part),
    ScreenPart("rules", rules_part),
    ScreenPart("moved", moved_part),
    ScreenPart("regions", region_heads_part, has_regions),
    ScreenPart("region-links", region_links_part, has_regions),
    ScreenPart("average", average_table, never),
    ScreenPart("weights", weight_tables, never),
    ScreenPart("links", links_part, never),
    ScreenPart("rollout", rollout_part),
    ScreenPart("flow", flow_part),
    ScreenPart("similarity", similarity_part),
    ScreenPart("circuits", circuits_part),
    ScreenPart("directions", directions_part),
    ScreenPart("roles", roles_part),
    ScreenPart("answer", heads_answer),
)
