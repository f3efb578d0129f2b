"""Longformer's global tokens, whichever they are: against transformers, by blocks of rows, in
batches, in documents.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from tiny_checkpoints import CASES, Case, make
from tiny_sizes import BERT

import attncli
from attncli.errors import InputError, UnsupportedError
from attncli.features.heads.compute import sizes_by_query
from attncli.models.config import global_tokens, with_global_tokens
from attncli.models.model import Model, take_text
from attncli.models.verify import reference

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(CASES["longformer by silence"], tmp_path_factory.mktemp("longformer"))


def loaded(folder: Path, tokens: tuple[int, ...], library: str = "numpy") -> Model:
    model = attncli.load(folder, backend=library, dtype="float64")
    return replace(model, spec=with_global_tokens(model.spec, tokens))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_scale_that_is_a_power_of_two(tmp_path: Path, library: str) -> None:
    """Then queries are scaled in place of scores, unless scores are asked for before: global ones,
    too.
    """
    sizes = {**BERT, "hidden_size": 24, "num_attention_heads": 6, "attention_window": 4}
    folder = make(Case("longformer", sizes), tmp_path)
    model = loaded(folder, (0, 5), library)
    (theirs,) = reference(folder, IDS, everywhere=(0, 5))
    for trace in model.trace(model.tokenizer.ids_to_tokens(IDS), keep=("weights",)):
        assert (
            np.abs(model.backend.numpy(trace.stages["weights"]) - theirs.weights[trace.layer]).max()
            < 1e-12
        )


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_any_tokens_are_global_as_in_transformers(folder: Path, library: str) -> None:
    model = loaded(folder, (5, 0, 9), library)
    assert global_tokens(model.spec) == (0, 5, 9)
    (theirs,) = reference(folder, IDS, everywhere=(0, 5, 9))
    for trace in model.trace(model.tokenizer.ids_to_tokens(IDS)):
        assert (
            np.abs(model.backend.numpy(trace.stages["weights"]) - theirs.weights[trace.layer]).max()
            < 1e-12
        )
        assert trace.stages["global_q"].shape == (3, 3, 10)
    assert np.abs(model.backend.numpy(trace.after) - theirs.hidden[-1]).max() < 1e-10


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_blocks_of_rows_and_batches_give_the_same(folder: Path, library: str) -> None:
    model = loaded(folder, (1, 6, 12), library)
    plain, tokens = model.backend.numpy, model.tokenizer.ids_to_tokens(IDS)
    whole = list(model.trace(tokens))
    for rows in (1, 4):
        found = np.zeros((2, 3, len(IDS), len(IDS)))

        def see(layer: int, kind: str, block: object, found: np.ndarray = found) -> None:
            weights = plain(block.stages["weights"])
            heads = slice(block.first_head, block.first_head + weights.shape[0])
            found[layer, heads, block.start : block.stop, block.low : block.high] = weights

        streamed = list(model.trace(tokens, keep=("weights",), rows=rows, on_block=see))
        for trace, other in zip(whole, streamed, strict=True):
            assert np.abs(plain(trace.stages["weights"]) - found[trace.layer]).max() < 1e-12
            assert np.abs(plain(trace.after - other.after)).max() < 1e-12
    for trace, batch in zip(whole, model.trace_batch([tokens, tokens[:5]]), strict=True):
        assert np.abs(plain(trace.after - take_text(batch, 0, len(tokens)).after)).max() < 1e-12
    for trace, batch in zip(
        model.trace(tokens[:5]), model.trace_batch([tokens, tokens[:5]]), strict=True
    ):
        assert np.abs(plain(trace.after - take_text(batch, 1, 5).after)).max() < 1e-12


def test_an_encoder_with_global_tokens_feeds_its_decoder(tmp_path: Path) -> None:
    folder, target = make(CASES["led"], tmp_path), (2, 17, 33, 8)
    model = loaded(folder, (0, 3))
    _, theirs = reference(folder, IDS, target=target, everywhere=(0, 3))
    decoder = model.decoder(model.tokenizer.ids_to_tokens(IDS))
    for trace in decoder.trace(model.tokenizer.ids_to_tokens(target)):
        assert np.abs(trace.cross.stages["weights"] - theirs.cross[trace.layer]).max() < 1e-12


def test_what_a_global_token_moves_is_of_its_own_values(folder: Path) -> None:
    model = loaded(folder, (4,))
    trace = next(iter(model.trace(model.tokenizer.ids_to_tokens(IDS))))
    sizes, w_o = sizes_by_query(model, trace), model.store.layer(model.backend, 0)("attn.o.weight")
    for query, stage in ((3, "v"), (4, "global_v")):
        moved = np.linalg.norm(w_o[:, 10:20] @ trace.stages[stage][1, 7])
        assert sizes[1, query, 7] == pytest.approx(moved)


def test_refusals(folder: Path) -> None:
    model = attncli.load(folder)
    assert global_tokens(with_global_tokens(model.spec, ())) == ()
    with pytest.raises(InputError, match="no token 29"):
        with_global_tokens(model.spec, (29,))
    with pytest.raises(UnsupportedError, match="no global tokens"):
        with_global_tokens(attncli.load(seed=0).spec, (0,))


def test_the_command_line_says_which_are_global(folder: Path) -> None:
    ids = " ".join(map(str, IDS))
    run = ask(
        "run",
        "--model",
        str(folder),
        "--ids",
        ids,
        "--global-tokens",
        "0,5",
        "--json",
        "--stages",
        "all",
    ).json
    assert run["attention"]["mask"] == "window:2,2|global:0,5"
    assert [row["step"] for row in run["shapes"]][4:7] == ["global_q", "global_k", "global_v"]
    head = run["layers"][1]["heads"][2]
    q, k = (np.array(head["stages"][name]) for name in ("global_q", "global_k"))
    assert np.abs(np.array(head["stages"]["raw"])[5] - q[1] @ k.T).max() < 1e-5
    for query in ("#5", "#6"):  # worked out by hand from its own q, k and v
        told = ["--ids", ids, "--global-tokens", "0,5", "--query", query, "--json"]
        assert ask("explain", "--model", str(folder), *told).json["agreement"] < 1e-5
    assert ask("run", "a b", "--global-tokens", "0").code == 2
    assert ask("run", "--model", str(folder), "--ids", ids, "--global-tokens", "x").code == 2
