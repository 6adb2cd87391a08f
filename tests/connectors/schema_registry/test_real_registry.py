"""A real Apicurio Registry, by Confluent's interface and by its own; run by `make registry`.

In: nothing. Out: nothing. Touches: a Java process, Maven if the registry is not there yet, a loopback port.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from helpers.apicurio import running
from sketchstream.config.schema import PayloadTable
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.records import from_client_records
from sketchstream_connectors.schema_registry.client import RegistryAccess, SchemaRegistry

pytestmark = [pytest.mark.slow, pytest.mark.registry]

USER = {"type": "record", "name": "User", "fields": [{"name": "u", "type": "string"}]}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "at", "type": "long"}, {"name": "u", "type": "int"}]}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": f"{url}/apis/ccompat/v7"})


def register(url: str, name: str, schema: Any) -> tuple[int, int]:
    """Put a schema in by Apicurio's own interface, as its serializers do. Its content id and its global id."""
    request = urllib.request.Request(
        f"{url}/apis/registry/v2/groups/default/artifacts?ifExists=RETURN_OR_UPDATE",
        data=json.dumps(schema).encode(),
        headers={"Content-Type": "application/json", "X-Registry-ArtifactId": name, "X-Registry-ArtifactType": "AVRO"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        said = json.load(answer)
    return said["contentId"], said["globalId"]


def value(head: bytes, schema: Any, event: dict[str, Any]) -> SimpleNamespace:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), event)
    return SimpleNamespace(offset=0, timestamp=0, key=None, value=head + out.getvalue())


def eight(number: int) -> bytes:
    return b"\0" + number.to_bytes(8, "big")


def test_what_confluents_serializers_write_is_read(url: str) -> None:
    script = Path(__file__).with_name("real_registry.py")
    command = [sys.executable, str(script), f"{url}/apis/ccompat/v7"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert said.split() == ["avro:", "read", "protobuf:", "read"]


def test_global_ids_are_no_content_ids(url: str) -> None:
    """The same content under many names: global ids run ahead of content ids, and soon name other schemas."""
    content, first = register(url, "user", USER)
    again = [register(url, f"user-{i}", USER) for i in range(3)]
    assert {one for one, _ in again} == {content}
    other, last = register(url, "other", OTHER)
    assert len({first, last, *(one for _, one in again)}) == 5
    versions = {"framing": "apicurio8", "ids": "global", "registry": f"{url}/apis/registry/v2"}
    contents = {"framing": "apicurio8", "ids": "content", "registry": f"{url}/apis/ccompat/v7"}
    for table, user, second in ((versions, again[2][1], last), (contents, content, other)):
        values = [
            value(eight(user), USER, {"u": "someone"}),
            value(eight(second), OTHER, {"at": 5, "u": 7}),
            value(eight(999_999), USER, {"u": "someone"}),
        ]
        found = Decoder("avro", item="u", payload=PayloadTable(**table)).decode(from_client_records(values))
        assert found.valid.tolist() == [True, True, False], table


def test_references_are_followed_by_both_interfaces(url: str, client: SchemaRegistryClient) -> None:
    inner = {"type": "enum", "name": "Place", "symbols": ["HOME", "AWAY"]}
    outer = {"type": "record", "name": "Visit", "fields": [{"name": "u", "type": "Place"}]}
    client.register_schema("place-value", Schema(json.dumps(inner), "AVRO"))
    number = client.register_schema(
        "visit-value", Schema(json.dumps(outer), "AVRO", [SchemaReference("Place", "place-value", 1)])
    )
    found = SchemaRegistry(RegistryAccess((f"{url}/apis/ccompat/v7",))).schema(number)
    assert found is not None
    assert [name for name, _ in found.references] == ["Place"]
    with urllib.request.urlopen(
        f"{url}/apis/registry/v2/groups/default/artifacts/visit-value/meta", timeout=30
    ) as answer:
        version = json.load(answer)["globalId"]
    whole = {**outer, "fields": [{"name": "u", "type": inner}]}
    values = [value(eight(version), whole, {"u": "AWAY"})]
    table = PayloadTable(framing="apicurio8", ids="global", registry=f"{url}/apis/registry/v2/")
    assert Decoder("avro", item="u", payload=table).decode(from_client_records(values)).valid.all()


def test_an_id_that_it_does_not_know_is_denied_not_awaited(url: str) -> None:
    assert SchemaRegistry(RegistryAccess((f"{url}/apis/ccompat/v7",))).schema(999_999) is None
    assert SchemaRegistry(RegistryAccess((f"{url}/apis/registry/v2",)), global_ids=True).schema(999_999) is None
