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
        change: of `CHANGES`.
        partitions: of the input; each is half an hour behind the one before.
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
