"""Reach by group on a real broker, workers killed in mid-stream: carriers as campaigns, aircraft as people; packages of
Python's standard library as campaigns, names in their source as people, each of which may be in several packages.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
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


def send(app: App, records: Iterable[tuple[str | None, dict[str, Any]]], total: int) -> None:
    """All records with their keys, past two workers, of which one is killed twice in mid-stream.

    Args:
        app: whose topic and workers.
        records: key and fields, in order of their time "ts".
        total: how many there are.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": app.bootstrap, "partitioner": "murmur2_random", "linger.ms": 20})
    app.start(fresh=True)
    app.start(fresh=True)
    last = 0
    for number, (key, record) in enumerate(records):
        last = record["ts"]
        producer.produce(app.topic, json.dumps(record).encode(), key and key.encode())
        if number % 2000 == 0:
            producer.poll(0)
            time.sleep(0.2)
        if number in (total // 3, 2 * total // 3):
            producer.flush()
            next(worker for worker in app.workers if worker.alive).kill()
            app.start(fresh=True)
    later = last + 40 * DAY_MS
    for partition in range(app.partitions):
        for minute in range(20):  # a quorum
            value = json.dumps({"ts": later + minute * MINUTE})
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
        rows = (
            (one.tailnum, {"ts": one.ts, "tailnum": one.tailnum, "carrier": one.carrier, "origin": one.origin})
            for one in flights
        )
        send(app, rows, len(flights))
        app.wait_published(WEEK.window(flights[-1].ts)[1] + 7 * DAY_MS, sketches=["seen", "open", "airports"])
        exact, noisy, hopping = (answers(app, name) for name in ("seen", "open", "airports"))
    finally:
        app.close()
    everywhere = ("EWR", "JFK", "LGA")
    truth = counted(flights, CARRIERS, "carrier", other=True, kept=("EWR", "JFK"))
    fortnights = counted(flights, list(everywhere), "origin", other=False, kept=everywhere, weeks=2)
    require_exact(exact, truth)
    require_exact(hopping, fortnights)
    require_covered(noisy, truth)


def require_exact(found: dict[tuple[str, str], dict[str, Any]], wanted: dict[tuple[int, str], Counter[str]]) -> None:
    """Every number of every group of every window is the true one."""
    assert {(start_ms(start), group) for start, group in found} == wanted.keys()
    for (start, group), answer in found.items():
        counts = wanted[start_ms(start), group]
        assert answer["complete"] is True
        assert answer["distinct"]["value"] == pytest.approx(len(counts), abs=1e-3), (start, group)
        for k, estimate in answer["at_least"].items():
            assert estimate["value"] == pytest.approx(sum(n >= int(k) for n in counts.values()), abs=1e-3)


def require_covered(found: dict[tuple[str, str], dict[str, Any]], wanted: dict[tuple[int, str], Counter[str]]) -> None:
    """Intervals hold the truth; 95% is nominal and the noise is fresh: a bound of 90% would fail now and then."""
    hits = []
    for (start, group), answer in found.items():
        counts = wanted[start_ms(start), group]
        for k in (1, 2, 5):
            one = answer["at_least"][str(k)]
            hits.append(one["low"] <= sum(n >= k for n in counts.values()) <= one["high"])
    print(f"{sum(hits)} of {len(hits)} cells covered")
    assert sum(hits) >= 0.85 * len(hits)


PACKAGES = ["email", "http", "importlib", "json", "logging", "unittest", "urllib", "xml"]


def names() -> list[tuple[str, str]]:
    """Package and name of each name of five letters or more, in the order of the source's files; asyncio is "other"."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [
        (package, name)
        for package in sorted([*PACKAGES, "asyncio"])
        for path in sorted((root / package).rglob("*.py"))
        for name in re.findall(r"[A-Za-z_]{5,}", path.read_text("utf-8", "replace"))
    ][::3]


@pytest.mark.timeout(600)
def test_names_by_package_are_exact_at_epsilon_30_and_covered_at_epsilon_1(kafka: str, tmp_path: Path) -> None:
    """A name is in several packages, so that unit "item" pays for each; one state is large enough to be imaged."""
    found = names()
    random.Random(5).shuffle(found)  # every window has all packages
    first = WEEK.window(1_700_000_000_000)[0]
    times = [first + number * 21 * DAY_MS // len(found) for number in range(len(found))]
    truth: dict[tuple[int, str], Counter[str]] = {}
    for (package, name), ts in zip(found, times, strict=True):
        for group in (*PACKAGES, "other"):
            truth.setdefault((WEEK.window(ts)[0], group), Counter())
        truth[WEEK.window(ts)[0], package if package in PACKAGES else "other"][name] += 1
    (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in sorted({name for _, name in found})))
    groups = f'group_by = "package"\ngroups = {json.dumps(PACKAGES)}\nother_group = true\n'
    listed = 'epsilon = "30"\ndomain = { items_file = "../names.txt" }\nmax_count = 60\n'
    slots = "domain = { slots = 32768, levels = 1 }"
    blocks = (
        f'\n[[sketch]]\nname = "large"\nwindow = "1w"\nepsilon = "1"\n{slots}\nmax_count = 60\n{groups}'
        f'\n[[sketch]]\nname = "items"\nwindow = "1w"\nepsilon = "2"\n{slots}\nunit = "item"\nmodulus = 64\n{groups}'
    )
    given = 'item = "name"\ntime = "ts"\nidle = "off"'
    app = App(kafka, tmp_path / "app", sketch=listed + groups + blocks, window="1w", input=given, key=True)
    try:
        rows = ({"ts": ts, "name": name, "package": package} for (package, name), ts in zip(found, times, strict=True))
        send(app, ((str(row["name"]), row) for row in rows), len(found))
        app.wait_published(WEEK.window(times[-1])[1], 300, sketches=["seen", "large", "items"])
        exact, large, items = (answers(app, name) for name in ("seen", "large", "items"))
    finally:
        app.close()
    require_exact(exact, truth)
    require_covered(large, truth)
    require_covered(items, truth)
