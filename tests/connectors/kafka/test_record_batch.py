"""Record batches: the compiled reader equals kafka-python's own parser, and refuses what is broken.

In: logs of random batches. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.structs import TopicPartition

from helpers.kafka.batches import (
    Aborted,
    Batch,
    Log,
    Record,
    assemble,
    data_batches,
    logs,
    marker,
    old_message_set,
    varint,
)
from helpers.kafka.whole import join, parse_batches
from sketchstream.errors import CorruptRecordError
from sketchstream_connectors.decode.records import Records, from_client_records
from sketchstream_connectors.kafka.fetch import compression
from sketchstream_connectors.kafka.fetch import record_batch as batch_reader
from sketchstream_connectors.kafka.fetch.record_batch import end_of, read_batches

PARTITION = TopicPartition("t", 0)


def rows(records: Records) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Plain tuples."""
    return [
        (int(records.offsets[i]), int(records.timestamps[i]), records.key(i), records.value(i))
        for i in range(len(records))
    ]


def stock(data: bytes, position: int, aborted: list[Aborted] | None) -> tuple[list[Any], int, int]:
    """The client's own records, position and leader epoch."""
    part = Fetcher.PartitionRecords(
        position,
        PARTITION,
        MemoryRecords(data),
        isolation_level=IsolationLevel.READ_UNCOMMITTED if aborted is None else IsolationLevel.READ_COMMITTED,
        aborted_transactions=aborted,
    )
    records = part.take(None)
    part._maybe_raise_next_inline_exception()  # the client keeps an error behind good records for its next call
    return records, part.next_fetch_offset, part.leader_epoch


def raw(data: bytes, position: int, aborted: list[Aborted] | None = None, **options: Any) -> Records:
    """Ours."""
    pairs = None if aborted is None else [(entry.producer_id, entry.first_offset) for entry in aborted]
    return parse_batches(data, position, aborted=pairs, **options)


def bounds_hold(records: Records) -> None:
    """Every bound lies in the buffer."""
    size = records.buffer.size
    assert ((records.key_start == -1) == (records.key_end == -1)).all()
    assert (records.value_end[records.value_start >= 0] >= 0).all()
    for start, end in ((records.key_start, records.key_end), (records.value_start, records.value_end)):
        assert (start >= -1).all()
        assert (start <= end).all()
        assert (end <= size).all()


@pytest.mark.statistics
@given(logs(), st.data())
@settings(max_examples=150)
def test_compiled_reader_equals_the_stock_parser_on_random_logs(log: Log, data: st.DataObject) -> None:
    committed = data.draw(st.booleans())
    aborted = log.aborted if committed else None
    begin = log.batches[0][0] if log.batches else 0
    cut = data.draw(st.integers(0, 70))
    held = log.data[: max(len(log.data) - cut, 0)]
    # a fetch never begins behind the first batch that the broker returns
    position = data.draw(st.integers(begin, log.batches[0][1] - 1)) if log.batches else begin
    expected, next_position, epoch = stock(held, position, aborted)
    found = raw(held, position, aborted)
    bounds_hold(found)
    assert rows(found) == rows(from_client_records(expected, next_position=next_position))
    headers = [(tuple((name, value or b"") for name, value in one.headers), True) for one in expected]
    if found.framed or not any(one.headers for one in expected):
        assert [found.headers(i) for i in range(len(found))] == headers
    assert [from_client_records(expected).headers(i) for i in range(len(expected))] == headers
    assert found.next_position == max(next_position, position)
    assert found.leader_epoch == epoch
    assert not found.buffer.flags.writeable


@given(logs(), st.data())
def test_the_heads_alone_say_where_reading_continues(log: Log, data: st.DataObject) -> None:
    position = data.draw(st.integers(log.batches[0][0] if log.batches else log.end, log.end))
    held = log.fetch(position, data.draw(st.integers(1, len(log.data) + 1)))
    aborted = [(entry.producer_id, entry.first_offset) for entry in log.aborted]
    read = parse_batches(held, position, aborted=aborted)
    old = any(batch[16] < 2 for base, _, batch in log.batches if batch in held)
    assert end_of(held, position) == (None if not held or old else (read.next_position, read.leader_epoch))


def test_heads_that_do_not_say_where_reading_continues() -> None:
    data = bytearray(marker(1, True).encode(0))
    assert end_of(data, 0) == (1, parse_batches(data, 0).leader_epoch)
    assert end_of(data[:-1], 0) is None
    data[16] = 3
    assert end_of(data, 0) is None


@given(logs(), st.integers(1, 400), st.booleans())
def test_pieces_of_any_size_join_to_the_whole(log: Log, chunk_bytes: int, committed: bool) -> None:
    pairs = [(entry.producer_id, entry.first_offset) for entry in log.aborted] if committed else None
    begin = log.batches[0][0] if log.batches else 0
    whole = parse_batches(log.data, begin, aborted=pairs)
    pieces = list(read_batches(log.data, begin, aborted=pairs, chunk_bytes=chunk_bytes))
    assert sum(len(piece) for piece in pieces) == len(whole)
    if pieces:
        joined = join(pieces)
        bounds_hold(joined)
        assert rows(joined) == rows(whole)
        assert joined.next_position == whole.next_position
    positions = [begin] + [piece.next_position for piece in pieces]
    assert positions == sorted(set(positions))  # each piece moves on


def test_positions_pass_control_batches_aborted_batches_and_compacted_tails() -> None:
    log = Log()
    log.add(Batch((Record(0, 0, None, b"a"),), 9))  # records 1 to 9 were compacted away
    log.add(Batch((Record(0, 0, None, b"b"),), 0, attributes=0x10, producer=1))
    log.add(marker(1, commit=False))
    log.add(Batch((), 4))  # all of it compacted away
    found = raw(log.data, 0, [Aborted(1, 10)])
    assert rows(found) == [(0, 1000, None, b"a")]
    assert found.next_position == log.end == 17
    (only,) = read_batches(log.batches[2][2], 11, aborted=[])
    assert (len(only), only.next_position) == (0, 12)


def test_a_transaction_is_skipped_until_its_marker_and_no_longer() -> None:
    log = Log()
    for value, producer in ((b"a", 1), (b"b", 2)):
        log.add(Batch((Record(0, 0, None, value),), 0, attributes=0x10, producer=producer))
    log.add(marker(1, commit=False))
    log.add(Batch((Record(0, 0, None, b"c"),), 0, attributes=0x10, producer=1))
    log.add(marker(1, commit=True))
    log.add(marker(2, commit=True))
    assert [value for *_, value in rows(raw(log.data, 0, [Aborted(1, 0)]))] == [b"b", b"c"]
    assert [value for *_, value in rows(raw(log.data, 0, None))] == [b"a", b"b", b"c"]


def test_batches_outside_transactions_are_read_even_from_a_producer_that_aborts() -> None:
    log = Log()
    for value, attributes in ((b"a", 0x10), (b"b", 0)):
        log.add(Batch((Record(0, 0, None, value),), 0, attributes=attributes, producer=1))
    aborted = [Aborted(1, 0)]
    assert [r.value for r in stock(log.data, 0, aborted)[0]] == [b"b"]
    assert [value for *_, value in rows(raw(log.data, 0, aborted))] == [b"b"]


def test_nothing_is_read_from_nothing() -> None:
    for data in (b"", b"\x00" * 11, assemble(b"")[:-1]):
        found = parse_batches(data, 42)
        assert len(found) == 0
        assert found.next_position == 42
        assert list(read_batches(data, 42)) == []


def test_any_buffer_type_is_read() -> None:
    data = Batch((Record(0, 0, b"k", b"v"),), 0).encode(3)
    for kind in (bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b))):
        assert rows(parse_batches(kind(data), 0)) == [(3, 1000, b"k", b"v")]


@given(data_batches(), data_batches(), st.data())
def test_a_changed_byte_is_corruption_and_what_precedes_it_is_kept(
    first: Batch, second: Batch, data: st.DataObject
) -> None:
    head = first.encode(0)
    tail = bytearray(second.encode(100))
    at = data.draw(st.integers(17, len(tail) - 1))  # the checksum itself, or what it covers
    tail[at] ^= 1 << data.draw(st.integers(0, 7))
    pieces = []
    with pytest.raises(CorruptRecordError) as caught:
        pieces.extend(read_batches(head + bytes(tail), 0))
    assert caught.value.offset == 100
    pieces = collected(head + bytes(tail))
    assert rows(join(pieces)) == rows(parse_batches(head, 0))
    assert pieces[-1].next_position == first.last_delta + 1
    with pytest.raises(Exception, match="crc"):
        stock(bytes(tail), 100, None)


def collected(data: bytes, **options: Any) -> list[Records]:
    """Pieces up to the error."""
    pieces = []
    try:
        for piece in read_batches(data, 0, **options):
            pieces.append(piece)
    except CorruptRecordError:
        pass
    return pieces


def test_checksums_can_be_left_out() -> None:
    data = bytearray(Batch((Record(0, 0, None, b"v"),), 0).encode(0))
    data[-2] ^= 0xFF  # the value
    with pytest.raises(CorruptRecordError, match="checksum"):
        parse_batches(data, 0)
    assert len(parse_batches(data, 0, check_crc=False)) == 1


LOWEST = -(1 << 63)
LIE = (1 << 62) + 5
RECORD = Record(0, 0, b"key", b"value").encode()
BODY = b"\x00" + varint(0) + varint(0)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (RECORD, 2),
        (RECORD + b"\x00", 1),
        (RECORD, 0),
        (RECORD, -1),
        (RECORD, (1 << 31) - 1),
        (RECORD[:-1], 1),
        (b"", 1),
        (varint(-1) + RECORD[1:], 1),
        (varint(LIE) + RECORD[1:], 1),
        (varint(9) + BODY + varint(LIE) + b"x" * 8, 1),
        (varint(len(BODY) + 11) + BODY + varint((1 << 63) - 1) + b"x", 1),
        (varint(len(BODY) + 3) + BODY + varint(-1) + varint(-1) + varint(-1), 1),
        (varint(len(BODY) + 3) + BODY + varint(-1) + varint(-1) + varint(3), 1),
        (varint(len(BODY) + 5) + BODY + varint(-1) + varint(-1) + varint(1) + varint(-1) + varint(-1), 1),
        (varint(12) + b"\x00" + b"\xff" * 11, 1),
        (b"\xff" * 9 + b"\x02" + RECORD, 1),
        (varint(15) + b"\x00" + b"\xff" * 9 + b"\x02" + varint(0) + varint(-1) + varint(-1) + varint(0), 1),
        (varint(len(BODY) + 3 + len(RECORD)) + BODY + varint(-1) + varint(-1) + varint(0) + RECORD, 2),
    ],
)
def test_records_that_do_not_fit_their_head_are_corrupt_and_never_poison(payload: bytes, count: int) -> None:
    good = Batch((Record(0, 0, None, b"before"),), 0).encode(0)
    data = good + assemble(payload, base=1, count=count)
    with pytest.raises(CorruptRecordError) as caught:
        parse_batches(data, 0)
    assert caught.value.offset == 1
    (before,) = collected(data)
    assert rows(before) == [(0, 1000, None, b"before")]
    assert before.next_position == 1


def test_a_negative_count_of_an_empty_batch_is_no_record() -> None:
    data = assemble(b"", count=-5, last_delta=2)
    assert stock(data, 0, None)[1] == parse_batches(data, 0).next_position == 3


@pytest.mark.parametrize("length", [0, 5, 13, 48, -1, -(1 << 31)])
@pytest.mark.parametrize("magic", [2, 3, 127])
def test_a_head_that_cannot_be_is_corrupt(length: int, magic: int) -> None:
    data = struct.pack(">qiibI", 77, length, 0, magic, 0) + bytes(64)
    with pytest.raises(CorruptRecordError) as caught:
        parse_batches(data, 0)
    assert caught.value.offset == 77


def test_a_length_beyond_the_end_is_a_batch_cut_off() -> None:
    data = Batch((Record(0, 0, None, b"v"),), 0).encode(0) + struct.pack(">qiib", 1, (1 << 31) - 1, 0, 2) + bytes(80)
    assert parse_batches(data, 0).next_position == 1


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(codec: int) -> None:
    with pytest.raises(CorruptRecordError, match="codec"):
        parse_batches(assemble(RECORD, count=1, codec=codec), 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_data_that_are_broken_are_corrupt(codec: int) -> None:
    whole = Batch((Record(0, 0, b"k" * 50, b"v" * 50),), 0, codec=codec).encode(0)[61:]
    for payload in (b"", whole[:-1], whole[:20], b"\x00" * 30, whole[: len(whole) // 2]):
        with pytest.raises(CorruptRecordError):
            parse_batches(assemble(payload, count=1, codec=codec), 0)


def test_compressed_data_that_grow_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_BATCH_BYTES", 100_000)
    for codec in (1, 2, 3, 4):
        small = Batch((Record(0, 0, None, bytes(90_000)),), 0, codec=codec).encode(0)
        assert len(parse_batches(small, 0)) == 1
        large = Batch((Record(0, 0, None, bytes(110_000)),), 0, codec=codec).encode(0)
        with pytest.raises(CorruptRecordError, match="TooLarge"):
            parse_batches(large, 0)


def test_gzip_into_its_place_is_what_zlib_makes_of_it_or_refused_like_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.Random(3)
    streams = [gzip.compress(bytes(size)) for size in (0, 1, 700, 100_000)]
    streams += [gzip.compress(seed.randbytes(size)) for size in (0, 1, 700, 100_000)]
    streams += [streams[1] + streams[2], streams[2] + b"\0" * 8, streams[6] + streams[0], streams[2][:-9]]
    for stream in list(streams):
        for _ in range(20):
            damaged = bytearray(stream)
            damaged[-seed.randint(1, min(len(damaged), 12))] = seed.randrange(256)  # checksum, length, last block
            streams.append(bytes(damaged))
    results = []
    for quick in (True, False):
        if not quick:
            monkeypatch.setattr(compression, "_one_member", lambda _data, _room: None)
        found: list[bytes | None] = []
        for stream in streams:
            try:
                found.append(compression.Decompressor().decompress(1, memoryview(stream), 0).tobytes())
            except CorruptRecordError:
                found.append(None)
        results.append(found)
    assert results[0] == results[1]
    assert 40 < results[0].count(None) < len(streams) - 10


def compressed(codec: int, plain: bytes, seed: random.Random) -> bytes:
    """One batch's data as some producer writes them."""
    if codec == 1:
        return gzip.compress(plain)
    if codec == 2:
        raw = bytes(cramjam.snappy.compress_raw(plain))
        framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(raw)) + raw
        return raw if seed.random() < 0.5 else framed
    if codec == 3:
        return lz4.frame.compress(
            plain,
            store_size=seed.random() < 0.5,
            content_checksum=seed.random() < 0.5,
            block_checksum=seed.random() < 0.5,
            block_linked=seed.random() < 0.5,
        )
    return zstandard.ZstdCompressor(
        write_content_size=seed.random() < 0.5, write_checksum=seed.random() < 0.5
    ).compress(plain)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_with_room_and_without_the_same_comes_out_or_the_same_is_refused(codec: int) -> None:
    seed = random.Random(codec)
    reused = compression.Decompressor()
    refused = placed = 0
    for plain in [bytes(size) for size in (0, 1, 700, 200_000)] + [seed.randbytes(size) for size in (1, 700, 100_000)]:
        whole = compressed(codec, plain, seed)
        streams = [whole, whole + whole, whole + b"abc", whole + b"\0" * 8, b"", *(whole[:-n] for n in (1, 4, 5, 9))]
        for _ in range(30):
            damaged = bytearray(whole)
            damaged[seed.randrange(min(len(damaged), 40))] = seed.randrange(256)
            streams.append(bytes(damaged))
        for stream in streams:
            view = memoryview(stream)
            try:
                expected = compression.Decompressor().decompress(codec, view, 5).tobytes()
            except CorruptRecordError:
                expected = None
                refused += 1
            size = len(expected or plain)
            for length in (0, 1, size // 2, size - 1, size, size + 1, 2 * size + 100):
                array = np.full(max(length, 0), 0xA5, dtype=np.uint8)
                room = array.data[: len(array)]
                if expected is None:
                    with pytest.raises(CorruptRecordError):
                        reused.decompress(codec, view, 5, room)
                    continue
                found = reused.decompress(codec, view, 5, room)
                assert found == expected
                if found.obj is array:
                    assert array[: len(found)].tobytes() == expected, "it is at the beginning of the room"
                    placed += 1
                elif stream is whole:
                    assert length <= size or not size, "there was room"
    assert refused > 20
    assert placed > 50


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_are_decompressed_to_where_their_records_stay(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def take(size: int) -> memoryview:
        taken.append(size)
        return np.empty(size, dtype=np.uint8).data

    batches = [Batch(tuple(Record(n, n, b"key", b"%d" % n * 40) for n in range(200)), 200, codec=codec)] * 6
    data = b"".join(batch.encode(201 * n) for n, batch in enumerate(batches))
    expected = stock(data, 0, None)[0]
    monkeypatch.setattr(batch_reader.PAYLOADS, "take", take)
    (found,) = read_batches(data, 0)
    assert rows(found) == [(one.offset, one.timestamp, one.key, one.value) for one in expected]
    bounds_hold(found)
    assert taken[-1] >= found.buffer.size
    assert len(taken) <= 2, "the first batch of a response, and the room of all"
    taken.clear()
    pieces = list(read_batches(data, 0, chunk_bytes=len(found.buffer) // 3))
    assert rows(join(pieces)) == rows(found)
    assert len(pieces) == 3
    assert len(taken) <= 4


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_that_grow_otherwise_than_the_first_one_are_read_whole(codec: int) -> None:
    seed = random.Random(codec)
    zeros, noise = bytes(150_000), [seed.randbytes(9_000) for _ in range(20)]
    for order in ([zeros, *noise], [*noise, zeros], [noise[0], zeros, *noise[1:], zeros, noise[2]]):
        for mixed in (False, True):  # a producer sends as it is what does not shrink
            data = b"".join(
                Batch((Record(0, 0, None, value),), 0, codec=0 if mixed and n % 3 == 1 else codec).encode(n)
                for n, value in enumerate(order)
            )
            for chunk_bytes in (1, 20_000, 100_000, None):
                pieces = list(read_batches(data, 0, chunk_bytes=chunk_bytes))
                for piece in pieces:
                    bounds_hold(piece)
                assert [value for *_, value in rows(join(pieces))] == order


def test_gzip_of_several_members_and_plain_snappy_are_read() -> None:
    one, two = RECORD, Record(1, 0, b"k2", b"v2").encode()
    members = zlib.compress(one, wbits=31) + zlib.compress(two, wbits=31)
    plain = bytes(cramjam.snappy.compress_raw(one + two))
    for codec, payload in ((1, members), (2, plain)):
        data = assemble(payload, count=2, last_delta=1, codec=codec)
        assert rows(parse_batches(data, 0)) == [(0, 1000, b"key", b"value"), (1, 1000, b"k2", b"v2")]
        assert len(stock(data, 0, None)[0]) == 2


def test_header_names_that_are_not_utf8_do_not_stop_a_partition() -> None:
    body = BODY + varint(-1) + varint(1) + b"v" + varint(1) + varint(1) + b"\xff" + varint(-1)
    data = assemble(varint(len(body)) + body, count=1)
    assert rows(parse_batches(data, 0)) == [(0, 1000, None, b"v")]
    with pytest.raises(Exception, match="record structure"):  # the stock parser halts here
        stock(data, 0, None)


def with_headers(*headers: tuple[bytes, bytes | None], value: bytes | None = b"v") -> bytes:
    """One batch of one record without a key."""
    body = BODY + varint(-1) + (varint(-1) if value is None else varint(len(value)) + value) + varint(len(headers))
    for name, text in headers:
        body += varint(len(name)) + name + (varint(-1) if text is None else varint(len(text)) + text)
    return assemble(varint(len(body)) + body, count=1)


def test_headers_of_a_record_whatever_they_hold() -> None:
    odd = [(b"plain", b"1"), (b"", b""), (b"\xff\x00", None), (b"plain", b"2")]
    expected = (("plain", b"1"), ("", b""), ("\\xff\x00", b""), ("plain", b"2"))
    for value in (b"v", b"", None):
        assert parse_batches(with_headers(*odd, value=value), 0).headers(0) == (expected, True)
    assert parse_batches(with_headers(), 0).headers(0) == ((), True)


@pytest.mark.parametrize(
    ("name", "value", "count", "kept"),
    [
        (b"h", b"", 64, 64),
        (b"h", b"", 65, 64),
        (b"h", b"", 50_000, 64),
        (b"12", b"x" * 16_382, 1, 1),
        (b"h", b"x" * 16_384, 1, 0),
    ],
)
def test_headers_are_bounded_in_number_and_size(name: bytes, value: bytes, count: int, kept: int) -> None:
    found, whole = parse_batches(with_headers(*[(name, value)] * count), 0).headers(0)
    assert len(found) == kept
    assert whole == (kept == count)
    given_ = [_Plain(0, 0, None, b"v", [(name.decode(), value)] * count)]
    assert from_client_records(given_).headers(0) == (found, whole)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2])
def test_old_formats_are_read_by_the_clients_parser(magic: int, codec: int) -> None:
    data = old_message_set(0, magic, codec, [(b"a", b"1" * 60), (None, b"2" * 60), (b"c", None)])
    new = Batch((Record(0, 0, None, b"new"),), 0).encode(3)
    expected, next_position, _ = stock(data + new, 0, None)
    found = parse_batches(data + new, 0)
    assert rows(found) == rows(from_client_records(expected))
    assert found.next_position == next_position == 4
    assert [value for *_, value in rows(parse_batches(data + new, 2))] == [None, b"new"]
    broken = bytearray(data)
    broken[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        parse_batches(bytes(broken), 0)


@dataclass(frozen=True)
class _Plain:
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def test_client_records_become_the_same_arrays() -> None:
    given_ = [_Plain(5, 100, b"k", None), _Plain(9, None, None, b""), _Plain(10, -3, b"", b"vv")]
    found = from_client_records(given_)
    assert rows(found) == [(5, 100, b"k", None), (9, -1, None, b""), (10, -3, b"", b"vv")]
    assert found.next_position == 11
    assert from_client_records(given_, next_position=20).next_position == 20
    with pytest.raises(ValueError, match="next_position"):
        from_client_records([])


def test_no_repr_or_error_shows_a_payload() -> None:
    data = bytearray(Batch((Record(0, 0, b"marked-key", b"marked-value"),), 0).encode(0))
    assert "marked" not in repr(parse_batches(data, 0))
    data[-3] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        parse_batches(data, 0)
    assert "marked" not in repr(caught.value)


def with_checksums(data: bytes) -> bytes:
    """Every whole batch gets the checksum that its bytes have."""
    out = bytearray(data)
    position = 0
    while len(out) - position >= 61:
        (length,) = struct.unpack_from(">i", out, position + 8)
        if length < 49 or length > len(out) - position - 12:
            break
        struct.pack_into(">I", out, position + 17, crc32c(bytes(out[position + 21 : position + 12 + length])))
        position += 12 + length
    return bytes(out)


@pytest.mark.statistics
@given(logs(old_formats=False), st.data())
@settings(max_examples=200)
@example(Log(), None)
def test_mutated_batches_are_read_like_the_stock_parser_or_refused(log: Log, data: st.DataObject | None) -> None:
    held = bytearray(log.data)
    if data is None or not held:
        return
    for _ in range(data.draw(st.integers(1, 4))):
        held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
    mutated = with_checksums(bytes(held))
    try:
        found = parse_batches(mutated, LOWEST)
    except CorruptRecordError:
        for piece in collected(mutated, aborted=None):
            bounds_hold(piece)
        return
    bounds_hold(found)
    try:
        expected, _, _ = stock(mutated, LOWEST, None)
    except Exception:
        return  # the stock parser refuses more: header names, attributes read as a varint, offsets beyond int64
    assert [row[2:] for row in rows(found)] == [(r.key, r.value) for r in expected]


@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_never_crash(noise: bytes, framed: bool) -> None:
    data = assemble(noise, count=max(len(noise) // 8, 1)) if framed else noise
    for piece in collected(data, check_crc=framed):
        bounds_hold(piece)
