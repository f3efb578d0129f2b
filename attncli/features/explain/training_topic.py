"""How the error reaches W_Q and W_K, and what one step changes: topic "training" of
`attn.explain/1`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.documents import TokenRow
from attncli.documents.header import header, refuse_lost_rows
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.features.explain.document import CheckedEntry, TrainingTopic
from attncli.features.explain.softmax_topics import float64_of
from attncli.features.run.compute import head_projections
from attncli.inputs.token import Token
from attncli.inputs.word_groups import token_notes
from attncli.measure.row_facts import Bools, Floats
from attncli.mechanism.attention import attention
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.trace import SQUARE, LayerTrace
from attncli.models.model import Model

RATE = 0.01
"""The learning rate where none is given."""
SAME = 1e-3
"""How near q must be to x·W_Q + b, relative to the largest entry; types of 16 bits round more."""
STEP = 1e-5
"""By how much an entry is moved to check its gradient by differences."""
CHECKED = 4
"""Entries of each matrix, those of the largest gradients, that are checked by differences."""


class ProjectedRow(Struct, frozen=True):
    """One query's row of attention as a function of W_Q and W_K.

    x: what the projections read, [token, width].
    query: the position of the query.
    query_bias: b_Q, [dim].
    key_bias: b_K, [dim].
    scale: what q·k is multiplied by.
    score_bias: what positions add to the scores, [key].
    visible: which keys the query sees, booleans [key].
    target: which keys the loss asks for, booleans [key].
    """

    x: Floats
    query: int
    query_bias: Floats
    key_bias: Floats
    scale: float
    score_bias: Floats
    visible: Bools
    target: Bools

    def scores(self, queries: Floats, keys: Floats) -> Floats:
        """The scores of the row, [key], −∞ where hidden, under W_Q and W_K, [width, dim]."""
        q = self.x[self.query] @ queries + self.query_bias
        k = self.x @ keys + self.key_bias
        return np.where(self.visible, q @ k.T * self.scale + self.score_bias, -np.inf)

    def weights(self, queries: Floats, keys: Floats) -> Floats:
        """The weights of the row, [key], computed by the package's own attention."""
        # q of one head and one query, k of one head: [head, token, dim]
        q = (self.x[self.query] @ queries + self.query_bias)[None, None]
        k = (self.x @ keys + self.key_bias)[None]
        result = attention(
            q,
            k,
            np.zeros((1, len(self.x), 1)),  # values, which weights do not depend on
            scale=self.scale,
            bias=self.score_bias[None, None],
            mask=self.visible[None, None],
        )
        return np.asarray(result.weights[0, 0], np.float64)

    def loss(self, queries: Floats, keys: Floats) -> float:
        """−ln of the weight that the target gets; infinite where that is 0."""
        weight = float(self.weights(queries, keys)[self.target].sum())
        if weight > 0:
            return -math.log(weight)
        return math.inf


@checked
def training_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    *,
    layer: int,
    head: int,
    query: int,
    target: Sequence[int] | None = None,
    learning_rate: float = RATE,
) -> TrainingTopic:
    """Build the document of topic "training": the loss −ln w of the weight that a query gives a
    target, its gradient back to W_Q and W_K, and one step of gradient descent.

    Args:
        model: As `attncli.load` returns it.
        text: The text.
        tokens: Its tokens.
        layer: The layer's number.
        head: The head's number in its layer.
        query: The position of the token that looks, from 0.
        target: The positions of the word that it is to look at; None for the word that it sees and
            gives least.
        learning_rate: What the gradient is multiplied by in the step, above 0.

    Returns:
        What `attn explain training --json` writes, in float64. `checks` compares some gradients
        with differences of the loss.

    Raises:
        UsageError: For a learning rate that is not a positive number, and a target of no token.
        UnsupportedError: For a head whose scores are more than x·W_Q·(x·W_K)ᵀ, scaled and biased.
        InputError: For a layer, head or token that is not there, a target that the query does not
            see or that gets all of its weight or none, or a query that sees one key alone.
    """
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise UsageError(
            "{option} is {value}",
            expected="a positive number",
            option="--learning-rate",
            value=learning_rate,
        )
    if target is not None and len(target) == 0:
        raise UsageError("{name} is empty", expected="at least one of them", name="target")
    trace = refuse_lost_rows(
        model.backend, next(iter(model.trace(tokens, layers=[layer], heads=[head], keep=SQUARE)))
    )
    row, w_q, w_k = _projected_row(model, trace, layer, head, query)
    if target is None:
        target = _least_seen(tokens, row.weights(w_q, w_k), row.visible, query)
    row = replace(row, target=np.isin(np.arange(len(tokens)), target))
    weights = row.weights(w_q, w_k)
    _refuse_target(text, tokens, weights, row.visible, target)

    # backwards: from the loss to the weights, by the softmax's Jacobian to the scores, to q and to
    # each k, and to the matrices that made them
    target_weight = float(weights[row.target].sum())
    weight_gradient = np.where(row.target, -1.0 / target_weight, 0.0)
    jacobian = np.diag(weights) - np.outer(weights, weights)
    score_gradient = jacobian @ weight_gradient
    q = row.x[query] @ w_q + row.query_bias
    k = row.x @ w_k + row.key_bias
    query_gradient = score_gradient @ k * row.scale
    key_gradient = np.outer(score_gradient, q) * row.scale
    query_matrix_gradient = np.outer(row.x[query], query_gradient)
    key_matrix_gradient = row.x.T @ key_gradient

    # the step, and the same gradients as differences of the loss
    new_w_q = w_q - learning_rate * query_matrix_gradient
    new_w_k = w_k - learning_rate * key_matrix_gradient
    checks = [
        *_checked_entries(row, "W_Q", (w_q, w_k), query_matrix_gradient),
        *_checked_entries(row, "W_K", (w_q, w_k), key_matrix_gradient),
    ]
    new_loss = row.loss(new_w_q, new_w_k)
    return TrainingTopic(
        **header(model, text, tokens),
        topic="training",
        layer=layer,
        head=head,
        query=query,
        target=list(target),
        learning_rate=learning_rate,
        scale=row.scale,
        x=row.x,
        scores=_finite(row.scores(w_q, w_k)),
        weights=weights,
        loss=row.loss(w_q, w_k),
        weight_gradient=weight_gradient,
        score_gradient=score_gradient,
        q=q,
        k=k,
        query_gradient=query_gradient,
        key_gradient=key_gradient,
        query_matrix_gradient=query_matrix_gradient,
        key_matrix_gradient=key_matrix_gradient,
        checks=checks,
        new_scores=_finite(row.scores(new_w_q, new_w_k)),
        new_weights=row.weights(new_w_q, new_w_k),
        new_loss=new_loss if math.isfinite(new_loss) else None,
        warnings=[*model.warnings, *token_notes(text, tokens)],
    )


def _finite(scores: Floats) -> list[float | None]:
    """Scores as numbers; None where hidden."""
    return [float(score) if np.isfinite(score) else None for score in scores]


def _projected_row(
    model: Model, trace: LayerTrace, layer: int, head: int, query: int
) -> tuple[ProjectedRow, Floats, Floats]:
    """One query's row as a function of W_Q and W_K, without a target yet, and the two matrices,
    [width, dim]. Raises UnsupportedError where the scores of the run are not that function."""
    spec = model.spec.blocks[layer].attention
    stages = {name: float64_of(model, array) for name, array in trace.stages.items()}
    matrices: Mapping[str, object] = {}
    is_plain = spec.hashing is None and spec.softcap is None and not spec.sinks
    if is_plain and "hidden" in stages:
        matrices = head_projections(model, layer, head)
    if "W_Q" not in matrices or "W_K" not in matrices:
        raise _more_than_matrices(model, layer)
    w_q, w_k = (np.asarray(matrices[name], np.float64) for name in ("W_Q", "W_K"))

    # q is x·W_Q and the same bias for every token, and k likewise: what q is besides x·W_Q must be
    # one vector. A rotation or a norm makes it another for each token
    x = stages["hidden"]
    biases = []
    for name, matrix in (("q", w_q), ("k", w_k)):
        vectors = stages[name][0]
        # (learned keys are more than the tokens; some layers project vectors of another width)
        if len(vectors) != len(x) or x.shape[1] != len(matrix):
            raise _more_than_matrices(model, layer)
        rest = vectors - x @ matrix
        bias = rest.mean(axis=0)
        if np.abs(rest - bias).max() > SAME * np.abs(vectors).max():
            raise _more_than_matrices(model, layer)
        biases.append(bias)
    # what the position encoding adds to the scores, where they are not hidden
    masked = stages["masked"][0, query]
    visible = np.isfinite(masked)
    score_bias = stages["biased"][0, query] - stages["capped"][0, query]
    query_bias, key_bias = biases
    row = ProjectedRow(
        x=x,
        query=query,
        query_bias=query_bias,
        key_bias=key_bias,
        scale=float(spec.scale),
        score_bias=np.where(visible, np.nan_to_num(score_bias), 0.0),
        visible=visible,
        target=np.zeros(len(x), bool),
    )
    # for whatever else the run may do to scores: the function must give the run's own weights
    if np.abs(row.weights(w_q, w_k) - stages["weights"][0, query]).max(initial=0.0) > SAME:
        raise _more_than_matrices(model, layer)
    return row, w_q, w_k


def _more_than_matrices(model: Model, layer: int) -> UnsupportedError:
    """Return, not raise, the error for a head whose q and k are more than x·W and a bias."""
    softcap = model.spec.blocks[layer].attention.softcap
    if softcap is not None:
        return UnsupportedError(
            "in layer {layer} scores are capped at ±{softcap:g}, which changes their gradient",
            expected="scores without a softcap",
            layer=layer,
            softcap=softcap,
        )
    hint = "attn explain training --model minilm TEXT"
    if model.identity.source != "checkpoint":
        hint = "--position learned"
    return UnsupportedError(
        "in layer {layer} scores are more than (x·W_Q + b)·(x·W_K + b)ᵀ, such as rotated by position",
        expected="a head whose positions are added to the words or the scores",
        hint=hint,
        layer=layer,
    )


def _least_seen(
    tokens: Sequence[Token], weights: Floats, visible: Bools, query: int
) -> Sequence[int]:
    """The position of the word that the query sees and gives least, itself and special tokens left
    out; of these tokens where there are no others. Raises InputError where it sees one key alone."""
    places = np.flatnonzero(visible).tolist()
    if len(places) < 2:
        raise InputError(
            "the query sees {count} of the keys: a weight among one or none cannot be learned",
            expected="a query that sees at least two keys",
            count=len(places),
        )
    words = [place for place in places if place != query and not tokens[place].special]
    return [min(words or places, key=lambda place: weights[place])]


def text_of_places(text: str, tokens: Sequence[Token | TokenRow]) -> str:
    """What a text says at tokens that follow each other, blanks between them included; of tokens that
    stand nowhere in it, as special ones, their own texts."""
    start = tokens[0].start
    end = tokens[-1].end
    if start is not None and end is not None and start < end:
        return text[start:end].strip()
    return "".join(token.text for token in tokens).strip()


def _refuse_target(
    text: str, tokens: Sequence[Token], weights: Floats, visible: Bools, target: Sequence[int]
) -> None:
    """Raise InputError for a target whose weight has no gradient: one that is hidden, or whose
    weight is 0 or 1 to all digits."""
    name = repr(text_of_places(text, [tokens[place] for place in target]))
    if not visible[list(target)].any():
        raise InputError(
            "the mask hides {name} from the query",
            expected="--target with a word that the query sees",
            name=name,
        )
    weight = float(weights[list(target)].sum())
    if not 0 < weight < 1:
        raise InputError(
            "{name} gets a weight of {weight:g}, which no small step changes",
            expected="--target with a word whose weight is between 0 and 1",
            name=name,
            weight=weight,
        )


def _checked_entries(
    row: ProjectedRow,
    name: Literal["W_Q", "W_K"],
    matrices: tuple[Floats, Floats],
    gradient: Floats,
) -> list[CheckedEntry]:
    """The entries of W_Q or W_K with the largest gradients, each beside the difference of the loss
    when that entry alone is a little larger and a little smaller.

    matrices: W_Q and W_K, [width, dim] each.
    gradient: of the one that `name` names.
    """
    entries = []
    which = ("W_Q", "W_K").index(name)
    # places in the flat matrix, which is [width, dim]
    largest = np.argsort(-np.abs(gradient), axis=None, kind="stable")[:CHECKED]
    for place in largest.tolist():
        entry, dim = divmod(place, gradient.shape[1])
        losses = []
        for sign in (1.0, -1.0):
            new_matrices = [matrix.copy() for matrix in matrices]
            new_matrices[which][entry, dim] += sign * STEP
            losses.append(row.loss(*new_matrices))
        entries.append(
            CheckedEntry(
                matrix=name,
                entry=entry,
                dim=dim,
                gradient=float(gradient[entry, dim]),
                difference=(losses[0] - losses[1]) / (2 * STEP),
            )
        )
    return entries
