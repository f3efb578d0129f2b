"""The declaration of stages: what it says of every array of a layer, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.mechanism.trace import SAVED, SQUARE, STAGES, order_stages, shapes_of

SIZES = {
    "token": 7, "width": 11, "head": 6, "kv": 3, "query": 7, "key": 7, "dim": 5, "v_dim": 2, "concat": 12, "global": 4,
}  # fmt: skip


def stages(**changed: tuple[int, ...]) -> dict[str, np.ndarray]:
    shapes = {
        name: tuple(SIZES[axis] for axis in stage.axes) for name, stage in STAGES.items()
    } | changed
    return {name: np.zeros(shape) for name, shape in shapes.items()}


def test_every_stage_has_axes_a_formula_in_two_alphabets_and_words():
    for name, stage in STAGES.items():
        assert stage.name == name
        assert set(stage.axes) <= set(SIZES)
        assert stage.formula
        assert stage.description
    assert set(SQUARE) <= set(STAGES)
    assert set(SAVED) <= set(STAGES)
    assert all(STAGES[name].axes == ("head", "query", "key") for name in SQUARE)


def test_the_shape_trace_is_in_the_order_of_computation():
    found = shapes_of(dict(reversed(stages().items())))
    assert [row.step for row in found] == list(STAGES)
    assert found[1].axes == ("head", "query", "dim")
    assert found[1].shape == (6, 7, 5)
    assert order_stages(["weights", "q", "raw"]) == ["q", "raw", "weights"]


def test_leading_axes_come_first():
    batched = {name: array[None].repeat(2, 0) for name, array in stages().items()}
    found = shapes_of(batched, leading=("batch",))
    assert found[0].axes == ("batch", "token", "width")
    assert found[0].shape == (2, 7, 11)


def test_one_axis_has_one_size():
    for changed, message in (
        ({"k": (3, 8, 5)}, "'key'"),
        ({"v": (3, 7, 4)}, "'v_dim'"),
        ({"raw": (6, 7, 13)}, "'key'"),
        ({"q": (7, 5)}, "axes"),
    ):
        with pytest.raises(ValueError, match=message):
            shapes_of(stages(**changed))


def test_an_output_of_another_width_than_the_input_has_an_axis_of_its_own():
    wider = stages(out=(7, 13))
    del wider["sum"], wider["norm"]
    *_, row = shapes_of(wider)
    assert (row.step, row.axes) == ("out", ("query", "out_width"))


def test_without_an_output_projection_the_output_is_the_heads_side_by_side():
    found = stages(out=(7, 12))
    del found["concat"]
    row = next(row for row in shapes_of(found) if row.step == "out")
    assert row.axes == ("query", "concat")
