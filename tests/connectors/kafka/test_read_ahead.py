"""Responses read ahead: the same pieces in the same order, whoever reads them and whenever, and bounded memory.

In: `read_ahead` over logs in memory, with its thread and without. Out: nothing. Touches: threads.
"""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kafka.batches import Batch, Log, Record, logs
from sketchstream.errors import CorruptRecordError
from sketchstream_connectors.decode.records import Records
from sketchstream_connectors.kafka.fetch import read_ahead
from sketchstream_connectors.kafka.fetch.read_ahead import ReadAhead, Reading
from sketchstream_connectors.kafka.fetch.record_batch import read_batches

Row = tuple[int, int, bytes | None, bytes | None]


def completed(data: bytes | memoryview, position: int = 0, **changed: Any) -> SimpleNamespace:
    """As much of a `CompletedFetch` as is looked at."""
    answer = SimpleNamespace(error_code=0, records=data, aborted_transactions=None)
    vars(answer).update(changed)
    return SimpleNamespace(partition_data=answer, fetched_offset=position)


def begun(ahead: ReadAhead, data: bytes | memoryview, position: int = 0, **changed: Any) -> Reading:
    """The reading of a response."""
    committed = "aborted_transactions" in changed
    reading = ahead.begin(completed(data, position, **changed), check_crc=True, committed_only=committed)
    assert reading is not None
    return reading


def rows(records: Records) -> list[Row]:
    """Plain tuples."""
    return [
        (int(records.offsets[i]), int(records.timestamps[i]), records.key(i), records.value(i))
        for i in range(len(records))
    ]


def outcome(pieces: Iterator[Records]) -> list[Any]:
    """Rows and positions of all pieces, and the error that ends them."""
    found: list[Any] = []
    try:
        for records in pieces:
            found.append((rows(records), records.next_position, records.leader_epoch))
    except CorruptRecordError as error:
        found.append((str(error), error.offset))
    return found


def log_of(*sizes: int) -> Log:
    """One batch of one record for each size."""
    log = Log()
    for size in sizes:
        log.add(Batch((Record(0, 0, b"k", bytes(size)),), 0))
    return log


@pytest.fixture(autouse=True, scope="module")
def short_records_too() -> Iterator[None]:
    """Everything is read ahead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "SHORT_BYTES", 0)
        yield


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread: what is read ahead is read by `step`."""
    monkeypatch.setattr(ReadAhead, "notify", lambda _self: None)


@pytest.fixture
def by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece for each batch."""
    monkeypatch.setattr(read_ahead, "read_batches", partial(read_batches, chunk_bytes=1))


@pytest.mark.statistics
@given(st.lists(logs(), min_size=1, max_size=4), st.data())
@settings(max_examples=100)
def test_responses_are_read_as_one_thread_reads_them(found: list[Log], data: st.DataObject) -> None:
    room, chunk_bytes = data.draw(st.sampled_from([0, 300, 1 << 26])), data.draw(st.sampled_from([1, 200, 1 << 22]))
    responses = []
    for log in found:
        octets = bytearray(log.data)
        for at in data.draw(st.lists(st.integers(0, max(len(octets) - 1, 0)), max_size=2)):
            if octets:
                octets[at] ^= 1 << data.draw(st.integers(0, 7))
        if octets:
            responses.append((bytes(octets), log.batches[0][0], log.aborted))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "AHEAD_BYTES", room)
        patch.setattr(read_ahead, "IDLE_S", 0.001)  # threads end and begin in between
        patch.setattr(read_ahead, "read_batches", partial(read_batches, chunk_bytes=chunk_bytes))
        ahead = ReadAhead()
        readings = [
            ahead.begin(completed(octets, at, aborted_transactions=ended), check_crc=True, committed_only=True)
            for octets, at, ended in responses
        ]
        for reading, (octets, at, ended) in zip(readings, responses, strict=True):
            if reading is None:  # not even a head, or a negative length
                continue
            aborted = [(entry.producer_id, entry.first_offset) for entry in ended]
            expected = outcome(read_batches(octets, at, aborted=aborted, chunk_bytes=chunk_bytes))
            assert outcome(reading) == expected
            assert next(reading, None) is None  # after an error nothing comes any more
            assert (reading.held_bytes, reading.unread, reading.ready) == (0, False, 0)
        assert (ahead.ready, ahead.step()) == (None, False)


@pytest.mark.usefixtures("by_batch")
def test_what_is_ready_and_not_taken_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(*[1_000] * 40)
    piece = 1_000 + read_ahead.RECORD_BYTES
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 10 * piece)
    ahead = ReadAhead()
    most = 0
    readings = [begun(ahead, log.data) for _ in range(3)]
    for reading in readings:
        for _ in range(40):
            deadline = time.monotonic() + 10
            while sum(one.held_bytes for one in readings) <= 10 * piece and any(one.unread for one in readings):
                assert time.monotonic() < deadline
                time.sleep(0.0002)  # the thread reads on as long as there is room
            most = max(most, sum(one.held_bytes for one in readings))
            next(reading)
    assert 9 * piece < most <= 13 * piece  # a piece of each thread, heads of batches and records besides
    assert sum(one.held_bytes for one in readings) == 0


@pytest.mark.usefixtures("by_hand", "by_batch")
def test_nothing_waits_for_a_thread_that_does_not_come() -> None:
    log = log_of(1, 2, 3)
    ahead = ReadAhead()
    reading = begun(ahead, log.data)
    assert outcome(reading) == outcome(read_batches(log.data, 0, chunk_bytes=1))


@pytest.mark.usefixtures("by_hand", "by_batch")
def test_pieces_are_read_in_the_order_in_which_responses_came() -> None:
    ahead = ReadAhead()
    first, second = begun(ahead, log_of(1, 2).data), begun(ahead, log_of(3).data)
    assert ahead.ready == 0
    taken = []
    while ahead.step():
        taken.append((first.ready, second.ready, ahead.ready))
    # a response ends with a step that finds nothing more
    assert taken == [(1, 0, 1), (2, 0, 2), (2, 0, 2), (2, 1, 3), (2, 1, None)]


def test_the_one_who_polls_reads_another_response_while_the_thread_is_at_the_next_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = threading.get_ident()
    entered, leave = threading.Event(), threading.Event()
    by: list[tuple[int, bool]] = []

    def slowly(data: bytes, *arguments: Any, **options: Any) -> Iterator[Records]:
        for records in read_batches(data, *arguments, **options, chunk_bytes=1):
            by.append((len(records.value(0) or b""), threading.get_ident() == here))
            if threading.get_ident() != here:
                entered.set()
                assert leave.wait(60)
            elif len(by) == 3:
                leave.set()  # the other response is read by now
            yield records

    monkeypatch.setattr(read_ahead, "read_batches", slowly)
    ahead = ReadAhead()
    first = begun(ahead, log_of(1).data)
    assert entered.wait(60)
    second = begun(ahead, log_of(2, 3).data)
    assert len(list(first)) == 1
    assert by == [(1, False), (2, True), (3, True)]
    assert [len(records.value(0) or b"") for records in second] == [2, 3]


@pytest.mark.usefixtures("by_hand")
def test_whatever_goes_wrong_is_raised_where_records_are_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any, **_options: Any) -> Iterator[Records]:
        msg = "a mistake of ours"
        raise RuntimeError(msg)
        yield

    monkeypatch.setattr(read_ahead, "read_batches", broken)
    ahead = ReadAhead()
    reading = begun(ahead, log_of(1).data)
    assert ahead.step()
    with pytest.raises(RuntimeError, match="mistake"):
        next(reading)
    assert next(reading, None) is None


@pytest.mark.usefixtures("by_hand")
def test_a_response_that_is_dropped_is_not_read_and_leaves_nothing_behind() -> None:
    ahead = ReadAhead()
    reading, other = begun(ahead, log_of(1).data), begun(ahead, log_of(2).data)
    assert ahead.step()
    gone = weakref.ref(reading)
    gc.disable()
    try:
        del reading
        assert gone() is None
    finally:
        gc.enable()
    assert (ahead.ready, other.ready) == (0, 0)
    while ahead.step():
        pass
    assert other.ready == 1


@pytest.mark.usefixtures("by_hand")
def test_a_reading_is_found_by_its_data_and_only_once() -> None:
    ahead = ReadAhead()
    data, other = memoryview(log_of(1).data), memoryview(log_of(1).data)
    reading = begun(ahead, data)
    while ahead.step():
        pass
    assert ahead.reading(other) is None
    assert ahead.reading(data) is reading
    assert ahead.reading(data) is None


@pytest.mark.parametrize("changed", [{"error_code": 6}, {"records": b""}, {"records": None}, {"records": b"short"}])
def test_responses_without_records_are_not_read(changed: dict[str, Any]) -> None:
    assert ReadAhead().begin(completed(log_of(99).data, 0, **changed), check_crc=True, committed_only=True) is None


def threads() -> list[threading.Thread]:
    """Those that read ahead."""
    return [one for one in threading.enumerate() if one.name == read_ahead.THREAD]


def await_no_thread() -> None:
    """Until the last one has ended."""
    deadline = time.monotonic() + 60
    while threads():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_thread_ends_without_work_and_with_its_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    await_no_thread()
    monkeypatch.setattr(read_ahead, "IDLE_S", 0.01)
    ahead = ReadAhead()
    for _ in range(3):
        reading = begun(ahead, log_of(1).data)
        assert len(list(reading)) == 1
        await_no_thread()
    reading = begun(ahead, log_of(1).data)
    del ahead, reading
    gc.collect()
    await_no_thread()


@pytest.mark.usefixtures("by_batch")
def test_threads_that_come_and_go_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "IDLE_S", 0.0005)
    seed = random.Random(5)
    ahead = ReadAhead()
    for turn in range(150):
        log = log_of(*[seed.randrange(9) for _ in range(4)])
        reading = begun(ahead, log.data)
        if turn % 3:
            time.sleep(seed.random() * 0.002)
        assert [len(records) for records in reading] == [1] * 4
        assert len(threads()) <= 2  # one that ends and one that begins


def test_the_thread_has_its_share_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    by = set()

    def noted(*arguments: Any, **options: Any) -> Iterator[Records]:
        for records in read_batches(*arguments, **options):
            by.add(threading.get_ident())
            yield records

    monkeypatch.setattr(read_ahead, "read_batches", noted)
    log = log_of(*range(200))
    ahead = ReadAhead()
    for _ in range(300):
        readings = [begun(ahead, log.data) for _ in range(2)]
        time.sleep(0.0002)
        assert [sum(map(len, reading)) for reading in readings] == [200, 200]
        if by - {threading.get_ident()}:
            break
    assert by - {threading.get_ident()}


@pytest.mark.parametrize(
    ("size", "codec", "pays"), [(10, 0, False), (40, 0, False), (70, 0, True), (10, 1, True), (10, 4, True)]
)
def test_short_records_that_are_not_compressed_are_left_to_the_poll_thread(
    size: int, codec: int, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "SHORT_BYTES", 64)
    batch = Batch(tuple(Record(i, 0, None, bytes(size)) for i in range(20)), 19, codec=codec)
    found = ReadAhead().begin(completed(batch.encode(0)), check_crc=True, committed_only=True)
    assert (found is not None) == pays
