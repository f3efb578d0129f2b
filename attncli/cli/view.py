"""`attn view`: a saved document or tensor file shown again, in every view, without running anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from attncli.cli import delivery as answer
from attncli.cli import page_output
from attncli.cli import svg_output as picture
from attncli.cli.explain_options import DIGITS, LangOption, language
from attncli.cli.options import OUTPUT, OutputOptions, command_app, option, without
from attncli.cli.output import Environment
from attncli.cli.page_output import PageOptions
from attncli.errors import InputError, UsageError

Document = Mapping[str, Any]

LARGEST = 1 << 30
"""Bytes of the largest document that is read."""
TENSOR_FILES = (".safetensors", ".npz")


class Screen(NamedTuple):
    """How a document is shown: the module of its screen, and the names of the screen and its table there."""

    module: str
    screen: str
    rows: str


SCREENS = {
    f"attn.{name}/1": Screen(module, f"{name}_screen", f"{name}_rows")
    for name, module in (
        ("run", "run"), ("heads", "heads"), ("find", "find"), ("tokens", "tokens"), ("tensors", "tensors"), ("weights", "weights"),
        ("models", "models"), ("model", "models"), ("explain", "explain"), ("mask", "mask"), ("cross", "cross"), ("compare", "compare"),
        ("cost", "cost"), ("verify", "verify"), ("generate", "generate"),
    )
}  # fmt: skip
"""The screen of every document."""


def view(
    ctx: typer.Context,
    output: Annotated[OutputOptions, without("precision")],
    page: PageOptions,
    file: Annotated[
        Path,
        typer.Argument(
            help="A document (.json), or what --save wrote (.safetensors, .npz).",
            show_default=False,
            metavar="FILE",
            readable=False,
        ),
    ],
    show_as: Annotated[
        str | None, option("--as", help="'heads' compares the heads of a saved run.", panel=OUTPUT, metavar="heads")
    ] = None,
    precision: Annotated[
        int | None,
        option("--precision", help="Digits after the point. [default: 2; explain: 4]", panel=OUTPUT, metavar="N"),
    ] = None,
    lang: LangOption = "en",
    browse: Annotated[
        bool, option("--open", help="Open the page in the browser; without --html, one for now.", panel=OUTPUT)
    ] = False,
) -> None:
    """Show a saved document or tensor file again, in every view; nothing is computed anew.

    attn run "humpty dumpty sat on" --json -o run.json && attn view run.json --show weights

    attn view run.json --as heads
    """
    environment: Environment = ctx.obj
    if show_as not in (None, "heads"):
        raise UsageError(f"--as is {show_as!r}", expected="heads")
    document = opened(file, output.top)
    if show_as == "heads":
        document = _as_heads(document, file)
    screen = SCREENS[document["schema"]]
    module = import_module(f"attncli.render.screens.{screen.module}")
    parts: Sequence[str] = getattr(module, "PARTS", ())
    digits = precision if precision is not None else DIGITS if document["schema"] == "attn.explain/1" else 2
    output = replace(output, precision=digits)
    answer.check(output, environment, parts=parts)
    how = answer.view(output, environment, parts=parts, lang=language(lang, output))
    page_output.check(page, output)
    if page.html is not None or browse:
        _show_page(environment, document, file, page, how.lang, browse=browse)
    give = answer.give if document["schema"] in ("attn.run/1", "attn.heads/1") else picture.give
    if output.svg is not None and give is answer.give:
        answer.draw(document, output)
    give(
        [document],
        fitting(getattr(module, screen.screen), file),
        getattr(module, screen.rows),
        output,
        environment,
        how,
    )


def _show_page(
    environment: Environment, document: Document, file: Path, page: PageOptions, lang: str, *, browse: bool
) -> None:
    """Write the document's page, and open it. Raises InputError for a document that is not about heads."""
    from attncli.analysis.records.saved import document_record, tensors_record
    from attncli.render.page.contents import Page

    if file.suffix.lower() in TENSOR_FILES and document["schema"] == "attn.run/1":
        from attncli.inputs.tensors import read_tensors

        record = fitting(tensors_record, file)(read_tensors(file, allow_nonfinite=True), document)
    else:
        record = fitting(document_record, file)(document)
    if record is None:
        raise InputError(
            f"a document {document['schema']} holds no heads to look at",
            where=str(file),
            expected="run, heads or cross",
        )
    effects = page_output.effects_of(document)
    start = {"view": "effects"} if effects else {}
    made = Page(
        str(document.get("text", file.name)), [record], effects=effects, start=start, lang=lang, budget=page.budget
    )
    target = page if page.html is not None else replace(page, html=page_output.passing())
    fitting(page_output.write, file)(target, made)
    if browse:
        page_output.browse(environment, target)


def opened(file: Path, top: int = 10) -> dict[str, Any]:
    """The document in a file, checked against its schema. top: links to list of a tensor file.

    Raises InputError for what is no document of ours.
    """
    if file.suffix.lower() in TENSOR_FILES:
        from attncli.analysis.saved_run import run_of_tensors
        from attncli.inputs.tensors import read_metadata, read_tensors

        made = run_of_tensors(read_tensors(file, allow_nonfinite=True), read_metadata(file), str(file), top)
        _check({**made, "layers": []}, str(file))
        return made
    from attncli.inputs.strict_json import read_object

    found = read_object(file, what="a document that attn wrote with --json", limit=LARGEST, most=LARGEST)
    _check(found, str(file))
    try:
        numbered: dict[str, Any] = {name: _arrays(value) for name, value in found.items()}
    except OverflowError as error:  # JSON's whole numbers may have any length
        raise InputError(
            "this document holds a number that is too large", where=str(file), expected="a document as attn wrote it"
        ) from error
    return numbered


def _check(document: Document, where: str) -> None:
    from attncli.render.schema import SCHEMAS
    from attncli.render.validate import validate

    name = document.get("schema")
    if not isinstance(name, str) or name not in SCREENS or name not in SCHEMAS:
        told = f"its schema is {str(name)[:40]!r}" if name is not None else "it names no schema"
        raise InputError(f"this is no document that attn can show: {told}", where=where, expected=", ".join(SCREENS))
    validate(document, SCHEMAS[name], where)


def _arrays(value: Any) -> Any:
    """Matrices of numbers as arrays, null as NaN; everything else as it is."""
    if isinstance(value, dict):
        return {name: _arrays(item) for name, item in value.items()}
    if not isinstance(value, list) or not value:
        return value
    if all(
        isinstance(row, list) and row and all(item is None or type(item) in (int, float) for item in row)
        for row in value
    ):
        import numpy as np

        if len({len(row) for row in value}) == 1:
            return np.array(value, np.float64)
        return value
    return [_arrays(item) for item in value]


def _as_heads(document: dict[str, Any], file: Path) -> dict[str, Any]:
    from attncli.analysis.saved_run import heads_of_run

    if document["schema"] == "attn.heads/1":
        return document
    if document["schema"] != "attn.run/1":
        raise InputError(
            f"a document {document['schema']} holds no heads to compare", where=str(file), expected="attn.run/1"
        )
    return fitting(heads_of_run, file)(document)


def fitting(made: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """A function of a document, whose failing tells that the document, valid member by member, contradicts itself."""

    def told(*arguments: Any) -> Any:
        try:
            return made(*arguments)
        except (IndexError, KeyError, ValueError, TypeError, AttributeError, StopIteration) as error:
            raise InputError(
                "this document contradicts itself: its members do not fit each other",
                where=str(file),
                expected="a document as attn wrote it",
            ) from error

    return told


app = command_app(view)
