"""transformers, the library, in a version that what is built on it was tested with."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attncli.errors import UnsupportedError

LEAST = (5, 23)
"""The oldest version; pyproject.toml asks for the same."""


def import_transformers() -> Any:
    """The imported module, quiet. Raises UnsupportedError where it is missing or too old."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version_text = version("transformers")
    except PackageNotFoundError as error:
        raise UnsupportedError("transformers is not installed", hint="pip install 'attn[transformers]'") from error
    if tuple(int(part) for part in version_text.split(".")[:2] if part.isdigit()) < LEAST:
        least = ".".join(map(str, LEAST))
        raise UnsupportedError(
            f"transformers {version_text} is installed",
            expected=f"{least} or newer",
            hint="pip install --upgrade 'attn[transformers]'",
        )
    library = import_module("transformers")
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library


def knows_family(family: str) -> bool:
    """Whether the installed library's own lists name this `model_type`; False where it is not installed.

    Reads their text and imports nothing, which would take seconds.
    """
    library_spec = find_spec("transformers")
    if library_spec is None or library_spec.origin is None:
        return False
    lists = sorted((Path(library_spec.origin).parent / "models" / "auto").glob("*.py"))
    needle = f'"{family}"'.encode(errors="replace")
    return not lists or any(needle in path.read_bytes() for path in lists)
