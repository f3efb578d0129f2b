"""The one loop of the commands that answer about texts: read, cut into tokens, compute, draw, write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from attncli.arrays.backend import EVERY, Selection
from attncli.cli import request
from attncli.cli.declarations import OutputOptions, RunSetup, TextOptions
from attncli.cli.environment import Environment
from attncli.cli.output import (
    PageOptions,
    page_reasons,
    page_record,
    page_recording,
    write_document_page,
    write_documents,
    write_figure,
    write_run_page,
)
from attncli.cli.progress import foretell_text, progress
from attncli.language import message

if TYPE_CHECKING:
    from attncli.documents import Document
    from attncli.draw.page import Bands
    from attncli.draw.view import View
    from attncli.inputs.token import Text, Token
    from attncli.measure.run_record import Recording, RunRecord
    from attncli.models.model import Model

DocumentType = TypeVar("DocumentType", bound="Document")


class Command(Struct, frozen=True):
    """A command at work: the model that it loaded, and how its answer is asked for."""

    environment: Environment
    model: Model
    text: TextOptions
    setup: RunSetup
    output: OutputOptions
    page: PageOptions
    view: View
    why: Sequence[str] | None = None
    """The heads that the page explains, such as L5H11."""

    @property
    def wants_one_text(self) -> bool:
        """Whether the answer is one document: JSON, a figure or a page."""
        return self.output.json or self.output.svg is not None or self.page.html is not None


class TextRun(Struct, frozen=True):
    """One text of a command on its way to a document, as the function that computes it gets it."""

    source: Text
    tokens: list[Token]
    progress: Callable[[float], None]
    """Takes the share of the work that is done, 0 to 1."""
    recording: Recording | None = None
    """What keeps the heads of the run for the page; None where the page runs the text itself."""

    @property
    def text(self) -> str:
        """The characters of the text."""
        return self.source.text


class AnswerPage(Protocol):
    """The page that a command writes beside its answer."""

    def recording(self, command: Command, text: Text) -> Recording | None:
        """The recorder that keeps the heads of the command's own run for the page; None where no
        page needs them.
        """
        ...

    def write(self, command: Command, run: TextRun, document: Any) -> None:
        """Write the page to the file that `--html` names."""
        ...


class DocumentPage(Struct, frozen=True):
    """The page of what a document says of a text, with every head of its run to look at."""

    alone: bool = False
    """Whether the page tells of nothing but what the document holds."""

    def recording(self, command: Command, text: Text) -> Recording | None:
        """None: the page runs the text itself, so that nothing of the command's run is kept."""
        return None

    def write(self, command: Command, run: TextRun, document: Document) -> None:
        """Write the page to the file that `--html` names."""
        reasons = page_reasons(
            command.environment, command.model, run.source, command.why, command.setup.compute
        )
        write_document_page(
            command.model,
            run.source,
            document,
            command.page,
            command.view.lang,
            alone=self.alone,
            reasons=reasons,
        )


class RunPage(Struct, frozen=True, kw_only=True):
    """The page of the heads of a run, which the command's own run records where it can."""

    layers: Selection = EVERY
    heads: Selection = EVERY
    words: bool = False
    """Whether tokens are merged into words."""
    opens_at: Callable[[TextRun, RunRecord], Mapping[str, str]] | None = None
    """What the page shows first, as of `Page.start`."""
    bands: Callable[[TextRun], Bands] | None = None
    """Runs of tokens with a name; None for the regions of the document."""

    def recording(self, command: Command, text: Text) -> Recording | None:
        """The recorder that keeps the heads of the command's own run; None where the page runs the
        text anew.
        """
        return page_recording(command.page, command.model, text, self.heads, words=self.words)

    def write(self, command: Command, run: TextRun, document: Document) -> None:
        """Write the page to the file that `--html` names."""
        record = page_record(
            command.model,
            run.source,
            self.layers,
            self.heads,
            words=self.words,
            recording_of_run=run.recording,
        )
        start = None
        if self.opens_at is not None:
            start = self.opens_at(run, record)
        bands = None
        if self.bands is not None:
            bands = self.bands(run)
        reasons = page_reasons(
            command.environment, command.model, run.source, command.why, command.setup.compute
        )
        write_run_page(
            command.page,
            document,
            record,
            command.view.lang,
            start=start,
            reasons=reasons,
            bands=bands,
        )


def documents_of_texts(
    command: Command,
    compute: Callable[[TextRun], DocumentType],
    *,
    page: AnswerPage,
    label: str | None = None,
    texts: Iterable[Text] | None = None,
    single: bool | None = None,
    after_figure: Callable[[TextRun, DocumentType], DocumentType] | None = None,
) -> Iterator[DocumentType]:
    """Yield the document that `compute` makes of each text, its figure and page written before.

    An error that names no place gets the line or the file of its text.

    Args:
        command: the model and the options.
        compute: makes the document of one text.
        page: the page that `--html` asks for.
        label: stands before the progress bar, and `compute` reports progress itself; None where it
            runs the model once, and the bar follows the run's layers.
        texts: the texts; None for those that the options name.
        single: whether several texts are refused; None to refuse them where the answer is one
            document.
        after_figure: called after the figure is drawn, returns the document that the answer and the
            page show, such as a shorter one; None for the same document.

    Raises:
        AttnError: as `compute` does, and for texts that cannot be read.
    """
    environment = command.environment
    if single is None:
        single = command.wants_one_text
    if texts is None:
        texts = request.texts(environment, command.text, single=single)
    for text in texts:
        with request.errors_located_in(text):
            recording = page.recording(command, text)
            foretell_text(environment, len(text.text))
            tokens = request.tokens_of(command.model, text)
            what = label or message("{tokens:,} tokens", tokens=len(tokens))
            with progress(environment, what, layers=label is None) as on_progress:
                run = TextRun(text, tokens, on_progress, recording)
                document = compute(run)
            if command.output.svg is not None:
                write_figure([document], command.output, environment, command.view)
            if after_figure is not None:
                document = after_figure(run, document)
            if command.page.html is not None:
                page.write(command, run, document)
        yield document


def answer_texts(
    command: Command,
    compute: Callable[[TextRun], DocumentType],
    *,
    page: AnswerPage,
    label: str | None = None,
    texts: Iterable[Text] | None = None,
    single: bool | None = None,
    after_figure: Callable[[TextRun, DocumentType], DocumentType] | None = None,
) -> None:
    """Compute and write the answer about each text in the form that the options ask for: JSON, a
    table or a screen, a figure and a page.

    command: the model and the options.
    compute: makes the document of one text.
    page: the page that `--html` asks for.
    label: stands before the progress bar, and `compute` reports progress itself; None where it runs
        the model once, and the bar follows the run's layers.
    texts: the texts; None for those that the options name.
    single: whether several texts are refused; None to refuse them where the answer is one document.
    after_figure: called after the figure is drawn, returns the document that the answer and the
        page show; None for the same document.

    An error that names no place gets the line or the file of its text.
    """
    documents = documents_of_texts(
        command,
        compute,
        page=page,
        label=label,
        texts=texts,
        single=single,
        after_figure=after_figure,
    )
    write_documents(
        documents,
        command.output,
        command.environment,
        command.view,
        several=command.text.lines,
    )
