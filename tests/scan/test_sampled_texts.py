"""The heads most like a head: by divergences in loops over all texts of its sample, and by
principal angles.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from scan.test_atlas import scanned

import attncli
from attncli.draw.safe import cells
from attncli.scan import report
from attncli.scan.sampled_texts import NEAREST, alike_heads, sampled_texts


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """The mean over rows of ½KL(p‖m) + ½KL(q‖m), in loops."""
    total = 0.0
    for first, second in zip(p.tolist(), q.tolist(), strict=True):
        for a, b in zip(first, second, strict=True):
            middle = (a + b) / 2
            total += (a * math.log(a / middle) if a else 0.0) / 2 + (
                b * math.log(b / middle) if b else 0.0
            ) / 2
    return total / len(p)


def angles(first: np.ndarray, second: np.ndarray) -> float:
    """The mean squared cosine of the principal angles of two column spaces."""
    cosines = np.linalg.svd(np.linalg.qr(first)[0].T @ np.linalg.qr(second)[0], compute_uv=False)
    return float(np.mean(cosines**2))


@pytest.mark.thorough
def test_they_are_those_of_loops(decoder: Path, corpus: Path, tmp_path: Path) -> None:
    made, _, document = scanned(decoder, corpus, tmp_path / "out")
    exact = attncli.load(str(decoder), backend="numpy", dtype="float64")
    head = document.heads[-1]
    place = (head.layer, head.head)
    texts = sampled_texts(document, head)
    assert len(texts) >= 30
    found = alike_heads(made, exact, [place], texts)[place]
    assert found.texts == len(texts)
    sums: dict[tuple[int, int], float] = {}
    for text in texts:
        every = {
            (trace.layer, number): matrix
            for trace in exact.trace(exact.encode(text), keep=("weights",))
            for number, matrix in enumerate(np.asarray(trace.stages["weights"]))
        }
        for other, matrix in every.items():
            sums[other] = sums.get(other, 0.0) + divergence(every[place], matrix)
    assert sums.pop(place) == 0
    nearest = sorted(sums, key=sums.__getitem__)[:NEAREST]
    assert [(row.layer, row.head) for row in found.by_doing] == nearest
    for row in found.by_doing:
        distance = math.sqrt(sums[row.layer, row.head] / len(texts) / math.log(2))
        assert row.value == pytest.approx(distance, abs=1e-9)
        assert row.ci95 is not None
        assert row.ci95[0] < row.value < row.ci95[1]
    kernels: dict[tuple[int, int], float] = {}
    own: list[np.ndarray] = []
    for layer in (
        head.layer,
        *(number for number in range(made.model.layers) if number != head.layer),
    ):
        weights = exact.store.layer(exact.backend, layer)
        values, w_o = (np.asarray(weights(f"attn.{role}.weight")) for role in ("v", "o"))
        heads, dim = made.model.heads[layer], w_o.shape[1] // made.model.heads[layer]
        shared = heads // (len(values) // dim)
        sides = [
            (
                values[number // shared * dim : (number // shared + 1) * dim].T,
                w_o[:, number * dim : (number + 1) * dim],
            )
            for number in range(heads)
        ]
        if not own:
            own = list(sides[head.head])
        for number, side in enumerate(sides):
            kernels[layer, number] = sum(map(angles, own, side)) / 2
    assert kernels.pop(place) == pytest.approx(1)
    for row in found.by_weights:
        assert row.value == pytest.approx(kernels[row.layer, row.head], abs=1e-9)
    best = sorted(kernels.values(), reverse=True)[:NEAREST]
    assert [row.value for row in found.by_weights] == pytest.approx(best, abs=1e-9)


@pytest.mark.thorough
def test_the_screen_tells_them(encoder: Path, corpus: Path, tmp_path: Path) -> None:
    _, _, document = scanned(encoder, corpus, tmp_path / "out")
    report.write(document, tmp_path / "out")
    asked = ("scan", "show", str(tmp_path / "out"), "--head", "L1H2", "--alike", "--show", "alike")
    for width in (60, 80, 120):
        for lang, title in (("en", "the heads most like L1 H2"), ("zh", "与 L1 H2 最相似的头")):
            shown = ask(*asked, "--lang", lang, width=width)
            assert (shown.code, title in shown.out) == (0, True), shown.err
            assert max(map(cells, shown.out.splitlines())) <= width
    (told,) = ask(*asked[:-2], "--json").json["heads"]
    texts = ask(*asked[:-3], "--json").json["texts"]
    assert (told["layer"], told["head"], told["alike"]["texts"]) == (1, 2, len(texts))
    assert all(f"L{row['layer']} H{row['head']}" in shown.out for row in told["alike"]["by_doing"])
    assert [texts[each["text"]]["text"] for each in told["sample"]] == [
        document.texts[each.text].text
        for head in document.heads[:]
        if (head.layer, head.head) == (1, 2)
        for each in head.sample
    ]
    refused = ask("scan", "show", str(tmp_path / "out"), "--alike")
    assert (refused.code, "--alike is about one head" in refused.err) == (2, True)
    config = encoder / "config.json"
    before = config.read_text()
    config.write_text(before + " ")
    try:
        refused = ask(*asked)
        assert (refused.code, "the model of this name is another one now" in refused.err) == (
            3,
            True,
        )
    finally:
        config.write_text(before)


def test_so_many_heads_that_nobody_waits_are_compared_over_fewer_texts(
    encoder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, document = scanned(encoder, corpus, tmp_path / "out")
    model = attncli.load(str(encoder), backend="numpy")
    texts = sampled_texts(document, document.heads[0])
    monkeypatch.setattr("attncli.scan.sampled_texts.STEPS", 10)
    found = alike_heads(made, model, made.heads, texts)
    assert {
        (alike.texts, len(alike.by_doing), len(alike.by_weights)) for alike in found.values()
    } == {(0, 0, 0)}
