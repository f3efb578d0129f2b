"""`--source`: the decoder of an encoder-decoder on its own text, reading another."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from asking import ask
from commands import commands
from msgspec.structs import replace
from tiny_checkpoints import CASES, make
from walking import lines, pressed

import attncli
from attncli.explore.loaded_run import LiveSource
from attncli.mechanism.context import Interventions, KnockOut

SAMPLES = Path(__file__).parent.parent.parent / "sample_inputs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reading_text("bart", tmp_path_factory.mktemp("bart"))


def reading_text(family: str, folder: Path) -> Path:
    """A checkpoint with the sample tokenizer, and as many vectors as that has."""
    case = replace(CASES[family], config={**CASES[family].config, "vocab_size": 320})
    made = make(case, folder)
    shutil.copy(SAMPLES / "tokenizer.json", made / "tokenizer.json")
    return made


def test_the_decoder_runs_on_its_own_text_with_causal_masks(folder: Path) -> None:
    text, source = "the cat sat", "the dog"
    document = ask(
        "run", text, "--model", str(folder), "--source", source, "--json", "--dtype", "float64"
    ).json
    decoder = attncli.load(folder, dtype="float64").decoder(source)
    traces = list(decoder.trace(text))
    assert document["attention"]["mask"] == "causal"
    assert document["warnings"][-1].endswith("its encoder read: the dog")
    assert [layer["layer"] for layer in document["layers"]] == [trace.layer for trace in traces]
    for layer, trace in zip(document["layers"], traces, strict=True):
        for head in layer["heads"]:
            assert np.allclose(head["weights"], trace.stages["weights"][head["head"]], atol=1e-12)
    other = ask(
        "run", text, "--model", str(folder), "--source", "a mat", "--json", "--dtype", "float64"
    ).json
    assert document["layers"][1]["heads"][0]["weights"] != other["layers"][1]["heads"][0]["weights"]


@pytest.mark.parametrize(("model", "code"), [((), 2), (("--model", "minilm"), 4)])
def test_only_encoder_decoders_read_a_source(model: tuple[str, ...], code: int) -> None:
    found = ask("heads", "it was", "--source", "it is", *model)
    assert (found.code, found.out) == (code, "")


def test_captured_states_take_the_place_of_the_text_that_they_came_from(
    folder: Path, tmp_path: Path
) -> None:
    read = attncli.load(folder, dtype="float64").decoder("the dog").memory
    np.save(
        tmp_path / "states.npy", read[None]
    )  # with the axis of a batch of one, as libraries give them
    told = ("the cat sat", "--model", str(folder), "--json", "--dtype", "float64")
    documents = [
        ask("run", *told, *source).json
        for source in (("--source", "the dog"), ("--source-states", str(tmp_path / "states.npy")))
    ]
    assert documents[0]["layers"] == documents[1]["layers"]
    assert documents[1]["warnings"][-1].endswith(
        f"over {len(read)} captured states of its encoder: states.npy"
    )


def test_whisper_reads_captured_states_and_nothing_else(tmp_path: Path) -> None:
    made = str(reading_text("whisper", tmp_path / "whisper"))
    np.savez(tmp_path / "states.npz", states=np.ones((7, 30)), other=np.ones(3))
    np.save(tmp_path / "narrow.npy", np.ones((7, 12)))
    told = ("heads", "--model", made, "--ids", "2 5 9", "--json")
    found = ask(*told, "--source-states", str(tmp_path / "states.npz")).json
    assert found["warnings"] == [
        "this is the decoder, over 7 captured states of its encoder: states.npz"
    ]
    seen = ("cross", "a", "--model", made, "--layer", "1", "--json")
    (layer,) = ask(*seen, "--source-states", str(tmp_path / "states.npz")).json["layers"]
    assert np.allclose(
        [head["weights"] for head in layer["heads"]], 1 / 7, atol=1e-6
    )  # equal states, equal weights
    assert (ask(*seen).code, ask("cross", "a", "b", "--source-states", "x.npy").code) == (2, 2)
    for extra, code, what in (
        ((), 2, "reads what its encoder made"),
        (("--source-states", str(tmp_path / "narrow.npy")), 3, "12 wide"),
        (("--source", "a", "--source-states", "b.npy"), 4, "no cross-attention"),
    ):
        refused = ask(*told, *extra)
        assert (refused.code, what in refused.err) == (code, True), refused.err


def test_a_link_to_the_text_that_is_read_is_cut(folder: Path) -> None:
    text, source = "the cat sat", "the dog"
    told = (
        "ablate",
        text,
        "--model",
        str(folder),
        "--source",
        source,
        "--cross",
        "--from",
        "cat",
        "--to",
        "dog",
    )
    document = ask(*told, "--json", "--dtype", "float64").json
    queries, keys = (tuple(document["link"][end]) for end in ("query", "key"))
    assert (queries, keys, document["link"]["text"]) == ((5, 6, 7), (3, 4, 5), "dog")
    decoder = attncli.load(folder, dtype="float64").decoder(source)

    def vector(cut: Interventions) -> np.ndarray:
        last = list(decoder.trace(text, interventions=cut))[-1]
        return np.asarray(decoder.finish(last.after))[list(queries)].mean(0)

    def turn(cut: Interventions) -> float:
        a, b = vector({}), vector(cut)
        return float(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    layers, heads = len(decoder.spec.blocks), decoder.spec.blocks[0].cross.heads
    found = {(one["layer"], one["head"]): one for one in document["effects"]}
    assert {one["attention"] for one in document["effects"]} == {"cross"}
    assert sorted(found) == [(layer, head) for layer in range(layers) for head in range(heads)]
    for (layer, head), one in found.items():
        expected = turn({(layer, "cross"): (KnockOut((head,), queries, keys),)})
        assert one["vector"]["cosine"] == pytest.approx(expected, abs=1e-12)
    everywhere = {
        (layer, "cross"): (KnockOut(tuple(range(heads)), queries, keys),) for layer in range(layers)
    }
    assert (
        document["together"]["vector"]["cosine"] == pytest.approx(turn(everywhere), abs=1e-12) != 0
    )
    screen = " ".join(ask(*told, "--baseline", "none").out.split())
    assert "cat no longer sees dog" in screen
    assert "the same for the heads" not in screen
    other = ask(*told[:-4], "--from", "cat", "--to", "cat")
    assert (other.code, "no token 'cat' in the text" in other.err) == (3, True)
    for wrong in (
        ("ablate", text, *told[6:]),
        ("ablate", text, "--cross"),
        ("ablate", text, "--from", "cat", "--to", "sat", "--cross"),
    ):
        assert ask(*wrong).code == 2


READING = {
    "run": ("--query", "cat"),
    "heads": (),
    "explain": ("--query", "cat"),
    "find": ("--from", "sat", "--to", "cat"),
    "ablate": ("--target", "cat", "--full"),
    "logits": ("--target", "cat", "--full"),
    "patch": ("the hat sat", "--target", "cat"),
    "cross": ("--layer", "1"),
    "why": ("--from", "sat", "--to", "KEY", "--cross"),
    "cache": ("--policy", "h2o", "--budget", "4"),
}
"""Commands that read a source, with words for a text of eleven tokens. explore has no screen here."""


@pytest.mark.thorough
def test_every_command_that_reads_a_source_is_tried() -> None:
    reading = {
        name
        for name, command in commands()
        if any("--source" in one.opts for one in command.params) and " " not in name
    }
    assert reading == {*READING, "explore"}


@pytest.mark.parametrize(
    "source", ["dog bug dim dog bug", pytest.param("mob", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("name", READING)
def test_keys_are_those_of_a_source_longer_or_shorter_than_the_text(
    folder: Path, name: str, source: str
) -> None:
    """The text is eleven tokens: an index of the other side is none of it, or another word."""
    text = "the cat sat"
    words = [word.replace("KEY", source[-3:]) for word in READING[name]]
    told = (name, text, *words, "--model", str(folder), "--source", source)
    if name == "cross":
        told = (name, text, source, *words, "--model", str(folder))
    screen = ask(*told)
    document = ask(*(word for word in told if word != "--full"), "--json")
    assert (screen.code, document.code) == (0, 0), screen.err + document.err
    keys = document.json.get("source_tokens" if name != "cross" else "keys", [])
    assert bool(keys) == (name in ("ablate", "logits", "cross", "why"))
    pieces = {f"{letter} ({word})" for word in source.split() for letter in word}
    pieces |= {"im (dim)", "ob (mob)", "[SEP]", "[CLS]", "␣"}
    # what heads of cross-attention look at: in a column, in links, or as the key of the whole
    shown = re.findall(r"L\d H\d x .*  (\S+(?: \(\w+\))?) \d\.\d\d$", screen.out, re.MULTILINE)
    shown += re.findall(r"L1 H\d  .* → \d+ (\S+(?: \(\w+\))?)  ", screen.out)
    assert bool(shown) == (name in ("ablate", "cross"))
    assert set(shown) <= pieces
    cross = [row for row in document.json.get("effects", []) if row["attention"] == "cross"]
    looked = [row["looks"]["key"] for row in cross if row.get("looks")]
    assert all(key < len(keys) for key in looked)
    if name == "why":
        key = document.json["link"]["key"]
        named = f'"{keys[key]["text"]}" (a piece of "{source[-3:]}")'
        assert named in " ".join(screen.out.split())


def test_a_link_to_captured_states_is_cut_by_their_number(folder: Path, tmp_path: Path) -> None:
    np.save(
        tmp_path / "states.npy", attncli.load(folder, dtype="float64").decoder("the dog").memory
    )
    told = (
        "ablate",
        "the cat sat",
        "--model",
        str(folder),
        "--cross",
        "--from",
        "cat",
        "--json",
        "--dtype",
        "float64",
    )
    read = ask(*told, "--source", "the dog", "--to", "#3-5").json
    captured = ask(*told, "--source-states", str(tmp_path / "states.npy"), "--to", "#3-5").json
    assert "text" not in captured["link"]
    assert captured["together"]["vector"]["cosine"] == pytest.approx(
        read["together"]["vector"]["cosine"], rel=1e-6
    )
    told = (*told[:-3], "--source-states", str(tmp_path / "states.npy"), "--to", "s3")
    assert "no longer sees s3" in " ".join(ask(*told).out.split())


@pytest.mark.thorough
@pytest.mark.parametrize("source", ["dog bug dim dog bug", "mob"])
def test_the_explorer_walks_a_text_beside_a_longer_or_shorter_source(
    folder: Path, source: str
) -> None:
    """Every head at every word, with its numbers and its effects: no index of the other side."""
    reading = LiveSource.of(attncli.load(folder).decoder(source), "the cat sat")
    keys = (
        "right",
        "right",
        "down",
        "down",
        "tab",
        "right",
        "e",
        "l",
        "w",
        "s",
        "left",
        "up",
        "end",
    )
    screens: list[str] = []
    pressed(reading, *keys, each=lambda app: screens.append("\n".join(lines(app))))
    assert len(screens) == len(keys)
    # what is looked at in the own text is of it, whatever the source holds
    assert not any(re.search(r"\b(dog|bug|dim|mob)\b", screen) for screen in screens[:4])
