"""Metrics that plugins add, measured and checked as those of a user's own file are."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import FunctionType

from msgspec.structs import replace

from attncli.errors import InputError
from attncli.inputs.files import read_regular
from attncli.inputs.function_file import LARGEST
from attncli.inputs.plugins import Plugin, plugin_named
from attncli.language import message
from attncli.measure.metric import FILE_METRICS, Metric, PerRow
from attncli.measure.metric_file import declaration_of, metric_of_function, try_metric
from attncli.measure.row_facts import AttentionRows

EXPECTED = message("a function of rows, as in a file of --metric-file")


def load_plugin_metric(name: str) -> None:
    """Register the metric that a plugin package adds under this name, so that it can be named like
    any other. Does nothing if no package adds one.

    Raises:
        UsageError: Where several packages do.
        PluginError: Where the plugin cannot be imported, is no function, or gives no numbers for a
            small block of rows.
    """
    plugin = plugin_named("metrics", name)
    if plugin is not None:
        FILE_METRICS[name] = plugin_metric(plugin)


def plugin_metric(plugin: Plugin) -> Metric:
    """The metric that a plugin adds, computed once on a small block of rows to see that it works.
    Raises PluginError for what cannot be imported, is no function, or gives no numbers there."""
    function = plugin.load()
    if not isinstance(function, FunctionType):
        plugin.refuse(
            message("{target} is no function", target=plugin.target),
            EXPECTED,
        )
    path = Path(function.__code__.co_filename)
    with plugin.guard():  # what fails in here is the plugin's error
        raw = read_regular(path, what=message("a Python file"), limit=LARGEST)
        # another version of the package, or of the file, is another metric to a scan
        digest = hashlib.sha256(f"{plugin.package} {plugin.version} ".encode() + raw).hexdigest()
        declaration = declaration_of(plugin.name, function, path)
        metric = metric_of_function(declaration, digest, function, path)

    def compute_rows(rows: AttentionRows) -> PerRow:
        """The function's numbers for a block of rows. Raises PluginError where it fails."""
        try:
            return metric.of(rows)
        except InputError as error:
            raise plugin.refusal(error) from error

    guarded = replace(metric, of=compute_rows)
    with plugin.guard():
        try_metric(guarded)
    return guarded
