"""How many tokens go through a model's layers: what is told before a run against what runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from attncli.mechanism import block


def tokens_run(work: Callable[[], Any], part: str = "mix_heads") -> int:
    """Tokens that pass the attention of a layer, or another `part` of it, while `work` is done: those
    of all layers, runs and branches together."""
    count = 0
    own = getattr(block, part)

    def counted(*values: Any, **options: Any) -> Any:
        nonlocal count
        x = values[3] if part == "feed_forward" else values[1]
        size = 1
        for length in x.shape[:-1]:
            size *= length
        count += size
        return own(*values, **options)

    with mock.patch.object(block, part, counted):
        work()
    return count
