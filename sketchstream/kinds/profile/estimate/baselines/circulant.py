"""Wu & Pagh's algorithm: invert the truncated noise as a circulant matrix, restore the sum, round to the simplex.

In: a noisy profile on -r..n+r. Out: shares on 0..n. Touches: nothing.
Source: Wu & Pagh, "Profile Reconstruction from Private Sketches", ICML 2024: Lemma 4.1 (unfolding), Lemma 4.6
(eigenvalues), Algorithms 2 and 3; docs/theory/profile.md 4.
"""

from __future__ import annotations

import math

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate import fit as fits
from sketchstream.kinds.profile.estimate.laws import decay
from sketchstream.kinds.profile.estimate.observed import Cells, Observed

MAX_POINTS = 1 << 23


def truncation(d: int, epsilon: float, beta: float) -> int:
    """R = ceil(ln(2d/beta) / epsilon): the largest |noise| exceeds r with probability at most beta."""
    return math.ceil(math.log(2.0 * d / beta) / epsilon)


def eigenvalues(epsilon: float, r: int, n: int) -> Floats:
    """(N//2+1,) eigenvalues of the circulant of noise conditioned on |z| <= r, N = n + 2r + 1, rfft order.

    Raises EstimateError if the circulant need not be invertible (2 a^(r+1) >= 1 - a).
    """
    a = decay(epsilon)
    far = math.exp(-epsilon * (r + 1))
    if 2.0 * far >= 1.0 - a:
        raise EstimateError(
            f"circulant needs a larger d/beta at epsilon {epsilon:g}: r = {r} leaves the noise not invertible"
        )
    w = 2.0 * np.pi * np.arange((n + 2 * r + 1) // 2 + 1) / (n + 2 * r + 1)
    z = (1.0 + a - 2.0 * far) / (1.0 - a)
    top = 1.0 - a * a - 2.0 * far * np.cos((r + 1) * w) + 2.0 * a * far * np.cos(r * w)
    return np.asarray(top / (z * ((1.0 - a) ** 2 + 4.0 * a * np.sin(w / 2.0) ** 2)))


def solve(g: Floats, epsilon: float, r: int, n: int, norm: float) -> Floats:
    """Algorithms 2 and 3: shares on 0..n from the noisy profile g on -r..n+r. (n+2r+1,) -> (n+1,).

    O(N log N). For norm 1 and inf, before rounding, an optimum of the paper's linear program.
    """
    return simplex(restore(g, epsilon, r, n, norm)[r : r + n + 1])


def restore(g: Floats, epsilon: float, r: int, n: int, norm: float) -> Floats:
    """Algorithm 2: the minimiser of |C y - g| in the norm (1, 2 or inf), sum(y[0..n]) = 1. (N,) -> (N,)."""
    size = n + 2 * r + 1
    inverse = 1.0 / eigenvalues(epsilon, r, n)

    def apply(u: Floats) -> Floats:
        return np.asarray(np.fft.irfft(np.fft.rfft(u) * inverse, size))

    inside = np.zeros(size)
    inside[r : r + n + 1] = 1.0
    y = apply(g)
    gap = 1.0 - float(y[r : r + n + 1].sum())
    w = apply(inside)
    if norm == 1:
        v = np.zeros(size)
        peak = int(np.argmax(np.abs(w)))
        v[peak] = np.sign(w[peak])
    elif norm == 2:
        v = w / np.linalg.norm(w)
    else:
        v = np.sign(w)
    u = apply(v)
    return np.asarray(y + gap * u / u[r : r + n + 1].sum())


def simplex(y: Floats) -> Floats:
    """Algorithm 3: clip to [0, 1], then lower everything by the tau that makes the sum 1."""
    y = np.clip(y, 0.0, 1.0)
    down = np.sort(y)[::-1]
    excess = np.cumsum(down) - 1.0
    rank = np.arange(1, y.size + 1)
    last = int(np.flatnonzero(down - excess / rank > 0.0)[-1])
    tau = max(excess[last] / (last + 1), 0.0)
    out = np.maximum(y - tau, 0.0)
    return np.asarray(out / out.sum())


def reconstruct(observed: Observed, n: int, norm: float, beta: float) -> fits.Fit:
    """Wu & Pagh's algorithm on one level of unit event with one layer."""
    if observed.unit != "event" or len(observed.epsilons) != 1:
        raise EstimateError("circulant is for unit event and one layer of noise; use inverse, monotone or likelihood")
    if not 0.0 < beta < 1.0:
        raise EstimateError(f"beta must lie between 0 and 1, found {beta}")
    epsilon, cells = observed.epsilons[0], observed.cells()
    r = truncation(cells.d, epsilon, beta)
    occupied = cells.low[(cells.slots != 0) & (cells.low == cells.high)]
    if observed.form == "state" and occupied.min() >= -r and occupied.max() <= n + r:
        top = n
        g = cells.dense(-r, n + r)[1] / cells.d
    else:
        top = min(n + 4, cells.unit_range[1], MAX_POINTS)
        g = pool_tails(cells, top, r, decay(epsilon))
    y = solve(g, epsilon, r, top, norm)
    if top >= n:
        counts, shares = fits.shares_above(cells, n, float(y[n + 1 :].sum()))
        return fits.Fit(y[: n + 1], counts, shares)
    return extend(cells, y, top, n)


def extend(cells: Cells, y: Floats, top: int, n: int) -> fits.Fit:
    """Spread the share resolved at `top` and above over the wide cells from `top` on."""
    tail = np.maximum(fits.spread_cells(cells, top, n), 0.0)
    heavy, weights = fits.shares_above(cells, n, float(np.maximum(cells.slots[cells.low > n], 0.0).sum()) / cells.d)
    whole = tail.sum() + weights.sum()
    factor = y[top] / whole if whole > 0 else 0.0
    out = np.concatenate([y[:top], tail * factor])
    if whole <= 0:
        out[top] = y[top]
    return fits.Fit(out, heavy, weights * factor)


def pool_tails(cells: Cells, top: int, r: int, a: float) -> Floats:
    """The noisy profile on -r..top+r if counters are outside this range, or tails were pooled.

    Pooled tails are replaced by their expected law (Lemma 4.1). Counters so far above `top` that their counts are too
    have noise on both sides; they are moved to `top` with that noise, so that the inverse counts them at `top`.
    """
    far = top + 5.0 / -math.log(a)
    if (cells.low == cells.high).all():
        below, middle, _ = cells.dense(-r, int(min(far, top + r)))
        g = np.concatenate([middle, np.zeros(top + 2 * r + 1 - middle.size)])
        g[0] += below
    else:
        below, middle, _ = cells.dense(1, top - 1)
        near = float(cells.slots[(cells.low >= top) & (cells.low <= far)].sum())
        tail = (1.0 - a) * a ** np.arange(r + 1)
        tail /= tail.sum()
        g = np.concatenate([below * tail[::-1], middle, near * tail])
    both = a ** np.abs(np.arange(-r, r + 1))
    g[top : top + 2 * r + 1] += float(cells.slots[cells.low > far].sum()) * both / both.sum()
    return np.asarray(g / cells.d)
