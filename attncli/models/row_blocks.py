"""Long texts: how long they are, and by how many query rows at a time attention then runs."""

from __future__ import annotations

from attncli.mechanism.spec import Spec

LONG = 2048
"""Tokens above which attention runs by blocks of query rows, and a screen shows pooled maps in place of tables."""
BLOCK = 1 << 22
"""Weights in one block, 16 MB of float32: larger ones leave the processor's caches, smaller ones cost more steps."""


def rows_for(spec: Spec, count: int) -> int:
    """How many query rows a model should compute at a time on `count` tokens, all heads of a layer together."""
    heads = max(block.attention.heads for block in spec.blocks)
    return max(min(BLOCK // max(heads * count, 1), count), 1)
