"""Samples the input topic: do its records have the configured fields, and in which partitions are its items?

In: a connection and a configuration. Out: counts, scores of partitioners. Touches: the newest records of the topic,
which are discarded; a consumer without a group. How many records are read, and which, depends on offsets only.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.errors import BrokerError
from sketchstream.log_events import EventLog
from sketchstream.stream import formats
from sketchstream.stream.input.partitioner import belongs
from sketchstream.stream.input.partitioner_detection import Placements
from sketchstream.stream.input.sampling import Sample
from sketchstream_connectors import factory
from sketchstream_connectors.decode.records import from_client_records
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.input.growth import former_numbers

event_log = EventLog("sketchstream.kafka")

if TYPE_CHECKING:
    from collections.abc import Callable

    from sketchstream.config.loader import Config
    from sketchstream_connectors.decode.decoder import Decoder
    from sketchstream_connectors.decode.records import ClientRecord, Records

RECORDS = 20_000
"""Most records of the whole topic that are read for a choice of the partitioner."""
FEW_RECORDS = 1_000
"""Most records that are read to look at fields only."""
MAX_ATTEMPTS = 3
"""Most attempts to read a sample."""
MIN_RECORDS = 50
"""Fewest records of each partition that a sample asks for, however many partitions there are."""


@dataclass
class TopicSample:
    """What was found in the newest records of a topic.

    Args:
        partitions: number of partitions of the topic.
        fields: counts over the configured fields.
        placements: placements of the items, for the choice of a partitioner.
        misplaced: items that the configured partitioner sends elsewhere.
        oldest_ms: smallest timestamp.
        erased: records that the topic held once and holds no more.
    """

    partitions: int
    fields: Sample
    placements: Placements
    misplaced: int = field(default=0, repr=False)
    oldest_ms: int = 0
    erased: int = 0

    @property
    def extent(self) -> str:
        """Which records were read."""
        records = self.fields.records
        text = f"it has {records:,} records" if records else "the topic holds no records"
        return f"{text}; {self.erased:,} older ones were erased by its retention" if self.erased else text


def try_to_read(connection: Connection, config: Config, records: int) -> TopicSample | None:
    """Read a sample; None if the brokers return none. A topic that does not exist is an error.

    Without a sample a wrong configuration would pass unnoticed, so a busy broker is asked again.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            return read(connection, config, records)
        except BrokerError as error:
            event_log.info("no_sample", reason=error)
    return None


@dataclass(frozen=True)
class NewestRecords:
    """The newest records of a topic.

    Args:
        partitions: The topic's partitions.
        former: Numbers of partitions that it had, with the time (ms) from which on no record was placed by them.
        records: The records of each partition that has any.
        erased: The records that the topic held once and holds no more.
    """

    partitions: int
    former: dict[int, int]
    records: dict[int, list[ClientRecord]] = field(repr=False)
    erased: int


def read_newest(connection: Connection, topic: str, records: int) -> NewestRecords:
    """Read the newest records of every partition of a topic, about `records` in all: all of them, or none.

    Raises:
        ConfigError: there is no such topic.
        BrokerError: the cluster does not answer, the topic may not be read, or the sample would not be complete.
    """
    described = connection.admin.require_topic(topic)
    by_partition: dict[int, list[ClientRecord]] = {}
    tail = max(MIN_RECORDS, -(-records // described.partitions))
    with contextlib.closing(Log(connection, topic)) as log:
        extent = log.extent()
        if len(extent.ends) != described.partitions:  # the metadata of a broker that lags behind
            raise BrokerError(
                f"reading {topic!r}: {len(extent.ends)} of its {described.partitions} partitions are known"
            )
        starts = {p: max(begin, extent.ends[p] - tail) for p, begin in extent.begins.items()}
        for batch, _ in log.batches(starts, extent.ends):
            for record in batch:
                by_partition.setdefault(record.partition, []).append(record)
    former = former_numbers(connection.admin, topic, described.partitions)
    return NewestRecords(described.partitions, former, by_partition, sum(extent.begins.values()))


def read(connection: Connection, config: Config, records: int = RECORDS) -> TopicSample:
    """Read the newest records of every partition, about `records` in all: all of them, or none.

    Raises:
        ConfigError: there is no such topic.
        BrokerError: the cluster does not answer, the topic may not be read, or the sample would not be complete.
    """
    newest = read_newest(connection, config.input.topic or "", records)
    decoder = factory.decoder_of(config)
    has_fields = formats.by_name(decoder.format).named
    sample = TopicSample(newest.partitions, Sample(factory.wanted_fields(config)), Placements(newest.partitions))
    sample.oldest_ms = time.time_ns() // 1_000_000
    sample.erased = newest.erased
    for partition, client in sorted(newest.records.items()):
        read = from_client_records(client)
        events = decoder.decode(read)
        texts = _texts(decoder, read) if has_fields else None
        stamps = None if sample.fields.wanted.time is None else read.timestamps
        sample.fields.add(events, texts, stamps)
        items = events.items.take(events.valid)
        oldest_ms = int(read.timestamps.min(initial=sample.oldest_ms))
        former = [n for n, until_ms in newest.former.items() if partition < n and oldest_ms < until_ms]
        sample.placements.add(items, partition, former)
        sample.oldest_ms = min(sample.oldest_ms, oldest_ms)
        if config.partitioner is not None:
            placed = belongs(items, config.partitioner, [newest.partitions, *former], partition)
            sample.misplaced += int(np.count_nonzero(~placed))
    return sample


def _texts(decoder: Decoder, records: Records) -> Callable[[int], bytes | None]:
    """Payloads as JSON texts."""
    return lambda index: decoder.reader.shown(records.value(index))
