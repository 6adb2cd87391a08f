"""Rules of the source that no linter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

from helpers.paths import ROOT

PACKAGES = [ROOT / "sketchstream", ROOT / "connectors" / "sketchstream_connectors"]
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
COMPILED = ("kernel", "intrinsic", "njit", "overload")


def foreign_names(text: str) -> dict[str, set[str]]:
    """For each compiled function: names in its body that were imported from another file of ours.

    Files of sketchstream/kernels are left out: the cache notices their edits.
    """
    tree = ast.parse(text)
    ours = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("sketchstream")
        and not (node.module or "").startswith("sketchstream.kernels.")
        for alias in node.names
    }
    return {
        node.name: {inner.id for line in node.body for inner in ast.walk(line) if isinstance(inner, ast.Name)} & ours
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(mark in ast.unparse(decorator) for decorator in node.decorator_list for mark in COMPILED)
    }


def test_compiled_functions_use_nothing_of_another_file() -> None:
    # numba's cache notices edits of a function's own file and of sketchstream/kernels: what it took from another one
    # would stay as it was.
    functions = {path: foreign_names(path.read_text()) for path in SOURCES}
    assert sum(map(len, functions.values())) > 80
    assert not {(path.name, name): used for path, found in functions.items() for name, used in found.items() if used}


@pytest.mark.parametrize("body", ["return other(1)", "return LIMIT", "return module.other(1)"])
def test_the_rule_finds_what_breaks_it(body: str) -> None:
    text = f"from sketchstream.elsewhere import other, LIMIT, module\n@kernel\ndef f():\n    {body}\n"
    assert len(foreign_names(text)["f"]) == 1


CITED_OUTSIDE = re.compile(
    r"\bnotes/|\bdesign\.md|\bkafka_(?:faults|clients|speed)\b|\bnotes on (?:the|prior)\b|\bseed 00\d"
    r"|\b(?:profile|the) specification,? (?:sections? )?\d|\b(?:specification|spec section)s? \d|\bspecs/\w+\.md"
    r"|\bseed's (?:algorithm|linear program)"
)
"""Documents that a reader of the repository does not have."""
WRITTEN = ("*.py", "*.md", "*.toml", "*.sh", "*.yml", "*.java", "Makefile", "Dockerfile", ".importlinter")


def texts() -> list[Path]:
    """Every text file of the repository that people write."""
    folders = ("sketchstream", "connectors", "tests", "bench", "docs", "docker")
    found = [path for folder in folders for name in WRITTEN for path in (ROOT / folder).rglob(name)]
    return [*found, *(path for name in WRITTEN for path in ROOT.glob(name))]


def test_citations_name_papers_and_documents_of_the_repository() -> None:
    assert len(texts()) > 300
    cited = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if CITED_OUTSIDE.search(line)
    }
    assert cited == set()


def test_documents_that_are_cited_exist() -> None:
    named = {
        (path.name, document)
        for path in SOURCES
        for document in re.findall(r"\bdocs/[\w/]+\.(?:md|json)", path.read_text())
    }
    assert len(named) > 40
    assert {(name, document) for name, document in named if not (ROOT / document).is_file()} == set()


@pytest.mark.parametrize(
    "text", ["Source: design.md 7.", "see notes/x.md", "profile specification 5.6", "the seed's algorithm"]
)
def test_citations_of_documents_elsewhere_are_found(text: str) -> None:
    assert CITED_OUTSIDE.search(text)


def module_path(module: str) -> Path:
    """File of a module of the core."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules that import each other, directly or through others of the group."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        seen: set[str] = set()
        todo = list(imports[module])
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += imports[one]
        reached[module] = seen
    found = {frozenset({module} | {one for one in seen if module in reached[one]}) for module, seen in reached.items()}
    return sorted((set(group) for group in found if len(group) > 1), key=sorted)


def test_no_modules_import_each_other() -> None:
    """Imports inside functions count too, but in the kinds, where results load what shows them when they are asked.

    Imports under TYPE_CHECKING are never run.
    """
    graph = grimp.build_graph(
        "sketchstream", "sketchstream_connectors", exclude_type_checking_imports=True, cache_dir=None
    )
    inside = 0
    imports: dict[str, set[str]] = {}
    for module in graph.modules:
        imports[module] = set(graph.find_modules_directly_imported_by(module))
        if module.startswith("sketchstream.kinds."):
            for other in list(imports[module]):
                found = graph.get_import_details(importer=module, imported=other)
                numbers = [one["line_number"] for one in found]
                path = module_path(module)
                if numbers and all(path.read_text().splitlines()[number - 1].startswith(" ") for number in numbers):
                    imports[module].discard(other)
                    inside += 1
    assert inside, "some imports of the kinds are inside functions"
    assert len(imports) > 200
    assert circles(imports) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [{"b", "c"}]
