"""Compiled loops of updates: weights times columns added to a state.

In: plain arrays, checked by the callers. Out: the state, changed in place. Touches: nothing. No branch on a state.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.kernels import kernel

I64 = npt.NDArray[np.int64]


@kernel
def valid(positions: I64, weights: I64, length: int, bound: int) -> bool:
    """Whether all positions are from 0 to length - 1 and all weights from -bound to bound."""
    bad = np.int64(0)
    for i in range(len(positions)):
        bad |= np.int64((positions[i] < 0) | (positions[i] >= length))
        bad |= np.int64((weights[i] < -bound) | (weights[i] > bound))
    return bool(bad == 0)


@kernel
def mask(positions: I64, weights: I64, length: int, bound: int) -> None:
    """Turn each invalid event into weight 0 at position 0, decided from that event alone."""
    for i in range(len(positions)):
        good = (positions[i] >= 0) & (positions[i] < length) & (weights[i] >= -bound) & (weights[i] <= bound)
        positions[i] = positions[i] if good else 0
        weights[i] = weights[i] if good else 0


@kernel
def add_counted(state: I64, positions: I64, scale: int, length: int) -> bool:
    """Add scale at every position; False, and nothing added, if one of them is invalid."""
    bad = np.int64(0)
    for i in range(len(positions)):
        bad |= np.int64((positions[i] < 0) | (positions[i] >= length))
    if bad != 0:
        return False
    for i in range(len(positions)):
        state[positions[i]] += scale
    return True


@kernel
def add_weighted(state: I64, positions: I64, weights: I64, scale: int, length: int, bound: int) -> bool:
    """Add scale * weights at the positions; False, and nothing added, if one event is invalid."""
    bad = np.int64(0)
    for i in range(len(positions)):
        bad |= np.int64((positions[i] < 0) | (positions[i] >= length))
        bad |= np.int64((weights[i] < -bound) | (weights[i] > bound))
    if bad != 0:
        return False
    for i in range(len(positions)):
        state[positions[i]] += scale * weights[i]
    return True


@kernel
def add_rows(state: I64, positions: I64, weights: I64, rows: I64) -> None:
    """Add rows: state += weights[i] * rows[positions[i]] for every i; rows is (positions, size)."""
    for i in range(len(positions)):
        row = rows[positions[i]]
        weight = weights[i]
        for j in range(len(state)):
            state[j] += weight * row[j]


@kernel
def add_columns(
    state: I64,
    positions: I64,
    weights: I64,
    digits: I64,
    singles: I64,
    pairs: I64,
    orders: I64,
    period: int,
    single: int,
    cosine: I64,
    sine: I64,
) -> None:
    """The same with columns computed from two tables.

    Args:
        state: (singles + 2 pairs,) words.
        positions: (n,) elements.
        weights: (n,) weights.
        digits: scratch of (factors,) words.
        singles: (s, factors) characters times period / order.
        pairs: (p, factors) the same.
        orders: (factors,) orders of the cyclic factors.
        period: least common multiple of the orders.
        single: the lattice value of a self-conjugate character.
        cosine: (period,) lattice values of cos.
        sine: (period,) lattice values of sin.
    """
    s, p = len(singles), len(pairs)
    factors = len(orders)
    for i in range(len(positions)):
        left = positions[i]
        for f in range(factors - 1, -1, -1):
            digits[f] = left % orders[f]
            left //= orders[f]
        weight = weights[i]
        plain = weight * single
        for j in range(s):
            phase = np.int64(0)
            for f in range(factors):
                phase += digits[f] * singles[j, f]
            state[j] += plain - 2 * plain * np.int64(phase % period != 0)
        if factors == 1:
            n = positions[i]
            phase = np.int64(0)
            before = np.int64(0)
            jump = np.int64(0)
            for j in range(p):
                gap = pairs[j, 0] - before
                before = pairs[j, 0]
                if j < 2 or gap != pairs[j - 1, 0] - pairs[j - 2, 0]:
                    jump = gap * n % period
                phase += jump
                if phase >= period:
                    phase -= period
                state[s + j] += weight * cosine[phase]
                state[s + p + j] += weight * sine[phase]
        else:
            for j in range(p):
                phase = np.int64(0)
                for f in range(factors):
                    phase += digits[f] * pairs[j, f]
                phase %= period
                state[s + j] += weight * cosine[phase]
                state[s + p + j] += weight * sine[phase]


@kernel
def add_totals(totals: I64, positions: I64, weights: I64) -> None:
    """totals[positions] += weights."""
    for i in range(len(positions)):
        totals[positions[i]] += weights[i]
