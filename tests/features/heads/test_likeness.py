"""Heads alike by their weights, and their singular directions, against full matrices and loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2

import attncli
from attncli.features.heads.across_heads import (
    basis,
    head_matrices,
    kernel,
    kernel_chance,
    likeness_rows,
    product_svd,
)

CHANCE = np.random.default_rng(3)


def by_projections(first: np.ndarray, second: np.ndarray) -> float:
    """tr(P₁P₂) of the projections onto both column spaces, made by the pseudo-inverse, over the
    smaller rank.
    """
    one, two = (matrix @ np.linalg.pinv(matrix) for matrix in (first, second))
    ranks = [np.linalg.matrix_rank(matrix) for matrix in (first, second)]
    return float(
        sum(one[i, j] * two[j, i] for i in range(len(one)) for j in range(len(two))) / min(ranks)
    )


def test_the_kernel_is_the_trace_of_both_projections() -> None:
    first, second = CHANCE.standard_normal((17, 5)), CHANCE.standard_normal((17, 3))
    assert kernel(basis(first), basis(second)) == pytest.approx(
        by_projections(first, second), abs=1e-12
    )
    cosines = np.linalg.svd(basis(first).T @ basis(second), compute_uv=False)
    assert kernel(basis(first), basis(second)) == pytest.approx(
        sum(cosine**2 for cosine in cosines) / 3, abs=1e-12
    )
    assert kernel(basis(first), basis(first @ CHANCE.standard_normal((5, 5)))) == pytest.approx(
        1, abs=1e-12
    )
    apart = np.eye(17)
    assert kernel(apart[:, :5], apart[:, 5:9]) == 0
    less = np.concatenate([second, second[:, :1] - second[:, 1:2]], 1)  # of rank 3
    assert basis(less).shape == (17, 3)
    assert kernel(basis(less), basis(np.zeros((17, 2)))) is None


def test_random_subspaces_have_rank_over_width_in_common() -> None:
    chance = kernel_chance(96, 12)
    assert chance.mean == pytest.approx(12 / 96, abs=0.01)
    assert chance.mean < chance.largest < 0.25


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("likeness") / "gpt2"
    small_gpt2(folder)
    return folder


def test_circuits_tell_kernels_beside_composition(gpt2: Path) -> None:
    circuits = ask(
        "heads", "the cat sat", "--model", str(gpt2), "--across", "circuits", "--json"
    ).json["circuits"]
    model = attncli.load(str(gpt2), dtype="float64")
    heads = {
        (head.layer, head.head): head
        for layer in (0, 1)
        for head in head_matrices(model, layer, range(3))
    }
    for row in circuits["compositions"]:
        before, after = (heads[row[end]["layer"], row[end]["head"]] for end in ("from", "to"))
        reads = {"q": after.w_q, "k": after.w_k, "v": after.w_v}[row["way"]]
        assert row["kernel"] == pytest.approx(by_projections(before.w_o.T, reads), abs=1e-5)
    spaces = {"q": "w_q", "k": "w_k", "v": "w_v"}
    for row in circuits["likeness"]:
        pair = [heads[row[end]["layer"], row[end]["head"]] for end in "ab"]
        matrices = [
            head.w_o.T if row["space"] == "o" else getattr(head, spaces[row["space"]])
            for head in pair
        ]
        assert row["kernel"] == pytest.approx(by_projections(*matrices), abs=1e-5)
    assert [row["space"] for row in circuits["likeness"]] == sorted("qkvo" * 5, key="qkvo".index)
    first = [row["kernel"] for row in circuits["likeness"][:5]]
    assert first == sorted(first, reverse=True)
    every = list(heads.values())
    best = max(
        by_projections(a.w_q, b.w_q) for place, a in enumerate(every) for b in every[place + 1 :]
    )
    assert first[0] == pytest.approx(best, abs=1e-5)


def test_heads_that_share_keys_are_no_pair() -> None:
    model = attncli.load(seed=0, d_model=32, heads=2)
    one, two = head_matrices(model, 0, range(2))
    shared = [one, type(two)(0, 1, two.w_q, one.w_k, one.w_v, two.w_o)]
    assert {row.space for row in likeness_rows(shared)} == {"q", "o"}
    assert {row.space for row in likeness_rows([one, two])} == {"q", "k", "v", "o"}


def test_directions_are_those_of_the_whole_product(gpt2: Path) -> None:
    (found,) = ask(
        "heads", "the cat sat", "--model", str(gpt2), "--directions", "L1H2", "--json"
    ).json["directions"]
    assert (found["layer"], found["head"]) == (1, 2)
    model = attncli.load(str(gpt2), dtype="float64")
    (head,) = head_matrices(model, 1, [2])
    outer = model.store.outer(model.backend)
    embeddings = np.asarray(model.backend.numpy(outer("tokens.weight")), np.float64)
    output = (
        embeddings
        if outer("head.weight") is None
        else np.asarray(model.backend.numpy(outer("head.weight")))
    )
    for circuit, product, tables in (
        ("ov", head.w_v @ head.w_o, (embeddings, output)),
        ("qk", head.w_q @ head.w_k.T, (embeddings, embeddings)),
    ):
        left, sizes, right = np.linalg.svd(product)
        rows = [row for row in found["directions"] if row["circuit"] == circuit]
        assert len(rows) == 5
        for number, row in enumerate(rows):
            assert row["size"] == pytest.approx(sizes[number], rel=1e-5)
            assert row["share"] == pytest.approx(sizes[number] ** 2 / (sizes**2).sum(), rel=1e-4)
            told: list[Any] = []
            for vector, table, name in zip(
                (left[:, number], right[number]), tables, ("reads", "writes"), strict=True
            ):
                cosines = table @ vector / np.linalg.norm(table, axis=1)
                ends = [row[name][way] for way in ("toward", "opposite")]
                turned = ends[0][0]["id"] != int(cosines.argmax())  # a direction has no sign
                told.append(turned)
                signed = -cosines if turned else cosines
                assert [token["cosine"] for token in ends[0]] == pytest.approx(
                    np.sort(signed)[::-1][:5], abs=1e-5
                )
                assert [token["cosine"] for token in ends[1]] == pytest.approx(
                    np.sort(signed)[:5], abs=1e-5
                )
                assert [signed[token["id"]] for token in ends[0]] == pytest.approx(
                    np.sort(signed)[::-1][:5], abs=1e-5
                )
            assert told[0] == told[1], "both sides of a direction are turned together"


def test_a_product_is_taken_apart_without_being_made() -> None:
    first, second = CHANCE.standard_normal((13, 4)), CHANCE.standard_normal((4, 13))
    left, sizes, right = product_svd(first, second)
    np.testing.assert_allclose(left * sizes @ right, first @ second, atol=1e-12)
    np.testing.assert_allclose(
        sizes, np.linalg.svd(first @ second, compute_uv=False)[:4], atol=1e-12
    )


def test_directions_on_the_screen(gpt2: Path) -> None:
    for lang, said in (("en", "what is read becomes what is written"), ("zh", "读到的变成写出的")):
        answer = ask(
            "heads",
            "the cat sat",
            "--model",
            str(gpt2),
            "--directions",
            "L1H2",
            "--lang",
            lang,
            "--show",
            "directions",
        )
        assert (answer.code, answer.err) == (0, "")
        assert said in answer.out
        assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (("heads", "a b", "--directions", "L0H1"), 4, "--model NAME"),
        (
            ("heads", "a b", "--model", "{gpt2}", "--directions", "L9H1"),
            3,
            "there is no layer 9 head 1",
        ),
        (
            ("heads", "a b", "--model", "{gpt2}", "--directions", "3"),
            2,
            "each with its layer: L5H11,L3H1",
        ),
    ],
)
def test_directions_that_cannot_be_told(
    gpt2: Path, line: tuple[str, ...], code: int, said: str
) -> None:
    answer = ask(*(part.format(gpt2=gpt2) for part in line))
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
