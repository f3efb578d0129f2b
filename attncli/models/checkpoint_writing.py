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
from msgspec.structs import replace

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


class SideArrays(Struct, frozen=True):
    """The arrays by role of one side of a model: those outside its layers, and those of each."""

    outer: RoleArrays
    layers: Sequence[RoleArrays]


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
    encoder: of an encoder-decoder the arrays of the encoder, the others being the decoder's; None
        for a model of one side.
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
    encoder: SideArrays | None = None


def check_new_folder(folder: Path, *, force: bool) -> None:
    """Check, before any work starts, that a checkpoint can be written to this folder.

    force: whether the folder may exist already with files in it.

    Raises:
        UsageError: There is a file of that name, or a folder with files and no `force`.
        AttnError: The folder above it cannot be written.
    """
    exists = is_there(folder)
    if exists and not is_folder(folder):
        raise UsageError(
            message("there is a file of this name"),
            where=str(folder),
            expected=message("a new folder"),
        )
    # only an empty folder may be there without `force`; a link to nothing does not exist for
    # `is_there`, but is something all the same
    is_empty_folder = exists and not folder_entries(folder)
    if not force and os.path.lexists(folder) and not is_empty_folder:
        raise UsageError(
            message("this folder exists"),
            where=str(folder),
            expected=message("a new folder, or --force to write the model over what is there"),
        )
    # the nearest folder above that exists
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
    config: dict[str, object] = {
        "model_type": parts.kind,
        "architectures": [parts.architecture],
        "dtype": "float32",
        **parts.config,
        # transformers' default ids would lie beyond a small vocabulary
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": False,
    }
    tokenizer = tokenizer_json(parts.words, by_character=parts.by_character)
    metadata = {"format": "pt", **parts.notes}  # "pt": of torch, as transformers writes it
    with _new_folder(folder):
        write_tensors(folder / "model.safetensors", _whole_model(parts), metadata)
        _write_json(folder / "config.json", config)
        _write_json(folder / "tokenizer.json", tokenizer)
        _write_json(folder / "tokenizer_config.json", tokenizer_config)


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Context manager: make the folder before the block; where the block raises, delete the folders
    that were made for it and are empty."""
    new_folders: list[Path] = []  # the folder and those above it that were not there
    try:
        new_folders = make_folder(folder)
        yield
    except OSError as error:
        _remove_empty(new_folders)
        raise AttnError(
            message(
                "this folder cannot be written: {reason}", reason=term(error.strerror or str(error))
            ),
            where=str(folder),
            expected=message("a place that may be written"),
        ) from error
    except BaseException:  # also where the user interrupts
        _remove_empty(new_folders)
        raise


def _remove_empty(folders: Sequence[Path]) -> None:
    """Delete those of these folders that are empty; others stay."""
    for path in folders:
        with suppress(OSError):  # of a folder that is not empty
            path.rmdir()


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write values as an indented JSON file, whole or not at all."""
    with atomic_writer(path) as file:
        file.write((json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode())


def _whole_model(parts: CheckpointParts) -> dict[str, Floats]:
    """The arrays to write, by tensor name: of an encoder-decoder those of both sides, the model's
    prefix before all but the output head's."""
    if parts.encoder is None:
        return stored_tensors(parts)
    definition = family(parts.kind)
    # for the type checker: models of two sides are written for families that have both
    assert definition is not None
    assert definition.decoder is not None
    encoder = replace(parts, outer=parts.encoder.outer, layers=parts.encoder.layers)
    arrays = stored_tensors(encoder, names=definition.names)
    arrays |= stored_tensors(parts, names=definition.decoder)
    # both sides share the table of tokens, which transformers reads under each of its names
    for name in str(definition.decoder.outside["tokens"]).split("|"):
        arrays[f"{name}.weight"] = np.ascontiguousarray(parts.outer["tokens.weight"], np.float32)
    # the decoder's output head lies beside the model: no prefix, such as "model.", before its names
    prefix = definition.names.prefixes[0]
    head_modules = {
        str(definition.decoder.outside[role]).partition("|")[0] for role in ("head", "head.offsets")
    }
    tensors = {}
    for name, array in arrays.items():
        if name.partition(".")[0] in head_modules:
            tensors[name] = array
        else:
            tensors[f"{prefix}{name}"] = array
    return tensors


def stored_tensors(
    parts: CheckpointParts, *, every_name: bool = False, names: Names | None = None
) -> dict[str, Floats]:
    """The arrays to write, by tensor name: the weights of `parts`, which are by role, under the
    family's names and joined as its files join them.

    every_name: whether a tensor for which the family knows several names ("a|b") is written under
        each of them, so that any relative of the family can read it.
    names: the tensor names of an encoder or a decoder; None for the family's own.
    """
    definition = family(parts.kind)
    assert definition is not None  # `parts.kind` is the name of a family
    # a class with an output head saves the model inside it under a prefix such as "model.": the
    # family's first; where `names` are given, the caller sets the prefix
    has_head = names is None and "head.weight" in parts.outer
    if names is None:
        names = definition.names
    prefix = names.prefixes[0] if has_head and names.prefixes else ""

    # outside the layers: the output head lies beside the model, without the model's prefix
    outer = _tensors_of_roles(parts.outer, names.outside, prefix, parts.groups, transposed=False)
    head = str(names.outside.get("head", "")).partition("|")[0]
    tensors = {}
    for name, array in outer.items():
        if head and name.startswith(f"{prefix}{head}."):
            name = name.removeprefix(prefix)
        tensors[name] = array

    # the layers, written once by each of these tables; where two roles have a name in common, the
    # last table wins, whose sources are known by their first name
    source_tables: list[Mapping[str, Source]] = [names.inside]
    if every_name:
        # before it a table of the second names ("b" of "a|b"), of the third and so on
        spellings = {
            key: source.split("|")
            for key, source in names.inside.items()
            if isinstance(source, str)
        }
        most_names = max(map(len, spellings.values()), default=1)
        source_tables = [
            {key: modules[place] for key, modules in spellings.items() if len(modules) > place}
            for place in range(1, most_names)
        ] + source_tables
    for layer, roles in enumerate(parts.layers):
        layer_prefix = prefix + names.layer.format(layer=layer)
        for sources in source_tables:
            tensors |= _tensors_of_roles(
                roles, sources, layer_prefix, parts.groups, transposed=names.transposed
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
    """The tensors to write, by name, for `roles`, which are arrays by role.

    sources: for each module, or several that share a tensor, where its weight is stored.
    before: prefix of the names.
    groups: called with the roles of a grouped tensor for the number of its groups of heads.
    transposed: whether matrices are stored as [in, out].
    """
    tensors: dict[str, Floats] = {}
    for modules, source in sources.items():
        for suffix in (".weight", ".bias", ""):
            # the modules "attn.q attn.k" share a tensor; those of their roles that there are
            role_names = [module + suffix for module in modules.split()]
            present = [Role(name, roles[name].shape) for name in role_names if name in roles]
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
    """Yield the name and the array of each tensor in which these arrays, of the roles of one source,
    are stored: joined to one tensor, or one for each expert.

    before, suffix: of the tensor's name, such as "model.layers.0." and ".weight".
    groups: how many groups of heads a grouped tensor has.
    transposed: whether matrices are stored as [in, out].
    """
    match source:
        case Concat(name):
            whole = np.concatenate(arrays)
        case GroupedTensor(name):
            # [group, rows of one role in a group, in], the roles one after the other in each group
            by_group = [array.reshape((groups, -1, *array.shape[1:])) for array in arrays]
            whole = np.concatenate(by_group, axis=1).reshape((-1, *arrays[0].shape[1:]))
        case StackedTensor(name):
            for item, part in enumerate(arrays[0]):
                yield f"{before}{name.format(item=item)}{suffix}", part
            return
        case PerExpert(name):
            # some classes have a module for each tensor (down_proj.bias), some a parameter
            # (down_proj_bias): written under both names
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
    """The arrays of several roles, each [expert, row, ...], joined along their rows to the one that
    is stored: the roles' rows by turns or one role after the other, transposed or not.
    """
    if source.alternating:
        by_turns = np.stack(arrays, axis=2)  # [expert, row, role, ...]
        whole = by_turns.reshape(len(by_turns), -1, *by_turns.shape[3:])
    else:
        whole = np.concatenate(arrays, axis=1)
    if source.transposed and whole.ndim == 3:
        whole = whole.swapaxes(1, 2)
    return whole


def tokenizer_json(words: Sequence[str], *, by_character: bool) -> dict[str, object]:
    """A tokenizer.json of whole words, or of characters.

    words: each has its index as id; `UNKNOWN` is among them.
    by_character: whether words are single characters; else texts are cut at blanks.
    """
    characters = {  # cuts a text into its characters, blanks included
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
        "pre_tokenizer": characters if by_character else {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": {"type": "Fuse"} if by_character else None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": UNKNOWN,
        },
    }
