"""Data of published sketches for the ledger, stored with them: a few shapes of ledgers, and the shape of each window.

In: headers, as they are stored; a database. Out: shapes of ledgers, records for guarantees, a census for the ledger.
Touches: the database, reading.

A ledger names its noise, and otherwise says the same in every window. Without these names it is a *shape*, of which a
sketch has one. A window's *parts* say which shape each of its partitions has, such as "3:0-15". Publications that
share their noise, or their place, with another one, and merged ones, have no shape: their bodies are read. So are those
of windows of which instalments are stored: those that are not sealed in all partitions, and those whose instalments
differ from the seal or from each other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby, product
from typing import TYPE_CHECKING, Any, Final

import msgpack

from sketchstream import kinds
from sketchstream.errors import FormatError
from sketchstream.instalment import Instalment
from sketchstream.privacy.deployments.census import INSTANT, Census, WindowClass
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.deployments.publications import cost_of_record
from sketchstream.provenance import Origin
from sketchstream.published import Release, SealedState, read_published
from sketchstream.stream.published.evidence import noise_of_frontiers

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.privacy.deployments.deployment import AnyLedger
    from sketchstream.query.sealed import Span
    from sketchstream.stream.interfaces import Frontier

Place = tuple[int, int, int, int]
"""Number of a sketch, start and end of a window, revision."""
NO_SHAPE: Final = 0
"""Stands in place of the number of a shape where there is none."""
WITHOUT_PARTS: Final = ""
"""Stands in place of the parts of a window where a publication has no shape."""


def shape_of(header: Mapping[str, Any]) -> bytes | None:
    """The ledger of a published sketch without the names of its noise, with all that it is read with.

    Args:
        header: header of the sketch, not verified.

    Returns:
        Canonical bytes; None for the ledger of a merge, and for invalid ledgers.
    """
    try:
        ledger = header["ledger"]
        history = ledger["history"]
        if history.get("parts"):
            return None
        names: dict[str, str] = {}
        entries = []
        for entry in history["entries"]:
            if entry[0] == "layer":
                kind, law, cost, name, *rest = entry
                names.setdefault(name, f"{len(names):032x}")
                entries.append([kind, law, cost, names[name], *rest])
            else:
                entries.append(entry)
        plain = {
            "spec": header["spec"],
            "ledger": ledger | {"history": history | {"entries": entries}},
            "counts": list(Origin.from_dict(header).partition_counts),
        }
        shape: bytes = msgpack.packb(plain)
        _read_shape(shape)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, FormatError):
        return None
    return shape


@lru_cache(maxsize=1024)
def _read_shape(shape: bytes) -> tuple[AnyLedger, tuple[int, ...], Fraction]:
    """The ledger, the numbers of partitions, and what a record loses to numbers of records."""
    plain = msgpack.unpackb(shape)
    kind = kinds.by_name(plain["spec"].get("kind"))
    spec = kinds.read_published_spec(plain["spec"])
    ledger: Any = kind.accounting.read_ledger(spec, plain["ledger"])
    return ledger, tuple(plain["counts"]), cost_of_record(spec)


def parts_of(shapes: Sequence[tuple[int, int]]) -> str:
    """The parts of a window as text.

    Args:
        shapes: partition and number of the shape of each publication.
    """
    numbers = [number for _, number in shapes]
    partitions = [partition for partition, _ in shapes]
    if NO_SHAPE in numbers or len(set(partitions)) < len(partitions):
        return WITHOUT_PARTS
    texts = []
    for number in sorted(set(numbers)):
        alike = sorted(partition for partition, shape in shapes if shape == number)
        runs = [[at for _, at in run] for _, run in groupby(enumerate(alike), lambda pair: pair[1] - pair[0])]
        ranges = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        texts.append(f"{number}:{ranges}")
    return ";".join(texts)


def read_parts(text: str) -> Iterator[tuple[int, int]]:
    """Partition and number of the shape of each publication; see `parts_of`."""
    for piece in text.split(";"):
        number, _, ranges = piece.partition(":")
        for run in ranges.split(","):
            first, _, last = run.partition("-")
            for partition in range(int(first), int(last or first) + 1):
                yield partition, int(number)


class Ledgers:
    """The ledgers of a database's publications.

    Args:
        connection: connection of the database that reads.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._shapes: dict[int, tuple[AnyLedger, tuple[int, ...], Fraction]] = {}

    def overlapping(self, window: Span, longest: Callable[[str], int]) -> list[Record]:
        """Records of all sketches whose windows have any part of [start, end) of this one.

        Args:
            window: [start, end), ms.
            longest: gives a length (ms) that no window of a sketch exceeds.
        """
        records_there: list[Record] = []
        apart = False
        read_places: set[Place] = set()
        for sketch, name in self._names():
            rows = self._connection.execute(
                "SELECT start, stop, revision, parts FROM costs"
                " WHERE sketch = ? AND start > ? AND start < ? AND stop > ?",
                (sketch, window[0] - longest(name), window[1], window[0]),
            )
            early = self._closed(sketch, window[0] - longest(name), window)
            read_places.update(early)
            records = Deployment.from_records(self._read(early)).records
            records_there += [record for record in records if record.window and record.window[1] > window[0]]
            for start, stop, revision, parts in rows.fetchall():
                if parts == WITHOUT_PARTS:
                    apart = True
                elif (sketch, start, stop, revision) not in early:
                    records_there += self._records(name, revision, (start, stop), parts)
        if apart:  # records of any time may share noise with one of these
            places = self._connection.execute(
                "SELECT sketch, start, stop, revision FROM costs INDEXED BY costs_apart WHERE parts = ''"
            )
            for record in Deployment.from_records(
                self._read(place for place in places.fetchall() if place not in read_places)
            ).records:
                if record.window is not None and record.window[0] < window[1] and window[0] < record.window[1]:
                    records_there.append(record)
        return records_there

    def census(
        self, config: Config, allowed: Collection[str] | None = None, frontiers: Iterable[Frontier] = ()
    ) -> Census:
        """Everything that is stored, for the ledger.

        Args:
            config: configuration of the deployment.
            allowed: names of the sketches that count; None: all.
            frontiers: the newest ones.
        """
        windows: list[tuple[WindowClass, Span]] = []
        alike: dict[WindowClass, list[Record]] = {}
        apart: list[tuple[int, int, int, int]] = []
        for sketch, name in self._names():
            if allowed is not None and name not in allowed:
                continue
            rows = self._connection.execute(
                "SELECT start, stop, revision, parts FROM costs WHERE sketch = ?", (sketch,)
            )
            early = self._closed(sketch)
            apart += early
            for start, stop, revision, parts in rows:
                place = (sketch, start, stop, revision)
                if place in early:
                    continue
                if parts == WITHOUT_PARTS:
                    apart.append(place)
                    continue
                kind = (name, revision, parts)
                windows.append((kind, (start, stop)))
                if kind not in alike:
                    alike[kind] = self._records(name, revision, INSTANT, parts)
        for record in Deployment.from_records(self._read(apart)).records:
            assert record.window is not None  # bodies without a window are not stored
            kind = (record.name, record.revision, record.window)
            if kind not in alike:
                alike[kind] = []
                windows.append((kind, record.window))
            alike[kind].append(record)
        limit = config.privacy.max_epsilon
        return Census.count(
            windows,
            alike,
            keyed=config.checks_partitions or not config.from_kafka,
            limit=None if limit is None else Fraction(limit),
            budget=config.budget,
            evidence=noise_of_frontiers((frontier.sketch, frontier.evidence) for frontier in frontiers),
        )

    def _closed(self, sketch: int, since: int | None = None, window: Span | None = None) -> list[Place]:
        """Windows of which instalments are stored.

        Args:
            sketch: number of the sketch.
            since: windows that begin later than this, ms; None: all.
            window: [start, end), ms, that they have any part of; None: all.
        """
        low, high = (-(2**62), 2**62) if window is None else window
        rows = self._connection.execute(
            "SELECT DISTINCT sketch, start, stop, revision FROM instalments"
            " WHERE sketch = ? AND start > ? AND start < ? AND stop > ?",
            (sketch, -(2**62) if since is None else since, high, low),
        )
        return rows.fetchall()

    def _names(self) -> list[tuple[int, str]]:
        """Number and name of each sketch."""
        return self._connection.execute("SELECT id, name FROM sketches ORDER BY name").fetchall()

    def _records(self, name: str, revision: int, window: Span, parts: str) -> list[Record]:
        """The records of a window; they share no noise with each other."""
        built = []
        for partition, number in read_parts(parts):
            ledger, counts, records = self._shape(number)
            built.append(Record(name, revision, window, partition, counts, ledger, records=records))
        return built

    def _shape(self, number: int) -> tuple[AnyLedger, tuple[int, ...], Fraction]:
        if number not in self._shapes:
            (shape,) = self._connection.execute("SELECT shape FROM shapes WHERE id = ?", (number,)).fetchone()
            self._shapes[number] = _read_shape(shape)
        return self._shapes[number]

    def _read(self, places: Iterable[Place]) -> Iterator[Record]:
        """The records of all publications in some places; without those that cannot be read."""
        readers: dict[str, Callable[[bytes], object]] = {"bodies": read_published, "instalments": Instalment.from_bytes}
        for place, (table, read_body) in product(places, readers.items()):
            rows = self._connection.execute(
                f"SELECT body FROM {table} WHERE sketch = ? AND start = ? AND stop = ? AND revision = ?", place
            )
            for (body,) in rows.fetchall():
                try:
                    publication = read_body(body)
                except FormatError:
                    continue  # reported as an incident, or without answers
                if (
                    isinstance(publication, (Release, SealedState, Instalment))
                    and publication.origin.window is not None
                ):
                    yield Record.of(publication)

    def copied(self, sketch: int, start: int, stop: int, revision: int) -> bool:
        """Whether instalments of one window and revision differ from each other or from the seal: copies of a state.

        Args:
            sketch: number of the sketch.
            start: start of the window, ms.
            stop: end of the window, ms.
            revision: revision of the sketch.
        """
        return bool(Deployment.from_records(self._read([(sketch, start, stop, revision)])).copied())
