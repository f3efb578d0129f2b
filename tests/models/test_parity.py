"""Every family against transformers, eagerly, on tiny random checkpoints: each head's weights and each layer's vectors.

The reference is `attncli.models.transformers_reference`, which only loads transformers' own model and keeps its
casts in float64; comparing is done here, and must fail when a knob is turned (`test_negative_controls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from tiny_checkpoints import CASES, make
from tiny_two_sided import TWO_SIDED

import attncli
from attncli.mechanism.mask import AnyOf, Causal, Everywhere, Global, Window
from attncli.mechanism.spec import Alibi, Block, Experts, Mlp, Rope, Spec
from attncli.models import estimate
from attncli.models.checkpoint_store import CheckpointStore
from attncli.models.families import MODEL_TYPES
from attncli.models.global_tokens import seeing_all
from attncli.models.model import Model
from attncli.models.transformers_reference import Side, reference

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
TEXTS = (IDS, (19, 4, 60, 8, 8, 23, 6), (33, 12, 3, 41, 29, 55, 10, 7, 36, 5, 21))
TARGET = (2, 17, 33, 8, 40, 6, 19)
READING = ("whisper",)
STATES = np.random.default_rng(2).standard_normal((9, 30))
LIBRARIES = ("numpy", "torch")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="module")
def expected(folder_of: Callable[[str], Path]) -> Callable[..., tuple[Side, ...]]:
    @cache
    def found(name: str, ids: tuple[int, ...] = IDS, dtype: str = "float64") -> tuple[Side, ...]:
        target, states = TARGET if two_sided(name) else None, STATES if CASES[name].model_type in READING else None
        return reference(folder_of(name), ids, target=target, dtype=dtype, states=states)

    return found


def opened(folder: Path, **how: str) -> Model:
    """The checkpoint; a decoder alone with something to read."""
    model = attncli.load(folder, **how)
    return model.reading(STATES) if model.spec.family in READING else model


def two_sided(name: str) -> bool:
    return CASES[name].model_type in TWO_SIDED


@dataclass(frozen=True)
class Pair:
    """An array of ours beside the reference's."""

    what: str
    ours: np.ndarray
    theirs: np.ndarray

    @property
    def apart(self) -> float:
        """The largest |difference|, relative to the reference's largest number."""
        return float(np.max(np.abs(self.ours - self.theirs)) / np.max(np.abs(self.theirs)))


def pairs(model: Model, sides: tuple[Side, ...], ids: tuple[int, ...] = IDS) -> Iterator[Pair]:
    """Every head's weights and every layer's vectors of a run, with the reference's."""
    return side_by_side(ran(model, ids, both=len(sides) > 1), sides)


def ran(model: Model, ids: tuple[int, ...], *, both: bool) -> tuple[Side, ...]:
    """What the model makes of the tokens, as the reference tells it."""
    tokens = model.tokenizer.ids_to_tokens(ids)
    first = one_side(model, tokens)
    return (first, one_side(model.decoder(tokens), model.tokenizer.ids_to_tokens(TARGET))) if both else (first,)


def one_side(model: Model, tokens: list) -> Side:
    plain = model.backend.numpy
    traces = list(model.trace(tokens))
    hidden = [
        plain(traces[0].before),
        *(plain(trace.after) for trace in traces[:-1]),
        plain(model.finish(traces[-1].after)),
    ]
    cross = [plain(trace.cross.stages["weights"]) for trace in traces if trace.cross is not None]
    return Side(tuple(hidden), tuple(plain(trace.stages["weights"]) for trace in traces), tuple(cross))


def side_by_side(ours: tuple[Side, ...], theirs: tuple[Side, ...]) -> Iterator[Pair]:
    for side, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for kind in ("weights", "cross"):
            for layer, (one, other) in enumerate(zip(getattr(a, kind), getattr(b, kind), strict=True)):
                where = f"side {side} layer {layer} {kind} head"
                yield from (Pair(f"{where} {head}", *pair) for head, pair in enumerate(zip(one, other, strict=True)))
        for place, (one, other) in enumerate(zip(a.hidden, b.hidden, strict=True)):
            if one.shape == other.shape:  # OPT 350m's reference goes on to the narrow width
                yield Pair(f"side {side} vectors {place}", one, other)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CASES)
def test_float64(name: str, library: str, folder_of: Callable, expected: Callable) -> None:
    model = opened(folder_of(name), backend=library, dtype="float64")
    assert model.warnings == ()
    found = list(pairs(model, expected(name)))
    assert max(found, key=lambda pair: pair.apart).apart < 1e-10
    # the knobs bite: attention is far from uniform somewhere
    assert max(float(pair.theirs.max()) for pair in found if "head" in pair.what) > 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CASES)
def test_float32(name: str, library: str, folder_of: Callable, expected: Callable) -> None:
    """Each head's weights and each layer's vectors at most twice as far from float64 as transformers' own float32.

    Where transformers is right to the last bit, rounding the result may still cost half a unit in the last place.
    """
    model = opened(folder_of(name), backend=library, dtype="float32")
    for ids in TEXTS:
        exact = expected(name, ids)
        theirs = {pair.what: pair.apart for pair in side_by_side(expected(name, ids, "float32"), exact)}
        for pair in pairs(model, exact, ids):
            assert pair.ours.dtype == np.float32
            assert pair.apart <= 2 * theirs[pair.what] + 2.0**-24, pair.what


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CASES)
def test_float32_throughout(
    name: str, library: str, folder_of: Callable, expected: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs too large for float64: at most twice transformers' distance, root mean square over all heads and vectors.

    Tiny random models magnify single roundings by chance; the geometric mean over three texts evens that out.
    """
    monkeypatch.setattr(estimate, "WIDE_UP_TO", 0.0)
    model = opened(folder_of(name), backend=library, dtype="float32")
    assert model.computing(len(IDS)) is model.backend
    ratios = []
    for ids in TEXTS:
        exact = expected(name, ids)
        ours = rms([pair.ours - pair.theirs for pair in pairs(model, exact, ids)])
        single = [array for side in expected(name, ids, "float32") for array in arrays(side)]
        double = [array for side in exact for array in arrays(side)]
        ratios.append(ours / rms([one - other for one, other in zip(single, double, strict=True)]))
    assert np.exp(np.mean(np.log(ratios))) < 2.0


def arrays(side: Side) -> list[np.ndarray]:
    return [*side.hidden, *side.weights, *side.cross]


def rms(differences: list[np.ndarray]) -> float:
    return float(
        np.sqrt(sum(np.sum(one.astype(np.float64) ** 2) for one in differences) / sum(one.size for one in differences))
    )


def test_every_family_has_a_case() -> None:
    assert {case.model_type for case in CASES.values()} == set(MODEL_TYPES)


def attention(spec: Spec, **changed: object) -> Spec:
    return replace(
        spec, blocks=tuple(replace(block, attention=replace(block.attention, **changed)) for block in spec.blocks)
    )


def blocks(spec: Spec, change: Callable[[Block], Block]) -> Spec:
    return replace(spec, blocks=tuple(change(block) for block in spec.blocks))


def unshared(part: Mlp | Experts | None) -> Mlp | Experts | None:
    return replace(part, shared_share=False) if isinstance(part, Experts) else part


def placed(spec: Spec, **changed: object) -> Spec:
    return attention(spec, position=replace(spec.blocks[0].attention.position, **changed))


def ungrouped(block: Block) -> Block:
    if not isinstance(block.mlp, Experts):
        return block
    return replace(block, mlp=replace(block.mlp, routing=replace(block.mlp.routing, groups=1, groups_chosen=1)))


def rope(spec: Spec, **changed: object) -> Spec:
    def turned(block: Block) -> Block:
        if not isinstance(block.attention.position, Rope):
            return block
        return replace(block, attention=replace(block.attention, position=replace(block.attention.position, **changed)))

    return blocks(spec, turned)


def norms(spec: Spec, **changed: object) -> Spec:
    return blocks(
        spec,
        lambda block: replace(block, norms={place: replace(norm, **changed) for place, norm in block.norms.items()}),
    )


TURNED: list[tuple[str, str, Callable[[Spec], Spec]]] = [
    ("bert", "scale", lambda spec: attention(spec, scale=spec.blocks[0].attention.scale * 1.001)),
    ("bert", "eps", lambda spec: norms(spec, eps=1.1e-3)),
    ("bert", "activation", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    activation="gelu_tanh")))),
    ("bert", "causal", lambda spec: attention(spec, mask=Causal())),
    ("roberta", "offset", lambda spec: replace(spec, embedding=replace(spec.embedding, position_offset=0))),
    ("distilbert", "norm place", lambda spec: blocks(spec, lambda block: replace(block, norms={"attn.sum": block.norms[
    "attn.sum"]}))),
    ("modernbert", "window", lambda spec: attention(spec, mask=Everywhere())),
    ("modernbert", "theta", lambda spec: rope(spec, theta=97.0)),
    ("longformer", "windows", lambda spec: attention(spec, mask=AnyOf((Window(2, 2), Global((0,)))))),
    ("longformer", "global projections", lambda spec: attention(spec, own_global=())),
    ("longformer by silence", "global", lambda spec: seeing_all(spec, (0,))),
    ("big_bird", "blocks", lambda spec: attention(spec, mask=Everywhere())),
    ("big_bird", "what counts again", lambda spec: attention(spec, position=None)),
    ("gpt2", "layer's scale", lambda spec: attention(spec, scale=spec.blocks[0].attention.scale)),
    ("gpt_neo", "window", lambda spec: attention(spec, mask=Causal())),
    ("gptj", "pairing", lambda spec: rope(spec, pairing="half")),
    ("gpt_neox", "share", lambda spec: rope(spec, dims=4)),
    ("gpt_neox in sequence", "scaling", lambda spec: rope(spec, scaling=None)),
    ("bloom", "positions", lambda spec: attention(spec, position=None)),
    ("bloom", "both ways", lambda spec: attention(spec, mask=Everywhere(), position=Alibi(symmetric=True))),
    ("llama", "theta", lambda spec: rope(spec, theta=97.5)),
    ("llama linear", "scaling", lambda spec: rope(spec, scaling=None)),
    ("llama 3.1", "scaling", lambda spec: rope(spec, scaling=None)),
    ("llama yarn", "scaling", lambda spec: rope(spec, scaling=None)),
    ("llama dynamic", "scaling", lambda spec: rope(spec, scaling=None)),
    ("phi3 long", "scaling", lambda spec: rope(spec, scaling=None)),
    ("mistral", "window", lambda spec: attention(spec, mask=Causal())),
    ("mixtral", "chosen", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp, chosen=3)))),
    ("qwen3_moe", "shares", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    renormalise=True)))),
    ("qwen3", "query norm", lambda spec: attention(spec, qk_norm=None)),
    ("gemma", "offset of weights", lambda spec: norms(spec, unit_offset=False)),
    ("gemma", "embedding", lambda spec: replace(spec, embedding=replace(spec.embedding, scale=1.0))),
    ("gemma2", "soft cap", lambda spec: attention(spec, softcap=None)),
    ("gemma2", "soft cap near 2", lambda spec: attention(spec, softcap=2.01)),
    ("cohere", "parallel", lambda spec: blocks(spec, lambda block: replace(block, parallel=False))),
    ("granite", "branches", lambda spec: blocks(spec, lambda block: replace(block, branch_scale=1.0))),
    ("granite", "embedding", lambda spec: replace(spec, embedding=replace(spec.embedding, scale=1.0))),
    ("granitemoe", "chosen", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp, chosen=3)))),
    ("glm", "pairing", lambda spec: rope(spec, pairing="half")),
    ("olmo", "cut off", lambda spec: attention(spec, clip=None)),
    ("olmo3", "scaling", lambda spec: rope(spec, scaling=None)),
    ("olmo3", "theta", lambda spec: rope(spec, theta=97.0)),
    ("starcoder2", "window", lambda spec: attention(spec, mask=Causal())),
    ("cohere2", "positions everywhere", lambda spec: attention(spec, position=spec.blocks[0].attention.position)),
    ("exaone4", "positions everywhere", lambda spec: attention(spec, position=spec.blocks[0].attention.position)),
    ("nemotron", "offset of weights", lambda spec: norms(spec, unit_offset=False)),
    ("nemotron", "activation", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    activation="relu")))),
    ("qwen2_moe", "share", lambda spec: blocks(spec, lambda block: replace(block, mlp=unshared(block.mlp)))),
    ("ernie4_5", "pairing", lambda spec: rope(spec, pairing="half")),
    ("gpt_oss", "sinks", lambda spec: attention(spec, sinks=False)),
    ("gpt_oss", "bounds", lambda spec: blocks(spec, lambda block: replace(block, mlp=replace(block.mlp,
    bounded=None)))),
    ("deepseek_v2", "rotated entries", lambda spec: rope(spec, first=0)),
    ("deepseek_v3 in halves", "groups", lambda spec: blocks(spec, lambda block: ungrouped(block))),
    ("deepseek_v3", "scale", lambda spec: attention(spec, scale=10**-0.5)),
    ("llama4_text", "temperature", lambda spec: attention(spec, temperature=None)),
    ("llama4_text", "chunks", lambda spec: attention(spec, mask=Causal())),
    ("deberta-v2", "queries", lambda spec: placed(spec, asks=False)),
    ("deberta-v2", "keys", lambda spec: placed(spec, answers=False)),
    ("deberta-v2", "norm", lambda spec: placed(spec, norm=None)),
    ("deberta-v2 one way", "distances", lambda spec: placed(spec, furthest=None)),
    ("smollm3", "positions everywhere", lambda spec: attention(spec, position=spec.blocks[0].attention.position)),
    ("t5", "scale", lambda spec: attention(spec, scale=spec.blocks[0].attention.head_dim ** -0.5)),
    ("t5", "distances", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    max_distance=30))),
    ("mpnet", "distances", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    max_distance=20))),
    ("falcon alibi", "factor", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    factor=1.0))),
    ("falcon alibi", "rounding", lambda spec: attention(spec, position=replace(spec.blocks[0].attention.position,
    coarse=False))),
    ("bart", "embedding", lambda spec: replace(spec, embedding=replace(spec.embedding, scale=1.0))),
    ("gte", "positions", lambda spec: attention(spec, position=None)),
    ("mbart", "norms", lambda spec: norms(spec, eps=1.0)),
    ("m2m_100", "positions", lambda spec: replace(spec, embedding=replace(spec.embedding, positions="halves"))),
    ("blenderbot", "scale", lambda spec: attention(spec, scale=0.3)),
    ("led", "windows", lambda spec: attention(spec, mask=Window(2, 2))),
    ("led", "global", lambda spec: seeing_all(spec, (0,))),
    ("t5gemma", "windows", lambda spec: attention(spec, mask=Window(3, 3))),
    ("t5gemma", "norm after cross-attention", lambda spec: replace(spec, decoder=blocks(spec.decoder, lambda block:
    replace(block, norms={place: norm for place, norm in block.norms.items() if place != "cross.out"})))),
    ("whisper", "causal", lambda spec: attention(spec, mask=Everywhere())),
    ("whisper", "what it reads", lambda spec: blocks(spec, lambda block: replace(block, cross=replace(block.cross,
    scale=0.3)))),
    ("marian", "positions", lambda spec: replace(spec, embedding=replace(spec.embedding, positions="sinusoidal"))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "knob", "turn"), TURNED, ids=[f"{name}: {knob}" for name, knob, _ in TURNED])
def test_negative_controls(
    name: str, knob: str, turn: Callable[[Spec], Spec], folder_of: Callable, expected: Callable
) -> None:
    model = opened(folder_of(name), backend="numpy", dtype="float64")
    spec = turn(model.spec)
    assert spec != model.spec
    turned = replace(model, spec=spec, store=CheckpointStore(spec, model.store.checkpoint, model.store.binding))
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
    found = [pair for pair in pairs(model, expected("llama")) if pair.what.startswith("side 0 layer 0 weights")]
    assert all(Pair("", one.ours, other.theirs).apart > 1e-3 for one, other in pairwise(found))
