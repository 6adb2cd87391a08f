"""How many items of a small closed domain occurred, from the exact law of what was published.

In: one `Observed`. Out: `Occurred`, the numbers of items that what was published does not contradict. Touches: nothing.
Source: Clopper & Pearson 1934 (intervals from a law); the law: `docs/theory/reconstruction.md`, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.uncertainty.bands import Ends

MAX_SLOTS_BY_LAW = 100
"""Slots up to which the law is used; estimates of more of them are normal enough."""
MISTAKEN = 2.0
"""Unit event: most counters of absent items expected above 0 for which the law is used; else estimates are normal."""
WORK = 1 << 19
"""Most numbers of items times frequencies, or values of the noise: 20 to 50 ms, 25 MB."""
NOTHING = 1e-9
"""Probabilities below this are rounding: where all of them are, no number of items is told from another."""


@dataclass(frozen=True)
class Occurred:
    """The number of items that occurred.

    Args:
        plausible: (d+1,) probability of each number: the smaller of those of an estimate as high, and as low, as the
            one that was published.
    """

    plausible: Floats

    def ends(self, z: float) -> tuple[float, float]:
        """Least and largest number that neither side refuses at the level of z; the most plausible one always holds."""
        refused = min(math.erfc(z / math.sqrt(2.0)) / 2.0, float(self.plausible.max()))
        plausible = np.flatnonzero(self.plausible >= refused)
        return float(plausible[0]), float(plausible[-1])


@dataclass(frozen=True)
class WithAbsent:
    """Numbers (or shares) of items with each count, of which that of count 0 is what others leave.

    Args:
        inner: the numbers by themselves.
        occurred: number of items with another count.
        unit: what one item is in these numbers: 1, or 1/d.
    """

    inner: Ends
    occurred: Occurred
    unit: float

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals."""
        low, high = self.inner.ends(z)
        least, most = self.occurred.ends(z)
        d = self.occurred.plausible.size - 1
        low[0], high[0] = (d - most) * self.unit, (d - least) * self.unit
        return low, high


def small_domain_law(parts: Sequence[Observed]) -> Occurred | None:
    """The number of items that occurred; None if there are several laws, whose sum hangs on which part holds how many.

    Args:
        parts: observed parts of one closed domain.
    """
    if len(parts) > 1 or parts[0].slots[0] > MAX_SLOTS_BY_LAW:
        return None
    return _of_events(parts[0]) if parts[0].modulus is None else _of_residues(parts[0], parts[0].modulus)


def _of_events(part: Observed) -> Occurred | None:
    """Numbers of items by the number of counters above 0, if that is published: each end by the counts that fit best.

    That number or a larger one is likeliest if all items have large counts, which noise never takes below 1; that
    number or a smaller one, if all have a count of 1.
    """
    d, reach = part.slots[0], laws.radius(part.epsilons, 1e-15)
    above = part.edges >= 1 if part.form == "state" else part.edges == 1
    published = [-math.log(part.q)] * part.parts if part.q else []
    far = laws.radius(published, 1e-15) if published else 0
    if part.form == "bins" or not (above.any() or part.form == "state") or max(reach, far * (d + 1)) > WORK:
        return None
    wrong = float(laws.noise_pmf(part.epsilons, reach)[reach + 1 :].sum())
    if wrong * d > MISTAKEN:
        return None
    absent, present = [laws.noise_pmf(published, far) if published else np.ones(1)], [np.ones(1)]
    for _ in range(d):
        absent.append(np.convolve(absent[-1], [1.0 - wrong, wrong]))
        present.append(np.convolve(present[-1], [wrong, 1.0 - wrong]))
    y = int(part.values[0, above].sum()) + far
    plausible = [
        min(most[max(y - number, 0) :].sum(), np.convolve(most, least)[: max(y + 1, 0)].sum())
        for number, (most, least) in enumerate(zip(absent[::-1], present, strict=True))
    ]
    return Occurred(np.maximum(plausible, NOTHING))


def _of_residues(part: Observed, p: int) -> Occurred | None:
    """Numbers of items by the sum whose mean is theirs, scaled: randomized response treats all residues but 0 alike."""
    d, total = part.slots[0], int(part.values.sum())
    nonzero = total - int(part.values[0, part.edges == 0].sum())
    step, reach, variance = 1, 0, part.noise_variance / part.parts
    if part.form == "bins":
        exponential = -40.0 * (p - 1) / math.log(max(part.q, 1e-300))
        step, reach = p, math.ceil(12.0 * math.sqrt(part.noise_variance * p * (p - 1)) + exponential)
    size = (step * d + 2 * reach + 1) | 1  # odd: no frequency is its own mirror image
    last = int(_last_frequency(variance, (p - 1) * part.parts) * size / (2.0 * math.pi))
    if last * (d + 1) > WORK:
        return None
    w: Floats = np.arange(1.0, last + 1.0) * (2.0 * np.pi / size)
    noise = (_transform(variance, w) ** (p - 1) * _transform(variance, (p - 1) * w)) ** part.parts
    eigenvalue = laws.response_eigenvalue(part.epsilons, p)
    chances = (1.0 - eigenvalue) * (p - 1) / p + np.array([0.0, eigenvalue])
    powers = np.ones((2, d + 1, w.size), np.complex128)
    powers[:, 1:] += chances[:, None, None] * np.expm1(1j * step * w)
    absent, present = np.cumprod(powers, axis=1)
    y = min(max(step * nonzero + (p - 1) * (d - total), -reach), step * d + reach)
    here = np.exp(-1j * w * y)
    below = (np.exp(1j * w * reach) - here * np.exp(-1j * w)) / -np.expm1(-1j * w)
    transformed = (absent[::-1] * present) @ (noise[:, None] * np.stack([here, below], axis=1))
    equal, least = (np.array([1.0, y + reach + 1.0]) + 2.0 * transformed.real).T / size
    return Occurred(np.maximum(np.minimum(least, 1.0 - least + equal), NOTHING))


def _transform(variance: float, w: Floats) -> Floats:
    """Fourier transform of the discrete Laplace law of this variance."""
    return np.asarray(1.0 / (1.0 + 2.0 * variance * np.sin(w / 2.0) ** 2))


def _last_frequency(variance: float, bins: int) -> float:
    """The frequency beyond which the noise of this number of bins leaves less than 1e-16."""
    left = 1e-16 ** (1.0 / bins)
    return 2.0 * math.asin(min(math.sqrt((1.0 / left - 1.0) / max(2.0 * variance, 1e-300)), 1.0))
