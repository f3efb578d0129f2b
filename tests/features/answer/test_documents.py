"""Twelve documents of which one decides, on a real model: the decisive one is named, and none where no
document holds the answer. The prompts are those of `tests/benchmarks/answers.py`."""

from __future__ import annotations

import pytest
from benchmarks.answers import DOCUMENTS, QUESTIONS, measure, named_regions

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_decisive_document_is_named_and_none_where_there_is_none(name: str) -> None:
    question, decides, word = QUESTIONS[name]
    document, _ = measure("smollm2", DOCUMENTS, question, "--tokens", "24")
    answer = document["answer"]["text"]
    assert word.lower() in answer.lower(), "the model answers rightly"
    # an answer that says more than was asked may rest on a second one, too
    named = [region for region, _ in named_regions(document)]
    if decides is None:
        assert named == []
    else:
        assert named[0] == decides
