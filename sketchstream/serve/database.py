"""The database of the service: its tables, and connections to it.

In: a path. Out: connections. Touches: one SQLite file with its journal, of mode 0600.

Everything in it was published or is computed from that, so a lost or older database is filled again from the feed.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from sketchstream.errors import StoreError

FORMAT: Final = 4
"""Of the tables. Databases of another format are filled again."""

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
CREATE TABLE IF NOT EXISTS noises (
    name BLOB PRIMARY KEY, sketch INTEGER NOT NULL, start INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS incidents (
    sketch INTEGER NOT NULL, start INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (sketch, start, text)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS windows (
    sketch INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    version INTEGER NOT NULL, state TEXT NOT NULL, todo INTEGER NOT NULL,
    input BLOB, facts TEXT, status TEXT, guarantee TEXT, failure TEXT,
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
    special INTEGER NOT NULL, bytes INTEGER NOT NULL, numbers BLOB NOT NULL, csv BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS answers_special ON answers (id, bytes) WHERE special;
CREATE INDEX IF NOT EXISTS answers_age ON answers (sketch, stop);
CREATE TABLE IF NOT EXISTS points (
    sketch INTEGER NOT NULL, metric TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    value REAL, low REAL, high REAL, PRIMARY KEY (sketch, metric, start, stop)) WITHOUT ROWID;
"""


def open_database(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """A connection to the database; a writer creates the database if there is none.

    Args:
        path: of the file.
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
        msg = f"cannot use the database {path}: {getattr(error, 'strerror', None) or error}; another serve.database, \
or none there, and it is filled again"
        raise StoreError(msg) from None
    return connection
