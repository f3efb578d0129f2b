"""The guide's page of published claims is made from its data, and its verdicts from its numbers."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.documents import SCHEMAS
from attncli.measure.layer_metrics import ROLE_METRICS
from attncli.measure.metric import METRICS

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))

import claims
from claim_measures import of_few, prompts_of_facts, steps_of_rise
from claim_picture import picture
from claim_rows import ENDING, OPENING, ROWS
from claims import FAILS, HOLDS, IN_PART, OPEN, UNTRIED, Figure, Measured, Row

# a script there is called scan, which would hide the folder of tests of that name
sys.path.remove(str(Path(__file__).parent / "benchmarks"))

DATA = claims.read_data()
BY_NAME = {row.name: row for row in ROWS}


@pytest.mark.parametrize("lang", claims.LANGUAGES)
def test_the_page_is_made_from_its_data(lang: str) -> None:
    text = (claims.GUIDE / lang / "claims.md").read_text("utf-8")
    assert claims.page(ROWS, DATA, lang, OPENING, ENDING) == text


@pytest.mark.parametrize("lang", claims.LANGUAGES)
def test_the_picture_is_made_from_the_data(lang: str) -> None:
    svg = (claims.GUIDE / "pictures" / claims.PICTURES[lang]).read_text("utf-8")
    assert picture(ROWS, DATA, lang) == svg


def test_every_row_has_its_numbers_and_they_are_those_of_the_row_as_it_is() -> None:
    assert [row.name for row in ROWS] == list(dict.fromkeys(row.name for row in ROWS))
    assert {*DATA} == {*BY_NAME}
    for row in ROWS:
        assert DATA[row.name]["digest"] == row.digest(), f"measure {row.name} again"
        stored = claims.measured_of(DATA[row.name])
        assert {*stored} == {figure.name for figure in row.figures}
        for figure in row.figures:
            measured = stored[figure.name]
            if measured.low is None or measured.high is None:
                assert figure.side is None  # what has no interval decides nothing
            else:
                assert measured.low <= measured.value <= measured.high, (row.name, figure.name)
            assert (measured.beside is None) == (figure.beside == ("", ""))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_all_its_parts_in_both_languages(row: Row) -> None:
    for part in (row.title, row.source, row.claim, row.formula, row.change):
        assert all(part)
    assert row.commands
    assert any(figure.side for figure in row.figures) or [*row.sentences] == [UNTRIED]
    for figure in row.figures:
        assert all(figure.says)
        assert all(figure.counted)
        assert all("{count}" in words for words in figure.counted)
        assert bool(figure.side) == all(figure.why)
    for command in row.commands:
        assert command.startswith(("attn ", "python tests/"))
    assert {*row.sentences} <= {*claims.VERDICTS}
    assert all(all(words) for words in row.sentences.values())


PRINTED = {"layer", "layer.after"}
"""What is no key of JSON: names of Python."""
KEYS = {*re.findall(r'"(\w+)": ?\{', json.dumps({**SCHEMAS}))}
"""The names of all members of all documents."""


@pytest.mark.parametrize("row", [row for row in ROWS if row.figures], ids=lambda row: row.name)
def test_a_row_says_which_keys_have_its_numbers(row: Row) -> None:
    """What stands in backticks is a key of documents, a metric, or one of its figures."""
    keys = {*KEYS, *METRICS, *ROLE_METRICS, *(figure.name for figure in row.figures)}
    told = [set(re.findall(r"`([\w.]+)`", text)) - PRINTED for text in row.arithmetic]
    assert told[0] == told[1]
    assert all(row.arithmetic)
    for path in told[0]:
        assert {*path.split(".")} <= keys, (path, {*path.split(".")} - keys)


@pytest.mark.parametrize("lang", claims.LANGUAGES)
def test_commands_stand_alone_where_they_can_be_copied(lang: str) -> None:
    """In a block of code a line is never broken; what stands within a sentence is."""
    text = (claims.GUIDE / lang / "claims.md").read_text("utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = {line for block in blocks for line in block.splitlines()}
    for row in ROWS:
        again = {claims.AGAIN.format(name=row.name)} if row.figures else set()
        assert {*row.commands, *filter(None, [row.hub]), *again} <= lines
    assert all(shlex.split(line) for line in lines)


def test_a_model_that_is_not_here_is_told_with_the_ways_to_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(claims, "find_spec", lambda name: None)
    monkeypatch.delenv("ATTN_CLAIM_MODELS", raising=False)
    row = replace(row_of(("above", 0.3)), name="row", models=("gemma3",))
    claims.run([row], ["row"], pytest.fail)
    said = capsys.readouterr().out
    assert "row: needs gemma3" in said
    assert "attn guide models" in said
    monkeypatch.setenv("ATTN_CLAIM_MODELS", str(tmp_path))
    assert claims.missing_models(row) == ["gemma3"]  # the folder alone is not enough
    (tmp_path / "gemma3.gguf").touch()
    assert claims.missing_models(row) == []


def test_a_command_of_the_page_is_one_of_the_prompts_that_it_speaks_of() -> None:
    words = shlex.split(BY_NAME["sources"].commands[0])
    text, *given = (word for word in words[4:] if not word.startswith("--"))
    regions = {word for word in given if "/" in word}
    ((facts, answer),) = [
        (facts, answer) for prompt, facts, answer, _ in prompts_of_facts() if prompt == text
    ]
    assert {region.split("/")[1] for region in regions} == {*facts}
    assert answer in given


def test_a_row_that_is_measured_again_leaves_the_pages_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims, "run", lambda rows, names, write: write({}))
    monkeypatch.setattr(claims, "write_whole", pytest.fail)
    monkeypatch.setattr(sys, "argv", ["claims.py", "sinks"])
    claims.main()


def test_no_command_names_what_readers_cannot_get() -> None:
    shown = " ".join(command for row in ROWS for command in row.commands)
    assert "qwen" not in shown.lower()


def test_the_headline_of_the_readme_is_one_of_the_rows() -> None:
    readme = (claims.ROOT / "README.md").read_text("utf-8").replace("\n", " ")
    sources = claims.measured_of(DATA["sources"])
    facts = sources["needed"].count
    needed, looked, more = (sources[name].value for name in ("needed", "looked", "more"))
    low, high = sources["more"].low, sources["more"].high
    assert low is not None
    assert high is not None
    assert (
        f"Each of {2 * facts} prompts, made of {facts} facts, asks for one fact. In"
        f" {2 * facts * needed:.0f} of them ({needed:.0%}) that fact is the one that the answer needs"
        f" most; in {2 * facts * looked:.0f} ({looked:.0%}) it is the one that gets most attention per"
        f" token. The difference is {100 * more:.0f} points (95% interval {100 * low:.0f} to"
        f" {100 * high:.0f};"
    ) in readme


# The rule of verdicts


def row_of(*sides: tuple[str, float]) -> Row:
    """A row with a figure for each side and bound."""
    figures = tuple(
        Figure(f"f{at}", ("x", "x"), ("{count}", "{count}"), "share", side, bound, ("b", "b"))  # type: ignore[arg-type]
        for at, (side, bound) in enumerate(sides)
    )
    return replace(ROWS[0], figures=figures, untested=("", ""))


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ((0.5, 0.6), (0.1, 0.2), HOLDS),
        ((0.5, 0.6), (0.35, 0.4), IN_PART),
        ((0.5, 0.6), (0.2, 0.4), IN_PART),
        ((0.1, 0.2), (0.35, 0.4), FAILS),
        ((0.1, 0.4), (0.2, 0.4), OPEN),
        ((0.1, 0.2), (0.2, 0.4), OPEN),
    ],
)
def test_a_verdict_follows_from_the_intervals(
    first: tuple[float, float], second: tuple[float, float], found: str
) -> None:
    row = row_of(("above", 0.3), ("below", 0.3))
    stored = {
        f"f{at}": Measured((low + high) / 2, low, high, 40)
        for at, (low, high) in enumerate((first, second))
    }
    assert claims.verdict(row, stored) == found


def test_a_claim_with_an_untested_part_holds_in_part_at_most() -> None:
    row = row_of(("above", 0.3))
    stored = {"f0": Measured(0.5, 0.4, 0.6, 40)}
    assert claims.verdict(row, stored) == HOLDS
    assert claims.verdict(replace(row, untested=("x", "x")), stored) == IN_PART


@pytest.mark.parametrize(
    ("low", "high", "stand"), [(-0.1, 0.1, True), (-0.5, -0.4, False), (0.4, 0.5, False)]
)
def test_a_bound_on_the_size_has_two_sides(low: float, high: float, stand: bool) -> None:
    (figure,) = row_of(("within", 0.3)).figures
    assert claims.stands(figure, Measured((low + high) / 2, low, high, 40)) is stand
    assert claims.stands(figure, Measured(-0.3, -0.4, 0.0, 40)) is None


def test_a_row_without_numbers_was_not_tried() -> None:
    assert claims.verdict(replace(ROWS[0], figures=()), {}) == UNTRIED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_number_on_the_other_side_changes_the_verdict(row: Row) -> None:
    """Each number counts: moved to the other side of its bound, it makes no verdict better and
    ends one that held; with all of them there the claim fails, with none it holds as far as it is
    tested."""
    stored = claims.measured_of(DATA[row.name])
    before = claims.verdict(row, stored)
    assert row.sentences[before]
    judged = [figure for figure in row.figures if figure.side]
    good = dict(stored)
    bad = dict(stored)
    best = IN_PART if any(row.untested) else HOLDS
    for figure in judged:
        good[figure.name] = moved_by(figure, stored[figure.name], -1)
        bad[figure.name] = moved_by(figure, stored[figure.name], 1)
        after = claims.verdict(row, {**stored, figure.name: bad[figure.name]})
        assert RANKS.index(after) <= RANKS.index(before)
        assert before != HOLDS or after != HOLDS
    if judged:
        assert claims.verdict(row, bad) == FAILS
        assert claims.verdict(row, good) == best
        for figure in judged:
            one_bad = claims.verdict(row, {**good, figure.name: bad[figure.name]})
            assert one_bad == (IN_PART if len(judged) > 1 else FAILS)


RANKS = (UNTRIED, FAILS, OPEN, IN_PART, HOLDS)


def moved_by(figure: Figure, measured: Measured, away: int) -> Measured:
    """A number far on the wrong side of its bound (away 1) or far on the right one (−1)."""
    bound = claims.bound_of(figure, measured)
    if figure.side == "within":
        place = 2 * bound if away == 1 else 0.0
    else:
        place = bound + (away if figure.side == "below" else -away)
    return replace(measured, value=place, low=place, high=place)


# Runs that stop


def test_a_stopped_run_keeps_what_it_has_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(claims, "DATA", tmp_path / "claims.json")
    measured: list[str] = []

    def first(desk: claims.Desk) -> dict[str, Measured]:
        measured.append("first")
        return {"f0": Measured(0.5, 0.4, 0.6, 40)}

    def second(desk: claims.Desk) -> dict[str, Measured]:
        measured.append("second")
        if measured.count("second") == 1:
            raise KeyboardInterrupt
        return {"f0": Measured(0.1, 0.0, 0.2, 40)}

    row = replace(row_of(("above", 0.3)), models=())
    rows = [
        replace(row, name="first", measure=first),
        replace(row, name="second", measure=second),
    ]
    with pytest.raises(KeyboardInterrupt):
        claims.run(rows, [], claims.store)
    assert [*claims.read_data()] == ["first"]
    claims.run(rows, [], claims.store)
    assert measured == ["first", "second", "second"]
    assert [*claims.read_data()] == ["first", "second"]
    assert not (tmp_path / "claims.part").exists()
    claims.run(rows, ["second"], claims.store)
    assert "inside what is stored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (-0.0014, "−0.001"), (-0.007, "−0.01"), (2.345, "2.35")]
)
def test_a_small_number_is_never_a_signed_zero(value: float, text: str) -> None:
    assert claims.number(value, "number") == text


def test_few_values_have_students_interval() -> None:
    few = of_few([1.0, 2.0, 3.0, 4.0])
    assert few.low is not None
    assert abs(few.low - (2.5 - 3.182 * 0.6455)) < 1e-3  # as scipy.stats.t.interval has it


def test_a_rise_is_timed_on_straight_lines() -> None:
    steps = np.array([0, 10, 20, 40])
    assert steps_of_rise(steps, np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(8)
    assert steps_of_rise(steps, np.array([0.5, 0.5, 0.7, 1.5])) == pytest.approx(37.5 - 15)


def test_intervals_are_those_of_the_books() -> None:
    found = claims.share(7, 59)
    assert (round(found.low, 3), round(found.high, 3)) == (0.059, 0.225)  # as scipy has it
    mean = claims.bootstrap([0.0, 1.0] * 200)
    assert mean.value == 0.5
    assert abs((mean.high - mean.low) / 2 - 1.96 * 0.5 / 20) < 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("row", [row for row in ROWS if row.cheap], ids=lambda row: row.name)
def test_a_row_measured_again_lies_inside_its_intervals(row: Row) -> None:
    if claims.missing_models(row):
        pytest.skip("its models are not here")
    stored = claims.measured_of(DATA[row.name])
    for name, now in claims.measured_of(claims.measure(row)).items():
        assert claims.lies_inside(stored[name], now.value), (name, now, stored[name])


def test_the_data_is_plain_json() -> None:
    names = {field.name for field in fields(Measured)}
    text: dict[str, Any] = json.loads(claims.DATA.read_text("utf-8"))
    for result in text.values():
        assert {*result} == {"digest", "cpu_seconds", "figures"}
        assert all({*values} == names for values in result["figures"].values())
