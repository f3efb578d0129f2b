"""Comparisons: every number against loops, signs, alignment, what moved."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from telling import told

import attncli
from attncli.arrays.backend import choose
from attncli.documents.reading import document_of
from attncli.errors import InputError
from attncli.features.compare.alignment import align
from attncli.features.compare.compute import _compared_runs, _differs
from attncli.features.compare.document import CompareDocument
from attncli.features.compare.screen import _link_cells
from attncli.features.run.compute import RunRequest, _measured_run
from attncli.features.run.document import RunDocument
from attncli.inputs.tokenize import tokenizer
from attncli.measure.labels import row_divergences
from attncli.mechanism.mask import Everywhere, Mask, Window
from attncli.models.aliases import local_folder
from attncli.models.one_layer import Settings, seeded_model

TEXT = "one two three four five"


def run(
    text: str = TEXT,
    *,
    mask: Mask | None = None,
    seed: int = 0,
    heads: int = 2,
    scale: str = "sqrt-dk",
) -> RunDocument:
    settings = Settings(d_model=10, heads=heads, mask=mask or Everywhere(), scale=scale)
    model = seeded_model(
        settings, seed, "seeded", tokenizer("word"), choose("numpy", device=None, dtype="float64")
    )
    return _measured_run(model, text, model.encode(text), RunRequest())


def compared(a: RunDocument, b: RunDocument, top: int = 9) -> CompareDocument:
    return _compared_runs(a, b, names=("a", "b"), top=top)


def divergence(p: list[float], q: list[float]) -> float:
    """Jensen–Shannon divergence in nats, term by term."""
    total = 0.0
    for x, y in zip(p, q, strict=True):
        middle = (x + y) / 2
        total += (x * math.log(x / middle) if x else 0.0) / 2 + (
            y * math.log(y / middle) if y else 0.0
        ) / 2
    return total


def test_differences_are_b_minus_a() -> None:
    a, b = run(), run(seed=1)
    found = compared(a, b)
    for at, head in enumerate(found.heads):
        left, right = (side.layers[0].heads[at].weights for side in (a, b))
        assert np.allclose(head.difference, right - left)
        assert head.mean_difference == pytest.approx(np.abs(right - left).mean())
        most = head.max_difference
        assert most.value == pytest.approx((right - left)[most.query, most.key])
        assert abs(most.value) == pytest.approx(np.abs(right - left).max())
        assert head.js == pytest.approx(
            np.mean([divergence(p, q) for p, q in zip(left.tolist(), right.tolist(), strict=True)])
        )
    assert found.differs == ["weights"]


def test_a_run_and_itself_differ_in_nothing() -> None:
    found = compared(run(), run())
    assert (found.summary.max_difference, found.summary.js, found.moved, found.differs) == (
        0.0,
        0.0,
        [],
        [],
    )


def test_the_golden_divergence() -> None:
    g = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.15, 0.5, 0.25]])
    uniform = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    assert row_divergences(g, uniform).mean() == pytest.approx(0.015352, abs=1e-6)
    assert row_divergences(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))[0] == pytest.approx(
        math.log(2)
    )


def test_weight_kept_output_error_and_pairs_of_a_sparse_mask() -> None:
    a, b = run(heads=1), run(heads=1, mask=Window(1, 0))
    (head,) = compared(a, b).heads
    weights, outputs = (
        a.layers[0].heads[0].weights,
        [side.layers[0].heads[0].output for side in (a, b)],
    )
    kept = sum(weights[i, j] for i in range(5) for j in range(5) if i - 1 <= j <= i)
    assert head.kept == pytest.approx(kept / 5)
    assert told(head.pairs) == {"a": 25, "b": 9}
    assert head.output_error == pytest.approx(
        np.linalg.norm(outputs[1] - outputs[0]) / np.linalg.norm(outputs[0])
    )
    assert np.isnan(head.weights_b[0, 1:]).all()
    assert not np.isnan(head.difference).any()
    assert head.js_rows == 5


def test_texts_are_compared_where_their_tokens_agree() -> None:
    a, b = run("the red cat sat", heads=1), run("the cat sat down", heads=1)
    found = compared(a, b)
    assert found.aligned == [(0, 0), (2, 1), (3, 2)]
    assert told(found.only) == {"a": [1], "b": [3]}
    (head,) = found.heads
    left, right = (side.layers[0].heads[0].weights for side in (a, b))
    assert np.allclose(
        head.difference, right[np.ix_([0, 1, 2], [0, 1, 2])] - left[np.ix_([0, 2, 3], [0, 2, 3])]
    )
    assert head.outside.a == pytest.approx(left[[0, 2, 3], 1].mean())
    assert head.outside.b == pytest.approx(right[[0, 1, 2], 3].mean())
    rows = [
        divergence([*left[i, [0, 2, 3]], left[i, 1]], [*right[k, [0, 1, 2]], right[k, 3]])
        for i, k in ((0, 0), (2, 1), (3, 2))
    ]
    assert head.js == pytest.approx(np.mean(rows))


def test_what_moved_is_sorted_by_size_and_keeps_its_sign() -> None:
    found = compared(run(), run(seed=1), top=200)
    sizes = [abs(one.difference) for one in found.moved]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 2 * 25
    for one in found.moved:
        assert one.difference == pytest.approx(one.b - one.a)
    assert found.moved[0].difference == found.summary.max_difference


def test_saved_runs_compare_like_fresh_ones() -> None:
    import json

    from attncli.draw.encoding import json_bytes

    a, b = run(), run(mask=Window(1, 0))
    saved = compared(*(document_of(json.loads(json_bytes(side)), "saved") for side in (a, b)))
    fresh = compared(a, b)
    for left, right in zip(saved.heads, fresh.heads, strict=True):
        assert left.js == pytest.approx(right.js)
        assert told(left.pairs) == told(right.pairs)
        assert np.allclose(left.difference, right.difference)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InputError, match="no token in common"):
        compared(run("a b"), run("c d"))
    with pytest.raises(InputError, match="different numbers of heads: 2 and 5"):
        compared(run(), run(heads=5))
    with pytest.raises(InputError, match="no weights"):
        compared(run(), replace(run(), layers=[]))
    with pytest.raises(InputError, match="some queries"):
        compared(run(), replace(run(), queries=[1]))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_alignments_are_equal_tokens_in_order(a: list[str], b: list[str]) -> None:
    found = align(a, b)
    assert [a[at] for at in found.a] == [b[at] for at in found.b]
    assert list(found.a) == sorted(set(found.a))
    if sorted(a) == sorted(b):
        assert (found.only_a, found.only_b) == ((), ())
        for letter in "abc":  # equal tokens keep their order
            assert [
                right for left, right in zip(found.a, found.b, strict=True) if a[left] == letter
            ] == [at for at, text in enumerate(b) if text == letter]
    else:
        assert list(found.b) == sorted(set(found.b))
    assert sorted([*found.a, *found.only_a]) == list(range(len(a)))
    assert sorted([*found.b, *found.only_b]) == list(range(len(b)))
    if a == b:
        assert found.only_a == ()


def test_the_same_tokens_in_another_order_are_compared_with_themselves() -> None:
    """Without positions each token has the same weights and output wherever it stands."""
    found = compared(run("one two three"), run("three one two"))
    assert found.aligned == [(0, 1), (1, 2), (2, 0)]
    assert told(found.only) == {"a": [], "b": []}
    assert abs(found.summary.max_difference) < 1e-14
    for head in found.heads:
        assert head.output_error < 1e-14
    causal = compared(
        run("one two three", mask=Window(9, 0)), run("three one two", mask=Window(9, 0))
    )
    assert abs(causal.summary.max_difference) > 0.1


def test_tokens_differ_only_where_the_text_is_the_same() -> None:
    one = run()
    cut = replace(one, tokens=[replace(token, text=f"{token.text}'") for token in one.tokens])
    assert compared(one, run()).differs == []
    assert "tokens" not in compared(one, run("one two three four six")).differs
    assert "tokens" in compare_differences(one, cut)


def compare_differences(a: RunDocument, b: RunDocument) -> list[str]:
    return _differs(
        a, b, [(0, head) for head in a.layers[0].heads], [(0, head) for head in b.layers[0].heads]
    )


@pytest.mark.thorough
def test_the_frame_has_the_link_that_the_screen_names() -> None:
    """Its difference, ends and both weights, by a loop over the links that count: not those of the
    first token, of a token to itself and of neighbours. The link that changed most of all is another.
    """
    if local_folder("smollm2") is None:
        pytest.skip("smollm2 is not installed")
    model = attncli.load("smollm2")
    texts = [f"The suitcase was {word}, so Tom carried it with" for word in ("heavy", "light")]
    a, b = (attncli.run(model, text) for text in texts)
    document = attncli.compare(a, b, query="with")
    query = len(a.tokens) - 1
    links = []
    for layer_a, layer_b in zip(a.layers, b.layers, strict=True):
        for head_a, head_b in zip(layer_a.heads, layer_b.heads, strict=True):
            for key in range(1, query - 1):
                weights = [float(head.weights[query][key]) for head in (head_a, head_b)]
                links.append((weights[1] - weights[0], layer_a.layer, head_a.head, key, *weights))
    difference, layer, head, key, weight_a, weight_b = max(links, key=lambda link: abs(link[0]))
    row = max(document.rows(), key=lambda row: abs(row["link_difference"]))
    assert (row["layer_a"], row["head_a"]) == (layer, head)
    assert (row["link_query"], row["link_key"]) == (query, key)
    assert row["link_difference"] == pytest.approx(difference)
    assert (row["link_a"], row["link_b"]) == pytest.approx((weight_a, weight_b))
    assert a.tokens[key].text == "carried"
    largest = max(document.rows(), key=lambda row: abs(row["max_difference"]))
    assert largest["key"] == 0


def test_a_head_without_a_link_that_counts_has_empty_cells() -> None:
    head = compared(run(), run(seed=1)).heads[0]
    assert _link_cells(replace(head, link=None), {}) == [None] * 5
