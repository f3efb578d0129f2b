"""The shaded sentence: tints and marks by share, brackets around the chosen word, nothing wider
than the view.
"""

from draw.test_tables import VIEWS, WORDS, fits
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.draw.sentence import LEAST, WINDOW, Word, sentence, words
from attncli.draw.shaded_matrix import AMBER, AMBER_LIGHT, tint
from attncli.draw.view import View
from attncli.inputs.token import Token


def test_marks_stand_for_shares_where_there_is_no_colour() -> None:
    shares = (0.0, LEAST, 0.25, 0.5, 0.75, 1.0, LEAST - 0.01, None)
    shown = [Word(chr(97 + at), share) for at, share in enumerate(shares)]
    assert sentence(shown, View()).plain == "a ░b░ ▒c▒ ▓d▓ █e█ █f█ g h"
    assert sentence(shown, View(ascii=True)).plain == "a .b. :c: *d* #e# #f# g h"


def test_the_chosen_word_stands_in_brackets_and_blanks_are_those_of_the_text() -> None:
    shown = [
        Word("didn"),
        Word("'", apart=False),
        Word("t", 0.9, True, False),
        Word("[SEP]", quiet=True),
    ]
    assert sentence(shown, View()).plain == "didn'[█t█] [SEP]"


def test_chosen_words_in_a_row_stand_in_one_pair_of_brackets() -> None:
    shown = [
        Word("did", 0.0, True),
        Word("n", 0.3, True, False),
        Word("it"),
        Word("was", None, True),
    ]
    assert sentence(shown, View()).plain == "[did▒n▒] it [was]"


def test_bytes_of_one_character_are_that_character() -> None:
    said = "a 爱b\n"
    found = [
        Token(0, "a", 1, 0, 1),
        *(Token(at, f"<0x{at:02X}>", at, 2, 3) for at in (1, 2, 3)),
        Token(4, "b", 4, 3, 4),
        Token(5, "\n", 5, 4, 5),
        Token(6, "new", 6, None, None),
    ]
    assert sentence(
        words(said, found, [0.0, 0.1, 0.6, None, 0.0, 0.0, 0.0], frozenset({2})), View()
    ).plain == ("a [▓爱▓]b new")
    assert sentence(
        words(said, found, [0.0, 0.1, 0.0, 0.3, 0.0, 0.1, 0.0], frozenset()), View()
    ).plain == ("a ▒爱▒b ░␊░ new")


def test_colour_tints_with_the_palette_of_the_terminal() -> None:
    (row,) = sentence([Word("a", 1.0), Word("b", 0.01)], View(color=True)).rows
    assert row == (("a", tint(1.0, View())), (" ", ""), ("b", ""))
    assert tint(1.0, View()) == AMBER["truecolor"].style(1.0)
    assert tint(1.0, View(light=True)) == AMBER_LIGHT["truecolor"].style(1.0)


def test_a_long_text_keeps_what_matters() -> None:
    shown = [Word(f"w{at}", 0.9 if at == 300 else 0.0, at == 10) for at in range(500)]
    text = sentence(shown, View(width=80)).plain
    assert "w10]" in text
    assert "w300█" in text
    assert "w200" not in text
    assert "…" in text
    assert len(text.split()) < WINDOW
    assert "w200" in sentence(shown, View(width=80, full=True)).plain


@settings(deadline=None, max_examples=60)
@given(
    VIEWS,
    st.lists(
        st.builds(Word, st.sampled_from(WORDS), st.floats(0, 1), st.booleans(), st.booleans()),
        max_size=20,
    ),
)
def test_sentences_fit_every_view(view: View, words: list[Word]) -> None:
    fits(sentence(words, view), view)


def test_what_is_left_out_of_a_long_text_is_marked_at_both_ends() -> None:
    words = [Word(f"w{at}", 0.5 if 60 <= at < 180 else 0.0, at == 70) for at in range(WINDOW * 2)]
    for ascii, sign in ((False, "…"), (True, "...")):
        shown = sentence(words, View(width=60, ascii=ascii)).plain
        assert shown.startswith(f"{sign} ")
        assert shown.rstrip().endswith(f" {sign}")
        assert max(map(len, shown.splitlines())) <= 60
    whole = sentence(words[:WINDOW], View(width=60)).plain
    assert "…" not in whole
