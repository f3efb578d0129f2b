"""Models that packages of the Python index hold: where they are installed, and files in parts joined.

A package is found and never imported. A file that several packages hold in parts is joined once in
`attn`'s own cache folder, and held against its sha256 there as anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from attncli.errors import AttnError, InputError
from attncli.inputs.files import atomic_writer, is_file, open_regular
from attncli.inputs.hub import own_cache_folder, remember_digest
from attncli.language import message

PIECE = 2**22
"""Bytes that are copied at a time."""


class Package(Struct, frozen=True):
    """A model in one installed package, or in parts in several.

    modules: names that the packages are imported by, in the order of the parts.
    path: the model in each of them, a folder in Hugging Face layout or a file; `{part:02}` stands
        for the number of a part.
    file: the name of the GGUF file; "" for a folder.
    digest: the file's sha256 in hexadecimal, bytes: its size.
    terms: under which the model may be used, where it is no free licence.
    """

    modules: tuple[str, ...]
    path: str
    file: str = ""
    digest: str = ""
    bytes: int = 0
    terms: str = ""

    def places(self) -> list[Path] | None:
        """The path of the model's folder, or of its part, in each installed package; None where one
        of the packages is missing."""
        places = []
        for part, module in enumerate(self.modules):
            place = package_place(module, self.path.format(part=part))
            if place is None:
                return None
            places.append(place)
        return places

    def joined_path(self, variables: Mapping[str, str]) -> Path:
        """The path in attn's cache folder at which the parts of this file are, or would be, joined."""
        return own_cache_folder(variables) / "models" / self.file

    def installed_path(self, variables: Mapping[str, str]) -> Path | None:
        """The path of the model, which can be read at once; None where packages are missing, or
        their parts are not joined yet. Nothing is checked.
        """
        if len(self.modules) > 1:
            joined = self.joined_path(variables)
            return joined if is_file(joined) else None
        places = self.places()
        if places is None:
            return None
        return places[0]

    def is_here(self, variables: Mapping[str, str]) -> bool:
        """Whether the model can be read without the network, its parts joined or not."""
        return self.installed_path(variables) is not None or self.places() is not None


def package_place(module: str, path: str) -> Path | None:
    """A file or a model's folder in an installed package, which is not imported; None where there is
    no such package or nothing of that name in it."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    # the package's folder; of a namespace package, which may have several, the first
    place = Path(next(iter(spec.submodule_search_locations))) / path
    if is_file(place) or is_file(place / "config.json"):
        return place
    return None


def join_parts(
    package: Package,
    parts: list[Path],
    *,
    variables: Mapping[str, str],
    note: Callable[[str], None] | None,
    hint: str,
) -> Path:
    """Join the parts of a file in `attn`'s cache folder and return the path of the whole file.

    parts: in their order.
    note: called with a sentence that says so and names the model's terms; None for silence.
    hint: what to try where the parts do not have the sha256 that `package` states.

    Raises:
        InputError: For parts that do not make the file with the known sha256; nothing is left then.
        AttnError: For a folder that cannot be written, a full disk.
    """
    from hashlib import sha256  # loads OpenSSL, which files that are remembered do without

    target = package.joined_path(variables)
    total = sha256()
    if note is not None:
        note(_joining_note(package, len(parts), target))
    with suppress(OSError):  # a folder that cannot be made is an error of the writer below
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        # `alone`: it takes its place at once, whatever else the command writes
        with atomic_writer(target, alone=True) as stream:
            for part in parts:
                source, _size = open_regular(part, what="a part of a model", limit=package.bytes)
                with source:
                    while piece := source.read(PIECE):
                        total.update(piece)
                        stream.write(piece)
            if total.hexdigest() != package.digest:
                raise InputError(
                    "the {count} parts make a file with the sha256 {digest}",
                    where=str(parts[0].parent),
                    expected=package.digest,
                    hint=hint,
                    count=len(parts),
                    digest=total.hexdigest(),
                )
    except InputError:  # of the parts themselves
        raise
    except AttnError as error:  # the folder cannot be written: suggest another one
        elsewhere = message("XDG_CACHE_HOME=FOLDER before the command")
        raise AttnError(
            error.what, where=error.where, expected=error.expected, hint=elsewhere
        ) from error
    remember_digest(target, package.digest, variables)
    return target


def _joining_note(package: Package, parts: int, target: Path) -> str:
    """The note that the parts of a model are being joined: where, how large they are, and under
    which terms the model stands.
    """
    size = f"{package.bytes / 1e6:.0f} MB"
    if not package.terms:
        return message(
            "joining {count} parts in {place}, {size}, once", count=parts, place=target, size=size
        )
    return message(
        "joining {count} parts in {place}, {size}, once; the model stands under {terms}",
        count=parts,
        place=target,
        size=size,
        terms=package.terms,
    )
