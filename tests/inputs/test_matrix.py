"""One matrix from a file."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.errors import InputError, LimitError, UnsupportedError
from attncli.inputs import tensors
from attncli.inputs.tensors import read_matrix, write_tensors


def wrote(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@settings(deadline=None, max_examples=30)
@given(
    values=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    kind=st.sampled_from([".npy", ".npz", ".json", ".csv", ".tsv"]),
)
def test_every_kind_gives_the_numbers_back(tmp_path_factory, values, kind):
    path = tmp_path_factory.mktemp("matrix") / f"m{kind}"
    match kind:
        case ".npy":
            np.save(path, values)
        case ".npz":
            np.savez(path, values)
        case ".json":
            path.write_text(json.dumps(values.tolist()))
        case _:
            sign = "," if kind == ".csv" else "\t"
            path.write_text("\n".join(sign.join(map(repr, row)) for row in values.tolist()))
    found = read_matrix(path, "mask")
    assert found.dtype == np.float64
    assert np.array_equal(found, values)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("m.json", "[[true, false], [false, true]]", [[True, False], [False, True]]),
        ("m.json", "\ufeff[[1, 0]]", [[1.0, 0.0]]),
        ("m.json", "[[true, 0.5]]", [[1.0, 0.5]]),
        ("m.csv", "1,0\r\n1,1\r\n\r\n", [[1.0, 0.0], [1.0, 1.0]]),
        ("m.csv", " 1 ; -2.5e1 \n+.5;3.", [[1.0, -25.0], [0.5, 3.0]]),
        ("m.csv", "true,FALSE\nTrue,false", [[True, False], [True, False]]),
        ("m.csv", "\ufeff1,2", [[1.0, 2.0]]),
        ("m.csv", '"1","2"', [[1.0, 2.0]]),
        ("m.csv", "\n1\n2\n", [[1.0], [2.0]]),
        ("m.CSV", "1\t2", [[1.0, 2.0]]),
    ],
)
def test_text_formats(tmp_path, name, content, expected):
    found = read_matrix(wrote(tmp_path, name, content), "mask")
    assert found.tolist() == expected
    assert found.dtype == (
        np.bool_
        if expected[0][0] in (True, False) and isinstance(expected[0][0], bool)
        else np.float64
    )


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("m.json", "[[1, 0], [1]]", "row 1 of the mask has 1 values, row 0 has 2"),
        ("m.json", "[[1, 0], [1, null]]", "row 1, column 1 of the mask is null"),
        ("m.json", '[["a", 0]]', "row 0, column 0 of the mask is 'a'"),
        ("m.json", "[[1, [0]]]", "row 0, column 1 of the mask is a list"),
        ("m.json", "[[1, NaN]]", "not JSON at line 1, column"),
        ("m.json", "[[1, 0],\n", "not JSON at line"),
        ("m.json", "[[1, 1e999]]", "not JSON|is inf"),
        ("m.json", "[" * 100_000, "this JSON is nested too deeply"),
        ("m.json", '{"a": 1}', "not a list of rows"),
        ("m.json", "[1, 2]", "not a list of rows"),
        ("m.json", "[]", r"shape \[0, 0\]"),
        ("m.json", "[[], []]", r"shape \[2, 0\]"),
        ("m.csv", "q,k\n1,0", "row 0, column 0 of the mask is 'q'"),
        ("m.csv", "1,0\n1", "row 1 of the mask has 1 values"),
        ("m.csv", "1,\n1,2", "row 0, column 1 of the mask is empty"),
        ("m.csv", ",\n1,2", "row 0, column 0 of the mask is empty"),
        ("m.csv", "1,nan", "'nan'"),
        ("m.csv", "1,1e999", "row 0, column 1 of the mask is inf"),
        ("m.csv", "1,１", "'１'"),
        ("m.csv", "1,1_000", "'1_000'"),
        ("m.csv", "1,0x10", "'0x10'"),
        ("m.csv", '1,"2', "not CSV"),
        ("m.csv", "1," + "2" * 200_000, "not CSV"),
        ("m.csv", b"1,\xff", "not UTF-8 at byte 2"),
        ("m.csv", " \n\n", r"shape \[0, 0\]"),
        ("m.csv", "1,\x1b[31m", r"is '\\x1b\[31m'"),
        ("m.txt", "1", "not a known kind of mask file"),
        ("m.json", "", "empty"),
    ],
)
def test_what_is_no_matrix(tmp_path, name, content, what):
    path = wrote(tmp_path, name, content)
    with pytest.raises(InputError, match=what) as caught:
        read_matrix(path, "mask")
    assert caught.value.where == str(path)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 3), (0, 3), (3, 0)])
def test_other_shapes(tmp_path, shape):
    np.save(tmp_path / "m.npy", np.zeros(shape))
    with pytest.raises(InputError, match="has the shape"):
        read_matrix(tmp_path / "m.npy", "mask")


def test_nan_in_an_array_is_named_by_row_and_column(tmp_path):
    values = np.zeros((2, 3), np.float32)
    values[1, 2] = np.nan
    np.save(tmp_path / "m.npy", values)
    with pytest.raises(InputError, match="row 1, column 2 of the embeddings is nan"):
        read_matrix(tmp_path / "m.npy", "embeddings")


def test_arrays_keep_their_data_type(tmp_path):
    for dtype in (np.bool_, np.uint8, np.float16):
        np.save(tmp_path / "m.npy", np.ones((2, 2), dtype))
        assert read_matrix(tmp_path / "m.npy", "mask").dtype == dtype
    np.save(tmp_path / "m.npy", np.ones((2, 2), complex))
    with pytest.raises(UnsupportedError, match="complex128"):
        read_matrix(tmp_path / "m.npy", "mask")


def test_archives_of_several_arrays(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, a=np.zeros((2, 2)), mask=np.ones((2, 2)))
    assert read_matrix(path, "mask").sum() == 4
    with pytest.raises(InputError, match="2 arrays: a, mask"):
        read_matrix(path, "embeddings")
    write_tensors(
        path, {"x": np.ones((2, 2), ml_dtypes.bfloat16)}, {"note": "metadata are no array"}
    )
    assert read_matrix(path, "embeddings").sum() == 4


def test_long_text_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "TEXT_LIMIT", 5)
    with pytest.raises(LimitError):
        read_matrix(wrote(tmp_path, "m.csv", "1,2,3,4"), "mask")
