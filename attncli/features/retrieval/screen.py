"""The screen of `attn.retrieval/1`: the heads that fetch, with intervals and chance, and what is
left without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from msgspec import UNSET

from attncli.draw.columns import Column, column_table, columns_that_fit
from attncli.draw.lines import Lines, line, remark, sentences, stack
from attncli.draw.numbers import format_fixed, format_signed, percent
from attncli.draw.safe import label, spell
from attncli.draw.screen_header import warning
from attncli.draw.tables import table
from attncli.draw.token_names import capitalize_sentences
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.retrieval.document import FetchingHead, FetchScore, RetrievalDocument
from attncli.language import contextual, listing, message, plural, say
from attncli.mechanism.spec import spoken_head


def retrieval_rows(document: RetrievalDocument) -> Iterator[Sequence[object]]:
    """Every head as a table for `--plain`, its first row the names of the columns."""
    ends = ("", "_low", "_high", "_chance")
    yield (
        "layer",
        "head",
        *(f"{name}{end}" for name in ("literal", "writes") for end in ends),
        "retrieval",
    )
    for row in document.heads:
        scores = [
            (score.mean, score.low, score.high, score.chance) for score in (row.literal, row.writes)
        ]
        yield (row.layer, row.head, *scores[0], *scores[1], row.retrieval)


def _model_and_runs(document: RetrievalDocument, view: View) -> Lines:
    """The model, the needles, the lengths of the texts, and how many runs there were."""
    model = document.model
    name = label(model.name or model.family or model.source, ascii=view.ascii)
    sizes = message("{layers} layers × {heads} heads", layers=model.attending, heads=model.heads)
    facts = [name, sizes, plural("{count} needle", "{count} needles", count=len(document.needles))]
    facts.append(
        message("texts of up to {lengths} tokens", lengths=listing(map(str, document.sizes)))
    )
    facts.append(plural("{count} run", "{count} runs", count=document.runs))
    top = line((say(view, listing(facts, " · ")), "bold"))
    return stack(top, *(warning(text, view) for text in document.warnings))


def _head_table(document: RetrievalDocument, view: View) -> Lines:
    """The heads with both scores and their intervals, the largest literal score first."""
    if not document.heads:
        return Lines()
    if view.full:
        heads = document.heads
    else:
        heads = document.heads[: view.top]
    interval = Column[FetchingHead](
        message("95% interval"),
        lambda row: _interval_text(row.literal, view),
        align="left",
        leave_out=1,
    )
    columns: list[Column[FetchingHead]] = [
        Column("layer", lambda row: str(row.layer), align="left"),
        Column("head", lambda row: str(row.head), align="left"),
        Column(message("literal"), lambda row: f"{row.literal.mean:.2f}", align="left"),
        interval,
        Column(
            contextual("level", "chance"),
            lambda row: f"{row.literal.chance:.2f}",
            align="left",
            leave_out=1,
        ),
        Column(message("writes"), lambda row: format_signed(row.writes.mean, 3), align="left"),
        Column(
            message("its interval"),
            lambda row: _interval_text(row.writes, view),
            align="left",
            leave_out=2,
        ),
        Column(
            message("by chance"),
            lambda row: format_signed(row.writes.chance, 3),
            align="left",
            leave_out=3,
        ),
    ]
    more = ""
    if len(heads) < len(document.heads):
        more = message(
            "{heads_shown} of {heads} heads shown; --top {heads} shows all",
            heads_shown=len(heads),
            heads=len(document.heads),
        )
    note = message(
        "literal: looks most at the answer in the needle; writes: adds to its logit from there,"
        " less what it adds from elsewhere"
    )
    # what an interval is, only where the screen is wide enough to show one
    if interval in columns_that_fit(columns, heads, view):
        note = message(
            "literal: looks most at the answer in the needle; writes: adds to its logit from there,"
            " less what it adds from elsewhere; interval: of means over needles drawn again,"
            " how far these {count} differ, not others",
            count=len(document.needles),
        )
    body = column_table(columns, heads, view, title=message("heads that fetch"), note=note)
    return stack(body, remark(more, view))


def _interval_text(score: FetchScore, view: View) -> str:
    """The 95% interval of a score, such as `0.12…0.34`."""
    low = format_fixed(score.low, 2)
    high = format_fixed(score.high, 2)
    return f"{low}{spell('…', ascii=view.ascii)}{high}"


@capitalize_sentences
def retrieval_sentences(document: RetrievalDocument, view: View) -> Iterator[str]:
    """Yield the sentences of the answer: whether the model does the task, which heads fetch most,
    and what is left without them."""
    yield say(
        view,
        "The model gives {recall} of the answers' tokens, and most of the answer in {answered} of"
        " {runs} texts.",
        recall=percent(document.recall),
        answered=document.answered,
        runs=document.runs,
    )
    if not document.heads:
        yield say(view, "It does not do the task, so that no head can be said to fetch.")
        return
    first = document.heads[0]
    writer = max(document.heads, key=lambda row: row.writes.mean)
    # the first head by place alone, where others have the same score
    equal = sum(row.literal.mean == first.literal.mean for row in document.heads)
    if equal > 1:
        yield say(
            view,
            "{count} heads fetch most by where they look, {score} each, {head} among them; by what"
            " it writes {writer} does.",
            count=equal,
            score=f"{first.literal.mean:.2f}",
            head=say(view, spoken_head(first.layer, first.head)),
            writer=say(view, spoken_head(writer.layer, writer.head)),
        )
    elif (first.layer, first.head) == (writer.layer, writer.head):
        yield say(
            view,
            "{head} fetches most, by where it looks and by what it writes.",
            head=say(view, spoken_head(first.layer, first.head)),
        )
    else:
        yield say(
            view,
            "{head} fetches most by where it looks, {writer} by what it writes.",
            head=say(view, spoken_head(first.layer, first.head)),
            writer=say(view, spoken_head(writer.layer, writer.head)),
        )
    count = sum(row.retrieval for row in document.heads)
    yield say(
        view,
        plural(
            "{count} of {heads} heads has a literal score of 0.1 or more: a retrieval head.",
            "{count} of {heads} heads have a literal score of 0.1 or more: retrieval heads.",
            count=count,
            heads=len(document.heads),
        ),
    )
    if document.verify is not UNSET and document.verify:
        # the fewest heads without which recall falls below a half, else the most that were taken
        check = document.verify[-1]
        for row in reversed(document.verify):
            if row.literal < document.recall / 2:
                check = row
        yield say(
            view,
            plural(
                "Without the first of them recall is {literal}, without a random other {random}.",
                "Without the first {count} of them recall is {literal}, without as many random"
                " others {random}.",
                count=check.heads,
                literal=percent(check.literal),
                random=percent(fmean(check.random)) if check.random else "-",  # too few others
            ),
        )


def _percent_range(values: Sequence[float], view: View) -> str:
    """The least and the largest of shares in percents, such as `10%…25%`."""
    return f"{percent(min(values))}{spell('…', ascii=view.ascii)}{percent(max(values))}"


def _recall_table(document: RetrievalDocument, view: View) -> Lines:
    """A table of the recall without heads: without the first by each score, and without random
    others; no lines where that was not measured."""
    if document.verify is UNSET:
        return Lines()
    # no random draws where fewer other heads are left than are cut
    rows = [
        [
            str(row.heads),
            percent(row.literal),
            percent(row.writes),
            percent(fmean(row.random)) if row.random else "-",
            _percent_range(row.random, view) if row.random else "-",
        ]
        for row in document.verify
    ]
    names = [
        message("heads cut"),
        message("by literal"),
        message("by writes"),
        message("random"),
        message("least…most"),
    ]
    note = message(
        "of the answers' tokens; with all heads {recall}", recall=percent(document.recall)
    )
    return table(names, rows, view, title=message("recall without heads"), note=note)


def _answer_lines(document: RetrievalDocument, view: View) -> Lines:
    """The answer in words, as lines."""
    return sentences(retrieval_sentences(document, view), view)


RETRIEVAL_PARTS: Parts[RetrievalDocument] = (
    ScreenPart("header", _model_and_runs),
    ScreenPart("heads", _head_table),
    ScreenPart("verify", _recall_table),
    ScreenPart("answer", _answer_lines),
)
