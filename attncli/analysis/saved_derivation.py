"""The derivation of one query of a saved run: the stages that `--save` wrote, worked out again step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import UNSET

from attncli.analysis.derivation import agreement, steps_of
from attncli.analysis.document import heading_of
from attncli.analysis.documents.derivation import After, AttentionTopic, Matrices
from attncli.analysis.documents.run import RunDocument
from attncli.analysis.visible_keys import Floats
from attncli.errors import UnsupportedError

NEEDED = ("q", "k", "v", "raw", "scaled", "capped", "biased", "masked", "weights", "mixed")
LEAST = 0.999
"""A row that sums to less has a sink, which is not saved."""


def saved_derivation(
    tensors: Mapping[str, np.ndarray[Any, Any]], document: RunDocument, layer: int, head: int, query: int
) -> AttentionTopic:
    """`attn.explain/1`, topic "attention", from `layers.{layer}.{stage}` and `hidden.{layer}`. document: the run's.

    Raises UnsupportedError where a stage is missing, or a learned sink took a part of the row.
    """
    arrays = {name: tensors.get(f"layers.{layer}.{name}") for name in NEEDED}
    hidden = tensors.get(f"hidden.{layer}")
    scale = document.attention.scale
    missing = [name for name, array in arrays.items() if array is None]
    if missing or hidden is None or scale is None or document.attention.hashing is not UNSET:
        raise UnsupportedError(
            "this file does not hold what a derivation takes",
            expected="every stage of dense attention, as --save writes them",
        )
    stages = {name: np.asarray(array, np.float64) for name, array in arrays.items() if array is not None}
    heads = len(stages["q"])
    head_stages: dict[str, Floats] = {"hidden": np.asarray(hidden, np.float64)}
    for name, array in stages.items():
        place = head * len(array) // heads  # heads may share keys and values
        head_stages[name] = array[place : place + 1]
    row = float(head_stages["weights"][0, query].sum())
    if 0 < row < LEAST:
        raise UnsupportedError("a learned sink took a part of this row, and the file does not hold it")
    steps = steps_of(head_stages, scale, document.attention.softcap, None, query)
    out = tensors.get(f"layers.{layer}.out")
    return AttentionTopic(
        **heading_of(document),
        topic="attention",
        layer=layer,
        head=head,
        query=query,
        extra_keys=head_stages["k"].shape[-2] - len(document.tokens),
        rotated=document.attention.position.startswith("rope"),
        shapes=document.shapes,
        steps=steps,
        matrices=Matrices(
            scores=head_stages["masked"][0], weights=head_stages["weights"][0], output=head_stages["mixed"][0]
        ),
        after=UNSET if out is None else After(x=head_stages["hidden"][query], out=np.asarray(out, np.float64)[query]),
        agreement=agreement(steps, head_stages, query),
        empty_rows=document.empty_rows,
        warnings=document.warnings,
    )
