"""Why queries, keys and values have a matrix each: topic "qkv" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import UNSET, UnsetType

from attncli.documents.header import (
    biased_modules,
    header,
    latent_formulas,
    refuse_lost_rows,
    word_formula,
)
from attncli.errors import UnsupportedError
from attncli.features.explain.document import (
    QkvTopic,
    SharedKeyValue,
    SharedQueryKey,
    ViewName,
    WordView,
)
from attncli.features.explain.softmax_topics import float64_of, softmax_steps
from attncli.inputs.token import Token
from attncli.inputs.word_groups import token_notes
from attncli.language import message
from attncli.measure.rest import resting_keys
from attncli.measure.row_facts import Bools, Floats
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.spec import Attention, Rope
from attncli.mechanism.trace import SQUARE
from attncli.models.model import Model

PROJECTED: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")
"""The vectors that a matrix makes of a word."""

TIED = 1e-5
"""Scores as near to each other as this, relative to their size, are told as equal."""


@checked
def qkv_document(
    model: Model, text: str, tokens: Sequence[Token], *, layer: int, head: int, query: int
) -> QkvTopic:
    """Build the document of topic "qkv": one query's attention as a search, and what two shared
    matrices would make of it on the same text.

    Args:
        model: As `attncli.load` returns it.
        text: The text.
        tokens: Its tokens.
        layer: The layer's number.
        head: The head's number in its layer.
        query: The position of the token that looks, from 0.

    Returns:
        What `attn explain qkv --json` writes, in float64. Queries and keys are those that are
        compared, after rotation where positions rotate them; values that stand in for keys are the
        same vectors.

    Raises:
        UnsupportedError: For hash attention, attention that reads more than its layer's vectors,
            and global tokens with projections of their own.
        InputError: For a layer, head or token that is not there, or numbers that left the range of
            their type.
    """
    # the run of this layer, the only trace, with all of its stages
    spec = model.spec.blocks[layer].attention
    trace = refuse_lost_rows(
        model.backend, next(iter(model.trace(tokens, layers=[layer], heads=[head], keep=SQUARE)))
    )
    if spec.hashing is not None or spec.own_global or "hidden" not in trace.stages:
        what = message("layer {layer} has no one query, key and value of each word", layer=layer)
        raise UnsupportedError(
            what,
            expected="dense attention whose queries, keys and values come from its own layer",
            hint="attn explain qkv TEXT",
        )
    stages = {name: float64_of(model, array) for name, array in trace.stages.items()}
    # of the one head that ran, [token, dim] and of the query [key]; learned keys stand behind the
    # tokens
    q = stages["q"][0]
    k = stages["k"][0]
    v = stages["v"][0]
    weights = stages["weights"][0, query]
    scores = stages["masked"][0, query]
    lengths = np.linalg.norm(v, axis=1)

    # what one matrix for two of the three would make of it; one matrix could not share a norm
    sink = None
    if spec.sinks:
        # a learned score for each head; None is for the type checker
        sinks = model.store.layer(model.backend, layer)("attn.sinks")
        if sinks is not None:
            sink = float(model.backend.numpy(sinks)[head])
    # tokens on which heads put weight when they look for nothing, booleans [token]
    rest = resting_keys(tokens, model.identity.source)
    shared_query_key: SharedQueryKey | UnsetType = UNSET
    shared_key_value: SharedKeyValue | UnsetType = UNSET
    if spec.qk_norm is None:
        others = _other_words(tokens, query) & ~rest
        shared_query_key = _shared_query_key(stages, spec, sink, rest, query, others)
        shared_key_value = _shared_key_value(q[query], k, v, weights)

    # the words in four views, without learned keys; and how this layer makes queries and keys
    vectors: dict[ViewName, Floats] = {
        "x": stages["hidden"],
        "q": q,
        "k": k[: len(tokens)],
        "v": v[: len(tokens)],
    }
    modules_with_bias = biased_modules(model, layer)
    biased: list[Literal["q", "k", "v"]] | UnsetType = UNSET
    latent: list[str] | UnsetType = UNSET
    if spec.latent is not None:
        # their formulas name the biases, too
        formulas = latent_formulas(spec.latent, modules_with_bias).values()
        latent = [word_formula(formula) for formula in formulas]
    else:
        biased = [name for name in PROJECTED if name in modules_with_bias] or UNSET
    return QkvTopic(
        **header(model, text, tokens),
        topic="qkv",
        layer=layer,
        head=head,
        query=query,
        extra_keys=len(k) - len(tokens),
        rotated=isinstance(spec.position, Rope),
        biased=biased,
        latent=latent,
        normed=UNSET if spec.qk_norm is None else spec.qk_norm.norm.kind,
        q=q[query],
        k=k[query],
        v=v[query],
        views=word_views(vectors, tokens, query),
        scores=[float(score) if np.isfinite(score) else None for score in scores],
        weights=weights,
        value_lengths=lengths,
        brought=weights * lengths,
        shared_query_key=shared_query_key,
        shared_key_value=shared_key_value,
        warnings=[*model.warnings, *token_notes(text, tokens)],
    )


def word_views(
    vectors: Mapping[ViewName, Floats], tokens: Sequence[Token], query: int
) -> list[WordView]:
    """Find for each view of a text's words (as they enter, ask, are found, or are handed over) the
    word whose vector is nearest to that of the query's word, by cosine. Special tokens and those of
    the query's own text are left out; [] where no other word is left.

    vectors: of the words in each view, [token, dim], by the view's name.
    query: the position of the query's word.
    """
    others = np.flatnonzero(_other_words(tokens, query)).tolist()
    if not others:
        return []
    views = []
    for name, rows in vectors.items():
        cosines = [cosine(rows[query], rows[place]) for place in others]
        nearest = int(np.argmax(cosines))
        views.append(WordView(view=name, nearest=others[nearest], cosine=cosines[nearest]))
    return views


def _other_words(tokens: Sequence[Token], query: int) -> Bools:
    """Which tokens are other words than the query's, booleans [token]: none that is special or has
    the query's own text."""
    own = tokens[query].text
    return np.array([not token.special and token.text != own for token in tokens], bool)


def cosine(a: Floats, b: Floats) -> float:
    """The cosine between two vectors; 0 where one of them is 0."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    if lengths > 0:
        return float(a @ b) / lengths
    return 0.0


def _shared_query_key(
    stages: Mapping[str, Floats],
    spec: Attention,
    sink: float | None,
    rest: Bools,
    query: int,
    others: Bools,
) -> SharedQueryKey | UnsetType:
    """Compute the scores and weights that a head would have if each word's key were its query, too;
    UNSET where the query sees no other word. The word compared with the query's is the one of the
    best score; if possible, one whose scores in both directions differ in two decimals.

    stages: of one head, by name.
    sink: the logit of a learned sink; None without one.
    rest: which tokens heads rest on (put weight when they look for nothing), booleans [token].
    others: which words may be compared, booleans [token].
    """
    # which word is compared; [0] is the head
    q = stages["q"][0]
    k = stages["k"][0]
    count = len(q)
    capped = stages["capped"][0]
    biased = stages["biased"][0]
    masked = stages["masked"][0]
    visible = np.isfinite(masked)
    others_seen = visible[query, :count] & others
    if not others_seen.any():
        return UNSET
    forward = q[query] @ k[:count].T * spec.scale
    backward = q @ k[query] * spec.scale
    candidates = others_seen & (forward.round(2) != backward.round(2))
    if not candidates.any():
        candidates = others_seen
    key = int(np.argmax(np.where(candidates, masked[query, :count], -np.inf)))

    # all scores with keys as queries; what positions add stays, and what is hidden stays hidden
    products = k[:count] @ k.T * spec.scale
    shared_capped = products
    if spec.softcap is not None:
        shared_capped = np.tanh(products / spec.softcap) * spec.softcap
    # a bias that hides a key, −∞, counts as none here: `visible` hides that key
    is_finite = np.isfinite(biased)
    bias = np.zeros(capped.shape)
    bias[is_finite] = biased[is_finite] - capped[is_finite]
    shared_scores = np.where(visible, shared_capped + bias, -np.inf)
    row = [float(score) if np.isfinite(score) else None for score in shared_scores[query]]

    # how many words look most at themselves, of those that see another
    sees_others = visible[:, :count].sum(axis=1) > 1
    words = np.flatnonzero(sees_others & ~rest)
    return SharedQueryKey(
        key=key,
        forward=float(forward[key]),
        backward=float(backward[key]),
        shared=float(products[query, key]),
        weights=np.asarray(softmax_steps(row, sink=sink).weights),
        words=len(words),
        self_first=_self_first(masked[:, :count], words.tolist()),
        shared_self_first=_self_first(shared_scores[:, :count], words.tolist()),
    )


def _self_first(scores: Floats, words: Sequence[int]) -> int:
    """How many words look more at themselves than at any other: the score of a row's own key is
    larger than the others by more than float32 rounds away.

    scores: [query, key], of the text's tokens.
    words: the positions of the words that are counted.
    """
    # of each row the score of its own key, and the best of the others
    own = scores.diagonal()
    others = scores.copy()
    np.fill_diagonal(others, -np.inf)
    best = others.max(axis=1)
    # scores that differ by less are tied; large ones are rounded by more
    tolerance = TIED * np.maximum(1.0, np.abs(own))
    looks_at_itself = own > best + tolerance
    return int(looks_at_itself[words].sum())


def _shared_key_value(
    q: Floats, k: Floats, v: Floats, weights: Floats
) -> SharedKeyValue | UnsetType:
    """Compute the output that the query would have if each word's key were its value, too; UNSET
    where the two differ in width.

    q: of the query, [dim].
    k, v: [key, dim].
    weights: of the query, [key].
    """
    if k.shape != v.shape:
        return UNSET
    nonzero = weights > 0  # a hidden vector may be anything, even NaN
    output = weights[nonzero] @ v[nonzero]
    shared = weights[nonzero] @ k[nonzero]
    return SharedKeyValue(
        output=output,
        shared=shared,
        cosine=cosine(output, shared),
        query_cosine=cosine(q, output),
        shared_query_cosine=cosine(q, shared),
    )
