"""Words in every script."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.inputs import tokenize as module
from attncli.inputs.script_words import set_apart
from attncli.inputs.tokenize import words


def cut(text):
    return [text[start:end] for start, end in words(text)]


SENTENCES = {
    "The animal didn't cross the street": "The|animal|didn't|cross|the|street",
    "l’eau, rock'n'roll; dogs' 'tis 'quoted'": "l’eau|,|rock'n'roll|;|dogs|'|'|tis|'|quoted|'",
    "3.14 1,000. 2.x a.b 1'2 x.": "3.14|1,000|.|2|.|x|a|.|b|1|'|2|x|.",
    "GPT2 snake_case long-distance 50% (a)": "GPT2|snake_case|long|-|distance|50|%|(|a|)",
    "你好!?…": "你|好|!|?|…",
    "我用GPT2写了3.14行": "我|用|GPT2|写|了|3.14|行",
    "東京タワーへ行く": "東|京|タ|ワ|ー|へ|行|く",
    "か\u3099く ｶﾞｸ": "か\u3099|く|ｶﾞ|ｸ",
    "ສະບາຍດີ": "ສ|ະ|ບ|າ|ຍ|ດີ",
    "សួស្តី": "សួ|ស្|តី",
    "မြန်မာ": "မြ|န်|မာ",
    "𠮷野家": "𠮷|野|家",
    "我昨天去超市，买了牛奶": "我|昨|天|去|超|市|，|买|了|牛|奶",
    "她吃苹果，他吃香蕉": "她|吃|苹|果|，|他|吃|香|蕉",
    "今天 我 的 计划 是 买菜": "今|天|我|的|计|划|是|买|菜",
    "हिन्दी में लिखो।": "हिन्दी|में|लिखो|।",
    "ภาษาไทย น้ำ": "ภ|า|ษ|า|ไ|ท|ย|น้ำ",
    "العَرَبِيَّة، ٣٫١٤": "العَرَبِيَّة|،|٣٫١٤",
    "می\u200cخواهم צה״ל": "می\u200cخواهم|צה״ל",
    "cafe\u0301 Straße naïve": "cafe\u0301|Straße|naïve",
    "cafe\u0301's e\u0301'e\u0301": "cafe\u0301's|e\u0301'e\u0301",
    "한국어 가나다.": "한국어|가나다|.",
    "👨\u200d👩\u200d👧\u200d👦👍🏽 hi😀there 🇩🇪🇫🇷": "👨\u200d👩\u200d👧\u200d👦|👍🏽|hi|😀|there|🇩🇪|🇫🇷",
    "1\ufe0f\u20e32\ufe0f\u20e3x": "1\ufe0f\u20e3|2\ufe0f\u20e3|x",
    "a\u200bb": "a|b",
    "é\u202eevil\x1b[0m\ud800": "é|\u202e|evil|\x1b|[|0m|\ud800",
    "[bold]x[/bold]": "[|bold|]|x|[|/|bold|]",
    "½ x² № Ⅳ": "½|x²|№|Ⅳ",
    " ": "",
    "": "",
    "\t\r\n\u3000\u00a0\u2028": "",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_words(text):
    assert cut(text) == [word for word in SENTENCES[text].split("|") if word]


@settings(deadline=None, max_examples=300)
@given(
    st.text(alphabet="ab9_'., \t\x1b\x1c-\n!", max_size=16)
    | st.text(alphabet=st.characters(max_codepoint=127), max_size=16)
)
def test_the_fast_way_for_ascii_is_the_same(text):
    fast = list(words(text))
    slow = list(words(text + " \u3000"))  # not ASCII, so the other way
    assert fast == slow


def test_the_two_ways_are_really_two(monkeypatch):
    monkeypatch.setattr(module, "ASCII", re.compile("x"))
    assert cut("a b") == []
    assert cut("a b\u3000") == ["a", "b"]


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=30) | st.text(alphabet="aé9'’.,我\u0301\u200d\ufe0f👍 \u200b", max_size=20))
def test_words_lose_nothing_but_space(text):
    found = list(words(text))
    assert all(end <= start for (_, end), (start, _) in pairwise(found))
    rest = [
        char
        for place, char in enumerate(text)
        if not any(start <= place < end for start, end in found)
    ]
    assert all(char.isspace() or char == "\u200b" or char in "\u200d\u200c" for char in rest)


@pytest.mark.parametrize("text", ["a", "字", "a'", "e\u0301", "\u200d", "字.", "9."])
def test_long_texts_without_a_space(text):
    assert cut(text * 30_011)


def test_blanks_between_characters_that_need_none_are_noticed():
    assert set_apart("今天 我 的 计划 是 买菜")
    assert not set_apart("我 爱 你")  # one character a word is what the tokenizer does anyway
    assert not set_apart("我昨天去超市，买了牛奶")
    assert not set_apart("I like 北京 very much")
    assert not set_apart("")
