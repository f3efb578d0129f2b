"""`attn view`: a saved document or tensor file shown again, in every view, without running
anything.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from msgspec.structs import replace

from attncli.cli import declarations
from attncli.cli.declarations import OutputOptions
from attncli.cli.environment import Environment
from attncli.cli.grouped_command import command_app
from attncli.cli.option import answer_option, argument, delivery_option, without
from attncli.cli.output import (
    PAGE_BUDGET,
    PageOptions,
    browse_page,
    temporary_page,
    validate_options,
    validate_page,
    write_page,
    write_with_figure,
)
from attncli.errors import InputError
from attncli.features.explain.command import DIGITS
from attncli.language import message

if TYPE_CHECKING:
    from attncli.documents import Document
    from attncli.draw.view import View
    from attncli.features.heads.document import HeadsDocument
    from attncli.measure.run_record import RunRecord

LARGEST = 1 << 30
"""Bytes of the largest document that is read; as many names and values it may have, so that these
are never what refuses it."""
DOCUMENT = message("a document that attn wrote with --json")
TENSOR_FILES = (".safetensors", ".npz")


def view(
    ctx: typer.Context,
    output: Annotated[OutputOptions, without("precision", "max_output")],
    page: PageOptions,
    file: Annotated[
        Path,
        argument(
            "A document (.json; - for standard input), or what --save wrote (.safetensors, .npz).",
            "FILE",
        ),
    ],
    show_as: Annotated[
        str | None,
        answer_option("--as", help="'heads' compares the heads of a saved run.", values=("heads",)),
    ] = None,
    precision: Annotated[int | None, declarations.PRECISION] = None,
    browse: Annotated[
        bool,
        delivery_option(
            "--open", help="Open the page in the browser; without --html, one for now."
        ),
    ] = False,
) -> None:
    """Show a saved document or tensor file again, in every view; nothing is computed anew.

    attn run "humpty dumpty sat on" --json -o run.json && attn view run.json --show weights

    attn view run.json --as heads
    """
    environment: Environment = ctx.obj
    # first, since options are checked against what a document of this kind takes
    if _comes_through_pipe(file):
        document = _piped_document(environment, file)
    else:
        document = open_document(file, output.top)
    if show_as == "heads":
        document = _as_heads(document, file)
    from attncli.documents import name_of

    digits = 2
    if document.schema == "attn.explain/1":
        digits = DIGITS  # more, so that the steps can be followed
    if precision is not None:
        digits = precision
    output = replace(output, precision=digits)
    view = validate_options(
        output, environment, name_of(document.schema), files={"--html": page.html}
    )
    validate_page(page)
    if page.html is not None or browse:
        _show_page(environment, document, file, page, view, browse=browse)
    write_with_figure([document], output, environment, view)


def _show_page(
    environment: Environment,
    document: Document,
    file: Path,
    page: PageOptions,
    view: View,
    *,
    browse: bool,
) -> None:
    """Write the document's page to the file of `--html` or, where none is named, to a temporary
    one.

    browse: whether it is opened in the browser.
    """
    from attncli.draw.page import any_page, page_bytes, page_of

    if file.suffix.lower() in TENSOR_FILES:
        # q and k of the file tell more of the heads than the document made of it
        record = record_of(document, file)
        content = page_of(
            document, record=record, lang=view.lang, budget=page.budget, option=PAGE_BUDGET
        )
        assert content is not None  # it has the heads of its record
        pieces = page_bytes(content)
    else:
        pieces = any_page(
            document,
            lang=view.lang,
            budget=page.budget,
            option=PAGE_BUDGET,
            precision=view.precision,
        )
    if page.html is not None:
        target = page
    else:
        target = replace(page, html=temporary_page())
    write_page(target, pieces)
    if browse:
        browse_page(environment, target)


def record_of(document: Document, file: Path) -> RunRecord:
    """The record of a run from which pages and the explorer draw, made of the heads that a document
    holds or, for a file of tensors, of these. Raises InputError for a document without heads.

    file: where the document was read.
    """
    from attncli.features.run.document import RunDocument
    from attncli.features.run.page import tensors_record
    from attncli.measure.document_heads import document_record

    if file.suffix.lower() in TENSOR_FILES and isinstance(document, RunDocument):
        from attncli.inputs.tensors import read_tensors

        return tensors_record(read_tensors(file, allow_nonfinite=True), document)
    record = document_record(document)
    if record is None:
        raise _no_heads_error(document, file)
    return record


def _no_heads_error(document: Document, file: Path) -> InputError:
    """The InputError, returned and not raised, for a document that holds no heads, with what to do
    instead."""
    # a comparison has a page for its two sides, but the explorer shows one run
    is_comparison = document.schema == "attn.compare/1"
    hints = {
        "attn.compare/1": "attn view FILE --html FILE",
        "attn.scan/1": "attn scan show FOLDER --html FILE",
    }
    expected = message("one of run, heads, find, compare, cross, tensors, ablate, logits or patch")
    if is_comparison:
        expected = message("one of run, heads, find, cross, tensors, ablate, logits or patch")
    return InputError(
        "a document {schema} holds no heads to look at",
        where=str(file),
        expected=expected,
        hint=hints.get(document.schema, ""),
        schema=document.schema,
    )


def open_document(file: Path, top: int = 10) -> Document:
    """The document in a file, checked against its declaration. Raises InputError for a file that
    holds no document of attn's.

    top: how many links are listed of a file of tensors, from which the document is made.
    """
    if file.suffix.lower() in TENSOR_FILES:
        from attncli.features.view.compute import run_of_tensors
        from attncli.inputs.files import refuse_half_characters
        from attncli.inputs.tensors import tensor_file

        tensors = tensor_file(file)
        refuse_half_characters(tensors.metadata, str(file))
        return run_of_tensors(
            tensors.tensors(allow_nonfinite=True), tensors.metadata, str(file), top
        )
    from attncli.inputs.files import read_object

    return _with_messages(read_object(file, what=DOCUMENT, limit=LARGEST, most=LARGEST), str(file))


def _with_messages(fields: dict[str, Any], where: str) -> Document:
    """The document of parsed JSON, with its warnings made translatable again. Raises InputError for
    fields that are no document.

    where: the file's name, for errors.
    """
    from attncli.documents.reading import document_of

    document = document_of(fields, where)
    if not fields.get("warnings"):  # then the next import is spared
        return document
    from attncli.features.view.compute import translatable_warnings

    return translatable_warnings(document)


def _comes_through_pipe(file: Path) -> bool:
    """Whether a document comes through standard input, called `-`, or through the pipe that a shell
    makes for `<(command)`, such as /dev/fd/63.
    """
    from attncli.inputs.files import DESCRIPTORS

    return str(file) == "-" or (DESCRIPTORS.fullmatch(str(file)) is not None and file.is_fifo())


def _piped_document(environment: Environment, file: Path) -> Document:
    """The document that comes through a pipe, which is JSON. Raises as `open_document`."""
    from attncli.inputs.files import open_stream, parse_object, read_pipe

    where: str = str(file)
    source: AbstractContextManager[BinaryIO]
    if where == "-":
        where = message("standard input")
        source = nullcontext(environment.stdin)
    else:
        source = open_stream(file, what=DOCUMENT)
    with source as stream:
        raw = read_pipe(stream, where, limit=LARGEST)
    return _with_messages(parse_object(raw, where, DOCUMENT, most=LARGEST), where)


def _as_heads(document: Document, file: Path) -> HeadsDocument:
    """The `attn.heads/1` document of a saved run. Raises InputError for a document of another kind."""
    from attncli.features.heads.document import HeadsDocument
    from attncli.features.run.document import RunDocument
    from attncli.features.view.compute import heads_of_run

    match document:
        case HeadsDocument():
            return document
        case RunDocument():
            return heads_of_run(document)
        case _:
            what = message("a document {schema} holds no heads to compare", schema=document.schema)
            raise InputError(what, where=str(file), expected="attn.run/1")


view_app = command_app(
    view, essentials="--as --open --show --top --html --figure --json --plain --brief --full"
)
