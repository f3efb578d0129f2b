"""The border: every way in which a command can end, by itself or by a signal, becomes an exit code,
and every failure is told once.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from difflib import get_close_matches
from io import StringIO
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from attncli.cli.environment import Environment
from attncli.errors import AttnError, ExitCode, LimitError, UsageError
from attncli.language import language_of, languages, message, translate

if TYPE_CHECKING:
    from typer.exceptions import TyperException

COMPLETION = "_ATTN_COMPLETE"
"""The variable with which a shell asks for completions."""


def run_guarded(
    arguments: Sequence[str],
    environment: Environment,
    signal_handler: Callable[[Environment], AbstractContextManager[None]] | None = None,
) -> int:
    """Run a command and turn every way it can end into an exit code.

    signal_handler: makes the context manager in which signals that stop the process raise an
        exception, such as `handle_signals`; None leaves the process's own handling.
    """
    from attncli.inputs.files import together

    # what decides how an error is shown is read first, as the command line may not be readable
    environment.machine = any(argument in ("--json", "--ndjson") for argument in arguments)
    environment.debug = environment.debug or "--debug" in arguments
    environment.lang = _language(arguments, environment)
    try:
        with (
            nullcontext() if signal_handler is None else signal_handler(environment),
            together(),  # all files that the command writes appear at its end, or none
            environment.endings,  # what a command left to be ended, such as a progress bar
        ):
            exit_code = _answer(arguments, environment)
            # a library caught what the signal raised, so it is raised again
            if environment.stop_signal is not None:
                raise KeyboardInterrupt
            return exit_code
    except BrokenPipeError:
        return ExitCode.OK  # the reader has what it wanted
    except Exception as error:
        # a library turned what the signal raised into an error of its own
        if environment.stop_signal is not None:
            return 128 + environment.stop_signal
        if environment.debug:
            raise
        our_error = _attn_error(error)
        our_error.hint = _whole_hint(our_error, arguments, environment.lang)
        environment.report(our_error)
        return our_error.exit_code
    except BaseException as error:
        if environment.stop_signal is not None:
            return 128 + environment.stop_signal
        if isinstance(error, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        raise


def _language(arguments: Sequence[str], environment: Environment) -> str:
    """The language of answers and errors: that of `--lang`, else of `ATTN_LANG`, else of the settings
    file, else English. It is found without Typer, as errors of the command line need it."""
    language = environment.variables.get("ATTN_LANG", "")
    if not language:
        # settings that cannot be read are reported by the command, which reads them too
        with suppress(AttnError):
            setting = environment.settings.get("lang")
            if setting is not None:
                language = str(setting.value)
    for place, argument in enumerate(arguments):
        if argument == "--lang" and place + 1 < len(arguments):
            language = arguments[place + 1]
        elif argument.startswith("--lang="):
            language = argument.removeprefix("--lang=")
    language = language_of(language)
    if language in languages() and not environment.wants_ascii():
        return language
    return "en"


def _attn_error(error: Exception) -> AttnError:
    """The error as an AttnError: one of ours as it is, MemoryError as a LimitError, any other as
    unexpected.
    """
    if isinstance(error, AttnError):
        return error
    if isinstance(error, MemoryError):
        return LimitError(
            "there is not enough memory for this", hint="a shorter text, --layer, --head or --top"
        )
    if str(error):
        what = f"{type(error).__name__}: {error}"
    else:
        what = type(error).__name__
    return AttnError(
        "something unexpected happened: {what}",
        hint="the same command with --debug, and report it",
        what=what,
    )


SAMPLES = "sample_inputs"
"""The folder of examples, which the guide's commands read: in the repository, not installed."""


def _whole_hint(error: AttnError, arguments: Sequence[str], lang: str) -> str:
    """The error's hint; a command in it has `--lang` where the command line has it, and a sample
    that is not in this folder is said to be in the repository."""
    from attncli.inputs.files import is_there

    names_sample = re.search(rf"(?<![\w/.-]){SAMPLES}/", f"{error.where} {error.what}")
    if names_sample and not error.hint and not is_there(Path(SAMPLES)):
        return message("the same in the folder of attn's repository, which holds sample_inputs")
    # a hint that has a translation is a sentence; words after ` -- ` are no options
    is_command = error.hint == "attn --help" or re.match("attn [a-z]", error.hint) is not None
    has_option = any(argument.partition("=")[0] == "--lang" for argument in arguments)
    if not is_command or not has_option or lang == "en":
        return error.hint
    if translate(error.hint, lang) != error.hint or re.search(" (--|--lang) ", error.hint):
        return error.hint
    return f"{error.hint} --lang {lang}"


def _answer(arguments: Sequence[str], environment: Environment) -> int:
    """Run the command that the arguments name, and write what Typer itself prints (help,
    completions). Returns its exit code."""
    from typer.exceptions import Abort, Exit, TyperException

    from attncli.cli.app import command
    from attncli.cli.completion import check_request

    if list(arguments[:1]) == ["help"]:
        words = [*arguments[1:], "--help"]
    else:
        words = list(arguments)
    stdout = StringIO()
    result: object = None
    try:
        with redirect_stdout(stdout):  # Typer prints help pages and completion scripts itself
            group = command()
            # a shell that asks for completions sets this variable, and leaves it empty afterwards;
            # Typer answers in `main`, which then ends the process
            if environment.variables.get(COMPLETION):
                check_request(environment.variables, COMPLETION)
                group.main(args=words, prog_name="attn", standalone_mode=False, obj=environment)
            # not by `main`: it would take a failed write of ours for its own, and end with 1
            with group.make_context("attn", words, obj=environment) as context:
                result = group.invoke(context)
    except Exit as ended_early:
        result = ended_early.exit_code
    except Abort:
        return ExitCode.INTERRUPTED
    except TyperException as error:
        # by its name, as Typer does not export the class: a group alone, whose message is its help
        if type(error).__name__ == "NoArgsIsHelpError":
            environment.write(f"{error.format_message()}\n".encode())
            return ExitCode.OK

        raise usage_error(error) from error
    finally:
        if text := stdout.getvalue():
            # completions may hold names of files, whose bytes need not be UTF-8
            environment.write(text.encode("utf-8", "surrogateescape"))
    if environment.stdout_is_terminal and not environment.machine:
        _tell_of_trained_model(words, environment)
    if environment.verbose:
        from attncli.cli.progress import effort

        for origin in environment.origins:
            environment.note(origin)
        environment.note(effort(environment.models, environment.start_time))
    if isinstance(result, int):
        return result
    return ExitCode.OK


KINDS_OF_COMMANDS: dict[str, tuple[Literal["decoder", "encoder-decoder"], ...]] = {
    "cache": ("decoder",),
    "cross": ("encoder-decoder",),
}
"""The kinds of models that a command takes, where it does not take all."""


def _tell_of_trained_model(words: Sequence[str], environment: Environment) -> None:
    """After an answer with untrained weights, write the command for a trained model that is
    installed to standard error, so that the answer itself does not depend on what is installed.
    Nothing where none is installed, and after the full-screen explorer.

    words: the command line, without `attn`.
    """
    sources = {model.identity.source for model in environment.models}
    if not sources & {"seeded", "random"}:
        return
    # a model was built, so that the line names a command: without one, attn prints its own page
    command_name = words[0]
    if command_name == "explore":
        return
    from attncli.models.aliases import installed_alias

    kinds = KINDS_OF_COMMANDS.get(command_name)
    if kinds is None:
        name = installed_alias(environment.variables)
    else:
        name = installed_alias(environment.variables, kinds)
    if name is not None:
        environment.note(
            message(
                "a trained model is here: {command} …",
                command=f"attn {command_name} --model {name}",
            )
        )


# What Typer says of a command line that cannot be read, as one of our own errors.

NO_NUMBER = re.compile(r"(?P<given>'.*') is not a valid (?P<kind>int|integer|float)\.?", re.DOTALL)
"""What Typer says of a value that is no number."""


def usage_error(error: TyperException) -> UsageError:
    """Our UsageError for what Typer found wrong in a command line; for an option that does not exist
    it suggests the nearest one.
    """
    # kinds of errors are told by their names below, as Typer does not export their classes
    context = getattr(error, "ctx", None)
    path = "attn"
    if context is not None:
        path = context.command_path.rstrip()
    name = getattr(error, "option_name", None)
    parameter = getattr(error, "param", None)

    # a value that is no number
    match = NO_NUMBER.fullmatch(getattr(error, "message", ""))
    if match and getattr(parameter, "opts", None):
        from attncli.cli.option import no_number

        kind = float if match["kind"] == "float" else int
        return no_number(context, parameter, match["given"], kind)

    # an argument or an option that is missing
    if type(error).__name__ == "MissingParameter" and parameter is not None:
        if parameter.param_type_name == "argument":
            argument_name = parameter.metavar or (parameter.name or "").upper()
            what = message("Missing argument {name}", name=repr(argument_name))
        else:
            what = message("Missing option {name}", name=repr(parameter.opts[0]))
        return UsageError(what, hint=f"{path} --help")

    # an option at the end of the line, without its value
    if type(error).__name__ == "BadOptionUsage" and "requires" in error.message.split():
        expected = ""
        if name in WORD_OPTIONS:
            expected = message("a word, or a position in quotes: {option} '#3'", option=name)
        return UsageError(
            "{name} takes a value, and none is given",
            expected=expected,
            hint=f"{path} --help",
            name=name,
        )

    # anything else but an option that does not exist
    if name is None or context is None or type(error).__name__ != "NoSuchOption":
        return UsageError(error.format_message().rstrip("."), hint=f"{path} --help")
    return no_option(context, name)


WORD_OPTIONS = ("--query", "--key", "--from", "--to", "--at")
"""Options that name a token, whose position a shell drops as a comment where it is not quoted."""


RENAMED = {
    "--bias": "--score-bias",
    "--rows": "--block-rows",
    "--target": "--decoder-text",
}
"""What is meant by a spelling that a command had until it meant something else in another."""
VALUES_MEANT = {
    "--causal": "--mask causal",
    "--no-causal": "--mask none",
    "--bidirectional": "--mask none",
    "--window": "--mask window:4",
    "--chinese": "--lang zh",
}
"""What is meant by options that other programs have: an option of ours with its value."""


def no_option(context: Any, name: str) -> UsageError:
    """The UsageError for an option, such as `--causal`, that the command of this context does not
    have; it suggests what is meant: `--mask causal`."""
    path = context.command_path.rstrip()
    spellings = (
        text for parameter in context.command.get_params(context) for text in parameter.opts
    )
    option_names = [spelling for spelling in spellings if spelling.startswith("--")]
    spelling = VALUES_MEANT.get(name, "")
    option, _, value = spelling.partition(" ")
    if option in option_names:
        close = [spelling]
    elif path == f"attn {option.removeprefix('--')}":  # attn mask takes the values themselves
        close = [f"{path} {value}"]
    elif RENAMED.get(name) in option_names:
        close = [RENAMED[name]]
    else:
        # a stricter likeness than the usual 0.6: a far-fetched guess helps less than none
        close = get_close_matches(name, option_names, n=1, cutoff=0.76)
    if close:
        hint: str = message("did you mean {close}?", close=close[0])
    else:
        hint = f"{path} --help"
    if context.parent is None and not close:
        expected = message("options after the command: attn run TEXT {name}", name=name)
        return UsageError(
            "attn itself has no option {name}", expected=expected, hint=hint, name=name
        )
    return UsageError("{path} has no option {name}", hint=hint, path=path, name=name)


def behind_dashes(context: Any, word: str) -> UsageError | None:
    """The UsageError for a word behind a bare `--` that is an option of this context's command; None
    for any other word."""
    name, _, _ = word.partition("=")
    if not any(name in parameter.opts for parameter in context.command.get_params(context)):
        return None
    return UsageError(
        "{name} stands behind --, where nothing is an option",
        expected=message("options before --"),
        hint=f"{context.command_path.rstrip()} {word} -- …",
        name=name,
    )


DASHED = re.compile(r"(?:[‐-―−﹘﹣－][‐-―−﹘﹣－-]?|-(?!-))([a-z][a-z0-9-]+)(=.*)?", re.DOTALL)
"""An option whose hyphens a text processor or a web page made into a dash, or one of them only."""


def refuse_dashes(context: Any, words: list[str]) -> None:
    """Raise UsageError where a word is an option of the command, but begins with a typographic dash
    (`–query`) or with a single hyphen (`-query`).

    words: the command line; what follows a bare `--` is no option and not checked. Of
        `–query=it` the option is `query`, and `=it` what follows it.
    """
    import shlex

    for place, word in enumerate(takewhile(lambda word: word != "--", words)):
        match = DASHED.fullmatch(word)
        if match is None:
            continue
        option = f"--{match[1]}"
        parameters = context.command.get_params(context)
        if any(option in (*item.opts, *item.secondary_opts) for item in parameters):
            corrected = [*words[:place], option + (match[2] or ""), *words[place + 1 :]]
            what = message(
                "{word} begins with a dash, and an option with two hyphens", word=repr(word)
            )
            if word.startswith("-"):
                what = message(
                    "{word} begins with one hyphen, and a long option with two", word=repr(word)
                )
            raise UsageError(
                what,
                expected=option,
                hint=f"{context.command_path.rstrip()} {shlex.join(corrected)}",
            )
        _refuse_hyphened_word(context, word, parameters)


def _refuse_hyphened_word(context: Any, word: str, parameters: Sequence[Any]) -> None:
    """Raise UsageError where a word such as `-inf` is like no option of the command, which takes
    words: such a word comes after a bare `--`.

    parameters: of the command.
    """
    names = [name for item in parameters for name in (*item.opts, *item.secondary_opts)]
    takes_words = any(item.param_type_name == "argument" for item in parameters)
    if not takes_words or not word.startswith("-") or word[:2] in names:
        return
    if get_close_matches(f"-{word}", names, n=1):
        return
    path = context.command_path.rstrip()
    raise UsageError("{path} has no option {name}", hint=f"{path} -- {word}", path=path, name=word)


COUNT = re.compile(r"(?:n\s*=\s*)?[0-9]{1,3}(?:[,_]?[0-9]{3})*|(?:n\s*=\s*)?[0-9]+", re.ASCII)
"""How many tokens, as one writes it without the option: 1000, 1,000, n=1000."""


def too_many(context: Any, extra: list[str]) -> UsageError:
    """The UsageError for arguments that are left over. Most often that is a text without quotes, a
    number without its option, one text too many, or an option behind a dash that is no hyphen."""
    import shlex

    path = context.command_path.rstrip()
    behind = behind_dashes(context, extra[0])
    if behind is not None:
        return behind

    # an option behind a dash that is no hyphen
    dashed = DASHED.fullmatch(extra[0])
    if dashed is not None:
        missing = no_option(context, f"--{dashed[1]}")
        return UsageError(
            "{word} begins with a dash, and {path} has no option {name}",
            expected=message("the text in quotes, and options of the command"),
            hint=missing.hint,
            word=repr(extra[0]),
            path=path,
            name=f"--{dashed[1]}",
        )
    values = context.params  # what the command line gave, by parameter
    many = message("{extra} arguments too many", extra=len(extra))
    if len(extra) == 1:
        many = message("one argument too many")
    text = values.get("text")

    # a command that takes no text: perhaps `attn cost 1000` for `attn cost -n 1000`
    if not isinstance(text, str):
        hint = f"{path} --help"
        counts = any("-n" in parameter.opts for parameter in context.command.params)
        if counts and len(extra) == 1 and COUNT.fullmatch(extra[0]):
            hint = f"{path} -n {re.sub('[^0-9]', '', extra[0])}"
        return UsageError("{many}: {extra}", hint=hint, many=many, extra=" ".join(extra))

    # several texts
    if values.get("lines") or any(len(words.split()) > 1 for words in extra):
        # of the options given, --padded is about several texts: the hint keeps it
        padded = (item.name for item in context.command.params if "--padded" in item.opts)
        options = ["--padded" for name in padded if values.get(name)]
        lines = shlex.join(["printf", r"%s\n", text, *extra])
        expected = message("one text; several are the lines of a pipe or a file")
        hint = f"{lines} | {' '.join([path, '--lines', *options])}"
        if len(path.split()) > 2:  # a topic of attn explain, which is about one text
            expected = message("one text")
            hint = f"{path} {shlex.quote(text)}"
        return UsageError(
            "{many} after the text {text}: {extra}",
            expected=expected,
            hint=hint,
            many=many,
            text=repr(text),
            extra=shlex.join(extra),
        )

    # single words: a text without quotes, whose second word a command of two texts has as `other`
    words = [text]
    second_argument = values.get("other")
    if isinstance(second_argument, str):
        words.append(second_argument)
    words += extra
    what = message(
        "{many} after the text {text}: {extra}", many=many, text=repr(text), extra=" ".join(extra)
    )
    whole_text = shlex.quote(" ".join(words))
    return UsageError(what, expected="the text in quotes", hint=f"{path} {whole_text}")


# What ends a command from outside: Ctrl-C, SIGTERM, SIGHUP. Each puts away what was begun, and has
# its exit code.

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class ProcessStopped(BaseException):
    """The process was told to end; no Exception, so that nothing takes it for a failure of its own."""


@contextmanager
def handle_signals(environment: Environment) -> Iterator[None]:
    """Context manager in which SIGINT raises KeyboardInterrupt and the other signals that stop a
    process raise ProcessStopped; `environment.stop_signal` is then the signal's number.

    What the caller has ignored (`nohup`, or `&` in a script) stays ignored. A second one ends at
    once, as does one that comes while a module is imported or in a destructor, and also then no
    half-written file is left.
    """
    handlers_before: dict[int, Any] = {}  # by the numbers of the signals handled here

    def at_once(number: int, frame: FrameType | None) -> None:
        """End the process without leaving half-written files, with exit code 128 + the signal's
        number.
        """
        from attncli.inputs.files import discard_all

        discard_all()
        if environment.stderr_is_terminal and environment.variables.get("TERM") != "dumb":
            environment.stderr.write("\x1b[?25h")  # the cursor, which progress hides
        os._exit(128 + number)

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        """Called by Python for an exception in a destructor, which no caller gets: one that a stop
        signal raised ends the process, any other is dropped, as the process is ending anyway.
        """
        if environment.stop_signal is not None and issubclass(
            unraisable.exc_type, KeyboardInterrupt | ProcessStopped
        ):
            at_once(environment.stop_signal, frame=None)

    def stop(number: int, frame: FrameType | None) -> None:
        """Called on a signal's first arrival: raises KeyboardInterrupt or ProcessStopped in what
        runs (`frame`), or ends the process at once where nothing may be raised. A second signal
        always ends it at once.
        """
        environment.stop_signal = number
        for signal_number in handlers_before:
            signal.signal(signal_number, at_once)
        sys.unraisablehook = on_unraisable
        # torch imports Python from its C++, which aborts where anything is raised through it
        if _is_importing(frame):
            at_once(number, frame)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise ProcessStopped

    with _handle_signals(stop, handlers_before):
        yield


@contextmanager
def on_stop_signal(leave: Callable[[int], None]) -> Iterator[None]:
    """Context manager in which a signal that stops a process only calls `leave` with its number: a
    full-screen program must restore the terminal before it ends."""
    with _handle_signals(lambda number, frame: leave(number), {}):
        yield


@contextmanager
def _handle_signals(
    handler: Callable[[int, FrameType | None], None], before: dict[int, Any]
) -> Iterator[None]:
    """Context manager in which `handler` is called for the signals that stop a process, but not for
    those that the process was started to ignore; afterwards the old handlers are back.

    before: an empty dictionary, filled here with the old handler of each signal, by its number.
    """
    with suppress(ValueError):  # only the main thread hears signals
        for name in SIGNALS:
            number = getattr(signal, name, None)  # None where the system has no such signal
            # (a handler of None was not set by Python, and could not be put back)
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported in this frame or in one that called it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
