"""Why heads look where they look most, over a corpus: what `attn why` says of each text's link,
added up.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from asking import ask
from scanning import inside, loaded, planned

import attncli
from attncli.mechanism.spec import HeadSelection
from attncli.scan.plan import read_plan
from attncli.scan.report import scan_document
from attncli.scan.totals import total
from attncli.scan.worker import Worker

HEADS = ((1, 0), (0, 1))


def scanned(model: Any, corpus: Any, folder: Any, shards: Any = None, **wanted: Any) -> Any:
    made = planned(model, corpus, folder, why=("L1H0,L0H1",), **wanted)
    worker = Worker(made, folder, loaded(str(model)))
    for shard in shards if shards is not None else range(len(made.shards)):
        worker.shard(shard)
    return made


@pytest.mark.parametrize("which", ["decoder", pytest.param("encoder", marks=pytest.mark.thorough)])
def test_shares_are_the_sums_of_what_why_says(
    which: str, request: Any, lines: Any, tmp_path: Any
) -> None:
    folder, corpus = request.getfixturevalue(which), tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:12]))
    document = scan_document(total(scanned(folder, corpus, tmp_path / "out"), tmp_path / "out"))
    exact = attncli.load(str(folder), backend="numpy", dtype="float64")
    for layer, number in HEADS:
        advantages, sums = [], dict[Any, Any]()
        for line in lines[:12]:
            tokens = exact.encode(line)
            (row,) = attncli.heads(exact, line, layers=[layer], heads=[number]).heads
            if row.top_link is None:
                continue
            selection = HeadSelection(pairs=((layer, number),))
            ends = (f"#{row.top_link.query}", f"#{row.top_link.key}")
            found = attncli.why(exact, line, *ends, heads=selection, tokens=tokens, unknown=True)
            if found.total > 0:
                advantages.append(found.total)
                for part in found.parts:
                    name = (part.kind, part.layer, part.attention, part.head, part.place)
                    sums.setdefault(name, np.zeros(2))
                    sums[name] += [part.query_side, part.key_side]
        (head,) = [head for head in document.heads if (head.layer, head.head) == (layer, number)]
        assert head.why.texts == len(advantages) > 3
        assert head.why.advantage == pytest.approx(np.mean(advantages), rel=1e-4)
        told = {
            (part.kind, part.layer, part.attention, part.head, part.place): part
            for part in head.why.parts
        }
        assert told.keys() == {name for name, both in sums.items() if abs(both).max() > 1e-6}
        for name, part in told.items():
            assert [part.query_share, part.key_share] == pytest.approx(
                sums[name] / sum(advantages), abs=2e-3
            )
            assert part.query_ci95 is None  # of twelve texts
        for side in ("query_share", "key_share"):
            assert sum(getattr(part, side) for part in head.why.parts) == pytest.approx(1, abs=1e-4)
    assert [head.layer for head in document.heads if head.why] == [0, 1]
    assert document.plan.why == ["L1H0", "L0H1"]


@pytest.mark.thorough
def test_they_add_up_in_any_order_to_one_digest(encoder: Any, lines: Any, tmp_path: Any) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:40]))
    made = scanned(encoder, corpus, tmp_path / "one", shard=8)
    scanned(encoder, corpus, tmp_path / "other", shards=reversed(range(len(made.shards))), shard=8)
    documents = [
        scan_document(total(read_plan(tmp_path / name), tmp_path / name))
        for name in ("one", "other")
    ]
    assert documents[0].digest == documents[1].digest
    (head,) = [head for head in documents[0].heads if (head.layer, head.head) == (1, 0)]
    assert head.why.texts >= 30
    for part in head.why.parts:
        low, high = part.query_ci95
        assert low <= part.query_share <= high


@pytest.mark.thorough
def test_long_texts_are_read_by_rows(
    decoder: Any, lines: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    """Block by block it is the same link, and no table of all pairs is kept."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:6]))
    whole = total(scanned(decoder, corpus, tmp_path / "whole"), tmp_path / "whole")
    monkeypatch.setattr("attncli.scan.why_shares.rows_for", lambda spec, count: 2)
    model, largest = loaded(str(decoder)), 0
    trace = type(model).trace

    def told(self: Any, tokens: Any, **options: Any) -> Any:
        nonlocal largest
        for layer in trace(self, tokens, **options):
            largest = max(largest, *(stage.shape[-2] * stage.shape[-1] for name, stage in layer.stages.items()
                                     if name in ("weights", "masked")), 0)  # fmt: skip
            yield layer

    monkeypatch.setattr(type(model), "trace", told)
    blocks = total(scanned(decoder, corpus, tmp_path / "blocks"), tmp_path / "blocks")
    assert (
        blocks.count_total("why_texts").tolist() == whole.count_total("why_texts").tolist() > [0, 0]
    )
    assert blocks.float_total("why_value").tolist() == whole.float_total("why_value").tolist()
    assert largest == 0


def test_the_screen_tells_them(encoder: Any, lines: Any, tmp_path: Any) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:8]))
    line = (
        "scan",
        str(encoder),
        str(corpus),
        "-o",
        str(tmp_path / "out"),
        "--why",
        "L1H0",
        "--no-labels",
        "--quiet",
    )
    with inside():
        answer = ask(*line)
    assert answer.code == 0, answer.err
    assert "why layer 1 head 0 looks where it looks most" in answer.out
    assert "what answers" in answer.out
    assert (
        "什么" in ask("scan", "show", str(tmp_path / "out"), "--head", "L1H0", "--lang", "zh").out
    )
    other = ask("scan", "show", str(tmp_path / "out"), "--head", "L0H0").out
    assert "why layer" not in other
    assert "looks most" not in other
    close = ask(
        "scan",
        "show",
        str(tmp_path / "out"),
        "--head",
        "L1H0",
        "--html",
        str(tmp_path / "scan.html"),
    )
    assert "Where layer 1 head 0 looks most, " in " ".join(close.out.split())
    document = ask("scan", "show", str(tmp_path / "out"), "--json").json
    (head,) = [head for head in document["heads"] if "why" in head]
    (data,) = re.findall(
        '<script type="application/json" id="meta">(.*?)</script>',
        (tmp_path / "scan.html").read_text("utf-8"),
    )
    whole = [head["y"] for head in json.loads(data)["heads"]]
    assert [why is not None for why in whole] == ["why" in head for head in document["heads"]]
    (told,) = [why for why in whole if why]
    for side, name in zip(told["sides"], ("query_share", "key_share"), strict=True):
        first = max(head["why"]["parts"], key=lambda part: abs(part[name]))
        assert side[0][1] == pytest.approx(first[name], abs=6e-5)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--why", "L9H0"), 2, "there is no head L9H0"),
        (("--why", "it"), 2, "L5H11"),
        (("--why", "L0H0", "--words"), 2, "one of them"),
    ],
)
def test_heads_that_cannot_be_explained(
    encoder: Any, lines: Any, tmp_path: Any, options: tuple[str, ...], code: int, said: str
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines[:2]))
    with inside():
        answer = ask(
            "scan", str(encoder), str(corpus), "-o", str(tmp_path / "out"), "--quiet", *options
        )
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert "Traceback" not in answer.err
