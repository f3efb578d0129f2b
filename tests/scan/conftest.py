"""A tiny decoder and a tiny encoder with a tokenizer, and a corpus of their words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tiny_checkpoints import CASES, make
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = [f"w{number}" for number in range(50)]


def with_tokenizer(folder: Path, special: bool) -> Path:
    vocabulary = {
        word: number for number, word in enumerate(["[UNK]", "[CLS]", "[SEP]", ",", ".", *WORDS])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tokenizer(make(CASES["bert"], tmp_path_factory.mktemp("encoder")), special=True)


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tokenizer(make(CASES["llama"], tmp_path_factory.mktemp("decoder")), special=False)


@pytest.fixture(scope="session")
def lines() -> list[str]:
    drawn = random.Random(3)
    return [
        " ".join(drawn.choice([*WORDS[:9], *WORDS, ",", "."]) for _ in range(drawn.randint(2, 20)))
        for _ in range(60)
    ]


@pytest.fixture
def corpus(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
