"""Marking a worksheet: each answer against what a run of now gives."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from unicodedata import normalize

from attncli.errors import InputError
from attncli.features.check.document import CheckDocument, MarkedAnswer
from attncli.features.check.questions import QUESTIONS, Answer, Question
from attncli.language import message
from attncli.mechanism.checked_arguments import checked
from attncli.version import __version__

YES_AND_NO = {
    "yes": "yes", "y": "yes", "true": "yes", "是": "yes", "对": "yes", "会": "yes",
    "看": "yes", "有": "yes", "能": "yes",
    "no": "no", "n": "no", "false": "no", "否": "no", "不": "no", "不会": "no", "不是": "no",
    "不看": "no", "没有": "no", "没": "no", "不能": "no",
}  # fmt: skip
"""How a yes or a no may be written."""
QUOTES = "\"'`“”‘’„«»「」『』＂＇ "
"""Around an answer: marks that are no part of the word."""
NUMBERS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "零": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7,
    "八": 8, "九": 9, "十": 10, "e": math.e,
}  # fmt: skip
"""Numbers that may be written as words."""
UNITS = "倍个 "
"""Behind a number word in Chinese: so many times, so many things."""
STOPS = ".。!！ "
"""Behind an answer that is written as a sentence."""
ABOUT = re.compile("^(=|≈|~|≃|about |大?约) *")
"""Before a number: that it is rounded."""
UNIT = re.compile(r"(?<=[\d.]) *[^\W\d_]+$")
"""Behind a number in digits: one word, such as keys, times or 倍."""
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
"""A number whose thousands stand apart by commas."""
NUMERAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
"""A number in digits, without marks between its thousands."""
FEWEST_DIGITS = 2
"""Of a rounded answer: one digit alone would make a guess right too often."""


@checked
def check(answers: Mapping[str, object] | None = None, *, name: str | None = None) -> CheckDocument:
    """Mark the answers to the worksheet of the lessons.

    Args:
        answers: By the number of the question, such as `{"1": 0.66, "5": "humpty"}`; None for the
            questions alone.
        name: What the answers come from, for the document; None for nowhere.

    Returns:
        What `attn check --json` writes. Right answers are computed for the questions that were
        answered, and are not told: a wrong one gets the reason of a usual mistake, and each
        question the command that shows it.

    Raises:
        InputError: For a number that is no question's, and an answer that is neither a number, a
            word nor true or false.
    """
    numbers = [str(number) for number in range(1, len(QUESTIONS) + 1)]
    for key in answers or {}:
        if key not in numbers:
            # a key such as "1a" is a slip, which the list of questions clears up
            close = get_close_matches(key, numbers, n=1)
            raise InputError(
                "the worksheet has no question {number}",
                where=name or "",
                expected=message("numbers from 1 to {last}", last=numbers[-1]),
                hint="attn check" if close else "",
                number=repr(key),
            )
    marks = [
        _marked_answer(int(number), question, (answers or {}).get(number), name)
        for number, question in zip(numbers, QUESTIONS, strict=True)
    ]
    return CheckDocument(
        version=__version__,
        source=name,
        answers=marks,
        right=sum(mark.is_right is True for mark in marks),
        warnings=[],
    )


def _marked_answer(
    number: int, question: Question, given_value: object, name: str | None
) -> MarkedAnswer:
    """The document's entry on a question: with a mark for the answer, or without one where it is
    not answered. Raises InputError for an answer of another type than a number or a text.

    number: of the question, from 1.
    given_value: the answer as JSON holds it, None for none.
    name: of the file of answers, for errors.
    """
    mark = MarkedAnswer(
        number=number,
        question=question.text,
        answer=None,
        is_right=None,
        reason="",
        command=question.command,
    )
    if given_value is None:
        return mark
    if not isinstance(given_value, str | int | float):  # true and false are whole numbers, too
        raise InputError(
            "the answer to question {number} is no answer",
            where=name or "",
            expected="a number, a word, true or false",
            number=number,
        )
    text = str(given_value).strip().strip(QUOTES)
    answer = question.work_out()
    is_right = _is_same(text, answer.value, answer.tolerance)
    reason = ""
    if not is_right:
        reason = _reason(text, answer, question)
    return MarkedAnswer(
        number=number,
        question=question.text,
        answer=text,
        is_right=is_right,
        reason=reason,
        command=question.command,
    )


def _reason(text: str, answer: Answer, question: Question) -> str:
    """The likely cause of a wrong answer: that it is of another kind than the right one, a known
    slip, or else the cause stated for the question."""
    if answer.value in ("yes", "no") and _word(text) not in YES_AND_NO:
        return message("The question is answered by yes or no.")
    if not isinstance(answer.value, str) and not _readings(text):
        return message("This cannot be read as a number, such as 3, 0.5 or 50%.")
    for slip in answer.slips:
        if _is_same(text, slip.answer, answer.tolerance):
            return slip.reason
    return question.reason


def _is_same(text: str, value: float | str, tolerance: float) -> bool:
    """Whether a given answer equals the right one: a word up to its case, a number within the
    relative `tolerance` or correctly rounded to the digits that it has, two at least.
    """
    if isinstance(value, str):
        word = _word(text)
        if value in ("yes", "no"):
            return YES_AND_NO.get(word) == value
        return word == value.casefold()
    return any(
        math.isclose(number, value, rel_tol=tolerance) or _is_rounded(text, number, value)
        for number in _readings(text)
    )


def _word(text: str) -> str:
    """The word of an answer in small letters, without a full stop and without the place that
    screens write before a token, as in `0 humpty`."""
    return re.sub(r"^\d+ +", "", text.casefold().rstrip(STOPS))


def _is_rounded(text: str, number: float, value: float) -> bool:
    """Whether a number is the right one rounded to as many digits as it was written with.

    text: how it was written.
    """
    digits = re.sub(r"\D", "", text.partition("e")[0]).lstrip("0")  # without the exponent of 1e-3
    if len(digits) < FEWEST_DIGITS or "/" in text:
        return False
    return math.isclose(number, float(f"{value:.{len(digits)}g}"))


def _readings(text: str) -> list[float]:
    """The numbers that a text such as `0.66`, `0,66`, `66%`, `1,000`, `1/2`, `three`, `3 keys`, `e`
    or `exp(1)` can mean; none where it is no number, two where a comma stands before three digits.
    """
    # NFKC turns full-width signs into those of ASCII
    number_text = normalize("NFKC", text).casefold().rstrip(STOPS)
    number_text = ABOUT.sub("", number_text).replace("percent", "%")
    number_word = number_text.rstrip(UNITS)
    if number_word in NUMBERS:
        return [float(NUMBERS[number_word])]
    exponential = re.fullmatch(r"exp\((.+)\)", number_text)
    try:
        if exponential is not None:
            return [math.exp(number) for number in _decimals(exponential[1])]
        if number_text.endswith("%"):
            return [number / 100 for number in _decimals(number_text[:-1])]
        number_text = UNIT.sub("", number_text)
        if "/" in number_text:
            top, _, bottom = number_text.partition("/")
            return [high / low for high in _decimals(top) for low in _decimals(bottom)]
        return _decimals(number_text)
    except ArithmeticError:
        return []


def _decimals(text: str) -> list[float]:
    """The numbers that digits with marks between them can mean: a comma may stand before the
    decimals or, like a blank, between thousands."""
    numeral = re.sub(r"(?<=\d) (?=\d{3}(\D|$))", "", text.strip())
    spellings = [numeral]
    if THOUSANDS.fullmatch(numeral):
        spellings.append(numeral.replace(",", ""))
    if numeral.count(",") == 1 and "." not in numeral:
        spellings.append(numeral.replace(",", "."))
    return [float(spelling) for spelling in spellings if NUMERAL.fullmatch(spelling)]
