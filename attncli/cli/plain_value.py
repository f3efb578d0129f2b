"""Reads what stands on a command line as a number or a text, without the library that newer versions of Typer load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class PlainValue:
    """Reads the values of one parameter in place of Typer's own reader, which from 0.29 on imports pydantic: that takes
    60 to 100 ms, a third of a small command."""

    def __init__(self, annotation: Any) -> None:
        self.kind = annotation.__args__[0] if getattr(annotation, "__origin__", None) is list else annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value, or each of several, as what the parameter is annotated with. Raises UsageError."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        return [self._read(part, param, ctx) for part in value] if several else self._read(value, param, ctx)

    def _read(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self.kind(value)
        except ValueError as error:
            from attncli.cli.option import no_number

            raise no_number(ctx, param, repr(value), self.kind) from error


def read_plainly(parameters: Iterable[Any]) -> None:
    """Have `PlainValue` read the values of these parameters of a command or group."""
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param"):  # Typer 0.29 or newer
            parameter._runtime_param = PlainValue(parameter.type_descriptor.annotation)
