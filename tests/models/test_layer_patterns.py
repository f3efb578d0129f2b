"""Which layers have windows and rotary positions where a config leaves it to its family's default."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_checkpoints import CASES

from attncli.mechanism.mask import Causal, Everywhere
from attncli.models.config import Config
from attncli.models.families import family

UNSAID = (
    "layer_types",
    "no_rope_layers",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "max_window_layers",
)
"""Keys that say which layers have windows, rotary positions or experts."""


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gemma2", {}),
        ("gemma3_text", {}),
        ("gpt_oss", {}),
        ("olmo3", {}),
        ("cohere2", {}),
        ("exaone4", {}),
        ("modernbert", {}),
        ("smollm3", {}),
        ("llama4_text", {}),
        ("qwen2_moe", {"use_sliding_window": True, "max_window_layers": 10, "sliding_window": 5}),
    ],
)
def test_layers_that_no_key_tells_apart_are_those_of_the_family_s_own_class(
    name: str, more: dict[str, Any]
) -> None:
    import transformers

    values = {key: value for key, value in CASES[name].config.items() if key not in UNSAID}
    values |= {"num_hidden_layers": 13, **more}
    told = transformers.AutoConfig.for_model(name, **values)
    found = family(name)
    assert found is not None
    spec = found.spec(Config({"model_type": name, **values}, "config.json"))
    layers = [block.attention for block in spec.blocks]
    assert [isinstance(layer.mask, (Causal, Everywhere)) for layer in layers] == [
        kind == "full_attention" for kind in told.layer_types
    ]
    if hasattr(told, "no_rope_layers"):
        assert [int(layer.position is not None) for layer in layers] == told.no_rope_layers
