"""Masks as people write them: what every SPEC means, what is refused, and how a mask reads in
words.
"""

from __future__ import annotations

import re

import pytest
from masks import pairs

from attncli.errors import UsageError
from attncli.mechanism.mask import (
    KINDS,
    AllOf,
    AnyOf,
    BigBird,
    Blocks,
    ByChance,
    Causal,
    Chunk,
    Dilated,
    Everywhere,
    Global,
    Hashed,
    HeavyHitters,
    LastQuery,
    LastWindow,
    Padding,
    Prefix,
    SameBucket,
    Streaming,
    Window,
    parse_mask,
)

MEANINGS = {
    "none": Everywhere(),
    "causal": Causal(),
    "window:1": Window(0, 0),
    "window:3": Window(2, 0),
    "window:2,5": Window(2, 5),
    "window:0,0": Window(0, 0),
    "dilated:7,2": Dilated(7, 2),
    "global:0": Global((0,)),
    "global:0,5,2": Global((0, 5, 2)),
    "prefix:0": Prefix(0),
    "prefix:4": Prefix(4),
    "chunk:8": Chunk(8),
    "block:3": Blocks(3),
    "sinks:4,16": Streaming(4, 16),
    "sinks:0,1": Streaming(0, 1),
    "bigbird": BigBird(64, 3, 11),
    "bigbird:2": BigBird(2, 3, 11),
    "bigbird:2,1": BigBird(2, 1, 11),
    "bigbird:2,0,5": BigBird(2, 0, 5),
    "padding:0": Padding(0),
    "padding:2": Padding(2),
    "lsh:4": Hashed(4, 1, 11),
    "lsh:4,3": Hashed(4, 3, 11),
    "h2o:7": HeavyHitters(7, 3),
    "h2o:1": HeavyHitters(1, 1),
    "h2o:7,2": HeavyHitters(7, 2),
    "snapkv:300": LastWindow(300, 64, 5),
    "snapkv:9": LastWindow(9, 4, 5),
    "snapkv:9,3,1": LastWindow(9, 3, 1),
    "tova:5": LastQuery(5),
    "random:5": ByChance(5, 11),
    "random:5,3": ByChance(5, 3),
    "window:2,2|global:0": AnyOf((Window(2, 2), Global((0,)))),
    " causal | window:3 |padding: 1 ": AnyOf((Causal(), Window(2, 0), Padding(1))),
}


@pytest.mark.parametrize("spec", MEANINGS)
def test_every_spec(spec):
    mask = parse_mask(spec, seed=11)
    assert mask == MEANINGS[spec]
    assert parse_mask(mask.spec(), seed=11) == mask
    assert parse_mask(mask.spec(), seed=11).spec() == mask.spec()


def test_every_kind_is_covered():
    assert {spec.partition(":")[0] for spec in MEANINGS if "|" not in spec} == set(KINDS)


def test_without_a_seed_it_is_0():
    assert parse_mask("lsh:2") == Hashed(2, 1, 0)
    assert parse_mask("bigbird") == BigBird(64, 3, 0)


REFUSED = {
    "causl": ("causl", "causal"),
    "Window:3": ("Window:3", "window"),
    "windo:3": ("windo:3", "window"),
    "": ("''", "causal"),
    "quadratic": ("quadratic", "attn mask --help"),
    "causal:3": ("causal:3", "causal"),
    "causal:": ("causal:", "causal"),
    "window": ("window", "window:W or window:L,R"),
    "window:": ("window:", "whole numbers from 0"),
    "window:0": ("window:0", "W from 1"),
    "window:-1": ("window:-1", "whole numbers from 0"),
    "window:1,2,3": ("window:1,2,3", "window:W or window:L,R"),
    "window:1.5": ("window:1.5", "whole numbers"),
    "window:x": ("window:x", "window:W"),
    "window:9999999999": ("9999999999", "1,000,000,000"),
    "chunk:" + "9" * 5000: ("999", "1,000,000,000"),
    "chunk:0": ("chunk:0", "from 1"),
    "block:0": ("block:0", "from 1"),
    "dilated:3": ("dilated:3", "dilated:W,D"),
    "dilated:3,0": ("dilated:3,0", "from 1"),
    "global": ("global", "global:I,J"),
    "global:": ("global:", "global:I,J"),
    "global:0,,2": ("global:0,,2", "whole numbers"),
    "sinks:1,0": ("sinks:1,0", "R from 1"),
    "bigbird:0": ("bigbird:0", "BLOCK from 1"),
    "lsh:3": ("not 3", "lsh:4"),
    "lsh:0": ("lsh:0", "from 1"),
    "lsh:4,0": ("lsh:4,0", "from 1"),
    "causal|": ("''", "causal"),
    "causal & window:3": ("causal & window:3", "causal"),
    "¹": ("¹", "causal"),
    "window:¹": ("window:¹", "whole numbers"),
}


@pytest.mark.parametrize("spec", REFUSED, ids=lambda spec: spec[:20])
def test_what_is_refused_says_what_was_given_and_what_would_do(spec):
    found, wanted = REFUSED[spec]
    with pytest.raises(UsageError) as caught:
        parse_mask(spec)
    error = caught.value
    assert found in error.what
    assert wanted in f"{error.what} {error.expected} {error.hint}"


def test_joins():
    assert AllOf((Causal(), Padding(2))).spec() == "causal & padding:2"
    assert AnyOf((Causal(), Padding(2))).spec() == "causal|padding:2"
    assert Window(None, None).spec() == "none"
    assert Window(None, 0).spec() == "causal"


def test_words_state_what_the_numbers_count():
    assert "3 keys, its own included" in Window(2, 0).describe()
    assert "2 keys before and 5 keys after" in Window(2, 5).describe()
    assert "its own included" in Streaming(4, 16).describe()
    assert "j ≤ i" in Causal().describe()
    assert "连同自身共 3 个" in Window(2, 0).describe().translation("zh")
    assert (
        AllOf((Causal(), Padding(2))).describe()
        == f"{Causal().describe()}; and {Padding(2).describe()}"
    )
    assert (
        AnyOf((Causal(), Padding(2))).describe()
        == f"{Causal().describe()}; or {Padding(2).describe()}"
    )
    assert SameBucket(Hashed(4, 2), None, None).describe() == Hashed(4, 2).describe()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_mask_has_words_of_its_own(lang):
    masks = [mask for mask, _ in pairs(13)] + [Hashed(4), Hashed(4, 3)]
    texts = [mask.describe().translation(lang) for mask in masks]
    assert all(text and "\n" not in text for text in texts)
    alike = [text for text in set(texts) if texts.count(text) > 1]
    assert len(alike) <= 3, alike  # everywhere and causal as open windows; two files of one name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("window:1", "a query sees only itself (j = i)"),
        (
            "window:2",
            "a query sees itself and the key before it: 2 keys, its own included (i − 1 ≤ j ≤ i)",
        ),
        ("window:1,1", "a query sees itself, 1 key before and 1 key after it (i − 1 ≤ j ≤ i + 1)"),
        ("window:0,2", "a query sees itself and 2 keys after it (i ≤ j ≤ i + 2)"),
        (
            "global:0",
            "position 0 sees every key and is seen by every query; nothing else is visible",
        ),
        (
            "global:0,3",
            "positions 0, 3 see every key and are seen by every query; nothing else is visible",
        ),
        (
            "prefix:1",
            "the first key is seen by all; the others only from their own position on (j < 1 or j ≤ i)",
        ),
        ("chunk:1", "a query sees itself and the keys before it in its own chunk of 1 position"),
        (
            "sinks:1,3",
            "a query sees the first key and the last 3, its own included; never a later one",
        ),
        ("sinks:0,1", "a query sees its own key; never a later one"),
        ("padding:1", "the last key is padding and hidden from every query"),
        ("padding:0", "no key is padding"),
    ],
)
def test_one_is_not_several(spec, words):
    assert parse_mask(spec).describe() == words


def test_no_mask_speaks_of_1_keys():
    for spec in (
        "window:1,1",
        "bigbird:1,1",
        "block:1",
        "prefix:1",
        "sinks:1,1",
        "padding:1",
        "window:1,0",
        "bigbird:1,0",
    ):
        assert not re.search(
            r"\b1 (keys|positions|blocks|seeded random blocks)\b|\b0 keys",
            parse_mask(spec).describe(),
        )
