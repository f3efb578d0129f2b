"""Configurations that nobody publishes, drawn for every family, against transformers, eagerly in
float64.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from odd_configs import Odd, drawn, make
from side_by_side import Pair, both_sides, side_by_side
from tiny_sizes import BART, BERT, DEBERTA, GEMMA, LED, MIXED, PLAIN, T5
from tiny_two_sided import TWO_SIDED

import attncli
from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.mechanism.attend import EVERY_STAGE
from attncli.mechanism.spec import Spec
from attncli.models.config import with_global_tokens
from attncli.models.families import MODEL_TYPES
from attncli.models.load import CheckpointStore
from attncli.models.model import Model
from attncli.models.verify import ReferenceSide, decoder_over_states, reference_model, run_reference

DRAWN = 20
"""Configurations of each family that are compared."""
REFUSED = 40
"""Configurations that may be refused meanwhile, each with its reason."""
READ = np.random.default_rng(2).standard_normal((9, 100))
"""What a decoder alone reads."""


@pytest.fixture
def single_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products of a few numbers wait for threads longer than they take
    yield
    torch.set_num_threads(threads)


def states(odd: Odd) -> np.ndarray | None:
    """What the decoder reads of an encoder that reads no text."""
    return READ[:, : odd.config["d_model"]] if odd.config["model_type"] == "whisper" else None


def expected(odd: Odd, folder: Path) -> tuple[ReferenceSide, ...]:
    """What transformers makes of it. Raises whatever the library raises for what it cannot run."""
    read = states(odd)
    with reference_model(folder, both=read is not None or odd.target is not None) as theirs:
        if read is not None:
            return (decoder_over_states(theirs, odd.ids, read),)
        return run_reference(theirs, odd.ids, odd.target, odd.everywhere)


def opened(odd: Odd, folder: Path, library: str = "numpy") -> Model:
    """What is here of it. Raises AttnError for what is refused."""
    model = attncli.load(folder, backend=library, dtype="float64")
    read = states(odd)
    model = model if read is None else model.decoder_over(read)
    return (
        replace(model, spec=with_global_tokens(model.spec, odd.everywhere))
        if odd.everywhere
        else model
    )


def compared(odd: Odd, folder: Path, library: str = "numpy") -> list[Pair] | AttnError | None:
    """Every array beside the reference's; the refusal, or None for what the library cannot make or
    run.
    """
    folder.mkdir()
    try:
        make(odd, folder)
        theirs = expected(odd, folder)
    except Exception:  # whatever the library raises
        return None
    try:
        model = opened(odd, folder, library)
    except AttnError as refusal:
        return refusal
    keep = EVERY_STAGE if odd.seed % 2 else ("weights",)
    return list(side_by_side(both_sides(model, odd.ids, odd.target, keep), theirs))


def warmer(spec: Spec) -> Spec:
    """The model with scores a hundredth larger."""
    blocks = tuple(
        replace(block, attention=replace(block.attention, scale=block.attention.scale * 1.01))
        for block in spec.blocks
    )
    return replace(spec, blocks=blocks)


def notices(odd: Odd, folder: Path) -> bool:
    """Whether the comparison notices scores that are a hundredth larger."""
    model = opened(odd, folder)
    spec = warmer(model.spec)
    turned = replace(
        model, spec=spec, store=CheckpointStore(spec, model.store.checkpoint, model.store.binding)
    )
    pairs = side_by_side(both_sides(turned, odd.ids, odd.target), expected(odd, folder))
    return max(pair.apart for pair in pairs) > 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("family", MODEL_TYPES)
def test_odd_configurations(family: str, tmp_path: Path, single_thread: None) -> None:
    """Equal to 1e-10 wherever the library runs it, or refused with a reason; and a model a
    hundredth off is noticed.
    """
    done, refused, noticed = 0, 0, False
    for seed in count():
        odd = drawn(family, seed)
        folder = tmp_path / str(seed)
        outcome = compared(odd, folder, ("numpy", "torch")[seed % 2])
        if isinstance(outcome, AttnError):
            assert isinstance(outcome, InputError | UnsupportedError), odd
            assert outcome.where, odd
            refused += 1
        elif outcome is not None:
            worst = max(outcome, key=lambda pair: pair.apart)
            assert worst.apart < 1e-10, (seed, worst.what, worst.apart, odd)
            noticed = noticed or (len(odd.ids) > 4 and notices(odd, folder))
            done += 1
        if done == DRAWN:
            break
        assert refused < REFUSED
        assert seed < 5 * DRAWN
    assert noticed


IDS = (7, 3, 3, 19, 11, 2, 5, 14, 9, 13, 2, 21, 17)
YARN = {
    "rope_type": "yarn",
    "rope_theta": 11.0,
    "factor": 4.0,
    "original_max_position_embeddings": 4,
}
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "marian, its table of sines rounded": ("bfloat16", {**BART, "model_type": "marian"}),
    "pegasus, its table of sines rounded": ("bfloat16", {**BART, "model_type": "pegasus"}),
    "olmo3, a key of yarn where it plays no part": (
        "float32",
        {
            **PLAIN,
            "model_type": "olmo3",
            "rope_parameters": {kind: {**YARN, "truncate": False} for kind in set(MIXED)},
        },
    ),
    "t5gemma with biases": (
        "float32",
        {"model_type": "t5gemma", "encoder": GEMMA, "decoder": {**GEMMA, "attention_bias": True}},
    ),
    "deberta-v2, a convolution in parts": (
        "float32",
        {
            **BERT,
            **DEBERTA,
            "model_type": "deberta-v2",
            "conv_kernel_size": 3,
            "conv_groups": 5,
            "pos_att_type": ["c2p"],
            "norm_rel_ebd": "layer_norm|none",
        },
    ),
    "led, global tokens and heads of four": (
        "float32",
        {
            **LED,
            "model_type": "led",
            "d_model": 24,
            "encoder_attention_heads": 6,
            "decoder_attention_heads": 6,
        },
    ),
}


@pytest.mark.many
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", NAMED)
def test_what_was_drawn_and_differed(name: str, library: str, tmp_path: Path) -> None:
    stored, config = NAMED[name]
    family = config["model_type"]
    target = IDS[:5] if family in TWO_SIDED else None
    outcome = compared(
        Odd(config, stored, 8, IDS, target, (0, 5) if family == "led" else ()),
        tmp_path / "it",
        library,
    )
    assert isinstance(outcome, list), outcome
    assert max(pair.apart for pair in outcome) < 1e-10


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({**T5, "model_type": "t5", "relative_attention_max_distance": 5}, "a whole number from 6"),
        ({**BERT, "model_type": "deberta-v2", "norm_rel_ebd": "layer_norm"}, "nothing to norm"),
        (
            {
                **BERT,
                **DEBERTA,
                "model_type": "deberta-v2",
                "conv_kernel_size": 3,
                "conv_groups": 7,
            },
            "divides 30",
        ),
    ],
)
def test_what_makes_no_model_is_refused(
    config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(AttnError) as refusal:
        attncli.load(tmp_path)
    assert reason in refusal.value.expected
