"""The document of `attn find`: which heads send one token to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from attncli.analysis.document import header, notes, overflow
from attncli.analysis.documents.find import FindDocument, FoundHead, Reverse
from attncli.analysis.effects.ablation import Removal, remove
from attncli.analysis.effects.changes import Link
from attncli.analysis.effects.measures import Asked
from attncli.analysis.effects.places import Chosen, everything
from attncli.analysis.row_consumers import share
from attncli.analysis.words import Words
from attncli.arrays.selection import EVERY, Selection, selected
from attncli.errors import InputError
from attncli.inputs.token import Token
from attncli.mechanism.attend import RowBlock
from attncli.models.model import Model
from attncli.models.row_blocks import rows_for

if TYPE_CHECKING:
    from attncli.analysis.records.recording import Recording  # only a page needs it


class Sought(Struct, frozen=True):
    """What to look for: the weight from the query `start` to the key `end`, in these layers and heads."""

    start: int
    end: int
    layers: Selection = EVERY
    heads: Selection = EVERY


class Cutting(Struct, frozen=True):
    """That the effect of cutting the link is wanted. memory: bytes there may be. told: the share done."""

    memory: int
    told: Callable[[float], None]


class _Ends:
    """The rows of two queries, kept while blocks of a layer go by."""

    def __init__(self, model: Model, queries: Sequence[int], keys: int) -> None:
        self._model, self._queries, self._keys = model, queries, keys
        self.rows: dict[int, np.ndarray[Any, Any]] = {}
        self.seen: dict[int, np.ndarray[Any, Any]] = {}

    def see(self, layer: int, kind: str, block: RowBlock) -> None:
        if kind != "self":
            return
        backend, every = self._model.backend, self._model.spec.blocks[layer].attention.heads
        high = min(block.high, self._keys)  # learned keys stand after the tokens
        for query in (one for one in self._queries if block.start <= one < block.stop):
            for kept, kind_of in ((self.rows, np.float64), (self.seen, np.bool_)):
                kept.setdefault(query, np.zeros((every, self._keys), kind_of))
            weights = backend.numpy(block.stages["weights"][..., query - block.start, : high - block.low])
            own = slice(block.first_head, block.first_head + len(weights))
            self.rows[query][own, block.low : high] = weights
            if block.seen is None:
                self.seen[query][own, block.low : high] = True
            else:
                seen = backend.numpy(block.seen[..., min(query - block.start, block.seen.shape[-2] - 1), :])
                self.seen[query][own, block.low : high] = seen[..., : high - block.low] if seen.shape[-1] > 1 else seen


def find_document(
    model: Model,
    text: str,
    tokens: Sequence[Token],
    sought: Sought,
    *,
    words: Words | None = None,
    cutting: Cutting | None = None,
    progress: Callable[[float], None] | None = None,
    recording: Recording | None = None,
) -> FindDocument:
    """The `attn.find/1` document: every head, the largest weight from → to first; ties by layer and head.

    rank: 1 for the key that the query looks at most; null where the mask hides the key. reverse: the
    same from `end` to `start`. words: merge pieces first; then start and end are words. progress: told
    the share done of a long text. recording: takes the heads of the run.
    Heads whose numbers left the range of their type have no rank; warnings name them. Raises InputError where no other
    is left.
    """
    ends = [list(_pieces(words, at)) for at in (sought.start, sought.end)]
    queries = sorted({*ends[0], *ends[1]})
    layers = model.spec.attending(sought.layers)
    kept = {layer: _Ends(model, queries, len(tokens)) for layer in layers}
    found: list[FoundHead] = []
    warnings = notes(model, text, tokens)

    def see(layer: int, kind: str, block: RowBlock) -> None:
        kept[layer].see(layer, kind, block)
        if progress is not None and kind == "self":
            done = share(block, model.spec.blocks[layer].attention.heads, len(tokens))
            progress((layer + done) / (max(layers) + 1))

    for trace in (recording or model).trace(
        tokens, layers=sought.layers, keep=("weights",), rows=rows_for(model.spec, len(tokens)),
        see=see,
    ):  # fmt: skip
        held = kept.pop(trace.layer)
        warnings += overflow(model.backend, trace)
        forward, seen = _row(held, ends[0], words)
        back, seen_back = _row(held, ends[1], words)
        for head in selected(sought.heads, forward.shape[0]):
            if np.isnan((forward[head], back[head])).any():
                continue
            there = _place(forward[head], seen[head], sought.end)
            found.append(
                FoundHead(
                    layer=trace.layer,
                    head=head,
                    weight=there.weight,
                    rank=there.rank,
                    visible=there.visible,
                    top_key=there.top_key,
                    reverse=_place(back[head], seen_back[head], sought.start),
                )
            )
    if not found:
        raise InputError(
            "no head has weights that are finite numbers",
            expected="numbers that their type can hold",
            hint="--dtype float64",
        )
    together: float | UnsetType | None = UNSET
    if cutting is not None:
        found, together = _with_effects(model, tokens, sought, ends, found, cutting)
    found.sort(key=lambda row: (-row.weight, row.layer, row.head))
    return FindDocument(
        **header(model, text, tokens, words),
        query=sought.start,
        key=sought.end,
        words=words is not None,
        heads=found,
        effect_together=together,
        warnings=warnings,
    )


def _with_effects(
    model: Model,
    tokens: Sequence[Token],
    sought: Sought,
    ends: Sequence[Sequence[int]],
    found: Sequence[FoundHead],
    cutting: Cutting,
) -> tuple[list[FoundHead], float | None]:
    """The heads with what cutting the link in each alone changes, and what cutting it in all of them does."""
    every = everything(model.spec)
    chosen = Chosen(
        every.layers if sought.layers is EVERY else sought.layers,
        every.heads if sought.heads is EVERY else sought.heads,
    )
    link = Link(tuple(ends[0]), tuple(ends[1]))
    removed = remove(
        model, tokens, Removal(chosen, link=link, baseline="none"), Asked(("vector",), link.queries, link.queries[-1]),
        memory=cutting.memory, told=cutting.told,
    )  # fmt: skip
    turned = {(one.place.layer, one.place.head): _defined(one.readings["cosine"]) for one in removed.effects}
    with_effect = [replace(one, effect=turned.get((one.layer, one.head))) for one in found]
    return with_effect, _defined(removed.together["cosine"])


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else value


def _pieces(words: Words | None, at: int) -> range:
    if words is None:
        return range(at, at + 1)
    return range(int(words.starts[at]), int(words.starts[at] + words.sizes[at]))


def _row(held: _Ends, queries: Sequence[int], words: Words | None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The row of one token, or of a word: the mean over its pieces, keys summed by word."""
    row, seen = np.stack([held.rows[q] for q in queries], 1), np.stack([held.seen[q] for q in queries], 1)
    if words is None:
        return row[:, 0], seen[:, 0]
    looking = np.maximum((row.sum(-1) > 0).sum(-1), 1)[:, None]
    shown: np.ndarray[Any, Any] = np.add.reduceat(seen.any(1), words.starts, axis=-1) > 0
    return np.add.reduceat(row, words.starts, axis=-1).sum(1) / looking, shown


def _place(row: np.ndarray[Any, Any], seen: np.ndarray[Any, Any], key: int) -> Reverse:
    weight = float(row[key])
    top = int(np.argmax(row))
    return Reverse(
        weight=weight,
        rank=int((row > weight).sum()) + 1 if seen[key] else None,
        visible=int(seen.sum()),
        top_key=top if row[top] > 0 else None,
    )
