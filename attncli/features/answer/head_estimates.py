"""About how much of an answer each head carries from a region: to first order, by one run back through
the answer's tokens.

A head whose links from the answer's queries to the region are cut passes on something else; what that
changes is estimated by the gradient of the answer's mean log probability at what it passes on. Source:
Syed et al., Attribution patching outperforms automated circuit discovery, 2023 (arXiv 2310.10348).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.arrays.gradient_backend import Variable, gradient_backend, gradients, zeros_like
from attncli.features.answer.cut_runs import CutRuns, OwnKeys
from attncli.inputs.token import Token
from attncli.measure.rest import resting_keys
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context, Interventions, KnockOut, Past, ReadWeights, Weights
from attncli.mechanism.feed_forward import linear_if_any
from attncli.models.model import Model
from attncli.models.run import cache_weights, logits

Floats = np.ndarray[Any, np.dtype[Any]]


class HeadEstimate(Struct, frozen=True):
    """What one head is estimated to carry.

    change: of the mean log probability a token, in nats, where the answer's queries do not see the
        region in it.
    attention: of these queries on it besides where heads rest, a mean.
    """

    layer: int
    head: int
    change: float
    attention: float


class _WatchedOutput(ReadWeights):
    """A layer's weights whose output projection of the heads remembers what it is given.

    head_outputs: that, [token, head·dim]; None before the layer has run.
    slope: a variable of zeros added to it, whose gradient is that of `head_outputs`; None before the layer
        has run, and in a run without gradients.
    has_gradients: whether the run computes gradients.
    """

    def __init__(self, weights: Weights, *, has_gradients: bool) -> None:
        self._weights = weights
        self._has_gradients = has_gradients
        self.head_outputs: Array | None = None
        self.slope: Variable | None = None

    def __call__(self, role: str, /) -> Array | None:
        return self._weights(role)

    def product(self, name: str, x: Array, backend: Backend) -> Array | None:
        """Called by the layer for each of its matrix products: for the output projection of the
        heads, remember x and return its product; None for all others, which the layer then computes
        as usual. In a run with gradients, x is first added to a variable of zeros, whose gradient is
        that of x."""
        if name != "attn.o":
            return None
        self.head_outputs = x
        if self._has_gradients:
            self.slope = zeros_like(x)
            x = x + cast("Array", self.slope)
        return linear_if_any(backend, self._weights, name, x)


def head_estimates(runs: CutRuns, own: OwnKeys, keys: Sequence[int]) -> list[HeadEstimate]:
    """Estimate for every head how much of the answer's probability it carries from a region.

    Args:
        runs: The prompt and its answer.
        own: What is kept of the uncut run.
        keys: The indices of the region's tokens.

    Returns:
        An estimate for each head, layer by layer; layers that do not attend have none.
    """
    run = _BackwardRun(runs, own, keys)
    return run.estimates()


class _BackwardRun:
    """The answer's tokens, run with gradients after the keys and values of the prompt."""

    def __init__(self, runs: CutRuns, own: OwnKeys, keys: Sequence[int]) -> None:
        """Choose the precision, and the answer's tokens to run. Arguments as of
        `head_estimates`."""
        self._runs = runs
        self._model: Model = runs.model
        self._past = own.past
        # gradients are computed in float64 where the keys are, in float32 for narrower types, too;
        # the first array of any layer tells, as all have one dtype
        some_keys, *_ = next(iter(own.past.values()))
        dtype = self._model.backend.dtype_of(some_keys)
        if dtype != "float64":
            dtype = "float32"
        self._plain = numpy_backend(dtype)
        self._backend = gradient_backend(dtype)
        self._keys = keys
        # attention on the region is told without keys where heads put weight, looking for nothing
        rest = resting_keys(runs.tokens, runs.model.identity.source)
        self._keys_told = [key for key in keys if not rest[key]]
        self._tokens: list[Token] = list(runs.tokens[runs.first_query :])

    def estimates(self) -> list[HeadEstimate]:
        """Run the answer's tokens forwards with gradients, and each layer once more with the region
        hidden from them; then estimate each head's effect as gradient × change of its output."""
        spec = self._model.spec
        store = self._model.store
        store.expect(range(len(spec.blocks)))  # all will be read: a file is read ahead
        hidden: Array = store.embed(self._plain, self._tokens)
        variables: list[Variable] = []
        # of each attending layer: its number, by how much a cut changes what heads pass on, and
        # attention on the region, [head]
        layers: list[tuple[int, Floats, Floats]] = []
        for layer, block in enumerate(spec.blocks):
            weights = cache_weights(store.layer(self._plain, layer))
            watched = _WatchedOutput(weights, has_gradients=True)
            context = self._context(layer, keep=frozenset({"weights"}))
            entering = hidden
            trace = run_block(self._backend, block, watched, entering, context, layer)
            hidden = trace.after
            if block.instead or watched.slope is None:
                # a layer without attention
                continue
            own_outputs = self._numbers(watched.head_outputs)
            # the same layer on the same vectors, with the region hidden
            cut = _WatchedOutput(weights, has_gradients=False)
            cut_context = self._context(layer, frozenset(), self._hide_region(layer))
            run_block(self._plain, block, cut, self._array(entering), cut_context, layer)
            variables.append(watched.slope)
            # [head, query], each query's weight on the region; then the mean over queries
            shares = self._numbers(trace.stages["weights"])[..., self._keys_told].sum(-1)
            layers.append((layer, self._numbers(cut.head_outputs) - own_outputs, shares.mean(-1)))
        slopes = gradients(self._mean_logprob(hidden), variables)
        result = []
        # slope and change are [token, head·dim]
        for (layer, change, attention), slope in zip(layers, slopes, strict=True):
            heads = spec.blocks[layer].attention.heads
            # summed over the tokens and over the entries of each head's output
            by_head = (slope * change).reshape(len(self._tokens), heads, -1).sum((0, 2))
            result += [
                HeadEstimate(
                    layer=layer,
                    head=head,
                    change=float(by_head[head]),
                    # a sum of weights, which rounding may leave above 1
                    attention=float(min(attention[head], 1.0)),
                )
                for head in range(heads)
            ]
        return result

    def _context(
        self, layer: int, keep: frozenset[str], interventions: Interventions | None = None
    ) -> Context:
        """What a layer needs beside its vectors: the keys and values of the prompt that it goes on
        from, the stages that its trace is to keep, and what is cut; None for no cut."""
        past: Past = {}
        first = self._runs.first_query
        # a prompt of one token has none before the first query; layers without attention have none
        if first and layer in self._past:
            past[layer] = tuple(self._array(array[..., :first, :]) for array in self._past[layer])
        context = self._model.context(self._tokens, self._plain, keep)
        return replace(context, past=past, interventions=interventions or {})

    def _hide_region(self, layer: int) -> Interventions:
        """The interventions that hide the region from all other tokens, those of the answer among
        them, in all heads of a layer."""
        inside = set(self._keys)  # tokens of the region may look at each other
        queries = tuple(token.index for token in self._tokens if token.index not in inside)
        heads = tuple(range(self._model.spec.blocks[layer].attention.heads))
        return {(layer, "self"): [KnockOut(heads, queries, tuple(self._keys))]}

    def _numbers(self, array: Array | None) -> Floats:
        """An array of either backend as NumPy numbers in the precision of this run. None is for the
        type alone: what `_WatchedOutput` remembers is there once its layer has run."""
        return np.asarray(self._backend.numpy(array), self._plain.dtype)  # type: ignore[arg-type]

    def _array(self, array: Array) -> Array:
        """An array of a run or of the model as a NumPy array, without the graph it was computed
        from.
        """
        if isinstance(array, Variable):
            return cast("Array", array.value)
        if not isinstance(array, np.ndarray):
            array = cast("Array", self._model.backend.numpy(array))
        return self._plain.array(np.asarray(array, self._plain.dtype))

    def _mean_logprob(self, hidden: Array) -> Array:
        """The mean log probability of the answer's tokens, from the last layer's vectors [token,
        width], as one number that gradients can be taken of."""
        backend = self._backend
        outer = cache_weights(self._model.store.outer(self._plain))
        scores = logits(self._model.spec, outer, backend, hidden)
        # log softmax at the answer's tokens: each one's score less ln Σ exp(scores). The maximum is
        # subtracted so that no exponential overflows. The token's score is picked by a sum with a row
        # of zeros and a 1, as indexing has no gradient here
        shifted = scores - backend.max(scores, -1)
        one_hot = np.zeros(tuple(scores.shape), self._plain.dtype)
        one_hot[np.arange(len(one_hot)), list(self._runs.answer)] = 1.0
        token_scores = backend.sum(shifted * cast("Array", one_hot), -1)
        totals = backend.log(backend.sum(backend.exp(shifted), -1))
        logprobs = token_scores - totals  # [token, 1], as sums keep their axis
        return backend.sum(logprobs.reshape((1, -1)), -1) / len(self._tokens)
