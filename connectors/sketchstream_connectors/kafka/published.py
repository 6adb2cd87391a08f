"""Reads what the workers of a topic have published, and what the cluster knows about their deployment.

In: a connection, a configuration. Out: `PublishedWindows`. Touches: the sealed topic and the state topic, reading; the
settings of the input topic.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sketchstream.errors import BrokerError, ConfigError, DataLossError
from sketchstream.events import say
from sketchstream.query.sealed import SealedReader, Span
from sketchstream.query.windows import PublishedWindows
from sketchstream.stream import checkpoint
from sketchstream_connectors.kafka.blobs import Reader
from sketchstream_connectors.kafka.pointer import Pointer
from sketchstream_connectors.kafka.recover import read_manifest
from sketchstream_connectors.kafka.sealed import KafkaSealedSource
from sketchstream_connectors.kafka.topics import state_topics

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream_connectors.kafka.client import Connection

log = logging.getLogger("sketchstream.kafka")


class KafkaSurroundings:
    """See `Surroundings`.

    Args:
        connection: of the cluster.
        config: of the deployment.
    """

    def __init__(self, connection: Connection, config: Config) -> None:
        self._connection = connection
        self._config = config

    def open_windows(self) -> Mapping[str, Sequence[Span]]:
        """The open windows in the newest snapshots of the group; none if we may not read those."""
        connection, config = self._connection, self._config
        manifests: list[dict[str, Any]] = []
        try:
            topic = config.input.topic or ""
            pointers = {
                place.partition: Pointer.from_text(offset.metadata or "")
                for place, offset in connection.admin.committed(config.group).items()
                if place.topic == topic
            }
            for name in state_topics(config.group, topic):
                state = connection.admin.topic(name)
                here = {
                    partition: pointer
                    for partition, pointer in sorted(pointers.items())
                    if pointer is not None and pointer.manifest >= 0 and state and pointer.state_id == state.topic_id
                }
                if here:
                    reader = Reader(connection, topic, name)
                    try:
                        manifests += [read_manifest(reader, p, pointer)["manifest"] for p, pointer in here.items()]
                    finally:
                        reader.close()
        except (BrokerError, DataLossError) as error:
            say(log, logging.INFO, "open_windows_unknown", reason=error)
        return checkpoint.open_windows(manifests)

    def retention_ms(self) -> float | None:
        """How long the input topic keeps records, infinity for ever; None if we may not ask, or get no answer."""
        try:
            settings = self._connection.admin.configs(self._config.input.topic or "")
        except (BrokerError, ConfigError) as error:
            say(log, logging.INFO, "retention_unknown", reason=error)
            return None
        kept = int(settings.get("retention.ms", "-1"))
        return math.inf if kept < 0 else float(kept)


def published_in_topic(connection: Connection, config: Config) -> PublishedWindows:
    """The contents of the sealed topic of a configuration; closing its source leaves the connection open."""
    source = KafkaSealedSource(connection, config.sealed_topic or "")
    reader = SealedReader(source, config.quality_rule)
    return PublishedWindows(config, reader, source, KafkaSurroundings(connection, config))
