"""The models among the arguments of `attn compare`: folders, files, aliases, hub names, and any of
them with adapters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from attncli.errors import AttnError, InputError, UsageError
from attncli.language import message

if TYPE_CHECKING:
    from attncli.inputs.checkpoint import TensorInfo

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?(:[\w.-]+)?")
"""A name on the hub with its owner, perhaps with a revision or a file: a bare one may be a text."""


class NamedModel(Struct, frozen=True):
    """A model as an argument names it.

    name: the argument.
    base: the folder, file, alias or hub name.
    adapters: the folders that follow it behind plus signs, perhaps with weights.
    """

    name: str
    base: str
    adapters: tuple[str, ...]


def named_models(
    arguments: Sequence[str], *, has_text: bool, has_chat: bool = False
) -> tuple[list[NamedModel], list[str]]:
    """The two models that the arguments name, and the other arguments, which are texts; no models
    and all arguments where they do not name two.

    Files and folders that are there are models wherever they stand. An alias, which may be a text
    as well, is one in front of a text, beside a file, or where the text comes from elsewhere; two
    aliases alone are models, too. A hub name is one only where the arguments cannot be texts: beside
    a file or folder two others are two texts in it.

    Args:
        arguments: As they were given.
        has_text: Whether the one text comes from a file or is read line by line.
        has_chat: Whether a text comes from a chat.

    Returns:
        Two models or none, and the texts.

    Raises:
        UsageError: For a third model.
        InputError: For an argument beside a model that is a misspelt one, and for a first or second
            of three that names no model beside one that does, unless that is on disk: then the
            others are two texts.
    """
    by_argument = [_named_model(argument) for argument in arguments]
    on_disk = [
        place
        for place, model in enumerate(by_argument)
        if model is not None and is_model_file(model.base)
    ]
    is_whole = has_text and len(arguments) == 2
    places = _places_of_two(by_argument, on_disk, has_text=has_text or has_chat, is_whole=is_whole)
    if not places and len(on_disk) == 1:
        _refuse_misspelt(arguments, must_be_model=is_whole)
    if not places and len(arguments) == 3 and not on_disk:
        _refuse_unknown(arguments, by_argument[:2])
    if places and set(on_disk) - set(places):
        raise UsageError(
            "three models are given, and two are compared",
            expected="two models and a text",
            hint='attn compare "TEXT" --model A --model B --model C',
        )
    models = [model for place in places if (model := by_argument[place]) is not None]
    texts = [text for place, text in enumerate(arguments) if place not in places]
    return models, texts


def hub_names_read_as_texts(arguments: Sequence[str]) -> list[str]:
    """Those of the first two of three arguments that could also be models on the hub, beside a
    model on disk; `named_models` takes them for texts.
    """
    if len(arguments) != 3 or not any(map(is_model_file, arguments)):
        return []
    return [text for text in arguments[:2] if HUB_NAME.fullmatch(text) and not is_model_file(text)]


def have_other_weights(first: str, second: str) -> bool:
    """Whether two models have tensors of the same names with different bytes, in different files.
    Nothing is downloaded; False if either model is not on this machine."""
    from attncli.models.aliases import local_folder
    from attncli.models.load import open_checkpoint

    places = [
        Path(name) if is_model_file(name) or _is_there(name) else local_folder(name)
        for name in (first, second)
    ]
    if None in places:
        return False
    a, b = (open_checkpoint(place) for place in places if place is not None)
    tensors = [checkpoint.names() for checkpoint in (a, b)]
    if a.folder.samefile(b.folder) or tensors[0].keys() != tensors[1].keys():
        return False
    return any(_have_other_bytes(info, tensors[1][name]) for name, info in tensors[0].items())


def _is_there(name: str) -> bool:
    """Whether this is a file or folder, perhaps of a model that is named by its folder alone."""
    return os.path.exists(name)  # noqa: PTH110 - which never fails


AT_ONCE = 2**20
"""Bytes of either file that are compared at once."""


def _have_other_bytes(first: TensorInfo, second: TensorInfo) -> bool:
    """Whether two stored tensors differ, by their types, shapes or bytes."""
    from attncli.inputs.files import LARGEST_FILE, open_regular

    if (first.dtype, first.shape, first.bytes) != (second.dtype, second.shape, second.bytes):
        return True
    streams = [
        open_regular(info.file, what=message("a weight file"), limit=LARGEST_FILE)[0]
        for info in (first, second)
    ]
    with streams[0] as left, streams[1] as right:
        left.seek(first.start)
        right.seek(second.start)
        for start in range(0, first.bytes, AT_ONCE):
            count = min(AT_ONCE, first.bytes - start)
            if left.read(count) != right.read(count):
                return True
    return False


def is_model_file(name: str) -> bool:
    """Whether this is a GGUF file or the folder of a checkpoint; a text may be no possible name."""
    if name.lower().endswith(".gguf"):
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


def _places_of_two(
    by_argument: Sequence[NamedModel | None],
    on_disk: Sequence[int],
    *,
    has_text: bool,
    is_whole: bool,
) -> list[int]:
    """Which two arguments are the models; none where they do not name two.

    by_argument: what each could name.
    on_disk: which are there.
    has_text: whether a text comes from elsewhere.
    is_whole: whether no argument can be a text.
    """
    if len(on_disk) == 2:
        return list(on_disk)
    front = [model for model in by_argument[:2] if model is not None]
    if len(front) < 2:
        return []
    if on_disk:
        # a hub name may be a text of the model on disk, and is not asked for
        is_named = is_whole or all(map(_is_certain, front))
    else:
        is_named = len(by_argument) == 3 or has_text or all(_is_alias(m.base) for m in front)
    if is_named:
        return [0, 1]
    return []


def _is_certain(model: NamedModel) -> bool:
    """Whether a name is that of a model for sure: on disk, an alias, or with an adapter on disk."""
    return is_model_file(model.base) or _is_alias(model.base) or bool(model.adapters)


def _refuse_misspelt(arguments: Sequence[str], *, must_be_model: bool) -> None:
    """Raise InputError for an argument beside a model on disk that is a misspelt model: it has a
    plus sign behind a model, stands in a folder that is there, or is nearly an alias.

    must_be_model: whether it can be no text.
    """
    for place, argument in enumerate(arguments):
        if is_model_file(argument) or any(map(str.isspace, argument)):
            continue
        base, plus, adapter = argument.partition("+")
        if plus and _is_model(base):
            _refuse_adapter(argument, base, adapter)
        folder = os.path.dirname(argument)  # noqa: PTH120 - of a text
        if folder and os.path.isdir(folder) and not os.path.isfile(argument):  # noqa: PTH112, PTH113
            _refuse_place(argument, folder)
        close = _close_aliases(argument, ALIKE)
        if (close and place < 2) or must_be_model:
            raise InputError(
                "{unknown} names no model",
                expected="a model, or with --model FOLDER two texts",
                hint=_did_you_mean(close),
                unknown=repr(argument),
            )


ALIKE = 0.8
"""How alike a word must be to an alias to be that misspelt: "best" and "bert" are 0.75."""


def _close_aliases(word: str, alike: float = 0.6) -> list[str]:
    """The alias that a word is close to; nothing where none is."""
    from difflib import get_close_matches

    from attncli.models.aliases import ALIASES

    return get_close_matches(word.lower(), ALIASES, 1, alike)


def _did_you_mean(close: Sequence[str]) -> str:
    """A hint of what a misspelt name was to be."""
    if close:
        return message("did you mean {close}?", close=close[0])
    return "attn models list"


def _refuse_adapter(argument: str, base: str, adapter: str) -> None:
    """Raise InputError for a model with an adapter that is not there."""
    raise InputError(
        "there is no adapter in {folder}",
        expected="a folder with adapter_config.json",
        where=argument,
        hint=_did_you_mean([base]),
        folder=adapter,
    )


def _refuse_place(argument: str, folder: str) -> None:
    """Raise InputError for a name in a folder that is there, with what it holds of a like name."""
    from difflib import get_close_matches

    from attncli.inputs.files import folder_entries

    try:
        entries = [path.name for path in folder_entries(Path(folder))]
    except (AttnError, OSError):
        entries = []
    names = [name for name in entries if is_model_file(f"{folder}/{name}")]
    close = get_close_matches(os.path.basename(argument), names, 1)  # noqa: PTH119 - of a text
    raise InputError(
        "there is no such model",
        expected="a folder with config.json, or a .gguf file",
        where=argument,
        hint=_did_you_mean([f"{folder}/{name}" for name in close]),
    )


def _refuse_unknown(arguments: Sequence[str], models: Sequence[NamedModel | None]) -> None:
    """Raise InputError for an argument beside a model that names no model. Of three arguments one
    is the text; where none is a model, all may be texts.
    """
    if not any(models) or None not in models:
        return
    unknown = arguments[models.index(None)]
    if unknown.lower().endswith(".gguf"):
        raise InputError(
            "there is no such file",
            expected="a .gguf file, a folder, an alias or owner/name",
            where=unknown,
        )
    base, plus, adapter = unknown.partition("+")
    if plus and _is_model(base):
        _refuse_adapter(unknown, base, adapter)
    raise InputError(
        "{unknown} names no model, and of three arguments two are models",
        expected="a folder, a .gguf file, an alias, owner/name, or one of them with +ADAPTER",
        hint=_did_you_mean(_close_aliases(unknown)),
        unknown=repr(unknown),
    )
