"""What `attn run` says of heads that rest, of rows without a choice and of links that are left
out."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model
from resting_model import RESTS, SEEKS

from attncli.draw.lines import draw_parts
from attncli.draw.region_tables import part_beyond_rest
from attncli.draw.view import View
from attncli.features.heads.compute import heads
from attncli.features.run import compute as running
from attncli.features.run.compute import run
from attncli.features.run.document import RunDocument
from attncli.features.run.run_answer import run_answer
from attncli.features.run.screen import RUN_PARTS, run_sentences
from attncli.inputs.regions import Region
from attncli.mechanism.mask import Everywhere
from attncli.models.model import Model

WIDE = View(width=300)


def _said(document: RunDocument) -> str:
    return " ".join(run_sentences(document, WIDE))


def _weights(model: Model, text: str) -> np.ndarray:
    (trace,) = model.trace(model.encode(text))
    return np.asarray(trace.stages["weights"])


def test_the_first_token_is_told_apart_from_what_a_word_looks_at() -> None:
    model = resting_model.model()
    document = run(model, "cdbeac", query="#5")
    said = _said(document)
    weights = _weights(model, "cdbeac")[:, 5]
    assert said.startswith('"c" (5) looks most at "b" (')
    assert "(0.97, layer 0 head 1)" in said
    share = round(100 * weights[:, 0].mean())
    assert f"Over all heads {share}% of its weight rests on the first token" in said
    assert (
        "Not counted: the first token, where heads rest; the word itself; its neighbours." in said
    )
    everything = run(model, "cdbeac", query="#5", all_links=True)
    assert '"c" (5) looks most at "c" (0)' not in _said(everything)


def test_a_neighbour_that_gets_more_is_named_unless_its_head_is_positional() -> None:
    # b stands right before: seen by the head that seeks it, and by the one of all neighbours
    model = resting_model.model()
    document = run(model, "cdaebd", query="#5")
    weights = _weights(model, "cdaebd")
    assert document.strongest_neighbour is not None
    assert document.strongest_neighbour.head == SEEKS
    assert document.strongest_neighbour.weight == pytest.approx(weights[SEEKS, 5, 4])
    assert _said(document).startswith('Besides its neighbour "b" (0.97, layer 0 head 1), "d"')


def test_a_query_whose_links_are_all_left_out_has_its_row_and_the_reason() -> None:
    model = resting_model.model()
    document = run(model, "cdbeab", query="#1")
    assert document.every_link_counts is True
    assert document.links
    said = _said(document)
    assert '"d" is token 2 of 6 and sees only "c" and itself' in said
    weights = _weights(model, "cdbeab")
    back = document.strongest_back
    column = weights[:, :, 1].copy()
    column[:, :3] = 0  # itself and its neighbours
    head, query = np.unravel_index(int(column.argmax()), column.shape)
    assert (back.head, back.query) == (head, query)
    assert back.weight == pytest.approx(column.max())
    screen = draw_parts(RUN_PARTS, document, WIDE).plain
    assert "(none)" not in screen
    assert 'attn find --model MODEL OPTIONS "cdbeab" --from ' in screen


def test_a_row_that_sees_one_key_says_nothing_of_its_heads() -> None:
    said = _said(run(resting_model.model(), "cdbeac", query="#0"))
    assert said.startswith('"c" (0) sees nothing but itself')
    assert "rests" not in said


def test_words_are_not_tinted_by_rest() -> None:
    document = run(resting_model.model(), "cdbeac", heads=[RESTS])
    first = draw_parts(RUN_PARTS, document, View(width=300, show=("answer",))).plain
    assert "█c█" not in first.splitlines()[0][:4]


def test_long_texts_by_blocks_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = resting_model.model()
    whole = run(model, "cdbeabdcaf", query="#6", matrices=False)
    monkeypatch.setattr(running, "LONG", 2)
    monkeypatch.setattr(running, "rows_for", lambda *_: 3)
    blocks = run(model, "cdbeabdcaf", query="#6", matrices=False)
    assert blocks.strongest_back.weight == pytest.approx(whole.strongest_back.weight)
    assert blocks.strongest_back.query == whole.strongest_back.query
    assert blocks.strongest_neighbour.weight == pytest.approx(whole.strongest_neighbour.weight)
    assert blocks.strongest_neighbour.head == whole.strongest_neighbour.head


def test_weights_that_are_not_learned_leave_nothing_out() -> None:
    document = run(resting_model.model(source="file"), "cdbeac", query="#5")
    said = _said(document)
    assert "Not counted" not in said
    assert "rests" not in said


def test_a_model_that_reads_in_both_directions_has_its_neighbours_on_both_sides() -> None:
    model = resting_model.model(mask=Everywhere())
    document = run(model, "cdebac", query="#2")
    assert document.strongest_neighbour.key == 3
    assert document.strongest_neighbour.head == SEEKS


def test_regions_are_told_without_the_keys_where_heads_rest() -> None:
    model = resting_model.model()
    text = "cdbeac"
    regions = [Region("start", (0, 1)), Region("end", (2, 3, 4, 5))]
    part = run(model, text, regions=regions).region_shares
    rows = _weights(model, text)[:, 5]
    assert part.rest == pytest.approx(rows[:, 0].mean())
    assert part.even_rest == pytest.approx(1 / 6)
    assert part.share_beyond_rest == pytest.approx(
        [rows[:, 1].mean(), rows[:, 2:].sum(1).mean()], abs=1e-6
    )
    assert part.even_beyond_rest == pytest.approx([1 / 6, 4 / 6])
    shown = part_beyond_rest(part)
    assert shown.share.sum() == pytest.approx(1)
    assert shown.even == pytest.approx([1 / 5, 4 / 5])
    assert shown.by_layer == pytest.approx(shown.share[None], abs=1e-6)
    assert shown.between.sum(1) == pytest.approx([1, 1])
    starting = _weights(model, text)[:, :2]
    assert shown.between[0, 0] == pytest.approx(
        starting[..., 1].mean() / (1 - starting[..., 0].mean()), abs=1e-6
    )
    document = run(model, text, regions=regions)
    said = _said(document)
    assert f'Of the weight of "c" (5) {100 * part.rest:.1f}% rests on the first token' in said
    screen = draw_parts(RUN_PARTS, document, WIDE).plain
    (row,) = [line for line in screen.splitlines() if line.startswith("rest ")]
    assert f"{100 * part.rest:.1f}%" in row
    by_heads = heads(model, text, regions=regions).region_shares
    assert by_heads.rest == pytest.approx(part.rest)
    assert by_heads.share_beyond_rest == pytest.approx(part.share_beyond_rest, abs=1e-6)
    back = [link for link in part.links if (link.query, link.key) == (1, 0)]
    whole = _weights(model, text)
    expected = whole[back[0].head, 2:, 1].mean()
    assert back[0].weight == pytest.approx(expected, abs=1e-6)


def test_regions_of_weights_that_are_not_learned_are_told_as_they_are() -> None:
    regions = [Region("start", (0, 1)), Region("end", (2, 3, 4, 5))]
    document = run(resting_model.model(source="file"), "cdbeac", regions=regions)
    assert not document.region_shares.rest
    assert "rests" not in _said(document)


def test_every_link_listed_still_says_what_the_sentence_leaves_out() -> None:
    """With --all-links the list has the first token's links; the tint and the sentence have not,
    and say so."""
    document = run(resting_model.model(), "cdbeac", query="#5", all_links=True)
    assert any(link.key == 0 for link in document.links)
    answer = run_answer(document, WIDE).plain
    assert "Not counted: the first token, where heads rest." in answer
    assert "without what is not counted" in answer
    free = run_answer(run(resting_model.model(source="file"), "cdbeac", all_links=True), WIDE).plain
    assert "ot counted: the first token" not in free


def test_a_head_that_only_rests_has_no_strongest_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting_model, "SHARP", 9.0)
    model = resting_model.model()
    assert _weights(model, "cdbeac")[RESTS, 1:, 1:].max() < 0.001
    said = _said(run(model, "cdbeac", heads=[RESTS]))
    assert said.startswith("The head rests: >99.9% of its weight is on the first token.")
    assert "strongest link" not in said
    query = _said(run(model, "cdbeac", heads=[RESTS], query="#5"))
    assert "rests in this head: >99.9% of its weight is on the first token" in query
    assert "looks most" not in query
    assert "looks most" in _said(run(model, "cdbeac", heads=[SEEKS], query="#5"))
