"""The buckets of an `lsh` mask, as a run and `attn explain mask` show them."""

import numpy as np
import pytest
from asking import ask
from validity import validate

TEXT = "a b c d e f g h i"


def place_of_largest(row: list[float]) -> int:
    """The bucket by its definition, in plain loops."""
    numbers = [*row, *(-number for number in row)]
    best = 0
    for place, number in enumerate(numbers):
        if number > numbers[best]:
            best = place
    return best


@pytest.mark.parametrize(
    "options",
    [
        ("--mask", "lsh:4"),
        ("--mask", "lsh:6,2", "--num-heads", "4"),
        ("--mask", "lsh:4", "--num-heads", "4", "--head", "3"),
        ("--mask", "lsh:4", "--num-heads", "4", "--position", "rope", "--dtype", "float64"),
    ],
)
def test_a_query_sees_the_keys_that_share_its_bucket_in_any_round(options: tuple) -> None:
    document = ask("run", TEXT, "--json", *options).json
    validate(document, "attn.run/1")
    heads = document["layers"][0]["heads"]
    assert [entry["head"] for entry in document["hashing"]] == [head["head"] for head in heads]
    for entry, head in zip(document["hashing"], heads, strict=True):
        for i, row in enumerate(head["scores"]):
            for j, score in enumerate(row):
                shares = any(
                    place_of_largest(query[i]) == place_of_largest(key[j])
                    for query, key in zip(entry["query"], entry["key"], strict=True)
                )
                assert shares == (score is not None)


def test_the_screen_of_a_mask_says_which_bucket_each_vector_is_in() -> None:
    document = ask("explain", "mask", TEXT, "--mask", "lsh:4", "--num-heads", "2", "--head", "1",
                   "--query", "c", "--json").json  # fmt: skip
    validate(document, "attn.explain/1")
    (entry,) = document["hashing"]
    buckets = [[place_of_largest(row) for row in entry[part][0]] for part in ("query", "key")]
    out = ask("explain", "mask", TEXT, "--mask", "lsh:4", "--num-heads", "2", "--head", "1",
              "--query", "c").out  # fmt: skip
    text = " ".join(out.split())
    assert f"the largest in place {buckets[0][2]}; [kR" in text
    names = [f"{place} {token}" for place, token in enumerate(TEXT.split())]
    for bucket in {*buckets[0], *buckets[1]}:
        queries, keys = (
            ", ".join(name for name, its in zip(names, row, strict=True) if its == bucket) or "-"
            for row in buckets
        )
        assert f"{bucket} {queries} {keys}" in text
    apart = [name for name, query, key in zip(TEXT.split(), *buckets, strict=True) if query != key]
    assert apart
    if len(apart) <= 8:
        assert ", ".join(f'"{name}"' for name in apart) in text.replace('" and "', '", "')
    assert "may not see itself" in text


def test_other_masks_have_no_buckets() -> None:
    assert "hashing" not in ask("run", TEXT, "--mask", "causal", "--json").json
    assert "bucket" not in ask("explain", "mask", TEXT, "--mask", "causal").out


def test_a_union_with_a_hashed_mask_has_its_buckets() -> None:
    document = ask("run", TEXT, "--mask", "lsh:4|window:1,1", "--json").json
    assert np.shape(document["hashing"][0]["query"]) == (1, 9, 2)


def test_a_mask_without_a_text_says_that_its_vectors_are_no_texts() -> None:
    assert "no text" in " ".join(ask("mask", "lsh:4", "-n", "8").out.split())
    assert "no text" not in ask("mask", "window:3", "-n", "8").out
