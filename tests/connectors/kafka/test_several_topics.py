"""Two topics, JSON and Avro, as one input: workers are killed, and windows hold every event of both once.

In: a real broker, a stand-in for the registry. Out: nothing. Touches: topics of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

from helpers.kafka.app import AT_ONCE, MINUTE, QUICK, App, Load
from helpers.schema_registry import StandInRegistry
from sketchstream.cli import main
from sketchstream.published import SealedState
from sketchstream.topics import TOPIC_STRIDE
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.readers import open_feed, open_published

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
CLOSES = 10_000
"""Beyond the end of a window, and more than the lateness: ends it."""
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "id", "type": "int"}]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


class TwoTopics(App):
    """An application whose input is two topics, of which the second is smaller; each has a load."""

    registry = ""
    with_orders = True

    def write(self) -> None:
        options = {"bootstrap.servers": self.bootstrap, "group.id": self.group, **QUICK}
        lines = "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in options.items())
        self.orders = f"{self.topic}-orders"
        orders = f"[[input.topics]]\ntopic = '{self.orders}'\nformat = 'avro'\nitem = 'buyer.id'\ntime = 'at'\n"
        orders += f"payload = {{ registry = '{self.registry}' }}\n"
        self.config_file.write_text(
            f"[kafka]\n{lines}\n[input]\npartitioned_by = 'none'\nitem_type = 'int'\n{AT_ONCE}\nidle = 'off'\n"
            f"[[input.topics]]\ntopic = '{self.topic}'\nitem = 'u'\ntime = 'ts'\n"
            f"{orders if self.with_orders else ''}[store]\nsnapshot_every = '{self.snapshot_every}'\n{self.extra}\n"
            "[[sketch]]\nname = 'seen'\nunit = 'event'\nwindow = '1m'\nepsilon = '30'\nepsilon_publish = '30'\n"
            "publish = 'state'\nintrusion = true\ndomain = { size = 500 }\nmax_count = 300\n"
        )

    def _create_others(self) -> None:
        with self.connection.admin.client("creating the second input") as admin:
            made = {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
            admin.create_topics({self.orders: made})
            admin.wait_for_topics([self.orders])
        self.cli("topics", "create")

    def cli(self, *arguments: str, code: int = 0) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert main([*arguments, "-c", str(self.config_file)]) == code
        return said.getvalue()

    def wait_settled(self, through: int) -> None:
        """Until all partitions of all topics have published that far."""
        deadline = time.monotonic() + 90
        with open_published(self.config) as published:
            while (published.reader.settled("seen") or (0, 0))[1] < through:
                assert time.monotonic() < deadline, self.logs()
                time.sleep(0.1)

    def both_committed(self) -> None:
        self.wait_committed()
        other = Second(self)
        self.wait_committed.__func__(other)  # type: ignore[attr-defined]
        other.connection.close()


class Second:
    """The second topic of an application, for what asks about one topic."""

    def __init__(self, app: TwoTopics) -> None:
        self.group, self.topic, self.partitions = f"{app.group}.{app.orders}", app.orders, 1
        self.bootstrap, self.truth, self.logs = app.bootstrap, app.truth, app.logs
        self.connection = Connection({"bootstrap.servers": app.bootstrap, "group.id": self.group})


def order(item: object, ts: int) -> bytes:
    out = io.BytesIO(b"\0" + struct.pack(">i", 7))
    out.seek(5)
    value = {"buyer": {"id": item}, "at": ts * 1000} if item is not None else {"buyer": {"id": 499}, "at": ts * 1000}
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


def counts(app: TwoTopics, windows: Sequence[int], of: int = 3) -> dict[int, Counter]:
    """What is published of these windows, both topics added up; they must be complete."""
    found: dict[int, Counter] = defaultdict(Counter)
    with open_published(app.config) as published:
        for window in published.every("seen", None, None):
            if window.window[0] in windows:
                assert window.whole, (window.missing, window.partial, window.diverged)
                assert window.partitions == of
                merged: Any = published.result(window)
                assert isinstance(merged, SealedState)
                state = np.asarray(merged.state).astype(np.int64)
                found[window.window[0]] = Counter({int(i): int(state[i]) for i in np.flatnonzero(state)})
    return found


def test_killed_workers_count_both_topics_once(kafka: str, tmp_path: Path) -> None:
    with StandInRegistry() as registry:
        registry.register(7, ORDER)
        TwoTopics.registry = registry.url
        app = TwoTopics(kafka, tmp_path / "app", partitions=2)
        orders = Second(app)
        try:
            clicks, bought = app.load(), Load(orders)  # type: ignore[arg-type]
            bought.encode = order
            first = app.start("a")
            for number in range(2000):
                at = BASE + number * MINUTE // 2000
                clicks.send(number % 490, at)
                if number % 2:
                    bought.send(number % 490, at)
                if number % 200 == 0:
                    bought.send_raw(b'{"u":1,"ts":%d}' % at, 0, at)  # of the other topic's format: counted nowhere
                    clicks.send_raw(order(1, at), 0, at)
                if number == 1000:
                    clicks.flush()
                    bought.flush()
                    app.both_committed()
                    first.kill()
                    second = app.start("b")
            clicks.flush()
            bought.flush()
            app.both_committed()
            second.kill()
            third = app.start("c")
            clicks.close_windows(BASE + 3 * MINUTE)
            bought.send(499, BASE + 3 * MINUTE, count=False)
            bought.flush()
            app.wait_settled(BASE + MINUTE)
            assert counts(app, [BASE]) == {BASE: app.truth[BASE]}
            with open_feed(app.config) as (feed, _):
                batches = list(feed.read({}))
                assert {one.partition for batch in batches for one in batch.entries} == {0, 1, TOPIC_STRIDE}
                assert batches[-1].behind == 0
                names = {name for batch in batches for name in batch.positions}
                assert names == {"0/0", "0/1", "1/0"}
                again = {name: at for batch in batches for name, at in batch.positions.items()}
                assert not [entry for batch in feed.read(again) for entry in batch.entries]
            assert third.terminate() == 0
        finally:
            app.close()
            orders.connection.close()


def test_a_topic_is_added_and_grows_and_all_are_reset_to_one_revision(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StandInRegistry() as registry:
        registry.register(7, ORDER)
        TwoTopics.registry = registry.url
        monkeypatch.setattr(TwoTopics, "with_orders", False)
        app = TwoTopics(kafka, tmp_path / "app", partitions=2)
        orders = Second(app)
        try:
            clicks, bought = app.load(), Load(orders)  # type: ignore[arg-type]
            bought.encode = order
            alone = app.start("alone")
            for item in range(300):
                clicks.send(item, BASE)
            clicks.close_windows(BASE + MINUTE + CLOSES)
            app.wait_settled(BASE + MINUTE)
            assert counts(app, [BASE], of=2) == {BASE: app.truth[BASE]}
            assert alone.terminate() == 0

            monkeypatch.setattr(TwoTopics, "with_orders", True)
            app.write()
            assert f"{app.group}.sealed.{app.orders}" in app.cli("topics", "create")
            assert "2 partitions" not in app.cli("validate", "--online")
            both = app.start("both")
            for item in range(300):
                clicks.send(item, BASE + MINUTE)
                bought.send(item, BASE + (item % 2) * MINUTE)
            clicks.close_windows(BASE + 2 * MINUTE + CLOSES)
            bought.send(499, BASE + 2 * MINUTE + CLOSES, count=False)
            bought.flush()
            app.wait_settled(BASE + 2 * MINUTE)
            windows = [BASE, BASE + MINUTE]
            assert counts(app, windows) == {start: app.truth[start] for start in windows}
            assert both.terminate() == 0

            healthy = json.loads(app.cli("recover", "--dry-run", "--format", "json"))
            assert [one["partition"] for one in healthy] == ["0", "1", str(TOPIC_STRIDE)]
            assert {one["outcome"] for one in healthy} == {"healthy"}
            with app.connection.admin.client("growing the second input") as admin:
                admin.create_partitions({app.orders: 2})
            first = app.cli("reset", "--yes", "--to", "end", "--format", "json")
            found = json.loads(first)
            assert [one["partition"] for one in found] == ["0", "1", str(TOPIC_STRIDE), str(TOPIC_STRIDE + 1)]
            assert {one["revision"] for one in found} == {"1"}
            third = app.start("third")
            bought = Load(orders)  # type: ignore[arg-type]  # a producer learns of partitions late
            bought.encode = order
            clicks.close_windows(BASE + 3 * MINUTE)  # the windows in which a revision begins may lack records
            for partition in (0, 1):
                bought.send(499, BASE + 3 * MINUTE, partition=partition, count=False)
            for item in range(300):
                clicks.send(item, BASE + 5 * MINUTE)
                bought.send(item, BASE + 5 * MINUTE, partition=item % 2)
            clicks.close_windows(BASE + 6 * MINUTE + CLOSES)
            for partition in (0, 1):
                bought.send(499, BASE + 6 * MINUTE + CLOSES, partition=partition, count=False)
            bought.flush()
            app.wait_settled(BASE + 6 * MINUTE)
            start = BASE + 5 * MINUTE
            assert counts(app, [start], of=4) == {start: app.truth[start]}
            assert third.terminate() == 0
        finally:
            app.close()
            orders.connection.close()
