"""Screens of the topics about a whole layer: masks, heads, residual and norm, positions; a table of
all topics'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import UNSET

from attncli.documents import Document, mask_name
from attncli.draw.hash_buckets import bucket_part
from attncli.draw.lines import BLANK, Lines, heading, remark, sentences, stack
from attncli.draw.numbers import adding_column, brief, format_fixed, percent
from attncli.draw.safe import cells, label, safe, spell
from attncli.draw.screen_header import header
from attncli.draw.sentence import WHOLE, not_learned_note
from attncli.draw.shaded_matrix import NDArray, as_matrix, matrix
from attncli.draw.tables import GAP, ledger, table, vector_sum, vectors
from attncli.draw.token_names import (
    key_names,
    placed_token,
    position_and_text,
    quoted_token,
    rest_names,
    short,
)
from attncli.draw.view import View
from attncli.features.explain.derivation_screen import (
    agreement_remark,
    others_text,
    weights_as_tints,
)
from attncli.features.explain.document import (
    HeadPart,
    MaskTopic,
    MatrixSoftmaxTopic,
    MetricTopic,
    MultiheadTopic,
    OrderTopic,
    PaddedText,
    PositionTopic,
    PositionWay,
    QkvTopic,
    ResidualTopic,
    RuleTopic,
    ScalingTopic,
    Seq2seqTopic,
    SingleHead,
    SoftmaxTopic,
    TrainingTopic,
)
from attncli.features.explain.qkv_screen import qkv_blocks, qkv_rows
from attncli.features.explain.rule_screen import rule_blocks, rule_rows_table
from attncli.features.explain.seq2seq_screen import seq2seq_blocks, seq2seq_rows
from attncli.features.explain.softmax_screens import (
    lead,
    matrix_rows,
    matrix_softmax_blocks,
    metric_blocks,
    metric_rows,
    order_blocks,
    order_rows,
    scaling_blocks,
    scaling_rows,
    slope_remarks,
    softmax_blocks,
    softmax_rows,
    tinted_answer,
)
from attncli.features.explain.training_screen import training_blocks, training_rows
from attncli.language import contextual, listing, message, plural, say, say_each
from attncli.measure.rest import Bools, is_learned, resting_keys

CLOSE = 1e-4
"""How near the weights must be to what the sentence about them says."""
KEYS = 24
"""Keys of the worked row that have a line of their own."""
KEY_NAME = 14
"""Cells of a key's text in that row's table."""
CELL = 9
"""Cells of a token in the drawing of a batch."""


def mask_topic_blocks(document: MaskTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "mask" as blocks: what a mask is for, the matrices before and after it,
    the query's row worked out, the padded batch if there is one."""
    texts = [token.text for token in document.tokens]

    # what the topic is about
    what = lead(
        "what a mask does",
        "A mask says which keys a query may see. A hidden score becomes −∞ before the "
        "softmax, exp(−∞) is 0, and so is the weight: not small, but none.",
        view,
        note=mask_name(safe(document.attention.mask, ascii=view.ascii)),
    )

    # the matrices: name in `MASK_MATRICES`, values, and whether colours tell below 0 from above, as of
    # scores; weights are coloured from 0 to 1
    visible = np.isfinite(as_matrix(document.masked))
    hides = not visible.all()
    has_empty_rows = not visible.any(axis=-1).all()
    if hides:
        name_of_last = "after"
        if has_empty_rows:
            name_of_last = "emptied"
        pairs = [
            ("scores", document.scores, True),
            ("masked", document.masked, True),
            ("before", document.before, False),
            (name_of_last, np.where(visible, document.after, np.nan), False),
        ]
    else:
        # what is before the mask is what is after it: once is enough
        pairs = [("scores", document.scores, True), ("open", document.after, False)]
    matrices = []
    for name, values, signed in pairs:
        title, note = MASK_MATRICES[name]
        drawing = matrix(
            values,
            texts,
            key_names(texts, values),
            view,
            signed=signed,
            limits=None if signed else (0.0, 1.0),
            title=title,
            note=note,
        )
        matrices.append(drawing)

    # the query's row worked out, and the padded batch
    row_block = []
    if not visible[document.query].all():
        row_block = [_query_row_table(document, texts, view)]
    batch = []
    if document.batch is not UNSET:
        batch = [_batch_tables(document, document.batch, view)]

    # the answer; of several texts the padding is what is asked about
    mask_sentence = ""
    if hides or document.batch is UNSET:
        mask_sentence = _redistribution_sentence(document, view)
    answers = (
        _padding_sentence(document, view),
        mask_sentence,
        not_learned_note(document.model, view),
    )
    row = as_matrix(document.after)[document.query]
    shares, tint = weights_as_tints(document, row)
    answer_lines = tinted_answer(document, shares, answers, view, query=document.query, tint=tint)
    buckets = []
    if document.hashing is not UNSET:
        buckets = [bucket_part(document.hashing, document.tokens, document.query, view)]
    if hides:
        parts = (*buckets, *matrices, *row_block, *batch)
    else:
        # only padding hides anything: its tables come first
        parts = (*batch, *matrices)
    return (header(document, view), what, *parts, answer_lines)


MASK_MATRICES = {
    "scores": (message("scores S before the mask"), message("every query against every key")),
    "masked": (message("scores S after the mask"), message("· is −∞: hidden")),
    "before": (message("weights without the mask"), message("softmax of each row of S")),
    "after": (message("weights with the mask"), message("each row still sums to 1")),
    "emptied": (
        message("weights with the mask"),
        message("each row sums to 1; one in which all is hidden, to 0"),
    ),
    "open": (
        message("weights A"),
        message("nothing is hidden in this text itself: with and without the mask the same"),
    ),
}
"""The title of each matrix of the topic "mask", and what it shows."""


def _query_row_table(document: MaskTopic, texts: Sequence[str], view: View) -> Lines:
    """The query's row as a table: score and weight of each key without the mask, then with it.

    texts: of the tokens.
    """
    # of each stage the row, [key]
    query = document.query
    scores, masked, before, after = (
        np.asarray(getattr(document, part), np.float64)[query]
        for part in ("scores", "masked", "before", "after")
    )

    # the keys with a line of their own, those of the largest weights, and one line for the others
    keys_shown = list(range(len(scores)))
    if len(keys_shown) > KEYS and not view.full:
        keys_shown = sorted(np.argsort(-before, kind="stable")[:KEYS].tolist())
    other_keys = sorted(set(range(len(scores))) - set(keys_shown))
    names = []
    for key in keys_shown:
        # a learned key stands behind the tokens
        key_text = "bias_k"
        if key < len(texts):
            key_text = texts[key]
        names.append(position_and_text(key, key_text, KEY_NAME, view))
    if other_keys:
        names.append(others_text(len(other_keys), view))

    def score_column(values: NDArray, *, hides: bool) -> tuple[list[str], str]:
        """The texts of a column of scores, and "" as its sum, which is not shown.

        hides: whether scores that are not finite are shown as hidden.
        """
        column = []
        for value in values[keys_shown]:
            if hides and not np.isfinite(value):
                column.append(spell("−∞", ascii=view.ascii))
            else:
                column.append(f"{value:.{view.precision}f}")
        if other_keys:
            column.append("")
        return column, ""

    def weight_column(values: NDArray) -> tuple[list[str], str]:
        """The texts of a column of weights, and that of their sum."""
        terms = values[keys_shown].tolist()
        if other_keys:
            terms.append(float(values[other_keys].sum()))
        return adding_column(terms, float(values.sum()), view.precision)

    # of each column its texts, [line], and its sum
    columns = [
        (names, say(view, "sum")),
        score_column(scores, hides=False),
        weight_column(before),
        score_column(masked, hides=True),
        weight_column(after),
    ]
    texts_of_columns, totals = zip(*columns, strict=True)
    return ledger(
        say_each(view, "key", "score s", "weight without", "masked s", "weight w"),
        list(zip(*texts_of_columns, strict=True)),
        totals,
        view,
        title=say(
            view, "the row of {query}, worked out", query=label(texts[query], ascii=view.ascii)
        ),
        note="the same scores, without and with the mask",
    )


def _redistribution_sentence(document: MaskTopic, view: View) -> str:
    """A sentence on what the mask does to the query's row: the visible keys share the weight of
    hidden ones in proportion, or it hides none or all; "" where the sharing does not hold."""
    query = document.query
    visible_share = 1 - document.hidden
    masked, before, after = (
        np.asarray(getattr(document, part), np.float64)[query]
        for part in ("masked", "before", "after")
    )
    visible = np.isfinite(masked)
    name = quoted_token(document.tokens, query, view)
    if visible.all():
        return say(view, "{query} sees every key: the mask changes nothing in its row.", query=name)
    if not visible.any():
        return say(
            view,
            "The mask hides every key from {query}: its weights and its weighted sum A·V are 0.",
            query=name,
        )
    # not so where numbers left their range, or a learned sink takes a part
    if visible_share <= 0 or np.abs(before[visible] / visible_share - after[visible]).max() > CLOSE:
        return ""
    share = f"{document.hidden:.{view.precision}f}"
    if np.count_nonzero(visible) == 1:
        return say(
            view,
            "The keys that the mask hides from {query} would have had {share} of its weight. The "
            "one key left, {key}, gets all of it.",
            query=name,
            share=share,
            key=quoted_token(document.tokens, int(visible.argmax()), view),
        )
    return say(
        view,
        "The keys that the mask hides from {query} would have had {share} of its weight. The "
        "others share it in proportion: each weight is divided by what is left, {rest}.",
        query=name,
        share=share,
        rest=f"{visible_share:.{view.precision}f}",
    )


def _padding_sentence(document: MaskTopic, view: View) -> str:
    """A sentence that padding in a batch gets no weight and changes no other; "" without a batch,
    or where that does not hold."""
    if document.batch is UNSET:
        return ""
    lengths = [len(padded_text.tokens) for padded_text in document.batch]
    # the largest weight on padding, the keys behind each text's tokens; NaN, where numbers left their
    # range, counts as none
    padding_weight = max(
        float(np.nan_to_num(list(padded_text.weights)[len(padded_text.tokens) :]).sum())
        for padded_text in document.batch
    )
    # `agreement` is how far a text's weights in the batch are from those that it has alone
    largest_difference = max(padded_text.agreement for padded_text in document.batch)
    if padding_weight > 0 or largest_difference > CLOSE:
        return ""
    values = {
        "texts": len(lengths),
        "longest": max(lengths),
    }
    if len(set(lengths)) == 1:
        template = message(
            "The {texts} texts have as many tokens, so nothing is padded: each keeps the weights"
            " that it has alone."
        )
    else:
        # whether rounding differs depends on the processor, so it is said wherever it may
        template = message(
            "The {texts} texts are padded to {longest} tokens, and no weight falls on padding: "
            "each keeps the weights that it has alone, but for rounding."
        )
    return say(view, template, **values)


def _batch_tables(document: MaskTopic, batch: Sequence[PaddedText], view: View) -> Lines:
    """The texts below each other, padded to the longest, and below them the weights of each one's
    last token.
    """
    lengths = {len(padded_text.tokens) for padded_text in batch}
    same_length = len(lengths) == 1
    longest = max(lengths)

    # the tokens and the padding behind them: all in a full view, else the first columns that fit
    pad = spell("·", ascii=view.ascii)
    names = [
        [
            *(short(token.text, CELL, view) for token in padded_text.tokens),
            *[pad] * (longest - len(padded_text.tokens)),
        ]
        for padded_text in batch
    ]
    columns = list(map(list, zip(map(str, range(longest)), *names, strict=True)))
    token_count = longest
    if not view.full:
        token_count = _columns_that_fit(columns, len(str(len(batch) - 1)), view.width)
    rows = [[str(index), *row[:token_count]] for index, row in enumerate(names)]
    left_out = ""
    if token_count < longest:
        left_out = message(
            "the first {shown} of {count} columns shown; --full shows all",
            shown=token_count,
            count=longest,
        )
    title = message("padding mask of a batch: {texts} texts, padded to {longest} tokens")
    if same_length:
        title = message("{texts} texts of one length: nothing is padded")
    token_table = table(
        ["", *map(str, range(token_count))],
        rows,
        view,
        title=say(view, title, texts=len(batch), longest=longest),
        note="" if same_length else "· is padding: hidden as a key, in every row",
    )

    # the weights of each text's last token, blank behind its own tokens
    weights = [
        [
            float(weight) if place < len(padded_text.tokens) else None
            for place, weight in enumerate(padded_text.weights)
        ]
        for padded_text in batch
    ]
    last = matrix(
        weights,
        rows=[padded_text.tokens[-1].text for padded_text in batch],
        columns=None,
        view=view,
        limits=(0.0, 1.0),
        title="weights of each text's last token",
        note="" if same_length else "nothing rests on padding",
    )

    difference = difference_text(max(padded_text.agreement for padded_text in batch))
    alike = say(
        view,
        "Together or each alone, the weights differ by at most {difference}.",
        difference=difference,
    )
    shapes = say(
        view,
        "In one batch: X is [{texts}, {longest}, {d_model}], the head's output [{texts}, {longest}, "
        "{d_v}].",
        texts=len(batch),
        longest=longest,
        d_model=document.model.d_model,
        d_v=document.model.d_v,
    )
    return stack(
        token_table, remark(left_out, view), remark(shapes, view), BLANK, last, remark(alike, view)
    )


def _columns_that_fit(columns: Sequence[Sequence[str]], side: int, width: int) -> int:
    """How many of the first columns fit into `width` cells beside one of `side` cells; at least 1."""
    room = width - side
    for count, column in enumerate(columns):
        room -= GAP + max(map(cells, column))
        if room < 0:
            return max(count, 1)
    return len(columns)


def difference_text(difference: float) -> str:
    """Write a difference that is only rounding in two digits, such as `1.2e-07`, or `0`."""
    if difference:
        return f"{difference:.1e}"
    return "0"


def mask_topic_rows(document: MaskTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for every query and key
    with score and weight before and after the mask."""
    yield ["query", "key", "score", "masked", "weight_before", "weight"]
    masked = as_matrix(document.masked)
    for query, row in enumerate(document.scores):
        for key, score in enumerate(row):
            masked_score: float | None = float(masked[query, key])
            if not np.isfinite(masked[query, key]):
                masked_score = None
            before = float(document.before[query][key])
            after = float(document.after[query][key])
            yield [query, key, float(score), masked_score, before, after]


# The screen of the topic "multihead": each head's look, their outputs side by side, and what W_O
# makes of them.

HALF = 0.5
"""A head with more than this share of a query's weight where heads rest is said to rest."""
MOST_HEADS = 4
"""Heads of which the answer tells that they look elsewhere than their average."""
SHOWN = 0.005
"""A smaller weight is printed as 0.00."""
SAME, LESS, CLOSE_HEADS = 5e-3, 5e-3, 1e-4
"""Weights that differ by less are told as the same; entropies, in nats, that differ by less are not
told; and how near one head must be to attention without heads to be called it."""


def multihead_blocks(document: MultiheadTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "multihead" as blocks: what heads are for, their weights and the average
    of these, their outputs, concat·W_O, and what each looks at."""
    model = document.model
    heads = document.heads
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)

    # what heads are for, and how wide they are here
    is_split = model.d_model is not None and len(heads) * model.d_v == model.d_model
    widths = {"count": len(heads), "d_k": model.d_k, "d_v": model.d_v}
    sizes = plural(
        "{count} head, with queries and keys of width {d_k} and values of width {d_v}",
        "{count} heads, each with queries and keys of width {d_k} and values of width {d_v}",
        **widths,
    )
    if is_split and len(heads) == 1:
        sizes = message(
            "{count} head: it has the whole d_model, d_k is {d_k} and d_v {d_v}", **widths
        )
    elif is_split:
        sizes = message(
            "{count} heads; d_model is shared out among them, so d_k is {d_k} and d_v {d_v}",
            **widths,
        )
    what = lead(
        "several heads",
        "Each head has its own W_Q, W_K and W_V, so each can look elsewhere. Their outputs "
        "are set side by side, and W_O mixes them into one vector.",
        view,
    )

    # the weights of each head and their average, which for one head is that head
    names = [say(view, "head {head}", head=head.head) for head in heads]
    rows = [head.weights for head in heads]
    row_names = list(names)
    if len(heads) > 1:
        rows.append(document.average)
        row_names.append(say(view, "average"))
    weights = matrix(
        rows,
        row_names,
        key_names(texts, rows),
        view,
        limits=(0.0, 1.0),
        title=say(view, "weights of {query} in each head", query=query),
        note="each row sums to 1",
    )
    # all heads of a layer are as wide
    outputs = vectors(
        [head.output for head in heads],
        names,
        view,
        title=say(view, "outputs O₁ … O_h for {query}", query=query),
        note=say(
            view,
            "side by side: {heads} × {width} = {total} entries",
            heads=len(heads),
            width=len(heads[0].output),
            total=len(document.concat),
        ),
    )

    # one head is set beside attention without heads instead
    blocks = [weights, outputs]
    if document.single is not UNSET:
        blocks = [_single_head(document, document.single, texts, view)]
    return (
        header(document, view),
        stack(what, remark(say(view, sizes), view)),
        *blocks,
        _projected_sum(document, names, view),
        stack(_multihead_answer(document, view), _whole_model_hint(document, view)),
    )


def _single_head(
    document: MultiheadTopic, single: SingleHead, texts: Sequence[str], view: View
) -> Lines:
    """For a model of one head: its weights and output beside those of attention without heads, and
    by how much they differ.

    texts: of the tokens.
    """
    names = [say(view, "single-head"), say(view, "h = 1")]
    head = document.heads[0]
    top = heading(
        "one head is single-head attention",
        "softmax(q·kᵀ × scale)·v, worked out without heads, beside this run's one head",
        view,
    )
    rows = [single.weights, head.weights]
    weights = matrix(rows, names, key_names(texts, rows), view, limits=(0.0, 1.0), title="weights")
    output = vectors([single.output, head.output], names, view, title="output, first entries")
    difference = difference_text(single.agreement)
    agree = say(view, "Weights and output differ by at most {difference}.", difference=difference)
    return stack(top, weights, output, remark(agree, view))


def _keys_of_rest(document: MultiheadTopic, average: NDArray) -> Bools:
    """Which keys heads rest on (the first token and special ones, on which heads put weight when they
    look for nothing), booleans [key]; none where the query has no weight on others.

    average: the mean of the heads' weights, [key].
    """
    rest = np.zeros(average.size, bool)  # learned keys, behind those of the tokens, are none
    of_tokens = resting_keys(document.tokens, document.model.source)[: average.size]
    if np.delete(average, np.flatnonzero(of_tokens)).any():
        rest[: of_tokens.size] = of_tokens
    return rest


def _only_key_sentence(document: MultiheadTopic, rows: NDArray, view: View) -> str:
    """The sentence that one token gets all of the weight in every head, as where a mask hides the
    others; "" where none does.

    rows: the query's weights, [head, key].
    """
    keys = np.flatnonzero(rows.any(axis=0)).tolist()
    if len(keys) != 1 or keys[0] >= len(document.tokens) or (rows[:, keys[0]] < WHOLE).any():
        return ""
    template = message("{query} looks at {key} alone: every head gives it all of the weight.")
    if keys[0] == document.query:
        template = message(
            "{query} looks at nothing but itself: every head gives it all of the weight."
        )
    return say(
        view,
        template,
        query=quoted_token(document.tokens, document.query, view),
        key=quoted_token(document.tokens, keys[0], view),
    )


def _loss_sentences(document: MultiheadTopic, view: View) -> Iterator[str]:
    """Yield sentences on what averaging the heads' weights hides: heads that look elsewhere than
    the average, or else how much each looks at its key; and how much higher the average's entropy
    is."""
    heads = document.heads
    average = as_matrix([document.average])[0]
    if len(heads) < 2 or not average.any():
        return
    rows = as_matrix([head.weights for head in heads])
    alone = _only_key_sentence(document, rows, view)
    if alone:
        yield alone
        return
    if np.abs(rows - average).max() < SAME:
        yield say(
            view,
            "The {heads} heads give the same weights: averaging loses nothing here.",
            heads=len(heads),
        )
        return

    # the key that the average looks at most, the one that each head looks at most, and its weight
    # there, besides keys on which heads put weight when they look for nothing
    rest = _keys_of_rest(document, average)
    best = int(np.argmax(np.where(rest, 0.0, average)))
    keys = [int(np.argmax(np.where(rest, 0.0, row))) for row in rows]
    largest_weights = [float(row[key]) for row, key in zip(rows, keys, strict=True)]

    def name(key: int) -> str:
        """A key's text in quotes; the query's own is called itself."""
        if key == document.query:
            return say(view, "itself")
        return quoted_token(document.tokens, key, view)

    yield _average_sentence(document, best, float(average[best]), bool(rest.any()), view)

    # heads that look elsewhere, by index: a weight that is printed as 0.00 is no look, and one below
    # the average is not lost in it
    looking = [index for index, weight in enumerate(largest_weights) if weight >= SHOWN]
    losses = [
        weight - float(average[key]) for key, weight in zip(keys, largest_weights, strict=True)
    ]
    heads_elsewhere = [index for index in looking if keys[index] != best and losses[index] > 0]
    if heads_elsewhere:
        heads_elsewhere.sort(key=lambda index: -losses[index])
        places = []
        for index in heads_elsewhere[:MOST_HEADS]:
            place = say(
                view,
                "head {head} at {key} ({weight}, averaged {average})",
                head=heads[index].head,
                key=name(keys[index]),
                weight=format_fixed(largest_weights[index], 2),
                average=format_fixed(float(average[keys[index]]), 2),
            )
            places.append(place)
        yield _lost_heads(places, len(heads_elsewhere), len(heads), view)
    else:
        # heads that look where the average does: their key has more than attention spread evenly over
        # all keys that any head sees would give it
        even = 1 / int((rows > 0).any(axis=0).sum())
        same_look = [index for index in looking if keys[index] == best and rows[index][best] > even]
        yield _shared_look(heads, rows[:, best], same_look, view)
        yield from _resting_heads(document, rows[:, rest].sum(axis=1), same_look, view)

    yield from _entropy_sentences(document, view)


def _entropy_sentences(document: MultiheadTopic, view: View) -> Iterator[str]:
    """Yield that the average is less certain than its heads, where its entropy is higher."""
    head_entropy = float(np.mean(document.entropies))
    if document.average_entropy - head_entropy >= LESS:
        yield say(
            view,
            "The average is less certain than its heads: entropy {entropy} nats, theirs"
            " {head_entropy} on average.",
            entropy=format_fixed(document.average_entropy, 2),
            head_entropy=format_fixed(head_entropy, 2),
        )


def _average_sentence(
    document: MultiheadTopic, key: int, weight: float, has_rest: bool, view: View
) -> str:
    """The sentence on the key that the average of the heads looks at most.

    weight: of that key in the average.
    has_rest: whether keys where heads rest are left out.
    """
    is_own = key == document.query
    template = message("Averaged, {query} would look most at {key} ({weight}).")
    if is_own:
        template = message("Averaged, {query} would look most at itself ({weight}).")
    if has_rest:
        template = message(
            "Averaged, {query} would look most at {key} ({weight}), with {rest}, where heads rest,"
            " left out."
        )
    if has_rest and is_own:
        template = message(
            "Averaged, {query} would look most at itself ({weight}), with {rest}, where heads rest,"
            " left out."
        )
    return say(
        view,
        template,
        query=quoted_token(document.tokens, document.query, view),
        key=quoted_token(document.tokens, key, view),
        weight=format_fixed(weight, 2),
        rest=rest_names(document.tokens),
    )


def _lost_heads(places: Sequence[str], count: int, heads: int, view: View) -> str:
    """The sentence on how many of the `heads` heads look elsewhere than their average.

    places: where each of the first of them looks, such as "head 3 at 'cat' (0.50, averaged 0.20)".
    count: of all that look elsewhere.
    """
    head_list = say(view, contextual("clauses", ", ")).join(places)
    if count > len(places):
        head_list += say(view, " and {count} more", count=count - len(places))
    template = message(
        "Averaging loses {count} of the {heads} heads, which look elsewhere: {places}."
    )
    if count == 1:
        template = message(
            "Averaging loses {count} of the {heads} heads, which looks elsewhere: {places}."
        )
    return say(view, template, count=count, heads=heads, places=head_list)


def _shared_look(
    heads: Sequence[HeadPart], weights: NDArray, same_look: Sequence[int], view: View
) -> str:
    """The sentence on how many heads look most at the key that the average looks at, and in which
    of them its weight is smallest and largest; of all heads where none does.

    weights: of that key in each head, [head].
    same_look: the heads, by index, that look at it most, and more than if they looked at all keys
        alike.
    """
    counted = same_look or range(len(heads))
    low = min(counted, key=lambda index: weights[index])
    high = max(counted, key=lambda index: weights[index])
    count = len(same_look)
    template = message(
        "All {heads} heads look there; averaging loses how much weight each gives: from {least} "
        "(head {least_head}) to {most} (head {most_head})."
    )
    if len(heads) == 2:
        template = message(
            "Both heads look there; averaging loses how much weight each gives: from {least} (head"
            " {least_head}) to {most} (head {most_head})."
        )
    if count < len(heads):
        template = message(
            "{count} of {heads} heads look there; averaging loses how much weight each of them"
            " gives: from {least} (head {least_head}) to {most} (head {most_head})."
        )
    if count == 1:
        template = message(
            "1 of {heads} heads looks there, head {most_head} with {most} of its weight; averaging"
            " loses which one."
        )
    if count == 0:
        template = message(
            "No head gives it more than an even share; averaging loses how much each gives: from"
            " {least} (head {least_head}) to {most} (head {most_head})."
        )
    return say(
        view,
        template,
        count=count,
        heads=len(heads),
        least=format_fixed(float(weights[low]), 2),
        least_head=heads[low].head,
        most=format_fixed(float(weights[high]), 2),
        most_head=heads[high].head,
    )


def _resting_heads(
    document: MultiheadTopic, resting: NDArray, same_look: Sequence[int], view: View
) -> Iterator[str]:
    """Yield which of the heads that do not look where the average does rest: more than half of
    their weight is where heads put it when they look for nothing.

    resting: the query's weight on such keys in each head, [head].
    same_look: the heads, by index, that look where the average does.
    """
    names = [
        say(
            view,
            "head {head} ({share} of its weight)",
            head=part.head,
            share=percent(float(share)),
        )
        for index, (part, share) in enumerate(zip(document.heads, resting, strict=True))
        if index not in same_look and share > HALF
    ]
    if not names:
        return
    head_list = say(view, listing(names[:MOST_HEADS]))
    if len(names) > MOST_HEADS:
        head_list += say(view, " and {count} more", count=len(names) - MOST_HEADS)
    yield say(
        view,
        "Resting on {rest}: {heads}.",
        rest=rest_names(document.tokens),
        heads=head_list,
    )


def _role_sentences(document: MultiheadTopic, view: View) -> Iterator[str]:
    """Yield a sentence on two heads that each link another pair of words on this text; or that there
    is one such head, or none. Nothing where the document has no such links."""
    if document.roles is UNSET:
        return
    if not document.roles:
        yield say(
            view,
            "No head of this layer gives more than half of a word's weight to a word that is no "
            "neighbour: on this text no two heads have links of their own.",
        )
        return
    parts = []
    for link in document.roles:
        part = say(
            view,
            "in head {head} {query} gives {share} of its weight to {key}",
            head=link.head,
            key=quoted_token(document.tokens, link.key, view),
            query=quoted_token(document.tokens, link.query, view),
            share=_share_above_half(link.weight),
        )
        parts.append(part)
    if len(parts) == 1:
        yield say(
            view,
            "On this text {link}. No other head of this layer has a link of more than 50% between "
            "another pair of words that are not neighbours.",
            link=parts[0],
        )
        return
    yield say(
        view,
        "Two heads, two links on this text: {first}; {second}.",
        first=parts[0],
        second=parts[1],
    )


def _share_above_half(weight: float) -> str:
    """Write a share above one half in percent, with as many digits as keep it from reading 50%."""
    for digits in range(4):
        text = percent(weight, digits)
        if text != percent(0.5, digits):
            return text
    return percent(weight)


def _projected_sum(document: MultiheadTopic, names: Sequence[str], view: View) -> Lines:
    """The output of the layer as the sum Σ O_h·W_O^h, a row for each head; where there is no W_O, a
    remark that nothing is added.

    names: of the heads.
    """
    title = message("concat(O₁ … O_h)·W_O")
    note = message("= Σ O_h·W_O^h: each head's output times its own rows of W_O")
    terms = [
        (name, head.share)
        for name, head in zip(names, document.heads, strict=True)
        if head.share is not UNSET
    ]
    if not terms:
        none = remark("There is no W_O here: the outputs stand side by side as they are.", view)
        return stack(heading(title, "", view), none)
    if document.bias is not UNSET:
        terms.append(("b_O", document.bias))
        title = message("concat(O₁ … O_h)·W_O + b_O")
        note = message("= Σ O_h·W_O^h + b_O: each head's output times its own rows of W_O, and b_O")
    body = vector_sum(terms, ("O", document.out), view, title=title, note=note)
    return stack(body, agreement_remark(document.agreement, view))


def _multihead_answer(document: MultiheadTopic, view: View) -> Lines:
    """The text tinted by each key's largest weight in any head, and sentences on what averaging the
    heads hides; for one head, that it is single-head attention."""
    query_text = quoted_token(document.tokens, document.query, view)
    answer_sentences = [*_loss_sentences(document, view), *_role_sentences(document, view)]
    if document.single is not UNSET and document.single.agreement <= CLOSE_HEADS:
        template = message(
            "Multi-head attention with h = 1 is single-head attention: {query} gets the same "
            "weights and the same output (within {difference})."
        )
        difference = difference_text(document.single.agreement)
        answer_sentences = [say(view, template, query=query_text, difference=difference)]
    largest_weights = as_matrix([head.weights for head in document.heads]).max(axis=0)
    texts = (*answer_sentences, not_learned_note(document.model, view))
    shares, tint = weights_as_tints(document, largest_weights, several=True)
    return tinted_answer(document, shares, texts, view, query=document.query, tint=tint)


def _whole_model_hint(document: MultiheadTopic, view: View) -> Lines:
    """That heads of other layers are asked by `attn find`, and the command for each link that was
    told; nothing for a model with one layer, or where the document has no such links."""
    if document.roles is UNSET or document.model.layers == 1:
        return Lines()
    from attncli.draw.command_lines import command_about, command_lines, options_note, reference

    blocks = [
        remark(
            "These are the heads of one layer. attn find TEXT --from WORD --to WORD asks the heads of"
            " all layers for one link: for two links, run it twice.",
            view,
            style="",
        )
    ]
    for link in document.roles:
        ends = ["--from", reference(document, link.query, view)]
        ends += ["--to", reference(document, link.key, view)]
        blocks.append(command_lines(command_about(document, "find", ends, view), view))
    if document.roles:
        blocks.append(options_note(view))
    return stack(*blocks)


def multihead_rows(document: MultiheadTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each head and key."""
    yield ["head", "key", "weight", "average"]
    for head in document.heads:
        for key, weight in enumerate(head.weights):
            yield [head.head, key, float(weight), float(document.average[key])]


# The screen of the topic "residual": x + O entry by entry, and the norm worked out.

TITLE_CELLS = 28
"""Cells of the query in a title."""
MOSTLY = 0.5
"""From this cosine on, a vector still points mostly where it did."""
UNTURNED = 0.995
"""From this cosine on, written as 1.00, it points where it did: it turned by less than 6°."""


def residual_blocks(document: ResidualTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "residual" as blocks: what the residual is for, the sum, the norm, and
    how much of the vector stays."""
    query = placed_token(document.tokens, document.query, TITLE_CELLS, view)
    what = lead(
        "residual connection and normalization",
        "The residual keeps what came in: attention only adds to it. The norm then brings "
        "each vector to the same scale, so that layers can be stacked.",
        view,
    )
    sum_block = vector_sum(
        [("x", document.x), ("O", document.out)],
        ("x + O", document.sum),
        view,
        title=say(view, "x + O of {query}", query=query),
        note="what came in, and what attention adds",
    )
    x, output, total = (
        f"{float(np.linalg.norm(part)):.{view.precision}f}"
        for part in (document.x, document.out, document.sum)
    )
    facts = remark(
        say(view, "lengths: |x| {x}, |O| {output}, |x + O| {sum}", x=x, output=output, sum=total),
        view,
    )
    return (
        header(document, view),
        what,
        stack(sum_block, facts),
        _norm_part(document, view),
        _residual_answer(document, view),
    )


def _norm_part(document: ResidualTopic, view: View) -> Lines:
    """The part of the norm: its steps, or a sentence that the model has none."""
    norm = document.norm
    if norm is None:
        return remark("There is no norm here; --layer-norm adds one.", view)

    # where the norm stands
    input_name = "x + O"
    note = message("of the sum, after the residual")
    if norm.place == "attn.in":
        input_name = "x"
        note = message("of x, before the attention: this model norms first")

    # its steps, a row each; a layer norm takes the mean away, an RMS norm does not
    rows = [(input_name, norm.vector)]
    if norm.kind == "layer":
        title = message("layer norm")
        template = message("mean μ = {mean}, variance σ² = {variance}, ε = {eps}")
        rows.append((f"{input_name} − μ", np.asarray(norm.vector, np.float64) - norm.mean))
        rows.append((say(view, "/ √(σ² + ε)"), norm.scaled))
    else:
        title = message("RMS norm")
        template = message("mean square = {variance}, ε = {eps}; the mean, {mean}, is left in")
        rows.append((say(view, "/ √(mean x² + ε)"), norm.scaled))
    unchanged = ""
    if np.array_equal(norm.scaled, norm.normed):
        unchanged = say(view, "The learned weights γ are 1 and the biases β 0 here.")
    else:
        rows.append(("· γ + β", norm.normed))
    names = [spell(name, ascii=view.ascii) for name, _ in rows]
    values = [numbers for _, numbers in rows]
    body = vectors(values, names, view, title=title, note=note, is_numbered=False)
    norm_sentence = say(
        view,
        template,
        mean=f"{norm.mean:.{view.precision}f}",
        variance=f"{norm.variance:.{view.precision}f}",
        eps=brief(norm.eps),
    )
    return stack(
        body,
        remark(norm_sentence, view),
        remark(unchanged, view),
        agreement_remark(document.agreement, view),
    )


def _residual_answer(document: ResidualTopic, view: View) -> Lines:
    """The text tinted by the query's largest weight on each word in any head, and a sentence on
    whether attention leaves the query's vector pointing mostly where it did."""
    query_text = quoted_token(document.tokens, document.query, view)
    template = message(
        "Attention turns the vector of {query} far from where it pointed: cosine {cosine} between x"
        " and x + O."
    )
    if document.cosine >= MOSTLY:
        template = message(
            "After attention the vector of {query} still points mostly where it did: cosine "
            "{cosine} between x and x + O."
        )
    if document.cosine >= UNTURNED:
        template = message(
            "After attention the vector of {query} points where it did: cosine {cosine} between x"
            " and x + O."
        )
    turn = say(view, template, query=query_text, cosine=f"{document.cosine:.2f}")
    texts = (turn, not_learned_note(document.model, view))
    weights: Sequence[float] | NDArray = ()
    if document.weights is not UNSET:
        weights = document.weights
    shares, tint = weights_as_tints(document, weights, several=True)
    return tinted_answer(document, shares, texts, view, query=document.query, tint=tint)


def residual_rows(document: ResidualTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each entry of x, of the
    attention's output, of their sum and of its norm (None where the sum is not normed)."""
    yield ["dim", "x", "out", "sum", "normed"]
    norm_of_sum = None
    if document.norm is not None and document.norm.place == "attn.sum":
        norm_of_sum = document.norm.normed
    for dim, values in enumerate(zip(document.x, document.out, document.sum, strict=True)):
        normed = None
        if norm_of_sum is not None:
            normed = float(norm_of_sum[dim])
        yield [dim, *map(float, values), normed]


# The screen of the topic "position": where positions enter, their numbers, and what they make of
# one query.

LEAST = 0.005
"""A way that moves no weight by this much is not said to move any."""
ENTRIES = {
    "nowhere": message("nowhere"),
    "input": message("the input"),
    "queries and keys": message("queries and keys"),
    "scores": message("the scores"),
}
"""Where positions enter, as a document calls it."""
TABLES = {
    "input": message("{position}: position vectors P"),
    "queries and keys": message("{position}: angles by which pairs of entries turn, in radians"),
    "scores": message("{position}: what is added to the scores"),
}
"""What the numbers of a way are, by where it enters."""


def position_blocks(document: PositionTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "position" as blocks: what positions are for, each encoding's own
    numbers, the query's weights under each, and which encoding moves them most."""
    texts = [token.text for token in document.tokens]
    query = label(texts[document.query], ascii=view.ascii)
    ways = document.ways

    # each encoding, and how far it moves weights from those of the first
    way_rows = []
    for index, way in enumerate(ways):
        change = ""
        if index:
            change = f"{way.moved:.{view.precision}f}"
        way_rows.append([way.position, say(view, ENTRIES[way.enters]), change])
    way_table = table(
        say_each(view, "position", "enters", "moves a weight by"),
        way_rows,
        view,
        align=["left", "left", "right"],
        title="ways of telling positions",
    )
    way_table = stack(way_table, remark(_size_sentence(ways, view), view))

    # the query's weights under each
    weights = [way.weights for way in ways]
    title = message("weights of {query} under each")
    note = message("the same seeded vectors, only the positions differ")
    if len(ways) == 1:  # a model that learned has one way of its own
        title = message("weights of {query}")
        note = message("the model's own vectors and positions")
    rows = matrix(
        weights,
        [way.position for way in ways],
        key_names(texts, weights),
        view,
        limits=(0.0, 1.0),
        title=say(view, title, query=query),
        note=note,
    )
    what = lead(
        "how attention is told where words stand",
        "By itself attention sees a set of words, not a row of them: attn explain order "
        "measures that. Positions can enter in three places: added to the input, turning "
        "queries and keys, or added to the scores.",
        view,
    )
    tables = [_encoding_table(way, texts, view) for way in ways if way.table is not UNSET]
    return (
        header(document, view, tells_position=len(ways) == 1),
        stack(what, way_table),
        *tables,
        rows,
        _position_answer(document, query, view),
    )


def _size_sentence(ways: Sequence[PositionWay], view: View) -> str:
    """The sentence that encodings move weights by their sizes, too, with the mean length of the
    vectors of each that is added to the input; "" where fewer than two are."""
    sizes = [
        say(
            view,
            "{size} for {position}",
            size=f"{np.linalg.norm(np.asarray(way.table, np.float64), axis=1).mean():.1f}",
            position=way.position,
        )
        for way in ways
        if way.enters == "input" and way.table is not UNSET
    ]
    if len(sizes) < 2:
        return ""
    return say(
        view,
        "How far an encoding moves a weight depends on the size of its vectors, too: on average |P|"
        " is {sizes}.",
        sizes=listing(sizes),
    )


def _encoding_table(way: PositionWay, texts: Sequence[str], view: View) -> Lines:
    """The numbers that a position encoding brings in: vectors or angles, a row for each token, or a
    matrix [query, key] of what is added to the scores.

    texts: of the tokens.
    """
    title = say(view, TABLES[way.enters], position=way.position)
    note = way.formula
    assert way.table is not UNSET, "only a way that brings something in has a table"
    if way.enters == "scores":
        body = matrix(
            way.table, texts, key_names(texts, way.table), view, signed=True, title=title, note=note
        )
        return stack(body, *slope_remarks(way.slopes, view))
    is_angles = way.enters == "queries and keys"
    numbers = vectors(
        way.table,
        texts,
        view,
        title=title,
        note=note,
        with_lengths=not is_angles,
        columns_are="pairs" if is_angles else "dimensions",
    )
    if way.pairing is UNSET:
        return numbers
    return stack(numbers, *(remark(text, view) for text in _turning_sentences(way, view)))


def _turning_sentences(way: PositionWay, view: View) -> Iterator[str]:
    """Yield how pairs of entries turn: which entries make a pair, the formula, the first pair worked
    out at position 1, and that q·k depends on the distance alone. Numbers are computed from the
    angles of the way; nothing is worked out for a text of one token, which has no distance."""
    angles = np.asarray(way.table, np.float64)
    pairs = angles.shape[1]
    if way.pairing == "half":
        yield say(
            view,
            "Pair m is the entries m and m + d/2 of the d = {entries} that turn: pair 0 is 0 and"
            " {partner}. q is turned, and k likewise:",
            entries=2 * pairs,
            partner=pairs,
        )
        formula = message(
            "q′[m] = q[m]·cos a − q[m+d/2]·sin a, q′[m+d/2] = q[m]·sin a + q[m+d/2]·cos a"
        )
    else:
        yield say(
            view,
            "Pair m is the entries 2m and 2m + 1 of the d = {entries} that turn: pair 0 is 0 and 1."
            " q is turned, and k likewise:",
            entries=2 * pairs,
        )
        formula = message(
            "q′[2m] = q[2m]·cos a − q[2m+1]·sin a, q′[2m+1] = q[2m]·sin a + q[2m+1]·cos a"
        )
    yield spell(say(view, formula), ascii=view.ascii)
    if len(angles) < 2:
        return
    step = angles[1, 0] - angles[0, 0]  # of pair 0, from one position to the next

    def turned(pair: tuple[float, float], position: int) -> NDArray:
        """The pair 0 with these entries, turned as at a position, [2]."""
        cos = np.cos(step * position)
        sin = np.sin(step * position)
        return np.asarray([pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos])

    def product(i: int, j: int) -> str:
        """q·k of q = (1, 2) at position i and k = (2, 1) at position j, as text."""
        return format_fixed(float(turned((1.0, 2.0), i) @ turned((2.0, 1.0), j)), view.precision)

    first, second = turned((1.0, 2.0), 1)
    yield say(
        view,
        "A pair (1, 2) turned by a = {angle}: 1·{cos} − 2·{sin} = {first}, 1·{sin} + 2·{cos} ="
        " {second}.",
        angle=format_fixed(float(step), view.precision),
        cos=format_fixed(float(np.cos(step)), view.precision),
        sin=format_fixed(float(np.sin(step)), view.precision),
        first=format_fixed(float(first), view.precision),
        second=format_fixed(float(second), view.precision),
    )
    yield say(
        view,
        "q·k of a pair depends on i − j alone: for q = (1, 2) at i and k = (2, 1) at j it is {near}"
        " at i = 2, j = 1, again {shifted} at i = 5, j = 4, but {far} at i = 5, j = 3.",
        near=product(2, 1),
        shifted=product(5, 4),
        far=product(5, 3),
    )


def _position_answer(document: PositionTopic, query: str, view: View) -> Lines:
    """The text tinted by how far each word's weight moves under the position encoding that moves
    them most, and sentences on which that is.

    query: the query's text.
    """
    query_text = say(view, '"{text}"', text=query)
    note = not_learned_note(document.model, view)
    # the first way is what the others are compared with
    other_ways = document.ways[1:]
    most_moving = max(other_ways, key=lambda way: way.moved, default=None)
    if most_moving is None:
        return _own_position_answer(document, view)
    most = _most_moving_sentence(most_moving, query_text, view, several=len(other_ways) > 1)
    if most_moving.moved < LEAST:
        return sentences([most, note], view)
    # (NaN are numbers that left their range)
    differences = np.abs(
        np.nan_to_num(most_moving.weights) - np.nan_to_num(document.ways[0].weights)
    )
    tint = message("tint: by how much the word's weight differs")
    random_note = ""
    if most_moving.position == "learned" and not is_learned(document.model.source):
        random_note = say(
            view, "Its vectors are random here, not learned: others would move it otherwise."
        )
    texts = [text for text in (most, random_note, note) if text]
    return tinted_answer(document, differences, texts, view, query=document.query, tint=tint)


def _own_position_answer(document: PositionTopic, view: View) -> Lines:
    """The text tinted by the query's weights, and sentences on where the only encoding, a learned
    model's own, enters, and which word has the largest weight under it."""
    way = document.ways[0]
    query = quoted_token(document.tokens, document.query, view)
    template = message("The positions, {position}, enter {place}.")
    if way.enters == "nowhere":
        template = message("The model has no positions.")
    entry = say(view, template, position=way.position, place=say(view, ENTRIES[way.enters]))
    weights = np.nan_to_num(np.asarray(way.weights, np.float64))
    key = int(weights.argmax())
    largest = say(
        view,
        "The largest weight of {query} is on {key}: {share}.",
        query=query,
        key=quoted_token(document.tokens, key, view),
        share=percent(float(weights[key])),
    )
    shares, tint = weights_as_tints(document, weights)
    texts = (entry, largest, not_learned_note(document.model, view))
    return tinted_answer(document, shares, texts, view, query=document.query, tint=tint)


def _most_moving_sentence(way: PositionWay, query: str, view: View, *, several: bool) -> str:
    """The sentence on how far the encoding that moves the query's weights most moves them.

    query: its text in quotes.
    several: whether several encodings are compared with none, so that the sentence names one.
    """
    if way.moved < LEAST:
        template = message("With {position} every weight of {query} changes by less than 0.005.")
        if several:
            template = message("No position encoding moves a weight of {query} by 0.005 or more.")
    else:
        template = message(
            "With {position} the weight of {query} that changes most changes by {size}."
        )
        if several:
            template = message(
                "With {position} the weights of {query} change most, one of them by {size}."
            )
    return say(view, template, position=way.position, query=query, size=f"{way.moved:.2f}")


def position_rows(document: PositionTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each position encoding
    and key."""
    yield ["position", "enters", "key", "weight", "moved"]
    for way in document.ways:
        for key, weight in enumerate(way.weights):
            yield [way.position, way.enters, key, float(weight), way.moved]


# The screen and the table of any topic of `attn.explain/1` besides the attention of a text.


TOPIC_SCREENS: dict[
    type[Document], tuple[Callable[..., Sequence[Lines]], Callable[..., Iterable[list[object]]]]
] = {
    SoftmaxTopic: (softmax_blocks, softmax_rows),
    ScalingTopic: (scaling_blocks, scaling_rows),
    MatrixSoftmaxTopic: (matrix_softmax_blocks, matrix_rows),
    OrderTopic: (order_blocks, order_rows),
    MetricTopic: (metric_blocks, metric_rows),
    RuleTopic: (rule_blocks, rule_rows_table),
    PositionTopic: (position_blocks, position_rows),
    MaskTopic: (mask_topic_blocks, mask_topic_rows),
    MultiheadTopic: (multihead_blocks, multihead_rows),
    ResidualTopic: (residual_blocks, residual_rows),
    QkvTopic: (qkv_blocks, qkv_rows),
    Seq2seqTopic: (seq2seq_blocks, seq2seq_rows),
    TrainingTopic: (training_blocks, training_rows),
}
"""Of each topic the parts of its screen, in order, and its numbers as a table with a header line,
for `--plain`.
"""
