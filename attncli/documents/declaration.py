"""How a document is declared: `Part`, `Document`, what annotations say; the schemas and the error document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, Meta, Struct
from msgspec.json import schema_components

from attncli.documents import KINDS

Numbers = np.ndarray[Any, np.dtype[Any]]
"""Numbers of any shape: nested lists in JSON, null for what is not finite; read again, float64 with NaN for null."""
MOST = 2**63 - 1
Count = Annotated[int, Meta(ge=0, le=MOST)]
Size = Annotated[int, Meta(ge=1, le=MOST)]
"""Whole numbers that are counted with and drawn; a float must hold them."""
Weight = Annotated[float, Meta(ge=0, le=1.00001, description="An attention weight, 0 to 1.")]
"""A weight; what rounding adds is borne."""

SHOWN = 160
"""Characters of a `repr`, about: what fits two lines of a terminal."""


Entropy = Annotated[float, Meta(ge=-0.00001, le=100, description="In nats.")]
"""An entropy: of as many keys as any document can hold; what rounding takes from 0 is borne."""


def describe(meaning: str) -> Meta:
    """What a field means, in its schema's words."""
    return Meta(description=meaning)


def axes(*names: str, meaning: str = "") -> Meta:
    """The axes of an array of numbers, or the axis that a list runs along; "" is an axis of any length.

    One name is one length in the whole document, checked in what is read from a file.
    """
    shape = f"[{', '.join(name or '…' for name in names)}]"
    return Meta(description=f"{shape}: {meaning}" if meaning else shape, extra={"axes": names})


def index_of(axis: str, meaning: str = "") -> Meta:
    """A position on an axis, from 0: it must be less than the axis is long."""
    return Meta(description=meaning or None, extra={"at": axis})


class Part(Struct, frozen=True, eq=False, forbid_unknown_fields=True, kw_only=True):
    """A part of a document: an object in JSON, with exactly the declared members in their order.

    Equal only to itself, as arrays have no one equality; JSON texts can be compared.
    """

    def __repr__(self) -> str:
        """The type and its members in brief, `SHOWN` characters or little more."""
        pieces, room = [], SHOWN
        for name, value in members(self):
            pieces.append(f"{name}={brief(value)}")
            room -= len(pieces[-1]) + 2
            if room < 0:
                pieces.append("…")
                break
        return f"{type(self).__name__}({', '.join(pieces)})"

    def validation_errors(self) -> Iterator[tuple[str, str]]:
        """What contradicts itself here, besides sizes: a place, such as `layers[0].heads`, and what is wrong there."""
        return iter(())


class Document(Part, tag_field="schema", frozen=True, kw_only=True):
    """What one command found: what JSON and every screen are made from. Its tag is the member `schema`."""

    version: Annotated[str, describe("The version of attn that wrote the document.")]

    @property
    def schema(self) -> str:
        """The name with which it stands in its JSON, such as `attn.run/1`."""
        return tag_of(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: the page, and the text beside it."""
        from attncli.notebook import bundle

        del include, exclude
        return bundle(self)

    def lengths(self) -> Mapping[str, int | range]:
        """How long axes are, by name, or between what, as far as the document's own lists tell. Other axes are as long
        as they are met first."""
        return {}


def tag_of(part: Part) -> str:
    """The name of a part's kind: what its tag says in JSON, such as `rope`; "" for a part without one."""
    return str(part.__struct_config__.tag or "")


def members(part: Part) -> Iterator[tuple[str, Any]]:
    """The names and values that stand in the JSON, in order, without what is absent."""
    config = part.__struct_config__
    if config.tag is not None:
        yield str(config.tag_field), config.tag
    for name, field in zip(part.__struct_encode_fields__, part.__struct_fields__, strict=True):
        value = getattr(part, field)
        if value is not UNSET:
            yield name, value


def brief(value: Any) -> str:
    """A value as a `repr` shows it: texts cut, lists by their length, arrays by their type and shape."""
    match value:
        case np.ndarray():
            return f"{value.dtype}{list(value.shape)}"
        case list() | tuple() | dict():
            return f"<{len(value)}>" if len(value) else "[]" if isinstance(value, list | tuple) else "{}"
        case str() if len(value) > 24:
            return f"{value[:23]!r}…"
        case Part():
            return f"{type(value).__name__}(…)"
        case _:
            return repr(value)


# JSON Schemas (2020-12) of every document, read from the declarations. Each is complete in itself.

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


# `attn.error`: what a failure looks like in JSON mode, on standard error.


class Failure(Part, frozen=True, kw_only=True):
    """What went wrong."""

    code: Annotated[
        Literal[1, 2, 3, 4, 5], describe("1 failure, 2 usage, 3 bad input, 4 not supported, 5 over a limit.")
    ]
    message: str
    hint: Annotated[str | None, describe("A command or option to try.")]


class ErrorDocument(Part, frozen=True, kw_only=True):
    """A failure in JSON mode, on standard error."""

    error: Failure
