"""Captured attention in numbers: metrics and strongest links of every head, from whole weights or by blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from attncli.analysis.measure import Measured, Tally
from attncli.analysis.metrics import METRICS
from attncli.analysis.row_consumers import RowFeeder, share
from attncli.analysis.row_facts import TokenFacts
from attncli.analysis.toplinks import TopLinks
from attncli.analysis.visible_keys import Bools, Floats
from attncli.arrays.backend import Array, Backend
from attncli.mechanism.attend import RowBlock, Rule
from attncli.mechanism.streaming import StreamResult, rows_within, stream

MOST_LENGTHS = 8
"""Numbers of `key_lengths` that are told."""

KNOWN = tuple(name for name, metric in METRICS.items() if not metric.needs)
"""The metrics that need nothing but weights: captured arrays come without tokens."""


class CapturedHeads:
    """The chosen heads of one attention: their metrics, and the `top` strongest links of each.

    keys: how many keys there are. offset: position of query 0.
    """

    def __init__(self, backend: Backend, keys: int, heads: Sequence[int], top: int, *, offset: int) -> None:
        self._tally, self._links = Tally(len(heads), KNOWN, TokenFacts()), TopLinks(len(heads), top)
        consumers = (self._tally, *((self._links,) if top else ()))
        self._feeder = RowFeeder(backend, consumers, TokenFacts(), keys, heads=heads, offset=offset)
        self._offset = offset

    def whole(self, weights: Floats, visible: Bools) -> None:
        """Take the chosen heads' weights [head, query, key] at once, and which keys they see."""
        self._feeder.whole(np.nan_to_num(weights.astype(np.float64)), visible)

    def stream_rows(
        self, backend: Backend, arrays: tuple[Array, Array, Array], rule: Rule, progress: Callable[[float], None]
    ) -> StreamResult:
        """Attend q [head, query, dim], k, v [kv, key, dim] by blocks of query rows. progress: told the share done."""
        q, k, _ = arrays
        heads, queries = q.shape[-3], q.shape[-2]

        def on_block(block: RowBlock) -> None:
            self._feeder.on_block(block)
            progress(share(block, heads, queries))

        rows = rows_within(heads, queries, k.shape[-2])
        return stream(backend, *arrays, rule, rows=rows, keep=("weights", "entropy", "peak"), on_block=on_block)

    def metrics(self) -> dict[str, Measured]:
        """The metrics by name."""
        return self._tally.result()

    def links(self) -> list[list[tuple[int, int, float]]]:
        """For each head its links as (query row, key, weight), strongest first."""
        return [
            [(query - self._offset, key, weight) for query, key, weight in head_links]
            for head_links in self._links.sorted_links()
        ]


def of_place(array: Array, place: tuple[int, ...]) -> Array:
    """The part of an array for one batch entry: of leading axes, which broadcast, and three of its own."""
    leading = array.shape[:-3]
    leading_index = place[len(place) - len(leading) :]
    return (
        array[tuple(0 if size == 1 else index for size, index in zip(leading, leading_index, strict=True))]
        if leading
        else array
    )


def of_entry(rule: Rule, place: tuple[int, ...]) -> Rule:
    """The rule for one batch entry."""

    def take_entry(array: Array | None) -> Array | None:
        return array if array is None or array.ndim <= 3 else of_place(array, place)

    offset = rule.offset if isinstance(rule.offset, int) else int(of_place(rule.offset, place).reshape((-1,))[0])
    return replace(
        rule,
        visibility=take_entry(rule.visibility),
        bias=take_entry(rule.bias),
        offset=offset,
        key_lengths=take_entry(rule.key_lengths),
    )


def visibility_notes(rule: Rule, backend: Backend) -> list[str]:
    """What hides keys beside the mask that is named."""
    notes = [] if rule.visibility is None else ["keys are also hidden by the file's array mask"]
    if rule.key_lengths is not None:
        lengths = np.ravel(backend.numpy(rule.key_lengths)).tolist()
        more = " …" if len(lengths) > MOST_LENGTHS else ""
        length_text = ", ".join(map(str, lengths[:MOST_LENGTHS]))
        notes.append(f"keys are also hidden by key_lengths {length_text}{more}")
    return notes
