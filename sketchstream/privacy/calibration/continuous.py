"""Calibration of Gaussian noise: sigma for (epsilon, delta), and delta or epsilon for sigma, never too small.

In: epsilon, delta, sigma, sensitivity, as numbers or arrays. Out: float64, rounded to the safe side. Touches: nothing.
Source: Balle & Wang, ICML 2018, Theorem 8 (necessary and sufficient); Vinterbo 2020 (the upper bound from which the
search starts); docs/theory/gaussian.md, section 3.

Each result is found in floating point and then moved by more than the error of its evaluation: sigma by a relative
4e-12, and every delta by 1e-12. So `delta_of(epsilon, calibrate(epsilon, delta))` is at most delta.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.errors import SpecError
from sketchstream.privacy.calibration.divergence import HALF_LOG_TAU, log_divergence, mills
from sketchstream.spec import Rational, exact_rational

Arrays = npt.NDArray[Any] | list[Any] | tuple[Any, ...]

MIN_DELTA: Final = Fraction(1, 10**300)
MAX_DELTA: Final = Fraction(1, 2)
INFLATION: Final = 4e-12
"""Relative amount by which sigma is raised; log D falls by at least 0.85 times as much wherever delta <= 1/2."""
DELTA_ERROR: Final = 1e-12
"""Bound on the relative error of D as evaluated."""
MU_ERROR: Final = 1e-13
"""Bound on the relative error of mu that rounding in `log_divergence` can amount to."""
SEARCH_TOLERANCE: Final = 5e-13
"""Relative step at which a search has converged."""
MAX_STEPS: Final = 200
HUGE: Final = 1e24
"""Epsilon from which on sigma is 1 / sqrt(2 epsilon) up to a relative 1e-10, and its upper bound is as good."""


@overload
def calibrate(epsilon: Rational, delta: Rational, sensitivity: Rational = 1) -> float: ...
@overload
def calibrate(epsilon: Rational | Arrays, delta: Rational | Arrays, sensitivity: Rational | Arrays = 1) -> Any: ...
def calibrate(epsilon: Rational | Arrays, delta: Rational | Arrays, sensitivity: Rational | Arrays = 1) -> Any:
    """Smallest standard deviation of Gaussian noise that is (epsilon, delta)-private.

    The result is never below the exact value, and at most a relative 1e-11 above it. It is for noise on the real
    numbers; noise on the integers needs `calibrate_discrete`.

    Args:
        epsilon: number of at least 0 (str, int, Fraction, Decimal, or float by its shortest repr), or an array.
        delta: number from 1e-300 to 0.5, or an array.
        sensitivity: largest L2 distance between the true values of two neighbours; a number or an array.

    Returns:
        A float, or a float64 array of the shape to which the arguments broadcast.

    Raises:
        SpecError: a number outside its range, or arrays whose shapes do not fit.

    Examples:
        >>> round(calibrate("1", "1e-6"), 9)
        4.224678889
        >>> calibrate([0.1, 1], 1e-6, sensitivity=2).round(6)
        array([72.609381,  8.449358])

    Source: Balle & Wang 2018, Theorem 8.
    """
    scalar, (eps, target, reach) = _arguments(
        epsilon=(epsilon, _EPSILON), delta=(delta, _DELTA), sensitivity=(sensitivity, _POSITIVE)
    )
    return _in_shape(scalar, sigma_for(eps, target, reach))


@overload
def delta_of(epsilon: Rational, sigma: Rational, sensitivity: Rational = 1) -> float: ...
@overload
def delta_of(epsilon: Rational | Arrays, sigma: Rational | Arrays, sensitivity: Rational | Arrays = 1) -> Any: ...
def delta_of(epsilon: Rational | Arrays, sigma: Rational | Arrays, sensitivity: Rational | Arrays = 1) -> Any:
    """Smallest delta for which Gaussian noise of this standard deviation is (epsilon, delta)-private.

    The result is never below the exact value; it is at least 2e-308. Arguments, result and errors are like those of
    `calibrate`; `sigma` is above 0.

    Examples:
        >>> round(delta_of(1, 4), 9)
        2.924e-06

    Source: Balle & Wang 2018, Theorem 8.
    """
    scalar, (eps, deviation, reach) = _arguments(
        epsilon=(epsilon, _EPSILON), sigma=(sigma, _POSITIVE), sensitivity=(sensitivity, _POSITIVE)
    )
    return _in_shape(scalar, delta_above(eps, _ratio(reach, deviation)))


@overload
def epsilon_of(delta: Rational, sigma: Rational, sensitivity: Rational = 1) -> float: ...
@overload
def epsilon_of(delta: Rational | Arrays, sigma: Rational | Arrays, sensitivity: Rational | Arrays = 1) -> Any: ...
def epsilon_of(delta: Rational | Arrays, sigma: Rational | Arrays, sensitivity: Rational | Arrays = 1) -> Any:
    """Smallest epsilon for which Gaussian noise of this standard deviation is (epsilon, delta)-private.

    The result is never below the exact value; it is 0 if epsilon = 0 is sufficient. Arguments, result and errors are
    like those of `calibrate`; `sigma` is above 0.

    Examples:
        >>> round(epsilon_of("1e-6", 4.224678889327), 6)
        1.0

    Source: Balle & Wang 2018, Theorem 8.
    """
    scalar, (target, deviation, reach) = _arguments(
        delta=(delta, _DELTA), sigma=(sigma, _POSITIVE), sensitivity=(sensitivity, _POSITIVE)
    )
    return _in_shape(scalar, _epsilon_above(target, _ratio(reach, deviation)))


def sigma_for(epsilon: Floats, delta: Floats, sensitivity: Floats) -> Floats:
    """`calibrate` for (n,) float64 arrays that are known to be in range.

    Raises:
        SpecError: the result is not a finite float.
        ArithmeticError: the result failed its final check (never expected).
    """
    with np.errstate(over="ignore"):
        out = np.nextafter(sensitivity * (_unit_sigma(epsilon, delta) * (1 + INFLATION)), math.inf)
    if not np.all(np.isfinite(out)):
        raise SpecError("sensitivity is too large: sigma must stay below 1.7e308; use another unit")
    if np.any(log_divergence(epsilon, _ratio(sensitivity, out)) > np.log(delta) - DELTA_ERROR):
        raise ArithmeticError("a calibrated sigma failed its final check")
    return out


def delta_above(epsilon: Floats, mu: Floats) -> Floats:
    """An upper bound of D(epsilon, mu), for (n,) float64 arrays."""
    raised = log_divergence(epsilon, mu * (1 + MU_ERROR))
    return np.clip(np.exp(raised) * (1 + DELTA_ERROR), sys.float_info.min, 1.0)


def _unit_sigma(epsilon: Floats, delta: Floats) -> Floats:
    """Sigma for sensitivity 1 with log D = log delta - DELTA_ERROR, by Newton's method on log sigma.

    The start is an upper bound, where D < delta. A step that leaves the bracket known so far is replaced by a
    bisection.
    """
    aim = np.log(delta) - DELTA_ERROR
    high = _upper_bound(epsilon, delta)
    low = np.zeros_like(high)
    sigma = high.copy()
    active = np.flatnonzero(epsilon < HUGE)
    for _ in range(MAX_STEPS):
        if not len(active):
            break
        here, eps = sigma[active], epsilon[active]
        mu = 1 / here
        log_d = log_divergence(eps, mu)
        gap = log_d - aim[active]
        high[active] = np.where(gap <= 0, np.minimum(high[active], here), high[active])
        low[active] = np.where(gap > 0, np.maximum(low[active], here), low[active])
        with np.errstate(all="ignore"):
            following = here * np.exp(np.clip(gap / _slope(eps, mu, log_d), -0.5, 0.5))
        outside = ~((following > low[active]) & (following <= high[active]))
        following = np.where(outside, np.sqrt(low[active]) * np.sqrt(high[active]), following)
        sigma[active] = np.where(outside & (low[active] == 0), here / 2, following)
        active = active[np.abs(sigma[active] - here) > SEARCH_TOLERANCE * here]
    return sigma


def _slope(epsilon: Floats, mu: Floats, log_d: Floats) -> Floats:
    """Size of d log D / d log sigma, which is mu phi(s) / D."""
    s = epsilon / mu - 0.5 * mu
    return np.exp(np.log(mu) - 0.5 * s * s - HALF_LOG_TAU - log_d)


def _upper_bound(epsilon: Floats, delta: Floats) -> Floats:
    """A sufficient sigma at sensitivity 1.

    Source: Vinterbo 2020 (the second form); the first is the exact sigma at epsilon = 0.
    """
    from scipy.special import erfinv

    at_zero = 1 / (2 * math.sqrt(2) * erfinv(delta))
    z = -np.log(4 * delta * (1 - delta))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        beyond = (np.sqrt(z + epsilon) + np.sqrt(z)) / (epsilon * math.sqrt(2))
    out: Floats = np.fmin(at_zero, beyond) * (1 + MU_ERROR)
    return out


def _epsilon_above(delta: Floats, mu: Floats) -> Floats:
    """An upper bound of the epsilon with D(epsilon, mu) = delta, by Newton's method from a sufficient epsilon."""
    from scipy.special import ndtri

    aim = np.log(delta) - DELTA_ERROR
    raised = mu * (1 + MU_ERROR)
    with np.errstate(over="ignore"):
        high = raised * (0.5 * raised - ndtri(delta)) * (1 + MU_ERROR)
    epsilon = np.where(log_divergence(np.zeros_like(mu), raised) <= aim, 0.0, high)
    low = np.zeros_like(high)
    active = np.flatnonzero((epsilon > 0) & np.isfinite(epsilon))
    for _ in range(MAX_STEPS):
        if not len(active):
            break
        here, shift = epsilon[active], raised[active]
        log_d = log_divergence(here, shift)
        gap = log_d - aim[active]
        high[active] = np.where(gap <= 0, np.minimum(high[active], here), high[active])
        low[active] = np.where(gap > 0, np.maximum(low[active], here), low[active])
        with np.errstate(all="ignore"):
            s, t = here / shift - 0.5 * shift, here / shift + 0.5 * shift
            following = here + gap * np.exp(log_d + 0.5 * s * s + HALF_LOG_TAU) / mills(t)
        outside = ~((following > low[active]) & (following <= high[active]))
        epsilon[active] = np.where(outside, 0.5 * (low[active] + high[active]), following)
        active = active[np.abs(epsilon[active] - here) > SEARCH_TOLERANCE * here]
    finite = np.isfinite(epsilon)
    # The end of the bracket at which D is small enough; a converged search is already there.
    checked = log_divergence(epsilon[finite], raised[finite]) <= np.log(delta[finite])
    epsilon[finite] = np.where(checked, epsilon[finite], high[finite])
    return epsilon


def _ratio(sensitivity: Floats, sigma: Floats) -> Floats:
    """Mu = sensitivity / sigma; an underflow is rounded up."""
    with np.errstate(over="ignore", under="ignore"):
        return np.maximum(sensitivity / sigma, sys.float_info.min)


_EPSILON: Final = (Fraction(0), None, "at least 0")
_DELTA: Final = (MIN_DELTA, MAX_DELTA, "in [1e-300, 0.5]")
_POSITIVE: Final = (MIN_DELTA, None, "at least 1e-300")
_Range = tuple[Fraction, Fraction | None, str]


def _arguments(**arguments: tuple[Any, _Range]) -> tuple[tuple[int, ...] | None, list[Floats]]:
    """The shape of the result (None for a number) and the arguments as flat float64 arrays of one length."""
    values = [_floats(value, name, allowed) for name, (value, allowed) in arguments.items()]
    try:
        joined = np.broadcast_arrays(*values)
    except ValueError:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in zip(arguments, values, strict=True))
        raise SpecError(f"arrays must have shapes that broadcast together, found {shapes}") from None
    scalar = all(not isinstance(value, (np.ndarray, list, tuple)) for value, _ in arguments.values())
    return None if scalar else joined[0].shape, [np.array(array, np.float64).reshape(-1) for array in joined]


def _in_shape(shape: tuple[int, ...] | None, flat: Floats) -> Any:
    return float(flat[0]) if shape is None else flat.reshape(shape)


def _floats(value: Any, name: str, allowed: _Range) -> Floats:
    """A number or an array as float64, checked.

    Floats narrower than 64 bits are read by their shortest decimal form, as single numbers are.
    """
    low, high, range_text = allowed
    expected = f"{name} must be {range_text}"
    if not isinstance(value, (np.ndarray, list, tuple)):
        return np.array(float(check_number(value, name, allowed)))
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.array("")
    if array.dtype.kind not in "iufOU" or (array.dtype.kind == "U" and array.ndim == 0):
        raise SpecError(f"{expected}: a number or an array of numbers, found an array of {array.dtype}")
    if array.dtype.kind in "OU":
        flat = [float(check_number(number, name, allowed)) for number in array.reshape(-1).tolist()]
        return np.array(flat, np.float64).reshape(array.shape)
    narrow = array.dtype.kind == "f" and array.dtype.itemsize < 8
    floats = (array.astype(str) if narrow else array).astype(np.float64)
    inside = np.isfinite(floats) & (floats >= float(low)) & (floats <= (math.inf if high is None else float(high)))
    if not np.all(inside):
        raise SpecError(f"{expected}, found {floats[~inside].flat[0]}")
    return floats


def check_epsilon(value: Rational) -> Fraction:
    """The exact epsilon that a user wrote, at least 0."""
    return check_number(value, "epsilon", _EPSILON)


def check_delta(value: Rational) -> Fraction:
    """The exact delta that a user wrote, in [1e-300, 0.5]."""
    return check_number(value, "delta", _DELTA)


def check_number(value: Any, name: str, allowed: _Range) -> Fraction:
    """The exact number that a user wrote, which is in range."""
    low, high, range_text = allowed
    expected = f"{name} must be {range_text}"
    exact = exact_rational(value, expected)
    if exact < low or (high is not None and exact > high) or exact > sys.float_info.max:
        raise SpecError(f"{expected}, found {str(value)[:40]}")
    return exact
