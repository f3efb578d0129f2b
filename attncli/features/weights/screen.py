"""The screen of `attn.weights/1`: the tensors of a file, and the attention they are read as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attncli.draw.lines import (
    Lines,
    fit_to_view,
    line,
    localize,
    message_or_safe,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.numbers import brief
from attncli.draw.safe import cut, safe
from attncli.draw.screen_header import count_phrase, fact, warning
from attncli.draw.tables import table
from attncli.draw.view import View
from attncli.features.weights.compute import (
    AttentionSizes,
    EmbeddingRows,
    TensorRow,
    WeightsDocument,
)
from attncli.language import message, plural, term

STATISTICS = ("min", "mean", "max", "std")
"""Fields of a tensor that are its statistics, and the names of their columns."""
ENTRIES = 8
"""Metadata entries that are shown unless the view is full."""

TENSORS = 60
"""Tensors that are shown unless the view is full."""

COLUMNS = ("tensor", message("used as"), "type", "shape", *STATISTICS)


def weights_screen(document: WeightsDocument, view: View) -> Lines:
    """The screen of a weight file: layout, sizes and digest, then one row per tensor with its role
    and statistics."""
    if view.brief:
        return fit_to_view(weights_answer(document, view), view)
    title = cut(safe(document.file, ascii=view.ascii), view.width, ascii=view.ascii)
    layout = document.layout or message("not an attention that attn knows")
    top_lines = [
        line((title, "bold")),
        fact("layout", [message_or_safe(layout, view)], view),
    ]
    if document.sizes:
        top_lines.append(fact("sizes", _size_texts(document.sizes), view))
    if document.embedding:
        top_lines.append(fact("embedding", [_embedding_text(document.embedding)], view))
    if document.digest:
        top_lines.append(fact("digest", [document.digest], view))
    if document.metadata:
        texts = _metadata_texts(document.metadata, view)
        top_lines.append(fact("metadata", texts, view, is_ours=False))
    top = stack(*top_lines, *(warning(warning_text, view) for warning_text in document.warnings))
    tensors = document.tensors
    if view.full:
        tensors_shown = tensors
    else:
        tensors_shown = tensors[:TENSORS]
    rows = [_tensor_cells(tensor, view) for tensor in tensors_shown]
    align = ["left", "left", "left", "left", "right", "right", "right", "right"]
    body = table(
        list(COLUMNS),
        rows,
        view,
        align=align,
        title=count_phrase(len(tensors), "tensor"),
        faint=(1, 2),  # the columns of roles and of types
    )
    if len(tensors_shown) < len(tensors):
        more = message(
            "{tensors:,} more (--plain, --json)", tensors=len(tensors) - len(tensors_shown)
        )
        body = stack(body, remark(more, view))
    return fit_to_view(stack_spaced(top, body, weights_answer(document, view)), view)


def weights_rows(document: WeightsDocument) -> Iterator[Sequence[object]]:
    """The tensors as a table for `--plain`, its first row the names of the columns."""
    yield ("name", "role", "dtype", "shape", "bytes", *STATISTICS)
    for tensor in document.tensors:
        shape = ",".join(map(str, tensor.shape))
        numbers = (getattr(tensor, name) for name in STATISTICS)
        yield (tensor.name, tensor.role, tensor.dtype, shape, tensor.bytes, *numbers)


def _tensor_cells(tensor: TensorRow, view: View) -> list[str]:
    """A tensor's name, role, data type, shape and statistics, as the cells of its row."""
    shape = " × ".join(map(str, tensor.shape)) or message("one number")
    statistics = [
        "-" if getattr(tensor, name) is None else f"{getattr(tensor, name):.3g}"
        for name in STATISTICS
    ]
    return [tensor.name, localize(_role_text(tensor.role), view), tensor.dtype, shape, *statistics]


def _role_text(role: str | None) -> str:
    """A role as a label: `q k v` for three weights in one tensor, `q k v bias` for three biases,
    "-" for None.
    """
    if role is None:
        return "-"
    words = [word.removesuffix(".weight").removesuffix(".bias") for word in role.split()]
    weights = " ".join(words)
    if role.endswith(".bias"):
        return message("{weights} bias", weights=weights)
    return weights


def _size_texts(sizes: AttentionSizes) -> list[str]:
    """The sizes of an attention and what belongs to it, such as "d_model 64" and "2 heads"."""
    parts = [f"d_model {sizes.d_model}", count_phrase(sizes.heads, "head")]
    if sizes.kv_heads != sizes.heads:
        parts.append(count_phrase(sizes.kv_heads, "kv head"))
    parts += [f"d_k {brief(sizes.d_k)}", f"d_v {brief(sizes.d_v)}"]
    if sizes.bias:
        parts.append(message("biases"))
    if sizes.output_projection:
        parts.append(message("output projection"))
    if sizes.layer_norm:
        parts.append(message("layer norm"))
    return parts


def _embedding_text(embedding: EmbeddingRows) -> str:
    """How many vectors an embedding has, and whether tokens find theirs by "id" or by "text"."""
    return message(
        "{rows}, by token {by}", rows=count_phrase(embedding.rows, "vector"), by=term(embedding.by)
    )


def _metadata_texts(metadata: Mapping[str, str], view: View) -> list[str]:
    """The first entries of a file's metadata, or all in a full view, and how many more there are."""
    if view.full:
        entries = list(metadata.items())
    else:
        entries = list(metadata.items())[:ENTRIES]
    texts = [
        cut(safe(f"{name} {text}", ascii=view.ascii), view.width // 2, ascii=view.ascii)
        for name, text in entries
    ]
    more = len(metadata) - len(entries)
    if more:
        return [*texts, message("{metadata} more (--json)", metadata=more)]
    return texts


# The answers of the screens that are not about one sentence: what was compared, counted or
# captured, in words.


def weights_answer(document: WeightsDocument, view: View) -> Lines:
    """The answer of an `attn.weights/1` document: what attention the file is read as."""
    if document.sizes is not None:
        answer: str = plural(
            "attn reads this file as one layer of attention: {count} head over vectors of {width}"
            " numbers.",
            "attn reads this file as one layer of attention: {count} heads over vectors of {width}"
            " numbers.",
            count=document.sizes.heads,
            width=document.sizes.d_model,
        )
    elif document.layout is None:
        answer = message("attn finds no attention that it knows in this file.")
    else:
        answer = message("The file holds the stages of a run, and no weights.")
    return sentences([answer], view)
