"""A sparse model of subsets, against its own optimality conditions; regions that say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2

from attncli.features.answer import compute
from attncli.features.answer.cut_runs import Cut, CutRun, CutRuns
from attncli.features.answer.sparse_fit import (
    PENALTY,
    answer_logit,
    fit_sparse,
    random_masks,
    rank_score,
)

TEXT = "one two three four five six"
LINE = (
    *("--region", "a=tokens:0-1", "--region", "b=tokens:2-3", "--region", "c=tokens:4-5"),
    *("--region", "d=tokens:6-7", "--region", "e=tokens:8-9"),
)


@pytest.mark.parametrize("penalty", [0.0, PENALTY, 0.3])
def test_the_fit_is_the_best_there_is(penalty: float) -> None:
    """The conditions of Karush, Kuhn and Tucker: at the smallest value of (1/2n) Σ r² + α Σ|w| each
    column's mean product with the residual is α sign(w), or lies within ±α where w is 0."""
    masks = random_masks(7, 40, 3)
    masks[:, 5] = True  # treated alike by all
    generator = np.random.default_rng(1)
    values = masks @ np.array([2.0, 0, -1.0, 0, 0.1, 5.0, 0]) + 0.2 * generator.normal(size=40)
    fit = fit_sparse(masks, values, penalty)
    assert fit.weights[5] == 0
    scale = masks.std(0)
    columns = (masks - masks.mean(0))[:, scale > 0] / scale[scale > 0]
    residual = values - fit.predict(masks)
    assert residual.mean() == pytest.approx(0, abs=1e-12)
    pulls = columns.T @ residual / 40
    for pull, weight in zip(pulls, fit.weights[scale > 0], strict=True):
        if weight:
            assert pull == pytest.approx(penalty * np.sign(weight), abs=1e-10)
        else:
            assert abs(pull) <= penalty + 1e-10
    if penalty == 0.3:
        assert np.count_nonzero(fit.weights) < 6


def test_least_squares_where_nothing_is_penalised() -> None:
    masks = random_masks(4, 16, 0)
    values = np.random.default_rng(2).normal(size=16)
    fit = fit_sparse(masks, values, 0.0)
    design = np.column_stack([masks, np.ones(16)])
    assert [*fit.weights, fit.intercept] == pytest.approx(np.linalg.lstsq(design, values)[0])


def test_masks_differ_and_have_each_region_in_half() -> None:
    masks = random_masks(12, 400, 5)
    assert len({mask.tobytes() for mask in masks}) == 400
    assert masks.mean(0) == pytest.approx(0.5, abs=0.1)
    assert (masks == random_masks(12, 400, 5)).all()
    assert (masks != random_masks(12, 400, 6)).any()
    assert len(random_masks(4, 48, 0)) == 16


def test_the_logit_of_a_probability() -> None:
    for share in (0.999, 0.5, 1e-30):
        assert answer_logit(np.log(share)) == pytest.approx(np.log(share / (1 - share)))
    assert np.isfinite(answer_logit(0.0))


def test_the_interval_holds_the_score() -> None:
    values = np.arange(16.0)
    assert rank_score(values**3, values) == pytest.approx((1.0, 1.0, 1.0))
    score = rank_score(np.random.default_rng(0).permutation(values), values)
    assert score is not None
    assert score[1] < score[0] < score[2]
    assert rank_score(np.zeros(16), values) is None


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_gpt2(tmp_path_factory.mktemp("subsets") / "gpt2"))


def test_twins_are_found(gpt2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a made-up model falls only where b and d are both away, and a little without c."""

    def run(self: CutRuns, cuts: Any, on_tokens: Any = None) -> Any:
        for cut in cuts:
            away = {region[0] for region in cut.regions}
            logprob = -0.1 - 2.0 * ({2, 6} <= away) - 0.3 * (4 in away)
            shares = None if cut.regions else np.full((len(self.answer), len(self.tokens)), 0.01)
            yield CutRun(cut, np.full(len(self.answer), logprob), shares)

    monkeypatch.setattr(CutRuns, "run", run)
    monkeypatch.setattr(CutRuns, "can_resume", False)
    line = ("answer", TEXT, "--model", gpt2, *LINE, "--target", "the", "--subsets", "18")
    document = ask(*line, "--json").json
    changes = {row["region"]: row["change"] for row in document["effects"]}
    assert changes[1] == changes[3] == 0  # blind: one at a time
    subsets = document["subsets"]
    assert (subsets["fitted"], subsets["tested"]) == (18, 9)
    weights = {row["region"]: row["weight"] for row in subsets["weights"]}
    assert min(weights[1], weights[3]) > 0.5 > 0.2 > max(weights[0], weights[4])
    assert subsets["hidden"] == {"regions": [1, 3], "change": pytest.approx(-2.0)}
    screen = ask(*line).out
    assert '"b" and "d" hide each other' in screen
    assert "rests on none" not in screen


@pytest.mark.parametrize(("twins", "hidden"), [(2.0, [1, 3]), (0.04, None)])
def test_an_innocent_region_is_in_no_group(
    twins: float, hidden: list[int] | None, gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of subsets suspects the first region, too, which adds nothing; and twins whose loss
    together is below 0.05 nats are not named."""

    def run(self: CutRuns, cuts: Any, on_tokens: Any = None) -> Any:
        for cut in cuts:
            away = {region[0] for region in cut.regions}
            logprob = -0.1 - twins * ({2, 6} <= away)
            shares = None if cut.regions else np.full((len(self.answer), len(self.tokens)), 0.01)
            yield CutRun(cut, np.full(len(self.answer), logprob), shares)

    monkeypatch.setattr(CutRuns, "run", run)
    monkeypatch.setattr(CutRuns, "can_resume", False)
    monkeypatch.setattr(compute._AnswerWork, "hidden_places", lambda self, results: [0, 1, 3])
    line = ("answer", TEXT, "--model", gpt2, *LINE, "--target", "the", "--subsets", "8")
    subsets = ask(*line, "--json").json["subsets"]
    assert subsets.get("hidden", {}).get("regions") == hidden


def test_too_few_regions_are_an_error(gpt2: str) -> None:
    answer = ask(*("answer", TEXT, "--model", gpt2, *LINE[:4], "--target", "the", "--subsets", "8"))
    assert (answer.code, "4 regions or more" in answer.err) == (3, True), answer.err


def test_subsets_are_exact_runs(gpt2: str) -> None:
    line = ("answer", TEXT, "--model", gpt2, *LINE, "--target", "the", "--subsets", "12", "--json")
    subsets = ask(*line).json["subsets"]
    assert subsets["low"] <= subsets["lds"] <= subsets["high"]
    masks = random_masks(5, 18, 0)
    # the masks of the command: the cut of each is the regions that are not there
    leaves = [compute.LeafRegion(name, (2 * n, 2 * n + 1)) for n, name in enumerate("abcde")]
    cuts = compute._subset_cuts(leaves, "abcde", masks)
    assert cuts[0] == Cut(
        "subset " + "".join("01"[int(there)] for there in masks[0]),
        tuple((2 * n, 2 * n + 1) for n in range(5) if not masks[0][n]),
    )
