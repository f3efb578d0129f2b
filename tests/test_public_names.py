"""The public face: names, help and one-line representations."""

from __future__ import annotations

import inspect
import os
import pydoc
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from processes import finish
from small_gpt2 import small_gpt2

import attncli
from attncli.cli.app import COMMANDS
from attncli.documents.reading import document_of
from attncli.draw.encoding import json_pieces
from attncli.metrics import entropy, measure


def test_attention_is_a_plain_function_with_a_page_of_help():
    assert isinstance(attncli.attention, types.FunctionType)
    page = pydoc.plain(pydoc.render_doc(attncli.attention))
    for name in inspect.signature(attncli.attention).parameters:
        assert name in page
    for said in (
        "[..., heads, query, dim]",
        "empty_rows",
        "InputError",
        "Source: Vaswani et al., 2017",
    ):
        assert said in page, said


def test_a_public_function_says_what_goes_in_and_what_comes_out():
    functions = {
        name: value
        for name in attncli.__all__
        if inspect.isfunction(value := getattr(attncli, name))
    }
    assert len(functions) > 15
    for name, function in functions.items():
        args, _, returns = inspect.getdoc(function).partition("\nReturns:\n")
        assert returns, name
        for parameter in inspect.signature(function).parameters:
            assert re.search(rf"^    {parameter}: ", args, re.M), f"{name}: {parameter}"


def test_metrics_is_a_module():
    weights = np.full((2, 3, 4), 0.25)
    assert np.allclose(entropy(weights), np.log(4))
    assert np.allclose(measure(weights, metrics=["entropy"])["entropy"].value, np.log(4))
    assert attncli.metrics.entropy is entropy
    assert set(attncli.metrics.METRICS) <= set(attncli.metrics.__all__)


PACKAGE = Path(attncli.__file__).parent


def test_the_package_says_where_things_are():
    told = inspect.getdoc(attncli).splitlines()
    assert len(told) <= 25
    for name in attncli.__all__:
        assert getattr(attncli, name) is not None
    rooms = {
        line.split()[0].rstrip("/")
        for line in told
        if line.startswith("    ") and "(" not in line.split("  ")[2]
    }
    folders = {
        path.parts[0]
        for path in (file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py"))
        if len(path.parts) > 1
    }
    assert folders <= rooms
    assert len(folders) > 10


def test_a_representation_is_one_short_line():
    model = attncli.load(seed=0)
    trace = model.trace("one two three")
    (layer,) = trace
    q = np.ones((2, 3, 4))
    for shown in (model, trace, layer, attncli.attention(q, q, q)):
        assert str(shown) == repr(shown)
        assert len(repr(shown)) <= 320, repr(shown)
        assert "\n" not in repr(shown)
        assert "array(" not in repr(shown)


def test_results_are_not_compared_number_by_number():
    q = np.ones((2, 3, 4))
    assert attncli.attention(q, q, q) != attncli.attention(q, q, q)
    model = attncli.load(seed=0)
    assert next(iter(model.trace("a b"))) != next(iter(model.trace("a b")))


def test_errors_carry_what_helps_as_notes():
    with pytest.raises(attncli.AttnError) as caught:
        attncli.load("minilm", seed=3)
    error = caught.value
    assert f"expected: {error.expected}" in error.__notes__
    with pytest.raises(attncli.AttnError) as caught:
        attncli.load("no/such folder")
    assert {f"where: {caught.value.where}", f"expected: {caught.value.expected}"} <= set(
        caught.value.__notes__
    )
    assert not any(note.partition(": ")[2] == "" for note in caught.value.__notes__)


def test_help_shows_no_variable_of_the_process(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "a-secret-of-mine")
    assert "a-secret-of-mine" not in pydoc.plain(pydoc.render_doc(attncli.load))


MODEL = "attncli.load(seed=0, d_model=8)"
LEARNED = "attncli.load('model')"
OF_TOPIC = "(m := attncli.load(seed=0, d_model=8), 'the cat', m.encode('the cat'))"
FIRST_CALLS = {
    "AttentionTrace": "attncli.AttentionTrace.__name__",
    "AttnError": "str(attncli.AttnError('no such thing'))",
    "Edit": "attncli.Edit(0, 'z', abs)",
    "HeadSelection": "attncli.HeadSelection(heads='L0H1')",
    "KnockOut": "attncli.KnockOut",
    "Region": "attncli.Region('r', (0,))",
    "Replace": "attncli.Replace",
    "Spec": "attncli.Spec",
    "Weigh": "attncli.Weigh",
    "Zero": "attncli.Zero",
    "__version__": "attncli.__version__",
    "ablate": f"attncli.ablate({MODEL}, 'the cat')",
    "ablate_pairs": f"attncli.ablate_pairs({LEARNED}, 'pairs.jsonl')",
    "answer": f"attncli.answer({LEARNED}, 'the cat', [attncli.Region('r', (0, 1))], target='a')",
    "attention": "attncli.attention([[[1.0]]], [[[1.0]]], [[[1.0]]])",
    "cache": f"attncli.cache({LEARNED}, 'the cat sat', policies=['sinks'], budgets=[2])",
    "circuit": f"attncli.circuit({LEARNED}, 'pairs.jsonl', steps=1)",
    "compare": f"attncli.compare(run := attncli.run({MODEL}, 'the cat'), run)",
    "compare_models": f"attncli.compare_models(m := {MODEL}, m, 'the cat')",
    "cost": "attncli.cost(9)",
    "check": "attncli.check({'1': 0.5})",
    "cross": f"attncli.cross({MODEL}, 'the cat', 'a dog')",
    "each_region": f"attncli.each_region({LEARNED}, 'the cat', [attncli.Region('r', (0, 1))])",
    "explain": f"attncli.explain({MODEL}, 'the cat')",
    "find": f"attncli.find({MODEL}, 'the cat', 'cat', 'the')",
    "find_pairs": f"attncli.find_pairs({LEARNED}, 'pairs.jsonl', key='#1')",
    "generate": f"attncli.generate({LEARNED}, 'the cat', count=1)",
    "heads": f"attncli.heads({MODEL}, 'the cat')",
    "learn": "attncli.learn('previous', steps=1, batch=1, architecture={'d_model': 8, 'layers': 1})",
    "load": MODEL,
    "logits": f"attncli.logits({LEARNED}, 'the cat')",
    "logits_pairs": f"attncli.logits_pairs({LEARNED}, 'pairs.jsonl')",
    "mask": "attncli.mask('causal')",
    "metrics": "attncli.metrics.measure([[[1.0]]])",
    "metrics.measure_texts": f"attncli.metrics.measure_texts({LEARNED}, ['the cat', 'a dog'])",
    "next_word": f"attncli.next_word({LEARNED}, 'the cat')",
    "open_scan": (
        "(attncli.scan_corpus('model', ['corpus.txt'], 'opened'),"
        " attncli.open_scan('opened').document)[1]"
    ),
    "pairs": f"attncli.pairs({LEARNED}, 'pairs.jsonl')",
    "patch": f"attncli.patch({MODEL}, 'the cat', 'a cat')",
    "patch_pairs": f"attncli.patch_pairs({LEARNED}, 'pairs.jsonl')",
    "retrieval": (
        f"attncli.retrieval({LEARNED}, needles=[('the', 'cat')], passages=['a a'], lengths=[20])"
    ),
    "rules": f"attncli.rules({MODEL}, [f'the cat sat {{word}}' for word in 'abcdef'])",
    "run": f"attncli.run({MODEL}, 'the cat')",
    "scan_corpus": "attncli.scan_corpus('model', ['corpus.txt'], 'scan')",
    "series": "attncli.series(['model', 'later'], 'a b a b')",
    "tensors": "attncli.tensors({name: [[[1.0]]] for name in 'qkv'})",
    "tokens": "attncli.tokens('the cat')",
    "topics": "attncli.topics.softmax([1.0])",
    "topics.mask": f"attncli.topics.mask(*{OF_TOPIC}, layer=0, head=0, query=1)",
    "topics.matrix_softmax": f"attncli.topics.matrix_softmax(*{OF_TOPIC}, layer=0, head=0)",
    "topics.metric": "attncli.topics.metric('entropy')",
    "topics.rule": "attncli.topics.rule('previous')",
    "topics.multihead": f"attncli.topics.multihead(*{OF_TOPIC}, layer=0, query=1)",
    "topics.order": f"attncli.topics.order([(of := {OF_TOPIC})[0]], *of[1:], order=[1, 0])",
    "topics.position": (
        f"attncli.topics.position([(of := {OF_TOPIC})[0]], *of[1:], layer=0, head=0, query=1)"
    ),
    "topics.qkv": f"attncli.topics.qkv(*{OF_TOPIC}, layer=0, head=0, query=1)",
    "topics.seq2seq": f"attncli.topics.seq2seq({OF_TOPIC}[0], 'the cat', 'le chat')",
    "topics.residual": (
        f"attncli.topics.residual(m := {LEARNED}, 'the cat', m.encode('the cat'), layer=0, query=1)"
    ),
    "topics.scaling": "attncli.topics.scaling(4, samples=8, keys=3, seed=0)",
    "topics.training": f"attncli.topics.training(*{OF_TOPIC}, layer=0, head=0, query=1)",
    "topics.softmax": "__import__('attncli.topics').topics.softmax([1.0])",
    "why": f"attncli.why({MODEL}, 'the cat', 'cat', 'the')",
    "why_pairs": f"attncli.why_pairs({LEARNED}, 'pairs.jsonl', key='#1')",
}
"""By public name, an expression that uses it and nothing else first. Files stand in the folder."""

EVERY_DAY = (
    "tokens", "mask", "topics.metric", "run", "heads", "ablate", "patch",
)  # fmt: skip
FIRST = """
import os, sys, attncli
for call in sys.argv[1:]:
    if (child := os.fork()) == 0:  # each call is the first of a process
        result = eval(call)
        if hasattr(result, "rows"):
            print(len(result.rows()), *result._repr_mimebundle_(), flush=True)
        else:
            print(type(result).__name__, flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"fails as the first call of a process: {call}")
"""


def test_every_public_name_has_a_first_call():
    functions = {f"topics.{name}" for name in attncli.topics.__all__}
    assert {*attncli.__all__, *functions} | {"metrics.measure_texts"} == {*FIRST_CALLS}, (
        "FIRST_CALLS of tests/test_public_names.py has a call of each"
    )


def first_calls(names, folder):
    """What each of these public names prints as the first call of a process of its own."""
    calls = [FIRST_CALLS[name] for name in names]
    done = finish([sys.executable, "-c", FIRST, *calls], cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(calls), done.stderr
    return dict(zip(names, lines, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_public_names_work_as_the_first_call_of_a_process(tmp_path):
    printed = first_calls(EVERY_DAY, tmp_path)
    assert all(line.split()[1:] == ["text/plain", "text/html"] for line in printed.values())


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_every_public_name_works_as_the_first_call_of_a_process(tmp_path):
    for name in ("model", "later"):
        small_gpt2(tmp_path / name, layers=1)
    (tmp_path / "pairs.jsonl").write_text(
        '{"clean": "the cat", "corrupt": "the cot", "answer": "a", "versus": "b"}\n'
        '{"clean": "the cap", "corrupt": "the cop", "answer": "a", "versus": "b"}\n'
    )
    (tmp_path / "corpus.txt").write_text("the cat sat\na dog ran\n")
    printed = first_calls(FIRST_CALLS, tmp_path)
    without_rows = {name for name, line in printed.items() if "text/html" not in line}
    assert without_rows == {
        "AttentionTrace", "AttnError", "Edit", "HeadSelection", "KnockOut", "Region", "Replace", "Spec", "Weigh",
        "Zero", "__version__", "attention", "load", "metrics", "metrics.measure_texts",
    }  # fmt: skip


def test_layers_and_heads_are_chosen_by_a_number_or_several():
    model = attncli.load(seed=0, heads=4)
    assert len(attncli.heads(model, "the cat", heads=(0, 3), layers=0).heads) == 2
    assert len(attncli.heads(model, "the cat", heads=(0, 3)).heads) == 1
    for chosen, count in ((2, 1), ([2], 1), ([0, 3], 2), (range(3), 3)):
        document = attncli.heads(model, "the cat", labels=False, heads=chosen, layers=0)
        assert len(document.heads) == count
        assert [layer.stages["weights"].shape[0] for layer in model.trace("a b", heads=chosen)] == [
            count
        ]


def test_documents_give_rows_a_figure_and_a_page(tmp_path):
    model = attncli.load(seed=0, heads=2)
    document = attncli.heads(model, "the cat sat")
    rows = document.rows()
    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1)]
    assert rows[1]["entropy"] == document.heads[1].metrics["entropy"].value
    assert all(
        isinstance(value, int | float | str | type(None)) for row in rows for value in row.values()
    )
    document.figure(tmp_path / "heads.svg", style="dark")
    document.page(tmp_path / "heads.html")
    assert (tmp_path / "heads.svg").read_text("utf-8").startswith("<svg")
    assert "<!doctype html>" in (tmp_path / "heads.html").read_text("utf-8")
    for write, name in ((document.figure, "heads.txt"), (document.page, "heads.pdf")):
        with pytest.raises(attncli.AttnError, match=name):
            write(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heads.html", "heads.svg"]
    assert document._repr_html_().startswith("<iframe")


def test_documents_of_training_give_the_same(tmp_path):
    saved = tmp_path / "model"
    learned = ask(
        "learn", "induction", "--steps", "4", "--snapshots", "2", "--save", str(saved), "--json"
    ).json
    steps = sorted(map(str, saved.glob("step-*")))
    series = ask("series", *steps, "--text", "a b a b", "--json").json
    for number, content in enumerate((learned, series)):
        document = document_of(content, "test")
        assert document.rows()[0]["step"] == 0
        assert document._repr_html_().startswith("<div")
        document.figure(tmp_path / f"{number}.svg")
        document.page(tmp_path / f"{number}.html")
        assert (tmp_path / f"{number}.svg").read_text("utf-8").startswith("<svg")
        assert "<!doctype html>" in (tmp_path / f"{number}.html").read_text("utf-8")


TEXT = "the cat sat on the mat"
SAME = {
    "run": (lambda model: attncli.run(model, TEXT), ("run", TEXT)),
    "run with a query": (lambda model: attncli.run(model, TEXT, query="cat"), ("run", TEXT, "--query", "cat")),
    "heads": (lambda model: attncli.heads(model, TEXT), ("heads", TEXT, "--num-heads", "1")),
    "find": (lambda model: attncli.find(model, TEXT, "sat", "cat"),
             ("find", TEXT, "--from", "sat", "--to", "cat", "--num-heads", "1")),
    "explain": (lambda model: attncli.explain(model, TEXT), ("explain", TEXT)),
    "explain with a query": (
        lambda model: attncli.explain(model, TEXT, "the:2"),
        ("explain", TEXT, "--query", "the:2"),
    ),
    "compare": (
        lambda model: attncli.compare(
            attncli.run(model, TEXT), attncli.run(model, "the dog sat on the mat"), names=("text 1", "text 2")
        ),
        ("compare", TEXT, "the dog sat on the mat"),
    ),
    "compare with a query": (
        lambda model: attncli.compare(
            attncli.run(model, TEXT), attncli.run(model, "a cat sat"), names=("text 1", "text 2"), query="sat"
        ),
        ("compare", TEXT, "a cat sat", "--query", "sat"),
    ),
    "cross": (lambda model: attncli.cross(model, "le chat", TEXT), ("cross", "le chat", TEXT)),
    "mask": (lambda model: attncli.mask(["causal", "window:3"], 9), ("mask", "causal", "window:3", "-n", "9")),
    "masks": (lambda model: attncli.mask(n=12), ("mask", "-n", "12")),
    "cost": (lambda model: attncli.cost(99, window=7, masks=["dilated:3,2"]),
             ("cost", "-n", "99", "--window", "7", "--mask", "dilated:3,2")),
    "tokens": (lambda model: attncli.tokens("我爱你", "char"), ("tokens", "我爱你", "--tokenizer", "char")),
    "topics.softmax": (lambda model: attncli.topics.softmax([2.0, 1.0], 0.5),
                       ("explain", "softmax", "2.0", "1.0", "--temperature", "0.5")),
    "topics.metric": (lambda model: attncli.topics.metric("entropy"), ("explain", "metric", "entropy")),
    "topics.rule": (lambda model: attncli.topics.rule("previous"), ("explain", "rule", "previous")),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_a_command_and_its_function_give_the_same_document(name):
    function, words = SAME[name]
    document = function(attncli.load(seed=0))
    assert b"".join(json_pieces(document)).decode() == ask(*words, "--json").out


def test_a_command_and_its_function_give_the_same_document_of_arrays(tmp_path):
    random = np.random.default_rng(3)
    arrays = {name: random.normal(size=(2, 5, 7)).astype(np.float32) for name in "qkv"}
    path = tmp_path / "captured.npz"
    np.savez(path, **arrays)
    document = attncli.tensors(arrays, name=str(path), heads=[1], top=3)
    told = ask("tensors", str(path), "--head", "1", "--top", "3", "--json").out
    assert b"".join(json_pieces(document)).decode() == told


def test_every_command_that_answers_with_a_document_has_its_function():
    without = {"explore", "view", "guide", "schema", "models", "weights"}
    commands = {name for name in COMMANDS if name not in without}
    missing = commands - {"scan", "next"} - set(attncli.__all__)
    assert missing == set(), (
        "attncli/__init__.py: import them for type checkers and list them in __all__"
    )
    assert "next_word" in attncli.__all__  # next is a name of Python's own
    assert "scan_corpus" in attncli.__all__  # attncli.scan is the folder of the feature


def test_a_training_and_a_series_of_checkpoints_are_those_of_their_commands(tmp_path):
    architecture = {"heads": 1, "d_model": 8, "layers": 1}
    sizes = ("--num-heads", "1", "--d-model", "8", "--layers", "1")
    options = {"architecture": architecture, "steps": 4, "batch": 2, "seed": 3}
    line = (*sizes, "--steps", "4", "--batch", "2", "--seed", "3", "--json")

    def without_seconds(document):
        return re.sub(rb'"seconds": *[0-9.e-]+', b"", document)

    document = attncli.learn("induction", **options)
    told = ask("learn", "induction", *line).out.encode()
    assert without_seconds(b"".join(json_pieces(document))) == without_seconds(told)
    notes = []
    words = {"query": "the", "target": "mat"}
    attncli.learn("sentence", "the cat sat on the mat", **words, **options, note=notes.append)
    assert [str(note) for note in notes] == [
        '"the" occurs 2 times; using the first, token #0 (the:2 for the next)'
    ]
    attncli.learn(
        "previous",
        steps=4,
        batch=2,
        architecture=architecture,
        save=tmp_path / "model",
        snapshots=2,
    )
    names = sorted(str(folder) for folder in (tmp_path / "model").glob("step-*"))
    assert len(names) == 2
    series = attncli.series(
        [*(tmp_path / "model").glob("step-*")], "a b c a b c", metrics=["previous"], remember=False
    )
    told = ask(
        "series", *names, "--text", "a b c a b c", "--metric", "previous", "--fresh", "--json"
    ).json
    assert [row.name for row in series.checkpoints] == [row["name"] for row in told["checkpoints"]]
    assert (
        series.checkpoints[1].heads[0].metrics["previous"]
        == told["checkpoints"][1]["heads"][0]["metrics"]["previous"]
    )
    for call, said in (
        (lambda: attncli.learn("inductoin"), "no task is called"),
        (lambda: attncli.learn("induction", "a text"), "makes its own texts"),
        (lambda: attncli.learn("induction", architecture={"widht": 3}), "no part of a small model"),
        (lambda: attncli.series(names[:1], "a b"), "checkpoint"),
        (lambda: attncli.series(names, "a b", metrics=["luck"]), "luck"),
    ):
        with pytest.raises(attncli.AttnError, match=said) as refused:
            call()
        assert refused.value.exit_code == 2
