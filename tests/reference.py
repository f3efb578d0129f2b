"""Write the reference of the Python names from their docstrings, with pdoc: python -W error
tests/reference.py FOLDER

Run with `-W error::UserWarning`, a name that does not resolve or a docstring that cannot be read is
an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import attncli

PUBLIC = "attncli.metrics", "attncli.topics"
"""The public modules besides the package itself."""


def write(folder: Path) -> None:
    """Write one page for the package and one for each public module."""
    import pdoc

    for name in (
        attncli.__all__
    ):  # pdoc looks names up without asking the package, which imports them when first used
        setattr(attncli, name, getattr(attncli, name))
    pdoc.render.configure(docformat="google")
    inside = "|".join(f"{name.removeprefix('attncli.')}$" for name in PUBLIC)
    pdoc.pdoc("attncli", rf"!attncli\.(?!{inside})", output_directory=folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
