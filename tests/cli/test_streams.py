"""Standard output that closes, fills up or breaks half-way; with Python's own buffers and without."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from asking import ask
from commands import commands, examples
from processes import BUFFERINGS, LIMIT, WAYS, Ended, Out, attn, finish, fork_each, start
from scanning import inside
from small_gpt2 import small_gpt2

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
LONG = " ".join(f"word{n}" for n in range(120))

COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", LONG),
    "run --plain": ("run", LONG, "--plain"),
    "run --json": ("run", LONG, "--json"),
    "run --lines --ndjson": ("run", "\n".join([LONG] * 3), "--lines", "--ndjson"),
    "heads": ("heads", LONG, "--json"),
    "explain": ("explain", "a b c"),
    "softmax": ("explain", "softmax"),
    "metric": ("explain", "metric"),
    "rule": ("explain", "rule"),
    "matrix-softmax": ("explain", "matrix-softmax", "a b"),
    "scaling": ("explain", "scaling"),
    "order": ("explain", "order", "a b"),
    "position": ("explain", "position", "a b"),
    "mask topic": ("explain", "mask", "a b"),
    "multihead": ("explain", "multihead", "a b"),
    "residual": ("explain", "residual", "a b"),
    "qkv": ("explain", "qkv", "a b"),
    "training": ("explain", "training", "a b"),
    "seq2seq": ("explain", "seq2seq", "a b", "c d"),
    "check": ("check",),
    "find": ("find", "a b", "--from", "a", "--to", "b"),
    "compare": ("compare", "a b", "a c"),
    "cross": ("cross", "a b", "c d"),
    "tensors": ("tensors", str(SAMPLES / "captured.npz")),
    "ablate": ("ablate", "a b", "--num-heads", "2", "--residual"),
    "logits": ("logits", "a b c", "--model", "{t}/gpt2", "--json"),
    "pairs": ("pairs", "check", str(SAMPLES / "pairs.jsonl"), "--model", "{t}/gpt2"),
    "next": ("next", "a b c", "--model", "{t}/gpt2"),
    "answer": (
        "answer",
        "a b c",
        "--model",
        "{t}/gpt2",
        "--region",
        "r=tokens:0-1",
        "--tokens",
        "4",
    ),
    "circuit": ("circuit", "--pairs", str(SAMPLES / "pairs.jsonl"), "--model", "{t}/gpt2"),
    "patch": ("patch", "a b", "a c", "--num-heads", "2", "--residual"),
    "find --effect": ("find", "a b", "--from", "a", "--to", "b", "--residual", "--effect"),
    "view": ("view", "{t}/run.json"),
    "guide": ("guide", "learners"),
    "mask": ("mask",),
    "cost": ("cost",),
    "tokens": ("tokens", LONG, "--json"),
    "weights": ("weights", "show", str(SAMPLES / "mha.safetensors")),
    "weights init": ("weights", "init", "{t}/new.npz"),
    "weights convert": (
        "weights",
        "convert",
        str(SAMPLES / "mha.safetensors"),
        "{t}/new.npz",
        "--num-heads",
        "4",
        "--quiet",
    ),
    "models": ("models", "list"),
    "models show": ("models", "show", "{t}/gpt2"),
    "models fetch": ("models", "fetch", "{t}/gpt2", "--quiet"),
    "learn": ("learn", "order", "--steps", "2"),
    "cache": ("cache", "a b c d", "--mask", "causal", "--quiet"),
    "why": ("why", "a b", "--num-heads", "2", "--from", "b", "--to", "a"),
    "series": ("series", "{t}/gpt2", "{t}/again", "--text", "a b c", "--quiet"),
    "scan show": ("scan", "show", "{t}/scan"),
    "scan compare": ("scan", "compare", "{t}/scan", "{t}/scan"),
    "schema": ("schema", "attn.run/1"),
    "schemas": ("schema",),
    "--help": ("--help",),
    "run --help": ("run", "--help"),
    "help": ("help", "weights"),
    "bare": (),
    "--version": ("--version",),
}
COMMANDS |= examples(COMMANDS, elsewhere=("explore",))


SLOW: dict[str, tuple[str, ...]] = {
    "models verify": ("models", "verify", "{t}/gpt2"),
    "scan": ("scan", "{t}/gpt2", "{t}/corpus.txt", "-o", "{t}/scan"),
    "scan verify": ("scan", "verify", "{t}/scan"),
}
"""These load torch, and transformers."""
LOADED = (
    "attncli.arrays.torch_backend",
    "attncli.scan.engines",
    "transformers.models.gpt2.modeling_gpt2",
)
PARTS = {**{f"part {n}": dict([*COMMANDS.items()][n::3]) for n in range(3)}, "slow": SLOW}
EVERY = [
    pytest.param(
        name,
        at,
        marks=pytest.mark.thorough if name != "part 0" or how == "unbuffered" else (),
        id=f"{name}-{how}",
    )
    for name in PARTS
    for at, how in enumerate(("buffered", "unbuffered"))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command lines name: a checkpoint with an output head, and a saved run."""
    made = tmp_path_factory.mktemp("streams")
    shutil.copytree(small_gpt2(made / "gpt2"), made / "again")
    (made / "run.json").write_text(ask("run", "a b c", "--json").out)
    (made / "corpus.txt").write_text("a b\nc d e\n")
    with inside():
        assert ask(*lined(SLOW["scan"], made)).code == 0
    return made


@pytest.fixture(scope="module")
def endings(folder: Path) -> Callable[[str, int], dict[Out, dict[str, Ended]]]:
    """How the command lines end with one of Python's ways to buffer, by what they write to."""

    @cache
    def found(name: str, way: int) -> dict[Out, dict[str, Ended]]:
        lines = PARTS[name]
        asked = [lined(line, folder) for line in lines.values()]
        outs: tuple[Out, ...] = ("closed", "full") if Path("/dev/full").exists() else ("closed",)
        ended = fork_each(asked, outs, WAYS[way], LOADED if lines is SLOW else ())
        return {out: dict(zip(lines, each, strict=True)) for out, each in ended.items()}

    return found


def lined(line: tuple[str, ...], folder: Path) -> list[str]:
    return [part.replace("{t}", str(folder)) for part in line]


def test_no_command_is_forgotten() -> None:
    lines = [*COMMANDS.values(), *SLOW.values()]
    told = {" ".join(line[:count]) for line in lines for count in (1, 2)}
    # what fills a terminal's screen refuses to be written elsewhere; a table of a scan is a file
    assert {name.removesuffix(" start") for name, _ in commands()} - told == {
        "explore",
        "scan export",
    }
    for given in (b"", None):
        assert ask("explore", "a b", stdin=given).code == 2


@pytest.mark.many
@pytest.mark.parametrize(("part", "way"), EVERY)
def test_a_closed_pipe_ends_quietly(part: str, way: int, endings: Callable) -> None:
    ended = endings(part, way)["closed"]
    assert {name: end for name, end in ended.items() if (end.code, end.told) != (0, "")} == {}
    assert list(ended) == list(PARTS[part])


@pytest.mark.many
@BUFFERINGS
def test_a_pipe_that_closes_after_the_first_line_ends_quietly(buffering: dict[str, str]) -> None:
    asked = ("run --plain", "run --json", "run --lines --ndjson", "tokens", "heads")
    found = fork_each([COMMANDS[name] for name in asked], ["one line"], buffering)
    for name, ended in zip(asked, found["one line"], strict=True):
        assert (name, ended.code, ended.told) == (name, 0, "")
        assert ended.taken > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(("part", "way"), EVERY)
def test_a_full_device_is_one_error(part: str, way: int, endings: Callable) -> None:
    ended = endings(part, way)["full"]
    assert list(ended) == list(PARTS[part])
    for name, (code, told, _) in ended.items():
        assert (name, code, told.count("error")) == (name, 1, 1), told
        assert told.startswith(("error: cannot write the answer", '{"error"')), (name, told)
        assert "Exception" not in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@BUFFERINGS
def test_standard_error_that_is_full_changes_no_answer(buffering: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = finish(attn("run", "a b", "--verbose", "--json"), buffering, stderr=full)
        assert (done.returncode, done.stdout[-2:]) == (0, "}\n")
        assert finish(attn("run", "a b", "--query", "c"), buffering, stderr=full).returncode == 3


@pytest.mark.many
@BUFFERINGS
def test_a_write_that_fails_half_way_is_a_failure(buffering: dict[str, str]) -> None:
    asked = ("run", "run --plain", "run --lines --ndjson", "guide")
    found = fork_each([COMMANDS[name] for name in asked], ["limited"], buffering)
    for name, ended in zip(asked, found["limited"], strict=True):
        # whole writes stay, of which a short answer has none
        assert 0 <= ended.taken <= LIMIT, name
        assert (name, ended.code, ended.told.count("error")) == (name, 1, 1), ended.told
        assert "cannot write the answer" in ended.told


def test_a_pipe_that_does_not_block_gets_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with (
        start(attn(*COMMANDS["run --json"]), stdout=writing) as process,
        os.fdopen(reading, "rb") as stream,
    ):
        os.close(writing)
        whole = stream.read()
        assert process.wait(180) == 0
    assert whole == finish(attn(*COMMANDS["run --json"])).stdout.encode()


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="a terminal of one's own is POSIX's")
def test_an_arrow_is_one_key_and_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an arrow sends begins as Escape does: read alone, that ended `attn explain --step`, and
    the shell was typed the rest."""
    import pty

    from attncli.cli.environment import read_key
    from attncli.cli.progress import QUITTING_KEYS

    ours, theirs = pty.openpty()
    try:
        with os.fdopen(theirs, closefd=False) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            for typed, keys in (
                (b"\x1b[C", ["\x1b[C"]),
                (b"  ", [" ", " "]),
                (b"\x1b", ["\x1b"]),
                (b"q", ["q"]),
            ):
                os.write(ours, typed)
                assert [read_key() for _ in keys] == keys
        assert "\x1b[C" not in QUITTING_KEYS
    finally:
        os.close(ours)
        os.close(theirs)
