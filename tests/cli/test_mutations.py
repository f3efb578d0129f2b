"""Saved documents changed at random are shown or refused in every view, never a traceback. Each
change is told by its seed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest
from asking import ask
from mutating import mutated, retold
from small_gpt2 import small_gpt2

COMMANDS = {
    "run": ("run", "a b c a", "--num-heads", "2", "--mask", "causal"),
    "heads": ("heads", "a b c a", "--num-heads", "2", "--labels", "--across", "rollout,similarity"),
    "find": ("find", "a b c", "--from", "c", "--to", "a"),
    "tokens": ("tokens", "a b"),
    "mask": ("mask", "causal", "--score-bias", "alibi", "-n", "5"),
    "cost": ("cost", "-n", "50"),
    "cross": ("cross", "a b", "c d e"),
    "compare": ("compare", "a b c", "a b d"),
    "explain": ("explain", "a b c", "--query", "c"),
    "softmax": ("explain", "softmax", "2.0", "1.0"),
    "tensors": ("tensors", str(Path(__file__).parents[2] / "sample_inputs" / "captured.npz")),
}
PAIRS = str(Path(__file__).parents[2] / "sample_inputs" / "pairs.jsonl")
MADE = {
    "gallery": ("mask", "-n", "6"),
    "model": ("models", "show", "{t}/gpt2"),
    "generate": ("run", "a b", "--model", "{t}/gpt2", "--generate", "2"),
    "cache": ("cache", "a b c d", "--model", "{t}/gpt2", "--budget", "2"),
    "ablate": ("ablate", "a b c", "--model", "{t}/gpt2", "--measure", "logprob,kl,vector"),
    "link": ("ablate", "a b c", "--num-heads", "2", "--residual", "--from", "c", "--to", "a"),
    "logits": ("logits", "a b c", "--model", "{t}/gpt2"),
    "next": ("next", "a b c", "--model", "{t}/gpt2", "--each", "--without", "L0H0"),
    "difference": (
        *("ablate", "a b c", "--model", "{t}/gpt2", "--target", "id:5", "--versus", "id:6"),
        *("--hold", "attention"),
    ),
    "pairs of effects": ("ablate", "--model", "{t}/gpt2", "--pairs", PAIRS),
    "answer": (
        "answer",
        "a b c",
        "--model",
        "{t}/gpt2",
        "--region",
        "r=tokens:0-1",
        "--tokens",
        "4",
    ),
    "circuit": ("circuit", "--pairs", PAIRS, "--model", "{t}/gpt2"),
    "pairs": ("pairs", "check", PAIRS, "--model", "{t}/gpt2"),
    "patch": ("patch", "a b c", "a c c", "--num-heads", "2", "--residual"),
    "effect": ("find", "a b c", "--from", "c", "--to", "a", "--residual", "--effect"),
    "scaling": ("explain", "scaling"),
    "order": ("explain", "order", "a b"),
    "learn": ("learn", "order", "--steps", "2", "--seeds", "2"),
    "series": ("series", "{t}/gpt2", "{t}/again", "--text", "a b"),
    "why": (
        "why",
        "a b c",
        "--model",
        "{t}/gpt2",
        "--from",
        "c",
        "--to",
        "a",
        "--writes",
        "--by",
        "token",
    ),
    "dimensions": (
        "why",
        "a b c",
        "--num-heads",
        "2",
        "--from",
        "c",
        "--to",
        "a",
        "--by",
        "dimension",
    ),
    "retrieval": (
        "heads",
        "--model",
        "{t}/gpt2",
        "--retrieval",
        "--needle",
        "{t}/needle",
        "--lengths",
        "24",
    ),
    "regions": (
        "ablate",
        "a b c",
        "--model",
        "{t}/gpt2",
        "--region",
        "r=tokens:0-1",
        "--each-region",
    ),
    "lens": ("logits", "a b c", "--model", "{t}/gpt2", "--lens", "--by", "token"),
    "directions": (
        "heads",
        "a b c",
        "--model",
        "{t}/gpt2",
        "--directions",
        "L0H0",
        "--region",
        "r=tokens:0-1",
    ),
}
"""Of the newer commands."""
VIEWS = (
    (),
    ("--plain",),
    ("--json",),
    ("--as", "heads"),
    ("--ascii", "--show", "all", "--full"),
    ("--lang", "zh"),
    ("--brief",),
    ("--html", "{t}/page.html"),
    ("--figure", "{t}/drawn.svg"),
    ("--as", "heads", "--html", "{t}/page.html"),
)
EACH = 15


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with an output head, and room for files."""
    made = tmp_path_factory.mktemp("mutations")
    copytree(small_gpt2(made / "gpt2"), made / "again")
    (made / "needle").write_text("the cat\tsat\n")
    return made


@pytest.mark.many
@pytest.mark.parametrize("name", [*COMMANDS, *MADE])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_changed_document_is_shown_or_refused(name: str, folder: Path) -> None:
    line = [part.replace("{t}", str(folder)) for part in (COMMANDS | MADE)[name]]
    document: dict[str, Any] = ask(*line, "--json").json
    path = folder / "changed.json"
    path.write_text(json.dumps(document))
    assert ask("view", str(path)).code == 0
    for seed in range(EACH):
        path.write_text(json.dumps((mutated, retold)[seed % 2](document, seed)))
        view = [part.replace("{t}", str(folder)) for part in Random(seed).choice(VIEWS)]
        answer = ask("view", str(path), *view)
        refused = answer.code == 2 and "--show" in view  # a screen without parts
        assert answer.code in (0, 3) or refused, (seed, view, answer.err)
        assert "unexpected" not in answer.err
        assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("learn", ("runs", 0, "best", 0, "score"), "\x1b[31m"),
        ("learn", ("heads", 0, "scores"), {}),
        ("learn", ("ablation", "heads"), []),
        ("patch", ("query",), []),
    ],
)
def test_what_an_answer_is_told_from_is_there_or_the_document_is_refused(
    name: str, path: tuple[str | int, ...], value: object, folder: Path
) -> None:
    document: Any = ask(*(part.replace("{t}", str(folder)) for part in MADE[name]), "--json").json
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    (folder / "changed.json").write_text(json.dumps(document))
    for view in (
        (),
        ("--html", str(folder / "page.html")),
        ("--figure", str(folder / "drawn.svg")),
        ("--plain",),
    ):
        answer = ask("view", str(folder / "changed.json"), *view)
        assert (answer.code, answer.out) == (3, ""), answer.err
        assert "unexpected" not in answer.err
