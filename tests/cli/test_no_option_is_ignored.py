"""Every option that a command offers changes something: the answer, what is said, a file, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from asking import ask

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat\non the mat"
CAPTURED = str(ROOT / "sample_inputs" / "captured.npz")
WEIGHTS = str(ROOT / "sample_inputs" / "mha.safetensors")

BASES: dict[str, list[tuple[str, ...]]] = {
    "run": [("run", TEXT, "--num-heads", "2"), ("run", TEXT, "--num-heads", "2", "--json"), ("run",)],
    "heads": [("heads", TEXT), ("heads", TEXT, "--json"), ("heads",)],
    "tokens": [("tokens", TEXT), ("tokens",)],
    "tensors": [
        ("tensors", CAPTURED, "--mask", "causal", "--color", "always"),
        ("tensors", CAPTURED, "--json"),
        ("tensors", CAPTURED),
    ],
    "explain": [("explain", TEXT), ("explain", TEXT, "--json"), ("explain",)],
    "find": [("find", TEXT, "--from", "cat", "--to", "sat"), ("find", TEXT, "--from", "cat", "--to", "sat", "--json")],
    "compare": [("compare", TEXT, "the dog sat"), ("compare", TEXT, "the dog sat", "--json")],
    "cross": [("cross", TEXT, "a dog"), ("cross", TEXT, "a dog", "--json")],
    "mask": [("mask", "causal"), ("mask", "causal", "--json")],
    "cost": [("cost",), ("cost", "--json")],
    "models list": [("models", "list"), ("models", "list", "--json")],
    "models show": [("models", "show", "minilm"), ("models", "show", "minilm", "--json")],
    "weights show": [("weights", "show", WEIGHTS), ("weights", "show", WEIGHTS, "--json")],
}
"""Command lines to try each option on; one that it changes is enough."""

VALUES = {
    "file": "{tmp}/text", "ids": "1 2", "tokenizer": "char", "model": "no-such-model", "weights": WEIGHTS,
    "embeddings": "{tmp}/x.npy",
    "seed": "7", "d_model": "8", "num_heads": "4", "d_k": "6", "d_v": "6", "layer": "9", "head": "1", "mask": "causal",
    "scale": "none",
    "softcap": "0.5", "position": "sinusoidal", "backend": "torch", "device": "nowhere", "dtype": "float64",
    "max_memory": "10B",
    "output": "{tmp}/out",  "svg": "{tmp}/out.svg", "show": "header", "precision": "5", "top": "1", "color": "always",
    "scale_colors": "log", "max_output": "10B", "query": "cat", "stages": "all", "save": "{tmp}/all.npz",
    "metric": "band", "csv": "{tmp}/out.csv",
    "offset": "1", "key_lengths": "1", "softmax_dtype": "float64", "prefix": "in_", "attention": "reformer:2",
    "text": "dog",
    "ignore_config": "key", "estimate": "a dog", "lang": "zh",
}  # fmt: skip
"""A value for each option that takes one, other than its default."""

EXCUSED = {
    "all_links": "only a trained model has links that say little",
    "debug": "shows itself in errors alone: test_process",
    "help": "answered by Typer",
    "full": "short texts are shown whole",
    "batch": "gives what each text gives alone: test_run",
    "words": "words are whole here",
    "heads residual": "changes the output, which heads does not show",
    "heads output_projection": "changes the output, which heads does not show",
    "find residual": "changes the output, which find does not show",
    "find output_projection": "changes the output, which find does not show",
    "cross residual": "changes the output of the layer, which cross does not show",
    "cost measure": "takes seconds: test_cost",
    "mask num_heads": "of a bias: --position alibi",
    "mask head": "of a bias: --position alibi",
    "models show quiet": "notes only what it fetches: test_model_option",
    **dict.fromkeys(
        (
            f"{command} quiet"
            for command in ("compare", "cost", "cross", "find", "mask", "models list", "tensors", "weights show")
        ),
        "has nothing to note",
    ),
}


def commands() -> Iterator[tuple[str, Any]]:
    for name in dict.fromkeys(base.split()[0] for base in BASES):
        command = typer.main.get_command(import_module(f"attncli.cli.{name}").app)
        for part, inner in getattr(command, "commands", {"": command}).items():
            yield f"{name} {part}".strip(), inner


def offered() -> list[tuple[str, str, str]]:
    found = []
    for name, command in commands():
        for parameter in command.params if name in BASES else ():
            if parameter.param_type_name == "option" and not {parameter.name, f"{name} {parameter.name}"} & set(
                EXCUSED
            ):
                found.append((name, parameter.name, parameter.opts[0]))
    return found


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("run", "a b", "--batch"), "--lines"),
        (("explain", "order", "a b", "--head=nan"), "no option --head"),
        (("cost", "--show", "measured"), "--measure as well"),
        (("mask", "causal", "--show", "counts"), "two masks or more"),
    ],
)
def test_an_option_that_would_be_ignored_is_misuse(line: tuple[str, ...], says: str) -> None:
    found = ask(*line)
    assert (found.code, found.out) == (2, "")
    assert says in found.err


@pytest.mark.parametrize(("command", "name", "option"), offered(), ids=lambda value: value)
def test_an_option_does_something(command: str, name: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("dog")
    np.save(tmp_path / "x.npy", np.ones((2, 64)))
    given = [option, VALUES[name].replace("{tmp}", str(tmp_path))] if name in VALUES else [option]
    kept = sorted(tmp_path.iterdir())
    for base in BASES[command]:
        if ask(*base, *given) != ask(*base) or sorted(tmp_path.iterdir()) != kept:
            return
    pytest.fail(f"attn {command} takes {option} and does nothing with it")
