"""What all commands have in common: options in `declarations`, what they ask for in `request`, the
answer in `output`, exit codes in `border`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attncli.cli.environment import Environment


def main(arguments: Sequence[str] | None = None, environment: Environment | None = None) -> int:
    """Run one command line of `attn` and return its exit code.

    Args:
        arguments: What follows `attn`; None for the process's own.
        environment: The streams and settings to use; None for the process's own.

    Returns:
        The exit code: 0, or that of the error that was shown.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]) and environment is None and _print_version():
        return 0
    from attncli.cli.border import run_guarded
    from attncli.cli.environment import Environment

    if environment is not None:
        return run_guarded(words, environment)
    # what is imported stays: looking for garbage among it all along takes a twentieth of a small
    # run
    gc.set_threshold(100_000)
    # Must be said before NumPy loads. Jobs that repay a second thread go to torch, which has
    # threads of its own; in small ones a second BLAS thread waits for a busy core longer than it
    # computes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # torch's threads wait for each other thousands of times: spinning, they take the processor from
    # whom they wait for
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not sys.warnoptions and not os.environ.get("ATTN_DEBUG"):
        import warnings

        # what libraries say about numbers that are too large is said by the documents themselves
        warnings.simplefilter("ignore")
    from attncli.cli.border import handle_signals

    exit_code = run_guarded(words, Environment.of_process(), handle_signals)
    # the process ends here: looking for garbage in all that was imported would cost a tenth of its
    # time
    gc.freeze()
    return exit_code


def _print_version() -> bool:
    """Print the version before Typer is imported, for speed; returns whether it could be written. A
    failure is not reported here: the caller then goes on as usual, meets the failure again and
    reports it.
    """
    from attncli.version import __version__

    line = f"attn {__version__}\n".encode()
    try:
        return os.write(sys.stdout.fileno(), line) == len(line)
    except (OSError, ValueError, AttributeError):
        return False
