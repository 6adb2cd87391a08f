"""Updates of a state: whole columns in layout "fourier" and of a factor, one word in layout "time", blocks of a tree.

In: the spec, positions and integer weights, or a layer of noise. Out: the state, changed in place, modulo 2^64.
Touches: the entropy source, for noise.
Source: docs/theory/convolution.md, sections 6 (columns on the lattice) and 7.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items
from sketchstream.items.batch import Invalid
from sketchstream.items.domains import NO_COUNTERS, Index
from sketchstream.items.lattice import Lattice
from sketchstream.kernels import kernel
from sketchstream.kinds.convolution.mechanisms.scheme import NoiseLayer
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.linear.events import ONES, ColumnIndex, add_up, place_indices
from sketchstream.noise.blocks import flat
from sketchstream.noise.entropy import WordSource

ROWS_BYTES: Final = 1 << 25
"""Largest table of ready columns; longer transforms compute theirs from two tables of M words."""
EVENT_BLOCK: Final = 64
"""Events whose columns are computed at a time where they are not kept."""
SPARSE: Final = 16
"""Layout "time": batches of fewer events than a part of this of the positions are added event by event."""


class Updater(ColumnIndex):
    """Where positions go, and what events do to states of one spec; holds public tables only."""

    spec: ConvolutionSpec

    def locate(self, items: Items) -> Ints:
        """(n,) position of each item; -1 outside the series or the group."""
        return place_indices(items, self.spec.length, None)

    @cached_property
    def lattice(self) -> Lattice:
        return Lattice(0, Fraction(self.spec.bound))

    @cached_property
    def _rows(self) -> Ints | None:
        """(positions, words) ready columns of all positions; None where they would take too much memory."""
        spec = self.spec
        few = spec.size * spec.length * 8 <= ROWS_BYTES
        return spec.scheme.columns(np.arange(spec.length)) if few else None

    @cached_property
    def _positions(self) -> Index:
        return replace(Index.build(self.spec.domain, None), max_weight=self.spec.bound)

    def _many(self, events: int) -> bool:
        """Whether events are added up by position first."""
        # Depends only on the size of the batch, never on its content.
        return events * (1 if self.spec.scheme.by_columns else SPARSE) > self.spec.length

    def apply(
        self,
        state: Ints,
        items: object,
        weights: object = None,
        *,
        invalid: Invalid = "error",
        counters: Ints = NO_COUNTERS,
    ) -> None:
        """See `ColumnIndex`; one compiled loop checks many events and adds them up by position."""
        items = Items.of(items)
        # Weights of other types are read one by one.
        whole = isinstance(weights, np.ndarray) and weights.dtype in (np.int32, np.int64)
        if not self._many(len(items)) or not (weights is None or whole):
            super().apply(state, items, weights, invalid=invalid, counters=counters)
            return
        self.require_state(state)
        sums, moved = np.zeros(self.spec.length, np.int64), np.zeros(2 * len(counters), np.int64)
        self._positions.apply(sums, items, weights, invalid=invalid, counters=moved)
        self.add(state, np.arange(len(sums)), sums)
        sums.fill(0)
        counters += moved[1:]

    def add(self, state: Ints, places: Ints, weights: Ints | None) -> None:
        spec, scheme = self.spec, self.spec.scheme
        if self._many(len(places)):
            amounts = np.zeros(spec.length, np.int64)
            add_up(amounts, places, ONES if weights is None else weights)
            places = np.arange(spec.length)
        else:
            inside = places >= 0
            amounts = inside.astype(np.int64) if weights is None else np.where(inside, weights, 0)
            places = np.where(inside, places, 0)
        if scheme.by_columns:
            self._add_columns(state, places, amounts)
        elif scheme.tree is not None:
            scheme.tree.add(state, places, amounts)
        else:
            add_scaled(state, places, amounts, spec.grid)
        amounts.fill(0)

    def _add_columns(self, state: Ints, places: Ints, amounts: Ints) -> None:
        """Add the column of each position times its weight."""
        scheme, rows = self.spec.scheme, self._rows
        if rows is not None:
            add_rows(state, places, amounts, rows)
        elif (tables := scheme.tables) is not None:
            digits = np.zeros(len(self.spec.group.shape), np.int64)
            add_columns(state, places, amounts, digits, *tables)
            digits.fill(0)
        else:
            for start in range(0, len(places), EVENT_BLOCK):
                part = slice(start, start + EVENT_BLOCK)
                made = scheme.columns(places[part])
                add_rows(state, np.arange(len(made)), amounts[part], made)


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
    # Events without effect come as weight 0 at position 0 (`Updater.add`): each event is one addition, whatever
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
