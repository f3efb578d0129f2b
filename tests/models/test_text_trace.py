"""A text in a model: it shows itself, gives its layers as often as it is asked, and all weights
within the memory.
"""

from __future__ import annotations

import numpy as np
import pytest

import attncli
from attncli.models import model as model_module
from attncli.models.estimate import MemoryBudget

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def model():
    return attncli.load(seed=0, heads=2)


def test_it_says_what_it_is(model):
    trace = model.trace(TEXT)
    assert (
        repr(trace)
        == "<TextTrace of 6 tokens in seeded: layers 0 of 2 heads; iterate for layers, .weights for all>"
    )
    assert str(trace) == repr(trace)
    assert trace._repr_html_().startswith('<iframe sandbox="allow-scripts"')
    assert "the cat sat on the mat" in trace._repr_html_()
    assert trace._repr_mimebundle_()["text/plain"] == repr(trace)
    minilm = attncli.load("minilm")
    assert "6 tokens in minilm: layers 0-5 of 12 heads" in repr(minilm.trace("she ate an apple"))
    assert "layers 1, 4 of 2 heads" in repr(minilm.trace("she ate", layers=[4, 1], heads=[0, 3]))


def test_a_notebook_shows_words_where_there_are_too_many_weights(model, monkeypatch):
    monkeypatch.setattr("attncli.notebook.MOST", 71)
    shown = model.trace(TEXT)._repr_html_()
    assert "iframe" not in shown
    assert "&lt;TextTrace of 6 tokens" in shown
    assert "iframe" not in model.trace(TEXT, keep=())._repr_html_()


def test_it_runs_as_often_as_it_is_looked_at(model):
    trace = model.trace(TEXT)
    assert len(trace) == 1
    first, second = ([layer.stages["out"] for layer in trace] for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one, other)
    assert [layer.layer for layer in trace] == list(trace.layers)


@pytest.mark.parametrize("chosen", [{}, {"layers": [1, 4]}, {"layers": [5], "heads": [0, 7]}])
def test_the_weights_are_those_of_each_layer(chosen):
    trace = attncli.load("minilm").trace("the cat sat", **chosen)
    expected = np.stack([layer.stages["weights"] for layer in trace])
    assert np.array_equal(trace.weights, expected)
    assert trace.weights is trace.weights  # held, not computed again
    assert trace.weights.shape == (len(trace.layers), trace.heads[0], 5, 5)
    assert np.allclose(trace.weights.sum(-1), 1)


def test_weights_beyond_the_memory_are_refused_with_a_way_out(model, monkeypatch):
    trace = model.trace(TEXT)
    need = 2 * 6 * 6 * 4
    monkeypatch.setattr(
        model_module,
        "free_memory",
        lambda: MemoryBudget(need - 1, "memory available on this machine"),
    )
    with pytest.raises(
        attncli.AttnError, match="the weights of 1 layers of 2 heads and 6 tokens take"
    ) as caught:
        trace.weights  # noqa: B018
    assert caught.value.exit_code == 5
    assert caught.value.hint.startswith("layers=[5] or heads=[0], or iterate")
    assert "memory available on this machine" in caught.value.expected
    assert caught.value.__notes__ == [
        f"expected: {caught.value.expected}",
        f"try: {caught.value.hint}",
    ]
    assert [layer.layer for layer in trace] == [0]
    monkeypatch.setattr(model_module, "free_memory", lambda: MemoryBudget(need, ""))
    assert trace.weights.shape == (1, 2, 6, 6)


def test_what_cannot_be_is_said_when_the_trace_is_made(model):
    for arguments, said in (((" ",), "no tokens"), (("a b",), "no layer 3")):
        with pytest.raises(attncli.AttnError, match=said):
            model.trace(*arguments, layers=[3])
    with pytest.raises(attncli.AttnError, match="no head 9"):
        model.trace("a b", heads=[9])
    with pytest.raises(attncli.AttnError, match="no weights of one shape"):
        model.trace("a b", keep=()).weights  # noqa: B018


def test_kept_keys_are_extended_once(model):
    past: dict = {}
    trace = model.trace(TEXT, past=past)
    list(trace)
    assert past[0][0].shape[-2] == 6
    with pytest.raises(attncli.AttnError, match="has extended the kept keys"):
        list(trace)
    assert past[0][0].shape[-2] == 6
