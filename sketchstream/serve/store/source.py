"""What is published, read from the database of the store.

In: a connection of the database. Out: a `SealedSource` over it. Touches: nothing; it only reads the database.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from sketchstream.serve.store.database import DamagedError
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream.stream.published.evidence import PublishedEvidence
from sketchstream.stream.published.frontiers import EVIDENCE
from sketchstream.stream.windows.window_ranges import Mark

LATEST: Final = 2**62
"""A time (ms) later than any window."""
IN_RANGE: Final = "start >= ? AND start < ? AND stop <= ?"
"""SQL condition of windows in a range of time; `range_of` gives the values of its parameters."""


class StoreSource:
    """A `SealedSource` over a database.

    Args:
        connection: connection of the database.
        incidents: whether publications of windows with an incident are read too.
    """

    def __init__(self, connection: sqlite3.Connection, *, incidents: bool = True) -> None:
        self._connection = connection
        self._incidents = incidents

    def sketches(self) -> Sequence[str]:
        """Names of the sketches with stored publications."""
        return [name for (name,) in self._connection.execute("SELECT name FROM sketches ORDER BY name")]

    def frontiers(self, sketch: str | None = None) -> Sequence[Frontier]:
        """Newest frontier of each (sketch, revision, partition)."""
        where, values = ("", ()) if sketch is None else (" WHERE s.name = ?", (sketch,))
        rows = self._connection.execute(
            f"SELECT s.name, f.value FROM frontiers f JOIN sketches s ON s.id = f.sketch{where}", values
        )
        return [read_frontier(name, value) for name, value in rows.fetchall()]

    def closed(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Instalments of windows that are not sealed in all partitions: the sealed sketches hold the same words."""
        rows = self._connection.execute(
            "SELECT i.revision, i.start, i.stop, i.partition, i.seal_id, i.body, i.first, i.last FROM instalments i"
            f" JOIN sketches s ON s.id = i.sketch WHERE s.name = ? AND {IN_RANGE}"
            " AND (? OR NOT EXISTS (SELECT 1 FROM incidents n WHERE n.sketch = i.sketch AND n.start = i.start))"
            " ORDER BY i.start, i.stop, i.partition, i.first",
            (sketch, *range_of(since, until), self._incidents),
        )
        for revision, start, stop, partition, seal_id, body, first, last in rows:
            yield SealedEntry(sketch, revision, (start, stop), partition, seal_id, body, (first, last))

    def early(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """The newest release of each partition from windows that are not sealed in it."""
        rows = self._connection.execute(
            "SELECT e.revision, e.start, e.stop, e.partition, e.seal_id, e.body, e.time, e.digest FROM early e"
            f" JOIN sketches s ON s.id = e.sketch WHERE s.name = ? AND {IN_RANGE}"
            " ORDER BY e.start, e.stop, e.time, e.partition",
            (sketch, *range_of(since, until)),
        )
        for revision, start, stop, partition, seal_id, body, time_ms, digest in rows:
            if not is_intact(body, digest):
                raise DamagedError
            yield SealedEntry(sketch, revision, (start, stop), partition, seal_id, body, early=time_ms)

    def read(
        self, sketch: str | None = None, since: int | None = None, until: int | None = None
    ) -> Iterator[Frontier | SealedEntry | Deleted]:
        """Frontiers, deletions, then entries by sketch and ascending windows."""
        yield from self.frontiers(sketch)
        execute = self._connection.execute
        for name in self.sketches() if sketch is None else [sketch]:
            row = execute("SELECT id FROM sketches WHERE name = ?", (name,)).fetchone()
            if row is None:
                continue
            gone = execute("SELECT partition, through FROM deleted WHERE sketch = ?", row).fetchall()
            for partition, through in gone:
                yield Deleted(name, partition, through)
            rows = execute(
                "SELECT start, stop, revision, partition, seal_id, body, digest FROM bodies i"
                f" WHERE sketch = ? AND {IN_RANGE}"
                " AND (? OR NOT EXISTS (SELECT 1 FROM incidents n WHERE n.sketch = i.sketch AND n.start = i.start))"
                " ORDER BY start, stop, revision, partition, digest",
                (*row, *range_of(since, until), self._incidents),
            )
            for start, stop, revision, partition, seal_id, body, digest in rows:
                if not is_intact(body, digest):  # it differs from the publication: not an incident, but a damaged page
                    raise DamagedError
                yield SealedEntry(name, revision, (start, stop), partition, seal_id, body)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def digest_of(data: bytes) -> bytes:
    """Digest of a stored value."""
    return hashlib.blake2b(data, digest_size=16).digest()


def is_intact(data: object, digest: object) -> bool:
    """Whether a stored value has its digest. SQLite notices a damaged page only where its structure is wrong."""
    return isinstance(data, bytes) and digest_of(data) == digest


def range_of(since: int | None, until: int | None) -> tuple[int, int, int]:
    """The values of the parameters of `IN_RANGE`."""
    last = LATEST if until is None else until
    return -LATEST if since is None else since, last, last


def read_frontier(sketch: str, value: str) -> Frontier:
    """Read a frontier as it was stored."""
    fields: dict[str, Any] = orjson.loads(value)
    fields |= {name: Mark(**fields[name]) for name in ("partial", "diverged")}
    evidence = fields.pop(EVIDENCE, None)
    read = None if evidence is None else PublishedEvidence.read(evidence)
    return Frontier(**(fields | {"sketch": sketch}), evidence=read)
