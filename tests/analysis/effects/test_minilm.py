"""all-MiniLM-L6-v2 on the well-known sentence: known values, and that a second head looks and hardly matters."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import attncli
from attncli.analysis.effects.ablation import Removal, Removed, remove
from attncli.analysis.effects.changes import ByZero, Link
from attncli.analysis.effects.measures import Asked
from attncli.analysis.effects.places import Chosen, Place, everything
from attncli.inputs.text import SAMPLE
from attncli.models.model import Model

IT, ANIMAL, STREET = 10, 2, 8


@cache
def model(library: str = "numpy", dtype: str = "float64") -> Model:
    return attncli.load("minilm", backend=library, dtype=dtype)


@cache
def removed(link: Link | None, library: str = "numpy", dtype: str = "float64", memory: int | None = None) -> Removed:
    own = model(library, dtype)
    tokens = own.encode(SAMPLE)
    assert [tokens[place].text for place in (IT, ANIMAL, STREET)] == ["it", "animal", "street"]
    removal = Removal(everything(own.spec), ByZero(), link, baseline="none")
    return remove(own, tokens, removal, Asked(("vector",), (IT,), len(tokens) - 1), memory=memory)


def cosines(found: Removed) -> dict[tuple[int, int], float]:
    return {(effect.place.layer, effect.place.head): effect.readings["cosine"] for effect in found.effects}


@pytest.mark.parametrize(("library", "dtype"), [("numpy", "float64"), ("torch", "float64"), ("numpy", "float32")])
def test_known_values(library: str, dtype: str) -> None:
    alone = cosines(removed(None, library, dtype))
    for place, value in {(5, 11): 0.10482, (5, 10): 0.0263, (5, 7): 0.0175, (3, 1): 0.00543}.items():
        assert alone[place] == pytest.approx(value, abs=0.5 * 10 ** -len(f"{value}".partition(".")[2]))
    assert max(alone, key=alone.__getitem__) == (5, 11)
    cut = cosines(removed(Link((IT,), (ANIMAL,)), library, dtype))
    assert cut[5, 11] == pytest.approx(0.11394, abs=5e-6)
    assert cut[3, 1] == pytest.approx(0.00377, abs=5e-6)


def test_everywhere() -> None:
    for key, value in ((ANIMAL, 0.17509), (STREET, 0.04227)):
        assert removed(Link((IT,), (key,))).together["cosine"] == pytest.approx(value, abs=5e-6)


def test_where_heads_look_comes_along() -> None:
    weights = {effect.place: effect for effect in removed(Link((IT,), (ANIMAL,))).effects}
    for place, weight in ((Place(5, "self", 11), 0.65), (Place(3, "self", 1), 0.64)):
        assert weights[place].weight == pytest.approx(weight, abs=0.005)
        assert weights[place].looks == (ANIMAL, weights[place].weight)


def test_memory_only_changes_how_it_runs() -> None:
    """Little memory means one branch at a time, sweep by sweep from layer to layer; the numbers stay."""
    from attncli.analysis.effects.room import least, room

    own = model()
    small = least(own.spec, 15, "float64")
    assert room(own.spec, 15, 72, "float64", small).at_once == 1
    assert len(list(room(own.spec, 15, 72, "float64", small).groups(list(range(72)), 1))) > 6
    whole, little = cosines(removed(None)), cosines(removed(None, memory=small))
    assert np.abs(np.subtract(list(whole.values()), list(little.values()))).max() < 1e-13


def test_the_mean_over_tokens_hides_a_link() -> None:
    own = model()
    tokens = own.encode(SAMPLE)
    removal = Removal(Chosen(range(6), range(12)), ByZero(), Link((IT,), (ANIMAL,)), together=True)
    found = remove(own, tokens, removal, Asked(("vector",), tuple(range(len(tokens))), 0))
    assert found.effects == []
    assert found.together["cosine"] == pytest.approx(0.0018, abs=5e-5)
