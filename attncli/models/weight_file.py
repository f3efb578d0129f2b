"""Weight files: recognised by their tensors' names, run as a one-layer model, and written in any
layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from attncli.arrays.backend import Backend
from attncli.arrays.numpy_backend import embedding
from attncli.errors import InputError, UsageError
from attncli.inputs.safetensors_file import check_array
from attncli.inputs.tensors import tensor_file, write_tensors
from attncli.inputs.token import Tokenizer
from attncli.language import listing, message
from attncli.mechanism.mask import Everywhere
from attncli.models.layout import (
    ANY_LENGTH,
    COMMON,
    EMPTY_REQUEST,
    Array,
    Layout,
    LayoutRequest,
    LayoutSizes,
    MaskBuffers,
    OwnScale,
    Tensors,
    bare_names,
    class_layouts,
    fused_layouts,
    is_mask,
    mask_buffers,
    names_text,
    separate_layouts,
    sizes_of,
)
from attncli.models.model import DrawnVectors, Identity, Model
from attncli.models.one_layer import (
    TABLE,
    TOKENS,
    OneLayerStore,
    Settings,
    Vocabulary,
    check_width,
    digest,
    seeded_weights,
    spec_of,
    tokens_text,
    vocabulary_of,
)

BESIDE = frozenset(("norm.weight", "norm.bias", "embedding.weight", "bias_k", "bias_v", "bias"))
"""Tensors that say nothing about how the projections are spelled."""


SCALE = "scale"
"""The metadata entry for a scale that is not 1/√d_k, as `--scale` spells it."""

ORIENTATION = "orientation"
"""The metadata entry that says how matrices are stored, where their names leave it open."""

COMPARED = 40
"""Names of a file that are looked at for a likely slip; one with more is no attention with a slip
in it.
"""

SEED_DIGITS = 18
"""The longest seed that is believed."""


class WeightFile(Struct, frozen=True, eq=False):
    """A weight file that was understood.

    layout: in words.
    weights: by canonical name, each weight [out, in], biases [out].
    facts: the sizes.
    scale: the class's own, None for the usual one.
    notes: what to tell the user.
    looks_back: what to tell who runs it without a mask, where the class has a causal one; else "".
    vocabulary: the embeddings that stand in the file, or None.
    seed: of embeddings the file does not hold.
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
    looks_back: str = ""

    @property
    def every_note(self) -> tuple[str, ...]:
        """The notes for a user who runs the file with its own scale and without a mask."""
        own = [] if self.scale is None else [self.scale.description]
        return (*own, *self.notes, *([self.looks_back] if self.looks_back else []))

    @property
    def canonical(self) -> bool:
        """Whether every tensor of the file already has its canonical name, such as "q.weight"."""
        return all(name == role for name, role in self.roles.items())


def read_weight_file(path: Path, request: LayoutRequest = EMPTY_REQUEST) -> WeightFile:
    """The weights in a .safetensors, .npz, .pt or .pth file, in any layout that `recognise` knows.
    Raises also as `read_tensors`; masks beside the matrices may hold -Inf."""
    file = tensor_file(path)
    where = str(path)
    arrays = file.tensors(allow_nonfinite=True)
    for name, array in arrays.items():
        if not is_mask(name, array):
            check_array(name, array, where, allow_nonfinite=False)
    return recognise(arrays, file.metadata, where, request)


def recognise(
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str],
    where: str,
    request: LayoutRequest = EMPTY_REQUEST,
) -> WeightFile:
    """Recognise tensors by name as the weights of one attention, in whatever layout.

    where: the file, for messages.

    Raises InputError for tensors that are missing, unknown or of a wrong shape, naming what was
    found and what was expected; UsageError where the asker contradicts the file.
    """
    masks = mask_buffers(arrays, request.prefix)
    matrices = {name: array for name, array in arrays.items() if name not in masks.names}
    tensors = bare_names(matrices, where, request.prefix)
    layout = _fitting_layout(tensors)

    # the user's orientation wins over the one in the metadata, which is no error where it is not
    # needed
    stored_orientation = metadata.get(ORIENTATION)
    if request.orientation is None and stored_orientation in ("in-out", "out-in"):
        layout_weights = layout.read(tensors, replace(request, orientation=stored_orientation))
    else:
        layout_weights = layout.read(tensors, request)
    if request.orientation is not None and not layout_weights.either_way:
        what = message(
            "how these matrices are stored is certain: {description}",
            description=layout.description,
        )
        raise UsageError(what, where=where, expected="no --orientation")

    # vectors of any length, whose size is checked below; bias_k and bias_v may have any shape
    weights = layout_weights.weights | {
        name: tensors.read(name, ANY_LENGTH)
        for name in ("norm.weight", "norm.bias")
        if name in tensors
    }
    weights |= {name: tensors.read(name) for name in ("bias_k", "bias_v") if name in tensors}

    # `knows` has the role of each tensor, "" for one that is not used; reversed, so that of two
    # tensors with one role the one listed first in the layout counts
    file_names = {
        role: tensors.file_names[name]
        for name, role in reversed(layout.knows.items())
        if name in tensors and role
    }
    facts, notes = sizes_of(weights, file_names, metadata, where, layout_weights.heads, request)
    vocabulary = None
    if TABLE in tensors:
        vocabulary = vocabulary_of(tensors.read(TABLE, ANY_LENGTH, facts.d_model), metadata, where)
    seed_text = metadata.get("seed", "")[:SEED_DIGITS]  # as any text may stand there
    roles = {tensors.file_names[name]: layout.knows[name] for name in tensors.arrays}
    return WeightFile(
        layout.description,
        weights,
        facts,
        scale=layout_weights.scale or _stored_scale(metadata, where),
        notes=layout_weights.notes + notes,
        vocabulary=vocabulary,
        seed=int(seed_text) if seed_text.isdecimal() else None,
        roles=roles | dict.fromkeys(masks.names, ""),  # "": masks are not used
        looks_back=_looks_back(masks) or layout_weights.looks_back,
    )


def _looks_back(masks: MaskBuffers) -> str:
    """A sentence on the causal mask that stands beside a file's matrices; "" where none does."""
    if not masks.causal:
        return ""
    return message(
        "the file holds a causal mask, {mask}: its class hides later tokens; attn does so with"
        " --mask causal",
        mask=masks.causal,
    )


def _stored_scale(metadata: Mapping[str, str], where: str) -> OwnScale | None:
    """The scale of q·k that the file's metadata state, as `attn weights convert` writes it for
    classes that do not use 1/√d_k; None for 1/√d_k."""
    spelling = metadata.get(SCALE, "sqrt-dk")
    if spelling not in ("sqrt-dk", "sqrt-dmodel"):
        what = message(
            "the file's metadata give the scale {spelling}", spelling=repr(spelling[:40])
        )
        raise InputError(what, where=where, expected="sqrt-dk or sqrt-dmodel")
    if spelling == "sqrt-dk":
        return None
    return OwnScale(
        spelling, message("the scale is 1/√d_model, as the file says; --scale sqrt-dk for 1/√d_k")
    )


def _fitting_layout(tensors: Tensors) -> Layout:
    """The layout that names every tensor and lacks none it needs. Raises InputError, with a hint
    from the nearest layout, where none fits."""
    present = set(tensors.arrays)
    layouts = [*separate_layouts(), *fused_layouts(), *class_layouts(present)]
    for layout in layouts:
        if layout.needs.keys() <= present <= layout.knows.keys():
            return layout

    # none fits: compare with the layout that shares most names, of these the one that lacks fewest
    nearest = max(
        layouts,
        key=lambda layout: (
            len(_distinctive_names(layout) & present),
            -len(layout.needs.keys() - present),
        ),
    )
    if not _distinctive_names(nearest) & present:
        raise _no_attention(tensors, layouts)
    missing = [name for name in nearest.needs if name not in present]
    unknown_names = [name for name in tensors.arrays if name not in nearest.knows]
    if missing:
        faults = [message("lacks {missing}", missing=names_text(missing))]
    else:
        faults = []
    if unknown_names:
        names = names_text(tensors.file_names[name] for name in unknown_names)
        faults.append(message("has the unknown {unknown_names}", unknown_names=names))

    # what the nearest layout has, and a hint: a slip in a name, or one of several attentions
    optional = [name for name, role in nearest.may.items() if role]
    expected = names_text(nearest.needs)
    if optional:
        expected = message(
            "{needed}, and optionally {optional}", needed=expected, optional=names_text(optional)
        )
    not_there = missing or [name for name in optional if name not in present]
    hint = _spelling_hint(unknown_names, not_there)
    if not hint:
        hint = _prefix_hint(tensors, nearest, unknown_names)
    raise InputError(
        "this file {faults}; it holds {file_names}",
        where=tensors.where,
        expected=expected,
        hint=hint,
        faults=listing(faults, " and "),
        file_names=names_text(tensors.file_names.values()),
    )


def _no_attention(tensors: Tensors, layouts: list[Layout]) -> InputError:
    """Return, not raise, the InputError for a file none of whose names belong to a layout."""
    present = set(tensors.arrays)
    known_names = {name for layout in layouts for name in layout.knows}
    hint = _spelling_hint(tensors.arrays, known_names - present)
    if not hint:
        hint = message("attn guide weights lists every name, and how to rename others")
    return InputError(
        "these tensors are no attention that attn knows: {file_names}",
        where=tensors.where,
        expected=(
            "q.weight k.weight v.weight o.weight, torch.nn.MultiheadAttention, WQ WK WV, W_Q"
            " W_K W_V, c_attn, …"
        ),
        hint=hint,
        file_names=names_text(tensors.file_names.values()),
    )


def _prefix_hint(tensors: Tensors, layout: Layout, unknown_names: list[str]) -> str:
    """A hint for a file that holds an attention among other tensors: the attn command that extracts
    it by the prefix of its names; "" where the names that `layout` needs share no prefix, or an
    unknown name has it, too.
    """
    if not all(name in tensors for name in layout.needs):
        return ""
    # what stands before the plain names that the layout needs
    prefixes = {tensors.file_names[name].removesuffix(name) for name in layout.needs}
    if len(prefixes) > 1:
        return ""
    (prefix,) = prefixes
    if not prefix or any(tensors.file_names[name].startswith(prefix) for name in unknown_names):
        return ""
    return f"attn weights convert --prefix {prefix} FILE one.safetensors"


def _distinctive_names(layout: Layout) -> set[str]:
    """The tensor names by which a layout is recognised, without those that any layout may have."""
    return layout.knows.keys() - BESIDE


def _spelling_hint(names: Iterable[str], known_names: Iterable[str]) -> str:
    """A hint "did you mean" for the first name that is close to a known one; "" where none is. The
    first COMPARED names are tried.
    """
    from difflib import get_close_matches

    choices = sorted(known_names)  # a set has another order in each process
    for name in islice(names, COMPARED):  # cut to 80 characters, as a file may hold any name
        numbers = re.findall(r"[0-9]+", name)  # a slip in spelling changes no number
        likely = [choice for choice in choices if re.findall(r"[0-9]+", choice) == numbers]
        close = get_close_matches(name[:80], likely, n=1, cutoff=0.75)
        if close:
            return message(
                "did you mean {close} where the file has {name}? attn guide weights shows how to"
                " rename",
                close=close[0],
                name=name[:80],
            )
    return ""


LAYOUTS = {
    "canonical": "q.weight k.weight v.weight o.weight, [out, in]",
    "torch": "torch.nn.MultiheadAttention: in_proj_weight out_proj.weight",
    "single": message("a single head's class: WQ WK WV"),
    "heads": message("a class with a list of heads: heads.0.WQ … and linear"),
    "matrices": message("matrices of X·W: W_Q W_K W_V W_O, [in, out]"),
    "fused": "c_attn and c_proj, [in, out]",
}
"""The layouts that can be written, with what they hold."""


def layout_tensors(
    weights: Mapping[str, Array], facts: LayoutSizes, layout: str
) -> dict[str, Array]:
    """Canonical weights by the tensor names of another layout, in which they can be written. Norms
    and embeddings keep their names.

    facts: the weights' sizes.
    layout: a key of `LAYOUTS`. Raises UsageError for an unknown one, and where the sizes do not fit
        it.
    """
    if layout in ("torch", "fused") and "o.weight" in weights:
        _check_output_width(weights["o.weight"], facts, layout)
    beside = {name: array for name, array in weights.items() if name in COMMON}
    projections = {name: array for name, array in weights.items() if name not in COMMON}
    match layout:
        case "canonical":
            return dict(weights)
        case "torch":
            _check_sizes(facts, layout, square=True, output=True)
            return _as_torch_module(projections) | beside
        case "single":  # q.weight is WQ.weight
            _check_sizes(facts, layout, heads=1)
            return {
                f"W{name[0].upper()}{name[1:]}": array for name, array in projections.items()
            } | beside
        case "heads":
            _check_sizes(facts, layout)
            return _as_list_of_heads(projections, facts) | beside
        case "matrices":  # q.weight is W_Q, [in, out], q.bias is b_Q
            tensors = {}
            for name, array in projections.items():
                role, _, kind = name.partition(".")
                letter = "W" if kind == "weight" else "b"
                tensors[f"{letter}_{role.upper()}"] = np.ascontiguousarray(array.T)
            return tensors | beside
        case "fused":
            _check_sizes(facts, layout, square=True)
            return _fused_projections(projections) | beside
        case _:
            from difflib import get_close_matches

            close = get_close_matches(layout, LAYOUTS, 1)
            if close:
                hint = f"--layout {close[0]}"
            else:
                hint = ""
            raise UsageError(
                "no layout is called {layout}",
                expected=listing(LAYOUTS),
                hint=hint,
                layout=repr(layout),
            )


def _check_sizes(
    facts: LayoutSizes,
    layout: str,
    *,
    heads: int | None = None,
    square: bool = False,
    output: bool = False,
) -> None:
    """Raise UsageError for sizes that a layout cannot hold.

    facts: the sizes.
    heads: the only number of heads that the layout can hold; None for any.
    square: whether its projections must lead from d_model to d_model.
    output: whether it must have an output projection.
    """
    if facts.kv_heads != facts.heads:
        raise UsageError(
            "layout {layout} has no shared heads, these are {heads} on {kv_heads}",
            expected="--layout canonical",
            layout=layout,
            heads=facts.heads,
            kv_heads=facts.kv_heads,
        )

    if heads is not None and facts.heads != heads:
        what = message(
            "layout {layout} holds one head, there are {heads}", layout=layout, heads=facts.heads
        )
        raise UsageError(what, expected="--layout heads or canonical")

    widths = (facts.heads * facts.d_k, facts.heads * facts.d_v)
    if square and widths != (facts.d_model, facts.d_model):
        raise UsageError(
            "layout {layout} has projections from d_model to d_model ({d_model}), these lead to"
            " {width} and {width_2}",
            expected="heads × d_k = heads × d_v = d_model, or --layout canonical",
            layout=layout,
            d_model=facts.d_model,
            width=widths[0],
            width_2=widths[1],
        )
    if output and not facts.output_projection:
        raise UsageError(
            "layout {layout} has an output projection, these weights have none",
            expected="one",
            hint="--output-projection",
            layout=layout,
        )


def _check_output_width(output: Array, facts: LayoutSizes, layout: str) -> None:
    """Raise UsageError where an output projection, [out, in], leads to another width than d_model,
    for a layout that cannot hold it."""
    if len(output) != facts.d_model:
        raise UsageError(
            "layout {layout} has an output as wide as d_model ({d_model}), this one is {width} wide",
            expected="--layout canonical",
            layout=layout,
            d_model=facts.d_model,
            width=len(output),
        )


def _joined_qkv(weights: Mapping[str, Array], kind: str) -> Array | None:
    """The weights or biases of q, k and v stacked along axis 0, [3 · out, in] or [3 · out]; a bias
    that is missing beside others counts as 0. None where all three are missing.

    kind: "weight" or "bias".
    """
    names = [f"{role}.{kind}" for role in "qkv"]
    if not any(name in weights for name in names):
        return None
    parts: list[Array] = []
    for role, name in zip("qkv", names, strict=True):
        if name in weights:
            parts.append(weights[name])
        else:
            weight = weights[f"{role}.weight"]
            parts.append(np.zeros(len(weight), weight.dtype))
    return np.concatenate(parts)


def _as_torch_module(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Projections by the tensor names of `torch.nn.MultiheadAttention`; biases that it must have
    and that are missing are 0."""
    matrix = _joined_qkv(weights, "weight")
    assert matrix is not None  # for the type checker: an attention has all three
    output = weights["o.weight"]
    bias = _joined_qkv(weights, "bias")
    output_bias = weights.get("o.bias")
    if bias is None and output_bias is None:
        return {"in_proj_weight": matrix, "out_proj.weight": output}
    # the module has both biases or neither
    width = output.shape[0]
    return {
        "in_proj_weight": matrix,
        "in_proj_bias": np.zeros(3 * width, output.dtype) if bias is None else bias,
        "out_proj.weight": output,
        "out_proj.bias": np.zeros(width, output.dtype) if output_bias is None else output_bias,
    }


def _fused_projections(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Projections in the layout of GPT-2, `c_attn` and `c_proj`, [in, out], by tensor name."""
    weight = _joined_qkv(weights, "weight")
    bias = _joined_qkv(weights, "bias")
    assert weight is not None  # for the type checker: an attention has all three
    tensors = {"c_attn.weight": np.ascontiguousarray(weight.T)}
    if bias is not None:
        tensors["c_attn.bias"] = bias
    if "o.weight" in weights:
        tensors["c_proj.weight"] = np.ascontiguousarray(weights["o.weight"].T)
    if "o.bias" in weights:
        tensors["c_proj.bias"] = weights["o.bias"]
    return tensors


def _as_list_of_heads(weights: Mapping[str, Array], facts: LayoutSizes) -> dict[str, Array]:
    """Projections by the names of a class with a list of heads: `heads.0.WQ.weight` …, and `linear`
    for the output projection."""
    tensors = {}
    for name, array in weights.items():
        role, _, kind = name.partition(".")  # "q.weight": role q, kind weight
        if role == "o":
            tensors[f"linear.{kind}"] = array
        else:
            for head, head_rows in enumerate(np.split(array, facts.heads)):
                tensors[f"heads.{head}.W{role.upper()}.{kind}"] = np.ascontiguousarray(head_rows)
    return tensors


PLAIN_SETTINGS = Settings()


def model_of(
    weight_file: WeightFile,
    name: str,
    tokenizer: Tokenizer,
    backend: Backend,
    settings: Settings = PLAIN_SETTINGS,
    *,
    seed: int | None = None,
    embedding: np.ndarray[Any, Any] | None = None,
) -> Model:
    """A runnable one-layer model with the weights of a file.

    name: the file's, for the documents.
    settings: mask, positions and whatever else the file does not hold. Its sizes are replaced by the
        file's, layer_norm is on where either has it, and a bias or output_projection that is not
        None must agree with the file.
    seed: of embeddings that the file does not hold; None for the file's own, or 0.
    embedding: vectors [token, d_model] of exactly the text that will run, or None.

    Raises UsageError for options that contradict the file.
    """
    facts = weight_file.facts
    # --bias and --output-projection may only repeat what the file holds
    for option, option_value, file_value in (
        ("bias", settings.bias, facts.bias),
        ("output-projection", settings.output_projection, facts.output_projection),
    ):
        if option_value not in (None, file_value):
            raise UsageError(
                "--{value}{option} contradicts the weight file, which has {value_2}",
                where=name,
                expected="no such option: the file decides (layout: {layout})",
                value="" if option_value else "no-",
                option=option,
                value_2="some" if file_value else "none",
                layout=weight_file.layout,
            )

    # the user's, else the one of the file's class, else None for 1/√d_k
    scale = settings.scale
    if not scale and weight_file.scale is not None:
        scale = weight_file.scale.spelling
    sizes = asdict(facts)
    sizes["layer_norm"] = settings.layer_norm or facts.layer_norm
    file_settings = replace(settings, **sizes, scale=scale)
    if "o.weight" in weight_file.weights:
        # [out, in]: its rows are the width of the output
        check_width(file_settings, len(weight_file.weights["o.weight"]), hint="")
    spec = spec_of(file_settings)

    notes = weight_file.notes
    if weight_file.scale and settings.scale is None:
        notes = (weight_file.scale.description, *notes)
    if weight_file.looks_back and isinstance(settings.mask, Everywhere):
        notes = (*notes, weight_file.looks_back)

    if seed is None:
        seed = weight_file.seed or 0
    store = OneLayerStore(spec, weight_file.weights, seed, embedding, weight_file.vocabulary)
    # the document states a seed only where a number of the run comes from it, or the file has one
    holds_words = embedding is not None or weight_file.vocabulary is not None
    drawn = _drawn_vectors(holds_words=holds_words, position=settings.position)
    identity = Identity(
        "file",
        name=name,
        family=None if weight_file.canonical else weight_file.layout,
        seed=seed if drawn or weight_file.seed is not None else None,
        digest=digest(weight_file.weights),
        layout=weight_file.layout,
        drawn=drawn,
    )
    return Model(spec, store, tokenizer, backend, identity, warnings=notes)


def _drawn_vectors(*, holds_words: bool, position: str) -> tuple[DrawnVectors, ...]:
    """Which vectors come from the seed: those of words where none are given, and those of positions
    under a learned encoding, which no weight file holds."""
    drawn: list[DrawnVectors] = []
    if not holds_words:
        drawn.append("words")
    if position == "learned":
        drawn.append("positions")
    return tuple(drawn)


# Writing weight files: seeded ones, and recognised ones under other names.


def seeded_file(settings: Settings, seed: int, words: Sequence[str]) -> WeightFile:
    """A weight file, for `write_weight_file`, whose weights are random numbers from a seed, in the
    sizes of `settings`.

    words: token texts whose seeded embeddings are stored beside the weights, each once; none
        stores no embeddings.
    """
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

    vocabulary = None
    if words:
        vocabulary = Vocabulary(
            embedding(seed, words, settings.d_model),
            {word: place for place, word in enumerate(words)},
        )
    return WeightFile(
        LAYOUTS["canonical"],
        seeded_weights(settings, seed),
        facts,
        scale=None,
        notes=(),
        vocabulary=vocabulary,
        seed=seed,
        roles={},
    )


def write_weight_file(path: Path, weight_file: WeightFile, *, layout: str) -> None:
    """Write weights as .safetensors or .npz in a layout, a key of `LAYOUTS`; the same content gives
    the same bytes.

    Raises UsageError for weights that do not fit the layout, AttnError for a place that cannot be
    written.
    """
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
    if layout == "matrices":
        metadata[ORIENTATION] = "in-out"
    write_tensors(path, layout_tensors(weights, weight_file.facts, layout), metadata)
