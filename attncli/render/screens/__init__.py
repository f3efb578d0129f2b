"""The screen of every document: `screens/<name>.py` shows `attn.<name>/1`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from attncli.render.lines import Lines
    from attncli.render.view import View


class Screen(NamedTuple):
    """How a document is shown: its screen, its table for `--plain`, and the parts that `--show` may name."""

    screen: Callable[[Any, View], Lines]
    rows: Callable[[Any], Iterable[Sequence[object]]]
    parts: Sequence[str]


def screen_of(schema: str) -> Screen:
    """The screen of a document, such as that of `attn.run/1`."""
    name = schema.removeprefix("attn.").removesuffix("/1")
    module = import_module(f"{__name__}.{name}")
    return Screen(getattr(module, f"{name}_screen"), getattr(module, f"{name}_rows"), getattr(module, "PARTS", ()))
