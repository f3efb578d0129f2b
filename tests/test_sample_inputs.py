"""Every file in sample_inputs/: made by its recipe, and used as a reader would use it."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_files
import torch
import torch_classes as classes
from asking import ask
from safetensors.numpy import load_file
from sample_files import FILES, HEADS, SAMPLES, VISIBLE, WIDTH

HUMPTY = "humpty dumpty sat on"


def sample(name: str) -> str:
    return str(SAMPLES / name)


def output(*arguments: str, embeddings: str = "embeddings.npy") -> np.ndarray:
    """The layer's output for `humpty dumpty sat on` with the sample embeddings."""
    found = ask("run", HUMPTY, "--json", "--embeddings", sample(embeddings), *arguments)
    assert found.code == 0, found.err
    return np.array(found.json["layers"][0]["output"])


def test_there_is_a_recipe_for_every_file_and_a_file_for_every_recipe() -> None:
    files = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*") if path.is_file()}
    assert files == set(FILES)


def parts(file: bytes) -> tuple[Any, bytes]:
    """The header and the data of a safetensors file."""
    start = 8 + int.from_bytes(file[:8], "little")
    return json.loads(file[8:start]), file[start:]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in FILES
        if Path(name).suffix in (".txt", ".csv", ".tsv", ".npy", ".safetensors", ".json")
    ],
)
def test_recipes_make_the_same_bytes(name: str) -> None:
    if name.endswith(".safetensors"):  # the library writes the keys of its header in any order
        assert parts(FILES[name]()) == parts((SAMPLES / name).read_bytes())
    elif (
        name == "tokenizer.json"
    ):  # the library may write its file differently; what it holds must stay
        assert (
            json.loads(FILES[name]())["model"] == json.loads((SAMPLES / name).read_bytes())["model"]
        )
    else:
        assert FILES[name]() == (SAMPLES / name).read_bytes()


@pytest.mark.parametrize("name", [name for name in FILES if Path(name).suffix in (".npz", ".pt")])
def test_recipes_make_the_same_numbers(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name]())
    first, second = (_numbers(folder / name) for folder in (tmp_path, SAMPLES))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[key], second[key]) for key in first)


def _numbers(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        return dict(np.load(path))
    return {name: tensor.numpy() for name, tensor in torch.load(path, weights_only=True).items()}


@pytest.mark.parametrize(
    ("name", "module", "options"),
    [
        ("single_head.pt", classes.SingleHead(WIDTH, 8, 8), ()),
        ("list_of_heads.safetensors", classes.ListOfHeads(WIDTH, HEADS, 4), ()),
        ("shared_maps.pt", classes.SharedMaps(WIDTH, HEADS), ()),
        (
            "mha.safetensors",
            torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
            ("--num-heads", "4"),
        ),
        ("matrices.npz", classes.Matrices(WIDTH, 8, 5), ()),
    ],
)
def test_weight_files_give_what_their_class_gives(
    name: str, module: torch.nn.Module, options: tuple[str, ...]
) -> None:
    path = SAMPLES / name
    stored = load_file(path) if path.suffix == ".safetensors" else _numbers(path)
    module.load_state_dict({key: torch.from_numpy(array) for key, array in stored.items()})
    # in float32 the two differ by rounding, which is another on every processor
    module = module.double()
    x = torch.from_numpy(sample_files.embeddings()).double()[None]
    with torch.no_grad(), warnings.catch_warnings():
        expected = (
            module(x, x, x)[0] if isinstance(module, torch.nn.MultiheadAttention) else module(x)
        )
    ours = output("--weights", str(path), "--dtype", "float64", *options)
    assert np.abs(ours - expected[0].numpy()).max() < 1e-9


def test_embeddings_read_the_same_from_either_format() -> None:
    assert np.array_equal(
        output("--d-model", "16"), output("--d-model", "16", embeddings="embeddings.csv")
    )


@pytest.mark.parametrize("name", ["mask.json", "mask.csv", "mask.npy"])
def test_masks_hide_what_is_zero(name: str) -> None:
    document = ask("run", HUMPTY, "--json", "--mask", sample(name)).json
    seen = [
        [score is not None for score in row] for row in document["layers"][0]["heads"][0]["scores"]
    ]
    assert seen == [[value == 1 for value in row] for row in VISIBLE]
    assert document["empty_rows"] == [{"layer": 0, "head": 0, "query": 3}]


@pytest.mark.parametrize(
    ("name", "count"), [("sentences.txt", 3), ("chinese.txt", 5), ("edge_cases.txt", 7)]
)
def test_texts_run_line_by_line(name: str, count: int) -> None:
    found = ask("run", "--file", sample(name), "--lines", "--ndjson")
    assert found.code == 0
    assert len(found.out.splitlines()) == count
    screen = ask("run", "--file", sample(name), "--lines").out
    assert not set(screen) & set("\x1b\u202e\u200b\r\t")


def test_the_sample_tokenizer_cuts_and_marks_its_own() -> None:
    document = ask("tokens", HUMPTY, "--tokenizer", sample("tokenizer.json"), "--json").json
    assert [token["special"] for token in document["tokens"]] == [
        True,
        *[False] * (len(document["tokens"]) - 2),
        True,
    ]
    assert "".join(token["text"] for token in document["tokens"] if not token["special"]).replace(
        " ", ""
    ) == HUMPTY.replace(" ", "")


def test_embeddings_inside_a_weight_file_serve_its_words() -> None:
    found = ask(
        "run",
        "humpty sat on a wall",
        "--weights",
        sample("humpty.safetensors"),
        "--json",
        "--stages",
        "all",
    )
    stored = load_file(SAMPLES / "humpty.safetensors")["embedding.weight"]
    assert np.array_equal(
        np.float32(found.json["layers"][0]["stages"]["hidden"]), stored[[0, 2, 3, 4, 5]]
    )
    assert found.json["model"]["heads"] == HEADS
    missing = ask("run", "humpty fell", "--weights", sample("humpty.safetensors"))
    assert (missing.code, missing.out) == (3, "")
    assert "'fell'" in missing.err


def test_captured_arrays_run_with_their_lengths() -> None:
    document = ask("tensors", sample("captured.npz"), "--json").json
    assert [entry["index"] for entry in document["batch"]] == [[0], [1]]
    short = np.array(document["batch"][1]["heads"][0]["weights"])
    assert (short[:, 4:] == 0).all()
    one = ask("tensors", sample("captured.safetensors"), "--json").json
    assert one["batch"][0]["heads"][2]["weights"] == document["batch"][0]["heads"][2]["weights"]
