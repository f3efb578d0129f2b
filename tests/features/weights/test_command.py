"""`attn weights init|show|convert`, and `--weights` beside it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import ask
from validity import validate

from attncli.features.weights import compute
from attncli.inputs import tensors
from attncli.inputs.tensors import read_tensors, tensor_file, write_tensors

SENTENCE = "The animal didn't cross the street because it was too tired"
LAYOUTS = ("canonical", "torch", "heads", "matrices", "fused")


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--num-heads", "4", "--bias", "--layer-norm"),
        ("--d-model", "24", "--d-k", "7", "--d-v", "5", "--seed", "9"),
    ],
)
def test_what_init_writes_runs_as_the_seeded_weights_do(
    options: tuple[str, ...], ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"w{ending}"
    assert ask("weights", "init", str(path), *options).code == 0
    seeded = ask("run", SENTENCE, "--json", *options).out
    from_file = ask("run", SENTENCE, "--json", "--weights", str(path)).out
    # the file holds the matrices, and no word vectors
    for told, of_seeded in (
        (f'"source":"file","name":"{path.name}"', '"source":"seeded","name":null'),
        ('"drawn":["words"],', ""),
    ):
        assert from_file.count(told) == 1
        from_file = from_file.replace(told, of_seeded)
    assert from_file == seeded


def test_init_writes_the_same_bytes_each_time_and_for_one_seed_only(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.npz", "b.npz", "c.npz")]
    for path, seed in zip(paths, ("3", "3", "4"), strict=True):
        ask("weights", "init", str(path), "--seed", seed)
    first, second, third = (path.read_bytes() for path in paths)
    assert first == second != third


def test_a_random_seed_is_told_and_stored(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    found = ask("weights", "init", str(path), "--seed", "random", "--json")
    seed = tensor_file(path).metadata["seed"]
    assert f"--seed {seed}" in found.err
    assert ask("run", "a", "--weights", str(path), "--json").json["model"]["seed"] == int(seed)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_document(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    shown = ask(
        "weights",
        "init",
        str(path),
        "--d-model",
        "24",
        "--num-heads",
        "4",
        "--bias",
        "--layout",
        layout,
        "--json",
    )
    assert shown.code == 0, shown.err
    canonical = tmp_path / "canonical.npz"
    ask("weights", "init", str(canonical), "--d-model", "24", "--num-heads", "4", "--bias")
    documents = [
        ask("run", SENTENCE, "--json", "--weights", str(file)).json for file in (path, canonical)
    ]
    assert documents[0]["layers"] == documents[1]["layers"]
    assert (
        documents[0]["model"]["digest"] == documents[1]["model"]["digest"] == shown.json["digest"]
    )
    assert not any("also fit" in said for said in documents[0]["warnings"])


@pytest.mark.many
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_converting_there_and_back_loses_nothing(first: str, second: str, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.safetensors", "b.npz", "c.safetensors")]
    ask(
        "weights",
        "init",
        str(paths[0]),
        "--d-model",
        "12",
        "--num-heads",
        "3",
        "--bias",
        "--layer-norm",
        "--layout",
        first,
    )
    ask("weights", "convert", str(paths[0]), str(paths[1]), "--layout", second)
    ask("weights", "convert", str(paths[1]), str(paths[2]), "--layout", first)
    before, after = read_tensors(paths[0]), read_tensors(paths[2])
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_class_keeps_its_scale_when_it_is_converted(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {
        f"{name}.weight": random.normal(size=(4, 4)) for name in ("values", "keys", "queries")
    } | {"fc_out.weight": random.normal(size=(12, 12))}
    write_tensors(tmp_path / "a.npz", weights, {})
    ask("weights", "convert", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"))
    documents = [
        ask("run", "a b c", "--json", "--weights", str(tmp_path / name)).json
        for name in ("a.npz", "b.npz")
    ]
    assert (
        documents[0]["attention"]["scale"]
        == documents[1]["attention"]["scale"]
        == pytest.approx(12**-0.5)
    )
    assert documents[0]["layers"] == documents[1]["layers"]
    assert all("--scale" in document["warnings"][0] for document in documents)


def test_embeddings_for_a_text_go_along(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    shown = ask("weights", "init", str(path), "--embedding-for", "on sat on", "--json").json
    assert shown["embedding"] == {"rows": 2, "by": "text"}
    assert json.loads(tensor_file(path).metadata["tokens"]) == ["on", "sat"]
    assert (
        ask("run", "sat on", "--weights", str(path), "--json").json["layers"]
        == ask("run", "sat on", "--json").json["layers"]
    )
    converted = tmp_path / "c.npz"
    ask("weights", "convert", str(path), str(converted))
    assert tensor_file(converted).metadata == tensor_file(path).metadata


def test_show_lists_tensors_with_their_statistics(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    eye = np.eye(3, dtype=np.float32)
    write_tensors(
        path,
        {"q.weight": eye, "k.weight": -eye, "v.weight": np.full((5, 3), 2.0)},
        {"note": "mine"},
    )
    document = ask("weights", "show", str(path), "--json").json
    validate(document, "attn.weights/1")
    rows = {row["name"]: row for row in document["tensors"]}
    assert rows["v.weight"] == {
        "name": "v.weight", "dtype": "float64", "shape": [5, 3], "bytes": 120, "role": "v.weight", "min": 2, "mean": 2,
        "max": 2, "std": 0,
    }  # fmt: skip
    assert rows["k.weight"]["min"] == -1
    assert rows["k.weight"]["mean"] == pytest.approx(-1 / 3)
    assert document["sizes"]["d_v"] == 5
    assert document["metadata"] == {"note": "mine"}
    assert len(ask("weights", "show", str(path), "--plain").out.splitlines()) == 4
    assert ask("weights", "show", str(path), "--ascii").out.isascii()


def test_show_lists_what_is_no_attention_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    write_tensors(
        path, {"conv.weight": np.zeros((2, 3, 4)), "odd": np.array([1.0, np.nan, np.inf])}, {}
    )
    document = ask("weights", "show", str(path), "--json").json
    validate(document, "attn.weights/1")
    assert document["layout"] is None
    assert any("no attention" in said for said in document["warnings"])
    assert any("2 of 3 values that are not finite" in said for said in document["warnings"])
    run = ask("run", "x", "--weights", str(path))
    assert (run.code, run.out) == (3, "")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_hostile_names_and_metadata_are_inert(width: int, tmp_path: Path) -> None:
    from attncli.draw.safe import cells

    path = tmp_path / "w.safetensors"
    name = "\x1b[31m[bold]\u202eq.weight" + "x" * 200
    write_tensors(path, {name: np.zeros((2, 2)), "\n": np.zeros(1)}, {"\x07": "\x1b]0;title\x07"})
    found = ask("weights", "show", str(path), width=width)
    assert found.code == 0
    assert not set(found.out) & set("\x1b\x07\u202e")
    assert max(cells(line) for line in found.out.splitlines()) <= width
    refused = ask("run", "x", "--weights", str(path))
    assert refused.code == 3
    assert not set(refused.err) & set("\x1b\x07\u202e")


def test_convert_takes_one_attention_out_of_several(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    write_tensors(
        path,
        {
            f"layers.{at}.{role}_proj.weight": np.eye(4) * (at + 1)
            for at in (0, 1)
            for role in "qkv"
        },
        {},
    )
    refused = ask("run", "x", "--weights", str(path))
    assert refused.code == 3
    assert "--prefix layers.0." in refused.err
    one = tmp_path / "one.npz"
    assert ask("weights", "convert", str(path), str(one), "--prefix", "layers.1.").code == 0
    assert read_tensors(one)["q.weight"][0, 0] == 2


def test_the_input_vectors_tell_how_matrices_are_stored(tmp_path: Path) -> None:
    path, vectors = tmp_path / "w.npz", tmp_path / "x.csv"
    matrix = np.arange(12.0).reshape(4, 3)
    write_tensors(path, {f"W_{role}": matrix for role in "QKV"}, {})
    vectors.write_text("1,0,1,0\n0,2,0,2\n1,1,1,1\n")
    asked = ("run", "a b c", "--weights", str(path))
    assert "also fit" in ask(*asked).out
    given = ask(*asked, "--embeddings", str(vectors), "--show", "header,Q", "--precision", "0")
    assert "! " not in given.out
    assert "0 a   6  8 10 " in given.out  # rows 0 and 2 of the matrix, added up


def test_a_square_matrix_is_read_as_in_out_and_can_be_read_the_other_way(tmp_path: Path) -> None:
    path, other = tmp_path / "w.npz", tmp_path / "other.npz"
    matrix = np.arange(9.0).reshape(3, 3)
    write_tensors(path, {f"W_{role}": matrix for role in "QKV"}, {})
    assert "--orientation out-in" in ask("run", "x", "--weights", str(path)).out.replace("\n", " ")
    ask("weights", "convert", str(path), str(other))
    assert np.array_equal(read_tensors(other)["q.weight"], matrix.T)
    ask("weights", "convert", str(path), str(other), "--orientation", "out-in")
    assert np.array_equal(read_tensors(other)["q.weight"], matrix)


BAD = [
    (("init", "w.pt"), 2, ".safetensors"),
    (("init", "w.npz", "--num-heads", "7"), 2, "not divisible"),
    (("init", "w.npz", "--layout", "torhc", "--num-heads", "2"), 2, "--layout torch"),
    (("init", "w.npz", "--layout", "torch"), 2, "--output-projection"),
    (("init", "w.npz", "--layout", "single", "--num-heads", "2"), 2, "one head"),
    (("init", "w.npz", "--layout", "fused", "--d-k", "5"), 2, "d_model"),
    (("init", "w.npz", "--seed", "x"), 2, "'x'"),
    (("init", "w.npz", "--d-model", "10000000"), 5, "GB"),
    (("init", "nowhere/w.npz"), 1, "nowhere"),
    (("show", "missing.npz"), 3, "missing.npz"),
    (("show", "w.txt"), 3, ".txt"),
    (("convert", "missing.npz", "b.npz"), 3, "missing.npz"),
    (("convert", "missing.npz", "b.npz", "--orientation", "up"), 2, "in-out"),
]


@pytest.mark.parametrize(("arguments", "code", "says"), BAD)
def test_bad_questions(
    arguments: tuple[str, ...],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = ask("weights", *arguments)
    assert (found.code, found.out) == (code, "")
    assert says in found.err
    assert list(tmp_path.iterdir()) == []


def test_a_learned_key_has_a_column_of_its_own_everywhere(tmp_path: Path) -> None:
    """torch's add_bias_kv appends a key that no token stands for."""
    path, picture = tmp_path / "kv.npz", tmp_path / "picture.svg"
    random = np.random.default_rng(0)
    sizes = {
        "in_proj_weight": (18, 6),
        "out_proj.weight": (6, 6),
        "bias_k": (1, 1, 6),
        "bias_v": (1, 1, 6),
    }
    write_tensors(
        path, {name: random.normal(size=size) for name, size in sizes.items()}, {"num_heads": "2"}
    )
    asked = ("a b c", "--weights", str(path))
    weights = np.array(ask("run", *asked, "--json").json["layers"][0]["heads"][1]["weights"])
    assert weights.shape == (3, 4)
    assert np.allclose(weights.sum(-1), 1)
    assert "bias_k" in ask("run", *asked).out
    assert sum("bias_k" in line for line in ask("run", *asked, "--plain").out.splitlines()) == 6
    assert ask("run", *asked, "--svg", str(picture)).code == 0
    assert "bias_k" in picture.read_text()
    assert "bias_k" in ask("heads", *asked, "--show", "weights,average").out


def test_of_very_many_tensors_the_first_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, **{f"weird.{number}": np.ones(1, np.float32) for number in range(230)})
    shown = ask("weights", "show", str(path))
    assert sum("weird." in line for line in shown.out.splitlines()) < 75
    assert "170 more (--plain, --json)" in shown.out
    assert len(ask("weights", "show", str(path), "--plain").out.splitlines()) == 231


def test_statistics_are_those_of_the_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", other=np.array([-3.0, 1.0, 5.0, np.nan]))
    (row,) = ask("weights", "show", str(tmp_path / "x.npz"), "--json").json["tensors"]
    assert (row["min"], row["mean"], row["max"]) == (-3.0, 1.0, 5.0)
    assert row["std"] == pytest.approx(np.sqrt(32 / 3))


@pytest.mark.parametrize(
    "command", [("weights", "show"), ("tensors",), ("view",), ("run", "a", "--weights")]
)
def test_a_file_of_thousands_of_tensors_is_read_once(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(
        path, {f"weird.{number}": np.ones((2, 3), np.float32) for number in range(3000)}, {}
    )
    seen: list[str] = []

    def told(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: (seen.append(name), whole(*given, **named))[1]

    monkeypatch.setattr(tensors, "read_header", told("header", tensors.read_header))
    monkeypatch.setattr(compute, "_row_statistics", told("statistics", compute._row_statistics))
    answer = ask(*command, str(path))
    assert answer.code == (0 if command[0] == "weights" else 3)
    assert sorted(seen) == ["header", "statistics"][: 1 + (command[0] == "weights")]
    assert len(answer.err) < 2000


def test_statistics_of_tensors_that_are_alike_are_each_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    kept = {
        f"w{number}": rng.normal(number, 1 + number, (3, 4)).astype(np.float32)
        for number in range(5)
    }
    kept["w2"][1, 1] = np.inf
    write_tensors(tmp_path / "x.safetensors", kept | {"none": np.ones((0, 4), np.float32)}, {})
    rows = {
        row["name"]: row
        for row in ask("weights", "show", str(tmp_path / "x.safetensors"), "--json").json["tensors"]
    }
    assert rows.pop("none")["mean"] is None
    for name, row in rows.items():
        values = kept[name][np.isfinite(kept[name])].astype(np.float64)
        found = [row["min"], row["mean"], row["max"], row["std"]]
        assert found == pytest.approx(
            [values.min(), values.mean(), values.max(), values.std()], rel=1e-9
        )
