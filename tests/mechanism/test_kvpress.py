"""Masks of full caches against NVIDIA's own kvpress, where that is installed: `pip install
kvpress`.

kvpress compresses once, at the end of a prompt. Its scores are taken from the press itself, given
the weights of a whole text: `snapkv` and `sinks` keep what it keeps; `h2o` and `tova` forget, when
a cache is full for the first time, what it scores least.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from attncli.arrays.backend import choose
from attncli.mechanism.mask import parse_mask, visible

kvpress = pytest.importorskip("kvpress")
torch = pytest.importorskip("torch")
KV, GROUP, WIDTH = 2, 3, 5


def vectors(count: int, seed: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    return draw.normal(0, 1.5, (KV * GROUP, count, WIDTH)), draw.normal(0, 1.5, (KV, count, WIDTH))


def attentions(q: Any, k: Any) -> Any:
    """Causal weights [1, head, query, key], as an eager attention returns them."""
    scores = (
        torch.from_numpy(q)
        @ torch.from_numpy(k).repeat_interleave(GROUP, 0).transpose(1, 2)
        * WIDTH**-0.5
    )
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)[None]


def kept_by(press: Any, q: Any, k: Any, budget: int) -> list[set[int]]:
    """The keys that a press keeps, [kv]."""
    module = types.SimpleNamespace(
        config=types.SimpleNamespace(num_attention_heads=KV * GROUP, num_key_value_heads=KV),
        head_dim=WIDTH,
    )
    count = k.shape[-2]
    press.compression_ratio = 1 - (budget + 0.5) / count
    scores = press.score(
        module, torch.zeros(1, count, WIDTH), torch.from_numpy(k)[None], None, attentions(q, k), {}
    )
    return [set(row.topk(budget).indices.tolist()) for row in scores[0]]


def seen_last(spec: str, q: Any, k: Any) -> list[set[int]]:
    """What the last query of each kv head sees."""
    count = k.shape[-2]
    backend = choose("numpy", device="cpu", dtype="float64")
    bound = parse_mask(spec).bind(backend, q, k, WIDTH**-0.5, None)
    i, j = np.asarray([[count - 1]]), np.arange(count)[None]
    rows = np.broadcast_to(
        visible(bound, i, j, keys=count, backend=backend), (KV * GROUP, 1, count)
    )
    return [set(np.flatnonzero(rows[kv * GROUP, 0]).tolist()) for kv in range(KV)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("budget", "window", "pool"), [(7, 3, 5), (12, 4, 1), (9, 2, 3), (20, 8, 5)]
)
def test_a_window_keeps_what_snapkv_keeps(budget: int, window: int, pool: int, seed: int) -> None:
    q, k = vectors(29, seed)
    press = kvpress.SnapKVPress(window_size=window, kernel_size=pool)
    assert seen_last(f"snapkv:{budget},{window},{pool}", q, k) == kept_by(press, q, k, budget)


@pytest.mark.parametrize(("sinks", "recent"), [(4, 6), (1, 3), (2, 12)])
def test_sinks_are_those_of_streaming_llm(sinks: int, recent: int) -> None:
    q, k = vectors(29, 0)
    press = kvpress.StreamingLLMPress(n_sink=sinks)
    assert seen_last(f"sinks:{sinks},{recent}", q, k) == kept_by(press, q, k, sinks + recent)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["h2o", "tova"])
def test_the_first_key_to_go_is_the_one_that_a_press_scores_least(kind: str, seed: int) -> None:
    budget = 11
    q, k = vectors(budget + 1, seed)
    spec, press = (
        ("tova:11", kvpress.TOVAPress())
        if kind == "tova"
        else ("h2o:11,1", kvpress.ObservedAttentionPress())
    )
    for kept, theirs in zip(
        seen_last(spec, q, k), kept_by(press, q[:, :budget], k[:, :budget], budget - 1), strict=True
    ):
        # the query's own key stays here also where it has the least weight
        assert kept - {budget} == theirs or budget - 1 not in theirs
