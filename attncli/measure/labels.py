"""What a head looks like: labels, each from one score with a stated threshold, and which heads look
alike.

A label needs its score to reach the threshold and to be `MARGIN` times what uniform attention
would score over the same keys, and to be taken over `LEAST_ROWS` rows, so that short texts, where
everything is near, label nothing. What a head does is measured on the weight that is not on the
first token, where trained heads rest whatever it is (`beyond_first`); that it rests there is a label
of its own. A head may have several. Heads are held against each other by the Jensen–Shannon
divergence of their rows. Duplicate and induction heads show on random repeats: a seeded sequence of
ordinary tokens, twice over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Selection
from attncli.arrays.numpy_backend import integers
from attncli.documents.parts import LabelScore, Merge
from attncli.errors import InputError, LimitError, UsageError
from attncli.inputs.token import Token
from attncli.language import Message, message
from attncli.measure.beyond_first import (
    BEYOND,
    EVENNESS_BEYOND,
    OFFSETS_BEYOND,
    PUNCTUATION_BEYOND,
)
from attncli.measure.metric import OFFSETS, Measured, Metric
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.models.model import Model

LENGTH = 32
"""Tokens before the repetition."""
DRAWS = 3
"""Sequences that scores are averaged over."""

LayerWeights = Iterable[tuple[int, np.ndarray[Any, Any]]]
"""Each layer's number and its weights [head, query, key]."""
RepeatScores = dict[tuple[int, int], dict[str, float]]
"""By (layer, head), the scores by name."""


def repeated_tokens(
    ordinary: Sequence[Token],
    length: int,
    seed: int,
    *,
    before: Sequence[Token] = (),
    after: Sequence[Token] = (),
) -> list[Token]:
    """A text for measuring induction heads: `length` different tokens drawn from `ordinary`, twice,
    between the special tokens `before` and `after`.

    seed: of the draw.

    Fewer ordinary tokens than `length` are drawn with repetition. Draws are equal on every machine.
    """
    numbers = integers(seed, "repeats", length)
    pool = list(range(len(ordinary)))  # the indices of tokens that may still be drawn
    drawn_tokens = []
    for number in numbers:
        pool_index = int(number) % len(pool)
        drawn_tokens.append(ordinary[pool[pool_index]])
        # without replacement: the last of the pool takes the place of the one that was drawn
        if len(ordinary) >= length:
            pool[pool_index] = pool[-1]
            pool.pop()
    tokens = [*before, *drawn_tokens, *drawn_tokens, *after]
    # numbered anew, and without a place in the text that they were drawn from
    return [replace(token, index=index, start=None, end=None) for index, token in enumerate(tokens)]


def score_repeats(
    run_tokens: Callable[[list[Token]], LayerWeights],
    ordinary: Sequence[Token],
    *,
    before: Sequence[Token] = (),
    after: Sequence[Token] = (),
    length: int = LENGTH,
    draws: int = DRAWS,
    seed: int = 0,
) -> RepeatScores:
    """The duplicate-token and induction scores of heads by (layer, head), each by its name,
    measured on random tokens that are repeated once after r = `length` tokens and averaged over
    `draws` texts.

    ordinary: the tokens that are drawn from.
    before, after: special tokens around each text.
    seed: of the first draw; each further one has the next.

    `repeats_duplicate` is the mean A[i, i−r] and `repeats_induction` the mean A[i, i−r+1] over the
    second half; `…_beyond_first` is either as a share of the weight on keys other than the first, 0
    where there is none, and without the row whose key is the first; `repeats_share` is how much
    weight that is.
    run_tokens: called with the tokens of a text; yields each layer's number and weights [head,
        query, key].
    """
    # by (layer, head), the means that `_repeat_row` takes, over all draws
    totals: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    # the queries: the second half of the drawn tokens
    first = len(before) + length
    i = np.arange(first, first + length)
    for draw in range(draws):
        tokens = repeated_tokens(ordinary, length, seed + draw, before=before, after=after)
        for layer, weights in run_tokens(tokens):
            # [head, row]: the weight on the same token before, on the one after it, and on all keys
            # but the first, summed, since 1 less the first would lose the digits of small rests
            duplicate = np.asarray(weights[:, i, i - length], np.float64)
            induction = np.asarray(weights[:, i, i - length + 1], np.float64)
            others = np.asarray(weights[:, i, 1:], np.float64).sum(-1)
            # rows whose same token before is not the first of the text
            is_beyond_first = i > length
            row_values = (  # in the order that `_repeat_row` takes them
                duplicate,
                induction,
                others,
                np.where(is_beyond_first, duplicate, 0.0),
                np.where(is_beyond_first, others, 0.0),
            )
            # what this text adds to the mean of all draws, [head, value]
            means = np.stack([values.mean(-1) for values in row_values], -1) / draws
            for head, head_means in enumerate(means):
                before_draw = totals.get((layer, head), np.zeros(len(row_values)))
                totals[layer, head] = before_draw + head_means
    return {place: _repeat_row(*means.tolist()) for place, means in totals.items()}


def _repeat_row(
    duplicate: float,
    induction: float,
    others: float,
    duplicate_beyond: float,
    others_beyond: float,
) -> dict[str, float]:
    """The repeat scores of a head by name, from its mean weights on the token one period before
    (`duplicate`), on the token after that (`induction`) and on all keys but the first (`others`);
    `duplicate_beyond` and `others_beyond` are the first and the last of these over rows that do not
    look back at the first key.
    """
    # `or 1.0`: a share of no weight at all is 0; sums of weights may exceed 1 by rounding
    return {
        "repeats_duplicate": duplicate,
        "repeats_induction": induction,
        "repeats_duplicate_beyond_first": duplicate_beyond / (others_beyond or 1.0),
        "repeats_induction_beyond_first": induction / (others or 1.0),
        "repeats_share": min(others, 1.0),
    }


# Random repeats of a model's own vocabulary, run through the model.

CANDIDATES = 4096
"""Ids that are looked at for ordinary tokens."""


def repeat_scores(model: Model, layers: Selection, *, seed: int = 0) -> RepeatScores:
    """Duplicate-token and induction scores of every head of these layers, by (layer, head) and name,
    measured on random tokens that are repeated once; `seed` fixes them.

    The tokens are words of the vocabulary, letters only; for weights without a vocabulary, made-up
    words. Special tokens stand around them as around any text. Texts are shortened to what the
    model's positions allow.
    """
    # the special tokens that the tokenizer puts before and after any text, such as "a"
    sample = model.tokenizer.encode("a")
    first = next((index for index, token in enumerate(sample) if not token.special), len(sample))
    before = sample[:first]
    after = [token for token in sample[first:] if token.special]
    limit = model.spec.max_positions
    if limit is None:
        length = LENGTH
    else:
        # the drawn tokens stand in a text twice; two different ones are the least that repeat
        length = max(min(LENGTH, (limit - len(before) - len(after)) // 2), 2)

    def run_tokens(tokens: list[Token]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        """Run the model on these tokens; yields each layer's number and its weights [head, query,
        key]."""
        for trace in model.trace(tokens, layers=layers, keep=("weights",)):
            yield trace.layer, model.backend.numpy(trace.stages["weights"])

    words = ordinary_tokens(model, seed)
    return score_repeats(run_tokens, words, before=before, after=after, length=length, seed=seed)


def ordinary_tokens(model: Model, seed: int) -> list[Token]:
    """Some of a model's tokens that are ordinary words, drawn from its vocabulary by `seed`, by
    rising id: two letters or more, nothing but letters, no special tokens. Where no such token is
    drawn, all that are not special; made-up words where the model has no vocabulary or its tokenizer
    no ids."""
    # four times as many as a text draws
    made_up = [
        Token(index, f"word{index}", id=None, start=None, end=None) for index in range(4 * LENGTH)
    ]
    if not model.spec.vocabulary:
        return made_up
    # in a vocabulary of tens of thousands, so many have enough words; ids that come twice count once
    draws = integers(seed, "vocabulary", CANDIDATES)
    ids = {int(number) % model.spec.vocabulary for number in draws}
    tokens: list[Token] = []
    for token_id in sorted(ids):
        try:
            tokens += model.tokenizer.ids_to_tokens([token_id])
        except InputError:  # an embedding may have rows that the tokenizer has no token for
            continue
        except UsageError:  # a tokenizer without ids: embeddings are made from the words themselves
            return made_up
    plain_tokens = [token for token in tokens if not token.special]
    words = []
    for token in plain_tokens:
        text = token.text.strip("Ġ▁ ")  # the marks of a blank before the word
        if text.isalpha() and len(text) > 1:
            words.append(token)
    return words or plain_tokens


MARGIN = 1.5
"""A score earns a label only where it is this many times that of uniform attention."""
LEAST_ROWS = 4
"""Fewer query rows than this earn no label: two tokens at a fixed offset are no habit."""
BROAD = 0.9
"""The entropy of a broad head, as a share of the largest possible."""
LEAST_SHARE = 0.01
"""A head that gives less of its weight than this to other tokens than the first does nothing but
rest: how that little is spread earns no label."""


class Label(Struct, frozen=True):
    """A kind of head, such as induction.

    score: the number that decides, a metric's name or a score on repeated random tokens.
    threshold: its least value.
    meaning: what a head must do to have the label, with a place {least}.
    """

    name: str
    score: str
    threshold: float
    meaning: Message


LABELS: Mapping[str, Label] = {
    label.name: label
    for label in (
        # Voita 2019; TransformerLens uses 0.4
        Label(
            "previous-token", "previous", 0.4,
            message(
                "On average at least {least} of a word's weight beside the first token goes to the word just"
                " before it."
            ),
        ),
        # Clark 2019
        Label(
            "next-token", "next", 0.4,
            message(
                "On average at least {least} of a word's weight beside the first token goes to the word just"
                " after it."
            ),
        ),
        # Kovaleva 2019 (diagonal)
        Label(
            "self", "self", 0.4,
            message("On average at least {least} of a word's weight beside the first token goes to the word itself."),
        ),
        # Voita 2019
        Label(
            "positional", "positional", 0.4,
            message(
                "On average at least {least} of a word's weight beside the first token goes to the word at"
                " this fixed distance."
            ),
        ),
        # Gu et al. 2024, threshold 0.3
        Label(
            "first-token sink", "sink", 0.3,
            message("On average at least {least} of a word's weight rests on the first token."),
        ),
        # Clark 2019
        Label(
            "special-token", "special", 0.5,
            message("On average at least {least} of a word's weight rests on special tokens such as [CLS]."),
        ),
        # Clark 2019
        Label(
            "punctuation", "punctuation", 0.4,
            message("On average at least {least} of a word's weight beside the first token goes to punctuation."),
        ),
        # Wang et al. 2022, on random repeats
        Label(
            "duplicate-token", "repeats_duplicate", 0.4,
            message(
                "In random words that are repeated, at least {least} of a word's weight beside the first"
                " token goes to the same word before."
            ),
        ),
        # Olsson et al. 2022, on random repeats
        Label(
            "induction", "repeats_induction", 0.4,
            message(
                "In random words that are repeated, at least {least} of a word's weight beside the first token goes to "
                "what followed the same word before."
            ),
        ),
        # Clark 2019
        Label(
            "broad", "normalised_entropy", BROAD,
            message(
                "Beside the first token the weight is spread almost evenly: its entropy is at least {least}"
                " of the largest possible."
            ),
        ),
    )
}  # fmt: skip
"""Every label by name, in the order in which they are told."""

SCORE_METRICS: Mapping[str, tuple[str, ...]] = {
    "previous": (OFFSETS_BEYOND["offset-1"].name,),
    "next": (OFFSETS_BEYOND["offset+1"].name,),
    "self": (OFFSETS_BEYOND["offset+0"].name,),
    "positional": tuple(OFFSETS_BEYOND[offset].name for offset in OFFSETS),
    "sink": ("sink",),
    "special": ("special",),
    "punctuation": (PUNCTUATION_BEYOND.name,),
    "normalised_entropy": (EVENNESS_BEYOND.name,),
}
"""The metrics whose largest is the score that decides a label, by the score's name: without the
first token, but of labels that say where a head rests. Scores on random repeats are none."""
NEEDED: tuple[str | Metric, ...] = ("sink", "special", "normalised_entropy", *BEYOND)
"""The metrics that labels are made from."""


STATES = ("first-token sink", "special-token")
"""Labels that say where a head rests when there is nothing to say: states beside what it does."""


def is_enough(label: Label, score: Floats, even: Floats) -> Bools:
    """Whether scores earn a label: they reach its threshold, and are clearly above uniform
    attention's.

    even: what uniform attention scores, of the same shape.
    """
    above: Bools = score >= label.threshold
    if label.name == "broad":  # its score says how near to uniform attention a head is
        return above
    return above & (score >= MARGIN * even)


class Decision(Struct, frozen=True, eq=False):
    """Whether heads earn a label.

    score: float64 [...], NaN where not known.
    is_earned: booleans [...].
    offset: which of `OFFSETS` a positional head has, integers [...]; None for the other labels.
    """

    score: Floats
    is_earned: Bools
    offset: Ints | None = None


def decide_label(
    label: Label,
    value: Mapping[str, Floats],
    baseline: Mapping[str, Floats],
    rows: Mapping[str, Ints],
) -> Decision:
    """Whether heads have a label that a metric decides, or the largest of several metrics, as that
    of all offsets for "positional".

    value: by metric, the heads' values, [...].
    baseline: by metric, the values of uniform attention, of the same shape.
    rows: by metric, over how many query rows the values are taken, of the same shape.
    """
    names = SCORE_METRICS[label.score]
    values = np.stack([np.where(rows[name] >= LEAST_ROWS, value[name], np.nan) for name in names])
    # in a row that sees one key the weight is 1 whatever a head does; the normalised entropy is
    # taken over rows that see several, of which there must be enough
    if "normalised_entropy" in rows:
        values = np.where(rows["normalised_entropy"] >= LEAST_ROWS, values, np.nan)

    # the largest of the metrics, and what uniform attention has there
    largest = np.where(np.isnan(values), -np.inf, values).argmax(0)  # its index in `names`, [...]
    score = np.take_along_axis(values, largest[None], 0)[0]
    baselines = np.stack([np.broadcast_to(baseline[name], score.shape) for name in names])
    even = np.take_along_axis(baselines, largest[None], 0)[0]
    # the metrics of "positional" are those of `OFFSETS`, in their order
    offset = largest if label.score == "positional" else None
    return Decision(score, is_enough(label, score, even), offset)


def labels_of(
    results: Mapping[str, Measured], head: int, *, repeats: Mapping[str, float] | None = None
) -> list[LabelScore]:
    """The labels of one head, in the order of `LABELS`, with the scores that earned them, and the
    share of the head's weight that these are measured on.

    results: by name, the metrics of `NEEDED` for all heads, [head].
    head: its index in them.
    repeats: the head's scores on random repeats (see `score_repeats`), None where these were not
        run. A score that is not known (NaN) earns nothing.
    """
    value = {name: result.value[head] for name, result in results.items()}
    baseline = {name: result.baseline[head] for name, result in results.items()}
    rows = {name: result.rows[head] for name, result in results.items()}
    sink = float(value["sink"])
    share_beyond = None  # the mean weight on tokens other than the first
    if not np.isnan(sink):
        share_beyond = 1.0 - sink
    earned_labels = []
    for label in LABELS.values():
        detail = None
        share = share_beyond
        # scores on repeats decide by themselves: no uniform attention is compared with them
        if label.score.startswith("repeats_"):
            score = (repeats or {}).get(f"{label.score}_beyond_first", np.nan)
            share = (repeats or {}).get("repeats_share")
            is_earned = score >= label.threshold
        else:
            decision = decide_label(label, value, baseline, rows)
            score = float(decision.score)
            is_earned = bool(decision.is_earned)
            if decision.offset is not None:
                detail = tuple(OFFSETS)[int(decision.offset)].removeprefix("offset")

        # a head that gives next to nothing to other tokens has only labels of where it rests
        is_state = label.name in STATES
        does_something = is_state or share is None or share >= LEAST_SHARE
        if is_earned and does_something:
            earned_labels.append(
                LabelScore(
                    name=label.name,
                    score=score,
                    threshold=label.threshold,
                    detail=detail,
                    state=is_state,
                    share=None if is_state else share,
                )
            )
    return earned_labels


def label_text(label: LabelScore) -> str:
    """A label as documents name it, such as "positional -3"."""
    if label.detail is None:
        return label.name
    return f"{label.name} {label.detail}"


LARGEST = 2_000_000_000
"""Pairs of heads × weights that are still a matter of seconds."""


def row_divergences(p: Floats, q: Floats) -> Floats:
    """The Jensen–Shannon divergence of each row of two arrays of weights, ½KL(p‖m) + ½KL(q‖m) with
    m = (p + q)/2, in nats: [..., key] to [...], 0 to ln 2. Rows of zeros give 0.

    By entropies, H(m) − ½H(p) − ½H(q), which is the same. Rows need not sum to 1 exactly. Source:
    Lin, 1991.
    """
    mean_entropy = (row_entropy(p) + row_entropy(q)) / 2
    # rounding never makes it negative
    divergences: Floats = np.maximum(row_entropy((p + q) / 2) - mean_entropy, 0.0)
    return divergences


def jensen_shannon(p: Any, q: Any, visible: Any = None) -> Floats:
    """The mean Jensen–Shannon divergence of the rows of two heads' weights, [...], in nats: 0 for
    equal weights, at most ln 2.

    p, q: weights [..., query, key].
    visible: booleans that broadcast to them; rows in which nothing is visible are left out. None
        leaves out rows that are 0 in both. NaN where no row is left. Rows should sum to 1.

    Raises InputError for weights over different queries or keys.
    """
    a = np.asarray(p, np.float64)
    b = np.asarray(q, np.float64)
    if a.shape[-2:] != b.shape[-2:]:
        what = message(
            "weights of the shape {first} cannot be compared with {second}",
            first=list(a.shape),
            second=list(b.shape),
        )
        raise InputError(what, expected="equally many queries and keys")
    rows = row_divergences(a, b)
    if visible is None:
        used_rows = (a + b).sum(-1) > 0
    else:
        used_rows = np.broadcast_to(np.any(visible, -1), rows.shape)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: no row is left
        means: Floats = np.where(used_rows, rows, 0).sum(-1) / used_rows.sum(-1)
    return means


def row_entropy(rows: Floats) -> Floats:
    """−Σ w ln w of each row in nats, [..., key] to [...]; 0 for a row of zeros."""
    entropies: Floats = -(rows * np.log(np.where(rows > 0, rows, 1))).sum(-1)
    return entropies


def head_distances(weights: Any, visible: Bools | None = None) -> Floats:
    """The distance between the weights of each two heads, [head, head], 0 to 1: √(JS / ln 2), JS
    being the mean Jensen–Shannon divergence of their rows; [0, 0] for no heads.

    weights: [head, query, key].
    visible: booleans [query, key] or [head, query, key]; None where all is visible.

    Raises LimitError where there are too many pairs.
    """
    matrices = np.asarray(weights, np.float64)
    heads = len(matrices)
    steps = heads * matrices.size
    if steps > LARGEST:
        raise LimitError(
            "comparing {heads} heads on {tokens} tokens is {steps:,} steps",
            expected="at most {largest:,}",
            hint="a shorter text, --layer L or --head H",
            heads=heads,
            tokens=matrices.shape[-1],
            steps=steps,
            largest=LARGEST,
        )
    table = np.zeros((heads, heads))
    for head in range(heads - 1):
        # one head against all later ones, over the rows in which both see something
        common_visibility = visible
        if visible is not None and visible.ndim == 3:
            common_visibility = visible[head + 1 :] & visible[head]
        divergences = jensen_shannon(matrices[head][None], matrices[head + 1 :], common_visibility)
        distances = np.sqrt(divergences / np.log(2))
        table[head, head + 1 :] = distances
        table[head + 1 :, head] = distances
    return table


def linkage(table: Floats) -> list[Merge]:
    """Average linkage over a table of distances [head, head]: the nearest two clusters join, until
    one is left; returns the joins in order. Clusters are numbered on after the heads, as they arise.

    Ties go to the lower numbers. Source: Sokal and Michener, 1958.
    """
    count = len(table)
    # of the clusters that are left: the distances between them, their numbers, their heads
    distances = np.array(table, np.float64)
    np.fill_diagonal(distances, np.inf)  # no cluster joins itself
    numbers = list(range(count))
    sizes = [1] * count
    merges = []
    for step in range(count - 1):
        nearest = np.unravel_index(int(np.argmin(distances)), distances.shape)
        a, b = sorted(int(index) for index in nearest)
        first, last = sorted((numbers[a], numbers[b]))
        merges.append(Merge(a=first, b=last, height=float(distances[a, b])))

        # cluster a becomes the joined one, with the mean distances of its members; b goes
        mean_distances = sizes[a] * distances[a] + sizes[b] * distances[b]
        mean_distances = mean_distances / (sizes[a] + sizes[b])
        distances[a] = mean_distances
        distances[:, a] = mean_distances
        distances[a, a] = np.inf
        distances = np.delete(np.delete(distances, b, axis=0), b, axis=1)
        sizes[a] += sizes[b]
        numbers[a] = count + step
        del sizes[b], numbers[b]
    return merges


def leaf_order(merges: list[Merge], count: int) -> list[int]:
    """The heads in the order of the leaves of a tree of `count` heads, so that those that look
    alike stand together. merges: as `linkage` returns them.
    """
    # by number: each head alone, then each cluster as it arises
    members: list[list[int]] = [[head] for head in range(count)]
    for merge in merges:
        members.append(members[merge.a] + members[merge.b])
    if members:
        return members[-1]
    return []
