"""The matrices that a derivation is a row of: X, S, scaled and masked, A and O, for all queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import UNSET

from attncli.analysis.documents.declaration import Numbers
from attncli.analysis.documents.derivation import AttentionTopic
from attncli.render.glyphs import spell
from attncli.render.headings import heading, remark
from attncli.render.lines import Lines, stack, stack_spaced
from attncli.render.matrix import matrix, visible
from attncli.render.phrases import say
from attncli.render.vectors import vectors
from attncli.render.view import View

MATRIX_NAME = 14
"""Cells of a name."""


def derivation_matrices(document: AttentionTopic, names: Sequence[str], view: View) -> Lines:
    """The same numbers for every query, the worked one marked, and how far the two agree. names: the keys' texts."""
    matrices, query = document.matrices, document.query
    texts = names[: len(document.tokens)]
    mark = spell("▸", ascii=view.ascii)
    rows = [f"{mark}{text}" if index == query else text for index, text in enumerate(texts)]
    # as many digits as let every key have its column, so that the worked row can be found again
    slot = (view.width - MATRIX_NAME - 4) // max(len(names), 1)
    close = view if view.full else replace(view, precision=max(min(view.precision, slot - 5), min(view.precision, 2)))
    blocks = [heading(say(view, "matrices"), say(view, "matrices.note", query), view)]

    def vectors_of(name: str, values: Numbers) -> Lines:
        return vectors(values, rows, close, title=say(view, f"matrix.{name}"), note=say(view, f"matrix.{name}.note"))

    if matrices.x is not UNSET:
        blocks.append(vectors_of("x", matrices.x))
    for name, values in _squares(document):
        blocks.append(
            matrix(
                visible(values, matrices.scores if name in ("scores", "weights") else UNSET),
                rows,
                names,
                close,
                limits=(0.0, 1.0) if name == "weights" else None,
                signed=name != "weights",
                title=say(view, f"matrix.{name}"),
                note=say(view, f"matrix.{name}.note"),
            )
        )
    blocks.append(vectors_of("output", matrices.output))
    return stack((stack_spaced(blocks), remark(say(view, "agrees", f"{document.agreement:.1e}"), view)))


def _squares(document: AttentionTopic) -> list[tuple[str, object]]:
    """The matrices [query, key] in order, without those that the next step leaves as they are."""
    matrices = document.matrices
    squares: list[tuple[str, object]] = []
    if matrices.raw is not UNSET and matrices.scaled is not UNSET:
        if not np.array_equal(matrices.raw, matrices.scaled):
            squares.append(("raw", matrices.raw))
        if not np.array_equal(matrices.scaled, matrices.scores):
            squares.append(("scaled", matrices.scaled))
    return [*squares, ("scores", matrices.scores), ("weights", matrices.weights)]
