"""Tensor files of every kind by their ending."""

import os
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.errors import AttnError, InputError, LimitError, UnsupportedError, UsageError
from attncli.inputs import tensors
from attncli.inputs.safetensors_file import NATIVE
from attncli.inputs.tensors import (
    TensorSummary,
    check_writable_format,
    read_tensors,
    tensor_file,
    write_tensors,
)

TENSORS = {
    "q.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "mask": np.array([True, False]),
    "count": np.array(7, np.int64),
    "none": np.zeros((0, 5), np.float16),
}


def torch_file(path, content, **options):
    import torch

    torch.save(content, path, **options)
    return path


def written(path, array):
    """A file of the kind that the path's ending names, with one array, x."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".pt":
        import torch

        torch_file(path, {"x": torch.from_numpy(array)})
    else:
        write_tensors(path, {"x": array}, {})


@pytest.mark.parametrize("kind", [".safetensors", ".npz", ".SAFETENSORS"])
def test_round_trip(tmp_path, kind):
    path = tmp_path / f"file{kind}"
    write_tensors(path, TENSORS, {"schema": "attn.run/1"})
    found = read_tensors(path)
    assert set(found) == set(TENSORS)
    assert all(
        found[name].dtype == array.dtype and np.array_equal(found[name], array)
        for name, array in TENSORS.items()
    )
    assert tensor_file(path).metadata == {"schema": "attn.run/1"}
    assert sorted(tensor_file(path).summaries) == sorted(
        TensorSummary(name, array.dtype.name, array.shape) for name, array in TENSORS.items()
    )
    before = path.read_bytes()
    write_tensors(path, dict(reversed(TENSORS.items())), {"schema": "attn.run/1"})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@settings(deadline=None, max_examples=30)
@given(
    kind=st.sampled_from([".safetensors", ".npz"]),
    array=st.sampled_from(sorted(NATIVE)).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
        )
    ),
)
def test_any_array_comes_back_as_it_went(tmp_path_factory, kind, array):
    path = tmp_path_factory.mktemp("round") / f"a{kind}"
    write_tensors(path, {"x": array}, {})
    found = read_tensors(path, allow_nonfinite=True)["x"]
    assert (found.dtype, found.shape, found.tobytes()) == (
        array.dtype,
        array.shape,
        array.tobytes(),
    )


def test_bfloat16_stays_itself_in_safetensors(tmp_path):
    array = np.array([0.1, 2], ml_dtypes.bfloat16)
    write_tensors(tmp_path / "a.safetensors", {"x": array}, {})
    assert read_tensors(tmp_path / "a.safetensors")["x"].dtype == array.dtype
    assert list(tensor_file(tmp_path / "a.safetensors").summaries) == [
        TensorSummary("x", "bfloat16", (2,))
    ]
    write_tensors(tmp_path / "a.npz", {"x": array}, {})
    assert read_tensors(tmp_path / "a.npz")["x"].dtype == np.float32


@pytest.mark.parametrize("order", [">", "<"])
def test_one_array(tmp_path, order):
    path = tmp_path / "emb.npy"
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3)).astype(f"{order}f8", order="K")
    np.save(path, array)
    found = read_tensors(path)["emb"]
    assert np.array_equal(found, array)
    assert found.dtype.isnative
    assert found.flags.c_contiguous
    assert list(tensor_file(path).summaries) == [TensorSummary("emb", "float64", (2, 3))]
    assert tensor_file(path).metadata == {}


@pytest.mark.parametrize("kind", [".pt", ".pth"])
@pytest.mark.parametrize("modern", [True, False])
def test_torch_files(tmp_path, kind, modern):
    import torch

    state = {
        "WQ.weight": torch.arange(6.0).reshape(2, 3).T,
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
    }
    path = torch_file(tmp_path / f"a{kind}", state, _use_new_zipfile_serialization=modern)
    found = read_tensors(path)
    assert found["WQ.weight"].tolist() == state["WQ.weight"].tolist()
    assert found["half"].tolist() == [1.5]
    assert list(tensor_file(path).summaries) == [
        TensorSummary("WQ.weight", "float32", (3, 2)),
        TensorSummary("half", "float32", (1,)),
    ]


def test_torch_files_that_repeat_one_number_without_end(tmp_path):
    import torch

    path = torch_file(tmp_path / "a.pt", {"x": torch.zeros(1).expand(10**9, 10**3)})
    assert path.stat().st_size < 5000
    with pytest.raises(LimitError, match="4,000,000,000,000 bytes"):
        read_tensors(path)


def test_torch_files_that_are_compressed(tmp_path):
    import torch

    torch_file(tmp_path / "plain.pt", {"x": torch.zeros(10**5)})
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(InputError, match="compressed"):
        read_tensors(tmp_path / "a.pt")


class Hostile:
    def __reduce__(self):
        return (os.abort, ())


@pytest.mark.parametrize("content", ["code", "list", "noise", "sparse", "complex"])
def test_other_torch_files(tmp_path, content):
    import torch

    path = tmp_path / "a.pt"
    match content:
        case "code":
            torch_file(path, {"x": Hostile()})
        case "list":
            torch_file(path, [torch.zeros(1)])
        case "noise":
            path.write_bytes(b"\x80\x04nonsense")
        case "sparse":
            torch_file(path, {"x": torch.zeros(2, 2).to_sparse()})
        case "complex":
            torch_file(path, {"x": torch.zeros(2, dtype=torch.complex64)})
    with pytest.raises(InputError):
        read_tensors(path)


def test_torch_float8_is_not_supported(tmp_path):
    import torch

    path = torch_file(tmp_path / "a.pt", {"x": torch.zeros(2, dtype=torch.float8_e4m3fn)})
    with pytest.raises(UnsupportedError, match="float8_e4m3fn"):
        read_tensors(path)


@pytest.mark.parametrize("kind", [".safetensors", ".npz", ".npy", ".pt"])
@pytest.mark.parametrize(("value", "told"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_numbers_that_are_not_finite(tmp_path, kind, value, told):
    array = np.zeros((3, 5), np.float32)
    array[1, 2] = array[2, 0] = value
    path = tmp_path / f"x{kind}"
    written(path, array)
    with pytest.raises(
        InputError, match=rf"'x' holds {told} at \[1, 2\], the first of 2"
    ) as caught:
        read_tensors(path)
    assert caught.value.where == str(path)
    assert np.array_equal(read_tensors(path, allow_nonfinite=True)["x"], array, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_low_precision_is_checked_too(tmp_path, dtype):
    write_tensors(tmp_path / "a.safetensors", {"x": np.array(np.nan, dtype)}, {})
    with pytest.raises(InputError, match=r"nan at \[\]"):
        read_tensors(tmp_path / "a.safetensors")


def test_truth_values_other_than_0_and_1(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": np.zeros(4, np.bool_)}, {})
    path.write_bytes(path.read_bytes()[:-1] + b"\2")
    with pytest.raises(InputError, match="truth values"):
        read_tensors(path)


@pytest.mark.parametrize("kind", [".safetensors", ".npz", ".npy", ".pt"])
@pytest.mark.parametrize("make", ["missing", "folder", "fifo", "empty", "noise"])
def test_what_is_no_file(tmp_path, kind, make):
    path = tmp_path / f"a{kind}"
    match make:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "empty":
            path.write_bytes(b"")
        case "noise":
            path.write_bytes(bytes(range(256)))
    for read in (read_tensors, tensor_file):
        with pytest.raises(InputError) as caught:
            read(path)
        assert caught.value.where == str(path)


@pytest.mark.parametrize("name", ["a.bin", "a", "a.json", ".npz.txt"])
def test_unknown_endings(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match=r"not a known kind|the name has no ending"):
        read_tensors(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be saved"):
        write_tensors(tmp_path / name, TENSORS, {})
    with pytest.raises(UsageError):
        check_writable_format(tmp_path / name)


@pytest.mark.parametrize("kind", [".safetensors", ".npz", ".npy", ".pt"])
def test_the_limit(tmp_path, kind, monkeypatch):
    path = tmp_path / f"x{kind}"
    array = np.ones(1000)
    written(path, array)
    monkeypatch.setattr(tensors, "SIZE_LIMIT", 7000)
    with pytest.raises(LimitError):
        read_tensors(path)
    monkeypatch.setattr(tensors, "SIZE_LIMIT", 12000)
    assert read_tensors(path)["x"].sum() == 1000


def test_the_index_of_a_large_file_reads_its_header_alone(tmp_path):
    path = tmp_path / "big.safetensors"
    write_tensors(path, {"x": np.zeros(2, np.float64)}, {})
    raw = path.read_bytes().replace(
        b'"shape":[2],"data_offsets":[0,16]',
        b'"shape":[1000000000000],"data_offsets":[0,8000000000000]',
    )
    header = raw[8:-16].rstrip()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    try:
        os.truncate(path, 8 + len(header) + 8_000_000_000_000)
    except OSError:
        pytest.skip("this file system has no files of that size")
    assert list(tensor_file(path).summaries) == [TensorSummary("x", "float64", (10**12,))]
    with pytest.raises(LimitError):
        read_tensors(path)


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(UnsupportedError):
        write_tensors(tmp_path / "a.npz", {"a": np.zeros(2), "b": np.zeros(2, complex)}, {})
    with pytest.raises(AttnError, match="cannot write"):
        write_tensors(tmp_path / "no" / "a.npz", TENSORS, {})
    assert list(tmp_path.iterdir()) == []
