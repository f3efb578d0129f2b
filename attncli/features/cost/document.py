"""`attn.cost/1`: operations, memory and pairs, computed and measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, field

from attncli.documents import Document, ModelPart, Part, Size, describe
from attncli.language import Speech, contextual, message, say

MOST = 10**60
"""The largest count of a document: counts are drawn as floats, and their products must be finite."""
Many = Annotated[int, Meta(ge=0)]
"""Operations and bytes may be more than 64 bits hold."""
Seconds = Annotated[float, Meta(ge=0)]


VariantName = Literal["full", "causal", "window", "mask", "lsh", "rnn"]

ATTENTION_NAMES = {
    "full": message("full"),
    "causal": message("causal"),
    "lsh": message("lsh"),
    "rnn": message("rnn"),
    "window": message("window"),
    "streamed": contextual("cost", "streamed"),
    "fused": contextual("cost", "fused"),
}
"""Kinds of attention, and ways to run it, with a name in every language; others are told as masks
are spelt."""


def variant_name(name: str, view: Speech) -> str:
    """The name of a kind of attention in the view's language; a name that is not in
    `ATTENTION_NAMES` as it is."""
    if name in ATTENTION_NAMES:
        return say(view, ATTENTION_NAMES[name])
    return name


class Variant(Part, frozen=True, kw_only=True):
    """One kind of attention, or what takes its place."""

    name: VariantName
    spec: str
    pairs: Annotated[Many, describe("Visible pairs per head.")]
    multiply_adds: Annotated[Many, describe("Of all heads; without the projections.")]
    score_bytes: Annotated[Many, describe("All scores of all heads at once.")]
    streamed_bytes: Annotated[Many, describe("Those of `rows` query rows.")]
    steps: Annotated[Many, describe("Sequential steps.")]
    path: Annotated[
        Many | None,
        describe(
            "Layers, for the rnn steps, until the first token can influence the last; null where it"
            " never can, where chance decides, and where the way is too long to be looked up."
        ),
    ]
    grows: str | None


class GrowthRow(Part, frozen=True, kw_only=True):
    """Multiply-adds of every variant at one length."""

    n: Size
    multiply_adds: dict[str, Many]


class LayerCost(Part, frozen=True, kw_only=True):
    """What one layer of a model costs."""

    layer: Many
    mask: str
    position: str
    heads: Size
    kv_heads: Size
    pairs: Many
    multiply_adds: Many
    projections: Many
    score_bytes: Many
    streamed_bytes: Annotated[Many, describe("Scores of `rows` query rows.")]
    cache_bytes: Annotated[
        Many,
        describe(
            "Keys and values kept while generating: those of the window where there is one, the"
            " narrow vectors of latent attention, 0 where another layer's are read."
        ),
    ]


class TotalCost(Part, frozen=True, kw_only=True):
    """What all layers cost; scores are held one layer at a time."""

    multiply_adds: Many
    projections: Many
    cache_bytes: Many
    score_bytes: Many
    streamed_bytes: Many


class Timing(Part, frozen=True, kw_only=True):
    """A median time on this machine; ratios to `full` of the same backend, and the same ratio of
    multiply-adds.
    """

    name: str
    backend: str
    seconds: Seconds
    repeats: Size
    ratio: Seconds
    computed: Seconds


class CostDocument(Document, tag="attn.cost/1", frozen=True, kw_only=True):
    """What attention over n tokens costs."""

    n: Size
    d_model: Size
    heads: Size
    d_k: Size
    d_v: Size
    dtype: str
    window: Annotated[Size, describe("Keys of the window, the query's own included.")]
    chunk: Size
    rounds: Size
    block_rows: Annotated[Size, describe("Query rows at a time when streaming.")] = field(
        name="rows"
    )
    projections: Annotated[Many, describe("Multiply-adds of the projections to q, k, v and back.")]
    variants: list[Variant]
    growth: list[GrowthRow]
    model: ModelPart | None
    layers: list[LayerCost]
    total: TotalCost | None
    measured: list[Timing]
    warnings: list[str]

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless the variants that screens compare are there, and all
        numbers lie where a float holds them."""
        names = {variant.name for variant in self.variants}
        for name in ("full", "causal", "window", "lsh", "rnn"):
            is_at_every_length = all(name in row.multiply_adds for row in self.growth)
            if name not in names or not is_at_every_length or not self.growth:
                what = message(
                    "there is no {name} here, or not at every length of `growth`", name=repr(name)
                )
                yield "variants", what
        sizes = (
            self.n,
            self.d_model,
            self.heads,
            self.d_k,
            self.d_v,
            self.window,
            self.chunk,
            self.rounds,
        )
        if max(*sizes, self.block_rows, self.projections) > MOST:
            yield "n", message("this or another size is above {most:.0e}", most=MOST)
        for number, variant in enumerate(self.variants):
            numbers = (
                variant.multiply_adds,
                variant.score_bytes,
                variant.streamed_bytes,
                variant.pairs,
                variant.steps,
            )
            if max(numbers) > MOST or min(variant.multiply_adds, variant.streamed_bytes) < 1:
                yield (
                    f"variants[{number}]",
                    message("its numbers are not between 1 and {most:.0e}", most=MOST),
                )
        for row in self.growth:
            if max(row.n, *row.multiply_adds.values(), 0) > MOST:
                yield "growth", message("a number is above {most:.0e}", most=MOST)
                break  # said once
