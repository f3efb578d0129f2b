"""The sizes that a file's tensors state, checked against each other and against what the asker says."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from attncli.errors import InputError, UsageError
from attncli.models.layouts.layout import LayoutRequest
from attncli.models.layouts.named_tensors import Array


class LayoutSizes(Struct, frozen=True):
    """Sizes of the attention in a file. bias, output_projection, layer_norm: whether it holds their tensors."""

    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    d_v: int
    bias: bool
    output_projection: bool
    layer_norm: bool


def facts_of(
    weights: Mapping[str, Array],
    file_names: Mapping[str, str],
    metadata: Mapping[str, str],
    where: str,
    head_count: int | None,
    request: LayoutRequest,
) -> tuple[LayoutSizes, tuple[str, ...]]:
    """The sizes, and what to say about an assumption that was made.

    file_names: the file's own names by canonical name, for messages. head_count: the heads that the tensors tell of.
    Raises InputError for shapes that do not fit together, UsageError for sizes asked for that are not the file's.
    """
    label = _Labels(file_names, where)
    q, k, v = (weights[f"{role}.weight"] for role in "qkv")
    width = q.shape[1]
    for role, array in (("k", k), ("v", v)):
        if array.shape[1] != width:
            raise label.wrong(f"{role}.weight", array, f"{width} inputs, as {label.of('q.weight')} has")
    _check_option("--d-model", request.d_model, width, where)
    count, note = _heads(weights, metadata, where, head_count, request)
    if q.shape[0] % count:
        raise UsageError(
            f"the queries are {q.shape[0]} wide ({label.of('q.weight')}), which {count} heads cannot share",
            where=where,
            expected="a number of heads that divides the width",
            hint=f"--num-heads {max(n for n in range(1, min(count, q.shape[0]) + 1) if q.shape[0] % n == 0)}",
        )
    dim = q.shape[0] // count
    _check_option("--d-k", request.d_k, dim, where)
    kv_heads = k.shape[0] // dim
    if k.shape[0] % dim or count % kv_heads:
        raise label.wrong(
            "k.weight", k, f"rows for kv heads of width {dim}, as the queries have, that {count} heads can share"
        )
    if v.shape[0] % kv_heads:
        raise label.wrong("v.weight", v, f"rows that {kv_heads} heads can share")
    v_dim = v.shape[0] // kv_heads
    _check_option("--d-v", request.d_v, v_dim, where)
    _check_rest(weights, label, count * v_dim, width)
    _check_learned(weights, label, where, {"bias_k": kv_heads * dim, "bias_v": kv_heads * v_dim})
    biased = any(f"{role}.bias" in weights for role in "qkvo")
    return LayoutSizes(
        width, count, kv_heads, dim, v_dim, biased, "o.weight" in weights, "norm.weight" in weights
    ), note


class _Labels:
    """The file's own names in messages."""

    def __init__(self, file_names: Mapping[str, str], where: str) -> None:
        self._file_names = {role: name for roles, name in file_names.items() for role in roles.split()}
        self._where = where

    def of(self, role: str) -> str:
        return self._file_names.get(role, role)

    def wrong(self, role: str, array: Array, expected: str) -> InputError:
        suffix = " as [out, in]" if array.ndim == 2 else ""
        return InputError(
            f"{self.of(role)} has shape {list(array.shape)}{suffix}", where=self._where, expected=expected
        )


def _check_option(option: str, option_value: int | None, file_value: int, where: str) -> None:
    if option_value not in (None, file_value):
        raise UsageError(
            f"{option} is {option_value}, the file's is {file_value}",
            where=where,
            expected=f"{option} {file_value}, or none",
        )


def _heads(
    weights: Mapping[str, Array],
    metadata: Mapping[str, str],
    where: str,
    head_count: int | None,
    request: LayoutRequest,
) -> tuple[int, tuple[str, ...]]:
    """How many heads: what the tensors tell, else the asker, else the metadata, else what d_k gives, else 1."""
    metadata_count = metadata.get("num_heads", "")
    if head_count is not None:
        _check_option("--num-heads", request.heads, head_count, where)
        return head_count, ()
    if request.heads is not None:
        if request.heads < 1:
            raise UsageError(f"--num-heads is {request.heads}", expected="a whole number, at least 1")
        if metadata_count in ("", str(request.heads)):
            return request.heads, ()
        return request.heads, (
            f"the file's metadata give {metadata_count[:40]!r} heads; read as {request.heads}, as --num-heads says",
        )
    rows = weights["q.weight"].shape[0]
    if metadata_count:
        if (
            not metadata_count.isdecimal()
            or len(metadata_count) > 9
            or int(metadata_count) < 1
            or rows % int(metadata_count)
        ):
            raise InputError(
                f"the file's metadata give {metadata_count[:40]!r} heads",
                where=where,
                expected=f"a divisor of {rows} rows",
            )
        return int(metadata_count), ()
    if request.d_k is not None and request.d_k > 0 and rows % request.d_k == 0:
        return rows // request.d_k, ()
    if "o.weight" not in weights:
        return 1, ()
    return 1, ("the file does not say how many heads it has; read as 1 (--num-heads N)",)


def _check_rest(weights: Mapping[str, Array], label: _Labels, mixed: int, d_model: int) -> None:
    """Biases, output projection, learned key and norm against the widths they meet. mixed: heads · d_v."""
    output = weights.get("o.weight")
    if output is not None and output.shape[1] != mixed:
        raise label.wrong("o.weight", output, f"{mixed} inputs, heads × d_v")
    if output is not None and output.shape[0] != d_model:
        raise label.wrong("o.weight", output, f"{d_model} outputs, as wide as what {label.of('q.weight')} takes")
    widths = {f"{role}.bias": weights[f"{role}.weight"].shape[0] for role in "qkvo" if f"{role}.weight" in weights}
    leaving = mixed if output is None else output.shape[0]
    for role, width in {**widths, "norm.weight": leaving, "norm.bias": leaving}.items():
        if role in weights and weights[role].shape != (width,):
            raise label.wrong(role, weights[role], f"[{width}]")
    if "o.bias" in weights and output is None:
        raise label.wrong("o.bias", weights["o.bias"], "an output projection beside its bias")
    if "norm.bias" in weights and "norm.weight" not in weights:
        raise label.wrong("norm.bias", weights["norm.bias"], "norm.weight beside it")


def _check_learned(weights: Mapping[str, Array], label: _Labels, where: str, sizes: Mapping[str, int]) -> None:
    """The learned key and value that torch's module appends (add_bias_kv)."""
    present = [name for name in sizes if name in weights]
    if len(present) == 1:
        raise InputError(
            f"the file has {label.of(present[0])} alone", where=where, expected="both bias_k and bias_v, or neither"
        )
    for name in present:
        if weights[name].size != sizes[name]:
            raise label.wrong(name, weights[name], f"{sizes[name]} numbers")
