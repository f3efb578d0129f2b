"""The screen of `attn.series/1`: scores by step, heads whose labels change, and what has formed
when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from attncli.documents.parts import label_name
from attncli.draw.lines import Lines, heading, localize, remark, sentences, stack
from attncli.draw.numbers import Series, curves
from attncli.draw.safe import safe
from attncli.draw.screen_header import warning
from attncli.draw.sentence import sentence, words
from attncli.draw.tables import table
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.series.document import (
    OF_ALL,
    SeriesCheckpoint,
    SeriesDocument,
    curve_points,
    has_steps,
    metric_name,
    short_names,
    summary,
)
from attncli.language import Message, contextual, listing, message, plural, say
from attncli.mechanism.spec import head_name

PLOT_LINES = 12
"""Height of the plot of scores."""
ROSE = 0.1
"""A score that rose by less has not formed."""
MOST_OTHERS = 6
"""Heads beside the first in which a score rises that a sentence names one by one."""
MOST_CHANGES = 12
"""Labels that heads earn or lose which are listed unless the view is full."""


def series_rows(document: SeriesDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`, names of columns first: a row for each checkpoint and head."""
    yield ("checkpoint", "step", "same_as", "loss", "layer", "head", *document.metrics, "labels")
    for row in document.checkpoints:
        for head in row.heads:
            values = [head.metrics[name] for name in document.metrics]
            yield (
                row.name,
                row.step,
                row.same_as,
                row.loss,
                head.layer,
                head.head,
                *values,
                ",".join(head.labels),
            )


def _title_and_text(document: SeriesDocument, view: View) -> Lines:
    """The top of the screen: how many checkpoints, layers, heads and texts there are, warnings, and
    the first text."""
    title = plural("{count} checkpoint", "{count} checkpoints", count=len(document.checkpoints))
    facts = message(
        "{layers} of {heads}, measured on {texts}",
        layers=plural("{count} layer", "{count} layers", count=document.layers),
        heads=plural("{count} head", "{count} heads", count=document.heads),
        texts=plural("{count} text", "{count} texts", count=document.texts),
    )
    no_tint = [0.0] * len(document.tokens)
    no_marks: frozenset[int] = frozenset()
    text_words = words(document.text, document.tokens, no_tint, no_marks)
    warnings = [warning(warning_text, view) for warning_text in document.warnings]
    return stack(heading(title, facts, view), *warnings, sentence(text_words, view))


def _best_head(row: SeriesCheckpoint, metric: str) -> str:
    """The head with the highest value of a metric in a checkpoint, such as `L5H11`; some head must
    have one."""
    values = {(head.layer, head.head): head.metrics[metric] for head in row.heads}
    known = {place: value for place, value in values.items() if value is not None}
    layer, head = max(known, key=known.__getitem__)
    return head_name(layer, head)


def _checkpoint_names(document: SeriesDocument) -> dict[str, str]:
    """What each checkpoint is called on the screen, made safe for a terminal, by its name in the
    document."""
    return {name: safe(text) for name, text in short_names(document).items()}


def _axis_name(document: SeriesDocument) -> Message:
    """What the axis of checkpoints shows: "step", or "checkpoint" where they have no steps."""
    if has_steps(document):
        return message("step")
    return message("checkpoint")


def _checkpoint_table(document: SeriesDocument, view: View) -> Lines:
    """A table with a row for each checkpoint: its loss, and for each metric the head with the
    highest value or, for those of `OF_ALL`, the mean of all heads."""
    columns = [
        localize(_axis_name(document), view),
        localize(message("loss"), view),
        *(safe(localize(metric_name(name), view)) for name in document.metrics),
    ]
    columns.append(localize(message("same as"), view))
    names = _checkpoint_names(document)
    rows = []
    for row in document.checkpoints:
        cells = [names[row.name], "-" if row.loss is None else f"{row.loss:.3f}"]
        for metric in document.metrics:
            value = summary(row, metric)
            if value is None:
                cells.append("-")
            elif metric in OF_ALL:
                cells.append(f"{value:.2f}")
            else:
                cells.append(f"{value:.2f} {_best_head(row, metric)}")
        rows.append([*cells, "" if row.same_as is None else names[row.same_as]])
    # the last column is there only where some checkpoint repeats another
    if all(row.same_as is None for row in document.checkpoints):
        columns = columns[:-1]
        rows = [cells[:-1] for cells in rows]
    of_all = [metric for metric in document.metrics if metric in OF_ALL]
    if of_all:
        note = message(
            "the highest head of each; of {metrics} the mean of all heads",
            metrics=listing(map(metric_name, of_all)),
        )
    else:
        note = message("the highest head of each")
    if has_steps(document):
        title = message("by step")
    else:
        title = message("by checkpoint")
    align = ["right" if has_steps(document) else "left", *["right"] * (len(columns) - 1)]
    return table(columns, rows, view, align=align, title=title, note=note)


def _score_curves(document: SeriesDocument, view: View) -> Lines:
    """A plot of the scores over the steps, on logarithmic axes; no lines where no metric is a
    share."""
    series = [
        Series(safe(localize(metric_name(name), view)), tuple(points))
        for name, points in curve_points(document)
    ]
    if not series:
        return Lines()
    if has_steps(document):
        title = message("scores by step")
    else:
        title = message("scores by checkpoint, in their order")
    picture = curves(series, view, height=PLOT_LINES, x_name=localize(_axis_name(document), view))
    return stack(heading(title, message("both axes logarithmic"), view), picture)


def _label_table(document: SeriesDocument, view: View) -> Lines:
    """A table of the labels that heads earn or lose, and between which checkpoints; no lines where
    none changes."""
    if not document.changes:
        return Lines()
    names = _checkpoint_names(document)
    if view.full:
        shown = document.changes
    else:
        shown = document.changes[:MOST_CHANGES]
    rows = []
    for change in shown:
        between = f"{names[change.before]} – {names[change.after]}"
        if view.ascii:  # which has no long dash, neither between the two names nor in them
            between = between.replace("–", "-")
        what = message("becomes") if change.earned else message("is no longer")
        row = [
            head_name(change.layer, change.head),
            localize(what, view),
            label_name(change.label, view.lang),
            between,
        ]
        rows.append(row)
    columns = [
        localize(message("head"), view),
        "",
        localize(message("label"), view),
        localize(message("between"), view),
    ]
    more = len(document.changes) - len(shown)
    note = plural(
        "{count} more change; --full shows all",
        "{count} more changes; --full shows all",
        count=more,
    )
    body = table(columns, rows, view, title=message("labels that change"))
    return stack(body, remark(note if more else "", view))


def series_answer(document: SeriesDocument, view: View) -> Lines:
    """The answer: which head has formed between which steps, and which checkpoints are the same."""
    return sentences([say(view, sentence) for sentence in answer_sentences(document)], view)


def _others_sentence(
    document: SeriesDocument, metric: str, rising: Mapping[int, Sequence[float]]
) -> list[Message]:
    """A sentence on the other heads in which a score rises, naming those that end highest; empty if
    there are none.

    metric: the name of the score.
    rising: the score at each checkpoint, by the head's index among all.
    """
    if not rising:
        return []
    heads = document.checkpoints[-1].heads
    order = sorted(rising, key=lambda place: -rising[place][-1])
    names = [
        message(
            "layer {layer} head {head} ({value:.2f})",
            layer=heads[place].layer,
            head=heads[place].head,
            value=rising[place][-1],
        )
        for place in order[:MOST_OTHERS]
    ]
    rest = len(order) - len(names)
    if rest:
        names.append(message("{count} more", count=rest))
    return [message("It rises in {heads}, too.", heads=listing(names))]


SPOKEN = {"previous": contextual("sentence", "previous")}
"""What sentences call a metric whose name in tables is too short for them in some language."""


def _rise_sentence(document: SeriesDocument, values: Mapping[str, object]) -> Message:
    """The sentence on where a head's score rises; checkpoints without steps have names of their
    own.

    values: what stands in place of the names in braces.
    """
    if has_steps(document):
        return message(
            "Layer {layer} head {head}: its score {metric} goes from {first:.2f} to {last:.2f}, half"
            " of the rise between steps {before} and {after}.",
            **values,
        )
    return message(
        "Layer {layer} head {head}: its score {metric} goes from {first:.2f} to {last:.2f}, half"
        " of the rise between {before} and {after}.",
        **values,
    )


def answer_sentences(document: SeriesDocument) -> list[Message]:
    """The answer in words: which head has formed between which steps, and which checkpoints are the
    same.
    """
    texts: list[Message] = []
    first = document.checkpoints[0]
    last = document.checkpoints[-1]
    scores = [metric for metric in document.metrics if metric not in OF_ALL]
    names = _checkpoint_names(document)
    for metric in scores:
        # the heads in which the score rises, by their index
        rising = {}
        for place in range(len(last.heads)):
            values = _head_values(document, place, metric)
            if values[-1] - values[0] >= ROSE:
                rising[place] = values
        if not rising:
            continue
        place = max(rising, key=lambda index: rising[index][-1])
        values = rising[place]
        half = (values[0] + values[-1]) / 2
        # the checkpoint after the last at which the score is below the middle of its rise, which
        # the first always is and the last never
        after = max(index for index, value in enumerate(values) if value < half) + 1
        texts.append(
            _rise_sentence(
                document,
                {
                    "metric": SPOKEN.get(metric, metric_name(metric)),
                    "layer": last.heads[place].layer,
                    "head": last.heads[place].head,
                    "first": values[0],
                    "last": values[-1],
                    "before": names[document.checkpoints[after - 1].name],
                    "after": names[document.checkpoints[after].name],
                },
            )
        )
        others = {index: row for index, row in rising.items() if index != place}
        texts += _others_sentence(document, metric, others)
    if scores and not texts:
        listed = listing(map(metric_name, scores))
        texts.append(
            message(
                "In no head does a score rise by {least} or more: {scores}.",
                least=ROSE,
                scores=listed,
            )
        )
    if not scores:
        texts += _mean_sentences(document)
    if first.loss is not None and last.loss is not None:
        texts.append(
            plural(
                "The loss on the text goes from {first:.3f} to {last:.3f}.",
                "The mean loss on {count} texts goes from {first:.3f} to {last:.3f}.",
                count=document.texts,
                first=first.loss,
                last=last.loss,
            )
        )
    same = [row for row in document.checkpoints if row.same_as is not None]
    if same:
        texts.append(
            message(
                "{name} holds the same weights as {first}, byte for byte; {count} of {all}"
                " checkpoints repeat another.",
                name=safe(same[0].name),
                first=safe(same[0].same_as or ""),  # not None here
                count=len(same),
                all=len(document.checkpoints),
            )
        )
    return texts


def _head_values(document: SeriesDocument, place: int, metric: str) -> list[float]:
    """A head's score at each checkpoint. A checkpoint without it gets the score of the one before,
    or of the first checkpoint that has one.

    metric: the name of the score.
    place: the head's among all.
    """
    measured = [row.heads[place].metrics[metric] for row in document.checkpoints]
    last_value = next((value for value in measured if value is not None), 0.0)
    values = []
    for value in measured:
        if value is not None:
            last_value = value
        values.append(last_value)
    return values


def _mean_sentences(document: SeriesDocument) -> list[Message]:
    """Sentences on how the mean of each metric over all heads changes from the first checkpoint to
    the last.
    """
    first = document.checkpoints[0]
    last = document.checkpoints[-1]
    ends = [(metric, summary(first, metric), summary(last, metric)) for metric in document.metrics]
    return [
        message(
            "The mean {metric} of all heads goes from {first:.2f} to {last:.2f}.",
            metric=metric_name(metric),
            first=before,
            last=after,
        )
        for metric, before, after in ends
        if before is not None and after is not None
    ]


def series_page(document: SeriesDocument, lang: str) -> bytes:
    """The HTML page of a series: a slider over its checkpoints, curves of losses and scores, and a
    tile for each head with its weights, where the document has them, or its scores.
    """
    from attncli.draw.page.document_page import without_places
    from attncli.draw.page.steps_page import StepsPage, steps_page

    document = without_places(document)
    rows = document.checkpoints

    # a curve for the loss and for each metric of which the highest head is told
    lines: list[tuple[str, list[float | None]]] = []
    losses = [row.loss for row in rows]
    if any(loss is not None for loss in losses):
        lines.append((message("loss"), losses))
    highest = [metric for metric in document.metrics if metric not in OF_ALL]
    lines += [(metric_name(metric), [summary(row, metric) for row in rows]) for metric in highest]

    # of each metric the scores, [head, checkpoint]
    heads = [(head.layer, head.head) for head in rows[0].heads]
    scores = [
        (
            metric_name(metric),
            [[row.heads[place].metrics[metric] for row in rows] for place in range(len(heads))],
        )
        for metric in document.metrics
    ]
    # of each checkpoint the weights, [head, query, key]; the page has maps only if all have
    maps = [np.asarray(row.maps, np.float64) for row in rows if row.maps is not None]
    title = plural("{count} checkpoint", "{count} checkpoints", count=len(rows))
    # what the slider shows: the steps, or places from 0 where not every checkpoint has a step
    names = [
        row.step if row.step is not None and has_steps(document) else place
        for place, row in enumerate(rows)
    ]
    notes = answer_sentences(document)
    line = listing((title, f"{rows[0].name} … {rows[-1].name}"), " · ")
    return steps_page(
        StepsPage(
            title="attn series",
            line=line,
            tokens=[token.text for token in document.tokens],
            heads=heads,
            steps=names,
            lines=lines,
            scores=scores,
            # at which steps there are weights (all), and the weights
            maps=(list(range(len(rows))), np.stack(maps)) if len(maps) == len(rows) else None,
            document=document,
            notes=notes,
            lang=lang,
        )
    )


SERIES_PARTS: Parts[SeriesDocument] = (
    ScreenPart("header", _title_and_text),
    ScreenPart("steps", _checkpoint_table),
    ScreenPart("curve", _score_curves),
    ScreenPart("changes", _label_table),
    ScreenPart("answer", series_answer),
)
