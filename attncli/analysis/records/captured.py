"""Records of captured queries and keys: every leading index of the arrays stands as a layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from attncli.analysis.records.feeding import arithmetic, feed_whole
from attncli.analysis.records.head import HeadRecord, LayerRecords, Sides
from attncli.analysis.records.run import RunRecord
from attncli.arrays.backend import EVERY, Selection, choose, numbers_of
from attncli.features.tensors.compute import CapturedTensors
from attncli.features.tensors.document import TensorsDocument
from attncli.inputs.token import Token
from attncli.mechanism.attend import RowBlock


def captured_record(
    arrays: CapturedTensors, trace: RowBlock, document: TensorsDocument, *, heads: Selection = EVERY
) -> RunRecord:
    """What `attn tensors` computed. trace: all of its stages. document: its `attn.tensors/1`. heads: which, None for
    all."""
    backend = arrays.backend
    queries, keys = numbered_tokens(int(arrays.q.shape[-2])), numbered_tokens(int(arrays.k.shape[-2]))
    sides = Sides(queries, queries if len(queries) == len(keys) else keys)
    stage_arrays = {
        name: np.asarray(backend.numpy(trace.stages[name])) for name in ("weights", "masked", "capped", "biased")
    }
    lead = stage_arrays["weights"].shape[:-3]
    # the types of the arithmetic itself: scores of low precision were made from wider products
    stage_arrays["q"], stage_arrays["k"] = (
        np.broadcast_to(head_records, (*lead, *head_records.shape[-3:]))
        for head_records in (np.asarray(backend.numpy(array), np.float32) for array in (arrays.q, arrays.k))
    )

    # what is held is on the CPU by now
    numpy = backend if backend.name == "numpy" else choose("numpy", device=None, dtype="float32")

    def head_records() -> Iterator[HeadRecord]:
        for layer, place in enumerate(np.ndindex(lead)):
            head_numbers = numbers_of(heads, stage_arrays["weights"].shape[-3])
            stages = {name: array[place] for name, array in stage_arrays.items()}
            records = LayerRecords(numpy, layer, sides, head_numbers, leave_out=())
            feed_whole(numpy, records, stages, None)
            yield from records.records(arithmetic(numpy, stages, arrays.rule.scale, arrays.rule.softcap))

    name = PurePath(document.file).name
    return RunRecord(name, name, sides, document.model, document.attention, head_records(), document.warnings)


def numbered_tokens(count: int) -> list[Token]:
    """Tokens that are only known by their places."""
    return [Token(index, str(index), None, None, None) for index in range(count)]
