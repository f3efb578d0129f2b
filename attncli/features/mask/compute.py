"""The document of `attn mask`: masks, their intersection, and a score bias before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from attncli.documents.header import model_part, position_name
from attncli.errors import InputError, UnsupportedError, refused_value
from attncli.features.mask.document import BiasAt, BiasPart, LayerMask, MaskDocument
from attncli.language import listing, message
from attncli.measure.row_facts import Floats
from attncli.measure.visibility import MAP, bound, mask_part, visible_rows
from attncli.mechanism.attention import attention
from attncli.mechanism.checked_arguments import checked
from attncli.mechanism.mask import KINDS, Everywhere, Mask, MatrixMask, intersection, parse_mask
from attncli.mechanism.projection import (
    LayerAttention,
    alibi,
    alibi_slopes,
    position_bias,
    t5_bucket,
)
from attncli.mechanism.spec import Alibi, RelativeBuckets
from attncli.models.model import Model
from attncli.version import __version__

BIASES = ("alibi", "alibi-symmetric", "t5", "t5-decoder")
"""Score biases as `--score-bias` spells them."""
T5 = {
    "t5": RelativeBuckets(buckets=32, max_distance=128, bidirectional=True),
    "t5-decoder": RelativeBuckets(buckets=32, max_distance=128, bidirectional=False),
}
"""The buckets of T5's encoder and of its decoder, which has none for later keys."""


class Bias(Struct, frozen=True, eq=False):
    """A score bias by distance.

    values: of j − i for j − i = −reach … reach, [2·reach + 1].

    name: as `--score-bias` spells it.
    head, heads: of which head it is, from 0, and of how many.
    slope: ALiBi's m of this head, None for others.
    buckets: whether the values are T5's bucket numbers, not what is learned for them.
    """

    name: str
    head: int
    heads: int
    values: Floats
    slope: float | None = None
    buckets: bool = False


NO_TEXT = message(
    "What this mask shows depends on queries and keys: it is drawn here for random vectors of no text,"
    " the same for queries and keys. attn explain mask TEXT --mask SPEC draws that of a text."
)
POSITIONS = 16
"""Positions that are drawn where neither a size nor a file says how many."""


@checked
def mask(
    masks: str | Mask | Sequence[str | Mask] = (),
    n: int | None = None,
    *,
    seed: int = 0,
    bias: Bias | None = None,
    model: Model | None = None,
) -> MaskDocument:
    """Describe masks, each alone and their intersection: visible pairs, keys per query, queries
    that see nothing.

    Args:
        masks: As `--mask` spells them, such as "causal" or "window:3", or masks of
            `attncli.mechanism.mask`; none, with no bias or model either, for one of every kind.
        n: How many queries and keys; None for the size of a mask from a file, else 16.
        seed: Of the random parts of bigbird and lsh.
        bias: What is added to the scores of a head, as `named_bias` and `model_bias` return it.
        model: A model whose layers' masks are listed beside them.

    Returns:
        What `attn mask --json` writes.

    Raises:
        UsageError: For fewer than one position, and for a mask that cannot be read.
        InputError: For files of different sizes.
    """
    if isinstance(masks, str | Mask):
        several = [masks]
    else:
        several = list(masks)
    parsed = [parse_mask(item, seed=seed) if isinstance(item, str) else item for item in several]
    if n is None:
        count = positions_of(parsed)
    else:
        count = n
    check_positions(count)
    if not parsed and bias is None and model is None:
        return gallery_document(count, seed=seed)
    # a bias or a model without a mask is described under one that shows everything
    return _mask_document(parsed or [Everywhere()], count, seed=seed, bias=bias, model=model)


def positions_of(masks: Sequence[Mask]) -> int:
    """The number of keys of the mask files among the masks, else `POSITIONS`. Raises InputError for
    files of different sizes."""
    # by number of keys the name of a file with so many
    sizes = {mask.values.shape[-1]: mask.name for mask in masks if isinstance(mask, MatrixMask)}
    if len(sizes) > 1:
        sizes_text = listing((f"{Path(name).name} {size}" for size, name in sizes.items()), " and ")
        raise InputError(
            "the mask files have different numbers of keys: {sizes_text}",
            expected="one size",
            sizes_text=sizes_text,
        )
    return next(iter(sizes), POSITIONS)


def _mask_document(
    masks: Sequence[Mask],
    n: int,
    *,
    seed: int = 0,
    bias: Bias | None = None,
    model: Model | None = None,
) -> MaskDocument:
    """The `attn.mask/1` document for n queries and n keys: every mask alone, and their intersection
    where there are several.

    seed: of masks that are drawn at random.
    bias: what is added to the scores of a head, None for nothing.
    model: one whose layers' masks are listed, too.
    """
    whole = intersection(*masks)
    parts = [mask_part(mask, n, n, seed) for mask in masks]
    return MaskDocument(
        version=__version__,
        n=n,
        seed=seed,
        gallery=False,
        masks=parts,
        combined=mask_part(whole, n, n, seed) if len(masks) > 1 else None,
        bias=None if bias is None else _bias_part(bias, whole, n, seed),
        model=None if model is None else model_part(model),
        layers=None if model is None else _layers(model),
        warnings=[NO_TEXT] if _needs_vectors(whole) else [],
    )


def _needs_vectors(mask: Mask) -> bool:
    """Whether a mask, or a part of it, depends on queries and keys, as `lsh` does."""
    return any(part.depends_on == "vectors" for part in mask.parts_of())


def _layers(model: Model) -> list[LayerMask]:
    """The document's entries on the mask and the positions of each layer that attends."""
    layers = [(number, model.spec.blocks[number].attention) for number in model.spec.attending()]
    return [
        LayerMask(layer=number, mask=layer.mask.spec(), position=position_name(layer.position))
        for number, layer in layers
    ]


def gallery_document(n: int, *, seed: int = 0) -> MaskDocument:
    """The `attn.mask/1` document with an example of every kind of mask that `--mask` knows."""
    parts = [
        replace(mask_part(parse_mask(spelling.example, seed=seed), n, n, seed), form=spelling.form)
        for spelling, _ in KINDS.values()
    ]
    return replace(_mask_document([], n, seed=seed), gallery=True, masks=parts)


def named_bias(name: str, head: int, heads: int, reach: int) -> Bias:
    """The bias that `--score-bias` names: ALiBi's, or the buckets of T5 (32 of them, up to distance
    128). Raises InputError for a head that does not exist.

    name: "alibi", "alibi-symmetric", "t5" or "t5-decoder".
    heads: for how many heads ALiBi's slopes are.
    reach: the largest distance of a key from its query.
    """
    _check_head(head, heads)
    j = np.arange(-reach, reach + 1)
    if name in T5:  # the numbers of the buckets, as the biases themselves are learned
        return Bias(name, head, heads, t5_bucket(j, T5[name]).astype(np.float64), buckets=True)
    # of one query at position 0: [head, 1 row, column]
    slopes = alibi_slopes(heads)
    values = alibi(
        slopes, np.zeros((1, 1), np.int64), j[None, :], symmetric=name == "alibi-symmetric"
    )[head, 0]
    return Bias(name, head, heads, np.asarray(values, np.float64), slope=float(slopes[head]))


def _check_head(head: int, heads: int) -> None:
    """Raise InputError for a head that is not one of `heads` heads."""
    if not 0 <= head < heads:
        expected = message(
            "0 to {last} ({heads} heads, counted from 0)", last=heads - 1, heads=heads
        )
        raise InputError("there is no head {head}", expected=expected, head=head)


def model_bias(model: Model, layer: int, head: int, reach: int) -> Bias | None:
    """The bias that a model's layer adds to the scores of a head; None where its positions are not
    told by a bias. Raises InputError for a head that is not there.

    reach: the largest distance of a key from its query.
    """
    spec = model.spec.blocks[layer].attention
    bias_function = position_bias(
        LayerAttention(model.backend, model.store.layer(model.backend, layer), "attn", spec)
    )
    if bias_function is None:
        return None
    _check_head(head, spec.heads)
    # one query at position 0, and a key at each distance from it: [head, 1 query, distance]
    distances = np.arange(-reach, reach + 1)[None, :]
    query = model.backend.array_as_is(np.zeros((1, 1), np.int64))
    biases = bias_function(query, model.backend.array_as_is(distances))
    values = np.asarray(model.backend.numpy(biases), np.float64)
    slope = None
    if isinstance(spec.position, Alibi):
        slope = float(alibi_slopes(spec.heads)[head]) * spec.position.factor
    return Bias(position_name(spec.position), head, spec.heads, values[head, 0], slope=slope)


def _bias_part(bias: Bias, mask: Mask, n: int, seed: int) -> BiasPart:
    """The document's part about a bias: its value at some distances and, for up to `MAP` positions,
    its matrix before and after the mask, with the weights that it makes of queries that are alike.

    n: how many queries and keys.
    seed: of a mask that is drawn at random.
    """
    reach = (len(bias.values) - 1) // 2
    if reach < n - 1:
        raise UnsupportedError(
            "the bias is known up to distance {reach}, and {n} positions need {last}",
            reach=reach,
            n=n,
            last=n - 1,
        )
    # 0, the powers of two, and the largest distance
    powers = (2**exponent for exponent in range((n - 1).bit_length()))
    distances = {0, *powers, n - 1}
    part = BiasPart(
        name=bias.name,
        head=bias.head,
        heads=bias.heads,
        slope=bias.slope,
        buckets=bias.buckets,
        by_distance=[
            BiasAt(distance=distance, value=float(bias.values[reach + distance]))
            for distance in sorted({sign * distance for sign in (-1, 1) for distance in distances})
        ],
        before=None,
        after=None,
        weights_before=None,
        weights_after=None,
    )
    if n > MAP:
        return part
    i = np.arange(n)[:, None]
    j = np.arange(n)[None, :]
    matrix = bias.values[j - i + reach]  # the value of distance 0 stands at index `reach`
    visibility = np.zeros((n, n), bool)
    # blocks of query rows from `start` on, each with its keys low..high-1 alone
    for start, low, high, rows in visible_rows(bound(mask, n, n, seed), n, n):
        visibility[start : start + len(rows), low:high] = rows
    part = replace(part, before=matrix, after=np.where(visibility, matrix, np.nan))
    if bias.buckets:
        return part
    return replace(
        part,
        weights_before=_bias_weights(matrix, np.ones_like(visibility)),
        weights_after=_bias_weights(matrix, visibility),
    )


def _bias_weights(bias: Floats, visibility: np.ndarray[Any, Any]) -> Floats:
    """The attention weights [query, key] where all queries and keys are alike, so that only bias
    and mask decide; NaN where hidden.

    bias: [query, key].
    visibility: booleans [query, key].
    """
    n = len(bias)
    same = np.zeros((1, n, 1))
    weights = attention(same, same, same, bias=bias[None], mask=visibility[None]).weights
    return np.where(visibility, np.asarray(weights[0], np.float64), np.nan)


def check_positions(n: int) -> None:
    """Raise UsageError for fewer than one position."""
    if n < 1:
        raise refused_value("-n", n, "at least 1 position")
