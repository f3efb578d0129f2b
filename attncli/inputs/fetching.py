"""`Fetch`: how a model that is not on this machine yet is fetched."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

from msgspec import Struct

from attncli.inputs.download_bar import Watch


class Parts(Enum):
    """What is wanted of a model."""

    WHOLE = auto()
    HEADERS = auto()  # what says what it is: no weights, but how many and of which types
    TOKENIZER = auto()


class Fetch(Struct, frozen=True):
    """What is wanted of a model, and who is asked and told on the way.

    note: told what is being fetched; None for silence, of progress bars too. accept: handed the folder once its
    config.json is there and before anything large is fetched, to raise for a model that is of no use. watch: told how
    much of each file is there, in place of progress bars of the hub's own library.
    """

    note: Callable[[str], None] | None = lambda message: None
    accept: Callable[[Path], object] = lambda folder: None
    parts: Parts = Parts.WHOLE
    watch: Watch | None = None


WHOLE = Fetch()
"""A whole model, told to nobody, with progress bars on a terminal."""
