"""Unbiased linear estimates with their variances on the circle Z_p: unit item, randomized response.

In: an `Observed`, a level. Out: see `linear.line.Line`. Touches: nothing.
Source: docs/theory/profile.md 2, 5; variances: `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.observed import Cells, Observed
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, Moments, Score


class Circle:
    """Linear estimates on Z_p (unit item, randomized response) from one level."""

    def __init__(self, observed: Observed, level: int = 0, cells: Cells | None = None) -> None:
        assert observed.modulus is not None
        self.p = observed.modulus
        self.eigenvalue = laws.response_eigenvalue(observed.epsilons, self.p)
        self.d = observed.slots[level]
        self.form = observed.form
        self.v = observed.noise_variance
        at = np.arange(self.p, dtype=np.int64)
        self.slots = np.zeros(self.p)
        self.whole = Cells(at, at, self.slots, self.d)
        self.slots[observed.edges] = observed.values[level] if cells is None else cells.slots

    @property
    def resolved(self) -> int:
        """Largest count that the counters hold."""
        return self.p - 1

    def estimate(self, b: Floats) -> Band:
        """(1/d) sum of b(h) for each row of b. (m, p) -> (m,)."""
        mean = b.mean(axis=-1, keepdims=True)
        centred = (b - mean) / self.eigenvalue
        c = mean + centred
        e = (b * b - (1.0 - self.eigenvalue) * (b * b).mean(axis=-1, keepdims=True)) / self.eigenvalue
        if self.form == "bins":
            value = mean[..., 0] + centred @ self.slots / self.d
        else:
            value = c @ self.slots / self.d
        variance = ((c * c - e) @ self.slots + self.v * (centred**2).sum(axis=-1)) / self.d**2
        return Band(value, value, variance)

    def _rank_one(self, at: Floats, ones: Floats) -> Band:
        """Estimates for indicators with `ones` ones out of p that hold `at` slots: no p x p table."""
        p, lam, d = self.p, self.eigenvalue, self.d
        total = float(self.slots.sum())
        mean = ones / p
        c1, c0 = (1.0 - (1.0 - lam) * mean) / lam, -(1.0 - lam) * mean / lam
        raw = c1 * at + c0 * (total - at)
        value = mean + (at - mean * total) / (lam * d) if self.form == "bins" else raw / d
        square = c1**2 * at + c0**2 * (total - at)
        noise = self.v * ones * (1.0 - mean) / lam**2
        return Band(value, value, (square - raw + noise) / d**2)

    def shares(self, n: int) -> Band:
        """Shares of slots at counts 0..n (n < p)."""
        return self._rank_one(self.slots[: n + 1], np.ones(n + 1))

    def tails(self, n: int) -> Band:
        """Shares of slots with counts of at least 0..n+1; 0 from p up."""
        above = np.cumsum(self.slots[::-1])[::-1]
        t = np.arange(n + 2)
        at = np.concatenate([above, np.zeros(max(0, n + 2 - self.p))])[: n + 2]
        band = self._rank_one(at, np.maximum(self.p - t, 0).astype(np.float64))
        known = (t == 0) | (t >= self.p)
        value = np.where(t == 0, 1.0, np.where(t >= self.p, 0.0, band.low))
        return Band(value, value, np.where(known, 0.0, band.variance))

    def window_variances(self, n: int) -> dict[int, Floats]:
        """None: noise of randomized response is common to all k+ shares, so windows do not help."""
        return {}

    def joint(self, scores: Floats, other: Floats, law: Floats) -> tuple[Floats, Floats]:
        """Noise variance and covariance on the circle; see `Line.joint`."""
        lam, p, span = self.eigenvalue, self.p, law.size
        full = np.zeros(p)
        full[:span] = law
        seen = lam * full + (1.0 - lam) / p * full.sum()
        wide = np.zeros((scores.shape[0] + 1, p))
        wide[:-1, :span], wide[-1, :span] = scores, other
        centred = (wide - wide.mean(axis=1, keepdims=True)) / lam
        c = wide.mean(axis=1, keepdims=True) + centred
        both = c @ (seen * c[-1]) - wide @ (full * wide[-1]) + self.v / self.d * (centred @ centred[-1])
        own = (c * c) @ seen - (wide * wide) @ full + self.v / self.d * (centred**2).sum(axis=1)
        return np.maximum(own[:-1], 0.0) / self.d, both[:-1] / self.d

    @property
    def horizon(self) -> int:
        """The number of cells, as all counters are read."""
        return self.p

    def moments(self, scores: Sequence[Score], horizon: int | None = None) -> Moments:
        """Joint estimates on the circle; see `Line.moments`."""
        assert horizon is None or horizon == self.p
        b = np.stack([score(np.arange(self.p, dtype=np.float64)) for score in scores])
        mean, lam = b.mean(axis=1, keepdims=True), self.eigenvalue
        centred = (b - mean) / lam
        c = mean + centred
        value = mean[:, 0] + centred @ self.slots / self.d if self.form == "bins" else c @ self.slots / self.d
        weight = (self.slots - (1.0 - lam) / self.p * self.slots.sum()) / lam
        covariance = ((c * self.slots) @ c.T - (b * weight) @ b.T + self.v * centred @ centred.T) / self.d**2
        return Moments(value, covariance, np.zeros(0), np.zeros((len(scores), 0)), np.zeros((len(scores), 0)))
