"""The examples of the five teaching texts, each asked of the command line and checked against loops
or known figures."""

import json
import math
import re

import numpy as np
import oracles
import pytest
from asking import ask

HUMPTY = "humpty dumpty sat on"
STREET = "The animal didn't cross the street because it was too tired"


def stages(*question: str) -> dict:
    return ask("run", *question, "--stages", "all", "--dtype", "float64", "--json").json


def shapes(document: dict) -> dict[str, list[int]]:
    return {row["step"]: row["shape"] for row in document["shapes"]}


def test_1_sizes_of_the_texts() -> None:
    """d_model 512, d_k = d_v = 64, ten tokens in a batch of two give [2, 10, 64]; four tokens with
    512 × 512 give [4, 512]."""
    lines = b"a b c d e f g h i j\nk l m n o p q r s t\n"
    answer = ask(
        "run", "--lines", "--ndjson", "--d-model", "512", "--d-k", "64", "--d-v", "64", stdin=lines
    )
    documents = [json.loads(line) for line in answer.out.splitlines()]
    assert np.shape([document["layers"][0]["output"] for document in documents]) == (2, 10, 64)
    found = shapes(stages(HUMPTY, "--d-model", "512"))
    assert (found["hidden"], found["q"], found["out"]) == ([4, 512], [1, 4, 512], [4, 512])


def test_1_key_and_value_widths_may_differ() -> None:
    found = shapes(stages(HUMPTY, "--d-model", "23", "--d-k", "7", "--d-v", "5"))
    assert (found["hidden"], found["q"], found["k"], found["v"], found["out"]) == (
        [4, 23],
        [1, 4, 7],
        [1, 4, 7],
        [1, 4, 5],
        [4, 5],
    )


def test_2_five_steps_with_formula_axes_and_shape() -> None:
    document = stages(HUMPTY, "--mask", "causal")
    named = {row["step"]: row for row in document["shapes"]}
    for step, formula in (
        ("raw", "Q·Kᵀ"),
        ("scaled", "scale"),
        ("masked", "−∞"),
        ("weights", "softmax"),
        ("mixed", "A·V"),
    ):
        assert formula in named[step]["formula"]
        assert len(named[step]["axes"]) == len(named[step]["shape"])
    (head,) = document["layers"][0]["heads"]
    steps = head["stages"]
    for i in range(4):
        raw = [oracles.dot(steps["q"][i], key) for key in steps["k"]]
        assert steps["raw"][i] == pytest.approx(raw)
        assert steps["scaled"][i] == pytest.approx([value / 8 for value in raw])
        assert steps["masked"][i] == [
            pytest.approx(raw[j] / 8) if j <= i else None for j in range(4)
        ]
        weights = oracles.softmax([value / 8 for value in raw], [j <= i for j in range(4)])
        assert steps["weights"][i] == pytest.approx(weights)
        assert steps["mixed"][i] == pytest.approx(
            [
                sum(w * row[at] for w, row in zip(weights, steps["v"], strict=True))
                for at in range(64)
            ]
        )


def test_3_one_token_written_out_agrees_with_the_matrices() -> None:
    """`on` in `humpty dumpty sat on`: four scores, four weights that sum to 1, and the output term
    by term.
    """
    question = (
        "explain",
        HUMPTY,
        "--query",
        "on",
        "--d-model",
        "512",
        "--dtype",
        "float64",
        "--json",
    )
    document = ask(*question).json
    steps = {step["step"]: step for step in document["steps"]}
    assert document["query"] == 3
    q, k, v = (steps["projections"][name] for name in "qkv")
    scores = [oracles.dot(q, key) / math.sqrt(512) for key in k]
    assert steps["scores"]["scores"] == pytest.approx(scores)
    weights = steps["softmax"]["weights"]
    assert min(weights) >= 0
    assert sum(weights) == pytest.approx(1)
    assert weights == pytest.approx(oracles.softmax(scores, [True] * 4))
    terms = np.array(
        [[weight * entry for entry in value] for weight, value in zip(weights, v, strict=True)]
    )
    assert np.allclose(steps["output"]["terms"], terms)
    assert np.allclose(steps["output"]["output"], terms.sum(axis=0))
    assert np.allclose(document["matrices"]["output"][3], steps["output"]["output"])
    assert np.allclose(document["matrices"]["weights"][3], weights)
    assert np.allclose(
        ask("run", HUMPTY, "--d-model", "512", "--dtype", "float64", "--json").json["layers"][0][
            "output"
        ][3],
        steps["output"]["output"],
    )


def test_4_the_variance_of_a_dot_product_is_d_k() -> None:
    document = ask("explain", "scaling", "--d-k", "512", "--json").json
    raw, scaled = document["variance"]
    assert (raw["theory"], scaled["theory"]) == (512, pytest.approx(1))
    assert raw["standard_errors"] < 4
    unscaled, with_scale, _ = document["softmax"]
    assert unscaled["largest"] > with_scale["largest"]
    assert unscaled["gradient"] < with_scale["gradient"]


def test_5_softmax_by_hand() -> None:
    """One text rounds these to 0.65, 0.24, 0.11; these are the right figures."""
    screen = ask("explain", "softmax", "2.0", "1.0", "0.1", "--precision", "3").out
    assert re.findall(r"0\.\d{3}$", screen, re.MULTILINE)[:3] == ["0.659", "0.242", "0.099"]
    document = ask("explain", "softmax", "2.0", "1.0", "0.1", "--json").json
    assert document["weights"] == pytest.approx(
        [math.exp(x) / sum(map(math.exp, (2.0, 1.0, 0.1))) for x in (2.0, 1.0, 0.1)]
    )
    assert [round(weight, 3) for weight in document["weights"]] == [0.659, 0.242, 0.099]


def test_5_rows_against_the_whole_matrix() -> None:
    document = ask("explain", "matrix-softmax", HUMPTY, "--json").json
    assert np.sum(document["rows"], axis=1) == pytest.approx(1)
    assert sum(document["row_sums"]) == pytest.approx(1)
    assert max(document["row_sums"]) < 1


def test_8_one_head_is_multi_head_with_one() -> None:
    one = stages(HUMPTY, "--num-heads", "1")
    assert one == stages(HUMPTY)
    grid = ask("heads", HUMPTY, "--num-heads", "1", "--dtype", "float64", "--json").json
    assert np.allclose(grid["heads"][0]["weights"], one["layers"][0]["heads"][0]["weights"])


def test_8_what_averaging_loses() -> None:
    """The mean of eight heads is flatter than the heads are."""
    document = ask("heads", STREET, "--json").json
    mean = np.mean([head["weights"] for head in document["heads"]], axis=0)
    assert np.allclose(document["average"]["weights"], mean, atol=1e-6)

    def entropy(rows: np.ndarray) -> float:
        return float(-(rows * np.log(rows)).sum(axis=1).mean())

    each = [entropy(np.array(head["weights"])) for head in document["heads"]]
    assert entropy(mean) > max(each)
    assert document["average"]["entropy"] == pytest.approx(entropy(mean), abs=1e-5)
    assert document["average"]["heads_entropy"] == pytest.approx(np.mean(each), abs=1e-5)
    screen = " ".join(ask("heads", STREET).out.split())
    assert (
        f"average: entropy {entropy(mean):.2f} nats, its heads {np.mean(each):.2f} on their own"
        in screen
    )


def test_12_scale_variants() -> None:
    """Text 2 divides by √embed_size although each of its heads is narrower."""
    for scale, divisor in (("sqrt-dk", 2.0), ("sqrt-dmodel", 4.0), ("none", 1.0), ("0.3", 1 / 0.3)):
        document = stages(HUMPTY, "--d-model", "16", "--num-heads", "4", "--scale", scale)
        for head in document["layers"][0]["heads"]:
            raw, scaled = (np.array(head["stages"][name]) for name in ("raw", "scaled"))
            assert np.allclose(scaled, raw / divisor)


def test_13_what_a_word_looks_at() -> None:
    """`计划` in `今天 我 的 计划 是 买菜`: six words, the query at position 3, a ranking and the resulting
    vector.
    """
    question = ("今天 我 的 计划 是 买菜", "--tokenizer", "whitespace", "--query", "计划")
    document = ask("run", *question, "--json").json
    assert [token["text"] for token in document["tokens"]] == [
        "今天",
        "我",
        "的",
        "计划",
        "是",
        "买菜",
    ]
    assert document["queries"] == [3]
    (row,) = document["layers"][0]["heads"][0]["weights"]
    assert sum(row) == pytest.approx(1, abs=1e-6)
    ranking = sorted(range(6), key=lambda key: -row[key])
    assert [link["key"] for link in document["links"]] == ranking
    assert (
        ask("run", question[0], "--tokenizer", "whitespace", "--query", "#3", "--json").json
        == document
    )
    explained = ask("explain", *question, "--json").json
    assert np.allclose(
        next(step for step in explained["steps"] if step["step"] == "output")["output"],
        document["layers"][0]["heads"][0]["output"][0],
        atol=1e-5,
    )


def test_15_order_is_not_seen_without_positions() -> None:
    document = ask("explain", "order", "我爱你", "你爱我", "--tokenizer", "char", "--json").json
    found = {
        (row["position"], row["mask"]): row for row in document["rows"] if row["order"] == [2, 1, 0]
    }
    assert found["none", "none"]["equal"]
    assert found["none", "none"]["max_difference"] < 1e-5
    for broken in (
        ("sinusoidal", "none"),
        ("learned", "none"),
        ("rope", "none"),
        ("none", "causal"),
    ):
        assert not found[broken]["equal"]
        assert found[broken]["max_difference"] > 0.1
    # ALiBi sees distances, which reading backwards keeps; another order it does see, and that is
    # shown beside it
    assert found["alibi", "none"]["equal"]
    (broken_too,) = [row for row in document["rows"] if row["order"] != [2, 1, 0]]
    assert (broken_too["position"], broken_too["order"], broken_too["equal"]) == (
        "alibi",
        [1, 2, 0],
        False,
    )
    assert broken_too["max_difference"] > 100 * broken_too["tolerance"]
    moved = ask("explain", "order", "我爱你", "爱我你", "--tokenizer", "char", "--json").json
    assert {row["position"]: row["equal"] for row in moved["rows"] if row["mask"] == "none"}[
        "alibi"
    ] is False


def test_16_a_thousand_tokens_are_a_million_pairs() -> None:
    document = ask("cost", "-n", "1000", "--json").json
    found = {variant["name"]: variant for variant in document["variants"]}
    assert found["full"]["pairs"] == 1_000_000
    assert (found["full"]["steps"], found["rnn"]["steps"]) == (1, 1000)
    assert "1,000,000" in ask("cost", "-n", "1000").out


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--mask", "window:3"),
        ("--mask", "causal"),
        ("--mask", "lsh:4"),
        ("--attention", "reformer:8"),
    ],
)
def test_17_sparse_variants_run_are_drawn_and_compared(option: str, value: str) -> None:
    document = ask("run", STREET, option, value, "--json").json
    (head,) = document["layers"][0]["heads"]
    assert np.allclose(np.sum(head["weights"], axis=1), 1, atol=1e-5)
    dense = "none" if option == "--mask" else "dense"
    compared = ask("compare", STREET, option, dense, option, value, "--json").json
    (pair,) = compared["heads"]
    assert 0 < pair["kept"] < 1
    assert pair["output_error"] > 0
    assert pair["pairs"]["b"] < pair["pairs"]["a"] == 121
    if option == "--mask":
        assert ask("mask", value, "-n", "11").code == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("我昨天去超市，买了牛奶和面包，今天发现面包过期了", 24),
        ("她吃苹果，他吃香蕉", 9),
        ("Ella come manzanas, él come plátanos", 7),
    ],
)
def test_18_clauses_in_every_script(text: str, count: int) -> None:
    tokenizer = "word" if text.isascii() or text[0] == "E" else "char"
    document = ask("run", text, "--tokenizer", tokenizer, "--json").json
    assert len(document["tokens"]) == count
    for token in document["tokens"]:
        assert text[token["start"] : token["end"]] == token["text"]
    from attncli.draw.safe import cells

    for width in (60, 80, 120):
        screen = ask("run", text, "--tokenizer", tokenizer, width=width).out
        assert all(cells(line) <= width for line in screen.split("\n"))
