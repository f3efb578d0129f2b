"""Words in each other's place: which tokens of two texts are joined so that they can be compared."""

from __future__ import annotations

import pytest

from attncli.features.compare.alignment import replaced_words
from attncli.inputs.token import Token


def side(*pieces: str) -> tuple[list[Token], str]:
    """A text cut into these pieces, and the text."""
    tokens, end = [], 0
    for index, piece in enumerate(pieces):
        tokens.append(Token(index, piece, index, end, end + len(piece)))
        end += len(piece)
    return tokens, "".join(pieces)


CASES = {
    "Chinese, one token for two": (("她", "喜欢", "苹果", "，"), ("她", "喜欢", "香", "蕉", "，"), ["苹果"], ["香蕉"]),
    "Chinese, one character for two": (("她", "有", "猫"), ("她", "有", "小", "狗"), ["猫"], ["小狗"]),
    "English, one token for three": (
        ("the", " cat", " sat"), ("the", " hip", "po", "pot", " sat"), ["cat"], ["hippopot"],
    ),
    "pieces that would pair across": (
        ("a ", "ab", "cd"), ("a ", "cd", "ef"), ["abcd"], ["cdef"],
    ),
    "a word with the same beginning": (("it", " play", "ing"), ("it", " play", "ed"), ["playing"], ["played"]),
    "two words": (
        ("a", " cat", " saw", " b"), ("a", " do", "gs", " saw", " c", "d"), ["cat", "b"], ["dogs", "cd"],
    ),
    "as many tokens on both sides": (("她", "吃", "苹", "果"), ("她", "吃", "香", "蕉"), [], []),
    "equal texts": (("她", "吃"), ("她", "吃"), [], []),
    "another order": (("我", "爱", "你"), ("你", "爱", "我"), [], []),
    "several words for one": (("a", " cat", " sat"), ("a", " big", " dog", " sat"), [], []),
    "a clause for a word": (("她", "说", "好", "。"), ("她", "说", "我", "们", "明", "天", "去", "。"), [], []),
    "a word that only one has": (("a", " cat"), ("a", " small", " cat"), [], []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_word_is_joined_where_another_number_of_tokens_stands_in_its_place(
    case: tuple[tuple[str, ...], tuple[str, ...], list[str], list[str]],
) -> None:
    pieces_a, pieces_b, *expected = case
    sides = (side(*pieces_a), side(*pieces_b))
    for given, wanted in ((sides, expected), (sides[::-1], expected[::-1])):
        joined = replaced_words(given)
        words = [
            ["".join(tokens[place].text for place in run).strip() for run in runs]
            for runs, (tokens, _) in zip(joined, given, strict=True)
        ]
        assert words == wanted


def test_a_word_asked_for_is_one_also_where_it_shares_a_character() -> None:
    sides = (side("吃", "苹", "果", "吧"), side("吃", "果", "汁", "吧"))
    assert replaced_words(sides, "苹果") == [[range(1, 3)], [range(1, 3)]]
    assert replaced_words(sides, "吧") == [[], []]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mat ran, mat home. mat", "mat ran, home. mat"),
        ("x y unbelievable q", "unbelievable x y r"),
    ],
)
def test_equal_letters_are_never_joined(first: str, second: str) -> None:
    sides = (side(*first), side(*second))
    for run_a, run_b in zip(*replaced_words(sides), strict=True):
        assert max(len(run_a), len(run_b)) > 1
        assert first[run_a.start : run_a.stop] != second[run_b.start : run_b.stop]
