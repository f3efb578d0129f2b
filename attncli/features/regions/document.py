"""`attn.regions/1`: what the answer loses when a region of the text can no longer be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType, field

from attncli.documents import Count, Header, Part, Regions, describe
from attncli.documents.parts import NextToken, TargetToken
from attncli.language import message


class RegionEffect(Part, frozen=True, kw_only=True):
    """What cutting all links to one region from the tokens outside it changes."""

    region: Annotated[Count, describe("Its place in `regions`.")]
    without: Annotated[
        list[str] | UnsetType, describe("Regions inside it, whose tokens are told by themselves.")
    ] = UNSET
    logprob: Annotated[
        float | None, describe("Log probability of the target without the links, in nats.")
    ]
    change: Annotated[
        float | None,
        describe(
            "That less the log probability with all links: below 0 where the answer draws on it."
        ),
    ]
    top: Annotated[
        list[NextToken] | UnsetType,
        describe("What then comes after the text, the likeliest first."),
    ] = UNSET
    writes: Annotated[
        float | UnsetType,
        describe("With --hold attention: the change while every head attends as in the own run."),
    ] = field(default=UNSET, name="held")
    moved: Annotated[
        float | UnsetType,
        describe("change − held: by moving where later heads look, interaction included."),
    ] = UNSET

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Yield a (field, fault) unless `held` comes with `moved`."""
        if (self.writes is UNSET) != (self.moved is UNSET):
            yield "moved", message("one of held and moved without the other")


class RegionsDocument(Header, tag="attn.regions/1", frozen=True, kw_only=True):
    """Which region the answer draws on: the links to each are cut in all heads, one region at a
    time.
    """

    regions: Annotated[Regions, describe("Leaves: each without the regions inside it.")]
    target: Annotated[
        list[TargetToken],
        describe("The tokens that follow the text, whose log probability is summed."),
    ]
    logprob: Annotated[
        float | None, describe("Log probability of the target with all links, in nats.")
    ]
    effects: Annotated[
        list[RegionEffect], describe("Each region that was measured; the largest loss first.")
    ]
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """How long the axis of regions is."""
        return {**super().lengths(), "region": len(self.regions)}

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """Faults as (field, message), unless every effect is that of a region of the text."""
        yield from super().validation_errors()
        for number, effect in enumerate(self.effects):
            if effect.region >= len(self.regions):
                yield f"effects[{number}].region", message("there is no such region")
