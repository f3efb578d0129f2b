"""W_Q, W_K and W_V of a head: its own rows of what the checkpoint stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tiny_checkpoints import CASES, make

import attncli
from attncli.features.run.compute import head_projections, layer_projections
from attncli.inputs.tensors import read_tensors


def test_heads_that_share_keys_and_values_share_their_matrices(tmp_path: Path) -> None:
    folder = make(CASES["llama"], tmp_path)
    model = attncli.load(folder, dtype="float64")
    stored, spec = read_tensors(folder / "model.safetensors"), model.spec.blocks[1].attention
    dim, each = spec.head_dim, spec.heads // spec.kv_heads
    assert each > 1
    for head in range(spec.heads):
        found = head_projections(model, 1, head)
        for name, role, place in (
            ("W_Q", "q", head),
            ("W_K", "k", head // each),
            ("W_V", "v", head // each),
        ):
            rows = stored[f"model.layers.1.self_attn.{role}_proj.weight"][
                place * dim : (place + 1) * dim
            ]
            np.testing.assert_array_equal(found.pop(name), rows.T)
        assert not found
    output = layer_projections(model, 1)["W_O"]
    np.testing.assert_array_equal(output, stored["model.layers.1.self_attn.o_proj.weight"].T)


def test_what_a_layer_has_not_as_one_matrix_is_left_out(tmp_path: Path) -> None:
    model = attncli.load(make(CASES["deepseek_v3"], tmp_path))
    assert set(head_projections(model, 0, 5)) == {"W_Q"}
