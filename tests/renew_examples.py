"""Runs every `$ …` block of the README and the guide and writes what it prints into the page:
`python renew_examples.py`, or of some pages alone: `python renew_examples.py importance lessons`.

An example whose output still matches (a line `…` stands for any number of lines) stays as it is
written, as does one about a model that is not installed. Read the change before it is committed:
what a page says is what a person reads.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

# as the tests run them: what a model learns depends on the order in which numbers are added
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from test_examples import BLOCK, PAGES, can_run, pattern, printed, without_rounding


def renewed(block: str, folder: Path) -> str:
    """A console block with its outputs as they are now."""
    found = ""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        if not can_run(command):  # what it would print is an error
            found += f"$ {part}"
            continue
        shown = printed(command, folder)
        kept = (
            output
            if output.strip()
            and re.fullmatch(pattern(without_rounding(output)), without_rounding(shown))
            else f"{shown}\n"
            if shown
            else ""
        )
        found += f"$ {command}\n{kept}"
    return found


def main() -> None:
    names = sys.argv[1:]
    for page in PAGES:
        if names and page.stem not in names:
            continue
        text = page.read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            new = BLOCK.sub(lambda found: f"```console\n{renewed(found[1], Path(folder))}```", text)
        if new != text:
            page.write_text(new, "utf-8")
            sys.stdout.write(f"{page.name} renewed\n")


if __name__ == "__main__":
    main()
