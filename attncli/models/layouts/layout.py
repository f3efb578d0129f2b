"""`Layout`: one way in which a file may spell an attention, as data and a function that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from attncli.models.layouts.named_tensors import Array, Tensors

Orientation = Literal["in-out", "out-in"]
"""How a matrix is stored: [in, out] is multiplied as X·W, [out, in] as X·Wᵀ (`nn.Linear`)."""


class OwnScale(Struct, frozen=True):
    """The scale of a class that does not use 1/√d_k. spelling: as `--scale` takes it. description: what to tell the
    reader."""

    spelling: str
    description: str


class LayoutWeights(Struct, frozen=True):
    """What a layout gives.

    weights: canonical names (`q.weight` …), each weight [out, in]. heads: how many the tensors
    tell of; None where they do not. scale: the class's own, where it is not 1/√d_k.
    notes: what the reader should know, in sentences. either_way: whether its matrices may be stored in both ways.
    """

    weights: dict[str, Array]
    heads: int | None = None
    scale: OwnScale | None = None
    notes: tuple[str, ...] = ()
    either_way: bool = False


class LayoutRequest(Struct, frozen=True):
    """What the asker says of a file: sizes it may not tell, or must agree with. None: nothing said.

    orientation: how its matrices are stored, where that differs from their layout's custom.
    prefix: take only the tensors whose name begins so.
    """

    d_model: int | None = None
    heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    orientation: Orientation | None = None
    prefix: str = ""


EMPTY_REQUEST = LayoutRequest()


class Layout(Struct, frozen=True):
    """description: the layout in words. needs: the tensors it must have, by plain name, with the role each plays
    (`q.weight`; several roles are apart by spaces). may: those it can have; a role "" is not used."""

    description: str
    needs: Mapping[str, str]
    may: Mapping[str, str]
    read: Callable[[Tensors, LayoutRequest], LayoutWeights]

    @property
    def knows(self) -> dict[str, str]:
        """Every tensor of the layout with its role."""
        return {**COMMON, **self.may, **self.needs}


COMMON = {name: name for name in ("norm.weight", "norm.bias", "embedding.weight", "bias_k", "bias_v")}
"""Tensors that may stand beside the projections in every layout."""
