"""What this machine and its limits allow a process: memory that is free, memory that was used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

UNKNOWN = 4 * 2**30
"""What is assumed to be free where the system does not say: 4 GiB."""
UNLIMITED = 2**60
"""Control groups without a limit say "max" or a number near 2**63; nothing real is above this."""


class Free(Struct, frozen=True):
    """Memory that may still be used. bytes: how much. source: what sets the limit, in words."""

    bytes: int
    source: str


def free_memory(root: Path = Path("/")) -> Free:
    """The smallest of: what the system has available without swapping, what the control group allows, RLIMIT_AS and
    RLIMIT_DATA.

    root: where /proc and /sys are, for tests.
    """
    limits = [Free(max(free.bytes, 0), free.source) for free in (*_system(root), *_groups(root), *_limits(root))]
    return min(limits, key=lambda free: free.bytes, default=Free(UNKNOWN, "an assumption: this system does not say"))


def peak_memory(root: Path = Path("/")) -> int | None:
    """The most memory that this process has had resident, in bytes, libraries included; None where the system does not
    say."""
    peak = _status(root).get("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return None

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def _system(root: Path) -> Iterator[Free]:
    available = _table(root / "proc/meminfo").get("MemAvailable")
    if available is not None:
        yield Free(available, "memory available on this machine")


def _groups(root: Path) -> Iterator[Free]:
    """The process's control groups and those above them, version 2 and 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, place = parts
        if controllers == "":
            base, limit, usage_file = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, usage_file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = base / place.lstrip("/")
        # inside a container the named group may be mounted as the root
        for group in (folder, *folder.parents) if folder.is_dir() else (base,):
            if not group.is_relative_to(base):
                break
            allowance, usage = _number(group / limit), _number(group / usage_file)
            if allowance is not None and usage is not None and allowance < UNLIMITED:
                # cached file pages count as used, but give way
                reclaimable = _table(group / "memory.stat", unit=1).get("inactive_file", 0)
                yield Free(allowance - usage + reclaimable, "the memory limit of this control group")


def _limits(root: Path) -> Iterator[Free]:
    try:
        import resource
    except ImportError:  # not a Unix
        return
    status = _status(root)
    for name, status_key, words in (
        ("RLIMIT_AS", "VmSize", "the limit on this process's address space"),
        ("RLIMIT_DATA", "VmData", "the limit on this process's data"),
    ):
        allowance, _ = resource.getrlimit(getattr(resource, name))
        if allowance != resource.RLIM_INFINITY and status_key in status:
            yield Free(allowance - status[status_key], words)


def _status(root: Path) -> dict[str, int]:
    return _table(root / "proc/self/status")


def _table(path: Path, unit: int = 1024) -> dict[str, int]:
    """Lines of "name: number kB" or "name number", in bytes; empty where the file cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = (line.replace(":", " ").split() for line in lines)
    return {
        line_words[0]: int(line_words[1]) * unit
        for line_words in words
        if len(line_words) > 1 and line_words[1].isdigit()
    }


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
