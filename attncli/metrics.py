"""Metrics of attention heads, to be called: `from attncli.metrics import entropy, measure`.

Each metric is an object that says how it is computed (`entropy.formula`, `entropy.says`,
`entropy.source`) and can be called: `entropy(weights, visible)` gives one number per head of
weights [..., query, key], NumPy's or torch's. `measure` computes several at once, each with the
rows it was taken over and what uniform attention would give; `measure_texts` those of many texts in
a model. `load_metrics("my.py")` runs a file of yours and gives its metrics, which go wherever a
metric goes.
"""

from attncli.measure.metric import (
    DEFAULT,
    METRICS,
    OFFSETS,
    Measured,
    Metric,
    band,
    confidence,
    confidence_beyond_first,
    diagonality,
    distance,
    duplicate_pattern,
    effective_keys,
    entropy,
    induction_pattern,
    measure,
    missing,
    next,
    normalised_entropy,
    previous,
    previous_pattern,
    punctuation,
    self,
    signed_distance,
    sink,
    special,
    strongest_link,
)  # fmt: skip
from attncli.measure.metric_file import load_metrics
from attncli.measure.text_metrics import measure_texts

__all__ = [
    "DEFAULT", "METRICS", "OFFSETS", "Measured", "Metric", "band", "confidence", "confidence_beyond_first",
    "diagonality", "distance", "duplicate_pattern", "effective_keys", "entropy", "induction_pattern", "load_metrics",
    "measure", "measure_texts", "missing", "next", "normalised_entropy", "previous", "previous_pattern", "punctuation",
    "self", "signed_distance", "sink", "special", "strongest_link",
]  # fmt: skip
