"""Effects over texts: means, intervals, differences."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from asking import ask

import attncli
from attncli.features.effects.ablation import LEAST, interval
from attncli.features.effects.document import Reading
from attncli.features.effects.screen import DIFFERENCE_MEASURES
from attncli.measure.student import student

LINES = ("the cat sat on the mat", "it was a dark night", "I like tea")


@pytest.mark.parametrize(
    ("freedom", "known"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (100, 1.9840)],
)
def test_factors_of_the_interval(freedom: int, known: float) -> None:
    assert student(freedom) == pytest.approx(known, rel=2e-3)


def test_an_interval_holds_the_mean_in_95_of_100_cases() -> None:
    draw = np.random.default_rng(3)
    inside = 0
    for _ in range(2000):
        found = interval(draw.normal(5.0, 2.0, size=6).tolist())
        inside += found.low <= 5.0 <= found.high
    assert 0.935 <= inside / 2000 <= 0.965
    assert interval([]) is None
    assert (interval([2.0]).low, interval([2.0]).texts) == (None, 1)


def test_no_interval_goes_below_the_least_value_that_there_can_be() -> None:
    """A size such as 1 − cosine is never below 0; a difference of logits may be."""
    values = [0.0, 0.0, 0.0, 1.0]
    whole = interval(values)
    size = interval(values, LEAST["cosine"])
    assert whole.low < 0.0 == size.low
    assert size.high == whole.high
    assert interval(values, LEAST["difference"]).low == whole.low
    assert set(LEAST) == set(get_args(Reading))


def test_the_share_done_grows_from_0_to_1_whichever_layers_are_chosen() -> None:
    shares: list[float] = []
    attncli.ablate(
        attncli.load("minilm"),
        "it was tired",
        layers=[3, 5],
        heads=[11],
        baseline="none",
        progress=shares.append,
    )
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_lines_and_their_comparison(tmp_path: Path) -> None:
    told = ("--num-heads", "4", "--residual", "--layer-norm")
    for name, lines in (("a", LINES), ("b", LINES[::-1]), ("c", ("one two", "three four five"))):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
        asked = ("ablate", *told, "--lines", "--file", str(tmp_path / f"{name}.txt"))
        (tmp_path / f"{name}.json").write_text(ask(*asked, "--json").out)
        singles = [
            ask("ablate", line, *told, "--json", "--baseline", "none").json for line in lines
        ]
        document = ask(*asked, "--json").json
        assert (document["schema"], document["texts"], document["at"]) == (
            "attn.effects/1",
            len(lines),
            "mean",
        )
        for effect in document["effects"]:
            of = [
                row["vector"]["cosine"]
                for one in singles
                for row in one["effects"]
                if row["head"] == effect["head"]
            ]
            assert effect["measures"]["cosine"]["mean"] == pytest.approx(np.mean(of))
    same = ask("compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json").json
    assert same["schema"] == "attn.difference/1"
    assert all(
        abs(head["difference"]) < 1e-9 and head["low"] <= 0 <= head["high"]
        for head in same["heads"]
    )
    files = (str(tmp_path / "a.json"), str(tmp_path / "c.json"))
    other = ask("compare", *files, "--json").json
    assert other["heads"][0]["difference"] == pytest.approx(
        other["heads"][0]["b"] - other["heads"][0]["a"]
    )
    assert "differs most" in ask("compare", *files).out
    assert "On average over 3 texts" in " ".join(ask("view", files[0]).out.split())
    assert ask("compare", *files, "--fail-above", "1e-9").code == 1
    rows = ask(
        "ablate", *told, "--lines", "--file", str(tmp_path / "a.txt"), "--plain"
    ).out.splitlines()
    assert rows[0].split("\t")[3:7] == ["cosine", "cosine_low", "cosine_high", "cosine_texts"]
    assert (
        len(
            ask(
                "ablate", *told, "--lines", "--file", str(tmp_path / "a.txt"), "--ndjson"
            ).out.splitlines()
        )
        == 3
    )


def test_every_measure_of_heads_can_be_compared_between_documents() -> None:
    """But the norm, which stands beside the cosine."""
    assert DIFFERENCE_MEASURES.keys() == set(get_args(Reading)) - {"norm"}
