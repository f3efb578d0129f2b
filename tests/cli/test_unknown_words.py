"""Words that a model does not know: every command says so on its screen, in its document and below
its answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from commands import commands, examples

import attncli
from attncli.errors import InputError
from attncli.models.aliases import local_folder

TEXT = "她吃苹果，他吃香蕉"
"""MiniLM knows two of its nine words: the comma and 香."""
MODEL = ("--model", "minilm")
ONE = ("--head", "L0H0")
COUNT = "7 of 9 words are unknown to this model: it cannot tell them apart"
COUNT_ZH = "9 个字词中有 7 个是这个模型不认识的：它分不清这些字词"
LINES: dict[str, tuple[str, ...]] = {
    "run": ("run", TEXT, *MODEL),
    "heads": ("heads", TEXT, *MODEL),
    "explain": ("explain", TEXT, *MODEL),
    "explain matrix-softmax": ("explain", "matrix-softmax", TEXT, *MODEL),
    "explain order": ("explain", "order", TEXT, *MODEL),
    "explain position": ("explain", "position", TEXT, *MODEL),
    "explain mask": ("explain", "mask", TEXT, *MODEL),
    "explain multihead": ("explain", "multihead", TEXT, *MODEL),
    "explain residual": ("explain", "residual", TEXT, *MODEL),
    "explain training": ("explain", "training", TEXT, *MODEL),
    "explain qkv": ("explain", "qkv", TEXT, *MODEL),
    "explain seq2seq": ("explain", "seq2seq", TEXT, TEXT, "--tokenizer", "{tmp}/tokenizer.json"),
    "find": ("find", TEXT, *MODEL, "--from", "香", "--to", "，"),
    "ablate": ("ablate", TEXT, *MODEL, *ONE),
    "patch": ("patch", TEXT, "她吃香蕉，他吃苹果", *MODEL, *ONE),
    "why": ("why", TEXT, *MODEL, *ONE, "--from", "香", "--to", "，"),
    "cache": ("cache", TEXT, "--tokenizer", "{tmp}/tokenizer.json", "--mask", "causal"),
    "compare": ("compare", TEXT, "他吃苹果，她吃香蕉", *MODEL),
    "cross": ("cross", TEXT, TEXT, "--tokenizer", "{tmp}/tokenizer.json"),
    "tokens": ("tokens", TEXT, *MODEL),
    "series": ("series", "minilm", "{tmp}/minilm", "--text", TEXT, "--quiet"),
    "view": ("view", "{tmp}/run.json"),
}
"""A line of every command that is about a text."""
OTHERS = {
    "explore": "its words are looked at below", "scan start": "it counts texts, below",
    "learn": "its words are those that it trains on",
    "logits": "a model that learned is asked, below", "next": "the same",
    "answer": "the same",
    **dict.fromkeys(
        ("explain softmax", "explain scaling", "explain metric", "explain rule", "tensors", "mask", "cost", "scan show",
         "scan compare", "scan verify", "scan export", "weights init", "weights show", "weights convert", "models list",
         "models show", "models fetch", "models verify", "guide", "schema", "pairs check", "circuit", "check"),
        "it is about no text",
    ),
}  # fmt: skip
LINES |= {
    name: (*line, *MODEL) for name, line in examples(LINES, OTHERS, TEXT).items() if TEXT in line
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a saved run and MiniLM's tokenizer stand."""
    made = tmp_path_factory.mktemp("unknown")
    (made / "run.json").write_text(ask("run", TEXT, *MODEL, "--json").out, "utf-8")
    model = attncli.load("minilm")
    (made / "minilm").symlink_to(local_folder("minilm"))
    (made / "tokenizer.json").write_text(model.tokenizer.hf.to_str(), "utf-8")  # type: ignore[attr-defined]
    return made


def line_of(command: str, folder: Path) -> tuple[str, ...]:
    return tuple(part.replace("{tmp}", str(folder)) for part in LINES[command])


WORDS = "k zz b k c"
"""A model that learned with the letters a to p knows four of its five words."""
LEARNED: dict[str, tuple[str, ...]] = {
    "next": ("next", WORDS, "--each"), "logits": ("logits", WORDS), "logits --lens": ("logits", WORDS, "--lens"),
    "logits --by token": ("logits", WORDS, "--by", "token"),
    "ablate --each-region": ("ablate", WORDS, "--region", "r=tokens:0-1", "--each-region"),
    "answer": ("answer", WORDS, "--region", "r=tokens:0-1", "--target", "b"),
    "why --writes": ("why", WORDS, "--from", "#3", "--to", "#0", "--writes"),
    "heads --directions": ("heads", WORDS, "--directions", "L0H0"),
    "heads --region": ("heads", WORDS, "--region", "r=tokens:0-1"),
    "run --region": ("run", WORDS, "--region", "r=tokens:0-1"), "run --generate": ("run", WORDS, "--generate", "1"),
    "cache": ("cache", WORDS, "--budget", "2"), "patch": ("patch", WORDS, "k zz c k c"),
    "patch --into": ("patch", WORDS, "k zz c k c", "--into", "L1H0:q"),
    "heads --across": ("heads", WORDS, "--across", "rollout,flow"),
    "find --region": ("find", WORDS, "--from", "#3", "--to", "#0", "--region", "r=tokens:0-1"),
}  # fmt: skip
"""What else commands do that a model with an output head and unknown words is needed for."""


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small decoder with a token for words that it does not know."""
    made = tmp_path_factory.mktemp("learned") / "m"
    assert ask("learn", "induction", "--steps", "1", "--save", str(made), "--brief").code == 0
    return str(made)


@pytest.mark.parametrize("name", LEARNED)
def test_everything_that_a_decoder_is_asked_marks_and_counts_them(name: str, learned: str) -> None:
    line = (*LEARNED[name], "--model", learned)
    document = ask(*line, "--json").json
    assert [
        warning
        for warning in document["warnings"]
        if warning.startswith("1 of 5 words is unknown to this model")
    ]
    assert [token["text"] for token in document["tokens"] if token.get("unknown")] == ["zz"]
    for lang, count in (
        ("en", "1 of 5 words is unknown to this model"),
        ("zh", "5 个词中有 1 个是这个模型不认识的"),
    ):
        count = "".join(count.split())  # wherever its line is wrapped
        shown = "".join(ask(*line, "--lang", lang).out.split())
        assert shown.count(count) == 2, lang  # as a warning above, and below the answer
        assert count in shown[-200:]
        # marks are spoken of where there are some: screens of regions show no words
        assert ("zz?" in shown) == (("A?marks" if lang == "en" else "“?”") in shown)


def test_needles_of_unknown_words_are_refused(learned: str, tmp_path: Path) -> None:
    (tmp_path / "needle").write_text("k b\tzz\n")
    (tmp_path / "hay").write_text("a b c d e f g h\n")
    files = ("--needle", str(tmp_path / "needle"), "--haystack", str(tmp_path / "hay"))
    answer = ask("heads", "--model", learned, "--retrieval", "--lengths", "8", *files)
    assert (answer.code, answer.out) == (3, "")
    assert "'zz' is unknown to this model" in answer.err


def token_lists(found: Any) -> list[list[dict[str, Any]]]:
    """Every list of tokens in a document."""
    if isinstance(found, dict):
        return [rows for value in found.values() for rows in token_lists(value)]
    if not isinstance(found, list) or not found:
        return []
    if isinstance(found[0], dict) and {"text", "special"} <= found[0].keys():
        return [found]
    return [rows for value in found for rows in token_lists(value)]


def test_every_command_is_here() -> None:
    assert {name for name, _ in commands()} == {*LINES, *OTHERS}


@pytest.mark.many
@pytest.mark.parametrize("command", LINES)
def test_every_document_marks_and_counts_them(command: str, folder: Path) -> None:
    document = ask(*line_of(command, folder), "--json").json
    assert COUNT in document["warnings"]
    rows = token_lists(document)
    assert rows
    for tokens in rows:
        known = {"，", "香"} | {token["text"] for token in tokens if token["special"]}
        assert all(token.get("unknown", False) == (token["text"] not in known) for token in tokens)
        assert all(token.get("unknown") is not False for token in tokens)


@pytest.mark.many
@pytest.mark.parametrize(
    ("lang", "count", "width"),
    [
        pytest.param("en", COUNT, 60, marks=pytest.mark.thorough),
        ("zh", COUNT_ZH, 80),
        pytest.param("en", COUNT, 120, marks=pytest.mark.thorough),
    ],
    ids=["60", "80", "120"],
)
@pytest.mark.parametrize("command", LINES)
def test_every_screen_marks_and_counts_them(
    command: str, lang: str, count: str, width: int, folder: Path
) -> None:
    shown = ask(*line_of(command, folder), "--lang", lang, width=width).out
    told = "".join(shown.split())
    marks = ".A?marks" if lang == "en" else "。它们都标有“?”"
    above, below = count.replace(" ", ""), f"{count}{marks}".replace(" ", "")
    assert told.count(above) >= 2  # as a warning above, and below the answer
    assert (below if "吃?" in told else above) in told[-200:]
    # not all columns stand on a narrow screen, and some commands show no word but the text
    assert width < 120 or "吃?" in told or "吃" not in told.replace(TEXT, "")
    brief = "".join(
        ask(*line_of(command, folder), "--lang", lang, "--brief", width=width).out.split()
    )
    assert (
        below if "?" in brief.removesuffix(below) else above
    ) in brief  # an answer may name no word


@pytest.mark.parametrize("command", ["run", "heads", "cross"])
def test_no_link_of_theirs_is_an_answer(command: str, folder: Path) -> None:
    document = ask(*line_of(command, folder), "--json").json
    links = document.get("links") or [
        head["top_link"] for head in document["heads"] if head["top_link"]
    ]
    assert links
    sides = [
        document.get("queries", document.get("tokens")),
        document.get("keys", document.get("tokens")),
    ]
    assert not any(
        sides[0][link["query"]].get("unknown") or sides[1][link["key"]].get("unknown")
        for link in links
    )
    every = ask(*line_of(command, folder), "--json", "--all-links").json
    links = every.get("links") or [head["top_link"] for head in every["heads"] if head["top_link"]]
    assert any(
        sides[0][link["query"]].get("unknown") or sides[1][link["key"]].get("unknown")
        for link in links
    )


@pytest.mark.many
@pytest.mark.parametrize(
    "line",
    [
        ("find", TEXT, "--from", "吃", "--to", "香"), ("find", TEXT, "--from", "香", "--to", "#2"),
        ("find", TEXT, "--words", "--from", "香", "--to", "她"),
        ("ablate", TEXT, "--from", "吃", "--to", "香", *ONE), ("ablate", TEXT, "--from", "香", "--to", "吃:2", *ONE),
        ("ablate", TEXT, "--query", "苹果", *ONE), ("patch", TEXT, "她，苹果，他吃香蕉", "--query", "吃:2", *ONE),
        ("patch", TEXT, "她，苹果，他吃香蕉", "--at", "吃", *ONE),
    ],
)  # fmt: skip
def test_naming_one_takes_a_word_for_it(line: tuple[str, ...]) -> None:
    refused = ask(*line, *MODEL)
    assert (refused.code, refused.out) == (3, "")
    assert "is unknown to this model" in refused.err
    assert "--unknown" in refused.err
    assert "，" in refused.err  # what may be named
    assert "--unknown 照样接受" in ask(*line, *MODEL, "--lang", "zh").err
    assert ask(*line, *MODEL, "--unknown").code == 0


@pytest.mark.thorough
def test_python_refuses_them_too() -> None:
    model = attncli.load("minilm")
    for call in (
        lambda **more: attncli.ablate(model, TEXT, query="吃", heads=[0], **more),
        lambda **more: attncli.ablate(model, TEXT, link=("香", "吃"), heads=[0], **more),
        lambda **more: attncli.patch(
            model, TEXT, "她，苹果，他吃香蕉", query="苹", heads=[0], **more
        ),
    ):
        with pytest.raises(InputError, match="is unknown to this model"):
            call()
        assert call(unknown=True).warnings


def test_texts_that_differ_in_them_alone_are_one_text() -> None:
    found = ask("patch", "她吃香", "他吃香", *MODEL)
    assert found.code == 3
    assert "the same to this model" in found.err


def test_equal_words_of_a_sentence_are_told_apart() -> None:
    line = ("find", TEXT, *MODEL, "--from", "吃", "--to", "吃:2", "--unknown")
    told = " ".join(ask(*line, "--brief").out.split())
    assert '"吃" (2, unknown) gives "吃" (7, unknown) most' in told
    told = "".join(ask(*line, "--brief", "--lang", "zh").out.split())
    assert "“吃”（2，未知）给“吃”（7，未知）的权重" in told
    told = " ".join(
        ask(
            "find", "the cat saw the dog", *MODEL, "--from", "the", "--to", "the:2", "--brief"
        ).out.split()
    )
    assert '"the" (1) gives "the" (4) most' in told
    told = ask("ablate", TEXT, *MODEL, *ONE, "--from", "吃", "--to", "吃:2", "--unknown").out
    assert "吃? (2) no longer sees 吃? (7)" in told


def test_a_text_of_known_words_says_nothing() -> None:
    line = ("run", "the cat, the dog", *MODEL)
    document = ask(*line, "--json").json
    assert not any("unknown" in token for token in document["tokens"])
    assert document["links_leave_out"] == ["special", "self", "neighbours", "first"]
    assert "unknown" not in ask(*line).out


@pytest.mark.thorough
def test_pages_and_figures_mark_them(folder: Path) -> None:
    page, figure = folder / "page.html", folder / "figure.svg"
    assert ask("run", TEXT, *MODEL, "--html", str(page)).code == 0
    for line in (("heads", TEXT, *MODEL, "--head", "1", "--layer", "5"), line_of("find", folder)):
        assert ask(*line, "--figure", str(figure)).code == 0
        drawn = figure.read_text("utf-8")
        assert "吃?" in drawn or line[0] == "find"
    from attncli.draw.page import Page, page_bytes, words
    from attncli.measure.run_record import run_record

    model = attncli.load("minilm")
    tokens = model.encode(TEXT)
    assert ["吃?", 1, 0] in words(tokens)
    record = run_record(model, TEXT, tokens)
    assert COUNT in record.warnings
    assert b"".join(page_bytes(Page(TEXT, [record]))).startswith(b"<!doctype")


@pytest.mark.thorough
def test_several_texts_are_counted(tmp_path: Path) -> None:
    (tmp_path / "texts").write_text(f"{TEXT}\n香，香\n她吃\n", "utf-8")
    line = ("ablate", *MODEL, *ONE, "--lines", "--file", str(tmp_path / "texts"))
    document = ask(*line, "--json").json
    assert "2 of 3 texts hold words that are unknown to this model" in document["warnings"]
    assert "3 段文本中有 2 段含有这个模型不认识的词" in ask(*line, "--lang", "zh").out


@pytest.mark.thorough
def test_scans_count_them_and_can_leave_their_texts_out(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\nthe cat sat\nthe dog ate 吃\n", "utf-8")
    line = (
        "scan",
        "minilm",
        str(tmp_path / "texts.txt"),
        "--workers",
        "1",
        "--no-labels",
        "--metric",
        "entropy",
    )
    whole = ask(*line, "-o", str(tmp_path / "whole"), "--json").json
    assert (
        whole["done"]["texts"],
        whole["done"]["unknown_texts"],
        whole["done"]["unknown_tokens"],
    ) == (3, 2, 8)
    assert "unknown" not in whole["done"]["skipped"]
    assert "2 of 3 texts, 8 of 22 tokens" in whole["warnings"][0]
    shown = "".join(ask("scan", "show", str(tmp_path / "whole"), "--lang", "zh").out.split())
    assert "3段文本中的2段，22 个词元中的8 个" in shown
    assert (
        "skip_unknown" not in (tmp_path / "whole" / "plan.json").read_text()
    )  # so that digests stay
    assert ask("scan", "verify", str(tmp_path / "whole")).code == 0
    known = ask(*line, "-o", str(tmp_path / "known"), "--skip-unknown", "--json").json
    assert (known["done"]["texts"], known["done"]["skipped"]["unknown"]) == (1, 2)
    assert "unknown_texts" not in known["done"]
    assert "2 with unknown words" in ask("scan", "show", str(tmp_path / "known")).out
    assert ask(*line, "-o", str(tmp_path / "known")).code == 2  # another plan


def test_saved_runs_keep_them(folder: Path) -> None:
    saved = folder / "run.safetensors"
    assert ask("run", TEXT, *MODEL, "--save", str(saved)).code == 0
    for source in (saved, folder / "run.json"):
        shown = ask("view", str(source)).out
        assert COUNT in " ".join(shown.split())
        assert "吃?" in shown
    older = json.loads((folder / "run.json").read_text("utf-8"))
    for token in older["tokens"]:
        token.pop("unknown", None)  # as it was written before tokens told this
    (folder / "older.json").write_text(json.dumps(older), "utf-8")
    assert ask("view", str(folder / "older.json")).code == 0
    assert np.all([token["id"] == 100 for token in older["tokens"] if token["text"] == "吃"])


def test_an_explanation_without_a_query_is_of_a_word_that_the_model_knows() -> None:
    assert (
        ask("explain", TEXT, *MODEL, "--json").json["query"] == 8
    )  # 香, not [SEP] or the unknown word before it
    assert ask("explain", "multihead", "the cat 蕉", *MODEL, "--json").json["query"] == 2
    assert (
        ask("explain", "我爱你"[1:], *MODEL, "--json").json["query"] == 2
    )  # the last word, where none is known


@pytest.mark.thorough
def test_a_comparison_leaves_links_of_unknown_words_out() -> None:
    line = ("compare", TEXT, "她吃苹果，他喝香水", *MODEL)
    document = ask(*line, "--json").json
    assert "unknown" in document["links_leave_out"]
    assert all({one["query"], one["key"]} <= {5, 8} for one in document["moved"])
    assert any(
        one["query"] not in {5, 8} for one in ask(*line, "--all-links", "--json").json["moved"]
    )
    asked = ask(*line, "--query", "苹", "--brief", width=200).out
    assert "No link that counts differs.\nNot counted: " in asked
    (left_out,) = (line for line in asked.splitlines() if line.startswith("Not counted: "))
    assert "words that the model does not know" in left_out


@pytest.mark.thorough
def test_texts_with_different_counts_are_named() -> None:
    line = ("compare", TEXT, "她吃苹果，他喝香水", *MODEL, "--brief")
    assert f'In "{TEXT}": 7 of 9 words are unknown' in ask(*line, width=200).out
    assert 'In "她吃苹果，他喝香水": 6 of 9 words are unknown' in ask(*line, width=200).out
    assert f"“{TEXT}”：9 个字词中有 7 个" in ask(*line, "--lang", "zh", width=200).out


@pytest.mark.many
@pytest.mark.parametrize(
    ("line", "names"),
    [
        (("compare", TEXT, "她吃苹果，他喝香水"), ("A", "B")),
        (("cross", TEXT, "她吃苹果，他喝香水"), ("query text", "key text")),
        (("patch", TEXT, "她吃苹果，他喝香水"), ("clean text", "corrupt text")),
    ],
)
def test_warnings_of_two_texts_say_which(
    line: tuple[str, ...], names: tuple[str, str], folder: Path
) -> None:
    reads = ("--tokenizer", str(folder / "tokenizer.json")) if line[0] == "cross" else MODEL
    counted = [
        warning
        for warning in ask(*line, *reads, "--json").json["warnings"]
        if "are unknown" in warning
    ]
    assert counted == [f"{names[0]}: {COUNT}", f"{names[1]}: {COUNT.replace('7', '6', 1)}"]
    chinese = ask(*line, *reads, "--lang", "zh", width=200).out
    assert "9 个字词中有 6 个是这个模型不认识的" in chinese
    assert "words are unknown" not in chinese
    same = ask(line[0], TEXT, "她吃香蕉，他吃苹果", *reads, "--json").json["warnings"]
    assert [text for text in same if "are unknown" in text] == [COUNT]


@pytest.mark.parametrize(
    ("lang", "looks", "all_but"),
    [
        ("en", '"吃" (2, unknown) looks most at "香"', "all of its links are shown but those to such words"),
        ("zh", "“吃”（2，未知）看得最多的是“香”", "除了到不认识的词的连接，这里显示它的全部连接"),
    ],
)  # fmt: skip
def test_an_unknown_word_that_is_asked_for_has_its_row(lang: str, looks: str, all_but: str) -> None:
    line = ("run", TEXT, *MODEL, "--query", "吃", "--lang", lang)
    said = "".join(ask(*line, "--brief").out.split("\n"))
    assert looks.replace(" ", "") in said.replace(" ", "")
    links = ask(*line[:-2], "--json").json["links"]
    assert {link["query"] for link in links} == {2}
    assert {TEXT[link["key"] - 1] for link in links} <= {"，", "香"}
    alone = ask("run", "她吃苹", *MODEL, "--query", "吃", "--lang", lang, "--brief").out
    assert all_but.replace(" ", "") in "".join(alone.split())


def test_a_position_that_a_shell_took_for_a_comment_is_asked_for_in_quotes() -> None:
    refused = ask("run", "a b", "--query")
    assert (
        refused.code,
        "expected: a word, or a position in quotes: --query '#3'" in refused.err,
    ) == (2, True)
    assert "--query '#3'" in ask("run", "a b", "--lang", "zh", "--query").err
    assert "expected" not in ask("run", "a b", "--seed").err


def test_no_option_is_offered_that_only_looks_a_little_alike() -> None:
    assert "--samples" not in ask("explain", "scaling", "--scale").err
