"""What an answer's regions are compared with: random spans of neighbouring tokens, and even attention."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attncli.features.answer.even_attention import even_shares
from attncli.features.answer.random_spans import DRAWS, random_spans
from attncli.mechanism.mask import parse_mask

DOCUMENTS = [range(4, 12), range(14, 20), range(22, 34), range(36, 44)]
"""Four regions with markers between them, in a prompt of 60 tokens."""
COMPARED = {token for document in DOCUMENTS for token in document}


def spans(count: int, closed: range, rest: tuple[int, ...] = (), seed: int = 0) -> list[list[int]]:
    resting = np.zeros(60, bool)
    resting[list(rest)] = True
    drawn = random_spans(count, COMPARED, closed, resting, (seed, "name"))
    return [list(span) for span in drawn]


def test_spans_are_neighbours_within_a_region_where_these_are_long_enough() -> None:
    drawn = spans(6, DOCUMENTS[1])
    assert len(drawn) == DRAWS
    assert len({tuple(span) for span in drawn}) == DRAWS
    for span in drawn:
        assert span == list(range(span[0], span[0] + 6))
        assert any(set(span) <= set(document) for document in DOCUMENTS)
    assert spans(6, DOCUMENTS[1]) == drawn != spans(6, DOCUMENTS[1], seed=1)


def test_a_key_where_heads_rest_is_passed_over_and_is_no_gap() -> None:
    drawn = spans(6, DOCUMENTS[1], rest=(7, 27, 40))
    assert not {7, 27, 40} & {token for span in drawn for token in span}
    assert all(span[-1] - span[0] in (5, 6) for span in drawn)
    assert any(span[-1] - span[0] == 6 for span in drawn)


def test_longer_spans_also_have_what_stands_between() -> None:
    drawn = spans(14, range(36, 44))
    for span in drawn:
        assert span == list(range(span[0], span[0] + 14))
        assert span[0] >= 4
        assert span[-1] < 36
    # no run of neighbours is as long: across the region itself, then in the whole prompt
    drawn = spans(24, DOCUMENTS[1])
    assert len(drawn) == DRAWS
    for span in drawn:
        assert set(span) <= COMPARED - set(DOCUMENTS[1])
    for span in spans(40, DOCUMENTS[1]):
        assert not set(span) & set(DOCUMENTS[1])
        assert max(span) < 59
    assert spans(58, DOCUMENTS[1]) == []


def test_even_attention_knows_windows() -> None:
    """Against loops over what each layer's queries see: themselves and three keys before, or all."""
    masks = [parse_mask("causal"), parse_mask("window:3,0"), parse_mask("causal")]
    blocks = [SimpleNamespace(attention=SimpleNamespace(mask=mask)) for mask in masks]
    spec: Any = SimpleNamespace(attending=lambda: [0, 1, 2], blocks=blocks)
    regions = [(0, 1, 2), (5, 6), (8,)]
    queries = range(6, 9)
    for resting in ([], [0, 5]):
        rest = np.isin(np.arange(9), resting)
        shares = even_shares(spec, regions, queries, rest)
        for region, share in zip(regions, shares, strict=True):
            seen = [
                [
                    key in region
                    for key in range(max(query - back, 0), query + 1)
                    if key not in resting
                ]
                for back in (100, 3, 100)
                for query in queries
            ]
            assert share == pytest.approx(np.mean([np.mean(row) for row in seen]))
        assert 0 < shares[0] < 3 / 9
