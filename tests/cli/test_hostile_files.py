"""Whatever an option or an argument names in place of a file is read or refused, at once, by every
command."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from zlib import crc32

import pytest
from asking import ask
from commands import commands, example
from small_gpt2 import small_gpt2

SECONDS = 60
"""A pipe that nobody writes to waits for ever; a busy machine imports torch for half of these."""
READ = {
    "--model", "--mask", "--tokenizer", "--chat-template", "--chat", "--adapter", "--weights",
    "--embeddings", "--source-states", "--file", "--regions", "--metric-file", "--with-adapter",
    "--rule-file", "--rules-of",
    "--reference-file", "--needle", "--haystack", "--corpus", "--pairs",
    "--circuit",
}  # fmt: skip
"""Options that name what is read."""
WRITTEN = {"--output", "--csv", "--html", "--figure", "--site", "--save", "--notebook"}
COMPANIONS = {
    "--chat-template": ("--chat", "{folder}/chat.json", "--model", "{folder}/gpt2"),
    "--chat": ("--model", "{folder}/gpt2"),
    "--adapter": ("--model", "{folder}/gpt2"),
    "--with-adapter": ("--model", "{folder}/gpt2"),
    "--needle": ("--retrieval", "--model", "{folder}/gpt2", "--lengths", "24"),
    "--haystack": ("--retrieval", "--model", "{folder}/gpt2", "--lengths", "24"),
}
"""What an option has a meaning with."""
ENDINGS = {
    "--mask": ".npy",
    "--weights": ".safetensors",
    "--metric-file": ".py",
    "--rule-file": ".py",
}
"""How the names of such files end."""
KINDS = (
    "fifo",
    "zero",
    "folder",
    "denied",
    "socket",
    "loop",
    "dangling",
    "long",
    "inside",
    "blank",
)
"""What stands in the place of a file."""
ARGUMENTS = {
    "view": ("view", "{path}"),
    "check": ("check", "{path}"),
    "tensors": ("tensors", "{path}"),
    "weights show": ("weights", "show", "{path}"),
    "weights convert": ("weights", "convert", "{path}", "{folder}/o.npz"),
    "models show": ("models", "show", "{path}"),
    "models fetch": ("models", "fetch", "{path}"),
    "models verify": ("models", "verify", "{path}"),
    "scan": ("scan", "{folder}/gpt2", "{path}", "-o", "{folder}/scan"),
    "scan model": ("scan", "{path}", "{folder}/chat.json", "-o", "{folder}/scan"),
    "scan show": ("scan", "show", "{path}"),
    "scan compare": ("scan", "compare", "{path}", "{path}"),
    "scan verify": ("scan", "verify", "{path}"),
    "scan export": ("scan", "export", "{path}", "{folder}/heads.csv"),
    "learn": ("learn", "text", "{path}", "--steps", "2"),
    "series": ("series", "{path}", "{folder}/gpt2", "--text", "a b"),
    "compare": ("compare", "{path}", "{folder}/gpt2", "--text", "a b"),
    "mask": ("mask", "{path}"),
    "explore": ("explore", "{path}"),
    "ATTN_CONFIG": ("run", "a b"),
    "cache": ("models", "list"),
}
"""Command lines whose arguments name what is read."""


def options_of(parameters: list[Any], wanted: set[str]) -> list[str]:
    """The options among these parameters whose value may be a file or a folder."""
    places = ("FILE", "DIR", "PATH")
    return [
        option
        for parameter in parameters
        if any(place in str(parameter.metavar) for place in places)
        for option in parameter.opts
        if option in wanted
    ]


EVERY_DAY = 60
"""One case in so many is tried every day, always the same; there are 1,700."""


def some(cases: Iterable[tuple[str, ...]]) -> list[Any]:
    """The cases, of which all but one in `EVERY_DAY` are thorough, and all that import torch."""
    return [
        pytest.param(*case, marks=() if is_quick(case) else pytest.mark.thorough) for case in cases
    ]


def is_quick(case: tuple[str, ...]) -> bool:
    """Whether a case is tried every day."""
    return not case[0].startswith("scan") and crc32("".join(case).encode()) % EVERY_DAY == 0


OPTIONS = [
    (name, option)
    for name, command in commands()
    for option in options_of(command.params, READ)
    if not name.startswith(("scan", "learn", "series", "explore"))
]


def test_every_option_that_names_a_file_is_tried() -> None:
    for name, command in commands():
        for parameter in command.params:
            if parameter.opts[0].startswith("-") and str(parameter.metavar).startswith(
                ("FILE", "DIR")
            ):
                assert {*parameter.opts} & (READ | WRITTEN), f"{name} {parameter.opts}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a chat, and one of each that is no file."""
    made = tmp_path_factory.mktemp("hostile")
    small_gpt2(made / "gpt2")
    (made / "chat.json").write_text('[{"role": "user", "content": "a b"}]')
    for ending in {"", *ENDINGS.values()}:
        os.mkfifo(made / f"fifo{ending}")
        (made / f"zero{ending}").symlink_to("/dev/zero")
        (made / f"folder{ending}").mkdir()
        (made / f"denied{ending}").write_text("a b")
        (made / f"loop{ending}").symlink_to(f"loop{ending}")
        (made / f"dangling{ending}").symlink_to("nowhere")
        (made / f"blank{ending}").touch()
        (made / f"shut{ending}").mkdir()
        os.mknod(made / f"socket{ending}", 0o140644)
    return made


def place(folder: Path, kind: str, ending: str = "") -> Path:
    names = {"long": "x" * 300, "inside": f"denied{ending}/x", "in shut": "shut/x"}
    return folder / f"{names.get(kind, kind)}{ending}"


@contextmanager
def denied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system refuses files called `denied`, and folders called `shut` and what is in them, as
    it does for others than root."""

    def refusing(real: Any, shut: bool) -> Any:
        def call(path: Any = ".", *arguments: Any, **named: Any) -> Any:
            parts = () if isinstance(path, int) else Path(os.fsdecode(path)).parts
            inside = "shut" in parts[:-1]
            refused = "shut" in parts or any(part[:6] == "denied" for part in parts[-1:])
            if inside or (shut and refused):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "scandir", "listdir"):
            patch.setattr(os, name, refusing(getattr(os, name), shut=True))
        for name in ("stat", "lstat"):
            patch.setattr(os, name, refusing(getattr(os, name), shut=False))
        yield


@contextmanager
def bounded(line: list[str]) -> Iterator[None]:
    """What takes longer than some seconds fails, also where the system waits."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"attn {' '.join(line)} does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(line: list[str], monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    with denied(monkeypatch), bounded(line):
        answer = ask(*line, HF_HUB_OFFLINE="1", **variables)
    assert answer.code in (0, 2, 3, 4, 5), (line, answer)
    assert "unexpected" not in answer.err, (line, answer.err)
    assert (answer.code == 0) == ("error" not in answer.err), (line, answer.err)


@pytest.mark.many
@pytest.mark.parametrize(
    ("name", "option", "kind"), some((*place, kind) for place in OPTIONS for kind in KINDS)
)
def test_an_option(
    name: str, option: str, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "fifo" and option == "--file":
        pytest.skip("a text may come through a pipe, and the command says that it waits")
    path = place(folder, kind, ENDINGS.get(option, ""))
    companions = [part.replace("{folder}", str(folder)) for part in COMPANIONS.get(option, ())]
    words = [*example(name)]
    for word in ("--model", "--weights", "--mask", "--chat"):
        if word in words and word in (option, *companions):
            at = words.index(word)
            del words[at : at + 2]
    if option in ("--file", "--chat", "--chat-template"):
        words = [word for word in words if " " not in word]
    check([*words, option, str(path), *companions], monkeypatch)


@pytest.mark.parametrize(
    ("name", "kind"), some((name, kind) for name in ARGUMENTS for kind in KINDS)
)
def test_an_argument(name: str, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "fifo" and name == "learn":
        pytest.skip("a text may come through a pipe, and the command says that it waits")
    path = place(folder, kind)
    line = [part.format(path=path, folder=folder) for part in ARGUMENTS[name]]
    variables = {"ATTN_CONFIG": {"ATTN_CONFIG": str(path)}, "cache": {"HF_HUB_CACHE": str(path)}}
    check(line, monkeypatch, **variables.get(name, {}))


FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
         "generation_config.json", "model.safetensors.index.json", "adapter_config.json",
         "chat_template.jinja")  # fmt: skip
MODELS = {
    "run": ("run", "a b", "--model", "{model}"),
    "chat": ("run", "--chat", "{folder}/chat.json", "--model", "{model}"),
    "show": ("models", "show", "{model}"),
    "list": ("models", "list"),
    "series": ("series", "{model}", "{folder}/gpt2", "--text", "a b"),
    "adapter": ("run", "a b", "--model", "{folder}/gpt2", "--adapter", "{model}"),
    "scan": ("scan", "{model}", "{folder}/chat.json", "-o", "{model}-scan"),
    "hub": ("run", "a b", "--model", "owner/name"),
}


@pytest.mark.many
@pytest.mark.parametrize(
    ("name", "file", "kind"),
    some((name, file, kind) for name in MODELS for file in (*FILES, "refs/main") for kind in KINDS),
)
def test_a_file_of_a_model(
    name: str, file: str, kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of its own, and in the hub's cache."""
    made = tmp_path / "hub" / "models--owner--name"
    model = made / "snapshots" / ("0" * 40)
    small_gpt2(model)
    (made / "refs").mkdir()
    (made / "refs" / "main").write_text("0" * 40)
    target = (made if "/" in file else model) / file
    target.unlink(missing_ok=True)
    if kind == "denied":
        target = target.with_name(f"denied-{target.name}")
    (model / file if "/" not in file else made / file).symlink_to(place(folder, kind))
    line = [part.format(model=model, folder=folder) for part in MODELS[name]]
    check(line, monkeypatch, HF_HUB_CACHE=str(tmp_path / "hub"), XDG_CACHE_HOME=str(tmp_path))
