"""W_Q, W_K, W_V and W_O as the texts write them: what a row x is multiplied with from the right."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from attncli.analysis.documents.declaration import Numbers
from attncli.analysis.documents.run import RunDocument
from attncli.models.model import Model

OF_HEAD = ("W_Q", "W_K", "W_V")
"""The matrices that each head has of its own."""


def head_projections(model: Model, layer: int, head: int) -> dict[str, Numbers]:
    """A head's W_Q and W_K, [width, dim], and W_V, [width, v_dim]: heads that share keys and values share these.

    Empty where a model's weights are not to be had by role; without those that its layers do not have as one matrix.
    """
    if not model.own_layers:
        return {}
    spec = model.spec.blocks[layer].attention
    weights = model.store.layer(model.backend, layer)
    matrices = {}
    for name, role, dim in zip(OF_HEAD, "qkv", (spec.head_dim, spec.head_dim, spec.v_dim), strict=True):
        matrix = weights(f"attn.{role}.weight")
        heads = spec.heads if role == "q" else spec.kv_heads
        if matrix is not None and matrix.shape[0] == heads * dim:
            first = head * heads // spec.heads * dim
            matrices[name] = np.asarray(model.backend.numpy(matrix), np.float64)[first : first + dim].T
    return matrices


def layer_projections(model: Model, layer: int) -> dict[str, Numbers]:
    """A layer's W_O, [head · v_dim, width]; empty without one, or where it is not to be had."""
    matrix = model.store.layer(model.backend, layer)("attn.o.weight") if model.own_layers else None
    return {} if matrix is None else {"W_O": np.asarray(model.backend.numpy(matrix), np.float64).T}


def with_projections(document: RunDocument, model: Model) -> RunDocument:
    """The document with the matrices of every layer and head that it holds."""
    layers = [
        replace(
            layer,
            projections=layer_projections(model, layer.layer),
            heads=[replace(head, projections=head_projections(model, layer.layer, head.head)) for head in layer.heads],
        )
        for layer in document.layers
    ]
    return replace(document, layers=layers)
