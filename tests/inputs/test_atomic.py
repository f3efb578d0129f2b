"""Files are written whole or not at all."""

import errno
import os
import stat
import sys
import threading
from pathlib import Path

import pytest
from processes import finish

from attncli.errors import AttnError, ExitCode
from attncli.inputs.files import atomic_writer


def write(path, content=b"new"):
    with atomic_writer(path) as stream:
        stream.write(content)


def fail_halfway(path, error):
    with atomic_writer(path) as stream:
        stream.write(b"half")
        raise error


def close_and_write(path, end):
    with atomic_writer(path) as stream:
        os.close(end)
        stream.write(b"x" * 10)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_new_file_has_the_permissions_that_the_umask_gives(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640
    assert names(tmp_path) == ["out"]


def test_an_old_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o604)
    write(path)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_in_the_block_leaves_everything_as_it_was(tmp_path, error):
    (tmp_path / "out").write_bytes(b"old")
    for name in ("out", "fresh"):
        with pytest.raises(error):
            fail_halfway(tmp_path / name, error)
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"


def test_readers_see_the_old_file_until_the_end(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with atomic_writer(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path):
    with pytest.raises(AttnError, match="No space left") as caught, atomic_writer(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.exit_code == ExitCode.FAILURE
    assert caught.value.where == str(tmp_path / "out")
    assert names(tmp_path) == []


def test_a_full_device():
    with pytest.raises(AttnError, match="No space left"):
        write(Path("/dev/full"))


@pytest.mark.parametrize(
    "make", ["folder", "missing folder", "under a file", "nul", "loop", "long"]
)
def test_places_that_cannot_be_written(tmp_path, make):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "loop").symlink_to("loop")
    path = {
        "folder": tmp_path,
        "missing folder": tmp_path / "no" / "out",
        "under a file": tmp_path / "file" / "out",
        "nul": tmp_path / "a\0b",
        "loop": tmp_path / "loop",
        "long": tmp_path / ("x" * 300),
    }[make]
    with pytest.raises(AttnError, match="cannot write this file") as caught:
        write(path)
    assert caught.value.exit_code == ExitCode.FAILURE
    assert names(tmp_path) == ["file", "loop"]


def test_a_file_that_may_not_be_written(tmp_path, monkeypatch):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # the administrator may write everything
    with pytest.raises(AttnError, match="may not be written"):
        write(path)
    assert path.read_bytes() == b"old"


def test_a_link_keeps_pointing(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("sub/real")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "sub" / "real").read_bytes() == b"new"
    assert names(tmp_path / "sub") == ["real"]


def test_a_name_of_the_longest_kind(tmp_path):
    write(tmp_path / ("x" * 255))
    assert names(tmp_path) == ["x" * 255]


def test_a_pipe_is_written_as_it_stands(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    reader.start()
    write(path, b"through")
    reader.join(10)
    assert got == [b"through"]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/stdout"])
def test_devices_stay_what_they_are(device, tmp_path):
    code = (
        "from pathlib import Path; from attncli.inputs.files import atomic_writer\n"
        f"with atomic_writer(Path({device!r})) as stream: stream.write(b'hi')"
    )
    with (tmp_path / "log").open("wb") as log:
        before = os.fstat(log.fileno()).st_ino
        finish([sys.executable, "-c", code], stdout=log)
    assert (tmp_path / "log").read_bytes() == (b"hi" if device == "/dev/stdout" else b"")
    assert (
        tmp_path / "log"
    ).stat().st_ino == before  # the shell's own file, not one put in its place
    assert names(tmp_path) == ["log"]


def test_a_closed_pipe_passes_through(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BrokenPipeError):
        close_and_write(path, end)
