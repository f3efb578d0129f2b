"""Metrics of many texts of one length at once: one matrix product where `measure` goes through rows.

The metrics are those of `analysis.metrics`, asked for their coefficients (`linear_forms`); those that are not linear
are computed from the rows, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.analysis.linear_forms import Coefficients, FormRows, Summed, coefficients
from attncli.analysis.measure import known, uniform_rows
from attncli.analysis.metrics import Metric, PerRow
from attncli.analysis.row_facts import About, WeightRows
from attncli.analysis.visible_keys import Bools, Floats, Sight, of_mask, sight
from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.mechanism.mask import Mask, visible

LARGEST = 1 << 22
"""Coefficients of one length that are held; longer texts go by rows."""


class Sums(Struct, frozen=True, eq=False):
    """What a layer's heads add up to, text by text.

    value, norm: float64 [text, head, metric]; a metric is value / norm, NaN where norm is 0. rows: query rows used,
    integers [metric]. baseline: value / norm of uniform attention, float64 [text, metric].
    """

    value: Floats
    norm: Floats
    rows: np.ndarray[Any, np.dtype[np.int64]]
    baseline: Floats


class Length:
    """The coefficients of metrics for texts of `count` tokens under one mask.

    Metrics that need no tokens are prepared once for all such texts. Raises UsageError for an unknown metric.
    """

    def __init__(self, names: Sequence[str], mask: Mask, count: int) -> None:
        self.names, self.count = tuple(names), count
        self.i = np.arange(count)
        self.see = sight_of(mask, count)
        rows = FormRows(self.i, self.see, About(), count)
        self.shared: dict[int, Coefficients] = {}
        self.by_row: dict[int, Metric] = {}
        self.by_text: dict[int, Metric] = {}
        for at, metric in enumerate(map(known, names)):
            if metric.needs:
                self.by_text[at] = metric
                continue
            found = coefficients(metric, rows)
            if found is None:
                self.by_row[at] = metric
            else:
                self.shared[at] = found
        self.of_special: dict[int, tuple[bytes, Coefficients]] = {}
        """By metric: which tokens were special in the last text, and its coefficients."""
        self._columns: dict[tuple[str, str], Array] = {}
        parts = self.parts()
        self.constant = np.array([part.constant for part in parts])
        self.keyed = np.array([part.keys is not None for part in parts], bool)
        names_of_facts = dict.fromkeys(name for part in parts for name in part.facts)
        zero = np.zeros(count)
        self.facts = {name: np.stack([part.facts.get(name, zero) for part in parts], -1) for name in names_of_facts}
        even = uniform_rows(self.i, self.see, About())
        self.baseline = np.full(len(names), np.nan)
        self.rows = np.zeros(len(names), np.int64)
        for at, metric in enumerate(map(known, names)):
            if metric.needs:
                continue
            held = metric.of(even)
            used = np.broadcast_to(held.used, np.shape(held.value))[0]
            value = np.broadcast_to(held.value, (1, count))[0][used].sum()
            norm = used.sum() if held.weight is None else np.broadcast_to(held.weight, (1, count))[0][used].sum()
            self.baseline[at] = value / norm if norm > 0 else np.nan
            self.rows[at] = used.sum()

    @staticmethod
    def fits(names: Sequence[str], count: int) -> bool:
        """Whether texts of this length are measured by coefficients."""
        return count * count * (len(names) + 1) <= LARGEST

    def columns(self, backend: Backend, dtype: str) -> Array:
        """The shared coefficients, [query · key, column]; the columns of each metric's value and norm in order."""
        if (backend.name, dtype) not in self._columns:
            stacked = [part.keys.reshape(-1) for part in self.parts() if part.keys is not None]
            kind = np.float64 if dtype == "float64" else np.float32
            none = np.zeros((self.count * self.count, 0))
            held = np.stack(stacked, -1, dtype=kind, casting="same_kind") if stacked else none
            self._columns[backend.name, dtype] = backend.cast(backend.keep(held), dtype)
        return self._columns[backend.name, dtype]

    def parts(self) -> list[Summed]:
        """Values and norms of the shared metrics, in the order of `columns`."""
        return [part for one in self.shared.values() for part in (one.value, one.norm) if part is not None]


def sight_of(mask: Mask, count: int) -> Sight:
    """What each of `count` queries sees of as many keys under a mask that is known by position."""
    i = np.arange(count)
    found = of_mask(mask, i, count)
    if found is not None:
        return found
    numpy = numpy_backend("float64")
    seen: Bools = np.asarray(visible(mask, i[:, None], i[None, :], keys=count, backend=numpy))
    return sight(np.broadcast_to(seen, (*seen.shape[:-2], count, count)), count, 0, count)


def about_coefficients(length: Length, about: About) -> dict[int, Coefficients]:
    """The coefficients of the metrics that depend on a text's tokens. about: all of it known."""
    rows = FormRows(length.i, length.see, about, length.count)
    found = {}
    for at, metric in length.by_text.items():
        told = about.special.tobytes() if metric.needs == "special" and about.special is not None else b""
        last = length.of_special.get(at)
        if told and last is not None and last[0] == told:  # most texts of one length have their special tokens alike
            found[at] = last[1]
            continue
        one = coefficients(metric, rows)
        if one is not None:
            found[at] = one
            if told:
                length.of_special[at] = (told, one)
    return found


class Texts:
    """The coefficients of some texts of one length. abouts: what is known of each text's tokens."""

    def __init__(self, length: Length, abouts: Sequence[About]) -> None:
        self.length, self._abouts = length, abouts
        self.own = [about_coefficients(length, about) for about in abouts]
        even = length.see.spread() if length.see.seen is not None else None
        if even is None:
            j = length.i
            shown = (j >= length.see.first[..., None]) & (j <= length.see.last[..., None])
            even = shown / np.maximum(length.see.count, 1)[..., None]
        self.baseline = np.repeat(length.baseline[None], len(abouts), 0)
        self.rows = length.rows.copy()
        known: dict[int, float] = {}  # most texts have some coefficients alike
        for text, own in enumerate(self.own):
            for at, one in own.items():
                if id(one) not in known:
                    norm = one.rows if one.norm is None else _of(one.norm, even[0])
                    known[id(one)] = _of(one.value, even[0]) / norm if norm > 0 else np.nan
                self.baseline[text, at], self.rows[at] = known[id(one)], one.rows
            for at in length.by_text.keys() - own.keys():
                held = length.by_text[at].of(uniform_rows(length.i, length.see, abouts[text]))
                summed, weight, self.rows[at] = _added_up(held, 1, length.count)
                self.baseline[text, at] = summed[0] / weight[0] if weight[0] > 0 else np.nan
        self._columns: dict[tuple[str, str], Array] = {}

    def columns(self, backend: Backend, dtype: str) -> Array:
        """The texts' own coefficients, [text, query · key, column]; values and norms in the order of the metrics."""
        if (backend.name, dtype) not in self._columns:
            held = np.zeros((len(self.own), 2 * len(self.length.by_text), self.length.count**2), np.float32)
            for text, own in enumerate(self.own):
                for place, at in enumerate(self.length.by_text):
                    if at not in own:
                        continue
                    for side, part in enumerate((own[at].value, own[at].norm)):
                        if part is not None and part.keys is not None:
                            held[text, 2 * place + side] = part.keys.reshape(-1)
            self._columns[backend.name, dtype] = backend.transpose(backend.cast(backend.keep(held), dtype))
        return self._columns[backend.name, dtype]

    def sums(self, backend: Backend, weights: Array, entropy: Array | None) -> Sums:
        """Measure a layer. weights: [text, head, query, key] over the texts' own keys; entropy: [text, head, query] in
        nats where the attention step has told it, else None."""
        length = self.length
        texts, heads, count = weights.shape[0], weights.shape[1], length.count
        dtype = backend.dtype_of(weights)
        flat = weights.reshape((texts, heads, count * count))
        value = np.zeros((texts, heads, len(length.names)))
        norm = np.zeros_like(value)
        facts = _Facts(backend, weights, entropy)
        products = _float(backend, backend.matmul(flat, length.columns(backend, dtype)))
        totals = np.zeros((texts, heads, length.constant.size)) + length.constant
        totals[..., length.keyed] += products
        for name, coefficients_of in length.facts.items():
            totals += facts.of(name) @ coefficients_of
        column = 0
        for at, one in length.shared.items():
            value[..., at], column = totals[..., column], column + 1
            if one.norm is None:
                norm[..., at] = one.rows
            else:
                norm[..., at], column = totals[..., column], column + 1
        if length.by_text:
            products = _float(backend, backend.matmul(flat, self.columns(backend, dtype)))
            for place, at in enumerate(length.by_text):
                for text, own in enumerate(self.own):
                    if at not in own:  # not linear: row by row, as everywhere
                        told = None if entropy is None else entropy[text]
                        rows = self._rows(backend, weights[text], self._abouts[text], told)
                        value[text, :, at], norm[text, :, at], _ = _added_up(length.by_text[at].of(rows), heads, count)
                        continue
                    one = own[at]
                    value[text, :, at] = one.value.constant + products[text, :, 2 * place]
                    norm[text, :, at] = one.rows if one.norm is None else products[text, :, 2 * place + 1]
        if length.by_row:
            told = None if entropy is None else entropy.reshape((texts * heads, count))
            rows = self._rows(backend, weights.reshape((texts * heads, count, count)), About(), told)
            for at, metric in length.by_row.items():
                summed, weight, _ = _added_up(metric.of(rows), texts * heads, count)
                value[..., at], norm[..., at] = summed.reshape((texts, heads)), weight.reshape((texts, heads))
        return Sums(value, norm, self.rows, self.baseline)

    def _rows(self, backend: Backend, weights: Array, about: About, entropy: Array | None) -> WeightRows:
        told = {} if entropy is None else {"entropy": entropy}
        return WeightRows(backend, weights, self.length.i, 0, self.length.see, about, told)


class _Facts:
    """Facts of rows that are not linear in the weights, each computed when a metric needs it."""

    def __init__(self, backend: Backend, weights: Array, entropy: Array | None) -> None:
        self._backend, self._weights = backend, weights
        self._known = {} if entropy is None else {"entropy": _float(backend, entropy)}

    def of(self, name: str) -> Floats:
        """A fact of each row, [text, head, query]."""
        if name not in self._known:
            backend, weights = self._backend, self._weights
            match name:
                case "entropy":
                    self._known[name] = _float(backend, backend.entropy(weights))
                case "peak":
                    self._known[name] = np.maximum(self.of("peak_beyond_first"), _float(backend, weights[..., 0]))
                case _:
                    beyond = weights[..., 1:]
                    found = backend.max(beyond, -1)[..., 0] if beyond.shape[-1] else weights[..., 0] * 0.0
                    self._known[name] = _float(backend, found)
        return self._known[name]


def _added_up(found: PerRow, heads: int, count: int) -> tuple[Floats, Floats, int]:
    """A metric's value and norm of each head, and how many rows it uses."""
    used = np.broadcast_to(found.used, (heads, count))
    value = np.where(used, np.broadcast_to(found.value, used.shape), 0.0).sum(-1)
    norm = used if found.weight is None else np.where(used, np.broadcast_to(found.weight, used.shape), 0.0)
    return value, norm.sum(-1).astype(np.float64), int(used[0].sum())


def _of(part: Summed, even: Floats) -> float:
    """A summed form of uniform weights [query, key]; metrics that need tokens use no facts but weights."""
    return part.constant + (0.0 if part.keys is None else float((part.keys * even).sum()))


def _float(backend: Backend, array: Array) -> Floats:
    found: Floats = np.asarray(backend.numpy(array), np.float64)
    return found
