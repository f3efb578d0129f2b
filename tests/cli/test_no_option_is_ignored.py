"""Every option that a command offers changes something: the answer, what is said, a file, or it is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from asking import ask
from commands import examples
from small_gpt2 import small_gpt2

from attncli.cli.app import app_of
from attncli.cli.option import DELIVERY, DRAWING, About

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat\non the mat"
CAPTURED = str(ROOT / "sample_inputs" / "captured.npz")
WEIGHTS = str(ROOT / "sample_inputs" / "mha.safetensors")
PAIRS = str(ROOT / "sample_inputs" / "pairs.jsonl")
MATRICES = "{tmp}/gpt2/matrices.npz"

BASES: dict[str, list[tuple[str, ...]]] = {
    "run": [
        ("run", TEXT, "--num-heads", "2"),
        ("run", TEXT, "--num-heads", "2", "--json"),
        ("run", TEXT, "--weigh", "cat=×4", "--json"),
        ("run",),
    ],
    "heads": [("heads", TEXT), ("heads", TEXT, "--json"), ("heads",)],
    "tokens": [("tokens", TEXT), ("tokens",)],
    "tensors": [
        ("tensors", CAPTURED, "--mask", "causal", "--color", "always"),
        ("tensors", CAPTURED, "--json"),
        ("tensors", CAPTURED),
    ],
    "explain text": [("explain", TEXT), ("explain", TEXT, "--json"), ("explain",)],
    "find": [
        ("find", TEXT, "--from", "cat", "--to", "sat"),
        ("find", TEXT, "--from", "cat", "--to", "sat", "--json"),
        ("find", TEXT, "--from", "x", "--to", "sat", "--json"),
        (
            "find",
            TEXT,
            "--model",
            "{tmp}/gpt2",
            "--from",
            "#4",
            "--to",
            "#1",
            "--effect",
            "--target",
            "id:7",
        ),
        (
            "find",
            TEXT,
            "--model",
            "{tmp}/gpt2",
            "--from",
            "#4",
            "--to",
            "#1",
            "--effect",
            "--versus",
            "id:7",
        ),
        ("find", "--model", "{tmp}/gpt2", "--pairs", PAIRS, "--to", "#0"),
        ("find", "--model", "{tmp}/gpt2", "--to", "#0"),
        ("find", "吃 香", "--model", "minilm", "--from", "吃", "--to", "香", "--json"),
    ],
    "compare": [("compare", TEXT, "the dog sat"), ("compare", TEXT, "the dog sat", "--json")],
    "cross": [("cross", TEXT, "a dog"), ("cross", TEXT, "a dog", "--json")],
    "mask": [("mask", "causal"), ("mask", "causal", "--json")],
    "cost": [("cost",), ("cost", "--json")],
    "models list": [("models", "list"), ("models", "list", "--json")],
    "models show": [("models", "show", "minilm"), ("models", "show", "minilm", "--json")],
    "models fetch": [("models", "fetch", "minilm"), ("models", "fetch", "minilm", "--json")],
    "weights show": [("weights", "show", WEIGHTS), ("weights", "show", WEIGHTS, "--json")],
    "weights init": [
        ("weights", "init", "{tmp}/new.npz"),
        ("weights", "init", "{tmp}/new.npz", "--json"),
    ],
    "weights convert": [
        ("weights", "convert", WEIGHTS, "{tmp}/new.npz"),
        ("weights", "convert", MATRICES, "{tmp}/new.npz"),
    ],
    "ablate": [
        ("ablate", TEXT, "--num-heads", "2", "--residual"),
        ("ablate", TEXT, "--num-heads", "2", "--by", "mean", "--json"),
        ("ablate", TEXT, "--model", "{tmp}/gpt2", "--measure", "logprob"),
        ("ablate", TEXT, "--model", "{tmp}/gpt2", "--versus", "id:6", "--json"),
        ("ablate", TEXT, "--model", "{tmp}/gpt2", "--target", "id:5"),
        ("ablate", "--model", "{tmp}/gpt2"),
        ("ablate", "--model", "{tmp}/gpt2", "--pairs", PAIRS),
        ("ablate", TEXT, "--num-heads", "2", "--from", "cat"),
        ("ablate", TEXT, "--num-heads", "2", "--to", "cat"),
        ("ablate", "吃 香", "--model", "minilm", "--query", "吃", "--head", "L0H0", "--json"),
        ("ablate",),
    ],
    "logits": [
        ("logits", TEXT, "--model", "{tmp}/gpt2"),
        ("logits", TEXT, "--model", "{tmp}/gpt2", "--json"),
        ("logits", "吃 香", "--model", "minilm", "--query", "吃", "--json"),
        ("logits", "--model", "{tmp}/gpt2", "--pairs", PAIRS),
        ("logits", "--model", "{tmp}/gpt2"),
        ("logits",),
    ],
    "patch": [
        ("patch", "--model", "{tmp}/gpt2", "--pairs", PAIRS),
        ("patch", "--model", "{tmp}/gpt2"),
        ("patch", "the cat sat", "the dog sat", "--num-heads", "2", "--residual"),
        (
            "patch",
            "the cat sat",
            "the sat cat",
            "--model",
            "{tmp}/gpt2",
            "--target",
            "id:4",
            "--json",
        ),
        (
            "patch",
            "吃 香",
            "吃 cat",
            "--model",
            "minilm",
            "--query",
            "吃",
            "--head",
            "L0H0",
            "--json",
        ),
    ],
    "answer": [
        ("answer", TEXT, "--model", "{tmp}/gpt2", "--region", "x=tokens:0-2", "--tokens", "2"),
        (
            "answer",
            TEXT,
            "--model",
            "{tmp}/gpt2",
            "--region",
            "x=tokens:0-2",
            "--tokens",
            "2",
            "--json",
        ),
        ("answer", TEXT, "--model", "{tmp}/gpt2"),
        ("answer",),
    ],
    "circuit": [
        ("circuit", "--pairs", PAIRS, "--model", "{tmp}/gpt2"),
        ("circuit", "--pairs", PAIRS, "--model", "{tmp}/gpt2", "--json"),
        ("circuit", "--model", "{tmp}/gpt2", "--json"),
    ],
    "pairs check": [
        ("pairs", "check", PAIRS, "--model", "{tmp}/gpt2"),
        ("pairs", "check", PAIRS, "--model", "{tmp}/gpt2", "--json"),
    ],
    "next": [
        ("next", TEXT, "--model", "{tmp}/gpt2"),
        ("next", TEXT, "--model", "{tmp}/gpt2", "--json"),
        ("next", TEXT, "--model", "{tmp}/gpt2", "--weigh", "cat=×4", "--json"),
        ("next", TEXT, "--model", "{tmp}/gpt2", "--weigh", "cat=×4", "--region", "r=cat…sat"),
        ("next",),
    ],
    "why": [
        (
            "why",
            TEXT,
            "--from",
            "cat",
            "--to",
            "sat",
            "--model",
            "{tmp}/gpt2",
            "--writes",
            "--target",
            "id:5",
        ),
        ("why", TEXT, "--from", "cat", "--to", "sat"),
        ("why", TEXT, "--from", "mat", "--to", "the"),
        ("why", TEXT, "--from", "cat", "--to", "sat", "--json"),
        ("why", TEXT, "--model", "{tmp}/gpt2", "--from", "#4", "--to", "#1", "--writes"),
        (
            "why",
            TEXT,
            "--model",
            "{tmp}/gpt2",
            "--from",
            "#4",
            "--to",
            "#1",
            "--writes",
            "--target",
            "id:5",
        ),
        ("why", "--model", "{tmp}/gpt2", "--pairs", PAIRS, "--to", "#0"),
        ("why", "--model", "{tmp}/gpt2", "--to", "#0"),
        ("why", "吃 香", "--model", "minilm", "--from", "吃", "--to", "香", "--json"),
    ],
    "cache": [
        ("cache", TEXT, "--mask", "causal", "--budget", "3"),
        ("cache", TEXT, "--mask", "causal", "--policy", "h2o", "--json"),
        ("cache", TEXT, "--model", "{tmp}/gpt2", "--budget", "4", "--json"),
        ("cache",),
    ],
    "view": [("view", "{tmp}/run.json"), ("view", "{tmp}/run.json", "--json")],
    "guide": [("guide", "learners"), ("guide",)],
    "explain softmax": [("explain", "softmax"), ("explain", "softmax", "--json")],
    "explain scaling": [
        ("explain", "scaling", "--samples", "60"),
        ("explain", "scaling", "--samples", "60", "--json"),
    ],
    "explain metric": [
        ("explain", "metric", "entropy"),
        ("explain", "metric", "entropy", "--json"),
    ],
    "explain rule": [
        ("explain", "rule", "bracket"),
        ("explain", "rule", "bracket", "--json"),
    ],
    "explain order": [
        ("explain", "order", TEXT),
        ("explain", "order", TEXT, "--json"),
        ("explain", "order"),
    ],
    "explain matrix-softmax": [
        ("explain", "matrix-softmax", TEXT),
        ("explain", "matrix-softmax", TEXT, "--json"),
        ("explain", "matrix-softmax"),
    ],
}
"""Command lines to try each option on; one that it changes is enough."""
ELSEWHERE = {"explore", "schema", "learn", "series", "scan"}
"""Commands of which an option changes what takes long, or a screen of their own."""
EXAMPLES = {
    name: [line, (*line, "--json"), (name,)]
    for name, line in examples(
        {name: lines[0] for name, lines in BASES.items()}, ELSEWHERE, TEXT
    ).items()
}
"""Those of the commands that none is written for above."""
BASES |= EXAMPLES
FORMS = {"json": About.JSON, "ndjson": About.JSON, "plain": About.PLAIN}
"""What is no screen, by the option that asks for it."""

VALUES = {
    "ends": "the", "sample": "2",
    "file": "{tmp}/text", "ids": "1 2", "pair": "a dog ran",
    "tokenizer": "char", "model": "no-such-model", "weights": WEIGHTS,
    "embeddings": "{tmp}/x.npy",
    "seed": "7", "d_model": "8", "num_heads": "4", "d_k": "6", "d_v": "6", "layer": "9", "head": "1",
    "mask": "window:1", "scale": "none",
    "softcap": "0.5", "position": "sinusoidal", "backend": "torch", "device": "nowhere", "dtype": "float64",
    "max_memory": "10B",
    "output": "{tmp}/out",  "svg": "{tmp}/out.svg", "show": "header", "precision": "5", "top": "1", "color": "always",
    "scale_colors": "log", "max_output": "10B", "query": "cat", "stages": "all", "save": "{tmp}/all.npz",
    "metric": "band", "csv": "{tmp}/out.csv",
    "offset": "1", "key_lengths": "1", "softmax_dtype": "float64", "prefix": "in_", "attention": "reformer:2",
    "text": "dog", "weigh": "cat=×50", "weigh_heads": "L0H0",
    "ignore_config": "key", "estimate": "a dog", "lang": "zh", "start": "sat", "end": "the", "by": "zero",
    "search": "softmax", "notebook": "{tmp}/notebooks", "length": "3", "cut": "text", "subsets": "9",
    "reference": "a dog sat on a mat", "reference_file": "{tmp}/text", "baseline": "none", "measure": "kl",
    "target": "id:5", "versus": "id:6", "at": "#1", "temperature": "2", "samples": "50", "keys": "3",
    "html": "{tmp}/page.html", "html_budget": "3kB", "figure_style": "dark", "figure_parts": "bars",
    "show_as": "heads", "n": "5",
    "window": "3", "chunk": "2", "rounds": "2", "rows": "2", "bias": "alibi", "fail_above": "0", "layout": "torch",
    "embedding_for": "a dog", "orientation": "out-in", "across": "rollout", "sort": "confidence", "exclude": "first",
    "chat": "{tmp}/chat.json", "region": "x=tokens:0-1", "regions": "{tmp}/none.json", "lengths": "24",
    "policy": "tova", "budget": "2", "pairs": PAIRS, "count": "2", "size": "30", "steps": "3",
    "holdout": "2", "circuit": "{tmp}/none.json", "without_heads": "L0H0", "hold": "attention",
    "needle": "{tmp}/text", "haystack": "{tmp}/text", "heads sample": "2",
    "generate": "2", "sample_seed": "3", "value_text": "x y", "source": "a dog",
    "source_states": "{tmp}/x.npy", "global_tokens": "0", "into": "L0H1:q", "adapter": "lora", "with_adapter": "lora",
    "directions": "L0H0", "than": "the", "metric_file": "{tmp}/own.py", "why": "L0H0", "code": "numpy",
    "explain text show": "all", "rule_file": "{tmp}/rules.py", "rules_of": "{tmp}/none.json",
    "expect": "weight>1",
}  # fmt: skip
"""A value for each option that takes one, other than its default; for one of a single command, by
both names.
"""

EXCUSED = {
    "all_links": "only a trained model has links that say little",
    "chat_template": "is about --chat: tests/cli/test_long.py",
    "chat_var": "is about --chat: tests/cli/test_chat_variables.py",
    "generation_prompt": "the same",
    "debug": "shows itself in errors alone: test_process",
    "help": "answered by Typer",
    "full": "short texts are shown whole",
    "batch": "gives what each text gives alone: test_run",
    "words": "words are whole here",
    "heads output_projection": "changes the output, which heads does not show",
    "view all_links": "of a run that left links out",
    "browse": "opens a window",
    "step": "waits for a key: test_explain",
    "why output_projection": "changes the output: what it writes alone",
    "ablate output_projection": "is the default with several heads",
    "patch output_projection": "is the default with several heads",
    "explain matrix-softmax output_projection": "changes the output, which is not shown",
    "weights init output_projection": "changes what is written: test_weights",
    "explain order residual": "is part of the outputs, which differ as much with it",
    "explain order output_projection": "is part of the outputs",
    "pairs check ascii": "draws blanks before words, which this vocabulary has not",
    "cost measure": "takes seconds: test_cost",
    "circuit workers": "gives the same bytes: test_circuit",
    "explain rule rule_file": "adds rules beside the one that is shown: test_rules",
    "models show quiet": "notes only what it fetches: test_model_option",
    **dict.fromkeys(
        (
            f"{command} quiet"
            for command in (
                "explain softmax",
                "explain matrix-softmax",
                "explain scaling",
                "explain order",
                "explain metric",
                "explain rule",
                "weights init",
                "patch",
                "view",
                "guide",
                "compare",
                "cost",
                "cross",
                "find",
                "mask",
                "models list",
                "circuit",
                "pairs check",
                "tensors",
                "weights show",
            )
        ),
        "has nothing to note",
    ),
}


def commands() -> Iterator[tuple[str, Any]]:
    for name in dict.fromkeys(base.split()[0] for base in BASES):
        command = typer.main.get_command(app_of(name))
        for part, inner in getattr(command, "commands", {"": command}).items():
            yield f"{name} {part}".strip(), inner


@cache
def offered() -> list[tuple[str, str, str, bool]]:
    """Each option of each command: the command, the parameter, how it is spelled, whether it takes
    no value.
    """
    found = []
    for name, command in commands():
        for parameter in command.params if name in BASES else ():
            if parameter.param_type_name == "option" and not {
                parameter.name,
                f"{name} {parameter.name}",
            } & set(EXCUSED):
                found.append((name, parameter.name, parameter.opts[0], parameter.is_flag))
    return found


def given(command: str, option: str, name: str, *, is_flag: bool, folder: Path) -> list[str]:
    """An option as it is given; not with any value at all, for an error would stand for what it
    does.
    """
    assert is_flag or name in VALUES, (
        f"{option}: write a value for it in VALUES, other than its default"
    )
    value = VALUES.get(f"{command} {name}") or VALUES.get(name, "")
    return [option] if is_flag else [option, value.replace("{tmp}", str(folder))]


@pytest.mark.many
@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("run", "a b", "--padded"), "--lines"),
        (("explain", "order", "a b", "--head=nan"), "no option --head"),
        (("cost", "--show", "measured"), "--time as well"),
        (("mask", "causal", "--show", "counts"), "two masks or more"),
        (("mask", "causal", "--head", "1"), "--score-bias alibi"),
        (("mask", "causal", "--score-bias", "t5", "--head", "0"), "--score-bias alibi"),
        (("mask", "causal", "--num-heads", "4"), "--score-bias alibi"),
        (("mask", "causal", "--seed", "4"), "bigbird, lsh and random"),
        (("mask", "--model", "minilm", "--head", "1"), "adds none"),
        (("run", "a b", "--json", "--color", "always"), "--color always"),
        (("run", "a b", "--max-output", "1GB"), "--max-output"),
        (("compare", "a b", "a c", "--max-output", "1GB"), "--max-output"),
        (("find", "a b", "--from", "a", "--to", "b", "--residual"), "--effect"),
        (("heads", "a b", "--residual"), "no option --residual"),
        (("cross", "a b", "c", "--layer-norm"), "no option --layer-norm"),
        (("compare", "{tmp}/run.json", "{tmp}/run.json", "--seed", "1"), "--seed"),
        (("compare", "{tmp}/run.json", "{tmp}/run.json", "--mask", "causal"), "--mask"),
        (("compare", "{tmp}/run.json", "{tmp}/run.json", "--d-model", "8"), "--d-model"),
        (("compare", "{tmp}/run.json", "{tmp}/run.json", "--tokenizer", "char"), "--tokenizer"),
        (("ablate", "--lines", "--baseline", "all"), "--lines"),
        (("ablate", "a b", "--measure", "logprob", "--every", "--query", "a"), "--query"),
        (("guide", "--markdown"), "PAGE"),
        (("explain", "metric", "--json"), "NAME"),
        (("explain", "metric", "-o", "{tmp}/out"), "NAME"),
        (("weights", "init", "{tmp}/w.npz", "--tokenizer", "char"), "--embedding-for"),
        (
            ("weights", "convert", WEIGHTS, "{tmp}/w.npz", "--orientation", "in-out"),
            "--orientation",
        ),
        (("scan", "show", "{tmp}", "--plain", "--metric", "entropy"), "--metric"),
    ],
)
def test_an_option_that_would_be_ignored_is_misuse(
    line: tuple[str, ...], says: str, folder: Path
) -> None:
    found = ask(*(part.replace("{tmp}", str(folder)) for part in line))
    assert found.code == 2
    assert found.out == ""
    assert says in found.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command lines name: a small checkpoint with an output head, and a saved run."""
    made = tmp_path_factory.mktemp("ignored")
    small_gpt2(made / "gpt2")
    (made / "run.json").write_text(ask("run", TEXT, "--num-heads", "2", "--json").out)
    np.savez(
        made / "gpt2" / "matrices.npz", **{name: np.eye(4, k=1) for name in ("W_Q", "W_K", "W_V")}
    )
    (made / "text").write_text("dog sat")
    (made / "own.py").write_text("def first(rows):\n    return rows.weights[..., 0]\n")
    (made / "rules.py").write_text("def third(text):\n    return text.j == 2\n")
    np.save(made / "x.npy", np.ones((2, 64)))
    return made


LOOKS = ("show", "brief", "full", "precision", "top", "ascii", "scale_colors")
"""Options that some command declares to be about its screen alone, of which the values to try are
known here.
"""


@cache
def looks() -> list[tuple[str, str, str, str]]:
    """Every option about the screen of every command, beside every form that is no screen."""
    found = []
    for name, command in commands():
        options = {parameter.name: parameter.opts[0] for parameter in command.params}
        found += [
            (name, options[look], options[machine], look)
            for look, about in command.callback.subjects.items()
            for machine, form in FORMS.items()
            if name in BASES
            and look in LOOKS
            and machine in options
            and not about & (form | DELIVERY)
        ]
    return found


@pytest.mark.many
@pytest.mark.parametrize("at", BASES)
def test_how_a_screen_looks_plays_no_part_where_none_is_drawn(at: str, folder: Path) -> None:
    for command, option, machine, look in looks():
        base = [part.replace("{tmp}", str(folder)) for part in BASES[command][0]]
        value = ["all"] if look == "show" else ["3"] if look in ("precision", "top") else ["log"]
        given = [option, *([] if look in ("brief", "full", "ascii") else value)]
        if command == at:
            found = ask(*base, machine, *given)
            assert (found.code, found.out) == (2, ""), (machine, option)
            assert option in found.err


def test_what_variables_say_of_a_screen_is_silent_where_none_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('precision = 3\ncolor = "always"\nscale-colors = "log"\n')
    told = ask("run", "a b", "--json", ATTN_CONFIG=str(tmp_path / "config.toml"), ATTN_LANG="zh")
    assert told.out == ask("run", "a b", "--json").out


def told(folder: Path, *line: str) -> tuple[Any, Any]:
    """What a line answers, and what it writes."""
    kept = {path for path in folder.iterdir() if path.is_file()}
    found = ask(*(part.replace("{tmp}", str(folder)) for part in line))
    wrote = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for path in wrote.keys() - kept:
        path.unlink()
    return found, wrote


def changes_something(command: str, folder: Path) -> None:
    """Assert that each option of a command changes what one of its lines gives."""
    subjects = dict(commands())[command].callback.subjects
    # a document is made sooner than a screen
    alone = {
        base: told(folder, *base)
        for base in sorted(BASES[command], key=lambda base: "--json" not in base)
    }
    for at, name, option, is_flag in offered():
        if at == command:
            words = given(command, option, name, is_flag=is_flag, folder=folder)
            # what says that it changes the document has to change one, what is about the screen
            # alone a screen
            about = subjects[name]
            is_json = About.JSON in about and any("--json" in base for base in alone)
            anywhere = about & (
                DELIVERY | About.AFTER_HEADS
            )  # what changes no link changes few parts of a document
            tried = [base for base in alone if anywhere or ("--json" in base) == is_json]
            assert any(told(folder, *base, *words) != alone[base] for base in tried), (
                f"{option} does nothing in {tried}, and says that it is about {about}"
            )


@pytest.mark.many
@pytest.mark.parametrize("command", BASES)
def test_an_option_does_something(command: str, folder: Path) -> None:
    changes_something(command, folder)


def test_an_option_of_a_new_command_does_something(folder: Path) -> None:
    for command in EXAMPLES:  # every day
        changes_something(command, folder)


def drawn() -> list[tuple[str, str, str, bool]]:
    """The options that say of themselves that they change how everything on the screen looks, the
    answer with it.
    """
    about = {name: command.callback.subjects for name, command in commands()}
    return [
        (command, name, option, is_flag)
        for command, name, option, is_flag in offered()
        if about[command][name] == DRAWING
        and name not in ("brief", "ascii")
        and "brief" in about[command]
    ]


@pytest.mark.parametrize("command", sorted({command for command, *_ in drawn()}))
def test_an_option_that_says_so_changes_the_answer_in_words(command: str, folder: Path) -> None:
    base = BASES[command][0]
    for at, name, option, is_flag in drawn():
        if at == command:
            words = given(command, option, name, is_flag=is_flag, folder=folder)
            assert told(folder, *base, "--brief", *words) != told(folder, *base, "--brief"), (
                f"{option} does nothing"
            )


def test_a_part_of_the_screen_is_refused_in_json_or_changes_it() -> None:
    from attncli.features.explain.screen import EXPLAIN_PARTS

    whole = ask("explain", "a b", "--json").out
    answers = {
        part.name: ask("explain", "a b", "--json", "--show", part.name) for part in EXPLAIN_PARTS
    }
    changing = {
        part for part, answer in answers.items() if answer.code == 0 and answer.out != whole
    }
    assert changing == {"W_Q", "W_K", "W_V", "W_O"}
    assert {answer.code for part, answer in answers.items() if part not in changing} == {2}
    assert "W_V, W_O, which --show adds" in answers["header"].err
    for command in ("run", "heads"):  # what is named there is all that their documents hold
        assert len(ask(command, "a b", "--json", "--show", "header").out) < len(
            ask(command, "a b", "--json").out
        )
