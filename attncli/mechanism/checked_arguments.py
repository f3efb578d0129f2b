"""What is passed to a public function, checked where it enters: a wrong kind of value is an error
that names the argument, what it was and what is expected.
"""

from __future__ import annotations

import builtins
import inspect
import math
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from attncli.arrays.backend import EVERY
from attncli.errors import InputError, UsageError
from attncli.language import listing, message
from attncli.mechanism.head_choice import OneHead, choose_heads_of, layer_and_heads

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
LONGEST_SHOWN = 60
"""Characters of a value that an error shows."""
COLLECTIONS = (Sequence, Collection, Iterable, list)


def checked(
    function: Callable[Parameters, Answer], *, by_itself: Collection[str] = ()
) -> Callable[Parameters, Answer]:
    """Decorator: make a public function check the kinds of its arguments, by their annotations,
    before it runs.

    A text for an argument that is a path becomes a path; layers and heads, however they are named,
    become what `choose_heads_of` makes of them.

    Args:
        function: The function. One whose arguments choose heads has the model as its first.
        by_itself: Arguments that the function checks itself.

    Returns:
        The function, which raises UsageError for an argument of another kind than its annotation's,
        and InputError for layers and heads that the model does not have.
    """

    @wraps(function)
    def call(*values: Parameters.args, **settings: Parameters.kwargs) -> Answer:
        """Check the arguments, then call the function."""
        signature = _signature(function)
        bound = signature.bind(*values, **settings)
        kinds = _kinds(function)
        # "L5H11" as the argument head becomes a layer and a number, before the kinds are checked
        _name_layer(kinds, bound.arguments)
        for name, value in bound.arguments.items():
            kind = kinds.get(name, Any)
            if kind is not CHOICE and name not in by_itself:
                bound.arguments[name] = _value_of(name, value, kind)
        _check_request(function, bound.arguments)
        # what only the model can tell: which layers, heads and tokens there are
        if CHOICE in kinds.values() and "model" in bound.arguments:
            _choose(function, bound)
        _check_places(bound.arguments)
        return function(*bound.args, **bound.kwargs)

    return call


CHOICE = object()
"""The kind of an argument that chooses layers or heads."""
CHOICES = ("Selection", "Which", "HeadSelection")


@cache
def _signature(function: Callable[..., object]) -> inspect.Signature:
    """A function's parameters."""
    return inspect.signature(function)


@cache
def _kinds(function: Callable[..., object]) -> dict[str, Any]:
    """The kind of each parameter: the type that its annotation names, `CHOICE` where it chooses
    layers or heads, `Any` for a type that is imported for type checkers alone."""
    kinds: dict[str, Any] = {}
    for name, parameter in _signature(function).parameters.items():
        annotation = str(parameter.annotation)
        if any(part.strip() in CHOICES for part in annotation.split("|")):
            kinds[name] = CHOICE
            continue
        # annotations are texts; they are evaluated among the names of the function's own module
        names = _Names({**getattr(function, "__globals__", {}), **KIND_OF_NAME})
        kinds[name] = eval(annotation, {}, names)
    return kinds


class Arrays:
    """Stands for arrays of any library, and for lists that are read as one."""


class Recordings:
    """Stands for what takes the heads of a run: it has a class `Recording` among its own."""


class Regions:
    """Stands for a named set of tokens: its class `Region` is imported where there is one."""


NAMES: dict[Any, str] = {
    str: message("a text"),
    int: message("a whole number"),
    float: message("a number"),
    bool: message("True or False"),
    Path: message("a path"),
    Arrays: message("an array of numbers"),
    Recordings: message("a recording of a run"),
    Regions: message("a region"),
    NoneType: message("None"),
    typing.BinaryIO: message("an open file"),
}
"""What kinds are called in errors."""
KIND_OF_NAME: dict[str, Any] = {
    "Array": Arrays,
    "Library": Arrays,
    "Bools": Arrays,
    "Recording": Recordings,
    "Region": Regions,
}
"""Kinds that annotations name and this module cannot import."""


class _Names(dict[str, Any]):
    """The names that annotations use; those imported for type checkers alone are `Any`."""

    def __missing__(self, name: str) -> Any:
        """A name that the module does not have at run time: a builtin, or `Any`."""
        if name in KIND_OF_NAME:
            return KIND_OF_NAME[name]
        return getattr(builtins, name, Any)


def _name_layer(kinds: Mapping[str, Any], arguments: dict[str, Any]) -> None:
    """Split an argument `head` such as "L5H11" or (5, 11) into the arguments `layer` and `head`, in
    place; nothing for a function that does not take both, or a head without its layer. Raises
    UsageError for a head of another layer than the argument `layer` says.

    kinds: the kind of each parameter of the function.
    arguments: what it was called with, by name.
    """
    head = arguments.get("head")
    # the annotations of an argument that is one head; of others, `head` may be a text of its own
    if kinds.get("head") not in (int | None, OneHead | None) or "layer" not in kinds:
        return
    if isinstance(head, str | tuple):
        selection: Any = head
        if isinstance(head, tuple):  # one pair in a list: alone, (5, 11) may also be two heads
            selection = [head]
        # numbers in a list where the choice names its layer; else the choice as it was, such as
        # "11", which is refused with the other kinds
        layer, heads = layer_and_heads(arguments.get("layer"), selection)
        if isinstance(heads, list) and len(heads) != 1:
            raise UsageError(
                "head is {value}",
                expected='one head: 11, "L5H11" or (5, 11)',
                value=_value_in_words(head),
            )
        if isinstance(heads, list):
            arguments |= {"layer": layer, "head": heads[0]}


def _choose(function: Callable[..., object], bound: inspect.BoundArguments) -> None:
    """Replace the arguments `layers` and `heads` of a call, in place, by what `choose_heads_of`
    makes of them: numbers that the model has, or a `HeadSelection` where the function takes one.
    Raises UsageError and InputError as that does, and for a choice of nothing.
    """
    arguments = bound.arguments
    parameters = _signature(function).parameters
    names = [name for name in ("layers", "heads") if name in parameters]
    if not any(name in arguments for name in names):
        return
    chosen = [arguments.get(name, parameters[name].default) for name in names]
    spec = arguments["model"].spec
    if "query_text" in parameters:  # of two texts: the decoder looks at the encoder
        spec = spec.decoder or spec
    if any(isinstance(part, Collection) and len(part) == 0 for part in chosen):
        raise UsageError("no layer or no head is chosen", expected="at least one of them")
    selection = choose_heads_of(spec, *chosen)
    # a function that takes a HeadSelection gets pairs in one, which counts alone, or else the numbers
    # as they were named; any other function gets numbers, where pairs can be written so
    if any(part in str(parameters["heads"].annotation) for part in ("Which", "HeadSelection")):
        if selection.pairs:
            arguments["heads"] = selection
            arguments.pop("layers", None)
            return
        chosen = [selection.layers, selection.heads]
    else:
        chosen = list(selection.layers_and_heads())
    arguments.update(zip(names, chosen, strict=True))


def _check_request(function: Callable[..., object], arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for an optional argument given beside a `request` that has a field of the
    same name.

    arguments: what the function was called with, by name.
    """
    # a request is a `Struct`, which lists its fields so; none where there is no request
    fields = getattr(arguments.get("request"), "__struct_fields__", ())
    parameters = _signature(function).parameters
    for name in fields:
        if name in arguments and parameters[name].default is not inspect.Parameter.empty:
            raise UsageError(
                "request and {name} both say what is asked for", expected="one of them", name=name
            )


NEVER_EMPTY = ("tokens", "scores", "measures", "repeats")
"""Lists that hold something."""
AT_LEAST_ONE = ("batch", "count", "d_k", "keys", "n", "samples", "seeds", "top")
"""Counts of what there must be some of."""


def _check_places(arguments: Mapping[str, Any]) -> None:
    """Raise InputError for the number of a layer, head or token that does not exist.

    arguments: of a call, by name.
    """
    places = [arguments.get("layer"), arguments.get("head")]
    model = arguments.get("model")
    if model is not None and any(isinstance(place, int) for place in places):
        # raises for numbers that the model does not have
        layer, head = (EVERY if place is None else [place] for place in places)
        choose_heads_of(model.spec, layer, head)
    tokens = arguments.get("tokens")
    if not isinstance(tokens, Sequence):
        return
    target = arguments.get("target")  # a text, or the positions of a word's tokens
    indices = [arguments.get("query"), *(target if isinstance(target, (list, tuple)) else ())]
    for index in indices:
        if isinstance(index, int) and not 0 <= index < len(tokens):
            raise InputError(
                "there is no token #{index}",
                expected=message(
                    "#0 to #{last}: the text has {tokens} tokens",
                    last=len(tokens) - 1,
                    tokens=len(tokens),
                ),
                index=index,
            )


def _check_size(name: str, value: Any) -> None:
    """Raise UsageError for an empty list where something must be in it, a count below 1, and a
    number that is none."""
    if name in NEVER_EMPTY and isinstance(value, Sized) and len(value) == 0:
        raise UsageError("{name} is empty", expected="at least one of them", name=name)
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and not math.isfinite(value):
        raise UsageError(
            "{name} is {value}", expected="a finite number", name=name, value=str(value)
        )
    if is_number and name in AT_LEAST_ONE and value < 1:
        raise UsageError("{name} is {value}", expected="at least 1", name=name, value=str(value))


def _value_of(name: str, value: Any, kind: Any) -> Any:
    """Check the value of an argument against its kind and return it; a text becomes a path where
    the kind is one. Raises UsageError for another kind of value, or an impossible size.

    name: the argument's.
    kind: the type that its annotation names.
    """
    if not _fits(value, kind):
        raise UsageError(
            "{name} is {value}",
            expected=_kind_in_words(kind),
            name=name,
            value=_value_in_words(value),
        )
    _check_size(name, value)
    if _is_union(kind):
        options = typing.get_args(kind)
    else:
        options = (kind,)
    if Path in options and str not in options and isinstance(value, str):
        return Path(value)
    return value


def _value_in_words(value: object) -> str:
    """A value as an error shows it: whole where it is short, else its type."""
    try:
        text = repr(value)
    except Exception:  # a user's own class may raise anything
        text = ""
    if text and len(text) <= LONGEST_SHOWN:
        return text
    return message("a {kind}", kind=type(value).__name__)


def _is_union(kind: Any) -> bool:
    """Whether a kind is a union of several types, such as `int | None`."""
    return isinstance(kind, UnionType) or typing.get_origin(kind) is typing.Union


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, a type annotation; an annotation that cannot be checked at run
    time fits any value.
    """
    # `Sequence[int]` has the origin Sequence and the part int
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if _is_union(kind):
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:  # True is not the literal 1, though they are equal
        return any(value is part or (type(value) is type(part) and value == part) for part in parts)
    if kind in CLASSES:  # with a test of its own, as True is no int and a text may be a path
        return CLASSES[kind](value)
    if origin is Callable:
        return callable(value)
    if origin in COLLECTIONS:
        return _fits_several(value, origin, parts[0])
    if origin is tuple and parts and parts[-1] is not Ellipsis:  # of as many items, each its kind
        return _fits_each(value, parts)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _fits_mapping(value, parts)
    if getattr(kind, "_is_protocol", False):  # whatever has the protocol's members
        return all(hasattr(value, name) for name in dir(kind) if not name.startswith("_"))
    if isinstance(kind, type) and kind is not Any:
        return isinstance(value, kind)
    return True


CLASSES: dict[Any, Callable[[Any], bool]] = {
    NoneType: lambda value: value is None,
    None: lambda value: value is None,
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool) or type(value).__name__ == "bool",
    int: lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    float: lambda value: isinstance(value, Real) and not isinstance(value, bool),
    Path: lambda value: isinstance(value, str | PathLike) and bool(fspath(value)),
    Arrays: lambda value: _is_array(value),
    Recordings: lambda value: any(base.__name__ == "Recording" for base in type(value).__mro__),
    Regions: lambda value: any(base.__name__ == "Region" for base in type(value).__mro__),
    typing.BinaryIO: lambda value: hasattr(value, "read"),
}
"""Whether a value is of a kind, by kind."""


def _is_array(value: Any) -> bool:
    """Whether a value is an array of numbers, or a list that is read as one."""
    if isinstance(value, list | tuple):
        return np.asarray(value).dtype.kind in "biuf"
    return len(getattr(value, "shape", ())) > 0


def _fits_each(value: Any, kinds: Sequence[Any]) -> bool:
    """Whether a value is a sequence with one of each of these kinds, in their order."""
    if not isinstance(value, Sequence) or len(value) != len(kinds):
        return False
    return all(map(_fits, value, kinds))


def _fits_several(value: Any, origin: Any, part: Any) -> bool:
    """Whether a value is a collection of items of one kind; a string is no list of its letters. The
    items of an iterator, which can be read only once, are not checked.

    origin: the kind of collection that is asked for, such as `Sequence`.
    part: the kind of its items.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return False
    if origin is not Iterable and not isinstance(value, Collection):
        return False
    # a dictionary is no list of its keys, and a set, which has no order, is no sequence
    if isinstance(value, Mapping) or (origin is Sequence and not hasattr(value, "__getitem__")):
        return False
    return not isinstance(value, Collection) or all(_fits(item, part) for item in value)


def _fits_mapping(value: Any, kinds: Sequence[Any]) -> bool:
    """Whether a value is a mapping whose keys and values are of these two kinds; of any without
    them."""
    if not isinstance(value, Mapping):
        return False
    if not kinds:
        return True
    key_kind, value_kind = kinds
    return all(_fits(key, key_kind) and _fits(item, value_kind) for key, item in value.items())


def _kind_in_words(kind: Any) -> str:
    """A type annotation in words, as an error says what it expected."""
    if _is_union(kind):
        return listing([_kind_in_words(part) for part in typing.get_args(kind)], " or ")
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return listing(map(repr, parts), " or ")
    if kind in NAMES:
        return NAMES[kind]
    if origin is Callable:
        return message("a function")
    if origin is Mapping:
        return message("a dictionary")
    if origin in COLLECTIONS:
        if parts[0] is Any:
            return message("a list")
        return message("a list, each of it {part}", part=_kind_in_words(parts[0]))
    if origin is tuple:
        return message("{count} of them", count=len(parts))
    name = getattr(kind, "__name__", "")
    if name == "Model":
        return message("a model, as attncli.load gives it")
    return message("a {kind}", kind=name or str(kind))
