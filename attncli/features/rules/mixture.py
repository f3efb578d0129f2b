"""Weights of a mixture: least squares with weights of 0 or more that sum to 1, for many heads at
once.

With weights c of sum 1, ‖Σ c_r R_r − A‖² = cᵀ M c, where M_rs = ⟨R_r − A, R_s − A⟩. The smallest
cᵀ M c of sum 1 points where the smallest cᵀ M c + (Σc − 1)² does: along any direction both grow
alike. So this is a non-negative least-squares problem, solved exactly by an active set, and scaled.

Source: Lawson and Hanson, Solving least squares problems, 1974, chapter 23.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
ROUNDS = 300
"""Changes of the active set after which what is reached is taken; 40 rules need some 30."""
CLOSE = 1e-12
"""A gradient below this, against the largest number of a problem, is 0."""


class PairSums(Struct, frozen=True, eq=False):
    """Sums over pairs of query and key, all that the fit of mixtures needs.

    rules: Σ R_r R_s, [head, rule, rule].
    both: Σ R_r A, [head, rule].
    heads: Σ A², [head].
    """

    rules: Floats
    both: Floats
    heads: Floats

    def errors(self, weights: Floats) -> Floats:
        """Σ (Σ c_r R_r − A)² of these mixtures, [head].

        weights: [head, rule].
        """
        square = np.einsum("hr,hrs,hs->h", weights, self.rules, weights)
        errors: Floats = square - 2 * np.einsum("hr,hr->h", weights, self.both) + self.heads
        return errors


def fit_mixtures(sums: PairSums, allowed: Bools) -> Floats:
    """The weights of the rules that are allowed, [head, rule]: 0 or more, of sum 1, with the least
    squared error.

    sums: over all rows, of products of rules with rules and with the head's weights.
    allowed: which rules each head may have, [head, rule], at least one each.
    """
    # For weights c of sum 1 the error Σ (Σ c_r R_r − A)² is cᵀ M c, where M_rs = Σ (R_r − A)(R_s − A).
    # It is scaled to a largest diagonal of 1. The term (Σ c − 1)² draws the sum to 1: its quadratic
    # part is the ones that are added, its linear part the target
    both = sums.both
    problem = sums.rules - both[:, :, None] - both[:, None, :] + sums.heads[:, None, None]
    # 1e-300: nothing is divided by 0 for a head that is a rule exactly
    scale = np.maximum(np.einsum("hrr->hr", problem).max(-1), 1e-300)
    scaled: Floats = problem / scale[:, None, None] + 1.0
    weights = _least_non_negative(scaled, np.ones_like(both), allowed)
    mixtures: Floats = weights / weights.sum(-1, keepdims=True)
    return mixtures


def _least_non_negative(problem: Floats, target: Floats, allowed: Bools) -> Floats:
    """Solve many non-negative least-squares problems: the x ≥ 0 with the least xᵀ P x − 2 xᵀ t of
    each, [problem, variable]; variables that are not allowed stay 0.

    problem: P of each, [problem, variable, variable].
    target: t of each, [problem, variable].

    Problems go on together, each with an active set of its own (the variables that are not 0),
    which the variable of the largest gain joins, until none of them gains.
    """
    count, size = target.shape
    weights: Floats = np.zeros((count, size))
    active = np.zeros((count, size), bool)
    enters = np.ones(count, bool)
    for _ in range(ROUNDS):
        gradient = target - np.einsum("hrs,hs->hr", problem, weights)
        gains = np.where(allowed & ~active, gradient, -np.inf)
        best = gains.argmax(-1)
        enters = gains[np.arange(count), best] > CLOSE * size
        if not enters.any():
            break
        active[enters, best[enters]] = True
        _shrink(problem, target, weights, active, np.flatnonzero(enters))
    return weights


def _shrink(problem: Floats, target: Floats, weights: Floats, active: Bools, rows: Any) -> None:
    """Solve some problems for their active variables, leaving out those that would be negative,
    until all are positive. Changes `weights` and `active` in place.

    problem, target: of the quadratic xᵀ P x − 2 xᵀ t, P [problem, variable, variable] and t
        [problem, variable].
    weights: the x of each problem, [problem, variable].
    active: which variables are not 0, [problem, variable].
    rows: indices of the problems that are solved, [row].
    """
    while rows.size:
        # problems whose solution is positive are done
        solution = _solve_active(problem[rows], target[rows], active[rows])
        negative = active[rows] & (solution <= 0)
        has_negative = negative.any(-1)
        weights[rows[~has_negative]] = solution[~has_negative]
        rows = rows[has_negative]
        solution = solution[has_negative]
        negative = negative[has_negative]

        # the others go from their last weights toward the solution until a first variable is 0,
        # and that one leaves the active set
        before = weights[rows]
        fall = before - solution
        safe_fall = np.where(negative & (fall > 0), fall, 1.0)  # nothing is divided by 0
        # the share of the way after which each variable is 0, [problem, variable]
        steps = np.where(negative, before / safe_fall, np.inf)
        step = steps.min(-1, keepdims=True)
        weights[rows] = np.maximum(before + step * (solution - before), 0.0)
        leaves = negative & (steps <= step)
        active[rows] &= ~leaves
        weights[rows] *= active[rows]


def _solve_active(problem: Floats, target: Floats, active: Bools) -> Floats:
    """The solution of P x = t over the active variables, 0 elsewhere, [problem, variable]."""
    size = target.shape[-1]
    both = active[:, :, None] & active[:, None, :]
    # 1 on the diagonal of what is not active, and next to nothing elsewhere, so that it can be solved
    ridge: Floats = np.eye(size) * np.where(active, CLOSE, 1.0)[:, None, :]
    system: Floats = np.where(both, problem, 0.0) + ridge
    right = np.where(active, target, 0.0)[..., None]
    solution: Floats = np.asarray(np.linalg.solve(system, right), np.float64)[..., 0] * active
    return solution
