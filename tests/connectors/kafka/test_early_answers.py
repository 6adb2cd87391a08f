"""Early answers over a real broker: published once, exact, whatever is killed, and replaced by the sealed windows.

In: a broker. Out: nothing. Touches: topics and processes of its own.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.kafka.app import MINUTE, MISSED_SOON, App
from sketchstream.config.loader import Config
from sketchstream.published import Release, read_published
from sketchstream.stream.interfaces import SealedEntry
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource, read_key
from sketchstream_connectors.kafka.results import PRELIMINARY
from sketchstream_connectors.readers import open_published

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
WINDOWS, EVERY = 3, 30_000
SKETCH = 'epsilon = "30"\ndomain = { size = 500 }\nmax_count = 300\nemit_every = "30s"\nepsilon_early = "50"'


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[App]:
    made = App(
        kafka,
        tmp_path / "app",
        partitions=2,
        sketch=SKETCH,
        kafka=MISSED_SOON,
        snapshot_every="200ms",
    )
    yield made
    made.close()


def early(app: App) -> list[SealedEntry]:
    source = KafkaSealedSource(app.connection, f"{app.group}.sealed")
    try:
        return list(source.early("seen"))
    finally:
        source.close()


def truth(app: App) -> dict[tuple[int, int, int], Counter[int]]:
    """Occurrences by item, by partition, window and time of the early answer: up to the record that reached that time.

    Every record moves the watermark, and they come in the order of their times.
    """
    starts = [BASE + window * MINUTE for window in range(WINDOWS)]
    waiting = {(p, start, start + step * EVERY) for p in range(2) for start in starts for step in (1, 2)}
    found: dict[tuple[int, int, int], Counter[int]] = defaultdict(Counter)
    log = Log(app.connection, app.topic)
    for record in log.advance():
        event = json.loads(record.value)
        for place in [one for one in waiting if one[0] == record.partition]:
            _, start, time_ms = place
            if event["u"] is not None and start <= event["ts"] < start + MINUTE:
                found[place][event["u"]] += 1
            if event["ts"] >= time_ms:
                waiting.discard(place)
    log.close()
    return found


def test_early_answers_are_exact_and_published_once_whatever_is_killed(app: App) -> None:
    worker = app.start()
    app.wait_running(worker, timeout_s=180)
    rng, load = random.Random(3), app.load()
    for window in range(WINDOWS):
        for i in range(3000):
            load.send(int(499 * rng.random() ** 3), BASE + window * MINUTE + i * MINUTE // 3000)
            if i % 500 == 499:
                load.flush()
                time.sleep(0.4)
            if i % 1200 == 1199:
                worker.kill()
                worker = app.start()
    load.flush()
    load.close_windows(BASE + (WINDOWS + 1) * MINUTE)
    app.wait_published(BASE + WINDOWS * MINUTE)
    wanted, found = truth(app), early(app)
    assert len({one.key for one in found}) == len(found), "one seal id for each"
    inside = [one for one in found if one.window[0] < BASE + WINDOWS * MINUTE]
    assert {(one.partition, one.window[0], one.early) for one in inside} == {
        (partition, BASE + window * MINUTE, BASE + window * MINUTE + step * EVERY)
        for partition in range(2)
        for window in range(WINDOWS)
        for step in (1, 2)
        if (window, step) != (WINDOWS - 1, 2)  # the record after the last window's seals it
    }
    for one in inside:
        part = read_published(one.body)
        assert isinstance(part, Release)
        counts = np.array(list(wanted[one.partition, one.window[0], one.early or 0].values()))
        for edge, have in zip(part.edges.tolist(), part.values.tolist(), strict=True):
            assert edge <= 0 or have == int((counts >= edge).sum()), (one.key, edge)
    copies: dict[bytes, set[bytes]] = defaultdict(set)
    log = Log(app.connection, f"{app.group}.sealed")
    for record in log.advance():
        key = read_key(record.key)
        if key is not None and key.body is not None and key.body.early is not None:
            copies[record.key].add(record.value)
    log.close()
    assert all(len(bodies) == 1 for bodies in copies.values())
    app.check_exact(BASE + window * MINUTE for window in range(WINDOWS))


def test_a_window_is_shown_as_preliminary_until_it_is_sealed(app: App) -> None:
    config_file = app.config_file
    config_file.write_text(
        config_file.read_text().replace("[[sketch]]", '[output]\nresults_topic = "RESULTS"\n[[sketch]]')
    )
    results = f"{app.group}.results"
    config_file.write_text(config_file.read_text().replace("RESULTS", results))
    with app.connection.admin.client("creating") as admin:
        admin.create_topics({results: {"num_partitions": 1, "replication_factor": 1}})
        admin.wait_for_topics([results])
    worker = app.start()
    app.wait_running(worker, timeout_s=180)
    load = app.load()
    for i in range(900):
        load.send(i % 500, BASE + i * 50)  # 45 seconds
    load.flush()

    def published(key: str) -> list[tuple[dict[str, object], dict[str, bytes]]]:
        log = Log(app.connection, results)
        try:
            return [
                (json.loads(record.value), dict(record.headers))
                for record in log.advance()
                if record.key.decode() == key
            ]
        finally:
            log.close()

    key, deadline = f"seen/0/{BASE}", time.monotonic() + 90
    while not any(answer["as_of"] == "2023-11-14T22:14:30Z" for answer, _ in published(f"{key}/preliminary")):
        assert time.monotonic() < deadline, app.logs()
        time.sleep(0.5)
    for answer, headers in published(f"{key}/preliminary"):
        assert (answer["preliminary"], answer["complete"]) == (True, False)
        assert PRELIMINARY in headers
    with open_published(Config.load(config_file)) as windows:
        (window,) = windows.every("seen", None, None)
        assert window.preliminary
    assert not published(key)
    load.close_windows(BASE + 2 * MINUTE)
    app.wait_published(BASE + MINUTE)
    deadline = time.monotonic() + 90
    while not published(key):
        assert time.monotonic() < deadline, app.logs()
        time.sleep(0.5)
    ((answer, headers),) = published(key)
    assert "preliminary" not in answer
    assert PRELIMINARY not in headers
    with open_published(Config.load(config_file)) as windows:
        assert not any(one.preliminary for one in windows.every("seen", BASE, BASE + MINUTE))
