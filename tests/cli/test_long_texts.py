"""Long texts: what is not attention itself takes time in proportion to the text, and what takes long
is told before it starts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from asking import ask
from small_gpt2 import small_gpt2

from attncli import load
from attncli.cli import progress
from attncli.documents.header import notes
from attncli.features.series import compute as series

KINDS: dict[str, str] = {
    "Han": "汉",
    "letters": "x",
    "digits": "7",
    "spaces": " ",
    "lines": "\n",
    "brackets": "[",
    "emoji": "👩‍🔬",
    "accents": "e\u0301",
    "marks alone": "\u0301",
    "Thai": "กำ",
    "flags": "🇩🇪",
    "joiners": "\u200d",
    "apostrophes": "n't",
    "bidirectional": "\u202e",
    "Hangul": "\u1112\u1161\u11ab",
    "words": "ab ",
}
"""What a text repeats: each goes other ways through words, clusters and what is shown of them."""
FEW, MANY = 4000, 32000
"""Repeats of two texts; work in proportion takes eight times as long for the longer, work by pairs 64."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens", "--json"),
    "bytes": ("tokens", "--json", "--tokenizer", "byte"),
    "characters": ("tokens", "--json", "--tokenizer", "char"),
    "pieces": ("tokens", "--json", "--model", "{model}"),
    "screen": ("tokens",),
}


def seconds(work: Callable[[], object]) -> float:
    """The processor time of this process that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("long") / "gpt2")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_cutting_a_text_takes_time_in_proportion(
    command: str, kind: str, model: Path, tmp_path: Path
) -> None:
    taken = []
    for count in (FEW, MANY):
        file = tmp_path / "text.txt"
        file.write_text(KINDS[kind] * count)
        line = [word.replace("{model}", str(model)) for word in COMMANDS[command]]
        taken.append(seconds(lambda line=line, file=file: ask(*line, "--file", str(file))))
    assert taken[1] < 0.5 + 20 * taken[0], (command, kind, taken)


def test_warnings_of_a_text_take_time_in_proportion() -> None:
    model = load(seed=0)
    text = "汉" * 2 * MANY
    tokens = model.encode(text)
    assert seconds(lambda: notes(model, text, tokens)) < 2


LINES: dict[str, tuple[str, ...]] = {
    "run": ("run", "a b c"),
    "heads": ("heads", "a b c"),
    "find": ("find", "a b c", "--from", "c", "--to", "a"),
    "why": ("why", "a b c", "--num-heads", "2", "--from", "c", "--to", "a"),
    "cache": ("cache", "a b c", "--mask", "causal"),
    "next": ("next", "a b c", "--model", "{model}"),
    "series": ("series", "{model}", "{model}-again", "--text", "a b c", "--fresh"),
}


@pytest.mark.parametrize("name", LINES)
def test_what_takes_long_is_told_before_it_starts(
    name: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, bound in (
        (progress, "LONG_WORK"),
        (series, "LONG_WORK"),
        (series, "FORETOLD_AFTER"),
    ):
        monkeypatch.setattr(module, bound, 0.0)
    again = Path(f"{model}-again")
    shutil.copytree(model, again, dirs_exist_ok=True)
    answer = ask(*(word.replace("{model}", str(model)) for word in LINES[name]))
    assert answer.code == 0, answer.err
    assert answer.err.count(": about ") == 1, answer.err
    assert "Ctrl-C ends it" in answer.err


def test_a_series_tells_its_share_text_by_text(model: Path) -> None:
    shares: list[float] = []
    again = Path(f"{model}-twice")
    shutil.copytree(model, again, dirs_exist_ok=True)
    series.series([model, again], ["a b", "b c", "c d"], remember=False, progress=shares.append)
    assert shares[:-1] == sorted(shares[:-1])
    assert len({round(share, 3) for share in shares}) == 6
