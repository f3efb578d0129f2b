"""`attn.model/1`: what one checkpoint does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from attncli.analysis.documents.declaration import Count, Document, Part, Size, describe
from attncli.analysis.documents.model_parts import (
    EmbeddingPart,
    ExpertsPart,
    HeadPart,
    LatentPart,
    MlpPart,
    NormPart,
    PositionPart,
    QkNormPart,
    TemperaturePart,
)

Place = Literal["attn.in", "attn.out", "attn.sum", "cross.in", "cross.out", "cross.sum", "mlp.in", "mlp.out", "mlp.sum"]


class AttentionRow(Part, frozen=True, kw_only=True):
    """What the attention of some layers does."""

    heads: Size
    kv_heads: Size
    d_k: Size
    d_v: Size
    scale: Annotated[float, describe("What q·k is multiplied by.")]
    softcap: float | None
    sinks: Annotated[bool, describe("Whether a learned sink per head takes part in the softmax.")]
    mask: Annotated[str, describe("As --mask spells it.")]
    mask_says: Annotated[str, describe("The mask in words.")]
    position: PositionPart | None
    qk_norm: QkNormPart | None
    clip: Annotated[float | None, describe("Queries, keys and values are cut off there; null for not.")]
    latent: Annotated[
        LatentPart | None, describe("How they come from narrow vectors; null where each has one projection.")
    ]
    temperature: Annotated[TemperaturePart | None, describe("How queries grow with their position; null for not.")]
    global_tokens: Annotated[
        list[Count] | None, describe("Tokens that see all by projections of their own; null for a model without such.")
    ]
    source_width: Annotated[Size | None, describe("Of the vectors that keys and values come from; null for d_model.")]


class LayerGroup(Part, frozen=True, kw_only=True):
    """Layers that do the same."""

    layers: Annotated[list[Count], describe("The layers that are alike.")]
    attention: AttentionRow
    cross: AttentionRow | None
    mlp: MlpPart | ExpertsPart | None
    norms: Annotated[dict[Place, NormPart], describe("Normalizations by place.")]
    parallel: Annotated[bool, describe("Whether attention and feed-forward read the same input.")]
    residual: bool
    branch_scale: Annotated[float, describe("What is multiplied with what attention and feed-forward add.")]
    convolution: Annotated[
        Size | None, describe("How many tokens the convolution beside the layer spans; null for none.")
    ]
    instead: Annotated[str, describe("What the layers do in place of attention; empty where they attend.")]


class ModelSide(Part, frozen=True, kw_only=True):
    """What an encoder, or a decoder, does."""

    d_model: Size
    vocabulary: Size
    layers: Size
    max_positions: Size | None
    embedding: EmbeddingPart
    groups: Annotated[list[LayerGroup], describe("Layers that do the same stand together.")]
    final_norm: NormPart | None
    head: HeadPart | None


class EstimatePart(Part, frozen=True, kw_only=True):
    """What a text would take."""

    tokens: Size
    layers: Count
    bytes_read: Count
    multiply_adds: Count
    memory: Annotated[dict[str, Count], describe("Bytes at the peak, by what they are for.")]
    peak_memory: Count
    seconds: float
    rule: Annotated[str, describe("How the seconds were reckoned.")]


class ModelDocument(Document, tag="attn.model/1", frozen=True, kw_only=True):
    """What a checkpoint does, from its config.json and the headers of its weight files."""

    name: str
    source: Literal["folder", "package", "cache", "hub"]
    folder: str
    revision: str | None
    family: str
    tokenizer: Annotated[bool, describe("Whether there is a tokenizer.json.")]
    fetched: Annotated[bool, describe("Whether the weights are on this machine.")]
    tensors: Count
    parameters: Count
    bytes: Annotated[dict[str, Count], describe("Bytes of weights by data type.")]
    spec: ModelSide
    decoder: ModelSide | None
    estimate: EstimatePart | None
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Every layer stands in one group."""
        for name, side in (("spec", self.spec), ("decoder", self.decoder)):
            if side is not None:
                layers = sorted(layer for group in side.groups for layer in group.layers)
                if len(layers) != side.layers or layers != list(range(len(layers))):
                    yield f"{name}.groups", f"not each of {side.layers} layers stands in one group"
