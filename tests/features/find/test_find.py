"""`attn find`: ranks of heads against the whole weight matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from asking import ask
from small_gpt2 import small_gpt2
from telling import telling
from validity import validate

from attncli.arrays.numpy_backend import NumpyBackend
from attncli.errors import UsageError
from attncli.features.find import compute as finding
from attncli.inputs import regions
from attncli.inputs.regions import find_regions
from attncli.inputs.tokenize import tokenizer
from attncli.mechanism.mask import Causal
from attncli.models.one_layer import Settings, seeded_model

TEXT = "The animal didn't cross the street because it was too tired"


@pytest.mark.parametrize("causal", [False, True])
def test_every_head_is_ranked_by_its_weight(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (
        Settings(d_model=30, heads=5, mask=Causal()) if causal else Settings(d_model=30, heads=5)
    )
    model = seeded_model(settings, 7, "seeded", tokenizer("word"), NumpyBackend("float64"))
    tokens = model.encode(TEXT)
    (trace,) = model.trace(tokens)
    weights = trace.stages["weights"]
    for rows in (1, 4, 100):
        monkeypatch.setattr(finding, "rows_for", lambda *_, rows=rows: rows)
        shares: list[float] = []
        document = telling(finding._found_heads)(
            model, TEXT, tokens, finding.SearchRequest(7, 1), progress=shares.append
        )
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        assert [row["weight"] for row in document["heads"]] == pytest.approx(
            sorted(weights[:, 7, 1].tolist(), reverse=True)
        )
        for row in document["heads"]:
            head = weights[row["head"]]
            assert row["rank"] == 1 + int((head[7] > head[7, 1] + 1e-12).sum())
            assert row["visible"] == (8 if causal else 11)
            assert row["top_key"] == int(np.argmax(head[7]))
            assert row["reverse"]["weight"] == pytest.approx(head[1, 7])
            assert (row["reverse"]["rank"] is None) == causal


def test_words_are_merged_before_they_are_sought() -> None:
    answer = ask(
        "find", "ab cd", "--tokenizer", "char", "--words", "--from", "ab", "--to", "cd", "--json"
    )
    run = ask("run", "ab cd", "--tokenizer", "char", "--num-heads", "8", "--json")
    assert answer.code == 0, answer.err
    assert [token["text"] for token in answer.json["tokens"]] == ["ab", " ", "cd"]
    heads = {row["head"]: row["weight"] for row in answer.json["heads"]}
    for head in run.json["layers"][0]["heads"]:
        weights = np.array(head["weights"])
        assert heads[head["head"]] == pytest.approx((weights[:2, 3:].sum(-1)).mean(), abs=1e-6)


def test_the_document_is_valid_and_the_screen_fits() -> None:
    command = ("find", TEXT, "--from", "it", "--to", "animal")
    validate(ask(*command, "--json").json, "attn.find/1")
    for width in (60, 80, 200):
        screen = ask(*command, width=width)
        assert screen.code == 0
        assert max(map(len, screen.out.splitlines())) <= width
        assert "7 it → 1 animal" in screen.out
    for width, absent in ((40, {"looks most at", "reverse"}), (60, {"looks most at"}), (80, set())):
        table, _, said = ask(*command, "--show", "heads", width=width).out.partition(
            "a wider terminal also shows: "
        )
        assert {
            part for part in ("looks most at", "reverse") if part in " ".join(said.split())
        } == absent
        assert "…" not in table  # less is shown, never half a number
        assert max(map(len, table.splitlines())) <= width
    assert ask(*command, "--ascii").out.isascii()
    plain = ask(*command, "--plain").out.splitlines()
    assert plain[0].split("\t")[:4] == ["layer", "head", "weight", "rank"]
    assert len(plain) == 9


def test_a_token_that_is_named_twice_is_noted_once() -> None:
    answer = ask("find", "a b a", "--from", "a", "--to", "a")
    assert answer.err.count("occurs 2 times") == 1
    assert "0 a → 0 a" in answer.out


def test_refusals() -> None:
    assert ask("find", TEXT, "--from", "it").code == 2
    assert ask("find", TEXT, "--from", "it", "--to", "cat").code == 3


def test_several_keys_stand_beside_the_first() -> None:
    line = ("find", TEXT, *("--num-heads", "5", "--d-model", "30", "--mask", "causal"))
    ends = ("--from", "it", "--to", "animal", "--to", "street", "--to", "tired")
    document = ask(*line, *ends, "--json").json
    validate(document, "attn.find/1")
    assert document["to"] == 1
    assert document["other_keys"] == [5, 10]
    (layer,) = ask("run", *line[1:], "--json").json["layers"]
    rows = {head["head"]: np.array(head["weights"])[7] for head in layer["heads"]}
    for row in document["heads"]:
        weights = rows[row["head"]]
        street, tired = row["others"]
        assert street["weight"] == pytest.approx(weights[5], abs=1e-6)
        assert street["rank"] == 1 + int((weights > weights[5]).sum())
        assert (tired["weight"], tired["rank"]) == (0.0, None)
    more = sum(row[1] > row[5] for row in rows.values())
    shown = " ".join(ask(*line, *ends).out.split())
    counts = f"in {more} of 5 heads, less in {5 - more}."
    assert f'"animal" gets more than "street" {counts}' in shown
    assert '"it" cannot see "tired": the mask hides it in every head.' in shown
    table = ask(*line, *ends, "--plain").out.splitlines()
    assert table[0].split("\t")[-2:] == ["weight_to_5", "weight_to_10"]
    # alone, a link is told as before
    assert "others" not in ask(*line, *ends[:4], "--json").json["heads"][0]


def test_a_key_beside_a_hidden_one_is_not_compared_with_it() -> None:
    line = ("find", TEXT, *("--num-heads", "5", "--d-model", "30", "--mask", "causal"))
    shown = ask(*line, "--from", "it", "--to", "tired", "--to", "animal").out
    assert "gets more than" not in shown
    assert '"it" gives "animal" most' in " ".join(shown.split())
    assert "it → animal" in shown


def test_what_is_cut_is_told_before_further_keys() -> None:
    line = ("find", TEXT, *("--num-heads", "5", "--d-model", "30"))
    ends = ("--from", "it", "--to", "animal", "--to", "street", "--effect")
    shown = " ".join(ask(*line, *ends).out.split())
    assert shown.index("Cutting this link") < shown.index('gives "street" most')


def test_further_keys_leave_a_narrow_table_one_by_one() -> None:
    ends = ("--from", "it", "--to", "animal", "--to", "street", "--to", "cross", "--to", "tired")
    shown = ask("find", TEXT, *ends, width=56).out
    assert "→ street" in shown.split("a wider terminal also shows")[0]
    assert "→ tired" in shown.split("a wider terminal also shows")[1]


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (("--to", "animal", "--to", "#1"), "name the same token"),
        (("--to", "animal", "--to", "The animal"), "share tokens"),
        (("--to", "animal", "--to", "zebra"), "zebra"),
    ],
)
def test_keys_that_are_no_several_are_refused(ends: tuple[str, ...], says: str) -> None:
    answer = ask("find", TEXT, "--from", "it", *ends)
    assert answer.code == 2 or says == "zebra"
    assert answer.code != 0
    assert says in answer.err
    assert answer.out == ""


def test_no_key_is_refused() -> None:
    model = seeded_model(Settings(), 7, "seeded", tokenizer("word"), NumpyBackend("float64"))
    with pytest.raises(UsageError, match="no key"):
        finding.find(model, TEXT, "it", [])


def test_pairs_find_one_link() -> None:
    answer = ask(
        *("find", "--model", "smollm2", "--pairs", "indirect-object"), *("--to", "a", "--to", "b")
    )
    assert answer.code == 2
    assert "--to once" in answer.err


def test_regions_are_found_once_for_the_answer_and_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def counted(rules, text, *more):
        texts.append(text.text)
        return find_regions(rules, text, *more)

    monkeypatch.setattr(regions, "find_regions", counted)
    page = tmp_path / "page.html"
    line = ("find", TEXT, "--from", "it", "--to", "what", "--region", "what=/animal/")
    assert ask(*line, "--html", str(page)).code == 0
    assert texts == [TEXT]
    assert "what" in page.read_text("utf-8")


def test_a_link_to_a_neighbour_is_said_to_be_one(tmp_path: Path) -> None:
    folder = str(small_gpt2(tmp_path / "m"))
    after = ask("find", "--model", folder, "a b c d", "--from", "d", "--to", "c")
    assert "stands directly before" in after.out
    assert "--labels" in after.out
    apart = ask("find", "--model", folder, "a b c d", "--from", "c", "--to", "b")
    assert "stands directly" not in apart.out
    seeded = ask("find", "a b c d", "--from", "d", "--to", "c")
    assert "stands directly" not in seeded.out


def test_of_one_head_alone_nothing_is_said_to_be_most() -> None:
    line = ("find", TEXT, *("--num-heads", "5", "--d-model", "30"), "--head", "3")
    ends = ("--from", "it", "--to", "animal", "--to", "street")
    (row,) = ask(*line, *ends, "--json").json["heads"]
    shown = " ".join(ask(*line, *ends, "--effect").out.split())
    assert " most" not in shown.split("tint:")[1]
    assert "1 of 1 heads" not in shown
    assert "Cutting this link in layer 0 head 3 changes" in shown
    street = row["others"][0]["weight"]
    beside = "less" if street < row["weight"] else "more"
    expected = (
        f'In layer 0 head 3 "it" gives "street" {100 * street:.1f}% of its weight, {beside} than'
    )
    assert f'{expected} "animal".' in shown
    chinese = ask(*line, *ends, "--effect", "--lang", "zh").out.replace("\n", "")
    assert "最大" not in chinese
    assert "各头之中" not in chinese


def test_of_one_head_a_hidden_and_a_resting_key_are_not_said_to_get_most() -> None:
    line = ("find", TEXT, *("--num-heads", "5", "--d-model", "30", "--mask", "causal"))
    hidden = " ".join(ask(*line, "--head", "3", "--from", "it", "--to", "tired").out.split())
    assert 'The other way "tired" gives "it"' in hidden
    assert '"it" most' not in hidden
