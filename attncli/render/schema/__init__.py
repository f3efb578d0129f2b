"""JSON Schemas (2020-12) of every document that `attn` emits, by name. Each is complete in itself.

A document's module holds `SCHEMA`; a new one is added by a line in `MODULES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from attncli.errors import InputError

MODULES = {
    "attn.run/1": "run",
    "attn.heads/1": "heads",
    "attn.tokens/1": "tokens",
    "attn.weights/1": "weights",
    "attn.tensors/1": "tensors",
    "attn.error": "error",
}
"""The module in this folder that describes each document."""


def schema(name: str) -> dict[str, Any]:
    """The schema of a document: by its full name, or by the name without `attn.` and version.

    Raises InputError for a name that no document has.
    """
    found = {**{full.removeprefix("attn.").split("/")[0]: full for full in MODULES}, **{full: full for full in MODULES}}.get(name)
    if found is None:
        import difflib

        near = difflib.get_close_matches(name, [full.removeprefix("attn.").split("/")[0] for full in MODULES], n=1)
        raise InputError(
            f"there is no document {name!r}", expected=", ".join(MODULES), hint=f"attn schema {near[0]}" if near else "attn schema"
        )
    described: dict[str, Any] = import_module(f"{__name__}.{MODULES[found]}").SCHEMA
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:{found.replace('.', ':')}", "title": found, **described}
