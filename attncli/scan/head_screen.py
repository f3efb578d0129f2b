"""The parts of a scan's screen that show one head closely: its numbers, links, texts and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct, structs

from attncli.documents.parts import label_name
from attncli.draw.lines import Lines, heading, remark, stack, stack_spaced
from attncli.draw.names import arrow, link_label
from attncli.draw.numbers import format_fixed, percent
from attncli.draw.safe import label, spell
from attncli.draw.sentence import sentence, words
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text, short
from attncli.draw.view import View
from attncli.features.why.document import HALF, Support, part_name, support
from attncli.inputs.token import Token, bytes_name
from attncli.language import Message, contextual, message, plural, say, say_each
from attncli.measure.layer_metrics import KIND_METRICS
from attncli.measure.row_facts import Floats
from attncli.mechanism.spec import head_label
from attncli.scan.corpus_page import scan_names, tails
from attncli.scan.document import (
    KINDS,
    AlikeHeads,
    FrequentLink,
    ScanCompareDocument,
    ScanDocument,
    ScanExample,
    ScanHead,
    ScanLabel,
    ScanText,
    ScanWhy,
    ScanWhyPart,
)

Shading = tuple[
    Mapping[tuple[int, int], Sequence[Token]],
    Mapping[tuple[int, int, int, int], tuple[int, Floats]],
]
"""Tokens of texts by (file, line), and by (file, line, layer, head) the token that looks, and its
weights.
"""
EXAMPLES = 5
PAIRS, NAME = 10, 14
"""Pairs of tokens that are shown unless the view is full, and cells of a token in them."""
ROOMY = 72
"""Columns from which on lifts have their intervals beside them."""
SPACED = 64
"""Columns of a terminal from which on intervals have spaces around their dash; labels are whole in
narrower ones.
"""
FILE = 20
"""Characters of a file's name, at most."""
WHY_PARTS = 5
"""Parts of either side that a screen tells, the largest."""


class ScanShown(Struct, frozen=True):
    """What a screen of a scan shows.

    metric: of the grid and the examples.
    head: the one shown in detail, None for all heads.
    deciles: with texts of each tenth of the metric's values in place of the strongest.
    alike: the heads most like it.
    comparison: with another scan.
    shades: attention weights to shade texts by, None for unshaded.
    """

    document: ScanDocument
    metric: str
    head: ScanHead | None
    deciles: bool
    alike: AlikeHeads | None = None
    comparison: ScanCompareDocument | None = None
    shades: Shading | None = None

    @property
    def heads(self) -> Sequence[ScanHead]:
        """The heads that the screen is about."""
        if self.head is None:
            return self.document.heads
        return [self.head]


def of_one_head(
    draw: Callable[[ScanHead, ScanShown, View], Lines],
) -> Callable[[ScanShown, View], Lines]:
    """Wrap `draw`, which draws a part of the screen about one head, as a function of (shown, view)
    that gives no lines unless the screen shows one head in detail."""

    def draw_if_one_head(shown: ScanShown, view: View) -> Lines:
        """The part about the head shown in detail; no lines where all heads are shown."""
        if shown.head is None:
            return Lines()
        return draw(shown.head, shown, view)

    return draw_if_one_head


def label_text(scan_label: ScanLabel, view: View) -> str:
    """A head's label as shown, with its offset if it has one; in another language than English its
    English name is added."""
    if scan_label.detail:
        name = f"{scan_label.name} {scan_label.detail}"
    else:
        name = scan_label.name
    translated_name = label_name(name, view.lang)
    if translated_name == name:
        return name
    return f"{translated_name} {scan_label.name}"


def why_parts(head: ScanHead, view: View) -> Lines:
    """A table of the parts of the score that add most to a head's strongest links, on the query's
    and the key's side; no lines where the head's scores were not decomposed."""
    if not isinstance(head.why, ScanWhy):
        return Lines()
    title = message(
        "why layer {layer} head {head} looks where it looks most", layer=head.layer, head=head.head
    )
    if head.why.advantage is None:
        return heading(
            title, "In no text is the score of its strongest link above what its row expects.", view
        )
    parts = head.why.parts
    query_shares = [(part, part.query_share, part.query_ci95) for part in parts]
    key_shares = [(part, part.key_share, part.key_ci95) for part in parts]
    sides = ((message("what asks"), query_shares), (message("what answers"), key_shares))
    rows = []
    for side_title, shares in sides:
        ranked = sorted(shares, key=lambda entry: -abs(entry[1]))  # by the size of the share
        if not view.full:
            ranked = ranked[:WHY_PARTS]
        for place, (part, share, ci95) in enumerate(ranked):
            title_cell = ""
            if place == 0:  # a side's first row names it
                title_cell = say(view, side_title)
            rows.append(
                [
                    title_cell,
                    say(view, part_name(part)),
                    number_text(share, view),
                    interval_text(ci95, view),
                ]
            )
    note = message(
        "over the strongest link of each of {texts} texts; the score is {advantage} above what its"
        " row expects",
        texts=f"{head.why.texts:,}",
        advantage=number_text(head.why.advantage, view),
    )
    titles = ["", "", *say_each(view, "share", "95% interval")]
    return table_without_unknowns(
        titles, rows, view, align=["left", "left", "right", "left"], title=title, note=note
    )


def why_sentences(heads: Sequence[ScanHead], view: View) -> list[str]:
    """A sentence for each head whose scores were decomposed: which part of the query and which part
    of the key adds most to the scores of its strongest links, or that none stands out."""
    texts = []
    for head in heads:
        if not isinstance(head.why, ScanWhy) or head.why.advantage is None:
            continue
        parts = head.why.parts
        query = max(parts, key=lambda part: part.query_share)
        key = max(parts, key=lambda part: part.key_share)
        query_support = support(part.query_share for part in parts)
        key_support = support(part.key_share for part in parts)
        text = message(
            "Where layer {layer} head {head} looks most, the token that looks brings {asks}, and"
            " the token that is looked at {answers}.",
            layer=head.layer,
            head=head.head,
            asks=_largest_part_phrase(query, query.query_share, query_support),
            answers=_largest_part_phrase(key, key.key_share, key_support),
        )
        texts.append(say(view, text))
    return texts


def _largest_part_phrase(part: ScanWhyPart, share: float, backing: Support) -> Message:
    """A phrase for the largest part of a query or of a key, such as "above all its position (60% of
    the advantage)"; of a share above 1 it also says how much other parts subtract.

    share: of the part.
    backing: the sum of what all parts add to the score (not of what they subtract), and the share
        of the largest; where that is less than half, the phrase says that none stands out.
    """
    if backing.share < HALF:
        return message("no part above all others")
    amount = message("{share} of the advantage", share=percent(share))
    if share > 1:
        amount = message(
            "{share} of the advantage, of which others take {less} away",
            share=percent(share),
            less=percent(share - 1),
        )
    return message("above all {part} ({amount})", part=_part_phrase(part), amount=amount)


def _part_phrase(part: ScanWhyPart) -> str:
    """A part of a score in words for a sentence, such as "the word itself"."""
    match part.kind:
        case "token":
            return message("the word itself")
        case "position":
            return message("its position")
        case "type":
            return message("its token type")
        case "head" | "heads" | "feed_forward" | "convolution" | "mixer":
            return message("what {part} wrote", part=part_name(part))
        case _:
            return part_name(part)


def number_text(value: float | None, view: View) -> str:
    """A statistic as written, with one decimal more than the view's precision; a dash for None."""
    if value is None:
        return "-"
    return format_fixed(value, view.precision + 1)


def effect_text(value: float | None, view: View) -> str:
    """An effect as written, with three decimals more than the view's precision: most are
    thousandths; a dash for None."""
    return number_text(value, structs.replace(view, precision=view.precision + 2))


def interval_text(
    between: list[float] | None,
    view: View,
    write: Callable[[float | None, View], str] = number_text,
) -> str:
    """An interval [low, high] as written, "low–high"; a dash for None.

    write: turns a number into text.
    """
    if between is None:
        return "-"
    # a narrow screen has no blanks around the dash, except where a minus sign might touch it
    if view.width < SPACED and between[0] >= 0:
        space = ""
    else:
        space = " "
    return f"{space}{spell('–', ascii=view.ascii)}{space}".join(write(end, view) for end in between)


def table_without_unknowns(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    view: View,
    *,
    align: Sequence[str],
    title: str,
    note: str,
) -> Lines:
    """Draw a table without the columns in which every cell is a dash, such as intervals where texts
    are few.

    titles: of the columns, in the view's language. Other arguments: as of `table`.
    """
    if not rows:  # a table without rows keeps its columns
        columns = list(range(len(titles)))
    else:
        columns = [
            column for column in range(len(titles)) if any(row[column] != "-" for row in rows)
        ]
    return table(
        [titles[column] for column in columns],
        [[row[column] for column in columns] for row in rows],
        view,
        align=[align[column] for column in columns],
        title=title,
        note=note,
    )


def share_text(share: float, between: list[float] | None, view: View) -> str:
    """A share (0 to 1) in percents, with its interval [low, high] where there is one, such as
    "40% (31–50)"."""
    if between is None:
        return percent(share)
    ends = spell("–", ascii=view.ascii).join(f"{100 * end:.0f}" for end in between)
    return f"{percent(share)} ({ends})"


def kinds_of_head(head: ScanHead, shown: ScanShown, view: View) -> Lines:
    """A table of how much weight a head gives to each kind of token and each distance, beside what
    uniform attention would."""
    if not KINDS.keys() & head.metrics.keys():
        return Lines()
    rows = [
        [
            say(view, title),
            number_text(metric.mean_texts, view),
            interval_text(metric.ci95, view),
            number_text(metric.baseline, view),
        ]
        for name, title in KINDS.items()
        if (metric := head.metrics.get(name)) is not None
    ]
    return table_without_unknowns(
        ["", *say_each(view, contextual("scan", "share"), "95% interval", message("by chance"))],
        rows,
        view,
        align=["left", "right", "left", "right"],
        title=message("where the weight of {head} goes", head=head_label(head.layer, head.head)),
        note=message(
            "share of its weight, mean over texts; words and distances without the first token,"
            " itself with the row of that; by chance: of uniform attention"
        ),
    )


def metrics_of_head(head: ScanHead, shown: ScanShown, view: View) -> Lines:
    """A table of every metric of a head over the corpus, beside its value under uniform attention."""
    rows = [
        [
            name,
            number_text(metric.mean_texts, view),
            interval_text(metric.ci95, view),
            number_text(metric.mean_rows, view),
            number_text(metric.sd, view),
            number_text(metric.quantiles.get("50"), view),
            number_text(metric.baseline, view),
        ]
        for name, metric in head.metrics.items()
        if metric.mean_texts is not None
        and (view.full or not (name.startswith("offset") or name in KIND_METRICS))
    ]
    return table_without_unknowns(
        say_each(
            view,
            "metric",
            "mean",
            "95% interval",
            contextual("scan", "by rows"),
            "sd",
            "median",
            "uniform",
        ),
        rows,
        view,
        align=["left", "right", "left", "right", "right", "right", "right"],
        title=message("metrics of {head}", head=head_label(head.layer, head.head)),
        note=message("mean over texts, and over query rows"),
    )


def strongest_examples(head: ScanHead, shown: ScanShown, view: View) -> Lines:
    """A table of the texts in which the metric shown is largest for a head."""
    name = shown.metric
    if view.full:
        count = None  # all
    elif view.few:
        count = EXAMPLES
    else:
        count = view.top
    # the screen may also show what taking the head away changes, which is no metric
    if name in head.metrics:
        write = number_text
    else:
        write = effect_text
    examples = [example for example in head.top if example.metric == name][:count]
    rows = [((write(example.value, view),), example) for example in examples]
    title = message(
        "strongest examples of {head}, {metric}",
        head=head_label(head.layer, head.head),
        metric=name,
    )
    return _text_table(
        head,
        shown,
        view,
        title,
        message("the texts in which it is largest"),
        (message("value"),),
        rows,
    )


def _place_in_corpus(files: Sequence[str], text: ScanExample | ScanText, view: View) -> str:
    """Where a text stands, such as `news.txt:12`: its file, of a long name the end, and its line
    from 1.
    """
    return f"{label(files[text.file], ascii=view.ascii)[-FILE:]}:{text.line + 1}"


def frequent_links(head: ScanHead, shown: ScanShown, view: View) -> Lines:
    """A table of the pairs of tokens that a head's strongest links join most often, beside what
    chance would give.
    """
    if not head.links:
        return Lines()
    arrow_text = arrow(view)
    dash = spell("–", ascii=view.ascii)
    links = head.links
    if not view.full:
        links = links[:PAIRS]
    rows = []
    for link in links:
        query = short(bytes_name(link.query.text), NAME, view)
        key = short(bytes_name(link.key.text), NAME, view)
        count_text = f"{link.links:,}"
        if link.most != link.links:  # shards let the pair go: only a range is known
            count_text += f"{dash}{link.most:,}"
        text_share = link.texts / shown.document.done.texts
        rows.append(
            [
                f"{query}{arrow_text}{key}",
                count_text,
                f"{link.chance:,.1f}",
                _lift_text(link, view),
                share_text(text_share, link.share_ci95, view),
            ]
        )
    columns = say_each(
        view, message("query and key"), message("links"), message("by chance"), message("lift")
    )
    note = plural(
        "strongest links of {count:,} query row, without keys where heads rest; lift: how many"
        " times what chance makes, with tokens as frequent as here; texts: share with one",
        "strongest links of {count:,} query rows, without keys where heads rest; lift: how many"
        " times what chance makes, with tokens as frequent as here; texts: share with one",
        count=shown.document.link_rows or 0,  # 0 for the type checker: links have rows
    )
    shown_table = table(
        [*columns, say(view, "texts")],
        rows,
        view,
        align=["left", "right", "right", "right", "left"],
        title=message("which tokens {head} links most", head=head_label(head.layer, head.head)),
        note=note,
    )
    if not any("0x" in row[0] for row in rows):  # the first cell has the pair of tokens
        return shown_table
    bytes_note = message(
        "0x and two digits: a byte; a token of bytes is a piece of any character that has them"
    )
    return stack(shown_table, remark(bytes_note, view))


def _lift_text(link: FrequentLink, view: View) -> str:
    """A pair's lift (its count over what chance gives) as written, with its interval where there is
    room for one.
    """
    if link.lift is None:
        return "-"
    if link.lift_ci95 is None or view.width < ROOMY:
        return f"{link.lift:,.1f}"
    low, high = link.lift_ci95
    return f"{link.lift:,.1f} ({low:,.1f}{spell('–', ascii=view.ascii)}{high:,.1f})"


def texts_of_deciles(head: ScanHead, shown: ScanShown, view: View) -> Lines:
    """A table of sampled texts from each tenth of the metric's values for a head, then of texts
    whatever their value; one text of each tenth unless the view is full."""
    if not head.sample:
        return Lines()
    name = shown.metric
    texts = shown.document.texts or []
    # the screen may also show what taking the head away changes, which is no metric
    if name in head.metrics:
        write = number_text
    else:
        write = effect_text
    rows = []
    last_decile = None  # of the row before; samples come in the order of deciles
    for example in head.sample:
        if example.metric != name:
            continue
        if example.decile is None:  # drawn whatever its value
            tenth = say(view, "any")
        elif example.decile == last_decile and not view.full:
            continue
        else:
            tenth = f"{example.decile}"
        rows.append(((tenth, write(example.value, view)), texts[example.text]))
        last_decile = example.decile
    title = message(
        "texts over the whole range of {metric}, {head}",
        head=head_label(head.layer, head.head),
        metric=name,
    )
    note = message("drawn by a hash of each text; tenth 10: the largest values; any: of all texts")
    return _text_table(head, shown, view, title, note, (message("tenth"), message("value")), rows)


def _text_table(
    head: ScanHead,
    shown: ScanShown,
    view: View,
    title: Message,
    note: Message,
    columns: Sequence[Message],
    rows: Sequence[tuple[Sequence[str], ScanExample | ScanText]],
) -> Lines:
    """A table of texts, one a row after its cells of `columns`; where attention weights are known,
    each text as a shaded block with its cells below it in place of a row.

    columns: the titles of the cells that stand before a text.
    rows: (these cells, the text).
    """
    files = tails(shown.document.plan.corpus)
    names = say_each(view, *columns)
    if shown.shades is None:
        return table(
            [*names, "", say(view, "text")],
            [
                [*cells, _place_in_corpus(files, text, view), label(text.text, ascii=view.ascii)]
                for cells, text in rows
            ],
            view,
            align=[*["right"] * len(names), "left", "left"],
            title=title,
            note=note,
            faint=(len(names),),
        )
    tokens_by_text, looks = shown.shades  # see `Shading`
    blocks = []
    for cells, text in rows:
        # the token that looks and its weights; where they are missing, the text is not shaded
        query, weights = looks.get((text.file, text.line, head.layer, head.head), (-1, ()))
        tokens = tokens_by_text.get((text.file, text.line))
        if tokens is None:
            shaded_text = Lines((((label(text.text, ascii=view.ascii), ""),),))
        else:
            shades = list(weights) or [None] * len(tokens)  # None: a word without a tint
            shaded_text = sentence(words(text.text, tokens, shades, frozenset({query})), view)
        facts = [f"{name} {cell}" for name, cell in zip(names, cells, strict=True)]
        facts.append(_place_in_corpus(files, text, view))
        blocks.append(stack(shaded_text, remark(" · ".join(facts), view)))
    tint = remark("in brackets: the token that looks; tint: the weight that the word gets", view)
    return stack_spaced(stack(heading(title, note, view), tint), *blocks)


def furthest_link(head: ScanHead, view: View) -> list[str]:
    """A sentence, in a list, naming the pair of tokens with the highest lift (count over what
    chance gives) among the head's most frequent pairs; an empty list where no lift is above 1. A
    pair that was seen once says nothing."""
    # the pairs that the table shows; `links` is UNSET, which is false, where they were not counted
    commonest = [link for link in (head.links or ())[:PAIRS] if link.links > 1]
    above_chance = [link for link in commonest if link.lift is not None and link.lift > 1]
    if not above_chance:
        return []
    # 0.0 for the type checker: none lacks a lift
    link = max(above_chance, key=lambda link: link.lift or 0.0)
    # a token of spaces alone is quoted with them
    query, key = (
        quote_text(bytes_name(token.text).strip() or token.text, view)
        for token in (link.query, link.key)
    )
    values = {
        "most": len(commonest),
        "link": link_label(query, key, view),
        "links": plural("{count:,} link", "{count:,} links", count=link.links),
        "lift": f"{link.lift:,.1f}",
    }
    if len(commonest) == 1:
        furthest = message(
            "Its commonest link, {link}, is above chance: {links}, {lift} times as many as"
            " chance makes.",
            **values,
        )
    else:
        furthest = message(
            "None of its {most} commonest links is further above chance than {link}:"
            " {links}, {lift} times as many as chance makes.",
            **values,
        )
    return [furthest]


def changes_of_head(head: ScanHead, shown: ScanShown, view: View) -> Lines:
    """A table of the metrics in which a head differs most between two scans; no lines without
    another scan.
    """
    comparison = shown.comparison
    if comparison is None:
        return Lines()
    # the document has the largest effect first
    differences = [
        row for row in comparison.differences if (row.layer, row.head) == (head.layer, head.head)
    ]
    if not view.full:
        differences = differences[: view.top]
    rows = [
        [
            row.metric,
            number_text(row.a, view),
            number_text(row.b, view),
            number_text(row.cliffs_delta, view),
            "-" if row.q is None else f"{row.q:.2g}",
        ]
        for row in differences
    ]
    first, second = scan_names((comparison.a, comparison.b), short=str)
    return table(
        [say(view, "metric"), "a", "b", say(view, message("Cliff's δ")), "q"],
        rows,
        view,
        align=["left", "right", "right", "right", "right"],
        title=message(
            "{head} in {a} against {b}", head=head_label(head.layer, head.head), a=first, b=second
        ),
        note=(
            "means within common strata of length, the largest effect first; q over all heads and"
            " metrics"
        ),
    )


def heads_like(head: ScanHead, shown: ScanShown, view: View) -> Lines:
    """A table of the heads most like one, by their attention weights and by their matrices; no
    lines where that was not computed."""
    alike = shown.alike
    if alike is None:
        return Lines()
    by_doing = [
        [
            head_label(row.layer, row.head),
            number_text(row.value, view),
            interval_text(row.ci95, view),
        ]
        for row in alike.by_doing
    ]
    by_weights = [
        [head_label(row.layer, row.head), number_text(row.value, view)] for row in alike.by_weights
    ]
    # two lists side by side: the shorter one ends in empty cells
    pairs = zip_longest(by_doing, by_weights)
    rows = [[*(doing or [""] * 3), *(weights or [""] * 2)] for doing, weights in pairs]
    if alike.by_weights:
        note = message(
            "distance: √(Jensen–Shannon / ln 2) over {texts} texts drawn by a hash, 0 the same;"
            " kernel: what their values read and they write in common, of random heads {chance}",
            texts=alike.texts,
            chance=number_text(alike.chance, view),
        )
    else:
        note = message(
            "distance: √(Jensen–Shannon / ln 2) over {texts} texts drawn by a hash, 0 the same",
            texts=alike.texts,
        )
    return table_without_unknowns(
        say_each(
            view,
            "by what it does",
            "distance",
            "95% interval",
            "by weights",
            contextual("column", "kernel"),
        ),
        rows,
        view,
        align=["left", "right", "left", "left", "right"],
        title=message("the heads most like {head}", head=head_label(head.layer, head.head)),
        note=note,
    )
