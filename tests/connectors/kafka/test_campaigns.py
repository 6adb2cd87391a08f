"""Reach by group on a real broker: carriers as campaigns, aircraft as people; workers are killed in mid-stream."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.kafka.app import MINUTE, App
from sketchstream.cli.flights import data_folder
from sketchstream.stream.windows import DAY_MS, Calendar, Width

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
INPUT = 'item = "tailnum"\ntime = "ts"\nidle = "off"'
CARRIERS = ["AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN", "9E", "ZZ"]
"""Nine that fly, one that does not; the others are the group "other"."""
GROUPS = f'group_by = "carrier"\ngroups = {json.dumps(CARRIERS)}\nother_group = true\n'
FILTER = 'where = { origin = ["EWR", "JFK"] }\n'
WEEK = Calendar(Width.parse("1w"))


@dataclass(frozen=True)
class Flight:
    """One departure from New York City."""

    ts: int
    tailnum: str | None
    carrier: str
    origin: str


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    """The first three weeks of 2013, by scheduled departure."""

    def rows() -> Iterator[Flight]:
        with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
            for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
                if int(row["month"]) > 2:
                    continue
                hour = datetime.fromisoformat(row["time_hour"]).replace(tzinfo=UTC).timestamp()
                name = None if row["tailnum"] in ("", "NA") else row["tailnum"]
                yield Flight(int(hour) * 1000 + 60_000 * int(row["minute"]), name, row["carrier"], row["origin"])

    found = sorted(rows(), key=lambda one: one.ts)
    end = WEEK.window(found[0].ts)[0] + 21 * DAY_MS
    return [one for one in found if one.ts < end]


def send(app: App, flights: list[Flight]) -> None:
    """All flights keyed by tail number, past two workers, of which one is killed twice in mid-stream."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": app.bootstrap, "partitioner": "murmur2_random", "linger.ms": 20})
    app.start(fresh=True)
    app.start(fresh=True)
    for number, one in enumerate(flights):
        record = {"ts": one.ts, "tailnum": one.tailnum, "carrier": one.carrier, "origin": one.origin}
        producer.produce(app.topic, json.dumps(record).encode(), one.tailnum and one.tailnum.encode())
        if number % 2000 == 0:
            producer.poll(0)
            time.sleep(0.2)
        if number in (len(flights) // 3, 2 * len(flights) // 3):
            producer.flush()
            next(worker for worker in app.workers if worker.alive).kill()
            app.start(fresh=True)
    later = flights[-1].ts + 40 * DAY_MS
    for partition in range(app.partitions):
        for minute in range(20):  # a quorum
            value = json.dumps({"ts": later + minute * MINUTE, "tailnum": None})
            producer.produce(app.topic, value.encode(), None, partition)
    assert producer.flush(60) == 0


def answers(app: App, sketch: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What `sketchstream profile --all --by group --format json` prints, by window and group."""
    command = [sys.executable, "-m", "sketchstream.cli", "profile", "-c", str(app.config_file), "--sketch", sketch]
    done = subprocess.run([*command, "--all", "--by", "group", "--format", "json"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {(one["window_start"], one["group"]): one for one in found}


def counted(
    flights: list[Flight], groups: list[str], field: str, *, other: bool, kept: tuple[str, ...], weeks: int = 1
) -> dict[tuple[int, str], Counter[str]]:
    """Flights of each aircraft, by window and group, in plain Python."""
    out: dict[tuple[int, str], Counter[str]] = {}
    for one in flights:
        value = getattr(one, field)
        group = value if value in groups else "other"
        start = WEEK.window(one.ts)[0]
        for step in range(weeks):
            for name in (*groups, *(["other"] if other else [])):
                out.setdefault((start - 7 * step * DAY_MS, name), Counter())
            if one.tailnum is not None and one.origin in kept and (other or value in groups):
                out[start - 7 * step * DAY_MS, group][one.tailnum] += 1
    return out


def start_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.timeout(400)
def test_reach_by_carrier_is_exact_at_epsilon_30_and_covered_at_epsilon_1(
    kafka: str, tmp_path: Path, flights: list[Flight]
) -> None:
    names = sorted({one.tailnum for one in flights if one.tailnum is not None})
    (tmp_path / "aircraft.txt").write_text("".join(f"{name}\n" for name in names))
    listed = 'epsilon = "30"\ndomain = { items_file = "../aircraft.txt" }\nmax_count = 60\n'
    blocks = (
        f'\n[[sketch]]\nname = "open"\nwindow = "1w"\nepsilon = "1"\ndomain = {{ slots = 4096, levels = 1 }}\n'
        f"max_count = 60\n{GROUPS}{FILTER}"
        f'\n[[sketch]]\nname = "airports"\nwindow = "2w"\nevery = "1w"\n{listed}'
        'group_by = "origin"\ngroups = ["EWR", "JFK", "LGA"]\n'
    )
    app = App(kafka, tmp_path / "app", sketch=listed + GROUPS + FILTER + blocks, window="1w", input=INPUT, key=True)
    try:
        send(app, flights)
        app.wait_published(WEEK.window(flights[-1].ts)[1] + 7 * DAY_MS, sketches=["seen", "open", "airports"])
        exact, noisy, hopping = (answers(app, name) for name in ("seen", "open", "airports"))
    finally:
        app.close()
    everywhere = ("EWR", "JFK", "LGA")
    truth = counted(flights, CARRIERS, "carrier", other=True, kept=("EWR", "JFK"))
    fortnights = counted(flights, list(everywhere), "origin", other=False, kept=everywhere, weeks=2)
    for found, wanted in ((exact, truth), (hopping, fortnights)):
        assert {(start_ms(start), group) for start, group in found} == wanted.keys()
        for (start, group), answer in found.items():
            counts = wanted[start_ms(start), group]
            assert answer["complete"] is True
            assert answer["distinct"]["value"] == pytest.approx(len(counts), abs=1e-3), (start, group)
            for k, estimate in answer["at_least"].items():
                assert estimate["value"] == pytest.approx(sum(n >= int(k) for n in counts.values()), abs=1e-3)
    hits = []
    for (start, group), answer in noisy.items():
        counts = truth[start_ms(start), group]
        for k in (1, 2, 5):
            one = answer["at_least"][str(k)]
            hits.append(one["low"] <= sum(n >= k for n in counts.values()) <= one["high"])
    print(f"{sum(hits)} of {len(hits)} cells covered")
    assert sum(hits) >= 0.85 * len(hits)  # 95% is nominal and the noise is fresh: 90% would fail now and then
