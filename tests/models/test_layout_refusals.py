"""Weight files that are not what they should be: what was found, what was expected, what was
probably meant.
"""

import difflib
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.errors import AttnError, InputError, UsageError
from attncli.models.layout import LayoutRequest
from attncli.models.weight_file import COMPARED, WeightFile, recognise

EYE = np.eye(6, dtype=np.float32)


def read(
    tensors: dict[str, Any], asked: LayoutRequest | None = None, **metadata: str
) -> WeightFile:
    return recognise(
        {name: np.asarray(array, np.float32) for name, array in tensors.items()},
        metadata,
        "w.npz",
        asked or LayoutRequest(),
    )


def shapes(**sizes: tuple[int, ...]) -> dict[str, Any]:
    return {name.replace("__", "."): np.ones(size) for name, size in sizes.items()}


CANONICAL = shapes(q__weight=(6, 6), k__weight=(6, 6), v__weight=(6, 6), o__weight=(6, 6))
TORCH = shapes(
    in_proj_weight=(18, 6), in_proj_bias=(18,), out_proj__weight=(6, 6), out_proj__bias=(6,)
)
HEADS = {
    f"heads.{head}.W{role}.weight": np.ones((2, 6)) for head in range(3) for role in "QKV"
} | shapes(linear__weight=(6, 6))
SHARED = {f"{name}.weight": np.ones((2, 2)) for name in ("values", "keys", "queries")} | shapes(
    fc_out__weight=(6, 6)
)


def without(tensors: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: array for name, array in tensors.items() if name not in names}


@pytest.mark.parametrize(
    ("tensors", "what", "expected", "hint"),
    [
        ({}, "no tensors", "one attention", ""),
        (
            {"conv1.weight": EYE, "fc.bias": np.ones(6)},
            "no attention that attn knows: conv1.weight fc.bias",
            "q.weight",
            "",
        ),
        (without(CANONICAL, "k.weight"), "lacks k.weight", "q.weight k.weight v.weight", ""),
        (
            without(CANONICAL, "k.weight") | {"k.wieght": EYE},
            "unknown k.wieght",
            "k.weight",
            "did you mean k.weight",
        ),
        # another number is no slip in spelling, and what the file has is no better spelling
        (
            {f"linears.{place}.weight": EYE for place in range(5)},
            "unknown linears.4.weight",
            "linears.0.weight linears.1.weight",
            None,
        ),
        ({"lines.1.weight": EYE}, "no attention that attn knows", "q.weight", "linears.1.weight"),
        ({"linear.1.weight": EYE}, "no attention that attn knows", "q.weight", "linears.1.weight"),
        (CANONICAL | {"extra": EYE}, "unknown extra", "o.weight", ""),
        (
            without(TORCH, "out_proj.weight"),
            "lacks out_proj.weight",
            "in_proj_weight out_proj.weight",
            "",
        ),
        (TORCH | {"in_proj_wait": EYE}, "unknown in_proj_wait", "in_proj_weight", ""),
        (without(HEADS, "heads.1.WK.weight"), "lacks heads.1.WK.weight", "heads.0.WQ.weight", ""),
        (without(SHARED, "fc_out.weight"), "lacks fc_out.weight", "fc_out.weight", ""),
        (
            {"layers.0.q.weight": EYE, "layers.1.q.weight": EYE},
            "more than one attention",
            "the tensors of one",
            "--prefix layers.0.",
        ),
        (
            {f"attention.{name}": array for name, array in SHARED.items()}
            | {"feed_forward.0.weight": EYE},
            "unknown feed_forward.0.weight",
            "fc_out.weight",
            "--prefix attention.",
        ),
    ],
)
def test_names(tensors: dict[str, Any], what: str, expected: str, hint: str | None) -> None:
    with pytest.raises(InputError) as found:
        read(tensors)
    assert what in found.value.what
    assert expected in found.value.expected
    if hint is None:
        assert not found.value.hint
    else:
        assert hint in found.value.hint
    assert found.value.where == "w.npz"


@pytest.mark.parametrize(
    ("tensors", "what", "expected"),
    [
        (
            CANONICAL | shapes(k__weight=(6, 5)),
            "k.weight has shape [6, 5]",
            "6 inputs, as q.weight has",
        ),
        (CANONICAL | shapes(k__weight=(7, 6)), "k.weight has shape [7, 6]", "kv heads of width 6"),
        (CANONICAL | shapes(o__weight=(6, 5)), "o.weight has shape [6, 5]", "6 inputs"),
        (CANONICAL | shapes(q__bias=(5,)), "q.bias has shape [5]", "[6]"),
        (CANONICAL | shapes(norm__weight=(5,)), "norm.weight has shape [5]", "[6]"),
        (CANONICAL | shapes(norm__bias=(6,)), "norm.bias", "norm.weight beside it"),
        (
            CANONICAL | shapes(embedding__weight=(3, 5)),
            "embedding.weight has shape [3, 5]",
            "[any, 6]",
        ),
        (CANONICAL | shapes(q__weight=(6,)), "q.weight has shape [6]", "[any, any]"),
        (CANONICAL | shapes(q__weight=(0, 6)), "q.weight has shape [0, 6]", "at least one number"),
        (CANONICAL | shapes(bias_k=(1, 1, 6)), "bias_k alone", "both"),
        (
            CANONICAL | shapes(bias_k=(1, 1, 5), bias_v=(1, 1, 6)),
            "bias_k has shape [1, 1, 5]",
            "6 numbers",
        ),
        (TORCH | shapes(in_proj_weight=(17, 6)), "in_proj_weight has shape [17, 6]", "[18, 6]"),
        (TORCH | shapes(in_proj_bias=(6,)), "in_proj_bias has shape [6]", "[18]"),
        (
            HEADS | {"heads.2.WQ.weight": np.ones((3, 6))},
            "heads.2.WQ.weight has shape [3, 6]",
            "[2, 6]",
        ),
        (
            HEADS | {"heads.0.WQ.bias": np.ones(2)},
            "heads.0.WQ has a bias and heads.1.WQ has none",
            "every head",
        ),
        (SHARED | shapes(keys__weight=(3, 3)), "keys.weight has shape [3, 3]", "[2, 2]"),
        (
            SHARED | shapes(fc_out__weight=(6, 5)),
            "works on 2 entries, fc_out.weight on 5",
            "divides",
        ),
        (
            shapes(c_attn__weight=(6, 17), c_proj__weight=(6, 6)),
            "c_attn.weight has shape [6, 17]",
            "[3·d_model, d_model]",
        ),
    ],
)
def test_shapes_name_both_what_is_there_and_what_should_be(
    tensors: dict[str, Any], what: str, expected: str
) -> None:
    with pytest.raises(InputError) as found:
        read(tensors)
    assert what in found.value.what
    assert expected in found.value.expected


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (LayoutRequest(heads=5), "5 heads cannot share"),
        (LayoutRequest(heads=0), "--num-heads is 0"),
        (LayoutRequest(d_model=7), "--d-model is 7, the file's is 6"),
        (LayoutRequest(heads=2, d_k=2), "--d-k is 2, the file's is 3"),
        (LayoutRequest(heads=2, d_v=5), "--d-v is 5, the file's is 3"),
    ],
)
def test_the_asker_contradicts_the_file(asked: LayoutRequest, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(CANONICAL, asked)
    with pytest.raises(UsageError, match="--num-heads is 4, the file's is 3"):
        read(HEADS, LayoutRequest(heads=4))


def test_heads_come_from_the_tensors_the_asker_the_metadata_d_k_or_are_one_and_said() -> None:
    assert read(HEADS).facts.heads == 3
    assert read(CANONICAL, LayoutRequest(heads=2), num_heads="3").facts.heads == 2
    assert read(CANONICAL, num_heads="3").facts.heads == 3
    assert read(CANONICAL, LayoutRequest(d_k=2)).facts.heads == 3
    assumed = read(CANONICAL)
    assert assumed.facts.heads == 1
    assert any("does not say how many heads" in note for note in assumed.notes)
    assert read(without(CANONICAL, "o.weight")).notes == ()


@pytest.mark.parametrize("stored", ["0", "-1", "4", "many", "1" * 400, "²"])
def test_metadata_that_lie_about_the_heads(stored: str) -> None:
    with pytest.raises(InputError, match="heads"):
        read(CANONICAL, num_heads=stored)


def test_shared_kv_heads_are_seen_from_the_shapes() -> None:
    facts = read(
        shapes(q__weight=(12, 5), k__weight=(4, 5), v__weight=(14, 5), o__weight=(5, 42)),
        LayoutRequest(heads=6),
    ).facts
    assert (facts.kv_heads, facts.d_k, facts.d_v) == (2, 2, 7)


def test_matrices_that_fit_one_way_only_are_read_that_way() -> None:
    """W_Q [in, out] is usual; shapes that only fit as [out, in] are turned, and it is said."""
    usual = read(shapes(W_Q=(5, 2), W_K=(5, 2), W_V=(5, 3)))
    assert (usual.facts.d_model, usual.facts.d_k, usual.facts.d_v, usual.notes) == (5, 2, 3, ())
    turned = read(shapes(W_Q=(2, 5), W_K=(2, 5), W_V=(3, 5)))
    assert (turned.facts.d_model, turned.facts.d_k, turned.facts.d_v) == (5, 2, 3)
    assert "only fit" in turned.notes[0]
    either = shapes(W_Q=(4, 2), W_K=(4, 2), W_V=(4, 2))
    assert read(either).facts.d_model == 4
    assert "also fit" in read(either).notes[0]
    assert read(either, LayoutRequest(d_model=2)).facts.d_k == 4
    # the X that will run settles it, too; one that fits neither way does not
    by_input = [read(either, LayoutRequest(input_width=width)) for width in (4, 2, 3)]
    assert [file.facts.d_model for file in by_input] == [4, 2, 4]
    assert [len(file.notes) for file in by_input] == [0, 1, 1]
    assert "only fit" in by_input[1].notes[0]


NAMES = st.sampled_from(
    [
        *CANONICAL,
        *TORCH,
        *SHARED,
        "heads.0.WQ.weight",
        "W_Q",
        "c_attn.weight",
        "x",
        "",
        ".",
        "a/b:0",
        "heads.9999.WQ.weight",
    ]
)
ARRAYS = st.sampled_from(
    [
        np.ones(size, np.float32)
        for size in ((6, 6), (18, 6), (6,), (), (2, 2), (1, 1, 6), (3, 6, 2), (0, 6))
    ]
)


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(NAMES, ARRAYS, max_size=7),
    st.dictionaries(st.sampled_from(["num_heads", "tokens", "scale", "seed"]), st.text(max_size=5)),
)
def test_any_tensors_are_read_or_refused(tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    with suppress(AttnError):
        found = recognise(tensors, metadata, "w.npz")
        assert found.weights["q.weight"].shape[1] == found.facts.d_model


def test_what_very_many_names_may_have_meant_is_asked_for_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Comparing each of twenty thousand names would take many seconds."""
    asked: list[str] = []

    def counted(name: str, *known: object, **how: object) -> list[str]:
        asked.append(name)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    with pytest.raises(InputError, match="no attention that attn knows"):
        read({f"weird.{number}.thing": np.ones(1) for number in range(2_000)})
    assert len(asked) == COMPARED
