"""Short float32 runs of a checkpoint are computed in float64 and rounded once, whichever way they
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import Backend
from attncli.mechanism.attend import RowBlock
from attncli.models import estimate

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
LIBRARIES = ("numpy", "torch")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["llama"], tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_stage_is_the_float64_number_rounded_once(llama: Path, library: str) -> None:
    wide, narrow = (
        attncli.load(llama, backend=library, dtype=dtype) for dtype in ("float64", "float32")
    )
    plain = narrow.backend.numpy
    for ours, theirs in zip(
        narrow.trace(narrow.tokenizer.ids_to_tokens(IDS)),
        wide.trace(wide.tokenizer.ids_to_tokens(IDS)),
        strict=True,
    ):
        assert {"q", "masked", "weights", "out"} <= set(ours.stages)
        for name in ours.stages:
            assert np.array_equal(
                plain(ours.stages[name]), plain(theirs.stages[name]).astype(np.float32)
            ), name
        assert np.array_equal(plain(ours.after), plain(theirs.after).astype(np.float32))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("family", ["t5", "bart"])
def test_what_the_decoder_reads_is_not_rounded_before(
    family: str, library: str, tmp_path: Path
) -> None:
    made = make(CASES[family], tmp_path)
    narrow, wide = (
        attncli.load(made, backend=library, dtype=dtype) for dtype in ("float32", "float64")
    )
    source, text = narrow.tokenizer.ids_to_tokens(IDS), narrow.tokenizer.ids_to_tokens(IDS[:5])
    for ours, theirs in zip(
        narrow.decoder(source).trace(text), wide.decoder(source).trace(text), strict=True
    ):
        assert ours.cross is not None
        assert theirs.cross is not None
        for one, other in ((ours, theirs), (ours.cross, theirs.cross)):
            for name in one.stages:
                found = narrow.backend.numpy(one.stages[name])
                assert np.array_equal(
                    found, wide.backend.numpy(other.stages[name]).astype(np.float32)
                ), name


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("longest", [6, 13])
def test_two_sides_may_compute_in_two_types(
    longest: int, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = attncli.load(make(CASES["bart"], tmp_path), backend=library)
    source, text = (
        model.tokenizer.ids_to_tokens(ids)
        for ids in ((IDS, IDS[:5]) if longest == 6 else (IDS[:5], (*IDS, 4)))
    )
    exact = [
        trace.cross.stages["weights"]
        for trace in model.decoder(source).trace(text)
        if trace.cross is not None
    ]
    monkeypatch.setattr(
        "attncli.models.model.compute_dtype",
        lambda spec, count, dtype: "float64" if count <= longest else dtype,
    )
    decoder = model.decoder(source)
    assert {model.compute_backend(len(source)).dtype, decoder.compute_backend(len(text)).dtype} == {
        "float32",
        "float64",
    }
    for trace, theirs in zip(decoder.trace(text), exact, strict=True):
        assert trace.cross is not None
        ours = trace.cross.stages["weights"]
        assert model.backend.dtype_of(ours) == model.backend.dtype_of(trace.after) == "float32"
        assert np.abs(model.backend.numpy(ours) - model.backend.numpy(theirs)).max() < 1e-4


@pytest.mark.parametrize("library", LIBRARIES)
def test_blocks_of_rows_are_of_the_results_type_and_numbers(llama: Path, library: str) -> None:
    model = attncli.load(llama, backend=library)
    tokens = model.tokenizer.ids_to_tokens(IDS)
    heads = model.spec.blocks[0].attention.heads
    found = np.zeros((len(model.spec.blocks), heads, len(IDS), len(IDS)), np.float32)

    def see(layer: int, kind: str, block: RowBlock) -> None:
        dtypes = {
            model.backend.dtype_of(array)
            for array in (block.mixed, block.lse, *block.stages.values())
        }
        assert (kind, dtypes) == ("self", {"float32"})
        weights = model.backend.numpy(block.stages["weights"])
        own = slice(block.first_head, block.first_head + len(weights))
        found[layer, own, block.start : block.stop, block.low : block.high] = weights

    for _ in model.trace(tokens, keep=("weights",), rows=1, on_block=see):
        pass
    for trace in model.trace(tokens, keep=("weights",)):
        assert (
            np.abs(found[trace.layer] - model.backend.numpy(trace.stages["weights"])).max()
            <= 2.0**-24
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_kept_keys_stay_of_the_type_they_began_with(
    llama: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = attncli.load(llama, backend=library)
    tokens = model.tokenizer.ids_to_tokens(IDS)
    (whole,) = model.trace(tokens, layers=[2], keep=())
    past: dict = {}
    list(model.trace(tokens[:9], past=past, keep=()))
    monkeypatch.setattr(estimate, "WIDE_UP_TO", 0.0)
    (rest,) = model.trace(tokens[9:], layers=[2], past=past, keep=())
    assert model.backend.dtype_of(past[2][0]) == "float64"
    assert model.backend.dtype_of(rest.after) == "float32"
    assert np.array_equal(model.backend.numpy(rest.after), model.backend.numpy(whole.after)[9:])


def test_a_number_too_large_for_the_results_type_is_infinite_without_a_warning(
    llama: Path, recwarn: pytest.WarningsRecorder
) -> None:
    from attncli.models.model import round_trace

    model = attncli.load(llama, backend="numpy")
    trace = next(iter(model.trace(model.tokenizer.ids_to_tokens(IDS))))
    found = round_trace(
        model.backend,
        round_trace(attncli.load(llama, backend="numpy", dtype="float64").backend, trace),
    )
    assert np.array_equal(found.after, trace.after)
    trace.stages["out"] = np.full((1, 1), -1e39)
    assert round_trace(model.backend, trace).stages["out"] == -np.inf
    assert not recwarn


def test_only_short_float32_runs_of_checkpoints(llama: Path) -> None:
    for dtype in ("float64", "bfloat16", "float16"):
        model = attncli.load(llama, backend="torch", dtype=dtype)
        assert model.compute_backend(13) is model.backend
    assert attncli.load(llama, backend="numpy").compute_backend(13).dtype == "float64"
    assert attncli.load(llama, backend="numpy").compute_backend(2_000_000).dtype == "float32"
    assert attncli.load(seed=0).compute_backend(13).dtype == "float32"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scores_and_weights_of_low_precision_are_float32(
    llama: Path, library: str, dtype: str
) -> None:
    model = attncli.load(llama, backend=library, dtype=dtype)
    tokens = model.tokenizer.ids_to_tokens(IDS)

    def see(stages: Mapping[str, Any]) -> None:
        assert model.backend.dtype_of(stages["weights"]) == "float32"
        assert np.abs(model.backend.numpy(stages["weights"]).sum(-1) - 1).max() < 1e-6

    traces = list(model.trace(tokens))
    for trace in traces:
        see(trace.stages)
    traces += model.trace(
        tokens, rows=1, keep=("weights",), on_block=lambda layer, kind, block: see(block.stages)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_later_tokens_read_weights_of_the_same_type(
    llama: Path, library: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = attncli.load(llama, backend=library, dtype=dtype)
    tokens = model.tokenizer.ids_to_tokens(IDS)
    read: list[str] = []
    layer = type(model.store).layer

    def told(store: object, backend: Backend, index: int) -> object:
        read.append(backend.dtype)
        return layer(store, backend, index)

    monkeypatch.setattr(type(model.store), "layer", told)
    past: dict = {}
    for part in (tokens[:9], tokens[9:]):
        list(model.trace(part, past=past, keep=()))
    assert read == [model.compute_backend(9).dtype] * 6


def test_stages_that_share_an_array_go_on_sharing_it(llama: Path) -> None:
    model = attncli.load(llama, backend="numpy")
    stages = next(iter(model.trace(model.tokenizer.ids_to_tokens(IDS)))).stages
    assert stages["scaled"] is stages["capped"] is stages["biased"]
    assert stages["biased"] is not stages["masked"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_weights_that_are_held_are_held_in_each_type(library: str, tmp_path: Path) -> None:
    made = make(CASES["gpt2 with head"], tmp_path)
    narrow, wide = (
        attncli.load(made, backend=library, dtype=dtype) for dtype in ("float32", "float64")
    )
    last = list(narrow.trace(narrow.tokenizer.ids_to_tokens(IDS)))[-1].after
    for _ in range(2):
        logits, finished = narrow.logits(last), narrow.finish(last)
        assert {narrow.backend.dtype_of(logits), narrow.backend.dtype_of(finished)} == {"float32"}
        exact = wide.finish(wide.backend.cast(last, "float64"))
        assert np.array_equal(
            narrow.backend.numpy(finished), wide.backend.numpy(exact).astype(np.float32)
        )


def test_apple_gpus_which_have_no_float64_are_not_asked_for_it(llama: Path) -> None:
    model = attncli.load(llama, backend="torch")
    there = SimpleNamespace(name="torch", device="mps:0", dtype="float32")
    assert replace(model, backend=there).compute_backend(13) is there


@pytest.mark.parametrize("library", LIBRARIES)
def test_texts_in_a_batch(llama: Path, library: str) -> None:
    wide, narrow = (
        attncli.load(llama, backend=library, dtype=dtype) for dtype in ("float64", "float32")
    )
    texts = [narrow.tokenizer.ids_to_tokens(ids) for ids in (IDS, IDS[:5])]
    for ours, theirs in zip(narrow.trace_batch(texts), wide.trace_batch(texts), strict=True):
        for name in ours.stages:
            found = narrow.backend.numpy(ours.stages[name])
            assert np.array_equal(
                found, wide.backend.numpy(theirs.stages[name]).astype(np.float32)
            ), name


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [None, 4])
def test_a_score_too_large_for_the_results_type_is_not_taken_for_a_hidden_one(
    llama: Path, library: str, rows: int | None
) -> None:
    model = attncli.load(llama, backend=library)
    blocks = tuple(
        replace(block, attention=replace(block.attention, scale=1e39))
        for block in model.spec.blocks
    )
    model = replace(model, spec=replace(model.spec, blocks=blocks))
    seen: list[RowBlock] = []
    traces = list(
        model.trace(
            model.tokenizer.ids_to_tokens(IDS),
            rows=rows,
            on_block=lambda layer, kind, block: seen.append(block),
        )
    )
    for start, masked in (
        [(0, trace.stages["masked"]) for trace in traces]
        if rows is None
        else [(b.start, b.stages["masked"]) for b in seen]
    ):
        scores = model.backend.numpy(masked)
        hidden = np.arange(scores.shape[2]) > start + np.arange(scores.shape[1])[:, None]
        assert scores.dtype == np.float32
        assert np.abs(scores[scores > -np.inf]).max() == np.finfo(np.float32).max
        assert np.array_equal(scores == -np.inf, np.broadcast_to(hidden, scores.shape))
