"""Saving what is seen: its document as JSON, its figure, or the page that opens at it."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from attncli.documents.declaration import Document
from attncli.errors import InputError, UnsupportedError, UsageError
from attncli.explore.panels import HeadEffects
from attncli.explore.source import LiveSource, SavedSource, Source
from attncli.explore.state import State
from attncli.features.run.document import RunDocument

SUFFIXES = (".json", ".svg", ".png", ".pdf", ".html")
"""How files end that can be written."""


def document_in_sight(source: Source, state: State, effects: HeadEffects | None) -> Document:
    """The document of what is looked at, as the commands make it."""
    match source:
        case SavedSource():
            return source.document
        case LiveSource():
            pass
        case _:
            assert_never(source)
    model, text, tokens = source.model, source.text, source.tokens
    match state.sight:
        case "why":
            return source.derivation(state.layer, state.head, state.query)
        case "search":
            from attncli.features.find.compute import SearchRequest, find_document
            from attncli.inputs.word_groups import merged_words

            words = merged_words(tokens, text) if source.words else None
            sought = SearchRequest(state.query, state.key, source.layers, source.heads)
            return find_document(model, text, tokens, sought, words=words)
        case "effects" if effects is not None:
            document = effects.every or effects.head or effects.cut_document
            assert document is not None
            return document
        case "difference" if state.subtracted_head is not None:
            from attncli.features.compare.compute import compare_document

            names = tuple(
                f"layer {layer} head {head}" for layer, head in (state.subtracted_head, (state.layer, state.head))
            )
            first_run = _run_document(source, *state.subtracted_head)
            return compare_document(
                first_run, _run_document(source, state.layer, state.head), names=(names[0], names[1]), top=10
            )
        case _ if state.focus == "heads" and state.sight == "matrix":
            from attncli.features.heads.compute import HeadsRequest, heads_document

            request = HeadsRequest(layers=source.layers, heads=source.heads, words=source.words)
            return heads_document(model, text, tokens, request)
        case _:
            return _run_document(source, state.layer, state.head)


def _run_document(source: LiveSource, layer: int, head: int) -> RunDocument:
    from attncli.features.run.compute import RunRequest, run_document

    request = RunRequest([layer], [head], words=source.words)
    return run_document(source.model, source.text, source.tokens, request)


def check(name: str, *, again: bool) -> Path:
    """The file to write. again: whether one that is there may be written over.

    Raises UsageError for an unknown ending, InputError for a file that is there.
    """
    path = Path(name.strip()).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{name.strip()!r} ends in no known way", expected=", ".join(SUFFIXES))
    if path.exists() and not again:
        raise InputError(f"{path.name} is there already", expected="another name; Enter again writes over it")
    return path


def save(path: Path, source: Source, state: State, effects: HeadEffects | None, *, lang: str) -> None:
    """Write what is looked at. Raises UnsupportedError for what has no figure, AttnError for what cannot be written."""
    from attncli.inputs.atomic import atomic_writer

    match path.suffix.lower():
        case ".html":
            from attncli.draw.page.contents import Page
            from attncli.draw.page.writer import page_bytes

            record = source.record(lambda share: None)
            start = {"view": "search"} if state.sight == "search" else {}
            ends = {"from": f"#{state.query}", "to": f"#{state.key}"} if start else {"query": str(state.query)}
            pieces = page_bytes(Page(record.text, [record], start={**start, **ends}, lang=lang))
        case ".json":
            from attncli.draw.encoding import json_pieces

            pieces = iter(json_pieces(document_in_sight(source, state, effects)))
        case suffix:
            from attncli.draw.figures.document_figures import figure
            from attncli.draw.figures.figure_files import figure_bytes, style_of

            style = style_of("")  # of paper, as the commands draw it
            scale = state.scale if state.scale in ("log", "row") else "linear"
            document = document_in_sight(source, state, effects)
            drawing = figure(document, scale=scale, theme=style.theme, lang=lang)
            if drawing is None:
                raise UnsupportedError(f"{document.schema} has no figure", expected="a file ending in .json or .html")
            title = str(getattr(document, "text", ""))
            pieces = iter([figure_bytes(drawing.svg(mm=style.mm, title=title), suffix, style)])
    with atomic_writer(path) as file:
        for piece in pieces:
            file.write(piece)


def default_file_name(state: State) -> str:
    """The name of a file that suits what is looked at."""
    return {"why": "derivation.json", "search": "links.svg"}.get(state.sight, f"{state.sight}.svg")
