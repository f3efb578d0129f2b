"""`attn mask`: drawn, described, counted; files and biases; bad input."""

import re
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from validity import validate

from attncli.draw.safe import cells


def test_a_causal_mask_is_a_triangle() -> None:
    rows = [
        line
        for line in ask("mask", "causal", "-n", "5").out.split("\n")
        if line[:1].isdigit() and "█" in line
    ]
    assert [row.count("█") for row in rows] == [2, 4, 6, 8, 10]
    assert "15 pairs visible, 60.0%" in ask("mask", "causal", "-n", "5").out


def test_each_mask_says_what_its_number_counts() -> None:
    assert "3 keys, its own included" in ask("mask", "window:3").out
    assert "连同自身共 3 个" in ask("mask", "window:3", "--lang", "zh").out


def test_an_intersection_is_drawn_beside_its_parts() -> None:
    screen = ask("mask", "causal", "window:2,2", "-n", "7").out
    assert "all together: causal & window:2,2" in screen
    assert "18 pairs visible" in screen


@pytest.mark.many
@pytest.mark.parametrize(
    "question",
    [
        (), ("causal",),
        ("window:2,2|global:0", "padding:1", "-n", "9"), ("bigbird:2,1", "-n", "30"), ("lsh:4,2",), ("causal", "-n",
        "300"),
        ("causal", "--score-bias", "alibi", "--head", "3"), ("none", "--score-bias", "t5"),
        ("none", "--score-bias", "t5-decoder", "-n", "100"), ("padding:16",),
    ],
)  # fmt: skip
def test_json_is_valid_and_screens_fit(question: tuple[str, ...]) -> None:
    document = ask("mask", *question, "--json").json
    validate(document, "attn.mask/1")
    for width in (60, 80, 120):
        for options in ((), ("--ascii",), ("--lang", "zh")):
            answer = ask("mask", *question, *options, width=width)
            assert answer.code == 0, answer.err
            assert all(cells(line) <= width for line in answer.out.split("\n"))
            assert answer.out.isascii() or options != ("--ascii",)


def test_a_file_brings_its_size(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.tril(np.ones((7, 7))))
    document = ask("mask", str(tmp_path / "m.npy"), "--json").json
    assert (document["n"], document["masks"][0]["pairs"]) == (7, 28)
    assert ask("mask", str(tmp_path / "m.npy"), "-n", "8").code == 3
    np.save(tmp_path / "k.npy", np.ones((6, 6)))
    assert ask("mask", str(tmp_path / "m.npy"), str(tmp_path / "k.npy")).code == 3


def test_rows_that_see_nothing_are_told() -> None:
    screen = " ".join(ask("mask", "causal", "padding:16").out.split())
    assert (
        "16 queries see nothing: #0 #1 #2 #3 #4 #5 #6 #7 … · 16 keys are seen by no query: #0"
        in screen
    )


def test_a_file_of_another_size_is_refused_in_chinese(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("1,0\n0,0\n")
    (tmp_path / "mymask").write_text("1")
    refused = ask("mask", str(tmp_path / "m.csv"), "-n", "4", "--lang", "zh").err
    assert "需要：[4, 4]（查询 × 键），或 [4]" in refused
    assert "掩码文件" in ask("run", "a", "--mask", str(tmp_path / "no.csv"), "--lang", "zh").err
    nameless = ("run", "--embeddings", str(tmp_path / "mymask"))
    assert "the name has no ending" in ask(*nameless).err
    assert "文件名没有扩展名" in ask(*nameless, "--lang", "zh").err
    said = ask("run", "a b", "--mask", str(tmp_path / "m.csv"), "--show", "weights").out
    assert "query 1 can see no key: weights" in said


def test_one_round_of_hashing_is_not_said_to_be_any_of_several() -> None:
    assert "（哈希一轮，" in ask("mask", "lsh:4", "-n", "8", "--lang", "zh").out
    assert "至少有一轮与它哈希到同一个桶" in ask("mask", "lsh:4,2", "-n", "8", "--lang", "zh").out


def test_t5_without_a_model_shows_bucket_numbers() -> None:
    found = ask("mask", "none", "--score-bias", "t5", "-n", "9", "--json").json["bias"]
    assert found["buckets"]
    assert {row["distance"]: row["value"] for row in found["by_distance"]} == {
        -8: 8,
        -4: 4,
        -2: 2,
        -1: 1,
        0: 0,
        1: 17,
        2: 18,
        4: 20,
        8: 24,
    }


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (("causl",), 2), (("window:0",), 2), (("causal", "-n", "0"), 2), (("causal", "--score-bias", "rope"), 2),
        (("no.npy",), 3), (("causal", "--score-bias", "alibi", "--head", "8"), 3), (("none", "-n", "1000000"), 5),
        (("causal", "--layer", "1"), 2),
    ],
)  # fmt: skip
def test_bad_questions_are_told_with_their_exit_code(question: tuple[str, ...], code: int) -> None:
    answer = ask("mask", *question)
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert answer.err.startswith("error: ")


def test_plain_is_one_line_a_mask() -> None:
    rows = [
        line.split("\t")
        for line in ask("mask", "causal", "window:2", "-n", "4", "--plain").out.splitlines()
    ]
    assert [row[:2] for row in rows] == [
        ["spec", "pairs"],
        ["causal", "10"],
        ["window:2", "7"],
        ["causal & window:2", "7"],
    ]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_row_that_sees_nothing_has_an_output_where_w_o_has_a_bias(
    lang: str, tmp_path: Path
) -> None:
    (tmp_path / "mask.csv").write_text("0,0\n1,1\n")
    line = ("run", "a b", "--mask", str(tmp_path / "mask.csv"), "--num-heads", "2", "--lang", lang)
    for options in ((), ("--bias",)):
        layer = ask(*line, *options, "--stages", "all", "--json").json["layers"][0]
        assert not any(any(head["stages"]["mixed"][0]) for head in layer["heads"])
        assert any(layer["stages"]["out"][0]) == bool(options)
        screen = " ".join(ask(*line, *options, "--query", "a").out.split())
        assert "A·V" in screen
        assert not re.search("output (are|is) 0|输出都?[是为] ?0", screen)
