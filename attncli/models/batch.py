"""Several texts at once: padded to the longest, each with the numbers that it has alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.errors import UnsupportedError, UsageError
from attncli.inputs.token import Token
from attncli.mechanism.context import Context
from attncli.mechanism.intervention import NOTHING, Interventions
from attncli.mechanism.spec import Spec
from attncli.mechanism.trace import STAGES, Later, LayerTrace
from attncli.models.run import Store, run_layers


def run_batch(
    spec: Spec,
    store: Store,
    backend: Backend,
    texts: Sequence[Sequence[Token]],
    layers: Collection[int],
    keep: frozenset[str],
    interventions: Interventions = NOTHING,
) -> Iterator[LayerTrace]:
    """Yield the traces of these layers, every array with a leading batch axis, one entry per text.

    Texts are padded at their end; no query sees the padding. Raises UsageError without texts, UnsupportedError
    where a text's own numbers would change with the length of the longest.
    """
    if not texts:
        raise UsageError("a batch holds no texts", expected="at least one")
    lengths = [len(tokens) for tokens in texts]
    _check(spec, len(set(lengths)) > 1)
    longest = max(lengths)
    hidden = backend.concat([_pad(backend, store.embed(backend, tokens), longest) for tokens in texts], 0)
    ends = backend.array(np.asarray(lengths, np.int64).reshape(-1, 1, 1, 1))
    context = Context(np.arange(longest), longest, key_lengths=ends, keep=keep, interventions=interventions)
    yield from run_layers(spec, store, backend, hidden, context, layers)


def take_text(trace: LayerTrace, entry: int, length: int) -> LayerTrace:
    """One text's part of a batch's trace, without batch axis and padding. length: how many tokens the text has."""
    longest, leaving = trace.before.shape[-2], trace.leaving
    stages = {
        name: _drop_padding(array[entry], STAGES[name].axes, length, longest) for name, array in trace.stages.items()
    }
    return replace(
        trace,
        stages=stages,
        empty_rows=trace.empty_rows[entry][..., :length],
        before=trace.before[entry][:length],
        leaving=Later(lambda: leaving()[entry][:length]),
    )


def _pad(backend: Backend, hidden: Array, longest: int) -> Array:
    """[token, width] as [1, longest, width], filled with 0."""
    missing = longest - hidden.shape[0]
    rows = (
        [hidden] if missing == 0 else [hidden, backend.full((missing, hidden.shape[1]), 0.0, backend.dtype_of(hidden))]
    )
    return backend.concat(rows, 0).reshape((1, longest, hidden.shape[1]))


def _drop_padding(array: Array, axes: Sequence[str], length: int, longest: int) -> Array:
    """Without the padding, which lies between a text's end and `longest`; learned keys come after it and stay."""
    for place, axis in enumerate(axes):
        if axis in ("token", "query", "key"):
            indices = [*range(length), *range(longest, array.shape[place])]
            array = array[(*[slice(None)] * place, indices)]
    return array


def _check(spec: Spec, differ: bool) -> None:
    """Raise UnsupportedError for what a batch cannot carry. differ: whether the texts differ in length."""
    for block in spec.blocks:
        for mask in block.attention.mask.parts_of():
            # hash buckets belong to the vectors of one text
            if mask.depends_on() == "vectors" or (differ and mask.depends_on() == "length"):
                raise UnsupportedError(
                    f"a mask of the kind {type(mask).__name__} depends on the text it is for",
                    expected="these texts one at a time",
                )
