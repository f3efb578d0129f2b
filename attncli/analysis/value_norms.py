"""What a head moves: attention weights times the size of the vector that each key would add to the output.

‖A_ij · v_j · W_O‖ beside A_ij: a sink often carries almost nothing. Source: Kobayashi et al.,
Attention is not only a weight, 2020.
"""

from __future__ import annotations

import numpy as np

from attncli.analysis.visible_keys import Floats
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model


def sizes_by_query(model: Model, trace: LayerTrace) -> Floats:
    """‖v_j · W_O‖ of each head, query and key, [head, query, key], or one query for all: only those of global tokens
    meet values of their own. trace: as for `value_sizes`."""
    sizes = value_sizes(model, trace)[:, None, :]
    if "global_v" not in trace.stages:
        return sizes
    tokens = [token for token in model.spec.blocks[trace.layer].attention.own_global or () if token < sizes.shape[-1]]
    every = np.repeat(sizes, trace.stages["q"].shape[-2], 1)
    every[:, tokens] = value_sizes(model, trace, "global_v")[:, None, :]
    return every


def value_sizes(model: Model, trace: LayerTrace, stage: str = "v") -> Floats:
    """‖v_j · W_O‖ of each head and key, [head, key], float64; ‖v_j‖ where the model has no output projection.

    trace: with the stage v of all heads of its layer, or another that holds values. Biases of the projections are part
    of v, that of W_O is not.
    """
    backend, attention = model.backend, model.spec.blocks[trace.layer].attention
    v = backend.numpy(trace.stages[stage]).astype(np.float64)  # [kv, key, v_dim]
    output_weight = model.store.layer(backend, trace.layer)("attn.o.weight")
    if output_weight is None:
        sizes = np.linalg.norm(v, axis=-1)
        return sizes[np.arange(attention.heads) * len(v) // attention.heads]
    w_o = (
        backend.numpy(output_weight).astype(np.float64).reshape((-1, attention.heads, attention.v_dim))
    )  # [width, head, v_dim]
    norms = [
        np.linalg.norm(v[head * len(v) // attention.heads] @ w_o[:, head].T, axis=-1) for head in range(attention.heads)
    ]
    return np.stack(norms)


def shares(weights: Floats, sizes: Floats) -> Floats:
    """The share of each key in the total size that a query moves, [head, query, key]; rows sum to 1, or are 0.

    weights: [head, query, key]. sizes: the same, or of one query for all.
    """
    products = np.asarray(weights, np.float64) * sizes
    sums = products.sum(-1, keepdims=True)
    share_values: Floats = products / np.where(sums > 0, sums, 1.0)
    return share_values
