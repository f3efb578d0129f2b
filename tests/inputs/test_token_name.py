"""Naming a token."""

from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.errors import InputError
from attncli.inputs.token import (
    Span,
    Token,
    TokenMatch,
    find_span,
    find_token,
    joined_text,
    quoted_entry,
)
from attncli.inputs.tokenize import ByteTokenizer, WordTokenizer


def tokens(*texts):
    return [Token(index, text, None, None, None) for index, text in enumerate(texts)]


SENTENCE = WordTokenizer().encode("The animal crossed the street as the cat")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("animal", TokenMatch(1, 1)),
        ("the", TokenMatch(3, 2)),
        ("The", TokenMatch(0, 1)),
        ("THE", TokenMatch(0, 3)),
        ("the:2", TokenMatch(6, 1)),
        ("THE:3", TokenMatch(6, 1)),
        ("#0", TokenMatch(0, 1)),
        ("#7", TokenMatch(7, 1)),
        ("#-1", TokenMatch(7, 1)),
        ("#-8", TokenMatch(0, 1)),
        ("#3-3", TokenMatch(3, 1)),
    ],
)
def test_references(reference, expected):
    assert find_token(SENTENCE, reference) == expected


def test_marks_of_pieces_are_looked_past_last():
    assert find_token(tokens("▁it", "##it", "Ġit", " it"), "it") == TokenMatch(0, 4)
    assert find_token(tokens("▁it", "it"), "it") == TokenMatch(1, 1)
    assert find_token(tokens("##it", "IT"), "it") == TokenMatch(1, 1)
    assert find_token(tokens("##ing", "x"), "ing:1") == TokenMatch(0, 1)


def test_tokens_that_look_like_references_can_be_named():
    assert find_token(tokens("a", "#7", "a:2", "a"), "#7") == TokenMatch(1, 1)
    assert find_token(tokens("a", "#7", "a:2", "a"), "a:2") == TokenMatch(2, 1)
    assert find_token(tokens("a", "#7", "a:2", "a"), "a:2:1") == TokenMatch(2, 1)
    assert find_token(tokens("a", "#7", "a:2", "a"), "#3") == TokenMatch(3, 1)
    assert find_token(tokens(":", ":"), "::2") == TokenMatch(1, 1)
    assert find_token(tokens("x", " "), " ") == TokenMatch(1, 1)


@pytest.mark.parametrize(
    ("reference", "what", "expected"),
    [
        ("#8", "no token #8", "#0 to #7"),
        ("#-9", "no token #-9", "8 tokens"),
        ("the:3", "number 3", "the:1 to the:2"),
        ("the:0", "number 0", "2 times"),
        ("cat:2", "number 2", "cat:1: it occurs once"),
        ("anmal", "no token 'anmal'", "one of: 'The', 'animal'"),
        ("", "no token ''", "one of"),
        ("#", "no token '#'", "one of"),
        ("#99999999999999999999", "no token", "one of"),
    ],
)
def test_what_is_not_there(reference, what, expected):
    with pytest.raises(InputError) as caught:
        find_token(SENTENCE, reference)
    assert what in caught.value.what
    assert expected in caught.value.expected


def test_did_you_mean():
    for wrong in ("anmal", "ANIMALS", "anmal:2"):
        with pytest.raises(InputError) as caught:
            find_token(SENTENCE, wrong)
        assert caught.value.hint == "did you mean 'animal'?"


def test_many_tokens_are_not_all_listed():
    with pytest.raises(InputError) as caught:
        find_token(tokens(*(f"w{i}" for i in range(101))), "zebra")
    assert "101 in all" in caught.value.expected
    assert "w77" not in caught.value.expected


def test_a_text_without_tokens():
    with pytest.raises(InputError, match="no token 'a'"):
        find_token([], "a")
    with pytest.raises(InputError):
        find_token([], "#0")


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=7), st.data())
def test_every_token_can_be_named_by_its_text(texts, data):
    place = data.draw(st.integers(0, len(texts) - 1))
    count = texts[: place + 1].count(texts[place])
    assert find_token(tokens(*texts), texts[place]).index == texts.index(texts[place])
    reference = f"{texts[place]}:{count}"
    if reference not in texts and reference.casefold() not in [text.casefold() for text in texts]:
        assert find_token(tokens(*texts), reference).index == place


PIECES = [
    Token(0, "[CLS]", None, None, None, special=True), Token(1, "didn", 1, 0, 4), Token(2, "'", 2, 4, 5), Token(3, "t",
    3, 5, 6),
    Token(4, "##s", 4, 6, 7), Token(5, " ", 5, 7, 8), Token(6, "▁it", 6, 8, 11), Token(7, "was", 7, 12, 15),
]  # fmt: skip


@pytest.mark.parametrize("word", ["didn't", "DIDN'T", "didn't:2", "'ts"])
def test_a_word_of_several_pieces_is_told_apart_from_a_missing_one(word):
    with pytest.raises(InputError) as caught:
        find_token(PIECES, word)
    assert caught.value.expected.startswith("one token; this is ")
    assert "#2 ', #3 t" in caught.value.expected
    assert "--words" in caught.value.hint


@pytest.mark.parametrize("word", ["itwas", "[CLS]didn", "tsit", "didnt", "x"])
def test_tokens_apart_are_no_word(word):
    with pytest.raises(InputError) as caught:
        find_token(PIECES, word)
    names = """'[CLS]', 'didn', "'", 't', '##s', "' '", 'it', 'was'"""
    assert caught.value.expected == f"one of: {names}; or #0 to #7"


RUN = [Token(0, "[CLS]", 101, None, None, special=True)] + [
    Token(at + 1, text, at, start, start + len(text.removeprefix("##")))
    for at, (text, start) in enumerate(
        [
            ("did", 0),
            ("##n", 3),
            ("'", 4),
            ("t", 5),
            ("the", 7),
            ("street", 11),
            ("did", 18),
            ("##n", 21),
        ]
    )
]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("street", Span(6, 7)),
        ("#2-4", Span(2, 5)),
        ("#3-3", Span(3, 4)),
        ("didn't", Span(1, 5)),
        ("DIDN'T", Span(1, 5)),
        ("didn", Span(1, 3, 2)),
        ("didn:2", Span(7, 9)),
        ("the street", Span(5, 7)),
        ("did:2", Span(7, 8)),
    ],
)
def test_several_tokens_in_a_row_are_named(reference, expected):
    assert find_span(RUN, reference) == expected


@pytest.mark.parametrize(
    ("reference", "what"),
    [
        ("thestreet", "no token"),
        ("#4-2", "backwards"),
        ("#2-99", "no token #99"),
        ("didn:3", "number 3"),
        ("[CLS]did", "no token"),
    ],
)
def test_what_is_not_in_a_row_is_refused(reference, what):
    with pytest.raises(InputError, match=what):
        find_span(RUN, reference)


def test_chinese_words_are_several_characters():
    found = WordTokenizer().encode("我昨天去超市，买了牛奶和面包，今天发现面包过期了")
    assert find_span(found, "面包") == Span(12, 14, 2)
    assert find_span(found, "面包:2") == Span(19, 21)


def test_bytes_spell_the_characters_that_they_make():
    found = tokens("a", "É", "<0x20><0xE7>", "<0x88>", "<0xB1>", "<0xC3>", "<0x89>", "<0xE7>")
    assert find_span(found, "爱") == Span(2, 5)
    assert find_span(found, "爱É") == Span(2, 7)
    assert find_span(ByteTokenizer().encode("É爱É"), "É:2") == Span(5, 7)
    with pytest.raises(InputError, match="no token '我'"):
        find_span(found, "我")


def test_letters_with_marks_are_the_same_composed_or_not():
    apart = "re\u0301sume\u0301"
    composed = normalize("NFC", apart)
    for text, typed in ((apart, composed), (composed, apart)):
        assert find_token(tokens("a", text), typed) == TokenMatch(1, 1)
        pieces = [*tokens("a", text[:2]), *ByteTokenizer().encode(text[2:]), *tokens("b")]
        assert find_span(pieces, typed) == Span(1, len(pieces) - 1)
        assert find_span([*pieces, *pieces], f"{typed}:2").first == len(pieces) + 1


def test_an_error_names_characters_and_no_bytes():
    text = [*tokens("a"), *ByteTokenizer().encode("我爱e\u0301"), *tokens("b", "<0xE4>")]
    with pytest.raises(InputError) as caught:
        find_token(text, "x")
    names = "'a', '我', '爱', 'e', '◌\u0301', 'b', '0xE4'"
    assert f"one of: {names}; or #0 to #11" in caught.value.expected


def test_bytes_are_joined_to_the_characters_that_they_spell():
    assert joined_text(["Yes", "<0x0A>", "No"]) == "Yes\nNo"
    assert joined_text(["<0x20>", "<0xE4>", "<0xBD><0xA0>"]) == " 你"
    assert joined_text(["a", "<0xE4>"]) == "a0xE4"


def test_an_entry_is_quoted_with_its_blank_and_line_breaks_as_screens_draw_them():
    assert [quoted_entry(text) for text in (" Oslo", "\n\n", "a\tb")] == [
        "'␣Oslo'",
        "'␊␊'",
        "'a␉b'",
    ]
