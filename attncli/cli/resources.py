"""What a command took: in documents, and for `--verbose`."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attncli.documents.parts import Resources
    from attncli.models.model import Model


def resources(model: Model, before: int, estimate: int) -> Resources:
    """`resources` of a document. before: bytes of weights read before the text ran; estimate: of its memory, in bytes.

    What a process took differs from run to run: it is told of checkpoints, whose size it shows. Documents of
    other weights are the same bytes each time.
    """
    from msgspec import UNSET

    from attncli.documents.parts import Resources
    from attncli.models.estimate import peak_memory

    return Resources(
        bytes_read=model.store.bytes_read() - before,
        memory_estimate=estimate,
        peak_memory=peak_memory() if model.identity.source == "checkpoint" else UNSET,
    )


def effort(models: Sequence[Model], start_time: float) -> str:
    """Weights read or drawn, backend, peak memory and seconds, in one line. start_time: of `perf_counter`, when the
    command began."""
    from attncli.draw.numbers import size_words
    from attncli.models.estimate import peak_memory

    parts = []
    for model in models:
        untrained = model.identity.source in ("seeded", "random")
        size = size_words(model.store.bytes_read())
        parts.append(f"{size} of weights drawn" if untrained else f"{size} of weights read")
        parts.append(f"{model.backend.name} {model.backend.dtype} on {model.backend.device}")
    peak = peak_memory()
    if peak is not None:
        parts.append(f"{size_words(peak)} of memory at the peak")
    return "; ".join((*parts, f"{perf_counter() - start_time:.2f} s"))
