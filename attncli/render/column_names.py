"""What the columns of a weight matrix are called."""

from __future__ import annotations

from collections.abc import Sequence

from attncli.analysis.documents.declaration import Numbers


def key_names(texts: Sequence[str], rows: Numbers | Sequence[Numbers]) -> list[str]:
    """The token texts, then `bias_k` for each further column: a learned key that every query sees and no token stands
    for.

    rows: the matrix [query, key] whose columns are named; one without rows has the tokens as columns.
    """
    columns = len(rows[0]) if len(rows) else len(texts)
    return [*texts, *["bias_k"] * (columns - len(texts))]
