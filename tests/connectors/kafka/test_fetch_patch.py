"""The client hook: kafka-python's own fetcher, with and without it, over the same logs.

In: the client's `Fetcher` and `SubscriptionState`, fed with fetch responses instead of a socket. Out: nothing.
Touches: nothing.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka.consumer.fetcher import CompletedFetch, Fetcher
from kafka.consumer.subscription_state import SubscriptionState
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.net.transport import KafkaTCPTransport
from kafka.structs import TopicPartition

from helpers.kafka.batches import Batch, Log, Record, data_batches, logs, marker
from helpers.kafka.whole import join, parse_batches
from sketchstream.errors import ConfigError, MissingExtraError
from sketchstream_connectors.decode import records
from sketchstream_connectors.kafka.fetch import compression, fetch_patch, frames
from sketchstream_connectors.kafka.fetch import record_batch as batch_reader
from sketchstream_connectors.kafka.fetch.fetch_patch import as_records, attach

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def manager_of() -> SimpleNamespace:
    """As much of a connection manager as a fetcher and `attach` look at: no connections, tasks run at once."""
    return SimpleNamespace(
        _net=None,
        cluster=None,
        broker_version=None,
        _build_transport=None,
        _conns={},
        run=lambda task: task(),
    )


class Bench:
    """A fetcher whose responses come from logs in memory."""

    def __init__(self, logs: dict[TopicPartition, Log], *, raw: bool, committed: bool, fetch_bytes: int) -> None:
        self.logs = logs
        self.fetch_bytes = fetch_bytes
        self.subscription = SubscriptionState("none")
        self.subscription.assign_from_user(list(logs))
        manager = manager_of()
        self.fetcher = Fetcher(
            SimpleNamespace(_manager=manager),
            self.subscription,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        path: fetch_patch.Path = "raw" if raw else "stock"
        assert attach(SimpleNamespace(_fetcher=self.fetcher, _manager=manager), path) == path

    def position(self, partition: TopicPartition = PARTITION) -> int:
        """The client's position."""
        return int(self.subscription.assignment[partition].position.offset)

    def seek(self, offset: int, partition: TopicPartition = PARTITION) -> None:
        """As `KafkaConsumer.seek`."""
        self.subscription.seek(partition, offset)

    def respond(self, partition: TopicPartition = PARTITION, data: bytes | None = None) -> bool:
        """A fetch response for the position; whether there was anything to send."""
        log, position = self.logs[partition], self.position(partition)
        if data is None:
            data = log.fetch(position, self.fetch_bytes)
        aborted = log.aborted
        entry = SimpleNamespace(
            error_code=0,
            high_watermark=log.end,
            records=data,
            aborted_transactions=aborted,
            diverging_epoch=None,
            preferred_read_replica=-1,
        )
        self.fetcher._completed_fetches.append(CompletedFetch(partition, position, 12, entry, None))
        return bool(data)

    def poll(self, max_records: int | None = None) -> dict[TopicPartition, list[Any]]:
        """As `KafkaConsumer.poll`."""
        return self.fetcher.fetched_records(max_records)[0]

    def read_all(self, max_records: int | None) -> tuple[list[Any], list[records.Records]]:
        """Everything up to the end of the log as rows, and the chunks."""
        rows, chunks = [], []
        while self.position() < self.logs[PARTITION].end:
            before = self.position()
            if not self.respond():
                break
            while True:
                start = self.position()
                polled = self.poll(max_records).get(PARTITION, [])
                if not polled and self.fetcher._next_partition_records is None:
                    break
                pieces = as_records(polled, start, self.position())
                chunks += pieces
                for piece in pieces:
                    for i in range(len(piece)):
                        offset, timestamp = int(piece.offsets[i]), int(piece.timestamps[i])
                        rows.append((offset, timestamp, piece.key(i), piece.value(i)))
                if not polled and not self.fetcher._next_partition_records:
                    break
            assert self.position() > before
        return rows, chunks


@pytest.mark.statistics
@given(logs(), st.data())
@settings(max_examples=100)
def test_both_paths_hand_out_the_same_records_and_positions(log: Log, data: st.DataObject) -> None:
    committed = data.draw(st.booleans())
    begin = log.batches[0][0] if log.batches else 0
    position = data.draw(st.integers(begin, max(log.end - 1, begin)))
    outcomes = []
    for raw in (False, True):
        bench = Bench(
            {PARTITION: log},
            raw=raw,
            committed=committed,
            fetch_bytes=data.draw(st.sampled_from([1, 100, 1024, 52_428_800])),
        )
        bench.seek(position)
        rows, chunks = bench.read_all(data.draw(st.sampled_from([1, 2, 500, None])))
        outcomes.append((rows, bench.position()))
        if raw:
            positions = [position] + [chunk.next_position for chunk in chunks]
            assert [chunk.from_position for chunk in chunks] == positions[:-1]
            assert positions[-1] == bench.position()
    assert outcomes[0] == outcomes[1]


@given(st.lists(data_batches(), min_size=2, max_size=4), st.sampled_from([1_000, 100_000]))
def test_a_response_larger_than_a_chunk_comes_in_several(batches: list[Batch], size: int) -> None:
    log = Log()
    for batch in batches:
        log.add(batch)
        log.add(Batch((Record(0, 0, None, bytes(size)),), 0))
    whole = parse_batches(log.data, 0)
    original = batch_reader.read_batches

    def small(*args: Any, **options: Any) -> Any:
        return original(*args, **options, chunk_bytes=size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_patch, "read_batches", small)
        bench = Bench({PARTITION: log}, raw=True, committed=True, fetch_bytes=52_428_800)
        bench.seek(0)
        bench.respond()
        chunks = bench.poll()[PARTITION]
    assert len(chunks) >= len(batches)  # more where a batch before the long record fills a chunk by itself
    assert sum(len(chunk) for chunk in chunks) == len(whole)
    assert len({id(chunk.offsets) for chunk in chunks}) == len(chunks)  # arrays of their own
    joined = join(chunks)
    assert [joined.value(i) for i in range(len(joined))] == [whole.value(i) for i in range(len(whole))]


def test_two_partitions_of_one_poll_do_not_share_arrays() -> None:
    both = {}
    for partition, value in ((PARTITION, b"first"), (OTHER, b"other")):
        log = Log()
        log.add(Batch((Record(0, 0, None, value),), 0, codec=3))
        both[partition] = log
    bench = Bench(both, raw=True, committed=True, fetch_bytes=1 << 20)
    for partition in both:
        bench.seek(0, partition)
        bench.respond(partition)
    polled = bench.poll()
    assert [polled[p][0].value(0) for p in (PARTITION, OTHER)] == [b"first", b"other"]


def test_a_response_of_control_batches_moves_the_position_in_a_chunk_without_records() -> None:
    log = Log()
    log.add(marker(4, commit=True))
    bench = Bench({PARTITION: log}, raw=True, committed=True, fetch_bytes=1 << 20)
    bench.seek(0)
    bench.respond()
    (chunk,) = bench.poll()[PARTITION]
    assert (len(chunk), chunk.from_position, chunk.next_position, bench.position()) == (0, 0, 1, 1)


@pytest.mark.parametrize("raw", [True, False])
def test_a_wrong_checksum_is_raised_after_the_good_records_and_the_broker_is_asked_again(raw: bool) -> None:
    log = Log()
    log.add(Batch((Record(0, 0, None, b"good"),), 0))
    log.add(Batch((Record(0, 0, None, b"bad"),), 0))
    log.add(Batch((Record(0, 0, None, b"later"),), 0))
    data = bytearray(log.data)
    data[len(log.batches[0][2]) + 62] ^= 1
    bench = Bench({PARTITION: log}, raw=raw, committed=True, fetch_bytes=1 << 20)
    bench.seek(0)
    bench.respond(data=bytes(data))
    (chunk,) = as_records(bench.poll()[PARTITION], 0, bench.position())
    assert (len(chunk), chunk.next_position, bench.position()) == (1, 1, 1)
    cut = bytes(data)[len(log.batches[0][2]) :]
    for attempt in range(3):
        if raw or attempt:
            bench.respond(data=cut)
        with pytest.raises(CorruptRecordError, match=r"partition=0.* offset 1"):
            bench.poll()
        assert bench.poll() == {}
        assert bench.position() == 1
    bench.respond()  # another replica has a sound copy
    (chunk,) = as_records(bench.poll()[PARTITION], 1, bench.position())
    assert [chunk.value(i) for i in range(len(chunk))] == [b"bad", b"later"]


def test_a_seek_drops_what_was_fetched_for_another_position() -> None:
    log = Log()
    for value in (b"a", b"b", b"c"):
        log.add(Batch((Record(0, 0, None, value),), 0))
    bench = Bench({PARTITION: log}, raw=True, committed=True, fetch_bytes=1 << 20)
    bench.seek(0)
    bench.respond()
    bench.seek(2)
    assert bench.poll() == {}
    bench.respond()
    (chunk,) = bench.poll()[PARTITION]
    assert (chunk.from_position, chunk.value(0)) == (2, b"c")


def test_a_missing_codec_package_is_the_clients_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_arguments: object) -> bytes:
        raise ImportError

    monkeypatch.setattr(compression.Decompressor, "_zstd", absent)
    log = Log()
    log.add(Batch((Record(0, 0, None, b"a" * 50),), 0, codec=4))
    with pytest.raises(MissingExtraError, match=r"sketchstream\[kafka\]"):
        parse_batches(log.data, 0)
    bench = Bench({PARTITION: log}, raw=True, committed=True, fetch_bytes=1 << 20)
    bench.seek(0)
    bench.respond()
    with pytest.raises(UnsupportedCodecError):
        bench.poll()


def test_metrics_count_bytes_and_records() -> None:
    log = Log()
    log.add(Batch(tuple(Record(i, 0, None, b"v") for i in range(5)), 4))
    told: list[tuple[TopicPartition, int, int]] = []
    bench = Bench({PARTITION: log}, raw=True, committed=True, fetch_bytes=1 << 20)
    bench.seek(0)
    bench.respond()
    fetch = bench.fetcher._completed_fetches[0]
    aggregator = SimpleNamespace(record=lambda *entry: told.append(entry))
    bench.fetcher._completed_fetches[0] = fetch._replace(metric_aggregator=aggregator)
    bench.poll()
    bench.poll()
    assert told == [(PARTITION, len(log.data), 5)]


def test_the_self_test_passes_with_the_installed_client() -> None:
    assert fetch_patch.self_test() is None


@pytest.fixture
def consumer() -> SimpleNamespace:
    """As much of a consumer as `attach` looks at."""
    manager = manager_of()
    fetcher = Fetcher(SimpleNamespace(_manager=manager), SubscriptionState("none"))
    return SimpleNamespace(_fetcher=fetcher, _manager=manager)


def test_stock_keeps_the_clients_parser(consumer: SimpleNamespace) -> None:
    assert attach(consumer, "stock") == "stock"
    assert consumer._fetcher.PartitionRecords is fetch_patch.stock_partition_records()
    assert fetch_patch.stock_partition_records()._unpack_records is Fetcher.PartitionRecords._unpack_records
    assert attach(consumer) == "raw"
    assert issubclass(consumer._fetcher.PartitionRecords, fetch_patch.raw_partition_records())


@pytest.mark.parametrize(
    "failure", ["other records", "other position", "other client", "other responses", "other frames", "exception"]
)
def test_a_failed_self_test_falls_back_or_refuses(
    failure: str, consumer: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = fetch_patch.read_batches

    def changed(*args: Any, **options: Any) -> Any:
        if failure == "exception":
            raise RuntimeError("changed")
        for piece in original(*args, **options):
            if failure == "other records":
                piece.timestamps[:] += 1
            else:
                object.__setattr__(piece, "next_position", piece.next_position + 1)
            yield piece

    fetch_patch.self_test.cache_clear()
    try:
        if failure == "other client":
            monkeypatch.setattr(Fetcher, "_parse_fetched_data", lambda self, fetch: None)
        elif failure == "other responses":
            monkeypatch.setattr(frames, "read_response", lambda frame, version: (1, None))
        elif failure == "other frames":
            monkeypatch.setattr(KafkaTCPTransport, "_read_from_sock", lambda self: None)
        else:
            monkeypatch.setattr(fetch_patch, "read_batches", changed)
        assert attach(consumer, "auto") == "stock"
        assert vars(consumer._fetcher).get("PartitionRecords") is (
            None if failure in ("other client", "other frames") else fetch_patch.stock_partition_records()
        )
        with pytest.raises(ConfigError, match="decode = 'raw' is not possible"):
            attach(consumer, "raw")
    finally:
        fetch_patch.self_test.cache_clear()


def test_consumers_that_cannot_be_hooked_keep_the_stock_path(consumer: SimpleNamespace) -> None:
    assert attach(object()) == "stock"
    consumer._fetcher.config["value_deserializer"] = object()
    assert attach(consumer) == "stock"
    with pytest.raises(ConfigError, match="deserializers"):
        attach(consumer, "raw")
    with pytest.raises(ConfigError, match="connections"):
        attach(SimpleNamespace(_fetcher=consumer._fetcher), "raw")
    with pytest.raises(ConfigError, match="auto"):
        attach(consumer, "fast")  # type: ignore[arg-type]


def test_a_consumer_has_the_attribute_that_is_replaced() -> None:
    assert issubclass(fetch_patch.raw_partition_records(), Fetcher.PartitionRecords)
    assert "_fetcher" in itertools.chain(KafkaConsumer.__init__.__code__.co_names)


def test_nothing_polled_and_nothing_moved_is_no_chunk() -> None:
    assert as_records([], 5, 5) == []
    (chunk,) = as_records([], 5, 7)
    assert (len(chunk), chunk.from_position, chunk.next_position, chunk.offset) == (0, 5, 7, 6)
    assert repr(chunk) == "Records(0 records, 5 to 7)"
