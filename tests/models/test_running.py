"""Running a checkpoint: what is read and when, logits, continuing with cached keys, both sides of
an encoder-decoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tiny_checkpoints import CASES, make

import attncli
from attncli.errors import InputError, UnsupportedError
from attncli.inputs import checkpoint
from attncli.inputs.checkpoint import Checkpoint
from attncli.models.model import Model

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: make(CASES[name], tmp_path_factory.mktemp("checkpoint")))


def loaded(folder: Path, library: str = "numpy", dtype: str = "float64") -> Model:
    return attncli.load(folder, backend=library, dtype=dtype)


def test_only_the_rows_and_layers_asked_for_are_read(folder_of: Callable) -> None:
    folder = folder_of("gpt2")
    model = loaded(folder)
    assert model.store.bytes_read() == 0
    (trace,) = model.trace(model.tokenizer.ids_to_tokens(IDS), layers=[0])
    sizes = {name: info.bytes for name, info in Checkpoint.open(folder).names().items()}
    layer = sum(size for name, size in sizes.items() if name.startswith(("h.0.ln_1", "h.0.attn")))
    rows = (len(set(IDS)) + len(IDS)) * 30 * 4  # each different token's vector, each position's
    assert trace.layer == 0
    assert model.store.bytes_read() == layer + rows


def test_every_layer_is_read_once(folder_of: Callable) -> None:
    folder = folder_of("t5")
    model = loaded(folder)
    *_, last = model.trace(model.tokenizer.ids_to_tokens(IDS))
    assert last.after is not None
    sizes = {name: info.bytes for name, info in Checkpoint.open(folder).names().items()}
    layers = sum(size for name, size in sizes.items() if name.startswith("encoder.block."))
    assert model.store.bytes_read() == layers + len(set(IDS)) * 30 * 4


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "phi3"])
def test_products_while_reading_are_those_of_whole_tensors(
    name: str, folder_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of matrices stored turned, and of tensors that several roles share side by side or in groups."""
    folder = folder_of(name)
    tokens = loaded(folder).tokenizer.ids_to_tokens(IDS)
    whole = [trace.after for trace in loaded(folder).trace(tokens)]
    monkeypatch.setattr(checkpoint, "WORTH_A_PLAN", 1)
    monkeypatch.setattr(checkpoint, "PIECE", 2000)  # less than any matrix, more than a vector
    done: list[str] = []
    product = Checkpoint.product

    def noted(self: Checkpoint, name: str, *others: Any, **more: Any) -> Any:
        found = product(self, name, *others, **more)
        done.append(name if found is not None else "")
        return found

    monkeypatch.setattr(Checkpoint, "product", noted)
    model = loaded(folder)
    again = [trace.after for trace in model.trace(tokens)]
    for one, other in zip(whole, again, strict=True):
        assert np.abs(one - other).max() < 1e-12 * np.abs(one).max()
    matrices = {
        n
        for n, info in Checkpoint.open(folder).names().items()
        if len(info.shape) == 2 and ".0." in n
    }
    assert sorted(matrices) == sorted(n for n in done if ".0." in n)


@pytest.mark.many
@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.saved_by == "AutoModelForCausalLM"]
)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_logits(name: str, library: str, folder_of: Callable) -> None:
    import torch
    import transformers

    folder = folder_of(name)
    model = loaded(folder, library, "float32")
    (last,) = model.trace(
        model.tokenizer.ids_to_tokens(IDS), layers=[len(model.spec.blocks) - 1], idle=True
    )
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    with torch.no_grad():
        expected = theirs(torch.tensor([IDS])).logits[0].numpy()
    found = model.backend.numpy(model.logits(last.after))
    assert found.shape == (len(IDS), 61)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()
    assert (
        np.abs(model.backend.numpy(model.logits(last.before)) - expected).max() > 1e-2
    )  # another layer's vectors give others


def test_an_encoder_has_no_logits(folder_of: Callable) -> None:
    model = loaded(folder_of("bert"))
    (last,) = model.trace(model.tokenizer.ids_to_tokens(IDS), layers=[1])
    with pytest.raises(UnsupportedError, match="predicts no next token"):
        model.logits(last.after)


MIXERS = (
    "lfm2",
    "bamba",
    "jamba",
    "falcon_h1",
    "qwen3_next",
    "kimi_linear",
    "minimax",
    "nemotron_h",
)


@pytest.mark.parametrize(
    "name", ["gpt2", "llama 3.1", "gemma3_text", "bloom", "mistral", "falcon new", *MIXERS]
)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_continuing_with_cached_keys_changes_nothing(
    name: str, library: str, folder_of: Callable
) -> None:
    model = loaded(folder_of(name), library)
    tokens = model.tokenizer.ids_to_tokens(IDS)
    whole = list(model.trace(tokens, idle=True))
    past: dict = {}
    pieces = [
        list(model.trace(part, past=past, idle=True))
        for part in (tokens[:6], tokens[6:7], tokens[7:])
    ]
    plain = model.backend.numpy
    for layer, trace in enumerate(whole):
        after = np.concatenate([plain(piece[layer].after) for piece in pieces])
        np.testing.assert_allclose(after, plain(trace.after), rtol=1e-11, atol=1e-11)
        weights = plain(pieces[2][layer].stages["weights"])
        assert weights.shape == (trace.stages["weights"].shape[0], len(IDS) - 7, len(IDS))
        np.testing.assert_allclose(
            weights, plain(trace.stages["weights"])[:, 7:], rtol=1e-11, atol=1e-11
        )


def test_row_blocks_and_chosen_heads(folder_of: Callable) -> None:
    model = loaded(folder_of("gemma2"))
    tokens = model.tokenizer.ids_to_tokens(IDS)
    whole = list(model.trace(tokens))
    seen: dict[int, np.ndarray] = {}

    def see(layer: int, kind: str, block) -> None:
        full, weights = (
            seen.setdefault(layer, np.zeros((6, len(IDS), len(IDS)))),
            block.stages["weights"],
        )
        own = slice(block.first_head, block.first_head + len(weights))
        full[own, block.start : block.stop, block.low : block.high] = weights

    for trace in model.trace(tokens, rows=1, on_block=see):
        np.testing.assert_allclose(trace.after, whole[trace.layer].after, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(
            seen[trace.layer], whole[trace.layer].stages["weights"], atol=1e-12
        )
    (chosen,) = model.trace(tokens, layers=[1], heads=[1, 4])
    np.testing.assert_array_equal(chosen.stages["weights"], whole[1].stages["weights"][[1, 4]])
    np.testing.assert_array_equal(chosen.stages["k"], whole[1].stages["k"][[0, 1]])


def test_the_decoder_reads_its_source(folder_of: Callable) -> None:
    model = loaded(folder_of("bart"))
    source, other = (model.tokenizer.ids_to_tokens(ids) for ids in (IDS, (*IDS[:-1], 18)))
    target = model.tokenizer.ids_to_tokens((2, 9, 40, 6))
    traces = list(model.decoder(source).trace(target, heads=[0, 3]))
    assert [trace.cross.stages["weights"].shape for trace in traces if trace.cross is not None] == [
        (2, 4, len(IDS))
    ] * 3
    assert np.allclose(traces[0].cross.stages["weights"].sum(-1), 1)
    changed = list(model.decoder(other).trace(target, heads=[0, 3]))
    assert not np.allclose(traces[0].cross.stages["weights"], changed[0].cross.stages["weights"])
    with pytest.raises(UnsupportedError, match="no cross-attention"):
        loaded(folder_of("bert")).decoder(source)
    with pytest.raises(InputError, match="there is no head 5"):
        list(model.decoder(source).trace(target, heads=[5]))


def test_a_token_beyond_the_table_is_told(folder_of: Callable) -> None:
    model = loaded(folder_of("llama"))
    with pytest.raises(InputError, match="id 61, the embedding has 61 rows"):
        list(model.trace(model.tokenizer.ids_to_tokens([3, 61])))


def test_text_without_a_tokenizer_is_told(folder_of: Callable) -> None:
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        loaded(folder_of("llama")).encode("a text")


def test_a_decoder_text_is_shifted() -> None:
    from attncli.inputs.tokenize import ShiftedTokenizer, tokenizer

    shifted = ShiftedTokenizer(tokenizer("byte"), 0)
    assert [(token.index, token.id, token.special) for token in shifted.encode("abc")] == [
        (0, 0, True),
        (1, 97, False),
        (2, 98, False),
    ]
    assert shifted.encode("") == []
    assert [token.id for token in replace(shifted, start=None).encode("ab")] == [97, 98]


def test_low_precision(folder_of: Callable) -> None:
    exact = loaded(folder_of("qwen3"))
    tokens = exact.tokenizer.ids_to_tokens(IDS)
    expected = [trace.stages["weights"] for trace in exact.trace(tokens, layers=[0])]
    for library in ("numpy", "torch"):
        model = loaded(folder_of("qwen3"), library, "bfloat16")
        (trace,) = model.trace(tokens, layers=[0])
        assert np.abs(model.backend.numpy(trace.stages["weights"]) - expected[0]).max() < 5e-2
