"""Which options of a group a command has, and the groups spread out for Typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

from attncli.cli.repeated_options import gather, group_of, repeated_names, several


@dataclass(frozen=True)
class Offer:
    """Beside an option group in a command's annotation: which of its options the command has; the others keep their
    defaults.

    An option that a command would ignore is not offered by it.
    """

    names: tuple[str, ...]
    others: bool = False  # whether it has all but the named ones


def only(*names: str) -> Offer:
    """The command has these options of a group."""
    return Offer(names)


def without(*names: str) -> Offer:
    """The command has all options of a group but these."""
    return Offer(names, others=True)


@dataclass(frozen=True)
class Meaning:
    """Beside an option group in a command's annotation: options of it that this command declares in another way."""

    options: dict[str, Any]


def meaning(**declarations: Any) -> Meaning:
    """The command means these options of a group so; see `option.redeclare`."""
    return Meaning(declarations)


def _offers(hint: Any, name: str) -> bool:
    return all(
        (name in part.names) != part.others for part in getattr(hint, "__metadata__", ()) if isinstance(part, Offer)
    )


def flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose option groups (parameters that are dataclasses, with an `Offer` or not) are spread into single
    options.

    Typer reads the signature made here; the call puts the groups together again.
    """
    hints = get_type_hints(function, include_extras=True)
    plain = get_type_hints(function)
    groups = {
        name: group for name, hint in plain.items() if is_dataclass(group := group_of(hint)) and isinstance(group, type)
    }
    offered_fields = {
        name: [item for item in fields(group) if _offers(hints[name], item.name)] for name, group in groups.items()
    }
    spread: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            details = get_type_hints(groups[name], include_extras=True)
            for part in getattr(hints[name], "__metadata__", ()):
                if isinstance(part, Meaning):
                    details |= {
                        name_in_group: Annotated[details[name_in_group].__origin__, declaration]
                        for name_in_group, declaration in part.options.items()
                    }
            repeatable = repeated_names(hints[name])
            for item in offered_fields[name]:
                again = item.name in repeatable
                spread[item.name] = inspect.Parameter(
                    item.name,
                    parameter.KEYWORD_ONLY,
                    default=None if again else item.default,
                    annotation=several(details[item.name]) if again else details[item.name],
                )
        else:
            spread[name] = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])

    def command(**values: Any) -> Any:
        groups_built = {}
        for name, group in groups.items():
            group_values = {item.name: values.pop(item.name) for item in offered_fields[name]}
            groups_built[name] = gather(plain[name], group, group_values, repeated_names(hints[name]))
        return function(**groups_built, **values)

    command.__signature__ = inspect.Signature(list(spread.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in spread.items()}
    command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
    return command
