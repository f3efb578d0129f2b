"""The one-layer model: seeded and file weights, and the examples that the teaching texts compute."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import attncli
from attncli.arrays.backend import choose
from attncli.errors import InputError, UsageError
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import Causal
from attncli.mechanism.trace import LayerTrace
from attncli.models.model import Model
from attncli.models.one_layer import Settings, seeded_model, seeded_weights
from attncli.models.weight_file import model_of, read_weight_file, seeded_file, write_weight_file

HUMPTY = "humpty dumpty sat on"


def model(
    settings: Settings,
    seed: int = 0,
    text: str = "word",
    dtype: str = "float64",
    backend: str = "numpy",
) -> Model:
    return seeded_model(
        settings, seed, "seeded", tokenizer(text), choose(backend, device=None, dtype=dtype)
    )


def run(settings: Settings, text: str, seed: int = 0) -> LayerTrace:
    (trace,) = model(settings, seed).trace(text)
    return trace


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(value - max(row)) for value in row]
    return [power / sum(powers) for power in powers]


# --- the texts' examples


def test_four_words_through_512_square_projections() -> None:
    trace = run(Settings(d_model=512), HUMPTY)
    assert (
        trace.stages["q"].shape == trace.stages["k"].shape == trace.stages["v"].shape == (1, 4, 512)
    )
    assert trace.stages["weights"].shape == (1, 4, 4)
    assert trace.stages["out"].shape == (4, 512)


def test_widths_that_differ_from_each_other_and_from_d_model() -> None:
    trace = run(Settings(d_model=13, d_k=7, d_v=5), "a b c")
    assert trace.stages["q"].shape == (1, 3, 7)
    assert trace.stages["v"].shape == (1, 3, 5)
    assert trace.stages["out"].shape == (3, 5)


def test_one_token_written_out_agrees_with_the_matrices() -> None:
    """The row of `on`: four scores, four weights, and the output as a weighted sum, by loops over
    plain numbers.
    """
    trace = run(Settings(d_model=32), HUMPTY)
    stages = {
        name: np.asarray(array[0] if array.ndim == 3 else array).tolist()
        for name, array in trace.stages.items()
    }
    on = 3
    scores = [
        sum(stages["q"][on][d] * stages["k"][key][d] for d in range(32)) / math.sqrt(32)
        for key in range(4)
    ]
    weights = softmax(scores)
    output = [sum(weights[key] * stages["v"][key][d] for key in range(4)) for d in range(32)]
    assert np.allclose(scores, stages["scaled"][on], atol=1e-12)
    assert np.allclose(weights, stages["weights"][on], atol=1e-12)
    assert np.allclose(output, stages["out"][on], atol=1e-12)
    assert all(weight >= 0 for weight in weights)
    assert abs(sum(weights) - 1) < 1e-12


def test_one_head_is_multi_head_with_one_head() -> None:
    alone, many = (
        run(Settings(d_model=24), HUMPTY),
        run(Settings(d_model=24, heads=1, d_k=24, d_v=24), HUMPTY),
    )
    assert all(np.array_equal(alone.stages[name], many.stages[name]) for name in alone.stages)


def test_heads_are_slices_of_the_projections_and_w_o_mixes_them() -> None:
    settings = Settings(d_model=24, heads=3)
    trace = run(settings, HUMPTY)
    weights = {
        name: array.astype(np.float64) for name, array in seeded_weights(settings, 0).items()
    }
    x = trace.stages["hidden"]
    concat = []
    for head in range(3):
        q, k, v = (x @ weights[f"{role}.weight"][8 * head : 8 * head + 8].T for role in "qkv")
        scores = (q @ k.T / math.sqrt(8)).tolist()
        concat.append(np.asarray([softmax(row) for row in scores]) @ v)
    expected = np.concatenate(concat, -1) @ weights["o.weight"].T
    assert np.abs(trace.stages["out"] - expected).max() < 1e-12
    # the control: heads in another order would be noticed
    swapped = np.concatenate(concat[::-1], -1) @ weights["o.weight"].T
    assert np.abs(trace.stages["out"] - swapped).max() > 0.1


def test_residual_and_layer_norm_are_as_written() -> None:
    trace = run(Settings(d_model=24, heads=3, residual=True, layer_norm=True), HUMPTY)
    total = trace.stages["hidden"] + trace.stages["out"]
    assert np.array_equal(trace.stages["sum"], total)
    expected = (total - total.mean(-1, keepdims=True)) / np.sqrt(
        total.var(-1, keepdims=True) + 1e-5
    )
    assert np.abs(trace.stages["norm"] - expected).max() < 1e-12
    assert np.array_equal(trace.after, trace.stages["norm"])


@pytest.mark.parametrize(
    ("scale", "factor"),
    [("sqrt-dk", 8**-0.5), ("sqrt-dmodel", 24**-0.5), ("none", 1.0), ("0.3", 0.3)],
)
def test_every_scale_in_use(scale: str, factor: float) -> None:
    trace = run(Settings(d_model=24, heads=3, scale=scale), HUMPTY)
    assert np.abs(trace.stages["scaled"] - trace.stages["raw"] * factor).max() < 1e-12


def test_without_positions_order_does_not_show() -> None:
    """我爱你 and 你爱我 give each token the same vector, until a position encoding is switched on.

    ALiBi without a mask counts distances alone: it cannot tell a text from its reverse, but from
    any other order.
    """

    def difference(position: str, text: str, order: list[int]) -> float:
        made = model(Settings(d_model=24, position=position), text="char")
        (there,), (back,) = made.trace(text), made.trace("".join(text[at] for at in order))
        return float(np.abs(there.stages["out"][order] - back.stages["out"]).max())

    assert difference("none", "我爱你", [2, 1, 0]) < 1e-12
    for position in ("sinusoidal", "learned", "rope"):
        assert difference(position, "我爱你", [2, 1, 0]) > 1e-3, position
    assert difference("alibi", "我爱你", [2, 1, 0]) < 1e-12
    assert difference("alibi", "我爱你", [1, 0, 2]) > 1e-3


# --- seeded weights


def test_a_word_has_one_vector_and_one_seed_one_model() -> None:
    first, second = run(Settings(), "it was it"), run(Settings(), "because it slept")
    assert np.array_equal(first.stages["hidden"][0], first.stages["hidden"][2])
    assert np.array_equal(first.stages["hidden"][0], second.stages["hidden"][1])
    assert not np.array_equal(
        run(Settings(), "it", 1).stages["hidden"], run(Settings(), "it", 0).stages["hidden"]
    )


def test_numpy_and_torch_agree() -> None:
    settings = Settings(
        d_model=30,
        heads=5,
        kv_heads=1,
        bias=True,
        residual=True,
        layer_norm=True,
        position="sinusoidal",
        softcap=2.0,
        mask=Causal(),
    )
    (ours,) = model(settings).trace(HUMPTY)
    theirs_model = model(settings, backend="torch")
    (theirs,) = theirs_model.trace(HUMPTY)
    for name, array in ours.stages.items():
        other = theirs_model.backend.numpy(theirs.stages[name])
        finite = np.isfinite(array)
        assert np.abs(array[finite] - other[finite]).max() < 1e-12


def test_projected_vectors_have_variance_near_one() -> None:
    words = " ".join(f"w{at}" for at in range(97))
    trace = run(Settings(d_model=128, heads=2), words)
    for name in ("hidden", "q", "k", "v", "scaled"):
        assert 0.85 < float(np.var(trace.stages[name])) < 1.15, name


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(d_model=64, heads=7), "not divisible by 7"),
        (Settings(d_model=0), "d_model is 0"),
        (Settings(heads=-1), "heads is -1"),
        (Settings(d_k=0), "d_k is 0"),
        (Settings(d_v=5, residual=True), "residual"),
        (Settings(scale="big"), "big"),
        (Settings(scale="nan"), "nan"),
        (Settings(position="rope", d_k=7), "pairs"),
        (Settings(position="rope:-1"), "-1"),
        (Settings(position="alibi:3"), "alibi:3"),
    ],
)
def test_settings_that_do_not_fit(settings: Settings, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        model(settings)


# --- weights from files


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(d_model=24, heads=3, bias=True, layer_norm=True),
        Settings(d_model=24, heads=6, kv_heads=2, d_k=5, d_v=7),
        Settings(d_model=13, d_k=7, d_v=5, output_projection=True),
    ],
)
def test_seeded_weights_in_a_file_are_the_seeded_model(
    settings: Settings, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"seeded{ending}"
    write_weight_file(path, seeded_file(settings, 5, []), layout="canonical")
    seeded = model(settings, 5, dtype="float32")
    loaded = model_of(
        read_weight_file(path),
        path.name,
        tokenizer("word"),
        choose("numpy", device=None, dtype="float32"),
    )
    assert loaded.spec == seeded.spec
    assert loaded.identity == replace(
        seeded.identity,
        source="file",
        name=path.name,
        layout=loaded.identity.layout,
        drawn=loaded.identity.drawn,
    )
    assert loaded.identity.drawn == ("words",)  # none of the settings has positions
    assert loaded.warnings == ()
    (ours,), (theirs,) = loaded.trace(HUMPTY), seeded.trace(HUMPTY)
    assert all(np.array_equal(ours.stages[name], theirs.stages[name]) for name in theirs.stages)


def test_embeddings_in_a_file_serve_its_tokens_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "with.npz"
    write_weight_file(
        path, seeded_file(Settings(d_model=11), 7, HUMPTY.split()), layout="canonical"
    )
    loaded = attncli.load(weights=path)
    (trace,) = loaded.trace("on sat on")
    (expected,) = model(Settings(d_model=11), 7, dtype="float32").trace("on sat on")
    assert np.array_equal(trace.stages["hidden"], expected.stages["hidden"])
    with pytest.raises(InputError, match="no embedding for the token 'wall'"):
        next(iter(loaded.trace("humpty wall")))


def stored(tmp_path: Path, weights: dict[str, Any], **metadata: str) -> Model:
    from attncli.inputs.tensors import write_tensors

    write_tensors(
        tmp_path / "w.safetensors",
        {name: np.asarray(array) for name, array in weights.items()},
        metadata,
    )
    return attncli.load(weights=tmp_path / "w.safetensors", tokenizer="byte")


def test_embeddings_without_token_texts_go_by_id(tmp_path: Path) -> None:
    eye, rows = np.eye(3, dtype=np.float32), np.arange(300, dtype=np.float32).reshape(100, 3)
    weights = {"q.weight": eye, "k.weight": eye, "v.weight": eye, "embedding.weight": rows}
    loaded = stored(tmp_path, weights)
    (trace,) = loaded.trace("AB")
    assert np.array_equal(trace.stages["hidden"], rows[[65, 66]])
    assert loaded.identity.seed is None
    with pytest.raises(InputError, match="id 122"):
        next(iter(loaded.trace("z")))
    with pytest.raises(InputError, match="has none"):
        next(iter(attncli.load(weights=tmp_path / "w.safetensors").trace("word")))


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ('["a"]', "1 tokens"),
        ('["a", "a"]', "twice"),
        ("{}", "JSON list"),
        ("[1, 2]", "JSON list"),
        ("[" * 100000, "JSON list"),
    ],
)
def test_token_lists_that_lie(tmp_path: Path, tokens: str, says: str) -> None:
    eye = np.eye(3, dtype=np.float32)
    with pytest.raises(InputError, match=says):
        stored(
            tmp_path,
            {"q.weight": eye, "k.weight": eye, "v.weight": eye, "embedding.weight": eye[:2]},
            tokens=tokens,
        )


def test_options_that_contradict_a_file(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    write_weight_file(path, seeded_file(Settings(d_model=24, heads=3), 0, []), layout="canonical")
    backend = choose("numpy", device=None, dtype="float32")
    for settings, says in (
        (Settings(bias=True), "--bias"),
        (Settings(output_projection=False), "--no-output-projection"),
    ):
        with pytest.raises(UsageError, match=says):
            model_of(read_weight_file(path), path.name, tokenizer("word"), backend, settings)
    with pytest.raises(UsageError, match="--d-model is 13, the file's is 24"):
        attncli.load(weights=path, d_model=13)
    with pytest.raises(UsageError, match="5 heads cannot share"):
        attncli.load(weights=path, heads=5)
