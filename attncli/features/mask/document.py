"""`attn.mask/1`: masks, their intersection, and a score bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from attncli.documents import (
    MOST,
    Count,
    Document,
    ModelPart,
    Numbers,
    Part,
    Size,
    axes,
    describe,
)
from attncli.documents.parts import MaskPart


class BiasAt(Part, frozen=True, kw_only=True):
    """The bias at one distance."""

    distance: Annotated[int, Meta(ge=-MOST, le=MOST)]
    value: float


class BiasPart(Part, frozen=True, kw_only=True):
    """A score bias by distance, and its matrix before and after the mask."""

    name: str
    head: Count
    heads: Size
    slope: float | None
    buckets: Annotated[bool, describe("Whether the values are T5's bucket numbers.")]
    by_distance: Annotated[list[BiasAt], describe("By key position - query position.")]
    before: (
        Annotated[Numbers, axes("position", "position", meaning="null for many positions.")] | None
    )
    after: (
        Annotated[Numbers, axes("position", "position", meaning="the same, null where hidden.")]
        | None
    )
    weights_before: (
        Annotated[
            Numbers,
            axes("position", "position", meaning="weights of queries and keys that are all alike."),
        ]
        | None
    )
    weights_after: Annotated[Numbers, axes("position", "position")] | None


class LayerMask(Part, frozen=True, kw_only=True):
    """The mask and the positions of a model's layer."""

    layer: Count
    mask: str
    position: str


class MaskDocument(Document, tag="attn.mask/1", frozen=True, kw_only=True):
    """What masks show. Positions count from 0."""

    n: Annotated[Size, describe("Number of queries and of keys.")]
    seed: Count
    gallery: Annotated[bool, describe("Whether this shows one mask of every kind.")]
    masks: Annotated[list[MaskPart], Meta(min_length=1)]
    combined: Annotated[MaskPart | None, describe("What all masks show; null for one.")]
    bias: BiasPart | None
    model: ModelPart | None
    layers: list[LayerMask] | None
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """How long axes are: positions, and cells of the maps. A cell stands for `block` × `block`
        pairs, and `block` follows from `n`, so that the first of the masks, of which there is at
        least one, speaks for all."""
        # rounded up: the last cell may stand for fewer pairs
        return {"position": self.n, "cell": -(-self.n // self.masks[0].map.block)}
