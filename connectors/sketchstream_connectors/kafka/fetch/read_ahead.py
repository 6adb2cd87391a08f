"""Reads fetch responses that have arrived, on a thread of its own, before they are polled.

In: what responses hold of each partition, in the order of their arrival. Out: their records. Touches: one thread a
consumer, while there is something to read.

Checksums, decompression and the table of records depend on the bytes of a response alone: not on positions, assignments
or pauses. So they are done while the poll thread still decodes the response before it, and thrown away where the client
drops the response. The loops behind them release the interpreter's lock.

Whoever needs records that are not read yet reads them itself: the poll thread never waits for this thread to begin, and
a wake-up that came late would cost time and nothing else. While the other thread is at the piece that is needed next,
the poll thread takes another one. What is ready and not taken yet is at most `AHEAD_BYTES` and a piece of each thread.

Short records that are not compressed are left to the poll thread: to hand the table of a record from one processor to
another costs about as much as to make it.
"""

from __future__ import annotations

import collections
import struct
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from sketchstream.config.kafka_settings import READ_AHEAD_BYTES
from sketchstream_connectors.decode.records import Records
from sketchstream_connectors.kafka.fetch.record_batch import CODEC_MASK, read_batches
from sketchstream_connectors.kafka.fetch.record_kernels import HEAD_BYTES

_HEAD = struct.Struct(">8xi9xh34xi")
"""Fields of the head of a batch: its length, attributes, and number of records."""
AHEAD_BYTES = READ_AHEAD_BYTES
"""Most bytes of records that are ready and not taken yet."""
THREAD = "sketchstream-read-ahead"
"""Name of the thread."""
IDLE_S = 1.0
"""Seconds without work after which the thread ends; the next response starts another."""
RECORD_BYTES = 48
"""Bytes that one record takes in the arrays of a `Records`."""
SHORT_BYTES = 64
"""Records that are shorter and not compressed are not read ahead. With 32 bytes it took 8% more processor time for
nothing, with 100 bytes it was 1.2 times as fast (two processors)."""


class Reading:
    """The records of one response of one partition: an iterator over pieces.

    Args:
        ahead: the other readings of the consumer.
        data: bytes of the response; the reading keeps it until it is asked for.
        pieces: records of `data`, from `read_batches`.
    """

    def __init__(self, ahead: ReadAhead, data: object, pieces: Iterator[Records]) -> None:
        self.data: object | None = data
        self.lock = threading.Lock()
        self._read_bytes = self._taken_bytes = 0
        self._ahead = ahead
        self._pieces: Iterator[Records] | None = pieces
        self._ready: collections.deque[tuple[Records, int]] = collections.deque()
        self._wrong: BaseException | None = None

    @property
    def unread(self) -> bool:
        """Whether there may be pieces that nobody has read."""
        return self._pieces is not None

    @property
    def ready(self) -> int:
        """Pieces that can be taken at once."""
        return len(self._ready)

    @property
    def held_bytes(self) -> int:
        """Bytes of them, about."""
        return self._read_bytes - self._taken_bytes

    def read(self) -> None:
        """One more piece, if there is one; whoever calls this has the lock. Errors are kept for their place."""
        if self._pieces is None:
            return
        try:
            records = next(self._pieces)
        except StopIteration:
            self._pieces = None
        except BaseException as error:  # whichever thread this is, the polling one raises it
            self._wrong = error
            self._pieces = None
        else:
            cost = int(records.buffer.size) + RECORD_BYTES * len(records)
            self._read_bytes += cost
            self._ready.append((records, cost))

    def __iter__(self) -> Iterator[Records]:
        return self

    def __next__(self) -> Records:
        """The next piece in the order of positions; called by one thread, the one that polls.

        Raises:
            CorruptRecordError, MissingExtraError: as `read_batches`, after the pieces before the broken batch.
        """
        while not self._ready:
            if not self.lock.acquire(blocking=False):
                if self._ahead.step():
                    continue
                self.lock.acquire()
            try:
                if not self._ready:
                    if self._pieces is None:
                        wrong, self._wrong = self._wrong, None
                        if wrong is not None:
                            raise wrong
                        raise StopIteration
                    self.read()
            finally:
                self.lock.release()
        records, cost = self._ready.popleft()
        self._taken_bytes += cost
        self._ahead.notify()
        return records


class ReadAhead:
    """The readings of one consumer, and the thread that is ahead with them."""

    def __init__(self) -> None:
        self._readings: collections.deque[weakref.ref[Reading]] = collections.deque()
        self._by_records: weakref.WeakValueDictionary[int, Reading] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, completed: Any, *, check_crc: bool, committed_only: bool) -> Reading | None:
        """Read a response that has arrived as soon as there is room, for as long as the caller keeps the reading.

        Args:
            completed: the client's `CompletedFetch`.
            check_crc: see `read_batches`.
            committed_only: whether records of aborted transactions are left out.

        Returns:
            None where there is nothing to read, or nothing to be gained.
        """
        answer = completed.partition_data
        if answer.error_code or not answer.records or not _pays(answer.records):
            return None
        aborted = None
        if committed_only:
            aborted = [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()]
        pieces = read_batches(answer.records, completed.fetched_offset, check_crc=check_crc, aborted=aborted)
        reading = Reading(self, answer.records, pieces)
        with self._lock:
            self._readings.append(weakref.ref(reading))
            self._by_records[id(answer.records)] = reading
        self.notify()
        return reading

    def reading(self, data: object) -> Reading | None:
        """The reading of this data, if nobody has asked for it; None where there is none."""
        with self._lock:
            reading = self._by_records.pop(id(data), None)
        if reading is None or reading.data is not data:
            return None
        reading.data = None
        return reading

    def step(self) -> bool:
        """Read one piece of the first response that nobody is at, if there is one and room for it."""
        readings = self._live()
        if sum(reading.held_bytes for reading in readings) > AHEAD_BYTES:
            return False
        for reading in readings:
            if reading.unread and reading.lock.acquire(blocking=False):
                try:
                    reading.read()
                finally:
                    reading.lock.release()
                return True
        return False

    @property
    def ready(self) -> int | None:
        """Pieces in front of the first that is not read yet; None where all are read."""
        pieces = 0
        for reading in self._live():
            pieces += reading.ready
            if reading.unread:
                return pieces
        return None

    def notify(self) -> None:
        """Wake the thread, or start it: there is something to read, or room for it."""
        self._wake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=_run, args=(weakref.ref(self), self._wake), name=THREAD, daemon=True
                    )
                    self._thread.start()

    def rest(self) -> bool:
        """Whether the thread may end: nothing has come since it looked."""
        with self._lock:
            if self._wake.is_set():
                return False
            self._thread = None
            return True

    def _live(self) -> list[Reading]:
        """Readings in the order of arrival, without those that were dropped or taken whole."""
        with self._lock:
            living = [(ref, reading) for ref in self._readings if (reading := ref()) is not None]
            useful = [(ref, reading) for ref, reading in living if reading.unread or reading.ready]
            self._readings = collections.deque(ref for ref, _ in useful)
            return [reading for _, reading in useful]


def _pays(data: bytes | memoryview) -> bool:
    """Whether reading ahead saves time, judged by the head of the first batch."""
    if len(data) < HEAD_BYTES:
        return False
    length, attributes, count = _HEAD.unpack_from(data)
    return bool(attributes & CODEC_MASK) or length >= SHORT_BYTES * count


def _run(consumer: weakref.ref[ReadAhead], wake: threading.Event) -> None:
    """The thread: it keeps nothing alive while it waits."""
    while True:
        came = wake.wait(IDLE_S)
        wake.clear()  # before looking: what comes afterwards wakes it again
        ahead = consumer()
        if ahead is None:
            return
        while ahead.step():
            pass
        if not came and ahead.rest():
            return
        del ahead


def read_committed() -> object:
    """The client's constant."""
    from kafka.protocol.consumer import IsolationLevel

    return IsolationLevel.READ_COMMITTED
