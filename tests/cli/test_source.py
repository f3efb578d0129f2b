"""`--source`: the decoder of an encoder-decoder on its own text, reading another."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from msgspec.structs import replace
from tiny_checkpoints import CASES, make

import attncli

SAMPLES = Path(__file__).parent.parent.parent / "sample_inputs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = replace(
        CASES["bart"], config={**CASES["bart"].config, "vocab_size": 320}
    )  # as many as the sample tokenizer has
    made = make(case, tmp_path_factory.mktemp("bart"))
    shutil.copy(SAMPLES / "tokenizer.json", made / "tokenizer.json")
    return made


def test_the_decoder_runs_on_its_own_text_with_causal_masks(folder: Path) -> None:
    text, source = "the cat sat", "the dog"
    document = ask("run", text, "--model", str(folder), "--source", source, "--json", "--dtype", "float64").json
    decoder = attncli.load(folder, dtype="float64").decoder(source)
    traces = list(decoder.trace(text))
    assert document["attention"]["mask"] == "causal"
    assert document["warnings"][-1].endswith("its encoder read: the dog")
    assert [layer["layer"] for layer in document["layers"]] == [trace.layer for trace in traces]
    for layer, trace in zip(document["layers"], traces, strict=True):
        for head in layer["heads"]:
            assert np.allclose(head["weights"], trace.stages["weights"][head["head"]], atol=1e-12)
    other = ask("run", text, "--model", str(folder), "--source", "a mat", "--json", "--dtype", "float64").json
    assert document["layers"][1]["heads"][0]["weights"] != other["layers"][1]["heads"][0]["weights"]


@pytest.mark.parametrize(("model", "code"), [((), 2), (("--model", "minilm"), 4)])
def test_only_encoder_decoders_read_a_source(model: tuple[str, ...], code: int) -> None:
    found = ask("heads", "it was", "--source", "it is", *model)
    assert (found.code, found.out) == (code, "")
