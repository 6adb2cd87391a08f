"""A worker over two topics in memory.

In: records of each. Out: windows. Touches: nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from sketchstream.config.loader import Config
from sketchstream.query.sealed import SealedReader, SealedWindow
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
from sketchstream_connectors.kafka.several_topics import Publishers, SealedSources, Sinks, Sources, Stores

MINUTE = 60_000
BASE = 28_333_334 * MINUTE
CONFIG = """
[kafka]
"bootstrap.servers" = "unused:9092"
"group.id" = "reach"
[input]
partitioned_by = "none"
item_type = "int"
item = "u"
time = "ts"
lateness = "5s"
quorum = 1
quorum_time = "1ms"
max_ahead = "1h"
idle = "1m"
idle_topic = "5m"
[[input.topics]]
topic = "clicks"
[[input.topics]]
topic = "orders"
item = "buyer.id"
[[sketch]]
name = "seen"
window = "1m"
unit = "event"
epsilon = 30
epsilon_publish = 30
publish = "state"
intrusion = true
domain = { size = 40 }
max_count = 30
"""


class Two:
    """A worker over two topics in memory; each topic keeps its own snapshots and publications."""

    def __init__(self, *partitions: int) -> None:
        self.config = Config.parse(CONFIG, environ={})
        self.clock = ManualClock(BASE)
        self.logs = [MemoryLog(n) for n in partitions]
        self.snapshots = [MemorySnapshots({}, {}, {}) for _ in partitions]
        self.publishers = [MemoryPublisher() for _ in partitions]
        self.sinks = [MemorySink() for _ in partitions]
        self.start()

    def start(self) -> None:
        parts = self.config.per_topic()
        sources = [MemorySource(log, decoder_of(one)) for log, one in zip(self.logs, parts, strict=True)]
        self.source = Sources(sources)
        self.worker = Worker(
            rules(self.config),
            self.source,
            Stores([MemoryStore(one) for one in self.snapshots]),
            Publishers(self.publishers),
            settings=replace(settings(self.config), publish_every_s=0.0, threads=0, fail_fast=True),
            sink=Sinks(self.sinks),
            clock=self.clock,
        )

    def send(self, topic: int, partition: int, item: object, ts: int) -> None:
        event = {"u": item, "ts": ts} if topic == 0 else {"buyer": {"id": item}, "ts": ts}
        self.logs[topic].append(partition, ts, None, json.dumps(event).encode())

    def run(self, seconds: int = 60) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self.worker.step(0.0)

    def windows(self) -> dict[int, SealedWindow]:
        source = SealedSources([MemorySealed(one) for one in self.publishers])
        return {one.window[0]: one for one in SealedReader(source, topics=2).windows("seen")}


def state_of(window: SealedWindow) -> list[int]:
    merged: Any = window.result(partitioned=False)
    return np.asarray(merged.state).astype(np.int64).tolist()
