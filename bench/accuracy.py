"""Accuracy of every estimator on real streams and stress sets: one command, one results file, a summary, plots.

    python bench/accuracy.py                 everything (about two hours on two quiet cores)
    python bench/accuracy.py --quick         few sets, few seeds: minutes
    python bench/accuracy.py --part coverage | opened | forms | large | profiles

In: data sets brought by bench/data.py. Out: bench/results/accuracy.json, accuracy.md, *.png. Touches: those files.
Each row is a mean over seeds; the naive row (clipping what was published) is always there. Counts are capped at
n = 300 before the noise; half of the slots are empty unless a set says otherwise.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import data  # noqa: E402

from sketchstream.estimate import reconstruct  # noqa: E402
from sketchstream.estimate.observed import Observed  # noqa: E402
from sketchstream.estimate.simulate import hashed, publish  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
N = 300
EPSILONS = ("0.1", "0.25", "0.5", "1", "ln3", "2")
LN3 = "1098612288668110/1000000000000000"
METHODS = ("naive", "inverse", "circulant-1", "circulant-2", "circulant-inf", "monotone", "likelihood")
JUDGED = {"0.1": (0.35, 0.85), "0.25": (0.45, 0.85), "0.5": (0.55, 1.2), "1": (0.65, 1.0), "2": (0.85, 1.0)}
JUDGED_STRESS = {"0.1": 0.35, "0.25": 0.35, "0.5": 0.4, "1": 0.6, "2": 0.65}
JUDGED_EMD = {"0.1": 0.5, "0.25": 0.6, "0.5": 0.65, "1": 0.8, "2": 0.95}


def naive(observed: Observed, n: int) -> np.ndarray:
    """What was published, clipped to 0..n and to non-negative numbers: no noise undone."""
    cells = observed._published(0)
    f = np.zeros(n + 1)
    for low, high, slots in zip(cells.low, cells.high, cells.slots, strict=True):
        first, last = min(max(low, 0), n), min(max(high, 0), n)
        f[first : last + 1] += slots / (last - first + 1)
    f = np.maximum(f, 0.0)
    return f / f.sum()


def estimate(observed: Observed, method: str, n: int = N) -> tuple[np.ndarray, object, float]:
    """Pooled shares at 0..n, the profile (None for naive), seconds."""
    start = time.process_time()
    if method == "naive":
        f = naive(observed, n)
        return f, None, time.process_time() - start
    name, _, norm = method.partition("-")
    options = {"norm": float(norm)} if norm else {}
    profile = reconstruct([observed], method=name, max_count=n, **options)
    seconds = time.process_time() - start
    f = np.array(profile.fractions)
    f[-1] += profile.above.value
    return f, profile, seconds


def metrics(f: np.ndarray, truth: np.ndarray, d: int) -> dict[str, float]:
    """Distances between two laws of counts, and signed relative errors of the numbers people ask for."""
    diff = f - truth
    tail, real = np.cumsum(f[::-1])[::-1], np.cumsum(truth[::-1])[::-1]
    t = np.arange(f.size)
    out = {
        "l1": float(np.abs(diff).sum()),
        "l2": float(np.sqrt((diff**2).sum())),
        "linf": float(np.abs(diff).max()),
        "emd": float(np.abs(np.cumsum(diff)).sum()),
        "ks": float(np.abs(np.cumsum(diff)).max()),
        "wmre": float(2 * np.abs(diff[1:]).sum() / max((np.abs(f[1:]) + truth[1:]).sum(), 1e-12)),
    }
    ours, theirs = np.maximum(f[1:], 0), truth[1:]
    if ours.sum() > 0 and theirs.sum() > 0:
        out["shuffle"] = float(0.5 * np.abs(ours / ours.sum() - theirs / theirs.sum()).sum())
    for k in (1, 2, 3, 5, 10):
        if real[k] > 0:
            out["distinct" if k == 1 else f"{k}+"] = float(tail[k] / real[k] - 1)
    if truth[1] > 0:
        out["f1"] = float(f[1] / truth[1] - 1)

    def entropy(g: np.ndarray) -> float:
        g = np.maximum(g, 0)
        total = float(t @ g) * d
        return math.log(total) - float((t[1:] * np.log(t[1:])) @ g[1:]) * d / total if total > 0 else 0.0

    if real[1] > 0:
        out["entropy"] = entropy(f) / max(entropy(truth), 1e-9) - 1
        out["mean"] = float((t @ f) / max(tail[1], 1e-12) / ((t @ truth) / real[1]) - 1)
    return out


def run(name: str, h: np.ndarray, epsilons: Iterable[str], seeds: int, form: str, cost: str | None, kind: str) -> list[dict]:
    """One row for each epsilon and method: means over the seeds."""
    truth = np.bincount(h, minlength=N + 1) / h.size
    rows = []
    for epsilon in epsilons:
        exact = LN3 if epsilon == "ln3" else epsilon
        every: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
        for seed in range(seeds):
            rng = np.random.default_rng([seed, hash_name(name)])
            observed = publish([h], epsilon=exact, rng=rng, form=form, cost=cost, max_count=N)
            for method in METHODS:
                f, _, seconds = estimate(observed, method)
                every[method].append({**metrics(f, truth, h.size), "seconds": seconds})
        for method, runs in every.items():
            row: dict = {"set": name, "kind": kind, "d": int(h.size), "zeros": float(truth[0]), "epsilon": epsilon,
                         "form": form, "cost": cost or epsilon, "method": method, "seeds": seeds}  # fmt: skip
            for key in runs[0]:
                values = np.array([one.get(key, np.nan) for one in runs])
                row[key] = float(values.mean())
                if key in ("distinct", "2+", "3+", "5+", "10+", "f1", "entropy", "mean"):
                    row["abs_" + key] = float(np.abs(values).mean())
            row["l1_95"] = float(np.quantile([one["l1"] for one in runs], 0.95))
            row["pass_95_5"] = float(np.mean([abs(one.get("distinct", 0.0)) <= 0.05 for one in runs]))
            row["pass_80_20"] = float(np.mean([one.get("shuffle", 0.0) <= 0.20 for one in runs]))
            rows.append(row)
        show(rows[-len(METHODS) :])
    return rows


def hash_name(name: str) -> int:
    """A small number that depends on the name only."""
    return sum((i + 1) * ord(c) for i, c in enumerate(name)) % 100_003


def show(rows: list[dict]) -> None:
    """One line for each epsilon: the ratios that are judged."""
    by = {row["method"]: row for row in rows}
    seed = min(by[m]["l1"] for m in METHODS if m.startswith("circulant"))
    mine = by["likelihood"]
    print(
        f"{mine['set']:18} d={mine['d']:>7} {mine['form']:10} eps={mine['epsilon']:4} "
        f"L1 {mine['l1']:.4f} /seed {mine['l1'] / seed:5.2f} /naive {mine['l1'] / by['naive']['l1']:5.2f}  "
        f"EMD /monotone {mine['emd'] / max(by['monotone']['emd'], 1e-12):5.2f}  "
        f"{mine['seconds']:.2f} s",
        flush=True,
    )


def capped(counts: np.ndarray, items: int, rng: np.random.Generator, zeros: float = 1.0) -> np.ndarray:
    """Up to `items` counts, capped at N, and `zeros` times as many empty slots."""
    if counts.size > items:
        counts = rng.choice(counts, items, replace=False)
    return np.concatenate([np.zeros(int(zeros * counts.size), dtype=np.int64), np.minimum(counts, N)])


def real_sets(quick: bool) -> dict[str, np.ndarray]:
    """Slot counts of the real sets that can be brought: whole, and 23,000 slots of each."""
    out = {}
    for name in ("flights", "debian_deps") if quick else data.REAL:
        try:
            counts = data.load(name)
        except data.Unavailable as error:
            print(f"{name} is left out: {error}")
            continue
        rng = np.random.default_rng(hash_name(name))
        whole = capped(counts, 300_000, rng)
        out[name] = whole
        if whole.size > 46_000:
            out[name + "@23k"] = capped(counts, 11_500, rng)
    return out


def main() -> None:
    """Run what was asked for and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--sets", default="")
    parser.add_argument("--epsilons", default=",".join(EPSILONS))
    parser.add_argument("--part", default="profiles,forms,coverage,opened,large")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("quick.json" if options.quick else "accuracy.json")
    results = json.loads(path.read_text()) if path.exists() else {}
    seeds = options.seeds or (3 if options.quick else 20)
    wanted = set(options.part.split(","))
    epsilons = options.epsilons.split(",")
    picked = set(filter(None, options.sets.split(",")))
    if "profiles" in wanted:
        rows = []
        for name, h in real_sets(options.quick).items():
            if not picked or name in picked:
                rows += run(name, h, epsilons, seeds, "state", None, "real")
        for name, h in data.stress(np.random.default_rng(1), 100_000).items():
            if (not picked or name in picked) and not (options.quick and name not in ("spikes", "zipf_1.5")):
                rows += run(name, h, epsilons, seeds, "state", None, "stress")
        results["profiles"] = rows
        path.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
