"""Every number that a command takes, at its edges and far beyond: an answer or a refusal, within a
second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from asking import Answer, ask
from commands import commands
from scanning import inside
from small_gpt2 import small_gpt2

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat"
SECONDS = 1.0
"""Of this process's own time: a busy machine makes nothing slower."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "find": (TEXT, "--from", "cat", "--to", "sat"),
    "compare": (TEXT, "a dog sat"),
    "cross": (TEXT, "a dog"),
    "tensors": (str(ROOT / "sample_inputs" / "captured.npz"),),
    "ablate": (TEXT, "--num-heads", "2", "--residual"),
    "cache": (TEXT, "--mask", "causal"),
    "logits": (TEXT, "--model", "{t}/gpt2"),
    "patch": (TEXT, "the dog sat", "--num-heads", "2", "--residual"),
    "scan start": ("{t}", "{t}/corpus.txt", "-o", "{t}/scan"),
    "scan show": ("{t}",),
    "scan compare": ("{t}", "{t}"),
    "scan verify": ("{t}",),
    "scan export": ("{t}", "{t}/heads.csv"),
    "guide": ("learners",),
    "mask": ("lsh:2",),
    "cost": (),
    "explain softmax": ("1", "2"),
    "explain scaling": (),
    "explain metric": ("entropy",),
    "explain rule": ("bracket",),
    "weights init": ("{t}/new.npz",),
    "weights show": (str(ROOT / "sample_inputs" / "mha.safetensors"),),
    "weights convert": (str(ROOT / "sample_inputs" / "mha.safetensors"), "{t}/new.npz"),
    "next": (TEXT, "--model", "{t}/gpt2"),
    "answer": (TEXT, "--model", "{t}/gpt2", "--region", "r=tokens:0-1", "--tokens", "2"),
    "circuit": ("--pairs", str(ROOT / "sample_inputs" / "pairs.jsonl"), "--model", "{t}/gpt2"),
    "pairs check": (str(ROOT / "sample_inputs" / "pairs.jsonl"), "--model", "{t}/gpt2"),
    "view": ("{t}/run.json",),
    "models list": (),
    "models show": ("minilm",),
    "models fetch": ("minilm",),
    "schema": (),
}
"""What each command is asked with, unless it is a text."""

NUMBERS = (
    "-1", "0", "1", "2", "3", "4097", "100000001", "999999999", "1000000000", "1000000001", "99999999999999999999",
    "999999999999999999999999", "9" * 5000, "1.5", "1e400", "-1e-320", "nan", "inf", "-inf", "x", "٣", " ",
)  # fmt: skip

WRITTEN = {
    "seed": ("-1", "1.5", str(2**63), "9" * 5000, "nan", "rand"),
    "scale": ("0", "-1", "1e308", "1e-320", "1e400", "nan", "sqrt", "9" * 5000),
    "position": ("rope:", "rope:0", "rope:-1", "rope:nan", "rope:1e400", "rope:1e-320", "rope:" + "9" * 5000, "rope"),
    "mask": ("window:", "window:-1", "window:1000000000", "window:1000000001", "window:" + "9" * 5000, "lsh:0",
             "lsh:1000000000", "lsh:4,1000000000", "dilated:1,0", "global:" + "9" * 30, "bigbird:1", "block:0",
             "chunk:0", "prefix:1000000000", "bigbird:999999999,999999999,999999999"),
    "attention": ("reformer:", "reformer:0", "reformer:1", "reformer:1000000", "reformer:2,1000000,1",
                  "reformer:" + "9" * 5000),
    "layer": ("-1", "1", "0-999999999999", "9" * 5000, "5-2", "nan", "0-" + "9" * 5000),
    "head": ("-1", "1", "0-999999999999", "9" * 5000, "5-2", "nan"),
    "max_memory": ("-1", "0", "1", "1e9", "9" * 5000, "9" * 400 + "GB", "1.5.5", "nan"),
    "max_output": ("-1", "0", "1", "9" * 5000, "9" * 400 + "GB", "nan"),
    "ids": ("-1", "2147483648", "9" * 5000, "1.5"),
    "query": ("#-1", "#3", "#" + "9" * 5000, "#nan", "cat:0", "cat:" + "9" * 5000, "#0-" + "9" * 5000),
    "start": ("#" + "9" * 5000, "cat:" + "9" * 5000),
    "key_lengths": ("-1", "0", "9" * 5000, "1 2 3 4 5 6 7 8"),
    "sort": ("entropy:", "entropy:up", ":asc"),
    "html_budget": ("-1", "0", "9" * 5000),
    "target": ("id:-1", "id:320", "id:" + "9" * 5000, "id:", "id:nan"),
    "versus": ("id:-1", "id:320", "id:" + "9" * 5000),
    "into": ("L0H0", "L0H0:x", "L" + "9" * 5000 + "H0:q", "L0H" + "9" * 5000 + ":k", "L²H0:q", ":q", ",", "nan"),
    "at": ("#-1", "#9", "#" + "9" * 5000, "#0-" + "9" * 5000),
    "part": ("0/1", "2/1", "1/0", "-1/3", "1/" + "9" * 5000, "9" * 5000 + "/1", "nan/nan", "1"),
    "find": ("weight>=nan", "weight>=" + "9" * 5000, "head=L" + "9" * 5000 + "H0", "weight>=-1e400 from=x"),
    "figure_style": ("0mm", "1e9mm", "-1dpi", "9" * 5000 + "dpi", "nanmm", "0dpi", "85mm,1000000dpi",
                     "columns=0", "columns=" + "9" * 5000, "maxheight=0mm", "maxheight=nanmm",
                     "heads=L" + "9" * 5000 + "H0"),
}  # fmt: skip
"""Numbers inside words, by the option's name."""


def takes_number(parameter: Any) -> bool:
    if hasattr(parameter, "type_descriptor"):  # Typer 0.29 or newer
        return parameter.type_descriptor.annotation in (int, float)
    return getattr(parameter.type, "name", "") in ("int", "integer", "float")


def asked() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every option of every command that takes a number, and the values to try."""
    for name, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                values = NUMBERS if takes_number(parameter) else WRITTEN.get(parameter.name, ())
                # seeded weights, and thousands of random vectors, of that width take seconds, as
                # they should
                if parameter.name == "d_model" or (name, parameter.name) == (
                    "explain scaling",
                    "d_k",
                ):
                    values = tuple(value for value in values if value != "4097")
                if values:
                    yield name, parameter.opts[0], values


def numbers() -> list[tuple[str, Any]]:
    return [
        (f"{name} {parameter.opts[0]}", parameter)
        for name, command in commands()
        for parameter in command.params
        if takes_number(parameter)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bounds")
    (made / "run.json").write_text(ask("run", TEXT, "--json").out)
    (made / "corpus.txt").write_text(f"{TEXT}\n")
    small_gpt2(made / "gpt2")
    with inside():
        assert (
            ask("scan", str(made / "gpt2"), str(made / "corpus.txt"), "-o", str(made / "scan")).code
            == 0
        )
    return made


def answered(command: str, *options: str, folder: Path, **variables: str) -> Answer:
    """The answer, which came within a second and is no failure of ours."""
    arguments = [part.replace("{t}", str(folder)) for part in ARGUMENTS.get(command, (TEXT,))]
    line = [*command.split(), *arguments, *options]
    for _ in range(2):  # what a library takes to be imported, or a crowded cache, it takes once
        begun = time.process_time()
        found = ask(*line, **variables)
        taken = time.process_time() - begun
        if taken < SECONDS:
            break
    shown = " ".join(line)[:200]
    assert taken < SECONDS, f"attn {shown} took {taken:.1f} s"
    assert found.code in (0, 2, 3, 4, 5) or "a weight differs" in found.err, (
        f"attn {shown} ended with {found.code}: {found.err}"
    )
    assert "unexpected" not in found.err, f"attn {shown}: {found.err}"
    assert found.code < 2 or (found.out == "" and len(found.err) < 4000), f"attn {shown}"
    return found


@cache
def _imported(command: str) -> None:
    """What a command imports takes its time once."""
    ask(*command.split(), "--help")


def thirds() -> Iterator[Any]:
    """A third of the values of each option, each value for a third of the options; all others
    thoroughly.
    """
    for at, (name, option, values) in enumerate(asked()):
        for part in range(3):
            yield pytest.param(
                name, option, values[(at + part) % 3 :: 3], marks=[pytest.mark.thorough] if part else [],
                id=f"{name} {option} {part}",
            )  # fmt: skip


@pytest.mark.many
@pytest.mark.parametrize(("command", "option", "values"), list(thirds()))
def test_a_number_at_its_edges_and_beyond(
    command: str, option: str, values: tuple[str, ...], folder: Path
) -> None:
    _imported(command)
    for value in values:
        answered(command, f"{option}={value}", folder=folder)


@pytest.mark.parametrize(
    ("name", "parameter"), numbers(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_number_states_its_range(name: str, parameter: Any) -> None:
    assert " to " in parameter.help.rpartition("[")[2], (
        f"the help of attn {name} states no range: {parameter.help}"
    )


@pytest.mark.many
@pytest.mark.parametrize("command", [name for name, _ in commands()])
def test_an_option_without_its_value_is_misuse(command: str, folder: Path) -> None:
    inner = dict(commands())[command]
    for parameter in inner.params:
        if parameter.param_type_name == "option" and not parameter.is_flag:
            found = answered(command, f"{parameter.opts[0]}=", folder=folder)
            assert found.code == 2, f"attn {command} {parameter.opts[0]}="


@pytest.mark.many
@pytest.mark.parametrize(
    "columns",
    ["", "0", "-1", "1", "79", "1000000000", "9" * 5000, "nan", "x", "²", "٣", " ", "1e9"],
)
def test_columns_of_any_content(columns: str, folder: Path) -> None:
    # what is no width is taken for none wherever it is read
    others = ("heads", "mask", "cost", "explain scaling", "models list", "tensors", "view")
    for command in ("run", *(others if columns.lstrip("-").isdecimal() else ())):
        assert answered(command, folder=folder, COLUMNS=columns).code == 0
    assert ask("--help", COLUMNS=columns).code == ask("run", "--help", COLUMNS=columns).code == 0
