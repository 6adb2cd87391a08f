"""Updates of a state: whole columns in layout "fourier" and of a factor, one word in layout "time", blocks of a tree.

In: the spec, positions and integer weights, or a layer of noise. Out: the state, changed in place, modulo 2^64.
Touches: the entropy source, for noise.
Source: docs/theory/convolution.md, sections 6 (columns on the lattice) and 7.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items, as_weights
from sketchstream.items.batch import Invalid, Outside
from sketchstream.items.domains import NO_COUNTERS, Index
from sketchstream.kernels import kernel
from sketchstream.kinds.convolution.mechanisms.scheme import NoiseLayer, Tables
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.linear.events import valid_events
from sketchstream.noise.blocks import flat
from sketchstream.noise.entropy import WordSource

ROWS_BYTES: Final = 1 << 25
"""Largest table of ready columns; longer transforms compute theirs from two tables of M words."""
EVENT_BLOCK: Final = 64
"""Events whose columns are computed at a time where they are not kept."""
SPARSE: Final = 16
"""Layout "time": batches of fewer events than a part of this of the positions are added event by event."""


class Updater:
    """Where positions go, and what events do to states of one spec; holds public tables only."""

    def __init__(self, spec: ConvolutionSpec) -> None:
        self.spec = spec
        self.slots = spec.size
        self._positions = replace(Index.build(spec.domain, None), max_weight=spec.bound)
        self._rows: Ints | None = None
        self._tables: Tables | None = None
        self._columns = spec.scheme.by_columns
        if self._columns:
            self._tables = spec.scheme.tables
            if spec.size * spec.length * 8 <= ROWS_BYTES:
                self._rows = spec.scheme.columns(np.arange(spec.length))

    def locate(self, items: Items) -> Ints:
        """(n,) position of each item; -1 outside the series or the group."""
        return self._positions.locate(items)

    def apply(
        self,
        state: Ints,
        positions: object,
        weights: object = None,
        *,
        invalid: Invalid = "error",
        counters: Ints = NO_COUNTERS,
    ) -> None:
        """See `ItemIndex`; sums wrap, and the counter, if there is one, is the number of events counted."""
        spec = self.spec
        if state.shape != (spec.size,) or state.dtype != np.int64:
            raise SpecError(
                f"the state must be an int64 array of {spec.size} words, found {state.dtype} of shape {state.shape}"
            )
        items = Items.of(positions)
        moved = np.zeros(2, np.int64)
        # Depends only on the size of the batch, never on its content.
        if len(items) * (1 if self._columns else SPARSE) > spec.length:
            amounts = np.zeros(spec.length, np.int64)
            counted = moved if len(counters) else NO_COUNTERS
            self._positions.apply(amounts, items, weights, invalid=invalid, counters=counted)
            places = None
        else:
            places, amounts = self._checked(items, weights, invalid, moved)
        self._add(state, places, amounts, counters, moved)

    def apply_sums(
        self, state: Ints, items: Items, sums: Ints, events: Ints, *, invalid: Outside, counters: Ints
    ) -> None:
        """See `ItemIndex`."""
        located = self.locate(items)
        valid = valid_events(located < 0, None, invalid)
        moved = np.array([0, events[valid].sum()], np.int64)
        places, amounts = np.where(valid, located, 0), np.where(valid, sums, 0)
        if len(places) > self.spec.length:
            totals = np.zeros(self.spec.length, np.int64)
            np.add.at(totals, places, amounts)
            self._add(state, None, totals, counters, moved)
        else:
            self._add(state, places, amounts, counters, moved)

    def _add(self, state: Ints, places: Ints | None, amounts: Ints, counters: Ints, moved: Ints) -> None:
        """Add weights of places, or of all positions, and the number of their events; erases what it was given."""
        spec = self.spec
        try:
            if self._columns:
                self._add_columns(state, places, amounts)
            elif spec.scheme.tree is not None:
                spec.scheme.tree.add(state, np.arange(spec.length) if places is None else places, amounts)
            elif places is None:
                state[: spec.length] += amounts * np.int64(spec.grid)
            else:
                add_scaled(state, places, amounts, spec.grid)
            counters += moved[1 : 1 + len(counters)]
        finally:
            amounts.fill(0)
            moved.fill(0)
            if places is not None:
                places.fill(0)

    def _checked(self, items: Items, weights: object, invalid: Invalid, counters: Ints) -> tuple[Ints, Ints]:
        """The events themselves, invalid ones as weight 0 at position 0."""
        amounts = as_weights(weights, len(items), alone=invalid == "noop").astype(np.int64)
        places, bound = self.locate(items), self.spec.bound
        good = (amounts <= bound) & (amounts >= -bound) if len(amounts) else None
        if good is None:
            amounts = np.ones(len(items), np.int64)
        left = ~valid_events(places < 0, good, invalid, bound)
        places[left], amounts[left] = 0, 0
        counters += np.array([amounts.sum(dtype=np.int64), len(amounts) - np.count_nonzero(left)])
        return places, amounts

    def _add_columns(self, state: Ints, places: Ints | None, amounts: Ints) -> None:
        """Columns times weights: for each event, or for each position (`places` None)."""
        if places is None:
            places = np.arange(self.spec.length, dtype=np.int64)
        if self._rows is not None:
            add_rows(state, places, amounts, self._rows)
        elif self._tables is None:
            for start in range(0, len(places), EVENT_BLOCK):
                part = slice(start, start + EVENT_BLOCK)
                rows = self.spec.scheme.columns(places[part])
                add_rows(state, np.arange(len(rows)), amounts[part], rows)
        else:
            digits = np.zeros(len(self.spec.group.shape), np.int64)
            add_columns(state, places, amounts, digits, *self._tables)
            digits.fill(0)


def add_noise(
    spec: ConvolutionSpec, state: Ints, layer: NoiseLayer | None = None, entropy: WordSource | None = None
) -> None:
    """Add one independent layer of exact noise, by default that of creation, to a state, in place; sums wrap."""
    view = flat(state, (np.int64,))
    if view.size != spec.size:
        raise SpecError(f"state must have {spec.size} words, found {view.size}")
    spec.scheme.add_noise(view, spec.layer() if layer is None else layer, entropy)


# Compiled loops. No branch on a state.


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
