"""Configurations and the Kafka cluster they name, as the commands see them.

In: a configuration file. Out: its `Config`, a connection, the names of its topics. Touches: the file, the network.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.recover import Diagnosis
    from sketchstream_connectors.kafka.cluster.client import Connection
    from sketchstream_connectors.kafka.cluster.topics import TopicNames


ANSWER_S: Final = 4.0
"""Seconds that all bootstrap servers together have to accept a connection."""


def load(path: Path) -> Config:
    """The configuration of a file, environment variables laid over it."""
    from sketchstream.config.loader import Config

    return Config.load(path)


def require_topic(config: Config, purpose: str) -> None:
    """Refuse a configuration whose input is a file."""
    if not config.from_kafka:
        raise ConfigError(f"{config.path}: {purpose} needs input.topic; its input is a file")


@contextlib.contextmanager
def connect(config: Config) -> Iterator[Connection]:
    """A connection to the cluster of a configuration, closed afterwards."""
    from sketchstream_connectors.kafka.cluster.client import Connection

    with contextlib.closing(Connection(config.kafka, config.folder)) as connection:
        yield connection


def unreachable(config: Config) -> str | None:
    """Why no configured bootstrap server accepts a connection within `ANSWER_S`; None if one does.

    A client would keep trying until its timeout. Names are looked up in threads, which a slow resolver may hold.
    """
    servers = [server.strip() for server in str(config.kafka.get("bootstrap.servers", "")).split(",")]
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for server in servers:
        threading.Thread(target=lambda server=server: answers.put(_refusal(server)), daemon=True).start()
    deadline = time.monotonic() + ANSWER_S
    reasons = []
    for _ in servers:
        try:
            reason = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            reasons.append(f"no answer within {ANSWER_S:g} s")
            break
        if reason is None:
            return None
        reasons.append(reason)
    return f"{','.join(servers)} cannot be reached: {'; '.join(dict.fromkeys(reasons))}"


def _refusal(server: str) -> str | None:
    """Why a server does not accept a connection; None if it does."""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S):
            return None
    except TimeoutError:
        return f"no answer within {ANSWER_S:g} s"
    except (ValueError, OverflowError):
        return f"{server!r:.60} is not host:port"
    except OSError as error:
        return f"{error.errno} {errno.errorcode.get(error.errno or 0, error.strerror or type(error).__name__)}"


def names(config: Config) -> TopicNames:
    """The topics of a configuration, of its first input topic if it has several."""
    from sketchstream_connectors.kafka.cluster.topics import TopicNames

    return TopicNames(
        group=config.group,
        input=config.input.topic or "",
        sealed=config.sealed_topic,
        history=config.history_topic,
        results=config.output.results_topic or None,
        dead_letter=config.input.dead_letter_topic or None,
        late=config.input.late_topic or None,
    )


def number_partitions(diagnoses: Sequence[Diagnosis], topic: int) -> Iterator[Diagnosis]:
    """Findings about the partitions of one of several topics, with the numbers of the whole input."""
    from sketchstream.topics import TOPIC_STRIDE

    return (replace(diagnosis, partition=TOPIC_STRIDE * topic + diagnosis.partition) for diagnosis in diagnoses)


def findings(diagnoses: Sequence[Diagnosis]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of what `recover` and `reset` found, or did."""
    rows: list[tuple[str, ...]] = []
    for diagnosis in diagnoses:
        position = "-" if diagnosis.position < 0 else str(diagnosis.position)
        what = (diagnosis.outcome, diagnosis.text, position)
        rows.append((str(diagnosis.partition), *what, str(diagnosis.revision)))
    return ("partition", "outcome", "what", "position", "revision"), rows
