"""Counts how densely the package is written; as a program it prints the counts and the worst.

PYTHONPATH=tests python tests/house/density.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import syntax

PACKAGE = Path(__file__).parents[2] / "attncli"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DECISIONS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.match_case,
)  # fmt: skip
"""Each adds one way through a function."""


class Density(NamedTuple):
    """What was counted in some sources, and the complexity of each function by its place."""

    functions: int
    conditional_expressions: int
    tuple_assignments: int
    lines: int
    long_lines: int
    complexity: dict[str, int]


def own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions and classes within it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FunctionNode.__args__, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def complexity(function: FunctionNode) -> int:
    """The ways through a function: one, and one more for each decision, each condition of a
    comprehension and each `and` or `or`.
    """
    count = 1
    for node in own_nodes(function):
        if isinstance(node, DECISIONS):
            count += 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def is_tuple_assignment(node: ast.AST) -> bool:
    """Whether a statement assigns several values that it writes side by side: `a, b = 1, 2`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return isinstance(node.targets[0], ast.Tuple)


def density_of(paths: list[Path]) -> Density:
    """The counts of these source files."""
    functions = conditional_expressions = tuple_assignments = lines = long_lines = 0
    complexities: dict[str, int] = {}
    for path in paths:
        source = path.read_text("utf-8")
        lines += len(source.splitlines())
        long_lines += sum(len(line) > 100 for line in source.splitlines())
        for node in syntax.nodes(source):
            conditional_expressions += isinstance(node, ast.IfExp)
            tuple_assignments += is_tuple_assignment(node)
            if isinstance(node, FunctionNode):
                functions += 1
                place = f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
                complexities[place] = complexity(node)
    return Density(
        functions, conditional_expressions, tuple_assignments, lines, long_lines, complexities
    )


if __name__ == "__main__":
    density = density_of(sorted(PACKAGE.rglob("*.py")))
    hundreds = density.functions / 100
    print(f"functions                {density.functions:>6}")
    print(f"conditional expressions  {density.conditional_expressions / hundreds:>6.1f} a hundred")
    print(f"tuple assignments        {density.tuple_assignments / hundreds:>6.1f} a hundred")
    print(f"lines over 100           {100 * density.long_lines / density.lines:>6.2f} %")
    for place, count in sorted(density.complexity.items(), key=lambda item: -item[1]):
        if count > 20:
            print(f"{count:>6}  {place}")
