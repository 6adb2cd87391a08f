"""Decoding without a broker: record batches, JSON fields, keys and packed items, against what Python offers.

In: batches built in memory. Out: a table of CPU times and ratios on standard output. Touches: nothing.

The limit: heads read and checksums computed, nothing else. Peers, in the same run: kafka-python's own parser
(`PartitionRecords.take(500)`, as its poll does), orjson on its records and on values that lie there already, msgpack
and numpy on packed values. CPU time of the thread, medians of interleaved rounds: machines are busy.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
# a bench of the client's name lies beside this file

PACKED = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def batches(shape: str, records: int, codec: int) -> bytes:
    """Batches of at most 1,000 records."""
    import msgpack
    from crc32c import crc32c
    from kafka.record.memory_records import MemoryRecordsBuilder

    rng = np.random.default_rng(7)
    out = bytearray()
    size = 1_000 if shape != "packed" else 100
    for base in range(0, records, size):
        builder = MemoryRecordsBuilder(2, codec, 1 << 30, offset=0)
        for n in range(min(size, records - base)):
            user = b"user-%011d" % rng.integers(0, 200_000)
            key: bytes | None = None
            if shape == "keys":
                key, value = user, b"12345678"
            elif shape == "json":
                value = b'{"ts":%d,"user_id":"%s","event":"click","page":"/home/%05d","n":1}' % (
                    1_700_000_000_000 + base + n,
                    user,
                    (base + n) % 99_991,
                )
                value = value[:-1] + b',"p":"' + b"x" * (100 - len(value) - 7) + b'"}'
            else:
                value = msgpack.packb({"i": rng.integers(0, 1 << 63, PACKED).astype("<u8").tobytes(), "t": 5})
            builder.append(1_700_000_000_000 + base + n, key, value)
        builder.close()
        batch = bytearray(builder.buffer())
        struct.pack_into(">q", batch, 0, base)
        assert crc32c(bytes(batch[21:])) == struct.unpack_from(">I", batch, 17)[0]
        out += batch
    return bytes(out)


def stock(data: bytes, each: Callable[[Any], object] | None) -> int:
    """The client's parser in steps of 500 records, as poll() takes them."""
    from kafka.consumer.fetcher import Fetcher
    from kafka.record import MemoryRecords
    from kafka.structs import TopicPartition

    part = Fetcher.PartitionRecords(0, TopicPartition("t", 0), MemoryRecords(data))
    n = 0
    while part:
        taken = part.take(500)
        n += len(taken)
        if each is not None:
            for record in taken:
                each(record)
    return n


def counted(data: bytes) -> int:
    """The limit: heads and checksums."""
    from crc32c import crc32c

    from sketchstream_connectors.kafka.fetch import record_kernels as kernels

    view, array = memoryview(data), np.frombuffer(data, dtype=np.uint8)
    heads = np.zeros((kernels.count_batches(array), kernels.COLUMNS), dtype=np.int64)
    kernels.read_heads(array, heads)
    for head in heads.tolist():
        assert crc32c(view[head[0] + 21 : head[1]]) == head[kernels.CRC]
    return int(heads[:, kernels.COUNT].sum())


def parsed(values: list[bytes]) -> int:
    """The parser alone, on values that lie there already: what no decoder through it can be above."""
    import orjson

    collections.deque(map(orjson.loads, values), maxlen=0)
    return len(values)


def ours(data: bytes, decoder: Any) -> int:
    """Batches to items."""
    from sketchstream_connectors.kafka.fetch.record_batch import read_batches

    n = 0
    for piece in read_batches(data, 0):
        n += len(piece)
        if decoder is not None:
            decoder.decode(piece)
    return n


def streams(records: int) -> dict[str, list[bytes]]:
    """Flat texts of about 90 bytes, by what changes from one to the next."""
    rng = np.random.default_rng(7)
    users, sizes = rng.integers(0, 10**9, records), 10 ** rng.uniform(0, 9, records)
    text = b'{"ts":%d,"user_id":"user-%011d","event":"%s","page":"/home/%05d","n":1}'
    other = b'{"ts":%d,"user_id":"user-%011d","e":"%s","at":%d}'
    named, halves = rng.integers(0, 3, records), rng.integers(0, 2, records)
    fields = [(1_700_000_000_000 + n, users[n], b"click", n % 99_991) for n in range(records)]
    names = [b"view", b"click", b"purchase"]
    return {
        "one shape": [text % one for one in fields],
        "ids of any length": [
            text.replace(b"%011d", b"%d") % (ts, sizes[n], name, page) for n, (ts, _, name, page) in enumerate(fields)
        ],
        "three names of events": [
            text % (ts, user, names[named[n]], page) for n, (ts, user, _, page) in enumerate(fields)
        ],
        "two layouts in turn": [(other if halves[n] else text) % one for n, one in enumerate(fields)],
    }


def looked_up(values: list[bytes]) -> Callable[[], int]:
    """Two fields of texts that lie end to end."""
    from sketchstream_connectors.decode.json_values import find_fields

    buffer = np.frombuffer(b"".join(values) + bytes(64), dtype=np.uint8)
    ends = np.cumsum([len(value) for value in values])
    starts = np.concatenate([[0], ends[:-1]])
    return lambda: len(find_fields(buffer, starts, ends, ["user_id", "ts"]).broken)


def rates(cases: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Records per second of CPU: medians of interleaved rounds."""
    seen: dict[str, list[float]] = {name: [] for name in cases}
    for run in cases.values():
        run()
    for _ in range(rounds):
        for name, run in cases.items():
            start = time.thread_time()
            n = run()
            seen[name].append(n / (time.thread_time() - start))
    return {name: statistics.median(values) for name, values in seen.items()}


def table(title: str, found: dict[str, float], peer: str, factor: int = 1) -> None:
    """One block of results."""
    print(f"\n{title}")
    for name, rate in found.items():
        print(f"  {name:34s} {rate * factor / 1e6:9.3f} M/s   {rate / found[peer]:8.1f} x {peer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer records, three rounds")
    options = parser.parse_args()
    n, rounds = (10_000, 3) if options.quick else (50_000, 7)
    import msgpack
    import orjson

    from sketchstream_connectors.decode.decoder import Decoder
    from sketchstream_connectors.kafka.fetch.record_batch import read_batches

    keys = batches("keys", n, 0)
    table(
        "16-byte keys, 8-byte values (records)",
        rates(
            {
                "heads and checksums: the limit": lambda: counted(keys),
                "stock parser": lambda: stock(keys, None),
                "stock parser, key into a set": lambda: stock(keys, lambda r: seen.add(r.key)),
                "batches to arrays": lambda: ours(keys, None),
                "batches to items (key)": lambda: ours(keys, Decoder(format="key")),
            },
            rounds,
        ),
        "stock parser",
    )
    for codec, name in enumerate(CODECS):
        data = batches("json", n, codec)
        values = [value for piece in read_batches(data, 0) for value in map(piece.value, range(len(piece))) if value]
        cases = {
            "heads and checksums: the limit": lambda d=data: counted(d),
            "orjson alone, values given": lambda v=values: parsed(v),
            "stock parser": lambda d=data: stock(d, None),
            "stock parser, orjson": lambda d=data: stock(d, lambda r: orjson.loads(r.value)["user_id"]),
            "batches to arrays": lambda d=data: ours(d, None),
            "batches to items (field)": lambda d=data: ours(d, Decoder(item="user_id")),
            "batches to items (field, time)": lambda d=data: ours(d, Decoder(item="user_id", time="ts")),
        }
        table(
            f"100-byte JSON, {name}: {len(data) / n:.0f} bytes a record (records)", rates(cases, rounds), "stock parser"
        )
    texts = streams(n)
    alone = "orjson alone, values given"
    cases = {alone: lambda: parsed(texts["one shape"]), **{name: looked_up(values) for name, values in texts.items()}}
    table("two fields of JSON texts in memory (records)", rates(cases, rounds), alone)
    packed = batches("packed", max(n // 50, 200), 0)
    cases = {
        "stock parser, msgpack, numpy": lambda: stock(
            packed, lambda r: np.frombuffer(msgpack.unpackb(r.value)["i"], dtype="<u8")
        ),
        "batches to items (int)": lambda: ours(packed, Decoder(format="packed", item_type="int")),
        "batches to items (text)": lambda: ours(packed, Decoder(format="packed")),
    }
    table(f"packed, {PACKED} items a record (updates)", rates(cases, rounds), "stock parser, msgpack, numpy", PACKED)


seen: set[bytes] = set()

if __name__ == "__main__":
    main()
