"""`--html`: the answer as one offline page, beside what is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attncli.cli import delivery as answer
from attncli.cli.options import OUTPUT, OutputOptions, option
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.analysis.documents.declaration import Document
    from attncli.cli.output import Environment
    from attncli.render.page.contents import Effects, Page

SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class PageOptions:
    """Whether a page is written, and how large it may be."""

    html: Annotated[
        Path | None,
        option("--html", help="Also write one offline page to look at in a browser.", panel=OUTPUT, metavar="FILE"),
    ] = None
    html_budget: Annotated[
        str,
        option("--html-budget", help="Data in the page; heads beyond it come small.", panel=OUTPUT, metavar="SIZE"),
    ] = "16MB"

    @property
    def budget(self) -> int:
        """Bytes of data in the page, at most."""
        return answer.size(self.html_budget, "--html-budget")


def check(
    asked: PageOptions, output: OutputOptions, *, lines: bool = False, others: Sequence[Path | None] = ()
) -> None:
    """Check the options before any work; raises UsageError. lines: whether every line is a text of its own. others:
    files that the command writes besides."""
    if asked.html is None:
        if asked.html_budget != PageOptions.html_budget:
            raise UsageError("--html-budget is about a page, and none is asked for", expected="--html FILE as well")
        return
    if asked.html.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--html is {str(asked.html)!r}", expected="a file ending in .html")
    if lines:
        raise UsageError("--html is one page of one text, and --lines gives several", expected="one or the other")
    if any(
        path is not None and path.absolute() == asked.html.absolute() for path in (output.file, output.svg, *others)
    ):
        raise UsageError(
            "--html and another option name the same file", where=str(asked.html), expected="a file for each"
        )
    _ = asked.budget


def write(asked: PageOptions, page: Page) -> None:
    """Write the page to the file that `--html` names."""
    from attncli.inputs.atomic import atomic_writer
    from attncli.render.page.writer import page_bytes

    assert asked.html is not None
    with atomic_writer(asked.html) as file:
        for piece in page_bytes(page):
            file.write(piece)


def effects_of(document: Document) -> list[Effects]:
    """What an `attn.ablate/1` document says of each measure; nothing for another document."""
    from attncli.render.page.contents import Effects

    if document.get("schema") != "attn.ablate/1":
        return []
    at = document["at"]
    place = "mean" if isinstance(at, str) else f"#{at['token']}" if "token" in at else "#" + str(at.get("tokens", ""))
    found = []
    for measure in document["measures"]:
        part = "cosine" if measure == "vector" else None
        heads = []
        for one in document["effects"]:
            if one.get("attention", "self") == "self":
                random = _value(one.get("random"), part, measure)
                heads.append((one["layer"], one["head"], _value(one.get(measure), part), random, one.get("weight")))
        found.append(Effects(part or measure, str(document["by"]), place, heads))
    return found


def _value(found: Any, *names: str | None) -> float | None:
    """A number, or the one inside an object that goes by one of the names; None where there is none."""
    if isinstance(found, Mapping):
        inside = (found.get(name) for name in names if name is not None and found.get(name) is not None)
        return _value(next(inside, None), *names)
    return float(found) if isinstance(found, int | float) else None


def passing() -> Path:
    """A file for a page that is only to be looked at now, in a folder of its own."""
    from tempfile import mkdtemp

    return Path(mkdtemp(prefix="attn-")) / "page.html"


def browse(environment: Environment, asked: PageOptions) -> None:
    """Open the page in the browser; says where it is where none can be opened."""
    import webbrowser

    assert asked.html is not None
    if not webbrowser.open(asked.html.absolute().as_uri()):
        environment.note(f"no browser could be opened; the page is {asked.html.absolute()}")
