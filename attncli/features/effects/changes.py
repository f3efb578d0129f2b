"""Changes: what a head mixes after it is taken away, or after one of its links is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias, assert_never

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array
from attncli.arrays.numpy_backend import normal
from attncli.errors import InputError
from attncli.features.effects.places import attentions
from attncli.features.effects.sweep import Change, Joint, Numbers, SweepText
from attncli.inputs.token import Token
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Intervention, Interventions, Kind, KnockOut, Replace, Weights, Zero
from attncli.mechanism.spec import HeadSelection
from attncli.mechanism.trace import LayerTrace
from attncli.models.run import run_layers

Mixed: TypeAlias = Mapping[tuple[int, Kind], Numbers]
"""What the heads of each attention mix, [head, token, v_dim]; [head, 1, v_dim] for a mean over tokens."""

BASELINE_SEED = 0
"""Seed of the random directions."""


class ByZero(Struct, frozen=True):
    """A head passes on nothing. Source: Michel et al., 2019; Voita et al., 2019."""

    name: ClassVar[Literal["zero"]] = "zero"


class ByMean(Struct, frozen=True, eq=False):
    """A head passes on, at every token, the mean of what it mixes over the tokens of texts. of: those means, None for
    this text's own. Source: Wang et al., Interpretability in the wild, 2022."""

    of: Mixed | None = None
    name: ClassVar[Literal["mean"]] = "mean"


class ByResample(Struct, frozen=True, eq=False):
    """A head passes on what it mixes in another text, token by token. Source: Chan et al., Causal scrubbing, 2022."""

    of: Mixed
    tokens: Sequence[Token]
    name: ClassVar[Literal["resample"]] = "resample"


By: TypeAlias = ByZero | ByMean | ByResample


class CutLink(Struct, frozen=True):
    """Which queries look at which keys, by position; of words, every pair of their pieces."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    kind: Kind = "self"


def of_kind(trace: LayerTrace, kind: Kind) -> LayerTrace:
    """The part of a layer's trace that is about one of its attentions."""
    kind_trace = trace if kind == "self" else trace.cross
    assert kind_trace is not None
    return kind_trace


def ablate_heads(text: SweepText, by: By) -> Change:
    """Every head taken away in that way."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        values = text.backend.numpy(of_kind(trace, kind).stages["mixed"])
        return _replacement(by, values, trace.layer, kind)

    return change


def ablate_heads_together(text: SweepText, by: By, selection: HeadSelection) -> Joint:
    """All chosen heads taken away at once, by what they mix in the text's own run."""

    def joint(trace: LayerTrace) -> Interventions:
        changes: dict[tuple[int, Kind], Sequence[Intervention]] = {}
        for kind, attention in attentions(text.model.spec.blocks[trace.layer]):
            heads = tuple(head for head in range(attention.heads) if selection.has(trace.layer, head))
            if not heads:
                continue
            if isinstance(by, ByZero):
                changes[trace.layer, kind] = (Zero(heads),)
                continue
            head_values = text.backend.numpy(of_kind(trace, kind).stages["mixed"])
            values = _replacement(by, head_values, trace.layer, kind)[list(heads)]
            changes[trace.layer, kind] = (Replace(heads, text.backend.array(values)),)
        return changes

    return joint


def _replacement(by: By, values: Numbers, layer: int, kind: Kind) -> Numbers:
    match by:
        case ByZero():
            return np.zeros_like(values)
        case ByMean(None):
            mean = values.mean(-2, keepdims=True, dtype=np.float64)
        case ByMean(of) | ByResample(of):
            assert of is not None
            mean = of[layer, kind]
        case _:
            assert_never(by)
    return np.broadcast_to(mean.astype(values.dtype), values.shape)


def cut_link(text: SweepText, link: CutLink) -> Change:
    """Every head with the link cut; what it mixes differs in the queries of the link alone."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        block, queries = text.model.spec.blocks[trace.layer], list(link.queries)
        attention = dict(attentions(block))[kind]
        interventions = {(trace.layer, kind): (KnockOut(tuple(range(attention.heads)), link.queries, link.keys),)}
        # whole, as the own run was: the same products, bit for bit
        context = replace(text.context(), interventions=interventions)
        without = run_block(text.backend, block, weights, trace.before, context, trace.layer)
        values = text.backend.numpy(of_kind(trace, kind).stages["mixed"]).copy()
        values[:, queries] = text.backend.numpy(of_kind(without, kind).stages["mixed"])[:, queries]
        return values

    return change


def cut_link_together(text: SweepText, link: CutLink, selection: HeadSelection) -> Joint:
    """The link cut in all chosen heads at once."""

    def joint(trace: LayerTrace) -> Interventions:
        attention = dict(attentions(text.model.spec.blocks[trace.layer])).get(link.kind)
        heads = () if attention is None else tuple(h for h in range(attention.heads) if selection.has(trace.layer, h))
        return {(trace.layer, link.kind): (KnockOut(heads, link.queries, link.keys),)} if heads else {}

    return joint


def put_values(text: SweepText, of: Mixed, positions: Sequence[int]) -> Change:
    """Every head with what it mixes in another text put in at these tokens."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        values = text.backend.numpy(of_kind(trace, kind).stages["mixed"]).copy()
        values[:, list(positions)] = of[trace.layer, kind][:, list(positions)]
        return values

    return change


def random_directions(layer: int, kind: Kind, head: int, values: Numbers, replacement: Numbers, draws: int) -> Numbers:
    """As far from `values` as `replacement` is at every token, in random directions: [draw, token, v_dim].

    own, other: [token, v_dim]. Each direction is uniform on the sphere, from a stream of its own by layer, attention,
    head, token and draw.
    """
    change = replacement.astype(np.float64) - values
    variants = np.repeat(values.astype(np.float64)[None], draws, 0)
    for token in np.flatnonzero(change.any(-1)):
        size = float(np.linalg.norm(change[token]))
        for draw in range(draws):
            name = f"effect\0{layer}\0{kind}\0{head}\0{token}\0{draw}"
            direction = normal(BASELINE_SEED, name, (values.shape[-1],)).astype(np.float64)
            variants[draw, token] += direction * (size / float(np.linalg.norm(direction)))
    return variants.astype(values.dtype)


def mixed_of(text: SweepText) -> tuple[dict[tuple[int, Kind], Numbers], Array]:
    """What every head mixes in a text, and what leaves its last layer, [token, width]."""
    by_layer: dict[tuple[int, Kind], Numbers] = {}
    spec, store, backend = text.model.spec, text.model.store, text.backend
    after = store.embed(backend, text.tokens)
    for trace in run_layers(spec, store, backend, after, text.context(), range(len(spec.blocks))):
        for kind, _ in attentions(spec.blocks[trace.layer]):
            by_layer[trace.layer, kind] = backend.numpy(of_kind(trace, kind).stages["mixed"])
        after = trace.after
    return by_layer, after


def resample_from(text: SweepText) -> ByResample:
    """Every head passes on what it mixes in this text."""
    return ByResample(mixed_of(text)[0], text.tokens)


def means_of(texts: Iterable[SweepText]) -> Mixed:
    """What every head mixes, the mean over all tokens of all texts, [head, 1, v_dim]. Raises InputError for no text."""
    sums: dict[tuple[int, Kind], Numbers] = {}
    count = 0
    for text in texts:
        count += text.count
        for key, values in mixed_of(text)[0].items():
            total = values.sum(-2, keepdims=True, dtype=np.float64)
            sums[key] = sums[key] + total if key in sums else total
    if not count:
        raise InputError("the reference holds no text", expected="at least one line")
    return {key: total / count for key, total in sums.items()}


def same_length(tokens_a: Sequence[Token], tokens_b: Sequence[Token], what: str) -> None:
    """Raise InputError unless both texts have as many tokens. what: what the other text is called."""
    if len(tokens_a) != len(tokens_b):
        texts = [" ".join(token.text for token in tokens) for tokens in (tokens_a, tokens_b)]
        raise InputError(
            "the text has {tokens_a} tokens, {what} has {tokens_b}",
            where=f"{texts[0]} | {texts[1]}",
            expected="as many tokens in both: they stand for each other one by one",
            tokens_a=len(tokens_a),
            what=what,
            tokens_b=len(tokens_b),
        )
