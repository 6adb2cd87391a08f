"""Avro schemas as public projects have them: the envelopes of change data capture, and event tracking.

In: schemas of those shapes, values of fastavro. Out: nothing. Touches: nothing.

The envelope is what Debezium's connectors register with Confluent's converter: `before` and `after` share a named type,
optional columns are unions with null, and types that Avro lacks have a `connect.name`.
"""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from helpers.binary_payloads import fields_of, items_of, records_of
from sketchstream.items.columns import Choices
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.avro.format import AvroReader
from sketchstream_connectors.decode.avro.schema import leaf_names, parse

DAY_MS = 86_400_000


def optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


MONEY = connect(
    "bytes",
    "org.apache.kafka.connect.data.Decimal",
    scale=2,
    precision=64,
    logicalType="decimal",
    **{"connect.parameters": {"scale": "2"}},
)
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": {"type": "int", "connect.default": 0}, "default": 0},
        {"name": "customer", **optional("string")},
        {"name": "amount", **optional(MONEY)},
        {"name": "status", **optional(connect("string", "io.debezium.data.Enum"))},
        {"name": "labels", **optional({"type": "array", "items": ["null", "string"]})},
        {"name": "day", "type": connect("int", "io.debezium.time.Date")},
        {"name": "created", **optional(connect("long", "io.debezium.time.MicroTimestamp"))},
        {"name": "seen", **optional(connect("long", "io.debezium.time.NanoTimestamp"))},
        {"name": "changed", "type": connect("string", "io.debezium.time.ZonedTimestamp")},
    ],
    "connect.name": "shop.public.orders.Value",
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {
            "name": "snapshot",
            "type": [connect("string", "io.debezium.data.Enum", **{"connect.default": "false"}), "null"],
            "default": "false",
        },
        {"name": "lsn", **optional("long")},
    ],
}
BLOCK = {"type": "record", "name": "block", "namespace": "event", "fields": [{"name": "id", "type": "string"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", **optional(ROW)},
        {"name": "after", **optional("Value")},
        {"name": "source", "type": SOURCE},
        {"name": "transaction", **optional(BLOCK)},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", **optional("long")},
    ],
    "connect.version": 2,
}
MOMENT = datetime.datetime(2024, 2, 3, 4, 5, 6, 789_000, tzinfo=datetime.UTC)
MOMENT_MS = int(MOMENT.timestamp()) * 1000 + 789


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": None if number == 3 else f"c{number}",
        "amount": Decimal(number) / 4,
        "status": "paid",
        "labels": [None, "x"],
        "day": 19_756,
        "created": MOMENT_MS * 1000 + 1,
        "seen": MOMENT_MS * 10**6 + 1,
        "changed": "2024-02-03T04:05:06.789Z",
    }


def change(operation: str, number: int) -> dict[str, Any]:
    return {
        "before": None if operation == "c" else row(number + 100),
        "after": None if operation == "d" else row(number),
        "source": {"version": "3.0", "ts_ms": MOMENT_MS, "snapshot": "false", "lsn": None},
        "transaction": {"id": "571"},
        "op": operation,
        "ts_ms": None if number == 2 else MOMENT_MS + 1,
    }


def written(schema: Any, values: list[Any]) -> Any:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    bodies = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        bodies.append(out.getvalue())
    return records_of(bodies)


def reader(schema: Any, **fields: Any) -> AvroReader:
    return AvroReader(fields_of(**fields), "none", lambda _: parse(json.dumps(schema)))


CHANGES = [change("c", 1), change("u", 2), change("d", 3), change("u", 3)]


def test_rows_of_change_data_capture_are_counted_by_what_they_are_after_the_change() -> None:
    made = reader(
        ENVELOPE,
        item="after.customer",
        weight="after.amount",
        time="ts_ms",
        columns=("op", "after.status"),
        decimals=True,
    )
    found = made.decode(written(ENVELOPE, CHANGES))
    assert found.valid.tolist() == [True, True, False, False]
    assert found.null.tolist() == [False, False, True, True]  # deleted; a customer that is null
    assert items_of(found.items)[:2] == [b"c1", b"c2"]
    assert found.weight_column is not None
    units, good = found.weight_column.decimals(2)
    assert (units[good].tolist(), good.tolist()) == ([1, 2, 3], [True, True, False, True])
    assert found.times.tolist() == [MOMENT_MS + 1, NO_TIME, MOMENT_MS + 1, MOMENT_MS + 1]
    assert found.columns["op"].codes(Choices(["c", "u", "d"])).tolist() == [0, 1, 2, 1]
    assert found.columns["after.status"].codes(Choices(["paid"])).tolist() == [0, 0, -1, 0]


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        ("source.ts_ms", MOMENT_MS),
        ("after.created", MOMENT_MS),
        ("after.seen", MOMENT_MS),
        ("after.changed", MOMENT_MS),
        ("after.day", 19_756 * DAY_MS),
    ],
)
def test_every_time_of_a_change_is_read_in_its_own_unit(time: str, ms: int) -> None:
    found = reader(ENVELOPE, item="source.version", time=time).decode(written(ENVELOPE, CHANGES[:2]))
    assert found.times.tolist() == [ms, ms]


def test_a_time_of_debezium_is_the_number_that_is_stored_where_it_is_an_item() -> None:
    found = reader(ENVELOPE, item="after.created", item_type="int").decode(written(ENVELOPE, CHANGES[:1]))
    assert items_of(found.items) == [MOMENT_MS * 1000 + 1]


PING = {"type": "record", "name": "PagePing", "fields": [{"name": "offset", "type": "int"}]}
CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "target", "type": "string"}, {"name": "user", "type": "string", "aliases": ["uid"]}],
}
TRACKED = {
    "type": "record",
    "name": "Event",
    "namespace": "tracker",
    "doc": "A tracked event.",
    "fields": [
        {"name": "id", "type": {"type": "string", "avro.java.string": "String"}},
        {
            "name": "times",
            "type": {"type": "record", "name": "Times", "fields": [{"name": "collector", "type": "long"}]},
        },
        {"name": "event", "type": [PING, CLICK], "order": "ignore"},
        {"name": "contexts", "type": {"type": "map", "values": {"type": "array", "items": "Click"}}},
        {"name": "platform", "type": {"type": "enum", "name": "Platform", "symbols": ["WEB", "APP"], "default": "WEB"}},
        {"name": "location", "type": ["null", {"type": "fixed", "name": "Geohash", "size": 4}], "default": None},
    ],
}


def test_events_of_a_tracker_are_counted_through_their_union_of_records() -> None:
    click = ("tracker.Click", {"target": "buy", "user": "ada"})
    values = [
        {
            "id": f"e{n}",
            "times": {"collector": MOMENT_MS + n},
            "event": click if n else ("tracker.PagePing", {"offset": 7}),
            "contexts": {"page": [{"target": "x", "user": "y"}] * n},
            "platform": "APP",
            "location": b"u33d",
        }
        for n in range(3)
    ]
    made = reader(TRACKED, item="event.user", time="times.collector", columns=("platform", "location", "event.offset"))
    found = made.decode(written(TRACKED, values))
    assert found.null.tolist() == [True, False, False]  # a ping has no user
    assert items_of(found.items)[1:] == [b"ada", b"ada"]
    assert found.times.tolist() == [MOMENT_MS, MOMENT_MS + 1, MOMENT_MS + 2]
    assert found.columns["platform"].codes(Choices(["WEB", "APP"])).tolist() == [1, 1, 1]
    assert found.columns["location"].codes(Choices(["u33d"])).tolist() == [0, 0, 0]
    assert found.columns["event.offset"].integers()[0][0] == 7
    assert {"event.user", "event.offset", "times.collector"} <= set(leaf_names(parse(json.dumps(TRACKED))))
