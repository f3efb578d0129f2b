"""Ctrl-C, SIGTERM and SIGHUP at any moment: their exit codes, no traceback, nothing left behind."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import attn, finish, start

ENDINGS = [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)]
PATIENCE = 180
"""Seconds that a busy machine may take for what takes one."""
STARTING = """
import os, sys
def hear(event, told):
    if event == "exec" and told[0].co_filename.endswith("attncli/cli/__init__.py"):
        os.write(2, b"*")
sys.addaudithook(hear)
from attncli.__main__ import main
sys.exit(main())
"""
"""The program as its installed command starts it; says when its entry point begins to import."""


def half_written(folder: Path, *options: str, command: str = "run") -> subprocess.Popen[bytes]:
    """A command that has begun to write its outputs and waits for more of its text."""
    process = start(attn(command, "--lines", "--ndjson", *options), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"one two\n")
    process.stdin.flush()
    until = time.monotonic() + PATIENCE
    while not any(folder.glob(".attn-*")) and time.monotonic() < until:
        time.sleep(0.02)
    assert any(folder.glob(".attn-*")), "nothing was begun"
    return process


@pytest.mark.parametrize(("name", "code"), ENDINGS)
def test_a_signal_leaves_no_half_written_file(name: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    process = half_written(tmp_path, "--output", str(tmp_path / "out"))
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (code, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "before"


@pytest.mark.parametrize("command", ["ablate", "heads"])
def test_a_signal_leaves_no_half_written_file_of_other_commands(
    command: str, tmp_path: Path
) -> None:
    process = half_written(tmp_path, "--output", str(tmp_path / "out"), command=command)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (143, b"")
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_leaves_no_half_written_file_either(tmp_path: Path) -> None:
    process = half_written(tmp_path, "--output", str(tmp_path / "out"))
    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (143, 129, 130)
    assert err == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 10))]
)
def test_ctrl_c_while_the_program_starts(seed: int) -> None:
    """Interrupts from the first line of our own on, at five moments of the start each."""
    drawn = random.Random(seed)
    for _ in range(5):
        process = start([sys.executable, "-c", STARTING, "run"], stdin=subprocess.PIPE)
        assert process.stderr is not None
        assert os.read(process.stderr.fileno(), 1) == b"*"
        time.sleep(0.0005 + drawn.random() ** 2 * 0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) in ((130, b""), (0, err)), err.decode()
        assert process.returncode == 130 or out, "it ended before it was interrupted"


@pytest.mark.many
@pytest.mark.parametrize("command", ["run", "heads"])
def test_long_work_says_at_once_what_it_costs_and_ends_by_ctrl_c(
    command: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "long").write_text("word and more " * 100_000)
    process = start(attn(command, "--file", str(tmp_path / "long")))
    request.addfinalizer(process.kill)
    assert process.stderr is not None
    assert (
        process.stderr.readline()
        == b"1,400,000 characters of text; they are cut into tokens first\n"
    )
    told = process.stderr.readline().decode()
    assert told.startswith("300,000 tokens are 90,000,000,000 pairs for each head: about "), told
    assert re.search(r" (min|h) ", told)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"")


IMPORTING = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from attncli.cli.environment import Environment
from attncli.cli.border import handle_signals
from attncli.inputs.files import atomic_writer, together
with handle_signals(Environment.of_process()), together(), atomic_writer(Path(sys.argv[1], "out")) as stream:
    stream.write(b"half")
    import stopped_in_here
"""


@pytest.mark.parametrize(("name", "code"), ENDINGS)
def test_a_signal_ends_an_import_at_once(name: str, code: int, tmp_path: Path) -> None:
    """What is imported from C++, as by torch, could not be left by an exception: the process would
    abort.
    """
    told = f"""
import signal
try:
    signal.raise_signal(signal.{name})
except BaseException:
    print("raised through an import")
"""
    (tmp_path / "stopped_in_here.py").write_text(told)
    done = finish(
        [sys.executable, "-c", IMPORTING, str(tmp_path)], {"PYTHONDONTWRITEBYTECODE": "1"}
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["stopped_in_here.py"]


LOST = """
import signal, sys
from pathlib import Path
from attncli.cli import border
from attncli.cli.environment import Environment
from attncli.cli.border import handle_signals
from attncli.inputs.files import atomic_writer
class Falling:
    def __del__(self):
        signal.raise_signal(getattr(signal, sys.argv[2]))
def answer(arguments, environment):
    with atomic_writer(Path(sys.argv[1], "out")) as stream:
        stream.write(b"half")
        if sys.argv[3] == "destructor":
            falling = Falling()
            del falling
            print("went on")
        else:
            try:
                signal.raise_signal(getattr(signal, sys.argv[2]))
            except BaseException:
                pass
    return 0
border._answer = answer
sys.exit(border.run_guarded([], Environment.of_process(), handle_signals))
"""


@pytest.mark.parametrize("where", ["destructor", "library"])
@pytest.mark.parametrize(("name", "code"), ENDINGS)
def test_a_signal_is_not_lost_where_nothing_is_raised_on(
    name: str, code: int, where: str, tmp_path: Path
) -> None:
    """In a destructor, and in a library that takes whatever is raised for a failure of its own."""
    (tmp_path / "out").write_text("before")
    done = finish([sys.executable, "-c", LOST, str(tmp_path), name, where])
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "before"


def test_what_the_caller_ignores_is_ignored() -> None:
    program = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = start(
        [sys.executable, "-c", program, *attn("run", "--lines", "--ndjson")], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"one two\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(b"three four\n", timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")


def test_the_tests_pass_when_their_parent_ignores_interrupts() -> None:
    """What a script starts with `&` inherits an ignored SIGINT; the tests' own processes hear it
    all the same.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"])
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.returncode != 0
    assert finish(["env"], {"PYTHONX": "1"}).stdout.count("PYTHON") == 1
