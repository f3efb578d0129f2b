"""Options that name a token: each says which token it takes, or refuses, whatever it is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from asking import ask
from commands import commands
from small_gpt2 import small_gpt2

SAID = "the cat sat on the mat"
SECOND = "the dog sat on the mat"
MINILM = ("--model", "minilm", "--head", "L0H0")
SMALL = ("--model", "{tmp}/gpt2", "--head", "L0H0")
IN_TEXT: dict[tuple[str, str], tuple[str, ...]] = {
    ("run", "--query"): ("run", SAID),
    ("explain", "--query"): ("explain", SAID),
    ("explain position", "--query"): ("explain", "position", SAID),
    ("explain mask", "--query"): ("explain", "mask", SAID),
    ("explain multihead", "--query"): ("explain", "multihead", SAID),
    ("explain residual", "--query"): ("explain", "residual", SAID),
    ("explain training", "--query"): ("explain", "training", SAID),
    ("explain training", "--target"): ("explain", "training", SAID),
    ("explain qkv", "--query"): ("explain", "qkv", SAID),
    ("find", "--from"): ("find", SAID, "--to", "cat"),
    ("find", "--to"): ("find", SAID, "--from", "cat"),
    ("ablate", "--from"): ("ablate", SAID, "--num-heads", "2", "--to", "cat"),
    ("ablate", "--to"): ("ablate", SAID, "--num-heads", "2", "--from", "cat"),
    ("ablate", "--query"): ("ablate", SAID, "--num-heads", "2"),
    ("logits", "--query"): ("logits", SAID, "--model", "{tmp}/gpt2"),
    ("next", "--query"): ("next", SAID, "--model", "{tmp}/gpt2"),
    ("why", "--from"): ("why", SAID, "--to", "cat"),
    ("why", "--to"): ("why", SAID, "--from", "cat"),
    ("why", "--than"): ("why", SAID, "--from", "cat", "--to", "sat"),
    ("patch", "--query"): ("patch", SAID, SECOND, *MINILM),
    ("patch", "--at"): ("patch", SAID, SECOND, *MINILM),
    ("learn", "--query"): ("learn", "sentence", SAID, "--target", "on", "--steps", "2"),
    ("learn", "--target"): ("learn", "sentence", SAID, "--query", "on", "--steps", "2"),
    ("compare", "--query"): ("compare", SAID, SECOND, "--model", "minilm"),
    ("cross", "--query"): ("cross", SAID, SECOND),
    ("cross", "--to"): ("cross", SECOND, SAID, "--query", "sat"),
}
"""For every option that names a token of the text, a question that takes it."""
IN_VOCABULARY: dict[tuple[str, str], tuple[str, ...]] = {
    ("ablate", "--target"): ("ablate", SAID, *SMALL, "--measure", "logprob"),
    ("ablate", "--versus"): ("ablate", SAID, *SMALL, "--target", "id:3"),
    ("next", "--target"): ("next", SAID, "--model", "{tmp}/gpt2"),
    ("logits", "--target"): ("logits", SAID, "--model", "{tmp}/gpt2"),
    ("logits", "--versus"): ("logits", SAID, "--model", "{tmp}/gpt2", "--target", "id:3"),
    ("why", "--target"): ("why", SAID, *SMALL, "--from", "sat", "--to", "cat", "--writes"),
    ("why", "--versus"): (
        "why",
        SAID,
        *SMALL,
        "--from",
        "sat",
        "--to",
        "cat",
        "--writes",
        "--target",
        "id:3",
    ),
    ("find", "--target"): (
        "find",
        SAID,
        *SMALL,
        "--from",
        "sat",
        "--to",
        "cat",
        "--effect",
        "--versus",
        "id:3",
    ),
    ("find", "--versus"): (
        "find",
        SAID,
        *SMALL,
        "--from",
        "sat",
        "--to",
        "cat",
        "--effect",
        "--target",
        "id:3",
    ),
    ("patch", "--target"): ("patch", SAID, "the mat sat on the cat", *SMALL),
    ("patch", "--versus"): ("patch", SAID, "the mat sat on the cat", *SMALL, "--target", "id:3"),
}
"""The same for entries of the vocabulary."""
FULL_SCREEN = {("explore", "--query")}
"""Those that need a terminal: the screen shows the word that it takes; tests/explore has them."""
QUESTIONS = {**IN_TEXT, **IN_VOCABULARY}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small decoder."""
    place = tmp_path_factory.mktemp("tokens")
    small_gpt2(place / "gpt2")
    return place


def test_every_option_that_names_a_token_is_here() -> None:
    declared = {
        (name, option.opts[0])
        for name, command in commands()
        for option in command.params
        if option.metavar is not None
        and "TOK" in option.metavar
        and option.opts[0].startswith("--")
    }
    assert declared == {*QUESTIONS, *FULL_SCREEN}


@pytest.mark.many
@pytest.mark.parametrize("asked", QUESTIONS, ids=" ".join)
def test_a_token_is_told_or_refused(asked: tuple[str, str], folder: Path) -> None:
    _, option = asked
    line = tuple(part.replace("{tmp}", str(folder)) for part in QUESTIONS[asked])
    codes = {}
    for value in ("", "nope", "#-1", "#99", "the", "the:9", "id:99999"):
        answer = ask(*line, option, value, "--json")
        codes[value] = answer.code
        if answer.code == 0:
            # words are quoted with double marks, entries of the vocabulary with single ones
            notes = answer.err.replace("'", '"')
            counted = f'"{value}" is token ' in notes
            first = f'"{value}" occurs ' in notes and "using the first, token #" in notes
            document = answer.json
            # entries of the vocabulary; the target of `explain training` is a list of positions
            named = [document.get(part) for part in ("target", "versus")]
            entry = value in [
                part.get("text", part.get("name")) for part in named if isinstance(part, dict)
            ]
            texts = [token["text"] for token in document.get("tokens", ())]
            known = texts.count(value) == 1
            several = re.search(f'"{value}" is \\d+ tokens', notes) is not None
            told = counted or first or entry or known
            told_where_whole = several if "answer" in document else told or several
            assert told_where_whole, (value, answer.err)
        else:
            assert answer.out == ""
            assert (option if value == "" else value.removeprefix("id:")[:2]) in answer.err, (
                value,
                answer.err,
            )
    accepted = {value for value, code in codes.items() if code == 0}
    usual = {"#-1", "the"} if asked in IN_TEXT else codes.keys() - {"", "id:99999"}
    assert accepted == usual
    assert codes.pop("") == 2
    assert all(codes[value] == 3 for value in codes.keys() - accepted), codes
