"""Answers of kind `gaussian` on real counts: errors of every method, coverage of every interval.

    python bench/gaussian_answers.py                      errors over 200 runs, coverage over 2,000
    python bench/gaussian_answers.py --quick              a tenth of the runs
    python bench/gaussian_answers.py --part errors | coverage

In: data sets brought by bench/data.py. Out: two tables. Touches: nothing else. Noise is the product's own, published as
`seal` does by default: the creation layer and a fresh one. delta is 1e-6; one flight, word or package is an event.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import data

from sketchstream import ClosedDomain
from sketchstream.denoising.expected import expected_errors
from sketchstream.denoising.methods import denoise_by
from sketchstream.kinds.gaussian.answers import GaussianEstimate
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.noise import discrete_gaussian

SETS = {"tailnum": None, "flights": None, "routes": 5040, "subtlex": None, "python_names": None, "debian_sizes": None}
"""Data set -> number of slots, where the domain lists more items than occur."""
METHODS = ("raw", "js", "js_mean", "soft_sure", "empirical_bayes")
EPSILONS = ("0.1", "1")
NAMED, SUMS, TOP = 60, 20, 10
AUTO_TARGET = 1.03


def counts_of(name: str) -> np.ndarray:
    """(d,) true counts in random order, zeros included."""
    found = data.load(name)
    d = SETS[name] or len(found)
    return np.random.default_rng(1).permutation(np.concatenate((found, np.zeros(d - len(found), found.dtype))))


def published(spec: GaussianSpec, counts: np.ndarray) -> np.ndarray:
    """One published state."""
    state = counts.astype(np.int64)
    for variance in spec.published_variances:
        discrete_gaussian(state, variance)
    return state


def errors(runs: int, sets: list[str]) -> None:
    print(f"mean squared error over the published counts' variance; {runs} runs, delta 1e-6; (planned) beside it")
    print(f"{'set':14s} {'d':>7s} {'eps':>4s} " + " ".join(f"{one:>17s}" for one in METHODS), end="")
    print(f" {'auto':>17s}  auto/best  chosen")
    for name in sets:
        try:
            counts = counts_of(name)
        except data.Unavailable as error:
            print(f"{name:14s} not available: {str(error)[:80]}")
            continue
        for epsilon in EPSILONS:
            spec = GaussianSpec(epsilon, "1e-6", domain=ClosedDomain(size=len(counts)))
            variance = float(sum(spec.published_variances))
            total = dict.fromkeys((*METHODS, "auto"), 0.0)
            chosen: dict[str, int] = {}
            for _ in range(runs):
                y = published(spec, counts).astype(np.float64)
                found = {one: denoise_by(y, variance, one) for one in METHODS}
                auto = denoise_by(y, variance)
                chosen[auto.method] = chosen.get(auto.method, 0) + 1
                for one, values in (*found.items(), ("auto", auto)):
                    total[one] += float(np.sum((values.values - counts) ** 2)) / (len(counts) * variance * runs)
            planned = expected_errors(counts, variance)
            cells = [f"{total[o]:8.5f} ({planned[o] / (len(counts) * variance):.4f})" for o in (*METHODS, "auto")]
            best = min(total[one] for one in METHODS)
            good = total["auto"] <= AUTO_TARGET * best and total["auto"] <= total["raw"]
            print(f"{name:14s} {len(counts):7d} {epsilon:>4s} " + " ".join(f"{one:>17s}" for one in cells), end="")
            print(f"  {total['auto'] / best:8.4f} {'met' if good else 'MISSED'}  {chosen}", flush=True)


def coverage(runs: int, name: str) -> None:
    counts = counts_of(name)
    d, random = len(counts), np.random.default_rng(2)
    slots = random.choice(d, NAMED, replace=False)
    ranges = [sorted(random.choice(d + 1, 2, replace=False).tolist()) for _ in range(SUMS)]
    groups = [random.choice(d, int(size), replace=False).tolist() for size in np.geomspace(2, d // 2, SUMS)]
    allowed = 4 * math.sqrt(0.95 * 0.05 / runs)
    print(
        f"coverage of 95% intervals, {name}, d = {d}, {runs} runs; allowed {0.95 - allowed:.4f} to {0.95 + allowed:.4f}"
    )
    for epsilon in EPSILONS:
        spec = GaussianSpec(epsilon, "1e-6", domain=ClosedDomain(size=d))
        hits, all_at_once, width = np.zeros(NAMED + 2 * SUMS), 0, 0.0
        for _ in range(runs):
            answers = GaussianEstimate(spec, spec.published_variances, published(spec, counts), "raw")
            truths = [(answers.count(int(slot)), counts[slot]) for slot in slots]
            truths += [(answers.sum(low, high), counts[low:high].sum()) for low, high in ranges]
            truths += [(answers.sum(items=group), counts[group].sum()) for group in groups]
            hits += [found.low <= truth <= found.high for found, truth in truths]
            top = answers.top(TOP)
            all_at_once += all(one.low <= counts[one.slot] <= one.high for one in top)
            width += (top[0].high - top[0].low) / 2 / answers.stderr[0] / runs
        share = hits / runs
        good = bool((np.abs(share - 0.95) <= allowed).all()) and 0.94 <= share.mean() <= 0.96
        print(f"epsilon {epsilon:>4s}: {NAMED} counts mean {share[:NAMED].mean():.4f}, ", end="")
        print(
            f"{2 * SUMS} sums mean {share[NAMED:].mean():.4f}, all from {share.min():.4f} to {share.max():.4f}, ",
            end="",
        )
        print(f"mean {share.mean():.4f} ({'met' if good else 'MISSED'}); ", end="")
        held = all_at_once / runs
        print(f"top({TOP}) all at once {held:.4f} ({'met' if held >= 0.95 - allowed else 'MISSED'}), ", end="")
        print(f"half width {width:.2f} standard errors", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--part", choices=("errors", "coverage"), help="one table only")
    parser.add_argument("--sets", help="data sets for the errors, with commas between")
    given = parser.parse_args()
    scale = 10 if given.quick else 1
    if given.part != "coverage":
        errors(200 // scale, given.sets.split(",") if given.sets else list(SETS))
    if given.part != "errors":
        coverage(2000 // scale, "tailnum")


if __name__ == "__main__":
    main()
