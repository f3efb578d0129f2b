"""Parts of the heads document beyond each head's weights: rollout, flow, similarity, circuits, directions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays.backend import Selection, numbers_of
from attncli.arrays.numpy_backend import normal
from attncli.errors import InputError, LimitError, UnsupportedError, UsageError
from attncli.features.heads.document import (
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
from attncli.inputs.token import Token
from attncli.language import listing
from attncli.measure.labels import distances, order, tree
from attncli.measure.row_facts import Bools, Floats
from attncli.mechanism.spec import parse_head
from attncli.models.model import Model

ACROSS = ("rollout", "flow", "similarity", "circuits")
"""What `--across` can add."""
WAYS: Final[tuple[Literal["q", "k", "v"], ...]] = ("q", "k", "v")
PAIRS = 20
"""Compositions that are listed: the strongest."""


def parse(text: str) -> frozenset[str]:
    """The names in an `--across` value such as "rollout,similarity". Raises UsageError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in ACROSS:
            raise UsageError("--across {name} is no such analysis", expected=listing(ACROSS), name=repr(name))
    if not names:
        raise UsageError("--across names nothing", expected=listing(ACROSS))
    return frozenset(names)


class AcrossHeads:
    """Collects what these analyses need while layers go by.

    names: those wanted, out of `ACROSS`; count: words or tokens.
    """

    def __init__(self, names: frozenset[str], count: int, layers: int) -> None:
        self._names = names
        if "flow" in names:
            check_size(count, layers, count)
        self._rollout = AttentionRollout(count)
        self._means: list[Floats] = []
        self._heads: list[tuple[int, int]] = []
        self._weights: list[Floats] = []
        self._visible: list[Bools] = []

    def add(self, layer: int, heads: Sequence[int], weights: Floats, visible: Bools) -> None:
        """Take a layer's weights [head, query, key] and visibility, of the same shape."""
        self._rollout.add(weights, visible)
        if "flow" in self._names:
            self._means.append(weights.mean(0))
        if "similarity" in self._names:
            self._heads += [(layer, head) for head in heads]
            self._weights.append(weights)
            self._visible.append(np.broadcast_to(visible, weights.shape))

    def add_parts(
        self, document: HeadsDocument, model: Model, layers: Sequence[int], heads: Selection
    ) -> HeadsDocument:
        """The document with the parts that were asked for."""
        if "rollout" in self._names:
            rollout = RolloutPart(weights=self._rollout.result, uniform=self._rollout.uniform)
            document = replace(document, rollout=rollout)
        if "flow" in self._names:
            flow = Flow(weights=max_flow(self._means, range(len(self._means[0]))))
            document = replace(document, flow=flow)
        if "similarity" in self._names:
            document = replace(document, similarity=self._similarity())
        if "circuits" in self._names:
            circuits = circuits_part([head for layer in layers for head in heads_of(model, layer, heads)])
            document = replace(document, circuits=circuits)
        return document

    def _similarity(self) -> Similarity:
        table = distances(np.concatenate(self._weights), np.concatenate(self._visible))
        merges = tree(np.nan_to_num(table, nan=1.0))
        return Similarity(
            heads=[WhichHead(layer=layer, head=head) for layer, head in self._heads],
            distances=table,
            order=order(merges, len(self._heads)),
            tree=merges,
        )


def heads_of(model: Model, layer: int, heads: Selection) -> list[HeadMatrices]:
    """The weights of a layer's heads as circuits take them; norms before the attention are not folded in.

    Raises UnsupportedError for a model without output projection, and for latent attention.
    """
    attention, weights = model.spec.blocks[layer].attention, model.store.layer(model.backend, layer)
    if attention.latent is not None:
        raise UnsupportedError(
            "circuits need one matrix each for keys and values, and this model makes them of a normed narrow vector",
            expected="--across rollout, flow or similarity",
        )

    def matrix(role: str) -> np.ndarray[Any, Any]:
        weight = weights(f"attn.{role}.weight")
        if weight is None:
            raise UnsupportedError(
                "circuits need an output projection W_O, and this model has none", hint="--output-projection"
            )
        return np.asarray(model.backend.numpy(weight), np.float64)

    q, k, v, o = (matrix(role) for role in ("q", "k", "v", "o"))
    heads_found = []
    for head in numbers_of(heads, attention.heads):
        kv_head = head * attention.kv_heads // attention.heads
        heads_found.append(
            HeadMatrices(
                layer, head,
                _rows(q, head, attention.head_dim).T, _rows(k, kv_head, attention.head_dim).T,
                _rows(v, kv_head, attention.v_dim).T, o[:, head * attention.v_dim : (head + 1) * attention.v_dim].T,
                attention.scale,
            )
        )  # fmt: skip
    return heads_found


def _rows(matrix: np.ndarray[Any, Any], head: int, size: int) -> np.ndarray[Any, Any]:
    return matrix[head * size : (head + 1) * size]


def circuits_part(heads: Sequence[HeadMatrices]) -> Circuits:
    """Copying scores and norms of each head, and the strongest compositions between layers beside chance."""
    rows = []
    for head in heads:
        qk, ov = norms(head)
        rows.append(CircuitHead(layer=head.layer, head=head.head, copying=copying(head), qk_norm=qk, ov_norm=ov))
    pairs = compositions(heads)
    strongest = sorted(
        ((way, strength, heads[a], heads[b]) for a, b, ways in pairs for way in WAYS for strength in [ways[way]]),
        key=lambda row: (-row[1], row[0], row[2].layer, row[2].head, row[3].layer, row[3].head),
    )[:PAIRS]
    composition_rows = [
        Composition(
            way=way,
            strength=strength,
            kernel=kernel(bases_of(before)["o"], bases_of(after)[way]),
            before=WhichHead(layer=before.layer, head=before.head),
            after=WhichHead(layer=after.layer, head=after.head),
        )
        for way, strength, before, after in strongest
    ]
    chance = Chance(**random_composition(heads[pairs[0][0]], heads[pairs[0][1]])) if pairs else None
    rank = bases_of(heads[0])["o"].shape[1] if heads else 0
    return Circuits(
        heads=rows,
        compositions=composition_rows,
        chance=chance,
        likeness=likeness_rows(heads),
        kernel_chance=kernel_chance(heads[0].w_q.shape[0], rank) if rank else None,
    )


# Circuits: what the weights of a head do by themselves, before any text.

DRAWS = 4


class HeadMatrices(Struct, frozen=True, eq=False):
    """The weights of one head, applied to row vectors: q = x·w_q.

    w_q, w_k: [width, dim]. w_v: [width, v_dim]. w_o: [v_dim, width]. scale: of the scores.
    """

    layer: int
    head: int
    w_q: Floats
    w_k: Floats
    w_v: Floats
    w_o: Floats
    scale: float = 1.0


def copying(head: HeadMatrices) -> float:
    """Re Σλ / Σ|λ| over the eigenvalues of W_OV: 1 for a head that copies, −1 for one that negates; NaN for a zero
    matrix.

    W_V W_O and W_O W_V have the same eigenvalues but for zeros.
    """
    values = np.linalg.eigvals(head.w_o @ head.w_v)
    size = np.abs(values).sum()
    return float(values.sum().real / size) if size > 0 else float("nan")


def norms(head: HeadMatrices) -> tuple[float, float]:
    """Frobenius norms of W_QK and W_OV."""
    return head.scale * _norm(head.w_q, head.w_k.T), _norm(head.w_v, head.w_o)


def composition(before: HeadMatrices, after: HeadMatrices) -> dict[str, float]:
    """How strongly a later head reads what an earlier one writes, through its queries, keys and values: "q", "k", "v".

    ‖W_OV·M‖ / (‖W_OV‖‖M‖), M being W_QK, W_QKᵀ and W_OV of the later head: 0 to 1. NaN for a zero matrix.
    """
    write = (before.w_v, before.w_o)
    return {
        "q": _product(write, (after.w_q, after.w_k.T)),
        "k": _product(write, (after.w_k, after.w_q.T)),
        "v": _product(write, (after.w_v, after.w_o)),
    }


def random_composition(before: HeadMatrices, after: HeadMatrices) -> dict[str, float]:
    """The composition of standard normal matrices of the same shapes, mean of `DRAWS` seeded draws: what chance
    gives."""
    compositions_found = []
    for draw in range(DRAWS):
        random_heads = [_random_head(head, draw, name) for name, head in (("before", before), ("after", after))]
        compositions_found.append(composition(*random_heads))
    return {way: float(np.mean([strengths[way] for strengths in compositions_found])) for way in ("q", "k", "v")}


def _random_head(head: HeadMatrices, seed: int, name: str) -> HeadMatrices:
    """Standard normal matrices of the shapes of a head's."""

    def like(part: str, matrix: Floats) -> Floats:
        return normal(seed, f"circuits\0{name}\0{part}", matrix.shape).astype(np.float64)

    return HeadMatrices(
        head.layer,
        head.head,
        like("w_q", head.w_q),
        like("w_k", head.w_k),
        like("w_v", head.w_v),
        like("w_o", head.w_o),
    )


def compositions(heads: Sequence[HeadMatrices]) -> list[tuple[int, int, dict[str, float]]]:
    """The composition of every pair of heads of which one is in an earlier layer: places in `heads`, earlier first."""
    return [
        (a, b, composition(before, after))
        for a, before in enumerate(heads)
        for b, after in enumerate(heads)
        if before.layer < after.layer
    ]


def _norm(a: Floats, b: Floats) -> float:
    """‖a·b‖ for a [width, small] and b [small, width]: ‖ab‖² = tr((aᵀa)(bbᵀ))."""
    return float(np.sqrt(max(np.sum((a.T @ a) * (b @ b.T)), 0.0)))


def _product(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> float:
    below = _norm(*first) * _norm(*second)
    between = first[1] @ second[0]
    return _norm(first[0] @ between, second[1]) / below if below > 0 else float("nan")


# Likeness by weights: how much of the stream two heads read, or write, in common.

LISTED = 5
"""Pairs of heads that are listed of each of `SPACES`: the most alike."""
KERNEL_DRAWS = 64
"""Pairs of random subspaces that likeness is beside."""
SPACES: tuple[Subspace, ...] = ("q", "k", "v", "o")


def basis(matrix: Floats) -> Floats:
    """An orthonormal basis of the columns of [width, dim], [width, rank]; of a zero matrix none."""
    left, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    rank = int((sizes > sizes.max(initial=0.0) * max(matrix.shape) * np.finfo(np.float64).eps).sum())
    return np.ascontiguousarray(left[:, :rank])


def kernel(first: Floats, second: Floats) -> float | None:
    """How much two subspaces have in common: ‖UᵀV‖² / min(rank), the mean squared cosine of their principal angles, 0
    for subspaces at right angles, 1 where one lies in the other; None where one of them has no dimension.

    first, second: orthonormal bases, [width, rank].

    Source: Yamagiwa, Takase and Shimodaira, Measuring affinity between attention-head weight subspaces via the
    projection kernel, 2026: the kernel is ‖UᵀV‖², the sum of the squared cosines; by the smaller rank it is a share.
    """
    least = min(first.shape[1], second.shape[1])
    return float(np.square(first.T @ second).sum() / least) if least else None


def kernel_chance(width: int, rank: int) -> KernelChance:
    """The same of random subspaces of that rank: the mean and the largest of `KERNEL_DRAWS` seeded pairs.

    The mean is that of rank/width, which is exact for infinitely many.
    """
    values = []
    for draw in range(KERNEL_DRAWS):
        pair = [
            basis(normal(draw, f"subspace\0{name}", (width, rank)).astype(np.float64)) for name in ("first", "second")
        ]
        values.append(kernel(*pair) or 0.0)
    return KernelChance(mean=float(np.mean(values)), largest=max(values), draws=KERNEL_DRAWS)


def bases_of(head: HeadMatrices) -> dict[Subspace, Floats]:
    """What a head reads by its queries, keys and values, and what it writes, each as a basis, [width, rank]."""
    return {"q": basis(head.w_q), "k": basis(head.w_k), "v": basis(head.w_v), "o": basis(head.w_o.T)}


def likeness_rows(heads: Sequence[HeadMatrices]) -> list[Likeness]:
    """The pairs of heads whose subspaces have most in common, of each of the four; heads that share a matrix, as
    grouped queries share keys and values, are no pair."""
    every = [bases_of(head) for head in heads]
    rows: list[tuple[float, Subspace, int, int]] = []
    for space in SPACES:
        pairs = []
        for a, first in enumerate(every):
            for b in range(a + 1, len(every)):
                same = heads[a].layer == heads[b].layer and _shares(heads[a], heads[b], space)
                value = None if same else kernel(first[space], every[b][space])
                if value is not None:
                    pairs.append((value, space, a, b))
        rows += sorted(pairs, key=lambda row: (-row[0], row[2], row[3]))[:LISTED]
    return [
        Likeness(
            space=space,
            kernel=value,
            a=WhichHead(layer=heads[a].layer, head=heads[a].head),
            b=WhichHead(layer=heads[b].layer, head=heads[b].head),
        )
        for value, space, a, b in rows
    ]


def _shares(first: HeadMatrices, second: HeadMatrices, space: Subspace) -> bool:
    """Whether two heads of a layer have the very same matrix."""
    match space:
        case "k":
            return bool(np.array_equal(first.w_k, second.w_k))
        case "v":
            return bool(np.array_equal(first.w_v, second.w_v))
        case _:
            return False


# Attention flow: the most that can flow from an input token to a position, as a maximum flow through the layers.

LARGEST = 3_000_000
"""Pairs × edges that are still a matter of seconds."""
TINY = 1e-9
"""Capacity that counts as none: less than float32 weights resolve."""


def check_size(count: int, layers: int, queries: int) -> None:
    """Raise LimitError where flow would take too long: it grows with queries · n · layers · n²."""
    work = queries * count * layers * count * count
    if work > LARGEST:
        raise LimitError(
            "attention flow solves {queries:,} maximum-flow problems over {layers:,} edges",
            expected="at most {largest:,} problems × edges, here {work:,}",
            hint="a shorter text, fewer layers, or rollout in place of flow",
            queries=queries * count,
            layers=layers * count * count,
            largest=LARGEST,
            work=work,
        )


def max_flow(layers: Sequence[Floats], queries: Sequence[int]) -> Floats:
    """The maximum flow from each query's position after the last layer to each input token, [query, key].

    layers: mean weights of each layer [query, key], first layer first. Rows are scaled to sum to 1 for
    comparison with rollout. Raises LimitError (see `check_size`).
    """
    count = len(layers[0])
    check_size(count, len(layers), len(queries))
    steps = [residual(layer) for layer in reversed(layers)]
    flows = np.zeros((len(queries), count))
    for row, query in enumerate(queries):
        for key in range(count):
            flows[row, key] = _maximum_flow(steps, query, key)
    sums = flows.sum(-1, keepdims=True)
    scaled: Floats = flows / np.where(sums > 0, sums, 1)
    return scaled


def _maximum_flow(steps: Sequence[Floats], source: int, sink: int) -> float:
    """The maximum flow from position `source` above the last layer down to `sink` at the input (Dinic, 1970)."""
    count, depth = len(steps[0]), len(steps)
    capacity = np.zeros((depth + 1, count, count))  # what is left from [depth, i] down to [depth + 1, j]
    capacity[:depth] = steps
    back = np.zeros_like(capacity)  # what can be sent back up from [depth + 1, j] to [depth, i]
    total = 0.0
    while True:
        levels = _levels(capacity, back, depth, count, source)
        if levels[depth][sink] < 0:
            return total
        while (amount := _send(capacity, back, levels, (0, source), (depth, sink), np.inf)) > TINY:
            total += amount


def _levels(capacity: Floats, back: Floats, depth: int, count: int, source: int) -> list[list[int]]:
    levels = [[-1] * count for _ in range(depth + 1)]
    levels[0][source] = 0
    waiting = deque([(0, source)])
    while waiting:
        depth_here, node = waiting.popleft()
        for step, ends in (
            (1, capacity[depth_here, node] if depth_here < depth else ()),
            (-1, back[depth_here - 1, :, node] if depth_here > 0 else ()),
        ):
            for neighbour, room in enumerate(ends):
                if room > TINY and levels[depth_here + step][neighbour] < 0:
                    levels[depth_here + step][neighbour] = levels[depth_here][node] + 1
                    waiting.append((depth_here + step, neighbour))
    return levels


def _send(
    capacity: Floats, back: Floats, levels: list[list[int]], start: tuple[int, int], goal: tuple[int, int], room: float
) -> float:
    """Send as much as fits along one path of rising levels; a dead end is taken off the levels."""
    if start == goal:
        return room
    depth_here, node = start
    depth = goal[0]
    for step, ends in (
        (1, capacity[depth_here, node] if depth_here < depth else ()),
        (-1, back[depth_here - 1, :, node] if depth_here > 0 else ()),
    ):
        for neighbour, free in enumerate(ends):
            if free > TINY and levels[depth_here + step][neighbour] == levels[depth_here][node] + 1:
                amount = _send(capacity, back, levels, (depth_here + step, neighbour), goal, min(room, float(free)))
                if amount > TINY:
                    if step == 1:
                        capacity[depth_here, node, neighbour] -= amount
                        back[depth_here, node, neighbour] += amount
                    else:
                        back[depth_here - 1, neighbour, node] -= amount
                        capacity[depth_here - 1, neighbour, node] += amount
                    return amount
    levels[depth_here][node] = -1
    return 0.0


# Attention rollout: how much of each input token reaches each position, layers multiplied.


class AttentionRollout:
    """Multiplies layers as they come, first layer first. result, uniform: [query, key], rows sum to 1."""

    def __init__(self, count: int) -> None:
        self.result: Floats = np.eye(count)
        self.uniform: Floats = np.eye(count)

    def add(self, weights: Floats, visible: Bools | None = None) -> None:
        """Add a layer's weights [head, query, key]: heads averaged, half of it the residual, rows scaled to sum to 1.

        visible: booleans that broadcast to them, for the uniform baseline; None where nothing is hidden. A row that
        sees nothing passes itself on.
        """
        mean = np.asarray(weights, np.float64).mean(0)
        self.result = residual(mean) @ self.result
        visibility = (
            np.ones_like(mean, bool)
            if visible is None
            else np.broadcast_to(visible, (*np.shape(visible)[:-2], *mean.shape))
        )
        visible_keys: Floats = visibility.reshape((-1, *mean.shape)).astype(np.float64)
        even = (visible_keys / np.maximum(visible_keys.sum(-1, keepdims=True), 1)).mean(0)
        self.uniform = residual(even) @ self.uniform


def residual(mean: Floats) -> Floats:
    """½A + ½I with rows scaled to sum to 1, [query, key]."""
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
    """The heads that `--directions` names, such as "L5H11,L3H1". Raises UsageError."""
    pairs = []
    for part in text.split(","):
        pair = parse_head(part.strip())
        if pair is None:
            raise UsageError(
                "--directions {part} is no layer and head",
                expected="heads, each with its layer: L5H11,L3H1",
                part=repr(part.strip()),
            )
        pairs.append(pair)
    return tuple(dict.fromkeys(pairs))


def head_directions(model: Model, places: Sequence[tuple[int, int]]) -> list[HeadDirections]:
    """The singular directions of chosen heads: along which of the stream they read and write (OV), and which of queries
    meet which of keys (QK).

    Args:
        model: With weights of its own, an output projection and a vocabulary.
        places: Which heads, layer and number.

    Returns:
        For each head its strongest directions with the share of the squared norm that each has, and of both ends the
        tokens that lie nearest either way: a direction has no sign. What is read is told by embeddings, what is
        written by the output head where there is one, else by embeddings. Norms before the attention and rotations by
        position are left out.

    Raises:
        UnsupportedError: No vocabulary, no output projection, or layers that are not our own.
        InputError: There is no such head.

    Source: Millidge and Black, The singular value decompositions of transformer weight matrices are highly
    interpretable, 2022.
    """
    if not model.own_layers:
        raise UnsupportedError(
            "this model's layers run through transformers, so the weights of its heads are not known one by one",
            expected="a model of a family that attn runs itself (attn models list)",
        )
    outer = model.store.outer(model.backend)
    embeddings = outer("tokens.weight")
    if embeddings is None or not hasattr(model.tokenizer, "ids_to_tokens"):
        raise UnsupportedError(
            "directions are told by the tokens of a vocabulary, and this model has none",
            expected="a checkpoint with a tokenizer: --model NAME",
        )
    table = model.backend.numpy(embeddings)
    head_weights = outer("head.weight")
    unembedding = table if head_weights is None else model.backend.numpy(head_weights)
    directions = []
    for layer, number in places:
        if layer >= len(model.spec.blocks) or number >= model.spec.blocks[layer].attention.heads:
            raise InputError(
                "there is no layer {layer} head {head}",
                expected="one of {layers} layers, with {heads} heads in the first",
                layer=layer,
                head=number,
                layers=len(model.spec.blocks),
                heads=model.spec.blocks[0].attention.heads,
            )
        (head,) = heads_of(model, layer, [number])
        if head.w_v.shape[0] != table.shape[1] or head.w_o.shape[1] != unembedding.shape[1]:
            raise UnsupportedError(
                "the vectors of this model's vocabulary are of another width than those of its heads",
                expected="a model whose embeddings are as wide as its layers",
            )
        directions.append(_directions(model, head, table, unembedding))
    return directions


def _directions(model: Model, head: HeadMatrices, table: Floats, unembedding: Floats) -> HeadDirections:
    rows = []
    for circuit, (into, out_of), tables in (
        ("ov", (head.w_v, head.w_o), (table, unembedding)),
        ("qk", (head.w_q, head.w_k.T), (table, table)),
    ):
        left, sizes, right = product_svd(into, out_of)
        total = float(np.square(sizes).sum())
        for number in range(min(DIRECTIONS, len(sizes))):
            ends = [
                _end(model, vector, tokens)
                for vector, tokens in zip((left[:, number], right[number]), tables, strict=True)
            ]
            rows.append(
                Direction(
                    circuit="ov" if circuit == "ov" else "qk",
                    size=float(sizes[number]),
                    share=float(sizes[number] ** 2 / total) if total else 0.0,
                    reads=ends[0],
                    writes=ends[1],
                )
            )
    return HeadDirections(layer=head.layer, head=head.head, directions=rows)


def product_svd(first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """The singular value decomposition of first · second, [width, small] times [small, width], made of small ones:
    [width, small], [small] and [small, width]."""
    left, upper = np.linalg.qr(first)
    right, lower = np.linalg.qr(second.T)
    u, sizes, v = np.linalg.svd(upper @ lower.T)
    return left @ u, sizes, v @ right.T


def _end(model: Model, direction: Floats, table: Floats) -> DirectionEnd:
    """The tokens whose vectors lie nearest to a direction, and nearest to its opposite, by the cosine."""
    cosines = np.concatenate([_cosines(part, direction) for part in _parts(table)])
    order = np.argsort(-cosines, kind="stable")
    sides = (order[:TOKENS].tolist(), order[::-1][:TOKENS].tolist())
    tokens = model.tokenizer.ids_to_tokens([*sides[0], *sides[1]])
    nearest = [_token(token, entry, cosines) for token, entry in zip(tokens, [*sides[0], *sides[1]], strict=True)]
    return DirectionEnd(toward=nearest[: len(sides[0])], opposite=nearest[len(sides[0]) :])


def _parts(table: Floats) -> Iterator[Floats]:
    step = max(WHOLE // table.shape[1], 1)
    for start in range(0, len(table), step):
        yield np.asarray(table[start : start + step], np.float64)


def _cosines(rows: Floats, direction: Floats) -> Floats:
    sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(direction)
    return np.asarray(rows @ direction / np.where(sizes > 0, sizes, 1.0))


def _token(token: Token, entry: int, cosines: Floats) -> DirectionToken:
    return DirectionToken(id=entry, text=token.text, cosine=float(cosines[entry]))
