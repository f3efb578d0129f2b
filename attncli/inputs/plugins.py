"""Plugins: what other installed packages add to `attn`, found by their entry points.

A package declares what it adds in its pyproject.toml, under the name by which it is then called:

    [project.entry-points."attncli.metrics"]
    every_third = "my_package:every_third"

Entry points are read where a name is not attn's own, or all are listed: they take time, and nothing
that is built in needs them. What attn has itself is never replaced.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

from msgspec import Struct

from attncli.errors import AttnError, UsageError
from attncli.language import Message, listing, message

PluginKind = Literal["metrics", "rules", "families", "commands"]
"""What a plugin may add; the entry points of metrics stand in the group attncli.metrics, and so on."""
KINDS: tuple[PluginKind, ...] = ("metrics", "rules", "families", "commands")


class PluginError(AttnError):
    """Another package's code failed; the error names it."""


class Plugin(Struct, frozen=True, eq=False):
    """One entry point of an installed package.

    kind: what it adds.
    name: by which it is called.
    target: the object, as "module:name".
    package, version: which installed distribution declares it.
    load_object: imports it.
    """

    kind: PluginKind
    name: str
    target: str
    package: str
    version: str
    load_object: Callable[[], Any]

    @property
    def title(self) -> Message:
        """The plugin and its package, as errors name them."""
        return message(
            "plugin {name} of {package} {version}",
            name=self.name,
            package=self.package,
            version=self.version,
        )

    def load(self) -> Any:
        """The object that the plugin adds, imported. Raises PluginError where that fails."""
        with self.guard():
            return self.load_object()

    def refuse(self, what: str, expected: str) -> NoReturn:
        """Raise PluginError, because what the plugin adds is not what its kind must be.

        what: what is wrong with it.
        expected: what would be right.
        """
        raise PluginError(
            message("{plugin}: {what}", plugin=self.title, what=what),
            where=self.target,
            expected=expected,
        )

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Context manager around the plugin's code: what goes wrong there becomes a PluginError
        that names the plugin, its package and the line; refusals of attn itself keep their text."""
        try:
            yield
        except PluginError:
            raise
        except AttnError as error:
            raise self.refusal(error) from error
        except BrokenPipeError:  # the reader of the output closed it: no fault of the plugin
            raise
        except (Exception, SystemExit) as error:
            raise self.failure(error) from error

    def refusal(self, error: AttnError) -> PluginError:
        """The error, returned and not raised, for something that attn refused while the plugin's
        code ran: the same words, with the plugin named before them."""
        return PluginError(
            message("{plugin}: {what}", plugin=self.title, what=error.what),
            where=error.where,
            expected=error.expected,
            hint=error.hint,
        )

    def failure(self, error: BaseException) -> PluginError:
        """The error, returned and not raised, that the plugin's code failed."""
        what = message(
            "{plugin} failed: {kind}: {reason}",
            plugin=self.title,
            kind=type(error).__name__,
            reason=str(error)[:300],
        )
        where = _line_of(error) or self.target
        return PluginError(what, where=where, hint="attn models list --plugins")


def _line_of(error: BaseException) -> str:
    """The file and line where an exception was raised; "" where no file is known."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f"{frames[-1].filename}:{frames[-1].lineno}"


def installed_plugins() -> list[Plugin]:
    """All plugins of the installed packages, by kind, name and package. Reads the packages'
    metadata; imports none of them."""
    from importlib.metadata import entry_points

    plugins = []
    for kind in KINDS:
        for entry in entry_points(group=f"attncli.{kind}"):
            # (`dist` is only None of an entry point that was not found in a package)
            plugins.append(
                Plugin(
                    kind,
                    entry.name,
                    entry.value,
                    "?" if entry.dist is None else entry.dist.name,
                    "" if entry.dist is None else entry.dist.version,
                    entry.load,
                )
            )
    order = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(
        plugins, key=lambda plugin: (order[plugin.kind], plugin.name, plugin.package, plugin.target)
    )


def plugin_named(kind: PluginKind, name: str) -> Plugin | None:
    """The plugin of that name; None where no package has one.

    Raises:
        UsageError: Where several do: which one is meant cannot be known.
    """
    plugins = [
        plugin for plugin in installed_plugins() if plugin.kind == kind and plugin.name == name
    ]
    if len(plugins) > 1:
        packages = [f"{plugin.package} {plugin.version}".strip() for plugin in plugins]
        raise UsageError(
            "{count} packages add {name}: {packages}",
            expected="one of them installed",
            hint="attn models list --plugins",
            count=len(plugins),
            name=repr(name),
            packages=listing(packages),
        )
    if plugins:
        return plugins[0]
    return None
