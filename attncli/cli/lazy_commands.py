"""Commands by name, of which each is made when it is first asked for: Typer takes some five milliseconds for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any


class LazyCommands(MutableMapping[str, Any]):
    """names: in the order of the help page. make: the command of a name."""

    def __init__(self, names: Sequence[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = names, make
        self._commands: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._commands:
            if name not in self._names:
                raise KeyError(name)
            self._commands[name] = self._make(name)
            self._commands[name].name = name
        return self._commands[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._commands[name] = value

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
