"""Wrong arguments of public functions: each is an AttnError, whatever it is."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2

import attncli
from attncli.metrics import measure, measure_texts

TEXT = "the cat sat"
WRONG: tuple[object, ...] = (
    None, True, 5, -1, 1.5, math.nan, "nonesuch", "", b"x", [], {}, [None], [5], ["nonesuch"],
    (1, 2, 3), object(), np.zeros((2, 2)), {5: None}, {"nonesuch": 1.5}, {(0, 9): {}},
)  # fmt: skip
Call = tuple[Callable[..., Any], dict[str, Any]]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is taken for a path is one of an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Call]:
    """A call that succeeds of every public function, by name."""
    folder = tmp_path_factory.mktemp("arguments")
    model = attncli.load(small_gpt2(folder / "model", layers=1))
    seeded = attncli.load(seed=0, heads=2, d_model=8)
    learned = {"model": model, "text": TEXT, "tokens": model.encode(TEXT)}
    tokens = seeded.encode(TEXT)
    place = {"layer": 0, "head": 0, "query": 1}
    pairs = folder / "pairs.jsonl"
    pairs.write_text(
        '{"clean": "the cat", "corrupt": "the cot", "answer": "a", "versus": "b"}\n'
        '{"clean": "the cap", "corrupt": "the cop", "answer": "a", "versus": "b"}\n'
    )
    run = attncli.run(seeded, TEXT)
    sentences = [f"{TEXT} {word}" for word in ("a", "b", "c", "d", "e", "on")]
    of_text = {"model": model, "text": TEXT}
    topics = attncli.topics
    q = np.random.default_rng(0).normal(size=(2, 3, 4))
    of_topic = {"model": seeded, "text": TEXT, "tokens": tokens}
    return {
        "ablate": (attncli.ablate, of_text),
        "ablate_pairs": (attncli.ablate_pairs, {"model": model, "file": pairs}),
        "answer": (
            attncli.answer,
            {**of_text, "regions": [attncli.Region("r", (0, 1))], "length": 4},
        ),
        "cache": (attncli.cache, {**of_text, "policies": ["sinks"], "budgets": [2]}),
        "circuit": (attncli.circuit, {"model": model, "file": pairs, "steps": 1}),
        "compare": (attncli.compare, {"a": run, "b": run}),
        "compare_models": (attncli.compare_models, {"a": model, "b": model, "text": TEXT}),
        "cost": (attncli.cost, {"n": 9}),
        "cross": (attncli.cross, {"model": seeded, "query_text": "a b", "key_text": "c"}),
        "each_region": (attncli.each_region, {**of_text, "regions": [attncli.Region("r", (0, 1))]}),
        "explain": (attncli.explain, {"model": seeded, "text": TEXT}),
        "find": (attncli.find, {"model": seeded, "text": TEXT, "query": "sat", "key": "cat"}),
        "generate": (attncli.generate, {**of_text, "count": 1}),
        "heads": (attncli.heads, {"model": seeded, "text": TEXT}),
        "learn": (attncli.learn, {"task": "previous", "steps": 1, "batch": 1}),
        "load": (attncli.load, {"seed": 0}),
        "logits": (attncli.logits, of_text),
        "mask": (attncli.mask, {"masks": "causal", "n": 4}),
        "next_word": (attncli.next_word, of_text),
        "pairs": (attncli.pairs, {"model": model, "file": pairs}),
        "patch": (attncli.patch, {"model": model, "clean": "the cat", "corrupt": "the cot"}),
        "retrieval": (
            attncli.retrieval,
            {"model": model, "needles": [("the", "cat")], "passages": ["a a"], "lengths": [20]},
        ),
        "rules": (attncli.rules, {"model": model, "texts": sentences, "shares": [1.0]}),
        "run": (attncli.run, {"model": seeded, "text": TEXT}),
        "tensors": (attncli.tensors, {"arrays": {"q": q, "k": q, "v": q}}),
        "tokens": (attncli.tokens, {"text": TEXT}),
        "check": (attncli.check, {"answers": {"1": 0.5}}),
        "why": (attncli.why, {**of_text, "query": "sat", "key": "cat"}),
        "topics.softmax": (topics.softmax, {"scores": [1.0, 2.0], "temperature": 1.0}),
        "topics.metric": (topics.metric, {"name": "entropy"}),
        "topics.rule": (topics.rule, {"name": "previous"}),
        "topics.scaling": (topics.scaling, {"d_k": 4, "samples": 8, "keys": 3, "seed": 0}),
        "topics.residual": (topics.residual, {**learned, "layer": 0, "query": 1}),
        "topics.multihead": (topics.multihead, {**of_topic, "layer": 0, "query": 1}),
        "topics.mask": (topics.mask, {**of_topic, **place}),
        "topics.qkv": (topics.qkv, {**of_topic, **place}),
        "topics.training": (topics.training, {**of_topic, **place, "learning_rate": 0.1}),
        "topics.seq2seq": (
            topics.seq2seq,
            {"model": of_topic["model"], "query_text": "a b", "key_text": "c d"},
        ),
        "topics.matrix_softmax": (topics.matrix_softmax, {**of_topic, "layer": 0, "head": 0}),
        "metrics.measure": (measure, {"weights": np.full((1, 2, 2), 0.5)}),
        "attention": (attncli.attention, {"q": q, "k": q, "v": q}),
    }


UNTRIED = {
    "find_pairs",
    "why_pairs",
    "patch_pairs",
    "logits_pairs",
    "scan_corpus",
    "open_scan",
    "series",
    "topics.order",
    "topics.position",
    "metrics.measure_texts",
}
"""Functions of files on a disk, or of many models, whose other arguments are those of the rest."""
NAMES = (
    "ablate", "ablate_pairs", "answer", "attention", "cache", "check", "circuit", "compare", "compare_models", "cost",
    "cross", "each_region", "explain", "find", "generate", "heads", "learn", "load", "logits", "mask",
    "metrics.measure", "next_word", "pairs", "patch", "retrieval", "rules", "run", "tensors", "tokens",
    "topics.mask", "topics.matrix_softmax", "topics.metric", "topics.multihead", "topics.qkv", "topics.residual",
    "topics.rule", "topics.scaling", "topics.seq2seq", "topics.softmax", "topics.training", "why",
)  # fmt: skip


def test_every_public_function_is_tried(calls: dict[str, Call]) -> None:
    assert tuple(sorted(calls)) == NAMES
    functions = {name for name in attncli.__all__ if inspect.isfunction(getattr(attncli, name))} | {
        f"topics.{name}" for name in attncli.topics.__all__
    }
    missing = sorted(functions - {*NAMES, *UNTRIED})
    assert not missing, f"NAMES and calls of tests/test_arguments.py have each: {missing}"


@pytest.mark.many
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_is_an_error_of_ours(name: str, calls: dict[str, Call]) -> None:
    function, arguments = calls[name]
    function(**arguments)
    faults = []
    codes = []
    for parameter in inspect.signature(function).parameters:
        for value in WRONG:
            wrong = copy(value)  # a dictionary that a call keeps things in stays empty for others
            try:
                function(**{**arguments, parameter: wrong})
            except attncli.AttnError as error:
                codes.append(error.exit_code)
            except Exception as error:
                faults.append(f"{parameter}={value!r:.40}: {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)
    assert min(codes) > 1


def test_an_error_names_the_argument_and_what_is_expected() -> None:
    model = attncli.load(seed=0)
    cases = (
        (lambda: attncli.run(model, 5), "text is 5", "a text"),
        (lambda: attncli.run("minilm", "a"), "model is 'minilm'", "as attncli.load gives it"),
        (lambda: attncli.heads(model, "a", metrics="entropy"), "metrics is 'entropy'", "a list"),
        (lambda: attncli.cost("9"), "n is '9'", "a whole number"),
        (lambda: attncli.ablate(model, "a", by="nothing"), "by is 'nothing'", "'zero'"),
        (lambda: attncli.run(model, "a", top=-1), "top is -1", "at least 1"),
        (lambda: attncli.run(model, "a", heads=b"0"), "b'0' chooses no layers or heads", "range"),
        (lambda: attncli.explain(model, "a", head="x"), "'x' chooses no layers", "L5H11"),
        (lambda: attncli.explain(model, "a", layer=1, head="L0H0"), "'L0H0' chooses no", ""),
        (lambda: attncli.explain(model, "a", head="L0H0,L0H1"), "head is 'L0H0,L0H1'", "one head"),
    )
    for call, said, expected in cases:
        with pytest.raises(attncli.AttnError, match=said) as caught:
            call()
        assert expected in str(caught.value.expected)
        assert caught.value.exit_code == 2


def test_one_head_may_be_named_with_its_layer() -> None:
    model = attncli.load(seed=0)
    for head in ("L0H0", (0, 0), 0):
        found = attncli.explain(model, "a b", head=head)
        assert (found.layer, found.head) == (0, 0)


def test_heads_that_differ_by_layer_are_refused_in_the_words_of_python(tmp_path: Path) -> None:
    model = attncli.load(small_gpt2(tmp_path / "model", layers=2))
    named: list[Any] = ["L1H1,L0H0", [(1, 1), (0, 0)], ["L1H1", "L0H0"]]
    for heads in named:
        assert len(attncli.ablate(model, "the cat", heads=heads).effects) == 2
        with pytest.raises(attncli.AttnError, match="L1H1,L0H0 names other heads") as caught:
            attncli.heads(model, "the cat", heads=heads)
        assert "--head" not in f"{caught.value} {caught.value.hint} {caught.value.where}"
        assert "ablate, patch and why" in str(caught.value.expected)
    number: Any = np.int64(1)
    found = attncli.explain(model, "the cat", head=number, layer=1)
    assert (found.layer, found.head) == (1, 1)
    attending = attncli.heads(model, "the cat", heads=(1, 0)).heads
    assert [(row.layer, row.head) for row in attending] == [(1, 0)]


CHOICES = (
    (2, [(0, 2)]), ((0, 3), [(0, 3)]), ([0, 3], [(0, 0), (0, 3)]), (range(2), [(0, 0), (0, 1)]), ("2", [(0, 2)]),
    ("0,2-3", [(0, 0), (0, 2), (0, 3)]), ("L0H2", [(0, 2)]), ("L0 H2, 0.3", [(0, 2), (0, 3)]),
    ([(0, 2)], [(0, 2)]), (["L0H1", (0, 2)], [(0, 1), (0, 2)]), (np.int64(1), [(0, 1)]),
)  # fmt: skip


@pytest.mark.parametrize(("heads", "places"), CHOICES, ids=str)
def test_every_function_takes_heads_by_number_or_name(heads: Any, places: Any) -> None:
    model = attncli.load(seed=0, heads=4, d_model=8)

    def of(rows: Any) -> list[tuple[int, int]]:
        return sorted({(row.layer, row.head) for row in rows})

    run = attncli.run(model, TEXT, heads=heads)
    assert [(0, head.head) for head in run.layers[0].heads] == places
    assert of(attncli.heads(model, TEXT, heads=heads).heads) == places
    assert of(attncli.find(model, TEXT, "sat", "cat", heads=heads).heads) == places
    assert of(attncli.ablate(model, TEXT, heads=heads).effects) == places
    assert of(attncli.patch(model, TEXT, "the dog sat", heads=heads).effects) == places
    link = attncli.why(model, TEXT, "sat", "cat", heads=heads).link
    assert (link.layer, link.head) in places
    cross = attncli.cross(model, "a b", TEXT, heads=heads)
    assert [(0, head.head) for head in cross.layers[0].heads] == places
    weights = [trace.stages["weights"].shape[0] for trace in model.trace(TEXT, heads=heads)]
    assert weights == [len(places)]
    (measured,) = measure_texts(model, [TEXT], heads=heads)
    assert measured["entropy"].value.shape == (1, len(places))


@pytest.mark.parametrize(
    "heads", [(0, 9), "L0H9", "L1H0", 4, -1, "x", None, [], True, "2-1", [1.5]]
)
def test_heads_that_are_not_there_are_refused_everywhere(heads: Any) -> None:
    model = attncli.load(seed=0, heads=4, d_model=8)
    for call in (
        lambda: attncli.run(model, TEXT, heads=heads),
        lambda: attncli.heads(model, TEXT, heads=heads),
        lambda: attncli.find(model, TEXT, "sat", "cat", heads=heads),
        lambda: attncli.ablate(model, TEXT, heads=heads),
        lambda: attncli.why(model, TEXT, "sat", "cat", heads=heads),
        lambda: attncli.cross(model, "a b", TEXT, heads=heads),
        lambda: list(measure_texts(model, [TEXT], heads=heads)),
    ):
        with pytest.raises(attncli.AttnError, match=r"there is no|chooses no|no layer or no head"):
            call()


def test_a_target_means_what_the_command_means(tmp_path: Path) -> None:
    folder = small_gpt2(tmp_path / "model", layers=1)
    document = attncli.ablate(attncli.load(folder), "the cat", target="id:5")
    told = ask("ablate", "the cat", "--model", str(folder), "--target", "id:5", "--json").json
    assert document.measures == told["measures"] == ["logprob"]
    assert [effect.logprob for effect in document.effects] == [
        effect["logprob"] for effect in told["effects"]
    ]
    with pytest.raises(attncli.AttnError, match="log-probabilities"):
        attncli.ablate(attncli.load(folder), "the cat", target="id:5", measures=("kl",))


def test_public_functions_can_be_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(attncli.run)) is attncli.run
