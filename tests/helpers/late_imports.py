"""Function-level imports of our own modules: which of them have a reason.

In: files of source. Out: imports without a reason. Touches: nothing.

A module is imported at the top of a file unless it brings a package that is slow to import and that the file does not
need otherwise, or a room of ours that few processes need, or would close a circle. Three places are exempt as a whole,
because what they import is chosen at run time: the command line (`sketchstream --help` imports every command), the lazy
names of the package, and modules of presentation, which a worker never needs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from helpers.syntax import below, parsed

OWN: Final = ("sketchstream", "sketchstream_connectors")
SLOW: Final = frozenset(
    (
        "numba",
        "pydantic",
        "scipy",
        "kafka",
        "matplotlib",
        "jinja2",
        "rich",
        "pyarrow",
        "cryptography",
        "orjson",
        "click",
        "starlette",
        "uvicorn",
        "sqlite3",
        "zstandard",
        "tomlkit",
        "pandas",
        "http",
        "ssl",
        "asyncio",
        "zoneinfo",
        "numpy",
        "concurrent",
    )
)
"""Packages that take more than some milliseconds to import, or are not always installed."""
SELDOM: Final = (
    "sketchstream.kinds.profile.estimate.likelihood.estimator",
    "sketchstream.kinds.profile.estimate.open_domain.reconstruction",
    "sketchstream.kinds.profile.overlap.observations",
    "sketchstream.kinds.profile.planner",
    "sketchstream.kinds.profile.reconstruction",
)
"""Doors of rooms of ours with a dozen modules each, which a process that answers other questions never needs."""
EXEMPT_FILES: Final = ("sketchstream.cli", "sketchstream.kinds", "sketchstream")
"""Packages (the first one with everything in it) whose imports are chosen at run time."""
PRESENTATION: Final = (
    "sketchstream.kinds.presentation",
    "sketchstream.pictures.cards",
    "sketchstream.pictures.charts",
    "sketchstream.pictures.report",
    "sketchstream.audit",
)


@dataclass
class Imports:
    """What one module imports: our modules and foreign packages at its top; our modules inside functions, by line."""

    own: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    inside: list[tuple[int, str]] = field(default_factory=list)


def module_of(path: Path, root: Path) -> str:
    """Dotted name of a file below a root."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read(text: str, modules: Iterable[str]) -> Imports:
    """The imports of a module's text; those for type checkers are left out."""
    known, found = set(modules), Imports()

    def names(node: ast.stmt) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module

    def walk(body: Iterable[ast.AST], *, inside: bool) -> None:
        for node in body:
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for name in names(node):
                    if name.split(".")[0] not in OWN:
                        if not inside:
                            found.foreign.add(name.split(".")[0])
                    elif inside:
                        found.inside.append((node.lineno, name))
                    else:
                        found.own.add(name)
            walk(below(node), inside=inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))

    walk(parsed(text).body, inside=False)
    return found


class Graph:
    """Modules and what each imports when it is imported."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.modules = {name: read(text, texts) for name, text in texts.items()}

    def brought(self, module: str) -> set[str]:
        """The module, and all of ours that come with it; a module brings its packages."""
        seen: set[str] = set()
        todo = [module]
        while todo:
            one = todo.pop()
            if one in seen or one not in self.modules:
                continue
            seen.add(one)
            todo += self.modules[one].own
            todo += [one.rsplit(".", 1)[0]] if "." in one else []
        return seen

    def slow(self, module: str) -> set[str]:
        """Slow packages and rooms that come with a module."""
        brought = self.brought(module)
        return {name for one in brought for name in self.modules[one].foreign} & SLOW | brought & set(SELDOM)

    def without_reason(self) -> list[str]:
        """Function-level imports that could stand at the top: "module:line imports module"."""
        found = []
        for name, imports in sorted(self.modules.items()):
            if name in EXEMPT_FILES or name.startswith(f"{EXEMPT_FILES[0]}."):
                continue
            for line, target in imports.inside:
                if target.startswith(PRESENTATION) or self.slow(target) - self.slow(name):
                    continue
                if name not in self.brought(target):
                    found.append(f"{name}:{line} imports {target}")
        return found
