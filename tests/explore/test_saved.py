"""Saved documents and tensors: opened as `attn view` opens them, looked at without a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2
from walking import pressed, seeded, shown

from attncli.explore.actions import save
from attncli.explore.command import _saved_source
from attncli.explore.loaded_run import LiveSource
from attncli.explore.state import State
from attncli.features.explain.compute import derivation_document
from attncli.features.view.command import open_document

TEXT = "humpty dumpty sat on"


def saved(folder: Path, name: str, *command: str) -> Path:
    file = folder / name
    option = "--save" if not name.endswith(".json") else "--output"
    more = ("--json",) if name.endswith(".json") else ()
    assert ask(*command, *more, option, str(file)).code == 0
    return file


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("run.json", ("run", TEXT, "--num-heads", "2")),
        ("heads.json", ("heads", TEXT, "--num-heads", "2")),
        ("find.json", ("find", TEXT, "--from", "on", "--to", "sat")),
        ("cross.json", ("cross", TEXT, "a b c d e")),
        ("run.npz", ("run", TEXT, "--num-heads", "2", "--mask", "causal")),
    ],
)
def test_each_kind_of_file_is_looked_at(
    name: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    file = saved(tmp_path, name, *command)
    app, text = pressed(
        _saved_source(file),
        "tab",
        "right",
        "2",
        "r",
        "slash",
        "enter",
        "d",
        "escape",
        "i",
        "e",
        "n",
        "o",
        "w",
    )
    held = app.walk.loaded_run
    assert held is not None
    if name != "find.json":
        weights = held.weights((0, 0))
        assert weights is not None
        visible = np.nan_to_num(weights)
        assert np.allclose(visible.sum(1), 1, atol=1e-3)
    assert "holds no model" in shown(text, "holds no model")


def test_the_weights_of_a_file_are_those_of_the_run(tmp_path: Path) -> None:
    file = saved(tmp_path, "run.json", "run", TEXT, "--num-heads", "8", "--d-model", "16")
    app, _ = pressed(_saved_source(file))
    other, _ = pressed(LiveSource.of(seeded(), TEXT))
    assert app.walk.loaded_run is not None
    assert other.walk.loaded_run is not None
    for place in app.walk.loaded_run.heads:
        np.testing.assert_allclose(
            app.walk.loaded_run.weights(place), other.walk.loaded_run.weights(place), atol=1e-6
        )


def test_saved_stages_tell_why_as_the_run_itself_does(tmp_path: Path) -> None:
    options = ("--num-heads", "8", "--d-model", "16")
    file = saved(tmp_path, "run.safetensors", "run", TEXT, *options)
    start = State(head=5, query=2, key=1)
    app, text = pressed(_saved_source(file), *["enter"] * 4, start=start, size=(110, 34))
    found = app.walk.derivation
    assert found is not None
    assert "softmax" in shown(text, "why")
    model = seeded()
    asked = derivation_document(model, TEXT, model.encode(TEXT), layer=0, head=5, query=2)
    for mine, theirs in zip(found.steps, asked.steps, strict=True):
        for name in ("products", "raw", "scaled", "weights", "terms", "output"):
            if hasattr(theirs, name):
                np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), atol=1e-5)
    assert found.agreement < 1e-5
    _, text = pressed(
        _saved_source(saved(tmp_path, "run.json", "run", TEXT, *options)), "enter", start=start
    )
    assert "no queries and keys" in shown(text, "no queries")


def test_saving_from_a_file_writes_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = saved(tmp_path, "run.json", "run", TEXT, "--num-heads", "2")
    _, text = pressed(_saved_source(file), "s", *["backspace"] * 20, "=again.json", "enter")
    assert "saved: again.json" in shown(text, "saved")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()
    assert open_document(tmp_path / "again.json") is not None


def test_a_figure_speaks_the_language_of_the_screen(tmp_path: Path) -> None:
    source = _saved_source(saved(tmp_path, "run.json", "run", TEXT, "--num-heads", "2"))
    for lang, told in (("en", "rows look"), ("zh", "行看列")):
        save(tmp_path / f"{lang}.svg", source, State(), None, lang=lang)
        assert told in (tmp_path / f"{lang}.svg").read_text("utf-8")


def test_files_that_cannot_be_looked_at_are_refused_before_the_screen_is_filled(
    tmp_path: Path,
) -> None:
    mask = tmp_path / "mask.json"
    assert ask("mask", "causal", "-n", "4", "--json", "--output", str(mask)).code == 0
    for name, code in ((str(mask), 3), (str(tmp_path / "none.json"), 3)):
        found = ask("explore", name, terminal=True)
        assert found.code == code, found.err
        assert found.out == ""


def test_a_circuit_beside_a_saved_document_is_refused(tmp_path: Path) -> None:
    pairs = Path(__file__).parents[2] / "sample_inputs" / "pairs.jsonl"
    command = ("circuit", "--model", str(small_gpt2(tmp_path / "gpt2")), "--pairs", str(pairs))
    circuit = saved(tmp_path, "circuit.json", *command, "--size", "40%")
    run = saved(tmp_path, "run.json", "run", TEXT, "--num-heads", "2")
    for name in (circuit, run):
        reply = ask("explore", str(name), "--circuit", str(circuit), terminal=True)
        assert reply.code == 2, reply.err
        assert "--circuit" in reply.err
        assert reply.out == ""
