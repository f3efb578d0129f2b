"""What a page holds is counted, all of it: a budget that leaves something out is no budget."""

from __future__ import annotations

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.draw.page import BUDGET, PageHeads
from attncli.inputs.tokenize import tokenizer
from attncli.measure.run_record import run_record
from attncli.mechanism.mask import Hashed
from attncli.models.one_layer import Settings, seeded_model


def test_masks_count_too() -> None:
    settings = Settings(d_model=24, heads=3, mask=Hashed(4))
    model = seeded_model(settings, 3, "seeded", tokenizer("whitespace"), NumpyBackend("float32"))
    text = " ".join(f"w{at % 17}" for at in range(41))
    kept = PageHeads(BUDGET)
    for record in run_record(model, text, model.encode(text)).heads:
        kept.add(0, record)
    assert kept.masks
    assert kept.size == sum(len(data) * 4 // 3 for data in kept.blocks.values())
