"""Cross-attention: different lengths, values of a third text, masks, against loops."""

from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from msgspec import UNSET
from msgspec.structs import replace
from telling import telling
from tiny_checkpoints import CASES, make

import attncli
from attncli.arrays.backend import choose
from attncli.draw.safe import cells
from attncli.draw.view import View
from attncli.errors import InputError
from attncli.features.cross.compute import cross
from attncli.features.cross.screen import cross_alignment
from attncli.inputs.tokenize import tokenizer
from attncli.measure.run_record import CrossTexts
from attncli.mechanism.mask import AllOf, Causal, Mask, Padding
from attncli.models.model import Model
from attncli.models.one_layer import OneLayerStore, Settings, seeded_model

told_cross = telling(cross)
VIEW = View(width=80)

QUERY, KEY = "the black cat", "le chat noir dort bien"


def cross_document(model: Model, texts: CrossTexts, **options: Any) -> dict[str, Any]:
    return told_cross(model, texts.query, texts=texts, all_links=True, **options)


def made(
    mask: Mask | None = None, *, heads: int = 2, position: str = "none", backend: str = "numpy"
) -> Model:
    settings = Settings(d_model=14, heads=heads, d_k=6, d_v=5, position=position)
    settings = settings if mask is None else replace(settings, mask=mask)
    return seeded_model(
        settings, 5, "seeded", tokenizer("word"), choose(backend, device=None, dtype="float64")
    )


def texts(model: Model, value: str | None = None) -> CrossTexts:
    return CrossTexts(
        QUERY,
        KEY,
        model.encode(QUERY),
        model.encode(KEY),
        value,
        None if value is None else model.encode(value),
    )


def expected(
    model: Model, value: str = KEY, sees: object = None
) -> tuple[list[list[list[float]]], np.ndarray]:
    """Weights and output by loops."""
    store = model.store
    assert isinstance(store, OneLayerStore)
    x, y, z = (
        np.asarray(store.embed(model.backend, model.encode(text)), np.float64)
        for text in (QUERY, KEY, value)
    )
    heads = [np.float64(store.weights[f"{name}.weight"]) for name in "qkv"]
    q, k, v = (
        np.stack(np.split(source @ weight.T, 2, axis=1)).tolist()
        for source, weight in zip((x, y, z), heads, strict=True)
    )
    found = oracles.attention(q, k, v, sees=sees)  # type: ignore[arg-type]
    joined = np.concatenate([np.asarray(head) for head in found["mixed"]], axis=1)
    return found["weights"], joined @ np.float64(store.weights["o.weight"]).T


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_weights_and_output_agree_with_loops(backend: str) -> None:
    model = made(backend=backend)
    document = cross_document(model, texts(model))
    weights, output = expected(model)
    (layer,) = document["layers"]
    assert np.allclose([head["weights"] for head in layer["heads"]], weights)
    assert np.allclose(layer["output"], output)
    assert np.shape(layer["heads"][0]["weights"]) == (3, 5)


def test_values_may_come_from_a_third_text() -> None:
    model = made()
    document = cross_document(model, texts(model, "un deux trois quatre cinq"))
    weights, output = expected(model, "un deux trois quatre cinq")
    assert np.allclose([head["weights"] for head in document["layers"][0]["heads"]], weights)
    assert np.allclose(document["layers"][0]["output"], output)
    with pytest.raises(InputError, match=r"the values.* text has 2, the keys.* 5 tokens"):
        cross_document(model, texts(model, "un deux"))


def test_causal_and_padding_apply_to_positions() -> None:
    model = made(AllOf((Causal(), Padding(1))))
    document = cross_document(model, texts(model), heads=[1])
    weights, _ = expected(model, sees=oracles.intersection(oracles.causal, oracles.padding(1, 5)))
    (head,) = document["layers"][0]["heads"]
    assert head["head"] == 1
    assert np.allclose(head["weights"], weights[1])


def test_a_text_crossed_with_itself_is_self_attention() -> None:
    for position in ("none", "rope", "alibi", "sinusoidal", "learned"):
        model = made(position=position)
        tokens = model.encode(QUERY)
        document = cross_document(model, CrossTexts(QUERY, QUERY, tokens, tokens))
        trace = next(iter(model.trace(tokens)))
        assert np.allclose(
            [head["weights"] for head in document["layers"][0]["heads"]], trace.stages["weights"]
        ), position
        assert np.allclose(document["layers"][0]["output"], trace.stages["out"])


def test_rotary_keys_have_positions_of_their_own() -> None:
    model = made(position="rope")
    document = cross_document(model, texts(model))
    assert np.shape(document["layers"][0]["heads"][0]["weights"]) == (3, 5)


def test_the_alignment_names_the_best_key_of_the_mean() -> None:
    model = made()
    document = cross_document(model, texts(model))
    mean = np.mean([head["weights"] for head in document["layers"][0]["heads"]], axis=0)
    for one in document["alignment"]:
        assert one["key"] == max(range(5), key=lambda key: mean[one["query"]][key])
        assert one["weight"] == pytest.approx(mean[one["query"]].max())


def test_a_query_that_sees_nothing_is_aligned_with_nothing() -> None:
    model = made(Padding(5))
    document = cross_document(model, texts(model))
    assert [one["key"] for one in document["alignment"]] == [None] * 3
    assert len(document["empty_rows"]) == 6
    assert document["links"] == []


def test_the_decoder_says_what_it_computed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    model = attncli.load(make(CASES["bart"], tmp_path), backend="numpy")
    keys, queries = (
        model.tokenizer.ids_to_tokens(ids) for ids in ((7, 3, 50, 11, 28, 5), (2, 9, 40))
    )

    def told(longest: int) -> str | None:
        monkeypatch.setattr(
            "attncli.models.model.compute_dtype",
            lambda spec, count, dtype: "float64" if count <= longest else dtype,
        )
        document = cross_document(model, CrossTexts("", "", queries, keys), top=3)
        found: str | None = document["attention"].get("compute_dtype")
        return found

    assert [told(longest) for longest in (2, 3, 6)] == [None, "float64", "float64"]


def with_special(given: CrossTexts, places: set[int]) -> CrossTexts:
    """The texts with these keys as special tokens, as the end of a text is."""
    keys = [replace(token, special=token.index in places) for token in given.keys]
    return replace(given, keys=keys)


def test_the_end_of_a_text_stands_apart_from_what_a_query_is_aligned_with() -> None:
    model = made()
    plain = cross(model, QUERY, texts=texts(model)).alignment
    assert all(one.beyond_special is one.special is UNSET for one in plain)
    ends = {int(one.key) for one in plain[:1] if one.key is not None} | {4}
    document = cross(model, QUERY, texts=with_special(texts(model), ends))
    heads = document.layers[0].heads
    for one, before in zip(document.alignment, plain, strict=True):
        row = [sum(head.weights[one.query][key] for head in heads) / 2 for key in range(5)]
        best = max((key for key in range(5) if key not in ends), key=row.__getitem__)
        assert (one.query, one.key, one.weight) == (before.query, before.key, before.weight)
        assert one.special == pytest.approx(sum(row[key] for key in ends))
        assert one.beyond_special is not None
        assert one.beyond_special is not UNSET
        assert (one.beyond_special.key, one.beyond_special.weight) == (
            best,
            pytest.approx(row[best]),
        )
    assert document.alignment[0].key in ends
    screen = cross_alignment(document, View(width=60)).plain
    first = document.alignment[0].beyond_special
    assert first
    (line,) = [line for line in screen.splitlines() if line.startswith("0 the")]
    assert document.keys[first.key].text in line
    assert "left out:" in screen
    assert all(cells(line) <= 60 for line in screen.splitlines())
    assert "left out:" not in cross_alignment(cross(model, QUERY, texts=texts(model)), VIEW).plain


def test_a_query_that_sees_special_tokens_alone_is_aligned_with_none() -> None:
    model = made()
    document = cross(model, QUERY, texts=with_special(texts(model), set(range(5))))
    assert [one.beyond_special for one in document.alignment] == [None] * 3
    assert all(one.special == pytest.approx(1) for one in document.alignment)
    assert "(special tokens alone)" in cross_alignment(document, VIEW).plain


def test_a_count_of_links_below_one_is_refused() -> None:
    with pytest.raises(attncli.AttnError, match="top is 0"):
        attncli.cross(attncli.load(seed=0), "a b", "c d", top=0)
