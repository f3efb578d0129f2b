"""What attention is: pure computation on arrays. No files, no model families.

The room is named like the function that people come for, `attncli.attention(q, k, v)`, so
the module itself can be called; it does what `attncli.attention.attend.attention` does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncli.arrays.backend import Array
    from attncli.attention.trace import AttentionTrace


class _Room(ModuleType):
    """A module that can be called."""

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        mask: Array | None = None,
        bias: Array | None = None,
        causal: bool = False,
        window: tuple[int | None, int | None] | None = None,
        offset: Any = 0,
        key_lengths: Any = None,
        sinks: Array | None = None,
        softmax_dtype: str | None = None,
    ) -> AttentionTrace:
        """Scaled dot-product attention with every stage kept; see `attncli.attention.attend.attention`."""
        from attncli.attention.attend import attention

        return attention(
            q, k, v, scale=scale, softcap=softcap, mask=mask, bias=bias, causal=causal, window=window,
            offset=offset, key_lengths=key_lengths, sinks=sinks, softmax_dtype=softmax_dtype,
        )  # fmt: skip


sys.modules[__name__].__class__ = _Room
