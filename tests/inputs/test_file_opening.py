"""Only regular files of a size within bounds are opened."""

import os
from pathlib import Path

import pytest

from attncli.errors import InputError, LimitError
from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.files import open_regular, open_stream, read_exactly, read_regular
from attncli.inputs.tokenize import tokenizer


def test_a_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    stream, size = open_regular(path, what="a file", limit=5)
    with stream:
        assert (stream.read(), size) == (b"12345", 5)
    assert read_regular(path, what="a file") == b"12345"


@pytest.mark.parametrize(("make", "what"), [
    ("missing", "No such file"), ("folder", "a folder"), ("fifo", "a pipe"), ("device", "a pipe or device"), ("empty",
    "empty"),
    ("nul", "null"), ("dangling", "No such file"), ("loop", "symbolic links"),
])  # fmt: skip
def test_what_is_no_file(tmp_path, make, what):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    path = {"device": Path("/dev/zero"), "nul": tmp_path / "a\0b"}.get(make, tmp_path / make)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(InputError, match=what) as caught:
        open_regular(path, what="a tensor file")
    assert caught.value.where == str(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_above_the_limit(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"123456")
    with pytest.raises(LimitError, match="6 bytes"):
        open_regular(path, what="a file", limit=5)


def test_a_file_that_shrinks(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"123456")
    stream, size = open_regular(path, what="a file")
    os.truncate(path, 3)
    with stream, pytest.raises(InputError, match="cut short: 3 bytes where 6"):
        read_exactly(stream, size, "f")


def test_a_folder_that_may_not_be_searched(tmp_path, monkeypatch):
    real = Path.stat

    def denied(path: Path, **options: bool) -> os.stat_result:
        if path.name == "tokenizer.json":  # root may search every folder
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(InputError, match="cannot look for this file: Permission denied") as caught:
        assert Checkpoint(tmp_path, {}, {}).tokenizer_path is None
    assert caught.value.where == str(tmp_path / "tokenizer.json")
    with pytest.raises(InputError, match="cannot look"):
        tokenizer(str(tmp_path))


def test_a_misspelt_file_is_looked_for_beside(tmp_path):
    (tmp_path / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match="cannot read") as error:
        open_regular(tmp_path / "wieghts.safetensors", what="a file")
    assert "'weights.safetensors'" in str(error.value.hint)
    with pytest.raises(InputError) as error:
        open_regular(tmp_path / "other.txt", what="a file")
    assert not error.value.hint


def test_a_text_that_is_a_pointer_of_git_lfs_is_called_that(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1234\n"
    (tmp_path / "corpus.txt").write_text(pointer)
    with pytest.raises(InputError, match="Git LFS pointer"):
        open_stream(tmp_path / "corpus.txt", what="a text")
