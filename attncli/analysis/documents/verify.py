"""`attn.verify/1`: a checkpoint's run compared with transformers' own."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from attncli.analysis.documents.declaration import Count, Document, Part, Size, describe


class LayerDifference(Part, frozen=True, kw_only=True):
    """How far one layer is apart, in float64."""

    side: Literal["self", "encoder", "decoder"]
    layer: Count
    weights: Annotated[list[float], Meta(min_length=1), describe("Largest difference of the weights, by head.")]
    cross: Annotated[list[float], describe("The same of the cross-attention; empty without one.")]
    hidden: Annotated[float | None, describe("Largest difference of the vectors that leave the layer.")]
    relative: Annotated[float, describe("The largest difference, relative to the largest number of its array or 1.")]


class Float64Distance(Part, frozen=True, kw_only=True):
    """The largest difference in float64, and how large it may be."""

    worst: float
    limit: float


class Float32Distance(Part, frozen=True, kw_only=True):
    """Root mean square distances from the float64 reference, of attn's and of transformers' float32, and their
    ratio."""

    ours: Annotated[float | None, describe("null where some numbers are too large for float32.")]
    theirs: float | None
    ratio: float | None
    limit: float


class VerifyDocument(Document, tag="attn.verify/1", frozen=True, kw_only=True):
    """A checkpoint's run compared with transformers' own."""

    name: str
    folder: str
    text: str
    tokens: Size
    backend: str
    layers: Annotated[list[LayerDifference], describe("Differences in float64.")]
    float64: Float64Distance
    float32: Float32Distance
    passed: Annotated[bool, describe("Whether both limits hold.")]
