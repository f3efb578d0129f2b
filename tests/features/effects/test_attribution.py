"""Parts of a logit sum to it for every family that has a linear head, and each is what an oracle
says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from induction_model import model as induction_model
from msgspec.structs import replace
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import UnsupportedError
from attncli.features.effects import logit_parts
from attncli.features.effects.logit_parts import LogitTerm, apply_frozen_norm, attribute
from attncli.features.effects.sweep import SweepText
from attncli.mechanism.spec import Norm

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


def text_of(folder: Path, library: str = "numpy") -> SweepText:
    model = attncli.load(folder, backend=library, dtype="float64")
    if model.spec.decoder is not None:
        model = model.decoder(model.tokenizer.ids_to_tokens(IDS))
    elif any(block.cross is not None for block in model.spec.blocks):
        model = model.decoder_over(np.random.default_rng(2).standard_normal((9, 30)))
    return SweepText(model, model.tokenizer.ids_to_tokens(IDS), model.backend)


def own_logits(text: SweepText) -> np.ndarray:
    """The model's own logits before a soft cap, [token, vocabulary], by the run that every command
    has.
    """
    model = text.model
    if model.spec.head.softcap is not None:
        model = replace(
            model, spec=replace(model.spec, head=replace(model.spec.head, softcap=None))
        )
    (last,) = model.trace(text.tokens, layers=[len(model.spec.blocks) - 1], idle=True)
    return model.backend.numpy(model.logits(last.after))


def has_head(text: SweepText) -> bool:
    try:
        text.model.logits(text.model.store.embed(text.backend, text.tokens))
    except UnsupportedError:
        return False
    return True


@pytest.mark.many
@pytest.mark.parametrize("name", CASES)
def test_the_parts_sum_to_the_logit(name: str, folder_of: Callable) -> None:
    text = text_of(folder_of(name))
    if not has_head(text):
        with pytest.raises(UnsupportedError, match=r"no (linear )?output head") as refused:
            attribute(text, 6, None, None)
        assert refused.value.exit_code == 4
        return
    found = attribute(text, 6, None, None)
    every = own_logits(text)
    known = every[6]
    assert found.target == known.argmax()
    assert found.logit == pytest.approx(known.max(), abs=1e-10)
    assert sum(value for _, value in found.parts) == pytest.approx(found.logit, abs=1e-9)
    heads = sum(
        b.attention.heads + (b.cross.heads if b.cross else 0) for b in text.model.spec.blocks
    )
    assert sum(part.kind == "head" for part, _ in found.parts) == heads
    between = attribute(text, 9, 5, 17)
    assert between.logit == pytest.approx(every[9, 5] - every[9, 17], abs=1e-10)
    assert sum(value for _, value in between.parts) == pytest.approx(between.logit, abs=1e-9)


def test_every_kind_of_model_is_among_them(folder_of: Callable) -> None:
    """Pre-norm, sandwich, post-norm and parallel blocks have heads here; none of them is passed
    over in silence.
    """
    for name in ("gpt2 with head", "llama", "gemma2", "gptj", "cohere", "falcon new", "phi"):
        assert attribute(text_of(folder_of(name)), 6, None, None).parts


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_induction_model(library: str) -> None:
    own = induction_model(library)
    text = SweepText(own, own.tokenizer.encode("eabcda"), own.backend)
    found = attribute(text, 5, None, None)
    assert found.target == 1
    values = dict(found.parts)
    assert values[LogitTerm("head", 1, "self", 0)] == pytest.approx(found.logit)
    assert found.logit > 9
    assert all(
        abs(value) < 1e-9 for part, value in found.parts if part != LogitTerm("head", 1, "self", 0)
    )


def test_a_frozen_norm_is_that_norm_on_what_enters_it() -> None:
    x, weight, bias = np.random.default_rng(1).normal(size=(3, 13))
    for kind in ("layer", "rms"):
        norm = Norm(kind, 1e-3, unit_offset=kind == "rms")
        centred = x - x.mean() if kind == "layer" else x
        known = centred / np.sqrt((centred**2).mean() + 1e-3) * (weight + (kind == "rms"))
        split = np.stack([x - bias, bias])
        assert np.allclose(
            apply_frozen_norm(norm, x, weight, split).sum(0), known, rtol=0, atol=1e-13
        )


def test_negative_control(folder_of: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """With statistics of another vector the parts no longer sum to the logit."""
    text = text_of(folder_of("llama"))
    right = logit_parts.apply_frozen_norm
    monkeypatch.setattr(
        logit_parts,
        "apply_frozen_norm",
        lambda norm, entering, *rest: right(norm, entering * 1.01, *rest),
    )
    found = attribute(text, 6, None, None)
    assert abs(sum(value for _, value in found.parts) - found.logit) > 1e-4


def test_an_encoder_has_no_next_token() -> None:
    own = attncli.load("minilm")
    with pytest.raises(UnsupportedError, match="no linear output head"):
        attribute(SweepText(own, own.encode("it was tired"), own.backend), 1, None, None)
