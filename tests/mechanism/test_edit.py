"""Edits change what a layer computes as hooks in transformers do, and as interventions of the same
meaning do.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import attncli
from attncli import Edit, KnockOut, Zero
from attncli.arrays.backend import choose
from attncli.mechanism.edit import SITES, apply_edits, edits_by_place
from tests.small_gpt2 import small_gpt2

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_gpt2(tmp_path_factory.mktemp("edit") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return attncli.load(folder)


def logits(model, edits=(), interventions=None):
    """The logits of every token, [token, vocabulary], with edits or interventions."""
    changed = interventions or {}
    *_, last = model.trace(TEXT, edits=edits, interventions=changed)
    return np.asarray(model.logits(last.after))


def without_head(array):
    """What heads mix, [head, token, v_dim], without that of head 1."""
    array = array.copy()
    array[1] = 0
    return array


def without_link(fill):
    """A function of [head, query, key] that gives the link from query 4 to key 2 this value."""

    def cut(array):
        array = array.copy()
        array[..., 4, 2] = fill
        return array

    return cut


def test_an_edit_of_what_heads_mix_is_the_intervention_zero(model):
    edited = logits(model, [Edit(0, "z", without_head)])
    np.testing.assert_array_equal(edited, logits(model, (), {(0, "self"): (Zero((1,)),)}))
    assert abs(edited - logits(model)).max() > 0.01


def test_an_edit_of_scores_is_the_intervention_that_cuts_a_link(model):
    cut = KnockOut(heads=(0, 1, 2), queries=(4,), keys=(2,))
    edits = [Edit(1, "scores", without_link(-np.inf))]
    expected = logits(model, (), {(1, "self"): (cut,)})
    np.testing.assert_allclose(logits(model, edits), expected, atol=2e-6)
    [layer] = model.trace(TEXT, layers=1, edits=edits)
    assert (layer.stages["weights"][:, 4, 2] == 0).all()
    np.testing.assert_allclose(layer.stages["weights"].sum(-1), 1, atol=1e-6)


def test_an_edit_of_the_pattern_leaves_the_rest_of_its_row(model):
    edits = [Edit(1, "pattern", without_link(0.0))]
    [before] = model.trace(TEXT, layers=1)
    [after] = model.trace(TEXT, layers=1, edits=edits)
    expected = without_link(0.0)(before.stages["weights"])
    np.testing.assert_array_equal(after.stages["weights"], expected)
    np.testing.assert_allclose(
        after.stages["mixed"], expected @ before.stages["v"], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(after.stages["masked"], before.stages["masked"])


def test_a_function_that_only_looks_changes_nothing(model):
    looked = {}

    def look(site):
        """A function that keeps the array it is given."""

        def keep(array):
            looked[site] = array.shape
            return array

        return keep

    edited = logits(model, [Edit(1, site, look(site)) for site in SITES])
    # weights that are edited are mixed in one product in place of several
    np.testing.assert_allclose(edited, logits(model), atol=2e-6)
    assert {site: looked[site] for site in SITES} == {
        "resid_pre": (19, 24), "resid_mid": (19, 24), "resid_post": (19, 24), "attn_out": (19, 24),
        "mlp_out": (19, 24), "z": (3, 19, 8), "scores": (3, 19, 19), "pattern": (3, 19, 19),
    }  # fmt: skip


def test_edits_of_one_place_are_done_in_order(model):
    edits = [Edit(0, "resid_post", lambda x: x + 1), Edit(0, "resid_post", lambda x: x * 0)]
    nothing = logits(model, [Edit(0, "resid_post", lambda x: x * 0)])
    np.testing.assert_array_equal(logits(model, edits), nothing)
    np.testing.assert_allclose(nothing[1:], nothing[:1].repeat(18, 0), atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"])
def test_edits_equal_hooks_in_transformers(model, folder, site):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    reference = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float64).eval()
    block = reference.transformer.h[1]
    scale = np.linspace(-1, 2, 24)
    factors = torch.tensor(scale)

    def before(module, arguments):
        """The vectors that enter, each entry times its factor."""
        return (arguments[0] * factors, *arguments[1:])

    def after(module, arguments, output):
        """The vectors that leave, each entry times its factor."""
        if isinstance(output, tuple):
            return (output[0] * factors, *output[1:])
        return output * factors

    hooks = {
        "resid_pre": lambda: block.register_forward_pre_hook(before),
        "resid_post": lambda: block.register_forward_hook(after),
        "attn_out": lambda: block.attn.register_forward_hook(after),
        "mlp_out": lambda: block.mlp.register_forward_hook(after),
    }
    if site == "resid_mid":
        # no module of GPT-2 gives it: the residual stream is scaled where attention adds to it
        entered = {}
        block.register_forward_pre_hook(lambda module, given: entered.update(x=given[0]))
        block.attn.register_forward_hook(
            lambda module, given, output: (
                (entered["x"] + output[0]) * factors - entered["x"],
                *output[1:],
            )
        )
    else:
        hooks[site]()
    tokens = model.encode(TEXT)
    with torch.no_grad():
        expected = reference(torch.tensor([[token.id for token in tokens]])).logits[0].numpy()
    edited = logits(model, [Edit(1, site, lambda x: x * scale)])
    np.testing.assert_allclose(edited, expected, rtol=1e-5, atol=1e-4)


def without_number(array):
    """The vectors with one entry of −∞."""
    array = array.copy()
    array[2, 3] = -np.inf
    return array


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit(0, "resid_past", abs), "there is no site 'resid_past'"),
        (Edit(2, "z", abs), "there is no layer 2"),
        (Edit(-1, "z", abs), "there is no layer -1"),
        (abs, "<built-in function abs> is no edit"),
        (Edit(1, "z", lambda x: x[0]), "the edit of z.1 returned [19, 8]"),
        (Edit(1, "z", lambda x: None), "the edit of z.1 returned NoneType"),
        (Edit(1, "z", lambda x: x * 1j), "the edit of z.1 returned complex"),
        (Edit(1, "z", lambda x: x * np.nan), "the edit of z.1 returned nan at [0, 0, 0]"),
        (Edit(1, "resid_post", without_number), "the edit of resid_post.1 returned -inf at [2, 3]"),
        (Edit(1, "scores", lambda x: np.inf - x), "the edit of scores.1 returned inf at [0, 0, 0]"),
    ],
)
def test_edits_that_cannot_be_done_are_refused(model, edit, message):
    with pytest.raises(attncli.AttnError) as caught:
        logits(model, [edit])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("layer", "function", "message"),
    [
        ("0", abs, "the layer of an edit is '0', of type str"),
        (1.0, abs, "the layer of an edit is 1.0, of type float"),
        (True, abs, "the layer of an edit is True, of type bool"),
        (0, 5, "the function of an edit is 5, of type int"),
    ],
)
def test_an_edit_has_a_number_and_a_function(layer, function, message):
    with pytest.raises(attncli.AttnError) as caught:
        Edit(layer, "z", function)
    assert str(caught.value).startswith(message)
    assert Edit(np.int64(1), "z", abs).address == "z.1"


@pytest.mark.parametrize("edits", [Edit(0, "z", abs), 5])
def test_edits_are_a_list(model, edits):
    with pytest.raises(attncli.AttnError, match=r"is .*, and no list"):
        model.trace(TEXT, edits=edits)
    with pytest.raises(attncli.AttnError, match="x… is no edit"):
        model.trace(TEXT, edits=["x" * 200])


def test_numbers_that_were_not_finite_before_are_no_fault_of_an_edit():
    backend = choose("numpy", device=None, dtype="float32")
    edits = {(0, "z"): [Edit(0, "z", lambda x: x * 2)]}
    with_nan = np.array([[np.nan, 1]], np.float32)
    np.testing.assert_array_equal(apply_edits(backend, edits, 0, "z", with_nan), with_nan * 2)


def test_many_texts_are_edited_as_each_is_alone(model):
    texts = [TEXT, "a dog", "the cat sat on a mat again"]
    edits = [Edit(0, "z", without_head)]
    for text, found in zip(texts, model.traces(texts, edits=edits), strict=True):
        alone = model.trace(text, edits=edits).weights
        np.testing.assert_array_equal(found.weights, alone)
        assert abs(alone - model.trace(text).weights).max() > 1e-3
    with pytest.raises(attncli.AttnError, match="no list"):
        list(model.traces(texts, edits=edits[0]))


def test_edits_of_layers_that_do_not_run_are_refused(model):
    with pytest.raises(attncli.AttnError, match="layer 1 is edited, and does not run"):
        model.trace(TEXT, layers=0, edits=[Edit(1, "z", abs)])


def test_edits_of_places_that_a_model_lacks_are_refused():
    alone = attncli.load(seed=0)
    with pytest.raises(attncli.AttnError, match=r"this model has no mlp_out\.0"):
        alone.trace(TEXT, edits=[Edit(0, "mlp_out", abs)])
    with pytest.raises(attncli.AttnError, match="some rows at a time"):
        alone.trace(TEXT, rows=2, edits=[Edit(0, "pattern", abs)])


def test_a_parallel_block_without_a_feed_forward_part_has_a_stream_after_attention(model):
    """There nothing reads beside attention: the stream after it is made, and can be edited."""
    block = model.spec.blocks[0]
    edits = [Edit(0, "resid_mid", lambda x: x)]
    alone = replace(block, parallel=True, mlp=None)
    assert edits_by_place(edits, [alone], 0) == {(0, "resid_mid"): edits}
    with pytest.raises(attncli.AttnError, match=r"no resid_mid\.0"):
        edits_by_place(edits, [replace(block, parallel=True)], 0)
