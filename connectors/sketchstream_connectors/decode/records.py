"""Records: the keys and values of n records of one partition as arrays, without a Python object per record.

In: bytes and bounds from a reader of batches, or the stock client's records. Out: frozen `Records`. Touches: nothing.
Headers are read on demand, one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream_connectors.decode.varints import read_varint, unzigzag

NO_TIMESTAMP = -1
MAX_HEADERS, MAX_HEADER_BYTES = 64, 16 << 10
"""Most headers of a record that are read, and most bytes of their names and values together."""

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, eq=False)
class Records:
    """n records of one partition, in offset order; bytes are [start, end) of `buffer`, start = -1 for null.

    Args:
        offsets: (n,) int64.
        timestamps: (n,) int64, milliseconds, -1 where the record has none.
        buffer: uint8, read-only (which also keeps compiled loops to one variant).
        key_start: (n,) int64 start of each key in `buffer`, -1 for null.
        key_end: (n,) int64 end of each key.
        value_start: (n,) int64 start of each value, -1 for null.
        value_end: (n,) int64 end of each value.
        from_position: position that the records were asked from. A state at another position discards them, and seeks.
        next_position: position after the last batch read, control and aborted batches included. Between the two
            positions these records are all there is.
        leader_epoch: leader epoch of the last batch, -1 where not known.
        framed: `buffer` holds records of format v2 as they are in their batches, headers behind each value.
        client: the records that the client parsed, for their headers.
    """

    offsets: Ints
    timestamps: Ints
    buffer: npt.NDArray[np.uint8]
    key_start: Ints
    key_end: Ints
    value_start: Ints
    value_end: Ints
    from_position: int
    next_position: int
    leader_epoch: int = -1
    framed: bool = False
    client: Sequence[ClientRecord] | None = None

    def __len__(self) -> int:
        return int(self.offsets.size)

    def __repr__(self) -> str:
        return f"Records({len(self)} records, {self.from_position} to {self.next_position})"

    @property
    def offset(self) -> int:
        """The last position that the records cover; the client's own bookkeeping reads it."""
        return self.next_position - 1

    def key(self, index: int) -> bytes | None:
        """The key of one record."""
        return self._slice(int(self.key_start[index]), int(self.key_end[index]))

    def value(self, index: int) -> bytes | None:
        """The value of one record."""
        return self._slice(int(self.value_start[index]), int(self.value_end[index]))

    def headers(self, index: int) -> tuple[Headers, bool]:
        """The headers of one record, up to `MAX_HEADERS` and `MAX_HEADER_BYTES`, and whether these are all.

        Names that are not UTF-8 are escaped, null values are empty.
        """
        headers: Iterator[tuple[str | bytes, bytes | None]] = iter(())
        if self.framed:
            headers = _read_headers(self.buffer, int(self.value_end[index]))
        elif self.client is not None:
            headers = iter(getattr(self.client[index], "headers", None) or ())
        kept: list[tuple[str, bytes]] = []
        room = MAX_HEADER_BYTES
        for name, value in headers:
            room -= len(name) + len(value or b"")
            if room < 0 or len(kept) == MAX_HEADERS:
                return tuple(kept), False
            text = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
            kept.append((text, bytes(value or b"")))
        return tuple(kept), True

    def _slice(self, start: int, end: int) -> bytes | None:
        """Bytes of the buffer, None for null."""
        return None if start < 0 else self.buffer[start:end].tobytes()


def _read_headers(buffer: npt.NDArray[np.uint8], at: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Names and values of the headers that begin at `at`, of a record whose structure was checked."""

    def number() -> int:
        nonlocal at
        raw, at = read_varint(buffer, at)
        return unzigzag(raw)

    def part(size: int) -> bytes:
        nonlocal at
        at += size
        return buffer[at - size : at].tobytes()

    for _ in range(number()):
        name, size = part(number()), number()
        yield name, None if size < 0 else part(size)


def read_only(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Make an array read-only."""
    array.flags.writeable = False
    return array


class ClientRecord(Protocol):
    """What is read of kafka-python's `ConsumerRecord`."""

    @property
    def offset(self) -> int:
        """Position in the partition."""

    @property
    def timestamp(self) -> int | None:
        """Milliseconds."""

    @property
    def key(self) -> bytes | None:
        """Raw key."""

    @property
    def value(self) -> bytes | None:
        """Raw value."""


def from_client_records(
    records: Sequence[ClientRecord],
    *,
    from_position: int | None = None,
    next_position: int | None = None,
    leader_epoch: int = -1,
) -> Records:
    """Build `Records` from kafka-python's own records (without deserializers).

    Args:
        records: records in offset order.
        from_position: the consumer's position before them; default: the first offset, or `next_position`.
        next_position: the consumer's position after them; default: last offset + 1, which is too low where control
            or aborted batches follow. Needed when there are no records.
        leader_epoch: leader epoch of the last batch.
    """
    if next_position is None:
        if not records:
            raise ValueError("next_position must be given when there are no records: their offsets cannot say it")
        next_position = records[-1].offset + 1
    if from_position is None:
        from_position = records[0].offset if records else next_position
    n = len(records)
    parts: list[bytes] = []
    bounds = np.full((n, 4), -1, dtype=np.int64)
    size = 0
    for line, record in zip(bounds, records, strict=True):
        for column, part in ((0, record.key), (2, record.value)):
            if part is not None:
                parts.append(part)
                line[column] = size
                size += len(part)
                line[column + 1] = size
    return Records(
        offsets=np.fromiter((r.offset for r in records), np.int64, n),
        timestamps=np.fromiter((NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in records), np.int64, n),
        buffer=np.frombuffer(b"".join(parts), dtype=np.uint8),
        key_start=bounds[:, 0].copy(),
        key_end=bounds[:, 1].copy(),
        value_start=bounds[:, 2].copy(),
        value_end=bounds[:, 3].copy(),
        from_position=from_position,
        next_position=next_position,
        leader_epoch=leader_epoch,
        client=records,
    )


def no_records(from_position: int, next_position: int, leader_epoch: int = -1) -> Records:
    """No records between two positions."""
    return from_client_records([], from_position=from_position, next_position=next_position, leader_epoch=leader_epoch)
