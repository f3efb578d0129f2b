"""Files of pairs: what is read, what a template gives, and what is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attncli.errors import InputError
from attncli.inputs.pairs import Pair, read_pairs, task_names

PAIR = {"clean": "A and B, A to", "corrupt": "A and B, B to", "answer": " B", "versus": " A"}
TEMPLATE = {
    "template": "{A} and {B} went, {C} gave it to",
    "lists": {"A": ["Tom", "Ann", "Joe"], "B": "A"},
    "clean": {"C": "A"},
    "corrupt": {"C": "B"},
    "answer": "{B}",
    "versus": "{A}",
    "count": 6,
}


def written(folder: Path, text: str) -> Path:
    (path := folder / "pairs.jsonl").write_text(text)
    return path


def test_lines_are_pairs_in_their_order(tmp_path: Path) -> None:
    other = {**PAIR, "answer": " Z"}
    path = written(tmp_path, f"{json.dumps(PAIR)}\n\n{json.dumps(other)}\n")
    file = read_pairs(path)
    assert file.pairs == (Pair(**PAIR), Pair(**other))
    assert file.places == (f"{path}:1", f"{path}:3")
    assert read_pairs(path, count=1).pairs == (Pair(**PAIR),)


def test_a_template_gives_different_pairs_that_its_seed_repeats(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(TEMPLATE, indent=2))
    pairs = read_pairs(path).pairs
    assert len(set(pairs)) == len(pairs) == 6  # all that three names give
    for pair in pairs:
        a, b = pair.versus, pair.answer
        assert pair.clean == f"{a} and {b} went, {a} gave it to"
        assert pair.corrupt == f"{a} and {b} went, {b} gave it to"
        assert a != b
    assert read_pairs(path).pairs == pairs
    assert read_pairs(path, count=3).pairs == pairs[:3]
    assert read_pairs(path, seed=1).pairs != pairs


def test_the_tasks_of_the_package_give_as_many_pairs_as_they_say() -> None:
    assert task_names() == ["agreement", "greater-than", "indirect-object"]
    for name in task_names():
        assert len(read_pairs(name).pairs) == 64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lists": {}}, "needs lists"),
        ({"lists": {"A": "Z"}}, "'A' of this template holds no texts"),
        ({"corrupt": {"C": "A"}}, "clean and corrupt of this template are the same"),
        ({"corrupt": {"C": "Z"}}, "takes 'C' from 'Z', which is no list"),
        ({"corrupt": {"C": ["A"]}}, "which is no list"),
        ({"answer": "{Z}"}, "answer has a place 'Z'"),
        ({"answer": "{A.__class__}"}, "answer has a place 'A.__class__'"),
        ({"answer": "{A!r}"}, "answer has a place 'A'"),
        ({"answer": "{A"}, "answer of this template is '{A'"),
        ({"versus": "{B}"}, "this template gives no pair"),
        ({"count": 0}, "count of this template is 0"),
        ({"more": 1}, "a template of pairs has no 'more'"),
        ({"lists": {"A": ["Tom"], "B": "A"}}, "this template gives no pair"),
    ],
)
def test_a_template_that_is_wrong_is_refused_by_member(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = written(tmp_path, json.dumps({**TEMPLATE, **change}))
    with pytest.raises(InputError) as told:
        read_pairs(path)
    assert said in str(told.value)
    assert told.value.where == str(path)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([PAIR, {"clean": "a"}], "a pair without corrupt, answer, versus"),
        ([PAIR, {**PAIR, "answer": 5}], "answer of this pair is 5"),
        ([PAIR, {**PAIR, "versus": " B"}], "answer and versus are both ' B'"),
        ([PAIR, {**PAIR, "more": 1}], "a pair has no 'more'"),
    ],
)
def test_a_line_that_is_no_pair_is_refused_with_its_number(
    tmp_path: Path, lines: list[dict[str, object]], said: str
) -> None:
    path = written(tmp_path, "\n".join(map(json.dumps, lines)))
    with pytest.raises(InputError) as told:
        read_pairs(path)
    assert said in str(told.value)
    assert told.value.where == f"{path}:2"


def test_no_file_and_no_task_is_told_with_the_tasks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file and no task 'objects'") as told:
        read_pairs("objects")
    assert "indirect-object" in str(told.value.expected)
    with pytest.raises(InputError, match="holds no pair"):
        read_pairs(written(tmp_path, "\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("not JSON", "lines of JSON, each with clean"), ("{\n", "a template of pairs")],
)
def test_what_is_no_json_is_told_what_it_might_be(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as told:
        read_pairs(written(tmp_path, text))
    assert str(told.value.expected).startswith(expected)
