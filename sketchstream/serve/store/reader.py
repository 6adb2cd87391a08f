"""What everybody may read of the store: windows, answers, numbers, incidents, and how much of each there is.

In: a path of a database. Out: windows and answers. Touches: the database, reading, from any number of threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from sketchstream.errors import BusyError
from sketchstream.log_events import EventLog
from sketchstream.query.sealed import Span
from sketchstream.serve.store.database import DamagedError, Readers, is_damaged
from sketchstream.serve.store.numbering import Numbering
from sketchstream.serve.store.source import IN_RANGE, is_intact, range_of
from sketchstream.serve.store.stored_windows import INCIDENT, SETTLED, StoredWindow, answer_key

event_log = EventLog("sketchstream.serve")

MAX_KEYS: Final = 500
"""Most answers that one query looks for: SQLite takes 999 values in its smallest build."""
SPAN: Final = "sketch = ? AND start = ? AND stop = ?"
"""SQL condition of one window."""
COLUMNS: Final = (
    "sketch, start, stop, version, state, input, facts, coalesce(status, ''), guarantee, guarantee_alone, failure, todo"
)
"""Columns from which a `StoredWindow` is made."""


class StoreReader:
    """Reads the store of one service.

    Args:
        path: path of the database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = False
        """Whether the database has to be filled again, by the thread that follows the feed."""
        self.rebuilds = 0
        """How often the database was filled again."""
        self._numbering = Numbering()
        self._readers = Readers(path, self._note_error)

    def _note_error(self, error: sqlite3.Error) -> None:
        """Note an error of the database."""
        if is_damaged(error):
            self.note_damage(self.rebuilds)  # readers of the one before are not heard

    def note_damage(self, rebuilds: int) -> None:
        """Have the database filled again by the thread that follows the feed.

        Args:
            rebuilds: `rebuilds` when the database was opened, or read: a report on the one before says nothing.
        """
        if rebuilds != self.rebuilds:
            return
        if not self.damaged:
            event_log.error("database_damaged", path=self.path)
        self.damaged = True

    @property
    def size(self) -> int:
        """Bytes of the database and its journal."""
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection for reading, for the present thread until the end of the block."""
        return self._readers.use()

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""
        with self._readers.use() as connection:
            return connection.execute(query, values).fetchall()

    def positions(self) -> dict[str, str]:
        """Positions from which the feed continues, by topic partition or file."""
        return dict(self._rows("SELECT name, value FROM positions"))

    def sketches(self) -> list[str]:
        """Names of the sketches with stored publications."""
        return sorted(self._numbering.ids)

    def windows(
        self,
        sketch: str,
        since: int | None = None,
        until: int | None = None,
        *,
        limit: int = -1,
        newest: bool = False,
        after: Span | None = None,
    ) -> list[StoredWindow]:
        """Windows in a range of time: those that begin at `since` or later and end by `until`.

        Args:
            sketch: name of the sketch.
            since: ms since 1970; None: from the first window.
            until: ms since 1970; None: to the last window.
            limit: most that are given; -1: all.
            newest: the newest first; else ascending.
            after: only windows that come after this one in that order.
        """
        order, sign = ("DESC", "<") if newest else ("ASC", ">")
        further, values = ("", ()) if after is None else (f" AND (start, stop) {sign} (?, ?)", after)
        rows = self._rows(
            f"SELECT {COLUMNS} FROM windows WHERE sketch = ? AND {IN_RANGE}{further}"
            f" ORDER BY start {order}, stop {order} LIMIT ?",
            (self._numbering.ids.get(sketch), *range_of(since, until), *values, limit),
        )
        return [self._stored(row) for row in rows]

    def window(self, sketch: str, window: Span) -> StoredWindow | None:
        """Find one window; None if nothing of it is stored."""
        return next((stored for stored in self.windows(sketch, *window) if stored.window == window), None)

    def next_todo(self, running: Iterable[tuple[str, Span]] = ()) -> StoredWindow | None:
        """The newest window with remaining computations.

        Args:
            running: windows that are being computed.
        """
        busy = set(running)
        rows = self._rows(
            f"SELECT {COLUMNS} FROM windows INDEXED BY windows_todo WHERE todo > 0 ORDER BY stop DESC LIMIT ?",
            (len(busy) + 1,),
        )
        return next((stored for stored in map(self._stored, rows) if (stored.sketch, stored.window) not in busy), None)

    def _stored(self, row: Sequence[Any]) -> StoredWindow:
        sketch, start, stop, *rest = row
        return StoredWindow(self._name(sketch), (start, stop), *rest)

    def _name(self, sketch: int) -> str:
        """Name of a sketch whose number was read just now."""
        name = self._numbering.names.get(sketch)
        if name is None:
            raise BusyError("the database was replaced while it was read: ask again")
        return name

    def answer_json(self, stored: StoredWindow, question: str = "") -> bytes | None:
        """A stored answer as JSON, without facts and guarantee; None: not computed."""
        return self._answer(stored, question, "numbers")

    def answered(self, windows: Iterable[StoredWindow], question: str = "") -> set[bytes]:
        """Inputs of the windows of which an answer is stored; it is not read."""
        inputs = {answer_key(window.input, question): window.input for window in windows if window.input is not None}
        keys, answered = list(inputs), set[bytes]()
        for start in range(0, len(keys), MAX_KEYS):
            chunk = keys[start : start + MAX_KEYS]
            rows = self._rows(f"SELECT input FROM answers WHERE input IN ({', '.join('?' * len(chunk))})", chunk)
            answered |= {inputs[bytes(key)] for (key,) in rows}
        return answered

    def answer_csv(self, stored: StoredWindow, question: str = "") -> bytes | None:
        """A stored answer as CSV; None: not computed."""
        return self._answer(stored, question, "csv")

    def _answer(self, stored: StoredWindow, question: str, column: str) -> bytes | None:
        if stored.input is None:
            return None
        rebuilds = self.rebuilds
        rows = self._rows(
            f"SELECT {column}, digest FROM answers WHERE input = ?", (answer_key(stored.input, question),)
        )
        if not rows:
            return None
        ((text, digest),) = rows
        half = len(digest) // 2
        if not is_intact(text, digest[:half] if column == "numbers" else digest[half:]):
            self.note_damage(rebuilds)
            raise DamagedError
        return bytes(text)

    def points(
        self, sketch: str, metric: str, since: int | None = None, until: int | None = None
    ) -> dict[Span, tuple[float | None, float | None, float | None, str | None]]:
        """Value, low and high of one number by window, as far as it is among the stored points.

        The last part of each is what the number is a bound of, see `Estimate`.
        """
        rows = self._rows(
            f"SELECT start, stop, value, low, high, bound FROM points WHERE sketch = ? AND metric = ? AND {IN_RANGE}",
            (self._numbering.ids.get(sketch), metric, *range_of(since, until)),
        )
        return {(start, stop): (value, low, high, bound) for start, stop, value, low, high, bound in rows}

    def points_of(self, stored: StoredWindow) -> dict[str, tuple[float | None, float | None, float | None]]:
        """Value, low and high of the numbers of one window that are kept for series, by name."""
        rows = self._rows(
            f"SELECT metric, value, low, high FROM points WHERE {SPAN} ORDER BY metric",
            (self._numbering.ids.get(stored.sketch), *stored.window),
        )
        return {metric: (value, low, high) for metric, value, low, high in rows}

    def incidents(self) -> list[tuple[str, int, str]]:
        """Sketch, window start (ms) and text of every incident, newest window first."""
        rows = self._rows("SELECT sketch, start, text FROM incidents ORDER BY start DESC, sketch")
        return [(self._name(number), start, text) for number, start, text in rows]

    def counts(self) -> dict[str, dict[str, int]]:
        """Numbers of windows of each sketch: all, the settled ones, those with something left to compute, incidents."""
        rows = self._rows(
            "SELECT sketch, sum(windows), sum((state = ?) * windows), sum(waiting * windows),"
            " sum((state = ?) * windows) FROM tally GROUP BY sketch HAVING sum(windows) > 0",
            (SETTLED, INCIDENT),
        )
        names = ("windows", "settled", "pending", "incidents")
        return {self._name(row[0]): dict(zip(names, row[1:], strict=True)) for row in rows}

    def pending(self) -> int:
        """Windows with something left to compute."""
        ((number,),) = self._rows("SELECT total(windows) FROM tally WHERE waiting")
        return int(number)
