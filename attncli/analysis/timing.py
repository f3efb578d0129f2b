"""What attention and its relatives take on this machine, measured: `attn cost --measure`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

import numpy as np

from attncli.analysis.cost import Sizes, variants
from attncli.analysis.documents.cost import Timing
from attncli.arrays.backend import ITEM, Array, Backend, choose, torch_is_installed
from attncli.errors import LimitError
from attncli.mechanism.attend import Rule, attend
from attncli.mechanism.mask import Causal, Everywhere, Mask, Window
from attncli.mechanism.random_streams import normal
from attncli.mechanism.streaming import ignore_block, stream

MOST_BYTES = 4 * 2**30
"""Dense scores with their copies may take this much."""
COPIES = 4
ENOUGH = 0.4
"""Seconds after which a run is not repeated again; at most `REPEATS` times."""
REPEATS = 7


def measure(sizes: Sizes, *, seed: int = 0, note: Callable[[str], None] = lambda _: None) -> list[Timing]:
    """Median times of one layer's attention on seeded q, k, v: dense, by row blocks, causal, window, a recurrent
    network, torch's fused.

    `ratio` is to the dense run of the same backend, `work_ratios` the same ratio of multiply-adds. One
    warm-up each. note: told what is being timed. Raises LimitError where the dense scores would not fit.
    """
    least_bytes = COPIES * sizes.heads * sizes.n**2 * ITEM[sizes.dtype]
    if least_bytes > MOST_BYTES:
        raise LimitError(
            f"dense attention over {sizes.n} tokens and {sizes.heads} heads takes about {least_bytes / 2**30:.1f} GiB",
            expected=f"at most {MOST_BYTES / 2**30:.0f} GiB to measure",
            hint="a smaller -n or fewer --num-heads",
        )
    work: dict[str, int] = {variant.name: variant.multiply_adds for variant in variants(sizes)}
    work_ratios = {"full": 1.0, "streamed": 1.0, "fused": 1.0} | {
        name: work[name] / work["full"] for name in ("causal", "window", "rnn")
    }
    timings = []
    for name in ("numpy", *(("torch",) if torch_is_installed() else ())):
        if name == "numpy" and sizes.dtype in ("bfloat16", "float16"):
            continue
        backend = choose(name, device=None, dtype=sizes.dtype)
        dense = 0.0
        for what, seconds, times in _measure_runs(backend, sizes, seed, note):
            dense = seconds if what == "full" else dense
            timings.append(
                Timing(
                    name=what,
                    backend=name,
                    seconds=seconds,
                    repeats=times,
                    ratio=seconds / dense,
                    computed=work_ratios[what],
                )
            )
    return timings


def _measure_runs(
    backend: Backend, sizes: Sizes, seed: int, note: Callable[[str], None]
) -> Iterator[tuple[str, float, int]]:
    for what, run_variant in _runs(backend, sizes, seed):
        note(f"timing {what} on {backend.name} …")
        run_variant()
        durations: list[float] = []
        while len(durations) < REPEATS and sum(durations) < ENOUGH:
            start = perf_counter()
            run_variant()
            durations.append(perf_counter() - start)
        yield what, median(durations), len(durations)


def _runs(backend: Backend, sizes: Sizes, seed: int) -> Iterator[tuple[str, Callable[[], object]]]:
    q, k, v = (
        backend.array(normal(seed, f"cost\0{name}", (sizes.heads, sizes.n, width)))
        for name, width in (("q", sizes.d_k), ("k", sizes.d_k), ("v", sizes.d_v))
    )

    def rule(mask: Mask) -> Rule:
        return Rule(scale=sizes.d_k**-0.5, mask=mask)

    def stream_mask(mask: Mask) -> Callable[[], None]:
        def run_stream() -> None:
            stream(backend, q, k, v, rule(mask), rows=sizes.rows, keep=(), on_block=ignore_block)

        return run_stream

    yield "full", lambda: attend(backend, q, k, v, rule(Everywhere()), keep=("weights",))
    yield "streamed", stream_mask(Everywhere())
    yield "causal", stream_mask(Causal())
    yield "window", stream_mask(Window(sizes.window - 1, 0))
    yield "rnn", _time_recurrent(backend, sizes, seed)
    if backend.name == "torch":
        from attncli.arrays.torch_backend import fused_attention

        yield "fused", lambda: fused_attention(q, k, v, scale=sizes.d_k**-0.5)


def _time_recurrent(backend: Backend, sizes: Sizes, seed: int) -> Callable[[], Array]:
    """h = tanh(W·x + U·h) over the tokens, one after the other."""
    width = sizes.d_model
    x = backend.array(normal(seed, "cost\0x", (sizes.n, width)))
    w, u = (backend.array(normal(seed, f"cost\0{name}", (width, width)) * np.float32(width**-0.5)) for name in "wu")

    def run_steps() -> Array:
        inputs = backend.matmul(x, w)
        state = backend.array(np.zeros((1, width), np.float32))
        for step in range(sizes.n):
            state = backend.tanh(inputs[step : step + 1] + backend.matmul(state, u))
        return state

    return run_steps
