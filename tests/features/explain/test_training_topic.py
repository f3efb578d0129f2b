"""`attn explain training` against loops and finite differences of a loss of its own, and the example
that the guide works by hand."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from asking import ask

from attncli.language.guide import page

TEXT = "humpty dumpty sat on"
Matrix = list[list[float]]


def loss_of(x: Matrix, w_q: Matrix, w_k: Matrix, query: int, target: int, scale: float) -> float:
    """−ln of the weight that a query gives a target, in loops."""
    dims = range(len(w_q[0]))
    q = [sum(x[query][i] * w_q[i][d] for i in range(len(w_q))) for d in dims]
    exps = []
    for row in x:
        k = [sum(row[i] * w_k[i][d] for i in range(len(w_k))) for d in dims]
        exps.append(math.exp(scale * sum(q[d] * k[d] for d in dims)))
    return -math.log(exps[target] / sum(exps))


@pytest.mark.parametrize("options", [(), ("--num-heads", "2", "--head", "1"), ("--d-v", "3")])
def test_gradients_are_finite_differences_of_a_loss_in_loops(options: tuple[str, ...]) -> None:
    line = ("--d-model", "6", "--dtype", "float64", *options)
    asked = ("explain", "training", TEXT, *line, "--query", "on", "--target", "dumpty", "--json")
    document = ask(*asked).json
    run = ask("explain", TEXT, *line, "--show", "W_Q,W_K", "--json").json
    w_q, w_k = (run["projections"][name] for name in ("W_Q", "W_K"))
    x = document["x"]
    scale = document["scale"]
    assert document["loss"] == pytest.approx(loss_of(x, w_q, w_k, 3, 1, scale), abs=1e-9)
    step = 1e-5
    for which, name in enumerate(("query_matrix_gradient", "key_matrix_gradient")):
        for row, values in enumerate(document[name]):
            for column, gradient in enumerate(values):
                losses = []
                for sign in (1, -1):
                    moved = [np.array(w_q), np.array(w_k)]
                    moved[which][row, column] += sign * step
                    losses.append(loss_of(x, *(m.tolist() for m in moved), 3, 1, scale))
                difference = (losses[0] - losses[1]) / (2 * step)
                assert gradient == pytest.approx(difference, abs=1e-6)
    rate = document["learning_rate"]
    moved_q = np.array(w_q) - rate * np.array(document["query_matrix_gradient"])
    moved_k = np.array(w_k) - rate * np.array(document["key_matrix_gradient"])
    after = loss_of(x, moved_q.tolist(), moved_k.tolist(), 3, 1, scale)
    assert document["new_loss"] == pytest.approx(after, abs=1e-9)
    assert after < document["loss"]
    assert sum(document["score_gradient"]) == pytest.approx(0, abs=1e-12)
    for check in document["checks"]:
        assert check["difference"] == pytest.approx(check["gradient"], abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        ("--position", "alibi", "--num-heads", "4"),
        ("--position", "learned", "--bias"),
        ("--mask", "causal"),
    ],
)
def test_positions_biases_and_masks_take_part(options: tuple[str, ...]) -> None:
    document = ask("explain", "training", TEXT, *options, "--target", "dumpty", "--json").json
    run = ask("run", TEXT, *options, "--json").json
    np.testing.assert_allclose(
        document["weights"], run["layers"][0]["heads"][0]["weights"][3], atol=1e-5
    )
    for check in document["checks"]:
        assert check["difference"] == pytest.approx(check["gradient"], rel=1e-5, abs=1e-6)


def test_a_target_of_several_tokens_counts_all_of_them() -> None:
    asked = ("explain", "training", "abcd", "--tokenizer", "char", "--query", "d")
    document = ask(*asked, "--target", "bc", "--json").json
    assert document["target"] == [1, 2]
    assert document["loss"] == pytest.approx(-math.log(sum(document["weights"][1:3])), abs=1e-9)
    for check in document["checks"]:
        assert check["difference"] == pytest.approx(check["gradient"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--position", "rope"), "more than"),
        (("--attention", "reformer:2"), "more than"),
        (("--mask", "causal", "--query", "dumpty", "--target", "on"), "hides"),
        (("--mask", "causal", "--query", "humpty"), "sees 1"),
        (("--learning-rate", "0"), "learning-rate"),
        (("--softcap", "5"), "capped at ±5"),
    ],
)
def test_what_has_no_such_step_is_refused(options: tuple[str, ...], words: str) -> None:
    result = ask("explain", "training", TEXT, *options)
    assert result.code != 0
    assert words in result.err


def test_a_step_that_goes_too_far_is_not_called_a_success() -> None:
    result = ask("explain", "training", TEXT, "--target", "sat", "--learning-rate", "50", "--brief")
    assert "goes too far" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("text", "rate", "words"),
    [
        ("a b c d e f", "1e-18", "is too small to change the loss"),
        ("a a", "1", "The gradient of W_Q and W_K is 0"),
    ],
)
def test_a_step_that_changes_nothing_is_not_said_to_go_too_far(
    text: str, rate: str, words: str
) -> None:
    asked = ("explain", "training", text, "--learning-rate", rate)
    document = ask(*asked, "--json").json
    assert document["new_loss"] == document["loss"]
    shown = " ".join(ask(*asked, "--brief").out.split())
    assert words in shown
    assert "too far" not in shown


def test_a_phrase_keeps_its_blanks() -> None:
    phrase = ("--query", "on", "--target", "humpty dumpty")
    shown = " ".join(ask("explain", "training", TEXT, *phrase, "--brief").out.split())
    assert 'the weight that "on" gives "humpty dumpty" from' in shown


NUMBER = re.compile(r"[−-]?\d+(?:\.\d+)?")


def numbers_of(text: str) -> list[float]:
    """The numbers of a cell of a table; the names in front of them have none."""
    return [float(number.replace("−", "-")) for number in NUMBER.findall(text)]


def hand_loss(w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray) -> float:
    """The loss of the guide's example: −ln of the output's first entry; x is the identity, b asks."""
    scores = (w_k @ w_q[1]) / 2
    weights = np.exp(scores) / np.exp(scores).sum()
    return -math.log(float(weights @ w_v[:, 0]))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_example_by_hand_is_what_its_tables_say(lang: str, tmp_path: Path) -> None:
    text = page("learners", lang)
    rows = {}
    for line in text.splitlines():
        if line.startswith(("| W_", "| q_", "| k_")):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows.setdefault(name, []).append(cells)

    # the matrices, and their gradients in the second table: a's row, then b's
    names = ("W_Q", "W_K", "W_V")
    matrices = [np.array([numbers_of(cell) for cell in rows[name][0]]) for name in names]
    gradients = [np.array(numbers_of(rows[name][1][1])).reshape(2, -1) for name in names]
    step = 1e-6
    for which, gradient in enumerate(gradients):
        assert gradient.shape == matrices[which].shape
        for place in np.ndindex(gradient.shape):
            losses = []
            for sign in (1, -1):
                moved = [matrix.copy() for matrix in matrices]
                moved[which][place] += sign * step
                losses.append(hand_loss(*moved))
            assert gradient[place] == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-6)

    # the step
    w_q, w_k = (matrices[which] - gradients[which] for which in range(2))
    for name, before, after in (
        ("q_b", matrices[0][1], w_q[1]),
        ("k_a", matrices[1][0], w_k[0]),
        ("k_b", matrices[1][1], w_k[1]),
    ):
        shown = [numbers_of(cell) for cell in rows[name][0]]
        assert shown == [pytest.approx(before), pytest.approx(after)]
    assert f"{hand_loss(*matrices):.4f}" in text
    assert f"{hand_loss(w_q, w_k, matrices[2]):.4f}" in text
    weights = np.exp(w_k @ w_q[1] / 2) / np.exp(w_k @ w_q[1] / 2).sum()
    assert f"{weights[0]:.4f}, {weights[1]:.4f}" in text

    # and the command gives the same
    np.savez(tmp_path / "step.npz", W_Q=matrices[0], W_K=matrices[1], W_V=matrices[2])
    np.savetxt(tmp_path / "pair.csv", np.eye(2), "%g", ",")
    files = ("--weights", str(tmp_path / "step.npz"), "--embeddings", str(tmp_path / "pair.csv"))
    asked = ("explain", "training", "a b", "--query", "b", "--target", "a", *files)
    document = ask(*asked, "--learning-rate", "1", "--json").json
    np.testing.assert_allclose(document["query_matrix_gradient"], gradients[0], atol=1e-6)
    np.testing.assert_allclose(document["key_matrix_gradient"], gradients[1], atol=1e-6)
    np.testing.assert_allclose(document["new_weights"], weights, atol=1e-6)
