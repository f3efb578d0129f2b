"""`attn scan` on the command line: the first run, the second, looking, comparing, and what is
refused.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from asking import ask
from scan.conftest import with_tokenizer
from scanning import Inside, inside
from tiny_checkpoints import CASES, make

from attncli.scan.command import _Counter
from attncli.scan.engines import Job
from attncli.scan.intake import ShardSizes
from attncli.scan.plan import read_plan
from attncli.scan.shard_files import ShardOutcome, ShardState, load_state, save_state

LINES = "w1 w2 w3 w1 w2\nw4 w5 w6 , w7 w4\n\nw8 w9 w1 w2 .\nw3 w3 w4 w1 w0 w2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scan")
    with_tokenizer(make(CASES["bert"], made / "model"), special=True)
    (made / "corpus.txt").write_text(LINES)
    (made / "reversed.txt").write_text("\n".join(LINES.split("\n")[::-1]))
    return made


@pytest.fixture(scope="module")
def scanned(folder: Path) -> Path:
    answer = ask(
        "scan",
        str(folder / "model"),
        str(folder / "corpus.txt"),
        "-o",
        str(folder / "out"),
        "--workers",
        "1",
    )
    assert (answer.code, answer.err) == (0, "")
    assert "scan of 4 texts" in answer.out
    assert "1 empty" in answer.out
    assert "heads earns a label over 4 texts" in " ".join(answer.out.split())
    return folder / "out"


@pytest.mark.thorough
def test_the_same_command_again_goes_on_and_says_the_same(folder, scanned):
    before = (scanned / "scan.json").read_bytes()
    asked = ("scan", str(folder / "model"), str(folder / "corpus.txt"), "-o", str(scanned))
    document = ask(*asked, "--json").json
    assert document["schema"] == "attn.scan/1"
    assert document["done"]["shards"] == [1, 1]
    assert document["done"]["skipped"]["empty"] == 1
    assert len(document["heads"]) == 6
    assert (scanned / "scan.json").read_bytes() == before
    other = ask(*asked, "--max-tokens", "9")
    assert other.code == 2
    assert "choice.max_tokens is 0, and 9 is asked for" in other.err
    other = ask(*asked, "--metric", "sink,band", "--no-labels")
    said = (
        "its measures.metrics is 27 entries with entropy, confidence, distance …, and 2 entries "
        "with band is asked for"
    )
    assert (other.code, said in " ".join(other.err.split())) == (2, True), other.err


def test_showing_and_comparing(folder, scanned):
    shown = ask("scan", "show", str(scanned), "--head", "L1H2", "--metric", "sink")
    assert shown.code == 0
    assert "metrics of L1 H2" in shown.out
    assert "itself with the row of that" in " ".join(shown.out.split())
    assert "w4 w5 w6 , w7 w4" in shown.out
    assert "Layer 1 head 2 earns" in "\n".join(shown.out.splitlines()[-6:])
    assert "undecided" in ask("scan", "show", str(scanned), "--show", "labels").out
    document = json.loads((scanned / "scan.json").read_text())
    earned = next(
        head["labels"] for head in document["heads"] if any(one["earned"] for one in head["labels"])
    )
    for head in document["heads"]:
        head["labels"] = earned
    (folder / "labelled.json").write_text(json.dumps(document))
    most = ask("view", str(folder / "labelled.json"), "--show", "labels", "--top", "2").out
    assert sum(line.startswith("L") for line in most.splitlines()) == 2
    rows = ask("scan", "show", str(scanned), "--plain").out.splitlines()
    assert rows[0].split("\t")[:3] == ["layer", "head", "metric"]
    other = folder / "other"
    asked = (
        "scan",
        str(folder / "model"),
        str(folder / "reversed.txt"),
        "-o",
        str(other),
        "--workers",
        "1",
        "--quiet",
    )
    with inside():
        assert ask(*asked).code == 0
    compared = ask("scan", "compare", str(scanned), str(other), "--json").json
    assert compared["texts"] == [4, 4]
    assert max(abs(row["difference"]) for row in compared["differences"]) < 1e-5
    assert "0 of" in ask("scan", "compare", str(scanned), str(other)).out
    viewed = ask("view", str(scanned / "scan.json"))
    assert viewed.code == 0
    assert "scan of 4 texts" in viewed.out
    assert ask("scan", "verify", str(scanned), "--json").json["passed"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("nowhere.txt",), 3, "there is no corpus 'nowhere.txt'"),
        (("{corpus}", "--format", "xml"), 2, "there is no corpus format 'xml'"),
        (("{corpus}", "--metric", "nonsense"), 2, "there is no metric 'nonsense'"),
        (("{corpus}", "--part", "3/2"), 2, "--part is '3/2'"),
        (("{corpus}", "--engine", "spark"), 2, "there is no engine 'spark'"),
        (("{corpus}", "--over", "cut"), 2, "--over is 'cut'"),
        (("{corpus}", "--sample", "-1"), 2, "--sample"),
        (("{corpus}", "--find", "from=it"), 0, ""),
        (("{corpus}", "--find", "from=it to=/a|b/"), 2, "'/a|b/' is a pattern, and to= takes one"),
        (("{corpus}", "--find", "weight>=0.1"), 2, "would keep links of nearly every text"),
        (("{corpus}", "--find", "head=L9H1 weight>=0.9"), 2, "there is no head L9H1"),
        (("{corpus}", "{corpus}"), 2, "is named twice"),
        (("{corpus}", "--cluster", "book"), 2, "lines of text have none"),
        (
            ("{corpus}", "--format", "jsonl:x", "--cluster", "book"),
            3,
            "no record has a field 'book'",
        ),
        (("{corpus}", "--format", "jsonl:x"), 3, "no record of the corpus could be counted"),
    ],
)
def test_what_is_asked_wrongly(folder, tmp_path, arguments, code, told):
    given = [one.replace("{corpus}", str(folder / "corpus.txt")) for one in arguments]
    with inside():
        answer = ask(
            "scan", str(folder / "model"), *given, "-o", str(tmp_path / "out"), "--workers", "1"
        )
    assert (answer.code, told in answer.err) == (code, True), answer.err


def test_a_scan_says_of_labels_what_was_asked(folder, tmp_path):
    asked = (
        "scan",
        str(folder / "model"),
        str(folder / "corpus.txt"),
        "--workers",
        "1",
        "--brief",
        "-o",
    )
    with inside():
        assert ask(*asked, str(tmp_path / "a"), "--no-labels").out == (
            "6 heads are measured over 4 texts; labels were not asked for.\n"
            "4 texts are too few for intervals of means, which take 30.\n"
        )
        assert "no head earns" not in ask("scan", "show", str(tmp_path / "a")).out
        said = " ".join(ask(*asked, str(tmp_path / "b")).out.split())
    assert re.match(
        r"(None of the 6 heads earns|1 of 6 heads earns|[2-6] of 6 heads earn) a label"
        r" over 4 texts; whether they keep it",
        said,
    )


def test_texts_are_called_too_few_only_where_they_are(folder, scanned, tmp_path):
    document = json.loads((scanned / "scan.json").read_text())
    few = "texts are too few for intervals of means, which take 30."
    alike = "No mean has an interval: too few texts, or groups of texts, differ."
    for texts, present, absent in ((29, f"29 {few}", alike), (30, alike, few)):
        document["done"]["texts"] = texts
        (tmp_path / "scan.json").write_text(json.dumps(document))
        said = " ".join(ask("view", str(tmp_path / "scan.json"), "--brief").out.split())
        assert (present in said, absent in said) == (True, False)
    chinese = ask("view", str(tmp_path / "scan.json"), "--brief", "--lang", "zh").out
    assert "没有平均值有区间：有差别的文本（或文本组）太少。" in chinese
    compared = ask("scan", "compare", str(scanned), str(scanned), "--json").json
    compared["differences"] = compared["differences"][:1]
    compared["differences"][0]["difference"] = 0.5
    few = "one of the scans has too few texts for intervals"
    alike = "in one of the scans too few texts, or groups of texts, differ"
    for texts, present, absent in (([60, 29], few, alike), ([60, 30], alike, few)):
        compared["texts"] = texts
        (tmp_path / "compared.json").write_text(json.dumps(compared))
        said = " ".join(ask("view", str(tmp_path / "compared.json"), "--brief").out.split())
        assert (present in said, absent in said) == (True, False)


def test_a_folder_that_cannot_be_made_or_written_is_a_failure(folder, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "torn.txt.gz").write_bytes(gzip.compress(b"w1 w2")[:10] + b"no more")
    (tmp_path / "torn.txt.zst").write_bytes(b"(\xb5/\xfd no more")
    asked = ("scan", str(folder / "model"), str(folder / "corpus.txt"), "--workers", "1", "-o")
    for out in (tmp_path / "file", tmp_path / "file" / "inside"):
        for more in ((), ("--dedupe",)):
            answer = ask(*asked, str(out), *more)
            assert (answer.code, answer.err.startswith("error: cannot write")) == (1, True), (
                answer.err
            )
        piped = ask("scan", str(folder / "model"), "-", "-o", str(out), stdin=b"w1 w2")
        assert (piped.code, piped.err.startswith("error: cannot write this file")) == (1, True), (
            piped.err
        )
    for name in ("torn.txt.gz", "torn.txt.zst"):
        answer = ask(
            "scan", str(folder / "model"), str(tmp_path / name), "-o", str(tmp_path / name[-3:])
        )
        assert (answer.code, answer.err.startswith("error: cannot read the corpus")) == (3, True), (
            answer.err
        )


def test_progress_tells_texts_their_pace_and_failures(folder, scanned):
    made = read_plan(scanned)
    every = range(len(made.shards))
    shares: list[float] = []
    counted = _Counter()
    counted.on_progress = shares.append
    counted.on_plan(made, every)
    counted.add(0)  # a worker has opened the model: the time left is counted from here
    counted.add(3)
    counted.add_work(3)
    assert re.fullmatch(rf"3 of {made.texts} texts · [\d.,]+ texts/s", counted.progress_text())
    counted.on_shard(ShardOutcome(0, texts=made.shards[0][0].count))
    counted.on_shard(ShardOutcome(1, "it broke"))
    assert counted.progress_text().endswith("texts/s · failed shards: 1")
    counted.add(made.texts)
    counted.add_work(made.texts)
    assert shares == [0.0, 3 / made.texts, 1.0]


def test_an_interrupted_scan_says_what_is_kept(folder, tmp_path):
    class Interrupted(Inside):
        """One shard is done, or none, and then Ctrl-C."""

        shards = 1

        def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
            yield from super().run(job, shards[: self.shards])
            raise KeyboardInterrupt

    corpus = tmp_path / "corpus.txt"
    corpus.write_text("w1 w2 w3\n" * 40)
    asked = ("scan", str(folder / "model"), str(corpus), "-o", str(tmp_path / "out"))
    for shards, words in ((0, "none of 4 shards is done"), (1, "1 of 4 shards are kept")):
        Interrupted.shards = shards
        with (
            patch("attncli.scan.engines.LocalWorkers", lambda workers: Interrupted()),
            patch("attncli.scan.plan.shard_sizes", lambda spec: ShardSizes((), 10)),
        ):
            answer = ask(*asked)
        assert answer.code == 130
        assert words in " ".join(answer.err.split())
    assert "10 of 40 texts" in " ".join(answer.err.split())
    assert f"attn scan show {tmp_path / 'out'}" in answer.err.replace("\n", "")


def test_a_shard_that_was_given_up_is_told_of_until_it_is_done(folder, tmp_path):
    class Given(Inside):
        def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
            yield ShardOutcome(0, "its worker died 3 times")
            yield from super().run(job, [shard for shard in shards if shard])

    (tmp_path / "more.txt").write_text("w1 w2\n" * 5000)
    asked = (
        "scan",
        str(folder / "model"),
        str(tmp_path / "more.txt"),
        "-o",
        str(tmp_path / "out"),
        "--no-labels",
    )
    with patch("attncli.scan.engines.LocalWorkers", lambda workers: Given()):
        assert ask(*asked, "--sample", "1").code == 1
    for _ in range(2):
        shown = ask("scan", "show", str(tmp_path / "out"), "--json").json
        assert shown["done"]["failed"] == [{"shard": 0, "reason": "its worker died 3 times"}]


def test_a_part_tells_of_its_failed_shards_and_the_last_one_of_all(folder, tmp_path, monkeypatch):
    class Given(Inside):
        def run(self, job: Job, shards: Sequence[int]) -> Iterator[ShardOutcome]:
            yield from (ShardOutcome(shard, "it broke") for shard in shards if shard in lost)
            yield from super().run(job, [shard for shard in shards if shard not in lost])

    monkeypatch.setattr("attncli.scan.plan.SHARD", 2)
    asked = (
        "scan",
        str(folder / "model"),
        str(folder / "corpus.txt"),
        "-o",
        str(tmp_path / "out"),
        "--no-labels",
    )
    monkeypatch.setattr("attncli.scan.engines.LocalWorkers", lambda workers: Given())
    told = [{"shard": 0, "reason": "it broke"}]
    lost = {0}
    first = ask(*asked, "--part", "1/3", "--json")
    assert (first.code, first.json["done"]["failed"], first.json["done"]["shards"]) == (
        1,
        told,
        [0, 3],
    )
    assert "part 1 of 3 has ended; other parts still have shards to do" in first.err
    assert "1 of the scan's shards failed; shard 0: it broke" in first.err
    second = ask(*asked, "--part", "2/3")
    assert (second.code, second.out) == (0, "")
    assert ask("scan", "show", str(tmp_path / "out"), "--json").json["done"]["failed"] == told
    last = ask(*asked, "--part", "3/3", "--json")
    assert (last.code, last.json["done"]["failed"], last.json["done"]["shards"]) == (
        0,
        told,
        [2, 3],
    )
    assert json.loads((tmp_path / "out/scan.json").read_text())["done"]["failed"] == told
    lost = set()
    healed = ask(*asked, "--part", "1/3", "--json")
    assert (healed.code, healed.json["done"]["failed"], healed.json["done"]["shards"]) == (
        0,
        [],
        [3, 3],
    )
    assert not list((tmp_path / "out").rglob("*.failed.txt"))


def spoiled_state(folder: Path, change: Callable[[dict, dict], object]) -> None:
    """Change the arrays and the facts of the first shard."""
    state = load_state(folder, 0)
    arrays, facts = dict(state.arrays), dict(state.facts)
    change(arrays, facts)
    save_state(folder, 0, ShardState(arrays, facts), "test")


def spoiled_plan(folder: Path, change: Callable[[dict], object]) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    change(plan)
    (folder / "plan.json").write_text(json.dumps(plan))


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a column too few": (
        lambda at: spoiled_state(at, lambda arrays, _: arrays.update(value=arrays["value"][:-1])),
        "value is (32, 6)",
    ),
    "no histogram": (
        lambda at: spoiled_state(at, lambda arrays, _: arrays.pop("histogram")),
        "histogram is missing",
    ),
    "one array too many": (
        lambda at: spoiled_state(at, lambda arrays, _: arrays.update(more=np.zeros(1, np.int32))),
        "more is (1,)",
    ),
    "shares for counts": (
        lambda at: spoiled_state(at, lambda arrays, _: arrays.update(texts=arrays["texts"] / 2)),
        "texts holds no whole numbers",
    ),
    "an example nobody knows": (
        lambda at: spoiled_state(at, lambda _, facts: facts.update(examples=[])),
        "an example has no text",
    ),
    "no machine": (lambda at: spoiled_state(at, lambda _, facts: facts.pop("machine")), "machine"),
    "no count of texts": (
        lambda at: spoiled_state(at, lambda _, facts: facts["counts"].pop("texts")),
        "count texts",
    ),
    "fewer than no examples": (
        lambda at: spoiled_plan(at, lambda plan: plan["measures"].update(top=-1)),
        "top",
    ),
    "heads without end": (
        lambda at: spoiled_plan(at, lambda plan: plan["model"].update(heads=[10**12, 3])),
        "heads",
    ),
    "shards of another form": (
        lambda at: spoiled_plan(at, lambda plan: plan.update(schema="attn.scan.plan/2")),
        "another version of attn made this scan: its plan is 'attn.scan.plan/2'",
    ),
    "more layers than there are": (
        lambda at: spoiled_plan(at, lambda plan: plan["model"].update(layers=9)),
        "9 layers",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_damaged_store_is_bad_input(case, scanned, tmp_path):
    spoil, told = SPOILED[case]
    shutil.copytree(scanned, tmp_path / "scan")
    spoil(tmp_path / "scan")
    for command in (
        ("compare", str(tmp_path / "scan"), str(scanned)),
        ("verify", str(tmp_path / "scan")),
    ):
        answer = ask("scan", *command)
        assert (answer.code, answer.out) == (3, "")
        assert told in answer.err, answer.err


def test_a_plan_without_scores_of_random_repeats_is_the_same_scan(scanned, tmp_path):
    shutil.copytree(scanned, tmp_path / "scan")
    spoiled_plan(tmp_path / "scan", lambda plan: plan.pop("repeats"))
    assert ask("scan", "compare", str(tmp_path / "scan"), str(scanned)).code == 0


def test_a_plan_that_does_not_name_its_torch_is_another(folder, scanned, tmp_path):
    shutil.copytree(scanned, tmp_path / "scan")
    spoiled_plan(tmp_path / "scan", lambda plan: (plan.pop("isa"), plan.pop("torch")))
    answer = ask(
        "scan", str(folder / "model"), str(folder / "corpus.txt"), "-o", str(tmp_path / "scan")
    )
    assert (answer.code, "its torch is '', and" in answer.err) == (2, True), answer.err
    spoiled_plan(tmp_path / "scan", lambda plan: plan.update(schema="attn.scan.plan/2"))
    answer = ask(
        "scan", str(folder / "model"), str(folder / "corpus.txt"), "-o", str(tmp_path / "scan")
    )
    assert (
        answer.code,
        "its schema is 'attn.scan.plan/2', and 'attn.scan.plan/" in answer.err,
    ) == (2, True)


def test_folders_that_are_no_scans(tmp_path):
    for command in ("show", "verify"):
        answer = ask("scan", command, str(tmp_path))
        assert answer.code == 3
        assert "there is no scan here" in answer.err


def test_effects_are_shown_with_the_digits_that_they_need(scanned, tmp_path):
    """Most heads turn a vector by thousandths: two digits more than other numbers have."""
    document = json.loads((scanned / "scan.json").read_text())
    document["plan"]["effects"] = ["zero", "L0H1,L1H2"]
    quantiles = {"5": 0.0, "25": 0.0001, "50": 0.00121, "75": 0.002, "95": 0.003}
    small = {
        "texts": 4,
        "mean": 0.00132,
        "sd": 0.00045,
        "quantiles": quantiles,
        "ci95": [0.00098, 0.00171],
    }
    document["heads"][1]["effect"] = small
    document["heads"][5]["effect"] = {**small, "mean": 0.25, "ci95": None, "sd": None}
    (tmp_path / "scan.json").write_text(json.dumps(document))
    for more, rows in (
        ((), [["L1", "H2", "0.25000", "-", "-", "0.00121"],
              ["L0", "H1", "0.00132", "0.00098", "–", "0.00171", "0.00045", "0.00121"]]),
        (("--precision", "1"), [["L1", "H2", "0.2500", "-", "-", "0.0012"],
                                ["L0", "H1", "0.0013", "0.0010", "–", "0.0017", "0.0004", "0.0012"]]),
    ):  # fmt: skip
        shown = ask("view", str(tmp_path / "scan.json"), "--show", "effects", *more).out
        assert [line.split() for line in shown.splitlines() if line.startswith("L")] == rows
        assert "the head passes on nothing" in shown
    (tmp_path / "plan.json").write_bytes((scanned / "plan.json").read_bytes())
    spoiled_plan(tmp_path, lambda plan: plan["measures"].update(effects=["zero", "L0H1,L1H2"]))
    example = {
        "metric": "effect",
        "value": 0.00171,
        "shard": 0,
        "file": 0,
        "line": 3,
        "text": "w8",
        "query": None,
    }
    document["heads"][1]["top"] = [{**example, "key": None}]
    (tmp_path / "scan.json").write_text(json.dumps(document))
    closely = ask("scan", "show", str(tmp_path), "--head", "L0H1", "--metric", "effect").out
    assert "L0 H1  0.00132  0.00098 – 0.00171" in closely
    assert "L1 H2" not in closely
    assert re.search(r"0\.00171  \S+:4  w8", closely)
    assert "effect" in ask("scan", "show", str(tmp_path), "--metric", "nonsense").err


@pytest.mark.parametrize(
    ("name", "ends", "width", "row"),
    [
        ("first-token sink", [0.81, 0.87], 60, "first-token sink 0.840 0.810–0.870 100% (91–100)"),
        (
            "first-token sink",
            [0.81, 0.87],
            64,
            "first-token sink 0.840 0.810 – 0.870 100% (91–100)",
        ),
        ("repeat", [-0.1, 0.9], 60, "repeat 0.840 -0.100 – 0.900 100% (91–100)"),
    ],
)
def test_labels_are_whole_in_a_narrow_window(
    name: str, ends: list[float], width: int, row: str, scanned: Path, tmp_path: Path
) -> None:
    document = json.loads((scanned / "scan.json").read_text())
    found = {
        "name": name,
        "detail": None,
        "score": 0.84,
        "threshold": 0.3,
        "texts": 1.0,
        "texts_ci95": [0.91, 1.0],
    }
    document["heads"][0]["labels"] = [{**found, "ci95": ends, "earned": True, "borderline": False}]
    (tmp_path / "scan.json").write_text(json.dumps(document))
    shown = ask("view", str(tmp_path / "scan.json"), "--show", "labels", "--full", width=width).out
    assert f"L0 H0 {row}" in " ".join(shown.split())


def test_a_narrow_comparison_leaves_columns_out_and_says_which(folder, scanned):
    asked = ("scan", "compare", str(scanned), str(scanned), "--top", "3")
    wide, narrow, least = (ask(*asked, width=width).out for width in (90, 64, 46))
    assert "Cohen's d" in wide
    assert "also shows" not in wide
    assert "a wider terminal also shows: Cohen's d" in narrow
    assert "also shows: a, b, Cohen's d" in " ".join(least.split())
    assert "…" not in wide + narrow
    assert "3 of 162 shown; --top 162 shows all" in wide
