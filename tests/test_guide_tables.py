"""What the tables of the guide and the README say is run: calls, commands, masks, numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2

import attncli
import attncli.language.guide
from attncli.cli.app import COMMANDS
from attncli.errors import ExitCode
from attncli.mechanism.edit import SITES

GUIDE = Path(attncli.language.guide.__path__[0])
LANGUAGES = sorted(folder.name for folder in GUIDE.iterdir() if (folder / "masks.md").exists())
README = Path(__file__).parents[1] / "README.md"
IN_LANGUAGES = pytest.mark.parametrize("lang", LANGUAGES)
PLACES = {
    "W": "4", "L": "2", "R": "1", "D": "2", "I": "0", "J": "3", "P": "3", "C": "3", "B": "2", "S": "1",
    "K": "2", "BUCKETS": "2", "ROUNDS": "2", "BUDGET": "3", "RECENT": "1", "WINDOW": "2", "POOL": "1",
    "SEED": "7", "…": "2,1",
}  # fmt: skip


def tables(path: Path) -> list[list[list[str]]]:
    """The tables of a page: rows of cells, without their heads."""
    text = path.read_text("utf-8")
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.M)
    split = [
        [
            re.split(r"(?<!\\)\|(?=(?:[^`]*`[^`]*`)*[^`]*$)", row.strip("|"))
            for row in block.splitlines()
        ]
        for block in blocks
    ]
    return [[[cell.strip() for cell in row] for row in table[2:]] for table in split]


def code(cell: str) -> list[str]:
    """The pieces of code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@IN_LANGUAGES
def test_every_call_in_the_table_of_functions_runs(lang: str, tmp_path: Path) -> None:
    model = attncli.load(small_gpt2(tmp_path / "model", layers=1))
    text = "it was the animal"
    names: dict[str, Any] = {name: getattr(attncli, name) for name in attncli.__all__}
    run = attncli.run(model, text)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat\n\na dog ran\n", "utf-8")
    folders = [
        small_gpt2(tmp_path / "steps" / f"step-{number}", layers=1 + number) for number in (0, 0)
    ]
    names |= {
        "model": model, "text": text, "query": "it", "other": "a cat", "run_a": run, "run_b": run,
        "regions": [attncli.Region("r", (0, 1))], "name": "minilm", "files": corpus,
        "folder": tmp_path / "scan", "folders": folders,
    }  # fmt: skip
    calls = [piece for row in tables(GUIDE / lang / "python.md")[1] for piece in code(row[0])]
    assert len(calls) >= 18
    for call in calls:
        if call in attncli.__all__:
            continue
        expression = call.replace("query=…", 'query="it"').replace("steps=300", "steps=1")
        if "…" in expression:
            names["q"] = np.ones((1, 2, 3), np.float32)
            expression = expression.replace("…", "q")
        if call.startswith("cross("):
            names["model"] = attncli.load(seed=0)
        if call.startswith(("scan_corpus", "series")):  # tests of their own run them
            assert callable(names[call.partition("(")[0]])
            continue
        assert eval(expression, dict(names)).rows() is not None, call
        names["model"] = model


@IN_LANGUAGES
def test_the_table_of_addresses_has_every_site_that_can_be_edited(lang: str) -> None:
    rows = tables(GUIDE / lang / "python.md")[0]
    addresses = [piece for row in rows for piece in code(row[0])]
    assert sorted(addresses) == sorted(f"{site}.10" for site in SITES)


@IN_LANGUAGES
def test_every_mask_in_its_table_is_drawn(lang: str) -> None:
    specs = [piece for row in tables(GUIDE / lang / "masks.md")[0] for piece in code(row[0])]
    assert len(specs) >= 17
    for spec in specs:
        filled = re.sub(r"[A-Z]+|…", lambda place: PLACES[place[0]], re.sub(r"[\[\]]", "", spec))
        if filled.partition(":")[0] in ("lsh", "h2o", "snapkv", "tova", "random"):
            found = ask("run", "a b c d e f", "--mask", filled, "--brief")
        else:
            found = ask("mask", filled, "-n", "8", "--brief")
        assert found.code == 0, (filled, found.err)


@IN_LANGUAGES
def test_the_commands_in_tables_run(lang: str) -> None:
    commands = [
        piece
        for page in sorted((GUIDE / lang).glob("*.md"))
        for table in tables(page)
        for row in table
        for cell in row
        for piece in code(cell)
        if piece.startswith("attn ") and "OUT" not in piece  # a scan of the reader's
    ]
    assert commands
    for command in commands:
        words = [word for word in shlex.split(command)[1:] if word != "--step"]
        assert ask(*words).code == 0, command


def test_the_readme_names_every_command() -> None:
    cells = " ".join(cell for table in tables(README) for row in table for cell in row)
    listed = {*re.findall(r"`attn ([a-z]+)", cells)}
    missing = {*COMMANDS} - {"guide", "schema", "view"} - listed
    assert missing == set(), "a table of README.md has a row with `attn NAME` for each"
    assert listed <= {*COMMANDS}


@IN_LANGUAGES
def test_the_table_of_exit_codes_is_that_of_the_program(lang: str) -> None:
    table = next(t for t in tables(GUIDE / lang / "json.md") if t[0][0] == "0")
    codes = {int(number) for row in table for number in re.findall(r"\d+", row[0])}
    assert codes == {*map(int, ExitCode), 143, 129}


@pytest.mark.parametrize("lang", ["en", pytest.param("zh", marks=pytest.mark.thorough)])
def test_the_table_of_two_heads_has_their_numbers(lang: str) -> None:
    model = attncli.load("minilm")
    text = "The animal didn't cross the street because it was too tired"
    for row in tables(GUIDE / lang / "importance.md")[0]:
        layer, head = map(int, re.findall(r"\d+", row[0]))
        (link,) = attncli.find(
            model, text, "it", "animal", layers=layer, heads=head, effect=True
        ).heads
        (removed,) = attncli.ablate(model, text, query="it", layers=layer, heads=head).effects
        told = [f"{link.weight:.2f}", f"{link.effect:.3f}", f"{removed.vector.cosine:.3f}"]
        assert row[1:4] == told
