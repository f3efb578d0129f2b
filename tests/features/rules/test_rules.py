"""Heads as rules: the solver against SciPy's, rows of rules by hand, overlaps and losses against
loops, and a model whose heads follow rules by construction.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from msgspec import UNSET, structs
from msgspec.structs import replace
from msgspec.structs import replace as changed
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make
from walking import pressed

import attncli
from attncli.cli.declarations import RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.draw.encoding import json_bytes
from attncli.draw.figures.charts import DASHES
from attncli.draw.figures.drawing import LIGHT, Drawing
from attncli.draw.numbers import percent
from attncli.draw.view import View
from attncli.errors import InputError, UsageError
from attncli.explore.command import _document_in, _open_source, _saved_source, _setup_of
from attncli.explore.loaded_run import LiveSource
from attncli.explore.state import State
from attncli.features.rules import attention_rows, rule_fit
from attncli.features.rules.attention_rows import TextRules, head_places, observe
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.document import RulePart
from attncli.features.rules.figure import LEAST_AREA, rules_figure
from attncli.features.rules.head_rules import rule_rows
from attncli.features.rules.mixture import PairSums, fit_mixtures
from attncli.features.rules.rule_file import load_rules
from attncli.features.rules.saved_rules import mixtures_of
from attncli.features.rules.screen import (
    head_sentence,
    mixture_sentences,
    mixture_text,
    ranked_heads,
    rules_sentences,
)
from attncli.features.rules.swap import next_token_loss
from attncli.features.rules.token_patterns import TokenPatterns
from attncli.inputs.token import Token
from attncli.mechanism.context import PutWeights

TEXTS = [
    "The cat sat on the mat. The dog sat on the cat.",
    "A dog (the big dog) ran to the mat, and sat.",
    "Two cats ran, two dogs ran, and the mat lay there.",
    "On the mat sat a cat; the cat saw the dog.",
    "The dog saw the cat on the mat, the cat ran.",
    "The big cat and the big dog sat there.",
    "There the dog lay, on the big mat, and saw.",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("rules") / "gpt2"
    return attncli.load(small_gpt2(folder, longest=64), dtype="float64", backend="numpy")


@pytest.fixture(scope="module")
def document(model: Any) -> Any:
    return attncli.rules(model, TEXTS, source="here")


def test_weights_are_those_of_scipys_nnls() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    drawn = np.random.default_rng(3)
    heads, rules, pairs = 40, 12, 200
    rows = drawn.random((rules, pairs)) ** 4
    rows[5] = 0.6 * rows[4] + 0.4 * rows[3]  # one rule is a mixture of others
    weights = drawn.dirichlet(np.full(rules, 0.3), heads) @ rows
    weights += drawn.normal(0, 0.05, weights.shape)
    allowed = drawn.random((heads, rules)) < 0.7
    allowed[:, 0] = True
    sums = PairSums(
        np.broadcast_to(rows @ rows.T, (heads, rules, rules)),
        weights @ rows.T,
        (weights**2).sum(-1),
    )
    mixtures = fit_mixtures(sums, allowed)
    assert mixtures.min() >= 0
    assert mixtures.sum(-1) == pytest.approx(1)
    for head in range(heads):
        use = np.flatnonzero(allowed[head])
        # of sum 1: Σ c_r (R_r − A) is the error, and any weight of the last row gives the same
        system = np.vstack([(rows[use] - weights[head]).T, np.ones(use.size)])
        solution, _ = optimize.nnls(system, np.r_[np.zeros(pairs), 1.0])
        oracle = np.zeros(rules)
        oracle[use] = solution / solution.sum()
        assert mixtures[head] @ rows == pytest.approx(oracle @ rows, abs=1e-6)
        if not allowed[head, 3:6].all():
            assert mixtures[head] == pytest.approx(oracle, abs=1e-6)


def _tokens(*texts: str) -> list[Token]:
    """Tokens of these texts one after the other; a blank before one is its own."""
    tokens = []
    start = 0
    numbers: dict[str, int] = {}
    for index, text in enumerate(texts):
        bare = text.lstrip(" ")
        start += len(text) - len(bare)
        number = numbers.setdefault(text, len(numbers))
        tokens.append(
            Token(
                index,
                bare,
                number,
                start,
                start + len(bare),
                utf8=text.encode() if text[:1] == " " else None,
            )
        )
        start += len(bare)
    return tokens


ROWS: dict[str, tuple[list[Token], int, set[int]]] = {
    "first": (_tokens("a", " b", " c"), 2, {0}),
    "self": (_tokens("a", " b", " c"), 2, {2}),
    "previous": (_tokens("a", " b", " c"), 2, {1}),
    "back-2": (_tokens("a", " b", " c", " d"), 3, {1}),
    "back-3": (_tokens("a", " b", " c", " d", " e"), 4, {1}),
    "back-4": (_tokens("a", " b", " c", " d", " e", " f"), 5, {1}),
    "even": (_tokens("a", " b", " c"), 2, {0, 1, 2}),
    "near-2": (_tokens("a", " b", " c"), 1, {0, 1}),
    "near-8": (_tokens("a", " b", " c"), 1, {0, 1}),
    "near-32": (_tokens("a", " b", " c"), 1, {0, 1}),
    "opening": (_tokens("a", " b", " c"), 1, {0, 1}),
    "punctuation": (_tokens("a", ",", " b", ".", " c"), 4, {1, 3}),
    "last-punctuation": (_tokens("a", ",", " b", ".", " c"), 4, {3}),
    "sentence-end": (_tokens("a", ",", " b", ".", " c"), 4, {3}),
    "line-break": (_tokens("a", "\n", "b", "\n", "c"), 4, {1, 3}),
    "line-start": (_tokens("a", "\n", "b", " c", " d"), 4, {2}),
    "line": (_tokens("a", "\n", "b", " c", " d"), 4, {2, 3, 4}),
    "sentence": (_tokens("a", ".", " b", " c"), 3, {2, 3}),
    "sentence-before": (_tokens("z", ".", " a", ".", " b", " c"), 5, {2, 3}),
    "clause": (_tokens("a", ",", " b", " c"), 3, {2, 3}),
    "clause-before": (_tokens("z", ",", " a", ",", " b", " c"), 5, {2, 3}),
    "word": (_tokens("a", " un", "hap", "py"), 3, {1, 2, 3}),
    "word-start": (_tokens("a", " un", "hap", "py"), 3, {1}),
    "word-before": (_tokens("z", " un", "hap", " day"), 3, {1, 2}),
    "same": (_tokens("z", " a", " b", " a", " a"), 4, {1, 3}),
    "after-same": (_tokens("z", " a", " b", " c", " a"), 4, {2}),
    "before-same": (_tokens("z", " y", " a", " b", " a"), 4, {1}),
    "repeat": (_tokens("z", " x", " a", " b", " c", " a", " q", " x", " a"), 8, {3}),
    "same-word": (_tokens("z", " Un", "hap", " is", " un", "hap"), 5, {1}),
    "function-words": (_tokens("cat", " the", " dog", " of"), 2, {1}),
    "content-words": (_tokens("the", " cat", " of", " dog"), 2, {1}),
    "capital": (_tokens("a", " Bob", " ran"), 2, {1}),
    "number": (_tokens("a", " 12", " ran"), 2, {1}),
    "bracket": (_tokens("a", " (", "b", " [", "c", "]", " d"), 6, {1}),
    "indentation": (_tokens("z", "\n  ", "a", "\n    ", "b", "\n  ", "c"), 6, {2}),
    "same-name": (_tokens("z", " x", "_", "1", " =", " x", "_", "1"), 7, {1, 2, 3}),
    "classifier": (_tokens("我", "买", "了", "三", "个", "包"), 5, {4}),
    "particle": (_tokens("我", "的", "书", "和", "笔"), 4, {1}),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_rule_looks_where_its_sentence_says(name: str) -> None:
    tokens, query, keys = ROWS[name]
    count = len(tokens)
    rule = next(rule for rule in BUILT_IN if rule.name == name)
    visible = np.tri(count, dtype=bool)
    rows = rule_rows([rule], TokenPatterns(tokens), np.arange(count), visible)[0]
    assert set(np.flatnonzero(rows[query])) == keys
    assert rows.sum(-1) == pytest.approx(1)
    assert not rows[~visible].any()
    # some rows alone are those of the whole
    part = rule_rows([rule], TokenPatterns(tokens), np.arange(1, count), visible[1:])[0]
    assert np.array_equal(part, rows[1:])


def test_pieces_of_a_character_and_special_tokens_are_known() -> None:
    pieces = [
        Token(0, "a", 0, 0, 1),
        Token(1, "<0xE4><0xBB>", 1, 1, 2),
        Token(2, "<0x8A>", 2, 1, 2),
        Token(3, "[SEP]", 3, None, None, special=True),
    ]
    named = {rule.name: rule for rule in BUILT_IN}
    rows = rule_rows(
        [named["character"], named["special"], named["next"], named["last"]],
        TokenPatterns(pieces),
        np.arange(4),
        np.ones((4, 4), bool),
    )
    assert [int(row[2].argmax()) for row in rows] == [1, 3, 3, 3]
    assert set(ROWS) | {"character", "special", "next", "last"} == set(named)
    # nothing is found and the first key is hidden: the first that is seen; nothing seen: nothing
    hidden = np.array([[False, True, True, True], [False] * 4])
    lost = rule_rows([named["number"]], TokenPatterns(pieces), np.array([2, 3]), hidden)[0]
    assert lost.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


def test_overlaps_are_those_of_loops(model: Any, document: Any) -> None:
    names = [rule.name for rule in document.rules]
    rules = [rule for rule in BUILT_IN if rule.name in names]
    for head in document.heads:
        assert sum(part.weight for part in head.parts) == pytest.approx(1)
        total = [0.0, 0.0, 0.0]
        count = 0
        for text in TEXTS[1::2]:
            tokens = model.encode(text)
            weights = np.asarray(model.trace(tokens).weights)[head.layer, head.head]
            for query in range(1, len(tokens)):
                rows = rule_rows(
                    rules, TokenPatterns(tokens), np.array([query]),
                    np.arange(len(tokens))[None] <= query,
                )[:, 0]  # fmt: skip
                said = sum(part.weight * rows[names.index(part.rule)] for part in head.parts)
                count += 1
                total[0] += sum(min(a, b) for a, b in zip(weights[query], said, strict=True))
                total[1] += weights[query][0]
                total[2] += sum(min(a, 1 / (query + 1)) for a in weights[query][: query + 1])
        expected = [value / count for value in total]
        overlaps = [head.overlap, head.overlap_first, head.overlap_even]
        assert overlaps == pytest.approx(expected, abs=1e-9)
        assert head.has_rule == (head.overlap >= 0.5)


def test_what_costs_less_than_rules_is_said_to(document: Any) -> None:
    row = document.swapped[0]

    def said(**losses: float) -> str:
        rows = [changed(row, **losses)]
        return " ".join(rules_sentences(changed(document, swapped=rows), View()))

    more, less = row.loss + 1, row.loss - 1
    dear = said(loss_distance=more, loss_first=more)
    assert "mean by distance in their place it is" in dear
    assert "less than with rules" not in dear
    assert said(loss_distance=less, loss_first=less).count("less than with rules") == 2


def test_losses_are_those_of_the_model_with_such_weights(model: Any, document: Any) -> None:
    assert [row.heads for row in document.swapped] == [1, 1, 3]
    names = [rule.name for rule in document.rules]
    rules = [rule for rule in BUILT_IN if rule.name in names]
    every = [
        {part.rule: part.weight for part in head.parts} for head in document.heads
    ]  # fmt: skip
    whole = attncli.rules(model, TEXTS, shares=[1.0]).swapped[0]
    assert whole.heads == len(document.heads)
    losses = {"rules": [], "even": [], "model": []}
    for text in TEXTS[1::2]:
        tokens = model.encode(text)
        count = len(tokens)
        rows = rule_rows(rules, TokenPatterns(tokens), np.arange(count), np.tri(count, dtype=bool))
        for name, weights in losses.items():
            changes = {}
            for layer in range(2 if name != "model" else 0):
                mixtures = [
                    sum(
                        every[3 * layer + head].get(rule, 0.0) * row
                        for rule, row in zip(names, rows, strict=True)
                    )
                    for head in range(3)
                ]
                own = (
                    np.stack(mixtures)
                    if name == "rules"
                    else np.stack([rows[names.index("even")]] * 3)
                )
                changes[layer, "self"] = (
                    PutWeights((0, 1, 2), lambda start, stop, own=own: own[:, start:stop]),
                )
            *_, last = model.trace(tokens, interventions=changes)
            logits = np.asarray(model.logits(last.after))
            for place in range(count - 1):
                shifted = logits[place] - logits[place].max()
                weights.append(np.log(np.exp(shifted).sum()) - shifted[tokens[place + 1].id])
    assert whole.loss == pytest.approx(np.mean(losses["rules"]), abs=1e-9)
    assert whole.loss_even == pytest.approx(np.mean(losses["even"]), abs=1e-9)
    assert whole.loss_model == pytest.approx(np.mean(losses["model"]), abs=1e-9)
    assert whole.loss_drawn == pytest.approx(whole.loss, abs=1e-12)  # all heads are drawn


def test_a_heads_own_weights_in_its_place_change_nothing(model: Any) -> None:
    tokens = model.encode(TEXTS[0])
    unchanged = list(model.trace(tokens))
    for heads in ((0, 1, 2), (1,), (2, 0)):
        own = unchanged[0].stages["weights"][list(heads)]
        change = PutWeights(heads, lambda start, stop, own=own: own[:, start:stop])
        changed = list(model.trace(tokens, interventions={(0, "self"): (change,)}))
        assert np.allclose(changed[1].after, unchanged[1].after, atol=1e-12)
    other = np.zeros((1, len(tokens), len(tokens)))
    other[:, :, 0] = 1.0
    change = PutWeights((1,), lambda start, stop: other[:, start:stop])
    changed = list(model.trace(tokens, interventions={(0, "self"): (change,)}))
    assert np.allclose(changed[0].stages["weights"][1], other)
    assert np.allclose(changed[0].stages["weights"][0], unchanged[0].stages["weights"][0])
    assert np.allclose(changed[0].stages["mixed"][1], unchanged[0].stages["v"][1][0])
    assert not np.allclose(changed[1].after, unchanged[1].after)


@pytest.mark.thorough
def test_a_long_text_gives_the_same_in_blocks(
    model: Any, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attncli.features.rules import swap
    from attncli.mechanism import context

    for module in (attention_rows, swap):
        monkeypatch.setattr(module, "LONG", 12)
    monkeypatch.setattr(attention_rows, "BLOCK", 40 * 16 * 3)
    monkeypatch.setattr(context, "PUT_ROWS", 5)
    again = attncli.rules(model, TEXTS, source="here")
    assert [head.overlap for head in again.heads] == pytest.approx(
        [head.overlap for head in document.heads]
    )
    for row, other in zip(again.swapped, document.swapped, strict=True):
        for name in ("loss", "loss_even", "loss_distance", "loss_drawn", "loss_model"):
            assert getattr(row, name) == pytest.approx(getattr(other, name))


def test_heads_that_follow_rules_are_told_as_these(model: Any) -> None:
    places = head_places(model)
    made = {0: {"previous": 0.7, "same": 0.3}, 2: {"first": 1.0}, 5: {"even": 0.4, "bracket": 0.6}}
    names = [rule.name for rule in BUILT_IN]
    record = rule_fit.HalfRecord(places, len(BUILT_IN), [40] * 6)
    drawn = np.random.default_rng(1)
    mixtures = np.zeros((6, len(BUILT_IN)))
    for head, parts in made.items():
        for name, weight in parts.items():
            mixtures[head, names.index(name)] = weight
    for number in range(6):
        words = drawn.choice([" a", " b", " c", " d", " (", ")", " e", " f"], 40)
        text = TextRules(BUILT_IN, _tokens(*words))
        rows, visible = text.rows(places.masks[0], 0, 40)
        weights = np.tensordot(mixtures, rows, 1)
        noise = visible * drawn.random(weights.shape)
        weights = 0.98 * weights + 0.02 * noise / noise.sum(-1, keepdims=True)
        for layer in range(2):
            heads = slice(3 * layer, 3 * layer + 3)
            record.add(
                attention_rows.PatternBlock(
                    number, layer, 0, heads, np.arange(40), weights[heads], rows, visible
                )
            )
    chosen, overlaps = record.choose()
    for head, parts in made.items():
        assert set(np.flatnonzero(chosen[head])) == {names.index(name) for name in parts}
        assert chosen[head].max() == pytest.approx(max(parts.values()), abs=0.03)
        assert overlaps[head] > 0.96


def test_what_cannot_be_answered_is_refused(model: Any) -> None:
    with pytest.raises(InputError, match="different texts here: 3"):
        attncli.rules(model, TEXTS[:3])
    with pytest.raises(UsageError, match="a share of the heads is 2"):
        attncli.rules(model, TEXTS, shares=[2])
    answer = ask("heads", "--rules", "--num-heads", "2", "--exclude", "first")
    assert answer.code == 2
    assert "--exclude does not go with --rules" in answer.err
    hashed = ask("heads", "--rules", "--num-heads", "2", "--mask", "lsh:4", "a b")
    assert hashed.code in (3, 4)


def test_the_command_answers_in_every_form(tmp_path: Path) -> None:
    folder = str(small_gpt2(tmp_path / "gpt2", longest=64))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS))
    arguments = ("heads", "--model", folder, "--rules", "--file", str(corpus), "--lines")
    screen = ask(*arguments)
    assert screen.code == 0
    assert "perplexity with rules in place of heads" in screen.out
    told = json.loads(ask(*arguments, "--json").out)
    assert told["schema"] == "attn.rules/1"
    assert told["texts"]["measured"] == 3
    plain = ask(*arguments, "--plain").out.splitlines()
    assert len(plain) == 1 + 6
    bare = ask("heads", "--rules", "--num-heads", "2")
    assert bare.code == 0
    assert "using 24 paragraphs of attn" in bare.err
    assert "predicts no next word" in " ".join(bare.out.split())


def test_short_and_repeated_texts_are_left_out(model: Any) -> None:
    notes: list[str] = []
    document = attncli.rules(
        model, [*TEXTS, TEXTS[0], model.encode("cat")[:1]], shares=(), note=notes.append
    )
    counts = document.texts
    assert counts.fitted + counts.choosing + counts.measured == len(TEXTS)
    assert len(notes) == 1
    with pytest.raises(InputError, match="different texts here: 1"):
        attncli.rules(model, TEXTS[:1] * 9, shares=())


def test_many_short_texts_all_choose(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows to choose by are taken from all places of many texts, not from their first alone."""
    monkeypatch.setattr(rule_fit, "SAMPLE", 9)
    places = head_places(model)
    texts = [model.encode(text)[:6] for text in TEXTS * 3]
    record = rule_fit.HalfRecord(places, len(BUILT_IN), [len(text) for text in texts])
    observe(model, texts, BUILT_IN, places, record.add)
    assert record._stride > max(map(len, texts))
    assert record.choose()[1].min() > 0
    few = rule_fit.HalfRecord(places, len(BUILT_IN), [6])
    observe(model, texts[:1], BUILT_IN, places, few.add)
    with pytest.raises(InputError, match="sees two"):  # the third text of a half is the first
        few.choose()


def test_a_model_that_sees_the_next_token_predicts_none(tmp_path: Path) -> None:
    small_gpt2(tmp_path / "gpt2", longest=64)
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    question = (
        "heads",
        "--rules",
        "--model",
        str(tmp_path / "gpt2"),
        "--file",
        str(tmp_path / "texts"),
        "--lines",
    )
    document = ask(*question, "--mask", "none", "--json").json
    assert (document["predicts"], document["swapped"]) == (False, [])
    assert ask(*question, "--max-memory", "1kB").code == 5
    (tmp_path / "none.json").write_text(json.dumps({**document, "heads": []}))
    assert ask("view", str(tmp_path / "none.json")).code == 3


def test_seeded_weights_are_said_to_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    answer = ask("heads", "--rules", "--file", str(tmp_path / "texts"), "--lines", "--brief")
    assert "not learned" in answer.out


OWN_RULES = """
def vowels(text):
    '''begins_with_vowel(j)'''
    return [spelling.strip().lower()[:1] in tuple("aeiou") for spelling in text.texts]

vowels.says = "tokens that begin with a vowel"

def half(text):
    return text.j == text.i[:, None] // 2

def _helper(text):
    return 1 / 0
"""


def test_rules_of_a_file_stand_beside_the_others(model: Any, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN_RULES)
    vowels, half = load_rules([file])
    assert (vowels.name, vowels.formula, vowels.sentence) == (
        "own.vowels",
        "begins_with_vowel(j)",
        "tokens that begin with a vowel",
    )
    assert (half.formula, half.sentence) == ("half(text)", "half(text)")
    tokens = _tokens("a", " b", " is", " c", " d", " e")
    rows = rule_rows([vowels, half], TokenPatterns(tokens), np.arange(6), np.tri(6, dtype=bool))
    assert set(np.flatnonzero(rows[0][4])) == {0, 2}
    assert rows[1].argmax(-1).tolist() == [0, 0, 1, 1, 2, 2]
    # a head that follows it is told as this rule
    names = [rule.name for rule in (*BUILT_IN, vowels, half)]
    record = rule_fit.HalfRecord(head_places(model), len(names), [30] * 6)
    drawn = np.random.default_rng(4)
    for number in range(6):
        words = _tokens(*drawn.choice([" a", " b", " c", " in", ",", " e", " f"], 30))
        text = TextRules((*BUILT_IN, vowels, half), words)
        seen, visible = text.rows(head_places(model).masks[0], 0, 30)
        weights = np.repeat(seen[[names.index("own.half")]], 3, 0)
        for layer in range(2):
            record.add(
                attention_rows.PatternBlock(
                    number, layer, 0, slice(3 * layer, 3 * layer + 3), np.arange(30), weights, seen,
                    visible,
                )
            )  # fmt: skip
    assert (record.choose()[0].argmax(-1) == names.index("own.half")).all()
    # what a function writes into its text reaches no other rule
    file.write_text(
        OWN_RULES + "\ndef spoils(text):\n    text.word_start[:] = True\n    return text.j"
    )
    patterns = TokenPatterns(tokens)
    before = patterns.word_start.copy()
    rule_rows(load_rules([file]), patterns, np.arange(6), np.tri(6, dtype=bool))
    assert np.array_equal(patterns.word_start, before)
    file.write_text(OWN_RULES)
    told = attncli.rules(model, TEXTS, shares=(), rule_files=[file])
    assert [rule.name for rule in told.rules][-2:] == ["own.vowels", "own.half"]
    shown = ask("explain", "rule", "own.half", "--rule-file", str(file), "--json").json
    assert np.array(shown["example"]["weights"])[4].argmax() == 2
    assert "own.vowels" in ask("explain", "rule", "--rule-file", str(file)).out


WRONG_RULES = {
    "def f(text):\n    return 1 / 0": "own.f failed: ZeroDivisionError",
    "def f(text):\n    return text.j[:2]": "numbers of shape [2]",
    "def f(text):\n    return -1.0 * text.j": "own.f gave -1",
    "def f(text):\n    return text.j * float('nan')": "own.f gave nan",
    "def f(text):\n    return [[k <= q for k in text.j] for q in range(len(text.i))]": "other rows",
    "def f(text):\n    return text.j\nf.says = 3": "says of the rule own.f is 3",
    "x = 1": "no rule",
    "def f(": "no Python",
    "import sys\nsys.exit(3)": "the file of rules failed: SystemExit",
}


@pytest.mark.parametrize("source", WRONG_RULES)
def test_a_mistake_in_a_file_of_rules_is_told_with_its_line(source: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(source)
    with pytest.raises(InputError) as caught:
        load_rules([file])
    assert WRONG_RULES[source] in str(caught.value)
    assert caught.value.where.startswith(str(file))


def test_files_of_rules_are_refused_where_they_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN_RULES)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "own.py").write_text(OWN_RULES)
    with pytest.raises(InputError, match="two files define a rule own"):
        load_rules([file, tmp_path / "other" / "own.py"])
    alone = ask("heads", "a b", "--num-heads", "2", "--rule-file", str(file))
    assert (alone.code, "--rule-file is about --rules" in alone.err) == (2, True)
    for command in (("heads", "--rules", "--num-heads", "2"), ("explain", "rule", "first")):
        answer = ask(*command, "--rule-file", str(tmp_path / "none.py"))
        assert (answer.code, answer.out) == (3, "")


def test_saved_rules_are_told_beside_the_heads(model: Any, document: Any, tmp_path: Path) -> None:
    folder = str(small_gpt2(tmp_path / "gpt2", longest=64))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS))
    rules = tmp_path / "rules.json"
    asked = ("heads", "--model", folder, "--rules", "--file", str(corpus), "--lines", "--json")
    assert ask(*asked, "--output", str(rules)).code == 0
    saved = json.loads(rules.read_text())
    begin = ("heads", "The cat sat", "--model", folder, "--rules-of", str(rules))
    told = ask(*begin, "--json").json
    for head, ruled in zip(told["heads"], saved["heads"], strict=True):
        assert head["rules"] == {"parts": ruled["parts"], "overlap": ruled["overlap"]}
    plain = [line.split("\t") for line in ask(*begin, "--plain").out.splitlines()]
    assert plain[0][-3:] == ["rule_overlap", "rules", "rule_weights"]
    assert float(plain[1][-3]) == saved["heads"][0]["overlap"]
    assert "heads as rules" in ask(*begin).out
    assert "rules" not in ask("heads", "The cat sat", "--model", folder, "--json").json["heads"][0]
    python = attncli.heads(model, "The cat sat", rules=document)
    assert python.heads[4].rules.overlap == document.heads[4].overlap
    # of another model, or no rules at all
    other = ask("heads", "a b", "--num-heads", "2", "--rules-of", str(rules))
    assert (other.code, "of another model" in other.err) == (3, True)
    no_rules = tmp_path / "heads.json"
    no_rules.write_text(json.dumps(told))
    wrong = ask("heads", "a b", "--num-heads", "2", "--rules-of", str(no_rules))
    assert (wrong.code, "rules are read from attn.rules/1" in wrong.err) == (3, True)


def test_the_explorer_shows_the_rules_of_a_head(model: Any, document: Any, tmp_path: Path) -> None:
    source = replace(
        LiveSource.of(model, "The cat sat on the mat"), rules=mixtures_of(document, model)
    )
    _, text = pressed(source, start=State(layer=1, head=2), size=(110, 34))
    head = document.heads[5]
    said = f"Its rules say {percent(head.overlap)} on unseen texts: {head.parts[0].weight:.2f}"
    assert said in " ".join("".join(text).split())
    plain = LiveSource.of(model, "The cat sat on the mat")
    _, bare = pressed(plain, start=State(layer=1, head=2), size=(110, 34))
    assert "Its rules say" not in "".join(bare)
    # a saved comparison that tells rules has them as well
    rules = tmp_path / "rules.json"
    rules.write_bytes(json_bytes(document))
    told = ("heads", "The cat sat on the mat", "--model", str(model.identity.name))
    file = tmp_path / "heads.json"
    assert ask(*told, "--rules-of", str(rules), "--json", "--output", str(file)).code == 0
    _, saved = pressed(_saved_source(file), start=State(layer=1, head=2), size=(110, 34))
    assert said in " ".join("".join(saved).split())
    with pytest.raises(attncli.AttnError, match="tells of the heads of a run"):
        _open_source(
            Environment.of_process(), TextOptions(text=str(file)), RunSetup(), None, None, rules
        )
    assert _document_in(rules).model.name == _setup_of(document.model.name, RunSetup()).model.model


def test_a_rule_begins_where_it_says_more_than_the_first_token() -> None:
    """Fitted rows favour the second rule; in those that choose it says less than the first token."""
    first, second = np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 0, 0])
    fitted = np.array([0.4, 0.6, 0, 0])
    rules = np.stack([first, second])
    sums = PairSums((rules @ rules.T)[None], (rules @ fitted)[None], np.array([fitted @ fitted]))
    for own, expected in (([0.7, 0.3, 0, 0], [1.0, 0.0]), ([0.1, 0.9, 0, 0], [0.0, 1.0])):
        rows = rule_fit.ChoiceRows(np.array(own, np.float32), rules.astype(np.float32), np.ones(4))
        chosen, _ = rule_fit.choose_rules(sums, [rows], np.ones((1, 2), bool))
        mixtures = fit_mixtures(sums, chosen)
        assert mixtures[0] == pytest.approx(expected, abs=1e-9)


def test_what_a_seldom_found_rule_is_and_what_is_no_rule_is_said(document: Any) -> None:
    head = changed(
        document.heads[0], parts=[RulePart(rule="clause-before", weight=1.0)], overlap=0.47
    )
    meanings = [changed(rule, found_share=0.08) for rule in document.rules]
    said = " ".join(mixture_sentences([head], document.overlap, UNSET, View(), meanings))
    assert "finds a token of its own in 8.0% of rows" in said
    assert "without intervals" in said
    assert mixture_text(head, View()) == "no rule; nearest: 1.00 × clause before"
    assert head_sentence(head, View()).startswith("Layer 0 head 0 has no rule: the nearest,")
    assert "The first token alone says" in said
    # first is the head whose rules say most beyond the best of the baselines
    low = {"overlap_first": 0.1, "overlap_even": 0.1}
    less = changed(head, overlap=0.9, overlap_distance=0.95, head=1, **low)
    more = changed(head, overlap=0.4, overlap_distance=0.3, head=2, **low)
    assert [ruled.head for ruled in ranked_heads([less, more])] == [2, 1]


def test_the_figure_has_areas_by_overlap_and_curves_in_one_ink(document: Any) -> None:
    overlaps = [1.0, 0.5, 0.25, 0.0, 0.81, 1.0]
    heads = [
        structs.replace(head, overlap=overlap)
        for head, overlap in zip(document.heads, overlaps, strict=True)
    ]
    drawing = Drawing(LIGHT)
    rules_figure(structs.replace(document, heads=heads), drawing, View(), "row")
    svg = drawing.svg()
    sides = re.findall(r'<rect .*width="([\d.]+)" height="([\d.]+)" fill="#\w+" stroke="none"', svg)
    sizes = [float(wide) * float(tall) for wide, tall in sides[-6:]]
    assert [size / sizes[0] for size in sizes] == pytest.approx(
        [1, 0.5, 0.25, LEAST_AREA, 0.81, 1], abs=0.01
    )
    thick = f'stroke="{LIGHT.ink}" stroke-width="1.30"'
    lines = [line for line in svg.splitlines() if line.startswith("<path") and thick in line]
    assert len(lines) == 2 * len(DASHES)  # a curve of each, and its sample
    dashes = {match[1] for line in lines if (match := re.search('dasharray="(.*?)"', line))}
    assert dashes == set(DASHES) - {""}
    assert not any(f'stroke="{ink}"' in svg for ink in LIGHT.series)


def test_a_seed_draws_the_heads_of_a_checkpoint(model: Any, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS))
    asked = (
        "heads",
        "--model",
        str(model.identity.name),
        "--rules",
        "--file",
        str(corpus),
        "--lines",
    )
    drawn = [ask(*asked, "--json", "--seed", seed).json for seed in ("0", "5")]
    assert [document["seed"] for document in drawn] == [0, 5]
    losses = [[row["loss_drawn"] for row in document["swapped"]] for document in drawn]
    assert losses[0] != losses[1]
    assert drawn[0]["heads"] == drawn[1]["heads"]
    assert ask(*asked, "--seed", "x").code == 2


def test_a_model_whose_last_layer_does_not_attend_has_a_loss(tmp_path: Path) -> None:
    model = attncli.load(make(CASES["lfm2"], tmp_path / "lfm2"), dtype="float64", backend="numpy")
    assert model.spec.blocks[-1].instead
    texts = [model.tokenizer.ids_to_tokens(ids) for ids in ((3, 7, 11, 2), (9, 4, 9))]
    losses = []
    for tokens in texts:
        (trace,) = model.trace(tokens, layers=[len(model.spec.blocks) - 1], idle=True)
        for row, token in zip(np.asarray(model.logits(trace.after))[:-1], tokens[1:], strict=True):
            losses.append(np.log(np.exp(row).sum()) - row[token.id])
    loss = next_token_loss(model, texts, (), head_places(model), None)
    assert loss == pytest.approx(np.mean(losses), abs=1e-9)
