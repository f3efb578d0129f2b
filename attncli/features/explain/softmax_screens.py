"""The screens of the topics of `attn explain` that need no query: softmax, scaling, matrix softmax,
order, metrics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from attncli.draw.lines import Lines, heading, localize, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import (
    adding_column,
    bar,
    brief,
    format_fixed,
    softmax_percent,
    times_words,
)
from attncli.draw.safe import cells, label, spell
from attncli.draw.screen_header import fact, header
from attncli.draw.sentence import shaded_sentence
from attncli.draw.shaded_matrix import as_matrix, matrix
from attncli.draw.tables import ledger, table
from attncli.draw.token_names import key_names, position_and_text, quoted_token
from attncli.draw.view import View
from attncli.language import contextual, listing, message, plural, say, say_each
from attncli.mechanism.projection import alibi_slopes

if TYPE_CHECKING:
    from attncli.documents import Header, Numbers
    from attncli.features.explain.document import (
        MatrixSoftmaxTopic,
        MetricTopic,
        OrderRow,
        OrderTopic,
        ScalingTopic,
        SoftmaxTopic,
    )


# The last lines of the topics of `attn explain`: what their numbers say, in words. Each sentence
# has its rule.

SAME = 1e-12
"""Weights that differ by no more are called equal."""
HARDLY_MORE = 1.005
"""A ratio of weights below which three digits would read "1 times"."""
TIMES = 1e6
"""How many times the next weight the largest is at most said to be."""


def softmax_answer(document: SoftmaxTopic, view: View) -> Lines:
    """A sentence on the share of the weight that the largest score gets, and its ratio to the
    second largest weight.
    """
    # the largest weight first
    first, *other_weights = sorted(document.weights, reverse=True)
    finite = int(np.isfinite(document.scores).sum())
    # the score as it was given: the document's `highest` is divided by the temperature
    values = {"highest": brief(max(document.numbers)), "share": softmax_percent(first, finite)}
    if not other_weights:
        text = message("A score alone gets all of the weight.")
    elif first - other_weights[-1] <= SAME:
        weight = format_fixed(first, view.precision)
        text = message(
            "All scores are equal, and so are their weights: {weight} each.", weight=weight
        )
    elif first - other_weights[0] <= SAME:
        equal = 1 + sum(first - weight <= SAME for weight in other_weights)
        text = message(
            "The largest score, {highest}, occurs {count} times, each time with {share} of the"
            " weight.",
            count=equal,
            **values,
        )
    elif other_weights[0] * TIMES <= first:
        text = message("The largest score, {highest}, gets {share} of the weight.", **values)
    elif first / other_weights[0] < HARDLY_MORE:
        text = message(
            "The largest score, {highest}, gets {share} of the weight, hardly more than the next one.",
            **values,
        )
    else:
        values["times"] = times_words(first / other_weights[0], digits=3)
        text = message(
            "The largest score, {highest}, gets {share} of the weight, {times} times what the next"
            " one gets.",
            **values,
        )
    return sentences([say(view, text)], view)


def lead(title: str, text: str, view: View, *, note: str = "") -> Lines:
    """The heading of a topic: its title with a note beside it, and one or two introductory
    sentences."""
    return stack(heading(title, note, view), remark(text, view, style=""))


def tinted_answer(
    document: Header,
    shares: Iterable[float] | None,
    texts: Iterable[str],
    view: View,
    *,
    query: int | None,
    tint: str,
) -> Lines:
    """The document's text with its words tinted, and the sentences of the answer below it.

    shares: of each word, how strongly it is tinted; None for no tint.
    texts: the sentences.
    query: the position of the word in brackets; None for none.
    tint: the note that says what the tint shows.
    """
    tinted_sentence = shaded_sentence(
        document.text, document.tokens, shares, view, query=query, tint=tint
    )
    return stack(tinted_sentence, sentences(texts, view))


def scaling_answer(document: ScalingTopic, view: View) -> Lines:
    """A sentence on the largest weight and the softmax gradient with and without scaling by 1/√d_k;
    for a small d_k, that the difference is slight; for a single key, that there is none."""
    if document.keys == 1:
        return remark(
            "A single key gets a weight of 1 whatever its score is: no scale changes that.",
            view,
            style="",
        )
    # the first two scales are none and 1/√d_k
    plain, scaled, *_ = document.softmax
    if plain.gradient >= scaled.gradient:
        return remark(
            "For so small a d_k the difference is slight: scaling matters more the larger d_k is.",
            view,
            style="",
        )
    text = say(
        view,
        "Unscaled, the largest weight is {largest} on average and the gradient {gradient}; "
        "scaled, {scaled_largest} and {scaled_gradient}: the softmax stays where it can "
        "learn.",
        largest=format_fixed(plain.largest, 2),
        gradient=format_fixed(plain.gradient, 2),
        scaled_largest=format_fixed(scaled.largest, 2),
        scaled_gradient=format_fixed(scaled.gradient, 2),
    )
    return sentences([text], view)


def matrix_answer(document: MatrixSoftmaxTopic, view: View) -> Lines:
    """The text tinted by the sum of each word's weights where one softmax runs over the whole
    matrix, and a sentence on the least and the largest sum."""
    sums = [float(value) for value in document.row_sums]
    sums_sentence = say(
        view,
        "Over the whole matrix one query gets {least} of the weight and another {most}; by "
        "rows each gets 1. Attention always uses rows.",
        least=format_fixed(min(sums), view.precision),
        most=format_fixed(max(sums), view.precision),
    )
    # of the largest sum; where every sum is 0, there is no tint
    shares = np.divide(sums, max(sums) or 1.0)
    tint = message(
        "tint: what the word gets as a query over the whole matrix, against the one that gets most"
    )
    return tinted_answer(document, shares, [sums_sentence], view, query=None, tint=tint)


def metric_answer(document: MetricTopic, view: View) -> Lines:
    """Sentences on the metric's value for the example beside that for uniform attention, and on
    what a high value means."""
    example = document.example
    values = ""
    if example.value is not None and example.uniform is not None:
        values = say(
            view,
            "{metric} is {value} for this head, and {uniform} for one whose rows are spread evenly"
            " over what they see.",
            metric=document.name,
            value=format_fixed(example.value, view.precision),
            uniform=format_fixed(example.uniform, view.precision),
        )
    meaning = say(view, "A high value means: {meaning}.", meaning=localize(document.says, view))
    return sentences([values, meaning], view)


def softmax_blocks(document: SoftmaxTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "softmax" as blocks: scores, exponentials, sum and quotients, and the
    same with the maximum subtracted."""
    scores = document.scores
    weights = document.weights
    temperature = brief(document.temperature)
    note = say(
        view, "s = score / {temperature}; w = exp(s) / sum of exp(s)", temperature=temperature
    )
    title = plural(
        "softmax of {count} number at temperature {temperature}",
        "softmax of {count} numbers at temperature {temperature}",
        count=len(scores),
        temperature=temperature,
    )
    if document.temperature == 1:
        note = say(view, "w = exp(s) / sum of exp(s)")
        title = plural("softmax of {count} number", "softmax of {count} numbers", count=len(scores))

    def column(numbers: Iterable[float | None]) -> tuple[list[str], str]:
        """The texts of a column of numbers, and "" for its sum, which is not shown."""
        return [format_fixed(number, view.precision) for number in numbers], ""

    # the columns, each with its title, its texts and its total
    columns = [
        ("", list(map(str, range(len(scores)))), say(view, "sum")),
        (spell("score", ascii=view.ascii), *column(document.numbers)),
        ("s", *column(scores)),
        ("exp(s)", *adding_column(document.exponentials, document.sum, view.precision)),
        ("s − max", *column(document.shifted)),
        (
            "exp(s − max)",
            *adding_column(document.shifted_exponentials, document.shifted_sum, view.precision),
        ),
        ("w", *adding_column(weights, 1.0, view.precision)),
    ]
    if document.temperature == 1:
        # scores that are not divided are what was given
        del columns[1]
    names, texts, totals = zip(*columns, strict=True)
    rows = list(zip(*texts, strict=True))
    # the row of the largest weight stands out
    strong = weights.index(max(weights))
    body = ledger(names, rows, totals, view, title=say(view, title), note=note, strong=strong)

    template = message(
        "The maximum, {highest}, may be subtracted from every score: numerator and sum "
        "shrink by the same factor exp({highest}), and nothing overflows."
    )
    if document.sum is None and None not in document.exponentials:
        template = message(
            "The sum of the exponentials, each up to exp({highest}), is too large for any float: only"
            " the subtracted form can be computed."
        )
    elif document.sum is None:
        template = message(
            "exp of {highest} is too large for any float: only the subtracted form can be computed."
        )
    shift = say(view, template, highest=format_fixed(document.highest, view.precision))
    facts = say(
        view,
        "largest weight {largest} · entropy {entropy} nats of at most {limit} · gradient norm"
        " {gradient}",
        largest=format_fixed(max(weights), view.precision),
        entropy=format_fixed(document.entropy, view.precision),
        limit=format_fixed(math.log(len(scores)), view.precision),
        gradient=format_fixed(document.gradient, view.precision),
    )
    block = stack(body, remark(shift, view), remark(facts, view), _gradient_remark(view))
    return (block, softmax_answer(document, view))


def scaling_blocks(document: ScalingTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "scaling" as blocks: the measured variance of q·k beside theory, and the
    softmax unscaled and scaled."""
    # the variance of q·k under each scale
    columns = ["", say(view, "measured"), say(view, "standard error"), say(view, "theory")]
    rows = [
        [
            f"var({_scaled_product(row.scale, document, view)})",
            *(
                format_fixed(getattr(row, name), view.precision)
                for name in ("variance", "variance_error", "theory")
            ),
        ]
        for row in document.variance
    ]
    pairs_note = say(
        view, "measured on {pairs} pairs (seed {seed})", pairs=document.samples, seed=document.seed
    )
    # of the products that are not scaled, which come first
    first = document.variance[0]
    agree = ""
    if first.standard_errors is not None:
        errors = f"{first.standard_errors:.1f}"
        agree = say(
            view, "The measured variance is {errors} standard errors from theory.", errors=errors
        )
    variance = stack(
        ledger(columns, rows, [], view, title="var(q·k)", note=pairs_note), remark(agree, view)
    )

    # what each scale does to a softmax
    bar_width = max(min(view.width - 64, 24), 0)  # cells of the bars, of what other columns leave
    softmax_table_rows = []
    for row in document.softmax:
        name = say(view, "uniform")
        if row.scale != "uniform":
            name = _scaled_product(row.scale, document, view)
        softmax_table_rows.append(
            [
                name,
                format_fixed(row.largest, view.precision),
                bar(row.largest, bar_width, ascii=view.ascii),
                format_fixed(row.entropy, view.precision),
                format_fixed(row.gradient, view.precision),
            ]
        )
    softmax_columns = [
        "",
        say(view, "largest weight"),
        "",
        say(view, "entropy"),
        say(view, "gradient norm"),
    ]
    queries_note = say(
        view,
        plural("means over {count} query", "means over {count} queries", count=document.queries),
    )
    softmax_table = table(
        softmax_columns,
        softmax_table_rows,
        view,
        align=["left", "right", "left", "right", "right"],
        title=plural(
            "what that does to a softmax over {count} key",
            "what that does to a softmax over {count} keys",
            count=document.keys,
        ),
        note=queries_note,
        bars=2,  # the column of the bars
    )
    claim = lead(
        "why scores are divided by √d_k",
        say(
            view,
            "q and k: {d_k} independent entries, mean 0, variance 1. Each product q_i·k_i has "
            "mean 0 and variance 1, so their sum q·k has variance d_k = {d_k}.",
            d_k=document.d_k,
        ),
        view,
    )
    softmax = stack(softmax_table, _gradient_remark(view))
    return (claim, variance, softmax, scaling_answer(document, view))


def _gradient_remark(view: View) -> Lines:
    """What the gradient norm of a softmax measures, as `peakedness` computes it."""
    return remark(
        say(
            view,
            "gradient norm: how much all weights change when each score in turn changes a little, "
            "√ of the sum of (w_i·(1 − w_i))² over all i and (w_i·w_j)² over all i and other j. Near 0 "
            "a change of the scores changes hardly any weight, and hardly anything is learned.",
        ),
        view,
    )


def _scaled_product(scale: str, document: ScalingTopic, view: View) -> str:
    """q·k with what a scale divides it by, such as `q·k / √64`.

    scale: one of `SCALES`.
    """
    divisor = {
        "none": "",
        "sqrt-dk": f" / √{document.d_k}",
        "sqrt-dmodel": f" / √{document.d_model}",
    }[scale]
    return spell(f"q·k{divisor}", ascii=view.ascii)


def matrix_softmax_blocks(document: MatrixSoftmaxTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "matrix-softmax" as blocks: the same scores through a softmax of each row
    and through one of the whole matrix."""
    # the names of queries and keys; learned keys stand behind the tokens
    texts = [token.text for token in document.tokens]
    keys = texts + [f"bias_k {index}" for index in range(len(document.scores[0]) - len(texts))]
    sums = [float(value) for value in document.row_sums]
    rows = matrix(
        document.row_softmax,
        texts,
        keys,
        view,
        title="by rows",
        note="each query spreads 1 over the keys",
    )
    whole = matrix(
        document.whole,
        texts,
        keys,
        view,
        title="over the whole matrix",
        note="all queries together share 1",
    )

    # what each query gets in all
    sum_texts, sum_total = adding_column(sums, sum(sums), view.precision)
    sum_rows = [
        [position_and_text(index, text, NAME, view), format_fixed(1.0, view.precision), sum_text]
        for index, (text, sum_text) in enumerate(zip(texts, sum_texts, strict=True))
    ]
    total = [say(view, "sum"), format_fixed(float(len(texts)), view.precision), sum_total]
    columns = ["", say(view, "by rows"), say(view, "over the whole matrix")]
    sum_table = ledger(columns, sum_rows, total, view, title="row sum")
    return (
        header(document, view),
        stack(heading("softmax by rows, and over the whole matrix", "", view), rows),
        whole,
        sum_table,
        matrix_answer(document, view),
    )


def softmax_rows(document: SoftmaxTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each score."""
    yield ["index", "score", "exponential", "shifted", "shifted_exponential", "weight"]
    columns = ("scores", "exponentials", "shifted", "shifted_exponentials", "weights")
    for index in range(len(document.scores)):
        yield [index, *(getattr(document, name)[index] for name in columns)]


def scaling_rows(document: ScalingTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each scale."""
    yield ["scale", "variance", "variance_error", "theory", "largest", "entropy", "gradient"]
    # uniform weights, the last of `softmax`, have no variance of scores
    for row, soft in zip(document.variance, document.softmax, strict=False):
        yield [
            row.scale,
            row.variance,
            row.variance_error,
            row.theory,
            soft.largest,
            soft.entropy,
            soft.gradient,
        ]


def matrix_rows(document: MatrixSoftmaxTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then for each query and key its weight
    by rows and over the whole matrix."""
    yield ["query", "key", "row_softmax", "matrix_softmax"]
    for query, (row, whole) in enumerate(zip(document.row_softmax, document.whole, strict=True)):
        for key, (weight, share) in enumerate(zip(row, whole, strict=True)):
            yield [query, key, float(weight), float(share)]


# The screen of the topic "order": whether attention sees the order of its tokens.

OUTPUTS = 8
"""Tokens whose outputs are shown in both orders."""
NAME, SHORT_NAME = 14, 12
"""Cells of a token's text in a table; in one of many columns."""


def _order_sentences(document: OrderTopic, view: View) -> Iterator[str]:
    """Yield sentences on whether attention notices the order of the tokens, for all position
    encodings that ran, or for the only one."""
    rows = [row for row in document.order_rows if row.order == document.order]
    plain = _row_without_positions(document)

    # without positions and mask it does not; which encodings and masks make it do so
    if plain is not None and plain.equal:
        yield say(
            view,
            "Without a position encoding or a mask, permuting the tokens permutes the outputs "
            "and changes nothing else (largest difference {difference}, rounding).",
            difference=_difference_text(plain.max_difference),
        )
        if changed_rows := [row for row in rows if not row.equal]:
            sizes = [row.max_difference for row in changed_rows]
            yield say(
                view,
                "The order is seen with {ways}: an output then differs by {least} to {most}.",
                ways=say(view, contextual("between", ", ")).join(
                    _way_to_see_order(row, view) for row in changed_rows
                ),
                least=_difference_text(min(sizes)),
                most=_difference_text(max(sizes)),
            )
        yield from _distance_sentence(document, view)
        return

    # a single model: whether it does, and which word's output changes most
    row = plain or document.order_rows[0]
    if row.equal:
        unseen = say(view, "The order is not seen: the outputs only move with their tokens.")
        # the reason, where there is one to tell, stands for the plain statement
        yield next(_distance_sentence(document, view), unseen)
        return
    # of the words that the model knows; where it knows none, the one whose output differs most
    in_vocabulary = [
        index for index in range(len(row.per_token)) if not document.tokens[index].unknown
    ]
    most_moved = max(in_vocabulary or [row.token], key=lambda index: row.per_token[index])
    yield say(
        view,
        "The order is seen: the output of {word} changes by {size} where the tokens stand in the"
        " other order.",
        word=quoted_token(document.tokens, most_moved, view),
        size=_difference_text(float(row.per_token[most_moved])),
    )


def _distance_sentence(document: OrderTopic, view: View) -> Iterator[str]:
    """Yield why a text read backwards has the same outputs, where another order has others."""
    if any(row.order != document.order and not row.equal for row in document.order_rows):
        yield say(
            view,
            "Read backwards, all distances |i − j| stay the same, and symmetric ALiBi knows "
            "nothing else: its outputs change only where an order changes the distances.",
        )


def _row_without_positions(document: OrderTopic) -> OrderRow | None:
    """The row of the run without position encoding and without mask; None where no model ran so."""
    rows = [row for row in document.order_rows if row.order == document.order]
    return next((row for row in rows if (row.position, row.mask) == ("none", "none")), None)


def order_answer(document: OrderTopic, view: View) -> Lines:
    """The text tinted by how far each word's output changes with the order, without positions where
    that was run and else in the first run, and sentences on whether the order matters."""
    row = _row_without_positions(document) or document.order_rows[0]
    conventions = {"position": convention(row.position, view), "mask": convention(row.mask, view)}
    texts = _order_sentences(document, view)
    if row.equal:
        no_tint = say(
            view,
            "no tint: with position {position} and mask {mask} no word's output changes",
            **conventions,
        )
        tinted_sentence = shaded_sentence(
            document.text, document.tokens, shares=None, view=view, query=None, tint=""
        )
        return stack(tinted_sentence, remark(no_tint, view), sentences(texts, view))
    shares = np.divide(row.per_token, row.max_difference)
    tint = message(
        "tint: how far the word's output moves (position {position}, mask {mask}), against the one"
        " that moves most",
        **conventions,
    )
    return tinted_answer(document, shares, texts, view, query=None, tint=tint)


def _way_to_see_order(row: OrderRow, view: View) -> str:
    """What brings the order into a run: its position encoding, else its mask."""
    if row.position != "none":
        return row.position
    if row.mask == "causal":
        return say(view, "a causal mask")
    return row.mask


COMMON_WORDS = {"none": message("none"), "causal": message("causal")}
"""Words among the names of position encodings and masks; the others are names."""


def convention(name: str, view: View) -> str:
    """The name of a position encoding or a mask as options spell it, with the words "none" and
    "causal" in the view's language."""
    if name in COMMON_WORDS:
        return say(view, COMMON_WORDS[name])
    return name


def _difference_text(difference: float) -> str:
    """Write a difference of outputs: three significant digits, two below 0.001."""
    if difference < 1e-3:
        return f"{difference:.2g}"
    return f"{difference:.3g}"


def order_blocks(document: OrderTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "order" as blocks: both orders of the tokens, then by position encoding
    and mask how much the outputs differ."""
    texts = [token.text for token in document.tokens]
    # single letters are set without blanks
    gap = ""
    if any(len(text) != 1 for text in texts):
        gap = " "

    def text_in_order(order: Iterable[int]) -> str:
        """The tokens' texts in the order that a list of positions gives."""
        return label(gap.join(texts[index] for index in order), ascii=view.ascii)

    lines = [
        fact(contextual("order of tokens", "from"), [text_in_order(range(len(texts)))], view),
        fact(contextual("order of tokens", "to"), [text_in_order(document.order)], view),
    ]
    columns = say_each(view, "position", "mask", "max |difference|", "largest at", "outputs")
    # a difference is written as 1.23e-07: one of its digits stands before the point
    digits = max(view.precision - 1, 1)
    rows = []
    for row in document.order_rows:
        position = convention(row.position, view)
        if row.order != document.order:
            position += " *"
        verdict = message("differs")
        if row.equal:
            verdict = message("equal, but for rounding")
        rows.append(
            [
                position,
                convention(row.mask, view),
                f"{row.max_difference:.{digits}e}",
                position_and_text(row.token, texts[row.token], SHORT_NAME, view),
                say(view, verdict),
            ]
        )
    body = table(
        columns,
        rows,
        view,
        align=["left", "left", "right"],
        title="does attention see the order of the tokens?",
        note="the same tokens in another order; each token's output against its own",
    )
    other_orders = dict.fromkeys(
        tuple(row.order) for row in document.order_rows if row.order != document.order
    )
    order_notes = [
        remark(say(view, "* in another order: {text}", text=text_in_order(order)), view)
        for order in other_orders
    ]
    slopes = next((row.slopes for row in document.order_rows if row.slopes is not UNSET), UNSET)
    sides = [_outputs_side_by_side(document, row, view) for row in _rows_with_outputs(document)]
    return (
        header(document, view),
        stack(*lines),
        *sides,
        _weights_in_both_orders(document, view),
        stack(body, *order_notes, *slope_remarks(slopes, view)),
        order_answer(document, view),
    )


MOST_SLOPES = 16
"""Heads whose slopes are written out."""


def slope_remarks(slopes: Numbers | UnsetType, view: View) -> list[Lines]:
    """What ALiBi takes off a score, and the slope of each head; of a single head, that it is small
    and which number of heads shows more. [] without slopes.

    slopes: of each head, [head].
    """
    if slopes is UNSET:
        return []
    values = np.asarray(slopes, np.float64)
    count = len(values)
    texts = []
    # the rule is told where it holds: slopes of other numbers of heads, and of some models, follow
    # another
    is_power_of_two = count & (count - 1) == 0
    if is_power_of_two and np.allclose(values, alibi_slopes(count)):
        texts.append(
            say(
                view,
                "ALiBi takes slope·|i − j| off a score; with h heads, a power of two, head n,"
                " counted from 0, has the slope 2^(−8·(n + 1)/h).",
            )
        )
    if count == 1:
        texts.append(
            say(
                view,
                "With one head the slope is {slope} = 1/{inverse}: a word one place further off"
                " loses {slope} of its score, which hardly shows. --num-heads 8 has slopes from 1/2"
                " to 1/256.",
                slope=f"{values[0]:.4f}",
                inverse=f"{1 / values[0]:.0f}",
            )
        )
    else:
        listed = ", ".join(f"{value:.6g}" for value in values[:MOST_SLOPES])
        if count > MOST_SLOPES:
            listed += ", …"
        texts.append(
            say(
                view,
                "ALiBi's slopes of the {count} heads, head 0 first: {slopes}.",
                count=count,
                slopes=listed,
            )
        )
    return [remark(spell(text, ascii=view.ascii), view) for text in texts]


def _rows_with_outputs(document: OrderTopic) -> list[OrderRow]:
    """The rows whose outputs are shown: the first, and, where its outputs are equal in both orders,
    the first that differs."""
    rows = [
        row
        for row in document.order_rows
        if row.order == document.order and row.outputs is not UNSET
    ]
    if not rows or not rows[0].equal:
        return rows[:1]
    differing = [row for row in rows[1:] if not row.equal]
    return [rows[0], *differing[:1]]


def _weights_in_both_orders(document: OrderTopic, view: View) -> Lines:
    """The weights of one word on each key, in both orders of the tokens, for the runs whose outputs
    are shown: where weights are the same, outputs are, too. Empty where the document lacks them."""
    if document.query is UNSET:
        return Lines()
    texts = [token.text for token in document.tokens]
    values = []
    names = []
    for row in _rows_with_outputs(document):
        if row.weights is UNSET or row.moved_weights is UNSET:
            return Lines()
        # what tells the order: the position encoding, or else the mask
        name = row.position
        if name == "none":
            name = row.mask
        name = convention(name, view)
        values += [row.weights, row.moved_weights]
        names += [name, spell(f"{name}′", ascii=view.ascii)]
    word = label(texts[document.query], ascii=view.ascii)
    note = message("columns: keys, in the first order; ′: with the tokens in the other order")
    body = matrix(
        values,
        names,
        key_names(texts, values),
        view,
        limits=(0.0, 1.0),
        title=say(view, 'why: the weights of "{query}" on each word, in both orders', query=word),
        note=spell(say(view, note), ascii=view.ascii),
    )
    return stack(body, sentences(order_reasons(document, view), view))


def order_reasons(document: OrderTopic, view: View) -> list[str]:
    """Why attention alone sees no order, then what each position encoding of the runs, and a mask,
    does instead."""
    reasons = [
        say(
            view,
            "Without a position encoding and a mask, attention sees no order: a score q·k is made"
            " of two words' vectors, however far apart they stand, and the output adds up w·v:"
            " terms of a sum may come in any order.",
        )
    ]
    names_by_reason: dict[str, list[str]] = {}
    for row in document.order_rows:
        for name in _encoding_names(row.position):
            names = names_by_reason.setdefault(_encoding_reason(name), [])
            spoken = convention(name, view)
            if spoken not in names:
                names.append(spoken)
    for reason, names in names_by_reason.items():
        reasons.append(say(view, reason, names=listing(names)))
    if any(row.mask != "none" for row in document.order_rows):
        reasons.append(say(view, "The mask says by their places which keys a query sees."))
    return reasons


def _encoding_names(position: str) -> list[str]:
    """The position encodings of a run without "none": of "rope (0, 2), none (1)" it is ["rope"].

    position: as the header says it, each with its layers where they differ.
    """
    names = re.sub(r" \([^)]*\)", "", position).split(", ")
    return [name for name in names if name != "none"]


def _encoding_reason(name: str) -> str:
    """The sentence on how a position encoding, such as "rope:500000", brings places into scores."""
    kind = name.partition(":")[0]
    if kind in ("sinusoidal", "learned", "halves", "timescales"):
        return message(
            "{names}: a vector for its place is added to each word's vector, and q, k and v are"
            " made of the sum."
        )
    if kind == "rope":
        return message(
            "{names}: q and k are turned by their positions, so a score changes with the distance"
            " between the two words."
        )
    if kind == "alibi":
        return message(
            "{names}: slope·|i − j| is taken off each score; |i − j| is how far apart the words are."
        )
    if kind in ("t5-buckets", "disentangled", "relative-sines"):
        return message(
            "{names}: to each score is added what belongs to the distance between the two words."
        )
    return message("{names}: the place is brought into the scores.")


def _outputs_side_by_side(document: OrderTopic, row: OrderRow, view: View) -> Lines:
    """The first entries of each token's output in both orders, under one row's position encoding
    and mask.
    """
    assert row.outputs is not UNSET
    assert row.moved_outputs is not UNSET

    # as many tokens and entries as are shown
    texts = [token.text for token in document.tokens]
    token_count = len(texts)
    if not view.full:
        token_count = min(len(texts), OUTPUTS)
    tokens_shown = range(token_count)
    names = [position_and_text(index, texts[index], SHORT_NAME, view) for index in tokens_shown]
    before = as_matrix(row.outputs)
    after = as_matrix(row.moved_outputs)
    # each entry has a column in either order, with sign, digits before the point, point and gap;
    # a gap of 2 cells follows the names
    column_width = view.precision + 7
    most = max((view.width - max(map(cells, names)) - 2) // (2 * column_width), 1)
    entries = range(min(most, before.shape[1]))

    # the entries in the first order, then those in the second
    sides = [
        say(view, name)
        for name in (contextual("order of tokens", "from"), contextual("order of tokens", "to"))
    ]
    columns = [say(view, "token"), *(f"{side} {index}" for side in sides for index in entries)]
    outputs = np.hstack([before[:, entries], after[:, entries]])
    lines = [
        [name, *(format_fixed(float(value), view.precision) for value in outputs[index])]
        for index, name in zip(tokens_shown, names, strict=True)
    ]
    title = say(
        view,
        "outputs O in both orders, position {position}, mask {mask}: {verdict}",
        position=convention(row.position, view),
        mask=convention(row.mask, view),
        verdict=say(view, "equal, but for rounding" if row.equal else "differs"),
    )
    note = message("first {count} entries of each token's output", count=len(entries))
    if len(entries) == 1:
        note = message("the first entry of each token's output")
    body = ledger(columns, lines, [], view, title=title, note=say(view, note))
    count = len(texts) - len(tokens_shown)
    more = plural(
        "{count} more token; --full shows all", "{count} more tokens; --full shows all", count=count
    )
    return stack(body, remark(say(view, more) if count else "", view))


def order_rows(document: OrderTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then for each position encoding and
    mask how far outputs change with the order.
    """
    yield ["position", "mask", "order", "max_difference", "token", "tolerance", "equal"]
    for row in document.order_rows:
        values = [getattr(row, name) for name in ("max_difference", "token", "tolerance", "equal")]
        yield [row.position, row.mask, " ".join(map(str, row.order)), *values]


# The screen of the topic "metric": what a metric means, and its value for a small example.

TOKENS = "abcdefgh"
"""How the example's tokens are called."""


def metric_blocks(document: MetricTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "metric" as blocks: what the metric means, and its value for the example
    matrix and for uniform attention."""
    fields = (
        (message("formula"), document.formula),
        (message("range"), document.range),
        (message("unit"), document.unit),
        (message("taken over"), document.row_kind),
        (message("note"), document.note),
        (message("source"), document.source),
        (message("needs"), document.needs),
    )
    parts = [fact(name, [value], view) for name, value in fields if value]
    example = document.example
    texts = list(TOKENS[: len(example.weights)])
    weights = as_matrix(example.weights)
    visible_weights = np.where(np.tri(*weights.shape) > 0, weights, np.nan)
    title = message("an example: a causal head of four tokens")
    example_matrix = matrix(visible_weights, texts, texts, replace(view, precision=2), title=title)
    values = (
        (say(view, "this head"), example.value),
        (say(view, "uniform over the visible keys"), example.uniform),
    )
    rows = [
        [name, "-" if value is None else format_fixed(value, view.precision)]
        for name, value in values
    ]
    body = table(["", document.name], rows, view, align=["left", "right"])
    rows_note = say(view, "{count} of {total} rows used", count=example.rows, total=len(texts))
    blocks = [heading(document.name, document.says, view), stack(*parts)]
    if example.rows:  # none for a metric of texts, words or vectors, which a matrix does not have
        blocks += [example_matrix, stack(body, remark(rows_note, view))]
    return (*blocks, metric_answer(document, view))


def metric_rows(document: MetricTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each fact about the
    metric, and its values for the example."""
    yield ["field", "value"]
    for name in ("name", "says", "formula", "range", "unit"):
        yield [name, getattr(document, name)]
    yield ["rows", document.row_kind]
    yield ["note", document.note]
    yield ["source", document.source]
    yield ["value", document.example.value]
    yield ["uniform", document.example.uniform]


# Every metric with a line: what bare `attn explain metric` shows.


def metrics_screen(view: View) -> Lines:
    """The list of all metrics, each with what a high value means; in a brief view their names
    alone.
    """
    from attncli.measure.layer_metrics import EVERY_METRIC  # only this list needs them

    if view.brief:
        names = say(view, contextual("between", ", ")).join(EVERY_METRIC)
        return sentences(
            [say(view, "{count} metrics: {metrics}.", count=len(EVERY_METRIC), metrics=names)],
            view,
        )
    rows = [[name, localize(metric.says, view)] for name, metric in EVERY_METRIC.items()]
    more = say(
        view,
        "{count} metrics: attn explain metric NAME tells the formula, the range and an example of"
        " one.",
        count=len(EVERY_METRIC),
    )
    return stack_spaced(
        table(["metric", message("a high value means")], rows, view), sentences([more], view)
    )
