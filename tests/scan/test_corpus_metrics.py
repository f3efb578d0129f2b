"""Metrics that only a scan has, against loops over weights, values and vectors in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from scan.test_atlas import scanned
from scanning import inside

import attncli
from attncli.draw.safe import cells
from attncli.features.heads.compute import HeadsRequest, _measured_heads
from attncli.measure import layer_metrics
from attncli.scan import report

NAMES = ("entropy", "sink_rate", "moved_norm", "massive")


def of_loops(
    model: Path, line: str
) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float], list[int]]:
    """By head: the mean weight on the first token, and the size of what it writes beside the
    layer's mean; of each layer how many numbers are above 1 and twice the median."""
    exact = attncli.load(str(model), backend="numpy", dtype="float64")
    tokens = exact.encode(line)
    rests, moves, massive = {}, {}, []
    for trace in exact.trace(tokens):
        weights, v = (np.asarray(trace.stages[name]) for name in ("weights", "v"))
        w_o = np.asarray(exact.store.layer(exact.backend, trace.layer)("attn.o.weight"))
        heads, count, _ = weights.shape
        dim = v.shape[-1]
        sizes = []
        for head in range(heads):
            values = v[head * len(v) // heads]
            rows = []
            for i in range(count):
                added = np.zeros(len(w_o))
                for j in range(count):
                    added += weights[head, i, j] * (
                        w_o[:, head * dim : (head + 1) * dim] @ values[j]
                    )
                rows.append(sum(number * number for number in added) ** 0.5)
            sizes.append(sum(rows) / count)
            rests[trace.layer, head] = sum(weights[head, i, 0] for i in range(1, count)) / (
                count - 1
            )
        for head in range(heads):
            moves[trace.layer, head] = sizes[head] / (sum(sizes) / heads)
        numbers = sorted(abs(float(number)) for number in np.asarray(trace.after).ravel())
        middle = (numbers[(len(numbers) - 1) // 2] + numbers[len(numbers) // 2]) / 2
        massive.append(sum(number > 1 and number > 2 * middle for number in numbers))
    return rests, moves, massive


@pytest.mark.parametrize("which", ["encoder", "decoder"])
def test_they_are_those_of_loops(
    which: str, request: Any, lines: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(layer_metrics, "LARGE", 1.0)
    monkeypatch.setattr(layer_metrics, "TIMES", 2.0)
    model, few = request.getfixturevalue(which), lines[:12]
    (tmp_path / "corpus.txt").write_text("\n".join(few))
    made, _, document = scanned(model, tmp_path / "corpus.txt", tmp_path / "out", metrics=NAMES)
    assert made.metrics == ("entropy", "sink", "sink_rate", "moved_norm", "massive")
    texts = [of_loops(model, line) for line in few]
    for head in document.heads:
        assert "massive" not in head.metrics
        place = (head.layer, head.head)
        rests = [text[0][place] > 0.3 for text in texts]
        assert head.metrics["sink_rate"].mean_texts == np.mean(rests)
        moved = head.metrics["moved_norm"]
        assert moved.mean_texts == pytest.approx(
            np.mean([text[1][place] for text in texts]), abs=2e-6
        )
        assert moved.baseline is None
        strongest = max(range(len(few)), key=lambda at, place=place: texts[at][1][place])
        assert (
            next(example.line for example in head.top if example.metric == "moved_norm")
            == strongest
        )
    assert document.layers
    for layer in document.layers:
        counts = [text[2][layer.layer] for text in texts]
        assert layer.massive.mean_texts == np.mean(counts)
        assert layer.share == np.mean([count > 0 for count in counts])
        assert [example.value for example in layer.top] == sorted(
            filter(None, counts), reverse=True
        )[:3]
    assert any(layer.massive.mean_texts for layer in document.layers)


WORDY = (
    "Unbelievably, the internationalisation of tokenizers is undone.",
    "a b",
    "Fourscoreandseven years ago (1863)!",
)


@pytest.mark.many
@pytest.mark.parametrize("blocks", [False, True])
def test_kinds_of_tokens_are_those_of_loops(blocks: bool, tmp_path: Path, monkeypatch: Any) -> None:
    """By piece, over words that MiniLM cuts; whole matrices, and by blocks of rows."""
    if blocks:
        monkeypatch.setattr("attncli.measure.batch_measure.LARGEST", 0)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(WORDY))
    made, _, document = scanned(
        Path("minilm"), corpus, tmp_path / "out", metrics=tuple(layer_metrics.KIND_METRICS)
    )
    assert len(made.shards) == 1
    exact = attncli.load("minilm", backend="numpy", dtype="float64")
    sums: dict[tuple[int, int, str], list[tuple[float, float]]] = {}
    for text in WORDY:
        tokens = exact.encode(text)
        count, word, words, starts = len(tokens), -1, [], []
        for at, token in enumerate(tokens):
            # a piece goes on with the word before it where nothing but letters stand on both sides
            # of the border
            goes_on = (
                at > 0
                and not token.special
                and token.start == tokens[at - 1].end
                and not tokens[at - 1].special
            )
            goes_on = goes_on and text[token.start - 1].isalnum() and text[token.start].isalnum()
            word += not goes_on
            words.append(word)
            starts.append(not goes_on and not token.special and token.text not in ",.()!")
        for trace in exact.trace(tokens, keep=("weights",)):
            for head, table in enumerate(np.asarray(trace.stages["weights"])):
                for name in layer_metrics.KIND_METRICS:
                    mask = [
                        [
                            j > 0  # heads rest on the first token
                            and {
                                "word_start": starts[j],
                                "same_word": i != j and words[i] == words[j],
                                "distance_1": abs(i - j) == 1,
                                "distance_2_4": 2 <= abs(i - j) <= 4,
                                "distance_5_16": 5 <= abs(i - j) <= 16,
                                "distance_17": abs(i - j) >= 17,
                            }[name]
                            for j in range(count)
                        ]
                        for i in range(count)
                    ]
                    share = float((table * mask).sum()) / count
                    sums.setdefault((trace.layer, head, name), []).append(
                        (share, float(np.mean(mask)))
                    )
    for head in document.heads:
        total = 0.0
        for name, metric in head.metrics.items():
            told = sums[head.layer, head.head, name]
            assert metric.mean_texts == pytest.approx(
                np.mean([share for share, _ in told]), abs=1e-5
            )
            assert metric.baseline == pytest.approx(
                np.mean([chance for _, chance in told]), abs=1e-6
            )
            total += (metric.mean_texts or 0.0) * name.startswith("distance")
        assert 0 < total < 1
    assert any((head.metrics["same_word"].mean_texts or 0) > 0.1 for head in document.heads)


def test_long_texts_have_them_too(
    decoder: Path, lines: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """By blocks of rows as in one piece."""
    (tmp_path / "corpus.txt").write_text("\n".join(lines[:6]))
    _, _, whole = scanned(decoder, tmp_path / "corpus.txt", tmp_path / "whole", metrics=NAMES)
    monkeypatch.setattr("attncli.measure.batch_measure.LARGEST", 0)
    _, _, blocks = scanned(decoder, tmp_path / "corpus.txt", tmp_path / "blocks", metrics=NAMES)
    for first, second in zip(whole.heads, blocks.heads, strict=True):
        for name in ("sink_rate", "moved_norm"):
            assert first.metrics[name].mean_texts == pytest.approx(
                second.metrics[name].mean_texts, abs=2e-6
            )


def test_a_layer_is_told_once(decoder: Path, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(lines[:6]))
    _, _, document = scanned(decoder, tmp_path / "corpus.txt", tmp_path / "out", metrics=NAMES)
    report.write(document, tmp_path / "out")
    for width in (60, 80, 120):
        for lang, title in (("en", "massive activations"), ("zh", "巨量激活")):
            shown = ask(
                "scan",
                "show",
                str(tmp_path / "out"),
                "--show",
                "layers",
                "--lang",
                lang,
                width=width,
            )
            assert (shown.code, title in shown.out) == (0, True), shown.err
            assert max(map(cells, shown.out.splitlines())) <= width
    refused = ask("scan", "show", str(tmp_path / "out"), "--metric", "massive")
    assert (refused.code, "this scan has no metric 'massive'" in refused.err) == (2, True)
    assert ask("scan", "compare", str(tmp_path / "out"), str(tmp_path / "out")).code == 0


@pytest.mark.parametrize("rows", [None, 3])
def test_heads_take_them_of_one_text(
    rows: int | None, decoder: Path, lines: list[str], monkeypatch: Any
) -> None:
    """As the loops; whole, and by blocks of rows."""
    monkeypatch.setattr(layer_metrics, "LARGE", 1.0)
    monkeypatch.setattr(layer_metrics, "TIMES", 2.0)
    model = attncli.load(str(decoder), backend="numpy", dtype="float64")
    asked = HeadsRequest(
        metrics=(*NAMES, "word_start", "distance_2_4"), maps=False, sort="moved_norm"
    )
    document = _measured_heads(model, lines[0], model.encode(lines[0]), asked, rows=rows)
    rests, moves, massive = of_loops(decoder, lines[0])
    assert len(document.heads) == len(rests)
    for head in document.heads:
        place = (head.layer, head.head)
        assert head.metrics["sink_rate"].value == float(rests[place] > 0.3)
        assert head.metrics["moved_norm"].value == pytest.approx(moves[place], abs=1e-9)
        assert head.sorted_by == head.metrics["moved_norm"].value
        assert 0 < (head.metrics["word_start"].value or 0) <= 1
        assert "massive" not in head.metrics
    assert [layer.massive for layer in document.layers or ()] == massive
    sizes = [head.sorted_by for head in document.heads]
    assert sizes == sorted(sizes, reverse=True)


def test_heads_tell_them(decoder: Path, lines: list[str]) -> None:
    asked = (
        "heads",
        lines[0],
        "--model",
        str(decoder),
        "--metric",
        "moved_norm,sink_rate,massive",
        "--moved",
    )
    for width in (60, 80, 120):
        for lang, title in (("en", "massive activations"), ("zh", "巨量激活")):
            shown = ask(*asked, "--lang", lang, width=width)
            assert (shown.code, title in shown.out) == (0, True), shown.err
            assert max(map(cells, shown.out.splitlines())) <= width
    told = ask(*asked, "--json").json
    assert [row["layer"] for row in told["layers"]] == sorted(
        {head["layer"] for head in told["heads"]}
    )
    refused = ask(*asked, "--sort", "massive")
    assert (refused.code, "massive is a layer's" in refused.err) == (2, True)
    refused = ask("heads", lines[0], "--model", str(decoder), "--metric", "moved_nrm")
    assert (refused.code, "--metric moved_norm" in refused.err) == (2, True)


def test_a_scan_takes_them_by_name(encoder: Path, corpus: Path, tmp_path: Path) -> None:
    with inside():
        counted = ask(
            "scan", str(encoder), str(corpus), "-o", str(tmp_path / "out"), "--metric", "sink_rate,moved_norm",
            "--no-labels", "--json", "--quiet",
        )  # fmt: skip
    assert list(counted.json["heads"][0]["metrics"]) == ["sink", "sink_rate", "moved_norm"]
    refused = ask(
        "scan", str(encoder), str(corpus), "-o", str(tmp_path / "other"), "--metric", "moved_nrm"
    )
    assert (refused.code, "--metric moved_norm" in refused.err) == (2, True), refused.err
