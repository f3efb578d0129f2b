"""Maps keep to their room, pool by the maximum and say so, and look right without colour."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.draw.heatmap import Map, heatmap, legend, pool, side_by_side
from attncli.draw.lines import line_width
from attncli.draw.shaded_matrix import palette_of
from attncli.draw.view import View

NAN = float("nan")


def pooled(values: list[list[float]], block: int, *, signed: bool) -> list[list[float]]:
    """The largest number (or of largest magnitude) in every block x block cells; NaN where there is
    none.
    """
    out = []
    for top in range(0, len(values), block):
        row = []
        for left in range(0, len(values[0]), block):
            seen = [
                values[r][c]
                for r in range(top, min(top + block, len(values)))
                for c in range(left, min(left + block, len(values[0])))
                if not math.isnan(values[r][c])
            ]
            row.append(max(seen, key=abs if signed else None) if seen else math.nan)
        out.append(row)
    return out


VIEWS = [
    View(width=width, color=color, ascii=ascii)
    for width in (40, 60, 80, 200)
    for color in (False, True)
    for ascii in (False, True)
]
MODES = [View(color=True), View(), View(ascii=True), View(color=True, ascii=True)]


@settings(deadline=None, max_examples=100)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=13),
        elements=st.floats(-9, 9) | st.just(NAN),
    ),
    st.integers(2, 7),
    st.sampled_from(["linear", "signed"]),
)
def test_pooling_is_the_maximum_of_each_block(values, block: int, how: str) -> None:
    expected = pooled(values.tolist(), block, signed=how == "signed")
    np.testing.assert_array_equal(np.abs(pool(values, block, how)), np.abs(np.array(expected)))


@pytest.mark.parametrize("view", MODES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 3), (11, 11), (13, 41), (97, 97), (1, 200), (200, 1)]
)
def test_a_map_keeps_to_its_room(view: View, shape: tuple[int, int]) -> None:
    values = np.sin(np.arange(shape[0] * shape[1] * 1.0)).reshape(shape) ** 2
    block = heatmap(values, view, max_width=24, max_height=12)
    assert block.width <= 24
    assert len(block.rows) <= 12 + 2
    pooled = shape[1] > 24 or shape[0] > (24 if view.color and not view.ascii else 12)
    assert ("pooled" in block.plain) == pooled
    if view.ascii:
        assert block.plain.isascii()


def test_without_colour_as_text() -> None:
    values = [[1.0, NAN, NAN], [0.5, 0.5, NAN], [0.0, 0.3, 0.7]]
    assert heatmap(values, View()).plain == "██\n▒▒▒▒\n··░░▓▓"
    assert heatmap(values, View(ascii=True)).plain == "@@\n++++\n..--##"
    assert heatmap(values, View(), rows=["a", "今", "\x1b"]).plain == "a  ██\n今 ▒▒▒▒\n␛  ··░░▓▓"
    assert heatmap([], View()).plain == "(empty)"


def test_half_blocks_hold_two_rows_each() -> None:
    values = [[0.0, 1.0], [1.0, NAN], [NAN, 0.5], [NAN, NAN], [1.0, 1.0]]
    block = heatmap(values, View(color=True), max_width=3, max_height=3)
    dark, light, middle = (palette_of(View()).colour(value) for value in (0.0, 1.0, 0.5))
    assert block.rows == (
        (("▀", f"{dark} on {light}"), ("▀", light)),
        ((" ", ""), ("▀", middle)),
        (("▀", light), ("▀", light)),
    )
    assert heatmap([[NAN], [1.0], [0.0]], View(color=True), max_width=1, max_height=2).rows[0] == (
        ("▄", light),
    )


@pytest.mark.parametrize(
    "view",
    [
        View(width=width, color=color, ascii=ascii)
        for width in (40, 60, 80, 200)
        for color in (0, 1)
        for ascii in (0, 1)
    ],
)
@pytest.mark.parametrize(("count", "size"), [(1, 1), (8, 11), (12, 57), (24, 5)])
def test_maps_side_by_side_fit(view: View, count: int, size: int) -> None:
    maps = [Map(f"head {at}", np.eye(size) * (at + 1)) for at in range(count)]
    block = side_by_side(maps, view)
    assert all(line_width(row) <= view.width for row in block.rows)
    assert all(f"head {at}" in block.plain for at in range(count))
    assert f"{count}.00" in "".join(block.plain.splitlines()[-4:])
    assert ("maps are pooled" in block.plain) == (size == 57)


def test_maps_share_one_scale_unless_told_otherwise() -> None:
    maps = [Map("a", [[0.25]]), Map("b", [[1.0]], ("below",))]
    assert (
        side_by_side(maps, View()).plain
        == "a       b\n░░      ██\n        below\n\n0.00 ···░░░▒▒▒▓▓▓████ 1.00"
    )
    assert (
        side_by_side(maps, View(), shared_scale=False).plain
        == "a       b\n██      ██\n        below"
    )
    assert side_by_side([], View()).plain == "(empty)"
    assert side_by_side([Map("a", [[NAN]])], View()).plain == "(empty)"


def test_scores_below_zero_share_both_ends() -> None:
    block = side_by_side([Map("a", [[-4.0, 0.0]]), Map("b", [[4.0, 0.0]])], View())
    assert block.plain.splitlines()[1].split() == ["··▒▒", "██▒▒"]
    signed = side_by_side([Map("a", [[-4.0, 0.0]]), Map("b", [[2.0, 0.0]])], View(), scale="signed")
    assert signed.plain.splitlines()[-1] == "-4.00 ≡≡≡==--··░░▒▒███ +4.00  signed scale"
    assert signed.plain.splitlines()[1].split() == ["≡≡··", "▒▒··"]


def test_legends() -> None:
    assert (
        legend(View(scale_colors="row"), 0.0, 1.0).plain
        == "0 ···░░░▒▒▒▓▓▓████ largest of the row  row scale"
    )
    assert legend(View(scale_colors="log", ascii=True), 0.0, 0.5).plain.startswith("<= 0.0005 ")
    assert all(style for text, style in legend(View(color=True), 0.0, 1.0).rows[0][1:17])


def test_maps_name_their_rows_and_number_every_fifth_column() -> None:
    values = np.eye(7)
    shown = side_by_side(
        [Map("a", values), Map("b", values)], View(), limits=(0.0, 1.0), names=list("pqrstuv")
    )
    rows = shown.plain.splitlines()
    assert [row.split()[0] for row in rows[1:8]] == list("pqrstuv")
    assert rows[1].startswith("p ██")
    assert rows[8].split() == ["0", "5", "0", "5"]
    assert rows[8].index("5") == rows[1].index("█") + 10


def test_maps_of_a_layer_begin_a_row_of_their_own() -> None:
    maps = [Map(f"L{at // 3} H{at % 3}", np.eye(2)) for at in range(6)]
    rows = side_by_side(maps, View(width=120), in_a_row=3).plain.splitlines()
    assert rows[0].split() == ["L0", "H0", "L0", "H1", "L0", "H2"]
    assert rows[4].split() == ["L1", "H0", "L1", "H1", "L1", "H2"]


def test_weights_are_anchored_and_the_legend_has_every_shade() -> None:
    half = side_by_side([Map("a", [[0.5]])], View(), limits=(0.0, 1.0)).plain
    assert half.splitlines()[1] == "▒▒"
    assert half.splitlines()[-1] == "0.00 ···░░░▒▒▒▓▓▓████ 1.00"
    ramp = [style for text, style in legend(View(color=True), 0.0, 1.0).rows[0] if text == "▌"]
    shades = {colour for style in ramp for colour in style.split(" on ")}
    assert shades == {palette_of(View()).colour(at / 47) for at in range(48)}
