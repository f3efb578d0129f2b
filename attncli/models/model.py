"""`Model`: a Spec, the weights that go with it, and a tokenizer; `trace` yields one layer at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from attncli.arrays.backend import Array, Backend
from attncli.attention.attend import EVERY_STAGE, RowBlock
from attncli.attention.block import Context, Weights, run_block
from attncli.attention.spec import Spec
from attncli.attention.trace import LayerTrace
from attncli.errors import InputError
from attncli.inputs.tokenize import Token, Tokenizer


@dataclass(frozen=True)
class Identity:
    """Where the weights come from, as every document states it.

    source: "seeded", "random", "file", "checkpoint" or "tensors". digest: sha256 of the
    weights; None where computing it would mean reading weights the run does not need.
    layout: how a weight file spells its tensors, in words; None for the others.
    """

    source: str
    name: str | None = None
    family: str | None = None
    seed: int | None = None
    digest: str | None = None
    layout: str | None = None


class Store(Protocol):
    """Where a model's weights come from, read by role, one layer at a time."""

    def embed(self, backend: Backend, tokens: Sequence[Token]) -> Array:
        """The vectors that enter layer 0, [token, width]; reads the rows needed."""

    def layer(self, backend: Backend, index: int) -> Weights:
        """The weights of one layer by role."""

    def bytes_read(self) -> int:
        """How many bytes of weights have been read so far."""


@dataclass(frozen=True, eq=False)
class Model:
    """A model ready to run. `attncli.load` makes one.

    warnings: what loading found odd, for every document made with it.
    """

    spec: Spec
    store: Store
    tokenizer: Tokenizer
    backend: Backend
    identity: Identity
    warnings: tuple[str, ...] = ()

    def encode(self, text: str) -> list[Token]:
        """The tokens of a text. Raises InputError if there are none or too many for the positions."""
        return self.checked(self.tokenizer.encode(text))

    def checked(self, tokens: list[Token]) -> list[Token]:
        """The tokens, if the model can take that many."""
        if not tokens:
            raise InputError("the text has no tokens", expected="at least one word")
        limit = self.spec.max_positions
        if limit is not None and len(tokens) > limit:
            raise InputError(f"the text has {len(tokens)} tokens, the model has {limit} positions", expected=f"at most {limit} tokens")
        return tokens

    def trace(
        self,
        text: str | Sequence[Token],
        *,
        layers: Collection[int] | None = None,
        heads: Collection[int] | None = None,
        keep: Collection[str] = EVERY_STAGE,
        rows: int | None = None,
        see: Callable[[int, str, RowBlock], None] | None = None,
    ) -> Iterator[LayerTrace]:
        """Run the model on one text and yield the layers asked for, in order.

        layers: which to yield, None for all; layers after the last of them are not read.
        heads: which heads to keep in stages with a head axis, None for all.
        keep: which n × n stages to keep. rows, see: run by blocks of query rows, see `Context`.
        """
        tokens = self.encode(text) if isinstance(text, str) else self.checked(list(text))
        wanted = sorted(set(range(len(self.spec.blocks)) if layers is None else layers))
        self._check("layer", wanted, len(self.spec.blocks))
        context = Context(np.arange(len(tokens)), len(tokens), keep=frozenset(keep), rows=rows, see=see)
        hidden = self.store.embed(self.backend, tokens)
        for index, block in enumerate(self.spec.blocks[: wanted[-1] + 1]):
            quiet = context if index in wanted else replace(context, keep=frozenset(), see=None)
            trace = run_block(self.backend, block, self.store.layer(self.backend, index), hidden, quiet, index)
            hidden = trace.after
            if index in wanted:
                yield self._only(trace, heads)

    def _check(self, what: str, indices: Sequence[int], count: int) -> None:
        for index in indices:
            if not 0 <= index < count:
                raise InputError(f"there is no {what} {index}", expected=f"0 to {count - 1} ({count} {what}s)")

    def _only(self, trace: LayerTrace, heads: Collection[int] | None) -> LayerTrace:
        if heads is None:
            return trace
        attention = self.spec.blocks[trace.layer].attention
        self._check("head", sorted(heads), attention.heads)
        return choose_heads(trace, sorted(heads), attention.heads // attention.kv_heads)


def choose_heads(trace: LayerTrace, heads: Sequence[int], shared: int) -> LayerTrace:
    """The trace with only these heads in its per-head stages; k and v by the kv head each one uses."""
    picked = {}
    for name, array in trace.stages.items():
        if name in ("k", "v"):
            picked[name] = array[..., [head // shared for head in heads], :, :]
        elif name in ("hidden", "concat", "out", "sum", "norm"):
            picked[name] = array
        else:
            picked[name] = array[..., list(heads), :, :]
    return replace(trace, stages=picked, empty_rows=trace.empty_rows[..., list(heads), :])
