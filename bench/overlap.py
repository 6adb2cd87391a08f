"""Errors, coverage and speed of what groups have in common, on sketches of the library with fresh keys and noise.

In: nothing. Out: a table. Touches: nothing.

    python bench/overlap.py --runs 250
    python bench/overlap.py --runs 250 --counts presence --epsilon 2
    python bench/overlap.py --groups 12 --runs 1
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import numpy as np

import sketchstream as ss
from sketchstream.items import Items
from sketchstream.kinds.profile.groups import Grouped

NAMES = ("A", "B", "C")
SIZES = {"A": 200, "AB": 70, "AC": 20, "ABC": 10, "B": 110, "BC": 10, "C": 60}
"""Thousands of people by exact set of groups: 300, 200 and 100 thousand, 480 thousand in all."""
TRUE = {
    "A": 300, "A | B": 420, "A & B": 80, "A & C": 30, "A - B": 220, "A | B | C": 480, "A & B & C": 10,
    "A - (B | C)": 200,
}  # fmt: skip
"""Thousands of people by question."""


def main() -> None:
    """Run as many sketches as asked for, and print what they answered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epsilon", default="4")
    parser.add_argument("--overlap", default="1", help="epsilon_overlap")
    parser.add_argument("--modulus", type=int)
    parser.add_argument("--counts", default="modulus", choices=["modulus", "presence"])
    parser.add_argument("--slots", type=int, default=2**20)
    parser.add_argument("--levels", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of people")
    parser.add_argument("--groups", type=int, default=3, help="more than three: only the speed is measured")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.groups > 3:
        speed(given)
        return
    counts, sizes = np.random.default_rng(), {name: round(1000 * n * given.scale) for name, n in SIZES.items()}
    found: dict[str, list[Any]] = {one: [] for one in TRUE}
    began = time.perf_counter()
    for run in range(given.runs):
        sketch = ss.Sketch.create(spec(given, NAMES), ss.Key.generate())
        first = 0
        for inside, n in sizes.items():
            for name in inside:
                ids = np.arange(first, first + n)
                times = None if given.counts == "presence" else counts.geometric(0.5, n)
                sketch.update(Grouped(np.full(n, NAMES.index(name), np.int32), Items.of(ids)), times)
            first += n
        overlap = sketch.seal().overlap()
        for one in TRUE:
            found[one].append(overlap.query(one))
        if run == 0 or (run + 1) % 50 == 0 or run + 1 == given.runs:
            print(f"{run + 1} runs, {time.perf_counter() - began:.0f} s", flush=True)
    print("| | sd, % | predicted | coverage, % | bias, % | bias, sd |\n|---|---|---|---|---|---|")
    for one, thousands in TRUE.items():
        true = 1000 * thousands * given.scale
        values = np.array([row.value for row in found[one]])
        sd = values.std(ddof=1)
        held = statistics.fmean(row.low <= true <= row.high for row in found[one])
        predicted = statistics.fmean(row.sd for row in found[one])
        bias = values.mean() - true
        print(
            f"| {one.replace('|', 'or')} | {100 * sd / true:.2f} | {100 * predicted / true:.2f} | {100 * held:.0f} | "
            f"{100 * bias / true:+.2f} | {bias / sd:+.2f} |"
        )


def spec(given: Any, names: Any, **more: Any) -> ss.ProfileSpec:
    """The sketches' spec."""
    fields: dict[str, Any] = {"overlap": True, "epsilon_overlap": given.overlap, **more}
    if given.counts == "presence":
        fields |= {"counts": "presence"}
    else:
        fields |= {"epsilon_publish": "1"}
    modulus = given.modulus or (16 if given.counts == "modulus" else None)
    domain = ss.OpenDomain(given.slots, given.levels)
    return ss.ProfileSpec(given.epsilon, "item", domain, modulus=modulus, groups=ss.Groups(names), **fields)


def speed(given: Any) -> None:
    """Time the seal of many groups with and without patterns, and all answers."""
    names = [f"g{number}" for number in range(given.groups)]
    rng = np.random.default_rng(0)
    for run in range(given.runs):
        took = {}
        key = ss.Key.generate()
        for what, more in (("histograms only", {"overlap": None, "epsilon_overlap": None}), ("with patterns", {})):
            sketch = ss.Sketch.create(spec(given, names, **more), key)
            for at in range(len(names)):
                ids = rng.integers(0, 480_000, 100_000)
                sketch.update(Grouped(np.full(len(ids), at, np.int32), Items.of(ids)))
            began = time.perf_counter()
            sealed = sketch.seal()
            took[f"seal, {what}"] = time.perf_counter() - began
        began = time.perf_counter()
        overlap = sealed.overlap()
        regions = overlap.regions()
        took[f"all {len(regions):,} regions"] = time.perf_counter() - began
        print(f"run {run + 1}: " + ", ".join(f"{what} {seconds:.2f} s" for what, seconds in took.items()), flush=True)


if __name__ == "__main__":
    main()
