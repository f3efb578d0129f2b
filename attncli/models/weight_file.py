"""A model from a weight file: the one-layer model with the file's own weights and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import Backend
from attncli.errors import UsageError
from attncli.inputs.token import Tokenizer
from attncli.models.layouts.layout import LayoutRequest
from attncli.models.layouts.recognise import WeightFile, read_weight_file
from attncli.models.model import Identity, Model
from attncli.models.one_layer import OneLayerStore, Settings, digest, spec_of

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
