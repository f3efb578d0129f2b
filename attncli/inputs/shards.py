"""Which files hold a checkpoint's weights, safetensors or pickled, and where in them each tensor lies.

A folder in Hugging Face layout holds `model.safetensors`, or several shards named by
`model.safetensors.index.json`. An index is data from elsewhere: it may name only files beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.dtypes import unsupported_dtype
from attncli.inputs.file_opening import LARGEST_FILE, is_there, open_regular, read_object
from attncli.inputs.safetensors_file import DTYPES, SafetensorsHeader, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
INDEX_LIMIT = 64 * 2**20
CONVERT = (
    "python -c \"from transformers import AutoModel as M; M.from_pretrained('FOLDER').save_pretrained('NEW FOLDER')\""
)
OTHER_FORMATS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.gguf", "*.onnx", "*.ckpt")
EXPECTED = f"{SINGLE} or {INDEX}"
PLAIN_NAME = re.compile(r"\w[\w.-]{0,200}\.safetensors", re.ASCII)
"""What an index may name."""
QUANTISED = {
    "qweight": "GPTQ or AWQ", "qzeros": "GPTQ or AWQ", "absmax": "bitsandbytes", "SCB": "bitsandbytes",
    "weight_packed": "compressed-tensors", "weight_scale": "scaled integers or float8", "weight_scale_inv": "float8",
}  # fmt: skip
"""The last words of names that only quantised weights have, and what wrote them."""


class TensorInfo(Struct, frozen=True):
    """Where a tensor lies. dtype: NumPy's word ("bfloat16"). start, stop: bytes from the beginning of `file`."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        """The size of its data."""
        return self.stop - self.start


def guarded_path(folder: Path, name: str) -> Path:
    """The file `name` of a folder with its symbolic links followed; it need not exist.

    folder: already resolved. Links may lead to files of the folder itself or, in a hub cache
    (models--…/snapshots/REVISION), to the cache's blobs. Raises InputError for any other link.
    """
    try:
        target = (folder / name).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise InputError("this link leads nowhere", where=str(folder / name)) from error
    roots = [folder]
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith(("models--", "datasets--")):
        repository = folder.parent.parent
        # the repository's own blobs, and the store that repositories of one cache share
        roots += [(repository / "blobs").resolve(), (repository.parent / "blobs").resolve()]
    if not any(target.is_relative_to(root) for root in roots):
        raise InputError(
            f"{name!r} is a link that leaves its folder",
            where=str(folder),
            expected="a file",
            hint="give the folder that holds the files",
        )
    return target


def local_header(path: Path) -> SafetensorsHeader | None:
    """The header of a weight file, None where there is no such file. Raises as `open_regular` and `read_header`."""
    if not is_there(path):
        return None
    stream, size = open_regular(path, what="a .safetensors file", limit=LARGEST_FILE)
    with stream:
        return read_header(stream, size, str(path))


def find_tensors(
    folder: Path, header: Callable[[Path], SafetensorsHeader | None] = local_header
) -> dict[str, TensorInfo]:
    """Every tensor of a checkpoint by name, in file order; headers are read, no data.

    header: gives the header of a weight file, None where there is no such file.
    Raises InputError for missing, malformed or contradicting files, UnsupportedError for weights in another format,
    for quantised ones and for data types such as float8.
    """
    single = header(guarded_path(folder, SINGLE))
    if single is not None:
        return _tensors(single, guarded_path(folder, SINGLE))
    if is_there(guarded_path(folder, INDEX)):
        return _tensors_of_shards(folder, header)
    raise _nothing(folder)


def shard_names(index: Path) -> list[str]:
    """The files that a shard index names, each once, by name. Raises InputError for an index that is malformed or
    leads elsewhere."""
    return _shards(_places(index), index)


def _places(index: Path) -> dict[str, object]:
    """The name of each tensor's file, by the tensor's name, as the index has it."""
    places = read_object(index, what="a shard index", limit=INDEX_LIMIT).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InputError(
            "this index has no weight_map", where=str(index), expected="tensor names, each with the name of its file"
        )
    return places


def _shards(places: Mapping[str, object], index: Path) -> list[str]:
    return sorted({_plain_name(place, index) for place in places.values()})


def _tensors_of_shards(folder: Path, header: Callable[[Path], SafetensorsHeader | None]) -> dict[str, TensorInfo]:
    index = guarded_path(folder, INDEX)
    places = _places(index)
    tensors: dict[str, TensorInfo] = {}
    for shard in _shards(places, index):
        path = guarded_path(folder, shard)
        shard_header = header(path)
        if shard_header is None:
            count = sum(place == shard for place in places.values())
            raise InputError(
                f"the shard {shard!r} is missing; {count} tensors lie in it",
                where=str(folder),
                expected=f"every file of {INDEX}",
            )
        for name, info in _tensors(shard_header, path).items():
            if name in tensors:
                raise InputError(
                    f"tensor {name!r} is in two shards",
                    where=f"{tensors[name].file} and {path}",
                    expected="each tensor once",
                )
            if places.get(name) != shard:
                statement = "does not list it" if name not in places else f"says {places[name]!r}"
                raise InputError(f"tensor {name!r} lies in {shard!r}, but the index {statement}", where=str(index))
            tensors[name] = info
    missing = [name for name in places if name not in tensors]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"tensor {missing[0]!r}{more} is not in {places[missing[0]]!r}, where the index puts it", where=str(index)
        )
    return tensors


def _plain_name(place: object, index: Path) -> str:
    if not isinstance(place, str) or not PLAIN_NAME.fullmatch(place):
        raise InputError(
            f"this index names {place!r}", where=str(index), expected="plain names of .safetensors files beside it"
        )
    return place


def _tensors(header: SafetensorsHeader, path: Path) -> dict[str, TensorInfo]:
    for entry in header.entries.values():
        if entry.dtype not in DTYPES:
            raise unsupported_dtype(entry.name, entry.dtype, str(path))
        method = QUANTISED.get(entry.name.rpartition(".")[2])
        if method is not None:
            raise UnsupportedError(
                f"these weights are quantised ({method}): tensor {entry.name!r}",
                where=str(path),
                expected="float weights",
            )
    return {
        name: TensorInfo(entry.dtype_name, entry.shape, path, entry.start, entry.end)
        for name, entry in header.entries.items()
    }


def _nothing(folder: Path) -> InputError | UnsupportedError:
    others = sorted(path.name for pattern in OTHER_FORMATS for path in folder.glob(pattern))
    if others:
        return UnsupportedError(
            f"the weights are in {others[0]!r}, which is not safetensors",
            where=str(folder),
            expected=EXPECTED,
            hint=CONVERT,
        )
    tensors = sorted(path.name for path in folder.glob("*.safetensors"))
    if "adapter_model.safetensors" in tensors:
        return UnsupportedError(
            "this folder holds an adapter, not a model",
            where=str(folder),
            hint="merge it into its base model and save that",
        )
    if tensors:
        return InputError(f"found {', '.join(map(repr, tensors[:3]))}", where=str(folder), expected=EXPECTED)
    return InputError("this folder holds no weights", where=str(folder), expected=EXPECTED)


def no_tensor(name: str, names: Mapping[str, object], folder: Path) -> InputError:
    """The error about a tensor that is not there, with the nearest names."""
    close = get_close_matches(name, names, 3, 0.6)
    return InputError(
        f"there is no tensor {name!r}",
        where=str(folder),
        expected=", ".join(close) if close else f"one of its {len(names)} tensors",
    )


# Files that hold a checkpoint's weights as torch pickled them: `pytorch_model.bin`, or several named by an index.

PICKLED_SINGLE = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
PLAIN_PICKLED_NAME = re.compile(r"\w[\w.-]{0,200}\.bin", re.ASCII)
"""What an index may name."""


def pickled_shards(index: Path) -> list[str]:
    """The files that an index names, each once, by name. Raises InputError for one that is malformed or leads
    elsewhere."""
    places = read_object(index, what="a shard index", limit=INDEX_LIMIT).get("weight_map")
    names = set(places.values()) if isinstance(places, dict) and all(map(_plain, places.values())) else set()
    if not names:
        raise InputError(
            "this index does not say which files hold the tensors",
            where=str(index),
            expected="a weight_map: tensor names, each with the plain name of a .bin file beside it",
        )
    return sorted(names)


def _plain(name: object) -> bool:
    return isinstance(name, str) and PLAIN_PICKLED_NAME.fullmatch(name) is not None
