"""The store of published sketches: bodies, windows, completeness, incidents, and the answers computed so far.

In: batches of a feed, results of reconstructions. Out: rows of its database, which `reader.py` gives out.
Touches: the database. One thread at a time writes; any number read.
Windows are assembled by the same reader that the command line uses (`sketchstream.query.sealed`), from the
database as `sketchstream.serve.store.source` reads it. An answer is stored under a digest of everything that it is a
function of: the published bodies, what is known of the window, the question, and the version of this package.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from sketchstream.errors import DataLossError, FormatError, IncidentError, StoreError
from sketchstream.kinds import continuing_kind
from sketchstream.log_events import EventLog
from sketchstream.query.estimates import knows_names
from sketchstream.query.evidence import forgets
from sketchstream.query.sealed import SealedReader, SealedWindow, Span, published_twice, shared_noise
from sketchstream.serve.store.database import FORMAT, DamagedError, lock, open_database, set_aside
from sketchstream.serve.store.ledgers import NO_SHAPE, Ledgers, Place, parts_of, shape_of
from sketchstream.serve.store.reader import SPAN, StoreReader
from sketchstream.serve.store.source import LATEST, StoreSource, digest_of, read_frontier
from sketchstream.serve.store.stored_windows import (
    GUARANTEE,
    INCIDENT,
    MISSING,
    NEW,
    NOTHING,
    NUMBERS,
    SETTLED,
    Computed,
    StoredWindow,
    answer_key,
)
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.published.frontiers import EVIDENCE
from sketchstream.stream.windows.calendar import iso
from sketchstream.wire import claimed_header, noise_names

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.feed import FeedBatch

event_log = EventLog("sketchstream.serve")

REFRESH: Final = 512
"""Most windows that are put together in one transaction."""
DROPPED: Final = 64
"""Most windows that are dropped in one transaction: that takes less than 0.1 s, in which nothing else is stored."""
SPECIAL_BYTES: Final = 256 * 2**20
"""Most bytes of special answers."""
OF_PARTITION: Final = f"{SPAN} AND revision = ? AND partition = ?"
"""SQL condition of what one partition has published of a window."""


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
        self._shapes: dict[bytes, int] = {}
        self.changes = 0
        """A number that grows when what is published here changes."""
        self.generation = 0
        """A number that grows with every change of the database."""
        self.error: str | None = None
        """Why the last change could not be stored; None where it could."""
        self._separate = {plan.name for plan in config.sketches if not continuing_kind(plan.spec)}
        self._version = version("sketchstream")
        self._longest_windows = longest_windows(config)
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
        rule, topics = self.config.quality_rule, len(self.config.per_topic())
        self._reader = SealedReader(StoreSource(self._write), rule, topics)
        self._shown = SealedReader(StoreSource(self._write, incidents=False), rule, topics)
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
                    self._report(execute, self._sketch(execute, name), start, text)
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
            now = f"{self._version} {_config_digest(self.config)}"
            if meta.get("config", now) != now:
                execute("UPDATE windows SET state = ?, todo = 0, guarantee = NULL WHERE state != ?", (NEW, INCIDENT))
            execute("UPDATE windows SET state = ?, todo = 0, failure = NULL WHERE failure IS NOT NULL", (NEW,))
            for name, value in (("format", str(FORMAT)), ("feed", feed), ("config", now)):
                execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
            self._learn_numbers()

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
                    self._learn_numbers()
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

    def _learn_numbers(self) -> None:
        """Read which sketches and shapes have which numbers."""
        sketches = self._write.execute("SELECT id, name FROM sketches").fetchall()
        self._ids = {name: number for number, name in sketches}
        self._names = dict(sketches)
        self._shapes = dict(self._write.execute("SELECT shape, id FROM shapes").fetchall())

    def _sketch(self, execute: Any, name: str) -> int:
        """The number of a sketch."""
        if name not in self._ids:
            execute("INSERT OR IGNORE INTO sketches (name) VALUES (?)", (name,))
            (number,) = execute("SELECT id FROM sketches WHERE name = ?", (name,)).fetchone()
            self._ids[name], self._names[number] = number, name
        return self._ids[name]

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
                if entry.window[1] < self._horizon(execute, self._sketch(execute, entry.sketch)):
                    continue
                if entry.positions is not None:
                    if self._take_instalment(execute, entry):
                        spans.add(entry.window)
                elif entry.early is not None:
                    self._take_early(execute, entry)
                elif touched := self._take_entry(execute, entry):
                    bodies += 1
                    spans.add(entry.window)
                    places |= touched
            for place in places:
                self._count(execute, place)
            for span in spans:
                self._outdate_guarantees_at(execute, span)
            for frontier in batch.frontiers:
                self._take_frontier(execute, frontier)
            for deletion in batch.deleted:
                number = self._sketch(execute, deletion.sketch)
                execute(
                    "INSERT INTO deleted VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET through = max(through, ?)",
                    (number, deletion.partition, deletion.through, deletion.through),
                )
                _reassemble(execute, number, "state IN (?, ?)", MISSING, SETTLED)
            for bad in batch.unreadable:
                self._report(execute, self._sketch(execute, bad.sketch), bad.start, bad.text)
            execute_many = self._write.executemany
            execute_many("INSERT OR REPLACE INTO positions VALUES (?, ?)", list(batch.positions.items()))
        self.changes += bool(spans)
        return bodies

    def _take_entry(self, execute: Any, entry: SealedEntry) -> set[Place]:
        """Store an entry; returns the keys whose ledger changes, none for a repetition."""
        sketch = self._sketch(execute, entry.sketch)
        (start, stop), body = entry.window, entry.body
        digest = digest_of(body)
        place = (sketch, start, stop, entry.revision, entry.partition)
        header = _claimed_header(body)
        updated = execute(
            "INSERT OR IGNORE INTO bodies (sketch, start, stop, revision, partition, digest, seal_id, shape, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, digest, entry.seal_id, self._shape(execute, header), body),
        )
        if not updated.rowcount:
            return set()
        self._reassemble_window(execute, sketch, entry.window)
        execute(f"DELETE FROM early WHERE {SPAN} AND revision <= ? AND partition = ?", place)
        self._reassemble_next(execute, sketch, stop)
        touched = {(sketch, start, stop, entry.revision)}
        touched |= self._note_noises(execute, sketch, start, digest, header, entry.key)
        (same,) = execute(
            "SELECT count(*) FROM bodies WHERE sketch = ? AND start = ? AND revision = ? AND partition = ?",
            (sketch, start, entry.revision, entry.partition),
        ).fetchone()
        if same > 1:
            self._report(execute, sketch, start, published_twice(entry.key))
        return touched

    def _shape(self, execute: Any, header: Mapping[str, Any]) -> int:
        """The number of the shape of a ledger; see `sketchstream.serve.store.ledgers`."""
        shape = shape_of(header)
        if shape is None:
            return NO_SHAPE
        if shape not in self._shapes:
            execute("INSERT OR IGNORE INTO shapes (shape) VALUES (?)", (shape,))
            (self._shapes[shape],) = execute("SELECT id FROM shapes WHERE shape = ?", (shape,)).fetchone()
        return self._shapes[shape]

    def _count(self, execute: Any, place: Place) -> None:
        """Store the costs of the publications of one window and revision."""
        rows = execute(f"SELECT partition, shape FROM bodies WHERE {SPAN} AND revision = ?", place)
        execute("INSERT OR REPLACE INTO costs VALUES (?, ?, ?, ?, ?)", (*place, parts_of(rows.fetchall())))

    def _take_instalment(self, execute: Any, entry: SealedEntry) -> bool:
        """Store positions that closed; gives whether the ledger changes: the first ones, and those of a copied state.

        Of a final window only those are kept that its sealed sketches cannot have published.
        """
        assert entry.positions is not None
        sketch = self._sketch(execute, entry.sketch)
        settled = execute(
            "SELECT 1 FROM windows w JOIN bodies b USING (sketch, start, stop)"
            " WHERE w.sketch = ? AND w.start = ? AND w.stop = ? AND w.state = ? AND b.revision >= ? LIMIT 1",
            (sketch, *entry.window, SETTLED, entry.revision),
        ).fetchone()
        place = (sketch, *entry.window, entry.revision, entry.partition)
        before = execute(f"SELECT 1 FROM instalments WHERE {OF_PARTITION}", place).fetchone()
        digest = digest_of(entry.body)
        execute(
            "INSERT OR IGNORE INTO instalments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, *entry.positions, digest, entry.seal_id, entry.body),
        )
        if settled is not None:
            return self._forget_instalments(execute, sketch, entry.window, entry.revision)
        first, last = entry.positions
        doubtful = execute(
            f"SELECT 1 FROM instalments WHERE {OF_PARTITION} AND first < ? AND last > ? AND digest != ?"
            f" UNION ALL SELECT 1 FROM bodies WHERE {OF_PARTITION}",
            (*place, last, first, digest, *place),
        ).fetchone()
        return before is None or (doubtful is not None and Ledgers(self._write).copied(*place[:4]))

    def _take_early(self, execute: Any, entry: SealedEntry) -> None:
        """Store a release from an open window in place of an earlier one, unless the window is sealed there."""
        sketch = self._sketch(execute, entry.sketch)
        (start, stop), digest = entry.window, digest_of(entry.body)
        place = (sketch, start, stop, entry.revision, entry.partition)
        sealed = execute(f"SELECT 1 FROM bodies WHERE {SPAN} AND revision >= ? AND partition = ?", place).fetchone()
        if sealed is not None:
            return
        stored = execute(
            "INSERT INTO early VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET time = excluded.time,"
            " digest = excluded.digest, seal_id = excluded.seal_id, body = excluded.body WHERE excluded.time > time",
            (*place, entry.early, digest, entry.seal_id, entry.body),
        )
        if stored.rowcount:
            self._reassemble_window(execute, sketch, entry.window)

    def _reassemble_window(self, execute: Any, sketch: int, window: Span) -> None:
        """Have a window put together, because something new was published of it."""
        execute(
            "INSERT INTO windows (sketch, start, stop, version, state, todo) VALUES (?, ?, ?, 0, ?, 0)"
            " ON CONFLICT DO UPDATE SET state = excluded.state, todo = 0, version = version + 1",
            (sketch, *window, NEW),
        )

    def _forget_instalments(self, execute: Any, sketch: int, window: Span, revision: int) -> bool:
        """Delete the instalments of a final window, which its seal repeats; those that it does not repeat are kept.

        Returns:
            Whether some were kept: copies of a state were published, an incident.
        """
        stored = execute(
            f"SELECT DISTINCT revision FROM instalments WHERE {SPAN} AND revision <= ?", (sketch, *window, revision)
        ).fetchall()
        copied = False
        for (former,) in stored:
            if Ledgers(self._write).copied(sketch, *window, former):
                self._report(execute, sketch, window[0], shared_noise(f"{self._names[sketch]}, an early position"))
                copied = True
            else:
                execute(f"DELETE FROM instalments WHERE {SPAN} AND revision = ?", (sketch, *window, former))
        return copied

    def _outdate_guarantees_at(self, execute: Any, span: Span) -> None:
        """Have guarantees computed again: that of a window depends on other publications about its time."""
        for sketch, name in self._names.items():
            longest = self._longest_windows.get(name, LATEST)
            condition = " AND sketch = ? AND start > ? AND start < ? AND stop > ?"
            _outdate_guarantees(execute, condition, sketch, span[0] - longest, span[1], span[0])

    def _reassemble_next(self, execute: Any, sketch: int, stop: int) -> None:
        """Have the window that begins at `stop` put together again, if its answer may depend on the one before it."""
        if self._names[sketch] not in self._separate:
            _reassemble(execute, sketch, "state IN (?, ?) AND start = ?", MISSING, SETTLED, stop)

    def _note_noises(
        self, execute: Any, sketch: int, start: int, digest: bytes, header: Mapping[str, Any], key: str
    ) -> set[Place]:
        """Store the noise ids of a body; if another body has the same noise, report it and return both keys."""
        shared: set[Place] = set()
        try:
            names = noise_names(header)
        except FormatError:
            return shared  # the reader refuses the window
        for name in names:
            row = execute("SELECT sketch, start, body FROM noises WHERE name = ?", (name,)).fetchone()
            if row is None:
                execute("INSERT INTO noises VALUES (?, ?, ?, ?)", (name, sketch, start, digest))
            elif row[2] != digest:
                for number, at in {(sketch, start), row[:2]}:
                    # each by its own name: who sees one of the two sketches may not know the other one
                    name_of_window = key if (number, at) == (sketch, start) else f"{self._names[number]} at {iso(at)}"
                    self._report(execute, number, at, shared_noise(name_of_window))
                for of_noise in ((sketch, start, digest), row):
                    updated = execute(
                        "UPDATE bodies SET shape = ? WHERE sketch = ? AND start = ? AND digest = ?"
                        " RETURNING sketch, start, stop, revision",
                        (NO_SHAPE, *of_noise),
                    )
                    shared |= set(updated.fetchall())
        return shared

    def _report(self, execute: Any, sketch: int, start: int, text: str) -> None:
        """Report an incident: these windows are no longer shown, and their computed answers are deleted."""
        inserted = execute("INSERT OR IGNORE INTO incidents VALUES (?, ?, ?)", (sketch, start, text))
        if inserted.rowcount:
            event_log.error("incident", sketch=self._names[sketch], window_start_ms=start)
        updated = execute(
            "UPDATE windows SET state = ?, todo = 0, version = version + 1, status = ?, facts = NULL, input = NULL,"
            " guarantee = NULL, guarantee_alone = NULL, failure = NULL WHERE sketch = ? AND start = ? RETURNING stop",
            (INCIDENT, f"incident: {text}", sketch, start),
        )
        execute("DELETE FROM points WHERE sketch = ? AND start = ?", (sketch, start))
        for (stop,) in updated.fetchall():
            execute("DELETE FROM answers WHERE sketch = ? AND stop = ?", (sketch, stop))
            self._reassemble_next(execute, sketch, stop)

    def _take_frontier(self, execute: Any, frontier: Frontier) -> None:
        sketch = self._sketch(execute, frontier.sketch)
        place = (sketch, frontier.revision, frontier.partition)
        row = execute(
            "SELECT value FROM frontiers WHERE sketch = ? AND revision = ? AND partition = ?", place
        ).fetchone()
        former = None if row is None else read_frontier(frontier.sketch, row[0])
        if former is not None and former.sequence >= frontier.sequence:
            return
        fields = asdict(replace(frontier, evidence=None))
        fields[EVIDENCE] = None if frontier.evidence is None else frontier.evidence.fields()
        value = orjson.dumps(fields).decode()
        execute("INSERT OR REPLACE INTO frontiers VALUES (?, ?, ?, ?, ?)", (*place, frontier.sequence, value))
        if (
            former is None
            or any(getattr(former, name) != getattr(frontier, name) for name in ("partitions", "partial", "diverged"))
            or forgets(former.evidence) != forgets(frontier.evidence)
        ):
            # frontiers speak of all windows of a sketch
            _reassemble(execute, sketch, "state IN (?, ?)", MISSING, SETTLED)
        else:
            for start, stop in _changed_evidence(former, frontier):
                _reassemble(execute, sketch, "state = ? AND start = ? AND stop = ?", SETTLED, start, stop)
            for stop in _reassemble(execute, sketch, "state = ? AND stop <= ?", MISSING, frontier.published_through):
                self._reassemble_next(execute, sketch, stop)

    def _horizon(self, execute: Any, sketch: int) -> int:
        """Windows that end before this are not kept."""
        if self._retention_ms is None:
            return -LATEST
        (newest,) = execute("SELECT max(start) FROM windows WHERE sketch = ?", (sketch,)).fetchone()
        return -LATEST if newest is None else newest - self._retention_ms

    def refresh(self, limit: int = REFRESH) -> int:
        """Assemble windows that have changed, newest first.

        Returns:
            How many; 0: none are left.
        """
        with self._transaction() as execute:
            rows = execute(
                "SELECT sketch, start, stop FROM windows WHERE state = ? ORDER BY sketch, start DESC LIMIT ?",
                (NEW, limit),
            ).fetchall()
            for sketch in sorted({row[0] for row in rows}):
                self._refresh(execute, sketch, sorted(row[1:] for row in rows if row[0] == sketch))
        return len(rows)

    def _refresh(self, execute: Any, sketch: int, spans: Sequence[Span]) -> None:
        """Assemble windows of one sketch: neighbours at once, others one by one."""
        name, stale = self._names[sketch], set(spans)
        first, last = spans[0][0], max(stop for _, stop in spans)
        (count,) = execute(
            "SELECT count(*) FROM windows WHERE sketch = ? AND start >= ? AND start < ?", (sketch, first, last)
        ).fetchone()
        ranges = [(first, last)] if count <= 2 * len(spans) else list(spans)
        early = any(plan.name == name and plan.early is not None for plan in self.config.sketches)
        try:
            for since, until in ranges:
                for window in self._reader.windows(name, since, until, early=early):
                    if window.window in stale:
                        stale.remove(window.window)
                        self._put(execute, sketch, window)
        except (DataLossError, FormatError) as error:
            if len(ranges) == len(spans) == 1:
                what = error.what if isinstance(error, IncidentError) else str(error)
                self._report(execute, sketch, spans[0][0], what)
                return
            for span in sorted(stale):
                self._refresh(execute, sketch, [span])
            return
        for start, stop in stale:  # windows of a void revision, or dropped ones
            execute(f"DELETE FROM windows WHERE {SPAN}", (sketch, start, stop))
            self._reassemble_next(execute, sketch, stop)

    def _put(self, execute: Any, sketch: int, window: SealedWindow) -> None:
        """Store the row of a window that was put together."""
        place = (sketch, *window.window)
        reported = execute("SELECT text FROM incidents WHERE sketch = ? AND start = ? LIMIT 1", place[:2]).fetchone()
        if reported is not None:
            self._report(execute, *place[:2], reported[0])
            return
        digest = self._input(execute, sketch, window)
        state = MISSING if window.missing else SETTLED
        answered = execute("SELECT 1 FROM answers WHERE input = ?", (answer_key(digest, ""),)).fetchone()
        row = execute(f"SELECT input, guarantee, guarantee_alone, failure FROM windows WHERE {SPAN}", place).fetchone()
        same = row is not None and row[0] == digest
        guarantee, alone, failure = row[1:] if same else (None, None, None)
        todo = NUMBERS if answered is None else GUARANTEE if guarantee is None else NOTHING
        if window.groups or failure is not None or state != SETTLED:  # answers of groups are computed on request
            todo = NOTHING
        facts = orjson.dumps(window.fields()).decode()
        execute(
            "UPDATE windows SET version = version + 1, state = ?, todo = ?, input = ?, facts = ?, status = ?,"
            f" guarantee = ?, guarantee_alone = ?, failure = ? WHERE {SPAN}",
            (state, todo, digest, facts, window.describe(), guarantee, alone, failure, *place),
        )
        if not same:
            execute(f"DELETE FROM points WHERE {SPAN}", place)
        if state == SETTLED:
            self._forget_instalments(execute, sketch, window.window, window.revision)

    def _input(self, execute: Any, sketch: int, window: SealedWindow) -> bytes:
        """Digest of the inputs of a window's usual answer, except for the guarantee."""
        digest = hashlib.blake2b(digest_size=16, person=b"sketch-input")
        keyed = self.config.input.partitioned_by != "none"
        digest.update(f"{self._version} {window.whole} {window.repartitioned} {keyed}".encode())
        if not knows_names(self.config.find(window.sketch), window.parts[0].spec):
            digest.update(b"without names")
        former = self._shown.before(window) if continuing_kind(window.parts[0].spec) else None
        for part in (window,) if former is None else (window, former):
            rows = execute(
                f"SELECT partition, digest FROM bodies WHERE {SPAN} AND revision = ? ORDER BY partition, digest",
                (sketch, *part.window, part.revision),
            )
            digest.update(part.window[0].to_bytes(8, "big", signed=True))
            for partition, body in rows:
                digest.update(partition.to_bytes(4, "big") + body)
        for partition, time_ms in sorted(window.early.items()):
            digest.update(f"early {partition} {time_ms}".encode())
        return digest.digest()

    def put_answer(self, stored: StoredWindow, question: str, computed: Computed, *, special: bool = False) -> None:
        """Store an answer, unless the window has changed since the request.

        The oldest special answers are deleted when there are too many, as questions have no end.

        Args:
            stored: the window at the time of the request.
            question: canonical text of the question; empty for the usual one.
            computed: the answer.
            special: whether it is neither the usual answer of the window nor of a group.
        """
        numbers, csv = computed.numbers, computed.csv
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
        place = (self._ids.get(stored.sketch, -1), *stored.window)
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
            _outdate_guarantees(execute)

    def retain(self) -> int:
        """Drop windows older than the retention; returns their number."""
        if self._retention_ms is None:
            return 0
        dropped = sum(self._drop(sketch) for sketch in list(self._names))
        self.changes += dropped > 0
        return dropped

    def _drop(self, sketch: int) -> int:
        """Drop some windows of one sketch that are older than the retention, in one transaction."""
        with self._transaction() as execute:
            horizon = self._horizon(execute, sketch)
            rows = execute(
                "SELECT DISTINCT start, stop FROM windows WHERE sketch = ? AND start < ? AND stop < ?"
                " ORDER BY start LIMIT ?",
                (sketch, horizon, horizon, DROPPED),
            ).fetchall()
            for start, stop in rows:
                place = (sketch, start, stop)
                bodies = execute(f"SELECT body FROM bodies WHERE {SPAN}", place).fetchall()
                for (body,) in bodies:
                    self._forget_noises(execute, body)
                for table in ("bodies", "costs", "windows", "points"):
                    execute(f"DELETE FROM {table} WHERE {SPAN}", place)
                self._reassemble_next(execute, sketch, stop)
            for table in ("answers", "instalments", "early"):
                execute(f"DELETE FROM {table} WHERE sketch = ? AND stop < ?", (sketch, horizon))
            execute("DELETE FROM incidents WHERE sketch = ? AND start < ?", (sketch, horizon))
        return len(rows)

    def _forget_noises(self, execute: Any, body: bytes) -> None:
        try:
            names = noise_names(claimed_header(body))
        except FormatError:
            return
        for name in names:
            execute("DELETE FROM noises WHERE name = ?", (name,))

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


def longest_windows(config: Config) -> dict[str, int]:
    """For each sketch, a length (ms) that none of its windows exceeds."""
    return {plan.name: 2 * plan.shortest_ms for plan in config.sketches}


def _claimed_header(body: bytes) -> dict[str, Any]:
    """The header of a body, not verified; empty if it cannot be read."""
    try:
        return claimed_header(body)
    except FormatError:
        return {}


def _reassemble(execute: Any, sketch: int, condition: str, *values: object) -> list[int]:
    """Have the windows of a sketch that a condition of SQL selects put together again; returns their ends."""
    updated = execute(
        "UPDATE windows SET state = ?, todo = 0, version = version + 1"
        f" WHERE sketch = ? AND {condition} RETURNING stop",
        (NEW, sketch, *values),
    )
    return [stop for (stop,) in updated.fetchall()]


def _outdate_guarantees(execute: Any, condition: str = "", *values: object) -> None:
    """Have the guarantees of settled windows computed again: of all, or of those that a condition of SQL selects."""
    execute(
        "UPDATE windows SET guarantee = NULL, version = version + 1, todo = max(todo, ?)"
        f" WHERE state = ? AND failure IS NULL{condition}",
        (GUARANTEE, SETTLED, *values),
    )


def _changed_evidence(former: Frontier, frontier: Frontier) -> list[Span]:
    """Windows of which a frontier says something else than the one before."""
    if frontier.evidence is None:
        return []
    before = {} if former.evidence is None else former.evidence.every()
    return [window for window, shown in frontier.evidence.every().items() if before.get(window) != shown]


def _config_digest(config: Config) -> str:
    """Digest of all parts of a configuration that windows and guarantees depend on."""
    parts = (config.fingerprint, config.input, config.privacy, sorted(config.quality.items()))
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
