"""Option groups of which some options may be given several times, once for each side of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

Group = TypeVar("Group")


@dataclass(frozen=True)
class RepeatedNames:
    """Beside `Repeated` in a command's annotation: which options of the group may be given once for each side."""

    names: tuple[str, ...]


def repeat(*names: str) -> RepeatedNames:
    """These options of a group may be repeated."""
    return RepeatedNames(names)


@dataclass(frozen=True)
class Repeated(Generic[Group]):
    """A group as the command line gives it. base: what holds for all sides; values: the values of what may be
    repeated, by the option's name, none where it is not given."""

    group: type[Group]
    base: Mapping[str, Any]
    values: Mapping[str, Sequence[Any]]

    def adding(self, name: str, values: Sequence[Any]) -> Repeated[Group]:
        """The same, with values after those of one option."""
        return Repeated(self.group, self.base, {**self.values, name: [*self.values[name], *values]})

    def side(self, index: int) -> Group:
        """The group of one side: what is given once holds for each."""
        lists = {name for name, hint in get_type_hints(self.group).items() if get_origin(once(hint)) is list}
        side_values = {name: values[index if len(values) > 1 else 0] for name, values in self.values.items() if values}
        return self.group(
            **self.base, **{name: [value] if name in lists else value for name, value in side_values.items()}
        )


def group_of(hint: Any) -> Any:
    """The group in `Repeated[Group]`; any other type itself."""
    return get_args(hint)[0] if get_origin(hint) is Repeated else hint


def once(hint: Any) -> Any:
    """The type of a given value: without the None that says that it is not given."""
    return next((part for part in get_args(hint) if part is not NoneType), hint) if NoneType in get_args(hint) else hint


def repeated_names(hint: Any) -> tuple[str, ...]:
    """The options that an annotation lets repeat."""
    return next((part.names for part in getattr(hint, "__metadata__", ()) if isinstance(part, RepeatedNames)), ())


def several(hint: Any) -> Any:
    """The annotation of an option that may be repeated, from that of the same option given once."""
    declaration, *about = get_args(hint)
    value: Any = once(declaration)
    values: Any = value if get_origin(value) is list else list[value]
    return Annotated[values | None, *about]


def gather(hint: Any, group: Any, values: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The group that a command takes: plain, or `Repeated` with the values of `names` apart."""
    if get_origin(hint) is not Repeated:
        return group(**values)
    repeated_values = {name: list(values[name] or ()) for item in fields(group) if (name := item.name) in names}
    return Repeated(group, {name: value for name, value in values.items() if name not in names}, repeated_values)
