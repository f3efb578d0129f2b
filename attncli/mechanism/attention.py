"""`attncli.attention`: the attention step for a caller's own arrays, with every stage kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from attncli.arrays.backend import Array, Library
from attncli.mechanism.attend import attend
from attncli.mechanism.trace import SQUARE, AttentionTrace


def attention(
    q: Library,
    k: Library,
    v: Library,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    mask: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    offset: int | Sequence[int] | Array = 0,
    key_lengths: Sequence[int] | Array | None = None,
    sinks: Array | None = None,
    softmax_dtype: str | None = None,
) -> AttentionTrace[Library]:
    """Scaled dot-product attention with every stage kept.

    q: [..., heads, query, dim]. k: [..., kv_heads, key, dim]. v: [..., kv_heads, key, v_dim].
    NumPy arrays or torch tensors, all of one kind; the result is of the same kind. Query head
    h uses kv head h·kv_heads // heads.

    scale: multiplies q·k; None is 1/√dim. softcap: None or a positive bound.
    mask: booleans, True = visible; bias: floats added to the scores, −inf hides. Both
    broadcast right-aligned to [..., heads, query, key].
    causal: hides keys after the query. window: (left, right) keys besides the query's own,
    None unbounded. Both count absolute positions: query 0 sits at `offset`, an int or one per
    batch entry (the leading axes).
    key_lengths: one per batch entry; keys from there on are hidden.
    sinks: [heads], logits that take part in the softmax and are then dropped.
    softmax_dtype: type of scores and weights; None is the inputs' own, or float32 for float16
    and bfloat16. `mixed` has the type of v.

    A query that sees nothing has weights 0 and mixed 0 and is True in `empty_rows`. NaN or Inf
    in a hidden key or value does not reach the result. Raises InputError for shapes that do
    not fit, UsageError for mixed kinds of array. Source: Vaswani et al., 2017.
    """
    from attncli.mechanism.arguments import check_arguments

    backend, queries, keys, values, rule = check_arguments(
        q, k, v, scale=scale, softcap=softcap, mask=mask, bias=bias, causal=causal, window=window,
        offset=offset, key_lengths=key_lengths, sinks=sinks, softmax_dtype=softmax_dtype,
    )  # fmt: skip
    block = attend(backend, queries, keys, values, rule)
    stages = {name: cast("Library", block.stages[name]) for name in SQUARE}  # of q's library, as all of a backend's
    return AttentionTrace(**stages, mixed=cast("Library", block.mixed), empty_rows=cast("Library", block.empty))
