"""`privacy.budget`: how much the unit that sketches protect may lose over a period, over all windows of all sketches.

In: a configuration's sketches and what one window of each costs. Out: what a period costs at most; ConfigError where
that is above the budget. Touches: the time zone database.
Source: docs/theory/privacy.md section 5 (losses of an item add over windows and sketches).

A period begins where a window of its length would begin: a calendar day for "1d". An item may be active in all of it,
so it pays in every window that has any part in the period. An event lies in one window of each sketch, or
in as many as overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.errors import ConfigError
from sketchstream.privacy.composition import Losses
from sketchstream.privacy.gaussian_ledger import GaussianLedger
from sketchstream.privacy.ledger import Loss, show
from sketchstream.stream.windows import DAY_MS, MINUTE_MS, Calendar, Width

if TYPE_CHECKING:
    from sketchstream.privacy.deployment import AnyLedger
    from sketchstream.privacy.gaussian import GaussianLoss

YEARS = (1970, 2100)
"""Years in which clock changes of a time zone are looked for."""


@dataclass(frozen=True)
class Budget:
    """What a unit may lose over a period.

    Args:
        epsilon: the limit.
        period: its length, and the time zone in which it begins.
        delta: at which the limit is meant; None: all noise must be pure, delta = 0.
    """

    epsilon: Fraction
    period: Calendar
    delta: Fraction | None = None

    def __str__(self) -> str:
        """As in the configuration."""
        zone = "" if self.period.timezone == "UTC" else f" ({self.period.timezone})"
        limit = str(self.epsilon) if self.delta is None else f"(epsilon {self.epsilon}, delta {float(self.delta):g})"
        return f"{limit} per {self.period.width}{zone}"

    def stretch(self, window: tuple[int, int]) -> tuple[int, int]:
        """All periods in which a window has a part, from the beginning of the first to the end of the last."""
        return self.period.window(window[0])[0], self.period.window(window[1] - 1)[1]


@dataclass(frozen=True)
class Planned:
    """One sketch of a configuration, as far as budgets go.

    Args:
        name: of the sketch.
        calendar: of its windows, or of the steps of hopping windows.
        ledger: that each of them begins with.
        steps: of a window, see `SketchPlan`.
    """

    name: str
    calendar: Calendar
    ledger: AnyLedger
    steps: int = 1

    @property
    def of_items(self) -> bool:
        """Whether it protects items."""
        return self.ledger.unit == "item"


def item_losses(sketches: Iterable[Planned], period: Calendar) -> Losses:
    """Most that an item loses in one period to the sketches of unit "item".

    They are refused on topics that are not keyed by item, so it pays in one partition of each window.
    """
    losses = (
        Losses.of_sketch(one.ledger.loss()).times(most_windows(one.calendar, period, one.steps))
        for one in sketches
        if one.of_items
    )
    return sum(losses, Losses())


def event_losses(sketches: Iterable[Planned]) -> Losses:
    """Most that an event loses to all sketches: it lies in one window of each, in several where windows overlap."""
    return sum((Losses.of_sketch(_of_event(one.ledger)).times(one.steps) for one in sketches), Losses())


def _of_event(ledger: AnyLedger) -> Loss | GaussianLoss:
    """Most that one event loses to a sketch."""
    if isinstance(ledger, GaussianLedger):
        return ledger.loss()
    return max((gap.loss for gap in ledger.loss_by_gap()), default=Fraction(0))


def require(budget: Budget, sketches: Iterable[Planned]) -> str:
    """One line that says what a period costs.

    Args:
        budget: of the configuration.
        sketches: of the configuration.

    Raises:
        ConfigError: it is above the budget; names the sketches and what each of them costs.
    """
    planned = tuple(sketches)
    items = item_losses(planned, budget.period).epsilon(budget.delta)
    events = event_losses(planned).epsilon(budget.delta)
    unit, loss = ("item", items) if items >= events else ("event", events)
    if loss <= budget.epsilon:
        return f"an {unit} loses at most {show(loss)} of {budget}"
    gaussian = any(isinstance(one.ledger, GaussianLedger) for one in planned)
    if budget.delta is None and gaussian:
        msg = (
            f"Gaussian noise needs a delta beside epsilon, and privacy.budget = {budget} has none: add one, such as "
            'delta = "1e-6"'
        )
        raise ConfigError(msg)
    shares = []
    for one in planned:
        number = most_windows(one.calendar, budget.period, one.steps) if unit == "item" else one.steps
        if unit == "event" or one.of_items:
            times = f"{number} times " if number > 1 else ""
            each = one.ledger.loss() if unit == "item" else _of_event(one.ledger)
            shares.append(f"{one.name} {times}{show(Losses.of_sketch(each).epsilon(budget.delta))}")
    msg = (
        f"an {unit} could lose {show(loss)} in one period ({', '.join(shares)}), above privacy.budget = "
        f"{budget}: lower epsilon_publish, use longer windows or fewer sketches, or raise the budget"
    )
    raise ConfigError(msg)


def most_windows(window: Calendar, period: Calendar, steps: int = 1) -> int:
    """Most windows that have a part in one period; never too few, and exact in UTC where windows divide the period.

    In a zone with clock changes every day is counted as its longest one, and every month as 31 days.

    Args:
        window: the windows, or the steps of hopping windows.
        period: its length.
        steps: of a window: those that end in the period's first step began up to `steps` - 1 steps before.
    """
    return _most_steps(window, period) + steps - 1


def _most_steps(window: Calendar, period: Calendar) -> int:
    """Most windows of a calendar that have a part in one period."""
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
        return _touched(outer.count, inner.count) + (not together)
    length = inner.count if inner.unit == "day" else 28 * inner.count
    if together and length == 1:
        return days
    return _touched(days, length) + (not together)


def _minutes_in_minutes(window: Calendar, period: Calendar, *, together: bool) -> int:
    """Both below a day: equal lengths, but for days of a clock change."""
    w, p = window.width.count, period.width.count
    shift = longest_day_ms(period.timezone) - DAY_MS
    if together and p % w == 0 and (shift == 0 or p <= 60 or w > 60):
        return p // w
    return _in_a_stretch(window, p * MINUTE_MS + (shift if p > 60 else 0))


def _in_a_day(window: Calendar) -> int:
    """Windows below a day in its longest day: of equal length up to an hour, at equal local times above."""
    count = window.width.count
    return 1440 // count if count > 60 else -(-longest_day_ms(window.timezone) // (count * MINUTE_MS))


def _in_a_stretch(window: Calendar, length_ms: int) -> int:
    """Windows below a day with a part in a stretch of time that may begin anywhere."""
    width_ms = window.width.count * MINUTE_MS
    if window.width.count > 60:  # at equal local times: a clock change makes one of them shorter
        width_ms = max(MINUTE_MS, width_ms - (longest_day_ms(window.timezone) - DAY_MS))
        return -(-length_ms // width_ms) + 1
    # of equal length from midnight on: a day that they do not divide ends with a shorter one
    cut = any(length % width_ms for length in day_lengths_ms(window.timezone))
    return -(-length_ms // width_ms) + 1 + (length_ms // DAY_MS + 2 if cut else 0)


def _touched(days: int, length: int) -> int:
    """Blocks of `length` days in which a stretch of days, placed at its worst, has a part."""
    return 1 if days == 1 else (days - 2) // length + 2


def _days(months: int) -> int:
    """Days in the longest period of so many months."""
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
    """The budget that a configuration says; periods begin in the sketches' time zone if they share one, else in UTC.

    Raises:
        ConfigError: `per` is no length of a period.
    """
    zones = {calendar.timezone for calendar in calendars}
    try:
        width = Width.parse(per)
    except ConfigError as error:
        msg = f"privacy.budget.per: {error}".replace("a window is", "a period is")
        raise ConfigError(msg) from None
    return Budget(epsilon, Calendar(width, zones.pop() if len(zones) == 1 else "UTC"), delta)
