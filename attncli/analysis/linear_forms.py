"""Metrics as linear forms: the coefficients that a metric's own formula gives to each weight.

Most metrics are linear in the weights, so for texts of one length their values are one matrix product. The formula
is asked for its coefficients instead of being written down again: `FormRows` answers the questions of
`row_facts.AttentionRows`
with symbols, and what the formula makes of them is a `LinearForm`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.analysis.metrics import Metric
from attncli.analysis.row_facts import TokenFacts
from attncli.analysis.visible_keys import Bools, Floats, Ints, Sight


class LinearForm:
    """constant_i + Σ_j keys_ij A_ij + Σ_f facts_f,i f_i: one number per query row, as a function of the weights.

    constant: float64 [row]. keys: float64 [row, key], None for 0. facts: float64 [row] of what is not linear
    in the weights, but may be in a metric: entropy, peak, peak_beyond_first.
    Sums of forms, and forms times or divided by numbers or arrays [row] or [1, row], are forms; anything else is a
    TypeError.
    """

    __array_ufunc__ = None  # array + form is asked of the form

    def __init__(self, constant: Floats, keys: Floats | None, facts: Mapping[str, Floats]) -> None:
        self.constant, self.keys, self.facts = constant, keys, dict(facts)

    def _row(self, value: Any) -> Floats:
        """Numbers as [row], or [1] for all rows."""
        values = np.asarray(value, np.float64)
        if values.ndim == 2 and values.shape[0] != 1:
            raise TypeError("coefficients that differ between heads have no common form")
        return values.reshape(-1)

    def __add__(self, addend: Any) -> LinearForm:
        if not isinstance(addend, LinearForm):
            return LinearForm(self.constant + self._row(addend), self.keys, self.facts)
        keys = self.keys if addend.keys is None else addend.keys if self.keys is None else self.keys + addend.keys
        names = dict.fromkeys((*self.facts, *addend.facts))
        zero = np.zeros_like(self.constant)
        facts = {name: self.facts.get(name, zero) + addend.facts.get(name, zero) for name in names}
        return LinearForm(self.constant + addend.constant, keys, facts)

    __radd__ = __add__

    def __mul__(self, factor: Any) -> LinearForm:
        if isinstance(factor, LinearForm):
            raise TypeError("a product of two forms is not linear")
        row = self._row(factor)
        facts = {name: fact * row for name, fact in self.facts.items()}
        return LinearForm(self.constant * row, None if self.keys is None else self.keys * row[:, None], facts)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> LinearForm:
        if isinstance(divisor, LinearForm):
            raise TypeError("a quotient of two forms is not linear")
        return self * (1.0 / self._row(divisor))

    def __neg__(self) -> LinearForm:
        return self * -1.0

    def __sub__(self, subtrahend: Any) -> LinearForm:
        return self + (-subtrahend)

    def __rsub__(self, minuend: Any) -> LinearForm:
        return -self + minuend

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...], settings: Mapping[str, Any]
    ) -> Any:
        """np.where(rows, form or numbers, form or numbers); no other function of NumPy takes a form."""
        del types
        if function is not np.where or len(args) != 3 or settings:
            raise TypeError(f"{function.__name__} is not linear")
        condition = self._row(args[0])
        return self._form(args[1]) * condition + self._form(args[2]) * (1.0 - condition)

    def _form(self, value: Any) -> LinearForm:
        return value if isinstance(value, LinearForm) else LinearForm(self._row(value), None, {})


class FormRows:
    """The questions of `row_facts.AttentionRows`, answered with forms over keys 0..keys-1.

    i, sight, about: as there.
    """

    heads = 1

    def __init__(self, i: Ints, sight: Sight, about: TokenFacts, keys: int) -> None:
        self.i, self.sight, self.about, self._j = i, sight, about, np.arange(keys)

    def _of(self, coefficients: Any) -> Any:
        return LinearForm(np.zeros(self.i.size), np.asarray(coefficients, np.float64), {})

    def _fact(self, name: str) -> Any:
        return LinearForm(np.zeros(self.i.size), None, {name: np.ones(self.i.size)})

    @property
    def total(self) -> Any:
        return self._of(np.ones((self.i.size, self._j.size)))

    @property
    def entropy(self) -> Any:
        return self._fact("entropy")

    @property
    def peak(self) -> Any:
        return self._fact("peak")

    @property
    def peak_beyond_first(self) -> Any:
        return self._fact("peak_beyond_first")

    @property
    def moments(self) -> tuple[Any, Any]:
        steps = self._j[None, :] - self.i[:, None]
        return self._of(np.abs(steps)), self._of(steps)

    @property
    def rest(self) -> Any:
        return self._of((self._j[None, :] != self.i[:, None]) & (self._j != 0))

    def at_offset(self, offset: int) -> Any:
        return self._of(self._j[None, :] == self.i[:, None] + offset)

    def key(self, k: int) -> Any:
        return self._of(np.broadcast_to(self._j == k, (self.i.size, self._j.size)))

    def mass(self, key_mask: Bools) -> Any:
        return self._of(np.broadcast_to(key_mask[: self._j.size], (self.i.size, self._j.size)))

    def same(self, after: int) -> Any:
        assert self.about.pairs is not None
        rows, keys = self.about.pairs.of(self.i, after)
        matrix = np.zeros((self.i.size, self._j.size))
        np.add.at(matrix, (rows, keys), 1.0)
        return self._of(matrix)


class FormSum(Struct, frozen=True, eq=False):
    """A form added up over the rows that a metric uses: constant + Σ_ij keys_ij A_ij + Σ_f,i facts_f,i f_i."""

    constant: float
    keys: Floats | None
    facts: Mapping[str, Floats]


class Coefficients(Struct, frozen=True, eq=False):
    """A metric as a quotient: value / norm. norm: None for the number of rows. rows: how many rows it uses."""

    value: FormSum
    norm: FormSum | None
    rows: int


def coefficients(metric: Metric, rows: FormRows) -> Coefficients | None:
    """What the metric's own formula gives to each weight; None for a metric that is not linear in weights and facts."""
    try:
        per_row = metric.of(rows)
        used_rows = np.asarray(per_row.used_rows)
        if used_rows.ndim == 2 and used_rows.shape[0] != 1:
            return None
        row_mask = np.broadcast_to(used_rows.reshape(-1), rows.i.shape).astype(np.float64)
        zero = LinearForm(np.zeros(rows.i.size), None, {})
        value = _sum_rows(zero + per_row.value, row_mask)
        norm = None if per_row.weight is None else _sum_rows(zero + per_row.weight, row_mask)
    except TypeError:
        return None
    return Coefficients(value, norm, int(row_mask.sum()))


def _sum_rows(form: LinearForm, row_mask: Floats) -> FormSum:
    kept_form = form * row_mask
    return FormSum(float(kept_form.constant.sum()), kept_form.keys, kept_form.facts)
