"""Measure: metrics of heads from blocks of query rows; a dense matrix is cut into such blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Sized
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from msgspec import Struct

from attncli.analysis.metrics import DEFAULT, METRICS, OFFSETS, Metric
from attncli.analysis.pairs import Pairs
from attncli.analysis.row_facts import About, Rows, WeightRows
from attncli.analysis.uniform_rows import UniformRows
from attncli.analysis.visible_keys import Bools, Floats, Ints, Sight, sight
from attncli.arrays.backend import Array, Backend, backend_of
from attncli.errors import InputError, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Lengthy = TypeVar("Lengthy", bound=Sized)

BLOCK = 1 << 20
"""How many weights a dense matrix is cut into at a time."""


class Measured(Struct, frozen=True, eq=False):
    """A metric of each head. value: float64 [...], NaN where no row could be used. rows: how many were used.

    baseline: the metric of uniform attention over the same visible keys and the same rows.
    """

    metric: Metric
    value: Floats
    rows: Ints
    baseline: Floats


class Tally:
    """Adds up metrics over blocks of query rows of `heads` heads; memory does not grow with the text.

    metrics: names out of `METRICS`. about: what is known of the keys' tokens. Metrics that
    need what is not known give NaN over 0 rows. Raises UsageError for an unknown name.
    """

    def __init__(self, heads: int, metrics: Sequence[str], about: About) -> None:
        self._metrics = [known(name) for name in metrics]
        self.about = about
        self._sums = np.zeros((2, len(metrics), heads))
        self._norms = np.zeros((2, len(metrics), heads))
        self._rows = np.zeros((len(metrics), heads), np.int64)
        self._even: tuple[Sight, Floats, Floats] | None = None  # the baseline of the rows last added

    def add(self, rows: WeightRows, *, first_head: int = 0, real: Bools | None = None) -> None:
        """Add the rows of heads first_head, first_head + 1, …

        real: booleans [row] or [head, row], False for padding, which is left out.
        """
        heads = slice(first_head, first_head + rows.weights.shape[0])
        sums, norms, used = self._summed(rows, real)
        self._sums[0, :, heads] += sums
        self._norms[0, :, heads] += norms
        self._rows[:, heads] += used
        if self._even is None or self._even[0] is not rows.see or real is not None:
            even = self._summed(uniform_rows(rows.i, rows.see, rows.about), real)
            self._even = (rows.see, even[0], even[1])
        self._sums[1, :, heads] += self._even[1]
        self._norms[1, :, heads] += self._even[2]

    def _summed(self, rows: Rows, real: Bools | None) -> tuple[Floats, Floats, Ints]:
        """Σ value, Σ weight and the number of rows used of each metric, [metric, head or 1]."""
        heads = rows.heads
        sums, norms = np.zeros((2, len(self._metrics), heads))
        counts = np.zeros((len(self._metrics), heads), np.int64)
        for at, metric in enumerate(self._metrics):
            if not _answerable(metric, self.about):
                continue
            found = metric.of(rows)
            used = found.used if real is None else found.used & real
            counts[at] = used.sum(-1)
            sums[at] = _sum(found.value, used)
            norms[at] = counts[at] if found.weight is None else _sum(found.weight, used)
        return sums, norms, counts

    def added(self) -> tuple[Floats, Floats, Ints, Floats]:
        """What has been added up: value and norm [head, metric], rows used [head, metric], and the baseline's value /
        norm [head, metric]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            baseline = np.where(self._norms[1] > 0, self._sums[1] / self._norms[1], np.nan)
        return self._sums[0].T, self._norms[0].T, self._rows.T, baseline.T

    def result(self, shape: tuple[int, ...] | None = None) -> dict[str, Measured]:
        """The metrics by name. shape: of the heads, None for one axis."""
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(self._norms > 0, self._sums / self._norms, np.nan)
        value, baseline = means.reshape((2, len(self._metrics), *(shape if shape is not None else (-1,))))
        rows = self._rows.reshape(value.shape)
        return {
            metric.name: Measured(metric, value[at], rows[at], baseline[at]) for at, metric in enumerate(self._metrics)
        }


def _sum(values: Floats, used: Bools) -> Floats:
    return (values if used.all() else np.where(used, values, 0.0)).sum(-1)


def known(name: str) -> Metric:
    """The metric of that name. Raises UsageError, with the nearest name."""
    if name in OFFSETS:
        return OFFSETS[name]
    if name not in METRICS:
        from difflib import get_close_matches

        near = get_close_matches(name, METRICS, 1, 0.5)
        raise UsageError(
            f"there is no metric {name!r}", expected=", ".join(METRICS), hint=f"--metric {near[0]}" if near else ""
        )
    return METRICS[name]


def _answerable(metric: Metric, about: About) -> bool:
    if metric.aligned and not about.aligned:
        return False
    known = {
        "": True,
        "tokens": about.pairs is not None,
        "special": about.special is not None,
        "punctuation": about.punctuation is not None,
    }
    return known[metric.needs]


def uniform_rows(i: Ints, see: Sight, about: About) -> Rows:
    """The rows of uniform attention over the same visible keys; [head or 1, row] answers."""
    if see.seen is None:
        return UniformRows(i, see, about)
    from attncli.arrays.backend import numpy_backend

    return WeightRows(numpy_backend("float64"), see.spread(), i, see.low, see, about)


def measure(
    weights: Array | ArrayLike,
    visible: Array | ArrayLike | None = None,
    *,
    metrics: Sequence[str] = DEFAULT,
    queries: Array | ArrayLike | None = None,
    tokens: Sequence[Hashable] | None = None,
    special: Sequence[bool] | Bools | None = None,
    punctuation: Sequence[bool] | Bools | None = None,
    offset: int = 0,
    aligned: bool = True,
) -> dict[str, Measured]:
    """Metrics of weights [..., query, key], NumPy or torch; each value has the leading axes.

    visible: booleans that broadcast to the weights, True where the query sees the key; None
    for everywhere. queries: booleans [..., query], False for padded queries, which are left
    out as empty rows are. tokens: one id or name per key, for the token patterns. special, punctuation:
    booleans [key]. offset: position of query 0. aligned: False where queries are another text
    than keys (cross-attention), which has no distances.
    The arrays are never written to. Raises InputError for shapes that do not fit.
    """
    array = _held(weights)
    if array.ndim < 2:
        raise InputError(f"weights have {array.ndim} axes", expected="[..., query, key]")
    backend = backend_of(array)
    lead, (count, keys) = tuple(array.shape[:-2]), array.shape[-2:]
    about = About(
        None if tokens is None else Pairs(_lengthy(tokens, keys, "tokens")),
        None if special is None else np.asarray(_lengthy(special, keys, "special")) != 0,
        None if punctuation is None else np.asarray(_lengthy(punctuation, keys, "punctuation")) != 0,
        aligned,
    )
    flat = array.reshape((-1, count, keys))
    shown = None if visible is None else _spread(visible, (*lead, count, keys), "visible")
    real = None if queries is None else _spread(queries, (*lead, count), "queries")
    tally = Tally(flat.shape[0], metrics, about)
    step = max(BLOCK // max(keys, 1), 1)
    for head in range(flat.shape[0]):
        for start in range(0, count, step):
            stop = min(start + step, count)
            some = None if shown is None else shown[head, start:stop]
            rows = _block(backend, flat[head : head + 1, start:stop], some, start + offset, about)
            tally.add(rows, first_head=head, real=None if real is None else real[head, start:stop])
    return tally.result(lead)


def _block(backend: Backend, weights: Array, shown: Bools | None, first: int, about: About) -> WeightRows:
    rows, keys = weights.shape[-2:]
    return WeightRows(backend, weights, np.arange(first, first + rows), 0, sight(shown, rows, 0, keys), about)


def _held(values: Array | ArrayLike) -> Array:
    """An array of the library that the values are of, NumPy's for lists."""
    return cast("Array", values) if type(values).__module__.startswith("torch") else np.asarray(values)


def _lengthy(values: Lengthy, keys: int, name: str) -> Lengthy:
    if len(values) != keys:
        raise InputError(f"{name} has {len(values)} entries, the weights have {keys} keys", expected="one per key")
    return values


def _spread(values: Array | ArrayLike, shape: tuple[int, ...], name: str) -> Bools:
    held = _held(values)
    found = backend_of(held).numpy(held)
    try:
        spread = np.broadcast_to(found != 0, shape)
    except ValueError as error:
        raise InputError(
            f"{name} has shape {list(found.shape)}", expected=f"a shape that broadcasts to {list(shape)}"
        ) from error
    tail = 2 if name == "visible" else 1
    return spread.reshape((-1, *shape[len(shape) - tail :]))
