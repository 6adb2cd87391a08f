"""The database of the service: its tables, its lock, and a bounded number of connections to it.

In: a path. Out: connections. Touches: one SQLite file with its journal, of mode 0600, and a lock file next to it.

Everything in it was published or is computed from that, so a lost or older database is filled again from the feed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sketchstream.errors import BusyError, StoreError

FORMAT: Final = 7
"""The format of the tables. Databases of another format are filled again."""

READERS: Final = 12
"""Most connections for reading: of the threads that answer requests and of those that follow and reconstruct."""
WAIT_S: Final = 10.0
"""Seconds that a thread may wait for one of these connections."""

TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sketches (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS frontiers (
    sketch INTEGER NOT NULL, revision INTEGER NOT NULL, partition INTEGER NOT NULL, sequence INTEGER NOT NULL,
    value TEXT NOT NULL, PRIMARY KEY (sketch, revision, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deleted (
    sketch INTEGER NOT NULL, partition INTEGER NOT NULL, through INTEGER NOT NULL,
    PRIMARY KEY (sketch, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bodies (
    id INTEGER PRIMARY KEY, sketch INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    revision INTEGER NOT NULL, partition INTEGER NOT NULL, digest BLOB NOT NULL, seal_id BLOB NOT NULL,
    shape INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS bodies_place ON bodies (sketch, start, stop, revision, partition, digest);
CREATE TABLE IF NOT EXISTS shapes (id INTEGER PRIMARY KEY, shape BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS costs (
    sketch INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, revision INTEGER NOT NULL,
    parts TEXT NOT NULL, PRIMARY KEY (sketch, start, stop, revision)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS costs_apart ON costs (sketch, start, stop, revision) WHERE parts = '';
CREATE TABLE IF NOT EXISTS instalments (
    sketch INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, revision INTEGER NOT NULL,
    partition INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, digest BLOB NOT NULL,
    seal_id BLOB NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS instalments_place
    ON instalments (sketch, start, stop, revision, partition, first, last, digest);
CREATE TABLE IF NOT EXISTS early (
    sketch INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, revision INTEGER NOT NULL,
    partition INTEGER NOT NULL, time INTEGER NOT NULL, digest BLOB NOT NULL, seal_id BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (sketch, start, stop, revision, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS noises (
    name BLOB PRIMARY KEY, sketch INTEGER NOT NULL, start INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS incidents (
    sketch INTEGER NOT NULL, start INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (sketch, start, text)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS windows (
    sketch INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    version INTEGER NOT NULL, state TEXT NOT NULL, todo INTEGER NOT NULL,
    input BLOB, facts TEXT, status TEXT, guarantee TEXT, guarantee_alone TEXT, failure TEXT,
    PRIMARY KEY (sketch, start, stop)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS windows_new ON windows (sketch, start, stop) WHERE state = 'new';
CREATE INDEX IF NOT EXISTS windows_missing ON windows (sketch, stop) WHERE state = 'missing';
CREATE INDEX IF NOT EXISTS windows_todo ON windows (stop) WHERE todo > 0;
CREATE TABLE IF NOT EXISTS tally (
    sketch INTEGER NOT NULL, state TEXT NOT NULL, waiting INTEGER NOT NULL, windows INTEGER NOT NULL,
    PRIMARY KEY (sketch, state, waiting)) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS windows_come AFTER INSERT ON windows BEGIN
    INSERT INTO tally VALUES (new.sketch, new.state, new.todo > 0, 1) ON CONFLICT DO UPDATE SET windows = windows + 1;
END;
CREATE TRIGGER IF NOT EXISTS windows_go AFTER DELETE ON windows BEGIN
    UPDATE tally SET windows = windows - 1 WHERE sketch = old.sketch AND state = old.state AND waiting = (old.todo > 0);
END;
CREATE TRIGGER IF NOT EXISTS windows_change AFTER UPDATE OF state, todo ON windows
    WHEN old.state != new.state OR (old.todo > 0) != (new.todo > 0) BEGIN
    UPDATE tally SET windows = windows - 1 WHERE sketch = old.sketch AND state = old.state AND waiting = (old.todo > 0);
    INSERT INTO tally VALUES (new.sketch, new.state, new.todo > 0, 1) ON CONFLICT DO UPDATE SET windows = windows + 1;
END;
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY, input BLOB NOT NULL UNIQUE, sketch INTEGER NOT NULL, stop INTEGER NOT NULL,
    special INTEGER NOT NULL, bytes INTEGER NOT NULL, numbers BLOB NOT NULL, csv BLOB NOT NULL, digest BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS answers_special ON answers (id, bytes) WHERE special;
CREATE INDEX IF NOT EXISTS answers_age ON answers (sketch, stop);
CREATE TABLE IF NOT EXISTS points (
    sketch INTEGER NOT NULL, metric TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    value REAL, low REAL, high REAL, bound TEXT, PRIMARY KEY (sketch, metric, start, stop)) WITHOUT ROWID;
"""


def open_database(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """A connection to the database; a writer creates the database if there is none.

    Args:
        path: path of the file.
        write: whether it will be written to; there is one such connection at a time.

    Raises:
        StoreError: it cannot be opened.
    """
    try:
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        # isolation_level None: transactions are begun and ended by the statements that say so
        connection = sqlite3.connect(
            path if write else f"{path.absolute().as_uri()}?mode=ro",
            uri=not write,
            isolation_level=None,
            check_same_thread=False,
            timeout=30,
            cached_statements=256,
        )
        if write:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # a lost tail is read again from the feed
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.executescript(TABLES)
        connection.execute("PRAGMA cache_size = -32768")
        connection.execute("PRAGMA mmap_size = 268435456")
    except (sqlite3.Error, OSError) as error:
        if is_damaged(error):
            raise DamagedError(error) from None
        raise StoreError(
            f"cannot use the database {path}: {getattr(error, 'strerror', None) or error}; choose another \
serve.database, or make room"
        ) from None
    return connection


class DamagedError(StoreError):
    """The database is damaged, or of another release. It is filled again from the feed.

    Args:
        cause: error of SQLite that shows the damage; None: the content of the tables shows it.
    """

    def __init__(self, cause: BaseException | None = None) -> None:
        self.cause = cause
        super().__init__("the database is damaged, and is filled again from what was published: ask again later")


def is_damaged(error: BaseException) -> bool:
    """Whether an error says that the bytes of the database are wrong."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(path: Path) -> Path:
    """Move a database out of the way, in place of one that was moved before; its journal goes.

    Returns:
        Where it is now.
    """
    aside = path.with_name(f"{path.name}.damaged")
    with contextlib.suppress(FileNotFoundError):
        path.replace(aside)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    return aside


def lock(path: Path) -> int:
    """Lock a database for one service, until the descriptor is closed or the process ends.

    The lock is on a file of its own: SQLite has locks on the database itself, which closing a descriptor would undo.

    Raises:
        StoreError: another service has it.
    """
    file = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}; choose another serve.database") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            msg = f"another service uses the database {path}: stop it, or choose another serve.database"
        else:
            msg = f"cannot lock {file}: {error.strerror}; choose a serve.database on a local disk"
        raise StoreError(msg) from None
    return descriptor


class Readers:
    """Connections for reading, at most some of them, whatever the number of threads.

    Args:
        path: path of the database.
        failed: called with each error of the database.
        most: connections.
    """

    def __init__(self, path: Path, failed: Callable[[sqlite3.Error], None], most: int = READERS) -> None:
        self._path, self._failed = path, failed
        self._free: list[tuple[int, sqlite3.Connection]] = []
        self._slots = threading.BoundedSemaphore(most)
        self._of_thread = threading.local()
        self._turn = 0
        self._closing = threading.Lock()

    @contextlib.contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """A connection for the present thread; within a block, blocks inside have the same one.

        Raises:
            BusyError: all are in use for long.
            StoreError: the database cannot be read.
        """
        connection_of_thread: sqlite3.Connection | None = getattr(self._of_thread, "connection", None)
        if connection_of_thread is not None:
            yield connection_of_thread
            return
        if not self._slots.acquire(timeout=WAIT_S):
            raise BusyError("the database does not answer at the moment: ask again later")
        try:
            turn, connection = self._take()
            self._of_thread.connection = connection
            try:
                yield connection
            except sqlite3.Error as error:
                if turn == self._turn:  # else the connections were replaced meanwhile
                    self._failed(error)
                raise StoreError(
                    f"the database cannot be read at the moment ({type(error).__name__}): ask again later"
                ) from error
            finally:
                self._of_thread.connection = None
                self._give(turn, connection)
        finally:
            self._slots.release()

    def _take(self) -> tuple[int, sqlite3.Connection]:
        with self._closing:
            if self._free:
                return self._free.pop()
            turn = self._turn
        try:
            return turn, open_database(self._path)
        except DamagedError as error:
            if isinstance(error.cause, sqlite3.Error):
                self._failed(error.cause)
            raise

    def _give(self, turn: int, connection: sqlite3.Connection) -> None:
        with self._closing:
            if turn == self._turn:
                self._free.append((turn, connection))
                return
        connection.close()

    def close(self) -> None:
        """Close all connections that are not in use now, and the others when they are given back."""
        with self._closing:
            self._turn += 1
            free, self._free = self._free, []
        for _, connection in free:
            connection.close()
