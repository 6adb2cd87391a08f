"""The client of schema registries, against a stand-in and confluent-kafka's serializers.

In: schemas in a stand-in registry. Out: nothing. Touches: loopback ports, temporary folders.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helpers.schema_registry import StandInRegistry
from sketchstream.config.schema import PayloadTable
from sketchstream.errors import ConfigError, SchemaUnavailableError
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.records import from_client_records
from sketchstream_connectors.schema_registry.client import FREE_DENIALS, MAX_DENIED, RegistryAccess, SchemaRegistry

USER = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}


RECORD = {"offset": 0, "timestamp": 0, "key": None}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_schema_is_asked_for_once_and_survives_the_registry_on_disk(tmp_path: Path) -> None:
    with StandInRegistry() as stand_in:
        stand_in.register(7, USER)
        access = RegistryAccess((stand_in.url,))
        registry = SchemaRegistry(access, tmp_path / "cache")
        assert registry.schema(7) == registry.schema(7)
        assert stand_in.asked == [("GET", "/schemas/ids/7")]
    found = SchemaRegistry(access, tmp_path / "cache").schema(7)
    assert found is not None
    assert json.loads(found.text) == USER
    with pytest.raises(SchemaUnavailableError, match="gives no answer"):
        SchemaRegistry(access).schema(7)
    (kept,) = (tmp_path / "cache").rglob("schema-7.json")
    kept.write_bytes(b"{torn")
    with pytest.raises(SchemaUnavailableError):
        SchemaRegistry(access, tmp_path / "cache").schema(7)


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_schema_of_another_format_is_said_to_be_unusable(form: str, caplog: pytest.LogCaptureFixture) -> None:
    with StandInRegistry() as stand_in:
        stand_in.register(7, USER, "JSON")
        decoder = Decoder(form, item="id", payload=PayloadTable(registry=stand_in.url))
        for _ in range(2):
            found = decoder.decode(from_client_records([SimpleNamespace(**RECORD, value=b"\0\0\0\0\x07\0\2")]))
    assert not found.valid.any()
    assert caplog.text.count(f"event=schema_unreadable id=7 format={form}") == 1


def test_a_schema_that_lacks_a_configured_field_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """A producer renamed a field: its records are no-ops, and their share may be small for long."""
    with StandInRegistry() as stand_in:
        stand_in.register(7, USER)
        stand_in.register(8, {**USER, "fields": [{"name": "number", "type": "long"}, {"name": "at", "type": "long"}]})
        decoder = Decoder("avro", item="id", time="at", payload=PayloadTable(registry=stand_in.url))
        for number in (7, 8, 8):
            value = b"\0" + number.to_bytes(4, "big") + b"\2\2"
            decoder.decode(from_client_records([SimpleNamespace(**RECORD, value=value)]))
    assert caplog.text.count("event=schema_lacks_fields") == 2
    assert "event=schema_lacks_fields id=7 fields=at" in caplog.text
    assert "event=schema_lacks_fields id=8 fields=id" in caplog.text


def test_references_are_read_and_those_that_others_use_come_first() -> None:
    with StandInRegistry() as stand_in:
        link = [{"name": "A", "subject": "subject-1", "version": 1}]
        stand_in.register(1, {"type": "enum", "name": "A", "symbols": ["X"]})
        stand_in.register(2, {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}, references=link)
        both = [{"name": "B", "subject": "subject-2", "version": 1}, *link]
        stand_in.register(3, {"type": "record", "name": "C", "fields": [{"name": "b", "type": "B"}]}, references=both)
        found = SchemaRegistry(RegistryAccess((stand_in.url,))).schema(3)
        assert found is not None
        assert [name for name, _ in found.references] == ["A", "B"]
        assert {path for _, path in stand_in.asked} == {
            "/schemas/ids/3",
            "/subjects/subject-1/versions/1",
            "/subjects/subject-2/versions/1",
        }


def test_a_global_id_is_asked_for_by_apicurios_interface_and_kept_apart(tmp_path: Path) -> None:
    other = {"type": "record", "name": "Other", "fields": []}
    with StandInRegistry() as stand_in:
        stand_in.register(7, USER)
        stand_in.register_globally(7, other)
        access = RegistryAccess((f"{stand_in.url}/apis/registry/v2",))
        found = SchemaRegistry(access, tmp_path, global_ids=True).schema(7)
        assert found is not None
        assert json.loads(found.text) == other
        assert stand_in.asked == [("GET", "/apis/registry/v2/ids/globalIds/7?dereference=true")]
        assert SchemaRegistry(access, tmp_path, global_ids=True).schema(8) is None
        stand_in.failing.append((404, b'{"error_code":40403,"message":"Schema not found"}'))  # of the other interface
        with pytest.raises(SchemaUnavailableError):
            SchemaRegistry(access, global_ids=True).schema(9)
        stand_in.failing[:] = [(200, b'{"message":"please log in"}')]  # of a proxy
        with pytest.raises(SchemaUnavailableError):
            SchemaRegistry(access, global_ids=True).schema(9)
    kept = SchemaRegistry(access, tmp_path, global_ids=True).schema(7)
    assert kept == found
    with pytest.raises(SchemaUnavailableError):
        SchemaRegistry(access, tmp_path).schema(7)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>not found</html>"),
        (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'),
        (401, b"{}"),
        (403, b"{}"),
        (429, b"{}"),
        (500, b"{}"),
        (302, b""),
        (200, b"<html>log in</html>"),
        (200, b"[" * 3000),
        (200, b'{"schema":5}'),
    ],
)
def test_an_answer_that_is_none_is_no_denial_and_pauses_grow(status: int, body: bytes) -> None:
    clock = Clock()
    with StandInRegistry() as stand_in:
        stand_in.register(7, USER)
        stand_in.failing.append((status, body))
        registry = SchemaRegistry(RegistryAccess((stand_in.url,)), clock=clock)
        for failures in range(1, 6):
            asked = len(stand_in.asked)
            for _ in range(3):
                with pytest.raises(SchemaUnavailableError, match=r"payload\.registry"):
                    registry.schema(7)
            assert len(stand_in.asked) == asked + 1, failures
            clock.now += 0.5 * 2 ** (failures - 1)
        stand_in.failing.clear()
        clock.now += 60
        assert registry.schema(7) is not None


def test_an_id_is_denied_only_if_every_url_denies_it() -> None:
    clock = Clock()
    with StandInRegistry() as one, StandInRegistry() as other:
        registry = SchemaRegistry(RegistryAccess((one.url, other.url)), clock=clock)
        other.failing.append((503, b""))
        with pytest.raises(SchemaUnavailableError):
            registry.schema(5)
        other.failing.clear()
        clock.now += 100
        assert registry.schema(5) is None
        asked = len(one.asked) + len(other.asked)
        assert registry.schema(5) is None
        assert len(one.asked) + len(other.asked) == asked
        other.register(6, USER)
        assert registry.schema(6) is not None


def test_made_up_ids_are_asked_for_once_a_second_and_forgotten_at_last() -> None:
    clock = Clock()
    with StandInRegistry() as stand_in:
        registry = SchemaRegistry(RegistryAccess((stand_in.url,)), clock=clock)
        for number in range(FREE_DENIALS):
            assert registry.schema(number) is None
        for step in range(50):
            clock.now += 0.1
            before = len(stand_in.asked)
            try:
                registry.schema(1000 + step)
            except SchemaUnavailableError:
                assert len(stand_in.asked) == before
        assert len(stand_in.asked) <= FREE_DENIALS + 5
        assert len(registry._denied) <= MAX_DENIED
        clock.now += 120
        assert registry.schema(4000) is None


def test_credentials_are_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    with StandInRegistry(user="me:pass-marked", token="token-marked") as stand_in:
        stand_in.register(7, USER)
        basic = RegistryAccess((stand_in.url,), username="me", password="pass-marked")
        bearer = RegistryAccess((stand_in.url,), token="token-marked")
        assert SchemaRegistry(basic).schema(7) is not None
        assert SchemaRegistry(bearer).schema(7) is not None
        wrong = RegistryAccess((stand_in.url,), token="wrong-marked")
        with pytest.raises(SchemaUnavailableError, match="401") as raised:
            SchemaRegistry(wrong).schema(7)
    assert "marked" not in caplog.text + repr(basic) + repr(bearer) + str(raised.value)
    with pytest.raises(ConfigError, match="without a user") as refused:
        SchemaRegistry(RegistryAccess(("http://me:pass-marked@localhost:1",)))
    assert "marked" not in str(refused.value)


def made_certificates(folder: Path) -> dict[str, Path]:
    """An authority, a server's and a client's certificate."""
    now = datetime.datetime.now(datetime.UTC)
    paths: dict[str, Path] = {}
    authority: tuple[Any, Any] | None = None
    for name in ("ca", "server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer, signer = (subject, key) if authority is None else authority
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(signer, hashes.SHA256())
        )
        authority = authority or (subject, key)
        paths[name] = folder / f"{name}.pem"
        paths[name].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        paths[f"{name}-key"] = folder / f"{name}-key.pem"
        paths[f"{name}-key"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    return paths


def test_mutual_tls_is_spoken_and_strangers_are_not_trusted(tmp_path: Path) -> None:
    paths = made_certificates(tmp_path)
    with StandInRegistry(tls=(paths["server"], paths["server-key"], paths["ca"])) as stand_in:
        stand_in.register(7, USER)
        url = (stand_in.url,)
        ours = RegistryAccess(url, ca=paths["ca"], certificate=paths["client"], key=paths["client-key"])
        assert SchemaRegistry(ours).schema(7) is not None
        for access in (RegistryAccess(url), RegistryAccess(url, ca=paths["ca"])):
            with pytest.raises(SchemaUnavailableError):
                SchemaRegistry(access).schema(7)
    with pytest.raises(ConfigError, match="PEM"):
        SchemaRegistry(RegistryAccess(url, ca=tmp_path / "none.pem"))


def test_values_of_confluents_serializer_are_read() -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient.new_client({"url": "mock://formats"})
    serializer = AvroSerializer(client, json.dumps(USER))
    values = [serializer({"id": n}, SerializationContext("events", MessageField.VALUE)) for n in range(5)]
    number = int.from_bytes(values[0][1:5], "big")
    with StandInRegistry() as stand_in:
        stand_in.register(number, client.get_schema(number).schema_str)
        decoder = Decoder("avro", item="id", payload=PayloadTable(registry=stand_in.url))
        records = [SimpleNamespace(offset=i, timestamp=0, key=None, value=value) for i, value in enumerate(values)]
        found = decoder.decode(from_client_records(records))
    assert found.valid.all()
    assert number == 1
