"""Deployments at random: a configuration, and producers, partitions and workers with or without something wrong.

In: a seed, or a description. Out: sealed windows, and what is true of each. Touches: memory only.

At epsilon 30 noise is nearly always zero, so an interval that excludes the truth shows records that are missing.
"""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from sketchstream.errors import DataLossError
from sketchstream.items.arrays import Items
from sketchstream.query.sealed import SealedWindow
from sketchstream.spec import NoPrivacyWarning
from sketchstream.stream.input.partitioner import Partitioner, belongs
from sketchstream.testing.driver import Driver

MINUTE = 60_000
HOUR = 60 * MINUTE
START = 1_704_067_200_000
Trouble = Literal[
    "none", "silence", "fast", "slow", "early", "late", "middle", "growth", "kills", "delayed", "unreadable"
]
TROUBLES: tuple[Trouble, ...] = (
    "none", "silence", "fast", "slow", "early", "late", "middle", "growth", "kills", "delayed", "unreadable",
)  # fmt: skip
HARMLESS = ("none", "kills")
GROUPS = ("north", "south", "east")

CONFIG = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "reach"
[input]
topic = "events"
item = "user"
item_type = "int"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
{input}
[[sketch]]
name = "hourly"
window = "1h"
epsilon = 30
domain = {{ size = {size} }}
{sketch}
"""


@dataclass(frozen=True)
class Deployment:
    """What happens in five hours of event time, and what is counted.

    Args:
        seed: seed of the records.
        trouble: what goes wrong.
        unit: unit of privacy.
        grouped: whether the sketch has groups.
        filtered: whether the sketch counts only some records.
        partitions: partitions of the input.
        per_hour: records an hour.
        share: share of the records, producers or time that the trouble touches.
        minutes: how long the trouble lasts, or how wrong clocks are.
        input: further lines of `[input]`.
        hours: hours of records.
    """

    seed: int
    trouble: Trouble = "none"
    unit: str = "event"
    grouped: bool = False
    filtered: bool = False
    partitions: int = 4
    per_hour: int = 1200
    share: float = 0.25
    minutes: float = 60.0
    input: str = ""
    hours: int = 5

    @classmethod
    def at_random(cls, seed: int) -> Deployment:
        """A deployment of any kind; every third one has nothing wrong."""
        rng = np.random.default_rng(seed)
        trouble = TROUBLES[int(rng.integers(len(TROUBLES)))] if seed % 3 else HARMLESS[seed // 3 % 2]
        return cls(
            seed,
            trouble,
            unit=("event", "item")[int(rng.integers(2))],
            grouped=bool(rng.random() < 0.3),
            filtered=bool(rng.random() < 0.3),
            partitions=int(rng.choice([1, 2, 4])),
            per_hour=int(rng.choice([900, 1500, 2400])),
            share=float(rng.choice([0.1, 0.25, 0.5])),
            minutes=float(rng.choice([15.0, 45.0, 90.0, 150.0])),
            input=str(rng.choice(["", 'idle = "1m"', 'idle = "5m"\nlateness = "2m"', "quorum = 3"])),
        )

    @property
    def text(self) -> str:
        """Its configuration file."""
        lines = [f'unit = "{self.unit}"'] + (["modulus = 64"] if self.unit == "item" else [])
        if self.grouped:
            lines += ['group_by = "region"', "groups = " + str(list(GROUPS)).replace("'", '"')]
            lines += ["group_of_item = true"] if self.unit == "item" else []
        if self.filtered:
            lines += ['where = { kind = ["a"] }']
        return CONFIG.format(input=self.input, size=2 * self.per_hour, sketch="\n".join(lines))


@lru_cache(maxsize=64)
def homes(size: int, partitioner: Partitioner, partitions: int) -> np.ndarray:
    """(size,) the partition of each item."""
    items = Items.of(np.arange(size, dtype=np.int64))
    return np.argmax([belongs(items, partitioner, [partitions], one) for one in range(partitions)], axis=0)


@dataclass
class Played:
    """A deployment that was played.

    Args:
        driver: with all that it published.
        truth: by window start: the number of times that each (group, item) should have been counted.
        disturbed: starts of the windows that something may have disturbed.
    """

    driver: Driver
    truth: dict[int, Counter[tuple[str, int]]]
    disturbed: frozenset[int]

    def windows(self) -> list[SealedWindow]:
        """What was published, each group for itself."""
        return [one for window in self.driver.windows("hourly") for one in window.each_group()]

    def lies(self) -> list[str]:
        """Windows that say that they are complete, and whose number of items has an interval without the truth."""
        found = []
        for window in self.windows():
            if window.complete is not True:
                continue
            counts = self.truth[window.window[0]]
            true = len({item for group, item in counts if window.group in (None, group)})
            told = window.result().profile().distinct
            if not told.low - 1.0 <= true <= told.high + 1.0:
                found.append(f"{window.window[0]} {window.group}: {told.low:.0f} to {told.high:.0f}, not {true}")
        return found

    def judged(self) -> list[bool | None]:
        """`complete` of the windows that nothing disturbed."""
        return [one.complete for one in self.driver.windows("hourly") if one.window[0] not in self.disturbed]


def play(given: Deployment) -> Played:
    """Send the records of a deployment in the order of their arrival, and let the worker keep up with the clock."""
    rng = np.random.default_rng([given.seed, 1])
    size, n = 2 * given.per_hour, given.per_hour * given.hours
    times = np.sort(START + rng.integers(0, given.hours * HOUR, n))
    items = rng.integers(0, size, n)
    arrivals, stamps, events = times.copy(), times.copy(), times.copy()
    where = homes(size, "murmur2", given.partitions)[items].copy()
    producers = items % 97 < 97 * given.share
    span, middle = given.minutes * MINUTE, START + given.hours * HOUR // 2
    touched = np.zeros(n, np.bool_)
    wrong = homes(size, "consistent", given.partitions)[items]
    unreadable = np.zeros(n, np.bool_)
    if given.trouble == "silence":
        dark = where == int(rng.integers(given.partitions))
        touched = dark & (times >= middle) & (times < middle + span)
        arrivals[touched] = int(middle + span)
    elif given.trouble in ("fast", "slow"):
        touched = producers
        events[producers] += int(span if given.trouble == "fast" else -span)
        stamps[producers] = events[producers]
    elif given.trouble == "early":
        touched = times < START + span
        where[touched] = wrong[touched]
    elif given.trouble in ("late", "middle"):
        touched = times >= (middle if given.trouble == "late" else middle - span // 2)
        touched &= (times < middle + span // 2) | (given.trouble == "late")
        touched &= producers | (given.trouble == "late")
        where[touched] = wrong[touched]
    elif given.trouble == "growth":
        touched = times >= middle
        where[touched] = homes(size, "murmur2", 2 * given.partitions)[items][touched]
    elif given.trouble == "delayed":
        touched = producers & (times >= middle) & (times < middle + span)
        arrivals[touched] += int(span)
    elif given.trouble == "unreadable":
        touched = unreadable = producers & (times >= middle) & (times < middle + span)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        driver = Driver(given.text, partitions=given.partitions, now=START)
    groups, kinds = np.array(GROUPS)[items % len(GROUPS)], np.where(rng.random(n) < 0.6, "a", "b")
    truth: dict[int, Counter[tuple[str, int]]] = {}
    halted, grown, now = False, False, START
    step = next((MINUTE // more for text, more in (('"20s"', 6), ('"1m"', 2)) if text in given.input), MINUTE)
    order = np.argsort(arrivals, kind="stable")
    kills = sorted(rng.integers(START, START + given.hours * HOUR, 4).tolist()) if given.trouble == "kills" else []
    for at in order.tolist():
        while now < arrivals[at]:
            now += step
            driver.clock.advance(step / 1000)
            try:
                driver.run()
            except DataLossError:  # most records of a chunk are in the future, and no broker confirms the clock
                halted = True
                break
            if kills and now > kills[0]:
                kills.pop(0)
                driver.kill()
                driver.run()
        if halted:
            break
        if given.trouble == "growth" and touched[at] and not grown:
            driver.run()
            driver.add_partitions(2 * given.partitions)
            grown = True
        value = {"user": int(items[at]), "region": str(groups[at]), "kind": str(kinds[at]), "ts": int(events[at])}
        if unreadable[at]:
            value["ts"] = "yesterday"
        driver.send(value, timestamp=int(stamps[at]), partition=int(where[at]))
        if not given.filtered or kinds[at] == "a":
            start = int(events[at]) // HOUR * HOUR
            truth.setdefault(start, Counter())[str(groups[at]), int(items[at])] += 1
    with suppress(DataLossError):
        driver.advance(hours=6 + 2 * given.minutes / 60)
    moved = touched | (events != times)
    disturbed = {int(one) // HOUR * HOUR for one in (*events[moved], *times[moved], *arrivals[moved])}
    if given.trouble == "growth":
        disturbed |= {int(middle) // HOUR * HOUR + more * HOUR for more in (-1, 0, 1)}
    return Played(driver, truth, frozenset(disturbed))


def with_trouble(trouble: Trouble, **more: object) -> Deployment:
    """A deployment with one trouble and the default size."""
    return replace(Deployment(1, trouble), **more)  # type: ignore[arg-type]
