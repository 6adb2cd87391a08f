"""Calibration of discrete Gaussian noise: a rational sigma2 for (epsilon, delta), checked as it will be used.

In: epsilon, delta, the integer shifts that a neighbour can cause. Out: a Fraction sigma2, upper bounds of delta.
Touches: nothing.
Source: Canonne, Kamath & Steinke 2020, Theorem 7 (the privacy loss); docs/theory/gaussian.md, section 4.

A sigma that is sufficient on the real numbers may be too small or too large on the integers, and delta is not monotone
in sigma2. So where whole numbers are coarse the search looks below it too, and each sigma2 is verified. Exact route:
the delta of every shift, by direct summation. Smoothing route, for shifts that are too many or too long: the discrete
Gaussian is close to a Gaussian that was rounded at random, whose delta is known.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.privacy.calibration.continuous import (
    MIN_DELTA,
    check_delta,
    check_epsilon,
    check_number,
    delta_above,
    sigma_for,
)
from sketchstream.spec import Rational

Shape = tuple[int, ...]
Part = tuple[Fraction, int, Fraction]
"""A component: its largest squared L2 shift by a unit, the coordinates that it moves, its share of the common mu^2."""
Route = Literal["exact", "smoothing"]

GRID: Final = 1024
"""Calibrated parameters sigma2 are multiples of 1 / GRID."""
MAX_SHAPES: Final = 200
MAX_TERMS: Final = 1 << 17
"""Values of a summed shift, at most, on the exact route."""
MAX_PRODUCTS: Final = 20_000_000
"""Products of all convolutions of one verification, at most, on the exact route."""
MAX_TRIALS: Final = 4096
"""Steps of the exact search before the smoothing route is taken instead."""
MIN_SMOOTH_VARIANCE: Final = 16
"""Continuous sigma2 from which on the integers need nearly the same noise, so that no smaller one is looked for."""
ROUNDINGS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""Variances of the random rounding that are tried."""
MAX_SIGMA2: Final = Fraction(1 << 80)
"""Noise with sigma above 2^40 has no room in counters of 64 bits."""
TAIL_FRACTION: Final = 1e12
"""The noise is cut where what lies beyond is 2 / TAIL_FRACTION of delta; that is added to delta."""
SUM_ERROR: Final = 1e-11
"""Bound on the relative error of a sum of floats, for each coordinate."""
LOSS_ERROR: Final = 2e-15
"""Relative amount by which epsilon is lowered: more than the rounding of privacy losses near it."""


@dataclass(frozen=True)
class DiscreteCalibration:
    """Discrete Gaussian noise that is (epsilon, delta)-private.

    Args:
        sigma2: parameter of the law, Pr[z = j] proportional to exp(-j^2 / (2 sigma2)); a multiple of 1/1024.
        delta: upper bound of the delta that this noise has at the epsilon asked for; at most the delta asked for.
        route: how it was verified: "exact" by direct summation, "smoothing" by comparison with a rounded Gaussian.
        rounding: variance of that rounding, on the smoothing route.
    """

    sigma2: Fraction
    delta: float
    route: Route
    rounding: Fraction | None = None

    @property
    def sigma(self) -> float:
        """Square root of sigma2."""
        return math.sqrt(self.sigma2)


def calibrate_discrete(
    epsilon: Rational,
    delta: Rational,
    shapes: Iterable[Sequence[int]] = ((1,),),
    *,
    sensitivity2: int | None = None,
    coordinates: int | None = None,
) -> DiscreteCalibration:
    """Smallest found sigma2 of discrete Gaussian noise that is (epsilon, delta)-private.

    Args:
        epsilon: exact rational of at least 0 (str, int, Fraction, Decimal, or float by its shortest repr).
        delta: number from 1e-300 to 0.5.
        shapes: every vector of integers by which the true values of two neighbours can differ, without its zeros, up
            to order and sign: (1,) for one event of weight 1, (2, 1) for one coordinate by 2 and another by 1.
        sensitivity2: instead of shapes, if they cannot be listed: the largest squared L2 norm of such a vector.
        coordinates: goes with sensitivity2: the largest number of coordinates in which two neighbours can differ.

    Raises:
        SpecError: a number outside its range, or shapes that are not vectors of whole numbers other than 0.

    Examples:
        >>> found = calibrate_discrete("1", "1e-6")
        >>> found.sigma2, found.route
        (Fraction(9165, 512), 'exact')
        >>> calibrate_discrete("1", "1e-6", sensitivity2=64, coordinates=64).route
        'smoothing'
    """
    eps, target = float(check_epsilon(epsilon)), check_delta(delta)
    if sensitivity2 is not None or coordinates is not None:
        return _calibrate_by_smoothing(eps, target, _part_of(sensitivity2, coordinates))
    vectors = normalise_shapes(shapes)
    sigma2 = _on_grid(Fraction(_sigma(eps, float(target), math.sqrt(_longest(vectors)))) ** 2)
    _require_room(sigma2)
    fine = sigma2 >= MIN_SMOOTH_VARIANCE
    below = [] if fine else [_on_grid(sigma2 - min(sigma2, Fraction(1)) * k / 32) for k in range(8, 0, -1)]
    sigma2 = next((candidate for candidate in below if _worst(eps, candidate, vectors, target) <= target), sigma2)
    best = None
    for _ in range(MAX_TRIALS):
        if sigma2 <= 0 or not _summable(vectors, float(sigma2), float(target)):
            break
        bound = _worst(eps, sigma2, vectors, target)
        if bound <= target:
            best = DiscreteCalibration(sigma2, bound, "exact")
        if best is not None and (fine or bound > target):
            break
        sigma2 += Fraction(1 if best is None else -1, GRID)
    return best or _calibrate_by_smoothing(eps, target, _part_around(vectors))


def verify_discrete(
    epsilon: Rational,
    delta: Rational,
    sigma2: Rational,
    shapes: Iterable[Sequence[int]] = ((1,),),
    *,
    sensitivity2: int | None = None,
    coordinates: int | None = None,
) -> DiscreteCalibration:
    """Prove that discrete Gaussian noise of this parameter is (epsilon, delta)-private, or refuse it.

    The parameter `sigma2` is an exact rational above 0; the other arguments are those of `calibrate_discrete`.

    Raises:
        SpecError: the noise is too small, or an argument is outside its range.

    Examples:
        >>> verify_discrete("1", "1e-6", "18329/1024")
        Traceback (most recent call last):
        sketchstream.errors.SpecError: sigma2 18329/1024 is too small: expected delta at most 1e-6, found 1.00003e-06
    """
    eps, target = float(check_epsilon(epsilon)), check_delta(delta)
    parameter = check_number(sigma2, "sigma2", _PARAMETER)
    if sensitivity2 is not None or coordinates is not None:
        calibration = _smoothed(eps, parameter, [_part_of(sensitivity2, coordinates)])
    else:
        vectors = normalise_shapes(shapes)
        if _summable(vectors, float(parameter), float(target)):
            calibration = DiscreteCalibration(parameter, _worst(eps, parameter, vectors, target), "exact")
        else:
            calibration = _smoothed(eps, parameter, [_part_around(vectors)])
    require_sufficient(calibration.delta, delta, parameter)
    return calibration


def require_sufficient(bound: float, delta: Rational, sigma2: Fraction) -> float:
    """The upper bound of a delta, unless it is above the one that noise of this parameter was to have."""
    if bound > check_delta(delta):
        raise SpecError(f"sigma2 {sigma2} is too small: expected delta at most {delta}, found {bound:.6g}")
    return bound


def discrete_delta_of(epsilon: Rational, sigma2: Rational, shape: Sequence[int] = (1,)) -> float:
    """Smallest delta for which discrete Gaussian noise hides this shift at epsilon, by direct summation.

    The result is never below the exact value, and at most a relative 1e-10 above it down to 1e-290. The shift is a
    vector of integers other than 0, and `sigma2` is an exact rational above 0.

    Raises:
        SpecError: an argument outside its range, or a sum of too many terms.

    Examples:
        >>> round(discrete_delta_of(1, 16), 12)
        3.055455e-06
    """
    return discrete_deltas(sigma2, shape)(float(check_epsilon(epsilon)))


def discrete_deltas(sigma2: Rational, shape: Sequence[int] = (1,)) -> Callable[[float], float]:
    """`discrete_delta_of` as a function of epsilon, whose law is computed once, for those that search."""
    (vector,) = normalise_shapes([shape])
    parameter = check_number(sigma2, "sigma2", _PARAMETER)
    if not _summable([vector], float(parameter), float(MIN_DELTA)):
        raise SpecError(f"the sum has too many terms at sigma2 {parameter}: use verify_discrete, which can also smooth")
    return _Shifted(float(parameter), vector, float(MIN_DELTA)).delta


def calibrate_parts(epsilon: Rational, delta: Rational, parts: Sequence[Part]) -> DiscreteCalibration:
    """Smallest found sigma2 of the first of several components whose noises share one mu^2.

    Args:
        parts: components, whose shares add up to 1. One of squared shift D2 and share a has parameter D2 / (a mu^2).
    """
    eps, target = float(check_epsilon(epsilon)), check_delta(delta)
    square, _, share = parts[0]
    low, high = Fraction(0), _on_grid(Fraction(_sigma(eps, float(target), 1.0)) ** 2 * square / share)
    while _parts_bound(eps, high, parts)[0] > target:
        low, high = high, 2 * high
        _require_room(max(high * share / square * other / part for other, _, part in parts))
    while high - low > max(Fraction(1, GRID), high / 10**12):
        middle = _on_grid((low + high) / 2)
        if middle >= high:
            break
        low, high = (low, middle) if _parts_bound(eps, middle, parts)[0] <= target else (middle, high)
    return verify_parts(epsilon, delta, high, parts)


def verify_parts(epsilon: Rational, delta: Rational, sigma2: Rational, parts: Sequence[Part]) -> DiscreteCalibration:
    """Prove that several components with this parameter in the first are (epsilon, delta)-private together.

    Args:
        sigma2: parameter of the first component's noise; those of the others follow from the shares.
    """
    calibration = _smoothed(float(check_epsilon(epsilon)), check_number(sigma2, "sigma2", _PARAMETER), parts)
    require_sufficient(calibration.delta, delta, calibration.sigma2)
    return calibration


def _smoothed(epsilon: float, sigma2: Fraction, parts: Sequence[Part]) -> DiscreteCalibration:
    """Noise with this parameter in the first component, with the least bound of its delta by the smoothing lemma."""
    bound, rounding = _parts_bound(epsilon, sigma2, parts)
    return DiscreteCalibration(sigma2, bound, "smoothing", rounding)


def _parts_bound(epsilon: float, sigma2: Fraction, parts: Sequence[Part]) -> tuple[float, Fraction]:
    """Least bound of delta by the smoothing lemma, applied to each coordinate with its own variance."""
    cost = parts[0][0] / (sigma2 * parts[0][2])
    touched = sum(coordinates for _, coordinates, _ in parts)
    bounds = [(1.0, ROUNDINGS[0])]
    for rounding in ROUNDINGS:
        left = [(square, square / (cost * share) - rounding) for square, _, share in parts]
        if all(variance > 0 for _, variance in left):
            mu2 = sum((square / variance for square, variance in left), Fraction(0))
            bounds.append((delta_near(epsilon, mu2, touched * closeness(rounding)), rounding))
    return min(bounds)


def normalise_shapes(shapes: Iterable[Sequence[int]]) -> list[Shape]:
    """Shifts up to order and sign, each once: entries descending and positive."""
    expected = "shapes must be vectors of whole numbers other than 0, such as [(1,), (2, 1)]"
    vectors: dict[Shape, None] = {}
    for shape in shapes:
        entries: tuple[object, ...] = tuple(shape) if np.iterable(shape) else ()
        if not entries or any(isinstance(entry, bool) or not isinstance(entry, (int, np.integer)) for entry in entries):
            raise SpecError(f"{expected}, found {shape!r:.60}")
        sizes = sorted((abs(int(step)) for step in shape), reverse=True)
        if sizes[-1] == 0 or sizes[0] > 1 << 40:
            raise SpecError(f"{expected} and at most 2^40, found {shape!r:.60}")
        vectors[tuple(sizes)] = None
    if not vectors:
        raise SpecError(f"{expected}, found none")
    return list(vectors)


def closeness(rounding: Fraction) -> float:
    """Upper bound of log(theta(0) / theta(1/2)), theta(c) = 1 + 2 sum over j of exp(-2 pi^2 r2 j^2) cos(2 pi j c).

    At every integer the log-probabilities of the rounded Gaussian and of the discrete one differ by at most this.
    """
    q = math.exp(-2 * math.pi**2 * float(rounding))
    odd = q + q**9
    half = 1 - 2 * q + 2 * q**4 - 2 * q**9
    return max(math.log1p(4 * odd / half) * (1 + 1e-12), 1e-305)


def smoothed_delta(
    epsilon: float, sigma2: Fraction, sensitivity2: int | Fraction, coordinates: int, rounding: Fraction
) -> float:
    """Upper bound of delta by the smoothing lemma: e^(t k) D(epsilon - 2 t k, mu), mu = Delta / sqrt(sigma2 - r2).

    For epsilon below 2 t k: D(-b, mu) = 1 - e^-b + e^-b D(b, mu).
    """
    if sigma2 <= rounding:
        return 1.0
    factor = coordinates * closeness(rounding)
    return delta_near(epsilon, Fraction(sensitivity2) / (sigma2 - rounding), factor)


def delta_near(epsilon: float, mu2: Fraction, factor: float) -> float:
    """Upper bound of the delta of a mechanism whose log-probabilities are within `factor` of those of a Gaussian one.

    Args:
        mu2: mu^2 of the Gaussian mechanism, or of what it was computed from: squared sensitivity over variance.
        factor: largest distance of the log-probabilities, in both worlds.
    """
    if factor > 1:
        return 1.0
    mu = math.sqrt(mu2)
    left = epsilon * (1 - LOSS_ERROR) - 2 * factor
    inner = float(delta_above(np.array([abs(left)]), np.array([mu]))[0])
    if left < 0:
        inner = -math.expm1(left) + math.exp(left) * inner
    return min(1.0, math.exp(factor) * inner * (1 + 1e-14))


_PARAMETER: Final = (Fraction(1, 10**6), MAX_SIGMA2, "from 1e-6 to 2^80")


def _part_of(sensitivity2: Any, coordinates: Any) -> Part:
    """Check both as integers; an integer vector has at most as many entries other than 0 as its squared norm."""
    for name, value in (("sensitivity2", sensitivity2), ("coordinates", coordinates)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value < 1 << 80:
            raise SpecError(f"{name} must be a whole number from 1 to 2^80, and both are needed, found {value!r:.40}")
    return Fraction(int(sensitivity2)), min(int(sensitivity2), int(coordinates)), Fraction(1)


def _part_around(vectors: Sequence[Shape]) -> Part:
    """A component that every one of these vectors can shift."""
    return Fraction(_longest(vectors)), max(map(len, vectors)), Fraction(1)


def _longest(vectors: Iterable[Shape]) -> int:
    """Largest squared norm of these vectors."""
    return max(sum(step * step for step in vector) for vector in vectors)


def _on_grid(value: Fraction) -> Fraction:
    return Fraction(math.ceil(value * GRID), GRID)


def _require_room(sigma2: Fraction) -> None:
    """Refuse noise that needs more than 64 bits."""
    if sigma2 > MAX_SIGMA2:
        bits = math.isqrt(math.ceil(sigma2)).bit_length()
        raise SpecError(f"epsilon or delta is too small: expected sigma at most 2^40, found about 2^{bits}")


def _sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The calibrated sigma on the real numbers."""
    sensitivity = math.nextafter(sensitivity, math.inf)
    return float(sigma_for(np.array([epsilon]), np.array([delta]), np.array([sensitivity]))[0])


def _radius(sigma2: float, entries: int, delta: float) -> int:
    """Radius at which the noise is cut: the mass beyond it is at most 2 delta / TAIL_FRACTION, in all coordinates."""
    return math.ceil(math.sqrt(2 * sigma2 * (math.log(TAIL_FRACTION * entries) - math.log(delta))))


def _summable(vectors: Sequence[Shape], sigma2: float, delta: float) -> bool:
    """Whether direct summation over all these shifts is cheap enough."""
    products = 0
    for vector in vectors[: MAX_SHAPES + 1]:
        divisor = math.gcd(*vector)
        radius = _radius(sigma2, len(vector), delta)
        width = 1
        for step in vector:
            row = 2 * radius * (step // divisor) + 1
            products += width * row
            width += row - 1
        if width > MAX_TERMS or len(vector) > MAX_TERMS:
            return False
    return len(vectors) <= MAX_SHAPES and products <= MAX_PRODUCTS


def _worst(epsilon: float, sigma2: Fraction, vectors: Iterable[Shape], delta: Fraction) -> float:
    """Upper bound of delta over all shifts."""
    return max(_Shifted(float(sigma2), vector, float(delta)).delta(epsilon) for vector in vectors)


class _Shifted:
    """W = <v, Y> for independent Y and the shift v, with its probabilities, privacy losses
    L(w) = (2 w + |v|^2) / (2 sigma2), and the mass that was cut off.
    """  # noqa: D205

    def __init__(self, sigma2: float, vector: Shape, resolution: float) -> None:
        radius = _radius(sigma2, len(vector), resolution)
        positive = np.exp(-(np.arange(1, radius + 1, dtype=np.float64) ** 2) / (2 * sigma2))
        weights = np.concatenate((positive[::-1], [1.0], positive))
        mass = weights / math.fsum(weights.tolist())
        divisor = math.gcd(*vector)
        law = np.ones(1)
        for entry, count in Counter(vector).items():
            spread = np.zeros(2 * radius * (entry // divisor) + 1)
            spread[:: entry // divisor] = mass
            for _ in range(count):
                law = np.convolve(law, spread)
        self.law, reach = law, len(law) // 2
        w = np.arange(-reach, reach + 1, dtype=np.float64) * divisor
        self.losses = (2 * w + sum(step * step for step in vector)) / (2 * sigma2)
        self.cut = 2 * len(vector) * math.exp(-(radius**2) / (2 * sigma2))
        self._length = len(vector)

    def summed(self, epsilon: float) -> float:
        """Sum over w of Pr[W = w] (1 - e^(epsilon - L(w)))_+; all terms are positive."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        return float(np.sum(self.law[first:] * -np.expm1(epsilon - self.losses[first:])))

    def delta(self, epsilon: float) -> float:
        """Upper bound of delta: the cut-off mass and the error of summation are added."""
        value, terms = self.summed(epsilon * (1 - LOSS_ERROR)), len(self.law)
        error = SUM_ERROR * self._length + terms * sys.float_info.epsilon * (self._length > 1)
        return min(1.0, value * (1 + error) + self.cut + terms * sys.float_info.min)


def _calibrate_by_smoothing(epsilon: float, delta: Fraction, part: Part) -> DiscreteCalibration:
    """The smallest sigma2 that the smoothing lemma allows, over the roundings tried."""
    square, coordinates, _ = part
    candidates = []
    for rounding in ROUNDINGS:
        factor = coordinates * closeness(rounding)
        left = epsilon - 2 * factor
        allowed = float(delta) * math.exp(-factor) if factor < 1 else 0.0
        if left < 0:
            allowed = (allowed + math.expm1(left)) * math.exp(-left)
        if allowed >= 1e-301:
            candidates.append(Fraction(_sigma(abs(left), min(allowed, 0.5), math.sqrt(square))) ** 2 + rounding)
    if not candidates:
        raise SpecError(
            f"coordinates is too large for this delta: no discrete Gaussian could be verified, found {coordinates}"
        )
    sigma2 = _on_grid(min(candidates))
    while True:
        _require_room(sigma2)
        calibration = _smoothed(epsilon, sigma2, [part])
        if calibration.delta <= delta:
            return calibration
        sigma2 += max(Fraction(1, GRID), _on_grid(sigma2 / 10**13))
