"""Checkpoint folders: lazy reads against the safetensors library, and folders that lie."""

import json
import os
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.arrays.backend import choose
from attncli.errors import AttnError, InputError, LimitError, UnsupportedError
from attncli.inputs import checkpoint as module
from attncli.inputs import read_ahead
from attncli.inputs import read_ahead as read_product
from attncli.inputs.checkpoint import PIECE, Checkpoint

RANDOM = np.random.default_rng(11)
TENSORS = {
    "wide": RANDOM.standard_normal((13, 7)).astype(np.float32),
    "half": RANDOM.standard_normal((11, 5)).astype(np.float16),
    "brain": RANDOM.standard_normal((17, 3)).astype(ml_dtypes.bfloat16),
    "double": RANDOM.standard_normal((5,)),
    "ids": np.arange(6).reshape(1, 6),
    "flag": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5, np.float32),
}


def make(
    folder: Path,
    shards: dict[str, dict[str, np.ndarray]],
    *,
    config: object = None,
    index: dict[str, str] | None = None,
) -> Path:
    """A checkpoint folder; an index is written where there are several shards or one is given."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "toy"}))
    for name, tensors in shards.items():
        safetensors.numpy.save_file(tensors, folder / name)
    if len(shards) > 1 or index is not None:
        places = (
            {tensor: shard for shard, tensors in shards.items() for tensor in tensors}
            if index is None
            else index
        )
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": places})
        )
    return folder


@pytest.fixture
def single(tmp_path: Path) -> Path:
    return make(tmp_path / "one", {"model.safetensors": TENSORS})


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    names = list(TENSORS)
    first, second = ({name: TENSORS[name] for name in part} for part in (names[:3], names[3:]))
    return make(
        tmp_path / "two",
        {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second},
    )


@pytest.mark.parametrize("layout", ["single", "sharded"])
def test_every_tensor_is_what_the_library_wrote(
    layout: str, request: pytest.FixtureRequest
) -> None:
    with Checkpoint.open(request.getfixturevalue(layout)) as found:
        assert set(found.names()) == set(TENSORS)
        for name, expected in TENSORS.items():
            array = found.read(name)
            assert array.dtype == expected.dtype
            assert array.shape == expected.shape
            assert array.tobytes() == expected.tobytes()
            assert found.names()[name].dtype == expected.dtype.name


def test_opening_reads_no_weights_and_each_read_counts_its_bytes(single: Path) -> None:
    found = Checkpoint.open(single)
    assert found.bytes_read == 0
    found.read("wide")
    assert found.bytes_read == 13 * 7 * 4
    found.read_rows("brain", [2, 3, 4])
    assert found.bytes_read == 13 * 7 * 4 + 3 * 3 * 2
    found.read_rows("half", [7, 2, 7])
    assert found.bytes_read == 13 * 7 * 4 + 3 * 3 * 2 + 2 * 5 * 2


@pytest.mark.parametrize("name", ["wide", "half", "brain", "double", "ids"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_reads_convert_as_numpy_does(single: Path, name: str, dtype: str) -> None:
    found = Checkpoint.open(single)
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    assert found.read(name, dtype).tobytes() == TENSORS[name].astype(kind).tobytes()


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.integers(0, 16), max_size=9))
def test_rows_are_numpys(tmp_path_factory: pytest.TempPathFactory, rows: list[int]) -> None:
    folder = tmp_path_factory.getbasetemp() / "rows"
    if not folder.exists():
        make(folder, {"model.safetensors": TENSORS})
    with Checkpoint.open(folder) as found:
        assert found.read_rows("brain", rows).tobytes() == TENSORS["brain"][rows].tobytes()
        assert (
            found.read_rows("brain", rows, "float32").tobytes()
            == TENSORS["brain"][rows].astype(np.float32).tobytes()
        )


def test_names_come_in_file_order(sharded: Path) -> None:
    places = [(str(info.file), info.start) for info in Checkpoint.open(sharded).names().values()]
    assert places == sorted(places)


@pytest.mark.parametrize("rows", [[13], [-1], [0, 99]])
def test_rows_outside_are_refused(single: Path, rows: list[int]) -> None:
    with pytest.raises(InputError, match="no rows"):
        Checkpoint.open(single).read_rows("wide", rows)


def test_a_scalar_has_no_rows(single: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        Checkpoint.open(single).read_rows("scalar", [0])


def test_an_unknown_tensor_is_answered_with_the_nearest(single: Path) -> None:
    with pytest.raises(InputError) as error:
        Checkpoint.open(single).read("wid")
    assert "wide" in error.value.expected


@pytest.mark.parametrize("kind", ["wide", "half", "brain", "double"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, kind: str, bad: float) -> None:
    poisoned = TENSORS[kind].copy()
    poisoned.reshape(-1)[-1] = bad
    found = Checkpoint.open(make(tmp_path / "x", {"model.safetensors": {"a": poisoned}}))
    for dtype in (None, "float32"):
        with pytest.raises(InputError, match="not finite"):
            found.read("a", dtype)


def test_a_number_too_large_for_the_type_read_is_refused(tmp_path: Path) -> None:
    found = Checkpoint.open(make(tmp_path / "x", {"model.safetensors": {"a": np.float32([1e30])}}))
    assert found.read("a")[0] == np.float32(1e30)
    with pytest.raises(InputError, match="float16"):
        found.read("a", "float16")


def test_reading_ahead_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_A_PLAN", 1)
    big = {
        f"t{i}": RANDOM.standard_normal((1009, 1031 + i)).astype(ml_dtypes.bfloat16)
        for i in range(5)
    } | {"none": np.zeros(0, np.float32)}
    with Checkpoint.open(make(tmp_path / "x", {"model.safetensors": big})) as found:
        order = list(found.names())
        for asked in (order, order[1:], order[:2] + order[4:], order[::-1], [order[0], order[0]]):
            before = found.bytes_read
            found.ahead(order)
            for name in asked:
                assert (
                    found.read(name, "float32").tobytes() == big[name].astype(np.float32).tobytes()
                )
            assert found.bytes_read - before == sum(big[name].nbytes for name in asked)


COMPUTING = [("numpy", "float32"), ("torch", "float32"), ("torch", "bfloat16")]


@pytest.mark.many
@pytest.mark.parametrize("stored", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(("rows", "width"), [(1021, 1031), (61, 14_011), (3, 262_153)])
@pytest.mark.parametrize("count", [7, 65])
def test_a_product_while_reading_is_that_of_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str, rows: int, width: int, count: int
) -> None:
    monkeypatch.setattr(module, "WORTH_A_PLAN", 2**20)
    for reading in (read_ahead, read_product):
        monkeypatch.setattr(reading, "PIECE", 2**20)
    chance = np.random.default_rng(rows)
    weight = chance.standard_normal((rows, width)).astype(
        ml_dtypes.bfloat16 if stored == "bfloat16" else stored
    )
    x, bias = (
        chance.standard_normal((count, width)).astype(np.float32),
        chance.standard_normal(rows).astype(np.float32),
    )
    folder = make(tmp_path / "m", {"model.safetensors": {"a": weight, "b": weight[::-1].copy()}})
    wanted = cache(lambda: x.astype(np.float64) @ weight.astype(np.float64).T)
    with Checkpoint.open(folder) as found:
        for name, dtype in COMPUTING:
            backend = choose(name, device=None, dtype=dtype)
            rounding = 2.0**-7 if dtype == "bfloat16" else 1e-5
            held, before = backend.array(x), found.bytes_read
            assert found.product("b", held, backend) is None  # not announced, or the reading ended
            found.ahead(["a", "b"])
            assert found.product("b", held, backend) is None  # not its turn
            assert found.product("a", held[:1], backend) is None  # one row goes another way
            product = found.product("a", held, backend, backend.array(bias))
            if width * max(weight.itemsize, 2 if dtype == "bfloat16" else 4) > 2**20:
                assert product is None  # a row is more than a tile
                continue
            assert product is not None
            assert backend.dtype_of(product) == dtype
            assert (
                np.abs(backend.numpy(product) - wanted() - bias).max() < rounding * 4 * width**0.5
            )
            assert found.bytes_read - before == weight.nbytes
            assert np.array_equal(found.read("b", "float32"), weight[::-1].astype(np.float32))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [(0, 0), (700, 1030), (1020, 3)])
def test_a_weight_that_is_not_finite_is_refused_while_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float, place: tuple[int, int]
) -> None:
    monkeypatch.setattr(module, "WORTH_A_PLAN", 2**20)
    weight = np.ones((1021, 1031), ml_dtypes.bfloat16)
    weight[place] = bad
    folder = make(tmp_path / "m", {"model.safetensors": {"a": weight}})
    with Checkpoint.open(folder) as found:
        for name, dtype in COMPUTING:
            for count in (5, 40):
                backend = choose(name, device=None, dtype=dtype)
                found.ahead(["a"])
                # nothing of the matrix matters, and still it is refused
                with pytest.raises(
                    InputError, match="tensor 'a' holds numbers that are not finite"
                ):
                    found.product("a", backend.full((count, 1031), 0.0, dtype), backend)
        found.ahead(["a"])
        with pytest.raises(InputError, match="tensor 'a' holds numbers that are not finite"):
            found.product(
                "a", np.zeros((5, 1021)), choose("numpy", device=None, dtype="float64"), in_out=True
            )


@pytest.mark.parametrize(("name", "dtype"), COMPUTING)
def test_a_vector_that_is_not_finite_is_no_fault_of_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str
) -> None:
    monkeypatch.setattr(module, "WORTH_A_PLAN", 2**20)
    folder = make(
        tmp_path / "m", {"model.safetensors": {"a": np.ones((1021, 1031), ml_dtypes.bfloat16)}}
    )
    backend = choose(name, device=None, dtype=dtype)
    with Checkpoint.open(folder) as found:
        for place in (0, 1):
            x = backend.full((2, 1031), 1.0, dtype)
            x[place, 3] = np.nan
            found.ahead(["a"])
            product = found.product("a", x, backend)
            assert product is not None
            assert np.abs(backend.numpy(product[1 - place]) / 1031 - 1).max() < 0.004
            assert np.isnan(backend.numpy(product[place])).all()


def test_a_file_that_shrinks_or_changes_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORTH_A_PLAN", 1)
    for change, ahead in ((_shrink, False), (_shrink, True), (_rewrite, False)):
        folder = make(
            tmp_path / "x",
            {
                "model.safetensors": {
                    "a": np.zeros((3, 2**21), np.float32),
                    "b": np.zeros(2**22, np.float32),
                }
            },
        )
        found = Checkpoint.open(folder)
        found.read_rows("a", [0])
        change(folder / "model.safetensors")
        if ahead:
            found.ahead(["a", "b"])
        with pytest.raises(InputError, match=r"shorter|changed"):
            found.read("a")
        found.close()


def _shrink(path: Path) -> None:
    os.truncate(path, 2**20)


def _rewrite(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(-4, os.SEEK_END)
        stream.write(b"abcd")
    os.utime(path, ns=(1, 1))


def test_the_tokenizers_file(single: Path) -> None:
    assert Checkpoint.open(single).tokenizer_path is None
    (single / "tokenizer.json").write_text("{}")
    assert Checkpoint.open(single).tokenizer_path == (single / "tokenizer.json").resolve()


CONFIGS = [
    ("{", InputError, "JSON"),
    ('{"a": 1, "a": 2}', InputError, "twice"),
    ('{"a": 1e400}', InputError, "too large"),
    ("[1]", InputError, "array"),
    ("[" * 100_000, InputError, "nested|JSON"),
    ('{"a": ' + "9" * 5000 + "}", InputError, "JSON"),
    (" " * (16 * 2**20 + 1), LimitError, "bytes"),
    ('{"quantization_config": {"quant_method": "awq"}}', UnsupportedError, "awq"),
]


@pytest.mark.parametrize(("text", "kind", "says"), CONFIGS, ids=range(len(CONFIGS)))
def test_bad_configs_are_refused(single: Path, text: str, kind: type[AttnError], says: str) -> None:
    (single / "config.json").write_text(text)
    with pytest.raises(kind, match=says):
        Checkpoint.open(single)


def test_what_is_not_a_checkpoint_is_said(tmp_path: Path, single: Path) -> None:
    for path in (tmp_path / "nothing", single / "config.json", tmp_path):
        with pytest.raises(InputError):
            Checkpoint.open(path)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("place", [0, -1])
def test_a_number_that_is_not_finite_is_found_in_every_piece(
    tmp_path: Path, kind: type, place: int
) -> None:
    poisoned = np.zeros(
        2 * PIECE // np.dtype(kind).itemsize + 5, kind
    )  # three pieces, of which one is spoilt
    poisoned[place] = np.nan
    found = Checkpoint.open(make(tmp_path / "x", {"model.safetensors": {"a": poisoned}}))
    for dtype in (None, "float32", "float64"):
        with pytest.raises(InputError, match="not finite"):
            found.read("a", dtype)


def test_numbers_that_json_has_no_word_for_are_read_as_transformers_reads_them(
    single: Path,
) -> None:
    (single / "config.json").write_text('{"a": Infinity, "b": {"__float__": "-Infinity"}}')
    assert Checkpoint.open(single).config == {"a": np.inf, "b": -np.inf}
