"""What a command took, for `--verbose`."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attncli.models.model import Model


def effort(models: Sequence[Model], started: float) -> str:
    """Weights read or drawn, backend, peak memory and seconds, in one line. started: of `perf_counter`, when the command began."""
    from attncli.models.machine import peak_memory
    from attncli.render.numbers import size_words

    parts = []
    for model in models:
        drawn = model.identity.source in ("seeded", "random")
        parts.append(f"{size_words(model.store.bytes_read())} of weights {'drawn' if drawn else 'read'}")
        parts.append(f"{model.backend.name} {model.backend.dtype} on {model.backend.device}")
    peak = peak_memory()
    if peak is not None:
        parts.append(f"{size_words(peak)} of memory at the peak")
    return "; ".join((*parts, f"{perf_counter() - started:.2f} s"))
