"""Softmax worked out: against loops, the package's own softmax, and the figures of the texts."""

import math

import numpy as np
import oracles
import pytest
from asking import ask
from hypothesis import given, settings
from hypothesis import strategies as st
from telling import telling

from attncli.errors import InputError, UsageError
from attncli.features.explain.softmax_topics import (
    parse_scores,
    peakedness,
    softmax_document,
    softmax_of,
    softmax_steps,
)

softmax_document = telling(softmax_document)

FINITE = st.floats(-1e3, 1e3, allow_nan=False)


@settings(deadline=None, max_examples=40)
@given(st.lists(FINITE, min_size=1, max_size=7), st.data())
def test_every_step_agrees_with_loops(scores: list[float], data: st.DataObject) -> None:
    seen = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    worked = softmax_steps(
        [score if shown else None for score, shown in zip(scores, seen, strict=True)]
    )
    assert worked.weights == pytest.approx(oracles.softmax(scores, seen), abs=1e-14)
    if any(seen):
        assert math.fsum(worked.weights) == pytest.approx(1)
        assert worked.total == pytest.approx(math.fsum(worked.exponentials))
        assert max(value for value in worked.shifted_scores if value is not None) == 0
    else:
        assert (worked.highest, worked.total, set(worked.weights)) == (None, 0.0, {0.0})


def test_a_sink_takes_its_share() -> None:
    worked = softmax_steps([1.0, 2.0, None], sink=3.0)
    assert worked.weights == pytest.approx(
        oracles.softmax([1.0, 2.0, 0.0], [True, True, False], 3.0)
    )
    assert sum(worked.weights) == pytest.approx(1 - worked.sink / worked.total)  # type: ignore[operator]


def test_the_largest_score_is_told_as_it_was_given() -> None:
    asked = ("explain", "softmax", "3", "1", "0.2", "--temperature", "2")
    assert "The largest score, 3, gets 62% of the weight, 2.72 times" in ask(*asked).out
    assert "最大的得分 3 得到" in ask(*asked, "--lang", "zh").out


@pytest.mark.parametrize(
    ("scores", "share"),
    [(("30", "0"), ">99.9%"), (("900", "0"), ">99.9%"), (("3", "0"), "95%")],
)
def test_no_score_gets_all_of_the_weight_beside_another(
    scores: tuple[str, ...], share: str
) -> None:
    """exp(-900) is 0 in float64, and the weight 1 as computed."""
    said = " ".join(ask("explain", "softmax", *scores, "--brief").out.split())
    assert f"The largest score, {scores[0]}, gets {share} of the weight" in said


def test_the_packages_own_softmax_gives_the_same() -> None:
    assert softmax_of([2.0, 1.0, 0.1]) == pytest.approx(
        oracles.softmax([2.0, 1.0, 0.1], [True] * 3), abs=1e-15
    )
    assert softmax_document([2.0, 1.0, 0.1], 1.0)["agreement"] < 1e-15


def test_the_gradient_is_that_of_the_matrix() -> None:
    scores = [0.3, -1.2, 2.0, 0.0, 0.7]
    worked = softmax_steps(scores)
    weights = np.asarray(worked.weights)
    matrix = np.diag(weights) - np.outer(weights, weights)
    step = 1e-6
    measured = np.array(
        [
            [
                (
                    oracles.softmax(
                        [s + step * (at == j) for at, s in enumerate(scores)], [True] * 5
                    )[i]
                    - weights[i]
                )
                / step
                for j in range(5)
            ]
            for i in range(5)
        ]
    )
    assert np.allclose(matrix, measured, atol=1e-5)
    assert worked.gradient == pytest.approx(np.linalg.norm(matrix))
    assert peakedness(weights[None])[0] == pytest.approx(
        [weights.max(), worked.entropy, worked.gradient]
    )


def test_temperature_divides_the_scores() -> None:
    found = softmax_document([2.0, 1.0, 0.1], 0.5)
    assert found["scores"] == [4.0, 2.0, 0.2]
    assert found["weights"] == pytest.approx(oracles.softmax([4.0, 2.0, 0.2], [True] * 3))
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError):
            softmax_document([1.0], wrong)


def test_what_overflows_is_null_and_the_weights_are_right() -> None:
    found = softmax_document([800.0, 799.0], 1.0)
    assert (found["exponentials"][0], found["sum"]) == (None, None)
    assert found["weights"] == pytest.approx(oracles.softmax([1.0, 0.0], [True, True]))
    with pytest.raises(InputError):
        softmax_document([1e308], 1e-10)
    alike = softmax_document([709.5, 709.5], 1.0)  # each exponential is a float, their sum is none
    assert None not in alike["exponentials"]
    assert (alike["sum"], alike["weights"]) == (None, [0.5, 0.5])
    screen = " ".join(ask("explain", "softmax", "709.5", "709.5").out.split())
    assert "The sum of the exponentials" in screen


def test_numbers_are_read_apart_or_joined() -> None:
    assert parse_scores(["2.0,1", "-.5"]) == [2.0, 1.0, -0.5]
    for wrong in (["x"], ["nan"], ["inf"], ["--temperature"], [" "], []):
        with pytest.raises(InputError):
            parse_scores(wrong)


def test_wide_letters_are_read_and_raised_digits_are_none() -> None:
    assert parse_scores(["２．０，１．０"]) == [2.0, 1.0]
    for text in ("10³", "②", "½"):
        with pytest.raises(InputError, match="no finite number"):
            parse_scores([text, "1"])


@pytest.mark.parametrize(
    ("scores", "sentence", "chinese"),
    [
        (("3", "3", "0"), "occurs 2 times, each time with 49% of the", "最大的得分 3 有 2"),
        (("3", "2.999", "0"), "49% of the weight, hardly more than the", "几乎不比第二名多"),
        (("3", "2.99", "0"), "49% of the weight, 1.01 times", "是第二名的 1.01 倍"),
    ],
)
def test_the_largest_of_several_scores_is_no_one_times_the_next(
    scores: tuple[str, ...], sentence: str, chinese: str
) -> None:
    screen = ask("explain", "softmax", *scores).out
    assert sentence in screen
    assert " 1 times" not in screen
    assert chinese in ask("explain", "softmax", *scores, "--lang", "zh").out
