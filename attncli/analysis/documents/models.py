"""`attn.models/1`: families, aliases and cached models."""

from __future__ import annotations

from typing import Annotated, Literal

from attncli.analysis.documents.declaration import Count, Document, Part, describe


class AliasRow(Part, frozen=True, kw_only=True):
    """A short name of a model."""

    name: str
    hub: Annotated[str, describe("Its id on the hub.")]
    family: Annotated[str, describe("The `model_type` of config.json.")]
    here: Annotated[
        Literal["package", "cache"] | None, describe("Where it is on this machine; null if it would be fetched.")
    ]


class CachedModel(Part, frozen=True, kw_only=True):
    """A model in the hub's local cache."""

    name: str
    revision: Annotated[str, describe("The commit.")]
    folder: str
    family: Annotated[str | None, describe("The `model_type` of config.json.")]
    native: Annotated[bool, describe("Whether attn runs the family natively.")]
    bytes: Annotated[Count, describe("Size of its safetensors files.")]
    missing: Annotated[list[str], describe("Needed files that are not there; empty for a whole model.")]


class ModelsDocument(Document, tag="attn.models/1", frozen=True, kw_only=True):
    """Which models there are."""

    families: Annotated[list[str], describe("The families that run natively.")]
    aliases: list[AliasRow]
    cache: Annotated[str, describe("The folder of the hub's local cache.")]
    cached: list[CachedModel]
