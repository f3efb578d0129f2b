"""What installed packages add to attn, each imported and looked at once."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from attncli.cli.app import COMMANDS
from attncli.cli.plugin_commands import command_of
from attncli.features.models.compute import PluginRow
from attncli.features.rules.built_in_rules import BUILT_IN
from attncli.features.rules.rule_file import plugin_rule
from attncli.inputs.plugins import Plugin, PluginError, PluginKind, installed_plugins
from attncli.measure.layer_metrics import EVERY_METRIC
from attncli.measure.metric import OFFSETS
from attncli.measure.plugin_metrics import plugin_metric
from attncli.models.families import MODEL_TYPES, family

BUILT_IN_NAMES: dict[PluginKind, frozenset[str]] = {
    "metrics": frozenset({*EVERY_METRIC, *OFFSETS}),
    "rules": frozenset(rule.name for rule in BUILT_IN),
    "families": frozenset(MODEL_TYPES),
    "commands": frozenset(COMMANDS),
}
"""The names of attn's own, which no plugin takes."""


def plugin_rows() -> list[PluginRow]:
    """All plugins, and whether each can be used: one that fails hides no other."""
    plugins = installed_plugins()
    names = Counter((plugin.kind, plugin.name) for plugin in plugins)
    rows = []
    for plugin in plugins:
        reason = ""
        state: Literal["usable", "hidden", "twice", "fails"]
        if plugin.name in BUILT_IN_NAMES[plugin.kind]:
            state = "hidden"
        elif names[plugin.kind, plugin.name] > 1:
            state = "twice"
        else:
            reason = _failure(plugin)
            state = "fails" if reason else "usable"
        row = PluginRow(
            kind=plugin.kind,
            name=plugin.name,
            package=plugin.package,
            package_version=plugin.version,
            target=plugin.target,
            state=state,
            reason=reason,
        )
        rows.append(row)
    return rows


def _failure(plugin: Plugin) -> str:
    """Why a plugin cannot be used; "" where it can."""
    try:
        if plugin.kind == "metrics":
            plugin_metric(plugin)
        elif plugin.kind == "rules":
            plugin_rule(plugin)
        elif plugin.kind == "families":
            family(plugin.name)
        else:
            command_of(plugin)
    except PluginError as error:
        return error.what
    return ""
