"""A run whose matrices nobody holds: what its blocks leave is what the whole run has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_gpt2 import small_gpt2
from telling import told

import attncli
from attncli.arrays.backend import EVERY
from attncli.features.run.compute import RunRequest, _measured_run
from attncli.measure import row_stream
from attncli.mechanism.mask import Causal, Mask, Window
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

TEXT = "the cat saw the dog and the dog saw the cat"


def made(mask: Mask) -> Model:
    base = attncli.load(seed=0)
    return seeded_model(
        Settings(d_model=30, heads=5, mask=mask), 0, "seeded", base.tokenizer, base.backend
    )


@pytest.mark.parametrize("heads", [EVERY, [1, 4]])
@pytest.mark.parametrize("mask", [Causal(), Window(2, 1)])
def test_a_query_of_a_long_text(
    mask: Mask, heads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_stream, "CELLS", 4)  # of 11 tokens
    model = made(mask)
    tokens = model.encode(TEXT)
    wanted = RunRequest(top=9, query=5, heads=heads, all_links=True)
    shares: list[float] = []
    parts = _measured_run(model, TEXT, tokens, wanted, rows=1, progress=shares.append)
    whole = _measured_run(model, TEXT, tokens, wanted)
    assert len(shares) >= 10  # two or more blocks of each head
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert [told(link) for link in parts.links] == [
        pytest.approx(told(link)) for link in whole.links
    ]
    assert {link.query for link in parts.links} == {5}
    assert len(parts.layers[0].heads) == len(whole.layers[0].heads) == (5 if heads is EVERY else 2)
    for head, same in zip(parts.layers[0].heads, whole.layers[0].heads, strict=True):
        np.testing.assert_allclose(head.weights, same.weights, atol=1e-7)
        np.testing.assert_allclose(head.scores, same.scores, atol=1e-6)
    np.testing.assert_allclose(parts.average, whole.average, atol=1e-7)
    full = _measured_run(
        model, TEXT, tokens, RunRequest(top=9, heads=heads, all_links=True)
    ).layers[0]
    assert [place.head for place in parts.maps] == [head.head for head in full.heads]
    for place, head in zip(parts.maps, full.heads, strict=True):
        assert place.pool == 3
        cells = np.pad(head.weights, (0, 1)).reshape(4, 3, 4, 3).max((1, 3))
        np.testing.assert_allclose(place.weights, cells, atol=1e-7)


def test_layers_are_told_one_after_another(tmp_path: Path) -> None:
    model = attncli.load(small_gpt2(tmp_path))
    shares: list[float] = []
    wanted = RunRequest(matrices=False)
    _measured_run(model, "a b c", model.encode("a b c"), wanted, rows=1, progress=shares.append)
    assert shares == sorted(shares)
    assert 0.5 in shares  # one of two layers
    assert shares[-1] == 1.0
