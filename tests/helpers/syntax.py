"""Syntax of Python files, for the tests that read the source: parsed once, walked without its expressions.

In: texts. Out: trees, which nobody changes. Touches: nothing.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields that hold statements, or what holds statements."""


@functools.cache
def parsed(text: str) -> ast.Module:
    """The tree of a text."""
    return ast.parse(text)


def statements(text: str) -> Iterator[ast.AST]:
    """Every statement of a text, those inside others included; a tenth of what `ast.walk` visits."""
    todo: list[ast.AST] = [*parsed(text).body]
    while todo:
        node = todo.pop()
        yield node
        todo += below(node)


def below(node: ast.AST) -> list[ast.AST]:
    """Statements right inside a statement."""
    return [inner for block in BLOCKS for inner in getattr(node, block, ())]
