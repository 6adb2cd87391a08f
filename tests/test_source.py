"""Rules of the source that no linter knows."""

from __future__ import annotations

import ast

import pytest

from helpers.paths import ROOT

PACKAGES = [ROOT / "sketchstream", ROOT / "connectors" / "sketchstream_connectors"]
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
COMPILED = ("kernel", "intrinsic", "njit", "overload")


def foreign_names(text: str) -> dict[str, set[str]]:
    """For each compiled function: names in its body that were imported from another file of ours."""
    tree = ast.parse(text)
    ours = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sketchstream")
        for alias in node.names
    }
    return {
        node.name: {inner.id for line in node.body for inner in ast.walk(line) if isinstance(inner, ast.Name)} & ours
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(mark in ast.unparse(decorator) for decorator in node.decorator_list for mark in COMPILED)
    }


def test_compiled_functions_use_nothing_of_another_file() -> None:
    # numba's cache notices an edit of a function's own file only: what it took from another one would stay as it was.
    functions = {path: foreign_names(path.read_text()) for path in SOURCES}
    assert sum(map(len, functions.values())) > 80
    assert not {(path.name, name): used for path, found in functions.items() for name, used in found.items() if used}


@pytest.mark.parametrize("body", ["return other(1)", "return LIMIT", "return module.other(1)"])
def test_the_rule_finds_what_breaks_it(body: str) -> None:
    text = f"from sketchstream.elsewhere import other, LIMIT, module\n@kernel\ndef f():\n    {body}\n"
    assert len(foreign_names(text)["f"]) == 1
