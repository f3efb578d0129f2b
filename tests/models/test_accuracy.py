"""How far genuine float32, bfloat16 and float16 computation is from float64, beside transformers' own.

Short texts are computed in float64 whatever is asked for; here that is switched off, at 512 wide and 400 tokens. The
distance is the mean one of all weights of the last layer, which has every error of the layers before it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attncli
from attncli.models.transformers_reference import reference

WIDTH, TOKENS = 512, 400
IDS = np.random.default_rng(0).integers(3, 300, TOKENS).tolist()
SIZES = {
    "llama": {
        "hidden_size": WIDTH, "intermediate_size": 700, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": TOKENS,
    },
    "gpt2": {"n_embd": WIDTH, "n_layer": 3, "n_head": 8, "vocab_size": 300, "n_positions": TOKENS},
    "bert": {
        "hidden_size": WIDTH, "intermediate_size": 700, "num_hidden_layers": 3, "num_attention_heads": 8,
        "vocab_size": 300, "max_position_embeddings": TOKENS,
    },
}  # fmt: skip
AS_FAR = {"float32": 2.0, "bfloat16": 1.2, "float16": 1.2}
"""How many times as far from float64 as transformers' own numbers of the type may be."""


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory):
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
            config = transformers.AutoConfig.for_model(family, **SIZES[family])
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = transformers.AutoModel.from_config(config, dtype=torch.float32)
                with torch.no_grad():
                    for weight in model.parameters():
                        if weight.ndim == 2:  # scores of a few units: neither uniform nor one key alone
                            weight.copy_(1.5 * WIDTH**-0.5 * torch.randn(weight.shape))
            # stored as every type here has them, so that only the computation differs
            made[family] = tmp_path_factory.mktemp(family)
            model.to(torch.bfloat16).float().save_pretrained(made[family])
        return made[family]

    return make


@pytest.fixture(scope="module")
def theirs(folder_of):
    held: dict[tuple[str, str], np.ndarray] = {}

    def weights(family: str, dtype: str) -> np.ndarray:
        if (family, dtype) not in held:
            held[family, dtype] = reference(folder_of(family), IDS, dtype=dtype)[0].weights[-1].astype(np.float64)
        return held[family, dtype]

    return weights


@pytest.mark.parametrize("dtype", AS_FAR)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("family", SIZES)
def test_no_farther_from_float64_than_transformers(folder_of, theirs, family, library, dtype, monkeypatch):
    monkeypatch.setattr("attncli.models.model.compute_dtype", lambda spec, tokens, asked: asked)
    model = attncli.load(folder_of(family), backend=library, dtype=dtype)
    tokens = model.tokenizer.ids_to_tokens(IDS)
    (last,) = model.trace(tokens, layers=[2], keep=("weights",))
    exact = theirs(family, "float64")
    ours = float(np.abs(model.backend.numpy(last.stages["weights"]).astype(np.float64) - exact).mean())
    other = float(np.abs(theirs(family, dtype) - exact).mean())
    assert 0 < ours <= AS_FAR[dtype] * other, f"{ours:.3g} against {other:.3g}: {ours / other:.2f} times"
