"""Calibration of Gaussian noise: time and error of sketchstream, diffprivlib and dp-accounting, in one run.

In: --quick. Out: seconds for the same (epsilon, delta) pairs, the ratio to ours, and by how much the true delta of each
calibrated sigma misses its target. Touches: nothing but memory and the processor.

The peers calibrate one pair a call, as their interfaces do; we take the arrays. True deltas are computed at 40 digits
for a sample of the pairs.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import mpmath
import numpy as np

import sketchstream as ss

TARGET = 20.0
SAMPLE = 300
mpmath.mp.dps = 40


def true_delta(epsilon: float, sigma: float) -> mpmath.mpf:
    eps, mu = mpmath.mpf(epsilon), 1 / mpmath.mpf(sigma)
    s, t = eps / mu - mu / 2, eps / mu + mu / 2
    return (mpmath.erfc(s / mpmath.sqrt(2)) - mpmath.exp(eps) * mpmath.erfc(t / mpmath.sqrt(2))) / 2


def ours(epsilon: np.ndarray, delta: np.ndarray) -> np.ndarray:
    return ss.calibrate(epsilon, delta)


def diffprivlib(epsilon: np.ndarray, delta: np.ndarray) -> np.ndarray:
    from diffprivlib.mechanisms import GaussianAnalytic

    pairs = zip(epsilon.tolist(), delta.tolist(), strict=True)
    return np.array([GaussianAnalytic(epsilon=e, delta=d, sensitivity=1.0)._scale for e, d in pairs])


def dp_accounting(epsilon: np.ndarray, delta: np.ndarray) -> np.ndarray:
    from dp_accounting import get_sigma_gaussian

    return np.array([get_sigma_gaussian(e, d) for e, d in zip(epsilon.tolist(), delta.tolist(), strict=True)])


def timed(call: Callable[[], np.ndarray], rounds: int) -> tuple[float, np.ndarray]:
    """Median seconds of a call, and its result; one call before counts for nothing where there are several."""
    spent = []
    for _ in range(rounds):
        start = time.perf_counter()
        out = call()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent[1:] or spent), out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs")
    size = 1000 if parser.parse_args().quick else 10_000
    warnings.simplefilter("ignore")
    random = np.random.default_rng(2018)
    epsilon, delta = 10 ** random.uniform(-2, 1, size), 10 ** random.uniform(-18, -3, size)
    warm = epsilon[:3], delta[:3]
    print(f"{size} pairs, epsilon 0.01 to 10, delta 1e-18 to 1e-3, sensitivity 1")
    print(f"{'':14s} {'seconds':>9s} {'us/pair':>8s} {'/ours':>7s}   true delta over target - 1, least, most;", end="")
    print("  how often above 0;  largest sigma over ours - 1")
    kept = np.linspace(0, size - 1, SAMPLE).astype(int)
    base, exact = timed(lambda: ours(epsilon, delta), 6)
    for name, call in (("sketchstream", ours), ("diffprivlib", diffprivlib), ("dp-accounting", dp_accounting)):
        call(*warm)
        spent, sigma = (base, exact) if call is ours else timed(lambda call=call: call(epsilon, delta), 1)
        ratio = [
            true_delta(e, s) / mpmath.mpf(d)
            for e, s, d in zip(epsilon[kept].tolist(), sigma[kept].tolist(), delta[kept].tolist(), strict=True)
        ]
        broken = sum(one > 1 for one in ratio)
        text = f"{name:14s} {spent:9.4f} {spent / size * 1e6:8.2f} {spent / base:7.1f}"
        above = np.max(sigma / exact) - 1
        text += f"   {float(min(ratio) - 1):10.2g} {float(max(ratio) - 1):10.2g}   {broken:4d}/{SAMPLE}   {above:10.2g}"
        if call is not ours:
            text += f"  (target {TARGET:.0f}x: {'met' if spent / base >= TARGET else 'MISSED'})"
        print(text, flush=True)


if __name__ == "__main__":
    main()
