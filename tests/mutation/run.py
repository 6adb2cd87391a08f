"""`make mutants`: tries mechanical mutants against `sketchstream verify` and against the tests near them.

In: the package; results of earlier runs. Out: tests/mutation/results.json, the table in docs/theory/mutants.md.
Touches: these two files; children of its own, each with a limit of processor time.

A mutant is killed if a check is refused, a test fails, or either ends with an error or at its limit. Results are
kept by the name of a mutant, which changes with its function, so that a run can be interrupted and goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from fcntl import LOCK_EX, flock
from importlib import import_module
from types import CodeType
from typing import Any, Final

import pytest
from mutation.operators import ROOT, Mutant, mutants, source_of

from sketchstream.audit import report

RESULTS: Final = ROOT / "tests/mutation/results.json"
TABLE: Final = ROOT / "docs/theory/mutants.md"
REASONS: Final = ROOT / "tests/mutation/survivors.json"
"""Name of a survivor -> why it changes nothing."""
LIMIT_S: Final = 300
"""Processor time of one judge; a mutant that needs more does not end."""
LEDGERS: Final = (
    "ledger", "sketches: ledger", "gaussian: ledger, event", "convolution: ledger, laplace, fourier",
    "workload: ledger, event, laplace, ranges", "projection: ledger, secret, rademacher", "sketches: merge",
    "gaussian: merge, event", "sketches: copies", "gaussian: copies, event", "sketches: deployment, event, closed",
    "sketches: deployment, item, closed", "gaussian: deployment, event, counted", "convolution: closed",
)  # fmt: skip
SKETCHES: Final = (
    "sketches: create", "sketches: refresh", "sketches: release", "sketches: seal", "sketches: groups", "seals",
    "sketches: steps", "sketches: merge", "sketches: ledger", "sketches: counters, event, counted",
    "sketches: counters, item, groups to 2", "sketches: slots, item, ranked groups",
)  # fmt: skip
CHECKS: Final[dict[str, tuple[str, ...]]] = {
    "privacy": LEDGERS,
    "noise": ("laws", "sketches: create", "gaussian: create", "projection: create", "convolution: create",
              "workload: create", "sketches: slots, event, closed"),
    "kinds/profile": SKETCHES,
    "kinds/gaussian": ("gaussian",),
    "kinds/workload": ("workload: ledger", "workload: create", "workload: seal", "workload: events", "workload: merge",
                       "workload: counters, event, counted", "workload: steps", "workload: answers"),
    "kinds/convolution": ("convolution: ledger", "convolution: create", "convolution: seal", "convolution: neighbours",
                          "convolution: release", "convolution: closed", "convolution: counters, counts, counted"),
    "kinds/projection": ("projection: ledger", "projection: create", "projection: matrix", "projection: merge",
                         "projection: hardest row", "projection: seal"),
    "": ("sketches: ledger", "gaussian: ledger, event", "sketches: seal", "sketches: counters, event, counted",
         "gaussian: counters, event, counted", "sketches: steps", "sketches: merge", "gaussian: merge", "seals",
         "convolution: closed", "sketches: counters, event, groups", "sketches: counters, event, weights to 5"),
}  # fmt: skip
"""Checks that are tried, by the beginning of the module's name."""
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "privacy/deployment": ("tests/privacy/test_deployment.py", "tests/privacy/test_census.py"),
    "privacy/copies": ("tests/privacy/test_copies.py", "tests/privacy/test_deployment.py"),
    "privacy/composition": ("tests/privacy/test_composition.py", "tests/privacy/test_deployment.py"),
    "privacy/guarantee": ("tests/privacy/test_guarantee.py", "tests/docs"),
    "privacy/gaussian": ("tests/privacy/test_gaussian_ledger.py", "tests/privacy/test_gaussian_components.py"),
    "privacy/euclidean": ("tests/kinds/convolution/test_convolution_laplace.py",),
    "privacy/zcdp": ("tests/privacy/test_zcdp.py",),
    "privacy": ("tests/privacy/test_ledger.py", "tests/privacy/test_zcdp.py", "tests/privacy/test_gaussian_ledger.py"),
    "noise": ("tests/noise",),
    "kinds/profile": ("tests/privacy/test_components.py", "tests/stream/test_ranked_groups.py",
                      "tests/stream/test_groups.py", "tests/kinds/test_conformance.py", "tests/sketch"),
    "kinds/gaussian": ("tests/kinds/gaussian",),
    "kinds/workload": ("tests/kinds/workload/test_workload_noise.py", "tests/kinds/workload/test_workload_engine.py",
                       "tests/kinds/workload/test_workload_golden.py"),
    "kinds/convolution": ("tests/kinds/convolution/test_convolution_kind.py",
                          "tests/kinds/convolution/test_convolution_noise.py",
                          "tests/kinds/convolution/test_convolution_laplace.py"),
    "kinds/projection": ("tests/kinds/projection/test_projection_mechanism.py",
                         "tests/kinds/projection/test_projection_engine.py",
                         "tests/kinds/projection/test_projection_calibration.py"),
    "components": ("tests/privacy/test_components.py", "tests/privacy/test_gaussian_components.py"),
    "": ("tests/sketch", "tests/privacy/test_components.py", "tests/kinds/test_conformance.py"),
}  # fmt: skip
"""Tests near a module, by the beginning of its name; the longest beginning counts."""


def of_module(table: dict[str, tuple[str, ...]], module: str) -> tuple[str, ...]:
    """The entry of the longest beginning of a module's name."""
    return table[max((start for start in table if module.startswith(start)), key=len)]


def applied(mutant: Mutant) -> None:
    """Give the function of this process, wherever it is referred to, the code of the mutant.

    Raises:
        LookupError: the function cannot be changed in place.
    """
    *path, name = mutant.function.split(".")
    owner: Any = import_module("sketchstream." + mutant.module.replace("/", "."))
    for one in path:
        owner = vars(owner)[one]
    target = original = vars(owner)[name]
    for inner in ("__wrapped__", "__func__", "func", "fget", "__wrapped__"):
        target = getattr(target, inner, target)
    if mutant.operator == "reuse":
        kept: list[Any] = []

        def first(*given: Any, **named: Any) -> Any:
            kept[:] = kept or [target(*given, **named)]
            return kept[0]

        places = [owner] if path else [one for one in sys.modules.values() if vars(one).get(name) is original]
        for place in places:
            setattr(place, name, type(original)(first) if isinstance(original, (staticmethod, classmethod)) else first)
        return
    found, codes = [compile(source_of(mutant), mutant.module, "exec", dont_inherit=True)], []
    while found:
        code = found.pop()
        found += [one for one in code.co_consts if isinstance(one, CodeType)]
        codes += [code] if code.co_qualname == mutant.function else []
    if len(codes) != 1 or not hasattr(target, "__code__"):
        raise LookupError(mutant.name)
    target.__code__ = codes[0]


def audited(checks: Sequence[str]) -> str:
    """Run chosen checks of `verify` in this process until one is refused: what was found, empty if none was."""
    for wanted in checks:
        for name, step in report._steps(quick=True):
            if report._asked(name, (wanted,)):
                try:
                    failed = [one for one in step() if not one.passed]
                except Exception as error:
                    return f"{name}: {type(error).__name__}"
                if failed:
                    return f"{name}: {failed[0].found}"[:200]
    return ""


def tested(tests: Sequence[str]) -> str:
    """Run tests in this process until one fails: its name, empty if none did."""
    failures: list[str] = []

    class Plugin:
        """Remembers the first failure."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            """Called for each phase of a test."""
            if report.failed:
                failures.append(report.nodeid)

        def pytest_collectreport(self, report: Any) -> None:
            """Called for each file."""
            if report.failed:
                failures.append(f"{report.nodeid} cannot be collected")

    marks = "not slow and not kafka and not browser and not statistics"
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", marks, *tests], plugins=[Plugin()])
    return failures[0] if failures else "" if code == 0 else f"exit code {code}"


def in_child(mutant: Mutant, judge: Callable[[Sequence[str]], str], wanted: Sequence[str]) -> str:
    """What `judge` finds on the mutant, in a process of its own; empty if it survives.

    Args:
        mutant: what to run on.
        judge: `audited` or `tested`.
        wanted: its checks or tests.
    """
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))  # a signal ends the child
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            text = "ended without a word"
            try:
                applied(mutant)
                text = judge(wanted)
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"[:160]
            finally:
                said.write(text)
                said.flush()
                os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return said.read() if status == 0 else f"ended by signal {os.WTERMSIG(status)}"


def tried(mutant: Mutant) -> dict[str, Any]:
    """Try one mutant against `verify` and against the tests near it; nothing if it cannot be tried."""
    began = time.monotonic()
    check = in_child(mutant, audited, of_module(CHECKS, mutant.module))
    if check.startswith("LookupError"):
        return {}
    test = in_child(mutant, tested, of_module(TESTS, mutant.module))
    return {
        "verify": bool(check), "check": check, "suite": bool(test), "test": test,
        "seconds": round(time.monotonic() - began),
    }  # fmt: skip


def table(results: dict[str, Any]) -> str:
    """The document: counts by module, and every survivor with the reason why it changes nothing."""
    every = mutants()
    done = [one for one in every if one.name in results]
    reasons: dict[str, str] = json.loads(REASONS.read_text()) if REASONS.exists() else {}
    lines = [
        "# Mutants",
        "",
        "Written by `make mutants`. Mechanical mutants of functions that draw, scale, charge or state: a statement,",
        "term or factor dropped, a result doubled, halved or reused, branches swapped, a number or limit moved by one.",
        "Each is tried against the checks of `sketchstream verify --quick` that are about its module, and against the",
        f"tests near it (`tests/mutation/run.py` names both). {len(every):,} mutants exist; {len(done):,} of them, a",
        "random sample in a fixed order, were run. `verify` checks what is drawn and charged: a mutant of what is only",
        "shown, refused or kept in memory is left to the suite.",
        "",
        "| module | run | refused by verify | failed by the suite | killed by either |",
        "|---|---|---|---|---|",
    ]
    for module in [*sorted({one.module for one in done}), ""]:
        here = [results[one.name] for one in done if not module or one.module == module]
        counts = Counter(verify=sum(one["verify"] for one in here), suite=sum(one["suite"] for one in here))
        either = sum(one["verify"] or one["suite"] for one in here)
        label = f"`{module}`" if module else "all"
        lines.append(f"| {label} | {len(here)} | {counts['verify']} | {counts['suite']} | {either} |")
    survivors = [one for one in done if not results[one.name]["verify"] and not results[one.name]["suite"]]
    lines += ["", "## Survivors", "", "| where | change | of | why it changes nothing |", "|---|---|---|---|"]
    for one in sorted(survivors, key=lambda one: (one.module, one.line)):
        code = one.before.replace("|", "\\|")[:90]
        why = reasons.get(one.name, "not examined yet")
        lines.append(f"| `{one.module}` `{one.function}` | {one.operator} | `{code}` | {why} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Try mutants that have no result yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=1, help="which share of the mutants, from 1")
    parser.add_argument("--parts", type=int, default=1, help="processes that share them")
    parser.add_argument("--number", type=int, default=0, help="try so many at most; 0: all")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after so many seconds")
    parser.add_argument("--only", default="", help="modules whose names begin so")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    asked = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    every = mutants()
    results = {one.name: results[one.name] for one in every if one.name in results}
    survived = {name for name, one in results.items() if not one["verify"] and not one["suite"]}
    left = [one for one in every if one.name not in results or (asked.again and one.name in survived)]
    left = [one for one in left if one.module.startswith(asked.only)]
    mine = left[asked.part - 1 :: asked.parts][: asked.number or None]
    began = time.monotonic()
    for mutant in mine:
        if time.monotonic() - began > asked.seconds:
            break
        found = tried(mutant)
        if not found:
            continue
        said = " ".join(word for word in ("verify", "suite") if found[word]) or "SURVIVES"
        print(f"{said:14} {found['seconds']:4} s  {mutant.module}:{mutant.line} {mutant.operator} {mutant.before[:70]}")
        with RESULTS.open("a+") as file:  # several processes write
            flock(file, LOCK_EX)
            file.seek(0)
            kept = json.loads(file.read() or "{}") | {mutant.name: found}
            file.truncate(0)
            file.write(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    TABLE.write_text(table({one.name: results[one.name] for one in every if one.name in results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
