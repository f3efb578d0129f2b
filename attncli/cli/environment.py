"""The outside world of a command: stdin, stdout, stderr, colour and the terminal's size."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from errno import EBADF
from functools import cached_property
from io import RawIOBase, TextIOBase
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from attncli.errors import AttnError, refused_value
from attncli.language import message, term, translate

if TYPE_CHECKING:
    from pathlib import Path

    from attncli.cli.option import About
    from attncli.cli.settings import Setting
    from attncli.draw.lines import Lines
    from attncli.draw.view import View
    from attncli.models.model import Model

SIXTEEN_COLORS = ("linux", "ansi", "cygwin", "vt100", "vt220")
"""Values of `TERM` for terminals that have sixteen colours; those with more are not all told apart
by it.
"""

DEFAULT_WIDTH = 80
NARROWEST = 40
WIDEST = 2000
MOST_TOLD = 2000
"""Characters of one line of an error; names in a file may have any length."""


@dataclass
class Environment:
    """Everything of the outside world that a command may touch, in one object.

    A test makes one with its own streams and runs the whole command line in process.

    width: columns of the terminal, None if unknown.
    keys: waits for a key at the terminal and returns it; None where there is no terminal.
    """

    stdin: BinaryIO
    stdout: BinaryIO
    stderr: IO[str]
    variables: Mapping[str, str]
    stdin_is_terminal: bool = False
    stdout_is_terminal: bool = False
    stderr_is_terminal: bool = False
    width: int | None = None
    height: int | None = None
    debug: bool = False
    quiet: bool = False
    verbose: bool = False
    lang: str = "en"
    machine: bool = False  # a machine reads the answer: errors are told as JSON
    origins: list[str] = field(default_factory=list)  # where values came from, for --verbose
    explicit_options: frozenset[str] = (
        frozenset()
    )  # the parameters that stand on the command line itself
    given_words: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # the words of each of them, as a shell gave them
    subjects: Mapping[str, About] = field(
        default_factory=dict
    )  # what each option of the command is about, by name
    spellings: Mapping[str, str] = field(
        default_factory=dict
    )  # how each is spelled on a command line
    stop_signal: int | None = None  # the signal that ended the command
    start_time: float = field(default_factory=perf_counter)
    models: list[Model] = field(default_factory=list)  # those that the command loaded
    keys: Callable[[], str] | None = None
    endings: ExitStack = field(
        default_factory=ExitStack
    )  # what ends with the command, whatever happens
    # called with how far a run is through its layers; None where no work that has a bar is running
    layers: Callable[[float], None] | None = None
    unfinished: int = 0  # bytes on standard output since the last write that ended a line

    @classmethod
    def of_process(cls) -> Environment:
        """The streams, variables and terminal of this process."""
        # a stream that the caller closed (`>&-`) is None here
        out_is_terminal = sys.stdout is not None and sys.stdout.isatty()
        width, height = _terminal_size() if out_is_terminal else (None, None)
        if sys.stdin is not None:
            stdin: BinaryIO = sys.stdin.buffer
        else:
            stdin = open(os.devnull, "rb")  # noqa: PTH123, SIM115
        if sys.stderr is not None:
            stderr = cast(IO[str], UnfailingStderr(sys.stderr))
        else:
            stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        return cls(
            stdin=stdin,
            stdout=standard_output(),
            stderr=stderr,
            variables=os.environ,
            # also where there is nothing to read: no command then takes it for a text
            stdin_is_terminal=sys.stdin is None or sys.stdin.isatty() or _is_null_device(sys.stdin),
            stdout_is_terminal=out_is_terminal,
            stderr_is_terminal=sys.stderr is not None and sys.stderr.isatty(),
            width=width,
            height=height,
            debug=os.environ.get("ATTN_DEBUG", "") not in ("", "0"),
            keys=read_key if sys.stdin is not None and sys.stdin.isatty() else None,
        )

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """The values of options that variables and the settings file give, by the option's name.
        Raises UsageError for a value that its option does not take."""
        from attncli.cli.settings import settings

        return settings(self.variables)

    def options_without(self, forms: About, *, besides: About | None = None) -> list[str]:
        """The options given on the command line that have no effect in these forms of the answer
        (such as `About.JSON`), by their spelling on a command line, in the order in which the
        command declares them.

        besides: if given, only options that have an effect in these forms.
        """
        from attncli.cli.option import DELIVERY  # of options that go with every form

        return [
            self.spellings[name]
            for name, about in self.subjects.items()
            if name in self.explicit_options
            and not about & (forms | DELIVERY)
            and (besides is None or about & besides)
        ]

    def options_about(self, group: Any, subject: About) -> list[str]:
        """The options of a group whose values are not the defaults and that have an effect on this
        subject, such as `About.CHECKPOINT`; each as `--name`, in the order of the group.

        group: an instance of a group of options, such as `ModelOptions`.
        """
        from attncli.cli.option import option_defaults

        # a repeated option that was not given is [], whatever its default
        names = [
            name
            for name, default in option_defaults(type(group)).items()
            if getattr(group, name) not in (default, [])
        ]
        # `--source @FILE.npy` was moved to `source_states` when the group was made
        if "source" in self.explicit_options:
            names = ["source" if name == "source_states" else name for name in names]
        return [
            f"--{name.replace('_', '-')}"
            for name in names
            if name in self.subjects and self.subjects[name] & subject
        ]

    @property
    def columns(self) -> int:
        """The width to print in: `COLUMNS`, the terminal's, or 80."""
        from attncli.cli.option import parse_whole_number

        width = parse_whole_number(self.variables.get("COLUMNS", "")) or self.width or DEFAULT_WIDTH
        return min(max(width, NARROWEST), WIDEST)

    def wants_color(self, choice: str) -> bool:
        """Whether to print colour for `--color` auto, always or never. Source: no-color.org."""
        if choice in ("always", "never"):
            return choice == "always"
        if self.variables.get("NO_COLOR"):
            return False
        if self.variables.get("FORCE_COLOR") or self.variables.get("CLICOLOR_FORCE"):
            return True
        return self.stdout_is_terminal and self.variables.get("TERM") != "dumb"

    @property
    def can_draw_over(self) -> bool:
        """Whether a new picture on standard output can take the place of the last one. In a
        notebook a command has a terminal, but all that it writes stays below one another."""
        return (
            self.stdout_is_terminal
            and self.variables.get("TERM") != "dumb"
            and "JPY_PARENT_PID" not in self.variables  # which Jupyter's kernels have
        )

    @property
    def colors(self) -> str:
        """How many colours the terminal has: "truecolor" if `COLORTERM` says so, or where a file or
        a pipe takes what is written, "16" if `TERM` names one that has no more, else "256"."""
        if self.variables.get("COLORTERM") in ("truecolor", "24bit") or not self.stdout_is_terminal:
            return "truecolor"
        terminal = self.variables.get("TERM", "")
        if terminal.endswith("-16color") or terminal in SIXTEEN_COLORS:
            return "16"
        return "256"

    @property
    def light(self) -> bool:
        """Whether the terminal has dark text on a light ground: as `ATTN_THEME` says, else the
        setting `palette`, else the terminal's own `COLORFGBG`. Raises UsageError for an
        `ATTN_THEME` that is neither light nor dark.
        """
        theme = self.variables.get("ATTN_THEME", "")
        if theme not in ("", "light", "dark"):
            raise refused_value("ATTN_THEME", theme, "light or dark")
        if theme:
            return theme == "light"
        if (palette := self.settings.get("palette")) is not None:
            return palette.value == "light"
        # "0;15" is black on white: the last number is the ground, and 7 and 15 are light ones
        return self.variables.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")

    def wants_ascii(self) -> bool:
        """Whether the locale cannot show more than ASCII.

        Under `LANG=C` Python itself sets `LC_CTYPE=C.UTF-8` (PEP 538), which says nothing about the
        terminal.
        """
        names = ["LC_ALL", "LC_CTYPE", "LANG"]
        if self.variables.get("LC_CTYPE") == "C.UTF-8":
            names.remove("LC_CTYPE")
        # the first variable that is set counts
        for name in names:
            locale_name = self.variables.get(name)
            if locale_name:
                return "utf" not in locale_name.lower()
        return False

    @property
    def notice_language(self) -> str:
        """The language of standard error: the one asked for; English where its encoding or the
        locale has no Chinese characters."""
        if self._encodes("\u9519") and not self.wants_ascii():  # 错, the first sign of "error: "
            return self.lang
        return "en"

    def _encodes(self, text: str) -> bool:
        """Whether standard error's encoding has all characters of a text. A stream of a test's, which
        has no encoding, counts as UTF-8.
        """
        try:
            text.encode(getattr(self.stderr, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):  # LookupError: Python has no such encoding
            return False
        return True

    def writes_to(self, path: Path) -> bool:
        """Whether standard output is redirected to this file. Writing to both would overwrite one
        of them."""
        try:
            stdout_stat = os.fstat(self.stdout.fileno())
            path_stat = path.stat()
        except (OSError, ValueError):  # a terminal's, a test's
            return False
        return stat.S_ISREG(stdout_stat.st_mode) and os.path.samestat(stdout_stat, path_stat)

    def write(self, data: bytes) -> None:
        """Write bytes to standard output at once. Raises AttnError where it is closed or its disk
        is full; an unfinished line at the end of a file is then taken back.
        """
        try:
            write_all(self.stdout, data, self.unfinished)
            if data.endswith(b"\n"):
                self.unfinished = 0
            else:
                self.unfinished = self.unfinished + len(data)
        except BrokenPipeError:  # also an OSError, but no failure: the reader has what it wanted
            raise
        except OSError as error:
            what = message(
                "cannot write the answer: {strerror}", strerror=term(error.strerror or str(error))
            )
            raise AttnError(what, where=message("standard output")) from error

    @property
    def notes(self) -> Callable[[str], None] | None:
        """The function to call with a note for standard error; None with `--quiet`."""
        return None if self.quiet else self.note

    def without_notes(self) -> Environment:
        """A copy that writes no notes to standard error, as with `--quiet`."""
        return replace(self, quiet=True)

    def note(self, text: str) -> None:
        """Write a line for a person to standard error, which is no part of the answer; nothing with
        `--quiet`.
        """
        if not self.quiet:
            from attncli.draw.lines import note_line

            self._print_lines(note_line(text, self._stderr_view()))

    def report(self, error: AttnError) -> None:
        """Write an error to standard error: four lines at most, or one JSON document where a program
        reads the answer."""
        if self.machine:
            lang = "en"
        else:
            lang = self.notice_language
        texts = (error.what, error.where, error.expected, error.hint)
        what, where, expected, hint = (_shorten(translate(text, lang)) for text in texts)
        if self.machine:
            from json import dumps

            from attncli.draw.encoding import ndjson_line

            parts_of_line = [what, where]
            if expected:
                parts_of_line.append(f"expected {expected}")
            text = "; ".join(filter(None, parts_of_line))
            document = {
                "error": {"code": int(error.exit_code), "message": text, "hint": hint or None}
            }
            line = ndjson_line(document).decode()
            # an encoding without a character would write an escape that JSON does not know
            self.stderr.write(line if self._encodes(line) else f"{dumps(document)}\n")
            self.stderr.flush()
        else:
            from attncli.draw.lines import error_lines

            parts = (("error", what), ("where", where), ("expected", expected), ("try", hint))
            self._print_lines(error_lines(parts, self._stderr_view()))

    def _stderr_view(self) -> View:
        """How to show what is written to standard error: as wide as the terminal, or of any width
        in a file.
        """
        from attncli.draw.view import View

        plain = self.variables.get("NO_COLOR") or self.variables.get("TERM") == "dumb"
        if self.stderr_is_terminal:
            width = self.columns
        else:
            width = MOST_TOLD
        return View(
            width=width,
            color=self.stderr_is_terminal and not plain,
            lang=self.notice_language,
            colors="256",  # its colours are named ones, written the same for 16
        )

    def _print_lines(self, lines: Lines) -> None:
        """Write lines to standard error, in colour at a terminal; Rich is imported for that alone."""
        if not self._stderr_view().color:
            self.stderr.write(lines.plain + "\n")
        else:
            from attncli.draw.lines import console

            console(self._stderr_view(), self.stderr).print(lines, crop=False, soft_wrap=True)
        self.stderr.flush()


def _shorten(text: str) -> str:
    """The text, of a very long one only its first and last thousand characters with … between."""
    half = MOST_TOLD // 2
    if len(text) <= MOST_TOLD:
        return text
    return f"{text[:half]} … {text[-half:]}"


def _is_null_device(stream: TextIO) -> bool:
    """Whether a stream is the null device (`/dev/null`), with which programs are started where nobody
    can type anything.
    """
    try:
        stream_stat, null = os.fstat(stream.fileno()), os.stat(os.devnull)  # noqa: PTH116
    except (OSError, ValueError):  # a stream of a test's has no number
        return False
    return stat.S_ISCHR(stream_stat.st_mode) and stream_stat.st_rdev == null.st_rdev


def _terminal_size() -> tuple[int | None, int | None]:
    """Columns and lines of the terminal; None for those that it does not report."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):  # no terminal
        return None, None
    return (size.columns or None), (size.lines or None)


# The process's own standard streams, written past Python's buffers: what fails does so at once, and
# once.
#
# With buffers, a closed pipe or a full disk would be found again when Python ends, and told by
# Python.


class ClosedOutput(RawIOBase):
    """Stands in for a standard output that the caller has closed: every write raises OSError."""

    def write(self, data: Any) -> int:
        """Raises OSError, as a write to a closed file does."""
        del data
        raise OSError(EBADF, "standard output is closed")


class UnfailingStderr(TextIOBase):
    """Standard error that ignores failed writes."""

    def __init__(self, stream: TextIO) -> None:
        """Write to what is under the buffers of this stream."""
        super().__init__()
        self._stream = stream
        self._raw = unbuffered_stream(stream)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write a text at once, characters that the encoding lacks as escapes; a failure is ignored.
        Returns the length of the text."""
        with suppress(OSError, ValueError):
            write_all(self._raw, text.encode(self.encoding, "backslashreplace"))
        return len(text)


def unbuffered_stream(stream: TextIO) -> BinaryIO:
    """The stream under a text stream's buffers, if there is one."""
    binary = stream.buffer
    return cast(BinaryIO, getattr(binary, "raw", binary))


def standard_output() -> BinaryIO:
    """The process's standard output without Python's buffers; where the caller has closed it (`>&-`),
    and it is None in `sys`, a stream whose writes fail."""
    if sys.stdout is None:
        return cast(BinaryIO, ClosedOutput())
    return unbuffered_stream(sys.stdout)


def write_all(stream: BinaryIO, data: bytes, unfinished: int = 0) -> None:
    """Write all of the bytes, in as many pieces as the stream takes. Raises OSError if that fails;
    of a file, what this call wrote is then taken back, and the last `unfinished` bytes written
    before it."""
    remaining = memoryview(data)
    try:
        while remaining:
            count = stream.write(remaining)
            if count is None:  # a non-blocking pipe is full: wait until its reader has read
                from select import select

                select([], [stream], [])
            else:
                remaining = remaining[count:]
        stream.flush()
    except OSError:
        _take_back(stream, unfinished + len(data) - len(remaining))
        raise


def _take_back(stream: BinaryIO, count: int) -> None:
    """Cut the last `count` bytes that a stream wrote off its file; does nothing for a pipe or a
    device, or where others have written behind them.
    """
    with suppress(OSError, ValueError):  # a test's stream has no number
        handle = stream.fileno()
        status = os.fstat(handle)
        if count == 0 or not stat.S_ISREG(status.st_mode):
            return
        # the place after a write is its end also in a file that is appended to
        end = os.lseek(handle, 0, os.SEEK_CUR)
        is_last = end == status.st_size  # nobody has written behind it
        if is_last and end >= count:
            os.ftruncate(handle, end - count)
            os.lseek(handle, end - count, os.SEEK_SET)


ESCAPE_PATIENCE = 0.05
"""Seconds in which what an arrow sends behind Escape has come, also over a network."""


def read_key() -> str:
    """Wait for a key at the terminal and return its character, of an arrow the several that it
    sends; "" at the end of the input. Where the terminal cannot give single keys, a line is read."""
    try:
        import termios
        import tty
    except ImportError:  # no such thing on Windows
        return sys.stdin.readline()[:1]
    handle = sys.stdin.fileno()
    terminal_settings = termios.tcgetattr(handle)
    try:
        # keys come one by one, and are not shown; those typed ahead are kept, unlike by default
        tty.setcbreak(handle, termios.TCSADRAIN)
        key = os.read(handle, 1)
        # an arrow sends Escape and more at once: what stays unread would be typed into the shell
        if key == b"\x1b" and select.select([handle], [], [], ESCAPE_PATIENCE)[0]:
            key += os.read(handle, 16)
        return key.decode("latin-1")  # in which every byte is a character
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, terminal_settings)
