"""In words, what two compared sides differ in."""

from __future__ import annotations

from collections.abc import Sequence

SIDES_DIFFER = {
    "text": "the text",
    "tokens": "how the text is split into tokens",
    "weights": "the weights",
    "layer": "the layer",
    "head": "the head",
    "scale": "the scale of the scores",
    "softcap": "the soft cap",
    "mask": "the mask",
    "position": "the position encoding",
    "backend": "what computed",
    "dtype": "the type of the numbers",
    "compute_dtype": "the type that was computed in",
    "hashing": "hash attention",
}
"""In words, what two sides may differ in."""
UNTOLD = ("mask_says",)
"""Differences that another one says already."""


def difference_names(names: Sequence[str]) -> list[str]:
    """The differences that a comparison names by its document's keys, each once; that there is none, where none is."""
    differences = list(dict.fromkeys(SIDES_DIFFER.get(name, name) for name in names if name not in UNTOLD))
    return differences or ["nothing that was asked for"]
