"""What each head adds to the layer's output: concat(O₁ … O_h)·W_O taken apart into Σ_h O_h·W_O^h."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from attncli.analysis.visible_keys import Floats
from attncli.models.model import Model


class HeadShares(Struct, frozen=True):
    """shares: each head's output times its rows of W_O, [head, width]. bias: b_O, [width], None without one."""

    shares: Floats
    bias: Floats | None


def head_shares(model: Model, layer: int, outputs: Floats) -> HeadShares | None:
    """The shares of one query. outputs: its row of every head's A·V, [head, v_dim].

    None where there is no W_O, or where a model's weights are not to be had by role.
    """
    if not model.own_layers:
        return None
    weights = model.store.layer(model.backend, layer)
    matrix, bias = weights("attn.o.weight"), weights("attn.o.bias")
    if matrix is None:
        return None
    projection = np.asarray(model.backend.numpy(matrix), np.float64)  # [width, head · v_dim]
    heads, dim = outputs.shape
    if projection.shape[1] != heads * dim:
        return None
    shares = np.einsum("hd,whd->hw", outputs, projection.reshape(len(projection), heads, dim))
    return HeadShares(shares, None if bias is None else np.asarray(model.backend.numpy(bias), np.float64))
