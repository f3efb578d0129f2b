"""How densely the package is written: the bars of plain statements."""

from __future__ import annotations

import ast
from functools import cache

from house.density import PACKAGE, Density, complexity, density_of

MOST_COMPLEX = 20
"""The complexity that no function may pass."""
CONDITIONAL = 25
"""Conditional expressions a hundred functions."""


@cache
def package() -> Density:
    return density_of(sorted(PACKAGE.rglob("*.py")))


def test_tuple_assignments_are_few() -> None:
    assert 100 * package().tuple_assignments <= 5 * package().functions


def test_long_lines_are_few() -> None:
    assert 100 * package().long_lines <= package().lines


def test_conditional_expressions_become_fewer() -> None:
    assert 100 * package().conditional_expressions <= CONDITIONAL * package().functions


def test_no_function_has_many_ways_through_it() -> None:
    worst = {place: count for place, count in package().complexity.items() if count > MOST_COMPLEX}
    assert worst == {}


def test_each_way_through_a_function_counts() -> None:
    source = """
def pick(values, most):
    if not values or most < 0:
        return []
    for value in values:
        yield value if value else most
    return [value for value in values if value and most]
"""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert complexity(function) == 8
