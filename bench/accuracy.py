"""Accuracy of every estimator on real streams and stress sets: one command, one results file, a summary, plots.

    python bench/accuracy.py                 everything, on as many processes as there are cores (--jobs)
    python bench/accuracy.py --quick         few sets, few seeds: minutes
    python bench/accuracy.py --part profiles | forms | opened | coverage | reach [--seeds N] [--runs N]
    python bench/accuracy.py --part profiles --sets flights,spikes --epsilons 1,2     some rows; the others stay
    python bench/accuracy.py --part coverage --cells closed      cells whose name contains a text; the others stay
    python bench/accuracy.py --part reach [--cells spikes] [--runs N]    coverage of k+ numbers at every k
    python bench/accuracy.py --part totals [--cells zipf] [--runs N]     coverage of total and mean by the noisy total
    python bench/accuracy.py --part page [--kinds gaussian]    docs/accuracy.md: all kinds, with bounds and peers

In: data sets brought by bench/data.py. Out: bench/results/accuracy.json, accuracy.md, *.png. Touches: those files.
Each row is a mean over seeds; the naive row (clipping what was published) is always there. Counts are capped at
n = 300 before the noise; half of the slots are empty unless a set says otherwise.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import data

from helpers.thrown import thrown
from sketchstream.errors import EstimateError
from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty, closed_domain_bands
from sketchstream.kinds.profile.estimate.intervals.totals import RatioEnds, TotalEnds
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct

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
    cells = observed.published(0)
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


def run(
    name: str, h: np.ndarray, epsilons: Iterable[str], seeds: int, form: str, cost: str | None, kind: str
) -> list[dict]:
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


FORMS = ("state", "cumulative", "bins")


def forms(seeds: int, quick: bool, jobs: int, picked: set[str], epsilons: Sequence[str]) -> list[dict]:
    """L1 from a published histogram against L1 from the bare state of the same sketch, cost = epsilon."""
    tasks = []
    for name in ("twitter_1m",) if quick else ("twitter_1m", "twitter_10m", "python_names", "subtlex", "linux_names"):
        if picked and name not in picked:
            continue
        try:
            counts = data.load(name)
        except data.Unavailable:
            continue
        for items in (500, 5_000, 75_000):
            h = capped(counts, items, np.random.default_rng(hash_name(name) + items))
            tasks += [(name, h, epsilon, seeds) for epsilon in epsilons if epsilon != "ln3"]
    return list(together(jobs, forms_of, tasks))


def forms_of(name: str, h: np.ndarray, epsilon: str, seeds: int) -> dict:
    """One row of `forms`: means over the seeds."""
    truth = np.bincount(h, minlength=N + 1) / h.size
    every: dict[str, list[tuple[float, float, float]]] = {form: [] for form in FORMS}
    for seed in range(seeds):
        for form in FORMS:
            draw = np.random.default_rng([seed, hash_name(name)])
            observed = publish([h], epsilon=epsilon, rng=draw, form=form, max_count=N)
            f, _, seconds = estimate(observed, "likelihood")
            every[form].append((np.abs(f - truth).sum(), np.abs(naive(observed, N) - truth).sum(), seconds))
    means = {form: np.mean(runs, axis=0) for form, runs in every.items()}
    row = {"set": name, "d": int(h.size), "epsilon": epsilon, "seeds": seeds}
    for form in FORMS:
        row[form] = float(means[form][0])
        row[form + "_to_state"] = float(means[form][0] / means["state"][0])
        row[form + "_to_naive"] = float(means[form][0] / means[form][1])
        row[form + "_seconds"] = float(means[form][2])
    print(
        f"{name:14} d={h.size:>6} eps={epsilon:4} cumulative/state {row['cumulative_to_state']:.2f}  "
        f"bins/state {row['bins_to_state']:.2f}  to naive {row['cumulative_to_naive']:.2f} "
        f"{row['bins_to_naive']:.2f}  seconds {row['state_seconds']:.2f} {row['cumulative_seconds']:.2f} "
        f"{row['bins_seconds']:.2f}",
        flush=True,
    )
    return row


def together(jobs: int, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Results of the tasks in their order, `jobs` of them at a time, each in a process of its own."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(function, *zip(*tasks, strict=True))


NUMBERS = ("distinct", "f1", "at_least.2", "at_least.5", "at_least.10", "mean", "total", "entropy", "one_hit_ratio", "coverage")  # noqa: E501  # fmt: skip
JUDGED_NUMBERS = NUMBERS[:6]


def numbers(items: np.ndarray) -> dict[str, float]:
    """True numbers of a vector of positive counts."""
    total, once = float(items.sum()), float((items == 1).sum())
    out = {f"at_least.{k}": float((items >= k).sum()) for k in (2, 5, 10)}
    spread = float((items * np.log(items)).sum())
    return {
        **out, "distinct": float(items.size), "f1": once, "mean": total / items.size, "total": total,
        "entropy": math.log(total) - spread / total, "one_hit_ratio": once / items.size, "coverage": 1 - once / total,
    }  # fmt: skip


def ends(known: Uncertainty, name: str) -> tuple[float, float]:
    """The 95% interval of a number, before it is cut to possible values and widened to hold an estimate."""
    if name in known.scalars:
        low, high = known.scalars[name].ends(normal_quantile(0.95))
        return float(low[0]), float(high[0])
    if name == "f1":
        low, high = known.counts.ends(normal_quantile(0.95))
        return float(low[1]), float(high[1])
    low, high = known.tails.ends(normal_quantile(0.95))
    k = 1 if name == "distinct" else int(name.partition(".")[2])
    return float(low[k]), float(high[k])


def spiky(rng: np.random.Generator, size: int) -> np.ndarray:
    """Counts that stand at few values, far ones among them."""
    return rng.choice([1, 2, 10, 300, 5000], size, p=[0.5, 0.3, 0.1, 0.08, 0.02])


def zipf(exponent: float, most: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Zipf counts with a largest one."""
    return lambda rng, size: np.minimum(rng.zipf(exponent, size), most)


def geometric(rng: np.random.Generator, size: int) -> np.ndarray:
    """Geometric counts, mean 2.5."""
    return rng.geometric(0.4, size)


POPULATIONS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], int, int]] = {
    "geometric": (geometric, 20_000, 20_000),
    "zipf_1.5": (zipf(1.5, 10**6), 20_000, 20_000),
    "zipf_2": (zipf(2.0, 10**5), 20_000, 20_000),
    "zipf_2.2": (zipf(2.2, 10**6), 2_000, 2_000),
    "spikes": (spiky, 20_000, 20_000),
    "ones": (lambda rng, size: np.ones(size, dtype=np.int64), 20_000, 0),
    "few": (geometric, 200, 20_000),
    "small": (geometric, 500, 500),
    "small_zipf": (zipf(1.5, 10**4), 500, 500),
    "large_zipf": (zipf(1.5, 10**6), 50_000, 50_000),
    "open_geometric": (geometric, 100_000, 0),
    "open_zipf": (zipf(1.5, 10**6), 100_000, 0),
    "open_small": (geometric, 5_000, 0),
    "open_small_zipf": (zipf(1.5, 10**6), 5_000, 0),
    "open_crowded": (geometric, 8_000, 0),
}
"""Counts of the items, how many, and how many empty slots beside them (closed domains)."""
SKETCHES = {"open_small": (1 << 14, 4), "open_small_zipf": (1 << 14, 4), "open_crowded": (1 << 12, 4)}
"""Slots and levels of open domains, where not 2^20 and 8."""


@dataclass(frozen=True)
class Case:
    """One cell of the coverage table. parts: how many sketches were stacked; layers: how many merged."""

    population: str
    unit: str
    form: str
    epsilon: str
    layers: int = 1
    parts: int = 1

    @property
    def domain(self) -> str:
        """Open or closed."""
        return "open" if self.population.startswith("open") else "closed"

    def row(self) -> dict:
        """What names this cell in the results."""
        return {"domain": self.domain, "counts": self.population.removeprefix("open_"), "unit": self.unit,
                "form": self.form, "epsilon": self.epsilon, "layers": self.layers, "parts": self.parts}  # fmt: skip

    def __str__(self) -> str:
        return " ".join(str(value) for value in self.row().values())


def cases() -> list[Case]:
    """Every cell."""
    out = []
    for population in POPULATIONS:
        out += [Case(population, "event", form, epsilon) for form in FORMS for epsilon in ("0.25", "1")]
        if population.startswith("open"):
            out.append(Case(population, "item", "bins", "2"))
        elif population not in ("zipf_2.2", "spikes", "large_zipf"):
            out += [Case(population, "item", form, epsilon) for form in ("state", "bins") for epsilon in ("1", "2")]
    for population in ("geometric", "zipf_1.5"):
        out += [Case(population, "event", form, "1", layers=layers) for form in FORMS for layers in (2, 3)]
        out += [Case(population, "event", form, epsilon, parts=4) for form in FORMS for epsilon in ("0.25", "1")]
        out += [Case(population, "item", "bins", "2", layers=2), Case(population, "item", "bins", "2", parts=4)]
    return out


def drawn(case: Case, h: np.ndarray, rng: np.random.Generator, n: int) -> Observed:
    """One published object of a closed domain; stacked parts are added as readers add them."""
    options = {
        "epsilon": case.epsilon,
        "rng": rng,
        "unit": case.unit,
        "layers": case.layers,
        "max_count": n,
        "grouped": True,
    }
    if case.unit == "item":
        options["modulus"] = 32
    if case.parts == 1 or case.form == "state":  # the states of a stack lie side by side: one longer state
        return publish([h], form=case.form, **options)
    each = [publish([part], form=case.form, **options) for part in np.array_split(h, case.parts)]
    return replace(
        each[0], slots=(h.size,), values=np.sum([one.values for one in each], axis=0, dtype=np.int64), parts=case.parts
    )


def counted(case: Case) -> np.ndarray:
    """True counts of the items that occurred."""
    draw, size, _ = POPULATIONS[case.population]
    items = draw(np.random.default_rng(17), size).astype(np.int64)
    return np.minimum(items, 20) if case.unit == "item" else items


def resolved(case: Case) -> int:
    """Largest count that is asked for."""
    return 31 if case.unit == "item" else 30


def known_in(case: Case, runs: int) -> Iterator[Uncertainty | None]:
    """What is known in each run; None where the sketch is said to be too crowded."""
    items, n, zeros = counted(case), resolved(case), POPULATIONS[case.population][2]
    h = np.random.default_rng(18).permutation(np.concatenate([np.zeros(zeros, dtype=np.int64), items]))
    rng = np.random.default_rng([19, hash_name(str(case))])
    for _ in range(runs):
        if case.domain == "closed":
            yield closed_domain_bands([drawn(case, h, rng, n)], n)
            continue
        options = {"modulus": 32} if case.unit == "item" else {}
        observed = publish(
            hash_counts(items, *SKETCHES.get(case.population, (1 << 20, 8)), rng), epsilon=case.epsilon, rng=rng,
            form=case.form, unit=case.unit, max_count=n, open_domain=True, grouped=True, **options,
        )  # fmt: skip
        try:
            yield reconstruct([observed], max_count=n, method="monotone")._known
        except EstimateError:
            yield None


def covered(case: Case, runs: int) -> dict:
    """Share of runs in which each 95% interval holds the truth, how wide the mean's is, and runs that were refused."""
    truth = numbers(counted(case))
    hits, widths, refused = dict.fromkeys(NUMBERS, 0), [], 0
    for known in known_in(case, runs):
        if known is None:
            refused += 1
            continue
        for name in NUMBERS:
            low, high = ends(known, name)
            slack = 1e-9 * abs(truth[name])  # ends that stand at the last possible value
            hits[name] += low - slack <= truth[name] <= high + slack
            if name == "mean":
                widths.append((high - low) / 2 / truth["mean"])
    return {
        **case.row(), "runs": runs - refused, **{name: hits[name] / (runs - refused) for name in NUMBERS},
        "mean_half_width": float(np.median(widths)), "refused": refused,
    }  # fmt: skip


def reached(case: Case, runs: int) -> dict:
    """Share of runs in which the 95% interval of each k+ number holds the truth, and of those in which all do.

    With `alone`, the same for the interval that each number would have by itself; `width` is the sum of the widths over
    the sum of theirs.
    """
    items, z, n = counted(case), normal_quantile(0.95), resolved(case)
    truth = np.array([(items >= k).sum() for k in range(1, n + 2)], dtype=np.float64)
    hits, joint, widths, done = np.zeros((2, n + 1)), np.zeros(2), np.zeros(2), 0
    for known in known_in(case, runs):
        if known is None:
            continue
        done += 1
        for i, one in enumerate((known.tails, known.tails.band)):
            low, high = (end[1:].clip(0.0) for end in one.ends(z))
            inside = (low <= truth * (1 + 1e-9)) & (truth * (1 - 1e-9) <= high)
            hits[i] += inside
            joint[i] += inside.all()
            widths[i] += (high - low).sum()
    return {
        **case.row(), "runs": done, "covered": (hits[0] / done).tolist(), "alone": (hits[1] / done).tolist(),
        "joint": joint[0] / done, "joint_alone": joint[1] / done, "width": widths[0] / widths[1],
    }  # fmt: skip


def reach(runs: int, quick: bool, wanted: str, path: Path, jobs: int) -> None:
    """Coverage of k+ numbers at every k, for each cell whose name contains `wanted`, written as it comes."""
    todo = [case for case in REACH if wanted in str(case) and (not quick or str(case) in QUICK)]
    for row in together(jobs, reached, [(case, runs) for case in todo]):
        save({"reach": [row]}, path, LABEL)
        print(reach_line(row), flush=True)


SHARE = Fraction(1, 40)
"""What the total gets of every layer and publication."""
WIDTHS = ("total_width", "mean_width", "bare_width")
TOTALS = [
    Case(population, "event", "cumulative", epsilon, parts=parts)
    for population, epsilon, parts in (
        ("geometric", "1", 1),
        ("geometric", "0.25", 4),
        ("zipf_1.5", "1", 1),
        ("zipf_1.5", "0.25", 1),
        ("zipf_2.2", "1", 1),
        ("few", "1", 1),
        ("open_small_zipf", "1", 1),
    )
]
"""Cells in which total and mean are looked at."""


def totalled(case: Case, runs: int) -> dict:
    """Share of runs in which total and mean hold the truth, and their median relative half widths.

    `bare`: the mean's half width from a histogram alone, of the whole epsilon.
    """
    truth, z = numbers(counted(case)), normal_quantile(0.95)
    rng = np.random.default_rng([23, hash_name(str(case))])
    draws = (SHARE * Fraction(case.epsilon),) * (2 * case.parts)
    noise = NoiseSum(draws)
    hits, widths = dict.fromkeys(("total", "mean"), 0), {"total": [], "mean": [], "bare": []}
    slots = replace(case, epsilon=str((1 - SHARE) * Fraction(case.epsilon)))
    done = 0
    for known in known_in(slots, runs):
        if known is None:
            continue
        done += 1
        a = [-math.expm1(-float(epsilon)) for epsilon in draws]
        value = truth["total"] + sum(int(rng.geometric(x)) - int(rng.geometric(x)) for x in a)
        found = {"total": TotalEnds(value, noise), "mean": RatioEnds(value, noise, known.tails.at(1))}
        for name, one in found.items():
            low, high = (float(end[0]) for end in one.ends(z))
            hits[name] += low <= truth[name] <= high
            widths[name].append((high - low) / 2 / truth[name])
        if len(widths["bare"]) < 50:
            low, high = ends(known, "mean")
            widths["bare"].append((high - low) / 2 / truth["mean"])
    return {
        **case.row(), "runs": done, **{name: hits[name] / done for name in hits},
        **{f"{name}_width": float(np.median(some)) for name, some in widths.items() if np.isfinite(np.median(some))},
    }  # fmt: skip


def totals(runs: int, quick: bool, wanted: str, path: Path, jobs: int) -> None:
    """Coverage of total and mean, for each cell whose name contains `wanted`, written as it comes."""
    todo = [case for case in TOTALS if wanted in str(case)][: 2 if quick else None]
    for row in together(jobs, totalled, [(case, runs) for case in todo]):
        save({"totals": [row]}, path, LABEL)
        print(totals_line(row), flush=True)


def totals_line(row: dict) -> str:
    """A row of the table of totals."""
    cells = [f"{100 * row[name]:.1f}" for name in ("total", "mean")]
    cells += [f"{100 * row[name]:.2g}" if name in row else "open" for name in WIDTHS]
    return "| " + " | ".join([*(str(row[key]) for key in (*LABEL, "runs")), *cells]) + " |"


def totals_table(rows: list[dict]) -> list[str]:
    """Coverage of total and mean where there is a noisy total."""
    columns = ("total", "mean", "total +-", "mean +-", "mean +- without")
    lines = ["## Coverage of total and mean by the noisy total (share 1/40), in %", "",
             "`python bench/accuracy.py --part totals`. Median half widths in % of the truth; the last column is the "
             "mean's from the histogram alone; open: no upper end.", "",
             "| " + " | ".join([*LABEL, "runs", *columns]) + " |",
             "|---" * (len(LABEL) + 1 + len(columns)) + "|"]  # fmt: skip
    return [*lines, *map(totals_line, rows), ""]


def reach_line(row: dict) -> str:
    """A row of the table of k+ numbers."""
    least = int(np.argmin(row["covered"]))
    return "| " + " | ".join([
        *(str(row[key]) for key in (*LABEL, "runs")),
        f"{100 * np.mean(row['covered']):.1f}", f"{100 * row['covered'][least]:.1f} (k = {least + 1})",
        f"{100 * min(row['alone']):.1f}", f"{100 * row['joint']:.0f}", f"{100 * row['joint_alone']:.0f}",
        f"{row['width']:.2f} |",
    ])  # fmt: skip


def coverage(runs: int, quick: bool, wanted: str, path: Path, jobs: int) -> None:
    """Coverage of every cell whose name contains `wanted`, written as it comes; other cells keep what they had.

    Closed domains need no estimate: their intervals are the same for every method (a test holds that), and an
    interval that is widened to hold its estimate only covers more. Open ones stand around the method's own model;
    `monotone` is taken.
    """
    todo = [case for case in cases() if wanted in str(case) and (not quick or str(case) in QUICK)]
    for case, row in zip(todo, together(jobs, covered, [(case, runs) for case in todo]), strict=True):
        with alone(path):
            before = [one for one in stored(path).get("coverage", []) if {**one, **case.row()} != one]
            write({**stored(path), "coverage": [*before, row]}, path)
        print(
            f"{case!s:44} " + " ".join(f"{name} {100 * row[name]:.1f}" for name in NUMBERS)
            + f"  mean +-{100 * row['mean_half_width']:.2g}%",
            flush=True,
        )  # fmt: skip


QUICK = (
    "closed geometric event cumulative 1 1 1",
    "closed geometric event bins 0.25 1 1",
    "closed geometric item bins 2 1 1",
)


LABEL = ("domain", "counts", "unit", "form", "epsilon", "layers", "parts")
REACH = [
    *(
        Case(population, "event", form, epsilon)
        for population in ("geometric", "zipf_1.5", "zipf_2.2", "spikes", "few", "open_small", "open_small_zipf")
        for form in ("cumulative", "bins")
        for epsilon in ("0.25", "1")
    ),
    *(
        Case(population, "item", "bins", "2")
        for population in ("geometric", "zipf_1.5", "open_small", "open_small_zipf")
    ),
    *(Case("geometric", "event", form, "1", layers=2) for form in ("cumulative", "bins")),
    *(Case("geometric", "event", form, "0.25", parts=4) for form in ("cumulative", "bins")),
]
"""Cells in which k+ numbers are looked at for every k."""


LIMITS = {"1": {10**5: 1.1, 10**6: 0.55, 10**7: 0.5, 10**8: 0.6}, "2": {10**5: 0.5, 10**6: 0.3, 10**7: 0.3, 10**8: 0.4}}
"""Judged RMS relative errors of the distinct count, in %, by epsilon and items."""


def law(counts: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts and their chances: geometric(0.4), or Zipf 1.5 with everything beyond 10^6 at 10^6."""
    if counts == "geometric":
        t = np.arange(1, 80)
        p = 0.4 * 0.6 ** (t - 1)
    else:
        t = np.arange(1, 10**6 + 1)
        p = t**-1.5 / 2.6123753486854883
        p[-1] = 1.0 - p[:-1].sum()
    return t, p / p.sum()


def thrown_run(items: int, counts: str, seed: int) -> list[dict]:
    """One stream in 2^20 slots, published at each epsilon: errors of the distinct count and of the first four cells.

    The errors of the cells are in units of what docs/theory/profile.md 5 and 6 predict for an unbiased estimate.
    """
    rng = np.random.default_rng([seed, items, hash_name(counts)])
    t, p = law(counts)
    amount = rng.multinomial(items, p)
    levels = 12 if items == 10**8 else 8
    slots = thrown(t, amount, 1 << 20, levels, rng)
    out = []
    for epsilon in LIMITS:
        observed = publish(
            slots, epsilon=epsilon, rng=rng, form="cumulative", open_domain=True, max_count=30, grouped=True
        )
        profile = reconstruct([observed], max_count=30)
        known = profile._known.counts.variance[1:5]
        out.append({
            "epsilon": epsilon, "error": profile.distinct.value / items - 1,
            "width": (profile.distinct.high - profile.distinct.low) / 3.92 / items,
            "cells": ((profile.counts[1:5] - amount[:4]) / np.sqrt(np.maximum(known, 1e-9))).tolist(),
        })  # fmt: skip
    return out


def thrown_items(seed: int) -> float:
    """Relative error of the distinct count of 10^6 items, unit item, modulus 32, epsilon 2."""
    rng = np.random.default_rng([29, seed])
    t, p = law("geometric")
    amount = rng.multinomial(10**6, p)
    slots = thrown(np.minimum(t, 31), amount, 1 << 20, 8, rng)
    observed = publish(slots, epsilon=2, rng=rng, form="bins", unit="item", modulus=32, open_domain=True, grouped=True)
    return reconstruct([observed], max_count=31).distinct.value / 10**6 - 1


def opened(runs: int, quick: bool, path: Path) -> None:
    """RMS relative error of the distinct count from published histograms of 2^20 slots, and what was predicted.

    Written as it comes, one stream after the other.
    """
    rows: list[dict] = []
    with ProcessPoolExecutor(2) as pool:
        for items in (10**5, 10**6) if quick else (10**5, 10**6, 10**7, 10**8):
            for counts in ("geometric", "zipf"):
                found = list(pool.map(thrown_run, [items] * runs, [counts] * runs, range(runs)))
                for i, epsilon in enumerate(LIMITS):
                    some = [one[i] for one in found]
                    row = {"epsilon": epsilon, "items": items, "counts": counts, "levels": 12 if items == 10**8 else 8,
                           "runs": runs, "rms": rms([one["error"] for one in some]),
                           "predicted": float(np.mean([one["width"] for one in some])),
                           "limit": LIMITS[epsilon][items] / 100,
                           "cells": [rms([one["cells"][k] for one in some]) for k in range(4)]}  # fmt: skip
                    rows.append(row)
                    print(
                        f"open eps={epsilon} {items:>9} {counts:9} rms {100 * row['rms']:.2f}% limit "
                        f"{100 * row['limit']:.2f}% predicted {100 * row['predicted']:.2f}%  cells over prediction "
                        + " ".join(f"{x:.2f}" for x in row["cells"]),
                        flush=True,
                    )
                save({"opened": rows}, path)
        row = {"epsilon": "2", "items": 10**6, "counts": "geometric", "unit": "item", "levels": 8, "runs": runs,
               "rms": rms(list(pool.map(thrown_items, range(runs)))), "limit": 0.02}  # fmt: skip
    save({"opened": [*rows, row]}, path)
    print(f"open item eps=2 10^6 rms {100 * row['rms']:.2f}% limit 2%", flush=True)


def rms(errors: list[float]) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def ratios(rows: list[dict]) -> list[dict]:
    """The judged ratios, one for each set and epsilon."""
    out, groups = [], {}
    for row in rows:
        groups.setdefault((row["set"], row["epsilon"]), {})[row["method"]] = row
    for (name, epsilon), by in groups.items():
        mine = by["likelihood"]
        best = min(by[m]["l1"] for m in METHODS if m.startswith("circulant"))
        worst_emd = min(by[m]["emd"] for m in METHODS if m.startswith("circulant"))
        out.append(
            {
                "set": name,
                "epsilon": epsilon,
                "kind": mine["kind"],
                "d": mine["d"],
                "l1": mine["l1"] / max(best, 1e-12),
                "naive": mine["l1"] / max(by["naive"]["l1"], 1e-12),
                "emd": mine["emd"] / max(by["monotone"]["emd"], 1e-12),
                "emd_seed": mine["emd"] / max(worst_emd, 1e-12),
                "seconds": mine["seconds"],
            }
        )
    return out


def seeds_of(rows: list[dict]) -> str:
    """How many seeds the rows are means over."""
    return " or ".join(str(seeds) for seeds in sorted({row["seeds"] for row in rows}))


def summary(results: dict, path: Path) -> None:
    """Tables for people, and two plots."""
    lines = ["# Accuracy", "", "Written by `python bench/accuracy.py`; every number is a mean over seeds.", ""]
    if "profiles" in results:
        found = ratios(results["profiles"])
        for kind, title in (("real", "Real sets, d from 20,000 up"), ("stress", "Stress sets, d = 100,000")):
            seeds = seeds_of([row for row in results["profiles"] if row["kind"] == kind])
            lines += [
                f"## {title}: `likelihood` against Wu & Pagh's algorithm at its best norm, {seeds} seeds", "",
                "| epsilon | sets | L1 / seed, mean | limit | worst | limit | EMD / monotone | limit | EMD / seed, median "  # noqa: E501
                "| L1 / naive, worst | seconds, median |", "|---|---|---|---|---|---|---|---|---|---|---|",
            ]  # fmt: skip
            for epsilon in EPSILONS:
                here = [r for r in found if r["kind"] == kind and r["epsilon"] == epsilon and r["d"] >= 20_000]
                if not here:
                    continue
                limit, worst = JUDGED.get(epsilon, ("", "")) if kind == "real" else (JUDGED_STRESS.get(epsilon, ""), "")
                emd = JUDGED_EMD.get(epsilon, "") if kind == "real" else ""
                top = max(here, key=lambda r: r["l1"])
                lines.append(
                    f"| {epsilon} | {len(here)} | {np.mean([r['l1'] for r in here]):.2f} | {limit} | "
                    f"{top['l1']:.2f} ({top['set']}) | {worst} | {np.mean([r['emd'] for r in here]):.2f} | {emd} | "
                    f"{np.median([r['emd_seed'] for r in here]):.2f} | {max(r['naive'] for r in here):.2f} | "
                    f"{np.median([r['seconds'] for r in here]):.2f} |"
                )
            lines.append("")
        small = [r for r in found if r["d"] < 20_000]
        if small:
            lines += ["Small real sets (d below 20,000), worst L1 / naive at any epsilon: "
                      f"{max(r['naive'] for r in small):.2f}.", ""]  # fmt: skip
        lines += ["## Every method: mean L1 over the real sets", "", "| epsilon | " + " | ".join(METHODS) + " |",
                  "|---" * (len(METHODS) + 1) + "|"]  # fmt: skip
        for epsilon in EPSILONS:
            some = [r for r in results["profiles"] if r["epsilon"] == epsilon and r["kind"] == "real"]
            if some:
                means = [np.mean([r["l1"] for r in some if r["method"] == m]) for m in METHODS]
                lines.append(f"| {epsilon} | " + " | ".join(f"{x:.3f}" for x in means) + " |")
        lines.append("")
        draw(found, path.with_name(path.stem + "_ratios.png"))
    if "forms" in results:
        lines += [f"## From a published histogram: L1 over the bare state's (mean over sets), "
                  f"{seeds_of(results['forms'])} seeds", "",
                  "| d | epsilon | cumulative | bins | cumulative / naive | bins / naive |", "|---|---|---|---|---|---|"]  # fmt: skip  # noqa: E501
        for d in sorted({r["d"] for r in results["forms"]}):
            for epsilon in ("0.1", "0.25", "0.5", "1", "2"):
                some = [r for r in results["forms"] if r["d"] == d and r["epsilon"] == epsilon]
                columns = ("cumulative_to_state", "bins_to_state", "cumulative_to_naive", "bins_to_naive")
                means = [float(np.exp(np.mean([np.log(r[c]) for r in some]))) for c in columns]
                lines.append(f"| {d:,} | {epsilon} | " + " | ".join(f"{x:.2f}" for x in means) + " |")
        lines.append("")
    if "opened" in results:
        lines += ["## Open domain, 2^20 slots, published cumulative histograms: RMS relative error of distinct", "",
                  "| epsilon | items | counts | levels | runs | RMS | limit | predicted | worst of cells 1 to 4 / predicted (limit 1.5) |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip  # noqa: E501
        for r in results["opened"]:
            predicted = f"{100 * r['predicted']:.2f}% | {max(r['cells']):.2f}" if "predicted" in r else "unit item | "
            lines.append(
                f"| {r['epsilon']} | {r['items']:,} | {r['counts']} | {r['levels']} | {r['runs']} | {100 * r['rms']:.2f}% | "  # noqa: E501
                f"{100 * r['limit']:.2f}% | {predicted} |"
            )
        lines.append("")
    if "coverage" in results:
        lines += covered_table(results["coverage"])
    if "reach" in results:
        lines += reach_table(results["reach"])
    if "totals" in results:
        lines += totals_table(results["totals"])
    path.write_text("\n".join(lines))


def covered_table(rows: list[dict]) -> list[str]:
    """The coverage tables and what lies outside 93 to 97."""
    order = {str(case): i for i, case in enumerate(cases())}
    rows = sorted(rows, key=lambda r: order.get(" ".join(str(r[key]) for key in LABEL), len(order)))
    lines = ["## Coverage of the 95% intervals, in %", "",
             "Bold: outside 93 to 97. Where wide bins or a tail lost in the noise leave the mean open, the interval "
             "holds every way it may be, and covers more than 95%. `mean +-` is the median half width of the mean's "
             "interval, in % of the truth. Where the truth is the least or the largest possible value (`ones`: mean "
             "1, all seen once) an interval of possible values can miss to one side only, so it covers 97.5%.", "",
             "| " + " | ".join([*LABEL, "runs", *NUMBERS, "mean +- |"]),
             "|---" * (len(NUMBERS) + 9) + "|"]  # fmt: skip
    for r in rows:
        shares = [f"{100 * r[n]:.1f}" if 0.93 <= r[n] <= 0.97 else f"**{100 * r[n]:.1f}**" for n in NUMBERS]
        lines.append("| " + " | ".join([*(str(r[key]) for key in (*LABEL, "runs")), *shares, f"{100 * r['mean_half_width']:.2g}"]) + " |")  # noqa: E501  # fmt: skip
    judged = [r[n] for r in rows for n in JUDGED_NUMBERS]
    inside, least = sum(0.93 <= x <= 0.97 for x in judged), min(judged)
    lines += ["", f"Of {len(judged)} judged numbers (the first six) {inside} lie within 93 to 97, "
              f"{sum(x > 0.97 for x in judged)} above and {sum(x < 0.93 for x in judged)} below; the least is "
              f"{100 * least:.1f}."]  # fmt: skip
    return [*lines, ""]


def reach_table(rows: list[dict]) -> list[str]:
    """Coverage of k+ numbers at every k."""
    order = {str(case): i for i, case in enumerate(REACH)}
    rows = sorted(rows, key=lambda r: order.get(" ".join(str(r[key]) for key in LABEL), len(order)))
    columns = ("mean", "least", "least, each alone", "all at once", "all, each alone", "width / alone |")
    lines = ["## Coverage of the 95% intervals of k+ numbers, k = 1 to 31, in %", "",
             "`python bench/accuracy.py --part reach`. Mean and least coverage over the k, the least of the intervals "
             "that each number would have by itself (which rise and fall with k), how often all k are covered at once, "
             "and the sum of the widths over that of theirs.", "",
             "| " + " | ".join([*LABEL, "runs", *columns]), "|---" * (len(LABEL) + 1 + len(columns)) + "|"]  # fmt: skip
    return [*lines, *map(reach_line, rows), ""]


def draw(found: list[dict], path: Path) -> None:
    """Ratios of every set by epsilon: L1 against Wu & Pagh, earth mover's distance against monotone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, key, title in zip(
        figure.subplots(1, 2),
        ("l1", "emd"),
        ("L1 / Wu & Pagh's algorithm", "earth mover's distance / monotone"),
        strict=True,
    ):
        for kind, colour in (("real", "#1f5fa8"), ("stress", "#c77d2b")):
            some = [r for r in found if r["kind"] == kind]
            where = {e: i for i, e in enumerate(EPSILONS)}
            shift = -0.08 if kind == "real" else 0.08
            axes.plot([where[r["epsilon"]] + shift for r in some], [max(r[key], 1e-2) for r in some], "o", ms=4,
                      alpha=0.6, color=colour, label=f"{kind} sets")  # fmt: skip
        axes.axhline(1.0, color="0.4", lw=1)
        axes.set_yscale("log")
        axes.set_xticks(range(len(EPSILONS)), EPSILONS)
        axes.set_xlabel("epsilon")
        axes.set_title(title, fontsize=11)
        axes.grid(True, axis="y", alpha=0.3)
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def save(results: dict, path: Path, keys: Sequence[str] = ()) -> None:
    """Write these parts of the results beside the parts that are there; of a part, new rows replace those they name.

    Args:
        results: rows of each part.
        path: the results file.
        keys: columns that name a row; without any the whole part is new.
    """
    with alone(path):
        every = stored(path)
        for part, rows in results.items():
            new = {tuple(row[key] for key in keys) for row in rows}
            kept = [row for row in every.get(part, []) if tuple(row[key] for key in keys) not in new]
            every[part] = [*kept, *rows]
        write(every, path)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time changes the results."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def write(results: dict, path: Path) -> None:
    """All results with four significant digits: a small file."""

    def short(value: object) -> object:
        if isinstance(value, float):
            return float(f"{value:.4g}")
        if isinstance(value, dict):
            return {key: short(one) for key, one in value.items()}
        return [short(one) for one in value] if isinstance(value, list) else value

    tables = {}
    for part, rows in results.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        tables[part] = {"columns": columns, "rows": [[short(row.get(key)) for key in columns] for row in rows]}
    path.write_text(json.dumps(tables, separators=(",", ":")))


def stored(path: Path) -> dict:
    """What `save` wrote, as rows."""
    if not path.exists():
        return {}
    return {
        part: [{key: v for key, v in zip(table["columns"], row, strict=True) if v is not None} for row in table["rows"]]
        for part, table in json.loads(path.read_text()).items()
    }


def main() -> None:
    """Run what was asked for and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--sets", default="")
    parser.add_argument("--epsilons", default=",".join(EPSILONS))
    parser.add_argument("--part", default="profiles,forms,opened,coverage,reach,totals")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--cells", default="", help="coverage and reach: only cells whose name contains this text")
    parser.add_argument("--runs", type=int, default=None, help="runs of the parts opened, coverage and reach")
    parser.add_argument("--kinds", default="", help="page: only these kinds, printed and not written")
    options = parser.parse_args()
    if options.part == "page":
        import page

        page.write(options.quick, list(filter(None, options.kinds.split(","))))
        return
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("quick.json" if options.quick else "accuracy.json")
    seeds = options.seeds or (3 if options.quick else 20)
    wanted = set(options.part.split(","))
    epsilons = options.epsilons.split(",")
    picked = set(filter(None, options.sets.split(",")))
    if "profiles" in wanted:
        sets = [(name, h, "real") for name, h in real_sets(options.quick).items()]
        made = data.stress(np.random.default_rng(1), 100_000).items()
        sets += [(name, h, "stress") for name, h in made if not options.quick or name in ("spikes", "zipf_1.5")]
        tasks = [
            (name, h, [epsilon], seeds, "state", None, kind)
            for name, h, kind in sets
            for epsilon in epsilons
            if not picked or name in picked
        ]
        rows = [row for some in together(options.jobs, run, tasks) for row in some]
        save({"profiles": rows}, path, ("set", "epsilon"))
    if "forms" in wanted:
        rows = forms(seeds, options.quick, options.jobs, picked, epsilons)
        save({"forms": rows}, path, ("set", "d", "epsilon"))
    if "opened" in wanted:
        opened(options.runs or (4 if options.quick else 40), options.quick, path)
    if "coverage" in wanted:
        coverage(options.runs or (100 if options.quick else 2000), options.quick, options.cells, path, options.jobs)
    if "reach" in wanted:
        reach(options.runs or (100 if options.quick else 1000), options.quick, options.cells, path, options.jobs)
    if "totals" in wanted:
        totals(options.runs or (100 if options.quick else 2000), options.quick, options.cells, path, options.jobs)
    summary(stored(path), RESULTS / ("quick.md" if options.quick else "accuracy.md"))


if __name__ == "__main__":
    main()
