"""Mechanical mutants of the functions that draw, scale, charge or state.

In: modules of the package. Out: mutants, each a changed syntax tree of one module. Touches: nothing.

Operators: drop a statement, a term or a factor; double or halve what a function returns; reuse what it returned first;
swap branches; move a number or a limit by one. Compiled kernels are left out: their machine code is cached by file.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = (
    "components", "sketch", "published",
    *(f"privacy/{name}" for name in (
        "ledgers/ledger", "ledgers/gaussian_ledger", "ledgers/euclidean_ledger", "ledgers/sketch_history",
        "losses/history", "losses/looks", "losses/measures", "losses/zcdp", "losses/composition", "losses/gaussian",
        "deployments/copies", "deployments/deployment", "deployments/guarantee", "deployments/census",
        "deployments/publications",
        "calibration/continuous", "calibration/discrete",
    )),
    "stream/state/evidence", "stream/published/evidence",
    *(f"noise/{name}" for name in ("laplace", "response", "gaussian", "varied", "thresholds", "entropy", "selection")),
    *(f"kinds/profile/{name}" for name in ("mechanism", "ranking", "groups", "kind", "observations")),
    *(f"kinds/linear/{name}" for name in ("kind", "events")),
    "kinds/gaussian/kind",
    *(f"kinds/workload/{name}" for name in (
        "strategies/mechanism", "kind", "strategies/ball",
    )),
    *(f"kinds/convolution/{name}" for name in (
        "fourier/spectrum", "kind", "mechanisms/independent", "update", "mechanisms/synthesis",
    )),
    *(f"kinds/projection/{name}" for name in ("mechanism", "kind", "matrices/sensitivity", "secret")),
)  # fmt: skip
"""Files under sketchstream/, without their ending."""
SHOWN = {"__repr__", "__str__", "_repr_html_", "facts", "__reduce__", "rows", "_table", "names", "profile", "estimate"}
"""Functions that show or answer; what they do costs no privacy."""
NUMBERS = {"Fraction", "float", "Loss", "int", "GaussianLoss"}
DRAWING = ("draw", "noise", "fresh", "lineage", "key", "fill")


@dataclass(frozen=True)
class Mutant:
    """One change.

    Args:
        module: file under sketchstream/, without its ending.
        function: qualified name.
        operator: what was done.
        line: line of the change.
        before: the code that was changed.
        again: how many changes of the same name come before it in its function.
    """

    module: str
    function: str
    operator: str
    line: int
    before: str
    again: int

    @property
    def name(self) -> str:
        """Stays the same as long as the function does not change."""
        return f"{self.module}:{self.function}:{self.operator}:{self.before[:60]}:{self.again}"


Change = tuple[str, ast.AST, Callable[[ast.AST], ast.AST]]


def mutants() -> list[Mutant]:
    """All mutants, in the order in which they are tried: one of each module in turn, at random but always the same."""
    found: list[tuple[int, bytes, Mutant]] = []
    for module in MODULES:
        mixed = sorted(
            (hashlib.blake2b(one.name.encode(), digest_size=8).digest(), one.name, one) for one, _ in _of(module)
        )
        found += [(place, digest, one) for place, (digest, _, one) in enumerate(mixed)]
    return [one for *_, one in sorted(found, key=lambda row: row[:2])]


def source_of(mutant: Mutant) -> ast.Module:
    """The syntax tree of the module with this change."""
    return next(build() for one, build in _of(mutant.module) if one == mutant)


def _of(module: str) -> Iterator[tuple[Mutant, Callable[[], ast.Module]]]:
    """Mutants of a module, each with what builds its tree."""
    text = (ROOT / "sketchstream" / f"{module}.py").read_text()
    seen: Counter[tuple[str, str, str]] = Counter()
    for function, node in _functions(_parsed(text)):
        for operator, place, change in _changes(node):
            before = " ".join(ast.unparse(place).split())
            key = function, operator, before[:60]
            mutant = Mutant(module, function, operator, getattr(place, "lineno", node.lineno), before, seen[key])
            seen[key] += 1
            yield mutant, partial(_replaced, text, place, change)


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods with their names, without kernels, abstract ones and those that only show."""
    scopes: list[tuple[str, ast.AST]] = [("", tree)]
    while scopes:
        prefix, scope = scopes.pop(0)
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, ast.ClassDef):
                scopes.append((f"{prefix}{node.name}.", node))
            elif isinstance(node, ast.FunctionDef) and node.name not in SHOWN:
                marks = {ast.unparse(one) for one in node.decorator_list}
                if not marks & {"kernel", "overload", "abstractmethod"}:
                    yield prefix + node.name, node


def _changes(function: ast.FunctionDef) -> Iterator[Change]:
    """The changes of one function: operator, place, new node."""
    returns = "" if function.returns is None else ast.unparse(function.returns)
    plain = not any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(function))
    if plain and any(word in function.name for word in DRAWING) and returns not in ("None", ""):
        yield "reuse", function, _reused
    for node in _walk(function):
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(node, ast.AugAssign):
            yield "drop", node, lambda _: ast.Pass()
        elif isinstance(node, ast.Return) and node.value is not None and returns in NUMBERS:
            yield "double", node, lambda one: ast.Return(_times(one.value, 2))  # type: ignore[attr-defined]
            yield "halve", node, lambda one: ast.Return(_halved(one.value, returns))  # type: ignore[attr-defined]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            if not any(isinstance(one, ast.JoinedStr) for one in ast.walk(node)):
                yield "first", node, lambda one: one.left  # type: ignore[attr-defined]
                if isinstance(node.op, (ast.Mult, ast.Add)):
                    yield "second", node, lambda one: one.right  # type: ignore[attr-defined]
        elif isinstance(node, ast.IfExp):
            yield "swap", node, lambda one: ast.IfExp(one.test, one.orelse, one.body)  # type: ignore[attr-defined]
        elif isinstance(node, ast.If) and node.orelse and not _refuses(node):
            yield "swap", node, lambda one: ast.If(one.test, one.orelse, one.body)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            yield "limit", node, _limit
        elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) <= 64:
            yield "one more", node, lambda one: ast.Constant(one.value + 1)  # type: ignore[attr-defined]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function that are executed: no docstrings, annotations, messages and errors."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.Assert, ast.JoinedStr)):
                continue
            if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) in ("msg", "wanted", "advice", "text"):
                continue
            yield child
            yield from _walk(child)


def _refuses(node: ast.If) -> bool:
    """Whether a branch ends with an error."""
    return any(isinstance(one, ast.Raise) for one in ast.walk(node))


def _times(value: ast.expr, factor: int) -> ast.expr:
    return ast.BinOp(value, ast.Mult(), ast.Constant(factor))


def _halved(value: ast.expr, returns: str) -> ast.expr:
    return ast.BinOp(value, ast.FloorDiv() if returns == "int" else ast.Div(), ast.Constant(2))


def _limit(node: ast.AST) -> ast.AST:
    """`<` becomes `<=`, and so on."""
    other = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
    assert isinstance(node, ast.Compare)
    node.ops[0] = other[type(node.ops[0])]()  # type: ignore[index]
    return node


def _reused(node: ast.AST) -> ast.AST:
    """The function returns its first result for ever."""
    text = "(lambda f: (lambda *a, _kept=[], **k: _kept[0] if _kept else (_kept.append(f(*a, **k)) or _kept[0])))"
    assert isinstance(node, ast.FunctionDef)
    node.decorator_list.append(ast.parse(text, mode="eval").body)
    return node


def _replaced(text: str, place: ast.AST, change: Callable[[ast.AST], ast.AST]) -> ast.Module:
    """The tree of the module with one node changed."""
    spot = [one is place for one in ast.walk(_parsed(text))].index(True)
    tree = ast.parse(text)
    target = list(ast.walk(tree))[spot]
    new = ast.copy_location(change(copy.deepcopy(target)), target)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(one is target for one in value):
                value[[one is target for one in value].index(True)] = new
    return ast.fix_missing_locations(tree)
