"""Every family against transformers, eagerly, on tiny random checkpoints: each head's weights and
each layer's vectors.

The reference is `attncli.models.verify`, which only loads transformers' own model and keeps its
casts in float64; comparing is done here, and must fail when a knob is turned
(`test_negative_controls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from side_by_side import Pair, both_sides, side_by_side
from tiny_checkpoints import CASES, make
from tiny_two_sided import TWO_SIDED
from turned_knobs import TURNED

import attncli
from attncli.mechanism.spec import Spec
from attncli.models import estimate
from attncli.models.load import CheckpointStore
from attncli.models.model import Model
from attncli.models.verify import (
    ReferenceSide,
    decoder_over_states,
    reference,
    reference_model,
    run_reference,
)

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
TEXTS = (IDS, (19, 4, 60, 8, 8, 23, 6), (33, 12, 3, 41, 29, 55, 10, 7, 36, 5, 21))
KEEPING = ("llama dynamic", "gpt_neox in sequence", "big_bird", "big_bird, longer blocks")
"""References that keep something of a text for the next: frequencies of the longest, or that blocks
are not filled.
"""
TARGET = (2, 17, 33, 8, 40, 6, 19)
READING = ("whisper",)
STATES = np.random.default_rng(2).standard_normal((9, 30))
LIBRARIES = ("numpy", "torch")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="module")
def expected(folder_of: Callable[[str], Path]) -> Callable[..., tuple[ReferenceSide, ...]]:
    @cache
    def found(name: str, ids: tuple[int, ...] = IDS) -> tuple[ReferenceSide, ...]:
        target, states = (
            TARGET if two_sided(name) else None,
            STATES if CASES[name].model_type in READING else None,
        )
        return reference(folder_of(name), ids, target=target, states=states)

    return found


@pytest.fixture(scope="module")
def texts(
    folder_of: Callable[[str], Path],
) -> Callable[[str, str], dict[tuple[int, ...], tuple[ReferenceSide, ...]]]:
    """The reference's sides of each of the texts in one type, by a model that is loaded once where
    that is the same.
    """

    @cache
    def found(name: str, dtype: str) -> dict[tuple[int, ...], tuple[ReferenceSide, ...]]:
        target, reads = TARGET if two_sided(name) else None, CASES[name].model_type in READING
        if name in KEEPING:
            return {ids: reference(folder_of(name), ids, dtype=dtype) for ids in TEXTS}
        with reference_model(
            folder_of(name), both=reads or target is not None, dtype=dtype
        ) as model:
            return {
                ids: (decoder_over_states(model, ids, STATES),)
                if reads
                else run_reference(model, ids, target)
                for ids in TEXTS
            }

    return found


def opened(folder: Path, **how: str) -> Model:
    """The checkpoint; a decoder alone with something to read."""
    model = attncli.load(folder, **how)
    return model.decoder_over(STATES) if model.spec.family in READING else model


def two_sided(name: str) -> bool:
    return CASES[name].model_type in TWO_SIDED


def pairs(
    model: Model, sides: tuple[ReferenceSide, ...], ids: tuple[int, ...] = IDS
) -> Iterator[Pair]:
    """Every head's weights and every layer's vectors of a run, with the reference's."""
    return side_by_side(both_sides(model, ids, TARGET if len(sides) > 1 else None), sides)


@pytest.mark.many
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CASES)
def test_float64(name: str, library: str, folder_of: Callable, expected: Callable) -> None:
    model = opened(folder_of(name), backend=library, dtype="float64")
    assert model.warnings == model.spec.layer_notes()
    found = list(pairs(model, expected(name)))
    assert max(found, key=lambda pair: pair.apart).apart < 1e-10
    # the knobs bite: attention is far from uniform somewhere
    assert max(float(pair.theirs.max()) for pair in found if "head" in pair.what) > 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CASES)
def test_float32(name: str, library: str, folder_of: Callable, texts: Callable) -> None:
    """Each head's weights and each layer's vectors at most twice as far from float64 as
    transformers' own float32.

    Where transformers is right to the last bit, rounding the result may still cost half a unit in
    the last place.
    """
    model = opened(folder_of(name), backend=library, dtype="float32")
    for ids, exact in texts(name, "float64").items():
        theirs = {
            pair.what: pair.apart for pair in side_by_side(texts(name, "float32")[ids], exact)
        }
        for pair in pairs(model, exact, ids):
            assert pair.ours.dtype == np.float32
            assert pair.apart <= 2 * theirs[pair.what] + 2.0**-24, pair.what


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CASES)
def test_float32_throughout(
    name: str, library: str, folder_of: Callable, texts: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs too large for float64: at most twice transformers' distance, root mean square over all
    heads and vectors.

    Tiny random models magnify single roundings by chance; the geometric mean over three texts evens
    that out.
    """
    monkeypatch.setattr(estimate, "WIDE_UP_TO", 0.0)
    model = opened(folder_of(name), backend=library, dtype="float32")
    assert model.compute_backend(len(IDS)) is model.backend
    ratios = []
    for ids, exact in texts(name, "float64").items():
        ours = rms([pair.ours - pair.theirs for pair in pairs(model, exact, ids)])
        single = [array for side in texts(name, "float32")[ids] for array in arrays(side)]
        double = [array for side in exact for array in arrays(side)]
        ratios.append(ours / rms([one - other for one, other in zip(single, double, strict=True)]))
    assert np.exp(np.mean(np.log(ratios))) < 2.0


def arrays(side: ReferenceSide) -> list[np.ndarray]:
    return [*side.hidden, *side.weights, *side.cross]


def rms(differences: list[np.ndarray]) -> float:
    return float(
        np.sqrt(
            sum(np.sum(one.astype(np.float64) ** 2) for one in differences)
            / sum(one.size for one in differences)
        )
    )


@pytest.mark.many
@pytest.mark.parametrize(
    ("name", "knob", "turn"), TURNED, ids=[f"{name}: {knob}" for name, knob, _ in TURNED]
)
def test_negative_controls(
    name: str, knob: str, turn: Callable[[Spec], Spec], folder_of: Callable, expected: Callable
) -> None:
    model = opened(folder_of(name), backend="numpy", dtype="float64")
    spec = turn(model.spec)
    assert spec != model.spec
    turned = replace(
        model, spec=spec, store=CheckpointStore(spec, model.store.checkpoint, model.store.binding)
    )
    found = [pair for pair in pairs(turned, expected(name)) if "head" in pair.what]
    assert max(pair.apart for pair in found) > 1e-6


@pytest.mark.parametrize(("name", "padding"), [("roberta", 1), ("xlm-roberta", 0), ("m2m_100", 1)])
def test_a_padding_token_in_the_text_is_not_counted(
    name: str, padding: int, folder_of: Callable, expected: Callable
) -> None:
    ids = (7, 3, padding, 50, padding, 28)
    model = opened(folder_of(name), backend="numpy", dtype="float64")
    assert max(pair.apart for pair in pairs(model, expected(name, ids), ids)) < 1e-10


def test_blocks_that_the_text_does_not_fill(folder_of: Callable, expected: Callable) -> None:
    ids = (*IDS, 40, 6)
    model = attncli.load(folder_of("big_bird, longer blocks"), backend="numpy", dtype="float64")
    found = list(pairs(model, expected("big_bird, longer blocks", ids), ids))
    assert max(pair.apart for pair in found) < 1e-10


def test_a_head_taken_for_another_is_noticed(folder_of: Callable, expected: Callable) -> None:
    model = attncli.load(folder_of("llama"), backend="numpy", dtype="float64")
    found = [
        pair
        for pair in pairs(model, expected("llama"))
        if pair.what.startswith("side 0 layer 0 weights")
    ]
    assert all(Pair("", one.ours, other.theirs).apart > 1e-3 for one, other in pairwise(found))
