"""Regions of any form end soon over any text, and select what loops select."""

from __future__ import annotations

import json
import re
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.errors import InputError, LimitError, UsageError
from attncli.inputs import bounded_process, regions
from attncli.inputs.regions import Region, RegionRule, find_regions, parse_region, read_regions
from attncli.inputs.token import Text, Token


def words_of(text: str) -> list[Token]:
    return [
        Token(number, match[0], None, match.start(), match.end())
        for number, match in enumerate(re.finditer(r"\S+", text))
    ]


def select(text: str, *specs: str, notes: list[str] | None = None) -> list[Region]:
    rules = [parse_region(f"r{number}={spec}") for number, spec in enumerate(specs)]
    told = [] if notes is None else notes
    return find_regions(rules, Text(text, "argument"), words_of(text), told.append)


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), max_size=8)


@given(SPANS, SPANS)
def test_the_tokens_of_spans_are_those_that_a_loop_finds(
    places: list[list[int]], tokens: list[list[int]]
) -> None:
    spans = [(start, end) for start, end in places]
    words = [Token(number, "", None, *span) for number, span in enumerate(sorted(tokens))]
    expected = tuple(
        number
        for number, word in enumerate(words)
        if any(word.start < end and start < word.end for start, end in spans)
    )
    assert regions._tokens_in_spans(spans, words) == expected


@given(
    st.text("ab[] \n", max_size=40),
    st.sampled_from(["a", "[", "[a", "ab"]),
    st.text("b]", min_size=1),
)
def test_what_is_between_markers_is_what_a_pattern_finds(text: str, start: str, end: str) -> None:
    pattern = f"{re.escape(start)}(.*?){re.escape(end)}"
    expected = [match.span(1) for match in re.finditer(pattern, text, re.DOTALL)]
    assert list(regions._spans_between(text, start, end)) == expected


@given(st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=6))
def test_the_pair_that_shares_most_is_the_one_that_a_loop_finds(sets: list[set[int]]) -> None:
    made = [Region(f"r{number}", tuple(sorted(one))) for number, one in enumerate(sets)]
    notes: list[str] = []
    regions._note_shared_tokens(made, notes.append)
    shared = [
        (len(a & b), i, j)
        for i, a in enumerate(sets)
        for j, b in enumerate(sets)
        if i < j and a & b
    ]
    if not shared:
        assert not notes
        return
    most = max(count for count, _, _ in shared)
    first = next(row for row in shared if row[0] == most)
    assert f"r{first[1]} and r{first[2]} the most ({most})" in str(notes[0])


BODIES = ("a", "ab", "a|a", "a|ab", ".", r"\w", "[ab]", "(?:a)", "a?", "(a*)")
REPEATED = ("({0}+)+", "({0}*)*", "(({0})+)+", "({0}+)*", "(({0}*)+)*", "({0}+)" * 12)
ENDS = ("$", "!", "zebra", r"\1!", "(?=!)")
PATTERNS = [
    f"/{repeated.format(body)}{end}/" for body in BODIES for repeated in REPEATED for end in ENDS
]
OTHERS = (
    "/(.*)(.*)(.*)(.*)zebra/", "/(x+x+)+y/", "/^(([a-z])+.)+[A-Z]([a-z])+$/", "/(?:a?){60}a{60}/",
    "/" + "(" * 5000 + "/", "/(?:a{1,60000}){1,60000}/", "/[/", "/a{99999999999}/", "/(?P<x>a)(?P<x>b)/",
    "/" + "a|" * 20000 + "b/", "/(?<=a+)b/", "/(?i:ſ)+/",
)  # fmt: skip
"""Known ones, and what is no pattern."""


@pytest.mark.many
@pytest.mark.parametrize("spec", [*PATTERNS[::6], *OTHERS], ids=lambda spec: spec[:30])
def test_a_pattern_ends(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_process, "SECONDS", 0.5)
    text = "a" * 4000 + " b " + "x" * 2000 + " ab" * 2000
    begun = time.monotonic()
    with suppress(InputError, LimitError, UsageError):
        assert select(text, spec)[0].tokens
    assert time.monotonic() - begun < 20


def test_the_pattern_that_takes_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_process, "SECONDS", 0.5)
    with pytest.raises(LimitError, match="pattern of region 'r1' takes more than") as caught:
        select("a" * 3000 + " b", "/b/", "/(a+)+$/", "/a/")
    assert caught.value.where == "/(a+)+$/"
    with pytest.raises(UsageError, match="pattern of region 'r1' is no regular expression"):
        select("a b", "/b/", "/(/", "/a/")


LONG = {
    "openings": ("[1," * 900 + "1," * 200_000, "json:$.a"),
    "nested": ("[" * 500_000, "json:$[0]"),
    "many": ("[" + ",".join(f'{{"a": {n}, "b": "w{n}"}}' for n in range(30_000)) + "]", "json:$[*].a"),
    "deep": ('{"a":' * 900 + "1" + "}" * 900, "json:$" + ".a" * 60),
    "wrong path": ("[" + ",".join(f'{{"a": {n}}}' for n in range(30_000)) + "]", "json:$.zzz.q"),
    "long path": ('{"a": 1}', "json:$." + "x" * 50_000),
    "no end": ("a" * 300_000, "a…z"),
    "all": ("a x b " * 70_000, "a…b"),
    "far word": ("x" * 300_000 + " " + "y" * 300_000, "q" * 50_000 + "…z"),
    "lines": ("a\n" * 100_000, "lines:50-90000"),
    "chars": ("a " * 100_000, "chars:50-90000"),
    "links": ("[text](address) " * 30_000 + '{"a": "x"}', "json:$.a"),
}  # fmt: skip


@pytest.mark.many
@pytest.mark.parametrize("name", LONG)
def test_a_long_text_takes_seconds_at_most(name: str) -> None:
    text, spec = LONG[name]
    begun = time.process_time()
    fitting = ("many", "deep", "all", "lines", "chars", "links")
    with nullcontext() if name in fitting else pytest.raises((InputError, LimitError)):
        assert select(text, spec)[0].tokens
    assert time.process_time() - begun < 6


def test_many_regions_take_no_longer_than_few() -> None:
    text = " ".join(f"w{number}" for number in range(2000))
    begun = time.process_time()
    notes: list[str] = []
    specs = [f"tokens:{number}-{number + 3}" for number in range(0, 1990, 2)]
    assert len(select(text, *specs, notes=notes)) == len(specs) + 1
    assert "r0 and r1 the most (2)" in str(notes[0])
    select(text, *[f"tokens:0-{1999 - number}" for number in range(1500)], notes=notes)
    assert str(notes[1]) == "many regions share tokens: shares add up to more than all"
    assert time.process_time() - begun < 6


FORMS = (
    "zzz",
    "/(/",
    "tokens:9-1",
    "json:x",
    "lines:0",
    "chars:a",
    "",
    "…",
    "a…",
    "/(?P<x>/",
    "tokens:",
    "/[/",
)


@pytest.mark.parametrize("spec", FORMS)
def test_a_wrong_form_is_bad_input_in_a_file_and_bad_usage_in_an_option(
    spec: str, tmp_path: Path
) -> None:
    path = tmp_path / "regions.json"
    path.write_text(json.dumps({"good": "tokens:0-1", "bad": spec}))
    with pytest.raises(InputError) as caught:
        find_regions(read_regions(path), Text("a b c", "argument"), words_of("a b c"), str)
    assert caught.value.where == str(path)
    with pytest.raises(UsageError):
        find_regions(
            [parse_region(f"bad={spec}")], Text("a b c", "argument"), words_of("a b c"), str
        )


def test_a_rule_knows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "regions.json"
    path.write_text('{"a": "tokens:0"}')
    assert read_regions(path) == [RegionRule("a", "tokens:0", str(path))]


@pytest.mark.parametrize(("pattern", "is_told"), [("c.t", True), ("cat", False)])
def test_a_pattern_that_matches_twice_is_told(pattern: str, is_told: bool) -> None:
    notes: list[str] = []
    (region, *_) = select("the cat and the cot", f"/{pattern}/", notes=notes)
    assert len(region.tokens) == 1 + is_told
    assert (
        notes
        == ["the pattern of region 'r0' matches 2 places: all of them are in it, 2 tokens"]
        * is_told
    )
