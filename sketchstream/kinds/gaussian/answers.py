"""Answers of kind `gaussian`: counts, sums, the largest counts, with intervals.

In: a spec, the layers' parameters, the published state. Out: a `GaussianEstimate` in user units. Touches: nothing.
Source: docs/theory/gaussian.md, sections 7 to 9; Zrnic & Fithian 2024 (intervals that are valid after selection).

Intervals, sums and `top` always come from the published counts, which are unbiased. Denoised values are closer to the
truth in mean square, but biased towards 0, the mean or the target, and have no intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.denoising.methods import METHODS, MIN_VARIANCE, Denoised, apply_facts, denoise_by
from sketchstream.errors import DomainError, EstimateError
from sketchstream.kinds.answers import LEVEL, ColumnValues
from sketchstream.kinds.estimates import Estimate, checked_level
from sketchstream.kinds.gaussian.quantiles import interval_reach, sure_width
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.kinds.linear.answers import LinearAnswers
from sketchstream.noise.laws import gaussian_variance
from sketchstream.spec import Item

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SCREEN_SHARE: Final = 0.1
"""Share of the allowed error that `top` spends on finding which slots may have been selected."""


@dataclass(frozen=True)
class Ranked(Estimate):
    """One of the largest counts; the intervals of one `top` are simultaneous.

    Args:
        rank: 1 for the largest published count.
        slot: position of the item in the domain.
        item: the item, or None if the list of items is not available.
    """

    rank: int = 0
    slot: int = 0
    item: Item | None = None


class GaussianEstimate(LinearAnswers):
    """Counts of one published sketch.

    Args:
        variances: parameters sigma2 of every layer and fresh noise in the state, in squared lattice units.
        state: (slots,) int64, the published state.
        method: one of `denoising.methods.METHODS`.
        target: public counts in user units, one for each slot, for method "target".
        nonnegative: whether to replace negative values by 0; for weights that are never negative.
        total: public total to which the values are scaled.
        whole: whether to round the values to multiples of the lattice step.
        positions: (slots,) int64, ascending: the item of each slot, by its position in the domain; None: all items.

    Raises:
        EstimateError: the method does not apply, the state does not fit, or there is no variance.

    Examples:
        >>> import numpy as np, sketchstream as ss
        >>> spec = GaussianSpec(epsilon="1", delta="1e-6", domain=ss.ClosedDomain(items=["a", "b", "c"]))
        >>> answers = GaussianEstimate(spec, spec.published_variances, np.array([40, -3, 12]))
        >>> answers.count("a").value, round(float(answers.stderr[0]), 3)
        (40.0, 5.983)
        >>> answers.sum(items=["a", "c"]).value
        52.0
    """

    question = "count"
    method: str
    spec: GaussianSpec
    values: Floats

    def __init__(
        self,
        spec: GaussianSpec,
        variances: Sequence[Fraction],
        state: Ints,
        method: str = "auto",
        *,
        target: npt.ArrayLike | None = None,
        nonnegative: bool = False,
        total: float | None = None,
        whole: bool = False,
        positions: Ints | None = None,
    ) -> None:
        slots = spec.domain.size if positions is None else len(positions)
        if not isinstance(state, np.ndarray) or state.shape != (slots,) or state.dtype != np.int64:
            raise EstimateError(f"the state of this spec is int64 of shape ({slots},), found {np.shape(state)}")
        if not variances or min(variances) <= 0:
            raise EstimateError("every published state has at least one layer of noise, found none")
        self.spec = spec
        self.variances = tuple(variances)
        self.asked = method
        self._positions = positions
        self._state = state
        self._step = float(spec.step)
        goal = None if target is None else np.asarray(target, np.float64) / self._step
        self._denoised: Denoised = self._denoise(method, goal)
        scaled = None if total is None else total / self._step
        lattice = apply_facts(self._denoised.values, nonnegative=nonnegative, total=scaled, whole=whole)
        self.values = lattice * self._step
        self.method = self._denoised.method  # what "auto" stands for here

    def _denoise(self, method: str, goal: Floats | None) -> Denoised:
        """Denoised counts, lattice units; noise that is far from normal allows none but the published ones."""
        little = sum(self.variances) < MIN_VARIANCE
        if little and method in METHODS[2:]:
            raise EstimateError(
                f"method {method!r} needs noise of variance 1 or more in lattice units, found {self._variance:.3g}: "
                "use 'raw', which is accurate here"
            )
        chosen = "raw" if little and method == "auto" else method
        return denoise_by(self._state.astype(np.float64), self._variance, chosen, goal)

    @cached_property
    def raw(self) -> Floats:
        """(slots,) the published counts, which are unbiased."""
        return self._state.astype(np.float64) * self._step

    @property
    def variance(self) -> Fraction:
        """Variance of the noise of one published count, in squared user units; below sigma2 where that is small."""
        return sum(map(gaussian_variance, self.variances), Fraction(0)) * self.spec.step**2

    @cached_property
    def stderr(self) -> Floats:
        """(slots,) standard error of each published count."""
        return np.full(len(self._state), self._error)

    @cached_property
    def labels(self) -> Mapping[str, ColumnValues]:
        """The position in the domain of each slot's item, and the item itself; None where its name is not at hand."""
        places = np.arange(len(self._state)) if self._positions is None else self._positions
        if not self.spec.domain.listed:
            return {"slot": places, "item": places}
        names = self.spec.domain.items
        items = [None] * len(places) if names is None else [names[place] for place in places.tolist()]
        return {"slot": places, "item": items}

    def _parameters(self) -> Sequence[Fraction]:
        return self.variances

    def extra_columns(self, level: float) -> Mapping[str, ColumnValues]:
        return {"raw": self.raw}

    @property
    def estimated_rmse(self) -> float:
        """Root mean squared error of the values, estimated from them, before `apply_facts`; above 0."""
        return math.sqrt(self._denoised.expected_loss / len(self.values)) * self._step

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """Separate intervals for the published counts, whatever the method; for selected counts, see `top`."""
        below, above = interval_reach(self.variances, level)
        return self.raw - below * self._step, self.raw + above * self._step

    def count(self, item: Item, level: float = LEVEL) -> Estimate:
        """The published count of one item.

        Args:
            item: item of the domain; an id if the domain has only a size.
            level: coverage of the interval.

        Raises:
            DomainError: the domain has no such item.
        """
        return self._answer(int(self._state[self._slot(item)]), 1, level)

    def sum(
        self,
        low: int | None = None,
        high: int | None = None,
        *,
        items: Iterable[Item] | None = None,
        level: float = LEVEL,
    ) -> Estimate:
        """Sum of the published counts of some slots; without arguments, of all slots.

        Args:
            low: position of the first item in the domain; default 0.
            high: position after the last item; default the size of the domain.
            items: items to add up, each once, instead of a range.
            level: coverage of the interval.

        Raises:
            DomainError: slots or items are not in the domain, or an item is given twice.
        """
        if items is None:
            start = self._end(0 if low is None else low, "low")
            stop = self._end(self.spec.domain.size if high is None else high, "high")
            if self._positions is not None:
                start, stop = np.searchsorted(self._positions, (start, stop)).tolist()
            if start >= stop:
                raise DomainError("low must be below high, and an item with a slot between them")
            return self._answer(int(self._state[start:stop].sum()), stop - start, level)
        if low is not None or high is not None:
            raise EstimateError("sum takes either low and high, or items, not both")
        slots = [self._slot(item) for item in items]
        if not slots or len(set(slots)) != len(slots):
            raise DomainError("items must name at least one item, and each once")
        return self._answer(int(self._state[slots].sum()), len(slots), level)

    def top(self, k: int, level: float = LEVEL) -> list[Ranked]:
        """The k largest published counts, with simultaneous intervals that are valid after selection.

        Args:
            k: number of counts.
            level: probability that every one of the k intervals contains its true count.

        Raises:
            EstimateError: k is not from 1 to the number of slots.
        """
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= len(self._state):
            raise EstimateError(f"k must be a whole number from 1 to {len(self._state)}, found {k!r:.40}")
        half = self._selected_width(int(k), 1 - checked_level(level)) * self._step
        order = np.argsort(-self._state.astype(np.float64), kind="stable")[:k]
        places, items = self.labels["slot"], self.labels["item"]
        return [
            Ranked(value, value - half, value + half, None, self._error, rank, int(places[slot]), items[slot])
            for rank, (slot, value) in enumerate(zip(order.tolist(), self.raw[order].tolist(), strict=True), 1)
        ]

    def more(self, level: float) -> dict[str, Any]:
        total = self.sum(level=level) if len(self._state) else Estimate(0.0, 0.0, 0.0)
        return {
            "asked": self.asked,
            "sum": {"value": total.value, "low": total.low, "high": total.high},
            "raw": self.raw.tolist(),
            "estimated_rmse": self.estimated_rmse,
            "variance": str(self.variance),
        }

    def _draw(self, k: int = 20) -> Figure:
        """The k largest published counts as bars, with simultaneous intervals."""
        from sketchstream.pictures import charts

        ranked = self.top(min(k, len(self._state)))
        value, low, high = np.array([(count.value, count.low, count.high) for count in ranked]).T
        title = f"The {len(ranked)} largest of {len(self._state):,} counts, {LEVEL:.0%} intervals for all of them"
        return charts.bars_figure(
            title, charts.Bars([_name_of_ranked(count) for count in ranked], value, low, high), "counts"
        )

    def __str__(self) -> str:
        """Method, errors and the largest counts."""
        lines = [
            f"{len(self.values):,} counts by {self.method}, estimated error {self.estimated_rmse:.4g} a count "
            f"(published counts: {self._error:.4g})"
        ]
        for count in self.top(min(10, len(self.values))):
            ends = f"[{count.low:,.6g}, {count.high:,.6g}]"
            lines.append(f"{count.rank:3d}. {_name_of_ranked(count)}: {count.value:,.6g} {ends}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"GaussianEstimate({len(self.values)} slots, method={self.method!r})"

    @property
    def _error(self) -> float:
        """Standard error of one published count."""
        return math.sqrt(self.variance)

    @property
    def _variance(self) -> float:
        """Variance of one count in squared lattice units."""
        return float(sum(map(gaussian_variance, self.variances)))

    def _answer(self, units: int, slots: int, level: float) -> Estimate:
        """A sum of published counts with its interval."""
        value = units * self._step
        below, above = interval_reach(self.variances, level, slots)
        low, high = (units - below) * self._step, (units + above) * self._step
        return Estimate(value, low, high, stderr=self._error * math.sqrt(slots))

    def _selected_width(self, k: int, miss: float) -> int:
        """Half width in lattice units, simultaneous over all slots that may have been among the k largest."""
        d, screen = len(self._state), SCREEN_SHARE * miss
        reach = sure_width(self.variances, _error_of_each(screen, d))
        counts = np.sort(self._state)
        bound = max(int(counts[d - k]) - 4 * reach, -(1 << 63))
        rivals = d - int(np.searchsorted(counts, bound, side="left"))
        return sure_width(self.variances, _error_of_each(miss - screen, rivals))

    def _slot(self, item: Item) -> int:
        """Slot of an item; no message holds the item."""
        if self.spec.domain.listed:
            if self.spec.domain.items is None:
                raise DomainError("the list of items is not at hand: read the spec with its items, or ask by slot")
            place = self._places.get((type(item), item))
            if place is None:
                raise DomainError("an item is not in the domain (types count: 5 and '5' are two items)")
            return self._slot_of(place)
        size = self.spec.domain.size
        if isinstance(item, str):  # what a command line or a form could not read as a number
            raise DomainError(f"items of this domain are ids from 0 to {size - 1}, found a text that is not an id")
        if isinstance(item, (bool, np.bool_)) or not isinstance(item, (int, np.integer)):
            raise DomainError(f"items of this domain are ids from 0 to {size - 1}, found {type(item).__name__}")
        if not 0 <= item < size:
            raise DomainError(f"items of this domain are ids from 0 to {size - 1}, found one outside")
        return self._slot_of(int(item))

    def _slot_of(self, place: int) -> int:
        """Slot of an item, by its position in the domain."""
        if self._positions is None:
            return place
        slot = int(np.searchsorted(self._positions, place))
        if slot == len(self._positions) or self._positions[slot] != place:
            raise DomainError("an item of the domain has no slot in this part; ask the stack of all partitions")
        return slot

    @cached_property
    def _places(self) -> dict[tuple[type, Item], int]:
        """Position in the domain of each listed item."""
        return {(type(item), item): slot for slot, item in enumerate(self.spec.domain.items or ())}

    def _end(self, value: int, name: str) -> int:
        """One end of a range of items."""
        size = self.spec.domain.size
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value <= size:
            raise DomainError(f"{name} must be a whole number from 0 to {size}")
        return int(value)


def _name_of_ranked(count: Ranked) -> str:
    """Text of a ranked item; without items, of its slot."""
    if count.item is None:
        return f"slot {count.slot}"
    return count.item.hex() if isinstance(count.item, bytes) else str(count.item)


def _error_of_each(miss: float, slots: int) -> float:
    """Error of each of some independent intervals that gives this error for all: 1 - (1 - miss)^(1/slots)."""
    return -math.expm1(math.log1p(-miss) / slots)
