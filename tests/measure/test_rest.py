"""The one rule of where heads rest, case by case."""

from __future__ import annotations

import pytest
import resting_model

from attncli.inputs.token import Token
from attncli.measure.rest import (
    is_separator,
    rest_keys,
    rest_kinds,
    resting_keys,
    word_in_front,
)

SEPARATORS = ("\n", "\n\n", ".\n\n", "Ċ", "ĠĊ", "---", " ===", "Ġ###", "***", "|", "▁|")
WORDS = ("it", "-", "#", ".", "Č", "ĊċĠ", "a\n", "", " ", "--x", "'t", "牛")


def _tokens(*texts: str, special: tuple[int, ...] = ()) -> list[Token]:
    """Tokens of these texts. special: which of them the tokenizer added."""
    return [
        Token(place, text, place, None, None, special=place in special)
        for place, text in enumerate(texts)
    ]


@pytest.mark.parametrize("text", SEPARATORS)
def test_line_breaks_and_marks_of_structure_separate(text: str) -> None:
    assert is_separator(_tokens(text)[0])


@pytest.mark.parametrize("text", WORDS)
def test_words_and_single_punctuation_do_not(text: str) -> None:
    assert not is_separator(_tokens(text)[0])


def test_heads_rest_on_the_first_token_whatever_it_is_on_specials_and_on_separators() -> None:
    plain = _tokens("Our", "cat", "\n", "sat")
    assert rest_keys(plain).tolist() == [True, False, True, False]
    assert rest_kinds(plain) == ("first", "separators")
    framed = _tokens("[CLS]", "cat", "[SEP]", special=(0, 2))
    assert rest_keys(framed).tolist() == [True, False, True]
    assert rest_kinds(framed) == ("special",)
    assert rest_kinds(_tokens("\n", "cat")) == ("first",)
    assert rest_keys([]).tolist() == []
    assert rest_kinds([]) == ()


def test_weights_that_nobody_trained_rest_nowhere() -> None:
    tokens = _tokens("Our", "cat")
    assert resting_keys(tokens, "checkpoint").any()
    for source in ("seeded", "random", "file", "tensors"):
        assert not resting_keys(tokens, source).any()


def test_another_word_in_front_leaves_all_tokens_of_the_text_what_they_are() -> None:
    tokenizer = resting_model.Characters()
    tokens = tokenizer.encode("cab")
    front = word_in_front(tokenizer, "cab", tokens)
    assert front.word == "Today"
    assert [token.id for token in front.tokens[front.added :]] == [token.id for token in tokens]
    assert [token.index for token in front.tokens] == list(range(len(front.tokens)))
    assert front.new_index(0) == front.added == 6
    assert word_in_front(tokenizer, "Today a", tokenizer.encode("Today a")).word == "Then"
    chinese = word_in_front(tokenizer, "她吃", tokenizer.encode("她吃"))
    assert (chinese.word, chinese.added) == ("今天", 2)


def test_special_tokens_stay_in_front_of_the_word() -> None:
    class Framed(resting_model.Characters):
        def encode(self, text, pair=None):
            frame = Token(0, "<s>", 0, None, None, special=True)
            inner = [token.relocate(token.index + 1, 0) for token in super().encode(text)]
            return [frame, *inner]

    tokens = Framed().encode("cab")
    front = word_in_front(Framed(), "cab", tokens)
    assert front.tokens[0].special
    assert front.new_index(0) == 0
    assert front.new_index(1) == 1 + front.added
