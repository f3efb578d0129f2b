"""JSON Schemas (2020-12) of every document, read from the declarations. Each is complete in itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.json import schema_components

from attncli.analysis.documents import KINDS

NUMBERS = {
    "anyOf": [{"type": ["number", "null"]}, {"type": "array", "items": {"$ref": "#/$defs/Numbers"}}],
    "description": "Numbers, or lists of lists of them; null for what is not finite.",
}
"""An array of numbers, of as many axes as its description says."""


class Schemas(Mapping[str, dict[str, Any]]):
    """The schemas by the name of their document, such as `attn.run/1`; each is made when it is asked for."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        kinds = KINDS[name]
        roots, parts = schema_components(kinds, schema_hook=_numbers)
        about: dict[str, Any] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:{name.replace('.', ':')}",
            "title": name,
        }
        if len(kinds) == 1:
            about |= {**parts.pop(kinds[0].__name__), "title": name}
        else:
            about |= {
                "description": "An explanation with its numbers; `topic` tells which kind it is.",
                "oneOf": list(roots),
            }
        return {**about, "$defs": {**parts, "Numbers": NUMBERS}}

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


def _numbers(kind: type) -> dict[str, Any]:
    """The schema of an array."""
    del kind
    return {"type": "array", "items": {"$ref": "#/$defs/Numbers"}}


SCHEMAS = Schemas()
