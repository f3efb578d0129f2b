"""Long texts run by blocks of query rows wherever a model reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoints import CASES, make

import attncli
from attncli.mechanism.attend import BLOCK
from attncli.mechanism.spec import Attention, Block, Spec
from attncli.models import model as model_module
from attncli.models.run import rows_for


def test_as_many_rows_as_fit_a_block_of_all_heads() -> None:
    spec = Spec(
        d_model=11,
        vocabulary=19,
        blocks=(Block(Attention(3, 3, 5, 5, 1.0)), Block(Attention(7, 7, 5, 5, 1.0))),
    )
    assert rows_for(spec, 5003) == BLOCK // (7 * 5003)
    assert rows_for(spec, 13) == 13
    assert rows_for(spec, BLOCK) == 1


def test_a_long_source_is_read_by_blocks_and_means_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = attncli.load(make(CASES["t5"], tmp_path), backend="numpy", dtype="float64")
    source = model.tokenizer.ids_to_tokens([7, 3, 50, 11, 28, 5, 44])
    whole = model.decoder(source).memory
    asked: list[int | None] = []
    trace = model_module.Model.trace

    def watched(self: model_module.Model, *given: object, **options: object) -> object:
        asked.append(options.get("rows"))
        return trace(self, *given, **options)

    monkeypatch.setattr(model_module.Model, "trace", watched)
    monkeypatch.setattr(model_module, "LONG", 6)
    monkeypatch.setattr(model_module, "rows_for", lambda spec, count: 3)
    assert np.abs(model.decoder(source).memory - whole).max() < 1e-13
    assert asked == [3]
