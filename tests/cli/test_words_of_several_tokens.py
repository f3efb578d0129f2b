"""A word of several tokens, or a character of several bytes, is taken by every option that names a
token, by pages and figures too, and nothing that is shown holds the bytes of a text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from asking import ask
from commands import commands
from small_gpt2 import byte_gpt2

TEXT = "an odd dumpty sat on 她 wall"
OTHER = "an odd dumpty saw on 她 wall"
LINK = ("--from", "wall", "--to", "odd")
QUESTIONS: dict[tuple[str, str], tuple[str, ...]] = {
    ("run", "--query"): ("run", TEXT),
    ("explain", "--query"): ("explain", TEXT),
    ("explain position", "--query"): ("explain", "position", TEXT),
    ("explain mask", "--query"): ("explain", "mask", TEXT),
    ("explain multihead", "--query"): ("explain", "multihead", TEXT),
    ("explain residual", "--query"): ("explain", "residual", TEXT),
    ("explain qkv", "--query"): ("explain", "qkv", TEXT),
    ("explain training", "--query"): ("explain", "training", TEXT),
    ("explain training", "--target"): ("explain", "training", TEXT),
    ("find", "--from"): ("find", TEXT, "--to", "odd"),
    ("find", "--to"): ("find", TEXT, "--from", "wall"),
    ("find", "--target"): ("find", TEXT, *LINK, "--effect", "--versus", "id:5"),
    ("find", "--versus"): ("find", TEXT, *LINK, "--effect", "--target", "id:5"),
    ("next", "--query"): ("next", TEXT),
    ("next", "--target"): ("next", TEXT),
    ("ablate", "--from"): ("ablate", TEXT, "--to", "odd"),
    ("ablate", "--to"): ("ablate", TEXT, "--from", "wall"),
    ("ablate", "--query"): ("ablate", TEXT),
    ("ablate", "--target"): ("ablate", TEXT),
    ("ablate", "--versus"): ("ablate", TEXT, "--target", "id:5"),
    ("logits", "--query"): ("logits", TEXT),
    ("logits", "--target"): ("logits", TEXT),
    ("logits", "--versus"): ("logits", TEXT, "--target", "id:5"),
    ("patch", "--query"): ("patch", TEXT, OTHER),
    ("patch", "--at"): ("patch", TEXT, OTHER),
    ("patch", "--target"): ("patch", TEXT, OTHER),
    ("patch", "--versus"): ("patch", TEXT, OTHER, "--target", "id:5"),
    ("why", "--from"): ("why", TEXT, "--to", "odd"),
    ("why", "--to"): ("why", TEXT, "--from", "wall"),
    ("why", "--than"): ("why", TEXT, *LINK),
    ("why", "--target"): ("why", TEXT, *LINK, "--writes"),
    ("why", "--versus"): ("why", TEXT, *LINK, "--writes", "--target", "id:5"),
    ("compare", "--query"): ("compare", TEXT, OTHER),
    ("cache", "--target"): ("cache", TEXT, "--policy", "sinks:2,4", "--budget", "6"),
}
OTHERWISE = {
    ("explore", "--query"), ("learn", "--query"), ("learn", "--target"), ("cross", "--query"), ("cross", "--to"),
}  # fmt: skip
"""The full screen, which tests/explore has; models that learn one sentence, word by word; and two texts,
which tests/features/cross has."""
WORDS = {("patch", "--query"): ("wall", "她")}
"""Words after what differs, where a word before it sees no difference."""
DECLARED = {
    name: {spelling for option in command.params for spelling in option.opts}
    for name, command in commands()
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A decoder whose vocabulary is bytes and one merge: nearly every word is several tokens."""
    return str(byte_gpt2(tmp_path_factory.mktemp("bytes") / "model"))


def test_every_option_that_names_a_token_is_tried() -> None:
    declared = {
        (name, option.opts[0])
        for name, command in commands()
        for option in command.params
        if "TOK" in (option.metavar or "") and option.opts[0].startswith("--")
    }
    assert declared == {*QUESTIONS, *OTHERWISE} - {("cache", "--target")}


@pytest.mark.many
@pytest.mark.parametrize("asked", QUESTIONS, ids=" ".join)
def test_a_word_of_several_tokens_is_taken(
    asked: tuple[str, str], folder: str, tmp_path: Path
) -> None:
    command, option = asked
    files = {"--html": tmp_path / "page.html", "--figure": tmp_path / "figure.svg"}
    written = [part for name in files.keys() & DECLARED[command] for part in (name, files[name])]
    for word in WORDS.get(asked, ("dumpty", "她")):
        line = (*QUESTIONS[asked], option, word, "--model", folder)
        found = ask(*line, *map(str, written), width=200)
        assert found.code == 0, found.err
        shown = [found.out]
        for path in filter(Path.exists, files.values()):
            shown.append(re.sub(r"<script>.*?</script>", "", path.read_text("utf-8"), flags=re.S))
        assert not any("<0x" in text or "&lt;0x" in text for text in shown)
        assert ask(*line, "--lang", "zh", width=60).code == 0
