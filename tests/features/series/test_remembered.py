"""What `series` and unfinished work remember is theirs: nothing that has changed since, nothing that
is damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import gguf_files
import pytest
from asking import ask
from small_gpt2 import small_gpt2

from attncli.features.series import compute
from attncli.measure.kept_results import KeptResults, description_digest, fingerprint
from attncli.models.load import load

TEXT = "a b c a b"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("remembered") / "gpt2")


@pytest.fixture
def pair(original: Path, tmp_path: Path) -> list[Path]:
    """Two checkpoints in folders of their own."""
    return [shutil.copytree(original, tmp_path / name) for name in ("step-1", "step-2")]


def answer(pair: list[Path], tmp_path: Path, *options: str) -> Any:
    line = ("series", *map(str, pair), "--text", TEXT, "--json", *options)
    given = ask(*line, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert given.code == 0, given.err
    return given.json


def swapped(path: Path) -> None:
    """The vocabulary of a tokenizer, with the ids of a and b exchanged."""
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(tokenizer))


def test_a_tokenizer_that_changes_is_read_again(pair: list[Path], tmp_path: Path) -> None:
    before = answer(pair, tmp_path)
    assert answer(pair, tmp_path) == before
    for folder in pair:
        swapped(folder / "tokenizer.json")
    after = answer(pair, tmp_path)
    assert after["tokens"] != before["tokens"]
    assert after == answer(pair, tmp_path, "--fresh")


def test_every_file_of_a_checkpoint_is_in_its_digest(pair: list[Path]) -> None:
    folder = pair[0]
    digests = [description_digest(folder)]
    for name in (
        *sorted(path.name for path in folder.iterdir()),
        "vocab.txt",
        "chat_template.jinja",
    ):
        if name.endswith(".safetensors"):
            continue  # the tensors have a digest of their own
        path = folder / name
        path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\n")
        digests.append(description_digest(folder))
    assert len(set(digests)) == len(digests) >= 5
    assert description_digest(pair[1]) == digests[0]


def test_what_a_file_says_is_in_its_digest_however_it_is_called(
    original: Path, tmp_path: Path
) -> None:
    digests = set()
    for base in (10000.0, 20000.0):
        more = {"rope.freq_base": base}
        file = gguf_files.write(original, tmp_path / f"{base:.0f}.GGUF", "gpt2", more=more)
        digests.add(description_digest(file))
    assert len(digests) == 2


def test_a_fingerprint_differs_with_every_file(pair: list[Path]) -> None:
    folder = pair[0]
    model = load(str(folder))
    tokens = model.encode(TEXT)
    prints = [fingerprint(model, tokens)]
    for path in sorted(folder.iterdir()):
        path.write_bytes(path.read_bytes() + b"\n")
        prints.append(fingerprint(model, tokens))
    assert len(set(prints)) == len(prints)
    assert fingerprint(model, tokens) != fingerprint(model, tokens[:-1])


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_memory_is_measured_anew(seed: int, pair: list[Path], tmp_path: Path) -> None:
    fresh = answer(pair, tmp_path)
    random = Random(seed)
    for path in (tmp_path / "cache" / "attn" / "series").iterdir():
        raw = bytearray(path.read_bytes())
        match seed % 4:
            case 0:
                raw[random.randrange(len(raw))] ^= 1 << random.randrange(7)
            case 1:
                del raw[random.randrange(len(raw)) :]
            case 2:
                raw = bytearray(random.randbytes(random.randrange(200)))
            case _:
                at = random.randrange(len(raw))
                raw[at : at + 9] = b"0"
        path.write_bytes(bytes(raw))
    assert answer(pair, tmp_path) == fresh


FORGED: tuple[dict[str, Any], ...] = (
    {"heads": []}, {"tokens": []}, {"layers": 0}, {"layers": -1},
    {"heads": [{"layer": 0, "head": 0, "metrics": {}, "labels": []}]},
    {"heads": [{"layer": -1, "head": 0, "metrics": {}, "labels": []}]},
)  # fmt: skip


@pytest.mark.parametrize("changes", FORGED, ids=str)
def test_a_memory_that_is_no_answer_is_measured_anew(
    changes: dict[str, Any], pair: list[Path], tmp_path: Path
) -> None:
    """Also where its own digest fits."""
    fresh = answer(pair, tmp_path)
    for path in (tmp_path / "cache" / "attn" / "series").iterdir():
        content = json.loads(path.read_bytes().partition(b"\n")[2]) | changes
        KeptResults[Any](path, dict).keep(content)
    assert answer(pair, tmp_path) == fresh


def test_results_that_fit_are_remembered(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answer(pair, tmp_path)
    monkeypatch.setattr(compute, "_measure", None)
    assert answer(pair, tmp_path) == before
