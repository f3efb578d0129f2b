"""What Typer says of a command line that cannot be read, as one of our own errors."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from attncli.errors import UsageError

if TYPE_CHECKING:
    from typer.exceptions import TyperException

NO_NUMBER = re.compile(r"(?P<given>'.*') is not a valid (?P<kind>int|integer|float)\.?", re.DOTALL)
"""What Typer says of a value that is no number."""


def misuse(error: TyperException) -> UsageError:
    """The UsageError for what Typer found wrong; an option that does not exist brings the nearest one that does."""
    context = getattr(error, "ctx", None)
    path = "attn" if context is None else context.command_path.rstrip()
    name = getattr(error, "option_name", None)
    parameter = getattr(error, "param", None)
    if (no_number := NO_NUMBER.fullmatch(getattr(error, "message", ""))) and getattr(parameter, "opts", None):
        assert parameter is not None
        kind = "a number" if no_number["kind"] == "float" else "a whole number"
        return UsageError(f"{parameter.opts[0]} is {no_number['given']}", expected=kind, hint=f"{path} --help")
    if name is None or context is None:
        return UsageError(error.format_message().rstrip("."), hint=f"{path} --help")
    return no_option(context, name)


def no_option(context: Any, name: str) -> UsageError:
    """The UsageError for an option that the command of this context does not have."""
    path = context.command_path.rstrip()
    option_names = [
        spelling
        for parameter in context.command.get_params(context)
        for spelling in parameter.opts
        if spelling.startswith("--")
    ]
    close = get_close_matches(name, option_names, 1, 0.75)
    hint = f"did you mean {close[0]}?" if close else f"{path} --help"
    if context.parent is None and not close:
        return UsageError(
            f"attn itself has no option {name}", expected=f"options after the command: attn run TEXT {name}", hint=hint
        )
    return UsageError(f"{path} has no option {name}", hint=hint)


def too_many(path: str, values: dict[str, Any], extra: list[str]) -> UsageError:
    """The UsageError for arguments that are left over; mostly a text without its quotes. values: the parameters read,
    by name."""
    import shlex

    path = path.rstrip()
    many = f"{len(extra)} arguments too many" if len(extra) > 1 else "one argument too many"
    text = values.get("text")
    if not isinstance(text, str):
        return UsageError(f"{many}: {' '.join(extra)}", hint=f"{path} --help")
    second_argument = values.get("other")
    words = (text, *([second_argument] if isinstance(second_argument, str) else []), *extra)
    whole = shlex.quote(" ".join(words))
    return UsageError(
        f"{many} after the text {text!r}: {' '.join(extra)}", expected="the text in quotes", hint=f"{path} {whole}"
    )
