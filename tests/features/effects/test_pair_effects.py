"""Effects over pairs: means of what single texts give, intervals, and what the command writes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from asking import ask
from msgspec import UNSET
from msgspec.structs import replace
from small_gpt2 import small_gpt2

import attncli
from attncli.cli.pair_answer import PATIENCE, foretell
from attncli.draw.view import View
from attncli.features.effects.screen import patch_sentences
from attncli.inputs.pairs import read_pairs
from attncli.mechanism.spec import HeadSelection
from attncli.models.estimate import CostEstimate
from attncli.models.model import Model

SAMPLES = Path(__file__).parents[3] / "sample_inputs" / "pairs.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gpt2(tmp_path_factory.mktemp("pairs") / "gpt2")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return attncli.load(folder, dtype="float64")


@pytest.mark.parametrize("by", ["corrupt", "zero", "mean"])
def test_an_effect_is_the_mean_of_what_each_text_gives(model: Model, by: str) -> None:
    document = attncli.ablate_pairs(model, SAMPLES, by=by, hold="attention")
    sums: dict[tuple[int, int], list[tuple[float, float]]] = {}
    leads = []
    for pair in read_pairs(SAMPLES).pairs:
        single = attncli.ablate(
            model,
            pair.clean,
            by={"corrupt": "resample"}.get(by, by),
            reference=pair.corrupt if by == "corrupt" else None,
            target=" it",
            versus=" the",
            hold="attention",
            baseline="none",
        )
        leads.append(single.m_clean)
        for row in single.effects:
            told = (row.difference.all, row.difference.writes)
            sums.setdefault((row.layer, row.head), []).append(told)
    assert document.pairs.count == 3
    assert document.pairs.mean == pytest.approx(np.mean(leads), abs=1e-10)
    for row in document.effects:
        whole, held = np.mean(sums[row.layer, row.head], 0)
        assert row.difference.all == pytest.approx(whole, abs=1e-10)
        assert row.difference.writes == pytest.approx(held, abs=1e-10)
        assert row.difference.moved == pytest.approx(whole - held, abs=1e-10)
        signs = np.sign([value for value, _ in sums[row.layer, row.head]])
        assert row.difference.sign_share == pytest.approx(np.mean(signs == np.sign(whole)))
        assert row.difference.low is None  # three pairs have no interval


@pytest.mark.parametrize("hold", [None, "attention"])
def test_one_head_of_the_last_layer_is_as_all_that_are_chosen(model: Model, hold) -> None:
    """The last layer computes the row that is measured alone, and so do values put there."""
    heads = HeadSelection(pairs=[(1, 2)])
    document = attncli.ablate_pairs(model, SAMPLES, heads=heads, hold=hold)
    (row,) = document.effects
    assert abs(row.difference.all) > 1e-6
    assert document.together.difference.all == pytest.approx(row.difference.all, abs=1e-10)


def test_twenty_pairs_have_intervals(model: Model, tmp_path: Path) -> None:
    lines = SAMPLES.read_text().splitlines()
    (path := tmp_path / "many.jsonl").write_text("\n".join(lines * 7))
    document = attncli.ablate_pairs(model, path, hold="attention")
    assert document.pairs.count == 21
    own = [row.difference for row in document.effects]
    for lost in own:
        assert lost.low <= lost.all <= lost.high
        assert lost.writes_low <= lost.writes <= lost.writes_high
    assert any((lost.low, lost.high) != (lost.writes_low, lost.writes_high) for lost in own)
    without = attncli.ablate_pairs(model, path).effects[0].difference
    assert without.writes_low is without.writes is UNSET  # nothing was held


def test_the_command_writes_it_and_says_what_stands_for_a_head(folder: Path) -> None:
    line = ("ablate", "--pairs", str(SAMPLES), "--model", str(folder), "--hold", "attention")
    document = ask(*line, "--json").json
    assert document["pairs"]["count"] == 3
    assert document["by"] == "resample"
    assert set(document["effects"][0]["difference"]) == {
        *("all", "held", "moved", "low", "high", "sign_share", "held_low", "held_high")
    }
    shown = ask(*line).out
    assert "Over 3 pairs the logit of the answer" in shown
    assert "its values of the corrupt text" in shown
    zero = ask(*line, "--by", "zero", "--json").json
    assert zero["by"] == "zero"
    assert ask("ablate", "a text", *line[1:]).code == 2
    assert ask("ablate", "a text", "--count", "3").code == 2


def test_one_pair_of_a_text_is_told_with_probabilities(folder: Path) -> None:
    line = ("ablate", "it was too the", "--model", str(folder), "--target", "it", "--versus", "the")
    document = ask(*line, "--json").json
    predictions = document["predictions"]
    assert predictions["target"]["text"] == document["target"]["text"] == "it"
    first = document["effects"][0]
    without = ask(
        *("logits", "it was too the", "--model", str(folder), "--target", "it", "--json")
    ).json
    assert document["m_clean"] == pytest.approx(
        without["logit"]
        - ask(
            *("logits", "it was too the", "--model", str(folder), "--target", "the", "--json")
        ).json["logit"],
        abs=1e-4,
    )
    told = ask(*line, "--measure", "logprob,difference", "--json").json
    change = next(
        row["logprob"]
        for row in told["effects"]
        if (row["layer"], row["head"]) == (first["layer"], first["head"])
    )
    own = predictions["own"]["probability"]
    assert predictions["without"]["probability"] == pytest.approx(own * np.exp(change), rel=1e-4)
    shown = ask(*line).out
    assert "the probability of" in shown
    assert "(now:" in shown


def test_patched_pairs_bring_back_what_single_texts_do(model: Model) -> None:
    document = attncli.patch_pairs(model, SAMPLES)
    changes: dict[tuple[int, int], float] = {}
    whole = 0.0
    for pair in read_pairs(SAMPLES).pairs:
        single = attncli.patch(model, pair.clean, pair.corrupt, target=" it", versus=" the")
        size = single.m_clean - single.m_corrupt
        whole += size
        for row in single.effects:
            place = (row.layer, row.head)
            changes[place] = changes.get(place, 0.0) + row.recovered * size
    assert document.pairs.count == 3
    shares = [row.recovered for row in document.effects]
    assert shares == sorted(shares, reverse=True)
    for row in document.effects:
        assert row.recovered == pytest.approx(changes[row.layer, row.head] / whole, abs=1e-10)
        assert row.low is None
        assert 0 <= row.sign_share <= 1


def test_a_share_over_pairs_below_a_tenth_is_little_and_one_below_0_leads_away(
    model: Model,
) -> None:
    document = attncli.patch_pairs(model, SAMPLES)
    first, last = document.effects[0], document.effects[-1]
    for most, least, little, away in ((0.3, 0.0, False, False), (0.05, -0.3, True, True)):
        rows = [replace(row, recovered=0.0) for row in document.effects]
        rows = [replace(first, recovered=most), *rows[1:-1], replace(last, recovered=least)]
        said = " ".join(patch_sentences(replace(document, effects=rows), View(width=300)))
        assert ("No single head brings back more than a tenth" in said) == little
        assert ("leads away from the clean texts most: -30%" in said) == away


@pytest.mark.parametrize("is_of_pairs", [True, False])
def test_a_sentence_on_patched_heads_speaks_of_no_head_that_was_not_put_in(
    model: Model, is_of_pairs: bool
) -> None:
    pair = read_pairs(SAMPLES).pairs[0]
    document = attncli.patch(model, pair.clean, pair.corrupt, target=" it", versus=" the")
    if is_of_pairs:
        document = attncli.patch_pairs(model, SAMPLES)
    first, last = document.effects[0], document.effects[-1]
    for shares, expected in (
        ((0.3,), "the only head put in, brings back 30% of the difference"),
        ((0.05,), "the only head put in, brings back no more than 5.0% of the difference"),
        ((-0.05,), "the only head put in, brings back none of the difference"),
        ((-0.25,), "brings back nothing: it leads away from the clean text"),
        ((0.3, -0.3), "Of the 2 heads put in, layer"),
        ((0.05, -0.3), "None of the 2 heads put in brings back more than a tenth"),
        ((-0.2, -0.3), "None of the 2 heads put in brings back any of the difference"),
    ):
        rows = [
            replace(row, recovered=share) for row, share in zip((first, last), shares, strict=False)
        ]
        said = " ".join(patch_sentences(replace(document, effects=rows), View(width=300)))
        assert expected in said
        assert "No single head" not in said
        assert "Of single heads" not in said
        assert "alone" not in said
        assert (" most" in said) == (len(shares) > 1)
        assert ("Of these heads layer" in said) == (len(shares) > 1)


def test_parts_of_logits_are_means_over_pairs_and_add_up(model: Model) -> None:
    document = attncli.logits_pairs(model, SAMPLES)
    singles = [
        attncli.logits(model, pair.clean, target=" it", versus=" the")
        for pair in read_pairs(SAMPLES).pairs
    ]
    for place, part in enumerate(document.parts):
        known = np.mean([single.parts[place].value for single in singles])
        assert part.value == pytest.approx(known, abs=1e-12)
    assert document.sum == pytest.approx(sum(part.value for part in document.parts), abs=1e-9)
    assert document.sum == pytest.approx(document.logit, abs=1e-9)
    assert document.pairs.mean == pytest.approx(document.logit, abs=1e-12)


@pytest.mark.parametrize("command", ["patch", "logits"])
def test_the_commands_take_pairs_in_place_of_texts(
    command: str, folder: Path, tmp_path: Path
) -> None:
    lines = SAMPLES.read_text().splitlines()
    (path := tmp_path / "many.jsonl").write_text("\n".join(lines * 7))
    line = [command, "--model", str(folder), "--pairs", str(path)]
    document = ask(*line, "--json").json
    assert document["pairs"]["count"] == 21
    rows = document["effects"] if command == "patch" else document["parts"]
    name = "recovered" if command == "patch" else "value"
    for row in rows:
        if row["low"] is not None:
            assert row["low"] <= row[name] <= row["high"]
    # what the biases of the last norm add is the same in all pairs
    assert sum(row["low"] is None for row in rows) == int(command == "logits")
    screen = ask(*line).out
    assert "Over 21 pairs" in " ".join(screen.split())
    assert "95% interval" in screen
    assert "sign_share" in ask(*line, "--plain").out.splitlines()[0]
    assert ask(*line, "some text").code == 2
    assert ask(command, "--model", str(folder), "--count", "3", "a b").code == 2
    assert ask(*line, "--target", "it").code == 2


def test_the_interval_of_a_gain_has_the_sign_of_the_gain() -> None:
    from attncli.draw.view import View
    from attncli.features.effects.difference_answer import loss_interval, loss_text

    ends = (("loses 0.21", 0.21, 0.15, 0.27), ("gains 0.21", -0.21, -0.27, -0.15))
    for said, size, low, high in ends:
        assert loss_text(size, View()) == said
        assert loss_interval(size, low, high, View()) == " (95% interval 0.15 to 0.27)"
    assert loss_interval(-0.21, None, None, View()) == ""


@pytest.mark.parametrize(
    "words",
    [
        ("ablate", "it was too"),
        ("logits", "it was too"),
        ("patch", "it was too", "it the too"),
        ("find", "it was too", "--from", "too", "--to", "was", "--effect"),
        ("why", "it was too", "--from", "too", "--to", "was", "--writes"),
    ],
)
def test_target_and_versus_are_two_tokens(words: tuple[str, ...], folder: Path) -> None:
    answered = ask(*words, "--model", str(folder), "--target", "it", "--versus", "it")
    assert answered.code == 3
    assert "the same entry of the vocabulary" in answered.err


@pytest.mark.parametrize("command", ["ablate", "logits"])
def test_versus_is_not_the_first_choice_that_stands_for_a_target(
    command: str, model: Model, folder: Path
) -> None:
    first = attncli.next_word(model, "it was too").target.token.id
    words = ("--model", str(folder), "--versus", f"id:{first}")
    answered = ask(command, "it was too", *words)
    assert answered.code == 3
    assert f"the same entry of the vocabulary, {first}" in answered.err
    assert ask(command, "it was too", *words[:2], "--versus", f"id:{first - 1}").code == 0


def test_a_file_of_pairs_in_another_encoding_is_told(folder: Path, tmp_path: Path) -> None:
    (path := tmp_path / "latin.jsonl").write_bytes(b'{"clean": "caf\xe9"}')
    answered = ask("ablate", "--model", str(folder), "--pairs", str(path))
    assert answered.code == 3
    assert "not UTF-8 from byte 14 on" in answered.err


def test_a_forecast_without_changed_heads_names_none() -> None:
    notes: list[str] = []
    expected = CostEstimate(14, 30, 0, 0, {"branches": 2 * 10**9}, seconds=PATIENCE + 1.0)
    environment = SimpleNamespace(note=notes.append)
    foretell(environment, expected, 14)  # type: ignore[arg-type]
    foretell(environment, replace(expected, branches=270), 14)  # type: ignore[arg-type]
    assert [str(note) for note in notes] == [
        "14 tokens: about 4 s and 2.0 GB of memory",
        "270 heads, 14 tokens: about 4 s and 2.0 GB of memory",
    ]
