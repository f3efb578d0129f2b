"""The models among the arguments of `attn compare`: folders, files, aliases, hub names, and any of
them with adapters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec import Struct

from attncli.errors import InputError
from attncli.language import message

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?(:[\w.-]+)?")
"""A name on the hub with its owner, perhaps with a revision or a file: a bare one may be a text."""


class NamedModel(Struct, frozen=True):
    """A model as an argument names it. name: the argument. base: the folder, file, alias or hub name.
    adapters: the folders that follow it behind plus signs, perhaps with weights."""

    name: str
    base: str
    adapters: tuple[str, ...]


def named_models(arguments: Sequence[str], *, has_text: bool) -> tuple[list[NamedModel], list[str]]:
    """The two models that the arguments name, and the other arguments, which are texts; no models
    and all arguments where they do not name two.

    has_text: whether the text comes from elsewhere. Files and folders that are there are models
    wherever they stand. An alias or a hub name, which may be a text as well, is one in front of a
    text, beside a file, or where the text comes from elsewhere; two aliases alone are models, too.

    Raises InputError for a first or second argument of three that names no model beside one that
    does, unless that is on disk: then the others are two texts.
    """
    by_argument = [_named_model(argument) for argument in arguments]
    on_disk = [
        place
        for place, model in enumerate(by_argument)
        if model is not None and is_model_file(model.base)
    ]
    front = by_argument[:2]
    has_two = len(front) == 2 and None not in front
    if len(on_disk) == 2:
        places = on_disk
    elif has_two and (len(arguments) == 3 or has_text or on_disk or _are_aliases(front)):
        places = [0, 1]
    elif len(arguments) == 3 and any(front) and not on_disk:
        _refuse_unknown(arguments, front)
        places = []
    else:
        places = []
    models = [model for place in places if (model := by_argument[place]) is not None]
    texts = [text for place, text in enumerate(arguments) if place not in places]
    return models, texts


def is_model_file(name: str) -> bool:
    """Whether this is a GGUF file or the folder of a checkpoint; a text may be no possible name."""
    if name.endswith(".gguf"):
        return os.path.isfile(name)  # noqa: PTH113 - which never fails
    return os.path.isfile(f"{name}/config.json")  # noqa: PTH113


def _named_model(argument: str) -> NamedModel | None:
    """The model that an argument may name; None for what can only be a text."""
    if _is_model(argument):
        return NamedModel(argument, argument, ())
    base, *adapters = argument.split("+")
    if adapters and _is_model(base) and all(map(_is_adapter, adapters)):
        return NamedModel(argument, base, tuple(adapters))
    return None


def _is_model(name: str) -> bool:
    """Whether a name is that of a file, a folder, an alias, or could be one of the hub."""
    return is_model_file(name) or _is_alias(name) or HUB_NAME.fullmatch(name) is not None


def _is_alias(name: str) -> bool:
    """Whether a name is an alias, perhaps with a revision."""
    from attncli.models.aliases import ALIASES

    return name.partition("@")[0].lower() in ALIASES


def _is_adapter(name: str) -> bool:
    """Whether a name is that of the folder of an adapter, perhaps with a weight behind a colon."""
    folder, colon, _ = name.rpartition(":")
    return any(
        os.path.isfile(f"{place}/adapter_config.json")  # noqa: PTH113
        for place in (name, folder if colon else name)
    )


def _are_aliases(models: Sequence[NamedModel | None]) -> bool:
    """Whether all of these are called by aliases, which nobody means as texts together."""
    return all(model is not None and _is_alias(model.base) for model in models)


def _refuse_unknown(arguments: Sequence[str], models: Sequence[NamedModel | None]) -> None:
    """Raise InputError for the argument beside a model that names none: of three one is the text."""
    from difflib import get_close_matches

    from attncli.models.aliases import ALIASES

    unknown = arguments[models.index(None)]
    if unknown.endswith(".gguf"):
        raise InputError(
            "there is no such file",
            expected="a .gguf file, a folder, an alias or owner/name",
            where=unknown,
        )
    base, plus, adapter = unknown.partition("+")
    if plus and _is_model(base):
        raise InputError(
            "there is no adapter in {folder}",
            expected="a folder with adapter_config.json",
            where=unknown,
            folder=adapter,
        )
    close = get_close_matches(unknown.lower(), ALIASES, 1)
    hint: str = "attn models list"
    if close:
        hint = message("did you mean {close}?", close=close[0])
    raise InputError(
        "{unknown} names no model, and of three arguments two are models",
        expected="a folder, a .gguf file, an alias, owner/name, or one of them with +ADAPTER",
        hint=hint,
        unknown=repr(unknown),
    )
