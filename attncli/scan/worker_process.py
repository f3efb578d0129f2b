"""A worker as a process of its own: shard numbers come in by a pipe, what became of them goes out
by another.

`python -m attncli.scan.worker_process FOLDER MODEL PART`. The first line that comes in tells where
the files of the corpus are. When the pipe in ends without the word `stop`, the parent has died, and
so does this process, in the middle of whatever it does.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from attncli.inputs.files import system_text

# What keeps a worker's memory level: it runs for hours, and its arrays are of every size.
#
# Source: the GNU C library's manual, "Malloc Tunable Parameters" and "Replacing malloc";
# malloc_trim(3); oneDNN's guide, "Primitive Cache".

ALLOCATION = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
}
"""A worker's environment: arrays come from one heap, which `MemoryTrimmer` trims. Mapping the
larger ones anew each time, as would give them back at once, costs a quarter more time. oneDNN
compiles an activation for each shape of a batch, in a millisecond, and would keep a thousand of
them, between the arrays."""
SPARE = 64 * 2**20
"""Bytes that a worker may hold beyond what it needs before they are given back. Trimming takes
milliseconds.
"""


class MemoryTrimmer:
    """Returns free memory of this process to the system, each time the process has grown by `SPARE`
    bytes.
    """

    def __init__(self) -> None:
        self._least = 0

    def trim_if_grown(self) -> None:
        """Return free memory to the system if the process has grown by `SPARE` bytes since it was
        smallest, or since the last time; cheap, to be called often."""
        resident = _resident()
        if resident > self._least + SPARE:
            _trim()
            self._least = _resident()
        else:
            self._least = min(self._least, resident)


def _resident() -> int:
    """The resident memory of this process in bytes; 0 where /proc does not tell. Source:
    proc_pid_statm(5).
    """
    fields = system_text(Path("/proc/self/statm")).split()
    if len(fields) < 2:
        return 0
    return int(fields[1]) * mmap.PAGESIZE


def _trim() -> None:
    """Return free memory to the system; does nothing where the C library has no malloc_trim."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


STOP = "stop"


def main(arguments: list[str]) -> int:
    """The worker process: compute the shards whose numbers come in on standard input, one a line,
    until `STOP`, answering in lines of JSON; returns the exit code. The first line holds the
    present paths of the files that the scan's plan names.

    arguments: the scan's folder, the model's name, and which part of the scan this is.
    """
    # Ctrl-C reaches the parent, too, which then ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_one_thread()
    folder, model, part = arguments
    word_queue: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, word_queue), daemon=True).start()

    # answers go to the standard output, and nothing else: what libraries print goes to the errors
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    file_paths = json.loads(word_queue.get())  # a list, in the order of `ScanPlan.places`
    # made for the first shard, so that a model that fails to load is told as that shard's failure
    worker = None
    while (word := word_queue.get()) != STOP:
        shard = int(word)
        try:
            if worker is None:
                worker = make_worker(folder, model, part, file_paths)
            counts = worker.shard(
                shard,
                lambda texts: _say(answers, {"done": texts}),
                lambda records: _say(answers, {"work": records}),
            )
            _say(answers, {"shard": shard, "texts": counts["texts"], "tokens": counts["tokens"]})
        except MemoryError:  # a new process may have room: the parent starts one
            raise
        except Exception as error:
            _say(answers, {"shard": shard, "failed": failure_text(error)})
    return 0


def use_one_thread() -> None:
    """Set environment variables so that libraries imported from now on compute with one thread."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def make_worker(folder: str, model: str, part: str, places: Sequence[str]) -> Any:
    """A `Worker` for the scan in a folder, with its model loaded, on one thread.

    places: the present paths of the plan's files, in the order of `ScanPlan.places`: the corpus,
        files of metrics, files of rules.
    """
    from attncli.models.load import load
    from attncli.scan.plan import read_plan, with_files_at
    from attncli.scan.worker import Worker

    on_one_thread()
    plan = with_files_at(read_plan(Path(folder)), places)
    loaded_model = load(
        model,
        backend="torch",
        device=plan.device,
        dtype=plan.dtype,
        adapters=plan.model.adapters,
        note=None,
    )
    return Worker(
        plan, Path(folder), loaded_model, part=part, between=MemoryTrimmer().trim_if_grown
    )


def on_one_thread() -> None:
    """Set the imported libraries to one thread: more are no faster side by side, and sums would
    depend on their number."""
    from attncli.arrays.torch_backend import one_thread

    one_thread()


def failure_text(error: Exception) -> str:
    """Why a shard failed, in one line: of an error of attn's own its message and place, of any
    other its type as well."""
    from attncli.errors import AttnError

    if isinstance(error, AttnError):
        if error.where:
            return f"{error.what} ({error.where})"
        return error.what
    return f"{type(error).__name__}: {error}"


def _listen(stream: TextIO, word_queue: SimpleQueue[str]) -> None:
    """Put each line that comes in into the queue, until `STOP`; if the input ends without it, the
    parent has died, and this process exits."""
    for line in stream:
        word_queue.put(line.strip())
        if line.strip() == STOP:
            return
    os._exit(1)


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    """Write an answer to the parent as a line of JSON."""
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
