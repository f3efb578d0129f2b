"""The residual connection and the norm, worked out for one query: topic "residual" of `attn.explain/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import UNSET

from attncli.analysis.document import header
from attncli.analysis.documents.layer_topics import NormStep, ResidualTopic
from attncli.analysis.visible_keys import Floats
from attncli.analysis.words import unknown_notes
from attncli.errors import UnsupportedError
from attncli.inputs.token import Token
from attncli.mechanism.norm import Norm
from attncli.mechanism.spec import Place
from attncli.models.model import Model


def residual_document(model: Model, text: str, tokens: Sequence[Token], *, layer: int, query: int) -> ResidualTopic:
    """x, what attention adds, their sum, and the norm beside it: that of the sum, or, in a model that norms first, that
    of x.

    Raises UnsupportedError for a layer without a residual of its own, or whose weights are not to be had.
    """
    block = model.spec.blocks[layer]
    trace = next(iter(model.trace(tokens, layers=[layer], keep=("weights",))))
    if "sum" not in trace.stages:
        reason = "adds attention and feed-forward at once" if block.parallel else "has no residual"
        raise UnsupportedError(f"layer {layer} {reason}", expected="x + attention on its own", hint="--residual")
    stages = {
        name: np.asarray(model.backend.numpy(array), np.float64)
        for name, array in trace.stages.items()
        if name in ("hidden", "sum", "norm")
    }
    x, after = np.asarray(model.backend.numpy(trace.before), np.float64)[query], stages["sum"][query]
    norm = _norm(model, layer, block.norms, x, after)
    apart = 0.0
    if norm is not None:
        normed_row = stages["norm"][query] if norm.place == "attn.sum" else stages["hidden"][query]
        apart = float(np.abs(norm.normed - normed_row).max(initial=0.0))
    weights = trace.stages.get("weights")
    lengths = float(np.linalg.norm(x) * np.linalg.norm(after))
    return ResidualTopic(
        **header(model, text, tokens),
        topic="residual",
        layer=layer,
        query=query,
        width=len(x),
        x=x,
        out=after - x,
        sum=after,
        weights=UNSET
        if weights is None
        else np.asarray(model.backend.numpy(weights), np.float64)[:, query].max(axis=0),
        cosine=float(x @ after) / lengths if lengths > 0 else 0.0,
        norm=norm,
        agreement=apart,
        warnings=[*model.warnings, *unknown_notes(text, tokens)],
    )


def _norm(model: Model, layer: int, norms: Mapping[Place, Norm], x: Floats, after: Floats) -> NormStep | None:
    """The norm of the sum, or the one before the attention; None without either, or where its weights are not to be
    had."""
    place: Place = "attn.sum" if "attn.sum" in norms else "attn.in"
    if place not in norms or not model.own_layers:
        return None
    norm, vector = norms[place], after if place == "attn.sum" else x
    weights = model.store.layer(model.backend, layer)
    weight, bias = (weights(f"{place}.{name}") for name in ("weight", "bias"))
    mean = float(vector.mean())
    centred_vector = vector - mean if norm.kind == "layer" else vector
    variance = float((centred_vector**2).mean())
    scaled = centred_vector / np.sqrt(variance + norm.eps)
    normed = scaled
    if weight is not None and norm.affine:
        factor = np.asarray(model.backend.numpy(weight), np.float64)
        normed = normed * (factor + 1.0 if norm.unit_offset else factor)
    if bias is not None and norm.affine:
        normed = normed + np.asarray(model.backend.numpy(bias), np.float64)
    return NormStep(
        place=place,
        kind=norm.kind,
        eps=norm.eps,
        vector=vector,
        mean=mean,
        variance=variance,
        scaled=scaled,
        normed=normed,
    )
