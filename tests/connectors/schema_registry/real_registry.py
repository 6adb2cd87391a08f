"""Reads what confluent-kafka's serializers register in a real schema registry; run by hand where one can be reached.

    python tests/connectors/schema_registry/real_registry.py http://127.0.0.1:8081 [USER:PASSWORD]

In: the URL of a registry that may be written to. Out: a line for each step, or an error. Touches: two subjects of the
registry, `sketchstream-check-avro` and `sketchstream-check-protobuf`, which it deletes at the end.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import wrappers_pb2

from sketchstream.config.schema import PayloadTable
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.records import from_client_records

SCHEMA = {"type": "record", "name": "Check", "fields": [{"name": "value", "type": "string"}]}


def main(url: str, login: str = "") -> None:
    client = SchemaRegistryClient({"url": url} | ({"basic.auth.user.info": login} if login else {}))
    username, _, password = login.partition(":")
    table = PayloadTable(registry=url, username=username or None, password=password or None)
    avro = AvroSerializer(client, json.dumps(SCHEMA))
    protobuf = ProtobufSerializer(wrappers_pb2.StringValue, client, {"use.deprecated.format": False})
    values = {
        "avro": avro({"value": "someone"}, SerializationContext("sketchstream-check-avro", MessageField.VALUE)),
        "protobuf": protobuf(
            wrappers_pb2.StringValue(value="someone"),
            SerializationContext("sketchstream-check-protobuf", MessageField.VALUE),
        ),
    }
    for name, value in values.items():
        found = Decoder(name, item="value", payload=table).decode(
            from_client_records([SimpleNamespace(offset=0, timestamp=0, key=None, value=value)] * 2)
        )
        print(f"{name}: {'read' if found.valid.all() else 'NOT READ'}")
    for name in values:
        for subject in client.get_subjects():
            if subject.startswith(f"sketchstream-check-{name}"):
                client.delete_subject(subject)


if __name__ == "__main__":
    main(*sys.argv[1:])
