"""Effects over a corpus: each text's is the one that `attn ablate` finds; they add up as every
other number does.
"""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as parquet
import pytest
from scanning import loaded, planned

import attncli
from attncli.errors import UsageError
from attncli.scan.plan import read_plan
from attncli.scan.report import scan_document
from attncli.scan.totals import total
from attncli.scan.worker import Worker, check_effects

HEADS = ((0, 1), (1, 0))


def scanned(model, corpus, folder, way, shards, **wanted):
    made = planned(model, corpus, folder, effects=check_effects(way, ["L1H0,L0H1"]), **wanted)
    worker = Worker(made, folder, loaded(str(model)))
    for shard in shards if shards is not None else range(len(made.shards)):
        worker.shard(shard)
    return made


@pytest.mark.parametrize(
    ("which", "way"),
    [
        ("encoder", "mean"),
        pytest.param("encoder", "zero", marks=pytest.mark.thorough),
        pytest.param("decoder", "zero", marks=pytest.mark.thorough),
    ],
)
def test_each_text_has_the_effect_that_ablate_finds(which, way, request, lines, tmp_path):
    folder = request.getfixturevalue(which)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:12]))
    made = scanned(folder, corpus, tmp_path / "out", way, None, rows=True, shard=12)
    table = parquet.read_table(tmp_path / "out/shards/000/000000.rows.parquet").to_pylist()
    exact = attncli.load(str(folder), backend="numpy", dtype="float64")
    wanted = {}
    for line, text in enumerate(lines[:12]):
        for one in attncli.ablate(exact, text, by=way, baseline="none").effects:
            wanted[line, one.layer, one.head] = one.vector.cosine
    own = [row for row in table if (row["layer"], row["head"]) in HEADS]
    assert {row["effect"] for row in table if row not in own} == {None}
    assert len(own) == 24
    for row in own:
        assert abs(row["effect"] - wanted[row["line"], row["layer"], row["head"]]) < 2e-6
    document = scan_document(total(made, tmp_path / "out"))
    for head in document.heads:
        if (head.layer, head.head) not in HEADS:
            assert not head.effect
            continue
        texts = [wanted[line, head.layer, head.head] for line in range(12)]
        assert head.effect.texts == 12
        assert abs(head.effect.mean - np.mean(texts)) < 2e-6
        assert head.effect.ci95 is None  # of twelve texts
        assert abs(head.effect.quantiles["50"] - np.median(texts)) <= 0.3 * np.ptp(texts) + 1e-4
        first = next(one for one in head.top if one.metric == "effect")
        assert first.text == lines[int(np.argmax(texts))]
    assert max(wanted[line, *head] for line in range(12) for head in HEADS) > 0.005


def test_effects_add_up_in_any_order_to_one_digest(encoder, lines, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:24]))
    made = scanned(encoder, corpus, tmp_path / "one", "zero", None, shard=8)
    assert len(made.shards) == 3
    scanned(encoder, corpus, tmp_path / "other", "zero", (2, 0), shard=8)
    scanned(encoder, corpus, tmp_path / "other", "zero", (1,), shard=8)
    digests = {total(made, tmp_path / name).digest() for name in ("one", "other")}
    assert len(digests) == 1
    with pytest.raises(
        UsageError, match=r"its measures\.effects\[0\] is 'zero', and 'mean' is asked for"
    ):
        scanned(encoder, corpus, tmp_path / "one", "mean", ())
    assert read_plan(tmp_path / "one").measures.effects == ("zero", "L1H0", "L0H1")


@pytest.mark.parametrize(
    ("way", "heads", "said"), [("zero", [], "--head L5H11"), ("", ["L0H0"], "--effect zero")]
)
def test_a_way_without_heads_and_heads_without_a_way(way, heads, said):
    with pytest.raises(UsageError) as caught:
        check_effects(way, heads)
    assert caught.value.hint == said
    assert check_effects("", []) == ()
