"""A GGUF given where another file is read is called what it is, with the option that takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import ask

from attncli.inputs import files

START = b"GGUF" + (3).to_bytes(4, "little") + b"\xff\xfe" * 60
ASKED = [
    ("run", "a", "--tokenizer"),
    ("tokens", "a", "--tokenizer"),
    ("run", "a", "--weights"),
    ("run", "a", "--embeddings"),
    ("run", "--file"),
    ("view",),
    ("tensors",),
    ("run", "--chat"),
]


@pytest.mark.parametrize("words", ASKED, ids=lambda words: " ".join(words))
@pytest.mark.parametrize("name", ["model.gguf", "renamed.json"])
def test_a_gguf_elsewhere_has_the_hint(words: tuple[str, ...], name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    place.write_bytes(START)
    refused = ask(*words, str(place))
    assert refused.code == 3
    told = refused.err.splitlines()
    assert told[0] == "error: this is a GGUF file: a whole model with its tokenizer"
    assert "".join(told).endswith(f"--model {place}")


def test_a_large_one_is_known_before_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "large.json"
    place.write_bytes(START)
    with pytest.raises(files.InputError, match="this is a GGUF file"):
        files.read_regular(place, what="a document", limit=10)
    other = tmp_path / "other.json"
    other.write_bytes(b"GGUFs are models" * 9)
    assert files.read_regular(other, what="a text") == b"GGUFs are models" * 9


def test_a_text_that_is_named_so_is_no_gguf(tmp_path: Path) -> None:
    place = tmp_path / "notes.gguf"
    place.write_text("a cat sat")
    assert "is a GGUF" not in ask("tensors", str(place)).err
    assert ask("run", "--file", str(place), "--brief").code == 0
