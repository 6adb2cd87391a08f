"""Builds the Kafka parts of a worker from one configuration.

In: a `Config` whose input is a topic. Out: source, store, publisher and sink of one worker.
Touches: the cluster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from sketchstream.config import resources
from sketchstream.errors import BrokerError, ConfigError
from sketchstream.kernels import compile_first
from sketchstream.log_events import EventLog
from sketchstream.stream import formats
from sketchstream.stream.input import partitioner_detection
from sketchstream.stream.interfaces import Chunk, Publisher, Sink, Source, StateStore
from sketchstream.stream.state.checkpoint import capture
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.worker.settings import Settings
from sketchstream.stream.worker.status import Progress
from sketchstream.stream.worker.worker import Worker
from sketchstream_connectors import factory
from sketchstream_connectors.decode.records import from_client_records
from sketchstream_connectors.files.publisher import AllPublishers, DirectoryPublisher
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import state_topics
from sketchstream_connectors.kafka.input import sample as kafka_sample
from sketchstream_connectors.kafka.input.source import KafkaSource
from sketchstream_connectors.kafka.preflight import timestamps_ahead_ms
from sketchstream_connectors.kafka.publishing.history import KafkaHistory
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher, KafkaSink
from sketchstream_connectors.kafka.results import KafkaResults
from sketchstream_connectors.kafka.several_topics import Publishers, Sinks, Sources, Stores
from sketchstream_connectors.kafka.state import traces
from sketchstream_connectors.kafka.state.group_validation import require_own_group
from sketchstream_connectors.kafka.state.store import KafkaStore
from sketchstream_connectors.kafka.state.topic_validation import check_writable

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.monitoring.metrics import Metrics
    from sketchstream.stream.state.rules import Rules

event_log = EventLog("sketchstream.kafka")

THREADS = 8
"""Threads for commits and restores: these wait for the network, not for the processor."""
CHUNKS = (2, 2048)
"""Numbers of records of the chunks with which loops are compiled: readers have loops of their own for large ones."""


def warm_up(config: Config, rules: Rules) -> None:
    """Run a record, many times over, through decoding, counting, snapshot and sealing, and throw it all away.

    Loops are compiled when they are first called, which can take longer than a group waits for a poll. So that is done
    before the worker joins its group.
    """
    began = time.monotonic()
    event_log.info("warming_up", hint="on a new machine loops are compiled first, which can take minutes")
    compile_first()
    now = time.time_ns() // 1_000_000
    try:
        for topic_config in config.per_topic():
            decoder = factory.decoder_of(topic_config)
            reader, payload = formats.by_name(decoder.format).example(decoder, now)
            for size in CHUNKS:
                samples = [SimpleNamespace(offset=i, timestamp=now, key=payload, value=payload) for i in range(size)]
                records = from_client_records(samples)
                events = reader.decode(records)
        state = PartitionState.fresh(rules, 0, 0, 1)
        state.apply(Chunk(0, 0, records.next_position, records.offsets, records.timestamps, events))
        capture(state)
        state.seal(everything=True)
    except Exception as error:  # the stream itself decides what a record means
        event_log.warning("warm_up_failed", error=type(error).__name__)
    event_log.info("warmed_up", seconds=round(time.monotonic() - began, 1))


def look_at_input(config: Config) -> None:
    """Compare a sample of the input, of each topic, with the configuration, before the worker joins its group.

    Where the group has counted nothing yet, no sketch exists: a sample that contradicts the configuration ends the
    start. Later it is a warning. An empty topic contradicts nothing.

    Raises:
        ConfigError: no partitioner is set, none of many records has a configured field, or the configured partitioner
            does not fit; one line for each.
        BrokerError: the cluster cannot be reached, and no partitioner is set.
    """
    for topic_config in config.other_topics:
        look_at_input(topic_config)
    with contextlib.closing(Connection(config.kafka, config.folder)) as connection:
        connection.admin.topic(config.input.topic or "")  # an unreachable cluster is reported once, and at once
        first = _nothing_counted(connection, config)
        choosing = first or config.lacks_partitioner
        sample = kafka_sample.try_to_read(
            connection, config, kafka_sample.RECORDS if choosing else kafka_sample.FEW_RECORDS
        )
    mistakes: list[str] = []
    if sample is not None and config.lacks_partitioner:
        mistakes.append(partitioner_detection.missing(sample.placements.choose(), sample.partitions, sample.extent))
    elif sample is not None and first and config.partitioner is not None:
        wrong = partitioner_detection.contradiction(sample.placements.choose(), config.partitioner)
        mistakes += [] if wrong is None else [wrong]
    lacking, warnings = ([], []) if sample is None else sample.fields.verdict(doubts=config.diagnosed)
    if first:
        mistakes += lacking
    else:
        warnings = lacking + warnings
    for text in warnings:
        event_log.warning("sample", warning=text)
    if mistakes:
        raise ConfigError(*(f"{config.path}: {mistake}" for mistake in mistakes))
    config.require_partitioner()


def _nothing_counted(connection: Connection, config: Config) -> bool:
    """Whether the group has no position in the input yet; False where no coordinator answers."""
    try:
        return all(place.topic != config.input.topic for place in connection.admin.committed(config.group))
    except BrokerError as error:
        event_log.info("no_sample", reason=error)
        return False


def open_worker(
    config: Config,
    rules: Rules,
    *,
    settings: Settings,
    metrics: Metrics | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Worker:
    """A worker over Kafka, which closes its source, store and publisher; if one of these fails, nothing stays open.

    Raises:
        ConfigError: an option, a topic that is missing or wrong, or too little memory.
        BrokerError: the cluster cannot be reached.
    """
    warm_up(config, rules)
    with contextlib.ExitStack() as stack:
        connections = [Connection(topic_config.kafka, topic_config.folder) for topic_config in config.per_topic()]
        for connection in connections:
            stack.callback(connection.close)
        connection = connections[0]
        written = {
            "input.late_topic": config.input.late_topic,
            "input.dead_letter_topic": config.input.dead_letter_topic,
            "output.results_topic": config.output.results_topic,
        }
        check_writable(connection, {setting: name for setting, name in written.items() if name})
        revision = newest_revision(connections, config) if config.other_topics else None
        topics = [_open_topic(stack, *pair, revision) for pair in zip(connections, config.per_topic(), strict=True)]
        sources, stores, outlets, sinks = zip(*topics, strict=True)
        publisher = _open_publisher(
            connection, config, [outlet for outlet in outlets if outlet is not None], sources[0]
        )
        stack.callback(publisher.close)
        source: Source = Sources(sources) if config.other_topics else sources[0]
        store: StateStore = Stores(stores) if config.other_topics else stores[0]
        sink: Sink | None = None
        if config.input.late_topic or config.input.dead_letter_topic:
            sink = Sinks(sinks) if config.other_topics else sinks[0]
        resources.check_memory(config, 1, total=len(source.numbers()), here=True)
        stack.pop_all()
    settings = replace(settings, threads=max(settings.threads, THREADS))
    return Worker(rules, source, store, publisher, settings=settings, sink=sink, metrics=metrics, progress=progress)


def _open_publisher(
    connection: Connection, config: Config, topics: Sequence[KafkaPublisher], first: KafkaSource
) -> Publisher:
    """The publisher to everything that a configuration names.

    Args:
        connection: connection to the cluster.
        config: configuration of the worker.
        topics: publishers to the sealed topics.
        first: source of the first topic: its owner of partition 0 publishes results.
    """
    publishers: list[Publisher] = [*topics] if len(topics) < 2 else [Publishers(topics)]
    if config.sealed_directory is not None:
        publishers.append(DirectoryPublisher(config.sealed_directory))
    history = None if config.history_topic is None else KafkaHistory(connection, config.history_topic)
    results: KafkaResults | None = None
    if config.output.results_topic and config.sealed_topic is not None:
        results = KafkaResults(connection, config, lambda: first.owns(0))
    before_close = [part.close for part in (results, history) if part is not None]
    return AllPublishers(publishers, None if history is None else history.settle, before_close)


def newest_revision(connections: Sequence[Connection], config: Config) -> int | None:
    """Largest revision that any of several topics has begun: a window is complete in one revision of all of them."""
    revisions = []
    for connection, topic_config in zip(connections, config.per_topic(), strict=True):
        described = connection.admin.topic(topic_config.input.topic or "")
        if described is not None:
            revisions.append(traces.revision_of(connection, described.name, described.topic_id))
    return max((revision for revision in revisions if revision is not None), default=None)


def _open_topic(
    stack: contextlib.ExitStack, connection: Connection, config: Config, revision: int | None
) -> tuple[KafkaSource, KafkaStore, KafkaPublisher | None, KafkaSink]:
    """Open source, store, publisher and sink of one topic."""
    topic = config.input.topic or ""
    _note_timestamps(connection, topic)
    decode = factory.decoder_of(config).decode
    source = KafkaSource(connection, topic, decode, path="auto" if config.worker.raw else "stock")
    stack.callback(source.close)
    require_own_group(connection, topic, state_topics(connection.group, topic))
    accept = config.input.data_loss == "accept"
    sealed = config.sealed_topic
    store = KafkaStore(connection, topic, source, sealed_topic=sealed, accept_loss=accept, revision=revision)
    stack.callback(store.close)
    names = [sketch.name for sketch in config.sketches]
    publisher = None if sealed is None else KafkaPublisher(connection, sealed, names)
    settings = config.input
    sink = KafkaSink(connection, topic, late_topic=settings.late_topic, dead_letter_topic=settings.dead_letter_topic)
    return source, store, publisher, sink


def _note_timestamps(connection: Connection, topic: str) -> None:
    """Log whose timestamps the input's records have, and how far ahead of the clock they may be."""
    try:
        settings = connection.admin.configs(topic)
    except BrokerError as error:
        event_log.info("timestamps_unknown", topic=topic, reason=error)
        return
    ahead = timestamps_ahead_ms(settings)
    kind = settings.get("message.timestamp.type", "CreateTime")
    if ahead is None:
        event_log.warning("timestamps", topic=topic, type=kind, ahead_ms="unlimited")
    else:
        event_log.info("timestamps", topic=topic, type=kind, ahead_ms=ahead)
