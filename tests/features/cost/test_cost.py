"""Costs: formulas against counting, memory, models, growth."""

from collections.abc import Callable

import oracles
import pytest
from asking import ask
from telling import telling

from attncli.arrays.backend import choose, torch_is_installed
from attncli.errors import LimitError, UsageError
from attncli.features.cost.compute import (
    Sizes,
    _cost_document,
    cost,
    growth,
    layers_between_ends,
    lengths,
    measure,
    reach,
    variant_costs,
)
from attncli.inputs.tokenize import tokenizer
from attncli.measure.visibility import pairs_of
from attncli.mechanism.attend import span
from attncli.mechanism.mask import parse_mask
from attncli.models.one_layer import Settings, seeded_model

_cost_document = telling(_cost_document)
variants = telling(variant_costs)
growth = telling(growth)
measure = telling(measure)

SIZES = Sizes(
    n=23,
    d_model=21,
    heads=3,
    d_k=7,
    d_v=5,
    window=4,
    chunk=4,
    rows=5,
    masks=(parse_mask("dilated:6,2"),),
)


def by_name(sizes: Sizes) -> dict[str, dict[str, object]]:
    return {variant["name"]: variant for variant in variants(sizes)}


def test_pairs_and_products_agree_with_loops() -> None:
    found = by_name(SIZES)
    sees = {
        "full": lambda i, j: True,
        "causal": oracles.causal,
        "window": oracles.decoder_window(4),
        "mask": oracles.dilated(6, 2),
    }
    for name, see in sees.items():
        pairs = sum(see(i, j) for i in range(23) for j in range(23))
        assert found[name]["pairs"] == pairs
        assert found[name]["multiply_adds"] == sum(7 + 5 for _ in range(pairs)) * 3


def test_a_thousand_tokens_make_a_million_pairs() -> None:
    assert by_name(Sizes(1000, 512, 8, 64, 64))["full"]["pairs"] == 1_000_000


def test_memory_at_once_and_by_rows() -> None:
    found = by_name(SIZES)
    assert found["full"]["score_bytes"] == 3 * 23 * 23 * 4
    assert found["full"]["streamed_bytes"] == 3 * 5 * 23 * 4
    assert found["window"]["streamed_bytes"] == 3 * 5 * (4 + 4) * 4
    assert found["rnn"]["streamed_bytes"] == 21 * 4


@pytest.mark.parametrize(
    "spec",
    [
        "none",
        "causal",
        "window:300",
        "window:7,9",
        "prefix:40",
        "chunk:100",
        "sinks:4,50",
        "padding:9",
    ],
)
def test_the_reach_of_very_many_blocks_is_that_of_all(spec: str) -> None:
    """Only some blocks are looked at; no query row of any other sees more."""
    mask, n, rows = parse_mask(spec), 4801, 3
    every = [span(mask, start, min(start + rows, n) - 1, n) for start in range(0, n, rows)]
    assert reach(mask, n, rows) == max(high - low for low, high in every)
    looked: list[int] = []

    def counted(mask: object, first: int, last: int, keys: int) -> tuple[int, int]:
        looked.append(first)
        assert len(looked) < 4 * 256, "too many blocks are looked at"
        return 0, 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attncli.features.cost.compute.span", counted)
        reach(mask, 10**12, rows)


def test_what_must_wait() -> None:
    found = by_name(SIZES)
    assert (found["rnn"]["pairs"], found["full"]["pairs"]) == (0, 23 * 23)
    assert (found["full"]["steps"], found["rnn"]["steps"], found["rnn"]["path"]) == (1, 23, 23)
    # a token is reached over 3 positions a layer
    assert found["window"]["path"] == 8


def test_growth_is_quadratic_for_full_and_linear_for_the_rest() -> None:
    rows = growth(Sizes(4096, 64, 4, 16, 16))
    assert 4096 in [row["n"] for row in rows]
    first, last = rows[-2]["multiply_adds"], rows[-1]["multiply_adds"]
    assert last["full"] == 4 * first["full"]
    assert last["rnn"] == 2 * first["rnn"]
    assert last["window"] / first["window"] == pytest.approx(2, rel=0.01)
    assert lengths(1)[0] == 1
    assert min(lengths(1000)) >= 8


def test_a_models_layers_and_total() -> None:
    model = seeded_model(
        Settings(d_model=24, heads=4, mask=parse_mask("window:3")),
        0,
        "seeded",
        tokenizer("word"),
        choose("numpy", device=None, dtype="float32"),
    )
    document = _cost_document(Sizes(11, 24, 4, 6, 6), model=model)
    (layer,) = document["layers"]
    pairs = sum(oracles.decoder_window(3)(i, j) for i in range(11) for j in range(11))
    assert (layer["pairs"], layer["multiply_adds"]) == (pairs, 4 * pairs * 12)
    assert layer["projections"] == 11 * 24 * 24 * 4 == document["projections"]
    assert layer["cache_bytes"] == 4 * 3 * 12 * 4  # of eleven keys the window keeps three
    assert layer["score_bytes"] == layer["streamed_bytes"] == 4 * 11 * 11 * 4
    streamed = _cost_document(Sizes(11, 24, 4, 6, 6, rows=2), model=model)["layers"][0][
        "streamed_bytes"
    ]
    assert streamed == 4 * 2 * (2 + 2) * 4  # two rows over a window of three keys
    assert document["total"]["multiply_adds"] == layer["multiply_adds"]


def test_times_come_with_their_computed_ratio() -> None:
    found = measure(Sizes(n=37, d_model=8, heads=2, d_k=4, d_v=4, window=4, rows=16))
    assert [row["name"] for row in found if row["backend"] == "numpy"] == [
        "full",
        "streamed",
        "causal",
        "window",
        "rnn",
    ]
    assert {row["backend"] for row in found} == {
        "numpy",
        *(["torch"] if torch_is_installed() else []),
    }
    for row in found:
        assert row["seconds"] > 0
    causal = next(row for row in found if row["name"] == "causal")
    assert causal["computed"] == pytest.approx(38 / (2 * 37))


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(UsageError):
        cost(0)
    with pytest.raises(LimitError):
        measure(Sizes(10**6, 512, 8, 64, 64))


def layers_until_the_first_reaches(sees: Callable[[int, int], bool], n: int) -> int | None:
    """Which tokens hold something of token 0 after each layer, by loops; None where the last never
    does.
    """
    holding = {0}
    for layer in range(1, n + 1):
        more = {query for query in range(n) for key in holding if sees(query, key)}
        if n - 1 in more:
            return layer
        holding |= more
    return None


@pytest.mark.parametrize(
    ("spec", "sees"),
    [
        ("none", lambda i, j: True),
        ("causal", lambda i, j: j <= i),
        ("window:3", lambda i, j: i - 3 < j <= i),
        ("window:1", lambda i, j: i == j),
        ("window:2,5", lambda i, j: i - 2 <= j <= i + 5),
        ("window:1,0|window:0,2|global:4", lambda i, j: i - 1 <= j <= i + 2 or 4 in (i, j)),
        ("chunk:5", lambda i, j: j <= i and i // 5 == j // 5),
        ("chunk:5|window:2", lambda i, j: j <= i and (i // 5 == j // 5 or j > i - 2)),
        ("prefix:4", lambda i, j: j < 4 or j <= i),
        ("sinks:1,3", lambda i, j: j <= i and (j < 1 or j > i - 3)),
    ],
)
@pytest.mark.parametrize("n", [1, 2, 11, 22])
def test_the_way_from_the_first_token_to_the_last_is_that_of_the_mask(
    spec: str, sees: Callable[[int, int], bool], n: int
) -> None:
    mask = parse_mask(spec)
    visible_in_loops = sum(sees(i, j) for i in range(n) for j in range(n))
    assert pairs_of(mask, n) == visible_in_loops  # the loops mean this mask
    assert layers_between_ends(mask, n) == layers_until_the_first_reaches(sees, n)


def test_a_way_that_chance_decides_or_that_is_too_long_to_look_up_is_not_known() -> None:
    assert layers_between_ends(parse_mask("lsh:8"), 64) is None
    assert layers_between_ends(parse_mask("chunk:1000|window:2"), 10**6) is None
    assert layers_between_ends(parse_mask("global:0"), 10**6) == 1  # seen in the first row


def test_the_first_token_never_influences_one_of_another_chunk() -> None:
    lines = ask("cost", "-n", "64", "--mask", "chunk:8").out.splitlines()
    pairs = next(line.split() for line in lines if line.startswith("chunk:8 "))
    assert pairs[-1] == "-"  # it grows as no formula, so that the path is the last cell
