"""A model from a weight file: the one-layer model with the file's own weights and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from attncli.arrays.backend import Backend
from attncli.errors import UsageError
from attncli.inputs.token import Tokenizer
from attncli.mechanism.mask import Everywhere, Mask
from attncli.models.layouts.layout import Asked
from attncli.models.layouts.recognise import Recognised, read_weight_file
from attncli.models.model import Identity, Model
from attncli.models.one_layer import OneLayerStore, Settings, digest, spec_of


class Around(Struct, frozen=True):
    """What is not in a weight file and stands around its weights. Fields as in `Settings`.

    scale: None for the layout's own, 1/√d_k unless its class is known to use another.
    layer_norm: also switched on by a file that holds a norm. bias, output_projection: None, or
    what the file is required to hold. seed: of embeddings that the file does not hold; None for the file's own, or 0.
    embedding: vectors [token, d_model] of exactly the text that will run, or None.
    """

    residual: bool = False
    layer_norm: bool = False
    position: str = "none"
    scale: str | None = None
    softcap: float | None = None
    mask: Mask = field(default_factory=Everywhere)
    bias: bool | None = None
    output_projection: bool | None = None
    seed: int | None = None
    embedding: np.ndarray[Any, Any] | None = None


NOTHING_AROUND = Around()


def load_weights(
    path: Path, tokenizer: Tokenizer, backend: Backend, *, asked: Asked | None = None, around: Around = NOTHING_AROUND
) -> Model:
    """The model that a weight file holds. asked: sizes that the file may not tell, or must agree with.

    Raises InputError for a file that cannot be understood, UsageError where the options contradict it.
    """
    return model_of(read_weight_file(path, asked or Asked()), path.name, tokenizer, backend, around)


def model_of(
    found: Recognised, name: str, tokenizer: Tokenizer, backend: Backend, around: Around = NOTHING_AROUND
) -> Model:
    """The model of weights that were recognised. name: the file's, for the documents.

    Raises UsageError for options that contradict the file.
    """
    facts = found.facts
    for option, told, there in (
        ("bias", around.bias, facts.bias),
        ("output-projection", around.output_projection, facts.output_projection),
    ):
        if told not in (None, there):
            raise UsageError(
                f"--{'' if told else 'no-'}{option} contradicts the weight file, which has "
                f"{'some' if there else 'none'}",
                where=name,
                expected=f"no such option: the file decides (layout: {found.layout})",
            )
    settings = Settings(
        d_model=facts.d_model,
        heads=facts.heads,
        kv_heads=facts.kv_heads,
        d_k=facts.d_k,
        d_v=facts.d_v,
        bias=facts.bias,
        residual=around.residual,
        layer_norm=around.layer_norm or facts.layer_norm,
        output_projection=facts.output_projection,
        position=around.position,
        scale=around.scale or (found.scale.spelling if found.scale else "sqrt-dk"),
        softcap=around.softcap,
        mask=around.mask,
    )
    spec = spec_of(settings)
    seed = around.seed if around.seed is not None else found.seed or 0
    store = OneLayerStore(spec, found.weights, seed, around.embedding, found.vocabulary)
    notes = (found.scale.says, *found.notes) if found.scale and around.scale is None else found.notes
    drawn = (around.embedding is None and found.vocabulary is None) or around.position == "learned"
    identity = Identity(
        "file",
        name=name,
        family=None if found.canonical else found.layout,
        seed=seed if drawn or found.seed is not None else None,
        digest=digest(found.weights),
        layout=found.layout,
    )
    return Model(spec, store, tokenizer, backend, identity, warnings=notes)
