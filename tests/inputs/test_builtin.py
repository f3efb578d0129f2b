"""The tokenizers without a vocabulary."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.errors import InputError, UsageError
from attncli.inputs.token import Token
from attncli.inputs.tokenize import ByteTokenizer, CharTokenizer, WhitespaceTokenizer, WordTokenizer

ALL = [WordTokenizer(), WhitespaceTokenizer(), CharTokenizer(), ByteTokenizer()]


def test_word_tokens_have_spans_and_no_ids():
    assert WordTokenizer().encode("Hi, it's") == [
        Token(0, "Hi", None, 0, 2),
        Token(1, ",", None, 2, 3),
        Token(2, "it's", None, 4, 8),
    ]


def test_whitespace_splits_at_spaces_only():
    assert [token.text for token in WhitespaceTokenizer().encode(" 今天 我\u3000的-x.  y\n")] == [
        "今天",
        "我",
        "的-x.",
        "y",
    ]


def test_char_ids_are_code_points_of_single_ones():
    found = CharTokenizer().encode("我 e\u0301")
    assert found == [
        Token(0, "我", 0x6211, 0, 1),
        Token(1, " ", 32, 1, 2),
        Token(2, "e\u0301", None, 2, 4),
    ]


def test_bytes():
    found = ByteTokenizer().encode("a我\n")
    assert [(t.text, t.id, t.start, t.end) for t in found] == [
        ("a", 97, 0, 1),
        ("<0xE6>", 0xE6, 1, 2),
        ("<0x88>", 0x88, 1, 2),
        ("<0x91>", 0x91, 1, 2),
        ("<0x0A>", 10, 2, 3),
    ]
    assert [t.id for t in ByteTokenizer().encode("\ud800")] == [0xED, 0xA0, 0x80]


@pytest.mark.parametrize("tokenizer", ALL, ids=lambda t: t.name)
def test_nothing_gives_no_tokens(tokenizer):
    assert tokenizer.encode("") == []


@pytest.mark.parametrize("tokenizer", ALL, ids=lambda t: t.name)
@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=20), pair=st.none() | st.text(max_size=9))
def test_tokens_are_numbered_and_stand_where_they_say(tokenizer, text, pair):
    tokens = tokenizer.encode(text, pair)
    assert [token.index for token in tokens] == list(range(len(tokens)))
    for token in tokens:
        covered = (text if token.part == 0 else pair)[token.start : token.end]
        assert covered if tokenizer.name == "byte" else covered == token.text
        assert not token.special
    assert {token.part for token in tokens} <= ({0} if pair is None else {0, 1})


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_bytes_and_code_points_give_the_text_back(text):
    assert bytes(token.id for token in ByteTokenizer().encode(text)) == text.encode()
    chars = CharTokenizer()
    assert "".join(token.text for token in chars.encode(text)) == text
    assert "".join(token.text for token in chars.ids_to_tokens([ord(c) for c in text])) == text


def test_ids_to_tokens():
    assert ByteTokenizer().ids_to_tokens([104, 255]) == [
        Token(0, "h", 104, None, None),
        Token(1, "<0xFF>", 255, None, None),
    ]
    with pytest.raises(InputError, match="256 is not a byte"):
        ByteTokenizer().ids_to_tokens([256])
    with pytest.raises(InputError, match="code point"):
        CharTokenizer().ids_to_tokens([0x110000])
    for tokenizer in (WordTokenizer(), WhitespaceTokenizer()):
        with pytest.raises(UsageError, match="no ids"):
            tokenizer.ids_to_tokens([1])
