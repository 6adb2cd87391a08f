"""Counters that only tell whether an item of a group was there: each event adds a fresh uniform residue.

In: epsilon, a modulus, groups whose noise is drawn together. Out: the parameter of the noise, residues. Touches:
entropy, through `sketchstream.noise`.
Source: docs/theory/overlap.md, section 1; Dwork et al., ICS 2010 (the density estimator, p = 2).

After an event the counter is uniform and independent of all that was seen before, whatever it held. A thief can tell
the law of the noise from the uniform one by a factor of e^epsilon at most, about half of what tells two values apart.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sketchstream import noise
from sketchstream.errors import WeightError

PARAMETER_GRAIN = 1 << 20
"""Parameters of the noise are multiples of 1/PARAMETER_GRAIN, rounded down."""
MAX_PRESENCE_MODULUS = 1 << 15
"""Largest modulus of counters that tell presence."""
USUAL_EMPTY = 0.6
"""Share of empty slots at which the modulus of joint noise is chosen."""
_EXACT = Context(prec=60)
"""Decimal arithmetic whose exp and ln are correctly rounded: parameters are the same on every machine."""


def best_modulus(epsilon: Fraction, groups: int = 1) -> int:
    """The modulus at which presence is seen best.

    Args:
        epsilon: epsilon of the promise.
        groups: number of groups whose noise is drawn together. For one the modulus is 1 + e^epsilon, rounded.
    """
    if groups == 1:
        grown = _EXACT.add(1, _EXACT.exp(_decimal(epsilon))).to_integral_value()
        return min(max(int(grown), 2), MAX_PRESENCE_MODULUS)

    def spread(modulus: int) -> float:
        parameter = float(response_epsilon(epsilon, modulus, groups))
        size = modulus**groups
        unchanged = math.expm1(parameter) / (math.exp(parameter) + size - 1)
        full = (modulus - 1) / modulus
        seen = full - unchanged * full * USUAL_EMPTY
        return float(seen * (1 - seen) / (unchanged * full) ** 2)

    return min(range(2, 65), key=spread)


@lru_cache(maxsize=64)
def response_epsilon(epsilon: Fraction, modulus: int, groups: int = 1) -> Fraction:
    """The largest parameter e of randomized response on Z_p^m with which presence costs no more than epsilon.

    With probability L = (e^e - 1) / (e^e + p^m - 1) the noise is 0, else uniform. Any set of coordinates that events
    have made uniform is told from any other by a factor of max(1 + L p^(m-1) / (1 - L), 1 - L + L p^m) at most.

    Args:
        epsilon: epsilon of the promise.
        modulus: p.
        groups: m, whose noise is drawn together.
    """
    c = _EXACT
    more = c.subtract(c.exp(_decimal(epsilon)), 1)
    size = Decimal(modulus**groups)
    unchanged = min(
        c.divide(more, c.add(more, Decimal(modulus ** (groups - 1)))),
        c.divide(more, c.subtract(size, 1)),
    )
    most = c.ln(c.divide(c.add(1, c.multiply(unchanged, c.subtract(size, 1))), c.subtract(1, unchanged)))
    steps = c.multiply(most, Decimal(PARAMETER_GRAIN)).to_integral_value(rounding=ROUND_FLOOR)
    return Fraction(max(int(steps) - 1, 1), PARAMETER_GRAIN)


def residues(events: int, modulus: int) -> npt.NDArray[np.int64]:
    """(n,) fresh residues, uniform on 0..modulus-1: a secret, erased by the caller when they were added.

    Args:
        events: n.
        modulus: p.
    """
    out = np.zeros(events, np.int64)
    noise.uniform_residues(out, modulus)
    return out


def present(weights: npt.NDArray[np.signedinteger], *, alone: bool) -> npt.NDArray[np.bool_] | None:
    """The events that count, those without another weight than one; None: all.

    Args:
        weights: (n,) weights, or (0,) for ones.
        alone: whether other events are no-ops; else they refuse the batch.

    Raises:
        WeightError: a weight is not 1.
    """
    good: npt.NDArray[np.bool_] = weights == 1
    if good.all():
        return None
    if not alone:
        raise WeightError(
            f"the weight at position {int(np.argmin(good))} is not 1: with counts = 'presence' an event says that an "
            "item was there, and neither numbers nor deletions mean anything; nothing was applied"
        )
    return good


def _decimal(value: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
