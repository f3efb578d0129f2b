"""Random command lines and damaged files for every command: `python tests/fuzz.py SEED COUNT FILE`.

Each input is told by its number alone. FILE gets a line of JSON for each as it ends, and the same
command goes on where it stopped; then the counts by kind are printed, and whatever is wrong: a
failure that no error foresees, an answer that is no JSON, more than `SECONDS` of processor time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from asking import ask
from commands import commands, example
from mutating import mutated
from scanning import inside
from small_gpt2 import small_gpt2

SAMPLES = Path(__file__).parents[1] / "sample_inputs"
SECONDS = 20
"""Processor time of one input."""
KINDS = ("text", "option", "options", "document", "bytes", "model", "chat", "regions", "settings")
"""What is hostile: the text, an option's value, several options together, a saved document changed,
a file with other bytes, a model's folder, a chat, regions, the settings."""
TEXTS = (
    "", " ", "\x00", "\ud800", "\x1b[2J", "a\u202eb", "汉" * 50, "👩‍🔬" * 9, "\u0301" * 30, "[MASK]", "a b " * 40,
    "\r\n", "%s {0} {x}", "</script>", "#0", "a" * 400, "\ufeffa", "١٢", "ﷺ" * 9, "-", "--", "<|endoftext|>",
)  # fmt: skip
VALUES = (
    "", "-1", "0", "1", "2", "7", "1e400", "nan", "inf", "9" * 40, "L0H0", "L9H9", "#1", "#99", "a", "a:2", "#0-2",
    "causal", "window:2", "lsh:2", "none", "x.npz", "out.json", "out.html", "out.svg", "/dev/null", "nowhere/x",
    "float16", "torch", "numpy", "zh", "xx", "\x1b[31m", "\ud800", "0-3", "3-0", ",", "{}", "json:$[*]", "/a+/",
    "@x", "NAME=#0-1", "1GB", "all", "mean", "entropy",
)  # fmt: skip
VALUE_BYTES = (
    b"\x00",
    b"\xff",
    b"{",
    b"}",
    b"]",
    b'"',
    b"\n",
    b"9" * 30,
    b"-1",
    b"null",
    b"NaN",
    b"\xf0\x9f",
)
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "series": ("series", "gpt2", "again", "--text", "a b c"),
    "next": ("next", "a b c", "--model", "gpt2"),
    "logits": ("logits", "a b c", "--model", "gpt2"),
    "answer": ("answer", "a b c", "--model", "gpt2", "--region", "r=tokens:0-1", "--tokens", "4"),
    "circuit": ("circuit", "--pairs", str(SAMPLES / "pairs.jsonl"), "--model", "gpt2"),
    "pairs check": ("pairs", "check", str(SAMPLES / "pairs.jsonl"), "--model", "gpt2"),
    "learn": ("learn", "order", "--steps", "2"),
    "scan start": ("scan", "gpt2", "corpus.txt", "-o", "store"),
    "scan show": ("scan", "show", "scanned"),
    "scan compare": ("scan", "compare", "scanned", "scanned"),
    "scan verify": ("scan", "verify", "scanned"),
    "scan export": ("scan", "export", "scanned", "heads.csv"),
    "models show": ("models", "show", "gpt2"),
    "models fetch": ("models", "fetch", "gpt2"),
    "models verify": ("models", "show", "gpt2"),  # the real one loads transformers for seconds
    "view": ("view", "run.json"),
    "weights convert": ("weights", "convert", "mha.safetensors", "out.npz", "--num-heads", "4"),
    "weights init": ("weights", "init", "out.npz"),
    "weights show": ("weights", "show", "mha.safetensors"),
    "tensors": ("tensors", "captured.npz"),
    "explore": ("explore", "a b c"),
}
"""A line for each command whose example names what is not here."""
SLOW_OPTIONS = {"--device", "--repl", "--open", "--live", "--debug"}


class TimeIsUp(BaseException):
    """An input took more than its seconds."""


@contextmanager
def bounded() -> Iterator[None]:
    """A context manager that raises TimeIsUp after `SECONDS` of processor time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def prepared(folder: Path) -> None:
    """Write what the command lines name into a folder."""
    shutil.copytree(small_gpt2(folder / "gpt2"), folder / "again")
    (folder / "corpus.txt").write_text("a b\nc d e\n")
    (folder / "chat.json").write_text('[{"role": "user", "content": "a b"}]')
    (folder / "regions.json").write_text('{"x": "#0", "y": "#1-2"}')
    (folder / "config.toml").write_text('lang = "en"\nprecision = 3\n')
    for name in ("mha.safetensors", "captured.npz"):
        shutil.copy(SAMPLES / name, folder / name)
    for name, line in LINES_SAVED.items():
        (folder / name).write_text(ask(*line, "--json").out)
    with inside(), chdir(folder):
        assert ask("scan", "gpt2", "corpus.txt", "-o", "scanned").code == 0


LINES_SAVED = {
    "run.json": ("run", "a b c"),
    "heads.json": ("heads", "a b c"),
    "find.json": ("find", "a b c", "--from", "c", "--to", "a"),
    "ablate.json": ("ablate", "a b c", "--num-heads", "2"),
    "compare.json": ("compare", "a b c", "a b d"),
    "why.json": ("why", "a b c", "--num-heads", "2", "--from", "c", "--to", "a"),
    "tokens.json": ("tokens", "a b c"),
    "mask.json": ("mask", "causal"),
}
"""The saved documents that are damaged, and the commands that give them."""


def damaged(path: Path, random: Random) -> None:
    """Change a file: some bytes others, gone, doubled or put in, or its end cut off."""
    content = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(content) + 1)
        match random.randrange(5):
            case 0:
                del content[at:]
            case 1:
                content[at:at] = random.choice(VALUE_BYTES)
            case 2:
                content[at : at + 1] = bytes([random.randrange(256)])
            case 3:
                del content[at : at + random.randrange(1, 40)]
            case 4:
                content[at:at] = content[max(at - 20, 0) : at]
    path.write_bytes(bytes(content))


def some_options(name: str, random: Random, count: int) -> list[str]:
    """Options of a command with values, mostly wrong ones."""
    parameters = [
        parameter
        for parameter in dict(commands())[name].params
        if parameter.param_type_name == "option" and not {*parameter.opts} & SLOW_OPTIONS
    ]
    words: list[str] = []
    for parameter in random.sample(parameters, min(count, len(parameters))):
        words.append(parameter.opts[0])
        if not getattr(parameter, "is_flag", False):
            words.append(random.choice(VALUES))
    return words


def changed_text(words: list[str], random: Random) -> list[str]:
    """The line with a hostile text in place of one of its words."""
    places = [at for at, word in enumerate(words) if at and not word.startswith("-")]
    if places:
        words[random.choice(places)] = random.choice(TEXTS) * random.choice((1, 1, 3))
    return words


def question(number: int, folder: Path) -> tuple[str, str, list[str], dict[str, str]]:
    """The input of this number: its kind, the command, its words and variables; files are damaged
    in `folder`."""
    random = Random(number)
    kind = KINDS[number % len(KINDS)]
    name = random.choice([name for name, _ in commands()])
    variables = {"HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    words = [*(ARGUMENTS.get(name) or example(name))]
    match kind:
        case "text":
            words = changed_text(words, random)
        case "option":
            words += some_options(name, random, 1)
        case "options":
            words += some_options(name, random, random.randrange(2, 6))
        case "document":
            file = random.choice([*LINES_SAVED])
            document = json.loads((folder / file).read_text())
            (folder / file).write_text(json.dumps(mutated(document, number)))
            name, words = "view", ["view", file, *some_options("view", random, random.randrange(2))]
        case "bytes":
            file, line = random.choice(
                [("mha.safetensors", ["weights", "show", "mha.safetensors"]),
                 ("mha.safetensors", ["run", "a b", "--weights", "mha.safetensors", "--num-heads", "4"]),
                 ("captured.npz", ["tensors", "captured.npz"]),
                 ("run.json", ["view", "run.json"]),
                 ("scanned/plan.json", ["scan", "show", "scanned"]),
                 ("scanned/scan.json", ["scan", "compare", "scanned", "scanned"])]
            )  # fmt: skip
            damaged(folder / file, random)
            name, words = " ".join(line[:2]) if line[0] in ("weights", "scan") else line[0], line
        case "model":
            file = random.choice(("config.json", "tokenizer.json", "model.safetensors"))
            damaged(folder / "gpt2" / file, random)
            words += ["--model", "gpt2"] if "--model" not in words and has(name, "--model") else []
        case "chat":
            damaged(folder / "chat.json", random)
            words += ["--chat", "chat.json", "--model", "gpt2"] if has(name, "--chat") else []
        case "regions":
            damaged(folder / "regions.json", random)
            words += ["--regions", "regions.json"] if has(name, "--regions") else []
        case "settings":
            damaged(folder / "config.toml", random)
            variables["ATTN_CONFIG"] = str(folder / "config.toml")
    return kind, name, words, variables


def has(name: str, option: str) -> bool:
    """Whether a command takes an option."""
    return any(option in parameter.opts for parameter in dict(commands())[name].params)


def outcome(number: int, whole: Path) -> dict[str, Any]:
    """What the input of this number does: its kind and line, exit code, and what is wrong with it,
    "" for nothing."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        shutil.copytree(whole, folder)
        kind, name, words, variables = question(number, folder)
        result = {"number": number, "kind": kind, "command": name, "words": words, "code": None}
        try:
            with chdir(folder), inside(), bounded():
                answer = ask(*words, stdin=None, **variables)
        except TimeIsUp:
            return {**result, "wrong": "more than its time"}
        except BaseException as error:
            return {**result, "wrong": f"{type(error).__name__}: {error}"[:300]}
        wrong = ""
        if (
            answer.code not in range(6)
            or "something unexpected" in answer.err
            or "Traceback" in answer.err
        ):
            wrong = answer.err[-300:] or f"exit code {answer.code}"
        elif answer.code and not answer.err and answer.code != 1:
            wrong = "no word of what is wrong"
        elif not answer.code and "--json" in words and answer.out and "--help" not in words:
            try:
                json.loads(answer.out)
            except ValueError:
                wrong = "an answer that is no JSON"
        leftovers = [path.name for path in folder.rglob(".attn-*")]
        if leftovers and not wrong:
            wrong = f"left: {leftovers}"
        return {**result, "code": answer.code, "wrong": wrong}


def main(seed: int, count: int, file: Path) -> None:
    """Ask what is not in the file yet, then print the counts."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {row["number"] for row in rows}
    with tempfile.TemporaryDirectory() as place, file.open("a") as out:
        prepared(Path(place))
        for number in range(seed, seed + count):
            if number not in known:
                rows.append(outcome(number, Path(place)))
                out.write(json.dumps(rows[-1]) + "\n")
                out.flush()
    for kind in KINDS:
        of_kind = [row for row in rows if row["kind"] == kind]
        codes = Counter(str(row["code"]) for row in of_kind)
        wrong = sum(bool(row["wrong"]) for row in of_kind)
        sys.stdout.write(
            f"{kind}: {len(of_kind)} inputs, exit codes {dict(sorted(codes.items()))}, {wrong} wrong\n"
        )
    for row in rows:
        if row["wrong"]:
            sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
