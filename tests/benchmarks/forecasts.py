"""What each measurement over pairs, doses and words says that it will take, beside what it takes.

    OMP_NUM_THREADS=1 python tests/benchmarks/forecasts.py [MODEL] [unkept] [NAME…]

MODEL: smollm2 where none is named. unkept: weights are read in each pass, as under a small
`--max-memory`. CPU seconds of one thread and memory beyond the loaded model, beside what `on_cost`
is told before the work starts, which is for two cores. The ratio in brackets is in units of the
first line's, which says how fast this machine is. Aim: within a factor of 2.5 both ways where more
than a second is taken, in these units and beside half of the CPU seconds; and no more memory than
told but for 64 MiB.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attncli
from attncli.features.regions.compute import each_region
from attncli.features.retrieval.compute import retrieval
from attncli.inputs.regions import Region

PAIRS = 2
TASK = "indirect-object"
TEXT = "After John and Mary went to the store, John gave a drink to"
LONGER = " ".join(["The code of the red door is 7 and nobody knows it."] * 12) + " The code is"
WITHIN = 2.5
CORES = 2
"""Cores that forecasts are for."""
SLACK = 64 << 20

Told = Callable[[Any, int], None]


def modes(model: Any) -> dict[str, Callable[[Told], Any]]:
    """What is measured, by name; each calls back with what it will take."""
    of_pairs: dict[str, Any] = {"file": TASK, "count": PAIRS}
    of_text: dict[str, Any] = {"target": "Mary", "versus": "John", "baseline": "none"}
    regions = [Region("a", tuple(range(4))), Region("b", tuple(range(5, 9)))]
    return {
        "ablate": lambda told: attncli.ablate(model, TEXT, on_cost=told, **of_text),
        "ablate --hold": lambda told: attncli.ablate(
            model, TEXT, hold="attention", on_cost=told, **of_text
        ),
        "ablate --each-region --hold": lambda told: each_region(
            model, TEXT, regions, target="Mary", hold="attention", on_cost=told
        ),
        "ablate --pairs": lambda told: attncli.ablate_pairs(model, on_cost=told, **of_pairs),
        "ablate --pairs --hold": lambda told: attncli.ablate_pairs(
            model, hold="attention", on_cost=told, **of_pairs
        ),
        "ablate --pairs --layer 5": lambda told: attncli.ablate_pairs(
            model, layers=[5], on_cost=told, **of_pairs
        ),
        "patch --pairs": lambda told: attncli.patch_pairs(model, on_cost=told, **of_pairs),
        "patch --pairs --into": lambda told: attncli.patch_pairs(
            model, into=[f"L{3 * len(model.spec.blocks) // 4}H3:q"], on_cost=told, **of_pairs
        ),
        "logits --pairs": lambda told: attncli.logits_pairs(model, on_cost=told, **of_pairs),
        "why --pairs": lambda told: attncli.why_pairs(model, on_cost=told, **of_pairs),
        "find --pairs": lambda told: attncli.find_pairs(model, on_cost=told, **of_pairs),
        "find --pairs --effect": lambda told: attncli.find_pairs(
            model, effect=True, on_cost=told, **of_pairs
        ),
        "next --each": lambda told: attncli.next_word(model, LONGER, each_token=True, on_cost=told),
        "next --without": lambda told: attncli.next_word(
            model, LONGER, without=[(5, 1)], on_cost=told
        ),
        "next --weigh": lambda told: attncli.next_word(model, LONGER, weigh="7=×4", on_cost=told),
        "logits --by word": lambda told: attncli.logits(
            model, LONGER, target="7", by="word", on_cost=told
        ),
        "heads --retrieval": lambda told: retrieval(model, lengths=[64], on_cost=told),
        "heads --roles": lambda told: attncli.heads(model, TEXT, roles=True, on_cost=told),
    }


def memory(field: str) -> int:
    """Bytes of this process in memory now ("VmRSS"), or at most since the last reset ("VmHWM")."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if field in line
    )
    return int(line.split()[1]) * 1024


def measured(work: Callable[[Told], Any]) -> tuple[float, int, float, int]:
    """Seconds and bytes told, and taken."""
    told: list[tuple[float, int]] = []
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
    before = memory("VmRSS")
    begun = time.process_time()
    work(lambda expected, _: told.append((expected.seconds, expected.peak - expected.resident)))
    taken = time.process_time() - begun
    seconds, size = told[0]
    return seconds, size, taken, memory("VmHWM") - before


def main() -> None:
    """Print a line for each measurement, and end with 1 where an aim is missed."""
    name, *chosen = sys.argv[1:] or ["smollm2"]
    unkept = "unkept" in chosen
    chosen = [mode for mode in chosen if mode != "unkept"]
    model = attncli.load(name, hold=not unkept)
    # weights that are held once are no part of what a measurement takes
    attncli.ablate(model, TEXT, heads=[0], baseline="none", target="Mary")
    unit = None
    missed = []
    for mode, work in modes(model).items():
        if unit is not None and chosen and mode not in chosen:
            continue
        seconds, size, taken, grown = measured(work)
        unit = unit or seconds / taken
        ratio = seconds / taken / unit
        on_two_cores = seconds / (taken / CORES)
        outside = any(not 1 / WITHIN < each < WITHIN for each in (ratio, on_two_cores))
        if (taken > 1 and outside) or grown > size + SLACK:
            missed.append(mode)
        print(
            f"{mode:28} told {seconds:6.2f} s, taken {taken:6.2f} s ({ratio:4.1f}; {on_two_cores:4.1f})  "
            f"told {size / 2**20:6.0f} MiB, grown {grown / 2**20:6.0f} MiB",
            flush=True,
        )
    print("missed:", ", ".join(missed) or "none")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
