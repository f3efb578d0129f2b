"""Changes: what a head mixes after it is taken away, or after one of its links is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias, assert_never

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.analysis.effects.places import Chosen, attentions
from attncli.analysis.effects.sweep import Change, Joint, Numbers, Text
from attncli.arrays.backend import Array
from attncli.errors import InputError
from attncli.inputs.token import Token
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Weights
from attncli.mechanism.intervention import Intervention, Interventions, Kind, KnockOut, Replace, Zero
from attncli.mechanism.random_streams import normal
from attncli.mechanism.trace import LayerTrace
from attncli.models.run import through

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


class Link(Struct, frozen=True):
    """Which queries look at which keys, by position; of words, every pair of their pieces."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    kind: Kind = "self"


def of_kind(trace: LayerTrace, kind: Kind) -> LayerTrace:
    """The part of a layer's trace that is about one of its attentions."""
    found = trace if kind == "self" else trace.cross
    assert found is not None
    return found


def ablating(text: Text, by: By) -> Change:
    """Every head taken away in that way."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        own = text.backend.numpy(of_kind(trace, kind).stages["mixed"])
        return _instead(by, own, trace.layer, kind)

    return change


def ablating_together(text: Text, by: By, chosen: Chosen) -> Joint:
    """All chosen heads taken away at once, by what they mix in the text's own run."""

    def joint(trace: LayerTrace) -> Interventions:
        changes: dict[tuple[int, Kind], Sequence[Intervention]] = {}
        for kind, attention in attentions(text.model.spec.blocks[trace.layer]):
            heads = tuple(head for head in range(attention.heads) if chosen.has(trace.layer, head))
            if not heads:
                continue
            if isinstance(by, ByZero):
                changes[trace.layer, kind] = (Zero(heads),)
                continue
            own = text.backend.numpy(of_kind(trace, kind).stages["mixed"])
            values = _instead(by, own, trace.layer, kind)[list(heads)]
            changes[trace.layer, kind] = (Replace(heads, text.backend.array(values)),)
        return changes

    return joint


def _instead(by: By, own: Numbers, layer: int, kind: Kind) -> Numbers:
    match by:
        case ByZero():
            return np.zeros_like(own)
        case ByMean(None):
            mean = own.mean(-2, keepdims=True, dtype=np.float64)
        case ByMean(of) | ByResample(of):
            assert of is not None
            mean = of[layer, kind]
        case _:
            assert_never(by)
    return np.broadcast_to(mean.astype(own.dtype), own.shape)


def cutting(text: Text, link: Link) -> Change:
    """Every head with the link cut; what it mixes differs in the queries of the link alone."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        block, queries = text.model.spec.blocks[trace.layer], list(link.queries)
        attention = dict(attentions(block))[kind]
        cut = {(trace.layer, kind): (KnockOut(tuple(range(attention.heads)), link.queries, link.keys),)}
        # whole, as the own run was: the same products, bit for bit
        context = replace(text.context(), interventions=cut)
        without = run_block(text.backend, block, weights, trace.before, context, trace.layer)
        own = text.backend.numpy(of_kind(trace, kind).stages["mixed"]).copy()
        own[:, queries] = text.backend.numpy(of_kind(without, kind).stages["mixed"])[:, queries]
        return own

    return change


def cutting_together(text: Text, link: Link, chosen: Chosen) -> Joint:
    """The link cut in all chosen heads at once."""

    def joint(trace: LayerTrace) -> Interventions:
        attention = dict(attentions(text.model.spec.blocks[trace.layer])).get(link.kind)
        heads = () if attention is None else tuple(h for h in range(attention.heads) if chosen.has(trace.layer, h))
        return {(trace.layer, link.kind): (KnockOut(heads, link.queries, link.keys),)} if heads else {}

    return joint


def putting(text: Text, of: Mixed, at: Sequence[int]) -> Change:
    """Every head with what it mixes in another text put in at these tokens."""

    def change(trace: LayerTrace, weights: Weights, kind: Kind) -> Numbers:
        own = text.backend.numpy(of_kind(trace, kind).stages["mixed"]).copy()
        own[:, list(at)] = of[trace.layer, kind][:, list(at)]
        return own

    return change


def random_directions(layer: int, kind: Kind, head: int, own: Numbers, other: Numbers, draws: int) -> Numbers:
    """As far from `own` as `other` is at every token, in random directions: [draw, token, v_dim].

    own, other: [token, v_dim]. Each direction is uniform on the sphere, from a stream of its own by layer, attention,
    head, token and draw.
    """
    change = other.astype(np.float64) - own
    found = np.repeat(own.astype(np.float64)[None], draws, 0)
    for token in np.flatnonzero(change.any(-1)):
        size = float(np.linalg.norm(change[token]))
        for draw in range(draws):
            name = f"effect\0{layer}\0{kind}\0{head}\0{token}\0{draw}"
            direction = normal(BASELINE_SEED, name, (own.shape[-1],)).astype(np.float64)
            found[draw, token] += direction * (size / float(np.linalg.norm(direction)))
    return found.astype(own.dtype)


def mixed_of(text: Text) -> tuple[dict[tuple[int, Kind], Numbers], Array]:
    """What every head mixes in a text, and what leaves its last layer, [token, width]."""
    found: dict[tuple[int, Kind], Numbers] = {}
    spec, store, backend = text.model.spec, text.model.store, text.backend
    after = store.embed(backend, text.tokens)
    for trace in through(spec, store, backend, after, text.context(), range(len(spec.blocks))):
        for kind, _ in attentions(spec.blocks[trace.layer]):
            found[trace.layer, kind] = backend.numpy(of_kind(trace, kind).stages["mixed"])
        after = trace.after
    return found, after


def resampled(text: Text) -> ByResample:
    """Every head passes on what it mixes in this text."""
    return ByResample(mixed_of(text)[0], text.tokens)


def means_of(texts: Iterable[Text]) -> Mixed:
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


def same_length(own: Sequence[Token], other: Sequence[Token], what: str) -> None:
    """Raise InputError unless both texts have as many tokens. what: what the other text is called."""
    if len(own) != len(other):
        told = [" ".join(token.text for token in tokens) for tokens in (own, other)]
        raise InputError(
            f"the text has {len(own)} tokens, {what} has {len(other)}",
            where=f"{told[0]} | {told[1]}",
            expected="as many tokens in both: they stand for each other one by one",
        )
