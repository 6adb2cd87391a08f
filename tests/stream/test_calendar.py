"""The calendar of windows: every time lies in exactly one, boundaries are where a wall clock says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchstream.errors import ConfigError
from sketchstream.stream.windows.calendar import DAY_MS, EARLIEST_MS, HOUR_MS, LATEST_MS, Calendar, Width, hopping, iso

WIDTHS = ["1m", "15m", "30m", "1h", "90m", "2h", "6h", "12h", "1d", "2d", "1w", "1mo", "3mo", "1y"]
ZONES = [
    "UTC",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # half an hour of summer time
    "America/Sao_Paulo",  # clocks changed at midnight
    "Pacific/Apia",  # skipped a whole day in 2011
]


def ms(*parts: int, zone: str = "UTC") -> int:
    return round(datetime(*parts, tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("width", WIDTHS)
def test_windows_are_a_partition_of_time(width: str, zone: str) -> None:
    calendar = Calendar(Width.parse(width), zone)
    rng = np.random.default_rng(7)
    for year in (1985, 2011, 2013, 2025):
        low = ms(year, 1, 1)
        times = np.sort(rng.integers(low, low + 366 * DAY_MS, 400))
        starts = calendar.starts(times)
        ends = np.array([calendar.end(int(start)) for start in starts])
        assert (starts <= times).all()
        assert (times < ends).all()
        # the end is the next start, and everything up to it is in the same window
        assert (calendar.starts(ends - 1) == starts).all()
        assert (calendar.starts(ends) == ends).all()
        assert (calendar.starts(starts) == starts).all()
        assert (calendar.starts(starts - 1) < starts).all()


@given(
    st.integers(EARLIEST_MS, LATEST_MS - 1),
    st.integers(EARLIEST_MS, LATEST_MS - 1),
    st.sampled_from(["2h", "1d", "1mo"]),
)
@settings(max_examples=25)
def test_far_apart_times_agree_with_each_alone(a: int, b: int, width: str) -> None:
    zone = "Europe/Berlin"
    both = Calendar(Width.parse(width), zone).starts(np.array([a, b]))
    alone = [Calendar(Width.parse(width), zone).window(t)[0] for t in (a, b)]
    assert both.tolist() == alone


def test_days_follow_the_wall_clock_over_a_clock_change() -> None:
    calendar = Calendar(Width.parse("1d"), "America/New_York")
    spring = calendar.window(ms(2013, 3, 10, 12, zone="America/New_York"))
    autumn = calendar.window(ms(2013, 11, 3, 12, zone="America/New_York"))
    assert spring == (ms(2013, 3, 10, 5), ms(2013, 3, 11, 4))
    assert autumn == (ms(2013, 11, 3, 4), ms(2013, 11, 4, 5))
    assert (spring[1] - spring[0], autumn[1] - autumn[0]) == (23 * HOUR_MS, 25 * HOUR_MS)


def test_hours_keep_their_length_over_a_clock_change() -> None:
    calendar = Calendar(Width.parse("1h"), "America/New_York")
    at, lengths = ms(2013, 11, 3, 4), []
    while at < ms(2013, 11, 4, 5):
        start, end = calendar.window(at)
        assert start == at
        lengths.append(end - start)
        at = end
    assert lengths == [HOUR_MS] * 25


def test_long_windows_below_a_day_begin_at_local_times() -> None:
    calendar = Calendar(Width.parse("6h"), "America/New_York")
    at, local = ms(2013, 3, 10, 5), []
    for _ in range(4):
        start, at = calendar.window(at)
        local.append(datetime.fromtimestamp(start / 1000, ZoneInfo("America/New_York")).hour)
    assert local == [0, 6, 12, 18]
    assert at == ms(2013, 3, 11, 4)


def test_months_and_weeks_begin_where_calendars_say() -> None:
    month = Calendar(Width.parse("1mo"), "America/New_York")
    assert month.window(ms(2013, 3, 15)) == (ms(2013, 3, 1, 5), ms(2013, 4, 1, 4))
    quarter = Calendar(Width.parse("3mo"))
    assert quarter.window(ms(2013, 3, 15)) == (ms(2013, 1, 1), ms(2013, 4, 1))
    week = Calendar(Width.parse("1w"))
    start, end = week.window(ms(2024, 2, 29))
    assert datetime.fromtimestamp(start / 1000, UTC).weekday() == 0
    assert end - start == 7 * DAY_MS


def test_half_hour_zones_shift_hours() -> None:
    start, _ = Calendar(Width.parse("1h"), "Asia/Kolkata").window(ms(2024, 1, 1, 0, 45))
    assert start == ms(2024, 1, 1, 0, 30)


@pytest.mark.parametrize(
    "text", ["", "0h", "7m", "5h", "25h", "1s", "h", "1.5h", "-1d", "5mo", "400d", "130mo", "1 h x"]
)
def test_widths_that_do_not_align_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="window"):
        Width.parse(text)


def test_a_width_that_does_not_align_is_called_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^every is '1m' to '12h'"):
        hopping("1d", "7h")
    with pytest.raises(ConfigError, match=r"^a period is '1m' to '12h'"):
        Calendar(Width.parse("1d"), "UTC").periods("1d", "5h")


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "America"])
def test_unknown_zones_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="time zone"):
        Calendar(Width.parse("1d"), name)


def test_spelling_of_times_and_widths() -> None:
    assert iso(ms(2013, 1, 1)) == "2013-01-01T00:00:00Z"
    assert iso(ms(2013, 1, 1) + 5) == "2013-01-01T00:00:00.005Z"
    assert [str(Width.parse(w)) for w in ("60m", "24h", "1w", "1y", "15m")] == ["1h", "1d", "7d", "12mo", "15m"]
    assert iso(EARLIEST_MS) == "1900-01-01T00:00:00Z"
    assert timedelta(milliseconds=Width.parse("1mo").shortest_ms) < timedelta(days=28)


def test_days_of_utc_are_equally_long() -> None:
    """Else the guarantee of a daily sketch would count two windows a day."""
    lengths = {name: Calendar(Width.parse("1d"), name).shortest_ms for name in ("UTC", "Europe/Berlin")}
    assert lengths == {"UTC": 24 * 3_600_000, "Europe/Berlin": 23 * 3_600_000}
    assert Calendar(Width.parse("1h"), "Europe/Berlin").shortest_ms == 3_600_000


def test_the_last_window_of_a_day_is_cut_at_midnight_where_clocks_change() -> None:
    """As docs/streams.md says: 23 hours are 30 windows of 45 minutes, and one of 30."""
    calendar = Calendar(Width.parse("45m"), "America/New_York")
    midnight = datetime(2024, 3, 11, 4, tzinfo=UTC).timestamp() * 1000
    start, end = calendar.window(int(midnight) - 1)
    assert (end, end - start) == (midnight, 30 * 60_000)
