"""A thread that deletes superseded snapshots from the state topic (DeleteRecords).

In: offsets below which nothing is needed any more. Out: nothing. Touches: the state topic, an admin connection, a
thread.
"""

from __future__ import annotations

import threading

from sketchstream.log_events import EventLog
from sketchstream_connectors.kafka.cluster.client import Admin, Connection

event_log = EventLog("sketchstream.kafka")

ERASE_EVERY_S = 1.0
"""Seconds between two deletions of records in one topic."""


class Eraser:
    """A thread that deletes superseded snapshots from the state topic (DeleteRecords); it may be late, never early."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._admin = Admin(connection, patience_ms=10_000)
        self._topic = topic
        self._wanted: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sketchstream-kafka-eraser", daemon=True)
        self._thread.start()

    def erase(self, partition: int, before: int) -> None:
        """Delete everything of this partition before that offset, which is superseded."""
        with self._lock:
            self._wanted[partition] = max(before, self._wanted.get(partition, 0))

    def restart(self, partition: int) -> None:
        """Forget the offsets of a topic that was deleted and created again."""
        with self._lock:
            self._wanted.pop(partition, None)
            self._done.pop(partition, None)

    def _run(self) -> None:
        while not self._stopped.wait(ERASE_EVERY_S):
            self._round()
        self._round()

    def _round(self) -> None:
        with self._lock:
            due = {p: o for p, o in self._wanted.items() if o > self._done.get(p, 0)}
        if not due:
            return
        try:
            self._admin.delete_before(self._topic, due)
            with self._lock:
                self._done.update({p: o for p, o in due.items() if self._wanted.get(p, 0) >= o})
        except Exception as error:  # a thread that died would leave superseded states readable for ever
            reason = type(error.__cause__ or error).__name__
            event_log.warning("erase_delayed", topic=self._topic, error=reason)

    def close(self) -> None:
        """Run a last round, and end the thread."""
        self._stopped.set()
        self._thread.join(timeout=15)
        self._admin.close()
