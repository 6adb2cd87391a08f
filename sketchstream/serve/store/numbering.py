"""The numbers of sketches and of shapes of ledgers, which stand for them in the tables of the store.

In: names of sketches, headers of publications. Out: numbers. Touches: the database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from sketchstream.serve.store.ledgers import NO_SHAPE, shape_of


class Numbering:
    """The numbers in one database, as they were last read from it. Any thread may read `ids` and `names`."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self._shapes: dict[bytes, int] = {}

    def read(self, connection: sqlite3.Connection) -> None:
        """Read all numbers again, as after a transaction that was not stored."""
        sketches = connection.execute("SELECT id, name FROM sketches").fetchall()
        self.ids = {name: number for number, name in sketches}
        self.names = dict(sketches)
        self._shapes = dict(connection.execute("SELECT shape, id FROM shapes").fetchall())

    def sketch(self, execute: Any, name: str) -> int:
        """The number of a sketch; a new one is stored."""
        if name not in self.ids:
            execute("INSERT OR IGNORE INTO sketches (name) VALUES (?)", (name,))
            (number,) = execute("SELECT id FROM sketches WHERE name = ?", (name,)).fetchone()
            self.ids[name], self.names[number] = number, name
        return self.ids[name]

    def shape(self, execute: Any, header: Mapping[str, Any]) -> int:
        """The number of the shape of a header's ledger; a new one is stored. See `sketchstream.serve.store.ledgers`."""
        shape = shape_of(header)
        if shape is None:
            return NO_SHAPE
        if shape not in self._shapes:
            execute("INSERT OR IGNORE INTO shapes (shape) VALUES (?)", (shape,))
            (self._shapes[shape],) = execute("SELECT id FROM shapes WHERE shape = ?", (shape,)).fetchone()
        return self._shapes[shape]
