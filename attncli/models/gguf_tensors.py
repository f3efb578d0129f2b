"""The tensors of GGUF files: which plays which role, and how what converters did to them is undone
as they are read.

Source: gguf-py's tables of names and llama.cpp's converters, by architecture, 2023-2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays import numpy_backend
from attncli.inputs.checkpoint import Array, TensorInfo
from attncli.inputs.derived_checkpoint import ProductRecipe, Recipe
from attncli.inputs.ggml_blocks import BlockKind
from attncli.inputs.gguf_file import GgufTensor
from attncli.mechanism.spec import DeltaRule, Mlp, Spec
from attncli.models.family import (
    Concat,
    Family,
    GroupedTensor,
    Names,
    PerExpert,
    SharedTensor,
    Source,
)

INSIDE: Mapping[str, Source] = {
    "attn.in": "attn_norm",
    "attn.q": "attn_q|attn_q_b",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output|attn_o",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "attn.sinks": "attn_sinks.weight",
    "attn.out": "post_attention_norm",
    "attn.sum": "attn_output_norm",
    "attn.q_down": "attn_q_a",
    "attn.q_down_norm": "attn_q_a_norm",
    "attn.kv_down": "attn_kv_a_mqa",
    "attn.kv_down_norm": "attn_kv_a_norm",
    "attn.kv": "attn_kv_b",
    "attn.buckets": "attn_rel_b",
    "cross.in": "cross_attn_norm",
    "cross.q": "cross_attn_q",
    "cross.k": "cross_attn_k",
    "cross.v": "cross_attn_v",
    "cross.o": "cross_attn_o",
    "mlp.in": "ffn_norm|post_attention_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
    "mlp.out": "post_ffw_norm",
    "mlp.sum": "layer_output_norm",
    "mixer.input": "shortconv.in_proj|ssm_in",
    "mixer.conv": "shortconv.conv|ssm_conv1d",
    "mixer.output": "shortconv.out_proj|ssm_out",
    "mixer.q mixer.k mixer.v": Concat("attn_qkv"),
    "mixer.gate": "attn_gate",
    "mixer.strength": "ssm_beta",
    "mixer.time": "ssm_alpha|ssm_dt",
    "mixer.step": "ssm_dt.bias",
    "mixer.decay": "ssm_a",
    "mixer.straight": "ssm_d",
    "mixer.norm": "ssm_norm",
    "mixer.select": "ssm_x",
    "mixer.time_norm": "ssm_dt_norm",
    "mixer.k_norm": "ssm_b_norm",
    "mixer.q_norm": "ssm_c_norm",
    "shared.gate": "ffn_gate_shexp",
    "shared.up": "ffn_up_shexp",
    "shared.down": "ffn_down_shexp",
    "shared.share": "ffn_gate_inp_shexp",
    "experts.router": "ffn_gate_inp",
    "experts.correction": "exp_probs_b.bias|exp_probs_b",
    "experts.gate": PerExpert("ffn_gate_exps"),
    "experts.up": PerExpert("ffn_up_exps"),
    "experts.down": PerExpert("ffn_down_exps"),
}
"""Role → module of a layer."""
TOGETHER: Mapping[str, Source] = {
    "attn.q attn.k attn.v": Concat("attn_qkv"),
    "experts.gate experts.up": PerExpert("ffn_gate_up_exps"),
    "mixer.q mixer.k mixer.v mixer.gate": GroupedTensor("ssm_in"),
    "mixer.strength mixer.time": GroupedTensor("ssm_ba"),
}
"""Roles that share a tensor in the files that have it."""
OUTSIDE: Mapping[str, Source] = {
    "tokens": "token_embd",
    "positions": "position_embd",
    "types": "token_types",
    "embed.norm": "token_embd_norm",
    "final": "output_norm",
    "head": "output",
}
IGNORED = (
    *("rope_freqs.weight", "rope_factors_*.weight", "blk.*.attn_rot_embd", "output.*", "cls.*"),
    *("blk.*.attn_k_b.weight", "blk.*.attn_v_b.weight", "dec.blk.0.cross_attn_rel_b.weight"),
)


def names_for(spec: Spec, model_family: Family, tensors: Collection[str], beyond: range) -> Family:
    """The family with its tensor names replaced by those that GGUF files use.

    tensors: the file's names.
    beyond: layers after the last, for multi-token prediction, whose tensors are ignored.
    """
    ignored = (*IGNORED, *(f"blk.{layer}.*" for layer in beyond))
    # a lone T5 encoder has no decoder, but the tensor names of an encoder-decoder ("enc.…")
    if spec.decoder is None and "enc.output_norm.weight" not in tensors:
        return replace(
            model_family, names=replace(_side_names(spec, tensors, "blk."), ignored=ignored)
        )
    names_by_side = []
    # a lone encoder has no decoder: its own layers stand in for one
    for side, prefix in ((spec, "enc."), (spec.decoder or spec, "dec.")):
        names = _side_names(side, tensors, f"{prefix}blk.")
        inside = dict(names.inside)
        if f"{prefix}blk.1.attn_rel_b.weight" not in tensors:  # all layers use those of the first
            inside["attn.buckets"] = SharedTensor(f"{prefix}blk.0.attn_rel_b")
        outside = {**OUTSIDE, "final": f"{prefix}output_norm"}
        names_by_side.append(replace(names, inside=inside, outside=outside, ignored=ignored))
    encoder_names, decoder_names = names_by_side
    return replace(model_family, names=encoder_names, decoder=decoder_names)


def _side_names(spec: Spec, tensors: Collection[str], layers: str) -> Names:
    """GGUF's tensor names for an encoder or a decoder.

    layers: the prefix of layer numbers, such as "blk.".
    """
    inside = dict(INSIDE)
    first = spec.blocks[0]  # tells for all layers how gates are stored
    gated = isinstance(first.mlp, Mlp) and first.mlp.gated
    if gated and f"{layers}0.ffn_gate.weight" not in tensors:  # the gate's rows are in ffn_up
        inside["mlp.gate mlp.up"] = Concat("ffn_up")
        for role in ("mlp.gate", "mlp.up"):
            del inside[role]
    # Falcon has two norms, of which "attn_norm" is the feed-forward part's
    if f"{layers}0.attn_norm_2.weight" in tensors:
        inside |= {"attn.in": "attn_norm_2", "mlp.in": "attn_norm"}
    if any(block.attention.gated for block in spec.blocks):  # gates stand with each head's queries
        inside["attn.q attn.gate"] = GroupedTensor("attn_q")
        del inside["attn.q"]
    # LFM2's converter calls its last norm by the name of another
    if "output_norm.weight" in tensors:
        outside = OUTSIDE
    else:
        outside = {**OUTSIDE, "final": "token_embd_norm"}
    return Names(layer=layers + "{layer}.", inside=inside, outside=outside, together=TOGETHER)


def shape_of_role(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a GGUF tensor has as a tensor of the model, from the shape in the file: GGUF
    drops or adds axes of length 1, and keeps a norm of several groups as a matrix."""
    # the axis of length 1 that the file lacks: [channel, kernel] is [channel, 1, kernel], and a gate
    # of one row, [width], is [1, width]
    if name.endswith((".conv.weight", ".ssm_conv1d.weight")) and len(shape) == 2:
        return (shape[0], 1, shape[1])
    if name.endswith(".ffn_gate_inp_shexp.weight") and len(shape) == 1:
        return (1, shape[0])
    # the axis of length 1 that the file adds, and the groups of a norm
    if name.endswith((".ssm_a", ".ssm_d")) and len(shape) == 2 and shape[1] == 1:
        return shape[:1]
    if name.endswith(".ssm_norm.weight") and len(shape) == 2:
        return (shape[0] * shape[1],)
    return shape


class Undone(Struct, frozen=True):
    """How the GGUF converter changed a tensor (rows reordered, logarithm undone), to be reversed
    when it is read.

    head: rows of a head whose neighbouring rows are brought back to its two halves, 0 where rows
        stand in order.
    rows, columns: where each row or column stands; None where they stand in order.
    decay: whether a decay is stored as the power that it is of, with its sign.
    """

    head: int = 0
    rows: Array | None = None
    columns: Array | None = None
    decay: bool = False


Unpack = Callable[[BlockKind, Array], Array]
"""Makes the numbers of some stored blocks, float32 [number], from their bytes, [byte]."""

FEW_AT_ONCE = 2**18
"""Numbers of a matrix unpacked at a time for a product with few rows: they stay in the processor's
cache."""
MANY_AT_ONCE = 2**19
"""The same for a product with many rows, in which unpacking weighs little."""
VECTORS = 4
"""Products of several vectors are as fast as they can be with multiples of this many; one vector by
itself takes a quarter of the time of four."""

Fill = Callable[[TensorInfo, Array, int, str], None]
"""Fills an array from a byte on of the file that a tensor is in."""


class BlockRecipe(ProductRecipe):
    """Reads rows of a GGUF tensor out of its stored blocks, and reverses the converter's changes."""

    def __init__(
        self,
        fill: Fill,
        tensor: GgufTensor,
        info: TensorInfo,
        undone: Undone,
        unpack: Unpack = BlockKind.numbers,
    ) -> None:
        """How a tensor of a GGUF file is read, row by row.

        fill: reads bytes of the file. tensor, info: where the tensor is and what it is called.
        undone: how the converter changed it. unpack: makes numbers of stored blocks.
        """
        self._fill = fill
        self._unpack = unpack
        self._tensor = tensor
        self._info = info
        self._undone = undone
        # how many rows must be read together: those of a head whose rows were reordered, else one; 0
        # for a vector in quantised blocks, which has no rows to cut it at and is read whole
        is_quantised = tensor.block.weights > 1  # several numbers in a block
        if len(tensor.shape) > 1 or not is_quantised:
            self.unit = undone.head or 1
        else:
            self.unit = 0

    def rows(self, start: int, stop: int) -> Array:
        """Rows start..stop-1 in float32, with the converter's changes reversed."""
        undone = self._undone
        if undone.rows is None:
            numbers = self._stored_rows(start, stop)
        else:
            # rows 4 5 6 0 1 of the file are read as two runs, 4–6 and 0–1
            order = undone.rows[start:stop]
            runs = np.split(order, np.flatnonzero(np.diff(order) != 1) + 1)
            numbers = np.concatenate(
                [self._stored_rows(int(run[0]), int(run[-1]) + 1) for run in runs]
            )
        if undone.columns is not None:
            numbers = numbers[:, undone.columns]
        if undone.decay:
            # the file holds -exp(decay); the check of the tensor names a number that becomes NaN
            with np.errstate(all="ignore"):
                numbers = np.log(-numbers)
        if not undone.head:
            return numbers
        # a head's rows alternate between its halves: [head, pair, half, …] → [head, half, pair, …]
        pairs = numbers.reshape((-1, undone.head // 2, 2, *numbers.shape[1:]))
        return pairs.swapaxes(1, 2).reshape(numbers.shape)

    def product(self, x: Array) -> Array | None:
        """x·Wᵀ, [row, out] of float32, computed for a few rows of W at a time, which are unpacked
        and multiplied while they are in the processor's cache; None for a tensor that is no matrix,
        or where `unpack` is not the usual one.

        x: [row, in].

        The converter's changes are reversed in x and in the product.
        """
        shape = self._tensor.shape
        undone = self._undone
        if len(shape) != 2 or undone.decay or self._unpack is not BlockKind.numbers:
            return None
        count = len(x)
        # one vector, or the next multiple of VECTORS, which is faster; the columns added are 0
        columns = 1 if count == 1 else -(-count // VECTORS) * VECTORS
        vectors = np.zeros((shape[1], columns), np.float32)
        if undone.columns is None:
            vectors[:, :count] = x.T
        else:
            vectors[undone.columns, :count] = x.T
        result = np.empty((count, shape[0]), np.float32)
        few = count <= numpy_backend.FEW_ROWS
        step = max((FEW_AT_ONCE if few else MANY_AT_ONCE) // shape[1], 1)
        starts = iter(range(0, shape[0], step))  # all threads take their next rows from this one
        block = self._tensor.block
        sums = block.group_sums(vectors)  # which the kind's offsets multiply, where it has any

        # NumPy need not warn of an overflow: whoever reads the tensor checks its numbers
        @np.errstate(over="ignore", invalid="ignore")
        def multiply() -> None:
            """Fill `result` for `step` rows of W after another, until no start is left."""
            room = np.empty(step * shape[1], np.float32)  # for the unpacked numbers
            for start in starts:
                stop = min(start + step, shape[0])
                part = block.product(self._stored_bytes(start, stop), vectors, sums, room)
                result[:, start:stop] = part[:, :count].T

        if count * shape[0] * shape[1] < numpy_backend.LARGE_PRODUCT:
            threads = 1
        else:
            threads = min(numpy_backend.cores(), 2)  # more were not measured
        numpy_backend.at_once([multiply] * threads)
        if undone.rows is not None:
            return result[:, undone.rows]
        if undone.head:  # as in `rows`, now along the last axis
            pairs = result.reshape(count, -1, undone.head // 2, 2)
            return pairs.swapaxes(2, 3).reshape(result.shape)
        return result

    def _stored_rows(self, start: int, stop: int) -> Array:
        """Rows start..stop-1 in float32, as the file has them."""
        tensor = self._tensor
        numbers = self._unpack(tensor.block, self._stored_bytes(start, stop))
        return numbers.reshape((stop - start, *tensor.shape[1:]))

    def _stored_bytes(self, start: int, stop: int) -> Array:
        """The bytes of rows start..stop-1, as the file has them; all of a tensor that is read whole."""
        tensor = self._tensor
        row_bytes = (tensor.stop - tensor.start) // tensor.shape[0]
        if self.unit:
            raw = np.empty((stop - start) * row_bytes, np.uint8)
            begin = tensor.start + start * row_bytes
        else:
            raw = np.empty(tensor.stop - tensor.start, np.uint8)
            begin = tensor.start
        self._fill(self._info, raw, begin, tensor.name)
        return raw


class JoinedHeads:
    """Keys and values from the narrow vectors of latent attention, one head after the other, where
    a file has either in a tensor of its own.

    keys: [head, narrow, key], values: [head, value, narrow].
    unit: rows of a head.
    """

    def __init__(self, keys: Recipe, values: Recipe, unit: int) -> None:
        self._keys = keys
        self._values = values
        self.unit = unit

    def rows(self, start: int, stop: int) -> Array:
        """Rows start..stop-1 of the joined tensor: for each head its key rows, then its value rows.
        Both must be multiples of `unit`, the rows of a head.
        """
        first_head = start // self.unit
        last_head = -(-stop // self.unit)  # one past the last
        keys = self._keys.rows(first_head, last_head).swapaxes(1, 2)
        values = self._values.rows(first_head, last_head)
        joined = np.concatenate([keys, values], axis=1)
        return joined.reshape(-1, joined.shape[-1])


REORDERED = re.compile(r"blk\.(\d+)\.attn_[qk]\.(weight|bias)")
TILED = {
    "attn_qkv": True,
    "ssm_conv1d": True,
    "attn_gate": True,
    "ssm_beta": False,
    "ssm_alpha": False,
    "ssm_a": False,
    "ssm_dt": False,
}
"""The tensors of a delta rule whose rows stand by heads of values: true where a head has `v_dim`
rows there, false where it has one.
"""


def conversion_of(name: str, spec: Spec, model_family: Family) -> Undone:
    """How the GGUF converter changed the tensor of this name, to be reversed when it is read: the
    rows of queries and keys reordered for a rotary embedding, a mixer's decay d stored as −exp(d), the
    value heads of a delta rule reordered. The empty `Undone` for a tensor that is as it was.

    model_family: says whether queries and keys (`permuted`) or value heads (`tiled`) are reordered.
    """
    # "blk.3.attn_q.weight": layer 3, module attn_q
    number, _, rest = name.partition("blk.")[2].partition(".")
    module = rest.partition(".")[0]
    decay = name.endswith(".ssm_a")
    if REORDERED.fullmatch(name) and model_family.permuted:
        return Undone(head=spec.blocks[0].attention.head_dim)  # the same in all layers

    # what mixes tokens in this tensor's layer
    mixer = None
    if number.isdecimal() and int(number) < len(spec.blocks):
        mixer = spec.blocks[int(number)].mixer
    if not model_family.tiled or not isinstance(mixer, DeltaRule) or mixer.heads == mixer.key_heads:
        return Undone(decay=decay)
    # the converter reordered the value heads of a delta rule: rows of what makes or gates values,
    # columns of what reads them
    if module == "ssm_out":
        return Undone(columns=_rows_by_group(mixer, mixer.v_dim, before=0))
    if module in TILED:
        if module in ("attn_qkv", "ssm_conv1d"):  # queries and keys stand before the values
            before = 2 * mixer.key_heads * mixer.key_dim
        else:
            before = 0
        rows_of_head = mixer.v_dim if TILED[module] else 1
        return Undone(rows=_rows_by_group(mixer, rows_of_head, before), decay=decay)
    return Undone()


def _rows_by_group(mixer: DeltaRule, dim: int, before: int) -> Array:
    """The row of the file for each row of the model. In the model, value heads that share a key
    head come side by side; files hold the first value head of each group, then the second of each.

    dim: rows of a head.
    before: rows before the heads, which stay.
    """
    shared = mixer.heads // mixer.key_heads
    # the file's rows are [place in the group, group, row of a head], the model's [group, place, …]
    places = (
        np.arange(mixer.heads * dim)
        .reshape(shared, mixer.key_heads, dim)
        .swapaxes(0, 1)
        .reshape(-1)
    )
    return np.concatenate([np.arange(before), before + places])
