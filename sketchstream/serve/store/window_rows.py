"""Rows of windows: which have to be put together again, or need another guarantee, and which are incidents.

In: changes of what is published. Out: states of windows in the database. Touches: the database, in the transaction
of its caller.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from sketchstream.kinds import continuing_kind
from sketchstream.log_events import EventLog
from sketchstream.serve.store.numbering import Numbering
from sketchstream.serve.store.source import LATEST
from sketchstream.serve.store.stored_windows import GUARANTEE, INCIDENT, MISSING, NEW, SETTLED

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.query.sealed import Span

event_log = EventLog("sketchstream.serve")


class WindowRows:
    """The rows of all windows, as they depend on each other.

    Args:
        connection: connection of the database that writes.
        numbering: numbers of the sketches.
        config: configuration of the deployment.
    """

    def __init__(self, connection: sqlite3.Connection, numbering: Numbering, config: Config) -> None:
        self._execute, self._numbering = connection.execute, numbering
        self._separate = {plan.name for plan in config.sketches if not continuing_kind(plan.spec)}
        self._longest_windows = longest_windows(config)

    def reassemble(self, sketch: int, condition: str, *values: object) -> list[int]:
        """Have the windows of a sketch that a condition of SQL selects put together again; returns their ends."""
        updated = self._execute(
            "UPDATE windows SET state = ?, todo = 0, version = version + 1"
            f" WHERE sketch = ? AND {condition} RETURNING stop",
            (NEW, sketch, *values),
        )
        return [stop for (stop,) in updated.fetchall()]

    def reassemble_window(self, sketch: int, window: Span) -> None:
        """Have a window put together, because something new was published of it."""
        self._execute(
            "INSERT INTO windows (sketch, start, stop, version, state, todo) VALUES (?, ?, ?, 0, ?, 0)"
            " ON CONFLICT DO UPDATE SET state = excluded.state, todo = 0, version = version + 1",
            (sketch, *window, NEW),
        )

    def reassemble_next(self, sketch: int, stop: int) -> None:
        """Have the window that begins at `stop` put together again, if its answer may depend on the one before it."""
        if self._numbering.names[sketch] not in self._separate:
            self.reassemble(sketch, "state IN (?, ?) AND start = ?", MISSING, SETTLED, stop)

    def outdate_guarantees(self, condition: str = "", *values: object) -> None:
        """Have guarantees of settled windows computed again: all, or those that a condition of SQL selects."""
        self._execute(
            "UPDATE windows SET guarantee = NULL, version = version + 1, todo = max(todo, ?)"
            f" WHERE state = ? AND failure IS NULL{condition}",
            (GUARANTEE, SETTLED, *values),
        )

    def outdate_guarantees_at(self, span: Span) -> None:
        """Have guarantees computed again: that of a window depends on other publications about its time."""
        for sketch, name in self._numbering.names.items():
            longest = self._longest_windows.get(name, LATEST)
            condition = " AND sketch = ? AND start > ? AND start < ? AND stop > ?"
            self.outdate_guarantees(condition, sketch, span[0] - longest, span[1], span[0])

    def report(self, sketch: int, start: int, text: str) -> None:
        """Report an incident: these windows are no longer shown, and their computed answers are deleted."""
        inserted = self._execute("INSERT OR IGNORE INTO incidents VALUES (?, ?, ?)", (sketch, start, text))
        if inserted.rowcount:
            event_log.error("incident", sketch=self._numbering.names[sketch], window_start_ms=start)
        updated = self._execute(
            "UPDATE windows SET state = ?, todo = 0, version = version + 1, status = ?, facts = NULL, input = NULL,"
            " guarantee = NULL, guarantee_alone = NULL, failure = NULL WHERE sketch = ? AND start = ? RETURNING stop",
            (INCIDENT, f"incident: {text}", sketch, start),
        )
        self._execute("DELETE FROM points WHERE sketch = ? AND start = ?", (sketch, start))
        for (stop,) in updated.fetchall():
            self._execute("DELETE FROM answers WHERE sketch = ? AND stop = ?", (sketch, stop))
            self.reassemble_next(sketch, stop)


def longest_windows(config: Config) -> dict[str, int]:
    """For each sketch, a length (ms) that none of its windows exceeds."""
    return {plan.name: 2 * plan.shortest_ms for plan in config.sketches}
