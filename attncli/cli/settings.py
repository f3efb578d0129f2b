"""What people would repeat on every command line: a small TOML file, and variables, which go before
it.

model = "minilm"
lang = "zh"
color = "always"
precision = 3
scale-colors = "log"
palette = "light"
max-memory = "2GiB"
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from attncli.errors import InputError, UsageError
from attncli.language import listing, message, term

DECLARED: dict[str, type] = {
    "model": str,
    "lang": str,
    "color": str,
    "precision": int,
    "scale_colors": str,
    "palette": str,
    "max_memory": str,
    "max_output": str,
    "html_budget": str,
}
"""What can be set, by the option's name, and the type of its value. The palette, for letters on a
light or a dark ground, is what a terminal is, and no option."""

LARGEST = 100_000
"""Bytes of a settings file."""


class Setting(Struct, frozen=True):
    """A value, and where it was set: a variable's name, or a file and its line."""

    value: str | int
    origin: str


def settings(variables: Mapping[str, str]) -> dict[str, Setting]:
    """The values that the settings file and variables such as `ATTN_MODEL` give, by the option's
    name; variables go before the file. Raises UsageError for a value that the option does not take,
    with the variable or the line that sets it."""
    values = _file_settings(variables)
    for name, kind in DECLARED.items():
        variable = f"ATTN_{name.upper()}"
        text = variables.get(variable, "")
        if text:
            value: int | str = text
            if kind is int:
                value = _whole_or_text(text)
            values[name] = Setting(_checked_value(name, value, variable), variable)
    return values


def settings_file(variables: Mapping[str, str]) -> Path | None:
    """The path of the settings file, which need not exist: `ATTN_CONFIG`, else in the platform's
    folder; None where there is no home folder either."""
    if path := variables.get("ATTN_CONFIG"):
        return Path(path)
    home = variables.get("HOME") or variables.get("USERPROFILE")
    if sys.platform == "win32" and variables.get("APPDATA"):
        return Path(variables["APPDATA"]) / "attn" / "config.toml"
    if variables.get("XDG_CONFIG_HOME"):
        return Path(variables["XDG_CONFIG_HOME"]) / "attn" / "config.toml"
    if not home:
        return None
    if sys.platform == "darwin":
        folder = "Library/Application Support"
    else:
        folder = ".config"
    return Path(home) / folder / "attn" / "config.toml"


def _file_settings(variables: Mapping[str, str]) -> dict[str, Setting]:
    """The values that the settings file gives, by the option's name; none where there is no file,
    unless `ATTN_CONFIG` names it. Raises UsageError for a file that cannot be read, is no TOML, or
    sets what does not exist.
    """
    path = settings_file(variables)
    if path is None:
        return {}
    raw = _read_settings(path, is_named=bool(variables.get("ATTN_CONFIG")))
    if raw is None:
        return {}
    text, table = _parse_settings(path, raw)
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        where_set = f"{path}:{_line_of_key(text, key)}"
        if name not in DECLARED:
            setting_names = listing(known_name.replace("_", "-") for known_name in DECLARED)
            raise UsageError(
                "the settings have no key {key}",
                where=where_set,
                expected=setting_names,
                key=repr(key),
            )
        values[name] = Setting(_checked_value(name, value, where_set), where_set)
    return values


def _read_settings(path: Path, *, is_named: bool) -> bytes | None:
    """The bytes of a settings file; None where there is no file and none is needed. Raises
    UsageError for a file that cannot be read, or is too long.

    is_named: whether the user named the file, which must then be there.
    """
    try:
        from attncli.inputs.files import is_file, open_stream, opening_waits

        if not is_file(path) and not is_named:
            return None
        if opening_waits(path):
            raise UsageError("this is a pipe, not a file", where=str(path), expected="a TOML file")
        with open_stream(path, what=message("a TOML file")) as stream:
            raw = stream.read(LARGEST + 1)  # one byte more shows that it is too long
    except InputError as error:
        # the exit code then says that the settings are wrong, and not what the command reads
        raise UsageError(error.what, where=error.where, expected=error.expected) from error
    except (OSError, ValueError) as error:
        # a ValueError, as of a zero byte in the file's name, has no `strerror`
        reason = term(getattr(error, "strerror", None) or str(error))
        raise UsageError(
            "cannot read the settings: {reason}",
            where=str(path),
            expected="a TOML file",
            reason=reason,
        ) from error
    if len(raw) > LARGEST:
        raise UsageError(
            "the settings are longer than {largest:,} bytes",
            where=str(path),
            expected="a few lines",
            largest=LARGEST,
        )
    return raw


def _parse_settings(path: Path, raw: bytes) -> tuple[str, dict[str, Any]]:
    """The text of a settings file, and its values by key. Raises UsageError for what is no TOML.

    path: of the file, for errors.
    """
    import tomllib

    try:
        text = raw.decode()
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # tomllib says "Invalid value (at line 3, column 7)"
        line = "1"
        match = re.search(r"at line (\d+)", str(error))
        if match:
            line = match[1]
        explanation = str(error).partition(" (at")[0]
        what = message("the settings are no TOML: {error}", error=explanation)
        if isinstance(error, RecursionError):
            what = message("the settings are nested too deeply")
        raise UsageError(what, where=f"{path}:{line}", expected="key = value") from error
    return text, table


def _line_of_key(text: str, key: str) -> int:
    """The number, from 1, of the line of a TOML file that sets a key; 1 where none is recognised."""
    # such as `model =`, `"model" =`, `model.name =` or `[model]`
    begins = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    for number, line in enumerate(text.splitlines(), 1):
        if begins.match(line):
            return number
    return 1


def _whole_or_text(text: str) -> int | str:
    """The whole number that a text writes, else the text."""
    from attncli.cli.option import parse_whole_number

    number = parse_whole_number(text)
    return text if number is None else number


def _declaration(name: str) -> Any:
    """The declared Typer option of this name, to check a setting's value with. Imported here
    because all options are declared in one file that takes 6 ms to load."""
    from attncli.cli import declarations
    from attncli.cli.option import RUN, option

    match name:
        case "model":
            return declarations.CHECKPOINT
        case "palette":
            return option("palette", help="", panel="", about=RUN, values=("light", "dark"))
        case _:
            return getattr(declarations, name.upper())


def _checked_value(name: str, value: object, where: str) -> str | int:
    """The value of a setting, checked as that of the option of this name is. Raises UsageError for
    one that the option does not take.

    where: the variable, or the file and line, that sets it.
    """
    kind = DECLARED[name]
    # the very type: by `isinstance`, true and false would be whole numbers
    if type(value) is not kind or value == "":
        expected = message("a whole number" if kind is int else "a word in quotes")
        raise UsageError(
            "{name} is {value}",
            where=where,
            expected=expected,
            name=name.replace("_", "-"),
            value=repr(value),
        )
    declaration = _declaration(name)
    if declaration.callback is not None:
        if name == "palette":  # which is no option of a command line
            option_name = name
        else:
            option_name = f"--{name.replace('_', '-')}"
        try:
            # callbacks are made for Typer: of its parameter they read the option's name alone
            declaration.callback(None, SimpleNamespace(opts=[option_name]), value)
        except UsageError as error:
            error.where = where
            raise
    assert isinstance(value, str | int)
    return value
