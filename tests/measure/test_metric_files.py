"""Metrics of a user's own file: numbers against loops in heads, scans and Python; mistakes told
with their line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from scan.conftest import with_tokenizer
from scanning import Inside, inside
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError, UsageError
from attncli.measure.metric import FILE_METRICS, measure
from attncli.metrics import load_metrics, sink

SOURCE = '''
"""Some metrics."""
from math import sqrt as root  # no metric of this file
import numpy as np


def thirds(rows):
    """mean Σ_j A, j = 0, 3, 6, …

    More of it.
    """
    return rows.weights[..., ::3].sum(-1)


thirds.low, thirds.high, thirds.says = 0, 1, "it looks at every third token"


def middle(rows):
    return np.abs((rows.weights * rows.j).sum(-1) - _half(rows))


middle.least_keys = 2


def marked(rows):
    """mean Σ_{j special} A"""
    return rows.weights[..., rows.special].sum(-1)


marked.needs = "special"


def _half(rows):
    return (rows.visible * rows.j).sum(-1) / rows.visible.sum(-1)
'''
TEXT = "w1 w2 , w3 w1 w4 . w5"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tokenizer(make(CASES["llama"], tmp_path_factory.mktemp("model")), special=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(SOURCE)
    return path


def oracle(weights: np.ndarray, special: list[bool]) -> dict[str, float]:
    """The three metrics of one head's causal weights, in loops."""
    count = len(weights)
    thirds = [sum(weights[i][j] for j in range(0, i + 1, 3)) for i in range(count)]
    middle = [abs(sum(weights[i][j] * j for j in range(i + 1)) - i / 2) for i in range(1, count)]
    marked = [sum(weights[i][j] for j in range(i + 1) if special[j]) for i in range(count)]
    return {
        "own.thirds": np.mean(thirds),
        "own.middle": np.mean(middle),
        "own.marked": np.mean(marked),
    }


def test_numbers_are_those_of_loops_everywhere(model: Path, file: Path, tmp_path: Path) -> None:
    exact = attncli.load(str(model), backend="numpy", dtype="float64")
    tokens = exact.encode(TEXT)
    special = [token.special for token in tokens]
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n")
    asked = ("--metric-file", str(file), "--json")
    told = ask(
        "heads",
        "--model",
        str(model),
        TEXT,
        *asked,
        "--dtype",
        "float64",
        "--metric",
        "entropy,own.thirds",
    ).json
    assert set(told["heads"][0]["metrics"]) == {"entropy", "own.thirds"}
    told = ask("heads", "--model", str(model), TEXT, *asked, "--dtype", "float64").json
    scan = ("scan", str(model), str(tmp_path / "texts.txt"), "-o", str(tmp_path / "out"), "--quiet")
    with inside():
        counted = ask(*scan, *asked).json
    metrics = load_metrics(file)
    assert [metric.name for metric in metrics] == ["own.thirds", "own.middle", "own.marked"]
    assert (metrics[0].formula, metrics[1].formula) == (
        "mean Σ_j A, j = 0, 3, 6, …",
        "middle(rows)",
    )
    for trace in exact.trace(tokens, keep=("weights",)):
        weights = np.asarray(trace.stages["weights"])
        direct = measure(weights, np.tri(len(tokens), dtype=bool), metrics=metrics, special=special)
        for head, table in enumerate(weights):
            expected = oracle(table, special)
            place = trace.layer * len(weights) + head
            for name, value in expected.items():
                assert told["heads"][place]["metrics"][name]["value"] == pytest.approx(
                    value, abs=1e-12
                )
                assert direct[name].value[head] == pytest.approx(value, abs=1e-12)
                assert counted["heads"][place]["metrics"][name]["mean_texts"] == pytest.approx(
                    value, abs=1e-5
                )
    even = oracle(np.tri(len(tokens)) / np.arange(1, len(tokens) + 1)[:, None], special)
    for name, value in even.items():
        assert told["heads"][0]["baseline"][name]["value"] == pytest.approx(value, abs=1e-12)
        assert counted["heads"][0]["metrics"][name]["baseline"] == pytest.approx(value, abs=1e-5)
    assert counted["heads"][0]["metrics"]["own.middle"]["rows"] == len(tokens) - 1


def test_long_texts_in_blocks_of_rows_have_the_same_numbers(file: Path) -> None:
    metrics = load_metrics(file)
    drawn = np.random.default_rng(2)
    weights = np.tril(drawn.random((1, 1200, 1200)))
    weights /= weights.sum(-1, keepdims=True)
    special = [place % 7 == 0 for place in range(1200)]
    results = measure(weights, np.tri(1200, dtype=bool), metrics=metrics, special=special)
    for name, value in oracle(weights[0], special).items():
        assert results[name].value[0] == pytest.approx(value, rel=1e-9)


@pytest.mark.thorough
def test_a_scan_knows_the_file_by_its_bytes(model: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\nw1 w2 w3\n")
    out = str(tmp_path / "out")
    scan = ("scan", str(model), str(tmp_path / "texts.txt"), "-o", out, "--quiet", "--workers", "1")
    with inside():
        assert ask(*scan, "--metric-file", str(file)).code == 0
        moved = tmp_path / "elsewhere" / "own.py"
        moved.parent.mkdir()
        file.rename(moved)
        assert ask(*scan, "--metric-file", str(moved)).code == 0
        refused = ask(*scan)
        assert (refused.code, "own.thirds" in refused.err) == (2, True), refused.err
        moved.write_text(SOURCE.replace("::3", "::2"))
        refused = ask(*scan, "--metric-file", str(moved))
        assert (refused.code, "this folder holds another scan" in refused.err) == (2, True), (
            refused.err
        )
    FILE_METRICS.clear()
    shown = ask("scan", "show", out, "--head", "L0H0", "--metric", "own.thirds")
    assert (shown.code, "own.thirds" in shown.out) == (0, True)
    refused = ask("scan", "verify", out)
    assert (refused.code, "verifying runs its code" in refused.err) == (2, True), refused.err
    refused = ask("scan", "verify", out, "--metric-file", str(moved))
    assert refused.code == 2
    moved.write_text(SOURCE)
    assert ask("scan", "verify", out, "--metric-file", str(moved)).code == 0


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("def f(rows:\n  return 1", 1, "this is no Python"),
        ("import numpy\nraise KeyError('x')", 2, "KeyError: 'x'"),
        ("import sys\n\nsys.exit(3)", 3, "SystemExit: 3"),
        ("x = 1\n", 0, "this file has no metric"),
        ("def f(rows):\n    y = 1\n    return rows.nothing\n", 3, "AttributeError"),
        ("def f(rows):\n    return 1.0\n", 1, "gave numbers of shape []"),
        (
            "\ndef f(rows):\n    return rows.weights.sum(-1) + 1\nf.high = 1.5\n",
            2,
            "the metric own.f gave 2",
        ),
        (
            "def f(rows):\n    return rows.weights.sum(-1) * float('nan')\n",
            1,
            "the metric own.f gave nan",
        ),
        (
            "def f(rows):\n    return rows.weights.sum(-1)\nf.low = 'a'\n",
            1,
            "low of the metric own.f is 'a'",
        ),
        (
            "def f(rows):\n    return rows.weights.sum(-1)\nf.low, f.high = 1, 0\n",
            1,
            "the range of the metric own.f",
        ),
        (
            "def f(rows):\n    return rows.weights.sum(-1)\nf.needs = 'luck'\n",
            1,
            "asks for what there is not",
        ),
    ],
)
def test_mistakes_are_told_with_their_line(
    source: str, line: int, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.py"
    path.write_text(source)
    for command in (
        ("heads", "a b", "--num-heads", "2"),
        ("scan", "minilm", str(path), "-o", str(tmp_path / "out")),
    ):
        answer = ask(*command, "--metric-file", str(path))
        assert answer.code == 3, answer
        assert said in " ".join(answer.err.split()), answer.err
        assert (f"{path}:{line}" if line else str(path)) in answer.err.replace("\n", ""), answer.err
    assert not (tmp_path / "out" / "plan.json").exists()


def test_a_failure_on_the_way_is_told(tmp_path: Path) -> None:
    path = tmp_path / "late.py"
    path.write_text(
        "def f(rows):\n    if rows.weights.shape[-1] > 4:\n        raise ValueError('long')\n"
        "    return rows.i + 0 * rows.weights.sum(-1)\n"
    )
    answer = ask("heads", "a b c d e f", "--num-heads", "2", "--metric-file", str(path))
    assert (answer.code, "the metric late.f failed: ValueError: long" in answer.err) == (3, True), (
        answer.err
    )
    assert f"{path}:3" in answer.err.replace("\n", "")


def test_files_with_odd_names(tmp_path: Path) -> None:
    for name, code in (("my-metrics.py", "is no name"), ("none.py", "No such file or directory")):
        path = tmp_path / name
        if code == "is no name":
            path.write_text(SOURCE)
        answer = ask("heads", "a b", "--num-heads", "2", "--metric-file", str(path))
        assert (answer.code, code in answer.err) == (3, True), answer.err
    with pytest.raises(InputError):
        load_metrics(tmp_path)


def test_a_scan_takes_metrics_from_python(model: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\nw1 w2 w3\n")
    metrics = ("entropy", sink, *load_metrics(file))
    counted = attncli.scan_corpus(
        str(model), tmp_path / "texts.txt", tmp_path / "out", metrics=metrics, engine=Inside()
    )
    assert counted is not None
    assert {"entropy", "sink", "own.thirds"} <= set(counted.heads[0].metrics)
    assert (tmp_path / "out" / "plan.json").read_text().count(str(file)) == 1
    of_this_process = replace(sink, name="twice")
    for metric, said in (
        (of_this_process, "without the metric 'twice'"),
        (replace(sink), "of attn's own"),
    ):
        with pytest.raises(UsageError, match=said):
            attncli.scan_corpus(
                str(model),
                tmp_path / "texts.txt",
                tmp_path / "other",
                metrics=(metric,),
                engine=Inside(),
            )
    assert not (tmp_path / "other").exists()
