"""A command of `attn`: what is left over or empty is refused, and its help page lists the options by group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from attncli.cli.offer import flat
from attncli.errors import UsageError


class GroupedCommand(TyperCommand):
    """A command whose help page lists its options by group, in plain text (Rich would cost half the start)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._refuse_empty(ctx, args)
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            from attncli.cli.usage_errors import too_many

            raise too_many(ctx.command_path, ctx.params, extra)
        return extra

    def _refuse_empty(self, ctx: Any, args: list[str]) -> None:
        """Raise UsageError for an option given without a value (`--seed=`): it would mean something else each time."""
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in self.params:
            value = given.get(parameter.name or "")
            if parameter.param_type_name == "option" and "" in (value if isinstance(value, list) else [value]):
                metavar = parameter.metavar or "VALUE"
                raise UsageError(
                    f"{parameter.opts[0]} is given no value", expected=f"{parameter.opts[0]} {metavar}, or without it"
                )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name = (
                    "Arguments"
                    if parameter.param_type_name == "argument"
                    else getattr(parameter, "rich_help_panel", None) or "Options"
                )
                panels.setdefault(name, []).append(record)
        for name in sorted(panels, key=lambda panel: panel not in ("Arguments", "Options")):
            with formatter.section(name):
                formatter.write_dl(panels[name])


def command_app(*functions: Callable[..., Any], help: str | None = None) -> typer.Typer:
    """The Typer app of one command, or of a group of subcommands when several functions are given."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        help=help,
        no_args_is_help=len(functions) > 1,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for function in functions:
        # what is left over is refused by GroupedCommand, which knows what it probably is
        settings = {"help_option_names": ["-h", "--help"], "allow_extra_args": True}
        app.command(cls=GroupedCommand, context_settings=settings)(flat(function))
    return app
