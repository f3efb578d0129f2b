"""`attncli.compare_models`: what another form of a model changes, over texts.

Both models run each text side by side, one layer of each in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from attncli.arrays.backend import EVERY
from attncli.documents.header import attention_part, model_part, warnings_of_sides
from attncli.errors import InputError, UsageError
from attncli.features.compare_models.document import (
    ChangedHead,
    ChangedLayer,
    ChangedNumber,
    ComparedModel,
    CompareModelsDocument,
    LogProbability,
    ModelChange,
    NextWords,
)
from attncli.features.effects.measures import log_softmax
from attncli.features.effects.places import reads_on
from attncli.features.effects.sweep import pass_cost
from attncli.features.effects.targets import likeliest_tokens, predicts_next
from attncli.inputs.token import Token, ignore
from attncli.language import message
from attncli.measure.labels import row_divergences
from attncli.measure.mean_intervals import MeanInterval, mean_intervals, ratio_intervals
from attncli.mechanism.checked_arguments import checked
from attncli.models.estimate import BYTES_READ_A_SECOND, CostEstimate
from attncli.models.model import Model
from attncli.models.passes import PassCount, seconds_of_passes
from attncli.version import __version__

Floats = np.ndarray[Any, np.dtype[Any]]

BEYOND = 0.01
"""The Jensen–Shannon divergence in nats above which a head counts as moved where nothing else is
said: as much as between weights of 0.85 and 0.15 on two keys and of 0.74 and 0.26. The largest of
MiniLM's 72 heads in 4 bits (Q4_0) is 0.0096, on one sentence."""
LOGITS_TOGETHER = 2**23
"""Logits of a model that are in memory at once: 64 MiB of float64."""
DIVERGENCES = 2.0e7
"""Pairs of weights (one of either model, for the same query and key) that are compared a second."""
LAYER_STEP = 4e-3
"""Seconds of a layer in a run of a short text besides its products. Measured as 3 to 6 ms on one
thread, on MiniLM's 12 and SmolLM2's 9 heads."""
KEEPS = 4.0e8
"""Bytes of weights a second that are read, decoded and kept by the first run. Measured on SmolLM2."""
NEXT_WORDS = 5
"""How many next tokens of either model are told."""


class _ChangedText(Struct, frozen=True, eq=False):
    """What was measured of one text.

    js: [head], the Jensen–Shannon divergence of the models' rows of weights, the mean over rows.
    largest: [head], the difference b − a of the weight that differs most.
    logprob: [model], the sum of ln p of its tokens after the first; None for models that predict no
        next token.
    agreement: after how many tokens both models find the same next token likeliest; None like
        `logprob`.
    next_words: the likeliest tokens after the text in either model; None where not asked for.
    tokens: how many it has.
    """

    js: Floats
    largest: Floats
    logprob: Floats | None
    agreement: int | None
    next_words: NextWords | None
    tokens: int


@checked
def compare_models(
    a: Model,
    b: Model,
    text: str | Sequence[str],
    *,
    beyond: float = BEYOND,
    names: tuple[str, str] | None = None,
    progress: Callable[[float], None] = ignore,
) -> CompareModelsDocument:
    """Tell what another form of a model changes: which heads moved, how likely the texts are, what
    comes next.

    Args:
        a: The model as it was.
        b: The other form, with the same layers, heads and tokens: quantised, fine-tuned, or with an
            adapter. Models of `attncli.load(…, hold=True)` read their weights once for all texts.
        text: A text, or several, over which numbers are means with intervals.
        beyond: The Jensen–Shannon divergence, in nats, above which a head counts as moved.
        names: What the models are called; None for their own names.
        progress: Is told the share of the texts that is done, 0 to 1.

    Returns:
        What `attn compare A B --file FILE --lines --json` writes.

    Raises:
        InputError: For models with other layers, heads or tokens, and for no text.
        UsageError: For a bound that no divergence can reach.
    """
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InputError("there is no text to compare on", expected="one or more")
    if names is None:
        names = (a.identity.name or a.identity.source, b.identity.name or b.identity.source)
    pairs = [(a.encode(part), b.encode(part)) for part in texts]
    return compare_tokens(a, b, pairs, beyond=beyond, names=names, progress=progress)


def compare_tokens(
    a: Model,
    b: Model,
    texts: Sequence[tuple[Sequence[Token], Sequence[Token]]],
    *,
    beyond: float,
    names: tuple[str, str],
    progress: Callable[[float], None] = ignore,
) -> CompareModelsDocument:
    """Compare two models as `compare_models` does, on texts that are tokenized already, each by
    either model."""
    change, tokens = model_change(a, b, texts, beyond=beyond, names=names, progress=progress)
    longest = max(len(tokens_a) for tokens_a, _ in texts)
    sides = [
        ComparedModel(
            name=name,
            model=model_part(model),
            attention=attention_part(model, model.compute_backend(longest)),
        )
        for name, model in zip(names, (a, b), strict=True)
    ]
    return CompareModelsDocument(
        version=__version__,
        a=sides[0],
        b=sides[1],
        texts=len(texts),
        tokens=tokens,
        change=change,
        warnings=warnings_of_sides(list(a.warnings), list(b.warnings)),
    )


def compare_cost(a: Model, b: Model, counts: Sequence[int]) -> CostEstimate:
    """The cost of running texts in both models side by side and of comparing their rows.

    counts: the tokens of each text.

    Returns:
        The estimate, whose `branches` are the texts and whose `tokens` are those of the longest. Its
        memory holds one layer of each model, or all of their weights where they are kept.
    """
    lengths = Counter(counts)
    longest = max(counts)
    runs = [pass_cost(model, longest) for model in (a, b)]
    logits_bytes = 2 * LOGITS_TOGETHER * 8  # of both models, in float64
    memory: Counter[str] = Counter({message("logits"): logits_bytes})
    bytes_read = 0
    seconds = 0.0
    for model, run in zip((a, b), runs, strict=True):
        predicts = reads_on(model.spec) and predicts_next(model)
        passes = []
        for tokens, texts in lengths.items():
            predicted = 0
            if predicts:
                predicted = tokens  # logits after every token
            passes.append(PassCount(texts, tokens, predicted=predicted))
        model_bytes_read = 0
        if not model.weights_in_memory:
            model_bytes_read = run.bytes_read * len(counts)  # every text reads all weights anew
        bytes_read += model_bytes_read
        # the disk is read while layers are computed: the slower of the two decides
        seconds += max(seconds_of_passes(model, passes), model_bytes_read / BYTES_READ_A_SECOND)
        # weights that stay in memory are read once, by the first run
        seconds += model.weights_in_memory / KEEPS
        seconds += LAYER_STEP * len(model.spec.blocks) * len(counts)
        memory.update(run.memory)  # a Counter adds what both models hold under one name
    heads = len(list(_layers_and_heads(a)))
    pairs = heads * sum(texts * tokens**2 for tokens, texts in lengths.items())
    return CostEstimate(
        tokens=longest,
        layers=len(a.spec.blocks),
        bytes_read=bytes_read,
        multiply_adds=sum(run.multiply_adds for run in runs) * len(counts),
        memory=memory,
        seconds=seconds + pairs / DIVERGENCES,
        branches=len(counts),
        resident=sum(run.resident for run in runs),
    )


def model_change(
    a: Model,
    b: Model,
    texts: Sequence[tuple[Sequence[Token], Sequence[Token]]],
    *,
    beyond: float,
    names: tuple[str, str],
    queries: Sequence[int] | None = None,
    progress: Callable[[float], None] = ignore,
) -> tuple[ModelChange, int]:
    """(what differs between two models over texts, the number of all tokens); other arguments as of
    `compare_models`.

    texts: each as the tokens of model a and those of model b.
    queries: the positions of the tokens whose rows are compared; None for all.

    Raises InputError for models with other heads or tokens, UsageError for a bound that no
    divergence can reach.
    """
    if not 0 <= beyond <= np.log(2):
        raise UsageError(
            "the divergence is to be above {beyond:g}",
            expected="0 to 0.6931, which is ln 2",
            beyond=beyond,
        )
    refuse_other_heads(a, b, names)
    for pair in texts:
        refuse_other_tokens(pair, names)
    changed_texts = []
    for number, (tokens, _) in enumerate(texts):
        changed_texts.append(_changed_text(a, b, tokens, queries, is_single=len(texts) == 1))
        progress((number + 1) / len(texts))

    # of each head the mean over texts with its interval, and the largest difference in any text
    places = list(_layers_and_heads(a))
    js = np.stack([changed.js for changed in changed_texts])
    largest = np.stack([changed.largest for changed in changed_texts])
    heads = [
        ChangedHead(
            layer=layer,
            head=head,
            js=_number(interval),
            max_difference=float(column[np.abs(column).argmax()]),
        )
        for (layer, head), interval, column in zip(
            places, mean_intervals(js), largest.T, strict=True
        )
    ]
    next_words: NextWords | UnsetType = UNSET
    if len(changed_texts) == 1 and changed_texts[0].next_words is not None:
        next_words = changed_texts[0].next_words
    change = ModelChange(
        beyond=beyond,
        moved=sum(head.js.mean > beyond for head in heads),
        heads=sorted(heads, key=lambda head: -head.js.mean),
        layers=_layers(heads, js, beyond),
        logprob=_log_probability(changed_texts),
        agreement=_agreement(changed_texts),
        next=next_words,
    )
    return change, sum(changed.tokens for changed in changed_texts)


def _layers_and_heads(model: Model) -> Iterator[tuple[int, int]]:
    """Yield each head of a model as (layer, head), in the order of layers."""
    for layer in model.spec.attending(EVERY):
        for head in range(model.spec.blocks[layer].attention.heads):
            yield layer, head


def refuse_other_heads(a: Model, b: Model, names: tuple[str, str]) -> None:
    """Raise InputError for models that have not the same heads in the same layers."""
    heads_a = list(_layers_and_heads(a))
    heads_b = list(_layers_and_heads(b))
    if heads_a == heads_b:
        return
    hint: str = ""
    # models of one width may be relatives, with single heads worth comparing
    if a.spec.d_model == b.spec.d_model:
        hint = message("--layer and --head, once for each, choose heads to compare")
    raise InputError(
        "{a} has {a_layers} layers with {a_heads} heads in all, {b} has {b_layers} with {b_heads}:"
        " no head of one stands for a head of the other",
        expected="two forms of one model: quantised, fine-tuned, with an adapter",
        hint=hint,
        a=names[0],
        b=names[1],
        a_layers=len(a.spec.blocks),
        b_layers=len(b.spec.blocks),
        a_heads=len(heads_a),
        b_heads=len(heads_b),
    )


def refuse_other_tokens(
    pair: tuple[Sequence[Token], Sequence[Token]], names: tuple[str, str]
) -> None:
    """Raise InputError where two models split a text differently, or give its tokens other ids.

    pair: the text's tokens in either model.
    names: what the models are called.
    """
    first = [(token.text, token.id) for token in pair[0]]
    second = [(token.text, token.id) for token in pair[1]]
    if first == second:
        return
    # the first token that differs; slices, as one list may end where the other goes on
    place = 0
    while first[place : place + 1] == second[place : place + 1]:
        place += 1
    raise InputError(
        "the models split the text differently: from token {place} on {a} has {a_tokens}, {b} has"
        " {b_tokens}",
        expected="two forms of one model, with one tokenizer",
        place=place,
        a=names[0],
        b=names[1],
        a_tokens=_token_text(first, place),
        b_tokens=_token_text(second, place),
    )


def _token_text(tokens: Sequence[tuple[str, int | None]], place: int) -> str:
    """The token at a place with its id, for an error, such as "'cat' (42)"; "no more" behind the
    last.

    tokens: (text, id) of each.
    """
    if place >= len(tokens):
        return message("no more")
    text, number = tokens[place]
    return f"{text!r} ({number})"


def _changed_text(
    a: Model,
    b: Model,
    tokens: Sequence[Token],
    queries: Sequence[int] | None,
    *,
    is_single: bool,
) -> _ChangedText:
    """Run a text in both models side by side, layer by layer, and measure what differs.

    queries: the positions of the tokens whose rows are compared; None for all.
    is_single: whether it is the only text, so that the words that come next are told.
    """
    compared: slice | list[int] = slice(None)  # index of the query axis
    if queries is not None:
        compared = list(queries)
    js: list[float] = []
    largest: list[float] = []
    last: tuple[Any, Any] | None = None  # vectors after the last layer of a and of b
    predicts = all(reads_on(model.spec) and predicts_next(model) for model in (a, b))
    # `idle` yields layers without attention, too: the last layer may be one
    runs = [iter(model.trace(list(tokens), keep=("weights",), idle=True)) for model in (a, b)]
    for trace_a, trace_b in zip(*runs, strict=True):  # of one layer
        if predicts and trace_a.layer == len(a.spec.blocks) - 1:
            last = (trace_a.after, trace_b.after)
        if "weights" not in trace_a.stages or "weights" not in trace_b.stages:
            continue  # a layer without attention
        weights_a = np.asarray(a.backend.numpy(trace_a.stages["weights"]), np.float64)[:, compared]
        weights_b = np.asarray(b.backend.numpy(trace_b.stages["weights"]), np.float64)[:, compared]
        for head_a, head_b in zip(weights_a, weights_b, strict=True):
            divergence, difference = _head_change(head_a, head_b)
            js.append(divergence)
            largest.append(difference)
    logprob = None
    agreement = None
    next_words = None
    if last is not None:
        logprob, agreement, rows_after = _predictions((a, b), last, tokens)
        if is_single:
            next_words = NextWords(
                a=likeliest_tokens(a, np.exp(rows_after[0]), NEXT_WORDS),
                b=likeliest_tokens(b, np.exp(rows_after[1]), NEXT_WORDS),
            )
    return _ChangedText(
        js=np.asarray(js),
        largest=np.asarray(largest),
        logprob=logprob,
        agreement=agreement,
        next_words=next_words,
        tokens=len(tokens),
    )


def _head_change(weights_a: Floats, weights_b: Floats) -> tuple[float, float]:
    """(the mean Jensen–Shannon divergence of a head's rows in two models, the difference b − a of the
    weight that differs most), from its weights in either, [query, key]."""
    # a row that sees nothing has no weights to compare
    rows = (weights_a.sum(-1) > 0) & (weights_b.sum(-1) > 0)
    divergence = 0.0
    if rows.any():
        divergence = float(row_divergences(weights_a[rows], weights_b[rows]).mean())
    differences = weights_b - weights_a
    largest_index = int(np.abs(differences).argmax())  # in the flattened [query, key]
    return divergence, float(differences.flat[largest_index])


def _predictions(
    models: tuple[Model, Model], vectors: tuple[Any, Any], tokens: Sequence[Token]
) -> tuple[Floats, int, list[Floats]]:
    """What two models predict over a text: (the sums of ln p of the tokens after the first [model],
    after how many tokens both find the same next token likeliest, ln p of what comes after the
    last token [vocabulary] for each model).

    vectors: what leaves the last layer of either model, [token, width].
    """
    count = len(tokens)
    numbers = np.asarray([token.id for token in tokens], np.int64)
    sums = np.zeros(2)
    agreement = 0
    rows_after: list[Floats] = []  # of the latest position, so in the end of the last
    # as many positions at a time as LOGITS_TOGETHER allows; the first is alone, as only its logits
    # tell how large the vocabulary is
    step = 1
    start = 0
    while start < count:
        stop = min(start + step, count)
        choices = []  # the likeliest token after each position, [model][position]
        rows_after = []
        for index, (model, vector) in enumerate(zip(models, vectors, strict=True)):
            logits = np.asarray(model.backend.numpy(model.logits(vector[start:stop])), np.float64)
            rows = log_softmax(logits)
            following = numbers[start + 1 : stop + 1]  # one fewer at the end of the text
            sums[index] += float(rows[np.arange(len(following)), following].sum())
            choices.append(rows.argmax(-1))
            rows_after.append(rows[-1])
            step = max(1, LOGITS_TOGETHER // rows.shape[-1])
        agreement += int((choices[0] == choices[1]).sum())
        start = stop
    return sums, agreement, rows_after


def _number(interval: MeanInterval) -> ChangedNumber:
    """A mean with its interval as the document's type."""
    return ChangedNumber(mean=interval.mean, low=interval.low, high=interval.high)


def _layers(heads: Sequence[ChangedHead], js: Floats, beyond: float) -> list[ChangedLayer]:
    """The document's entries on each layer: how much its heads changed on average, and how many of
    them moved.

    heads: in the order of the columns of `js`.
    js: the divergence of each head in each text, [text, head].
    beyond: the divergence above which a head counts as moved.
    """
    layers = []
    for layer in dict.fromkeys(head.layer for head in heads):
        columns = [place for place, head in enumerate(heads) if head.layer == layer]
        (interval,) = mean_intervals(js[:, columns].mean(1, keepdims=True))
        moved = sum(heads[place].js.mean > beyond for place in columns)
        layers.append(ChangedLayer(layer=layer, js=_number(interval), moved=moved))
    return layers


def _log_probability(texts: Sequence[_ChangedText]) -> LogProbability | None:
    """The document's part about ln p per token in either model, over the texts of two tokens or
    more; None where there is none, and for models that predict no next token."""
    sums = []
    sizes = []  # tokens that were predicted: all but a text's first
    for text in texts:
        if text.logprob is not None and text.tokens > 1:
            sums.append(text.logprob)
            sizes.append(float(text.tokens - 1))
    if not sums:
        return None
    by_text = np.stack(sums)  # [text, model], A first
    counts = np.asarray(sizes)
    means = by_text.sum(0) / counts.sum()
    (interval,) = ratio_intervals(by_text[:, 1:] - by_text[:, :1], counts)  # B − A, one column
    return LogProbability(
        a=float(means[0]), b=float(means[1]), difference=_number(interval), tokens=int(counts.sum())
    )


def _agreement(texts: Sequence[_ChangedText]) -> ChangedNumber | None:
    """The share of tokens after which both models find the same next token likeliest, with its
    interval; None for models that predict none."""
    # of every text, or of none: the same models ran them all
    counts = [text.agreement for text in texts if text.agreement is not None]
    if not counts:
        return None
    sizes = np.asarray([float(text.tokens) for text in texts])
    (interval,) = ratio_intervals(np.asarray(counts, np.float64)[:, None], sizes)
    return _number(interval)
