"""Metrics of many texts of one length at once: one matrix product where `measure` goes through
rows.

The metrics are those of `attncli.measure.metric`, asked for their coefficients; those that are not
linear are computed from the rows, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from attncli.arrays.backend import Array, Backend, numpy_backend
from attncli.measure.metric import Metric, PerRow, metric_of, uniform_rows
from attncli.measure.row_facts import (
    Bools,
    Floats,
    Ints,
    Sight,
    TokenFacts,
    WeightRows,
    entropy_of_part,
    find_sight,
    sight_of_mask,
)
from attncli.mechanism.mask import Mask, visible

# Metrics as linear forms: the coefficients that a metric's own formula gives to each weight.


class LinearForm:
    """A linear form of attention weights A: constant_i + Σ_j keys_ij A_ij + Σ_f facts_f,i f_i, one
    number per query row i. Forms can be added and multiplied by numbers, so that a metric's formula
    yields its coefficients when it is called with forms in place of numbers.

    constant: float64 [row].
    keys: float64 [row, key], None for 0.
    facts: by name, float64 [row], the coefficient of each fact of a row that is not linear in the
        weights, but in which a metric may be: entropy, peak, peak_beyond_first.

    Sums of forms, and forms times or divided by numbers or arrays [row] or [1, row], are forms;
    anything else is a TypeError.
    """

    __array_ufunc__ = None  # array + form is asked of the form

    def __init__(self, constant: Floats, keys: Floats | None, facts: Mapping[str, Floats]) -> None:
        self.constant = constant
        self.keys = keys
        self.facts = dict(facts)

    def _as_row(self, value: Any) -> Floats:
        """Numbers as float64 [row], or [1] where all rows have the same. Raises TypeError for
        numbers that differ between heads."""
        values = np.asarray(value, np.float64)
        if values.ndim == 2 and values.shape[0] != 1:
            raise TypeError("coefficients that differ between heads have no common form")
        return values.reshape(-1)

    def __add__(self, addend: Any) -> LinearForm:
        """The sum with another form, or with numbers."""
        if not isinstance(addend, LinearForm):
            return LinearForm(self.constant + self._as_row(addend), self.keys, self.facts)
        if addend.keys is None:
            keys = self.keys
        elif self.keys is None:
            keys = addend.keys
        else:
            keys = self.keys + addend.keys
        names = dict.fromkeys((*self.facts, *addend.facts))
        zero = np.zeros_like(self.constant)
        facts = {name: self.facts.get(name, zero) + addend.facts.get(name, zero) for name in names}
        return LinearForm(self.constant + addend.constant, keys, facts)

    __radd__ = __add__

    def __mul__(self, factor: Any) -> LinearForm:
        """The product with numbers; TypeError for a form, since the product is not linear."""
        if isinstance(factor, LinearForm):
            raise TypeError("a product of two forms is not linear")
        row = self._as_row(factor)
        facts = {name: fact * row for name, fact in self.facts.items()}
        return LinearForm(
            self.constant * row, None if self.keys is None else self.keys * row[:, None], facts
        )

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> LinearForm:
        """The quotient by numbers; TypeError for a form, since the quotient is not linear."""
        if isinstance(divisor, LinearForm):
            raise TypeError("a quotient of two forms is not linear")
        return self * (1.0 / self._as_row(divisor))

    def __neg__(self) -> LinearForm:
        """The form times −1."""
        return self * -1.0

    def __sub__(self, subtrahend: Any) -> LinearForm:
        """The form less another, or less numbers."""
        return self + (-subtrahend)

    def __rsub__(self, minuend: Any) -> LinearForm:
        """Numbers less the form."""
        return -self + minuend

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...],
        settings: Mapping[str, Any],
    ) -> Any:
        """Called by NumPy where a form is given to one of its functions: np.where(rows, a, b) of
        forms or numbers is a form; every other function raises TypeError.
        """
        del types
        if function is not np.where or len(args) != 3 or settings:
            raise TypeError(f"{function.__name__} is not linear")
        # 1 in rows that take the second argument, 0 in those that take the third
        condition = self._as_row(args[0])
        return self._as_form(args[1]) * condition + self._as_form(args[2]) * (1.0 - condition)

    def _as_form(self, value: Any) -> LinearForm:
        """A value as a form: a form itself, or numbers as a form's constant."""
        if isinstance(value, LinearForm):
            return value
        return LinearForm(self._as_row(value), keys=None, facts={})


class FormRows:
    """An `AttentionRows` (facts of a block of query rows) whose every fact is a `LinearForm` over
    keys 0..keys-1 in place of numbers. It is of one head: the coefficients are the same for all.

    i: the index of each query row, [row].
    sight: which keys each row sees.
    about: what is known of the tokens.
    """

    heads = 1

    def __init__(self, i: Ints, sight: Sight, about: TokenFacts, keys: int) -> None:
        self.i = i
        self.sight = sight
        self.about = about
        self._j = np.arange(keys)

    def __getattr__(self, fact: str) -> Any:
        """Raises TypeError: this fact has no linear form, so a metric that uses it must be computed
        row by row.
        """
        raise TypeError(f"{fact} has no linear form")

    def _weights_form(self, coefficients: Any) -> Any:
        """The linear form Σ_j coefficients_ij A_ij of each row i.

        coefficients: [row, key].
        """
        return LinearForm(np.zeros(self.i.size), np.asarray(coefficients, np.float64), facts={})

    def _fact_form(self, name: str) -> Any:
        """The form that equals the fact of this name, such as "entropy", in each row."""
        return LinearForm(np.zeros(self.i.size), keys=None, facts={name: np.ones(self.i.size)})

    @property
    def total(self) -> Any:
        """The linear form that equals Σ_j A_ij."""
        return self._weights_form(np.ones((self.i.size, self._j.size)))

    @property
    def entropy(self) -> Any:
        """The linear form that equals each row's entropy −Σ_j A_ij ln A_ij in nats."""
        return self._fact_form("entropy")

    @property
    def peak(self) -> Any:
        """The linear form that equals the largest weight of each row."""
        return self._fact_form("peak")

    @property
    def peak_beyond_first(self) -> Any:
        """The linear form that equals the largest weight of each row on a key other than key 0."""
        return self._fact_form("peak_beyond_first")

    @property
    def entropy_beyond_first(self) -> Any:
        """The linear form that equals −Σ_{j>0} A_ij ln(A_ij / s), s = Σ_{j>0} A_ij, of each row."""
        return self._fact_form("entropy_beyond_first")

    @property
    def moments(self) -> tuple[Any, Any]:
        """The linear forms that equal Σ_j A_ij |i − j| and Σ_j A_ij (j − i)."""
        steps = self._j[None, :] - self.i[:, None]
        return self._weights_form(np.abs(steps)), self._weights_form(steps)

    @property
    def rest(self) -> Any:
        """The linear form that equals Σ_j A_ij without key 0 and the query itself."""
        return self._weights_form((self._j[None, :] != self.i[:, None]) & (self._j != 0))

    def at_offset(self, offset: int) -> Any:
        """The linear form that equals A_{i, i+offset}."""
        return self._weights_form(self._j[None, :] == self.i[:, None] + offset)

    def key(self, k: int) -> Any:
        """The linear form that equals A_ik."""
        return self._weights_form(np.broadcast_to(self._j == k, (self.i.size, self._j.size)))

    def mass(self, key_mask: Bools) -> Any:
        """The linear form that equals Σ A_ij over the keys in `key_mask`."""
        return self._weights_form(
            np.broadcast_to(key_mask[: self._j.size], (self.i.size, self._j.size))
        )

    def at_pairs(self, rows: Ints, keys: Ints) -> Any:
        """The linear form that equals Σ A_ij over the pairs (row, key), integers [pair], row by row."""
        matrix = np.zeros((self.i.size, self._j.size))
        np.add.at(matrix, (rows, keys), 1.0)
        return self._weights_form(matrix)


class FormSum(Struct, frozen=True, eq=False):
    """A linear form summed over the rows that a metric uses: constant + Σ_ij keys_ij A_ij + Σ_f,i
    facts_f,i f_i, one number per head."""

    constant: float
    keys: Floats | None
    facts: Mapping[str, Floats]


class Coefficients(Struct, frozen=True, eq=False):
    """The coefficients of a metric that is a quotient of two summed forms, value / norm.

    norm: None where it is the number of rows used, `rows`.
    """

    value: FormSum
    norm: FormSum | None
    rows: int


def coefficients(metric: Metric, rows: FormRows) -> Coefficients | None:
    """The coefficients of a metric, which come out when its formula is run on linear forms; None
    for a metric that is not linear in weights and facts: then a form raises TypeError in its
    formula.

    rows: stands for rows of weights whose numbers are not known yet.
    """
    try:
        per_row = metric.of(rows)
        used_rows = np.asarray(per_row.used_rows)
        if used_rows.ndim == 2 and used_rows.shape[0] != 1:
            return None  # rows that differ between heads have no coefficients in common
        row_mask = np.broadcast_to(used_rows.reshape(-1), rows.i.shape).astype(np.float64)
        # added to zero, a plain number becomes a form
        zero = LinearForm(np.zeros(rows.i.size), keys=None, facts={})
        value = _sum_rows(zero + per_row.value, row_mask)
        if per_row.weight is None:
            norm = None
        else:
            norm = _sum_rows(zero + per_row.weight, row_mask)
    except TypeError:
        return None
    return Coefficients(value, norm, int(row_mask.sum()))


def _sum_rows(form: LinearForm, row_mask: Floats) -> FormSum:
    """A form summed over the rows where the mask is 1."""
    kept_form = form * row_mask
    return FormSum(float(kept_form.constant.sum()), kept_form.keys, kept_form.facts)


LARGEST = 1 << 22
"""Coefficients of texts of one length that are held at most; longer texts are measured row by
row."""


class Sums(Struct, frozen=True, eq=False):
    """The sums of metrics over the query rows of one layer's heads, for each text of a batch.

    value, norm: float64 [text, head, metric]; a metric is value / norm, NaN where norm is 0.
    rows: query rows used, integers [metric].
    baseline: value / norm of uniform attention, float64 [text, metric].
    """

    value: Floats
    norm: Floats
    rows: np.ndarray[Any, np.dtype[np.int64]]
    baseline: Floats


class LengthTally:
    """The coefficients of metrics that all texts of `count` tokens share under one mask; metrics
    that depend on tokens are left to each text.

    Metrics that need no tokens are prepared once for all such texts. Raises UsageError for an
    unknown metric.
    """

    def __init__(self, names: Sequence[str | Metric], mask: Mask, count: int) -> None:
        """Sort the metrics by how they are measured, and compute what all texts of `count` tokens
        share: coefficients, and the values of uniform attention.

        names: of the metrics, or metrics themselves.
        mask: which all texts have.
        count: tokens of each text.
        """
        self.names = tuple(names)
        self.count = count
        self.i = np.arange(count)
        self.sight = sight_of(mask, count)

        # each metric's index in `names` is in one of three: its coefficients are the same for all
        # texts; it is not linear; or it needs to know the tokens of a text
        rows = FormRows(self.i, self.sight, TokenFacts(), count)
        self.by_coefficients: dict[int, Coefficients] = {}
        self.by_row: dict[int, Metric] = {}
        self.by_text: dict[int, Metric] = {}
        for index, metric in enumerate(map(metric_of, names)):
            if metric.needs:
                self.by_text[index] = metric
                continue
            of_metric = coefficients(metric, rows)
            if of_metric is None:
                self.by_row[index] = metric
            else:
                self.by_coefficients[index] = of_metric
        self.of_special: dict[int, tuple[bytes, Coefficients]] = {}
        """By metric: which tokens were special in the last text, and the coefficients there."""
        # by the backend's name and the type of numbers: what `columns` returned
        self._columns: dict[tuple[str, str], Array] = {}

        # the terms of the summed forms: constants [form], whether a form has coefficients of
        # weights [form], and the coefficients of the other facts, by fact, [query, form]
        forms = self.summed_forms()
        self.constants = np.array([form.constant for form in forms])
        self.uses_weights = np.array([form.keys is not None for form in forms], bool)
        fact_names = dict.fromkeys(name for form in forms for name in form.facts)
        zero = np.zeros(count)
        self.fact_coefficients = {}
        for name in fact_names:
            of_forms = [form.facts.get(name, zero) for form in forms]
            self.fact_coefficients[name] = np.stack(of_forms, -1)
        self.baseline, self.rows = self._baselines()

    def _baselines(self) -> tuple[Floats, np.ndarray[Any, np.dtype[np.int64]]]:
        """The value of each metric for uniform attention, NaN for those that need tokens; and over
        how many rows each is taken, 0 for those. Both [metric]."""
        even_rows = uniform_rows(self.i, self.sight, TokenFacts())
        baseline = np.full(len(self.names), np.nan)
        rows = np.zeros(len(self.names), np.int64)
        for index, metric in enumerate(map(metric_of, self.names)):
            if metric.needs:
                continue
            # only the rows that count are added up: zeros between them would pair the terms in
            # another order
            per_row = metric.of(
                even_rows
            )  # [1, row], as uniform attention is the same in every head
            used = np.broadcast_to(per_row.used_rows, np.shape(per_row.value))[0]
            if per_row.weight is None:
                row_weights = np.ones(self.count)
            else:
                row_weights = np.broadcast_to(per_row.weight, (1, self.count))[0]
            norm = row_weights[used].sum()
            value = np.broadcast_to(per_row.value, (1, self.count))[0][used].sum()
            baseline[index] = value / norm if norm > 0 else np.nan
            rows[index] = used.sum()
        return baseline, rows

    @staticmethod
    def fits(names: Sequence[str | Metric], count: int) -> bool:
        """Whether texts of `count` tokens are short enough to be measured by coefficients."""
        return count * count * (len(names) + 1) <= LARGEST

    def columns(self, backend: Backend, dtype: str) -> Array:
        """The coefficients of the shared metrics as a matrix [query · key, column]: a column for each
        of `summed_forms` that has coefficients of weights, which `uses_weights` marks.

        backend, dtype: where the weights lie that the matrix is multiplied with, and their type.
        """
        if (backend.name, dtype) not in self._columns:
            columns = [
                form.keys.reshape(-1) for form in self.summed_forms() if form.keys is not None
            ]
            # NumPy has no bfloat16: narrower types are rounded from float32 by the backend
            kind = np.float64 if dtype == "float64" else np.float32
            if columns:
                matrix = np.stack(columns, -1, dtype=kind, casting="same_kind")
            else:
                matrix = np.zeros((self.count * self.count, 0))
            self._columns[backend.name, dtype] = backend.cast(backend.array_as_is(matrix), dtype)
        return self._columns[backend.name, dtype]

    def summed_forms(self) -> list[FormSum]:
        """The summed forms of the shared metrics: of each metric its value, then its norm if it has
        one."""
        forms = []
        for of_metric in self.by_coefficients.values():
            forms.append(of_metric.value)
            if of_metric.norm is not None:
                forms.append(of_metric.norm)
        return forms


def sight_of(mask: Mask, count: int) -> Sight:
    """The `Sight` (which keys each row sees) of `count` queries over as many keys, under a mask that
    depends on positions alone."""
    i = np.arange(count)
    closed_form = sight_of_mask(mask, i, count)
    if closed_form is not None:
        return closed_form
    numpy = numpy_backend("float64")
    visibility: Bools = np.asarray(visible(mask, i[:, None], i[None, :], keys=count, backend=numpy))
    # a mask that is the same for all queries or all keys gives 1 in place of `count`
    matrices = np.broadcast_to(visibility, (*visibility.shape[:-2], count, count))
    return find_sight(matrices, count, 0, count)


def about_coefficients(length: LengthTally, about: TokenFacts) -> dict[int, Coefficients]:
    """The coefficients of the metrics that depend on a text's tokens, by the metric's index. Left out
    are metrics that are not linear in the weights alone; they are measured row by row.

    about: what is known of the tokens, all fields set.
    """
    rows = FormRows(length.i, length.sight, about, length.count)
    by_metric = {}
    for index, metric in length.by_text.items():
        # which tokens are special, as a key; b"" for metrics that need more than that of a text
        if metric.needs == "special" and about.special is not None:
            special_bytes = about.special.tobytes()
        else:
            special_bytes = b""
        # most texts of a length have special tokens at the same positions as the last one had: then
        # its coefficients are taken
        last_bytes, form = length.of_special.get(index, (b"", None))
        if not special_bytes or last_bytes != special_bytes:
            form = coefficients(metric, rows)
        if form is not None and _is_product(form):
            by_metric[index] = form
            if special_bytes:
                length.of_special[index] = (special_bytes, form)
    return by_metric


def _is_product(form: Coefficients) -> bool:
    """Whether products with the weights give all of a metric but a constant of its value: it uses no
    fact such as entropy, and its norm, if it has one, has no constant."""
    if form.norm is None:
        return not form.value.facts
    return not (form.value.facts or form.norm.facts or form.norm.constant)


class TextBatch:
    """The coefficients of metrics for some texts of one length.

    abouts: what is known of each text's tokens.
    """

    def __init__(self, length: LengthTally, abouts: Sequence[TokenFacts]) -> None:
        """Compute the coefficients that depend on each text's tokens, and what the metrics are for
        uniform attention.

        length: what all texts of this length share.
        abouts: what is known of the tokens of each text.
        """
        self.length = length
        self._abouts = abouts
        self.text_coefficients = [about_coefficients(length, about) for about in abouts]

        # the metrics of uniform attention, [text, metric]: those that all texts share are copied,
        # the others set below
        # [query, key], as in every head
        even_weights = length.sight.spread(length.count)[0]
        self.baseline = np.repeat(length.baseline[None], len(abouts), 0)
        # [metric]: over how many rows each is taken, the same for all texts of one length, so that
        # it does not matter which text sets it last
        self.rows = length.rows.copy()
        # by the `id` of a metric's coefficients, which most texts share: no id is used twice, as
        # `text_coefficients` keeps all of them alive
        even_values: dict[int, float] = {}
        for text, of_text in enumerate(self.text_coefficients):
            for index, form in of_text.items():
                if id(form) not in even_values:
                    if form.norm is None:
                        norm: float = form.rows
                    else:
                        norm = _value_of_form(form.norm, even_weights)
                    value = _value_of_form(form.value, even_weights)
                    even_values[id(form)] = value / norm if norm > 0 else np.nan
                self.baseline[text, index] = even_values[id(form)]
                self.rows[index] = form.rows
            # metrics that are not linear, by rows
            for index in length.by_text.keys() - of_text.keys():
                even_rows = uniform_rows(length.i, length.sight, abouts[text])
                per_row = length.by_text[index].of(even_rows)
                # of one head, as uniform attention is the same in every head
                values, norms, self.rows[index] = _row_sums(per_row, 1, length.count)
                self.baseline[text, index] = values[0] / norms[0] if norms[0] > 0 else np.nan
        # by the backend's name and the type of numbers: what `columns` returned
        self._columns: dict[tuple[str, str], Array] = {}

    def columns(self, backend: Backend, dtype: str) -> Array:
        """The coefficients of the metrics that depend on each text's tokens, [text, query · key,
        column]; for each metric the column of its value and then that of its norm.

        backend, dtype: where the weights lie that the matrix is multiplied with, and their type.
        """
        if (backend.name, dtype) not in self._columns:
            # filled as [text, column, query · key], whose rows are contiguous, and then transposed
            matrix = np.zeros(
                (len(self.text_coefficients), 2 * len(self.length.by_text), self.length.count**2),
                np.float32,
            )
            for text, of_text in enumerate(self.text_coefficients):
                for place, index in enumerate(self.length.by_text):
                    if index not in of_text:
                        continue
                    # columns 2 · place and 2 · place + 1: the metric's value and its norm; 0 for a
                    # norm that is the number of rows
                    for column, form in enumerate((of_text[index].value, of_text[index].norm)):
                        if form is not None and form.keys is not None:
                            matrix[text, 2 * place + column] = form.keys.reshape(-1)
            self._columns[backend.name, dtype] = backend.transpose(
                backend.cast(backend.array_as_is(matrix), dtype)
            )
        return self._columns[backend.name, dtype]

    def sums(self, backend: Backend, weights: Array, entropy: Array | None) -> Sums:
        """The sums of metrics over the rows of one layer, for each text and head.

        weights: [text, head, query, key] over the texts' own keys.
        entropy: [text, head, query] in nats where it is known already, else None.
        """
        length = self.length
        value = np.zeros((*weights.shape[:2], len(length.names)))
        norm = np.zeros_like(value)
        # each fills in the metrics that are its own
        self._add_shared(backend, weights, entropy, value, norm)
        if length.by_text:
            self._add_of_tokens(backend, weights, entropy, value, norm)
        if length.by_row:
            self._add_by_row(backend, weights, entropy, value, norm)
        return Sums(value, norm, self.rows, self.baseline)

    def _add_shared(
        self, backend: Backend, weights: Array, entropy: Array | None, value: Floats, norm: Floats
    ) -> None:
        """Set the sums of the metrics whose coefficients all texts share: one matrix product with
        the weights, and one with each fact beside them.

        weights, entropy: as of `sums`.
        value, norm: where the sums are written, [text, head, metric].
        """
        length = self.length
        texts, heads, count, _ = weights.shape
        columns = length.columns(backend, backend.dtype_of(weights))
        flat_weights = weights.reshape((texts, heads, count * count))
        products = _as_float64(backend, backend.matmul(flat_weights, columns))

        # [text, head, form], of the forms that `summed_forms` lists
        totals = np.zeros((texts, heads, length.constants.size)) + length.constants
        totals[..., length.uses_weights] += products
        facts = _BatchFacts(backend, weights, entropy)
        for name, fact_coefficients in length.fact_coefficients.items():
            totals += facts.of(name) @ fact_coefficients

        # a metric's value, then its norm if that is a form
        form = 0
        for index, of_metric in length.by_coefficients.items():
            value[..., index] = totals[..., form]
            form += 1
            if of_metric.norm is None:
                norm[..., index] = of_metric.rows
            else:
                norm[..., index] = totals[..., form]
                form += 1

    def _add_of_tokens(
        self, backend: Backend, weights: Array, entropy: Array | None, value: Floats, norm: Floats
    ) -> None:
        """Set the sums of the metrics that depend on a text's tokens: by a matrix product with the
        text's own coefficients, or row by row in a text where they are not linear.

        The arguments are those of `_add_shared`.
        """
        texts, heads, count, _ = weights.shape
        columns = self.columns(backend, backend.dtype_of(weights))
        flat_weights = weights.reshape((texts, heads, count * count))
        products = _as_float64(backend, backend.matmul(flat_weights, columns))
        for place, (index, metric) in enumerate(self.length.by_text.items()):
            for text, of_text in enumerate(self.text_coefficients):
                if index not in of_text:
                    text_entropy = None if entropy is None else entropy[text]
                    rows = self._rows(backend, weights[text], self._abouts[text], text_entropy)
                    row_sums = _row_sums(metric.of(rows), heads, count)
                    value[text, :, index], norm[text, :, index], _ = row_sums
                    continue
                # no other facts than weights and no constant in a norm: see `_is_product`
                of_metric = of_text[index]
                value[text, :, index] = of_metric.value.constant + products[text, :, 2 * place]
                if of_metric.norm is None:
                    norm[text, :, index] = of_metric.rows
                else:
                    norm[text, :, index] = products[text, :, 2 * place + 1]

    def _add_by_row(
        self, backend: Backend, weights: Array, entropy: Array | None, value: Floats, norm: Floats
    ) -> None:
        """Set the sums of the metrics that are not linear and need no tokens: from the rows of all
        texts' heads together, as if they were heads of one text.

        The arguments are those of `_add_shared`.
        """
        texts, heads, count, _ = weights.shape
        all_weights = weights.reshape((texts * heads, count, count))
        all_entropy = None if entropy is None else entropy.reshape((texts * heads, count))
        rows = self._rows(backend, all_weights, TokenFacts(), all_entropy)
        for index, metric in self.length.by_row.items():
            value_sums, norm_sums, _ = _row_sums(metric.of(rows), texts * heads, count)
            value[..., index] = value_sums.reshape((texts, heads))
            norm[..., index] = norm_sums.reshape((texts, heads))

    def _rows(
        self, backend: Backend, weights: Array, about: TokenFacts, entropy: Array | None
    ) -> WeightRows:
        """Rows of weights [head, query, key] as the `WeightRows` that metrics are computed from.

        about: what is known of the tokens.
        entropy: [head, query] where it is known already, else None.
        """
        if entropy is None:
            facts = {}
        else:
            facts = {"entropy": entropy}
        return WeightRows(backend, weights, self.length.i, 0, self.length.sight, about, facts)


class _BatchFacts:
    """Facts of rows that are not linear in the weights (entropy, largest weights) for a batch of
    texts, each computed when first needed.

    weights: [text, head, query, key].
    entropy: of each row, [text, head, query], where the attention step computed it; None to compute
        it from the weights.
    """

    def __init__(self, backend: Backend, weights: Array, entropy: Array | None) -> None:
        self._backend = backend
        self._weights = weights
        if entropy is None:
            self._values = {}
        else:
            self._values = {"entropy": _as_float64(backend, entropy)}

    def of(self, name: str) -> Floats:
        """The fact of this name, such as "entropy" or "peak", of each row, float64 [text, head,
        query].
        """
        if name not in self._values:
            backend = self._backend
            weights = self._weights
            match name:
                case "entropy":
                    self._values[name] = _as_float64(backend, backend.entropy(weights))
                case "entropy_beyond_first":  # of the keys after the first
                    first = _as_float64(backend, weights[..., 0])
                    others = _as_float64(backend, backend.sum(weights[..., 1:], -1)[..., 0])
                    self._values[name] = entropy_of_part(self.of("entropy"), first, others)
                case "peak":
                    self._values[name] = np.maximum(
                        self.of("peak_beyond_first"), _as_float64(backend, weights[..., 0])
                    )
                case _:  # "peak_beyond_first"; 0 where there is one key alone
                    beyond = weights[..., 1:]
                    if beyond.shape[-1]:
                        peaks = backend.max(beyond, -1)[..., 0]
                    else:
                        peaks = weights[..., 0] * 0.0  # zeros in the backend's own arrays
                    self._values[name] = _as_float64(backend, peaks)
        return self._values[name]


def _row_sums(per_row: PerRow, heads: int, count: int) -> tuple[Floats, Floats, int]:
    """The sums over rows of a metric's value and norm, each [head], and how many rows it uses.

    per_row: arrays that broadcast to [head, row].
    count: the number of rows.
    """
    used_rows = np.broadcast_to(per_row.used_rows, (heads, count))
    weight = 1.0 if per_row.weight is None else per_row.weight
    value = np.where(used_rows, per_row.value, 0.0).sum(-1)
    norm = np.where(used_rows, weight, 0.0).sum(-1)
    return value, norm, int(used_rows[0].sum())


def _value_of_form(form: FormSum, even_weights: Floats) -> float:
    """The number that a summed form has for the weights of uniform attention, [query, key]; the
    form uses no facts but weights."""
    if form.keys is None:
        return form.constant
    return form.constant + float((form.keys * even_weights).sum())


def _as_float64(backend: Backend, array: Array) -> Floats:
    """An array of any backend as float64 NumPy."""
    floats: Floats = np.asarray(backend.numpy(array), np.float64)
    return floats
