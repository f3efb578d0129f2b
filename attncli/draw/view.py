"""`View`: all that a screen needs to know of who reads it; and a screen, which is a table of parts:
each has a name, which `--show` takes, what draws it, and when it is shown unasked. A part draws
`Lines`: a block of styled text, laid out to the cell, which Rich prints. Styles are Rich style strings
("bold", "black on #fde725"), so nothing here imports Rich until something is printed.

`features/<name>/screen.py` holds the table `<NAME>_PARTS` of `attn.<name>/1`, in the order of the
screen:

    FIND_PARTS: Parts[FindDocument] = (
        ScreenPart("header", header),
        ScreenPart("tokens", shown_tokens, never),
        ScreenPart("heads", _heads),
        ScreenPart("answer", _answer),
    )

What help lists, what completion offers, what `--show` takes and what is drawn follow from it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from attncli.draw.safe import cells

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
    from rich.segment import Segment

Piece = tuple[str, str]
"""Safe text and its style ("" for none)."""

Line = tuple[Piece, ...]


class Lines(Struct, frozen=True):
    """A block of styled lines; a value that can be stacked, set beside others, compared and
    printed.
    """

    rows: tuple[Line, ...] = ()

    @property
    def width(self) -> int:
        """Cells of the widest line; 0 without lines."""
        return max((line_width(row) for row in self.rows), default=0)

    @property
    def plain(self) -> str:
        """The text alone, without styles and without blanks at line ends."""
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self.rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """What Rich prints for the block: each line's pieces in their styles, and a line's end. A
        line without styles is one piece, as a table of a million numbers has as many pieces."""
        from rich.segment import Segment

        for row in self.rows:
            is_styled = any(style for _, style in row)
            if is_styled:
                for text, style in row:
                    yield Segment(text, console.get_style(style) if style else None)
            else:
                yield Segment("".join(text for text, _ in row).rstrip(" "))
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Tells Rich that the block needs exactly its width."""
        from rich.measure import Measurement

        return Measurement(self.width, self.width)


def line_width(row: Line) -> int:
    """Cells of one line."""
    return sum(cells(text) for text, _ in row)


def line(*pieces: Piece | str) -> Lines:
    """One line; a bare string is unstyled."""
    return Lines((tuple((piece, "") if isinstance(piece, str) else piece for piece in pieces),))


GivenOptions: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Options of a command line by their names, each with its words there: the option, its value."""


class View(Struct, frozen=True):
    """How to show a document: language, width, colours, digits, and which parts.

    width: terminal cells, at least 20.
    height: terminal lines, None if unknown or endless.
    color: whether styles may be used; without it, shades are drawn with characters.
    ascii: only ASCII leaves the program.
    precision: digits after the point.
    scale_colors: "linear", "log" or "row" (see `shaded_matrix.normalise`).
    top: how many links or rows of a ranking.
    show: the parts of a screen, None for its defaults.
    full: nothing is windowed or shortened.
    lang: language of explanations, "en" or "zh".
    light: whether the terminal is dark on light.
    colors: how many colours it has, "truecolor", "256" or "16".
    claims: whether sentences mark the texts that lead to what they name (see `token_names.claim`).
    code: the library that steps are also written in, "numpy" or "torch"; "" for none.
    brief: the answer alone, with what the model wrote where it is about that.
    alone: of a brief view, whether even that is left out, as on a page that has it elsewhere.
    run_options: the options of the command that ran a document's text, for commands that go on
        from it; None where they are not known, as of a saved document.
    few: nobody asked for so many, so a ranking below a grid may show fewer than `top`.
    """

    width: int = 80
    color: bool = False
    ascii: bool = False
    precision: int = 2
    scale_colors: str = "linear"
    top: int = 10
    show: frozenset[str] | None = None
    full: bool = False
    lang: str = "en"
    height: int | None = None
    light: bool = False
    colors: str = "truecolor"
    claims: bool = False
    brief: bool = False
    alone: bool = False
    few: bool = False
    code: str = ""
    run_options: GivenOptions | None = None


# The names that the texts on attention have for what screens show: `--show` takes these too.

TAUGHT = {
    "E": ("embedding",),
    "P": ("positions",),
    "X": ("input", "matrices"),
    "Q": ("q", "projections"),
    "K": ("k", "projections"),
    "V": ("v", "projections"),
    "S": ("raw", "similarity"),
    "A": ("weights", "softmax"),
    "O": ("output",),
    "X+O": ("sum", "residual"),
    "concat": ("concat", "residual"),
}
"""By each name, the parts that it means, of which a screen has one."""


def part_of_name(name: str, parts: tuple[str, ...]) -> str:
    """The part of a screen that a name given to `--show` means: itself, or, for a symbol such as "Q",
    the part in `TAUGHT` that the screen has. The name unchanged where it means none."""
    if name in parts:
        return name
    for part in TAUGHT.get(name, ()):
        if part in parts:
            return part
    return name


Shown = TypeVar("Shown", contravariant=True)


def always(document: Any, view: View) -> bool:
    """Whether the part is shown where `--show` names none: always."""
    return True


def never(document: Any, view: View) -> bool:
    """Whether the part is shown where `--show` names none: never."""
    return False


class ScreenPart(Struct, Generic[Shown], frozen=True):
    """A part of a screen, by name, and the function that draws it, which may draw nothing.

    shown: whether it is there when `--show` names no parts.
    in_brief: whether a brief view has it beside the answer.
    """

    name: str
    draw: Callable[[Shown, View], Lines]
    shown: Callable[[Shown, View], bool] = always
    in_brief: bool = False


Parts: TypeAlias = tuple[ScreenPart[Shown], ...]


def parts_shown(
    parts: Iterable[ScreenPart[Shown]], document: Shown, view: View
) -> list[ScreenPart[Shown]]:
    """The parts of a screen to show, in order. A brief view shows the answer, and what belongs to
    it unless that is left out; any other view the parts named, else those shown by default."""
    if view.brief:
        return [
            part for part in parts if part.name == "answer" or (part.in_brief and not view.alone)
        ]
    if view.show is not None:
        return [part for part in parts if part.name in view.show]
    return [part for part in parts if part.shown(document, view)]


def _source_of(module: str) -> str:
    """The source text of a module, read without importing it; "" where there is none."""
    spec = find_spec(module)
    if spec is None or spec.loader is None:
        return ""
    return spec.loader.get_source(spec.name) or ""  # type: ignore[attr-defined]


@cache
def part_names(name: str, folder: str) -> tuple[str, ...]:
    """The names of a screen's parts, in order; none for a screen that has no parts.

    name: of its document.
    folder: the package that holds its `screen.py`.

    They are read off the source of the table: importing it brings NumPy, which doubles the time of
    a page of help.
    """
    for node in ast.parse(_source_of(f"{folder}.screen")).body:
        match node:
            case ast.AnnAssign(target=ast.Name(table), value=ast.Tuple(elements)) if (
                table == f"{name.upper()}_PARTS"
            ):
                return tuple(_part_name(element) for element in elements)
            case _:
                pass
    return ()


def _part_name(element: ast.expr) -> str:
    """The name of a part, read off the source of its entry in the table. Raises TypeError for
    another entry.
    """
    match element:
        case ast.Call(ast.Name("ScreenPart"), [ast.Constant(str(name)), *_]):
            return name
        case _:
            raise TypeError(
                f"a table of parts holds {ast.unparse(element)}, not ScreenPart(NAME, …)"
            )
