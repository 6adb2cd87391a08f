"""Detects what the client does not report: a recreated topic, and partitions without an owner or never fetched.

In: the state of a source. Out: notes to the source, on which the worker's own thread acts. Touches: an admin
connection, one background thread.
Source: docs/kafka.md, "Every case" (partitions without an owner, stalled consumers, recreated topics).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from sketchstream.errors import BrokerError, FencedError
from sketchstream.log_events import EventLog
from sketchstream_connectors.kafka.cluster.client import Admin, Connection

if TYPE_CHECKING:
    from kafka import ConsumerGroupMetadata

event_log = EventLog("sketchstream.kafka")

WATCH_EVERY_S = 5.0
"""Seconds between two looks at the consumer."""
SILENT_S = 15.0
"""Seconds without a record after which it is asked whether any is waiting."""
STALLED_AFTER_S = 30.0
"""Seconds for which records are seen to wait while none is read, after which the consumer is replaced. A partition that
was empty for long and has a new record is no stall, nor is a client that a quota keeps waiting for some ten seconds."""
TOPIC_CHECK_S = 15.0
"""Seconds between two questions whether the topic is still the same."""
OWNERS_CHECK_S = 10.0
"""Seconds between two questions whether each partition has an owner."""


class Watched(Protocol):
    """What the watch reads and changes of a source; any thread may call these."""

    topic: str
    topic_id: str

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member of the group."""

    def waiting(self) -> Mapping[int, int]:
        """Partitions that are read, and the position of each."""

    def doubt_topic(self) -> None:
        """Note that the topic is gone, or is not the one whose positions are held."""

    def ask_for_another_consumer(self, reason: str) -> None:
        """Note that this consumer is of no use any more."""


class Watch:
    """A thread that asks, and leaves notes.

    Args:
        source: what it watches.
        connection: connection to the cluster.
    """

    def __init__(self, source: Watched, connection: Connection) -> None:
        self._source = source
        self._connection = connection
        self._admin = Admin(connection, patience_ms=5_000)
        self._progress: dict[int, float] = {}
        self._suspect: dict[int, tuple[int, float]] = {}
        self._unowned: set[int] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sketchstream-kafka-watch", daemon=True)
        self._thread.start()

    def progress(self, partition: int) -> None:
        """Note that a chunk came, or that the partition was resumed."""
        self._progress[partition] = time.monotonic()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(timeout=10)
        self._admin.close()

    def _run(self) -> None:
        topic_checked = owners_checked = time.monotonic()
        while not self._stopped.wait(WATCH_EVERY_S):
            try:
                if time.monotonic() - topic_checked > TOPIC_CHECK_S:
                    self._check_topic()
                    topic_checked = time.monotonic()
                if time.monotonic() - owners_checked > OWNERS_CHECK_S:
                    self._check_owners()
                    owners_checked = time.monotonic()
                self._check_progress()
            except (BrokerError, FencedError) as error:
                event_log.info("watch_failed", error=type(error.__cause__ or error).__name__)
            except Exception as error:  # a watcher must not die of a race with what it watches
                event_log.warning("watch_failed", error=type(error).__name__)

    def _check_topic(self) -> None:
        """Notice that the topic was deleted, or deleted and created again, so that our positions are meaningless."""
        described = self._admin.topic(self._source.topic)
        if described is None or described.topic_id != self._source.topic_id:
            self._source.doubt_topic()

    def _check_owners(self) -> None:
        """Have one member join anew, so that all partitions are assigned, if one stays without an owner in two looks.

        Seen with kafka-python when a leader knew no partitions yet; docs/kafka.md, "Every case", has other ways.
        """
        source = self._source
        described = self._admin.topic(source.topic)
        with self._admin.client("asking for the group's members") as client:
            group = client.describe_groups([self._connection.group])[self._connection.group]
        owned: set[int] = set()
        for member in group["members"]:
            assignment = member["member_assignment"] or {}
            for part in assignment.get("assigned_partitions", ()):
                if part["topic"] == source.topic:
                    owned.update(part["partitions"])
        settled = group["group_state"] == "Stable" and described is not None
        unowned = set(range(described.partitions)) - owned if settled and described is not None else set()
        before, self._unowned = self._unowned, unowned
        first = min((member["member_id"] for member in group["members"]), default="")
        if unowned & before and first == source.group_metadata().member_id:
            event_log.warning("partitions_unowned", topic=source.topic, partitions=sorted(unowned & before))
            source.ask_for_another_consumer("partitions have no owner")

    def _check_progress(self) -> None:
        """Ask for a new consumer if a partition stays for long at one position below the last stable offset."""
        now, positions = time.monotonic(), self._source.waiting()
        silent = [p for p in positions if now - self._progress.get(p, now) > SILENT_S]
        ends = self._admin.offsets(self._source.topic, silent, "stable") if silent else {}
        before, self._suspect = self._suspect, {}
        for p in silent:
            if ends.get(p, -1) <= positions[p]:
                self.progress(p)
                continue
            position, since = before.get(p, (-1, now))
            self._suspect[p] = positions[p], since if position == positions[p] else now
            if now - self._suspect[p][1] > STALLED_AFTER_S:
                self._source.ask_for_another_consumer(f"partition {p} makes no progress")
