"""Any two options about the answer: both are heeded, or the command line is refused with a word;
none is dropped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest
from asking import ask
from commands import commands, examples
from processes import BUFFERINGS, attn, start
from scanning import inside
from small_gpt2 import small_gpt2

from attncli.cli.option import EVERYWHERE, OUTPUT
from attncli.inputs.files import place_of

WEIGHTS = str(Path(__file__).parents[2] / "sample_inputs" / "mha.safetensors")
PAIRS = str(Path(__file__).parents[2] / "sample_inputs" / "pairs.jsonl")
CAPTURED = str(Path(__file__).parents[2] / "sample_inputs" / "captured.npz")
TEXT = " ".join(f"w{number}" for number in range(40))
BASES: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens", TEXT),
    "explain softmax": ("explain", "softmax"),
    "explain metric": ("explain", "metric", "entropy"),
    "explain rule": ("explain", "rule", "line-start"),
    "mask": ("mask", "causal"),
    "models show": ("models", "show", "{t}/gpt2"),
    "models fetch": ("models", "fetch", "{t}/gpt2"),
    "weights show": ("weights", "show", WEIGHTS),
    "weights init": ("weights", "init", "{t}/out/new.npz"),
    "weights convert": ("weights", "convert", WEIGHTS, "{t}/out/new.npz", "--num-heads", "4"),
    "guide": ("guide", "learners"),
}
LONG: dict[str, tuple[str, ...]] = {
    "scan show": ("scan", "show", "{t}/scan"),
    "cache": ("cache", "the cat sat", "--mask", "causal", "--num-heads", "2"),
    "why": ("why", "the cat sat", "--from", "sat", "--to", "cat", "--num-heads", "2"),
    "patch": ("patch", "the cat sat", "the dog sat", "--num-heads", "2", "--residual"),
    "find": ("find", TEXT, "--from", "w1", "--to", "w2"),
    "explain matrix-softmax": ("explain", "matrix-softmax", "a b c"),
    "scan compare": ("scan", "compare", "{t}/scan", "{t}/scan"),
    "run": ("run", TEXT, "--num-heads", "2"),
    "heads": ("heads", TEXT),
    "tensors": ("tensors", CAPTURED),
    "explain": ("explain", TEXT),
    "explain scaling": ("explain", "scaling", "--samples", "60"),
    "explain order": ("explain", "order", TEXT),
    "explain position": ("explain", "position", TEXT),
    "explain mask": ("explain", "mask", TEXT),
    "explain multihead": ("explain", "multihead", TEXT),
    "explain qkv": ("explain", "qkv", TEXT),
    "explain seq2seq": ("explain", "seq2seq", TEXT, TEXT),
    "check": ("check",),
    "explain residual": ("explain", "residual", TEXT),
    "explain training": ("explain", "training", TEXT),
    "compare": ("compare", TEXT, f"{TEXT} x"),
    "cross": ("cross", TEXT, "a dog"),
    "cost": ("cost",),
    "ablate": ("ablate", "the cat sat", "--num-heads", "2", "--residual"),
    "logits": ("logits", "the cat sat", "--model", "{t}/gpt2"),
    "answer": (
        "answer",
        "the cat sat",
        "--model",
        "{t}/gpt2",
        "--region",
        "r=tokens:0-1",
        "--tokens",
        "4",
    ),
    "circuit": ("circuit", "--pairs", PAIRS, "--model", "{t}/gpt2"),
    "pairs check": ("pairs", "check", PAIRS, "--model", "{t}/gpt2"),
    "next": ("next", "the cat sat", "--model", "{t}/gpt2"),
    "view": ("view", "{t}/run.json"),
    "models list": ("models", "list"),
    "learn": ("learn", "order", "--steps", "3"),
    "series": ("series", "{t}/gpt2", "{t}/again", "--text", "a b c d", "--fresh"),
}
"""Those whose answers take longer."""
VARIANTS: dict[str, tuple[str, ...]] = {
    "ablate each region": (
        "ablate",
        "the cat sat",
        "--model",
        "{t}/gpt2",
        "--region",
        "a=tokens:0-1",
        "--each-region",
    ),
    "heads retrieval": (
        "heads",
        "--model",
        "{t}/gpt2",
        "--retrieval",
        "--needle",
        "{t}/needle",
        "--lengths",
        "24",
    ),
    "heads directions": ("heads", "the cat sat", "--model", "{t}/gpt2", "--directions", "L0H0"),
    "heads across": (
        "heads",
        "the cat sat",
        "--model",
        "{t}/gpt2",
        "--across",
        "rollout,flow,similarity",
    ),
    "logits by token": ("logits", "the cat sat", "--model", "{t}/gpt2", "--by", "token"),
    "why writes": (
        "why",
        "the cat sat",
        "--model",
        "{t}/gpt2",
        "--from",
        "sat",
        "--to",
        "cat",
        "--writes",
    ),
    "logits lens": ("logits", "the cat sat", "--model", "{t}/gpt2", "--lens"),
    "patch into": (
        "patch",
        "the cat sat",
        "the sat cat",
        "--model",
        "{t}/gpt2",
        "--into",
        "L1H0:q",
    ),
    "run regions": ("run", TEXT, "--num-heads", "2", "--region", "a=tokens:0-4"),
    "scan show head": ("scan", "show", "{t}/scan", "--head", "L0H0"),
}
"""Other documents and screens of some commands."""
VALUES = {
    "csv": "{t}/out/a.csv", "output": "{t}/out/a.txt", "svg": "{t}/out/a.svg", "html": "{t}/out/a.html",
    "search": "softmax", "notebook": "{t}/out/notebooks",
    "save": "{t}/out/a.npz", "figure_style": "dark", "figure_parts": "bars",
    "html_budget": "3kB", "precision": "5", "top": "1",
    "color": "always", "lang": "zh", "scale_colors": "log", "max_output": "1GB", "stages": "all", "show_as": "heads",
    "site": "{t}/out/site", "snapshots": "2", "show": "all", "code": "numpy", "fail_above": "9", "baseline": "all",
    "expect": "weight<=1",
}  # fmt: skip
"""A value for each option that takes one."""
FILES = {name for name, value in VALUES.items() if value.startswith("{t}")}
ELSEWHERE = {"explore", "models verify", "scan start", "scan verify", "scan export", "schema"}
"""Commands with a screen of their own, or with an answer that takes long and has no options that
this is about.
"""
BASES |= examples({**BASES, **LONG}, ELSEWHERE)
NO_PAIR = {"help": "answered by Typer", "debug": "shows itself in errors alone", "step": "waits for a key",
           "browse": "opens a window"}  # fmt: skip
FINE = {
    *((machine, "lang") for machine in ("json", "ndjson", "plain")),  # notes and errors speak it
    *(
        ("brief", look) for look in ("color", "ascii")
    ),  # an answer may have neither colours nor signs
    *(
        (machine, "show") for machine in ("json", "ndjson", "plain")
    ),  # of `run` and `heads`: all parts are there
    *(("show_as", look) for look in ("full", "top")),  # two heads are shown whole
}
"""Pairs of which the second changes nothing beside the first, and is not dropped."""


class Result(NamedTuple):
    """What a command line gave: its exit code, what it answered and said, and the files that it
    wrote, by name.
    """

    code: int
    out: str
    err: str
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command lines name: a small checkpoint, a scan by it, and a saved run."""
    made = tmp_path_factory.mktemp("pairs")
    shutil.copytree(small_gpt2(made / "gpt2"), made / "again")
    (made / "texts").write_text("the cat sat\na dog\n" * 3)
    (made / "needle").write_text("the cat\tsat\n")
    with inside():
        assert (
            ask("scan", str(made / "gpt2"), str(made / "texts"), "--out", str(made / "scan")).code
            == 0
        )
    (made / "run.json").write_text(ask("run", TEXT, "--num-heads", "2", "--json").out)
    return made


def result(folder: Path, *line: str) -> Result:
    """What a line gives in a folder without files."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    answer = ask(*(part.replace("{t}", str(folder)) for part in line))
    return Result(
        answer.code,
        answer.out,
        answer.err,
        {
            path.relative_to(out).as_posix(): path.read_bytes()
            for path in out.rglob("*")
            if path.is_file()
        },
    )


@cache
def options(command: str) -> dict[str, tuple[str, ...]]:
    """The options about the answer of a command, each with its value."""
    found = {}
    for parameter in dict(commands())[command].params:
        group = getattr(parameter, "rich_help_panel", None)
        about = group in (OUTPUT, EVERYWHERE) or parameter.name in VALUES
        if parameter.param_type_name == "option" and about and parameter.name not in NO_PAIR:
            assert parameter.is_flag or parameter.name in VALUES, (
                f"{parameter.opts[0]}: write a value for it in VALUES"
            )
            value = [] if parameter.is_flag else [VALUES[parameter.name]]
            found[parameter.name] = (parameter.opts[0], *value)
    return found


FEW = 5
"""A pair that more commands have is common: all that they do with it is one piece of code."""


def command_of(name: str) -> str:
    """The command of a line of this name."""
    line = {**BASES, **LONG, **VARIANTS}[name]
    return next(command for command in (" ".join(line[:2]), line[0]) if command in dict(commands()))


@cache
def commands_with() -> dict[tuple[str, str], list[str]]:
    """The commands that have each pair."""
    found: dict[tuple[str, str], list[str]] = {}
    for command in {**BASES, **LONG}:
        for pair in combinations(options(command), 2):
            found.setdefault(pair, []).append(command)
    return found


def pairs(name: str) -> Iterator[tuple[str, str]]:
    """The pairs that are tried with a line of this name: all of them, or, where answers take
    longer, those that few commands have and a fifth of the common ones, which such commands deal
    out among themselves."""
    command, turns = command_of(name), {pair: turn for turn, pair in enumerate(commands_with())}
    for pair in combinations(options(command), 2):
        owners = commands_with()[pair]
        slow = [owner for owner in owners if owner in LONG]
        seat = (
            slow.index(command)
            if name in LONG
            else [*VARIANTS].index(name)
            if name in VARIANTS
            else 0
        )
        if (
            name in BASES
            or len(owners) <= FEW
            or (seat + turns[pair]) % min(5, len(slow) or 5) == 0
        ):
            yield pair


def dropped(
    folder: Path, command: str, base: tuple[str, ...], pairs: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """Every option that another leaves without any effect, and without a word."""
    given = options(command)
    bare, alone = (
        result(folder, *base),
        {name: result(folder, *base, *option) for name, option in given.items()},
    )
    for pair in pairs:
        both = result(folder, *base, *given[pair[0]], *given[pair[1]])
        if both.code == 2:
            if (
                not any(given[name][0] in both.err for name in pair)
                or both.out
                or both.files.keys() - {"new.npz"}
            ):
                yield f"{pair}: {both}"
            continue
        for first, second in (pair, pair[::-1]):
            # an option that is refused without a third, or changes nothing here, has nothing to
            # lose
            heeded = alone[second].code or alone[second] == bare or both[1:] != alone[first][1:]
            if (
                both.code
                or alone[second].files.keys() - both.files.keys()
                or not (heeded or (first, second) in FINE)
            ):
                yield f"{second} beside {first}"


@pytest.mark.many
@pytest.mark.parametrize(
    "command", [*BASES, *(pytest.param(name, marks=pytest.mark.thorough) for name in LONG)], ids=str
)
def test_no_option_about_the_answer_drops_another(command: str, folder: Path) -> None:
    assert list(dropped(folder, command, {**BASES, **LONG}[command], pairs(command))) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "scan show head" else pytest.mark.thorough)
        for name in VARIANTS
    ],
)
def test_no_option_drops_another_of_a_variant(name: str, folder: Path) -> None:
    line = VARIANTS[name]
    assert result(folder, *line).code == 0
    fine = {
        "heads directions": {"top beside brief", "full beside show", "full beside top"},
        "heads across": {"full beside top"},
    }
    assert (
        set(dropped(folder, command_of(name), line, pairs(name))) - fine.get(name, set()) == set()
    )  # there `--top` chooses heads, and so few are shown whole


def test_every_command_is_paired() -> None:
    assert {name for name, _ in commands()} == BASES.keys() | LONG.keys() | ELSEWHERE


def test_the_pairs_would_show_a_drop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "attncli.cli.output_conflicts.refuse_contradictions", lambda *given, **named: None
    )
    pair = [pair for pair in combinations(options("patch"), 2) if {*pair} == {"brief", "top"}]
    assert list(dropped(folder, "patch", LONG["patch"], pair)) == ["top beside brief"]


def test_lines_that_take_longer_try_every_pair_between_them() -> None:
    tried = {(pair, command) for command in LONG for pair in pairs(command)}
    for pair, owners in commands_with().items():
        slow = {owner for owner in owners if owner in LONG}
        assert not slow or {command for command in slow if (pair, command) in tried}, pair
        assert len(owners) > FEW or all((pair, command) in tried for command in slow)


def spellings(folder: Path) -> list[str]:
    """One place that does not exist yet, as it may be written."""
    (folder / "deep").mkdir()
    (folder / "link").symlink_to("deep")
    (folder / "dangling").symlink_to("deep/x.npz")
    os.chdir(folder)
    return [
        "deep/x.npz",
        "./deep/x.npz",
        f"{folder}/deep/x.npz",
        "deep/../deep//x.npz",
        "link/x.npz",
        "dangling",
    ]


@pytest.fixture
def spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return spellings(tmp_path)


def test_two_outputs_at_one_place_are_refused_however_it_is_spelled(
    spelled: list[str], tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    for first, second in combinations(spelled, 2):
        for pair in (("--output", "--csv"), ("--csv", "--output")):
            answer = ask("run", "a b", pair[0], first, pair[1], second)
            assert (answer.code, answer.out) == (2, ""), (first, second)
            assert "--output and --csv are the same file" in answer.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", {**BASES, **LONG})
def test_every_two_files_of_a_command_are_compared(command: str, folder: Path) -> None:
    given = {name: option[0] for name, option in options(command).items() if name in FILES}
    (folder / "deep").mkdir(exist_ok=True)
    for pair in combinations(given, 2):
        # the ending that one of them asks for, so that the other takes it, too
        ending = next(
            (Path(VALUES[name]).suffix for name in pair if name in ("svg", "html", "save")), ".txt"
        )
        line = (
            given[pair[0]],
            f"{folder}/same{ending}",
            given[pair[1]],
            f"{folder}/deep/../same{ending}",
        )
        answer = ask(
            *(part.replace("{t}", str(folder)) for part in {**BASES, **LONG}[command]), *line
        )
        assert (answer.code, answer.out) == (2, ""), answer
        told = "are the same file" in answer.err or (len({*pair} & {"svg", "html", "save"}) > 1)
        assert told, answer
        assert not (folder / f"same{ending}").exists()


@pytest.mark.parametrize(
    "twice",
    [
        ("--figure", "a.svg", "--svg", "b.svg"),
        ("--output", "a", "-o", "b"),
        ("--csv", "a", "--csv", "./a"),
        ("--lang", "en", "--lang", "zh"),
        ("--show", "links", "--show", "weights"),
        ("--seed", "1", "--seed=2"),
        ("--bias", "--no-bias"),
    ],
    ids=" ".join,
)
def test_an_option_that_takes_one_value_is_not_given_two(
    twice: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = ask("run", "a b", *twice)
    assert (answer.code, answer.out) == (2, "")
    assert "is given twice" in answer.err or "给了两次" in answer.err
    assert list(tmp_path.iterdir()) == []
    assert (
        ask(
            "run",
            "a b",
            "--seed",
            "1",
            "--seed",
            "1",
            "--json",
            "--json",
            "--layer",
            "0",
            "--layer",
            "0",
        ).code
        == 0
    )


def test_a_folder_that_knows_no_capitals_has_one_place_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Seen").write_text("")
    assert place_of(tmp_path / "x.svg") != place_of(tmp_path / "X.SVG")
    assert ask("run", "a b", "--csv", str(tmp_path / "x"), "-o", str(tmp_path / "X")).code == 0
    same = Path.samefile
    monkeypatch.setattr(
        Path,
        "samefile",
        lambda self, other: self.name.lower() == other.name.lower() or same(self, other),
    )
    assert place_of(tmp_path / "y.svg") == place_of(tmp_path / "Y.SVG")
    assert place_of(tmp_path / "\u00e9") == place_of(tmp_path / "e\u0301")
    assert ask("run", "a b", "--csv", str(tmp_path / "y"), "-o", str(tmp_path / "Y")).code == 2


@BUFFERINGS
def test_standard_output_is_one_of_the_files(buffering: dict[str, str], tmp_path: Path) -> None:
    for name in (str(tmp_path / "out"), "/dev/stdout"):
        with (
            (tmp_path / "out").open("wb") as out,
            start(attn("run", "a b", "--csv", name), buffering, stdout=out) as ran,
        ):
            _, err = ran.communicate(timeout=60)
        assert (ran.returncode, b"standard output and --csv are the same file" in err) == (2, True)
        assert (tmp_path / "out").read_bytes() == b""
    assert (
        "contradict each other" in ask("run", "a b", "--csv", "-", "--json").err
    )  # that is the table itself
