"""Reach by group on a real broker, workers killed in mid-stream: carriers as campaigns, aircraft as people; packages of
Python's standard library as campaigns, names in their source as people, each of which may be in several packages.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
import re
import sysconfig
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import Run
from helpers.kafka.app import MINUTE, MISSED_SOON, App
from sketchstream.image import is_large
from sketchstream.items.arrays import Items
from sketchstream.items.key import Key
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.kinds.profile.ranking import Ranking
from sketchstream.stream.windows.calendar import DAY_MS, Calendar, Width
from sketchstream_demo.flights import data_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
INPUT = 'item = "tailnum"\ntime = "ts"\nidle = "off"'
CARRIERS = ["AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN", "9E", "ZZ"]
"""Nine that fly, one that does not; the others are the group "other"."""
GROUPS = f'group_by = "carrier"\ngroups = {json.dumps(CARRIERS)}\nother_group = true\n'
FILTER = 'where = { origin = ["EWR", "JFK"] }\n'
WEEK = Calendar(Width.parse("1w"))
KEY = Key(bytes(range(16)))


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
    """All records with their keys, past two workers; twice one that reads is killed in mid-stream, and another begins.

    The first is killed when all records so far are in snapshots, the second whatever it has read since.

    Args:
        app: whose topic and workers.
        records: key and fields, in order of their time "ts".
        total: how many there are.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": app.bootstrap, "partitioner": "murmur2_random", "linger.ms": 20})
    for worker in (app.start(), app.start()):
        app.wait_running(worker, 1)
    first, second = total // 3, 2 * total // 3
    last = 0
    for number, (key, record) in enumerate(records):
        last = record["ts"]
        producer.produce(app.topic, json.dumps(record).encode(), key and key.encode())
        if number % 2000 == 0:
            producer.poll(0)
            time.sleep(0.2)
        if number in (first, second):
            producer.flush()
            if number == first:
                app.wait_committed()
            next(worker for worker in app.workers if worker.alive and worker.says("event=running")).kill()
            app.start()
    later = last + 40 * DAY_MS
    for partition in range(app.partitions):
        for minute in range(20):  # a quorum
            value = json.dumps({"ts": later + minute * MINUTE})
            producer.produce(app.topic, value.encode(), None, partition)
    assert producer.flush(60) == 0


def answers(run: Run, app: App, sketch: str, method: str = "inverse") -> dict[tuple[str, str], dict[str, Any]]:
    """What `sketchstream profile --all --by group --format json` prints, by window and group.

    Intervals are those of linear estimates, whatever the method; the default one takes ten times as long.
    """
    command = ("profile", "-c", str(app.config_file), "--sketch", sketch, "--method", method)
    done = run(*command, "--all", "--by", "group", "--format", "json")
    assert done.code == 0, done.err
    found = [json.loads(line) for line in done.out.splitlines()]
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
    kafka: str, tmp_path: Path, flights: list[Flight], run: Run
) -> None:
    names = sorted({one.tailnum for one in flights if one.tailnum is not None})
    (tmp_path / "aircraft.txt").write_text("".join(f"{name}\n" for name in names))
    listed = 'unit = "event"\nepsilon = "30"\ndomain = { items_file = "../aircraft.txt" }\nmax_count = 60\n'
    blocks = (
        f'\n[[sketch]]\nname = "open"\nunit = "event"\nwindow = "1w"\nepsilon = "1"\n'
        f"domain = {{ slots = 4096, levels = 1 }}\nmax_count = 60\n{GROUPS}{FILTER}"
        f'\n[[sketch]]\nname = "airports"\nwindow = "2w"\nevery = "1w"\n{listed}'
        'group_by = "origin"\ngroups = ["EWR", "JFK", "LGA"]\n'
    )
    sketches = listed + GROUPS + FILTER + blocks
    app = App(kafka, tmp_path / "app", sketch=sketches, window="1w", input=INPUT, key=True, kafka=MISSED_SOON)
    try:
        rows = (
            (one.tailnum, {"ts": one.ts, "tailnum": one.tailnum, "carrier": one.carrier, "origin": one.origin})
            for one in flights
        )
        send(app, rows, len(flights))
        app.wait_published(WEEK.window(flights[-1].ts)[1] + 7 * DAY_MS, sketches=["seen", "open", "airports"])
        exact, hopping = (answers(run, app, name) for name in ("seen", "airports"))
        noisy = answers(run, app, "open", "likelihood")
    finally:
        app.close()
    everywhere = ("EWR", "JFK", "LGA")
    truth = counted(flights, CARRIERS, "carrier", other=True, kept=("EWR", "JFK"))
    fortnights = counted(flights, list(everywhere), "origin", other=False, kept=everywhere, weeks=2)
    require_exact(exact, truth)
    require_exact(hopping, fortnights)
    require_covered([noisy], truth)


def require_exact(found: dict[tuple[str, str], dict[str, Any]], wanted: dict[tuple[int, str], Counter[str]]) -> None:
    """Every number of every group of every window is the true one."""
    assert {(start_ms(start), group) for start, group in found} == wanted.keys()
    for (start, group), answer in found.items():
        counts = wanted[start_ms(start), group]
        assert answer["complete"] is True
        assert answer["distinct"]["value"] == pytest.approx(len(counts), abs=1e-3), (start, group)
        for k, estimate in answer["at_least"].items():
            assert estimate["value"] == pytest.approx(sum(n >= int(k) for n in counts.values()), abs=1e-3)


def require_covered(
    found: Iterable[dict[tuple[str, str], dict[str, Any]]],
    wanted: dict[tuple[int, str], Counter[str]],
    least: float = 0.85,
) -> None:
    """Intervals hold the truth.

    Args:
        found: answers of some sketches, by window and group.
        wanted: the true counts.
        least: share of the cells that must be covered. 95% is nominal and the noise is fresh, of which cells of one
            group share much: of 99 cells a bound of 90% would fail now and then, of 48 one of 85%.
    """
    hits = []
    for (start, group), answer in (one for answers in found for one in answers.items()):
        counts = wanted[start_ms(start), group]
        for k in (1, 2, 5):
            one = answer["at_least"][str(k)]
            hits.append(one["low"] <= sum(n >= k for n in counts.values()) <= one["high"])
    print(f"{sum(hits)} of {len(hits)} cells covered")
    assert sum(hits) >= least * len(hits)


PACKAGES = ["email", "http", "xml", "importlib", "json", "logging", "unittest", "urllib"]


def names(packages: list[str], step: int) -> list[tuple[str, str]]:
    """Package and name of names of five letters or more, in the order of the source's files; asyncio is "other".

    Args:
        packages: that are searched.
        step: one name of so many is taken.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    return [
        (package, name)
        for package in sorted([*packages, "asyncio"])
        for path in sorted((root / package).rglob("*.py"))
        for name in re.findall(r"[A-Za-z_]{5,}", path.read_text("utf-8", "replace"))
    ][::step]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("packages", "step", "weeks", "slots", "least"),
    [
        pytest.param(PACKAGES[:3], 6, 2, 65536, 0.75, id="few"),
        pytest.param(PACKAGES, 3, 3, 32768, 0.85, id="all", marks=pytest.mark.slow),
    ],
)
def test_names_by_package_are_exact_at_epsilon_30_and_covered_at_epsilon_1(
    kafka: str, tmp_path: Path, run: Run, packages: list[str], step: int, weeks: int, slots: int, least: float
) -> None:
    """A name is in several packages, so that unit "item" pays for each, or for the one in which it counts.

    One state is large enough to be imaged.
    """
    assert is_large((len(packages) + 1) * slots, 4)
    found = names(packages, step)
    random.Random(5).shuffle(found)  # every window has all packages
    first = WEEK.window(1_700_000_000_000)[0]
    times = [first + number * 7 * weeks * DAY_MS // len(found) for number in range(len(found))]
    truth: dict[tuple[int, str], Counter[str]] = {}
    for (package, name), ts in zip(found, times, strict=True):
        for group in (*packages, "other"):
            truth.setdefault((WEEK.window(ts)[0], group), Counter())
        truth[WEEK.window(ts)[0], package if package in packages else "other"][name] += 1
    (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in sorted({name for _, name in found})))
    groups = f'group_by = "package"\ngroups = {json.dumps(packages)}\nother_group = true\n'
    listed = 'epsilon = "30"\ndomain = { items_file = "../names.txt" }\nmax_count = 60\n'
    domain = f"domain = {{ slots = {slots}, levels = 1 }}"
    blocks = (
        f'\n[[sketch]]\nname = "large"\nunit = "event"\nwindow = "1w"\nepsilon = "1"\n{domain}\n'
        f"max_count = 60\n{groups}"
        f'\n[[sketch]]\nname = "items"\nwindow = "1w"\nepsilon = "2"\n{domain}\nunit = "item"\nmodulus = 64\n{groups}'
        f'\n[[sketch]]\nname = "ranked"\nwindow = "1w"\nunit = "item"\nmodulus = 61\n{listed}'.replace(
            "max_count = 60\n", ""
        )
        + f'{groups}max_groups = 1\ngroup_limit = "ranked"\n'
    )
    given = 'item = "name"\ntime = "ts"\nidle = "off"'
    sketches = listed + groups + blocks
    app = App(kafka, tmp_path / "app", sketch=sketches, window="1w", input=given, key=True, kafka=MISSED_SOON)
    (app.folder / "key").unlink()
    KEY.save(app.folder / "key")
    try:
        rows = ({"ts": ts, "name": name, "package": package} for (package, name), ts in zip(found, times, strict=True))
        send(app, ((str(row["name"]), row) for row in rows), len(found))
        app.wait_published(WEEK.window(times[-1])[1], 300, sketches=["seen", "large", "items", "ranked"])
        exact, large, items, ranked = (answers(run, app, name) for name in ("seen", "large", "items", "ranked"))
    finally:
        app.close()
    require_exact(exact, truth)
    require_covered([large, items], truth, least)
    require_sampled(ranked, truth, [*packages, "other"])


@pytest.mark.timeout(400)
def test_regions_of_packages_are_those_of_the_stream_in_sixteen_partitions(
    kafka: str, tmp_path: Path, run: Run
) -> None:
    """What packages or weeks have in common, workers killed in mid-stream: exact at epsilon 30, right with presence."""
    packages, found = PACKAGES[:3], names(PACKAGES[:3], 12)
    random.Random(6).shuffle(found)
    first = WEEK.window(1_700_000_000_000)[0]
    times = [first + number * 14 * DAY_MS // len(found) for number in range(len(found))]
    truth: dict[int, dict[str, set[str]]] = {}
    came: dict[int, dict[str, set[str]]] = {}
    for (package, name), ts in zip(found, times, strict=True):
        start = WEEK.window(ts)[0]
        if package in packages:
            truth.setdefault(start, {}).setdefault(name, set()).add(package)
        for period, back in (("p1", 0), ("p2", 7 * DAY_MS)):  # a week is the first of one window, the second of another
            came.setdefault(start - back, {}).setdefault(name, set()).add(period)
    (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in sorted({name for _, name in found})))
    alike = (
        'unit = "item"\nepsilon = "30"\nepsilon_overlap = "30"\ndomain = { items_file = "../names.txt" }\n'
        "overlap = true\n"
    )
    listed = f'{alike}group_by = "package"\ngroups = {json.dumps(packages)}\n'
    present = f'\n[[sketch]]\nname = "present"\nwindow = "1w"\n{listed}counts = "presence"\nmodulus = 20000\n'
    returned = f'\n[[sketch]]\nname = "returned"\nwindow = "2w"\nevery = "1w"\nperiods = "1w"\n{alike}modulus = 1021\n'
    sketches = f"{listed}modulus = 1021\nhistograms = false\n{present}{returned}histograms = false\n"
    app = App(
        kafka, tmp_path / "app", partitions=16, sketch=sketches, window="1w", input=INPUT.replace("tailnum", "name"),
        key=True, kafka=MISSED_SOON,
    )  # fmt: skip
    try:
        rows = ({"ts": ts, "name": name, "package": package} for (package, name), ts in zip(found, times, strict=True))
        send(app, ((str(row["name"]), row) for row in rows), len(found))
        app.wait_published(WEEK.window(times[-1])[1], 200, sketches=["seen", "present"])
        app.wait_published(WEEK.window(times[-1])[1] + 7 * DAY_MS, 200, sketches=["returned"])
        found_in = {}
        for sketch in ("seen", "present", "returned"):
            done = run("overlap", "-c", str(app.config_file), "--sketch", sketch, "--all", "--format", "json")
            assert done.code == 0, done.err
            found_in[sketch] = [json.loads(line) for line in done.out.splitlines()]
    finally:
        app.close()
    # a uniform residue of 20,000 is seldom 0
    for sketch, within, wanted in (("seen", 0.5, truth), ("present", 3, truth), ("returned", 0.5, came)):
        assert [start_ms(one["window_start"]) for one in found_in[sketch]] == sorted(wanted)
        for answer in found_in[sketch]:
            assert answer["complete"] is True
            there = Counter(frozenset(inside) for inside in wanted[start_ms(answer["window_start"])].values())
            regions = {frozenset(one["in"]): one["value"] for one in answer["regions"]}
            assert len(regions) == 2 ** len(answer["groups"]) - 1
            for region, value in regions.items():
                assert value == pytest.approx(there[region], abs=within), (sketch, sorted(region))


def require_sampled(
    found: dict[tuple[str, str], dict[str, Any]], wanted: dict[tuple[int, str], Counter[str]], groups: list[str]
) -> None:
    """A name counts in the one group that the key ranks first for it, and answers are scaled up from those names."""
    everybody = sorted({name for counts in wanted.values() for name in counts})
    ranking = Ranking.of(Groups(groups, max_groups=1, limit="ranked"), KEY)
    inside: dict[str, set[str]] = {group: set() for group in groups}
    for first, piece in Items.of(everybody).pieces():
        for at, group in enumerate(groups):
            codes = np.full(len(piece), at, np.int32)
            kept = ranking.first(piece, codes, np.empty(len(piece), np.uint64)) >= 0
            inside[group] |= {everybody[first + place] for place in np.flatnonzero(kept)}
    assert sorted(itertools.chain(*inside.values())) == everybody, "each in one group"
    assert {(start_ms(start), group) for start, group in found} == wanted.keys()
    held = []
    for (start, group), answer in found.items():
        counts = wanted[start_ms(start), group]
        sample = [n for name, n in counts.items() if name in inside[group]]
        assert answer["sample"] == {"share": f"1/{len(groups)}", "groups": len(groups)}
        for k in (1, 2, 5):
            one, truth = answer["at_least"][str(k)], sum(n >= k for n in counts.values())
            assert one["value"] / len(groups) == pytest.approx(sum(n >= k for n in sample), abs=1e-2), (start, group)
            held.append(one["low"] <= truth <= one["high"])
    assert sum(held) >= 0.8 * len(held), "the key is fixed, and there is no noise"
