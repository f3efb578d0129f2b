"""`attn run`: screens, documents, options, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from safetensors.numpy import save_file
from validity import validate

from attncli.inputs.tensors import read_tensors

SENTENCE = "The animal didn't cross the street because it was too tired"


def test_the_sample_is_used_on_a_terminal_and_said_on_stderr() -> None:
    found = ask("run", "--json")
    assert found.code == 0
    assert found.json["text"] == SENTENCE
    assert "sample" in found.err


def test_an_empty_pipe_is_an_error_never_the_sample() -> None:
    found = ask("run", stdin=b"")
    assert (found.code, found.out) == (3, "")
    assert "error:" in found.err


@pytest.mark.parametrize(
    "options",
    [(), ("--num-heads", "4"), ("--mask", "causal"), ("--query", "it"), ("--stages", "all")],
)
def test_json_is_valid_and_its_rows_sum_to_one(options: tuple[str, ...]) -> None:
    document = ask("run", SENTENCE, "--json", *options).json
    validate(document, "attn.run/1")
    for layer in document["layers"]:
        for head in layer["heads"]:
            assert np.allclose(np.sum(head["weights"], axis=-1), 1, atol=1e-6)


def test_the_same_question_gets_the_same_bytes() -> None:
    assert ask("run", SENTENCE, "--json").out == ask("run", SENTENCE, "--json").out


def test_a_word_is_the_same_vector_in_every_sentence() -> None:
    first = ask("run", "it was tired", "--json", "--stages", "all").json
    second = ask("run", "because it slept", "--json", "--stages", "all").json
    assert first["layers"][0]["stages"]["hidden"][0] == second["layers"][0]["stages"]["hidden"][1]


def test_texts_by_line_give_what_each_gives_alone() -> None:
    lines = ["one two three", "four five"]
    together = ask("run", "--lines", "--ndjson", stdin="\n".join(lines).encode()).out.splitlines()
    assert len(together) == 2
    for line, text in zip(together, lines, strict=True):
        assert json.loads(line) == ask("run", text, "--json").json


def test_a_batch_gives_each_text_what_it_has_alone() -> None:
    lines = ["one two three", "four five"]
    asked = ("--num-heads", "4", "--head", "1,3", "--dtype", "float64")
    together = ask(
        "run", "--lines", "--padded", "--ndjson", *asked, stdin="\n".join(lines).encode()
    ).out.splitlines()
    for line, text in zip(together, lines, strict=True):
        batched, alone = json.loads(line), ask("run", text, "--json", *asked).json
        assert batched["shapes"][0]["axes"][0] == "batch"
        for one, other in zip(
            batched["layers"][0]["heads"], alone["layers"][0]["heads"], strict=True
        ):
            assert one["head"] == other["head"]
            assert np.allclose(one["weights"], other["weights"], atol=1e-12)
            assert np.allclose(one["output"], other["output"], atol=1e-12)
    assert ask("run", "--lines", "--padded", "--max-memory", "1kB", stdin=b"one\ntwo\n").code == 5


@pytest.mark.parametrize(
    ("texts", "note"),
    [("a b\nc d\n", "2 texts of one length: nothing is padded"), ("a b\nc\n", "")],
)
def test_a_batch_of_texts_of_one_length_says_that_nothing_is_padded(texts: str, note: str) -> None:
    answer = ask("run", "--lines", "--padded", "--brief", stdin=texts.encode())
    assert ("padded" in answer.err) == bool(note)
    assert note in answer.err


def test_plain_rows_of_several_texts_say_which() -> None:
    rows = [
        row.split("\t")
        for row in ask("run", "--lines", "--plain", stdin=b"one two\nthree\n").out.splitlines()
    ]
    assert rows[0][:2] == ["text", "layer"]
    assert [row[0] for row in rows[1:]] == ["0"] * 4 + ["1"]
    assert all(len(row) == len(rows[0]) for row in rows)


def test_several_texts_are_not_one_document() -> None:
    found = ask("run", "--lines", "--json", stdin=b"one\ntwo\n")
    assert found.code == 2
    assert "--ndjson" in json.loads(found.err)["error"]["hint"]


def test_save_holds_every_stage_and_they_agree_with_the_json(tmp_path: Path) -> None:
    for name in ("all.safetensors", "all.npz"):
        path = tmp_path / name
        document = ask("run", SENTENCE, "--num-heads", "2", "--json", "--save", str(path)).json
        tensors = read_tensors(path, allow_nonfinite=True)
        for head in (0, 1):
            assert np.array_equal(
                tensors["layers.0.weights"][head],
                np.float32(document["layers"][0]["heads"][head]["weights"]),
            )
        assert tensors["hidden.0"].shape == (11, 64)
        assert np.allclose(
            tensors["layers.0.weights"] @ tensors["layers.0.v"],
            tensors["layers.0.mixed"],
            atol=1e-5,
        )


def test_a_query_is_a_row_of_the_whole() -> None:
    whole = ask("run", SENTENCE, "--json").json["layers"][0]["heads"][0]
    row = ask("run", SENTENCE, "--json", "--query", "it").json
    assert row["queries"] == [7]
    assert row["layers"][0]["heads"][0]["weights"] == [whole["weights"][7]]
    assert {link["query"] for link in row["links"]} == {7}


def test_stages_of_a_query_are_its_rows_with_all_keys_and_values() -> None:
    whole, row = (
        ask("run", SENTENCE, "--json", "--stages", "all", *more).json["layers"][0]
        for more in ((), ("--query", "it"))
    )
    for kept, cut in ((whole, row), (whole["heads"][0], row["heads"][0])):
        for name, stage in cut["stages"].items():
            assert stage == (
                kept["stages"][name] if name in ("hidden", "k", "v") else [kept["stages"][name][7]]
            ), name
    assert row["hidden"] == [whole["hidden"][7]]


def test_empty_rows_are_zero_and_listed() -> None:
    document = ask("run", "a b c d", "--json", "--mask", "window:1", "--mask", "padding:2").json
    assert document["empty_rows"] == [
        {"layer": 0, "head": 0, "query": 2},
        {"layer": 0, "head": 0, "query": 3},
    ]
    assert document["layers"][0]["heads"][0]["weights"][3] == [0, 0, 0, 0]
    assert document["layers"][0]["heads"][0]["scores"][3] == [None] * 4


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_every_dtype_on_both_backends(backend: str, dtype: str) -> None:
    reference = ask("run", SENTENCE, "--json", "--dtype", "float64").json["layers"][0]["heads"][0][
        "weights"
    ]
    document = ask("run", SENTENCE, "--json", "--dtype", dtype, "--backend", backend).json
    assert document["attention"]["backend"] == backend
    tolerance = {"float64": 1e-12, "float32": 1e-6}.get(dtype, 2e-2)
    assert (
        np.max(np.abs(np.subtract(document["layers"][0]["heads"][0]["weights"], reference)))
        < tolerance
    )


BAD = [
    (("run", "x", "--num-heads", "7"), 2, "not divisible"),
    (("run", "x", "--mask", "causl"), 2, "causal"),
    (("run", "x", "--tokenizer", "wrod"), 2, "word"),
    (("run", "x", "--query", "zebra"), 3, "zebra"),
    (("run", "x", "--layer", "3"), 3, "layer 3"),
    (("run", "x", "--scale", "big"), 2, "big"),
    (("run", "x", "--position", "rope:-1"), 2, "-1"),
    (("run", "x", "--seed", "abc"), 2, "abc"),
    (("run", "x", "--color", "blue"), 2, "blue"),
    (("run", "x", "--show", "wieghts"), 2, "weights"),
    (("run", "x", "--json", "--plain"), 2, "--plain"),
    (("run", "x", "--output", "/nonexistent/file"), 1, "/nonexistent/file"),
    (("run", "x", "--weights", "/nonexistent/file.npz"), 3, "/nonexistent/file.npz"),
    (("run", "x", "--d-model", "0"), 2, "0"),
    (("run", "x", "--dtype", "float8"), 2, "float8"),
    (("run", "x", "--max-memory", "10B"), 5, "memory"),
    (("run", "x", "--json", "--max-output", "10"), 5, "--"),
    (("rnu", "x"), 2, "run"),
    (("run", "x", "--num-head", "2"), 2, "--num-heads"),
]


@pytest.mark.parametrize(("arguments", "code", "says"), BAD)
def test_bad_input_is_told_in_four_lines_and_stdout_stays_clean(
    arguments: tuple[str, ...], code: int, says: str
) -> None:
    found = ask(*arguments)
    assert (found.code, found.out) == (code, "")
    assert says in found.err
    assert "Traceback" not in found.err
    assert "--json" in arguments or len(found.err.splitlines()) <= 4


HOSTILE = "\x1b[31mred\x1b[0m [bold]x[/bold] \u202egnp.exe \u200bjoin \x07 \x00 a\tb"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_hostile_text_is_inert(width: int) -> None:
    found = ask("run", HOSTILE, "--tokenizer", "whitespace", width=width)
    assert found.code == 0
    assert not set(found.out) & set("\x1b\x07\x00\u202e\u200b")
    assert "[bold]" in found.out


@pytest.mark.many
@pytest.mark.parametrize(
    "text",
    [
        SENTENCE,
        "我 爱 你 计划",
        "👩‍👩‍👧 e\u0301 שלום عالم",
        "x" * 3000,
        " ".join("word" for _ in range(70)),
    ],
)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_screens_fit_the_terminal(text: str, width: int) -> None:
    from attncli.draw.safe import cells

    for options in ((), ("--ascii",), ("--num-heads", "2", "--full")):
        found = ask("run", text, *options, width=width)
        assert found.code == 0
        assert max(cells(line) for line in found.out.splitlines()) <= width
        assert "--ascii" not in options or found.out.isascii()


def test_one_query_of_every_stage() -> None:
    """Embeddings and positions are inputs, and stay whole."""
    shown = ask("run", "a b c", "--query", "b", "--position", "sinusoidal", "--show", "all")
    assert shown.code == 0
    for name in ("embeddings E", "positions P"):
        block = next(part for part in shown.out.split("\n\n") if part.startswith(name))
        assert [line.split()[1] for line in block.splitlines()[2:5]] == ["a", "b", "c"]


@pytest.mark.parametrize("spec", ["tokens:0-1", "/a|b/", "a…c", "chars:0-3"])
def test_all_of_a_screen_beside_regions_is_what_there_is(spec: str) -> None:
    answer = ask("run", "a b c", "--region", f"x={spec}", "--show", "all")
    assert answer.code == 0, answer.err
    assert "region to region" in answer.out
    assert ask("run", "a b c", "--region", f"x={spec}", "--show", "weights").code == 2


@pytest.mark.parametrize("answer", [["--json"], ["--figure", "x.svg"], ["--save", "x.npz"]])
def test_padded_texts_are_several_documents(answer: list[str], tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the cat sat\na dog ran home\n")
    asked = ask("run", "--lines", "--padded", "--file", str(tmp_path / "lines.txt"), *answer)
    assert (asked.code, asked.out) == (2, "")
    assert "more than one text" in asked.err
    assert not Path(answer[-1]).exists()


def test_links_as_strong_as_the_strongest_are_spoken_of() -> None:
    for words in (("run", "the the"), ("run", "the the", "--num-heads", "2"), ("heads", "the the")):
        said = " ".join(ask(*words).out.split())
        assert "Several links share the largest weight; one of them:" in said
    assert "The strongest link: " in ask("run", "humpty dumpty sat on").out


def test_a_region_that_a_query_cannot_see_is_said_to_be_unseen() -> None:
    text = "a cat sat on a mat"
    regions = ("--region", "start=tokens:0-2", "--region", "end=tokens:4-5")
    said = " ".join(ask("run", text, *regions, "--query", "sat", "--mask", "causal").out.split())
    assert '"sat" sees nothing of "end".' in said
    assert 'is in "end"' not in said
    said = " ".join(ask("run", text, *regions, "--query", "sat").out.split())
    assert "sees nothing" not in said


def test_a_word_of_several_tokens_beside_regions_is_told_by_its_last() -> None:
    asked = ("run", "a cat sat", "--region", "start=tokens:0-1", "--tokenizer", "char")
    word = ask(*asked, "--query", "cat", "--json")
    assert "this is about the last of them, #4" in " ".join(word.err.split())
    alone = ask(*asked, "--query", "#4", "--json").json
    for part in ("regions", "overview", "links"):
        assert word.json[part] == alone[part]
    assert ask(*asked, "--query", "cat", "--words").code == 2


def test_queries_that_rope_turned_are_said_to_be_turned() -> None:
    plain = ask("run", "a b c", "--show", "q").out
    for part in ("q", "k"):
        turned = ask("run", "a b c", "--position", "rope", "--show", part).out
        assert "after rotation by position (rope)" in turned
    assert "rotation" not in plain
    chinese = ask("run", "a b c", "--position", "rope", "--show", "q", "--lang", "zh").out
    assert "旋转（rope）之后" in chinese
    # not those values: nothing turns them
    assert "rotation" not in ask("run", "a b c", "--position", "rope", "--show", "v").out


@pytest.mark.parametrize(
    ("position", "words"), [("rope", "turns queries and keys"), ("alibi", "subtracts slope")]
)
def test_positions_that_are_no_vectors_are_said_to_enter_elsewhere(
    position: str, words: str
) -> None:
    for part in ("positions", "embedding"):
        out = ask("run", "a b c", "--position", position, "--show", part).out
        assert words in " ".join(out.split())
        assert "sinusoidal" not in out


@pytest.mark.parametrize("options", [("--brief",), ("--show", "A"), ("--plain",)])
def test_heads_that_a_file_does_not_state_are_noted_without_a_header(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "mha.safetensors"
    square = np.eye(8, dtype=np.float32)
    tensors = {"in_proj_weight": np.concatenate([square] * 3), "out_proj.weight": square}
    save_file(tensors, path)
    note = "does not say how many heads"
    asked = ("run", "a b", "--weights", str(path))
    assert note in ask(*asked, *options).err
    assert note not in ask(*asked, *options, "--num-heads", "2").err
    whole = ask(*asked)
    assert note in whole.out
    assert note not in whole.err
