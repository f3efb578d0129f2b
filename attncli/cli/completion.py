"""What a shell may offer for the beginning of a value, each list made when a shell asks for it; and
how a shell comes to ask."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import typer

from attncli.errors import AttnError, UsageError, refused_value
from attncli.language import listing, message, term

MOST_OFFERED = 12
"""Layers and heads that are offered of a model that is not read for it."""
TENSOR_FILES = (".safetensors", ".npz", ".pt", ".pth")

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
SET_UPS = ("--show-completion", "--install-completion")
"""The options of `attn` itself that set completion up; the shell may follow, else it is the one
that runs.
"""

MOST_DIGITS = 10
"""Digits of a word's number that a shell may hand over; longer numbers are no command line's."""

Complete = Callable[[typer.Context, str], Iterable[str]]


def words(*candidates: str) -> Complete:
    """A completion function that always offers these words. Like all in this file, it is called with
    Typer's context and the word that is typed so far."""
    return lambda ctx, incomplete: candidates


def comma_list(*candidates: str) -> Complete:
    """A completion function for a list separated by commas: it offers the words that the list does
    not hold yet.
    """
    return lambda ctx, incomplete: _after_comma(incomplete, candidates)


def offer(complete: Complete) -> Callable[[typer.Context, str], list[str]]:
    """The callback that Typer calls for completions: the candidates of `complete` that begin with
    the typed word.
    """

    def complete_word(ctx: typer.Context, incomplete: str) -> list[str]:
        return [value for value in complete(ctx, incomplete) if value.startswith(incomplete)]

    return complete_word


def pages(_context: typer.Context, _incomplete: str) -> list[str]:
    """Completion candidates: the names of the guide's pages."""
    from attncli.language.guide import titles

    return list(titles("en"))


def orders(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the metrics to sort heads by; after a colon, the directions."""
    from attncli.measure.layer_metrics import EVERY_METRIC

    name, colon, _ = incomplete.partition(":")
    if colon:
        return [f"{name}:asc", f"{name}:desc"]
    return list(EVERY_METRIC)


def metric(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completion of one metric's name; unlike `orders`, without a direction after a colon."""
    return orders(ctx, incomplete.partition(":")[0])


def rule(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion of the name of a rule of `attn heads --rules`."""
    from attncli.features.rules.built_in_rules import BUILT_IN

    return [item.name for item in BUILT_IN if item.name.startswith(incomplete)]


def heads(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: heads by number (3) or with their layer (L5H3), as many as small
    models have; the model itself is not read."""
    prefix, comma, last = incomplete.rpartition(",")
    layer = last[1:].partition("H")[0]  # of "L5H" and "L5" it is "5"
    layers = [f"L{number}H" for number in range(MOST_OFFERED)]
    if not last.startswith("L"):
        candidates = [*map(str, range(MOST_OFFERED)), *layers]
    elif "H" in last or layer.isdigit():
        candidates = [f"L{layer}H{number}" for number in range(MOST_OFFERED)]
    else:
        candidates = layers
    return [f"{prefix}{comma}{candidate}" for candidate in candidates]


def styles(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the words of `--figure-style`, also after a comma."""
    return _after_comma(
        incomplete,
        (
            "light",
            "dark",
            "85mm",
            "174mm",
            "150dpi",
            "300dpi",
            "600dpi",
            "notitle",
            "columns=3",
            "maxheight=240mm",
            "heads=L0H0",
            "rows=",
        ),
    )


def figure_parts(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the parts of figures, also after a comma."""
    from attncli.draw.figures.figure_choice import PARTS

    return _after_comma(incomplete, PARTS)


def tokenizers(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the tokenizers that need no file, and the folders and .json files in the
    folder that is typed."""
    return ["word", "whitespace", "char", "byte", *_files(incomplete, (".json",))]


def masks(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the kinds of mask, with a colon where numbers follow; also after a `|`
    that unites masks."""
    from attncli.mechanism.mask import KINDS

    prefix, bar, _ = incomplete.rpartition("|")
    candidates = []
    for name, (spelling, _) in KINDS.items():
        # `counts` are the numbers of arguments that the kind takes; empty for any number
        takes_numbers = any(spelling.counts) or not spelling.counts
        colon = ":" if takes_numbers else ""
        candidates.append(f"{prefix}{bar}{name}{colon}")
    return candidates


def models(ctx: typer.Context, _incomplete: str) -> list[str]:
    """Completion candidates: the aliases, and the checkpoints in the hub's cache."""
    from attncli.inputs.hub import cache_folder, cached_snapshots
    from attncli.models.aliases import ALIASES

    variables = dict(getattr(ctx.obj, "variables", None) or os.environ)
    return [*ALIASES, *(entry.name for entry in cached_snapshots(cache_folder(variables)))]


def metrics(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the metrics of heads and "all", also after a comma."""
    from attncli.measure.layer_metrics import EVERY_METRIC

    return _after_comma(incomplete, [*EVERY_METRIC, "all"])


def tokens(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the words of the texts that stand on the line already, as `--query`
    takes them: a word that occurs again also as `the:2`. Neither a model nor a file is read: words
    go with every tokenizer but those of characters. A word that a shell would read otherwise, such
    as one with an apostrophe, is not offered.
    """
    from attncli.inputs.tokenize import CharTokenizer, WhitespaceTokenizer, WordTokenizer

    texts, tokenizer_name = _texts_on_line(ctx, incomplete)
    kinds = {kind.name: kind for kind in (CharTokenizer, WhitespaceTokenizer)}
    tokenizer = kinds.get(tokenizer_name, WordTokenizer)()
    candidates: dict[str, None] = {}  # a set in the order of the text
    for text in texts:
        counts: Counter[str] = Counter()
        for _start, _end, word, _id in tokenizer.pieces(text):
            if not all(letter.isalnum() or letter in "-_." for letter in word):
                continue
            counts[word] += 1
            if counts[word] == 1:
                candidates[word] = None
            else:
                candidates[f"{word}:{counts[word]}"] = None
    return list(candidates)


def _texts_on_line(ctx: typer.Context, incomplete: str) -> tuple[list[str], str]:
    """The texts that stand on the line before the word that is typed (its arguments that name no
    file), and the value of `--tokenizer`, "" without one.

    An option that still lacks its value keeps Typer from reading the arguments, so they are read
    from the line, which shells hand over in a variable.
    """
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    takes_value: set[str] = set()  # the options behind which a word is their value
    for parameter in ctx.command.params:
        if not (getattr(parameter, "is_flag", False) or getattr(parameter, "count", False)):
            takes_value.update(parameter.opts)
    words = _words_of_line(line)[len(ctx.command_path.split()) :]
    if incomplete and words and words[-1] == incomplete:
        words = words[:-1]
    texts: list[str] = []
    tokenizer_name = ""
    option = ""  # an option whose value is the next word
    for word in words:
        if option:
            if option == "--tokenizer":
                tokenizer_name = word
            option = ""
        elif word.startswith("--tokenizer="):
            tokenizer_name = word.partition("=")[2]
        elif word in takes_value:
            option = word
        elif not word.startswith("-") and not os.path.exists(word):  # noqa: PTH110 - never fails
            texts.append(word)
    return texts, tokenizer_name


def _words_of_line(line: str) -> list[str]:
    """The words of a command line as a shell reads them; of one with an open quotation mark those
    up to it."""
    from shlex import shlex

    reader = shlex(line, posix=True, punctuation_chars=False)
    reader.whitespace_split = True
    reader.commenters = ""  # a position such as #3 begins no comment
    words_read: list[str] = []
    # an open quotation mark is a ValueError; the words before it are kept
    with suppress(ValueError):
        for word in reader:
            words_read.append(word)
    return words_read


def parts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the parts of this command's screen and "all", also after a comma; none
    for a command without a screen of its own, such as `attn view`."""
    from attncli.draw.view import part_names

    # the package that the command's function stands in, such as attncli.features.run
    folder = str(getattr(ctx.command.callback, "__module__", "")).rpartition(".")[0]
    # the screen has the name of the command, or, in a group such as `attn explain`, of the group
    for word in reversed(ctx.command_path.split()):
        names = part_names(word, folder)
        if names:
            return _after_comma(incomplete, [*names, "all"])
    return []


def schemas(_context: typer.Context, _incomplete: str) -> list[str]:
    """Completion candidates: the kinds of documents that have a schema."""
    from attncli.documents import SCHEMAS

    return list(SCHEMAS)


def tensor_prefixes(_context: typer.Context, incomplete: str) -> list[str]:
    """Completion candidates: the names of the tensors in the file that stands on the line already,
    each up to its next full stop behind what is typed.
    """
    from attncli.inputs.tensors import tensor_file

    # an option that still lacks its value keeps Typer from reading the arguments before it
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    files = [word for word in words if word.endswith(TENSOR_FILES)]
    # the first that is there; None for none
    file = next((word for word in files if os.path.isfile(word)), None)  # noqa: PTH113 - never fails
    try:
        if file is None:
            names = []
        else:
            names = [info.name for info in tensor_file(Path(file)).summaries]
    except AttnError:  # a file that is no tensor file offers nothing
        return []
    prefixes = set()
    for name in names:
        if name.startswith(incomplete):
            part, stop, _ = name.removeprefix(incomplete).partition(".")
            prefixes.add(f"{incomplete}{part}{stop}")
    return sorted(prefixes)


def _after_comma(incomplete: str, candidates: Iterable[str]) -> list[str]:
    """The candidates that the typed list does not hold yet, each behind everything up to the list's
    last comma.
    """
    prefix, comma, _ = incomplete.rpartition(",")
    chosen_words = prefix.split(",")
    return [f"{prefix}{comma}{name}" for name in candidates if name not in chosen_words]


def _files(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    """The folders, and the files with these endings, in the folder that is typed."""
    from attncli.inputs.files import folder_entries, is_folder

    folder = incomplete[: len(incomplete) - len(os.path.basename(incomplete))]  # noqa: PTH119 - `./` stays as it is typed
    try:
        inside = folder_entries(Path(folder or "."))
        return [
            f"{folder}{path.name}" for path in inside if path.suffix in endings or is_folder(path)
        ]
    except (OSError, ValueError, AttnError):  # no folder that can be read offers nothing
        return []


def check_request(variables: Mapping[str, str], name: str) -> None:
    """Raise UsageError where the variables that a shell sets to ask for completions are not as its
    script sets them.

    name: the variable that says what is asked for.
    """
    hint = "attn --show-completion bash"
    action, _, shell = variables[name].partition("_")
    if action not in ("complete", "source") or shell not in SHELLS:
        expected = message("complete_SHELL, SHELL one of {shells}", shells=listing(SHELLS))
        raise refused_value(name, variables[name], expected, hint=hint)
    if (action, shell) != ("complete", "bash"):
        return
    if "COMP_WORDS" not in variables:
        raise UsageError(
            "COMP_WORDS is not set", expected="the words of the command line", hint=hint
        )
    word_number = variables.get("COMP_CWORD", "")
    is_number = word_number.isascii() and word_number.isdigit()
    if not is_number or len(word_number) > MOST_DIGITS:
        raise refused_value("COMP_CWORD", word_number, "which of the words is completed", hint=hint)


# What each shell runs. All ask as fish does, for one value a line with what it means behind a tab,
# and say where no blank follows: behind the colon of `window:` and the H of `L5H`. Typer's own
# scripts lose what stands before a colon in bash and zsh, and what stands before the `=` of
# `--mask=` in zsh and fish.


def _script(shell: str) -> str:
    """The script that sets completion up in this shell: one of ours, or Typer's where we have none."""
    from typer._completion_shared import get_completion_script

    from attncli.inputs.files import is_file, read_regular

    own = Path(__file__).parent / "shells" / f"attn.{shell}"
    if is_file(own):
        return read_regular(own, what=message("a file")).decode().rstrip()
    return get_completion_script(prog_name="attn", complete_var="_ATTN_COMPLETE", shell=shell)


def set_up(args: list[str], lang: str) -> str:
    """Carry out `--show-completion` or `--install-completion`: returns the shell's completion
    script, or installs it and returns a message that says where.

    args: `--show-completion` or `--install-completion`, and the shell, where it is not the one that
    runs. Raises UsageError for a shell that is not known, AttnError where its files cannot be
    written.
    """
    from typer._completion_shared import _get_shell_name, install

    name, equals, value = args[0].partition("=")
    if equals:
        shell_names = [value]
    else:
        shell_names = args[1:]
    if len(shell_names) > 1:
        raise UsageError(
            "{name} takes one shell", expected=listing(SHELLS), hint=f"attn {name} bash", name=name
        )
    shell = shell_names[0] if shell_names else _get_shell_name()
    if shell is None:
        raise UsageError(
            "which shell this is cannot be found out",
            expected=listing(SHELLS),
            hint=f"attn {name} bash",
        )
    if shell not in SHELLS:
        raise UsageError(
            "no completion is known for {shell}",
            expected=listing(SHELLS),
            hint=f"attn {name} bash",
            shell=repr(shell),
        )
    if name == "--show-completion":
        return _script(shell)
    from subprocess import SubprocessError

    from attncli.inputs.files import atomic_writer
    from attncli.language import translate

    try:
        _, path = install(shell=shell, prog_name="attn")
        # Typer has written a script of its own there, which ours replaces; of the other shells it
        # is a file that holds more
        if shell in ("bash", "zsh", "fish"):
            with atomic_writer(Path(path), alone=True) as stream:
                stream.write(f"{_script(shell)}\n".encode())
    # a file that cannot be written, letters that it cannot hold, no HOME, PowerShell
    except (OSError, ValueError, RuntimeError, SubprocessError) as error:
        reason = term(getattr(error, "strerror", None) or str(error))
        what = message("cannot install the completion: {reason}", reason=reason)
        raise AttnError(
            what,
            where=str(getattr(error, "filename", None) or ""),
            hint=f"attn --show-completion {shell}",
        ) from error
    return "\n".join(
        translate(line, lang)
        for line in (
            message("{shell} completion installed in {path}", shell=shell, path=path),
            message("Completion takes effect in the next terminal"),
        )
    )
