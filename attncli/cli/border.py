"""The border: every way in which a command can end becomes an exit code, and every failure is told once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from io import StringIO

from attncli.cli.environment import Environment
from attncli.errors import AttnError, ExitCode, LimitError

COMPLETION = "_ATTN_COMPLETE"
"""The variable with which a shell asks for completions."""


def run_guarded(
    arguments: Sequence[str],
    environment: Environment,
    signal_handler: Callable[[Environment], AbstractContextManager[None]] | None = None,
) -> int:
    """Run a command and turn every way it can end into an exit code.

    signal_handler: a block in which signals are raised; without one, the process's own stay as they are.
    """
    from attncli.inputs.atomic import together

    environment.machine = any(argument in ("--json", "--ndjson") for argument in arguments)
    environment.debug = environment.debug or "--debug" in arguments
    environment.lang = _language(arguments, environment)
    try:
        with nullcontext() if signal_handler is None else signal_handler(environment), together(), environment.endings:
            exit_code = _answer(arguments, environment)
            if environment.stop_signal is not None:  # a library took what was raised for its own
                raise KeyboardInterrupt
            return exit_code
    except BrokenPipeError:
        return ExitCode.OK  # the reader has what it wanted
    except Exception as error:
        if environment.stop_signal is not None:  # what was interrupted made it something else
            return 128 + environment.stop_signal
        if environment.debug:
            raise
        our_error = _as_ours(error)
        environment.report(our_error)
        return our_error.exit_code
    except BaseException as error:
        if environment.stop_signal is not None:
            return 128 + environment.stop_signal
        if isinstance(error, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        raise


def _language(arguments: Sequence[str], environment: Environment) -> str:
    """The language to speak, also where the command line cannot be read: `--lang` before `ATTN_LANG` before English."""
    language = environment.variables.get("ATTN_LANG", "")
    for place, argument in enumerate(arguments):
        if argument == "--lang" and place + 1 < len(arguments):
            language = arguments[place + 1]
        elif argument.startswith("--lang="):
            language = argument.removeprefix("--lang=")
    return "zh" if language == "zh" and not environment.wants_ascii() else "en"


def _as_ours(error: Exception) -> AttnError:
    if isinstance(error, AttnError):
        return error
    if isinstance(error, MemoryError):
        return LimitError("there is not enough memory for this", hint="a shorter text, --layer, --head or --top")
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return AttnError(f"something unexpected happened: {what}", hint="the same command with --debug, and report it")


def _answer(arguments: Sequence[str], environment: Environment) -> int:
    from typer.exceptions import Abort, Exit, TyperException

    from attncli.cli.app import command
    from attncli.cli.completion import check_request

    words = [*arguments[1:], "--help"] if list(arguments[:1]) == ["help"] else list(arguments)
    stdout = StringIO()
    result: object = None
    try:
        with redirect_stdout(stdout):  # Typer prints help pages and completion scripts itself
            group = command()
            if environment.variables.get(COMPLETION):  # a shell that is done leaves it empty
                check_request(environment.variables, COMPLETION)
                group.main(args=words, prog_name="attn", standalone_mode=False, obj=environment)
            # Typer's own main would take a failing write of ours for its own, and end with 1
            with group.make_context("attn", words, obj=environment) as context:
                result = group.invoke(context)
    except Exit as ended_early:
        result = ended_early.exit_code
    except Abort:
        return ExitCode.INTERRUPTED
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            environment.write(f"{error.format_message()}\n".encode())
            return ExitCode.OK
        from attncli.cli.usage_errors import misuse

        raise misuse(error) from error
    finally:
        if text := stdout.getvalue():
            environment.write(text.encode("utf-8", "surrogateescape"))  # names of files are completed
    if environment.verbose:
        from attncli.cli.resources import effort

        for origin in environment.origins:
            environment.note(origin)
        environment.note(effort(environment.models, environment.start_time))
    return result if isinstance(result, int) else ExitCode.OK
