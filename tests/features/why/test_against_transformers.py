"""What a part of the residual stream does to a head's weight, against transformers with hooks, in
float64.

The oracle (`frozen_transformers`) subtracts a part from the input of the head's projection alone
and runs on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frozen_transformers import ANSWERS, ASKS, Frozen, weights_of
from tiny_checkpoints import CASES, make
from tiny_two_sided import TWO_SIDED

import attncli
from attncli.features.effects.contributions import Contributions, Link, LinkPart, contributions
from attncli.features.effects.sweep import SweepText
from attncli.models.residual_stream import StreamPart
from attncli.models.verify import reference_model

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)
SOURCE = (33, 12, 3, 41, 29, 55, 10, 7)
FAMILIES = (
    "bert", "distilbert", "mpnet", "gpt2 with head", "gpt_neo", "gptj", "opt", "opt post-norm", "llama", "mixtral",
    "qwen3", "gemma2", "olmo2", "cohere", "stablelm", "granite", "t5", "bart", "electra", "xlm-roberta", "smollm3",
    "gemma3_text",
)  # fmt: skip
CHOSEN = frozenset(
    (
        "bert", "gpt2 with head", "gptj", "opt post-norm", "mixtral", "qwen3", "gemma2", "olmo2", "stablelm", "t5",
        "mpnet", "bart",
    )
)  # fmt: skip
"""Those that are looked at every time."""
QUERY, KEY = 6, 2


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


def own_text(folder: Path, side: str) -> SweepText:
    model = attncli.load(folder, backend="numpy", dtype="float64")
    if side == "decoder":
        model = model.decoder(model.tokenizer.ids_to_tokens(SOURCE))
    return SweepText(model, model.tokenizer.ids_to_tokens(IDS), model.backend)


def runner(model: Any, side: str) -> Callable[[], Any]:
    def run() -> Any:
        ids = {"input_ids": torch.tensor([list(IDS)])}
        if side == "decoder":
            ids = {
                "input_ids": torch.tensor([list(SOURCE)]),
                "decoder_input_ids": torch.tensor([list(IDS)]),
            }
        whole = model.encoder if side == "encoder" else model
        return whole(**ids, output_attentions=True, use_cache=False)

    return run


def slice_of(module: Any, side: str, head: int, dim: int, heads: int) -> slice:
    """A head's rows of a projection; GPT-2 has one for queries, keys and values."""
    first = head * dim + (heads * dim if type(module).__name__ == "Conv1D" and side == "k" else 0)
    return slice(first, first + dim)


def index_of(found: Contributions, part: StreamPart) -> int:
    return found.parts.index(LinkPart(part.kind, part, found.parts[0].side))


CASES_OF_SIDES = [
    pytest.param(name, side, kind, marks=() if name in CHOSEN else pytest.mark.thorough)
    for name in FAMILIES
    for side, kind in (
        (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))
        if CASES[name].model_type in TWO_SIDED
        else (("", "self"),)
    )
]


@pytest.mark.many
@pytest.mark.parametrize(("name", "side", "kind"), CASES_OF_SIDES)
def test_each_part_does_what_a_forward_pass_without_it_does(
    name: str, side: str, kind: str, folder_of: Callable
) -> None:
    text = own_text(folder_of(name), side)
    blocks = text.model.spec.blocks
    layer = len(blocks) - 1
    block = blocks[layer]
    attention = block.attention if kind == "self" else block.cross
    link = Link(layer, kind, attention.heads - 1, QUERY, KEY)
    found = contributions(text, link)
    changed = found.weights_without()
    with reference_model(folder_of(name), both=side == "decoder") as model:
        frozen = Frozen(model, runner(model, side), side)
        asks, answers = (
            frozen.projection(pattern, layer, kind == "cross") for pattern in (ASKS, ANSWERS)
        )
        clean = weights_of(frozen.result, side, layer, kind == "cross")[link.head, QUERY, KEY]
        assert found.weight == pytest.approx(clean, abs=1e-9)
        group = link.head // (attention.heads // attention.kv_heads)
        rows = (
            slice_of(asks, "q", link.head, attention.head_dim, attention.heads),
            slice_of(answers, "k", group, attention.head_dim, attention.heads),
        )
        crossing = blocks[0].cross is not None
        parts: list[tuple[StreamPart, dict]] = [(StreamPart("token"), {"words": True})]
        if layer:
            number = 1 if crossing else 0
            heads = blocks[0].cross.heads if crossing else blocks[0].attention.heads
            of_head = StreamPart("head", 0, "cross" if crossing else "self", 1)
            parts += [
                (of_head, {"head": (number, 1, heads)}),
                (StreamPart("feed_forward", 0), {"feed": 0}),
            ]
        if side == "decoder":
            parts = [
                (part, what) for part, what in parts if part.kind != "token"
            ]  # one table serves both sides
        for part, what in parts:
            index = index_of(found, part)
            share = frozen.share(asks, **what)
            runs = {"query": frozen.without(asks, share, rows[0], None)}
            if kind == "self":
                runs["all_keys"] = frozen.without(answers, share, rows[1], None)
                runs["key"] = frozen.without(answers, share, rows[1], [KEY])
            for where, result in runs.items():
                known = weights_of(result, side, layer, kind == "cross")[link.head, QUERY, KEY]
                assert changed[where][index] == pytest.approx(known, abs=1e-9), (part, where)
        assert parts
        assert (
            max(
                abs(found.weight - np.nan_to_num(values, nan=found.weight)).max()
                for values in changed.values()
            )
            > 1e-6
        )
