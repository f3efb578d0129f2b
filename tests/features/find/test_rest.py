"""What `attn find` says of heads that rest: their weight is no answer to what a word looks at."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model
from msgspec import UNSET
from msgspec.structs import replace
from resting_model import PREVIOUS, RESTS, SEEKS

from attncli.draw.lines import draw_parts
from attncli.draw.numbers import percent
from attncli.draw.view import View
from attncli.features.find.compute import find
from attncli.features.find.document import FindDocument, FoundHead, counted_weight
from attncli.features.find.screen import FIND_PARTS, find_sentences

WIDE = View(width=200)


def _by_head(document: FindDocument) -> dict[int, FoundHead]:
    return {head.head: head for head in document.heads}


def _said(document: FindDocument) -> str:
    return " ".join(find_sentences(document, WIDE))


def test_share_and_rank_are_told_without_the_first_token() -> None:
    model = resting_model.model()
    document = find(model, "cdbeac", "#4", "#2")
    (trace,) = model.trace(model.encode("cdbeac"))
    assert document.rest == [0]
    for head, found in _by_head(document).items():
        row = np.asarray(trace.stages["weights"][head, 4])
        assert found.weight == pytest.approx(row[2])
        assert found.rank == 1 + int((row > row[2]).sum())
        assert found.beyond_rest.share == pytest.approx(row[2] / row[1:5].sum())
        assert found.beyond_rest.rank == 1 + int((row[1:5] > row[2]).sum())
        assert found.beyond_rest.visible == 4
        assert found.beyond_rest.top_key == 1 + int(row[1:5].argmax())
    assert "97% of its weight, 98% without the first token" in _said(document)


def test_a_head_that_rests_is_no_head_that_looks() -> None:
    document = find(resting_model.model(), "cdbeac", "#4", "#0")
    said = _said(document)
    assert '"c" (0) is the first token' not in said
    assert '"c" is the first token: heads rest there whatever it is.' in said
    assert "looks at most" not in said.replace("looks most at", "")
    resting = _by_head(document)[RESTS]
    assert resting.rank == 1
    assert resting.beyond_rest.share is None
    assert resting.beyond_rest.rank is None
    screen = draw_parts(FIND_PARTS, document, WIDE).plain
    assert "--from a --to '#0' --verify" in screen


def test_another_word_in_front_decides() -> None:
    document = find(resting_model.model(), "cdbeac", "#4", "#0", verify=True)
    assert document.word_before == "Today"
    heads = _by_head(document)
    assert heads[RESTS].weight > 0.9
    assert heads[RESTS].verified.weight < 0.02
    sought = _by_head(find(resting_model.model(), "cdbeac", "#4", "#2", verify=True))
    assert sought[SEEKS].verified.weight > 0.9
    assert sought[SEEKS].verified.beyond_rest.rank == 1
    assert "with Today in front" in _said(document).replace('"', "").lower().replace(
        "today", "Today"
    )


def test_words_of_several_tokens_stay_themselves_behind_another_word() -> None:
    document = find(resting_model.model(), "cdbeac", "ea", "db", verify=True)
    found = _by_head(document)[SEEKS]
    assert found.verified.weight > 0.9
    assert found.verified.beyond_rest.rank == 1


def test_a_small_turn_is_called_little_with_its_angle() -> None:
    """cos 3° is 0.99863: a change of 0.00137."""
    document = find(resting_model.model(), "cdbeac", "#4", "#2", effect=True)

    def said(effect: float) -> str:
        heads = [replace(head, effect=effect) for head in document.heads]
        return _said(replace(document, heads=heads))

    assert "That is little: the vector turns by 3.0°." in said(0.00137)
    assert "That is little" not in said(0.006)
    assert "That is little" not in said(0.0)


def test_weights_that_are_not_learned_have_no_rest() -> None:
    document = find(resting_model.model(source="file"), "cdbeac", "#4", "#0")
    assert not document.rest
    assert "rest" not in _said(document)


def test_a_query_that_sees_one_key_says_nothing_of_a_head() -> None:
    said = _said(find(resting_model.model(source="file"), "cdbeac", "#0", "#0"))
    assert "alone: all of its weight is there, whatever a head does" in said


def test_a_link_that_the_mask_hides_is_told_the_other_way() -> None:
    document = find(resting_model.model(), "cdbeac", "#2", "#4")
    assert "which comes after it" in _said(document)
    screen = draw_parts(FIND_PARTS, document, WIDE).plain
    assert "4 a → 2 b" in screen
    assert "hidden" not in screen
    assert 'attn find --model MODEL OPTIONS "cdbeac" --from a --to b' in screen
    first = document.heads[0] if document.heads[0].head == SEEKS else _by_head(document)[SEEKS]
    assert f"{first.reverse.weight:.2f}" in screen


def test_a_column_that_is_hidden_in_every_row_is_not_drawn() -> None:
    document = find(resting_model.model(), "cdbeac", "#4", "#2")
    screen = draw_parts(FIND_PARTS, document, WIDE).plain
    assert "hidden" not in screen
    assert "the mask hides 2 b → 4 a in every head" in screen
    assert PREVIOUS in _by_head(document)


def test_the_unit_of_a_cut_links_effect_is_named() -> None:
    """The column of `--effect` has its unit below the table."""
    model = resting_model.model()
    for effect in (False, True):
        document = find(model, "cdbeac", "#5", "#2", effect=effect)
        screen = draw_parts(FIND_PARTS, document, WIDE).plain
        assert ("1 − cosine" in screen) == effect
        assert ("effect: how far the last vector of" in screen) == effect


def test_of_a_word_that_holds_the_first_token_the_other_tokens_are_ranked() -> None:
    """Of a word of several tokens of which heads rest on the first, order, weights and the answer
    are of the others; the whole weight is told beside them."""
    model = resting_model.model()
    whole = find(model, "cdbeac", "#5", "#0-1")
    alone = find(model, "cdbeac", "#5", "#1")
    at_rest = _by_head(find(model, "cdbeac", "#5", "#0"))
    for head in whole.heads:
        of_others = _by_head(alone)[head.head].weight
        assert head.weight == pytest.approx(of_others + at_rest[head.head].weight)
        assert counted_weight(head) == pytest.approx(of_others)
    assert [head.head for head in whole.heads] == [head.head for head in alone.heads]
    said = _said(whole)
    assert "without the tokens where heads rest, most in layer" in said
    assert f"{percent(whole.heads[0].weight)} with them" in said
    assert "with these tokens" in _said(find(model, "cdbeac", "#5", "#0-1", effect=True))
    assert "with them" not in _said(find(model, "cdbeac", "#5", "#1-2"))
    of_nobody = resting_model.model(source="file")
    assert "with them" not in _said(find(of_nobody, "cdbeac", "#5", "#0-1"))


def test_a_further_key_that_holds_the_first_token_is_told_with_it_and_without() -> None:
    model = resting_model.model()
    document = find(model, "cdbeac", "#5", ["#2", "#0-1"])
    with_first = _by_head(find(model, "cdbeac", "#5", "#0-1"))
    for head in document.heads:
        (other,) = head.others
        assert other.whole == pytest.approx(with_first[head.head].weight)
        assert other.weight == pytest.approx(counted_weight(with_first[head.head]))
    said = _said(document)
    assert "holds a token where heads rest whatever it is" in said
    assert percent(max(head.others[0].whole for head in document.heads)) in said
    (plain,) = find(model, "cdbeac", "#5", ["#2", "#1"]).heads[0].others
    assert plain.whole is UNSET


def test_without_the_first_token_a_query_may_look_most_at_itself() -> None:
    document = find(resting_model.model(), "cdbeac", "#5", "#0")
    query = document.query
    for top, told in ((query, "looks most at itself"), (1, 'looks most at "d"')):
        heads = [
            replace(head, beyond_rest=replace(head.beyond_rest, top_key=top))
            for head in document.heads
        ]
        assert told in _said(replace(document, heads=heads))
