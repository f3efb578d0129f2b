"""`attn patch --into`: direct path patching against transformers with hooks that recompute the
receiver, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from asking import ask
from frozen_transformers import ANSWERS, ASKS, PASSES, Frozen
from tiny_checkpoints import CASES, make

import attncli
from attncli.features.effects.patching import PatchRequest, PathReceiver, patch
from attncli.mechanism.spec import HeadSelection
from attncli.models.verify import reference_model

CLEAN = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)
CORRUPT = (7, 3, 3, 50, 11, 28, 21, 44, 9, 13)
AT = 9
NAMES = ("bert", "gpt2 with head", "gpt_neo", "gptj", "distilbert", "mixtral", "llama")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


def runner(model: Any, ids: tuple[int, ...]) -> Callable[[], Any]:
    return lambda: model(input_ids=torch.tensor([list(ids)]), use_cache=False)


def turn(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.many
@pytest.mark.parametrize("name", NAMES)
def test_a_receiver_is_told_what_a_recomputed_one_is_told(
    name: str, folder_of: Callable[[str], Path]
) -> None:
    own = attncli.load(folder_of(name), backend="numpy", dtype="float64")
    clean, corrupt = (own.tokenizer.ids_to_tokens(ids) for ids in (CLEAN, CORRUPT))
    spec = own.spec
    layer = 1
    attention = spec.blocks[layer].attention
    head, shared = attention.heads - 1, attention.heads != attention.kv_heads
    sides = "q" if shared else "qkv"
    with reference_model(folder_of(name), both=False) as model:
        good = Frozen(model, runner(model, CLEAN))
        bad = Frozen(model, runner(model, CORRUPT))
        goal = good.result.last_hidden_state[0, AT].numpy()
        first = turn(bad.result.last_hidden_state[0, AT].numpy(), goal)
        for side in sides:
            target = bad.projection(
                {"q": ASKS, "k": ANSWERS, "v": PASSES}[side], layer, cross=False
            )
            begins = head * attention.head_dim
            if type(target).__name__ == "Conv1D":
                begins += "qkv".index(side) * attention.heads * attention.head_dim
            rows = slice(begins, begins + attention.head_dim)
            receivers = (PathReceiver(layer, head, side),)
            request = PatchRequest(
                HeadSelection(range(len(spec.blocks)), range(99)),
                tuple(range(len(CLEAN))),
                (AT,),
                "cosine",
                into=receivers,
            )
            found = patch(own, clean, corrupt, request)
            assert len(found.recovered_shares) == sum(
                block.attention.heads for block in spec.blocks[:layer]
            )
            assert found.corrupt == pytest.approx(first, abs=1e-10)
            for place, share in found.recovered_shares:
                heads = spec.blocks[place.layer].attention.heads
                value = good.values[id(bad.outs[place.layer][1])]
                lost = bad.share(target, head=(place.layer, place.head, heads), instead=value)
                result = bad.without(target, lost, rows, None)
                known = (turn(result.last_hidden_state[0, AT].numpy(), goal) - first) / (1 - first)
                assert share == pytest.approx(known, abs=1e-8), (side, place)
            assert max(abs(share) for _, share in found.recovered_shares) > 1e-6


def test_several_receivers_and_what_is_refused() -> None:
    line = ("patch", "the cat sat", "the dog sat", "--model", "minilm", "--query", "sat")
    document = ask(*line, "--into", "L5H11:q,L3H1:v", "--json").json
    assert document["into"] == [
        {"layer": 5, "head": 11, "side": "q"},
        {"layer": 3, "head": 1, "side": "v"},
    ]
    assert {row["layer"] for row in document["effects"]} == set(range(5))
    shown = " ".join(ask(*line, "--into", "L5H11:q", "--brief").out.split())
    assert (
        "Only the queries of layer 5 head 11 read what is put in; norms as in the corrupt text"
        in shown
    )
    for into, code, said in (
        ("L5H11", 3, "such as L5H11:q"), ("L5H12:q", 3, "no head L5H12"), ("L0H1:k", 3, "comes before"),
        ("5:q", 3, "no head with its side"),
    ):  # fmt: skip
        answer = ask(*line, "--into", into)
        assert (answer.code, answer.out) == (code, "")
        assert said in answer.err
