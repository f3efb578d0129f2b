"""The screen of `attn.compare_models/1`: the two models, their layers and heads by how far they
moved, what comes next, and the answer in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from msgspec import UNSET

from attncli.documents.parts import NextToken
from attncli.draw.lines import Lines, fit_to_view, remark, sentences, stack, stack_spaced
from attncli.draw.numbers import bar, format_small_signed, percent
from attncli.draw.safe import label
from attncli.draw.screen_header import facts, mask_and_position, warning
from attncli.draw.tables import table
from attncli.draw.token_names import quote_text
from attncli.draw.view import View
from attncli.features.compare_models.document import (
    ChangedNumber,
    CompareModelsDocument,
    LogProbability,
    ModelChange,
)
from attncli.language import message, plural, say
from attncli.measure.mean_intervals import FEWEST
from attncli.mechanism.spec import head_label

SAME = 1e-9
"""Divergences up to this are rounding alone."""
SMALLEST = 1e-4
"""Divergences below this are shown as that."""
BAR = 24
"""Cells of a bar."""
MOST_LAYERS = 12
"""Layers of a model all of which are shown."""


def compare_models_screen(document: CompareModelsDocument, view: View) -> Lines:
    """Both models, their layers and heads by how far they moved, and the answer in words."""
    answer = sentences(compare_models_sentences(document, view), view)
    if view.brief:
        return fit_to_view(answer, view)
    warnings = [warning(text, view) for text in document.warnings]
    both = _both_models(document, view)
    tables = stack_spaced(layer_table(document.change, view), _head_table(document.change, view))
    return fit_to_view(stack_spaced(both, *warnings, tables, answer), view)


def compare_models_rows(document: CompareModelsDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`, names of columns first: a row for each head, the one that
    moved most first."""
    yield ("layer", "head", "js", "low", "high", "max_difference")
    for head in document.change.heads:
        js = head.js
        yield (head.layer, head.head, js.mean, js.low, js.high, head.max_difference)


def _both_models(document: CompareModelsDocument, view: View) -> Lines:
    """A table with a row for each model, below it their masks and positions, and how many texts
    both read."""
    rows = []
    for letter, side in (("A", document.a), ("B", document.b)):
        quantization = "-"
        if side.model.quantization:
            quantization = label(str(side.model.quantization), ascii=view.ascii)
        rows.append([letter, label(side.name, ascii=view.ascii), quantization])
    read = plural(
        "{count:,} text of {tokens:,} tokens",
        "{count:,} texts of {tokens:,} tokens together",
        count=document.texts,
        tokens=document.tokens,
    )
    columns = ["", message("model"), message("quantised")]
    return stack(table(columns, rows, view), *_attention_lines(document, view), remark(read, view))


def _attention_lines(document: CompareModelsDocument, view: View) -> Iterator[Lines]:
    """Yield a line with the mask and the positions of both models, or one for each where they
    differ."""
    both = [
        mask_and_position(side.attention.mask, side.attention.position, view)
        for side in (document.a, document.b)
    ]
    if both[0] == both[1]:
        yield facts(both[0], view)
        return
    for letter, parts in zip("AB", both, strict=True):
        yield facts([letter, *parts], view)


def layer_table(change: ModelChange, view: View) -> Lines:
    """A table of how far the heads of each layer moved; of many layers those that moved most, in
    their order, unless the view is full."""
    shown = list(change.layers)
    if len(shown) > MOST_LAYERS and not view.full:
        most = sorted(shown, key=lambda layer: -layer.js.mean)[: view.top]
        shown = [layer for layer in shown if layer in most]
    # the whole bar is at least the bound, so that small changes are not drawn as if they were large
    whole = max(*(layer.js.mean for layer in change.layers), change.beyond, SAME)
    rows = [
        [
            str(layer.layer),
            divergence_text(layer.js),
            bar(layer.js.mean / whole, BAR, ascii=view.ascii),
            str(layer.moved),
        ]
        for layer in shown
    ]
    columns = [message("layer"), "JS", "", message("heads moved")]
    note = message(
        "JS: Jensen–Shannon divergence of the rows of A and B, nats, at most 0.69; moved: above"
        " {beyond}",
        beyond=f"{change.beyond:g}",
    )
    title = message("how far each layer's heads moved, means")
    # column 2 has the bars
    body = table(columns, rows, view, align=["right", "left", "left", "right"], title=title, bars=2)
    count = len(change.layers) - len(shown)
    more = ""
    if count:
        more = say(view, "{count} layers that moved less; --full shows all", count=count)
    return stack(body, remark(more, view), remark(note, view))


def _head_table(change: ModelChange, view: View) -> Lines:
    """A table of the heads that moved most, of all in a full view."""
    shown = change.heads
    if not view.full:
        shown = shown[: view.top]
    rows = [
        [
            head_label(head.layer, head.head),
            divergence_text(head.js),
            format_small_signed(head.max_difference, 2),
        ]
        for head in shown
    ]
    columns = [message("head"), "JS", message("largest change of a weight")]
    body = table(
        columns, rows, view, align=["left", "left", "right"], title=message("heads that moved most")
    )
    count = len(change.heads) - len(shown)
    more = ""
    if count:
        more = say(view, "{count} more heads; --top N or --full shows them", count=count)
    return stack(body, remark(more, view))


def next_table(change: ModelChange, view: View) -> Lines:
    """A table of the likeliest next tokens of both models side by side; nothing where neither
    predicts."""
    if change.next is UNSET:
        return Lines()
    rows = [
        [next_text(first, view), next_text(second, view)]
        for first, second in zip_longest(change.next.a, change.next.b)
    ]
    return table(["A", "B"], rows, view, title=message("what comes next"))


def next_text(token: NextToken | None, view: View) -> str:
    """A next token with its probability, such as `"␣Paris" 77%`.

    Args:
        token: The token; None for none.
        view: How it is shown.

    Returns:
        The text; "" for none.
    """
    if token is None:
        return ""
    return f"{quote_text(token.token.text, view)} {percent(token.probability)}"


def divergence_text(number: ChangedNumber) -> str:
    """A divergence with its interval, to two digits, such as `0.12 [0.1, 0.15]`."""
    return _with_interval(number, lambda value: _two_digits(max(value, 0.0)))


def _with_interval(number: ChangedNumber, write: Callable[[float], str]) -> str:
    """A number with its interval behind it, if it has one: `0.12 [0.1, 0.15]`."""
    mean = write(number.mean)
    if number.low is None or number.high is None:
        return mean
    return f"{mean} [{write(number.low)}, {write(number.high)}]"


def _two_digits(value: float) -> str:
    """A divergence to two significant digits."""
    return _divergence_text(value, 2)


def _divergence_text(value: float, digits: int) -> str:
    """A divergence to `digits` significant digits; "0" for what rounding alone makes, "<0.0001"
    below that."""
    if value <= SAME:
        return "0"
    if value < SMALLEST:
        return f"<{SMALLEST}"
    return f"{value:.{digits}g}"


def compare_models_sentences(document: CompareModelsDocument, view: View) -> list[str]:
    """The sentences of the answer: how the two models differ over the texts."""
    return [*change_sentences(document.change, document.texts, view)]


def change_sentences(
    change: ModelChange, texts: int, view: View, *, is_part: bool = False
) -> Iterator[str]:
    """Sentences on how two models differ: how many heads moved and which one most, how likely the
    texts are, and what comes next.

    texts: over how many the numbers are means.
    is_part: whether only some rows were compared.
    """
    yield _most_moved_sentence(change, texts, view, is_part=is_part)
    if change.logprob is not None:
        yield _likelihood_sentence(change.logprob, texts, view)
    if change.agreement is not None:
        template = message(
            "After {share} of the tokens A and B find the same next token likeliest."
        )
        yield say(view, template, share=_share_text(change.agreement))
    if change.next is not UNSET and change.next.a and change.next.b:
        yield _next_sentence(change.next.a[0], change.next.b[0], view)
    if 1 < texts < FEWEST:
        yield say(view, "Below 20 texts there is no interval.")


def _most_moved_sentence(change: ModelChange, texts: int, view: View, *, is_part: bool) -> str:
    """A sentence on how many heads moved, and which one moved most.

    is_part: whether only some rows were compared, so that the sentence must say so.
    """
    most = change.heads[0]
    if most.js.mean <= SAME and is_part:
        return say(
            view, "In the rows compared none of the {heads} heads moved.", heads=len(change.heads)
        )
    if most.js.mean <= SAME:
        return say(view, "None of the {heads} heads moved.", heads=len(change.heads))
    if is_part:
        template = message(
            "In the rows compared {moved} of {heads} heads moved by more than {beyond}"
            " (Jensen–Shannon, nats); the largest: layer {layer} head {head}, {js}."
        )
    elif texts > 1:
        template = message(
            "{moved} of {heads} heads moved by more than {beyond} on average (Jensen–Shannon,"
            " nats); the largest: layer {layer} head {head}, {js}."
        )
    else:
        template = message(
            "{moved} of {heads} heads moved by more than {beyond} (Jensen–Shannon, nats); the"
            " largest: layer {layer} head {head}, {js}."
        )
    return say(
        view,
        template,
        moved=change.moved,
        heads=len(change.heads),
        beyond=f"{change.beyond:g}",
        layer=most.layer,
        head=most.head,
        js=_js_beside(most.js, change.beyond),
    )


def _js_beside(number: ChangedNumber, beyond: float) -> str:
    """A divergence with its interval, to as many digits as tell it from the bound: it must not read
    as if 0.01 were more than 0.01."""
    digits = 2
    # nine digits at most: what is equal to so many is the bound itself
    while digits < 9 and f"{number.mean:.{digits}g}" == f"{beyond:.{digits}g}":
        digits += 1
    return _with_interval(number, lambda value: _divergence_text(max(value, 0.0), digits))


def _likelihood_sentence(logprob: LogProbability, texts: int, view: View) -> str:
    """A sentence on how likely either model finds the texts."""
    if texts > 1:
        template = message(
            "Probability of the texts, the geometric mean per token: {a_share} in A, {b_share} in B;"
            " its logarithm: {a} and {b} nats ({difference})."
        )
    else:
        template = message(
            "Probability of the text, the geometric mean per token: {a_share} in A, {b_share} in B;"
            " its logarithm: {a} and {b} nats ({difference})."
        )
    return say(
        view,
        template,
        a_share=percent(math.exp(logprob.a)),
        b_share=percent(math.exp(logprob.b)),
        a=f"{logprob.a:.2f}",
        b=f"{logprob.b:.2f}",
        difference=_with_interval(logprob.difference, lambda value: format_small_signed(value, 2)),
    )


def _share_text(number: ChangedNumber) -> str:
    """A share in percents with its interval."""
    return _with_interval(number, lambda share: percent(min(max(share, 0.0), 1.0)))


def _next_sentence(first: NextToken, second: NextToken, view: View) -> str:
    """A sentence on the likeliest next token: the same in both models, or one in each.

    first, second: of model A and of model B.
    """
    values = {
        "a": quote_text(first.token.text, view),
        "b": quote_text(second.token.text, view),
        "a_share": percent(first.probability),
        "b_share": percent(second.probability),
    }
    if first.token.id == second.token.id:
        template = message("The likeliest next token is {a}: {a_share} in A, {b_share} in B.")
    else:
        template = message(
            "The likeliest next token is {a} in A ({a_share}), {b} in B ({b_share})."
        )
    return say(view, template, **values)
