"""An output never takes the place of what the same command reads: the line is refused, and the file
is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from commands import commands
from scanning import inside
from small_gpt2 import small_gpt2

from attncli.cli.option import EVERYWHERE, OUTPUT
from attncli.models.aliases import local_folder

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
READ_WORDS = {"FILE", "PATH", "DIR", "CORPUS", "OUT"}
BESIDE: dict[str, tuple[str, ...]] = {
    "pairs check": ("{t}/other.jsonl",),
    "explain": ("a b",),
    "find": ("--from", "a", "--to", "b"),
    "explain metric": ("entropy",),
    "explain rule": ("bracket",),
    "cross": ("a b", "c d"),
    "patch": ("a b", "a c"),
    "learn": ("text", "{t}/other.txt"),
    "series": ("{t}/other", "--text", "a b"),
    "compare": ("a b", "a c"),
    "tensors": ("{t}/other.npz",),
    "view": ("{t}/other.json",),
    "weights convert": ("{t}/other.safetensors", "{t}/new.npz"),
    "weights show": ("{t}/other.safetensors",),
    "weights init": ("{t}/new.npz",),
    "models show": ("{t}/other",),
    "models fetch": ("{t}/other",),
    "models verify": ("{t}/other",),
    "scan start": ("{t}/other", "{t}/other.txt", "--out", "{t}/new"),
    "scan compare": ("{t}/other", "{t}/other"),
    "scan verify": ("{t}/other",),
    "scan export": ("{t}/other", "{t}/new.csv"),
    "scan show": ("{t}/other",),
}
"""What else each command must be given: none of it is there, so that nothing but the command line
is read.
"""


def kinds(parameter: Any) -> set[str]:
    """What a parameter says that it takes."""
    return set((parameter.metavar or "").strip("[].").removesuffix("]").split("|"))


def is_output(parameter: Any) -> bool:
    panel = getattr(parameter, "rich_help_panel", None)
    return parameter.metavar == "NEW" or (
        panel in (OUTPUT, EVERYWHERE) and parameter.metavar == "FILE"
    )


def all_pairs() -> Iterator[tuple[str, Any, Any]]:
    """Every parameter of every command that is read, with every one of the same command that is
    written.
    """
    for name, command in commands():
        outputs = [parameter for parameter in command.params if is_output(parameter)]
        for source in command.params:
            if (
                kinds(source) & READ_WORDS
                and not is_output(source)
                and source.rich_help_panel not in (OUTPUT, EVERYWHERE)
            ):
                yield from ((name, source, output) for output in outputs)


PAIRS = list(all_pairs())


def file_for(source: Any, folder: Path) -> tuple[Path, Path]:
    """What is given for a parameter that is read, and the file that is read then."""
    folder.mkdir(exist_ok=True)
    if "OUT" in kinds(source):
        return folder, folder / "plan.json"
    if kinds(source) & {"DIR"}:
        return folder, folder / "config.json"
    name = "in.jsonl" if "CORPUS" in kinds(source) else "in.json"
    return folder / name, folder / name


def command_line(
    name: str, source: Any, value: Path, output: Any, target: Path, folder: Path
) -> list[str]:
    """A command line that reads `value` and writes `target`."""
    arguments = [part.replace("{t}", str(folder)) for part in BESIDE.get(name, ())]
    command = dict(commands())[name]
    positional = [
        parameter for parameter in command.params if parameter.param_type_name == "argument"
    ]
    for parameter, path in ((source, value), (output, target)):
        if parameter.param_type_name == "option":
            arguments += [parameter.opts[0], str(path)]
        else:
            place = positional.index(parameter)
            arguments[place : place + 1] = [str(path)]
    return [*(part for part in name.split() if part != "start" or "scan" not in name), *arguments]


@pytest.mark.many
@pytest.mark.parametrize(
    ("name", "source", "output"),
    PAIRS,
    ids=[f"{name}-{source.name}-{output.name}" for name, source, output in PAIRS],
)
def test_what_is_read_is_not_written(name: str, source: Any, output: Any, tmp_path: Path) -> None:
    value, read = file_for(source, tmp_path / "read")
    read.write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "read")
    for target in (read, tmp_path / "link" / ".." / "read" / read.name):
        answer = ask(*command_line(name, source, value, output, target, tmp_path))
        assert (answer.code, answer.out) == (2, ""), answer
        for parameter in (source, output):
            said = (
                parameter.opts[0]
                if parameter.param_type_name == "option"
                else max(kinds(parameter), key=len)
            )
            assert said.strip("[].") in answer.err, answer.err
        assert "would replace what" in answer.err
        assert read.read_text() == "precious"


def test_every_file_of_every_command_is_paired() -> None:
    assert len(PAIRS) > 150
    assert {
        "run",
        "tokens",
        "compare",
        "view",
        "scan show",
        "weights convert",
        "models verify",
    } <= {name for name, _, _ in PAIRS}


@pytest.mark.parametrize(
    "line",
    [
        ("run", "-f", "in.txt", "-o", "./x/../in.txt"),
        ("run", "-f", "in.txt", "--csv", "link"),
        ("run", "-f", "link", "-o", "in.txt"),
        ("tokens", "-f", "in.txt", "--csv", "in.txt"),
        ("ablate", "a b", "--by", "mean", "--reference-file", "in.txt", "-o", "in.txt"),
        ("run", "a b", "--mask", "causal & m.csv", "--csv", "m.csv"),
        ("mask", "m.csv", "--csv", "m.csv"),
        ("compare", "a b", "--mask", "none", "--mask", "m.csv", "--csv", "m.csv"),
        ("compare", "a.json", "b.json", "--json", "-o", "b.json"),
        ("run", "a b", "--tokenizer", "x", "-o", "x/tokenizer.json"),
        ("run", "a b", "-m", "x", "--save", "x/model.safetensors"),
        ("learn", "text", "x/tokenizer.json", "--save", "x", "--force"),
    ],
    ids=" ".join,
)
def test_spellings_links_and_lists_are_known(
    line: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    for name in ("in.txt", "m.csv", "a.json", "b.json", "x/tokenizer.json", "x/model.safetensors"):
        Path(name).write_text("precious")
    Path("link").symlink_to("in.txt")
    answer = ask(*line)
    assert (answer.code, answer.out, "would replace what" in answer.err) == (2, "", True), answer
    assert {path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {"precious"}


def test_what_variables_name_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    answer = ask("run", "a b", "-o", str(tmp_path / "config.json"), ATTN_MODEL=str(tmp_path))
    assert (answer.code, "--output would replace what ATTN_MODEL reads" in answer.err) == (
        2,
        True,
    ), answer
    settings = tmp_path / "set.toml"
    settings.write_text("precision = 3\n")
    answer = ask("run", "a b", "-o", str(settings), ATTN_CONFIG=str(settings))
    assert (answer.code, settings.read_text()) == (2, "precision = 3\n")


@pytest.mark.parametrize("command", ["run", "heads", "tokens", "models show"])
@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2", "openai-community/gpt2@main"])
@pytest.mark.parametrize("given", ["argument", "variable"])
def test_a_model_that_the_hubs_cache_holds_stays(
    command: str, name: str, given: str, tmp_path: Path
) -> None:
    """By its alias and by its id; each file of it is a link into the cache's blobs, which stay too."""
    repository, commit = tmp_path / "models--openai-community--gpt2", "0" * 40
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    (repository / "blobs").mkdir()
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        (repository / "blobs" / f"of-{file}").write_text("precious")
        (snapshot / file).symlink_to(repository / "blobs" / f"of-{file}")
    words = [] if command.startswith("models") else ["a b"]
    if given == "variable" and not words:
        return  # the model is what this command is about
    variables = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    if given == "variable":
        variables["ATTN_MODEL"] = name
    else:
        words += ["--model", name] if words else [name]
    for target in (*snapshot.iterdir(), *(repository / "blobs").iterdir()):
        answer = ask(*command.split(), *words, "--json", "-o", str(target), **variables)
        assert (answer.code, "would replace what" in answer.err) == (2, True), answer
        assert target.read_text() == "precious"


def test_a_model_that_a_package_brings_stays() -> None:
    folder = local_folder("minilm")
    assert folder is not None
    answer = ask("run", "a b", "--model", "minilm", "--json", "-o", str(folder / "config.json"))
    assert (answer.code, "would replace what --model reads" in answer.err) == (2, True), answer


def test_words_that_are_no_files_are_not_taken_for_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (
        ("run", "answer", "-o", "answer"),
        ("compare", "answer", "answer b", "-o", "answer"),
        ("run", "a b", "--mask", "causal", "-o", "causal"),
        ("tokens", "a b", "--tokenizer", "word", "-o", "word"),
    ):
        for _ in range(2):
            assert ask(*line).code == 0, line
    Path("in.txt").write_text("a b")
    assert ask("run", "-f", "in.txt", "-o", "/dev/null").code == 0
    assert (
        ask("run", "-f", "in.txt", "-o", "out").code
        == ask("run", "-f", "in.txt", "-o", "out").code
        == 0
    )


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small checkpoint, a corpus and a scan."""
    folder = tmp_path_factory.mktemp("scans")
    small_gpt2(folder / "gpt2")
    (folder / "texts.txt").write_text("the cat sat\na dog\n" * 3)
    with inside():
        assert (
            ask(
                "scan",
                str(folder / "gpt2"),
                str(folder / "texts.txt"),
                "--out",
                str(folder / "scan"),
            ).code
            == 0
        )
    return folder


def test_the_files_of_a_scan_stay(scan: Path) -> None:
    owns = {path: path.read_bytes() for path in scan.rglob("*") if path.is_file()}
    for name in (
        "plan.json",
        "scan.json",
        "shards/new.json",
        "corpus/a.txt",
        "../texts.txt",
        "../gpt2/config.json",
    ):
        for line in (("show", "{s}", "--json"), ("compare", "{s}", "{s}"), ("verify", "{s}")):
            target = scan / "scan" / name
            if not target.exists() and len(Path(name).parts) > 1:
                continue
            answer = ask(
                "scan",
                *(part.replace("{s}", str(scan / "scan")) for part in line),
                "-o",
                str(target),
            )
            assert (answer.code, answer.out, "would replace what" in answer.err) == (2, "", True), (
                line,
                name,
                answer,
            )
    assert owns == {path: path.read_bytes() for path in scan.rglob("*") if path.is_file()}
    for _ in range(2):
        assert (
            ask("scan", "show", str(scan / "scan"), "-o", str(scan / "scan" / "page.txt")).code == 0
        )


def test_a_scan_of_its_own_numbers_is_refused(scan: Path, tmp_path: Path) -> None:
    shutil.copytree(scan / "scan", tmp_path / "scan")
    before = (tmp_path / "scan" / "scan.json").read_bytes()
    answer = ask(
        "scan", str(scan / "gpt2"), f"{tmp_path}/scan/scan.json", "--out", str(tmp_path / "scan")
    )
    assert (answer.code, "--output would replace what CORPUS reads" in answer.err) == (2, True), (
        answer
    )
    assert (tmp_path / "scan" / "scan.json").read_bytes() == before


def test_standard_input_is_a_file_too(tmp_path: Path) -> None:
    from processes import attn, start

    (tmp_path / "in.txt").write_text("a b")
    with (
        (tmp_path / "in.txt").open("rb") as stream,
        start(
            attn("run", "-", "-o", str(tmp_path / "in.txt")), dict(os.environ), stdin=stream
        ) as process,
    ):
        _, err = process.communicate(timeout=60)
    assert (process.returncode, b"would replace what" in err) == (2, True), err
    assert (tmp_path / "in.txt").read_text() == "a b"
