"""How it is asked: one command per file, shared options in `options`, streams and exit codes in `output`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attncli.cli.output import Environment


def main(arguments: Sequence[str] | None = None, environment: Environment | None = None) -> int:
    """Run the command line and return its exit code; the entry point of the command `attn`.

    arguments: what follows `attn`; None for the process's own. environment: the streams and
    settings to use; None for the process's own.
    """
    asked = list(sys.argv[1:] if arguments is None else arguments)
    if asked in (["--version"], ["-V"]) and environment is None:
        # answered before Typer is imported: a version should cost no more than Python's own start
        from attncli import __version__

        sys.stdout.write(f"attn {__version__}\n")
        return 0
    if environment is None:
        # what is imported stays: looking for garbage among it all along takes a twentieth of a small run
        gc.set_threshold(100_000)
        # Must be said before NumPy loads. Jobs that repay a second thread go to torch, which has threads of its
        # own; in small ones a second BLAS thread waits for a busy core longer than it computes.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if not sys.warnoptions and not os.environ.get("ATTN_DEBUG"):
            import warnings

            # what libraries say about numbers that are too large is said by the documents themselves
            warnings.simplefilter("ignore")
    from attncli.cli.output import Environment, guarded

    ended = guarded(asked, environment or Environment.of_process())
    if environment is None:
        # the process ends here: looking for garbage in all that was imported would cost a tenth of its time
        gc.freeze()
    return ended
