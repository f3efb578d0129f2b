"""The safetensors format, against its own library and against forged headers."""

import contextlib
import io
import json
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.errors import AttnError, InputError, UnsupportedError
from attncli.inputs.safetensors_file import DTYPES, read_entry, read_header, write_safetensors

NUMBERS = st.sampled_from([np.dtype(name) for name in DTYPES.values() if name != "bfloat16"])


def written(tensors, metadata=None):
    out = io.BytesIO()
    write_safetensors(out, tensors, metadata or {})
    return out.getvalue()


def read(raw):
    stream = io.BytesIO(raw)
    header = read_header(stream, len(raw), "f")
    return {
        name: read_entry(stream, entry, "f") for name, entry in header.entries.items()
    }, header.metadata


def forged(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype="F32", shape=(2,), start=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=9).filter(
            lambda name: name != "__metadata__"
        ),
        NUMBERS.flatmap(
            lambda dtype: hnp.arrays(
                dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
            )
        ),
        max_size=4,
    ),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        max_size=3,
    ),
)
def test_round_trip_and_the_library_reads_the_same(tensors, metadata):
    raw = written(tensors, metadata)
    found, told = read(raw)
    theirs = safetensors.numpy.load(raw)
    assert told == metadata
    assert set(found) == set(tensors) == set(theirs)
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape == theirs[name].shape
        assert found[name].tobytes() == array.tobytes() == theirs[name].tobytes()


def test_bfloat16():
    array = np.array([1.5, -2.0, 0.1], ml_dtypes.bfloat16)
    found, _ = read(written({"a": array}))
    assert found["a"].dtype.name == "bfloat16"
    assert found["a"].tolist() == array.tolist()


def test_files_of_the_library_are_read():
    tensors = {
        "b": np.arange(6, dtype=np.float16).reshape(2, 3),
        "a": np.array(3, np.int64),
        "c": np.zeros((0, 5), np.float32),
    }
    found, metadata = read(safetensors.numpy.save(tensors, metadata={"format": "pt"}))
    assert metadata == {"format": "pt"}
    assert all(
        np.array_equal(found[name], array) and found[name].shape == array.shape
        for name, array in tensors.items()
    )


def test_the_same_content_gives_the_same_bytes():
    a, b = np.arange(3.0), np.arange(5, dtype=np.int8)
    assert written({"a": a, "b": b}, {"x": "1", "y": "2"}) == written(
        {"b": b, "a": a}, {"y": "2", "x": "1"}
    )
    assert written({"a": a}) != written({"a": a + 1})


def test_other_byte_orders_and_layouts_are_written_right():
    big = np.arange(6, dtype=">f4").reshape(2, 3)
    for array in (big, np.asfortranarray(big), big[:, ::-1], big[::2]):
        found, _ = read(written({"a": array}))
        assert np.array_equal(found["a"], array)


def test_every_tensor_is_aligned_to_its_own_size():
    raw = written(
        {
            "a": np.zeros(3, np.int8),
            "b": np.zeros(5),
            "c": np.zeros(3, np.float16),
            "d": np.zeros(1, np.float32),
        }
    )
    for entry in read_header(io.BytesIO(raw), len(raw), "f").entries.values():
        assert entry.start % np.dtype(entry.dtype_name).itemsize == 0


@pytest.mark.parametrize("dtype", ["complex64", "U3", "O"])
def test_what_cannot_be_written(dtype):
    with pytest.raises(UnsupportedError, match="'a' has the data type"):
        written({"a": np.zeros(2, dtype)})


GOOD = forged({"a": entry()}, bytes(8))


def test_the_forger_can_write_a_good_file():
    assert read(GOOD)[0]["a"].tolist() == [0.0, 0.0]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(GOOD) - 1))
def test_every_truncation_is_an_error(length):
    with pytest.raises(InputError):
        read(GOOD[:length])


@settings(deadline=None, max_examples=150)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_every_changed_byte_is_an_error_or_harmless(place, byte):
    raw = bytearray(GOOD)
    raw[place] = byte
    with contextlib.suppress(AttnError):  # any other exception fails the test
        read(bytes(raw))


TWO = json.dumps(entry()).encode()
HOSTILE = {
    "longer than the file": (forged({}, length=10**6), "claims 1,000,000 bytes"),
    "longer than any": (forged({}, length=2**63), "claims"),
    "not JSON": (forged(b"{"), "not valid JSON"),
    "not UTF-8": (forged(b'{"\xff": 1}'), "not valid JSON"),
    "NaN": (forged(b'{"a": NaN}'), "not valid JSON"),
    "huge number": (forged(b'{"a": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    "nested": (forged(b"[" * 200_000), "nested too deeply"),
    "a list": (forged([]), "is of type array, not an object"),
    "repeated": (forged(b'{"a": %b, "a": %b}' % (TWO, TWO), bytes(8)), "the key 'a' stands there twice"),
    "repeated field": (forged(b'{"a": {"dtype": "F32", "dtype": "F64", "shape": []}}'), "the key 'dtype' stands "
                                                                                        "there twice"),
    "malformed": (forged({"a": 3}), "'a' is malformed"),
    "surplus field": (forged({"a": entry() | {"x": 1}}, bytes(8)), "malformed"),
    "missing field": (forged({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), "malformed"),
    "metadata": (forged({"__metadata__": {"a": 1}}), "metadata"),
    "metadata list": (forged({"__metadata__": []}), "metadata"),
    "negative offset": (forged({"a": entry(start=-8, end=0)}, bytes(8)), "offsets -8 to 0"),
    "reversed": (forged({"a": entry(start=8, end=0)}, bytes(8)), "offsets 8 to 0"),
    "truth for a number": (forged({"a": entry(start=False, end=8)}, bytes(8)), "offsets"),
    "past the end": (forged({"a": entry(shape=(4,), end=16)}, bytes(8)), "end at byte"),
    "bytes left over": (forged({"a": entry()}, bytes(9)), "end at byte"),
    "overlap": (forged({"a": entry(), "b": entry(start=4, end=12)}, bytes(12)), "overlaps"),
    "the same bytes": (forged({"a": entry(), "b": entry()}, bytes(8)), "overlaps"),
    "gap": (forged({"a": entry(start=4, end=12)}, bytes(12)), "gap"),
    "wrong size": (forged({"a": entry(shape=(3,))}, bytes(8)), "takes 12 bytes, but 8"),
    "negative axis": (forged({"a": entry(shape=(-2,))}, bytes(8)), "impossible shape"),
    "fraction": (forged({"a": entry(shape=(2.0,))}, bytes(8)), "impossible shape"),
    "truth axis": (forged({"a": entry(shape=(True, 2))}, bytes(8)), "impossible shape"),
    "overflow": (forged({"a": entry(shape=(2**62, 2**62))}, bytes(8)), "impossible shape"),
    "empty overflow": (forged({"a": entry(shape=(0, 2**61, 2**61), end=0)}), "impossible shape"),
    "many axes": (forged({"a": entry(shape=(1,) * 33, end=4)}, bytes(4)), "33 axes"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(name):
    raw, what = HOSTILE[name]
    with pytest.raises(InputError, match=what) as caught:
        read(raw)
    assert caught.value.where == "f"


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F4", "C64", "X\x1b[31m"])
def test_data_types_that_are_listed_but_not_read(dtype):
    raw = forged({"a": entry(dtype, (8,))}, bytes(8))
    assert read_header(io.BytesIO(raw), len(raw), "f").entries["a"].dtype_name == dtype
    with pytest.raises(UnsupportedError) as caught:
        read(raw)
    assert dtype in caught.value.what


def test_as_many_axes_and_numbers_as_can_be():
    found, _ = read(
        forged(
            {"a": entry(shape=(1,) * 32, end=4), "b": entry(shape=(2**59, 0), start=4, end=4)},
            bytes(4),
        )
    )
    assert (found["a"].ndim, found["b"].shape) == (32, (2**59, 0))
    with pytest.raises(InputError, match="impossible shape"):
        read(forged({"a": entry(shape=(2**61, 0), end=0)}))


def test_names_are_data():
    names = ["../../etc/passwd", "\x1b[31m", "a\nb", ""]
    found, _ = read(written({name: np.zeros(1) for name in names}))
    assert set(found) == set(names)


def test_a_file_that_shrinks_while_it_is_read():
    stream = io.BytesIO(GOOD)
    header = read_header(stream, len(GOOD), "f")
    stream.truncate(len(GOOD) - 3)
    with pytest.raises(InputError, match="ends after 5 of 8"):
        read_entry(stream, header.entries["a"], "f")


def test_tensors_without_numbers_lie_before_what_begins_where_they_do():
    header = {
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
        "c": {"dtype": "F32", "shape": [3, 0], "data_offsets": [8, 8]},
        "d": {"dtype": "F32", "shape": [0, 7], "data_offsets": [0, 0]},
    }
    found, _ = read(forged(header, np.array([1.0, 2.0], "<f4").tobytes()))
    assert {name: array.shape for name, array in found.items()} == {
        "a": (0,),
        "b": (2,),
        "c": (3, 0),
        "d": (0, 7),
    }
    assert found["b"].tolist() == [1.0, 2.0]
