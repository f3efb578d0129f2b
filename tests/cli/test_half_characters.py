"""A text with half of a character (a byte of the command line that is no UTF-8) is shown, written
or refused, wherever it goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import ask
from small_gpt2 import small_gpt2

TEXT = "a \udcff \ud800 c"
LINES = {
    "run": ("run", TEXT),
    "heads": ("heads", TEXT),
    "find": ("find", TEXT, "--from", "#0", "--to", "#1"),
    "find word": ("find", TEXT, "--from", "\udcff", "--to", "c"),
    "explain": ("explain", TEXT, "--query", "c"),
    "compare": ("compare", TEXT, "a b"),
    "cross": ("cross", TEXT, TEXT),
    "tokens": ("tokens", TEXT),
    "why": ("why", TEXT, "--from", "c", "--to", "#1"),
    "logits": ("logits", TEXT, "--model", "{t}/gpt2"),
    "cache": ("cache", TEXT, "--model", "{t}/gpt2", "--budget", "2"),
    "series": ("series", "{t}/gpt2", "{t}/gpt2/.", "--text", TEXT),
    "learn": ("learn", "sentence", TEXT, "--query", "a", "--target", "c", "--steps", "2"),
    "region": ("run", TEXT, "--region", "x=/\udcff/"),
    "name": ("run", TEXT, "--region", "x\udcff=tokens:0"),
}
PLACES = {
    "screen": (),
    "json": ("--json",),
    "plain": ("--plain",),
    "html": ("--html", "{t}/page.html"),
    "svg": ("--figure", "{t}/drawn.svg"),
    "csv": ("--csv", "{t}/table.csv"),
    "output": ("--output", "{t}/text.txt"),
    "npz": ("--save", "{t}/kept.npz"),
    "safetensors": ("--save", "{t}/kept.safetensors"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("half")
    small_gpt2(made / "gpt2")
    return made


@pytest.mark.many
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", LINES)
def test_half_of_a_character_is_shown_written_or_refused(
    name: str, place: str, folder: Path
) -> None:
    words = (*LINES[name], *PLACES[place])
    answer = ask(*(word.replace("{t}", str(folder)) for word in words))
    assert answer.code in (0, 2, 3), answer.err
    assert "unexpected" not in answer.err


def test_a_model_whose_words_could_not_be_read_again_is_not_saved(tmp_path: Path) -> None:
    answer = ask(*LINES["learn"], "--save", str(tmp_path / "kept"))
    assert (answer.code, answer.out) == (3, "")
    assert "this text holds half of a character" in answer.err
    assert not (tmp_path / "kept").exists()
