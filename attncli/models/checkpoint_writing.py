"""Writing a model as a checkpoint: its arrays by role under a family's tensor names, its
config.json, its tokenizer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.errors import AttnError, UsageError
from attncli.inputs.files import atomic_writer, folder_entries, is_folder, is_there, make_folder
from attncli.inputs.tensors import write_tensors
from attncli.language import message, term
from attncli.models.families import family
from attncli.models.family import (
    Concat,
    GroupedTensor,
    Names,
    PerExpert,
    Role,
    SharedTensor,
    Source,
    StackedTensor,
)

Floats = np.ndarray[Any, Any]
RoleArrays = Mapping[str, Floats]
"""Arrays by role; matrices are [out, in]."""

UNKNOWN = "[UNK]"
"""The token of a written vocabulary that stands for all others."""


class CheckpointParts(Struct, frozen=True):
    """What a checkpoint is written from.

    kind: its `model_type`.
    config: the other keys.
    architecture: the class that transformers opens it with.
    groups: how many groups of heads these roles have that share a tensor.
    outer, layers: arrays by role.
    words: its vocabulary, ids in order.
    by_character: whether texts are cut into characters, not at blanks.
    notes: keys for the file's metadata.
    """

    kind: str
    config: Mapping[str, object]
    architecture: str
    groups: Callable[[Sequence[Role]], int]
    outer: RoleArrays
    layers: Sequence[RoleArrays]
    words: Sequence[str]
    by_character: bool
    notes: Mapping[str, str]


def check_new_folder(folder: Path, *, force: bool) -> None:
    """Raise UsageError, before any work starts, for a folder that exists or a file of this name.

    force: a folder may exist.

    Raises AttnError where it cannot be written.

    Raises:
        UsageError: There is something of that name, and it may not be replaced.
        AttnError: The folder in which it is to stand cannot be written.
    """
    exists = is_there(folder)
    if exists and not is_folder(folder):
        raise UsageError(
            message("there is a file of this name"),
            where=str(folder),
            expected=message("a new folder"),
        )
    # a link to nothing counts as something
    if not force and os.path.lexists(folder) and (not exists or folder_entries(folder)):
        raise UsageError(
            message("this folder exists"),
            where=str(folder),
            expected=message("a new folder, or --force to write the model over what is there"),
        )
    above = folder.absolute().parent
    while not is_there(above):
        above = above.parent
    if not is_folder(above) or not os.access(above, os.W_OK):
        raise AttnError(
            message("this folder cannot be made"),
            where=str(folder),
            expected=message("a place that may be written"),
        )


def write_checkpoint(folder: Path, parts: CheckpointParts) -> None:
    """Write a checkpoint into a folder, all of its files or none; the folder is made, other files
    in it stay.

    In a block of `inputs.files.together` the files take their places when that ends. Raises
    AttnError where the disk is full or the folder may not be written.
    """
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": UNKNOWN}
    config: dict[str, object] = {
        "model_type": parts.kind,
        "architectures": [parts.architecture],
        "dtype": "float32",
    }
    no_ids = {
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }  # defaults are beyond the vocabulary
    with _new_folder(folder):
        write_tensors(
            folder / "model.safetensors", stored_tensors(parts), {"format": "pt", **parts.notes}
        )
        _write_json(folder / "config.json", {**config, **parts.config, **no_ids})
        _write_json(
            folder / "tokenizer.json", tokenizer_json(parts.words, by_character=parts.by_character)
        )
        _write_json(
            folder / "tokenizer_config.json", {**settings, "clean_up_tokenization_spaces": False}
        )


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make the folder for the length of the `with` block; where the block raises, delete it again
    if it was not there before."""
    new: list[Path] = []
    try:
        new = make_folder(folder)
        yield
    except OSError as error:
        _remove_empty(new)
        raise AttnError(
            message(
                "this folder cannot be written: {reason}", reason=term(error.strerror or str(error))
            ),
            where=str(folder),
            expected=message("a place that may be written"),
        ) from error
    except BaseException:
        _remove_empty(new)
        raise


def _remove_empty(folders: Sequence[Path]) -> None:
    """Delete those of the folders that are empty."""
    for path in folders:
        with suppress(OSError):
            path.rmdir()


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write values as an indented JSON file, whole or not at all."""
    with atomic_writer(path) as file:
        file.write((json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode())


def stored_tensors(
    parts: CheckpointParts, *, every_name: bool = False, names: Names | None = None
) -> dict[str, Floats]:
    """The arrays to write by tensor name: the weights of `parts`, which are by role, under the
    family's names and joined as its files join them.

    every_name: whether a tensor that relatives call otherwise stands under each of its names, for
        whoever reads any.
    names: of one side of an encoder-decoder; None for those of the family.
    """
    definition = family(parts.kind)
    assert definition is not None
    has_head = names is None and "head.weight" in parts.outer
    if names is None:
        names = definition.names
    if has_head and names.prefixes:
        prefix = names.prefixes[0]
    else:
        prefix = ""
    outer = _tensors_of_roles(parts.outer, names.outside, prefix, parts.groups, transposed=False)
    head = str(names.outside.get("head", "")).partition("|")[0]
    tensors = {
        name.removeprefix(prefix) if head and name.startswith(f"{prefix}{head}.") else name: array
        for name, array in outer.items()
    }
    for layer, roles in enumerate(parts.layers):
        before = prefix + names.layer.format(layer=layer)
        inside = names.inside
        if every_name:
            spelled = {
                key: source.split("|") for key, source in inside.items() if isinstance(source, str)
            }
            longest = max(map(len, spelled.values()), default=1)
            for place in range(1, longest):
                others = {
                    key: modules[place] for key, modules in spelled.items() if len(modules) > place
                }
                tensors |= _tensors_of_roles(
                    roles, others, before, parts.groups, transposed=names.transposed
                )
        tensors |= _tensors_of_roles(
            roles, inside, before, parts.groups, transposed=names.transposed
        )
    return tensors


def _tensors_of_roles(
    roles: RoleArrays,
    sources: Mapping[str, Source],
    before: str,
    groups: Callable[[Sequence[Role]], int],
    *,
    transposed: bool,
) -> dict[str, Floats]:
    """The tensors, by name, that `roles` (arrays by role) are stored as.

    sources: the tensor of each role.
    before: prefix of the names.
    groups: how many groups of heads a grouped tensor has.
    transposed: whether matrices are stored as [in, out].
    """
    tensors: dict[str, Floats] = {}
    for modules, source in sources.items():
        for suffix in (".weight", ".bias", ""):
            stated = [module + suffix for module in modules.split()]
            present = [Role(name, roles[name].shape) for name in stated if name in roles]
            arrays = [roles[role.name] for role in present]
            if not arrays:
                continue
            groups_count = 1
            if isinstance(source, GroupedTensor):
                groups_count = groups(present)
            for name, whole in _stored_arrays(
                source, before, suffix, arrays, groups_count, transposed=transposed
            ):
                tensors[name] = np.ascontiguousarray(whole, np.float32)
    return tensors


def _stored_arrays(
    source: Source,
    before: str,
    suffix: str,
    arrays: Sequence[Floats],
    groups: int,
    *,
    transposed: bool,
) -> Iterator[tuple[str, Floats]]:
    """The tensors, each with its name, that the arrays of one source are stored as.

    before, suffix: what stands around its name.
    groups, transposed: as of `_tensors_of_roles`.
    """
    match source:
        case Concat(name):
            whole = np.concatenate(arrays)
        case GroupedTensor(name):
            apart = [array.reshape((groups, -1, *array.shape[1:])) for array in arrays]
            whole = np.concatenate(apart, 1).reshape((-1, *arrays[0].shape[1:]))
        case StackedTensor(name):
            for item, part in enumerate(arrays[0]):
                yield f"{before}{name.format(item=item)}{suffix}", part
            return
        case PerExpert(name):
            # some classes have a module for each tensor, some a parameter: written under both names
            whole = _expert_array(source, arrays)
            ending = suffix.replace(".bias", "_bias").removesuffix(".weight")
            yield f"{before}{name}{ending}", whole
        case SharedTensor(name):
            yield name + suffix, arrays[0]
            return
        case str():
            name = source.partition("|")[0]
            whole = arrays[0]
        case _:
            raise TypeError(f"no small model is written with {source!r}")
    if transposed and whole.ndim == 2:
        whole = whole.T
    yield f"{before}{name}{suffix}", whole


def _expert_array(source: PerExpert, arrays: Sequence[Floats]) -> Floats:
    """The arrays [expert, ...] of all experts in one, as they are stored: in turns or one after the
    other, transposed or not.
    """
    if source.alternating:
        turns = np.stack(arrays, 2)
        whole = turns.reshape(len(turns), -1, *turns.shape[3:])
    else:
        whole = np.concatenate(arrays, 1)
    if source.transposed and whole.ndim == 3:
        whole = whole.swapaxes(1, 2)
    return whole


def tokenizer_json(words: Sequence[str], *, by_character: bool) -> dict[str, object]:
    """A tokenizer.json of whole words, or of characters.

    words: each with its place as id; `UNKNOWN` is among them.
    """
    every = {
        "type": "Split",
        "pattern": {"Regex": "[\\s\\S]"},
        "behavior": "Isolated",
        "invert": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": every if by_character else {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": {"type": "Fuse"} if by_character else None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": UNKNOWN,
        },
    }
