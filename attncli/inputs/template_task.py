"""The texts that a chat template writes; runs in a bounded process, for templates are programs that come with models.

Source: the templates' environment (blocks trimmed, `tojson`, `raise_exception`, `strftime_now`, the `generation` tag)
is the one that Hugging Face's chat templating documents; the tests compare with it token for token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from attncli.inputs.task_failure import TaskError

LONGEST_PRODUCT = 10**6
"""What `*`, `**` and a width may make: templates of models that are in use repeat nothing."""
FAILURES = (
    TemplateError,
    RecursionError,
    OverflowError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    ImportError,
    OSError,
)
"""What a template raises that does not fit the messages."""


class _BeyondError(Exception):
    """Raised in the sandbox where a template does what none needs: repeats or pads text without bound, or uses a name
    that begins with an underscore. Its only argument says which: "power", "product", "width" or "name"."""


class _RefusedError(Exception):
    """Raised where a template calls `raise_exception`, with the reason that it states."""


def perform(request: Mapping[str, Any], write: Callable[[object], None]) -> list[str]:
    """Render a chat template once for each of several dictionaries of variables.

    Args:
        request: The template's `source`, the dictionaries `values`, and `limit`, the most
            characters that a text may have.
        write: Called with {"lines": pairs of a line of the template and the line of the Python code
            that Jinja makes of it}: if this process is ended for its time, the parent process finds
            the template's line by it.

    Returns:
        The texts, one for each dictionary.

    Raises:
        TaskError: Of the kind "syntax", "beyond", "unsafe", "refused", "failed" or "long".
    """
    environment = _environment()
    try:
        template = environment.from_string(request["source"])
    except TemplateSyntaxError as error:
        raise TaskError("syntax", str(error.message), error.lineno) from error
    except RecursionError as error:
        raise TaskError("syntax", str(error)) from error
    write({"lines": template.debug_info})
    try:
        return [_rendered_text(template, values, request["limit"]) for values in request["values"]]
    except MemoryError as error:
        # passed on as it is: it is reported only once what filled the memory is freed
        error.template_line = _line_of(error, template)  # type: ignore[attr-defined]
        raise
    except TaskError as error:  # the same with the template's line
        raise TaskError(error.kind, str(error), _line_of(error, template)) from error
    except _BeyondError as error:
        raise TaskError("beyond", str(error), _line_of(error, template)) from error
    except SecurityError as error:  # a TemplateError, so it comes before `FAILURES`
        raise TaskError("unsafe", str(error), _line_of(error, template)) from error
    except _RefusedError as error:
        raise TaskError("refused", str(error), _line_of(error, template)) from error
    except FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        raise TaskError("failed", reason, _line_of(error, template)) from error


def _rendered_text(template: Any, values: Mapping[str, Any], limit: int) -> str:
    """The text that a template renders. Raises what the template raises, and TaskError for more than
    `limit` characters."""
    pieces: list[str] = []
    size = 0
    for piece in template.generate(values):
        size += len(piece)
        if size > limit:
            raise TaskError("long")
        pieces.append(piece)
    return "".join(pieces)


def _line_of(error: BaseException, template: Any) -> int | None:
    """The template's line at which an error was raised, the innermost one in its traceback; None
    where the traceback has none."""
    line = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            # Jinja rewrites tracebacks to lines of the template, but not of every exception
            is_rewritten = "__jinja_exception__" in trace.tb_frame.f_globals
            line = trace.tb_lineno
            if not is_rewritten:
                line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _environment() -> Any:
    """Jinja as chat templates expect it: immutable, sandboxed, and with nothing that fills the
    memory in one step."""
    environment = _TemplateSandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    # in place of Jinja's own, which pad a text to any length
    environment.filters["center"] = _center
    environment.filters["format"] = partial(_format, environment)
    environment.globals.pop("lipsum")  # makes texts of any length
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_refuse,
        strftime_now=lambda form: datetime.now().strftime(form),
        dict=_Dictionary(),
        namespace=_Variables,
    )
    return environment


def _center(value: Any, width: int = 80) -> str:
    """Jinja's filter `center`. Raises ValueError for a width that no line has."""
    if width > WIDEST:
        raise ValueError(f"center takes a width up to {WIDEST}")
    return str(value).center(width)


WIDEST = 1000
"""Characters that a text is centred in at most: many more fill the memory in one step."""


def _format(environment: Any, value: Any, *args: Any, **values: Any) -> str:
    """Jinja's filter `format`: printf's places filled in, within the sandbox. Raises TypeError for
    values both by place and by name."""
    if args and values:
        raise TypeError("format takes values by place or by name, not both")
    # not Python's own %: the sandbox limits how long its result may be
    filled: str = environment.call_binop(None, "%", str(value), values or args)
    return filled


class _Generation(Extension):
    """A Jinja extension that reads the tag `{% generation %}` around an assistant's text, which only training
    needs, and keeps what is inside."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        """The node of what stands between the tags, in a scope of its own. Jinja's parser calls
        this at the opening tag."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _TemplateSandbox(ImmutableSandboxedEnvironment):
    """A sandbox in which nothing is repeated or padded beyond reason."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The value of an arithmetic operator in a template, which Jinja asks for before each `*`,
        `**` and `%`. Raises _BeyondError where it would be too large.
        """
        # the length of a text or list, the absolute value of a number; 0 of what is undefined
        sizes = [
            len(side) if isinstance(side, str | list | tuple | dict) else abs(side or 0)
            for side in (left, right)
        ]
        # bounds far above what a template needs, within which a result is small
        if operator == "**" and (sizes[0] > 1000 or sizes[1] > 100):
            raise _BeyondError("power")
        if operator == "*" and sizes[0] * sizes[1] > LONGEST_PRODUCT:
            raise _BeyondError("product")
        # a width of six digits, or one taken from the values, as in "%*d"
        if operator == "%" and isinstance(left, str) and re.search(r"[0-9*]{6}|\*", left):
            raise _BeyondError("width")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        """`str.format` within the sandbox. Raises _BeyondError for widths too large."""
        wrapped = super().wrap_str_format(value)
        # a width of six digits, or one taken from the values, as in "{:{width}}"
        if wrapped is not None and re.search(r"[0-9]{6}|\{[^}]*\{", value.__self__):
            raise _BeyondError("width")
        return wrapped

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may use this attribute of an object: what Jinja's sandbox allows,
        without methods that pad a text."""
        pads = ("center", "expandtabs", "ljust", "rjust", "zfill")
        if isinstance(obj, str) and attr in pads:
            return False
        return bool(super().is_safe_attribute(obj, attr, value))


class _Variables(Namespace):
    """Jinja's namespace, which raises _BeyondError for a name that begins with an underscore."""

    def __init__(*args: Any, **values: Any) -> None:
        """Names as `dict` takes them. `self` is taken from the arguments, so that a template may
        have a variable of that name."""
        self = args[0]
        args = args[1:]
        names = dict(*args, **values)
        if any(str(name).startswith("_") for name in names):
            raise _BeyondError("name")
        Namespace.__init__(self, names)

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a variable. Raises _BeyondError for a name that begins with an underscore."""
        if str(name).startswith("_"):
            raise _BeyondError("name")
        super().__setitem__(name, value)


class _Dictionary:
    """What templates get in place of the class `dict`: it can be called and has `fromkeys`, nothing
    else."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        """A dictionary, as `dict` makes it of these arguments."""
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """A dictionary with these keys, as `dict.fromkeys` makes it."""
        return dict.fromkeys(*args)


def _refuse(reason: str) -> None:
    """The function `raise_exception` of templates: raises _RefusedError with the template's reason."""
    raise _RefusedError(reason)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson` of templates: a value as JSON, characters beyond ASCII as they are unless
    a template asks otherwise. The other arguments are those of `json.dumps`."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
