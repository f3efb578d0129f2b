"""NumPy's archives: good ones, damaged ones, bombs."""

import contextlib
import io
import struct
import tempfile
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.errors import AttnError, InputError, LimitError, UnsupportedError
from attncli.inputs.safetensors_file import NATIVE
from attncli.inputs.tensors import DEFLATE_RATIO, METADATA_MEMBER, open_archive, write_npz

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=7).filter(
    lambda name: not name.endswith(".npy")
)


def read(raw, limit=2**20):
    with open_archive(io.BytesIO(raw), "f", limit) as archive:
        headers = {name: archive.header(name) for name in archive.names}
        arrays = {name: archive.array(name) for name in archive.names}
        assert all(
            (headers[name].dtype, headers[name].shape) == (array.dtype, array.shape)
            for name, array in arrays.items()
        )
        return arrays, archive.metadata()


def saved(savez=np.savez, **arrays):
    out = io.BytesIO()
    savez(out, **arrays)
    return out.getvalue()


def zipped(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def npy(header, data=b"", version=(1, 0), length=None):
    raw = header.encode("latin1")
    size = len(raw) if length is None else length
    return (
        b"\x93NUMPY"
        + bytes(version)
        + struct.pack("<H" if version[0] == 1 else "<I", size)
        + raw
        + data
    )


def described(descr="'<f4'", shape="(2,)", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
@settings(deadline=None, max_examples=25)
@given(
    arrays=st.dictionaries(
        st.text("abcxyz_", min_size=1, max_size=5).filter(lambda name: name != "file"),
        st.sampled_from(sorted(NATIVE)).flatmap(
            lambda dtype: hnp.arrays(
                np.dtype(dtype).newbyteorder(">"),
                hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
            )
        ),
        max_size=3,
    )
)
def test_archives_of_numpy_are_read(savez, arrays):
    found, metadata = read(saved(savez, **arrays))
    assert metadata == {}
    assert set(found) == set(arrays)
    assert all(
        np.array_equal(found[name], array, equal_nan=array.dtype.kind == "f")
        for name, array in arrays.items()
    )


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(
        NAMES,
        hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)),
        max_size=3,
    )
)
def test_what_is_written_numpy_reads(tensors):
    out = io.BytesIO()
    write_npz(out, tensors, {"schema": "attn.run/1", "text": "我\ud800"})
    found, metadata = read(out.getvalue())
    assert metadata == {"schema": "attn.run/1", "text": "我\ud800"}
    with np.load(io.BytesIO(out.getvalue())) as theirs:
        assert set(theirs.files) == {*tensors, METADATA_MEMBER}
        for name, array in tensors.items():
            assert found[name].tobytes() == array.tobytes() == theirs[name].tobytes()


def test_written_bytes_depend_on_the_content_alone():
    first, second = io.BytesIO(), io.BytesIO()
    write_npz(first, {"a": np.arange(3.0), "b": np.arange(2)}, {"x": "1", "y": "2"})
    write_npz(second, {"b": np.arange(2), "a": np.arange(3.0)}, {"y": "2", "x": "1"})
    assert first.getvalue() == second.getvalue()


def test_bfloat16_is_widened_exactly():
    array = np.array([0.1, -3e38, 7], ml_dtypes.bfloat16)
    out = io.BytesIO()
    write_npz(out, {"a": array}, {})
    found = read(out.getvalue())[0]["a"]
    assert found.dtype == np.float32
    assert found.tolist() == array.astype(np.float32).tolist()


def test_column_major_arrays():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert np.array_equal(read(saved(a=array))[0]["a"], array)


HUGE = described(shape="(1000000000000,)")
HOSTILE = {
    "not a zip": (b"hello", "damaged"),
    "objects": (saved(a=np.array([{}, None], dtype=object)), "Python objects"),
    "a record of objects": (zipped([("a.npy", npy(described("[('x', '|O')]"), bytes(16)))]), "Python objects"),
    "raw pickle": (zipped([("a.npy", b"\x80\x04.")]), "damaged header"),
    "no array": (zipped([("readme.txt", b"x")]), "'readme.txt', which is no array"),
    "a folder": (zipped([("a/", b"")]), "no array"),
    "header too long": (zipped([("a.npy", npy(described().ljust(20_000), bytes(8)))]), "damaged header"),
    "header cut": (zipped([("a.npy", npy(described(), length=60_000))]), "damaged header"),
    "header is code": (zipped([("a.npy", npy("__import__('os').abort()\n"))]), "damaged header"),
    "header nested": (zipped([("a.npy", npy("(" * 9000))]), "damaged header"),
    "more than is there": (zipped([("a.npy", npy(HUGE, bytes(8)))]), "takes 4,000,000,000,000 bytes, but 8"),
    "less than is there": (zipped([("a.npy", npy(described(shape="(1,)"), bytes(8)))]), "takes 4 bytes, but 8"),
    "negative axis": (zipped([("a.npy", npy(described(shape="(-2,)"), bytes(8)))]), "impossible shape"),
    "truth axis": (zipped([("a.npy", npy(described(shape="(True, 2)"), bytes(8)))]), "impossible shape|damaged header"),
    "overflowing axes": (zipped([("a.npy", npy(described(shape="(4294967296, 4294967296)"), b""))]), "impossible "
                                                                                                     "shape"),
    "empty overflow": (zipped([("a.npy", npy(described(shape=f"(0, {2**61}, {2**61})"), b""))]), "impossible shape"),
    "many axes": (zipped([("a.npy", npy(described(shape="(" + "1," * 40 + ")"), bytes(4)))]), "40 axes"),
    "version": (zipped([("a.npy", npy(described(), bytes(8), version=(9, 9)))]), "damaged header|version"),
    "text": (saved(a=np.array(["x"])), "str"),
    "complex": (saved(a=np.zeros(2, complex)), "complex128"),
    "records": (saved(a=np.zeros(2, "f4,i4")), "records"),
    "dates": (saved(a=np.zeros(2, "M8[s]")), "datetime64"),
    "long double": (saved(a=np.zeros(2, np.longdouble)), "longdouble|float128"),
    "raw bytes": (saved(a=np.zeros(2, ml_dtypes.bfloat16).view("V2")), "bfloat16"),
    "bzip2": (zipped([("a.npy", npy(described(), bytes(8)))], zipfile.ZIP_BZIP2), "NumPy never writes"),
    "bad metadata": (zipped([(METADATA_MEMBER, "[1]")]), "not texts by name"),
    "damaged metadata": (zipped([(METADATA_MEMBER, "{")]), "not texts by name"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives(name):
    raw, what = HOSTILE[name]
    with pytest.raises((InputError, UnsupportedError), match=what) as caught:
        read(raw)
    assert caught.value.where == "f"


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a.npy", "a.npy"), (METADATA_MEMBER, METADATA_MEMBER)])
def test_repeated_names(names):
    with pytest.raises(InputError, match="twice"):
        read(zipped([(name, npy(described(), bytes(8))) for name in names]))


def test_names_are_data():
    names = ["../../etc/passwd", "\x1b[31m", "/abs"]
    assert set(
        read(zipped([(f"{name}.npy", npy(described(), bytes(8))) for name in names]))[0]
    ) == set(names)


def test_a_bomb_is_refused_by_the_size_it_declares():
    raw = saved(np.savez_compressed, a=np.zeros(2**21, np.uint8))
    assert len(raw) < 5000
    with pytest.raises(LimitError, match="2,097,"):
        read(raw)
    many = saved(np.savez_compressed, **{f"a{i}": np.zeros(2**19, np.uint8) for i in range(3)})
    with pytest.raises(LimitError):
        read(many)  # each fits, all together do not
    assert read(many, limit=2**21)


def patched(raw, old, new):
    assert raw.count(old) >= 1
    return raw.replace(old, new)


def test_sizes_that_lie():
    content = npy(described(shape="(500,)"), bytes(2000))
    raw = zipped([("a.npy", content)], zipfile.ZIP_DEFLATED)
    true = struct.pack("<I", len(content))
    with pytest.raises(InputError, match="cannot have the 4,000,000,000 bytes"):
        read(patched(raw, true, struct.pack("<I", 4_000_000_000)), limit=2**40)
    with pytest.raises(InputError):  # more inside than declared: reading stops at what was declared
        read(patched(raw, true, struct.pack("<I", len(content) - 400)))
    longer = npy(described(shape="(600,)"), bytes(2000))
    raw = zipped([("a.npy", longer)], zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError):  # less inside than declared and described
        read(patched(raw, struct.pack("<I", len(longer)), struct.pack("<I", len(longer) + 400)))


def test_damaged_data_fail_their_checksum():
    raw = zipped([("a.npy", npy(described(), bytes(7) + b"x"))])
    place = raw.index(b"\0" * 7 + b"x")
    with pytest.raises(InputError, match="damaged"):
        read(raw[:place] + b"\1" + raw[place + 1 :])


def test_an_encrypted_member():
    raw = zipped([("a.npy", npy(described(), bytes(8)))])
    central = raw.index(b"PK\1\2")
    with pytest.raises(InputError, match="encrypted"):
        read(raw[: central + 8] + b"\1" + raw[central + 9 :])


def test_a_forged_directory_is_not_read_into_memory():
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 2**28, 0, 0)
    with tempfile.TemporaryFile() as stream:
        stream.truncate(2**28)
        stream.seek(0, io.SEEK_END)
        stream.write(end)
        with (
            pytest.raises(LimitError, match="directory is too large"),
            open_archive(stream, "f", 2**30),
        ):
            pass


GOOD = saved(np.savez_compressed, a=np.arange(5.0), b=np.zeros((2, 3), np.int8))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(GOOD) - 1))
def test_every_truncation_is_an_error(length):
    with pytest.raises(AttnError):
        read(GOOD[:length])


@settings(deadline=None, max_examples=150)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_every_changed_byte_is_an_error_or_harmless(place, byte):
    raw = bytearray(GOOD)
    raw[place] = byte
    with contextlib.suppress(AttnError):  # any other exception fails the test
        read(bytes(raw))


def test_the_ratio_of_the_best_compression_is_allowed():
    zeros = bytes(2**22)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    assert len(zeros) <= DEFLATE_RATIO * len(packer.compress(zeros) + packer.flush())
    assert read(saved(np.savez_compressed, a=np.zeros(2**19)), limit=2**23)[0]["a"].shape == (
        524288,
    )
