"""Help: by groups in the order of use, drawn at a terminal, plain elsewhere; what a shell completes."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from asking import ask
from commands import commands
from processes import attn, finish, start

from attncli.cli import main
from attncli.cli.app import COMMANDS, GROUPS, group_of
from attncli.cli.environment import Environment

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
BORDERS = "╭│╰"


def completed(*words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is offered for the last of the words."""
    line = {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["attn", *words]), "COMP_CWORD": str(len(words))}
    for name, value in line.items():
        monkeypatch.setenv(name, value)
    out = BytesIO()
    environment = Environment(
        stdin=BytesIO(), stdout=out, stderr=StringIO(), variables={"XDG_CACHE_HOME": "/dev/null", **line}
    )
    with suppress(SystemExit):  # a shell's question ends the process
        main([], environment)
    return out.getvalue().decode().split()


def test_bare_attn_fits_a_screen_and_groups_its_commands() -> None:
    found = ask()
    assert found.code == 0
    lines = found.out.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    tried = lines[-4:]
    assert tried[0].startswith("Try: attn run")
    assert all(line.startswith("     attn ") for line in tried[1:])
    assert all(re.search(rf"\b{name}\b", found.out) for name in COMMANDS)


def test_every_command_is_in_a_group() -> None:
    assert {name: group_of(name) for name in COMMANDS if group_of(name) not in GROUPS} == {}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("page", [("--help",), ("run", "--help"), ("heads", "--help"), ("weights", "init", "--help")])
def test_help_is_drawn_at_the_terminals_width(page: tuple[str, ...], width: int) -> None:
    drawn = ask(*page, terminal=True, width=width).out
    plain = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    assert "\x1b[" in drawn
    assert all(border in plain for border in BORDERS)
    assert max(map(len, plain.splitlines())) == width
    assert ask(*page, terminal=True, width=width, NO_COLOR="1").out.count("\x1b[3") == 0
    for elsewhere in (ask(*page), ask(*page, terminal=True, LANG="C"), ask(*page, terminal=True, TERM="dumb")):
        assert not any(border in elsewhere.out for border in BORDERS)


def test_what_help_says_in_brackets_is_drawn_as_it_stands() -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ask("run", "--help", terminal=True, width=200).out)
    for told in ("[default: 64]", "[1 to 1,000,000,000]", "reformer[:BUCKETS[,ROUNDS[,CHUNK]]]"):
        assert told in plain


def test_groups_come_in_the_order_of_use() -> None:
    page = ask("run", "--help").out
    places = [
        page.index(f"\n{group}:\n") for group in ("What to look at", "Text", "Model", "Attention", "Output", "Compute")
    ]
    assert places == sorted(places)
    assert places[0] < page.index("\n  --query") < places[1]


def test_rare_options_are_listed_when_all_are_asked_for() -> None:
    short, whole = ask("run", "--help").out, ask("run", "--help-all").out
    assert "--max-output SIZE" not in short
    assert "--max-output SIZE" in whole
    assert "--help-all also lists" in short
    assert "--help-all also lists" not in whole
    assert len(whole) > len(short)


SEVERAL = {
    **dict.fromkeys(("ablate", "cost", "explore", "find", "heads", "logits", "patch", "why"), 8), "explain multihead": 4
}  # fmt: skip
"""Heads of seeded weights of the commands that have more than one of them."""


def test_every_option_tells_one_default_in_words_of_its_own_command() -> None:
    for path, command in commands():
        name = path.removesuffix(" start")
        page = " ".join(ask(*name.split(), "--help-all").out.split())
        records = re.split(r" (?=-{1,2}[a-z])", page)
        twice = [told for told in records if told.count("[default:") > 1]
        assert not twice, f"{path}: {twice}"
        assert "<" not in page, f"{path} names a type"
        told = {one.opts[0]: one.help or "" for one in command.params if one.param_type_name == "option"}
        if "--num-heads" in told and name not in ("mask", "weights show", "weights convert", "weights init"):
            assert f"[default: {SEVERAL.get(name, 1)}]" in told["--num-heads"], path
        if "--show" in told and name != "view":
            assert re.search(r"--show PARTS [^\[]*\[", page), f"{path} does not say what --show takes"
    assert "[default: 512]" in ask("cost", "--help").out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("run", "--mask", "ca"), ["causal"]),
        (("run", "--tokenizer", "w"), ["word", "whitespace"]),
        (("run", "--scale", "sqrt"), ["sqrt-dk", "sqrt-dmodel"]),
        (("run", "--model", "mini"), ["minilm"]),
        (("run", "--show", "weights,sc"), ["weights,scores"]),
        (("heads", "--metric", "ent"), ["entropy"]),
        (("explain", "sof"), ["softmax"]),
        (("weights", "show", str(SAMPLES / "mha.safetensors"), "--prefix", "in"), ["in_proj_bias", "in_proj_weight"]),
        (("he",), ["heads"]),
        (("schema", "attn.r"), ["attn.run/1"]),
        (("guide", "lea"), ["learners"]),
        (("explain", "metric", "entr"), ["entropy"]),
        (("heads", "--sort", "dist"), ["distance"]),
        (("heads", "--sort", "entropy:"), ["entropy:asc", "entropy:desc"]),
        (("heads", "--exclude", "self,fi"), ["self,first"]),
        (("mask", "ca"), ["causal"]),
        (("models", "show", "mini"), ["minilm"]),
        (("explain", "mul"), ["multihead"]),
    ],
)
def test_values_are_completed(words: tuple[str, ...], offered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(offered) <= set(completed(*words, monkeypatch=monkeypatch))


def test_completion_loads_neither_rich_nor_torch() -> None:
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: sys.stderr.write(str(sorted({'torch', 'rich.console'} & set(sys.modules)))))\n"
        "from attncli.__main__ import main\nsys.exit(main())"
    )
    line = {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": "attn run --mask ca", "COMP_CWORD": "3"}
    done = finish([sys.executable, "-c", program], line)
    assert (done.stdout.split(), done.stderr) == (["causal"], "[]")


SHELL = "bash, zsh, fish, powershell, pwsh"


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
@pytest.mark.parametrize("rest", [("=tcsh",), ("tcsh",), ("bash", "zsh"), ("",)], ids=str)
def test_a_shell_without_completion_is_misuse(option: str, rest: tuple[str, ...]) -> None:
    line = [f"{option}{rest[0]}"] if rest[0][:1] == "=" else [option, *rest]
    found = ask(*line)
    assert (found.code, found.out) == (2, "")
    assert SHELL in found.err
    assert f"try: attn {option} bash" in found.err


def test_a_shell_that_cannot_be_found_out_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: None)
    assert ask("--show-completion").code == 2
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "zsh")
    for shell, begins in (("zsh", "#compdef attn"), ("fish", "complete --command attn"), ("bash", "_attn_completion")):
        assert ask("--show-completion", shell).out.startswith(begins)
        assert ask(f"--show-completion={shell}").out.startswith(begins)
    assert ask("--show-completion").out == ask("--show-completion", "zsh").out


def test_completion_is_installed_for_the_shell_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = ask("--install-completion", "fish")
    assert found.code == 0, found.err
    [script] = tmp_path.rglob("attn.fish")
    assert str(script) in found.out
    assert script.read_text() == ask("--show-completion", "fish").out
    monkeypatch.setenv("HOME", str(script))
    refused = ask("--install-completion", "bash")
    assert (refused.code, refused.out) == (1, "")
    assert "try: attn --show-completion bash" in refused.err


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        ({"_ATTN_COMPLETE": "tcsh"}, "_ATTN_COMPLETE is 'tcsh'"),
        ({"_ATTN_COMPLETE": "complete_tcsh"}, "_ATTN_COMPLETE is 'complete_tcsh'"),
        ({"_ATTN_COMPLETE": "bash_complete"}, "_ATTN_COMPLETE is 'bash_complete'"),
        ({"_ATTN_COMPLETE": "complete_bash"}, "COMP_WORDS is not set"),
        ({"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": "attn r"}, "COMP_CWORD is ''"),
        ({"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": "attn r", "COMP_CWORD": "-1"}, "COMP_CWORD is '-1'"),
    ],
    ids=str,
)
def test_a_shell_that_asks_wrongly_is_told_what_is_wrong(asks: dict[str, str], says: str) -> None:
    found = ask("run", "a b", **asks)
    assert (found.code, found.out) == (2, "")
    assert says in found.err
    assert "try: attn --show-completion bash" in found.err


def test_a_shell_that_has_done_asking_gets_one_answer() -> None:
    assert ask("run", "a b", _ATTN_COMPLETE="") == ask("run", "a b")


def test_a_file_that_is_no_text_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{tmp_path}/\udcff.json"
    Path(name).write_text("")
    line = {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": f"attn run --tokenizer {tmp_path}/", "COMP_CWORD": "3"}
    with start(attn(), line) as process:
        out, err = process.communicate(timeout=60)
    assert (out.strip(), err) == (os.fsencode(name), b"")


def test_attn_alone_refuses_a_language_that_it_does_not_speak() -> None:
    for line, variables in (
        (("--lang", "xx"), {}), (("--lang=xx",), {}), (("--lang", ""), {}), ((), {"ATTN_LANG": "xx"}),
    ):  # fmt: skip
        found = ask(*line, **variables)
        assert (found.code, found.out) == (2, ""), line
        assert "expected: en, zh" in found.err
    assert ask("--lang", "en", ATTN_LANG="xx").code == 0


def test_no_text_and_the_null_device_mean_the_sample() -> None:
    done = finish(attn("heads", "--num-heads", "8", "--brief"))
    assert done.returncode == 0
    assert done.stderr.startswith("no text given; using the sample")
    assert finish(attn("heads"), given=b"").returncode == 3
    with (SAMPLES.parent / "attncli" / "py.typed").open("rb") as empty:
        assert finish(attn("heads"), stdin=empty).returncode == 3
