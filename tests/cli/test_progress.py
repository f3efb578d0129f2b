"""Progress is drawn for a person at a terminal, after a second, and leaves nothing behind."""

import re
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from asking import ask
from small_gpt2 import small_gpt2

import attncli
from attncli.cli import progress
from attncli.cli.border import run_guarded
from attncli.cli.environment import Environment
from attncli.features.effects.ablation import Removal, remove
from attncli.features.effects.measures import MeasureRequest
from attncli.mechanism.spec import HeadSelection
from attncli.models.load import load


def environment(*, terminal: bool = True, quiet: bool = False) -> Environment:
    return Environment(
        BytesIO(), BytesIO(), StringIO(), {}, stderr_is_terminal=terminal, quiet=quiet, width=60
    )


def told(found: Environment) -> str:
    with progress.progress(found, "4,096 tokens [red]") as tell:
        tell(0.25)
        tell(0.5)
    return found.stderr.getvalue()  # type: ignore[attr-defined]


def test_what_takes_long_shows_its_share_and_reads_no_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    said = told(environment())
    assert "4,096 tokens [red]" in said
    assert "25%" in said or "50%" in said


@pytest.mark.parametrize("found", [environment(terminal=False), environment(quiet=True)])
def test_a_pipe_and_a_quiet_run_hear_nothing(
    found: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    assert told(found) == ""


@pytest.mark.parametrize("reset", [False, True])
def test_the_time_left_is_told_from_the_first_report_on(
    reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    found = environment()
    with progress.progress(found, "texts") as tell:
        clock[0] += 50
        if reset:  # a share of 0: what came before was no work
            tell(0.0)
        clock[0] += 10
        tell(0.1)
    assert ("0:01:30" if reset else "0:09:00") in found.stderr.getvalue()  # type: ignore[attr-defined]


def test_what_is_soon_done_says_nothing() -> None:
    assert told(environment()) == ""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_download_shows_each_file_by_its_name() -> None:
    found = environment()
    with progress.downloads(found) as watch:
        assert watch is not None
        for file in ("config.json", "model.safetensors"):
            watch(file, 0.5)
    said = found.stderr.getvalue()  # type: ignore[attr-defined]
    assert said.index("config.json") < said.index("model.safetensors")
    assert "50%" in said


@pytest.mark.usefixtures("at_once")
def test_what_is_said_may_change_on_the_way() -> None:
    found, words = environment(), iter(["first [b]", "then [b]"])
    with progress.progress(found, lambda: next(words)) as tell:
        tell(0.25)
        tell(0.5)
    said = found.stderr.getvalue()  # type: ignore[attr-defined]
    assert said.index("first [b]") < said.index("then [b]")


@pytest.mark.parametrize("found", [environment(terminal=False), environment(quiet=True)])
def test_nobody_is_told_where_nobody_looks(found: Environment) -> None:
    with progress.downloads(found) as watch:
        assert watch is None
    model = load("minilm")
    assert progress.with_layer_progress(found, model) is model


@pytest.mark.usefixtures("at_once")
def test_the_layers_of_a_checkpoint_are_told_to_the_work_that_is_watched() -> None:
    found, shares = environment(), []
    found.layers = shares.append
    for _ in progress.with_layer_progress(found, load("minilm")).trace("a b", layers=[3]):
        assert shares == [0, 1 / 4, 2 / 4, 1]
    assert found.stderr.getvalue() == ""  # type: ignore[attr-defined]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("run", "a b"), "4 tokens"),
        (("heads", "a b"), "4 tokens"),
        (("find", "a b", "--from", "b", "--to", "a"), "4 tokens"),
        (("compare", "a b", "a c"), "layers"),
    ],
)
def test_commands_tell_the_layers_they_read(command: tuple[str, ...], what: str) -> None:
    found = environment()
    assert run_guarded([*command, "--model", "minilm"], found) == 0
    said = found.stderr.getvalue()  # type: ignore[attr-defined]
    assert what in said
    assert "%" in said
    assert found.layers is None


@pytest.mark.usefixtures("at_once")
def test_what_adds_to_a_logit_is_told_layer_by_layer(tmp_path: Path) -> None:
    found = environment()
    assert run_guarded(["logits", "a b", "--model", str(small_gpt2(tmp_path / "gpt2"))], found) == 0
    said = found.stderr.getvalue()  # type: ignore[attr-defined]
    assert "5 tokens" in said
    assert "%" in said


@pytest.mark.usefixtures("at_once")
def test_a_bar_ends_with_a_command_that_fails() -> None:
    found = environment()
    shown = progress.with_layer_progress(found, load("minilm"))
    with found.endings:
        next(iter(shown.trace("a b", layers=[1, 5])))
        assert found.layers is not None
    assert found.layers is None


@pytest.mark.thorough
def test_the_random_changes_are_a_part_of_what_is_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncli.cli.pair_answer.PATIENCE", 0.0)
    seconds = {}
    for baseline in ("none", "top", "all"):
        told = ask(
            "ablate", "the " * 1500, "--brief", "--baseline", baseline, "--num-heads", "2"
        ).err
        seconds[baseline] = float(re.search(r"about (\d+) s", told)[1])  # type: ignore[index]
    # eight draws for each of two heads, beside each head itself and the text's own run
    assert seconds["all"] == seconds["top"] >= 4 * seconds["none"]


def test_the_share_that_is_told_counts_the_random_changes() -> None:
    model, shares = attncli.load(seed=0), []
    tokens = model.encode("a b c")
    removal = Removal(HeadSelection(range(1), range(1)), baseline="all")
    asked = MeasureRequest.of(
        model, tokens, ("vector",), query=None, usual=None, target=None, every=False
    )
    remove(model, tokens, removal, asked, progress=shares.append)
    assert shares == sorted(shares)
    # one head, and eight draws for it
    assert any(abs(share - 1 / 9) < 1e-9 for share in shares), shares
    assert shares[-1] == 1.0
