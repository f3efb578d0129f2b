"""What a model and transformers compute of the same tokens, array beside array: weights by head,
vectors by layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attncli.mechanism.attend import EVERY_STAGE
from attncli.models.model import Model
from attncli.models.verify import ReferenceSide


@dataclass(frozen=True)
class Pair:
    """An array of ours beside the reference's."""

    what: str
    ours: np.ndarray
    theirs: np.ndarray

    @property
    def apart(self) -> float:
        """The largest |difference|, relative to the reference's largest number; infinite where one
        is no number.
        """
        apart = float(
            np.max(np.abs(self.ours - self.theirs)) / max(np.max(np.abs(self.theirs)), 1e-30)
        )
        return np.inf if np.isnan(apart) else apart


def both_sides(
    model: Model,
    ids: Sequence[int],
    target: Sequence[int] | None,
    keep: Collection[str] = EVERY_STAGE,
) -> tuple[ReferenceSide, ...]:
    """What the model makes of the tokens, as the reference tells it. target: a decoder's; None for
    one side alone.

    keep: the stages asked for, weights among them; few of them take shorter ways.
    """
    tokens = model.tokenizer.ids_to_tokens(ids)
    first = one_side(model, tokens, keep)
    if target is None:
        return (first,)
    return first, one_side(model.decoder(tokens), model.tokenizer.ids_to_tokens(target), keep)


def one_side(model: Model, tokens: list, keep: Collection[str] = EVERY_STAGE) -> ReferenceSide:
    """One stack of layers, run."""
    plain = model.backend.numpy
    every = list(model.trace(tokens, keep=keep, idle=True))
    traces = [trace for trace in every if not model.spec.blocks[trace.layer].instead]
    hidden = [
        plain(every[0].before),
        *(plain(trace.after) for trace in every[:-1]),
        plain(model.finish(every[-1].after)),
    ]
    cross = [plain(trace.cross.stages["weights"]) for trace in traces if trace.cross is not None]
    return ReferenceSide(
        tuple(hidden), tuple(plain(trace.stages["weights"]) for trace in traces), tuple(cross)
    )


def side_by_side(
    ours: tuple[ReferenceSide, ...], theirs: tuple[ReferenceSide, ...]
) -> Iterator[Pair]:
    """Every head's weights and every layer's vectors, with the reference's."""
    for side, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for kind in ("weights", "cross"):
            for layer, (one, other) in enumerate(
                zip(getattr(a, kind), getattr(b, kind), strict=True)
            ):
                where = f"side {side} layer {layer} {kind} head"
                yield from (
                    Pair(f"{where} {head}", *pair)
                    for head, pair in enumerate(zip(one, other, strict=True))
                )
        for place, (one, other) in enumerate(zip(a.hidden, b.hidden, strict=True)):
            if one.shape == other.shape:  # OPT 350m's reference goes on to the narrow width
                yield Pair(f"side {side} vectors {place}", one, other)
