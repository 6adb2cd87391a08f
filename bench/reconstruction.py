"""Seconds of every estimator, against its limits and its peers in the same run.

    python bench/reconstruction.py [--quick] [--only large | far | layers]

In: made-up counts. Out: lines on stdout. Touches: nothing. CPU seconds of this process, medians of several rounds after
one that compiles; the linear program is HiGHS on the same input.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers import estimates_reference as reference
from sketchstream import kinds
from sketchstream.kernels import kernel
from sketchstream.kinds.profile.estimate.baselines import circulant
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.observations import observed_counts
from sketchstream.kinds.profile.reconstruction import reconstruct
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.provenance import Layer, Origin
from sketchstream.published import SealedState
from sketchstream.spec import ClosedDomain


def seconds(work: Callable[[], object], rounds: int) -> float:
    """Median CPU seconds of a call, the first one left out."""
    work()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def counts(kind: str, n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Half empty slots, half counts up to n."""
    drawn = {
        "geometric": lambda: rng.geometric(0.4, size),
        "zipf 1.5": lambda: np.minimum(rng.zipf(1.5, size), n),
        "even": lambda: rng.integers(1, n + 1, size),
        "all ones": lambda: np.ones(size, dtype=np.int64),
    }[kind]()
    return np.concatenate([np.zeros(size, dtype=np.int64), np.minimum(drawn, n)])


@kernel
def read_once(state: np.ndarray) -> int:
    """One pass that reads the array."""
    total = 0
    for i in range(len(state)):
        total += state[i]
    return total


def large(slots: int, rounds: int) -> None:
    """A profile from a state, and its histogram alone, against one pass that reads the array."""
    rng = np.random.default_rng(2)
    size = min(slots, 1 << 24)
    noise = rng.geometric(0.632, size) - rng.geometric(0.632, size)
    state = np.resize((noise + np.where(rng.random(size) < 0.5, 0, rng.geometric(0.4, size))).astype(np.int32), slots)
    spec = ProfileSpec(epsilon=1, domain=ClosedDomain(size=slots), publish="state", intrusion=False)
    layers = (Layer("discrete-laplace", Fraction(1), bytes(16)),)
    sealed = SealedState(
        spec=spec,
        layers=layers,
        seal_id=bytes(16),
        origin=Origin(),
        key_id=None,
        ledger=kinds.initial_ledger(spec),
        state=state,
    )

    def histogram() -> Observed:
        return observed_counts(sealed)[0]

    one = seconds(lambda: read_once(state), rounds)
    print(f"state of {slots:,} slots, one pass {one:.4f} s (limit: twice that)")
    for name, work in (
        ("histogram", histogram),
        ("monotone", lambda: reconstruct([histogram()], method="monotone", max_count=300)),
        ("likelihood", lambda: reconstruct([histogram()], max_count=300)),
    ):
        spent = seconds(work, rounds)
        print(f"  {name:10} {spent:.3f} s, {spent / one:.2f} passes", flush=True)


def far(n: int, rounds: int) -> None:
    """The likelihood at a large max_count, from every form."""
    rng = np.random.default_rng(3)
    print(f"likelihood, n = {n:,}, d = 500,000, epsilon 1: limit 3 s")
    for kind in ("zipf 1.5", "even"):
        h = counts(kind, n, 250_000, rng)
        for form in ("state", "cumulative", "bins"):
            seen = publish([h], epsilon=1, rng=rng, form=form, max_count=n)
            spent = seconds(lambda seen=seen: reconstruct([seen], max_count=n), rounds)
            print(f"  {kind:10} {form:10} {spent:.3f} s", flush=True)


def layered(rounds: int) -> None:
    """The likelihood of merged sketches."""
    rng = np.random.default_rng(4)
    print("likelihood, n = 300, d = 200,000, epsilon 1, several layers")
    for layers in (2, 3):
        for kind in ("geometric", "zipf 1.5"):
            h = counts(kind, 300, 100_000, rng)
            for form in ("state", "cumulative", "bins"):
                seen = publish([h], epsilon=1, rng=rng, form=form, max_count=300, layers=layers)
                spent = seconds(lambda seen=seen: reconstruct([seen], max_count=300), rounds)
                print(f"  {layers} layers {kind:10} {form:10} {spent:.3f} s", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["large", "far", "layers"])
    options = parser.parse_args()
    quick = options.quick
    rounds = 3 if quick else 7
    parts: dict[str, Callable[[], None]] = {
        "large": lambda: large(10**7 if quick else 10**8, rounds),
        "far": lambda: far(10**5 if quick else 10**6, 3),
        "layers": lambda: layered(3),
    }
    if options.only:
        parts[options.only]()
        return
    rng = np.random.default_rng(1)
    print("likelihood, n = 300, d = 200,000: limit 0.3 s from a state, 0.6 s from a release")
    for kind in ("geometric", "zipf 1.5", "even", "all ones"):
        h = counts(kind, 300, 100_000, rng)
        for form, limit in (("state", 0.3), ("cumulative", 0.6), ("bins", 0.6)):
            for epsilon in ("0.1", "1"):
                seen = publish([h], epsilon=epsilon, rng=rng, form=form, max_count=300)
                spent = seconds(lambda seen=seen: reconstruct([seen], max_count=300), rounds)
                print(
                    f"  {kind:10} {form:10} eps={epsilon:4} {spent:.3f} s  {spent / limit:.2f} of the limit", flush=True
                )
    for part in parts.values():
        part()
    print("growth with n (zipf 1.5, epsilon 1, state): limit 3 s at 10^6")
    before = None
    for n in (10**3, 10**4, 10**5) if quick else (10**3, 10**4, 10**5, 10**6):
        h = counts("zipf 1.5", n, 250_000, rng)
        seen = publish([h], epsilon=1, rng=rng)
        row = {m: seconds(lambda m=m, n=n, seen=seen: reconstruct([seen], method=m, max_count=n), 3)
               for m in ("likelihood", "monotone", "circulant")}  # fmt: skip
        growth = "" if before is None else f"  x{row['likelihood'] / before:.1f} for x10 in n"
        print(f"  n={n:>8} " + "  ".join(f"{m} {s:.3f} s" for m, s in row.items()) + growth, flush=True)
        before = row["likelihood"]
    n, epsilon, d = (10**5 if quick else 10**6), 1.0, 10**6
    r = circulant.truncation(d, epsilon, 0.05)
    g = rng.dirichlet(np.ones(n + 2 * r + 1))
    spent = seconds(lambda: circulant.solve(g, epsilon, r, n, 2), rounds)
    transforms = seconds(lambda: [np.fft.irfft(np.fft.rfft(g), g.size) for _ in range(3)], rounds)
    print(f"circulant at n = {n}: {spent:.3f} s, {spent / transforms:.1f} times its three pairs of FFTs (limit 5)")
    n = 300 if quick else 2000
    r = circulant.truncation(10_000, epsilon, 0.05)
    x = rng.geometric(0.1, 10_000).clip(max=n) + rng.integers(-1, 2, 10_000)
    g = np.bincount(x + r, minlength=n + 2 * r + 1)[: n + 2 * r + 1] / 10_000
    fast = seconds(lambda: circulant.solve(g, epsilon, r, n, math.inf), rounds)
    slow = math.inf
    for method in ("highs-ds", "highs-ipm"):  # the quicker of its two solvers
        start = time.process_time()
        reference.program(g, epsilon, r, n, math.inf, method)
        slow = min(slow, time.process_time() - start)
    print(
        f"linear program at n = {n}: {slow:.2f} s, circulant {fast * 1e3:.2f} ms: {slow / fast:,.0f} times (limit 1,000)"  # noqa: E501
    )


if __name__ == "__main__":
    main()
