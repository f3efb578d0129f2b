"""Recognising a weight file by its tensors' names, and what it then says about the attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attncli.errors import InputError, UsageError
from attncli.inputs.tensors import tensor_file
from attncli.models.layouts.layout import (
    EMPTY_REQUEST,
    Array,
    Layout,
    LayoutRequest,
    LayoutSizes,
    OwnScale,
    Tensors,
    facts_of,
    listing,
    plain,
)
from attncli.models.layouts.spellings import class_layouts, fused_layouts, separate_layouts
from attncli.models.vocabulary import TABLE, Vocabulary, vocabulary_of

BESIDE = frozenset(("norm.weight", "norm.bias", "embedding.weight", "bias_k", "bias_v", "bias"))
"""Tensors that say nothing about how the projections are spelled."""


SCALE = "scale"
"""The metadata entry for a scale that is not 1/√d_k, as `--scale` spells it."""

ORIENTATION = "orientation"
"""The metadata entry that says how matrices are stored, where their names leave it open."""

COMPARED = 40
"""Names of a file that are looked at for a likely slip; one with more is no attention with a slip in it."""

DIGITS = 18
"""The longest seed that is believed."""


class WeightFile(Struct, frozen=True, eq=False):
    """A weight file that was understood.

    layout: in words. weights: by canonical name, each weight [out, in], biases [out]. facts: the sizes.
    scale: the class's own, None for the usual one. notes: what to tell the user.
    vocabulary: the embeddings that stand in the file, or None. seed: of embeddings the file does not hold.
    roles: what each tensor of the file is used as, by its name there; "" for one that is not used.
    """

    layout: str
    weights: dict[str, Array]
    facts: LayoutSizes
    scale: OwnScale | None
    notes: tuple[str, ...]
    vocabulary: Vocabulary | None
    seed: int | None
    roles: dict[str, str]

    @property
    def canonical(self) -> bool:
        """Whether every tensor already has its canonical name."""
        return all(name == role for name, role in self.roles.items())


def read_weight_file(path: Path, request: LayoutRequest = EMPTY_REQUEST) -> WeightFile:
    """The weights in a .safetensors, .npz, .pt or .pth file; see `recognise`. Raises also as `read_tensors`."""
    file = tensor_file(path)
    return recognise(file.tensors(), file.metadata, str(path), request)


def recognise(
    arrays: Mapping[str, Array], metadata: Mapping[str, str], where: str, request: LayoutRequest = EMPTY_REQUEST
) -> WeightFile:
    """Tensors by name as the weights of one attention. where: the file, for messages.

    Raises InputError for tensors that are missing, unknown or of a wrong shape, naming what was found
    and what was expected; UsageError where the asker contradicts the file.
    """
    tensors = plain(arrays, where, request.prefix)
    has_orientation = request.orientation is not None
    match metadata.get(ORIENTATION):
        case "in-out" | "out-in" as orientation if request.orientation is None:
            request = replace(request, orientation=orientation)
        case _:
            pass
    layout = _fitting(tensors)
    layout_weights = layout.read(tensors, request)
    if has_orientation and not layout_weights.either_way:
        raise UsageError(
            f"how these matrices are stored is certain: {layout.description}", where=where, expected="no --orientation"
        )
    weights = dict(layout_weights.weights)
    weights |= {name: tensors.read(name, None) for name in ("norm.weight", "norm.bias") if name in tensors}
    weights |= {name: tensors.read(name) for name in ("bias_k", "bias_v") if name in tensors}
    file_names = {
        role: tensors.file_names[name] for name, role in reversed(layout.knows.items()) if name in tensors and role
    }
    facts, notes = facts_of(weights, file_names, metadata, where, layout_weights.heads, request)
    vocabulary = vocabulary_of(tensors.read(TABLE, None, facts.d_model), metadata, where) if TABLE in tensors else None
    seed = metadata.get("seed", "")[:DIGITS]
    roles = {tensors.file_names[name]: layout.knows[name] for name in tensors.arrays}
    return WeightFile(
        layout.description, weights, facts, layout_weights.scale or _stored_scale(metadata, where),
        layout_weights.notes + notes, vocabulary,
        int(seed) if seed.isdecimal() else None, roles,
    )  # fmt: skip


def _stored_scale(metadata: Mapping[str, str], where: str) -> OwnScale | None:
    """The scale that `attn weights convert` noted down for weights whose class has its own."""
    spelling = metadata.get(SCALE, "sqrt-dk")
    if spelling not in ("sqrt-dk", "sqrt-dmodel"):
        raise InputError(
            f"the file's metadata give the scale {spelling[:40]!r}", where=where, expected="sqrt-dk or sqrt-dmodel"
        )
    return (
        None
        if spelling == "sqrt-dk"
        else OwnScale(spelling, "the scale is 1/√d_model, as the file says; --scale sqrt-dk for 1/√d_k")
    )


def _fitting(tensors: Tensors) -> Layout:
    """The layout that has a place for every tensor and misses none. Raises InputError against the nearest one."""
    present = set(tensors.arrays)
    layouts = [*separate_layouts(), *fused_layouts(), *class_layouts(present)]
    for layout in layouts:
        if layout.needs.keys() <= present <= layout.knows.keys():
            return layout
    nearest = max(
        layouts, key=lambda layout: (len(_projections(layout) & present), -len(layout.needs.keys() - present))
    )
    if not _projections(nearest) & present:
        raise InputError(
            f"these tensors are no attention that attn knows: {listing(tensors.file_names.values())}",
            where=tensors.where,
            expected="q.weight k.weight v.weight o.weight, torch.nn.MultiheadAttention, WQ WK WV, W_Q W_K W_V, "
            "c_attn, …",
            hint=_similar(present, {name for layout in layouts for name in layout.knows}),
        )
    missing = [name for name in nearest.needs if name not in present]
    unknown_names = [name for name in tensors.arrays if name not in nearest.knows]
    faults = [f"lacks {listing(missing)}"] if missing else []
    faults += (
        [f"has the unknown {listing(tensors.file_names[name] for name in unknown_names)}"] if unknown_names else []
    )
    optional, needs_text = [name for name, role in nearest.may.items() if role], listing(nearest.needs)
    raise InputError(
        f"this file {' and '.join(faults)}; it holds {listing(tensors.file_names.values())}",
        where=tensors.where,
        expected=f"{needs_text}, and optionally {listing(optional)}" if optional else needs_text,
        hint=_similar(unknown_names, missing or optional) or _part_of_more(tensors, nearest, unknown_names),
    )


def _part_of_more(tensors: Tensors, layout: Layout, unknown_names: list[str]) -> str:
    """The command that takes a whole attention out of a file that holds more; "" if none would."""
    stems = {tensors.file_names[name].removesuffix(name) if name in tensors else "" for name in layout.needs}
    stem = stems.pop() if len(stems) == 1 else ""
    if not stem or any(tensors.file_names[name].startswith(stem) for name in unknown_names):
        return ""
    return f"attn weights convert --prefix {stem} FILE one.safetensors"


def _projections(layout: Layout) -> set[str]:
    return layout.knows.keys() - BESIDE


def _similar(names: Iterable[str], known_names: Iterable[str]) -> str:
    from difflib import get_close_matches

    choices = list(known_names)
    for name in islice(names, COMPARED):
        close = get_close_matches(name[:80], choices, n=1, cutoff=0.75)
        if close:
            return f"did you mean {close[0]} where the file has {name[:80]}?"
    return ""
