"""The logits of every model with a head, against transformers', over all positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tiny_checkpoints import CASES, Case, make

import attncli
from attncli.models import load
from attncli.models.run import unembedding_rows

IDS = (7, 3, 3, 50, 11, 28, 5, 44, 9, 13, 2, 31, 17)
TARGET = (2, 17, 33, 8, 40, 6, 19)
DECODERS = {
    **{
        name: CASES[name]
        for name in ("opt post-norm", "gpt2 with head", "llama", "gemma2", "cohere", "falcon new")
    },
    "phi, tied but for the bias": replace(
        CASES["phi"], config={**CASES["phi"].config, "tie_word_embeddings": True}
    ),
}
TWO_SIDED = {
    "t5": CASES["t5"],
    "t5 gated": replace(CASES["t5 gated"], saved_by="AutoModelForSeq2SeqLM"),
    "t5 without a head of its own": replace(CASES["t5"], saved_by="AutoModel"),
    "mt5": CASES["mt5"],
    "bart": CASES["bart"],
    "marian": replace(CASES["marian"], saved_by="AutoModelForSeq2SeqLM"),
}


def test_a_large_table_gives_the_logits_by_some_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal logits from tiles of three rows, and the table never in memory as a whole."""
    folder = make(CASES["llama"], tmp_path / "model")
    tokens = attncli.load(folder).tokenizer.ids_to_tokens(IDS)
    *_, last = attncli.load(folder, dtype="float64").trace(tokens)
    whole = attncli.load(folder, dtype="float64").logits(last.after)
    model = attncli.load(folder, dtype="float64")
    row_bytes = 8 * model.spec.d_model
    monkeypatch.setattr(load, "TILED_FROM", row_bytes)
    monkeypatch.setattr(load, "TILE", 3 * row_bytes)
    lengths: list[int] = []
    read_rows = type(model.store.checkpoint).read_rows

    def counted(self: Any, name: str, rows: Any, dtype: str | None = None) -> Any:
        """Rows of a table, of which the number is kept."""
        lengths.append(len(rows))
        return read_rows(self, name, rows, dtype)

    monkeypatch.setattr(type(model.store.checkpoint), "read_rows", counted)
    assert np.abs(model.logits(last.after) - whole).max() < 1e-12
    assert max(lengths) == 3
    assert sum(lengths) == model.spec.vocabulary
    outer = model.store.outer(model.backend)
    (row,) = unembedding_rows(model.spec.head, outer, [5])
    assert len(lengths) == -(-model.spec.vocabulary // 3) + 1
    monkeypatch.undo()
    matrix = attncli.load(folder, dtype="float64").store.outer(model.backend)("head.weight")
    assert np.array_equal(row, matrix[5])


def apart(folder: Path, *, two_sided: bool) -> float:
    import torch
    import transformers

    kind = transformers.AutoModelForSeq2SeqLM if two_sided else transformers.AutoModelForCausalLM
    theirs = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    if two_sided and hasattr(theirs, "final_logits_bias"):
        theirs.final_logits_bias = torch.linspace(
            -1, 1, theirs.final_logits_bias.shape[-1], dtype=torch.float64
        )[None]
        theirs.save_pretrained(folder)
    given = {"input_ids": torch.tensor([IDS])} | (
        {"decoder_input_ids": torch.tensor([TARGET])} if two_sided else {}
    )
    with torch.no_grad():
        expected = theirs(**given).logits[0].numpy()
    model = attncli.load(folder, backend="numpy", dtype="float64")
    tokens = model.tokenizer.ids_to_tokens(IDS)
    if two_sided:
        model = model.decoder(tokens)
        tokens = model.tokenizer.ids_to_tokens(TARGET)
    *_, last = model.trace(tokens)
    return float(np.abs(model.logits(last.after) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name: str, tmp_path: Path) -> None:
    # positions and norms are float32 in transformers whatever its type
    assert apart(make(DECODERS[name], tmp_path), two_sided=False) < 1e-5


def test_a_head_of_its_own_counts_though_the_config_says_that_it_is_tied(tmp_path: Path) -> None:
    folder = make(CASES["llama"], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    assert apart(folder, two_sided=False) < 1e-5


@pytest.mark.parametrize("name", TWO_SIDED)
def test_encoder_decoders(name: str, tmp_path: Path) -> None:
    assert apart(make(TWO_SIDED[name], tmp_path), two_sided=True) < 1e-5


def test_a_scale_that_was_forgotten_would_be_seen(tmp_path: Path) -> None:
    folder = make(Case("t5", CASES["t5"].config, "AutoModelForSeq2SeqLM"), tmp_path)
    model = attncli.load(folder, backend="numpy", dtype="float64")
    decoder = model.decoder(model.tokenizer.ids_to_tokens(IDS))
    *_, last = decoder.trace(decoder.tokenizer.ids_to_tokens(TARGET))
    plain = replace(decoder, spec=replace(decoder.spec, head=replace(decoder.spec.head, scale=1.0)))
    assert np.abs(plain.logits(last.after) - decoder.logits(last.after)).max() > 0.1
