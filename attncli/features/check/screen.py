"""The screen of `attn.check/1`: the questions, and what became of each answer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from attncli.draw.command_lines import command_lines, shell_text
from attncli.draw.lines import (
    Lines,
    fit_to_view,
    heading,
    localize,
    remark,
    sentences,
    stack,
    stack_spaced,
)
from attncli.draw.safe import safe
from attncli.draw.view import View
from attncli.features.check.document import CheckDocument, MarkedAnswer
from attncli.language import listing, message, say


def check_screen(document: CheckDocument, view: View) -> Lines:
    """The worksheet, question by question, with marks where there are answers, and how many are
    right; that alone in a brief view."""
    if view.brief:
        return fit_to_view(sentences(check_sentences(document, view), view), view)
    top = heading("worksheet of the lessons", "attn guide lessons", view)
    blocks = [_answer_lines(answer, view) for answer in document.answers]
    end = sentences(check_sentences(document, view), view)
    return fit_to_view(stack_spaced(top, *blocks, end), view)


def _answer_lines(answer: MarkedAnswer, view: View) -> Lines:
    """The lines of one question: what was answered, whether that is right, and of a mistake the
    likely reason and the command that shows the right answer."""
    question = remark(f"{answer.number}. {localize(answer.question, view)}", view, style="bold")
    if answer.is_right is None:
        return question
    # `or ""` is for the type checker: what is marked was answered
    text = safe(answer.answer or "", ascii=view.ascii)
    if answer.is_right:
        return stack(question, remark(say(view, "{answer}: right", answer=text), view))
    wrong = say(
        view,
        "{answer}: not right. {reason}",
        answer=text,
        reason=localize(answer.reason, view),
    )
    # words quoted where a shell needs it, and no more: shlex.quote would also quote a word of letters
    # beyond ASCII, such as 猫
    words = [
        word if word.isalnum() or word == shlex.quote(word) else shell_text(word)
        for word in shlex.split(answer.command)
    ]
    command = command_lines(words, view)
    return stack(question, remark(wrong, view, style=""), command)


def check_sentences(document: CheckDocument, view: View) -> list[str]:
    """Sentences on how many answers are right and how many are missing; without answers, on how to
    write them."""
    marked = [answer for answer in document.answers if answer.is_right is not None]
    if not marked:
        return [
            say(
                view,
                "{count} questions. Write your answers into a file, numbers or words, and have them "
                "marked:",
                count=len(document.answers),
            ),
            'echo \'{"1": 0.5, "5": "sat"}\' > answers.json && attn check answers.json',
        ]
    texts = [
        say(
            view,
            "Right answers: {right} of {count}.",
            count=len(marked),
            right=document.right,
        )
    ]
    missing = [str(answer.number) for answer in document.answers if answer.is_right is None]
    if missing:
        texts.append(say(view, message("Not answered: {numbers}.", numbers=listing(missing))))
    return texts


def check_rows(document: CheckDocument) -> Iterator[Sequence[object]]:
    """Yield the table for `--plain`, names of columns first: each question with its answer and
    mark."""
    yield ["number", "question", "answer", "is_right", "reason", "command"]
    for answer in document.answers:
        yield [
            answer.number,
            answer.question,
            answer.answer,
            answer.is_right,
            answer.reason,
            answer.command,
        ]
