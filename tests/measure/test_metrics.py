"""Metrics: the definitions' golden values, loops as oracle, both backends, uniform baselines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import oracles_metrics as oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_gpt2 import small_gpt2

import attncli
from attncli.errors import InputError, UsageError
from attncli.measure.metric import DEFAULT, METRICS, Metric, PerRow, measure
from attncli.measure.rest import is_separator

G = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.15, 0.5, 0.25]])
CAUSAL = np.tril(np.ones((4, 4), bool))
GOLDEN = {
    "entropy": 0.732693, "normalised_entropy": (1 + 0.937231 + 0.871369) / 3, "confidence": 0.625,
    "confidence_beyond_first": 0.375,
    "distance": 0.575, "signed_distance": -0.575, "previous": 0.433333, "self": 0.5625, "sink": 0.266667,
    "diagonality": 0.594444, "previous_pattern": 0.842105,
}  # fmt: skip
ALL = tuple(METRICS)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(name: str, make: Any) -> None:
    assert getattr(attncli.metrics, name)(make(G), make(CAUSAL)) == pytest.approx(
        GOLDEN[name], abs=1e-6
    )


def test_next_of_a_causal_head_has_no_rows() -> None:
    found = measure(G, CAUSAL, metrics=["next"])["next"]
    assert math.isnan(found.value)
    assert found.rows == 0


def random_head(rng: np.random.Generator, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and visibility with gaps, empty rows and zero weights."""
    seen = rng.random((queries, keys)) < 0.7
    seen[rng.integers(queries)] = False
    raw = np.where(
        seen & (rng.random((queries, keys)) < 0.9), rng.random((queries, keys)) ** 4, 0.0
    )
    raw[:, 0] += np.where(seen[:, 0], 1e-3, 0)
    sums = raw.sum(-1, keepdims=True)
    return raw / np.where(sums > 0, sums, 1), seen


def told(
    weights: np.ndarray, seen: np.ndarray, tokens: list[int], special: np.ndarray
) -> dict[str, oracle.Found]:
    return oracle.metrics(
        weights.tolist(), seen.tolist(), tokens, special.tolist(), special[::-1].tolist()
    )


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    n=st.sampled_from([1, 2, 5, 11, 17]),
    kind=st.sampled_from(["gaps", "causal", "window", "all"]),
)
def test_every_metric_and_baseline_is_the_loop(seed: int, n: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    weights, seen = random_head(rng, n, n)
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    if kind != "gaps":
        # windows that do not hold the query itself are meant: i − 5 ≤ j ≤ i − 2
        seen = {"causal": j <= i, "window": (j >= i - 5) & (j <= i - 2), "all": j >= 0}[
            kind
        ] & np.ones((n, n), bool)
        raw = np.where(seen, rng.random((n, n)) ** 4 + 1e-9, 0.0)
        weights = raw / np.maximum(raw.sum(-1, keepdims=True), 1e-30)
    tokens = rng.integers(0, 3, n).tolist()
    special = rng.random(n) < 0.3
    expected, even = (
        told(weights, seen, tokens, special),
        told(np.array(oracle.uniform(seen.tolist())), seen, tokens, special),
    )
    for array in (weights, torch.tensor(weights)):
        found = measure(
            array, seen, metrics=ALL, tokens=tokens, special=special, punctuation=special[::-1]
        )
        for name in ALL:
            assert float(found[name].value) == pytest.approx(
                expected[name][0], abs=1e-10, nan_ok=True
            ), name
            assert int(found[name].rows) == expected[name][1], name
            assert float(found[name].baseline) == pytest.approx(
                even[name][0], abs=1e-10, nan_ok=True
            ), name


def test_the_oracle_notices_one_moved_weight() -> None:
    rng = np.random.default_rng(3)
    weights, seen = random_head(rng, 11, 11)
    seen[:] = True
    tokens, special = rng.integers(0, 3, 11).tolist(), rng.random(11) < 0.5
    expected = told(weights, seen, tokens, special)
    moved = weights.copy()
    moved[7] = np.roll(moved[7], 3)
    found = measure(
        moved, seen, metrics=ALL, tokens=tokens, special=special, punctuation=special[::-1]
    )
    unmoved = {
        "entropy",
        "normalised_entropy",
        "effective_keys",
        "confidence",
        "missing",
    }  # these do not know positions
    # the row that moved is a special token's, whose links are none of `strongest_link`
    kept = {"confidence_beyond_first", "special", "punctuation", "sink", "strongest_link"}
    for name in set(ALL) - unmoved - kept:
        if name in (
            "previous",
            "self",
            "next",
            "band",
            "duplicate_pattern",
            "induction_pattern",
            "previous_pattern",
        ):
            continue
        assert abs(float(found[name].value) - expected[name][0]) > 1e-6, name


def test_the_strongest_link_leaves_out_where_heads_rest(tmp_path: Path) -> None:
    """By a loop over a real text: the first token, special ones, line breaks, marks of structure and
    the token itself are no link's key, and special tokens no link's query."""
    text = "the cat sat\n\n---\non the mat"
    model = attncli.load(small_gpt2(tmp_path / "model"))
    tokens = model.encode(text)
    separators = list(map(is_separator, tokens))
    assert 0 < sum(separators) < len(tokens) - 3
    document = attncli.heads(model, text, metrics=("strongest_link",))
    weights = {
        (trace.layer, head): rows
        for trace in model.trace(tokens)
        for head, rows in enumerate(np.asarray(trace.stages["weights"], np.float64))
    }
    for head in document.heads:
        largest = []
        for i, row in enumerate(weights[head.layer, head.head]):
            links = [
                row[j]
                for j in range(1, i)
                if not separators[j] and not tokens[j].special and not tokens[i].special
            ]
            largest += [max(links)] if links else []
        told_value = head.metrics["strongest_link"].value
        assert told_value == pytest.approx(sum(largest) / len(largest), abs=1e-6)


def test_padded_queries_and_empty_rows_are_left_out() -> None:
    weights = np.zeros((2, 5, 5))
    weights[:, :4, :4] = G
    seen = np.zeros((5, 5), bool)
    seen[:4, :4] = CAUSAL
    weights[:, 4, 0] = 1.0  # a padded query that attends all the same
    seen[4, 0] = True
    found = measure(
        weights,
        seen,
        metrics=ALL,
        queries=[True] * 4 + [False],
        tokens=[1, 2, 1, 2, 0],
        special=[0] * 5,
        punctuation=[0] * 5,
    )
    alone = measure(
        G, CAUSAL, metrics=ALL, tokens=[1, 2, 1, 2], special=[0] * 4, punctuation=[0] * 4
    )
    for name in ALL:
        np.testing.assert_allclose(found[name].value, [alone[name].value] * 2, atol=1e-12)
        assert found[name].rows.tolist() == [int(alone[name].rows)] * 2


def test_an_offset_moves_the_queries() -> None:
    whole = measure(G, CAUSAL, metrics=("distance", "previous", "self"))
    assert whole["self"].rows == 4
    last = measure(G[2:], CAUSAL[2:], metrics=("distance", "previous", "self"), offset=2)
    assert float(last["distance"].value) == pytest.approx((0.7 + 1.1) / 2)
    assert float(last["previous"].value) == pytest.approx(0.4)


def test_leading_axes_stay_and_the_caller_s_array_is_untouched() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((2, 3, 7, 5))
    weights /= weights.sum(-1, keepdims=True)
    weights.setflags(write=False)
    found = measure(weights, aligned=False)
    assert found["entropy"].value.shape == (2, 3)
    assert np.isnan(found["distance"].value).all()  # the keys are another text: no distance
    each = measure(weights[1, 2], aligned=False)["entropy"]
    assert float(each.value) == pytest.approx(float(found["entropy"].value[1, 2]))
    assert set(found) == set(DEFAULT)


def test_low_precision_is_summed_in_wider_types() -> None:
    weights = torch.softmax(torch.randn(1, 13, 13, generator=torch.Generator().manual_seed(1)), -1)
    exact = measure(weights.double())["entropy"].value
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert measure(weights.to(dtype))["entropy"].value == pytest.approx(exact, rel=1e-2)
    half = np.full((1, 4096), 1 / 4096, np.float16)
    assert float(attncli.metrics.entropy(half)) == pytest.approx(math.log(4096), rel=1e-3)


def test_what_is_not_known_is_not_a_number() -> None:
    found = measure(G, CAUSAL, metrics=("special", "duplicate_pattern"))
    assert all(math.isnan(one.value) and one.rows == 0 for one in found.values())


def test_refusals() -> None:
    with pytest.raises(UsageError, match="entropi"):
        measure(G, metrics=["entropi"])
    with pytest.raises(InputError, match=r"visible has shape \[3\]"):
        measure(G, np.ones(3, bool))
    with pytest.raises(InputError, match="5 entries"):
        measure(G, tokens=[1, 2, 3, 4, 5])
    with pytest.raises(InputError, match="1 axes"):
        measure(np.ones(3))


def test_declarations_are_whole() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert getattr(attncli.metrics, name) is metric
        assert metric.formula
        assert metric.source
        assert metric.says


def own_metric(name: str = "twice") -> Metric:
    """A metric of a caller's own: twice the largest weight of a row."""
    return Metric(
        name, "mean 2 max_j A", 0, 2, "", "sure, twice", "rows that see a key", "this test",
        lambda rows: PerRow(2 * rows.peak, ~rows.sight.empty), aligned=False,
    )  # fmt: skip


def test_a_callers_own_metric_is_measured_everywhere() -> None:
    weights = np.array([[[1.0, 0.0], [0.25, 0.75]]])
    own = own_metric()
    assert own(weights).tolist() == [1.75]
    assert measure(weights, metrics=(own,))["twice"].value.tolist() == [1.75]
    assert measure(weights, metrics=(own, "confidence"))["confidence"].value.tolist() == [0.875]
    document = attncli.heads(attncli.load(seed=0), "the cat sat", metrics=(own,), sort=own)
    [head] = document.heads
    assert set(head.metrics) == {"twice"}
    [layer] = attncli.load(seed=0).trace("the cat sat")
    assert head.metrics["twice"].value == pytest.approx(own(layer.stages["weights"])[0])


def test_a_metric_of_ones_own_does_not_pass_for_a_built_in_one() -> None:
    for metric in (own_metric("entropy"), own_metric("offset-1")):
        with pytest.raises(UsageError, match=f"'{metric.name}' is a metric of attn's own"):
            measure(np.eye(2)[None], metrics=(metric,))
        with pytest.raises(UsageError, match="is a metric of attn's own"):
            metric(np.eye(2)[None])
        with pytest.raises(UsageError, match="is a metric of attn's own"):
            attncli.heads(attncli.load(seed=0), "the cat sat", sort=metric)


def test_two_metrics_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two metrics are called 'twice'"):
        measure(np.eye(2)[None], metrics=(own_metric(), own_metric()))
