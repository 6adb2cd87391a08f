"""Assembly of windows from what is stored of their partitions, by the reader that the command line uses.

In: windows whose publications have changed. Out: their rows: facts, completeness, what remains to be computed.
Touches: the database, in the transaction of its caller.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import orjson

from sketchstream.errors import DataLossError, FormatError, IncidentError
from sketchstream.kinds import continuing_kind
from sketchstream.query.estimates import knows_names
from sketchstream.query.sealed import SealedReader, SealedWindow, Span
from sketchstream.serve.store.intake import FeedIntake
from sketchstream.serve.store.numbering import Numbering
from sketchstream.serve.store.reader import SPAN
from sketchstream.serve.store.source import StoreSource
from sketchstream.serve.store.stored_windows import GUARANTEE, MISSING, NEW, NOTHING, NUMBERS, SETTLED, answer_key
from sketchstream.serve.store.window_rows import WindowRows

if TYPE_CHECKING:
    from sketchstream.config.loader import Config


class Assembly:
    """Puts windows together.

    Args:
        connection: connection of the database that writes.
        numbering: numbers of the sketches.
        rows: rows of the windows.
        intake: forgets what a seal repeats.
        config: configuration of the deployment.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        numbering: Numbering,
        rows: WindowRows,
        intake: FeedIntake,
        config: Config,
    ) -> None:
        self._execute, self._numbering, self._rows, self._intake = connection.execute, numbering, rows, intake
        self._config = config
        self._version = version("sketchstream")
        rule, topics = config.quality_rule, len(config.per_topic())
        self._reader = SealedReader(StoreSource(connection), rule, topics)
        self._shown = SealedReader(StoreSource(connection, incidents=False), rule, topics)

    def assemble(self, limit: int) -> int:
        """Assemble windows that have changed, newest first.

        Args:
            limit: most of them.

        Returns:
            How many; 0: none are left.
        """
        rows = self._execute(
            "SELECT sketch, start, stop FROM windows WHERE state = ? ORDER BY sketch, start DESC LIMIT ?",
            (NEW, limit),
        ).fetchall()
        for sketch in sorted({row[0] for row in rows}):
            self._assemble(sketch, sorted(row[1:] for row in rows if row[0] == sketch))
        return len(rows)

    def _assemble(self, sketch: int, spans: Sequence[Span]) -> None:
        """Assemble windows of one sketch: neighbours at once, others one by one."""
        name, stale = self._numbering.names[sketch], set(spans)
        first, last = spans[0][0], max(stop for _, stop in spans)
        (count,) = self._execute(
            "SELECT count(*) FROM windows WHERE sketch = ? AND start >= ? AND start < ?", (sketch, first, last)
        ).fetchone()
        ranges = [(first, last)] if count <= 2 * len(spans) else list(spans)
        early = any(plan.name == name and plan.early is not None for plan in self._config.sketches)
        try:
            for since, until in ranges:
                for window in self._reader.windows(name, since, until, early=early):
                    if window.window in stale:
                        stale.remove(window.window)
                        self._put(sketch, window)
        except (DataLossError, FormatError) as error:
            if len(ranges) == len(spans) == 1:
                what = error.what if isinstance(error, IncidentError) else str(error)
                self._rows.report(sketch, spans[0][0], what)
                return
            for span in sorted(stale):
                self._assemble(sketch, [span])
            return
        for start, stop in stale:  # windows of a void revision, or dropped ones
            self._execute(f"DELETE FROM windows WHERE {SPAN}", (sketch, start, stop))
            self._rows.reassemble_next(sketch, stop)

    def _put(self, sketch: int, window: SealedWindow) -> None:
        """Store the row of a window that was put together."""
        place = (sketch, *window.window)
        reported = self._execute(
            "SELECT text FROM incidents WHERE sketch = ? AND start = ? LIMIT 1", place[:2]
        ).fetchone()
        if reported is not None:
            self._rows.report(*place[:2], reported[0])
            return
        digest = self._input(sketch, window)
        state = MISSING if window.missing else SETTLED
        answered = self._execute("SELECT 1 FROM answers WHERE input = ?", (answer_key(digest, ""),)).fetchone()
        row = self._execute(
            f"SELECT input, guarantee, guarantee_alone, failure FROM windows WHERE {SPAN}", place
        ).fetchone()
        same = row is not None and row[0] == digest
        guarantee, alone, failure = row[1:] if same else (None, None, None)
        todo = NUMBERS if answered is None else GUARANTEE if guarantee is None else NOTHING
        if window.groups or failure is not None or state != SETTLED:  # answers of groups are computed on request
            todo = NOTHING
        facts = orjson.dumps(window.fields()).decode()
        self._execute(
            "UPDATE windows SET version = version + 1, state = ?, todo = ?, input = ?, facts = ?, status = ?,"
            f" guarantee = ?, guarantee_alone = ?, failure = ? WHERE {SPAN}",
            (state, todo, digest, facts, window.describe(), guarantee, alone, failure, *place),
        )
        if not same:
            self._execute(f"DELETE FROM points WHERE {SPAN}", place)
        if state == SETTLED:
            self._intake.forget_instalments(sketch, window.window, window.revision)

    def _input(self, sketch: int, window: SealedWindow) -> bytes:
        """Digest of the inputs of a window's usual answer, except for the guarantee."""
        digest = hashlib.blake2b(digest_size=16, person=b"sketch-input")
        keyed = self._config.input.partitioned_by != "none"
        digest.update(f"{self._version} {window.whole} {window.repartitioned} {keyed}".encode())
        if not knows_names(self._config.find(window.sketch), window.parts[0].spec):
            digest.update(b"without names")
        former = self._shown.before(window) if continuing_kind(window.parts[0].spec) else None
        for part in (window,) if former is None else (window, former):
            rows = self._execute(
                f"SELECT partition, digest FROM bodies WHERE {SPAN} AND revision = ? ORDER BY partition, digest",
                (sketch, *part.window, part.revision),
            )
            digest.update(part.window[0].to_bytes(8, "big", signed=True))
            for partition, body in rows:
                digest.update(partition.to_bytes(4, "big") + body)
        for partition, time_ms in sorted(window.early.items()):
            digest.update(f"early {partition} {time_ms}".encode())
        return digest.digest()
