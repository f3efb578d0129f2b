"""`attn view`: what was saved is shown as it was, and nothing that is not ours is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from validity import checker, validate

from attncli.documents import SCHEMAS
from attncli.documents.reading import document_of
from attncli.draw.screen_header import screen_of
from attncli.errors import InputError
from attncli.features.view.compute import heads_of_run
from attncli.measure.document_heads import document_record

TEXT = "humpty dumpty sat on"
COMMANDS = {
    "run": ("run", TEXT, "--mask", "causal", "--num-heads", "2"),
    "heads": ("heads", TEXT, "--num-heads", "2", "--labels", "--moved"),
    "across": ("heads", TEXT, "--num-heads", "2", "--across", "rollout,flow,similarity,circuits"),
    "find": ("find", TEXT, "--from", "on", "--to", "sat"),
    "tokens": ("tokens", TEXT),
    "mask": ("mask", "causal"),
    "cost": ("cost", "-n", "100"),
    "cross": ("cross", "a b", "c d e"),
    "explain": ("explain", TEXT, "--query", "on"),
    "softmax": ("explain", "softmax", "2.0", "1.0", "0.1"),
}


def without_commands(screen: str) -> list[str]:
    """The lines of a screen but those of the step that prints a command, and what it leaves open."""
    gone = ("7 without the head", "attn ablate", "OPTIONS: ")
    return [line for line in screen.splitlines() if not line.startswith(gone)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_document_is_shown_as_it_was(name: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    assert ask(*COMMANDS[name], "--json", "--output", str(path)).code == 0
    for extra in ((), ("--ascii",)):
        was, again = ask(*COMMANDS[name], *extra), ask("view", str(path), *extra)
        assert again.code == 0, again.err
        assert without_commands(again.out) == without_commands(was.out)
        # a document does not hold all that it was run with
        assert (name == "explain") == ("OPTIONS" in again.out)
    lines = [
        ask(*command, "--plain").out.splitlines()
        for command in (COMMANDS[name], ("view", str(path)))
    ]
    assert lines[0][0] == lines[1][0]
    assert len(lines[0]) == len(lines[1])
    assert ask("view", str(path), "--json").out == path.read_text()


def test_saved_tensors_are_shown_as_the_run_was(tmp_path: Path) -> None:
    for ending in ("safetensors", "npz"):
        path = tmp_path / f"saved.{ending}"
        was = ask(*COMMANDS["run"], "--save", str(path))
        assert ask("view", str(path)).out == was.out
    shown = ask("view", str(path), "--show", "weights", "--full", "--precision", "4")
    assert "weights" in shown.out


def test_a_run_is_compared_by_head_as_the_command_would(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    ask(*COMMANDS["run"], "--json", "--output", str(path))
    again, was = (
        ask("view", str(path), "--as", "heads", "--json").json,
        ask("heads", *COMMANDS["run"][1:], "--json").json,
    )
    validate(again, "attn.heads/1")
    for left, right in zip(again["heads"], was["heads"], strict=True):
        assert left["top_link"] == pytest.approx(right["top_link"])
        for name, metric in right["metrics"].items():
            assert left["metrics"][name]["value"] == pytest.approx(metric["value"], abs=1e-6), name


def run_document() -> dict:
    return ask(*COMMANDS["run"], "--json").json


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(schema="attn.run/9"), "attn.run/9"),
        (lambda d: d.pop("schema"), "names no schema"),
        (lambda d: d.pop("tokens"), "missing required field `tokens`"),
        (lambda d: d.update(extra=1), "unknown field `extra`"),
        (lambda d: d["tokens"][0].update(index="zero"), "$.tokens[0].index"),
        (lambda d: d["links"][0].update(weight=7), "<= 1.00001"),
        (lambda d: d["links"][0].update(query=999), "contradicts itself"),
        (lambda d: d["model"].update(seed=None), "weights from a seed, and none is named"),
        (
            lambda d: d["layers"][0]["heads"][0].update(weights=[[0.5], [0.5, 0.5]]),
            "rows of one length",
        ),
    ],
)
def test_what_is_no_document_is_refused(change, told: str, tmp_path: Path) -> None:
    document = run_document()
    change(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    answer = ask("view", str(path))
    assert answer.code == 3
    assert told in answer.err
    assert "Traceback" not in answer.err


def test_a_contradiction_is_told_by_the_names_of_the_json(tmp_path: Path) -> None:
    """Where a member's name is no name for Python, its field has another; a file's reader knows the
    member alone.
    """
    path = tmp_path / "changed.json"
    for command, member, value in (
        (COMMANDS["find"], "from", 999),
        (("explain", "softmax", "1", "2"), "given", [1.0]),
    ):
        document = ask(*command, "--json").json
        document[member] = value
        path.write_text(json.dumps(document))
        answer = ask("view", str(path))
        assert answer.code == 3
        assert re.search(rf"\b{member}\b", answer.err), answer.err
        assert not re.search(r"\b(query|numbers)\b", answer.err), answer.err


def test_a_link_of_a_head_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "changed.json"
    for command in (
        ("cross", "the cat", "le chat"),
        ("tensors", "sample_inputs/captured.safetensors"),
    ):
        document = ask(*command, "--json").json
        document["links"][0]["head"] = 99
        path.write_text(json.dumps(document))
        answer = ask("view", str(path))
        assert answer.code == 3
        assert "it belongs to no head of the document" in answer.err
        assert "$.links[0]" in answer.err


def test_shares_beyond_all_bounds_are_drawn_as_the_largest_or_refused(tmp_path: Path) -> None:
    document = ask("explain", "multihead", "the cat sat", "--query", "cat", "--json").json
    document["heads"][0]["weights"][0] = 1e308
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    assert "█the█" in ask("view", str(path), "--brief").out
    document = ask("cache", "the cat sat", "--mask", "causal", "--json").json
    document["policies"][0]["heads"][0]["kept"] = -1e308
    path.write_text(json.dumps(document))
    answer = ask("view", str(path))
    assert answer.code == 3
    assert "$.policies[0].heads[0].kept" in answer.err


def test_other_files_are_refused(tmp_path: Path) -> None:
    for content in ("", "[]", "{", '{"schema": 5}', '{"schema": "attn.error"}'):
        path = tmp_path / "other.json"
        path.write_text(content)
        assert ask("view", str(path)).code == 3
    path = tmp_path / "other.npz"
    np.savez(path, q=np.zeros((2, 3)))
    assert "--save" in ask("view", str(path)).err
    assert ask("view", str(tmp_path / "missing.json")).code == 3


def test_hostile_text_in_a_document_is_inert(tmp_path: Path) -> None:
    document = run_document()
    document["tokens"][0]["text"] = "\x1b[2J[bold]x"
    document["text"] = "\x1b]0;owned\x07" + document["text"]
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(document))
    shown = ask("view", str(path))
    assert shown.code == 0
    assert "\x1b" not in shown.out


def test_every_document_has_a_screen() -> None:
    for name in SCHEMAS:
        if name != "attn.error":
            assert callable(screen_of(name).screen)
            assert callable(screen_of(name).rows)


def test_what_is_read_agrees_with_jsonschema() -> None:
    document = run_document()
    document_of(document, "here")
    changes = [
        lambda d: d["model"].update(layers=0), lambda d: d["model"].update(source="elsewhere"), lambda d: d.update(
        layers={}),
        lambda d: d["attention"].update(scale=True), lambda d: d["tokens"][1].update(id=1.5), lambda d: d["tokens"][
        1].update(id=1),
        lambda d: d["shapes"][0].pop("axes"), lambda d: d.update(warnings=[1]), lambda d: d["attention"].update(
        scale=None),
    ]  # fmt: skip
    for change in changes:
        changed = json.loads(json.dumps(document))
        change(changed)
        try:
            document_of(changed, "here")
            fits = True
        except InputError:
            fits = False
        assert fits == checker("attn.run/1").is_valid(changed)


@pytest.mark.parametrize("options", [(), ("--words",)])
def test_a_saved_run_takes_tokens_of_one_id_for_the_same(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    line = ("The cat saw the cat", "--model", "minilm", "--layer", "0", "--head", "0-3", *options)
    (tmp_path / "run.json").write_text(ask("run", *line, "--json").out)
    document = document_of(json.loads((tmp_path / "run.json").read_text()), "here")
    names = ("duplicate_pattern", "induction_pattern")
    compared = heads_of_run(document, names)
    assert compared.pieces is document.pieces
    saved = compared.heads
    own = ask("heads", *line, "--metric", ",".join(names), "--json").json["heads"]
    for name in names:
        there, here = (
            [head["metrics"][name]["value"] for head in own],
            [head.metrics[name].value for head in saved],
        )
        assert here == pytest.approx(there, abs=1e-6)
        assert max(here) > 0


def test_a_saved_query_is_a_row_among_rows_that_look_at_nothing() -> None:
    document = document_of(
        ask("run", "a b c d", "--query", "c", "--num-heads", "2", "--json").json, "here"
    )
    record = document_record(document)
    assert record is not None
    for head, told in zip(record.heads, document.layers[0].heads, strict=True):
        assert head.small.shape == (4, 4)
        assert head.small[2] == pytest.approx(told.weights[0], abs=1e-6)
        assert not np.nan_to_num(head.small[[0, 1, 3]]).clip(0).any()


@pytest.mark.thorough
def test_more_heads_than_anybody_waits_for_are_no_page_and_no_figure(tmp_path: Path) -> None:
    """A run that was forged to have 10,000 layers."""
    fields = ask("run", "a", "--num-heads", "2", "--json").json
    layer = {name: value for name, value in fields["layers"][0].items() if name != "output"}
    layer["heads"] = [{"head": head["head"], "weights": head["weights"]} for head in layer["heads"]]
    fields["layers"] = [layer | {"layer": number} for number in range(10_000)]
    fields["model"]["layers"] = 10_000
    (tmp_path / "run.json").write_text(json.dumps(fields))
    for name, *more in (("--html", "page.html"), ("--figure", "figure.svg"), ("--as", "heads")):
        where = more if name == "--as" else [str(tmp_path / more[0])]
        answer = ask("view", str(tmp_path / "run.json"), name, *where)
        assert (answer.code, answer.out) == (5, "")
        assert "20,000 heads" in answer.err
        assert "--layer 0-9" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
