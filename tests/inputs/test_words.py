"""Words from pieces: which tokens are one word, and weights between words."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.inputs.token import Token
from attncli.inputs.word_groups import identities, merged_words


def tokens(text: str, pieces: list[tuple[str, int, int]], *, special: bool = False) -> list[Token]:
    found = [Token(at, name, at, start, end) for at, (name, start, end) in enumerate(pieces)]
    if special:
        found = [
            Token(0, "[CLS]", 101, None, None, True),
            *found,
            Token(0, "[SEP]", 102, None, None, True),
        ]
    return [
        Token(at, token.text, token.id, token.start, token.end, token.special)
        for at, token in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        (
            "unbelievable things",
            [("un", 0, 2), ("##believ", 2, 8), ("##able", 8, 12), ("things", 13, 19)],
            ["unbelievable", "things"],
        ),
        # byte-level tokens whose spans begin with the space
        (
            "a stranger told",
            [("a", 0, 1), ("Ġstr", 1, 5), ("anger", 5, 10), ("Ġtold", 10, 15)],
            ["a", "stranger", "told"],
        ),
        # SentencePiece spans without the space
        ("ein Haus", [("▁ein", 0, 3), ("▁Ha", 4, 6), ("us", 6, 8)], ["ein", "Haus"]),
        (
            "didn't, no",
            [("didn", 0, 4), ("'", 4, 5), ("t", 5, 6), (",", 6, 7), ("no", 8, 10)],
            ["didn't", ",", "no"],
        ),
        ("买菜 now", [("买", 0, 1), ("菜", 1, 2), ("now", 3, 6)], ["买", "菜", "now"]),
        # three byte tokens of one character
        ("x€y", [("x", 0, 1), ("a", 1, 2), ("b", 1, 2), ("c", 1, 2), ("y", 2, 3)], ["x", "€", "y"]),
        ("한국어로", [("한국", 0, 2), ("어로", 2, 4)], ["한국어로"]),
        ("", [], []),
    ],
)
def test_pieces_of_a_word(
    text: str, pieces: list[tuple[str, int, int]], expected: list[str]
) -> None:
    found = merged_words(tokens(text, pieces), text)
    assert [word.text for word in found.words] == expected
    assert [word.index for word in found.words] == list(range(len(expected)))
    assert int(found.sizes.sum()) == len(pieces)


def test_special_tokens_stay_apart() -> None:
    found = merged_words(tokens("ab", [("a", 0, 1), ("##b", 1, 2)], special=True), "ab")
    assert [(word.text, word.special) for word in found.words] == [
        ("[CLS]", True),
        ("ab", False),
        ("[SEP]", True),
    ]
    assert found.starts.tolist() == [0, 1, 3]


def test_sums_to_a_word_and_means_from_it() -> None:
    found = merged_words(tokens("ab c", [("a", 0, 1), ("b", 1, 2), ("c", 3, 4)]), "ab c")
    weights = np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3], [0.25, 0.25, 0.5]])
    np.testing.assert_allclose(found.merge(weights), [[0.6, 0.4], [0.5, 0.5]])
    stacked = found.merge(np.stack([weights, weights]))
    assert stacked.shape == (2, 2, 2)
    np.testing.assert_allclose(stacked.sum(-1), 1)


def test_a_piece_that_sees_nothing_does_not_count() -> None:
    found = merged_words(tokens("ab c", [("a", 0, 1), ("b", 1, 2), ("c", 3, 4)]), "ab c")
    weights = np.array([[0, 0, 0], [0.6, 0.1, 0.3], [0.25, 0.25, 0.5]])
    np.testing.assert_allclose(found.merge(weights)[0], [0.7, 0.3])
    visible = weights > 0.2
    np.testing.assert_array_equal(found.merge_visible(visible), [[True, True], [True, True]])


def test_merging_is_the_loop() -> None:
    rng = np.random.default_rng(2)
    text = "aaa bb cccc"
    pieces = [("a", 0, 1), ("a", 1, 2), ("a", 2, 3), ("bb", 4, 6), ("cc", 7, 9), ("cc", 9, 11)]
    groups = [[0, 1, 2], [3], [4, 5]]
    weights = rng.random((6, 6))
    weights /= weights.sum(-1, keepdims=True)
    merged = merged_words(tokens(text, pieces), text).merge(weights)
    for a, rows in enumerate(groups):
        for b, columns in enumerate(groups):
            expected = sum(weights[i][j] for i in rows for j in columns) / len(rows)
            assert merged[a, b] == pytest.approx(expected)


def test_what_makes_tokens_the_same() -> None:
    found = tokens("The the", [("The", 0, 3), ("the", 4, 7)])
    found = [Token(token.index, token.text, 5, token.start, token.end) for token in found]
    assert identities(found) == [5, 5]
    bare = [Token(token.index, token.text, None, token.start, token.end) for token in found]
    assert identities(bare) == ["The", "the"]


def test_what_makes_words_the_same() -> None:
    text = "ab AB ac"
    spans = [
        ("a", 0, 1, 7),
        ("b", 1, 2, 8),
        ("A", 3, 4, 7),
        ("B", 4, 5, 8),
        ("a", 6, 7, 7),
        ("c", 7, 8, 9),
    ]
    found = [Token(at, name, code, start, end) for at, (name, start, end, code) in enumerate(spans)]
    first, second, third = identities(found, merged_words(found, text))
    assert first == second != third


def test_tokens_in_a_row_become_one_word_summed_to_and_averaged_from():
    from attncli.inputs.tokenize import CharTokenizer
    from attncli.inputs.word_groups import join_words

    found = CharTokenizer().encode("abcde")
    words = join_words(found, "abcde", [(1, 3)])
    assert [word.text for word in words.words] == ["a", "bc", "d", "e"]
    assert [word.index for word in words.words] == [0, 1, 2, 3]
    assert words.starts.tolist() == [0, 1, 3, 4]
    weights = np.arange(25.0).reshape(5, 5)
    expected = [[0.0] * 4 for _ in range(4)]
    groups = [[0], [1, 2], [3], [4]]
    for row, queries in enumerate(groups):
        for column, keys in enumerate(groups):
            expected[row][column] = sum(weights[q][k] for q in queries for k in keys) / len(queries)
    np.testing.assert_allclose(words.merge(weights), expected)
    twice = join_words(found, "abcde", [(0, 2)], words)  # over words that are merged already
    assert [word.text for word in twice.words] == ["abc", "d", "e"]
    assert twice.starts.tolist() == [0, 3, 4]
