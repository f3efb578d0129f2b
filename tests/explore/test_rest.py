"""The explorer tells apart where heads rest: in its sentence, its answer and its map."""

from __future__ import annotations

import numpy as np
import pytest
import resting_model

from attncli.arrays.backend import choose
from attncli.draw.view import View
from attncli.explore.frame import answer, sentence
from attncli.explore.head_grid import _visible_cells, keys_left_open, matrix
from attncli.explore.loaded_run import LiveSource, LoadedRun
from attncli.explore.panels import Pane, Scene
from attncli.explore.state import State
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import Causal
from attncli.models.one_layer import Settings, seeded_model

TEXT = "cdbeacfd"


def explored(source: str = "checkpoint") -> LoadedRun:
    record = LiveSource.of(resting_model.model(source=source), TEXT).record(lambda share: None)
    loaded_run = LoadedRun(record)
    for head in record.heads:
        loaded_run.add(head)
    return loaded_run


def drawn(loaded_run: LoadedRun, state: State, draw) -> str:
    view = View(width=200)
    pane: Pane = draw(Scene(state, loaded_run, view, 200, 9))
    return " ".join("".join(piece for piece, _ in row) for row in pane.rows)


def test_a_resting_head_looks_at_nothing() -> None:
    loaded_run = explored()
    row = loaded_run.row((0, resting_model.RESTS), 7)
    assert row is not None
    assert row.argmax() == 0
    state = State(layer=0, head=resting_model.RESTS, query=7, key=1)
    said = drawn(loaded_run, state, answer)
    piece = f'(a piece of "{TEXT}")'
    assert f'{100 * row[0]:.0f}% of the weight of "d" {piece} rests on the first token' in said
    assert f'"d" {piece} looks most at "c"' not in said
    # no mark around the first letter
    assert drawn(loaded_run, state, sentence).startswith("cdbeacf")
    untrained = explored("file")
    assert "rests" not in drawn(untrained, state, answer)
    assert not drawn(untrained, state, sentence).startswith("c")


def test_who_looks_at_the_first_token_is_no_finding() -> None:
    state = State(layer=0, head=resting_model.RESTS, query=7, key=0, is_turned=True)
    said = drawn(explored(), state, answer)
    assert f'"c" (a piece of "{TEXT}") is the first token: heads rest there' in said
    assert "looks at" not in said


@pytest.mark.parametrize(("source", "open_keys"), [("checkpoint", [0]), ("file", [0])])
def test_the_scale_without_rest_leaves_these_keys_open(source: str, open_keys: list[int]) -> None:
    assert np.flatnonzero(keys_left_open(explored(source))).tolist() == open_keys


def test_a_long_map_is_blank_where_nothing_is_seen_and_where_heads_rest() -> None:
    """Pooled cells of a text of more than a thousand tokens."""
    text = " ".join(["a"] * 1080)
    settings = Settings(d_model=4, mask=Causal())
    model = seeded_model(
        settings, 0, "seeded", tokenizer("word"), choose("numpy", device=None, dtype="float32")
    )
    record = LiveSource.of(model, text).record(lambda share: None)
    loaded_run = LoadedRun(record)
    for head in record.heads:
        loaded_run.add(head)
    own = loaded_run.heads[0, 0]
    weights = loaded_run.weights((0, 0), slice(0, 1080))
    assert weights is not None
    pool = -(-1080 // own.small.shape[1])
    seen = np.array(
        [
            [not np.isnan(weights[down : down + pool, across : across + pool]).all()
             for across in range(0, 1080, pool)]
            for down in range(0, 1080, pool)
        ]
    )  # fmt: skip
    assert 0 < seen.sum() < seen.size
    assert (_visible_cells(own) == seen).all()

    def map_lines(scale: str) -> list[str]:
        state = State(layer=0, head=0, query=3, key=0, scale=scale)
        scene = Scene(state, loaded_run, View(width=60), 60, 30)
        return ["".join(piece for piece, _ in row) for row in matrix(scene).rows]

    linear, rest = map_lines("linear"), map_lines("rest")
    # the first words see nothing of the last, and the first key is left open
    assert linear[5].rstrip() != linear[-1].rstrip()
    assert len(linear[5].rstrip()) < len(linear[-1].rstrip())
    assert rest != linear
