"""`attn.generate/1`: a text continued by a decoder, and what each new token looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from attncli.documents.declaration import Count, Numbers, Part, Weight, axes, describe, index_of
from attncli.documents.parts import Header, TokenRow

Context = Annotated[Weight, describe("Attention on the prompt.")]
Generated = Annotated[Weight, describe("Attention on what was generated, the token itself included.")]
Lookback = Annotated[Weight, describe("context / (context + generated).")]
LookbackPerKey = Annotated[Weight, describe("The same of the means per key (Chuang et al. 2024).")]


class TopKey(Part, frozen=True, kw_only=True):
    """The key with the most weight."""

    key: Annotated[Count, index_of("text")]
    weight: Weight


class StepHead(Part, frozen=True, kw_only=True):
    """Where one head looks while a token is chosen."""

    layer: Count
    head: Count
    context: Context
    generated: Generated
    lookback: Lookback
    lookback_per_key: LookbackPerKey
    top: TopKey
    weights: (
        Annotated[Numbers, axes("", meaning="[key]: the token's row over the prompt and what was generated.")]
        | UnsetType
    ) = UNSET


class GenerateStep(Part, frozen=True, kw_only=True):
    """One new token; shares are means over the layers and heads kept."""

    token: Annotated[Count, index_of("text", "Position of the new token.")]
    probability: Annotated[Weight, describe("Its probability when it was chosen, at the temperature used.")]
    heads: Annotated[list[StepHead], Meta(min_length=1)]
    context: Context
    generated: Generated
    lookback: Lookback
    lookback_per_key: LookbackPerKey


class GenerateDocument(Header, tag="attn.generate/1", frozen=True, kw_only=True):
    """A text continued by a decoder. Positions, layers and heads count from 0."""

    generated: Annotated[
        list[TokenRow], axes("generated", meaning="positions go on from the prompt's, characters from its text's.")
    ]
    continuation: Annotated[str, describe("What the new tokens say after the text, blanks included.")]
    temperature: Annotated[float, describe("0 for the likeliest token each time.")]
    sample_seed: Annotated[int | None, describe("Seed of the draws; null without any.")]
    ended: Annotated[bool, describe("Whether the text ended by itself, at a token that ends texts.")]
    steps: Annotated[list[GenerateStep], axes("generated", meaning="one per new token, in order.")]
    warnings: list[str]

    def lengths(self) -> Mapping[str, int | range]:
        """The prompt, what was generated, and both."""
        prompt, new = len(self.tokens), len(self.generated)
        return {**super().lengths(), "generated": new, "text": prompt + new}
