"""One published histogram of counters, in the form that estimators take.

In: fields of a release or a sealed state. Out: a frozen `Observed`, checked once, and its cells.
Touches: nothing. Source: docs/theory/profile.md 1 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.mechanism import LAWS
from sketchstream.spec import Unit

ObservedForm = Literal["state", "cumulative", "bins"]

UNBOUNDED = 1 << 62
"""Stands for "no bound" at the ends of pooled cells."""
FALSE_ALARM = 2.5e-4
"""Probability that noise alone extends the cells at the first wide edge (`docs/theory/reconstruction.md`)."""
NOISE_REACH = 6.0
"""Counts, in units of 1 / epsilon, that the noise of a layer exceeds with a probability of e^-6, a quarter per cent."""


def tally(where: npt.NDArray[np.integer[Any]], slots: npt.NDArray[Any], size: int = 0) -> Floats:
    """Sums of `slots` by index. where, slots: (k,) -> (size,)."""
    return np.asarray(np.bincount(where, slots, max(size, 0)), dtype=np.float64)


@dataclass(frozen=True)
class Observed:
    """One published histogram of counters; parts with equal layers and costs are already added.

    Args:
        unit: "event" or "item".
        form: "state" (exact histogram of a published state), "cumulative" or "bins" (with noise of their own).
        open_domain: whether items were hashed into the slots.
        layers: (law, effective epsilon) of each noise vector in the counters.
        slots: slots of each level (closed domains: one level), summed over stacked parts.
        hashed_into: open domains: number of slots of one part in each level.
        shares: expected share of the items in each level; sums to 1.
        edges: (B,) int64; state: the distinct counter values; cumulative: thresholds; bins: lower ends.
        values: (levels, B) int64; state: slots with each value; else the published numbers, noise included.
        cost: privacy cost of the publication; None for states.
        parts: publications that were added; the variances of their noise add.
        modulus: p for unit "item".
        max_weight: largest absolute weight of one event.
        digest: digest of the published bytes; seeds the deterministic post-processing.

    Raises:
        EstimateError: shapes or values contradict each other.
    """

    unit: Unit
    form: ObservedForm
    open_domain: bool
    layers: tuple[tuple[str, Fraction], ...]
    slots: tuple[int, ...]
    hashed_into: tuple[int, ...]
    shares: tuple[float, ...]
    edges: Ints = field(repr=False)
    values: Ints = field(repr=False)
    cost: Fraction | None = None
    parts: int = 1
    modulus: int | None = None
    max_weight: int = 1
    digest: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", np.ascontiguousarray(self.edges, dtype=np.int64))
        object.__setattr__(self, "values", np.ascontiguousarray(np.atleast_2d(self.values), dtype=np.int64))
        levels = len(self.slots)
        if self.unit not in ("event", "item") or self.form not in ("state", "cumulative", "bins"):
            raise EstimateError(
                f"unit must be event or item and form state, cumulative or bins, found {self.unit}, {self.form}"
            )
        if levels == 0 or min(self.slots) < 1 or self.values.shape != (levels, self.edges.size) or not self.edges.size:
            raise EstimateError(
                f"values must have one row for each level and one column for each edge, found {self.values.shape} "
                f"for {levels} levels and {self.edges.size} edges"
            )
        if np.any(np.diff(self.edges) <= 0):
            raise EstimateError("edges must ascend")
        if not self.open_domain and levels != 1:
            raise EstimateError(f"a closed domain has one level, found {levels}")
        if self.open_domain and (len(self.hashed_into) != levels or len(self.shares) != levels):
            raise EstimateError("an open domain needs hashed_into and shares for each of its levels")
        if not self.layers:
            raise EstimateError("what was published has no noise layer")
        law = LAWS[self.unit]
        for name, epsilon in self.layers:
            if name != law or epsilon <= 0:
                raise EstimateError(
                    f"unit {self.unit} needs layers of {law} with a positive epsilon, found {name}, {epsilon}"
                )
        if (self.form == "state") != (self.cost is None) or (self.cost is not None and self.cost <= 0):
            raise EstimateError(
                f"a release has a positive cost and a state none, found form {self.form} and cost {self.cost}"
            )
        if self.unit == "item":
            if self.modulus is None or self.form == "cumulative":
                raise EstimateError("unit item needs a modulus, and publishes states or bins")
            if self.edges[0] < 0 or self.edges[-1] >= self.modulus:
                raise EstimateError(
                    f"counters of unit item lie in 0..{self.modulus - 1}, found {self.edges[0]}..{self.edges[-1]}"
                )
            if self.form == "bins" and self.edges.size != self.modulus:
                raise EstimateError(f"unit item publishes {self.modulus} bins, found {self.edges.size}")
        if self.form == "state" and (np.any(self.values < 0) or tuple(self.values.sum(axis=1).tolist()) != self.slots):
            raise EstimateError("the histogram of a state must add up to its slots")
        if self.parts < 1:
            raise EstimateError(f"parts must be at least 1, found {self.parts}")

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.slots)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Effective epsilon of each layer."""
        return tuple(float(epsilon) for _, epsilon in self.layers)

    @cached_property
    def q(self) -> float:
        """Ratio of the noise law of one published value, e^-cost or e^-(cost/2); 0 for states."""
        if self.cost is None:
            return 0.0
        return math.exp(-float(self.cost) / (1 if self.form == "cumulative" else 2))

    @cached_property
    def noise_variance(self) -> float:
        """Variance of the noise of one published value, summed over the parts; 0 for states."""
        return self.parts * 2.0 * self.q / (1.0 - self.q) ** 2

    def cells(self, level: int = 0) -> Cells:
        """The counters of one level as disjoint cells, without far cells that hold only noise.

        One slot of noise at a count of 10^8 would dominate every mean. So wide cells end at the last edge above which
        there is more than noise; counters beyond it are treated as absent.
        """
        cells = self.published(level)
        last = self._last_cell
        if last == cells.low.size - 1:
            return cells
        slots = cells.slots[: last + 1].copy()
        if self.form == "cumulative":
            slots[last] = self.values[level, last - 1]
        return Cells(cells.low[: last + 1], cells.high[: last + 1], slots, cells.d)

    @cached_property
    def _last_cell(self) -> int:
        """Index of the last cell to use, by the last wide cell that shows more than noise, in one level or the sum."""
        low, high = self.published(0).low, self.published(0).high
        wide = np.flatnonzero((low != high) & (low > -UNBOUNDED))
        if self.form == "state" or self.unit == "item" or not wide.size:
            return int(low.size - 1)
        shift = 1 if self.form == "cumulative" else 0  # threshold i opens cell i + 1
        rows = [(row, 1) for row in self.values.astype(np.float64)]
        if self.levels > 1:
            rows.append((self.values.sum(axis=0).astype(np.float64), self.levels))
        start = int(wide[0])
        last = start - 1
        far = low[start:].astype(np.float64)
        for row, levels in rows:
            shows = self._shows(row[start - shift :], levels, FALSE_ALARM / len(rows) * far[0] / far)
            last = max(last, start + int(np.flatnonzero(shows)[-1])) if shows.any() else last
        # the noise of counters extends beyond the last count: without its far end a total would be too low
        reach = sum(NOISE_REACH / epsilon for epsilon in self.epsilons)
        return max(last, int(np.searchsorted(low, float(low[last]) + reach, side="right")) - 1)

    def _shows(self, values: Floats, levels: int, alarm: Floats) -> npt.NDArray[np.bool_]:
        """Whether the values from each index on hold more than noise, with small probabilities of a false alarm."""
        z = np.log(1.0 / alarm)
        rate = -math.log(self.q)
        sums = np.concatenate([[0.0], np.cumsum(values)])
        out = np.zeros(values.size, dtype=np.bool_)
        for width in (1, 2, 4, 8):
            size = values.size - width + 1
            if size < 1:
                break
            # a sum of two-sided geometric numbers: Gaussian near, exponential far
            spread = 0.0 if self.parts * width * levels == 1 else 2.0 * width * levels * self.noise_variance
            out[:size] |= sums[width:] - sums[:size] > np.sqrt(spread * z[:size]) + z[:size] / rate
        return out

    def published(self, level: int) -> Cells:
        """All counters of one level as disjoint cells, as published."""
        row = self.values[level].astype(np.float64)
        d = self.slots[level]
        if self.unit == "item" or self.form == "state":
            low = high = self.edges
        elif self.form == "cumulative":
            low = np.concatenate([[-UNBOUNDED], self.edges])
            high = np.concatenate([self.edges - 1, [UNBOUNDED]])
            row = -np.diff(np.concatenate([[float(d)], row, [0.0]]))
        else:
            low = self.edges.copy()
            low[0] = -UNBOUNDED
            high = np.concatenate([self.edges[1:] - 1, [UNBOUNDED]])
        return Cells(low, high, row, d)


@dataclass(frozen=True)
class Cells:
    """Disjoint cells of counter values, ascending.

    Args:
        low: (B,) int64 smallest counter of each cell; -UNBOUNDED for a pooled lower end.
        high: (B,) int64 largest counter of each cell; UNBOUNDED for a pooled upper end.
        slots: (B,) float64 slots in each cell, as published (noise included: may be negative).
        d: slots in all.
    """

    low: Ints
    high: Ints
    slots: Floats
    d: int

    @cached_property
    def unit_range(self) -> tuple[int, int]:
        """First and last counter of the range in which every value has its own cell.

        A state resolves every counter: values that do not occur are cells with zero slots.
        """
        single = self.low == self.high
        if single.all():
            return -UNBOUNDED, UNBOUNDED
        first = int(np.argmax(single))
        ends = np.flatnonzero(~single[first:])
        last = first + (int(ends[0]) if ends.size else single.size - first) - 1
        return int(self.low[first]), int(self.low[last])

    def dense(self, low: int, high: int) -> tuple[float, Floats, float]:
        """Slots below `low`, in low..high (one cell a value), and above `high`."""
        out = np.zeros(high - low + 1)
        inside = (self.low >= low) & (self.high <= high) & (self.low == self.high)
        out[self.low[inside] - low] = self.slots[inside]
        return float(self.slots[self.high < low].sum()), out, float(self.slots[self.low > high].sum())
