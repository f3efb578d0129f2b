"""Results in a notebook: the page in a frame that reaches nothing outside, and text where scripts are off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from attncli.arrays.backend import Array, Backend, backend_of
from attncli.documents import Document
from attncli.draw.page import Page, page_bytes, page_of
from attncli.inputs.token import Token
from attncli.measure.head_record import HeadRecord, LayerRecords, Sides, numbered_tokens
from attncli.measure.row_stream import kinds_left_out
from attncli.measure.run_record import RunRecord, arithmetic, feed_whole
from attncli.mechanism.trace import AttentionTrace, LayerTrace

MOST = 20_000_000
"""Weights of a result that is still shown as a page."""
BUDGET = 8_000_000
FRAME = '<iframe sandbox="allow-scripts" width="100%" height="860" style="border:0" srcdoc="{0}"></iframe>'


def bundle(value: AttentionTrace[Any] | LayerTrace | Document) -> dict[str, str]:
    """What a notebook shows of a result, by type: always its text, and the page of one that has heads."""
    formats = {"text/plain": repr(value)}
    page = _page(value)
    if page is not None:
        formats["text/html"] = FRAME.format(escape(b"".join(page_bytes(page)).decode(), quote=True))
    return formats


def _page(value: AttentionTrace[Any] | LayerTrace | Document) -> Page | None:
    match value:
        case AttentionTrace():
            stages = {name: getattr(value, name) for name in ("weights", "masked", "capped", "biased")}
            record = _of_stages(stages, 0, None, ())
        case LayerTrace():
            record = _of_stages(value.stages, value.layer, _scale(value), value.tokens)
        case _:
            return page_of(value, budget=BUDGET)
    return None if record is None else Page(record.text, [record], budget=BUDGET)


def _scale(trace: LayerTrace) -> float | None:
    """What q·k was multiplied by, where both stages were kept."""
    if "raw" not in trace.stages or "scaled" not in trace.stages:
        return None
    backend = backend_of(trace.stages["raw"])
    raw, scaled = (np.asarray(backend.numpy(trace.stages[name]), np.float64).reshape(-1) for name in ("raw", "scaled"))
    place = int(np.abs(raw).argmax()) if raw.size else 0
    return float(scaled[place] / raw[place]) if raw.size and raw[place] else None


def _of_stages(
    stages: Mapping[str, Array], layer: int, scale: float | None, tokens: Sequence[Token]
) -> RunRecord | None:
    """Stages as a record: each leading index as a layer. tokens: of the queries, none where only their number is known.
    None without weights, and for too many of them."""
    weights: Array | None = stages.get("weights")
    if weights is None or weights.ndim < 3 or not 0 < np.prod(tuple(weights.shape)) <= MOST:
        return None
    backend = backend_of(weights)
    rows, columns = map(int, weights.shape[-2:])
    has_tokens = len(tokens) == rows
    queries = list(tokens) if has_tokens else numbered_tokens(rows)
    # learned keys come after those of the tokens; keys of earlier tokens before them
    alone = has_tokens and tokens[0].index == 0 and columns > rows
    keys = queries if rows == columns or alone else numbered_tokens(columns)
    sides = Sides(queries, keys)
    text = " ".join(token.text for token in queries if not token.special) if has_tokens else ""
    name = f"layer {layer}" if has_tokens else f"attention of {rows} queries and {columns} keys"
    return RunRecord(name, text or name, sides, None, None, _heads(backend, stages, layer, scale, sides))


def _heads(
    backend: Backend, stages: Mapping[str, Array], layer: int, scale: float | None, sides: Sides
) -> Iterator[HeadRecord]:
    lead: Sequence[int] = tuple(stages["weights"].shape[:-3])
    for number, place in enumerate(np.ndindex(*lead)):
        here = {name: array[place] for name, array in stages.items() if tuple(array.shape[: len(lead)]) == tuple(lead)}
        # special tokens are a trained model's: of its links those that say little do not count
        leave_out = kinds_left_out(sides.queries, is_learned=any(token.special for token in sides.queries))
        records = LayerRecords(
            backend, layer + number, sides, range(int(here["weights"].shape[0])), leave_out=leave_out
        )
        feed_whole(backend, records, here, None)
        is_softcapped = "capped" in here and here["capped"] is not here.get("scaled")
        has_recipe = scale is not None and not lead and not is_softcapped
        yield from records.records(arithmetic(backend, here, scale or 1.0, None) if has_recipe else None)
