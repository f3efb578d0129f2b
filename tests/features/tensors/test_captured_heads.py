"""Captured arrays by blocks of rows: the numbers of whole weights, entry by entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from msgspec import UNSET
from msgspec.structs import asdict

from attncli.arrays.backend import choose
from attncli.features.tensors import compute
from attncli.features.tensors.compute import (
    CapturedTensors,
    Options,
    _tensors_document,
    capture_attention,
    captured_record,
)
from attncli.mechanism.mask import Causal, Mask, Window

RNG = np.random.default_rng(3)
HEADS, KV, QUERIES, KEYS = 6, 3, 17, 23


def arrays(lead: tuple[int, ...], **extra: Any) -> dict[str, np.ndarray]:
    shapes = {"q": (*lead, HEADS, QUERIES, 5), "k": (*lead, KV, KEYS, 5), "v": (*lead, KV, KEYS, 2)}
    return {name: RNG.standard_normal(shape) for name, shape in shapes.items()} | extra


FIRST = [
    [
        [9.0 * (key == 0 and (head == 2 or query % 3 == 0)) for key in range(KEYS)]
        for query in range(QUERIES)
    ]
    for head in range(HEADS)
]
CASES: dict[str, tuple[dict[str, np.ndarray], Mask]] = {
    "plain": (arrays(()), Causal()),
    "batch": (arrays((2,)), Window(4, 2)),
    "two axes": (arrays((2, 3)), Causal()),
    "lengths": (arrays((2,), key_lengths=np.array([23, 9]), offset=np.array([6, 1])), Causal()),
    "mask": (arrays((2,), mask=RNG.random((2, 1, QUERIES, KEYS)) < 0.6), Causal()),
    "key 0 first in some rows, in most of one head": (
        arrays((), bias=np.array(FIRST, np.float64)),
        Window(9, 2),
    ),
    "bias and sinks": (
        arrays((), bias=RNG.standard_normal((HEADS, QUERIES, KEYS)), sinks=np.arange(6.0)),
        Window(9, 0),
    ),
}


def ready(name: str, backend: str) -> CapturedTensors:
    found, mask = CASES[name]
    return capture_attention(
        found, name, choose(backend, device=None, dtype="float64"), Options(mask=mask)
    )


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_blocks_give_what_whole_weights_give(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, heads = ready(name, backend), [1, 2, 5]
    whole = _tensors_document(name, held, held.attend(), Causal(), heads=heads, top=9, stages=False)
    told: list[float] = []
    monkeypatch.setattr("attncli.features.tensors.compute.rows_within", lambda *sizes: 2)
    parts = _tensors_document(
        name, held, None, Causal(), heads=heads, top=9, stages=False, progress=told.append
    )
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert [link.index for link in parts.links] == [link.index for link in whole.links]
    for one, other in zip(parts.links, whole.links, strict=True):
        assert (one.head, one.query, one.key) == (other.head, other.query, other.key)
        assert one.weight == pytest.approx(other.weight, rel=1e-12)
    assert list(map(asdict, parts.empty_rows)) == list(map(asdict, whole.empty_rows))
    for entry, same in zip(parts.batch, whole.batch, strict=True):
        assert entry.index == same.index
        for head, again in zip(entry.heads, same.heads, strict=True):
            assert head.weights is UNSET
            assert head.metrics is not UNSET
            assert again.metrics is not UNSET
            assert set(head.metrics) == set(again.metrics)
            for metric, value in head.metrics.items():
                assert value.rows == again.metrics[metric].rows, metric
                wanted = again.metrics[metric].value
                assert (value.value is None) == (wanted is None), metric
                assert value.value is None or value.value == pytest.approx(
                    wanted, rel=1e-9, abs=1e-12
                ), metric


def test_links_are_the_largest_weights_of_all_entries() -> None:
    held = ready("two axes", "numpy")
    trace = held.attend()
    weights = trace.stages["weights"]
    found = _tensors_document(
        "file", held, trace, Causal(), heads=range(HEADS), top=11, stages=False
    ).links
    wanted = sorted((-float(weight), place) for place, weight in np.ndenumerate(weights))[:11]
    assert [((*link.index, link.head, link.query, link.key), link.weight) for link in found] == [
        (place, -less) for less, place in wanted
    ]


def test_records_of_captured_arrays_are_those_of_their_entries() -> None:
    """Every place on the leading axes stands as a layer, whose chosen heads follow each other."""
    held = ready("two axes", "torch")
    trace = held.attend()
    document = _tensors_document("file", held, trace, Causal(), heads=[1, 4], top=3, stages=False)
    heads = list(captured_record(held, trace, document, heads=[1, 4]).heads)
    assert [(head.layer, head.head) for head in heads] == [
        (layer, head) for layer in range(6) for head in (1, 4)
    ]
    weights = np.asarray(trace.stages["weights"]).reshape(6, HEADS, QUERIES, KEYS)
    for head in heads:
        wanted = weights[head.layer, head.head]
        np.testing.assert_allclose(head.small, wanted, atol=1e-6)
        strongest = sorted((-weight, place) for place, weight in np.ndenumerate(wanted))[:10]
        assert [link[:2] for link in head.links] == [place for _, place in strongest]
        assert head.error < 1e-3


def test_a_long_file_runs_by_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "f.npz", **CASES["plain"][0])
    monkeypatch.setattr(compute, "LONG", 16)
    monkeypatch.setattr(CapturedTensors, "attend", None)  # nothing that is n × n
    found = ask("tensors", str(tmp_path / "f.npz"), "--mask", "causal", "--json").json
    assert set(found["batch"][0]["heads"][0]) == {"head", "metrics", "baseline"}
    screen = ask("tensors", str(tmp_path / "f.npz"), "--mask", "causal").out
    assert "metrics" in screen
    assert "scores" not in screen
    assert ask("tensors", str(tmp_path / "f.npz"), "--plain").out.startswith(
        "batch\thead\tmetric\tvalue"
    )
