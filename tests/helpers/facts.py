"""Facts of the house that may only get better: how large the linear kinds are, how many circles, frames, holders.

In: the source. Out: numbers. Touches: files of the repository, which it reads.

`tests/test_facts.py` prints them and holds them to limits. A limit is lowered by whoever makes its fact better.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import grimp
import numpy as np
import pytest

import sketchstream as ss
from helpers.paths import ROOT, TESTS
from helpers.syntax import parsed, statements
from sketchstream import kernels, kinds

CORE: Final = ROOT / "sketchstream"
CONNECTORS: Final = ROOT / "connectors" / "sketchstream_connectors"
LINEAR: Final = ("gaussian", "convolution", "workload", "projection")
"""Linear kinds, which are also the names of their audits."""
OF_A_KIND: Final = {"Kind": "interface", "Accounting": "accounting", "Intake": "intake"}
"""The class of kinds, then those of the objects that a kind has, and the module of each."""
HOLDERS: Final = {
    "Received", "Records", "SlotPlaces", "Piece", "Decoded", "Chunk", "Admitted", "Given", "Events", "Items", "Spans",
    "Batch",
}  # fmt: skip
"""Classes that hold a batch on its way from the socket to the kernel; those that were merged into others stay listed.

Not counted, because a batch does not change hands there: `Reading` is an iterator that yields `Records` as
`read_batches` makes them, some before they are asked for. `Found` (where fields lie) and `Admission` (verdicts of a
watermark) are results within one call, of a decoder and of `PartitionState.applying`.
"""
KERNELS: Final = (
    "connectors/sketchstream_connectors/decode/json_scanner.py",
    "connectors/sketchstream_connectors/decode/layouts.py",
    "connectors/sketchstream_connectors/decode/packed_kernels.py",
    "connectors/sketchstream_connectors/decode/time_kernels.py",
    "connectors/sketchstream_connectors/kafka/fetch/record_kernels.py",
    *(f"sketchstream/kernels/{one}.py" for one in (
        "addition", "siphash", "tokens", "texts", "shapes", "routing", "tally", "packing", "ranking", "plain",
        "machine_code",
    )),
    "sketchstream/stream/kernels.py", "sketchstream/kinds/convolution/update.py",
    "sketchstream/kinds/projection/matrices/kernels.py", "sketchstream/kinds/profile/estimate/likelihood/kernels.py",
    "sketchstream/noise/kernels.py",
)  # fmt: skip
"""Files of compiled loops."""
ROOM: Final = 20
"""Modules at one level of a folder, at most."""


def lines_of_linear_kinds() -> int:
    """Lines of the linear kinds, of what they share, and of their audits and plans."""
    return sum(len(path.read_text().splitlines()) for path in files_of_linear_kinds())


def files_of_linear_kinds() -> list[Path]:
    """Files of the linear kinds, of what they share, and of their audits and plans."""
    return [
        *(path for name in (*LINEAR, "linear") for path in (CORE / "kinds" / name).rglob("*.py")),
        *(CORE / "privacy" / "calibration").glob("*.py"),
        *(CORE / "audit" / "kinds" / f"{name}.py" for name in LINEAR),
        *(CORE / "cli" / "commands" / "plans" / f"{name}.py" for name in LINEAR),
    ]


def members_of_kind() -> int:
    """Public members of `Kind`."""
    return len(_members_of("Kind"))


def members_of_what_a_kind_has() -> int:
    """Public members of the largest class of an object that a kind has."""
    return max(len(_members_of(name)) for name in OF_A_KIND if name != "Kind")


def members_that_one_kind_overrides() -> int:
    """Members of `Kind`, and of the classes of what a kind has, that exactly one kind overrides."""
    found = 0
    for name in OF_A_KIND:
        overriding: Counter[str] = Counter()
        derived = {name}
        for path in sorted((CORE / "kinds").glob("*/*.py"), key=lambda path: path.parent.name != "linear"):
            for one in _classes(path):
                if derived & _bases(one):
                    derived.add(one.name)
                    shared = path.parent.name == "linear"
                    overriding.update(dict.fromkeys(_members(one), len(LINEAR) if shared else 1))
        found += sum(1 for member in _members_of(name) if overriding[member] == 1)
    return found


def modules_above_that_name_a_kind() -> int:
    """Modules outside of `kinds` that import one kind's package, for types too.

    Three may: the package itself, which gives its names to users; audits, whose attacks are those of one kind; and plan
    commands. A kind's plan has options of its own (rows and their distances, filters, queries), which the kind cannot
    declare, as the core knows no click. Each kind with such options has one file in that folder, and
    `sketchstream plan --table` plans all kinds alike.
    """
    graph = _imports()
    packages = tuple(f"sketchstream.kinds.{name}." for name in kinds.names())
    named = {module for module in graph if f"{module}.".startswith(packages)}
    may = ("sketchstream.kinds.", "sketchstream.audit.", "sketchstream.cli.commands.plans.")
    above = {module for module, imported in graph.items() if imported & named}
    return sum(1 for module in above if module != "sketchstream" and not f"{module}.".startswith(may))


def frames_of_update() -> int:
    """Own frames from `Sketch.update` to the kernel, both included in neither."""
    sketch = ss.Sketch.create(ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=64)))
    found: list[int] = []
    spared = kernels.use_numpy_twin

    def counting(*arguments: object, **named: object) -> bool:
        frame, frames = sys._getframe(1), 0
        while frame is not None:
            frames += "sketchstream" in Path(frame.f_code.co_filename).parts and "tests" not in frame.f_code.co_filename
            frame = frame.f_back
        found.append(frames)
        return bool(spared(*arguments, **named))  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "use_numpy_twin", counting)
        sketch.update(np.arange(5))
    return max(found)


def holders_of_a_batch() -> int:
    """Classes that hold a batch between the socket and the kernel."""
    return len({one.name for path in product_files() for one in _classes(path)} & HOLDERS)


def circles_of_imports() -> tuple[int, int]:
    """Groups of modules that import each other, imports in functions and for types included; size of the largest."""
    groups = _groups(_imports())
    return len(groups), max(map(len, groups), default=0)


def crowded_rooms() -> int:
    """Folders with more than `ROOM` modules at one level."""
    rooms = Counter(path.parent for path in product_files() if path.name != "__init__.py")
    return sum(1 for number in rooms.values() if number > ROOM)


def ambiguous_class_names() -> int:
    """Names that several classes have; shapes of answers over HTTP are called as what they show."""
    paths = (path for path in product_files() if path != CORE / "serve" / "http" / "shapes.py")
    names = Counter(one.name for path in paths for one in _classes(path))
    return sum(1 for number in names.values() if number > 1)


def rows_of_the_interface() -> int:
    """Tests of `test_same_api.py` that every kind passes."""
    return (TESTS / "kinds" / "test_same_api.py").read_text().count("\n@every_kind\n")


def comments_in_kernels() -> int:
    """Lines of comments in the files of compiled loops."""
    return sum(_comments((ROOT / name).read_text()) for name in KERNELS)


def lines_of_code() -> int:
    """Lines of code of the product, without comments, docstrings and empty lines."""
    return sum(len(numbers_of_code(path.read_text())) for path in product_files())


@cache
def _imports() -> Mapping[str, set[str]]:
    """Modules that each module of the product imports, imports in functions and for types included."""
    graph = grimp.build_graph("sketchstream", "sketchstream_connectors", cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def product_files() -> list[Path]:
    """Files of the product."""
    return [*CORE.rglob("*.py"), *CONNECTORS.rglob("*.py")]


def _classes(path: Path) -> list[ast.ClassDef]:
    """Classes of a file."""
    return [one for one in statements(path.read_text()) if isinstance(one, ast.ClassDef)]


def _members_of(name: str) -> set[str]:
    """Names of the public members of `Kind`, or of the class of an object that a kind has."""
    (found,) = (one for one in _classes(CORE / "kinds" / f"{OF_A_KIND[name]}.py") if one.name == name)
    return _members(found)


def _bases(one: ast.ClassDef) -> set[str]:
    """Names of the classes from which a class derives, without what they are generic in."""
    named = (base.value if isinstance(base, ast.Subscript) else base for base in one.bases)
    return {base.id for base in named if isinstance(base, ast.Name)}


def _members(one: ast.ClassDef) -> set[str]:
    """Names of the public methods and attributes of a class."""
    names = {line.name for line in one.body if isinstance(line, ast.FunctionDef)}
    for line in one.body:
        if isinstance(line, ast.AnnAssign):
            names |= {line.target.id} if isinstance(line.target, ast.Name) else set()
        elif isinstance(line, ast.Assign):
            names |= {target.id for target in line.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def _groups(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules that reach each other."""
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
    return [set(group) for group in found if len(group) > 1]


def _comments(text: str) -> int:
    """Number of comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(1 for one in tokens if one.type == tokenize.COMMENT and not one.string.startswith(("# noqa", "# type:")))


def numbers_of_code(text: str) -> set[int]:
    """Numbers of the lines that hold code, from 1."""
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    todo: list[ast.AST] = [*parsed(text).body]
    while todo:  # lines inside of strings are code, whatever stands there
        node = todo.pop()
        if getattr(node, "lineno", 0) == getattr(node, "end_lineno", 0) and not isinstance(node, ast.arguments):
            continue
        if isinstance(node, ast.Constant | ast.JoinedStr):
            lines |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        todo += ast.iter_child_nodes(node)
    for node in (parsed(text), *statements(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines
