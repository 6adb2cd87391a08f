"""Compiled loops of updates: weights times columns added to a state.

In: plain arrays, checked by the callers. Out: the state, changed in place. Touches: nothing. No branch on a state.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.kernels import kernel

I64 = npt.NDArray[np.int64]


@kernel
def add_scaled(state: I64, positions: I64, weights: I64, scale: int) -> None:
    """Add scale * weights at the positions, which must be valid."""
    for i in range(len(positions)):
        state[positions[i]] += scale * weights[i]


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
    """Add weights times columns that are computed from two tables.

    Args:
        state: (singles + 2 pairs,) words.
        positions: (n,) elements.
        weights: (n,) weights.
        digits: scratch of (factors,) words.
        singles: (s, factors) characters times period / order.
        pairs: (p, factors) table of pairs.
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
