"""Running a scan: missing shards are computed, complete ones never again, except to verify them;
and who computes them.

Those are worker processes on this machine, each with pipes of its own, or a Ray cluster.
One process that dies takes nobody with it. Ray's actors hold the model; only shard numbers travel
(extra `ray`). Ray itself neither starts actors again nor retries: while a lost node is not yet
known to be lost, each try on it fails at once, and Ray's are used up in a moment. A shard whose
actor is lost is given to a new one, as with processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

import numpy as np
from msgspec import Struct, field

from attncli.arrays.numpy_backend import integers
from attncli.errors import AttnError, InputError, UnsupportedError, UsageError
from attncli.extras import install_command
from attncli.inputs.files import is_folder
from attncli.inputs.token import ignore
from attncli.language import message
from attncli.scan.document import ScanVerifyDocument, VerifiedShard
from attncli.scan.plan import ScanPlan
from attncli.scan.report import failures
from attncli.scan.shard_files import (
    ShardOutcome,
    ShardState,
    is_done,
    path_of,
    record_failure,
    remove_file,
    remove_leftovers,
)
from attncli.scan.statistics import UNIT
from attncli.scan.totals import Totals, read_committed, total
from attncli.scan.worker import Worker, machine
from attncli.scan.worker_process import ALLOCATION, STOP, failure_text, make_worker, use_one_thread
from attncli.version import __version__

TRIES = 3
"""Times that a shard may end its worker before it is given up."""


class Job(Struct, frozen=True):
    """What an engine needs to know to compute shards.

    folder: of the scan.
    model: the name or folder that workers load.
    part: written into temporary files' names.
    progress: called with the number of texts done since its last call, by any worker; with 0 when a
        shard begins.
    on_work: called with the work done since its last call, in records of the corpus.
    """

    plan: ScanPlan
    folder: Path
    model: str
    part: str
    progress: Callable[[int], None]
    on_work: Callable[[float], None] = ignore


class Engine(Protocol):
    """What computes shards, such as processes on this machine or a Ray cluster. Each shard's files
    are in the scan's folder when it has ended well."""

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        """Compute the shards and yield each once, in any order. Closing the iterator ends all work
        at once.
        """


LAST_WORDS = 400
"""Characters of a dead worker's last words."""


class _Process:
    """A running worker process.

    errors: the file that its standard error goes to.
    shard: the number of the shard that it computes now, None while idle.
    buffer: the beginning of a line that was read from its output, whose end has not come yet.
    """

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self.process = process
        self.errors = errors
        self.shard: int | None = None
        self.buffer = b""

    def say(self, word: str) -> None:
        """Send one line to the worker: the corpus's paths at first, then a shard's number or
        `STOP`. A worker that has died is no error here."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # that it has died is noticed where its output is read
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()


class LocalWorkers:
    """The engine that runs up to `workers` processes on this machine, one thread each."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        """Compute the shards, yielding the outcome of each. A shard whose worker dies is computed
        again, `TRIES` times in all."""
        remove_leftovers(job.folder, job.part)
        waiting = list(shards)[::-1]  # the next shard is taken from the end, where `pop` is fast
        deaths = Counter[int]()  # by shard, how many workers have died over it
        selector = selectors.DefaultSelector()
        running: list[_Process] = []
        try:
            while waiting or any(worker.shard is not None for worker in running):
                # as many workers as there may be, but none without a shard to compute
                while waiting and len(running) < min(self.workers, len(waiting) + len(running)):
                    worker = self._start(job)
                    running.append(worker)
                    assert worker.process.stdout is not None
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

                for worker in running:
                    if worker.shard is None and waiting:
                        worker.shard = waiting.pop()
                        worker.say(str(worker.shard))

                # workers that wrote something or ended; after a second without any, none
                for key, _ in selector.select(timeout=1.0):
                    worker = key.data
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        yield from self._read_answers(job, worker, data)
                        continue
                    # no data: the worker has closed its output, which it does when it ends
                    selector.unregister(key.fileobj)
                    running.remove(worker)
                    outcome = self._report_death(worker, deaths)
                    if outcome is not None:
                        yield outcome
                    elif worker.shard is not None:  # it is tried again, by a new worker
                        waiting.append(worker.shard)

            for worker in running:
                worker.say(STOP)
            for worker in running:
                worker.process.wait()
        finally:  # after an error, or where the caller stops early, workers still run
            for worker in running:
                with contextlib.suppress(OSError):
                    worker.process.kill()
                worker.process.wait()
                worker.errors.close()
            selector.close()
            remove_leftovers(job.folder, job.part)

    def _start(self, job: Job) -> _Process:
        """Start a worker process, and send it the paths of all files that the plan names: of the
        corpus, of metrics and of rules."""
        errors = _open_last_words(job.folder)
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "attncli.scan.worker_process",
                str(job.folder),
                job.model,
                job.part,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**ALLOCATION, **os.environ},
        )
        worker = _Process(process, errors)
        worker.say(json.dumps(job.plan.places))
        return worker

    def _read_answers(self, job: Job, worker: _Process, data: bytes) -> Iterator[ShardOutcome]:
        """Yield the outcome of each shard that a worker's output reports as finished; texts and
        work that it reports as done go to `job.progress` and `job.on_work`.

        data: the bytes just read from the output, which holds one JSON object a line.
        """
        # what follows the last line's end is the beginning of a line
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            answer: dict[str, Any] = json.loads(line)
            if "done" in answer:
                job.progress(answer["done"])
                continue
            if "work" in answer:
                job.on_work(answer["work"])
                continue
            # any other answer says that the worker's shard has ended
            worker.shard = None
            reason = answer.get("failed", "")
            texts = answer.get("texts", 0)
            tokens = answer.get("tokens", 0)
            yield ShardOutcome(answer["shard"], reason, texts, tokens)

    def _report_death(self, worker: _Process, deaths: Counter[int]) -> ShardOutcome | None:
        """The failed outcome of a dead worker's shard; None where the worker had no shard, or the
        shard may be tried again.

        deaths: by shard, how many workers have died over it; this one is added.
        """
        status = worker.process.wait()
        # what it wrote to standard error; its last line names the exception that ended it
        with worker.errors as errors:
            errors.seek(0)
            error_lines = errors.read().decode("utf-8", "replace").strip().splitlines()
        if worker.shard is None:
            return None
        deaths[worker.shard] += 1
        if deaths[worker.shard] < TRIES:
            return None
        if status < 0:  # as subprocess tells that a signal ended it
            cause = f"signal {-status}"
        else:
            cause = f"exit {status}"
        if error_lines:
            last_words = f": {error_lines[-1][:LAST_WORDS]}"
        else:
            last_words = ""
        reason = message(
            "its worker died {tries} times ({cause}{last})",
            tries=TRIES,
            cause=cause,
            last=last_words,
        )
        return ShardOutcome(worker.shard, reason)


def _open_last_words(folder: Path) -> IO[bytes]:
    """A new temporary file for a worker's standard error, in the scan's folder, or elsewhere where
    that cannot be written.

    It has no name: whatever ends this process leaves none behind. Raises AttnError where there is
    no room for one.
    """
    for place in (folder, None):  # None: the system's folder for temporary files
        with contextlib.suppress(OSError):
            return TemporaryFile(dir=place)
    raise AttnError(
        "no file can be made for what a worker says", where=str(folder), expected="room on the disk"
    )


LOCAL = "local"
ANSWER = 10.0
"""Seconds within which a cluster's address must answer."""
STORE = 80 * 2**20
"""Bytes of the object store of a cluster that is started here: only numbers of shards go through
it.
"""


class Actor:
    """Computes shards inside a Ray worker process; opens the model with the first shard."""

    def __init__(self, folder: str, model: str, part: str, places: Sequence[str]) -> None:
        """Prepare the process; Ray calls this in it.

        folder: the scan's.
        part: which part of the scan this is.
        places: where the plan's files are on this machine.
        """
        use_one_thread()
        # These variables steer how memory is allocated. The process has begun, so that the C
        # library has read its own; oneDNN still reads those that are for it.
        os.environ.update(ALLOCATION)
        remove_leftovers(Path(folder), part)
        self._worker_arguments = (folder, model, part, places)
        self._worker: Any = None

    def shard(self, number: int) -> tuple[int, str, int, int]:
        """Compute shard `number` and write its files. Returns the fields of a `ShardOutcome`:
        (number, why it failed or "" for done, texts, tokens).
        """
        try:
            if self._worker is None:
                self._worker = make_worker(*self._worker_arguments)
            counts = self._worker.shard(number)
        except Exception as error:  # a shard that fails is an outcome, and ends no worker
            return number, failure_text(error), 0, 0
        return number, "", counts["texts"], counts["tokens"]


class RayCluster:
    """The engine that runs actors (worker processes) of a Ray cluster.

    address: of a running one, "auto" for the one that this machine belongs to, "local" to start one
        here.
    workers: how many actors, at most one per processor but one; 0 for as many.
    note: called with a message where they are fewer than was asked for.
    """

    def __init__(self, address: str, workers: int, note: Callable[[str], None] = ignore) -> None:
        self.address = address
        self.workers = workers
        self.note = note

    def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        """Compute the shards on the cluster, yielding the outcome of each. Raises UnsupportedError
        without ray, AttnError where no cluster answers."""
        # ray reports its use to its makers, and hides GPUs from actors that ask for none, unless
        # these are set before it is imported
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise UnsupportedError(
                "the engine ray needs ray", hint=install_command("ray")
            ) from error
        _check_answers(self.address)
        # how a cluster is started here: small, since only numbers of shards go through its store
        local = {"include_dashboard": False, "object_store_memory": STORE}
        if self.address == LOCAL:
            cluster: dict[str, Any] = local
        else:
            cluster = {"address": self.address}
        try:
            ray.init(log_to_driver=False, logging_level="error", configure_logging=False, **cluster)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _no_answer_error(self.address, error) from error
        try:
            yield from self._run_shards(ray, job, shards)
        finally:
            ray.shutdown()
            remove_leftovers(job.folder, job.part)

    def _run_shards(self, ray: Any, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
        """Compute the shards by actors of the connected cluster, yielding the outcome of each.

        ray: the module `ray`, initialised.
        """
        # one processor is left to this process
        free_processors = max(int(ray.cluster_resources().get("CPU", 1)) - 1, 1)
        if self.workers > free_processors:
            fewer = message(
                "{workers:,} workers are more than the cluster has processors to spare: {free:,} at"
                " most",
                workers=self.workers,
                free=free_processors,
            )
            self.note(fewer)
        # without `--workers` (0) as many as are free
        count = min(self.workers or free_processors, len(shards), free_processors)
        # Ray starts no lost actor again by itself: tries are counted below
        remote = ray.remote(max_restarts=0, max_task_retries=0, num_cpus=1)(Actor)
        if job.plan.device.startswith("cuda"):
            remote = remote.options(num_gpus=1)
        # actors have other working folders than this process: a relative path would mislead them
        if is_folder(Path(job.model)):
            model = str(Path(job.model).absolute())
        else:
            model = job.model
        worker_arguments = (str(job.folder.absolute()), model, job.part, job.plan.places)
        waiting = deque(shards)
        running: dict[Any, tuple[Any, int]] = {}  # by Ray's handle of a task, (actor, shard)
        deaths: dict[int, int] = defaultdict(int)  # by shard, how many actors were lost over it

        def start_next(actor: Any) -> None:
            """Have an actor compute the next waiting shard, and note it in `running`."""
            shard = waiting.popleft()
            running[actor.shard.remote(shard)] = actor, shard

        for _ in range(count):
            start_next(remote.remote(*worker_arguments))
        while running:
            (finished_task,), _ = ray.wait(list(running), num_returns=1)
            actor, shard = running.pop(finished_task)
            try:
                outcome = ShardOutcome(*ray.get(finished_task))
            except ray.exceptions.RayError as error:
                ray.kill(actor)  # it may only be out of reach
                actor = remote.remote(*worker_arguments)
                deaths[shard] += 1
                if deaths[shard] < TRIES:
                    waiting.append(shard)
                    start_next(actor)
                    continue
                kind = type(error).__name__
                reason = message("its worker died {tries} times ({type})", tries=TRIES, type=kind)
                outcome = ShardOutcome(shard, reason)
            job.progress(outcome.texts)
            job.on_work(sum(part.count for part in job.plan.shards[shard]))
            yield outcome
            if waiting:
                start_next(actor)
            else:  # frees its processor, which a new actor in place of a lost one may wait for
                ray.kill(actor)


def _check_answers(address: str) -> None:
    """Raise AttnError where nobody listens at the host and port of a cluster's address, on which
    Ray itself would wait for minutes. An address without a port, such as "auto", is not checked.
    """
    # "ray://10.0.0.1:10001" and "10.0.0.1:6379" both end in host:port
    _, _, host_and_port = address.rpartition("://")
    host, _, port = host_and_port.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:  # OverflowError: a port above 65535
        raise _no_answer_error(address, error) from error


def _no_answer_error(address: str, error: Exception) -> AttnError:
    """The AttnError, returned and not raised, that no Ray cluster answers at this address."""
    what = message(
        "no Ray cluster answers at {address}: {error}", address=repr(address), error=error
    )
    return AttnError(what, hint="ray start --head, or --engine ray:local")


class ScanPart(Struct, frozen=True):
    """One of `count` parts of a scan that run side by side, each computing its own shards; `number`
    counts from 1.
    """

    number: int = 1
    count: int = 1

    @property
    def name(self) -> str:
        """The part as "number-of-count", as names of temporary files have it."""
        return f"{self.number}-of-{self.count}"

    def shards(self, every: Sequence[int]) -> list[int]:
        """The shards that this part computes, out of the numbers of all: part 2 of 8 has shards 1,
        9, 17 and so on."""
        return [shard for shard in every if shard % self.count == self.number - 1]


WHOLE = ScanPart()
"""A scan that is not split."""

MOST_PARTS = 100_000
"""Parts that a scan may be split into."""
LONGEST_PART = len(str(MOST_PARTS))
"""Digits of the number of a part: longer ones are not read as numbers, which would take long."""


def parse_part(text: str) -> ScanPart:
    """The part that `--part` writes as "2/8": the second of eight. Raises UsageError."""
    number, slash, count = text.partition("/")
    # isdecimal alone is true of digits of other scripts, too
    are_numbers = all(
        digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_PART
        for digits in (number, count)
    )
    if not (slash and are_numbers and 1 <= int(number) <= int(count) <= MOST_PARTS):
        raise UsageError(
            "{option} is {value}",
            expected="I/N with I from 1 to N, such as 2/8",
            option="--part",
            value=repr(text),
        )
    return ScanPart(int(number), int(count))


class Outcome(Struct, frozen=True, eq=False):
    """What one run of a scan did.

    totals: the sums over all shards of the scan; None where other parts still have shards to do.
    failed_shards: the shards given up in this run.
    elsewhere: the shards that other parts of the scan, or earlier runs, gave up.
    computed_count: how many shards this run computed.
    recomputed_shards: the shards whose files could not be read and were computed again.
    """

    totals: Totals | None
    failed_shards: list[ShardOutcome] = field(default_factory=list)
    elsewhere: list[ShardOutcome] = field(default_factory=list)
    computed_count: int = 0
    recomputed_shards: list[int] = field(default_factory=list)


def run(
    plan: ScanPlan,
    folder: Path,
    model: str,
    engine: Engine,
    *,
    part: ScanPart = WHOLE,
    progress: Callable[[int], None] = ignore,
    on_work: Callable[[float], None] = ignore,
    on_shard: Callable[[ShardOutcome], None] = ignore,
) -> Outcome:
    """Compute the missing shards of one part of a scan, then add up all shards if no part has any
    left to do.

    progress, on_work: called with texts, and with work, as they are done, like those of `Job`.
    on_shard: called with the outcome of each shard when it has ended.
    """
    done_shards = [
        shard for shard in part.shards(range(len(plan.shards))) if is_done(folder, shard)
    ]
    # shards whose files cannot be read, which adding them up finds out
    broken = sorted(total(plan, folder, done_shards).broken)
    for shard in broken:  # without its file the shard is missing, and so is computed again
        remove_file(path_of(folder, shard, "state.npz"))

    missing_shards = remaining_shards(plan, folder, part)
    failed_shards = []
    computed_count = 0
    if missing_shards:
        job = Job(plan, folder, model, part.name, progress, on_work)
        for outcome in engine.run(job, missing_shards):
            if outcome.reason:  # why it failed; "" for a shard that was computed
                failed_shards.append(outcome)
                record_failure(folder, outcome.shard, outcome.reason, part.name)
            else:
                computed_count += 1
                remove_file(path_of(folder, outcome.shard, "failed.txt"))
            on_shard(outcome)

    failed_numbers = {outcome.shard for outcome in failed_shards}
    elsewhere = [outcome for outcome in failures(folder) if outcome.shard not in failed_numbers]
    all_failed = failed_numbers | {outcome.shard for outcome in elsewhere}
    # of all parts, the shards that still have to be computed; failed ones are left out of totals
    unfinished = [shard for shard in remaining_shards(plan, folder) if shard not in all_failed]
    totals = None
    if not unfinished:
        totals = total(plan, folder)
    return Outcome(totals, failed_shards, elsewhere, computed_count, recomputed_shards=broken)


def remaining_shards(plan: ScanPlan, folder: Path, part: ScanPart = WHOLE) -> list[int]:
    """The numbers of a part's shards that are not done, ascending."""
    return [shard for shard in part.shards(range(len(plan.shards))) if not is_done(folder, shard)]


# Computing shards again: the files of a scan must hold what its plan gives.

TOLERANCE = 1e-5
"""What the mean of a metric may differ by between kinds of machine, times 1 plus its size."""


def verify_document(plan: ScanPlan, folder: Path, worker: Worker, count: int) -> ScanVerifyDocument:
    """Compute `count` finished shards of a scan again, drawn by its seed, and return the
    `attn.scan_verify/1` document that compares them with their files.

    Raises InputError where nothing is done.
    """
    done_shards = [shard for shard in range(len(plan.shards)) if is_done(folder, shard)]
    if not done_shards:
        raise InputError(
            "nothing of this scan is done",
            where=str(folder),
            expected="a scan with finished shards",
        )
    own_machine = machine(worker.model)
    shard_results = []
    same = True  # whether all these shards were computed by this kind of machine
    for shard in draw_shards(done_shards, count, plan.seed):
        committed_state = read_committed(plan, folder, shard)
        same &= committed_state.facts["machine"] == own_machine
        new_state, _ = worker.compute(shard)  # its tables are not compared
        shard_results.append(_compare_shard(shard, committed_state, new_state))
    warnings: list[str] = []
    if not same:
        other_machine = message(
            "another kind of machine computed these shards: bits may differ, numbers may not"
        )
        warnings.append(other_machine)
    return ScanVerifyDocument(
        version=__version__,
        plan=plan.digest,
        shards=shard_results,
        same_machine=same,
        tolerance=TOLERANCE,
        # on the same kind of machine every bit must be the same
        passed=all(
            result.counts_equal
            and (result.same_bits or (not same and result.difference <= TOLERANCE))
            for result in shard_results
        ),
        warnings=warnings,
    )


def draw_shards(done_shards: Sequence[int], count: int, seed: int) -> list[int]:
    """The numbers of `count` finished shards, drawn at random by the seed, ascending; all of them
    where there are no more than `count`.
    """
    if count >= len(done_shards):
        return list(done_shards)
    order = np.argsort(integers(seed, "verify", len(done_shards)), kind="stable")[:count]
    return sorted(done_shards[int(index)] for index in order)


def _compare_shard(shard: int, committed_state: ShardState, new_state: ShardState) -> VerifiedShard:
    """Compare a shard's file with the same shard computed again: whether all bits and the counts of
    texts are the same, and how far a mean differs at most, relative to 1 + |mean|."""
    same = committed_state.arrays.keys() == new_state.arrays.keys() and all(
        np.array_equal(array, new_state.arrays[name])
        for name, array in committed_state.arrays.items()
    )
    texts = np.maximum(committed_state.arrays["texts"], 1)  # 1 where there are none: the sum is 0
    # sums are stored as whole multiples of 1 / UNIT
    means = [
        state.arrays["value"].astype(np.float64) / UNIT / texts
        for state in (committed_state, new_state)
    ]
    committed_means, new_means = means
    differences = np.abs(committed_means - new_means) / (1 + np.abs(committed_means))
    return VerifiedShard(
        shard=shard,
        same_bits=same,
        difference=float(differences.max(initial=0.0)),
        # a shard from before unknown words were counted has no count of them
        counts_equal=committed_state.facts["counts"].items() <= new_state.facts["counts"].items(),
    )
