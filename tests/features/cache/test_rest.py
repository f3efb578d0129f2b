"""What `attn cache` says is kept, with and without the first token, where heads rest."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model

from attncli.draw.view import View
from attncli.features.cache.compute import cache
from attncli.features.cache.screen import cache_sentences

TEXT = "cdbeacfd"


def test_what_a_cache_keeps_is_told_without_the_first_token() -> None:
    model = resting_model.model()
    document = cache(model, TEXT, ["sinks:1,3"])
    (trace,) = model.trace(model.encode(TEXT))
    rows = np.asarray(trace.stages["weights"])[:, -1]
    kept = np.zeros(len(TEXT), bool)
    kept[[0, 5, 6, 7]] = True
    (policy,) = document.policies
    assert document.rest == pytest.approx(rows[:, 0].mean())
    assert policy.kept == pytest.approx(rows[:, kept].sum(1).mean())
    kept[0] = False
    assert policy.kept_beyond_rest == pytest.approx(rows[:, kept].sum() / rows[:, 1:].sum())
    said = " ".join(cache_sentences(document, View(width=300)))
    assert f"weight {100 * document.rest:.1f}% rests on the first token" in said
    assert f"{100 * policy.kept_beyond_rest:.1f}% with sinks" in said


def test_a_cache_of_weights_that_are_not_learned_is_told_as_before() -> None:
    document = cache(resting_model.model(source="file"), TEXT, ["sinks:1,3"])
    assert not document.rest
    assert "rests" not in " ".join(cache_sentences(document, View(width=300)))
