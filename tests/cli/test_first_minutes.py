"""What somebody meets who types `attn` for the first time: hints, pipes, the guide's pager."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from asking import ask
from processes import finish

from attncli.cli import main
from attncli.cli.environment import Environment


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("the cat sat",), "attn run 'the cat sat'"),
        (("the", "cat", "sat", "--brief"), "attn run 'the cat sat'"),
        (("我爱你",), "attn run '我爱你'"),
        (("it's",), "attn --help"),
        (("nonsense",), "attn --help"),
        (("nonsense", "the cat sat"), "attn --help"),
        (("word " * 50,), 'attn run "…"'),
        (("hedas", "the cat"), "attn --help"),
    ],
)
def test_a_text_without_a_command_is_told_the_command(words: tuple[str, ...], hint: str) -> None:
    found = ask(*words)
    assert (found.code, found.err.splitlines()[-1]) == (2, f"try: {hint}")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        (("run", "the cat", "--mask"), "attn run --help"),
        (("heads", "--model"), "attn heads --help"),
        (("explain", "metric", "--lang"), "attn explain metric --help"),
        (("weights", "init", "--seed"), "attn weights init --help"),
    ],
)
def test_a_missing_value_points_at_the_page_of_its_own_command(
    words: tuple[str, ...], page: str
) -> None:
    found = ask(*words)
    assert (found.code, found.err.splitlines()[-1]) == (2, f"try: {page}")
    assert words[-1] in found.err


def test_an_order_that_there_is_not_hints_at_an_order() -> None:
    assert "try: --sort entropy\n" in ask("heads", "a b c", "--sort", "entrpy").err
    assert "try: --metric entropy\n" in ask("heads", "a b c", "--metric", "entrpy").err


def test_the_table_with_commas_is_written_to_standard_output(tmp_path: Path) -> None:
    asked = ("run", "the cat sat")
    ask(*asked, "--csv", str(tmp_path / "table.csv"))
    found = ask(*asked, "--csv", "-")
    assert (found.code, found.out) == (0, (tmp_path / "table.csv").read_text())
    assert ask(*asked, "--csv", "-", "-o", str(tmp_path / "answer")).out == ""
    assert (tmp_path / "answer").read_text() == found.out
    for other in (("--json",), ("--plain",), ("--brief",), ("--color", "always")):
        refused = ask(*asked, "--csv", "-", *other)
        assert (refused.code, refused.out) == (2, "")
        assert "--csv -" in refused.err
    assert not Path("-").exists()


def test_a_document_is_viewed_from_a_pipe() -> None:
    saved = ask("run", "the cat sat", "--json").out.encode()
    shown = ask("view", "-", stdin=saved)
    assert (shown.code, shown.out) == (0, ask("run", "the cat sat").out)
    for broken in (b"", b"{}", b"[1, 2]", saved[:-3], b'{"schema": "attn.nothing/1"}'):
        refused = ask("view", "-", stdin=broken)
        assert (refused.code, refused.out) == (3, "")
        assert "where: standard input" in refused.err


@pytest.mark.many
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_document_is_viewed_from_a_command_in_its_place(shell: str) -> None:
    if shutil.which(shell) is None or sys.platform == "win32":
        pytest.skip(f"{shell} is not installed")
    attn = f"'{sys.executable}' -m attncli"
    found = finish([shell, "-c", f"{attn} view <({attn} run 'the cat sat' --json) --brief"])
    assert (found.returncode, found.stdout) == (0, ask("run", "the cat sat", "--brief").out)


def guide(*words: str, **variables: str) -> tuple[int, bytes, str]:
    """`attn guide masks` at a terminal: its exit code, what it writes itself, and what a pager
    gets.
    """
    from io import BytesIO, StringIO

    out, err, keys = BytesIO(), StringIO(), iter("x" * 100)
    environment = Environment(
        BytesIO(), out, err, {"LANG": "C.UTF-8", "PATH": os.environ["PATH"], **variables},
        stdin_is_terminal=True, stdout_is_terminal=True, width=80, height=24, keys=lambda: next(keys),
    )  # fmt: skip
    return int(main(["guide", "masks", *words], environment)), out.getvalue(), err.getvalue()


@pytest.mark.skipif(sys.platform == "win32", reason="the pager is a shell script")
def test_pages_of_the_guide_go_through_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\necho "$1 $LESS" > {tmp_path}/arguments\ncat > {tmp_path}/page\n')
    pager.chmod(0o755)
    code, out, err = guide(PAGER=f"{pager} -z", NO_COLOR="1")
    assert (code, out, err) == (0, b"", "")
    assert (tmp_path / "arguments").read_text() == "-z FRX\n"
    page = (tmp_path / "page").read_bytes()
    assert b"--mask SPEC" in page
    assert guide("--no-pager", PAGER=str(pager), NO_COLOR="1") == (0, page, "")
    ended = tmp_path / "ended"  # a pager that is left before it has read anything
    ended.write_text("#!/bin/sh\nexit 3\n")
    ended.chmod(0o755)
    assert guide(PAGER=str(ended))[0] == 0
    for name in ("cat", "no-such-pager", "'", ""):  # shown as without one, a screen after the other
        assert b"--mask SPEC" in guide(PAGER=name, NO_COLOR="1")[1]
        assert guide("--pager", PAGER=name)[0] == 2


def test_a_page_that_goes_elsewhere_has_no_pager() -> None:
    with patch("subprocess.Popen", side_effect=AssertionError):
        assert ask("guide", "masks").code == 0
        refused = ask("guide", "masks", "--pager")
    assert (refused.code, refused.out) == (2, "")
    assert "--pager is about a terminal" in refused.err


def test_attn_alone_at_a_terminal_prints_its_page() -> None:
    reply = ask(terminal=True)
    assert (reply.code, reply.err) == (0, "")
    assert "attn run" in reply.out
