"""The page of accuracy: our default, the best in the house, the lower bound and the peers at their best, for each kind.

In: --quick, kinds. Out: docs/accuracy.md, written anew from one run; `bench/accuracy.py --part page` calls it. Touches:
that file. Peers that are not installed are left out of the page by name, never filled in.

All errors are root mean squares at delta 1e-6, unit event, of one layer of noise, which is what the peers have: they protect what is published, and nothing before. The default of `seal` adds a second layer, which protects against a
copy of the open state; it makes errors of counts sqrt(2) larger at most. Truths are drawn by generators with seeds of
their own, on which no method was tuned.
"""

# ruff: noqa: E501  the sentences of the page are written as they appear
from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import sketchstream as ss
from sketchstream.denoising.methods import denoise_by
from sketchstream.denoising.mixture import OFFSETS
from sketchstream.kinds.gaussian.answers import GaussianEstimate
from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.reconstruction import reconstruct
from sketchstream.kinds.projection.forecast import best_columns, with_columns
from sketchstream.kinds.projection.mechanism import apply, creation_sigma2
from sketchstream.kinds.projection.reading.answers import Projection
from sketchstream.kinds.workload.answers import estimate as workload_estimate
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.strategies.ellipsoid import uniform_bound
from sketchstream.kinds.workload.strategies.mechanism import Task, add_noise, choose, unit_variance
from sketchstream.kinds.workload.strategies.optimise import reduce
from sketchstream.kinds.workload.update import StrategyColumns
from sketchstream.noise import discrete_gaussian

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
DELTA = "1e-6"
EPSILONS = ("1/4", "1", "4")
PEERS = ("opendp", "diffprivlib", "scikit-learn", "jax-privacy", "mbi", "hdmm")
Row = dict[str, Any]


def installed(peer: str) -> bool:
    try:
        version(peer)
    except PackageNotFoundError:
        return False
    return True


def rms(errors: Sequence[float] | np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


# The noise of the peers, calibrated and drawn by themselves.


@lru_cache(maxsize=32)
def opendp_noise(epsilon: str, sensitivity: float) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """Scale of OpenDP's Gaussian noise on integers, and a function that adds it."""
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")

    def made(scale: float, size: int = 1) -> Any:
        space = dp.vector_domain(dp.atom_domain(T=int), size=size), dp.l2_distance(T=float)
        return dp.m.make_gaussian(*space, scale=scale)

    def private(scale: float) -> Any:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(made(scale)), float(DELTA))

    target = (float(Fraction(epsilon)), float(DELTA))
    scale = dp.binary_search_param(private, d_in=float(sensitivity), d_out=target)
    return scale, lambda values: np.array(made(scale, values.size)(values.ravel().tolist())).reshape(values.shape)


@lru_cache(maxsize=32)
def diffprivlib_noise(epsilon: str) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """Scale of diffprivlib's discrete Gaussian noise for one event, and a function that adds it."""
    mechanisms = importlib.import_module("diffprivlib.mechanisms")
    one = mechanisms.GaussianDiscrete(epsilon=float(Fraction(epsilon)), delta=float(DELTA), sensitivity=1)
    return one._scale, lambda x: np.array([one.randomise(v) for v in x.ravel().tolist()]).reshape(x.shape)


def noises(epsilon: str) -> dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]]:
    """Noise on counts of the peers that are installed."""
    out = {}
    if installed("opendp"):
        out["OpenDP"] = opendp_noise(epsilon, 1.0)
    if installed("diffprivlib"):
        out["diffprivlib"] = diffprivlib_noise(epsilon)
    return out


# Kind gaussian.


def populations(random: np.random.Generator, d: int) -> dict[str, np.ndarray]:
    """True counts of d slots."""
    half = random.random(d) < 0.5
    return {
        "timetable: half empty, others Poisson 2": np.where(half, 0, random.poisson(2.0, d)),
        "Zipf 1.7, half empty": np.where(half, 0, np.minimum(random.zipf(1.7, d), 10**6)),
        "geometric, mean 20": random.geometric(0.05, d),
        "levels 0, 10, 200": random.choice([0, 10, 200], d),
        "uniform up to 10^5": random.integers(0, 10**5, d),
        "all 50": np.full(d, 50),
    }


def one_count_bound(counts: np.ndarray, sigma: float) -> float:
    """Least root mean squared error of any function of one noisy count, with the law of the true counts known."""
    values, slots = np.unique(counts, return_counts=True)
    points = sigma * (OFFSETS[::2] / 8)
    density = np.exp(-((points / sigma) ** 2) / 2)
    density /= density.sum()
    total = 0.0
    for value, times in zip(values, slots, strict=True):
        at = value + points
        weight = slots * np.exp(-(((at[:, None] - values) / sigma) ** 2) / 2)
        mean = weight @ values / weight.sum(axis=1)
        total += times * float(density @ (mean - value) ** 2)
    return math.sqrt(total / counts.size)


METHODS = ("raw", "js", "js_mean", "soft_sure", "empirical_bayes")


def errors_of_counts(
    counts: np.ndarray, spec: ss.GaussianSpec, runs: int
) -> tuple[dict[str, float], np.ndarray, float]:
    """RMSE of every method and of `auto`; how often each slot's interval holds its count; what `auto` loses.

    That is the distance of its squared errors from those of the best method, in standard errors.
    """
    squares, held = {name: np.zeros(runs) for name in (*METHODS, "auto")}, np.zeros(counts.size)
    for run in range(runs):
        state = counts.astype(np.int64)
        for one in spec.published_variances:
            discrete_gaussian(state, one)
        found = GaussianEstimate(spec, spec.published_variances, state)
        low, high = found.interval().T
        held += (low <= counts) & (counts <= high)
        variance = float(sum(spec.published_variances))
        squares["auto"][run] = np.mean((found.values - counts) ** 2)
        for name in METHODS:
            values = denoise_by(state.astype(np.float64), variance, name).values
            squares[name][run] = np.mean((values - counts) ** 2)
    more = squares["auto"] - squares[min(METHODS, key=lambda name: squares[name].mean())]
    doubt = float(more.mean() / (more.std() / math.sqrt(runs - 1))) if more.any() else 0.0
    return {name: math.sqrt(one.mean()) for name, one in squares.items()}, held / runs, doubt


def gaussian(quick: bool) -> list[Row]:
    d, runs, out = 1000, 3 if quick else 6, []
    for epsilon in EPSILONS:
        for name, counts in populations(np.random.default_rng(35), d).items():
            spec = ss.GaussianSpec(epsilon, DELTA, domain=ss.ClosedDomain(size=d), intrusion=False)
            found, held, _ = errors_of_counts(counts, spec, runs)
            row: Row = {"epsilon": epsilon, "counts": name, "default": found["auto"]}
            row["best in the house"] = min(found[one] for one in METHODS)
            row["bound"] = one_count_bound(counts, math.sqrt(float(spec.sigma2)))
            for peer, (_, noise) in noises(epsilon).items():
                row[peer] = rms([noise(counts) - counts for _ in range(2)])
            row["covered %"] = 100 * float(held.mean())
            out.append(row)
    return out


def held_out(quick: bool) -> list[str]:
    """Random counts, sizes and epsilon: the default against the best in the house, and coverage."""
    ratios, doubts, covered, worst, exact = [], [], [], [], []
    for seed in range(4 if quick else 20):
        random = np.random.default_rng([35, seed])
        d = int(random.choice([70, 300, 1000]))
        counts = list(populations(random, d).values())[seed % 5]
        epsilon = f"{10 ** random.uniform(-1, 0.602):.3f}"
        runs = 10 if quick else 20
        spec = ss.GaussianSpec(epsilon, DELTA, domain=ss.ClosedDomain(size=d))
        found, held, doubt = errors_of_counts(counts, spec, runs)
        doubts.append(doubt)
        ratios.append(found["auto"] / min(found[one] for one in METHODS))
        level = float(held.mean())
        covered.append(100 * level)
        worst.append((level - float(held.min())) / math.sqrt(level * (1 - level) / runs))
        exact.append(math.sqrt(2 * math.log(d)))
    above = [doubt for one, doubt in zip(ratios, doubts, strict=True) if one > 1.03]
    return [
        f"Held out, {len(ratios)} random laws of 70 to 1,000 counts, epsilon .1 to 4, both layers: the default's RMSE over "
        f"that of the best method in the house is {np.median(ratios):.3f} in the median and {max(ratios):.3f} at most "
        f"({len(above)} above 1.03, by {max(above, default=0):.1f} standard errors at most). Intervals cover {np.mean(covered):.1f}% on average, {min(covered):.1f} to "
        f"{max(covered):.1f}%; the worst slot lies {max(worst):.1f} binomial standard errors below its mean, where the "
        f"largest of so many is expected at {np.mean(exact):.1f} if they were normal (20 runs a law: the binomial law is "
        "skewed). At epsilon above 1.5 whole numbers are coarse: the shortest interval that covers at least 95% covers more, "
        "97.2% with one layer at epsilon 4."
    ]


# Kind projection.


def row_sets(random: np.random.Generator) -> dict[str, np.ndarray]:
    """True rows."""
    sparse = np.zeros((40, 2000), np.int64)
    for row in sparse:
        np.add.at(row, np.minimum(random.zipf(1.4, 400), 2000) - 1, random.poisson(4, 400))
    return {"40 rows x 30 features, Poisson 20": random.poisson(20, (40, 30)), "40 rows x 2,000 features, Zipf": sparse}


def distance_errors(rows: np.ndarray, spec: ss.ProjectionSpec, runs: int) -> tuple[float, np.ndarray]:
    """RMSE of all squared distances, and how often the interval of each holds it."""
    u, v = np.triu_indices(len(rows), 1)
    truth = ((rows[u] - rows[v]) ** 2).sum(axis=1)
    who, which = np.nonzero(rows)
    errors, held = [], np.zeros(truth.size)
    for run in range(runs):
        seed = {} if spec.matrix == "identity" else {"seed": (run + 7000).to_bytes(32, "little")}
        fields = {name: one for name, one in spec.to_dict().items() if name not in ("kind", "seed")}
        for name in ("epsilon_publish", "delta_publish"):
            fields.pop(name)
        now = ss.ProjectionSpec(**{**fields, "users": len(rows), "features": rows.shape[1], **seed})
        cells = np.zeros(now.shape, np.int64)
        matrix = now.projection_matrix()
        for start in range(int(rows.max())):  # one event a unit of weight
            more = rows[who, which] > start
            apply(now, matrix, cells, who[more], which[more], np.ones(int(more.sum()), np.int64))
        discrete_gaussian(cells, creation_sigma2(now))
        found = Projection(now, cells, creation_sigma2(now)).distance(u, v)
        errors.append(rms(found.value - truth))
        held += (found.low <= truth) & (truth <= found.high)
    return rms(errors), held / runs


def projection(quick: bool) -> list[Row]:
    runs, out = 2 if quick else 4, []
    for epsilon in ("1", "4"):
        for name, rows in row_sets(np.random.default_rng(36)).items():
            n, d = rows.shape
            u, v = np.triu_indices(n, 1)
            truth = ((rows[u] - rows[v]) ** 2).sum(axis=1)
            default = ss.ProjectionSpec(n, d, 64, epsilon, DELTA, intrusion=False)
            signs = ss.ProjectionSpec(n, d, 64, epsilon, DELTA, matrix="rademacher", intrusion=False)
            k, _ = best_columns(signs, float(np.median(truth)), (16, 64, 256, 1024))
            kept = ss.ProjectionSpec(n, d, None, epsilon, DELTA, matrix="identity", intrusion=False)
            measured = {
                "default": distance_errors(rows, default, runs),
                f"rademacher, k = {k}": distance_errors(rows, with_columns(signs, k), runs),
                "identity": distance_errors(rows, kept, runs),
            }
            best = min(measured, key=lambda one: measured[one][0])
            row: Row = {"epsilon": epsilon, "rows": name, "median truth": float(np.median(truth))}
            row["default (gaussian, k = 64)"] = measured["default"][0]
            row["best in the house"] = measured[best][0]
            row["which, by `plan`"] = best
            for peer, (scale, noise) in noises(epsilon).items():
                errors = []
                for _ in range(2):
                    noisy = noise(rows).astype(float)
                    errors.append(rms(((noisy[u] - noisy[v]) ** 2).sum(axis=1) - 2 * d * scale**2 - truth))
                row[f"{peer}, unprojected"] = rms(errors)
            if installed("scikit-learn"):
                peer = importlib.import_module("sklearn.random_projection")
                images = [peer.GaussianRandomProjection(64, random_state=i).fit_transform(rows) for i in range(runs)]
                row["scikit-learn, k = 64, no privacy"] = rms(
                    [((image[u] - image[v]) ** 2).sum(axis=1) - truth for image in images]
                )
            held = measured[best][1]
            row["covered %"] = 100 * float(held.mean())
            out.append(row)
    return out


# Kinds convolution and workload: errors in closed form, from the calibrated noise.


def jax_factor(workload: np.ndarray) -> float:
    """Mean squared error of jax-privacy's dense factorisation for unit mu."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    dense = importlib.import_module("jax_privacy.matrix_factorization.dense")
    strategy = np.asarray(dense.optimize(len(workload), A=jax.numpy.asarray(workload), max_optimizer_steps=300))
    decoder = np.linalg.solve(strategy.T, workload.T).T
    return float((decoder**2).sum() / len(workload) * (strategy**2).sum(axis=0).max())


def convolution(quick: bool) -> list[Row]:
    size, out = 64 if quick else 128, []
    for epsilon in EPSILONS:
        eps = Fraction(epsilon)
        for name, other in (
            ("sum", f"prefix:{size}"),
            ("window:24", f"trailing:{size}:24"),
            ("window:64", f"trailing:{size}:64"),
        ):
            specs = [
                ss.ConvolutionSpec(name, size, noise=noise, epsilon=epsilon, delta=DELTA)
                for noise in ("auto", "gaussian", "counts")
            ]
            asked = Workload.named(other)
            unit = float(unit_variance(eps, Fraction(DELTA)))
            squares = [float(np.mean(one.mse()[0])) for one in specs]
            best = min(
                choose(Task(asked, eps, Fraction(DELTA)), kind).error / asked.count for kind in ("auto", "gaussian")
            )
            matrix = asked.dense()
            row: Row = {"epsilon": epsilon, "series": f"{name} over {size}", "default": math.sqrt(squares[0])}
            row["best in the house"] = math.sqrt(min(*squares, best))
            row["bound (Gaussian)"] = math.sqrt(uniform_bound(reduce(asked)) * unit / asked.count)
            if installed("jax-privacy"):
                row["jax-privacy, dense"] = math.sqrt(_factor(other) * unit)
            for peer, (scale, _) in noises(epsilon).items():
                row[f"{peer}, on the counts"] = scale * math.sqrt(float((matrix**2).sum()) / asked.count)
            out.append(row)
    return out


@lru_cache(maxsize=8)
def _factor(name: str) -> float:
    return jax_factor(Workload.named(name).dense())


def workload(quick: bool) -> list[Row]:
    runs, out = 10 if quick else 60, []
    asked = Workload.named("marginals:8:2")
    for epsilon in ("1",) if quick else ("1/2", "1"):
        for n in (100, 1000, 10_000):
            random = np.random.default_rng([37, n])
            shares = 1 / (1 + random.permutation(asked.size)) ** 0.8
            histogram = random.multinomial(n, shares / shares.sum())
            truth = asked.apply(histogram.astype(float))
            row: Row = {"epsilon": epsilon, "answers": f"2-way marginals of 8 bits, n = {n:,}"}
            found: dict[str, float] = {}
            for mechanism in ("auto", "gaussian", "laplace"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    spec = ss.WorkloadSpec("marginals:8:2", epsilon, DELTA, mechanism, n_bound=n, intrusion=False)
                name = f"{spec.mechanism} {spec.strategy.form}"
                if mechanism == "auto":
                    default = f"{name}, projected"
                if name not in found:
                    found[name], found[f"{name}, projected"] = workload_errors(spec, histogram, runs)
            row["default"] = found[default]
            best = min(found, key=lambda one: found[one])
            row["best in the house"], row["which"] = found[best], best
            unit = float(unit_variance(Fraction(epsilon), Fraction(DELTA)))
            row["bound, unbiased Gaussian"] = math.sqrt(uniform_bound(reduce(asked)) * unit / asked.count)
            if installed("mbi"):
                ways = [[mbi_errors(histogram, epsilon, asked, truth, i, way) for i in range(2)] for way in MBI]
                row["mbi, the better of two ways"] = min(rms(some) for some in ways)
            for peer, (scale, _) in noises(epsilon).items():
                row[f"{peer}, on the cells"] = scale * math.sqrt(asked.size / 4)
            out.append(row)
    return out


def workload_errors(spec: ss.WorkloadSpec, histogram: np.ndarray, runs: int) -> tuple[float, float]:
    """RMSE of answers without projection, which is known, and with it: by what it leaves of the errors of each draw."""
    truth, clean = spec.workload.apply(histogram.astype(float)), np.zeros(spec.length, np.int64)
    StrategyColumns.of(spec.strategy.matrix).add(clean, np.repeat(np.arange(histogram.size), histogram))
    before, after, law = [], [], spec.layer()
    for _ in range(runs):
        state = clean.copy()
        add_noise(law, state)
        for feasible, errors in ((None, before), ("auto", after)):
            errors.append(rms(workload_estimate(spec, [law], state, feasible=feasible).values - truth))
    exact = math.sqrt(law.variance * float(np.mean(spec.variances)))
    return exact, exact * rms(after) / rms(before)


MBI = ("marginals", "cells")


def mbi_errors(histogram: np.ndarray, epsilon: str, asked: Workload, truth: np.ndarray, seed: int, way: str) -> float:
    """RMSE of Private-PGM, the number of records known.

    It measures every 2-way marginal with Gaussian noise of its share, or all cells with Laplace noise.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mbi = importlib.import_module("mbi")
        estimation = importlib.import_module("mbi.estimation")
        names = [f"c{i}" for i in range(8)]
        domain, table = mbi.Domain(names, (2,) * 8), histogram.reshape((2,) * 8)
        random = np.random.default_rng([38, seed])
        if way == "cells":
            scale = float(1 / Fraction(epsilon))
            noisy = histogram + random.laplace(0, scale, histogram.size)
            measured = [mbi.LinearMeasurement(noisy, tuple(names), stddev=math.sqrt(2) * scale)]
        else:
            pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
            sigma, measured = math.sqrt(float(unit_variance(Fraction(epsilon), Fraction(DELTA))) * len(pairs)), []
            for i, j in pairs:
                exact = table.sum(axis=tuple(k for k in range(8) if k not in (i, j))).ravel()
                noisy = exact + random.normal(0, sigma, 4)
                measured.append(mbi.LinearMeasurement(noisy, (names[i], names[j]), stddev=sigma))
        model = estimation.MirrorDescent().estimate(domain, measured, known_total=float(histogram.sum()))
        whole = np.asarray(model.project(tuple(names)).datavector()).ravel()
    return rms(asked.apply(whole) - truth)


# Kind profile.


def profile(quick: bool) -> list[Row]:
    runs, most, out = 2 if quick else 6, 50, []
    for epsilon in ("1/4", "1", "2"):
        for name, draw in (
            ("geometric, mean 2.5", lambda r: r.geometric(0.4, 5000)),
            ("Zipf 1.7", lambda r: np.minimum(r.zipf(1.7, 5000), most)),
        ):
            counts = np.concatenate([np.zeros(5000, np.int64), draw(np.random.default_rng(39))])
            truth = np.bincount(np.minimum(counts, most), minlength=most + 1) / counts.size
            errors: dict[str, list[float]] = {}
            for run in range(runs):
                random = np.random.default_rng([40, run])
                seen = publish([counts], epsilon=float(Fraction(epsilon)), rng=random, form="state", max_count=most)
                for method in ("likelihood", "monotone", "inverse", "circulant"):
                    norms = ({"norm": 1.0}, {"norm": 2.0}, {"norm": math.inf}) if method == "circulant" else ({},)
                    for norm in norms:
                        found = reconstruct([seen], method=method, max_count=most, **norm)
                        shares = np.array(found.fractions)
                        shares[-1] += found.above.value
                        errors.setdefault(f"{method} {norm}", []).append(float(np.abs(shares - truth).sum()))
                if installed("opendp"):
                    noisy = opendp_geometric(epsilon, counts)
                    clipped = np.bincount(np.clip(noisy, 0, most), minlength=most + 1) / counts.size
                    errors.setdefault("OpenDP", []).append(float(np.abs(clipped - truth).sum()))
            mean = {method: float(np.mean(some)) for method, some in errors.items()}
            ours = [one for method, one in mean.items() if method != "OpenDP" and "circulant" not in method]
            row: Row = {"epsilon": epsilon, "counts": name, "default": mean["likelihood {}"]}
            row["best in the house"] = min(ours)
            row["Wu & Pagh, best norm"] = min(one for method, one in mean.items() if "circulant" in method)
            if "OpenDP" in mean:
                row["OpenDP, histogram of noisy counts"] = mean["OpenDP"]
            out.append(row)
    return out


def opendp_geometric(epsilon: str, counts: np.ndarray) -> np.ndarray:
    """Counts with OpenDP's discrete Laplace noise."""
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    return np.array(dp.m.make_laplace(*space, scale=float(1 / Fraction(epsilon)))(counts.tolist()))


KINDS: dict[str, tuple[Callable[[bool], list[Row]], str]] = {
    "profile": (
        profile,
        "L1 distance of the shares of slots by count, 0 to 50, from noisy states of 10,000 slots, half of them empty. No "
        'lower bound is known. Wu & Pagh\'s estimator runs here in our own implementation (`method="circulant"`).',
    ),
    "gaussian": (
        gaussian,
        "RMSE of 1,000 counts. The bound is the least error of any function of one noisy count whose law of true counts is "
        "known; a method that looks at all counts can come close to it and cannot know the law.",
    ),
    "projection": (
        projection,
        "RMSE of the squared distances of all pairs of rows. The peers' rows are not projected, and we subtract the bias of "
        "their noise for them. No lower bound is known; scikit-learn's projection without any noise shows what "
        "projecting alone costs at k = 64.",
    ),
    "convolution": (
        convolution,
        "RMSE over all positions, in closed form from the calibrated noise. The bound holds for unbiased answers with "
        "Gaussian noise; Laplace noise can be below it. jax-privacy's factor has the noise of our calibration.",
    ),
    "workload": (
        workload,
        "RMSE of 112 answers, ours of 60 draws; n is known to all (`n_bound`). mbi measures every marginal with Gaussian noise, or all cells with Laplace noise, whichever is better. The bound holds for unbiased answers with Gaussian noise; "
        "answers that use n and nonnegative counts can be below it.",
    ),
}


def table(rows: list[Row]) -> list[str]:
    """Markdown."""
    names = list(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Any) -> str:
        return f"{value:,.4g}" if isinstance(value, float) else "" if value is None else str(value)

    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    return lines + ["| " + " | ".join(cell(row.get(name)) for name in names) + " |" for row in rows]


def write(quick: bool, wanted: Sequence[str] = (), path: Path = PAGE) -> None:
    """Measure and write the page; with some kinds only, or quick, print it instead."""
    start, lines = time.monotonic(), []
    for name, (measure, said) in KINDS.items():
        if wanted and name not in wanted:
            continue
        began = time.monotonic()
        lines += [f"## {name}", "", said, "", *table(measure(quick)), ""]
        if name == "gaussian":
            lines += [*held_out(quick), ""]
        print("\n".join(lines[lines.index(f"## {name}") :]), f"{time.monotonic() - began:.0f} s", sep="\n", flush=True)
    there = [f"{peer} {version(peer)}" for peer in PEERS if installed(peer)]
    absent = [peer for peer in PEERS if not installed(peer)]
    head = [
        "# Accuracy",
        "",
        "How large the errors are, kind by kind: our default, the best that this package can do, the lower bound where one "
        "is known, and other libraries at their best. `python bench/accuracy.py --part page` measured every number in one "
        f"run, which took {(time.monotonic() - start) / 60:.0f} min, and wrote this page.",
        "",
        "All are at delta 1e-6 (kind `profile`: 0) for one event, with one layer of noise. That is what the peers have: they "
        "trust whoever holds the data, and protect what is published. Ours is drawn before there are data. By default "
        "`seal` adds a second layer, against somebody who copied the open state, which makes the error of a count "
        "sqrt(2) larger. True data come from generators, on which nothing was tuned.",
        "",
        f"Peers in this run: {', '.join(there)}."
        + (f" Not installed, and so left out: {', '.join(absent)}" if absent else "")
        + (" (the package index has no hdmm)." if "hdmm" in absent else "." if absent else ""),
        "",
    ]
    text = "\n".join([*head, *lines]).rstrip("\n") + "\n"
    if quick or wanted:
        print(text)
    else:
        path.write_text(text)
