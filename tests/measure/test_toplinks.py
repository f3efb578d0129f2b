"""The strongest links against a sort of all of them, whatever the pieces they come in."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.inputs.token import Token
from attncli.measure import row_stream
from attncli.measure.row_facts import Exclusion, TokenFacts, WeightRows, find_sight
from attncli.measure.row_stream import LEFT_OUT, LinkCollector, TopLinks

HEADS, N, TOP = 3, 13, 7


@pytest.mark.parametrize("at_once", [1, 29, 10**6])
@pytest.mark.parametrize("block", [1, 5, N])
def test_links_are_the_first_of_all_sorted(
    at_once: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_stream, "AT_ONCE", at_once)
    # few different values, so that ties must be broken
    weights = np.random.default_rng(3).integers(0, 9, (HEADS, N, N)) / 9
    keys, queries = np.arange(N) == 4, np.arange(N) == 6
    found = TopLinks(HEADS, TOP, Exclusion((), keys, queries, (0, -1)))
    for begin in range(0, N, block):
        i = np.arange(begin, min(begin + block, N))
        found.add(
            WeightRows(
                NumpyBackend("float64"),
                weights[:, i],
                i,
                0,
                find_sight(None, i.size, begin, N),
                TokenFacts(),
            )
        )
    for head, links in enumerate(found.sorted_links()):
        every = [
            (-weights[head, q, k], q, k)
            for q in range(N)
            for k in range(N)
            if weights[head, q, k] and q != 6 and k not in (4, q, q - 1)
        ]
        assert links == [(q, k, -less) for less, q, k in sorted(every)[:TOP]]
    whole = TopLinks(HEADS, TOP, None)
    counting = 1.0 - Exclusion((), keys, queries, (0, -1)).rows(np.arange(N))
    for begin in range(0, N, block):
        i = np.arange(begin, min(begin + block, N))
        for head in range(HEADS):
            holed = np.where(weights[head, i] == 0, np.nan, weights[head, i])
            whole.add_whole(head, holed, i, counting[i])
    assert whole.sorted_links() == found.sorted_links()


@pytest.mark.parametrize(
    ("query", "everything"), [(None, True), (2, True), (None, False), (2, False)]
)
def test_links_of_one_query_and_those_that_say_something(
    query: int | None, everything: bool
) -> None:
    weights = np.random.default_rng(5).random((HEADS, 5, 5))
    tokens = [Token(index, str(index), None, None, None) for index in range(5)]
    links = LinkCollector(tokens, top=99, query=query, leave_out=() if everything else LEFT_OUT)
    links.add(4, [0], weights[:1])
    links.add(4, [2], weights[2:])
    found = {(link.head, link.query, link.key): link.weight for link in links.strongest()}
    assert found == {
        (head, q, k): weights[head, q, k]
        for head in (0, 2)
        for q in range(5)
        for k in range(5)
        if query in (None, q) and (everything or (k and abs(q - k) > 1))
    }
    assert all(link.layer == 4 for link in links.strongest())
    assert [(strongest.layer, strongest.head) for strongest in links.overview()] == [(4, 0), (4, 2)]
    empty = LinkCollector(tokens, top=9)
    empty.add(0, [], [])
    assert (empty.strongest(), empty.overview()) == ([], [])
