"""Families without a file here, through transformers: the same numbers as its own attention gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tiny_checkpoints import CASES, LLAMA, PLAIN, Case, make

import attncli
from attncli.documents.header import attention_part, projection_formulas
from attncli.errors import InputError, UnsupportedError
from attncli.features.explain.compute import derivation_document
from attncli.features.explain.document import Projections, Scores
from attncli.features.heads.compute import HeadsRequest
from attncli.features.heads.compute import heads as compute_heads
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.tokenize import IdsOnly
from attncli.mechanism.mask import Causal, Everywhere, Window
from attncli.mechanism.spec import Spec
from attncli.models import load
from attncli.models.transformers_engine import ForeignModel, load_foreign
from attncli.models.transformers_model import (
    Call,
    Passages,
    _answered_attention,
    _in_place_of_attention,
    projection_roles,
)
from attncli.models.transformers_shapes import describe_foreign
from attncli.models.verify import reference

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)

HYBRID = {
    **{key: value for key, value in PLAIN.items() if key != "rms_norm_eps"},
    "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 97.0,
}  # fmt: skip
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
GATED = {
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
FOREIGN = {
    "arcee": Case("arcee", {**PLAIN, "hidden_act": "relu2"}),
    "helium": Case("helium", {**LLAMA, "hidden_size": 60}),
    "albert": Case(
        "albert",
        {"vocab_size": 61, "embedding_size": 14, "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 3,
         "intermediate_size": 37, "max_position_embeddings": 29},
    ),
    "gpt_oss": Case(
        "gpt_oss",
        {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
         "rope_parameters": {"rope_type": "default", "rope_theta": 97.0}},
    ),
    # a text class that inherits the modalities of the whole model that it is a part of
    "minimax_m3": Case(
        "minimax_m3_vl_text",
        {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 16, "dense_intermediate_size": 16, "num_hidden_layers": 2,
         "shared_intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "num_local_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0},
    ),
}  # fmt: skip
HYBRIDS: dict[str, tuple[Case, list[int], str]] = {
    "qwen3_next": (
        Case("qwen3_next", {**HYBRID, **GATED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                            "shared_expert_intermediate_size": 16}),
        [3], "layers 0, 1, 2 (gated delta net)",
    ),
    "qwen3_5_text": (Case("qwen3_5_text", {**HYBRID, **GATED}), [3], "layers 0, 1, 2 (gated delta net)"),
    "jamba": (
        Case("jamba", {**HYBRID, "num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 2, "attn_layer_offset": 1,
                       "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4,
                       "use_mamba_kernels": False}),
        [1, 3], "layers 0, 2 (mamba mixer)",
    ),
    "lfm2": (
        Case("lfm2", {**HYBRID, "layer_types": ["conv", "full_attention", "conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
        [1, 3], "layers 0, 2 (short conv)",
    ),
    "granitemoehybrid": (
        Case("granitemoehybrid", {**HYBRID, **MAMBA, "layer_types": ["mamba", "attention", "mamba", "attention"],
                                  "num_local_experts": 2, "num_experts_per_tok": 1, "shared_intermediate_size": 16}),
        [1, 3], "layers 0, 2 (mamba layer)",
    ),
    "falcon_h1": (
        Case("falcon_h1", {**HYBRID, "head_dim": 8, "mamba_d_ssm": 32, **MAMBA, "mamba_n_heads": 4}), [0, 1, 2, 3], "",
    ),
    "bamba": (Case("bamba", {**HYBRID, **MAMBA, "attn_layer_indices": [1, 3]}), [1, 3], "layers 0, 2 (bamba mixer)"),
    "nemotron_h": (
        Case("nemotron_h", {**{key: value for key, value in HYBRID.items() if key != "num_hidden_layers"}, "head_dim": 8,
                            "layers_block_type": ["mamba", "attention", "mlp", "attention"], "mamba_num_heads": 4,
                            "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1}),
        [1, 3], "layer 0 (mamba2 mixer)",
    ),
}  # fmt: skip
NATIVE = (
    *(
        "bert",
        "distilbert",
        "modernbert",
        "gpt2",
        "gpt_neox in sequence",
        "opt post-norm",
        "llama dynamic",
        "qwen3",
        "gemma2",
    ),
    *("gemma3_text", "phi", "cohere", "smollm3", "olmo2", "t5", "mt5", "bart", "marian"),
)


def engine(folder: Path) -> ForeignModel:
    """A checkpoint through the engine, whether or not its family runs natively."""
    family = json.loads((folder / "config.json").read_text())["model_type"]
    found = load_foreign(
        Checkpoint.open(folder), family, family, IdsOnly(""), device=None, dtype="float32"
    )
    assert isinstance(found, ForeignModel)
    return found


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(
        lambda name: make(
            {**CASES, **FOREIGN, **{one: case for one, (case, *_) in HYBRIDS.items()}}[name],
            tmp_path_factory.mktemp("checkpoint"),
        )
    )


@pytest.mark.parametrize("name", FOREIGN)
def test_as_transformers_computes_it(name: str, folder_of: Callable) -> None:
    folder = folder_of(name)
    model = engine(folder)
    assert model.compute_backend(len(IDS)) is model.backend
    assert "run by transformers" in model.warnings[0]
    (side,) = reference(folder, IDS, dtype="float32")
    traces = list(model.trace(model.tokenizer.ids_to_tokens(IDS)))
    assert len(traces) == len(side.weights)
    for trace, weights, before, after in zip(
        traces, side.weights, side.hidden, side.hidden[1:], strict=False
    ):
        found = trace.stages["weights"].numpy()
        assert np.abs(found - weights).max() < 1e-5
        assert np.abs(trace.before.numpy() - before).max() < 1e-4
        if (
            trace.layer < len(traces) - 1 or name == "albert"
        ):  # the reference's last is after the final norm
            assert np.abs(trace.after.numpy() - after).max() < 1e-3
    assert max(float(weights.max()) for weights in side.weights) > 0.5
    if name == "gpt_oss":
        assert found.sum(-1).mean() < 0.99  # its sinks take their share


def apart(ours: Any, theirs: Any) -> float:
    """The largest |difference|, relative to the largest number."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.many
@pytest.mark.parametrize("name", NATIVE)
def test_the_same_numbers_as_the_native_run(name: str, folder_of: Callable) -> None:
    """Every stage, `out` after the output projection, what enters and leaves each layer, the last
    before the final norm; the scheme of positions; both sides of an encoder-decoder."""
    native, foreign = attncli.load(folder_of(name), backend="torch"), engine(folder_of(name))
    tokens = native.tokenizer.ids_to_tokens(IDS)
    sides = [(native, foreign)]
    if native.spec.decoder is not None:
        sides.append((native.decoder(tokens), foreign.decoder(tokens)))
        assert sides[1][1].encode is not None
    for one, other in sides:
        for ours, theirs in zip(one.trace(tokens), other.trace(tokens), strict=True):
            for stage in ("k", "v", "weights", "mixed", "concat", "out"):
                assert apart(theirs.stages[stage], ours.stages[stage]) < 1e-4, stage
            assert apart(theirs.before, ours.before) < 1e-4
            assert apart(theirs.after, ours.after) < 1e-4
            if ours.cross is not None:
                for stage in ("weights", "out"):
                    assert apart(theirs.cross.stages[stage], ours.cross.stages[stage]) < 1e-4
        told = [attention_part(model, model.backend).position for model in (one, other)]
        assert told[0].replace("halves", "sinusoidal") == told[1]


@pytest.mark.many
@pytest.mark.parametrize("name", HYBRIDS)
def test_layers_that_do_not_attend_keep_their_number_and_are_named(
    name: str, folder_of: Callable
) -> None:
    import transformers

    _, attending, told = HYBRIDS[name]
    model = engine(folder_of(name))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    traces = list(model.trace(tokens))
    assert [trace.layer for trace in traces] == attending == model.spec.attending()
    assert len(model.spec.blocks) == 4
    assert (f"{told}: no attention to show" in model.warnings) == bool(told)
    config = transformers.AutoConfig.from_pretrained(folder_of(name))
    theirs = transformers.MODEL_MAPPING[type(config)].from_pretrained(
        folder_of(name),
        attn_implementation="eager",
        experts_implementation="eager",
        dtype=torch.float32,
    )
    with torch.no_grad():
        out = theirs.eval()(
            input_ids=torch.tensor([IDS]),
            output_attentions=True,
            output_hidden_states=True,
            use_cache=False,
        )
    weights = [one for one in out.attentions if one is not None]
    for trace, expected in zip(traces, weights, strict=True):
        assert apart(trace.stages["weights"], expected[0]) < 1e-4
        assert apart(trace.before, out.hidden_states[trace.layer][0]) < 1e-4
    for layer in {0, 1, 2, 3} - set(attending):
        with pytest.raises(InputError, match=f"layer {layer} attends to nothing: it is"):
            next(iter(model.trace(tokens, layers=[layer])))
    position = attention_part(model, model.backend).position
    assert position == (
        "none" if name in ("jamba", "granitemoehybrid", "nemotron_h") else "rope:97"
    )
    heads = compute_heads(model, "", request=HeadsRequest(), tokens=tokens)
    assert {head.layer for head in heads.heads} == set(attending)


def test_a_what_if_reaches_the_model(folder_of: Callable) -> None:
    model = engine(folder_of("olmo"))
    assert [block.attention.mask for block in model.spec.blocks] == [Causal()] * 3
    tokens = model.tokenizer.ids_to_tokens(IDS)
    blocks = tuple(
        replace(block, attention=replace(block.attention, mask=Window(1, 0), scale=0.1))
        for block in model.spec.blocks
    )
    other = replace(model, spec=replace(model.spec, blocks=blocks))
    (plain,), (changed,) = (list(one.trace(tokens, layers=[2])) for one in (model, other))
    assert (changed.stages["weights"][0] > 0).sum(-1).tolist() == [1] + [2] * (len(IDS) - 1)
    assert not np.allclose(
        plain.stages["q"].numpy(), changed.stages["q"].numpy()
    )  # earlier layers changed, too


def test_row_blocks_and_heads(folder_of: Callable) -> None:
    model = engine(folder_of("starcoder2"))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    whole = list(model.trace(tokens))
    seen = []
    parts = list(
        model.trace(
            tokens,
            rows=4,
            heads=[1, 5],
            on_block=lambda layer, kind, block: seen.append((layer, kind)),
        )
    )
    assert list(dict.fromkeys(seen)) == [(layer, "self") for layer in range(3)]
    assert len(seen) > 2 * 3  # more than one block of each kv head
    for one, other in zip(whole, parts, strict=True):
        assert np.allclose(
            one.stages["mixed"][[1, 5]].numpy(), other.stages["mixed"].numpy(), atol=1e-5
        )


def test_an_encoder_has_no_mask(folder_of: Callable) -> None:
    model = engine(folder_of("albert"))
    assert model.spec.blocks[0].attention.mask == Everywhere()
    with pytest.raises(UnsupportedError, match="keeps their weights to itself"):
        model.store.layer(model.backend, 0)
    with pytest.raises(UnsupportedError, match="kept keys"):
        next(iter(model.trace(model.tokenizer.ids_to_tokens(IDS), past={})))


GPT = {"vocab_size": 61, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 29}
BY_RELEASE = (
    Case("codegen", {**GPT, "rotary_dim": 6, "bos_token_id": 1, "eos_token_id": 2}),
    Case("ctrl", {**GPT, "dff": 37}),
    Case("openai-gpt", GPT),
    Case("mamba", {"vocab_size": 61, "hidden_size": 30, "num_hidden_layers": 1}),
)
"""Families that enter transformers' attention interface with some release, or never."""


@pytest.mark.parametrize("case", BY_RELEASE, ids=lambda case: case.model_type)
def test_the_engine_runs_what_the_installed_transformers_lends_it(
    case: Case, tmp_path: Path
) -> None:
    """Whose attention others may compute is asked of the library, not of a list."""
    import transformers

    folder = make(case, tmp_path)
    kind = transformers.MODEL_MAPPING[type(transformers.AutoConfig.from_pretrained(folder))]
    if not kind._supports_attention_backend:
        with pytest.raises(UnsupportedError, match=f"no attention of this '{case.model_type}'"):
            attncli.load(folder)
        return
    model = attncli.load(folder)
    (side,) = reference(folder, IDS, dtype="float32")
    traces = list(model.trace(model.tokenizer.ids_to_tokens(IDS)))
    assert len(traces) == len(side.weights) == 2
    for trace, weights in zip(traces, side.weights, strict=True):
        assert np.abs(trace.stages["weights"].numpy() - weights).max() < 1e-5
        assert float(weights.max()) > 0.5


def test_attention_twice_in_a_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="2 times in one layer"):
        attncli.load(make(Case("diffllama", PLAIN), tmp_path))


def test_attention_with_something_of_its_own_is_refused() -> None:
    def answer(call: Call) -> torch.Tensor:
        return call.q

    one = torch.ones((1, 2, 3, 4))
    with _in_place_of_attention(answer, Passages("odd", 3)):
        assert _answered_attention(None, one, one, one, None, position_ids=one, sliding_window=5)[
            0
        ].shape == (
            1,
            3,
            2,
            4,
        )
        with pytest.raises(UnsupportedError, match="'depths'"):
            _answered_attention(None, one, one, one, None, depths=one)


ONE = torch.ones((1, 2, 3, 4))


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ((ONE[0], ONE, ONE), "queries of shape [2, 3, 4]"),
        ((ONE[:, :, :2], ONE, ONE), "queries of shape [1, 2, 2, 4]"),
        ((ONE.repeat(2, 1, 1, 1), ONE, ONE), "queries of shape [2, 2, 3, 4]"),
        ((ONE, ONE.repeat(1, 1, 2, 1), ONE), "keys of shape [1, 2, 6, 4]"),
        ((ONE, ONE.repeat(1, 2, 1, 1), ONE), "keys of shape [1, 4, 3, 4]"),
        ((ONE, ONE[..., :3], ONE), "keys of shape [1, 2, 3, 3]"),
        ((ONE, ONE, ONE[:, :, :2]), "values of shape [1, 2, 2, 4]"),
        ((ONE, ONE, ONE, ONE[0, 0]), "a mask of shape [3, 4]"),
        ((ONE, ONE, ONE, ONE[:, :, :, :2]), "a mask of shape [1, 2, 3, 2]"),
    ],
)
def test_attention_of_an_unexpected_shape_is_refused_by_it(
    tensors: tuple[torch.Tensor, ...], said: str
) -> None:
    def answer(call: Call) -> torch.Tensor:
        return call.q

    with (
        _in_place_of_attention(answer, Passages("odd", 3)),
        pytest.raises(UnsupportedError) as error,
    ):
        _answered_attention(None, *(*tensors, None)[:4])
    assert f"of this 'odd' model hands attention {said}" in str(error.value)


def test_a_family_whose_attention_has_other_shapes_is_refused(
    folder_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.arcee import modeling_arcee as arcee

    rotate = arcee.apply_rotary_pos_emb
    attend = arcee.ArceeDecoderLayer.forward

    def twice(q: torch.Tensor, k: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        queries, keys = rotate(q, k, *rest)
        return queries, keys.repeat(1, 1, 2, 1)

    def longer(self: Any, *args: Any, **extras: Any) -> torch.Tensor:
        repeats = 2 if self.self_attn.layer_idx == PLAIN["num_hidden_layers"] - 1 else 1
        return attend(self, *args, **extras).repeat(1, repeats, 1)

    with monkeypatch.context() as changes:
        changes.setattr(arcee, "apply_rotary_pos_emb", twice)
        with pytest.raises(UnsupportedError, match=r"keys of shape \[1, \d+, 14, \d+\]"):
            engine(folder_of("arcee"))
    with monkeypatch.context() as changes:
        changes.setattr(arcee.ArceeDecoderLayer, "forward", longer)
        with pytest.raises(
            UnsupportedError, match="between layers this 'arcee' model has 14 vectors"
        ):
            engine(folder_of("arcee"))


DEEPSEEK_V4 = {
    "vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 1,
    "head_dim": 16, "qk_rope_head_dim": 8, "q_lora_rank": 16, "o_lora_rank": 8, "o_groups": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "index_n_heads": 4, "index_head_dim": 8, "sliding_window": 8,
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_deepseek_v4_as_the_library_writes_it_and_as_it_is_published(
    prefix: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    # one head of sinks, a projection in two steps by groups, and a norm named as those of layers
    model = _deepseek_v4(tmp_path, ["heavily_compressed_attention", "sliding_attention"])
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {prefix + name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    outputs: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(lambda *call: outputs.append(call[-1]))
    with torch.no_grad():
        model(torch.tensor([IDS]), use_cache=False)
    own = engine(tmp_path)
    for trace, (out, weights) in zip(
        own.trace(own.tokenizer.ids_to_tokens(IDS)), outputs, strict=True
    ):
        assert np.allclose(trace.stages["out"], out[0], atol=1e-5)
        assert float(out.abs().max()) > 1e-3
        assert np.allclose(trace.stages["weights"], weights[0], atol=1e-5)


def test_keys_that_stand_for_several_tokens_are_refused_by_name(tmp_path: Path) -> None:
    _deepseek_v4(tmp_path, ["sliding_attention", "compressed_sparse_attention"])
    with pytest.raises(UnsupportedError, match="layer 1 of this 'deepseek_v4' model") as error:
        engine(tmp_path)
    assert "one key for each of the" in str(error.value.expected)


def _deepseek_v4(folder: Path, kinds: list[str]) -> Any:
    """A small random model of DeepSeek V4's, saved by transformers, with these kinds of layers."""
    from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

    torch.manual_seed(0)
    config = DeepseekV4Config(**DEEPSEEK_V4, layer_types=kinds, attn_implementation="eager")
    model = DeepseekV4ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    model.save_pretrained(folder)
    return model


def test_weights_of_another_family_are_not_filled_up(folder_of: Callable, tmp_path: Path) -> None:
    shutil.copytree(folder_of("mistral"), tmp_path / "posing")
    told = json.loads((tmp_path / "posing" / "config.json").read_text())
    (tmp_path / "posing" / "config.json").write_text(json.dumps({**told, "model_type": "apertus"}))
    with pytest.raises(InputError, match="is missing"):
        attncli.load(tmp_path / "posing")


def test_a_family_that_nobody_knows(folder_of: Callable, tmp_path: Path) -> None:
    shutil.copytree(folder_of("mistral"), tmp_path / "unknown")
    (tmp_path / "unknown" / "config.json").write_text(json.dumps({"model_type": "nobody"}))
    with pytest.raises(UnsupportedError, match="'nobody'") as error:
        attncli.load(tmp_path / "unknown")
    assert len(error.value.what) < 250
    assert "\n" not in error.value.what
    assert "attn models list" in error.value.expected


def test_options_that_transformers_has_no_use_for(folder_of: Callable) -> None:
    with pytest.raises(UnsupportedError, match="numpy"):
        attncli.load(folder_of("arcee"), backend="numpy")
    with pytest.raises(UnsupportedError, match="to ignore"):
        attncli.load(folder_of("arcee"), ignore=("mlp_bias",))


def test_without_transformers_the_families_are_listed(
    folder_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    monkeypatch.setattr(load.library, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="'arcee'") as error:
        attncli.load(folder_of("arcee"))
    assert "attn models list" in error.value.expected
    assert "'transformers>=" in error.value.hint
    with Checkpoint.open(folder_of("arcee")) as checkpoint:
        assert load.foreign_family(checkpoint) is None


@pytest.mark.parametrize("name", ["arcee", "gpt_oss", "jamba", "albert"])
def test_a_derivation_from_what_each_attention_was_given(name: str, folder_of: Callable) -> None:
    """`attn explain`: the steps from x on, agreeing with the run; hidden keys are told as hidden."""
    model = engine(folder_of(name))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    layer = model.spec.attending()[0]
    if name == "gpt_oss":
        with pytest.raises(UnsupportedError, match="keeps their weights to itself"):
            derivation_document(model, "", tokens, layer=layer, head=0, query=5)
        return
    found = derivation_document(model, "", tokens, layer=layer, head=0, query=5)
    assert found.agreement < 1e-4
    (projections,) = (step for step in found.steps if isinstance(step, Projections))
    (scores,) = (step for step in found.steps if isinstance(step, Scores))
    assert list(scores.visible) == [place <= 5 or name == "albert" for place in range(len(IDS))]
    assert scores.bias is None
    assert len(projections.x) == model.spec.d_model


@pytest.mark.parametrize(
    ("kind", "told"),
    [("vit", "image"), ("dinov2", "image"), ("deit", "image"), ("clip", "image and text"), ("siglip", "image and text"),
     ("wav2vec2", "audio")],
)  # fmt: skip
def test_models_that_read_no_text_are_told_so(
    kind: str, told: str, folder_of: Callable, tmp_path: Path
) -> None:
    shutil.copytree(folder_of("arcee"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(UnsupportedError, match=f"reads {told}, not text alone") as error:
        attncli.load(tmp_path)
    assert "llama" not in error.value.expected


def test_a_model_without_a_table_of_tokens_is_told_so(tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "num_hash_buckets": 8,
    }
    with pytest.raises(UnsupportedError, match="'canine' has no table of tokens") as error:
        attncli.load(make(Case("canine", sizes), tmp_path))
    assert "llama" not in error.value.expected


def shapes(spec: Spec) -> list[object]:
    """Of every layer what a short run and a config must agree on."""
    return [
        (block.instead, a.heads, a.kv_heads, a.head_dim, a.v_dim, a.softcap, a.sinks)
        for block in spec.blocks
        for a in (block.attention, *([] if block.cross is None else [block.cross]))
    ]


@pytest.mark.many
@pytest.mark.parametrize("name", [*FOREIGN, *HYBRIDS, "gemma2", "bert", "t5", "bart"])
def test_a_config_says_of_layers_what_a_run_of_the_weights_shows(
    name: str,
    folder_of: Callable[[str], Path],
) -> None:
    folder = folder_of(name)
    ran = engine(folder).spec
    family = json.loads((folder / "config.json").read_text())["model_type"]
    described = describe_foreign(Checkpoint.describe(folder), family)
    assert shapes(described.spec) == shapes(ran)
    assert (described.spec.d_model, described.spec.vocabulary) == (ran.d_model, ran.vocabulary)
    if ran.decoder is not None:
        assert described.spec.decoder is not None
        assert shapes(described.spec.decoder) == shapes(ran.decoder)


BIASED = {
    "arcee": set(),
    "albert": {"q", "k", "v", "out"},
    "gpt_oss": {"q", "k", "v", "out"},
    "bart": {"q", "k", "v", "out"},
    "deepseek_v3": {"q", "k", "v", "out"},
}


@pytest.mark.parametrize("name", BIASED)
def test_the_biases_of_the_library_s_projections_are_named(
    name: str, folder_of: Callable[[str], Path]
) -> None:
    model = engine(folder_of(name))
    formulas = projection_formulas(model, 0)
    assert {step for step, formula in formulas.items() if "+ b_" in formula} == BIASED[name]
    if name == "bart":
        assert set(projection_formulas(model, 0, "cross")) == {"q", "k", "v", "out"}
    if name == "deepseek_v3":
        assert formulas["q"] == "Q = norm(X·W_DQ + b_DQ)·W_UQ"
        assert formulas == projection_formulas(attncli.load(str(folder_of(name))), 0)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("q_proj", "q"), ("query", "q"), ("Wk", "k"), ("v_lin", "v"), ("value", "v"),
        ("c_attn", "qkv"), ("qkv_proj", "qkv"), ("query_key_value", "qkv"), ("Wqkv", "qkv"),
        ("W_pack", "qkv"), ("in_proj", "qkv"), ("kv_proj", "kv"), ("key_value", "kv"), ("k", "k"),
        ("o_proj", ""), ("g_proj", ""), ("dense", ""), ("wq_b_norm", ""),
    ],
)  # fmt: skip
def test_what_a_projection_makes_by_its_name(name: str, made: str) -> None:
    assert "".join(projection_roles(name)) == made


def test_the_steps_of_latent_attention_by_their_names() -> None:
    names = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    assert [projection_roles(name) for name in names] == [
        ("q_down",),
        ("q",),
        ("kv_down",),
        ("kv",),
    ]
