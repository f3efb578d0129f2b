"""Heads as rules over a corpus: numbers against one process that holds every text, bounded rows, and
what is told of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from msgspec.structs import replace as replace_texts
from scanning import Inside, inside, loaded, planned

import attncli
from attncli.features.rules.attention_rows import HeadKinds, PatternBlock, head_places, observe
from attncli.features.rules.overlap import OverlapSums
from attncli.features.rules.rule_file import load_rules, usable_rules
from attncli.features.rules.rule_fit import ChoiceRows, RuleSums
from attncli.scan import rule_rows
from attncli.scan.document import ScanRules, ScanRuleTexts
from attncli.scan.engines import run
from attncli.scan.intake import text_hash
from attncli.scan.plan import plan_rule_files, planned_rules
from attncli.scan.report import scan_document
from attncli.scan.rule_report import rule_warnings
from attncli.scan.rule_rows import (
    ROW,
    VISIBLE,
    KeptRows,
    RuleTables,
    ShardText,
    part_of,
    rows_under,
)
from attncli.scan.shard_files import load_state, save_state
from attncli.scan.statistics import UNIT

OWN_RULES = """
def third(text):
    '''j = 2'''
    return text.j == 2

third.says = "the third token"
"""


def scanned(model: Path, corpus: Path, folder: Path, **wanted: object) -> Any:
    """The document of a scan with rules in this process."""
    made = planned(model, corpus, folder, rules=True, **wanted)
    return scan_document(run(made, folder, str(model), Inside()).totals)


class Whole:
    """What `HalfRecord` keeps, of all rows: sums of a half, and every row that chooses."""

    def __init__(self, places: Any, rules: int, chooses: list[bool]) -> None:
        self.sums = RuleSums(places, rules)
        self.places = places
        self.chooses = chooses
        self.rows: dict[int, list[Any]] = {head: [] for head in range(places.count)}

    def add(self, block: PatternBlock) -> None:
        part = int(self.chooses[block.text])
        self.sums.add(block, part)
        for head in range(block.heads.start, block.heads.stop) if part else ():
            for row in np.flatnonzero(block.with_choice):
                seen = block.visible[row]
                own = block.weights[head - block.heads.start, row, seen]
                self.rows[head].append((own, block.rules[:, row, seen]))

    def choose(self) -> Any:
        samples = [
            ChoiceRows(
                np.concatenate([own for own, _ in rows]).astype(np.float32),
                np.concatenate([said for _, said in rows], 1).astype(np.float32),
                np.concatenate([np.full(own.size, 1 / len(rows)) for own, _ in rows]),
            )
            for rows in self.rows.values()
        ]
        return self.sums.choose(samples)[0]


@pytest.mark.parametrize("kind", [pytest.param("decoder", marks=pytest.mark.thorough), "encoder"])
def test_a_scan_gives_what_one_process_gives(
    kind: str, request: pytest.FixtureRequest, corpus: Path, lines: list[str], tmp_path: Path
) -> None:
    folder = request.getfixturevalue(kind)
    told = scanned(folder, corpus, tmp_path / "out").rules
    model = loaded(str(folder))
    places = head_places(model)
    rules = usable_rules(places, [])
    names = [rule.name for rule in rules]
    halves: tuple[list[Any], list[Any]] = ([], [])
    chooses: tuple[list[bool], list[bool]] = ([], [])
    for line in lines:
        part = part_of(text_hash(line))
        halves[part.half].append(model.encode(line))
        chooses[part.half].append(part.chooses)
    first, second = (Whole(places, len(rules), of_half) for of_half in chooses)
    observe(model, halves[0], rules, places, first.add)
    mixtures = first.choose()
    overlaps = OverlapSums(
        places, mixtures, first.sums.profile(), names.index("first"), names.index("even")
    )

    def measure(block: PatternBlock) -> None:
        overlaps.add(block)
        second.add(block)

    observe(model, halves[1], rules, places, measure)
    expected = overlaps.overlaps()
    assert [rule.name for rule in told.rules] == names
    for place, head in enumerate(told.heads):
        weights = {part.rule: part.weight for part in head.parts}
        assert [weights.get(name, 0.0) for name in names] == pytest.approx(
            mixtures[place], abs=1e-6
        )
        own = (head.overlap, head.overlap_first, head.overlap_even, head.overlap_distance)
        assert own == pytest.approx(expected[:, place], abs=1e-6)
    others = second.choose()
    assert told.stability.weights == pytest.approx(
        np.minimum(mixtures, others).sum(-1).mean(), abs=1e-6
    )
    texts = told.texts
    assert (texts.fitted + texts.choosing, texts.measured) == (len(halves[0]), len(halves[1]))
    assert texts.measured_rows == sum(len(text) - (kind == "decoder") for text in halves[1])


@pytest.mark.thorough
def test_rows_are_bounded_whatever_the_corpus(
    decoder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_rows, "PAIRS", 200)
    told = scanned(decoder, corpus, tmp_path / "out")
    pairs = [
        load_state(tmp_path / "out", shard).arrays[f"rule_table_{half}"].shape[1]
        for shard in range(10)
        for half in (0, 1)
    ]
    # of some 4,000 pairs of either half about as many as may be kept
    assert max(sum(pairs[::2]), sum(pairs[1::2])) < 400
    assert 10 < told.rules.texts.measured_rows < 120
    assert all(head.parts for head in told.rules.heads)
    # the same rows in shards of another size, where the budget is that of the whole
    monkeypatch.setattr(rule_rows, "PAIRS", 2**15)
    whole = [
        scanned(decoder, corpus, tmp_path / str(shard), shard=shard).rules for shard in (5, 60)
    ]
    assert [head.overlap for head in whole[0].heads] == pytest.approx(
        [head.overlap for head in whole[1].heads], abs=1e-6
    )


def test_too_few_texts_have_no_rules_and_are_said_to(decoder: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "few.txt"
    corpus.write_text("w1 w2 w3\n")
    with inside():
        answer = ask(
            "scan", str(decoder), str(corpus), "-o", str(tmp_path / "out"), "--quiet", "--rules"
        )
    assert answer.code == 0
    assert "too few texts for rules" in answer.out
    shown = ask("scan", "show", str(tmp_path / "out"), "--lang", "zh").out
    assert "规则" in shown


@pytest.mark.thorough
def test_a_scan_tells_of_rules_everywhere(decoder: Path, corpus: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN_RULES)
    out = str(tmp_path / "out")
    begin = ("scan", str(decoder), str(corpus), "-o", out, "--quiet")
    asked = ("--rules", "--rule-file", str(own))
    with inside():
        answer = ask(*begin, *asked)
        assert ask(*begin, *asked).out == answer.out  # what is done is not done again
        refused = ask(*begin, "--rules")
        python = attncli.scan_corpus(
            str(decoder), corpus, tmp_path / "python", rules=True, rule_files=[own]
        )
    assert answer.code == 0
    assert (refused.code, "holds another scan" in refused.err) == (2, True)
    document = ask("scan", "show", out, "--json").json
    own_rule = document["rules"]["rules"][-1]
    assert 0 < own_rule.pop("found_share") <= 1
    assert own_rule == {
        "name": "own.third",
        "formula": "j = 2",
        "sentence": "the third token",
    }
    assert len(document["rules"]["heads"]) == len(document["heads"])
    assert python.rules.overlap.rules == document["rules"]["overlap"]["rules"]
    one = ask("scan", "show", out, "--head", "L1H1", "--json").json["rules"]["heads"]
    assert [(head["layer"], head["head"]) for head in one] == [(1, 1)]
    rows = [line.split("\t") for line in ask("scan", "show", out, "--plain").out.splitlines()]
    overlaps = [float(row[6]) for row in rows if row[2] == "rule_overlap"]
    assert overlaps == [head["overlap"] for head in document["rules"]["heads"]]
    # nothing of a scan's folder is run that nobody named
    own.unlink()
    assert ask("scan", "show", out).code == 0
    verified = ask("scan", "verify", out)
    assert (verified.code, "--rule-file FILE" in verified.err) == (2, True)
    own.write_text(OWN_RULES)
    assert ask("scan", "verify", out, "--rule-file", str(own)).code == 0
    own.write_text(OWN_RULES + "\n")
    assert ask("scan", "verify", out, "--rule-file", str(own)).code == 2


def test_options_that_do_not_go_together_are_refused(decoder: Path, corpus: Path) -> None:
    begin = ("scan", str(decoder), str(corpus), "-o", str(corpus.parent / "out"))
    assert ask(*begin, "--rules", "--words").code == 2
    assert ask(*begin, "--rule-file", "own.py").code == 2


@pytest.mark.thorough
def test_a_damaged_table_is_computed_again(decoder: Path, corpus: Path, tmp_path: Path) -> None:
    told = scanned(decoder, corpus, tmp_path / "out")
    state = load_state(tmp_path / "out", 3)
    arrays = {**state.arrays, "rule_table_0": state.arrays["rule_table_0"][:-1]}
    save_state(tmp_path / "out", 3, replace(state, arrays=arrays), "1")
    again = scanned(decoder, corpus, tmp_path / "out")
    assert again.digest == told.digest
    assert [head.overlap for head in again.rules.heads] == [
        head.overlap for head in told.rules.heads
    ]


@pytest.mark.thorough
def test_a_sample_of_rows_leans_to_no_shard(
    decoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(5)
    corpus = tmp_path / "corpus.txt"
    lengths = [3] * 120 + [24] * 120
    corpus.write_text(
        "".join(
            " ".join(drawn.choices([f"w{number}" for number in range(50)], k=length)) + "\n"
            for length in lengths
        )
    )
    every = scanned(decoder, corpus, tmp_path / "every", shard=30).rules
    monkeypatch.setattr(rule_rows, "PAIRS", 8_000)
    sampled = scanned(decoder, corpus, tmp_path / "sampled", shard=30).rules
    assert sampled.texts.measured_rows < every.texts.measured_rows / 2
    gaps = [
        few.overlap_first - all_rows.overlap_first
        for few, all_rows in zip(sampled.heads, every.heads, strict=True)
    ]
    # in the rows of 3 tokens heads overlap with the first token by a third more
    assert abs(np.mean(gaps)) < 0.02


def test_a_row_kept_counts_for_as_many_as_it_stands_for() -> None:
    def shard(rows: list[int], stand_for: int) -> dict[str, np.ndarray]:
        lines = np.zeros((VISIBLE + 1 + 1 + 1, len(rows)), np.int64)
        lines[ROW] = rows
        lines[VISIBLE] = 1
        lines[-1] = UNIT // 2
        counts = np.array([stand_for * UNIT, UNIT])
        return {"rule_table_0": lines, "rule_table_1": lines[:, :0], "rule_counts": counts}

    tables = RuleTables()
    tables.add_shard(0, shard([0, 0, 1, 1], 1))
    tables.add_shard(1, shard([7, 7, 7], 6))
    kept = tables.table(0, VISIBLE + 3)
    pairs = rows_under(kept, HeadKinds((0,), (0, 1), (0,)), 1, 0, kept.lines[VISIBLE] > 0)
    assert pairs.count == 3
    assert pairs.shares == pytest.approx([1 / 8] * 4 + [6 / 8] * 3)
    assert b"".join(tables.state()) != b""
    assert list(RuleTables().state()) == []


def test_a_mean_over_kept_rows_is_that_of_all_rows_in_expectation(decoder: Path) -> None:
    """Many shards, in each short texts and one long: over the draws, what rows kept count for adds up
    to all rows, and the mean of a value that depends on a row's length to that of all rows."""
    places = head_places(loaded(str(decoder)))
    generator = np.random.default_rng(2)
    shards = 300
    kept_sum = kept_count = all_sum = all_count = pairs = 0.0
    for _ in range(shards):
        lengths = [*generator.integers(5, 30, 12).tolist(), 400]
        texts = [
            ShardText((0, place), int(own), int(own), tokens)
            for place, (own, tokens) in enumerate(
                zip(generator.integers(0, 2**63, 13), lengths, strict=True)
            )
        ]
        rows = KeptRows([], places, texts, 8 / shards)
        sizes = np.array(
            [keys.size for kept in rows._kept.values() for _, _, keys in kept.values()], float
        )
        pairs += rows.table().shape[1]
        kept_count += sizes.size / rows.chance
        kept_sum += (1 / sizes).sum() / rows.chance
        every = np.concatenate([np.arange(2, tokens + 1) for tokens in lengths])
        all_count += every.size
        all_sum += (1 / every).sum()
    assert 0.8 * 2**18 < pairs < 1.2 * 2**18
    assert kept_count == pytest.approx(all_count, rel=0.15)
    assert kept_sum / kept_count == pytest.approx(all_sum / all_count, rel=0.15)
    assert KeptRows([], places, texts, 1.0).chance < 1
    assert KeptRows([], places, texts[:3], 1.0).chance == 1.0


def test_texts_without_rows_are_told_apart_from_too_few() -> None:
    texts = ScanRuleTexts(fitted=3, choosing=3, measured=3, chosen_rows=0, measured_rows=0)
    told = rule_warnings(ScanRules(texts=texts, rules=[], heads=[]))
    assert told == ["no head has rules: no row was kept whose query sees two tokens or more"]
    few = rule_warnings(ScanRules(texts=replace_texts(texts, choosing=0), rules=[], heads=[]))
    assert "too few texts for rules: 3 to fit to, 0 to choose by" in str(few[0])


def test_a_changed_file_is_refused_before_it_is_run(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN_RULES)
    files = plan_rule_files(load_rules([own]))
    assert [rule.name for rule in planned_rules(files)] == ["own.third"]
    own.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{OWN_RULES}")
    with pytest.raises(attncli.AttnError, match="another one than the scan began with"):
        planned_rules(files)
    assert not (tmp_path / "ran").exists()
