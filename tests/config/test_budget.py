"""`privacy.budget`: what a unit may lose over a period, whatever windows, sketches and time zones there are.

In: configurations, calendars. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from sketchstream.config import budget
from sketchstream.config.budget import most_windows
from sketchstream.config.context import context
from sketchstream.config.loader import Config
from sketchstream.errors import BudgetError, ConfigError
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.profile.statement import statement
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.history import LayerEntry
from sketchstream.stream.windows.calendar import Calendar, Times, Width

F = Fraction
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
HEAD = """
[input]
file = "events.jsonl"
item = "user"
time = "ts"
[key]
file = "k"
[privacy]
"""


def sketch(name: str, window: str, epsilon: str, unit: str = "item", **more: str) -> str:
    fields = {"name": name, "window": window, "epsilon": epsilon, "unit": unit, **more}
    lines = "\n".join(f'{key} = "{value}"' for key, value in fields.items())
    return f"[[sketch]]\n{lines}\ndomain = {{ slots = 1024, levels = 4 }}\n"


def parse(limit: str, *sketches: str) -> Config:
    return Config.parse(f"{HEAD}{limit}\n{''.join(sketches)}", "/etc/c.toml", {})


def day(epsilon: str, per: str = "1d") -> str:
    return f'budget = {{ epsilon = "{epsilon}", per = "{per}" }}'


# Configurations.


def test_an_hourly_sketch_of_items_counts_24_times_a_day() -> None:
    hourly = sketch("hourly", "1h", "1/3")
    assert parse(day("8"), hourly).check_budget() == "an item loses at most 8 of 8 per 1d"
    assert parse("max_epsilon = 1", sketch("hourly", "1h", "1")), "the bound of one window does not see the others"
    with pytest.raises(ConfigError) as caught:
        parse(day("7.99"), hourly)
    assert str(caught.value) == (
        "/etc/c.toml: an item could lose 8 in one period (hourly 24 times 1/3), above privacy.budget = 799/100 per 1d: "
        "lower epsilon_publish, use longer windows or fewer sketches, or raise the budget"
    )


def test_sketches_of_all_widths_add() -> None:
    blocks = [
        sketch("quarter", "15m", "1/96"),
        sketch("hour", "1h", "1/24"),
        sketch("day", "1d", "1/2"),
        sketch("week", "1w", "3/4"),
        sketch("month", "1mo", "1/4"),
    ]
    whole = F(1) + 1 + F(1, 2) + F(3, 4) + F(1, 4)
    assert whole == F(7, 2)
    parse(day("7/2"), *blocks)
    with pytest.raises(ConfigError, match=r"an item could lose 7/2 .*week 3/4, month 1/4"):
        parse(day("3.4"), *blocks)
    # a week has 7 days; a month can touch 5 weeks in part, its first and last among them
    assert parse(day("20", "1w"), *blocks).items_in_a_period().pure == 7 * F(5, 2) + F(3, 4) + 2 * F(1, 4)
    assert parse(day("50", "1mo"), sketch("week", "1w", "3/4")).items_in_a_period().pure == 6 * F(3, 4)


def test_what_is_published_counts_and_what_a_seized_state_costs_does_not() -> None:
    block = sketch("daily", "1d", "4", epsilon_publish="1")
    assert parse(day("1"), block).check_budget() == "an item loses at most 1 of 1 per 1d"


def test_an_event_lies_in_one_window_of_each_sketch() -> None:
    blocks = [sketch("hour", "1h", "1", "event"), sketch("day", "1d", "1/2", "event")]
    assert parse(day("3/2"), *blocks).check_budget() == "an event loses at most 3/2 of 3/2 per 1d"
    with pytest.raises(ConfigError, match=r"an event could lose 3/2 in one period \(hour 1, day 1/2\)"):
        parse(day("1"), *blocks)


def test_days_of_clock_changes_are_counted_at_their_longest() -> None:
    block = sketch("hourly", "1h", "1/3", timezone="Europe/Berlin")
    with pytest.raises(ConfigError, match="hourly 25 times 1/3"):
        parse(day("8"), block)
    assert "of 25/3 per 1d (Europe/Berlin)" in str(parse(day("25/3"), block).check_budget())


def test_the_guarantee_counts_the_windows_of_the_longest_day() -> None:
    blocks = [
        sketch("hourly", "1h", "1/3", timezone="Europe/Berlin"),
        sketch("daily", "1d", "1/4", timezone="Europe/Berlin"),
    ]
    plans = parse("", *blocks).sketches
    both = [context(parse("", *blocks), plan) for plan in plans]
    hourly, daily = (
        statement(plan.spec, initial_ledger(plan.spec), known) for plan, known in zip(plans, both, strict=True)
    )
    assert hourly.total.pure == daily.total.pure == 25 * F(1, 3) + F(1, 4), "a day of 23 hours is one window too"
    assert "over 2 sketches, 25 windows of the longest day: an item loses at most 103/12" in str(hourly)
    assert "over 2 sketches: an item loses at most 103/12" in str(daily)
    utc = parse("", sketch("hourly", "1h", "1/3"))
    one = statement(utc.sketches[0].spec, initial_ledger(utc.sketches[0].spec), context(utc, utc.sketches[0]))
    assert "over 24 windows a day: an item loses at most 8" in str(one)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("budget = 8", "privacy.budget"),
        ('budget = { epsilon = "8" }', "privacy.budget.per is missing"),
        ('budget = { epsilon = "8", per = "7h" }', "privacy.budget.per: a period is"),
        ('budget = { epsilon = "no", per = "1d" }', "privacy.budget.epsilon must be a positive rational"),
        ('budget = { epsilon = "60", per = "1d" }', "privacy.budget.epsilon above 50 protects nobody"),
        ('budget = { epsilon = "8", per = "1d", delta = 0 }', "privacy.budget.delta must be in [1e-300, 0.5]"),
    ],
)
def test_a_budget_that_cannot_be_is_one_line(limit: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        parse(limit, sketch("daily", "1d", "1"))
    assert "\n" not in str(caught.value)


# Counting windows.

SHORT = ("30m", "40m", "1h", "2h", "6h", "12h")
LONG = ("1d", "2d", "1w", "10d", "1mo", "3mo", "1y")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll")


@cache
def starts(calendar: Calendar, low: int, high: int) -> Times:
    """Where windows begin, from the one that holds `low` to the first from `high` on."""
    times = np.arange(low, high + 400 * DAY if calendar.width.unit != "minute" else high + DAY, HOUR // 2)
    if calendar.width.unit == "minute":
        times = np.sort(np.concatenate([times, times + 10 * MINUTE, times + 20 * MINUTE]))
    found = np.unique(calendar.starts(times))
    return found[: np.searchsorted(found, high) + 1]


def most_by_trying(window: Calendar, period: Calendar, spans: list[tuple[int, int]]) -> int:
    """Most windows with a part in one period, of all periods in these spans of time."""
    worst = 0
    for low, high in spans:
        begins, periods = starts(window, low, high), starts(period, low, high)
        first, last = periods[:-1], periods[1:]
        inside = (first >= low) & (last <= high)
        held = np.searchsorted(begins, last) - np.searchsorted(begins, first, side="right") + 1
        worst = max(worst, int(held[inside].max(initial=0)))
    return worst


def spans_of(window: str, period: str) -> list[tuple[int, int]]:
    """Times to look at: years where both are long, one year where one is, the days around clock changes else."""
    if window in LONG and period in LONG:
        return [(ms(1999, 12, 1), ms(2013, 2, 1))]
    if window in LONG or period in LONG[2:]:
        return [(ms(2024, 1, 1), ms(2025, 1, 10))]
    return [(ms(2024, 3, 8), ms(2024, 4, 10)), (ms(2024, 10, 4), ms(2024, 11, 6))]


def ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ZONES)
def test_never_fewer_windows_than_a_period_can_touch(zone: str) -> None:
    calendars = {(text, where): Calendar(Width.parse(text), where) for text in SHORT + LONG for where in {zone, "UTC"}}
    for inner, outer in itertools.product(SHORT + LONG, SHORT + LONG):
        for other in {zone, "UTC"}:
            window, period = calendars[inner, zone], calendars[outer, other]
            found, claimed = most_by_trying(window, period, spans_of(inner, outer)), most_windows(window, period)
            assert found <= claimed, (inner, outer, zone, other)
            divides = window.width.unit == period.width.unit and period.width.count % window.width.count == 0
            by_day = window.width.unit == "minute" and period.width.unit == "day"
            if zone == other == "UTC" and (divides or by_day):
                assert found == claimed, (inner, outer)


def test_the_longest_day_of_a_zone() -> None:
    assert budget.longest_day_ms("UTC") == DAY
    assert budget.longest_day_ms("Europe/Berlin") == 25 * HOUR
    assert budget.longest_day_ms("Antarctica/Troll") == 26 * HOUR


# What was published.


def record(name: str, start: int, length: int, number: int, epsilon: str = "1/3", revision: int = 0) -> Record:
    layer = LayerEntry(number.to_bytes(16, "big"), "randomized-response", F(epsilon))
    ledger = Ledger.create("item", 1, layer, Promise("histogram", F(epsilon))).charge_publication()
    return Record(name, revision, (start, start + length), 0, (), ledger)


def per_day(epsilon: str) -> budget.Budget:
    return budget.Budget(F(epsilon), Calendar(Width.parse("1d")))


def test_the_ledger_finds_the_worst_period() -> None:
    records = [record("hourly", hour * HOUR, HOUR, hour) for hour in range(6, 72)]
    records += [record("week", -3 * DAY, 7 * DAY, 1000, "1/2")]
    found = Deployment.from_records(records, budget=per_day("9"))
    assert found.period() == (F(5, 6), 24 * F(1, 3) + F(1, 2))
    assert "privacy.budget is 9 per 1d; in one period one event lost at most 5/6, one item at most 17/2" in str(found)
    assert "ABOVE" not in str(found)
    assert found.to_dict()["budget"] == {"limit": "9 per 1d", "event": "5/6", "item": "17/2", "kept": True}
    again = [record("hourly", (24 + hour) * HOUR, HOUR, 2000 + hour, revision=1) for hour in range(3)]
    over = Deployment.from_records([*records, *again], budget=per_day("9"))
    assert over.period()[1] == F(19, 2)
    assert str(over).count("ABOVE THE BUDGET") == 1
    assert over.to_dict()["budget"]["kept"] is False


def test_a_period_is_not_counted_again_beyond_the_budget() -> None:
    config = parse(day("12"), sketch("hourly", "1h", "1/3"))
    specs = [initial_ledger(plan.spec) for plan in config.sketches]
    records = [record("hourly", hour * HOUR, HOUR, hour) for hour in range(24)]
    found = Deployment.from_records(records[:12], budget=config.budget)
    found.require_room(specs, config.items_in_a_period())
    found = Deployment.from_records(records, budget=config.budget)
    with pytest.raises(BudgetError, match=r"items have lost up to 8 in one period .* would lose 8 more") as caught:
        found.require_room(specs, config.items_in_a_period())
    assert (caught.value.spent, caught.value.asked, caught.value.limit) == (F(8), F(8), F(12))
