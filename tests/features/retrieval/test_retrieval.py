"""Heads that fetch: a model whose fetching head is known by construction, both scores against
loops, and refusals.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import induction_model
import numpy as np
import pytest
from asking import ask
from counting import tokens_run
from msgspec.structs import replace
from small_gpt2 import small_gpt2

from attncli.draw.lines import draw_parts
from attncli.draw.view import View
from attncli.errors import InputError
from attncli.features.effects.logit_parts import logit_sources, target_sources
from attncli.features.effects.sweep import SweepText
from attncli.features.retrieval import compute
from attncli.features.retrieval.compute import retrieval
from attncli.features.retrieval.screen import RETRIEVAL_PARTS, retrieval_sentences
from attncli.inputs.token import Token

NEEDLES = [("a", "b"), ("b", "a")]
PASSAGES = ["c d", "d e", "e c", "c e"]
DEPTHS = [0.25, 0.5, 0.75, 1.0]
"""At the very beginning no head of this model can find a token before."""
ROOT = Path(__file__).parents[3]


class Words(induction_model.Letters):
    """Letters, with blanks between them."""

    def encode(self, text: str) -> list[Token]:
        places = [place for place, letter in enumerate(text) if not letter.isspace()]
        return [
            Token(index, text[place], "abcde".index(text[place]), place, place + 1)
            for index, place in enumerate(places)
        ]


@pytest.fixture(scope="module")
def model() -> Any:
    return replace(induction_model.model(), tokenizer=Words())


def test_the_head_that_fetches_is_first_and_recall_needs_it(model: Any) -> None:
    document = retrieval(
        model, needles=NEEDLES, passages=PASSAGES, lengths=[10, 12], depths=DEPTHS, verify=True
    )
    assert document.recall == 1.0
    assert document.answered == document.runs == 2 * 4 * 2
    first, *others = document.heads
    assert (first.layer, first.head, first.retrieval) == (1, 0, True)
    assert first.literal.mean == pytest.approx(1)
    assert (first.literal.low, first.literal.high, first.literal.chance) == pytest.approx((1, 1, 0))
    assert max(document.heads, key=lambda row: row.writes.mean) is first
    assert first.writes.mean == pytest.approx(10, rel=0.01)
    assert first.writes.low <= first.writes.mean <= first.writes.high
    assert first.writes.chance < 0
    screen = " ".join(draw_parts(RETRIEVAL_PARTS, document, View(width=120)).plain.split())
    assert "needles drawn again, how far these 2 differ, not others" in screen
    chinese = "".join(
        draw_parts(RETRIEVAL_PARTS, document, View(width=120, lang="zh")).plain.split()
    )
    assert "重抽这2根针" in chinese
    assert all(abs(row.writes.mean) < 1e-6 for row in others)
    assert not any(row.retrieval for row in others if row.layer == 1)
    (one, *_) = document.verify
    assert one.heads == 1
    assert (
        one.literal == one.writes == 0.5
    )  # with nothing fetched all logits are 0, and the first letter is the likeliest
    # of five other heads one finds the token before, which the first needs; the others are idle
    assert sorted(set(one.random)) in ([1.0], [min(one.random), 1.0])
    assert np.mean(one.random) > 0.5


def test_heads_that_fetch_as_much_are_counted(model: Any) -> None:
    """Where several heads reach the highest literal score none is said to fetch most alone."""
    document = retrieval(model, needles=NEEDLES, passages=PASSAGES, lengths=[10], depths=DEPTHS)
    first, *others = document.heads
    for twin in (False, True):
        heads = [first, replace(first, head=first.head + 7), *others] if twin else document.heads
        said = " ".join(retrieval_sentences(replace(document, heads=heads), View(width=200)))
        equal = sum(row.literal.mean == first.literal.mean for row in heads)
        assert (f"{equal} heads fetch most by where they look" in said) == (equal > 1)
        assert twin is False or equal > 1


def test_both_scores_are_those_of_loops(model: Any) -> None:
    facts = [compute.Needle(*needle) for needle in NEEDLES]
    for seed in range(4):
        probe = compute._make_probe(model, facts, seed % 2, PASSAGES, 12, 0.5, seed)
        heads = [(layer, head) for layer in range(2) for head in range(3)]
        result = compute._measure_heads(model, probe, heads)
        assert len(probe.others) == len(probe.places) == 1
        assert probe.others != probe.places
        ids = [token.id for token in probe.tokens]
        step, target = probe.steps[0], probe.targets[0]
        assert ids[probe.places[0]] == target == ids[step + 1]
        traces = list(model.trace(probe.tokens))
        for place, (layer, head) in enumerate(heads):
            row = traces[layer].stages["weights"][head, step]
            most = max(range(len(ids)), key=lambda key: row[key])
            assert result.literal[0][place] == float(most in probe.places and ids[most] == target)
            values, out = traces[layer].stages["v"], model.store.layers[layer]["attn.o.weight"]
            logits = []
            for key in range(step + 1):
                written = out[:, head * 12 : head * 12 + 12] @ values[head][key] * row[key]
                logits.append(float(model.store.outside["head.weight"][target] @ written))
            for side, span in enumerate((probe.places, probe.others)):
                inside = [logits[key] for key in range(step + 1) if key in span]
                outside = [logits[key] for key in range(step + 1) if key not in span]
                expected = sum(inside) / len(inside) - sum(outside) / len(outside)
                assert result.writes[side][place] == pytest.approx(expected, abs=1e-6)


def test_texts_are_as_long_and_deep_as_asked(model: Any) -> None:
    facts = [compute.Needle("a", "b")]
    for depth, expected in ((0.0, 0), (1.0, 6)):
        probe = compute._make_probe(model, facts, 0, PASSAGES, 10, depth, 3)
        assert len(probe.tokens) == 10
        assert probe.places == [expected + 1]
    texts = {
        "".join(t.text for t in compute._make_probe(model, facts, 0, PASSAGES, 10, 0.0, n).tokens)
        for n in range(6)
    }
    assert len(texts) > 1
    assert all(text.count("c") + text.count("d") >= 2 for text in texts)
    with pytest.raises(InputError, match="take 4 tokens, and the texts are to have 3"):
        compute._make_probe(model, facts, 0, PASSAGES, 3, 0.0, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("needles")
    small_gpt2(made / "gpt2")
    (made / "needles").write_text("the cat\tsat\n")
    (made / "hay").write_text("a dog ran\na bird sang\n")
    (made / "wrong").write_text("the cat sat\n")
    (made / "empty").write_text("\n")
    return made


FILES = ("--needle", "{t}/needles", "--haystack", "{t}/hay", "--lengths", "24")
SHORT = ("heads", "--model", "{t}/gpt2", "--retrieval", "--lengths", "24")
LINE = ("heads", "--model", "{t}/gpt2", "--retrieval", *FILES)


def answer(folder: Path, *line: str, **options: Any) -> Any:
    return ask(*(part.replace("{t}", str(folder)) for part in line), **options)


def test_a_model_that_cannot_do_it_is_told_as_that(folder: Path) -> None:
    document = answer(folder, *LINE, "--json").json
    assert document["heads"] == []
    assert document["recall"] < 0.5
    for lang, says in (("en", "does not do the task"), ("zh", "做不了这项任务")):
        for width in (60, 80, 120):
            shown = answer(folder, *LINE, "--lang", lang, width=width).out
            assert says.replace(" ", "") in "".join(shown.split())
    assert answer(folder, *LINE, "--plain").out.startswith("layer\thead\tliteral\tliteral_low")


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (("heads", "a b", "--retrieval"), 2, "texts of its own, and TEXT is one"),
        (("heads", "--retrieval"), 4, "predicts no next token"),
        (("heads", "--verify"), 2, "--verify is about --retrieval"),
        (("heads", "--lengths", "24"), 2, "--lengths is about --retrieval"),
        ((*LINE, "--metric", "entropy"), 2, "--metric does not go with --retrieval"),
        ((*LINE[:-1], "x"), 2, "is no list of lengths"),
        ((*LINE[:-1], "5"), 3, "the texts are to have 5"),
        ((*LINE[:-1], "900"), 3, "at most 32 tokens"),
        ((*SHORT, "--needle", "{t}/wrong"), 3, "this line is no needle"),
        ((*SHORT, "--needle", "{t}/empty"), 3, "this file holds no lines"),
        ((*SHORT, "--haystack", "{t}/none"), 3, "none"),
    ],
)
def test_what_is_no_search_is_refused(
    line: tuple[str, ...], code: int, says: str, folder: Path
) -> None:
    found = answer(folder, *line)
    assert found.code == code, found.err
    assert says in found.err
    assert not (folder / "page.html").exists()


@pytest.mark.thorough
def test_the_model_that_learned_to_look_up_needs_its_fetching_head(tmp_path: Path) -> None:
    options = ("--save", str(tmp_path / "lookup"))
    (value,) = (
        row
        for row in ask("learn", "lookup", *options, "--json").json["runs"][0]["best"]
        if row["score"] == "value"
    )
    samples = ROOT / "sample_inputs"
    line = (
        "--needle",
        str(samples / "lookup_needles.tsv"),
        "--haystack",
        str(samples / "lookup_haystack.txt"),
    )
    line = (
        "heads",
        "--model",
        str(tmp_path / "lookup"),
        "--retrieval",
        *line,
        "--lengths",
        "15",
        "--verify",
    )
    document = ask(*line, "--json").json
    assert document["recall"] > 0.9
    # a second head may learn the same, which of them first differs between processors
    first, second = document["heads"][:2]
    (fetching,) = (
        row
        for row in (first, second)
        if (row["layer"], row["head"]) == (value["layer"], value["head"])
    )
    assert max(document["heads"], key=lambda row: row["writes"]["mean"]) == fetching
    assert first["literal"]["low"] > 0.9 > 0.1 > first["literal"]["chance"]
    one, two, *_ = document["verify"]
    assert one["writes"] < 0.8
    assert two["literal"] == two["writes"] < 0.4
    assert np.median(one["random"]) > 0.9 < np.median(two["random"])
    (tmp_path / "saved.json").write_text(json.dumps(document))
    shown = " ".join(ask("view", str(tmp_path / "saved.json")).out.split())
    assert re.search(
        r"Without the first 2 of them recall is [123]?\d%, without as many random others \d+%",
        shown,
    )


def test_the_sample_needles_are_those_of_the_lookup_task() -> None:
    needles = compute.read_needles(ROOT / "sample_inputs" / "lookup_needles.tsv")
    passages = compute.read_passages(ROOT / "sample_inputs" / "lookup_haystack.txt")
    assert {question for question, _ in needles} == set("abcdefgh")
    assert not {f"{question} {value}" for question, value in needles} & set(passages)


def test_literal_scores_alone_take_one_run_of_each_text(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "needles": NEEDLES, "passages": PASSAGES, "lengths": [10], "depths": DEPTHS,
    }  # fmt: skip
    whole = retrieval(model, **options)
    runs = []
    trace = type(model).trace
    monkeypatch.setattr(
        type(model), "trace", lambda self, *a, **k: runs.append(1) or trace(self, *a, **k)
    )
    alone = retrieval(model, **options, literal_alone=True)
    assert len(runs) == alone.runs == whole.runs
    scores = [
        {(row.layer, row.head): (row.literal.mean, row.literal.chance) for row in document.heads}
        for document in (whole, alone)
    ]
    assert scores[0] == scores[1]
    assert {row.writes.mean for row in alone.heads} == {0.0}


@pytest.mark.parametrize("verify", [False, True])
def test_runs_are_counted_before_and_progress_follows_them(model: Any, verify: bool) -> None:
    """Every answer of this model is predicted, so that what is told at most is what runs."""
    told: list[Any] = []
    shares: list[float] = []
    run = tokens_run(
        lambda: retrieval(
            model,
            needles=NEEDLES,
            passages=PASSAGES,
            lengths=[10],
            depths=DEPTHS,
            verify=verify,
            on_cost=lambda cost, count: told.append((cost, count)),
            progress=shares.append,
        )
    )
    ((cost, count),) = told
    assert count == 10
    assert run == cost.branches * 10 * len(model.spec.blocks)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) == 2 * 8 + verify * 3 * 7


def test_a_sample_is_some_of_the_texts(model: Any) -> None:
    options: dict[str, Any] = {
        "needles": NEEDLES, "passages": PASSAGES, "lengths": [10, 12], "depths": DEPTHS,
    }  # fmt: skip
    whole = retrieval(model, **options)
    some = retrieval(model, **options, sample=5)
    assert (whole.runs, some.runs) == (16, 5)
    assert any("5 of 16 texts were drawn" in str(warning) for warning in some.warnings)
    again = retrieval(model, **options, sample=16)
    assert [row.literal.mean for row in again.heads] == [row.literal.mean for row in whole.heads]
    assert again.warnings == whole.warnings
    probes = [
        compute._make_probes(
            model, [compute.Needle(*fact) for fact in NEEDLES], PASSAGES, [10, 12], DEPTHS, 0, count
        )
        for count in (0, 5)
    ]
    texts = [[[token.text for token in probe.tokens] for probe in side] for side in probes]
    assert len(texts[1]) == 5
    assert all(text in texts[0] for text in texts[1])


def test_an_interruption_tells_what_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, count = compute._measure_heads, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        count.append(1)
        if len(count) == 2:
            raise KeyboardInterrupt
        return measure(*arguments, **options)

    monkeypatch.setattr(compute, "_measure_heads", interrupted)
    told = answer(folder, *LINE)
    assert told.code == 130
    assert "interrupted: 1 of 5 texts are told of" in " ".join(f"{told.out} {told.err}".split())
    assert "in 0 of 1 texts" in " ".join(told.out.split())
    count.clear()
    assert answer(folder, *LINE, "--json").out == ""


def test_an_interrupted_check_is_not_all_texts(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(compute, "_check_heads", interrupted)
    told: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        retrieval(
            model,
            needles=NEEDLES,
            passages=PASSAGES,
            lengths=[10],
            depths=DEPTHS,
            verify=True,
            on_interruption=told.append,
        )
    (document,) = told
    assert any("texts are told of, but not what recall needs" in row for row in document.warnings)


def test_one_run_tells_every_step(model: Any) -> None:
    """What heads write to several logits by one run is what each run by itself tells."""
    facts = [compute.Needle("a", "b c")]
    probe = compute._make_probe(model, facts, 0, PASSAGES, 12, 0.5, 0)
    text = SweepText(model, probe.tokens, model.compute_backend(len(probe.tokens)))
    points = list(zip(probe.steps, probe.targets, strict=True))
    assert len(points) == 2
    for found, (step, target) in zip(target_sources(text, points), points, strict=True):
        alone = logit_sources(text, step, target, None)
        assert found.keys() == alone.keys()
        for term, values in alone.items():
            assert found[term] == pytest.approx(values, abs=1e-12)


def test_a_line_that_is_no_needle_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "needles.tsv").write_text("who?\tme\n\n  \nno needle\n")
    with pytest.raises(InputError) as error:
        compute.read_needles(tmp_path / "needles.tsv")
    assert str(error.value.where).endswith("needles.tsv, line 4")
