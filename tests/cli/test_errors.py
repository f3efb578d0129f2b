"""Errors at the border: how they are told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from asking import ask
from processes import finish


@pytest.mark.parametrize("machine", [(), ("--json",)])
def test_an_error_about_a_name_without_end_keeps_its_beginning_and_its_end(machine: tuple[str, ...]) -> None:
    answer = ask("run", "x", "--mask", "nope" * 100_000 + "no-end", *machine)
    assert answer.code in (2, 3)
    assert "nopenope" in answer.err
    assert " … " in answer.err
    assert len(answer.err) < 10_000


@pytest.mark.parametrize(
    "command",
    [("weights", "show", "FILE"), ("view", "FILE"), ("tensors", "FILE"), ("run", "x", "--weights", "FILE")],
)
def test_a_file_that_may_not_be_read_is_bad_input_and_no_misuse(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"x")
    opened = os.open

    def closed(name: object, *arguments: int, **named: int) -> int:
        if str(name) == str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(name, *arguments, **named)  # type: ignore[arg-type]

    # for root every file is readable
    monkeypatch.setattr(os, "access", lambda *arguments, **named: False)
    monkeypatch.setattr(os, "open", closed)
    answer = ask(*(str(path) if part == "FILE" else part for part in command))
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: cannot read this file: Permission denied")


def test_a_file_that_may_be_written_and_not_read_takes_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("")
    monkeypatch.setattr(os, "access", lambda path, mode, **named: mode != os.R_OK)
    assert ask("run", "x", "--json", "--output", str(tmp_path / "a.json")).code == 0


@pytest.mark.parametrize(
    "command", [("find", "a b", "--from", "a", "--to", "b"), ("explain", "a b"), ("compare", "a b", "a c")]
)
def test_numbers_too_large_for_their_type_are_told_where_nothing_can_be_said_without_them(
    command: tuple[str, ...],
) -> None:
    answer = ask(*command, "--scale", "1e39")
    assert (answer.code, answer.out) == (3, "")
    assert "numbers" in answer.err
    assert ask(*command, "--scale", "1e39", "--dtype", "float64").code == 0


def test_what_libraries_warn_of_does_not_reach_standard_error() -> None:
    program = "import sys, warnings; from attncli.cli import main; code = main(['tokens', 'a']); "
    program += "warnings.warn('x'); sys.exit(code)"
    found = finish([sys.executable, "-c", program])
    assert (found.returncode, found.stderr) == (0, "")


LONG = "x" * 300
ENDLESS = [("tensors", LONG), ("run", "a b", "--weights", LONG), ("scan", "minilm", LONG, "-o", "nowhere")]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "a b", "--top", "x"), 2, "--top is 'x' expected: a whole number"),
        (("run", "a b", "--softcap", "x"), 2, "--softcap is 'x' expected: a number"),
        (("run", "a b", "--device", "tpu"), 2, "--device is 'tpu' expected: cpu, cuda, mps"),
        (("run", "a b", "--device", "cuda:x"), 2, "--device is 'cuda:x'"),
        (("tensors", "."), 3, "this is a folder"),
        (("tensors", "nowhere"), 3, "there is no such file"),
        (("run", "a b", "--weights", "nowhere"), 3, "there is no such file"),
        *((asked, 3, "cannot look for this file: File name too long") for asked in ENDLESS),
        (("patch", "-", "-"), 2, "standard input is one text"),
    ],
)
def test_what_is_refused_is_named(arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = ask(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert said in " ".join(answer.err.split())
