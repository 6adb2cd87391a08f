"""A marked item and a telling count, sent through a worker on a real broker: no topic of ours and no log holds them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.kafka.app import AT_ONCE, MINUTE, App, everything

BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
MARK = "marked-5f1d-item"
TIMES = 73_331


def test_neither_topics_nor_logs_nor_offsets_hold_an_item_or_its_count(kafka: str, tmp_path: Path) -> None:
    app = App(
        kafka,
        tmp_path / "app",
        key=True,
        sketch='epsilon = "1"\ndomain = { slots = 4096, levels = 2 }\nmax_count = 300',
        input=f'item_type = "text"\nitem = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"\ndead_letter_topic = "%s"',
    )
    try:
        app.input = app.input % f"{app.group}.dead"
        app.write()
        dead = f"{app.group}.dead"
        with app.connection.admin.client("creating the dead letters") as admin:
            admin.create_topics({dead: {"num_partitions": 4, "replication_factor": 1}})
            admin.wait_for_topics([dead])
        load = app.load()
        for i in range(TIMES):
            load.send(MARK, BASE + i % 1000)
        for i in range(2000):
            load.send(f"other-{i}", BASE + 1000 + i)
        load.send({"not": MARK}, BASE + 5000, partition=0, count=False)  # a payload that is no item
        load.flush()
        worker = app.start(options=("--log-level", "debug"))
        load.close_windows(BASE + 3 * MINUTE)
        app.wait_published(BASE + MINUTE)
        assert worker.terminate() == 0
        haystack = {
            "state": everything(app, app.names.state),
            "sealed": everything(app, app.names.sealed),
            "dead letters": everything(app, dead),
            "logs": [worker.log.read_bytes()],
        }
        assert haystack["sealed"], "nothing was published: the search would prove nothing"
        assert haystack["dead letters"], "the malformed payload was not reported"
        for place, records in haystack.items():
            for record in records:
                assert MARK.encode() not in record, place
                assert b"other-7" not in record, place
        log = worker.log.read_text()
        assert not re.search(rf"\b{TIMES}\b", log.replace(",", ""))
    finally:
        app.close()


def test_open_snapshots_have_one_size_whatever_was_counted(kafka: str, tmp_path: Path) -> None:
    sizes = []
    with contextlib.ExitStack() as stack:
        apps: list[App] = []
        for items in (["quiet"], [f"loud-{i}" for i in range(5000)]):
            app = App(
                kafka,
                tmp_path / f"app{len(apps)}",
                partitions=1,
                key=True,
                sketch='epsilon = "1"\ndomain = { slots = 65536, levels = 2 }\nmax_count = 300',
                input=f'item_type = "text"\nitem = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"',
            )
            stack.callback(app.close)
            apps.append(app)
            app.start()
            load = app.load()
            for i in range(5000):
                load.send(items[i % len(items)], BASE + i, partition=0)
            load.flush()
        for app in apps:
            blobs = _wait(lambda app=app: [len(r) for r in everything(app, app.names.state) if len(r) > 200_000])
            assert app.workers[0].alive
            sizes.append(set(blobs))
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) <= 2, "the first snapshot of a sketch, and all later ones"


def _wait(found: Callable[[], list[int]]) -> list[int]:
    import time

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if len(seen := found()) >= 1:
            return seen
        time.sleep(0.2)
    pytest.fail("no snapshot of the open window appeared")
