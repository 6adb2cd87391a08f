"""Avro and Protobuf, in memory and from a real broker: time a record, against what Python offers.

In: values built in memory. Out: a table of times and ratios on standard output. Touches: files in a temporary
folder, which it removes; with `--broker` a Kafka of its own on loopback (Java, free ports), a registry's stand-in.

Peers, in the same run and on the same bytes, each at its best: fastavro's schemaless reader on a parsed schema; the
official protobuf runtime; confluent-kafka's deserializers over its registry in memory, the schema known. CPU time of
the thread, medians of interleaved rounds: machines are busy. Ours is everything up to the places of the fields; of a
container file, from the disk to items, weights and times.

With `--broker`: one event of six fields as flat JSON, Avro and Protobuf in a topic each, by the wall clock and the
processor time of the reading process, rounds interleaved. Ours goes up to an updated sketch, as bench/kafka.py measures
it. The peer is confluent-kafka's consume(500) with its own deserializer of the format, settings as there, its registry
in memory; nothing is done with its events, and it reads as many as it can in a few seconds.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib.util
import io
import json
import shutil
import statistics
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
# a bench of the client's name lies beside this file

FLAT = {
    "type": "record",
    "name": "Flat",
    "fields": [
        {"name": "user_id", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "event", "type": "string"},
        {"name": "page", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "ok", "type": "boolean"},
    ],
}
USER = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "id", "type": "long"}, {"name": "country", "type": ["null", "string"]}],
}
RICH = {
    "type": "record",
    "name": "Rich",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "user", "type": USER},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "ref", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "n", "type": ["null", "int"]},
        {"name": "session", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": "double"},
    ],
}
HEAD = b"\0" + struct.pack(">i", 1)
Round = Callable[[], object]


def flat(i: int, user: int) -> dict[str, Any]:
    page = f"/home/{i % 99_991:05d}"
    return {
        "user_id": f"user-{user:011d}",
        "ts": 1_700_000_000_000 + i,
        "event": "click",
        "page": page,
        "n": 1,
        "ok": True,
    }


def rich(i: int, user: int) -> dict[str, Any]:
    from decimal import Decimal

    return {
        "id": f"ev-{i:08d}",
        "user": {"id": user + 1, "country": "DE" if i % 3 else None},
        "ts": 1_700_000_000_000_000 + 1000 * i,
        "kind": "B",
        "tags": ["a", "bb"],
        "ref": None if i % 2 else f"r{i}",
        "amount": Decimal("12.34"),
        "n": 3,
        "session": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "price": 1.5,
    }


def table(bodies: list[bytes]) -> tuple[Any, Any, Any]:
    ends = np.cumsum([len(body) for body in bodies])
    sizes = np.array([len(body) for body in bodies])
    return np.frombuffer(b"".join(bodies), np.uint8), ends - sizes, ends


def fields(item: str) -> Any:
    from sketchstream.stream.formats import Fields

    return Fields(item=item, weight="n", time="ts")


def avro_rounds(
    schema: Any, event: Callable[[int, int], Any], item: str, records: int, few: int
) -> dict[str, tuple[Round, int]]:
    import fastavro
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from sketchstream_connectors.decode.avro.finder import AvroFinder
    from sketchstream_connectors.decode.avro.schema import parse
    from sketchstream_connectors.decode.slots import slots_of

    users = np.random.default_rng(7).integers(0, 200_000, records).tolist()
    parsed = fastavro.parse_schema(schema)
    bodies = []
    for i, user in enumerate(users):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, event(i, user))
        bodies.append(HEAD + out.getvalue())
    finder = AvroFinder(slots_of(fields(item))[0], "confluent", lambda _: parse(json.dumps(schema)))
    data = table(bodies)
    client = SchemaRegistryClient.new_client({"url": "mock://bench"})
    client.register_schema(schema["name"], Schema(json.dumps(schema), "AVRO"))
    number = struct.pack(">i", client.get_latest_version(schema["name"]).schema_id)
    framed = [b"\0" + number + body[5:] for body in bodies[:few]]
    deserializer = AvroDeserializer(client)
    context = SerializationContext(schema["name"], MessageField.VALUE)

    def library() -> None:
        for body in bodies[:few]:
            stream = io.BytesIO(body)
            stream.seek(5)
            fastavro.schemaless_reader(stream, parsed, None)

    return {
        "ours": (lambda: finder.find(*data), records),
        "fastavro": (library, few),
        "confluent": (lambda: [deserializer(body, context) for body in framed], few),
    }


def file_rounds(codec: str, records: int, few: int) -> dict[str, tuple[Round, int]]:
    """A container file: everything up to items, weights and times, and fastavro's reader of the first blocks."""
    import fastavro

    from sketchstream_connectors.files.layout import Layout
    from sketchstream_connectors.files.source import chunks

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    users = np.random.default_rng(7).integers(0, 200_000, records).tolist()
    for name, n in (("all", records), ("few", few)):
        with (folder / f"{name}.avro").open("wb") as file:
            values = (flat(i, user) for i, user in enumerate(users[:n]))
            fastavro.writer(file, fastavro.parse_schema(FLAT), values, codec=codec)
    layout = Layout("avro", "user_id", weight="n", time="ts")

    def library() -> None:
        with (folder / "few.avro").open("rb") as file:
            for _ in fastavro.reader(file):
                pass

    def ours() -> None:
        for _ in chunks(folder / "all.avro", layout):
            pass

    return {"ours": (ours, records), "fastavro": (library, few)}


def message_class(rich_one: bool) -> tuple[Any, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    name = "rich" if rich_one else "flat"
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    made = file.message_type.add(name="Event")
    user = file.message_type.add(name="User")
    user.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    user.field.add(name="country", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    text, number, long, double = kinds.TYPE_STRING, kinds.TYPE_INT32, kinds.TYPE_INT64, kinds.TYPE_DOUBLE
    flat_fields = {"user_id": text, "ts": long, "event": text, "page": text, "n": number, "ok": kinds.TYPE_BOOL}
    rich_fields = {"id": text, "user": kinds.TYPE_MESSAGE, "ts": long, "kind": number, "tag": text, "ref": text}
    rich_fields |= {"amount": long, "n": number, "session": text, "price": double}
    for place, (field, kind) in enumerate((rich_fields if rich_one else flat_fields).items(), 1):
        one = made.field.add(name=field, number=place, type=kind, label=kinds.LABEL_OPTIONAL)
        if kind == kinds.TYPE_MESSAGE:
            one.type_name = f".{name}.User"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return file, message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.Event"))


def protobuf_rounds(rich_one: bool, records: int, few: int) -> dict[str, tuple[Round, int]]:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from sketchstream_connectors.decode.protobuf.finder import ProtobufFinder
    from sketchstream_connectors.decode.protobuf.format import wishes_of
    from sketchstream_connectors.decode.protobuf.schema import read_files

    file, made = message_class(rich_one)
    users = np.random.default_rng(7).integers(0, 200_000, records).tolist()
    bodies = []
    for i, user in enumerate(users):
        values = rich(i, user) if rich_one else flat(i, user)
        if rich_one:
            values |= {
                "kind": 2,
                "amount": 1234,
                "tag": "abb",
                "ref": f"r{i}",
                "user": {"id": user + 1, "country": "DE"},
            }
            del values["tags"]
        bodies.append(HEAD + b"\0" + made(**values).SerializeToString())
    message = read_files([], file.SerializeToString()).messages[f".{file.package}.Event"]
    wishes, timed = wishes_of(fields("user.id" if rich_one else "user_id"))
    finder = ProtobufFinder(wishes, timed, "confluent", lambda *_: message)
    data = table(bodies)
    client = SchemaRegistryClient.new_client({"url": f"mock://{file.package}"})
    serializer = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    context = SerializationContext(file.package, MessageField.VALUE)
    framed = [serializer(made.FromString(body[6:]), context) for body in bodies[:few]]
    deserializer = ProtobufDeserializer(made, {"use.deprecated.format": False}, client)
    return {
        "ours": (lambda: finder.find(*data), records),
        "protobuf": (lambda: [made.FromString(body[6:]) for body in bodies[:few]], few),
        "confluent": (lambda: [deserializer(body, context) for body in framed], few),
    }


# ------------------------------------------------------------------------------------------------ from a broker


def messages(records: int) -> dict[str, tuple[list[bytes], Callable[[Any], Any]]]:
    """The same events in each format with Confluent's frame, and how confluent-kafka reads one."""
    import fastavro
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    users = np.random.default_rng(7).integers(0, 200_000, records).tolist()
    events = [flat(i, user) for i, user in enumerate(users)]
    client = SchemaRegistryClient.new_client({"url": "mock://broker"})
    number = client.register_schema("flat", Schema(json.dumps(FLAT), "AVRO"))
    parsed, avro = fastavro.parse_schema(FLAT), []
    for event in events:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, event)
        avro.append(b"\0" + struct.pack(">i", number) + out.getvalue())
    context = SerializationContext("flat", MessageField.VALUE)
    _, made = message_class(False)
    framed = ProtobufSerializer(made, client, {"use.deprecated.format": False})(made(**events[0]), context)
    head = framed[: len(framed) - len(made(**events[0]).SerializeToString())]
    avro_reader = AvroDeserializer(client)
    protobuf_reader = ProtobufDeserializer(made, {"use.deprecated.format": False}, client)
    return {
        "json": ([json.dumps(event, separators=(",", ":")).encode() for event in events], json.loads),
        "avro": (avro, lambda body: avro_reader(body, context)),
        "protobuf": (
            [head + made(**event).SerializeToString() for event in events],
            lambda body: protobuf_reader(body, context),
        ),
    }


def from_broker(records: int, few: int, rounds: int) -> None:
    """Print rates from a broker and their ratios within rounds."""
    import base64

    from confluent_kafka import Consumer, Producer, TopicPartition
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

    from helpers.kafka.devbroker import DevCluster
    from helpers.schema_registry import StandInRegistry
    from sketchstream.config.schema import PayloadTable
    from sketchstream_connectors.decode.decoder import Decoder

    spec = importlib.util.spec_from_file_location("bench_kafka", Path(__file__).with_name("kafka.py"))
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    sent = messages(records)
    with contextlib.ExitStack() as stack:
        registry = stack.enter_context(StandInRegistry())
        registry.register(int.from_bytes(sent["avro"][0][0][1:5], "big"), FLAT)
        descriptor = base64.b64encode(message_class(False)[0].SerializeToString()).decode()
        registry.register(int.from_bytes(sent["protobuf"][0][0][1:5], "big"), descriptor, "PROTOBUF")
        bootstrap = stack.enter_context(DevCluster(1, quick=False, heap="1g")).bootstrap
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(name, bench.PARTITIONS, 1) for name in sent])
        admin.close()
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 262_144, "log_level": 0})
        for name, (bodies, _) in sent.items():
            for n, body in enumerate(bodies):
                while True:
                    try:
                        producer.produce(name, body, partition=n % bench.PARTITIONS)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.flush(120)

        def ours(name: str) -> Any:
            payload = None if name == "json" else PayloadTable(registry=registry.url)
            return bench.read_ours(bootstrap, name, records, Decoder(name, "user_id", time="ts", payload=payload))

        def confluent(name: str) -> Any:
            settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
            consumer = Consumer({**settings, "fetch.queue.backoff.ms": 5, "check.crcs": True})
            consumer.list_topics(name, timeout=10)
            consumer.assign([TopicPartition(name, p, 0) for p in range(bench.PARTITIONS)])
            read, cost, seen = sent[name][1], bench.Cost(few), 0
            while cost.seen(seen):
                found = consumer.consume(500, 1.0)
                for message in found:
                    read(message.value())
                seen += len(found)
            consumer.close()
            return cost

        taken: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for turn in range(rounds + 1):
            for name in sent:
                for who, reader in (("ours", ours), ("confluent", confluent)):
                    cost = reader(name)
                    if turn:  # the first round compiles loops and fills caches
                        taken.setdefault((name, who), []).append((cost.wall, cost.cpu))
    costs = {place: np.array(found) for place, found in taken.items()}
    print(f"{rounds} rounds of {records:,} records, {few:,} by confluent; ratios within rounds (quartiles)")
    for (name, who), cost in costs.items():
        wall, cpu = np.median(cost, axis=0)
        line = f"{name:9} {who:10} {1e-6 / wall:7.3f} M records/s, processors {1e9 * cpu:7,.0f} ns a record"
        if who == "confluent":
            gains = cost / costs[name, "ours"]
            line += f"   ours = {bench.spread(gains[:, 0])}" + ("" if name == "json" else " (target 10)")
            line += f", processors {bench.spread(gains[:, 1])}"
        elif name != "json":
            line += f"   {bench.spread(costs['json', 'ours'][:, 0] / cost[:, 0])} of flat JSON (target 1)"
        print(line, flush=True)


def measure(rounds: dict[str, tuple[Round, int]], times: int) -> dict[str, float]:
    """Median CPU ns a record of each side."""
    taken: dict[str, list[float]] = {name: [] for name in rounds}
    for name, (run, _) in rounds.items():
        run()
        del name
    for _ in range(times):
        for name, (run, records) in rounds.items():
            begin = time.thread_time_ns()
            run()
            taken[name].append((time.thread_time_ns() - begin) / records)
    return {name: statistics.median(found) for name, found in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--few", type=int, default=2_000, help="records that the peers read in a round")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--broker", action="store_true", help="from a real broker, in place of memory")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.broker:
        from_broker(given.records, min(10 * given.few, given.records), given.rounds)
        return
    cases = {
        "avro, 6 fields": lambda: avro_rounds(FLAT, flat, "user_id", given.records, given.few),
        "avro, 10 fields": lambda: avro_rounds(RICH, rich, "user.id", given.records, given.few),
        "avro file, 6 fields": lambda: file_rounds("null", given.records, given.few),
        "avro file, snappy": lambda: file_rounds("snappy", given.records, given.few),
        "protobuf, 6 fields": lambda: protobuf_rounds(False, given.records, given.few),
        "protobuf, 10 fields": lambda: protobuf_rounds(True, given.records, given.few),
    }
    print(f"{'':22}{'ours':>8}  peers, ns a record of CPU time and how many times ours")
    for name, build in cases.items():
        found = measure(build(), given.rounds)
        peers = "  ".join(
            f"{peer} {ns:,.0f} ({ns / found['ours']:,.0f}x)" for peer, ns in found.items() if peer != "ours"
        )
        print(f"{name:22}{found['ours']:8.1f}  {peers}", flush=True)


if __name__ == "__main__":
    main()
