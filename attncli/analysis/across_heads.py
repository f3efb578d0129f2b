"""Parts of the heads document that look across heads and layers: rollout, flow, similarity, circuits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from msgspec.structs import replace

from attncli.analysis import attention_flow
from attncli.analysis.circuits import HeadMatrices, compositions, copying, norms, random_composition
from attncli.analysis.documents.heads import (
    Chance,
    CircuitHead,
    Circuits,
    Composition,
    Flow,
    HeadsDocument,
    Similarity,
    WhichHead,
)
from attncli.analysis.documents.heads import Rollout as RolloutPart
from attncli.analysis.rollout import AttentionRollout
from attncli.analysis.similarity import distances, order, tree
from attncli.analysis.visible_keys import Bools, Floats
from attncli.arrays.backend import Selection, numbers_of
from attncli.errors import UnsupportedError, UsageError
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
            raise UsageError(f"--across {name!r} is no such analysis", expected=", ".join(ACROSS))
    if not names:
        raise UsageError("--across names nothing", expected=", ".join(ACROSS))
    return frozenset(names)


class AcrossHeads:
    """Collects what these analyses need while layers go by.

    names: those wanted, out of `ACROSS`; count: words or tokens.
    """

    def __init__(self, names: frozenset[str], count: int, layers: int) -> None:
        self._names = names
        if "flow" in names:
            attention_flow.check_size(count, layers, count)
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
            flow = Flow(weights=attention_flow.max_flow(self._means, range(len(self._means[0]))))
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

    Raises UnsupportedError for a model without output projection.
    """
    attention, weights = model.spec.blocks[layer].attention, model.store.layer(model.backend, layer)

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
            before=WhichHead(layer=before.layer, head=before.head),
            after=WhichHead(layer=after.layer, head=after.head),
        )
        for way, strength, before, after in strongest
    ]
    chance = Chance(**random_composition(heads[pairs[0][0]], heads[pairs[0][1]])) if pairs else None
    return Circuits(heads=rows, compositions=composition_rows, chance=chance)
