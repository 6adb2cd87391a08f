"""A test driver: a configuration run in this process, without sockets, files or clocks of its own.

In: a configuration, records with timestamps, moves of the clock. Out: sealed windows. Touches: memory only (and the
items_file and key file that the configuration names). The worker, the decoders and the partition states are the real
ones; source, store, publisher and clock are kept in memory, under the same laws.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.items.arrays import Items
from sketchstream.query.sealed import SealedReader, SealedWindow
from sketchstream.stream.input.partitioner import belongs
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

if TYPE_CHECKING:
    from sketchstream.items.key import Key

Moment = int | str | datetime


def moment_ms(moment: Moment) -> int:
    """Ms since 1970 of a number of ms, an RFC 3339 text or an aware datetime.

    Examples:
        >>> moment_ms("1970-01-01T00:01:00Z")
        60000
    """
    if isinstance(moment, int):
        return moment
    when = datetime.fromisoformat(moment.replace("Z", "+00:00")) if isinstance(moment, str) else moment
    if when.tzinfo is None:
        raise ConfigError("a time needs a zone, for example 2013-01-01T00:00:00Z")
    return round((when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


class Driver:
    """Runs a configuration on records that a test feeds. For users' own tests.

    Args:
        config: a `Config`, or the text of a configuration file.
        partitions: number of partitions of the input.
        now: where the clock begins; ms since 1970, RFC 3339, or an aware datetime.
        key: hash key, in place of the configuration's key file.

    Examples:
        >>> driver = Driver('''
        ... [kafka]
        ... bootstrap.servers = "unused:9092"
        ... group.id = "reach"
        ... [input]
        ... topic = "events"
        ... item = "user"
        ... item_type = "int"
        ... time = "ts"
        ... partitioned_by = "item"
        ... partitioner = "murmur2"
        ... lateness = "5m"
        ... [[sketch]]
        ... name = "hourly"
        ... window = "1h"
        ... unit = "event"
        ... epsilon = 1
        ... domain = { size = 100 }
        ... ''', partitions=2, now="2024-01-01T02:00:00Z")
        >>> for minute in range(60):
        ...     at = f"2024-01-01T00:{minute:02}:00Z"
        ...     driver.send({"user": minute % 7, "ts": at}, timestamp=at)
        >>> driver.run()
        >>> driver.windows("hourly")                   # nothing has passed the end of the hour yet
        []
        >>> driver.kill()                              # as by SIGKILL: what was not committed is replayed
        >>> for minute in range(59):                   # ten records of each partition agree that it is past 01:05
        ...     at = f"2024-01-01T01:{minute:02}:00Z"
        ...     driver.send({"user": minute % 7, "ts": at}, timestamp=at)
        >>> driver.run()
        >>> [window.fields()["complete"] for window in driver.windows("hourly")]
        [True]
        >>> driver.advance(hours=3)                    # silent partitions follow the clock
        >>> [window.fields()["window_start"] for window in driver.windows("hourly")]
        ['2024-01-01T00:00:00Z', '2024-01-01T01:00:00Z']
    """

    def __init__(
        self, config: Config | str, *, partitions: int = 1, now: Moment = 1_700_000_000_000, key: Key | None = None
    ) -> None:
        self._key = key
        self._configure(config)
        self.clock = ManualClock(moment_ms(now))
        self.log = MemoryLog(partitions)
        self.snapshots = MemorySnapshots({}, {}, {})
        self.publisher = MemoryPublisher()
        self.sink = MemorySink()
        self._worker: Worker | None = None

    def _configure(self, config: Config | str) -> None:
        """Take a configuration for the next worker."""
        self.config = Config.parse(config) if isinstance(config, str) else config
        self._decoder = decoder_of(self.config)
        common = rules(self.config if self._key is None else replace(self.config, key_file=None))
        self._rules = common if self._key is None else replace(common, key=self._key)

    @property
    def worker(self) -> Worker:
        """The running worker; after `kill`, a new one that restores what was committed."""
        if self._worker is None:
            self._worker = Worker(
                self._rules,
                MemorySource(self.log, self._decoder),
                MemoryStore(self.snapshots),
                self.publisher,
                settings=replace(
                    settings(self.config), publish_every_s=0.0, threads=0, give_up_after=None, fail_fast=False
                ),
                sink=self.sink,
                clock=self.clock,
            )
        return self._worker

    def send(
        self,
        value: object,
        *,
        key: bytes | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
    ) -> None:
        """Append one record to the input.

        Args:
            value: bytes, None (a tombstone), or anything that JSON can write.
            key: key of the record.
            timestamp: Kafka timestamp of the record; default: the clock.
            partition: default: where the configured partitioner sends the key, or, without one, the item.
        """
        payload = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        if partition is None:
            partition = self._partition(value, payload, key)
        stamp = self.clock.now_ms() if timestamp is None else moment_ms(timestamp)
        self.log.append(partition, stamp, key, payload)

    def _partition(self, value: object, payload: bytes | None, key: bytes | None) -> int:
        count = len(self.log.partitions)
        if count == 1:
            return 0
        if key is None:
            field = value
            for part in (self.config.input.item or "").split("."):
                field = field.get(part) if isinstance(field, Mapping) else None
            key = field if isinstance(field, bytes) else None if field is None else str(field).encode()
        if key is None:
            return zlib.crc32(payload or b"") % count
        way = self._rules.partitioner or "murmur2"
        items = Items.of([key])
        return next(p for p in range(count) if belongs(items, way, [count], p)[0])

    def run(self, steps: int = 10_000) -> None:
        """Let the worker read all that was sent, and publish what is sealed.

        Raises:
            DataLossError: every partition halted.
        """
        before, _ = self._state()
        for _ in range(steps):
            self.worker.step(0.0)
            after, ready = self._state()
            if ready and after == before:
                return
            before = after

    def _state(self) -> tuple[tuple[object, ...], bool]:
        """What changes as long as there is something to do, and whether the worker is ready."""
        gauges, counters = self.worker.gauges(), self.worker.metrics.counters
        positions = tuple(
            (partition.partition, partition.status, partition.position) for partition in gauges.partitions
        )
        done = counters["published"], counters["snapshots"], counters["gaps"], len(self.publisher.log)
        return (positions, *done), gauges.ready

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Move the clock, in steps short enough for the worker to notice silence; snapshots are taken as configured."""
        left = seconds + 60 * minutes + 3600 * hours
        idle = self._rules.lateness_ms / 1000 if self.config.input.idle is None else self.config.input.idle / 1000
        stride = max(idle / 8, left / 200, 0.001)
        while left > 0:
            self.clock.advance(min(stride, left))
            left -= stride
            self.run()

    def snapshot(self) -> None:
        """Commit the states of all partitions now."""
        self.run()
        self.worker.finish()

    def kill(self) -> None:
        """End the worker as SIGKILL would: nothing more is committed. The next step starts a new one."""
        self._worker = None

    def change(self, config: Config | str) -> None:
        """End the worker as SIGTERM does, its states committed; the next step starts one with this configuration.

        Args:
            config: a `Config`, or the text of a configuration file.
        """
        self.snapshot()
        self.kill()
        self._configure(config)

    def add_partitions(self, total: int) -> None:
        """Give the input more partitions."""
        while len(self.log.partitions) < total:
            self.log.partitions.append([])
            if self._worker is not None:
                self.worker_source.owned.append(len(self.log.partitions) - 1)

    @property
    def worker_source(self) -> MemorySource:
        """The running worker's source."""
        source = self.worker._source
        assert isinstance(source, MemorySource)
        return source

    def windows(self, sketch: str) -> list[SealedWindow]:
        """What was sealed and published of a sketch, ascending."""
        return list(SealedReader(MemorySealed(self.publisher), self.config.quality_rule).windows(sketch))
