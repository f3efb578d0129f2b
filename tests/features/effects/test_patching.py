"""Patching: against transformers with hooks, on the induction model, and what is refused."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hooked_transformers import last_vectors, mixing, projections
from induction_model import model as induction_model
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError, UsageError
from attncli.features.effects.patching import PatchRequest, patch
from attncli.mechanism.spec import HeadSelection
from attncli.models.verify import reference_model

CLEAN = (7, 3, 3, 50, 11, 28, 5)
CORRUPT = (7, 3, 19, 50, 11, 8, 5)


@pytest.mark.parametrize("at", [(2, 3, 4), tuple(range(7))])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_cosines_of_an_encoder(library: str, at: tuple[int, ...], tmp_path: Path) -> None:
    folder = make(CASES["bert"], tmp_path)
    model = attncli.load(folder, backend=library, dtype="float64")
    clean, corrupt = (model.tokenizer.ids_to_tokens(ids) for ids in (CLEAN, CORRUPT))
    found = patch(model, clean, corrupt, PatchRequest(HeadSelection(), at, (6,), "cosine"))
    with reference_model(folder, both=False) as theirs:
        outs, seen = projections(theirs, lambda: last_vectors(theirs, CLEAN)), {}

        def note(z: np.ndarray, key: tuple) -> np.ndarray:
            seen[key] = z.copy()
            return z

        with ExitStack() as noting:
            for key, module in outs.items():
                noting.enter_context(mixing(module, lambda z, key=key: note(z, key), 3))
            goal = last_vectors(theirs, CLEAN)[6]
        own = last_vectors(theirs, CORRUPT)[6]
        for (place, share), (key, module) in zip(
            found.recovered_shares,
            [(key, module) for key, module in outs.items() for _ in range(3)],
            strict=True,
        ):

            def put(z: np.ndarray, key: tuple = key, head: int = place.head) -> np.ndarray:
                z[head, list(at)] = seen[key][head, list(at)]
                return z

            with mixing(module, put, 3):
                there = last_vectors(theirs, CORRUPT)[6]
            assert share == pytest.approx(
                (cosine(there, goal) - cosine(own, goal)) / (1 - cosine(own, goal)), abs=1e-10
            )
    assert found.clean == pytest.approx(1.0)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("measured", ["logit difference", "log probability"])
def test_only_the_induction_heads_carry_the_difference(measured: str) -> None:
    """In the corrupt text another letter follows the first a."""
    own = induction_model()
    clean, corrupt = own.tokenizer.encode("eabcda"), own.tokenizer.encode("eacbda")
    patching = PatchRequest(HeadSelection(), tuple(range(6)), (5,), measured, target=1, versus=2)
    found = patch(own, clean, corrupt, patching)
    for place, share in found.recovered_shares:
        # the previous-token head writes the same letter in both: only what is read after it differs
        assert share == pytest.approx(1.0 if (place.layer, place.head) == (1, 0) else 0.0, abs=1e-9)
    if measured == "logit difference":
        assert (found.clean, found.corrupt) == (pytest.approx(10.0), pytest.approx(-10.0))


def test_refusals() -> None:
    own = induction_model()
    patching = PatchRequest(HeadSelection(), (0, 1), (5,), "logit difference", target=1, versus=2)
    with pytest.raises(InputError, match=r"6 tokens.*5"):
        patch(own, own.tokenizer.encode("eabcda"), own.tokenizer.encode("eacda"), patching)
    with pytest.raises(InputError, match="same"):
        patch(own, own.tokenizer.encode("eabcda"), own.tokenizer.encode("eabcda"), patching)


def test_a_difference_needs_a_target() -> None:
    model = induction_model()
    with pytest.raises(UsageError, match="versus is taken from a target"):
        PatchRequest.of(
            model, [], HeadSelection(), positions=(), query=None, target=None, versus="b"
        )


def test_what_is_measured_is_told_with_digits_that_tell_both_texts_apart() -> None:
    from attncli.features.effects.screen import _distinct_number_texts

    assert _distinct_number_texts(1.0, 0.99999) == ["1", "0.99999"]
    assert _distinct_number_texts(0.5, 0.25) == ["0.5", "0.25"]
    assert _distinct_number_texts(1.0, 1.0) == ["1", "1"]
    assert len(set(_distinct_number_texts(1.0, 1.0 - 2**-53))) == 2
