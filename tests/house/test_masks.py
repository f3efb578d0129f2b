"""A kind of mask is one class: what it must say of itself, and that its meaning stands in loops
beside it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import masks
import pytest
from msgspec import Struct

import attncli.language.guide
from attncli.mechanism.mask import (
    ByChance,
    Forgotten,
    Hashed,
    HeavyHitters,
    LastQuery,
    LastWindow,
    Mask,
    SameBucket,
    parse_mask,
)
from attncli.mechanism.mask.cache_policy import WhileReading

GUIDE = {
    lang: (Path(attncli.language.guide.__path__[0]) / lang / "masks.md").read_text("utf-8")
    for lang in ("en", "zh")
}
CHINESE = re.compile("[\u4e00-\u9fff]")
BOUND_TO_VECTORS = {
    Hashed,
    SameBucket,
    ByChance,
    Forgotten,
    HeavyHitters,
    LastQuery,
    LastWindow,
    WhileReading,
}
"""Kinds that no function of (i, j) can state; their oracles are those of hashing and of caches."""


def kinds(base: type[Mask] = Mask) -> Iterator[type[Mask]]:
    for kind in base.__subclasses__():
        if not kind.__subclasses__():
            yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_a_kind_is_whole(kind):
    assert not inspect.isabstract(kind), f"{kind.__name__} lacks {sorted(kind.__abstractmethods__)}"
    # of a final class the type checker says what it lacks; a record is compared and matched by its
    # fields
    assert getattr(kind, "__final__", False), f"{kind.__name__} is not final"
    assert issubclass(kind, Struct), f"{kind.__name__} is no record"
    # where there is none, that of `Mask` would do
    assert vars(kind).get("__doc__"), f"{kind.__name__} has no docstring"
    assert "spelling" in vars(kind), f"{kind.__name__} does not say how it is spelled"


def test_every_kind_has_an_oracle():
    stated = {type(part) for mask, _ in masks.pairs(13) for part in (mask, *mask.parts_of())}
    assert set(kinds()) - stated == BOUND_TO_VECTORS


@pytest.mark.parametrize("n", [1, 2, 7, 13])
def test_a_formula_counts_the_pairs(n):
    for mask, sees in masks.pairs(n):
        assert mask.pairs(n) in (None, sum(sees(i, j) for i in range(n) for j in range(n))), mask


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds() if kind.spelling], ids=lambda kind: kind.__name__
)
def test_an_example_is_of_its_kind(kind):
    assert type(parse_mask(kind.spelling.example)) is kind
    assert kind.spelling.form.startswith(kind.spelling.name)


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds() if kind.spelling], ids=lambda kind: kind.__name__
)
def test_the_guide_has_a_row_for_it(kind):
    for lang, page in GUIDE.items():
        assert re.search(rf"^\| `{kind.spelling.name}[:`]", page, re.M), (
            f"no row for {kind.spelling.name} in {lang}"
        )


def test_each_sentence_is_in_its_language():
    for mask, _ in masks.pairs(7):
        english, chinese = str(mask.describe()), mask.describe().translation("zh")
        assert not CHINESE.search(english), f"{type(mask).__name__} says {english!r}"
        assert CHINESE.search(chinese), f"{type(mask).__name__} says {chinese!r}"
        assert not re.search(r"\b[a-z]{2,} [a-z]{2,}\b", chinese), (
            f"{type(mask).__name__} says {chinese!r}"
        )
