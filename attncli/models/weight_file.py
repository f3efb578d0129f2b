"""Weight files: a one-layer model with a file's own weights and sizes, and writing such files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Backend
from attncli.errors import UsageError
from attncli.inputs.tensors import write_tensors
from attncli.inputs.token import Tokenizer
from attncli.mechanism.random_streams import embedding
from attncli.models.layouts.layout import LayoutRequest, LayoutSizes
from attncli.models.layouts.recognise import ORIENTATION, SCALE, WeightFile, read_weight_file
from attncli.models.layouts.writing import layout_tensors
from attncli.models.model import Identity, Model
from attncli.models.one_layer import OneLayerStore, Settings, digest, seeded_weights, spec_of
from attncli.models.vocabulary import TABLE, TOKENS, tokens_text

PLAIN = Settings()


def load_weights(
    path: Path,
    tokenizer: Tokenizer,
    backend: Backend,
    *,
    request: LayoutRequest | None = None,
    settings: Settings = PLAIN,
    seed: int | None = None,
    embedding: np.ndarray[Any, Any] | None = None,
) -> Model:
    """The model that a weight file holds. request: sizes that the file may not tell, or must agree with.

    The others as in `model_of`. Raises InputError for a file that cannot be understood, UsageError where the options
    contradict it.
    """
    weight_file = read_weight_file(path, request or LayoutRequest())
    return model_of(weight_file, path.name, tokenizer, backend, settings, seed=seed, embedding=embedding)


def model_of(
    weight_file: WeightFile,
    name: str,
    tokenizer: Tokenizer,
    backend: Backend,
    settings: Settings = PLAIN,
    *,
    seed: int | None = None,
    embedding: np.ndarray[Any, Any] | None = None,
) -> Model:
    """The model of weights that were recognised. name: the file's, for the documents.

    settings: what stands around the weights; its sizes are the file's, a file that holds a norm switches layer_norm on,
    and bias and output_projection are what the file is required to hold. seed: of embeddings that the file does not
    hold; None for the file's own, or 0. embedding: vectors [token, d_model] of exactly the text that will run, or None.
    Raises UsageError for options that contradict the file.
    """
    facts = weight_file.facts
    for option, option_value, there in (
        ("bias", settings.bias, facts.bias),
        ("output-projection", settings.output_projection, facts.output_projection),
    ):
        if option_value not in (None, there):
            raise UsageError(
                f"--{'' if option_value else 'no-'}{option} contradicts the weight file, which has "
                f"{'some' if there else 'none'}",
                where=name,
                expected=f"no such option: the file decides (layout: {weight_file.layout})",
            )
    file_settings = replace(
        settings,
        d_model=facts.d_model,
        heads=facts.heads,
        kv_heads=facts.kv_heads,
        d_k=facts.d_k,
        d_v=facts.d_v,
        bias=facts.bias,
        layer_norm=settings.layer_norm or facts.layer_norm,
        output_projection=facts.output_projection,
        scale=settings.scale or (weight_file.scale.spelling if weight_file.scale else None),
    )
    spec = spec_of(file_settings)
    seed = seed if seed is not None else weight_file.seed or 0
    store = OneLayerStore(spec, weight_file.weights, seed, embedding, weight_file.vocabulary)
    notes = (
        (weight_file.scale.description, *weight_file.notes)
        if weight_file.scale and settings.scale is None
        else weight_file.notes
    )
    draws_embeddings = (embedding is None and weight_file.vocabulary is None) or settings.position == "learned"
    identity = Identity(
        "file",
        name=name,
        family=None if weight_file.canonical else weight_file.layout,
        seed=seed if draws_embeddings or weight_file.seed is not None else None,
        digest=digest(weight_file.weights),
        layout=weight_file.layout,
    )
    return Model(spec, store, tokenizer, backend, identity, warnings=notes)


# Writing weight files: seeded ones, and recognised ones under other names.

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
