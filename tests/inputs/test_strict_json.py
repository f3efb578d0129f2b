"""JSON files of other people: one object, of bounded size, without repeated keys or NaN."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncli.errors import InputError, LimitError
from attncli.inputs.files import MOST, parse_object, read_object
from attncli.language import translate


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
        (b"[1]", "of type array, not an object"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_strict_object_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_object(raw, "where", "what")


@pytest.mark.parametrize(
    ("raw", "place", "fault", "chinese"),
    [
        (b"{1: 0.5}", "line 1, column 2", "a name in double quotes", "双引号里的名称"),
        (b'{"a" 1}', "line 1, column 6", "a colon", "冒号"),
        (b'{"a": 1\n "b": 2}', "line 2, column 2", "a comma", "逗号"),
        (b'{"a": }', "line 1, column 7", "a value", "值"),
        (b'{"a": 1} 2', "line 1, column 10", "nothing more", "不该再有"),
        (b'{"a": "b}', "line 1, column 7", "does not end", "没有结束"),
        (b'{"a": "\n"}', "line 1, column 8", "a line break", "换行"),
        (b'{"a": "\\x"}', "line 1, column", "a backslash", "反斜杠"),
    ],
)
def test_a_fault_of_json_is_told_in_our_words(
    raw: bytes, place: str, fault: str, chinese: str
) -> None:
    with pytest.raises(InputError) as refusal:
        parse_object(raw, "where", "what")
    assert place in str(refusal.value)
    assert fault in str(refusal.value)
    told = translate(refusal.value.what, "zh")
    assert chinese in told
    assert "Expecting" not in told


def test_a_word_that_is_not_json_is_told_in_chinese() -> None:
    with pytest.raises(InputError) as refusal:
        parse_object(b'{"a": NaN}', "where", "what")
    assert translate(refusal.value.what, "zh") == "这不是有效的 JSON：NaN 不是 JSON"


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
