"""Reads what the workers of a topic have published, and what the cluster knows about their deployment.

In: a connection, a configuration. Out: `PublishedWindows`. Touches: the sealed topic and the state topic, reading; the
settings of the input topic.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sketchstream.errors import BrokerError, ConfigError, DataLossError
from sketchstream.log_events import EventLog
from sketchstream.query.sealed import SealedReader, Span
from sketchstream.query.windows import PublishedWindows, Surroundings
from sketchstream.stream.state import checkpoint
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import state_topics
from sketchstream_connectors.kafka.publishing.feed import KafkaFeed
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource
from sketchstream_connectors.kafka.several_topics import Feeds, SealedSources
from sketchstream_connectors.kafka.state.blobs import BlobReader
from sketchstream_connectors.kafka.state.pointer import Pointer

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.feed import Feed
    from sketchstream.stream.interfaces import SealedSource

event_log = EventLog("sketchstream.kafka")


class KafkaSurroundings(Surroundings):
    """Surroundings of a cluster's workers.

    Args:
        connection: connection to the cluster.
        config: configuration of the deployment.
    """

    def __init__(self, connection: Connection, config: Config) -> None:
        self._connection = connection
        self._config = config

    def open_windows(self) -> Mapping[str, Sequence[Span]]:
        """The open windows in the newest snapshots of the groups; none if we may not read those."""
        manifests: list[dict[str, Any]] = []
        try:
            for config in self._config.per_topic():
                manifests += self._manifests(config)
        except (BrokerError, DataLossError) as error:
            event_log.info("open_windows_unknown", reason=error)
        return checkpoint.open_windows(manifests)

    def _manifests(self, config: Config) -> Iterator[dict[str, Any]]:
        """The newest snapshots of a topic."""
        topic = config.input.topic or ""
        with contextlib.closing(Connection(config.kafka, config.folder)) as connection:
            pointers = {
                place.partition: Pointer.from_text(offset.metadata or "")
                for place, offset in connection.admin.committed(config.group).items()
                if place.topic == topic
            }
            for name in state_topics(config.group, topic):
                state = connection.admin.topic(name)
                pointers_here = {
                    partition: pointer
                    for partition, pointer in sorted(pointers.items())
                    if pointer is not None and pointer.manifest >= 0 and state and pointer.state_id == state.topic_id
                }
                if pointers_here:
                    with contextlib.closing(BlobReader(connection, topic, name)) as reader:
                        yield from (reader.manifest(p, pointer)["manifest"] for p, pointer in pointers_here.items())

    def retention_ms(self) -> float | None:
        """How long the input topics keep records, infinity for ever; None if we may not ask, or get no answer."""
        retentions = []
        try:
            for config in self._config.per_topic():
                settings = self._connection.admin.configs(config.input.topic or "")
                retentions.append(float(settings.get("retention.ms", "-1")))
        except (BrokerError, ConfigError) as error:
            event_log.info("retention_unknown", reason=error)
            return None
        return math.inf if min(retentions) < 0 else max(retentions)


def sealed_source(connection: Connection, config: Config) -> SealedSource:
    """The sealed topics of a configuration, and that of its history; closing it leaves the connection open."""
    sources = [KafkaSealedSource(connection, topic_config.sealed_topic or "") for topic_config in config.per_topic()]
    if config.history_topic is not None:
        sources.append(KafkaSealedSource(connection, config.history_topic, whole=True))
    return sources[0] if len(sources) == 1 else SealedSources(sources)


def feed_of(connection: Connection, config: Config) -> Feed:
    """Make the feed that the service reads."""
    feeds = [KafkaFeed(connection, topic_config.sealed_topic or "") for topic_config in config.per_topic()]
    if config.history_topic is not None:
        feeds.append(KafkaFeed(connection, config.history_topic))
    return feeds[0] if len(feeds) == 1 else Feeds(feeds)


def published_in_topic(connection: Connection, config: Config) -> PublishedWindows:
    """Read what the sealed topics of a configuration hold; closing its source leaves the connection open."""
    source = sealed_source(connection, config)
    reader = SealedReader(source, config.quality_rule, len(config.per_topic()))
    return PublishedWindows(config, reader, source, KafkaSurroundings(connection, config))
