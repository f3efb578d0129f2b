"""Free and used memory, from made-up /proc and /sys trees and from this process."""

import resource
import sys
from pathlib import Path

import pytest
from processes import finish

from attncli.models.estimate import UNKNOWN, free_memory, peak_memory

MEMINFO = "MemTotal:  2000 kB\nMemAvailable:  1000 kB\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected", "source"),
    [
        ({}, UNKNOWN, "assumption"),
        ({"proc/meminfo": MEMINFO}, 1_024_000, "machine"),
        ({"proc/meminfo": "MemTotal: 5 kB\ngarbage\n"}, UNKNOWN, "assumption"),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "900000\n",
                "sys/fs/cgroup/a/memory.current": "500000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 400000\ninactive_file 60000\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "500000\n",
            },
            460_000,
            "control group",
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "4:memory:/not/mounted\n3:cpu:/\nnonsense\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "700000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "800000\n",
            },
            0,
            "control group",
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "4:memory:/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "1\n",
            },
            1_024_000,
            "machine",
        ),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, files: dict[str, str], expected: int, source: str
) -> None:
    found = free_memory(tree(tmp_path, files))
    assert (found.bytes, source in found.source) == (expected, True)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    ("name", "words"), [("RLIMIT_AS", "address space"), ("RLIMIT_DATA", "data")]
)
def test_limits_of_the_process_count(name: str, words: str) -> None:
    program = (
        "import resource\nfrom attncli.models.estimate import free_memory\n"
        f"resource.setrlimit(resource.{name}, (400 * 2**20,) * 2)\nfound = free_memory()\nprint(found.bytes, "
        f"found.source)"
    )
    ran = finish([sys.executable, "-c", program])
    amount, _, source = ran.stdout.partition(" ")
    assert 0 < int(amount) < 400 * 2**20
    assert words in source


def test_peak_memory_is_of_this_process_and_grows(tmp_path: Path) -> None:
    program = "from attncli.models.estimate import peak_memory\nbefore = peak_memory()\n"
    program += "held = bytearray(50_000_000)\nprint(before, peak_memory())"
    ran = finish([sys.executable, "-c", program])
    before, after = (int(part) for part in ran.stdout.split())
    assert 2_000_000 < before < 200_000_000
    assert after - before >= 45_000_000
    unit = 1 if sys.platform == "darwin" else 1024
    known = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]
    found = peak_memory(tmp_path)
    known.append(
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    )  # another thread may take some meanwhile
    assert known[0] <= found <= known[1]
