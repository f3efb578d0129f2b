"""JSON Schemas (2020-12) of every document that `attn` emits, by name. Each is complete in itself.

A document's module holds `SCHEMA`; a new one is added by a line in `MODULES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

MODULES = {
    "attn.run/1": "run",
    "attn.generate/1": "generate",
    "attn.heads/1": "heads",
    "attn.find/1": "find",
    "attn.tokens/1": "tokens",
    "attn.weights/1": "weights",
    "attn.tensors/1": "tensors",
    "attn.models/1": "models",
    "attn.model/1": "model",
    "attn.verify/1": "verify",
    "attn.explain/1": "explain",
    "attn.mask/1": "mask",
    "attn.cross/1": "cross",
    "attn.compare/1": "compare",
    "attn.cost/1": "cost",
    "attn.error": "error",
}
"""The module in this folder that describes each document."""


class Schemas(Mapping[str, dict[str, Any]]):
    """The schemas by the name of their document, such as `attn.run/1`; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        described: dict[str, Any] = import_module(f"{__name__}.{MODULES[name]}").SCHEMA
        about = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:{name.replace('.', ':')}",
            "title": name,
        }
        return {**about, **described}

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


SCHEMAS = Schemas()
