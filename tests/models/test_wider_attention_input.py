"""Layers whose attention reads more than the vectors that pass through: Zamba 2 reads the
embeddings beside them.
"""

from __future__ import annotations

from pathlib import Path

from asking import ask
from tiny_checkpoints import Case, make
from tiny_sizes import LLAMA


def test_what_is_read_is_no_stage_where_it_is_not_the_vectors_alone(tmp_path: Path) -> None:
    case = Case(
        "zamba2",
        {
            **{key: value for key, value in LLAMA.items() if key != "head_dim"},
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "layers_block_type": ["mamba", "hybrid"],
            "mamba_d_state": 4,
            "n_mamba_heads": 4,
            "mamba_headdim": 16,
            "mamba_ngroups": 1,
        },
        "AutoModelForCausalLM",
    )
    found = ask("run", "--model", str(make(case, tmp_path)), "--ids", "7 3 5", "--json")
    assert found.code == 0, found.err
    assert [layer["layer"] for layer in found.json["layers"]] == [1]
    shapes = {row["step"]: row["shape"] for row in found.json["shapes"]}
    assert "hidden" not in shapes
    assert (shapes["q"], shapes["out"]) == ([4, 3, 16], [3, 32])
