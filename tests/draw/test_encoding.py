"""Documents are strict JSON, the same bytes for the same document; plain rows can be read back."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attncli.draw.encoding import estimate_bytes, json_bytes, json_pieces, ndjson_line, plain

NAN = float("nan")


def strict(data: bytes):
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(data, parse_constant=refuse)


@pytest.mark.parametrize("write", [json_bytes, ndjson_line])
def test_every_kind_of_value(write) -> None:
    document = {
        "none": None, "flag": True, "count": 3, "float": 0.1, "nan": NAN, "inf": [float("inf"), -float("inf")],
        "text": "é \x1b\n你",
        "float64": np.array([[1.5, NAN], [-np.inf, 0.0]]), "float32": np.array([0.1], np.float32), "float16": np.array(
        [0.1], np.float16),
        "bfloat16": np.array([[1.0, NAN]], ml_dtypes.bfloat16), "bool": np.array([True, False]), "int8": np.array([-3],
        np.int8),
        "uint64": np.array([2**63], np.uint64), "big": np.array([1.25, 2.0], ">f4"), "strided": np.arange(6.0).reshape(
        2, 3).T,
        "scalar": np.float32(0.1), "scalar16": np.float16(0.5), "brain": ml_dtypes.bfloat16(2), "zero": np.array(2.5),
        "nothing": np.zeros((0, 3)),
        "long": np.array([1.5], np.longdouble), "backwards": np.arange(3)[::-1], "whole": np.array(7), "nested": [{
        "a": np.array([1])}],
        "scalar_nan": np.float32(NAN), "zero_nan": np.array(NAN),
    }  # fmt: skip
    found = strict(write(document))
    assert found == {
        "none": None, "flag": True, "count": 3, "float": 0.1, "nan": None, "inf": [None, None], "text": "é \x1b\n你",
        "float64": [[1.5, None], [None, 0.0]], "float32": [0.1], "float16": [0.099975586], "bfloat16": [[1.0, None]],
        "bool": [True, False],
        "int8": [-3], "uint64": [2**63], "big": [1.25, 2.0], "strided": [[0, 3], [1, 4], [2, 5]], "scalar": 0.1,
        "scalar16": 0.5,
        "brain": 2.0,
        "zero": 2.5, "nothing": [], "long": [1.5], "backwards": [2, 1, 0], "whole": 7, "nested": [{"a": [1]}],
        "scalar_nan": None,
        "zero_nan": None,
    }  # fmt: skip
    assert list(found) == list(document)
    assert write(document) == write(document)


def test_ctrl_c_is_none_of_the_values_that_cannot_be_written(monkeypatch) -> None:
    """orjson raises a TypeError of its own in place of whatever is raised while it asks for a
    value.
    """

    def interrupted(value: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attncli.draw.encoding._plain_value", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ndjson_line({"a": [{"b": np.longdouble(1)}]})


def test_one_member_per_line_and_one_line() -> None:
    assert json_bytes({"a": 1, "b": [1, 2]}) == b'{\n"a": 1,\n"b": [1,2]\n}\n'
    assert json_bytes({}) == b"{}\n"
    assert ndjson_line({"a": "x\ny"}) == b'{"a":"x\\ny"}\n'


def test_a_large_document_comes_in_pieces() -> None:
    heads = [{"head": head, "weights": np.full((100, 1009), 1 / (3 + head))} for head in range(7)]
    one = len(ndjson_line(heads[0]))
    pieces = list(json_pieces({"text": "a", "heads": heads, "last": [1, 2, 3]}))
    assert max(map(len, pieces)) < 2 * one
    assert len(pieces) >= 4
    assert strict(b"".join(pieces)) == {
        "text": "a",
        "heads": [json.loads(ndjson_line(head)) for head in heads],
        "last": [1, 2, 3],
    }


def test_whole_numbers_beyond_64_bits_are_numbers() -> None:
    assert json.loads(json_bytes({"a": [10**21, 2**64 - 1, -(2**63), True]})) == {
        "a": [1e21, 2**64 - 1, -(2**63), True]
    }
    assert json.loads(json_bytes({"a": [-(10**400)]})) == {"a": [None]}


@pytest.mark.parametrize("write", [json_bytes, ndjson_line])
def test_nothing_that_a_terminal_obeys_stands_raw_and_all_can_be_read_back(write) -> None:
    active = "\x7f\x80\x9b\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
    text = "".join(f"{char}é你👍\xa0\u2010·√" for char in active)
    document = {f"key{active}": [text, {"a": text}], "ascii": "\x7f", "numbers": [1.5]}
    data = write(document)
    assert not set(data.decode()) & set(active)
    assert strict(data) == document


def test_lone_surrogates_are_replaced() -> None:
    for write in (json_bytes, ndjson_line):
        data = write(
            {"text\udc80": "a\ud800b", "list": ["\udfff", {"k": ("\udc01",)}], "fine": "👍"}
        )
        assert strict(data) == {
            "text\ufffd": "a\ufffdb",
            "list": ["\ufffd", {"k": ["\ufffd"]}],
            "fine": "👍",
        }


@pytest.mark.parametrize(
    "document",
    [
        {1: "a"},
        {"a": {2: "b"}},
        {"a": object()},
        {"a": {1, 2}},
        {"a": np.array(["x"])},
        {"a": np.array([1j])},
    ],
)
def test_what_is_no_document_is_refused(document) -> None:
    for write in (json_bytes, ndjson_line):
        with pytest.raises(TypeError):
            write(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=15)
@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_both_forms_are_strict_and_agree(document) -> None:
    assert strict(json_bytes(document)) == strict(ndjson_line(document))


def unescaped(field: str) -> str:
    """An independent reader of a plain field."""
    out, at = "", 0
    while at < len(field):
        if field[at] != "\\":
            out, at = out + field[at], at + 1
        elif field[at + 1] == "u":
            end = field.index("}", at)
            out, at = out + chr(int(field[at + 3 : end], 16)), end + 1
        else:
            out, at = out + {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}[field[at + 1]], at + 2
    return out


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(codec=None, blacklist_categories=["Mn", "Me", "Mc"])))
def test_plain_fields_can_be_read_back(text: str) -> None:
    row = plain([[text, 1]])
    assume("\u25cc" not in row)  # also jamo that sit on nothing, whose category is that of letters
    assert row.count("\t") == 1
    assert row.count("\n") == 1
    assert unescaped(row.split("\t")[0]) == text


def test_plain_values() -> None:
    values = [
        None,
        0.1,
        np.float32(0.1),
        np.float64(0.25),
        3,
        True,
        NAN,
        np.float32(-np.inf),
        "nan",
        "a\\b\x1b",
    ]
    assert plain([values, []]) == "\t0.1\t0.1\t0.25\t3\ttrue\t\t\tnan\ta\\\\b\\u{1b}\n\n"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_estimate_is_near_the_truth(dtype: str) -> None:
    values = np.random.default_rng(0).dirichlet(np.ones(53), 53).astype(dtype)
    real = len(ndjson_line({"weights": values}))
    assert real <= estimate_bytes([values.shape], dtype, text=20) <= 1.5 * real
