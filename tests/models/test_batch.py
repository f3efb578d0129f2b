"""Texts in one batch get the numbers that each gets alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch_classes as classes
from msgspec.structs import replace
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import choose
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import (
    BigBird,
    Causal,
    Hashed,
    Mask,
    MatrixMask,
    Padding,
    Window,
    intersection,
)
from attncli.mechanism.trace import shapes_of
from attncli.models.model import Model, take_text
from attncli.models.one_layer import Settings, seeded_model

TEXTS = [
    "the animal did not cross the street",
    "it",
    "because it was tired",
    "too wide to cross for any animal in the world today",
]
PLAIN = Settings(d_model=30, heads=5, d_k=7, d_v=11, bias=True, residual=True, layer_norm=True)


def model(settings: Settings = PLAIN, backend: str = "numpy", dtype: str = "float64") -> Model:
    return seeded_model(
        settings, 3, "seeded", tokenizer("word"), choose(backend, device=None, dtype=dtype)
    )


def compare(made: Model, texts: list[str], **options: object) -> float:
    """The largest difference of any stage between a text in a batch and alone; 0 rows too many or
    too few.
    """
    (together,) = made.trace_batch(texts, **options)
    worst = 0.0
    for entry, text in enumerate(texts):
        (single,) = made.trace(text, **options)
        ours = take_text(together, entry, len(made.encode(text)))
        assert set(ours.stages) == set(single.stages)
        for name, array in single.stages.items():
            mine, theirs = made.backend.numpy(ours.stages[name]), made.backend.numpy(array)
            assert mine.shape == theirs.shape, name
            finite = np.isfinite(theirs)
            assert np.array_equal(np.isfinite(mine), finite), name
            worst = max(worst, float(np.abs(mine[finite] - theirs[finite]).max(initial=0)))
        assert np.array_equal(
            made.backend.numpy(ours.empty_rows), made.backend.numpy(single.empty_rows)
        )
        worst = max(worst, float(np.abs(made.backend.numpy(ours.after - single.after)).max()))
    return worst


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(
    "mask", [None, Causal(), intersection(Causal(), Window(2, None)), Window(1, 1)]
)
@pytest.mark.parametrize("position", ["none", "sinusoidal", "alibi", "learned"])
def test_each_text_gets_what_it_gets_alone(backend: str, mask: Mask | None, position: str) -> None:
    settings = Settings(
        d_model=30, heads=5, d_k=8, d_v=11, residual=True, layer_norm=True, position=position
    )
    made = model(settings if mask is None else replace(settings, mask=mask), backend)
    assert compare(made, TEXTS) < 1e-12


def test_chosen_heads_and_rotary_positions() -> None:
    made = model(Settings(d_model=24, heads=6, position="rope", mask=Causal()))
    assert compare(made, TEXTS, heads=[1, 4]) < 1e-12


@pytest.mark.parametrize("name", ["llama dynamic", "phi3 long", "gpt_neox in sequence"])
def test_positions_that_depend_on_the_length_of_the_text(name: str, tmp_path: Path) -> None:
    """Each text's rotation is that of its own length, not of the longest."""
    made = attncli.load(make(CASES[name], tmp_path), backend="numpy", dtype="float64")
    texts = [made.tokenizer.ids_to_tokens(range(3, 3 + count)) for count in (13, 2, 6, 8, 9)]
    together = list(made.trace_batch(texts))
    for entry, tokens in enumerate(texts):
        for layer, single in zip(together, made.trace(tokens), strict=True):
            ours = take_text(layer, entry, len(tokens))
            for stage in ("q", "weights", "out"):
                assert np.abs(ours.stages[stage] - single.stages[stage]).max() < 1e-12, stage


def test_learned_keys_stand_behind_the_padding(tmp_path: Path) -> None:
    module = classes.filled(classes.Torch(15, 3, add_bias_kv=True), seed=1)
    torch.save(module.state_dict(), tmp_path / "kv.pt")
    made = attncli.load(weights=tmp_path / "kv.pt", heads=3, dtype="float64")
    assert compare(made, TEXTS) < 1e-12


def test_without_key_lengths_the_comparison_would_fail() -> None:
    made = model()
    (together,) = made.trace_batch(TEXTS)
    (single,) = made.trace(TEXTS[1])
    padded = together.stages["scaled"][1]
    spread = np.exp(padded) / np.exp(padded).sum(-1, keepdims=True)
    assert np.abs(spread[:, :1, :1] - single.stages["weights"]).max() > 0.1


def test_every_stage_has_a_batch_axis_first() -> None:
    """The example of the texts: d_model 512, d_k = d_v = 64, ten tokens, a batch of two."""
    made = model(Settings(d_model=512, d_k=64, d_v=64), dtype="float32")
    texts = ["a b c d e f g h i j", "k l m n o p q r s t"]
    (trace,) = made.trace_batch(texts)
    assert trace.stages["out"].shape == (2, 10, 64)
    rows = {row.step: (row.axes, row.shape) for row in shapes_of(trace.stages, leading=("batch",))}
    assert rows["weights"] == (("batch", "head", "query", "key"), (2, 1, 10, 10))
    assert rows["q"] == (("batch", "head", "query", "dim"), (2, 1, 10, 64))


def test_what_a_batch_cannot_carry_is_refused() -> None:
    for mask in (
        BigBird(2, 1),
        Padding(1),
        MatrixMask(np.ones((11, 11), bool)),
        Hashed(4),
        intersection(Causal(), Hashed(4)),
    ):
        with pytest.raises(UnsupportedError, match=r"mask"):
            list(model(Settings(d_model=8, mask=mask)).trace_batch(TEXTS))
    # a mask file is named with its size, not with the name of its class
    given = MatrixMask(np.ones((11, 11), bool), "m.csv")
    with pytest.raises(
        UnsupportedError, match=r"m\.csv is 11 × 11, .* differ in length"
    ) as refusal:
        list(model(Settings(d_model=8, mask=given)).trace_batch(TEXTS))
    assert "MatrixMask" not in str(refusal.value)
    same = ["a b c", "d e f"]
    assert compare(model(Settings(d_model=8, mask=MatrixMask(np.tri(3, dtype=bool)))), same) < 1e-12
    with pytest.raises(UsageError, match="no texts"):
        list(model().trace_batch([]))
    with pytest.raises(InputError, match="no tokens"):
        list(model().trace_batch(["a", " "]))


@pytest.mark.thorough
def test_many_texts_give_what_each_gives_alone_in_their_order():
    model = attncli.load("minilm", hold=True)
    alone = attncli.load("minilm")
    texts = [
        "it was tired",
        "the animal slept",
        "the street",
        "it was",
        "a cat sat on the mat",
        "she ate it",
    ]
    traces = list(model.traces(texts, layers=[0, 5]))
    for text, trace in zip(texts, traces, strict=True):
        wanted = [layer.stages["weights"] for layer in alone.trace(text, layers=[0, 5])]
        assert [token.text for token in trace.tokens] == [
            token.text for token in alone.encode(text)
        ]
        assert [layer.layer for layer in trace] == [0, 5]
        assert trace.weights.shape == (2, 12, len(trace.tokens), len(trace.tokens))
        for found, expected in zip(trace.weights, wanted, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)
    assert repr(traces[0]).startswith(
        f"<TextTrace of {len(traces[0].tokens)} tokens in minilm: layers 0, 5 of 12 heads"
    )
    read = model.store.bytes_read()
    list(model.traces(texts[:2], layers=[0, 5]))
    assert model.store.bytes_read() == read  # nothing is read again
    assert list(model.traces([])) == []
    with pytest.raises(attncli.AttnError, match="no weights of one shape"):
        next(model.traces(["it was"], keep=())).weights  # noqa: B018
