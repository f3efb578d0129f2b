"""Packages that add plugins, installed into a folder that is put on the path: a module, and what
pip would write beside it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

MODULE = Path(__file__).parent / "fixtures" / "attn_example.py"
ENTRY_POINTS = {
    "metrics": {"every_third": "attn_example:every_third"},
    "rules": {"vowels": "attn_example:vowels"},
    "families": {"example_bert": "attn_example:example_bert"},
    "commands": {"shout": "attn_example:shout"},
}
"""What the example adds, by kind and name."""


def install(
    folder: Path,
    entries: Mapping[str, Mapping[str, str]] = ENTRY_POINTS,
    package: str = "attn-example",
    version: str = "1.2",
) -> None:
    """Install a package that declares these entry points, with the example's module."""
    shutil.copy(MODULE, folder)
    facts = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [
        line
        for kind, names in entries.items()
        for line in (
            f"[attncli.{kind}]",
            *(f"{name} = {target}" for name, target in names.items()),
            "",
        )
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines))
