"""Writing weight files: seeded ones, and recognised ones under other names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attncli.inputs.seeded import embedding
from attncli.inputs.tensors import write_tensors
from attncli.models.layouts.recognise import ORIENTATION, SCALE, WeightFile
from attncli.models.layouts.stated_sizes import LayoutSizes
from attncli.models.layouts.writing import layout_tensors
from attncli.models.one_layer import Settings, seeded_weights
from attncli.models.vocabulary import TABLE, TOKENS, tokens_text

Weights = dict[str, np.ndarray[Any, Any]]
Metadata = dict[str, str]


def seeded_file(settings: Settings, seed: int, words: Sequence[str]) -> tuple[Weights, LayoutSizes, Metadata]:
    """Seeded weights by canonical name, their sizes, and what the file's metadata say.

    words: token texts whose seeded embeddings go along, each once; none for weights alone.
    """
    weights: Weights = dict(seeded_weights(settings, seed))
    facts = LayoutSizes(
        d_model=settings.d_model,
        heads=settings.heads,
        kv_heads=settings.kv_heads or settings.heads,
        d_k=settings.head_dim,
        d_v=settings.v_dim,
        bias=bool(settings.bias),
        output_projection=settings.projects,
        layer_norm=settings.layer_norm,
    )
    metadata = {"num_heads": str(settings.heads), "seed": str(seed)}
    if words:
        weights[TABLE] = embedding(seed, words, settings.d_model)
        metadata[TOKENS] = tokens_text(words)
    return weights, facts, metadata


def recognised_file(weight_file: WeightFile) -> tuple[Weights, LayoutSizes, Metadata]:
    """The same of a file that was recognised, so that it can be written again."""
    weights = dict(weight_file.weights)
    metadata = {"num_heads": str(weight_file.facts.heads)}
    if weight_file.seed is not None:
        metadata["seed"] = str(weight_file.seed)
    if weight_file.scale is not None:
        metadata[SCALE] = weight_file.scale.spelling
    if weight_file.vocabulary is not None:
        weights[TABLE] = weight_file.vocabulary.rows
        if weight_file.vocabulary.places is not None:
            metadata[TOKENS] = tokens_text(list(weight_file.vocabulary.places))
    return weights, weight_file.facts, metadata


def write_weight_file(path: Path, weights: Weights, facts: LayoutSizes, metadata: Metadata, *, layout: str) -> None:
    """Write canonical weights as .safetensors or .npz in a layout; the same content gives the same bytes.

    Raises UsageError for weights that do not fit the layout, AttnError for a place that cannot be written.
    """
    file_metadata = metadata | ({ORIENTATION: "in-out"} if layout == "matrices" else {})
    write_tensors(path, layout_tensors(weights, facts, layout), file_metadata)
