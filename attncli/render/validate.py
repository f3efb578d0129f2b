"""Whether a document is what its schema says: the part of JSON Schema 2020-12 that our own schemas use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attncli.errors import InputError

Schema = Mapping[str, Any]

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,),
    "null": (type(None),),
}  # fmt: skip
KEYWORDS = frozenset(
    (
        "$schema", "$id", "$defs", "$ref", "title", "description", "type", "enum", "const", "anyOf", "oneOf", "minimum", "maximum", "items",
        "properties", "required", "additionalProperties",
    )
)  # fmt: skip
"""What is understood; a test holds our schemas to it."""


def validate(document: Any, schema: Schema, where: str) -> None:
    """Raise InputError, naming the place, unless the document fits the schema."""
    found = _misfit(document, schema, schema, "")
    if found:
        raise InputError(
            f"the document does not fit its schema: {found}",
            where=where,
            expected=f"what attn schema {schema['title']} describes",
        )


def _misfit(value: Any, schema: Schema, root: Schema, path: str) -> str:
    """What is wrong first, with its place; "" for nothing."""
    if "$ref" in schema:
        return _misfit(value, _pointed(root, schema["$ref"]), root, path)
    place = path or "/"
    if "type" in schema and not _is_type(value, schema["type"]):
        return f"{place} is {type(value).__name__}, not {schema['type']}"
    if "const" in schema and value != schema["const"]:
        return f"{place} is {str(value)[:40]!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} is {str(value)[:40]!r}, not one of {schema['enum']}"
    if "anyOf" in schema and all(_misfit(value, option, root, path) for option in schema["anyOf"]):
        return f"{place} fits none of what it may be"
    if "oneOf" in schema and sum(not _misfit(value, option, root, path) for option in schema["oneOf"]) != 1:
        return f"{place} is not exactly one of what it may be"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            return f"{place} is {value}, below {schema['minimum']}"
        if value > schema.get("maximum", value):
            return f"{place} is {value}, above {schema['maximum']}"
    if isinstance(value, list) and "items" in schema:
        return next(
            (wrong for at, item in enumerate(value) if (wrong := _misfit(item, schema["items"], root, f"{path}/{at}"))),
            "",
        )
    return _members(value, schema, root, path) if isinstance(value, dict) else ""


def _members(value: Mapping[str, Any], schema: Schema, root: Schema, path: str) -> str:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path or '/'} has no {name!r}"
    for name, item in value.items():
        inner = properties.get(name, others)
        if inner is False:
            return f"{path or '/'} has an unknown member {name!r}"
        if inner is not True and (wrong := _misfit(item, inner, root, f"{path}/{name}")):
            return wrong
    return ""


def _is_type(value: Any, names: str | list[str]) -> bool:
    listed = [names] if isinstance(names, str) else names
    if isinstance(value, bool):
        return "boolean" in listed
    return any(isinstance(value, TYPES[name]) for name in listed) or (
        "integer" in listed and isinstance(value, float) and value.is_integer()
    )


def _pointed(root: Schema, pointer: str) -> Schema:
    found: Any = root
    for part in pointer.removeprefix("#/").split("/"):
        found = found[part]
    return found
