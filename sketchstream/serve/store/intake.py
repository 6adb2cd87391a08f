"""Intake of what a feed brings: sealed sketches, closed positions, early releases, frontiers.

In: entries and frontiers of a feed. Out: rows of the database; what is published twice, or with the noise of another
publication, becomes an incident. Touches: the database, in the transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import orjson

from sketchstream.errors import FormatError
from sketchstream.query.evidence import forgets
from sketchstream.query.sealed import Span, published_twice, shared_noise
from sketchstream.serve.store.ledgers import NO_SHAPE, Ledgers, Place, parts_of
from sketchstream.serve.store.numbering import Numbering
from sketchstream.serve.store.reader import SPAN
from sketchstream.serve.store.source import digest_of, read_frontier
from sketchstream.serve.store.stored_windows import MISSING, SETTLED
from sketchstream.serve.store.window_rows import WindowRows
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream.stream.published.frontiers import EVIDENCE
from sketchstream.stream.windows.calendar import iso
from sketchstream.wire import claimed_header, noise_names

OF_PARTITION: Final = f"{SPAN} AND revision = ? AND partition = ?"
"""SQL condition of what one partition has published of a window."""


class FeedIntake:
    """Stores what is published.

    Args:
        connection: connection of the database that writes.
        numbering: numbers of sketches and shapes.
        rows: rows of the windows.
    """

    def __init__(self, connection: sqlite3.Connection, numbering: Numbering, rows: WindowRows) -> None:
        self._connection, self._execute, self._numbering, self._rows = connection, connection.execute, numbering, rows

    def take_body(self, entry: SealedEntry) -> set[Place]:
        """Store an entry; returns the keys whose ledger changes, none for a repetition."""
        sketch = self._numbering.sketch(self._execute, entry.sketch)
        (start, stop), body = entry.window, entry.body
        digest = digest_of(body)
        place = (sketch, start, stop, entry.revision, entry.partition)
        header = _claimed_header(body)
        updated = self._execute(
            "INSERT OR IGNORE INTO bodies (sketch, start, stop, revision, partition, digest, seal_id, shape, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, digest, entry.seal_id, self._numbering.shape(self._execute, header), body),
        )
        if not updated.rowcount:
            return set()
        self._rows.reassemble_window(sketch, entry.window)
        self._execute(f"DELETE FROM early WHERE {SPAN} AND revision <= ? AND partition = ?", place)
        self._rows.reassemble_next(sketch, stop)
        touched = {(sketch, start, stop, entry.revision)}
        touched |= self._note_noises(sketch, start, digest, header, entry.key)
        (same,) = self._execute(
            "SELECT count(*) FROM bodies WHERE sketch = ? AND start = ? AND revision = ? AND partition = ?",
            (sketch, start, entry.revision, entry.partition),
        ).fetchone()
        if same > 1:
            self._rows.report(sketch, start, published_twice(entry.key))
        return touched

    def put_costs(self, place: Place) -> None:
        """Store the costs of the publications of one window and revision."""
        rows = self._execute(f"SELECT partition, shape FROM bodies WHERE {SPAN} AND revision = ?", place)
        self._execute("INSERT OR REPLACE INTO costs VALUES (?, ?, ?, ?, ?)", (*place, parts_of(rows.fetchall())))

    def take_instalment(self, entry: SealedEntry) -> bool:
        """Store positions that closed; gives whether the ledger changes: the first ones, and those of a copied state.

        Of a final window only those are kept that its sealed sketches cannot have published.
        """
        assert entry.positions is not None
        sketch = self._numbering.sketch(self._execute, entry.sketch)
        settled = self._execute(
            "SELECT 1 FROM windows w JOIN bodies b USING (sketch, start, stop)"
            " WHERE w.sketch = ? AND w.start = ? AND w.stop = ? AND w.state = ? AND b.revision >= ? LIMIT 1",
            (sketch, *entry.window, SETTLED, entry.revision),
        ).fetchone()
        place = (sketch, *entry.window, entry.revision, entry.partition)
        before = self._execute(f"SELECT 1 FROM instalments WHERE {OF_PARTITION}", place).fetchone()
        digest = digest_of(entry.body)
        self._execute(
            "INSERT OR IGNORE INTO instalments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, *entry.positions, digest, entry.seal_id, entry.body),
        )
        if settled is not None:
            return self.forget_instalments(sketch, entry.window, entry.revision)
        first, last = entry.positions
        doubtful = self._execute(
            f"SELECT 1 FROM instalments WHERE {OF_PARTITION} AND first < ? AND last > ? AND digest != ?"
            f" UNION ALL SELECT 1 FROM bodies WHERE {OF_PARTITION}",
            (*place, last, first, digest, *place),
        ).fetchone()
        return before is None or (doubtful is not None and Ledgers(self._connection).copied(*place[:4]))

    def take_early(self, entry: SealedEntry) -> None:
        """Store a release from an open window in place of an earlier one, unless the window is sealed there."""
        sketch = self._numbering.sketch(self._execute, entry.sketch)
        (start, stop), digest = entry.window, digest_of(entry.body)
        place = (sketch, start, stop, entry.revision, entry.partition)
        sealed = self._execute(
            f"SELECT 1 FROM bodies WHERE {SPAN} AND revision >= ? AND partition = ?", place
        ).fetchone()
        if sealed is not None:
            return
        stored = self._execute(
            "INSERT INTO early VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET time = excluded.time,"
            " digest = excluded.digest, seal_id = excluded.seal_id, body = excluded.body WHERE excluded.time > time",
            (*place, entry.early, digest, entry.seal_id, entry.body),
        )
        if stored.rowcount:
            self._rows.reassemble_window(sketch, entry.window)

    def forget_instalments(self, sketch: int, window: Span, revision: int) -> bool:
        """Delete the instalments of a final window, which its seal repeats; those that it does not repeat are kept.

        Returns:
            Whether some were kept: copies of a state were published, an incident.
        """
        stored = self._execute(
            f"SELECT DISTINCT revision FROM instalments WHERE {SPAN} AND revision <= ?", (sketch, *window, revision)
        ).fetchall()
        copied = False
        for (former,) in stored:
            if Ledgers(self._connection).copied(sketch, *window, former):
                self._rows.report(
                    sketch, window[0], shared_noise(f"{self._numbering.names[sketch]}, an early position")
                )
                copied = True
            else:
                self._execute(f"DELETE FROM instalments WHERE {SPAN} AND revision = ?", (sketch, *window, former))
        return copied

    def _note_noises(self, sketch: int, start: int, digest: bytes, header: Mapping[str, Any], key: str) -> set[Place]:
        """Store the noise ids of a body; if another body has the same noise, report it and return both keys."""
        shared: set[Place] = set()
        try:
            names = noise_names(header)
        except FormatError:
            return shared  # the reader refuses the window
        for name in names:
            row = self._execute("SELECT sketch, start, body FROM noises WHERE name = ?", (name,)).fetchone()
            if row is None:
                self._execute("INSERT INTO noises VALUES (?, ?, ?, ?)", (name, sketch, start, digest))
            elif row[2] != digest:
                for number, at in {(sketch, start), row[:2]}:
                    # each by its own name: who sees one of the two sketches may not know the other one
                    name_of_window = (
                        key if (number, at) == (sketch, start) else f"{self._numbering.names[number]} at {iso(at)}"
                    )
                    self._rows.report(number, at, shared_noise(name_of_window))
                for of_noise in ((sketch, start, digest), row):
                    updated = self._execute(
                        "UPDATE bodies SET shape = ? WHERE sketch = ? AND start = ? AND digest = ?"
                        " RETURNING sketch, start, stop, revision",
                        (NO_SHAPE, *of_noise),
                    )
                    shared |= set(updated.fetchall())
        return shared

    def take_deletion(self, deletion: Deleted) -> None:
        """Note until when the publications of a partition were deleted from the feed."""
        sketch = self._numbering.sketch(self._execute, deletion.sketch)
        self._execute(
            "INSERT INTO deleted VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET through = max(through, ?)",
            (sketch, deletion.partition, deletion.through, deletion.through),
        )
        self._rows.reassemble(sketch, "state IN (?, ?)", MISSING, SETTLED)

    def take_frontier(self, frontier: Frontier) -> None:
        """Store a frontier, unless a newer one is stored; windows of which it says something new change with it."""
        sketch = self._numbering.sketch(self._execute, frontier.sketch)
        place = (sketch, frontier.revision, frontier.partition)
        row = self._execute(
            "SELECT value FROM frontiers WHERE sketch = ? AND revision = ? AND partition = ?", place
        ).fetchone()
        former = None if row is None else read_frontier(frontier.sketch, row[0])
        if former is not None and former.sequence >= frontier.sequence:
            return
        fields = asdict(replace(frontier, evidence=None))
        fields[EVIDENCE] = None if frontier.evidence is None else frontier.evidence.fields()
        value = orjson.dumps(fields).decode()
        self._execute("INSERT OR REPLACE INTO frontiers VALUES (?, ?, ?, ?, ?)", (*place, frontier.sequence, value))
        if (
            former is None
            or any(getattr(former, name) != getattr(frontier, name) for name in ("partitions", "partial", "diverged"))
            or forgets(former.evidence) != forgets(frontier.evidence)
        ):
            # frontiers speak of all windows of a sketch
            self._rows.reassemble(sketch, "state IN (?, ?)", MISSING, SETTLED)
        else:
            for start, stop in _changed_evidence(former, frontier):
                self._rows.reassemble(sketch, "state = ? AND start = ? AND stop = ?", SETTLED, start, stop)
            for stop in self._rows.reassemble(sketch, "state = ? AND stop <= ?", MISSING, frontier.published_through):
                self._rows.reassemble_next(sketch, stop)


def _claimed_header(body: bytes) -> dict[str, Any]:
    """The header of a body, not verified; empty if it cannot be read."""
    try:
        return claimed_header(body)
    except FormatError:
        return {}


def _changed_evidence(former: Frontier, frontier: Frontier) -> list[Span]:
    """Windows of which a frontier says something else than the one before."""
    if frontier.evidence is None:
        return []
    before = {} if former.evidence is None else former.evidence.every()
    return [window for window, shown in frontier.evidence.every().items() if before.get(window) != shown]
