"""Avro over Kafka with a registry that comes and goes: workers are killed, and what they count is exact.

In: a real broker, a stand-in for the registry. Out: nothing. Touches: topics of its own.
"""

from __future__ import annotations

import io
import json
import struct
import time
from pathlib import Path
from typing import Any

import fastavro
import pytest

from helpers.kafka.app import AT_ONCE, MINUTE, App
from helpers.schema_registry import StandInRegistry

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
AT = {"type": "long", "logicalType": "timestamp-micros"}


def who(*types: str) -> dict[str, Any]:
    """The field of the item, in a record of its own."""
    user = {"name": "u", "type": ["null", *types]}
    return {"name": "who", "type": {"type": "record", "name": "Who", "fields": [user]}}


TAGS = {"name": "tags", "type": {"type": "array", "items": "string"}}
OLD = {"type": "record", "name": "Event", "fields": [who("int"), {"name": "ts", "type": AT}]}
NEW = {"type": "record", "name": "Event", "fields": [TAGS, {"name": "ts", "type": AT}, who("long", "string")]}


def framed(number: int, schema: Any, event: dict[str, Any]) -> bytes:
    out = io.BytesIO(b"\0" + struct.pack(">i", number))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), event)
    return out.getvalue()


def test_killed_workers_and_an_absent_registry_lose_nothing(kafka: str, tmp_path: Path) -> None:
    with StandInRegistry() as registry:
        registry.register(41, OLD)
        app = App(
            kafka,
            tmp_path / "app",
            partitions=2,
            form="avro",
            input=f'item_type = "int"\nitem = "who.u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"',
            extra=f'[payload]\nregistry = "{registry.url}"\ncache = "schemas"',
        )
        try:
            load = app.load()
            versions = {"id": 41, "schema": OLD}

            def encode(item: object, ts: int) -> bytes:
                event = {"who": {"u": item}, "ts": ts * 1000 + 999, "tags": ["a", "b"]}
                return framed(versions["id"], versions["schema"], event)

            load.encode = encode
            first = app.start("a")
            for number in range(2000):
                load.send(number % 500, BASE + number * MINUTE // 2000)
                if number % 100 == 0:  # damaged ones, of an id that nobody knows, and of another frame
                    good = encode(1, BASE)
                    for body in (good[:-1], good + b"\0", b"\0\0\0\0\x63" + good[5:], b"{}", b""):
                        load.send_raw(body, number % 2, BASE + number * MINUTE // 2000)
            load.flush()
            app.wait_committed()
            first.kill()
            registry.register(42, NEW)
            registry.failing.append((503, b""))
            versions |= {"id": 42, "schema": NEW}
            second = app.start("b")
            for number in range(2000):
                load.send(number % 500, BASE + MINUTE + number * MINUTE // 2000)
            load.flush()
            deadline = time.monotonic() + 120
            while not (second.says("event=schema_awaited") and second.says("event=not_durable")):
                assert time.monotonic() < deadline, app.logs()
                time.sleep(0.1)
            committed = {tp.partition: at.offset for tp, at in app.connection.admin.committed(app.group).items()}
            assert committed != app.connection.admin.offsets(app.topic, range(2), "latest")
            registry.failing.clear()
            app.wait_committed(120)
            second.kill()
            third = app.start("c")
            load.close_windows(BASE + 4 * MINUTE)
            app.wait_published(BASE + 2 * MINUTE)
            said = app.said()
            app.check_exact([BASE, BASE + MINUTE])
            assert third.alive, app.logs()
        finally:
            app.close()
    assert json.dumps("who") not in said
    assert all(method == "GET" for method, _ in registry.asked)
    kept = sorted(path.name for path in (tmp_path / "app").rglob("schema-*.json"))
    assert kept == ["schema-41.json", "schema-42.json"]
