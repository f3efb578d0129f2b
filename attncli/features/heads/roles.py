"""Scores of heads by role, measured on the model itself and not on a text: induction and duplicate
tokens on random repeats, copying and successors by what a head's values write, retrieval on needles
in haystacks.

Sources: Olsson et al., In-context learning and induction heads, 2022; Wang et al., Interpretability
in the wild, 2022, for duplicate and copying heads; Gould et al., Successor heads, 2023; Wu et al.,
Retrieval head mechanistically explains long-context factuality, 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import EVERY, Array, Selection
from attncli.errors import AttnError, UnsupportedError
from attncli.features.effects.targets import predicts_next
from attncli.features.heads.across_heads import HeadMatrices, head_matrices
from attncli.features.heads.document import HeadMetrics, RankedHead, Role, RoleRank
from attncli.inputs.files import read_regular
from attncli.inputs.token import TEXT_LIMIT, Token, ignore
from attncli.language import message
from attncli.measure.labels import DRAWS as REPEATS
from attncli.measure.labels import LENGTH, RepeatScores, ordinary_tokens, repeat_scores
from attncli.measure.layer_metrics import ROLE_METRICS
from attncli.measure.metric import Measured
from attncli.measure.row_facts import Floats, Ints
from attncli.mechanism.attend import span
from attncli.mechanism.context import Weights
from attncli.mechanism.feed_forward import normalise
from attncli.mechanism.mask import Mask
from attncli.models.estimate import (
    ComputeWork,
    CostEstimate,
    estimate,
    seconds_of,
    with_held_weights,
    with_predictions,
)
from attncli.models.model import Model
from attncli.models.passes import PassCount, seconds_of_passes
from attncli.models.run import cache_weights, unembedding_rows

ROLES: dict[Role, str] = {
    "previous token": "previous",
    "first-token rest": "sink",
    "duplicate token": "duplicate",
    "induction": "induction",
    "retrieval": "retrieval",
    "copying": "copying",
    "successor": "successor",
}
"""The metric that ranks heads for each role."""
RANKED = 10
"""Heads of each role that a document tells, the highest score first."""
DRAWN = 128
"""Ordinary tokens among which a copied one must come first."""
FETCH_LENGTH, FETCH_DEPTHS = 64, (0.0, 0.5, 1.0)
"""Tokens of the haystacks, and where needles stand in them."""
SEQUENCES = Path(__file__).parent / "sequences.txt"
"""Words that follow each other, a line each; those count that a vocabulary has as one token."""


class RoleScores(Struct, frozen=True):
    """Scores of heads that belong to a model, whatever the text.

    values: by metric, (layer, head) to score; heads that cannot have one are not there.
    chance: by metric, what a head would have that does nothing of the kind.
    tested: by metric, over how many tokens or texts.
    """

    values: dict[str, dict[tuple[int, int], float]]
    chance: dict[str, float]
    tested: dict[str, int]

    def measure(self, name: str, layer: int, heads: Sequence[int]) -> Measured:
        """The scores of a layer's heads in the form in which metrics of a text come; NaN for a head
        without one.

        name: of the metric, out of `ROLE_METRICS`.
        """
        scores = self.values.get(name, {})
        value = np.array([scores.get((layer, head), np.nan) for head in heads])
        rows = np.full(len(heads), self.tested.get(name, 0))
        baseline = np.full(len(heads), self.chance.get(name, np.nan))
        return Measured(ROLE_METRICS[name], value, rows, baseline)


def role_scores(
    model: Model,
    names: Sequence[str],
    *,
    layers: Selection = EVERY,
    repeats: RepeatScores | None = None,
    progress: Callable[[float], None] = ignore,
) -> RoleScores:
    """Score every head of these layers for what it does in the model, whatever the text. A score
    that a model cannot have (no output head, no single matrices, a task that it does not do) is
    left out.

    names: of the scores, out of `ROLE_METRICS`.
    layers: which; "retrieval" runs whole texts, and scores all.
    repeats: scores of random repeats; None runs them where they are needed.
    progress: called with the share of the needles that is done, 0 to 1.
    """
    scores = RoleScores({}, {}, {})
    if {"induction", "duplicate"} & set(names):
        _add_repeats(model, scores, repeats or repeat_scores(model, layers))
    if {"copying", "successor"} & set(names):
        _add_output_of(model, scores, layers)
    if "retrieval" in names:
        _add_retrieval(model, scores, progress)
    return scores


def role_passes(model: Model, names: Sequence[str]) -> list[PassCount]:
    """The forward passes on generated texts that these scores take: of random repeats, and of
    haystacks, counted at their longest. [] for a model that is only run as a whole; scores computed
    from its matrices are not counted here.

    names: of the scores, out of `ROLE_METRICS`.
    """
    if not model.own_layers:
        return []
    passes = []
    if {"induction", "duplicate"} & set(names):
        # a text of repeats is `LENGTH` tokens twice, and nothing is predicted
        passes.append(PassCount(REPEATS, 2 * LENGTH, predicted=0))
    if "retrieval" in names and model.spec.head is not None:
        passes.append(PassCount(_haystacks(), FETCH_LENGTH))
    return passes


def _haystacks() -> int:
    """How many texts are run for the score "retrieval": each needle at each depth of a haystack."""
    from attncli.features.retrieval.compute import NEEDLES, read_needles

    return len(FETCH_DEPTHS) * len(read_needles(NEEDLES))


def role_cost(model: Model, names: Sequence[str]) -> tuple[int, float]:
    """How many haystacks the scores of these names take, and about how many seconds all of them do:
    the runs of made texts, and what each head's values write of single tokens, in float64."""
    passes = role_passes(model, names)
    texts = 0
    if "retrieval" in names and passes:
        texts = _haystacks()
    seconds = seconds_of_passes(model, passes)
    if {"copying", "successor"} & set(names) and model.spec.head is not None:
        # multiplications: values, output projection and logits of `DRAWN` tokens for each head
        products = 0
        for layer in model.spec.attending():
            attention = model.spec.blocks[layer].attention
            dims = attention.head_dim + attention.v_dim + DRAWN
            products += attention.heads * DRAWN * model.spec.d_model * dims
        seconds += seconds_of(ComputeWork(weights=0, products=products, scores=0), "float64")
    return texts, seconds


def with_roles(expected: CostEstimate, model: Model, names: Sequence[str]) -> CostEstimate:
    """The cost of a run together with the scores by role that are measured before it: the times are
    added; of memory, the larger of the two counts.

    expected: the cost of the run alone.
    names: of the scores.
    """
    _, seconds = role_cost(model, names)
    largest = expected
    haystack = estimate(model.spec, FETCH_LENGTH, dtype=model.backend.dtype)
    if model.spec.head is not None:
        haystack = with_predictions(haystack, model.spec, FETCH_LENGTH, model.backend.dtype)
    haystack = with_held_weights(haystack, model.weights_in_memory)
    if haystack.peak > expected.peak:
        largest = haystack
    return replace(expected, seconds=expected.seconds + seconds, memory=largest.memory)


def _add_repeats(model: Model, scores: RoleScores, repeats: RepeatScores) -> None:
    """Add the scores "induction" and "duplicate" to `scores`: what heads do on repeated random
    tokens. Chance is even attention: 1 over the keys that a query of the second half sees."""
    # the mask of the first layer that attends stands for all layers
    first_attending = next(iter(model.spec.attending()), 0)
    mask = model.spec.blocks[first_attending].attention.mask
    places = range(LENGTH, 2 * LENGTH)
    even = float(np.mean([1.0 / _key_count(mask, place, 2 * LENGTH) for place in places]))
    for name in ("induction", "duplicate"):
        scores.values[name] = {head: row[f"repeats_{name}"] for head, row in repeats.items()}
        scores.chance[name] = even
        scores.tested[name] = LENGTH


def _key_count(mask: Mask, place: int, keys: int) -> int:
    """How many of `keys` keys the query at `place` sees by this mask, at least 1."""
    low, high = span(mask, place, place, keys)
    return max(high - low, 1)


def _add_retrieval(model: Model, scores: RoleScores, progress: Callable[[float], None]) -> None:
    """Add the score "retrieval" to `scores`: how heads copy needles out of haystacks word by word.
    Nothing is added where the model does not do the task.

    progress: called with the share of the texts that is done.
    """
    from attncli.features.retrieval.compute import retrieval  # it runs many texts

    try:
        needles = retrieval(
            model,
            lengths=(FETCH_LENGTH,),
            depths=FETCH_DEPTHS,
            literal_alone=True,
            progress=progress,
        )
    except AttnError:  # it predicts nothing, or the needles are longer than its positions
        return
    if not needles.heads:
        return
    scores.values["retrieval"] = {(row.layer, row.head): row.literal.mean for row in needles.heads}
    scores.chance["retrieval"] = float(np.mean([row.literal.chance for row in needles.heads]))
    scores.tested["retrieval"] = needles.answered


# What a head's values write of a token: through W_V and W_O to the output head's rows of tokens.


def _add_output_of(model: Model, scores: RoleScores, layers: Selection) -> None:
    """Add the scores "copying" and "successor" to `scores`: how often what a head writes for a token
    speaks most for the token itself, or for the one that follows it in a sequence such as the days.
    Nothing is added for models whose values or output head have no single matrix."""
    has_head = predicts_next(model)
    # a map to another width stands before the output head, which is then not the only matrix
    is_narrow = model.spec.head is not None and model.spec.head.projection
    if not has_head or is_narrow or not model.own_layers or not model.spec.vocabulary:
        return
    ordinary = ordinary_tokens(model, seed=0)[:DRAWN]
    # without ids there are no rows of the output head to compare
    if not ordinary or any(token.id is None for token in ordinary):
        return

    # each test shows tokens, and has the place of the right answer among them
    sequence_tokens: list[Token] = []
    successors: list[int | None] = []
    for token, successor in _followed_tokens(model):
        sequence_tokens.append(token)
        successors.append(successor)
    possible_tests = {
        "copying": _WrittenTest.of(model, ordinary, list(range(len(ordinary)))),
        "successor": _WrittenTest.of(model, sequence_tokens, successors),
    }
    tests = {name: test for name, test in possible_tests.items() if test is not None}
    for name, test in tests.items():
        scores.values[name] = {}
        scores.chance[name] = 1.0 / len(test.rows)
        scores.tested[name] = len(test.places)

    for layer in model.spec.attending(layers):
        weights = cache_weights(model.store.layer(model.backend, layer))
        matrices = _matrices_of(model, layer)
        for name, test in tests.items():
            entering = _attention_input(model, layer, weights, test.vectors)
            for head in matrices:
                # how much what the head writes for each token speaks for each, [shown, token]
                output = _output_of(model, head, weights, entering) @ test.rows.T
                is_right = output[test.places].argmax(-1) == test.answers
                scores.values[name][layer, head.head] = float(is_right.mean())


class _WrittenTest(Struct, frozen=True, eq=False):
    """Tokens that heads are shown one at a time, and which of them each should write towards.

    vectors: what leaves layer 0 of each, [token, width].
    rows: of the output head, [token, width].
    places: which of the tokens have an answer.
    answers: the place of each answer among the tokens.
    """

    vectors: Array
    rows: Floats
    places: list[int]
    answers: Ints

    @classmethod
    def of(
        cls, model: Model, tokens: Sequence[Token], targets: Sequence[int | None]
    ) -> _WrittenTest | None:
        """Make a test of these tokens; None where fewer than two have an answer.

        targets: the index of each token's answer among `tokens`, None for a token without one.
        """
        places = [place for place, target in enumerate(targets) if target is not None]
        answers = np.array([target for target in targets if target is not None], np.int64)
        if len(places) < 2:
            return None
        vectors, rows = _token_vectors(model, tokens)
        return cls(vectors, rows, places, answers)


def _followed_tokens(model: Model) -> Iterator[tuple[Token, int | None]]:
    """Yield the tokens of `SEQUENCES` that are a single vocabulary entry, each with the index of
    its successor among those yielded; None for the last of a sequence, and before a word that is no
    single entry."""
    # how many were yielded, and so the index of the next one
    count = 0
    lines = read_regular(SEQUENCES, what=message("a text file"), limit=TEXT_LIMIT)
    for line in lines.decode("utf-8").splitlines():
        tokens = [_single_token(model, word) for word in line.split()]
        for token, after in zip(tokens, [*tokens[1:], None], strict=True):
            if token is None:
                continue
            count += 1
            if after is None:
                yield token, None
            else:
                yield token, count  # the one after it is yielded next


def _single_token(model: Model, word: str) -> Token | None:
    """The token that a word has within a text, after a blank; None where it has several, or where
    the vocabulary does not know it."""
    before = [token for token in model.tokenizer.encode("a") if not token.special]
    both = [token for token in model.tokenizer.encode(f"a {word}") if not token.special]
    if len(both) != len(before) + 1 or both[-1].unknown or both[-1].id is None:
        return None
    return both[-1]


def _token_vectors(model: Model, tokens: Sequence[Token]) -> tuple[Array, Floats]:
    """What leaves layer 0 for each token alone in a text, [token, width], and the token's row of the
    output head, [token, width], with the scale of the final norm multiplied in, and less its mean
    where that is a layer norm.

    Layer 0 counts as part of a token's embedding, as in the sources of this file.
    """
    # a text of each token, behind the special token with which the model's texts begin, if any
    backend = model.backend
    first = model.tokenizer.encode("a")[:1]
    before = [token for token in first if token.special]
    texts = [
        [
            replace(entry, index=index, start=None, end=None)
            for index, entry in enumerate([*before, token])
        ]
        for token in tokens
    ]
    (trace,) = model.trace_batch(texts, layers=[0], keep=())

    # rows of the output head, scaled and centred as the final norm does with the vectors
    outer = model.store.outer(backend)
    assert model.spec.head is not None
    entries = [token.id for token in tokens if token.id is not None]
    vectors = unembedding_rows(model.spec.head, outer, entries)
    rows = np.stack([np.asarray(backend.numpy(vector), np.float64) for vector in vectors])
    norm = model.spec.final_norm
    weight = None
    if norm is not None and norm.affine:
        weight = outer("final.weight")
    if norm is not None and weight is not None:
        scale = np.asarray(backend.numpy(weight), np.float64)
        if norm.unit_offset:  # the checkpoint stores the factor less 1
            scale = scale + 1.0
        rows = rows * scale
    if norm is not None and norm.kind == "layer":
        rows = rows - rows.mean(-1, keepdims=True)
    # the token stands behind what its text begins with
    return trace.after[:, len(before)], rows


def _matrices_of(model: Model, layer: int) -> list[HeadMatrices]:
    """The matrices of a layer's heads; [] where heads have no single matrix for keys or values, or
    no output projection."""
    try:
        return head_matrices(model, layer, EVERY)
    except UnsupportedError:
        return []


def _attention_input(model: Model, layer: int, weights: Weights, vectors: Array) -> Floats:
    """The vectors that queries, keys and values are computed from when `vectors`, [token, width],
    enter the layer: after the norm before the attention, where there is one."""
    norm = model.spec.blocks[layer].norms.get("attn.in")
    entering = vectors
    if norm is not None:
        entering = normalise(
            model.backend, norm, vectors, weights("attn.in.weight"), weights("attn.in.bias")
        )
    return np.asarray(model.backend.numpy(entering), np.float64)


def _output_of(model: Model, head: HeadMatrices, weights: Weights, entering: Floats) -> Floats:
    """What a head writes when it looks at one token alone, [token, width]: values times W_O, and
    the scale of the norm behind it, but not that norm's division.

    entering: the vectors that enter the attention, [token, width].
    """
    backend = model.backend
    block = model.spec.blocks[head.layer]
    values = entering @ head.w_v
    bias = weights("attn.v.bias")
    if bias is not None:
        # the part of the bias of the key-value head that this head shares with its group
        width = head.w_v.shape[1]
        group = block.attention.heads // block.attention.kv_heads
        first = head.head // group * width
        values = values + np.asarray(backend.numpy(bias), np.float64)[first : first + width]
    output: Floats = values @ head.w_o
    after = block.norms.get("attn.out")
    scale = None
    if after is not None and after.affine:
        scale = weights("attn.out.weight")
    if after is not None and scale is not None:
        factors = np.asarray(backend.numpy(scale), np.float64)
        if after.unit_offset:  # the checkpoint stores the factor less 1
            factors = factors + 1.0
        output = output * factors
    return output


# Heads in the order of each role.


def rank_roles(heads: Sequence[HeadMetrics]) -> list[RoleRank]:
    """The `RANKED` heads with the highest score for each role, with the mean score that chance
    gives; a role for which no head has a score is left out."""
    ranks = []
    for role, metric in ROLES.items():
        ranked_heads: list[RankedHead] = []
        chances: list[float] = []  # they differ between layers, where masks do
        for head in heads:
            score = head.metrics.get(metric)
            if score is not None and score.value is not None:
                ranked_heads.append(RankedHead(layer=head.layer, head=head.head, score=score.value))
            if head.baseline:
                baseline = head.baseline.get(metric)
                if baseline is not None and baseline.value is not None:
                    chances.append(baseline.value)
        if not ranked_heads:
            continue
        ranked_heads.sort(key=lambda row: (-row.score, row.layer, row.head))
        chance = None
        if chances:
            chance = float(np.mean(chances))
        first_heads = ranked_heads[:RANKED]
        ranks.append(RoleRank(role=role, metric=metric, chance=chance, heads=first_heads))
    return ranks
