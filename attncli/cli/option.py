"""What an option is: names, words, group on the help page, and the values that it takes; and how
groups of options are spread out for Typer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from enum import Flag, auto
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import typer
from msgspec import Struct
from msgspec.structs import replace
from typer.models import OptionInfo

from attncli.cli.completion import Complete, offer, words
from attncli.errors import UsageError, refused_value
from attncli.language import contextual, listing, message

SUBJECT, TEXT, MODEL, ATTENTION = message("What to look at"), "Text", "Model", "Attention"
WITHOUT_MODEL = message("Without --model")
"""The group of what a checkpoint brings itself."""
ANALYSIS, COMPUTE, OUTPUT = "Analysis", "Compute", "Output"
PANELS = (SUBJECT, TEXT, MODEL, WITHOUT_MODEL, ATTENTION, ANALYSIS, OUTPUT, COMPUTE)
"""The groups of a help page, in the order of use."""
EVERYWHERE = message("Options of most commands")
"""The group of what nearly every command takes: `attn --help` lists it once, for all of them."""
LARGEST = 1_000_000_000
"""The most of anything that can be asked for; memory refuses long before."""
KEPT = "kept"
"""The group of options that are said in another way now: they work, and no page lists them."""


class About(Flag):
    """What an option has an effect on, as flags: the forms of the answer (JSON, table, screen) or
    the kinds of model.

    From this one declaration follow what contradicts `--json`, `--plain` and `--brief`, and what a
    saved document or `--generate` leaves nothing to change of.
    """

    DELIVERY = auto()
    """Where the answer goes, in which form, in which language: it goes with every form."""
    JSON = auto()
    """Members of the document."""
    PLAIN = auto()
    """Rows of the table that `--plain` and `--csv` write."""
    SCREEN = auto()
    """Parts of the screen."""
    BRIEF = auto()
    """What `--brief` leaves of the screen: the answer."""
    ONE_LAYER = auto()
    """Seeded weights, or those of a file; a checkpoint brings its own."""
    CHECKPOINT = auto()
    """A checkpoint: without one there is nothing to change."""
    AFTER_HEADS = auto()
    """What becomes of the heads' output, which changes no link."""


RUN = About.JSON | About.PLAIN | About.SCREEN | About.BRIEF
"""What runs and is measured: it changes every form of the answer."""
DOCUMENT = About.JSON | About.PLAIN | About.SCREEN
"""What the document holds besides the answer in words."""
DATA = About.JSON | About.PLAIN
"""What is written for programs."""
DRAWING = About.SCREEN | About.BRIEF
"""How everything on the screen looks."""
SCREEN = About.SCREEN
"""The tables of the screen."""
DELIVERY = About.DELIVERY
"""How the answer comes."""

LARGEST_SEED = 2**63 - 1
UNITS = {
    "": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
    "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
LONGEST_SIZE = 20
"""Digits of a size; more are no bytes of any machine."""
OLD_SPELLINGS = {
    "--figure": ("--svg",), "--time": ("--measure",), "--output": ("--out",), "-n": ("--positions",),
    "--padded": ("--batch",), "--how": ("--by",), "--effect": ("--effects",),
}  # fmt: skip
"""Spellings that are kept for who knows them, by the option's own: no page lists them."""


def option(
    *names: str,
    help: str,
    panel: str,
    about: About,
    metavar: str | None = None,
    values: Sequence[str] = (),
    with_number: Sequence[str] = (),
    rare: bool = False,
    complete: Complete | None = None,
    spelling: Callable[[str], str] = str,
    is_size: bool = False,
) -> Any:
    """Declare a Typer option of one of the groups on the help page.

    names: its flags; none for the parameter's own name.
    panel: the group on the help page.
    about: which forms of the answer it changes.
    metavar: what stands for its value on the help page; None for `values`, or Typer's own.
    values: the words that it takes, if those are all.
    with_number: those of them that may have a number after a colon.
    rare: the help page has it at the end of its group.
    complete: what shells are offered for its value; None for `values`, if there are any.
    spelling: gives the one of `values` that another spelling means, or what it is given.
    is_size: whether its value is a number of bytes, such as 2GiB.
    """

    def check_words(_: Any, parameter: Any, argument: Any) -> Any:
        """Called by Typer with the argument of an option, which it returns: each of its values must
        be one of `values`. Raises UsageError for any other.
        """
        if isinstance(argument, str):  # no option that is repeated has other spellings
            argument = spelling(argument)
        for value in _as_list(argument):
            word, _, count = str(value).partition(":")
            is_numbered = word in with_number and parse_whole_number(count) is not None
            if value not in values and not is_numbered:
                from difflib import get_close_matches

                name = parameter.opts[0]
                close = get_close_matches(str(value), values, 1)
                if close:
                    hint = f"{name} {close[0]}"
                else:
                    hint = ""
                raise refused_value(name, str(value), listing(values), hint=hint)
        return argument

    def check_size(_: Any, parameter: Any, argument: Any) -> Any:
        """Called by Typer with the argument of an option, which it returns: a number of bytes. Raises
        UsageError for any other, such as "2 sheep".
        """
        if argument is not None:
            parse_size(argument, parameter.opts[0])
        return argument

    callback = None
    if values:
        callback = check_words
    elif is_size:
        callback = check_size
    if complete is None and values:
        complete = words(*values)
    declaration = typer.Option(
        *names,
        help=help,
        rich_help_panel=panel,
        metavar="|".join(values) if values and metavar is None else metavar,
        readable=False,  # who opens a file finds out whether it can be read
        hidden=rare or panel == KEPT,
        callback=callback,
        autocompletion=None if complete is None else offer(complete),
    )
    declaration.about = about  # our own addition to Typer's object, read by `subjects`
    return declaration


class Within(Struct, frozen=True):
    """The numbers that an option takes, from `least` to `most`.

    above: `least` itself is too small.
    """

    least: float
    most: float
    above: bool

    @property
    def description(self) -> str:
        """The bounds in words, such as "1 to 64"."""
        ends = {"lowest": _number_text(self.least), "highest": _number_text(self.most)}
        if self.above:
            return contextual("limits", "above {lowest} to {highest}", **ends)
        return message("{lowest} to {highest}", **ends)

    def check(self, _: Any, parameter: Any, argument: Any) -> Any:
        """Called by Typer with the argument of an option, a number or several, which it returns.
        Raises UsageError for any number outside the bounds."""
        for value in _as_list(argument):
            # comparisons with nan are false, so that it is refused, too
            is_within = self.least <= value <= self.most
            if self.above and value == self.least:
                is_within = False
            if not is_within:
                raise refused_value(parameter.opts[0], value, self.description)
        return argument


def number(
    *names: str,
    help: str,
    panel: str,
    about: About,
    least: float = 1,
    most: float = LARGEST,
    above: bool = False,
    metavar: str = "N",
    rare: bool = False,
) -> Any:
    """An option that takes a number from `least` to `most`, which its help states.

    above: `least` itself is too small.
    rare: the help page has it at the end of its group.
    """
    within = Within(least, most, above)
    declaration = typer.Option(
        *names,
        help=f"{help} [{within.description}]",
        rich_help_panel=panel,
        metavar=metavar,
        hidden=rare or panel == KEPT,
        callback=within.check,
    )
    declaration.about = about  # our own addition to Typer's object, read by `subjects`
    return declaration


text_option = partial(option, panel=TEXT, about=RUN)
subject_option, subject_number = (
    partial(option, panel=SUBJECT, about=RUN),
    partial(number, panel=SUBJECT, about=RUN),
)
model_option, model_number = (
    partial(option, panel=MODEL, about=RUN),
    partial(number, panel=MODEL, about=RUN),
)
attention_option = partial(option, panel=ATTENTION, about=RUN)
attention_number = partial(number, panel=ATTENTION, about=RUN)
analysis_option = partial(option, panel=ANALYSIS, about=RUN)
compute_option, compute_number = (
    partial(option, panel=COMPUTE, about=RUN),
    partial(number, panel=COMPUTE, about=RUN),
)
answer_option = partial(option, panel=OUTPUT, about=RUN)
delivery_option = partial(option, panel=OUTPUT, about=DELIVERY)
everywhere_option = partial(option, panel=EVERYWHERE, about=DELIVERY)
delivery_number = partial(number, panel=OUTPUT, about=DELIVERY)


def argument(help: str, metavar: str, complete: Complete | None = None) -> Any:
    """A Typer argument, which is known by its position. Whether a file can be read is checked by
    whoever reads it.
    """
    if complete is None:
        completion = None
    else:
        completion = offer(complete)
    return typer.Argument(
        help=help, metavar=metavar, show_default=False, readable=False, autocompletion=completion
    )


def no_number(context: Any, parameter: Any, text: str, kind: type) -> UsageError:
    """The UsageError for an option whose value is no number.

    context: Typer's, None outside of a command.
    text: the value, in quotes.
    kind: the type of number that the option takes, float or int.
    """
    path = "attn"
    if context is not None:
        path = context.command_path.rstrip()
    return UsageError(
        "{opt} is {value}",
        expected=message("a number" if kind is float else "a whole number"),
        hint=f"{path} --help",
        opt=parameter.opts[0],
        value=text,
    )


class PlainValue:
    """Reads the values of one parameter in place of Typer's own reader, which from 0.29 on imports
    pydantic: that takes 60 to 100 ms, a third of a small command."""

    def __init__(self, annotation: Any) -> None:
        """Take the type that the parameter is annotated with: `int`, or `list[int]`."""
        if getattr(annotation, "__origin__", None) is list:
            self.kind = annotation.__args__[0]
        else:
            self.kind = annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Called by Typer with what the command line holds for the parameter; returns the value, or
        a list of several, in the annotated type. Raises UsageError for a text that is none.
        """
        several = param.multiple or param.nargs == -1  # Click's -1: any number of values
        if value is None:  # an option that was not given
            return () if several else None
        if several:
            return [self._read(part, param, ctx) for part in value]
        return self._read(value, param, ctx)

    def _read(self, value: Any, param: Any, ctx: Any) -> Any:
        """One value converted to the parameter's type. Raises UsageError."""
        try:
            return self.kind(value)
        except ValueError as error:
            raise no_number(ctx, param, repr(value), self.kind) from error


class PlainParameters:
    """A command or group whose values `PlainValue` reads, those of the options that Typer adds for
    help and completion too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters as Typer has them, each with a `PlainValue` to read its values."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if hasattr(parameter, "get_runtime_param"):  # Typer 0.29 or newer
                parameter._runtime_param = PlainValue(parameter.type_descriptor.annotation)
        return parameters


def redeclare(
    declared: Any,
    *,
    help: str = "",
    panel: str = "",
    about: About | None = None,
    metavar: str = "",
    least: float | None = None,
    most: float | None = None,
    common: bool = False,
) -> Any:
    """A copy of a declared option for one command, with a help sentence, group, placeholder, bounds
    or `About` of its own where these are given.

    least, most: bounds, for an option that `number` declared.
    common: whether it is listed among the common options though it is a rare one elsewhere.
    """
    own = copy(declared)
    own.rich_help_panel = panel or declared.rich_help_panel
    own.about = about or declared.about
    own.hidden = declared.hidden and not common
    own.metavar = metavar or declared.metavar
    own.help = help or declared.help
    # the callback of an option that `number` declared is the method `check` of its bounds
    bounds = getattr(declared.callback, "__self__", None)
    if isinstance(bounds, Within):
        own_bounds = bounds
        if least is not None:
            own_bounds = replace(own_bounds, least=least)
        if most is not None:
            own_bounds = replace(own_bounds, most=most)
        sentence = help or declared.help.removesuffix(f" [{bounds.description}]")
        own.help = f"{sentence} [{own_bounds.description}]"
        own.callback = own_bounds.check
    return own


def parse_whole_number(text: str, most: int = LARGEST) -> int | None:
    """The whole number from 0 to `most` that a text writes; None for any other text, however long."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None
    value = int(digits)
    if value <= most:
        return value
    return None


def parse_size(text: str, option: str) -> int:
    """Bytes that a SIZE such as "2GiB", "500MB" or "1000000" names. Raises UsageError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].lower() not in UNITS or len(match[1]) > LONGEST_SIZE:
        raise refused_value(option, text, "a size such as 2GiB, 500MB or 1000000")
    return int(float(match[1]) * UNITS[match[2].lower()])


def _as_list(value: Any) -> list[Any]:
    """The values of an option as a list: of one that is given once, several times, or not (None)."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _number_text(end: float) -> str:
    """A bound as help states it: "1,000", or "1e30" where it is large."""
    if isinstance(end, int) and abs(end) <= LARGEST:
        return f"{end:,}"
    return f"{end:.0e}".replace("e+", "e")


# Option groups of which some options may be given several times, once for each side of a
# comparison.

Group = TypeVar("Group")


class RepeatedNames(Struct, frozen=True):
    """Annotation beside `Repeated` in a command's signature: the options of the group that may be
    given once for each side of a comparison."""

    names: tuple[str, ...]


def repeat(*names: str) -> RepeatedNames:
    """An annotation beside `Repeated`: these options of the group may be given several times."""
    return RepeatedNames(names)


class Repeated(Struct, Generic[Group], frozen=True):
    """An option group of which some options may be given once for each side of a comparison.

    group: the type of the option group.
    base: the values of all others, by name.
    values: those of each such option, by name, in order, empty where it is not given.
    """

    group: type[Group]
    base: Mapping[str, Any]
    values: Mapping[str, Sequence[Any]]

    def with_values(self, name: str, values: Sequence[Any]) -> Repeated[Group]:
        """A copy with more values appended to those of one option."""
        return Repeated(self.group, self.base, {**self.values, name: [*self.values[name], *values]})

    def side(self, index: int) -> Group:
        """The option group for side `index` (0 or 1) of a comparison; an option that is given once
        holds for both sides.
        """
        hints = get_type_hints(self.group)
        side_values: dict[str, Any] = {}
        for name, values in self.values.items():
            if not values:
                continue
            if len(values) > 1:
                value = values[index]
            else:
                value = values[0]
            # an option of which the group holds a list, such as of masks, has one on each side
            if get_origin(without_none(hints[name])) is list:
                value = [value]
            side_values[name] = value
        return self.group(**self.base, **side_values)


def group_of(hint: Any) -> Any:
    """The option group in `Repeated[Group]`; any other type itself."""
    if get_origin(hint) is Repeated:
        return get_args(hint)[0]
    return hint


def without_none(hint: Any) -> Any:
    """The type of an option's value: `str` of `str | None`, any other type as it is."""
    alternatives = get_args(hint)
    if NoneType in alternatives:
        for alternative in alternatives:
            if alternative is not NoneType:
                return alternative
    return hint


def repeated_names(hint: Any) -> tuple[str, ...]:
    """The options of a group that may be given several times, by the `RepeatedNames` in the
    annotation of a command's parameter; none where it has no such part."""
    for part in getattr(hint, "__metadata__", ()):
        if isinstance(part, RepeatedNames):
            return part.names
    return ()


def repeatable(hint: Any) -> Any:
    """The annotation of an option that may be repeated, from that of the same option given once:
    `Annotated[str | None, X]` becomes `Annotated[list[str] | None, X]`."""
    once, *declarations = get_args(hint)
    value: Any = without_none(once)
    if get_origin(value) is list:
        values: Any = value
    else:
        values = list[value]
    return Annotated[values | None, *declarations]


def build_parameter(hint: Any, group: Any, values: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Build the value of a command's parameter that is an option group: the group, or a `Repeated`
    that keeps all values of the options that may be repeated.

    hint: the parameter's type.
    group: the option group in it.
    values: of all options, by name.
    names: of the options that may be repeated.
    """
    if get_origin(hint) is not Repeated:
        return build_group(group, values)
    repeated_values = {
        name: list(values[name] or ()) for name in option_defaults(group) if name in names
    }
    base = {name: value for name, value in values.items() if name not in names}
    return Repeated(group, base, repeated_values)


# Which options of a group a command has, and the groups spread out for Typer.


class Offer(Struct, frozen=True):
    """Beside an option group in a command's annotation: which of its options the command has; the
    others keep their defaults.

    An option that a command would ignore is not offered by it.
    """

    names: tuple[str, ...]
    others: bool = False  # whether it has all but the named ones


def only(*names: str) -> Offer:
    """An annotation beside a group: the command has these of its options."""
    return Offer(names)


def without(*names: str) -> Offer:
    """An annotation beside a group: the command has all of its options but these."""
    return Offer(names, others=True)


class Meaning(Struct, frozen=True):
    """Beside an option group in a command's annotation: options of it that this command declares in
    another way.
    """

    options: Mapping[str, Any]

    def declare(self, name: str, hint: Any) -> Any:
        """The type and declaration (`Annotated`) of an option as this command declares it.

        hint: the option's type and declaration in the group that it comes from.
        """
        declaration = self.options[name]
        if isinstance(declaration, About):
            (shared,) = hint.__metadata__
            declaration = redeclare(shared, about=declaration)
        return Annotated[hint.__origin__, declaration]


def meaning(**declarations: Any) -> Meaning:
    """An annotation beside an option group: how this command declares some of its options, by name:
    a declaration as of `redeclare`, or the `About` alone."""
    return Meaning(declarations)


def _offers(hint: Any, name: str) -> bool:
    """Whether a command offers the option of this name, by each `Offer` in the annotation of its
    parameter; all options where there is none."""
    for part in getattr(hint, "__metadata__", ()):
        if not isinstance(part, Offer):
            continue
        is_listed = name in part.names
        if is_listed == part.others:  # left out by `without`, or not among those of `only`
            return False
    return True


def _with_flag(hint: Any, name: str) -> Any:
    """The annotation of a parameter, in which an option that declares no flag has `--` and the
    parameter's name: of `d_model`, `--d-model`.
    """
    for declaration in getattr(hint, "__metadata__", ()):
        # Typer keeps an option's first flag as its default, `...` for none
        if isinstance(declaration, OptionInfo) and declaration.default is ...:
            own = copy(declaration)
            own.default = f"--{name.replace('_', '-')}"
            return Annotated[hint.__origin__, own]
    return hint


def spread(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a command by name, its option groups (parameters that are Structs, with
    an `Offer` or not) spread into single options. All are keyword-only, as one without a default
    may then follow those of a group."""
    hints = get_type_hints(function, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        group = group_of(_without_annotations(hints[name]))

        # an option of the command's own
        if not _is_group(group):
            parameters[name] = parameter.replace(
                kind=parameter.KEYWORD_ONLY, annotation=_with_flag(hints[name], name)
            )
            continue

        # a group: its options as they are declared there, or, by a `Meaning`, for this command
        details = {name: hint for name, _, hint in _all_fields(group)}
        for part in getattr(hints[name], "__metadata__", ()):
            if isinstance(part, Meaning):
                details |= {
                    option: part.declare(option, details[option]) for option in part.options
                }
        repeatable_names = repeated_names(hints[name])
        for option_name, default in offered_defaults(hints[name], group).items():
            is_repeatable = option_name in repeatable_names
            hint = _with_flag(details[option_name], option_name)
            parameters[option_name] = inspect.Parameter(
                option_name,
                parameter.KEYWORD_ONLY,
                default=None if is_repeatable else default,
                annotation=repeatable(hint) if is_repeatable else hint,
            )
    return parameters


def subjects_of(*groups: Any) -> dict[str, About]:
    """What each option of these groups has an effect on (see `About`), by its name. The first part
    of an option's annotation is its declaration, which says so."""
    abouts: dict[str, About] = {}
    for group in groups:
        for name, _default, hint in _all_fields(_without_annotations(group)):
            declaration, *_ = hint.__metadata__
            if _offers(group, name) and hasattr(declaration, "about"):  # an argument has none
                abouts[name] = declaration.about
    return abouts


def subjects(function: Callable[..., Any]) -> dict[str, About]:
    """What each option of a command has an effect on (see `About`), by the name of its parameter;
    read before every command starts. Raises TypeError for an option that does not declare it."""
    about = {}
    for name, parameter in spread(function).items():
        for declaration in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(declaration, OptionInfo):
                if not isinstance(subject := getattr(declaration, "about", None), About):
                    raise TypeError(
                        f"{function.__name__}: the option {name} does not declare what it is about"
                    )
                about[name] = subject
    return about


def _without_annotations(hint: Any) -> Any:
    """T for a type written `Annotated[T, …]`; any other type as it is."""
    if hasattr(hint, "__metadata__"):
        return hint.__origin__
    return hint


def _is_group(hint: Any) -> bool:
    """Whether a type is an option group, which is a Struct with fields."""
    return isinstance(hint, type) and issubclass(hint, Struct) and hint is not Repeated


def option_defaults(group: type[Struct]) -> dict[str, Any]:
    """The default of each field of an option group, by name, in the order of the group."""
    defaults = group.__struct_defaults__
    names = group.__struct_fields__
    required = [inspect.Parameter.empty] * (len(names) - len(defaults))
    return dict(zip(names, (*required, *defaults), strict=True))


@cache
def _annotations(group: type) -> dict[str, Any]:
    """The annotations of a group's fields by name, which take long to evaluate."""
    return get_type_hints(group, include_extras=True)


def _all_fields(group: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, default and annotation of each option of a group, and of the groups that are
    fields of it.
    """
    for name, default in option_defaults(group).items():
        hint = _annotations(group)[name]
        if _is_group(hint):
            yield from _all_fields(hint)
        else:
            yield name, default, hint


def offered_defaults(hint: Any, group: Any) -> dict[str, Any]:
    """The defaults of those fields of a group that a command has as options, by name."""
    return {name: default for name, default, _ in _all_fields(group) if _offers(hint, name)}


def build_group(group: Any, values: Mapping[str, Any]) -> Any:
    """Build an option group, and the groups in it, from the values of options by name; options
    without a value keep their defaults.
    """
    fields: dict[str, Any] = {}
    for name in option_defaults(group):
        hint = _annotations(group)[name]
        # asked first, as a group may have the name of an option: `model` of `RunSetup`, and --model
        if _is_group(hint):
            fields[name] = build_group(hint, values)
        elif name in values:
            fields[name] = values[name]
    return group(**fields)


def flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command with its option groups spread out, as Typer reads it; the call puts the groups
    together again.

    `subjects` of what is returned says what each option is about.
    """
    hints = get_type_hints(function, include_extras=True)
    types = {name: _without_annotations(hint) for name, hint in hints.items()}
    # the option group of each parameter that is one, or several of one
    groups = {name: group for name, hint in types.items() if _is_group(group := group_of(hint))}
    parameters = spread(function)

    def command(**values: Any) -> Any:
        """The function, called with its option groups built from the values of single options."""
        groups_built = {}
        for name, group in groups.items():
            group_values = {
                option: values.pop(option) for option in offered_defaults(hints[name], group)
            }
            groups_built[name] = build_parameter(
                types[name], group, group_values, repeated_names(hints[name])
            )
        return function(**groups_built, **values)

    # what Typer reads of a function
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    command.__name__ = function.__name__
    command.__doc__ = function.__doc__
    command.__module__ = function.__module__
    command.subjects = subjects(function)  # type: ignore[attr-defined]
    return command
