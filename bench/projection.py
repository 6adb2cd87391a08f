"""Projections: rows of the matrix, updates and distance blocks against their limits; accuracy on real data.

In: --quick, --table speed|accuracy. Out: rates, ratios and errors on the terminal. Touches: the cache of data sets.

Speed. Updates: events that add weight R[feature] to random rows of 64 cells, against the limit: a loop that adds one
vector of 64 int64, which stays in the nearest cache, to the same rows with the same prefetching. Beside it the ratio
to a loop that adds a constant, which reads nothing. Blocks: all distances of 4,096 rows to 100,000, against the product
of BLAS alone, both into the same buffer. One-thread loops are timed by the thread's CPU time and run in turn; cells are
medians.

Accuracy. Every flight (airport; origin, carrier and hour), dependency (maintainer; package) and name (package;
identifier) is an event. Errors of all distances over draws of (seed, noise) are compared with the closed form, each
pair alike and (plain) by squared error. The ten nearest rows are compared with the true ones, beside scikit-learn's
projection, which adds no noise.

Run: python bench/projection.py [--quick]
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from data import Unavailable, _flights, _packages
from sklearn.random_projection import GaussianRandomProjection

from sketchstream.kernels import kernel
from sketchstream.kernels.machine_code import prefetch as _prefetch
from sketchstream.kinds.projection.forecast import expected_errors
from sketchstream.kinds.projection.matrices.kernels import AHEAD
from sketchstream.kinds.projection.matrices.matrix import Matrix
from sketchstream.kinds.projection.mechanism import apply, creation_sigma2, publication_sigma2
from sketchstream.kinds.projection.reading.answers import Projection
from sketchstream.kinds.projection.reading.distances import Distances
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.noise import discrete_gaussian

K = 64
NEAREST = 10
TARGETS = {"rows": 3.0, "updates": 0.6, "blocks": 1.5, "rmse": 0.03}


@kernel
def add_vector(state, rows, vector):
    """The limit: what the memory allows of adding k int64 at random rows."""
    width = state.shape[1]
    flat = state.reshape(-1)
    for i in range(len(rows)):
        coming = i + AHEAD
        if coming < len(rows):
            start = rows[coming] * width
            for c in range(0, width, 8):
                _prefetch(flat, start + c)
        target = state[rows[i]]
        for c in range(width):
            target[c] += vector[c]


@kernel
def add_constant(state, rows):
    """The same without reading what is added."""
    width = state.shape[1]
    flat = state.reshape(-1)
    for i in range(len(rows)):
        coming = i + AHEAD
        if coming < len(rows):
            start = rows[coming] * width
            for c in range(0, width, 8):
                _prefetch(flat, start + c)
        target = state[rows[i]]
        for c in range(width):
            target[c] += 3


def clocked(loops: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each loop; the loops run in turn, the first round counts for nothing."""
    spent: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds + 1):
        for name, loop in loops.items():
            start = clock()
            loop()
            spent[name].append(clock() - start)
    return {name: statistics.median(one[1:]) for name, one in spent.items()}


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def speed(quick: bool) -> None:
    rounds = 3 if quick else 7
    print(f"rows of the matrix, k = {K}, one thread")
    features = np.arange(1 << 14 if quick else 1 << 16)
    for family in ("gaussian", "rademacher", "srht"):
        matrix = Matrix(family, bytes(32), 1 << 22, K)
        took = clocked({"rows": lambda matrix=matrix: matrix.rows(features)}, rounds, time.thread_time)["rows"]
        rate = features.size * K / took / 1e6
        print(f"  {family:12s} {rate:9.1f} million entries/s  (target {TARGETS['rows']}: {verdict(rate >= 3)})")
    random = np.random.default_rng(1)
    vector = random.integers(-9, 10, K)
    for n in (1 << 12, 1 << 18):
        print(f"updates, {n} rows of {K} cells ({n * K * 8 >> 20} MiB), one thread")
        size = 1 << 16 if quick else 1 << 19
        for family, d in (("gaussian", 10_000), ("rademacher", 10_000), ("gaussian", 1 << 22)):
            spec = ProjectionSpec(n, d, K, 1, "1e-6", matrix=family, max_weight=3)
            matrix = spec.projection_matrix()
            state, other = np.zeros((n, K), np.int64), np.zeros((n, K), np.int64)
            rows, touched = random.integers(0, n, size), random.integers(0, d, size)
            weights = random.integers(-3, 4, size)
            took = clocked(
                {
                    "ours": lambda state=state, rows=rows, touched=touched, weights=weights, spec=spec, matrix=matrix: (
                        apply(spec, matrix, state, rows, touched, weights)
                    ),
                    "limit": lambda other=other, rows=rows: add_vector(other, rows, vector),
                    "constant": lambda other=other, rows=rows: add_constant(other, rows),
                },
                rounds,
                time.thread_time,
            )
            kept = "kept" if matrix.precomputable else "made per batch"
            ratio = took["limit"] / took["ours"]
            text = f"  {family:12s} {d:8d} features, rows {kept:15s} {size / took['ours'] / 1e6:7.2f} M events/s"
            text += f", limit {size / took['limit'] / 1e6:7.2f}, ratio {ratio:5.2f}"
            text += f" (of a constant {took['constant'] / took['ours']:5.2f})"
            if matrix.precomputable:
                text += f"  (target {TARGETS['updates']}: {verdict(ratio >= TARGETS['updates'])})"
            print(text, flush=True)
    n, block = (20_000, 1024) if quick else (100_000, 4096)
    spec = ProjectionSpec(n, 1000, K, 1, "1e-6")
    values = random.integers(-(1 << 20), 1 << 20, (n, K))
    distances = Distances(Projection(spec, values, Fraction(1 << 40)))
    left, right = values[:block].astype(float), values.astype(float)
    out = np.zeros((block, n))
    some = slice(0, block)
    took = clocked(
        {"ours": lambda: distances.block(some, out=out), "blas": lambda: np.matmul(left, right.T, out=out)},
        rounds,
        time.perf_counter,
    )
    ratio = took["ours"] / took["blas"]
    text = f"blocks of {block} x {n} distances, k = {K}: {took['ours']:.3f} s, the product alone {took['blas']:.3f} s, "
    print(text + f"ratio {ratio:.2f}  (target {TARGETS['blocks']}: {verdict(ratio <= TARGETS['blocks'])})")


def table(pairs: Counter[tuple[str, str]], most: int) -> np.ndarray:
    """(rows, features) counts of the rows with the most events."""
    heavy = Counter()
    for (row, _), count in pairs.items():
        heavy[row] += count
    rows = {row: i for i, (row, _) in enumerate(heavy.most_common(most))}
    features: dict[str, int] = {}
    kept = [(rows[row], features.setdefault(one, len(features)), n) for (row, one), n in pairs.items() if row in rows]
    out = np.zeros((len(rows), len(features)), np.int64)
    for row, one, count in kept:
        out[row, one] += count
    return out


def airports() -> np.ndarray:
    """Flights from New York in 2013 by destination; features are origin, carrier and scheduled hour."""
    rows = ((row["dest"], f"{row['origin']} {row['carrier']} {row['hour']}") for row in _flights())
    return table(Counter(rows), 105)


def maintainers() -> np.ndarray:
    """Dependencies of Debian's packages, by maintainer."""
    pairs: Counter[tuple[str, str]] = Counter()
    for entry in _packages().split("\n\n"):
        who = re.search(r"^Maintainer: (.*)$", entry, re.MULTILINE)
        needs = re.search(r"^Depends: (.*)$", entry, re.MULTILINE)
        if who and needs:
            for one in re.split(r"[,|]", needs.group(1)):
                pairs[who.group(1), re.split(r"[ (:]", one.strip(), maxsplit=1)[0]] += 1
    return table(pairs, 100)


def names() -> np.ndarray:
    """Identifiers of Python's standard library, by package."""
    pairs: Counter[tuple[str, str]] = Counter()
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if "site-packages" not in path.parts:
            package = path.relative_to(library).parts[0]
            pairs.update((package, one) for one in re.findall(r"[A-Za-z_]\w*", path.read_text("utf-8", "replace")))
    return table(pairs, 100)


def recall(distances: np.ndarray, true: np.ndarray) -> float:
    """Share of the ten nearest rows that are among the true ten nearest."""
    hits = 0
    for one, exact in zip(distances, true, strict=True):
        hits += len(set(np.argsort(one)[:NEAREST].tolist()) & set(np.argsort(exact)[:NEAREST].tolist()))
    return hits / (len(true) * NEAREST)


def accuracy(quick: bool) -> None:
    draws = 20 if quick else 200
    print(f"unit event, delta 1e-6, rademacher, fresh noise at the seal, {draws} draws of (seed, noise)")
    print(
        f"{'data':12s} {'rows x features':>16s} {'eps':>4s} {'k':>5s} {'rmse':>10s} {'closed':>10s} {'ratio - 1':>10s}",
        end="",
    )
    print(f" {'plain - 1':>10s} {'recall':>7s} {'sklearn':>8s} {'identity':>10s}  best is")
    for name, load in (("airports", airports), ("maintainers", maintainers), ("names", names)):
        try:
            data = load()
        except (Unavailable, subprocess.SubprocessError) as error:
            print(f"{name:12s} not available: {error}")
            continue
        n, d = data.shape
        upper = np.triu_indices(n, 1)
        gaps = (data[upper[0]] - data[upper[1]]).astype(float)
        w2, w4 = (gaps**2).sum(axis=1), (gaps**4).sum(axis=1)
        true = np.full((n, n), np.inf)
        true[upper] = true[upper[1], upper[0]] = w2
        for eps in (1, 4):
            for k in (64, 256):
                spec = ProjectionSpec(n, d, k, eps, "1e-6", matrix="rademacher")
                first, fresh = creation_sigma2(spec), publication_sigma2(spec)
                squares, found = np.zeros(w2.size), []
                for draw in range(draws):
                    matrix = Matrix("rademacher", draw.to_bytes(32, "little"), d, k)
                    values = np.rint(data.astype(float) @ matrix.all_rows.astype(float)).astype(np.int64)
                    discrete_gaussian(values, first)
                    discrete_gaussian(values, fresh)
                    projection = Projection(spec, values, first + fresh, matrix)
                    block = next(Distances(projection).blocks(n))[1]
                    squares += (block[upper] - w2) ** 2
                    if draw < 20:
                        np.fill_diagonal(block, np.inf)
                        found.append(recall(block, true))
                closed = projection.law.squared_norm(w2, 2 * projection.tau, w4)
                # Each pair counts alike: a few heavy rows would otherwise decide.
                ratio = float(np.sqrt(np.mean(squares / draws / closed)))
                plain = float(np.sqrt(np.mean(squares / draws) / np.mean(closed)))
                peers = []
                for seed in range(5):
                    image = GaussianRandomProjection(k, random_state=seed).fit_transform(data.astype(float))
                    far = ((image[:, None] - image[None]) ** 2).sum(axis=2)
                    np.fill_diagonal(far, np.inf)
                    peers.append(recall(far, true))
                plan = expected_errors(spec, float(np.median(w2)))
                text = f"{name:12s} {n:6d} x {d:7d} {eps:4d} {k:5d} {np.sqrt(np.median(squares / draws)):10.4g}"
                text += (
                    f" {np.sqrt(np.median(closed)):10.4g} {ratio - 1:+10.2%} {plain - 1:+10.2%} {np.mean(found):7.2f}"
                )
                text += f" {np.mean(peers):8.2f} {plan.identity:10.4g}"
                text += f"  {'identity' if plan.identity_better else 'projection'}"
                print(text + f"  (3%: {verdict(abs(ratio - 1) <= TARGETS['rmse'])})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and draws, smaller tables")
    parser.add_argument("--table", choices=("speed", "accuracy"), help="one table only")
    given = parser.parse_args()
    if given.table != "accuracy":
        speed(given.quick)
    if given.table != "speed":
        accuracy(given.quick)


if __name__ == "__main__":
    main()
