"""`attn series`: the checkpoints of one model, in folders and as revisions of a hub, measured once
each.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from hub_server import Hub, serving
from jsonschema import Draft202012Validator

import attncli
from attncli.documents import SCHEMAS
from attncli.features.series import compute
from attncli.features.series.compute import checkpoint_names, sort_checkpoints, step_of, steps_of
from attncli.language.guide import page as guide_page
from attncli.measure.labels import repeat_scores

TEXT = "f p e h a n c f p e h a n c f p"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Checkpoints of one training; the last is there twice."""
    folder = tmp_path_factory.mktemp("series") / "m"
    answer = ask(
        "learn", "induction", "--steps", "140", "--save", str(folder), "--snapshots", "4", "--json"
    )
    assert answer.code == 0, answer.err
    shutil.copytree(folder / "step-140", folder / "step-141")
    return [Path(path) for path in answer.json["snapshots"]] + [folder / "step-141"]


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def asked(paths: list[Path], *options: str, **variables: str) -> Any:
    answer = ask("series", *map(str, paths), "--text", TEXT, *options, "--json", **variables)
    assert answer.code == 0, answer.err
    return answer.json


def test_what_a_name_says() -> None:
    assert step_of("EleutherAI/pythia-160m@step512") == 512
    assert step_of("my-model/step-64/") == 64
    assert step_of("owner/model-7b@main") is None
    assert checkpoint_names(["a@step1,step2", "b"]) == ("a@step1", "a@step2", "b")


@pytest.mark.parametrize(
    ("named", "ordered", "steps"),
    [
        (["m/step-9", "m/step-10"], ["m/step-9", "m/step-10"], [9, 10]),
        (["step-10", "step-9", "last"], ["step-9", "step-10", "last"], [9, 10, None]),
        (["step-45", "ind2"], ["step-45", "ind2"], [45, None]),
        (["7b-sft", "7b-base"], ["7b-sft", "7b-base"], [None, None]),
        (["a@step512", "a@main"], ["a@step512", "a@main"], [512, None]),
        (["s1-step10-1B", "s1-step9-2B"], ["s1-step9-2B", "s1-step10-1B"], [9, 10]),
    ],
)
def test_checkpoints_stand_by_their_steps_and_other_names_as_typed(named, ordered, steps) -> None:
    assert sort_checkpoints(named) == ordered
    assert steps_of(ordered) == steps


@pytest.mark.thorough
def test_numbers_are_those_of_heads_and_of_random_repeats(snapshots, cache) -> None:
    document = asked(snapshots, **cache)
    Draft202012Validator(SCHEMAS["attn.series/1"]).validate(document)
    assert [row["step"] for row in document["checkpoints"]] == [0, 5, 27, 140, 141]
    row = document["checkpoints"][3]
    heads = ask(
        "heads", "--model", str(snapshots[3]), TEXT, "--metric", "previous,sink,entropy", "--json"
    ).json["heads"]
    repeats = repeat_scores(attncli.load(snapshots[3]), range(2))
    for mine, theirs in zip(row["heads"], heads, strict=True):
        for name in ("previous", "sink", "entropy"):
            assert mine["metrics"][name] == pytest.approx(
                theirs["metrics"][name]["value"], abs=1e-6
            )
        scores = repeats[mine["layer"], mine["head"]]
        assert mine["metrics"]["induction"] == pytest.approx(scores["repeats_induction"], abs=1e-6)
    assert any("induction" in head["labels"] for head in row["heads"])
    model = attncli.load(snapshots[3])
    (last,) = model.trace(TEXT, layers=[1], keep=())
    scores = np.asarray(model.logits(last.after), np.float64)
    ids = [token.id for token in model.encode(TEXT)]
    loss = [
        -(scores[at][ids[at + 1]] - np.log(np.exp(scores[at]).sum())) for at in range(len(ids) - 1)
    ]
    assert row["loss"] == pytest.approx(np.mean(loss), abs=1e-5)


def test_the_same_weights_are_named(snapshots, cache) -> None:
    document = asked(snapshots, **cache)
    assert [row["same_as"] for row in document["checkpoints"]] == [None] * 4 + [str(snapshots[3])]
    assert len({row["digest"] for row in document["checkpoints"]}) == 4
    told = ask("series", *map(str, snapshots), "--text", TEXT, "--brief", **cache).out
    assert "byte for byte" in " ".join(told.split())


def test_labels_change_where_they_do(snapshots, cache) -> None:
    document = asked(snapshots, **cache)
    rows = {row["name"]: {(head["layer"], head["head"]): head["labels"] for head in row["heads"]}
            for row in document["checkpoints"]}  # fmt: skip
    assert document["changes"]
    for change in document["changes"]:
        place = change["layer"], change["head"]
        assert (change["label"] in rows[change["after"]][place]) == change["earned"]
        assert (change["label"] in rows[change["before"]][place]) != change["earned"]


def test_what_was_measured_is_not_measured_again(snapshots, cache, monkeypatch) -> None:
    loaded = []
    load = compute.load
    monkeypatch.setattr(
        compute, "load", lambda name, **how: loaded.append(name) or load(name, **how)
    )
    first = asked(snapshots[:3], **cache)
    assert len(loaded) == 3
    again = ask("series", *map(str, snapshots), "--text", TEXT, "--json", **cache)
    assert len(loaded) == 4  # the last two are one
    assert "cache: results of 4 of 5 checkpoints" in " ".join(again.err.split())
    assert again.json["checkpoints"][:3] == first["checkpoints"]
    asked(snapshots[:2], "--fresh", **cache)
    assert len(loaded) == 6
    ask("series", *map(str, snapshots[:2]), "--text", "a b a b", "--json", **cache)
    assert len(loaded) == 8


def test_interrupted_it_goes_on_where_it_was(snapshots, cache, monkeypatch) -> None:
    measure, count = compute._measure, []

    def stopping(*arguments: Any) -> Any:
        if len(count) == 2:
            raise KeyboardInterrupt
        count.append(1)
        return measure(*arguments)

    monkeypatch.setattr(compute, "_measure", stopping)
    assert ask("series", *map(str, snapshots), "--text", TEXT, **cache).code == 130
    monkeypatch.setattr(
        compute, "_measure", lambda *arguments: count.append(1) or measure(*arguments)
    )
    asked(snapshots[:4], **cache)
    assert len(count) == 4


@pytest.mark.thorough
def test_one_checkpoint_is_in_memory_at_a_time(snapshots, cache, monkeypatch) -> None:
    import gc
    import weakref

    models: list[Any] = []
    load = compute.load

    class Watched:
        """What goes with a model."""

    def watched(name: str, **how: Any) -> Any:
        gc.collect()
        assert not any(reference() for reference in models), "an earlier one is still there"
        model = load(name, **how)
        mark = Watched()
        model.store.mark = mark
        models.append(weakref.ref(mark))
        return model

    monkeypatch.setattr(compute, "load", watched)
    asked(snapshots[:3], **cache)
    assert len(models) == 3


def test_several_texts_are_means(snapshots, cache, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(f"{TEXT}\na b c a b c a b\n")
    both = ask(
        "series",
        *map(str, snapshots[:2]),
        "--corpus",
        str(tmp_path / "corpus.txt"),
        "--json",
        **cache,
    ).json
    assert both["texts"] == 2
    single = [ask("series", *map(str, snapshots[:2]), "--text", text, "--json", **cache).json
              for text in (TEXT, "a b c a b c a b")]  # fmt: skip
    for place in range(4):
        found = [
            document["checkpoints"][0]["heads"][place]["metrics"]["previous"]
            for document in (both, *single)
        ]
        assert found[0] == pytest.approx(np.mean(found[1:]))


@pytest.fixture
def hub(snapshots) -> Iterator[Hub]:
    names = ("step0", "step27", "step140")
    folders = dict(zip(names, (snapshots[0], snapshots[2], snapshots[3]), strict=True))
    files = {f"owner/small@{name}": {path.name: path.read_bytes() for path in folder.iterdir()}
             for name, folder in folders.items()}  # fmt: skip
    commits = {name: f"{place + 1:040x}" for place, name in enumerate(names)}
    with serving(Hub({"owner/small": {}, **files}, revisions=names, commits=commits)) as served:
        yield served


def test_revisions_of_a_hub(hub, cache, tmp_path: Path) -> None:
    variables = {
        **cache,
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "0",
    }
    answer = ask(
        "series", "owner/small@step140,step0,step27", "--text", TEXT, "--json", **variables
    )
    assert answer.code == 0, answer.err
    names = [f"owner/small@{name}" for name in ("step0", "step27", "step140")]
    assert [row["name"] for row in answer.json["checkpoints"]] == names
    assert len({row["digest"] for row in answer.json["checkpoints"]}) == 3
    sent = hub.sent
    again = ask("series", "owner/small@step140,step0,step27", "--text", TEXT, "--json", **variables)
    assert again.json == answer.json
    assert hub.sent == sent
    missing = ask("series", "owner/small@step0,step9", "--text", TEXT, **variables)
    assert missing.code == 3
    assert "step9" in missing.err


def test_screen_page_and_figure(snapshots, cache, tmp_path: Path) -> None:
    outputs = ("--html", str(tmp_path / "p.html"), "--figure", str(tmp_path / "f.svg"))
    answer = ask("series", *map(str, snapshots), "--text", TEXT, *outputs, width=70, **cache)
    assert answer.code == 0, answer.err
    assert max(map(len, answer.out.splitlines())) <= 70
    page = (tmp_path / "p.html").read_text()
    assert "step-140" in page
    assert str(snapshots[0].parent) not in page
    assert "induction" in (tmp_path / "f.svg").read_text()
    assert (
        "检查点" in ask("series", *map(str, snapshots), "--text", TEXT, "--lang", "zh", **cache).out
    )
    plain = ask("series", *map(str, snapshots), "--text", TEXT, "--plain", **cache).out.splitlines()
    assert len(plain) == 1 + 5 * 4
    saved = tmp_path / "d.json"
    saved.write_text(ask("series", *map(str, snapshots), "--text", TEXT, "--json", **cache).out)
    # a saved series has no maps: its tiles are scores, and it begins at the head that the answer
    # names
    assert ask("view", str(saved), "--html", str(tmp_path / "saved.html")).code == 0
    texts = [page, (tmp_path / "saved.html").read_text()]
    first, again = (json.loads(re.findall('id="meta">(.*?)</script>', text)[0]) for text in texts)
    assert [len(first["maps"]), len(again["maps"])] == [5, 0]
    assert again["scores"] == first["scores"]
    (named,) = re.findall(r"Layer (\d) head (\d)", first["notes"][0]["en"])
    assert [first["heads"][meta["start"]] for meta in (first, again)] == [list(map(int, named))] * 2
    again = ask("view", str(saved))
    assert again.out == ask("series", *map(str, snapshots), "--text", TEXT, **cache).out


def test_what_is_refused(snapshots, cache, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert ask("learn", "previous", "--steps", "1", "--save", str(other), "-q").code == 0
    first = str(snapshots[0])
    for arguments, code, said in (
        ((first,), 2, "two checkpoints"),
        ((first, first), 2, "twice"),
        ((first, str(tmp_path / "nowhere")), 3, "nowhere"),
        ((first, str(other)), 3, "other heads"),
        ((first, str(snapshots[1]), "--metric", "no-such"), 2, "no-such"),
        ((first, str(snapshots[1]), "--corpus", str(tmp_path / "none.txt")), 3, "none.txt"),
        ((first, str(snapshots[1]), "--html", "p.txt"), 2, ".html"),
    ):
        text = () if "--corpus" in arguments else ("--text", TEXT)
        answer = ask("series", *arguments, *text, **cache)
        assert answer.code == code, answer
        assert said in answer.err
        assert answer.out == ""


def risen(
    *values: list[float], metrics: tuple[str, ...] = ("induction",), texts: int = 1
) -> list[str]:
    """What the answer says of two checkpoints. values: of each metric's heads before and after, as
    [before, after].
    """
    from attncli.features.series.document import SeriesCheckpoint, SeriesDocument, SeriesHead
    from attncli.features.series.screen import answer_sentences

    rows = [
        SeriesCheckpoint(
            name=f"step-{end}", step=end, digest="", same_as=None, loss=2.0 - end,
            heads=[
                SeriesHead(layer=0, head=head, metrics=dict.fromkeys(metrics, value[end]), labels=[])
                for head, value in enumerate(values)
            ],
        )
        for end in (0, 1)
    ]  # fmt: skip
    document = SeriesDocument(
        version="", text="a", tokens=[], texts=texts, layers=1, heads=len(values), metrics=list(metrics),
        checkpoints=rows, changes=[], warnings=[],
    )  # fmt: skip
    return [*map(str, answer_sentences(document))]


def test_the_answer_is_of_the_head_that_rose_and_not_of_the_one_that_always_was_high() -> None:
    told = risen([0.9, 0.91], [0.1, 0.8], [0.0, 0.3])
    assert told[0].startswith("Layer 0 head 1: its score induction goes from 0.10 to 0.80")
    assert (
        risen([0.9, 0.91], [0.1, 0.15])[0]
        == "In no head does a score rise by 0.1 or more: induction."
    )
    assert risen([3.0, 2.0], [1.0, 1.0], metrics=("entropy",))[0] == (
        "The mean entropy of all heads goes from 2.00 to 1.50."
    )
    assert risen([0.0, 0.0])[-1] == "The loss on the text goes from 2.000 to 1.000."
    assert risen([0.0, 0.0], texts=3)[-1] == "The mean loss on 3 texts goes from 2.000 to 1.000."


def test_checkpoints_without_steps_go_by_their_names() -> None:
    """The 2 of gpt2 is no step."""
    from attncli.features.series.document import (
        SeriesCheckpoint,
        SeriesDocument,
        SeriesHead,
        has_steps,
        short_names,
    )

    def of(*names: str) -> SeriesDocument:
        rows = [
            SeriesCheckpoint(
                name=name, step=step_of(name), digest="", same_as=None, loss=None,
                heads=[SeriesHead(layer=0, head=0, metrics={"previous": 0.5}, labels=[])],
            )
            for name in names
        ]  # fmt: skip
        return SeriesDocument(
            version="", text="a", tokens=[], texts=1, layers=1, heads=1, metrics=["previous"], checkpoints=rows,
            changes=[], warnings=[],
        )  # fmt: skip

    assert short_names(of("m/gpt2", "m/again")) == {"m/gpt2": "gpt2", "m/again": "again"}
    assert short_names(of("a/step-5", "b/step-5")) == {
        "a/step-5": "a/step-5",
        "b/step-5": "b/step-5",
    }
    assert short_names(of("m/step-5", "m/step-2000")) == {"m/step-5": "5", "m/step-2000": "2,000"}
    assert not has_steps(of("m/gpt2", "m/again"))


def test_a_rise_is_told_by_steps_where_checkpoints_have_them(snapshots: list[Path]) -> None:
    folders = [str(path) for path in snapshots[:-1]]
    line = ("series", *folders, "--text", TEXT, "--brief")
    text = " ".join(ask(*line).out.split())
    assert re.search(r"half of the rise between steps \d+ and \d+\.", text)
    chinese = "".join(ask(*line, "--lang", "zh").out.split())
    assert re.search(r"“前一词元”从0\.\d\d升到0\.\d\d，在第\d+步与第\d+步之间升到一半。", chinese)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_command_of_lesson_6_gives_the_loss_that_it_tells(tmp_path: Path, lang: str) -> None:
    lesson = " ".join(guide_page("lessons", lang).split())
    commands = re.search(
        r"`attn (learn induction [^`]*--snapshots 8)`[^`]*`attn (series [^`]*)`", lesson
    )
    assert commands is not None
    training, reading = map(shlex.split, commands.groups())
    saved = tmp_path / training[training.index("--save") + 1]
    training[training.index("--save") + 1] = str(saved)
    answer = ask(*training, "--json")
    assert answer.code == 0, answer.err
    assert reading[1] == f"{saved.name}/step-*"
    losses = ask("series", *answer.json["snapshots"], *reading[2:], "--json").json
    assert "2.595" in lesson
    # sums differ in their last digits by machine
    assert losses["checkpoints"][-1]["loss"] == pytest.approx(2.595, abs=0.03)
