"""How far from float64 each family's weights are in float32, bfloat16 and float16, beside
transformers' own.

    python tests/benchmarks/accuracy.py [FAMILY ...]

Printed: both backends' distance over that of transformers in the same type (512 wide, 400 tokens,
three layers; see `far_from_float64`), and what is asked: at most 2 in float32, 1.2 in the others.
All families without a name. Needs the extra `transformers`.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from far_from_float64 import AS_FAR, checkpoint, distance, weights, weights_of_transformers

from attncli.models import model as models
from attncli.models.families import MODEL_TYPES


@contextmanager
def in_the_type_asked_for() -> Iterator[None]:
    """Within, nothing is computed in a wider type than is asked for."""
    usual = models.compute_dtype
    models.compute_dtype = lambda spec, tokens, dtype: dtype
    try:
        yield
    finally:
        models.compute_dtype = usual


def measure(family: str, folder: Path) -> str:
    """One family's line."""
    made = checkpoint(family, folder)
    exact = weights_of_transformers(made, "float64")
    told = []
    for dtype, most in AS_FAR.items():
        other = distance(weights_of_transformers(made, dtype), exact)
        with in_the_type_asked_for():
            ratios = [
                distance(weights(made, library, dtype), exact) / other
                for library in ("numpy", "torch")
            ]
        told.append(f"{ratios[0]:6.2f} {ratios[1]:6.2f} {' ' if max(ratios) <= most else '!'}")
    return "  ".join(told)


def main(families: list[str]) -> None:
    warnings.simplefilter("ignore")
    print(
        f"{'family':20} "
        + "  ".join(f"{dtype:>9} <= {most:g}" for dtype, most in AS_FAR.items())
        + "  (numpy, torch)"
    )
    for family in families or MODEL_TYPES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                told = measure(family, Path(folder))
            except Exception as error:  # what a config class of another library says of these sizes
                told = f"not measured: {str(error).splitlines()[0][:90]}"
        print(f"{family:20} {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
