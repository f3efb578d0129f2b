"""`attn.weights/1`: the tensors of a weight file, and what layout they are read as."""

from __future__ import annotations

from typing import Annotated, Literal

from attncli.documents.declaration import Count, Document, Part, Size, describe


class TensorRow(Part, frozen=True, kw_only=True):
    """A tensor with its statistics, over the finite values; null where the numbers were not read."""

    name: str
    dtype: str
    shape: list[Count]
    bytes: Annotated[
        Count | None, describe("Size of the data in bytes; null for a data type NumPy has no numbers for.")
    ]
    role: Annotated[str | None, describe("What the tensor is used as, apart by spaces; null if it is not used.")]
    min: float | None
    mean: float | None
    max: float | None
    std: float | None


class AttentionSizes(Part, frozen=True, kw_only=True):
    """Sizes of the attention that a file holds."""

    d_model: Size
    heads: Size
    kv_heads: Size
    d_k: Size
    d_v: Size
    bias: bool
    output_projection: bool
    layer_norm: bool


class EmbeddingRows(Part, frozen=True, kw_only=True):
    """The embeddings in a file."""

    rows: Count
    by: Annotated[Literal["text", "id"], describe("Whether rows go by token text or token id.")]


class WeightsDocument(Document, tag="attn.weights/1", frozen=True, kw_only=True):
    """A weight file: its tensors and how they are read."""

    file: str
    layout: Annotated[str | None, describe("The recognised layout in words; null if none was.")]
    digest: Annotated[str | None, describe("sha256 of the weights, as in every document about them.")]
    sizes: Annotated[AttentionSizes | None, describe("Sizes of the attention; null if no layout was recognised.")]
    embedding: Annotated[EmbeddingRows | None, describe("The embeddings in the file, if any.")]
    metadata: Annotated[dict[str, str], describe("Texts stored in the file.")]
    tensors: list[TensorRow]
    warnings: list[str]
