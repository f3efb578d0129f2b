"""The command `attn`: its subcommands by name, each imported only when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from attncli.cli.completion import SET_UPS, set_up
from attncli.cli.help_page import check_command, show_help, whole_page
from attncli.cli.option import PlainParameters
from attncli.errors import refused_value
from attncli.language import language_of, languages, listing, message, translate

COMMANDS = {
    "run": message("Run attention on a text: tables, shape trace, strongest links."),
    "heads": message("Compare all heads: small maps, metrics, labels."),
    "explain": message("The derivation, step by step, with this text's numbers."),
    "find": message("Find the heads that send one token to another."),
    "explore": message("Walk through heads and words full screen."),
    "next": message("The next word: how likely, from which layer on, and without a head."),
    "answer": message("Which regions of a prompt the whole answer used."),
    "ablate": message("What changes when a head, or a link, is taken away."),
    "cache": message("What a cache of keys with a budget keeps, and what forgetting changes."),
    "logits": message("What each head adds to a token's logit."),
    "patch": message("Which heads carry the difference between two texts."),
    "circuit": message("Which parts carry an answer, through which edges, and how faithfully."),
    "pairs": message("Pairs of texts for experiments, checked against a model."),
    "why": message("Why a head looks there: its score, part by part."),
    "learn": message("Train a small model on a task, and see attention form."),
    "check": message("The worksheet of the lessons, and your answers marked."),
    "series": message("What heads do over the checkpoints of one model."),
    "compare": message("What differs between two texts, heads, masks, models or files."),
    "cross": message("Cross-attention between two texts."),
    "tensors": message("Attention over q, k, v arrays from a file."),
    "mask": message("Draw and describe masks and their combinations."),
    "cost": message("Operations, memory and pairs, computed and measured."),
    "scan": message("What every head does over a corpus: statistics, labels, examples."),
    "tokens": message("Tokens, ids, spans and bytes of a text."),
    "weights": message("Write, list and convert weight files."),
    "models": message("Known families, aliases and cached models."),
    "view": message("Show a saved document or tensor file again."),
    "guide": message("The guide: pages for learners, engineers, researchers."),
    "schema": message("JSON Schema of every document that attn emits."),
}
"""Every subcommand and what it does in one line, in the order of the help page."""


OUTGROWN = ("scan", "explore")
"""Features that outgrew `features/` and have a folder of their own."""
SHARED_FOLDERS = {"ablate": "effects", "logits": "effects", "patch": "effects"}
"""Subcommands that stand together in the folder of one feature."""

GROUPS = {
    message("Look at a text"): ("run", "heads", "explain", "find", "next", "tokens", "explore"),
    message("See what matters"): (
        "why",
        "answer",
        "ablate",
        "cache",
        "logits",
        "patch",
        "circuit",
        "pairs",
        "compare",
    ),
    message("See it learn"): ("learn", "check", "series"),
    message("Other inputs"): ("cross", "tensors", "scan"),
    message("Masks and cost"): ("mask", "cost"),
    message("Models and files"): ("models", "weights", "view", "schema", "guide"),
}
"""The subcommands by what one wants, as help lists them."""
ABOUT = message("attn: inspect attention on text, step by step.")
MORE = message("attn --help says what each does, attn COMMAND --help how.")
TRY = message('Try: attn run "The animal didn\'t cross the street because it was too tired"')
NEXT = (
    'attn explain "humpty dumpty sat on" --query on',
    'attn run --model minilm "it was too tired" --query it',
    "attn guide",
)
"""What to try after that: a derivation, a trained model, the guide."""


class LazyGroup(PlainParameters, TyperGroup):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all subcommands, in the order of the help page."""
        return list(COMMANDS)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as Typer does; `attn` alone, a request for help or one about shell
        completion is answered here, and ends the command (Typer's Exit)."""
        # `attn -h` is `attn`: the short page; `--lang` and its value may stand beside
        words_typed = [word for word in args if word != "-h"]
        has_language_only = (len(words_typed) == 2 and words_typed[0] == "--lang") or (
            len(words_typed) == 1 and words_typed[0].startswith("--lang=")
        )
        # `resilient_parsing` is set while a shell asks for completions: then nothing is printed
        if (not words_typed or has_language_only) and not ctx.resilient_parsing:
            _check_language(ctx, words_typed)
            typer.echo(short_page(_language(ctx)))
            ctx.exit()
        # a request for help behind a command's name is answered by that command
        show_help(self, ctx, args[:1])
        if args and args[0].partition("=")[0] in SET_UPS and not ctx.resilient_parsing:
            typer.echo(set_up(args, _language(ctx)))
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names, as Typer finds it. Raises UsageError for any
        other, with similar names."""
        check_command(self, ctx, args)
        return super().resolve_command(ctx, args)

    def help_entry(self, ctx: Any, name: str) -> tuple[str, str]:
        """A command's line in the help: its group, and what it does, without importing the command."""
        del ctx
        return group_of(name), COMMANDS[name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the whole help page to Typer's formatter."""
        formatter.write(whole_page(self, ctx))


def group_of(name: str) -> str:
    """The title of the help group that lists this subcommand; "More" for one that none lists."""
    for title, names in GROUPS.items():
        if name in names:
            return title
    return "More"


def short_page(lang: str = "en") -> str:
    """The page that `attn` alone prints: what it is, its commands by group, and examples, on less
    than a screen.
    """
    groups: dict[str, list[str]] = {}  # the commands of each translated title
    for name in COMMANDS:
        groups.setdefault(translate(group_of(name), lang), []).append(name)
    width = max(map(_text_cells, groups))
    group_lines = "\n".join(
        f"  {group}{' ' * (width - _text_cells(group))}  {' '.join(names)}"
        for group, names in groups.items()
    )
    examples = translate(TRY, lang)
    # the examples after the first begin below its "attn"
    words_before, _, _ = examples.partition("attn")
    margin = " " * _text_cells(words_before)
    examples += "".join(f"\n{margin}{line}" for line in NEXT)
    return f"{translate(ABOUT, lang)}\n\n{group_lines}\n\n{translate(MORE, lang)}\n\n{examples}"


def _language(ctx: Any) -> str:
    """The language of the command's environment; "en" where Typer's context has none."""
    return str(getattr(ctx.obj, "lang", "en"))


def _check_language(ctx: Any, args: list[str]) -> None:
    """Raise UsageError where `attn` alone is asked for a language that has no catalogue.

    args: `--lang zh` or `--lang=zh`, or nothing: then ATTN_LANG is checked.
    """
    if args:
        origin = "--lang"
        language = args[-1].removeprefix("--lang=")
    else:
        origin = "ATTN_LANG"
        language = ctx.obj.variables.get("ATTN_LANG") or "en"
    if language_of(language) not in languages():
        raise refused_value(origin, language, listing(languages()))


def _text_cells(text: str) -> int:
    """How many terminal cells one of the program's own texts takes; ideographs and full-width signs
    take two each.
    """
    return sum(2 if ord(char) > 0x2E7F else 1 for char in text)


def _print_version(is_set: bool) -> None:
    """Print the version and end, where `--version` is given."""
    if is_set:
        from attncli.version import __version__

        typer.echo(f"attn {__version__}")
        raise typer.Exit


def attn(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Inspect attention on text, step by step.

    Try: attn run "The animal didn't cross the street because it was too tired"
    """


def command() -> TyperGroup:
    """The whole command line as one Typer group."""
    # help pages and errors are ours: what Typer has of them is switched off
    app = typer.Typer(
        cls=LazyGroup,
        name="attn",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(attn)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    # a module is imported when its command is looked up
    group.commands = LazyCommands(
        list(COMMANDS), lambda name: typer.main.get_command(app_of(name)), plugin_command
    )
    return group


def plugin_command(name: str) -> Any:
    """The command that an installed package (a plugin) adds under this name; None where none does.

    Raises:
        UsageError: Where several packages add one of this name.
        PluginError: Where it cannot be imported, or is no command.
    """
    if not COMMAND_NAME.fullmatch(name):
        return None  # a text, which nobody calls a command
    from attncli.cli.plugin_commands import find_command

    return find_command(name)


COMMAND_NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""What a plugin's command may be called."""


def app_of(name: str) -> typer.Typer:
    """The Typer app of a subcommand: `<name>_app` in `command.py` of its feature's folder, which is
    imported here.
    """
    if name in OUTGROWN:
        folder = name
    else:
        folder = f"features.{SHARED_FOLDERS.get(name, name)}"
    app: typer.Typer = getattr(import_module(f"attncli.{folder}.command"), f"{name}_app")
    return app


# Commands by name, of which each is made when it is first asked for: Typer takes some five
# milliseconds for one.


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, each made when it is first looked up.

    names: in the order of the help page.
    make: gives the command of a name.
    find: gives the command of any other name, which is listed nowhere; None where there is none.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str], Any],
        find: Callable[[str], Any] = lambda name: None,
    ) -> None:
        """Prepare to make commands when they are looked up, each once.

        names: of the commands that are listed.
        make: called with a listed name; returns its command.
        find: called with any other name; returns its command, or None for none.
        """
        self._names = names
        self._make = make
        self._find = find
        self._commands: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """The command of this name, made now if it has not been looked up before; also one that is
        listed nowhere, such as a plugin's. Raises KeyError where there is none."""
        if name not in self._commands:
            if name in self._names:
                command = self._make(name)
            else:
                command = self._find(name)
            if command is None:
                raise KeyError(name)
            self._commands[name] = command
            command.name = name  # Typer has called it after its function, a plugin as it likes
        return self._commands[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._commands[name] = value

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
