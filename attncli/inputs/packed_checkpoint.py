"""Folders whose matrices lie there in few bits: what each library writes, and what its numbers
stand for.

Which scheme it is says `quantization_config` in config.json (MLX: `quantization`); which tensors
belong together say their names. Matrices are [out, in]; numbers are computed in float32: (integer −
zero point) times scale.

Source: the descriptions of the formats: DeepSeek-V3's weights (FP8 by blocks, 2024),
compressed-tensors, AutoGPTQ, AutoAWQ, bitsandbytes (Dettmers et al., QLoRA, 2023), OCP Microscaling
1.0 (2023), MLX's affine quantization.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from attncli.errors import InputError, UnsupportedError
from attncli.inputs.checkpoint import (
    MLX,
    Array,
    Checkpoint,
    TensorInfo,
    find_tensors,
    packing_settings,
    without_packing,
)
from attncli.inputs.derived_checkpoint import DerivedCheckpoint, Recipe, kinds_by_size
from attncli.inputs.ggml_blocks import E2M1
from attncli.language import listing, message

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight columns stands in each four bits of a word, the lowest first."""
WORD_BITS = (2, 4, 8)
"""Numbers of bits of which a whole number fills a word."""
NESTED = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
"""bitsandbytes' scales of blocks and its table of numbers; the last two where scales are codes."""
STATE = "quant_state.bitsandbytes__"
"""How the name of bitsandbytes' JSON on a matrix begins; behind it stands the kind of codes."""

Parts = Mapping[str, str]
"""The tensors of one module by the last part of their names."""


def open_packed(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo] | None
) -> DerivedCheckpoint:
    """The checkpoint of a folder with quantised weights, whose matrices are computed as floats when
    they are read.

    config: the folder's config.json, which declares the quantisation.
    tensors: where each stored tensor lies, by name; None to read that from the weight files.

    Raises UnsupportedError for a scheme that is not read, InputError for parts that are missing or
    contradict one another.
    """
    if tensors is None:
        stored = find_tensors(folder, packed=True)
    else:
        stored = dict(tensors)
    raw = Checkpoint(folder, dict(config), stored)
    if all(
        info.dtype in FLOATS or _is_buffer(name, info.dtype) for name, info in raw.names().items()
    ):
        # no matrix is stored in few bits: it was unpacked again, or is quantised only when loaded
        plain = DerivedCheckpoint(folder, without_packing(config), dict(raw.names()), {})
        if tensors is None:  # else the weights are not here, and will not be read
            plain.notes = (
                message(
                    "config.json says that the weights are quantised ({method}), and none is stored"
                    " so: they are read as the numbers that they are",
                    method=_packing_method(config),
                ),
            )
        return plain
    return _PackedMatrices(raw).checkpoint()


FLOATS = ("float16", "bfloat16", "float32", "float64")
"""The types of tensors that are no parts of a quantised matrix, where all are of them."""
FEW_BITS = ("uint8", "int8", "uint32", "int32")
"""The types in which schemes pack numbers, beside float8."""
WHOLE_NUMBERS = ("int64", "bool")
"""The types in which no scheme packs numbers."""
BUFFERS = ("*position_ids", "*token_type_ids", "*.attn.bias", "*.attention.bias")
"""Names of tensors that torch stores beside the weights, and whose whole numbers may be small:
positions, kinds of tokens, causal masks."""


def _is_buffer(name: str, dtype: str) -> bool:
    """Whether a stored tensor of this name and type is no part of a weight, but what torch stores
    beside weights.
    """
    return dtype in WHOLE_NUMBERS or any(fnmatchcase(f".{name}", pattern) for pattern in BUFFERS)


METHODS = (
    *("awq", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "mlx"),
    *("modelopt FP8", "modelopt NVFP4", "mxfp4"),
)
"""The schemes that are read, as configs call them."""


MODELOPT = "modelopt"
"""How NVIDIA's Model Optimizer calls itself; which numbers it wrote says `quant_algo`."""
CACHE_SCALES = ("k_scale", "v_scale")
"""The ends of tensors that scale a cache of few bits; a run here keeps keys and values as they
are."""


def check_method(config: Mapping[str, Any], where: str) -> None:
    """Raise UnsupportedError for the config of quantised weights that names a scheme which is not
    read, or none."""
    method = _packing_method(config)
    if method not in METHODS:
        raise UnsupportedError(
            "these weights are quantised ({method})",
            where=where,
            expected=listing(METHODS),
            method=method,
        )


def _packing_method(config: Mapping[str, Any]) -> str:
    """The quantisation scheme that a config.json names, such as "gptq" or "modelopt NVFP4". Where
    it names none, "mlx" for settings under MLX's key, else a message that says so."""
    settings = packing_settings(config)
    # what is returned where the settings name no method
    usual: str = message("method not named")
    if config.get(MLX):
        usual = "mlx"
    if not isinstance(settings, dict):
        return usual
    method = settings.get("quant_method")
    algorithm = settings.get("quant_algo")
    producer = settings.get("producer")  # which Model Optimizer states where it names no method
    if method is None and isinstance(producer, dict) and producer.get("name") == MODELOPT:
        method = MODELOPT
    if method == MODELOPT and isinstance(algorithm, str):
        return f"{MODELOPT} {algorithm}"
    if method is None:
        return usual
    return str(method)


class _PackedMatrices:
    """Finds which stored tensors make a quantised matrix together and makes a recipe for it, by one
    method for each scheme, which is called with each module and its `parts`, the names of its stored
    tensors by their ends ("qweight").
    """

    def __init__(self, raw: Checkpoint) -> None:
        """Note the scheme that the config names; no tensor is looked at yet.

        raw: the checkpoint with its tensors as they are stored.
        """
        self.raw = raw
        settings = packing_settings(raw.config)
        self.settings: Mapping[str, Any] = settings if isinstance(settings, dict) else {}
        self.where = str(raw.folder)
        self.method = _packing_method(raw.config)
        # stored tensors that a matrix is made of; then the result: every tensor that a model may
        # read, how the computed ones are made, and the bytes of each kind of numbers
        self.used_names: set[str] = set()
        self.tensors: dict[str, TensorInfo] = {}
        self.recipes: dict[str, Recipe] = {}
        self.sizes: Counter[str] = Counter()

    def checkpoint(self) -> DerivedCheckpoint:
        """The checkpoint whose matrices are computed. Raises UnsupportedError for a scheme that is
        not read, InputError for parts that are missing or contradict one another."""
        # the stored tensors by module and the last part of their names: `layer.0.q.scales` is
        # "scales" of `layer.0.q`, and `layer.0.q.weight.absmax` is its "weight.absmax"
        names = self.raw.names()
        modules: dict[str, dict[str, str]] = {}
        for name in names:
            module, _, part = name.rpartition(".")
            for inner in (".weight.", ".qweight."):
                if inner in name:
                    module, _, part = name.partition(inner)
                    part = f"{inner[1:-1]}.{part}"
            modules.setdefault(module, {})[part] = name
        builders: Mapping[str, Callable[[str, Parts], None]] = {
            "fp8": self.byte_weights,
            "fbgemm_fp8": self.byte_weights,
            "compressed-tensors": self.compressed_tensors,
            "gptq": self.gptq,
            "modelopt FP8": self.byte_weights,
            "modelopt NVFP4": self.nvfp4,
            "awq": self.awq,
            "bitsandbytes": self.bitsandbytes,
            "mxfp4": self.mxfp4,
            "mlx": self.mlx,
        }
        check_method(self.raw.config, self.where)

        # the scheme's method takes from each module what makes a matrix together
        for module, parts in modules.items():
            builders[self.method](module, parts)

        # all other tensors stay as they are, unless they look like a part without its scales
        for name, info in names.items():
            if name in self.used_names or name.endswith(CACHE_SCALES):
                continue
            if _is_buffer(name, info.dtype):
                self.tensors[name] = info
                continue
            if info.dtype.startswith("float8") or info.dtype in FEW_BITS:
                raise InputError(
                    "tensor {name} holds {dtype}, and what it is scaled by is not here",
                    where=str(info.file),
                    expected=message("the parts of a matrix of {method}", method=self.method),
                    name=repr(name),
                    dtype=info.dtype,
                )
            self.tensors[name] = info
        config = without_packing(self.raw.config)
        return DerivedCheckpoint(
            self.raw.folder, config, self.tensors, self.recipes, kinds_by_size(self.sizes)
        )

    def add_matrix(
        self, name: str, shape: tuple[int, ...], scheme: str, recipe: Recipe, parts: list[str]
    ) -> None:
        """Add a matrix that is computed by a recipe.

        name: what the model calls it.
        scheme: the kind of numbers it is stored in, as people name it ("INT8").
        parts: names of the stored tensors that it is made of, the largest first.
        """
        info = self.raw.info(parts[0])  # the largest stands for the matrix's place in the file
        self.used_names.update(parts)
        self.tensors[name] = TensorInfo("float32", shape, info.file, info.start, info.stop, scheme)
        self.recipes[name] = recipe
        self.sizes[scheme] += info.bytes

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a stored tensor."""
        return self.raw.info(name).shape

    def check_shape(self, name: str, expected: tuple[int, ...], *others: tuple[int, ...]) -> None:
        """Raise InputError where a stored tensor has another shape than `expected` or one of
        `others`.
        """
        shape = self.shape(name)
        if shape not in (expected, *others):
            raise InputError(
                "tensor {name} has shape {shape}",
                where=str(self.raw.info(name).file),
                expected=listing(
                    [str(list(one_shape)) for one_shape in (expected, *others)], " or "
                ),
                name=repr(name),
                shape=list(shape),
            )

    def stored_parts(self, module: str, parts: Parts, *names: str) -> list[str]:
        """The names of a module's stored tensors with these ends (such as "weight_scale"), in that
        order. Raises InputError for one that is missing.

        parts: names by end.
        """
        for name in names:
            if name not in parts:
                what = message(
                    "the weights of {module} lack {part}", module=repr(module), part=repr(name)
                )
                raise InputError(what, where=self.where, expected=", ".join(names))
        return [parts[name] for name in names]

    def bits(self, *keys: str) -> int:
        """How many bits a number has, by the first of these settings that the config has. Raises
        UnsupportedError where they do not fill a word evenly."""
        value = next((self.settings[key] for key in keys if key in self.settings), None)
        if value not in WORD_BITS:
            raise self._setting_error(keys[0], value, listing(map(str, WORD_BITS)))
        return int(value)

    def _setting_error(self, key: str, value: object, expected: str) -> UnsupportedError:
        """The error, returned and not raised, about a setting in config.json whose value is not
        supported.
        """
        return UnsupportedError(
            "config.json sets {key} to {value}",
            where=self.where,
            expected=expected,
            key=key,
            value=repr(value)[:80],
        )

    def group_size(self, count: int, length: int, name: str) -> int:
        """How many numbers share a scale along an axis of this length with `count` scales. Raises
        InputError where the scales do not divide the axis evenly.

        name: the tensor of the scales, for errors.
        """
        if not count or length % count:
            what = message(
                "tensor {name} has {count} scales for rows of {length}",
                name=repr(name),
                count=count,
                length=length,
            )
            raise InputError(
                what, where=str(self.raw.info(name).file), expected="as many as divide the row"
            )
        return length // count

    def byte_weights(self, module: str, parts: Parts) -> None:
        """Add a module's matrix of eight-bit numbers with one scale for all, one for each row, or
        one for each block; nothing where its tensors make no such matrix.

        parts: the module's stored tensors by the last part of their names.
        """
        # DeepSeek's name of the scales; despite it, numbers are multiplied by them, too
        scale = parts.get("weight_scale_inv", parts.get("weight_scale"))
        if scale is None or "weight" not in parts or len(self.shape(parts["weight"])) != 2:
            return
        weight = parts["weight"]
        info = self.raw.info(weight)
        scales = self.shape(scale)
        rows, columns = info.shape
        # (rows, columns) that share a scale
        if len(scales) == 2:
            block = self._block(scales, info.shape, scale)
        elif scales in ((), (1,)):
            block = (rows, columns)
        else:
            self.check_shape(scale, (rows,))
            block = (1, columns)
        zero = parts.get("weight_zero_point")
        if info.dtype.startswith("float8"):
            scheme = "FP8"
        else:
            scheme = "INT8"
        # parts for arithmetic in eight bits, which is not done here: only marked as used
        idle = [
            parts[name]
            for name in ("input_scale", "activation_scale", "input_scale_ub")
            if name in parts
        ]
        recipe = ScaledRows(self.raw, weight, scale, zero, block)
        used = [weight, scale, *idle]
        if zero is not None:
            used.append(zero)
        self.add_matrix(f"{module}.weight", info.shape, scheme, recipe, used)

    def _block(self, scales: tuple[int, ...], shape: tuple[int, ...], name: str) -> tuple[int, int]:
        """How many (rows, columns) of a matrix share a scale: what the config says, else what
        divides the matrix evenly.

        scales: the shape of the scales, [block of rows, block of columns].
        shape: that of the matrix.
        name: the tensor of the scales, for errors.
        """
        if scales in ((shape[0], 1), (1, 1)):  # one for each row, one for all
            return (shape[0] // scales[0], shape[1])
        stated = self.settings.get("weight_block_size")
        if (
            not isinstance(stated, list)
            or len(stated) != 2
            or not all(type(size) is int and size > 0 for size in stated)
        ):
            return (
                self.group_size(scales[0], shape[0], name),
                self.group_size(scales[1], shape[1], name),
            )
        height, width = stated
        # the last block of an axis may be smaller, so that their number is rounded up
        self.check_shape(name, (-(-shape[0] // height), -(-shape[1] // width)))
        return height, width

    def compressed_tensors(self, module: str, parts: Parts) -> None:
        """Add a module's matrix in the format of compressed-tensors: whole bytes, or integers of
        few bits in words along the row.

        parts: the module's stored tensors by the last part of their names.

        Raises UnsupportedError for words of a type or size that the scheme does not have.
        """
        if "weight_packed" not in parts:
            self.byte_weights(module, parts)
            return

        # a tensor of its own holds the matrix's shape; how many bits a number has follows from it
        packed, scale, size = self.stored_parts(
            module, parts, "weight_packed", "weight_scale", "weight_shape"
        )
        stored = self.raw.read(size)
        shape = tuple(int(length) for length in stored.reshape(-1))
        # (two lengths, one of them below 1, are refused by the checks that follow)
        if len(shape) != 2 or min(shape) < 1:
            self.check_shape(size, (2,))
        rows, words = self.shape(packed)
        if words and shape[1] > 0:  # a word has 32 bits
            bits = 32 * words // shape[1]
        else:
            bits = 0
        if self.raw.info(packed).dtype != "int32" or bits not in WORD_BITS:
            raise UnsupportedError(
                "tensor {name} has {words} words for rows of {length}",
                where=str(self.raw.info(packed).file),
                expected=message("words of 32 bits, 2, 4 or 8 for a number"),
                name=repr(packed),
                words=words,
                length=shape[1],
            )

        # scales for groups of columns; zero points, which may be packed down the columns, too; the
        # group of each column where groups are not of neighbours. The last word of a row may be
        # filled in part, so that numbers of words are rounded up
        self.check_shape(packed, (shape[0], -(-shape[1] * bits // 32)))
        group = self.group_size(self.shape(scale)[-1], shape[1], scale)
        self.check_shape(scale, (rows, shape[1] // group))
        zero = parts.get("weight_zero_point")
        order = parts.get("weight_g_idx")
        if zero is not None:
            self.check_shape(
                zero, (-(-rows * bits // 32), shape[1] // group), (rows, shape[1] // group)
            )
        recipe = PackedRows(
            self.raw, packed, scale, zero=zero, bits=bits, group=group, shape=shape, order=order
        )
        extra = [name for name in (zero, order) if name is not None]
        self.add_matrix(
            f"{module}.weight", shape, f"INT{bits}", recipe, [packed, scale, size, *extra]
        )

    def mlx(self, module: str, parts: Parts) -> None:
        """Add a module's matrix in MLX's format: words along the row, a scale and an offset for
        each group.

        Raises UnsupportedError for a mode other than "affine", or bits that do not fill a word.
        """
        if "scales" not in parts:
            return
        weight, scale, bias = self.stored_parts(module, parts, "weight", "scales", "biases")
        # a module may have settings of its own beside those for all
        module_settings = self.settings.get(module)
        if not isinstance(module_settings, dict):
            bits = self.bits("bits")
        else:
            bits = int(module_settings.get("bits", 4))  # 4 is what MLX takes where none is stated
        rows, words = self.shape(weight)  # words of 32 bits
        mode = self.settings.get("mode", "affine")
        if mode != "affine":
            raise self._setting_error("mode", mode, "affine")
        if bits not in WORD_BITS:
            raise self._setting_error("bits", bits, listing(map(str, WORD_BITS)))
        columns = words * 32 // bits
        group = self.group_size(self.shape(scale)[-1], columns, scale)
        self.check_shape(scale, (rows, columns // group))
        self.check_shape(bias, (rows, columns // group))
        recipe = PackedRows(
            self.raw, weight, scale, bias=bias, bits=bits, group=group, shape=(rows, columns)
        )
        self.add_matrix(
            f"{module}.weight", (rows, columns), f"MLX {bits}-bit", recipe, [weight, scale, bias]
        )

    def gptq(self, module: str, parts: Parts) -> None:
        """Add a module's matrix in GPTQ's format, stored as [in, out]: several inputs of an output
        are packed in a word, and groups of inputs share a scale and a zero point."""
        if "qweight" not in parts:
            return
        weight, zeros, scale = self.stored_parts(module, parts, "qweight", "qzeros", "scales")
        bits = self.bits("bits", "w_bit")
        per_word = 32 // bits  # inputs in a word of 32 bits
        words, out = self.shape(weight)
        count = self.shape(scale)[0]  # groups, as scales are [group, out]
        self.check_shape(scale, (count, out))
        self.check_shape(zeros, (count, -(-out // per_word)))  # packed along the outputs
        order = parts.get("g_idx")
        if order is not None:
            self.check_shape(order, (words * per_word,))
        if order is None:
            group = self.group_size(count, words * per_word, scale)
        else:  # not used: `order` has the group of each input
            group = 0
        # the older format stores each zero point less 1
        if self.settings.get("checkpoint_format") == "gptq_v2":
            more = 0
        else:
            more = 1
        recipe = GptqMatrix(self.raw, (weight, zeros, scale, order), bits, group, more)
        used = [weight, zeros, scale]
        if order is not None:
            used.append(order)
        self.add_matrix(
            f"{module}.weight", (out, words * per_word), f"GPTQ {bits}-bit", recipe, used
        )

    def awq(self, module: str, parts: Parts) -> None:
        """Add a module's matrix in AWQ's format, stored as [in, out]: eight neighbouring outputs of
        an input share a word, and groups of inputs share a scale and a zero point. Nothing is added
        for a module without such parts. Raises UnsupportedError for other bits and layouts."""
        if "qweight" not in parts:
            return
        weight, zeros, scale = self.stored_parts(module, parts, "qweight", "qzeros", "scales")
        # "version" names the program of AWQ's that the words are laid out for; null is its default
        version = self.settings.get("version") or "gemm"
        if self.bits("bits", "w_bit") != 4 or str(version).lower() != "gemm":
            raise self._setting_error(
                "version", self.settings.get("version"), message("4 bits, packed as for gemm")
            )
        rows, words = self.shape(weight)  # [in, word]
        count = self.shape(scale)[0]  # groups, as scales are [group, out]
        self.check_shape(scale, (count, words * 8))
        self.check_shape(zeros, (count, words))
        recipe = AwqMatrix(self.raw, (weight, zeros, scale), self.group_size(count, rows, scale))
        self.add_matrix(
            f"{module}.weight", (words * 8, rows), "AWQ 4-bit", recipe, [weight, zeros, scale]
        )

    def bitsandbytes(self, module: str, parts: Parts) -> None:
        """Add a module's matrix in the format of bitsandbytes: bytes with a scale for each row, or
        pairs of codes with a scale for each block."""
        if "SCB" in parts:
            weight, scale = self.stored_parts(module, parts, "weight", "SCB")
            shape = self.shape(weight)
            rows, columns = shape
            self.check_shape(scale, (rows,))
            # a row's scale is its largest number, stored as 127
            by_row = ScaledRows(
                self.raw, weight, scale, zero=None, block=(1, columns), factor=1 / 127
            )
            # how bytes are laid out on a GPU, of no meaning here: only marked as used
            idle = [parts[name] for name in ("weight_format",) if name in parts]
            self.add_matrix(f"{module}.weight", shape, "INT8", by_row, [weight, scale, *idle])
            return
        state_part = next((part for part in parts if part.startswith(f"weight.{STATE}")), None)
        if state_part is None:
            return
        # the matrix itself is `module.weight`, its parts `module.weight.absmax` and so on
        weight, state = self.stored_parts(module, parts, "weight", state_part)
        stated = self._quantization_state(state)
        shape = tuple(stated["shape"])
        block = stated["blocksize"]
        count = int(np.prod(shape))
        nested = "weight.nested_absmax" in parts
        # the blocks' scales and a table of 16 numbers; or, nested, codes of scales and that table,
        # with scales and a table of 256 numbers for these codes
        names = NESTED if nested else NESTED[:2]
        stored = self.stored_parts(module, parts, *(f"weight.{name}" for name in names))
        scales, table, *of_scales = stored
        # the last byte and the last block may be filled in part, so that both are rounded up; the
        # bytes stand in one column or in one row
        blocks = -(-count // block)
        size = -(-count // 2)
        self.check_shape(weight, (size, 1), (1, size))
        self.check_shape(scales, (blocks,))
        self.check_shape(table, (16,))
        if nested:
            outer_scales, outer_table = of_scales
            self.check_shape(outer_scales, (-(-blocks // stated["nested_blocksize"]),))
            self.check_shape(outer_table, (256,))
        recipe = CodedMatrix(self.raw, weight, stored, stated, count)
        scheme = state_part.rpartition("__")[2].upper()  # "…bitsandbytes__nf4" is NF4
        self.add_matrix(f"{module}.weight", shape, scheme, recipe, [weight, state, *stored])

    def nvfp4(self, module: str, parts: Parts) -> None:
        """Add a module's matrix in NVFP4: pairs of codes, a float8 scale for each 16 of a row, and
        one scale for all. Matrices that were left as they are have no such parts."""
        if "weight_scale_2" not in parts:
            self.byte_weights(module, parts)
            return
        names = ("weight", "weight_scale", "weight_scale_2")
        weight, scale, scale_of_all = self.stored_parts(module, parts, *names)
        rows, pairs = self.shape(weight)  # a byte holds a pair of codes
        self.check_shape(scale, (rows, 2 * pairs // NVFP4_GROUP))
        self.check_shape(scale_of_all, (), (1,))
        # for arithmetic in four bits, which is not done here: only marked as used
        idle = [parts[name] for name in ("input_scale",) if name in parts]
        recipe = NvRows(self.raw, weight, scale, scale_of_all)
        used = [weight, scale, scale_of_all, *idle]
        self.add_matrix(f"{module}.weight", (rows, 2 * pairs), "NVFP4", recipe, used)

    def _quantization_state(self, name: str) -> Mapping[str, Any]:
        """What bitsandbytes' JSON beside a matrix of codes says: its shape, block sizes and offset.
        Raises InputError where it does not say them, or states sizes that no matrix has."""
        try:
            state = json.loads(bytes(self.raw.read(name).astype(np.uint8)).decode())
            sizes = [state["blocksize"], *state["shape"]]
            # these two are only stated, and only used, where scales are codes themselves
            nested_size = state.get("nested_blocksize", 1)
            nested_offset = float(state.get("nested_offset", 0.0))
            sizes.append(nested_size)
            is_plausible = all(type(size) is int and 0 < size < 2**40 for size in sizes)
            if is_plausible and len(state["shape"]) == 2:
                return {**state, "nested_offset": nested_offset, "nested_blocksize": nested_size}
        except (ValueError, KeyError, TypeError):
            pass  # no JSON, or without these keys: the error below says so
        what = message("tensor {name} does not say what the codes are", name=repr(name))
        raise InputError(
            what,
            where=str(self.raw.info(name).file),
            expected=message("a JSON object with shape and blocksize"),
        )

    def mxfp4(self, module: str, parts: Parts) -> None:
        """Add a module's MXFP4 experts: pairs of codes with a power of two for each 32, stored
        [out, in], used as [in, out]."""
        for part in parts:
            if not part.endswith("_blocks"):
                continue
            stem = part.removesuffix("_blocks")
            blocks, scale = self.stored_parts(module, parts, part, f"{stem}_scales")
            shape = self.shape(blocks)
            # [expert, out, block, byte]: the 32 codes of a block fill 16 bytes
            if len(shape) != 4 or shape[3] != 16:
                self.check_shape(blocks, (*shape[:3], 16))  # raises: this shape is another
            experts, out, count, _ = shape
            self.check_shape(scale, (experts, out, count))
            recipe = MxExperts(self.raw, blocks, scale)
            self.add_matrix(
                f"{module}.{stem}", (experts, count * 32, out), "MXFP4", recipe, [blocks, scale]
            )


def raw_numbers(array: Array, dtype: str) -> Array:
    """Stored numbers as float32, types of eight bits (float8) included."""
    if dtype.startswith("float8"):
        import ml_dtypes

        return array.view(getattr(ml_dtypes, dtype)).astype(np.float32)
    return array.astype(np.float32)


def word_numbers(words: Array, bits: int) -> Array:
    """The unsigned integers of `bits` bits that are packed in each word, the lowest bits first,
    uint8: [..., word] to [..., number]."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    numbers = (words.view(np.uint32)[..., None] >> shifts) & np.uint32(2**bits - 1)
    return numbers.astype(np.uint8).reshape(*words.shape[:-1], -1)


class ScaledRows:
    """A recipe (it computes a matrix when it is read): stored numbers times the scale of their
    block.

    weight, scale: the names of the stored tensors.
    zero: that of the zero points, one for each block, which are subtracted first; None for none.
    block: how many (rows, columns) share a scale.
    factor: what all numbers are multiplied by besides.
    """

    def __init__(
        self,
        raw: Checkpoint,
        weight: str,
        scale: str,
        zero: str | None,
        block: tuple[int, int],
        factor: float = 1.0,
    ) -> None:
        """The recipe of one matrix; its rows can be computed one by one.

        raw: the checkpoint whose stored tensors the names are of.
        weight, scale: the tensors of the numbers and of their scales.
        zero: that of the zero points, which are subtracted first; None for none.
        block: how many (rows, columns) share a scale.
        factor: what all numbers are multiplied by besides.
        """
        self._raw = raw
        self._names = (weight, scale, zero)
        self._block = block
        self._factor = factor
        self.unit = 1  # each row can be computed by itself

    def rows(self, start: int, stop: int) -> Array:
        """The rows start..stop-1 of the matrix, float [row, column]."""
        weight, scale, zero = self._names
        info = self._raw.info(weight)
        # (number − zero point) · scale · factor; zero points and scales, which the numbers of a
        # block share, are repeated to [row, column]
        numbers = raw_numbers(self._raw.read_rows(weight, range(start, stop)), info.dtype)
        if zero is not None:
            numbers -= self._for_rows(
                self._raw.read(zero).astype(np.float32), info.shape, start, stop
            )
        numbers *= self._for_rows(self._raw.read(scale, "float32"), info.shape, start, stop)
        numbers *= np.float32(self._factor)
        return numbers

    def _for_rows(self, scales: Array, shape: tuple[int, ...], start: int, stop: int) -> Array:
        """The scale of each number in the rows start..stop-1 of a matrix of this shape, [row,
        column], from one scale for each block."""
        height, width = self._block
        rows_of_blocks = -(-shape[0] // height)
        by_block = scales.reshape(rows_of_blocks, -1)[np.arange(start, stop) // height]
        return np.repeat(by_block, width, axis=1)[:, : shape[1]]  # the last block may be narrower


class PackedRows:
    """A recipe (it computes a matrix when it is read): integers of few bits packed in words along
    the row, with a scale, and a zero point or an offset, for each group of columns."""

    def __init__(
        self,
        raw: Checkpoint,
        weight: str,
        scale: str,
        *,
        bits: int,
        group: int,
        shape: tuple[int, ...],
        zero: str | None = None,
        bias: str | None = None,
        order: str | None = None,
    ) -> None:
        """The recipe of one matrix.

        Args:
            raw: The checkpoint whose tensors the names are of.
            weight: The words' tensor.
            scale: That of the scales, [row, group].
            bits: Bits of a number.
            group: Columns of a group.
            shape: (rows, columns) of the matrix.
            zero: The zero points' tensor, None where numbers are stored around 0.
            bias: The offsets' tensor, [row, group], None for none.
            order: The tensor with the group of each column; None for groups of neighbours.
        """
        self._raw = raw
        self._weight = weight
        self._scale = scale
        self._zero = zero
        self._bias = bias
        self._bits = bits
        self._group = group
        self._shape = shape
        self._order = order
        self.unit = 1  # each row can be computed by itself

    def rows(self, start: int, stop: int) -> Array:
        """The rows start..stop-1 of the matrix, float [row, column]."""
        rows = range(start, stop)
        half = 2 ** (self._bits - 1)
        words = self._raw.read_rows(self._weight, rows)
        numbers = word_numbers(words, self._bits)[:, : self._shape[1]].astype(np.float32)
        # the group of each column, whose scale and offset or zero point it shares
        group_of = np.arange(self._shape[1]) // self._group
        if self._order is not None:
            group_of = self._raw.read(self._order).astype(np.int64)
        scales = self._raw.read_rows(self._scale, rows, "float32")[:, group_of]
        if self._bias is not None:
            return numbers * scales + self._raw.read_rows(self._bias, rows, "float32")[:, group_of]
        numbers -= half  # numbers from -half on are stored as numbers from 0 on
        if self._zero is not None:
            zeros = self._raw.read(self._zero)  # [row, group]
            if zeros.shape[0] != self._shape[0]:  # the zero points of several rows share a word
                unpacked = word_numbers(np.ascontiguousarray(zeros.T), self._bits).T
                zeros = unpacked.astype(np.float32) - half
            numbers -= zeros[start:stop].astype(np.float32)[:, group_of]
        return numbers * scales


class GptqMatrix:
    """A recipe (it computes a matrix when it is read): one in GPTQ's format.

    names: its stored tensors: of words, zero points and scales, and of the group of each input
        (None for groups of neighbours).
    group: how many inputs in a row share a scale, where no tensor says.
    more: what is added to stored zero points.
    """

    unit = 0  # all rows only together

    def __init__(
        self,
        raw: Checkpoint,
        names: tuple[str, str, str, str | None],
        bits: int,
        group: int,
        more: int,
    ) -> None:
        """The recipe of one matrix, which is only computed whole.

        raw: the checkpoint whose stored tensors the names are of.
        names: the tensors of words, zero points and scales, and of the group of each input (None
            for groups of neighbours).
        bits: of a number; several share a word of 32 bits.
        group: how many inputs in a row share a scale; not used where a tensor says it.
        more: what is added to stored zero points.
        """
        self._raw = raw
        self._names = names
        self._bits = bits
        self._group = group
        self._more = more

    def rows(self, start: int, stop: int) -> Array:
        """The whole matrix, float [out, in]; start and stop are not used. Raises InputError for a
        group that has no scales."""
        weight, zero, scale, order = self._names
        words = np.ascontiguousarray(self._raw.read(weight).T)  # [out, word]
        numbers = word_numbers(words, self._bits).astype(np.float32)  # [out, in]
        scales = self._raw.read(scale, "float32").T  # [out, group]
        # [out, group]; the last word of a group may be filled in part
        zeros = word_numbers(self._raw.read(zero), self._bits)[:, : scales.shape[0]].T
        # the sum wraps around within the number's bits
        zeros = ((zeros + np.uint8(self._more)) & np.uint8(2**self._bits - 1)).astype(np.float32)
        if order is None:
            group_of = np.arange(numbers.shape[1]) // self._group
        else:
            group_of = self._raw.read(order).astype(int)
        if group_of.min() < 0 or group_of.max() >= scales.shape[1]:
            outside = group_of[(group_of < 0) | (group_of >= scales.shape[1])]
            what = message(
                "tensor {name} names the group {group}", name=repr(order), group=int(outside[0])
            )
            expected = message("0 to {last}", last=scales.shape[1] - 1)
            raise InputError(what, where=str(self._raw.info(weight).file), expected=expected)
        numbers -= zeros[:, group_of]
        numbers *= scales[:, group_of]
        return numbers


class AwqMatrix:
    """A recipe (it computes a matrix when it is read): one in AWQ's format."""

    unit = 0  # all rows only together

    def __init__(self, raw: Checkpoint, names: tuple[str, str, str], group: int) -> None:
        """The recipe of one matrix, which is only computed whole.

        raw: the checkpoint whose stored tensors the names are of.
        names: the tensors of words, zero points and scales.
        group: how many inputs in a row share a scale.
        """
        self._raw = raw
        self._names = names
        self._group = group

    def rows(self, start: int, stop: int) -> Array:
        """The whole matrix, float [out, in]; start and stop are not used."""
        # AWQ stores numbers as [in, out], and zeros and scales as [group, out]
        numbers, zeros = (self._unpack_in_order(self._raw.read(name)) for name in self._names[:2])
        scales = self._raw.read(self._names[2], "float32")
        group_of = np.arange(numbers.shape[0]) // self._group
        matrix: Array = ((numbers - zeros[group_of]) * scales[group_of]).T
        return matrix

    @staticmethod
    def _unpack_in_order(words: Array) -> Array:
        """Unpack 4-bit numbers from words [row, word] to floats [row, column], undoing the order in
        which AWQ packs columns."""
        packed = word_numbers(words, 4).reshape(*words.shape, 8)
        numbers = np.empty(packed.shape, np.float32)
        numbers[..., AWQ_ORDER] = packed
        return numbers.reshape(words.shape[0], -1)


class CodedMatrix:
    """A recipe (it computes a matrix when it is read): each code of four bits, the higher half of a
    byte first, is a number of a table times its block's scale.

    stored: the names of the tensors with the blocks' scales and the table; where the scales are
        codes, too, those with their scales and their table besides.
    state: what bitsandbytes says of the matrix: its shape and the sizes of blocks.
    count: how many numbers the matrix has.
    """

    unit = 0  # all rows only together

    def __init__(
        self, raw: Checkpoint, weight: str, stored: list[str], state: Mapping[str, Any], count: int
    ) -> None:
        """The recipe of one matrix, which is only computed whole.

        raw: the checkpoint whose stored tensors the names are of.
        weight: the tensor of the codes, two in each byte.
        stored: the tensors of the blocks' scales and of the table that codes stand for; where
            scales are codes themselves, also those of the scales' own scales and table.
        state: what the file says of block sizes and the matrix's shape.
        count: how many numbers the matrix has.
        """
        self._raw = raw
        self._weight = weight
        self._stored = stored
        self._state = state
        self._count = count

    def rows(self, start: int, stop: int) -> Array:
        """The whole matrix, float [row, column]; start and stop are not used."""
        scale_name, table_name, *of_scales = self._stored
        # two codes in each byte, the high one first
        packed = self._raw.read(self._weight).reshape(-1)
        codes = np.stack((packed >> 4, packed & 15), axis=1).reshape(-1)[: self._count]
        numbers = self._raw.read(table_name, "float32")[codes]
        scales = self._raw.read(scale_name)
        if of_scales:
            # the blocks' scales are codes themselves, with a table, scales and an offset of theirs
            outer_scale_name, outer_table_name = of_scales
            table = self._raw.read(outer_table_name, "float32")
            outer = np.repeat(
                self._raw.read(outer_scale_name, "float32"), self._state["nested_blocksize"]
            )
            scales = table[scales] * outer[: scales.size] + np.float32(self._state["nested_offset"])
        numbers *= np.repeat(scales.astype(np.float32), self._state["blocksize"])[: self._count]
        return numbers.reshape(self._state["shape"])


NVFP4_GROUP = 16
"""Numbers of a row that share a scale."""


class NvRows:
    """A recipe (it computes a matrix when it is read): one in NVFP4, each number a code of four
    bits, the lower half of a byte first, times its group's scale and the scale of all. Source:
    NVIDIA, Model Optimizer, 2025."""

    unit = 1  # each row can be computed by itself

    def __init__(self, raw: Checkpoint, weight: str, scale: str, whole: str) -> None:
        """Take the names of three tensors of `raw`: the codes, the scale of each group, and the
        scale of all.
        """
        self._raw = raw
        self._weight = weight
        self._scale = scale
        self._whole = whole

    def rows(self, start: int, stop: int) -> Array:
        """The rows start..stop-1 of the matrix, float [row, column]: the numbers that the codes
        stand for, times the scale of their group and the one scale of the matrix."""
        rows = range(start, stop)
        codes = self._raw.read_rows(self._weight, rows)  # two in each byte, the low one first
        numbers = np.stack((E2M1[codes & 15], E2M1[codes >> 4]), axis=-1).reshape(len(rows), -1)
        stored = self._raw.read_rows(self._scale, rows)
        scales = raw_numbers(stored, self._raw.info(self._scale).dtype)
        factor = np.float32(self._raw.read(self._whole, "float32").reshape(-1)[0])
        scaled: Array = numbers * np.repeat(scales, NVFP4_GROUP, axis=1) * factor
        return scaled


class MxExperts:
    """A recipe (it computes a tensor when it is read): the matrices of a layer's experts in MXFP4,
    [expert, in, out]."""

    unit = 1  # each row can be computed by itself

    def __init__(self, raw: Checkpoint, blocks: str, scale: str) -> None:
        """Take the names of two tensors of `raw`: the codes in blocks, and the scale of each block."""
        self._raw = raw
        self._blocks = blocks
        self._scale = scale

    def rows(self, start: int, stop: int) -> Array:
        """The experts start..stop-1, float [expert, in, out]."""
        experts = range(start, stop)
        codes = self._raw.read_rows(self._blocks, experts)  # [expert, out, block, 16 bytes]
        # the numbers that the codes stand for, two codes in each byte, the low one first; each
        # block is scaled by a power of two, stored 127 higher
        numbers = np.stack((E2M1[codes & 15], E2M1[codes >> 4]), axis=-1)
        numbers = numbers.reshape(*codes.shape[:3], 32)
        powers = self._raw.read_rows(self._scale, experts).astype(np.int32) - 127
        numbers = np.ldexp(numbers, powers[..., None])
        return numbers.reshape(*codes.shape[:2], -1).swapaxes(1, 2)
