"""What events do to a state: whole columns in layout "fourier", one word in layout "time".

In: the spec, positions and whole weights. Out: the state, changed in place, modulo 2^64. Touches: nothing.
Source: docs/theory/convolution.md, section 6 (columns on the lattice).
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.errors import DomainError, WeightError
from sketchstream.kinds.convolution.group import Group
from sketchstream.kinds.convolution.spec import ConvolutionSpec

Ints = npt.NDArray[np.int64]

ROWS_BYTES: Final = 1 << 25
"""Largest table of ready columns; longer transforms compute theirs from two tables of M words."""


class Updater:
    """Adds events to states of one spec; holds public tables only.

    Args:
        spec: the specification.
    """

    def __init__(self, spec: ConvolutionSpec) -> None:
        self.spec = spec
        self._rows: Ints | None = None
        self._tables: tuple[Any, ...] | None = None
        if spec.layout == "fourier":
            self._tables = _tables(spec)
            if spec.size * spec.length * 8 <= ROWS_BYTES:
                self._rows = columns(spec, np.arange(spec.length))

    def apply(
        self, state: Ints, positions: object, weights: object = None, *, invalid: Literal["error", "noop"] = "error"
    ) -> None:
        """Add a batch of events, all or nothing.

        Args:
            state: (size,) int64.
            positions: (n,) whole numbers, 0 to length - 1.
            weights: (n,) whole numbers, negative ones delete; default 1 each.
            invalid: "error" refuses the batch if one event is invalid; "noop" makes each invalid event a no-op,
                decided from that event alone, as streams do.

        Raises:
            DomainError: a position that is no whole number, or outside; nothing was applied.
            WeightError: a weight that is no whole number, or too large; nothing was applied.
        """
        from sketchstream.kinds.convolution import kernels

        spec = self.spec
        places = _whole(positions, "position", DomainError)
        if weights is None and spec.layout == "time" and invalid == "error":
            if not kernels.add_counted(state, places, spec.grid, spec.length):
                raise DomainError(self._outside(places))
            return
        given = np.ones(len(places), np.int64) if weights is None else _whole(weights, "weight", WeightError)
        if len(given) != len(places):
            msg = f"weights must be as many as positions, {len(places)}, found {len(given)}"
            raise WeightError(msg)
        if invalid == "noop":
            places, given = places.copy(), given.copy()
            kernels.mask(places, given, spec.length, spec.bound)
        if spec.layout == "time":
            if not kernels.add_weighted(state, places, given, spec.grid, spec.length, spec.bound):
                self._refuse(places)
        else:
            if not kernels.valid(places, given, spec.length, spec.bound):
                self._refuse(places)
            self._add_columns(state, places, given)
        if invalid == "noop":
            places.fill(0)
            given.fill(0)

    def _add_columns(self, state: Ints, places: Ints, given: Ints) -> None:
        """Columns for each event, or for each position where the batch holds more events than there are positions."""
        from sketchstream.kinds.convolution import kernels

        totals: Ints | None = None
        if len(places) > self.spec.length:  # by the size of the batch alone, never by what it holds
            totals = np.zeros(self.spec.length, np.int64)
            kernels.add_totals(totals, places, given)
            places, given = np.arange(self.spec.length, dtype=np.int64), totals
        if self._rows is not None:
            kernels.add_rows(state, places, given, self._rows)
        else:
            assert self._tables is not None
            digits = np.zeros(len(self.spec.group.shape), np.int64)
            kernels.add_columns(state, places, given, digits, *self._tables)
            digits.fill(0)
        if totals is not None:
            totals.fill(0)

    def _outside(self, _places: Ints) -> str:
        """What is said of a position outside; it is not named."""
        return f"position must be a whole number from 0 to {self.spec.length - 1}; nothing was applied"

    def _refuse(self, places: Ints) -> None:
        """The error of a batch that holds an invalid event; the event is not named."""
        if bool(np.any((places < 0) | (places >= self.spec.length))):
            raise DomainError(self._outside(places))
        name = "max_weight" if self.spec.unit == "event" else "max_total"
        msg = f"weight must be at most {name} = {self.spec.bound} in absolute value; nothing was applied"
        raise WeightError(msg)


def columns(spec: ConvolutionSpec, positions: Ints) -> Ints:
    """(positions, size) int64, what one event of weight 1 at each position adds to a state of layout "fourier"."""
    singles, pairs, orders, period, single, cosine, sine = _tables(spec)
    digits = np.stack(np.unravel_index(positions, tuple(orders.tolist())), axis=1)
    odd = (digits @ singles.T) % period != 0
    phase = (digits @ pairs.T) % period
    out: Ints = np.concatenate([np.where(odd, -single, single), cosine[phase], sine[phase]], axis=1)
    return np.ascontiguousarray(out, np.int64)


def _tables(spec: ConvolutionSpec) -> tuple[Ints, Ints, Ints, int, int, Ints, Ints]:
    """Characters by coordinate and the values of cos and sin on the lattice."""
    group, held = spec.group, spec.coordinates
    period = group.period
    steps = np.array([period // order for order in group.shape], np.int64)
    root = spec.grid / math.sqrt(group.size)
    turn = 2 * math.pi * np.arange(period) / period
    cosine = np.rint(root * math.sqrt(2) * np.cos(turn)).astype(np.int64)
    sine = np.rint(root * math.sqrt(2) * np.sin(turn)).astype(np.int64)
    single = spec.grid if group.bits else round(root)
    orders = np.array(group.shape, np.int64)
    return (
        _characters(group, held.singles) * steps,
        _characters(group, held.pairs) * steps,
        orders,
        period,
        single,
        cosine,
        sine,
    )


def _characters(group: Group, numbers: Ints) -> Ints:
    """(n, factors) int64, C-contiguous."""
    return np.ascontiguousarray(group.digits(numbers))


def _whole(values: object, name: str, error: type[DomainError | WeightError]) -> Ints:
    """A batch as int64; bools, floats and what does not fit are refused."""
    array = np.asarray(values)
    if array.ndim == 0:
        array = array.reshape(1)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        msg = f"{name} must be whole numbers, found an array of {array.dtype} with {array.ndim} dimensions"
        raise error(msg)
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64((1 << 63) - 1))
    return np.ascontiguousarray(array, np.int64)
