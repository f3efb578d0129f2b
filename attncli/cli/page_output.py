"""`--html`: the answer as one offline page, beside what is printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from attncli.arrays.backend import Selection
from attncli.cli import declarations, delivery, request
from attncli.cli.options import OUTPUT, option
from attncli.errors import UsageError

if TYPE_CHECKING:
    from attncli.cli.environment import Environment
    from attncli.draw.page.contents import Page
    from attncli.inputs.text import Text
    from attncli.measure.run_record import Recording, RunRecord
    from attncli.models.model import Model

SUFFIXES = (".html", ".htm")
BUDGET = "--html-budget"
"""The option that lets a page hold more, as the page names it."""


@dataclass(frozen=True)
class PageOptions:
    """Whether a page is written, and how large it may be."""

    html: Annotated[Path | None, declarations.HTML] = None
    html_budget: Annotated[
        str, option("--html-budget", help="Data in the page; heads beyond it come small.", panel=OUTPUT, metavar="SIZE")
    ] = "16MB"

    @property
    def budget(self) -> int:
        """Bytes of data in the page, at most."""
        return delivery.parse_size(self.html_budget, "--html-budget")


def check(page: PageOptions, *, lines: bool = False) -> None:
    """Check the options before any work; raises UsageError. Where the page goes is checked with the other files, by
    `delivery.check`. lines: whether every line is a text of its own."""
    if page.html is None:
        if page.html_budget != PageOptions.html_budget:
            raise UsageError("--html-budget is about a page, and none is asked for", expected="--html FILE as well")
        return
    if page.html.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--html is {str(page.html)!r}", expected="a file ending in .html")
    if lines:
        raise UsageError("--html is one page of one text, and --lines gives several", expected="one or the other")
    _ = page.budget


def recording(
    page: PageOptions, model: Model, text: Text, heads: Selection, *, words: bool = False
) -> Recording | None:
    """What takes the heads of a run for the page, so that nothing runs twice; None where no page is asked for, or where
    the page needs a run of its own."""
    if page.html is None:
        return None
    from attncli.measure.run_record import Recording, recordable

    return Recording(model, request.tokens_of(model, text), heads) if recordable(model, words=words) else None


def record(
    model: Model,
    text: Text,
    layers: Selection,
    heads: Selection,
    *,
    words: bool = False,
    recording_of_run: Recording | None,
) -> RunRecord:
    """What a page tells of a run: as it was taken, or of a run of its own."""
    from attncli.measure.run_record import recorded_run, run_record

    if recording_of_run is not None:
        return recorded_run(model, text.text, recording_of_run)
    return run_record(model, text.text, request.tokens_of(model, text), layers=layers, heads=heads, words=words)


def write(page_options: PageOptions, page: Page) -> None:
    """Write the page to the file that `--html` names."""
    from attncli.draw.page.writer import page_bytes
    from attncli.inputs.atomic import atomic_writer

    assert page_options.html is not None
    with atomic_writer(page_options.html) as file:
        for piece in page_bytes(page):
            file.write(piece)


def passing() -> Path:
    """A file for a page that is only to be looked at now, in a folder of its own."""
    from tempfile import mkdtemp

    return Path(mkdtemp(prefix="attn-")) / "page.html"


def browse(environment: Environment, page: PageOptions) -> None:
    """Open the page in the browser; says where it is where none can be opened."""
    import webbrowser

    assert page.html is not None
    if not webbrowser.open(page.html.absolute().as_uri()):
        environment.note(f"no browser could be opened; the page is {page.html.absolute()}")
