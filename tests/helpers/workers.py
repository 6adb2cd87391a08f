"""A worker over ports in memory, with two sketches: what is sent to it, and what came out.

In: a configuration, events. Out: drivers, exact counts. Touches: nothing.
"""

from __future__ import annotations

from collections import Counter

from helpers.configurations import EVENTS_TOPIC
from helpers.streams import EPOCH, exact
from sketchstream.config.loader import Config
from sketchstream.testing.driver import Driver

TEXT = (
    EVENTS_TOPIC
    + """lateness = "1m"
quorum = 1
quorum_time = "1ms"
max_ahead = "8h"
idle = "10m"
[store]
snapshot_every = "1s"
[[sketch]]
name = "minutes"
window = "1m"
epsilon = 30
domain = { size = 40 }
[[sketch]]
name = "hours"
window = "1h"
epsilon = 30
domain = { size = 40 }
"""
)
STATE = TEXT.replace("epsilon = 30", 'epsilon = 1\npublish = "state"\nintrusion = false')


def config(text: str = TEXT) -> Config:
    """The configuration of a text."""
    return Config.parse(text)


def driver(text: str = TEXT, partitions: int = 3, now: int = EPOCH) -> Driver:
    """A worker whose source, store and publisher lie in memory."""
    return Driver(config(text), partitions=partitions, now=now)


def send(d: Driver, item: int, at: int, partition: int | None = None) -> None:
    """Send one event: an item at a time (ms)."""
    d.send({"user": item, "ts": at}, timestamp=at, partition=partition)


def close_windows(d: Driver, at: int) -> None:
    """A later record on each partition."""
    for partition in range(len(d.log.partitions)):
        send(d, 1, at, partition)


def truth(records: list[tuple[int, int]], width: int) -> dict[int, Counter[int]]:
    """Occurrences by item, for each window of a width (ms)."""
    out: dict[int, Counter[int]] = {}
    for item, at in records:
        out.setdefault(at // width * width, Counter())[item] += 1
    return out


def counts(d: Driver, sketch: str, k: int) -> dict[int, int]:
    """Items that occurred at least k times, for each published window."""
    return {w.window[0]: sum(exact(part, k) for part in w.parts) for w in d.windows(sketch)}
