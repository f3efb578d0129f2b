"""`attn explain rule`: the list in every form, rules by their names and by what screens call them,
and an example of each.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from asking import ask

from attncli.errors import InputError, UsageError
from attncli.features.explain.rule_topic import rule_document
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.rule_file import load_rules
from attncli.inputs.tokenize import tokenizer
from attncli.language import languages, translate

NAMES = [rule.name for rule in BUILT_IN]
HEADER = ["name", "label", "formula", "sentence"]


def test_the_list_is_a_table_that_is_not_cut(tmp_path: Path) -> None:
    wanted = [
        HEADER,
        *([rule.name, rule.label, rule.formula, rule.sentence] for rule in BUILT_IN),
    ]
    plain = ask("explain", "rule", "--plain")
    assert [line.split("\t") for line in plain.out.splitlines()] == wanted
    commas = ask("explain", "rule", "--csv", "-").out
    assert list(csv.reader(commas.splitlines())) == wanted
    table = tmp_path / "rules.csv"
    screen = ask("explain", "rule", "--csv", str(table)).out
    assert (table.read_text("utf-8"), screen) == (commas, ask("explain", "rule").out)
    kept = tmp_path / "rules.tsv"
    assert ask("explain", "rule", "--plain", "--output", str(kept)).out == ""
    assert kept.read_text("utf-8") == plain.out
    refused = ask("explain", "rule", "--json")
    assert (refused.code, refused.out, "attn explain rule NAME" in refused.err) == (2, "", True)
    for form in (("--plain",), ("--csv", "-"), ("--csv", str(tmp_path / "metrics.csv"))):
        assert (form, ask("explain", "metric", *form).code) == (form, 2)


@pytest.mark.parametrize("lang", languages())
def test_the_list_says_what_screens_call_each_rule(lang: str) -> None:
    lines = ask("explain", "rule", "--lang", lang, width=120).out.splitlines()
    for rule in BUILT_IN:
        label = translate(rule.label, lang)
        assert any(line.split()[:1] == [rule.name] and label in line for line in lines), rule.name


@pytest.mark.parametrize("lang", languages())
def test_a_rule_is_found_by_what_screens_call_it(lang: str) -> None:
    for rule in BUILT_IN:
        assert rule_document(translate(rule.label, lang)).name == rule.name
    assert rule_document("Within  2").name == "near-2"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("withn 2", "near-2"),
        ("previos", "previous"),
        ("前一词元", "previous"),
        ("brackt", "bracket"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_name(asked: str, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        rule_document(asked)
    assert caught.value.hint == f"attn explain rule {name}"
    assert "first token" not in str(caught.value.expected)


def test_every_example_shows_more_than_the_first_token() -> None:
    for name in NAMES:
        weights = np.array(rule_document(name).example.weights)
        assert weights.sum(-1) == pytest.approx(1)
        assert (name == "first") == bool((weights[:, 0] == 1).all()), name
        ahead = bool(np.triu(weights, 1).any())
        assert (name in ("next", "last")) == ahead, name
    for lang, seen, unseen in (("en", "seeing the whole text", "before the query"),
                               ("zh", "看得见全文", "在查询之前")):  # fmt: skip
        screen = ask("explain", "rule", "next", "--lang", lang).out
        assert (seen in screen, unseen in screen, "·" in screen) == (True, False, False)


def test_a_files_rule_that_finds_later_keys_alone_sees_the_text(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def after(text):\n    return text.j == text.i[:, None] + 1\n")
    weights = np.array(rule_document("own.after", rule_files=[file]).example.weights)
    assert weights[:-1].argmax(-1).tolist() == list(range(1, len(weights)))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("np.full(len(text.j), 2j)", "own.f gave 2j"),
        ("[1j] * len(text.j)", "own.f gave 1j"),
        ("['1'] * len(text.j)", "own.f gave '1'"),
    ],
)
def test_answers_that_are_no_numbers_to_compare_are_refused(
    answer: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(f"import numpy as np\n\ndef f(text):\n    return {answer}\n")
    with pytest.raises(InputError, match="finite numbers of 0 or more") as caught:
        load_rules([file])
    assert told in str(caught.value)
    assert caught.value.where == f"{file}:3"


def test_a_lambda_is_called_as_the_file_calls_it(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("near = lambda text: text.j\n")
    assert [(rule.name, rule.formula) for rule in load_rules([file])] == [
        ("own.near", "near(text)")
    ]


def test_a_file_that_is_named_again_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("def f(text):\n    return text.j\n")
    monkeypatch.chdir(tmp_path)
    rules = load_rules(["one.py", "two.py", tmp_path / "one.py", "./two.py"])
    assert [rule.name for rule in rules] == ["one.f", "two.f"]


def test_what_ends_a_sentence_and_a_clause_is_as_the_guide_says() -> None:
    from attncli.features.rules.token_patterns import TokenPatterns

    tokens = tokenizer("word").encode('at 5 a.m. he said "so", <b>')
    patterns = TokenPatterns(tokens)
    assert patterns.sentence.tolist() == [0, 0, 0, 0, 1, 1] + [2] * (len(tokens) - 6)
    texts = [token.text for token in tokens]
    so = texts.index("so")
    assert patterns.clause[so] > patterns.clause[so - 2]
    assert patterns.clause[texts.index("b")] > patterns.clause[so]
