"""`attn.cache/1`: what a cache of keys with a budget may forget, policy by policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType

from attncli.documents import Count, Header, Part, Regions, Share, Size, axes, describe
from attncli.documents.parts import TargetToken
from attncli.language import message


class HeadKept(Part, frozen=True, kw_only=True):
    """What one head would still find in the cache."""

    layer: Count
    head: Count
    kept: Annotated[Share | None, describe("Of the weight, 0 to 1; null where there is none.")]
    kept_beyond_rest: Annotated[
        Share | UnsetType | None,
        describe("Of trained weights: the same share of what is not on keys where heads rest."),
    ] = UNSET


class RegionKept(Part, frozen=True, kw_only=True):
    """What is left of one region."""

    kept: Annotated[
        Share | None,
        describe(
            "Share of what the last token gives the region that is still there, all heads together,"
            " 0 to 1."
        ),
    ]
    kept_beyond_rest: Annotated[
        Share | UnsetType | None,
        describe("Of trained weights: the same share of what is not on keys where heads rest."),
    ] = UNSET
    keys: Annotated[
        Share,
        describe(
            "Share of the region's keys that are in the cache at the end, the mean over heads."
        ),
    ]


class CachePolicy(Part, frozen=True, kw_only=True):
    """One policy at one budget."""

    policy: Annotated[str, describe("As --mask takes it.")]
    budget: Annotated[Size, describe("Keys that a head keeps.")]
    kept: Annotated[
        Share | None,
        describe(
            "Share of what the last token looks at that is in the cache when the text is read, the"
            " mean over heads."
        ),
    ]
    kept_beyond_rest: Annotated[
        Share | UnsetType | None,
        describe("Of trained weights: the same share of what is not on keys where heads rest."),
    ] = UNSET
    bytes: Annotated[Count, describe("Of keys and values in the cache at the end.")]
    saved: Annotated[Share, describe("Share of the bytes without a budget that are saved.")]
    errors: Annotated[
        list[float | None],
        axes(
            "layer",
            meaning=(
                "‖Δ‖ / ‖x‖ of the last token's vector after each layer, and those after it that do"
                " not attend, when all layers forget."
            ),
        ),
    ]
    logprob: Annotated[
        float | None, describe("Log probability of the target then, in nats; null without a head.")
    ]
    change: Annotated[float | None, describe("That less the log probability with every key.")]
    regions: Annotated[list[RegionKept] | UnsetType, axes("region")] = UNSET
    heads: Annotated[list[HeadKept], describe("Every head, by layer and number.")]


class CacheDocument(Header, tag="attn.cache/1", frozen=True, kw_only=True):
    """What a cache of keys that forgets keeps, changes and saves.

    `kept` is of the run with every key: each layer's queries and keys decide what it would forget.
    """

    regions: Regions | UnsetType = UNSET
    rest: Annotated[
        Share | UnsetType,
        describe(
            "Of trained weights: of what the last token looks at, the part on keys where heads rest"
            " whatever the text says, the mean over heads."
        ),
    ] = UNSET
    shares: Annotated[
        list[float | None] | UnsetType,
        axes(
            "region",
            meaning="What the last token gives each region with every key, the mean over heads.",
        ),
    ] = UNSET
    shares_beyond_rest: Annotated[
        list[float | None] | UnsetType,
        axes(
            "region",
            meaning=(
                "Of trained weights: the same without keys where heads rest, as parts of all weight."
            ),
        ),
    ] = UNSET
    cached_layers: Annotated[
        list[Count], axes("layer", meaning="Layers that attend, each with a cache.")
    ]
    target: Annotated[
        list[TargetToken],
        describe("The tokens that follow, whose log probability is summed; none without a head."),
    ]
    logprob: Annotated[
        float | None, describe("Log probability of the target with every key, in nats.")
    ]
    bytes: Annotated[
        Count,
        describe("Of the keys and values of every token that the model's own masks still show."),
    ]
    policies: Annotated[list[CachePolicy], describe("In the order asked for, budgets rising.")]
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """How long axes are: of regions, and of layers."""
        if self.regions is UNSET:
            regions = 0
        else:
            regions = len(self.regions)
        return {**super().lengths(), "region": regions, "layer": len(self.cached_layers)}

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a fault (field, message) for each policy with regions in a document without them,
        or the other way round.
        """
        yield from super().validation_errors()
        for number, policy in enumerate(self.policies):
            if (policy.regions is UNSET) != (self.regions is UNSET):
                yield f"policies[{number}].regions", message("regions without names")
