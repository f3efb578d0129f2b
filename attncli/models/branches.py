"""Branches: runs of one text that differ from its own from some layer's attention on.

They share what lies below their change, and each layer's weights. Where a text is read from left to right, tokens
before the first changed one are not computed again: their keys and values are those of the text's own run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Array, Backend
from attncli.mechanism.block import run_block
from attncli.mechanism.context import Context, Weights
from attncli.mechanism.intervention import Interventions, Kind, Replace
from attncli.mechanism.spec import Block, Spec
from attncli.mechanism.trace import LayerTrace
from attncli.models.run import Store


class Leaving(Struct, frozen=True, eq=False):
    """Branches that leave at one attention. values: what takes the place of its mixed values, [branch, head, token,
    v_dim], whole."""

    kind: Kind
    values: Array


class Trunk(Struct, frozen=True, eq=False):
    """What branches leave from, and how far they are computed.

    first: the layer to begin with. start: the first token that a branch computes; those before it are as they were.
    asking: the tokens whose last vectors are wanted, None where none are singled out. at_once: how many branches run
    together.
    """

    spec: Spec
    store: Store
    backend: Backend
    context: Context
    first: int = 0
    start: int = 0
    asking: slice | None = None
    at_once: int = 64
    joint: Callable[[LayerTrace], Interventions] | None = None


class BranchResult(Struct, frozen=True, eq=False):
    """What leaves the last layer, before the final norm: of the text's own run [token, width], of the branches, in the
    order in which they left, [branch, token, width] in parts, and of the run with every change at once."""

    hidden: Array
    branches: Sequence[Array]
    joint: Array | None


def grow(
    trunk: Trunk,
    hidden: Array,
    leave: Callable[[LayerTrace, Weights], Iterator[Leaving]],
    on_layer: Callable[[int, Array], None] = lambda layer, hidden: None,
) -> BranchResult:
    """Run a text from the vectors that enter `trunk.first`, [token, width], and the branches that leave it on the way.

    leave: given a layer's own trace and its weights, the branches that leave there, in parts of at most `at_once`.
    joint: of the trunk, given that trace too, what is changed in the one run that has all changes; None for no such
    run. on_layer: handed each layer's number and the vectors that enter it.
    """
    spec, backend, whole = trunk.spec, trunk.backend, trunk.context
    last = len(spec.blocks) - 1
    trunk.store.expect(range(trunk.first, last + 1))
    branches: list[Array] = []
    together: Array | None = hidden if trunk.joint is not None else None
    for index in range(trunk.first, last + 1):
        on_layer(index, hidden)
        block, weights = spec.blocks[index], cache_weights(trunk.store.layer(backend, index))
        trace = run_block(backend, block, weights, hidden, whole, index)
        onward = _Onward(trunk, block, weights, trace, index, trunk.asking if index == last else None)
        branches = [onward.run(part) for part in branches]
        for leaving in leave(trace, weights):
            new_branches = onward.run(hidden[trunk.start :], leaving)
            if branches and len(branches[-1]) + len(new_branches) <= trunk.at_once:
                branches[-1] = backend.concat([branches[-1], new_branches], 0)
            else:
                branches.append(new_branches)
        layer_context = replace(whole, keep=frozenset(), asking=trunk.asking if index == last else None)
        if trunk.joint is not None and together is not None:
            changes = replace(layer_context, interventions=trunk.joint(trace))
            together = run_block(backend, block, weights, together, changes, index).after
        # for the same queries as the others: sums of another shape may round otherwise
        hidden = (
            trace.after
            if layer_context.asking is None
            else run_block(backend, block, weights, hidden, layer_context, index).after
        )
    return BranchResult(hidden, branches, together)


class _Onward(Struct, frozen=True, eq=False):
    """One layer, for branches."""

    trunk: Trunk
    block: Block
    weights: Weights
    trace: LayerTrace
    layer: int
    asking: slice | None

    def run(self, hidden: Array, leaving: Leaving | None = None) -> Array:
        """What leaves the layer. hidden: what enters it, [branch, token, width], without branches where they leave."""
        trunk, start = self.trunk, self.trunk.start
        changes: Interventions = {}
        if leaving is not None:
            attention = self.block.attention if leaving.kind == "self" else self.block.cross
            assert attention is not None
            rows = slice(start if self.asking is None else self.asking.start, self.asking and self.asking.stop)
            changes = {
                (self.layer, leaving.kind): (Replace(tuple(range(attention.heads)), leaving.values[..., rows, :]),)
            }
        context = replace(
            trunk.context,
            positions=trunk.context.positions[start:],
            keep=frozenset(),
            interventions=changes,
            past=self._past(hidden) if start else None,
            asking=None if self.asking is None else slice(self.asking.start - start, self.asking.stop - start),
        )
        return run_block(trunk.backend, self.block, self.weights, hidden, context, self.layer).after

    def _past(self, hidden: Array) -> dict[int, tuple[Array, Array]]:
        backend, lead = self.trunk.backend, tuple(hidden.shape[:-2])
        k, v = (self.trace.stages[name][:, : self.trunk.start] for name in ("k", "v"))
        return {self.layer: (backend.broadcast(k, (*lead, *k.shape)), backend.broadcast(v, (*lead, *v.shape)))}


def cache_weights(weights: Weights) -> Weights:
    """A layer's weights, each read once however often it is asked for; let go with the function."""
    arrays: dict[str, Array | None] = {}

    def role(name: str) -> Array | None:
        if name not in arrays:
            arrays[name] = weights(name)
        return arrays[name]

    return role
