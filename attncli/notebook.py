"""Results in a notebook: the page in a frame that reaches nothing outside, and text where scripts
are off.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from attncli.arrays.backend import Array, Backend, backend_of
from attncli.documents import Document
from attncli.draw.lines import Lines
from attncli.draw.page import Page, any_page, page_bytes, page_of
from attncli.draw.safe import safe
from attncli.draw.view import View
from attncli.errors import InputError, UsageError
from attncli.inputs.files import atomic_writer
from attncli.inputs.token import Token
from attncli.measure.head_record import HeadRecord, LayerRecords, Sides, numbered_tokens
from attncli.measure.run_record import RunRecord, feed_whole
from attncli.mechanism.trace import AttentionTrace, LayerTrace
from attncli.models.model import TextTrace

MOST = 20_000_000
"""Weights of a result that is still shown as a page."""
BUDGET = 8_000_000
FRAME = (
    '<iframe sandbox="allow-scripts" width="100%" height="{height}" style="border:0"'
    ' srcdoc="{page}"></iframe>'
)
LOWEST, HIGHEST, ABOVE_ROWS, ROW = 420, 860, 320, 18
"""Heights of a frame in pixels: at least and at most, of what stands above a matrix, and of each of
its rows.
"""
SCREEN = '<div style="overflow-x:auto">{0}</div>'
SCREEN_WIDTH = 100
FIGURES, PAGES = (".svg", ".png", ".pdf"), (".html", ".htm")


def rows(document: Document) -> list[dict[str, Any]]:
    """A document as the rows of its table, each a dictionary by column.

    Args:
        document: Any document.

    Returns:
        A dictionary for each row, by the column's name; none for a document without a table.
    """
    from attncli.draw.screen_header import screen_of

    lines = iter(screen_of(document.schema).rows(document))
    names = next(lines, ())
    # a number of NumPy becomes one of Python
    return [
        {
            str(name): value.item() if isinstance(value, np.generic) else value
            for name, value in zip(names, line, strict=True)
        }
        for line in lines
    ]


def labelled(document: Document) -> Any:
    """The weights that a document holds, as a labelled array of xarray; of one that measures heads
    their metrics, too.

    Args:
        document: Any document.

    Returns:
        As `Document.to_xarray` says.

    Raises:
        InputError: Where it holds no weights, cells that several tokens share, or not the same heads
            of every layer.
        UnsupportedError: Where xarray is not installed.
    """
    from attncli.arrays.frames import labelled_metrics

    about: Any = document  # of any kind: those with heads have a model
    metrics = _metrics_of(document)
    if not metrics:
        return _labelled_weights(document)
    weights = None
    with suppress(InputError):  # metrics stand alone where the document holds no weights
        weights = _labelled_weights(document)
    return labelled_metrics(metrics, about.model.name or "", weights)


def _metrics_of(document: Document) -> dict[str, dict[tuple[int, int], float | None]]:
    """By the name of each metric that a document tells of heads, the number of each (layer, head);
    none of a document that tells no plain numbers of heads."""
    metrics: dict[str, dict[tuple[int, int], float | None]] = {}
    for head in getattr(document, "heads", UNSET) or ():
        for name, metric in (getattr(head, "metrics", UNSET) or {}).items():
            if not hasattr(metric, "value"):  # means over a corpus, not one number
                return {}
            metrics.setdefault(name, {})[head.layer, head.head] = metric.value
    return metrics


def _labelled_weights(document: Document) -> Any:
    """The weights that a document holds, as `labelled` says. Raises InputError where it holds none
    or not the same heads of every layer."""
    from attncli.arrays.frames import labelled_weights
    from attncli.measure.document_heads import heads_of

    about: Any = document
    heads = heads_of(document)  # None for a document that tells of no heads
    layers_and_parts = []
    if heads is not None:
        layers_and_parts = list(heads.parts)
    # by (layer, head), weights with a cell for each pair of tokens
    whole = {}
    for layer, part in layers_and_parts:
        is_pooled = (getattr(part, "pool", UNSET) or 1) > 1
        if getattr(part, "weights", UNSET) is not UNSET and not is_pooled:
            whole[layer, part.head] = part.weights
    layers = sorted({layer for layer, _ in whole})
    numbers = sorted({head for _, head in whole})
    if heads is None or not whole or len(whole) != len(layers) * len(numbers):
        raise InputError(
            "this document does not hold the weights of the same heads of every layer",
            expected="a run or the heads of a short text, or a trace",
            hint="model.trace(text).to_xarray()",
        )
    # the positions of the queries: all, or those of which the document has the rows
    queries: Sequence[int] = range(len(heads.sides.queries))
    if heads.rows is not None:
        queries = heads.rows
    return labelled_weights(
        np.stack([np.stack([whole[layer, head] for head in numbers]) for layer in layers]),
        layers,
        numbers,
        [token.text for token in heads.sides.keys],
        about.model.name or "",
        queries=[(place, heads.sides.queries[place].text) for place in queries],
    )


def write_figure(
    document: Document, path: str | Path, style: str, lang: str, parts: str = ""
) -> None:
    """Draw a document to an SVG, PNG or PDF file; one without a figure of its own is drawn as its
    terminal screen.

    Args:
        document: Any document.
        path: A file ending in .svg, .png or .pdf.
        style: Words as `--figure-style` takes them: "dark,85mm,300dpi,notitle".
        lang: The language of titles.
        parts: The parts that are drawn, as `--figure-parts` takes them; "" for those of the figure.

    Raises:
        UsageError: For another suffix or style.
        UnsupportedError: Where what writes that format is not installed.
    """
    from attncli.draw.figures import figure, figure_files, title_and_description
    from attncli.draw.figures.drawing import LIGHT, draw_screen, style_of
    from attncli.draw.figures.missing_letters import missing_letters_note

    file = Path(path)
    if file.suffix.lower() not in FIGURES:
        raise UsageError(
            "a figure is a file ending in .svg, .png or .pdf, not {path}", path=repr(str(file))
        )
    words = style_of(style, parts)
    drawing = figure(document, theme=words.theme, lang=lang, room=words.room, choice=words.choice)
    if drawing is None:
        view = View(
            color=True, light=words.theme is LIGHT, lang=lang, width=words.cells(SCREEN_WIDTH)
        )
        drawing = draw_screen(_screen(document, view), words.theme)
    title, description = title_and_description(document, lang)
    missing = missing_letters_note(drawing.svg(), file.suffix)
    if missing is not None:
        warnings.warn(str(missing), stacklevel=3)  # told of the line that calls `document.figure`
    files = figure_files(drawing, words, file, title=title, description=description)
    for name, data in files.items():
        with atomic_writer(name) as stream:
            stream.write(data)


def write_page(document: Document, path: str | Path, lang: str) -> None:
    """Write a document as one offline page.

    Args:
        document: Any document.
        path: A file ending in .html.
        lang: The language that the page begins in.

    Raises:
        UsageError: For another suffix.
    """
    file = Path(path)
    if file.suffix.lower() not in PAGES:
        raise UsageError("a page is a file ending in .html, not {path}", path=repr(str(file)))
    with atomic_writer(file) as stream:
        for piece in any_page(document, lang=lang):
            stream.write(piece)


def _screen(document: Document, view: View) -> Lines:
    """The terminal screen of a document, as the command that makes such documents draws it."""
    from attncli.draw.screen_header import screen_of

    return screen_of(document.schema).screen(document, view)


def _screen_html(document: Document) -> str:
    """A document's terminal screen as HTML with colours, for a document that has no page."""
    from rich.console import Console

    from attncli.draw.numbers import even_bars

    console = Console(
        record=True,
        width=SCREEN_WIDTH,
        file=StringIO(),
        force_terminal=True,
        force_jupyter=False,  # in a notebook Rich would show it itself, and once more
        color_system="truecolor",
    )
    console.print(
        even_bars(_screen(document, View(color=True, light=True, width=SCREEN_WIDTH))), crop=False
    )
    return SCREEN.format(console.export_html(inline_styles=True, code_format="<pre>{code}</pre>"))


def bundle(value: AttentionTrace[Any] | LayerTrace | TextTrace | Document) -> dict[str, str]:
    """A result as Jupyter shows it, texts by media type: always "text/plain", and "text/html" where
    it can be drawn.

    Args:
        value: A trace or a document.

    Returns:
        Texts by media type: "text/plain", and "text/html", which is a page of the heads, or, for a
        document without one, its screen. A text's layers run for their page; where they hold too
        many weights for one, what they are is said in words.
    """
    formats = {"text/plain": repr(value)}
    page = _page_of_result(value)
    if page is not None:
        height = min(max(ABOVE_ROWS + ROW * _matrix_rows(value), LOWEST), HIGHEST)
        html = escape(b"".join(page_bytes(page)).decode(), quote=True)
        formats["text/html"] = FRAME.format(height=height, page=html)
    elif isinstance(value, Document):
        formats["text/html"] = _screen_html(value)
    elif isinstance(value, TextTrace):
        formats["text/html"] = SCREEN.format(f"<pre>{escape(safe(repr(value)))}</pre>")
    return formats


def _matrix_rows(value: object) -> int:
    """How many rows the attention matrices of a result have, by which its page gets its height; a
    large number if unknown."""
    tokens = getattr(value, "tokens", None)
    if tokens:
        return len(tokens)
    weights = getattr(value, "weights", None)
    if weights is None:
        return HIGHEST  # so many rows make any frame as high as frames may be
    return int(weights.shape[-2])


def _page_of_result(value: AttentionTrace[Any] | LayerTrace | TextTrace | Document) -> Page | None:
    """The page of the heads of a trace or a document; None where there are no weights to show, or
    too many.
    """
    match value:
        case AttentionTrace():
            stages = {
                name: getattr(value, name) for name in ("weights", "masked", "capped", "biased")
            }
            record = _record_of_stages(stages, layer=0, tokens=())
        case LayerTrace():
            record = _record_of_stages(value.stages, value.layer, value.tokens)
        case TextTrace():
            record = _record_of_text(value)
        case _:
            return page_of(value, budget=BUDGET)
    # arrays alone have no words: their page begins with the matrix, and not with a sentence of
    # numbers
    start = {"view": "matrix"}
    if isinstance(value, LayerTrace | TextTrace) and value.tokens:
        start = {}
    if record is None:
        return None
    return Page(record.text, [record], start=start, budget=BUDGET)


def _record_of_stages(
    stages: Mapping[str, Array], layer: int, tokens: Sequence[Token]
) -> RunRecord | None:
    """The heads of one layer's stages, arrays [..., head, query, key] by name, as a record for a
    page; each index of the leading axes counts as one more layer.

    layer: the number of the layer.
    tokens: of the queries; empty where only their number is known.

    None without weights that have a head axis, or with more than `MOST` of them.
    """
    weights: Array | None = stages.get("weights")
    if weights is None or weights.ndim < 3 or not 0 < np.prod(tuple(weights.shape)) <= MOST:
        return None
    backend = backend_of(weights)
    rows, columns = map(int, weights.shape[-2:])

    # the queries, and what the record is called
    queries: Sequence[Token] = numbered_tokens(rows)
    name = f"attention of {rows} queries and {columns} keys"
    text = ""
    has_tokens = len(tokens) == rows
    if has_tokens:
        queries = list(tokens)
        name = f"layer {layer}"
        text = " ".join(token.text for token in queries if not token.special)

    # the keys: more keys than tokens are learned ones, which stand behind those of the tokens, or
    # those of earlier tokens, which have no names here
    keys: Sequence[Token] = numbered_tokens(columns)
    has_learned_keys = has_tokens and tokens[0].index == 0 and columns > rows
    if rows == columns or has_learned_keys:
        keys = queries
    sides = Sides(queries, keys)
    heads = _heads(backend, stages, layer, sides)
    return RunRecord(name, text or name, sides, model=None, attention=None, heads=heads)


def _record_of_text(text: TextTrace) -> RunRecord | None:
    """All heads of all layers of a text as a record for a page; the layers run while it is read.
    None where no weights were kept, or more than `MOST`."""
    if not 0 < text.pairs <= MOST or not text.keeps_weights:
        return None
    sides = Sides(text.tokens, text.tokens)

    def head_records() -> Iterator[HeadRecord]:
        """Run the layers of the text and yield a record of each head."""
        for trace in text.run(("masked", "weights")):
            backend = backend_of(trace.stages["weights"])
            yield from _heads(backend, trace.stages, trace.layer, sides)

    words = " ".join(token.text for token in text.tokens if not token.special)
    return RunRecord(text.name, words, sides, model=None, attention=None, heads=head_records())


def _heads(
    backend: Backend, stages: Mapping[str, Array], layer: int, sides: Sides
) -> Iterator[HeadRecord]:
    """Yield a record of each head's scores and weights.

    stages: arrays [..., head, query, key] by name, of which each index of the leading axes counts
        as one more layer, from `layer` on.
    sides: the tokens of queries and of keys.
    """
    # sizes of the leading axes, such as a batch's; none where there are only heads
    lead: Sequence[int] = tuple(stages["weights"].shape[:-3])
    for number, place in enumerate(np.ndindex(*lead)):
        # the stages at one index of the leading axes; a stage without them is left out
        entry_stages = {
            name: array[place]
            for name, array in stages.items()
            if tuple(array.shape[: len(lead)]) == tuple(lead)
        }
        # special tokens are a trained model's: of its links those that say little do not count
        is_learned = any(token.special for token in sides.queries)
        head_numbers = range(int(entry_stages["weights"].shape[0]))
        records = LayerRecords(backend, layer + number, sides, head_numbers, is_learned=is_learned)
        feed_whole(backend, records, entry_stages, words=None)
        yield from records.records(arithmetic=None)
