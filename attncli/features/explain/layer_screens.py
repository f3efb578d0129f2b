"""Screens of the topics about a whole layer: masks, several heads, positions, residual and norm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, assert_never

import numpy as np
from msgspec import UNSET

from attncli.draw.lines import Lines, heading, remark, sentences, stack
from attncli.draw.numbers import adding_digits, brief, format_fixed
from attncli.draw.safe import label, spell
from attncli.draw.screen_header import header
from attncli.draw.sentence import not_learned_note, shaded_sentence
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import ledger, table, vector_sum, vectors
from attncli.draw.token_names import key_names, position_and_text, quoted_token, short
from attncli.draw.view import View
from attncli.features.explain.document import (
    MaskTopic,
    MatrixSoftmaxTopic,
    MetricTopic,
    MultiheadTopic,
    OrderTopic,
    PositionTopic,
    ResidualTopic,
    ScalingTopic,
    SoftmaxTopic,
    TaughtTopic,
)
from attncli.features.explain.softmax_screens import (
    matrix_rows,
    matrix_softmax_blocks,
    metric_blocks,
    metric_rows,
    order_blocks,
    order_rows,
    scaling_blocks,
    scaling_rows,
    softmax_blocks,
    softmax_rows,
)
from attncli.language import say, say_each

if TYPE_CHECKING:
    from attncli.features.explain.document import (
        MaskTopic,
        MultiheadTopic,
        PaddedText,
        PositionTopic,
        PositionWay,
        ResidualTopic,
    )


CLOSE = 1e-4
"""How near the weights must be to what the sentence about them says."""
KEYS = 24
"""Keys of the worked row that have a line of their own."""
CELL = 9
"""Cells of a token in the drawing of a batch."""


def mask_topic_blocks(document: MaskTopic, view: View) -> Sequence[Lines]:
    """What a mask is for; the matrices before and after; the query's row worked out; the batch, if there is one."""
    texts = [token.text for token in document.tokens]
    lead = stack(
        (
            heading(say(view, "mask.topic.title"), document.attention.mask, view),
            remark(say(view, "mask.topic.lead"), view, style=""),
        )
    )
    masked = as_matrix(document.masked)
    pairs = [
        ("scores", document.scores, True),
        ("masked", document.masked, True),
        ("before", document.before, False),
        ("after", np.where(np.isfinite(masked), document.after, np.nan), False),
    ]
    hides = not np.isfinite(masked).all()
    if not hides:  # what is before the mask is what is after it: once is enough
        pairs = [("scores", document.scores, True), ("open", document.after, False)]
    matrices = [
        matrix(
            values,
            texts,
            key_names(texts, values),
            view,
            signed=signed,
            limits=None if signed else (0.0, 1.0),
            title=say(view, f"mask.topic.{name}"),
            note=say(view, f"mask.topic.{name}.note"),
        )
        for name, values, signed in pairs
    ]
    batch = [] if document.batch is UNSET else [_batch(document.batch, view)]
    row_block = [] if np.isfinite(masked[document.query]).all() else [_row(document, texts, view)]
    row = as_matrix(document.after)[document.query]
    tinted_sentence = shaded_sentence(
        document.text or "", document.tokens, row, view, query=document.query, tint="answer.tint.row"
    )
    # of several texts the padding is what is asked about
    mask_sentence = _redistribution_sentence(document, view) if hides or document.batch is UNSET else ""
    answers = (_padding_sentence(document, view), mask_sentence, not_learned_note(document.model, view))
    answer_lines = stack((tinted_sentence, sentences(answers, view)))
    parts = (*batch, *matrices) if not hides else (*matrices, *row_block, *batch)
    return (header(document, view), lead, *parts, answer_lines)


def _row(document: MaskTopic, texts: Sequence[str], view: View) -> Lines:
    """The query's row: score and weight without the mask, then with it."""
    query = document.query
    name = label(texts[query], ascii=view.ascii)
    scores, masked, before, after = (
        np.asarray(getattr(document, part), np.float64)[query] for part in ("scores", "masked", "before", "after")
    )
    visible = np.isfinite(masked)
    keys_shown = list(range(len(scores)))
    if len(keys_shown) > KEYS and not view.full:
        keys_shown = sorted(np.argsort(-before, kind="stable")[:KEYS].tolist())
    rest = sorted(set(range(len(scores))) - set(keys_shown))
    columns = [
        ([*map(float, values[keys_shown]), *([float(values[rest].sum())] if rest else [])], float(values.sum()))
        for values in (before, after)
    ]
    digits = [adding_digits([column], view.precision) for column in columns]
    none = spell("−∞", ascii=view.ascii)
    rows = [
        [
            position_and_text(index, texts[index] if index < len(texts) else "bias_k", 14, view),
            f"{scores[index]:.{view.precision}f}",
            f"{before[index]:.{digits[0]}f}",
            f"{masked[index]:.{view.precision}f}" if visible[index] else none,
            f"{after[index]:.{digits[1]}f}",
        ]
        for index in keys_shown
    ]
    if rest:
        sums = [f"{values[rest].sum():.{count}f}" for values, count in zip((before, after), digits, strict=True)]
        rows.append([say(view, "others", len(rest)), "", sums[0], "", sums[1]])
    totals = [
        f"{values.sum():.{view.precision}f}" + " " * (count - view.precision)
        for values, count in zip((before, after), digits, strict=True)
    ]
    return ledger(
        [say(view, f"mask.topic.column.{part}") for part in ("key", "score", "before", "masked", "after")],
        rows,
        [say(view, "sum"), "", totals[0], "", totals[1]],
        view,
        title=say(view, "mask.topic.row", name),
        note=say(view, "mask.topic.row.note"),
    )


def _redistribution_sentence(document: MaskTopic, view: View) -> str:
    """How the hidden keys' share goes to the others, where it goes to them in proportion."""
    query, visible_share = document.query, 1 - document.hidden
    masked, before, after = (
        np.asarray(getattr(document, part), np.float64)[query] for part in ("masked", "before", "after")
    )
    visible = np.isfinite(masked)
    name = quoted_token(document.tokens, query, view)
    if visible.all():
        return say(view, "mask.topic.all", name)
    if not visible.any():
        return say(view, "empty")
    if visible_share <= 0 or np.abs(before[visible] / visible_share - after[visible]).max() > CLOSE:
        return ""
    return say(
        view, "mask.topic.shared", name, f"{document.hidden:.{view.precision}f}", f"{visible_share:.{view.precision}f}"
    )


def _padding_sentence(document: MaskTopic, view: View) -> str:
    """That padding gets no weight and changes none, where several texts are padded together and it holds."""
    if document.batch is UNSET:
        return ""
    longest = max(len(padded_text.tokens) for padded_text in document.batch)
    padding_weight = max(
        float(np.nan_to_num(list(padded_text.weights)[len(padded_text.tokens) :]).sum())
        for padded_text in document.batch
    )
    largest_difference = max(padded_text.agreement for padded_text in document.batch)
    if padding_weight > 0 or largest_difference > CLOSE:
        return ""
    if _even(document.batch):
        return say(view, "mask.topic.even.answer", len(document.batch))
    if largest_difference == 0:
        return say(view, "mask.topic.padded.exact", len(document.batch), longest)
    return say(view, "mask.topic.padded", len(document.batch), longest, f"{largest_difference:.1e}")


def _even(batch: Sequence[PaddedText]) -> bool:
    """Whether all texts have as many tokens: nothing is padded then."""
    return len({len(text.tokens) for text in batch}) == 1


def _batch(batch: Sequence[PaddedText], view: View) -> Lines:
    """The texts below each other, padded to the longest; the last token's row of each, nothing on padding."""
    longest = max(len(padded_text.tokens) for padded_text in batch)
    even = _even(batch)
    pad = spell("·", ascii=view.ascii)
    room = max((view.width - 4) // (CELL + 2), 1)
    token_count = longest if view.full else min(longest, room)
    rows = [
        [
            str(index),
            *(
                short(padded_text.tokens[place].text, CELL, view) if place < len(padded_text.tokens) else pad
                for place in range(token_count)
            ),
        ]
        for index, padded_text in enumerate(batch)
    ]
    token_table = table(
        ["", *map(str, range(token_count))],
        rows,
        view,
        title=say(view, "mask.topic.even", len(batch)) if even else say(view, "mask.topic.batch", len(batch), longest),
        note="" if even else say(view, "mask.topic.batch.note"),
    )
    weights = [
        [float(weight) if place < len(padded_text.tokens) else None for place, weight in enumerate(padded_text.weights)]
        for padded_text in batch
    ]
    last = matrix(
        weights,
        [padded_text.tokens[-1].text for padded_text in batch],
        None,
        view,
        limits=(0.0, 1.0),
        title=say(view, "mask.topic.batch.weights"),
        note="" if even else say(view, "mask.topic.batch.weights.note"),
    )
    largest_difference = max(padded_text.agreement for padded_text in batch)
    return stack(
        (
            token_table,
            Lines(((),)),
            last,
            remark(
                say(view, "mask.topic.batch.agree", f"{largest_difference:.1e}" if largest_difference else "0"), view
            ),
        )
    )


def mask_topic_rows(document: MaskTopic) -> Iterable[list[object]]:
    """Every pair before and after the mask, for `--plain`."""
    yield ["query", "key", "score", "masked", "weight_before", "weight"]
    masked = as_matrix(document.masked)
    for query, row in enumerate(document.scores):
        for key, score in enumerate(row):
            score_masked = masked[query, key]
            pair = [float(document.before[query][key]), float(document.after[query][key])]
            yield [query, key, float(score), float(score_masked) if np.isfinite(score_masked) else None, *pair]


# The screen of the topic "multihead": each head's look, their outputs side by side, and what W_O makes of them.

MOST_HEADS = 4
"""Heads of which the answer tells that they look elsewhere than their average."""
SAME, LESS, CLOSE_HEADS = 5e-3, 5e-3, 1e-4
"""Weights that differ by less are told as the same; entropies, in nats, that differ by less are not told; and how near
one head must be to attention without heads to be called it."""


def multihead_blocks(document: MultiheadTopic, view: View) -> Sequence[Lines]:
    """What heads are for; their weights and the average of these; their outputs; concat·W_O; what each looks at."""
    model, heads = document.model, document.heads
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)
    is_split = model.d_model is not None and len(heads) * model.d_v == model.d_model
    sizes = say(view, "multihead.sizes.split" if is_split else "multihead.sizes", len(heads), model.d_k, model.d_v)
    lead = stack(
        (
            heading(say(view, "multihead.title"), "", view),
            remark(say(view, "multihead.lead"), view, style=""),
            remark(sizes, view),
        )
    )
    names = [say(view, "multihead.head", head.head) for head in heads]
    several = len(heads) > 1  # of one head the average is that head
    rows = [*(head.weights for head in heads), *([document.average] if several else [])]
    weights = matrix(
        rows,
        [*names, *([say(view, "multihead.average")] if several else [])],
        key_names(texts, rows),
        view,
        limits=(0.0, 1.0),
        title=say(view, "multihead.weights", query),
        note=say(view, "multihead.weights.note"),
    )
    outputs = vectors(
        [head.output for head in heads],
        names,
        view,
        title=say(view, "multihead.outputs", query),
        note=say(view, "multihead.outputs.note", len(heads), len(heads[0].output), len(document.concat)),
    )
    return (
        header(document, view),
        lead,
        *((weights, outputs) if document.single is UNSET else (_single(document, texts, view),)),
        _projected_sum(document, names, view),
        _multihead_answer(document, view),
    )


def _single(document: MultiheadTopic, texts: Sequence[str], view: View) -> Lines:
    """Of one head: its weights and output beside those of attention without heads."""
    single = document.single
    if single is UNSET:
        return Lines()
    names = [say(view, "multihead.single.alone"), say(view, "multihead.single.head")]
    head = document.heads[0]
    title, note = say(view, "multihead.single"), say(view, "multihead.single.note")
    top = heading(title, note, view)
    rows = [single.weights, head.weights]
    weights = matrix(
        rows, names, key_names(texts, rows), view, limits=(0.0, 1.0), title=say(view, "multihead.single.weights")
    )
    output = vectors([single.output, head.output], names, view, title=say(view, "multihead.single.output"))
    agree = say(view, "multihead.single.agree", f"{single.agreement:.1e}" if single.agreement else "0")
    return stack((top, weights, output, remark(agree, view)))


def _loss_sentences(document: MultiheadTopic, view: View) -> list[str]:
    """What averaging the heads loses: those that look elsewhere than the average does, or, where none does, how much
    each looks; and by how much the average is less certain."""
    heads, average = document.heads, as_matrix([document.average])[0]
    if len(heads) < 2 or not average.any():
        return []
    rows = as_matrix([head.weights for head in heads])
    if np.abs(rows - average).max() < SAME:
        return [say(view, "multihead.same", len(heads))]

    best = int(np.argmax(average))
    mentioned = {document.query, best, *(int(np.argmax(row)) for row in rows)}

    def name(key: int) -> str:
        return quoted_token(document.tokens, key, view, beside=mentioned)

    answer_sentences = [
        say(view, "multihead.average.looks", name(document.query), name(best), format_fixed(float(average[best]), 2))
    ]
    heads_elsewhere = [
        index for index in range(len(heads)) if rows[index].any() and int(np.argmax(rows[index])) != best
    ]
    if heads_elsewhere:
        heads_elsewhere.sort(key=lambda index: float(average[int(np.argmax(rows[index]))] - rows[index].max()))
        parts = []
        for index in heads_elsewhere[:MOST_HEADS]:
            key = int(np.argmax(rows[index]))
            numbers = format_fixed(float(rows[index][key]), 2), format_fixed(float(average[key]), 2)
            parts.append(say(view, "multihead.elsewhere", heads[index].head, name(key), *numbers))
        more = (
            say(view, "multihead.more", len(heads_elsewhere) - MOST_HEADS) if len(heads_elsewhere) > MOST_HEADS else ""
        )
        head_list = say(view, "multihead.and").join(parts) + more
        answer_sentences.append(say(view, "multihead.loses", len(heads_elsewhere), len(heads), head_list))
    else:
        low, high = (int(index) for index in (np.argmin(rows[:, best]), np.argmax(rows[:, best])))
        ends = [(format_fixed(float(rows[index, best]), 2), heads[index].head) for index in (low, high)]
        answer_sentences.append(say(view, "multihead.alike", len(heads), *ends[0], *ends[1]))
    head_entropy = float(np.mean(document.entropies))
    if document.average_entropy - head_entropy >= LESS:
        answer_sentences.append(
            say(view, "multihead.lost", format_fixed(document.average_entropy, 2), format_fixed(head_entropy, 2))
        )
    return answer_sentences


def _projected_sum(document: MultiheadTopic, names: Sequence[str], view: View) -> Lines:
    """Σ O_h·W_O^h, term by term; where there is no W_O, why there is nothing to add."""
    title = say(view, "multihead.out")
    terms = [
        (say(view, "multihead.share", head.head), head.share) for head in document.heads if head.share is not UNSET
    ]
    if not terms:
        return stack((heading(title, "", view), remark(say(view, "multihead.out.none"), view)))
    terms += [("b_O", document.bias)] if document.bias is not UNSET else []
    body = vector_sum(terms, ("O", document.out), view, title=title, note=say(view, "multihead.out.note"))
    return stack((body, remark(say(view, "agrees", f"{document.agreement:.1e}"), view)))


def _multihead_answer(document: MultiheadTopic, view: View) -> Lines:
    """What averaging the heads loses; of one head, that it is single-head attention."""
    query_text = quoted_token(document.tokens, document.query, view)
    answer_sentences = _loss_sentences(document, view)
    if document.single is not UNSET and document.single.agreement <= CLOSE_HEADS:
        difference = document.single.agreement
        answer_sentences = [
            say(view, "multihead.single.answer", query_text, f"{difference:.1e}" if difference else "0")
        ]
    largest_weights = as_matrix([head.weights for head in document.heads]).max(axis=0)
    tinted_sentence = shaded_sentence(
        document.text or "", document.tokens, largest_weights, view, query=document.query, tint="answer.tint.links"
    )
    return stack((tinted_sentence, sentences((*answer_sentences, not_learned_note(document.model, view)), view)))


def multihead_rows(document: MultiheadTopic) -> Iterable[list[object]]:
    """Each head's weights, key by key, for `--plain`."""
    yield ["head", "key", "weight", "average"]
    for head in document.heads:
        for key, weight in enumerate(head.weights):
            yield [head.head, key, float(weight), float(document.average[key])]


# The screen of the topic "position": where positions enter, their numbers, and what they make of one query.

LEAST = 0.005
"""A way that moves no weight by this much is not said to move any."""


def position_blocks(document: PositionTopic, view: View) -> Sequence[Lines]:
    """What positions are for; each way's own numbers; the query's weights under each; which moves them most."""
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)
    ways = document.ways
    way_table = table(
        say_each(view, "position", "way", "enters", "moved"),
        [
            [
                way.position,
                say(view, f"position.enters.{way.enters}"),
                "" if index == 0 else f"{way.moved:.{view.precision}f}",
            ]
            for index, way in enumerate(ways)
        ],
        view,
        align=["left", "left", "right"],
        title=say(view, "position.ways"),
    )
    weights = [way.weights for way in ways]
    rows = matrix(
        weights,
        [way.position for way in ways],
        key_names(texts, weights),
        view,
        limits=(0.0, 1.0),
        title=say(view, "position.weights", query),
        note=say(view, "position.weights.note"),
    )
    lead = stack((heading(say(view, "position.title"), "", view), remark(say(view, "position.lead"), view, style="")))
    tables = [_numbers(way, texts, view) for way in ways if way.table is not UNSET]
    return (header(document, view), stack((lead, way_table)), *tables, rows, _position_answer(document, query, view))


def _numbers(way: PositionWay, texts: Sequence[str], view: View) -> Lines:
    """What a way brings in, as a table: vectors, angles, or what is added to the scores."""
    title, note = say(view, f"position.table.{way.enters}", way.position), way.formula
    assert way.table is not UNSET, "only a way that brings something in has a table"
    if way.enters == "scores":
        return matrix(way.table, texts, key_names(texts, way.table), view, signed=True, title=title, note=note)
    return vectors(way.table, texts, view, title=title, note=note)


def _position_answer(document: PositionTopic, query: str, view: View) -> Lines:
    """The sentence, tinted by how far each word's weight moves where it moves most; which way that is; whether the
    weights are learned."""
    query_text = say(view, "quoted", query)
    other_ways = document.ways[1:]
    most_moving = max(other_ways, key=lambda way: way.moved, default=None)
    answer_sentences, tinted_sentence = [not_learned_note(document.model, view)], Lines()
    if most_moving is not None and most_moving.moved >= LEAST:
        answer_sentences.insert(
            0, say(view, "position.answer", most_moving.position, query_text, f"{most_moving.moved:.2f}")
        )
        differences = np.abs(np.nan_to_num(most_moving.weights) - np.nan_to_num(document.ways[0].weights))
        tinted_sentence = shaded_sentence(
            document.text, document.tokens, differences, view, query=document.query, tint="answer.tint.moved"
        )
    elif other_ways:
        answer_sentences.insert(0, say(view, "position.answer.none", query_text))
    return stack((tinted_sentence, sentences(answer_sentences, view)))


def position_rows(document: PositionTopic) -> Iterable[list[object]]:
    """Each way's weights, key by key, for `--plain`."""
    yield ["position", "enters", "key", "weight", "moved"]
    for way in document.ways:
        for key, weight in enumerate(way.weights):
            yield [way.position, way.enters, key, float(weight), way.moved]


# The screen of the topic "residual": x + O entry by entry, and the norm worked out.

MOSTLY = 0.5
"""From this cosine on, a vector still points mostly where it did."""


def residual_blocks(document: ResidualTopic, view: View) -> Sequence[Lines]:
    """What the residual is for; the sum; the norm; how much of the vector stays."""
    query = label(document.tokens[document.query].text, ascii=view.ascii)
    lead = stack((heading(say(view, "residual.title"), "", view), remark(say(view, "residual.lead"), view, style="")))
    sum_block = vector_sum(
        [("x", document.x), ("O", document.out)],
        ("x + O", document.sum),
        view,
        title=say(view, "residual.sum", query),
        note=say(view, "residual.sum.note"),
    )
    lengths = [f"{float(np.linalg.norm(part)):.{view.precision}f}" for part in (document.x, document.out, document.sum)]
    facts = remark(say(view, "residual.lengths", *lengths), view)
    return (
        header(document, view),
        lead,
        stack((sum_block, facts)),
        _norm(document, view),
        _residual_answer(document, query, view),
    )


def _norm(document: ResidualTopic, view: View) -> Lines:
    """The norm, step by step; that there is none, where there is none."""
    norm = document.norm
    if norm is None:
        return remark(say(view, "residual.norm.none"), view)
    write = f"{{:.{view.precision}f}}".format
    first = norm.place == "attn.in"
    input_name = "x" if first else "x + O"
    rows = [(input_name, norm.vector)]
    if norm.kind == "layer":
        rows.append((f"{input_name} − μ", np.asarray(norm.vector, np.float64) - norm.mean))
    rows += [(say(view, f"residual.norm.{norm.kind}.scaled"), norm.scaled), ("· γ + β", norm.normed)]
    if np.array_equal(norm.scaled, norm.normed):
        rows.pop()
    body = vectors(
        [values for _, values in rows],
        [name for name, _ in rows],
        view,
        title=say(view, f"residual.norm.{norm.kind}"),
        note=say(view, "residual.norm.first" if first else "residual.norm.after"),
    )
    norm_sentence = say(
        view, f"residual.norm.{norm.kind}.told", write(norm.mean), write(norm.variance), brief(norm.eps)
    )
    plain = say(view, "residual.norm.plain") if np.array_equal(norm.scaled, norm.normed) else ""
    agrees = say(view, "agrees", f"{document.agreement:.1e}")
    return stack((body, *(remark(note, view) for note in (norm_sentence, plain, agrees))))


def _residual_answer(document: ResidualTopic, query: str, view: View) -> Lines:
    """The sentence, tinted by where the word looks; whether its vector still points where it did."""
    query_text = say(view, "quoted", query)
    kind = "kept" if document.cosine >= MOSTLY else "turned"
    answer_sentences = (
        say(view, f"residual.answer.{kind}", query_text, f"{document.cosine:.2f}"),
        not_learned_note(document.model, view),
    )
    weights = None if document.weights is UNSET else document.weights
    tinted_sentence = shaded_sentence(
        document.text, document.tokens, weights, view, query=document.query, tint="answer.tint.links"
    )
    return stack((tinted_sentence, sentences(answer_sentences, view)))


def residual_rows(document: ResidualTopic) -> Iterable[list[object]]:
    """Entry by entry, for `--plain`."""
    yield ["dim", "x", "out", "sum", "normed"]
    normed = None if document.norm is None or document.norm.place != "attn.sum" else document.norm.normed
    for dim, values in enumerate(zip(document.x, document.out, document.sum, strict=True)):
        yield [dim, *map(float, values), None if normed is None else float(normed[dim])]


# The screen and the table of any topic of `attn.explain/1` besides the attention of a text.


def topic_blocks(document: TaughtTopic, view: View) -> Sequence[Lines]:
    """The parts of a topic's screen, in order."""
    match document:
        case SoftmaxTopic():
            return softmax_blocks(document, view)
        case ScalingTopic():
            return scaling_blocks(document, view)
        case MatrixSoftmaxTopic():
            return matrix_softmax_blocks(document, view)
        case OrderTopic():
            return order_blocks(document, view)
        case MetricTopic():
            return metric_blocks(document, view)
        case PositionTopic():
            return position_blocks(document, view)
        case MaskTopic():
            return mask_topic_blocks(document, view)
        case MultiheadTopic():
            return multihead_blocks(document, view)
        case ResidualTopic():
            return residual_blocks(document, view)
        case _:
            assert_never(document)


def topic_rows(document: TaughtTopic) -> Iterable[list[object]]:
    """A topic's numbers as a table with a header line, for `--plain`."""
    match document:
        case SoftmaxTopic():
            return softmax_rows(document)
        case ScalingTopic():
            return scaling_rows(document)
        case MatrixSoftmaxTopic():
            return matrix_rows(document)
        case OrderTopic():
            return order_rows(document)
        case MetricTopic():
            return metric_rows(document)
        case PositionTopic():
            return position_rows(document)
        case MaskTopic():
            return mask_topic_rows(document)
        case MultiheadTopic():
            return multihead_rows(document)
        case ResidualTopic():
            return residual_rows(document)
        case _:
            assert_never(document)
