"""Parts of the heads document beyond each head's weights: rollout, flow, similarity, circuits,
directions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, Final, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Selection, numbers_of
from attncli.arrays.numpy_backend import normal
from attncli.errors import InputError, LimitError, UnsupportedError, UsageError
from attncli.features.heads.document import (
    ACROSS,
    Chance,
    CircuitHead,
    Circuits,
    Composition,
    Direction,
    DirectionEnd,
    DirectionToken,
    Flow,
    HeadDirections,
    HeadsDocument,
    KernelChance,
    Likeness,
    Similarity,
    Subspace,
    WhichHead,
)
from attncli.features.heads.document import Rollout as RolloutPart
from attncli.inputs.token import ignore
from attncli.language import listing, message
from attncli.measure.labels import head_distances, leaf_order, linkage
from attncli.measure.row_facts import Bools, Floats, Ints
from attncli.mechanism.spec import parse_head
from attncli.models.estimate import CostEstimate
from attncli.models.model import Model

WAYS: Final[tuple[Literal["q", "k", "v"], ...]] = ("q", "k", "v")
PAIRS = 20
"""Compositions that are listed: the strongest."""


def parse_across(text: str) -> frozenset[str]:
    """The names in an `--across` value such as "rollout,similarity". Raises UsageError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in ACROSS:
            raise UsageError(
                "--across {name} is no such analysis", expected=listing(ACROSS), name=repr(name)
            )
    if not names:
        raise UsageError("--across names nothing", expected=listing(ACROSS))
    return frozenset(names)


class AcrossHeads:
    """Collects layers' weights for the analyses of `--across` (rollout, flow, similarity, circuits)
    and makes their document parts.

    names: those to do, out of `ACROSS`.
    count: how many words or tokens.
    layers: how many layers.
    """

    def __init__(self, names: frozenset[str], count: int, layers: int) -> None:
        """Raises LimitError where flow is asked for and would take too long."""
        self._names = names
        if "flow" in names:
            check_flow_size(count, layers, count)
        self._rollout = AttentionRollout(count)
        # for flow: of each layer the mean weights of its heads, [query, key]
        self._means: list[Floats] = []
        # for similarity: (layer, head) of every head; of each layer the weights and what is visible,
        # [head, query, key]
        self._heads: list[tuple[int, int]] = []
        self._weights: list[Floats] = []
        self._visible: list[Bools] = []

    def add(self, layer: int, heads: Sequence[int], weights: Floats, visible: Bools) -> None:
        """Take in the weights of a layer's heads; layers come in order, the first one first.

        heads: the heads' numbers.
        weights: [head, query, key].
        visible: which keys each query sees, booleans that broadcast to the weights' shape.
        """
        self._rollout.add(weights, visible)
        if "flow" in self._names:
            self._means.append(weights.mean(0))
        if "similarity" in self._names:
            self._heads += [(layer, head) for head in heads]
            self._weights.append(weights)
            self._visible.append(np.broadcast_to(visible, weights.shape))

    def add_parts(
        self,
        document: HeadsDocument,
        model: Model,
        layers: Sequence[int],
        heads: Selection,
        progress: Callable[[float], None],
    ) -> HeadsDocument:
        """Return the document with a part for each analysis that was asked for, computed from the
        weights that `add` took in; circuits from the model's matrices of these layers and heads.

        progress: called with the share of the flow that is done; all else is quick.
        """
        if "rollout" in self._names:
            rollout = RolloutPart(weights=self._rollout.result, uniform=self._rollout.uniform)
            document = replace(document, rollout=rollout)
        if "flow" in self._names:
            queries = range(len(self._means[0]))
            flow = Flow(weights=max_flow(self._means, queries, progress))
            document = replace(document, flow=flow)
        if "similarity" in self._names:
            table = head_distances(np.concatenate(self._weights), np.concatenate(self._visible))
            # heads without a row to compare count as farthest apart
            merges = linkage(np.nan_to_num(table, nan=1.0))
            heads_alike = [WhichHead(layer=layer, head=head) for layer, head in self._heads]
            leaves = leaf_order(merges, len(self._heads))
            similarity = Similarity(heads=heads_alike, distances=table, order=leaves, tree=merges)
            document = replace(document, similarity=similarity)
        if "circuits" in self._names:
            matrices = [head for layer in layers for head in head_matrices(model, layer, heads)]
            document = replace(document, circuits=measure_circuits(matrices))
        return document


def head_matrices(model: Model, layer: int, heads: Selection) -> list[HeadMatrices]:
    """W_Q, W_K, W_V and W_O of each chosen head of a layer; norms before the attention are not
    folded in.

    Raises UnsupportedError for a model without output projection, and for latent attention.
    """
    attention = model.spec.blocks[layer].attention
    weights = model.store.layer(model.backend, layer)
    if attention.latent is not None:
        raise UnsupportedError(
            "circuits need one matrix each for keys and values, and this model makes them of a"
            " normed narrow vector",
            expected="--across rollout, flow or similarity",
        )

    def matrix(role: str) -> np.ndarray[Any, Any]:
        """The weight of a role, "q", "k", "v" or "o", [out, in]. Raises UnsupportedError where
        there is none.
        """
        weight = weights(f"attn.{role}.weight")
        if weight is None:
            raise UnsupportedError(
                "circuits need an output projection W_O, and this model has none",
                hint="--output-projection",
            )
        return np.asarray(model.backend.numpy(weight), np.float64)

    q, k, v, o = (matrix(role) for role in "qkvo")
    dim = attention.head_dim
    v_dim = attention.v_dim
    matrices = []
    for head in numbers_of(heads, attention.heads):
        # rows of Q, K and V, and columns of O, belong to heads one after another; a group of heads
        # may share keys and values
        kv_head = head * attention.kv_heads // attention.heads
        w_q = q[head * dim : (head + 1) * dim].T
        w_k = k[kv_head * dim : (kv_head + 1) * dim].T
        w_v = v[kv_head * v_dim : (kv_head + 1) * v_dim].T
        w_o = o[:, head * v_dim : (head + 1) * v_dim].T
        matrices.append(HeadMatrices(layer, head, w_q, w_k, w_v, w_o, attention.scale))
    return matrices


def measure_circuits(heads: Sequence[HeadMatrices]) -> Circuits:
    """Measure what heads do by their weights alone: copying score and norms of each, the `PAIRS`
    strongest compositions of an earlier with a later head, the heads most alike, and beside both
    what random matrices give."""
    rows = []
    for head in heads:
        qk, ov = norms(head)
        rows.append(
            CircuitHead(
                layer=head.layer,
                head=head.head,
                copying=copying_score(head),
                qk_norm=qk,
                ov_norm=ov,
            )
        )

    pairs = compositions(heads)  # (earlier head, later head, strength by way)
    # without pairs that have a zero matrix: NaN has no place in an order
    by_way = [
        (way, strengths[way], before, after)
        for before, after, strengths in pairs
        for way in WAYS
        if not np.isnan(strengths[way])
    ]

    def order(
        row: tuple[str, float, HeadMatrices, HeadMatrices],
    ) -> tuple[float, str, int, int, int, int]:
        """The strongest first; of equal ones the first by way and heads."""
        way, strength, before, after = row
        return -strength, way, before.layer, before.head, after.layer, after.head

    strongest = sorted(by_way, key=order)[:PAIRS]
    composition_rows = [
        Composition(
            way=way,
            strength=strength,
            # of what the first head writes and what the second reads
            kernel=kernel(bases_of(before)["o"], bases_of(after)[way]),
            before=before.place,
            after=after.place,
        )
        for way, strength, before, after in strongest
    ]

    # what chance gives, for matrices of the shapes of the first pair and of the first head
    chance = None
    if pairs:
        before, after, _ = pairs[0]
        chance = Chance(**random_composition(before, after))
    chance_of_kernels = None
    if heads:
        width = heads[0].w_q.shape[0]
        rank = bases_of(heads[0])["o"].shape[1]
        if rank:
            chance_of_kernels = kernel_chance(width, rank)
    return Circuits(
        heads=rows,
        compositions=composition_rows,
        chance=chance,
        likeness=likeness_rows(heads),
        kernel_chance=chance_of_kernels,
    )


# Circuits: what the weights of a head do by themselves, before any text.

DRAWS = 4
"""Pairs of random heads that compositions are beside."""


class HeadMatrices(Struct, frozen=True, eq=False):
    """The weights of one head, applied to row vectors: q = x·w_q.

    w_q, w_k: [width, dim].
    w_v: [width, v_dim].
    w_o: [v_dim, width].
    scale: of the scores.
    """

    layer: int
    head: int
    w_q: Floats
    w_k: Floats
    w_v: Floats
    w_o: Floats
    scale: float = 1.0

    @property
    def place(self) -> WhichHead:
        """The head's layer and number, as documents name it."""
        return WhichHead(layer=self.layer, head=self.head)


def copying_score(head: HeadMatrices) -> float:
    """Re Σλ / Σ|λ| over the eigenvalues of W_OV: 1 for a head that copies, −1 for one that negates;
    NaN for a zero matrix."""
    # W_O W_V is [v_dim, v_dim], and has the eigenvalues of W_OV = W_V W_O apart from zeros
    values = np.linalg.eigvals(head.w_o @ head.w_v)
    size = np.abs(values).sum()
    if size > 0:
        return float(values.sum().real / size)
    return float("nan")


def norms(head: HeadMatrices) -> tuple[float, float]:
    """Frobenius norms of a head's W_QK, the scores' scale included, and of its W_OV, in this order."""
    return head.scale * _product_norm(head.w_q, head.w_k.T), _product_norm(head.w_v, head.w_o)


def composition(before: HeadMatrices, after: HeadMatrices) -> dict[str, float]:
    """How strongly a later head reads what an earlier one writes, through its queries, keys and
    values: "q", "k", "v".

    ‖W_OV·M‖ / (‖W_OV‖‖M‖), M being W_QK, W_QKᵀ and W_OV of the later head: 0 to 1. NaN for a zero
    matrix.
    """
    write = (before.w_v, before.w_o)
    return {
        "q": _composition_strength(write, (after.w_q, after.w_k.T)),
        "k": _composition_strength(write, (after.w_k, after.w_q.T)),
        "v": _composition_strength(write, (after.w_v, after.w_o)),
    }


def random_composition(before: HeadMatrices, after: HeadMatrices) -> dict[str, float]:
    """The composition that chance gives, by way ("q", "k", "v"): of standard normal matrices of the
    shapes of these two heads', a mean over `DRAWS` seeded draws."""
    draws = [
        composition(_random_head(before, draw, "before"), _random_head(after, draw, "after"))
        for draw in range(DRAWS)
    ]
    return {way: float(np.mean([strengths[way] for strengths in draws])) for way in WAYS}


def _random_head(head: HeadMatrices, seed: int, stream: str) -> HeadMatrices:
    """A head whose matrices are standard normal, of the shapes of `head`'s.

    stream: names the draw, so that draws of equal seeds differ.
    """
    w_q, w_k, w_v, w_o = (
        normal(seed, f"circuits\0{stream}\0{name}", getattr(head, name).shape).astype(np.float64)
        for name in ("w_q", "w_k", "w_v", "w_o")
    )
    return HeadMatrices(head.layer, head.head, w_q, w_k, w_v, w_o)


def compositions(
    heads: Sequence[HeadMatrices],
) -> list[tuple[HeadMatrices, HeadMatrices, dict[str, float]]]:
    """The composition of every pair of heads in different layers, the head of the earlier layer
    first."""
    pairs = ((before, after) for before in heads for after in heads if before.layer < after.layer)
    return [(before, after, composition(before, after)) for before, after in pairs]


def _product_norm(a: Floats, b: Floats) -> float:
    """‖a·b‖ for a [width, small] and b [small, width]: ‖ab‖² = tr((aᵀa)(bbᵀ))."""
    return float(np.sqrt(max(np.sum((a.T @ a) * (b @ b.T)), 0.0)))


def _composition_strength(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> float:
    """‖A·B‖ / (‖A‖‖B‖) of two matrices, each a product [width, small]·[small, width]; NaN for a
    zero matrix.
    """
    denominator = _product_norm(*first) * _product_norm(*second)
    if not denominator > 0:
        return float("nan")
    # A·B = left·(inner)·right, whose inner part is small
    first_left, first_right = first
    second_left, second_right = second
    inner = first_right @ second_left
    return _product_norm(first_left @ inner, second_right) / denominator


# Likeness by weights: how much of the stream two heads read, or write, in common.

LISTED = 5
"""Pairs of heads that are listed of each of `SPACES`: the most alike."""
KERNEL_DRAWS = 64
"""Pairs of random subspaces that likeness is beside."""
SPACES: tuple[Subspace, ...] = ("q", "k", "v", "o")


def basis(matrix: Floats) -> Floats:
    """An orthonormal basis, [width, rank], of the space that the columns of a matrix [width, dim]
    span; no columns for a zero matrix."""
    left, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    # singular values that rounding alone may have made count as 0, as in `np.linalg.matrix_rank`
    tolerance = sizes.max(initial=0.0) * max(matrix.shape) * np.finfo(np.float64).eps
    rank = int((sizes > tolerance).sum())
    return np.ascontiguousarray(left[:, :rank])


def kernel(first: Floats, second: Floats) -> float | None:
    """How much two subspaces have in common: ‖UᵀV‖² / min(rank), the mean squared cosine of their
    principal angles, 0 for subspaces at right angles, 1 where one lies in the other; None where one
    of them has no dimension.

    first, second: orthonormal bases, [width, rank].

    Source: Yamagiwa, Takase and Shimodaira, Measuring affinity between attention-head weight
    subspaces via the projection kernel, 2026: the kernel is ‖UᵀV‖², the sum of the squared cosines;
    by the smaller rank it is a share.
    """
    least = min(first.shape[1], second.shape[1])
    if least:
        return float(np.square(first.T @ second).sum() / least)
    return None


def kernel_chance(width: int, rank: int) -> KernelChance:
    """How much random subspaces have in common (`kernel`): the mean and the largest over
    `KERNEL_DRAWS` seeded pairs of subspaces of this rank in a space of this width. With more draws,
    the mean tends to rank / width.
    """

    def random_basis(seed: int, stream: str) -> Floats:
        """A basis of a random subspace, [width, rank].

        stream: names the draw, so that draws of equal seeds differ.
        """
        return basis(normal(seed, f"subspace\0{stream}", (width, rank)).astype(np.float64))

    # a kernel is None for a subspace of no dimension alone, and such a rank gives 0
    values = [
        kernel(random_basis(draw, "first"), random_basis(draw, "second")) or 0.0
        for draw in range(KERNEL_DRAWS)
    ]
    return KernelChance(mean=float(np.mean(values)), largest=max(values), draws=KERNEL_DRAWS)


def bases_of(head: HeadMatrices) -> dict[Subspace, Floats]:
    """Orthonormal bases, [width, rank], of the subspaces that a head reads through queries, keys
    and values ("q", "k", "v"), and that it writes to ("o")."""
    return {
        "q": basis(head.w_q),
        "k": basis(head.w_k),
        "v": basis(head.w_v),
        "o": basis(head.w_o.T),
    }


def likeness_rows(heads: Sequence[HeadMatrices]) -> list[Likeness]:
    """For each subspace of heads, "q", "k", "v" and "o", the `LISTED` pairs of heads that have most
    of it in common; heads that share the very matrix, as grouped queries share keys and values, are
    no pair."""
    heads_with_bases = [(head, bases_of(head)) for head in heads]
    rows: list[Likeness] = []
    for space in SPACES:
        pairs = []
        for (a, bases_a), (b, bases_b) in combinations(heads_with_bases, 2):
            if space in ("k", "v") and a.layer == b.layer:
                matrix_a = getattr(a, f"w_{space}")
                matrix_b = getattr(b, f"w_{space}")
                if np.array_equal(matrix_a, matrix_b):
                    continue
            value = kernel(bases_a[space], bases_b[space])
            if value is not None:
                pairs.append((value, a, b))
        strongest = sorted(pairs, key=lambda pair: -pair[0])[:LISTED]
        rows += [
            Likeness(space=space, kernel=value, a=a.place, b=b.place) for value, a, b in strongest
        ]
    return rows


# Attention flow: the most that can flow from an input token to a position, as a maximum flow
# through the layers.

LARGEST = 3_000_000
"""Pairs × edges that are still a matter of seconds."""
FLOW_SPEED = 200_000.0
"""Pairs × edges a second of one thread (SmolLM2, 8 to 12 tokens: 198,000 and 242,000)."""
TINY = 1e-9
"""Capacity that counts as none: less than float32 weights resolve."""


def check_flow_size(count: int, layers: int, queries: int) -> None:
    """Raise LimitError where attention flow would take too long: its work is queries · n · layers ·
    n², n being count, the number of tokens."""
    work = queries * count * layers * count * count
    if work > LARGEST:
        what = message(
            "attention flow solves {queries:,} maximum-flow problems over {layers:,} edges",
            queries=queries * count,
            layers=layers * count * count,
        )
        expected = message(
            "at most {largest:,} problems × edges, here {work:,}", largest=LARGEST, work=work
        )
        raise LimitError(
            what,
            expected=expected,
            hint="a shorter text, fewer layers, or rollout in place of flow",
        )


def with_flow(expected: CostEstimate, count: int, layers: int) -> CostEstimate:
    """The cost of a run and of the attention flow that is computed after it, for all of its tokens.

    count: tokens.
    """
    # count² pairs of query and key, each a maximum flow over layers · count² edges
    seconds = count**4 * layers / FLOW_SPEED
    return replace(expected, seconds=expected.seconds + seconds)


def max_flow(
    layers: Sequence[Floats],
    queries: Sequence[int],
    progress: Callable[[float], None] = ignore,
) -> Floats:
    """The maximum flow from each query's position after the last layer to each input token, [query,
    key], rows scaled to sum to 1 for comparison with rollout.

    layers: mean weights of each layer [query, key], first layer first.
    queries: the positions to start from.
    progress: called with the share of the queries that is done.

    Raises LimitError (see `check_flow_size`).
    """
    count = len(layers[0])
    check_flow_size(count, len(layers), len(queries))
    # half of what enters a position comes by the residual connection, half by attention
    steps = [residual(layer) for layer in reversed(layers)]
    flows = np.zeros((len(queries), count))
    for row, query in enumerate(queries):
        for key in range(count):
            flows[row, key] = _maximum_flow(steps, query, key)
        progress((row + 1) / len(queries))
    sums = flows.sum(-1, keepdims=True)
    scaled: Floats = flows / np.where(sums > 0, sums, 1)
    return scaled


def _maximum_flow(steps: Sequence[Floats], source: int, sink: int) -> float:
    """The maximum flow from position `source` above the last layer down to `sink` at the input, by
    Dinic's algorithm (1970): rounds of paths along the levels of a breadth-first search, until the
    search no longer reaches the sink.

    steps: the capacities from each position to those one layer below, [query, key], last layer
        first.
    """
    count = len(steps[0])
    depth = len(steps)
    # capacity[d, i, j]: what can still flow from position i at depth d down to j at depth d + 1
    capacity = np.zeros((depth + 1, count, count))
    capacity[:depth] = steps
    # back[d, i, j]: what has flowed there, and can be sent back up
    back = np.zeros_like(capacity)
    total = 0.0
    while True:
        levels = _levels(capacity, back, source)
        if levels[depth, sink] < 0:
            return total
        while (amount := _send(capacity, back, levels, (0, source), (depth, sink), np.inf)) > TINY:
            total += amount


def _open_edges(
    capacity: Floats, back: Floats, node: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield the neighbours of a node (depth, position) that more can flow to, a layer down or back
    up, each with how much.

    capacity: what can still flow from each position down to those one layer below, [depth, from, to].
    back: what has flowed there, and can be sent back up, [depth, from, to].
    """
    depth, position = node
    ways = [(depth + 1, capacity[depth, position])]
    if depth:
        ways.append((depth - 1, back[depth - 1, :, position]))
    for next_depth, room in ways:
        for end in np.flatnonzero(room > TINY).tolist():
            yield (next_depth, end), float(room[end])


def _levels(capacity: Floats, back: Floats, source: int) -> Ints:
    """By breadth-first search, over how many open edges each node can be reached from position
    `source` at the top, [depth, position]; −1 where it cannot.

    capacity, back: what can still flow down each edge, and what has, [depth, from, to].
    """
    levels = np.full(capacity.shape[:2], -1)
    levels[0, source] = 0
    waiting = deque([(0, source)])
    while waiting:
        node = waiting.popleft()
        for neighbour, _ in _open_edges(capacity, back, node):
            if levels[neighbour] < 0:
                levels[neighbour] = levels[node] + 1
                waiting.append(neighbour)
    return levels


def _send(
    capacity: Floats,
    back: Floats,
    levels: Ints,
    node: tuple[int, int],
    goal: tuple[int, int],
    room: float,
) -> float:
    """Push flow along one path from `node` to `goal`, at most `room`, and return the amount, 0.0
    where no path is open. Each edge of the path leads to the next level. Changes `capacity` and
    `back`, and marks dead ends in `levels`.

    capacity, back: what can still flow down each edge, and what has, [depth, from, to].
    levels: over how many edges each node was reached, [depth, position]; −1 for not at all.
    node, goal: (depth, position).
    """
    if node == goal:
        return room
    depth, position = node
    for neighbour, free in _open_edges(capacity, back, node):
        if levels[neighbour] == levels[node] + 1:
            amount = _send(capacity, back, levels, neighbour, goal, min(room, free))
            if amount > TINY:
                next_depth, end = neighbour
                if next_depth > depth:
                    capacity[depth, position, end] -= amount
                    back[depth, position, end] += amount
                else:
                    # back up: less flows down the edge that ends here
                    capacity[next_depth, end, position] += amount
                    back[next_depth, end, position] -= amount
                return amount
    levels[node] = -1
    return 0.0


# Attention rollout: how much of each input token reaches each position, layers multiplied.


class AttentionRollout:
    """Attention rollout: the product of the layers' mean weights, half residual, that `add` feeds
    first layer first.

    count: how many tokens (or words) each layer's weights are over.
    result, uniform: [query, key], rows sum to 1, of the weights and of even attention.
    """

    def __init__(self, count: int) -> None:
        self.result: Floats = np.eye(count)
        self.uniform: Floats = np.eye(count)

    def add(self, weights: Floats, visible: Bools | None = None) -> None:
        """Multiply in one more layer by its weights [head, query, key]: their mean over heads, half
        of it replaced by the residual, rows scaled to sum to 1.

        visible: which keys each query sees, for the uniform baseline, booleans that broadcast to the
            weights' shape; None where nothing is hidden. A row that sees nothing passes itself on.
        """
        mean = np.asarray(weights, np.float64).mean(0)
        self.result = residual(mean) @ self.result
        # even attention over the keys that each query sees in each head, [head, query, key]; one
        # head stands for all where `visible` has no axis of heads
        if visible is None:
            visibility = np.ones_like(mean, bool)
        else:
            visibility = np.broadcast_to(visible, (*np.shape(visible)[:-2], *mean.shape))
        visible_keys: Floats = visibility.reshape((-1, *mean.shape)).astype(np.float64)
        key_counts = np.maximum(visible_keys.sum(-1, keepdims=True), 1)  # 1 for a row of zeros
        even = (visible_keys / key_counts).mean(0)
        self.uniform = residual(even) @ self.uniform


def residual(mean: Floats) -> Floats:
    """A layer's step of the rollout, ½A + ½I with rows scaled to sum to 1, [query, key]: half
    attention, half residual connection. A is `mean`, the layer's weights averaged over heads.
    """
    half = mean / 2 + np.eye(len(mean)) / 2
    scaled: Floats = half / half.sum(-1, keepdims=True)
    return scaled


# The singular directions of a head's circuits, told by the tokens nearest to their ends.

DIRECTIONS = 5
"""Directions of a head that are told, the strongest."""
TOKENS = 5
"""Tokens that are told of either end of a direction."""
WHOLE = 2**24
"""Numbers of an embedding matrix that are multiplied at once."""


def parse_directions(text: str) -> tuple[tuple[int, int], ...]:
    """Parse the value of `--directions`, such as "L5H11,L3H1", to (layer, head), each head once.
    Raises UsageError."""
    pairs = []
    for part in text.split(","):
        pair = parse_head(part.strip())
        if pair is None:
            what = message("--directions {part} is no layer and head", part=repr(part.strip()))
            raise UsageError(what, expected="heads, each with its layer: L5H11,L3H1")
        pairs.append(pair)
    return tuple(dict.fromkeys(pairs))


def head_directions(model: Model, places: Sequence[tuple[int, int]]) -> list[HeadDirections]:
    """The singular directions of chosen heads: which directions of the stream W_OV reads and
    writes, and which of a query's and a key's vector W_QK matches.

    Norms before the attention and rotations by position are left out.

    Args:
        model: With weights of its own, an output projection and a vocabulary.
        places: Which heads, each (layer, head).

    Returns:
        For each head its strongest directions, with the share of the squared norm that each has.
        Either end of a direction is described by the tokens whose vectors lie nearest to it, and
        nearest to its opposite, as a direction has no sign: what is read by the tokens' embeddings,
        what is written by their rows of the output head, or embeddings where there is none.

    Raises:
        UnsupportedError: No vocabulary, no output projection, or a model that runs through
            transformers.
        InputError: There is no such head.

    Source: Millidge and Black, The singular value decompositions of transformer weight matrices are
    highly interpretable, 2022.
    """
    if not model.own_layers:
        raise UnsupportedError(
            "this model's layers run through transformers, so the weights of its heads are not"
            " known one by one",
            expected="a model of a family that attn runs itself (attn models list)",
        )
    outer = model.store.outer(model.backend)
    embeddings = outer("tokens.weight")
    if embeddings is None or not hasattr(model.tokenizer, "ids_to_tokens"):
        what = message("directions are told by the tokens of a vocabulary, and this model has none")
        raise UnsupportedError(what, expected="a checkpoint with a tokenizer: --model NAME")
    # the vectors of the vocabulary's tokens, [token, width]: as they are read, and as they are written
    table = model.backend.numpy(embeddings)
    head_weights = outer("head.weight")
    if head_weights is None:
        unembedding = table
    else:
        unembedding = model.backend.numpy(head_weights)
    directions = []
    for layer, number in places:
        if layer >= len(model.spec.blocks) or number >= model.spec.blocks[layer].attention.heads:
            expected = message(
                "one of {layers} layers, with {heads} heads in the first",
                layers=len(model.spec.blocks),
                heads=model.spec.blocks[0].attention.heads,
            )
            raise InputError(
                "there is no layer {layer} head {head}", expected=expected, layer=layer, head=number
            )
        (head,) = head_matrices(model, layer, [number])
        if head.w_v.shape[0] != table.shape[1] or head.w_o.shape[1] != unembedding.shape[1]:
            raise UnsupportedError(
                "the vectors of this model's vocabulary are of another width than those of its"
                " heads",
                expected="a model whose embeddings are as wide as its layers",
            )
        directions.append(_directions(model, head, table, unembedding))
    return directions


def _directions(
    model: Model, head: HeadMatrices, table: Floats, unembedding: Floats
) -> HeadDirections:
    """One head's strongest singular directions, of W_OV and then of W_QK, each end described by its
    nearest tokens.

    table: the tokens' embeddings, to which what is read is compared, [token, width].
    unembedding: their rows of the output head, to which what is written is compared.
    """
    rows = []
    # of each circuit its name, the two matrices of its product, and the tokens' vectors to which its
    # second end is compared
    circuits: tuple[tuple[Literal["ov", "qk"], Floats, Floats, Floats], ...] = (
        ("ov", head.w_v, head.w_o, unembedding),
        ("qk", head.w_q, head.w_k.T, table),
    )
    for circuit, into, out_of, end_table in circuits:
        left, sizes, right = product_svd(into, out_of)
        total = float(np.square(sizes).sum())
        for number in range(min(DIRECTIONS, len(sizes))):
            rows.append(
                Direction(
                    circuit=circuit,
                    size=float(sizes[number]),
                    share=float(sizes[number] ** 2 / total) if total else 0.0,
                    reads=_nearest_tokens(model, left[:, number], table),
                    writes=_nearest_tokens(model, right[number], end_table),
                )
            )
    return HeadDirections(layer=head.layer, head=head.head, directions=rows)


def product_svd(first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """The singular value decomposition of the product first · second, [width, small] times [small,
    width], without computing the wide product.

    Returns: the left vectors [width, small], the singular values [small], largest first, and the
        right vectors [small, width].
    """
    # first = Q₁R₁ and second = (Q₂R₂)ᵀ: the values are those of the small R₁R₂ᵀ
    left, upper = np.linalg.qr(first)
    right, lower = np.linalg.qr(second.T)
    u, sizes, v = np.linalg.svd(upper @ lower.T)
    return left @ u, sizes, v @ right.T


def _nearest_tokens(model: Model, direction: Floats, table: Floats) -> DirectionEnd:
    """The `TOKENS` tokens whose vectors lie nearest to a direction [width], and those nearest to its
    opposite, by the cosine.

    table: the tokens' vectors, [token, width].
    """
    # in blocks, as a float64 copy of a whole vocabulary may be large
    parts = []
    step = max(WHOLE // table.shape[1], 1)
    for start in range(0, len(table), step):
        vectors = np.asarray(table[start : start + step], np.float64)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(direction)
        parts.append(vectors @ direction / np.where(lengths > 0, lengths, 1.0))
    cosines = np.concatenate(parts)
    order = np.argsort(-cosines, kind="stable")
    ids = [*order[:TOKENS].tolist(), *order[::-1][:TOKENS].tolist()]
    nearest = [
        DirectionToken(id=number, text=token.text, cosine=float(cosines[number]))
        for number, token in zip(ids, model.tokenizer.ids_to_tokens(ids), strict=True)
    ]
    half = len(ids) // 2
    return DirectionEnd(toward=nearest[:half], opposite=nearest[half:])
