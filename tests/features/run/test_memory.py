"""What a run is expected to take at its peak, against what its arrays took."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_checkpoints import CASES, make

import attncli
from attncli.draw.encoding import json_pieces
from attncli.features.run.compute import RunRequest, SavedStages, _measured_run, cost
from attncli.mechanism.mask import Causal
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model

WORDS = " ".join(f"w{place % 53}" for place in range(307))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["llama"], tmp_path_factory.mktemp("llama"))


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def seeded() -> Model:
    base = attncli.load(seed=0)
    return seeded_model(
        Settings(d_model=60, heads=6, mask=Causal(), position="alibi"),
        0,
        "seeded",
        base.tokenizer,
        base.backend,
    )


def took(model: Model, text: str, wanted: RunRequest, *, saved: bool = False) -> float:
    """Estimated bytes at the peak over those that were allocated, the document written out."""
    tokens = (
        model.encode(text)
        if model.identity.source == "seeded"
        else model.tokenizer.ids_to_tokens([7, 3, 50, 11, 28] * 61)
    )
    expected = cost(model, len(tokens), wanted, is_saved=saved).peak
    stored = SavedStages(model)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    document = _measured_run(model, text, tokens, wanted, on_trace=stored.add if saved else None)
    for _ in json_pieces(document):
        pass
    return expected / (tracemalloc.get_traced_memory()[1] - before)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("wanted", "saved"),
    [
        (RunRequest(matrices=False), False), (RunRequest(), False), (RunRequest(query=3), False),
        (RunRequest(stages=True), False), (RunRequest(matrices=False), True),
    ],
    ids=["links", "matrices", "query", "stages", "saved"],
)  # fmt: skip
def test_one_layer(wanted: RunRequest, saved: bool) -> None:
    model = seeded()
    took(model, "a b", RunRequest())  # what is imported on the way
    assert 0.7 < took(model, WORDS, wanted, saved=saved) < 2


@pytest.mark.many
@pytest.mark.usefixtures("llama", "traced")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "wanted",
    [
        RunRequest(matrices=False),
        RunRequest(),
        RunRequest(query=3),
        RunRequest(heads=[1]),
        RunRequest(heads=[1], stages=True),
    ],
    ids=["links", "matrices", "query", "head", "stages of a head"],
)
def test_layers(wanted: RunRequest, dtype: str, llama: Path) -> None:
    model = attncli.load(llama, dtype=dtype, backend="numpy")
    took(model, "", wanted)
    assert 0.7 < took(model, "", wanted) < 2


def numbers_in(value: object) -> int:
    """How many numbers lists and dictionaries hold."""
    if isinstance(value, dict):
        return sum(map(numbers_in, value.values()))
    if isinstance(value, list):
        return sum(map(numbers_in, value))
    return 1


@pytest.mark.parametrize("family", ["llama", "bert", "gpt_neox"])
@pytest.mark.parametrize("query", [None, 3])
def test_stages_are_counted_number_by_number(
    family: str, query: int | None, tmp_path: Path
) -> None:
    """Families whose norms lie before attention, after it, and which read beside it."""
    model = attncli.load(make(CASES[family], tmp_path))
    tokens = model.tokenizer.ids_to_tokens([7, 3, 50, 11, 28])
    wanted = RunRequest(stages=True, query=query)
    pieces = json_pieces(_measured_run(model, "", tokens, wanted))
    layers = json.loads(b"".join(pieces))["layers"]
    names = sum(1 + len(layer["heads"]) for layer in layers)  # of layers and heads
    expected = cost(model, len(tokens), wanted, is_saved=False).numbers
    assert numbers_in(layers) - names == expected
