"""Results as frames and labelled arrays hold the numbers of the documents and traces themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import attncli
from attncli.arrays.frames import labelled_weights
from attncli.errors import InputError
from attncli.extras import install_command
from tests.asking import ask
from tests.small_gpt2 import small_gpt2

TEXT = "the cat sat"


def test_frames_hold_the_numbers_of_the_document():
    document = attncli.heads(attncli.load(seed=0, heads=2), TEXT, labels=False)
    entropies = [row.metrics["entropy"].value for row in document.heads]
    for data in (document.to_pandas(), document.to_polars()):
        assert list(data["entropy"]) == entropies
        assert list(data["head"]) == [0, 1]


def test_rows_that_begin_with_nothing_known_are_a_column():
    """polars reads the type of a column from its first rows."""
    from attncli.arrays.frames import frame

    rows = [{"weight": None}] * 200 + [{"weight": 0.5}]
    assert frame("polars", rows)["weight"].to_list()[-1] == 0.5
    assert len(frame("pandas", [])) == 0


def test_numbers_of_a_layer_stay_whole_where_some_are_missing():
    """pandas alone would show layer 5 as 5.0."""
    from attncli.arrays.frames import frame

    rows = [{"layer": 5, "weight": 0.5, "word": None}, {"layer": None, "weight": None, "word": "a"}]
    made = frame("pandas", rows)
    assert made["layer"].dtype == "Int64"
    assert [str(value) for value in made["layer"]] == ["5", "<NA>"]
    assert made["weight"].dtype == "float64"
    assert frame("pandas", rows[:1])["layer"].dtype == "int64"


def test_weights_that_are_not_kept_are_no_array():
    trace = attncli.load(seed=0).trace(TEXT, rows=2)
    with pytest.raises(attncli.AttnError, match="rows=2") as caught:
        trace.to_xarray()
    assert "rows=None" in caught.value.expected
    with pytest.raises(attncli.AttnError):
        _ = trace.weights


@pytest.mark.thorough
def test_labelled_weights_are_those_of_the_trace():
    model = attncli.load(seed=0, heads=4)
    trace = model.trace(TEXT, heads=[3, 1])
    weights = trace.to_xarray()
    [layer] = attncli.run(model, TEXT).layers
    for head in (1, 3):
        expected = np.array(layer.heads[head].weights, np.float32)
        np.testing.assert_allclose(weights.sel(layer=0, head=head), expected, atol=1e-6)
    assert weights["head"].values.tolist() == [1, 3]
    assert weights.key_token.values.tolist() == ["the", "cat", "sat"]
    learned = labelled_weights(np.ones((1, 1, 2, 3)), [5], [7], ["a", "b"], "")
    assert learned.key_token.values.tolist() == ["a", "b", "bias_k"]
    assert not learned.attrs


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("pandas", lambda model: attncli.tokens(TEXT).to_pandas()),
        ("polars", lambda model: attncli.tokens(TEXT).to_polars()),
        ("xarray", lambda model: model.trace(TEXT).to_xarray()),
    ],
)
def test_what_is_not_installed_is_named_with_its_command(name, make, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(attncli.AttnError, match=f"{name} is not installed") as caught:
        make(attncli.load(seed=0))
    assert caught.value.hint == install_command(name)


def test_a_model_tells_its_sizes():
    model = attncli.load(seed=0, heads=4)
    header = ask("run", TEXT, "--num-heads", "4", "--json").json["model"]
    sizes = {"layers": model.n_layers, "heads": model.n_heads, "d_model": model.d_model}
    assert sizes == {name: header[name] for name in sizes}


def test_documents_label_the_weights_that_they_hold(tmp_path: Path) -> None:
    """A run, its one query, and heads: the weights of a trace, with the names of their axes."""
    pytest.importorskip("xarray")
    model = attncli.load(small_gpt2(tmp_path / "labelled"))
    text = "the cat sat"
    whole = model.trace(text).to_xarray()
    documents = {
        "heads": attncli.heads(model, text),
        "run": attncli.run(model, text, layers=[1], heads=[0, 2]),
        "query": attncli.run(model, text, layers=[1], heads=[0, 2], query="#2"),
    }
    for name, document in documents.items():
        weights = document.to_xarray()
        if name == "heads":
            weights = weights["weights"]
        assert weights.dims == ("layer", "head", "query", "key")
        same = whole.sel({name: weights[name] for name in ("layer", "head", "query")})
        np.testing.assert_allclose(weights, same, atol=1e-6, err_msg=name)
        assert weights.query_token.values.tolist() == same.query_token.values.tolist()
    assert documents["query"].to_xarray()["query"].values.tolist() == [2]
    with pytest.raises(InputError, match="does not hold the weights"):
        attncli.tokens(text).to_xarray()
    for maps in (True, False):
        measured = attncli.heads(model, text, maps=maps, metrics=("entropy", "sink"))
        grids = measured.to_xarray()
        assert set(grids.data_vars) == {"entropy", "sink", *["weights"] * maps}
        for head in measured.heads:
            for metric, value in head.metrics.items():
                place = {"layer": head.layer, "head": head.head}
                assert grids[metric].sel(place).item() == pytest.approx(value.value)
        assert grids["sink"].dims == ("layer", "head")
