"""What masks show: counted against loops, pooled maps, formulas for pairs, biases."""

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telling import telling

from attncli.errors import InputError, LimitError
from attncli.features.mask.compute import _mask_document, gallery_document, named_bias
from attncli.measure import visibility
from attncli.measure.visibility import bound, count, mask_part, pairs_of, visible_rows
from attncli.mechanism.mask import KINDS, AllOf, Causal, Mask, MatrixMask, Window, parse_mask

mask_part = telling(mask_part)
_mask_document = telling(_mask_document)
gallery_document = telling(gallery_document)

SEES = {
    "none": lambda i, j: True,
    "causal": oracles.causal,
    "window:1": oracles.decoder_window(1),
    "window:3": oracles.decoder_window(3),
    "window:2,1": oracles.window(2, 1),
    "window:0,5": oracles.window(0, 5),
    "dilated:6,2": oracles.dilated(6, 2),
    "dilated:1,1": oracles.dilated(1, 1),
    "dilated:7,3": oracles.dilated(7, 3),
    "global:0,3": oracles.global_tokens(0, 3),
    "prefix:4": oracles.prefix(4),
    "chunk:4": oracles.chunk(4),
    "block:3": oracles.block(3),
    "sinks:2,3": oracles.streaming(2, 3),
    "sinks:0,2": oracles.streaming(0, 2),
    "window:1,1|global:2": oracles.union(oracles.window(1, 1), oracles.global_tokens(2)),
}
SIZES = (1, 2, 5, 11, 13)


@pytest.mark.parametrize("spec", SEES)
@pytest.mark.parametrize("n", SIZES)
def test_counts_agree_with_loops(spec: str, n: int) -> None:
    part = mask_part(parse_mask(spec), n, n, 0)
    seen = [[SEES[spec](i, j) for j in range(n)] for i in range(n)]
    rows = [sum(row) for row in seen]
    assert part["pairs"] == sum(rows) == pairs_of(parse_mask(spec), n)
    assert part["share"] == pytest.approx(sum(rows) / n**2)
    assert part["keys_per_query"] == {
        "least": min(rows),
        "mean": pytest.approx(sum(rows) / n),
        "most": max(rows),
    }
    assert part["empty_rows"] == [i for i in range(n) if not any(seen[i])]
    assert part["unseen_keys"] == [j for j in range(n) if not any(row[j] for row in seen)]
    assert part["map"]["block"] == 1
    assert np.array_equal(part["map"]["share"], np.array(seen, float))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 30))
def test_formulas_agree_with_looking(left: int, right: int, n: int) -> None:
    for mask in (
        Window(left, right),
        Window(None, right),
        Window(left, None),
        AllOf((Causal(), Window(left, right))),
    ):
        assert pairs_of(mask, n) == sum(int(seen.sum()) for *_, seen in visible_rows(mask, n, n))


@pytest.mark.parametrize("spec", ["causal", "window:9", "window:3,5", "padding:50", "bigbird:2,1"])
@pytest.mark.parametrize("cells", [visibility.CELLS, 67 * 5])
def test_pooled_maps_hold_the_share_of_every_cell(
    spec: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where blocks of rows begin in the middle of a cell."""
    monkeypatch.setattr(visibility, "CELLS", cells)
    n = 67
    found = count(bound(parse_mask(spec), n, n, 0), n, n, most=10)
    seen = np.zeros((n, n))
    for start, low, high, rows in visible_rows(parse_mask(spec), n, n):
        seen[start : start + len(rows), low:high] = rows
    assert found.block == 7
    for row in range(10):
        for column in range(10):
            assert (
                found.cells[row, column]
                == seen[7 * row : 7 * row + 7, 7 * column : 7 * column + 7].sum()
            )


def test_a_pooled_share_counts_only_pairs_that_exist() -> None:
    assert np.all(mask_part(parse_mask("none"), 67, 67, 0)["map"]["share"] == 1.0)


def test_hashed_masks_are_seeded_and_show_themselves() -> None:
    first, again, other = (
        mask_part(parse_mask("lsh:4,2", seed=seed), 23, 23, seed) for seed in (0, 0, 1)
    )
    assert first["pairs"] == again["pairs"]
    assert not np.array_equal(first["map"]["share"], other["map"]["share"])
    assert np.all(np.diag(first["map"]["share"]) == 1)


def test_intersections_are_told_apart_and_together() -> None:
    document = _mask_document([parse_mask("causal"), parse_mask("window:2,2")], 7)
    seen = [
        [oracles.causal(i, j) and oracles.window(2, 2)(i, j) for j in range(7)] for i in range(7)
    ]
    assert document["combined"]["pairs"] == sum(map(sum, seen))
    assert [part["spec"] for part in document["masks"]] == ["causal", "window:2,2"]
    assert _mask_document([parse_mask("causal")], 7)["combined"] is None


def test_a_file_must_fit() -> None:
    mask: Mask = MatrixMask(np.ones((4, 4), bool), "m.npy")
    assert mask_part(mask, 4, 4, 0)["pairs"] == 16
    with pytest.raises(InputError):
        mask_part(mask, 5, 5, 0)


def test_too_many_pairs_are_refused_before_the_work() -> None:
    with pytest.raises(LimitError):
        mask_part(parse_mask("none"), 10**6, 10**6, 0)
    assert pairs_of(parse_mask("causal"), 10**9) == 10**9 * (10**9 + 1) // 2


def test_the_gallery_has_every_kind() -> None:
    document = gallery_document(12)
    assert len(document["masks"]) == len(KINDS)
    assert [part["form"] for part in document["masks"]] == [
        spelling.form for spelling, _ in KINDS.values()
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("alibi", lambda m, d: m * d), ("alibi-symmetric", lambda m, d: -m * abs(d))],
)
def test_alibi_by_distance(name: str, value: object) -> None:
    bias = named_bias(name, 2, 8, 9)
    assert bias.slope == 2.0**-3
    assert bias.values == pytest.approx([value(bias.slope, d) for d in range(-9, 10)])  # type: ignore[operator]


def test_a_bias_before_and_after_the_mask() -> None:
    document = _mask_document([parse_mask("causal")], 5, bias=named_bias("alibi", 0, 8, 4))["bias"]
    for i in range(5):
        assert document["before"][i] == pytest.approx([0.5 * (j - i) for j in range(5)])
        assert document["weights_after"][i, : i + 1] == pytest.approx(
            oracles.softmax([0.5 * (j - i) for j in range(i + 1)], [True] * (i + 1))
        )
        assert np.isnan(document["after"][i, i + 1 :]).all()
        assert np.isnan(document["weights_after"][i, i + 1 :]).all()
    with pytest.raises(InputError):
        named_bias("alibi", 8, 8, 4)


def test_t5_buckets_by_distance() -> None:
    known = {
        -128: 15,
        -64: 14,
        -32: 12,
        -16: 10,
        -8: 8,
        -1: 1,
        0: 0,
        1: 17,
        8: 24,
        16: 26,
        32: 28,
        64: 30,
        128: 31,
    }
    bias = named_bias("t5", 0, 8, 128)
    assert {distance: bias.values[128 + distance] for distance in known} == known
