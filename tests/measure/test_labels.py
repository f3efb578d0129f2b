"""Labels: heads whose behaviour is known by construction get their label, and no other."""

from __future__ import annotations

import numpy as np
import pytest
from measure import hand_built
from msgspec.structs import replace

from attncli.inputs.token import Token
from attncli.measure.labels import (
    LABELS,
    LEAST_ROWS,
    MARGIN,
    NEEDED,
    SCORE_METRICS,
    decide_label,
    labels_of,
    repeated_tokens,
    score_repeats,
)
from attncli.measure.metric import measure

ORDINARY = [Token(at, f"w{at}", at, None, None) for at in range(100)]
START = Token(0, "<s>", 1000, None, None, True)
EXPECTED = {
    (0, 0): {"previous-token", "positional"},
    (0, 1): {"duplicate-token"},
    (0, 2): {"first-token sink", "special-token"},
    (0, 3): {"broad"},
    (1, 0): {"induction"},
    (1, 1): {"positional"},
    (1, 2): {"self", "positional"},
    (1, 3): {"broad"},
}


def labels(repeats: bool = True) -> dict[tuple[int, int], list]:
    tokens = repeated_tokens(ORDINARY, 31, 5, before=[START])[:32]  # a text without repetition
    known = score_repeats(hand_built.run, ORDINARY, before=[START], length=29, draws=2)
    found = {}
    for layer, weights in hand_built.run(tokens):
        seen = np.tril(np.ones(weights.shape[-2:], bool))
        about = {
            "tokens": [token.text for token in tokens],
            "special": [token.special for token in tokens],
        }
        measured = measure(
            weights, seen, metrics=NEEDED, punctuation=[False] * len(tokens), **about
        )
        for head in range(weights.shape[0]):
            found[layer, head] = labels_of(
                measured, head, repeats=known[layer, head] if repeats else None
            )
    return found


def test_heads_built_by_hand_get_their_labels() -> None:
    found = labels()
    # on a text without repetition the duplicate and induction heads find nothing, and fall back to
    # other keys
    for place in ((0, 1), (1, 0)):
        assert EXPECTED[place] <= {one.name for one in found[place]}, place
    for place in set(EXPECTED) - {(0, 1), (1, 0)}:
        assert {one.name for one in found[place]} == EXPECTED[place], place
    assert next(one for one in found[1, 1] if one.name == "positional").detail == "-3"


def test_only_the_induction_head_does_induction() -> None:
    known = score_repeats(hand_built.run, ORDINARY, before=[START], length=23, draws=2)
    for place, score in known.items():
        assert (score["repeats_induction"] > 0.9) == (place == (1, 0)), place
        assert (score["repeats_duplicate"] > 0.9) == (place == (0, 1)), place


def test_without_repeats_there_is_no_induction_label() -> None:
    assert "induction" not in {
        one.name for found in labels(repeats=False).values() for one in found
    }


def test_scores_are_the_loop() -> None:
    rng = np.random.default_rng(0)
    kept = []

    def run(tokens: list[Token]):
        weights = rng.random((2, len(tokens), len(tokens)))
        kept.append(weights)
        yield 4, weights

    found = score_repeats(run, ORDINARY, before=[START], after=[START], length=7, draws=3)
    for head in range(2):
        duplicate = np.mean([kept[d][head, i, i - 7] for d in range(3) for i in range(8, 15)])
        induction = np.mean([kept[d][head, i, i - 6] for d in range(3) for i in range(8, 15)])
        rows = [(kept[d][head, i], i) for d in range(3) for i in range(8, 15)]
        others = sum(row[1:].sum() for row, _ in rows)
        assert found[4, head] == {
            "repeats_duplicate": pytest.approx(duplicate),
            "repeats_induction": pytest.approx(induction),
            "repeats_duplicate_beyond_first": pytest.approx(
                sum(row[i - 7] for row, i in rows) / others
            ),
            "repeats_induction_beyond_first": pytest.approx(
                sum(row[i - 6] for row, i in rows) / others
            ),
            "repeats_share": 1.0,
        }


@pytest.mark.parametrize("rests", [0.0, 0.9, 0.995])
@pytest.mark.parametrize("before", [[], [START]])
def test_a_head_that_rests_is_labelled_by_what_else_it_does(
    rests: float, before: list[Token]
) -> None:
    def run(tokens: list[Token]):
        # half of its other weight goes to the token a period before, half to the one behind that
        weights = np.zeros((1, len(tokens), len(tokens)))
        weights[:, :, 0] = rests
        for i in range(1, len(tokens)):
            weights[0, i, i - 1] += 1 - rests
        for i in range(len(before) + 7, len(tokens)):
            weights[0, i] = 0
            weights[0, i, 0] = rests
            weights[0, i, i - 7] += 0.5 * (1 - rests)
            weights[0, i, i - 6] += 0.5 * (1 - rests)
        yield 0, weights

    scores = score_repeats(run, ORDINARY, before=before, length=7, draws=2)[0, 0]
    # where nothing stands before, the first duplicate is the first token: there a row has half
    induction = 0.5 if before else 3.5 / 6.5
    assert scores["repeats_induction_beyond_first"] == pytest.approx(induction)
    assert scores["repeats_duplicate_beyond_first"] == pytest.approx(0.5)
    weights = np.zeros((1, 9, 9))
    weights[:, :, 0] = rests
    weights[0, 0, 0] = 1
    for i in range(1, 9):
        weights[0, i, i - 1] += 1 - rests
    seen = np.tril(np.ones((9, 9), bool))
    measured = measure(weights, seen, metrics=NEEDED, punctuation=[False] * 9, special=[False] * 9)
    found = {one.name: one for one in labels_of(measured, 0, repeats=scores)}
    doing = {"previous-token", "positional", "induction", "duplicate-token"}
    assert set(found) == (doing if rests < 0.99 else set()) | (
        {"first-token sink"} if rests else set()
    )
    for name in doing & set(found):
        expected = {"induction": induction, "duplicate-token": 0.5}.get(name, 1.0)
        assert found[name].score == pytest.approx(expected)
        assert 0.0 <= found[name].share <= 1 - rests + 1e-9
        assert not found[name].state
    if rests:
        assert found["first-token sink"].state
        assert found["first-token sink"].share is None


def test_sequences_are_seeded_and_repeat_once() -> None:
    first, again, other = (
        repeated_tokens(ORDINARY, 20, seed, before=[START]) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    texts = [token.text for token in first]
    assert texts[1:21] == texts[21:]
    assert len(set(texts[1:21])) == 20
    assert [token.index for token in first] == list(range(41))
    assert len(repeated_tokens(ORDINARY[:3], 20, 0)) == 40


def test_short_texts_label_nothing_by_nearness_alone() -> None:
    even = np.full((1, 5, 5), 0.2)
    measured = measure(even, metrics=NEEDED, special=[True] + [False] * 4, punctuation=[False] * 5)
    assert [one.name for one in labels_of(measured, 0)] == ["broad"]


def test_few_rows_label_nothing() -> None:
    for count, expected in ((4, []), (5, ["first-token sink"])):
        weights = np.zeros((1, count, count))
        weights[..., 0] = 1
        measured = measure(
            weights, metrics=NEEDED, special=[False] * count, punctuation=[False] * count
        )
        assert [one.name for one in labels_of(measured, 0)] == expected


def test_documents_hold_score_and_threshold() -> None:
    (row,) = [one for one in labels()[0, 0] if one.name == "previous-token"]
    assert row.threshold == LABELS["previous-token"].threshold
    assert row.score == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("score", "even", "earned"), [(0.75, 0.5, True), (0.75, 0.5000001, False), (0.7499, 0.1, False)]
)
def test_a_label_is_earned_at_its_threshold_and_its_margin(
    score: float, even: float, earned: bool
) -> None:
    label = replace(LABELS["self"], threshold=0.75)
    assert MARGIN == 1.5
    (name,) = SCORE_METRICS[label.score]
    value, baseline = ({name: np.array(number)} for number in (score, even))
    found = decide_label(label, value, baseline, {name: np.array(LEAST_ROWS)})
    assert bool(found.is_earned) is earned
    assert not decide_label(label, value, baseline, {name: np.array(LEAST_ROWS - 1)}).is_earned


@pytest.mark.parametrize(("less", "earned"), [(0.0, True), (1e-9, False)])
def test_induction_is_earned_at_its_threshold(less: float, earned: bool) -> None:
    score = LABELS["induction"].threshold - less
    seen = np.tril(np.ones((8, 8), bool))
    measured = measure(
        (seen / seen.sum(-1, keepdims=True))[None], seen, metrics=NEEDED, punctuation=[False] * 8,
        tokens=[f"w{at}" for at in range(8)], special=[False] * 8,
    )  # fmt: skip
    repeats = {"repeats_induction_beyond_first": score, "repeats_duplicate_beyond_first": 0.0}
    found = labels_of(measured, 0, repeats=repeats)
    assert ("induction" in {one.name for one in found}) is earned
