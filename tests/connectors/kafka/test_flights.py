"""The main job on a real broker: a year of flights, two workers, one killed in mid-stream, read back by the CLI."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.kafka.app import MINUTE, App
from sketchstream_demo.flights import Flights, read_flights

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
INPUT = 'item = "tailnum"\ntime = "ts"\nidle = "off"'
MONTH = 'window = "1mo"\ntimezone = "America/New_York"'
OPEN = 'epsilon = "1"\ndomain = { slots = 8192, levels = 2 }\nmax_count = 200'
CELLS = ("distinct", "2", "10", "30")


@pytest.fixture(scope="module")
def flights() -> Flights:
    return read_flights()


def send(app: App, flights: Flights, workers: int = 2) -> None:
    """The year in time order, keyed by tail number; one worker is killed in mid-stream and started again."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": app.bootstrap, "partitioner": "murmur2_random", "linger.ms": 20})
    names = [json.dumps(name) for name in flights.tail_numbers]
    keys = [name.encode() for name in flights.tail_numbers]
    started = [app.start(fresh=True) for _ in range(workers)]
    for i, (ts, aircraft) in enumerate(zip(flights.time_ms.tolist(), flights.aircraft.tolist(), strict=True)):
        value = f'{{"ts":{ts},"tailnum":{names[aircraft] if aircraft >= 0 else "null"}}}'
        while True:
            try:
                producer.produce(app.topic, value.encode(), keys[aircraft] if aircraft >= 0 else None)
                break
            except BufferError:
                producer.poll(0.05)
        if i % 4000 == 0:
            producer.poll(0)
            time.sleep(0.05)
        if i == len(flights) // 2:
            producer.flush()
            started[0].kill()
            app.start(fresh=True)
    later = int(flights.time_ms[-1]) + 40 * 86_400_000
    for partition in range(app.partitions):
        for minute in range(20):  # a quorum
            value = f'{{"ts":{later + minute * MINUTE},"tailnum":null}}'
            producer.produce(app.topic, value.encode(), None, partition)
    assert producer.flush(60) == 0


def profiles(app: App, sketch: str) -> list[dict[str, Any]]:
    """What `sketchstream profile --all --format json` prints."""
    command = [sys.executable, "-m", "sketchstream.cli", "profile", "-c", str(app.config_file), "--sketch", sketch]
    done = subprocess.run([*command, "--all", "--format", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def truth_of(flights: Flights) -> list[np.ndarray]:
    return [month.counts for month in flights.months()]


def covered(found: list[dict[str, Any]], truth: list[np.ndarray]) -> list[bool]:
    """For every month and cell of the demo's table: is the truth within the 95% interval?"""
    hits = []
    for profile, counts in zip(found, truth, strict=True):
        for cell in CELLS:
            estimate = profile["distinct"] if cell == "distinct" else profile["at_least"][cell]
            want = counts.size if cell == "distinct" else int((counts >= int(cell)).sum())
            hits.append(estimate["low"] <= want <= estimate["high"])
    return hits


def run(app: App, flights: Flights, sketches: list[str]) -> list[list[dict[str, Any]]]:
    began = time.monotonic()
    send(app, flights)
    print(f"sent in {time.monotonic() - began:.1f} s")
    end = flights.months()[-1].end_ms
    app.wait_published(end, sketches=sketches)
    print(f"published after {time.monotonic() - began:.1f} s")
    with ThreadPoolExecutor(2) as readers:
        found = list(readers.map(partial(profiles, app), sketches))
    print(f"profiles after {time.monotonic() - began:.1f} s")
    return found


@pytest.mark.timeout(600)
def test_a_year_of_flights_is_exact_at_epsilon_30_and_covered_at_epsilon_1(
    kafka: str, tmp_path: Path, flights: Flights
) -> None:
    (tmp_path / "aircraft.txt").write_text("".join(f"{name}\n" for name in flights.tail_numbers))
    exact = 'epsilon = "30"\ndomain = { items_file = "../aircraft.txt" }\nmax_count = 200\n'
    exact += 'timezone = "America/New_York"'
    seeds = "".join(f'\n[[sketch]]\nname = "open{i}"\nunit = "event"\n{MONTH}\n{OPEN}' for i in range(3))
    app = App(kafka, tmp_path / "app", sketch=exact + seeds, window="1mo", input=INPUT, key=True)
    try:
        found, *others = run(app, flights, ["seen", "open0", "open1", "open2"])
    finally:
        app.close()
    truth = truth_of(flights)
    assert len(found) == 12
    for profile, counts in zip(found, truth, strict=True):
        assert profile["complete"] is True
        assert profile["partitions"] == {"published": 4, "of": 4, "missing": []}
        assert profile["distinct"]["value"] == pytest.approx(counts.size, abs=1e-3)
        for k, estimate in profile["at_least"].items():
            assert estimate["value"] == pytest.approx((counts >= int(k)).sum(), abs=1e-3), f"seen at least {k} times"
        for t, number in enumerate(profile["counts"][1:], start=1):
            assert number == pytest.approx((counts == t).sum(), abs=1e-3)
    hits = [hit for profile in others for hit in covered(profile, truth)]
    print(f"{sum(hits)} of {len(hits)} cells covered")
    assert sum(hits) >= 0.85 * len(hits)  # 95% is nominal and the noise is fresh: 90% would fail now and then


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_intervals_cover_with_three_keys(kafka: str, tmp_path: Path, flights: Flights) -> None:
    hits: list[bool] = []
    for seed in range(3):
        sketch = 'timezone = "America/New_York"\n' + OPEN
        app = App(kafka, tmp_path / f"app{seed}", sketch=sketch, window="1mo", input=INPUT, key=True)
        try:
            (found,) = run(app, flights, ["seen"])
        finally:
            app.close()
        hits += covered(found, truth_of(flights))
    print(f"{sum(hits)} of {len(hits)} cells covered")
    assert sum(hits) >= 0.9 * len(hits)
