"""What `attn tensors` runs on long arrays, every metric and the strongest links, beside torch's
fused attention on the same arrays.

python tests/benchmarks/streaming.py [time] [memory] [window]

time: 16,384 tokens × 4 heads × width 64, causal and not, the least of five and their ratio. memory:
the peak of a process at 4k to 32k tokens, and 131,072 tokens of one head under a limit of 2 GiB.
window: the time at 16k to 64k tokens under a window of 256 keys, which should double with n.
"""

from __future__ import annotations

import subprocess
import sys
import time

THREADS = 2
RUNS = 5
LIMIT = 2 << 30
HEADS, WIDTH, TOP = 4, 64, 8


def arrays(heads: int, count: int):
    """Seeded q, k, v [head, token, width]."""
    import torch

    torch.set_num_threads(THREADS)
    chance = torch.Generator().manual_seed(0)
    return tuple(torch.randn(heads, count, WIDTH, generator=chance) for _ in range(3))


def streamed(given, mask) -> float:
    """Seconds of what `attn tensors` runs: outputs, every metric that needs no token, and the
    strongest links.
    """
    from attncli.arrays.torch_backend import TorchBackend
    from attncli.features.tensors.compute import CapturedHeads
    from attncli.mechanism.attend import Rule

    q, k, v = given
    begun = time.perf_counter()
    backend = TorchBackend()
    counted = CapturedHeads(backend, k.shape[1], range(len(q)), TOP, offset=0)
    counted.stream_rows(backend, (q, k, v), Rule(WIDTH**-0.5, mask=mask), lambda share: None)
    counted.metrics()
    return time.perf_counter() - begun


def fused(given, *, causal: bool) -> float:
    """Seconds of torch's fused attention, outputs only."""
    import torch

    q, k, v = (array[None] for array in given[:3])
    begun = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return time.perf_counter() - begun


def compare_times(count: int = 16_384) -> None:
    """Print the least seconds of alternating runs, and their ratio, which is to be at most 3."""
    from attncli.mechanism.mask import Causal, Everywhere

    given = arrays(HEADS, count)
    print(
        f"{count:,} tokens × {HEADS} heads × width {WIDTH}, {THREADS} threads, the least of {RUNS} alternating runs"
    )
    print(f"{'mask':10} {'fused':>9} {'streamed':>9} {'ratio':>6}")
    for name, mask in (("none", Everywhere()), ("causal", Causal())):
        fused(given, causal=name == "causal")
        pairs = [
            (fused(given, causal=name == "causal"), streamed(given, mask)) for _ in range(RUNS)
        ]
        plain, ours = (min(times) for times in zip(*pairs, strict=True))
        print(f"{name:10} {plain:8.2f}s {ours:8.2f}s {ours / plain:6.2f}", flush=True)


def once(heads: int, count: int, window: int | None) -> None:
    """One streamed run; prints its seconds and the process's peak and starting memory in MiB."""
    import resource

    from attncli.mechanism.mask import AllOf, Causal, Window

    given = arrays(heads, count)
    mask = Causal() if window is None else AllOf((Causal(), Window(window - 1, 0)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if count > 100_000:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    seconds = streamed(given, mask)
    print(
        f"{seconds:.2f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} {before:.0f}"
    )


def apart(heads: int, count: int, window: int | None = None) -> tuple[float, float, float]:
    """`once` in a process of its own: seconds, peak MiB, MiB before."""
    command = [sys.executable, __file__, "once", str(heads), str(count), str(window or 0)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(told[0]), float(told[1]), float(told[2])


def compare_memory() -> None:
    """Print the peak memory by length; it should grow by as much as the inputs and outputs do."""
    print(
        f"\n{'tokens':>8} {'heads':>5} {'seconds':>8} {'before':>9} {'peak':>9} {'above, per token':>17}   causal"
    )
    for heads, count in (
        (HEADS, 4096),
        (HEADS, 8192),
        (HEADS, 16_384),
        (HEADS, 32_768),
        (1, 131_072),
    ):
        seconds, peak, before = apart(heads, count)
        print(
            f"{count:8,} {heads:5} {seconds:8.2f} {before:5.0f} MiB {peak:5.0f} MiB {(peak - before) * 1024 / count:13.2f} KiB"
        )


def compare_windows() -> None:
    """Print the time under a window by length: O(n·w)."""
    print(f"\n{'tokens':>8} {'seconds':>8}   window of 256 keys, {HEADS} heads")
    for count in (16_384, 32_768, 65_536):
        print(f"{count:8,} {apart(HEADS, count, 256)[0]:8.2f}")


if __name__ == "__main__":
    asked = sys.argv[1:] or ["time", "memory", "window"]
    if asked[0] == "once":
        once(int(asked[1]), int(asked[2]), int(asked[3]) or None)
    else:
        for name, run in (
            ("time", compare_times),
            ("memory", compare_memory),
            ("window", compare_windows),
        ):
            if name in asked:
                run()
