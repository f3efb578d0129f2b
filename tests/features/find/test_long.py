"""`attn find` in a long text computes only the rows of its two tokens in the last layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from small_gpt2 import small_gpt2

import attncli
from attncli.inputs.token import Token
from attncli.mechanism import attend
from attncli.mechanism.mask import parse_mask
from attncli.models.run import LONG

LENGTH = LONG + 52
QUERY, KEY = LENGTH - 1, LENGTH - 5


@pytest.mark.parametrize(
    "mask",
    [
        "causal",
        pytest.param("window:300,300", marks=pytest.mark.thorough),
        pytest.param("h2o:64", marks=pytest.mark.thorough),
    ],
)
def test_the_rows_are_those_of_the_whole_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mask: str
) -> None:
    # Arrange
    model = attncli.load(small_gpt2(tmp_path / "model", longest=LENGTH))
    attention = replace(model.spec.blocks[0].attention, mask=parse_mask(mask))
    blocks = tuple(replace(block, attention=attention) for block in model.spec.blocks)
    model = replace(model, spec=replace(model.spec, blocks=blocks))
    numbers = np.random.default_rng(1).integers(0, 300, LENGTH)
    tokens = [
        Token(index, f"t{index}", int(number), 3 * index, 3 * index + 2)
        for index, number in enumerate(numbers)
    ]
    text = "ab " * LENGTH
    whole = {
        trace.layer: trace.stages["weights"] for trace in model.trace(tokens, keep=("weights",))
    }
    rows: list[int] = []
    attend_rows = attend.attend_rows

    def count_rows(*arguments: Any, **keywords: Any) -> Any:
        """Attend, and write down how many rows of the last layer's heads that were."""
        rows.append(arguments[6] - arguments[5])
        return attend_rows(*arguments, **keywords)

    monkeypatch.setattr(attend, "attend_rows", count_rows)

    # Act
    document = attncli.find(model, text, f"#{QUERY}", f"#{KEY}", tokens=tokens)

    # Assert
    for head in document.heads:
        weights = np.asarray(whole[head.layer])[head.head]
        assert head.weight == pytest.approx(weights[QUERY, KEY], rel=1e-5)
        assert head.reverse.weight == pytest.approx(weights[KEY, QUERY], rel=1e-5)
    heads = model.spec.blocks[0].attention.heads
    assert heads * LENGTH < sum(rows) < heads * LENGTH * 2, "the last layer is not computed whole"
