"""What attn says to people. English stands in the code; other languages are the catalogues beside
this file.

How to write a sentence:

    message("{texts} texts are given", texts=3)                      an error, a note, a warning, a
    title, a remark
    plural("{count} token", "{count} tokens", count=n)               the English by whether `count`
    is 1
    say(view, "the largest weight is {weight}", weight=text)         a sentence for this screen, in
    its language
    say(view, plural("{count} pair", "{count} pairs", count=n))      the same with a number
    contextual("column", "rank")                                     equal English that needs two
    translations
    listing(names), choice(names)                                    "a, b, c" and "a, b or c"
    term(name)                                                       a word that a variable holds,
    such as "head"

- The sentence is one literal, never an f-string and never put together with `+`: a translator sees
  all of it. Its places have names: nouns of what stands there. `{count:,}` and the like are
  allowed; `repr` goes into the value.
- What is in a place is left as it is, unless it is itself a message: then it is translated as well.
- A message is its finished English (a `str`), so a document, JSON and Python show that. What is
  done to it afterwards (`+`, `.strip()`, an f-string) gives plain text that no language knows: put
  it in a place of another message.
- `localize` (`attncli.draw.lines`) and the border that shows errors and notes translate: by the
  template, before the values are put in. Nothing is recognised from finished English.
- Then `python tests/catalogues.py` (it needs Babel) adds the sentence to every catalogue,
  `attncli/language/zh.po`; write its translation there, by hand or with Poedit, and run it again:
  it compiles the `.mo`. A test holds that none is missing. A language more is one more file:
  `python tests/catalogues.py fr`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from os import scandir
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gettext import NullTranslations


class Speech(Protocol):
    """The language that sentences are in, and whether only ASCII may be written; a `View` has both."""

    @property
    def lang(self) -> str:
        """The language, "en" or that of a catalogue."""
        ...

    @property
    def ascii(self) -> bool:
        """Whether only ASCII leaves the program."""
        ...


BLANK_BESIDE_QUOTES = "(?<=[\u3400-\u9fff]) (?=“)|(?<=[”）]) (?=[\u3400-\u9fff])"
"""A blank between an ideograph and quotes or a bracket, where none is written. Compiled when it is
first used: ideographs take 2 ms."""


class Message(str):
    """A finished English sentence that remembers its template and what stands in its places.

    template: the English with named places, the singular where there is a plural.
    values: what stands in each place.
    plurals: the English for a `count` other than 1; "" for none.
    context: what tells it from equal English with another translation; "" for none.
    """

    __slots__ = ("context", "plurals", "template", "values")
    template: str
    values: dict[str, object]
    plurals: str
    context: str

    def __new__(
        cls, template: str, values: dict[str, object], plurals: str = "", context: str = ""
    ) -> Message:
        """Fill in the values; of a sentence with `plurals`, by its `count`, in the singular
        (`template`) or the plural. Without values, braces in the template stay as they are.
        """
        if plurals and values["count"] != 1:
            sentence = plurals
        else:
            sentence = template
        self = super().__new__(cls, sentence.format(**values) if values else sentence)
        self.template = template
        self.values = values
        self.plurals = plurals
        self.context = context
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Lets `copy` and `pickle` make the message again from its template and values."""
        return type(self), (self.template, self.values, self.plurals, self.context)

    def translation(self, lang: str) -> str:
        """The sentence in this language; in English if the catalogue lacks it."""
        catalogue = catalogue_of(lang)
        if not self.template:  # gettext keeps the catalogue's own header under ""
            return ""
        if self.plurals:
            count = self.values["count"]  # anything but a whole number takes the plural
            sentence = catalogue.ngettext(
                self.template, self.plurals, count if isinstance(count, int) else 2
            )
        elif self.context:
            sentence = catalogue.pgettext(self.context, self.template)
        else:
            sentence = catalogue.gettext(self.template)
        if not self.values:
            return sentence
        values = {name: _translate_value(value, lang) for name, value in self.values.items()}
        if sentence == self.template:  # it is not translated
            return sentence.format(**values)
        if "attn " not in sentence:  # a command keeps the quotes that a shell reads
            values = {name: _in_quotes_of(value, catalogue) for name, value in values.items()}
        return re.sub(BLANK_BESIDE_QUOTES, "", sentence.format(**values))


class MessageList(Message):
    """Texts one after the other, joined as each language joins them; those that are messages are
    translated.
    """

    __slots__ = ("last", "separator", "texts")
    texts: tuple[object, ...]
    separator: str
    last: str

    def __new__(cls, texts: tuple[object, ...], separator: str, last: str) -> MessageList:
        """Join the texts in English, with `last` before the last one."""
        self = str.__new__(cls, _join(list(map(str, texts)), separator, last))
        self.texts = texts
        self.separator = separator
        self.last = last
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Lets `copy` and `pickle` make the list again from its texts."""
        return type(self), (self.texts, self.separator, self.last)

    def translation(self, lang: str) -> str:
        """The texts and the separators between them, translated into this language."""
        catalogue = catalogue_of(lang)
        between = (catalogue.pgettext("between", sign) for sign in (self.separator, self.last))
        texts = [_translate_value(text, lang) for text in self.texts]
        if lang != "en":
            texts = [_in_quotes_of(text, catalogue) for text in texts]
        return _join(list(map(str, texts)), *between)


def message(template: str, /, **values: object) -> Message:
    """A sentence of which the translation is looked up where it is shown.

    Args:
        template: English with named places; without values it stands as it is, braces too.
        values: What stands in each place.

    Returns:
        Its finished English, which remembers template and values.
    """
    return Message(template, values)


def plural(singular: str, others: str, /, *, count: int, **values: object) -> Message:
    """A sentence with a count, in English singular for 1 and plural for any other; each language
    picks its own form.

    Args:
        singular: The English for a count of 1.
        others: The English for any other count.
        count: The count, which may stand in a place {count} of its own.
        values: What stands in the other places.

    Returns:
        The finished English for this count.
    """
    return Message(singular, {"count": count, **values}, others)


def contextual(context: str, template: str, /, **values: object) -> Message:
    """A sentence whose English text is used in two meanings: `context` tells which, so that each
    has its own translation.

    Args:
        context: In a word, what it is here.
        template: English with named places.
        values: What stands in each place.

    Returns:
        Its finished English, translated as this context has it.
    """
    return Message(template, values, context=context)


def term(text: str, /) -> Message:
    """A message of an English text without named places, such as a constant or an entry of a list:
    translated only where it is shown. A message stays itself.

    Args:
        text: The English literal, or a message.

    Returns:
        The message.
    """
    if isinstance(text, Message):
        return text
    return Message(text, {})


def listing(texts: Iterable[object], separator: str = ", ") -> Message:
    """The texts one after the other, such as "a, b, c".

    Args:
        texts: Texts; those that are messages are translated.
        separator: One that `SEPARATORS` has, or signs that are no words.

    Returns:
        One message, "" of no texts.
    """
    return MessageList(tuple(texts), separator, separator)


def choice(texts: Iterable[object], separator: str = ", ", last: str = " or ") -> Message:
    """The texts to choose from, such as "a, b or c".

    Args:
        texts: Texts; those that are messages are translated.
        separator: What stands between them, out of `SEPARATORS`; with " or " it is "a or b or c".
        last: What stands before the last.

    Returns:
        One message, "" of no texts.
    """
    return MessageList(tuple(texts), separator, last)


def _join(texts: list[str], separator: str, last: str) -> str:
    """The texts with the separator between them, and `last` before the last."""
    if len(texts) > 1:
        return last.join([separator.join(texts[:-1]), texts[-1]])
    return "".join(texts)


FOLDERS = list(__path__)
"""Where catalogues lie; a test adds one of its own."""


def languages() -> tuple[str, ...]:
    """English, and every language that has a catalogue.

    Returns:
        Their names: "en" first, the others in order of the alphabet.
    """
    names = [entry.name for folder in FOLDERS for entry in scandir(folder)]
    return ("en", *sorted(name.removesuffix(".mo") for name in names if name.endswith(".mo")))


def language_of(name: str) -> str:
    """The language that a name with a region, a script or an encoding means.

    Args:
        name: Such as "zh-CN", "zh_Hans" or "en_US.UTF-8".

    Returns:
        Its name in `languages()`, "zh" or "en" here; the name as it is where there is none.
    """
    language, *_ = name.lower().replace("_", "-").replace(".", "-").split("-")
    if language in languages():
        return language
    return name


@cache
def catalogue_of(lang: str) -> NullTranslations:
    """The gettext catalogue of a language; for English, or a language without one, a catalogue that
    changes no text.
    """
    from gettext import GNUTranslations, NullTranslations
    from pathlib import Path

    if lang == "en":
        return NullTranslations()
    for folder in FOLDERS:
        path = Path(folder, f"{lang}.mo")
        if path.exists():
            with path.open("rb") as file:
                return GNUTranslations(file)
    return NullTranslations()


def translate(text: str, lang: str) -> str:
    """A sentence of the program in this language, the values in its places translated, too.

    Args:
        text: A message, or a whole literal that a catalogue has; any other text stays as it is.
        lang: The language, "en" or that of a catalogue.

    Returns:
        The translation; the English where the catalogue lacks it.
    """
    if lang == "en" or not text:
        return text
    if isinstance(text, Message):
        return text.translation(lang)
    return catalogue_of(lang).gettext(text)


def _translate_value(value: object, lang: str) -> object:
    """Translate a value that is put in a sentence: a message into this language; anything else is
    unchanged."""
    if isinstance(value, Message):
        return value.translation(lang)
    return value


def _in_quotes_of(value: object, catalogue: NullTranslations) -> object:
    """Give a text that `repr` quoted, such as `'cat'`, the quotation marks of the language. A
    reference such as '#3' keeps straight quotes, because it is typed with them; anything else is
    unchanged."""
    if type(value) is not str or len(value) < 3:  # less than a letter between two quotes
        return value
    quote = value[0]
    if quote not in "'\"" or value[-1] != quote:
        return value
    inside = value[1:-1]
    if quote in inside or inside.startswith("#"):
        return value
    return catalogue.gettext('"{text}"').format(text=inside)


SEPARATORS = (
    contextual("between", ", "), contextual("between", "; "), contextual("between", " · "), contextual("between", ": "),
    contextual("between", " or "), contextual("between", ", or "), contextual("between", " and "),
    contextual("between", "; and "), contextual("between", "; or "),
)  # fmt: skip
"""What `listing` and `choice` put between texts."""


def say(view: Speech, text: str, /, **places: object) -> str:
    """The finished sentence in the view's language, its named places filled; in English where the
    view is ASCII only.

    Args:
        view: Its language, and whether only ASCII may be written.
        text: English with named places, or a message; a declared one whose places are still open is
            filled here.
        places: What stands in each place.

    Returns:
        The finished sentence.
    """
    if not isinstance(text, Message):
        text = Message(text, places)
    elif places:
        text = Message(text.template, {**text.values, **places}, text.plurals, text.context)
    lang = "en" if view.ascii else view.lang
    sentence = text.translation(lang)
    if lang == "zh":
        return _close_quotes(sentence)
    return sentence


def _close_quotes(text: str) -> str:
    """A Chinese sentence without the blanks that its template leaves beside quotation marks and
    behind a name; unchanged if it has no quotation marks.
    """
    # 的一部分 is "a piece of …", which ends the name of a token
    if "“" in text:
        closed = text.replace(" “", "“").replace("” ", "”").replace("） ", "）")
        return closed.replace("的一部分 ", "的一部分")
    return text


def say_each(view: Speech, *texts: str) -> list[str]:
    """Several sentences for this screen, such as the columns of a table.

    Args:
        view: Its language, and whether only ASCII may be written.
        texts: As of `say`.

    Returns:
        The finished sentences, in the same order.
    """
    return [say(view, text) for text in texts]
