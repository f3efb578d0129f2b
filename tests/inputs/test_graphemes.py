"""Characters as a reader sees them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.inputs.graphemes import clusters


def cut(text):
    return [text[start:end] for start, end in clusters(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["a", "b", " ", "c"],
        ["我", "爱", "你"],
        ["e\u0301", "t\u0301\u0327", "x"],
        ["👨\u200d👩\u200d👧\u200d👦", "👍🏽", "😀"],
        ["🇩🇪", "🇫🇷", "🇯"],
        ["❤\ufe0f\u200d🔥", "1\ufe0f\u20e3", "2\ufe0f\u20e3", "☺\ufe0e"],
        ["🏴\U000e0067\U000e0062\U000e007f", "!"],
        ["🙂\u200d↔\ufe0f"],
        ["हि", "न्", "दी"],
        ["น้ำ"[:3], "ท"],
        ["각", "\u1100\u1161\u11a8", "가\u11a8", "각\u1100", "\ua960\u1161"][:3],
        ["a", "\r\n", "\n", "b"],
        ["я", "\r\n", "\r", "\u0301"],
        [" ", "\u0301", "a"],
        ["\u0301"],
        ["\x1b", "[", "é"],
        ["\ud800", "\udc00", "é"],
        ["a\u200d", "b"],
        ["a\u200d", "😀"],
        ["می\u200c"[:1], "ی\u200c", "خ"],
    ],
)
def test_clusters(expected):
    assert cut("".join(expected)) == expected


def test_syllables_that_stay_apart():
    assert cut("각각") == ["각", "각"]
    assert cut("각\u1161") == ["각", "\u1161"]


def test_nothing():
    assert cut("") == []


LIVELY = st.text(
    alphabet="ae\u0301\u0308 \r\n\u200d\ufe0f👍🏽🇩🇪我\u1100\u1161\u11a8각가\ud800\x1b", max_size=20
)


@settings(deadline=None, max_examples=200)
@given(LIVELY | st.text(max_size=20))
def test_clusters_cover_the_text_without_gaps(text):
    spans = list(clusters(text))
    assert [start for start, _ in spans] == ([0] if spans else []) + [end for _, end in spans][:-1]
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(start < end for start, end in spans)


@pytest.mark.parametrize("text", ["a", "字", "e\u0301", "\u0301", "👨\u200d", "🇩", "\u1100"])
def test_long_texts_without_a_space(text):
    assert sum(end - start for start, end in clusters(text * 30_011)) == 30_011 * len(text)
