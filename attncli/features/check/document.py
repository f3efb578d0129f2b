"""`attn.check/1`: the questions of the worksheet, and which answers are right."""

from __future__ import annotations

from typing import Annotated

from attncli.documents import Count, Document, Part, Size, describe


class MarkedAnswer(Part, frozen=True, kw_only=True):
    """A question, and what was answered."""

    number: Annotated[Size, describe("Of the question, from 1.")]
    question: str
    answer: Annotated[str | None, describe("As it was written; null where there is none.")]
    is_right: Annotated[bool | None, describe("null where there is no answer.")]
    reason: Annotated[str, describe("What a wrong answer probably comes from; empty otherwise.")]
    command: Annotated[str, describe("What shows the right answer.")]


class CheckDocument(Document, tag="attn.check/1", frozen=True, kw_only=True):
    """The worksheet, with marks where answers were given. Right answers are computed at that
    moment, and are not in it."""

    source: Annotated[str | None, describe("The file of the answers; null for none.")]
    answers: Annotated[list[MarkedAnswer], describe("A question each, in order.")]
    right: Annotated[Count, describe("How many answers are right.")]
    warnings: list[str]
