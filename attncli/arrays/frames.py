"""Results as frames of pandas or polars, and as labelled arrays of xarray.

None of the three is needed by anything else here: each is imported when a result is asked for in
its form, and an error says how to install it where it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np

from attncli.arrays.backend import Array, backend_of
from attncli.errors import UnsupportedError
from attncli.extras import install_command

DIMENSIONS = ("layer", "head", "query", "key")


def library(name: Literal["pandas", "polars", "xarray"]) -> Any:
    """A library of frames or labelled arrays, imported now.

    Args:
        name: Its name.

    Returns:
        The module.

    Raises:
        UnsupportedError: Where it is not installed, with the command that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            "{name} is not installed", name=name, hint=install_command(name)
        ) from error


def frame(name: Literal["pandas", "polars"], rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as a frame. A column of whole numbers, some of which are missing, holds whole numbers in
    either library: pandas has them as Int64.

    Args:
        name: The library.
        rows: The rows, each a dictionary by the column's name; a number and None may stand in one
            column.

    Returns:
        A DataFrame of the library with a line for each row; without rows, one without columns.

    Raises:
        UnsupportedError: Where the library is not installed.
    """
    make = library(name).DataFrame
    if name == "polars":
        # a column whose first hundred rows are None has its type further down
        return make(list(rows), infer_schema_length=None)
    table = make(list(rows))
    for name_of_column in table.columns:
        values = [row.get(name_of_column) for row in rows]
        kinds = {type(value) for value in values}
        if kinds == {int, type(None)}:
            # pandas would turn them into floats
            table[name_of_column] = library("pandas").array(values, dtype="Int64")
    return table


def labelled_weights(
    weights: Array,
    layers: Sequence[int],
    heads: Sequence[int],
    tokens: Sequence[str],
    name: str,
    *,
    queries: Sequence[tuple[int, str]] | None = None,
) -> Any:
    """Attention weights with the names of their axes, and of what stands along them.

    Args:
        weights: [layer, head, query, key], 0 to 1; learned keys come after those of the tokens.
        layers: The number of each layer.
        heads: The number of each head.
        tokens: The text of each key's token.
        name: Of the model; "" for none.
        queries: The number and the text of each query's token; None where they are the keys'.

    Returns:
        An xarray DataArray of the dims layer, head, query and key. Coordinates: numbers along all
        four, and the tokens' texts as `query_token` and `key_token`, "bias_k" for learned keys.

    Raises:
        UnsupportedError: Where xarray is not installed.
    """
    numbers = backend_of(weights).numpy(weights)
    keys = [*tokens, *["bias_k"] * (numbers.shape[-1] - len(tokens))]
    if queries is None:
        queries = list(enumerate(tokens))
    coordinates = {
        "layer": list(layers),
        "head": list(heads),
        "query": [number for number, _ in queries],
        "key": list(range(len(keys))),
        "query_token": ("query", [text for _, text in queries]),
        "key_token": ("key", keys),
    }
    attributes = {}
    if name:
        attributes["model"] = name
    return library("xarray").DataArray(
        numbers, coords=coordinates, dims=DIMENSIONS, name="weights", attrs=attributes
    )


def labelled_metrics(
    metrics: Mapping[str, Mapping[tuple[int, int], float | None]],
    name: str,
    weights: Any | None = None,
) -> Any:
    """Numbers of heads with the names of their axes, beside weights where these are known.

    Args:
        metrics: By the name of the metric, the number of each (layer, head); None where it is
            undefined.
        name: Of the model; "" for none.
        weights: What `labelled_weights` returns; None for none.

    Returns:
        An xarray Dataset with a variable of the dims layer and head for each metric, NaN where it
        is not known, and `weights` of the dims layer, head, query and key.

    Raises:
        UnsupportedError: Where xarray is not installed.
    """
    xarray = library("xarray")
    places = sorted({place for numbers in metrics.values() for place in numbers})
    layers = sorted({layer for layer, _ in places})
    heads = sorted({head for _, head in places})
    variables = {}
    for metric, numbers in metrics.items():
        grid = np.full((len(layers), len(heads)), np.nan)
        for (layer, head), value in numbers.items():
            if value is not None:
                grid[layers.index(layer), heads.index(head)] = value
        variables[metric] = (DIMENSIONS[:2], grid)
    attributes = {}
    if name:
        attributes["model"] = name
    coordinates = {"layer": layers, "head": heads}
    dataset = xarray.Dataset(variables, coords=coordinates, attrs=attributes)
    if weights is not None:
        dataset["weights"] = weights
    return dataset
