"""The screens of a scan: a metric of every head, labels, examples; two scans compared; one
verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from attncli.documents import PlacedHead
from attncli.draw.columns import Column, column_table, columns_that_fit
from attncli.draw.lines import (
    Lines,
    clip_lines,
    draw_parts,
    heading,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.names import link_label
from attncli.draw.numbers import percent
from attncli.draw.safe import safe
from attncli.draw.shaded_matrix import draw_grid, head_grid
from attncli.draw.tables import table
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.heads.screen import KINDS
from attncli.features.rules.screen import (
    baseline_sentence,
    head_sentence,
    mixture_sentences,
    rule_weights_table,
    ruled_heads_table,
    seldom_sentences,
)
from attncli.language import Message, contextual, listing, message, plural, say, say_each
from attncli.measure.labels import LABELS, STATES
from attncli.mechanism.spec import head_label
from attncli.scan.corpus_page import scan_names
from attncli.scan.document import (
    LEAST_TEXTS,
    SKIP_NOTES,
    AlikeHeads,
    ConditionHead,
    ScanCompareDocument,
    ScanCondition,
    ScanDifference,
    ScanDocument,
    ScanEffect,
    ScanHead,
    ScanLabel,
    ScanTogether,
    ScanVerifyDocument,
    TogetherHead,
)
from attncli.scan.head_screen import (
    SPACED,
    ScanShown,
    Shading,
    changes_of_head,
    effect_text,
    frequent_links,
    furthest_link,
    heads_like,
    interval_text,
    kinds_of_head,
    label_text,
    metrics_of_head,
    number_text,
    of_one_head,
    share_text,
    strongest_examples,
    table_without_unknowns,
    texts_of_deciles,
    why_parts,
    why_sentences,
)
from attncli.scan.shard_files import parse_condition

EFFECT_NOTES = {
    "zero": message(
        "1 − cos of the vector at the end, mean over texts; the head passes on nothing"
    ),
    "mean": message(
        "1 − cos of the vector at the end, mean over texts; the head passes on its mean over the"
        " text"
    ),
}
"""What the effect of a head is, by what it passes on instead."""
NAMED_FILES, TOLD_FAILURES = 3, 5
"""Files of the corpus, and shards that failed, that the header tells."""
DIGITS = 16
"""Digits of a digest that are told: enough to compare two by eye."""


def scan_screen(document: ScanDocument, view: View) -> Lines:
    """The screen of a scan about all of its heads, with its first metric in the grid."""
    return shown_screen(scan_shown(document), view)


def shown_screen(shown: ScanShown, view: View) -> Lines:
    """The screen of a scan: the parts that suit `shown`, one below the other."""
    return draw_parts(SCAN_PARTS, shown, view)


def scan_shown(
    document: ScanDocument,
    *,
    metric: str | None = None,
    head: tuple[int, int] | None = None,
    deciles: bool = False,
    alike: AlikeHeads | None = None,
    comparison: ScanCompareDocument | None = None,
    shades: Shading | None = None,
) -> ScanShown:
    """What a screen of a scan is to show, as one value for its parts.

    metric: of the grid and the examples, None for the first.
    head: (layer, head) of one to show in detail, None for all.
    deciles: whether texts of each tenth of the metric's values are shown in place of the strongest.
    alike: the heads most like it, None for none.
    comparison: with another scan, whose differences for the head are shown; None for none.
    shades: attention weights to shade texts by, None for unshaded texts.
    """
    metric_name = metric or ""
    if not metric and document.heads:
        metric_name = next(iter(document.heads[0].metrics), "")
    chosen_head = None
    for scan_head in document.heads:
        if (scan_head.layer, scan_head.head) == head:
            chosen_head = scan_head
    return ScanShown(document, metric_name, chosen_head, deciles, alike, comparison, shades)


def _shows_all_heads(shown: ScanShown, view: View) -> bool:
    """Whether the screen is about all heads, not one alone. This and the next three decide for a
    `ScreenPart` whether it is shown unless it is asked for by name."""
    return shown.head is None


def _shows_one_head(shown: ScanShown, view: View) -> bool:
    """Whether the screen is about one head."""
    return shown.head is not None


def _shows_deciles(shown: ScanShown, view: View) -> bool:
    """Whether the screen is about one head, with texts of its whole distribution."""
    return shown.head is not None and shown.deciles


def _shows_strongest(shown: ScanShown, view: View) -> bool:
    """Whether the screen is about one head, with the texts in which it is strongest."""
    return shown.head is not None and not shown.deciles


def scan_page(document: ScanDocument, lang: str) -> bytes:
    """The HTML page of a scan, in UTF-8, without its model: texts are not shaded by weights, and
    the page says so.
    """
    from attncli.scan import corpus_page

    return corpus_page.scan_page([corpus_page.PageScan(document, {}, {})], lang=lang)


METRIC_COLUMNS = (
    "layer",
    "head",
    "metric",
    "texts",
    "rows",
    "mean_texts",
    "mean_rows",
    "sd",
    "low",
    "high",
    "baseline",
)
"""The columns of a scan's own table, whose rows are metrics of heads."""


def scan_rows(document: ScanDocument) -> Iterator[Sequence[object]]:
    """Yield every metric of every head as a row, column names first, for `--plain`."""
    yield METRIC_COLUMNS
    for head in document.heads:
        yield from metric_rows(head)
    yield from _rule_rows(document)


def metric_rows(head: ScanHead) -> Iterator[Sequence[object]]:
    """Yield every metric of a head as a row of `METRIC_COLUMNS`."""
    for name, metric in head.metrics.items():
        low, high = metric.ci95 or (None, None)
        yield (
            head.layer,
            head.head,
            name,
            metric.texts,
            metric.rows,
            metric.mean_texts,
            metric.mean_rows,
            metric.sd,
            low,
            high,
            metric.baseline,
        )


def _rule_rows(document: ScanDocument) -> Iterator[Sequence[object]]:
    """Yield the overlap of every head with its rules as a row of `METRIC_COLUMNS`, whose baseline
    is the overlap of an even spread; nothing where rules were not asked for."""
    rules = document.rules
    if not rules:
        return
    texts = rules.texts.measured
    rows = rules.texts.measured_rows
    for head in rules.heads:
        # a mean over rows alone: no mean over texts, no sd and no interval
        numbers = (None, head.overlap, None, None, None, head.overlap_even)
        yield (head.layer, head.head, "rule_overlap", texts, rows, *numbers)


def _header(shown: ScanShown, view: View) -> Lines:
    """The header of a scan's screen: the corpus and the model, how far the scan has come, and what
    was left out."""
    document = shown.document
    progress = shown.document.done
    skip_notes = [
        say(view, SKIP_NOTES[reason], count=f"{count:,}")
        for reason, count in progress.skipped.items()
        if count
    ]
    if progress.truncated:
        skip_notes.append(
            say(view, "{count} cut to the model's length", count=f"{progress.truncated:,}")
        )
    corpus = document.plan.corpus
    names = ", ".join(safe(name) for name in corpus[:NAMED_FILES])
    if len(corpus) > NAMED_FILES:
        names += f" … ({len(corpus)})"
    shards_done = say(
        view,
        "{done} of {total} shards · {texts} · {tokens}",
        done=progress.shards[0],
        total=progress.shards[1],
        texts=_text_count(document, view),
        tokens=plural("{count:,} token", "{count:,} tokens", count=progress.tokens),
    )
    rows = [
        [
            say(view, "model"),
            (
                f"{safe(document.plan.model_with_adapters(document.plan.model))} ·"
                f" {document.plan.dtype}"
            ),
        ],
        [say(view, "corpus"), names],
        [say(view, "done"), shards_done],
    ]
    if skip_notes:
        rows.append([say(view, "left out"), " · ".join(skip_notes)])
    if document.plan.exclude:
        kinds = listing(KINDS[name] for name in document.plan.exclude)
        rows.append([say(view, "excluded"), say(view, kinds)])
        rows.append(["", say(view, "weights as they were, rows sum to less")])
    rows += [
        [say(view, "failed"), f"{shard.shard}: {safe(shard.reason)}"]
        for shard in progress.failed[:TOLD_FAILURES]
    ]
    if document.plan.sample_memory:  # UNSET, which is false, for a scan without samples and pairs
        size = f"{math.ceil(document.plan.sample_memory / 2**20):,}"
        memory = say(view, "samples and pairs: at most {size} MiB of a worker", size=size)
        rows.append([say(view, "memory"), memory])
    if document.digest is not None:
        rows.append([say(view, contextual("scan", "digest")), document.digest[:DIGITS]])
    title = plural("scan of {count:,} text", "scan of {count:,} texts", count=progress.texts)
    warnings = [remark(warning_text, view) for warning_text in document.warnings]
    return stack(table(["", ""], rows, view, title=title, faint=(0,)), *warnings)


def _grid(shown: ScanShown, view: View) -> Lines:
    """A grid with a cell for each head, coloured by the mean of the metric that is shown; no lines
    where heads do not have it."""
    heads = shown.document.heads
    name = shown.metric
    if not heads or name not in heads[0].metrics:
        return Lines()
    grid = head_grid((head.layer, head.head, head.metrics[name].mean_texts) for head in heads)
    note = message("mean over texts; rows: layers, columns: heads; --metric NAME shows another")
    return draw_grid(grid, view, title=name, note=note)


def _labels(shown: ScanShown, view: View) -> Lines:
    """A table of the labels that heads earn or may earn, with intervals and the share of texts that
    earn them; no lines where labels were not asked for, or the one head shown has none."""
    # the rows of the table: a head and a label of it
    labels: list[tuple[ScanHead, ScanLabel]] = []
    for head in shown.heads:
        labels += [(head, scan_label) for scan_label in head.labels if is_told(scan_label)]
    if not shown.heads or not shown.document.plan.labels or (shown.head is not None and not labels):
        return Lines()
    if not labels:
        return heading("labels", "no head earns a label over this corpus", view)

    def strongest_first(row: tuple[ScanHead, ScanLabel]) -> tuple[bool, float]:
        """Sorts by strength; where a head rests is a state beside what it does, and comes last."""
        _, scan_label = row
        return scan_label.state, -_score_over_threshold(scan_label)

    # the strongest are chosen, and stand in the order of heads
    if view.full:
        labels_shown = labels
    else:
        labels_shown = sorted(labels, key=strongest_first)[: view.top]
    ordered = sorted(labels_shown, key=lambda row: (row[0].layer, row[0].head))
    body = _label_table(ordered, view)
    if len(labels_shown) == len(labels):
        return body
    count = message(
        "{count} of {total} shown; --full shows all", count=len(labels_shown), total=len(labels)
    )
    return stack(body, remark(count, view))


OF_WEIGHT = contextual("scan", "of")
"""The name of the column of the share of a head's weight that a label is measured on."""


def _label_note(*, has_interval: bool, has_share: bool) -> Message:
    """The note that says what the columns of the table of labels mean.

    has_interval: whether the table shows intervals of scores.
    has_share: whether it shows the share of the head's weight that a label is measured on.
    """
    notes = [message("score: mean over texts")]
    if has_interval:
        notes = [message("score: mean over texts with its 95% interval")]
    if has_share:
        notes.append(
            message(
                "of: the share of the head's weight that the score is measured on, the first token"
                " left out"
            )
        )
    notes.append(message("texts: share that earns the label alone"))
    return listing(notes, "; ")


def _margin_word(scan_label: ScanLabel, view: View) -> str:
    """The word for a label that other texts may decide otherwise: "borderline" where its interval
    says so, "undecided" where it has none; "" for a label that is certain."""
    if not scan_label.borderline:
        return ""
    if _is_borderline(scan_label):
        return say(view, "borderline")
    return say(view, "undecided")


def _label_phrase(scan_label: ScanLabel, view: View) -> str:
    """A label with its score for a sentence, such as "broad (0.93)", and whether it is borderline
    or undecided."""
    name = label_text(scan_label, view)
    score = number_text(scan_label.score, view)
    margin = _margin_word(scan_label, view)
    if margin:
        template = message("{label} ({score}, {margin})")
        return say(view, template, label=name, score=score, margin=margin)
    return say(view, "{label} ({score})", label=name, score=score)


def _label_table(labels: Sequence[tuple[ScanHead, ScanLabel]], view: View) -> Lines:
    """The table of these labels, a row each, with the head that has it."""
    columns = _label_columns(labels, view)
    shown = columns_that_fit(columns, labels, view)
    has_interval = any(scan_label.ci95 is not None for _, scan_label in labels)
    has_share = any(column.name == OF_WEIGHT for column in shown)
    note = _label_note(has_interval=has_interval, has_share=has_share)
    return column_table(columns, labels, view, title="labels", note=note)


def _label_columns(
    labels: Sequence[tuple[ScanHead, ScanLabel]], view: View
) -> list[Column[tuple[ScanHead, ScanLabel]]]:
    """The columns of the table of labels, whose rows are (head, label); a column in which no label
    has anything is left out."""

    def head_text(row: tuple[ScanHead, ScanLabel]) -> str:
        return head_label(row[0].layer, row[0].head)

    def texts_text(row: tuple[ScanHead, ScanLabel]) -> str:
        if row[1].texts is None:
            return say(view, "random repeats")
        return share_text(row[1].texts, row[1].texts_ci95, view)

    columns: list[Column[tuple[ScanHead, ScanLabel]]] = [
        Column("head", head_text, align="left"),
        Column("label", lambda row: label_text(row[1], view), align="left"),
        Column("score", lambda row: number_text(row[1].score, view)),
    ]
    if any(scan_label.ci95 is not None for _, scan_label in labels):
        interval = message("interval")
        if view.width >= SPACED:
            interval = message("95% interval")
        columns.append(Column(interval, lambda row: interval_text(row[1].ci95, view), align="left"))
    if any(scan_label.share is not None for _, scan_label in labels):
        columns.append(Column(OF_WEIGHT, lambda row: _share_of_weight(row[1]), leave_out=1))
    columns.append(Column("texts", texts_text))
    if any(_margin_word(scan_label, view) for _, scan_label in labels):
        columns.append(Column("", lambda row: _margin_word(row[1], view), align="left"))
    return columns


def _share_of_weight(scan_label: ScanLabel) -> str:
    """The share of a head's weight that a label is measured on, in percent; a label without a share
    is measured on all of it."""
    if scan_label.share is None:
        return percent(1.0)
    return percent(scan_label.share)


def _effects(shown: ScanShown, view: View) -> Lines:
    """A table of what taking heads away changes, the largest mean first (a head without a mean
    counts as 0); no lines where that was not measured."""
    effects = [(head, head.effect) for head in shown.heads if isinstance(head.effect, ScanEffect)]
    if not shown.document.plan.effects or (shown.head is not None and not effects):
        return Lines()
    rows = [
        [
            head_label(head.layer, head.head),
            effect_text(effect.mean, view),
            interval_text(effect.ci95, view, effect_text),
            effect_text(effect.sd, view),
            effect_text(effect.quantiles.get("50"), view),
        ]
        for head, effect in sorted(effects, key=lambda pair: -(pair[1].mean or 0.0))
    ]
    return table_without_unknowns(
        say_each(view, "head", "mean", "95% interval", "sd", "median"),
        rows,
        view,
        align=["left", "right", "left", "right", "right"],
        title=message("what taking a head away changes"),
        note=EFFECT_NOTES[shown.document.plan.effects[0]],  # "zero" or "mean"; the heads follow
    )


def _layers(shown: ScanShown, view: View) -> Lines:
    """A table of how many massive activations (numbers far above all others) leave each layer; no
    lines for a scan without that metric."""
    if not shown.document.layers:
        return Lines()
    rows = [
        [
            f"L{layer.layer}",
            number_text(layer.massive.mean_texts, view),
            interval_text(layer.massive.ci95, view),
            "-" if layer.share is None else share_text(layer.share, layer.share_ci95, view),
        ]
        for layer in shown.document.layers
    ]
    return table_without_unknowns(
        say_each(view, "layer", "mean", "95% interval", "texts"),
        rows,
        view,
        align=["left", "right", "left", "right"],
        title=message("massive activations"),
        note=message(
            "numbers above 100 and 1,000 times the median among those that leave the layer; texts:"
            " share with one"
        ),
    )


def _rules(shown: ScanShown, view: View) -> Lines:
    """Tables that describe the heads shown by rules and, of all heads, count how they use each
    rule; no lines for a scan without rules."""
    rules = shown.document.rules
    if not rules or not rules.heads:
        return Lines()
    if shown.head is not None:
        heads = [head for head in rules.heads if is_place(head, shown.head)]
        return ruled_heads_table(heads, view)
    texts = message(
        "fitted to {fitted} texts, chosen by {choosing}, measured on {rows:,} rows of {measured}",
        fitted=f"{rules.texts.fitted:,}",
        choosing=f"{rules.texts.choosing:,}",
        measured=f"{rules.texts.measured:,}",
        rows=rules.texts.measured_rows,
    )
    return stack_spaced(
        stack(ruled_heads_table(rules.heads, view), remark(texts, view)),
        rule_weights_table(rules.heads, view),
    )


def _condition_tables(shown: ScanShown, view: View) -> Lines:
    """A table for each `--find` condition: the heads that have such links, by the share of texts;
    of several one more over all of them, and what chance adds to the first of each."""
    conditions = shown.document.find or []
    together = shown.document.find_together
    texts = shown.document.done.texts
    tables = [_condition_table(condition, texts, view) for condition in conditions]
    # heads out of which the first of a table was chosen; 0 where no table has a head
    searched = max((condition.searched for condition in conditions if condition.heads), default=0)
    if together is not UNSET and together.heads:
        tables.append(_together_table(together, conditions, texts, view))
        searched = together.searched
    if tables and searched >= CHOSEN_OF and shown.head is None:
        lucky = message(
            "the first head was chosen out of {heads:,} by these texts: its share may be too high;"
            " other texts tell",
            heads=searched,
        )
        tables[-1] = stack(tables[-1], remark(lucky, view))
    return stack_spaced(*tables)


def _together_table(
    together: ScanTogether, conditions: Sequence[ScanCondition], texts: int, view: View
) -> Lines:
    """The table of the heads with links of at least one condition, by the share of all texts, with
    the share for each condition.

    texts: texts of the scan.
    """

    def condition_column(place: int, text: str) -> Column[TogetherHead]:
        """The column of one condition's shares, named by its words."""
        condition = parse_condition(text)
        # a side for which the condition names no word takes any: "*"
        query = safe(condition.source or "*", ascii=view.ascii)
        key = safe(condition.target or "*", ascii=view.ascii)
        name = link_label(query, key, view)

        def cell(row: TogetherHead) -> str:
            """The share of texts for this condition; "" where the head could have no such link."""
            share = row.shares[place]
            if share is None:
                return ""
            return percent(share)

        # where there is little room, the highest numbers go first: the last condition, and all
        # conditions before the column "texts", which has 1
        return Column(name, cell, leave_out=2 + len(conditions) - place)

    columns: list[Column[TogetherHead]] = [
        Column("head", lambda row: head_label(row.layer, row.head), align="left"),
        Column(message("share of texts"), lambda row: share_text(row.share, row.share_ci95, view)),
        Column(
            "texts",
            lambda row: say(view, "{some:,} of {every:,}", some=row.texts, every=row.possible),
            leave_out=1,
        ),
        *(
            condition_column(place, condition.condition)
            for place, condition in enumerate(conditions)
        ),
    ]
    rows = together.heads if view.full else together.heads[: view.top]
    title = message("heads over all {count} conditions together", count=len(conditions))
    note = message(
        "share of the texts in which the head sees a query and key of at least one of them, with its"
        " 95% interval; behind it the share for each condition"
    )
    body = column_table(columns, rows, view, title=title, note=note)
    said = [*_uncounted_clauses(together.heads, texts), *_tie_clauses(together.heads)]
    body = stack(body, *(remark(clause, view) for clause in said))
    if len(rows) == len(together.heads):
        return body
    more = message(
        "{count} of {total} shown; --full shows all", count=len(rows), total=len(together.heads)
    )
    return stack(body, remark(more, view))


NO_SUCH_TEXT = message(
    "no text has a query and a key with these tokens that a head could link; from= and to= take one"
    " token each"
)
"""Said of a condition whose tokens stand together in no text."""


def _condition_table(condition: ScanCondition, texts: int, view: View) -> Lines:
    """The table of the heads with links that one condition looks for.

    texts: texts of the scan.
    """
    title = message("heads with links {condition}", condition=condition.condition)
    if not condition.heads:
        none = plural(
            "no link of the {count:,} head searched is one",
            "no link of the {count:,} heads searched is one",
            count=condition.searched,
        )
        return heading(title, _no_link_reason(condition) or none, view)
    columns: list[Column[ConditionHead]] = [
        Column("head", lambda row: head_label(row.layer, row.head), align="left"),
        Column(message("share of texts"), lambda row: share_text(row.share, row.share_ci95, view)),
        Column(
            "texts",
            lambda row: say(view, "{some:,} of {every:,}", some=row.texts, every=row.possible),
            leave_out=1,
        ),
        Column("weight", lambda row: number_text(row.weight, view), leave_out=2),
    ]
    rows = condition.heads if view.full else condition.heads[: view.top]
    note = message(
        "share of the texts in which the head sees such a query and key, with its 95% interval;"
        " weight: of the largest such link of a text, mean"
    )
    body = column_table(columns, rows, view, title=title, note=note)
    said = [
        *_counted_clauses(condition),
        *_uncounted_clauses(condition.heads, texts),
        *_tie_clauses(condition.heads),
    ]
    body = stack(body, *(remark(clause, view) for clause in said))
    if len(rows) == len(condition.heads):
        return body
    more = message(
        "{count} of {total} shown; --full shows all", count=len(rows), total=len(condition.heads)
    )
    return stack(body, remark(more, view))


CHOSEN_OF = 2
"""Heads from which on the first of them owes part of its place to chance."""


def _counted_clauses(condition: ScanCondition) -> list[str]:
    """What counts as a link that a condition looks for, where it names no query or no key, or where
    its key is a text's first token, on which heads put weight whatever it is; an empty list where
    nothing of this is so."""
    words = parse_condition(condition.condition)
    said: list[str] = []
    if words.target is None and condition.counts_rest:
        said.append(message("every key counts, those where heads rest, too"))
    elif words.target is None:
        said.append(
            message(
                "every key counts but those where heads rest: the first token, special tokens, line"
                " breaks and other separators"
            )
        )
    if words.source is None or words.target is None:
        said.append(message("a word's links to itself and to its neighbours count, too"))
    if condition.first_keys is not UNSET and condition.counts_rest:
        said.append(
            plural(
                "in {count:,} text the key is the first token: heads put weight there whatever it"
                " says, so such a link tells nothing of the word",
                "in {count:,} texts the key is the first token: heads put weight there whatever it"
                " says, so such a link tells nothing of the word",
                count=condition.first_keys,
            )
        )
    elif condition.first_keys is not UNSET:
        said.append(_first_key_clause(condition.first_keys))
    return said


def _first_key_clause(texts: int) -> str:
    """That links to a text's first token, where heads rest, do not count, and what helps.

    texts: those whose first token is the key that a condition names.
    """
    return plural(
        "in {count:,} text the key is the first token, where heads rest: links to it do not count"
        ' (words before it, such as "Yesterday", move it; rest=yes counts them)',
        "in {count:,} texts the key is the first token, where heads rest: links to it do not count"
        ' (words before it, such as "Yesterday", move it; rest=yes counts them)',
        count=texts,
    )


def _uncounted_clauses(rows: Sequence[ConditionHead | TogetherHead], texts: int) -> list[str]:
    """How many texts of a scan do not count for any head of a ranking, in a list; an empty list
    where all do.

    rows: the heads of the ranking.
    texts: texts of the scan.
    """
    possible = max((row.possible for row in rows), default=texts)
    if possible >= texts:
        return []
    return [
        plural(
            "{count:,} of {texts:,} texts does not count: no such query there sees a key that counts",
            "{count:,} of {texts:,} texts do not count: no such query there sees a key that counts",
            count=texts - possible,
            texts=texts,
        )
    ]


def _tie_clauses(rows: Sequence[ConditionHead | TogetherHead]) -> list[str]:
    """How many heads of a ranking have its largest share of texts, in a list; an empty list for a
    single one."""
    equal = sum(row.share == rows[0].share for row in rows)
    if equal < 2:
        return []
    return [message("{equal} heads have the largest share", equal=equal)]


def _no_link_reason(condition: ScanCondition) -> str | None:
    """Why no head could have a link that a condition looks for; None where some could."""
    if condition.possible != 0:
        return None
    if condition.first_keys is not UNSET:
        return _first_key_clause(condition.first_keys)
    return NO_SUCH_TEXT


def _without_words(possible: int, texts: int) -> list[str]:
    """The sentence, in a list, on texts of the scan that are not among those that a head is counted
    in; an empty list where all are.

    possible: texts in which the head sees such a query and key.
    texts: texts of the scan.
    """
    if possible >= texts:
        return []
    return [
        plural(
            "{count:,} of the {texts:,} texts does not count: no such query there sees a key that counts.",
            "{count:,} of the {texts:,} texts do not count: no such query there sees a key that counts.",
            count=texts - possible,
            texts=texts,
        )
    ]


def _condition_sentences(document: ScanDocument) -> list[str]:
    """Sentences for each `--find` condition: the head with the largest share of texts, or that
    none has such a link, and in how many texts its key is the first token; of a single condition
    also how many texts do not count.
    """
    conditions = document.find or ()
    said: list[str] = []
    for condition in conditions:
        reason = _no_link_reason(condition)
        clauses = [reason] if reason else _counted_clauses(condition)
        said += [
            message("{condition}: {reason}.", condition=condition.condition, reason=clause)
            for clause in clauses
        ]
        if reason:  # no head could have such a link: nothing more to tell
            continue
        if not condition.heads:
            said.append(message("No head has a link {condition}.", condition=condition.condition))
            continue
        first = condition.heads[0]  # heads are sorted by their share, the largest first
        equal = sum(row.share == first.share for row in condition.heads)
        low, high = (percent(end) for end in first.share_ci95)
        values = {
            "condition": condition.condition,
            "share": percent(first.share),
            "texts": first.possible,
            "low": low,
            "high": high,
        }
        if equal > 1:
            sentence_equal = message(
                "{equal} of {heads:,} heads have a link {condition} in {share} of {texts:,} texts"
                " [{low}, {high}]; none has one in a larger share.",
                equal=equal,
                heads=condition.searched,
                **values,
            )
            said.append(sentence_equal)
            continue
        sentence_first = message(
            "{head} has a link {condition} in {share} of {texts:,} texts [{low}, {high}], the"
            " largest share.",
            head=head_label(first.layer, first.head),
            **values,
        )
        said.append(sentence_first)
        if condition.searched >= CHOSEN_OF:
            lucky = message(
                "These texts chose it out of {heads:,} heads, so its share may be too high: other"
                " texts tell.",
                heads=condition.searched,
            )
            said.append(lucky)
    if len(conditions) == 1 and conditions[0].heads:
        said += _without_words(conditions[0].heads[0].possible, document.done.texts)
    return said


def _together_sentences(document: ScanDocument) -> list[str]:
    """The sentence, in a list, on which head has links of at least one of several `--find`
    conditions in the largest share of texts; an empty list for a single condition."""
    together = document.find_together
    if together is UNSET or not together.heads:
        return []
    first = together.heads[0]  # heads are sorted by their share, the largest first
    low, high = (percent(end) for end in first.share_ci95)
    values = {
        "count": len(document.find or ()),
        "share": percent(first.share),
        "texts": first.possible,
        "low": low,
        "high": high,
    }
    equal = sum(row.share == first.share for row in together.heads)
    said = message(
        "Over all {count} conditions together {head} comes first: in {share} of {texts:,} texts"
        " [{low}, {high}].",
        head=head_label(first.layer, first.head),
        **values,
    )
    if equal > 1:
        said = message(
            "Over all {count} conditions together {equal} heads share the first place: each in"
            " {share} of {texts:,} texts [{low}, {high}].",
            equal=equal,
            **values,
        )
    return [said, *_without_words(first.possible, document.done.texts)]


def is_place(head: PlacedHead, second: PlacedHead) -> bool:
    """Whether two entries are of one head."""
    return (head.layer, head.head) == (second.layer, second.head)


def _score_over_threshold(scan_label: ScanLabel) -> float:
    """How many times its threshold a label's score is."""
    return (scan_label.score or 0.0) / scan_label.threshold


def _answer(shown: ScanShown, view: View) -> Lines:
    """The answer in sentences: about the head that is shown closely, or about all heads."""
    if shown.head is not None:
        return sentences(_head_sentences(shown.head, shown.document, view), view)
    document = shown.document
    done_count, total = document.done.shards
    answer_sentences: list[str] = []
    if document.heads:
        answer_sentences += _label_sentences(document, view)
    answer_sentences += _condition_sentences(document)
    answer_sentences += _together_sentences(document)
    answer_sentences += why_sentences(document.heads, view)
    rules = document.rules
    if rules and rules.heads and rules.overlap:
        answer_sentences += mixture_sentences(
            rules.heads, rules.overlap, rules.stability, view, rules.rules
        )
    if done_count < total:
        unfinished = message(
            "This scan is not finished: {done} of {total} shards are done. The same command again"
            " goes on.",
            done=done_count,
            total=total,
        )
        answer_sentences.append(unfinished)
    return sentences(answer_sentences, view)


def _label_sentences(document: ScanDocument, view: View) -> list[str]:
    """Sentences on how many heads earn a label, how certain that is, and how many mostly look at
    special or first tokens."""
    # the second half of the first sentence: how certain labels are
    labelled_count = sum(map(_has_label, document.heads))
    borderline_count = sum(any(map(_is_borderline, head.labels)) for head in document.heads)
    missing_intervals = _missing_interval_sentences(document.heads, document)
    if not _has_intervals(document):
        borderline: Message = message("whether they keep it over other texts is not known")
    elif borderline_count:
        borderline = plural(
            "{count} is borderline", "{count} are borderline", count=borderline_count
        )
    else:
        borderline = message("none is borderline")

    counts = {"heads": len(document.heads), "texts": _text_count(document, view)}
    if not document.plan.labels:
        first: Message = message(
            "{heads} heads are measured over {texts}; labels were not asked for.", **counts
        )
    elif labelled_count:
        first = plural(
            "{count} of {heads} heads earns a label over {texts}; {borderline}.",
            "{count} of {heads} heads earn a label over {texts}; {borderline}.",
            count=labelled_count,
            borderline=borderline,
            **counts,
        )
    else:
        first = message(
            "None of the {heads} heads earns a label over {texts}; {borderline}.",
            borderline=borderline,
            **counts,
        )
    return [first, *missing_intervals, *_rest_sentences(document.heads)]


def scan_lines(document: ScanDocument) -> int:
    """About how many lines the whole screen has: of several heads it shows the labels alone, of one
    also its metrics, examples and links."""
    count = sum(len(head.labels) for head in document.heads)
    if len(document.heads) == 1:
        (head,) = document.heads
        tables = (head.metrics, head.top, head.sample or (), head.links or ())
        count += sum(map(len, tables))
    return count


def _has_label(head: ScanHead) -> bool:
    """Whether a head earns a label for what it does, not only for where it rests."""
    return any(scan_label.earned and not scan_label.state for scan_label in head.labels)


def _rest_sentences(heads: Sequence[ScanHead]) -> list[str]:
    """The sentence, in a list, that says how many heads rest, which is to put much of their weight
    on the first token or special tokens, and how many of these have another label; an empty list
    where no head rests.
    """
    resting = [head for head in heads if any(label.earned and label.state for label in head.labels)]
    if not resting:
        return []
    first, special = (LABELS[name].threshold for name in STATES)  # the order of `STATES`
    return [
        plural(
            "{count} of {heads} heads rests, {labelled} beside a label: at least {first} of its"
            " weight is on the first token, or {special} on special tokens. Labels are measured on"
            " the weight beside the first token.",
            "{count} of {heads} heads rest, {labelled} of them beside a label: at least {first} of"
            " their weight is on the first token, or {special} on special tokens. Labels are"
            " measured on the weight beside the first token.",
            count=len(resting),
            heads=len(heads),
            labelled=sum(map(_has_label, resting)),
            first=first,
            special=special,
        )
    ]


def is_told(scan_label: ScanLabel) -> bool:
    """Whether a label stands in the table of labels: it is earned, or its interval leaves open
    whether it is."""
    return scan_label.earned or _is_borderline(scan_label)


def _is_borderline(scan_label: ScanLabel) -> bool:
    """Whether a label is borderline and has an interval, which then contains its threshold."""
    return scan_label.borderline and scan_label.ci95 is not None


def _has_intervals(document: ScanDocument) -> bool:
    """Whether any mean of any head has an interval."""
    return any(metric.ci95 for head in document.heads for metric in head.metrics.values())


def _missing_interval_sentences(heads: Sequence[ScanHead], document: ScanDocument) -> list[str]:
    """The sentence, in a list, on means without an interval: that there are too few texts, or too
    few that differ, or how many means of these heads lack one although there are enough texts. An
    empty list where all means of enough texts have one."""
    if not _has_intervals(document):
        if document.done.texts >= LEAST_TEXTS:
            return [message("No mean has an interval: too few texts, or groups of texts, differ.")]
        few = plural(
            "{count} text is too few for intervals of means, which take {least}.",
            "{count} texts are too few for intervals of means, which take {least}.",
            count=document.done.texts,
            least=LEAST_TEXTS,
        )
        return [few]
    missing = 0
    for head in heads:
        for metric in head.metrics.values():
            if metric.ci95 is None and metric.texts >= LEAST_TEXTS:
                missing += 1
    if missing == 0:
        return []
    too_even = plural(
        "{count} mean has no interval: too few texts differ there.",
        "{count} means have no interval: too few texts differ there.",
        count=missing,
    )
    return [too_even]


def _text_count(document: ScanDocument, view: View) -> str:
    """How many texts the scan has read, such as `1,200 texts`."""
    return say(view, plural("{count:,} text", "{count:,} texts", count=document.done.texts))


def _state_sentences(head: ScanHead) -> list[str]:
    """Sentences on where a head rests (the first token, special tokens), and what its labels are
    then measured on; an empty list where it does not rest.
    """
    scores = {label.name: label.score for label in head.labels if label.earned and label.state}
    said: list[str] = []
    first, special = (scores.get(name) for name in STATES)  # the order of `STATES`
    if first is not None:
        sentence_first = message(
            "It rests on the first token with {share} of its weight; its labels are measured on the"
            " others.",
            share=percent(first),
        )
        said.append(sentence_first)
    if special is not None:
        sentence_special = message(
            "It rests on special tokens with {share} of its weight.", share=percent(special)
        )
        said.append(sentence_special)
    return said


def _head_sentences(head: ScanHead, document: ScanDocument, view: View) -> list[str]:
    """Sentences on one head: its labels, where it rests, why it looks where it looks, its rules,
    the pair of tokens that it links furthest above chance, and which intervals are missing."""
    earned_labels = [
        _label_phrase(scan_label, view)
        for scan_label in head.labels
        if scan_label.earned and not scan_label.state
    ]
    values = {"layer": head.layer, "head": head.head, "texts": _text_count(document, view)}
    if earned_labels:
        labels_sentence: Message = plural(
            "Over {texts}, layer {layer} head {head} earns the label {labels}.",
            "Over {texts}, layer {layer} head {head} earns the labels {labels}.",
            count=len(earned_labels),
            labels=say(view, contextual("between", ", ")).join(earned_labels),
            **values,
        )
    elif any(scan_label.earned for scan_label in head.labels):
        labels_sentence = message(
            "Beside resting, layer {layer} head {head} earns no label over {texts}.", **values
        )
    else:
        labels_sentence = message(
            "Layer {layer} head {head} earns no label over {texts}.", **values
        )
    return [
        labels_sentence,
        *_state_sentences(head),
        *why_sentences([head], view),
        *_rule_sentences(head, document, view),
        *furthest_link(head, view),
        *_missing_interval_sentences([head], document),
    ]


def _rule_sentences(head: ScanHead, document: ScanDocument, view: View) -> list[str]:
    """Sentences on which rules describe how much of one head's attention; an empty list where rules
    were not asked for."""
    rules = document.rules
    if not rules:
        return []
    said = []
    for ruled_head in rules.heads:
        if is_place(ruled_head, head):
            said.append(head_sentence(ruled_head, view))
            said.append(baseline_sentence(ruled_head, view))
            said += seldom_sentences(ruled_head, rules.rules, view)
    return said


SCAN_PARTS: Parts[ScanShown] = (
    ScreenPart("header", _header),
    ScreenPart("grid", _grid, _shows_all_heads),
    ScreenPart("labels", _labels),
    ScreenPart("layers", _layers, _shows_all_heads),
    ScreenPart("effects", _effects),
    ScreenPart("find", _condition_tables),
    ScreenPart(
        "why", lambda shown, view: stack_spaced(*(why_parts(head, view) for head in shown.heads))
    ),
    ScreenPart("rules", _rules),
    ScreenPart("kinds", of_one_head(kinds_of_head), _shows_one_head),
    ScreenPart("metrics", of_one_head(metrics_of_head), _shows_one_head),
    ScreenPart("changes", of_one_head(changes_of_head), _shows_one_head),
    ScreenPart("links", of_one_head(frequent_links), _shows_one_head),
    ScreenPart("alike", of_one_head(heads_like), _shows_one_head),
    ScreenPart("examples", of_one_head(strongest_examples), _shows_strongest),
    ScreenPart("deciles", of_one_head(texts_of_deciles), _shows_deciles),
    ScreenPart("answer", _answer),
)


# The screen of `attn.scan_compare/1`: where two scans differ most.

FALSE_RATE = 0.05
"""The share of false discoveries that is borne."""


def scan_compare_screen(document: ScanCompareDocument, view: View) -> Lines:
    """The screen of a comparison of two scans: a table of the largest differences, then sentences
    on how many are more than chance makes; with `--brief` the sentences alone."""
    if view.brief:
        return clip_lines(_comparison_answer(document, view), view.width, ascii=view.ascii)
    if view.full:
        differences = document.differences
    else:
        differences = document.differences[: view.top]
    first, second = scan_names((document.a, document.b), short=str)
    body = column_table(
        _difference_columns(differences, view),
        differences,
        view,
        title=message("{a} against {b}", a=first, b=second),
        note="mean a − mean b within common strata of length; largest effect first",
    )
    notes = list(document.warnings)
    count = len(differences)
    total = len(document.differences)
    if count < total:
        counts = {"count": f"{count:,}", "total": f"{total:,}", "top": total}
        notes.append(message("{count} of {total} shown; --top {top} shows all", **counts))
    remarks = [remark(note, view) for note in notes]
    return clip_lines(
        stack_spaced(body, *remarks, _comparison_answer(document, view)),
        view.width,
        ascii=view.ascii,
    )


def _difference_columns(
    differences: Sequence[ScanDifference], view: View
) -> list[Column[ScanDifference]]:
    """The columns that describe each difference; both means and Cohen's d are left out first where
    there is little room."""
    columns: list[Column[ScanDifference]] = [
        Column(message("head"), lambda row: head_label(row.layer, row.head), align="left"),
        Column(message("metric"), lambda row: row.metric, align="left"),
        Column("a", lambda row: number_text(row.a, view), leave_out=1),
        Column("b", lambda row: number_text(row.b, view), leave_out=1),
        Column(contextual("column", "difference"), lambda row: number_text(row.difference, view)),
        Column(message("Cliff's δ"), lambda row: number_text(row.cliffs_delta, view)),
        Column(message("Cohen's d"), lambda row: number_text(row.cohens_d, view), leave_out=2),
    ]
    if any(row.q is not None for row in differences):  # few texts tell nothing of chance
        columns.append(Column("q", lambda row: "-" if row.q is None else f"{row.q:.2g}"))
    return columns


def scan_compare_rows(document: ScanCompareDocument) -> Iterator[Sequence[object]]:
    """Yield every difference between two scans as a row, column names first, for `--plain`."""
    yield (
        "layer",
        "head",
        "metric",
        "a",
        "b",
        "difference",
        "low",
        "high",
        "cohens_d",
        "cliffs_delta",
        "z",
        "p",
        "q",
    )
    for difference in document.differences:
        low, high = difference.ci95 or (None, None)
        yield (
            difference.layer,
            difference.head,
            difference.metric,
            difference.a,
            difference.b,
            difference.difference,
            low,
            high,
            difference.cohens_d,
            difference.cliffs_delta,
            difference.z,
            difference.p,
            difference.q,
        )


def _comparison_answer(document: ScanCompareDocument, view: View) -> Lines:
    """Sentences on how many differences between two scans are more than chance makes, and which is
    the largest; or that there is no difference."""
    rows = document.differences
    if rows and not any(row.difference or row.cliffs_delta for row in rows):
        return remark("The two scans are the same in every metric of every head.", view, style="")
    news: Message = plural(
        "{count:,} of {total} differences is more than chance makes (q < 0.05).",
        "{count:,} of {total} differences are more than chance makes (q < 0.05).",
        count=sum(row.q is not None and row.q < FALSE_RATE for row in rows),
        total=f"{len(rows):,}",
    )
    if rows and all(row.q is None for row in rows):
        if min(document.texts) < LEAST_TEXTS:
            news = message(
                "Whether these {total} differences are more than chance makes is not known: one of"
                " the scans has too few texts for intervals.",
                total=f"{len(rows):,}",
            )
        else:
            news = message(
                "Whether these {total} differences are more than chance makes is not known: in one"
                " of the scans too few texts, or groups of texts, differ.",
                total=f"{len(rows):,}",
            )
    largest = [
        message(
            "The largest effect: {head} {metric}, {a} against {b}, Cliff's δ {delta}.",
            head=head_label(row.layer, row.head),
            metric=row.metric,
            a=number_text(row.a, view),
            b=number_text(row.b, view),
            delta=number_text(row.cliffs_delta, view),
        )
        for row in rows[:1]
    ]
    return sentences([news, *largest], view)


# The screen of `attn.scan_verify/1`: shards computed again beside their files.


def scan_verify_screen(document: ScanVerifyDocument, view: View) -> Lines:
    """The screen of shards computed again beside their files: a table of the shards, then the
    verdict; with `--brief` the verdict alone."""
    verdict_text = message("The scan's files hold what its plan gives.")
    if not document.passed:
        verdict_text = message(
            "The scan's files do not hold what its plan gives: run attn scan again after"
            " removing them."
        )
    verdict = remark(verdict_text, view, style="")
    if view.brief:
        return clip_lines(verdict, view.width, ascii=view.ascii)
    rows = [
        [
            str(shard.shard),
            say(view, "the same" if shard.same_bits else "differ"),
            f"{shard.difference:.1e}",
        ]
        for shard in document.shards
    ]
    names = say_each(view, "shard", "bits", contextual("column", "difference"))
    body = table(names, rows, view, align=["right", "left", "right"], title="shards computed again")
    warnings = [remark(warning_text, view) for warning_text in document.warnings]
    return clip_lines(stack_spaced(body, *warnings, verdict), view.width, ascii=view.ascii)


def scan_verify_rows(document: ScanVerifyDocument) -> Iterator[Sequence[object]]:
    """Yield every shard computed again as a row, column names first, for `--plain`."""
    yield ("shard", "same_bits", "difference", "counts_equal")
    for shard in document.shards:
        yield (shard.shard, shard.same_bits, shard.difference, shard.counts_equal)
