"""`privacy.budget`: limit on the loss of a unit over a period, in all windows of all sketches.

In: a configuration's sketches and the cost of one window of each. Out: the largest cost of a period; ConfigError if
it is above the budget. Touches: the time zone database.
Source: docs/theory/privacy.md section 5 (losses of an item add over windows and sketches).

A period begins where a window of its length would begin: a calendar day for "1d". An item may be active in all of it,
so it has losses in every window that overlaps the period. An event is in one window of each sketch, or in
several if windows overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.errors import ConfigError
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.losses.composition import Losses
from sketchstream.privacy.losses.history import Loss
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.stream.windows.calendar import DAY_MS, MINUTE_MS, Calendar, Width

if TYPE_CHECKING:
    from sketchstream.privacy.deployments.deployment import AnyLedger
    from sketchstream.privacy.losses.gaussian import GaussianLoss

YEARS = (1970, 2100)
"""Years in which clock changes of a time zone are looked for."""


@dataclass(frozen=True)
class Budget:
    """Limit on the loss of a unit over a period.

    Args:
        epsilon: the limit.
        period: length of the period, and the time zone in which it begins.
        delta: delta of the limit; None: all noise must be pure, delta = 0.
    """

    epsilon: Fraction
    period: Calendar
    delta: Fraction | None = None

    def __str__(self) -> str:
        """The budget as written in the configuration."""
        zone = "" if self.period.timezone == "UTC" else f" ({self.period.timezone})"
        limit = str(self.epsilon) if self.delta is None else f"(epsilon {self.epsilon}, delta {float(self.delta):g})"
        return f"{limit} per {self.period.width}{zone}"

    def span_of(self, window: tuple[int, int]) -> tuple[int, int]:
        """All periods that a window overlaps, from the start of the first to the end of the last."""
        return self.period.window(window[0])[0], self.period.window(window[1] - 1)[1]


@dataclass(frozen=True)
class PlannedLoss:
    """Properties of one sketch of a configuration for budgets.

    Args:
        name: name of the sketch.
        calendar: its windows begin where those of this calendar do.
        ledger: first ledger of each window.
        overlap: most windows that hold one instant.
        groups: groups whose losses the ledger adds for an item; an event is in one of them.
    """

    name: str
    calendar: Calendar
    ledger: AnyLedger
    overlap: int = 1
    groups: int = 1

    @property
    def of_items(self) -> bool:
        """Whether the sketch protects items."""
        return self.ledger.unit == "item"


def item_losses(sketches: Iterable[PlannedLoss], period: Calendar) -> Losses:
    """Largest loss of an item in one period to the sketches of unit "item".

    They are refused on topics that are not keyed by item, so an item has losses in one partition of each window.
    """
    losses = (
        Losses.of_sketch(sketch.ledger.loss()).times(most_windows(sketch.calendar, period, sketch.overlap))
        for sketch in sketches
        if sketch.of_items
    )
    return sum(losses, Losses())


def event_losses(sketches: Iterable[PlannedLoss]) -> Losses:
    """Largest loss of an event to all sketches: it is in one window of each, in several if windows overlap."""
    return sum((Losses.of_sketch(_of_event(sketch)).times(sketch.overlap) for sketch in sketches), Losses())


def _of_event(sketch: PlannedLoss) -> Loss | GaussianLoss:
    """Largest loss of one event to a sketch."""
    if isinstance(sketch.ledger, GaussianLedger):
        return sketch.ledger.loss()
    return max((gap.loss for gap in sketch.ledger.loss_by_gap()), default=Fraction(0)) / sketch.groups


def require(budget: Budget, sketches: Iterable[PlannedLoss]) -> str:
    """Check the cost of a period, and return one line about it.

    Args:
        budget: budget of the configuration.
        sketches: sketches of the configuration.

    Raises:
        ConfigError: the cost is above the budget; names the sketches and the cost of each.
    """
    planned = tuple(sketches)
    items = item_losses(planned, budget.period).epsilon(budget.delta)
    events = event_losses(planned).epsilon(budget.delta)
    unit, loss = ("item", items) if items >= events else ("event", events)
    if loss <= budget.epsilon:
        return f"an {unit} loses at most {loss_number(loss)} of {budget}"
    gaussian = any(isinstance(sketch.ledger, GaussianLedger) for sketch in planned)
    if budget.delta is None and gaussian:
        raise ConfigError(
            f"Gaussian noise needs a delta in addition to epsilon, and privacy.budget = {budget} has none: add one, "
            'such as delta = "1e-6"'
        )
    shares = []
    for sketch in planned:
        number = most_windows(sketch.calendar, budget.period, sketch.overlap) if unit == "item" else sketch.overlap
        if unit == "event" or sketch.of_items:
            times = f"{number} times " if number > 1 else ""
            each = sketch.ledger.loss() if unit == "item" else _of_event(sketch)
            shares.append(f"{sketch.name} {times}{loss_number(Losses.of_sketch(each).epsilon(budget.delta))}")
    raise ConfigError(
        f"an {unit} could lose {loss_number(loss)} in one period ({', '.join(shares)}), above privacy.budget = "
        f"{budget}: lower epsilon_publish, use longer windows or fewer sketches, or raise the budget"
    )


def most_windows(window: Calendar, period: Calendar, overlap: int = 1) -> int:
    """Upper bound on windows that overlap one period; exact in UTC if windows divide the period.

    In a zone with clock changes every day is counted as its longest one, and every month as 31 days.

    Args:
        window: windows begin where those of this calendar do.
        period: calendar of the periods.
        overlap: most windows that hold one instant: all but one of those that hold the period's first may have begun
            before the calendar's window that holds it.
    """
    return _most_steps(window, period) + overlap - 1


def _most_steps(window: Calendar, period: Calendar) -> int:
    """Largest number of windows of a calendar that overlap one period."""
    inner, outer, together = window.width, period.width, window.timezone == period.timezone
    if outer.unit == "minute":
        if inner.unit != "minute":
            return 1 if together else 2
        return _minutes_in_minutes(window, period, together=together)
    days = outer.count if outer.unit == "day" else _days(outer.count)
    if inner.unit == "minute":
        if together:
            return days * _in_a_day(window)
        return _in_a_stretch(window, days * longest_day_ms(period.timezone))
    if inner.unit == outer.unit and outer.count % inner.count == 0 and together:
        return outer.count // inner.count
    if inner.unit == "month" and outer.unit == "month":
        return _blocks_overlapped(outer.count, inner.count) + (not together)
    length = inner.count if inner.unit == "day" else 28 * inner.count
    if together and length == 1:
        return days
    return _blocks_overlapped(days, length) + (not together)


def _minutes_in_minutes(window: Calendar, period: Calendar, *, together: bool) -> int:
    """The number if both are below a day: equal lengths, except on days of a clock change."""
    w, p = window.width.count, period.width.count
    shift = longest_day_ms(period.timezone) - DAY_MS
    if together and p % w == 0 and (shift == 0 or p <= 60 or w > 60):
        return p // w
    return _in_a_stretch(window, p * MINUTE_MS + (shift if p > 60 else 0))


def _in_a_day(window: Calendar) -> int:
    """Number of windows below a day in the longest day: of equal length up to an hour, at equal local times above."""
    count = window.width.count
    return 1440 // count if count > 60 else -(-longest_day_ms(window.timezone) // (count * MINUTE_MS))


def _in_a_stretch(window: Calendar, length_ms: int) -> int:
    """Number of windows below a day that overlap a range of time with any start."""
    width_ms = window.width.count * MINUTE_MS
    if window.width.count > 60:  # at equal local times: a clock change makes one of them shorter
        width_ms = max(MINUTE_MS, width_ms - (longest_day_ms(window.timezone) - DAY_MS))
        return -(-length_ms // width_ms) + 1
    # of equal length from midnight on; the last one is shorter if they do not divide the day
    cut = any(length % width_ms for length in day_lengths_ms(window.timezone))
    return -(-length_ms // width_ms) + 1 + (length_ms // DAY_MS + 2 if cut else 0)


def _blocks_overlapped(days: int, length: int) -> int:
    """Largest number of blocks of `length` days that a range of days overlaps."""
    return 1 if days == 1 else (days - 2) // length + 2


def _days(months: int) -> int:
    """Days in the longest period of this number of months."""
    return months // 12 * 366 + months % 12 * 31


@lru_cache(maxsize=64)
def day_lengths_ms(timezone: str) -> tuple[int, ...]:
    """Lengths of the days of a time zone, ascending."""
    if timezone == "UTC":
        return (DAY_MS,)
    return tuple(np.unique(np.diff(Calendar(Width(1, "day"), timezone).edges(*YEARS))).tolist())


def longest_day_ms(timezone: str) -> int:
    """Length of the longest day of a time zone."""
    return day_lengths_ms(timezone)[-1]


def parse(epsilon: Fraction, per: str, calendars: Iterable[Calendar], delta: Fraction | None = None) -> Budget:
    """Read the budget of a configuration; periods begin in the sketches' common time zone, else in UTC.

    Raises:
        ConfigError: `per` is not the length of a period.
    """
    zones = {calendar.timezone for calendar in calendars}
    try:
        width = Width.parse(per, "a period")
    except ConfigError as error:
        raise ConfigError(f"privacy.budget.per: {error}") from None
    return Budget(epsilon, Calendar(width, zones.pop() if len(zones) == 1 else "UTC"), delta)
