"""Commands that plugins add: a Typer app, one of its commands, or a function with its options."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from attncli.errors import AttnError
from attncli.inputs.plugins import Plugin, plugin_named
from attncli.language import message


def find_command(name: str) -> Any:
    """The command of this name that an installed plugin adds; None where none does. Raises
    UsageError where several plugins do, PluginError where it cannot be imported or is no command."""
    plugin = plugin_named("commands", name)
    if plugin is None:
        return None
    return command_of(plugin)


def command_of(plugin: Plugin) -> Any:
    """Import the command that a plugin adds: a Typer app, a command of one, or a function. An error
    while it runs is reported as the plugin's. Raises PluginError where it cannot be imported, or is
    no command.
    """
    added = plugin.load()
    with plugin.guard():
        if isinstance(added, typer.Typer):
            command: Any = typer.main.get_command(added)
        elif isinstance(added, TyperCommand | TyperGroup):
            command = added
        elif callable(added):
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(plugin.name)(added)
            command = typer.main.get_command(app)
        else:
            what = message("{target} is no command", target=plugin.target)
            plugin.refuse(what, "a Typer app, or a function")
    run = command.invoke

    def invoke(context: Any) -> Any:
        """Run the command. Raises PluginError for what fails in it; attn's own refusals, and how
        Typer ends a command, stay as they are."""
        try:
            return run(context)
        except (AttnError, BrokenPipeError, *ENDINGS):
            raise
        except Exception as error:
            raise plugin.failure(error) from error

    command.invoke = invoke
    return command


ENDINGS = (Exit, Abort, TyperException)
"""How Typer ends a command, and says that its options are wrong."""
