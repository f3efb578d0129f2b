"""Spellings that options once had still work, and say what the present ones say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from asking import ask
from commands import commands
from small_gpt2 import small_gpt2

from attncli.cli.declarations import ComputeOptions, ModelOptions
from attncli.cli.help_page import group_title
from attncli.cli.option import KEPT
from attncli.errors import UsageError

KEPT_OPTIONS = {
    "--regions", "--chat-template", "--generation-prompt", "--source-states", "--sample-seed", "--html-budget",
    "--max-output", "--scale-colors", "--stages", "--device", "--than",
}  # fmt: skip
CHAT = "sample_inputs/chat.json"
TEMPLATE = "sample_inputs/chatml.jinja"
TWINS = (
    ("run 'a cat' --regions {t}/regions.json", "run 'a cat' --region @{t}/regions.json"),
    (f"tokens --chat {CHAT} --chat-template {TEMPLATE}", f"tokens --chat {CHAT}@{TEMPLATE}"),
    (
        f"tokens --chat {CHAT}@{TEMPLATE} --no-generation-prompt",
        f"tokens --chat {CHAT}@{TEMPLATE} --chat-var add_generation_prompt=false",
    ),
    (
        f"compare --chat {CHAT} --chat {{t}}/chat.json --chat-template {TEMPLATE}",
        f"compare --chat {CHAT}@{TEMPLATE} --chat {{t}}/chat.json@{TEMPLATE}",
    ),
    ("run 'a b' --stages all --json", "run 'a b' --full --json"),
    (
        "run 'a b' --model {t}/gpt2 --generate 3 --temperature 9 --sample-seed 3",
        "run 'a b' --model {t}/gpt2 --generate 3 --temperature 9 --seed 3",
    ),
    ("ablate 'a b c' --by mean", "ablate 'a b c' --how mean"),
    ("why 'a b c' --from c --to a --than b", "why 'a b c' --from c --to a --versus b"),
    (
        "heads 'a b c' --layer 0 --head 1 --top 2 --json",
        "heads 'a b c' -l 0 -H 1 -t 2 -j",
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small decoder and a file of regions."""
    path = tmp_path_factory.mktemp("kept")
    small_gpt2(path / "gpt2")
    (path / "regions.json").write_text(json.dumps({"who": "/cat/"}))
    (path / "chat.json").write_text('[{"role": "user", "content": "hello there"}]')
    return path


@pytest.mark.parametrize(("old", "new"), TWINS)
def test_an_old_spelling_says_what_the_new_one_says(old: str, new: str, folder: Path) -> None:
    answers = [ask(*_words(line.replace("{t}", str(folder)))) for line in (old, new)]
    assert answers[1].code == 0, answers[1].err
    assert answers[0].out == answers[1].out


def _words(line: str) -> list[str]:
    """The words of a command line, those in quotes together."""
    return [word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)]


def test_no_page_and_no_shell_offers_a_kept_option() -> None:
    kept = {
        parameter.opts[0]: parameter
        for _, command in commands()
        for parameter in command.params
        if parameter.param_type_name == "option" and group_title(parameter) == KEPT
    }
    assert set(kept) == KEPT_OPTIONS
    assert all(parameter.hidden for parameter in kept.values())
    assert not any(f"  {name} " in ask("run", "--help").out for name in kept)


def test_a_device_stands_as_what_computes() -> None:
    compute = ComputeOptions(backend="cuda:1")
    assert (compute.backend, compute.device) == ("torch", "cuda:1")
    with pytest.raises(UsageError, match="name two places"):
        ComputeOptions(backend="cuda", device="cpu")
    assert ComputeOptions(backend="cuda", device="cuda:1").device == "cuda:1"
    with pytest.raises(UsageError, match="name two places"):
        ComputeOptions(backend="cuda:0", device="cuda:1")
    assert ask("run", "a b", "--backend", "cpu").code == 2
    assert ask("run", "a b", "--backend", "numpy:1").code == 2


def test_captured_states_stand_as_a_source() -> None:
    model = ModelOptions(source="@states.npy")
    assert (model.source, model.source_states) == (None, Path("states.npy"))
    assert ModelOptions(source="@anna says hello").source == "@anna says hello"
    with pytest.raises(UsageError, match="two sources"):
        ModelOptions(source="@a.npy", source_states=Path("b.npy"))


REFUSED = (
    ("run 'a b' --html-budget 3kB", "--html-budget is about a page"),
    ("run 'a b' --max-output 3parsecs", "--max-output is '3parsecs'"),
    ("why 'a b c' --from c --to a --than b --versus b", "name two other tokens"),
    (f"tokens --chat {CHAT}@{TEMPLATE} --chat-template {TEMPLATE}", "and --chat-template"),
    (
        "run 'a b' --model {t}/gpt2 --generate 3 --temperature 9 --seed 1 --sample-seed 3",
        "name two seeds",
    ),
    ("run 'a b' --model {t}/gpt2 --generate 3 --seed 1", "--seed describes seeded weights"),
    (f"tokens --chat {CHAT}@no.jinja", "no.jinja"),
    ("run 'a b' --region @no.json", "no.json"),
    ("run 'a b' --source @x.npy", "--source is about a checkpoint"),
)


@pytest.mark.parametrize(("line", "says"), REFUSED)
def test_what_contradicts_is_refused(line: str, says: str, folder: Path) -> None:
    answer = ask(*_words(line.replace("{t}", str(folder))))
    assert answer.code in (2, 3)
    assert says in " ".join(answer.err.split())


def test_settings_hold_limits(tmp_path: Path) -> None:
    settings = tmp_path / "set.toml"
    settings.write_text('max-output = "1kB"\nhtml-budget = "3kB"\nmax-memory = "1GiB"\n')
    page = tmp_path / "page.html"
    assert ask("run", "a b", ATTN_CONFIG=str(settings)).code == 0  # no page, and no complaint
    assert ask("run", "a b", "--html", str(page), ATTN_CONFIG=str(settings)).code == 0
    assert ask("run", "a b c d e f g", "--full", "--json", ATTN_CONFIG=str(settings)).code == 5
    settings.write_text('max-memory = "some"\n')
    told = ask("run", "a b", ATTN_CONFIG=str(settings))
    assert told.code == 2
    assert "set.toml:1" in told.err
