"""Configs and files as other versions of the library, and other people, wrote them: the model that
transformers makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_checkpoints import CASES, LLAMA, Case, make
from tiny_sizes import BART, T5

import attncli
from attncli.models.verify import ReferenceSide, reference, verify

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
TARGET = (2, 17, 33, 8, 40, 6, 19)
ABSENT = "absent"
Tensors = dict[str, np.ndarray]
THETA = {"rope_type": "default", "rope_theta": 97.0}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4],
    "long_factor": [2.0, 2.3, 2.9, 3.1, 4.7],
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
TYPES = ["sliding_attention", "full_attention", "full_attention"]


def own_tables(tensors: Tensors) -> Tensors:
    """Tables of tokens of their own for both sides, unlike the shared one."""
    (shared,) = (name for name in tensors if name.endswith("shared.weight"))
    sides = {
        shared.replace("shared", f"{side}.embed_tokens"): tensors[shared] * by
        for side, by in (("encoder", 1.7), ("decoder", 0.6))
    }
    return {**tensors, **sides}


@dataclass(frozen=True)
class Written:
    """A checkpoint as it was written. config, tensors: what is changed of what this library's
    transformers saves.
    default: whether the change leaves the same model."""

    case: Case
    config: Mapping[str, Any] = field(default_factory=dict)
    tensors: Callable[[Tensors], Tensors] | None = None
    two_sided: bool = False
    default: bool = False


def deeper(name: str, layers: int) -> Case:
    """A case with another number of layers, and what it says of each layer left out."""
    case = CASES[name]
    return Case(
        case.model_type,
        {key: value for key, value in case.config.items() if key != "layer_types"}
        | {"num_hidden_layers": layers},
        case.saved_by,
    )


WRITTEN = {
    # what a family means by silence
    "olmo2 without eps": Written(CASES["olmo2"], {"rms_norm_eps": ABSENT}),
    "phi3 without eps": Written(CASES["phi3"], {"rms_norm_eps": ABSENT}),
    "mixtral without eps": Written(CASES["mixtral"], {"rms_norm_eps": ABSENT}),
    "cohere without theta": Written(CASES["cohere"], {"rope_parameters": ABSENT}),
    # scalings of the rotary embedding
    "original outside, llama3": Written(
        Case("llama", LLAMA), {"rope_parameters": {**LLAMA3, "rope_theta": 97.0}, "original_max_position_embeddings": 8}
    ),
    "original outside and inside": Written(
        Case("llama", LLAMA), {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 19},
        "original_max_position_embeddings": 8}
    ),
    "original outside, yarn": Written(
        Case("llama", LLAMA), {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 40}
    ),
    "original outside, longrope": Written(Case("llama", LLAMA), {"rope_scaling": LONG,
    "original_max_position_embeddings": 8}),
    "both spellings by type": Written(CASES["gemma3_text"], {"rope_scaling": {"factor": 3.0}}),
    "one type alone": Written(CASES["gemma3_text"], {"rope_parameters": {"sliding_attention": {**THETA,
    "rope_theta": 11.0}}}),
    # keys of which another one counts
    "gemma2's activation": Written(CASES["gemma2"], {"hidden_act": "silu", "hidden_activation": "gelu"}),
    "gemma3's activation": Written(CASES["gemma3_text"], {"hidden_act": "silu", "hidden_activation": "relu"}),
    "t5's activation": Written(CASES["t5"], {"dense_act_fn": "silu"}, two_sided=True),
    "windows without the switch": Written(
        Case("smollm3", {**LLAMA, "rope_parameters": THETA, "no_rope_layers": [1, 0, 1]}), {"layer_types": TYPES,
        "sliding_window": 5}
    ),
    # layers whose kinds are left to the config's default
    "gemma2 without layer_types": Written(deeper("gemma2", 5), {"layer_types": ABSENT}, default=True),
    "gemma3 without layer_types": Written(deeper("embedding gemma", 7), {"layer_types": ABSENT,
    "_sliding_window_pattern": ABSENT}, default=True),
    "modernbert without layer_types": Written(deeper("modernbert", 7), {"layer_types": ABSENT}, default=True),
    "smollm3 without layers' kinds": Written(
        Case("smollm3", {**LLAMA, "rope_parameters": THETA, "num_hidden_layers": 5}), {"layer_types": ABSENT,
        "no_rope_layers": ABSENT}, default=True
    ),
    "smollm3 with an interval": Written(
        Case("smollm3", {**LLAMA, "rope_parameters": THETA, "no_rope_layer_interval": 2}), {"layer_types": ABSENT,
        "no_rope_layers": ABSENT}, default=True
    ),
    "qwen2 without layer_types": Written(deeper("qwen2", 30), {"layer_types": ABSENT, "max_window_layers": ABSENT}),
    "qwen3 without layer_types": Written(
        Case("qwen3", {**LLAMA, "rope_parameters": THETA, "use_sliding_window": True, "sliding_window": 5,
        "max_window_layers": 2}),
        {"layer_types": ABSENT},
        default=True,
    ),
    "gpt_neo without attention_types": Written(
        Case("gpt_neo", {**{key: value for key, value in CASES["gpt_neo"].config.items() if key != "attention_types"},
        "num_layers": 24}),
        {"attention_types": ABSENT, "attention_layers": ABSENT},
        default=True,
    ),
    # parts that are there or not
    "opt without biases": Written(Case("opt", {**CASES["opt"].config, "enable_bias": False})),
    "opt without norms' weights": Written(Case("opt", {**CASES["opt"].config, "layer_norm_elementwise_affine": False})),
    "bert as a decoder": Written(CASES["bert"], {"is_decoder": True}),
    "roberta as a decoder": Written(CASES["roberta"], {"is_decoder": True}),
    "electra as a decoder": Written(CASES["electra"], {"is_decoder": True}),
    "t5's encoder": Written(Case("t5", T5, "AutoModelForTextEncoding")),
    "t5's encoder, said by its class": Written(Case("t5", T5, "AutoModelForTextEncoding"), {
    "is_encoder_decoder": True}),
    "t5's encoder, for labels": Written(Case("t5", T5, "AutoModelForTokenClassification")),
    # tables of tokens
    "bart's own tables": Written(CASES["bart"], tensors=own_tables, two_sided=True),
    "bart's own tables, not tied": Written(Case("bart", BART), {"tie_word_embeddings": False}, own_tables,
    two_sided=True),
    "t5's own tables": Written(CASES["t5"], tensors=own_tables, two_sided=True),
    "marian's two vocabularies": Written(
        Case("marian", {**CASES["marian"].config, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 67,
                        "tie_word_embeddings": False}),
        two_sided=True,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    found: dict[str, Path] = {}

    def one(case: Case) -> Path:
        key = repr(case)
        if key not in found:
            found[key] = make(case, tmp_path_factory.mktemp("checkpoint"))
        return found[key]

    return one


@pytest.fixture(scope="module")
def folder_of(
    saved: Callable[[Case], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    @cache
    def changed(name: str) -> Path:
        written, folder = WRITTEN[name], tmp_path_factory.mktemp("written")
        before = saved(written.case)
        config = {**json.loads((before / "config.json").read_text()), **written.config}
        (folder / "config.json").write_text(
            json.dumps({key: value for key, value in config.items() if value != ABSENT})
        )
        tensors = load_file(before / "model.safetensors")
        save_file(
            written.tensors(tensors) if written.tensors else tensors,
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )
        return folder

    return changed


def ours(folder: Path, *, two_sided: bool) -> tuple[ReferenceSide, ...]:
    model = attncli.load(folder, backend="numpy", dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    sides = [(model, tokens)]
    if two_sided:
        sides.append((model.decoder(tokens), model.tokenizer.ids_to_tokens(TARGET)))
    found = []
    for side, text in sides:
        traces = list(side.trace(text))
        hidden = [
            traces[0].before,
            *(trace.after for trace in traces[:-1]),
            side.finish(traces[-1].after),
        ]
        cross = [trace.cross.stages["weights"] for trace in traces if trace.cross is not None]
        found.append(
            ReferenceSide(
                tuple(hidden), tuple(trace.stages["weights"] for trace in traces), tuple(cross)
            )
        )
    return tuple(found)


def apart(some: tuple[ReferenceSide, ...], others: tuple[ReferenceSide, ...]) -> float:
    """The largest |difference| of weights and vectors, relative to the largest number of each."""
    return max(
        float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
        for one, other in zip(some, others, strict=True)
        for kind in ("hidden", "weights", "cross")
        for a, b in zip(getattr(one, kind), getattr(other, kind), strict=True)
    )


@pytest.mark.many
@pytest.mark.parametrize("name", WRITTEN)
def test_the_model_that_transformers_makes_of_it(
    name: str, folder_of: Callable[[str], Path], saved: Callable[[Case], Path]
) -> None:
    written = WRITTEN[name]
    theirs = reference(folder_of(name), IDS, target=TARGET if written.two_sided else None)
    assert apart(ours(folder_of(name), two_sided=written.two_sided), theirs) < 1e-10
    if written.tensors or {*written.config} - {"is_encoder_decoder"}:  # what was changed bites
        before = apart(ours(saved(written.case), two_sided=written.two_sided), theirs)
        assert before < 1e-10 if written.default else before > 1e-6


def test_an_encoder_alone_can_be_verified(folder_of: Callable[[str], Path]) -> None:
    assert verify(folder_of("t5's encoder"), IDS).is_within_limits


def test_positions_beyond_what_bfloat16_can_count(tmp_path: Path) -> None:
    """Falcon's ALiBi is coarse: past 256 not every position is a number of its own."""
    folder = make(
        Case("falcon", {**CASES["falcon alibi"].config, "num_hidden_layers": 1}), tmp_path
    )
    ids = tuple(np.random.default_rng(3).integers(3, 61, 300).tolist())
    model = attncli.load(folder, backend="numpy", dtype="float64")
    (trace,) = model.trace(model.tokenizer.ids_to_tokens(ids))
    (side,) = reference(folder, ids)
    assert np.abs(trace.stages["weights"] - side.weights[0]).max() < 1e-10


def test_gpt2_reordered_is_the_same_mathematics(tmp_path: Path) -> None:
    """`reorder_and_upcast_attn` scales before the product, in float32 whatever the model's type."""
    folder = make(Case("gpt2", {**CASES["gpt2"].config, "reorder_and_upcast_attn": True}), tmp_path)
    assert apart(ours(folder, two_sided=False), reference(folder, IDS, dtype="float32")) < 1e-5
    assert attncli.load(folder).warnings == ()


def test_jambas_experts_are_counted_by_the_other_key_alone(tmp_path: Path) -> None:
    folder = make(CASES["jamba"], tmp_path)
    told = json.loads((folder / "config.json").read_text())
    count = told.pop("num_experts", None) or told.pop("num_local_experts")
    told.pop("num_local_experts", None)
    counts = []
    for key in ("num_experts", "num_local_experts"):
        (folder / "config.json").write_text(json.dumps({**told, key: count}))
        spec = attncli.load(folder, note=None).spec
        counts.append([getattr(block.mlp, "count", 1) for block in spec.blocks])
    assert counts[0] == counts[1]
    assert max(counts[0]) == count == 5
