"""`Checkpoint`: a folder in Hugging Face layout, its tensors read when needed, into memory that is
used again.

It holds `model.safetensors`, or several shards named by `model.safetensors.index.json`. An index is
data from elsewhere: it may name only files beside it. Checkpoints of before safetensors are
pickles. torch's restricted unpickler (`weights_only=True`) rebuilds tensors and plain containers
and calls nothing that a file names. Files of torch's zip format are mapped into memory and read as
their tensors are asked for; a mapped file that shrinks meanwhile ends the process. Older files are
read whole.
"""

from __future__ import annotations

import mmap
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import accumulate, islice, pairwise
from math import prod
from pathlib import Path, PurePath
from shlex import quote
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays import backend as arrays
from attncli.arrays import numpy_backend
from attncli.arrays.backend import torch_is_installed
from attncli.errors import InputError, UnsupportedError
from attncli.extras import install_command
from attncli.inputs.files import (
    LARGEST_FILE,
    PositionedFile,
    guarded_path,
    is_folder,
    is_there,
    open_regular,
    read_object,
)
from attncli.inputs.read_ahead import WORTH_A_PLAN, Pieces, ReadAhead, StoredMatrix, Stretch
from attncli.inputs.safetensors_file import (
    DTYPES,
    SafetensorsHeader,
    all_finite,
    convert,
    dtype_of_name,
    read_header,
    unsupported_dtype,
)
from attncli.inputs.tensors import check_torch_zip
from attncli.language import listing, message

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
INDEX_LIMIT = 64 * 2**20
CONVERT = (
    'python -c "from transformers import AutoModel as M;'
    " M.from_pretrained('FOLDER').save_pretrained('NEW FOLDER')\""
)
OLDER = {".h5": "from_tf", ".msgpack": "from_flax"}
"""Endings of weights that transformers reads below version 5, and the option by which it does."""
OTHER_FORMATS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf", ".onnx", ".ckpt")
"""Endings of files that may hold weights and are no safetensors."""
BESIDE_WEIGHTS = (
    "imatrix", "lr_scheduler", "openvino", "optimizer", "random_states", "rng_state", "scaler",
    "scheduler", "tokenizer", "trainer_state", "training_args", "training_state", "vocab",
)  # fmt: skip
"""How files begin that have such an ending and hold no weights: a trainer's, an export's, and those
of a vocabulary."""
EXPECTED = f"{SINGLE} or {INDEX}"
PICKLED_SINGLE = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
WEIGHT_FILES = ((SINGLE, INDEX, ".safetensors"), (PICKLED_SINGLE, PICKLED_INDEX, ".bin"))
"""A file of all weights, an index of several, and the ending of those that it names; what torch
pickled comes last.
"""
PLAIN_STEM = r"\w[\w.-]{0,200}"
"""What an index may name, less the ending."""
FLOAT8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
"""Types of eight bits that NumPy has no name for, and what ml_dtypes calls them."""
QUANTISED = {
    "qweight": "GPTQ or AWQ", "qzeros": "GPTQ or AWQ", "absmax": "bitsandbytes", "SCB": "bitsandbytes",
    "weight_packed": "compressed-tensors", "weight_scale": message("scaled integers or float8"),
    "weight_scale_inv": "float8",
}  # fmt: skip
"""The last words of names that only quantised weights have, and what wrote them."""


class TensorInfo(Struct, frozen=True):
    """Where a stored tensor lies in its file.

    dtype: NumPy's name ("bfloat16").
    start, stop: bytes from the beginning of `file`.

    scheme: the kind of numbers that lie there, where they are computed from as they are read
    ("Q4_K"); else "".
    """

    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    stop: int
    scheme: str = ""

    @property
    def bytes(self) -> int:
        """The size of the tensor's data in bytes."""
        return self.stop - self.start

    @property
    def row_bytes(self) -> int:
        """The size in bytes of one row of the tensor's first axis."""
        return self.bytes // max(self.shape[0], 1)  # (0 for a tensor without rows)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The type of its numbers in the file, which are little-endian."""
        return dtype_of_name(self.dtype).newbyteorder("<")


def local_header(path: Path) -> SafetensorsHeader | None:
    """The header of a .safetensors file, None where there is no such file. Raises InputError where
    it cannot be read, and for anything that the format does not allow.
    """
    if not is_there(path):
        return None
    stream, size = open_regular(path, what="a .safetensors file", limit=LARGEST_FILE)
    with stream:
        return read_header(stream, size, str(path))


def find_tensors(
    folder: Path,
    header: Callable[[Path], SafetensorsHeader | None] = local_header,
    *,
    packed: bool = False,
) -> dict[str, TensorInfo]:
    """Every tensor of a checkpoint by name, in file order; only headers are read.

    header: gives the header of a weight file, None where there is no such file.
    packed: whether weights of few bits are listed, too; numbers of eight bits then go by the name
        that ml_dtypes has for them.

    Raises InputError for missing, malformed or contradicting files, UnsupportedError for weights in
    another format, for quantised ones and for data types such as float8.
    """
    single = header(guarded_path(folder, SINGLE))
    if single is not None:
        return _tensors_of_header(single, guarded_path(folder, SINGLE), packed=packed)
    if is_there(guarded_path(folder, INDEX)):
        return _tensors_of_shards(folder, header, packed=packed)
    raise _no_weights(folder)


def shard_names(index: Path, ending: str) -> list[str]:
    """The files that a shard index names, each once, by name.

    ending: how all of these names must end, such as ".safetensors".

    Raises InputError for an index that is malformed or names a file outside of its folder.
    """
    return sorted(set(_read_index(index, ending).values()))


def _read_index(index: Path, ending: str) -> dict[str, str]:
    """For each tensor's name, the name of the file that holds it, from a shard index.

    ending: how all of these file names must end, such as ".safetensors".

    Raises InputError for an index that is malformed or names a file outside of its folder.
    """
    shards = read_object(index, what="a shard index", limit=INDEX_LIMIT).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise InputError(
            "this index has no weight_map",
            where=str(index),
            expected="tensor names, each with the name of its file",
        )
    for shard in shards.values():
        if not isinstance(shard, str) or not re.fullmatch(
            PLAIN_STEM + re.escape(ending), shard, re.ASCII
        ):
            expected = message("plain names of {ending} files beside it", ending=ending)
            raise InputError(
                "this index names {place}", where=str(index), expected=expected, place=repr(shard)
            )
    return shards


def _tensors_of_shards(
    folder: Path, header: Callable[[Path], SafetensorsHeader | None], *, packed: bool
) -> dict[str, TensorInfo]:
    """Where each tensor lies, by name, of all files that a shard index names.

    header: gives the header of a weight file, None where there is no such file.
    packed: whether weights of few bits are listed, too.

    Raises InputError for a shard that is missing, and where a tensor lies in another file than the
    index says.
    """
    index = guarded_path(folder, INDEX)
    shards = _read_index(index, ".safetensors")
    tensors: dict[str, TensorInfo] = {}
    for shard in sorted(set(shards.values())):
        path = guarded_path(folder, shard)
        shard_header = header(path)
        if shard_header is None:
            count = sum(place == shard for place in shards.values())
            what = message(
                "the shard {shard} is missing; {count} tensors lie in it",
                shard=repr(shard),
                count=count,
            )
            raise InputError(what, where=str(folder), expected="every file of {index}", index=INDEX)
        for name, info in _tensors_of_header(shard_header, path, packed=packed).items():
            if name in tensors:
                what = message("tensor {name} is in two shards", name=repr(name))
                raise InputError(
                    what, where=f"{tensors[name].file} and {path}", expected="each tensor once"
                )
            if shards.get(name) != shard:
                statement: str = message("does not list it")
                if name in shards:
                    statement = f"says {shards[name]!r}"
                raise InputError(
                    "tensor {name} lies in {shard}, but the index {statement}",
                    where=str(index),
                    name=repr(name),
                    shard=repr(shard),
                    statement=statement,
                )
            tensors[name] = info
    missing = [name for name in shards if name not in tensors]
    if missing:
        if len(missing) > 1:
            more = f" and {len(missing) - 1} more"
        else:
            more = ""
        raise InputError(
            "tensor {missing}{more} is not in {places}, where the index puts it",
            where=str(index),
            missing=repr(missing[0]),
            more=more,
            places=repr(shards[missing[0]]),
        )
    return tensors


def _tensors_of_header(
    header: SafetensorsHeader, path: Path, *, packed: bool
) -> dict[str, TensorInfo]:
    """Where each tensor of one file lies, by name. Raises UnsupportedError for weights of few bits,
    unless `packed`.
    """
    entries_to_check = [] if packed else header.entries.values()
    for entry in entries_to_check:
        if entry.dtype not in DTYPES:
            raise unsupported_dtype(entry.name, entry.dtype, str(path))
        # the quantisation method that has tensors of such a last word, as "qweight" in "q.qweight"
        method = QUANTISED.get(entry.name.rpartition(".")[2])
        if method is not None:
            what = message(
                "these weights are quantised ({method}): tensor {entry}",
                method=method,
                entry=repr(entry.name),
            )
            raise UnsupportedError(what, where=str(path), expected="float weights")
    return {
        name: TensorInfo(
            # float8, for which NumPy has no name, under that of ml_dtypes
            FLOAT8.get(entry.dtype, entry.dtype_name),
            entry.shape,
            path,
            entry.start,
            entry.end,
        )
        for name, entry in header.entries.items()
    }


MOST_ENTRIES = 1000
"""Entries of a folder that are looked at for a hint."""


def _no_config(folder: Path) -> InputError:
    """The error, returned and not raised, that a folder has no config.json. It says what the folder
    holds instead, such as an adapter, or names a model's folder below or above it."""
    what = message("this folder holds no config.json")
    expected = message("a folder with config.json and model.safetensors")
    if is_there(folder / ADAPTER_CONFIG):
        return _an_adapter(folder, expected)
    if is_there(folder / MAKERS_CONFIG):
        what = message(
            "this folder holds {file}, which its maker's own program reads, and no config.json",
            file=MAKERS_CONFIG,
        )
        expected = message("the same model as transformers has it: config.json, model.safetensors")
    near = next(_models_near(folder), None)
    hint = ""
    if near is not None:
        hint = f"--model {quote(str(near))}"
    return InputError(what, where=str(folder), expected=expected, hint=hint)


ADAPTER_CONFIG = "adapter_config.json"
MAKERS_CONFIG = "params.json"
"""The config of Llama's and Mistral's own programs."""


def _an_adapter(folder: Path, expected: str) -> InputError:
    """The error, returned and not raised, that a folder given as a model's holds an adapter, with
    the options that take it."""
    base = read_object(folder / ADAPTER_CONFIG, what=message("an adapter's config"))
    name = base.get("base_model_name_or_path")
    if isinstance(name, str) and name:
        stated = name
    else:
        stated = "BASE"
    return InputError(
        message("this folder holds an adapter, not a model"),
        where=str(folder),
        expected=expected,
        hint=f"--model {quote(stated)} --adapter {quote(str(folder))}",
    )


def _models_near(folder: Path) -> Iterator[Path]:
    """Yield the folders near this one that hold a config.json: its subfolders, the snapshots of a
    hub cache, and its parent."""
    for pattern in ("*/config.json", "snapshots/*/config.json"):
        yield from (path.parent for path in sorted(islice(folder.glob(pattern), MOST_ENTRIES)))
    above = folder.resolve().parent
    if is_there(above / "config.json"):
        yield above


def _no_weights(folder: Path) -> InputError | UnsupportedError:
    """The error, returned and not raised, that a folder has no safetensors; it says what lies there
    instead.
    """
    if is_there(folder / ADAPTER_CONFIG):
        return _an_adapter(folder, EXPECTED)
    others = sorted(path.name for path in _in_other_formats(folder))
    if others:
        what = message(
            "the weights are in {second}, which is not safetensors", second=repr(others[0])
        )
        expected, hint = _as_safetensors(folder, others)
        return UnsupportedError(what, where=str(folder), expected=expected, hint=hint)
    tensors = sorted(path.name for path in folder.glob("*.safetensors"))
    if "adapter_model.safetensors" in tensors:  # without the config that names its base
        return UnsupportedError(
            "this folder holds an adapter, not a model",
            where=str(folder),
            hint="merge it into its base model and save that",
        )
    # its group is the 3 in model-00001-of-00003.safetensors; one of one is no shard
    if tensors and (shard := SHARD.fullmatch(tensors[0])) and int(shard[1]) > 1:
        return InputError(
            "found {tensors}: shards, without the index of what lies in which",
            where=str(folder),
            expected="{index} beside all {count} of them",
            tensors=listing(map(repr, tensors[:3])),
            index=f"{SINGLE}.index.json",
            count=int(shard[1]),
        )
    if tensors:
        hint = ""
        if len(tensors) == 1 and not tensors[0].startswith(MAKERS_WEIGHTS):
            # such as model.fp16.safetensors, or model-00001-of-00001.safetensors
            hint = f"mv {quote(str(folder / tensors[0]))} {quote(str(folder / SINGLE))}"
        return InputError(
            "found {tensors}",
            where=str(folder),
            expected=EXPECTED,
            hint=hint,
            tensors=listing(map(repr, tensors[:3])),
        )
    return _unusable_weights(folder) or InputError(
        "this folder holds no weights",
        where=str(folder),
        expected=EXPECTED,
        hint=_whole_model(folder),
    )


def no_family(folder: Path, likely: str = "") -> InputError:
    """The error, returned and not raised, that a config.json names no family. Where the folder is a
    part of a model, such as sentence-transformers' `1_Pooling`, it names the model's folder.

    likely: the family that `architectures` in the config suggests; empty for none.
    """
    expected = message("a model_type")
    if likely:
        expected = message('"model_type": "{family}", as its architectures tell', family=likely)
    return InputError(
        "config.json does not say which family the model belongs to",
        where=str(folder / "config.json"),
        expected=expected,
        hint=_whole_model(folder),
    )


def _whole_model(folder: Path) -> str:
    """The option that takes the model of sentence-transformers that a folder is a part of; "" for
    a folder that is none."""
    above = folder.resolve().parent
    if is_there(above / "modules.json") and is_there(above / "config.json"):
        return f"--model {quote(str(above))}"
    return ""


def _as_safetensors(folder: Path, names: Sequence[str]) -> tuple[str, str]:
    """The last two parts of an error on weights in another format: what is expected in their place,
    and the command that makes it of them ("" where no such command is known).

    names: the files with such weights, in order.
    """
    first = names[0]
    ending = PurePath(first).suffix
    if ending in OLDER:  # TensorFlow's or Flax's, read with from_tf=True or from_flax=True
        option = f"'FOLDER', {OLDER[ending]}=True"
        expected = message(
            "{files}, which transformers below version 5 makes of it", files=EXPECTED
        )
        return expected, CONVERT.replace("'FOLDER'", option)
    if ending in (".bin", ".pt", ".pth") and len(names) == 1:
        # a state_dict under another name
        pickled = quote(str(folder / PICKLED_SINGLE))
        return f"{EXPECTED}, or {PICKLED_SINGLE}", f"mv {quote(str(folder / first))} {pickled}"
    return EXPECTED, ""


SHARD = re.compile(r".*-[0-9]+-of-([0-9]+)\.safetensors")
"""How a part of a model's weights is called, with how many there are."""
MAKERS_WEIGHTS = "consolidated"
"""How files of weights begin that the maker's own program reads, whose tensors have other names."""
UNFINISHED = ("*.crdownload", "*.incomplete", "*.part", "*.partial", "*.download", "*.aria2")
"""Downloads that browsers and other programs have not finished."""
PACKED_WEIGHTS = ("*.safetensors.*", "*.bin.*", "*.gguf.*")
"""Weights with a further ending, such as .gz."""
EXPORTED = ("onnx/*.onnx", "openvino*.xml", "openvino/*.xml", "*.tflite", "*.mlmodel", "*.engine")
"""Models that were exported for another program."""


def _unusable_weights(folder: Path) -> InputError | UnsupportedError | None:
    """The error, returned and not raised, for a folder whose weights cannot be used: incomplete,
    exported for another program, or packed; None where there is no such fault.
    """

    def first_of(patterns: tuple[str, ...]) -> str:
        """The first file of one of these patterns, by its path in the folder; "" for none."""
        # model.safetensors.index.json, an index, fits a pattern of packed weights
        paths = [
            path
            for pattern in patterns
            for path in sorted(islice(folder.glob(pattern), MOST_ENTRIES))
            if path.suffix != ".json"
        ]
        if not paths:
            return ""
        return str(paths[0].relative_to(folder))

    if unfinished := first_of(UNFINISHED):
        what = message("{file} is a download that did not end", file=repr(unfinished))
        return InputError(what, where=str(folder), expected=EXPECTED)
    if exported := first_of(EXPORTED):
        what = message("{file} is a model exported for another program", file=repr(exported))
        return UnsupportedError(what, where=str(folder), expected=EXPECTED)
    if packed := first_of(PACKED_WEIGHTS):
        what = message("{file} is packed, or is no file of weights", file=repr(packed))
        return InputError(what, where=str(folder), expected=EXPECTED)
    return None


def has_weights(folder: Path) -> bool:
    """Whether a folder holds any file of weights, in whatever format. An index whose files are all
    missing is none. Raises InputError for an index that is malformed.
    """
    for _, index, ending in WEIGHT_FILES:
        path = guarded_path(folder.resolve(), index)
        if is_there(path) and any(is_there(folder / name) for name in shard_names(path, ending)):
            return True
    if next(folder.glob("*.safetensors"), None) is not None:
        return True
    return next(_in_other_formats(folder), None) is not None


def _in_other_formats(folder: Path) -> Iterator[Path]:
    """The files of a folder that may hold weights and are no safetensors."""
    for path in folder.glob("*"):
        if path.suffix.lower() in OTHER_FORMATS and not path.name.startswith(BESIDE_WEIGHTS):
            yield path


def no_tensor(name: str, names: Mapping[str, object], folder: Path) -> InputError:
    """The error, returned and not raised, that no tensor has this name, with the nearest among
    `names`.
    """
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    return InputError(
        "there is no tensor {name}",
        where=str(folder),
        expected=(
            listing(close) if close else message("one of its {names} tensors", names=len(names))
        ),
        name=repr(name),
    )


# Memory that large arrays leave behind, given to the next ones.
#
# Without this, each weight would be new memory that the system must find and clear page by page,
# which takes longer than reading it.

LARGE = 2**20
"""Bytes from which an array is worth its own pages."""


class Pool:
    """Allocates uninitialised arrays and reuses their memory: that of one is free again when
    nothing refers to it or to a view of it."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array of this shape and type, its content arbitrary."""
        size = prod(shape) * dtype.itemsize
        if size < LARGE:
            return np.empty(shape, dtype)
        memory = self._free_memory(size)
        # every view keeps this root alive, since NumPy follows `base` down to the first array; when
        # the root is collected, its memory goes back to the free ones; not at the end of the
        # process, when nobody asks for more
        root = np.frombuffer(memory, dtype, prod(shape))
        weakref.finalize(root, self._free.append, memory).atexit = False
        return root.reshape(shape)

    def _free_memory(self, size: int) -> mmap.mmap:
        """A memory block of at least `size` bytes that no living array uses, reused or new."""
        fitting = [memory for memory in self._free if len(memory) >= size]
        if fitting:
            smallest = min(fitting, key=len)
            self._free.remove(smallest)
            return smallest

        # those that are too small go back to the system before a larger one is asked of it
        self._free.clear()
        memory = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):  # fewer, larger pages are faster to set up
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memory


WORTH_HELP = 8 * 2**20
"""Bytes of converted numbers from which a second thread repays waiting for it."""

Array = np.ndarray[Any, Any]
PIECE = 2**20
"""Bytes read at a time: few enough to stay in the processor's cache between reading and converting.
"""
PACKED = ("quantization_config", "compression_config")
"""The keys of a config.json under which transformers says how weights are packed."""
MLX = "quantization"
"""The key under which MLX says how weights are packed."""


def is_packed(config: Mapping[str, Any]) -> bool:
    """Whether a config.json declares quantised weights, packed in few bits."""
    return packing_settings(config) is not None


def packing_settings(config: Mapping[str, Any]) -> object | None:
    """The settings of a config.json on how weights are packed.

    Args:
        config: What the file holds.

    Returns:
        The first of its declarations, usually a dictionary; None where it has none. null, false, 0
        and what is empty declare nothing.
    """
    return next((config[key] for key in (*PACKED, MLX) if config.get(key)), None)


def without_packing(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the config without the keys that declare quantised weights."""
    return {key: value for key, value in config.items() if key not in (*PACKED, MLX)}


SEPARATE = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Files beside config.json in which older libraries say how weights are packed, and the method."""


def _with_packing(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The config with the packing settings at its top, wherever they come from: the text model's
    part (Kimi K2.5), or a file of their own (AutoGPTQ, AutoAWQ).
    """
    if is_packed(config):
        return config
    # null, false and {} say nothing
    config = {key: value for key, value in config.items() if key not in (*PACKED, MLX) or value}
    inner = config.get("text_config")
    if isinstance(inner, dict):
        lifted = {key: inner[key] for key in PACKED if inner.get(key)}
        if lifted:
            return {**config, "text_config": without_packing(inner), **lifted}
    for name, method in SEPARATE.items():
        path = guarded_path(folder, name)
        if is_there(path):
            settings = read_object(path, what=message("how weights are packed"))
            # under "quantization_config", the key by which transformers states them
            return {**config, PACKED[0]: {"quant_method": method, **settings}}
    return config


class Checkpoint:
    """A model's files: `config`, the tensors by name, and the tokenizer's. Made by `open`; opening
    reads no weights.

    folder: with all links followed.
    config: `config.json` as it stands.
    bytes_read: bytes of tensor data read so far.
    notes: what a user must know of how the files are read.
    format: how the files are laid out.
    """

    format = "safetensors"

    def __init__(
        self, folder: Path, config: dict[str, Any], tensors: dict[str, TensorInfo]
    ) -> None:
        """A checkpoint whose tensors lie where `tensors` says, by name; opens no file yet."""
        self.folder = folder
        self.config = config
        self.bytes_read = 0
        self.notes: tuple[str, ...] = ()
        self._tensors = tensors
        self._files: dict[Path, PositionedFile] = {}
        self._plan: ReadAhead | None = None  # what is read ahead, of tensors that will be asked for
        self._pool = Pool()  # arrays to read into, used again when nothing holds them any more

    @classmethod
    def open(cls, folder: Path, tensors: Mapping[str, TensorInfo] | None = None) -> Checkpoint:
        """Read `config.json` and the headers of the weight files.

        tensors: where each tensor lies, by name, for a caller who knows it already, such as one
            that has read the headers of files not yet on this machine; None to look.

        Raises InputError for a missing or malformed config or weights, UnsupportedError for
        quantised weights and for those that are neither safetensors nor torch's own files,
        LimitError for a config above 16 MiB.
        """
        checkpoint = cls.describe(folder)
        # torch's pickled files are only read where there are no safetensors
        native = tensors is not None or _has_any(checkpoint.folder, SINGLE, INDEX)
        if not native and _has_any(checkpoint.folder, PICKLED_SINGLE, PICKLED_INDEX):
            return open_pickled(checkpoint.folder, checkpoint.config)
        if tensors is None:
            checkpoint._tensors = find_tensors(checkpoint.folder)
        else:
            checkpoint._tensors = dict(tensors)
        return checkpoint

    @classmethod
    def describe(cls, folder: Path, *, packed: bool = False) -> Checkpoint:
        """A `Checkpoint` of `config.json` alone, without any tensor.

        packed: whether a config of quantised weights is allowed, too.

        Raises InputError for a missing or malformed config, UnsupportedError for one that speaks of
        quantised weights, LimitError for one above 16 MiB. Remote code (`auto_map`) is never run.
        """
        if not is_folder(folder):
            raise InputError(
                "this is not a folder",
                where=str(folder),
                expected="a folder with config.json and model.safetensors",
            )
        real = folder.resolve()
        if not is_there(guarded_path(real, "config.json")):
            raise _no_config(folder)
        config = read_object(
            guarded_path(real, "config.json"), what="a model's config.json", with_tags=True
        )
        config = _with_packing(real, config)
        for key in PACKED:
            if config.get(key) and not packed:
                what = message(
                    "these weights are quantised ({config})",
                    config=_quantization_method(config[key]),
                )
                raise UnsupportedError(what, where=str(folder), expected="float weights")
        return cls(real, config, {})

    def part(self, names: Mapping[str, str], config: dict[str, Any]) -> Checkpoint:
        """A checkpoint of some of these tensors under a config of its own.

        names: for each tensor's new name the one here.
        """
        return Checkpoint(self.folder, config, {new: self.info(old) for new, old in names.items()})

    def names(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name, in file order."""
        return MappingProxyType(self._tensors)

    def info(self, name: str) -> TensorInfo:
        """The `TensorInfo` of this name: where the tensor lies. Raises InputError, with the nearest
        names, if there is none."""
        if name not in self._tensors:
            raise no_tensor(name, self._tensors, self.folder)
        return self._tensors[name]

    def read(self, name: str, dtype: str | None = None) -> Array:
        """A whole tensor, in its stored type or converted to the float type `dtype`.

        Raises InputError for a name that is not there, a file that changed, or numbers that are not
        finite.
        """
        info = self.info(name)
        return self._fill(
            name, info, info.start, self._pool.array(info.shape, dtype_of_name(dtype or info.dtype))
        )

    def read_rows(self, name: str, rows: Sequence[int], dtype: str | None = None) -> Array:
        """The rows with these numbers on the first axis, in this order, each read once.

        Raises InputError for a row outside the tensor, a name that is not there, a file that
        changed, and numbers that are not finite.
        """
        info = self.info(name)
        different, places = self._different_rows(name, info, rows)
        different_rows = np.empty(
            (different.size, *info.shape[1:]), dtype_of_name(dtype or info.dtype)
        )
        # rows side by side in the file, such as 4, 5, 6, are read at once: cut where a number does
        # not follow the one before
        cuts = np.flatnonzero(np.diff(different) != 1) + 1
        for begin, end in pairwise((0, *cuts.tolist(), different.size)):
            if end > begin:  # else no rows at all
                start = info.start + int(different[begin]) * info.row_bytes
                self._fill(name, info, start, different_rows[begin:end])
        return different_rows[places]

    def product(
        self,
        name: str,
        x: arrays.Array,
        backend: arrays.Backend,
        bias: arrays.Array | None = None,
        *,
        in_out: bool = False,
    ) -> arrays.Array | None:
        """x·Wᵀ + b, [row, out], with a stored matrix W, [out, in], which is read and multiplied
        piece by piece; None where another tensor is next to be read ahead, or pieces do not pay.

        in_out: whether W is stored as [in, out].

        W as a whole is never in memory: a piece is small enough for the processor's cache. Raises
        InputError for a name that is not there, a file that changed, and numbers that are not
        finite.
        """
        info = self.info(name)
        plan = self._plan
        stored = StoredMatrix(info.stored_dtype, info.shape, in_out)
        if (
            plan is None
            or not plan.serves(name, info.start, info.stop)
            or not stored.worth_pieces(x, backend)
        ):
            return None
        product, finite = stored.multiply_pieces(plan.pieces(), x, backend, bias)
        self.bytes_read += info.bytes
        if not finite:
            raise self._not_finite(name, info, dtype_of_name(backend.dtype))
        return product

    @property
    def quantization(self) -> str | None:
        """The kinds of numbers from which weights are computed, as people name them; None for plain
        floats.
        """
        return None

    @property
    def vocabulary_name(self) -> str | None:
        """`tokenizer.json`, else the file of a vocabulary whose rule is known; None without one."""
        if is_there(guarded_path(self.folder, "tokenizer.json")):
            return "tokenizer.json"
        from attncli.inputs.vocabulary_files import VocabularyFolder

        return VocabularyFolder.read(self.folder).readable_file()

    @property
    def tokenizer_path(self) -> Path | None:
        """Where the file `vocabulary_name` lies, its links resolved; None without one."""
        name = self.vocabulary_name
        if name is None:
            return None
        return guarded_path(self.folder, name)

    def ahead(self, names: Sequence[str]) -> None:
        """Announce that these tensors will be read next, whole and in this order.

        A thread then reads them while the caller computes. It changes no result: reading anything
        else instead is allowed and ends the plan. Small tensors and small plans are ignored, as
        direct reads serve them faster.
        """
        self._stop()
        large_infos = [(name, self.info(name)) for name in names if self.info(name).bytes >= PIECE]
        if sum(info.bytes for _, info in large_infos) >= WORTH_A_PLAN:
            self._plan = ReadAhead(
                [
                    Stretch(self._file(info), name, info.start, info.stop, info.row_bytes)
                    for name, info in large_infos
                ]
            )

    def close(self) -> None:
        """Close the files."""
        self._stop()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fill(self, name: str, info: TensorInfo, start: int, target: Array) -> Array:
        """Fill `target` with numbers of a tensor from byte `start` of its file on, converted to the
        type of `target`, and return it. Raises InputError for a file that changed, and for numbers
        that are not finite.

        name, info: the tensor's name, and where it lies.
        """
        stored_dtype = info.stored_dtype
        flat = target.reshape(-1)
        about = f"tensor {name!r}"
        stop = start + flat.size * stored_dtype.itemsize
        plan = self._plan
        if plan is not None and not plan.serves(name, start, stop):
            plan = None  # it has something else to give next
        finite = True
        step = PIECE // stored_dtype.itemsize
        if plan is not None:
            # another thread has read the tensor, or is about to
            finite = _convert_pieces(plan.pieces(), stored_dtype, flat)
        else:
            # piece by piece, into the target itself where nothing needs to be converted
            file = self._file(info)
            as_stored = stored_dtype == target.dtype
            if as_stored:
                buffer = None
            else:
                buffer = np.empty(min(step, flat.size), stored_dtype)
            for position in range(0, flat.size, step):
                target_part = flat[position : position + step]
                if buffer is None:
                    part = target_part
                else:
                    part = buffer[: target_part.size]
                file.fill(part.view(np.uint8).data, start + position * stored_dtype.itemsize, about)
                finite = finite and (all_finite(part) if as_stored else convert(part, target_part))
        self.bytes_read += stop - start
        if plan is None and stop - start >= PIECE:
            self._stop()  # the caller does not follow the plan, if there is one
        if not finite:
            raise self._not_finite(name, info, target.dtype)
        return target

    def _not_finite(self, name: str, info: TensorInfo, dtype: np.dtype[Any]) -> InputError:
        """The error, returned and not raised, that a tensor holds numbers that are not finite in
        this type.
        """
        what = message(
            "tensor {name} holds numbers that are not finite in {dtype}",
            name=repr(name),
            dtype=dtype.name,
        )
        return InputError(what, where=str(info.file), expected="finite weights")

    def _file(self, info: TensorInfo) -> PositionedFile:
        """The opened file that a tensor lies in; each file is opened once."""
        if info.file not in self._files:
            self._files[info.file] = PositionedFile(info.file, what=message("a .safetensors file"))
        return self._files[info.file]

    def _stop(self) -> None:
        """End reading ahead: stop its thread and forget the plan."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def _different_rows(
        self, name: str, info: TensorInfo, rows: Sequence[int]
    ) -> tuple[Array, Array]:
        """The different row numbers among `rows`, ascending, and for each of `rows` its index among
        them: [7, 3, 7] gives [3, 7] and [1, 0, 1]. Raises InputError for a row outside the tensor.

        name, info: the tensor's, for errors and its shape.
        """
        different, places = np.unique(np.asarray(rows, np.int64), return_inverse=True)
        if not different.size:
            return different, places
        # the smallest and the largest stand for all
        for row in different[[0, -1]].tolist():
            if not info.shape or not 0 <= row < info.shape[0]:
                what = message(
                    "tensor {name} has no rows {start} to {last}",
                    name=repr(name),
                    start=row,
                    last=row,
                )
                expected = message("within its shape {shape}", shape=list(info.shape))
                raise InputError(what, where=str(info.file), expected=expected)
        return different, places


def _convert_pieces(pieces: Pieces, stored_dtype: np.dtype[Any], target: Array) -> bool:
    """Convert the pieces of a tensor into `target`, in two threads where that is faster; returns
    whether every number is finite.

    pieces: an iterator that threads share, of (first byte, bytes). The thread that reads them is
        mostly ahead.
    stored_dtype: the type of the numbers in the file.
    target: an array of one axis, for all numbers of the tensor.
    """
    finite: list[bool] = []

    def convert_rest() -> None:
        """Convert pieces into `target` until none is left, and append to `finite` for each whether
        all of its numbers are finite.
        """
        for first, piece in pieces:
            part = piece.view(stored_dtype)
            start = first // stored_dtype.itemsize
            finite.append(convert(part, target[start : start + part.size]))

    threads = 1
    if target.nbytes >= WORTH_HELP:
        threads = 2
    numpy_backend.at_once([convert_rest] * threads)
    return all(finite)


def _quantization_method(settings: object) -> str:
    """The name of the quantisation method in the settings of a config.json."""
    match settings:
        case {"quant_method": str(method)}:
            return method
        case _:
            return message("method not named")


NOTE = message(
    "the weights are pickled (pytorch_model.bin): torch reads them with weights_only, which makes "
    "tensors and plain containers and runs nothing that the file names"
)


class TorchCheckpoint(Checkpoint):
    """A `Checkpoint` whose tensors torch has mapped; they are in no order that reading ahead could
    use.
    """

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        tensors: dict[str, TensorInfo],
        arrays: dict[str, Array],
    ) -> None:
        """A checkpoint of these mapped arrays, by tensor name."""
        super().__init__(folder, config, tensors)
        self.notes = (NOTE,)
        self._arrays = arrays

    def part(self, names: Mapping[str, str], config: dict[str, Any]) -> Checkpoint:
        """A checkpoint of some of these tensors under a config of its own.

        names: for each tensor's new name the one here.
        """
        arrays = {new: self._arrays[old] for new, old in names.items()}
        return TorchCheckpoint(
            self.folder, config, {new: self.info(old) for new, old in names.items()}, arrays
        )

    def read(self, name: str, dtype: str | None = None) -> Array:
        """A whole tensor, copied from the mapped file, in its stored type or as the float type
        `dtype`.
        """
        return self._copy(name, self.info(name), self._arrays[name], dtype)

    def read_rows(self, name: str, rows: Sequence[int], dtype: str | None = None) -> Array:
        """The rows with these numbers on the first axis, in this order, copied from the mapped
        file.
        """
        info = self.info(name)
        self._different_rows(name, info, rows)
        return self._copy(name, info, self._arrays[name][np.asarray(rows, np.int64)], dtype)

    def ahead(self, names: Sequence[str]) -> None:
        """Does nothing: the system itself reads the parts of a mapped file that are used."""

    def _copy(self, name: str, info: TensorInfo, source: Array, dtype: str | None) -> Array:
        """A copy of numbers of the mapped file, as the float type `dtype` (None: as stored). Raises
        InputError where a number is not finite.

        name: the tensor's, for errors.
        info: where it lies, for errors.
        source: the numbers to copy, a view of the file.
        """
        copy = np.empty(source.shape, source.dtype if dtype is None else dtype_of_name(dtype))
        if not convert(source.reshape(-1), copy.reshape(-1)):
            raise self._not_finite(name, info, copy.dtype)
        self.bytes_read += source.nbytes
        return copy


def _has_any(folder: Path, *names: str) -> bool:
    """Whether a folder has a file of one of these names."""
    return any(is_there(guarded_path(folder, name)) for name in names)


def open_pickled(folder: Path, config: dict[str, Any]) -> TorchCheckpoint:
    """The checkpoint of a folder with torch's pickled files; no tensor is read yet, except from
    files of the older format.

    Raises InputError for a missing shard, a tensor in two, or content that is no plain state_dict;
    UnsupportedError without torch.
    """
    if not torch_is_installed():
        what = message(
            "{pickled_single} is read with torch, which is not installed",
            pickled_single=PICKLED_SINGLE,
        )
        raise UnsupportedError(what, where=str(folder), hint=install_command("torch"))
    from attncli.arrays.torch_backend import map_state_dict

    tensors: dict[str, TensorInfo] = {}
    arrays: dict[str, Array] = {}
    for path in _pickled_files(folder):
        stream, _ = open_regular(path, what="a torch file", limit=LARGEST_FILE)
        with stream:
            is_zip = stream.read(2) == b"PK"  # torch's newer format is a zip
            check_torch_zip(stream, str(path), LARGEST_FILE)
        file_arrays = map_state_dict(str(path), is_zip=is_zip)
        # only sizes are taken from `TensorInfo` here, so bytes are counted as if the arrays lay one
        # after the other
        edges = accumulate((array.nbytes for array in file_arrays.values()), initial=0)
        for (name, array), (start, stop) in zip(file_arrays.items(), pairwise(edges), strict=True):
            if name in tensors:
                raise InputError(
                    "tensor {name} is in two shards",
                    where=str(folder),
                    expected="each tensor once",
                    name=repr(name),
                )
            tensors[name] = TensorInfo(array.dtype.name, array.shape, path, start, stop)
            arrays[name] = array
    return TorchCheckpoint(folder, config, tensors, arrays)


def _pickled_files(folder: Path) -> Iterator[Path]:
    """Yield the path of the pickled file with all weights, or of each that the index names. Raises
    InputError for one that is missing."""
    if is_there(guarded_path(folder, PICKLED_SINGLE)):
        yield guarded_path(folder, PICKLED_SINGLE)
        return
    for name in shard_names(guarded_path(folder, PICKLED_INDEX), ".bin"):
        path = guarded_path(folder, name)
        if not is_there(path):
            expected = message("every file of {pickled_index}", pickled_index=PICKLED_INDEX)
            raise InputError(
                "the shard {name} is missing", where=str(folder), expected=expected, name=repr(name)
            )
        yield path
