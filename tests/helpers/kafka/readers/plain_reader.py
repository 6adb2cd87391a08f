"""Reads a topic of sealed sketches with confluent-kafka and msgpack alone: one JSON line for each window.

    python plain_reader.py BOOTSTRAP TOPIC

It follows docs/sealed-topic.md and imports nothing of sketchstream, so that the contract holds for other teams.
"""

import hashlib
import json
import struct
import sys
import uuid
import zlib

import msgpack
from confluent_kafka import Consumer, TopicPartition


def varints(data: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values


def counts(body: bytes, codec: int, n: int, size: int) -> list[int]:
    if codec == 0:
        return list(struct.unpack(f"<{n}{'?h?i???q'[size - 1]}", body))
    shift, tokens_n, _, excess_n = struct.unpack_from("<B7xQQQ", body)
    tokens = zlib.decompress(body[32 : 32 + tokens_n], -15)
    excess = iter(varints(zlib.decompress(body[32 + tokens_n : 32 + tokens_n + excess_n], -15)))
    low = int.from_bytes(body[32 + tokens_n + excess_n :], "little")
    values = []
    for i, token in enumerate(tokens):
        z = (token + (next(excess) if token == 255 else 0)) << shift | (low >> i * shift & (1 << shift) - 1)
        values.append(z >> 1 ^ -(z & 1))
    return values


def sealed(data: bytes) -> tuple[dict, list[int]]:
    magic, version, codec, _, kind, _, _, head, rows, columns, length = struct.unpack_from("<4sHBBBBHIQQQ", data)
    assert (magic, version <= 2) == (b"\xc1SKS", True), "not a sealed sketch, or of a later format"
    header = msgpack.unpackb(data[40 : 40 + head], strict_map_key=False)
    return header, counts(data[40 + head : 40 + head + length], codec, rows * columns, {1: 2, 2: 4, 3: 8}[kind])


def records(bootstrap: str, topic: str):
    settings = {"bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4()), "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": False})
    starts = [TopicPartition(topic, p) for p in consumer.list_topics(topic).topics[topic].partitions]
    ends = {tp.partition: consumer.get_watermark_offsets(tp)[1] for tp in starts}
    consumer.assign([TopicPartition(topic, p, 0) for p, end in ends.items() if end])
    left = {p for p, end in ends.items() if end}
    while left:
        for message in consumer.consume(500, timeout=1):
            if message.offset() + 1 >= ends[message.partition()]:
                left.discard(message.partition())
            yield (message.key() or b"").decode(errors="replace").split("/"), message.value() or b""
    consumer.close()


def main(bootstrap: str, topic: str) -> None:
    chunks, bodies, frontiers = {}, {}, {}
    for key, value in records(bootstrap, topic):
        if key[0] == "frontier" and len(key) == 4:
            name, said = (key[1], int(key[2]), int(key[3])), json.loads(value)
            if name not in frontiers or frontiers[name]["sequence"] <= said["sequence"]:
                frontiers[name] = said
        elif key[0] == "sealed" and len(key) == 10:
            sketch, revision, start, end, partition, _, digest, number, count = key[1:]
            found = chunks.setdefault(tuple(key[1:8]), {})
            found[int(number)] = value
            if len(found) == int(count):
                body = b"".join(found[i] for i in range(int(count)))
                assert hashlib.blake2b(body, digest_size=16, person=b"sketch-sealed").hexdigest() == digest
                place = ((int(start), int(end)), sketch, int(revision), int(partition))
                assert bodies.setdefault(place, body) == body, f"incident: {place} was published twice"
    windows = {}
    for window, sketch, revision, partition in bodies:
        windows.setdefault((window, sketch), {}).setdefault(revision, []).append(partition)
    for (window, sketch), revisions in sorted(windows.items()):
        revision, partitions = max(revisions.items())
        said = {p: f for (name, r, p), f in frontiers.items() if (name, r) == (sketch, revision)}
        parts = {p: sealed(bodies[window, sketch, revision, p]) for p in sorted(partitions)}
        headers = [h for h, _ in parts.values()]
        known = [h.get(n, 1) for h in headers for n in ("partitions_open", "partitions_seal")]
        of = max([*known, *(f["partitions"] for f in said.values()), max(partitions) + 1])
        reached = {p for p, f in said.items() if f["published_through"] >= window[1]}
        values = {str(p): {"n": len(v), "sum": sum(v), "first": v[:5]} for p, (_, v) in parts.items()}
        missing = sorted(set(range(of)) - set(partitions) - reached)
        print(json.dumps({"sketch": sketch, "window": window, "revision": revision, "missing": missing, **values}))


if __name__ == "__main__":
    main(*sys.argv[1:])
