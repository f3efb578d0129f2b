"""The screen of the topic "training": from the loss back to W_Q and W_K, and one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from attncli.documents import Numbers
from attncli.draw.lines import Lines, remark, stack
from attncli.draw.numbers import brief, format_fixed, percent, root_of
from attncli.draw.safe import label, spell
from attncli.draw.screen_header import header
from attncli.draw.sentence import not_learned_note
from attncli.draw.shaded_matrix import as_matrix
from attncli.draw.tables import ledger, vectors
from attncli.draw.token_names import position_and_text
from attncli.draw.view import View
from attncli.features.explain.derivation_screen import others_text, weights_as_tints
from attncli.features.explain.document import CheckedEntry, TrainingTopic
from attncli.features.explain.softmax_screens import lead, tinted_answer
from attncli.features.explain.training_topic import text_of_places
from attncli.language import message, say, say_each

KEYS = 8
"""Keys that have a line of their own."""
ENTRIES = 4
"""Rows of a matrix that are shown, those of the largest gradients."""
NAME = 14
"""Cells of a key's name."""
ROUNDING = 1e-12
"""Gradients below it are 0 but for rounding: in float64 those of two equal words are about 1e-17."""


def training_blocks(document: TrainingTopic, view: View) -> Sequence[Lines]:
    """The screen of topic "training" as blocks: the loss, the gradients of weights and scores, of q
    and k, of the matrices, the step, and the answer."""
    query = quoted_places(document, [document.query], view)
    target = quoted_places(document, document.target, view)
    loss = lead(
        say(view, "one training step: how the error reaches W_Q and W_K"),
        say(
            view,
            'The loss asks that "{query}" look at "{target}": L = −ln of the weight it gives there,'
            " −ln {weight} = {loss}.",
            query=query,
            target=target,
            weight=format_fixed(_target_weight(document, document.weights), view.precision),
            loss=format_fixed(document.loss, view.precision),
        ),
        view,
        note=say(
            view,
            "layer {layer} head {head} · learning rate η = {rate}",
            layer=document.layer,
            head=document.head,
            rate=brief(document.learning_rate),
        ),
    )
    return (
        header(document, view),
        loss,
        _scores_table(document, view),
        _vector_table(document, view),
        _matrix_tables(document, view),
        _step_table(document, view),
        _answer(document, query, target, view),
    )


def quoted_places(document: TrainingTopic, places: Sequence[int], view: View) -> str:
    """The text of the tokens at these places as one name, made safe; without quotes."""
    tokens = [document.tokens[place] for place in places]
    return label(text_of_places(document.text, tokens), ascii=view.ascii)


def _target_weight(document: TrainingTopic, weights: object) -> float:
    """The weights of the target's tokens, added up."""
    return float(np.asarray(weights, np.float64)[document.target].sum())


def _keys_shown(document: TrainingTopic, view: View) -> list[int]:
    """The places of the keys with a line of their own, in the order of the text: all that the query
    sees of a short text or in a full view; else those of the target, and those with the largest
    gradients."""
    # (hidden keys have no score)
    places = [place for place, score in enumerate(document.scores) if score is not None]
    if view.full or len(places) <= KEYS:
        return places
    gradients = np.abs(np.asarray(document.score_gradient))
    # False sorts before True: the target first, then the largest gradients
    by_size = sorted(places, key=lambda place: (place not in document.target, -gradients[place]))
    return sorted(by_size[:KEYS])


def _left_out(document: TrainingTopic, view: View) -> list[Lines]:
    """A remark on the visible keys without a line of their own; [] where there are none."""
    visible = sum(score is not None for score in document.scores)
    rest = visible - len(_keys_shown(document, view))
    if not rest:
        return []
    return [remark(say(view, "{others}; --full shows all", others=others_text(rest, view)), view)]


def _key_rows(
    document: TrainingTopic, columns: Sequence[Numbers | Sequence[float | None]], view: View
) -> list[list[str]]:
    """The rows of a table with a line for each key that is shown: its name, then its number in each
    column.

    columns: of each the numbers of all tokens, None for one that the query does not see; that is
        never shown.
    """
    rows = []
    for place in _keys_shown(document, view):
        row = [position_and_text(place, document.tokens[place].text, NAME, view)]
        for column in columns:
            # `or` is for the type checker, as only visible keys are shown
            row.append(format_fixed(float(column[place] or 0.0), view.precision))
        rows.append(row)
    return rows


def _scores_table(document: TrainingTopic, view: View) -> Lines:
    """A table of each key's score, weight, and the gradients of both."""
    numbers: list[Numbers | Sequence[float | None]] = [
        document.scores,
        document.weights,
        document.weight_gradient,
        document.score_gradient,
    ]
    rows = _key_rows(document, numbers, view)
    columns = [
        say(view, "key"),
        *(spell(text, ascii=view.ascii) for text in say_each(view, "score s", "weight w")),
        *(spell(text, ascii=view.ascii) for text in ("∂L/∂w", "∂L/∂s")),
    ]
    body = ledger(
        columns,
        rows,
        [],
        view,
        title=say(view, "1 from the loss to the scores"),
        note="∂L/∂s_j = Σ_i ∂L/∂w_i·w_i(δ_ij − w_j)",
    )
    meaning = say(
        view,
        "∂L/∂w is −1/w of the target and 0 elsewhere. Through the softmax every score gets a part:"
        " below 0 a larger score makes the loss smaller, above 0 larger. Together they are 0.",
    )
    return stack(body, *_left_out(document, view), remark(spell(meaning, ascii=view.ascii), view))


def _vector_table(document: TrainingTopic, view: View) -> Lines:
    """The gradients of q and of each k, their first entries."""
    keys = _keys_shown(document, view)
    texts = [token.text for token in document.tokens]
    gradients = np.asarray(document.key_gradient)
    factor = _scale_text(document)
    of_query = vectors(
        [document.query_gradient],
        [texts[document.query]],
        view,
        title=say(view, "2 from the scores to q and k: {name}", name="∂L/∂q"),
        note=f"∂s_j/∂q = k_j{factor}",
        row_numbers=[document.query],
    )
    of_keys = vectors(
        gradients[keys],
        [texts[place] for place in keys],
        view,
        title="∂L/∂k",
        note=f"∂s_j/∂k_j = q{factor}",
        row_numbers=keys,
    )
    meaning = say(
        view,
        "∂L/∂q = Σ_j ∂L/∂s_j·k_j{factor}: against it q moves towards the keys that should get"
        " more. ∂L/∂k_j = ∂L/∂s_j·q{factor}.",
        factor=factor,
    )
    return stack(of_query, of_keys, remark(spell(meaning, ascii=view.ascii), view))


def _scale_text(document: TrainingTopic) -> str:
    """What q·k is scaled by, as it stands behind a product: `/√64`, or `·0.3`."""
    model = document.model
    # "√64" of a scale "1/√64"; "" of one that is the root of neither width
    root = root_of(document.scale, model.d_k or 0, model.d_model or 0).removeprefix("1/")
    if root:
        return f"/{root}"
    return f"·{brief(document.scale)}"


def _matrix_tables(document: TrainingTopic, view: View) -> Lines:
    """The gradients of W_Q and W_K, the rows with the largest, and one entry of W_Q worked out."""
    blocks: list[Lines] = []
    for name, gradient, note in (
        ("W_Q", document.query_matrix_gradient, "x_iᵀ·∂L/∂q_i"),
        ("W_K", document.key_matrix_gradient, "Σ_j x_jᵀ·∂L/∂k_j"),
    ):
        values = np.asarray(gradient, np.float64)
        rows = list(range(len(values)))
        if not view.full and len(rows) > ENTRIES:
            largest = np.abs(values).max(axis=1)
            rows = sorted(np.argsort(-largest, kind="stable")[:ENTRIES].tolist())
        title = f"∂L/∂{name}"
        if not blocks:
            # the first table has the heading of both
            title = say(view, "3 to the matrices: {name}", name=title)
        blocks.append(vectors(values[rows], [], view, title=title, note=note, row_numbers=rows))
        if len(rows) < len(values):
            more = say(
                view,
                "{count} of {all} rows, those of the largest gradients; --full shows all",
                count=len(rows),
                all=len(values),
            )
            blocks.append(remark(more, view))
    blocks += [
        remark(spell(text, ascii=view.ascii), view) for text in _worked_entries(document, view)
    ]
    return stack(*blocks)


def _worked_entries(document: TrainingTopic, view: View) -> Iterator[str]:
    """Yield an entry of W_Q as a product, the same as a difference of the loss, and what holds of a
    loss of several queries and of one of the output."""
    checks = [check for check in document.checks if check.matrix == "W_Q"]
    first: CheckedEntry = checks[0]  # the entry with the largest gradient
    yield say(
        view,
        "∂L/∂W_Q[{entry},{dim}] = x[{entry}]·∂L/∂q[{dim}] = {x}·{q} = {gradient}; moved up"
        " and down by 0.00001, this entry alone changes L by {difference} per unit.",
        entry=first.entry,
        dim=first.dim,
        x=format_fixed(float(np.asarray(document.x)[document.query, first.entry]), view.precision),
        q=_factor_text(float(np.asarray(document.query_gradient)[first.dim]), view),
        gradient=format_fixed(first.gradient, view.precision),
        difference=format_fixed(first.difference, view.precision),
    )
    yield say(
        view,
        "Of a loss of several queries ∂L/∂W_Q is the sum over them. W_V is not in this loss, which"
        " is of the weights alone; of a loss of the output o = Σ w_j·v_j, ∂L/∂w_j = ∂L/∂o·v_j and"
        " ∂L/∂v_j = w_j·∂L/∂o, and ∂L/∂W_V = Σ_j x_jᵀ·∂L/∂v_j.",
    )


def _factor_text(value: float, view: View) -> str:
    """A number as the second factor of a product: one below 0 in brackets."""
    text = format_fixed(value, view.precision)
    if text.startswith("-"):
        return f"({text})"
    return text


def _step_table(document: TrainingTopic, view: View) -> Lines:
    """A table of each key's score and weight before and after the step, and the loss of both."""
    numbers: list[Numbers | Sequence[float | None]] = [
        document.scores,
        document.new_scores,
        document.weights,
        document.new_weights,
    ]
    rows = _key_rows(document, numbers, view)
    columns = [
        say(view, "key"),
        *(
            spell(text, ascii=view.ascii)
            for text in say_each(view, "s before", "s after", "w before", "w after")
        ),
    ]
    body = ledger(
        columns,
        rows,
        [],
        view,
        title=say(view, "4 one step"),
        note="W − η·∂L/∂W",
    )
    loss = say(
        view,
        "loss {before} before, {after} after",
        before=format_fixed(document.loss, view.precision),
        after=_loss_text(document.new_loss, view),
    )
    return stack(body, *_left_out(document, view), remark(loss, view, style=""))


def _loss_text(loss: float | None, view: View) -> str:
    """A loss with the view's digits; ∞ where the target gets no weight."""
    if loss is None:
        return spell("∞", ascii=view.ascii)
    return format_fixed(loss, view.precision)


def _answer(document: TrainingTopic, query: str, target: str, view: View) -> Lines:
    """The text tinted by the weights after the step, and what the step has changed."""
    before = _target_weight(document, document.weights)
    after = _target_weight(document, document.new_weights)
    values = {
        "query": query,
        "target": target,
        "rate": brief(document.learning_rate),
        "before": percent(before),
        "after": percent(after),
        "loss": format_fixed(document.loss, 2),
        "new_loss": format_fixed(document.new_loss, 2),
    }
    gradients = (document.query_matrix_gradient, document.key_matrix_gradient)
    if max(float(np.abs(as_matrix(gradient)).max()) for gradient in gradients) < ROUNDING:
        result = message(
            "The gradient of W_Q and W_K is 0: no small step changes the loss, which stays {loss}."
            " So it is where the query sees one word alone, however often.",
            **values,
        )
    elif document.new_loss == document.loss:
        result = message(
            "With η = {rate} the step is too small to change the loss, which stays {loss}: a larger"
            " --learning-rate does.",
            **values,
        )
    elif document.new_loss is not None and document.new_loss < document.loss:
        result = message(
            'One step with η = {rate} takes the weight that "{query}" gives "{target}" from {before}'
            " to {after}, and the loss from {loss} to {new_loss}.",
            **values,
        )
    else:
        result = message(
            'With η = {rate} the step goes too far: the weight that "{query}" gives "{target}" goes'
            " from {before} to {after}, and the loss does not fall. A smaller --learning-rate"
            " lowers it.",
            **values,
        )
    size = int(np.size(document.query_matrix_gradient))
    moves = message(
        "Each of the {count:,} numbers of W_Q and W_K moved against its own gradient, by η times "
        "it; where that is 0, it stayed.",
        count=2 * size,  # the head's W_K is as large as its W_Q
    )
    texts = [say(view, text) for text in (result, moves)]
    shares, _ = weights_as_tints(document, document.new_weights)
    return tinted_answer(
        document,
        shares,
        [*texts, not_learned_note(document.model, view)],
        view,
        query=document.query,
        tint=message("tint: the weight that the word gets after the step"),
    )


def training_rows(document: TrainingTopic) -> Iterable[list[object]]:
    """Yield the table for `--plain`: the names of its columns, then a row for each key."""
    yield [
        "key",
        "text",
        "target",
        "score",
        "weight",
        "weight_gradient",
        "score_gradient",
        "new_score",
        "new_weight",
    ]
    for place, token in enumerate(document.tokens):
        yield [
            place,
            token.text,
            place in document.target,
            document.scores[place],
            float(document.weights[place]),
            float(document.weight_gradient[place]),
            float(document.score_gradient[place]),
            document.new_scores[place],
            float(document.new_weights[place]),
        ]
