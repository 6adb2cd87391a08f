"""Configurations and the Kafka cluster they name, as the commands see them.

In: a configuration file. Out: its `Config`, a connection, the names of its topics. Touches: the file, the network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.recover import Finding
    from sketchstream_connectors.kafka.client import Connection
    from sketchstream_connectors.kafka.topics import Names


ANSWER_S: Final = 2.0
"""How long a bootstrap server may take to accept a connection."""


def load(path: Path) -> Config:
    """The configuration of a file, environment variables laid over it."""
    from sketchstream.config.loader import Config

    return Config.load(path)


def require_topic(config: Config, purpose: str) -> None:
    """Refuse a configuration whose input is a file."""
    if not config.from_kafka:
        msg = f"{config.path}: {purpose} needs input.topic; its input is a file"
        raise ConfigError(msg)


@contextlib.contextmanager
def connected(config: Config) -> Iterator[Connection]:
    """A connection to the cluster of a configuration, closed afterwards."""
    from sketchstream_connectors.kafka.client import Connection

    connection = Connection(config.kafka, config.folder)
    try:
        yield connection
    finally:
        connection.close()


def answers(config: Config) -> bool:
    """Whether something listens at one of the configured bootstrap servers."""
    import socket

    for server in str(config.kafka.get("bootstrap.servers", "")).split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S):
                return True
        except (OSError, ValueError, OverflowError):
            continue
    return False


def names(config: Config) -> Names:
    """The topics of a configuration."""
    from sketchstream_connectors.kafka.topics import Names

    return Names(
        group=config.group,
        input=config.input.topic or "",
        sealed=config.sealed_topic,
        results=config.output.results_topic or None,
        dead_letter=config.input.dead_letter_topic or None,
        late=config.input.late_topic or None,
    )


def findings(found: Sequence[Finding]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of what `recover` and `reset` found, or did."""
    columns = ("partition", "outcome", "what", "position", "revision")
    rows: list[tuple[str, ...]] = [
        (str(one.partition), one.outcome, one.text, "-" if one.position < 0 else str(one.position), str(one.revision))
        for one in found
    ]
    return columns, rows
