"""What a run reads of a checkpoint: the rows and layers it needs, once, and nothing else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from asking import ask

from attncli.arrays.backend import EVERY, Array, Selection
from attncli.features.run.compute import with_next_token
from attncli.inputs import checkpoint as checkpoint_module
from attncli.inputs.checkpoint import Checkpoint
from attncli.measure.pair_measure import logit_difference
from attncli.models.aliases import ALIASES
from attncli.models.estimate import estimate, stored_sizes
from attncli.models.families import MODEL_TYPES
from attncli.models.load import load

WIDTH, INNER, LAYERS, VOCABULARY, IDS = 24, 29, 3, 31, [3, 17, 3, 5]
INSIDE = {
    "input_layernorm": (WIDTH,), "mlp.down_proj": (WIDTH, INNER), "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (
    INNER, WIDTH),
    "post_attention_layernorm": (WIDTH,), "self_attn.k_proj": (8, WIDTH), "self_attn.o_proj": (WIDTH, WIDTH),
    "self_attn.q_proj": (WIDTH, WIDTH), "self_attn.v_proj": (8, WIDTH),
}  # fmt: skip
LAYER_BYTES = sum(int(np.prod(shape)) for shape in INSIDE.values()) * 2
FED_BYTES = (
    sum(int(np.prod(shape)) for name, shape in INSIDE.items() if name.startswith(("mlp", "post")))
    * 2
)
"""What follows the attention of a layer."""
ROWS_BYTES = len(set(IDS)) * WIDTH * 2
OUTER_BYTES = (VOCABULARY + 1) * WIDTH * 2
"""The last norm, and the table that predicts."""


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A small Llama in bfloat16, one shard per layer."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = np.random.default_rng(3)
    config = {
        "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": 6,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "tie_word_embeddings": True, "hidden_act": "silu",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    places = {}
    for layer in range(LAYERS):
        shapes = {f"model.layers.{layer}.{name}.weight": shape for name, shape in INSIDE.items()}
        if layer == 0:
            shapes |= {
                "model.embed_tokens.weight": (VOCABULARY, WIDTH),
                "model.norm.weight": (WIDTH,),
            }
        file = f"model-{layer + 1:05}-of-{LAYERS:05}.safetensors"
        safetensors.numpy.save_file(
            {
                name: (random.standard_normal(shape) * 0.3).astype(ml_dtypes.bfloat16)
                for name, shape in shapes.items()
            },
            tmp_path / file,
        )
        places |= dict.fromkeys(shapes, file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return tmp_path


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("layers", "last"), [([0], 0), ([1], 1), ([2, 0], 2), (EVERY, 2)])
def test_rows_and_layers_that_are_needed_are_read_once(
    llama: Path, layers: Selection, last: int, backend: str
) -> None:
    model = load(llama, backend=backend)
    assert model.store.bytes_read() == 0
    traces = list(model.trace(model.tokenizer.ids_to_tokens(IDS), layers=layers))
    attention_alone = ROWS_BYTES + (last + 1) * LAYER_BYTES - FED_BYTES
    assert model.store.bytes_read() == attention_alone
    for _ in range(2):
        assert traces[-1].after.shape == (len(IDS), WIDTH)
        assert model.store.bytes_read() == attention_alone + FED_BYTES


def test_nothing_of_a_later_layer_is_touched(llama: Path) -> None:
    shard = llama / f"model-{LAYERS:05}-of-{LAYERS:05}.safetensors"
    content = bytearray(shard.read_bytes())
    content[-LAYER_BYTES:] = b"\xff" * LAYER_BYTES  # NaN, which reading refuses
    shard.write_bytes(content)
    ids = " ".join(map(str, IDS))
    assert ask("run", "--model", str(llama), "--ids", ids, "--layer", "1", "--json").code == 0
    found = ask("run", "--model", str(llama), "--ids", ids, "--json")
    assert found.code == 3
    assert "not finite" in found.err


def test_reading_ahead_gives_the_same_bytes_and_reads_none_twice(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = " ".join(map(str, IDS))
    plain = ask("run", "--model", str(llama), "--ids", ids, "--json").json
    monkeypatch.setattr(checkpoint_module, "WORTH_A_PLAN", 1)
    ahead = ask("run", "--model", str(llama), "--ids", ids, "--json").json
    for document in (plain, ahead):
        took = document["resources"]
        # the last layer whole, and what predicts the next token
        assert took["bytes_read"] == ROWS_BYTES + LAYERS * LAYER_BYTES + OUTER_BYTES
        assert 0 < took["memory_estimate"] < 2**40
    assert ahead == plain


def test_products_while_reading_are_those_of_whole_matrices(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every projection and feed-forward matrix goes that way, and none is read besides."""

    def traces() -> list[np.ndarray]:
        model = load(llama, dtype="float64")
        found = [trace.after for trace in model.trace(model.tokenizer.ids_to_tokens(IDS))]
        assert model.store.bytes_read() == ROWS_BYTES + LAYERS * LAYER_BYTES
        return found

    whole = traces()
    monkeypatch.setattr(checkpoint_module, "WORTH_A_PLAN", 1)
    monkeypatch.setattr(
        checkpoint_module, "PIECE", 2 * 8 * WIDTH
    )  # the smallest matrix; norms are read by themselves
    done: list[str] = []
    product = Checkpoint.product

    def noted(self: Checkpoint, name: str, *others: Any, **more: Any) -> Array | None:
        found = product(self, name, *others, **more)
        if found is not None:
            done.append(name)
        return found

    monkeypatch.setattr(Checkpoint, "product", noted)
    for one, other in zip(whole, traces(), strict=True):
        assert np.abs(one - other).max() < 1e-12 * np.abs(one).max()
    assert len(done) == len(set(done)) == 7 * LAYERS


def test_the_estimate_is_what_is_read(llama: Path) -> None:
    model = load(llama)
    with Checkpoint.open(llama) as checkpoint:
        stored = stored_sizes(checkpoint.names(), model.store.binding)  # type: ignore[attr-defined]
    for layers in (EVERY, [0], [1]):
        different = list(dict.fromkeys(IDS))
        before = model.store.bytes_read()
        list(model.trace(model.tokenizer.ids_to_tokens(different), layers=layers))
        assert (
            estimate(model.spec, len(different), sizes=stored, layers=layers).bytes_read
            == model.store.bytes_read() - before
        )


def test_the_estimate_of_a_run_counts_the_table_that_predicts(llama: Path) -> None:
    """A run of the last layer reads the vocabulary's table and multiplies with it, others do not."""
    model = load(llama)
    with Checkpoint.open(llama) as checkpoint:
        stored = stored_sizes(checkpoint.names(), model.store.binding, model.spec.head)  # type: ignore[attr-defined]
    different = list(dict.fromkeys(IDS))
    table = VOCABULARY * WIDTH
    fed = 3 * INNER * WIDTH * len(different)
    for layers in (EVERY, [LAYERS - 1], [1]):
        alone = estimate(model.spec, len(different), sizes=stored, layers=layers)
        expected = with_next_token(alone, model.spec, layers, "float32", stored)
        if layers == [1]:
            assert expected == alone
            continue
        assert expected.multiply_adds - alone.multiply_adds == table + fed
        assert expected.peak - alone.peak == table * 4 + VOCABULARY * (4 + 8 + 8)
    ids = " ".join(map(str, different))
    taken = ask("run", "--model", str(llama), "--ids", ids, "--json").json["resources"]
    expected = estimate(model.spec, len(different), sizes=stored)
    expected = with_next_token(expected, model.spec, EVERY, "float32", stored)
    last_norm = WIDTH * 2
    assert taken["bytes_read"] == expected.bytes_read + last_norm


def test_every_alias_is_of_a_family_that_runs() -> None:
    assert {alias.family for alias in ALIASES.values()} <= set(MODEL_TYPES)


def test_a_difference_of_two_logits_reads_two_rows_of_the_table(llama: Path) -> None:
    model, whole = load(llama), load(llama)
    hidden = model.backend.array(np.random.default_rng(5).standard_normal((2, WIDTH)))
    outer = model.store.outer(model.backend)
    difference = logit_difference(model, model.backend, outer, hidden, 17, 5)
    assert model.store.bytes_read() == 3 * WIDTH * 2  # the norm and two rows
    logits = np.asarray(whole.backend.numpy(whole.logits(hidden)), np.float64)
    assert np.abs(difference - (logits[:, 17] - logits[:, 5])).max() < 1e-5
