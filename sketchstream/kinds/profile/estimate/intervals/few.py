"""How many items of a small closed domain occurred, from the exact law of what was published: unit item.

In: one `Observed`. Out: `Occurred`, the numbers of items that what was published does not contradict. Touches: nothing.
Source: Clopper & Pearson 1934 (intervals from a law); the law: `docs/theory/reconstruction.md`, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.intervals.bands import Ends
from sketchstream.kinds.profile.estimate.observed import Floats, Observed

LARGEST = 100
"""Slots up to which the law is used; estimates of more of them are normal enough."""
WORK = 1 << 19
"""Most numbers of items times frequencies: 20 ms, 25 MB."""
NOTHING = 1e-9
"""Probabilities below are rounding: where all are, no number of items is told from another."""


@dataclass(frozen=True)
class Occurred:
    """The number of items that occurred.

    Args:
        plausible: (d+1,) for each number, the smaller of the probabilities of an estimate as high, and as low, as the
            one that was published.
    """

    plausible: Floats

    def ends(self, z: float) -> tuple[float, float]:
        """Least and largest number that neither side refuses at the level of z; the most plausible one always holds."""
        refused = min(math.erfc(z / math.sqrt(2.0)) / 2.0, float(self.plausible.max()))
        held = np.flatnonzero(self.plausible >= refused)
        return float(held[0]), float(held[-1])


@dataclass(frozen=True)
class WithAbsent:
    """Numbers (or shares) of items with each count, of which that of count 0 is what others leave.

    Args:
        inner: by themselves.
        occurred: how many items have another count.
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


def occurred(parts: Sequence[Observed]) -> Occurred | None:
    """The number of items that occurred; None if there are several laws, whose sum hangs on which part holds how many.

    Args:
        parts: of one closed domain.
    """
    part = parts[0]
    if len(parts) > 1 or part.modulus is None or part.slots[0] > LARGEST:
        return None
    p, d, total = part.modulus, part.slots[0], int(part.values.sum())
    shown = total - int(part.values[0, part.edges == 0].sum())
    step, reach = 1, 0
    if part.form == "bins":
        step = p
        reach = math.ceil(12.0 * math.sqrt(part.noise_variance * p * (p - 1)) - 40.0 * (p - 1) / math.log(part.q))
    size = (step * d + 2 * reach + 1) | 1  # odd: no frequency is its own mirror image
    w: Floats = np.arange(1.0, _last(part, size) + 1.0) * (2.0 * np.pi / size)
    if w.size * (d + 1) > WORK:
        return None
    noise = (_transform(part.q, w) ** (p - 1) * _transform(part.q, (p - 1) * w)) ** part.parts
    kept = laws.response_eigenvalue(part.epsilons, p)
    chances = (1.0 - kept) * (p - 1) / p + np.array([0.0, kept])
    powers = np.ones((2, d + 1, w.size), np.complex128)
    powers[:, 1:] += chances[:, None, None] * np.expm1(1j * step * w)
    absent, present = np.cumprod(powers, axis=1)
    y = min(max(step * shown + (p - 1) * (d - total), -reach), step * d + reach)
    here = np.exp(-1j * w * y)
    below = (np.exp(1j * w * reach) - here * np.exp(-1j * w)) / -np.expm1(-1j * w)
    found = (absent[::-1] * present) @ (noise[:, None] * np.stack([here, below], axis=1))
    equal, least = (np.array([1.0, y + reach + 1.0]) + 2.0 * found.real).T / size
    return Occurred(np.maximum(np.minimum(least, 1.0 - least + equal), NOTHING))


def _transform(q: float, w: Floats) -> Floats:
    """Fourier transform of the discrete Laplace law."""
    return np.asarray((1.0 - q) ** 2 / (1.0 - 2.0 * q * np.cos(w) + q * q))


def _last(part: Observed, size: int) -> int:
    """How many of the frequencies 2 pi j / size, j = 1, 2, .. the noise of p - 1 bins leaves 1e-16 or more of."""
    assert part.modulus is not None
    left = 1e-16 ** (1.0 / ((part.modulus - 1) * part.parts))
    cosine = (1.0 + part.q**2 - (1.0 - part.q) ** 2 / left) / max(2.0 * part.q, 1e-300)
    return int(math.acos(max(cosine, -1.0)) * size / (2.0 * math.pi))
