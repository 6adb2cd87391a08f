"""Schedules at random: workers that are killed, moved and configured anew over one stream, compared with what was sent.

In: a seed. Out: windows that say that they are complete and are not, or that hold more than there was. Touches: memory
only.

At epsilon 50 noise is nearly always zero, and sketches publish their states, so counts are compared as they are.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from helpers.configurations import EVENTS_TOPIC
from helpers.deployments import HOUR, MINUTE, START, homes
from sketchstream.config.loader import Config
from sketchstream.errors import StoreError
from sketchstream.query.sealed import SealedReader, SealedWindow
from sketchstream.spec import NoPrivacyWarning
from sketchstream.stream.worker.worker import Worker
from sketchstream.testing.memory import (
    ManualClock,
    MemoryLog,
    MemoryPublisher,
    MemorySealed,
    MemorySink,
    MemorySnapshots,
    MemorySource,
    MemoryStore,
)
from sketchstream_connectors.factory import decoder_of, rules, settings

ITEMS = 40
ACTIONS = ("kill", "kill", "stop", "change", "change", "change", "rolling", "rolling", "publisher", "dark")


@dataclass(frozen=True)
class Sketch:
    """One block of the configuration."""

    name: str
    window: str = "1h"
    every: str = ""
    epsilon: int = 50
    timezone: str = "UTC"
    size: int = ITEMS

    @property
    def text(self) -> str:
        """Its lines."""
        lines = [f"{one} = {json.dumps(getattr(self, one))}" for one in ("name", "window", "epsilon", "timezone")]
        lines += [f'every = "{self.every}"'] if self.every else []
        lines += ['unit = "event"', 'publish = "state"', "intrusion = true", f"domain = {{ size = {self.size} }}"]
        return "\n".join(["[[sketch]]", *lines, ""])


@dataclass
class Schedule:
    """What happens in four hours to the workers of a topic, and what they publish.

    Args:
        seed: seed of everything.
    """

    seed: int
    sent: list[int] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self._rng = np.random.default_rng([self.seed, 7])
        self._input = {
            "lateness": str(rng.choice(["0s", "2m", "10m"])),
            "idle": str(rng.choice(["1m", "10m"])),
            "idle_topic": str(rng.choice(["10m", "1h"])),
            "max_ahead": "30m",
            "quorum_time": str(rng.choice(["10s", "150s"])),
        }
        self._quorum = int(rng.choice([1, 3, 10]))
        self._sketches = [Sketch("a"), Sketch("b", str(rng.choice(["15m", "30m"]))), Sketch("c", every="20m")]
        self._clock, self._log = ManualClock(START), MemoryLog(int(rng.integers(1, 4)))
        self._saved, self._publisher = MemorySnapshots({}, {}, {}), MemoryPublisher()
        self._dark: dict[int, int] = {}
        self._workers: list[Worker] = []
        self._start()

    def _worker(self, owned: list[int]) -> Worker:
        lines = [f'{name} = "{value}"' for name, value in self._input.items()] + [f"quorum = {self._quorum}"]
        text = "\n".join([EVENTS_TOPIC, *lines, *(one.text for one in self._sketches)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoPrivacyWarning)
            config = Config.parse(text)
            common = rules(config)
        given = replace(settings(config), publish_every_s=0.0, threads=0, give_up_after=None, snapshot_bytes_per_s=1e15)
        source = MemorySource(self._log, decoder_of(config), owned, chunk=int(self._rng.choice([7, 1000])))
        store = MemoryStore(self._saved)
        return Worker(common, source, store, self._publisher, settings=given, sink=MemorySink(), clock=self._clock)

    def _start(self) -> None:
        """Begin with new workers, of which each has some partitions."""
        of = len(self._log.partitions)
        owners = self._rng.integers(0, of, of)
        owned = [[p for p in range(of) if owners[p] == one] for one in range(of)]
        self._workers = [self._worker(one) for one in owned if one]

    def _run(self, steps: int = 60) -> None:
        before: Any = None
        for _ in range(steps):
            for one in self._workers:
                one.step(0.0)
            places = [(p.status, p.position) for one in self._workers for p in one.gauges().partitions]
            after = places, len(self._publisher.log), [one.metrics.counters["snapshots"] for one in self._workers]
            if after == before:
                return
            before = after

    def _change(self) -> None:
        """Another configuration: one sketch is changed, renamed, removed or added, or the lateness is changed."""
        rng, at = self._rng, int(self._rng.integers(len(self._sketches)))
        one = self._sketches[at]
        choices = {
            "epsilon": {"epsilon": int(rng.choice([46, 48, 50]))},
            "size": {"size": ITEMS + int(rng.choice([0, 8]))},
            "width": {"window": str(rng.choice(["1h", "2h"] if one.every else ["30m", "1h", "2h"]))},
            "zone": {} if one.every else {"timezone": str(rng.choice(["UTC", "Asia/Kathmandu"]))},
            "hops": {"every": "" if one.every else "15m", "window": "1h", "timezone": "UTC"},
            "rename": {"name": f"n{len(self.done)}"},
        }
        what = str(rng.choice([*choices, "remove", "add", "lateness"]))
        if what in choices:
            self._sketches[at] = replace(one, **choices[what])  # type: ignore[arg-type]
        elif what == "remove" and len(self._sketches) > 1:
            del self._sketches[at]
        elif what == "add":
            names = {"a", "b", "c", "d"} - {one.name for one in self._sketches}
            self._sketches += [Sketch(min(names), "30m")] if names else []
        else:
            self._input["lateness"] = str(rng.choice(["0s", "2m", "10m"]))
        self.done.append(f"{what} {one.name}")

    def _act(self, minute: int) -> None:
        """Do one thing to the workers."""
        action = str(self._rng.choice(ACTIONS))
        self.done.append(f"{minute}: {action}")
        if action == "publisher":
            self._publisher.fail = None if self._publisher.fail else StoreError("away")
        elif action == "dark":
            self._dark[int(self._rng.integers(len(self._log.partitions)))] = minute + int(self._rng.choice([3, 90]))
        elif action == "rolling":
            self._change()
            for number, one in enumerate(self._workers):
                one.finish()
                self._workers[number] = self._worker(one._source.owned)  # type: ignore[attr-defined]
                self._run(3)
        else:
            if action == "kill":  # before anything, or between a commit and what follows it
                self._run(int(self._rng.integers(3)))
            if action == "stop" or (action == "change" and self._rng.random() < 0.7):
                for one in self._workers:
                    one.finish()
            if action == "change":
                self._change()
            self._start()

    def play(self, minutes: int = 240) -> None:
        """Send four records a minute, of which a few are late, and act now and then; then let all windows close."""
        rng, waiting, quiet = self._rng, {p: [] for p in range(len(self._log.partitions))}, 0  # type: ignore[var-annotated]
        where = homes(ITEMS, "murmur2", len(waiting))
        for minute in range(minutes):
            self._clock.advance(60)
            quiet = minute + int(rng.choice([20, 90])) if minute >= quiet and rng.random() < 0.006 else quiet
            for _ in range(int(rng.poisson(4.0)) if minute >= quiet else 0):
                late = rng.choice([MINUTE, 20 * MINUTE, 3 * HOUR], p=[0.97, 0.025, 0.005])
                at, item = self._clock.now_ms() - 1 - int(rng.integers(late)), int(rng.integers(ITEMS))
                waiting[where[item]].append((at, item))
            for partition, records in waiting.items():
                if minute >= self._dark.get(partition, 0) or minute == minutes - 1:
                    for at, item in records:
                        value = json.dumps({"user": item, "ts": at}).encode()
                        self._log.append(partition, at, None, value)
                        self.sent.append(at)
                    records.clear()
            if rng.random() < 0.04:
                self._act(minute)
            self._run()
        self._publisher.fail = None
        for _ in range(60):
            self._clock.advance(300)
            self._run()

    def windows(self) -> list[SealedWindow]:
        """Everything that was published."""
        reader = SealedReader(MemorySealed(self._publisher))
        return [one for name in sorted(self._publisher.sketches()) for one in reader.windows(name)]

    def lies(self) -> list[str]:
        """Windows that are told to be complete and lack events, or that have more than there were."""
        found = []
        for one in self.windows():
            told = sum(int(part.state.sum()) for part in one.parts)  # type: ignore[union-attr]
            true = sum(one.window[0] <= at < one.window[1] for at in self.sent)
            if told > true or (told < true and one.complete):
                start, end = ((at - START) // MINUTE for at in one.window)
                found.append(f"{one.sketch} {start} to {end}: {told} of {true}, {one.describe()}")
        return found
