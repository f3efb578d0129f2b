"""Of each `--find` in how many texts a head has such a link, counted by loops over the weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
from asking import ask
from scan.test_open_scan import scanned
from scanning import loaded

import attncli
from attncli.mechanism.spec import head_label
from attncli.scan import report
from attncli.scan.totals import total

CONDITIONS = ("from=w1 to=w2 weight>=0.12", "to=w3 weight>=0.2 head=L0H1,L1H0", "from=nowhere")


def looped(model, corpus, first, last, least):
    """By head, (texts with such a link, texts that could have one, sum of the largest)."""
    counts: dict[tuple[int, int], list[float]] = {}
    for line in corpus.read_text().splitlines():
        run = attncli.run(loaded(str(model)), line)
        texts = [token.text for token in run.tokens]
        for layer in run.layers:
            for head in layer.heads:
                weights = np.array(head.weights)
                own = counts.setdefault((layer.layer, head.head), [0, 0, 0.0])
                pairs = [
                    (weights[i, j], np.array(head.scores, float)[i, j])
                    for i, query in enumerate(texts)
                    for j, key in enumerate(texts)
                    if (first is None or query == first) and key == last
                ]
                own[1] += any(np.isfinite(score) for _, score in pairs)
                strong = [weight for weight, _ in pairs if weight >= least and weight > 0]
                own[0] += bool(strong)
                own[2] += max(strong, default=0.0)
    return counts


@pytest.mark.parametrize("kind", [pytest.param("encoder", marks=pytest.mark.thorough), "decoder"])
def test_shares_are_those_of_a_loop(kind, request, corpus, tmp_path):
    model = request.getfixturevalue(kind)
    # in the last line a decoder sees no w2 from w1
    own = [*corpus.read_text().splitlines()[:10], "w2 w9 w1", "w1 w9 w2"]
    corpus.write_text("".join(f"{line}\n" for line in own))
    scanned(model, corpus, tmp_path, find=CONDITIONS)
    found = attncli.open_scan(tmp_path).document.find
    assert [condition.condition for condition in found] == list(CONDITIONS)
    heads = len(attncli.open_scan(tmp_path).document.heads)
    assert [condition.searched for condition in found] == [heads, 2, heads]
    for condition, (first, last, least, only) in zip(
        found,
        (
            ("w1", "w2", 0.12, None),
            (None, "w3", 0.2, {(0, 1), (1, 0)}),
            ("nowhere", "nowhere", 0.0, None),
        ),
        strict=True,
    ):
        counts = looped(model, corpus, first, last, least)
        expected = {
            place: (texts, possible, pytest.approx(largest / texts, abs=1e-5))
            for place, (texts, possible, largest) in counts.items()
            if texts and (only is None or place in only)
        }
        seen = [
            possible for place, (_, possible, _) in counts.items() if only is None or place in only
        ]
        assert condition.possible == max(seen)
        rows = {(row.layer, row.head): row for row in condition.heads}
        assert {
            place: (row.texts, row.possible, row.weight) for place, row in rows.items()
        } == expected
        shares = [row.share for row in condition.heads]
        assert shares == sorted(shares, reverse=True)
        for row in condition.heads:
            assert row.share == row.texts / row.possible
            assert row.share_ci95[0] <= row.share <= row.share_ci95[1]


def test_an_earlier_shard_that_counts_none_leaves_the_table_out(encoder, corpus, tmp_path):
    made = scanned(encoder, corpus, tmp_path, find=CONDITIONS[:1])
    totals = total(made, tmp_path)
    assert report.scan_document(totals).find
    totals.uncounted.append(0)
    assert not report.scan_document(totals).find


def test_the_screen_ranks_heads_and_names_the_first(encoder, corpus, tmp_path):
    scanned(encoder, corpus, tmp_path, find=CONDITIONS)
    answer = ask("scan", "show", str(tmp_path), "--show", "find,answer", "--top", "3")
    assert answer.code == 0
    said = " ".join(answer.out.split())
    first = attncli.open_scan(tmp_path).document.find[0].heads[0]
    assert f"heads with links {CONDITIONS[0]}" in said
    assert f"{head_label(first.layer, first.head)} has a link {CONDITIONS[0]} in" in said
    assert "from=nowhere: no text has a query and a key with these words" in said
    table = said.partition("heads with links from=nowhere")[2]
    assert table.strip().startswith("no text has a query and a key with these words")
    place = f"L{first.layer}H{first.head}"
    shown = ask("scan", "show", str(tmp_path), "--head", place, "--json")
    document = json.loads(shown.out)
    assert [len(condition["heads"]) for condition in document["find"]][::2] == [1, 0]
