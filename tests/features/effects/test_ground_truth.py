"""What must hold by construction: the induction model, and properties of taking away."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from induction_model import model as induction_model
from msgspec.structs import replace

import attncli
from attncli.features.effects.ablation import Removal, RemovalResult, remove
from attncli.features.effects.measures import MeasureRequest, vector_change
from attncli.features.effects.sweep import ByMean, ByZero, CutLink
from attncli.mechanism.context import KnockOut, Replace, Zero
from attncli.mechanism.mask import Causal
from attncli.mechanism.spec import HeadSelection
from attncli.models.one_layer import Settings, seeded_model, spec_of

TEXT = "eabcda"


def removed(library: str = "numpy", **told: object) -> RemovalResult:
    own = induction_model(library)
    tokens = own.tokenizer.encode(TEXT)
    asked = MeasureRequest(("logprob", "kl", "vector"), (5,), 5)
    return remove(own, tokens, Removal(HeadSelection(), **{"baseline": "none", **told}), asked)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("by", [ByZero(), ByMean()])
def test_only_the_two_heads_of_induction_matter(library: str, by: object) -> None:
    found = removed(library, by=by)
    assert found.target == 1  # the model says b after "eabcda"
    for effect in found.effects:
        if effect.place.head == 0:
            assert effect.readings["logprob"] < -1.0
            assert effect.readings["kl"] > 0.5
        else:
            assert abs(effect.readings["logprob"]) < 1e-12
            assert effect.readings["kl"] < 1e-12
    assert found.together["logprob"] < -1.0


def test_the_link_of_induction() -> None:
    """Cutting what the last token looks at, in the induction head alone, removes the prediction,
    too.
    """
    found = removed(link=CutLink((5,), (2,)))
    by_place = {(effect.place.layer, effect.place.head): effect for effect in found.effects}
    assert by_place[1, 0].weight == pytest.approx(1.0)
    assert by_place[1, 0].readings["logprob"] < -1.0
    assert all(
        abs(effect.readings["logprob"]) < 1e-12
        for place, effect in by_place.items()
        if place != (1, 0)
    )
    before = removed(link=CutLink((2,), (1,)))
    assert {
        (effect.place.layer, effect.place.head): effect.readings["logprob"] < -1.0
        for effect in before.effects
    } == {(layer, head): (layer, head) == (0, 0) for layer in range(2) for head in range(3)}


def seeded(**told: object):
    from attncli.arrays.backend import choose
    from attncli.inputs.tokenize import tokenizer

    settings = Settings(d_model=20, heads=4, residual=True, layer_norm=True, mask=Causal(), **told)
    return seeded_model(
        settings, 3, "seeded", tokenizer("word"), choose("numpy", device=None, dtype="float64")
    )


ASKED = MeasureRequest(("vector",), (4,), 4)


def test_a_hidden_link_changes_nothing_at_all() -> None:
    own = seeded()
    tokens = own.encode("one two three four five")
    found = remove(
        own,
        tokens,
        Removal(HeadSelection(), link=CutLink((2,), (4,)), baseline="none"),
        replace(ASKED, positions=(2,)),
    )
    assert {(effect.readings["cosine"], effect.readings["norm"]) for effect in found.effects} == {
        (0.0, 0.0)
    }
    assert found.together == {"cosine": 0.0, "norm": 0.0}


def test_a_vector_that_stays_does_not_turn_at_all() -> None:
    vectors = np.random.default_rng(3).normal(size=(300, 30))
    found = [vector_change(vector, vectors) for vector in vectors]
    assert [float(each["cosine"][at]) for at, each in enumerate(found)] == [0.0] * 300
    assert all(np.delete(each["cosine"], at).min() > 0.01 for at, each in enumerate(found))


def test_a_head_that_writes_nothing_changes_nothing_at_all() -> None:
    own = seeded()
    own.store.weights["o.weight"][:, 5:10] = 0.0
    tokens = own.encode("one two three four five")
    found = remove(own, tokens, Removal(HeadSelection(), baseline="none"), ASKED)
    assert [effect.readings["cosine"] == 0.0 for effect in found.effects] == [
        False,
        True,
        False,
        False,
    ]
    assert found.effects[1].readings["norm"] == 0.0


def test_all_links_of_a_row_are_that_row_empty() -> None:
    own = seeded()
    tokens = own.encode("one two three four five")
    cut = {(0, "self"): (KnockOut((1,), (4,), tuple(range(5))),)}
    (without,) = own.trace(tokens, interventions=cut)
    assert without.empty_rows.tolist() == [
        [False] * 5,
        [False] * 4 + [True],
        [False] * 5,
        [False] * 5,
    ]
    assert not without.stages["mixed"][1, 4].any()
    assert not without.stages["weights"][1, 4].any()
    (whole,) = own.trace(tokens)
    assert np.array_equal(
        np.delete(without.stages["mixed"][1], 4, 0), np.delete(whole.stages["mixed"][1], 4, 0)
    )


def test_interventions_in_trace_streamed_and_in_batches() -> None:
    own = seeded()
    texts = [own.encode("one two three four five"), own.encode("six seven")]
    values = np.arange(25.0).reshape(1, 5, 5) / 7
    for change in (Zero((0, 2)), Replace((3,), values), KnockOut((1, 2), (3,), (0, 2))):
        changes = {(0, "self"): (change,)}
        (dense,) = own.trace(texts[0], interventions=changes)
        (plain,) = own.trace(texts[0])
        (streamed,) = own.trace(texts[0], interventions=changes, rows=2, keep=())
        assert np.allclose(dense.after, streamed.after, rtol=0, atol=1e-13)
        assert not np.allclose(dense.after, plain.after, rtol=0, atol=1e-3)
    changes = {(0, "self"): (Zero((0, 2)),)}
    (batch,) = own.trace_batch(texts, interventions=changes)
    for place, tokens in enumerate(texts):
        (alone,) = own.trace(tokens, interventions=changes)
        assert np.allclose(batch.after[place][: len(tokens)], alone.after, rtol=0, atol=1e-13)


def test_interventions_while_generating() -> None:
    """Token by token with kept keys equals the whole text; a link is named by positions."""
    own = seeded()
    tokens = own.encode("one two three four five")
    for changes in ({(0, "self"): (Zero((1,)),)}, {(0, "self"): (KnockOut((0, 1), (4,), (1, 4)),)}):
        (whole,) = own.trace(tokens, interventions=changes)
        past: dict = {}
        steps = [
            next(iter(own.trace([token], past=past, interventions=changes))).after
            for token in tokens
        ]
        assert np.allclose(np.concatenate(steps), whole.after, rtol=0, atol=1e-13)


def test_the_oracle_of_one_head_by_hand() -> None:
    """Without residual and norms, taking a head away takes its part of W_O's product away."""
    own = seeded_without()
    tokens = own.encode("one two three four five")
    (trace,) = own.trace(tokens)
    mixed, projection = trace.stages["mixed"], own.store.weights["o.weight"].astype(np.float64)
    removal = Removal(HeadSelection(range(1), range(4)), baseline="all")
    found = remove(own, tokens, removal, ASKED)
    for head, effect in enumerate(found.effects):
        x = trace.after[4]
        y = x - projection[:, head * 5 : head * 5 + 5] @ mixed[head, 4]
        assert effect.readings["cosine"] == pytest.approx(
            1 - x @ y / np.linalg.norm(x) / np.linalg.norm(y), abs=1e-13
        )
        assert effect.readings["norm"] == pytest.approx(
            np.linalg.norm(x - y) / np.linalg.norm(x), abs=1e-13
        )
        assert 0 < effect.random["cosine"] < 2


def seeded_without():
    own = seeded()
    spec = spec_of(Settings(d_model=20, heads=4, mask=Causal()))
    return replace(own, spec=spec)


def test_named_streams_give_the_same_baseline() -> None:
    own = seeded()
    tokens = own.encode("one two three four five")
    run = partial(remove, own, tokens, Removal(HeadSelection(), baseline="all"), ASKED)
    assert [effect.random for effect in run().effects] == [
        effect.random for effect in run().effects
    ]
    top = remove(own, tokens, Removal(HeadSelection(), top=2), ASKED).effects
    assert sum(effect.random is not None for effect in top) == 2
    shown = sorted(top, key=lambda effect: -effect.readings["cosine"])[:2]
    assert all(effect.random is not None for effect in shown)


def test_a_zero_vector_has_no_angle() -> None:
    own = seeded_without()
    own.store.weights["o.weight"][:] = 0.0
    found = remove(
        own, own.encode("one two three four five"), Removal(HeadSelection(), baseline="none"), ASKED
    )
    assert all(np.isnan(list(effect.readings.values())).all() for effect in found.effects)


def test_negative_control() -> None:
    """The comparison with the oracle fails when the code takes away something else."""
    tokens = (own := attncli.load("minilm", dtype="float64")).encode("it was tired")
    zero, mean = (
        remove(
            own,
            tokens,
            Removal(HeadSelection(), by, baseline="none"),
            MeasureRequest(("vector",), (1,), 1),
        )
        for by in (ByZero(), ByMean())
    )
    pairs = zip(zero.effects, mean.effects, strict=True)
    assert all(abs(a.readings["norm"] - b.readings["norm"]) > 1e-10 for a, b in pairs)
