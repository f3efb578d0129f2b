"""What is hidden does not reach the result, what is visible does, and rows that see nothing are 0."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from comparing import LIBRARIES, agree, attend, case, loops, on, plain, row_blocks

import attncli
from attncli.arrays.backend import backend_of
from attncli.mechanism.attend import Rule
from attncli.mechanism.mask import Causal, Padding, intersection

POISON = [np.nan, np.inf, -np.inf]


def mixes(library, q, k, v, **options):
    """The outputs with no warning on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return attend(library, q, k, v, **options)


HIDING = {
    "causal": {"causal": True, "offset": 1},
    "window": {"window": (1, 1)},
    "key_lengths": {"key_lengths": 7},
    "mask": {"mask": np.arange(11) < 7},
    "bias": {"bias": np.where(np.arange(11) < 7, 0.0, -np.inf)},
    "sinks": {"causal": True, "sinks": np.zeros(4)},
    "softcap": {"causal": True, "softcap": 2.0},
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("hiding", HIDING)
def test_poison_in_hidden_keys_and_values_stays_there(library, poison, hiding):
    q, k, v = case(queries=5)
    clean = attend(library, q, k, v, **HIDING[hiding])
    hidden = [9, 10]  # no query of the five sees these two
    assert not plain(clean.weights)[..., hidden].any()
    k[:, hidden], v[:, hidden] = poison, poison
    found = mixes(library, q, k, v, **HIDING[hiding])
    assert np.array_equal(plain(found.weights), plain(clean.weights))
    assert np.allclose(plain(found.mixed), plain(clean.mixed), rtol=1e-14)
    assert np.array_equal(plain(found.masked)[..., hidden], plain(clean.masked)[..., hidden])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("poison", POISON)
def test_poison_in_a_visible_value_shows_where_ieee_says(library, poison):
    q, k, v = case(queries=11)
    v[0, 4, 1] = poison
    mixed = plain(mixes(library, q, k, v, causal=True).mixed)
    assert np.isfinite(mixed[:, :4]).all()
    assert np.isfinite(mixed[2:]).all()
    assert np.isfinite(mixed[:2, 4:, [0, 2]]).all()
    shown = mixed[:2, 4:, 1]
    assert np.isnan(shown).all() if np.isnan(poison) else (shown == poison).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_infinities_of_both_signs_and_weights_of_zero_give_nan(library):
    q, k, v = (
        np.ones((1, 1, 1)),
        np.array([[[0.0], [0.0], [-2000.0]]]),
        np.array([[[np.inf], [-np.inf], [0.0]]]),
    )
    mask = np.array([True, True, True])
    assert np.isnan(plain(mixes(library, q, k, v, mask=mask).mixed)).all()
    v = np.array([[[1.0], [1.0], [np.inf]]])  # its weight underflows to 0, and 0·inf is NaN
    assert np.isnan(plain(mixes(library, q, k, v, mask=mask).mixed)).all()
    assert plain(mixes(library, q, k, v, mask=np.array([True, True, False])).mixed).item() == 1.0


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("poison", POISON)
def test_poison_in_a_visible_key_shows_in_the_rows_that_see_it(library, poison):
    q, k, v = case(queries=11)
    k[:, 6, 0] = poison
    weights = plain(mixes(library, q, k, v, causal=True).weights)
    assert np.isfinite(weights[:, :6]).all()
    if np.isnan(poison):
        assert np.isnan(weights[:, 6:]).any(-1).all()
    else:
        # q·k is +inf (NaN in the row) or −inf (a weight of 0), as the sign of q has it
        rows = weights[:, 6:, 6]
        assert (np.isnan(rows) | (rows == 0)).all()
        assert np.isnan(rows).any()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("sinks", [None, np.array([0.0, 9.0, -9.0, -np.inf])])
def test_rows_that_see_nothing_are_zero_and_reported(library, sinks):
    q, k, v = case()
    for options in (
        {"causal": True, "offset": -3},
        {"key_lengths": 0},
        {"mask": np.zeros((7, 1), bool)},
        {"bias": np.full((7, 11), -np.inf)},
    ):
        trace = mixes(library, q, k, v, sinks=sinks, **options)
        empty = np.arange(7) < (3 if "causal" in options else 7)
        assert np.array_equal(plain(trace.empty_rows), np.broadcast_to(empty, (4, 7)))
        assert not plain(trace.weights)[:, empty].any()
        assert not plain(trace.mixed)[:, empty].any()
        assert (plain(trace.masked)[:, empty] == -np.inf).all()
        agree(trace, loops(q, k, v, sinks=sinks, **options))


@pytest.mark.parametrize("library", LIBRARIES)
def test_emptiness_is_a_matter_of_visibility_not_of_scores(library):
    q, k, v = case()
    trace = mixes(library, q, k, v, bias=np.full(11, -1e30))
    assert not plain(trace.empty_rows).any()
    assert np.allclose(plain(trace.weights).sum(-1), 1)
    visible_but_lost = mixes(
        library, np.ones((1, 1, 1)), np.full((1, 2, 1), -np.inf), np.ones((1, 2, 1))
    )
    assert not plain(visible_but_lost.empty_rows).any()
    assert np.isnan(plain(visible_but_lost.weights)).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_sink_mass_is_what_rows_lack(library):
    q, k, v = case()
    sinks = np.array([0.0, 30.0, -np.inf, 3.0])
    lacking = 1 - plain(attend(library, q, k, v, sinks=sinks).weights).sum(-1)
    scores = plain(attend(library, q, k, v).masked)
    raised = np.exp(scores).sum(-1)
    assert np.allclose(
        lacking, np.exp(sinks)[:, None] / (np.exp(sinks)[:, None] + raised), atol=1e-12
    )
    assert np.allclose(lacking[2], 0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_poison_by_blocks_of_rows(library):
    q, k, v = case(queries=11, kv_heads=4)
    rule = Rule(0.5, mask=intersection(Causal(), Padding(2)))
    arrays = [on(library, x) for x in (q, k, v)]
    backend = backend_of(*arrays)
    clean = np.concatenate(
        [plain(block.mixed) for block in row_blocks(backend, *arrays, rule, rows=3)], -2
    )
    k[:, -2:], v[:, -2:] = np.nan, np.inf
    arrays = [on(library, x) for x in (q, k, v)]
    poisoned = np.concatenate(
        [plain(block.mixed) for block in row_blocks(backend, *arrays, rule, rows=3)], -2
    )
    assert np.allclose(poisoned, clean, rtol=1e-14)
    assert (
        attncli.attention(*arrays, causal=True, key_lengths=9, scale=0.5).mixed.shape == clean.shape
    )
