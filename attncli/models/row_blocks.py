"""Long texts: how long they are, and by how many query rows at a time attention then runs."""

from __future__ import annotations

from attncli.mechanism.spec import Spec
from attncli.mechanism.streaming import rows_within

LONG = 2048
"""Tokens above which attention runs by blocks of query rows, and a screen shows pooled maps in place of tables."""


def rows_for(spec: Spec, count: int) -> int:
    """How many query rows a model should compute at a time on `count` tokens, all heads of a layer together."""
    heads = max(block.attention.heads for block in spec.blocks)
    return rows_within(heads, count, count)
