"""Metrics of your own: a Python file whose functions measure rows of weights, each by its name as
FILE.FUNCTION.

    def every_third(rows):
        '''mean Σ_j A, j = 0, 3, 6, …'''
        return rows.weights[..., ::3].sum(-1)

    every_third.low, every_third.high = 0, 1

A function takes a block of query rows and gives a number for each, [head, row]; the metric is their
mean. Its docstring begins with the formula. It may have `low` and `high` (its range), `unit`,
`says` (what a high value means), `least_keys` (rows that see fewer are left out; 1) and `needs`
("special" or "punctuation": without it there is no number). Names that begin with an underscore,
classes and what is imported are no metrics. The file is run as the user's own code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace

from attncli.arrays.backend import numpy_backend
from attncli.errors import InputError, UsageError
from attncli.inputs.function_file import FileWords, failure_of_code, formula_of, run_file
from attncli.language import message
from attncli.measure.metric import (
    ALL_ROWS,
    FILE_METRICS,
    METRICS,
    OFFSETS,
    Metric,
    PerRow,
    UniformRows,
    metric_of,
)
from attncli.measure.row_facts import (
    AttentionRows,
    Bools,
    Floats,
    Ints,
    TokenFacts,
    WeightRows,
    find_sight,
)
from attncli.mechanism.checked_arguments import checked

FILE_WORDS = FileWords(
    what=message("a Python file of metrics"),
    failed=message("the file of metrics failed"),
    none=message("this file has no metric"),
    expected=message("def name(rows): … gives [head, row]"),
)
NEEDS = ("", "special", "punctuation")
CLOSE = 1e-6
"""How far beyond its range a number may be by rounding."""
PATHS: dict[str, str] = {}
"""Where the file of each metric of `FILE_METRICS` is that has been run."""


class MetricDeclaration(Struct, frozen=True):
    """What a user's metric file declares of one metric: all but its computation.

    name: FILE.FUNCTION.
    least_keys: how many keys a row must see to count.
    The other fields are those of `Metric`.
    """

    name: Annotated[
        str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$", max_length=200)
    ]
    formula: str
    low: float | None = None
    high: float | None = None
    unit: str = ""
    says: str = ""
    least_keys: Annotated[int, Meta(ge=1)] = 1
    needs: str = ""


class MetricFile(Struct, frozen=True):
    """A user's Python file of metrics.

    path: where it is.
    sha256: of its bytes.
    metrics: what it declares.
    """

    path: str
    sha256: str
    metrics: tuple[MetricDeclaration, ...]


class RowsOfBlock:
    """A block of query rows as the functions of a user's metric file get it.

    weights: float64 [head, row, key], keys from 0; 0 where a row does not see the key.
    visible: booleans [head or 1, row, key].
    i: each row's position [row]; j: each key's [key].
    special, punctuation: booleans [key], None where they are not known.
    """

    def __init__(self, rows: AttentionRows) -> None:
        """Make the arrays from a block of rows, with weights or of uniform attention."""
        sight = rows.sight
        self.i = rows.i
        # how many keys the arrays have, from key 0 on
        if isinstance(rows, WeightRows):
            # a block may hold the keys from `low` on: those before have weight 0
            self.weights: Floats = rows.numpy(rows.weights)
            if rows.low:
                before = np.zeros((*self.weights.shape[:-1], rows.low))
                self.weights = np.concatenate([before, self.weights], -1)
            count = self.weights.shape[-1]
        elif isinstance(rows, UniformRows):
            # up to the last key that any row sees; 1 where no row sees any
            count = max(int(sight.last.max()) + 1, 1)
        else:  # `FormRows`, whose TypeError says that a formula is not linear
            raise TypeError("numbers of a file's metric are computed from weights")

        # which keys each row sees, from key 0 on; `sight` tells it of keys from its `low` on
        sight_matrix = sight.visibility_matrix(count)[..., : count - sight.low]
        visible = np.zeros((*sight_matrix.shape[:-1], count), bool)
        visible[..., sight.low : sight.low + sight_matrix.shape[-1]] = sight_matrix
        self.visible: Bools = visible
        if isinstance(rows, UniformRows):
            # an even share of the keys that a row sees; 0 where it sees none
            self.weights = visible / np.maximum(sight.count, 1)[..., None]
        self.j: Ints = np.arange(count)
        about = rows.about
        if about.special is None:
            self.special = None
        else:
            self.special = about.special[:count]
        if about.punctuation is None:
            self.punctuation = None
        else:
            self.punctuation = about.punctuation[:count]


@checked
def load_metrics(path: str | Path) -> list[Metric]:
    """The metrics of a user's Python file; from now on they can be named wherever metrics are.

    This runs the file, as Python runs a program: only name files that you trust.

    Args:
        path: A Python file of functions that take a block of query rows and give a number for each,
            [head, row]; this module's docstring has an example.

    Returns:
        A metric for each of its functions, in their order, called FILE.FUNCTION after the file's
        name.

    Raises:
        InputError: Where there is no such file, it fails, or a function gives no numbers for a
            small block of rows; `where` names the file's line.
    """
    return [FILE_METRICS[declaration.name] for declaration in load_metric_file(path).metrics]


def load_metric_file(path: str | Path) -> MetricFile:
    """Run a user's metric file, register its metrics and return its digest and declarations. Raises
    InputError where there is no such file, it fails, or a function gives no numbers for a small
    block of rows.

    path: of the Python file.
    """
    file = run_file(path, FILE_WORDS)
    declarations = []
    for name, function in file.functions.items():
        declaration = declaration_of(f"{file.path.stem}.{name}", function, file.path)
        metric = metric_of_function(declaration, file.sha256, function, file.path)
        try_metric(metric)
        declarations.append(declaration)
        FILE_METRICS[metric.name] = metric
        PATHS[metric.name] = str(file.path.absolute())
    return MetricFile(str(file.path.absolute()), file.sha256, tuple(declarations))


def declaration_of(name: str, function: FunctionType, path: Path) -> MetricDeclaration:
    """The declaration of a metric from its function's docstring and attributes, such as
    `every_third.low = 0`. Raises InputError for an attribute of the wrong type or an impossible
    value.

    name: FILE.FUNCTION.
    path: of the file, for errors.
    """
    where = f"{path}:{function.__code__.co_firstlineno}"
    types: Mapping[str, tuple[type, ...]] = {
        "low": (int, float),
        "high": (int, float),
        "unit": (str,),
        "says": (str,),
        "least_keys": (int,),
        "needs": (str,),
    }
    values = {
        attribute: getattr(function, attribute)
        for attribute in types
        if hasattr(function, attribute)
    }
    for attribute, value in values.items():
        # True and False are ints to Python, and no numbers here
        if not isinstance(value, types[attribute]) or isinstance(value, bool):
            what = message(
                "{attribute} of the metric {name} is {value}",
                attribute=attribute,
                name=name,
                value=repr(value)[:80],
            )
            raise InputError(
                what, where=where, expected="a number" if int in types[attribute] else "a text"
            )
    for attribute in ("low", "high"):
        if attribute in values:
            values[attribute] = float(values[attribute])
    _, _, function_name = name.rpartition(".")
    formula = formula_of(function, function_name, "rows")
    declaration = MetricDeclaration(name, formula, **values)

    # a range has finite ends, the lower one first; either may be missing
    low = declaration.low
    high = declaration.high
    is_range = (low is None or math.isfinite(low)) and (high is None or math.isfinite(high))
    if not is_range or (low is not None and high is not None and low >= high):
        raise InputError(
            "the range of the metric {name} is none", where=where, expected="low < high", name=name
        )
    if declaration.needs not in NEEDS or declaration.least_keys < 1:
        expected = message('needs "special" or "punctuation"; least_keys 1 or more')
        raise InputError(
            "the metric {name} asks for what there is not",
            where=where,
            expected=expected,
            name=name,
        )
    return declaration


def metric_of_function(
    declaration: MetricDeclaration, digest: str, function: FunctionType, path: Path
) -> Metric:
    """The metric that a user's function computes; its results are checked each time.

    digest: sha256 of the file, hexadecimal.
    path: of the file, for errors.
    """
    line = function.__code__.co_firstlineno

    def compute_rows(rows: AttentionRows) -> PerRow:
        """The function's numbers for each head and row of a block, checked. Raises InputError where
        it fails, or gives another shape or numbers out of range."""
        block = RowsOfBlock(rows)
        try:
            numbers = np.asarray(function(block), np.float64)
        except (Exception, SystemExit) as error:  # whatever a user's function raises, exit() too
            what = message("the metric {name} failed", name=declaration.name)
            raise failure_of_code(error, path, what, line) from error
        shape = block.weights.shape[:2]
        where = f"{path}:{line}"
        if numbers.shape != shape:
            raise InputError(
                "the metric {name} gave numbers of shape {shape}",
                where=where,
                expected="one for each head and row, {wanted}",
                name=declaration.name,
                shape=list(numbers.shape),
                wanted=list(shape),
            )

        # rows that see fewer keys do not count; all others must be finite and in the range
        used_rows = np.broadcast_to(rows.sight.count >= declaration.least_keys, shape)
        if declaration.low is None:
            low = -math.inf
        else:
            low = declaration.low
        if declaration.high is None:
            high = math.inf
        else:
            high = declaration.high
        row_numbers = numbers[used_rows]
        is_outside = (row_numbers < low - CLOSE) | (row_numbers > high + CLOSE)
        is_refused = ~np.isfinite(row_numbers) | is_outside
        if is_refused.any():
            raise InputError(
                "the metric {name} gave {value}",
                where=where,
                expected="finite numbers in its range, {low} to {high}",
                name=declaration.name,
                value=f"{row_numbers[is_refused][0]:g}",
                low=f"{low:g}",
                high=f"{high:g}",
            )
        # what rounding put beyond the range is set to its end; rows that do not count may hold NaN
        clipped_numbers = np.clip(np.where(used_rows, numbers, 0.0), low, high)
        return PerRow(clipped_numbers, rows.sight.count >= declaration.least_keys)

    return replace(_stub(declaration, digest), of=compute_rows)


def _stub(declaration: MetricDeclaration, digest: str) -> Metric:
    """A metric that is known by its declaration alone: computing it raises InputError.

    digest: sha256 of the file, hexadecimal.
    """

    def refuse(rows: AttentionRows) -> PerRow:
        """Always raises InputError: the metric's file is not here."""
        del rows
        what = message(
            "the metric {name} is a file's, and the file is not here", name=declaration.name
        )
        raise InputError(what, expected="--metric-file FILE.py")

    if declaration.least_keys == 1:
        rows = ALL_ROWS
    else:
        rows = message("rows that see {count} keys or more", count=declaration.least_keys)
    return Metric(
        name=declaration.name,
        formula=declaration.formula,
        low=declaration.low,
        high=declaration.high,
        unit=declaration.unit,
        says=declaration.says,
        rows=rows,
        source=f"sha256 {digest}",
        of=refuse,
        needs=declaration.needs,
        aligned=False,
    )


def declare(file: MetricFile) -> None:
    """Register a file's metrics by their declarations without running the file, so that stored
    numbers of them can be read.

    Raises InputError where a metric of this name has another range: its numbers would be read off
    wrong scales.
    """
    for declaration in file.metrics:
        registered = FILE_METRICS.get(declaration.name)
        if registered is None:
            FILE_METRICS[declaration.name] = _stub(declaration, file.sha256)
        elif (registered.low, registered.high) != (declaration.low, declaration.high):
            what = message(
                "two files declare a metric {name} with different ranges", name=declaration.name
            )
            raise InputError(
                what, where=file.path, expected="another name of the file or the function"
            )


def path_of_metric(metric: Metric) -> str:
    """The path of the metric file that a metric comes from; "" for a built-in one.

    Raises UsageError for a metric that was made in Python: a scan's worker processes could not load
    it.
    """
    # raises for a caller's own metric that is called like a built-in one
    if metric_of(metric) in (METRICS.get(metric.name), OFFSETS.get(metric.name)):
        return ""
    if FILE_METRICS.get(metric.name) is not metric or metric.name not in PATHS:
        what = message(
            "a scan's workers start anew, without the metric {name}", name=repr(metric.name)
        )
        raise UsageError(
            what, expected="a metric of a file, as attncli.metrics.load_metrics gives it"
        )
    return PATHS[metric.name]


def require(file: MetricFile) -> None:
    """Run the metric file that a scan's plan names. Raises InputError where its contents have
    changed since.
    """
    current_file = load_metric_file(file.path)
    if current_file.sha256 != file.sha256:
        what = message("this file of metrics is another one than the scan began with")
        raise InputError(
            what, where=file.path, expected=message("sha256 {digest}", digest=file.sha256)
        )


def try_metric(metric: Metric) -> None:
    """Compute a metric on a small block of rows, so that a mistake raises InputError before long
    work begins.
    """
    # two heads of uniform causal attention over four tokens, a special one and a punctuation mark
    causal = np.tri(4, dtype=bool)
    weights = causal / causal.sum(-1, keepdims=True)
    about = TokenFacts(
        special=np.array([True, False, False, False]),
        punctuation=np.array([False, False, False, True]),
    )
    rows = WeightRows(
        numpy_backend("float64"),
        np.stack([weights, weights]),
        i=np.arange(4),
        low=0,
        sight=find_sight(causal, 4, 0, 4),
        about=about,
    )
    metric.of(rows)
