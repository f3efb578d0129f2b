"""The tables of a scan's screen as rows for programs: what `attn scan show --csv` and `--plain` write
of the parts that `--show` names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from attncli.errors import UsageError
from attncli.language import listing
from attncli.measure.layer_metrics import KIND_METRICS
from attncli.scan.document import ScanEffect, ScanExample, ScanText, ScanWhy
from attncli.scan.head_screen import ScanShown
from attncli.scan.screen import METRIC_COLUMNS, is_place, is_told, metric_rows, scan_rows

Row = Sequence[object]


class ShownTable(NamedTuple):
    """A part of a scan's screen as a table.

    names: of the columns.
    rows: a function that yields the rows, for what the screen shows.
    """

    names: tuple[str, ...]
    rows: Callable[[ScanShown], Iterator[Row]]


def table_rows(
    shown: ScanShown, parts: Collection[str], option: str, *, beside_screen: bool
) -> Iterator[Row]:
    """The rows of the one table among these parts of the screen, column names first; where no part
    is named, or all are, those of every metric of every head.

    Args:
        shown: What the screen shows.
        parts: Names of parts, as of `--show`.
        option: What writes the rows, for the error.
        beside_screen: Whether the screen is shown as well: parts without a table, such as the
            answer, then stand there, and where only such are named the rows are those of all
            metrics.

    Raises:
        UsageError: For several tables, for a part that is none, and for a table that this scan, or
            this head, does not have.
    """
    names = [name for name in TABLES if name in parts]
    is_whole_screen = not parts or len(names) == len(TABLES)
    if is_whole_screen or (beside_screen and not names):
        return scan_rows(shown.document)
    others = sorted(part for part in parts if part not in TABLES)
    if others and not beside_screen:
        raise UsageError(
            "--show {part} is no table, and {option} writes one",
            expected=listing(TABLES),
            part=others[0],
            option=option,
        )
    if len(names) > 1:
        raise UsageError(
            "{option} writes one table, and --show names {count}",
            expected=listing(names, " or "),
            option=option,
            count=len(names),
        )
    (name,) = names
    if name not in _tables_of(shown):
        raise UsageError(
            "{option}: there is no table of {name} here",
            expected=listing(_tables_of(shown)),
            option=option,
            name=repr(name),
        )
    return _with_names(TABLES[name], shown)


def _with_names(table: ShownTable, shown: ScanShown) -> Iterator[Row]:
    """Yield the names of a table's columns, then its rows."""
    yield table.names
    yield from table.rows(shown)


def _tables_of(shown: ScanShown) -> list[str]:
    """The names of the tables that the scan, or the head shown, has rows for, in the order of
    `TABLES`."""
    document = shown.document
    heads = shown.heads
    # by name, something that is true where there is such a table
    contents: Mapping[str, object] = {
        "grid": bool(heads) and shown.metric in heads[0].metrics,
        "labels": document.plan.labels,
        "layers": document.layers,
        "effects": any(isinstance(head.effect, ScanEffect) for head in heads),
        "find": document.find is not UNSET,
        "why": any(isinstance(head.why, ScanWhy) for head in heads),
        "rules": document.rules is not UNSET,
        "kinds": any(KIND_METRICS.keys() & head.metrics.keys() for head in heads),
        "metrics": heads,
        "links": any(head.links for head in heads),
        "alike": shown.alike,
        "examples": any(head.top for head in heads),
        "deciles": any(head.sample for head in heads),
    }
    return [name for name, content in contents.items() if content]


def _metrics(shown: ScanShown) -> Iterator[Row]:
    """Yield every metric of the heads that are shown."""
    for head in shown.heads:
        yield from metric_rows(head)


def _grid(shown: ScanShown) -> Iterator[Row]:
    """Yield a row for each head with the metric that the grid shows."""
    name_column = METRIC_COLUMNS.index("metric")
    return (row for row in _metrics(shown) if row[name_column] == shown.metric)


def _kinds(shown: ScanShown) -> Iterator[Row]:
    """Yield a row for each head and metric that says how much weight goes to a kind of token or to
    a distance."""
    name_column = METRIC_COLUMNS.index("metric")
    return (row for row in _metrics(shown) if row[name_column] in KIND_METRICS)


def _ends(interval: Sequence[float] | None) -> tuple[float | None, float | None]:
    """The ends of an interval; None twice where there is none."""
    if interval is None:
        return None, None
    low, high = interval
    return low, high


def _labels(shown: ScanShown) -> Iterator[Row]:
    """Yield the labels that heads earn or may earn."""
    for head in shown.heads:
        for label in filter(is_told, head.labels):
            score = (label.name, label.detail, label.score, *_ends(label.ci95))
            texts = (label.threshold, label.share, label.texts, *_ends(label.texts_ci95))
            verdict = (label.earned, label.borderline, label.state)
            yield (head.layer, head.head, *score, *texts, *verdict)


def _effects(shown: ScanShown) -> Iterator[Row]:
    """Yield what taking each head away changes."""
    for head in shown.heads:
        effect = head.effect
        if isinstance(effect, ScanEffect):
            ends = _ends(effect.ci95)
            median = effect.quantiles.get("50")
            yield head.layer, head.head, effect.texts, effect.mean, *ends, effect.sd, median


def _layers(shown: ScanShown) -> Iterator[Row]:
    """Yield a row for each layer: how many massive activations (numbers far above all others) leave
    it on average, and in what share of texts, each with its interval."""
    for layer in shown.document.layers or ():
        massive = layer.massive
        number = (massive.texts, massive.mean_texts, *_ends(massive.ci95))
        share = (layer.share, *_ends(layer.share_ci95))
        yield (layer.layer, *number, *share)


def _conditions(shown: ScanShown) -> Iterator[Row]:
    """Yield each head with links that a condition of `--find` looks for; with an empty condition,
    each with links of at least one of several."""
    for condition in shown.document.find or ():
        for head in condition.heads:
            counts = (head.layer, head.head, head.texts, head.possible)
            share = (head.share, *_ends(head.share_ci95))
            yield (condition.condition, *counts, *share, head.weight)
    together = shown.document.find_together
    if together is not UNSET:
        for row in together.heads:
            counts = (row.layer, row.head, row.texts, row.possible)
            share = (row.share, *_ends(row.share_ci95))
            yield ("", *counts, *share, None)  # no weight


def _whys(shown: ScanShown) -> Iterator[Row]:
    """Yield each part of the scores of heads that were decomposed."""
    for head in shown.heads:
        if isinstance(head.why, ScanWhy):
            for part in head.why.parts:
                place = part.kind, part.layer, part.attention, part.head, part.place
                query_side = part.query_share, *_ends(part.query_ci95)
                key_side = part.key_share, *_ends(part.key_ci95)
                yield head.layer, head.head, *place, *query_side, *key_side


def _rules(shown: ScanShown) -> Iterator[Row]:
    """Yield a row for each head that rules describe: its strongest rule, and how much of its
    attention its rules, the first token, an even spread and its mean by distance match."""
    rules = shown.document.rules
    for head in rules.heads if rules else ():
        if shown.head is None or is_place(head, shown.head):
            strongest: tuple[object, object] = (None, None)
            for part in head.parts[:1]:  # the strongest stands first, if there is any
                strongest = part.rule, part.weight
            overlaps = (head.overlap, head.overlap_first, head.overlap_even, head.overlap_distance)
            yield (head.layer, head.head, *strongest, *overlaps, head.has_rule)


def _links(shown: ScanShown) -> Iterator[Row]:
    """Yield the pairs of tokens that the heads' strongest links join most often."""
    texts = shown.document.done.texts
    for head in shown.heads:
        for link in head.links or ():
            pair = (link.query.text, link.key.text, link.links, link.most)
            share = (link.texts, link.texts / texts, *_ends(link.share_ci95))
            lift = (link.chance, link.lift, *_ends(link.lift_ci95))
            yield (head.layer, head.head, *pair, *share, *lift)


def _alike(shown: ScanShown) -> Iterator[Row]:
    """Yield the heads most like the one that is shown."""
    if shown.alike is not None and shown.head is not None:
        head = shown.head
        for by, rows in (("doing", shown.alike.by_doing), ("weights", shown.alike.by_weights)):
            for row in rows:
                yield head.layer, head.head, by, row.layer, row.head, row.value, *_ends(row.ci95)


def _place_of(text: ScanExample | ScanText, shown: ScanShown) -> Row:
    """The cells (file, line, text) of a text; lines count from 0, as in the document."""
    return shown.document.plan.corpus[text.file], text.line, text.text


def _examples(shown: ScanShown) -> Iterator[Row]:
    """Yield the texts in which the metric that is shown is largest for each head."""
    for head in shown.heads:
        for example in head.top:
            if example.metric == shown.metric:
                number = head.layer, head.head, example.metric, example.value
                yield *number, *_place_of(example, shown), example.query, example.key


def _deciles(shown: ScanShown) -> Iterator[Row]:
    """Yield the sampled texts of each head for the metric that is shown: the tenth of its values
    that each stands for, 1 to 10, or None for a text of any value."""
    texts = shown.document.texts or []
    for head in shown.heads:
        for example in head.sample or ():
            if example.metric == shown.metric:
                number = head.layer, head.head, example.metric, example.decile, example.value
                place = _place_of(texts[example.text], shown)
                yield *number, *place, example.query, example.key


HEAD = ("layer", "head")
SHARE = ("share", "share_low", "share_high")
TEXT = ("file", "line", "text", "query", "key")
TABLES: Mapping[str, ShownTable] = {
    "grid": ShownTable(METRIC_COLUMNS, _grid),
    "labels": ShownTable(
        (
            *(*HEAD, "label", "detail", "score", "low", "high", "threshold", "of", "texts"),
            *("texts_low", "texts_high", "earned", "borderline", "state"),
        ),
        _labels,
    ),
    "layers": ShownTable(("layer", "texts", "mean_texts", "low", "high", *SHARE), _layers),
    "effects": ShownTable((*HEAD, "texts", "mean", "low", "high", "sd", "median"), _effects),
    "find": ShownTable(("condition", *HEAD, "texts", "possible", *SHARE, "weight"), _conditions),
    "why": ShownTable(
        (
            *(*HEAD, "kind", "part_layer", "attention", "part_head", "place"),
            *("query_share", "query_low", "query_high", "key_share", "key_low", "key_high"),
        ),
        _whys,
    ),
    "rules": ShownTable(
        (
            *(*HEAD, "rule", "rule_weight", "overlap", "overlap_first", "overlap_even"),
            *("overlap_distance", "has_rule"),
        ),
        _rules,
    ),
    "kinds": ShownTable(METRIC_COLUMNS, _kinds),
    "metrics": ShownTable(METRIC_COLUMNS, _metrics),
    "links": ShownTable(
        (
            *(*HEAD, "query_text", "key_text", "links", "links_most", "texts", *SHARE),
            *("chance", "lift", "lift_low", "lift_high"),
        ),
        _links,
    ),
    "alike": ShownTable((*HEAD, "by", "layer_alike", "head_alike", "value", "low", "high"), _alike),
    "examples": ShownTable((*HEAD, "metric", "value", *TEXT), _examples),
    "deciles": ShownTable((*HEAD, "metric", "decile", "value", *TEXT), _deciles),
}
"""By the name of the part, in the order of the screen."""
