"""What `attn compare` says of texts that differ after the query, and of a word put in the place of
another."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model
from msgspec.structs import replace

from attncli.documents.header import token_rows
from attncli.draw.lines import draw_parts
from attncli.draw.page import _resting_keys
from attncli.draw.view import View
from attncli.features.compare.compute import compare
from attncli.features.compare.document import CompareDocument, SignedDifference
from attncli.features.compare.page import compare_page_of, compared_records
from attncli.features.compare.screen import (
    COMPARE_PARTS,
    _end_names,
    compare_sentences,
    ranked_by_change,
)
from attncli.features.run.compute import run
from attncli.inputs.regions import Region
from attncli.inputs.tokenize import ByteTokenizer
from attncli.measure.rest import rest_keys
from attncli.mechanism.mask import Everywhere

WIDE = View(width=300)


def _compared(a: str, b: str, query: str | None = None, **settings: object) -> CompareDocument:
    model = resting_model.model(**settings)
    return compare(run(model, a), run(model, b), query=query)


def _said(document: CompareDocument) -> str:
    return " ".join(compare_sentences(document, WIDE))


def test_texts_that_differ_after_the_query_are_told_as_that() -> None:
    document = _compared("c d b e a", "c d b e f", query="e")
    assert document.common_beginning == 8
    said = _said(document)
    assert "A and B begin with the same 8 tokens" in said
    assert "A row that does: --query a" in said
    screen = draw_parts(COMPARE_PARTS, document, WIDE).plain
    assert "0.00" not in screen
    assert "what moved most" not in screen


def test_a_word_in_the_place_of_another_is_compared_with_it() -> None:
    model = resting_model.model()
    texts = ("c d b e a", "c d f e a")
    document = _compared(*texts, query="a")
    assert document.aligned == [(place, place) for place in range(9)]
    assert document.only.a == document.only.b == []
    weights = [
        np.asarray(trace.stages["weights"])[:, 8]
        for text in texts
        for trace in model.trace(model.encode(text))
    ]
    moved = document.moved[0]
    assert (moved.query, moved.key) == (8, 4)
    assert moved.difference == pytest.approx(weights[1][moved.head, 4] - weights[0][moved.head, 4])
    said = _said(document)
    assert '"b" (in B "f")' in said
    assert "Not counted: the first token, where heads rest" in said
    screen = draw_parts(COMPARE_PARTS, document, WIDE).plain
    assert '"b" in A is compared with "f" in B' in screen
    assert "4 b/f" in screen


def test_words_of_another_length_are_not_compared() -> None:
    document = _compared("c d b e a", "c d ff e a")
    assert document.only.a == [4]
    assert document.only.b == [4, 5]
    two = _compared("c d b e a", "c d f f a")
    assert two.only.a == two.only.b == []  # each stands between what both have
    assert len(two.aligned) == 9


def test_a_row_of_which_only_neighbours_count_is_not_left_without_an_answer() -> None:
    document = _compared("c b", "c f", query="b")  # sees the first token and a blank beside it
    assert document.links_leave_out
    assert "neighbours" not in document.links_leave_out
    assert "The link that changed most" in _said(document)
    everywhere = _compared("c d b e a", "c d f e a")
    assert "neighbours" in everywhere.links_leave_out


def test_where_rows_see_later_words_no_beginning_is_common() -> None:
    document = _compared("c d b e a", "c d b e f", query="e", mask=Everywhere())
    assert not document.common_beginning
    assert "begin with the same" not in _said(document)


def test_another_mask_is_no_difference_of_texts() -> None:
    model = resting_model.model()
    document = compare(run(model, "c d b"), run(model, "c d b"), query="b")
    assert "begin with the same" not in _said(document)


def test_regions_are_compared_without_the_keys_where_heads_rest() -> None:
    model = resting_model.model()
    texts = ("c d b e a", "c d f e a")
    regions = [Region("start", (0, 1, 2)), Region("middle", (3, 4, 5))]
    runs = [run(model, text) for text in texts]
    document = compare(runs[0], runs[1], regions=(regions, regions))
    rows = [
        np.concatenate([np.asarray(trace.stages["weights"])[:, -1] for trace in model.trace(text)])
        for text in texts
    ]
    rest = rest_keys(model.encode(texts[0]))
    means = [side.mean(0) for side in rows]
    assert document.region_rest.a == pytest.approx(means[0][rest].sum())
    assert document.region_rest.b == pytest.approx(means[1][rest].sum())
    for region in document.region_changes:
        keys = [key for key in region.tokens_a if not rest[key]]
        expected = [side[keys].sum() / side[~rest].sum() for side in means]
        told = region.beyond_rest
        assert (told.a, told.b) == pytest.approx(tuple(expected))
        assert told.difference == pytest.approx(expected[1] - expected[0])
    start = next(region for region in document.region_changes if region.name == "start")
    assert start.a > start.beyond_rest.a, "its first token is where heads rest"
    screen = draw_parts(COMPARE_PARTS, document, WIDE).plain
    assert "rest: of all, on the first token" in screen
    assert "of what does not rest" in _said(document)


def test_the_page_knows_the_first_token_of_either_text_as_the_screen_does() -> None:
    """A page holds the words that both texts have: the first of these is where heads rest only in
    the text that begins with it; links to it are listed in neither."""
    for texts, rests in ((("cdbeaf", "dbeaf"), [None, [0]]), (("cdbeaf", "cdbaf"), [[0], [0]])):
        document = _compared(*texts)
        records = compared_records(document)
        assert [_resting_keys(record) for record in records] == rests
        assert [_resting_keys(record) for record in records] == [
            [
                place
                for place, pair in enumerate(document.aligned)
                if rest_keys(document.a.tokens if not side else document.b.tokens)[pair[side]]
            ]
            or None
            for side in (0, 1)
        ]
        left_out = compare_page_of(document, "en", 10**6, "").left_out
        assert left_out is not None
        assert left_out.keys.tolist() == [True, *[False] * (len(document.aligned) - 1)]
    nobody = _compared("cdbeaf", "cdbaf", source="file")
    assert [_resting_keys(record) for record in compared_records(nobody)] == [None, None]


def test_no_link_is_named_where_none_that_counts_differs() -> None:
    """Three tokens have no link that is neither rest, nor itself, nor to a neighbour."""
    document = _compared("bca", "fca")
    assert "No link that counts differs." in _said(document)
    screen = draw_parts(COMPARE_PARTS, document, WIDE).plain
    assert not any(f"{letter} → " in screen for letter in "bca")


def test_equal_words_of_a_link_have_their_positions() -> None:
    tokens = token_rows(ByteTokenizer().encode("cdbeab"))
    for places, names in (((5, 2), "5 b → 2 b"), ((5, 1), "5 b → d"), ((1, 0), "d → c")):
        link = SignedDifference(value=0.5, query=places[0], key=places[1])
        assert _end_names(link, tokens, WIDE) == names


def test_equal_weights_are_said_without_rows_of_zeros() -> None:
    document = _compared("cdbeaf", "cdbeaf")
    assert "so does their attention" in _said(document)
    screen = draw_parts(COMPARE_PARTS, document, WIDE).plain
    assert "0.00  " not in screen
    assert "maps" not in screen
    asked = draw_parts(COMPARE_PARTS, document, replace(WIDE, show=frozenset({"heads"}))).plain
    assert "max diff" in asked


def test_heads_without_a_link_that_counts_are_ranked_by_their_mean_change() -> None:
    document = _compared("bca", "fca")
    means = [head.mean_difference for head in ranked_by_change(document)]
    assert means == sorted(means, reverse=True)
    screen = draw_parts(COMPARE_PARTS, document, WIDE).plain
    assert "the largest mean change first" in screen


def test_rounding_of_rows_before_the_difference_is_no_change() -> None:
    """float32 rounds rows of a text of another length by more where scores are large."""
    document = _compared("cdbeac", "cdbeaf", query="e")
    rounded = replace(document.summary, max_difference=3e-5)
    said = _said(replace(document, summary=rounded))
    assert "begin with the same 5 tokens" in said
    changed = replace(document.summary, max_difference=3e-3)
    assert "begin with the same" not in _said(replace(document, summary=changed))


def test_one_text_twice_is_told_as_one_text() -> None:
    text = "c d b e a"
    assert _said(_compared(text, text)).startswith("Text and settings of A and B come to the same")
    scaled = replace(_compared(text, text), differs=["scale"])
    assert "The weights of A and B are the same" in _said(scaled)
