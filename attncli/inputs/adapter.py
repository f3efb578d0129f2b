"""Adapters: low-rank changes of a checkpoint's matrices, in PEFT's folders, merged with them as
they are read.

A matrix W becomes W + s·B·A with s = α/r (LoRA) or α/√r (rank-stabilised); with magnitudes m (DoRA)
its rows, scaled to the length m: m·(W + s·B·A)/‖W + s·B·A‖. Everything is computed in float64 and
rounded once.

Source: Hu et al., LoRA, 2021; Kalajdzievski, 2023 (rank stabilisation); Liu et al., DoRA, 2024; the
files are those of PEFT's `save_pretrained`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.arrays import backend as arrays
from attncli.errors import InputError, UnsupportedError, refused_value
from attncli.inputs.bounded_process import run_bounded
from attncli.inputs.checkpoint import MOST_ENTRIES, Array, Checkpoint, TensorInfo
from attncli.inputs.derived_checkpoint import DerivedCheckpoint, Recipe
from attncli.inputs.files import guarded_path, is_folder, is_there, read_object
from attncli.inputs.task_failure import TaskError
from attncli.inputs.tensors import tensor_file
from attncli.language import Message, listing, message

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
"""The weights as PEFT wrote them until 2023."""
PREFIX = "base_model.model."
"""What PEFT writes before the base's names."""
PLAIN = frozenset(
    (
        *(
            "alpha_pattern",
            "auto_mapping",
            "base_model_name_or_path",
            "bias",
            "corda_config",
            "eva_config",
        ),
        *(
            "exclude_modules",
            "fan_in_fan_out",
            "inference_mode",
            "init_lora_weights",
            "layers_pattern",
        ),
        *(
            "layers_to_transform",
            "loftq_config",
            "lora_alpha",
            "lora_bias",
            "lora_dropout",
            "megatron_config",
        ),
        *(
            "megatron_core",
            "modules_to_save",
            "peft_type",
            "peft_version",
            "r",
            "rank_pattern",
            "revision",
        ),
        *(
            "runtime_config",
            "target_modules",
            "task_type",
            "trainable_token_indices",
            "use_dora",
            "use_rslora",
        ),
        *("ensure_weight_tying", "lora_ga_config", "qalora_group_size", "velora_config"),
    )
)
"""Keys of a config that are read here, or say how training began and went on."""
PARTS = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_embedding_A": "table_a",
    ".lora_embedding_B": "table_b",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
    ".lora_B.bias": "shift",
    ".token_adapter.trainable_tokens_delta": "rows",
}
"""The ends of tensors' names, and what they are."""
ALL_LINEAR = "all-linear"
"""What stands for a list of all linear modules."""
NAME = re.compile(r"\^?[\w.-]{1,200}\$?")
"""A module's name, or its end, as patterns of a config have it."""
PLACE = re.compile(r" \w+ \w+ \d+")
"""Where Python says that the fault of an expression is."""
LAYER_NUMBER = re.compile(r"\.(\d+)\.")
"""The number of a layer in a module's name."""
OUTPUT_TABLE = "lm_head.weight"
"""How the name of the output's table ends, which a tied model does not store."""
SPECIFICATION = re.compile(r"(.+):(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)", re.DOTALL)
"""DIR:WEIGHT, as `--adapter` takes it."""
LARGEST_WEIGHT = 1e6
"""Of an adapter's weight and its α; larger ones are mistakes, and their products may overflow."""


class AdapterRequest(Struct, frozen=True):
    """An adapter to merge: its folder, and the factor on its change (1: as it was trained)."""

    folder: Path
    weight: float = 1.0

    @property
    def label(self) -> str:
        """The adapter's folder as text, followed by `:WEIGHT` where the weight is not 1."""
        if self.weight == 1:
            return str(self.folder)
        return f"{self.folder}:{self.weight:g}"


def parse_adapter(text: str) -> AdapterRequest:
    """The folder and weight in `DIR` or `DIR:WEIGHT`; text that is itself the path of an adapter's
    folder is taken whole as DIR. Raises UsageError."""
    folder = text
    weight = 1.0
    if not is_there(Path(text) / CONFIG):
        match = SPECIFICATION.fullmatch(text)  # DIR and WEIGHT as its two groups
        if match is not None:
            folder = match[1]
            weight = float(match[2])
    if not text or not abs(weight) <= LARGEST_WEIGHT:  # NaN is refused, too
        raise refused_value("--adapter", text, "DIR or DIR:WEIGHT, such as lora:0.5")
    return AdapterRequest(Path(folder), weight)


class _Setting(NamedTuple):
    """What an adapter's config sets for one module: the key that says so, and the value."""

    key: str
    value: Any


class _Change(Struct, frozen=True, eq=False):
    """What one adapter changes in one module: its tensors by part (a name out of `PARTS`), the
    factor on B·A, and whether its config says that the matrix is stored [in, out]."""

    scale: float
    in_out: bool
    parts: dict[str, Array]


class MergedRows:
    """A recipe (it computes a tensor's rows when they are read): a matrix of the base plus the
    low-rank changes of its adapters, one after the other.

    in_out: whether the matrix is stored [in, out], not [out, in].
    whole: a matrix that an adapter stores in place of the base's.
    """

    def __init__(
        self,
        base: Checkpoint,
        name: str,
        changes: Sequence[_Change],
        *,
        in_out: bool,
        whole: ReplacedTensor | None = None,
    ) -> None:
        """The recipe for the tensor `name` of the base. `unit` is 1 where its rows can be computed
        one by one, 0 where only all of them together.

        changes: the low-rank matrices that are added, adapter by adapter.
        in_out: whether the base stores the matrix as [in, out].
        whole: what an adapter puts in place of the base's tensor, to which changes are added; None
            for the base's own.
        """
        self._base = base
        self._whole = whole
        self._name = name
        self._changes = changes
        self._in_out = in_out
        base_recipe = None  # of a tensor that the base itself computes; None where it is stored
        if isinstance(base, DerivedCheckpoint):
            base_recipe = base.recipes.get(name)
        by_row = base_recipe is None or base_recipe.unit == 1  # whether the base gives single rows
        # magnitudes divide by the length of each output's weights, which in a matrix stored
        # [in, out] is a column: that needs all rows at once
        needs_columns = in_out and any("magnitude" in change.parts for change in changes)
        if by_row and not needs_columns:
            self.unit = 1
        else:
            self.unit = 0
        self._count = base.info(name).shape[0]
        if whole is not None:
            self._count = len(whole.rows(0, 0))  # all of its rows, whatever is asked for

    def rows(self, start: int, stop: int) -> Array:
        """The rows start..stop-1 of the matrix with all changes merged, float64 [row, column]."""
        if self._whole is not None:
            matrix = self._whole.rows(0, self._count)[start:stop]
        elif start == 0 and stop == self._count:  # all at once, for a base without single rows
            matrix = self._base.read(self._name, "float64")
        else:
            matrix = self._base.read_rows(self._name, range(start, stop), "float64")
        for change in self._changes:
            matrix = matrix + self._delta(change, start, stop)
            # DoRA: the weights of each output are scaled to the length that the adapter states
            magnitude = change.parts.get("magnitude")
            if magnitude is not None and self._in_out:
                matrix = matrix * (magnitude / np.linalg.norm(matrix, axis=0))
            elif magnitude is not None:
                matrix = matrix * (magnitude[start:stop] / np.linalg.norm(matrix, axis=1))[:, None]
        return matrix

    def _delta(self, change: _Change, start: int, stop: int) -> Array:
        """The product s·B·A that a change adds to the rows start..stop-1 of the matrix, [row,
        column].

        Of a matrix stored [in, out] this is a part of the transposed product.
        """
        parts = change.parts
        if "table_a" in parts:  # an embedding: A is [rank, vocabulary], B is [width, rank]
            delta = parts["table_a"][:, start:stop].T @ parts["table_b"].T
        # any other matrix: A is [rank, in], B is [out, rank]
        elif self._in_out:
            delta = parts["a"][:, start:stop].T @ parts["b"].T
        else:
            delta = parts["b"][start:stop] @ parts["a"]
        return delta * change.scale


class ShiftedBias:
    """A recipe (it computes a tensor when it is read): a bias of the base plus the bias terms of
    its adapters.
    """

    unit = 0

    def __init__(self, base: Checkpoint, name: str, shifts: Sequence[Array]) -> None:
        self._base = base
        self._name = name
        self._shifts = shifts

    def rows(self, start: int, stop: int) -> Array:
        """The bias with all shifts added; start and stop are not used, for it always comes whole."""
        return sum(self._shifts, self._base.read(self._name, "float64"))


class ReplacedTensor:
    """A recipe (it gives a tensor when it is read): a tensor that an adapter stores whole, in place
    of the base's.
    """

    unit = 0

    def __init__(self, array: Array) -> None:
        self._array = array

    def rows(self, start: int, stop: int) -> Array:
        """The adapter's whole tensor; start and stop are not used."""
        return self._array


class ReplacedRows:
    """A recipe (it gives a tensor's rows when they are read): a table of the base, some of whose
    rows an adapter stores.

    weight: the share of the change.
    """

    unit = 1

    def __init__(
        self, base: Checkpoint, name: str, numbers: Sequence[int], rows: Array, weight: float
    ) -> None:
        """Take the new rows of the tensor `name` of `base`.

        numbers: which rows of the tensor are replaced.
        rows: the new rows, in the order of `numbers`.
        weight: the adapter's, by which a row moves from the old to the new one.
        """
        self._base = base
        self._name = name
        self._new_rows = dict(zip(numbers, rows, strict=True))  # by number
        self._weight = weight

    def rows(self, start: int, stop: int) -> Array:
        """The rows start..stop-1 of the table, those of the adapter among them, float64."""
        table = self._base.read_rows(self._name, range(start, stop), "float64")
        for number, row in self._new_rows.items():
            if start <= number < stop:
                base_row = table[number - start]
                if self._weight == 1:  # exactly the adapter's row, without a rounding
                    table[number - start] = row
                else:
                    table[number - start] = base_row + self._weight * (row - base_row)
        return table


class AdaptedCheckpoint(DerivedCheckpoint):
    """A `Checkpoint` with adapters merged into it as its tensors are read.

    base: the checkpoint that they change; tensors without a change are read from it.

    adapters: the label of each, for headings.
    shapes: of token tables whose number of rows an adapter changes, by tensor name.
    tokenizer: a tokenizer.json that belongs to such tables, in place of the base's.
    """

    def __init__(
        self,
        base: Checkpoint,
        recipes: Mapping[str, Recipe],
        adapters: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
        tokenizer: Path | None,
    ) -> None:
        """The base with these recipes for some of its tensors; where tables have other shapes than
        the base's, the config states the new size of the vocabulary.

        adapters: what the merged adapters are called, in the order in which they were merged.
        shapes: the new shapes of token tables, by the tensor's name.
        tokenizer: the file that replaces the base's tokenizer; None to keep that.
        """
        names = dict(base.names())
        for name, shape in shapes.items():
            names[name] = replace(names[name], shape=shape)
        config = base.config
        if shapes:
            # all tables of tokens have the same number of rows, the new size of the vocabulary
            size, *_ = next(iter(shapes.values()))
            config = _with_vocabulary(config, size)
        super().__init__(base.folder, config, names, recipes)
        self.base = base
        self.adapters = tuple(adapters)
        self.notes = base.notes
        self.format = base.format
        self._shapes = shapes
        self._tokenizer = tokenizer

    @property
    def vocabulary_name(self) -> str | None:
        """tokenizer.json where the adapter brings it, else what the base has."""
        if self._tokenizer is None:
            return self.base.vocabulary_name
        return "tokenizer.json"

    @property
    def tokenizer_path(self) -> Path | None:
        """The tokenizer.json of the adapter's larger vocabulary, else what the base brings."""
        return self._tokenizer or self.base.tokenizer_path

    @property
    def quantization(self) -> str | None:
        """How the base's weights are quantised, such as "Q4_K, Q6_K"; None for plain floats."""
        return self.base.quantization

    def read(self, name: str, dtype: str | None = None) -> Array:
        """A whole tensor with its adapters merged, or as the base has it; in its stored type, or as
        the float type `dtype`."""
        if name in self.recipes:
            return super().read(name, dtype)
        self.bytes_read += self.info(name).bytes
        return self.base.read(name, dtype)

    def read_rows(self, name: str, rows: Sequence[int], dtype: str | None = None) -> Array:
        """The rows with these numbers on the first axis, in this order, with adapters merged;
        arguments as `Checkpoint.read_rows`."""
        if name in self.recipes:
            return super().read_rows(name, rows, dtype)
        return self.base.read_rows(name, rows, dtype)

    def product(
        self,
        name: str,
        x: arrays.Array,
        backend: arrays.Backend,
        bias: arrays.Array | None = None,
        *,
        in_out: bool = False,
    ) -> arrays.Array | None:
        """x·Wᵀ + b, [row, out], with the stored matrix W and its adapters; None where it must be
        read with `read` instead: W that adapters change is not multiplied piece by piece.

        name: the tensor W.
        x: [row, in].
        bias: b, [out]; None for none.
        in_out: whether W is stored as [in, out].
        """
        if name in self.recipes:
            return None
        return self.base.product(name, x, backend, bias, in_out=in_out)

    def ahead(self, names: Sequence[str]) -> None:
        """Announce which tensors will be read next, in this order, so that a thread can read them
        ahead; those that an adapter changes are left out, since they are computed and not read.
        """
        self.base.ahead([name for name in names if name not in self.recipes])

    def part(self, names: Mapping[str, str], config: dict[str, Any]) -> Checkpoint:
        """A checkpoint of some of these tensors under new names and another config.

        names: the old name of each new one; adapters stay merged.
        """
        recipes = {new: self.recipes[old] for new, old in names.items() if old in self.recipes}
        shapes = {new: self._shapes[old] for new, old in names.items() if old in self._shapes}
        base = self.base.part(names, config)
        return AdaptedCheckpoint(base, recipes, self.adapters, shapes, self._tokenizer)

    def close(self) -> None:
        """Close the files of the base, too."""
        self.base.close()


def merge_adapters(base: Checkpoint, requests: Sequence[AdapterRequest]) -> AdaptedCheckpoint:
    """A checkpoint with these adapters merged into it, one after the other.

    Raises InputError for a folder that holds none, for tensors that fit no matrix of the base, and
    for shapes that contradict it; UnsupportedError for adapters other than LoRA with its relatives,
    and for GGUF files.
    """
    if base.format == "gguf":
        what = message("adapters change the tensors of a folder, and this is a GGUF file")
        expected = message("the folder of the model that the adapter was trained on")
        # a split model has several files, of which the first tensor's stands for all
        first_tensor = next(iter(base.names().values()))
        raise UnsupportedError(what, where=str(first_tensor.file), expected=expected)
    merge = _Merge(base)
    for request in requests:
        _read_adapter(merge, request)
    recipes = merge.recipes

    # matrices with low-rank changes
    for name, matrix_changes in merge.changes.items():
        # what an adapter puts in the matrix's place; None: the changes are to the base's own
        whole = recipes.get(name)
        shape = merge.shapes.get(name, base.info(name).shape)
        in_out = _is_in_out(shape, matrix_changes[0])
        out_in_shape = shape
        if in_out:
            out_in_shape = shape[::-1]
        for change in matrix_changes:
            if not _change_fits(out_in_shape, change.parts):
                raise _misfit_error(base, name, change.parts)
        if not isinstance(whole, ReplacedTensor | None):
            raise UnsupportedError(
                "adapters replace rows of {name} and change it by matrices as well",
                where=listing(str(request.folder) for request in requests),
                expected=message("one of the two"),
                name=repr(name),
            )
        recipes[name] = MergedRows(base, name, matrix_changes, in_out=in_out, whole=whole)

    # biases
    for name, bias_shifts in merge.shifts.items():
        if any(shift.shape != base.info(name).shape for shift in bias_shifts):
            raise _misfit_error(base, name, {"shift": bias_shifts[0]})
        recipes[name] = ShiftedBias(base, name, bias_shifts)

    _check_tables(merge, requests)
    labels = [request.label for request in requests]
    return AdaptedCheckpoint(base, recipes, labels, merge.shapes, merge.tokenizer)


class _Merge:
    """What adapters change in a base, gathered while they are read."""

    def __init__(self, base: Checkpoint) -> None:
        """No changes yet; each dictionary goes by the names of the base's tensors."""
        self.base = base
        # low-rank changes of matrices, adapter by adapter
        self.changes: dict[str, list[_Change]] = {}
        # what is added to biases
        self.shifts: dict[str, list[Array]] = {}
        # how to get the tensors that are replaced, whole or by row
        self.recipes: dict[str, Recipe] = {}
        # of token tables whose number of rows an adapter changes
        self.shapes: dict[str, tuple[int, ...]] = {}
        # output tables that an adapter stores and the base does not, as it uses its token table
        self.heads: dict[str, Array] = {}
        # the tokenizer.json of an adapter that changes the vocabulary's size
        self.tokenizer: Path | None = None


def _with_vocabulary(config: dict[str, Any], size: int) -> dict[str, Any]:
    """A copy of a config.json with `vocab_size` set to `size`, within `text_config` where it
    stands there."""
    inner = config.get("text_config")
    if isinstance(inner, dict) and "vocab_size" in inner:
        return {**config, "text_config": {**inner, "vocab_size": size}}
    return {**config, "vocab_size": size}


def _vocabulary_size(config: Mapping[str, Any]) -> object:
    """The `vocab_size` of a config.json, from `text_config` where it stands there; None where none
    is stated."""
    inner = config.get("text_config")
    if isinstance(inner, dict) and "vocab_size" in inner:
        return inner["vocab_size"]
    return config.get("vocab_size")


def _replace_whole(merge: _Merge, module: str, array: Array, folder: Path) -> None:
    """Add to `merge` a tensor that an adapter stores whole, in place of the base's.

    module: the tensor's name in the adapter, which may have leading words of its own.

    Raises InputError for one that has another shape, unless it is a table of tokens with another
    number of rows.
    """
    base = merge.base
    tied = not any(name.endswith(OUTPUT_TABLE) for name in base.names())
    if module.endswith(OUTPUT_TABLE) and tied:
        # `_check_tables` compares it with the token table that the base uses for its output, too
        merge.heads[module] = array
        return
    target = _base_tensor(base, module, str(folder))
    shape = base.info(target).shape
    if shape != array.shape:
        is_table = len(shape) == 2 and shape[0] == _vocabulary_size(base.config)
        if not is_table or array.shape[1:] != shape[1:]:
            raise _misfit_error(base, target, {"whole": array})
        # a table of another size comes with a tokenizer of its own, where the adapter has one
        merge.shapes[target] = array.shape
        adapter_tokenizer = guarded_path(folder.resolve(), "tokenizer.json")
        if is_there(adapter_tokenizer):
            merge.tokenizer = adapter_tokenizer
    merge.recipes[target] = ReplacedTensor(array.astype(np.float64))


def _check_tables(merge: _Merge, requests: Sequence[AdapterRequest]) -> None:
    """Raise UnsupportedError where the token tables that adapters bring do not fit together: with
    different rows, or with an output table separate from the input table that it is tied to.
    """
    base = merge.base
    where = listing(str(request.folder) for request in requests)

    # every base tensor that had the old shape of a resized table must be resized alike
    for name, shape in merge.shapes.items():
        old = base.info(name).shape
        for table, info in base.names().items():
            if info.shape == old and merge.shapes.get(table, old) != shape:
                raise UnsupportedError(
                    "the adapter has a larger or smaller vocabulary: {name} has {count:,} rows, and"
                    " {table} {old:,}",
                    where=where,
                    expected=message("both tables from the adapter, of as many tokens"),
                    name=repr(name),
                    count=shape[0],
                    table=repr(table),
                    old=merge.shapes.get(table, old)[0],
                )

    # a tied base has one table for tokens and output, so the adapter's two must be equal
    for name, array in merge.heads.items():
        # a tensor that is replaced gives all its rows, whichever are asked for
        tables = [part for part in merge.recipes.values() if isinstance(part, ReplacedTensor)]
        if not any(np.array_equal(table.rows(0, 0), array) for table in tables):
            raise UnsupportedError(
                "the adapter has an output table of its own, {name}, where the base's is its table"
                " of tokens",
                where=where,
                expected=message("a base whose two tables are apart"),
                name=repr(name),
            )


def _replace_rows(
    merge: _Merge, module: str, rows: Array, config: Mapping[str, Any], request: AdapterRequest
) -> None:
    """Add to `merge` the rows of a token table that an adapter trained one by one. Raises InputError
    if the adapter's config does not name these rows.

    module: the table's name in the adapter, without `.weight`.
    rows: [row, width], in the order of `trainable_token_indices` in the config.
    """
    base = merge.base
    target = _base_tensor(base, f"{module}.weight", str(request.folder))
    shape = base.info(target).shape
    stated = config.get("trainable_token_indices")
    numbers: Any = stated
    if isinstance(stated, dict):  # by the end of a module's name: {"embed_tokens": [5, 7]}
        numbers = None
        for end, numbers_of_end in stated.items():
            if f".{module}".endswith(f".{end}"):
                numbers = numbers_of_end
                break
    if not isinstance(numbers, list):
        numbers = []  # which no rows fit
    fits = (
        all(type(number) is int and 0 <= number < shape[0] for number in numbers)
        and len(set(numbers)) == len(numbers)
        and rows.shape == (len(numbers), *shape[1:])
    )
    if not fits:
        raise InputError(
            "the adapter stores {rows} rows of {name}, and its config names {numbers}",
            where=str(request.folder / CONFIG),
            expected=message("an id from 0 to {last} for each row", last=shape[0] - 1),
            rows=list(rows.shape),
            name=repr(target),
            numbers=repr(numbers)[:80],
        )
    merge.recipes[target] = ReplacedRows(base, target, numbers, rows, request.weight)


def _no_adapter(place: Path) -> InputError | UnsupportedError:
    """The error, returned and not raised, that no adapter lies at this place.

    It says what lies there instead: nothing, a GGUF file (which is not read), another file, or a
    folder; and names the adapter's folder where the file lies in it or the folder holds it.
    """
    what = message("this folder holds no adapter")
    hint: Message | str = message("PEFT's save_pretrained writes one")
    if not is_there(place):
        what = message("no such folder")
    elif not is_folder(place) and place.suffix.lower() == ".gguf":
        return UnsupportedError(
            "adapters in GGUF files are not read",
            where=str(place),
            expected=f"{CONFIG} · {WEIGHTS}",
            hint=message("PEFT's save_pretrained writes one"),
        )
    elif not is_folder(place):
        what = message("this is a file, and an adapter is a folder")
        if is_there(place.with_name(CONFIG)):
            hint = f"--adapter {quote(str(place.parent))}"
    else:
        below: list[Path] = []
        # a name that the file system refuses, a folder that may not be searched
        with suppress(OSError):
            below = sorted(path.parent for path in islice(place.glob(f"*/{CONFIG}"), MOST_ENTRIES))
        if below:
            hint = f"--adapter {quote(str(below[0]))}"
    return InputError(what, where=str(place), expected=f"{CONFIG} · {WEIGHTS}", hint=hint)


def _no_adapter_weights(folder: Path) -> InputError | UnsupportedError:
    """The error, returned and not raised, that an adapter's folder lacks its weights, or has them in
    a format that is not read."""
    if is_there(folder / PICKLED):
        what = message(
            "the weights are in {second}, which is not safetensors", second=repr(PICKLED)
        )
        return UnsupportedError(what, where=str(folder), expected=WEIGHTS)
    what = message("this adapter has a config and no weights")
    return InputError(what, where=str(folder), expected=WEIGHTS)


def _read_adapter(merge: _Merge, request: AdapterRequest) -> None:
    """Read the adapter in one folder and add its changes to `merge`.

    Raises InputError for missing or contradicting files, and UnsupportedError for an adapter that
    cannot be merged.
    """
    base = merge.base
    folder = request.folder

    # the config
    if not is_folder(folder) or not is_there(guarded_path(folder.resolve(), CONFIG)):
        raise _no_adapter(folder)
    real = folder.resolve()
    config = read_object(guarded_path(real, CONFIG), what="an adapter's config")
    where = str(folder / CONFIG)
    _check_config(config, request, where)
    if not is_there(guarded_path(real, WEIGHTS)):
        raise _no_adapter_weights(folder)

    # its tensors: whole ones and rows at once, the parts of low-rank changes gathered by module
    modules: dict[str, dict[str, Array]] = {}
    for name, array in tensor_file(guarded_path(real, WEIGHTS)).tensors().items():
        module, part = _module_and_part(name)
        if ".original_module." in name:
            continue  # a copy of the base's tensor, stored beside the one that replaces it
        if part == "whole":
            _replace_whole(merge, module, array, folder)
        elif part == "rows":
            _replace_rows(merge, module, array.astype(np.float64), config, request)
        else:
            modules.setdefault(module, {})[part] = array.astype(np.float64)

    # what the config says of these modules: may they be changed, and with which α and rank
    names = list(modules)
    _check_targets(config, names, where)
    alphas = _values_by_pattern(config, "alpha_pattern", "lora_alpha", names, where)
    ranks = _values_by_pattern(config, "rank_pattern", "r", names, where)

    for module, parts in modules.items():
        target = _base_tensor(base, f"{module}.weight", str(folder))
        # the matrices A and B of an embedding table have names of their own
        matrices = ("a", "b")
        if "table_a" in parts:
            matrices = ("table_a", "table_b")
        for matrix in matrices:
            if matrix not in parts:
                raise InputError(
                    "the change of {module} has no {part}",
                    where=str(folder),
                    expected="both matrices",
                    module=repr(module),
                    part=repr(matrix),
                )
        rank = parts[matrices[0]].shape[0]  # A is [rank, …]
        _check_change(config, module, parts, (ranks[module], rank), where)
        scale = _change_scale(config, alphas[module], rank, where) * request.weight
        shift = parts.pop("shift", None)  # a bias of B, which changes another tensor than A and B
        if "magnitude" in parts:
            parts["magnitude"] = parts["magnitude"].reshape(-1)  # some versions store [1, out]
        change = _Change(scale, bool(config.get("fan_in_fan_out")), parts)
        merge.changes.setdefault(target, []).append(change)
        if shift is None:
            continue
        if not _has_bias(base, module):
            raise UnsupportedError(
                _config_setting("lora_bias", config.get("lora_bias")),
                where=where,
                expected=message("a base whose {module} has a bias", module=repr(module)),
            )
        # PEFT adds s·(B·A·x + shift): the bias has the factor, too
        bias_name = _base_tensor(base, f"{module}.bias", str(folder))
        merge.shifts.setdefault(bias_name, []).append(shift * scale)


def _check_config(config: Mapping[str, Any], request: AdapterRequest, where: str) -> None:
    """Raise UnsupportedError for an adapter that cannot be merged, judged by its
    adapter_config.json: another kind than LoRA, a setting that is not read here, or DoRA with a
    weight."""
    kind = config.get("peft_type")
    if kind is None:
        what = message("{file} does not say of which kind this adapter is", file=CONFIG)
        if "fine_tune_type" in config:
            what = message("this adapter is in the format of mlx-lm")
        raise UnsupportedError(what, where=where, expected="a peft_type, as PEFT writes it")
    if kind != "LORA":
        raise UnsupportedError(
            "this adapter is of the kind {kind}", where=where, expected="LORA", kind=repr(kind)[:80]
        )
    # `PLAIN` are the settings that are followed here or change nothing by themselves; of the
    # others, one that is empty or off asks for nothing
    for key, value in config.items():
        if key not in PLAIN and value not in (None, False, [], {}):
            raise UnsupportedError(
                _config_setting(key, value),
                where=where,
                expected="an adapter of B·A, its scale and its magnitudes",
            )
    if config.get("use_dora") and request.weight != 1:
        what = message(
            "an adapter with magnitudes has no share of {weight:g}", weight=request.weight
        )
        raise UnsupportedError(
            what, where=str(request.folder), expected="the whole adapter, without a weight"
        )


def _check_change(
    config: Mapping[str, Any],
    module: str,
    parts: Mapping[str, Array],
    ranks: tuple[_Setting, int],
    where: str,
) -> None:
    """Raise InputError for a change of a module that adapter_config.json contradicts: PEFT would
    load another adapter, or none.

    Args:
        config: What the file says.
        module: The name of the module.
        parts: The tensors that change it, by what they are.
        ranks: The rank that the file states for the module, and the one that its matrix A has.
        where: The path of the file.
    """
    stated, rank = ranks
    if stated.value is not None and stated.value != rank:
        raise InputError(
            _config_setting(stated.key, config[stated.key]),
            where=where,
            expected=message("{rank}, the rank of {module}", rank=rank, module=repr(module)),
        )
    if config.get("use_dora") and "magnitude" not in parts:
        raise InputError(
            _config_setting("use_dora", config["use_dora"]),
            where=where,
            expected=message("the magnitudes of {module}", module=repr(module)),
        )
    layers = config.get("layers_to_transform")
    if isinstance(layers, int):
        layers = [layers]
    layer = LAYER_NUMBER.search(module)
    if layers and layer and int(layer[1]) not in layers:
        raise InputError(
            _config_setting("layers_to_transform", layers),
            where=where,
            expected=message("the layer of {module} among them", module=repr(module)),
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value of a JSON file is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _config_setting(key: str, value: object) -> Message:
    """A message, part of an error, that names a key of adapter_config.json and its refused value."""
    return message("{file} sets {key} to {value}", file=CONFIG, key=key, value=repr(value)[:80])


def _values_by_pattern(
    config: Mapping[str, Any], key: str, usual: str, modules: Sequence[str], where: str
) -> dict[str, _Setting]:
    """What a config sets for each module: the value of the first entry of config[key] that matches
    its name, else config[usual]. As in PEFT, an entry is an expression for the end of a name,
    beginning at a word.

    key: the setting that holds values by expression, such as "rank_pattern".
    usual: the setting for modules without an entry of their own, such as "r".
    modules: the names of the modules.
    where: the path of the config, for errors.

    Raises InputError for an entry that is no expression or whose value is no number, and
    UnsupportedError for an expression that takes too long.
    """
    settings = dict.fromkeys(modules, _Setting(usual, config.get(usual)))
    patterns = config.get(key) or {}  # null says nothing
    if not isinstance(patterns, dict) or not all(map(_is_number, patterns.values())):
        raise InputError(
            _config_setting(key, patterns),
            where=where,
            expected="names of modules, or expressions for them, each with a number",
        )
    expressions = [pattern for pattern in patterns if not NAME.fullmatch(pattern)]
    for_whole_names = [rf"(.*\.)?({pattern})$" for pattern in expressions]
    # only real expressions need the bounded process; plain names are compared below
    matching_modules = _match_modules(key, expressions, for_whole_names, modules, where)
    matches = dict(zip(expressions, matching_modules, strict=True))
    settled: set[str] = set()  # modules that an earlier entry has matched
    for pattern, value in patterns.items():
        # of a plain name the anchors of an expression say nothing more
        end = "." + pattern.removeprefix("^").removesuffix("$")
        for module in modules:
            if pattern in matches:
                hit = module in matches[pattern]
            else:
                hit = f".{module}".endswith(end)
            if hit and module not in settled:
                settled.add(module)
                settings[module] = _Setting(key, value)
    return settings


def _check_targets(config: Mapping[str, Any], modules: Sequence[str], where: str) -> None:
    """Raise InputError where a config's target_modules leave out a module that the adapter changes,
    or its exclude_modules name one: PEFT would not load it. A text is an expression for whole
    names, a list holds ends of names; anything else is refused.
    """
    # each setting, and whether it must name the modules or must not
    for key, is_named in (("target_modules", True), ("exclude_modules", False)):
        stated = config.get(key)
        if stated is not None and not isinstance(stated, str | list):
            raise InputError(
                _config_setting(key, stated),
                where=where,
                expected="a list of names of modules, or one expression for them",
            )
        # "all-linear" is no expression, and names no module that could be compared
        if isinstance(stated, str) and stated != ALL_LINEAR:
            whole = [rf"^(?:{stated})$"]
            (fitting,) = _match_modules(key, [stated], whole, modules, where)
        elif isinstance(stated, list) and stated:
            fitting = frozenset(
                module
                for module in modules
                if any(f".{module}".endswith(f".{end}") for end in stated)
            )
        else:
            continue
        for module in modules:
            if module in fitting and not is_named:
                expected = message("all but {module}", module=repr(module))
                raise InputError(_config_setting(key, stated), where=where, expected=expected)
            if module not in fitting and is_named:
                expected = message("{module} among them", module=repr(module))
                raise InputError(_config_setting(key, stated), where=where, expected=expected)


def _match_modules(
    key: str, patterns: Sequence[str], whole: Sequence[str], modules: Sequence[str], where: str
) -> list[frozenset[str]]:
    """For each expression, the modules that it matches. The search runs in a bounded process, since
    an expression may never end.

    Args:
        key: The setting of adapter_config.json.
        patterns: Its expressions as they stand there.
        whole: The same as they are matched, from the beginning of a name.
        modules: The names.
        where: The path of the file.

    Raises:
        InputError: For what is no expression.
        UnsupportedError: For one that takes too long.
    """
    if not patterns:
        return []  # no process is started
    try:
        places = run_bounded("pattern", {"patterns": list(whole), "names": list(modules)})
    except TaskError as error:
        # the number of the expression that failed; None where the process ended before the first
        what = _config_setting(key, patterns[error.place or 0])
        if error.kind == "pattern":
            # Python's "at position 7" counts within `whole`, not in what the user wrote: cut it off
            reason = PLACE.split(str(error))[0]
            expected = message("a regular expression, as Python has them: {reason}", reason=reason)
            raise InputError(what, where=where, expected=expected) from error
        raise UnsupportedError(
            what,
            where=where,
            expected=message("an expression for names of modules that is told in seconds"),
        ) from error
    # for each expression the task returns spans (index, index + 1), one for each matching module
    return [frozenset(modules[index] for index, _ in hits) for hits in places]


def _change_scale(config: Mapping[str, Any], alpha: _Setting, rank: int, where: str) -> float:
    """The factor on B·A without the request's own weight: α/r, or α/√r where the config is
    rank-stabilised. Raises InputError for an α that is no number, or too large a one."""
    if not _is_number(alpha.value) or not abs(alpha.value) < LARGEST_WEIGHT or rank < 1:
        setting = _config_setting(alpha.key, config.get(alpha.key))
        raise InputError(setting, where=where, expected="a number")
    if config.get("use_rslora"):
        return float(alpha.value) / rank**0.5
    return float(alpha.value) / rank


def _module_and_part(name: str) -> tuple[str, str]:
    """The name of the module that an adapter's tensor belongs to, and its part: a value of `PARTS`,
    such as "a" for `base_model.model.h.0.q.lora_A.weight` of the module `h.0.q`; "whole", with the
    tensor's own name, for a tensor that replaces the base's."""
    short = name.removeprefix(PREFIX)
    for end, part in PARTS.items():
        if short.endswith(end):
            return short.removesuffix(end), part
    # steps that PEFT puts into the name where it wraps a module
    return short.replace(".base_layer.", ".").replace(".modules_to_save.", "."), "whole"


def _base_tensor(base: Checkpoint, name: str, where: str) -> str:
    """The name of the base's tensor that a tensor name of the adapter stands for, which may have
    more or fewer leading words. Raises InputError where there is none.

    For `model.layers.0.q.weight` these are tried: the same name, one tensor whose name only has
    more words before it, then `layers.0.q.weight` and so on with fewer words.
    """
    names = base.names()
    words = name.split(".")
    for start in range(len(words) - 1):
        candidate = ".".join(words[start:])
        if candidate in names:
            return candidate
        longer = [stored for stored in names if stored.endswith(f".{candidate}")]
        if len(longer) == 1 and start == 0:
            return longer[0]
    what = message("the base has no tensor {name}, which the adapter changes", name=repr(name))
    raise InputError(what, where=where, expected="the model that the adapter was trained on")


def _has_bias(base: Checkpoint, module: str) -> bool:
    """Whether the base has a bias for a module of the adapter, whose name may have more or fewer
    leading words there."""
    words = module.split(".")
    shorter_names = {".".join(words[start:]) + ".bias" for start in range(len(words) - 1)}
    return any(name in shorter_names or name.endswith(f".{module}.bias") for name in base.names())


def _is_in_out(shape: tuple[int, ...], change: _Change) -> bool:
    """Whether the base stores a matrix of this shape as [in, out]: a change fits it only that way
    round, or, of a square matrix, both ways, and the adapter's config says so."""
    if not _change_fits(shape[::-1], change.parts):
        return False
    return change.in_out or not _change_fits(shape, change.parts)


def _change_fits(shape: tuple[int, ...], parts: Mapping[str, Array]) -> bool:
    """Whether the low-rank matrices among these parts multiply to this shape: that of a matrix,
    [out, in], or of an embedding table, [token, width]."""
    if "table_a" in parts:  # A [rank, token], B [width, rank]
        a = parts["table_a"]
        b = parts["table_b"]
        return (
            a.ndim == b.ndim == 2 and shape == (a.shape[1], b.shape[0]) and a.shape[0] == b.shape[1]
        )
    # A [rank, in], B [out, rank], and perhaps a magnitude for each output
    a = parts["a"]
    b = parts["b"]
    fits = a.ndim == b.ndim == 2 and a.shape[0] == b.shape[1] and shape == (b.shape[0], a.shape[1])
    return fits and ("magnitude" not in parts or parts["magnitude"].shape == (shape[0],))


def _misfit_error(base: Checkpoint, name: str, parts: Mapping[str, Array]) -> InputError:
    """The error, returned and not raised, that these parts of an adapter do not fit the base's
    tensor of this name.
    """
    info: TensorInfo = base.info(name)
    return InputError(
        "tensor {name} has shape {shape}, and the adapter changes it by {parts}",
        where=str(info.file),
        expected="the model that the adapter was trained on",
        name=repr(name),
        shape=list(info.shape),
        parts=listing(f"{part} {list(array.shape)}" for part, array in parts.items()),
    )
