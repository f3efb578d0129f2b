"""Syntax trees of Python sources, each parsed once a process: many tests of the house read all of
the package.
"""

from __future__ import annotations

import ast
import gc
from functools import cache


@cache
def tree(source: str) -> ast.Module:
    """The tree of a source. Nothing in it is garbage, so that looking for some would only take
    time: a third of it all.
    """
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


@cache
def nodes(source: str) -> list[ast.AST]:
    """All nodes of a source, outer ones first."""
    return list(ast.walk(tree(source)))


def forget() -> None:
    """Let the trees go: they take hundreds of megabytes."""
    tree.cache_clear()
    nodes.cache_clear()
