"""What several runs of texts through all layers take: how many there are, times the time of one."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from attncli.models.estimate import (
    DECODED_A_SECOND,
    SCORES_A_SECOND,
    ComputeWork,
    seconds_of,
    work_of,
)
from attncli.models.model import Model


class PassCount(Struct, frozen=True):
    """So many runs of texts of one length.

    passes: how many.
    tokens: that each runs.
    predicted: of how many of them the next token's logits are computed.
    """

    passes: int
    tokens: int
    predicted: int = 1

    @property
    def tokens_run(self) -> int:
        """Tokens that go through the layers in all of these runs."""
        return self.passes * self.tokens


def seconds_of_passes(model: Model, counts: Iterable[PassCount]) -> float:
    """Rough seconds of these runs, by the rule that `attn cost` states, without the program's start:
    the products and softmaxes of the layers, those of the output head, and the decoding of weights
    that are stored quantised and not kept.
    """
    spec = model.spec
    table = spec.vocabulary * spec.d_model  # numbers of the output head's matrix
    seconds = 0.0
    for count in counts:
        if not count.passes:
            continue
        work = work_of(spec, spec.blocks, count.tokens)
        if count.predicted:  # the output head's matrix is passed through once
            work = ComputeWork(
                work.weights + table, work.products + count.predicted * table, work.scores
            )
        # logits become probabilities as fast as scores become weights
        softmax_seconds = count.predicted * spec.vocabulary / SCORES_A_SECOND
        dtype = model.compute_backend(count.tokens).dtype
        seconds_once = (
            seconds_of(work, dtype) + softmax_seconds + decoding_seconds(model, count.tokens)
        )
        seconds += count.passes * seconds_once
    return seconds


def decoding_seconds(model: Model, count: int) -> float:
    """About how long decoding the weights of all layers takes in a run of `count` tokens: nothing
    where they are kept, or stored as they are computed with."""
    if model.weights_in_memory or model.identity.quantization is None:
        return 0.0
    return work_of(model.spec, model.spec.blocks, count).weights / DECODED_A_SECOND
