"""all-MiniLM-L6-v2 on the well-known sentence: known values, and that a second head looks and
hardly matters.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hooked_transformers import mixing, projections

import attncli
import attncli.models.aliases
from attncli.features.effects.ablation import Removal, RemovalResult, remove
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.places import HeadAddress
from attncli.features.effects.sweep import ByZero, CutLink
from attncli.inputs.token import SAMPLE
from attncli.mechanism.spec import HeadSelection
from attncli.models.model import Model

IT, ANIMAL, STREET = 10, 2, 8


@cache
def model(library: str = "numpy", dtype: str = "float64") -> Model:
    return attncli.load("minilm", backend=library, dtype=dtype)


@cache
def removed(link: CutLink | None, library: str = "numpy", dtype: str = "float64") -> RemovalResult:
    own = model(library, dtype)
    tokens = own.encode(SAMPLE)
    assert [tokens[place].text for place in (IT, ANIMAL, STREET)] == ["it", "animal", "street"]
    removal = Removal(HeadSelection(), ByZero(), link, baseline="none")
    return remove(own, tokens, removal, MeasureRequest(("vector",), (IT,), len(tokens) - 1))


def cosines(found: RemovalResult) -> dict[tuple[int, int], float]:
    return {
        (effect.place.layer, effect.place.head): effect.readings["cosine"]
        for effect in found.effects
    }


@pytest.mark.many
@pytest.mark.parametrize(
    ("library", "dtype"), [("numpy", "float64"), ("torch", "float64"), ("numpy", "float32")]
)
def test_known_values(library: str, dtype: str) -> None:
    alone = cosines(removed(None, library, dtype))
    for place, value in {
        (5, 11): 0.10482,
        (5, 10): 0.0263,
        (5, 7): 0.0175,
        (3, 1): 0.00543,
    }.items():
        assert alone[place] == pytest.approx(
            value, abs=0.5 * 10 ** -len(f"{value}".partition(".")[2])
        )
    assert max(alone, key=alone.__getitem__) == (5, 11)
    cut = cosines(removed(CutLink((IT,), (ANIMAL,)), library, dtype))
    assert cut[5, 11] == pytest.approx(0.11394, abs=5e-6)
    assert cut[3, 1] == pytest.approx(0.00377, abs=5e-6)


def test_everywhere() -> None:
    for key, value in ((ANIMAL, 0.17509), (STREET, 0.04227)):
        assert removed(CutLink((IT,), (key,))).together["cosine"] == pytest.approx(value, abs=5e-6)


def test_where_heads_look_comes_along() -> None:
    weights = {effect.place: effect for effect in removed(CutLink((IT,), (ANIMAL,))).effects}
    for place, weight in ((HeadAddress(5, "self", 11), 0.65), (HeadAddress(3, "self", 1), 0.64)):
        assert weights[place].weight == pytest.approx(weight, abs=0.005)
        assert weights[place].looks == (ANIMAL, weights[place].weight)


@pytest.mark.thorough
def test_memory_only_changes_how_it_runs() -> None:
    """Little memory means one branch at a time, sweep by sweep from layer to layer; the numbers
    stay.
    """
    from attncli.features.effects.sweep import SweepSize

    own, heads = model(), range(3, 12, 4)
    size = SweepSize(own.spec, 15, "float64")
    small = size.least_bytes
    plan = size.plan(18, small)
    assert plan.at_once == 1
    assert len(list(plan.groups(list(range(18)), 1))) > 2
    removal = Removal(HeadSelection(range(6), heads), ByZero(), baseline="none")
    asked, tokens = MeasureRequest(("vector",), (IT,), 14), own.encode(SAMPLE)
    whole, little = (
        cosines(removed(None)),
        cosines(remove(own, tokens, removal, asked, memory=small)),
    )
    assert set(little) == {(layer, head) for layer in range(6) for head in heads}
    assert max(abs(whole[place] - value) for place, value in little.items()) < 1e-13


def test_the_mean_over_tokens_hides_a_link() -> None:
    own = model()
    tokens = own.encode(SAMPLE)
    removal = Removal(
        HeadSelection(range(6), range(12)), ByZero(), CutLink((IT,), (ANIMAL,)), together=True
    )
    found = remove(own, tokens, removal, MeasureRequest(("vector",), tuple(range(len(tokens))), 0))
    assert found.effects == []
    assert found.together["cosine"] == pytest.approx(0.0018, abs=5e-5)


@pytest.mark.thorough
def test_in_float32_no_farther_from_float64_than_twice_what_transformers_is() -> None:
    """All heads are computed in float32, as the document says."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    single = removed(None, dtype="float32")
    assert single.backend.dtype == "float32"
    exact, ours = cosines(removed(None)), cosines(single)
    folder = attncli.models.aliases.locate("minilm").folder
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = torch.tensor([[token.id for token in model().encode(SAMPLE)]])
    outs = projections(theirs, lambda: theirs(ids))
    apart = []
    with torch.no_grad():
        own = theirs(ids).last_hidden_state[0, IT].double()
        for layer, head in ((layer, head) for layer in (0, 5) for head in range(0, 12, 3)):

            def zero(z: np.ndarray, head: int = head) -> np.ndarray:
                z[head] = 0
                return z

            with mixing(outs[layer, "self"], zero, 12):
                other = theirs(ids).last_hidden_state[0, IT].double()
            found = (own / own.norm() - other / other.norm()).square().sum().item() / 2
            apart.append(
                (abs(found - exact[layer, head]), abs(ours[layer, head] - exact[layer, head]))
            )
    reference, own_error = np.asarray(apart).mean(0)
    assert 0 < own_error <= 2 * reference
