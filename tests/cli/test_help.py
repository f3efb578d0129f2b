"""Help: by groups in the order of use, drawn at a terminal, plain elsewhere; what a shell
completes.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import suppress
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from asking import ask
from commands import commands, example
from processes import attn, finish, start

from attncli.cli import main
from attncli.cli.app import COMMANDS, GROUPS, group_of
from attncli.cli.environment import Environment
from attncli.cli.help_page import TAIL, group_title, translate
from attncli.cli.option import EVERYWHERE, KEPT
from attncli.draw.safe import cells

SAMPLES = Path(__file__).parents[2] / "sample_inputs"


def completed(*words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is offered for the last of the words."""
    line = {
        "_ATTN_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["attn", *words]),
        "COMP_CWORD": str(len(words)),
    }
    for name, value in line.items():
        monkeypatch.setenv(name, value)
    out = BytesIO()
    environment = Environment(
        stdin=BytesIO(),
        stdout=out,
        stderr=StringIO(),
        variables={"XDG_CACHE_HOME": "/dev/null", **line},
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
    outside = [name for name in COMMANDS if group_of(name) not in GROUPS]
    assert outside == [], "GROUPS of attncli/cli/app.py puts each under a heading of attn --help"


PAGES = [path.removesuffix(" start").split() for path, _ in commands()]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("path", [*PAGES, ["models"], ["weights"]], ids=" ".join)
def test_h_is_one_screen(path: list[str], lang: str) -> None:
    """With the command above it and the prompt below, 24 lines of 80 cells; an example; ten options
    at most.
    """
    answer = ask(*path, "-h", "--lang", lang)
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert len(lines) <= 22
    assert all(cells(line) <= 80 for line in lines)
    assert sum(line.startswith("  -") for line in lines) <= 10
    assert f"attn {' '.join(path)}" in answer.out
    if path not in (["models"], ["weights"]):
        assert f"attn {' '.join(path)} --help" in lines[-1]


def test_the_options_of_one_screen_are_options_of_the_command() -> None:
    for path, command in commands():
        spelled = {name for one in command.params for name in one.opts}
        names = getattr(command, "essentials", ())
        assert set(names) <= spelled, path
        assert len(names) <= 10, path


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("path", [*PAGES, []], ids=" ".join)
def test_pages_wrap_at_the_terminals_width(path: list[str], lang: str, width: int) -> None:
    out = ask(*path, "--help", width=width, ATTN_LANG=lang).out
    assert max(map(cells, out.splitlines())) <= width
    whole = "".join(out.split())  # every sentence is there to its end, wherever it is broken
    own = {name.removesuffix(" start"): command for name, command in commands()}
    for one in own[" ".join(path)].params if path else ():
        group = group_title(one)
        if group == KEPT:
            continue
        if group == EVERYWHERE:  # explained once, by attn --help
            assert next(name for name in one.opts if name.startswith("--")) in whole
            continue
        assert "".join(translate(TAIL.sub("", one.help or ""), lang).split()) in whole, one.opts


def test_what_run_takes_is_few() -> None:
    lines = ask("run", "--help").out.splitlines()
    assert sum(re.match(r"  -", line) is not None for line in lines) <= 55


def test_pages_obey_the_colour_that_is_asked_for() -> None:
    for page in ("-h", "--help"):
        assert "\x1b[" in ask("run", page, terminal=True).out
        assert "\x1b[" in ask("run", page, "--color", "always").out
        assert "\x1b[" in ask("run", "--colour=always", page).out
        for quiet in (ask("run", page), ask("run", page, terminal=True, NO_COLOR="1")):
            assert "\x1b[" not in quiet.out
        for never in (("--color", "never"), ("--color=never",)):
            assert "\x1b[" not in ask("run", page, *never, terminal=True).out
        assert "\x1b[" not in ask("run", page, terminal=True, ATTN_COLOR="never").out
        assert "\x1b[" not in ask("run", page, terminal=True, TERM="dumb").out
    assert "\x1b[" in ask("--help", terminal=True).out
    assert "\x1b[" not in ask("--help", terminal=True, ATTN_COLOR="never").out
    colored = re.sub(r"\x1b\[[0-9;]*m", "", ask("run", "--help", terminal=True).out)
    assert colored == ask("run", "--help").out
    assert ask("run", "--help", LANG="C").out.isascii()


def test_a_page_is_asked_for_anywhere_but_as_a_value() -> None:
    assert ask("run", "a b", "--query", "b", "-h").out == ask("run", "-h").out
    assert ask("run", "a -h", "--query", "-h", "--tokenizer", "whitespace", "--brief").code == 0
    assert ask("run", "--", "-h").out != ask("run", "-h").out


def test_what_help_says_in_brackets_stands_as_it_is() -> None:
    page = ask("run", "--help", width=100).out
    for said in ("[default: 64]", "reformer[:BUCKETS[,ROUNDS[,CHUNK]]]", "L5H11"):
        assert said in page
    assert "1,000,000,000]" not in page


def test_a_default_that_is_typed_is_not_translated() -> None:
    """What a reader would type stays as it is; a default told in words is translated."""
    shown = ask("run", "--help", "--lang", "zh", width=200).out
    for default in ("word", "none", "sqrt-dk", "可用内存", "有几个头时"):
        assert f"[默认：{default}]" in shown, default
    for command, default in (("answer", "links"), ("logits", "part"), ("scan start", "here")):
        shown = ask(*command.split(), "--help", "--lang", "zh", width=200).out
        assert f"[默认：{default}]" in "".join(shown.split()), default


def test_what_is_looked_at_comes_first_where_heads_are_taken_away() -> None:
    page = ask("ablate", "--help").out
    section = page[page.index("What to look at:") : page.index("\nText:")]
    for name in (
        "--layer",
        "--head",
        "--from",
        "--to",
        "--query",
        "--measure",
        "--target",
        "--every",
    ):
        assert re.search(rf"  (-\w, )?{name} ", section)


def test_groups_come_in_the_order_of_use() -> None:
    page = ask("run", "--help").out
    places = [
        page.index(f"\n{group}:\n")
        for group in ("What to look at", "Text", "Model", "Attention", "Output", "Compute")
    ]
    assert places == sorted(places)
    assert places[0] < page.index("\n  --query") < places[1]


@pytest.mark.parametrize("path", [("learn",), ("weights", "init"), ("explain", "scaling")])
def test_no_group_without_model_where_no_model_is_taken(path: tuple[str, ...]) -> None:
    page = ask(*path, "--help").out
    assert "--model " not in page
    assert "Without --model" not in page
    assert page.count("\nModel:") == 1
    assert "Without --model" in ask("run", "--help").out


def test_help_lists_every_option() -> None:
    for path, command in commands():
        page = ask(*path.removesuffix(" start").split(), "--help").out
        for one in command.params:
            is_listed = one.opts[0] in page or group_title(one) == KEPT
            assert one.param_type_name == "argument" or is_listed, f"{path} {one.opts[0]}"
    assert ask("run", "--help-all").out == ask("run", "--help").out  # as it was once called
    assert "--svg" not in ask("run", "--help").out


UNSEEN = {"explore": 8, "logits": 8, "learn": "the task's"}
"""Heads of seeded weights of the commands whose documents do not tell them."""
WITHOUT = ("mask", "weights show", "weights convert", "weights init")
"""Commands whose number of heads has no default."""


def heads_of(path: str) -> int:
    """How many heads the weights have with which a command shows its example, where none are asked
    for.
    """
    line = " ".join(shlex.quote(word) for word in example(path))
    document = ask(*shlex.split(re.sub(r" --(num-heads|model) \S+", "", line)), "--json").json
    document = document.get("a", document)
    heads = (document.get("model") or document)["heads"]
    assert isinstance(heads, int)
    return heads


def test_every_option_tells_one_default_in_words_of_its_own_command() -> None:
    for path, command in commands():
        name = path.removesuffix(" start")
        page = " ".join(ask(*name.split(), "--help").out.split())
        records = re.split(r" (?=-{1,2}[a-z])", page)
        twice = [told for told in records if told.count("[default:") > 1]
        assert not twice, f"{path}: {twice}"
        told = {
            one.opts[0]: one.help or "" for one in command.params if one.param_type_name == "option"
        }
        if "--num-heads" in told and name not in WITHOUT:
            heads = UNSEEN.get(name) or heads_of(name)
            assert f"[default: {heads}]" in told["--num-heads"], path
        if "--show" in told and name != "view":
            assert re.search(r"--show PARTS [^\[]*\[", page), (
                f"{path} does not say what --show takes"
            )
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
        (
            ("weights", "show", str(SAMPLES / "mha.safetensors"), "--prefix", "in"),
            ["in_proj_bias", "in_proj_weight"],
        ),
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
        (("find", "'the cat, the mat'", "--from", "t"), ["the", "the:2"]),
        (("find", "--model", "mini", "'the cat'", "--head", "L1H2", "--to", "c"), ["cat"]),
        (("run", "'买菜 今天'", "--tokenizer", "whitespace", "--query", "今"), ["今天"]),
        (("run", "ab", "--tokenizer=char", "--query", "b"), ["b"]),
        (("explain", "qkv", "'a cat'", "--query", "c"), ["cat"]),
    ],
)
def test_values_are_completed(
    words: tuple[str, ...], offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(offered) <= set(completed(*words, monkeypatch=monkeypatch))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("find", "--from", "t"), []),
        (("find", "'it''s", "--from", "t"), []),
        (("find", "minilm", "--model", "--from", "m"), ["minilm"]),
        (("find", '"don\'t tie it"', "--from", "t"), ["tie"]),
        (("find", '"don\'t tie it"', "--from", "d"), []),
        (("find", str(SAMPLES / "corpus.txt"), "--from", ""), []),
    ],
)
def test_tokens_are_offered_of_texts_alone(
    words: tuple[str, ...], offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No word that a shell would read otherwise, no name of a file, and no error of an odd line."""
    assert completed(*words, monkeypatch=monkeypatch) == offered


def test_completion_loads_neither_rich_nor_torch() -> None:
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: sys.stderr.write(str(sorted({'torch', 'rich.console'} & set(sys.modules)))))\n"
        "from attncli.__main__ import main\nsys.exit(main())"
    )
    line = {
        "_ATTN_COMPLETE": "complete_bash",
        "COMP_WORDS": 'attn find "the cat sat" --model minilm --from ca',
        "COMP_CWORD": "6",
    }
    done = finish([sys.executable, "-c", program], line)
    assert (done.stdout.split(), done.stderr) == (["cat"], "[]")


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
    for shell, begins in (
        ("zsh", "#compdef attn"),
        ("fish", "complete --command attn"),
        ("bash", "_attn_completion"),
    ):
        assert begins in ask("--show-completion", shell).out
        assert begins in ask(f"--show-completion={shell}").out
    assert ask("--show-completion").out == ask("--show-completion", "zsh").out


def test_completion_is_installed_for_the_shell_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        (
            {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": "attn r", "COMP_CWORD": "-1"},
            "COMP_CWORD is '-1'",
        ),
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


def test_a_file_that_is_no_text_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{tmp_path}/\udcff.json"
    Path(name).write_text("")
    line = {
        "_ATTN_COMPLETE": "complete_bash",
        "COMP_WORDS": f"attn run --tokenizer {tmp_path}/",
        "COMP_CWORD": "3",
    }
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


def test_a_terminal_of_a_locale_that_attn_speaks_is_told_so() -> None:
    hint = "中文帮助：attn --help --lang zh"
    assert hint in ask("--help", terminal=True, LANG="zh_CN.UTF-8").out
    assert hint in ask("--help", terminal=True, LC_ALL="zh_TW.UTF-8", LANG="en_US.UTF-8").out
    # not in pipes, for other locales, without the characters, or where the language is chosen
    assert "中文" not in ask("--help", LANG="zh_CN.UTF-8").out
    assert "中文" not in ask("--help", terminal=True, LANG="de_DE.UTF-8").out
    assert "中文" not in ask("--help", terminal=True, LANG="zh_CN.GB2312").out
    assert "中文" not in ask("--help", terminal=True, LANG="zh_CN.UTF-8", ATTN_LANG="en").out
    assert hint not in ask("--help", terminal=True, LANG="zh_CN.UTF-8", ATTN_LANG="zh").out
    assert "中文" not in ask("run", "--help", terminal=True, LANG="zh_CN.UTF-8").out
