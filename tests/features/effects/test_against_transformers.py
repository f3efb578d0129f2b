"""Every head of every family against transformers with hooks, in float64: taken away in each way,
and links cut.

The oracle (`hooked_transformers`) shares nothing with the code under test but the loading of the
reference model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hooked_transformers import Cutting, last_vectors, mixing, projections
from tiny_checkpoints import CASES, make
from tiny_two_sided import TWO_SIDED

import attncli
from attncli.features.effects.ablation import Removal, RemovalResult, remove, text_for_sweep
from attncli.features.effects.measures import MeasureRequest
from attncli.features.effects.sweep import By, ByMean, ByResample, ByZero, CutLink, mixed_of
from attncli.mechanism.spec import HeadSelection
from attncli.models.model import Model
from attncli.models.verify import reference_model

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13)
OTHER = (19, 4, 60, 8, 8, 23, 6, 12, 33, 41)
SOURCE = (33, 12, 3, 41, 29, 55, 10, 7)
LINK = CutLink((6,), (2,))
AT = (6,)
LIMIT = 1e-10
WAYS = ("zero", "mean", "resample", "cut")
EVERY = bool(os.environ.get("ATTN_EVERY_HEAD"))
"""Whether all cases of a family run, and means and other texts' values are put into every head, not
into one of each layer: minutes more."""


FIRST = {case.model_type: name for name, case in reversed(CASES.items())}
VARIANTS = (
    "opt post-norm",
    "gpt_neox in sequence",
    "stablelm parallel",
    "falcon new",
    "falcon alibi",
)
"""Cases of a family whose layers are put together otherwise than in its first case."""
NAMES = [name for name in CASES if EVERY or name in (*FIRST.values(), *VARIANTS)]


STATES = np.random.default_rng(2).standard_normal((9, 30))
READING = ("whisper",)
"""Decoders alone, over states of an encoder."""
UNCUT = ("longformer", "big_bird", "led")
"""Families that compute no [head, query, key] scores in transformers, in which the oracle could cut
a link.
"""


def sides(name: str) -> tuple[str, ...]:
    kind = CASES[name].model_type
    return (
        ("encoder", "decoder") if kind in TWO_SIDED else ("decoder",) if kind in READING else ("",)
    )


GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
"""Families whose heads are gated: the oracle changes what enters the output projection, which is
behind the gate.
"""


def ways(name: str) -> tuple[str, ...]:
    if CASES[name].model_type in GATED:
        return ("zero", "cut")
    return WAYS[:-1] if CASES[name].model_type in UNCUT else WAYS


def note(seen: dict, key: tuple, z: np.ndarray) -> np.ndarray:
    seen[key] = z.copy()
    return z


SIDES = [(name, side) for name in NAMES for side in sides(name)]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


@dataclass(frozen=True)
class Expected:
    """By way, layer, kind and head: the last vectors [token, width]; head −1 for the own run, −2
    for all at once.
    """

    vectors: dict[tuple[str, int, str, int], np.ndarray]


@pytest.fixture(scope="module")
def expected(folder_of: Callable[[str], Path]) -> Callable[[str, str], Expected]:
    @cache
    def found(name: str, side: str) -> Expected:
        spec = attncli.load(folder_of(name)).spec
        spec = spec.decoder or spec if side == "decoder" else spec
        reads = CASES[name].model_type in READING
        given = {"ids": SOURCE, "target": IDS} if side == "decoder" and not reads else {"ids": IDS}
        others = {**given, "target" if "target" in given else "ids": OTHER}
        if reads:
            given["states"] = others["states"] = STATES
        vectors = {}
        with reference_model(folder_of(name), both=bool(side)) as model:
            used, attending = (
                projections(model, lambda: last_vectors(model, **given), side=side),
                spec.attending(),
            )
            outs = {(attending[layer], kind): at for (layer, kind), at in used.items()}

            def heads_of(layer: int, kind: str) -> int:
                block = spec.blocks[layer]
                return (block.attention if kind == "self" else block.cross).heads

            def mixed(told: dict) -> dict:
                seen: dict = {}
                with ExitStack() as noting:
                    for (layer, kind), at in outs.items():
                        noted = partial(note, seen, (layer, kind))
                        noting.enter_context(mixing(at, noted, heads_of(layer, kind)))
                    vectors["own", 0, "self", -1] = last_vectors(model, **told)
                return seen

            resampled = mixed(others)
            mixed(given)
            for (layer, kind), at in outs.items():
                for head in range(heads_of(layer, kind)):

                    def change(
                        z: np.ndarray, way: str, head: int = head, key: tuple = (layer, kind)
                    ) -> np.ndarray:
                        z[head] = {
                            "zero": 0 * z[head],
                            "mean": z[head][: len(IDS)].mean(0),
                            "resample": resampled[key][head],
                        }[way]
                        return z

                    own_ways = [
                        way
                        for way in ways(name)
                        if way != "cut" and (EVERY or head == layer % 3 or way == "zero")
                    ]
                    for way in own_ways:
                        with mixing(
                            at,
                            lambda z, way=way, change=change: change(z, way),
                            heads_of(layer, kind),
                        ):
                            vectors[way, layer, kind, head] = last_vectors(model, **given)
                    if kind == "self" and "cut" in ways(name):
                        with Cutting([(at.number, head, LINK.queries[0], LINK.keys[0])]):
                            vectors["cut", layer, kind, head] = last_vectors(model, **given)
            every = [
                (at.number, None, LINK.queries[0], LINK.keys[0])
                for (_, kind), at in outs.items()
                if kind == "self"
            ]
            if "cut" in ways(name):
                with Cutting(every):
                    vectors["cut", 0, "self", -2] = last_vectors(model, **given)
        return Expected(vectors)

    return found


def loaded(folder: Path, library: str, side: str) -> Model:
    model = attncli.load(folder, backend=library, dtype="float64")
    if model.spec.family in READING:
        return model.decoder_over(STATES)
    return model.decoder(model.tokenizer.ids_to_tokens(SOURCE)) if side == "decoder" else model


def removed(model: Model, way: str, at: tuple[int, ...] = AT) -> RemovalResult:
    tokens, others = (model.tokenizer.ids_to_tokens(ids) for ids in (IDS, OTHER))
    by: By = {"zero": ByZero, "mean": ByMean}.get(way, ByZero)()
    if way == "resample":
        by = ByResample(mixed_of(text_for_sweep(model, others, []))[0], others)
    removal = Removal(HeadSelection(), by, LINK if way == "cut" else None, baseline="none")
    return remove(model, tokens, removal, MeasureRequest(("vector",), at, len(IDS) - 1))


def moved(own: np.ndarray, other: np.ndarray, at: tuple[int, ...]) -> tuple[float, float]:
    x, y = own[list(at)].mean(0), other[list(at)].mean(0)
    a, b = x / np.linalg.norm(x), y / np.linalg.norm(y)
    return float(((a - b) ** 2).sum() / 2), float(np.linalg.norm(x - y) / np.linalg.norm(x))


def worst(found: RemovalResult, known: Expected, way: str, at: tuple[int, ...] = AT) -> float:
    own = known.vectors["own", 0, "self", -1]
    apart = []
    for effect in found.effects:
        place = effect.place
        there = known.vectors.get((way, place.layer, place.kind, place.head))
        if there is None:
            continue
        apart += np.abs(
            np.subtract((effect.readings["cosine"], effect.readings["norm"]), moved(own, there, at))
        ).tolist()
    assert apart
    return max(apart)


def whole(found: RemovalResult, known: Expected) -> None:
    """The link taken away in all heads at once."""
    together = moved(known.vectors["own", 0, "self", -1], known.vectors["cut", 0, "self", -2], AT)
    assert np.allclose(
        (found.together["cosine"], found.together["norm"]), together, rtol=0, atol=LIMIT
    )


def choice(place: int, name: str, side: str) -> Any:
    """One case of six is always tried, the others thoroughly: the oracle runs once a head."""
    always = place % 6 == 0
    return pytest.param(
        name, side, marks=() if always else pytest.mark.thorough, id=f"{name}-{side}"
    )


@pytest.mark.many
@pytest.mark.parametrize(
    ("name", "side"), [choice(place, *case) for place, case in enumerate(SIDES)]
)
def test_heads_and_links(name: str, side: str, folder_of: Callable, expected: Callable) -> None:
    known = expected(name, side)
    for library in ("numpy", "torch"):
        model = loaded(folder_of(name), library, side)
        for way in ways(name):
            found = removed(model, way)
            assert worst(found, known, way) < LIMIT, (library, way)
        if "cut" in ways(name):
            whole(found, known)
        # the knobs bite: some head matters
        assert max(effect.readings["cosine"] for effect in removed(model, "zero").effects) > 1e-3


def test_negative_controls(folder_of: Callable, expected: Callable) -> None:
    """The comparison fails for a neighbouring head, another way, another link, another token."""
    model, known = loaded(folder_of("llama"), "numpy", ""), expected("llama", "")
    found = removed(model, "zero")
    assert worst(found, known, "zero") < LIMIT
    turned = {
        (way, layer, kind, (head + 1) % 6): v
        for (way, layer, kind, head), v in known.vectors.items()
        if head >= 0
    }
    for others in (
        Expected(known.vectors | turned),
        Expected(
            {
                **known.vectors,
                **{
                    key: known.vectors["cut", *key[1:]] for key in known.vectors if key[0] == "zero"
                },
            }
        ),
    ):
        assert worst(found, others, "zero") > 1e-6
    assert worst(found, known, "zero", (5,)) > 1e-6
    tokens = model.tokenizer.ids_to_tokens(IDS)
    removal = Removal(HeadSelection(), link=CutLink((6,), (3,)), baseline="none")
    assert (
        worst(remove(model, tokens, removal, MeasureRequest(("vector",), AT, 9)), known, "cut")
        > 1e-6
    )
