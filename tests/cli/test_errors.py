"""Errors at the border: how they are told."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from asking import ask
from commands import commands
from processes import attn, finish, start
from small_gpt2 import small_gpt2

from attncli.models.aliases import local_folder


@pytest.mark.parametrize("machine", [(), ("--json",)])
def test_an_error_about_a_name_without_end_keeps_its_beginning_and_its_end(
    machine: tuple[str, ...],
) -> None:
    answer = ask("run", "x", "--mask", "nope" * 100_000 + "no-end", *machine)
    assert answer.code in (2, 3)
    assert "nopenope" in answer.err
    assert " … " in answer.err
    assert len(answer.err) < 10_000


@pytest.mark.parametrize(
    "command",
    [
        ("weights", "show", "FILE"),
        ("view", "FILE"),
        ("tensors", "FILE"),
        ("run", "x", "--weights", "FILE"),
    ],
)
def test_a_file_that_may_not_be_read_is_bad_input_and_no_misuse(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"x")
    opened = os.open

    def closed(name: object, *arguments: int, **named: int) -> int:
        if str(name) == str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(name, *arguments, **named)  # type: ignore[arg-type]

    # for root every file is readable
    monkeypatch.setattr(os, "access", lambda *arguments, **named: False)
    monkeypatch.setattr(os, "open", closed)
    answer = ask(*(str(path) if part == "FILE" else part for part in command))
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: cannot read this file: Permission denied")


def test_a_file_that_may_be_written_and_not_read_takes_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("")
    monkeypatch.setattr(os, "access", lambda path, mode, **named: mode != os.R_OK)
    assert ask("run", "x", "--json", "--output", str(tmp_path / "a.json")).code == 0


@pytest.mark.parametrize(
    "command",
    [("find", "a b", "--from", "a", "--to", "b"), ("explain", "a b"), ("compare", "a b", "a c")],
)
def test_numbers_too_large_for_their_type_are_told_where_nothing_can_be_said_without_them(
    command: tuple[str, ...],
) -> None:
    answer = ask(*command, "--scale", "1e39")
    assert (answer.code, answer.out) == (3, "")
    assert "numbers" in answer.err
    assert ask(*command, "--scale", "1e39", "--dtype", "float64").code == 0


def test_what_libraries_warn_of_does_not_reach_standard_error() -> None:
    program = "import sys, warnings; from attncli.cli import main; code = main(['tokens', 'a']); "
    program += "warnings.warn('x'); sys.exit(code)"
    found = finish([sys.executable, "-c", program])
    assert (found.returncode, found.stderr) == (0, "")


LONG = "x" * 300
ENDLESS = [
    ("tensors", LONG), ("run", "a b", "--weights", LONG), ("scan", "minilm", LONG, "-o", "nowhere"),
    ("scan", "show", "nowhere", "--site", LONG), ("learn", "previous", "--save", LONG),
    ("run", "a b", "--model", "minilm", "--adapter", LONG),
    ("scan", "minilm", "sample_inputs/corpus.txt", "-o", LONG, "--metric", "entropy", "--no-labels"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "a b", "--top", "x"), 2, "--top is 'x' expected: a whole number"),
        (("run", "a b", "--softcap", "x"), 2, "--softcap is 'x' expected: a number"),
        (("run", "a b", "--device", "tpu"), 2, "--device is 'tpu' expected: cpu, cuda, mps"),
        (("run", "a b", "--device", "cuda:x"), 2, "--device is 'cuda:x'"),
        (("tensors", "."), 3, "this is a folder"),
        (("tensors", "nowhere"), 3, "there is no such file"),
        (("run", "a b", "--weights", "nowhere"), 3, "there is no such file"),
        *((asked, 3, "cannot look for this file: File name too long") for asked in ENDLESS),
        (("patch", "-", "-"), 2, "standard input is one text"),
    ],
)
def test_what_is_refused_is_named(arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = ask(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert said in " ".join(answer.err.split())


ENDINGS = (".txt", ".safetensors", ".npz", ".npy", ".pt", ".json", ".csv", "")
"""How the files end that some option or argument reads."""
READS = {
    "circuit file": ("circuit", "--pairs", "FILE", "--model", "{t}/gpt2"),
    "check answers": ("check", "FILE"),
    "pairs check file": ("pairs", "check", "FILE", "--model", "{t}/gpt2"),
    "--pairs": ("ablate", "--model", "{t}/gpt2", "--pairs", "FILE"),
    "--circuit": ("ablate", "a b", "--model", "{t}/gpt2", "--circuit", "FILE"),
    "--tokenizer": ("run", "a b", "--tokenizer", "FILE"),
    "--regions": ("run", "a b", "--regions", "FILE"),
    "--region": ("run", "a b", "--region", "@FILE"),
    "--adapter": ("run", "a b", "--model", "{t}/gpt2", "--adapter", "FILE"),
    "--with-adapter": ("compare", "a b", "--model", "{t}/gpt2", "--with-adapter", "FILE"),
    "--needle": ("heads", "--model", "{t}/gpt2", "--retrieval", "--needle", "FILE"),
    "--haystack": ("heads", "--model", "{t}/gpt2", "--retrieval", "--haystack", "FILE"),
    "--chat": ("run", "--chat", "FILE", "--chat-template", "{t}/text"),
    "--chat-template": ("run", "--chat", "sample_inputs/chat.json", "--chat-template", "FILE"),
    "--model": ("run", "a b", "--model", "FILE"),
    "--source-states": ("run", "a b", "--model", "FILE", "--source-states", "FILE"),
    "--source": ("run", "a b", "--model", "FILE", "--source", "@FILE"),
    "--weights": ("run", "a b", "--weights", "FILE"),
    "--embeddings": ("run", "a b", "--embeddings", "FILE"),
    "--mask": ("run", "a b", "--mask", "FILE"),
    "--metric-file": ("heads", "a b", "--num-heads", "2", "--metric-file", "FILE"),
    "--rule-file": ("explain", "rule", "--rule-file", "FILE"),
    "--rules-of": ("heads", "a b", "--num-heads", "2", "--rules-of", "FILE"),
    "compare texts": ("compare", "FILE", "FILE"),
    "tensors file": ("tensors", "FILE"),
    "mask spec": ("mask", "FILE"),
    "weights show file": ("weights", "show", "FILE"),
    "weights convert file": ("weights", "convert", "FILE", "{t}/new.npz"),
    "view file": ("view", "FILE"),
    "models show model": ("models", "show", "FILE"),
    "models fetch model": ("models", "fetch", "FILE"),
    "models verify model": ("models", "verify", "FILE"),
    "scan start model": ("scan", "FILE", "{t}/text", "--out", "{t}/out"),
    "scan start texts": ("scan", "{t}/gpt2", "FILE", "--out", "{t}/out"),
    "scan start --out": ("scan", "{t}/gpt2", "{t}/text", "--out", "FILE"),
    "scan show out": ("scan", "show", "FILE"),
    "scan compare a": ("scan", "compare", "FILE", "{t}/text"),
    "scan compare b": ("scan", "compare", "{t}/text", "FILE"),
    "scan verify out": ("scan", "verify", "FILE"),
    "scan export out": ("scan", "export", "FILE", "{t}/heads.csv"),
    "scan verify texts": ("scan", "verify", "{t}/scan", "FILE"),
}
"""A command line for everything that names a file to read: what all commands mean alike by its
option alone.
"""
TEXTS = {
    "--file": ("run", "--file", "FILE"),
    "--reference-file": (
        "ablate",
        "a b",
        "--num-heads",
        "2",
        "--by",
        "mean",
        "--reference-file",
        "FILE",
    ),
    "--corpus": ("series", "minilm", str(local_folder("minilm")), "--corpus", "FILE"),
    "learn source": ("learn", "text", "FILE", "--steps", "2"),
}
"""The same for texts, which may come from a pipe."""
WRITES = ("--site", "--csv", "--output", "--figure", "--html", "--save", "--notebook")
WRITTEN = {"scan export file"}
"""Arguments that are files to write."""


@pytest.mark.many
@pytest.mark.parametrize("reads", READS)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(reads: str, tmp_path: Path) -> None:
    small_gpt2(tmp_path / "gpt2")
    (tmp_path / "text").write_text("a b\n")
    if "{t}/scan" in READS[reads]:
        scan = ask(
            "scan",
            str(tmp_path / "gpt2"),
            str(tmp_path / "text"),
            "--out",
            str(tmp_path / "scan"),
            "--quiet",
        )
        assert scan.code == 0, scan.err

    def waited(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, waited)
    try:
        for ending in ENDINGS:
            os.mkfifo(pipe := tmp_path / f"pipe{ending}")
            line = [
                (
                    part.replace("FILE", str(pipe))
                    if part in ("FILE", "@FILE")
                    else part.replace("{t}", str(tmp_path))
                )
                for part in READS[reads]
            ]
            signal.setitimer(signal.ITIMER_REAL, 20)
            answer = ask(*line)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert "it waits" not in answer.err, ending
            # what is no file of ours may be a text
            assert answer.code in (1, 2, 3) or reads == "compare texts", (ending, answer)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.many
@pytest.mark.parametrize("reads", TEXTS)
def test_texts_from_a_pipe_are_read_with_a_word_about_it(reads: str, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with start(attn(*(str(pipe) if part == "FILE" else part for part in TEXTS[reads]))) as process:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert (
            said
            == f"{pipe} is a pipe: it is read when something writes to it; Ctrl-C ends the waiting\n"
        )
        pipe.write_text("humpty dumpty\n" * 10)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out


def test_every_file_that_is_read_has_its_line() -> None:
    named = set()
    for command, made in commands():
        for parameter in made.params:
            files = {"FILE", "DIR", "PATH", "CORPUS", "OUT"} & set(
                re.split(r"\W+", parameter.metavar or "")
            )
            alone = parameter.param_type_name == "argument" or parameter.name == "out"
            if files and parameter.opts[0] not in WRITES:
                named.add(f"{command} {parameter.opts[0]}" if alone else parameter.opts[0])
    assert named - set(READS) - set(TEXTS) == WRITTEN


def test_what_a_shell_holds_open_is_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"humpty dumpty")
    os.close(writing)
    try:
        answer = ask("run", "--file", f"/dev/fd/{reading}", "--brief")
    finally:
        os.close(reading)
    assert answer.code == 0, answer.err
    assert "dumpty" in answer.out
    assert "is a pipe" not in answer.err


def test_an_error_is_json_in_every_encoding() -> None:
    done = finish(attn("run", "a b", "--query", "é😀", "--json"), {"PYTHONIOENCODING": "ascii"})
    assert "é😀" in json.loads(done.stderr)["error"]["message"]


@pytest.mark.many
@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C"},
        {"LC_ALL": "en_US.ISO8859-1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("line", [("--precision", "x"), ("--query", "nope")], ids=" ".join)
def test_an_encoding_without_ideographs_is_spoken_to_in_english(
    line: tuple[str, ...], variables: dict[str, str]
) -> None:
    done = finish(attn("run", "a b", "--lang", "zh", *line), variables)
    assert done.stderr.startswith("error: ")
    assert done.stderr.isascii()
    assert "\\u" not in done.stderr
    assert finish(attn("run", "a b", "--lang", "zh", *line)).stderr.startswith("错误")


@pytest.mark.parametrize("encoding", ["gb18030", "shift_jis", "latin-1"])
def test_no_encoding_is_guessed_from_bytes_that_are_not_utf8(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes({"latin-1": "déjà vu"}.get(encoding, "日本語").encode(encoding))
    answer = ask("run", "--file", str(file))
    assert (answer.code, answer.out) == (3, "")
    assert "this text is not UTF-8: byte 0x" in answer.err
    assert "iconv -f ENCODING" in answer.err
    said = answer.err.replace("with GB18030, SHIFT_JIS or LATIN1, say", "")
    assert not any(name in said.lower() for name in ("latin", "gb18030", "shift_jis", "cp1252"))


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--lang", "zh", "--help", "WRONG"), "attn --help --lang zh"),
        (("run", "--nothing", "--lang=zh"), "attn run --help --lang zh"),
        (("run", "a", "b", "--lang", "zh"), "attn run 'a b' --lang zh"),
        (("learn", "inductoin", "--lang", "zh"), "attn learn induction --lang zh"),
        (("run", "a", "–query", "b", "--lang", "zh"), "attn run a --query b --lang zh"),
        (("heds", "--lang", "en"), "attn --help"),
        (("heds",), "attn --help"),
        (("--show-completion", "nosh", "--lang", "zh"), "attn --show-completion bash"),
    ],
)
def test_a_command_to_try_keeps_the_language_of_the_command_line(
    words: tuple[str, ...], hint: str
) -> None:
    line = ask(*words).err.splitlines()[-1]
    assert re.split("[:：] ?", line, maxsplit=1)[1] == hint


def test_a_language_of_the_environment_needs_no_option_in_a_command_to_try() -> None:
    assert ask("heds", ATTN_LANG="zh").err.endswith("可试：attn --help\n")


def test_a_missing_sample_is_said_to_be_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "attn's repository"
    sample = ("run", "a", "--weights", "sample_inputs/humpty.safetensors")
    monkeypatch.chdir(tmp_path)
    assert said in ask(*sample).err
    assert said in ask("run", "--file", "sample_inputs/corpus.txt").err
    for path in ("other.txt", "my_sample_inputs/a.txt", "/nowhere/sample_inputs/a.txt"):
        assert said not in ask("run", "--file", path).err
    (tmp_path / "sample_inputs").mkdir()
    assert said not in ask(*sample).err
