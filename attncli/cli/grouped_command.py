"""A command of `attn`: what is left over or empty is refused, and its help page lists the options
by group.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from attncli.cli.environment import Environment
from attncli.cli.help_page import (
    HELP,
    check_command,
    group_order,
    group_title,
    show_help,
    whole_page,
)
from attncli.cli.option import KEPT, PlainParameters, flat
from attncli.errors import UsageError
from attncli.language import message

SHORT_DASH = re.compile("-[a-z]{3}")
"""How a long option begins that was typed with one hyphen, `-model`: letters of short options that
stand together, `-lH`, are fewer.
"""


class GroupedCommand(PlainParameters, TyperCommand):
    """A command whose help page lists its options by group.

    essentials: the options that its page of one screen lists; without any, its first ones.
    hints: a command to try where an option is given two values and takes one, by its name.
    """

    essentials: tuple[str, ...] = ()
    hints: Mapping[str, str] = MappingProxyType({})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as Typer does, with the settings filled in; answers a request for
        help and ends. Raises UsageError for options with a wrong dash or without their values,
        arguments left over, and a file that is both read and written. What only completes a line
        that is half typed (`resilient_parsing`) is parsed without these checks.
        """
        show_help(self, ctx, args)
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)

        # slips that Typer would not see or would explain badly; the search for dashes is left out
        # where no word can have one: a typographic dash, pasted from a text, is not ASCII
        if any(not word.isascii() or SHORT_DASH.match(word) for word in args):
            from attncli.cli.border import refuse_dashes

            refuse_dashes(ctx, args)
        self._refuse_values(ctx, args)

        # the arguments; what is not given is filled in from the settings
        self._take_settings(ctx)
        extra = super().parse_args(ctx, args)

        # `obj` is the environment (streams, settings, folders); tests of a lone parser have none
        if ctx.obj is not None:
            self._tell_origins(ctx)
        if extra:
            from attncli.cli.border import too_many

            raise too_many(ctx, extra)
        if ctx.obj is not None:
            from attncli.cli.output_conflicts import check_inputs

            check_inputs(self.params, ctx.params, ctx.obj)
        return extra

    def _refuse_values(self, ctx: Any, args: list[str]) -> None:
        """Raise UsageError for three slips in an option's value: none at all (`--seed=`); another
        option of the command as value (`--csv --json`), which would become a file of that name; and
        two values for an option that takes one, of which one would be dropped."""
        # a second parser, which keeps all values of an option where Typer's own keeps the last
        parser = self.make_parser(ctx)
        collecting_actions = {"store": "append", "store_const": "append_const"}
        for spelling in {*parser._short_opt.values(), *parser._long_opt.values()}:
            spelling.action = collecting_actions.get(spelling.action, spelling.action)
        try:
            values_by_option, _, _ = parser.parse_args(args=list(args))
        except TyperException as error:  # an option without its value tells no context of its own
            if getattr(error, "ctx", None) is None:
                error.ctx = ctx  # type: ignore[attr-defined,unused-ignore]
            raise
        neighbours = set(pairwise(args))  # a value apart from its option, not `--csv=--json`
        for parameter in self.params:
            if parameter.param_type_name != "option":
                continue
            name = parameter.opts[0]
            all_values = values_by_option.get(parameter.name) or []  # None where it is not given
            values = list(dict.fromkeys(all_values))
            for value in values:
                stands_behind = any((option, value) in neighbours for option in parameter.opts)
                if value in parser._long_opt and stands_behind:
                    raise UsageError(
                        "{name} takes a value, and {value} is an option",
                        expected=message(
                            "{name} {metavar}", name=name, metavar=parameter.metavar or "VALUE"
                        ),
                        hint=f"{name}={value}",
                        name=name,
                        value=value,
                    )
            if "" in values:
                expected = message(
                    "{name} {metavar}, or without it",
                    name=name,
                    metavar=parameter.metavar or "VALUE",
                )
                raise UsageError("{name} is given no value", expected=expected, name=name)
            if len(values) > 1 and not parameter.multiple:
                raise self._given_twice(parameter, values)

    def _given_twice(self, parameter: Any, values: Sequence[Any]) -> UsageError:
        """The error, returned and not raised, that an option which takes one value is given several;
        of a flag, the values are its two spellings, `--bias` and `--no-bias`."""
        name = parameter.opts[0]
        value_texts = []
        for value in values:
            if not isinstance(value, bool):
                value_texts.append(repr(value))
            elif value:
                value_texts.append(name)
            else:
                value_texts.append(parameter.secondary_opts[0])
        first, second, *_ = value_texts
        return UsageError(
            "{name} is given twice: {value_text} and {value_text_2}",
            expected="one of them",
            hint=self.hints.get(name, ""),
            name=name,
            value_text=first,
            value_text_2=second,
        )

    def _take_settings(self, ctx: Any) -> None:
        """Give Typer the values of variables and of the settings file as defaults of options that
        the command line does not hold.
        """
        if ctx.obj is not None:
            # the model of the settings is chosen later, where the other options are read: one that
            # does not go with them is then passed over in silence
            ctx.default_map = {
                name: setting.value for name, setting in ctx.obj.settings.items() if name != "model"
            }

    def _tell_origins(self, ctx: Any) -> None:
        """Note in the environment which options the command line holds and, for `--verbose`,
        whether the command line, a variable or the settings file gave each value that settings may
        hold."""
        environment: Environment = ctx.obj
        # where no `--lang` is given, the environment has the language already, from ATTN_LANG
        environment.lang = ctx.params.get("lang") or environment.lang
        environment.subjects = getattr(self.callback, "subjects", {})
        environment.spellings = {
            parameter.name or "": parameter.opts[0] for parameter in self.params
        }
        environment.explicit_options = frozenset(
            name
            for name in ctx.params
            if (source := ctx.get_parameter_source(name)) is not None
            and source.name == "COMMANDLINE"
        )
        environment.given_words = {
            parameter.name: _words_given(parameter, ctx.params[parameter.name])
            for parameter in self.params
            if parameter.name in environment.explicit_options
            and parameter.param_type_name == "option"
        }
        for parameter in self.params:
            setting = environment.settings.get(parameter.name or "")
            source = ctx.get_parameter_source(parameter.name)
            if setting is not None and source is not None:
                on_command_line = source.name == "COMMANDLINE"
                if parameter.name == "model" and not on_command_line:
                    # whether it is used is found out, and said, by who reads the model's options
                    continue
                origin = message("the command line") if on_command_line else setting.origin
                if on_command_line:
                    value = ctx.params[parameter.name]
                else:
                    value = setting.value
                setting_text = f"{parameter.opts[0]} {value}"
                environment.origins.append(
                    message("{setting}: from {origin}", setting=setting_text, origin=origin)
                )
        # the palette is a setting without an option
        if (palette := environment.settings.get("palette")) is not None:
            setting_text = f"palette {palette.value}"
            environment.origins.append(
                message("{setting}: from {origin}", setting=setting_text, origin=palette.origin)
            )

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, those of one group together, in the order of the help page."""
        return sorted(
            super().get_params(ctx), key=lambda parameter: group_order(group_title(parameter))
        )

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The completions of an incomplete word. Rare options are offered, too: Typer leaves out
        hidden ones, as which it knows them, so they are not hidden meanwhile."""
        rare = [
            parameter
            for parameter in self.get_params(ctx)
            if getattr(parameter, "hidden", False) and group_title(parameter) != KEPT
        ]
        for parameter in rare:
            parameter.hidden = False
        try:
            completions: list[Any] = super().shell_complete(ctx, incomplete)
        finally:
            for parameter in rare:
                parameter.hidden = True
        return completions

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the whole help page to Typer's formatter."""
        formatter.write(whole_page(self, ctx))


def _words_given(parameter: Any, value: Any) -> tuple[str, ...]:
    """An option and its value as words of a command line: ("--mask", "causal"); of several values,
    each behind the option's name; of a flag, `--bias` or `--no-bias`."""
    name = parameter.opts[0]
    if isinstance(value, bool):
        if value:
            return (name,)
        return (parameter.secondary_opts[0],)
    values = value if isinstance(value, list | tuple) else [value]
    words: list[str] = []
    for part in values:
        text = str(part)
        if isinstance(part, float):
            text = f"{part:.17g}"  # digits enough to read the same number back
        words += (name, text)
    return tuple(words)


class CommandGroup(PlainParameters, TyperGroup):
    """A command that is a group of subcommands, with help pages and errors like those of a single
    command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as Typer does; answers a request for help on the group itself, and
        ends.
        """
        # help behind a subcommand's name is for that subcommand to write
        requests = [word for word in args[:1] if word in HELP]
        show_help(self, ctx, requests)
        return list(super().parse_args(ctx, args))

    def help_entry(self, ctx: Any, name: str) -> tuple[str, str]:
        """A command's line in the help: the group it is listed in, and what it does."""
        about = inspect.cleandoc(self.commands[name].help or "").partition("\n\n")[0]
        return "Commands", " ".join(about.split())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names, as Typer finds it. Raises UsageError for any
        other, with similar names."""
        check_command(self, ctx, args)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the whole help page to Typer's formatter."""
        formatter.write(whole_page(self, ctx))


def command_app(
    *functions: Callable[..., Any],
    help: str | None = None,
    essentials: str | Mapping[str, str] = "",
    hints: Mapping[str, str] = MappingProxyType({}),
) -> typer.Typer:
    """The Typer app of one command, or of a group of subcommands where `help` says what they are for.

    essentials: the options of the page of one screen (`-h`), ten at most, with blanks between; of
    several commands, by the name of each.
    hints: a command to try for an option that is given two values and takes one, by its name.
    """
    # help pages, errors and completion are ours: what Typer has of them is switched off
    app = typer.Typer(
        cls=CommandGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        help=help,
        no_args_is_help=help is not None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    if help is not None:
        app.callback()(lambda: None)  # a group of one command would be that command
    for function in functions:
        # what is left over is refused by GroupedCommand, which knows what it probably is
        settings = {"help_option_names": ["-h", "--help"], "allow_extra_args": True}
        if isinstance(essentials, Mapping):
            names = essentials.get(function.__name__, "")
        else:
            names = essentials
        # Typer makes the command itself, of a class: what is its own stands in a class of its own
        kind = type(
            "GroupedCommand",
            (GroupedCommand,),
            {"essentials": tuple(names.split()), "hints": hints},
        )
        app.command(cls=kind, context_settings=settings)(flat(function))
    return app
