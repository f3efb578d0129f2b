"""Configs: every key understood or refused, old spellings and new, absurd numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_checkpoints import CASES, LAYER_NORM, LLAMA

from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.mechanism.mask import Causal, Window
from attncli.mechanism.spec import Linear, Llama3, LongRope, Rope, Spec, Yarn
from attncli.models.config import (
    MOST_TOLD,
    Config,
    FixedValue,
    config_without,
    rope,
    seen_both_ways,
    settle,
)
from attncli.models.families import MODEL_TYPES, family

WHERE = "config.json"


def spec_of(model_type: str, **values: Any) -> Spec:
    found = family(model_type)
    assert found is not None
    config = Config({"model_type": model_type, **values}, WHERE)
    spec = seen_both_ways(config, found.spec(config))
    assert settle(config, found.fixed) == ()
    return spec


def blocks_of(spec: Spec) -> list:
    return [block.attention for block in spec.blocks]


@pytest.mark.parametrize("name", CASES)
def test_every_key_of_the_family_s_own_class_is_known(name: str) -> None:
    import transformers

    case = CASES[name]
    whole = transformers.AutoConfig.for_model(case.model_type, **case.config).to_dict()
    assert len(whole) > 20
    spec_of(case.model_type, **{key: value for key, value in whole.items() if key != "model_type"})


@pytest.mark.many
@pytest.mark.parametrize("name", CASES)
def test_silence_means_what_the_family_s_own_class_means(name: str) -> None:
    """Each key left out in turn: the Spec of what is left is that of what the class makes of it, or
    there is none.
    """
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    case = CASES[name]
    compared = 0
    for left_out in (None, *case.config):
        told = {key: value for key, value in case.config.items() if key != left_out}
        try:
            found = spec_of(case.model_type, **told)
            whole = transformers.AutoConfig.for_model(case.model_type, **told).to_dict()
        except (AttnError, StrictDataclassError, IndexError, ZeroDivisionError):
            continue  # a key that cannot be left out, here or there
        assert found == spec_of(**{"tie_word_embeddings": True, **whole}), left_out
        compared += 1
    assert compared > 0


def test_every_family_is_found_by_its_model_type() -> None:
    found = [family(model_type) for model_type in MODEL_TYPES]
    assert None not in found
    assert len(set(map(id, found))) == len(MODEL_TYPES)
    assert family("mamba") is None
    assert family("../gpt2") is None


def test_a_model_is_called_by_its_own_family() -> None:
    for name, case in CASES.items():
        assert spec_of(case.model_type, **case.config).family == case.model_type, name


@pytest.mark.parametrize(
    ("model_type", "values", "key", "consequence"),
    [
        (
            "bert",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type",
            "relative positions",
        ),
        ("albert", {"is_decoder": True}, "is_decoder", "earlier tokens"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention", "cross-attention"),
        (
            "bloom",
            {"apply_residual_connection_post_layernorm": True},
            "apply_residual_connection_post_layernorm",
            "residual",
        ),
        (
            "gemma",
            {"use_bidirectional_attention": True},
            "use_bidirectional_attention",
            "later ones",
        ),
        ("bart", {"is_causal": False}, "is_causal", "later ones"),
        ("llama4_text", {"is_causal": False}, "is_causal", "no form"),
        ("bart", {"normalize_before": True}, "normalize_before", "before each part"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func", "softmax"),
        ("deepseek_v2", {"num_key_value_heads": 2}, "num_key_value_heads", "as many as heads"),
        (
            "gpt_oss",
            {"quantization_config": {"quant_method": "bitsandbytes"}},
            "quantization_config",
            "bfloat16",
        ),
        ("cohere2", {"use_parallel_block": False}, "use_parallel_block", "one after the other"),
        ("gemma3_text", {"attn_logit_softcapping": 2.0}, "attn_logit_softcapping", "capped"),
        (
            "gemma2",
            {"layer_types": ["full_attention", "chunked_attention", "full_attention"]},
            "layer_types",
            "chunked_attention",
        ),
        ("gpt_neo", {"attention_types": [["global", 2]]}, "attention_types", "pattern"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(
    model_type: str, values: dict[str, Any], key: str, consequence: str
) -> None:
    usual = next(case.config for case in CASES.values() if case.model_type == model_type)
    with pytest.raises(UnsupportedError) as error:
        spec_of(model_type, **{**usual, **values})
    assert key in error.value.what
    assert consequence in error.value.expected
    assert f"--ignore-config {key}" in error.value.hint


def test_weights_of_four_bits_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="mxfp4") as error:
        spec_of(
            "gpt_oss",
            **{**CASES["gpt_oss"].config, "quantization_config": {"quant_method": "mxfp4"}},
        )
    assert "BF16" in error.value.hint


def test_unknown_keys_are_told_and_null_is_the_usual_value() -> None:
    config = Config(
        {"first": 1, "second": None, "third": 3, "attention_dropout": 0.1, "summary_type": "x"},
        WHERE,
    )
    config.integer("first")
    assert settle(config, {"second": FixedValue(7, "")}) == (
        "config.json has a key 'third' that attn does not know; it plays no part",
    )


def test_very_many_unknown_keys_are_counted_and_long_ones_cut() -> None:
    told = settle(Config({f"{index}{'x' * 1000}": index for index in range(5000)}, WHERE), {})
    assert (
        told[-1]
        == f"config.json has {5000 - MOST_TOLD:,} more keys that attn does not know; they play no part"
    )
    assert len(told) == MOST_TOLD + 1
    assert max(map(len, told)) < 200


def test_ignored_keys_are_as_if_they_were_not_there() -> None:
    assert config_without({"a": 1, "b": 2}, ["b"], WHERE).values == {"a": 1}
    with pytest.raises(InputError, match="no key 'c' to ignore"):
        config_without({"a": 1}, ["c"], WHERE)


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": -3},
        {"num_hidden_layers": True},
        {"num_hidden_layers": "three"},
        {"num_hidden_layers": 3.5},
        {"num_hidden_layers": [3]},
        {"num_attention_heads": 0},
        {"num_attention_heads": 10**12},
        {"head_dim": 2**30},
        {"hidden_size": 10**30},
        {"hidden_size": None},
        {"vocab_size": 2**40},
        {"rms_norm_eps": "1e-6"},
        {"rms_norm_eps": -1.0},
        {"rms_norm_eps": 1e400},
        {"rms_norm_eps": 10**400},
        {"rms_norm_eps": 1e-320},
        {"partial_rotary_factor": 1e308},
        {"rope_scaling": {"rope_type": "linear", "factor": 1e300}},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "head_dim": 2},
        {"rope_theta": 0},
        {"rope_theta": {"a": 1}},
        {"hidden_act": 3},
        {"hidden_act": "snake"},
        {"rope_scaling": {"rope_type": "unheard"}},
        {"rope_scaling": {"rope_type": "linear"}},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "twist": 1}},
        {"rope_scaling": [1, 2]},
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        {
            "rope_scaling": {
                "rope_type": "longrope",
                "short_factor": [10**400] * 5,
                "long_factor": [1.0] * 5,
            }
        },
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "max_position_embeddings": None},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 4.0,
                "high_freq_factor": 3.9,
            }
        },
        {"partial_rotary_factor": -0.5},
        {"tie_word_embeddings": "yes"},
    ],
)
def test_absurd_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(AttnError) as error:
        spec_of("llama", **{**LLAMA, **values})
    assert isinstance(error.value, InputError | UnsupportedError)
    assert error.value.expected


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("mixtral", {"num_experts_per_tok": 6}, "num_experts_per_tok to 6"),
        ("qwen3_moe", {"num_experts_per_tok": 6}, "num_experts_per_tok to 6"),
        (
            "qwen2",
            {
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                "use_sliding_window": False,
            },
            "how wide",
        ),
        (
            "smollm3",
            {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            "how wide",
        ),
        (
            "gemma3_text",
            {"rope_parameters": {"rope_type": "default", "rope_theta": 97.0}},
            "key 'rope_type'",
        ),
        ("modernbert", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "key 'factor'"),
    ],
)
def test_what_contradicts_itself_is_refused(name: str, values: dict[str, Any], told: str) -> None:
    case = CASES[name]
    with pytest.raises((InputError, UnsupportedError), match=told):
        spec_of(case.model_type, **{**case.config, **values})


def test_a_key_that_the_family_does_not_have_is_told() -> None:
    found = family("stablelm")
    assert found is not None
    config = Config({"model_type": "stablelm", **CASES["stablelm"].config, "rope_pct": 0.5}, WHERE)
    assert found.spec(config) == spec_of("stablelm", **CASES["stablelm"].config)
    assert "'rope_pct'" in settle(config, found.fixed)[0]


def test_a_model_whose_heads_do_not_divide_its_width() -> None:
    with pytest.raises(InputError, match="7 heads for a width of 30"):
        spec_of("gpt2", **{**CASES["gpt2"].config, "n_head": 7})


def old(**values: Any) -> Rope:
    return rope(Config({"max_position_embeddings": 64, **values}, WHERE), 10)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"type": "linear", "factor": 4.0}, Linear(4.0)),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16},
            Llama3(8.0, 1.0, 4.0, 16),
        ),
        (
            {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.5},
            Yarn(4.0, 16, 32.0, 1.0, 1.5, True),
        ),
        (
            {"type": "longrope", "short_factor": [1, 2, 3, 4, 5], "long_factor": [2.5] * 5,
            "original_max_position_embeddings": 16,
             "attention_factor": 1.25},
            LongRope((1.0, 2.0, 3.0, 4.0, 5.0), (2.5,) * 5, 16, 1.25),
        ),
        (None, None),
    ],
)  # fmt: skip
def test_old_and_new_spellings_of_scaling_agree(
    scaling: dict[str, Any] | None, expected: object
) -> None:
    before = old(rope_theta=5e5, rope_scaling=scaling)
    new = {**(scaling or {"rope_type": "default"}), "rope_theta": 5e5}
    after = old(rope_parameters=new)
    assert before == after == Rope(10, 5e5, scaling=expected)  # type: ignore[arg-type]


def test_of_two_spellings_the_old_one_counts_as_in_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    both = {
        "rope_scaling": {"type": "linear", "factor": 3.0},
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 97.0},
    }
    theirs = transformers.LlamaConfig(**LLAMA, **both).rope_parameters
    ours = old(**both)
    assert (
        (ours.theta, ours.scaling)
        == (theirs["rope_theta"], Linear(theirs["factor"]))
        == (10000.0, Linear(3.0))
    )
    assert (
        old(**{**both, "rope_scaling": None}).scaling
        == old(**{**both, "rope_scaling": {}}).scaling
        == Linear(2.0)
    )


def test_a_share_of_each_head_is_rotated() -> None:
    assert old(partial_rotary_factor=0.4).dims == 10
    phi = {**LAYER_NORM, "num_hidden_layers": 1, "hidden_size": 60}
    assert blocks_of(spec_of("phi", **phi, partial_rotary_factor=0.4))[0].position.dims == 4
    inside = {"rope_type": "default", "partial_rotary_factor": 0.8}
    assert blocks_of(spec_of("phi", **phi, rope_parameters=inside))[0].position.dims == 8
    assert blocks_of(spec_of("gpt_neox", vocab_size=61, hidden_size=64, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=4,
                             rotary_pct=0.5, rotary_emb_base=1000))[0].position == Rope(16, 1000.0)  # fmt: skip


def test_old_configs_of_layer_kinds() -> None:
    modern = {
        key: value
        for key, value in CASES["modernbert"].config.items()
        if key not in ("rope_parameters", "layer_types")
    }
    found = blocks_of(
        spec_of(
            "modernbert",
            **modern,
            global_attn_every_n_layers=2,
            global_rope_theta=160000,
            local_rope_theta=10000,
        )
    )
    assert [one.position.theta for one in found] == [160000, 10000, 160000, 10000]
    assert [isinstance(one.mask, Window) for one in found] == [False, True, False, True]
    gemma = {
        **LLAMA,
        "rope_local_base_freq": 10000.0,
        "rope_theta": 1e6,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    found = blocks_of(
        spec_of(
            "gemma3_text",
            **gemma,
            sliding_window=5,
            sliding_window_pattern=2,
            query_pre_attn_scalar=7,
        )
    )
    assert [one.position for one in found] == [
        Rope(10, 10000.0),
        Rope(10, 1e6, scaling=Linear(8.0)),
        Rope(10, 10000.0),
    ]
    assert [one.mask for one in found] == [Window(4, 0), Causal(), Window(4, 0)]


def test_windows_that_are_switched_off_or_missing() -> None:
    assert blocks_of(spec_of("mistral", **LLAMA))[0].mask == Window(4095, 0)
    assert blocks_of(spec_of("mistral", **LLAMA, sliding_window=None))[0].mask == Causal()
    assert blocks_of(spec_of("qwen2", **LLAMA, sliding_window=5))[2].mask == Causal()
    masks = [
        one.mask
        for one in blocks_of(
            spec_of(
                "qwen2", **LLAMA, sliding_window=5, use_sliding_window=True, max_window_layers=1
            )
        )
    ]
    assert masks == [Causal(), Window(4, 0), Window(4, 0)]


def test_configs_of_models_on_the_hub() -> None:
    """As they stand in the files of popular models, keys in their old spellings."""
    for entry in json.loads(
        (Path(__file__).parent.parent / "fixtures" / "hub_configs.json").read_text()
    ):
        spec = spec_of(**entry["config"])
        first = spec.blocks[0].attention
        assert [len(spec.blocks), first.heads, first.kv_heads, first.head_dim] == entry["sizes"], (
            entry["config"]["model_type"]
        )


def test_keys_that_checkpoints_carry_along_are_no_news() -> None:
    """As in the config.json of SmolLM2, Qwen2.5 and the OPUS-MT models."""
    usual = {
        "is_llama_config": True,
        "rope_interleaved": False,
        "use_mrope": False,
        "_num_labels": 3,
    }
    assert settle(Config(usual, "config.json"), {}) == ()
    for key in ("rope_interleaved", "use_mrope"):
        with pytest.raises(UnsupportedError, match=key):
            settle(Config({key: True}, "config.json"), {})


@pytest.mark.parametrize(
    "values", [{"n_group": 4}, {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 4}]
)
def test_groups_that_experts_do_not_fill(values: dict[str, Any]) -> None:
    usual = CASES["deepseek_v3"].config  # 6 experts
    with pytest.raises(InputError, match="of 6 experts chosen, from"):
        spec_of("deepseek_v3", **{**usual, **values})
