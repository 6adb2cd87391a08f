"""The series of windows that a history joins: where it is published, under which revision, where live windows begin.

In: a configuration. Out: a publisher and a revision. Touches: the store and the sealed folder of a configuration; or
its topics, and a connection to the cluster.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sketchstream.errors import ConfigError
from sketchstream.stream.interfaces import Publisher, SealedEntry
from sketchstream.topics import HISTORY
from sketchstream_connectors.files import store
from sketchstream_connectors.files.publisher import AllPublishers, DirectoryPublisher
from sketchstream_connectors.readers import open_published

if TYPE_CHECKING:
    from sketchstream.config.loader import Config


class DeploymentSeries:
    """What workers of a configuration publish, and the history that precedes it.

    Args:
        config: configuration of the deployment.

    Attributes:
        publisher: publisher of the history.
        revision: revision of the sketches now.

    Raises:
        ConfigError: a topic without `[history]`, or one that is missing.
        BrokerError: the cluster cannot be reached.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        publishers: list[Publisher] = []
        with contextlib.ExitStack() as stack:
            if config.from_kafka:
                from sketchstream_connectors.kafka.cluster.client import Connection
                from sketchstream_connectors.kafka.publishing.history import KafkaHistory
                from sketchstream_connectors.kafka.state.traces import newest_revision as newest_published
                from sketchstream_connectors.kafka.worker import newest_revision

                connections = [Connection(each.kafka, each.folder) for each in config.per_topic()]
                for connection in connections:
                    stack.callback(connection.close)
                begun = newest_revision(connections, config)
                published = newest_published(connections[0], config.sealed_topic) if begun is None else begun
                self.revision = max(0, published)
                if config.history_topic is not None:
                    publishers.append(KafkaHistory(connections[0], config.history_topic))
            else:
                self.revision = store.read_about(config.store_path)[0] if config.store_path.is_dir() else 0
            if config.sealed_directory is not None:
                publishers.append(DirectoryPublisher(config.sealed_directory))
            self.publisher: Publisher = publishers[0] if len(publishers) == 1 else AllPublishers(publishers)
            stack.callback(self.publisher.close)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close the publisher and the connections."""
        self._stack.close()

    def begin_revision(self) -> None:
        """Begin a revision of all sketches, where no worker holds windows open.

        Raises:
            ConfigError: workers may; `sketchstream reset` drops them.
            StoreError: the store is in use.
        """
        where = self._config.store_path
        if self._config.from_kafka or (where.is_dir() and store.partitions_in(where)):
            raise ConfigError(
                "a new revision drops the windows that workers hold open: begin it with `sketchstream reset`, then "
                "say --again"
            )
        with contextlib.closing(store.DirectoryStore(where)) as directory:
            self.revision = directory.reset()

    def first_live(self, sketch: str) -> int | None:
        """Start (ms) of the first window that workers have published, or hold open in their snapshots; None: of none.

        Workers of a release without claims, or without `[history]`, wrote no boundary.
        """
        with open_published(self._config) as published:
            starts = [start for start, _ in published.surroundings.open_windows().get(sketch, ())]
            for entry in published.source.read(sketch):
                if isinstance(entry, SealedEntry) and entry.revision == self.revision and entry.partition != HISTORY:
                    starts.append(entry.window[0])
                    break
        return min(starts, default=None)
