"""`attn check`: answers are marked by what runs of now give, and mistakes get their reason."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest
from asking import ask

from attncli.features.check.compute import check
from attncli.features.check.questions import QUESTIONS

RIGHT = {
    "1": math.exp(2) / (math.exp(2) + math.exp(1) + math.exp(0.1)),
    "2": math.e,
    "3": "65.9%",
    "4": 8 * 8,
    "5": "Humpty",
    "6": 512 // 8,
    "7": "500,500",
    "8": False,
    "9": 3,
    "10": "no",
}
"""Answers worked out by hand; the fifth and the last as the guide shows them."""


@pytest.fixture
def marked(tmp_path: Path):
    def answer(answers: object, *words: str):
        file = tmp_path / "answers.json"
        file.write_text(json.dumps(answers))
        return ask("check", str(file), *words)

    return answer


def test_right_answers_are_right_however_they_are_written(marked) -> None:
    answer = marked(RIGHT, "--json")
    assert (answer.code, answer.json["right"]) == (0, len(QUESTIONS)) == (0, len(RIGHT))
    assert all(mark["reason"] == "" for mark in answer.json["answers"])


@pytest.mark.parametrize(
    ("number", "answer", "is_right"),
    [
        ("2", "e", True), ("2", "2.7", True), ("2", "2.72", True), ("2", "2.8", False),
        ("2", "3", False), ("1", "66%", True), ("1", "0.7", False), ("1", "0.65", False),
        ("9", "three", True), ("9", "三", True), ("9", "two", False),
        ("2", "exp(1)", True), ("2", "2.72倍", True), ("9", "3 个", True), ("2", "2.75", False), ("2", "exp(x)", False),
        ("1", "0,659", True), ("1", "0,66", True), ("1", "0，66", True), ("1", "65,9 %", True), ("2", "2,72", True),
        ("2", "2,718", True), ("2", "2,8", False), ("1", "0,645", False), ("4", "64,0", True), ("4", "6,4", False),
        ("7", "500 500", True), ("7", "500\u00a0500", True), ("7", "500,500.0", True), ("7", "500,5", False),
        ("7", "5,005,00", False), ("7", "1,000,000", False), ("9", "3 keys", True), ("9", "3 of 4", False),
        ("9", "4 keys", False), ("6", "64 dimensions", True), ("6", "= 64", True), ("1", "≈ 0.66", True),
        ("1", "about 0.66", True), ("1", "约 0.66", True), ("2", "2.7 times", True), ("2", "2.7x", True),
        ("1", "65.9 percent", True), ("1", "0.66.", True), ("9", "e", False), ("9", "three.", True),
    ],
)  # fmt: skip
def test_a_number_may_be_rounded_or_a_word(
    marked, number: str, answer: str, is_right: bool
) -> None:
    """Two digits at least: one would make too many guesses right."""
    assert marked({number: answer}).code == (0 if is_right else 1)


@pytest.mark.parametrize(
    ("number", "answer", "is_right"),
    [
        ("5", "“humpty”", True), ("5", "「humpty」", True), ("5", "'humpty'", True), ("5", "“dumpty”", False),
        ("10", "看", False), ("10", "不看", True), ("8", "有", False), ("8", "没有", True),
        ("8", "能", False), ("8", "“不能”", True), ("10", "No.", True), ("10", "n", True), ("8", "y", False),
        ("5", "0 humpty", True), ("5", "humpty.", True), ("5", "3 on", False), ("10", "不看。", True),
    ],
)  # fmt: skip
def test_a_word_may_stand_in_quotes_and_a_yes_be_the_verb(
    marked, number: str, answer: str, is_right: bool
) -> None:
    assert marked({number: answer}).code == (0 if is_right else 1)


def test_what_cannot_be_read_is_said_to_be_so(marked) -> None:
    reasons = {
        mark["number"]: mark["reason"]
        for mark in marked({"8": "same", "9": "many", "2": 2.75}, "--json").json["answers"]
    }
    assert "yes or no" in reasons[8]
    assert "cannot be read as a number" in reasons[9]
    assert "rounded before the division" in reasons[2]


def test_each_mistake_has_its_reason_and_its_command(marked) -> None:
    wrong = {"1": 0.645, "4": 8, "7": 1_000_000, "8": "yes", "9": 17}
    answer = marked(wrong, "--json")
    assert answer.code == 1
    reasons = {str(mark["number"]): mark["reason"] for mark in answer.json["answers"]}
    assert {number for number, reason in reasons.items() if reason} == set(wrong)
    assert "exponentiate first" in reasons["1"]
    assert "standard deviation" in reasons["4"]
    assert "without the mask" in reasons["7"]
    assert reasons["9"] == "It sees the keys before it and itself."
    said = marked(wrong, "--lang", "zh").out
    assert "这是标准差" in said
    assert "attn explain scaling --d-k 64" in said
    assert "未作答：2、3、5、6、10。" in said.replace("\n", "")


def test_a_wrong_answer_is_no_error_of_the_program(marked) -> None:
    wrong = marked({"1": 0.645, "2": math.e, "4": 8})
    assert (wrong.code, wrong.err) == (1, "not right yet: 1, 4; so the exit code is 1\n")
    assert "Right answers: 1 of 3." in wrong.out
    in_chinese = marked({"4": 8}, "--lang", "zh")
    assert (in_chinese.code, "错误" in in_chinese.err) == (1, False)
    right = marked({"2": math.e})
    assert (right.code, right.err) == (0, "")


def test_every_slip_is_wrong_and_every_command_runs() -> None:
    for number, question in enumerate(QUESTIONS, 1):
        for slip in question.work_out().slips:
            mark = check({str(number): slip.answer}).answers[number - 1]
            assert (mark.is_right, mark.reason) == (False, slip.reason)


@pytest.mark.thorough
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_command_of_a_question_shows_it(question) -> None:
    import shlex

    assert ask(*shlex.split(question.command)[1:]).code == 0


def test_commands_are_whole_at_any_width(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"5": "on", "10": "yes"}))
    rows = ask("check", str(file), "--json").json["answers"]
    for width in (60, 80):
        whole = ask("check", str(file), width=width).out.replace("\\\n", "")
        shown = [line for line in whole.splitlines() if line.startswith("attn ")]
        asked = [row["command"] for row in rows if row["is_right"] is False]
        assert list(map(shlex.split, shown)) == list(map(shlex.split, asked))


def test_without_answers_the_questions_are_listed() -> None:
    answer = ask("check")
    assert answer.code == 0
    assert "10. A head learns" in answer.out
    assert "10 questions." in answer.out


@pytest.mark.parametrize(
    ("answers", "told"),
    [({"11": 1}, "no question '11'"), ({"1": [1]}, "is no answer"), ([1], "JSON")],
)
def test_what_is_no_answer_is_refused(marked, answers: object, told: str) -> None:
    refused = marked(answers)
    assert (refused.code, told in refused.err) == (3, True)


def test_a_number_of_too_many_digits_is_refused_in_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text('{"1": ' + "9" * 5000 + "}")
    english, chinese = ask("check", str(file)), ask("check", str(file), "--lang", "zh")
    assert (english.code, "a number has too many digits" in english.err) == (3, True)
    assert (chinese.code, "位数太多" in chinese.err) == (3, True)


def test_answers_come_through_a_pipe() -> None:
    answer = ask("check", "-", "--json", stdin=json.dumps({"1": 0.66, "9": 4}).encode())
    assert answer.code == 1
    marks = {mark["number"]: mark["is_right"] for mark in answer.json["answers"]}
    assert (marks[1], marks[9], marks[2]) == (True, False, None)
    refused = ask("check", "-", stdin=b'"0.66"')
    assert refused.code == 3
    assert "of type string, not an object\nwhere: standard input" in refused.err
