"""Texts from every source, and every way in which a source can be wrong."""

import io
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.errors import InputError, LimitError, UsageError
from attncli.inputs import token
from attncli.inputs.token import SAMPLE, Text, parse_ids, read_texts


class Untouchable(io.RawIOBase):
    """A stream that may not be read."""

    def read(self, size=-1):
        raise AssertionError("read")

    readline = read


def read(
    argument=None, *, file=None, lines=False, ids=None, stdin=None, terminal=False, sample=None
):
    stream = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
    return list(
        read_texts(
            argument,
            file=file,
            lines=lines,
            ids=ids,
            stdin=stream,
            stdin_is_terminal=terminal,
            sample=sample,
        )
    )


def test_the_sample_is_the_sentence_of_the_interface():
    assert SAMPLE == "The animal didn't cross the street because it was too tired"
    assert read(terminal=True, sample=SAMPLE) == [Text(SAMPLE, "sample")]


def test_an_argument_wins_over_a_pipe_which_is_not_read():
    assert read("hello", stdin=Untouchable()) == [Text("hello", "argument")]
    assert read(ids="1", stdin=Untouchable()) == [Text("", "ids", (1,))]


@pytest.mark.parametrize("argument", [None, "-"])
def test_a_pipe_is_read(argument):
    assert read(argument, stdin="我爱你\n".encode()) == [Text("我爱你", "standard input")]


def test_a_dash_reads_a_terminal_too():
    assert read("-", stdin=b"typed\n", terminal=True, sample=SAMPLE) == [
        Text("typed", "standard input")
    ]


@pytest.mark.parametrize("stdin", [b"", b"\n", b"  \r\n\t ", b"\xef\xbb\xbf\n"])
@pytest.mark.parametrize("lines", [False, True])
def test_an_empty_pipe_is_an_error_and_never_the_sample(stdin, lines):
    with pytest.raises(InputError, match="nothing to run on"):
        read(stdin=stdin, lines=lines, sample=SAMPLE)


def test_an_empty_argument_is_an_error():
    with pytest.raises(InputError):
        read("")
    with pytest.raises(InputError):
        read(" \n")


def test_no_source_at_all():
    with pytest.raises(UsageError, match="no text"):
        read(terminal=True)
    with pytest.raises(InputError, match="closed"):
        read(sample=SAMPLE)


def test_more_than_one_source_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="TEXT and --file"):
        read("a", file=tmp_path / "b")
    with pytest.raises(UsageError, match="--file and --ids"):
        read(file=tmp_path / "b", ids="1")


def test_lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffone\r\n\r\n  \ntwo three\n四".encode())
    found = read(file=path, lines=True)
    assert [text.text for text in found] == ["one", "two three", "四"]
    assert [text.origin for text in found] == [f"{path}:1", f"{path}:4", f"{path}:5"]
    assert read("a\nb", lines=True) == [Text("a", "argument:1"), Text("b", "argument:2")]


def test_without_lines_a_file_is_one_text(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_bytes(b"one\ntwo\r\n\n")
    assert read(file=path) == [Text("one\ntwo", str(path))]


def test_lines_stream_as_they_come():
    reader, writer = os.pipe()
    texts = read_texts(
        None,
        file=None,
        lines=True,
        ids=None,
        stdin=os.fdopen(reader, "rb"),
        stdin_is_terminal=False,
        sample=None,
    )
    with os.fdopen(writer, "wb", buffering=0) as out:
        out.write(b"first\n")
        assert next(texts).text == "first"  # the pipe is still open
        out.write(b"second\n")
        assert next(texts).text == "second"
    assert list(texts) == []


def test_a_named_pipe_is_a_file(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    threading.Thread(target=lambda: path.write_bytes(b"through"), daemon=True).start()
    assert read(file=path) == [Text("through", str(path))]


@pytest.mark.parametrize("lines", [False, True])
def test_bytes_that_are_no_utf8_are_named(lines):
    with pytest.raises(InputError, match=r"byte 0xE4 at offset 7, line 2"):
        read(stdin=b"first\nb\xe4d\n", lines=lines)


def test_the_offset_counts_the_byte_order_mark():
    with pytest.raises(InputError, match=r"offset 4, line 1"):
        read(stdin=b"\xef\xbb\xbfa\xff")


def test_utf16_is_recognised():
    with pytest.raises(InputError, match="UTF-16") as caught:
        read(stdin="hello".encode("utf-16"))
    assert "iconv" in caught.value.hint


def test_surrogates_are_no_utf8_in_a_file_but_data_in_an_argument():
    with pytest.raises(InputError, match="0xED"):
        read(stdin=b"a\xed\xa0\x80")
    assert read("a\udce4\ud800") == [Text("a\udce4\ud800", "argument")]


def test_control_characters_are_data():
    assert read(stdin=b"a\0b\x1b[31m\x9b".replace(b"\x9b", "\x9b".encode())) == [
        Text("a\0b\x1b[31m\x9b", "standard input")
    ]


def test_a_text_above_the_limit_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(token, "TEXT_LIMIT", 10)
    with pytest.raises(LimitError, match="longer than 10 bytes"):
        read(stdin=b"x" * 11)
    assert read(stdin=b"x" * 10)[0].text == "x" * 10
    with pytest.raises(LimitError):
        read(file=Path("/dev/zero"), lines=True)
    assert len(read(stdin=b"12345\n" * 4, lines=True)) == 4  # the limit is per text


@pytest.mark.parametrize("make", ["missing", "folder", "nul"])
def test_files_that_cannot_be_read(tmp_path, make):
    path = {"missing": tmp_path / "no", "folder": tmp_path, "nul": tmp_path / "a\0b"}[make]
    with pytest.raises(InputError) as caught:
        read(file=path)
    assert str(path) == caught.value.where


@pytest.mark.parametrize(
    ("ids", "expected"),
    [("1 5 7", (1, 5, 7)), ("1,5, 7", (1, 5, 7)), (" 0\n", (0,)), ("2147483647", (2**31 - 1,))],
)
def test_ids(ids, expected):
    assert parse_ids(ids) == expected


@pytest.mark.parametrize("ids", ["", " , ", "1 x", "-1", "1.5", "2147483648", "9" * 5000, "１"])
def test_what_is_no_id(ids):
    with pytest.raises(InputError):
        parse_ids(ids)


@settings(deadline=None, max_examples=60)
@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1).filter(
        lambda t: t.strip("\ufeff \n\r").strip()
    )
)
def test_a_pipe_gives_back_what_went_in(text):
    (found,) = read(stdin=text.encode())
    assert found.text == text.removeprefix("\ufeff").rstrip("\r\n")
