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
        InputError: For an argument beside a model that seems to be a misspelt model. Of three
            arguments also for one of the first two that names no model where the other does, unless
            the other is on disk: then both others are texts.
    """
    # what each argument could name, and which of them are files or folders
    by_argument = [_named_model(argument) for argument in arguments]
    on_disk = [
        place
        for place, model in enumerate(by_argument)
        if model is not None and is_model_file(model.base)
    ]

    # which two are the models; with the text from elsewhere, two arguments can be nothing else
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
    # (only arguments that may be models are chosen: none is None)
    models = [model for place in places if (model := by_argument[place]) is not None]
    texts = [text for place, text in enumerate(arguments) if place not in places]
    return models, texts


def hub_names_read_as_texts(arguments: Sequence[str]) -> list[str]:
    """The arguments that `named_models` takes for texts although they could be names of models on the
    hub, such as "owner/name": of three arguments the first two, where one of the three is a model
    on disk. [] otherwise.
    """
    if len(arguments) != 3 or not any(map(is_model_file, arguments)):
        return []
    return [text for text in arguments[:2] if HUB_NAME.fullmatch(text) and not is_model_file(text)]


def have_other_weights(first: str, second: str) -> bool:
    """Whether two models have tensors of the same names with different bytes, in different files.
    Nothing is downloaded; False if either model is not on this machine."""
    from attncli.models.aliases import local_folder
    from attncli.models.load import open_checkpoint

    def local_path(name: str) -> Path | None:
        """The file or folder of a model; None for a name whose files are not on this machine."""
        if is_model_file(name) or _is_there(name):
            return Path(name)
        return local_folder(name)

    first_path = local_path(first)
    second_path = local_path(second)
    if first_path is None or second_path is None:
        return False
    a = open_checkpoint(first_path)
    b = open_checkpoint(second_path)
    tensors_a = a.names()
    tensors_b = b.names()
    if a.folder.samefile(b.folder) or tensors_a.keys() != tensors_b.keys():
        return False
    return any(_have_other_bytes(info, tensors_b[name]) for name, info in tensors_a.items())


def _is_there(name: str) -> bool:
    """Whether there is a file or folder of this name; False, too, for a text that can be no name."""
    return os.path.exists(name)  # noqa: PTH110 - Path.exists may raise for a text


AT_ONCE = 2**20
"""Bytes of either file that are compared at once."""


def _have_other_bytes(first: TensorInfo, second: TensorInfo) -> bool:
    """Whether two stored tensors differ, by their types, shapes or bytes."""
    from attncli.inputs.files import LARGEST_FILE, open_regular

    if (first.dtype, first.shape, first.bytes) != (second.dtype, second.shape, second.bytes):
        return True
    # the open files, without their sizes
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
    """Whether this is a GGUF file or the folder of a checkpoint; False, too, for a text that can be
    no name of a file."""
    if name.lower().endswith(".gguf"):
        return os.path.isfile(name)  # noqa: PTH113 - Path.is_file may raise for a text
    return os.path.isfile(f"{name}/config.json")  # noqa: PTH113


def _named_model(argument: str) -> NamedModel | None:
    """The model that an argument may name; None for what can only be a text."""
    if _is_model(argument):
        return NamedModel(name=argument, base=argument, adapters=())
    # such as smollm2+my-adapter, or several adapters behind each other
    base, *adapters = argument.split("+")
    if adapters and _is_model(base) and all(map(_is_adapter, adapters)):
        return NamedModel(name=argument, base=base, adapters=tuple(adapters))
    return None


def _is_model(name: str) -> bool:
    """Whether a name may be a model's: of a GGUF file or a checkpoint's folder on disk, an alias, or
    a name with an owner, which may be on the hub."""
    return is_model_file(name) or _is_alias(name) or HUB_NAME.fullmatch(name) is not None


def _is_alias(name: str) -> bool:
    """Whether a name is an alias, perhaps with a revision."""
    from attncli.models.aliases import ALIASES

    return name.partition("@")[0].lower() in ALIASES


def _is_adapter(name: str) -> bool:
    """Whether a name is that of an adapter's folder, perhaps with a weight behind a colon, such as
    "my-adapter:0.5"."""
    folders = [name]
    folder, colon, _ = name.rpartition(":")
    if colon:
        folders.append(folder)
    return any(
        os.path.isfile(f"{folder}/adapter_config.json")  # noqa: PTH113 - of a text
        for folder in folders
    )


def _places_of_two(
    by_argument: Sequence[NamedModel | None],
    on_disk: Sequence[int],
    *,
    has_text: bool,
    is_whole: bool,
) -> list[int]:
    """The indices of the two arguments that are models; [] where they do not name two.

    by_argument: the model that each could name.
    on_disk: the indices of those that are files or folders.
    has_text: whether a text comes from elsewhere.
    is_whole: whether no argument can be a text.
    """
    if len(on_disk) == 2:
        return list(on_disk)

    # else the first two, if both could be models and the rest of the command speaks for it
    front = [model for model in by_argument[:2] if model is not None]
    if len(front) < 2:
        return []
    if on_disk:
        # beside a model on disk, a name of the hub may as well be a text to run in it
        is_named = is_whole or all(map(_is_certain, front))
    else:
        is_named = len(by_argument) == 3 or has_text
        is_named = is_named or all(_is_alias(model.base) for model in front)
    if is_named:
        return [0, 1]
    return []


def _is_certain(model: NamedModel) -> bool:
    """Whether a name is that of a model for sure: on disk, an alias, or with an adapter on disk."""
    return is_model_file(model.base) or _is_alias(model.base) or bool(model.adapters)


def _refuse_misspelt(arguments: Sequence[str], *, must_be_model: bool) -> None:
    """Raise InputError for an argument that seems to be a misspelt model beside one on disk: a model,
    "+" and an adapter that is not there, a missing file in an existing folder, or nearly an alias.

    must_be_model: whether the arguments can be no texts, so that any other word is refused, too.
    """
    for place, argument in enumerate(arguments):
        # what has blanks is a text
        if is_model_file(argument) or any(map(str.isspace, argument)):
            continue
        base, plus, adapter = argument.partition("+")
        if plus and _is_model(base):
            _refuse_adapter(argument, base, adapter)
        folder = os.path.dirname(argument)  # noqa: PTH120 - of a text
        if folder and os.path.isdir(folder) and not os.path.isfile(argument):  # noqa: PTH112, PTH113
            _refuse_place(argument, folder)
        # an alias names a model only among the first two arguments; behind them it is a text
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
    """A list of the one alias that a word is closest to, or [] where none is as close as `alike`, the
    ratio of difflib from 0 to 1."""
    from difflib import get_close_matches

    from attncli.models.aliases import ALIASES

    return get_close_matches(word.lower(), ALIASES, n=1, cutoff=alike)


def _did_you_mean(close: Sequence[str]) -> str:
    """The hint of an error for a misspelt name: the first of the names that are close to it, or for
    none the command that lists all."""
    if close:
        return message("did you mean {close}?", close=close[0])
    return "attn models list"


def _refuse_adapter(argument: str, base: str, adapter: str) -> None:
    """Raise InputError for a model with an adapter that is not there.

    base, adapter: the parts of the argument before and behind the plus sign.
    """
    raise InputError(
        "there is no adapter in {folder}",
        expected="a folder with adapter_config.json",
        where=argument,
        hint=_did_you_mean([base]),
        folder=adapter,
    )


def _refuse_place(argument: str, folder: str) -> None:
    """Raise InputError for a model that is not in its folder, which exists; the hint is a model in it
    of a similar name."""
    from difflib import get_close_matches

    from attncli.inputs.files import folder_entries

    try:
        entries = [path.name for path in folder_entries(Path(folder))]
    except (AttnError, OSError):  # a folder that cannot be listed only gives no hint
        entries = []
    names = [name for name in entries if is_model_file(f"{folder}/{name}")]
    close = get_close_matches(os.path.basename(argument), names, n=1)  # noqa: PTH119 - of a text
    raise InputError(
        "there is no such model",
        expected="a folder with config.json, or a .gguf file",
        where=argument,
        hint=_did_you_mean([f"{folder}/{name}" for name in close]),
    )


def _refuse_unknown(arguments: Sequence[str], models: Sequence[NamedModel | None]) -> None:
    """Raise InputError where, of the first two of three arguments, one may be a model and the other
    cannot: two of three must be models. Where neither is, nothing is raised: all may be texts.

    models: what each of the first two could name.
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
