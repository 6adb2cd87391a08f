"""Attack on one unit's privacy: extreme neighbours, and lower bounds on epsilon at a given delta.

In: a spec, published states of neighbouring streams. Out: lower confidence bounds on epsilon. Touches: entropy, through
the states that it makes.
Source: Clopper & Pearson 1934 (intervals); Jagielski, Ullman & Oprea, NeurIPS 2020 (audits by events chosen on held-out
runs); docs/theory/gaussian.md, section 6.

For a shift v the likelihood ratio depends only on <v, y>, so this statistic is sufficient. A shift changes few
slots, so a state of many slots has many independent trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from sketchstream import noise
from sketchstream.errors import SpecError
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.privacy.calibration.discrete import DiscreteCalibration, Shape, verify_discrete, verify_parts

if TYPE_CHECKING:
    from sketchstream.noise.entropy import WordSource
    from sketchstream.spec import Rational

Floats = npt.NDArray[np.float64]
State = npt.NDArray[np.int64]
Mechanism = Callable[[State], State]
"""True sums in lattice units -> what is published of them, noise drawn afresh."""

ERROR: Final = 1e-6
"""Probability that a bound lies above the truth by bad luck."""
THRESHOLDS: Final = 40
"""Thresholds among which the betting half chooses."""


@dataclass(frozen=True)
class Neighbours:
    """One way in which a unit can change the state.

    Args:
        name: name of the shift.
        shape: the shift, without its zeros, in lattice units.
    """

    name: str
    shape: Shape


def neighbours(spec: GaussianSpec) -> list[Neighbours]:
    """The extreme shifts: the longest, all in one slot, spread over as many slots as possible, the smallest."""
    c, q, r = spec.largest_shape
    longest = (c,) * q + ((r,) if r else ())
    found = [Neighbours("longest shift", longest), Neighbours("one slot", (c,)), Neighbours("one unit", (1,))]
    if spec.unit == "item":
        assert spec.max_total is not None
        total = spec.lattice.units(spec.max_total)
        found.append(Neighbours("one unit in many slots", (1,) * min(total, spec.domain.size)))
    different: dict[Shape, Neighbours] = {}
    for one in found:
        different.setdefault(one.shape, one)
    return list(different.values())


def epsilon_lower_bound(quiet: Floats, active: Floats, delta: float, *, error: float = ERROR) -> float:
    """Compute a lower confidence bound on the epsilon of a mechanism at this delta.

    (epsilon, delta)-privacy means P(S) <= e^epsilon Q(S) + delta for every event S, in both orders. The first half of
    the trials chooses a threshold and an order, the second half bounds both probabilities.

    Args:
        quiet: (n,) statistic on the stream without the unit, independent trials.
        active: (n,) statistic on the stream with the unit.
        delta: allowed delta.
        error: probability that the bound is above the truth.

    Raises:
        SpecError: there are fewer than 100 trials, or different numbers of them.
    """
    if len(quiet) != len(active) or len(quiet) < 100:
        msg = f"expected as many quiet trials as active ones, at least 100, found {len(quiet)} and {len(active)}"
        raise SpecError(msg)
    half = len(quiet) // 2
    both = np.concatenate((quiet[:half], active[:half]))
    shares = np.geomspace(min(0.5, 20 / half), 0.5, THRESHOLDS // 2)
    thresholds = np.unique(np.quantile(both, np.concatenate((shares, 1 - shares)), method="nearest"))
    best, chosen = 0.0, (0.0, 1.0, False)
    for threshold in thresholds.tolist():
        for side in (1.0, -1.0):
            for swapped in (False, True):
                first, second = (active, quiet) if swapped else (quiet, active)
                bound = _bound(first[:half], second[:half], threshold, side, delta, error)
                if bound > best:
                    best, chosen = bound, (threshold, side, swapped)
    threshold, side, swapped = chosen
    first, second = (active, quiet) if swapped else (quiet, active)
    return _bound(first[half:], second[half:], threshold, side, delta, error)


def statistics(
    spec: GaussianSpec,
    shape: Shape,
    trials: int,
    mechanism: Mechanism | None = None,
    weights: Sequence[float] | None = None,
) -> tuple[Floats, Floats]:
    """(trials,) values of the attacker's statistic, without and with the unit; trials have independent noise.

    Args:
        spec: audited spec.
        shape: the shift v.
        trials: number of trials.
        mechanism: publishes a vector of sums; by default as a bare copy of the open state, which the claim of
            creation covers.
        weights: weights of the slots in the attacker's sum; by default v, the best ones if the noise is correct.
    """
    publish = mechanism if mechanism is not None else intruded(spec)
    looked = np.array(shape if weights is None else weights, np.float64)
    out = []
    for shift in (0, 1):
        truth = np.tile(np.array(shape, np.int64) * shift, trials)
        out.append(publish(truth).reshape(trials, len(shape)).astype(np.float64) @ looked)
    return out[0], out[1]


def intruded(spec: GaussianSpec, entropy: WordSource | None = None) -> Mechanism:
    """An unannounced look at the open state, protected only by the creation layer. `entropy` is for tests."""

    def publish(truth: State) -> State:
        state = truth.copy()
        noise.discrete_gaussian(state, spec.sigma2, entropy)
        return state

    return publish


def sealed(spec: GaussianSpec, entropy: WordSource | None = None) -> Mechanism:
    """The publication of `seal`. `entropy` is for tests."""

    def publish(truth: State) -> State:
        state = intruded(spec, entropy)(truth)
        if spec.publish_sigma2 is not None:
            noise.discrete_gaussian(state, spec.publish_sigma2, entropy)
        return state

    return publish


def _bound(first: Floats, second: Floats, threshold: float, side: float, delta: float, error: float) -> float:
    """The lower bound from one event."""
    hits, misses = (int(np.count_nonzero(side * one >= side * threshold)) for one in (first, second))
    n = len(first)
    low = float(betaincinv(hits, n - hits + 1, error / 2)) if hits else 0.0
    high = float(betaincinv(misses + 1, n - misses, 1 - error / 2)) if misses < n else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def verified(spec: GaussianSpec, sigma2: Rational, epsilon: Rational, delta: Rational) -> DiscreteCalibration:
    """Prove that this parameter of the slots' noise is sufficient for the unit, or raise SpecError."""
    if spec.total_share:
        parts = [(one.sensitivity2, one.coordinates, one.share) for one in spec.shift.components]
        return verify_parts(epsilon, delta, sigma2, parts)
    shapes = spec.shapes()
    if shapes is not None:
        return verify_discrete(epsilon, delta, sigma2, shapes)
    return verify_discrete(epsilon, delta, sigma2, sensitivity2=spec.sensitivity2, coordinates=spec.coordinates)
