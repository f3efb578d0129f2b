"""What can go wrong, said once: every refusal of `attn` is an `AttnError`.

An error carries four short texts (what happened, where, what was expected, a command to try) and an
exit code. It is raised where the fact is known and told once, at the border (`attncli.cli.border`).
This module imports nothing heavy.
"""

from enum import IntEnum

from attncli.language import Message


class ExitCode(IntEnum):
    """Exit codes of the command line; other programs rely on the numbers."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    BAD_INPUT = 3
    UNSUPPORTED = 4
    LIMIT = 5
    INTERRUPTED = 130
    TERMINATED = 143
    HUNG_UP = 129


class AttnError(Exception):
    """A failure that the user can understand and act on.

    what: what happened, with the values involved: English with named places, or a message.

    where: the file, option, tensor or token concerned; "" if obvious.
    expected: what would have been accepted, as `what`; "" if obvious.
    hint: a command or option to try, or a message; "" if there is none. It has no places of its
        own.
    values: what stands in the places of `what` and `expected`, by name; these two are literals, so
        that they can be translated: see `attncli.language`.
    """

    exit_code = ExitCode.FAILURE

    def __init__(
        self, what: str, /, *, where: str = "", expected: str = "", hint: str = "", **values: object
    ) -> None:
        """Make each text a message, and show them all in a traceback; the class says what each is."""
        if isinstance(what, Message):
            self.what = what
        else:
            self.what = Message(what, values)
        super().__init__(self.what)
        self.where = where
        if isinstance(expected, Message):
            self.expected = expected
        else:
            self.expected = Message(expected, values)
        self.hint = hint
        for label, text in (("where", self.where), ("expected", self.expected), ("try", self.hint)):
            if text:  # what a traceback shows below the first line
                self.add_note(f"{label}: {text}")


class UsageError(AttnError):
    """The command line itself does not make sense."""

    exit_code = ExitCode.USAGE


def refused_value(
    option: str, value: object, expected: str, *, where: str = "", hint: str = ""
) -> UsageError:
    """The UsageError, returned and not raised, for a value that an option, or a variable, does not
    take.

    Args:
        option: The option as it is typed, or the variable.
        value: What was given; a text is shown in quotes.
        expected: What it takes.
        where: The file or variable concerned; "" if obvious.
        hint: A command or option to try; "" if there is none.
    """
    shown = value
    if isinstance(value, str):
        shown = repr(value)
    return UsageError(
        "{option} is {value}", expected=expected, where=where, hint=hint, option=option, value=shown
    )


class InputError(AttnError):
    """A text, file, tensor or token is not what it should be."""

    exit_code = ExitCode.BAD_INPUT


class UnsupportedError(AttnError):
    """A model, data type or feature that `attn` does not implement."""

    exit_code = ExitCode.UNSUPPORTED


class LimitError(AttnError):
    """The work would exceed a stated resource limit; refused before it starts."""

    exit_code = ExitCode.LIMIT


class VerdictError(AttnError):
    """A check that the command was asked for failed, such as `--fail-above`; the answer was written
    before, and stays."""


def first_sentence(error: BaseException) -> str:
    """The first sentence of an exception's message; the name of its class where the message is
    empty.

    Args:
        error: The error.

    Returns:
        At most 200 characters, without the full stop.
    """
    text = str(error).strip()
    if text:
        return text.splitlines()[0].partition(". ")[0].removesuffix(".")[:200]
    return type(error).__name__
