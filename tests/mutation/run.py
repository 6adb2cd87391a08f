"""`make mutants`: tries mechanical mutants against `sketchstream verify` and against the suite.

In: the package; results of earlier runs. Out: tests/mutation/results.json, the table in docs/theory/mutants.md.
Touches: these two files; what was watched, in .cache/mutation; children of its own.

A mutant is killed if a check is refused, a test fails, or either ends with an error or at its limit. Only checks and
tests that call the changed function are asked (`mutation.judges`), cheapest first. Results are kept by the name of a
mutant, which changes with its function, so that a run can be interrupted and goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from fcntl import LOCK_EX, flock
from importlib import import_module
from types import CodeType
from typing import Any, Final

import pytest
from mutation import judges
from mutation.judges import Judge, Listener, Watched, in_child
from mutation.operators import ROOT, Mutant, mutants, source_of

RESULTS: Final = ROOT / "tests/mutation/results.json"
TABLE: Final = ROOT / "docs/theory/mutants.md"
REASONS: Final = ROOT / "tests/mutation/survivors.json"
"""Name of a survivor -> why it changes nothing that is published or charged, or what finds it."""
MAP: Final = ROOT / ".cache/mutation/watched.bin"
BUDGET_S: Final = 20.0
"""Processor time for each side, checks and tests; `--again` asks all of them, and all checks."""
TESTS: Final = (
    *(f"tests/privacy/test_{name}.py" for name in (
        "census", "components", "composition", "copies", "deployment", "gaussian_components", "gaussian_ledger",
        "guarantee", "ledger", "ledger_oracle", "publications", "zcdp",
    )),
    "tests/privacy/calibration", "tests/kinds/gaussian/test_gaussian_sketches.py",
    "tests/kinds/profile/test_profile_mechanism.py",
    *(f"tests/kinds/workload/test_workload_{name}.py" for name in ("engine", "golden", "noise", "strategy")),
    *(f"tests/kinds/convolution/test_convolution_{name}.py" for name in (
        "kind", "laplace", "noise", "stream", "vectors",
    )),
    *(f"tests/kinds/projection/test_projection_{name}.py" for name in (
        "calibration", "engine", "golden", "matrix", "mechanism",
    )),
    "tests/noise", "tests/sketch", "tests/kinds/test_conformance.py", "tests/stream/test_ranked_groups.py",
    "tests/stream/test_groups.py", "tests/stream/test_evidence.py", "tests/wire/test_names_and_numbers.py",
)  # fmt: skip
"""Tests near the functions that draw, scale, charge or state."""
MARKS: Final = "not slow and not kafka and not browser and not statistics"


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


def tried(mutant: Mutant, by_name: dict[str, Judge], mapped: Sequence[Watched], budget_s: float) -> dict[str, Any]:
    """Try one mutant against `verify` and against the suite; nothing if it cannot be tried.

    Args:
        mutant: what to run on.
        by_name: judges.
        mapped: what they call, cheapest first.
        budget_s: processor time for each side.
    """
    began = time.monotonic()
    outer = mutant.function.partition(".<locals>")[0]
    calling = [one for one in mapped if f"{mutant.module}:{outer}" in one.called]
    out: dict[str, Any] = {}
    for side, said in (("suite", "test"), ("verify", "check")):
        mine = [by_name[one.name] for one in calling if one.kind == side and one.name in by_name]

        def work(mine: list[Judge] = mine) -> Any:
            applied(mutant)
            return judges.found(mine, budget_s)

        found = in_child(work)
        if isinstance(found, str):  # it ended in another way: an error, or a signal
            if found.startswith("LookupError"):
                return {}
            found = found, 0
        text, asked = found
        out |= {side: bool(text), said: text}
        if not text:
            out[f"{side}_asked"] = [asked, len(mine)]
    return out | {"seconds": round(time.monotonic() - began)}


def joined(former: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What is known of a mutant: a side that lets it live, and asked fewer than before, says nothing new.

    Args:
        former: what an earlier run found, or nothing.
        found: found of `tried`.
    """
    out = dict(found)
    for side, said in (("suite", "test"), ("verify", "check")):
        asked = f"{side}_asked"
        if not found[side] and former.get(asked, [0, 0])[0] > found[asked][0]:
            out |= {name: former[name] for name in (side, said, asked)}
    return out


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
        "Each is tried against the checks of `sketchstream verify --quick`, with up to "
        f"{judges.CASES} sketches a check, and against",
        "the tests, of which only those are asked that call the changed function, cheapest first and until one kills",
        f"it, each side within {BUDGET_S:.0f} s of processor time. {len(every):,} mutants exist; {len(done):,} of them "
        "were run:",
        "a random sample in a fixed order that takes one of each module in turn. `verify` checks what is drawn and",
        "charged: a mutant of what is only shown, refused or kept in memory is left to the suite.",
        "",
        "| module | run | refused by verify | failed by the suite | killed by either |",
        "|---|---|---|---|---|",
    ]
    for module in [*sorted({one.module for one in done}), ""]:
        here = [results[one.name] for one in done if not module or one.module == module]
        verify, suite = sum(one["verify"] for one in here), sum(one["suite"] for one in here)
        either = sum(one["verify"] or one["suite"] for one in here)
        label = f"`{module}`" if module else "all"
        lines.append(f"| {label} | {len(here)} | {verify} | {suite} | {either} |")
    survivors = [one for one in done if not results[one.name]["verify"] and not results[one.name]["suite"]]
    lines += ["", "## Survivors", "", "| where | change | of | why it survives |", "|---|---|---|---|"]
    for one in sorted(survivors, key=lambda one: (one.module, one.line)):
        code = one.before.replace("|", "\\|")[:90]
        why = reasons.get(one.name, "not examined yet")
        lines.append(f"| `{one.module}` `{one.function}` | {one.operator} | `{code}` | {why} |")
    return "\n".join(lines) + "\n"


class Session(Listener):
    """Takes over when pytest has collected, and tries mutants in place of running the tests.

    Args:
        asked: arguments of the command.
    """

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self._asked = asked

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Watch the judges if that was not done, then try mutants."""
        checks = judges.checks(None if self._asked.again else judges.CASES)
        if self._asked.checks:
            checks = [one for one in checks if one.name.startswith(tuple(self._asked.checks.split(",")))]
        every = [*checks, *judges.tests(session.items, self)]
        if self._asked.watch or self._asked.again or not MAP.exists():
            began = time.monotonic()
            mapped = judges.watched(every, lambda text: print(f"no judge: {text}", flush=True))
            judges.kept(MAP, mapped)
            print(f"{len(mapped)} of {len(every)} judges watched in {time.monotonic() - began:.0f} s", flush=True)
        _try_all(self._asked, {one.name: one for one in every})
        return True


def _try_all(asked: argparse.Namespace, by_name: dict[str, Judge]) -> None:
    """Try the mutants that were asked for and have no result yet."""
    mapped = sorted(judges.kept(MAP), key=lambda one: one.seconds)
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    every = mutants()[: asked.sample or None]
    results = {one.name: results[one.name] for one in every if one.name in results}
    survived = {name for name, one in results.items() if not one["verify"] and not one["suite"]}
    left = [one for one in every if (one.name in survived if asked.again else one.name not in results)]
    left = [one for one in left if one.name.startswith(tuple(asked.only))]
    began = time.monotonic()
    for mutant in left[asked.part - 1 :: asked.parts]:
        if time.monotonic() - began > asked.seconds:
            break
        found = tried(mutant, by_name, mapped, 1e9 if asked.again else BUDGET_S)
        if not found:
            continue
        said = " ".join(word for word in ("verify", "suite") if found[word]) or "SURVIVES"
        words = f"{mutant.module}:{mutant.line} {mutant.operator} {mutant.before[:70]}"
        print(f"{said:14} {found['seconds']:4} s  {words}", flush=True)
        with RESULTS.open("a+") as file:  # several processes write
            flock(file, LOCK_EX)
            file.seek(0)
            kept = json.loads(file.read() or "{}")
            kept[mutant.name] = joined(kept.get(mutant.name, {}), found)
            file.truncate(0)
            file.write(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


def main() -> int:
    """Try mutants that have no result yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=1, help="which share of the mutants, from 1")
    parser.add_argument("--parts", type=int, default=1, help="processes that share them")
    parser.add_argument("--sample", type=int, default=0, help="the first so many of the random order; 0: all")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after so many seconds")
    parser.add_argument("--only", default=[""], nargs="+", help="mutants whose names, module first, begin so")
    parser.add_argument("--again", action="store_true", help="try survivors again, against everything that calls them")
    parser.add_argument(
        "--checks", default="", help="only checks whose names begin so, separated by commas; default: all"
    )
    parser.add_argument("--tests", default="", help="only these tests, separated by commas; default: those in TESTS")
    parser.add_argument("--watch", action="store_true", help="note again what checks and tests call")
    parser.add_argument("--table", action="store_true", help="write the table only")
    asked = parser.parse_args()
    tests = asked.tests.split(",") if asked.tests else TESTS
    if not asked.table:
        arguments = ["-q", "-p", "no:cacheprovider", "--timeout=0", "-m", MARKS, *(str(ROOT / one) for one in tests)]
        code = pytest.main(arguments, plugins=[Session(asked)])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(code)
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    TABLE.write_text(table({one.name: results[one.name] for one in mutants() if one.name in results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
