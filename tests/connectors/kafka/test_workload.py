"""Tables over columns on a real broker: partitions are added, a killed worker loses nothing, values do not leak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from helpers.kafka.app import AT_ONCE, MINUTE, MISSED_SOON, App, everything
from sketchstream.kinds.workload.queries.queries import read_queries
from sketchstream.kinds.workload.queries.universe import Column, Universe
from sketchstream.kinds.workload.spec import WorkloadSpec

BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
MARK = "marked-5f1d-airport"
NUMBER = "31.415926535"
ASKED = ["marginals:1,2", "ranges:delay"]
TABLE = Universe([Column("origin", ["EWR", "JFK", "LGA"], other=True), Column.buckets("delay", -30, 15, 6)])
SKETCH = """kind = "workload"
epsilon = 8
delta = "1e-6"
mechanism = "gaussian"
strategy = "seen.strategy"
workload = ["marginals:1,2", "ranges:delay"]
[[sketch.columns]]
name = "origin"
field = "from.airport"
values = ["EWR", "JFK", "LGA"]
other = true
[[sketch.columns]]
name = "delay"
start = -30
width = 15
count = 6
"""


def test_tables_of_all_partitions_are_exact_up_to_their_noise(kafka: str, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    queries = read_queries(ASKED, {"origin": 4, "delay": 6}, ["delay"])
    spec = WorkloadSpec(queries, 8, "1e-6", "gaussian", universe=TABLE)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "seen.strategy").write_bytes(spec.strategy.to_bytes())
    given = f'item = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"'
    app = App(kafka, tmp_path / "app", sketch=SKETCH, input=given, kafka=MISSED_SOON)
    random = np.random.default_rng(3)
    cells = []
    try:
        first = app.start(options=("--log-level", "debug"))
        producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
        for number in range(6000):
            place = ["EWR", "JFK", "LGA", MARK, None][int(random.integers(0, 5))]
            delay = [NUMBER, "-30", "15", "59.999", "60", '"12.5"', "null", "-0.25"][int(random.integers(0, 8))]
            where = f'"from": {{"airport": {json.dumps(place)}}}, "delay": {delay}'
            text = f'{{"u": "{number}", "ts": {BASE + number}, {where}}}'
            cells.append(TABLE.locate({"origin": place, "delay": json.loads(delay)}))
            producer.produce(app.topic, text.encode(), str(number).encode())
            if number == 3000:
                producer.flush()
                app.wait_running(first, 1)
                first.kill()
                app.start(options=("--log-level", "debug"))
        for partition in range(app.partitions):
            producer.produce(app.topic, f'{{"u": "", "ts": {BASE + 3 * MINUTE}}}'.encode(), b"", partition)
        assert producer.flush(60) == 0
        app.wait_published(BASE + MINUTE)
        app.check_publications()
        ask = [sys.executable, "-m", "sketchstream.cli", "estimate", "-c", str(app.config_file), "--format", "json"]
        done = subprocess.run([*ask, "--to", "2023-11-14T22:15Z"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        topics = [*everything(app, app.names.state), *everything(app, app.names.sealed)]
        logs = [worker.log.read_bytes() for worker in app.workers]
    finally:
        app.close()
    histogram = np.bincount([cell for cell in cells if cell >= 0], minlength=24)
    error = (np.array(found["values"]) - queries.apply(histogram.astype(float))) / np.array(found["stderr"])
    assert len(found["layers"]) == 2 * app.partitions
    assert max(found["stderr"]) < 20
    assert np.abs(error).max() < 5.5
    assert found["tables"][0]["columns"][0]["labels"] == ["EWR", "JFK", "LGA", "other"]
    assert topics
    assert not any(mark.encode() in one for mark in (MARK, NUMBER) for one in [*topics, *logs])
