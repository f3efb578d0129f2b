"""The document of `attn weights`: tensors of a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec.structs import asdict

from attncli.documents import Count, Document, Part, Size, describe
from attncli.errors import AttnError, LimitError, UnsupportedError
from attncli.inputs.safetensors_file import dtype_of_name
from attncli.inputs.tensors import TensorSummary, tensor_file
from attncli.language import message
from attncli.models.layout import EMPTY_REQUEST, LayoutRequest, is_mask
from attncli.models.one_layer import digest
from attncli.models.weight_file import recognise
from attncli.version import __version__


class TensorRow(Part, frozen=True, kw_only=True):
    """A tensor with its statistics, over the finite values; null where the numbers were not read."""

    name: str
    dtype: str
    shape: list[Count]
    bytes: Annotated[
        Count | None,
        describe("Size of the data in bytes; null for a data type NumPy has no numbers for."),
    ]
    role: Annotated[
        str | None, describe("What the tensor is used as, apart by spaces; null if it is not used.")
    ]
    min: float | None
    mean: float | None
    max: float | None
    std: float | None


class AttentionSizes(Part, frozen=True, kw_only=True):
    """Sizes of the attention that a file holds."""

    d_model: Size
    heads: Size
    kv_heads: Size
    d_k: Size
    d_v: Size
    bias: bool
    output_projection: bool
    layer_norm: bool


class EmbeddingRows(Part, frozen=True, kw_only=True):
    """The embeddings in a file."""

    rows: Count
    by: Annotated[Literal["text", "id"], describe("Whether rows go by token text or token id.")]


class WeightsDocument(Document, tag="attn.weights/1", frozen=True, kw_only=True):
    """A weight file: its tensors and how they are read."""

    file: str
    layout: Annotated[str | None, describe("The recognised layout in words; null if none was.")]
    digest: Annotated[
        str | None, describe("sha256 of the weights, as in every document about them.")
    ]
    sizes: Annotated[
        AttentionSizes | None, describe("Sizes of the attention; null if no layout was recognised.")
    ]
    embedding: Annotated[EmbeddingRows | None, describe("The embeddings in the file, if any.")]
    metadata: Annotated[dict[str, str], describe("Texts stored in the file.")]
    tensors: list[TensorRow]
    warnings: list[str]


SAVED = message("stages of a run, as attn run --save wrote them (attn view FILE shows the run)")
SAVED_ROLES = {
    "q": "Q", "k": "K", "v": "V", "raw": "S", "scaled": message("S scaled"), "capped": message("S capped"),
    "biased": message("S biased"), "masked": message("S masked"), "weights": "A", "mixed": "O",
    "out": message("O of all"),
}  # fmt: skip
"""What a learner calls the stages that are saved, by the last part of their tensors' names."""


def weights_document(path: Path, request: LayoutRequest = EMPTY_REQUEST) -> WeightsDocument:
    """The tensors of a file with their statistics, and the attention they make up.

    A file that is no attention is listed all the same, and `warnings` says why; so is one whose
    numbers cannot be read (too large, data types without numbers), then without statistics. Raises
    InputError for a file that is damaged.
    """
    file = tensor_file(path)
    summaries = file.summaries
    metadata = file.metadata
    layout: str | None = None
    weights_digest: str | None = None
    sizes: AttentionSizes | None = None
    embedding: EmbeddingRows | None = None
    warnings: list[str] = []
    roles: dict[str, str] = {}  # of each tensor; "" where it is not used
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    # what the tensors are used as: stages of a saved run, or the weights of an attention
    try:
        arrays = file.tensors(allow_nonfinite=True)
    except (UnsupportedError, LimitError) as error:
        warnings.append(message("the numbers were not read: {what}", what=error.what))
    if is_saved_run(metadata):
        layout = SAVED
        for name in arrays:
            stage = name.rpartition(".")[2]  # "q" of "layers.0.q"
            if stage in SAVED_ROLES:
                roles[name] = SAVED_ROLES[stage]
            if name.startswith("hidden."):
                roles[name] = "X"
    elif arrays:
        try:
            layout_file = recognise(arrays, metadata, str(path), request)
        except AttnError as error:  # a file that is no attention is listed all the same
            warnings.append(_not_read_warning(error))
        else:
            roles = layout_file.roles
            layout = layout_file.layout
            weights_digest = digest(layout_file.weights)
            sizes = AttentionSizes(**asdict(layout_file.facts))
            if layout_file.vocabulary is not None:
                by: Literal["id", "text"] = "text"
                if layout_file.vocabulary.places is None:  # without texts, rows go by id
                    by = "id"
                embedding = EmbeddingRows(rows=len(layout_file.vocabulary.rows), by=by)
            warnings += layout_file.every_note

    # a row for each tensor
    statistics = _statistics(arrays)
    rows = []
    for info in summaries:
        about = statistics.get(info.name, NOT_READ)
        numbers = {"min": about.min, "mean": about.mean, "max": about.max, "std": about.std}
        shape = list(info.shape)
        size = _data_bytes(info)
        role = roles.get(info.name) or None
        rows.append(
            TensorRow(
                name=info.name, dtype=info.dtype, shape=shape, bytes=size, role=role, **numbers
            )
        )
        # a mask has −∞ by nature
        if about.odd and not is_mask(info.name, arrays[info.name]):
            warnings.append(
                message(
                    "{info} holds {odd:,} of {size:,} values that are not finite; such a file does"
                    " not run",
                    info=info.name,
                    odd=about.odd,
                    size=arrays[info.name].size,
                )
            )
    return WeightsDocument(
        version=__version__,
        file=str(path),
        layout=layout,
        digest=weights_digest,
        sizes=sizes,
        embedding=embedding,
        metadata=metadata,
        tensors=rows,
        warnings=warnings,
    )


def _not_read_warning(error: AttnError) -> str:
    """The warning that a file is not read as an attention, with the reason and what was expected."""
    if error.expected:
        return message(
            "not read as an attention: {reason}; expected {what}",
            reason=error.what,
            what=error.expected,
        )
    return message("not read as an attention: {reason}", reason=error.what)


def is_saved_run(metadata: Mapping[str, str]) -> bool:
    """Whether a tensor file is what `attn run --save` wrote: stages of a run, not weights."""
    # its metadata are JSON texts, so that the name stands in quotes
    return metadata.get("schema", "").strip('"') == "attn.run/1"


class Statistics(NamedTuple):
    """Least, mean, largest and standard deviation of a tensor's finite values, in float64; None
    where it has none.

    odd: how many of its values are not finite.
    """

    min: float | None = None
    mean: float | None = None
    max: float | None = None
    std: float | None = None
    odd: int = 0


NOT_READ = Statistics()
"""Of a tensor that has no finite value, or was not read."""
TOGETHER = 2**20
"""Values of small tensors that are looked at in one go: a call takes longer than a small tensor."""


def _statistics(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Statistics]:
    """The statistics of each tensor, by name; small tensors of one data type and size are computed
    together, since a call takes longer than such a tensor.

    arrays: the tensors, by name.
    """
    alike: dict[tuple[np.dtype[Any], int], list[str]] = {}
    for name, array in arrays.items():
        alike.setdefault((array.dtype, array.size), []).append(name)
    by_name: dict[str, Statistics] = {}
    for (_, size), names in alike.items():
        # tensors at once: one at least, however large, and of empty ones (size 0) as of single values
        most = max(TOGETHER // max(size, 1), 1)
        for first in range(0, len(names), most):
            group_names = names[first : first + most]
            rows = [arrays[name].reshape(1, -1) for name in group_names]
            if len(rows) == 1:
                matrix = rows[0]
            else:
                matrix = np.concatenate(rows)
            by_name.update(zip(group_names, _row_statistics(matrix), strict=True))
    return by_name


def _row_statistics(array: np.ndarray[Any, Any]) -> Iterator[Statistics]:
    """Yield the statistics of each row of an array, [row, value]."""
    # NumPy cannot take the mean of bfloat16, and that of float16 overflows
    values = array
    if array.dtype.name in ("bfloat16", "float16"):
        values = array.astype(np.float32)

    # rows with values that are not finite lose these, and so differ in length: one at a time
    finite = np.isfinite(values)
    odd = values.shape[1] - np.count_nonzero(finite, axis=1)  # of each row
    if odd.any():
        for row, is_finite, odd_count in zip(values, finite, odd.tolist(), strict=True):
            # this same function on a matrix of the row's finite values alone
            (statistics,) = _row_statistics(row[is_finite][None])
            yield statistics._replace(odd=odd_count)
        return

    if not values.shape[1]:
        yield from [NOT_READ] * len(values)
        return
    least = values.min(axis=1).tolist()
    most = values.max(axis=1).tolist()
    mean = values.mean(axis=1, dtype=np.float64).tolist()
    deviation = values.std(axis=1, dtype=np.float64).tolist()
    for low, middle, high, spread in zip(least, mean, most, deviation, strict=True):
        yield Statistics(float(low), middle, float(high), spread)  # integers become floats


def _data_bytes(info: TensorSummary) -> int | None:
    """Bytes of a tensor's data; None for a data type that NumPy has no numbers for."""
    try:
        return math.prod(info.shape) * dtype_of_name(info.dtype).itemsize
    except KeyError:
        return None
