"""`attn why` as a person and a program meet it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import resting_model
from asking import ask
from msgspec.structs import replace
from sample_files import SAMPLES
from small_gpt2 import small_gpt2
from tiny_checkpoints import CASES, make

import attncli
from attncli.documents.reading import document_of
from attncli.draw.figures import figure
from attncli.draw.lines import draw_parts
from attncli.draw.numbers import format_small_signed, percent_below
from attncli.draw.token_names import name_tokens
from attncli.draw.view import View
from attncli.features.effects import logit_parts
from attncli.features.why.compute import why
from attncli.features.why.screen import WHY_PARTS, why_sentences
from attncli.models import residual_stream

TEXT = "The animal didn't cross the street because it was too tired"
MINILM = ("--model", "minilm")
LINK = ("--from", "it", "--to", "animal")
L5H11 = (*MINILM, *LINK, "--head", "L5H11")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return ask("why", TEXT, *L5H11, "--json").json


def part(document: dict[str, Any], kind: str, layer: int | None = None) -> dict[str, Any]:
    (one,) = [row for row in document["parts"] if (row["kind"], row["layer"]) == (kind, layer)]
    return one


def test_the_known_values(document: dict[str, Any]) -> None:
    """Made with transformers and hooks in float64."""
    assert len(document["parts"]) == 85
    known = {"score": 4.14116, "weight": 0.64661, "total": 0.92457}
    assert {name: document[name] for name in known} == pytest.approx(known, abs=5e-6)
    asks = {
        ("feed_forward", 4): 0.23162,
        ("token", None): 0.14842,
        ("feed_forward", 2): 0.10486,
        ("position", None): 0.07702,
    }
    answers = {("token", None): 0.21414, ("feed_forward", 0): 0.15669, ("feed_forward", 1): 0.10201}
    assert {name: part(document, *name)["query_side"] for name in asks} == pytest.approx(
        asks, abs=5e-6
    )
    assert {name: part(document, *name)["key_side"] for name in answers} == pytest.approx(
        answers, abs=5e-6
    )
    lost = document["weight"] - part(document, "feed_forward", 4)["weight_without"]["query"]
    assert lost == pytest.approx(0.16626, abs=5e-6)
    without = part(document, "token")["weight_without"]
    assert document["weight"] - without["all_keys"] == pytest.approx(0.15258, abs=5e-6)
    assert document["weight"] - without["key"] == pytest.approx(0.11192, abs=5e-6)
    first = document["pairs"][0]
    assert first["contribution"] == pytest.approx(0.05239, abs=5e-6)
    names = [document["parts"][first[side]]["kind"] for side in ("query_part", "key_part")]
    assert names == ["feed_forward", "token"]
    assert document["pair_count"] == 85 * 85


def test_both_sides_add_up(document: dict[str, Any]) -> None:
    for side in ("query_side", "key_side"):
        assert sum(row[side] for row in document["parts"]) == pytest.approx(
            document["total"], abs=1e-9
        )
    assert abs(document["difference"]) < 1e-9
    row = document["row"]
    assert sum(key["weight"] * key["advantage"] for key in row) == pytest.approx(0, abs=1e-6)


def test_sources_that_are_not_told_alone_are_one_part_of_their_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = ask("why", TEXT, *L5H11, "--by", "token", "--json").json
    monkeypatch.setattr("attncli.features.effects.contributions.SOURCES", 40)
    few = ask("why", TEXT, *L5H11, "--by", "token", "--json").json
    alone = [row for row in few["parts"] if row["source"] is not None]
    rest = [row for row in few["parts"] if row["place"] == "rest"]
    assert 40 <= len(alone) < 60 < len([row for row in whole["parts"] if row["source"] is not None])
    sizes = sorted(
        abs(row["query_side"]) + abs(row["key_side"])
        for row in whole["parts"]
        if row["source"] is not None
    )
    assert min(abs(row["query_side"]) + abs(row["key_side"]) for row in alone) == pytest.approx(
        sizes[-40]
    )
    assert len(rest) == 60
    for side in ("query_side", "key_side"):
        assert sum(row[side] for row in few["parts"]) == pytest.approx(few["total"], abs=1e-9)
        for row in rest:
            of_head = (row["layer"], row["head"])
            sums = [
                sum(
                    each[side]
                    for each in one["parts"]
                    if (each["kind"], each["layer"], each["head"]) == ("head", *of_head)
                )
                for one in (whole, few)
            ]
            assert sums[0] == pytest.approx(sums[1], abs=1e-9)


def test_numbers_of_any_size_take_few_cells(tmp_path: Path) -> None:
    figure = tmp_path / "why.svg"
    line = (
        "why",
        "the cat sat",
        "--from",
        "sat",
        "--to",
        "cat",
        "--than",
        "the",
        "--scale",
        "1e200",
    )
    answer = ask(*line, "--dtype", "float64", "--figure", str(figure))
    assert answer.code == 0, answer.err
    assert "e+20" in answer.out
    assert not re.search("[0-9]{12}", answer.out)
    assert not re.search(">[^<]*[0-9]{12}", figure.read_text("utf-8"))


def test_equal_words_are_told_apart() -> None:
    answer = ask(
        "why",
        "a b c d e f d e f g",
        "--from",
        "#8",
        "--to",
        "#2",
        "--than",
        "#5",
        "--num-heads",
        "2",
    ).out
    (line,) = [line for line in answer.splitlines() if " looks " in line]
    assert '"f" (8) looks at "c"' in line
    assert '"f" (5)' in line


def test_a_key_that_gets_less_than_the_other_is_not_said_to_get_more() -> None:
    shown = " ".join(
        ask(
            "why",
            TEXT,
            *MINILM,
            "--from",
            "it",
            "--to",
            "street",
            "--than",
            "animal",
            "--head",
            "L5H11",
            "--brief",
        ).out.split()
    )
    assert 'looks less at "street"' in shown
    assert "rather than" not in shown
    assert "-" not in shown.split("the score is ")[1].split()[0]


def test_a_part_is_told_as_a_share_of_what_speaks_for_the_link() -> None:
    """A part may add more than the whole advantage: what it is measured against is what all parts
    add, and not what the others take away again."""
    text, line = "吃 香 animal", ("--from", "吃", "--to", "香", "--unknown", *MINILM)
    document = ask("why", text, *line, "--json").json
    shown = " ".join(ask("why", text, *line, "--brief").out.split())
    for side, name in (("query_side", "asks"), ("key_side", "answers")):
        gains = sorted((part[side] for part in document["parts"] if part[side] > 0), reverse=True)
        total, half = sum(gains), 1
        while sum(gains[:half]) < total / 2:
            half += 1
        spread = f"On the side that {name} the reason is spread: {half} parts make half of the "
        if gains[0] < total / 2:
            assert f"{spread}{total:.2f} that speak for the link." in shown
        else:
            assert f"{gains[0]:.2f} of the {total:.2f} that speak for the link" in shown
    first = max(part["query_side"] for part in document["parts"])
    assert first > 2 * document["total"]


def test_what_is_told_of_a_name_is_told_once() -> None:
    several = ask("why", "unbelievableness happened, unbelievableness", *MINILM, "--from", "unbelievableness",
                  "--to", "happened", "--than", "unbelievableness")  # fmt: skip
    assert several.code == 0
    notes = several.err.splitlines()
    assert len(notes) == len({*notes}) == 2
    assert "occurs 2 times; using the first" in notes[0]
    assert "is 2 tokens" in notes[1]


def test_a_source_that_stands_twice_is_told_with_its_place(gpt2: str) -> None:
    line = (
        "why",
        "the cat the cat the",
        "--model",
        gpt2,
        "--from",
        "#4",
        "--to",
        "#1",
        "--head",
        "L1H0",
        "--by",
        "token",
    )
    shown = ask(*line, "--writes", "--full").out
    rows = [
        row.split("  ")[0]
        for row in shown.split("what asks")[1].split("what answers")[0].splitlines()
    ]
    named = [row for row in rows if "←" in row]
    assert len(named) == len({*named}) > 3
    assert any(row.endswith("← t (the) #1") for row in named)
    assert not re.search(r'" ?#\d', shown)  # in sentences as everywhere: "t" (1)
    assert any(row.endswith("← he (the)") for row in named)
    writes = shown.split("what the head writes")[1]
    assert "c (cat) #4" in writes


def test_a_piece_is_named_with_its_word_on_figures_and_pages(gpt2: str, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    line = ("why", "the cat the cat", "--model", gpt2, "--from", "#4", "--to", "#1", "--head", "L1H0",
            "--by", "token", "--json", "--html", str(page))  # fmt: skip
    document = document_of(ask(*line).json, "test")
    drawing = figure(document)
    assert drawing is not None
    for shown in (drawing.svg(), page.read_text()):
        assert "← he (the)" in shown
    assert "(the)" in drawing.svg().split("layer 1 head 0")[0]
    (told,) = [line for line in why_sentences(name_tokens(document), View()) if "looks at" in line]
    assert "(a piece of" in told


def with_words(name: str, folder: Path) -> str:
    """A tiny checkpoint with a tokenizer."""
    case = replace(CASES[name], config={**CASES[name].config, "vocab_size": 320})
    folder = make(case, folder / name)
    shutil.copy(SAMPLES / "tokenizer.json", folder / "tokenizer.json")
    return str(folder)


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> str:
    return with_words("bart", tmp_path_factory.mktemp("why"))


def test_a_layer_that_attends_to_nothing_is_told_as_that(tmp_path: Path) -> None:
    answer = ask(
        "why",
        "the cat",
        "--model",
        with_words("lfm2_moe", tmp_path),
        "--from",
        "#3",
        "--to",
        "#2",
        "--head",
        "L0H0",
    )
    assert answer.code == 3
    assert "layer 0 attends to nothing: it is short convolution" in answer.err
    assert "0 heads" not in answer.err


def test_the_encoder_s_parts_are_not_taken_for_the_decoder_s(bart: str) -> None:
    """Layers of both have the same numbers: each head stands in the grid of its side, with what it
    adds there.
    """
    line = (
        "why",
        "the cat sat",
        "--model",
        bart,
        "--source",
        "the dog ran",
        "--cross",
        "--from",
        "cat",
        "--to",
        "dog",
    )
    line = (*line, "--head", "L2H1")
    document = ask(*line, "--json").json
    parts = {
        (p["kind"], p["layer"], p["attention"], p["head"], p["side"]): p for p in document["parts"]
    }
    own, other = (parts["head", 1, "self", 0, side] for side in ("query", "key"))
    shown = ask(*line, "--full", "--precision", "5").out
    blocks = shown.split("what asks")[0].split("what the encoder's heads of")
    assert len(blocks) == 2
    for block, value in zip(blocks, (own["query_side"], other["key_side"]), strict=True):
        first = re.search(r"^1 +([-.0-9]+)", block.split("columns: heads")[1], re.MULTILINE)
        assert first
        assert float(first[1]) == pytest.approx(value, abs=1e-4)
    assert abs(own["query_side"] - other["key_side"]) > 1e-3
    answers = shown.split("what answers")[1].split("the strongest of")[0]
    assert "encoder L1 feed-forward" in answers
    assert not any(re.match("L[0-9]", row) for row in answers.splitlines())
    assert "encoder" not in shown.split("what asks")[1].split("what answers")[0]
    chinese = ask(*line, "--full", "--lang", "zh").out
    assert "编码器 L1 前馈" in chinese


def test_than_is_the_ratio_of_two_weights() -> None:
    document = ask("why", TEXT, *L5H11, "--than", "street", "--json").json
    assert document["total"] == pytest.approx(
        np.log(document["weight"] / document["centred"]["weight"]), abs=1e-9
    )
    assert sum(row["query_side"] for row in document["parts"]) == pytest.approx(
        document["total"], abs=1e-9
    )


def test_without_a_head_it_is_the_one_that_find_ranks_first() -> None:
    first = ask("find", TEXT, *MINILM, *LINK, "--json").json["heads"][0]
    link = ask("why", TEXT, *MINILM, *LINK, "--json").json["link"]
    assert (link["layer"], link["head"]) == (first["layer"], first["head"])
    assert ask("why", TEXT, *MINILM, *LINK, "--layer", "3", "--json").json["link"]["head"] == 1


def test_the_answer_stands_last_and_says_where_the_reason_is_spread() -> None:
    shown = ask("why", TEXT, *L5H11).out
    answer = " ".join(shown.split())
    assert (
        "On the side that asks the reason is spread: 6 parts make half of the 1.28 that speak for"
        ' the link. The largest, what layer 4\'s feed-forward made of "it", makes 18%; without it'
        " the weight is 0.48." in answer
    )
    assert "On the side that answers the reason is spread: 5 parts make half of the 1.12" in answer
    assert "85 parts add up to the score 4.1412" in answer
    assert shown.splitlines()[-1] == "--to animal --head L5H11"
    spread = " ".join(ask("why", TEXT, *L5H11, "--than", "street", "--brief").out.split())
    assert spread.count("the reason is spread") == 2
    assert "above all" not in spread
    chinese = ask("why", TEXT, *L5H11, "--brief", "--lang", "zh").out
    assert "查询一方的贡献是分散的" in chinese
    assert "layer" not in chinese


def test_splits_by_entries_add_up() -> None:
    turned = (
        "why",
        TEXT,
        *LINK,
        "--position",
        "rope",
        "--num-heads",
        "2",
        "--dtype",
        "float64",
        "--json",
    )
    for by, count in (("frequency", 16), ("dimension", 32)):
        document = ask(*turned, "--by", by).json
        assert len(document["dimensions"]) == count
        assert sum(row["contribution"] for row in document["dimensions"]) == pytest.approx(
            document["total"], abs=1e-9
        )
    shown = ask(*turned[:-1], "--by", "frequency").out
    assert "period in tokens" in shown
    assert "The reason is spread: 3 pairs of entries make half of" in shown


def test_splits_by_entries_stand_beside_what_the_position_adds() -> None:
    line = (
        "why",
        TEXT,
        *LINK,
        "--position",
        "alibi",
        "--num-heads",
        "2",
        "--dtype",
        "float64",
        "--by",
        "dimension",
    )
    document = ask(*line, "--json").json
    entries = sum(row["contribution"] for row in document["dimensions"])
    (position,) = [part for part in document["parts"] if part["kind"] == "score_bias"]
    assert entries + position["query_side"] == pytest.approx(document["total"], abs=1e-9)
    rows = {row.split("  ")[0]: row.split() for row in ask(*line, "--full").out.splitlines()}
    assert float(rows["what the position adds"][4]) == pytest.approx(
        position["query_side"], abs=5.1e-3
    )
    assert float(rows["total"][1]) == pytest.approx(document["total"], abs=5.1e-3)


def test_a_split_by_token_has_no_table_of_pairs() -> None:
    shown = ask("why", TEXT, *L5H11, "--by", "token").out
    assert "pairs" not in shown
    assert "what answers" in shown


def test_plain_lines_are_the_parts() -> None:
    lines = ask("why", "a b c", "--from", "c", "--to", "a", "--plain").out.splitlines()
    assert lines[0].split("\t")[:3] == ["kind", "layer", "attention"]
    assert [line.split("\t")[0] for line in lines[1:]] == ["token"]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("why") / "gpt2"
    small_gpt2(folder)
    return str(folder)


def test_what_the_head_writes_adds_up_to_its_entry_in_logits(gpt2: str) -> None:
    said, link = "the cat sat on the mat", ("--from", "on", "--to", "cat")
    line = (said, "--model", gpt2, "--dtype", "float64", "--target", "id:4", "--json")
    for head in (0, 1):
        document = ask("why", *line, *link, "--head", f"L1H{head}", "--writes").json
        written = document["writes"]
        query = document["link"]["query"]
        parts = ask("logits", *line, "--query", f"#{query}", "--by", "token").json["parts"]
        (entry,) = [part for part in parts if (part["layer"], part["head"]) == (1, head)]
        assert written["target"]["id"] == 4
        assert written["logit"] == pytest.approx(entry["value"], abs=1e-9)
        assert sum(source["logit"] for source in written["sources"]) == pytest.approx(
            entry["value"], abs=1e-9
        )
        assert sum(source["share"] for source in written["sources"]) == pytest.approx(1, abs=1e-9)
        by_token = {source["source"]: source["value"] for source in entry["sources"]}
        for source in written["sources"]:
            assert source["logit"] == pytest.approx(by_token.get(source["source"], 0.0), abs=1e-9)
    for part in parts:
        if part["part"] == "head":
            assert sum(source["value"] for source in part["sources"]) == pytest.approx(
                part["value"], abs=1e-9
            )


def test_each_layer_runs_once(gpt2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Split by token and with what the head writes: neither is a run of its own."""
    layers: list[int] = []
    for module in (residual_stream, logit_parts):

        def run_block(*values: Any, run: Any = module.run_block) -> Any:
            layers.append(values[-1])
            return run(*values)

        monkeypatch.setattr(module, "run_block", run_block)
    line = ("why", "the cat sat", "--model", gpt2, "--from", "cat", "--to", "the", "--head", "L1H0")
    assert ask(*line, "--by", "token", "--writes").code == 0
    assert layers == [0, 1]


def test_the_lens_reads_each_layer_through_the_last_norm(gpt2: str) -> None:
    line = (
        "logits",
        "the cat sat on the mat",
        "--model",
        gpt2,
        "--dtype",
        "float64",
        "--target",
        "id:4",
        "--lens",
    )
    document = ask(*line, "--json").json
    model = attncli.load(gpt2, dtype="float64")
    traces = list(model.trace("the cat sat on the mat"))
    outer = model.store.outer(model.backend)
    weight, bias, matrix = (outer(name) for name in ("final.weight", "final.bias", "tokens.weight"))
    matrix = outer("head.weight") if outer("head.weight") is not None else matrix
    stages = [(row["layer"], row["stage"]) for row in document["lens"]]
    assert stages[-1] == (None, "end")
    for row in document["lens"]:
        trace = traces[-1 if row["layer"] is None else row["layer"]]
        states = {
            "before attention": trace.before,
            "after attention": trace.stages["sum"],
            "end": trace.after,
        }
        x = states[row["stage"]][-1]
        normed = (x - x.mean()) / np.sqrt(x.var() + model.spec.final_norm.eps) * weight + bias
        scores = matrix @ normed
        shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        assert row["probability"] == pytest.approx(shares[4], abs=1e-9)
        assert row["rank"] == (scores > scores[4]).sum() + 1
        assert [entry["token"]["id"] for entry in row["top"]] == np.argsort(-scores)[:5].tolist()
    shown = ask(*line).out
    assert "would say next" in shown
    assert "Read off layer by layer" in shown


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (("why", TEXT), 2, "--from TOK and --to TOK"),
        (("why", TEXT, *LINK, "--by", "luck"), 2, "part, token, frequency or dimension"),
        (("why", TEXT, *LINK, "--than", "animal"), 3, "compared with itself"),
        (("why", TEXT, "--from", "it", "--to", "cat"), 3, "cat"),
        (("why", TEXT, "--from", "animal", "--to", "it", "--mask", "causal"), 3, "hides this key"),
        (("why", TEXT, *LINK, "--mask", "causal", "--than", "tired"), 3, "hides the other key"),
        (("why", TEXT, *LINK, "--attention", "reformer:2"), 4, "dense attention"),
        (("why", TEXT, *LINK, "--by", "frequency"), 4, "--by dimension"),
        (("why", TEXT, *LINK, "--scale", "1e308"), 3, "leave the range of float64"),
        (("why", TEXT, *LINK, "--cross"), 2, "--source TEXT"),
        (("why", TEXT, *LINK, "--target", "cat"), 2, "--writes as well"),
        (("why", TEXT, *MINILM, *LINK, "--writes", "--target", "cat"), 4, "no output head"),
        (("why", TEXT, *MINILM, *LINK, "--max-memory", "1MB"), 5, "--max-memory"),
        (("why", TEXT, *MINILM, *LINK, "--head", "L5H12"), 3, "there is no head 12"),
    ],
)
def test_what_cannot_be_explained_is_told(line: tuple[str, ...], code: int, said: str) -> None:
    answer = ask(*line)
    assert (answer.code, answer.out) == (code, "")
    assert said in " ".join(answer.err.split())
    assert "Traceback" not in answer.err


def test_memory_that_is_short_makes_one_part_of_a_layer_s_heads() -> None:
    line = ("why", TEXT, *L5H11)
    refused = ask(*line, "--max-memory", "1MB")
    (needed,) = re.findall("about ([0-9,]+) bytes", " ".join(refused.err.split()))
    document = ask(*line, "--json", "--max-memory", needed.replace(",", "")).json
    assert document["by_layer"]
    assert [part["layer"] for part in document["parts"] if part["kind"] == "heads"] == list(
        range(5)
    )
    whole = ask(*line, "--json").json
    for layer in range(5):
        heads = [
            part for part in whole["parts"] if (part["kind"], part["layer"]) == ("head", layer)
        ]
        (together,) = [
            part for part in document["parts"] if (part["kind"], part["layer"]) == ("heads", layer)
        ]
        for side in ("query_side", "key_side"):
            assert together[side] == pytest.approx(sum(part[side] for part in heads), abs=1e-9)
    shown = " ".join(ask(*line, "--max-memory", needed.replace(",", "")).out.split())
    assert "the heads of each layer are one part here" in shown


@pytest.mark.parametrize(
    "command",
    [
        ("run",),
        pytest.param(("heads",), marks=pytest.mark.thorough),
        pytest.param(("find", "--from", "it", "--to", "animal"), marks=pytest.mark.thorough),
        pytest.param(("ablate", "--from", "it", "--to", "animal"), marks=pytest.mark.thorough),
    ],
)
def test_a_page_holds_the_parts_of_chosen_heads(command: tuple[str, ...], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    name, *options = command
    answer = ask(name, TEXT, *MINILM, *options, "--html", str(page), "--why", "L5H11,L3H1")
    assert answer.code == 0, answer.err
    (note,) = [row for row in answer.err.splitlines() if "links take" in row]
    meta = json.loads(
        re.findall(
            '<script type="application/json" id="meta">(.*?)</script>', page.read_text("utf-8")
        )[0]
    )
    size = sum(
        len(json.dumps(link, ensure_ascii=False, separators=(",", ":")).encode())
        for link in meta["why"]
    )
    assert note.startswith(f"the parts of {len(meta['why'])} links take {size / 1000:.1f} kB")
    (link,) = [link for link in meta["why"] if (link["l"], link["h"], link["q"]) == (5, 11, 10)]
    document = ask("why", TEXT, *L5H11, "--json").json
    assert (link["k"], link["count"]) == (2, 85)
    assert [link["s"], link["t"], link["w"]] == pytest.approx(
        [document[name] for name in ("score", "total", "weight")], abs=1e-9
    )
    for layer, head in ((5, 11), (3, 1)):
        rows = ask("heads", TEXT, *MINILM, "--json").json["heads"]
        (top,) = [row["top_link"] for row in rows if (row["layer"], row["head"]) == (layer, head)]
        own = [each for each in meta["why"] if (each["l"], each["h"]) == (layer, head)]
        strongest = max(own, key=lambda each: each["w"])
        assert (strongest["q"], strongest["k"]) == (top["query"], top["key"])


def test_pages_of_changes_hold_them_too(gpt2: str, tmp_path: Path) -> None:
    page, line = tmp_path / "page.html", ("the cat sat", "--model", gpt2)
    for command in (("logits", *line), ("patch", line[0], "the bat sat", *line[1:])):
        answer = ask(*command, "--html", str(page), "--why", "L1H0")
        assert answer.code == 0, answer.err
        assert "links take" in answer.err
        (meta,) = re.findall(
            '<script type="application/json" id="meta">(.*?)</script>', page.read_text("utf-8")
        )
        assert {(link["l"], link["h"]) for link in json.loads(meta)["why"]} == {(1, 0)}
        assert json.loads(meta)["effects"]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (("run", TEXT, "--why", "L0H0"), 2, "--html FILE as well"),
        (("ablate", TEXT, "--why", "L0H0"), 2, "--html FILE as well"),
        (("patch", TEXT, TEXT, "--why", "L0H0"), 2, "--html FILE as well"),
        (("logits", TEXT, "--why", "L0H0"), 2, "--html FILE as well"),
        (("run", TEXT, "--why", "3", "--html", "{tmp}/a.html"), 2, "--why '3'"),
        (("run", TEXT, "--why", "L0H9", "--html", "{tmp}/a.html"), 3, "head 9"),
        (
            ("run", TEXT, "--why", "L0H0", "--html", "{tmp}/a.html", "--words", *MINILM),
            2,
            "--words merges them",
        ),
        (
            ("heads", TEXT, "--why", "L0H0", "--html", "{tmp}/a.html", "--attention", "reformer:2"),
            4,
            "dense attention",
        ),
    ],
)
def test_pages_that_cannot_tell_why(
    line: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    answer = ask(*(part.format(tmp=tmp_path) for part in line))
    assert answer.code == code, answer.err
    assert said in " ".join(answer.err.split())
    assert not (tmp_path / "a.html").exists()


def test_a_model_that_runs_through_transformers_is_refused(
    gpt2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attncli.models import load
    from attncli.models.families import MODEL_TYPES, family

    monkeypatch.setattr(load, "MODEL_TYPES", tuple(name for name in MODEL_TYPES if name != "gpt2"))
    monkeypatch.setattr(load, "family", lambda name: None if name == "gpt2" else family(name))
    line = ("the cat sat on the mat", "--model", gpt2)
    assert ask("run", *line, "--brief").code == 0
    answer = ask("why", *line, "--from", "on", "--to", "cat")
    assert (answer.code, answer.out) == (4, "")
    assert "transformers" in answer.err
    assert "expected: " in answer.err


def test_the_answer_says_what_the_head_writes_where_that_was_asked(gpt2: str) -> None:
    line = ("the cat sat on the mat", "--model", gpt2, "--from", "on", "--to", "cat")
    asked = ("why", *line, "--head", "L1H0", "--target", "id:4", "--writes")
    document = ask(*asked, "--json").json
    written = document["writes"]
    brief = " ".join(ask(*asked, "--brief").out.split())
    most = max(written["sources"], key=lambda row: row["share"])
    query, source = (
        document["tokens"][place]["text"] for place in (document["link"]["query"], most["source"])
    )
    assert re.search(rf'what the head writes for "{query}"[^,]*, \S+% comes from "{source}"', brief)
    assert f"It adds {format_small_signed(written['logit'], 2)} to the logit of" in brief
    assert "the head writes" not in ask("why", *line, "--head", "L1H0", "--brief").out


def test_a_link_to_a_key_where_heads_rest_is_told_as_that() -> None:
    """The reasons of rest are told, and that it is rest; of another key nothing is."""
    model = resting_model.model()
    for key, rests in (("#0", True), ("#2", False)):
        said = " ".join(why_sentences(why(model, "cdbeac", "#5", key, heads=[0]), View(width=200)))
        assert ("is the first token: heads rest there whatever it is." in said) == rests


def test_of_a_word_that_holds_the_first_token_another_token_is_explained() -> None:
    """A word of several tokens is asked about for those where no head rests; a note says so. Of
    weights that nobody trained, and of a word that is the first token alone, nothing is left out."""
    for source, keys, key in (
        ("checkpoint", "#0-1", 1),
        ("file", "#0-1", 0),
        ("checkpoint", "#0", 0),
    ):
        notes: list[str] = []
        model = resting_model.model(source=source)
        document = why(model, "cdbeac", "#5", keys, heads=[0], note=notes.append)
        assert document.link.key == key
        assert any("where no head rests" in note for note in notes) == (key == 1)


def test_a_row_with_one_key_has_no_advantage_to_split() -> None:
    """Where a key has the whole weight of a row, what is left of its advantage is rounding: no part
    is named, tinted or drawn, and what tells more is."""
    whole = why(resting_model.model(), "cdbeac", "#5", "#0", heads=[0])
    for weight, total, is_split in ((1.0, 1e-6, False), (0.9, 1e-6, True), (1.0, -0.2, True)):
        document = replace(whole, weight=weight, total=total)
        screen = draw_parts(WHY_PARTS, document, View(width=200)).plain
        assert ("what asks" in screen and "tint:" in screen) == is_split
        assert ("has no advantage to be split" in screen) != is_split
        assert ("--versus compares it with another key." in screen) != is_split


def test_less_than_half_is_never_written_as_half() -> None:
    assert percent_below(0.4997, 0.5) == "49.9%"
    assert percent_below(0.496, 0.5) == "49.6%"
    assert percent_below(0.5, 0.5) == "50%"
    assert percent_below(0.25, 0.5) == "25%"


def test_a_small_push_keeps_two_digits() -> None:
    written = [format_small_signed(value, 2) for value in (0.0054, -0.0306, 0.25, 0.0)]
    assert written == ["+0.0054", "-0.031", "+0.25", "0.00"]


@pytest.mark.parametrize(("against", "is_named"), [(-0.15, True), (-0.05, False)])
def test_the_largest_part_is_named_where_it_speaks_against(
    against: float, is_named: bool, document: dict[str, Any]
) -> None:
    """A part beyond all that speak for the link, though it is a small share of their sum."""
    many = document_of(json.loads(json.dumps(document)), "here")
    values = [against] + [0.1] * (len(many.parts) - 1)
    parts = [
        replace(row, query_side=value, key_side=value)
        for row, value in zip(many.parts, values, strict=True)
    ]
    told = why_sentences(replace(many, parts=parts), View(width=200))
    assert any("Most against it speaks" in str(sentence) for sentence in told) == is_named


@pytest.mark.parametrize("more", [("--head", "L1H1"), ()])
def test_a_hidden_rival_is_an_error_not_a_traceback(tmp_path: Path, more: tuple[str, ...]) -> None:
    model = str(small_gpt2(tmp_path / "gpt2"))
    ends = ("--from", "sat", "--to", "cat", "--versus", "mat", *more)
    reply = ask("why", "the cat sat on the mat", "--model", model, *ends)
    assert reply.code == 3, reply.err
    assert "the mask hides the other key from this query" in reply.err
