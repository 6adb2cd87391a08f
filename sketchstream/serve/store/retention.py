"""Retention: windows that are older than the service keeps them are dropped with all that is stored of them.

In: how long windows are kept. Out: the number of windows that were dropped. Touches: the database, in the transaction
of its caller.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from sketchstream.errors import FormatError
from sketchstream.serve.store.reader import SPAN
from sketchstream.serve.store.source import LATEST
from sketchstream.serve.store.window_rows import WindowRows
from sketchstream.wire import claimed_header, noise_names

DROPPED: Final = 64
"""Most windows that are dropped in one transaction: that takes less than 0.1 s, in which nothing else is stored."""


class Retention:
    """Drops windows that end long before the newest one.

    Args:
        connection: connection of the database that writes.
        rows: rows of the windows.
        kept_ms: how long before the newest one the windows end that are kept; None: all are kept.
    """

    def __init__(self, connection: sqlite3.Connection, rows: WindowRows, kept_ms: int | None) -> None:
        self._execute, self._rows, self._kept_ms = connection.execute, rows, kept_ms

    def horizon(self, sketch: int) -> int:
        """Windows that end before this are not kept."""
        if self._kept_ms is None:
            return -LATEST
        (newest,) = self._execute("SELECT max(start) FROM windows WHERE sketch = ?", (sketch,)).fetchone()
        return -LATEST if newest is None else newest - self._kept_ms

    def drop(self, sketch: int) -> int:
        """Drop at most `DROPPED` windows of one sketch that are older than the retention; returns their number."""
        horizon = self.horizon(sketch)
        rows = self._execute(
            "SELECT DISTINCT start, stop FROM windows WHERE sketch = ? AND start < ? AND stop < ?"
            " ORDER BY start LIMIT ?",
            (sketch, horizon, horizon, DROPPED),
        ).fetchall()
        for start, stop in rows:
            place = (sketch, start, stop)
            bodies = self._execute(f"SELECT body FROM bodies WHERE {SPAN}", place).fetchall()
            for (body,) in bodies:
                self._forget_noises(body)
            for table in ("bodies", "costs", "windows", "points"):
                self._execute(f"DELETE FROM {table} WHERE {SPAN}", place)
            self._rows.reassemble_next(sketch, stop)
        for table in ("answers", "instalments", "early"):
            self._execute(f"DELETE FROM {table} WHERE sketch = ? AND stop < ?", (sketch, horizon))
        self._execute("DELETE FROM incidents WHERE sketch = ? AND start < ?", (sketch, horizon))
        return len(rows)

    def _forget_noises(self, body: bytes) -> None:
        """Forget which noise a body has, as nothing is compared with it any longer."""
        try:
            names = noise_names(claimed_header(body))
        except FormatError:
            return
        for name in names:
            self._execute("DELETE FROM noises WHERE name = ?", (name,))
