"""What the input X is the sum of: embeddings E, and the position vectors P that are added to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from attncli.arrays.backend import numpy_backend
from attncli.documents import Numbers
from attncli.inputs.token import Token
from attncli.models.model import Model
from attncli.models.one_layer import OneLayerStore


def split_embedding(model: Model, tokens: Sequence[Token]) -> tuple[Numbers, Numbers] | None:
    """E and P, both [token, d_model] in float64, where positions are added to weights of our own; None elsewhere: a
    checkpoint may scale and norm them too."""
    embedding = model.spec.embedding
    if not isinstance(model.store, OneLayerStore) or embedding.positions is None:
        return None
    bare = replace(model.store, spec=replace(model.spec, embedding=replace(embedding, positions=None)))
    exact = numpy_backend("float64")
    without_positions, with_positions = (
        np.asarray(exact.numpy(store.embed(exact, tokens))) for store in (bare, model.store)
    )
    return without_positions, with_positions - without_positions
