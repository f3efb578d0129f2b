"""What runs through transformers agrees with the library's own attention, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from asking import ask
from tiny_checkpoints import CASES, PLAIN, Case, make
from tiny_sizes import MIXED, rope

from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.tokenize import IdsOnly
from attncli.models.transformers_engine import ForeignModel, load_foreign
from attncli.models.verify import reference, reference_model, run_reference

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
FOREIGN = {
    "arcee": Case("arcee", {**PLAIN, "hidden_act": "relu2"}),
    "granite_swa": Case("granite_swa", {**PLAIN, **rope("default"), "sliding_window": 5, "layer_types": MIXED}),
    "granitemoe_swa": Case(
        "granitemoe_swa",
        {**PLAIN, **rope("default"), "sliding_window": 5, "layer_types": MIXED, "num_local_experts": 4,
         "num_experts_per_tok": 2},
    ),
    "hrm_text": Case("hrm_text", {**PLAIN, **rope("default"), "num_key_value_heads": 6}),
}  # fmt: skip


def engine(folder: Path, family: str, dtype: str = "float32") -> ForeignModel:
    """A checkpoint through the engine, whether or not its family runs natively."""
    model = load_foreign(
        Checkpoint.open(folder), family, family, IdsOnly(""), device=None, dtype=dtype
    )
    assert isinstance(model, ForeignModel)
    return model


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(
        lambda name: make({**CASES, **FOREIGN}[name], tmp_path_factory.mktemp("checkpoint"))
    )


def test_a_text_gives_the_same_after_a_longer_one(folder_of: Callable) -> None:
    """Dynamic rotary embeddings: the library keeps the frequencies of its longest text."""
    model = engine(folder_of("llama dynamic"), "llama")
    short, long = (model.tokenizer.ids_to_tokens(ids) for ids in (IDS[:9], (*IDS, *IDS)))
    first, _, again = (list(model.trace(tokens)) for tokens in (short, long, short))
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.stages["weights"], other.stages["weights"])


@pytest.mark.parametrize("name", ["granite_swa", "granitemoe_swa"])
def test_windows_and_sinks_that_the_library_counts_after_its_weights(
    name: str, folder_of: Callable
) -> None:
    """Its weights are those before the sinks' share: ours are they, times what the sinks leave of
    each row; what is handed on is the same."""
    model = engine(folder_of(name), name)
    assert model.warnings[-1].startswith("sinks have taken their share")
    (side,) = reference(folder_of(name), IDS, dtype="float32")
    traces = list(model.trace(model.tokenizer.ids_to_tokens(IDS)))
    for trace, weights, before in zip(traces, side.weights, side.hidden, strict=False):
        found = trace.stages["weights"].numpy()
        shares = found.sum(-1, keepdims=True)
        assert 0.01 < shares.mean() < 0.99
        assert np.abs(found - weights * shares).max() < 1e-4
        assert np.abs(trace.before.numpy() - before).max() < 1e-3
    windows = [(trace.stages["weights"][0] > 0).sum(-1).tolist() for trace in traces]
    assert windows == [
        [min(i + 1, 5 if kind == MIXED[0] else 13) for i in range(13)] for kind in MIXED
    ]


@pytest.mark.parametrize("name", ["hrm_text", "arcee"])
def test_as_exact_as_the_library_where_its_casts_are_lifted(name: str, folder_of: Callable) -> None:
    """The 24 layers of hrm_text magnify the library's softmax in float32 to a difference that can
    be seen.
    """
    model = engine(folder_of(name), name, "float64")
    with reference_model(folder_of(name), both=False) as theirs:
        (side,) = run_reference(theirs, IDS)
        for module, exact in zip(model.hf_model.modules(), theirs.modules(), strict=True):
            for buffer, value in exact.named_buffers(recurse=False):
                setattr(module, buffer, value)  # rotary frequencies, rounded once
        traces = list(model.trace(model.tokenizer.ids_to_tokens(IDS)))
    assert max(float(np.abs(trace.stages["weights"].numpy() - weights).max())
               for trace, weights in zip(traces, side.weights, strict=True)) < 1e-10  # fmt: skip


def test_another_mask_than_the_library_has_is_refused(
    folder_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import masking_utils

    usual = masking_utils.eager_mask

    def everything(*args: Any, **options: Any) -> Any:
        mask = usual(*args, **options)
        return None if mask is None else torch.zeros_like(mask)

    monkeypatch.setattr(
        masking_utils, "eager_mask", everything
    )  # what is registered for attn alone
    answer = ask("run", "--model", str(folder_of("arcee")), "--ids", "7 3 50")
    assert answer.code == 4
    assert "masks layer 0 of this 'arcee' model in a way that attn does not know" in " ".join(
        answer.err.split()
    )


def test_other_weights_than_the_library_has_are_refused(
    folder_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.arcee import modeling_arcee

    usual = modeling_arcee.eager_attention_forward

    def colder(module: Any, query: Any, *args: Any, **options: Any) -> Any:
        return usual(module, query * 1.01, *args, **options)

    monkeypatch.setattr(modeling_arcee, "eager_attention_forward", colder)
    answer = ask("run", "--model", str(folder_of("arcee")), "--ids", "7 3 50")
    assert answer.code == 4
    assert (
        "the attention of layer 0 of this 'arcee' model differs from transformers' own by"
        in " ".join(answer.err.split())
    )
