"""Frames in memory that is used again: what comes out is what the client's own receiver and parser give.

In: `frames`, `fetch_responses` and `fetch_ahead`, beside the client's transports, parser and fetcher. Out: nothing.
Touches: socket pairs.
"""

from __future__ import annotations

import functools
import gc
import random
import socket
import ssl
import struct
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka.consumer.fetcher import CompletedFetch, Fetcher
from kafka.consumer.subscription_state import SubscriptionState
from kafka.errors import (
    CorrelationIdError,
    CorruptRecordError,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaProtocolError,
)
from kafka.future import Future
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol
from kafka.structs import TopicPartition

from helpers.kafka.batches import Batch, Log, Record
from sketchstream_connectors.decode import memory_pool
from sketchstream_connectors.decode.memory_pool import MemoryPool
from sketchstream_connectors.kafka.fetch import fetch_patch, frames, read_ahead
from sketchstream_connectors.kafka.fetch.fetch_ahead import FetchAhead
from sketchstream_connectors.kafka.fetch.fetch_responses import FLEXIBLE, VERSIONS, read_response
from sketchstream_connectors.kafka.fetch.read_ahead import ReadAhead
from sketchstream_connectors.kafka.fetch.record_batch import read_batches

TOPIC = FetchResponse.FetchableTopicResponse
ENTRY = TOPIC.PartitionData
LONG = 3 * frames.WINDOW

small, wide = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
pairs = st.builds(ENTRY.AbortedTransaction, producer_id=wide, first_offset=wide)
entries = st.builds(
    ENTRY,
    partition_index=small,
    error_code=st.integers(-1, 120),
    high_watermark=wide,
    last_stable_offset=wide,
    log_start_offset=wide,
    aborted_transactions=st.none() | st.lists(pairs, max_size=3),
    preferred_read_replica=small,
    records=st.none() | st.binary(max_size=300),
    diverging_epoch=st.none() | st.builds(ENTRY.EpochEndOffset, epoch=small, end_offset=wide),
    current_leader=st.none() | st.builds(ENTRY.LeaderIdAndEpoch, leader_id=small, leader_epoch=small),
    snapshot_id=st.none() | st.builds(ENTRY.SnapshotId, end_offset=wide, epoch=small),
)
topics = st.builds(TOPIC, topic=st.text(max_size=5), partitions=st.lists(entries, max_size=3))


def framed(body: bytes) -> bytes:
    """With its length before it."""
    return struct.pack(">i", len(body)) + body


def frame_of(version: int, correlation: int, responses: list[Any], **fields: int) -> bytes:
    """A response frame by the client's own encoder, without its length."""
    response = FetchResponse(version=version, responses=responses, **{"throttle_time_ms": 3, **fields})
    head = struct.pack(">i", correlation) + (b"\0" if version >= FLEXIBLE else b"")
    return head + bytes(response.encode(version=version))


def client_reads(frame: bytes, version: int) -> tuple[int, Any]:
    """As the client's parser does."""
    buffer = KafkaBytes(len(frame))
    buffer.write(frame)
    buffer.seek(0)
    kind = FetchResponse[version]
    return kind.parse_header(buffer).correlation_id, kind.decode(buffer)


@given(st.sampled_from(VERSIONS), st.lists(topics, max_size=3), small, st.data())
@settings(max_examples=60)
def test_fetch_responses_are_read_as_the_client_reads_them(
    version: int, responses: list[Any], correlation: int, data: st.DataObject
) -> None:
    frame = frame_of(version, correlation, responses, error_code=data.draw(st.integers(0, 90)), session_id=5)
    found = read_response(memoryview(frame), version)
    assert found == client_reads(frame, version)
    assert (type(found[1]), found[1].API_VERSION) == (FetchResponse, version)
    kept = [part.records for topic in found[1].responses for part in topic.partitions if part.records]
    assert all(view.obj is frame for view in kept)  # nothing was copied


@given(st.sampled_from(VERSIONS), st.lists(topics, min_size=1, max_size=2))
@settings(max_examples=20)
def test_a_response_that_is_cut_off_is_refused_wherever_it_is_cut(version: int, responses: list[Any]) -> None:
    frame = frame_of(version, 7, responses)
    for size in range(len(frame)):
        with pytest.raises((ValueError, struct.error)):
            read_response(memoryview(frame)[:size], version)


def test_damaged_responses_are_refused_or_read_but_never_left() -> None:
    seed = random.Random(14)
    entry = ENTRY(
        partition_index=1,
        error_code=0,
        high_watermark=5,
        aborted_transactions=[ENTRY.AbortedTransaction(producer_id=1, first_offset=2)],
        records=b"records",
        current_leader=ENTRY.LeaderIdAndEpoch(leader_id=1, leader_epoch=2),
    )
    refused = 0
    for version in VERSIONS:
        sound = frame_of(version, 7, [TOPIC(topic="topic", partitions=[entry, entry])])
        for _ in range(400):
            frame = bytearray(sound)
            for _ in range(seed.randint(1, 4)):
                frame[seed.randrange(len(frame))] = seed.choice((0, 1, 127, 128, 255, seed.randrange(256)))
            try:
                read_response(memoryview(frame), version)
            except (ValueError, struct.error):
                refused += 1
    assert refused > 500


# ---------------------------------------------------------------------------------------------------- connections


class Wire:
    """One of the client's transports with its parser, and the other end of its socket."""

    def __init__(self, *, raw: bool, tls: bool = False) -> None:
        self.near, self.far = socket.socketpair()
        if tls:
            self.near, self.far = encrypted(self.near, self.far)
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.parser = KafkaProtocol(client_id="test")
        self.transport: Any = KafkaTCPTransport(None, self.near)
        self.transport.set_protocol(SimpleNamespace(parser=self.parser))
        self.pool = MemoryPool()
        if raw:
            frames.Receiver(self.transport, self.pool)

    def ask(self, version: int) -> None:
        """A fetch is on its way."""
        self.parser.send_request(FetchRequest(version=version, max_version=version))

    def turn(self) -> list[Any]:
        """One turn of the client's loop."""
        data, error = self.transport._sock_recv()
        if error is not None:
            raise error
        answers: list[Any] = self.parser.receive_bytes(data)
        return answers

    def feed(self, stream: bytes, sizes: list[int]) -> list[Any]:
        """Answers to a stream that comes in parts of these sizes, in turn."""
        answers: list[Any] = []
        turn = 0
        while stream:
            stream = stream[self.far.send(stream[: sizes[turn % len(sizes)]]) :]
            answers += self.turn()
            turn += 1
        return answers

    def close(self) -> None:
        """Both ends."""
        self.near.close()
        self.far.close()


def encrypted(near: socket.socket, far: socket.socket) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """TLS over a socket pair, without certificates."""
    contexts = [ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)]
    contexts[0].check_hostname = False
    contexts[0].verify_mode = ssl.CERT_NONE
    for context in contexts:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
    ends = [
        context.wrap_socket(sock, server_side=index == 1, do_handshake_on_connect=False)
        for index, (context, sock) in enumerate(zip(contexts, (near, far), strict=True))
    ]
    server = threading.Thread(target=ends[1].do_handshake)
    server.start()
    ends[0].do_handshake()
    server.join()
    return ends[0], ends[1]


def stream_of(version: int, lengths: list[int]) -> bytes:
    """Frames whose records have these lengths."""
    stream = b""
    for correlation, length in enumerate(lengths, start=1):
        entry = ENTRY(partition_index=0, error_code=0, high_watermark=9, records=bytes([correlation]) * length)
        stream += framed(frame_of(version, correlation, [TOPIC(topic="t", partitions=[entry])]))
    return stream


@given(
    st.sampled_from([4, 11, 12]),
    st.lists(st.sampled_from([0, 10, 70, frames.WINDOW - 80, frames.WINDOW, LONG]), min_size=1, max_size=5),
    st.lists(st.sampled_from([1, 3, 4, 5, 4096, 65_536, 100_000]), min_size=1, max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_any_cut_of_a_stream_gives_the_clients_answers(version: int, lengths: list[int], sizes: list[int]) -> None:
    sizes = [*sizes, 50_000]  # or a stream would take thousands of turns
    stream = stream_of(version, lengths)
    found = []
    for raw in (False, True):
        wire = Wire(raw=raw)
        for _ in lengths:
            wire.ask(version)
        found.append(wire.feed(stream, sizes))
        wire.close()
    assert found[0] == found[1]
    assert [correlation for correlation, _ in found[1]] == list(range(1, len(lengths) + 1))


def test_other_answers_are_the_clients_to_read() -> None:
    wire = Wire(raw=True)
    wire.parser.send_request(ListOffsetsRequest(version=1, max_version=1))
    wire.ask(12)
    body = struct.pack(">i", 1) + bytes(ListOffsetsResponse(version=1, topics=[]).encode(version=1))
    answers = wire.feed(framed(body) + framed(frame_of(12, 2, [])), [7])
    assert [type(answer).__name__ for _, answer in answers] == ["ListOffsetsResponse", "FetchResponse"]
    wire.close()


def test_tls_hands_over_everything_that_it_has_decrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    # Decrypted bytes make no socket readable: a turn that stopped before them would wait for what is there already.
    monkeypatch.setattr(frames, "MAX_BYTES_AT_ONCE", 5_000)
    wire = Wire(raw=True, tls=True)
    stream = stream_of(12, [40_000, LONG])
    for _ in range(2):
        wire.ask(12)
    answers = []
    while stream:
        stream = stream[wire.far.send(stream[:16_000]) :]
        answers += wire.turn()
        assert wire.near.pending() == 0  # type: ignore[attr-defined]
    assert [len(a.responses[0].partitions[0].records) for _, a in answers] == [40_000, LONG]
    wire.close()


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100_000_001])
def test_a_wrong_length_fails_as_the_clients_does(length: int) -> None:
    for raw in (False, True):
        wire = Wire(raw=raw)
        wire.ask(12)
        wire.far.send(framed(frame_of(12, 1, [])) + struct.pack(">i", length) + b"rest")
        with pytest.raises(InvalidReceiveError):
            wire.turn()
        wire.close()


@pytest.mark.parametrize("shorter", [1, 9, 40])
def test_a_length_that_does_not_fit_its_frame_closes_the_connection(shorter: int) -> None:
    body = frame_of(12, 1, [TOPIC(topic="t", partitions=[ENTRY(partition_index=0, error_code=0, records=b"secret")])])
    for raw in (False, True):
        wire = Wire(raw=raw)
        wire.ask(12)
        wire.far.send(struct.pack(">i", len(body) - shorter) + body)
        with pytest.raises(KafkaProtocolError if raw else (KafkaProtocolError, IndexError)) as error:
            wire.turn()  # an IndexError would end the client's reading task, and the request with its timeout
        assert "secret" not in str(error.value)
        wire.close()


def test_an_answer_to_another_request_closes_the_connection() -> None:
    for raw in (False, True):
        wire = Wire(raw=raw)
        wire.ask(12)
        with pytest.raises(CorrelationIdError):
            wire.feed(framed(frame_of(12, 2, [])), [1000])
        with pytest.raises(CorrelationIdError):  # and one that nobody asked for
            wire.feed(framed(frame_of(12, 3, [])), [1000])
        wire.close()


def test_a_connection_that_ends_in_a_frame_gives_its_memory_back() -> None:
    wire = Wire(raw=True)
    wire.ask(12)
    stream = stream_of(12, [LONG])
    wire.feed(stream[: LONG // 2], [50_000])
    assert wire.pool.waiting == 0
    wire.far.close()
    with pytest.raises(KafkaConnectionError):
        wire.turn()
    assert wire.pool.waiting >= LONG
    wire.close()
    other = Wire(raw=True)  # closed by the client, which knows nothing of the frame
    other.ask(12)
    other.feed(stream[: LONG // 2], [50_000])
    other.transport = None
    assert other.pool.waiting >= LONG
    other.close()


def test_the_memory_of_a_turn_comes_back_with_its_responses_while_the_connection_waits() -> None:
    wire = Wire(raw=True)
    wire.ask(12)
    stream, answers = stream_of(12, [LONG]), []
    while stream:
        stream = stream[wire.far.send(stream[:50_000]) :]
        data, _ = wire.transport._sock_recv()  # the client's reading task keeps it until more comes
        answers += wire.parser.receive_bytes(data)
    assert (len(answers), wire.pool.waiting) == (1, 0)
    answers.clear()
    assert wire.pool.waiting >= LONG
    assert len(data) > 0
    wire.close()


def test_a_closed_connection_receives_nothing() -> None:
    wire = Wire(raw=True)
    wire.transport._sock = None
    data, error = wire.transport._sock_recv()
    assert (len(data), type(error)) == (0, KafkaConnectionError)
    wire.close()


def test_a_connection_is_taken_over_in_the_middle_of_a_frame_or_of_its_length() -> None:
    stream = stream_of(12, [LONG, 5])
    for cut in (2, 4, 5, 100_000):
        wire = Wire(raw=False)
        for _ in range(2):
            wire.ask(12)
        answers = wire.feed(stream[:cut], [50_000])
        frames.Receiver(wire.transport, wire.pool)
        answers += wire.feed(stream[cut:], [50_000])
        assert [len(a.responses[0].partitions[0].records) for _, a in answers] == [LONG, 5]
        wire.close()


def test_a_long_answer_leaves_room_for_the_clients_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "WINDOW", 1000)
    monkeypatch.setattr(frames, "MAX_BYTES_AT_ONCE", 3000)
    wire = Wire(raw=True)
    wire.ask(12)
    wire.far.send(framed(bytes(20)) * 250)
    for _ in range(2):
        received, error = wire.transport._sock_recv()
        assert error is None
        assert 2500 < len(received) < 3500
    wire.close()


def test_a_socket_is_readable_again_when_a_good_part_of_the_frame_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LOW_WATER", 10_000)
    wire = Wire(raw=True)
    wire.ask(12)
    stream = stream_of(12, [LONG])

    def low() -> int:
        return wire.near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    wire.feed(stream[:1000], [1000])
    assert low() == 10_000
    wire.feed(stream[1000:-500], [10_000])
    assert low() == 500  # what is missing, and not more
    assert len(wire.feed(stream[-500:], [500])) == 1
    assert low() == 1
    wire.close()


def test_all_connections_of_this_consumer_and_no_others() -> None:
    wires = [Wire(raw=False) for _ in range(3)]
    old, new, stranger = (wire.transport for wire in wires)

    async def build(*_arguments: Any, **_options: Any) -> Any:
        return new

    connections = {0: SimpleNamespace(transport=old), 1: SimpleNamespace(transport=None)}
    manager = SimpleNamespace(_build_transport=build, _conns=connections, run=lambda task: task())
    frames.install(SimpleNamespace(_manager=manager), MemoryPool())
    with pytest.raises(StopIteration) as done:
        manager._build_transport("node", timeout_at=None).send(None)
    assert done.value.value is new
    assert ["_sock_recv" in vars(transport) for transport in (old, new, stranger)] == [True, True, False]
    for wire in wires:
        wire.close()


# --------------------------------------------------------------------------------------------------------- memory


def test_memory_is_used_again_only_when_the_last_view_is_gone() -> None:
    pool = MemoryPool()
    first = pool.take(LONG)
    first[:] = bytes([1]) * LONG
    array = np.frombuffer(first[10:20], dtype=np.uint8)[2:5].view(np.int8)
    address = np.frombuffer(first, dtype=np.uint8).ctypes.data
    del first
    second = pool.take(LONG)
    second[:] = bytes(LONG)
    assert array.tolist() == [1, 1, 1]
    assert np.frombuffer(second, dtype=np.uint8).ctypes.data != address
    del array
    assert pool.waiting >= LONG
    third = pool.take(LONG)
    assert np.frombuffer(third, dtype=np.uint8).ctypes.data == address
    assert pool.waiting == 0


def test_waiting_memory_is_bounded_and_overwritten_when_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = MemoryPool()
    views = [pool.take(LONG * (index + 1)) for index in range(pool.kept + 3)]
    for view in views:
        view[:] = bytes([7]) * len(view)
    roots = [piece for _, piece in pool._lent.values()]
    del views, view
    assert pool.waiting == sum(sorted(root.size for root in roots)[-pool.kept :])
    assert sum(bool(root.any()) for root in roots) == pool.kept
    pool.rest()
    assert pool.waiting > 0  # frames come
    monkeypatch.setattr(memory_pool, "IDLE_S", 0.0)
    pool.rest()
    assert pool.waiting == 0
    assert not any(root.any() for root in roots)
    pool.kept_bytes = LONG
    view = pool.take(2 * LONG)
    del view
    assert pool.waiting == 0


def test_short_frames_are_in_memory_of_their_own() -> None:
    pool = MemoryPool()
    view = pool.take(memory_pool.MAX_FRESH_BYTES)
    del view
    assert pool.waiting == 0


def test_a_small_request_leaves_a_large_piece_alone() -> None:
    pool = MemoryPool()
    view = pool.take(40 * LONG)
    del view
    waiting = pool.waiting
    view = pool.take(LONG)
    assert pool.waiting == waiting
    del view


def test_arrays_of_two_chunks_never_share_memory() -> None:
    first = memory_pool.int_rows(6, 50_000)
    first[:] = 1
    row = first[3][5:7]
    del first
    second = memory_pool.int_rows(6, 50_000)
    second[:] = 2
    assert row.tolist() == [1, 1]
    address = second.ctypes.data
    del second
    assert memory_pool.int_rows(6, 50_000).ctypes.data == address
    assert memory_pool.int_rows(2, 0).shape == (2, 0)


# ------------------------------------------------------------------------------------------------- fetching ahead


@pytest.fixture(autouse=True, scope="module")
def short_records_too() -> Iterator[None]:
    """Everything is read ahead, by whoever does it first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "SHORT_BYTES", 0)
        yield


class Ahead:
    """The client's fetcher with `FetchAhead`, over a connection manager that only takes notes."""

    def __init__(self, *, partitions: int = 1, read_at_once: bool = True, **settings: int) -> None:
        self.read_at_once = read_at_once
        self.log = Log()
        for value in (b"a", b"b", b"c"):
            self.log.add(Batch((Record(0, 0, None, value),), 0))
        self.partitions = [TopicPartition("t", p) for p in range(partitions)]
        self.subscription = SubscriptionState("none")
        self.subscription.assign_from_user(self.partitions)
        self.sent: list[int] = []
        self.manager = SimpleNamespace(
            _net=None,
            cluster=SimpleNamespace(leader_for_partition=lambda _partition: 1),
            broker_version=None,
            _build_transport=None,
            _conns={},
            run=lambda task: task(),
            call_soon=self._soon,
            send=self._send,
            connection_delay=lambda _node: 0,
        )
        self.manager.cluster.leader_epoch_for_partition = lambda _partition: None
        self.requests: list[tuple[list[int], dict[int, tuple[int, int]]]] = []
        self.shares: list[int] = []
        client = SimpleNamespace(_manager=self.manager, throttle_delay=lambda _node: 0)
        self.fetcher: Any = Fetcher(client, self.subscription, enable_incremental_fetch_sessions=False, **settings)
        consumer = SimpleNamespace(_fetcher=self.fetcher, _manager=self.manager)
        self.fetcher.send_fetches = lambda: self.sent.append(0)
        assert fetch_patch.attach(consumer, "raw") == "raw"
        for partition in self.partitions:
            self.subscription.seek(partition, 0)

    def _soon(self, task: Any, *arguments: Any) -> None:
        if not arguments:
            assert task == self.fetcher._send_fetches_async
            self.sent.append(1)
            return
        with pytest.raises(StopIteration):  # nothing in it waits
            task(*arguments).send(None)

    def _send(self, request: Any, node_id: int) -> Future:
        """Positions at that time, and offsets and epochs that the request has."""
        assert node_id == 1
        asked = {
            part.partition: (part.fetch_offset, part.last_fetched_epoch)
            for topic in request.topics
            for part in topic.partitions
        }
        self.requests.append((self.positions, asked))
        self.shares += [part.partition_max_bytes for topic in request.topics for part in topic.partitions]
        return Future()

    @property
    def positions(self) -> list[int]:
        """The client's."""
        return [self.subscription.assignment[partition].position.offset for partition in self.partitions]

    def answer(self, *positions: int, **changed: Any) -> None:
        """A response of the broker with one entry for each of the first partitions, taken in by the client."""
        entries = [self.entry(at, partition_index=p, **changed) for p, at in enumerate(positions)]
        response = SimpleNamespace(API_VERSION=4, responses=[SimpleNamespace(topic="t", partitions=entries)])
        offsets = dict(zip(self.partitions, positions, strict=False))
        self.fetcher._handle_fetch_response(1, offsets, 0.0, response)
        self.fetcher._clear_pending_fetch_request(1, None)
        if self.read_at_once:
            while self.reader.step() or self.reader.ready is not None:
                pass

    @property
    def reader(self) -> ReadAhead:
        """Of the fetcher."""
        reader: ReadAhead = self.fetcher.PartitionRecords.reader
        return reader

    def entry(self, position: int, **changed: Any) -> SimpleNamespace:
        """What a response has of one partition."""
        sound = {
            "error_code": 0,
            "high_watermark": self.log.end,
            "records": memoryview(self.log.fetch(position, 1 << 20)),
            "aborted_transactions": None,
            "diverging_epoch": None,
            "preferred_read_replica": -1,
        }
        return SimpleNamespace(**{**sound, **changed})

    def respond(self, partition: int = 0, position: int = 0) -> None:
        """An answer of the broker."""
        entry = self.entry(position, records=memoryview(self.log.fetch(position, 1)))
        self.fetcher._completed_fetches.append(CompletedFetch(self.partitions[partition], position, 12, entry, None))


def test_the_next_fetch_is_sent_before_records_are_handed_over() -> None:
    ahead = Ahead()
    ahead.respond()
    records, idle = ahead.fetcher.fetch_records(10)
    assert ([len(chunks) for chunks in records.values()], idle) == ([1], False)
    assert ahead.sent == [1]


def test_the_next_fetch_is_sent_before_a_response_is_read() -> None:
    ahead = Ahead(partitions=3)
    for partition in ahead.partitions:
        ahead.subscription.seek(partition, 1)
    ahead.answer(1, 1)
    records, idle = ahead.fetcher.fetch_records(10, timeout_ms=0)
    assert ([[len(chunk) for chunk in chunks] for chunks in records.values()], idle) == ([[2], [2]], False)
    epoch = 2  # of the last batch
    assert ahead.requests == [([1, 1, 1], {0: (3, epoch), 1: (3, epoch), 2: (1, -1)})]
    assert (ahead.positions, ahead.sent) == ([3, 3, 1], [])
    assert ahead.fetcher._nodes_with_pending_fetch_requests == {1}


@pytest.mark.parametrize(
    ("partitions", "setting", "share"), [(1, 4, 16), (2, 4, 8), (4, 4, 4), (7, 4, 4), (1, 5, 5), (2, 1, 1)]
)
def test_few_partitions_are_asked_for_more_each_unless_it_is_set(partitions: int, setting: int, share: int) -> None:
    ahead = Ahead(partitions=partitions, max_partition_fetch_bytes=setting << 20)
    ahead.answer(0)
    ahead.fetcher.fetch_records(10, timeout_ms=0)
    assert ahead.shares == [share << 20] * partitions
    ahead.subscription.assign_from_user([TopicPartition("t", p) for p in range(8)])
    ahead.fetcher._fetchable_partitions()
    assert ahead.fetcher.config["max_partition_fetch_bytes"] == min(setting, share) << 20, "after a rebalance"


def test_what_was_asked_ahead_waits_until_the_response_before_it_is_drained() -> None:
    ahead = Ahead(partitions=2)
    whole = memoryview(ahead.log.data)
    ahead.answer(0, 0, records=whole[: len(whole) // 3])
    first = ahead.fetcher.fetch_records(1, timeout_ms=0)[0]
    assert ahead.requests == [([0, 0], {0: (1, 0), 1: (1, 0)})]
    ahead.answer(1, 1)
    assert ahead.fetcher._fetchable_partitions() == []
    second = ahead.fetcher.fetch_records(10, timeout_ms=0)[0]
    assert [list(found) for found in (first, second)] == [[ahead.partitions[0]], [ahead.partitions[1]]]
    assert (len(ahead.requests), ahead.sent, ahead.positions) == (1, [], [1, 1])
    third = ahead.fetcher.fetch_records(10, timeout_ms=0)[0]
    assert {p: [len(c) for c in chunks] for p, chunks in third.items()} == {p: [2] for p in ahead.partitions}
    assert (len(ahead.requests), ahead.positions) == (2, [3, 3])


def test_no_chunk_is_waited_for_while_others_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadAhead, "notify", lambda _self: None)
    ahead = Ahead(partitions=3, read_at_once=False)
    ahead.answer(0, 0, 0)
    assert ahead.reader.step()  # of the first partition, and not to its end
    taken = []
    for _ in range(3):
        records, idle = ahead.fetcher.fetch_records(10, timeout_ms=0)
        taken.append(([partition.partition for partition in records], idle))
    assert taken == [([0], False), ([1], False), ([2], False)]
    ahead.answer(3, 3, 3, records=memoryview(ahead.log.data))
    while ahead.reader.step():
        pass
    records, _ = ahead.fetcher.fetch_records(10, timeout_ms=0)
    assert len(records) == 3


def test_a_reading_ends_with_the_response_that_is_dropped() -> None:
    ahead = Ahead()
    ahead.answer(0)
    (arrived,) = ahead.reader._live()
    gone = weakref.ref(arrived)
    del arrived
    ahead.subscription.seek(ahead.partitions[0], 2)
    gc.disable()
    try:
        assert ahead.fetcher.fetch_records(10, timeout_ms=0)[0] == {}
        assert gone() is None
    finally:
        gc.enable()
    ahead.answer(2)
    ahead.subscription.pause(ahead.partitions[0])
    assert ahead.fetcher.fetch_records(10, timeout_ms=0)[0] == {}
    assert ahead.reader._live() == []


def test_random_seeks_pauses_and_losses_never_hand_out_what_is_not_at_the_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reading thread runs; what is polled is what the log has from the position on, whatever happened before."""
    small = functools.partial(read_batches, chunk_bytes=20)
    monkeypatch.setattr(read_ahead, "read_batches", small)
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 500)
    monkeypatch.setattr(read_ahead, "IDLE_S", 0.001)
    seed = random.Random(14)
    ahead = Ahead(partitions=2, read_at_once=False)
    ahead.fetcher._net = SimpleNamespace(run=lambda *_: None)  # nothing is waited for
    ahead.manager.wait_for = None
    for turn in range(40):
        ahead.log.add(Batch((Record(0, 0, None, b"%d" % turn),), 0, codec=turn % 5))
    values = [b"a", b"b", b"c", *(b"%d" % turn for turn in range(40))]
    subscription, count = ahead.subscription, 0
    for _ in range(4_000):
        action, p = seed.randrange(8), seed.randrange(2)
        partition, position = ahead.partitions[p], ahead.positions[p]
        if action == 0:
            subscription.seek(partition, seed.randrange(len(values)))
        elif action == 1:
            (subscription.resume if subscription.is_paused(partition) else subscription.pause)(partition)
        elif action == 2 and seed.randrange(4) == 0:  # a rebalance: everything is assigned anew
            subscription.assign_from_user([])
            subscription.assign_from_user(ahead.partitions)
            for one in ahead.partitions:
                subscription.seek(one, seed.randrange(len(values)))
        elif action in (3, 4):  # answers to requests of now, or of a time before a seek
            at = [where if seed.randrange(5) else seed.randrange(len(values)) for where in ahead.positions]
            data = bytearray(ahead.log.fetch(at[0], 1 << 20))
            if seed.randrange(6) == 0 and data:
                data[seed.randrange(len(data))] ^= 1
                ahead.answer(at[0], records=memoryview(data))
            else:
                ahead.answer(*at)
        elif action == 5 and seed.randrange(3) == 0 and position >= len(values):
            subscription.seek(partition, 0)
        else:
            before = ahead.positions
            try:
                polled = ahead.fetcher.fetch_records(seed.randint(1, 6), timeout_ms=0)[0]
            except CorruptRecordError:
                continue
            for one, chunks in polled.items():
                at_ = before[one.partition]
                for chunk in chunks:
                    assert chunk.from_position == at_
                    held = chunk
                    assert [held.value(i) for i in range(len(held))] == values[at_ : chunk.next_position]
                    at_ = chunk.next_position
                    count += len(held)
                assert at_ == ahead.positions[one.partition]
    assert count > 1_000


def test_what_was_asked_beyond_a_broken_batch_is_dropped() -> None:
    ahead = Ahead()
    data = bytearray(ahead.log.data)
    data[-1] ^= 1  # of the last record of three batches
    ahead.answer(0, records=memoryview(data))
    (chunk,) = ahead.fetcher.fetch_records(10, timeout_ms=0)[0][ahead.partitions[0]]
    assert (len(chunk), ahead.positions) == (2, [2])
    assert ahead.requests == [([0], {0: (3, 2)})]
    ahead.answer(3)
    assert ahead.fetcher.fetched_records(10)[0] == {}
    ahead.answer(2, records=memoryview(data)[2 * len(data) // 3 :])
    with pytest.raises(CorruptRecordError):
        ahead.fetcher.fetch_records(10, timeout_ms=0)
    assert ahead.positions == [2]
    ahead.answer(2)
    (chunk,) = ahead.fetcher.fetch_records(10, timeout_ms=0)[0][ahead.partitions[0]]
    assert (chunk.from_position, ahead.positions) == (2, [3])


@pytest.mark.parametrize(
    "changed",
    [
        {"error_code": 6, "current_leader": None},
        {"records": memoryview(b"")},
        {"diverging_epoch": SimpleNamespace(epoch=1, end_offset=-1)},
        {"preferred_read_replica": 2},
    ],
)
def test_nothing_is_asked_ahead_of_a_response_that_may_not_be_followed(changed: dict[str, Any]) -> None:
    ahead = Ahead(partitions=2)
    ahead.manager.cluster.request_update = lambda: None
    ahead.manager.cluster.is_replica_node = lambda *_: True
    ahead.answer(0, 0, **changed)
    ahead.fetcher.fetch_records(10, timeout_ms=0)
    assert ahead.requests == []


def test_nothing_is_asked_ahead_of_a_response_for_another_position() -> None:
    ahead = Ahead()
    ahead.answer(0)
    ahead.subscription.seek(ahead.partitions[0], 2)
    assert ahead.fetcher.fetch_records(10, timeout_ms=0)[0] == {}
    assert ahead.requests == []


def test_nothing_is_sent_while_something_is_buffered() -> None:
    ahead = Ahead(partitions=2)
    ahead.respond(0)
    ahead.respond(1)
    ahead.fetcher.fetch_records(1)
    ahead.fetcher.fetch_records(1)
    assert ahead.sent == []
    assert ahead.fetcher.fetch_records(1) == ({}, True)
    assert ahead.sent == [0]  # nothing is left: by the client, which would wait for it now


def test_an_answer_that_comes_while_the_client_tidies_up_is_not_slept_over() -> None:
    ahead = Ahead()

    def tidied() -> None:  # the response comes after the drain, and its future is evicted: nothing is left to wait for
        ahead.respond()

    ahead.fetcher.send_fetches = tidied
    records, idle = ahead.fetcher.fetch_records(10)
    assert ([len(chunks) for chunks in records.values()], idle) == ([1], False)
    stock: Any = Ahead()
    stock.fetcher.send_fetches = stock.respond
    assert Fetcher.fetch_records(stock.fetcher, 10) == ({}, True)  # what the client says: its caller sleeps


def test_a_fetch_on_its_way_is_waited_for_without_asking_the_client() -> None:
    ahead = Ahead()
    ahead.fetcher._nodes_with_pending_fetch_requests.add(1)

    def answer() -> None:
        ahead.respond()
        ahead.fetcher._clear_pending_fetch_request(1, None)

    later = threading.Timer(0.05, answer)
    later.start()
    records, idle = ahead.fetcher.fetch_records(10, timeout_ms=60_000)
    later.join()
    assert ([len(chunks) for chunks in records.values()], idle) == ([1], False)
    assert ahead.sent == [1]
    assert not ahead.fetcher._nodes_with_pending_fetch_requests


@pytest.mark.parametrize("brings", [True, False])
def test_an_answer_between_the_drain_and_the_wait_ends_the_wait(brings: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = Ahead()
    ahead.fetcher._nodes_with_pending_fetch_requests.add(1)
    asked = FetchAhead._all_asked

    def late(self: FetchAhead) -> bool:
        found = asked(self)
        if brings:
            ahead.respond()
        ahead.fetcher._clear_pending_fetch_request(1, None)
        return found

    monkeypatch.setattr(FetchAhead, "_all_asked", late)
    records, idle = ahead.fetcher.fetch_records(10, timeout_ms=None)  # for ever, were it not for the answer
    assert (len(records), idle) == (int(brings), False)


def test_a_partition_that_nobody_asked_for_is_the_clients_to_send_for() -> None:
    ahead = Ahead(partitions=2)
    ahead.manager.cluster.leader_for_partition = lambda partition: partition.partition
    ahead.fetcher._nodes_with_pending_fetch_requests.add(0)
    assert ahead.fetcher.fetch_records(10, timeout_ms=60_000) == ({}, True)
    assert ahead.sent == [0]


def test_with_nothing_at_all_the_client_says_idle() -> None:
    ahead = Ahead()
    assert ahead.fetcher.fetch_records(10) == ({}, True)
    assert ahead.sent == [0]


def test_nothing_is_kept_for_a_paused_partition_and_it_is_read_again_afterwards() -> None:
    ahead = Ahead()
    ahead.respond()
    ahead.subscription.pause(ahead.partitions[0])
    assert ahead.fetcher.fetch_records(10)[0] == {}
    assert not ahead.fetcher._paused_completed_fetches
    ahead.subscription.resume(ahead.partitions[0])
    assert ahead.fetcher._fetchable_partitions() == ahead.partitions
    ahead.respond()
    (chunk,) = ahead.fetcher.fetch_records(10)[0][ahead.partitions[0]]
    assert chunk.from_position == 0
    ahead.respond(0, 1)
    ahead.fetcher._next_partition_records = ahead.fetcher._parse_fetched_data(ahead.fetcher._completed_fetches.pop())
    ahead.subscription.pause(ahead.partitions[0])
    assert ahead.fetcher.fetch_records(10)[0] == {}
    assert not ahead.fetcher._paused_partition_records
    ahead.subscription.resume(ahead.partitions[0])
    assert ahead.fetcher._fetchable_partitions() == ahead.partitions
    assert ahead.subscription.assignment[ahead.partitions[0]].position.offset == 1


def test_idle_polls_let_the_memory_of_past_records_go(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = Ahead()
    pool = MemoryPool()
    view = pool.take(LONG)
    del view
    monkeypatch.setattr(memory_pool, "IDLE_S", 0.0)
    FetchAhead(ahead.fetcher, pool, ReadAhead()).fetch_records(10)
    assert pool.waiting == 0


def test_a_frame_is_free_when_its_chunks_are() -> None:
    ahead = Ahead()
    pool = MemoryPool()
    data = ahead.log.fetch(0, 1 << 20)
    ahead.respond()
    completed = ahead.fetcher._completed_fetches.pop()
    completed.partition_data.records = pool.take(LONG)[: len(data)]
    completed.partition_data.records[:] = data
    ahead.fetcher._completed_fetches.append(completed)
    del completed
    gc.disable()
    try:
        records, _ = ahead.fetcher.fetch_records(10)
        (chunk,) = records.pop(ahead.partitions[0])
        offsets = chunk.offsets
        held = chunk.key(0), chunk.value(0), chunk.headers(0)
        assert pool.waiting == 0
        del chunk
        assert pool.waiting >= LONG
    finally:
        gc.enable()
    assert (offsets.tolist(), held[1]) == ([0, 1, 2], b"a")


def test_a_consumer_asks_its_fetcher_for_records() -> None:
    assert "fetch_records" in KafkaConsumer._poll_once.__code__.co_names
