"""Windows that a changed configuration makes longer, shorter or overlapping: no event twice, no false `complete`.

In: a driver whose partitions are at different times when the configuration changes. Out: nothing. Touches: memory only.

At epsilon 50 noise is nearly always zero, so published counts are compared with what was sent.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from helpers.configurations import EVENTS_TOPIC
from helpers.streams import MINUTE
from sketchstream.query.sealed import SealedWindow
from sketchstream.testing.driver import Driver

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10", "ignore:.*NO PRIVACY")
START = 1_704_067_200_000
CONFIG = f"""{EVENTS_TOPIC}lateness = "2m"
idle = "40m"
idle_topic = "40m"
quorum = 1
quorum_time = "10s"
[[sketch]]
name = "a"
unit = "event"
epsilon = 50
publish = "state"
intrusion = true
domain = {{ size = 40 }}
"""
CHANGES = {
    "wider": ('window = "30m"', 'window = "2h"'),
    "narrower": ('window = "2h"', 'window = "30m"'),
    "zone": ('window = "1h"', 'window = "1h"\ntimezone = "Asia/Kathmandu"'),
    "hopping": ('window = "1h"', 'window = "1h"\nevery = "15m"'),
    "tumbling": ('window = "1h"\nevery = "15m"', 'window = "1h"'),
    "other hops": ('window = "1h"\nevery = "30m"', 'window = "2h"\nevery = "20m"'),
}


class Played:
    """A deployment whose configuration changes after 100 minutes.

    Args:
        change: change of `CHANGES`.
        partitions: partitions of the input; each is half an hour behind the one before.
        silent: whether nothing comes for an hour before the change, so that all windows are sealed.
    """

    def __init__(self, change: str, partitions: int, *, silent: bool) -> None:
        before, after = CHANGES[change]
        self.partitions = partitions
        self.times: list[int] = []
        self.driver = Driver(CONFIG + before, partitions=partitions, now=START)
        self.homes: dict[int, int] = {}
        for user in range(40):
            self.homes.setdefault(self.driver._partition({"user": user}, None, None), user)
        self.send(0, 100)
        if silent:
            self.driver.advance(minutes=75)
        self.driver.change(CONFIG + after)
        self.send(180 if silent else 100, 300)
        for minute in (40, 70):
            self.late(minute)
        self.send(300, 420)
        self.driver.advance(hours=5)

    def send(self, first: int, last: int) -> None:
        """One record in five minutes and partition."""
        for minute in range(first, last):
            self.driver.clock.advance(max(0.0, START + minute * MINUTE - self.driver.clock.now_ms()) / 1000)
            for at in range(minute, minute - 30 * self.partitions, -30):
                if at >= 0 and minute % 5 == 0:
                    self.late(at, (minute - at) // 30)
            self.driver.run(20)

    def late(self, minute: int, partition: int = 0) -> None:
        at = START + minute * MINUTE
        self.times.append(at)
        self.driver.send({"user": self.homes[partition], "ts": at}, timestamp=at)

    @property
    def windows(self) -> list[tuple[SealedWindow, int, int]]:
        """Windows, how many events each has, and how many there were."""
        return [
            (
                one,
                sum(int(part.state.sum()) for part in one.parts),
                sum(one.window[0] <= at < one.window[1] for at in self.times),
            )
            for one in self.driver.windows("a")
        ]


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_no_window_around_a_change_of_windows_is_complete_and_lacks_events(
    change: str, partitions: int, silent: bool
) -> None:
    played = Played(change, partitions, silent=silent)
    found = [(one.window, told, true) for one, told, true in played.windows if one.complete and told != true]
    assert found == []
    assert all(told <= true for _, told, true in played.windows)
    for partition in range(partitions if change in ("wider", "narrower", "zone") else 0):
        spans = [one.window for one, *_ in played.windows for part in one.parts if part.origin.partition == partition]
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    verdicts = {one.window[1]: one.complete for one, _, _ in played.windows}
    assert verdicts[START + 360 * MINUTE if change != "zone" else START + 375 * MINUTE] is True
    if partitions == 1:
        assert all(one.complete or told < true for one, told, true in played.windows)


def test_a_late_record_of_a_former_width_is_counted_for_its_own_window() -> None:
    played = Played("narrower", 1, silent=False)
    verdicts = {one.window: one.complete for one, _, _ in played.windows}
    assert verdicts[START, START + 120 * MINUTE] is False


def verdicts(driver: Driver) -> dict[int, bool | None]:
    """`complete` of the windows of "a" by the hour."""
    return {(one.window[0] - START) // (60 * MINUTE): one.complete for one in driver.windows("a")}


def fed(driver: Driver, first: int, last: int) -> None:
    """One record in five minutes."""
    for minute in range(first, last, 5):
        driver.clock.advance(300)
        driver.send({"user": 1, "ts": START + minute * MINUTE}, timestamp=START + minute * MINUTE)
        driver.run(20)


@pytest.mark.parametrize(
    "after", ["epsilon = 40", "epsilon = 40\nepsilon_refused = 30", "publish", 'name = "b"', 'name = "b"\nback']
)
def test_windows_stay_complete_when_a_sketch_is_changed_or_renamed_until_a_late_record_comes(after: str) -> None:
    text = CONFIG + 'window = "1h"'
    driver = Driver(text, now=START)
    fed(driver, 0, 130)
    assert verdicts(driver) == {0: True, 1: True}
    other = text.replace("epsilon = 50", after) if after.startswith("epsilon") else text
    other = other.replace('name = "a"', 'name = "b"') if after.startswith("name") else other
    other = other.replace('publish = "state"\nintrusion = true\n', "") if after == "publish" else other
    driver.change(other)
    fed(driver, 130, 190)
    if after.endswith("back"):
        driver.change(text)
    assert verdicts(driver) == {0: True, 1: True, 2: True}
    driver.send({"user": 1, "ts": START + 70 * MINUTE}, timestamp=START + 70 * MINUTE)
    driver.run(20)
    fed(driver, 190, 400)
    assert {hour: verdicts(driver)[hour] for hour in range(3)} == {0: True, 1: False, 2: True}
