"""Patches kafka-python to return whole record batches instead of one object per record.

In: a consumer. Out: `Records` from its `poll()`, each with the position it was fetched from. Touches: the
consumer's fetcher and the receive path of its connections, only after a self-test against the client's own parsers.

The rest of the client is unchanged: groups, positions, pausing, fetch sessions. Three parts are replaced, each of which
relies on private names of the client: the reader of fetch responses (`Fetcher.PartitionRecords`), how frames are
received (`frames`), and when the next fetch is sent and responses are read (`fetch_ahead`, `read_ahead`). If they
cannot be replaced, `self_test` returns the reason, and the stock path is used.

`Records` are a view of the frame that they arrived in, whose memory a later fetch may reuse. To keep data beyond the
next poll, copy it, or keep the `Records` and with them the whole frame.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal, cast

from sketchstream.errors import ConfigError, CorruptRecordError, MissingExtraError
from sketchstream_connectors.decode.memory_pool import MemoryPool
from sketchstream_connectors.decode.records import ClientRecord, Records, from_client_records
from sketchstream_connectors.kafka.fetch import fetch_ahead, fetch_responses, frames
from sketchstream_connectors.kafka.fetch.read_ahead import ReadAhead, read_committed
from sketchstream_connectors.kafka.fetch.record_batch import read_batches

Decode = Literal["auto", "raw", "stock"]
FetchPath = Literal["raw", "stock"]


def attach(consumer: object, decode: Decode = "auto") -> FetchPath:
    """Make `consumer.poll()` return `{partition: [Records, ...]}` where that is safe.

    `max_records` of `poll` then counts `Records`. Errors keep the client's types: a wrong checksum is
    `kafka.errors.CorruptRecordError`, after the records before it. The broken response is dropped with it, so that the
    next poll asks the broker again, which may have a sound copy by then.

    Args:
        consumer: a `kafka.KafkaConsumer` without deserializers, before its first poll.
        decode: "auto" falls back to the stock path when the self-test fails, "raw" refuses, "stock" takes the client's
            own parser; the dropping of broken responses is added to it too, because kafka-python 3.0 never returns
            from the poll after such an error.

    Returns:
        The path that is in effect. On "stock", `as_records` turns what `poll()` returns into `Records`.

    Raises:
        ConfigError: decode is "raw" and the self-test failed, or is none of the three.
    """
    if decode not in {"auto", "raw", "stock"}:
        raise ConfigError(f"decode must be 'auto', 'raw' or 'stock', found {decode!r:.40}")
    unfit = _unfit(consumer)
    fetcher = getattr(consumer, "_fetcher", None)
    if decode == "stock":
        if unfit is None:
            cast("Any", fetcher).PartitionRecords = stock_partition_records()
        return "stock"
    reason = unfit or self_test()
    if reason is not None:
        if decode == "raw":
            raise ConfigError(f"decode = 'raw' is not possible: {reason}. Use decode = 'auto' or 'stock'")
        return attach(consumer, "stock")
    pool, reader = MemoryPool(), ReadAhead()
    cast("Any", fetcher).PartitionRecords = type("PartitionRecords", (raw_partition_records(),), {"reader": reader})
    frames.install(consumer, pool)
    fetch_ahead.install(consumer, pool, reader)
    return "raw"


def as_records(
    polled: Sequence[Records] | Sequence[ClientRecord], from_position: int, next_position: int, leader_epoch: int = -1
) -> list[Records]:
    """What `poll()` returned for one partition as `Records`, on either path.

    Args:
        polled: `Records` (given back as they are), or the stock client's records.
        from_position: the consumer's position before that poll.
        next_position: the consumer's position after the poll.
        leader_epoch: leader epoch of the last record's batch.
    """
    whole = [entry for entry in polled if isinstance(entry, Records)]
    if whole:
        return whole
    if not polled and from_position == next_position:
        return []
    stock = cast("Sequence[ClientRecord]", polled)
    return [
        from_client_records(stock, from_position=from_position, next_position=next_position, leader_epoch=leader_epoch)
    ]


def _client_error(error: CorruptRecordError | MissingExtraError, partition: object) -> Exception:
    """Report a failure as the stock path reports it."""
    import kafka.errors

    if isinstance(error, MissingExtraError):
        return cast("Exception", kafka.errors.UnsupportedCodecError(f"{partition}: {error}"))
    return cast("Exception", kafka.errors.CorruptRecordError(f"{partition} at offset {error.offset}: {error}"))


@cache
def raw_partition_records() -> type:
    """The subclass of the client's `PartitionRecords` whose `take()` returns `Records`."""
    from kafka.consumer.fetcher import Fetcher

    class RawPartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
        """One fetch response of one partition, handed out as `Records`."""

        reader: ReadAhead | None = None

        def _unpack_records(
            self, _partition: object, records: Any, _keys: object, _values: object
        ) -> Iterator[Records]:
            """Return `Records` instead of one object per record."""
            data = records._buffer
            pieces: Iterator[Records] | None = None if self.reader is None else self.reader.reading(data)
            if pieces is None:
                aborted = None
                if self.isolation_level == read_committed():
                    aborted = [(entry.producer_id, entry.first_offset) for entry in self.aborted_transactions]
                pieces = read_batches(data, self.fetch_offset, check_crc=self.check_crcs, aborted=aborted)
            return self._hand_out(pieces, len(data))

        def _hand_out(self, pieces: Iterator[Records], n_bytes: int) -> Iterator[Records]:
            """Return `Records`, and keep the client's positions; let go of the response at its end, or at an error."""
            try:
                for piece in pieces:
                    self.leader_epoch = piece.leader_epoch
                    self.next_fetch_offset = piece.next_position
                    self.records_read += len(piece)
                    self.bytes_read = n_bytes
                    yield piece
            except (CorruptRecordError, MissingExtraError) as error:
                self.drain()
                raise _client_error(error, self.topic_partition) from error
            self.drain()

        def _maybe_skip_record(self, _record: object) -> bool:
            """Skip nothing: records below the position are dropped when they are read."""
            return False

    return RawPartitionRecords


@cache
def stock_partition_records() -> type:
    """The client's `PartitionRecords`, which lets go of a response that it cannot read."""
    from kafka.consumer.fetcher import Fetcher

    class StockPartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
        """One fetch response of one partition, parsed by the client."""

        def take(self, n: int | None = None) -> list[Any]:
            """Records; after an error, none any more."""
            try:
                return cast("list[Any]", super().take(n))
            except Exception:
                self.drain()
                raise

    return StockPartitionRecords


def _unfit(consumer: object) -> str | None:
    """Why this consumer cannot be hooked, or None."""
    from kafka.consumer.fetcher import Fetcher
    from kafka.consumer.group import KafkaConsumer
    from kafka.net.connection import KafkaConnection
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.transport import KafkaTCPTransport

    fetcher = getattr(consumer, "_fetcher", None)
    if not isinstance(fetcher, Fetcher):
        return "the consumer has no fetcher of the known kind"
    manager = getattr(consumer, "_manager", None)
    if manager is None or fetcher._manager is not manager:
        return "the consumer has no connections of the known kind"
    for method, names in (
        (Fetcher._parse_fetched_data, {"PartitionRecords"}),
        (Fetcher.fetch_records, {"fetched_records", "send_fetches"}),
        (Fetcher.send_fetches, {"_send_fetches_async"}),
        (Fetcher._send_fetches_async, {"_clear_pending_fetch_request", "_nodes_with_pending_fetch_requests"}),
        (Fetcher._create_fetch_requests, {"_fetchable_partitions", "_select_read_replica"}),
        (Fetcher.fetched_records, {"_completed_fetches", "_next_partition_records", "_paused_completed_fetches"}),
        (Fetcher.fetched_records, {"_paused_partition_records"}),
        (Fetcher._handle_fetch_response, {"_completed_fetches"}),
        (Fetcher._send_fetches_async, {"_create_fetch_requests", "_handle_fetch_response"}),
        (Fetcher._create_fetch_requests, {"_subscriptions", "assignment", "position"}),
        (KafkaConsumer._poll_once, {"_fetcher", "fetch_records"}),
        (KafkaConnectionManager._connect, {"_build_transport"}),
        (KafkaTCPTransport._read_from_sock, {"_sock_recv", "data_received"}),
        (KafkaConnection.data_received, {"parser", "receive_bytes"}),
    ):
        missing = sorted(names - set(method.__code__.co_names))
        if missing:
            return f"this kafka-python's {method.__qualname__} works without {missing[0]}"
    configured = getattr(fetcher, "config", {})
    if configured.get("key_deserializer") or configured.get("value_deserializer"):
        return "the consumer has deserializers"
    return None


@cache
def self_test() -> str | None:
    """Compare the raw path with the client's own parser on batches of every kind; why it cannot be used, or None."""
    try:
        return _compare() or _compare_frames()
    except Exception as error:  # whatever a changed client does
        return f"the self-test against the installed kafka-python failed ({type(error).__name__}: {error})"


def _compare() -> str | None:
    """The self-test proper."""
    from kafka.consumer.fetcher import Fetcher
    from kafka.protocol.consumer import IsolationLevel
    from kafka.record import MemoryRecords
    from kafka.structs import TopicPartition

    partition = TopicPartition("self-test", 0)
    for name, data, aborted in _samples():
        for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            options = {"check_crcs": True, "isolation_level": isolation, "aborted_transactions": aborted}
            for fetch_offset in (0, 1):
                outcomes = []
                for kind in (Fetcher.PartitionRecords, raw_partition_records()):
                    part: Any = kind(fetch_offset, partition, MemoryRecords(data), **options)
                    outcomes.append((part.take(1000), part.next_fetch_offset, bool(part)))
                (stock, position, open_stock), (raw, raw_position, open_raw) = outcomes
                plain = list(itertools.chain.from_iterable(_rows(records) for records in raw))
                if plain != [(r.offset, r.timestamp, r.key, r.value) for r in stock]:
                    return f"other records than the stock parser's ({name})"
                if (position, open_stock) != (raw_position, open_raw):
                    return f"another position than the stock parser's ({name})"
    return None


def _rows(records: Records) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Plain tuples, for comparison."""
    for index in range(len(records)):
        yield int(records.offsets[index]), int(records.timestamps[index]), records.key(index), records.value(index)


@dataclass(frozen=True)
class _Aborted:
    """An aborted transaction as a fetch response lists it."""

    producer_id: int
    first_offset: int


def _samples() -> Iterator[tuple[str, bytes, list[_Aborted]]]:
    """Batches by the client's own builder: each codec, old formats, a transaction aborted and one committed."""
    from kafka import codec as codecs
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecordsBuilder
    from kafka.record.util import calc_crc32c

    def batch(base: int, kind: int, magic: int = 2, producer: int = -1, transactional: bool = False) -> bytearray:
        """Two records at `base`."""
        state = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0} if producer >= 0 else {}
        builder = MemoryRecordsBuilder(magic, kind, 1 << 16, offset=0, transactional=transactional, **state)
        builder.append(1000, b"key" * 20, None)
        builder.append(999, None, b"value" * 20, [("name", b"x")] if magic == 2 else None)
        builder.close()
        data = bytearray(builder.buffer())
        if magic == 2:
            struct.pack_into(">q", data, 0, base)
        return data

    def marker(base: int, producer: int, kind: int) -> bytearray:
        """The control batch that ends a transaction: 0 aborts, 1 commits."""
        builder = DefaultRecordBatchBuilder(2, 0, True, producer, 0, -1, 1 << 16)
        builder.append(0, 1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), [])
        data = bytearray(builder.build())
        attributes = struct.unpack_from(">h", data, 21)[0] | 0x20
        struct.pack_into(">q", data, 0, base)
        struct.pack_into(">h", data, 21, attributes)
        struct.pack_into(">I", data, 17, calc_crc32c(memoryview(data)[21:]))
        return data

    present = ((0, True), (1, True), (2, codecs.has_snappy()), (3, codecs.has_lz4()), (4, codecs.has_zstd()))
    for kind, has in present:
        if has:
            yield f"codec {kind}", bytes(batch(0, kind) + batch(2, kind) + batch(7, 0) + batch(9, 0)[:-1]), []
    yield "old format", bytes(batch(0, 0, magic=1)), []
    ended = batch(0, 0, producer=5, transactional=True) + batch(2, 0) + marker(4, 5, 0)
    ended += batch(5, 0, producer=5, transactional=True) + marker(7, 5, 1)
    yield "transactions", bytes(ended), [_Aborted(5, 0)]


def _compare_frames() -> str | None:
    """Frames of many responses, in one piece and in several, through our receiver and through the client's."""
    from kafka.net.transport import KafkaTCPTransport
    from kafka.protocol.consumer import FetchRequest
    from kafka.protocol.parser import KafkaProtocol

    def responses(stream: bytes, size: int, raw: bool) -> list[tuple[int, Any]]:
        """What a connection makes of these bytes."""
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        parser = KafkaProtocol(client_id="self-test")
        transport: Any = KafkaTCPTransport(None, near)
        transport.set_protocol(SimpleNamespace(parser=parser))
        if raw:
            frames.Receiver(transport, MemoryPool())
        answers = []
        with near, far:
            for version in fetch_responses.VERSIONS:
                parser.send_request(FetchRequest(version=version, max_version=version))
            while stream:
                stream = stream[far.send(stream[:size]) :]
                data, error = transport._sock_recv()
                if error is not None:
                    raise error
                answers += parser.receive_bytes(data)
        return answers

    stream = b"".join(_frames())
    for size in (len(stream), 4001):
        stock, raw = responses(stream, size, raw=False), responses(stream, size, raw=True)
        if stock != raw or [type(answer) for _, answer in stock] != [type(answer) for _, answer in raw]:
            return f"other fetch responses than the stock parser's (frames in pieces of {size} bytes)"
        if len(raw) != len(fetch_responses.VERSIONS):
            return "fetch responses were lost"
    return None


def _frames() -> Iterator[bytes]:
    """One frame of each version by the client's own encoder: data, errors, aborted transactions, nulls, tags."""
    from kafka.protocol.consumer import FetchResponse

    topic = FetchResponse.FetchableTopicResponse
    kind = topic.PartitionData
    entries = [
        kind(
            partition_index=3,
            error_code=0,
            high_watermark=1 << 40,
            last_stable_offset=9,
            log_start_offset=1,
            aborted_transactions=[kind.AbortedTransaction(producer_id=5, first_offset=2)] * 2,
            preferred_read_replica=2,
            records=bytes(range(256)) * 300,
        ),
        kind(
            partition_index=4,
            error_code=6,
            high_watermark=-1,
            aborted_transactions=None,
            records=None,
            diverging_epoch=kind.EpochEndOffset(epoch=5, end_offset=3),
            current_leader=kind.LeaderIdAndEpoch(leader_id=3, leader_epoch=7),
            snapshot_id=kind.SnapshotId(end_offset=9, epoch=8),
        ),
    ]
    for number, version in enumerate(fetch_responses.VERSIONS, start=1):
        response = FetchResponse(
            version=version,
            throttle_time_ms=1,
            error_code=0,
            session_id=7,
            responses=[topic(topic="t\u00e9", partitions=entries), topic(topic="u", partitions=[])],
        )
        head = struct.pack(">i", number) + (b"\0" if version >= fetch_responses.FLEXIBLE else b"")
        data = head + bytes(response.encode(version=version))
        yield struct.pack(">i", len(data)) + data
