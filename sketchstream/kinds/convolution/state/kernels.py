"""Compiled loops of updates: weights times columns added to a state.

In: plain arrays, checked by the callers. Out: the state, changed in place. Touches: nothing. No branch on a state.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.kernels import kernel


@kernel
def add_scaled(state: Ints, positions: Ints, weights: Ints, scale: int) -> None:
    """Add scale * weights at the positions, which must be valid."""
    # Events without effect come as weight 0 at position 0 (`Updater._checked`): each event is one addition, whatever
    # it holds, and no position needs to be compared with the length of the state.
    for i in range(len(positions)):
        state[positions[i]] += scale * weights[i]


@kernel
def add_rows(state: Ints, positions: Ints, weights: Ints, rows: Ints) -> None:
    """Add rows: state += weights[i] * rows[positions[i]] for every i; rows is (positions, size)."""
    # Every event adds to all words, so the state stays in the cache while the rows stream by. The inner loop has no
    # branch and unit stride: the compiler makes vector code of it.
    for i in range(len(positions)):
        row = rows[positions[i]]
        weight = weights[i]
        for j in range(len(state)):
            state[j] += weight * row[j]


@kernel
def add_columns(
    state: Ints,
    positions: Ints,
    weights: Ints,
    digits: Ints,
    singles: Ints,
    pairs: Ints,
    orders: Ints,
    period: int,
    single: int,
    cosine: Ints,
    sine: Ints,
) -> None:
    """Add weights times columns that are computed from `scheme.Tables`; digits is scratch of (factors,) words."""
    # state is [singles | cosines of the pairs | sines of the pairs]; pair j has the words s + j and s + p + j.
    # A character of a product of cyclic groups has the phase sum over f of digit_f * character_f / order_f of a turn.
    # The tables hold the characters in units of 1 / period of a turn, so phases are whole numbers modulo period, and
    # cos and sin are looked up: two events at one position change the words by the same integers on every machine.
    s, p = len(singles), len(pairs)
    factors = len(orders)
    for i in range(len(positions)):
        # Digits of the position in mixed radix, the last factor fastest, as numpy's C order has it.
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
            # A character that is its own conjugate is 1 or -1: its phase is 0 or half a period. Written as a product,
            # because a branch on data that alternate would be guessed wrong half of the time.
            state[j] += plain - 2 * plain * np.int64(phase % period != 0)
        if factors == 1:
            # The phase of pair j is n * pairs[j] modulo period. The characters ascend, so it grows by n times their
            # gap: one multiplication and division where the gap changes, which is seldom, else an addition. Both terms
            # are below period, so one subtraction takes their sum back: phase stays within the tables.
            n = positions[i]
            phase = np.int64(0)
            before = np.int64(0)
            jump = np.int64(0)
            for j in range(p):
                gap = pairs[j, 0] - before
                before = pairs[j, 0]
                # The gap of j - 1 is known only from j = 2 on; before, the jump is computed.
                if j < 2 or gap != pairs[j - 1, 0] - pairs[j - 2, 0]:
                    jump = gap * n % period
                phase += jump
                if phase >= period:
                    phase -= period
                state[s + j] += weight * cosine[phase]
                state[s + p + j] += weight * sine[phase]
        else:
            for j in range(p):
                # Each term is below order * period, and orders multiply to at most the size of the group: no overflow.
                phase = np.int64(0)
                for f in range(factors):
                    phase += digits[f] * pairs[j, f]
                phase %= period
                state[s + j] += weight * cosine[phase]
                state[s + p + j] += weight * sine[phase]
