"""`attn models`: lists, one model's Spec in words and JSON, estimates."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from asking import ask
from hub_server import COMMIT
from tiny_checkpoints import CASES, make
from validity import validate

from attncli.documents.header import ranges
from attncli.draw.numbers import size_words
from attncli.draw.safe import cells
from attncli.extras import install_command
from attncli.models.aliases import ALIASES

TEXT = "The animal didn't cross the street"
SAMPLES = Path(__file__).parents[3] / "sample_inputs"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A hub cache with one whole model, one of an unknown family without its weights, and one with
    a hostile config.
    """
    configs = {
        "owner--whole": '{"model_type": "bert"}',
        "owner--part": '{"model_type": "mamba"}',
        "owner--odd": '{"model_type": "\\u001b[31m',
    }
    for name, config in configs.items():
        folder = tmp_path / f"models--{name}" / "snapshots" / COMMIT
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config)
        (folder / "tokenizer.json").write_text("{}")
        if name.endswith("whole"):
            safetensors.numpy.save_file(
                {"a": np.zeros(25, np.float32)}, folder / "model.safetensors"
            )
    return tmp_path


def test_the_list_holds_families_aliases_and_the_cache(cache: Path) -> None:
    found = ask("models", "list", "--json", HF_HUB_CACHE=str(cache)).json
    validate(found, "attn.models/1")
    assert "bert" in found["families"]
    assert {
        "name": "minilm",
        "hub": "sentence-transformers/all-MiniLM-L6-v2",
        "family": "bert",
        "here": "package",
        "kind": "encoder",
        "chinese": False,
        "chat": False,
        "install": install_command("minilm"),
        "terms": None,
    } in found["aliases"]
    told = {
        model["name"]: (model["family"], model["native"], model["missing"])
        for model in found["cached"]
    }
    assert told == {
        "owner/whole": ("bert", True, []),
        "owner/part": ("mamba", False, ["model.safetensors"]),
        "owner/odd": (None, False, ["model.safetensors"]),
    }


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("options", [(), ("--ascii",)])
@pytest.mark.parametrize(
    "command", [("models", "list"), ("models", "show", "minilm", "--estimate", TEXT)]
)
def test_screens_fit_and_say_the_main_things(
    cache: Path, command: tuple[str, ...], options: tuple[str, ...], width: int
) -> None:
    found = ask(*command, *options, width=width, HF_HUB_CACHE=str(cache))
    assert found.code == 0
    assert max(cells(line) for line in found.out.splitlines()) <= width
    assert not options or found.out.isascii()
    assert "minilm" in found.out
    assert "\x1b" not in found.out


def test_a_model_is_shown_in_json_and_its_layers_grouped() -> None:
    found = ask("models", "show", "minilm", "--json").json
    validate(found, "attn.model/1")
    assert (found["family"], found["parameters"], found["source"]) == ("bert", 22713216, "package")
    (group,) = found["spec"]["groups"]
    assert group["layers"] == list(range(6))
    assert (group["attention"]["heads"], group["attention"]["d_k"], group["attention"]["mask"]) == (
        12,
        32,
        "none",
    )
    assert found["estimate"] is None


def test_an_estimate_counts_tokens_layers_and_bytes() -> None:
    found = ask("models", "show", "minilm", "--json", "--estimate", TEXT).json["estimate"]
    first = ask("models", "show", "minilm", "--json", "--estimate", TEXT, "--layer", "0").json[
        "estimate"
    ]
    tokens = len(ask("tokens", TEXT, "--model", "minilm", "--json").json["tokens"])
    assert found["tokens"] == first["tokens"] == tokens
    assert (found["layers"], first["layers"]) == (6, 1)
    row, fed = (
        3 * 384 * 4,
        (2 * 384 * 1536 + 1536 + 384) * 4 + 2 * 384 * 4,
    )  # what follows attention, and its norm
    assert found["bytes_read"] - tokens * row == 6 * (first["bytes_read"] - tokens * row) + 5 * fed
    assert found["peak_memory"] == sum(found["memory"].values())


def test_an_estimate_is_what_a_run_states_and_refuses_from() -> None:
    for options, asked in (
        ((), ("--show", "links")),
        (("--layer", "1"), ()),
        (("--dtype", "float64"), ("--show", "links")),
    ):
        told = ask("models", "show", "minilm", "--json", "--estimate", TEXT, *options).json[
            "estimate"
        ]["peak_memory"]
        assert (
            ask("run", TEXT, "--model", "minilm", "--json", *options, *asked).json["resources"][
                "memory_estimate"
            ]
            == told
        )
        refused = ask("run", TEXT, "--model", "minilm", *options, "--max-memory", str(told - 1))
        assert (
            refused.code,
            ask("run", TEXT, "--model", "minilm", *options, "--max-memory", str(told)).code,
        ) == (5, 0)


def test_a_long_text_is_estimated_by_blocks_of_rows_as_it_would_run(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    folder = make(CASES["t5"], tmp_path)
    shutil.copy(SAMPLES / "tokenizer.json", folder / "tokenizer.json")
    short, long = (
        ask("models", "show", str(folder), "--json", "--estimate", "-", stdin=b"a " * count).json[
            "estimate"
        ]
        for count in (1000, 5000)
    )
    assert short["tokens"] * 4 < long["tokens"]
    assert long["peak_memory"] < 4 * short["peak_memory"]
    assert long["memory"]["scores that are kept"] == 0


def test_plain_has_a_row_per_layer_and_per_model(cache: Path) -> None:
    assert len(ask("models", "show", "minilm", "--plain").out.splitlines()) == 7
    listed = ask("models", "list", "--plain", HF_HUB_CACHE=str(cache)).out.splitlines()
    assert listed[0].split("\t") == ["what", "name", "family", "where", "bytes", "runs"]
    (whole,) = (
        line.split("\t")
        for line in listed
        if line.startswith(f"cached\towner/whole@{COMMIT}\tbert")
    )
    assert whole[-1] == "natively"
    assert sum(line.endswith("\tno weights") for line in listed) == 2


def test_names_to_be_copied_are_whole(cache: Path) -> None:
    listed = ask("models", "list", HF_HUB_CACHE=str(cache)).out
    assert all(alias.hub in listed for alias in ALIASES.values())
    folder = "".join(
        ask("models", "show", "minilm", width=60)
        .out.partition("package\n")[2]
        .partition("family")[0]
        .split()
    )
    assert (Path(folder) / "model.safetensors").is_file()


def test_an_alias_is_here_only_where_its_own_version_is(cache: Path) -> None:
    def here(name: str) -> str | None:
        return next(
            one["here"]
            for one in ask("models", "list", "--json", HF_HUB_CACHE=str(cache)).json["aliases"]
            if one["name"] == name
        )

    repository = cache / "models--openai-community--gpt2"
    shutil.copytree(cache / "models--owner--whole", repository)
    assert here("gpt2") is None
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    assert here("gpt2") == "cache"


BAD = [
    (("models", "show", "minlm"), 3, "minilm"),
    (("models", "show", "/nonexistent"), 3, "/nonexistent"),
    (("models", "show", "minilm", "--layer", "6", "--estimate", "x"), 3, "6"),
    (("models", "show", "minilm", "--dtype", "int8", "--estimate", "x"), 2, "int8"),
    (("models", "shwo", "minilm"), 2, "shwo"),
    (("models", "show", "minilm", "--layer", "0"), 2, "--estimate"),
    (("models", "show", "minilm", "--dtype", "float64"), 2, "--estimate"),
    (("models", "show", "minilm", "--estimate", " "), 3, "no text"),
    (
        ("models", "show", "minilm", "--estimate", "word " * 511),
        3,
        "513 tokens, the model has 512 positions",
    ),
]


@pytest.mark.parametrize(("arguments", "code", "says"), BAD)
def test_refusals(arguments: tuple[str, ...], code: int, says: str) -> None:
    found = ask(*arguments, HF_HUB_OFFLINE="1")
    assert (found.code, found.out) == (code, "")
    assert says in found.err


def test_an_unknown_family_is_exit_four(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    safetensors.numpy.save_file({"a": np.zeros(2, np.float32)}, tmp_path / "model.safetensors")
    found = ask("models", "show", str(tmp_path))
    assert found.code == 4
    assert "mamba" in found.err


def test_words_for_ranges_and_sizes() -> None:
    assert [ranges(numbers) for numbers in ([0], [0, 1, 2], [0, 2, 3, 7])] == [
        "0",
        "0-2",
        "0, 2-3, 7",
    ]
    assert [size_words(size) for size in (12, 1200, 3_400_000, 6_442_450_944)] == [
        "12 bytes",
        "1.2 kB",
        "3.4 MB",
        "6.4 GB",
    ]


def test_brief_is_the_answer_alone() -> None:
    whole, brief = (ask("models", "show", "minilm", *more).out for more in ((), ("--brief",)))
    assert brief == "minilm has 6 layers of 12 heads, and 22,713,216 parameters.\n"
    assert whole.endswith(brief)
