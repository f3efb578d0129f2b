"""Help pages, of one screen (`-h`) or whole (`--help`), in the language and with the colour that is
asked for.

They are written here and not by Typer, whose page for a terminal ends long lines of Chinese in "…"
and takes Rich, as long to import as all the rest of the answer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence, Set
from typing import Any

import typer

from attncli.cli.completion import parts
from attncli.cli.environment import Environment
from attncli.cli.option import (
    EVERYWHERE,
    KEPT,
    LARGEST,
    MODEL,
    OLD_SPELLINGS,
    PANELS,
    WITHOUT_MODEL,
)
from attncli.errors import UsageError
from attncli.language import (
    contextual,
    language_of,
    languages,
    listing,
    message,
    term,
    translate,
)

HELP = ("-h", "--help", "--help-all")
"""What asks for help; the last is the older name of the whole page."""
COLOR = ("--color", "--colour")
ARGUMENTS = "Arguments"
"""The group of what is given without a name, which comes first."""
ROWS = 24
"""Lines of a terminal as it opens, and of `-h`: with the command above it and the prompt below, 22
are the page's.
"""
PAGE_ROWS = ROWS - 2
MOST_OPTIONS = 10
"""Options on a page of one screen."""
LEFT = 30
"""Cells for what is typed; what is explained begins on the next line where it is longer."""
WIDEST = 100
"""Cells of a line: longer ones are tiring to read."""
LEAST_TEXT = 20
"""Cells of a text behind a wide margin; in a narrow window it passes the edge."""
BRACKETS = re.compile(r"\s*\[[^\[\]]*\]")
"""What help adds behind its sentence: `[default: 64]`, `[1 to 9]`."""
RANGE = re.compile(r"(above )?(-?[\d.,e+-]+) to ([\d.,e+-]+)")
VALUE = re.compile(r"[\w-]+")
"""A word that may be typed as an option's value."""
TAIL = re.compile(rf"(?:{BRACKETS.pattern})+$")
UNBOUNDED = re.compile(rf"\s*\[[01] to {LARGEST:,}\]")
"""Ends that nobody meets: they are checked, and not worth a word on a page."""
HEADING, TYPED, ASIDE, PLAIN = "1", "36", "2", ""
"""How a page is coloured, as numbers of SGR: groups bold, what is typed cyan, what stands behind a
sentence dim.
"""

Row = tuple[str, str]


def show_help(command: Any, ctx: Any, args: Sequence[str]) -> None:
    """Print the help and end the command where `-h` (one screen) or `--help` (everything) is among
    `args`.
    """
    if "--" in args:
        words = args[: args.index("--")]  # what follows is text
    else:
        words = args
    requests = [
        word
        for number, word in enumerate(words)
        if word in HELP and not _is_value(command, words, number)
    ]
    if not requests or ctx.resilient_parsing:  # a shell that completes a line wants no page
        return

    # the rest of the line is not parsed: `--color`, or its setting, is looked up here
    color = "auto"
    for number, word in enumerate(words):
        if word in COLOR and number + 1 < len(words):
            color = words[number + 1]
        elif word.partition("=")[0] in COLOR and "=" in word:
            color = word.partition("=")[2]
    if color == "auto" and ctx.obj is not None:
        setting = ctx.obj.settings.get("color")
        if setting is not None:
            color = str(setting.value)

    if requests[0] == "-h":
        page = short_page(command, ctx, color)
    else:
        page = whole_page(command, ctx, color)
    typer.echo(page, color=True)  # as it is: it has colours only where they are wanted
    ctx.exit()


def _is_value(command: Any, words: Sequence[str], number: int) -> bool:
    """Whether `words[number]` is the value of the option that stands before it, and not an option
    itself.
    """
    if number == 0:
        return False
    before = words[number - 1]
    return any(
        before in parameter.opts and not getattr(parameter, "is_flag", False)
        for parameter in command.params
        if parameter.param_type_name == "option"
    )


def whole_page(command: Any, ctx: Any, color: str = "auto") -> str:
    """The help page with everything that a command takes, by group, rare options at the end of each
    group.

    color: as `--color` takes it.
    """
    page = _Page(ctx, color)
    page.usage(command)
    for part in _help_paragraphs(command.help):
        page.paragraph(part)
    _write_subcommands(command, ctx, page)

    # rare options are those that Typer knows as hidden
    groups: dict[str, list[Any]] = {}
    parameters = _listed_parameters(command, ctx)
    has_model_option = any("--model" in parameter.opts for parameter in parameters)
    for parameter in sorted(
        parameters, key=lambda parameter: bool(getattr(parameter, "hidden", False))
    ):
        title = group_title(parameter)
        # "Without --model" says nothing to a command that takes none, such as learn
        if title == WITHOUT_MODEL and not has_model_option:
            title = MODEL
        groups.setdefault(title, []).append(parameter)

    # options of most commands are explained by `attn --help` alone; a command only names them
    shared: list[Any] = []
    if not hasattr(command, "list_commands"):  # no group of commands
        shared = groups.pop(EVERYWHERE, [])
    elif ctx.parent is None:  # `attn` itself
        groups[EVERYWHERE] = _options_of_most_commands(command, ctx)
    for title in sorted(groups, key=group_order):
        rows = [
            (spelling_of(parameter), _parameter_sentence(parameter, ctx))
            for parameter in groups[title]
        ]
        page.section(title, rows)
    if ctx.parent is None:
        page.paragraph(_own_language_hint(ctx.obj))
    if shared:
        spellings = listing([_long_name(parameter) for parameter in shared])
        page.paragraph(
            message("Also, as with most commands (attn --help): {options}", options=spellings)
        )
    return page.text


def _own_language_hint(environment: Any) -> str:
    """The sentence, in the language of the user's locale, that attn speaks it; "" where the language
    was chosen, is English or has no catalogue, and where no terminal shows the page."""
    if environment is None or not environment.stdout_is_terminal or environment.lang != "en":
        return ""
    variables = environment.variables
    if variables.get("ATTN_LANG") or environment.settings.get("lang") is not None:
        return ""
    locale_name = next(
        (variables[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if variables.get(name)), ""
    )
    language = language_of(locale_name)
    if environment.wants_ascii() or language == "en" or language not in languages():
        return ""
    hint = message("In English: attn --help --lang en; for good: export ATTN_LANG=en")
    return translate(hint, language)


def short_page(command: Any, ctx: Any, color: str = "auto") -> str:
    """What a command does, an example, the options that matter and where the others are: one screen
    of 80 columns.
    """
    page = _Page(ctx, color)
    page.usage(command)
    about, *others = _help_paragraphs(command.help) or [""]
    page.paragraph(about)
    examples = [part for part in others if part.startswith("attn ")]
    if examples:
        page.paragraph(examples[0])
    _write_subcommands(command, ctx, page)
    options = [
        parameter
        for parameter in _listed_parameters(command, ctx)
        if parameter.param_type_name == "option" and parameter.name != "help"
    ]
    rows = [
        (spelling_of(parameter), _first_sentence(_parameter_sentence(parameter, ctx), page.lang))
        for parameter in _essential_options(command, options)
    ]
    path = ctx.command_path.rstrip()
    closing = page.say(
        message("{command} --help has all {options} options.", command=path, options=len(options))
    )

    # as many options as fit between what is written and the closing sentence, with an empty line
    # above each of the two
    room = PAGE_ROWS - page.height - len(page.wrap_text(closing)) - 2
    left = _left_width(rows)
    while rows and sum(len(page.row(row, left)) for row in rows) > room:
        rows.pop()
    if rows:
        page.rows(rows)
    page.paragraph(closing)
    return page.text


def _essential_options(command: Any, options: Sequence[Any]) -> list[Any]:
    """The options shown on a help page of one screen: those that the command names as essential,
    else its first common ones."""
    by_name = {spelled: parameter for parameter in options for spelled in parameter.opts}
    essential = [by_name[name] for name in getattr(command, "essentials", ()) if name in by_name]
    common = [
        parameter
        for parameter in sorted(options, key=lambda option: group_order(group_title(option)))
        if not parameter.hidden and group_title(parameter) != EVERYWHERE
    ]
    return (essential or common)[:MOST_OPTIONS]


def _write_subcommands(command: Any, ctx: Any, page: _Page) -> None:
    """Add the sections that list the subcommands of a command group to its help page."""
    if not hasattr(command, "list_commands"):  # a single command
        return
    groups: dict[str, list[Row]] = {}
    for name in command.list_commands(ctx):
        title, about = command.help_entry(ctx, name)
        groups.setdefault(title, []).append((name, about))
    left = max((len(name) for rows in groups.values() for name, _ in rows), default=0)
    for title, rows in groups.items():
        page.section(title, rows, left)


def _listed_parameters(command: Any, ctx: Any) -> list[Any]:
    """The parameters of a command that its page lists: all but arguments without a sentence, and
    options that are kept for old command lines only."""
    return [
        parameter
        for parameter in command.get_params(ctx)
        if not (parameter.param_type_name == "argument" and not parameter.help)
        and group_title(parameter) != KEPT
    ]


EXAMPLE_COMMAND = "tokens"
"""A small command that has all options that nearly every command takes."""


def _options_of_most_commands(group: Any, ctx: Any) -> list[Any]:
    """The options that nearly every command takes, as the command `attn` explains them once."""
    command = group.get_command(ctx, EXAMPLE_COMMAND)
    return [
        parameter for parameter in command.get_params(ctx) if group_title(parameter) == EVERYWHERE
    ]


def check_command(group: Any, context: Any, arguments: Sequence[str]) -> None:
    """Raise UsageError where the first argument names no command of this group.

    The error suggests commands whose names are close; where a text was typed straight after `attn`,
    its hint is the command that runs that text.
    """
    name = arguments[0]
    if (
        context.resilient_parsing
        or name.startswith("-")
        or group.get_command(context, name) is not None
    ):
        return
    from difflib import get_close_matches

    matches = get_close_matches(name, list(group.commands))
    if matches:
        text = message(
            "No such command {name}. Did you mean {matches}?",
            name=repr(name),
            matches=listing(map(repr, matches)),
        )
    else:
        text = message("No such command {name}", name=repr(name))
    hint = f"{context.command_path.rstrip()} --help"
    if context.parent is None:
        import shlex

        topics = getattr(group.get_command(context, "explain"), "commands", ())
        if name in topics:
            hint = f"attn explain {shlex.join(arguments)}"
        elif not matches:
            hint = _command_of_text(arguments) or hint
    raise UsageError(text, hint=hint)


LONGEST_TEXT = 60
"""Characters of a text that is repeated in a hint."""


def _command_of_text(arguments: Sequence[str]) -> str:
    """The command that runs what was typed as a text: words with blanks or of another script in one
    argument, or several words in a row. "" where it does not look like a text."""
    import shlex
    from itertools import takewhile

    words = list(takewhile(lambda word: not word.startswith("-"), arguments))  # before options
    if any(map(str.isspace, words[0])) or not words[0].isascii():
        text = words[0]
    elif len(words) > 1 and not any(map(str.isspace, "".join(words))):  # typed without quotes
        text = " ".join(words)
    else:
        return ""
    if len(text) <= LONGEST_TEXT:
        return f"attn run {shlex.quote(text)}"
    return 'attn run "…"'


def group_title(parameter: Any) -> str:
    """The group that a parameter is listed in, in English."""
    if parameter.param_type_name == "argument":
        return ARGUMENTS
    if parameter.name == "help":
        return EVERYWHERE
    return getattr(parameter, "rich_help_panel", None) or "Options"


def group_order(title: str) -> int:
    """The sort key of a help group's title: arguments, then the command's own options, then the
    shared groups in order of use."""
    if title == ARGUMENTS:
        return -2
    if title in PANELS:
        return PANELS.index(title)
    return -1


def spelling_of(parameter: Any) -> str:
    """What is typed for a parameter: `-m, --model NAME|DIR`, `--bias / --no-bias`, `TEXT`. Old
    spellings, which still work, are left out."""
    metavar = parameter.metavar or (parameter.name or "").upper().replace("_", "-")
    if parameter.param_type_name == "argument":
        takes_several = parameter.nargs == -1
        if takes_several and not metavar.endswith("..."):
            return f"{metavar}..."
        return str(metavar)
    old_spellings = OLD_SPELLINGS.get(parameter.opts[0], ())
    names = [name for name in parameter.opts if name not in old_spellings]
    names.sort(key=lambda name: name.startswith("--"))  # short ones first
    spelled = ", ".join(names)
    if parameter.secondary_opts:
        spelled += f" / {', '.join(parameter.secondary_opts)}"
    is_flag = getattr(parameter, "is_flag", False) or parameter.name == "help"
    if is_flag or getattr(parameter, "count", False):
        return spelled
    return f"{spelled} {metavar}"


def _long_name(parameter: Any) -> str:
    """An option's name in full, without its short form and its value: `--output`."""
    return str(next(name for name in parameter.opts if name.startswith("--")))


def _parameter_sentence(parameter: Any, ctx: Any) -> str:
    """A parameter's help sentence in English, with brackets behind it: the parts that `--show`
    takes, [required], [default: …]."""
    if parameter.name == "help":
        return "-h shows one screen, --help everything."
    text = UNBOUNDED.sub("", parameter.help or "")
    if parameter.name == "show":
        part_names = parts(ctx, "")
        if part_names:
            text += f" [{', '.join(part_names)}]"
    default = parameter.default
    if parameter.required:
        return f"{text} [required]"
    if parameter.secondary_opts and default is True:
        # of `--bias / --no-bias`, [default: bias]; of a flag without a counterpart nothing is said
        default = parameter.opts[0].lstrip("-")
    is_told = "[default:" in text
    is_flag = isinstance(default, bool)
    if not isinstance(default, str | int | float) or is_flag or default == "" or is_told:
        return text
    return f"{text} [default: {default}]"


def _first_sentence(text: str, lang: str) -> str:
    """The first sentence of an explanation, without its brackets, in this language."""
    sentence = translate(TAIL.sub("", text), lang)
    # a sentence ends at ". " before a capital or a quote, or at a Chinese full stop
    first, *_ = re.split(r"(?<=\.) (?=[A-Z'])|(?<=。)(?=.)", sentence)
    return first


def _left_width(rows: Iterable[Row]) -> int:
    """Characters of a help page's left column, which holds what is typed; longer entries than
    `LEFT` do not count.
    """
    return max((len(left) for left, _ in rows if len(left) <= LEFT), default=0)


def _help_paragraphs(text: str | None) -> list[str]:
    """The paragraphs of a command's help, each on one line."""
    return [
        re.sub(r"\s+", " ", part).strip()
        for part in re.split(r"\n\s*\n", inspect.cleandoc(text or ""))
        if part
    ]


class _Page:
    """A page as it is written: lines of at most the terminal's width, coloured or not."""

    def __init__(self, ctx: Any, color: str) -> None:
        """Begin an empty page for the command of Typer's context.

        color: as `--color` takes it.
        """
        environment: Environment | None = ctx.obj
        self._context = ctx
        if environment is None:
            self.lang = "en"
        else:
            self.lang = environment.lang
        self._is_ascii = environment is not None and environment.wants_ascii()
        self._is_colored = environment is not None and environment.wants_color(color)
        if environment is None:
            self._width = 80
        else:
            self._width = min(environment.columns, WIDEST)
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """The page, without the line break at its end."""
        text = "\n".join(self._lines)
        if self._is_ascii:
            return text.replace("…", "...").encode("ascii", "replace").decode()
        return text

    @property
    def height(self) -> int:
        """How many lines the page has so far."""
        return len(self._lines)

    def say(self, text: str) -> str:
        """Our own sentence in the page's language."""
        return translate(text, self.lang)

    def usage(self, command: Any) -> None:
        """Write the line `Usage: attn run [OPTIONS] [TEXT]`; what does not fit is indented below."""
        pieces = " ".join(command.collect_usage_pieces(self._context))
        word = self.say(message("Usage: "))
        text = f"{word}{self._context.command_path.rstrip()} {pieces}"
        for index, line in enumerate(self.wrap_text(text, margin=0)):
            indent = "" if index == 0 else "    "
            self._lines.append(f"{indent}{self._paint(line, HEADING)}")

    def paragraph(self, text: str) -> None:
        """Write a paragraph below an empty line. A command to type has its own colour, and the lines
        that it goes on in are indented."""
        style = PLAIN
        margin = "  "
        if text.startswith("attn "):  # a command
            style = TYPED
            margin = "      "
        first, *others = self.wrap_text(self.say(text), len(margin)) or [""]
        self._lines += [
            "",
            f"  {self._paint(first, style)}",
            *(f"{margin}{self._paint(line, style)}" for line in others),
        ]

    def section(self, title: str, rows: Sequence[Row], left: int | None = None) -> None:
        """Write a group of options or arguments: its title, then a row for each, with what to type
        on the left and what it does on the right.

        left: characters of the left column; None for as many as these rows need.
        """
        heading = self.say(contextual("heading", "{title}:", title=term(title)))
        self._lines += ["", self._paint(heading, HEADING)]
        if left is None:
            width = _left_width(rows)
        else:
            width = left
        for typed_text, text in rows:
            self._lines += self.row((typed_text, option_help(typed_text, text, self.lang)), width)

    def rows(self, rows: Sequence[Row]) -> None:
        """Write what is typed beside what it does, without a title; already in the page's language."""
        self._lines.append("")
        for row in rows:
            self._lines += self.row(row, _left_width(rows))

    def row(self, row: Row, left: int) -> list[str]:
        """The lines of one row: what is typed, and beside it, or below where it is longer than its
        column, what it does.

        left: cells of the column of what is typed.
        """
        typed_text, text = row
        margin = " " * (left + 4)  # two blanks before the left column, and two behind it
        lines = self.wrap_text(text, len(margin)) or [""]
        lines = [_dim_brackets(line, self._paint) for line in lines]
        begin = f"  {self._paint(typed_text, TYPED)}"
        if len(typed_text) > left:
            return [begin, *(f"{margin}{line}" for line in lines)]
        first = f"{begin}{' ' * (left - len(typed_text) + 2)}{lines[0]}".rstrip()
        return [first, *(f"{margin}{line}" for line in lines[1:])]

    def wrap_text(self, text: str, margin: int = 2) -> list[str]:
        """Wrap a text to lines that fit behind a margin of so many cells."""
        from attncli.draw.safe import wrap

        return wrap(text, max(self._width - margin, LEAST_TEXT))

    def _paint(self, text: str, style: str) -> str:
        """The text in a terminal's style, plain on a page without colours."""
        if self._is_colored and style and text:
            return f"\x1b[{style}m{text}\x1b[0m"
        return text


def _dim_brackets(line: str, paint: Any) -> str:
    """The line with what stands in brackets dim; a bracket that goes on in the next line stays as
    it is.

    paint: called with a text and a style, returns the text with the codes of that style.
    """
    # from "[" to the next "]", with no other bracket within
    return re.sub(r"\[[^\[\]]*\]", lambda match: paint(match[0], ASIDE), line)


# Help in the language asked for: sentences, and what stands in brackets behind them, each on its
# own.


def option_help(typed_text: str, text: str, lang: str) -> str:
    """An option's help in this language: its sentence, and each of the brackets behind it, such as
    `[default: 64]`, are translated on their own.

    typed_text: the option as it is spelt. A default that is one of the words it takes, named there
        or in the sentence, stays as it is typed.
    """
    if lang == "en":
        return text
    sentence = text
    brackets = []
    match = TAIL.search(text)
    if match is not None:
        sentence = text[: match.start()]
        brackets = BRACKETS.findall(match[0])
    translated = translate(sentence, lang)
    values = set(VALUE.findall(f"{typed_text.replace('--', ' ')} {sentence}"))
    for bracket in brackets:
        inside = bracket.strip()[1:-1]
        translated += f" [{_translate_bracket(inside, values, lang)}]"
    return translated


def _translate_bracket(text: str, values: Set[str], lang: str) -> str:
    """What stands in brackets behind an option's sentence, such as "1 to 9", "default: 64" or
    "env: ATTN_MODEL", in this language.

    values: words that are typed, which are not translated.
    """
    match = RANGE.fullmatch(text)
    if match is not None:
        above, least, most = match.groups()
        if above:
            return translate(message("above {least} to {most}", least=least, most=most), lang)
        return translate(message("from {least} to {most}", least=least, most=most), lang)
    name, _, value = text.partition(": ")
    if not value:
        return translate(text, lang)
    if name == "default" and value in values:
        return translate(message("default: {value}", value=value), lang)
    if name == "default":
        return translate(message("default: {value}", value=term(value)), lang)
    return translate(message("env: {value}", value=term(value)), lang)
