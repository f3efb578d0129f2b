"""Texts of a header: where they begin, which of them are wanted, against a loop over their lengths."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from attncli.inputs.string_table import StringTable, text_starts

LENGTHS = (0, 1, 2, 7, 8, 9, 16, 255, 256, 300)


def stored(texts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


def random_texts(chance: random.Random) -> list[bytes]:
    """Texts with many zeros, which look like lengths, and of lengths around those that count."""
    alphabet = chance.choice([(0, 1, 5, 65), (0,), (97, 98), tuple(range(256))])
    return [
        bytes(chance.choices(alphabet, k=chance.choice(LENGTHS)))
        for _ in range(chance.randrange(40))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_texts_are_where_a_loop_over_their_lengths_finds_them(seed: int) -> None:
    chance = random.Random(seed)
    texts = random_texts(chance)
    raw = b"head" + stored(texts)
    starts, stop = text_starts(
        raw + bytes(chance.choices((0, 1, 2), k=chance.randrange(30))), 4, len(texts)
    )
    assert stop == len(raw)
    places, place = [], 4
    for text in texts:
        places.append(place + 8)
        place += 8 + len(text)
    assert starts.tolist() == places
    table = StringTable(
        raw,
        starts,
        np.array([start + len(text) for start, text in zip(places, texts, strict=True)], np.int64),
    )
    assert list(table) == [text.decode("utf-8", "replace") for text in texts]
    wanted = [*texts[::3], b"no such text", b""]
    assert table.find(wanted) == [
        (text, number) for number, text in enumerate(texts) if text in wanted
    ]


def test_bytes_that_end_too_early_give_the_texts_before() -> None:
    texts = [b"one", b"two", bytes(300), b"four"]
    raw = stored(texts)
    for end in range(len(raw)):
        starts, stop = text_starts(raw[:end], 0, len(texts))
        assert stop > end or len(starts) < len(texts)
        assert starts.tolist() == text_starts(raw, 0, len(texts))[0][: len(starts)].tolist()


def test_a_table_of_texts_is_a_sequence_of_them() -> None:
    texts = ["", "a", "你好", "x" * 40, "a"]
    table = StringTable.of(texts)
    assert (list(table), len(table), table[1:3], table[-1]) == (texts, 5, ["a", "你好"], "a")
    assert table.find([b"a", "你好".encode()]) == [(b"a", 1), ("你好".encode(), 2), (b"a", 4)]
