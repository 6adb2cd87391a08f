"""Workers as processes on a real broker: nothing lost, nothing twice, whatever happens to them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.kafka.app import AT_ONCE, MINUTE, MISSED_SOON, App

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE


EXACT_STATE = 'epsilon = "30"\ndomain = { size = 500 }\nmax_count = 300\npublish = "state"\nintrusion = false'


@pytest.fixture
def app_of(kafka: str, tmp_path: Path) -> Iterator[Callable[..., App]]:
    made: list[App] = []

    def make(**options: object) -> App:
        made.append(App(str(options.pop("bootstrap", kafka)), tmp_path / f"app{len(made)}", **options))
        return made[-1]

    yield make
    for app in made:
        app.close()


def stream(app: App, windows: int, per_window: int, seed: int) -> int:
    """Events over some windows, item popularity skewed; returns the end of the last one."""
    rng, load = random.Random(seed), app.load()
    for w in range(windows):
        for i in range(per_window):
            item = int(499 * rng.random() ** 3)
            load.send(item, BASE + w * MINUTE + i * MINUTE // per_window)
    load.flush()
    load.close_windows(BASE + (windows + 1) * MINUTE)
    return BASE + windows * MINUTE


def in_seconds(item: object, ts: int) -> bytes:
    """An event as `time.time()` in Python would stamp it."""
    return b'{"u":%s,"ts":%d.%03d}' % (json.dumps(item).encode(), ts // 1000, ts % 1000)


@pytest.mark.parametrize("unit", ["ms", "s"])
def test_two_workers_one_killed_in_mid_stream_and_restarted_count_exactly(
    unit: str, app_of: Callable[..., App]
) -> None:
    timed = f'item_type = "int"\nitem = "u"\ntime = "ts"\ntime_unit = "{unit}"\n{AT_ONCE}\nidle = "off"'
    app = app_of(kafka=MISSED_SOON, input=timed)
    both = app.start("a"), app.start("b")
    wait_for(lambda: all(worker.says("event=running") for worker in both))
    doomed = both[1]
    end = BASE + 3 * MINUTE
    rng, load = random.Random(1), app.load()
    if unit == "s":
        load.encode = in_seconds
    for w in range(3):
        for i in range(4000):
            load.send(int(499 * rng.random() ** 3), BASE + w * MINUTE + i * MINUTE // 4000)
            if i % 1000 == 999:
                load.flush()
                time.sleep(0.3)  # snapshots come meanwhile
        if w == 1:
            doomed.kill()
            app.start("b")
    load.close_windows(end + MINUTE)
    app.wait_published(end)
    app.check_exact()


def test_a_fast_producer_makes_nothing_of_the_others_late(app_of: Callable[..., App]) -> None:
    """2% of the records are 45 minutes fast, their timestamps too; all the rest is counted where it belongs."""
    app = app_of(input='item_type = "int"\nitem = "u"\ntime = "ts"\nidle = "off"')
    rng, load = random.Random(12), app.load()
    for i in range(24_000):  # 20 minutes, 5 a second in each partition
        fast = 45 * MINUTE if rng.random() < 0.02 else 0
        load.send(int(499 * rng.random() ** 3), BASE + i * 50 + fast)
    load.flush()
    worker = app.start()
    app.wait_published(BASE + 7 * MINUTE)  # ten minutes of lateness, and what the quorum takes
    assert max(entry.window[1] for entry in app.entries()) <= BASE + 10 * MINUTE
    for step in range(12):
        load.close_windows(BASE + 80 * MINUTE + step * 15_000)
    app.wait_published(BASE + 65 * MINUTE)
    app.check_exact()
    assert not worker.says("late=")
    assert not worker.says("clock_skew")
    assert worker.says("event=watermark_jumped")


def test_a_backlog_is_counted_before_idleness_closes_anything(app_of: Callable[..., App]) -> None:
    app = app_of(input=f'item_type = "int"\nitem = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "2s"\nidle_topic = "2s"')
    end = stream(app, 3, 3000, seed=3)
    app.start()
    app.wait_published(end)
    app.check_exact()
    app.wait_published(time.time_ns() // 1_000_000 - 2 * MINUTE)  # idle: the watermark follows the clock
    app.check_exact()  # and nothing that is sealed opens again
    assert not [w for w in app.workers if w.says("late=")]


@pytest.mark.parametrize(("raw", "bytes_"), [("true", 1024), ("false", 50 * 2**20), ("true", 50 * 2**20)])
def test_fetch_sizes_and_paths_change_nothing(app_of: Callable[..., App], raw: str, bytes_: int) -> None:
    app = app_of(kafka={"fetch.max.bytes": bytes_, "max.partition.fetch.bytes": bytes_}, extra=f"[worker]\nraw = {raw}")
    app.start()
    end = stream(app, 2, 3000, seed=4)
    app.wait_published(end)
    app.check_exact()


def test_a_stopped_worker_wakes_up_as_a_zombie_and_changes_nothing(app_of: Callable[..., App]) -> None:
    app = app_of(kafka=MISSED_SOON)
    first = app.start()
    load, rng = app.load(), random.Random(5)
    for i in range(3000):
        load.send(int(499 * rng.random() ** 3), BASE + i * MINUTE // 3000)
    load.flush()
    app.wait_running(first)
    first.stop()
    second = app.start()
    for i in range(3000):
        load.send(int(499 * rng.random() ** 3), BASE + MINUTE + i * MINUTE // 3000)
    load.close_windows(BASE + 3 * MINUTE)
    app.wait_published(BASE + 2 * MINUTE)
    wait_for(lambda: second.says("event=published") >= 4)
    first.wake()
    wait_for(lambda: first.says("event=revoked") + first.says("event=dropped") >= 1)
    second.kill()
    for i in range(1000):
        load.send(int(499 * rng.random() ** 3), BASE + 3 * MINUTE + i)
    load.close_windows(BASE + 6 * MINUTE)
    app.wait_published(BASE + 4 * MINUTE)
    app.check_exact()


def test_a_static_member_that_was_replaced_ends_and_the_new_one_goes_on(app_of: Callable[..., App]) -> None:
    app = app_of(kafka={"group.instance.id": "pod-0"})
    old = app.start()
    app.wait_running(old)
    old.stop()
    new = app.start()
    end = stream(app, 2, 2000, seed=6)
    app.wait_published(end)
    old.wake()
    assert old.process.wait(60) == 3
    assert "group.instance.id" in old.log.read_text()
    load = app.load()
    load.send(7, end + 2 * MINUTE)
    load.close_windows(end + 5 * MINUTE)
    app.wait_published(end + 3 * MINUTE)
    app.check_exact()
    assert new.alive


def test_a_graceful_stop_leaves_nothing_to_replay(app_of: Callable[..., App]) -> None:
    app = app_of(snapshot_every="60s")
    worker = app.start()
    load = app.load()
    for i in range(1000):
        load.send(i % 499, BASE + i)
    load.flush()
    app.wait_running(worker)
    time.sleep(2)
    assert worker.terminate() == 0
    ends = app.connection.admin.offsets(app.topic, range(4), "latest")
    from kafka import TopicPartition

    with app.connection.admin.client("asking") as admin:
        found = admin.list_group_offsets({app.group: [TopicPartition(app.topic, p) for p in range(4)]})[app.group]
    assert {tp.partition: committed.offset for tp, committed in found.items()} == ends
    app.start()
    load.close_windows(BASE + 3 * MINUTE)
    app.wait_published(BASE + MINUTE)
    app.check_exact()


def test_partitions_added_in_mid_window_are_said_so(app_of: Callable[..., App]) -> None:
    from sketchstream.published import read_published

    app = app_of(kafka={"metadata.max.age.ms": 1000}, sketch=EXACT_STATE)
    app.start()
    load = app.load()
    for i in range(400):
        load.send(i, BASE + i)
    load.flush()
    app.wait_committed()
    app.connection.admin.grow(app.topic, 6)
    app.partitions = 6
    app.wait_running(app.workers[0])
    load = app.load()
    for i in range(400):
        load.send(i, BASE + 1000 + i)
    load.close_windows(BASE + 3 * MINUTE)
    app.wait_published(BASE + MINUTE)
    parts = [read_published(entry.body) for entry in app.check_publications() if entry.window[0] == BASE]
    assert {part.origin.partition for part in parts} == set(range(6))
    assert any(part.repartitioned for part in parts)
    assert {f.partitions for f in app.frontiers().values()} == {6}
    assert sum(int(part.state.sum()) for part in parts) == 800, "no event is lost where its item had no slot before"


def test_a_start_after_partitions_were_added_counts_and_says_so(app_of: Callable[..., App]) -> None:
    """A new group reads from the beginning what was laid down under the former count: it loses nothing, and says so."""
    from sketchstream.published import read_published

    app = app_of(kafka={"metadata.max.age.ms": 1000}, sketch=EXACT_STATE)
    load = app.load()
    for i in range(8000):
        load.send(i % 400, BASE + i)
    load.flush()
    app.connection.admin.grow(app.topic, 6)
    app.partitions = 6
    load = app.load()
    for i in range(400):
        load.send(i, BASE + 20_000 + i)
    load.flush()
    app.wait_running(app.start())
    load.close_windows(BASE + 3 * MINUTE)
    app.wait_published(BASE + MINUTE)
    parts = [read_published(entry.body) for entry in app.check_publications() if entry.window[0] == BASE]
    assert sum(int(part.state.sum()) for part in parts) == 8400, "no event is lost"
    assert {part.origin.partitions for part in parts if part.origin.partition < 4} == {(4, 6)}
    assert any(part.repartitioned for part in parts)


def test_partitions_added_right_before_a_seal_are_said_so(app_of: Callable[..., App]) -> None:
    """The client hears of new partitions up to `metadata.max.age.ms` later; here, not before the window is sealed."""
    from sketchstream.published import read_published

    app = app_of(kafka={"metadata.max.age.ms": 300_000})
    worker = app.start()
    load = app.load()
    for i in range(400):
        load.send(i, BASE + i)
    load.flush()
    app.wait_committed()
    app.connection.admin.grow(app.topic, 6)
    load.close_windows(BASE + 3 * MINUTE)  # on the first four partitions
    app.wait_published(BASE + MINUTE)
    parts = [read_published(entry.body) for entry in app.check_publications() if entry.window[0] == BASE]
    assert [part.origin.partitions for part in parts] == [(4, 6)] * 4
    assert {frontier.partitions for frontier in app.frontiers().values()} == {6}
    assert worker.says("event=running") == 4, "the worker must not have heard of them otherwise"


def test_a_changed_sketch_begins_at_one_window_in_all_partitions(app_of: Callable[..., App]) -> None:
    """A rolling restart: for a while one worker has the old configuration and one the new."""
    from sketchstream.published import Release, read_published

    app = app_of()
    old = app.start()
    app.wait_running(old)
    load = app.load()
    sizes: dict[int, set[int]] = {}

    def feed(first: int, last: int) -> None:
        for minute in range(first, last):
            for i in range(40):
                load.send(i, BASE + minute * MINUTE + i)
        load.flush()
        app.wait_committed()

    feed(0, 3)
    app.sketch = app.sketch.replace("size = 500", "size = 600")
    app.write()
    new = app.start()
    app.wait_running(new, 2)
    feed(3, 6)
    assert old.terminate() == 0
    app.wait_running(app.start(), 1)
    feed(6, 30)
    load.close_windows(BASE + 32 * MINUTE)
    app.wait_published(BASE + 30 * MINUTE)
    for entry in app.check_publications():
        part = read_published(entry.body)
        assert isinstance(part, Release)
        sizes.setdefault(entry.window[0], set()).add(part.spec.domain.size or 0)
    assert all(len(found) == 1 for found in sizes.values()), sizes
    assert sizes[BASE] == sizes[BASE + 6 * MINUTE] == {500}
    assert sizes[BASE + 29 * MINUTE] == {600}
    app.check_exact()


def test_a_trimmed_partition_halts_and_the_others_flow(app_of: Callable[..., App]) -> None:
    app = app_of()
    worker = app.start()
    end = stream(app, 1, 1000, seed=8)
    app.wait_published(end)
    assert worker.terminate() == 0
    load = app.load()
    for i in range(2000):
        load.send(i % 499, end + 2 * MINUTE + i)
    load.flush()
    app.connection.admin.delete_before(app.topic, {2: app.connection.admin.offsets(app.topic, [2], "latest")[2]})
    worker = app.start()
    load.close_windows(end + 6 * MINUTE)
    wait_for(lambda: worker.says("event=halted partition=2") == 1)
    wait_for(lambda: {p for p, f in app.frontiers().items() if f.published_through >= end + 3 * MINUTE} == {0, 1, 3})
    assert "was trimmed" in worker.log.read_text()
    assert worker.alive
    assert worker.terminate() == 0


def wait_for(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_results_come_once_for_every_complete_window(app_of: Callable[..., App]) -> None:
    import json

    from sketchstream_connectors.kafka.cluster import topics
    from sketchstream_connectors.kafka.cluster.log_reader import Log

    app = app_of(kafka=MISSED_SOON, extra='[output]\nresults_topic = "PLACE"')
    topic = f"{app.group}.results"
    app.config_file.write_text(app.config_file.read_text().replace("PLACE", topic))
    topics.create(app.connection, topics.TopicNames(app.group, app.topic, app.names.sealed, results=topic))
    first, _ = app.start(), app.start()
    end = stream(app, 2, 2000, seed=11)
    app.wait_published(end)

    def results() -> dict[str, dict[str, object]]:
        log = Log(app.connection, topic)
        found = [(record.key.decode(), json.loads(record.value)) for record in log.advance()]
        log.close()
        assert len({key for key, _ in found}) == len({json.dumps(pair, sort_keys=True) for pair in found})
        return dict(found)

    wait_for(lambda: len(results()) == 2)
    first.kill()
    load = app.load()
    load.send(3, end + 2 * MINUTE)
    load.close_windows(end + 5 * MINUTE)
    app.wait_published(end + 3 * MINUTE)
    wait_for(lambda: len(results()) >= 3)
    for key, result in results().items():
        start = int(key.split("/")[2])
        assert result["complete"] is True
        counts = app.truth[start]
        assert result["distinct"]["value"] == pytest.approx(len(counts), abs=1e-3)
