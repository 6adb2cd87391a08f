"""The store of published sketches: bodies, windows, completeness, incidents, and the answers computed so far.

In: batches of a feed, results of reconstructions. Out: rows of its database, which `reader.py` gives out.
Touches: the database. One thread at a time writes; any number read.

`Store` owns the connection that writes, and makes each change one transaction. What a batch changes is decided in
`intake.py`, how a window is put together in `assembly.py`, which windows that concerns in `window_rows.py`, and what is
dropped in `retention.py`. An answer is stored under a digest of everything that it is a function of: the published
bodies, what is known of the window, the question, and the version of this package.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sketchstream.errors import StoreError
from sketchstream.log_events import EventLog
from sketchstream.query.sealed import Span
from sketchstream.serve.store.assembly import Assembly
from sketchstream.serve.store.database import FORMAT, DamagedError, lock, open_database, set_aside
from sketchstream.serve.store.intake import FeedIntake
from sketchstream.serve.store.ledgers import Place
from sketchstream.serve.store.reader import SPAN, StoreReader
from sketchstream.serve.store.retention import Retention
from sketchstream.serve.store.source import digest_of
from sketchstream.serve.store.stored_windows import GUARANTEE, INCIDENT, NEW, Computed, StoredWindow, answer_key
from sketchstream.serve.store.window_rows import WindowRows

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.feed import FeedBatch

event_log = EventLog("sketchstream.serve")

REFRESH: Final = 512
"""Most windows that are put together in one transaction."""
SPECIAL_BYTES: Final = 256 * 2**20
"""Most bytes of special answers."""


class Store(StoreReader):
    """The store of one service: written by its follower and its pool, read by everybody.

    Args:
        path: path of the database.
        config: configuration of the deployment.
        feed: names the topic or folder that fills it.
        retention_ms: windows that end this long before the newest one are dropped; None: all are kept.
        special_bytes: largest total size of answers with other methods or options.

    Raises:
        StoreError: the database cannot be used, or is of another deployment.
    """

    def __init__(
        self, path: Path, config: Config, feed: str, retention_ms: int | None = None, special_bytes: int = SPECIAL_BYTES
    ) -> None:
        super().__init__(path)
        self._special_bytes = special_bytes
        self.config = config
        self._retention_ms = retention_ms
        self._feed = feed
        self._lock = threading.RLock()
        self.changes = 0
        """A number that grows when what is published here changes."""
        self.generation = 0
        """A number that grows with every change of the database."""
        self.error: str | None = None
        """Why the last change could not be stored; None where it could."""
        self._locked = lock(path)
        try:
            try:
                self._open()
            except DamagedError:
                self.rebuild()
        except BaseException:
            os.close(self._locked)
            raise

    # ------------------------------------------------------------------ the database

    def _open(self) -> None:
        """Open the database, or make one."""
        self._write = open_database(self.path, write=True)
        self._window_rows = WindowRows(self._write, self._numbering, self.config)
        self._intake = FeedIntake(self._write, self._numbering, self._window_rows)
        self._assembly = Assembly(self._write, self._numbering, self._window_rows, self._intake, self.config)
        self._retention = Retention(self._write, self._window_rows, self._retention_ms)
        try:
            self._prepare(self._feed)
        except BaseException:
            self._write.close()
            raise

    def rebuild(self) -> None:
        """Set the database aside, and begin an empty one. The feed has everything, and is to be read from its start.

        Incidents stay: where a body was replaced in a folder, only the database knew both.
        """
        with self._lock:
            with contextlib.suppress(AttributeError, sqlite3.Error):
                self._write.close()
            incidents = _salvage(self.path)
            aside = set_aside(self.path)
            event_log.error("database_rebuilt", aside=aside, incidents=len(incidents))
            self._open()
            self._readers.close()  # not before: one that came in between would read the old database from then on
            with self._transaction() as execute:
                for name, start, text in incidents:
                    self._window_rows.report(self._numbering.sketch(execute, name), start, text)
            self.damaged = False
            self.rebuilds += 1
            self.changes += 1
            self.generation += 1

    # ------------------------------------------------------------------ writing

    def _prepare(self, feed: str) -> None:
        """Refuse a database of another format, or topic; forget what another configuration made, and failures.

        A failure may come from the configuration, the deadline or the memory of that time: each start tries again.
        """
        with self._transaction() as execute:
            meta = dict(execute("SELECT name, value FROM meta").fetchall())
            if meta.get("format", str(FORMAT)) != str(FORMAT):
                raise DamagedError
            if meta.get("feed", feed) != feed:
                raise StoreError(
                    f"{self.path} holds what was published in {meta['feed']}, and this configuration reads {feed}: "
                    "choose another serve.database, or remove it, and it is filled again"
                )
            now = f"{version('sketchstream')} {_config_digest(self.config)}"
            if meta.get("config", now) != now:
                execute("UPDATE windows SET state = ?, todo = 0, guarantee = NULL WHERE state != ?", (NEW, INCIDENT))
            execute("UPDATE windows SET state = ?, todo = 0, failure = NULL WHERE failure IS NOT NULL", (NEW,))
            for name, value in (("format", str(FORMAT)), ("feed", feed), ("config", now)):
                execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
            self._numbering.read(self._write)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A transaction that excludes others, and is stored whole or not at all.

        Raises:
            StoreError: it could not be stored: the disk is full, for example, or the database is damaged.
        """
        with self._lock:
            before = self._write.total_changes
            try:
                self._write.execute("BEGIN IMMEDIATE")
                yield self._write.execute
                self._write.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    if self._write.in_transaction:  # some errors have ended it
                        self._write.execute("ROLLBACK")
                    self._numbering.read(self._write)
                if isinstance(error, DamagedError):
                    self.note_damage(self.rebuilds)
                if isinstance(error, sqlite3.Error):
                    self._note_error(error)
                    self.error = f"the database cannot be written: {error}"
                    raise StoreError(self.error) from error
                raise
            if self._write.total_changes != before:
                self.error = None
                self.generation += 1

    def take(self, batch: FeedBatch) -> int:
        """Store a batch and the feed's next positions, in one transaction.

        Returns:
            New bodies.
        """
        bodies = 0
        with self._transaction() as execute:
            spans: set[Span] = set()
            places: set[Place] = set()
            for entry in batch.entries:
                if entry.window[1] < self._retention.horizon(self._numbering.sketch(execute, entry.sketch)):
                    continue
                if entry.positions is not None:
                    if self._intake.take_instalment(entry):
                        spans.add(entry.window)
                elif entry.early is not None:
                    self._intake.take_early(entry)
                elif touched := self._intake.take_body(entry):
                    bodies += 1
                    spans.add(entry.window)
                    places |= touched
            for place in places:
                self._intake.put_costs(place)
            for span in spans:
                self._window_rows.outdate_guarantees_at(span)
            for frontier in batch.frontiers:
                self._intake.take_frontier(frontier)
            for deletion in batch.deleted:
                self._intake.take_deletion(deletion)
            for bad in batch.unreadable:
                self._window_rows.report(self._numbering.sketch(execute, bad.sketch), bad.start, bad.text)
            self._write.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", list(batch.positions.items()))
        self.changes += bool(spans)
        return bodies

    def refresh(self, limit: int = REFRESH) -> int:
        """Assemble windows that have changed, newest first.

        Args:
            limit: most of them, as one transaction has them all.

        Returns:
            How many; 0: none are left.
        """
        with self._transaction():
            return self._assembly.assemble(limit)

    def put_answer(self, stored: StoredWindow, question: str, computed: Computed, *, special: bool = False) -> None:
        """Store an answer, unless the window has changed since the request.

        The oldest special answers are deleted when there are too many, as questions have no end.

        Args:
            stored: the window at the time of the request.
            question: canonical text of the question; empty for the usual one.
            computed: the answer.
            special: whether it is neither the usual answer of the window nor of a group.
        """
        numbers, csv = computed.json, computed.csv
        size, digest = len(numbers) + len(csv), digest_of(numbers) + digest_of(csv)
        with self._transaction() as execute:
            place = self._place_if_unchanged(execute, stored)
            if place is None or stored.input is None:
                return
            sketch, start, stop = place
            execute(
                "INSERT OR REPLACE INTO answers (input, sketch, stop, special, bytes, numbers, csv, digest)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (answer_key(stored.input, question), sketch, stop, special, size, numbers, csv, digest),
            )
            if special:
                self._forget_special(execute)
            execute(
                "UPDATE windows SET guarantee = ?, guarantee_alone = ?, failure = NULL,"
                f" todo = CASE WHEN ? THEN 0 ELSE todo END WHERE {SPAN}",
                (computed.guarantee, computed.guarantee_alone, not question, *place),
            )
            if not question:
                self._write.executemany(
                    "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    [(sketch, name, start, stop, *ends) for name, ends in computed.points.items()],
                )

    def _forget_special(self, execute: Any) -> None:
        """Delete the oldest special answers, until the rest is small enough."""
        rows = execute("SELECT id, bytes FROM answers INDEXED BY answers_special WHERE special ORDER BY id").fetchall()
        over = sum(size for _, size in rows) - self._special_bytes
        for number, size in rows:
            if over <= 0:
                break
            execute("DELETE FROM answers WHERE id = ?", (number,))
            over -= size

    def put_guarantee(self, stored: StoredWindow, computed: Computed) -> None:
        """Store a guarantee, unless the window has changed since; see `put_answer`."""
        with self._transaction() as execute:
            if (place := self._place_if_unchanged(execute, stored)) is not None:
                execute(
                    "UPDATE windows SET guarantee = ?, guarantee_alone = ?,"
                    f" todo = CASE WHEN todo = ? THEN 0 ELSE todo END WHERE {SPAN}",
                    (computed.guarantee, computed.guarantee_alone, GUARANTEE, *place),
                )

    def put_failure(self, stored: StoredWindow, text: str) -> None:
        """Store why a window has no usual answer; it is not computed again until it changes, or a restart."""
        with self._transaction() as execute:
            if (place := self._place_if_unchanged(execute, stored)) is not None:
                execute(f"UPDATE windows SET failure = ?, todo = 0, version = version + 1 WHERE {SPAN}", (text, *place))

    def _place_if_unchanged(self, execute: Any, stored: StoredWindow) -> tuple[int, int, int] | None:
        """Number of the sketch, start and end of a window; None if the window has changed since it was read."""
        place = (self._numbering.ids.get(stored.sketch, -1), *stored.window)
        row = execute(f"SELECT version FROM windows WHERE {SPAN}", place).fetchone()
        return place if row is not None and row[0] == stored.version else None

    def put_retention(self, retention_ms: float | None) -> None:
        """Note how long the input topic keeps records; guarantees that spoke otherwise are computed again."""
        value = "" if retention_ms is None else repr(retention_ms)
        with self._transaction() as execute:
            row = execute("SELECT value FROM meta WHERE name = 'input_retention_ms'").fetchone()
            if row is not None and row[0] == value:
                return
            execute("INSERT OR REPLACE INTO meta VALUES ('input_retention_ms', ?)", (value,))
            self._window_rows.outdate_guarantees()

    def retain(self) -> int:
        """Drop windows older than the retention; returns their number."""
        if self._retention_ms is None:
            return 0
        dropped = 0
        for sketch in list(self._numbering.names):
            with self._transaction():
                dropped += self._retention.drop(sketch)
        self.changes += dropped > 0
        return dropped

    def close(self) -> None:
        """Close all connections, and leave the database to another service."""
        with self._lock:
            self._readers.close()
            self._write.close()
            if self._locked >= 0:
                os.close(self._locked)
            self._locked = -1


def _salvage(path: Path) -> list[tuple[str, int, str]]:
    """Sketch, window start and text of the incidents in a damaged database, as far as they can be read."""
    try:
        connection = open_database(path)
    except StoreError:
        return []
    incidents: list[tuple[str, int, str]] = []
    with contextlib.closing(connection), contextlib.suppress(sqlite3.Error):
        for row in connection.execute(
            "SELECT s.name, i.start, i.text FROM incidents i JOIN sketches s ON s.id = i.sketch"
        ):
            if [type(value) for value in row] == [str, int, str]:
                incidents.append(row)
    return incidents


def _config_digest(config: Config) -> str:
    """Digest of all parts of a configuration that windows and guarantees depend on."""
    parts = (config.fingerprint, config.input, config.privacy, sorted(config.quality.items()))
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
