"""Opens the publications of a configuration's workers.

In: a `Config`, or the path of one. Out: `PublishedWindows`, `Windows`. Touches: the sealed topic or folder, reading;
a connection to the cluster.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sketchstream.config.loader import Config
from sketchstream.errors import SketchstreamError
from sketchstream.query.sealed import SealedReader, Span
from sketchstream.query.window_sequence import Time, Windows, windows_of
from sketchstream.query.windows import PublishedWindows, Surroundings
from sketchstream_connectors.files import store
from sketchstream_connectors.files.feed import DirectoryFeed
from sketchstream_connectors.files.sealed import DirectorySealed

if TYPE_CHECKING:
    from sketchstream.stream.feed import Feed
    from sketchstream_connectors.kafka.cluster.client import Connection


class FileSurroundings(Surroundings):
    """Surroundings of a worker whose state is in a folder; files have no retention.

    Args:
        store: the folder.
    """

    def __init__(self, store: Path) -> None:
        self._store = store

    def open_windows(self) -> Mapping[str, Sequence[Span]]:
        """Windows that are open in the last snapshot; none where it cannot be read."""
        with contextlib.suppress(SketchstreamError, OSError):
            return store.open_windows(self._store)
        return {}


@contextlib.contextmanager
def open_published(config: Config) -> Iterator[PublishedWindows]:
    """The published windows of a configuration: of its topic if there is one, else of its folder.

    Raises:
        ConfigError, BrokerError: the cluster cannot be used.
    """
    with _surroundings(config) as (connection, surroundings):
        if connection is None or config.sealed_topic is None:
            source = DirectorySealed(_folder(config))
            reader = SealedReader(source, config.quality_rule, len(config.per_topic()))
            published = PublishedWindows(config, reader, source, surroundings)
        else:
            from sketchstream_connectors.kafka.readers import published_in_topic

            published = published_in_topic(connection, config)
        with contextlib.closing(published.reader):
            yield published


@contextlib.contextmanager
def open_feed(config: Config) -> Iterator[tuple[Feed, Surroundings]]:
    """Open the feed of the service: the topic of a configuration if there is one, else its folder.

    Raises:
        ConfigError, BrokerError: the cluster cannot be used.
    """
    with _surroundings(config) as (connection, surroundings):
        if connection is None or config.sealed_topic is None:
            yield DirectoryFeed(_folder(config)), surroundings
        else:
            from sketchstream_connectors.kafka.readers import feed_of

            yield feed_of(connection, config), surroundings


@contextlib.contextmanager
def _surroundings(config: Config) -> Iterator[tuple[Connection | None, Surroundings]]:
    """A connection to the cluster of a configuration, None for files, and what surrounds its publications."""
    if not config.from_kafka:
        yield None, FileSurroundings(config.store_path)
        return
    # imported here: files need no client
    from sketchstream_connectors.kafka.cluster.client import Connection
    from sketchstream_connectors.kafka.readers import KafkaSurroundings

    with contextlib.closing(Connection(config.kafka, config.folder)) as connection:
        yield connection, KafkaSurroundings(connection, config)


def _folder(config: Config) -> Path:
    """The folder of sealed sketches."""
    assert config.sealed_directory is not None
    return config.sealed_directory


def windows(
    config: str | os.PathLike[str],
    sketch: str | None = None,
    *,
    since: Time | None = None,
    until: Time | None = None,
    group: str | None = None,
) -> Windows:
    """Open the publications of a configuration's workers: one object per window, ascending.

    Args:
        config: the configuration file.
        sketch: name of the sketch; may be left out where the configuration has one only.
        since: windows that start at or after this time: RFC 3339 text, or a datetime with a timezone.
        until: windows that end at or before this time.
        group: group of a sketch with groups, the one to ask for; None: choose it later, `Window.of_group`.

    Raises:
        EstimateError: the group does not exist.
        ConfigError: the configuration, the sketch's name or a time cannot be used, or `since` is not before `until`.
        StoreError, BrokerError: publications cannot be read.
    """
    with open_published(Config.load(config)) as published:
        return windows_of(published, sketch, since, until, group)
