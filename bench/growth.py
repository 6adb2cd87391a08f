"""How the defaults of the linear kinds grow: time and memory at ten times a size, against the operations that it takes.

In: --rounds. Out: a line for each kind and step: seconds and memory at both sizes, their ratios, the ratio of the
operations, `met` or `MISSED`. Touches: processes, memory. Each measurement is a process of its own, the best of some
rounds; memory is the most that Python and numpy hold at a time, of a process of its own.

    python bench/growth.py [--rounds 3]

A ratio may be twice that of the operations (n, or n log n where sorting or a transform is part of it). What takes less
than `QUICK_S` at the small size is dominated by calls and is not judged, only shown.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import sketchstream as ss
from sketchstream.kinds.projection.reading.distances import nearest

MOST = 2.0
QUICK_S = 0.02
Steps = dict[str, Callable[[], Any]]


def linear(n: float) -> float:
    """Operations of a pass."""
    return n


def sorting(n: float) -> float:
    """Operations of a sort, or of a transform."""
    return n * math.log2(n)


def series(n: int) -> Steps:
    """A running sum over n positions."""
    return steps(ss.ConvolutionSpec("sum", n, epsilon="1", delta="1e-6"), np.arange(10**5) % n)


def prefixes(n: int) -> Steps:
    """All prefix sums of a table of n cells."""
    return steps(ss.WorkloadSpec(f"prefix:{n}", "1", "1e-6"), np.arange(10**5) % n)


def counts(n: int) -> Steps:
    """A count for each of n items, denoised."""
    items = np.random.default_rng(1).zipf(1.7, 10 * n) % n
    return steps(ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=n)), items)


def tree(n: int) -> Steps:
    """Counts of a tree of n leaves on three levels."""
    paths = [(f"a{i % 10}", f"b{i % 100}", f"c{i}") for i in range(n)]
    return steps(ss.HierarchySpec(("a", "b", "c"), paths, "1", "1e-6"), np.arange(10**5) % n)


def rows(n: int) -> Steps:
    """Rows of 64 columns: distances of one row from all others."""
    spec = ss.ProjectionSpec(n, 1000, 64, "1", "1e-6")
    found = steps(spec, ss.Pairs(np.arange(10**5) % n, np.arange(10**5) % 1000), key=ss.Key.generate())
    answers: list[Any] = []
    made = found.pop("answer")
    return {
        **found,
        "answer": lambda: answers.append(made()),
        "nearest": lambda: nearest(answers[0], [0], 10),
    }


def steps(spec: Any, events: Any, key: ss.Key | None = None) -> Steps:
    """The life of a sketch."""
    held: list[Any] = []
    return {
        "create": lambda: held.append(ss.Sketch.create(spec, key)),
        "update": lambda: held[0].update(events),
        "seal": lambda: held.append(held[0].seal()),
        "answer": lambda: held[1].estimate(),
    }


CASES: dict[str, tuple[Callable[[int], Steps], int, Callable[[float], float]]] = {
    "series, running sum": (series, 20_000, sorting),
    "workload, prefixes": (prefixes, 8_192, linear),
    "counts, denoised": (counts, 100_000, sorting),
    "tree of three levels": (tree, 10_000, linear),
    "rows of 64 columns": (rows, 2_000, linear),
}


def measure(name: str, n: int, memory: bool) -> dict[str, Any]:
    """Seconds of each step, or the memory of all, in this process; a small sketch before has all code loaded."""
    make = CASES[name][0]
    for step in make(max(64, n // 100)).values():
        step()
    if memory:
        tracemalloc.start()
    out = {}
    began = time.process_time()
    todo = make(n)
    out["spec"] = time.process_time() - began
    for step, run in todo.items():
        began = time.process_time()
        run()
        out[step] = time.process_time() - began
    return {"seconds": out, "mib": tracemalloc.get_traced_memory()[1] / 2**20}


def best(name: str, n: int, rounds: int) -> dict[str, Any]:
    """The least of some processes, and the memory of another one."""

    def one(memory: bool) -> dict[str, Any]:
        command = [sys.executable, __file__, "--one", name, str(n), "memory" if memory else "seconds"]
        found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return found

    found = [one(memory=False)["seconds"] for _ in range(rounds)]
    seconds = {step: min(each[step] for each in found) for step in found[0]}
    return {"seconds": seconds, "mib": one(memory=True)["mib"]}


def main() -> None:
    """All cases; the exit code says whether every judged one was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("NAME", "N", "WHAT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), given.one[2] == "memory")))
        return
    good = True
    for name, (_, n, operations) in CASES.items():
        small, large = best(name, n, given.rounds), best(name, 10 * n, given.rounds)
        allowed = operations(10 * n) / operations(n)
        lines = [(step, one, large["seconds"][step], "s") for step, one in small["seconds"].items()]
        lines.append(("memory", max(small["mib"], 0.1), large["mib"], "MiB"))
        print(f"{name}: {n:,} and {10 * n:,}, operations x{allowed:.1f}")
        for step, one, ten, unit in lines:
            ratio = ten / max(one, 1e-9)
            judged = unit == "MiB" or one >= QUICK_S
            met = ratio <= MOST * allowed
            good &= met or not judged
            said = ("met" if met else "MISSED") if judged else "quick"
            print(f"  {step:8}{one:10.4f}{ten:10.4f} {unit:4} x{ratio:6.1f}  {said}")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
