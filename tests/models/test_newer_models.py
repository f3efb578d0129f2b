"""What only newer models do, through transformers: keys by choice, several streams, experts in an
encoder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from asking import ask
from tiny_checkpoints import LLAMA, Case, make
from tiny_sizes import BARE, LATENT, T5

import attncli
from attncli.models.verify import reference

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)


def apart(ours: Any, theirs: Any) -> float:
    """The largest |difference|, relative to the largest number."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def test_keys_that_queries_choose(tmp_path: Path) -> None:
    sizes = {
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "index_n_heads": 2,
        "index_head_dim": 8,
    }
    folder = make(Case("deepseek_v32", {**LATENT, **sizes, "index_topk": 5}), tmp_path)
    model = attncli.load(folder)
    (expected,) = reference(folder, IDS, dtype="float32")
    for trace, weights in zip(
        model.trace(model.tokenizer.ids_to_tokens(IDS)), expected.weights, strict=True
    ):
        assert np.abs(trace.stages["weights"].numpy() - weights).max() < 1e-4
        assert int((trace.stages["weights"] > 0).sum(-1).max()) == 5


def test_several_vectors_for_each_token(tmp_path: Path) -> None:
    import transformers

    sizes = {
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 6,
        "vocab_size_per_layer_input": 61,
        "laurel_rank": 4,
    }
    folder = make(Case("gemma3n_text", {**LLAMA, **sizes, "num_hidden_layers": 2}), tmp_path)
    model = attncli.load(folder)
    assert model.spec.d_model == LLAMA["hidden_size"]
    assert "each token has 4 vectors" in model.warnings[-1]
    theirs = transformers.AutoModel.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    with torch.no_grad():
        hidden = theirs(
            input_ids=torch.tensor([IDS]), output_hidden_states=True, use_cache=False
        ).hidden_states
    first, last = model.trace(model.tokenizer.ids_to_tokens(IDS))
    assert apart(first.before, hidden[0][:, 0].mean(0)) < 1e-5
    assert apart(first.after, hidden[1][:, 0].mean(0)) < 1e-5
    assert last.before.shape == (len(IDS), LLAMA["hidden_size"])


def test_both_sides_of_a_model_whose_encoder_has_experts(tmp_path: Path) -> None:
    folder = make(Case("switch_transformers", {**T5, "num_experts": 2}), tmp_path)
    model = attncli.load(folder)
    tokens = model.tokenizer.ids_to_tokens(IDS)
    _, expected = reference(folder, IDS, target=IDS[:5], dtype="float32")
    traces = list(model.decoder(tokens).trace(tokens[:5]))
    for trace, own, cross in zip(traces, expected.weights, expected.cross, strict=True):
        assert np.abs(trace.stages["weights"].numpy() - own).max() < 1e-4
        assert np.abs(trace.cross.stages["weights"].numpy() - cross).max() < 1e-4


def test_the_first_layer_that_attends_is_explained(tmp_path: Path) -> None:
    sizes = {
        "num_hidden_layers": 2,
        "layer_types": ["conv", "full_attention"],
        "block_auto_adjust_ff_dim": False,
    }
    folder = make(Case("lfm2", {**BARE, "hidden_size": 36, **sizes}), tmp_path)
    assert ask("explain", "--model", str(folder), "--ids", "7 3 50", "--json").json["layer"] == 1


def test_attention_that_reads_more_than_its_layer_is_given(tmp_path: Path) -> None:
    sizes = {
        "num_hidden_layers": 2,
        "layers_block_type": ["mamba", "hybrid"],
        "num_mem_blocks": 1,
        "mamba_ngroups": 1,
    }
    mamba = {
        "mamba_d_state": 8,
        "n_mamba_heads": 2,
        "mamba_expand": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
    }
    folder = make(Case("zamba2", {**BARE, **sizes, **mamba}), tmp_path)
    told = ask("explain", "--model", str(folder), "--ids", "7 3 50")
    assert told.code == 4
    assert "error: the attention of layer 1 reads vectors of another width" in told.err
