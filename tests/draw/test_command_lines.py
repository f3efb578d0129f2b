"""A command on several lines is one command to a shell, at every width."""

from __future__ import annotations

import shutil

import pytest
from processes import finish

from attncli.draw.command_lines import command_lines, shell_text
from attncli.draw.safe import cells
from attncli.draw.view import View

TEXTS = (
    "The animal didn't cross the street",
    'he said "hello" and `x` $HOME \\ end',
    "我昨天去超市买了牛奶和面包今天发现面包过期了",
    "  two  spaces 'q' ",
    "One line\nTwo lines' \\n end\n\n\nThree\t$HOME",
    "I love \U0001f469\u200d\U0001f469\u200d\U0001f467 and \\U0001f600",
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize("text", TEXTS)
def test_a_shell_reads_the_words_that_were_written(text: str) -> None:
    words = ["attn", "ablate", "--model", "'/a b/c'", shell_text(text), "--from", "'#3'", "--to"]
    words.append("x")
    meant = ["ablate", "--model", "/a b/c", text, "--from", "#3", "--to", "x"]
    script = "attn(){ printf '%s\\0' \"$@\"; }\n"
    for width in range(24, 120, 7):
        rows = command_lines(words, View(width=width)).plain.splitlines()
        assert max(map(cells, rows)) <= width
        script += "\n".join([*rows, "printf '\\1'", ""])
    shell = finish(["bash", "-c", script])
    answers = shell.stdout.split("\1")[:-1]
    assert len(answers) == len(range(24, 120, 7))
    assert {tuple(answer.split("\0")[:-1]) for answer in answers} == {tuple(meant)}
