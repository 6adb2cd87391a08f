"""Errors, coverage and speed of what groups have in common, on sketches of the library with fresh keys and noise.

In: nothing. Out: a table. Touches: nothing.

    python bench/overlap.py --runs 250
    python bench/overlap.py --runs 250 --counts presence --epsilon 2
    python bench/overlap.py --held-out --runs 200
    python bench/overlap.py --speed --runs 3
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import numpy as np

import sketchstream as ss
from sketchstream.items.arrays import Items
from sketchstream.kinds.profile.groups import Grouped

NAMES = ("A", "B", "C")
SIZES = {"A": 200, "AB": 70, "AC": 20, "ABC": 10, "B": 110, "BC": 10, "C": 60}
"""Thousands of people by exact set of groups: 300, 200 and 100 thousand, 480 thousand in all."""
SEED = 36
"""Of the cases that are drawn; keys and noise are always fresh."""
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
    parser.add_argument("--held-out", action="store_true", help="groups of drawn sizes that share 0 to 90%%")
    parser.add_argument("--speed", action="store_true", help="processor time of updates, the seal and all answers")
    parser.add_argument("--groups", type=int, default=12, help="with --speed")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.speed or given.held_out:
        (speed if given.speed else held_out)(given)
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
        predicted = statistics.fmean(row.stderr for row in found[one])
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


def held_out(given: Any) -> None:
    """Coverage on groups of drawn number, size, overlap and number of events, which are counted or only noticed."""
    rng = np.random.default_rng(SEED)
    held: dict[str, list[bool]] = {}
    negative, began = 0, time.process_time()
    for _ in range(given.runs):
        groups, shared = int(rng.integers(2, 6)), float(rng.choice([0.0, rng.uniform(0.0, 0.9), 0.9]))
        names, sizes = [f"g{at}" for at in range(groups)], np.round(10 ** rng.uniform(2.5, 5.0, groups)).astype(int)
        common = int(shared * sizes.min())
        first = common + np.concatenate([[0], np.cumsum(sizes - common)])
        inside = [np.concatenate([np.arange(common), np.arange(first[g], first[g + 1])]) for g in range(groups)]
        fields: dict[str, Any] = {"epsilon_overlap": str(rng.choice(["1/4", "1"]))}
        if rng.random() < 0.5:
            fields |= {"counts": "presence"}
        else:
            fields |= {"modulus": int(rng.choice([8, 16, 32])), "epsilon_publish": "1"}
        slots = 1 << int(rng.integers(14, 18))
        sketch = ss.Sketch.create(
            ss.ProfileSpec(
                str(rng.choice(["2", "3", "4"])), "item", ss.OpenDomain(slots, 6), groups=ss.Groups(names),
                overlap=True, **fields,
            ),
            ss.Key.generate(),
        )  # fmt: skip
        often = rng.uniform(0.15, 1.0)
        for at, ids in enumerate(inside):
            times = rng.geometric(often, len(ids)) if "modulus" in fields else None
            sketch.update(Grouped(np.full(len(ids), at, np.int32), Items.of(ids)), times)
        try:
            overlap = sketch.seal().overlap()
        except ss.EstimateError:  # said instead of answered
            held.setdefault("refused", []).append(False)
            continue
        a, b = int(sizes[0]), int(sizes[1])
        wanted = {
            "g0": a, "g0 | g1": a + b - common, "g0 & g1": common, "g0 - g1": a - common,
            " & ".join(names): common, " | ".join(names): int(first[-1]),
        }  # fmt: skip
        for one, number in wanted.items():
            found = overlap.query(one)
            kind = "any" if one == " | ".join(names) else "all" if one == " & ".join(names) else one
            held.setdefault(kind, []).append(found.low <= number <= found.high)
            if not common and kind in ("g0 & g1", "all"):
                held.setdefault("nothing in common", []).append(found.low <= number <= found.high)
        negative += sum(row["value"] < 0 or row["low"] < 0 for row in overlap.regions())
    refused = len(held.pop("refused", []))
    total = [one for rows in held.values() for one in rows]
    print(
        f"{given.runs} cases, {refused} refused, {negative} negative, {time.process_time() - began:.0f} s of processor"
    )
    print(f"coverage of all: {100 * statistics.fmean(total):.1f}%")
    for kind, rows in held.items():
        print(f"  {kind}: {100 * statistics.fmean(rows):.1f}% of {len(rows)}")


def speed(given: Any) -> None:
    """Processor time, by counts and by presence; "without": the same sketch without patterns."""
    names = [f"g{number}" for number in range(given.groups)]
    rng, plain = np.random.default_rng(SEED), {"overlap": None, "epsilon_overlap": None}
    batches = [Grouped(np.full(100_000, at, np.int32), Items.of(rng.integers(0, 480_000, 100_000)))
               for at in range(given.groups)]  # fmt: skip
    took: dict[str, list[float]] = {}

    def timed(what: str, work: Any) -> Any:
        began, clock = time.process_time(), time.perf_counter()
        found = work()
        took.setdefault(what, []).append(time.process_time() - began)
        took.setdefault(f"{what} by the clock", []).append(time.perf_counter() - clock)
        return found

    key = ss.Key.generate()
    for run in range(given.runs + 1):  # the first one compiles
        if run == 1:
            took.clear()
        for counts, fields in (("without", plain), ("modulus", {}), ("presence", {})):
            given.counts = "presence" if counts == "presence" else "modulus"
            sketch = ss.Sketch.create(spec(given, names, **fields), key)
            timed(f"updates, {counts}", lambda sketch=sketch: [sketch.update(one) for one in 10 * batches])
            sealed = timed(f"seal, {counts}", sketch.seal)
            if counts != "without":
                timed(f"answers, {counts}", lambda sealed=sealed: sealed.overlap().regions())
    best = {what: min(seconds) for what, seconds in took.items()}
    regions = 2**given.groups - 1
    print(f"{given.groups} groups of {given.slots:,} slots, seconds of processor, the least of {given.runs}:")
    print(", ".join(f"{what} {seconds:.2f}" for what, seconds in best.items() if "clock" not in what))
    for counts in ("modulus", "presence"):
        print(
            f"{counts}: updates {best['updates, without'] / best[f'updates, {counts}']:.2f} times as fast as without, "
            f"seal {best[f'seal, {counts}'] - best['seal, without']:+.2f} s beyond it (limit 1), "
            f"all {regions:,} regions {best[f'answers, {counts} by the clock']:.2f} s by the clock (limit 2), "
            f"{best[f'answers, {counts}']:.2f} of processor"
        )


if __name__ == "__main__":
    main()
