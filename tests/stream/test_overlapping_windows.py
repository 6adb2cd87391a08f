"""Hopping windows: each record is counted in every window that holds its time, and pays in as many.

In: made-up streams, configurations. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.configurations import KEYED_TOPIC
from helpers.streams import EPOCH, HOUR, MINUTE, Stream, at_least, exact, published, rules, spec, stream
from helpers.watermark_reference import Reference
from sketchstream.config import resources
from sketchstream.config.budget import PlannedLoss, event_losses, item_losses, most_windows
from sketchstream.config.context import context
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, MergeError
from sketchstream.items.key import Key
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.profile.statement import statement
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.privacy.deployments.surroundings import Context, windows_of
from sketchstream.published import Release
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.spec import ClosedDomain
from sketchstream.stream.interfaces import Restored
from sketchstream.stream.kernels import ADMITTED
from sketchstream.stream.state.checkpoint import capture, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.windows.calendar import DAY_MS, LATEST_MS, Calendar, Width
from sketchstream.stream.windows.calendar import hopping as steps_of
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.quorum import MAXIMUM, Quorum
from sketchstream.testing.driver import Driver
from sketchstream.testing.memory import MemorySealed

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
F = Fraction
STEPS = 4
HEAD = """
[input]
file = "events.jsonl"
item = "user"
time = "ts"
[key]
file = "k"
"""
BLOCK = """
[[sketch]]
name = "reach"
unit = "event"
epsilon = "1/7"
domain = { slots = 1024, levels = 4 }
"""


def hopping(
    made: ProfileSpec | None = None, *, every: str = "1m", steps: int = STEPS, zone: str = "UTC", stride: int = 1
) -> SketchPlan:
    return SketchPlan("hops", made or spec(), Calendar(Width.parse(every), zone), steps, stride=stride)


def parse(lines: str, head: str = HEAD, block: str = BLOCK) -> Config:
    return Config.parse(head + block + lines, "/etc/c.toml", {})


def counted(
    s: Stream, size: int = 16, quorum: Quorum = MAXIMUM, *, steps: int = STEPS, stride: int = 1
) -> tuple[dict[int, Counter[int]], int]:
    """Counts by window start, and how many records are late for a window: record by record, window by window."""
    counts: dict[int, Counter[int]] = {}
    mark, n_late = Reference(quorum, MINUTE), 0
    for i in range(len(s)):
        t = int(s.times[i])
        before, verdict = mark.admit(t, int(s.stamps[i]), LATEST_MS)
        if verdict != ADMITTED:
            continue
        late = False
        for hop in range(steps):
            start = (t // MINUTE - hop) * MINUTE
            if start % (stride * MINUTE):
                continue
            if start + steps * MINUTE + MINUTE <= before:
                late = True
                continue
            window = counts.setdefault(start, Counter())
            if s.valid[i] and s.items[i] < size:
                window[int(s.items[i])] += 1
        n_late += late
    return counts, n_late


@pytest.mark.parametrize(
    ("seed", "cuts", "restarted"),
    [(1, [2000], False), (2, [1, 7, 333, 334, 1200, 2000], False), (3, [700, 2000], True)],
)
@pytest.mark.parametrize(("steps", "stride"), [(STEPS, 1), (5, 2), (3, 2)])
def test_every_record_is_in_all_windows_that_hold_its_time(
    seed: int, cuts: list[int], restarted: bool, steps: int, stride: int
) -> None:
    s = stream(seed, 2000)
    common = rules(hopping(steps=steps, stride=stride))
    state = PartitionState.fresh(common, 0, 0, 1)
    found: dict[tuple[str, int], Any] = {}
    n_late = 0
    for begin, end in itertools.pairwise([0, *cuts]):
        n_late += state.apply(s.chunk(begin, end)).late.get("hops", 0)
        if restarted:
            state.store_all()
            whole = capture(state)
            found |= published(state)
            state.published(*state.outbox.captured())
            capture(state)
            state.store_all()
            whole = capture(state)
            state = restore(common, 0, Restored(whole.position, whole.manifest, dict(whole.blobs)), 1)
    state.seal(everything=True)
    capture(state)
    found |= published(state)
    expected, late = counted(s, steps=steps, stride=stride)
    assert {start for _, start in found} == expected.keys()
    for (_, start), one in found.items():
        assert one.origin.window == (start, start + steps * MINUTE)
        for k in (1, 2, 5):
            assert exact(one, k) == at_least(expected[start], k)
    assert n_late == late, "a record that is late for several windows is one late record"


def test_so_many_windows_are_open_as_overlap_and_as_were_planned() -> None:
    plan = hopping()
    state = PartitionState.fresh(rules(plan), 0, 0, 1)
    n, most = 600, 0
    times = EPOCH + np.arange(n, dtype=np.int64) * 5000
    s = Stream(np.zeros(n, np.int64), times, times, np.ones(n, bool), np.zeros(n, bool))
    for at in range(0, n, 10):
        state.apply(s.chunk(at, at + 10))
        most = max(most, state.open_windows)
    assert STEPS < most <= plan.open_windows(MINUTE)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    ("width", "every"), [("7d", "1d"), ("1d", "1h"), ("28d", "1w"), ("1y", "1mo"), ("1d", "6h"), ("30m", "10m")]
)
def test_each_time_lies_in_as_many_windows_as_overlap(width: str, every: str, zone: str) -> None:
    calendar, steps, stride = steps_of(width, every, zone)
    plan = SketchPlan("hops", spec(), calendar, steps)
    assert stride == 1
    assert (calendar.width, plan.overlap, plan.starts) == (Width.parse(every), steps, calendar)
    rng = np.random.default_rng(5)
    for t in rng.integers(EPOCH - 200 * DAY_MS, EPOCH + 400 * DAY_MS, 40).tolist():
        start = plan.calendar.window(t)[0]
        found = plan.holding(start)
        assert len(set(found)) == steps
        assert found == sorted(found)
        assert all(begin <= t < end and plan.has_window((begin, end)) for begin, end in found)
        assert found[0][1] == plan.calendar.end(start), "the first of them ends with the step"
        assert plan.last_end(t) == found[-1][1]
        assert not plan.has_window((found[0][0], found[0][1] + 1))
        assert not plan.has_window((found[0][0] + 1, found[0][1]))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia"])
@pytest.mark.parametrize(
    ("width", "every", "step", "most"),
    [
        ("7d", "2d", "1d", 4),
        ("10d", "4d", "2d", 3),
        ("12h", "8h", "4h", 2),
        ("90m", "1h", "30m", 2),
        ("3h", "2h", "1h", 2),
        ("3mo", "2mo", "1mo", 2),
        ("1w", "5d", "1d", 2),
    ],
)
def test_windows_that_every_does_not_divide_begin_where_it_says(
    width: str, every: str, step: str, most: int, zone: str
) -> None:
    """Against windows that are listed one by one: where windows of that length would begin, each as long as it is."""
    if width[-1] in "hm" and zone != "UTC":
        zone = "Asia/Kolkata"  # clocks do not change there, and days begin at half past an hour
    calendar, steps, stride = steps_of(width, every, zone)
    plan = SketchPlan("hops", spec(), calendar, steps, stride=stride)
    assert (str(calendar.width), plan.overlap) == (str(Width.parse(step)), most)
    assert plan.window == f"{Width.parse(width)} every {Width.parse(every)}"
    starts = Calendar(Width.parse(every), zone)
    rng = np.random.default_rng(6)
    times = rng.integers(EPOCH - 200 * DAY_MS, EPOCH + 400 * DAY_MS, 30).tolist()
    # 31 March 2024, an hour less; 30 December 2011, a day less
    change = 1_325_239_200_000 if zone == "Pacific/Apia" else 1_711_846_800_000
    held = set()
    for t in [*times, *(change + k * 8 * HOUR for k in range(-30, 31))]:
        expected = []
        start = starts.window(t)[0]
        for _ in range(most):
            end = start
            for _ in range(steps):
                end = calendar.end(end)
            if start <= t < end:
                expected.append((start, end))
            start = starts.before(start)
        found = plan.holding(calendar.window(t)[0])
        assert found == sorted(expected)
        assert all(plan.has_window(window) for window in found)
        assert plan.last_end(t) == found[-1][1]
        held.add(len(found))
    assert max(held) == most
    assert min(held) >= most - 1


def test_the_engine_sends_a_plan_of_one_step_the_way_of_tumbling_windows() -> None:
    one, plain = hopping(steps=1), SketchPlan("hops", spec(), Calendar(Width.parse("1m")))
    assert one.holding(EPOCH) == plain.holding(EPOCH) == [(EPOCH, EPOCH + MINUTE)]
    assert one.window == plain.window == "1m"
    assert not PartitionState.fresh(rules(one), 0, 0, 1).sketch_states["hops"].overlapping


def minutes(first: int, last: int) -> Stream:
    times = EPOCH + np.arange(last, dtype=np.int64) * MINUTE
    n = last
    return Stream(np.zeros(n, np.int64), times, times, np.ones(n, bool), np.zeros(n, bool))


def changed(before: SketchPlan, after: SketchPlan, at: int, until: int) -> list[tuple[int, int, int]]:
    """Windows in minutes and their numbers of events, where the plan changes after `at` minutes."""
    s = minutes(0, until)
    state = PartitionState.fresh(rules(before, fingerprint=b"a"), 0, 0, 1)
    state.apply(s.chunk(0, at))
    capture(state)
    found = published(state)
    state.published(*state.outbox.captured())
    state.store_all()
    whole = capture(state)
    state = restore(rules(after, fingerprint=b"b"), 0, Restored(whole.position, whole.manifest, dict(whole.blobs)), 1)
    cut = at + 2
    state.apply(s.chunk(at, cut))
    state.store_all()
    whole = capture(state)
    found |= published(state)
    state.published(*state.outbox.captured())
    state.store_all()
    whole = capture(state)
    state = restore(rules(after, fingerprint=b"b"), 0, Restored(whole.position, whole.manifest, dict(whole.blobs)), 1)
    state.apply(s.chunk(cut, until))
    state.seal(everything=True)
    capture(state)
    found |= published(state)
    out = []
    for one in found.values():
        begin, end = ((edge - EPOCH) // MINUTE for edge in one.origin.window)
        number = next(k for k in range(40, -1, -1) if k == 0 or exact(one, k))
        out.append((begin, end, number))
    return sorted(out)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (hopping(steps=1, every="6m"), hopping()),
        (hopping(), hopping(steps=1, every="6m")),
        (hopping(), hopping(steps=3)),
        (hopping(steps=3, every="2m"), hopping(steps=2, every="3m")),
        (hopping(steps=5, stride=2), hopping(steps=3, stride=2)),
        (hopping(), hopping(steps=5, stride=3)),
    ],
)
def test_windows_of_a_changed_plan_hold_all_records_of_their_time(before: SketchPlan, after: SketchPlan) -> None:
    """Open windows finish as they are; those of the new plan begin behind them, and no event is in more of them."""
    found = changed(before, after, 13, 60)
    for begin, end, number in found:
        assert number == min(end, 60) - max(begin, 0), (begin, end)
    held = [sum(begin <= t < end for begin, end, _ in found) for t in range(60)]
    assert max(held) <= max(before.overlap, after.overlap)
    assert held[40:] == [len(after.holding(EPOCH + t * MINUTE)) for t in range(40, 60)]


# Configuration.


def test_several_lengths_in_one_block_are_several_series() -> None:
    config = parse('windows = ["1h", "1d", "1w", "28d"]\ntimezone = "Europe/Madrid"\nquality = { warn = 0.3 }')
    assert [plan.name for plan in config.sketches] == ["reach.1h", "reach.1d", "reach.1w", "reach.28d"]
    assert [plan.window for plan in config.sketches] == ["1h", "1d", "7d", "28d"]
    assert {plan.calendar.timezone for plan in config.sketches} == {"Europe/Madrid"}
    assert len({plan.spec.fingerprint for plan in config.sketches}) == 1
    assert {config.quality_rule(plan.name).warn.share for plan in config.sketches} == {0.3}
    surroundings = context(config, config.plan("reach.1d"))
    assert [one.name for one in surroundings.others] == ["reach.1h", "reach.1w", "reach.28d"]
    said = statement(config.plan("reach.1d").spec, initial_ledger(config.plan("reach.1d").spec), surroundings)
    assert said.total.pure == F(4, 7), "an event lies in one window of each series"
    with pytest.raises(ConfigError, match=r"no sketch is named 'reach' .*reach.1h, reach.1d"):
        config.plan("reach")


def test_a_block_of_hopping_windows_is_one_series() -> None:
    config = parse('window = "7d"\nevery = "1d"')
    (plan,) = config.sketches
    assert (plan.name, plan.window, plan.steps) == ("reach", "7d every 1d", 7)
    assert plan.shortest_ms == 7 * DAY_MS
    assert parse('window = "7d"\nevery = "1w"').sketches[0].steps == 1
    assert len({parse(f'window = "7d"\n{every}').fingerprint for every in ("", 'every = "1d"')}) == 2
    hopping, tumbling = (resources.memory_bytes(parse(f'window = "7d"\n{every}'), 1) for every in ('every = "1d"', ""))
    assert hopping == 3 * tumbling, "9 for 3"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "window is missing"),
        ('window = "1d"\nwindows = ["1d"]', "takes either window or windows, found both"),
        ("windows = []", "at least one length"),
        ('windows = ["1d", "24h"]', "one length twice: '1d' and '24h'"),
        ('windows = ["1d", "1x"]', "found '1x'"),
        ('windows = ["1d"]\nevery = "1h"', "every belongs to one window"),
        ('window = "1d"\nevery = "7h"', "does not divide a day"),
        ('window = "1mo"\nevery = "1d"', "both of months, or both of days and shorter times, found 1mo and 1d"),
        ('window = "1d"\nevery = "1w"', "every must not be longer than the window.* found 1d and 7d"),
        ('window = "28d"\nevery = "1h"', "at most 400 windows, found 672"),
        ('window = "3h"\nevery = "2h"\ntimezone = "Europe/Berlin"', "3h cannot begin every 2h in Europe/Berlin"),
        ('window = "7d"\nevery = 1', "every must be a text"),
    ],
)
def test_windows_that_cannot_be_are_refused(lines: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(lines)


def test_names_of_series_are_unique() -> None:
    with pytest.raises(ConfigError, match=r"two series of windows are named 'reach.1d'"):
        parse('windows = ["1h", "1d"]\n' + BLOCK.replace('"reach"', '"reach.1d"') + 'window = "1d"')


# Losses.


def test_a_planned_event_pays_once_for_each_window_that_holds_it() -> None:
    config = parse(
        'window = "7d"\nevery = "1d"', HEAD + '[privacy]\nmax_epsilon = 1\nbudget = { epsilon="1", per="1d" }'
    )
    plan = config.sketches[0]
    said = statement(plan.spec, initial_ledger(plan.spec), context(config, plan))
    assert (said.published, said.total.pure, said.total_kept.pure) == (F(1, 7), F(1), F(1))
    assert "everything that one window of this sketch publishes: an event loses at most 1/7" in str(said)
    assert "over 7 overlapping windows that hold it: an event loses at most 1" in str(said)
    assert event_losses(config._planned()).pure == 1
    assert config.check_budget() == "an event loses at most 1 of 1 per 1d"
    with pytest.raises(ConfigError, match=r"epsilon 1 \(an event lies in 7 overlapping windows\) is above"):
        parse('window = "7d"\nevery = "1d"', HEAD + "[privacy]\nmax_epsilon = 0.9")
    with pytest.raises(ConfigError, match=r"an event could lose 1 in one period \(reach 7 times 1/7\)"):
        parse('window = "7d"\nevery = "1d"', HEAD + '[privacy]\nbudget = { epsilon="0.9", per="1d" }')
    beside = parse('window = "7d"\nevery = "1d"\n' + BLOCK.replace("reach", "daily") + 'window = "1d"')
    daily = beside.plan("daily")
    assert statement(daily.spec, initial_ledger(daily.spec), context(beside, daily)).total.pure == F(8, 7)


@pytest.mark.parametrize(
    ("width", "every"),
    [
        ("7d", "1d"),
        ("1d", "6h"),
        ("6h", "1h"),
        ("14d", "7d"),
        ("12h", "12h"),
        ("7d", "2d"),
        ("12h", "8h"),
        ("90m", "1h"),
    ],
)
@pytest.mark.parametrize("days", [1, 2, 7, 30])
def test_an_item_pays_in_every_window_that_its_span_touches(width: str, every: str, days: int) -> None:
    """Against windows that are listed one by one, for spans that begin at any hour of two weeks."""
    step, steps, stride = steps_of(width, every)
    plan = SketchPlan("hops", spec(), step, steps, stride=stride)
    calendar = plan.starts
    length, hop = plan.shortest_ms, calendar.shortest_ms
    first = calendar.window(EPOCH)[0]

    def touched(begin: int, end: int) -> int:
        starts = range(first - 40 * length, first + 90 * DAY_MS, hop)
        return sum(start < end and begin < start + length for start in starts)

    aligned = max(touched(first + k * hop, first + k * hop + days * DAY_MS) for k in range(15))
    assert windows_of(length, days * DAY_MS, plan.overlap, hop) == aligned
    if stride == 1:
        assert windows_of(length, days * DAY_MS, plan.overlap) == aligned
    period = Calendar(Width(days, "day"))
    begin, end = period.window(EPOCH)
    periods = max(touched(begin + k * (end - begin), end + k * (end - begin)) for k in range(60 // days))
    # 30 days cut weeks elsewhere each time, and a window that every does not divide may end where the period begins
    assert 0 <= most_windows(calendar, period, plan.overlap) - periods <= (days == 30) + (stride > 1)


@pytest.mark.parametrize("unit", ["event", "item"])
@pytest.mark.parametrize(("steps", "stride"), [(STEPS, 1), (5, 2)])
def test_the_ledger_finds_what_each_event_and_item_lost(unit: str, steps: int, stride: int) -> None:
    """The published windows, added up instant by instant."""
    made = ProfileSpec(
        "1/2", unit=unit, domain=ClosedDomain(size=4), **({"modulus": 8} if unit == "item" else {"max_count": 7})
    )
    plan = hopping(made, steps=steps, stride=stride)
    state = PartitionState.fresh(rules(plan), 0, 0, 1)
    state.apply(minutes(0, 20).chunk(0, 20))
    state.seal(everything=True)
    capture(state)
    parts = [one for one in published(state).values() if isinstance(one, Release)]
    found = Deployment.of(parts)
    instants = [EPOCH + t * MINUTE for t in range(-4, 26)]
    held = [sum(part.origin.window[0] <= t < part.origin.window[1] for part in parts) for t in instants]
    r = plan.overlap
    assert max(held) == r == -(-steps // stride)
    assert found.total().event == r * F(1, 2)
    assert found.total().event_zcdp == r * F(1, 8)
    if unit == "item":
        assert found.total().item == len(parts) * F(1, 2) == (20 // stride + r - 1) * F(1, 2)
        whole = [PlannedLoss(plan.name, plan.starts, initial_ledger(made), r)]
        assert item_losses(whole, Calendar(Width(20, "minute"))).pure == found.total().item
        surroundings = Context(window_ms=steps * MINUTE, published_ms=20 * MINUTE, overlap=r, every_ms=stride * MINUTE)
        assert statement(made, initial_ledger(made), surroundings).total_kept.pure == found.total().item


# Answers.


TOML = (
    KEYED_TOPIC
    + """[[sketch]]
name = "reach"
unit = "event"
window = "4h"
every = "1h"
epsilon = "30"
publish = "state"
intrusion = false
domain = { slots = 512, levels = 1 }
"""
)


def test_answers_list_windows_as_they_are_and_never_merge_those_that_overlap() -> None:
    driver = Driver(TOML, partitions=2, now="2024-01-01T00:00:00Z", key=Key(bytes(16)))
    for hour in range(6):
        for user in range(hour + 1):
            driver.send({"user": f"u{user}", "ts": f"2024-01-01T{hour:02}:00:01Z"})
        driver.run()
        driver.advance(hours=1)
    driver.run()
    driver.advance(hours=12)
    driver.run()
    windows = driver.windows("reach")
    spans = [(window.window[0] // HOUR % 24, (window.window[1] - window.window[0]) // HOUR) for window in windows]
    assert spans == [(hour % 24, 4) for hour in range(-3, 6)]
    assert all(window.complete for window in windows)
    distinct = [round(window.result().profile().distinct.value) for window in windows]
    assert distinct == [min(hour, 5) + 1 for hour in (0, 1, 2, 3, 4, 5, 5, 5, 5)]
    source = MemorySealed(driver.publisher)
    found = PublishedWindows(driver.config, SealedReader(source), source)
    said = found.guarantee(windows[4])
    assert (said["published"], said["total"]) == ("30", "120")
    with pytest.raises(MergeError, match="overlap: --merge would count events more than once"):
        found.merged(windows)
    factor = found.merged([windows[0], windows[4]])[1]
    assert factor is not None
    assert factor >= 1
