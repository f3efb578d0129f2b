"""Of each `--find` in how many texts a head has such a link, counted by loops over the weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
from asking import ask
from msgspec import UNSET
from scan.test_open_scan import scanned
from scanning import loaded, planned

import attncli
from attncli.mechanism.spec import head_label
from attncli.scan import plan, report, shard_files
from attncli.scan.totals import total
from attncli.scan.worker import Worker

CONDITIONS = ("from=w1 to=w2 weight>=0.12", "to=w3 weight>=0.2 head=L0H1,L1H0", "from=nowhere")
MORE = ("from=w2 weight>=0.15", "from=w1 to=w2 weight>=0.12 rest=yes", "from=w2 rest=yes")


def looped(model, corpus, first, last, least, rest=False):
    """By head, (texts with such a link, texts that could have one, sum of the largest). Links to
    the first token and to special ones count with `rest` alone."""
    counts: dict[tuple[int, int], list[float]] = {}
    for line in corpus.read_text().splitlines():
        run = attncli.run(loaded(str(model)), line)
        texts = [token.text for token in run.tokens]
        resting = {0} | {token.index for token in run.tokens if token.special}
        for layer in run.layers:
            for head in layer.heads:
                weights = np.array(head.weights)
                own = counts.setdefault((layer.layer, head.head), [0, 0, 0.0])
                pairs = [
                    (weights[i, j], np.array(head.scores, float)[i, j])
                    for i, query in enumerate(texts)
                    for j, key in enumerate(texts)
                    if (first is None or query == first)
                    and (last is None or key == last)
                    and (rest or j not in resting)
                ]
                own[1] += any(np.isfinite(score) for _, score in pairs)
                strong = [weight for weight, _ in pairs if weight >= least and weight > 0]
                own[0] += bool(strong)
                own[2] += max(strong, default=0.0)
    return counts


def test_another_word_behind_rest_is_told_which_there_are():
    with pytest.raises(attncli.AttnError) as error:
        shard_files.parse_condition("from=it rest=maybe")
    assert str(error.value.expected) == "rest=yes or rest=no"
    assert shard_files.parse_condition("from=it rest=yes").rest
    assert not shard_files.parse_condition("from=it rest=no").rest


@pytest.mark.parametrize("kind", [pytest.param("encoder", marks=pytest.mark.thorough), "decoder"])
def test_shares_are_those_of_a_loop(kind, request, corpus, tmp_path):
    model = request.getfixturevalue(kind)
    # in the last line a decoder sees no w2 from w1
    own = [*corpus.read_text().splitlines()[:10], "w2 w9 w1", "w1 w9 w2"]
    corpus.write_text("".join(f"{line}\n" for line in own))
    scanned(model, corpus, tmp_path, find=(*CONDITIONS, *MORE))
    found = attncli.open_scan(tmp_path).document.find
    assert [condition.condition for condition in found] == [*CONDITIONS, *MORE]
    heads = len(attncli.open_scan(tmp_path).document.heads)
    assert [condition.searched for condition in found] == [heads, 2, heads, heads, heads, heads]
    assert [condition.counts_rest for condition in found] == [False] * 4 + [True] * 2
    for condition, (first, last, least, only) in zip(
        found,
        (
            ("w1", "w2", 0.12, None),
            (None, "w3", 0.2, {(0, 1), (1, 0)}),
            ("nowhere", "nowhere", 0.0, None),
            ("w2", None, 0.15, None),
            ("w1", "w2", 0.12, None),
            ("w2", None, 0.0, None),
        ),
        strict=True,
    ):
        counts = looped(model, corpus, first, last, least, rest=condition.counts_rest)
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


def test_one_ranking_over_several_conditions_counts_each_text_once(decoder, corpus, tmp_path):
    own = [*corpus.read_text().splitlines()[:8], "w2 w9 w1", "w1 w9 w2", "w5 w3 w2 w1"]
    corpus.write_text("".join(f"{line}\n" for line in own))
    conditions = ("from=w1 to=w2 weight>=0.12", "to=w3 weight>=0.2 head=L0H1,L1H0")
    scanned(decoder, corpus, tmp_path, find=conditions)
    document = attncli.open_scan(tmp_path).document
    expected: dict[tuple[int, int], list[int]] = {}
    for line in own:
        texts: dict[tuple[int, int], list[bool]] = {}
        (tmp_path / "line.txt").write_text(line)
        for first, last, least, only in (
            ("w1", "w2", 0.12, None),
            (None, "w3", 0.2, {(0, 1), (1, 0)}),
        ):
            counts = looped(decoder, tmp_path / "line.txt", first, last, least)
            for place, (linked, possible, _) in counts.items():
                if only is None or place in only:
                    either = texts.setdefault(place, [False, False])
                    either[0] |= bool(linked)
                    either[1] |= bool(possible)
        for place, either in texts.items():
            sums = expected.setdefault(place, [0, 0])
            sums[0] += either[0]
            sums[1] += either[1]
    rows = document.find_together.heads
    assert {(row.layer, row.head): [row.texts, row.possible] for row in rows} == {
        place: sums for place, sums in expected.items() if sums[0]
    }
    assert any(row.texts < sum(c.texts for d in document.find for c in d.heads
        if (c.layer, c.head) == (row.layer, row.head)) for row in rows)  # fmt: skip
    shares = [row.share for row in rows]
    assert shares == sorted(shares, reverse=True)
    for row in rows:
        of_each = [
            next((r.share for r in d.heads if (r.layer, r.head) == (row.layer, row.head)), None)
            for d in document.find
        ]
        assert [share or None for share in row.shares] == of_each
    answer = ask("scan", "show", str(tmp_path), "--show", "find").out
    assert "heads over all 2 conditions together" in answer
    assert "w1 → w2" in answer
    assert "was chosen out of" in answer
    table = ask("scan", "show", str(tmp_path), "--show", "find", "--csv", "-").out
    assert table.count("\n,") + table.count('\n"",') == len(rows)
    place = f"L{rows[0].layer}H{rows[0].head}"
    shown = json.loads(ask("scan", "show", str(tmp_path), "--head", place, "--json").out)
    assert len(shown["find_together"]["heads"]) == 1
    made = total(attncli.open_scan(tmp_path).plan, tmp_path)
    made.uncounted_together.append(0)
    assert not report.scan_document(made).find_together


def test_links_without_pyarrow_are_lines_that_all_read(decoder, corpus, tmp_path, monkeypatch):
    corpus.write_text("".join(f"{line}\n" for line in corpus.read_text().splitlines()[:8]))
    scanned(decoder, corpus, tmp_path / "with", find=CONDITIONS[:1])
    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "find_spec", lambda name: None)
        scanned(decoder, corpus, tmp_path / "without", find=CONDITIONS[:1])
    assert list((tmp_path / "without").glob("shards/*/*.links.jsonl"))
    assert not list((tmp_path / "without").glob("shards/*/*.parquet"))
    tables = [attncli.open_scan(tmp_path / name).links() for name in ("with", "without")]
    assert tables[0].num_rows > 0
    assert tables[0].equals(tables[1])
    for name in ("with", "without"):
        file = tmp_path / f"{name}.csv"
        told = ask("scan", "export", str(tmp_path / name), str(file), "--table", "links")
        assert told.code == 0, told.err
    lines = [(tmp_path / f"{name}.csv").read_text().splitlines() for name in ("with", "without")]
    assert lines[0][0] == lines[1][0]
    assert [line.rpartition(",")[0] for line in lines[0]] == [
        line.rpartition(",")[0] for line in lines[1]
    ]


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
    assert "from=nowhere: no text has a query and a key with these tokens" in said
    table = said.partition("heads with links from=nowhere")[2]
    assert table.strip().startswith("no text has a query and a key with these tokens")
    place = f"L{first.layer}H{first.head}"
    shown = ask("scan", "show", str(tmp_path), "--head", place, "--json")
    document = json.loads(shown.out)
    assert [len(condition["heads"]) for condition in document["find"]][::2] == [1, 0]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_key_that_is_the_first_token_is_told_and_ties_and_texts_left_out(
    lang, decoder, corpus, tmp_path
):
    corpus.write_text("w1 w9 w2\nw1 w5 w2\nw7 w1 w9 w2\nw3 w4 w5\nw5 w1\n")
    conditions = (
        "from=w2 to=w1 weight>=0.001",
        "from=w9 to=w7 weight>=0.001",
        "from=w2 weight>=0.001 rest=yes",
    )
    scanned(decoder, corpus, tmp_path, find=conditions)
    document = attncli.open_scan(tmp_path).document
    first, second, third = document.find
    assert [first.first_keys, second.first_keys, third.first_keys] == [2, 1, UNSET]
    # of three texts with both words two begin with the key: one is left
    assert (first.possible, second.possible, second.heads, third.possible) == (1, 0, [], 3)
    table = " ".join(
        ask("scan", "show", str(tmp_path), "--show", "find", "--lang", lang).out.split()
    )
    told = " ".join(ask("scan", "show", str(tmp_path), "--lang", lang).out.split())
    together = document.find_together.heads
    equal = sum(row.share == together[0].share for row in together)
    words = {
        "en": (
            "from=w2 to=w1 weight>=0.001: in 2 texts the key is the first token, where heads rest",
            f"{equal} heads share the first place",
            "2 of the 5 texts do not count",
        ),
        "zh": (
            "from=w2 to=w1 weight>=0.001：在 2 段文本中，键是第一个词元",
            f"{equal} 个头并列居首",
            "5 段文本中有 2 段不计",
        ),
    }
    for sentence in words[lang]:
        assert sentence.replace(" ", "") in told.replace(" ", "")
    in_table = {
        "en": (
            "in 2 texts the key is the first token, where heads rest: links to it do not count",
            "4 of 5 texts do not count",
            "2 of 5 texts do not count",
            f"{equal} heads have the largest share",
            "every key counts, those where heads rest, too",
        ),
        "zh": (
            "在 2 段文本中，键是第一个词元",
            "5 段文本中有 4 段不计",
            f"比例最大的有 {equal} 个头",
        ),
    }
    for sentence in in_table[lang]:
        assert sentence.replace(" ", "") in table.replace(" ", "")


def test_a_scan_of_an_earlier_version_counts_links_to_the_first_token(decoder, corpus, tmp_path):
    corpus.write_text("w1 w9 w2\nw1 w5 w2\nw7 w1 w9 w2\n")
    made = planned(decoder, corpus, tmp_path, find=("from=w2 to=w1 weight>=0.001",))
    file = tmp_path / plan.NAME
    written = json.loads(file.read_text())
    del written["measures"]["beside_rest"]
    file.write_text(json.dumps(written))
    earlier = plan.read_plan(tmp_path)
    for shard in range(len(made.shards)):
        Worker(earlier, tmp_path, loaded(str(decoder))).shard(shard)
    (condition,) = attncli.open_scan(tmp_path).document.find
    assert (condition.counts_rest, condition.possible, condition.first_keys) == (True, 3, 2)
    said = " ".join(ask("scan", "show", str(tmp_path), "--show", "find").out.split())
    assert "in 2 texts the key is the first token: heads put weight there whatever" in said


@pytest.mark.parametrize(
    ("model", "text", "told"),
    [
        (
            "minilm",
            "from=he to=pharmacologist",
            "to= takes one token, and 'pharmacologist' is 4 tokens of this model: ph, arm, aco, logist",
        ),
        (
            "smollm2",
            "from=Pharmacologist to=he",
            "from= takes one token, and 'Pharmacologist' is 2 tokens of this model: pharmac, ologist",
        ),
        # a whole word; one only with a capital and a blank; a piece within words; a special token
        ("minilm", "from=doctor to=[SEP]", ""),
        ("smollm2", "from=london to=ologist", ""),
        ("minilm", "from=logist", ""),
    ],
)
def test_a_word_of_several_tokens_is_refused_with_its_pieces(model, text, told):
    one = attncli.load(model)
    said = ""
    try:
        shard_files.check_tokens(text, one.tokenizer, one.spec.vocabulary)
    except attncli.AttnError as error:
        said = str(error)
    assert told in said
    assert bool(told) == bool(said), said


def test_a_scan_for_a_word_of_several_tokens_does_not_begin(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("Yesterday the pharmacologist said he was ill.\n")
    asked = ("--find", "from=he to=pharmacologist weight>=0.1", "--workers", "1")
    answer = ask("scan", "start", "minilm", str(corpus), "--out", str(tmp_path / "out"), *asked)
    assert answer.code == 2, answer.err
    assert "is 4 tokens of this model" in answer.err
    assert not (tmp_path / "out" / "plan.json").exists()
