"""What every command shares: misread command lines, help, streams, sizes that are refused,
--verbose.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from asking import ask
from processes import finish

from attncli.cli import output
from attncli.cli.environment import Environment

MISREAD = [
    (("run", "a", "b", "c"), ["2 arguments too many after the text 'a': b c", "attn run 'a b c'"]),
    (("schema", "attn.run/1", "x"), ["one argument too many: x", "attn schema --help"]),
    (
        ("mask", "causal", "--bias", "alibi"),
        ["attn mask has no option --bias", "did you mean --score-bias?"],
    ),
    (
        ("cost", "-n", "50", "--rows", "4"),
        ["attn cost has no option --rows", "did you mean --block-rows?"],
    ),
    (
        ("models", "verify", "x", "y", "--target", "z"),
        ["no option --target", "did you mean --decoder-text?"],
    ),
    (("run", "x", "-p", "1"), ["attn run has no option -p", "attn run --help"]),
    (("run", "x", "--layr", "0"), ["attn run has no option --layr", "did you mean --layer?"]),
    (("run", "x", "--nope"), ["attn run has no option --nope", "attn run --help"]),
    (("--json", "run", "x"), ["attn itself has no option --json", "attn run TEXT --json"]),
    (("hepl",), ["hepl", "attn --help"]),
    (("tokens", "x", "--svg", "a.svg"), ["attn tokens has no option --svg"]),
]


@pytest.mark.parametrize(("arguments", "says"), MISREAD)
def test_a_misread_command_line_is_told_with_what_was_meant(
    arguments: tuple[str, ...], says: list[str]
) -> None:
    found = ask(*arguments)
    assert (found.code, found.out) == (2, "")
    assert all(words in found.err for words in says), found.err


def test_help_is_a_command_too_and_goes_where_the_answer_goes() -> None:
    assert ask("help").out == ask("--help").out
    assert ask("help", "weights", "init").out == ask("weights", "init", "--help").out
    assert ask("help", "run").out.startswith("Usage: attn run [OPTIONS] [TEXT]\n")
    assert ask("help").out.endswith("\n")


@pytest.mark.parametrize(
    "command", ["run", "heads", "tokens", "tensors", "weights init", "weights convert", "schema"]
)
def test_help_fits_80_columns_and_names_no_types(command: str) -> None:
    page = ask(*command.split(), "--help").out
    assert max(map(len, page.splitlines())) <= 80
    assert not re.search(r"<(str|int|float|path)>", page), "a metavar says more than a type"


def test_output_dash_is_standard_output_and_file_dash_standard_input() -> None:
    whole = ask("run", "a b", "--json").out
    assert ask("run", "a b", "--json", "--output", "-").out == whole
    assert ask("run", "--file", "-", "--json", stdin=b"a b").out == whole
    assert ask("run", "a b", "--file", "-", stdin=b"a b").code == 2


def test_one_file_is_not_written_twice(tmp_path: Path) -> None:
    for first, second, name in (("--output", "--figure", "x.svg"), ("--output", "--save", "x.npz")):
        found = ask("run", "a b", first, str(tmp_path / name), second, str(tmp_path / name))
        assert (found.code, f"{first} and {second} are the same file" in found.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert "a file ending in .svg" in ask("run", "a b", "--svg", str(tmp_path / "x.gif")).err


def test_an_error_in_one_of_many_texts_names_the_line() -> None:
    found = ask("run", "--lines", "--ndjson", "--query", "cat", stdin=b"the cat\na dog\n")
    assert found.code == 3
    assert [json.loads(line)["text"] for line in found.out.splitlines()] == ["the cat"]
    assert "standard input:2" in json.loads(found.err)["error"]["message"]
    assert "where" not in ask("run", "a dog", "--query", "cat").err


REFUSED = [
    (("--num-heads", "0"), 2, "--num-heads is 0"),
    (("--num-heads", "100000000"), 2, "not divisible by 100000000 heads"),
    (("--d-model", "100000000"), 5, "a smaller --d-model"),
    (("--softcap", "0"), 2, "--softcap is 0.0"),
    (("--softcap", "nan"), 2, "softcap is nan"),
    (("--head", "1"), 3, "0, the only head"),
    (("--stages", "all"), 2, "--json or --ndjson"),
    (("--quiet", "--verbose"), 2, "contradict"),
    (("--ignore-config", "x"), 2, "--model"),
    (("--json", "--max-output", "much"), 2, "much"),
]


@pytest.mark.parametrize(("options", "code", "says"), REFUSED)
def test_what_cannot_be_is_refused_with_what_can(
    options: tuple[str, ...], code: int, says: str
) -> None:
    found = ask("run", "a b", *options)
    assert (found.code, found.out) == (code, "")
    assert says in found.err


def test_limits_are_told_in_sizes_that_can_be_read() -> None:
    found = json.loads(ask("run", "a b c", "--json", "--max-output", "1kB").err)["error"]
    assert (found["code"], "the limit is 1.0 kB" in found["message"]) == (5, True)
    assert re.search(r"about [0-9.]+ kB", found["message"])


def test_verbose_says_what_it_took_on_standard_error_alone() -> None:
    for command in ("run", "heads"):
        quiet, loud = ask(command, "a b", "--json"), ask(command, "a b", "--json", "--verbose")
        assert quiet.out == loud.out
        assert quiet.err == ""
        assert re.fullmatch(
            r"[0-9.]+ kB of weights drawn; numpy float32 on cpu; [0-9.]+ [MG]B of memory at the peak; [0-9.]+ s\n",
            loud.err,
        )


def test_parts_that_show_no_matrix_make_documents_without(tmp_path: Path) -> None:
    assert ask("run", "a b", "--json", "--show", "links").json["layers"] == []
    assert len(ask("run", "a b", "--json", "--show", "links,weights").json["layers"]) == 1
    rows = [
        line.split("\t")
        for line in ask("run", "a b", "--plain", "--show", "links", "--top", "2").out.splitlines()
    ]
    assert rows[0][4:] == ["query_text", "key_text", "weight"]
    assert len(rows) == 3
    assert (
        "weights" not in ask("heads", "a b", "--json", "--show", "header,metrics").json["heads"][0]
    )


def test_a_mask_can_be_given_as_documents_write_it() -> None:
    asked = ask("run", "a b c d", "--json", "--mask", "window:2,1", "--mask", "causal").json
    assert asked["attention"]["mask"] == "window:2,1 & causal"
    assert ask("run", "a b c d", "--json", "--mask", asked["attention"]["mask"]).json == asked


def test_another_number_of_heads_than_a_file_tells_is_said(tmp_path: Path) -> None:
    path = str(tmp_path / "w.npz")
    assert ask("weights", "init", path, "--num-heads", "8").code == 0
    assert ask("run", "a b", "--weights", path, "--num-heads", "8", "--json").json["warnings"] == []
    (said,) = ask("run", "a b", "--weights", path, "--num-heads", "4", "--json").json["warnings"]
    assert ("'8'" in said, "4" in said) == (True, True)


def test_captured_arrays_have_the_layers_and_stages_that_they_have() -> None:
    captured = str(Path(__file__).parents[2] / "sample_inputs" / "captured.npz")
    assert (
        "no layer 3: this file has q, k and v of no layer"
        in ask("tensors", captured, "--layer", "3").err
    )
    assert ask("tensors", captured, "--stages", "all").code == 2
    assert (
        "stages"
        in ask("tensors", captured, "--stages", "all", "--json").json["batch"][0]["heads"][0]
    )


def test_numbers_too_large_for_their_type_are_said_and_not_passed_off_as_masked() -> None:
    for command in ("run", "heads"):
        (said,) = ask(command, "a b", "--num-heads", "2", "--scale", "1e39", "--json").json[
            "warnings"
        ]
        assert "2 of 2 queries in 2 of 2 heads" in said
        assert "float32" in said
        assert "float32" in ask(command, "a b", "--scale", "1e39").out
        assert (
            ask(command, "a b", "--scale", "1e39", "--dtype", "float64", "--json").json["warnings"]
            == []
        )
        assert ask(command, "a b", "--mask", "padding:2", "--json").json["warnings"] == []


def test_token_ids_and_bytes_are_shown_as_what_they_are() -> None:
    tokens = ask("tokens", "计", "--tokenizer", "byte", "--json").json["tokens"]
    assert [token["bytes"] for token in tokens] == [[0xE8], [0xAE], [0xA1]]
    assert ask("tokens", "--ids", "72 105", "--tokenizer", "byte").out.splitlines()[0] == "H i"
    assert ask("tokens", "a", "--plain").out.splitlines()[1].split("\t")[5] == "false"


def test_python_forcing_utf8_under_the_c_locale_does_not_hide_the_locale() -> None:
    assert ask("run", "a b", LANG="C", LC_CTYPE="C.UTF-8").out.isascii()
    assert not ask("run", "a b", LANG="en_US.UTF-8", LC_CTYPE="C.UTF-8").out.isascii()
    assert not ask("run", "a b", LANG="", LC_CTYPE="C.UTF-8").out.isascii()


@pytest.mark.many
@pytest.mark.skipif(os.name == "nt", reason="closes streams with a POSIX shell")
@pytest.mark.parametrize(
    ("closing", "arguments", "code"),
    [("<&-", "run", 0), (">&-", "run x", 1), ("2>&-", "run x --query y", 3)],
)
def test_closed_streams_are_no_surprise(closing: str, arguments: str, code: int) -> None:
    line = f"{sys.executable} -m attncli {arguments} --show header {closing}"
    done = finish(["sh", "-c", line])
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ">&-" not in closing or closing == "2>&-" or "standard output is closed" in done.stderr


def test_plain_rows_are_written_as_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    question = ("run", "--lines", "--plain", "--num-heads", "2")
    whole = ask(*question, stdin=b"one two three\nfour five\n").out
    monkeypatch.setattr(output, "LINES", 4)
    sizes: list[int] = []
    write = Environment.write
    monkeypatch.setattr(
        Environment,
        "write",
        lambda self, data: (sizes.append(data.count(b"\n")), write(self, data))[1],
    )
    assert ask(*question, stdin=b"one two three\nfour five\n").out == whole
    assert (max(sizes), sum(sizes)) == (4, whole.count("\n"))
