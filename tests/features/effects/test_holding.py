"""Attention held as it was: against transformers with hooks, by ground truth, and the golden values
of a real model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hooked_transformers import Holding, last_vectors, mixing, projections
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import UsageError
from attncli.features.effects.ablation import Removal, remove
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.sweep import CutLink
from attncli.mechanism.spec import HeadSelection
from attncli.models.aliases import local_folder
from attncli.models.run import unembedding
from attncli.models.verify import reference_model

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)
LAST = len(IDS) - 1
LIMIT = 1e-10
FAMILIES = (
    "llama", "gpt2", "gemma2", "gemma3_text", "qwen2", "qwen3", "gpt_neox", "opt post-norm", "mistral", "gpt_oss",
    "falcon alibi", "bert",
)  # fmt: skip
"""Grouped queries, windows, soft caps, norms after and within, parallel blocks, biases, sinks."""
TEXT = "After John and Mary went to the store, John gave a drink to"
GOLDEN = {
    (23, 3): (2.57, 3.30),
    (17, 0): (1.37, 0.03),
    (18, 0): (1.17, -0.01),
    (20, 0): (1.61, 0.21),
    (29, 1): (1.60, 1.60),
    (29, 0): (-1.44, -1.44),
}
"""What Mary loses of its lead over John: in all, and with attention held."""


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


def turned(own: np.ndarray, other: np.ndarray) -> float:
    x, y = own[LAST] / np.linalg.norm(own[LAST]), other[LAST] / np.linalg.norm(other[LAST])
    return float(((x - y) ** 2).sum() / 2)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if place % 6 == 0 else pytest.mark.thorough)
        for place, name in enumerate(FAMILIES)
    ],
)
def test_every_head_of_ten_families(name: str, folder_of: Callable[[str], Path]) -> None:
    model = attncli.load(folder_of(name), dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    request = MeasureRequest(("vector",), (LAST,), LAST)
    found = remove(model, tokens, Removal(HeadSelection(), baseline="none", hold=True), request)
    held = {(effect.place.layer, effect.place.head): effect.holding for effect in found.effects}
    free = {(effect.place.layer, effect.place.head): effect.readings for effect in found.effects}
    apart, differ = [], []
    with reference_model(folder_of(name), both=False) as reference:
        with Holding() as own_run:
            own = last_vectors(reference, IDS)
        used = projections(reference, lambda: last_vectors(reference, IDS))
        for layer, block in enumerate(model.spec.blocks):
            for head in range(block.attention.heads):

                def zero(z: np.ndarray, head: int = head) -> np.ndarray:
                    z[head] = 0
                    return z

                with (
                    mixing(used[layer, "self"], zero, block.attention.heads),
                    Holding(own_run.seen),
                ):
                    without = last_vectors(reference, IDS)
                known = turned(own, without)
                apart.append(abs(held[layer, head]["cosine"] - known))
                differ.append(abs(free[layer, head]["cosine"] - known))
    assert max(apart) < LIMIT
    assert max(differ) > 1e-5  # the negative control: without holding it is another number


def test_a_head_of_the_last_layer_moves_nothing(tmp_path: Path) -> None:
    model = attncli.load(small_gpt2(tmp_path / "gpt2", layers=3))
    document = attncli.ablate(
        model, "it was too the", target="it", versus="the", hold="attention", baseline="none"
    )
    by_layer: dict[int, list[float]] = {}
    for effect in document.effects:
        by_layer.setdefault(effect.layer, []).append(abs(effect.difference.moved))
        whole = effect.difference.writes + effect.difference.moved
        assert effect.difference.all == pytest.approx(whole, abs=1e-12)
    assert max(by_layer[2]) == 0
    assert max(by_layer[0]) > 1e-3


def test_a_cut_link_is_cut_in_the_weights_that_are_held(tmp_path: Path) -> None:
    """In one layer there is nothing to hold: held and free cuts are the same; in the first of
    several layers, too, for all heads at once."""
    link = CutLink((3,), (1,))
    request = MeasureRequest(("vector",), (3,), 3)
    for layers, apart in ((1, 0.0), (3, 1e-6)):
        folder = small_gpt2(tmp_path / f"{layers}", layers=layers)
        model = attncli.load(folder, dtype="float64")
        tokens = model.encode("it was too the")
        removal = Removal(HeadSelection(), link=link, baseline="none", hold=True)
        found = remove(model, tokens, removal, request)
        difference = abs(found.holding["cosine"] - found.together["cosine"])
        assert (difference < 1e-12) if layers == 1 else (difference > apart)
        for effect in found.effects:
            if effect.place.layer == layers - 1:
                assert effect.holding["cosine"] == pytest.approx(
                    effect.readings["cosine"], abs=1e-12
                )


def test_a_region_is_cut_in_the_weights_that_are_held(folder_of: Callable[[str], Path]) -> None:
    """Against transformers: the own run's weights without the links to the region, rows scaled
    again, in place of each softmax."""
    from attncli.features.regions.compute import each_region
    from attncli.inputs.regions import Region

    folder = folder_of("gpt2 with head")
    model = attncli.load(folder, dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    regions = [Region("a", (2, 3)), Region("b", (6,))]
    document = each_region(model, "", regions, target="id:19", hold="attention", tokens=tokens)
    matrix = np.asarray(unembedding(model.spec.head, model.store.outer(model.backend)))

    def logprob(vectors: np.ndarray) -> float:
        scores = matrix @ vectors[LAST]
        return float(scores[19] - scores.max() - np.log(np.exp(scores - scores.max()).sum()))

    with reference_model(folder, both=False) as reference:
        with Holding() as own_run:
            own = logprob(last_vectors(reference, IDS))
        assert document.logprob == pytest.approx(own, abs=LIMIT)
        for effect in document.effects:
            inside = list(regions[effect.region].tokens)
            held = []
            for weights in own_run.seen:
                cut = weights.clone()
                for query in range(len(IDS)):
                    if query not in inside:
                        cut[..., query, inside] = 0
                        cut[..., query, :] /= cut[..., query, :].sum(-1, keepdim=True)
                held.append(cut)
            with Holding(held):
                known = logprob(last_vectors(reference, IDS)) - own
            assert effect.writes == pytest.approx(known, abs=LIMIT)
            assert effect.change == pytest.approx(effect.writes + effect.moved, abs=LIMIT)
            assert abs(effect.moved) > 1e-6  # the negative control: held and free cuts differ
    # what then comes after the text has the probability that it has as a target of its own
    first = document.effects[0]
    for row in first.top:
        asked = each_region(model, "", regions, target=f"id:{row.token.id}", tokens=tokens)
        (effect,) = [same for same in asked.effects if same.region == first.region]
        assert row.probability == pytest.approx(np.exp(effect.logprob), abs=1e-12)
    assert len(first.top) == 3


@pytest.mark.thorough
def test_golden_values_of_a_real_model() -> None:
    if (folder := local_folder("smollm2")) is None:
        pytest.skip("smollm2 is not installed")
    document = attncli.ablate(
        attncli.load(folder),
        TEXT,
        target="Mary",
        versus="John",
        hold="attention",
        heads=HeadSelection(pairs=list(GOLDEN)),
        baseline="none",
    )
    assert document.m_clean == pytest.approx(4.13, abs=0.02)
    found = {(row.layer, row.head): row.difference for row in document.effects}
    for place, (whole, held) in GOLDEN.items():
        assert found[place].all == pytest.approx(whole, abs=0.02)
        assert found[place].writes == pytest.approx(held, abs=0.02)


def test_holding_needs_a_difference_of_two_tokens(tmp_path: Path) -> None:
    model = attncli.load(small_gpt2(tmp_path / "gpt2"))
    with pytest.raises(UsageError, match="--versus"):
        attncli.ablate(model, "it was too the", target="it", hold="attention")
