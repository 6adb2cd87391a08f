"""A worker over ports in memory: what is sent to it, and what came out. By default it has two sketches.

In: a configuration, events. Out: drivers, exact counts, published windows. Touches: nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from helpers.configurations import EVENTS_TOPIC
from helpers.streams import EPOCH, exact
from sketchstream.config.loader import Config
from sketchstream.items.key import Key
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.testing.driver import Driver
from sketchstream.testing.memory import MemorySealed

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
unit = "event"
window = "1m"
epsilon = 30
domain = { size = 40 }
[[sketch]]
name = "hours"
unit = "event"
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


def run_and_perhaps_kill(d: Driver, rng: random.Random) -> None:
    """Read what was sent; in most cases snapshot it, and in most cases kill the worker."""
    d.run()
    if rng.random() < 0.7:
        d.snapshot()
    if rng.random() < 0.7:
        d.kill()


def close_all(d: Driver) -> None:
    """Read what was sent, and let half a day pass, so that all windows close."""
    d.run()
    d.advance(hours=12)
    d.run()


def truth(records: list[tuple[int, int]], width: int) -> dict[int, Counter[int]]:
    """Occurrences by item, for each window of a width (ms)."""
    out: dict[int, Counter[int]] = {}
    for item, at in records:
        out.setdefault(at // width * width, Counter())[item] += 1
    return out


def counts(d: Driver, sketch: str, k: int) -> dict[int, int]:
    """Items that occurred at least k times, for each published window."""
    return {w.window[0]: sum(exact(part, k) for part in w.parts) for w in d.windows(sketch)}


def published_windows(
    text: str, records: Sequence[dict[str, Any]], key: Key, *, kill_every: int = 0, partitions: int = 2
) -> PublishedWindows:
    """Everything that a worker publishes of some records, as queries read it.

    Args:
        text: a configuration.
        records: records of the first three hours of 2024, in the order in which they are sent.
        key: the hash key.
        kill_every: kill the worker after every so many records, every second time without a snapshot of the last ones;
            0: never.
        partitions: partitions of the topic.
    """
    driver = Driver(text, partitions=partitions, now="2024-01-01T03:00:00Z", key=key)
    for number, record in enumerate(records):
        driver.send(record)
        if kill_every and number % kill_every == kill_every - 1:
            driver.run()
            if number % (2 * kill_every) == kill_every - 1:
                driver.snapshot()
            driver.kill()
    driver.run()
    driver.advance(hours=12)
    driver.run()
    source = MemorySealed(driver.publisher)
    return PublishedWindows(driver.config, SealedReader(source), source)
