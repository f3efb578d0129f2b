"""Every document that `attn` emits, each declared once: `features/<name>/document.py` holds `attn.<name>/1`, or
`compute.py` beside it where the feature is small.

A document is a frozen msgspec Struct. From the one declaration come its JSON and its JSON Schema (`attn schema`), the
check of files in `attn view` and `attn compare`, what screens and `--plain` read, and what Python callers get.

To add a document, say `attn.find/1`:

1. `features/find/document.py`: `class FindDocument(Header, tag="attn.find/1", frozen=True, kw_only=True)` with a
   docstring, and a field for each member in the order of the JSON. `Header` brings text, tokens, model and attention;
   a document without a text is a `Document`. A field's type says what it holds: `Annotated[Count, describe("…")]` a
   number with its meaning, `Annotated[Numbers, axes("query", "key")]` an array with its axes,
   `Annotated[Count, index_of("token")]` a position that must lie on an axis, `Annotated[list[Row], axes("token")]` a
   list as long as one. A member that may be absent is `… | UnsetType = UNSET`; one that may be null is `… | None`. One
   whose JSON name is no name for Python is renamed by `field(name="…")`. Parts that several documents share are in
   `parts.py`. `lengths` tells how long the axes are, `validation_errors` what else must hold between members.
2. `NAMES` below: its name; `FOLDERS`, where another feature's folder holds it.
3. `features/find/compute.py`: `find_document(…) -> FindDocument`, the one place where it is made.
4. `features/find/screen.py`: `find_screen(document, view)` and `find_rows(document)`.

A test of the house fails where one of these is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncli.documents.declaration import Document

NAMES = (
    "run", "generate", "heads", "find", "tokens", "weights", "tensors", "models", "model", "verify", "explain", "mask",
    "cross", "compare", "cost", "ablate", "effects", "difference", "logits", "patch", "scan", "scan_compare",
    "scan_verify", "error",
)  # fmt: skip
"""The documents by the names in their schemas, in the order in which they are listed."""
FOLDERS = {
    "model": "features.models", "verify": "features.models", "ablate": "features.effects", "logits": "features.effects",
    "patch": "features.effects", "difference": "features.effects", "scan": "scan", "scan_compare": "scan",
    "scan_verify": "scan",
}  # fmt: skip
"""Where a document and its screen stand that have no folder of their own in `features/`."""


BESIDE_COMPUTE = ("generate", "tokens", "weights", "models", "model", "verify")
"""Documents of small features, declared in `compute.py`."""


class Kinds(Mapping[str, Any]):
    """What each document may be, by its schema such as `attn.run/1`: its class, or several that its `topic` tells
    apart. Each is imported when it is asked for."""

    def __getitem__(self, schema: str) -> tuple[type[Document], ...]:
        name = name_of(schema)
        if name not in NAMES or schema != schema_of(name):
            raise KeyError(schema)
        module = import_module(module_of(name))
        classes: tuple[type[Document], ...] = getattr(module, "TOPICS", None) or (
            module.__dict__[f"{name.title().replace('_', '')}Document"],
        )
        return classes

    def __iter__(self) -> Iterator[str]:
        return map(schema_of, NAMES)

    def __len__(self) -> int:
        return len(NAMES)


def folder_of(name: str) -> str:
    """The package that holds a document and its screen: `attncli.features.run` for `run`."""
    return f"attncli.{FOLDERS.get(name, f'features.{name}')}"


def module_of(name: str) -> str:
    """The module that declares a document: `attncli.features.run.document` for `run`."""
    if name == "error":
        return "attncli.documents.declaration"
    return f"{folder_of(name)}.{'compute' if name in BESIDE_COMPUTE else 'document'}"


def schema_of(name: str) -> str:
    """The schema that a document's name stands for: `run` for `attn.run/1`."""
    return f"attn.{name}" if name == "error" else f"attn.{name}/1"


def name_of(schema: str) -> str:
    """The name that a schema stands for: `run` for `attn.run/1`."""
    return schema.removeprefix("attn.").removesuffix("/1")


KINDS = Kinds()
