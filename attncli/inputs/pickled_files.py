"""Files that hold a checkpoint's weights as torch pickled them: `pytorch_model.bin`, or several named by an index."""

from __future__ import annotations

import re
from pathlib import Path

from attncli.errors import InputError
from attncli.inputs.shards import INDEX_LIMIT
from attncli.inputs.strict_json import read_object

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
