"""JSON files of other people: one object, of bounded size, without repeated keys or NaN."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncli.errors import InputError, LimitError
from attncli.inputs.files import MOST, parse_object, read_object


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"a": 1, "a": 2}', "stands there twice"),
        (b'{"b": {"a": 1, "a": 2}}', "stands there twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "Infinity is not JSON"),
        (b'{"a": 1e400}', "1e400 is too large"),
        (b'{"a": [1E+00999]}', "too large"),
        (b'{"a": -%s.0}' % (b"9" * 310), "too large"),
        (b"[1]", "a list, not an object"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_strict_object_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_object(raw, "where", "what")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": [%s 1]}' % (b"[]," * MOST),
        b'{"a": [%s 1]}' % (b"9," * MOST),
        b"{%s}" % (b'"":1,' * MOST),
    ],
)
def test_more_values_than_any_model_needs_are_refused_before_they_fill_the_memory(
    raw: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(LimitError, match="names and values"):
        read_object(tmp_path / "a.json", what="what")


def test_numbers_for_which_json_has_no_word(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"a": {"__float__": "Infinity"}, "b": [{"__float__": "-Infinity"}], "c": {"__float__": "x"}}'
    )
    assert read_object(path, what="a config", with_tags=True) == {
        "a": float("inf"),
        "b": [float("-inf")],
        "c": {"__float__": "x"},
    }
    assert read_object(path, what="a config")["a"] == {"__float__": "Infinity"}
    path.write_text('{"a": Infinity, "b": -Infinity}')  # as transformers wrote it before
    assert read_object(path, what="a config", with_tags=True) == {
        "a": float("inf"),
        "b": float("-inf"),
    }
    path.write_text('{"__float__": "NaN"}')
    with pytest.raises(InputError, match="not an object"):
        read_object(path, what="a config", with_tags=True)


@pytest.mark.parametrize(
    "raw", [b'{"a": 1e308}', b'{"a": 1e-400}', b'{"a": "1e400"}', b'{"a": 1e0000300}']
)
def test_numbers_that_a_float_holds_are_read(raw: bytes) -> None:
    assert parse_object(raw, "where", "what")["a"] in (1e308, 0.0, "1e400", 1e300)
