"""The screen of `attn.tensors/1`: attention over captured arrays, queries and keys named by
position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import (
    FAINT,
    Lines,
    draw_parts,
    fit_to_view,
    line,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import brief, percent
from attncli.draw.safe import cut, safe
from attncli.draw.screen_header import count_phrase, facts, mask_and_position, warning
from attncli.draw.sentence import largest_weight
from attncli.draw.shaded_matrix import as_matrix, matrix, visible
from attncli.draw.tables import links, table, vectors
from attncli.draw.token_names import claim
from attncli.draw.view import Parts, ScreenPart, View
from attncli.features.run.screen import shapes_part
from attncli.features.tensors.document import CapturedHead, CapturedLink, TensorsDocument
from attncli.language import listing, message, say
from attncli.measure.metric import DEFAULT


def tensors_screen(document: TensorsDocument, view: View) -> Lines:
    """The whole screen: full tables of the first batch entry and head, or of all if the view is
    full.
    """
    return fit_to_view(draw_parts(TENSORS_PARTS, document, view), view)


def tensors_rows(document: TensorsDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`, names of columns first: a row for each pair of query and key
    or, where the document has no matrices, for each metric of each head."""
    if _is_long(document):
        yield ("batch", "head", "metric", "value", "rows", "uniform")
        for entry in document.batch:
            for head in entry.heads:
                for name, metric in (head.metrics or {}).items():
                    uniform = (head.baseline or {}).get(name)
                    place = (",".join(map(str, entry.index)), head.head, name)
                    yield (
                        *place,
                        metric.value,
                        metric.rows,
                        None if uniform is None else uniform.value,
                    )
        return
    yield ("batch", "head", "query", "key", "score", "weight")
    for index, head in _heads_with_weights(document):
        assert head.weights is not UNSET, "these have weights"
        for query, row in enumerate(head.weights):
            for key, weight in enumerate(row):
                if head.scores is UNSET:
                    score = None
                else:
                    score = head.scores[query][key]
                yield (",".join(map(str, index)), head.head, query, key, score, weight)


def _heads_with_weights(document: TensorsDocument) -> list[tuple[Sequence[int], CapturedHead]]:
    """The heads whose matrices the document holds, each with its place on the leading axes."""
    return [
        (entry.index, head)
        for entry in document.batch
        for head in entry.heads
        if head.weights is not UNSET
    ]


def _links(document: TensorsDocument, view: View) -> Lines:
    """A table of the strongest links, with bars; each with its head where there are several."""
    queries = [say(view, "query")] * document.queries
    keys = [say(view, "key")] * document.keys
    if sum(len(entry.heads) for entry in document.batch) == 1:
        place = None
    else:
        place = partial(_head_place, view=view)
    return links(
        document.links,
        queries,
        view,
        place=place,
        keys=keys,
        title="strongest links",
        note="bars from 0 to 1",
    )


def _tables(part: str, document: TensorsDocument, view: View) -> Lines:
    """The scores, weights or output of the first batch entry and head, or of all in a full view; no
    lines for attention by blocks of rows, which has no matrices.

    part: "scores", "weights" or "output".
    """
    if _is_long(document):
        return Lines()
    heads_shown = _heads_with_weights(document)
    head_count = len(heads_shown)
    if not view.full:
        heads_shown = heads_shown[:1]
    tables = [_head_matrix(part, index, head, view) for index, head in heads_shown]
    more = ""
    if part == "weights" and head_count > len(tables):  # one is shown; said once, not in each part
        more = message(
            "{last} more not shown; --head H chooses, --full shows all", last=head_count - 1
        )
    return stack(stack_spaced(*tables), remark(more, view))


def _is_long(document: TensorsDocument) -> bool:
    """Whether the attention ran by blocks of rows, so that its document has no matrices."""
    return not _heads_with_weights(document)


def _metrics(document: TensorsDocument, view: View) -> Lines:
    """A table with a row of metrics for every head, the usual ones unless the view is full; no
    lines where the document has no metrics."""
    # (place in the batch, head, its metrics by name)
    captured_heads = [
        (entry.index, head, head.metrics)
        for entry in document.batch
        for head in entry.heads
        if head.metrics
    ]
    if not captured_heads:
        return Lines()
    # the columns are the metrics of the first head; a later head without one has a dash
    names = [name for name in captured_heads[0][2] if view.full or name in DEFAULT]
    rows = []
    for index, head, metrics in captured_heads:
        texts = [
            _metric_text(metrics[name].value, view) if name in metrics else "-" for name in names
        ]
        rows.append([",".join(map(str, index)), str(head.head), *texts])
    # a file without leading axes has no batch: the first column is left out
    start = 1
    if any(index for index, _, _ in captured_heads):
        start = 0
    columns = ["batch", "head", *names][start:]
    align = ["left", "right"][start:] + ["right"] * len(names)
    note = message("means over the rows" if view.full else "means over the rows; --full shows all")
    return table(
        columns, [row[start:] for row in rows], view, align=align, title="metrics", note=note
    )


def _metric_text(value: float | None, view: View) -> str:
    """A metric with the view's decimals; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.{view.precision}f}"


def _header(document: TensorsDocument, view: View) -> Lines:
    """The file, the sizes of its arrays, the mask and the scale, and the warnings."""
    model = document.model
    attention = document.attention
    counts = ((document.queries, "query"), (document.keys, "key"), (model.heads, "head"))
    run_facts: list[str] = [count_phrase(count, noun) for count, noun in counts]
    if model.kv_heads != model.heads:
        run_facts.append(count_phrase(model.kv_heads, "kv head"))
    mask, _ = mask_and_position(attention.mask, "none", view)  # arrays have no positions
    run_facts.append(mask)
    if attention.softcap is not None:
        run_facts.append(message("soft-cap {softcap}", softcap=brief(attention.softcap)))
    scale = message("scale {scale}", scale=brief(attention.scale))
    sizes = [
        f"d_k {model.d_k}",
        f"d_v {model.d_v}",
        scale,
        f"{attention.backend} {attention.dtype}",
    ]
    name = message("captured tensors {name}", name=safe(document.file, ascii=view.ascii))
    title = cut(localize(name, view), view.width, ascii=view.ascii)
    return stack(
        line((title, "bold")),
        facts(run_facts, view),
        facts(sizes, view, style=FAINT),
        *(warning(warning_text, view) for warning_text in document.warnings),
    )


def _head_place(link: CapturedLink, view: View) -> str:
    """Where a link is: its place on the leading axes and its head, such as "batch 1 H3"."""
    if link.index:
        entry = say(view, "batch {batch}", batch=",".join(map(str, link.index))) + " "
    else:
        entry = ""
    return f"{entry}H{link.head}"


def _head_matrix(part: str, index: Sequence[int], head: CapturedHead, view: View) -> Lines:
    """One head's numbers, as `part` names them: "scores", "weights" or "output".

    index: its place on the leading axes.
    """
    if index:
        place = message(
            "batch {batch} head {head}", batch=",".join(map(str, index)), head=head.head
        )
    else:
        place = message("head {head}", head=head.head)
    assert head.weights is not UNSET, "only heads with weights have tables"
    rows = [f"q{number}" for number in range(len(head.weights))]
    columns = [f"k{number}" for number in range(len(head.weights[0]))]
    if part == "output":
        assert head.output is not UNSET, "heads with weights have outputs"
        note = listing((place, message("weights × values")), " · ")
        return vectors(head.output, rows, view, title="output", note=note)
    note = listing((place, message("rows: queries, columns: keys")), "; ")
    draw = partial(matrix, rows=rows, columns=columns, view=view, title=part, note=note)
    if part == "weights":
        return draw(visible(head.weights, head.scores), limits=(0.0, 1.0))
    return draw(head.scores, signed=True)


# The answers of the screens that are not about one sentence: what was compared, counted or
# captured, in words.


def tensors_answer(document: TensorsDocument, view: View) -> Lines:
    """The answer of an `attn.tensors/1` document, as lines."""
    return sentences(tensors_sentences(document, view), view)


def tensors_sentences(document: TensorsDocument, view: View) -> Iterator[str]:
    """The strongest link, by positions; of a query that sees several keys where there is one."""
    if not document.links:
        return
    link = _link_of_choice(document)
    template = message(
        "The strongest link: query {query} looks at key {key} with {share} of its weight."
    )
    if document.model.heads > 1:
        template = message(
            "The strongest link: query {query} looks at key {key} with {share} of its weight, in"
            " head {head}."
        )
    if len(document.batch) > 1:
        template = message(
            "The strongest link: query {query} looks at key {key} with {share} of its weight, in "
            "batch {batch} head {head}."
        )
    # the number of the batch entry, which stands for the layer where a page marks the link
    batch = [entry.index for entry in document.batch].index(link.index)
    yield say(
        view,
        template,
        query=link.query,
        key=claim(str(link.key), view, layer=batch, head=link.head, query=link.query, key=link.key),
        share=percent(link.weight),
        head=link.head,
        batch=listing(map(str, link.index)),
    )
    if link.weight < document.links[0].weight:
        yield say(
            view, "Queries that see a single key are not counted: all of their weight is there."
        )


def _link_of_choice(document: TensorsDocument) -> CapturedLink:
    """The strongest link of a query that sees more than one key, from the document's links or else
    from all weights; where no query does, or without scores to tell, the strongest of all.
    """
    # by batch entry and head, which rows see more than one key: hidden scores are −∞
    has_choice = {
        (tuple(entry.index), head.head): np.isfinite(as_matrix(head.scores)).sum(axis=1) > 1
        for entry in document.batch
        for head in entry.heads
        if head.scores is not UNSET
    }
    for link in document.links:
        rows = has_choice.get((tuple(link.index), link.head))
        if rows is None or rows[link.query]:
            return link

    # none among the document's links: look through all weights
    links = []
    for index, head in _heads_with_weights(document):
        rows = has_choice.get((tuple(index), head.head))
        if head.weights is not UNSET and rows is not None and rows.any():
            query, key, weight = largest_weight(head.weights, rows)
            links.append(
                CapturedLink(index=list(index), head=head.head, query=query, key=key, weight=weight)
            )
    return max(links, key=lambda link: link.weight, default=document.links[0])


TENSORS_PARTS: Parts[TensorsDocument] = (
    ScreenPart("header", _header),
    ScreenPart("shapes", lambda document, view: shapes_part(document.shapes, view)),
    ScreenPart("scores", partial(_tables, "scores")),
    ScreenPart("weights", partial(_tables, "weights")),
    ScreenPart("output", partial(_tables, "output")),
    ScreenPart("metrics", _metrics),
    ScreenPart("links", _links),
    ScreenPart("answer", tensors_answer),
)
