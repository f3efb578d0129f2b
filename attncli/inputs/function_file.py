"""A user's own Python file of functions: read as a regular file of bounded size, run as the user's
code, its mistakes told with their line. What the functions compute is for the caller: metrics
(`attncli.measure.metric_file`), rules of heads (`attncli.features.rules.rule_file`).
"""

from __future__ import annotations

import hashlib
import inspect
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from msgspec import Struct

from attncli.errors import InputError
from attncli.inputs.files import read_regular
from attncli.language import message

LARGEST = 2**20
"""Bytes of a file of functions, at most."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name of Python's in ASCII; a lambda's own is `<lambda>`."""


class FunctionFile(Struct, frozen=True):
    """A file of functions that has been run.

    path: as it was named.
    sha256: of its bytes.
    functions: those that it defines, by name, in their order.
    """

    path: Path
    sha256: str
    functions: Mapping[str, FunctionType]

    def where(self, name: str) -> str:
        """The file and the line at which a function begins."""
        return f"{self.path}:{self.functions[name].__code__.co_firstlineno}"


class FileWords(Struct, frozen=True):
    """How errors speak of a kind of file, each a message.

    what: the name of the kind, such as "a file of metrics".
    failed: the sentence that the file failed as it ran.
    none: the sentence that the file defines no function.
    expected: what a function in it looks like.
    """

    what: str
    failed: str
    none: str
    expected: str


def run_file(path: str | Path, words: FileWords) -> FunctionFile:
    """Run a user's Python file, as Python runs a program.

    Args:
        path: A file whose name is one of Python's, such as my_rules.py.
        words: How errors speak of it.

    Returns:
        Its functions whose names do not begin with an underscore; classes and what is imported
        are left out.

    Raises:
        InputError: Where there is no such file, it fails, or has no function; `where` names the
            file's line.
    """
    place = Path(path)
    raw = _read(place, words)
    if not NAME.fullmatch(place.stem):
        raise InputError(
            "functions are called after their file, and {name} is no name",
            where=str(path),
            expected="letters, digits and underscores, such as my_file.py",
            name=repr(place.stem),
        )
    functions = _functions(raw, place, words.failed)
    if not functions:
        raise InputError(words.none, where=str(path), expected=words.expected)
    return FunctionFile(place, hashlib.sha256(raw).hexdigest(), functions)


def function_file_digest(path: str | Path, words: FileWords) -> str:
    """The sha256 of a user's Python file, which is not run.

    words: how errors speak of it.

    Raises InputError where there is no such file.
    """
    return hashlib.sha256(_read(Path(path), words)).hexdigest()


def _read(path: Path, words: FileWords) -> bytes:
    """The bytes of a user's Python file. Raises InputError where there is no such file."""
    return read_regular(path, what=words.what, limit=LARGEST)


def _functions(raw: bytes, path: Path, failed: str) -> dict[str, FunctionType]:
    """Run a file and return the functions that it defines, by name.

    failed: the sentence of the error for a file that raises.

    Raises InputError for a file that is no Python or that raises.
    """
    # not in sys.modules: two files of one name are two, and a file that is read again is run again
    namespace: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(raw, str(path), "exec"), namespace)
    except SyntaxError as error:  # of which some name no line
        raise InputError(
            "this is no Python: {reason}", where=f"{path}:{error.lineno or 1}", reason=error.msg
        ) from error
    except (Exception, SystemExit) as error:
        raise failure_of_code(error, path, failed) from error
    # its own functions: neither private ones, nor classes, nor what it has imported from elsewhere
    return {
        name: value
        for name, value in namespace.items()
        if isinstance(value, FunctionType)
        and NAME.fullmatch(name)
        and not name.startswith("_")
        and value.__module__ == path.stem
        and value.__code__.co_filename == str(path)
    }


def failure_of_code(error: BaseException, path: Path, what: str, line: int = 1) -> InputError:
    """The error, returned and not raised, for an exception in the user's file, with the line of the
    file that the traceback reached last.

    error: the exception.
    path: the file.
    what: the sentence that comes before the exception's own words.
    line: the line to name where the traceback has none of the file.
    """
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    fault = message(
        "{what}: {kind}: {reason}", what=what, kind=type(error).__name__, reason=str(error)[:300]
    )
    if lines and lines[-1]:  # None or 0: code that stands at no line
        line = lines[-1]
    return InputError(fault, where=f"{path}:{line}")


def formula_of(function: FunctionType, name: str, argument: str) -> str:
    """A user's function in one line: the first of its docstring, or `name(argument)` where it has
    none.

    name: what the file calls it; a lambda does not know its own name.
    argument: how its argument is written.
    """
    documentation = inspect.getdoc(function)
    if documentation:
        return documentation.splitlines()[0]
    return f"{name}({argument})"
