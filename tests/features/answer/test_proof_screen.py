"""What the screen of an answer says of doses, heads and the next step: no more than its numbers."""

from __future__ import annotations

from typing import Any

import pytest
from draw import documents
from draw.documents import SENTENCE

from attncli.documents.reading import document_of
from attncli.draw.screen_header import screen_of
from attncli.draw.view import View
from attncli.features.answer.document import AnswerDocument
from attncli.features.answer.proof_screen import (
    carrier_sentences,
    carrier_table,
    dose_sentences,
)
from attncli.features.answer.screen import _written_text, answer_sentences

OWN = -0.5
WIDE = View(lang="en", width=400)


def answered(**parts: Any) -> AnswerDocument:
    """A document of an answer with these parts in place of its own."""
    document = document_of({**documents.answer(), **parts}, "test")
    assert isinstance(document, AnswerDocument)
    return document


def dosed(
    changes: list[float], factor: float = 4.0, heads: Any = None, **parts: Any
) -> AnswerDocument:
    """One with a dose on doc1. changes: at the factors 0, ½, 1, 2 and 4."""
    doses = [
        {"factor": each, "logprob": OWN + change, "change": change}
        for each, change in zip((0.0, 0.5, 1.0, 2.0, 4.0), changes, strict=True)
    ]
    weighed = {"name": "doc1", "keys": [0, 1, 2], "factor": factor, "heads": heads}
    return answered(doses={"weighed": weighed, "doses": doses, **parts})


def carried(changes: list[float], every: float, **parts: Any) -> AnswerDocument:
    """One whose first region is cut in heads with these changes, and in all with `every`."""
    heads = [
        {"layer": 20 + place, "head": 4, "attention": 0.2, "estimate": change, "change": change}
        for place, change in enumerate(changes)
    ]
    document = documents.answer()
    document["model"] |= {"layers": 30, "heads": 9}
    effects = document["effects"]
    effects[0] |= {"change": -1.5, "logprob": OWN - 1.5}
    return answered(
        model=document["model"],
        effects=effects,
        carriers={"region": 0, "count": 270, "heads": heads, "together": -0.8, "every": every},
        **parts,
    )


def said(sentences: Any) -> str:
    return " ".join(sentences)


FALL = [0.4, 0.2, 0.0, -0.2, -0.4]


@pytest.mark.parametrize("factor", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(("lang", "words"), [("en", "in the chosen heads"), ("zh", "在选定的头中")])
def test_a_dose_in_some_heads_says_so(factor: float, lang: str, words: str) -> None:
    view = View(lang=lang, width=400)
    some = dosed(FALL, factor, [{"layer": 0, "head": 1}])
    assert words in next(dose_sentences(some, view))
    assert words not in next(dose_sentences(dosed(FALL, factor), view))


def test_once_as_it_is_is_told_beside_none() -> None:
    first = next(dose_sentences(dosed(FALL, 1.0), WIDE))
    assert first.startswith('With no attention on "doc1" (×0) the probability')
    assert "is 90% on average, as it is (×1) 61%" in first


@pytest.mark.parametrize(
    ("changes", "random", "course"),
    [
        (FALL, None, "falls from dose to dose."),
        (FALL[::-1], [0.1, -0.2], "rises from dose to dose."),
        (FALL[::-1], [0.1, -0.5], "rises from dose to dose. But the same dose on a random span"),
        (FALL, [0.4], "falls from dose to dose. But the same dose on a random span"),
        # what two decimals show as +0.00 is no course
        ([-2e-6, -1e-6, 0.0, 1e-6, 2e-6], None, "hardly changes with the dose"),
        ([-0.02, -0.01, 0.0, 0.01, 0.029], None, "hardly changes with the dose"),
        ([-0.1, 0.0, 0.1, 0.3, 0.2], None, "highest with ×2 (82%) and lowest with ×0 (55%)"),
        (
            [0.1, 0.0, 0.0, 0.1, 0.2],
            None,
            "rises from some doses to the next and falls from others",
        ),
        # a step that is less than rounding goes neither way, and is named
        (
            [-1.2, -0.1, 0.0, 0.06, 0.069],
            None,
            "rises with the dose, but hardly changes from ×2 to ×4: by less than 0.01 nats.",
        ),
        (
            [-0.1, -0.109, 0.0, 0.004, 0.1],
            [0.3],
            "rises with the dose, but hardly changes from ×0 to ×0.5 and ×1 to ×2: by less than"
            " 0.01 nats. But the same dose on a random span changes it as much.",
        ),
        (
            [0.1, 0.0, 0.0, -0.1, -0.2],
            None,
            "falls with the dose, but hardly changes from ×0.5 to ×1",
        ),
    ],
)
def test_the_course_of_doses_is_more_than_rounding(
    changes: list[float], random: list[float] | None, course: str
) -> None:
    parts = {}
    if random:
        parts["random"] = random
    assert course in said(dose_sentences(dosed(changes, **parts), WIDE))


@pytest.mark.parametrize(
    ("compared", "reason"),
    [
        (0, 'as the prompt has too few other tokens: "doc1" (-0.90 nats)'),
        (4, 'as only the 4 regions of the largest loss are: "doc5" (-0.50 nats)'),
    ],
)
def test_why_a_region_was_not_compared_is_the_reason_that_holds(compared: int, reason: str) -> None:
    parts = documents.answer(SENTENCE * 2, regions=6)
    # `compared` regions beside random spans, the next one, and the rest of little loss
    losses = [0.9, 0.8, 0.7, 0.6, 0.5][: compared + 1]
    for place, effect in enumerate(parts["effects"]):
        effect.pop("random", None)
        effect["change"], effect["matters"] = 0.0, False
        if place < len(losses):
            effect["change"], effect["matters"] = -losses[place], None
        if place < compared:
            effect["random"], effect["matters"] = [0.01], True
    text = said(answer_sentences(answered(**parts), WIDE))
    assert f"Not compared with random spans, {reason}." in text
    assert text.count("Not compared") == 1


def test_a_brief_view_has_a_short_answer_in_one_line() -> None:
    written = "It is bluefish.\n\n" + "word " * 200
    brief = _written_text(written, View(lang="en", width=100, brief=True))
    assert brief.count("word") == 200
    assert "bluefish.␊␊word" in brief
    assert "\n" in _written_text(written, View(lang="en", width=100, full=True))


def test_heads_are_told_by_what_was_cut() -> None:
    told = said(carrier_sentences(carried([-1.53, -0.4], -0.9), WIDE))
    assert "in the 2 heads that the estimate puts first" in told
    assert "in all 270 heads by -0.90, and by -1.50 without the region." in told
    assert "What is missing to that is not by these links alone." in told
    assert "Cut alone, layer 20 head 4 changes it by -1.53." in told
    for claim in ("half", "other tokens", "part"):
        assert claim not in told
    alone = said(carrier_sentences(carried([-0.8], -0.9), WIDE))
    assert "in the head that the estimate puts first, its" in alone
    assert "Cut alone" not in alone  # said already
    assert "as much as 0.05 nats" in said(carrier_sentences(carried([-0.04], -0.9), WIDE))


@pytest.mark.parametrize(("every", "cut"), [(0.3, "links"), (-1.48, "links"), (-0.9, "text")])
def test_nothing_is_missing_where_that_cannot_be_told(every: float, cut: str) -> None:
    told = said(carrier_sentences(carried([-1.0, -0.5], every, cut=cut), WIDE))
    assert "missing" not in told
    assert ("without the region" in told) == (cut == "links")


def test_one_head_in_chinese_is_not_at_once() -> None:
    chinese = View(lang="zh", width=400)
    assert "在估计排在最前的头中切断" in said(carrier_sentences(carried([-0.8], -0.9), chinese))
    assert "在估计排在最前的 2 个头中同时" in said(
        carrier_sentences(carried([-0.8, -0.1], -0.9), chinese)
    )


@pytest.mark.parametrize("width", [44, 100])
def test_the_note_of_heads_speaks_of_columns_that_are_shown(width: int) -> None:
    lines = carrier_table(carried([-0.8, -0.1], -0.9), View(lang="en", width=width)).plain
    words = " ".join(lines.split())
    table, _, below = words.partition("a wider terminal")
    assert ("20.0%" in table) == ("attention on the region" in table) == (not below)
    assert ("20.0%" in table) == (width == 100)


def test_the_next_step_names_what_it_weighs() -> None:
    document = documents.answer(regions=4)
    # the largest loss did not matter: what the sentence is about is the next one
    document["effects"][0]["matters"] = False
    document["effects"][1]["matters"] = True
    told = said(answer_sentences(answered(**document), WIDE))
    assert 'A dose on "doc2" is the counter-proof: the same with --weigh doc2=×0.5;' in told
    document["regions"][1]["name"] = "my notes"
    told = said(answer_sentences(answered(**document), WIDE))
    assert '--weigh "my notes=×0.5"; --each-head' in told
    document["effects"][1]["without"] = ["doc1"]
    told = said(answer_sentences(answered(**document), WIDE))
    assert "--weigh" not in told
    assert "--each-head tells which heads carry it." in told


def test_one_idle_region_is_not_any_of_several() -> None:
    document = documents.answer()
    document["effects"][1] |= {"change": -0.01, "logprob": OWN - 0.01, "matters": False}
    chinese = said(answer_sentences(answered(**document), View(lang="zh", width=400)))
    assert "没有“doc2”，变化小于 0.05 奈特。" in chinese
    assert "任何一个" not in chinese


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        ("en", 'Heads rest on some tokens of "doc1" (the first token)'),
        ("zh", "头会停歇在“doc1”的一部分词元上"),
    ],
)
def test_a_region_that_holds_tokens_where_heads_rest_says_so(lang: str, words: str) -> None:
    """Only of learned weights, and only of a region that holds such a token."""
    wide = View(lang=lang, width=400)
    learned = {**documents.answer()["model"], "source": "checkpoint"}
    seeded = {**documents.answer()["model"], "source": "seeded"}
    told = said(answer_sentences(answered(model=learned), wide))
    assert told.count(words) == 1
    assert words not in said(answer_sentences(answered(model=seeded), wide))
    effects = documents.answer()["effects"]
    effects[0] |= {"region": 1}
    effects[1] |= {"region": 0, "change": -0.01, "logprob": -0.51}
    elsewhere = said(answer_sentences(answered(model=learned, effects=effects), wide))
    assert "doc2" in elsewhere
    assert words[:16] not in elsewhere


@pytest.mark.parametrize(
    ("lang", "first", "second"),
    [
        ("en", 'Without "doc1" its mean log', 'Without "doc2" its mean log'),
        ("zh", "没有“doc1”，其平均对数概率", "没有“doc2”，其平均对数概率"),
    ],
)
def test_each_region_stands_beside_its_own_random_spans(lang: str, first: str, second: str) -> None:
    document = documents.answer()
    for effect, change, most in zip(
        document["effects"], (-0.52, -0.16), (0.17, 0.07), strict=False
    ):
        effect |= {"change": change, "logprob": OWN + change, "random": [most], "matters": True}
    rows = list(answer_sentences(answered(**document), View(lang=lang, width=400)))
    (one,) = (row for row in rows if row.startswith(first))
    (other,) = (row for row in rows if row.startswith(second))
    assert [number in one for number in ("0.52", "0.17")] == [True, True]
    assert [number in other for number in ("0.16", "0.07")] == [True, True]
    assert "0.17" not in said(row for row in rows if row != one)


def test_a_brief_screen_has_the_whole_answer() -> None:
    document = documents.answer()
    lines = ["First a list:", *(f"- item {number} of many" for number in range(60))]
    document["answer"]["text"] = "\n".join(lines)
    screen = screen_of("attn.answer/1").screen
    brief = screen(answered(**document), View(lang="en", width=80, brief=True)).plain
    for row in lines[1:-1]:
        assert f"\n{row}\n" in brief
    assert "item 59" in brief
    assert "The answer rests on" in brief
    assert "item 59" not in screen(answered(**document), View(lang="en", width=80)).plain
    alone = screen(answered(**document), View(lang="en", width=80, brief=True, alone=True)).plain
    assert brief.endswith(alone)
    assert "item 0" not in alone


def test_what_is_in_no_region_has_its_name_of_documents_beside_it() -> None:
    document = documents.answer()
    document["effects"] = document["effects"][:1]
    document["effects"][0] |= {"region": 2, "is_source": False}
    told = said(answer_sentences(answered(**document), WIDE))
    assert 'without "elsewhere" (the text in no region) it falls' in told


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        ("en", 'Without "doc1" the model begins "another answer".'),
        ("zh", "没有“doc1”，模型的回答以“another answer”开头。"),
    ],
)
def test_the_other_answer_is_told(lang: str, words: str) -> None:
    document = documents.answer()
    view = View(lang=lang, width=400)
    assert words not in said(answer_sentences(answered(**document), view))
    other = {"text": " another answer", "tokens": [{"id": 1, "text": "x"}], "ended": False}
    document["effects"][0]["other_answer"] = other
    assert words in said(answer_sentences(answered(**document), view))
    other["text"] = document["answer"]["text"]
    assert said(answer_sentences(answered(**document), WIDE)).count("still answers the same") == 1
    other |= {"text": "", "tokens": [], "ended": True}
    assert "the model answers nothing" in said(answer_sentences(answered(**document), WIDE))


def test_no_region_that_is_compared_is_left_unsaid() -> None:
    """One that changes the answer and does not count is told with its change, on either side."""
    document = documents.answer(regions=4)
    effects = document["effects"] = document["effects"][:3]
    changes = ((-1.5, True), (-0.2, False), (0.06, False))
    for effect, (change, matters) in zip(effects, changes, strict=True):
        effect |= {"change": change, "logprob": OWN + change, "matters": matters}
        effect |= {"random": [0.15], "is_source": True}
    told = said(answer_sentences(answered(**document), WIDE))
    assert (
        'Less than twice what random spans of as many tokens change: "doc2" (-0.20 nats).' in told
    )
    assert 'Without these the answer is likelier: "doc3" (+0.06 nats).' in told
    effects[0] |= {"change": -0.25, "logprob": OWN - 0.25, "matters": False}
    told = said(answer_sentences(answered(**document), WIDE))
    assert told.count('"doc1"') == 1
    assert '"doc2" (-0.20 nats)' in told


@pytest.mark.parametrize(
    ("lang", "rests", "small"),
    [
        ("en", "The answer rests on", "The answer changes most without"),
        ("zh", "回答依赖", "时回答变化最大"),
    ],
)
def test_a_small_loss_is_not_called_a_ground(lang: str, rests: str, small: str) -> None:
    """Below a tenth of a nat a token a region changes the answer most; it does not carry it."""
    for change, told, untold in ((-0.06, small, rests), (-0.11, rests, small)):
        document = documents.answer()
        document["effects"] = document["effects"][:1]
        document["effects"][0] |= {"change": change, "logprob": OWN + change, "random": [0.01]}
        rows = " ".join(answer_sentences(answered(**document), View(lang=lang, width=400)))
        assert told in rows
        assert untold not in rows
        assert ("--subsets" in rows) is (told == small)


@pytest.mark.parametrize(
    ("shares", "said_of"),
    [
        (((0.3, 0.2), (0.2, 0.3)), '"doc1" also gets most attention for its length: 30.0%'),
        (((0.2, 0.3), (0.2, 0.1)), 'Most attention for its length goes to "doc2": 20.0%'),
    ],
)
def test_what_gets_most_attention_is_told_beside_what_is_needed(
    shares: tuple[tuple[float, float], ...], said_of: str
) -> None:
    document = documents.answer()
    for effect, (attention, even) in zip(document["effects"], shares, strict=False):
        effect |= {"attention": attention, "even": even, "change": -0.9, "is_source": True}
    assert said_of in said(answer_sentences(answered(**document), WIDE))


def test_heads_are_named_where_their_table_is_left_out() -> None:
    brief = View(lang="en", width=400, brief=True)
    several = carried([-0.6, -0.3], -1.5)
    assert "These heads are L20H4, L21H4." in " ".join(carrier_sentences(several, brief))
    assert "These heads are" not in " ".join(carrier_sentences(several, WIDE))
    assert "These heads are" not in " ".join(carrier_sentences(carried([-0.6], -1.5), brief))


def test_two_regions_that_say_the_same_are_warned_of_beside_one_that_counts() -> None:
    def said(*changes: float, **parts: Any) -> str:
        """The answer on regions of which the first counts, with these changes."""
        document = documents.answer(regions=len(changes) + 1)  # the last is the rest
        for effect, change in zip(document["effects"], changes, strict=False):
            effect |= {"change": change, "matters": effect["region"] == 0, "is_source": True}
        document["effects"] = document["effects"][: len(changes)]
        read = document_of({**document, **parts}, "test")
        assert isinstance(read, AnswerDocument)
        return " ".join(answer_sentences(read, WIDE))

    assert said(-1.5, 0.0, 0.01).count("hide each other") == 1
    assert "hide each other" not in said(-1.5, 0.0)
    assert said(-0.2, 0.0, 0.01).count("hide each other") == 1  # said of so small a loss anyway
