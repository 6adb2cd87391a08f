"""Event-time windows, or steps of hopping ones: minutes to months, aligned in a time zone.

In: a width, a time zone, event times in ms since 1970. Out: for each time the start of its window; for each start the
window's end. Touches: the time zone database.

Widths of whole days and months begin at local midnight, whatever the length of the day. Widths below a day divide the
day; up to one hour they have equal length in real time and restart at local midnight; above one hour they begin at
equal local times, so that one of them is shorter or longer on the day of a clock change. Multi-day windows begin on
days whose number since Monday, 5 January 1970, is a multiple of the width, so weeks begin on Monday.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from sketchstream.errors import ConfigError
from sketchstream.stream.windows.units import duration_ms

Times = npt.NDArray[np.int64]

NO_TIME = int(np.iinfo(np.int64).min)
"""An event time that could not be read; also the watermark before any record. Other times are ms since 1970."""

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
MAX_WINDOWS = 400
"""Most windows that may hold one record."""
FIRST_YEAR, LAST_YEAR = 1900, 2200
EARLIEST_MS = int(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC).timestamp()) * 1000
"""Event times before 1900 or from 2200 on are treated as unreadable: clocks do not show them, mistakes of unit do."""
LATEST_MS = int(datetime(LAST_YEAR, 1, 1, tzinfo=UTC).timestamp()) * 1000
FIRST_KNOWN, LAST_KNOWN = 1970, 2037
"""Years whose clock changes are written down; later ones follow the rules of the last."""
_MONDAY = date(1970, 1, 5).toordinal()
_MONDAY_MS = 4 * DAY_MS


def is_within(window: tuple[int, int], since: int | None, until: int | None) -> bool:
    """Whether a window [start, end) lies in a range of time; None is no bound."""
    return (since is None or window[0] >= since) and (until is None or window[1] <= until)


_FORM = re.compile(r"(\d{1,6})(m|h|d|w|mo|y)")


@dataclass(frozen=True)
class Width:
    """How long a window is: a number of minutes, days or months."""

    count: int
    unit: Literal["minute", "day", "month"]

    @classmethod
    def parse(cls, text: str, name: str = "a window") -> Width:
        """The width in "15m", "1h", "1d", "1w", "1mo" or "1y"; `name` says in errors what has it.

        Raises:
            ConfigError: anything else, and widths below a day that do not divide it.
        """
        expected = f"{name} is '1m' to '12h' (dividing a day), '1d', '1w', '1mo' or '1y'"
        match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or int(match[1]) == 0:
            raise ConfigError(f"{expected}; found {text!r:.40}")
        count, letter = int(match[1]), match[2]
        if letter in "mh":
            minutes = count * (60 if letter == "h" else 1)
            if minutes % 1440 == 0:
                return cls._checked(minutes // 1440, "day", text, name)
            if 1440 % minutes:
                raise ConfigError(f"{expected}; {text!r:.40} does not divide a day")
            return cls(minutes, "minute")
        if letter in "dw":
            return cls._checked(count * (7 if letter == "w" else 1), "day", text, name)
        months = count * (12 if letter == "y" else 1)
        if 12 % months and months % 12:
            raise ConfigError(f"{name} of months divides a year or is whole years; found {text!r:.40}")
        return cls._checked(months, "month", text, name)

    @classmethod
    def _checked(cls, count: int, unit: Literal["day", "month"], text: str, name: str) -> Width:
        if count > (366 if unit == "day" else 120):
            raise ConfigError(f"{name} is at most ten years (or 366 days), found {text!r:.40}")
        return cls(count, unit)

    def steps(self, every: Width) -> tuple[Width, int, int]:
        """The longest step of which both this length and `every` are whole numbers, and these two numbers.

        Raises:
            ConfigError: there is no such step, windows would not touch, or too many would hold one record.
        """
        minutes = {"minute": 1, "day": 1440}
        whole, step = (self.count, every.count)
        if self.unit != every.unit:
            whole, step = (self.count * minutes.get(self.unit, 0), every.count * minutes.get(every.unit, 0))
        if not step or not whole:
            raise ConfigError(
                f"a window and every are both of months, or both of days and shorter times, found {self} and {every}"
            )
        if step > whole:
            raise ConfigError(
                f"every must not be longer than the window, or records fall between windows; found {self} and {every}"
            )
        if -(-whole // step) > MAX_WINDOWS:
            raise ConfigError(
                f"a record is counted in at most {MAX_WINDOWS} windows, found {-(-whole // step)} that hold it"
            )
        common = math.gcd(whole, step)
        if common == step:
            return every, whole // step, 1
        return Width(common, self.unit if self.unit == every.unit else "minute"), whole // common, step // common

    @property
    def shortest_ms(self) -> int:
        """Length of the shortest such windows, for estimates of how many are open at once.

        Windows below a day count as their width: on a day whose clocks change, one of them is shorter.
        """
        per_unit = {"minute": MINUTE_MS, "day": DAY_MS - HOUR_MS, "month": 28 * DAY_MS - HOUR_MS}
        return self.count * per_unit[self.unit]

    def __str__(self) -> str:
        """The width in the form of the configuration."""
        if self.unit == "minute" and self.count % 60 == 0:
            return f"{self.count // 60}h"
        return f"{self.count}{ {'minute': 'm', 'day': 'd', 'month': 'mo'}[self.unit] }"


def zone(name: str) -> tzinfo:
    """The time zone of that IANA name. Raises ConfigError for an unknown one."""
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # a name that is unknown, outside the database, or a directory of it
        raise ConfigError(
            f"unknown time zone {name!r:.60}; use an IANA name such as 'UTC' or 'America/New_York'"
        ) from None


class Calendar:
    """Which window an event time belongs to.

    Args:
        width: width of the windows.
        timezone: IANA name; decides where days and months begin.
    """

    def __init__(self, width: Width, timezone: str = "UTC") -> None:
        self.width = width
        self.timezone = timezone
        self._zone = zone(timezone)
        self._years: tuple[int, int] = (0, 0)
        self._edges: Times = np.zeros(0, np.int64)
        self._odd_days: dict[int, Times] = {}
        # windows of equal length, anchored at a fixed instant
        self._fixed: tuple[int, int] | None = None
        if timezone == "UTC" and width.unit != "month":
            by_day = width.unit == "day"
            self._fixed = (_MONDAY_MS if by_day else 0, width.count * (DAY_MS if by_day else MINUTE_MS))

    @property
    def shortest_ms(self) -> int:
        """Length of the shortest of these windows, as `Width` says; exact if all are equally long."""
        return self.width.shortest_ms if self._fixed is None else self._fixed[1]

    @cached_property
    def longest_ms(self) -> int:
        """Length of the longest of these windows, ms, as time zones are since 1970."""
        if self._fixed is not None:
            return self._fixed[1]
        longest = int(np.diff(self._midnights(FIRST_KNOWN, LAST_KNOWN)).max())
        if self.width.unit != "minute":
            return longest
        # One of the windows of an odd day takes what the day is longer, unless they restart at its midnight only.
        return self.width.count * MINUTE_MS + (max(0, longest - DAY_MS) if self.width.count > 60 else 0)

    def positions(self, step: str, name: str = "step") -> tuple[int, int]:
        """A series within a window: ms of one position, and positions of the longest window.

        Position 0 begins with the window, and all last equally long in real time. Where a clock change gives a day 23
        or 25 hours, it has 23 or 25 positions of an hour.

        Args:
            step: length of one position, such as "1m" or "1h".
            name: name of the step in errors.

        Raises:
            ConfigError: no duration, or one that is not shorter than the windows.
        """
        milliseconds = duration_ms(step, name)
        if not 0 < milliseconds < self.width.shortest_ms:
            raise ConfigError(f"{name} must be above 0 and shorter than the window of {self.width}, found {step!r:.40}")
        return milliseconds, -(-self.longest_ms // milliseconds)

    def periods(self, window: str, period: str) -> tuple[int, int]:
        """The periods of windows: how many there are in one, and ms of each.

        Args:
            window: length of a window, such as "14d".
            period: length of a period, such as "7d".

        Raises:
            ConfigError: periods do not divide windows, or are not equally long.
        """
        long, short = Width.parse(window), Width.parse(period, "a period")
        if self.timezone != "UTC" or "month" in (long.unit, short.unit):
            raise ConfigError(
                'periods need windows of minutes, hours, days or weeks and timezone = "UTC": elsewhere clock changes, '
                "and months everywhere, make them unequal"
            )
        minutes = [width.count * (1440 if width.unit == "day" else 1) for width in (long, short)]
        if minutes[0] % minutes[1] or minutes[0] == minutes[1]:
            raise ConfigError(f"periods must divide the window of {window} into two or more, found {period!r:.40}")
        return minutes[0] // minutes[1], minutes[1] * MINUTE_MS

    def __repr__(self) -> str:
        """Width and zone."""
        return f"Calendar({self.width}, {self.timezone})"

    def starts(self, times: Times) -> Times:
        """(n,) int64 start of the window of each time; times lie between 1900 and 2200."""
        if not times.size:
            return np.zeros(0, np.int64)
        if self._fixed is not None:
            anchor, length = self._fixed
            fixed: Times = (times - anchor) // length * length + anchor
            return fixed
        self._reach(int(times.min()), int(times.max()))
        at = np.searchsorted(self._edges, times, side="right") - 1
        begins = self._edges[at]
        if self.width.unit != "minute":
            return begins
        length = self.width.count * MINUTE_MS
        out: Times = begins + (times - begins) // length * length
        if self.width.count > 60:  # on days of a clock change equal local times are not equally far apart
            odd = self._edges[at + 1] - begins != DAY_MS
            for begin in np.unique(begins[odd]):
                here = odd & (begins == begin)
                marks = self._local_marks(int(begin))
                out[here] = marks[np.searchsorted(marks, times[here], side="right") - 1]
        return out

    def end(self, start: int) -> int:
        """End of the window that begins at `start`, itself a start that `starts` gave."""
        if self._fixed is not None:
            return start + self._fixed[1]
        self._reach(start, start)
        at = int(np.searchsorted(self._edges, start, side="right"))
        ceiling = int(self._edges[at])
        if self.width.unit != "minute":
            return ceiling
        begin = int(self._edges[at - 1])
        if self.width.count > 60 and ceiling - begin != DAY_MS:
            marks = self._local_marks(begin)
            after = int(np.searchsorted(marks, start, side="right"))
            return int(marks[after]) if after < marks.size else ceiling
        return min(start + self.width.count * MINUTE_MS, ceiling)

    def before(self, start: int) -> int:
        """Start of the window before the one that begins at `start`."""
        return start - self._fixed[1] if self._fixed is not None else self.window(start - 1)[0]

    def window(self, time_ms: int) -> tuple[int, int]:
        """[start, end) of the window of one time."""
        start = int(self.starts(np.array([time_ms], np.int64))[0])
        return start, self.end(start)

    def _reach(self, low: int, high: int) -> None:
        """Extend the table of local midnights (or of windows of days and months) to these times."""
        if self._edges.size and self._edges[0] <= low and self._edges[-1] > high:
            return
        # two years either side, so that a longest window (ten years for months) is still inside
        margin = 2 if self.width.unit != "month" else 11
        first = _year(low) - margin
        last = _year(high) + margin
        if self._edges.size:
            first, last = min(first, self._years[0]), max(last, self._years[1])
        self._years = first, last
        self._edges = self._midnights(first, last)

    def edges(self, first: int, last: int) -> Times:
        """Where windows of days or months begin (for shorter ones: where days begin) in these years."""
        return self._midnights(first, last)

    def _midnights(self, first: int, last: int) -> Times:
        """Where windows of days or months begin (for shorter ones: where days begin), ascending, no two equal."""
        if self.width.unit == "month":
            months = range(first * 12, (last + 1) * 12)
            days = [date(m // 12, m % 12 + 1, 1) for m in months if m % self.width.count == 0]
        else:
            step = self.width.count if self.width.unit == "day" else 1
            low, high = date(first, 1, 1).toordinal(), date(last, 12, 31).toordinal()
            low += -(low - _MONDAY) % step
            days = [date.fromordinal(at) for at in range(low, high + 1, step)]
        # a day that a zone skipped altogether begins where the next one does: unique
        return np.unique(np.array([self._instant(datetime(d.year, d.month, d.day)) for d in days], np.int64))  # noqa: DTZ001 - local

    def _instant(self, local: datetime) -> int:
        """Ms since 1970 of a local time (the first of two; the moment of the jump if it was skipped)."""
        return round((local.replace(tzinfo=self._zone) - _EPOCH).total_seconds() * 1000)

    def _local_marks(self, begin: int) -> Times:
        """Starts of the windows of one day, above one hour each, by local time."""
        if begin not in self._odd_days:
            noon = datetime.fromtimestamp(begin / 1000 + 6 * 3600, self._zone)
            midnight = datetime(noon.year, noon.month, noon.day)  # noqa: DTZ001 - local
            minutes = range(0, 1440, self.width.count)
            marks = [max(begin, self._instant(midnight + timedelta(minutes=at))) for at in minutes]
            self._odd_days[begin] = np.unique(np.array([begin, *marks], np.int64))
        return self._odd_days[begin]

    @cached_property
    def fixed(self) -> bool:
        """Whether all windows have the same length."""
        return self._fixed is not None


def hopping(window: str, every: str | None = None, timezone: str = "UTC") -> tuple[Calendar, int, int]:
    """The calendar of windows, or of the steps of hopping ones; the steps of a window, and those between two of them.

    Args:
        window: length of a window, such as "7d".
        every: time from the beginning of one to that of the next; None: they do not overlap. If it does not divide the
            window, the steps are of the longest time that divides both.
        timezone: IANA name.

    Raises:
        ConfigError: no such windows.
    """
    width = Width.parse(window)
    if every is None:
        return Calendar(width, timezone), 1, 1
    between = Width.parse(every, "every")
    step, steps, stride = width.steps(between)
    calendar = Calendar(step, timezone)
    if stride > 1 and step.unit == "minute" and not calendar.fixed:
        days = np.diff(Calendar(Width(1, "day"), timezone).edges(FIRST_KNOWN, LAST_KNOWN))
        if (days != DAY_MS).any():
            raise ConfigError(
                f"windows of {width} cannot begin every {between} in {timezone}: on a day on which its clocks change "
                "they begin closer together, and more of them would hold a record than it is charged for; take an "
                'every that divides the window, or timezone = "UTC"'
            )
    return calendar, steps, stride


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _year(time_ms: int) -> int:
    return min(max((_EPOCH + timedelta(milliseconds=time_ms)).year, 13), 9987)


def iso(time_ms: int) -> str:
    """RFC 3339 in UTC, seconds (or milliseconds where there are any)."""
    when = _EPOCH + timedelta(milliseconds=time_ms)
    return when.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")
