"""What exact noise costs: creating a sketch's state against numpy's insecure draws and OpenDP, in one run.

In: --quick. Out: a table of medians and ratios (ours is that many times faster), and the memory beside the state.
Touches: nothing but memory and the processor.

numpy's peers are neither exact nor secure: SFC64, its quickest generator, and floating point; a law that numpy can draw
in several ways is drawn in each, and the quickest is the peer. OpenDP's vector sampler is exact and secure; its time is
linear in the number of draws, so it is given fewer and scaled up.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from sketchstream import noise
from sketchstream.noise import laplace

TARGETS = {("laplace", "1"): 2.0, ("laplace", "1/100"): 1.3, ("gaussian", "21/5"): 2.3, ("gaussian", "4000"): 1.0}
OPENDP_TARGET = 300.0
MEMORY_TARGET = 1.3


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rounds(calls: dict[str, Callable[[], object]], count: int) -> dict[str, float]:
    """Median seconds of each call, the calls taking turns; one round before counts for nothing."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(count + 1):
        for name, call in calls.items():
            spent = seconds(call)
            if turn:
                taken[name].append(spent)
    return {name: statistics.median(values) for name, values in taken.items()}


def floors(random: np.random.Generator, scale: float, slots: int) -> np.ndarray:
    """Discrete Laplace as the difference of two floors of exponentials, by numpy's ziggurat."""
    pair = []
    for _ in range(2):
        drawn = random.standard_exponential(slots)
        drawn *= scale
        pair.append(drawn.astype(np.int64))
    pair[0] -= pair[1]
    return pair[0]


def opendp_laplace(epsilon: Fraction, draws: int) -> Callable[[], object]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measure = space >> dp.m.then_laplace(scale=float(1 / epsilon))
    zeros = [0] * draws
    return lambda: measure(zeros)


def opendp_gaussian(sigma2: Fraction, draws: int) -> Callable[[], object]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measure = space >> dp.m.then_gaussian(scale=math.sqrt(sigma2))
    zeros = [0] * draws
    return lambda: measure(zeros)


def line(what: str, slots: int, times: dict[str, float], scale: float, target: float | None) -> None:
    ours = times["ours"]
    peer = min(times[name] for name in ("geometric", "exponential", "numpy", "normal") if name in times)
    text = f"{what:34s} {ours / slots * 1e9:7.2f} {times.get('plain', math.nan) / slots * 1e9:9.2f}"
    text += f" {peer / slots * 1e9:9.2f} {peer / ours:8.2f}x"
    if target is not None:
        text += f"  (target {target}x: {'met' if peer / ours >= target else 'MISSED'})"
    if "opendp" in times:
        ratio = times["opendp"] * scale / ours
        text += f"  opendp {ratio:8.0f}x"
        if what.startswith("laplace"):
            text += f" (target {OPENDP_TARGET:.0f}x: {'met' if ratio >= OPENDP_TARGET else 'MISSED'})"
    print(text)


def memory(create: Callable[[np.ndarray], None], slots: int) -> float:
    """Most memory held while a state is made, its own size included, over its own size."""
    create(np.zeros(1 << 17, np.int32))
    tracemalloc.start()
    state = np.zeros(slots, np.int32)
    create(state)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / state.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the slots, three rounds, no OpenDP")
    quick = parser.parse_args().quick
    slots, count = (10**6, 3) if quick else (10**7, 7)
    few = 20_000
    random = np.random.Generator(np.random.SFC64())
    print(f"{slots} slots, median of {count} rounds taken in turns; ns a slot; x = times faster than the peer")
    print(f"{'law':34s} {'ours':>7s} {'no numba':>9s} {'numpy':>9s} {'numpy/ours':>9s}")

    for text in ("1/10000", "1/100", "1", "10"):
        epsilon = Fraction(text)
        p = -math.expm1(-float(epsilon))

        def create(epsilon: Fraction = epsilon) -> None:
            noise.discrete_laplace(np.zeros(slots, np.int32), epsilon)

        def plain(epsilon: Fraction = epsilon) -> None:
            laplace.add(np.zeros(slots, np.int32), laplace.plan(epsilon), None, laplace.numpy_block)

        calls: dict[str, Callable[[], object]] = {
            "ours": create,
            "geometric": lambda p=p: random.geometric(p, slots) - random.geometric(p, slots),  # type: ignore[misc]
            "exponential": lambda scale=float(1 / epsilon): floors(random, scale, slots),  # type: ignore[misc]
            "plain": plain,
        }
        if not quick:
            calls["opendp"] = opendp_laplace(epsilon, few)
        line(f"laplace epsilon {text}", slots, rounds(calls, count), slots / few, TARGETS.get(("laplace", text)))

    for modulus in (16, 32768):
        law = 1 - (modulus - 1) / (math.e + modulus - 1)

        def respond(modulus: int = modulus) -> None:
            noise.randomized_response(np.zeros(slots, np.int16), modulus, Fraction(1))

        def naive(modulus: int = modulus, stay: float = law) -> np.ndarray:
            given = random.integers(1, modulus, slots, np.int16)
            given[random.random(slots, np.float32) < stay] = 0
            return given

        line(f"response p {modulus} epsilon 1", slots, rounds({"ours": respond, "numpy": naive}, count), 1, None)

    for sigma in (Fraction(1), Fraction(21, 5), Fraction(100), Fraction(1000), Fraction(4000), Fraction(10**6)):
        sigma2 = sigma * sigma

        def gauss(sigma2: Fraction = sigma2) -> None:
            noise.discrete_gaussian(np.zeros(slots, np.int64), sigma2)

        def rounded(sigma: float = float(sigma)) -> np.ndarray:
            drawn = random.standard_normal(slots)
            drawn *= sigma
            return np.rint(drawn, out=drawn).astype(np.int64)

        def direct(sigma: float = float(sigma)) -> np.ndarray:
            return np.rint(random.normal(0.0, sigma, slots)).astype(np.int64)

        calls = {"ours": gauss, "numpy": rounded, "normal": direct}
        if not quick and sigma <= 100:
            calls["opendp"] = opendp_gaussian(sigma2, few)
        target = TARGETS.get(("gaussian", str(sigma)))
        line(f"gaussian sigma {float(sigma):g}", slots, rounds(calls, count), slots / few, target)

    sigma2s = [Fraction(int(one), 1024) for one in np.linspace(2_000, 2_000_000_000, 1000)]
    for name, some in (("3 variances", sigma2s[:: len(sigma2s) // 3][:3]), ("1,000 variances", sigma2s)):
        which = random.integers(0, len(some), slots)
        sigmas = np.sqrt(np.array([float(one) for one in some]))

        def varied(some: list[Fraction] = some, which: np.ndarray = which) -> None:
            noise.discrete_gaussians(np.zeros(slots, np.int64), some, which)

        def scaled(which: np.ndarray = which, sigmas: np.ndarray = sigmas) -> np.ndarray:
            return np.rint(random.normal(0.0, sigmas[which])).astype(np.int64)

        line(f"gaussian, {name}", slots, rounds({"ours": varied, "numpy": scaled}, min(count, 3)), 1, None)

    small, large = Fraction(1, 10**6), Fraction(1)
    peaks = [memory(lambda out, e=e: noise.discrete_laplace(out, e), slots) for e in (small, large)]  # type: ignore[misc]
    verdict = "met" if max(peaks) <= MEMORY_TARGET else "MISSED"
    print(f"peak memory over the state's size: {max(peaks):.3f} (target {MEMORY_TARGET}: {verdict})")


if __name__ == "__main__":
    main()
